/**
 * Entries of one writer on one subject of a stream, in order, each with its number and the hash of the one before it. They
 * are stored one after another, each only if the one before it is still the last of the subject: so a repeat after a lost
 * answer cannot store one twice, and two writers of one name cannot fork the chain. What cannot be stored waits, so many
 * entries at most; what finds no room is counted and told.
 */
import type { Clock, Timer } from './clock.ts';
import type { Stored } from './jetstream.ts';
import type { Failed } from './jetstream-api.ts';
import type { Appended } from './pub-ack.ts';
import type { AppendOptions } from './streams.ts';

/** What of the bus it needs. */
export interface ChainBus {
  append(subject: string, data: Uint8Array, options: AppendOptions): Promise<Appended>;
  last(stream: string, subject: string, timeoutMs?: number): Promise<Stored | null | Failed>;
}

export interface ChainOptions<T> {
  readonly bus: ChainBus;
  readonly clock: Clock;
  readonly stream: string;
  readonly subject: string;
  readonly maxWaiting: number;
  /** How long a stored entry may take to be acknowledged. */
  readonly timeoutMs: number;
  /** First pause after a failure, and the longest one. */
  readonly firstRetryMs: number;
  readonly mostRetryMs: number;
  readonly textOf: (entry: T, n: number, prev: string) => string;
  readonly hashOf: (text: string) => string;
  /** The number of a stored entry; null when it is none of ours. */
  readonly numberOf: (text: string) => number | null;
  readonly stored: (entry: T, n: number, hash: string) => void;
  /** Told once for each run of equal failures. */
  readonly failed: (why: string) => void;
}

interface Head {
  readonly n: number;
  readonly hash: string;
  /** In the stream; 0 = the subject has none. */
  readonly seq: number;
}

/** Where an entry is: null = stored; else why not yet. */
type Settled = (why: string | null) => void;

interface Waiting<T> {
  readonly entry: T;
  readonly settled: Settled | null;
}

export class ChainedLog<T> {
  readonly #options: ChainOptions<T>;
  readonly #waiting: Waiting<T>[] = [];
  #head: Head | null = null;
  #pumping = false;
  #retry: Timer | null = null;
  #retryMs: number;
  #why = '';
  #lost = 0;
  #isClosed = false;

  constructor(options: ChainOptions<T>) {
    this.#options = options;
    this.#retryMs = options.firstRetryMs;
  }

  get waiting(): number {
    return this.#waiting.length;
  }

  /** Entries that found no room to wait in. */
  get lost(): number {
    return this.#lost;
  }

  /** Why nothing is stored at present; '' = it is. */
  get why(): string {
    return this.#why;
  }

  /** The number and hash of the last one stored; null = not known yet. */
  get head(): { readonly n: number; readonly hash: string } | null {
    return this.#head;
  }

  /** `settled` hears once: null when it is stored, or why it will never be. */
  add(entry: T, settled: Settled | null = null): void {
    if (this.#isClosed || this.#waiting.length >= this.#options.maxWaiting) {
      this.#lost++;
      settled?.(this.#isClosed ? 'the log is closed' : `${this.#options.maxWaiting} entries wait already`);
      return;
    }
    this.#waiting.push({ entry, settled });
    void this.#pump();
  }

  /** Tries again at once: a connection has come back. */
  nudge(): void {
    this.#retry?.cancel();
    this.#retry = null;
    this.#retryMs = this.#options.firstRetryMs;
    void this.#pump();
  }

  /** Everything stored, or the time is over. */
  async flush(timeoutMs: number): Promise<boolean> {
    const { clock } = this.#options;
    const until = clock.now() + timeoutMs;
    while (this.#waiting.length > 0 && clock.now() < until) await new Promise<void>((done) => void clock.after(20, done));
    return this.#waiting.length === 0;
  }

  close(): void {
    this.#isClosed = true;
    this.#retry?.cancel();
    for (const { settled } of this.#waiting.splice(0)) settled?.('the log is closed');
  }

  async #pump(): Promise<void> {
    if (this.#pumping || this.#retry !== null || this.#isClosed) return;
    this.#pumping = true;
    while (this.#waiting.length > 0 && !this.#isClosed) {
      const why = await this.#step();
      if (why === null) continue;
      if (why !== this.#why) this.#options.failed(why);
      this.#why = why;
      this.#retry = this.#options.clock.after(this.#retryMs, () => {
        this.#retry = null;
        void this.#pump();
      });
      this.#retryMs = Math.min(2 * this.#retryMs, this.#options.mostRetryMs);
      break;
    }
    this.#pumping = false;
  }

  /** Stores the oldest one; null = that went on. */
  async #step(): Promise<string | null> {
    const { bus, stream, subject, textOf, hashOf, timeoutMs } = this.#options;
    this.#head ??= await this.#readHead().then((head) => (typeof head === 'string' ? null : head));
    const head = this.#head;
    if (head === null) return `the last entry of ${stream} cannot be read`;
    const oldest = this.#waiting[0];
    if (oldest === undefined) return null;
    const text = textOf(oldest.entry, head.n + 1, head.hash);
    const hash = hashOf(text);
    const appended = await bus.append(subject, Buffer.from(text, 'utf8'), { stream, expectLastSubjectSeq: head.seq, timeoutMs });
    if ('seq' in appended) {
      this.#done({ n: head.n + 1, hash, seq: appended.seq });
      return null;
    }
    if ('failed' in appended && !appended.ambiguous) return appended.failed;
    // Stored all the same, or somebody else wrote: what is last says it.
    this.#head = null;
    const now = await this.#readHead();
    if (typeof now === 'string') return now;
    if (now.hash === hash) {
      this.#done(now);
      return null;
    }
    if (now.seq !== head.seq) {
      this.#head = now;
      return null;
    }
    this.#head = now;
    return 'failed' in appended ? appended.failed : `${stream} does not take the next entry after ${now.seq}`;
  }

  #done(head: Head): void {
    this.#head = head;
    this.#why = '';
    this.#retryMs = this.#options.firstRetryMs;
    const oldest = this.#waiting.shift();
    if (oldest === undefined) return;
    this.#options.stored(oldest.entry, head.n, head.hash);
    oldest.settled?.(null);
  }

  async #readHead(): Promise<Head | string> {
    const { bus, stream, subject, hashOf, numberOf, timeoutMs } = this.#options;
    const last = await bus.last(stream, subject, timeoutMs);
    if (last === null) return { n: 0, hash: '', seq: 0 };
    if ('failed' in last) return last.failed;
    const text = last.data.toString('utf8');
    return { n: numberOf(text) ?? 0, hash: hashOf(text), seq: last.seq };
  }
}
