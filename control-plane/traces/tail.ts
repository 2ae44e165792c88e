/**
 * Who looks on while calls end: each with filters of his own and a bounded backlog. Lines that are too many for him are left out and
 * counted, and he is told how many: a picture with holes that says so is better than a control plane that grows.
 */
import type { Clock, Timer } from '../../base/clock.ts';
import type { ToldSpan } from './read-batch.ts';

/** Written together, so that a thousand lines a second are no thousand writes. */
const WRITE_EVERY_MS = 250;

export interface TailOut {
  /** False = he is gone. */
  hop(span: ToldSpan): boolean;
  leftOut(count: number): boolean;
}

export class Tail {
  readonly #clock: Clock;
  readonly #out: TailOut;
  readonly #fits: (span: ToldSpan) => boolean;
  readonly #most: number;
  #waiting: ToldSpan[] = [];
  #leftOut = 0;
  #timer: Timer | null = null;
  #isOver = false;

  /** @param maxPerSec lines that are written each second at most */
  constructor(clock: Clock, fits: (span: ToldSpan) => boolean, maxPerSec: number, out: TailOut) {
    this.#clock = clock;
    this.#fits = fits;
    this.#most = Math.max(1, Math.ceil((maxPerSec * WRITE_EVERY_MS) / 1_000));
    this.#out = out;
  }

  take(span: ToldSpan): void {
    if (this.#isOver || !this.#fits(span)) return;
    if (this.#waiting.length >= this.#most) this.#leftOut++;
    else this.#waiting.push(span);
    this.#timer ??= this.#clock.after(WRITE_EVERY_MS, () => this.#write());
  }

  stop(): void {
    this.#isOver = true;
    this.#timer?.cancel();
    this.#waiting = [];
  }

  #write(): void {
    this.#timer = null;
    const lines = this.#waiting.sort((a, b) => a.start_ms + a.elapsed_ms - b.start_ms - b.elapsed_ms);
    const leftOut = this.#leftOut;
    this.#waiting = [];
    this.#leftOut = 0;
    for (const line of lines) if (!this.#out.hop(line)) return this.stop();
    if (leftOut > 0 && !this.#out.leftOut(leftOut)) this.stop();
  }
}
