/** Sequences by the time at which each is due; the earliest is at hand. A heap in two plain arrays, since a queue may hold a million. */
export class DueList {
  readonly #at: number[] = [];
  readonly #seq: number[] = [];

  get size(): number {
    return this.#at.length;
  }

  /** When the earliest is due; Infinity = there is none. */
  get nextAt(): number {
    return this.#at[0] ?? Number.POSITIVE_INFINITY;
  }

  /** A time that is no number would stand before all others and never be due: whoever adds has looked. */
  add(at: number, seq: number): void {
    let i = this.#at.length;
    for (let parent = (i - 1) >> 1; i > 0 && (this.#at[parent] as number) > at; parent = (i - 1) >> 1) {
      this.#set(i, this.#at[parent] as number, this.#seq[parent] as number);
      i = parent;
    }
    this.#set(i, at, seq);
  }

  /** The earliest; -1 = there is none. */
  take(): number {
    const first = this.#seq[0];
    if (first === undefined) return -1;
    const at = this.#at.pop() as number;
    const seq = this.#seq.pop() as number;
    const size = this.#at.length;
    if (size === 0) return first;
    let i = 0;
    for (let child = 1; child < size; child = 2 * i + 1) {
      if (child + 1 < size && (this.#at[child + 1] as number) < (this.#at[child] as number)) child++;
      if ((this.#at[child] as number) >= at) break;
      this.#set(i, this.#at[child] as number, this.#seq[child] as number);
      i = child;
    }
    this.#set(i, at, seq);
    return first;
  }

  #set(i: number, at: number, seq: number): void {
    this.#at[i] = at;
    this.#seq[i] = seq;
  }
}
