/** Traces that are told whatever their hash says, because something in them failed or was slow. For so long as spans of them may come; bounded. */
const MOST = 4_096;

export class KeptTraces {
  readonly #forMs: number;
  /** Trace to `clock.now()` when it is forgotten; in the order in which they came. */
  readonly #until = new Map<string, number>();

  constructor(forMs: number) {
    this.#forMs = forMs;
  }

  /** True = it was not kept before. */
  add(traceId: string, now: number): boolean {
    const isNew = !this.#until.delete(traceId);
    if (this.#until.size >= MOST) this.#until.delete(this.#until.keys().next().value as string);
    this.#until.set(traceId, now + this.#forMs);
    return isNew;
  }

  has(traceId: string): boolean {
    return this.#until.size !== 0 && this.#until.has(traceId);
  }

  forget(now: number): void {
    for (const [traceId, until] of this.#until) {
      if (until > now) return;
      this.#until.delete(traceId);
    }
  }
}
