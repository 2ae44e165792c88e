/**
 * One claim that is held: its writes go one after another, each with the sequence of the last. Whether it is still ours is known
 * from the stream's answers alone; when none come for a whole lease, it counts as lost, since somebody else may have taken over.
 */
import type { Clock } from '../../base/clock.ts';
import type { Appended } from '../../base/pub-ack.ts';
import type { Claim, KeptResult } from './ledger.ts';
import { ClaimRecord, type ClaimState, fitted } from './record.ts';

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
  renew(now: number): void;
  lose(): void;
}

type Written = 'stored' | 'fenced' | 'unreachable';

/** Of one write: a lost answer is looked up, and what turns out not to be stored is sent again. */
const MAX_TRIES = 4;

export class NatsClaim implements Claim, Held {
  readonly #store: Store;
  readonly #record: ClaimRecord;
  #seq: number;
  #step = 0;
  /** When the last write that was confirmed had been sent: the lease runs from there at the latest. */
  #confirmedAt: number;
  #isHeld = true;
  #isRenewing = false;
  #isSettled = false;
  #last: Promise<unknown> = Promise.resolve();
  onLost: (() => void) | null = null;

  constructor(store: Store, record: ClaimRecord, seq: number, sentAt: number) {
    this.#store = store;
    this.#record = record;
    this.#seq = seq;
    this.#confirmedAt = sentAt;
  }

  get id(): string {
    return this.#record.ask.id;
  }
  get tries(): number {
    return this.#record.tries;
  }
  get held(): boolean {
    return this.#isHeld;
  }

  async done(result: KeptResult): Promise<'stored' | 'too_large' | 'fenced' | 'unreachable'> {
    const kept = fitted(result, this.#store.maxResultBytes);
    const written = await this.#settle('done', this.tries, kept, '');
    return written === 'stored' && kept.body.length !== result.body.length ? 'too_large' : written;
  }

  async release(countsAsTry: boolean): Promise<boolean> {
    return (await this.#settle('released', countsAsTry ? this.tries : this.tries - 1, null, '')) === 'stored';
  }

  async unknown(detail: string): Promise<boolean> {
    return (await this.#settle('unknown', this.tries, null, detail)) === 'stored';
  }

  renew(now: number): void {
    if (this.#isRenewing || this.#isSettled) return;
    const age = now - this.#confirmedAt;
    if (age >= this.#store.leaseMs) this.lose();
    else if (age >= this.#store.leaseMs / 3) void this.#extend();
  }

  lose(): void {
    this.#store.drop(this);
    if (!this.#isHeld) return;
    this.#isHeld = false;
    const told = this.onLost;
    this.onLost = null;
    if (!this.#isSettled) told?.();
  }

  async #extend(): Promise<void> {
    this.#isRenewing = true;
    await this.#after(() => (this.#isSettled ? Promise.resolve('stored' as const) : this.#write('executing', this.tries, null, '')));
    this.#isRenewing = false;
  }

  async #settle(state: ClaimState, tries: number, result: KeptResult | null, detail: string): Promise<Written> {
    return await this.#after(async () => {
      const written = await this.#write(state, tries, result, detail);
      if (written === 'stored') {
        this.#isSettled = true;
        this.#isHeld = false;
        this.#store.drop(this);
      }
      return written;
    });
  }

  #after(act: () => Promise<Written>): Promise<Written> {
    const next = this.#last.then(act);
    this.#last = next;
    return next;
  }

  async #write(state: ClaimState, tries: number, result: KeptResult | null, detail: string): Promise<Written> {
    const { ask, nonce, leaseMs } = this.#record;
    const step = ++this.#step;
    const record = new ClaimRecord(state, ask, nonce, step, tries, leaseMs, result, detail);
    for (let i = 0; i < MAX_TRIES; i++) {
      const sentAt = this.#store.clock.now();
      const outcome = await this.#store.write(record, this.#seq);
      if ('seq' in outcome) return this.#confirmed(outcome.seq, sentAt);
      if ('failed' in outcome && !outcome.ambiguous) return 'unreachable';
      const found = await this.#store.read(this.id, 'conflict' in outcome ? (outcome.conflict ?? 0) : this.#seq);
      if ('failed' in found) return 'unreachable';
      if (found.record === null || found.record.nonce !== nonce) {
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
