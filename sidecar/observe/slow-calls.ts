/**
 * Whether a call was slow: longer than a fixed time, or longer than 99 of 100 calls of its capability took of late. The running P99 is
 * followed without keeping samples: it steps up where a call took longer and down, 99 times less, where it did not, in equal shares
 * of itself, so that it comes to rest where one call in a hundred is above it. Bounded: capabilities beyond the bound have none.
 */
const SHARE_ABOVE = 0.01;
/** Of the estimate, for one call above it. 1 % of calls move it up by so much, 99 % down by a hundredth. */
const STEP = 0.1;
/** Before it there is no word on what is slow. */
const ENOUGH = 200;
const MAX_CAPABILITIES = 4_096;
/** Nothing this quick is worth telling as slow. */
const LEAST_MS = 1;

class Running {
  calls = 0;
  /** Of the first calls the greatest; then the running P99. */
  p99Ms = 0;
}

export class SlowCalls {
  readonly #fixedMs: number;
  readonly #byCapability = new Map<string, Running>();

  /** @param fixedMs 0 = by the running P99 */
  constructor(fixedMs: number) {
    this.#fixedMs = fixedMs;
  }

  isSlow(capability: string, elapsedMs: number): boolean {
    if (this.#fixedMs > 0) return elapsedMs > this.#fixedMs;
    let running = this.#byCapability.get(capability);
    if (running === undefined) {
      if (this.#byCapability.size >= MAX_CAPABILITIES) return false;
      running = new Running();
      this.#byCapability.set(capability, running);
    }
    if (++running.calls <= ENOUGH) {
      if (elapsedMs > running.p99Ms) running.p99Ms = elapsedMs;
      return false;
    }
    const isAbove = elapsedMs > running.p99Ms;
    running.p99Ms *= isAbove ? 1 + STEP : 1 - (STEP * SHARE_ABOVE) / (1 - SHARE_ABOVE);
    return isAbove && elapsedMs > LEAST_MS;
  }
}
