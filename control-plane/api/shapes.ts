/**
 * What the API answers with, in the words of its JSON: reachctl and the OpenAPI document read the same. Keys are snake
 * case, `_ms` are milliseconds (ages by a clock that does not jump, points in time since 1970), shares are 0-1.
 */
import type { FleetRow } from '../push/fleet.ts';
import type { PolicyEntry } from '../push/journal.ts';
import type { CapabilityView, ProviderView, RolloutView, SidecarView } from '../registry/views.ts';

type SnakeKey<S extends string> = S extends `${infer Head}${infer Rest}`
  ? Head extends Lowercase<Head>
    ? `${Head}${SnakeKey<Rest>}`
    : `_${Lowercase<Head>}${SnakeKey<Rest>}`
  : S;

/** The same with snake-case keys, all the way down. */
export type Snake<T> = T extends readonly (infer E)[]
  ? readonly Snake<E>[]
  : T extends object
    ? { readonly [K in keyof T as K extends string ? SnakeKey<K> : K]: Snake<T[K]> }
    : T;

const FIELD = /^[a-z][a-zA-Z]*$/;

/** Views are plain data; keys that are data themselves (versions, capability names) have dots and stay as they are. */
export function snake<T>(value: T): Snake<T> {
  if (Array.isArray(value)) return value.map((each) => snake(each as unknown)) as unknown as Snake<T>;
  if (typeof value !== 'object' || value === null) return value as Snake<T>;
  const renamed: Record<string, unknown> = {};
  for (const [key, part] of Object.entries(value))
    renamed[FIELD.test(key) ? key.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`) : key] = snake(part as unknown);
  return renamed as Snake<T>;
}

export interface ProvidersAnswer {
  readonly providers: readonly Snake<ProviderView>[];
}

export interface CapabilitiesAnswer {
  readonly capabilities: readonly Snake<CapabilityView>[];
}

export type CapabilityAnswer = Snake<CapabilityView> & {
  /** Of the newest message; 0 = not pushed yet. */
  readonly seq: number;
  readonly contracts: readonly unknown[];
  readonly policy_list: readonly unknown[];
  readonly provider_list: readonly Snake<ProviderView>[];
};

export interface HeldAnswer {
  readonly id: string;
  readonly reason: string;
  readonly for_ms: number | null;
}

export interface FleetAnswer {
  readonly epoch: string;
  readonly last_seq: number;
  /** Version of the server of this replica's connection; when acknowledged messages are flushed: `always`, `every 2m`, `unknown (why)`. */
  readonly nats: { readonly version: string; readonly flush: string };
  readonly sidecars: readonly (Snake<FleetRow> & { readonly registered: Snake<SidecarView> | null })[];
  readonly summary: {
    readonly total: number;
    readonly current: number;
    readonly behind: number;
    readonly stale: number;
    readonly missing: number;
    readonly refusing: number;
  };
  /** Null on a replica that does not lead: only the leader knows. */
  readonly held: readonly HeldAnswer[] | null;
  readonly rollout: Snake<RolloutView> | null;
}

export interface PoliciesAnswer {
  /** 0 = none has been applied yet. */
  readonly version: number;
  readonly author: string;
  readonly at_ms: number;
  readonly note: string;
  readonly text: string;
  readonly rollout: Snake<RolloutView> | null;
}

export interface HistoryAnswer {
  readonly active: number;
  readonly versions: readonly Omit<Snake<PolicyEntry>, 'text'>[];
}

export interface PolicyChangeAnswer {
  /** The version that is active, or staged; null after a dry run. */
  readonly version: number | null;
  readonly dry_run: boolean;
  readonly diff: readonly string[];
  readonly warnings: readonly {
    readonly file: string;
    readonly line: number;
    readonly column: number;
    readonly path: string;
    readonly message: string;
  }[];
  readonly rollout: Snake<RolloutView> | null;
  readonly seq: number;
}

export interface LeaderAnswer {
  readonly replica: string;
  readonly env: string;
  readonly status: string;
  readonly leader: { readonly holder: string; readonly term: number; readonly url: string } | null;
  readonly nats: 'connected' | 'away';
  readonly epoch: string;
  readonly last_seq: number;
}

export interface ProviderChange {
  readonly agent: string;
  readonly operator: { readonly drain: boolean | null; readonly weight: number | null } | null;
  readonly seq: number;
}

export interface CanaryChange {
  readonly capability: string;
  readonly shares: Readonly<Record<string, number>> | null;
  readonly seq: number;
}
