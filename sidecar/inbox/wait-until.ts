/** Waits until something comes, or the time is over. */
import type { Clock, Timer } from '../../base/clock.ts';
import type { Wakes } from './box.ts';

export class WaitUntil implements Wakes {
  readonly promise: Promise<void>;
  readonly #among: Set<Wakes>;
  readonly #timer: Timer;
  #done: () => void = () => undefined;

  constructor(among: Set<Wakes>, clock: Clock, ms: number) {
    this.promise = new Promise((done) => {
      this.#done = done;
    });
    this.#among = among;
    among.add(this);
    this.#timer = clock.after(ms, () => this.wake());
  }

  wake(): void {
    this.#timer.cancel();
    this.#among.delete(this);
    this.#done();
  }
}
