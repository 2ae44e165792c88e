/**
 * Keeps the page true: the control plane says which topics have changed, and what is shown of them is asked for again. Without
 * that stream (a proxy that holds it back, a replica that stops) everything shown is asked for each few seconds; and when not
 * even that is answered, the page says so. Each new connection counts as a change of everything: nobody knows what was missed.
 * A stream is worth what is heard on it: one that says nothing, not even the `ping` that is due each 15 s, is cut, because a
 * connection whose other end is gone stays open for ever. While nobody looks at the page it has no stream (`stop`, `start`).
 */
import type { Clock, Timer } from '../../base/clock.ts';

/** `live`: told of changes; `polling`: asks by itself; `lost`: nobody answers. */
export type LiveState = 'connecting' | 'live' | 'polling' | 'lost';

/** The part of EventSource that is used. */
export interface Source {
  addEventListener(name: string, heard: (event: { readonly data?: unknown }) => void): void;
  close(): void;
}

export interface LiveParts {
  readonly clock: Clock;
  readonly open: () => Source;
}

export const POLL_MS = 5_000;
/** Longer than two pings may be late. */
export const SILENT_MS = 40_000;
/** A ping is overdue: with a question unanswered as well, the stream is taken to be cut. */
const LATE_MS = 20_000;
/** Until the first word of a new stream. */
const OPEN_MS = 10_000;
const FIRST_RETRY_MS = 1_000;
const MAX_RETRY_MS = 30_000;

export class Live {
  state: LiveState = 'connecting';
  readonly #parts: LiveParts;
  readonly #watchers = new Set<{ readonly topics: readonly string[]; readonly changed: () => void }>();
  readonly #states = new Set<() => void>();
  #source: Source | null = null;
  #retryMs = FIRST_RETRY_MS;
  #retry: Timer | null = null;
  #poll: Timer | null = null;
  /** Cuts the stream when nothing is heard on it. */
  #silence: Timer | null = null;
  #heardMs = 0;
  /** The stream that is open has said something. */
  #isHeard = false;
  #isReached = true;
  #isOver = true;

  constructor(parts: LiveParts) {
    this.#parts = parts;
  }

  /** Begins, or goes on: whatever was missed is asked for with the first word that is heard. */
  start(): void {
    if (!this.#isOver) return;
    this.#isOver = false;
    this.#connect();
  }

  stop(): void {
    this.#isOver = true;
    this.#source?.close();
    this.#source = null;
    this.#retry?.cancel();
    this.#silence?.cancel();
    this.#poll?.cancel();
    this.#poll = null;
  }

  /** @param topics none = only when everything may have changed */
  watch(topics: readonly string[], changed: () => void): () => void {
    const watcher = { topics, changed };
    this.#watchers.add(watcher);
    return () => void this.#watchers.delete(watcher);
  }

  onState(changed: () => void): () => void {
    this.#states.add(changed);
    return () => void this.#states.delete(changed);
  }

  /** Told with each answer of the API. */
  reached(isReached: boolean): void {
    if (!isReached && this.state === 'live' && this.#source !== null && this.#parts.clock.now() - this.#heardMs >= LATE_MS) {
      this.#isReached = false;
      return this.#cut(this.#source);
    }
    if (isReached === this.#isReached) return;
    this.#isReached = isReached;
    this.#judge();
    // Back again: no need to wait for the next try.
    if (isReached && this.#source === null && !this.#isOver) {
      this.#retry?.cancel();
      this.#connect();
    }
  }

  /** Everything shown is asked for again, now. */
  all(): void {
    for (const { changed } of this.#watchers) changed();
  }

  #connect(): void {
    const source = this.#parts.open();
    this.#source = source;
    this.#isHeard = false;
    this.#awaitWord(source, OPEN_MS);
    source.addEventListener('error', () => this.#cut(source));
    source.addEventListener('ping', () => this.#word(source));
    source.addEventListener('hello', () => {
      const isAnew = this.#source === source && this.#isHeard;
      this.#word(source);
      // Behind a stream that windows share there is another one now.
      if (isAnew) this.all();
    });
    source.addEventListener('changed', ({ data }) => {
      if (this.#source !== source) return;
      this.#word(source);
      this.#heard(String(data));
    });
  }

  /** Something was heard on it: it lives. That it is open says nothing, where a proxy holds back what is written. */
  #word(source: Source): void {
    if (this.#source !== source) return;
    this.#heardMs = this.#parts.clock.now();
    this.#awaitWord(source, SILENT_MS);
    if (this.#isHeard) return;
    this.#isHeard = true;
    this.#retryMs = FIRST_RETRY_MS;
    this.#isReached = true;
    this.#poll?.cancel();
    this.#poll = null;
    this.#set('live');
    this.all();
  }

  #awaitWord(source: Source, ms: number): void {
    this.#silence?.cancel();
    this.#silence = this.#parts.clock.after(ms, () => this.#cut(source));
  }

  #cut(source: Source): void {
    source.close();
    if (this.#source !== source) return;
    this.#source = null;
    this.#silence?.cancel();
    // A stream that was cut is most likely a replica that stopped: another one answers at once.
    const waitMs = this.#isHeard ? FIRST_RETRY_MS : this.#retryMs;
    this.#retryMs = Math.min(MAX_RETRY_MS, this.#retryMs * 2);
    this.#retry = this.#parts.clock.after(waitMs, () => this.#connect());
    this.#judge();
    this.#pollSoon();
  }

  #heard(data: string): void {
    const topics = topicsIn(data);
    for (const watcher of this.#watchers) if (watcher.topics.some((topic) => topics.has(topic))) watcher.changed();
  }

  #pollSoon(): void {
    if (this.#poll !== null || this.#isOver) return;
    this.#poll = this.#parts.clock.after(POLL_MS, () => {
      this.#poll = null;
      if (this.#source !== null && this.state === 'live') return;
      this.all();
      this.#pollSoon();
    });
  }

  #judge(): void {
    if (this.#isOver || (this.#source !== null && this.state === 'live')) return;
    this.#set(this.#isReached ? 'polling' : 'lost');
  }

  #set(state: LiveState): void {
    if (state === this.state) return;
    this.state = state;
    for (const changed of this.#states) changed();
  }
}

function topicsIn(data: string): ReadonlySet<string> {
  try {
    const { topics } = JSON.parse(data) as { readonly topics?: unknown };
    return new Set(Array.isArray(topics) ? topics.map(String) : []);
  } catch {
    return new Set();
  }
}
