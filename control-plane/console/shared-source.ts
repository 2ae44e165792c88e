/**
 * One stream of events for all windows of a browser. Without HTTP/2 a browser opens six connections to a host and no more, and a
 * stream holds one for good: six windows with one each would leave none for a question, nor for the red button. One window has
 * the stream and tells the others what it hears; when it goes, another one takes over. No lock is needed, which plain http to
 * another machine would not offer: should two windows open a stream at once, the one with the higher number gives its own up.
 */
import type { Clock, Timer } from '../../base/clock.ts';
import type { Source } from './live.ts';

/** What windows say to one another. */
export type Word =
  | { readonly what: 'who' | 'gone'; readonly from: number }
  /** I have the stream. `isHeard`: something has been heard on it. */
  | { readonly what: 'here'; readonly from: number; readonly isHeard: boolean }
  | { readonly what: 'event'; readonly from: number; readonly name: string; readonly data: unknown };

/** The part of BroadcastChannel that is used. */
export interface Channel {
  addEventListener(name: 'message', heard: (event: { readonly data: unknown }) => void): void;
  postMessage(word: Word): void;
  close(): void;
}

export interface SharedParts {
  readonly clock: Clock;
  readonly open: () => Source;
  readonly channel: Channel;
  /** From 0 to 1, another one in each window. */
  readonly number: number;
}

/** Whoever has the stream answers within this; so does whoever has just taken it. */
const ANSWER_MS = 150;
/** Windows that wait for the same answer do not all take over at once. */
const SPREAD_MS = 600;

const NAMES = ['hello', 'ping', 'changed', 'error'] as const;

export class SharedSource implements Source {
  readonly #parts: SharedParts;
  readonly #heard = new Map<string, ((event: { readonly data?: unknown }) => void)[]>();
  /** Ours; null = another window has it, or nobody does yet. */
  #own: Source | null = null;
  #isHeard = false;
  #taking: Timer | null = null;
  #isOver = false;

  constructor(parts: SharedParts) {
    this.#parts = parts;
    parts.channel.addEventListener('message', ({ data }) => this.#told(data as Word));
    this.#takeSoon();
    this.#say({ what: 'who', from: parts.number });
  }

  addEventListener(name: string, heard: (event: { readonly data?: unknown }) => void): void {
    this.#heard.set(name, [...(this.#heard.get(name) ?? []), heard]);
  }

  close(): void {
    if (this.#isOver) return;
    this.#isOver = true;
    this.#taking?.cancel();
    if (this.#own !== null) this.#say({ what: 'gone', from: this.#parts.number });
    this.#own?.close();
    this.#parts.channel.close();
  }

  #told(word: Word): void {
    if (this.#isOver) return;
    switch (word.what) {
      case 'gone':
        if (this.#own === null) this.#takeSoon();
        return;
      case 'who':
        if (this.#own !== null) this.#sayHere();
        return;
      case 'here':
        if (this.#yields(word.from) && word.isHeard) this.#tell('ping', undefined);
        return;
      case 'event':
        if (this.#yields(word.from)) this.#tell(word.name, word.data);
    }
  }

  /** Another window has the stream: whether that holds, or is to give its own up. */
  #yields(to: number): boolean {
    if (this.#own !== null && to > this.#parts.number) {
      this.#sayHere();
      return false;
    }
    this.#own?.close();
    this.#own = null;
    this.#taking?.cancel();
    this.#taking = null;
    return true;
  }

  #takeSoon(): void {
    this.#taking?.cancel();
    this.#taking = this.#parts.clock.after(ANSWER_MS + this.#parts.number * SPREAD_MS, () => this.#take());
  }

  #take(): void {
    this.#taking = null;
    this.#isHeard = false;
    const own = this.#parts.open();
    this.#own = own;
    this.#sayHere();
    for (const name of NAMES)
      own.addEventListener(name, ({ data }) => {
        if (this.#own !== own) return;
        if (name !== 'error') {
          this.#isHeard = true;
          this.#say({ what: 'event', from: this.#parts.number, name, data });
        }
        this.#tell(name, data);
      });
  }

  #sayHere(): void {
    this.#say({ what: 'here', from: this.#parts.number, isHeard: this.#isHeard });
  }

  #say(word: Word): void {
    this.#parts.channel.postMessage(word);
  }

  #tell(name: string, data: unknown): void {
    for (const heard of this.#heard.get(name) ?? []) heard({ data });
  }
}
