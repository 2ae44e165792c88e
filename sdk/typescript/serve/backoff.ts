/** How long to wait before the next try to reach the sidecar: twice as long each time, anywhere in that time, so that agents do not come back in step. */
import type { Clock } from '../../../base/clock.ts';
import type { Random } from '../../../base/random.ts';

/** A sidecar that restarts is back in well under a second. */
const FIRST_MS = 100;
const MAX_MS = 5_000;

export class Backoff {
  readonly #random: Random;
  #tries = 0;

  constructor(random: Random) {
    this.#random = random;
  }

  /** It worked. */
  reset(): void {
    this.#tries = 0;
  }

  /** Milliseconds, at least a quarter of the present step. */
  next(): number {
    const step = Math.min(MAX_MS, FIRST_MS * 2 ** Math.min(this.#tries++, 16));
    return step * (0.25 + 0.75 * this.#random.next());
  }
}

/** Settles after the time, or at once when the signal aborts. */
export function pause(ms: number, clock: Clock, signal: AbortSignal): Promise<void> {
  return new Promise((done) => {
    if (signal.aborted) {
      done();
      return;
    }
    const over = (): void => {
      timer.cancel();
      signal.removeEventListener('abort', over);
      done();
    };
    const timer = clock.after(ms, over);
    signal.addEventListener('abort', over, { once: true });
  });
}
