/** The policy fields that contracts, operators' policies and provider records share: retry, breaker, limits, fallback, times. */
import { agentIdProblem, parseTarget } from './names.ts';
import { adviceOf, shownDefault } from './defaults.ts';
import { type Field, mapped, object, optional, type ReadFields, type Shape } from './reader.ts';
import { anyJson, choice, count, duration, flag, hasKey, isText, list, ratio, size, text } from './shapes.ts';
import type { BreakerPolicy, FallbackPolicy, FallbackStep, LimitsPolicy, RetryPolicy, StreamClocks } from './types.ts';

/** A field whose advice and default stand in the table of defaults. */
export function setting<T>(key: string, shape: Shape<T>): Field<T | null> {
  return optional(shape, adviceOf(key), null, shownDefault(key));
}

/** A map of settings, all of them optional; absent, every one of them is unsaid. */
export function settings<T>(shape: Shape<T>, doc: string, unsaid: T): Field<T> {
  return optional<T, T>(shape, doc, unsaid);
}

export const NO_RETRY: RetryPolicy = Object.freeze({ max: null, backoffMs: null, backoffMaxMs: null, minRemainingRatio: null });

export const retry: Shape<RetryPolicy> = mapped(
  object('map', {
    max: setting('retry.max', count(0, 2)),
    backoff: setting('retry.backoff', duration(0, 10_000)),
    backoff_max: setting('retry.backoff_max', duration(0, 60_000)),
    min_remaining: setting('retry.min_remaining', ratio(true)),
  }),
  (read, place) => {
    if (read.backoff !== null && read.backoff_max !== null && read.backoff > read.backoff_max)
      return place.at('backoff_max').bad('backoff_max must not be shorter than backoff');
    return { max: read.max, backoffMs: read.backoff, backoffMaxMs: read.backoff_max, minRemainingRatio: read.min_remaining };
  },
);

export const NO_BREAKER: BreakerPolicy = Object.freeze({
  enabled: null,
  failureRatio: null,
  windowMs: null,
  slowRatio: null,
  slowCallMs: null,
  minCalls: null,
  openMs: null,
  probes: null,
  successes: null,
  ramp: null,
  rampStepMs: null,
});

const ramp: Shape<readonly number[]> = mapped(list(count(1, 100_000), 16), (steps, place) => {
  for (let i = 1; i < steps.length; i++)
    if ((steps[i] as number) < (steps[i - 1] as number))
      return place.bad('ramp must not go down: each step allows at least as many calls as the one before');
  return steps;
});

export const breaker: Shape<BreakerPolicy> = mapped(
  object('map', {
    enabled: setting('breaker.enabled', flag),
    failure_ratio: setting('breaker.failure_ratio', ratio(false)),
    window: setting('breaker.window', duration(1_000, 3_600_000)),
    slow_ratio: setting('breaker.slow_ratio', ratio(false)),
    slow_call: setting('breaker.slow_call', duration(1, 3_600_000)),
    min_calls: setting('breaker.min_calls', count(1, 100_000)),
    open: setting('breaker.open', duration(100, 86_400_000)),
    probes: setting('breaker.probes', count(1, 100)),
    successes: setting('breaker.successes', count(1, 100)),
    ramp: setting('breaker.ramp', ramp),
    ramp_step: setting('breaker.ramp_step', duration(10, 600_000)),
  }),
  (read) => ({
    enabled: read.enabled,
    failureRatio: read.failure_ratio,
    windowMs: read.window,
    slowRatio: read.slow_ratio,
    slowCallMs: read.slow_call,
    minCalls: read.min_calls,
    openMs: read.open,
    probes: read.probes,
    successes: read.successes,
    ramp: read.ramp,
    rampStepMs: read.ramp_step,
  }),
);

export const NO_LIMITS: LimitsPolicy = Object.freeze({
  perCaller: null,
  perProvider: null,
  requestBytes: null,
  responseBytes: null,
  eventBytes: null,
});

export const NO_CLOCKS: StreamClocks = Object.freeze({ firstChunkMs: null, idleMs: null });

const MAX_BODY = 1_073_741_824;
/** One event is held whole. */
const MAX_EVENT = 67_108_864;

export const limits: Shape<LimitsPolicy> = mapped(
  object('map', {
    per_caller: setting('limits.per_caller', count(1, 1_000_000)),
    per_provider: setting('limits.per_provider', count(1, 1_000_000)),
    request: setting('limits.request', size(1, MAX_BODY)),
    response: setting('limits.response', size(1, MAX_BODY)),
    event: setting('limits.event', size(1_024, MAX_EVENT)),
  }),
  (read) => ({
    perCaller: read.per_caller,
    perProvider: read.per_provider,
    requestBytes: read.request,
    responseBytes: read.response,
    eventBytes: read.event,
  }),
);

/** On a provider's own record: who calls, and what a request or an answer may be, is the capability's. */
export const recordLimits: Shape<LimitsPolicy> = mapped(
  object('map', { per_provider: setting('limits.per_provider', count(1, 1_000_000)) }),
  (read) => ({ ...NO_LIMITS, perProvider: read.per_provider }),
);

/** What a policy may say of one provider: callers and requests are judged before a provider is chosen. */
export const limitsAtProvider: Shape<LimitsPolicy> = mapped(
  object('map', {
    per_provider: setting('limits.per_provider', count(1, 1_000_000)),
    response: setting('limits.response', size(1, MAX_BODY)),
    event: setting('limits.event', size(1_024, MAX_EVENT)),
  }),
  (read) => ({ ...NO_LIMITS, perProvider: read.per_provider, responseBytes: read.response, eventBytes: read.event }),
);

/** How long a stream may keep its reader waiting. */
export const clockFields = {
  first_chunk: setting('streaming.first_chunk', duration(1)),
  idle: setting('streaming.idle', duration(1)),
};

export const clocks: Shape<StreamClocks> = mapped(object('map', clockFields), (read) => ({
  firstChunkMs: read.first_chunk,
  idleMs: read.idle,
}));

function targetProblem(value: string): string | null {
  const target = parseTarget(value);
  return 'problem' in target ? target.problem : null;
}

/** `name`, alias, or either with a range. */
export const target: Shape<string> = text('a capability with or without a range, such as crm.order.query@^2.0', targetProblem);

export const agentId: Shape<string> = text('an agent id (team.role.id)', agentIdProblem);

const step: Shape<FallbackStep> = choice<FallbackStep>('a map with one of the keys capability, provider, static', [
  {
    accepts: hasKey('capability'),
    shape: mapped(
      object('capability step', { capability: optional(target, 'Ask this capability instead.', '') }),
      (read): FallbackStep => ({ kind: 'capability', target: read.capability }),
    ),
  },
  {
    accepts: hasKey('provider'),
    shape: mapped(
      object('provider step', { provider: optional(agentId, 'Ask this provider of the same capability.', '') }),
      (read): FallbackStep => ({ kind: 'provider', agentId: read.provider }),
    ),
  },
  {
    accepts: hasKey('static'),
    shape: mapped(
      object('static step', { static: optional(anyJson, 'Answer with this, marked as degraded.', null) }),
      (read): FallbackStep => ({ kind: 'static', data: read.static }),
    ),
  },
]);

const chain: Shape<FallbackPolicy> = mapped(list(step, 8, 1), (steps, place) => {
  const at = steps.findIndex((each) => each.kind === 'static');
  if (at >= 0 && at < steps.length - 1)
    return place.at(at + 1).bad('this step is never reached: the static answer before it always succeeds');
  return { chain: steps };
});

export const fallback: Shape<FallbackPolicy> = choice<FallbackPolicy>(
  'none, or a list of steps such as {capability: crm.order.lookup}, {provider: crm.order.b1}, {static: {text: "try later"}}',
  [
    {
      accepts: isText,
      shape: mapped(text('none or a list of steps'), (word, place) =>
        word === 'none' ? { chain: Object.freeze([]) } : place.bad(`fallback must be none or a list of steps, not "${word}"`),
      ),
    },
    { accepts: Array.isArray, shape: chain },
  ],
);

/** The settings that a contract and a policy spell alike. */
export const sharedFields = {
  timeout: setting('timeout', duration(1)),
  deadline: setting('deadline', duration(1)),
  retry: settings(retry, 'Whether and how often a failed attempt is tried on another provider.', NO_RETRY),
  breaker: settings(breaker, 'When a failing or slow provider is left alone, and how it comes back.', NO_BREAKER),
  limits: settings(limits, 'How much may be in flight, and how large.', NO_LIMITS),
  fallback: setting('fallback', fallback),
};

export type SharedFields = ReadFields<typeof sharedFields>;

export function sharedSettings(read: SharedFields): {
  readonly timeoutMs: number | null;
  readonly deadlineMs: number | null;
  readonly retry: RetryPolicy;
  readonly breaker: BreakerPolicy;
  readonly limits: LimitsPolicy;
  readonly fallback: FallbackPolicy | null;
} {
  return {
    timeoutMs: read.timeout,
    deadlineMs: read.deadline,
    retry: read.retry,
    breaker: read.breaker,
    limits: read.limits,
    fallback: read.fallback,
  };
}
