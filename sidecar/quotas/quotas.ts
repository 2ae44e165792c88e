/**
 * Quotas set at run time: how much an agent may ask for, counted here, at its own sidecar, once a call whatever its
 * retries; how much a capability is asked for in all, counted at the callers' sidecars in shares; how much a provider is
 * asked for, counted at the sidecar that hosts it (all calls to it pass there), of one without a sidecar in shares as well.
 * Where a capability or provider is short, callers share alike (`fair-bucket.ts`).
 *
 * No call waits: one that is over is refused with 3004 and the time after which it may come again; nothing of it was
 * started. While there are no quotas `isOn` is false, and nothing here is called.
 */
import type { Clock, Timer } from '../../base/clock.ts';
import { Code } from '../../proto/wire/codes.ts';
import {
  MAX_DEMANDS,
  type Quota,
  type QuotaDemand,
  type QuotaHits,
  type QuotaRate,
  quotaKey,
  type Shares,
} from '../../proto/wire/quotas.ts';
import type { Call } from '../call/call.ts';
import type { Principal } from '../call/principal.ts';
import { passing, refusing, Verdict } from '../call/verdict.ts';
import type { Candidate, Capability } from '../table/snapshot.ts';
import { AgentMeter } from './agent-meter.ts';
import { FairBucket } from './fair-bucket.ts';
import { type Limit, QuotaSet, type Tally } from './quota-set.ts';

const within = passing('quotas', 'agent_within', 'quota {a}: {b} calls left of {c} at once');
const withinShared = passing('quotas', 'capability_within', 'quota {a}: {b} calls a second here, shared by {c} callers');
const agentTold = passing('quotas', 'agent', 'quota {a} of the caller: {b} calls left of {c} at once');
const capabilityTold = passing('quotas', 'capability', 'quota {a} of the capability: {b} of {c} calls a second are counted here');
const agentRate = refusing('quotas', 'agent_rate', Code.rate_limited, 'quota {a}: {b} calls a second, {c} at once, are used up');
const agentInFlight = refusing('quotas', 'agent_in_flight', Code.rate_limited, 'quota {a}: {b} calls are in flight, which is all');
const capabilityRate = refusing(
  'quotas',
  'capability_rate',
  Code.rate_limited,
  'quota {a}: its {b} calls a second are used up; {c} callers share them here',
);

/** Agents that are metered; idle ones are forgotten above this. */
const MAX_METERS = 20_000;
const MAX_SHARED = 4_000;
/** Between two looks through all of them. */
const SWEEP_MS = 1_000;
/** When to come again to something that is full of calls in flight. */
const FULL_MS = 500;
/** Quotas whose counts one report tells. */
const MAX_TOLD = 200;

/** A capability or provider whose rate several callers share. */
class Shared {
  readonly kind: 'capability' | 'provider';
  readonly name: string;
  readonly isExact: boolean;
  revision = -1;
  limit: Limit<QuotaRate> | null = null;
  most: Limit<number> | null = null;
  bucket: FairBucket | null = null;
  constructor(kind: 'capability' | 'provider', name: string, isExact: boolean) {
    this.kind = kind;
    this.name = name;
    this.isExact = isExact;
  }
}

/** A refusal by a provider's quota, for the attempt that was not made. */
export interface Short {
  readonly words: string;
  readonly retryAfterMs: number;
}

export class Quotas {
  readonly #clock: Clock;
  readonly #self: string;
  #all: readonly Quota[] = [];
  #set: QuotaSet | null = null;
  #revision = 0;
  #since = 0;
  #shares: Shares | null = null;
  #expiry: Timer | null = null;
  #demandAt: number;
  #sweptAt = Number.NEGATIVE_INFINITY;
  #hasNews = false;
  /** Called when something that is shared out was asked for, the first time since `demand`. */
  onNews: () => void = () => undefined;
  readonly #tallies = new Map<string, Tally>();
  readonly #meters = new Map<string, AgentMeter>();
  readonly #capabilities = new Map<string, Shared>();
  readonly #providers = new Map<string, Shared>();

  /** @param self the sidecar's name, by which its shares are told */
  constructor(clock: Clock, self: string) {
    this.#clock = clock;
    this.#self = self;
    this.#demandAt = clock.now();
  }

  /** False = there are none. */
  get isOn(): boolean {
    return this.#set !== null;
  }

  /** Goes up with every change. */
  get revision(): number {
    return this.#revision;
  }

  /** `clock.now()` of the last change. */
  get since(): number {
    return this.#since;
  }

  /** Everything that was pushed, in force from now on. */
  replace(quotas: readonly Quota[]): void {
    this.#all = quotas;
    this.#renew();
  }

  /** The leader has shared out anew what is counted at several sidecars. */
  share(shares: Shares): void {
    this.#shares = shares;
    const now = this.#clock.now();
    for (const shared of [...this.#capabilities.values(), ...this.#providers.values()])
      if (!shared.isExact && shared.limit !== null && shared.bucket !== null) {
        const { perSec, burst } = this.#here(shared, shared.limit.value);
        shared.bucket.change(perSec, burst, now);
      }
  }

  /** The caller's own quota. Null = it has none. */
  agent(call: Call): Verdict | null {
    const set = this.#set;
    if (set === null || !set.has('agent')) return null;
    const now = this.#clock.now();
    const meter = this.#meterOf((call.principal as Principal).agent, set, now);
    const { calls, most, bucket } = meter;
    if (calls === null && most === null) return null;
    call.quota = meter;
    if (most !== null && meter.inFlight >= most.value) {
      most.tally.refused++;
      call.retryAfterMs = FULL_MS;
      return new Verdict(agentInFlight, most.key, most.value);
    }
    if (calls !== null && bucket !== null && !bucket.take(now)) {
      calls.tally.refused++;
      call.retryAfterMs = bucket.waitMs(now);
      return new Verdict(agentRate, calls.key, calls.value.perSec, calls.value.burst);
    }
    meter.inFlight++;
    call.quotaHeld = true;
    if (calls !== null) calls.tally.taken++;
    else if (most !== null) most.tally.taken++;
    return calls === null || bucket === null
      ? new Verdict(within, most?.key ?? null, (most?.value ?? 0) - meter.inFlight, most?.value ?? null)
      : new Verdict(within, calls.key, Math.floor(bucket.tokens), calls.value.burst);
  }

  /** What is asked of the capability in all. Null = it has no quota. */
  capability(call: Call): Verdict | null {
    const set = this.#set;
    if (set === null || !set.has('capability')) return null;
    const now = this.#clock.now();
    const shared = this.#sharedOf('capability', (call.capability as Capability).name, false, set, now);
    const { limit, bucket } = shared;
    if (limit === null || bucket === null) return null;
    const { agent } = call.principal as Principal;
    this.#asked();
    if (bucket.take(agent, now)) {
      limit.tally.taken++;
      return new Verdict(withinShared, limit.key, bucket.perSec, bucket.callers);
    }
    limit.tally.refused++;
    call.retryAfterMs = bucket.waitMs(agent, now);
    return new Verdict(capabilityRate, limit.key, limit.value.perSec, bucket.callers);
  }

  /** Which quotas a call would come under; nothing is taken. */
  explain(call: Call): Verdict[] {
    const set = this.#set;
    if (set === null) return [];
    const told: Verdict[] = [];
    const now = this.#clock.now();
    const { agent } = call.principal as Principal;
    const { name } = call.capability as Capability;
    if (set.calls('agent', agent) !== null) {
      const { calls, bucket } = this.#meterOf(agent, set, now);
      bucket?.fill(now);
      told.push(new Verdict(agentTold, calls?.key ?? null, Math.floor(bucket?.tokens ?? 0), bucket?.burst ?? 0));
    }
    if (set.calls('capability', name) !== null) {
      const { limit, bucket } = this.#sharedOf('capability', name, false, set, now);
      told.push(new Verdict(capabilityTold, limit?.key ?? null, bucket?.perSec ?? 0, limit?.value.perSec ?? 0));
    }
    return told;
  }

  /** What is asked of a provider that this sidecar reaches itself; null = it may be asked. To be called once an attempt. */
  provider(call: Call, { provider }: Candidate): Short | null {
    const set = this.#set;
    if (set === null || !set.has('provider')) return null;
    const now = this.#clock.now();
    const shared = this.#sharedOf('provider', provider.agentId, provider.reach === 'self', set, now);
    const { limit, most, bucket } = shared;
    if (most !== null && provider.health.inFlight >= most.value) {
      most.tally.refused++;
      return { words: `quota ${most.key}: ${most.value} calls are in flight there, which is all`, retryAfterMs: FULL_MS };
    }
    if (limit !== null && bucket !== null) {
      const { agent } = call.principal as Principal;
      if (!shared.isExact) this.#asked();
      if (!bucket.take(agent, now)) {
        limit.tally.refused++;
        const words = `quota ${limit.key}: its ${limit.value.perSec} calls a second are used up; ${bucket.callers} callers share them`;
        return { words, retryAfterMs: bucket.waitMs(agent, now) };
      }
      limit.tally.taken++;
    } else if (most !== null) most.tally.taken++;
    return null;
  }

  /** How many messages an agent may submit, where a quota says so; null = as its sidecar's settings say. */
  messages(agent: string): Limit<QuotaRate> | null {
    return this.#set === null ? null : this.#set.messages(agent);
  }

  /** Counts by quota. */
  get tallies(): Iterable<Tally> {
    return this.#tallies.values();
  }

  hits(): Readonly<Record<string, QuotaHits>> {
    const used = [...this.#tallies].filter(([, { taken, refused }]) => taken + refused > 0);
    used.sort(([, a], [, b]) => b.refused - a.refused || b.taken - a.taken);
    return Object.fromEntries(used.slice(0, MAX_TOLD).map(([key, { taken, refused }]) => [key, { taken, refused }]));
  }

  /** What was asked since the last time of things whose rate is shared out, in calls a second. */
  demand(): QuotaDemand[] {
    this.#hasNews = false;
    const now = this.#clock.now();
    const seconds = Math.max(0.001, (now - this.#demandAt) / 1_000);
    this.#demandAt = now;
    const demand: QuotaDemand[] = [];
    for (const { kind, name, bucket, isExact } of [...this.#capabilities.values(), ...this.#providers.values()]) {
      if (bucket === null || isExact) continue;
      const asked = bucket.demand();
      if (asked.length > 0) demand.push({ kind, name, asked: asked.map((calls) => Math.round((calls / seconds) * 100) / 100) });
    }
    const weight = ({ asked }: QuotaDemand): number => asked.reduce((sum, one) => sum + one, 0);
    return demand.length <= MAX_DEMANDS ? demand : demand.sort((a, b) => weight(b) - weight(a)).slice(0, MAX_DEMANDS);
  }

  /** Meters and buckets that are kept. */
  get size(): number {
    return this.#meters.size + this.#capabilities.size + this.#providers.size;
  }

  stop(): void {
    this.#expiry?.cancel();
    this.#expiry = null;
  }

  /** Those that are over fall away by themselves. */
  #renew(): void {
    this.#expiry?.cancel();
    this.#expiry = null;
    const wallMs = this.#clock.wallMs();
    const inForce = this.#all.filter(({ expiresAtMs }) => expiresAtMs === null || expiresAtMs > wallMs);
    const next = Math.min(...inForce.map(({ expiresAtMs }) => expiresAtMs ?? Number.POSITIVE_INFINITY));
    if (Number.isFinite(next)) this.#expiry = this.#clock.after(next - wallMs + 1, () => this.#renew());
    this.#revision++;
    this.#since = this.#clock.now();
    const set = new QuotaSet(inForce, this.#tallies);
    this.#set = inForce.length === 0 ? null : set;
    if (this.#set !== null) return;
    // Calls in flight keep their meter and give it back; whoever has nothing in flight needs none.
    for (const [agent, meter] of this.#meters) if (meter.inFlight === 0) this.#meters.delete(agent);
    this.#capabilities.clear();
    this.#providers.clear();
  }

  #asked(): void {
    if (this.#hasNews) return;
    this.#hasNews = true;
    this.onNews();
  }

  #meterOf(agent: string, set: QuotaSet, now: number): AgentMeter {
    let meter = this.#meters.get(agent);
    if (meter === undefined) {
      if (this.#meters.size >= MAX_METERS) this.#makeRoom(now);
      meter = new AgentMeter(agent);
      this.#meters.set(agent, meter);
    }
    if (meter.revision !== this.#revision) meter.follow(set, this.#revision, this.#since, now);
    return meter;
  }

  /** Those that have nothing to remember go; when all have, the oldest that has nothing in flight. */
  #makeRoom(now: number): void {
    if (now - this.#sweptAt >= SWEEP_MS) {
      this.#sweptAt = now;
      for (const [agent, meter] of this.#meters) if (meter.isIdle(now)) this.#meters.delete(agent);
      if (this.#meters.size < MAX_METERS) return;
    }
    for (const [agent, meter] of this.#meters)
      if (meter.inFlight === 0) {
        this.#meters.delete(agent);
        return;
      }
  }

  #sharedOf(kind: 'capability' | 'provider', name: string, isExact: boolean, set: QuotaSet, now: number): Shared {
    const all = kind === 'capability' ? this.#capabilities : this.#providers;
    let shared = all.get(name);
    if (shared === undefined || shared.isExact !== isExact) {
      if (all.size >= MAX_SHARED) for (const [each, one] of all) if (one.bucket === null || one.bucket.isIdle(now)) all.delete(each);
      shared = new Shared(kind, name, isExact);
      all.set(name, shared);
    }
    if (shared.revision === this.#revision) return shared;
    shared.revision = this.#revision;
    shared.limit = set.calls(kind, name);
    shared.most = set.inFlight(kind, name);
    if (shared.limit === null) shared.bucket = null;
    else {
      const { perSec, burst } = this.#here(shared, shared.limit.value);
      if (shared.bucket === null) shared.bucket = new FairBucket(perSec, burst, now);
      else shared.bucket.change(perSec, burst, this.#since);
    }
    return shared;
  }

  /** What this sidecar may let through: all of it where all calls pass, and until the leader has said otherwise. */
  #here({ kind, name, isExact }: Shared, { perSec, burst }: QuotaRate): QuotaRate {
    const shares = this.#shares;
    if (isExact || shares === null) return { perSec, burst };
    const told = shares.shares[quotaKey(kind, name)] ?? shares;
    const own = 'of' in told ? told.of[this.#self] : undefined;
    const rest = own ?? told.rest;
    return { perSec: Math.max(perSec * rest, MIN_PER_SEC), burst: Math.max(1, burst * (own ?? told.burst)) };
  }
}

/** A share is never nothing: without a call let through now and then, nothing would be known of who asks. */
const MIN_PER_SEC = 0.01;
