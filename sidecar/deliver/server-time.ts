/**
 * What time the NATS server has. Expiry runs on its clock, since it is the one that says when a message was stored; clocks of
 * machines are never compared. Every time stamp it gives is a moment that has passed, so the highest one, carried on by our
 * own steady clock, is never ahead of it: nothing expires too early. Being told the time makes it exact.
 */

/** Steady clocks of two machines part by some milliseconds in this time. */
const KEEPS_MS = 600_000;

export class ServerTime {
  #ahead = Number.NEGATIVE_INFINITY;
  #askedAt = Number.NEGATIVE_INFINITY;

  /** The server stamped this, at the latest now. */
  seen(stampMs: number, now: number): void {
    const ahead = stampMs - now;
    if (ahead > this.#ahead) this.#ahead = ahead;
  }

  /** The server's time as it has just said. */
  told(serverMs: number, now: number): void {
    this.#askedAt = now;
    // What was concluded before may have drifted; stamps seen since then only raise it.
    this.#ahead = serverMs - now;
  }

  /** It is to be asked: never was, or long ago. */
  isDue(now: number): boolean {
    return now - this.#askedAt > KEEPS_MS;
  }

  /** Not before the next `isDue`, whatever came of the question. */
  asked(now: number): void {
    this.#askedAt = now;
  }

  /** Milliseconds since 1970 by the server's clock, or a little earlier; -Infinity = nothing is known. */
  at(now: number): number {
    return this.#ahead + now;
  }
}
