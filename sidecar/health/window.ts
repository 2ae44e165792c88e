/**
 * A sliding window of time buckets: how many calls ended lately, how many of them failed, how many were slow. Old
 * samples leave a tenth of the window at a time. Adding is a compare and three additions. It counts and forgets; what
 * the counts mean is `trip.ts`.
 */
export const BUCKETS = 10;

/** Present bucket, when it ends, calls by bucket, failures and slow ones by bucket (null = none). */
export type WindowDump = readonly [number, number, readonly number[], readonly number[] | null, readonly number[] | null];

export class Window {
  /** Of the buckets before the present one. */
  readonly #calls = new Int32Array(BUCKETS);
  /** In the present bucket: a number here, since among thousands of providers each further place in memory is a cold one. */
  #callsNow = 0;
  /** Made with the first failure and the first slow call: most providers of thousands never have one, and each array costs. */
  #failures: Int32Array | null = null;
  #slow: Int32Array | null = null;
  #bucketMs: number;
  #index = 0;
  /** The present bucket takes samples before this instant. */
  #endsAt = Number.NEGATIVE_INFINITY;
  /** Totals over all buckets. May include expired ones until `roll`. */
  calls = 0;
  failures = 0;
  slow = 0;

  constructor(windowMs: number) {
    this.#bucketMs = windowMs / BUCKETS;
  }

  /** Keeps the samples: those at hand expire by the new length from the next bucket on. */
  resize(windowMs: number): void {
    this.#bucketMs = windowMs / BUCKETS;
  }

  add(now: number, failed: boolean, slow: boolean): void {
    if (now >= this.#endsAt) this.#turn(now);
    const at = this.#index;
    this.#callsNow++;
    this.calls++;
    if (failed) {
      this.#failures ??= new Int32Array(BUCKETS);
      this.#failures[at] = (this.#failures[at] as number) + 1;
      this.failures++;
    }
    if (slow) {
      this.#slow ??= new Int32Array(BUCKETS);
      this.#slow[at] = (this.#slow[at] as number) + 1;
      this.slow++;
    }
  }

  /** Drops what has expired; afterwards the totals are right for `now`. */
  roll(now: number): void {
    if (now >= this.#endsAt && this.calls > 0) this.#turn(now);
  }

  clear(): void {
    this.#calls.fill(0);
    this.#callsNow = 0;
    this.#failures = null;
    this.#slow = null;
    this.calls = 0;
    this.failures = 0;
    this.slow = 0;
    this.#endsAt = Number.NEGATIVE_INFINITY;
  }

  /** As it is in memory: what has expired and was not looked at since is still there. null = empty. */
  dump(): WindowDump | null {
    if (this.calls === 0) return null;
    const calls = Array.from(this.#calls);
    calls[this.#index] = this.#callsNow;
    return [
      this.#index,
      this.#endsAt,
      calls,
      this.#failures === null ? null : Array.from(this.#failures),
      this.#slow === null ? null : Array.from(this.#slow),
    ];
  }

  restore(dump: WindowDump | null): void {
    this.clear();
    this.#index = 0;
    if (dump === null) return;
    const [index, endsAt, calls, failures, slow] = dump;
    this.#index = index;
    this.#endsAt = endsAt;
    this.#calls.set(calls);
    this.#callsNow = calls[index] as number;
    this.#calls[index] = 0;
    this.#failures = failures === null ? null : Int32Array.from(failures);
    this.#slow = slow === null ? null : Int32Array.from(slow);
    this.calls = sum(calls);
    this.failures = failures === null ? 0 : sum(failures);
    this.slow = slow === null ? 0 : sum(slow);
  }

  #turn(now: number): void {
    // A window without samples starts its first bucket at the first one.
    const steps = this.calls === 0 ? BUCKETS : Math.floor((now - this.#endsAt) / this.#bucketMs) + 1;
    if (steps >= BUCKETS) {
      if (this.calls > 0) this.clear();
      this.#endsAt = now + this.#bucketMs;
      return;
    }
    this.#calls[this.#index] = this.#callsNow;
    this.#callsNow = 0;
    for (let step = 0; step < steps; step++) {
      const at = (this.#index = (this.#index + 1) % BUCKETS);
      this.calls -= this.#calls[at] as number;
      this.#calls[at] = 0;
      if (this.#failures !== null) {
        this.failures -= this.#failures[at] as number;
        this.#failures[at] = 0;
      }
      if (this.#slow !== null) {
        this.slow -= this.#slow[at] as number;
        this.#slow[at] = 0;
      }
    }
    this.#endsAt += steps * this.#bucketMs;
  }
}

function sum(counts: readonly number[]): number {
  let total = 0;
  for (const count of counts) total += count;
  return total;
}
