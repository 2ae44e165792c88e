/**
 * A partition of a sticky pool that an agent here owns. Messages of one key are worked on one after another, in the order of the
 * queue: a failed one is tried again in its place, since one that is given back would come after the later ones. Other keys of
 * the partition go on meanwhile. One that ended here without the queue's word that it is gone (the queue was away) comes
 * again: until it does, the later ones of its key wait. Ownership is the consumer: it is named by partition and term, and the next owner gets another
 * one, so that what is still said to the old one changes nothing.
 */
import type { Clock } from '../../base/clock.ts';
import type { Logger } from '../../base/log.ts';
import type { Delivery } from '../../base/puller.ts';
import { decodeEnvelope } from '../../proto/wire/envelope.ts';
import { Consumer, type WorkPool } from '../../proto/wire/messages.ts';
import type { Table } from '../table/snapshot.ts';
import type { Pull, Queue } from './queue.ts';
import { type AllSlots, roomAt, type Seat, seatsOf } from './seats.ts';
import type { Standstill } from './standstill.ts';

export interface StickyParts {
  /** This process, as the control plane calls it. */
  readonly self: string;
  readonly queue: Queue;
  readonly table: Table;
  readonly slots: AllSlots;
  readonly standstill: Standstill;
  readonly clock: Clock;
  readonly log: Logger;
  /** Resolves when the message has ended, whatever pauses lie between; false = it comes again. */
  take(delivery: Delivery, arrivedAt: number, consumer: string, work: WorkPool, seat: Seat): Promise<boolean>;
  /** What was taken of this consumer is the next owner's: it is tried no more here. */
  moved(consumer: string): void;
  /** What is not extended for so long is delivered again. */
  ackWaitMs(): number;
  extendIfDue(waiting: Waiting, now: number): void;
}

/** Waits here for an earlier one of its key. */
class Waiting {
  readonly delivery: Delivery;
  readonly key: string;
  confirmedAt: number;
  isExtending = false;
  constructor(delivery: Delivery, key: string, now: number) {
    this.delivery = delivery;
    this.key = key;
    this.confirmedAt = now;
  }
}

/** A message that comes again, and before which no later one of its key may begin. */
class Owed {
  readonly key: string;
  readonly since: number;
  constructor(key: string, since: number) {
    this.key = key;
    this.since = since;
  }
}

/** So many ack waits: one that has not come by then does not come, since somebody has taken it out of the queue. */
const OWED_WAITS = 5;

/** Messages that one partition may have here, at work and waiting: one key with a long queue must not hold up the others. */
const WINDOW = 32;

class Partition {
  work: WorkPool;
  readonly owner: string;
  readonly consumer: string;
  pull: Pull | null = null;
  /** Keys at work. */
  readonly busy = new Set<string>();
  /** Their messages, by sequence. */
  readonly atWork = new Map<number, Seat>();
  /** By sequence. */
  readonly owed = new Map<number, Owed>();
  /** The consumer's number of the next delivery; 0 = none has come. */
  expected = 0;
  /** Deliveries that went astray with a connection: of which keys is known when they come again, and nothing behind them begins until then. */
  missing = 0;
  missingSince = 0;
  /** What stands up to here was delivered before any of those. */
  wholeTo = 0;
  lastSeq = 0;
  /** In the order of the queue. */
  readonly waiting: Waiting[] = [];
  isClosed = false;

  constructor(work: WorkPool, owner: string, consumer: string) {
    this.work = work;
    this.owner = owner;
    this.consumer = consumer;
  }
}

export class Sticky {
  readonly #parts: StickyParts;
  readonly #partitions = new Map<string, Partition>();

  constructor(parts: StickyParts) {
    this.#parts = parts;
  }

  assign(works: readonly WorkPool[]): void {
    const seen = new Set<string>();
    for (const work of works) {
      for (const { index, owner, term, host } of work.partitions) {
        // What the process before this one had: it has to be given to us anew, so that it comes again in its order.
        if (!work.agents.includes(owner) || (host !== undefined && host !== this.#parts.self)) continue;
        const consumer = Consumer.partition(work.pool.id, index, term, work.secret);
        seen.add(consumer);
        const known = this.#partitions.get(consumer);
        if (known !== undefined) known.work = work;
        else this.#open(new Partition(work, owner, consumer));
      }
    }
    for (const [consumer, partition] of this.#partitions) {
      if (seen.has(consumer)) continue;
      this.#partitions.delete(consumer);
      // Its consumer is gone or goes: what waits here is delivered to the next owner, in order.
      this.#close(partition);
      this.#parts.moved(consumer);
    }
    this.refill();
  }

  refill(): void {
    for (const partition of this.#partitions.values()) this.#go(partition);
  }

  sweep(now: number): void {
    const ackWaitMs = this.#parts.ackWaitMs();
    for (const partition of this.#partitions.values()) {
      const { waiting, owed } = partition;
      for (let i = 0; i < waiting.length; ) {
        const each = waiting[i] as Waiting;
        if (now - each.confirmedAt < ackWaitMs) {
          this.#parts.extendIfDue(each, now);
          i++;
          continue;
        }
        // The queue has not said for so long that it is ours: it delivers it again.
        waiting.splice(i, 1);
        owed.set(each.delivery.streamSeq, new Owed(each.key, now));
      }
      for (const [seq, { since }] of owed) if (now - since > OWED_WAITS * ackWaitMs) owed.delete(seq);
      if (now - partition.missingSince > OWED_WAITS * ackWaitMs) partition.missing = 0;
    }
    this.refill();
  }

  /** What waits here is given back: by its consumer, in the order in which it was delivered. */
  stop(): void {
    for (const partition of this.#partitions.values()) {
      this.#close(partition);
      for (const { delivery } of partition.waiting.splice(0)) this.#parts.queue.giveBack(delivery, 0);
    }
    this.#partitions.clear();
  }

  get held(): number {
    let sum = 0;
    for (const { waiting } of this.#partitions.values()) sum += waiting.length;
    return sum;
  }

  #open(partition: Partition): void {
    const { queue, log, clock, standstill } = this.#parts;
    this.#partitions.set(partition.consumer, partition);
    partition.pull = queue.pull(partition.consumer, {
      message: (delivery) => {
        if (partition.isClosed) return;
        this.#came(partition, delivery, standstill.sentAt(clock.now()));
        this.#go(partition);
      },
      returned: () => this.#go(partition),
      trouble: (why) => log.warn({ consumer: Consumer.shown(partition.consumer), why }, 'no messages can be pulled'),
    });
  }

  #close(partition: Partition): void {
    partition.isClosed = true;
    partition.pull?.close();
  }

  /** @param sentAt when it was sent here, at the earliest */
  #came(partition: Partition, delivery: Delivery, sentAt: number): void {
    this.#count(partition, delivery);
    const seat = partition.atWork.get(delivery.streamSeq);
    if (seat !== undefined) {
      // Delivered anew while it is at work: it is not to be done once more afterwards.
      void this.#parts.take(delivery, sentAt, partition.consumer, partition.work, seat);
      return;
    }
    const key = decodeEnvelope(delivery.data)?.envelope.sticky_key ?? '';
    partition.owed.delete(delivery.streamSeq);
    const place = partition.waiting.findIndex((each) => each.delivery.streamSeq >= delivery.streamSeq);
    const waiting = new Waiting(delivery, key, sentAt);
    if (place < 0) partition.waiting.push(waiting);
    // One that came back: it stands where it stood.
    else if ((partition.waiting[place] as Waiting).delivery.streamSeq === delivery.streamSeq) partition.waiting[place] = waiting;
    else partition.waiting.splice(place, 0, waiting);
  }

  /** The consumer numbers its deliveries: where one is missing, a message is with nobody until it comes again. */
  #count(partition: Partition, { consumerSeq, streamSeq, deliveries }: Delivery): void {
    const { expected } = partition;
    if (expected > 0 && consumerSeq > expected) {
      if (partition.missing === 0) partition.wholeTo = partition.lastSeq;
      partition.missing += consumerSeq - expected;
      partition.missingSince = this.#parts.clock.now();
    }
    partition.expected = Math.max(expected, consumerSeq + 1);
    partition.lastSeq = Math.max(partition.lastSeq, streamSeq);
    if (partition.missing > 0 && deliveries > 1 && !isKnown(partition, streamSeq)) partition.missing--;
  }

  /** Starts what may be started, and asks for more where there is room. */
  #go(partition: Partition): void {
    if (partition.isClosed) return;
    const { table, slots, clock } = this.#parts;
    const snapshot = table.current();
    const { work, owner, waiting, busy, owed } = partition;
    const seat = seatsOf({ pool: work.pool, agents: [owner], partitions: [] }, snapshot, slots)[0] ?? null;
    let room = seat === null ? 0 : roomAt(seat, snapshot, clock.now(), clock.wallMs(), 0);
    for (let i = 0; i < waiting.length && room > 0; ) {
      const next = waiting[i] as Waiting;
      if (busy.has(next.key) || mustWait(partition, next)) {
        i++;
        continue;
      }
      waiting.splice(i, 1);
      busy.add(next.key);
      partition.atWork.set(next.delivery.streamSeq, seat as Seat);
      room--;
      void this.#run(partition, next, seat as Seat);
    }
    // What is owed is asked for although those that wait for it fill the window.
    const most = Math.max(Math.min(room, WINDOW - waiting.length - busy.size), room > 0 ? owed.size + partition.missing : 0);
    const wanted = most - (partition.pull?.outstanding ?? 0);
    if (wanted > 0) partition.pull?.request(wanted);
  }

  async #run(partition: Partition, { delivery, key, confirmedAt }: Waiting, seat: Seat): Promise<void> {
    const isGone = await this.#parts.take(delivery, confirmedAt, partition.consumer, partition.work, seat);
    partition.busy.delete(key);
    partition.atWork.delete(delivery.streamSeq);
    if (!isGone) partition.owed.set(delivery.streamSeq, new Owed(key, this.#parts.clock.now()));
    this.#go(partition);
  }
}

/** It is here, or was, and is on its way back. */
function isKnown({ atWork, owed, waiting }: Partition, streamSeq: number): boolean {
  return atWork.has(streamSeq) || owed.has(streamSeq) || waiting.some(({ delivery }) => delivery.streamSeq === streamSeq);
}

/** For an earlier one of its key, or for one that may be. */
function mustWait({ missing, wholeTo, owed }: Partition, { key, delivery: { streamSeq } }: Waiting): boolean {
  if (missing > 0 && streamSeq > wholeTo) return true;
  if (owed.size === 0) return false;
  for (const [seq, one] of owed) if (seq < streamSeq && one.key === key) return true;
  return false;
}
