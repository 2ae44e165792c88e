/**
 * Where one candidate stands for one call: may it be chosen, and if not, what is in the way. The live path, the words of
 * a refusal and `explain` all ask here, so that they cannot disagree. Operator's wish first, then what the call itself
 * rules out, then health, then load.
 */
import { signatureOf } from '../../proto/language/override-words.ts';
import type { Override } from '../../proto/language/types.ts';
import type { Call } from '../call/call.ts';
import { type Candidate, offlineWords, type Provider } from '../table/snapshot.ts';
import { type ProviderRules, ruleInForce } from './provider-rules.ts';

export type Standing =
  | 'usable'
  /** Half-open: the next call may find out whether it has recovered. */
  | 'probe'
  | 'blocked'
  | 'drained_by_override'
  | 'draining'
  | 'weight_zero'
  | 'tried'
  | 'offline'
  | 'ejected'
  | 'breaker_open'
  | 'half_open_full'
  | 'ramp_full'
  | 'busy';

/** `held`: the call continues something at this very provider (a live binding, a pin), which a drain lets through. */
export function standingOf(candidate: Candidate, call: Call, rules: ProviderRules | null, now: number, held: boolean): Standing {
  const byOperator = wishOf(candidate, rules, call, held);
  if (byOperator !== null) return byOperator;
  if (candidate.weight <= 0) return 'weight_zero';
  if (wasTried(call, candidate.provider)) return 'tried';
  const usable = candidate.health.usable(now);
  if (usable !== 'yes' && usable !== 'probe') return usable;
  if (isBusy(candidate.provider)) return 'busy';
  return usable === 'yes' ? 'usable' : 'probe';
}

function wishOf(candidate: Candidate, rules: ProviderRules | null, call: Call, held: boolean): Standing | null {
  if (rules !== null && rules.length > 0) {
    const rule = ruleInForce(rules, call.clock.wallMs(), call.principal);
    if (rule !== null && rule.action !== 'drain') return 'blocked';
    if (rule !== null && !held) return 'drained_by_override';
  }
  return candidate.drain && !held ? 'draining' : null;
}

/** At this capability: an earlier one of the fallback chain does not count. */
export function wasTried(call: Call, provider: Provider): boolean {
  const attempts = call.attempts;
  for (let i = 0; i < attempts.length; i++) {
    const tried = (attempts[i] as (typeof attempts)[number]).candidate;
    if (tried.provider.agentId === provider.agentId && (i >= call.attemptsFrom || tried.version.capability === call.capability))
      return true;
  }
  return false;
}

export function isBusy(provider: Provider): boolean {
  return provider.health.inFlight >= provider.health.limit;
}

/** By an operator, as far as this caller is concerned. */
export function isHeldBack(standing: Standing): boolean {
  return standing === 'blocked' || standing === 'drained_by_override' || standing === 'draining';
}

/** For the case of `panic`: unfit by the health view alone, and not known to be gone. */
export function isUnfitOnly(standing: Standing): boolean {
  return standing === 'ejected' || standing === 'breaker_open' || standing === 'half_open_full' || standing === 'ramp_full';
}

/** What an operator reads: `breaker open for another 93 s (12 of 20 calls failed)`. */
export function wordsFor(standing: Standing, candidate: Candidate, call: Call, rules: ProviderRules | null, now: number): string {
  const { health, provider } = candidate;
  switch (standing) {
    case 'usable':
      return 'usable';
    case 'probe':
      return 'half-open, waiting for a probe';
    case 'blocked':
    case 'drained_by_override':
      return overrideWords(standing, rules === null ? null : ruleInForce(rules, call.clock.wallMs(), call.principal));
    case 'draining':
      return 'draining';
    case 'weight_zero':
      return 'weight 0';
    case 'tried':
      return 'tried already in this call';
    case 'offline':
      return offlineWords(provider);
    case 'ejected':
      return `ejected for another ${seconds(provider.health.ejectedUntil - now)} after failing in a row`;
    case 'breaker_open': {
      const at = health.reopensAt(now);
      const why = health.why === '' ? '' : ` (${health.why})`;
      return `breaker open${at === null ? '' : ` for another ${seconds(at - now)}`}${why}`;
    }
    case 'half_open_full':
      return `half-open, ${health.limitedInFlight} of ${health.settings.probes} probes under way`;
    case 'ramp_full':
      return `ramping up again, its ${health.limitedInFlight} places are taken`;
    case 'busy':
      return `${provider.health.inFlight} calls in flight, its limit`;
  }
}

function overrideWords(standing: 'blocked' | 'drained_by_override', rule: Override | null): string {
  const verb = standing === 'blocked' ? 'blocked' : 'draining';
  return rule === null ? verb : `${verb} by override ${rule.name}: ${rule.reason} (by ${signatureOf(rule)})`;
}

function seconds(ms: number): string {
  const value = Math.max(0, ms) / 1000;
  return `${value >= 10 ? Math.ceil(value) : Math.ceil(value * 10) / 10} s`;
}
