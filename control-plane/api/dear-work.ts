/**
 * Questions that stand in the way of everything else while they are answered: a whole document is read and judged in one go, for
 * anybody who may look. One at a time, and after each the process has as long to itself as it took, so that the lease, sidecars
 * and the red button get at least every second moment, however many ask. Operators take turns, so that one who asks without end waits for
 * himself alone.
 */
import type { Clock } from '../../base/clock.ts';

/** Questions of one operator that wait: windows that all show the same, or a pipeline that judges many files. */
const MAX_WAITING = 16;

export class DearWork {
  readonly #clock: Clock;
  /** By operator, who is next first: how each of their questions goes on. */
  readonly #waiting = new Map<string, (() => void)[]>();
  #isBusy = false;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** What `work` gives; null = too many of `who` wait already. */
  async run<T>(who: string, work: () => T | Promise<T>): Promise<T | null> {
    const own = this.#waiting.get(who) ?? [];
    if (own.length >= MAX_WAITING) return null;
    await new Promise<void>((go) => {
      own.push(go);
      this.#waiting.set(who, own);
      this.#next();
    });
    const begunMs = this.#clock.now();
    try {
      return await work();
    } finally {
      this.#clock.after(this.#clock.now() - begunMs, () => {
        this.#isBusy = false;
        this.#next();
      });
    }
  }

  #next(): void {
    const first = this.#waiting.entries().next().value;
    if (this.#isBusy || first === undefined) return;
    this.#isBusy = true;
    const [who, own] = first;
    this.#waiting.delete(who);
    const go = own.shift();
    if (own.length > 0) this.#waiting.set(who, own);
    go?.();
  }
}
