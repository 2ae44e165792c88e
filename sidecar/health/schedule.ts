/**
 * What in the health view falls due by time alone, and when. No timers: whoever reads health compares one number
 * (`nextChangeAt`) with the present and lets what is due happen then, so a process without traffic does no work and a
 * virtual clock needs nothing special. Readers may cache what they derived for as long as `version` stands still and
 * `nextChangeAt` is ahead.
 */

/** Something with a date. */
export interface Timed {
  /** When `advance` is next of use (`clock.now()` scale); Infinity = never by itself. */
  readonly dueAt: number;
  /** Lets everything happen that was due by `now`, and sets `dueAt` anew. */
  advance(now: number): void;
}

export class Schedule {
  /** Rises with every change that can alter who is usable, or with how much weight. */
  version = 0;
  /** No timed change falls due before this instant (`clock.now()` scale); Infinity when none is pending. */
  nextChangeAt = Number.POSITIVE_INFINITY;
  readonly #timed = new Set<Timed>();
  #advancing = false;

  bump(): void {
    this.version++;
  }

  /** To be called whenever an item's `dueAt` has changed. */
  schedule(item: Timed): void {
    if (item.dueAt === Number.POSITIVE_INFINITY) this.#timed.delete(item);
    else {
      this.#timed.add(item);
      if (item.dueAt < this.nextChangeAt) this.nextChangeAt = item.dueAt;
    }
  }

  forget(item: Timed): void {
    this.#timed.delete(item);
  }

  /** Lets happen what is due. Cheap and harmless when nothing is; readers of a cell need not call it themselves. */
  advance(now: number): void {
    if (now < this.nextChangeAt || this.#advancing) return;
    this.#advancing = true;
    try {
      for (const item of this.#timed) if (item.dueAt <= now) item.advance(now);
    } finally {
      this.#advancing = false;
    }
    let next = Number.POSITIVE_INFINITY;
    for (const item of this.#timed) if (item.dueAt < next) next = item.dueAt;
    this.nextChangeAt = next;
    this.version++;
  }
}
