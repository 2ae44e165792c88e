/**
 * Who finds out whether a half-open provider has recovered. It gets the next call although others are healthy, else it
 * would never heal; but only one at a time, only where it would be preferred if it were well, not with a retry, and with
 * work that must run only once just when nobody else is usable or no repeatable call has come for a second.
 */
import type { Call } from '../call/call.ts';
import type { Candidate } from '../table/snapshot.ts';
import { isBusy } from './standing.ts';
import { placeOf, type View } from './view.ts';

/** How long work that may be repeated is waited for before work that may not has to do the probing. */
export const ONCE_PROBES_AFTER_MS = 1_000;

/** Whether this call is of the kind that should probe now, although others are usable. */
export function mayProbe(call: Call, view: View, now: number): boolean {
  if (call.attempts.length > call.attemptsFrom) return false;
  return call.execution !== 'once' || view.usable === 0 || now - view.state.repeatableAt >= ONCE_PROBES_AFTER_MS;
}

export function probeFor(call: Call, view: View, now: number): Candidate | null {
  if (!mayProbe(call, view, now)) return null;
  const limit = view.groups[0]?.place ?? Number.POSITIVE_INFINITY;
  for (const candidate of view.probes) {
    if (candidate.health.limitedInFlight === 0 && placeOf(candidate) <= limit && !isBusy(candidate.provider)) return candidate;
  }
  return null;
}
