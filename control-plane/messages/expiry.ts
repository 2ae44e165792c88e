/**
 * Tasks whose time is over where nobody pulls them: a pool without workers, or one whose workers all stand still. A worker that
 * pulls such a task says that it has expired; where none does, the leader says so, else its sender would wait for ever. Looked at
 * is only what does not move, so that it costs nothing where work goes on. What was never delivered can be with nobody, and is
 * told and deleted; should a worker come just then, it finds the same and says the same, under the same id. What was
 * delivered is pulled, as a worker would: only what the server gives away is in nobody's hands (and where the server must not
 * delete, all is pulled, see sifting.ts). What the task's key says of it
 * is read before anything is told (last-word.ts).
 */
import type { ConsumerFacts } from '../../base/consumer.ts';
import type { Stored } from '../../base/jetstream.ts';
import { nak } from '../../base/puller.ts';
import { decodeEnvelope } from '../../proto/wire/envelope.ts';
import { Consumer } from '../../proto/wire/messages.ts';
import { TASK_STREAM } from '../../proto/wire/subjects.ts';
import { DueList } from './due-list.ts';
import { faultOf } from './fault.ts';
import { endsAt, traceIdOf } from './kept-entry.ts';
import { lastWord, type Overdue } from './last-word.ts';
import type { MessageParts } from './parts.ts';
import type { PoolDesk } from './pool-desk.ts';
import { deletesAnywhere, sift, takeOut } from './sifting.ts';
import { serverTime } from './time-left.ts';

/** Without a delivery for so long: it stands still. With workers, they may only be busy. */
const STILL_MS = 2_000;
const STILL_WITH_WORKERS_MS = 60_000;
/** So long after its end, a worker that pulls it is certain to find it expired too. */
const MARGIN_MS = 2_000;
/** Messages read in one look, over all pools; the next look goes on. */
const READ_A_LOOK = 2_000;
const PAGE = 100;
/** Of one consumer in one look. */
const PULL_MOST = 2_000;
const PULL_EVERY_MS = 20_000;
/** Somebody may have it: looked at again after this. */
const LATER_MS = 10_000;

/** What waits for one consumer. */
class Lane {
  /** The consumer's own count, which every delivery raises. */
  readonly delivered: number;
  readonly since: number;
  scanned = 0;
  readonly due = new DueList();

  constructor(delivered: number, since: number) {
    this.delivered = delivered;
    this.since = since;
  }
}

/** A line of the log names so many. */
const NAMED_TRACES = 5;

export class Expiry {
  /** Told in this reign. */
  count = 0;
  readonly #parts: MessageParts;
  readonly #pools: PoolDesk;
  readonly #lanes = new Map<string, Lane>();
  /** Of those that ended, to be named in the log. */
  readonly #traces: string[] = [];
  readonly #pulledAt = new Map<string, number>();
  #isBusy = false;
  #isClosed = false;
  #left = 0;

  constructor(parts: MessageParts, pools: PoolDesk) {
    this.#parts = parts;
    this.#pools = pools;
  }

  close(): void {
    this.#isClosed = true;
  }

  /** Not awaited by who looks: it may take a while. */
  async look(): Promise<void> {
    if (this.#isBusy) return;
    this.#isBusy = true;
    try {
      await this.#lookAtAll();
    } finally {
      this.#isBusy = false;
    }
  }

  async #lookAtAll(): Promise<void> {
    const still = this.#still();
    if (still.length === 0) return;
    const serverMs = await serverTime(this.#parts);
    if (serverMs === null) return;
    this.#left = READ_A_LOOK;
    for (const { facts, lane, hasWorkers } of still) {
      if (this.#isClosed) return;
      await this.#read(facts, lane);
      if (lane.due.nextAt + MARGIN_MS < serverMs) await this.#end(facts, lane, hasWorkers, serverMs);
    }
  }

  #still(): { readonly facts: ConsumerFacts; readonly lane: Lane; readonly hasWorkers: boolean }[] {
    const now = this.#parts.clock.now();
    const found: { facts: ConsumerFacts; lane: Lane; hasWorkers: boolean }[] = [];
    const seen = new Set<string>();
    for (const facts of this.#waiting()) {
      seen.add(facts.name);
      let lane = this.#lanes.get(facts.name);
      if (lane === undefined || lane.delivered !== facts.deliveredConsumerSeq) {
        lane = new Lane(facts.deliveredConsumerSeq, now);
        this.#lanes.set(facts.name, lane);
      }
      const hasWorkers = (this.#pools.book.get(facts.name.slice(0, facts.name.indexOf('_')))?.workers.size ?? 0) > 0;
      if (now - lane.since >= (hasWorkers ? STILL_WITH_WORKERS_MS : STILL_MS)) found.push({ facts, lane, hasWorkers });
    }
    for (const name of this.#lanes.keys()) if (!seen.has(name)) this.#lanes.delete(name);
    for (const name of this.#pulledAt.keys()) if (!seen.has(name)) this.#pulledAt.delete(name);
    return found;
  }

  /** Consumers that have something, and partitions that never had a consumer. */
  *#waiting(): Generator<ConsumerFacts> {
    const { book, consumers } = this.#pools;
    for (const facts of consumers.facts.values()) if (facts.pending + facts.ackPending > 0) yield facts;
    for (const { pool, partitions } of book.all())
      for (const [index, { term }] of partitions.entries())
        if (term === 0) yield unowned(`${pool.id}_s${index}`, this.#parts.subjects.taskFilter(pool.id, '*', index));
  }

  async #read({ filter }: ConsumerFacts, lane: Lane): Promise<void> {
    while (this.#left > 0 && !this.#isClosed) {
      const page = await this.#parts.bus.history(TASK_STREAM, filter, PAGE, lane.scanned + 1);
      if ('failed' in page) return;
      for (const stored of page) {
        lane.scanned = stored.seq;
        const at = endOf(stored);
        if (at !== null) lane.due.add(at, stored.seq);
      }
      this.#left -= page.length;
      if (page.length < PAGE) return;
    }
  }

  async #end(before: ConsumerFacts, lane: Lane, hasWorkers: boolean, serverMs: number): Promise<void> {
    const { bus, logger } = this.#parts;
    const isOwned = before.created !== '';
    const facts = isOwned ? await bus.consumer(TASK_STREAM, before.name) : before;
    if (facts === null || 'failed' in facts || facts.deliveredConsumerSeq !== lane.delivered) return;
    const cause = hasWorkers ? 'not_taken' : 'no_worker';
    const isDeleting = deletesAnywhere(this.#parts) || !isOwned;
    let toPull = 0;
    let told = 0;
    while (lane.due.nextAt + MARGIN_MS < serverMs && !this.#isClosed) {
      const seq = lane.due.take();
      // Below the floor it is acknowledged, and only has come back.
      if (isOwned && seq <= facts.ackFloorSeq) continue;
      if (seq <= facts.deliveredSeq || !isDeleting) {
        toPull++;
        continue;
      }
      const isGone = await this.#guarded(seq, () => this.#deleted(facts.filter, seq, serverMs, cause));
      if (isGone === true) told++;
      // It is looked at again then, or when the lane has moved.
      else if (isGone === false) lane.due.add(serverMs + LATER_MS, seq);
    }
    if (toPull > 0 && !hasWorkers) told += await this.#pulled(facts, serverMs, cause);
    this.count += told;
    if (told > 0)
      logger.info(
        { consumer: Consumer.shown(facts.name), tasks: told, trace_ids: this.#traces.splice(0) },
        'tasks that nobody took in time have ended: their senders are told',
      );
  }

  /** One that was never delivered. */
  async #deleted(filter: string, seq: number, serverMs: number, cause: string): Promise<boolean> {
    const { bus } = this.#parts;
    const page = await bus.history(TASK_STREAM, filter, 1, seq);
    if ('failed' in page) return false;
    const [stored] = page;
    const overdue = stored?.seq === seq ? overdueOf(seq, stored.data) : null;
    if (stored === undefined || overdue === null) return true;
    if (!deletesAnywhere(this.#parts)) {
      // No consumer to pull it from: the first of its subject may be deleted.
      const first = await bus.history(TASK_STREAM, stored.subject, 1);
      if ('failed' in first || first[0]?.seq !== seq) return false;
    }
    if ((await lastWord(this.#parts, overdue, serverMs, cause)) !== 'told') return false;
    this.#remember(overdue);
    const gone = await bus.deleteMessage(TASK_STREAM, seq);
    return gone === true || gone === null;
  }

  /** Only what nobody has comes. What is not due yet goes back at once. */
  async #pulled(facts: ConsumerFacts, serverMs: number, cause: string): Promise<number> {
    const { bus, clock } = this.#parts;
    if (clock.now() - (this.#pulledAt.get(facts.name) ?? Number.NEGATIVE_INFINITY) < PULL_EVERY_MS) {
      this.#lanes.delete(facts.name);
      return 0;
    }
    this.#pulledAt.set(facts.name, clock.now());
    this.#lanes.delete(facts.name);
    const count = Math.min(PULL_MOST, facts.ackPending + (deletesAnywhere(this.#parts) ? 0 : facts.pending));
    if (count === 0) return 0;
    const due = await sift(this.#parts, facts.name, count, ({ data, storedAtMs }) => {
      const at = endOf({ data, timestampMs: storedAtMs });
      return at !== null && at + MARGIN_MS < serverMs;
    });
    let told = 0;
    for (const delivery of due) {
      const overdue = overdueOf(delivery.streamSeq, delivery.data);
      const isTold =
        overdue !== null &&
        (await this.#guarded(overdue.seq, async () => (await lastWord(this.#parts, overdue, serverMs, cause)) === 'told')) === true;
      if (isTold && (await takeOut(this.#parts, delivery))) {
        told++;
        this.#remember(overdue);
      } else nak(bus, delivery, LATER_MS);
    }
    return told;
  }

  /** Whatever somebody wrote into the queue: of one that cannot be ended it is said, and the others are looked at. Null = it is such a one. */
  async #guarded(seq: number, act: () => Promise<boolean>): Promise<boolean | null> {
    try {
      return await act();
    } catch (error) {
      this.#parts.logger.error({ seq }, `a task's time is over, and it cannot be ended: ${faultOf(error)}`);
      return null;
    }
  }

  #remember({ envelope }: Overdue): void {
    const trace = traceIdOf(envelope);
    if (trace !== '' && this.#traces.length < NAMED_TRACES) this.#traces.push(trace);
  }
}

/** When its time is over, by the server's clock; null = it cannot be read, which its worker will say. */
function endOf({ data, timestampMs }: Pick<Stored, 'data' | 'timestampMs'>): number | null {
  const envelope = decodeEnvelope(data)?.envelope;
  return envelope === undefined ? null : endsAt(envelope, timestampMs);
}

function overdueOf(seq: number, data: Buffer): Overdue | null {
  const read = decodeEnvelope(data);
  return read === null ? null : { seq, envelope: read.envelope, payload: read.payload };
}

/** As a consumer that has delivered nothing. */
function unowned(name: string, filter: string): ConsumerFacts {
  return {
    name,
    filter,
    pending: 0,
    ackPending: 0,
    redelivered: 0,
    waiting: 0,
    ackFloorSeq: 0,
    deliveredSeq: 0,
    deliveredConsumerSeq: 0,
    deliveredAtMs: 0,
    ackWaitNs: 0,
    maxAckPending: 0,
    created: '',
  };
}
