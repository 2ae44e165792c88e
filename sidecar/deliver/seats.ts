/**
 * Who of the agents here may take a message of a pool, and how many. A slot is the agent's, not the pool's: calls, the messages
 * of every pool and work that goes on after a 202 all count. Who is not fit (breaker, drain, an operator's rule, not dialled in)
 * has no seat until it is, and who has asked for a pause (429) none until that is over: else it would draw messages, since it
 * refuses faster than others work. What waits meanwhile waits in the queue, where others can take it.
 */
import { coversAgent, coversName } from '../../proto/language/covers.ts';
import type { Override } from '../../proto/language/types.ts';
import type { WorkPool } from '../../proto/wire/messages.ts';
import type { ProviderHealth } from '../health/provider.ts';
import type { Candidate, Snapshot } from '../table/snapshot.ts';
import type { DeliverSettings } from './settings.ts';
import type { Memory } from './tries.ts';

/** Where nobody has said how much an agent may have: what waits in the queue can still go to another one. */
const WHERE_UNLIMITED = 16;

/** The slots of one agent. */
export class AgentSlots {
  readonly agentId: string;
  health: ProviderHealth;
  /** Messages given to it whose call has not begun: they are claimed first. */
  assigned = 0;
  /** Work that it goes on with after a 202. */
  goingOn = 0;
  readonly #concurrency: number | null;

  constructor(agentId: string, health: ProviderHealth, concurrency: number | null) {
    this.agentId = agentId;
    this.health = health;
    this.#concurrency = concurrency;
  }

  get limit(): number {
    const calls = this.health.limit === Number.POSITIVE_INFINITY ? WHERE_UNLIMITED : this.health.limit;
    return this.#concurrency === null ? calls : Math.min(calls, this.#concurrency);
  }

  get free(): number {
    return this.limit - this.health.inFlight - this.assigned - this.goingOn;
  }

  /** Of so many that are to be kept for the high lane: one is left to the others, whose messages would never end else. */
  kept(wanted: number): number {
    return wanted === 0 ? 0 : Math.max(0, Math.min(wanted, this.limit - 1));
  }
}

/** Slots are kept while pools and tables change. */
export class AllSlots {
  readonly #settings: DeliverSettings;
  readonly #byAgent = new Map<string, AgentSlots>();

  constructor(settings: DeliverSettings) {
    this.#settings = settings;
  }

  of(agentId: string, health: ProviderHealth): AgentSlots {
    let slots = this.#byAgent.get(agentId);
    if (slots === undefined) {
      slots = new AgentSlots(agentId, health, this.#settings.concurrency);
      this.#byAgent.set(agentId, slots);
    }
    slots.health = health;
    return slots;
  }

  /** Drops those that nobody names any more and that have nothing in hand. */
  keepOnly(agents: ReadonlySet<string>): void {
    for (const [agentId, { assigned, goingOn }] of this.#byAgent)
      if (!agents.has(agentId) && assigned === 0 && goingOn === 0) this.#byAgent.delete(agentId);
  }
}

/** One agent in one pool. */
export class Seat {
  readonly slots: AgentSlots;
  readonly candidate: Candidate;
  constructor(slots: AgentSlots, candidate: Candidate) {
    this.slots = slots;
    this.candidate = candidate;
  }
}

const NONE: readonly Seat[] = Object.freeze([]);

/** The seats of a pool by this table: agents hosted here that offer its capability, in its version or their newest one. */
export function seatsOf({ pool, agents }: WorkPool, table: Snapshot, all: AllSlots): readonly Seat[] {
  const capability = table.capabilities.get(pool.capability);
  if (capability === undefined) return NONE;
  const seats: Seat[] = [];
  for (const agentId of agents) {
    for (const line of capability.versions) {
      if (pool.version !== null && line.text !== pool.version) continue;
      const candidate = line.candidates[line.placeOf(agentId)];
      if (candidate === undefined || candidate.provider.reach !== 'self') continue;
      seats.push(new Seat(all.of(agentId, candidate.provider.health), candidate));
      break;
    }
  }
  return seats;
}

/** Messages that it may be given now, of a lane that may (or may not) use the reserve. */
export function roomAt(seat: Seat, table: Snapshot, now: number, wallMs: number, reserved: number): number {
  const free = seat.slots.free - seat.slots.kept(reserved);
  if (free <= 0) return 0;
  const { candidate } = seat;
  if (candidate.drain || candidate.weight <= 0) return 0;
  const usable = candidate.health.usable(now);
  if ((usable !== 'yes' && usable !== 'probe') || candidate.health.pausedUntil > now) return 0;
  if (table.overrides.length !== 0 && heldBy(candidate, null, table, wallMs) !== null) return 0;
  return usable === 'probe' ? Math.min(free, 1) : free;
}

/**
 * The operator's rule that keeps messages from it (block, drain, degrade), null = none. Without a sender, only rules for everybody count; the others are
 * looked at for each message.
 */
export function heldBy(candidate: Candidate, sender: string | null, table: Snapshot, wallMs: number): Override | null {
  for (const rule of table.overrides) {
    // What is queued for one that is rerouted was accepted before: it is still this one's to do, unless the rule is about a provider.
    if (rule.action === 'reroute' && rule.provider === null) continue;
    if (rule.expiresAtMs !== null && rule.expiresAtMs <= wallMs) continue;
    if (rule.caller !== null && (sender === null || !coversAgent(rule.caller, sender))) continue;
    if (!coversName(rule.capability, candidate.version.capability.name)) continue;
    if (rule.provider === null || coversAgent(rule.provider, candidate.provider.agentId)) return rule;
  }
  return null;
}

/** Above so many only a few are looked at for each message. */
const LOOK_AT = 16;

/**
 * The freest seat, -1 when there is none. A message that comes again goes to whoever has sent it away least often.
 * @param from where to begin to look: another place each time. @param memory null = it was not here before
 */
export function freest(
  seats: readonly Seat[],
  from: number,
  table: Snapshot,
  now: number,
  wallMs: number,
  reserved: number,
  memory: Memory | null,
): number {
  let best = -1;
  let bestRoom = 0;
  let bestTimes = 0;
  const count = seats.length;
  for (let i = 0; i < count; i++) {
    if (i >= LOOK_AT && best >= 0 && bestTimes === 0) break;
    const place = (from + i) % count;
    const seat = seats[place] as Seat;
    const room = roomAt(seat, table, now, wallMs, reserved);
    if (room <= 0) continue;
    const times = memory === null ? 0 : memory.timesAt(seat.slots.agentId);
    if (best < 0 || times < bestTimes || (times === bestTimes && room > bestRoom)) {
      best = place;
      bestRoom = room;
      bestTimes = times;
    }
  }
  return best;
}
