/** Times of many calls, all of them kept: a percentile of a scenario is exact, and the same on every machine. */
const FIRST = 64;

export type Quantile = 'p50' | 'p90' | 'p95' | 'p99' | 'mean' | 'most';
export const QUANTILES: readonly Quantile[] = ['p50', 'p90', 'p95', 'p99', 'mean', 'most'];

const SHARES: Readonly<Record<string, number>> = Object.freeze({ p50: 0.5, p90: 0.9, p95: 0.95, p99: 0.99, most: 1 });

export class Durations {
  count = 0;
  sumMs = 0;
  mostMs = 0;
  #times = new Float64Array(FIRST);
  #isSorted = true;

  add(ms: number): void {
    if (this.count === this.#times.length) {
      const wider = new Float64Array(this.count * 2);
      wider.set(this.#times);
      this.#times = wider;
    }
    this.#times[this.count++] = ms;
    this.sumMs += ms;
    if (ms > this.mostMs) this.mostMs = ms;
    this.#isSorted = false;
  }

  addAll(other: Durations): void {
    for (let i = 0; i < other.count; i++) this.add(other.#times[i] as number);
  }

  /** Of what was added so far; 0 when that is nothing. A percentile is the smallest time that so many do not exceed. */
  at(quantile: Quantile): number {
    if (this.count === 0) return 0;
    if (quantile === 'mean') return this.sumMs / this.count;
    if (!this.#isSorted) {
      this.#times.subarray(0, this.count).sort();
      this.#isSorted = true;
    }
    const rank = Math.ceil((SHARES[quantile] as number) * this.count - 1e-9);
    return this.#times[Math.min(this.count, Math.max(1, rank)) - 1] as number;
  }
}
