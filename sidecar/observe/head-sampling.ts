/**
 * Which traces are told from their beginning: those whose id's hash is below a threshold. Every sidecar hashes alike, so that a lower
 * threshold picks a part of what a higher one picks, and a trace is there from its root down to where somebody has less room. What a
 * caller did not pick (its `traceparent` says so) is not picked further down either; that it did picks nothing that the threshold
 * does not. Each second has room for so many: when it is used up the threshold is halved, and in the next second it is what the
 * rate of the last one allows.
 */
import { hash32 } from '../../base/rendezvous.ts';

const ALL = 4_294_967_296;
const SECOND_MS = 1_000;

export class HeadSampling {
  readonly #most: number;
  readonly #maxPerSec: number;
  #threshold: number;
  #secondAt = Number.NEGATIVE_INFINITY;
  /** Offered and picked in this second. */
  #offered = 0;
  #picked = 0;
  /** When the threshold is halved for the next time. */
  #limit: number;

  constructor(ratio: number, maxPerSec: number) {
    this.#most = Math.round(ratio * ALL);
    this.#maxPerSec = maxPerSec;
    this.#threshold = this.#most;
    this.#limit = maxPerSec;
  }

  /** 0–1. */
  get ratio(): number {
    return this.#threshold / ALL;
  }

  picks(traceId: string, now: number): boolean {
    if (now - this.#secondAt >= SECOND_MS) this.#nextSecond(now);
    this.#offered++;
    if (this.#threshold < ALL && hash32(traceId) >= this.#threshold) return false;
    if (++this.#picked > this.#limit) {
      this.#threshold = Math.floor(this.#threshold / 2);
      // The rate has halved: what comes on top until the next halving takes the longer, the oftener that was.
      this.#limit += Math.max(1, this.#maxPerSec / 4);
    }
    return true;
  }

  #nextSecond(now: number): void {
    const seconds = (now - this.#secondAt) / SECOND_MS;
    const perSec = Number.isFinite(seconds) ? this.#offered / seconds : 0;
    this.#threshold = perSec * (this.#most / ALL) <= this.#maxPerSec ? this.#most : Math.floor((this.#maxPerSec / perSec) * ALL);
    this.#secondAt = now;
    this.#offered = 0;
    this.#picked = 0;
    this.#limit = this.#maxPerSec;
  }
}
