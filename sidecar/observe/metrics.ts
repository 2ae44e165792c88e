/**
 * Every metric of the sidecar, declared here and nowhere else. The hot path adds to cells that were found once per
 * version or provider; text is made at scrape time. Labels come only from the table, from the closed code table and from
 * fixed words: a name that a caller made up reads `unknown`. What is dear to look at (breakers, the table, the process)
 * is read when somebody scrapes.
 */
import type { Registry } from 'prom-client';
import { Code, CODES } from '../../proto/wire/codes.ts';
import type { Attempt } from '../call/attempt-record.ts';
import type { Call, WayIn } from '../call/call.ts';
import type { BreakerStateName } from '../health/breaker.ts';
import type { Candidate, Capability, Version } from '../table/snapshot.ts';
import { Histogram, Reading, Series } from './series.ts';

/** Combinations of labels a counter or gauge may have; beyond it `other`. */
export const MAX_SERIES = 2_000;
/** A histogram writes some twenty lines a series, so it may have fewer. */
export const MAX_HISTOGRAM_SERIES = 500;

/** Seconds. Sub-millisecond ones first: that is what the sidecar itself costs. */
export const CALL_BOUNDS: readonly number[] = [
  0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60,
];

const WAYS: readonly WayIn[] = ['http', 'mesh', 'proxy', 'json_rpc', 'grpc', 'channel', 'local', 'message', 'sandbox', 'fallback'];
const UNKNOWN = 'unknown';
const OTHER = 'other';

/** What is read at scrape time. */
export interface ScrapeSources {
  readonly table: { readonly version: number; readonly ageMs: number; readonly rejected: number; readonly isStale?: boolean };
  /** Agents that have dialled in. Absent: they cannot. */
  readonly channels?: ChannelReading | null;
  /** Messages for the agents here. null = standalone. */
  readonly work?: WorkReading | null;
  /** Messages that wait on this machine's disk. null = there is no disk for them. */
  readonly outbox?: { readonly pending: number } | null;
  /** Messages from the agents here, by the rules that decided. null = standalone. */
  readonly rules?: RulesReading | null;
  /** null = standalone. */
  readonly registry?: RegistryReading | null;
  /** Issued identities and mutual TLS; absent = there are none. */
  /** What policy refused, and lists in audit let in; absent = nobody counts. */
  readonly policy?: { readonly refused: number; readonly audited: number } | null;
  readonly security?: SecurityReading | null;
  /** Quotas that operators have set at run time; absent or empty = there are none. */
  readonly quotas?: Iterable<QuotaReading> | null;
  /** Operators' emergency rules, by their name and what they do. */
  readonly overrides?: OverridesReading | null;
  readonly breakers: Iterable<{ readonly agentId: string; readonly capability: string; readonly stateName: BreakerStateName }>;
  readonly providers: Iterable<{ readonly agentId: string; readonly inFlight: number; readonly ejectedUntil: number }>;
  /** Whether the table names a provider, or calls to it are under way. Absent: whoever was counted is shown for ever. */
  readonly isKnown?: (agentId: string) => boolean;
}

export interface QuotaReading {
  readonly kind: string;
  readonly target: string;
  readonly taken: number;
  readonly refused: number;
}

export interface OverridesReading {
  /** Those in force now. */
  readonly inForce: readonly { readonly name: string; readonly action: string }[];
  /** Calls and streams that a block has cut. */
  readonly cut: number;
}

export interface SecurityReading {
  readonly identity: { readonly trustedKeys: number; readonly counts: IdentityCounts } | null;
  readonly certificate: { readonly endsAtSec: number } | null;
}

interface IdentityCounts {
  readonly verified: number;
  readonly refused: number;
  readonly homesRefused: number;
  readonly audited: number;
}

export interface WorkReading {
  /** At work here, or waiting here for a slot. */
  readonly inHand: number;
  /** What became of them, by the words of the metric's label. */
  outcomes(): Readonly<Record<string, number>>;
}

export interface RulesReading {
  readonly messages: number;
  /** By the name of the rule. */
  readonly hits: ReadonlyMap<string, number>;
}

export interface ChannelReading {
  /** Connections that are open. */
  readonly size: number;
  /** Of these, such as take calls. */
  readonly serving: number;
  /** Written for agents that have not read it yet. */
  readonly waitingBytes: number;
}

export interface RegistryReading {
  readonly connected: boolean;
  readonly reconnects: number;
  readonly applied_seq: number;
  readonly beacon_ago_ms: number | null;
  readonly counters: {
    readonly deltas: number;
    readonly gaps: number;
    readonly repairs: number;
    readonly comparisons: number;
    readonly epochs: number;
  };
  readonly agents: Readonly<Record<string, number>>;
}

/** Higher is worse, so that `max` over a fleet means something. */
const BREAKER_STATE: Readonly<Record<BreakerStateName, number>> = { closed: 0, ramping: 1, half_open: 2, open: 3 };

/** Cells of one capability and version; -1 = not made yet. */
class CallCells {
  readonly capability: string;
  readonly version: string;
  readonly calls: Int32Array;
  readonly durations: number;
  constructor(capability: string, version: string, durations: number) {
    this.capability = capability;
    this.version = version;
    this.calls = new Int32Array(WAYS.length * CODES.length).fill(-1);
    this.durations = durations;
  }
}

class AttemptCells {
  readonly owner: Metrics;
  readonly attempts: Int32Array;
  readonly durations: number;
  /** Its series have been dropped: the cells are somebody else's. */
  isDropped = false;
  constructor(owner: Metrics, durations: number) {
    this.owner = owner;
    this.attempts = new Int32Array(CODES.length).fill(-1);
    this.durations = durations;
  }
}

/** The Prometheus text format that prom-client writes; a test holds it against the library. */
const CONTENT_TYPE = 'text/plain; version=0.0.4; charset=utf-8';

const CODE_PLACE: ReadonlyMap<number, number> = new Map(CODES.map((entry, at) => [entry.code, at]));
const INTERNAL_PLACE = CODES.length - 1;

export class Metrics {
  /** Every metric, in the order of the page. */
  readonly #all: (Series | Histogram | Reading)[] = [];
  /** Made at the first scrape, so that a sidecar nobody scrapes does not carry it. */
  #registry: Registry | null = null;
  readonly #readings: Reading[] = [];
  readonly #calls = this.#series(
    'counter',
    'reach_calls_total',
    'Calls ended, by canonical capability, version that served, code and way in.',
    ['capability', 'version', 'code', 'way'],
  );
  readonly #callSeconds = this.#histogram('reach_call_duration_seconds', 'From acceptance to the end of the answer.', ['capability']);
  readonly #attempts = this.#series('counter', 'reach_attempts_total', 'Attempts ended, by provider and code.', [
    'capability',
    'provider',
    'code',
  ]);
  readonly #attemptSeconds = this.#histogram('reach_attempt_duration_seconds', 'One attempt, to the end of its answer.', [
    'capability',
    'provider',
  ]);
  readonly #inFlight = this.#series('gauge', 'reach_in_flight', 'Calls under way, by way in.', ['way']);
  readonly #retries = this.#series('counter', 'reach_retries_total', 'Attempts that followed a failed one.', ['capability']);
  readonly #fallbacks = this.#series(
    'counter',
    'reach_fallbacks_total',
    'Calls whose fallback was used: served by another, answered statically, or failed all the same.',
    ['capability', 'result'],
  );
  readonly #panics = this.#series('counter', 'reach_panic_total', 'Calls sent to a provider although none was healthy (panic: true).', [
    'capability',
  ]);
  readonly #transitions = this.#series('counter', 'reach_breaker_transitions_total', 'Changes of a breaker, by the state it went to.', [
    'provider',
    'capability',
    'to',
  ]);
  readonly #refused = this.#series(
    'counter',
    'reach_refused_requests_total',
    'Requests that never became a call: wrong host or origin, bad framing, unknown path, too large.',
    ['reason'],
  );
  readonly #overrideRefusals = this.#series(
    'counter',
    'reach_override_refusals_total',
    'Calls that an override of the operators refused here, by its id and how: blocked, draining, degraded.',
    ['override', 'how'],
  );
  readonly #overridesInForce = this.#reading('gauge', 'reach_overrides_in_force', 'Overrides of the operators in force here, by action.', [
    'action',
  ]);
  readonly #overridesCut = this.#reading(
    'counter',
    'reach_overrides_cut_total',
    'Calls and streams under way that a block with cut has ended.',
    [],
  );
  readonly #submitted = this.#series(
    'counter',
    'reach_messages_submitted_total',
    'Messages that agents here have submitted, by where they became durable, or the code with which they were refused.',
    ['outcome'],
  );
  readonly #ruled = this.#reading(
    'counter',
    'reach_rule_messages_total',
    'Messages that a rule decided, since these rules came into force here; by no rule: "".',
    ['rule'],
  );
  readonly #quotas = this.#reading(
    'counter',
    'reach_quota_requests_total',
    'Calls and messages that a quota of the operators let through here (taken) or refused.',
    ['kind', 'target', 'outcome'],
  );
  readonly #breakers = this.#reading('gauge', 'reach_breaker_state', '0 closed, 1 ramping up, 2 half-open, 3 open.', [
    'provider',
    'capability',
  ]);
  readonly #providerInFlight = this.#reading(
    'gauge',
    'reach_provider_in_flight',
    'Calls under way at a provider, as far as this sidecar sees them.',
    ['provider'],
  );
  readonly #table = this.#reading('gauge', 'reach_table_version', 'Version of the route table in force.', []);
  readonly #tableAge = this.#reading('gauge', 'reach_table_age_seconds', 'Since the table in force was last confirmed.', []);
  readonly #rejected = this.#reading(
    'counter',
    'reach_rejected_pushes_total',
    'Tables that were refused because of a mistake in them.',
    [],
  );
  readonly #stale = this.#reading('gauge', 'reach_table_stale', '1 while the table in force may not be the newest.', []);
  readonly #connected = this.#reading('gauge', 'reach_registry_connected', '1 while there is a connection to NATS.', []);
  readonly #reconnects = this.#reading('counter', 'reach_registry_reconnects_total', 'Connections to NATS after the first one.', []);
  readonly #applied = this.#reading(
    'gauge',
    'reach_registry_applied_sequence',
    'Newest sequence of the registry that is in force here.',
    [],
  );
  readonly #beacon = this.#reading('gauge', 'reach_registry_beacon_age_seconds', 'Since the control plane was last heard.', []);
  readonly #registryEvents = this.#reading(
    'counter',
    'reach_registry_events_total',
    'What came of the registry: deltas taken, gaps seen, subjects repaired, comparisons of everything, epochs begun.',
    ['event'],
  );
  readonly #ownAgents = this.#reading('gauge', 'reach_registered_agents', 'Agents that this sidecar registers, by what became of it.', [
    'state',
  ]);
  readonly #identity = this.#reading(
    'counter',
    'reach_identity_events_total',
    'Tokens and statements that were verified or refused, calls of peers that were not believed, and those let in all the same (identity.mode: audit).',
    ['event'],
  );
  readonly #policy = this.#reading(
    'counter',
    'reach_policy_refusals_total',
    'Calls and messages that policy refused here (who may, overrides, quotas), and those that a list in audit let in although it does not name the caller.',
    ['outcome'],
  );
  readonly #trustedKeys = this.#reading('gauge', 'reach_identity_trusted_keys', 'Keys whose signatures count here.', []);
  readonly #certificate = this.#reading(
    'gauge',
    'reach_mesh_certificate_end_timestamp_seconds',
    "When this sidecar's certificate ends, seconds since 1970.",
    [],
  );
  readonly #outbox = this.#reading(
    'gauge',
    'reach_outbox_messages',
    'Messages of agents here that wait on the disk of this machine until NATS is back.',
    [],
  );
  readonly #messagesInHand = this.#reading(
    'gauge',
    'reach_messages_in_hand',
    'Messages at work at agents here, or waiting here for a slot.',
    [],
  );
  readonly #messages = this.#reading(
    'counter',
    'reach_messages_total',
    'Messages for agents here: hand-overs started, and what became of them. dead_lettered and in_doubt want a person to look.',
    ['outcome'],
  );
  readonly #channels = this.#reading('gauge', 'reach_channels', 'Channels that are open: agents that have dialled in.', []);
  readonly #channelsServing = this.#reading('gauge', 'reach_channels_serving', 'Channels on which an agent takes calls.', []);
  readonly #channelBytes = this.#reading(
    'gauge',
    'reach_channel_waiting_bytes',
    'Bytes that wait for agents which do not read, over all channels.',
    [],
  );
  readonly #cpu = this.#reading('counter', 'process_cpu_seconds_total', 'User and system time of the process.', []);
  readonly #rss = this.#reading('gauge', 'process_resident_memory_bytes', 'Resident memory.', []);
  readonly #heap = this.#reading('gauge', 'process_heap_bytes', 'JavaScript heap in use.', []);
  readonly #uptime = this.#reading('gauge', 'process_uptime_seconds', 'Since the process started.', []);

  readonly #versions = new WeakMap<Version, CallCells>();
  readonly #capabilities = new WeakMap<Capability, CallCells>();
  /** By name and version, so that a pushed table goes on counting in the same cells. */
  readonly #callCells = new Map<string, CallCells>();
  readonly #attemptCells = new Map<string, AttemptCells>();
  /** Of all those for whom there is no room in it; null = there has been room. */
  #others: AttemptCells | null = null;
  /** Providers that were gone at the last scrape. */
  readonly #leaving = new Set<string>();
  readonly #unknown = this.#cellsOf(UNKNOWN, '');
  readonly #wayCells = new Map<string, number>(WAYS.map((way) => [way, this.#inFlight.cell(way)]));

  callStarted(call: Call): void {
    this.#inFlight.add(this.#wayCells.get(call.way) as number, 1);
  }

  callEnded(call: Call, elapsedMs: number): void {
    this.#inFlight.add(this.#wayCells.get(call.way) as number, -1);
    const asked = call.fallbackFrom ?? call.capability;
    const cells = this.#callCellsOf(call, asked);
    const way = WAYS.indexOf(call.way);
    const code = CODE_PLACE.get(call.code) ?? INTERNAL_PLACE;
    const place = way * CODES.length + code;
    let cell = cells.calls[place] as number;
    if (cell < 0) {
      cell = this.#calls.cell(cells.capability, cells.version, String((CODES[code] as (typeof CODES)[number]).code), call.way);
      cells.calls[place] = cell;
    }
    this.#calls.add(cell, 1);
    this.#callSeconds.add(cells.durations, elapsedMs / 1_000);
    if (call.attempts.length > 1) this.#countRetries(call);
    if (call.fallbackFrom !== null) this.#fallbacks.add(this.#fallbacks.cell(call.fallbackFrom.name, fallbackResult(call)), 1);
    if (call.code === Code.blocked_by_operator) this.#countOverride(call);
    if (call.panicked && asked !== null) this.#panics.add(this.#panics.cell(asked.name), 1);
  }

  /** Where the rule itself refused; not where the hosting sidecar did, which counts it. */
  #countOverride({ refusal }: Call): void {
    if (refusal === null || refusal.reason.stage !== 'overrides' || refusal.reason.name === 'cut' || typeof refusal.a !== 'string') return;
    this.#overrideRefusals.add(this.#overrideRefusals.cell(refusal.a, refusal.reason.name), 1);
  }

  attemptEnded(attempt: Attempt): void {
    const { candidate } = attempt;
    const cells = this.#attemptCellsOf(candidate);
    const code = CODE_PLACE.get(attempt.code) ?? INTERNAL_PLACE;
    let cell = cells.attempts[code] as number;
    if (cell < 0) {
      const shown = String((CODES[code] as (typeof CODES)[number]).code);
      cell =
        cells === this.#others
          ? this.#attempts.otherCell()
          : this.#attempts.cell(candidate.version.capability.name, candidate.provider.agentId, shown);
      cells.attempts[code] = cell;
    }
    this.#attempts.add(cell, 1);
    this.#attemptSeconds.add(cells.durations, attempt.elapsedMs / 1_000);
  }

  breakerMoved(agentId: string, capability: string, to: BreakerStateName): void {
    this.#transitions.add(this.#transitions.cell(agentId, capability, to), 1);
  }

  /** `reason` is one of a few fixed words. */
  requestRefused(reason: string): void {
    this.#refused.add(this.#refused.cell(reason), 1);
  }

  /** `outcome` is one of a few fixed words, or the name of a code. */
  messageSubmitted(outcome: string): void {
    this.#submitted.add(this.#submitted.cell(outcome), 1);
  }

  /** Calls under way over all ways in. */
  inFlight(): number {
    let sum = 0;
    for (const cell of this.#wayCells.values()) sum += this.#inFlight.value(cell);
    return sum;
  }

  get contentType(): string {
    return CONTENT_TYPE;
  }

  /** The exposition text; breakers and providers that are no longer known are no longer shown. */
  async render(sources: ScrapeSources): Promise<string> {
    if (sources.isKnown !== undefined) this.#dropGone(sources.isKnown);
    for (const reading of this.#readings) reading.clear();
    for (const breaker of sources.breakers) this.#breakers.set(BREAKER_STATE[breaker.stateName], breaker.agentId, breaker.capability);
    for (const provider of sources.providers) this.#providerInFlight.set(provider.inFlight, provider.agentId);
    this.#table.set(sources.table.version);
    this.#tableAge.set(sources.table.ageMs / 1_000);
    this.#rejected.set(sources.table.rejected);
    this.#stale.set(sources.table.isStale === true ? 1 : 0);
    this.#channels.set(sources.channels?.size ?? 0);
    this.#channelsServing.set(sources.channels?.serving ?? 0);
    this.#channelBytes.set(sources.channels?.waitingBytes ?? 0);
    if (sources.registry != null) this.#readRegistry(sources.registry);
    if (sources.security != null) this.#readSecurity(sources.security);
    if (sources.policy != null) {
      this.#policy.set(sources.policy.refused, 'refused');
      this.#policy.set(sources.policy.audited, 'audited');
    }
    if (sources.overrides != null) this.#readOverrides(sources.overrides);
    if (sources.outbox != null) this.#outbox.set(sources.outbox.pending);
    if (sources.work != null) this.#readWork(sources.work);
    if (sources.rules != null) this.#readRules(sources.rules);
    for (const { kind, target, taken, refused } of sources.quotas ?? []) {
      this.#quotas.set(taken, kind, target, 'taken');
      this.#quotas.set(refused, kind, target, 'refused');
    }
    const { user, system } = process.cpuUsage();
    this.#cpu.set((user + system) / 1_000_000);
    const memory = process.memoryUsage();
    this.#rss.set(memory.rss);
    this.#heap.set(memory.heapUsed);
    this.#uptime.set(process.uptime());
    return (await this.#renderer()).metrics();
  }

  #readRules({ messages, hits }: RulesReading): void {
    let byNone = messages;
    for (const [rule, count] of hits) {
      this.#ruled.set(count, rule);
      byNone -= count;
    }
    this.#ruled.set(byNone, '');
  }

  #readSecurity({ identity, certificate }: SecurityReading): void {
    if (certificate !== null) this.#certificate.set(certificate.endsAtSec);
    if (identity === null) return;
    const { verified, refused, homesRefused, audited } = identity.counts;
    this.#trustedKeys.set(identity.trustedKeys);
    this.#identity.set(verified, 'verified');
    this.#identity.set(refused, 'refused');
    this.#identity.set(homesRefused, 'home_refused');
    this.#identity.set(audited, 'audited');
  }

  #readOverrides({ inForce, cut }: OverridesReading): void {
    const counts: Record<string, Set<string>> = { block: new Set(), drain: new Set(), reroute: new Set(), degrade: new Set() };
    // An agent that is named for either side makes two rules of one override.
    for (const { name, action } of inForce) counts[action]?.add(name);
    for (const action in counts) this.#overridesInForce.set((counts[action] as Set<string>).size, action);
    this.#overridesCut.set(cut);
  }

  #readWork(work: WorkReading): void {
    this.#messagesInHand.set(work.inHand);
    const outcomes = work.outcomes();
    for (const outcome in outcomes) this.#messages.set(outcomes[outcome] as number, outcome);
  }

  #readRegistry({ connected, reconnects, applied_seq, beacon_ago_ms, counters, agents }: RegistryReading): void {
    this.#connected.set(connected ? 1 : 0);
    this.#reconnects.set(reconnects);
    this.#applied.set(applied_seq);
    if (beacon_ago_ms !== null) this.#beacon.set(beacon_ago_ms / 1_000);
    for (const event of ['deltas', 'gaps', 'repairs', 'comparisons', 'epochs'] as const) this.#registryEvents.set(counters[event], event);
    for (const [state, count] of Object.entries(agents)) this.#ownAgents.set(count, state);
  }

  /**
   * What was counted of a provider that is gone is shown once more, so that its last calls are not lost, and then no longer:
   * agents come and go under new names, and the series of the dead would take the place of the living.
   */
  #dropGone(isKnown: (agentId: string) => boolean): void {
    const isGone = ({ provider }: Readonly<Record<string, string>>): boolean =>
      provider !== undefined && this.#leaving.has(provider) && !isKnown(provider);
    for (const metric of [this.#attempts, this.#attemptSeconds, this.#transitions]) metric.drop(isGone);
    for (const [key, cells] of this.#attemptCells) {
      const provider = key.slice(key.indexOf(' ') + 1);
      if (!isGone({ provider })) continue;
      cells.isDropped = true;
      this.#attemptCells.delete(key);
      // There is room again: those who share are looked up anew.
      if (this.#others !== null) this.#others.isDropped = true;
      this.#others = null;
    }
    this.#leaving.clear();
    for (const key of this.#attemptCells.keys()) {
      const provider = key.slice(key.indexOf(' ') + 1);
      if (!isKnown(provider)) this.#leaving.add(provider);
    }
  }

  #countRetries(call: Call): void {
    for (let i = 1; i < call.attempts.length; i++) {
      const capability = (call.attempts[i] as Attempt).candidate.version.capability;
      if (capability === (call.attempts[i - 1] as Attempt).candidate.version.capability)
        this.#retries.add(this.#retries.cell(capability.name), 1);
    }
  }

  #callCellsOf(call: Call, asked: Capability | null): CallCells {
    if (asked === null) return this.#unknown;
    const version = call.chosen === null ? call.lines[call.lineIndex] : call.chosen.version;
    if (version === undefined || version.capability !== asked || call.staticBody !== null) {
      let cells = this.#capabilities.get(asked);
      if (cells === undefined) {
        cells = this.#cellsOf(asked.name, '');
        this.#capabilities.set(asked, cells);
      }
      return cells;
    }
    let cells = this.#versions.get(version);
    if (cells === undefined) {
      cells = this.#cellsOf(asked.name, version.text);
      this.#versions.set(version, cells);
    }
    return cells;
  }

  #cellsOf(capability: string, version: string): CallCells {
    const key = `${capability} ${version}`;
    const known = this.#callCells.get(key);
    if (known !== undefined) return known;
    // The table's history is bounded as well: after this many versions the rest is counted together.
    if (this.#callCells.size >= MAX_SERIES && capability !== OTHER) return this.#cellsOf(OTHER, OTHER);
    const made = new CallCells(capability, version, this.#callSeconds.cell(capability));
    this.#callCells.set(key, made);
    return made;
  }

  #attemptCellsOf(candidate: Candidate): AttemptCells {
    const kept = candidate.counted;
    if (kept instanceof AttemptCells && kept.owner === this && !kept.isDropped) return kept;
    const capability = candidate.version.capability.name;
    const provider = candidate.provider.agentId;
    const key = `${capability} ${provider}`;
    let cells = this.#attemptCells.get(key);
    if (cells === undefined && this.#attemptCells.size < MAX_SERIES) {
      cells = new AttemptCells(this, this.#attemptSeconds.cell(capability, provider));
      this.#attemptCells.set(key, cells);
    }
    // All that have no series of their own share the cells: with thousands of providers each set of cells costs memory.
    cells ??= this.#others ??= new AttemptCells(this, this.#attemptSeconds.otherCell());
    candidate.counted = cells;
    return cells;
  }

  #series(type: 'counter' | 'gauge', name: string, help: string, labels: readonly string[]): Series {
    return this.#registered(new Series(type, name, help, labels, MAX_SERIES));
  }

  #reading(type: 'counter' | 'gauge', name: string, help: string, labels: readonly string[]): Reading {
    const reading = this.#registered(new Reading(type, name, help, labels, MAX_SERIES));
    this.#readings.push(reading);
    return reading;
  }

  #histogram(name: string, help: string, labels: readonly string[]): Histogram {
    return this.#registered(new Histogram(name, help, labels, CALL_BOUNDS, MAX_HISTOGRAM_SERIES));
  }

  #registered<T extends Series | Histogram | Reading>(metric: T): T {
    this.#all.push(metric);
    return metric;
  }

  async #renderer(): Promise<Registry> {
    if (this.#registry !== null) return this.#registry;
    // CommonJS, whose names stand under `default` alone when it is bundled.
    const { default: client } = await import('prom-client');
    const registry = new client.Registry();
    // The Registry asks a metric for its name and for `get`; its type names the four classes of its own.
    for (const metric of this.#all) registry.registerMetric(metric as unknown as Parameters<Registry['registerMetric']>[0]);
    this.#registry ??= registry;
    return this.#registry;
  }
}

function fallbackResult(call: Call): string {
  if (call.code !== 0) return 'failed';
  return call.staticBody === null ? 'served' : 'static';
}
