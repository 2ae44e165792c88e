/**
 * The writer's shrink guard (SPEC R2.7): a new leader that finds most of what is pushed without any trace in the registry
 * does not believe its own reading. What went away in the usual ways (a goodbye, a lease that ran out) has left a trace
 * and is not counted, so that the guard does not stand in the way of two providers of which one leaves.
 */
export interface Shrinking {
  readonly reason: string;
  readonly sinceMs: number;
  readonly before: number;
  readonly after: number;
}

export class ShrinkGuard {
  readonly #ratio: number;
  #held: Shrinking | null = null;
  #confirmed = false;

  /** @param ratio share of the pushed providers that may vanish without a trace, 0-1. */
  constructor(ratio: number) {
    this.#ratio = ratio;
  }

  get held(): Shrinking | null {
    return this.#held;
  }

  /** Why what is pushed must stay as it is for now; null when it may be written. */
  judge(pushed: ReadonlySet<string>, known: ReadonlySet<string>, nowMs: number): string | null {
    let traceless = 0;
    for (const agent of pushed) if (!known.has(agent)) traceless++;
    if (this.#confirmed || traceless === 0 || traceless <= pushed.size * this.#ratio) {
      this.#held = null;
      return null;
    }
    const reason = `${traceless} of ${pushed.size} providers that are pushed are not in the registry any more, without a goodbye or a lease that ran out`;
    this.#held = { reason, sinceMs: this.#held?.sinceMs ?? nowMs, before: pushed.size, after: pushed.size - traceless };
    return reason;
  }

  /** An operator says that it is true; false when nothing was held back. */
  release(): boolean {
    const was = this.#held !== null;
    this.#held = null;
    if (was) this.#confirmed = true;
    return was;
  }
}
