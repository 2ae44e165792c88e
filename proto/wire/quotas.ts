/**
 * Quotas set at run time, as they are stored, pushed and reported. A quota says how much one agent may ask, or how much
 * may be asked of one capability or provider: a target with `*` in it is the quota of *each* that it covers, not of all
 * together. The tail `quotas` goes to every sidecar. What has no one place where all its calls pass (a capability; a
 * provider without a sidecar) is counted at the callers' sidecars in shares, which the leader works out each second from
 * what was asked where, and tells on `ar.<env>.shares`.
 */

export type QuotaKind = 'agent' | 'capability' | 'provider';

export const QUOTA_KINDS: readonly QuotaKind[] = ['agent', 'capability', 'provider'];

/** `perSec` go on for ever, `burst` at once. */
export interface QuotaRate {
  readonly perSec: number;
  readonly burst: number;
}

export interface Quota {
  readonly kind: QuotaKind;
  /** Three segments, each of them a name or `*`. */
  readonly target: string;
  /** null = not limited by this quota; a less exact one may limit it. */
  readonly calls: QuotaRate | null;
  /** Agents only. */
  readonly messages: QuotaRate | null;
  /** Calls at once; agents and providers only. */
  readonly inFlight: number | null;
  readonly reason: string;
  readonly author: string;
  /** Wall clock. */
  readonly atMs: number;
  /** Wall clock; null = until it is taken back. */
  readonly expiresAtMs: number | null;
}

/** Stored as `op.quotas`, pushed as `quotas`. */
export interface QuotasState {
  readonly wire: number;
  readonly epoch: string;
  readonly quotas: readonly Quota[];
}

export const MAX_QUOTAS = 1_000;
export const MAX_QUOTA_RATE = 1_000_000;

/** As it stands in reports, metrics and on the command line. */
export function quotaKey(kind: QuotaKind, target: string): string {
  return `${kind}:${target}`;
}

/** Of one quota at one sidecar, since its process began or the quota came into force there. */
export interface QuotaHits {
  readonly taken: number;
  readonly refused: number;
}

/** What was asked of one thing whose quota is shared out, since the report before. */
export interface QuotaDemand {
  readonly kind: 'capability' | 'provider';
  /** A capability or a provider, never a pattern. */
  readonly name: string;
  /** Calls a second of each caller, greediest first; the callers beyond the first ones count as one. */
  readonly asked: readonly number[];
}

/** Callers that are told apart in a demand. */
export const MAX_DEMANDERS = 32;
/** Things whose demand one report tells, busiest first. */
export const MAX_DEMANDS = 200;

/** Part of a sidecar's report. */
export interface QuotasReport {
  /** Sequence of the newest state that it has looked at; 0 = none. */
  readonly seq: number;
  /** By key; what is not named was not used. */
  readonly hits: Readonly<Record<string, QuotaHits>>;
  readonly demand: readonly QuotaDemand[];
}

/** `ar.<env>.shares`, each second while something is shared out. Nothing is stored: the next one repairs a lost one. */
export interface Shares {
  readonly wire: number;
  readonly epoch: string;
  /** By `kind:name`. */
  readonly shares: Readonly<Record<string, SharedParts>>;
  /** Of everything that is not named. */
  readonly rest: number;
  readonly burst: number;
}

/** Parts (0–1) of a rate and its burst. */
export interface SharedParts {
  /** Of both, by sidecar. */
  readonly of: Readonly<Record<string, number>>;
  /** Of the rate, for each sidecar that is not named: it has asked for nothing lately. */
  readonly rest: number;
  /** Of the burst, for each of these. */
  readonly burst: number;
}

/** Whether a target covers a name, both as their segments. */
export function isCovered(target: readonly string[], name: readonly string[]): boolean {
  for (let i = 0; i < target.length; i++) {
    const wanted = target[i] as string;
    if (wanted !== '*' && wanted !== name[i]) return false;
  }
  return target.length === name.length;
}

/** Of several that cover one name the most exact counts: that with more segments that are names, of equally many the earlier ones. */
export function exactness(target: readonly string[]): number {
  let count = 0;
  let places = 0;
  target.forEach((segment, i) => {
    if (segment === '*') return;
    count++;
    places += 4 >> i;
  });
  return count * 8 + places;
}
