/**
 * The one pen of the configuration stream. Every message says which sequence it must follow, so that a replica that no
 * longer leads cannot write, however long it was asleep. Messages go out one behind another without waiting for each
 * other's acknowledgement: the expected sequence of the next is known, since nobody else writes.
 *
 * What has not changed is not written. While NATS is away changes wait here, the newest of each subject only; when it is
 * back, whoever holds the pen reads the stream anew and calls `resume`. What to write is decided elsewhere.
 */
import type { Mirror } from './mirror.ts';

export interface Change {
  readonly tail: string;
  readonly text: string;
}

/** What became of one message. */
export type Appended =
  | { readonly kind: 'stored'; readonly seq: number }
  /** Somebody else has written: this pen is void. */
  | { readonly kind: 'conflict'; readonly why: string }
  /** Not known whether it is stored. */
  | { readonly kind: 'unavailable'; readonly why: string };

export interface ConfigStream {
  append(tail: string, text: string, expectLastSeq: number): Promise<Appended>;
}

/** What became of a batch. */
export type Written =
  /** `seq`: the stream sequence at which all of it is in force; 0 when nothing had changed. */
  { readonly ok: true; readonly seq: number } | { readonly ok: false; readonly why: string };

/** Messages on their way at once. Enough to hide a millisecond of round trip; few enough to take back. */
const WINDOW = 256;

class Batch {
  left = 0;
  seq = 0;
  readonly done: (written: Written) => void;
  constructor(done: (written: Written) => void) {
    this.done = done;
  }
}

interface Pending {
  text: string;
  batches: Batch[];
}

interface Flying {
  readonly tail: string;
  readonly text: string;
  readonly batches: Batch[];
}

export class Writer {
  readonly #stream: ConfigStream;
  readonly #mirror: Mirror;
  readonly #maxPending: number;
  /** By tail, in the order in which they go out. */
  readonly #queue = new Map<string, Pending>();
  /** In the order of their sequences. */
  #flying: Flying[] = [];
  /** Newest text on its way, by tail. */
  readonly #newestFlying = new Map<string, string>();
  /** Sent, and not known to be stored or not, by tail. */
  readonly #doubtful = new Map<string, Set<string>>();
  #nextSeq = 0;
  /** `closed`: this pen never writes again. */
  #state: 'open' | 'paused' | 'closed' = 'paused';
  /** Answers to messages that were sent before this number changed count for nothing. */
  #generation = 0;
  #why = 'not opened yet';

  /** Somebody else has written; called once. */
  onConflict: (why: string) => void = () => {};
  /** NATS does not answer; called once a pause. */
  onPause: (why: string) => void = () => {};
  /** Messages that have just been stored, in order. */
  onStored: (stored: readonly (readonly [tail: string, seq: number])[]) => void = () => {};

  constructor(stream: ConfigStream, mirror: Mirror, maxPending: number) {
    this.#stream = stream;
    this.#mirror = mirror;
    this.#maxPending = maxPending;
  }

  get state(): 'open' | 'paused' | 'closed' {
    return this.#state;
  }

  /** Messages that wait or are on their way. */
  get pending(): number {
    return this.#queue.size + this.#flying.length;
  }

  /** Starts (again) after the mirror has been filled from the stream: what is stored already needs no writing. */
  resume(): void {
    if (this.#state === 'closed') return;
    this.#takeBack();
    this.#doubtful.clear();
    this.#nextSeq = this.#mirror.lastSeq + 1;
    for (const [tail, { text, batches }] of this.#queue) {
      const held = this.#mirror.get(tail);
      if (held === null || held.text !== text) continue;
      this.#queue.delete(tail);
      for (const batch of batches) land(batch, held.seq);
    }
    this.#state = 'open';
    this.#pump();
  }

  /** Stops until `resume`; what is on its way counts as not written. */
  pause(why: string): void {
    if (this.#state !== 'open') return;
    this.#state = 'paused';
    this.#why = why;
    this.#takeBack();
    this.onPause(why);
  }

  /** For good: everything that waits has failed. */
  close(why: string): void {
    if (this.#state === 'closed') return;
    this.#state = 'closed';
    this.#why = why;
    this.#generation++;
    const failed = new Set<Batch>();
    for (const { batches } of [...this.#flying, ...this.#queue.values()]) for (const batch of batches) failed.add(batch);
    this.#flying = [];
    this.#newestFlying.clear();
    this.#queue.clear();
    for (const batch of failed) batch.done({ ok: false, why });
  }

  /** Whether a message that was found in the stream can be one of this pen's that was never acknowledged. */
  mayHaveWritten(tail: string, text: string): boolean {
    return this.#doubtful.get(tail)?.has(text) === true;
  }

  /** The text that will be in force when everything under way is stored; null when there is none. */
  latest(tail: string): string | null {
    return this.#queue.get(tail)?.text ?? this.#newestFlying.get(tail) ?? this.#mirror.get(tail)?.text ?? null;
  }

  /** Writes what differs from what is stored; resolves when all of it is in force. */
  write(changes: readonly Change[]): Promise<Written> {
    if (this.#state === 'closed') return Promise.resolve({ ok: false, why: this.#why });
    if (this.#queue.size + changes.length > this.#maxPending) {
      const fresh = changes.filter((change) => !this.#queue.has(change.tail)).length;
      if (this.#queue.size + fresh > this.#maxPending)
        return Promise.resolve({ ok: false, why: `${this.#queue.size} changes wait for NATS already, which is as many as are kept` });
    }
    return new Promise((done) => {
      const batch = new Batch(done);
      // The batch must not end before all of it is counted.
      batch.left = 1;
      for (const { tail, text } of changes) this.#enqueue(tail, text, batch);
      land(batch, 0);
      this.#pump();
    });
  }

  #enqueue(tail: string, text: string, batch: Batch): void {
    const waiting = this.#queue.get(tail);
    if (waiting !== undefined) {
      // The newer one goes to the end: it may speak of subjects that were queued in between.
      this.#queue.delete(tail);
      batch.left++;
      this.#queue.set(tail, { text, batches: [...waiting.batches, batch] });
      return;
    }
    const flying = this.#newestFlying.get(tail);
    if (flying === text) {
      for (let i = this.#flying.length - 1; i >= 0; i--) {
        const one = this.#flying[i] as Flying;
        if (one.tail !== tail) continue;
        batch.left++;
        one.batches.push(batch);
        break;
      }
      return;
    }
    if (flying === undefined && this.#mirror.get(tail)?.text === text) return;
    batch.left++;
    this.#queue.set(tail, { text, batches: [batch] });
  }

  #pump(): void {
    if (this.#state !== 'open') return;
    for (const [tail, { text, batches }] of this.#queue) {
      if (this.#flying.length >= WINDOW) return;
      this.#queue.delete(tail);
      const flying: Flying = { tail, text, batches };
      this.#flying.push(flying);
      this.#newestFlying.set(tail, text);
      const seq = this.#nextSeq++;
      const generation = this.#generation;
      void this.#stream.append(tail, text, seq - 1).then((appended) => this.#answered(flying, seq, generation, appended));
    }
  }

  #answered(flying: Flying, seq: number, generation: number, appended: Appended): void {
    if (generation !== this.#generation || this.#state !== 'open') return;
    if (appended.kind === 'unavailable') return this.pause(appended.why);
    if (appended.kind === 'conflict' || appended.seq !== seq) {
      const why = appended.kind === 'conflict' ? appended.why : `the message got sequence ${appended.seq}, not ${seq}`;
      this.close(`another replica has written: ${why}`);
      return this.onConflict(why);
    }
    // Acknowledgements come in the order of the messages; whatever was sent before this one is stored too.
    const at = this.#flying.indexOf(flying);
    const stored = this.#flying.splice(0, at + 1);
    let before = seq - stored.length;
    const told: (readonly [string, number])[] = [];
    for (const one of stored) {
      before++;
      if (this.#newestFlying.get(one.tail) === one.text && !this.#flying.some(({ tail }) => tail === one.tail))
        this.#newestFlying.delete(one.tail);
      this.#mirror.apply(one.tail, before, one.text);
      told.push([one.tail, before]);
      for (const batch of one.batches) land(batch, before);
    }
    this.onStored(told);
    this.#pump();
  }

  /** Puts what is on its way back in front of what waits, unless something newer waits. */
  #takeBack(): void {
    this.#generation++;
    if (this.#flying.length === 0) return;
    const waiting = [...this.#queue];
    this.#queue.clear();
    for (const { tail, text, batches } of this.#flying) {
      const doubtful = this.#doubtful.get(tail);
      if (doubtful === undefined) this.#doubtful.set(tail, new Set([text]));
      else doubtful.add(text);
      const older = this.#queue.get(tail);
      this.#queue.delete(tail);
      this.#queue.set(tail, { text, batches: older === undefined ? batches : [...older.batches, ...batches] });
    }
    for (const [tail, { text, batches }] of waiting) {
      const older = this.#queue.get(tail);
      this.#queue.delete(tail);
      this.#queue.set(tail, { text, batches: older === undefined ? batches : [...older.batches, ...batches] });
    }
    this.#flying = [];
    this.#newestFlying.clear();
  }
}

function land(batch: Batch, seq: number): void {
  if (seq > batch.seq) batch.seq = seq;
  if (--batch.left === 0) batch.done({ ok: true, seq: batch.seq });
}
