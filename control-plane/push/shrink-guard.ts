/**
 * What is held back when a new leader works out much less than what is pushed (SPEC R2.7): since when, why, and whether an
 * operator has said that it is true. The judgement itself is the registry's (`registry/shrink.ts`).
 */
import { shrinks, type Tally } from '../registry/shrink.ts';

export interface Shrinking {
  readonly reason: string;
  readonly sinceMs: number;
}

export class ShrinkGuard {
  #held: Shrinking | null = null;
  #isConfirmed = false;

  get held(): Shrinking | null {
    return this.#held;
  }

  /**
   * Why what is pushed must stay as it is for now; null when it may be written.
   * @param isExplained whether the registry knows why an agent is gone.
   */
  judge(pushed: Tally, derived: Tally, isExplained: (agent: string) => boolean, nowMs: number): string | null {
    const reason = this.#isConfirmed ? null : shrinks(pushed, derived, isExplained);
    this.#held = reason === null ? null : { reason, sinceMs: this.#held?.sinceMs ?? nowMs };
    return reason;
  }

  /** An operator says that it is true; false when nothing was held back. */
  release(): boolean {
    if (this.#held === null) return false;
    this.#held = null;
    this.#isConfirmed = true;
    return true;
  }
}
