/** Why nobody can be chosen: every candidate with its reason, and the one code that fits them all. */
import type { Call } from '../call/call.ts';
import { type Reason, Verdict } from '../call/verdict.ts';
import type { Candidate } from '../table/snapshot.ts';
import { Reasons } from './reasons.ts';
import { type Standing, standingOf, wordsFor } from './standing.ts';
import type { View } from './view.ts';

/** Named one by one up to here; the rest are counted by what is in the way. */
const NAMED_MAX = 8;

type Family = 'breaker' | 'busy' | 'operator' | 'tried' | 'other';

const FAMILY: Readonly<Record<Standing, Family>> = {
  usable: 'other',
  probe: 'other',
  blocked: 'operator',
  drained_by_override: 'operator',
  draining: 'other',
  weight_zero: 'other',
  tried: 'tried',
  offline: 'other',
  ejected: 'other',
  breaker_open: 'breaker',
  half_open_full: 'breaker',
  ramp_full: 'breaker',
  busy: 'busy',
};

/** `views`: of the versions that were looked at so far. */
export function refusal(call: Call, views: readonly View[], now: number): Verdict {
  const words: string[] = [];
  const more = new Map<Standing, number>();
  const families = new Set<Family>();
  for (const view of views) {
    for (const candidate of view.version.candidates) {
      const rules = view.rulesOf(candidate);
      const standing = standingOf(candidate, call, rules, now, false);
      // A weight of 0 is nobody's failure: it says nothing about what is wrong with the others.
      if (standing !== 'weight_zero') families.add(FAMILY[standing]);
      if (words.length < NAMED_MAX)
        words.push(`${nameIn(candidate, views.length > 1)}: ${wordsFor(standing, candidate, call, rules, now)}`);
      else more.set(standing, (more.get(standing) ?? 0) + 1);
    }
  }
  if (more.size > 0) words.push(`and ${[...more].map(([standing, count]) => `${count} more ${standing.replaceAll('_', ' ')}`).join(', ')}`);
  return new Verdict(reasonFor(families), call.capability?.name ?? '', words.join('; '));
}

function nameIn(candidate: Candidate, severalVersions: boolean): string {
  return severalVersions ? `${candidate.provider.agentId} (${candidate.version.text})` : candidate.provider.agentId;
}

function reasonFor(families: ReadonlySet<Family>): Reason {
  if (families.size !== 1) return Reasons.noneHealthy;
  if (families.has('breaker')) return Reasons.breakerOpen;
  if (families.has('busy')) return Reasons.busy;
  if (families.has('operator')) return Reasons.blocked;
  return families.has('tried') ? Reasons.allTried : Reasons.noneHealthy;
}

/** When the first of those that are being left alone may be asked again, ms from now; 0 = not known. */
export function comeBackMs(call: Call, now: number): number {
  let soonest = 0;
  for (const version of call.lines) {
    for (const candidate of version.candidates) {
      const ms = candidate.health.retryAfterMs(now);
      if (ms > 0 && (soonest === 0 || ms < soonest)) soonest = ms;
    }
  }
  return soonest;
}

/** For one provider asked for by name. */
export function pinRefusal(standing: Standing, candidate: Candidate, words: string): Verdict {
  const family = FAMILY[standing];
  const reason =
    family === 'breaker'
      ? Reasons.pinBreaker
      : family === 'busy'
        ? Reasons.pinBusy
        : family === 'operator'
          ? Reasons.pinBlocked
          : Reasons.pinUnusable;
  return new Verdict(reason, candidate.provider.agentId, words);
}
