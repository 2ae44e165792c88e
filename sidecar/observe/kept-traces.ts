/** Traces that are told whatever their hash says, because something in them failed or was slow. For so long as spans of them may come; bounded. */
const MOST = 4_096;

export class KeptTraces {
  readonly #forMs: number;
  /** Trace (`traceKey`) to `clock.now()` when it is forgotten; in the order in which they came. */
  readonly #until = new Map<number, number>();

  constructor(forMs: number) {
    this.#forMs = forMs;
  }

  /** True = it was not kept before. */
  add(trace: number, now: number): boolean {
    const isNew = !this.#until.delete(trace);
    if (this.#until.size >= MOST) this.#until.delete(this.#until.keys().next().value as number);
    this.#until.set(trace, now + this.#forMs);
    return isNew;
  }

  get isEmpty(): boolean {
    return this.#until.size === 0;
  }

  has(trace: number): boolean {
    return this.#until.has(trace);
  }

  forget(now: number): void {
    for (const [trace, until] of this.#until) {
      if (until > now) return;
      this.#until.delete(trace);
    }
  }
}
