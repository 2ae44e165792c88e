/**
 * One claim that is held: its writes go one after another, each with the sequence of the last. Whether it is still ours is known
 * from the stream's answers alone. When none come for a whole lease it counts as lapsed, since somebody else may have taken over;
 * it is ours again when the stream then takes a write of ours. How it is to end, once said, is written for as long as it takes,
 * and from then on the lease is not extended: a claim whose end could not be written must not stand for ever.
 */
import type { Clock } from '../../base/clock.ts';
import type { Appended } from '../../base/pub-ack.ts';
import type { Claim, KeptResult, LostBy } from './ledger.ts';
import { bare, ClaimRecord, type ClaimState, fitted } from './record.ts';

/** What a claim needs of its ledger. */
export interface Store {
  readonly clock: Clock;
  readonly leaseMs: number;
  readonly maxResultBytes: number;
  write(record: ClaimRecord, expected: number): Promise<Appended>;
  read(
    id: string,
    seq: number,
  ): Promise<{ readonly record: ClaimRecord | null; readonly seq: number; readonly atMs: number } | { readonly failed: string }>;
  drop(claim: Held): void;
}

export interface Held {
  /** Says again that it is ours, or how it ended, or notices that it is not ours; answers what is left of the lease. */
  renew(now: number): number;
  lose(): void;
}

export type Written = 'stored' | 'fenced' | 'unreachable' | 'full';

/** How it is to end. */
interface End {
  readonly state: ClaimState;
  readonly tries: number;
  readonly result: KeptResult | null;
  readonly detail: string;
  readonly ended?: true;
}

/** Of one write: a lost answer is looked up, and what turns out not to be stored is sent again. */
const MAX_TRIES = 4;
/** An end that could not be written is tried for so long; then the lease, which is not extended, speaks. */
const END_FOR_MS = 600_000;

export class NatsClaim implements Claim, Held {
  readonly #store: Store;
  readonly #record: ClaimRecord;
  #seq: number;
  #step: number;
  /** When the last write that was confirmed had been sent: the lease runs from there at the latest. */
  #confirmedAt: number;
  #isHeld = true;
  #isWriting = false;
  /** Nothing more is to be written. */
  #isOver = false;
  #end: End | null = null;
  #endSince = 0;
  /** The end that the stream took. */
  #stored: End | null = null;
  #last: Promise<unknown> = Promise.resolve();
  onLost: ((by: LostBy) => void) | null = null;

  constructor(store: Store, record: ClaimRecord, seq: number, sentAt: number) {
    this.#store = store;
    this.#record = record;
    this.#seq = seq;
    this.#step = record.step;
    this.#confirmedAt = sentAt;
  }

  get id(): string {
    return this.#record.ask.id;
  }
  get tries(): number {
    return this.#record.tries;
  }
  /** By the clock too: its answer may have lain in the socket while this process stood still. */
  get held(): boolean {
    return this.#isHeld && this.#store.clock.now() - this.#confirmedAt < this.#store.leaseMs;
  }

  async done(result: KeptResult): Promise<'stored' | 'too_large' | 'fenced' | 'unreachable'> {
    let kept = fitted(result, this.#store.maxResultBytes);
    let written = await this.#settle({ state: 'done', tries: this.tries, result: kept, detail: '' });
    if (written === 'full') {
      // No room for the bytes: that the work is done is what must not be lost, and for that the claim has kept room.
      kept = bare(result);
      written = await this.#settle({ state: 'done', tries: this.tries, result: kept, detail: '' });
    }
    if (written === 'full') return 'unreachable';
    const stored = this.#stored?.result ?? kept;
    return written === 'stored' && stored.leftOutBytes > 0 ? 'too_large' : written;
  }

  async release(countsAsTry: boolean): Promise<boolean> {
    const tries = countsAsTry ? this.tries : this.tries - 1;
    return (await this.#settle({ state: 'released', tries, result: null, detail: '' })) === 'stored';
  }

  async ended(): Promise<boolean> {
    return (await this.#settle({ state: 'released', tries: this.tries, result: null, detail: '', ended: true })) === 'stored';
  }

  async unknown(detail: string): Promise<boolean> {
    let written = await this.#settle({ state: 'unknown', tries: this.tries, result: null, detail });
    if (written === 'full') written = await this.#settle({ state: 'unknown', tries: this.tries, result: null, detail: '' });
    return written === 'stored';
  }

  abandon(): void {
    this.onLost = null;
    // An end that was said is still written.
    if (this.#end === null) this.#over();
  }

  /** Also while a renewal waits for its answer: the lease does not. */
  renew(now: number): number {
    const { leaseMs } = this.#store;
    if (this.#isOver) return leaseMs;
    if (this.#end !== null) {
      if (now - this.#endSince >= END_FOR_MS) this.#over();
      else if (!this.#isWriting) void this.#settle(this.#end);
      return leaseMs;
    }
    const leftMs = leaseMs - (now - this.#confirmedAt);
    if (leftMs <= 0) this.#lost('lapsed');
    if (!this.#isOver && !this.#isWriting && leftMs <= (leaseMs * 2) / 3) void this.extend();
    return leftMs;
  }

  lose(): void {
    this.#over();
    this.#lost('fenced');
  }

  /** Told once; of what has been said to end nobody needs to be told. */
  #lost(by: LostBy): void {
    if (!this.#isHeld && by === 'lapsed') return;
    this.#isHeld = false;
    const told = this.onLost;
    if (by === 'fenced') this.onLost = null;
    if (this.#end === null) told?.(by);
  }

  #over(): void {
    this.#isOver = true;
    this.#isHeld = false;
    this.#end = null;
    this.#store.drop(this);
  }

  /** Says at once that it is ours still. */
  async extend(): Promise<Written> {
    return await this.#after(async () => {
      if (this.#isOver || this.#end !== null) return 'stored';
      const written = await this.#write({ state: 'executing', tries: this.tries, result: null, detail: '' });
      if (written === 'stored' && !this.#isOver) this.#isHeld = true;
      return written;
    });
  }

  async #settle(end: End): Promise<Written> {
    if (this.#isOver) return this.#saidBefore(end);
    if (this.#end === null) this.#endSince = this.#store.clock.now();
    this.#end = end;
    return await this.#after(async () => {
      if (this.#isOver) return this.#saidBefore(end);
      const written = await this.#write(end);
      if (written === 'stored') {
        this.#stored = end;
        this.#over();
      }
      return written;
    });
  }

  /** What was written in the background meanwhile is as good as written now. */
  #saidBefore(end: End): Written {
    return this.#stored?.state === end.state ? 'stored' : 'fenced';
  }

  async #after(act: () => Promise<Written>): Promise<Written> {
    const next = this.#last.then(act);
    this.#last = next;
    this.#isWriting = true;
    const written = await next;
    if (this.#last === next) this.#isWriting = false;
    return written;
  }

  async #write({ state, tries, result, detail, ended }: End): Promise<Written> {
    const { ask, nonce, leaseMs } = this.#record;
    const step = ++this.#step;
    const record = new ClaimRecord(state, ask, nonce, step, tries, leaseMs, result, detail, ended === true);
    for (let i = 0; i < MAX_TRIES; i++) {
      const sentAt = this.#store.clock.now();
      const outcome = await this.#store.write(record, this.#seq);
      if ('seq' in outcome) return this.#confirmed(outcome.seq, sentAt);
      if ('failed' in outcome && !outcome.ambiguous) return outcome.full === true ? 'full' : 'unreachable';
      const found = await this.#store.read(this.id, 'conflict' in outcome ? (outcome.conflict ?? 0) : this.#seq);
      if ('failed' in found) return 'unreachable';
      if (found.record === null || found.record.nonce !== nonce) {
        // One that may never have been stored (`seq` 0) is not there yet.
        if (found.seq === 0 && this.#seq === 0) continue;
        this.lose();
        return 'fenced';
      }
      if (found.record.step === step) return this.#confirmed(found.seq, sentAt);
      this.#seq = found.seq; // an earlier write of ours, whose answer was lost, or this one is not there yet
    }
    return 'unreachable';
  }

  #confirmed(seq: number, sentAt: number): Written {
    this.#seq = seq;
    this.#confirmedAt = sentAt;
    return 'stored';
  }
}
