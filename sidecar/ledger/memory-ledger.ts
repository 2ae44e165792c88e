/**
 * The ledger of a sidecar without NATS: in the memory of this process, bounded, gone with it. It promises the same as the other one
 * for as long as the process lives. Nothing is dropped before its time: when it is full, new keys are refused; a result for which
 * there is no room is left out, and a repeat is told so.
 */
import type { Clock } from '../../base/clock.ts';
import type { Claim, ClaimAsk, Claimed, KeptResult, LostBy, TaskLedger } from './ledger.ts';
import { bare, ClaimRecord, type ClaimState, fitted, reuseOf, triesWith } from './record.ts';

export interface MemoryLedgerOptions {
  readonly maxKeys: number;
  /** Of all results together. */
  readonly maxBytes: number;
  /** Of one result. */
  readonly maxResultBytes: number;
  readonly keepMs: number;
}

const AGAIN_MS = 50;

class Entry {
  record: ClaimRecord;
  claim: MemoryClaim | null = null;
  readonly endsAt: number;
  constructor(record: ClaimRecord, endsAt: number) {
    this.record = record;
    this.endsAt = endsAt;
  }
}

export class MemoryLedger implements TaskLedger {
  readonly #clock: Clock;
  readonly #options: MemoryLedgerOptions;
  /** Oldest first: all are kept for the same time. */
  readonly #entries = new Map<string, Entry>();
  #bytes = 0;

  constructor(clock: Clock, options: MemoryLedgerOptions) {
    this.#clock = clock;
    this.#options = options;
  }

  get size(): number {
    return this.#entries.size;
  }
  /** Of the results that are kept. */
  get bytes(): number {
    return this.#bytes;
  }

  claim(ask: ClaimAsk, tries: number = 0): Promise<Claimed> {
    return Promise.resolve(this.#claim(ask, tries));
  }

  look(id: string): Promise<Claimed | null> {
    this.#expire();
    const entry = this.#entries.get(id);
    return Promise.resolve(entry === undefined ? null : this.#judge(entry, null));
  }

  async close(): Promise<void> {
    this.#entries.clear();
    this.#bytes = 0;
    await Promise.resolve();
  }

  /** How a claim of ours ended; false when its entry is another one by now. */
  settle(
    claim: MemoryClaim,
    state: ClaimState,
    tries: number,
    result: KeptResult | null,
    detail: string,
    ended = false,
  ): KeptResult | null | false {
    const entry = this.#entries.get(claim.id);
    if (entry?.claim !== claim) return false;
    entry.claim = null;
    let kept = result === null ? null : fitted(result, this.#options.maxResultBytes);
    if (kept !== null && this.#bytes + bytesOf(kept) > this.#options.maxBytes) kept = bare(kept);
    // A copy: the bytes may be a view into something larger.
    if (kept !== null) kept = { ...kept, body: Buffer.from(kept.body) };
    this.#bytes += bytesOf(kept);
    entry.record = new ClaimRecord(state, entry.record.ask, '', 1, tries, 0, kept, detail, ended);
    return kept;
  }

  /** As if the lease had run out. */
  abandoned(claim: MemoryClaim): void {
    const execution = this.#entries.get(claim.id)?.record.ask.execution;
    if (execution === 'once') this.settle(claim, 'unknown', claim.tries, null, 'its worker vanished');
    else this.settle(claim, 'released', claim.tries, null, '');
  }

  #claim(ask: ClaimAsk, tries: number): Claimed {
    this.#expire();
    const entry = this.#entries.get(ask.id);
    const judged = entry === undefined ? null : this.#judge(entry, ask);
    if (judged !== null) return judged;
    if (entry === undefined && this.#entries.size >= this.#options.maxKeys)
      return {
        kind: 'full',
        why: `this sidecar remembers ${this.#options.maxKeys} keys at most (claims.memory_keys), and none of them is old enough to be forgotten`,
      };
    const record = new ClaimRecord(
      'executing',
      ask,
      '',
      0,
      (entry === undefined ? tries : triesWith(entry.record, ask, tries)) + 1,
      0,
      null,
      '',
    );
    // The entry begins anew, at the end of the line.
    this.#entries.delete(ask.id);
    const fresh = new Entry(record, this.#clock.now() + this.#options.keepMs);
    fresh.claim = new MemoryClaim(this, ask.id, record.tries);
    this.#entries.set(ask.id, fresh);
    return { kind: 'claimed', claim: fresh.claim };
  }

  #judge({ record }: Entry, ask: ClaimAsk | null): Claimed | null {
    const { taskId, worker } = record.ask;
    const why = ask === null ? null : reuseOf(record, ask);
    if (why !== null) return { kind: 'reused', why };
    switch (record.state) {
      case 'done':
        return { kind: 'done', result: record.result as KeptResult, taskId };
      case 'released':
        return record.ended && taskId === ask?.taskId ? { kind: 'ended' } : null;
      case 'unknown':
        return { kind: 'in_doubt', moved: false, taskId, tries: record.tries, worker };
      case 'executing':
        return { kind: 'executing', againInMs: AGAIN_MS, taskId, worker };
    }
  }

  #expire(): void {
    const now = this.#clock.now();
    for (const [id, entry] of this.#entries) {
      if (entry.endsAt > now) return;
      this.#bytes -= bytesOf(entry.record.result);
      this.#entries.delete(id);
      entry.claim?.lose();
    }
  }
}

class MemoryClaim implements Claim {
  readonly id: string;
  readonly tries: number;
  readonly #ledger: MemoryLedger;
  #isHeld = true;
  onLost: ((by: LostBy) => void) | null = null;

  constructor(ledger: MemoryLedger, id: string, tries: number) {
    this.#ledger = ledger;
    this.id = id;
    this.tries = tries;
  }

  get held(): boolean {
    return this.#isHeld;
  }

  done(result: KeptResult): Promise<'stored' | 'too_large' | 'fenced' | 'unreachable'> {
    const kept = this.#end('done', this.tries, result, '');
    if (kept === false) return Promise.resolve('fenced');
    return Promise.resolve(kept !== null && kept.body.length < result.body.length ? 'too_large' : 'stored');
  }

  release(countsAsTry: boolean): Promise<boolean> {
    return Promise.resolve(this.#end('released', countsAsTry ? this.tries : this.tries - 1, null, '') !== false);
  }

  ended(): Promise<boolean> {
    this.#isHeld = false;
    return Promise.resolve(this.#ledger.settle(this, 'released', this.tries, null, '', true) !== false);
  }

  unknown(detail: string): Promise<boolean> {
    return Promise.resolve(this.#end('unknown', this.tries, null, detail) !== false);
  }

  /** Its time was over while the work went on. */
  lose(): void {
    this.#isHeld = false;
    this.onLost?.('fenced');
  }

  /** Nobody else is there to take over: it is free again where that is harmless, else nobody knows. */
  abandon(): void {
    if (this.#isHeld) this.#ledger.abandoned(this);
    this.#isHeld = false;
  }

  #end(state: ClaimState, tries: number, result: KeptResult | null, detail: string): KeptResult | null | false {
    this.#isHeld = false;
    return this.#ledger.settle(this, state, tries, result, detail);
  }
}

/** What it holds beside a few words: its body, and the headers that are kept with it. */
function bytesOf(result: KeptResult | null): number {
  if (result === null) return 0;
  let bytes = result.body.length;
  const headers = result.marks?.headers ?? null;
  for (const name in headers) bytes += name.length + (headers[name] as string).length;
  return bytes;
}
