/**
 * Pulling: which lane of which pool is asked for the next message, and who gets it. A message is asked for when a slot is free
 * for it, where something is known to wait (the server says with each message how many are left): those requests are shared
 * among the lanes by `LaneTurns`. Where nothing is known to wait a few requests stand, to hear of the first message at once;
 * so a lane that is idle takes no slot from one that is not. What such a request brings while all slots are taken is started next, in its
 * lane's turn, or given back for others after a moment. Pools that share agents share turns.
 */
import { atTurnEnd, type Clock } from '../../base/clock.ts';
import type { Logger } from '../../base/log.ts';
import type { Delivery } from '../../base/puller.ts';
import { LANES } from '../../proto/wire/envelope.ts';
import { Consumer, type WorkPool } from '../../proto/wire/messages.ts';
import type { Table } from '../table/snapshot.ts';
import { LANE_COUNT, LaneTurns } from './lanes.ts';
import { Held, type LanePulls, PoolPulls } from './pool-pulls.ts';
import type { Queue } from './queue.ts';
import { type AllSlots, freest, type Seat } from './seats.ts';
import type { DeliverSettings } from './settings.ts';
import type { Standstill } from './standstill.ts';
import type { Memory } from './tries.ts';

export interface DispatcherParts {
  readonly queue: Queue;
  readonly table: Table;
  readonly slots: AllSlots;
  readonly clock: Clock;
  readonly log: Logger;
  readonly settings: DeliverSettings;
  readonly standstill: Standstill;
  /** What is not extended for so long is delivered again. */
  ackWaitMs(): number;
  /** Ends that are being written down. */
  ending(): number;
  /** Of one that comes again: what is remembered of it. */
  memoryOf(delivery: Delivery): Memory | null;
  /** It goes back without having been started. */
  unstarted(delivery: Delivery): void;
  start(delivery: Delivery, arrivedAt: number, consumer: string, work: WorkPool, seat: Seat): void;
}

/** Requests that stand where nothing is known to wait: a quarter of the free slots, within these. */
const MOST_PROBES = 64;
/** What was asked for where something waited has come by then, or others were faster. */
const STALE_MS = 100;

/** Pools that share agents. */
class Group {
  readonly pools: PoolPulls[] = [];
  readonly turns: LaneTurns;
  /** By lane: the pool that is next. */
  readonly next: number[] = new Array<number>(LANE_COUNT).fill(0);

  constructor(turns: LaneTurns) {
    this.turns = turns;
  }
}

export class Dispatcher {
  readonly #parts: DispatcherParts;
  readonly #pools = new Map<string, PoolPulls>();
  #groups: readonly Group[] = [];
  readonly #groupOf = new Map<PoolPulls, Group>();
  #isDue = false;
  #isStopped = false;
  readonly #run = (): void => this.#refillAll();

  constructor(parts: DispatcherParts) {
    this.#parts = parts;
  }

  /** The pools that there is work in, sticky ones not among them. */
  assign(works: readonly WorkPool[]): void {
    if (this.#isStopped) return;
    const seen = new Set<string>();
    for (const work of works) {
      seen.add(work.pool.id);
      const known = this.#pools.get(work.pool.id);
      if (known !== undefined && known.work.secret === work.secret) {
        known.update(work);
        continue;
      }
      // Its consumers are others now; what those before had given out is given out anew.
      if (known !== undefined) this.#close(known);
      this.#open(work);
    }
    for (const [id, pool] of this.#pools) {
      if (seen.has(id)) continue;
      this.#pools.delete(id);
      this.#close(pool);
    }
    this.#groups = groupsOf([...this.#pools.values()], this.#groupOf);
    this.#groupOf.clear();
    for (const group of this.#groups) for (const pool of group.pools) this.#groupOf.set(pool, group);
    this.due();
  }

  /** A slot may have become free: looked at once, at the end of this turn. */
  due(): void {
    if (this.#isDue || this.#isStopped) return;
    this.#isDue = true;
    atTurnEnd(this.#run);
  }

  /** To be called some times a second. */
  sweep(now: number): void {
    const { settings } = this.#parts;
    for (const pool of this.#pools.values()) {
      for (const lane of pool.lanes) {
        if (lane.promised > 0 && now - lane.movedAt > STALE_MS) {
          lane.promised = 0;
          lane.backlog = 0;
        }
        while (lane.held.length > 0 && now - (lane.held[0] as Held).at > settings.holdMs) {
          const { delivery, at } = lane.held.shift() as Held;
          // What the queue has given to others is not ours to give.
          if (now - at < this.#parts.ackWaitMs()) this.#giveBack(delivery);
        }
      }
    }
    this.due();
  }

  /** Nothing is pulled any more; what has not been started is given back. */
  stop(): void {
    this.#isStopped = true;
    for (const pool of this.#pools.values()) this.#close(pool);
    this.#pools.clear();
    this.#groups = [];
  }

  /** Messages that came and wait for a slot. */
  get held(): number {
    let sum = 0;
    for (const pool of this.#pools.values()) for (const lane of pool.lanes) sum += lane.held.length;
    return sum;
  }

  #open(work: WorkPool): void {
    const pool = new PoolPulls(work, (lane) => Consumer.lane(work.pool.id, LANES[lane] as string, work.secret));
    this.#pools.set(work.pool.id, pool);
    for (const lane of pool.lanes) {
      lane.pull = this.#parts.queue.pull(lane.consumer, {
        message: (delivery) => this.#came(lane, delivery),
        returned: () => {
          lane.promised = Math.min(lane.promised, lane.outstanding);
          lane.backlog = 0;
          this.due();
        },
        trouble: (why) => this.#parts.log.warn({ consumer: Consumer.shown(lane.consumer), why }, 'no messages can be pulled'),
      });
    }
  }

  #close(pool: PoolPulls): void {
    for (const lane of pool.lanes) {
      lane.pull?.close();
      for (const { delivery } of lane.held.splice(0)) this.#giveBack(delivery);
    }
  }

  #giveBack(delivery: Delivery): void {
    this.#parts.unstarted(delivery);
    this.#parts.queue.giveBack(delivery, 0);
  }

  #came(lane: LanePulls, delivery: Delivery): void {
    const { pool } = lane;
    const now = this.#parts.clock.now();
    const sentAt = this.#parts.standstill.sentAt(now);
    lane.backlog = delivery.pending;
    lane.movedAt = now;
    const isPromised = lane.promised > 0;
    if (isPromised) lane.promised--;
    const mayStart = isPromised || (pool.roomFor(lane.lane) - pool.promised > 0 && lane.held.length === 0);
    if (!mayStart || this.#isStopped || !this.#start(lane, delivery, sentAt, now)) {
      if (this.#isStopped) this.#giveBack(delivery);
      else lane.held.push(new Held(delivery, sentAt));
    } else if (!isPromised) {
      const group = this.#groupOf.get(pool);
      group?.turns.charge(lane.lane, lanesWith(group));
    }
    this.due();
  }

  #start(lane: LanePulls, delivery: Delivery, arrivedAt: number, now: number): boolean {
    const { pool } = lane;
    const { table, clock, settings } = this.#parts;
    const reserved = lane.lane === 0 ? 0 : settings.reserveHigh;
    const memory = delivery.deliveries > 1 && pool.seats.length > 1 ? this.#parts.memoryOf(delivery) : null;
    const place = freest(pool.seats, pool.cursor, table.current(), now, clock.wallMs(), reserved, memory);
    if (place < 0) return false;
    pool.cursor = (place + 1) % pool.seats.length;
    pool.started();
    this.#parts.start(delivery, arrivedAt, lane.consumer, pool.work, pool.seats[place] as Seat);
    return true;
  }

  #refillAll(): void {
    this.#isDue = false;
    if (this.#isStopped) return;
    if (this.#parts.ending() >= this.#parts.settings.maxEnding) {
      // Looked at again with the sweep, and whenever something has ended.
      return;
    }
    for (const group of this.#groups) this.#refill(group);
  }

  #refill(group: Group): void {
    const { clock, table, slots, settings } = this.#parts;
    const now = clock.now();
    const wallMs = clock.wallMs();
    const snapshot = table.current();
    for (const pool of group.pools) {
      pool.count(snapshot, slots, now, wallMs, settings.reserveHigh);
      for (const lane of pool.lanes) this.#probe(lane);
    }
    let shared = group.pools.length > 1 ? unionRoom(group) : Number.POSITIVE_INFINITY;
    for (;;) {
      if (shared <= 0) break;
      const lane = group.turns.next(startable(group));
      if (lane < 0) break;
      const pulls = nextOf(group, lane);
      if (pulls === null) break;
      shared--;
      const held = pulls.held[0];
      if (held === undefined) {
        pulls.grants++;
        pulls.promised++;
        pulls.movedAt = now;
      } else if (this.#start(pulls, held.delivery, held.at, now)) pulls.held.shift();
      else break;
    }
    for (const pool of group.pools) {
      for (const lane of pool.lanes) {
        if (lane.grants === 0) continue;
        lane.pull?.request(lane.grants);
        lane.grants = 0;
      }
    }
  }

  /** Some requests stand where nothing is known to wait. */
  #probe(lane: LanePulls): void {
    const room = lane.pool.roomFor(lane.lane);
    if (room <= 0 || lane.isWaiting || lane.held.length > 0) return;
    const wanted = Math.max(1, Math.min(MOST_PROBES, room >> 2));
    const standing = lane.outstanding - lane.promised;
    if (standing * 2 < wanted || standing === 0) lane.pull?.request(wanted - standing);
  }
}

function isStartable(lane: LanePulls): boolean {
  const { pool } = lane;
  if (lane.held.length === 0 && !lane.isWaiting) return false;
  return pool.roomFor(lane.lane) - pool.promised > 0;
}

/** Bit i: lane i has something to start, and a slot for it. */
function startable(group: Group): number {
  let has = 0;
  for (const pool of group.pools) {
    for (const lane of pool.lanes) if ((has & (1 << lane.lane)) === 0 && isStartable(lane)) has |= 1 << lane.lane;
  }
  return has;
}

/** Bit i: something waits in lane i. */
function lanesWith(group: Group): number {
  let has = 0;
  for (const pool of group.pools) for (const lane of pool.lanes) if (lane.backlog > 0 || lane.held.length > 0) has |= 1 << lane.lane;
  return has;
}

/** Of the pools that have something in this lane, the one whose turn it is. */
function nextOf(group: Group, lane: number): LanePulls | null {
  const { pools } = group;
  const from = group.next[lane] as number;
  for (let i = 0; i < pools.length; i++) {
    const place = (from + i) % pools.length;
    const pulls = (pools[place] as PoolPulls).lanes[lane] as LanePulls;
    if (!isStartable(pulls)) continue;
    group.next[lane] = (place + 1) % pools.length;
    return pulls;
  }
  return null;
}

/** Free slots of all agents of a group, less what is promised. */
function unionRoom(group: Group): number {
  const seen = new Set<object>();
  let room = 0;
  for (const pool of group.pools) {
    room -= pool.promised;
    for (const { slots } of pool.seats) {
      if (seen.has(slots)) continue;
      seen.add(slots);
      room += Math.max(0, slots.free);
    }
  }
  return room;
}

/** Pools whose agents meet, directly or through others, belong together. Turns go on where a pool has had some. */
function groupsOf(pools: readonly PoolPulls[], before: ReadonlyMap<PoolPulls, Group>): Group[] {
  const byAgent = new Map<string, Group>();
  const groups = new Set<Group>();
  for (const pool of pools) {
    const group = new Group(before.get(pool)?.turns ?? new LaneTurns());
    group.pools.push(pool);
    for (const agent of pool.work.agents) {
      const other = byAgent.get(agent);
      if (other === undefined || other === group || !groups.has(other)) continue;
      groups.delete(other);
      group.pools.push(...other.pools);
      for (const each of other.pools) for (const theirs of each.work.agents) byAgent.set(theirs, group);
    }
    for (const agent of pool.work.agents) byAgent.set(agent, group);
    groups.add(group);
  }
  return [...groups];
}
