/**
 * Time, passed in. Everything that decides by time takes a Clock, so that the sandbox and the tests can run it on a
 * virtual one. `now()` never jumps; wall time is for people and for records, never for arithmetic.
 */
export interface Timer {
  /** Stops the timer; harmless when it has fired already. */
  cancel(): void;
}

export interface Clock {
  /** Monotonic milliseconds (fractional) from an arbitrary start. */
  now(): number;
  /** Wall-clock milliseconds since 1970. */
  wallMs(): number;
  /** Calls `fire` once, `delayMs` from now. A delay beyond `MAX_DELAY_MS` is waited out in pieces, never cut short. */
  after(delayMs: number, fire: () => void): Timer;
}

/** The longest delay one platform timer can hold (2^31 - 1 ms, about 24.8 days); beyond it Node fires after 1 ms. */
export const MAX_DELAY_MS = 2_147_483_647;

class RealTimer implements Timer {
  #handle: NodeJS.Timeout;
  constructor(delayMs: number, fire: () => void) {
    this.#handle = this.#arm(delayMs, fire);
  }
  #arm(delayMs: number, fire: () => void): NodeJS.Timeout {
    if (delayMs <= MAX_DELAY_MS) return setTimeout(fire, delayMs);
    return setTimeout(() => {
      this.#handle = this.#arm(delayMs - MAX_DELAY_MS, fire);
    }, MAX_DELAY_MS);
  }
  cancel(): void {
    clearTimeout(this.#handle);
  }
}

class RealClock implements Clock {
  now(): number {
    return performance.now();
  }
  wallMs(): number {
    return Date.now();
  }
  after(delayMs: number, fire: () => void): Timer {
    return new RealTimer(delayMs, fire);
  }
}

export const realClock: Clock = new RealClock();

/**
 * Gives sockets and timers their turn in the midst of long work. A chain of `after(0, …)` does not: while each link takes
 * longer than its delay, the platform runs timer after timer and never looks at a socket.
 */
export function nextTurn(): Promise<void> {
  return new Promise((done) => {
    setImmediate(done);
  });
}

/** Calls once all that waits for this turn has been heard: where many small things are to leave together. */
export function atTurnEnd(run: () => void): void {
  setImmediate(run);
}
