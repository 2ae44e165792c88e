/**
 * The ledger on AR_IDEM. A claim is a message that the stream takes only when the subject has none; every later write carries the
 * sequence of the one before, so that a worker whose place was taken (fenced) can write nothing any more. A write whose answer did
 * not come is looked up: the record says by nonce and step whose it is. A lease is over when nobody has renewed it for so long by
 * *our* steady clock, or when the server has stamped some later message past it; clocks of two machines are never compared.
 */
import type { Clock, Timer } from '../../base/clock.ts';
import type { Logger } from '../../base/log.ts';
import type { Bus } from '../../base/nats.ts';
import type { Appended } from '../../base/pub-ack.ts';
import type { Random } from '../../base/random.ts';
import { StreamPublisher } from '../../base/stream-publisher.ts';
import { LEDGER_STREAM, type Subjects } from '../../proto/wire/subjects.ts';
import type { Claim, ClaimAsk, Claimed, KeptResult, TaskLedger } from './ledger.ts';
import { Leases } from './leases.ts';
import { type Store, type Held, NatsClaim } from './nats-claim.ts';
import { ClaimRecord, encodeRecord, readRecord, reuseOf, triesWith } from './record.ts';

export interface NatsLedgerParts {
  readonly bus: Bus;
  readonly subjects: Subjects;
  readonly clock: Clock;
  readonly random: Random;
  readonly log: Pick<Logger, 'warn'>;
  /** Name of this sidecar. */
  readonly self: string;
  /** How long a claim stands without a sign of life. Default 15 s. */
  readonly leaseMs?: number;
  /** Of results with more bytes only the head is kept. Default 256 KiB. */
  readonly maxResultBytes?: number;
}

const LEASE_MS = 15_000;
const MAX_RESULT_BYTES = 262_144;
/** The answer to one write or read; the stream answers in less than a millisecond, a fail-over takes seconds. */
const ANSWER_MS = 2_500;
const MAX_PENDING = 65_536;
/** A record that changes under us this often is somebody else's for the time being. */
const MAX_ROUNDS = 6;
/** A replica that answers a read may be this far behind. */
const BEHIND_MS = 25;
const HEAD_ROOM_BYTES = 4_096;
const MAX_AGAIN_MS = 500;

export class NatsLedger implements TaskLedger, Store {
  readonly #parts: NatsLedgerParts;
  readonly #publisher: StreamPublisher;
  readonly #leases: Leases;
  readonly #listener: { close(): void };
  readonly #held = new Set<Held>();
  readonly leaseMs: number;
  readonly #maxResultBytes: number;
  readonly #nonceHead: string;
  #nonces = 0;
  #timer: Timer | null = null;
  #warnedFull = false;
  #isClosed = false;
  readonly #tick = (): void => this.#extendAll();

  constructor(parts: NatsLedgerParts) {
    this.#parts = parts;
    this.leaseMs = parts.leaseMs ?? LEASE_MS;
    this.#maxResultBytes = parts.maxResultBytes ?? MAX_RESULT_BYTES;
    this.#publisher = new StreamPublisher(parts.bus, parts.clock, { timeoutMs: ANSWER_MS, maxPending: MAX_PENDING });
    this.#leases = new Leases(parts.clock);
    let reconnects = parts.bus.state.reconnects;
    this.#listener = parts.bus.onState(({ connected, reconnects: count }) => {
      if (!connected || count === reconnects) return;
      reconnects = count;
      this.#leases.noteReturn();
    });
    const chance = Math.floor(parts.random.next() * 2 ** 48).toString(36);
    this.#nonceHead = `${parts.self}.${parts.clock.wallMs().toString(36)}.${chance}.`;
  }

  get clock(): Clock {
    return this.#parts.clock;
  }

  /** Claims that are held here now. */
  get size(): number {
    return this.#held.size;
  }

  get maxResultBytes(): number {
    const { maxPayload } = this.#parts.bus;
    return maxPayload > HEAD_ROOM_BYTES ? Math.min(this.#maxResultBytes, maxPayload - HEAD_ROOM_BYTES) : this.#maxResultBytes;
  }

  /** The server has stamped something with this time: leases that ended before are over. */
  noteServerTime(ms: number): void {
    this.#leases.noteServerTime(ms);
  }

  async claim(ask: ClaimAsk, tries: number = 0): Promise<Claimed> {
    const nonce = this.#nonceHead + (this.#nonces++).toString(36);
    let expected = 0;
    let known = tries;
    for (let round = 0; round < MAX_ROUNDS; round++) {
      const record = new ClaimRecord('executing', ask, nonce, 0, known + 1, this.leaseMs, null, '');
      const sentAt = this.clock.now();
      const outcome = await this.write(record, expected);
      if ('seq' in outcome) return { kind: 'claimed', claim: this.#hold(record, outcome.seq, sentAt) };
      if ('failed' in outcome && !outcome.ambiguous) return this.#notTaken(outcome);
      const found = await this.read(ask.id, 'conflict' in outcome ? (outcome.conflict ?? 0) : 0);
      if ('failed' in found) {
        if ('failed' in outcome) this.#disown(record, expected);
        return { kind: 'unreachable', why: found.failed };
      }
      if (found.seq === 0) {
        expected = 0;
        known = tries;
        continue;
      }
      if (found.record?.nonce === nonce) {
        if (found.record.state !== 'executing') return { kind: 'unreachable', why: 'the claim was written over' };
        return { kind: 'claimed', claim: this.#hold(found.record, found.seq, sentAt) };
      }
      const judged = this.#judge(found.record, found.seq, found.atMs, ask);
      if (judged === 'lapsed') {
        const moved = await this.#giveUp(found.record as ClaimRecord, found.seq, nonce);
        if (moved !== null) return moved;
        continue;
      }
      if (judged !== 'free') return judged;
      expected = found.seq;
      known = triesWith(found.record as ClaimRecord, ask, tries);
    }
    return { kind: 'executing', againInMs: MAX_AGAIN_MS, taskId: '', worker: '' };
  }

  /**
   * The claim that an earlier life of this sidecar had, for its agent's task: ours again when nobody has written since, even if its
   * lease had run out. `gone`: it has ended, or somebody else has it.
   */
  async resume(id: string, worker: string, taskId: string): Promise<Claim | 'gone' | 'unreachable'> {
    const found = await this.read(id, 0);
    if ('failed' in found) return 'unreachable';
    const { record, seq } = found;
    const isOurs = record !== null && record.nonce.startsWith(`${this.#parts.self}.`) && !record.nonce.startsWith(this.#nonceHead);
    if (record === null || !isOurs || record.state !== 'executing' || record.ask.worker !== worker || record.ask.taskId !== taskId)
      return 'gone';
    const claim = this.#hold(record, seq, this.clock.now());
    const written = await claim.extend();
    if (written === 'stored') return claim;
    claim.abandon();
    return written === 'fenced' ? 'gone' : 'unreachable';
  }

  async look(id: string): Promise<Claimed | null> {
    const found = await this.read(id, 0);
    if ('failed' in found) return { kind: 'unreachable', why: found.failed };
    if (found.seq === 0) return null;
    const judged = this.#judge(found.record, found.seq, found.atMs, found.record?.ask ?? null);
    return judged === 'free' || judged === 'lapsed' ? null : judged;
  }

  async close(): Promise<void> {
    this.#isClosed = true;
    this.#listener.close();
    this.#timer?.cancel();
    this.#timer = null;
    for (const claim of this.#held) claim.lose();
    this.#publisher.close();
    await Promise.resolve();
  }

  // ---- for the claims

  write(record: ClaimRecord, expected: number): Promise<Appended> {
    const subject = this.#parts.subjects.idem(record.ask.id);
    return new Promise((resolve) => {
      const options = { expectLastSubjectSeq: expected, stream: LEDGER_STREAM };
      if (!this.#publisher.send(subject, encodeRecord(record, expected), options, resolve))
        resolve({ failed: this.#parts.bus.connected ? 'too many claims wait for NATS' : 'no connection to NATS', ambiguous: false });
    });
  }

  /** What is recorded, at least as new as `seq`: a replica may be behind. Sequence 0 = nothing. */
  async read(
    id: string,
    seq: number,
  ): Promise<{ readonly record: ClaimRecord | null; readonly seq: number; readonly atMs: number } | { readonly failed: string }> {
    const subject = this.#parts.subjects.idem(id);
    for (let round = 0; ; round++) {
      const found = await this.#parts.bus.last(LEDGER_STREAM, subject, ANSWER_MS);
      if (found !== null && 'failed' in found) return { failed: found.failed };
      if ((found?.seq ?? 0) >= seq || round === MAX_ROUNDS) {
        if (found === null) return { record: null, seq: 0, atMs: 0 };
        this.#leases.noteServerTime(found.timestampMs);
        return { record: readRecord(id, found.data), seq: found.seq, atMs: found.timestampMs };
      }
      await new Promise<void>((done) => void this.clock.after(BEHIND_MS, done));
    }
  }

  drop(claim: Held): void {
    this.#held.delete(claim);
    if (this.#held.size > 0 || this.#timer === null) return;
    this.#timer.cancel();
    this.#timer = null;
  }

  // ---- judging

  #judge(record: ClaimRecord | null, seq: number, atMs: number, ask: ClaimAsk | null): Claimed | 'free' | 'lapsed' {
    if (record === null) return { kind: 'in_doubt', moved: false, taskId: '', tries: 0, worker: '' };
    const { taskId, worker } = record.ask;
    const why = ask === null ? null : reuseOf(record, ask);
    if (why !== null) return { kind: 'reused', why };
    switch (record.state) {
      case 'done':
        return { kind: 'done', result: record.result as KeptResult, taskId };
      case 'released':
        return record.ended && taskId === ask?.taskId ? { kind: 'ended' } : 'free';
      case 'unknown':
        return { kind: 'in_doubt', moved: false, taskId, tries: record.tries, worker };
      case 'executing': {
        const leftMs = this.#leases.leftMs(record.ask.id, seq, atMs, record.leaseMs);
        if (leftMs > 0) return { kind: 'executing', againInMs: Math.min(MAX_AGAIN_MS, leftMs), taskId, worker };
        return record.ask.execution === 'once' || ask?.execution === 'once' ? 'lapsed' : 'free';
      }
    }
  }

  /** It may have been stored all the same, and nobody has the work: it must not look like a worker that vanished. */
  #disown(record: ClaimRecord, expected: number): void {
    void this.#hold(record, expected, this.clock.now()).release(false);
  }

  /** Its worker vanished, and it may have acted. Null = somebody was quicker. */
  async #giveUp(record: ClaimRecord, seq: number, nonce: string): Promise<Claimed | null> {
    const { taskId, worker } = record.ask;
    const detail = `${worker === '' ? 'its worker' : worker} vanished`;
    const given = new ClaimRecord('unknown', record.ask, nonce, 1, record.tries, record.leaseMs, null, detail);
    const outcome = await this.write(given, seq);
    if ('conflict' in outcome) return null;
    if ('failed' in outcome) return { kind: 'unreachable', why: outcome.failed };
    return { kind: 'in_doubt', moved: true, taskId, tries: record.tries, worker };
  }

  #notTaken(outcome: { readonly failed: string; readonly full?: true }): Claimed {
    if (outcome.full !== true) return { kind: 'unreachable', why: outcome.failed };
    if (!this.#warnedFull) this.#parts.log.warn(`the ledger (${LEDGER_STREAM}) is full: work with a key is refused until keys expire`);
    this.#warnedFull = true;
    return { kind: 'full', why: `the ledger is full: nothing new with a key is taken until older keys expire (${outcome.failed})` };
  }

  // ---- leases of our own

  #hold(record: ClaimRecord, seq: number, sentAt: number): NatsClaim {
    const claim = new NatsClaim(this, record, seq, sentAt);
    if (this.#isClosed) return claim;
    this.#held.add(claim);
    this.#warnedFull = false;
    this.#timer ??= this.clock.after(this.leaseMs / 6, this.#tick);
    return claim;
  }

  /** One timer for all. Most claims are settled before it would be their turn; a lease that ends before the next turn is looked at when it does. */
  #extendAll(): void {
    this.#timer = null;
    const now = this.clock.now();
    let nextMs = this.leaseMs / 6;
    for (const claim of this.#held) {
      const leftMs = claim.renew(now);
      if (leftMs > 0 && leftMs < nextMs) nextMs = leftMs;
    }
    if (this.#held.size > 0) this.#timer ??= this.clock.after(Math.max(1, nextMs), this.#tick);
  }
}
