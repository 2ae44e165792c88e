/**
 * Whether a failed attempt is followed by another, elsewhere. Work that may have been done is repeated only when the
 * contract (or the caller, for this call) says that repeating is harmless; an attempt that provably never started may go
 * elsewhere whatever the work is. A key alone never makes an ambiguous attempt repeatable. The hop that answered "do not
 * repeat" is believed, local refusals are never repeated, and a budget over all calls stops storms. Where nobody else could
 * serve, nothing is waited for and nothing is taken from the budget.
 */
import type { Random } from '../../base/random.ts';
import { Code } from '../../proto/wire/codes.ts';
import { Header } from '../../proto/wire/headers.ts';
import type { Attempt } from '../call/attempt-record.ts';
import type { Call } from '../call/call.ts';
import { elsewhere } from '../call/elsewhere.ts';
import { ending, passing, refusing, Verdict } from '../call/verdict.ts';
import type { Candidate } from '../table/snapshot.ts';
import type { RetryBudget } from './budget.ts';

const again = passing('retry', 'elsewhere', 'retry {a} of {b}, elsewhere, after {c} ms');
const notForThis = ending('retry', 'not_repeatable', '{a} is not a failure that another provider could mend');
const once = ending('retry', 'may_have_acted', 'the work runs at most once and {a} may have acted: not repeated');
const toldNot = ending('retry', 'told_not_to', '{a} said that this must not be repeated');
const notWanted = ending('retry', 'not_wanted', 'the caller wants no attempt repeated (Reach-Retry: none)');
const spent = ending('retry', 'spent', 'all {a} retries are used');
const late = ending('retry', 'too_late', '{a} ms of {b} are left, less than the {c} % that a retry needs');
const noBudget = refusing(
  'retry',
  'budget_spent',
  Code.retry_budget_spent,
  'too many calls are being retried ({a} of the last {b}); the attempt failed with {c}',
);
const limitStands = ending(
  'retry',
  'budget_spent_on_limit',
  'too many calls are being retried ({a} of the last {b}), and {c} is at its quota: that stands',
);
const nobodyElse = ending('retry', 'nobody_else', 'no other provider can be used now: {a} was the last');
const gone = ending('retry', 'caller_gone', 'the caller went away');

/** Failures that another provider may not share. 3004 (the provider's own rate limit) is one: elsewhere there may be room. */
const REPEATABLE: ReadonlySet<number> = new Set([
  Code.connect_timeout,
  Code.connection_lost,
  Code.response_timeout,
  Code.bad_response,
  Code.stream_interrupted,
  Code.tls_failed,
  Code.none_healthy,
  Code.breaker_open,
  Code.provider_busy,
  Code.rate_limited,
  Code.invalid_response,
  Code.provider_error,
]);

/**
 * The provider's own sidecar knew something before we did: the agent has left, is drained, or the sidecar stops. The word is
 * on its way to us too, and till it is here a call must not be lost by it; the others are not concerned.
 */
const NOT_THERE: ReadonlySet<number> = new Set([Code.no_provider, Code.blocked_by_operator]);

/** Provider statuses below 500 that mean "not now, not here" rather than "your fault". */
const TRY_ELSEWHERE: ReadonlySet<number> = new Set([408, 425, 429]);

export function retry(call: Call, budget: Pick<RetryBudget, 'take' | 'recent'>, random: Random): Verdict {
  const last = call.attempts[call.attempts.length - 1] as Attempt;
  const { retry: policy } = (call.chosen as Candidate).settings;
  const agent = last.candidate.provider.agentId;
  if (call.cancelled) return new Verdict(gone);
  if (!isMendable(last)) return new Verdict(notForThis, `${last.code}`);
  const startedThere = last.started !== 'not_started' && last.status !== 425;
  if (startedThere && call.execution === 'once') return new Verdict(once, agent);
  if (call.noRetry) return new Verdict(toldNot, agent);
  if (call.headers[Header.retry] === 'none') return new Verdict(notWanted);
  const used = call.attempts.length - call.attemptsFrom - 1;
  if (used >= policy.max) return new Verdict(spent, policy.max);
  const now = call.clock.now();
  if (elsewhere(call, now) === 'nobody') return new Verdict(nobodyElse, agent);
  const pause = startedThere && last.code !== Code.rate_limited ? backoffMs(used, policy.backoffMs, policy.backoffMaxMs, random) : 0;
  const left = Math.min(call.stepEndsAt, call.deadlineAt) - now - pause;
  if (left < policy.minRemainingRatio * call.totalMs)
    return new Verdict(late, Math.max(0, Math.round(left)), Math.round(call.totalMs), Math.round(policy.minRemainingRatio * 100));
  if (!budget.take(now)) {
    const { calls, retries } = budget.recent();
    // The time to wait is worth more than the word that nobody was asked in its place.
    if (last.code === Code.rate_limited && !startedThere) return new Verdict(limitStands, retries, calls, agent);
    return new Verdict(noBudget, retries, calls, last.code);
  }
  call.pauseMs = pause;
  return new Verdict(again, used + 1, policy.max, pause);
}

/** Another provider might do better. */
function isMendable(last: Attempt): boolean {
  if (last.started === 'not_started' && NOT_THERE.has(last.code)) return true;
  if (!REPEATABLE.has(last.code)) return false;
  return last.code !== Code.provider_error || last.status >= 500 || TRY_ELSEWHERE.has(last.status);
}

/** Doubles from the base up to the ceiling; half of it is chance, so that callers who failed together do not return together. */
export function backoffMs(retriesSoFar: number, baseMs: number, maxMs: number, random: Random): number {
  const full = Math.min(maxMs, baseMs * 2 ** retriesSoFar);
  return full / 2 + random.next() * (full / 2);
}
