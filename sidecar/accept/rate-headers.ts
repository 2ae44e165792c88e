/** What an agent may still ask for, as headers of an answer: messages by its rate, calls by its quota. */
import type { RateView } from '../call/call-quota.ts';
import type { Call } from '../call/call.ts';

/** Limit, what is left of it, and in how many seconds it is whole again. */
export function pushRate(head: string[], { limit, remaining, resetMs }: RateView): void {
  head.push(
    'ratelimit-limit',
    String(limit),
    'ratelimit-remaining',
    String(remaining),
    'ratelimit-reset',
    String(Math.ceil(resetMs / 1_000)),
  );
}

/** Of a caller that has a quota of calls. What a provider says of its own limit, in an answer that is passed on as it came, is left as it is. */
export function pushQuota(head: string[], call: Call): void {
  if (call.quota === null) return;
  const rate = call.quota.view(call.clock.now());
  if (rate === null) return;
  for (const name of head) if (name === 'ratelimit-limit') return;
  pushRate(head, rate);
}
