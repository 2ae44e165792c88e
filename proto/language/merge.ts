/**
 * Which settings hold in the end. Weaker to stronger, field by field: shipped default, contract, the operator's policies
 * from the general pattern to the exact name, then what the operator says for one provider.
 */
import { DEFAULT_SETTINGS } from './defaults.ts';
import type { BreakerSettings, LimitsSettings, RetrySettings, Settings, StreamSettings } from './settings.ts';
import type { Contract, Policy, ProviderRecord } from './types.ts';

/** What a policy says for one provider. */
export type ProviderPolicy = Policy['providers'][string];

/** How many segments a pattern fixes when it covers `name`; -1 = it does not. `*` 0, `crm.*` 1, `crm.order.*` 2, the name itself 3. */
export function specificity(pattern: string, name: string): number {
  if (pattern === name) return 3;
  if (pattern === '*') return 0;
  if (!pattern.endsWith('.*') || !name.startsWith(pattern.slice(0, -1))) return -1;
  return pattern.split('.').length - 1;
}

/** The policies that cover a capability, weakest first; of two with the same pattern the later one is stronger. */
export function policiesFor(name: string, policies: readonly Policy[]): Policy[] {
  const covering: { policy: Policy; rank: number }[] = [];
  for (const policy of policies) {
    const rank = specificity(policy.capability, name);
    if (rank >= 0) covering.push({ policy, rank });
  }
  return covering.sort((a, b) => a.rank - b.rank).map((each) => each.policy);
}

/** The same for many names over one list: a name asks for its own patterns, so that the cost is that of the names and not of each name with each policy. */
export class PolicyIndex {
  readonly #byPattern = new Map<string, Policy[]>();

  constructor(policies: Iterable<Policy>) {
    for (const policy of policies) {
      const same = this.#byPattern.get(policy.capability);
      if (same === undefined) this.#byPattern.set(policy.capability, [policy]);
      else same.push(policy);
    }
  }

  /** As `policiesFor`. */
  covering(name: string): Policy[] {
    const found = [...this.#of('*')];
    for (let dot = name.indexOf('.'); dot >= 0; dot = name.indexOf('.', dot + 1)) found.push(...this.#of(`${name.slice(0, dot)}.*`));
    found.push(...this.#of(name));
    return found;
  }

  #of(pattern: string): readonly Policy[] {
    return this.#byPattern.get(pattern) ?? NO_POLICIES;
  }
}

const NO_POLICIES: readonly Policy[] = Object.freeze([]);

/** What the policies say for one provider, weakest first, as one; null when they say nothing. */
export function providerPolicyFor(agentId: string, policies: readonly Policy[]): ProviderPolicy | null {
  let merged: ProviderPolicy | null = null;
  for (const policy of policies) {
    const own = Object.hasOwn(policy.providers, agentId) ? policy.providers[agentId] : undefined;
    if (own === undefined) continue;
    merged =
      merged === null
        ? own
        : {
            breaker: said(merged.breaker, own.breaker),
            limits: said(merged.limits, own.limits),
            timeoutMs: own.timeoutMs ?? merged.timeoutMs,
            weight: own.weight ?? merged.weight,
            drain: own.drain ?? merged.drain,
          };
  }
  return merged;
}

/** @param policies weakest first, as `policiesFor` gives them. */
export function mergeSettings(contract: Contract, policies: readonly Policy[], provider: ProviderPolicy | null = null): Settings {
  let { timeoutMs, deadlineMs, fallback, load, panic, locality, slowStartMs } = DEFAULT_SETTINGS;
  let retry: RetrySettings = said(DEFAULT_SETTINGS.retry, contract.retry);
  let breaker: BreakerSettings = said(DEFAULT_SETTINGS.breaker, contract.breaker);
  let limits: LimitsSettings = said(DEFAULT_SETTINGS.limits, contract.limits);
  let streaming: StreamSettings =
    contract.streaming === null ? DEFAULT_SETTINGS.streaming : said(DEFAULT_SETTINGS.streaming, contract.streaming);
  timeoutMs = contract.timeoutMs ?? timeoutMs;
  deadlineMs = contract.deadlineMs ?? deadlineMs;
  fallback = contract.fallback ?? fallback;
  for (const policy of policies) {
    timeoutMs = policy.timeoutMs ?? timeoutMs;
    deadlineMs = policy.deadlineMs ?? deadlineMs;
    fallback = policy.fallback ?? fallback;
    load = policy.load ?? load;
    panic = policy.panic ?? panic;
    locality = policy.locality ?? locality;
    slowStartMs = policy.slowStartMs ?? slowStartMs;
    retry = said(retry, policy.retry);
    breaker = said(breaker, policy.breaker);
    limits = said(limits, policy.limits);
    streaming = said(streaming, policy.streaming);
  }
  if (provider !== null) {
    timeoutMs = provider.timeoutMs ?? timeoutMs;
    breaker = said(breaker, provider.breaker);
    limits = said(limits, provider.limits);
  }
  if (retry.backoffMs > retry.backoffMaxMs) retry = { ...retry, backoffMaxMs: retry.backoffMs };
  return Object.freeze({
    timeoutMs,
    deadlineMs,
    retry: Object.freeze(retry),
    breaker: Object.freeze(breaker),
    limits: Object.freeze(limits),
    streaming: Object.freeze(streaming),
    fallback,
    load,
    panic,
    locality,
    slowStartMs,
  });
}

/**
 * Calls at once that a provider takes of one contract: the operator's word for this provider, else its record's, else what its
 * contract and the policies say.
 * @param settings merged of the contract and the same policies
 */
export function providerLimit({ agentId, limits }: ProviderRecord, settings: Settings, policies: readonly Policy[]): number {
  return providerPolicyFor(agentId, policies)?.limits.perProvider ?? limits.perProvider ?? settings.limits.perProvider;
}

/** `weak` with every field that `strong` says. */
function said<W extends object, S extends { readonly [K in keyof W]: W[K] | null }>(weak: W, strong: S): W {
  const merged = { ...weak };
  for (const key of Object.keys(weak) as (keyof W)[]) {
    const value = strong[key];
    if (value !== null) merged[key] = value as W[typeof key];
  }
  return merged;
}
