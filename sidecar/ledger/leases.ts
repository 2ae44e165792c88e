/**
 * Whether the lease of somebody else's claim is over. Judged by what cannot be wrong: how long we have seen the same sequence
 * without a change, by our own steady clock, and times that the server itself has stamped later on. While the server was away nobody
 * could extend a lease: when it is back, each begins anew, so that a worker that is alive can say so, or how its work has ended.
 */
import type { Clock } from '../../base/clock.ts';

const MAX_REMEMBERED = 10_000;

class Seen {
  readonly seq: number;
  readonly since: number;
  constructor(seq: number, since: number) {
    this.seq = seq;
    this.since = since;
  }
}

export class Leases {
  readonly #clock: Clock;
  /** By claim, oldest first. */
  readonly #seen = new Map<string, Seen>();
  #serverMs = 0;
  #returnedAt = Number.NEGATIVE_INFINITY;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** The server's clock was at least there. */
  noteServerTime(ms: number): void {
    if (ms > this.#serverMs) this.#serverMs = ms;
  }

  /** The server was away, and is back. */
  noteReturn(): void {
    this.#returnedAt = this.#clock.now();
  }

  /** What is left of a lease that was stored at `atMs` as sequence `seq`; 0 = it is over. */
  leftMs(id: string, seq: number, atMs: number, leaseMs: number): number {
    const now = this.#clock.now();
    let seen = this.#seen.get(id);
    if (seen === undefined || seen.seq !== seq) {
      this.#seen.delete(id);
      seen = new Seen(seq, now);
      this.#seen.set(id, seen);
      if (this.#seen.size > MAX_REMEMBERED) this.#seen.delete(this.#seen.keys().next().value as string);
    }
    const unseen = Math.min(leaseMs - (now - seen.since), atMs + leaseMs - this.#serverMs);
    const left = Math.max(0, unseen, this.#returnedAt + leaseMs - now);
    if (left === 0) this.#seen.delete(id);
    return left;
  }
}
