/**
 * What the stream holds, in memory: the newest message of every subject, as text. Leader and followers read the same
 * copy, so that every replica answers a question in the same words. It never goes back: within one epoch an older
 * sequence than the one held is dropped, whatever order messages arrive in.
 */
export interface Held {
  readonly seq: number;
  readonly text: string;
}

/** What came in: the tail that changed and the sequence of its newest message. */
export type MirrorListener = (tail: string, seq: number) => void;

interface Entry extends Held {
  /** Parsed when somebody asks. */
  parsed: unknown;
}

const UNPARSED: unique symbol = Symbol('unparsed');

export class Mirror {
  #entries = new Map<string, Entry>();
  #lastSeq = 0;
  readonly #listeners = new Set<MirrorListener>();

  /** Highest sequence seen. */
  get lastSeq(): number {
    return this.#lastSeq;
  }

  get size(): number {
    return this.#entries.size;
  }

  get(tail: string): Held | null {
    return this.#entries.get(tail) ?? null;
  }

  /** The state under a tail; null when there is none or it is not JSON. */
  state<T>(tail: string): T | null {
    const entry = this.#entries.get(tail);
    if (entry === undefined) return null;
    if (entry.parsed === UNPARSED) entry.parsed = parse(entry.text);
    return entry.parsed as T | null;
  }

  /** Tails that begin with this, sorted. */
  tails(prefix: string): string[] {
    const found: string[] = [];
    for (const tail of this.#entries.keys()) if (tail.startsWith(prefix)) found.push(tail);
    return found.sort();
  }

  /** True when it was news. */
  apply(tail: string, seq: number, text: string): boolean {
    if (seq > this.#lastSeq) this.#lastSeq = seq;
    const held = this.#entries.get(tail);
    if (held !== undefined && held.seq >= seq) return false;
    this.#entries.set(tail, { seq, text, parsed: UNPARSED });
    for (const listener of this.#listeners) listener(tail, seq);
    return true;
  }

  /** Takes the place of everything: after a reload, or when the stream was made anew. */
  replace(entries: Iterable<readonly [tail: string, seq: number, text: string]>, lastSeq: number): void {
    const before = this.#entries;
    this.#entries = new Map();
    this.#lastSeq = lastSeq;
    for (const [tail, seq, text] of entries) {
      const old = before.get(tail);
      if (old !== undefined && old.seq === seq && old.text === text) {
        this.#entries.set(tail, old);
        continue;
      }
      this.#entries.set(tail, { seq, text, parsed: UNPARSED });
      for (const listener of this.#listeners) listener(tail, seq);
    }
  }

  /** Calls the listener with every change until the returned function is called. */
  listen(listener: MirrorListener): () => void {
    this.#listeners.add(listener);
    return () => void this.#listeners.delete(listener);
  }
}

function parse(text: string): unknown {
  try {
    return JSON.parse(text) as unknown;
  } catch {
    return null;
  }
}
