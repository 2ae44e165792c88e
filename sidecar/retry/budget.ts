/**
 * The retry budget of the whole sidecar: retries may be at most a share of the calls of the last ten seconds, plus a small
 * floor so that a quiet sidecar can retry at all. When everything fails at once, retries would double the load on what is
 * left; this is what stops that.
 */
const BUCKETS = 10;
const BUCKET_MS = 1_000;

export class RetryBudget {
  readonly #ratio: number;
  readonly #floor: number;
  readonly #calls = new Float64Array(BUCKETS);
  readonly #retries = new Float64Array(BUCKETS);
  #sumCalls = 0;
  #sumRetries = 0;
  #tick = 0;

  /** @param ratio share of recent calls that may be retries, 0–1. @param minPerSec retries a second that are always allowed. */
  constructor(ratio: number, minPerSec: number) {
    this.#ratio = ratio;
    this.#floor = minPerSec * ((BUCKETS * BUCKET_MS) / 1_000);
  }

  noteCall(now: number): void {
    const at = this.#advance(now);
    this.#calls[at] = (this.#calls[at] as number) + 1;
    this.#sumCalls++;
  }

  /** Takes one retry from the budget; false when it is spent. */
  take(now: number): boolean {
    const at = this.#advance(now);
    if (this.#sumRetries + 1 > this.#floor + this.#ratio * this.#sumCalls) return false;
    this.#retries[at] = (this.#retries[at] as number) + 1;
    this.#sumRetries++;
    return true;
  }

  /** Calls and retries of the last ten seconds, for words and metrics. */
  recent(): { calls: number; retries: number } {
    return { calls: this.#sumCalls, retries: this.#sumRetries };
  }

  /** As if there had been so many in the last ten seconds, and no others (replay). */
  assume(calls: number, retries: number, now: number): void {
    this.#calls.fill(0);
    this.#retries.fill(0);
    this.#tick = Math.floor(now / BUCKET_MS);
    const at = this.#tick % BUCKETS;
    this.#sumCalls = this.#calls[at] = calls;
    this.#sumRetries = this.#retries[at] = retries;
  }

  #advance(now: number): number {
    const tick = Math.floor(now / BUCKET_MS);
    if (tick > this.#tick) {
      const steps = Math.min(BUCKETS, tick - this.#tick);
      for (let i = 1; i <= steps; i++) {
        const at = (this.#tick + i) % BUCKETS;
        this.#sumCalls -= this.#calls[at] as number;
        this.#sumRetries -= this.#retries[at] as number;
        this.#calls[at] = 0;
        this.#retries[at] = 0;
      }
      this.#tick = tick;
    }
    return this.#tick % BUCKETS;
  }
}
