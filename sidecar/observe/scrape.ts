/** What is read when somebody scrapes: what is dear to look at (breakers, the table, the process) is counted nowhere else. */
import type { BreakerStateName } from '../health/breaker.ts';
import { SIDECAR_METRICS as METRICS } from './declared-metrics.ts';
import type { MetricPage } from './metric-page.ts';

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
  /** How much is told of what is seen here; absent = nobody counts. */
  readonly seen?: SeenReading | null;
  /** Operators' emergency rules, by their name and what they do. */
  readonly overrides?: OverridesReading | null;
  readonly breakers: Iterable<{ readonly agentId: string; readonly capability: string; readonly stateName: BreakerStateName }>;
  readonly providers: Iterable<{ readonly agentId: string; readonly inFlight: number; readonly ejectedUntil: number }>;
  /** Whether the table names a provider, or calls to it are under way. Absent: whoever was counted is shown for ever. */
  readonly isKnown?: (agentId: string) => boolean;
}

export interface SeenReading {
  /** null = standalone. */
  readonly digests: { readonly sent: number; readonly dropped: number } | null;
  /** By what became of them; null = no traces are made. */
  readonly spans: Readonly<Record<string, number>> | null;
  /** By what became of them; null = nothing is recorded. */
  readonly recorded: Readonly<Record<string, number>> | null;
  readonly accessLines: number;
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

/** Puts onto the page what there is now. */
export function readSources(page: MetricPage, sources: ScrapeSources): void {
  const { table, channels, registry, security, policy, overrides, outbox, work, rules, quotas, seen } = sources;
  for (const breaker of sources.breakers) page.set(METRICS.breakers, BREAKER_STATE[breaker.stateName], breaker.agentId, breaker.capability);
  for (const provider of sources.providers) page.set(METRICS.providerInFlight, provider.inFlight, provider.agentId);
  page.set(METRICS.table, table.version);
  page.set(METRICS.tableAge, table.ageMs / 1_000);
  page.set(METRICS.rejected, table.rejected);
  page.set(METRICS.stale, table.isStale === true ? 1 : 0);
  page.set(METRICS.channels, channels?.size ?? 0);
  page.set(METRICS.channelsServing, channels?.serving ?? 0);
  page.set(METRICS.channelBytes, channels?.waitingBytes ?? 0);
  if (registry != null) readRegistry(page, registry);
  if (security != null) readSecurity(page, security);
  if (policy != null) {
    page.set(METRICS.policy, policy.refused, 'refused');
    page.set(METRICS.policy, policy.audited, 'audited');
  }
  if (overrides != null) readOverrides(page, overrides);
  if (outbox != null) page.set(METRICS.outbox, outbox.pending);
  if (work != null) readWork(page, work);
  if (rules != null) readRules(page, rules);
  for (const { kind, target, taken, refused } of quotas ?? []) {
    page.set(METRICS.quotas, taken, kind, target, 'taken');
    page.set(METRICS.quotas, refused, kind, target, 'refused');
  }
  if (seen != null) readSeen(page, seen);
  readProcess(page);
}

function readSeen(page: MetricPage, { digests, spans, recorded, accessLines }: SeenReading): void {
  if (digests != null) {
    page.set(METRICS.digests, digests.sent, 'sent');
    page.set(METRICS.digests, digests.dropped, 'dropped');
  }
  for (const [outcome, count] of Object.entries(spans ?? {})) page.set(METRICS.spans, count, outcome);
  for (const [outcome, count] of Object.entries(recorded ?? {})) page.set(METRICS.recorded, count, outcome);
  page.set(METRICS.accessLines, accessLines);
}

function readProcess(page: MetricPage): void {
  const { user, system } = process.cpuUsage();
  page.set(METRICS.cpu, (user + system) / 1_000_000);
  const memory = process.memoryUsage();
  page.set(METRICS.rss, memory.rss);
  page.set(METRICS.heap, memory.heapUsed);
  page.set(METRICS.uptime, process.uptime());
}

function readRules(page: MetricPage, { messages, hits }: RulesReading): void {
  let byNone = messages;
  for (const [rule, count] of hits) {
    page.set(METRICS.ruled, count, rule);
    byNone -= count;
  }
  page.set(METRICS.ruled, byNone, '');
}

function readSecurity(page: MetricPage, { identity, certificate }: SecurityReading): void {
  if (certificate !== null) page.set(METRICS.certificate, certificate.endsAtSec);
  if (identity === null) return;
  const { verified, refused, homesRefused, audited } = identity.counts;
  page.set(METRICS.trustedKeys, identity.trustedKeys);
  page.set(METRICS.identity, verified, 'verified');
  page.set(METRICS.identity, refused, 'refused');
  page.set(METRICS.identity, homesRefused, 'home_refused');
  page.set(METRICS.identity, audited, 'audited');
}

function readOverrides(page: MetricPage, { inForce, cut }: OverridesReading): void {
  const counts: Record<string, Set<string>> = { block: new Set(), drain: new Set(), reroute: new Set(), degrade: new Set() };
  // An agent that is named for either side makes two rules of one override.
  for (const { name, action } of inForce) counts[action]?.add(name);
  for (const action in counts) page.set(METRICS.overridesInForce, (counts[action] as Set<string>).size, action);
  page.set(METRICS.overridesCut, cut);
}

function readWork(page: MetricPage, work: WorkReading): void {
  page.set(METRICS.messagesInHand, work.inHand);
  const outcomes = work.outcomes();
  for (const outcome in outcomes) page.set(METRICS.messages, outcomes[outcome] as number, outcome);
}

function readRegistry(page: MetricPage, { connected, reconnects, applied_seq, beacon_ago_ms, counters, agents }: RegistryReading): void {
  page.set(METRICS.connected, connected ? 1 : 0);
  page.set(METRICS.reconnects, reconnects);
  page.set(METRICS.applied, applied_seq);
  if (beacon_ago_ms !== null) page.set(METRICS.beacon, beacon_ago_ms / 1_000);
  for (const event of ['deltas', 'gaps', 'repairs', 'comparisons', 'epochs'] as const)
    page.set(METRICS.registryEvents, counters[event], event);
  for (const [state, count] of Object.entries(agents)) page.set(METRICS.ownAgents, count, state);
}
