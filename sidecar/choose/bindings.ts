/**
 * Which agents hold which conversation. A key is bound to agents, not to one capability's providers: whoever took its
 * first call takes its other calls too, as far as it offers what they ask. A conversation that needs several agents
 * (an analyst for one thing, the order desk for another) has them all in its list, in the order in which they came.
 *
 * Bounded in number and in idle time; a key that was pushed out hashes to the same owner as long as the providers are
 * the same. Whether an agent that is bound is still the one that is registered, `affinity.ts` asks.
 */
import { createHash } from 'node:crypto';
import { LRUCache } from 'lru-cache';
import type { Clock } from '../../base/clock.ts';

/** Longer keys are kept as a digest: what a caller sends must not decide how much memory we use. */
const LONGEST_KEPT = 128;
/** Agents remembered for one key; the oldest goes first. */
const AGENTS_MAX = 16;

export interface BindingLimits {
  /** Keys remembered at most; about 300 bytes each. */
  readonly maxEntries: number;
  /** Forgotten after this long without a call. */
  readonly ttlMs: number;
}

/** As far as this memory needs to know an agent. */
export interface Bound {
  readonly agentId: string;
}

export class Bindings<Agent extends Bound = Bound> {
  #kept: LRUCache<string, Agent[]> | null = null;
  readonly #clock: Clock;
  readonly #limits: BindingLimits;

  constructor(clock: Clock, limits: BindingLimits) {
    this.#clock = clock;
    this.#limits = limits;
  }

  get size(): number {
    return this.#kept?.size ?? 0;
  }

  /** The agents bound to a key, oldest first. `peek` leaves no trace of having asked. */
  of(key: string, peek: boolean): readonly Agent[] | undefined {
    if (this.#kept === null) return undefined;
    return peek ? this.#kept.peek(storable(key)) : this.#kept.get(storable(key));
  }

  /** @param over the agent that it takes the conversation over from: it stands before that one from now on. */
  bind(key: string, agent: Agent, over: string | null = null): void {
    if (this.#limits.maxEntries < 1) return;
    this.#kept ??= this.#make();
    const stored = storable(key);
    const agents = this.#kept.get(stored);
    if (agents === undefined) {
      this.#kept.set(stored, [agent]);
      return;
    }
    const at = placeOf(agents, agent.agentId);
    if (at >= 0 && over === null) return;
    if (at >= 0) agents.splice(at, 1);
    else if (agents.length >= AGENTS_MAX) agents.shift();
    const before = over === null ? -1 : placeOf(agents, over);
    if (before < 0) agents.push(agent);
    else agents.splice(before, 0, agent);
  }

  /** The agent is gone for good as far as this key is concerned: when it comes back, the key does not go back to it. */
  unbind(key: string, agentId: string): void {
    const agents = this.#kept?.get(storable(key));
    const at = agents === undefined ? -1 : placeOf(agents, agentId);
    if (at >= 0) (agents as Agent[]).splice(at, 1);
  }

  #make(): LRUCache<string, Agent[]> {
    return new LRUCache({
      max: this.#limits.maxEntries,
      ttl: this.#limits.ttlMs,
      updateAgeOnGet: true,
      // Resolution 0: no timer of the cache's own. It takes an entry that was made at 0 for one that never ages.
      ttlResolution: 0,
      perf: { now: () => this.#clock.now() + 1 },
    });
  }
}

function placeOf(agents: readonly Bound[], agentId: string): number {
  return agents.findIndex((one) => one.agentId === agentId);
}

function storable(key: string): string {
  return key.length <= LONGEST_KEPT ? key : createHash('sha256').update(key).digest('base64url');
}
