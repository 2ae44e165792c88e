/**
 * What the API answers, as far as the page reads it. The routes have shapes of their own (control-plane/api); that theirs fit
 * these is checked where the tests are compiled, so that the page is type-checked without the whole control plane.
 */
import type { Span } from '../../proto/wire/spans.ts';

export interface Session {
  readonly name: string;
  readonly role: 'viewer' | 'operator';
  /** What changes have to carry. */
  readonly csrf: string;
  readonly until_ms: number;
  readonly env: string;
  readonly replica: string;
  readonly version: string;
}

export interface SessionEnded {
  /** False: the others still take the cookie, until they are told. */
  readonly on_all_replicas: boolean;
  readonly why: string | null;
}

export interface Overview {
  readonly at_ms: number;
  /** What this replica cannot know, in words. */
  readonly unknown: readonly string[];
  readonly problems: readonly ProblemShown[];
  readonly problems_total: number;
  readonly totals: {
    readonly calls_per_s: number;
    readonly error_share: number;
    readonly p95_ms: number | null;
    readonly agents: number;
    readonly agents_offline: number;
    readonly capabilities: number;
    readonly sidecars: { readonly current: number; readonly behind: number; readonly stale: number; readonly missing: number };
    readonly messages: MessageTotals;
  };
  readonly capabilities: readonly CapabilityRow[];
}

/** null = this replica cannot know. */
export interface MessageTotals {
  readonly waiting: number | null;
  /** Pools that nobody works on. */
  readonly parked: number | null;
  readonly dead: number | null;
  readonly in_doubt: number | null;
  readonly review: number | null;
}

export interface ProblemShown {
  readonly severity: 'critical' | 'warning' | 'info';
  readonly kind: string;
  readonly words: string;
  readonly capability: string | null;
  readonly agent: string | null;
  readonly sidecar: string | null;
  readonly trace_id: string | null;
  readonly since_ms: number | null;
}

export interface CapabilityRow {
  readonly capability: string;
  readonly calls_per_s: number;
  readonly error_share: number;
  readonly p50_ms: number | null;
  readonly p95_ms: number | null;
  readonly p99_ms: number | null;
  readonly providers: number;
  readonly offline: number;
  readonly breakers_open: number;
  /** Calls per minute, the oldest first. */
  readonly spark: readonly number[];
}

export interface Topology {
  readonly edges: readonly Edge[];
  readonly cycles: readonly (readonly string[])[];
  readonly cut: boolean;
}

export interface Edge {
  readonly caller: string;
  readonly capability: string;
  readonly version: string;
  readonly provider: string;
  readonly calls_per_s: number;
  readonly error_share: number;
  readonly p50_ms: number | null;
  readonly p95_ms: number | null;
  readonly examples: readonly Example[];
}

export interface Example {
  readonly trace_id: string;
  readonly code: number;
  readonly elapsed_ms: number;
}

export interface TraceRow {
  readonly trace_id: string;
  readonly start_ms: number;
  readonly elapsed_ms: number;
  readonly capability: string;
  readonly caller: string;
  readonly code: number;
  readonly spans: number;
  readonly failed: boolean;
}

export interface TracesAnswer {
  readonly traces: readonly TraceRow[];
}

export interface TraceSpan extends Span {
  readonly sidecar: string;
  readonly depth: number;
  /** Where it is drawn: `start_ms`, put right where clocks differ. */
  readonly shown_start_ms: number;
  /** Of its time, what nothing below it accounts for. */
  readonly self_ms: number;
  readonly remote_parent?: true;
  readonly inferred_parent?: string;
  readonly orphan?: true;
}

export interface TraceShown {
  readonly trace_id: string;
  readonly start_ms: number;
  readonly elapsed_ms: number;
  readonly complete: boolean;
  readonly gaps: readonly string[];
  readonly under_way: readonly string[];
  readonly orphans: number;
  readonly notes: readonly string[];
  readonly spans: readonly TraceSpan[];
  readonly why: readonly string[];
}

export interface InForce {
  readonly in_force: number;
  readonly of: number;
  readonly missing: readonly { readonly sidecar: string; readonly why: string }[];
}

export type OverrideAction = 'block' | 'drain' | 'reroute' | 'degrade';

export interface OverrideTarget {
  readonly capability?: string;
  readonly provider?: string;
  readonly agent?: string;
  readonly caller?: string;
  readonly all?: boolean;
}

export interface OverrideShown extends InForce {
  readonly id: string;
  readonly action: OverrideAction;
  readonly target: OverrideTarget;
  readonly to: string | null;
  readonly cut: boolean;
  readonly reason: string;
  readonly author: string;
  readonly at: string;
  readonly expires_at: string | null;
}

export interface OverridesAnswer extends InForce {
  readonly overrides: readonly OverrideShown[];
}

export interface OverrideTried {
  readonly would_hit: {
    readonly capabilities: readonly string[];
    readonly providers: readonly string[];
    readonly callers: readonly string[];
    readonly sidecars: number;
    readonly in_flight: number;
  };
  readonly problem: string | null;
  readonly warnings: readonly string[];
}

export interface OverrideOrdered extends InForce {
  readonly id: string;
  readonly repeated: boolean;
  readonly warnings: readonly string[];
}

export interface ProviderRow {
  readonly agent: string;
  readonly role: string;
  readonly sidecar: string;
  readonly via: string | null;
  readonly status: 'online' | 'offline' | 'overdue';
  readonly why: string | null;
  readonly offline_since_ms: number | null;
  readonly lease_left_ms: number | null;
  readonly last_activity_ms: number | null;
  readonly in_flight: number;
  readonly offers: readonly string[];
  readonly address: string;
  readonly transport: string;
  readonly region: string | null;
  readonly zone: string | null;
  readonly tier: string;
  readonly weight: number;
  readonly drain: boolean;
  readonly operator: { readonly drain: boolean | null; readonly weight: number | null } | null;
}

export interface ProvidersAnswer {
  readonly providers: readonly ProviderRow[];
}

export interface VersionRow {
  readonly version: string;
  readonly online: number;
  readonly providers: number;
  readonly acl: readonly string[];
  readonly execution: string;
  readonly streaming: boolean;
  readonly description: string;
  readonly source: 'operator' | 'agents' | 'retired';
}

export interface CapabilityInfo {
  readonly capability: string;
  readonly aliases: readonly string[];
  readonly versions: readonly VersionRow[];
  readonly online: number;
  readonly providers: number;
  readonly policies: readonly string[];
  readonly canary: Readonly<Record<string, number>> | null;
  readonly default_range: string | null;
}

export interface CapabilitiesAnswer {
  readonly capabilities: readonly CapabilityInfo[];
}

export interface Refusal {
  readonly tail: string;
  readonly seq: number;
  readonly why: string;
}

export interface SidecarRow {
  readonly sidecar: string;
  readonly instance: string | null;
  readonly version: string | null;
  readonly standing: 'current' | 'behind' | 'stale' | 'missing';
  readonly applied_seq: number | null;
  readonly wanted_seq: number;
  readonly behind: number;
  readonly stale_because: string;
  readonly last_report_ago_ms: number | null;
  readonly policies: { readonly version: number; readonly staged: boolean } | null;
  readonly refused: readonly Refusal[];
  readonly lacks_overrides: string | null;
  readonly registered: {
    readonly mesh: string | null;
    readonly region: string | null;
    readonly zone: string | null;
    readonly status: 'online' | 'offline' | 'left';
    readonly callers: readonly string[];
    readonly agents: number;
    readonly agents_online: number;
  } | null;
}

export interface Rollout {
  readonly version: number;
  readonly share: number;
  readonly author: string;
  readonly at_ms: number;
  readonly note: string;
  readonly halted: string;
  readonly expected: readonly string[];
  readonly in_force: readonly string[];
  readonly missing: readonly string[];
  readonly refusals: readonly { readonly sidecar: string; readonly tail: string; readonly seq: number; readonly why: string }[];
}

export interface FleetAnswer {
  readonly epoch: string;
  readonly last_seq: number;
  readonly nats: { readonly version: string; readonly flush: string };
  readonly sidecars: readonly SidecarRow[];
  readonly summary: {
    readonly total: number;
    readonly current: number;
    readonly behind: number;
    readonly stale: number;
    readonly missing: number;
    readonly refusing: number;
  };
  readonly held: readonly { readonly id: string; readonly reason: string; readonly for_ms: number | null }[] | null;
  readonly rollout: Rollout | null;
}

export interface PoliciesAnswer {
  readonly version: number;
  readonly author: string;
  readonly at_ms: number;
  readonly note: string;
  readonly text: string;
  readonly rollout: Rollout | null;
}

export interface HistoryAnswer {
  readonly active: number;
  readonly versions: readonly {
    readonly version: number;
    readonly author: string;
    readonly at_ms: number;
    readonly note: string;
    readonly action: string;
  }[];
}

export interface PolicyChange {
  readonly version: number | null;
  readonly diff: readonly string[];
  readonly warnings: readonly { readonly file: string; readonly line: number; readonly column: number; readonly message: string }[];
}

export interface RuleRow {
  readonly name: string;
  readonly when?: Readonly<Record<string, unknown>>;
  readonly action: { readonly dispatch: string; readonly sticky_by?: string; readonly priority?: string };
  readonly fallback?: { readonly if_no_available_agent: string | { readonly capability: string } };
  readonly hits: number;
}

export interface RulesOf {
  readonly version: number;
  readonly messages: number;
  readonly for_ms: number;
  readonly sidecars: number;
  readonly rules: readonly RuleRow[];
}

export interface RulesAnswer extends RulesOf {
  readonly staged: (RulesOf & { readonly share: number }) | null;
}

export interface LintAnswer {
  readonly findings: readonly { readonly kind: string; readonly rule: string; readonly other: string | null; readonly words: string }[];
}

export interface QuotaRow {
  readonly kind: 'agent' | 'capability' | 'provider';
  readonly target: string;
  readonly calls_per_sec: number | null;
  readonly calls_burst: number | null;
  readonly messages_per_sec: number | null;
  readonly messages_burst: number | null;
  readonly in_flight: number | null;
  readonly reason: string;
  readonly author: string;
  readonly at_ms: number;
  readonly expires_at_ms: number | null;
  readonly taken: number;
  readonly refused: number;
}

export interface QuotasAnswer {
  readonly quotas: readonly QuotaRow[];
  readonly in_force: { readonly on: number; readonly of: number; readonly missing: readonly string[] };
}

interface ShiftSide {
  readonly calls: number;
  readonly errors: number;
  readonly p95_ms: number | null;
}

export interface ShiftRow {
  readonly id: string;
  readonly capability: string;
  readonly version: string | null;
  readonly provider: string | null;
  readonly status: string;
  readonly steps: readonly number[];
  readonly step: number;
  readonly share: number;
  readonly every_ms: number | null;
  readonly guard: {
    readonly errors: number | null;
    readonly p95: number | null;
    readonly min_calls: number;
    readonly window_ms: number;
  } | null;
  readonly author: string;
  readonly reason: string;
  readonly started_at_ms: number;
  readonly step_at_ms: number;
  readonly ended_at_ms: number | null;
  readonly why: string;
  readonly measured: { readonly fresh: ShiftSide; readonly old: ShiftSide } | null;
}

export interface ShiftsAnswer {
  readonly shifts: readonly ShiftRow[];
}

export interface KeptRow {
  readonly seq: number;
  readonly kind: 'dead' | 'in_doubt' | 'review';
  readonly task_id: string;
  readonly capability: string;
  readonly version: string | null;
  readonly source: string;
  readonly lane: string | null;
  readonly pool: string | null;
  readonly code: number;
  readonly name: string;
  readonly cause: string;
  readonly detail: string;
  readonly attempts: number;
  readonly rule: string | null;
  readonly since_ms: number;
  readonly payload_bytes: number;
  readonly content_type: string;
}

export interface KeptAnswer {
  readonly entries: readonly KeptRow[];
  readonly next: number | null;
}

export interface KeptShown extends KeptRow {
  readonly tries: readonly { readonly by: string; readonly at_ms: number; readonly code: number; readonly detail: string }[];
  readonly message: { readonly traceparent?: string | null } | null;
}

export interface PayloadShown {
  readonly headers: Readonly<Record<string, string>>;
  readonly base64: string;
}

export interface PoolRow {
  readonly pool: string;
  readonly words: string;
  readonly capability: string | null;
  readonly version: string | null;
  readonly messages: number;
  readonly lanes: Readonly<Record<string, number>>;
  readonly in_hand: number;
  readonly agents: number;
  readonly drained: number;
  readonly oldest_ms: number | null;
}

export interface PoolsAnswer {
  readonly pools: readonly PoolRow[];
}

export interface ParkedAnswer {
  readonly tasks: readonly {
    readonly task_id: string;
    readonly message_type: string;
    readonly capability: string;
    readonly version: string | null;
    readonly source: string;
    readonly lane: string;
    readonly rule: string | null;
    readonly since_ms: number;
    readonly payload_bytes: number;
  }[];
  readonly next: number | null;
}

export interface AlertRow {
  readonly id: string;
  readonly kind: string;
  readonly subject: string;
  readonly state: 'pending' | 'firing' | 'resolved';
  readonly since_ms: number;
  readonly resolved_ms: number | null;
  readonly words: string;
  readonly silenced_until_ms: number | null;
  readonly capability: string | null;
  readonly agent: string | null;
  readonly sidecar: string | null;
  readonly trace_id: string | null;
  /** A command that shows more. */
  readonly look: string;
  readonly told: boolean;
}

export interface SilenceRow {
  readonly id: string;
  readonly kind: string | null;
  readonly subject: string;
  readonly until_ms: number;
  readonly reason: string;
  readonly author: string;
}

export interface AlertsAnswer {
  readonly alerts: readonly AlertRow[];
  readonly silences: readonly SilenceRow[];
}

export interface AuditRow {
  readonly id: string;
  readonly stored_at_ms: number;
  readonly writer: string;
  readonly at_ms: number;
  readonly actor: string;
  readonly role: string;
  readonly action: string;
  readonly subject: string;
  readonly reason: string;
  readonly detail: Readonly<Record<string, string | number | boolean | null>>;
  readonly outcome: 'done' | 'refused' | 'audited';
  readonly code: number | null;
  readonly count: number;
  readonly since_ms: number;
}

export interface AuditAnswer {
  readonly entries: readonly AuditRow[];
  readonly next: string | null;
}

export interface ServingRow extends ProviderRow {
  readonly versions: readonly string[];
  readonly breaker: {
    readonly state: 'closed' | 'open' | 'half_open' | 'ramping';
    readonly sidecars: readonly string[];
    readonly why: string;
    readonly since_ms: number | null;
  };
  readonly slots: number | null;
  readonly attempts: number;
  readonly failures: number;
  readonly p50_ms: number | null;
  readonly p95_ms: number | null;
}

export interface FailureRow {
  readonly trace_id: string;
  readonly code: number;
  readonly name: string;
  readonly elapsed_ms: number;
  readonly caller: string;
  readonly provider: string;
  readonly at_ms: number | null;
}

export interface Affinity {
  readonly required: boolean;
  readonly from: { readonly header: string } | { readonly pointer: string };
  readonly mode: 'soft' | 'strict';
}

/** What holds, in the contract's own words: these keys are not snake case. */
export interface Limits {
  readonly perCaller: number;
  readonly perProvider: number;
  readonly requestBytes: number;
  readonly responseBytes: number;
  readonly timeoutMs: number;
  readonly deadlineMs: number;
}

export interface Minute {
  readonly at_ms: number;
  readonly calls: number;
  readonly failed: number;
  readonly p95_ms: number | null;
}

export interface CapabilityShown extends CapabilityInfo {
  readonly affinity: Readonly<Record<string, Affinity | null>>;
  readonly limits: Readonly<Record<string, Limits>>;
  readonly lately: {
    readonly calls: number;
    readonly calls_per_s: number;
    readonly error_share: number;
    readonly p50_ms: number | null;
    readonly p95_ms: number | null;
    readonly p99_ms: number | null;
    readonly codes: readonly { readonly code: number; readonly name: string; readonly count: number }[];
  };
  readonly minutes: readonly Minute[];
  readonly provider_list: readonly ServingRow[];
  readonly callers: readonly Edge[];
  readonly quotas: readonly QuotaRow[];
  readonly overrides: readonly OverrideShown[];
  readonly shifts: readonly { readonly id: string; readonly to: string; readonly share: number; readonly status: string }[];
  readonly failures: readonly FailureRow[];
}
