/**
 * What time it is for overrides: the time of the NATS servers, which all replicas share, wherever this machine's clock differs
 * from it by more than reading it can be wrong by. A replica whose clock is wrong would else lift what others have blocked,
 * or keep it for hours. The servers' time is read from the leader's lease, which is stored anew every moment: how old a stored
 * message is nobody can tell, so only one counts that was not there at the look before.
 */

/** Between two looks, and what a renewal is old by then. */
const TOLERATED_MS = 4_000;
const READINGS = 8;

export class ServerClock {
  readonly #readings: number[] = [];
  #lastSeq = 0;

  /** To be called every few seconds. @param storedAtMs by the server */
  seen(seq: number, storedAtMs: number, wallMs: number): void {
    const isFresh = this.#lastSeq !== 0 && seq !== this.#lastSeq;
    this.#lastSeq = seq;
    if (!isFresh) return;
    this.#readings.push(storedAtMs - wallMs);
    if (this.#readings.length > READINGS) this.#readings.shift();
  }

  /** It has been read: until then this machine's clock is all there is, and it may be wrong. */
  get isKnown(): boolean {
    return this.#readings.length > 0;
  }

  /** By how much it is ahead of this machine's; 0 = both are right as far as can be told. */
  get aheadMs(): number {
    // A message may be older than it seems, never younger.
    const ahead = this.#readings.length === 0 ? 0 : Math.max(...this.#readings);
    return Math.abs(ahead) < TOLERATED_MS ? 0 : ahead;
  }
}
