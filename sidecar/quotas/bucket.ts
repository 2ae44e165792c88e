/**
 * A bucket of tokens, filled at a rate up to a burst. Its rate can be changed while it is in use: what was in it stays, and
 * the time before the change counts at the rate that held then, so that a change neither forgives nor gives anything.
 */
/** A whole token, but for rounding: after the time that was said it is there. */
const ONE = 1 - 1e-6;

export class Bucket {
  perSec: number;
  burst: number;
  tokens: number;
  /** Until when it is filled. */
  #at: number;

  /** Full. */
  constructor(perSec: number, burst: number, now: number) {
    this.perSec = perSec;
    this.burst = burst;
    this.tokens = burst;
    this.#at = now;
  }

  fill(now: number): void {
    const elapsedMs = now - this.#at;
    if (elapsedMs <= 0) return;
    const filled = this.tokens + (elapsedMs * this.perSec) / 1_000;
    this.tokens = filled < this.burst ? filled : this.burst;
    this.#at = now;
  }

  take(now: number): boolean {
    this.fill(now);
    if (this.tokens < ONE) return false;
    this.tokens--;
    return true;
  }

  /** Until one can be taken; 0 = now. */
  waitMs(now: number): number {
    this.fill(now);
    return this.tokens >= ONE ? 0 : ((1 - this.tokens) / this.perSec) * 1_000;
  }

  /** Until it is full. */
  resetMs(now: number): number {
    this.fill(now);
    return ((this.burst - this.tokens) / this.perSec) * 1_000;
  }

  /** Nothing has been taken from it lately that it would have to remember. */
  isFull(now: number): boolean {
    this.fill(now);
    return this.tokens >= this.burst;
  }

  /** @param since `clock.now()` when the new rate began to count. */
  change(perSec: number, burst: number, since: number): void {
    this.fill(since);
    this.perSec = perSec;
    this.burst = burst;
    if (this.tokens > burst) this.tokens = burst;
  }
}
