/**
 * How far the operators' clock is ahead of this machine's. An override ends at a wall time that the control plane (or
 * `reachctl`) wrote, and this host's clock may be wrong: by it a block would end too early, or never. So each replica's beacon
 * says what time it is there, and expiry is judged by the median of them (the lower one of two: rather a block too long). Small
 * differences are none: what NATS and the network take is in them. Pure, but for the clock it is given.
 */

/** Differences below are no fault of a clock. */
const TOLERATED_MS = 2_000;
/** A replica that has said nothing for so long has no say. */
const FORGET_MS = 30_000;
const MAX_REPLICAS = 16;

export class OperatorsClock {
  readonly #heard = new Map<string, { readonly aheadMs: number; readonly at: number }>();
  /** The last word, of a replica or of a copy on disk. */
  aheadMs: number;

  constructor(aheadMs = 0) {
    this.aheadMs = aheadMs;
  }

  /** @param now monotonic. Returns whether the difference that counts has changed. */
  heard(from: string, theirWallMs: number, ourWallMs: number, now: number): boolean {
    for (const [name, { at }] of this.#heard) if (now - at > FORGET_MS) this.#heard.delete(name);
    if (!this.#heard.has(from) && this.#heard.size >= MAX_REPLICAS) return false;
    this.#heard.set(from, { aheadMs: theirWallMs - ourWallMs, at: now });
    const all = [...this.#heard.values()].map(({ aheadMs }) => aheadMs).sort((a, b) => a - b);
    const median = all[(all.length - 1) >> 1] as number;
    const counts = Math.abs(median) < TOLERATED_MS ? 0 : median;
    if (Math.abs(counts - this.aheadMs) < TOLERATED_MS / 2 && (counts === 0) === (this.aheadMs === 0)) return false;
    this.aheadMs = counts;
    return true;
  }
}
