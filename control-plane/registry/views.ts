/** What people ask the registry, in the form that the API answers with. Ages are milliseconds before now, by the monotonic clock. */
import type { OfflineWhy } from '../../proto/wire/registry.ts';

export interface ProviderView {
  readonly agent: string;
  readonly role: string;
  /** The sidecar that registered it; with several (a third party that several describe) the one that counts. */
  readonly sidecar: string;
  readonly via: string | null;
  /** `overdue`: its lease has run out together with too many others, and the registry waits to be told that this is true. */
  readonly status: 'online' | 'offline' | 'overdue';
  readonly why: OfflineWhy | null;
  /** Wall clock; null while it is online. */
  readonly offlineSinceMs: number | null;
  /** Until it is taken for gone; null when it is not online. */
  readonly leaseLeftMs: number | null;
  /** Since it last answered or beat; null when that is not known (nothing heard since the registry was loaded). */
  readonly lastActivityMs: number | null;
  readonly inFlight: number;
  readonly offers: readonly string[];
  readonly address: string;
  readonly transport: string;
  readonly mesh: string | null;
  readonly region: string | null;
  readonly zone: string | null;
  readonly tier: string;
  readonly weight: number;
  readonly drain: boolean;
  /** What an operator set, apart from the record. */
  readonly operator: { readonly drain: boolean | null; readonly weight: number | null } | null;
  readonly probe: { readonly intervalMs: number; readonly failures: number } | null;
}

export interface SidecarView {
  readonly sidecar: string;
  readonly instance: string;
  readonly mesh: string | null;
  readonly region: string | null;
  readonly zone: string | null;
  readonly status: 'online' | 'offline' | 'left';
  readonly lastBeatMs: number | null;
  readonly callers: readonly string[];
  readonly agents: number;
  readonly agentsOnline: number;
  readonly capabilities: number;
}

export interface VersionView {
  readonly version: string;
  readonly online: number;
  readonly providers: number;
  readonly acl: readonly string[];
  readonly execution: string;
  readonly streaming: boolean;
  readonly description: string;
  /** `operator`: from the operators' document; `agents`: registered; `retired`: nobody registers it any more. */
  readonly source: 'operator' | 'agents' | 'retired';
}

export interface CapabilityView {
  readonly capability: string;
  readonly aliases: readonly string[];
  /** Newest first. */
  readonly versions: readonly VersionView[];
  readonly online: number;
  readonly providers: number;
  /** Patterns of the policies that cover it, weakest first. */
  readonly policies: readonly string[];
  readonly canary: Readonly<Record<string, number>> | null;
  readonly defaultRange: string | null;
}

export interface RolloutView {
  readonly version: number;
  readonly share: number;
  readonly author: string;
  readonly atMs: number;
  readonly note: string;
  /** Why it was stopped; '' = it runs. */
  readonly halted: string;
  /** Live sidecars in the share that have anything to do with it. */
  readonly expected: readonly string[];
  /** Those of them that use it. */
  readonly inForce: readonly string[];
  readonly missing: readonly string[];
  readonly refusals: readonly { readonly sidecar: string; readonly tail: string; readonly seq: number; readonly why: string }[];
}
