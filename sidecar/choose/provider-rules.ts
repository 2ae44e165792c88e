/**
 * The operator's emergency rules that name a provider: blocked, degraded or rerouted (nothing goes there) or draining
 * (nothing new begins there). What serves when nobody else is left, the pipeline finds out. Rules without a provider are the `overrides` stage's business. Which rules can concern a candidate is worked
 * out once per table; whether one is in force is asked with the wall clock, since an expired rule counts as absent.
 */
import { coversAgent, coversName } from '../../proto/language/covers.ts';
import type { Override } from '../../proto/language/types.ts';
import type { Principal } from '../call/principal.ts';
import type { Snapshot, Version } from '../table/snapshot.ts';

/** Rules for one candidate, blocks before drains. */
export type ProviderRules = readonly Override[];

/** By candidate of the version, in its order; null when no rule concerns any of them (the usual case). */
export function rulesFor(table: Snapshot, version: Version): readonly ProviderRules[] | null {
  const relevant = table.overrides
    .filter((rule) => rule.provider !== null && coversName(rule.capability, version.capability.name))
    .sort((a, b) => strength(a) - strength(b));
  if (relevant.length === 0) return null;
  return version.candidates.map(({ provider }) => relevant.filter((rule) => coversAgent(rule.provider as string, provider.agentId)));
}

/** A drain lets what goes on there go on; all others let nothing through. */
function strength({ action }: Override): number {
  return action === 'block' ? 0 : action === 'drain' ? 2 : 1;
}

/** The rule in force for this candidate and caller, or null. */
export function ruleInForce(rules: ProviderRules, wallMs: number, caller: Principal | null): Override | null {
  for (const rule of rules) {
    if (rule.expiresAtMs !== null && rule.expiresAtMs <= wallMs) continue;
    if (rule.caller !== null && (caller === null || !coversAgent(rule.caller, caller.agent))) continue;
    return rule;
  }
  return null;
}

/** Whether any rule depends on who calls: then nothing may be cached across callers. */
export function anyByCaller(rules: readonly ProviderRules[]): boolean {
  return rules.some((ofOne) => ofOne.some((rule) => rule.caller !== null));
}

/** When, by the wall clock, the next rule runs out; Infinity = none will. */
export function nextExpiry(rules: readonly ProviderRules[], wallMs: number): number {
  let next = Number.POSITIVE_INFINITY;
  for (const ofOne of rules) {
    for (const rule of ofOne)
      if (rule.expiresAtMs !== null && rule.expiresAtMs > wallMs && rule.expiresAtMs < next) next = rule.expiresAtMs;
  }
  return next;
}
