/**
 * What operators did and were refused, as this replica saw it. `record` never waits and never fails: whoever acts in an
 * emergency is not held up by the log. Every entry is a line of the process's log first, with its number and hash, and then
 * goes to the stream, where nothing is changed or taken out; while the stream takes nothing it waits here.
 *
 * An answer to an operator is held until the entries of his order are acknowledged, for a second at most (`during`); then he is
 * answered all the same and told that the entry is still under way. The two kinds have streams of their own: what was done,
 * which only operators can fill, and what was refused, which anybody can.
 */
import { AsyncLocalStorage } from 'node:async_hooks';
import type { Clock } from '../../base/clock.ts';
import type { Logger } from '../../base/log.ts';
import { type ChainBus, ChainedLog } from '../../base/chained-log.ts';
import { type AuditRecord, auditRecord, type AuditSaid, entryHash, entryText, readEntry } from '../../proto/wire/audit.ts';
import { AUDIT_STREAM, REFUSED_STREAM, type Subjects } from '../../proto/wire/subjects.ts';
import { RefusedRequests } from './refused-requests.ts';

export interface AuditParts {
  readonly bus: ChainBus;
  readonly subjects: Subjects;
  readonly clock: Clock;
  readonly logger: Logger;
  /** Of this replica: names its entries. */
  readonly writer: string;
}

export type Entry = Omit<AuditRecord, 'n' | 'prev'>;

/** What happened while one order was carried out. */
interface Order {
  /** By whom an entry was written during it. */
  written: number;
  readonly settling: Promise<string | null>[];
}

export interface During<T> {
  readonly result: T;
  /** Entries that were recorded during it. */
  readonly written: number;
}

/** Entries that wait for the stream at most: some hours of busy operators. */
const MAX_WAITING = 10_000;
/** How long an operator's answer waits for the acknowledgement. */
export const SETTLE_MS = 1_000;
const TIMEOUT_MS = 2_000;

export class Audit {
  readonly #parts: AuditParts;
  readonly #done: ChainedLog<Entry>;
  readonly #refused: ChainedLog<Entry>;
  readonly #requests: RefusedRequests;
  readonly #orders = new AsyncLocalStorage<Order>();
  readonly #counts = { done: 0, refused: 0 };

  constructor(parts: AuditParts) {
    this.#parts = parts;
    this.#done = this.#chain(AUDIT_STREAM, parts.subjects.audit(parts.writer, 'act'));
    this.#refused = this.#chain(REFUSED_STREAM, parts.subjects.audit(parts.writer, 'asked'));
    this.#requests = new RefusedRequests(parts.clock, (said) => void this.#add(this.#refused, said));
  }

  /** Returns at once; the entry is on its way. */
  record(said: AuditSaid): void {
    const order = this.#orders.getStore();
    if (order !== undefined) order.written++;
    const log = said.outcome === 'done' ? this.#done : this.#refused;
    this.#counts[said.outcome === 'done' ? 'done' : 'refused'] += said.count ?? 1;
    const settling = this.#add(log, said);
    order?.settling.push(settling);
  }

  /** A request that was refused at the door: counted, the first at once and then sums, so that a flood is a few entries. */
  refusedRequest(said: { readonly actor: string; readonly role: string; readonly route: string; readonly code: number }): void {
    this.#counts.refused++;
    this.#requests.add(said);
  }

  /** Runs an order and knows afterwards whether it recorded something. */
  async during<T>(act: () => T | Promise<T>): Promise<During<T> & { readonly settled: () => Promise<string | null> }> {
    const order: Order = { written: 0, settling: [] };
    const result = await this.#orders.run(order, async () => await act());
    return { result, written: order.written, settled: () => this.#settled(order) };
  }

  /** The same order goes on: what is recorded now belongs to it. Null when all of it is stored, else why not yet. */
  async #settled(order: Order): Promise<string | null> {
    if (order.settling.length === 0) return null;
    let timer: { cancel(): void } | null = null;
    const late = new Promise<string>((resolve) => {
      timer = this.#parts.clock.after(SETTLE_MS, () => resolve(this.why === '' ? 'NATS has not acknowledged it yet' : this.why));
    });
    const all = Promise.all(order.settling).then((outcomes) => outcomes.find((why) => why !== null) ?? null);
    const why = await Promise.race([all, late]);
    (timer as { cancel(): void } | null)?.cancel();
    return why;
  }

  /** Records and waits for the acknowledgement, a second at most. Null = it is stored. */
  async recorded(said: AuditSaid): Promise<string | null> {
    const { settled } = await this.during(() => this.record(said));
    return settled();
  }

  get counts(): { readonly done: number; readonly refused: number; readonly waiting: number; readonly lost: number } {
    return { ...this.#counts, waiting: this.#done.waiting + this.#refused.waiting, lost: this.#done.lost + this.#refused.lost };
  }

  /** Why entries are not stored at present; '' = they are. */
  get why(): string {
    return this.#done.why === '' ? this.#refused.why : this.#done.why;
  }

  /** A connection has come back. */
  nudge(): void {
    this.#done.nudge();
    this.#refused.nudge();
  }

  async stop(timeoutMs: number): Promise<void> {
    this.#requests.flush();
    const [isDone] = await Promise.all([this.#done.flush(timeoutMs), this.#refused.flush(timeoutMs)]);
    if (!isDone)
      this.#parts.logger.error(
        { entries: this.#done.waiting },
        'the audit log did not take these entries before the end: they stand in this log alone',
      );
    this.#done.close();
    this.#refused.close();
  }

  #add(log: ChainedLog<Entry>, said: AuditSaid): Promise<string | null> {
    const { clock, logger, writer } = this.#parts;
    const entry = auditRecord(said, writer, clock.wallMs());
    const { v: _, writer: __, since_ms: ___, ...words } = entry;
    logger.info({ audit: words }, entry.outcome === 'done' ? 'an operator acted' : 'an operator was refused');
    return new Promise((resolve) => log.add(entry, resolve));
  }

  #chain(stream: string, subject: string): ChainedLog<Entry> {
    const { bus, clock, logger } = this.#parts;
    return new ChainedLog<Entry>({
      bus,
      clock,
      stream,
      subject,
      maxWaiting: MAX_WAITING,
      timeoutMs: TIMEOUT_MS,
      firstRetryMs: 250,
      mostRetryMs: 5_000,
      textOf: entryText,
      hashOf: entryHash,
      numberOf: (text) => readEntry(text)?.n ?? null,
      stored: (entry, n, hash) => logger.debug({ n, hash, action: entry.action }, 'an entry of the audit log is stored'),
      failed: (why) => logger.error({ why }, 'the audit log takes nothing at present: entries wait, and stand in this log'),
    });
  }
}
