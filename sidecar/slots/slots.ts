/**
 * Calls in flight per provider. Exact where the provider's own sidecar stands, since every call passes there; at any other
 * caller the count is its own only. No queue: over the limit the call has provably not started, and may go elsewhere.
 */
import { Code } from '../../proto/wire/codes.ts';
import type { Call } from '../call/call.ts';
import { passing, refusing, Verdict } from '../call/verdict.ts';
import type { Candidate } from '../table/snapshot.ts';

const taken = passing('slots', 'free', 'call {a} of {b} allowed at once at {c}');
const busy = refusing('slots', 'provider_busy', Code.provider_busy, '{a} has {b} calls in flight, its limit');

/** Checks only: `attempt` takes the slot in the same turn and gives it back when the body has ended. */
export function slots(call: Call): Verdict {
  const { provider } = call.chosen as Candidate;
  const { inFlight, limit } = provider.health;
  if (inFlight >= limit) return new Verdict(busy, provider.agentId, inFlight);
  return new Verdict(taken, inFlight + 1, limit, provider.agentId);
}
