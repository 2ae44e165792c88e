/**
 * What people write, after validation: the normal form that the rest of the code reads. Durations are milliseconds,
 * ratios 0–1, absent optional parts `null`. A `null` policy field means "not said here": the next weaker source decides
 * (shipped default < contract < operator's policy < operator's policy for one provider).
 */
import type { Rule } from './rule.ts';

/** JSON Schema 2020-12 as written. */
export type JsonSchema = boolean | { readonly [key: string]: unknown };

/** How often the work may run: see SPEC R5.2 and R9.5. */
export type Execution = 'once' | 'idempotent' | 'keyed';

export type LoadMode = 'primary_backup' | 'round_robin' | 'least_request' | 'random' | 'sticky';

export type Tier = 'primary' | 'backup';

export interface AffinityRule {
  readonly required: boolean;
  /** Where the key is read: a request header (lower case) or a JSON pointer into the payload. */
  readonly from: { readonly header: string } | { readonly pointer: string };
  /** `soft` moves on when the owner is gone, `strict` fails with `affinity_lost`. */
  readonly mode: 'soft' | 'strict';
}

export interface RetryPolicy {
  /** Retries elsewhere after the first attempt, 0–2. */
  readonly max: number | null;
  readonly backoffMs: number | null;
  readonly backoffMaxMs: number | null;
  /** No retry when less than this share of the *total* deadline is left, 0–1. */
  readonly minRemainingRatio: number | null;
}

export interface BreakerPolicy {
  readonly enabled: boolean | null;
  readonly failureRatio: number | null;
  readonly windowMs: number | null;
  readonly slowRatio: number | null;
  readonly slowCallMs: number | null;
  readonly minCalls: number | null;
  readonly openMs: number | null;
  /** Calls let through at once while half-open. */
  readonly probes: number | null;
  /** Successful probes that close it. */
  readonly successes: number | null;
  /** After closing: calls in flight allowed in each step of the ramp, e.g. [6, 12, 24]; then no limit. */
  readonly ramp: readonly number[] | null;
  readonly rampStepMs: number | null;
}

export interface LimitsPolicy {
  /** Calls in flight per caller × capability. */
  readonly perCaller: number | null;
  /** Calls in flight per provider (all its capabilities together when set on the provider record). */
  readonly perProvider: number | null;
  /** Bytes of a request body. */
  readonly requestBytes: number | null;
  /** Bytes of an answer body (not of a stream). */
  readonly responseBytes: number | null;
  /** Bytes of one event or line of a stream. */
  readonly eventBytes: number | null;
}

/** How long a stream may keep its reader waiting. */
export interface StreamClocks {
  /** From the start of the attempt to the first piece of the body. */
  readonly firstChunkMs: number | null;
  /** Between two pieces. */
  readonly idleMs: number | null;
}

/** What a contract says of its stream. */
export interface StreamRule extends StreamClocks {
  /** How its end is told: the name or the data of an event, or a line; null = by the end of the body. */
  readonly done: string | null;
}

/** One step of a fallback chain. */
export type FallbackStep =
  | { readonly kind: 'capability'; readonly target: string }
  | { readonly kind: 'provider'; readonly agentId: string }
  | { readonly kind: 'static'; readonly data: unknown };

export interface FallbackPolicy {
  /** Empty = explicitly none: fail loudly. */
  readonly chain: readonly FallbackStep[];
}

/** A condition on an answer; all parts that are set must hold. */
export interface AnswerCondition {
  readonly status: number | null;
  /** JSON pointer; null = the whole answer. */
  readonly pointer: string | null;
  /** null, "", [], {} or absent. */
  readonly empty: boolean | null;
  /** `undefined` = not asked. */
  readonly equals: unknown;
  readonly below: number | null;
  readonly above: number | null;
}

export interface SuccessRule {
  /** An answer that matches any is a definite success: never retried, never held against the provider. */
  readonly definitely: readonly AnswerCondition[];
  /** A 2xx answer that matches any is a failure (1004) all the same. */
  readonly unless: readonly AnswerCondition[];
}

/** One ACL pattern: null segment = any. `public` is the pattern of three nulls with `public: true`. */
export interface AclPattern {
  readonly text: string;
  readonly team: string | null;
  readonly role: string | null;
  readonly id: string | null;
}

export interface Acl {
  /** True for the explicit word `public`: every authenticated caller. */
  readonly isPublic: boolean;
  readonly patterns: readonly AclPattern[];
  /** `audit`: who is not named is logged and counted, and let in. Absent = refused. */
  readonly mode?: AclMode;
}

export type AclMode = 'enforce' | 'audit';

export interface Contract {
  readonly name: string;
  readonly version: string;
  readonly description: string;
  readonly examples: readonly unknown[];
  readonly aliases: readonly string[];
  readonly tags: Readonly<Record<string, string>>;
  readonly input: JsonSchema | null;
  readonly output: JsonSchema | null;
  readonly execution: Execution;
  readonly affinity: AffinityRule | null;
  /** Per attempt. */
  readonly timeoutMs: number | null;
  /** Total of the task when the caller names none. */
  readonly deadlineMs: number | null;
  readonly retry: RetryPolicy;
  readonly breaker: BreakerPolicy;
  readonly limits: LimitsPolicy;
  readonly fallback: FallbackPolicy | null;
  readonly acl: Acl;
  /** null = the answer comes in one piece. */
  readonly streaming: StreamRule | null;
  readonly success: SuccessRule | null;
}

/** A value that stands elsewhere: the file names it, the sidecar reads it; it is never shown. */
export type SecretRef = { readonly env: string } | { readonly file: string };

/** How to call a third party's HTTP API for one capability (SPEC R2.4): no code, no key in the agent's hands. */
export interface HttpMapping {
  readonly method: 'GET' | 'POST' | 'PUT' | 'PATCH' | 'DELETE';
  /** Path template: `{/json/pointer}` parts are taken from the payload, percent-encoded. */
  readonly path: string;
  /** Query parameters, values are templates. */
  readonly query: Readonly<Record<string, string>>;
  /** Extra request headers, values are templates. */
  readonly headers: Readonly<Record<string, string>>;
  /** `payload` sends the payload as it came; `none` sends no body; an object is a template whose string leaves are filled. */
  readonly body: 'payload' | 'none' | { readonly template: unknown };
}

export interface Credential {
  /** Header that carries the secret, lower case. */
  readonly header: string;
  /** Put before the secret, e.g. `Bearer `. */
  readonly prefix: string;
  readonly secret: SecretRef;
}

export interface Endpoint {
  /** Name of a transport adapter: `http`, `mock`, … */
  readonly type: string;
  /** For `http`: the base URL. The capability is appended (`/{name}`) unless a mapping or `path` says otherwise. */
  readonly address: string;
  /** For `http`: path template, default `/{capability}`; `{capability}` and `{version}` are filled. */
  readonly path: string | null;
  /** Keyed by capability name; `*` for all. */
  readonly mapping: Readonly<Record<string, HttpMapping>>;
  readonly credential: Credential | null;
  /** Options of the adapter itself (e.g. the mock's script), checked by the adapter. */
  readonly options: Readonly<Record<string, unknown>>;
}

export interface Offer {
  readonly name: string;
  /** Exact version. */
  readonly version: string;
}

export interface ProviderRecord {
  /** `team.role.id`, unique. */
  readonly agentId: string;
  readonly team: string;
  readonly role: string;
  readonly offers: readonly Offer[];
  readonly tags: Readonly<Record<string, string>>;
  readonly target: Readonly<Record<string, string>>;
  readonly endpoint: Endpoint;
  readonly region: string | null;
  readonly zone: string | null;
  /** ≥ 0, may be fractional; 0 = takes no traffic. */
  readonly weight: number;
  readonly tier: Tier;
  /** Name of the sidecar that hosts it; null = third party, reached directly. */
  readonly via: string | null;
  readonly limits: LimitsPolicy;
  readonly drain: boolean;
  /** Declared health check: path and interval; asked by the hosting sidecar, of third parties by the control plane. */
  readonly healthCheck: { readonly path: string; readonly intervalMs: number } | null;
}

/** An operator's settings for the capabilities that its pattern covers. */
export interface Policy {
  /** A name, or a prefix pattern: `crm.order.query`, `crm.order.*`, `crm.*`, `*`. More specific wins, field by field. */
  readonly capability: string;
  readonly defaultRange: string | null;
  /** Share of traffic by exact version, 0–1; what is not named shares the rest. */
  readonly canary: Readonly<Record<string, number>> | null;
  readonly load: LoadMode | null;
  /** Use providers although none is healthy, rather than fail. */
  readonly panic: boolean | null;
  readonly locality: 'prefer' | 'ignore' | null;
  /** How long a new provider takes to reach its full weight; 0 = at once. */
  readonly slowStartMs: number | null;
  /** Stronger than what the contract says. Documents of before have none. */
  readonly aclMode?: AclMode | null;
  readonly timeoutMs: number | null;
  readonly deadlineMs: number | null;
  readonly retry: RetryPolicy;
  readonly breaker: BreakerPolicy;
  readonly limits: LimitsPolicy;
  readonly streaming: StreamClocks;
  readonly fallback: FallbackPolicy | null;
  /** Settings for one provider, by agent id. */
  readonly providers: Readonly<
    Record<
      string,
      {
        readonly breaker: BreakerPolicy;
        readonly limits: LimitsPolicy;
        readonly timeoutMs: number | null;
        readonly weight: number | null;
        readonly drain: boolean | null;
      }
    >
  >;
}

/**
 * An operator's emergency rule (SPEC R13.2). Unset selectors match everything. With a provider it is about that one only: it
 * gets nothing (block), nothing new (drain), or nothing as long as another one can serve; then what is declared (degrade) or
 * `to` (reroute) serves.
 */
export interface Override {
  readonly name: string;
  readonly action: 'block' | 'drain' | 'reroute' | 'degrade';
  readonly capability: string | null;
  readonly provider: string | null;
  readonly caller: string | null;
  /** For `reroute`: `capability`, `capability@range`, `@range` of the same one, or `provider:team.role.id`. */
  readonly to: string | null;
  /** For `degrade`: the static answer; null = the capability's own fallback. */
  readonly data: unknown;
  /** For `block`: what is under way is cancelled as soon as the rule is in force; else it ends in peace. */
  readonly cut: boolean;
  readonly reason: string;
  readonly author: string;
  /** Wall clock, milliseconds; null = until removed. */
  readonly expiresAtMs: number | null;
}

/** Where a hosting sidecar can be reached by the others. */
export interface SidecarAddress {
  readonly name: string;
  /** Base URL of its mesh port. */
  readonly mesh: string;
}

/** Everything that the standalone table file names; the registry will push the same parts. */
export interface TableDocument {
  readonly contracts: readonly Contract[];
  readonly providers: readonly ProviderRecord[];
  readonly policies: readonly Policy[];
  readonly overrides: readonly Override[];
  readonly sidecars: readonly SidecarAddress[];
  /** For messages, which need a registry; absent = none. Looked through, and used for nothing. */
  readonly rules?: readonly Rule[];
}

/** A refusal with a place in the text that was read. */
export interface Problem {
  readonly file: string;
  /** 1-based; 0 when the text has no such place. */
  readonly line: number;
  readonly column: number;
  /** JSON-pointer-like path, e.g. `/contracts/0/acl`. */
  readonly path: string;
  readonly message: string;
}
