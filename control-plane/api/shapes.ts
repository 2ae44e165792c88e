/** What the API answers with, in the words of its JSON: reachctl and the OpenAPI document read the same. Times are ISO 8601 in UTC, `_ms` are milliseconds, shares 0-1. */

export interface ProviderView {
  readonly agent_id: string;
  readonly state: 'online' | 'draining' | 'offline';
  /** Why it is offline, or drained by whom; null when it is online. */
  readonly because: string | null;
  readonly since: string | null;
  /** The sidecar that registered it. */
  readonly sidecar: string;
  readonly via: string | null;
  readonly endpoint: { readonly type: string; readonly address: string };
  /** Each as name@version. */
  readonly offers: readonly string[];
  readonly tier: string;
  /** In force: the operator's, or the one of the record. */
  readonly weight: number;
  readonly operator: { readonly drain: boolean; readonly weight: number | null } | null;
  readonly region: string | null;
  readonly zone: string | null;
  /** Since it last answered a call or beat; null when that is not known here. */
  readonly idle_ms: number | null;
  readonly in_flight: number | null;
}

export interface VersionView {
  readonly version: string;
  readonly description: string;
  readonly execution: string;
  readonly streaming: boolean;
  readonly aliases: readonly string[];
  readonly acl: readonly string[];
  readonly providers: number;
  /** Share of the calls by canary; null when none is said. */
  readonly share: number | null;
}

export interface CapabilityView {
  readonly name: string;
  readonly versions: readonly VersionView[];
  readonly default_range: string | null;
  readonly providers: { readonly online: number; readonly draining: number; readonly offline: number };
  readonly seq: number;
  readonly held: string | null;
}

export interface SidecarView {
  readonly sidecar: string;
  readonly standing: 'current' | 'behind' | 'stale' | 'missing';
  readonly instance: string | null;
  readonly version: string | null;
  readonly applied_seq: number | null;
  readonly wanted_seq: number;
  readonly behind: number;
  readonly stale_because: string | null;
  readonly last_report_ms: number | null;
  readonly capabilities: number | null;
  readonly providers: number | null;
  readonly policies: { readonly version: number; readonly staged: boolean } | null;
  readonly refused: readonly { readonly tail: string; readonly seq: number; readonly why: string }[];
}

export interface HeldView {
  /** What `confirm` takes. */
  readonly id: string;
  readonly reason: string;
  readonly since: string;
  readonly online_before: number;
  readonly online_after: number;
}

export interface FleetView {
  readonly epoch: string;
  readonly last_seq: number;
  readonly sidecars: readonly SidecarView[];
  readonly summary: { readonly total: number; readonly current: number; readonly behind: number; readonly stale: number; readonly missing: number; readonly refusing: number };
  readonly held: readonly HeldView[];
  readonly staged: StagedView | null;
}

export interface StagedView {
  readonly version: number;
  readonly share: number;
  readonly since: string;
  readonly by: string;
  readonly note: string;
  /** Not null: it was stopped by itself, and why. */
  readonly halted: string | null;
}

export interface PolicyVersionView {
  readonly version: number;
  readonly at: string;
  readonly by: string;
  readonly note: string;
  /** apply, rollback, promote, halt, import. */
  readonly action: string;
  readonly active: boolean;
}

export interface PoliciesView {
  /** 0 = none has been applied yet. */
  readonly version: number;
  readonly text: string;
  readonly staged: StagedView | null;
}

export interface LeaderView {
  readonly replica: string;
  readonly env: string;
  readonly leading: boolean;
  readonly leader: { readonly holder: string; readonly term: number; readonly url: string } | null;
  readonly nats: 'connected' | 'away';
  readonly epoch: string;
  readonly last_seq: number;
}

export interface AuditView {
  readonly at: string;
  readonly who: string;
  readonly what: string;
  readonly target: string;
  readonly before: unknown;
  readonly after: unknown;
}
