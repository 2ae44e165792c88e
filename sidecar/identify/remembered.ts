/**
 * What was found out about tokens, by their text: bounded, and gone when its time is over. Finding is one look into a Map
 * and marks the entry; when room is needed, what has not been marked since the last round goes first. Nothing is paid by
 * time: whoever owns it calls `sweep` now and then.
 */
export interface Rememberable {
  /** Seconds since 1970; Infinity = never. */
  endsAtSec: number;
  /** Found since the last round. */
  used: boolean;
}

export class Remembered<T extends Rememberable> {
  readonly #entries = new Map<string, T>();
  readonly #most: number;
  readonly #onEvicted: (entry: T) => void;
  /** What ends first ends no earlier than this. */
  #earliestSec = Number.POSITIVE_INFINITY;

  /** @param onEvicted told of what goes for want of room: it is no less true. */
  constructor(most: number, onEvicted: (entry: T) => void = () => {}) {
    this.#most = most;
    this.#onEvicted = onEvicted;
  }

  get size(): number {
    return this.#entries.size;
  }

  find(text: string): T | undefined {
    const found = this.#entries.get(text);
    if (found !== undefined) found.used = true;
    return found;
  }

  keep(text: string, entry: T): void {
    if (this.#entries.size >= this.#most && !this.#entries.has(text)) this.#makeRoom();
    this.#entries.set(text, entry);
    if (entry.endsAtSec < this.#earliestSec) this.#earliestSec = entry.endsAtSec;
  }

  /** Lets go of what is over, and tells of each. */
  sweep(nowSec: number, onGone: (entry: T) => void): void {
    if (nowSec < this.#earliestSec) return;
    this.judge((entry) => nowSec < entry.endsAtSec, onGone);
  }

  /** Asks of every entry whether it may stay; its end may be set anew by that. */
  judge(mayStay: (entry: T) => boolean, onGone: (entry: T) => void): void {
    this.#earliestSec = Number.POSITIVE_INFINITY;
    for (const [text, entry] of this.#entries) {
      if (!mayStay(entry)) {
        this.#entries.delete(text);
        onGone(entry);
      } else if (entry.endsAtSec < this.#earliestSec) this.#earliestSec = entry.endsAtSec;
    }
  }

  clear(): void {
    this.#entries.clear();
    this.#earliestSec = Number.POSITIVE_INFINITY;
  }

  #makeRoom(): void {
    for (const [text, entry] of this.#entries) {
      this.#entries.delete(text);
      if (!entry.used) {
        this.#onEvicted(entry);
        return;
      }
      entry.used = false;
      this.#entries.set(text, entry);
    }
  }
}
