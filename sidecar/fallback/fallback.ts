/**
 * What happens when a capability cannot be served: the next step of its chain (another capability, a named provider, at
 * last a static answer), or explicitly nothing. Never for what is the caller's own mistake, or for a capability or
 * version that does not exist: an answer from somewhere else would hide that. A used fallback is marked in the Result.
 *
 * A step that this caller, or this payload, cannot have is passed over. When no step is left the failure that led here
 * stands: a refusal of something that was never asked for would explain nothing, and tell what is none of the caller's.
 *
 * `once` work that may have been carried out is not begun again by a step that leads to the same capability: another one may stand in.
 */
import type { FallbackStep } from '../../proto/language/types.ts';
import { Code } from '../../proto/wire/codes.ts';
import { isInDoubt } from '../call/attempt-record.ts';
import { type Call, Failure, note } from '../call/call.ts';
import { ending, passing, Verdict, wordsOf } from '../call/verdict.ts';
import type { Capability, Snapshot, Version } from '../table/snapshot.ts';

const toCapability = passing('fallback', 'capability', '{a} failed with {b}: falling back to {c}');
const toProvider = passing('fallback', 'provider', '{a} failed with {b}: falling back to provider {c}');
const toStatic = ending('fallback', 'static', '{a} failed with {b}: answered with the static text of its fallback');
const none = ending('fallback', 'none', '{a} has no fallback');
const refusedByOwner = ending('fallback', 'explicitly_none', '{a} is declared to fail loudly: no fallback');
const notForThis = ending('fallback', 'not_for_this', '{a} is no failure for a fallback');
const noTime = ending('fallback', 'no_time', 'no time is left for a fallback');
const exhausted = ending('fallback', 'exhausted', 'every step of the fallback of {a} was tried');

const notTwice = passing('fallback', 'not_twice', '{a} is passed over: {b} runs at most once and {c} may have acted');

const MENDABLE: ReadonlySet<number> = new Set([
  Code.connect_timeout,
  Code.connection_lost,
  Code.response_timeout,
  Code.bad_response,
  Code.response_too_large,
  Code.stream_interrupted,
  Code.tls_failed,
  Code.none_healthy,
  Code.breaker_open,
  Code.provider_busy,
  Code.rate_limited,
  Code.retry_budget_spent,
  Code.invalid_response,
  Code.deadline_exceeded,
  Code.deadline_too_short,
]);

/** Of a step of the chain: it could not even be tried. */
const UNFIT: ReadonlySet<number> = new Set([
  Code.no_provider,
  Code.no_matching_version,
  Code.affinity_lost,
  Code.loop_detected,
  Code.blocked_by_operator,
  Code.caller_busy,
  Code.forbidden,
  Code.invalid_request,
  Code.payload_too_large,
  Code.affinity_key_missing,
]);

/** Passes when `call` has been pointed at another capability or provider and should be served again. */
export function fallback(
  call: Call,
  find: (table: Snapshot, target: string) => { capability: Capability; range: string | null } | null,
): Verdict {
  const from = call.fallbackFrom ?? call.capability;
  if (from === null) return new Verdict(none, call.asked);
  if (!mendable(call)) return new Verdict(notForThis, call.code);
  const now = call.clock.now();
  if (call.cancelled || now >= call.deadlineAt) return new Verdict(noTime);
  // The first line is the version that was asked for; `lineIndex` has run past the last one when nobody could serve.
  const version = (call.fallbackFrom === null ? call.lines[0] : undefined) ?? from.versions[0];
  const chain = (call.fallbackChain ??= (version as Version).settings.fallback?.chain ?? null);
  if (chain === null && call.degradedBy?.data == null) return new Verdict(none, from.name);
  call.cause ??=
    call.refusal === null
      ? null
      : `${call.refusal.reason.code} ${wordsOf(call.refusal.reason, call.refusal.a, call.refusal.b, call.refusal.c)}`;
  call.firstFailure ??= new Failure(call.code, call.refusal, call.reply, call.status, call.retryAfterMs, call.chosen);
  if (call.degradedBy !== null && call.degradedBy.data !== null) return answer(call, from, staticBody(call.degradedBy.data));
  if (chain?.length === 0) return new Verdict(refusedByOwner, from.name);
  return next(call, from, chain as readonly FallbackStep[], now, find);
}

function next(
  call: Call,
  from: Capability,
  chain: readonly FallbackStep[],
  now: number,
  find: (table: Snapshot, target: string) => { capability: Capability; range: string | null } | null,
): Verdict {
  while (call.fallbackIndex < chain.length) {
    const step = chain[call.fallbackIndex++] as FallbackStep;
    if (step.kind === 'static') return answer(call, from, staticBody(step.data));
    if (now >= call.stepEndsAt) continue;
    const code = call.code;
    if (step.kind === 'provider') {
      if (hasFailed(call, from, step.agentId) || wouldRunTwice(call, from, step.agentId)) continue;
      restart(call, from, from, call.range);
      call.pin = step.agentId;
      return new Verdict(toProvider, from.name, code, step.agentId);
    }
    const target = find(call.table as Snapshot, step.target);
    if (target === null || wouldRunTwice(call, target.capability, step.target)) continue;
    restart(call, from, target.capability, target.range);
    return new Verdict(toCapability, from.name, code, step.target);
  }
  if (UNFIT.has(call.code)) undo(call, from);
  return new Verdict(exhausted, from.name);
}

/** As if the steps that could not be tried had not been there. */
function undo(call: Call, from: Capability): void {
  const first = call.firstFailure;
  if (first === null || call.attempts.length > call.attemptsFrom) return;
  call.code = first.code;
  call.refusal = first.refusal;
  call.reply = first.reply;
  call.status = first.status;
  call.retryAfterMs = first.retryAfterMs;
  call.chosen = first.chosen;
  call.capability = from;
  call.degraded = false;
}

/** Nobody is asked the same thing twice in one call. */
function hasFailed(call: Call, capability: Capability, agentId: string): boolean {
  for (const { candidate } of call.attempts)
    if (candidate.provider.agentId === agentId && candidate.version.capability === capability) return true;
  return false;
}

function wouldRunTwice(call: Call, capability: Capability, step: string): boolean {
  for (const attempt of call.attempts) {
    const { provider, version } = attempt.candidate;
    if (version.capability !== capability || !isInDoubt(attempt)) continue;
    note(call, new Verdict(notTwice, step, capability.name, provider.agentId));
    return true;
  }
  return false;
}

function mendable(call: Call): boolean {
  if (call.degradedBy !== null || (call.fallbackFrom !== null && UNFIT.has(call.code))) return true;
  return MENDABLE.has(call.code) || (call.code === Code.provider_error && call.status >= 500);
}

/** Points the call at the next thing to try; the attempts made so far stay in its record. */
function restart(call: Call, from: Capability, capability: Capability, range: string | null): void {
  call.fallbackFrom = from;
  call.capability = capability;
  call.range = range;
  call.pin = null;
  call.lines = [];
  call.lineIndex = 0;
  call.chosen = null;
  call.degradedBy = null;
  call.noRetry = false;
  call.retryAfterMs = 0;
  call.attemptsFrom = call.attempts.length;
  call.degraded = true;
}

function answer(call: Call, from: Capability, body: Buffer): Verdict {
  const code = call.code;
  call.fallbackFrom = from;
  call.staticBody = body;
  call.degraded = true;
  call.code = Code.ok;
  call.status = 200;
  call.refusal = null;
  call.reply = null;
  return new Verdict(toStatic, from.name, code);
}

const bodies = new WeakMap<object, Buffer>();

/** Made once per configured answer. */
function staticBody(data: unknown): Buffer {
  if (typeof data !== 'object' || data === null) return Buffer.from(JSON.stringify(data));
  let body = bodies.get(data);
  if (body === undefined) {
    body = Buffer.from(JSON.stringify(data));
    bodies.set(data, body);
  }
  return body;
}
