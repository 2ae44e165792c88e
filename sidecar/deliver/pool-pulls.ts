/** One pool as it is pulled from: its seats, and for each lane what was asked for, what is known to wait, and what came too early. */
import type { Delivery } from '../../base/puller.ts';
import type { WorkPool } from '../../proto/wire/messages.ts';
import type { Snapshot } from '../table/snapshot.ts';
import { LANE_COUNT } from './lanes.ts';
import type { Pull } from './queue.ts';
import { type AllSlots, roomAt, type Seat, seatsOf } from './seats.ts';

/** A message that came although no slot is free. */
export class Held {
  readonly delivery: Delivery;
  readonly at: number;
  constructor(delivery: Delivery, at: number) {
    this.delivery = delivery;
    this.at = at;
  }
}

export class LanePulls {
  readonly pool: PoolPulls;
  readonly lane: number;
  readonly consumer: string;
  pull: Pull | null = null;
  /** What waited there after the latest message, as the server said with it. */
  backlog = 0;
  /** Requests that stand for a free slot each; those beyond are there to hear of the first message. */
  promised = 0;
  /** Of this round, not asked for yet. */
  grants = 0;
  /** `clock.now()` when something came or was promised last. */
  movedAt = 0;
  readonly held: Held[] = [];

  constructor(pool: PoolPulls, lane: number, consumer: string) {
    this.pool = pool;
    this.lane = lane;
    this.consumer = consumer;
  }

  get outstanding(): number {
    return this.pull === null ? 0 : this.pull.outstanding;
  }

  /** Something is known to wait there that is not asked for. */
  get isWaiting(): boolean {
    return this.backlog - this.outstanding - this.grants > 0;
  }
}

/** With more seats than that they are not counted each time. */
const COUNT_EACH_TIME = 64;
const COUNT_EVERY_MS = 50;

export class PoolPulls {
  work: WorkPool;
  readonly lanes: LanePulls[] = [];
  seats: readonly Seat[] = [];
  /** Free slots, less what was started since they were counted. */
  room = 0;
  /** Without those that are kept for the high lane. */
  unreservedRoom = 0;
  /** Where the search for a seat begins. */
  cursor = 0;
  #table: Snapshot | null = null;
  #countedAt = Number.NEGATIVE_INFINITY;

  constructor(work: WorkPool, consumerOf: (lane: number) => string) {
    this.work = work;
    for (let lane = 0; lane < LANE_COUNT; lane++) this.lanes.push(new LanePulls(this, lane, consumerOf(lane)));
  }

  update(work: WorkPool): void {
    this.work = work;
    this.#table = null;
  }

  count(table: Snapshot, slots: AllSlots, now: number, wallMs: number, reserveHigh: number): void {
    if (table !== this.#table) {
      this.#table = table;
      this.seats = seatsOf(this.work, table, slots);
      this.#countedAt = Number.NEGATIVE_INFINITY;
    }
    if (this.seats.length > COUNT_EACH_TIME && now - this.#countedAt < COUNT_EVERY_MS) return;
    this.#countedAt = now;
    let room = 0;
    let unreserved = 0;
    for (const seat of this.seats) {
      room += roomAt(seat, table, now, wallMs, 0);
      if (reserveHigh > 0) unreserved += roomAt(seat, table, now, wallMs, reserveHigh);
    }
    this.room = room;
    this.unreservedRoom = reserveHigh === 0 ? room : unreserved;
  }

  roomFor(lane: number): number {
    return lane === 0 ? this.room : this.unreservedRoom;
  }

  get promised(): number {
    let sum = 0;
    for (const lane of this.lanes) sum += lane.promised;
    return sum;
  }

  started(): void {
    this.room--;
    this.unreservedRoom--;
  }
}
