/**
 * The shipped defaults of a call's policies: one row each, with the reason and the advice that `docs/config.md` prints.
 * What a contract or an operator says wins over them; see `merge.ts`.
 */
import { formatDuration, formatRatio, formatSize } from '../../base/duration.ts';
import type { Settings } from './settings.ts';

export interface DefaultRow<T = unknown> {
  /** As written in a contract or a policy. */
  readonly key: string;
  readonly value: T;
  /** The value as a person would write it. */
  readonly shown: string;
  /** Why this value. */
  readonly reason: string;
  /** When to change it, and what that does. */
  readonly advice: string;
}

const all: DefaultRow[] = [];

function row<T>(key: string, value: T, show: (value: T) => string, reason: string, advice: string): T {
  all.push(Object.freeze({ key, value, shown: show(value), reason, advice }));
  return value;
}

const plain = (value: unknown): string => JSON.stringify(value).replaceAll('"', '').replaceAll(',', ', ');

/** Settings when nobody says anything. */
export const DEFAULT_SETTINGS: Settings = Object.freeze({
  timeoutMs: row(
    'timeout',
    5_000,
    formatDuration,
    'half of the default deadline: one attempt that hangs leaves time for another one',
    'Time of one attempt. Rule services: 500ms. Language models: 30s to 60s, with a deadline to match.',
  ),
  deadlineMs: row(
    'deadline',
    10_000,
    formatDuration,
    'what a person at a screen will wait for',
    "Total time of the task, retries and fallback included, when the caller names none. Raise it for batch work; it is cut to the sidecar's `max_deadline`.",
  ),
  retry: Object.freeze({
    max: row(
      'retry.max',
      1,
      plain,
      'the second provider nearly always answers when the first failed; a third try adds load just when it hurts',
      'Retries on other providers after the first attempt, 0 to 2. Only idempotent or keyed work, or work that provably never started, is retried at all.',
    ),
    backoffMs: row(
      'retry.backoff',
      25,
      formatDuration,
      'another provider is asked, so there is little to wait for',
      'Wait before the first retry, doubled for the next, with jitter.',
    ),
    backoffMaxMs: row(
      'retry.backoff_max',
      250,
      formatDuration,
      'a longer wait is better spent on failing fast',
      'Upper bound of the wait. Raised to `backoff` when that is longer.',
    ),
    minRemainingRatio: row(
      'retry.min_remaining',
      0.2,
      formatRatio,
      'a retry with less time than this seldom ends in time, but always costs the provider',
      'No retry when less than this share of the total deadline is left.',
    ),
  }),
  breaker: Object.freeze({
    enabled: row(
      'breaker.enabled',
      true,
      plain,
      'a provider that fails every second call is worth leaving alone',
      'Switch it off only for a provider whose errors say nothing about its health.',
    ),
    failureRatio: row(
      'breaker.failure_ratio',
      0.5,
      formatRatio,
      'errors of single requests stay far below this, outages far above',
      'Share of failed calls in the window that opens the breaker. Lower it where a good alternative exists.',
    ),
    windowMs: row(
      'breaker.window',
      60_000,
      formatDuration,
      'long enough to hold the minimum of calls of a quiet capability',
      'Length of the sliding window. Shorter reacts sooner and forgets sooner.',
    ),
    slowRatio: row(
      'breaker.slow_ratio',
      0.3,
      formatRatio,
      'when every third call is slow, the waiting callers are hurt as by an outage',
      'Share of slow calls in the window that opens the breaker.',
    ),
    slowCallMs: row(
      'breaker.slow_call',
      3_000,
      formatDuration,
      'three times what is usual for an agent that answers without a model',
      'From here on a call counts as slow (first chunk for streams). Set it per capability: rule services 200ms, language models 10s.',
    ),
    minCalls: row(
      'breaker.min_calls',
      10,
      plain,
      'below ten calls a ratio is an accident',
      'Calls that the window must hold before it is judged.',
    ),
    openMs: row(
      'breaker.open',
      120_000,
      formatDuration,
      'an agent needs about this long to be restarted and warm',
      'How long nothing is sent before probes are let through. Shorter recovers sooner and troubles a sick provider more often.',
    ),
    probes: row('breaker.probes', 3, plain, 'enough to see a recovery, too few to be a load', 'Calls let through at once while half-open.'),
    successes: row('breaker.successes', 1, plain, 'the ramp that follows is the careful part', 'Successful probes that close the breaker.'),
    ramp: row<readonly number[]>(
      'breaker.ramp',
      Object.freeze([6, 12, 24]),
      plain,
      'a provider that has just come back is cold; twice as many each step finds its limit without breaking it',
      'Calls in flight allowed in each step after closing, then no limit. An empty list gives the full load at once.',
    ),
    rampStepMs: row(
      'breaker.ramp_step',
      2_000,
      formatDuration,
      "time for a step's calls to end and be judged",
      'Length of one step of the ramp.',
    ),
  }),
  limits: Object.freeze({
    perCaller: row(
      'limits.per_caller',
      64,
      plain,
      'one runaway caller must not fill a provider that others need',
      'Calls in flight per caller and capability. Above it: `caller_busy`, at once; nothing waits.',
    ),
    perProvider: row(
      'limits.per_provider',
      128,
      plain,
      'about what one Node or Python agent serves at a time',
      "Calls in flight per provider. Exact where the provider's own sidecar stands, per caller otherwise. Language models: as many as your quota bears.",
    ),
    requestBytes: row(
      'limits.request',
      1_048_576,
      formatSize,
      'agents pass references to large things, not the things',
      'Largest request body.',
    ),
    responseBytes: row(
      'limits.response',
      8_388_608,
      formatSize,
      'answers are larger than questions; above it a stream is the better way',
      'Largest answer body; streams are not limited.',
    ),
    eventBytes: row(
      'limits.event',
      1_048_576,
      formatSize,
      'what a reader of events must hold at once, and a hundred times what usual ones are; a line end that never comes is noticed here',
      'Largest event (server-sent events) or line (NDJSON) of a stream that is passed on as events. Above it: `response_too_large`, and the provider is cut off. Heavy pieces are better asked for as binary frames, which have no such limit.',
    ),
  }),
  streaming: Object.freeze({
    firstChunkMs: row(
      'streaming.first_chunk',
      30_000,
      formatDuration,
      'a language model under load begins to speak within this; the head alone says nothing about it',
      'Longest time from the start of the attempt to the first piece of a stream (the head has `timeout`). Chat at a screen: 5s. The total deadline holds as well.',
    ),
    idleMs: row(
      'streaming.idle',
      60_000,
      formatDuration,
      'longer than pauses for thought, and about what load balancers on the way grant a silent connection',
      'Longest silence between two pieces of a stream; time in which the caller does not read is not counted. Agents that work long in silence should send something, or have more.',
    ),
  }),
  fallback: row(
    'fallback',
    null,
    () => 'nothing said (fails)',
    'only the owner of a capability knows what a useful lesser answer is',
    'A chain of other capabilities or providers, at last a static answer. Write `none` where failing loudly is wanted (payments).',
  ),
  load: row(
    'load',
    'least_request' as const,
    plain,
    'two random choices and the less busy one: right for even and uneven work, with few and many providers',
    'How instances share the work when nothing before it (override, pin, affinity, health, locality, tier) has decided.',
  ),
  panic: row(
    'panic',
    false,
    plain,
    'a fast clear error is better than a slow unclear one',
    '`true`: when no provider is healthy, all are used rather than none.',
  ),
  locality: row(
    'locality',
    'prefer' as const,
    plain,
    'the near one is faster and does not fail with the line between',
    '`prefer`: same zone, then region, then anywhere, with spill-over. `ignore`: all alike.',
  ),
  slowStartMs: row(
    'slow_start',
    30_000,
    formatDuration,
    'caches and compilers of a fresh process warm up in about this time',
    'How long a new provider takes to reach its full weight; 0s gives it all at once.',
  ),
});

/** Every default, in the order of the docs. */
export const DEFAULT_ROWS: readonly DefaultRow[] = Object.freeze(all);

/** The default of one key, in words. */
export function shownDefault(key: string): string | null {
  return DEFAULT_ROWS.find((each) => each.key === key)?.shown ?? null;
}

/** What the docs say about one key. */
export function adviceOf(key: string): string {
  return DEFAULT_ROWS.find((each) => each.key === key)?.advice ?? '';
}
