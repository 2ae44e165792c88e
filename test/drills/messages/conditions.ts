/**
 * What a drill must have shown to be passed, as a pure function: nothing lost, nothing doubled, nothing stuck, and that it was a trial
 * at all: enough messages, and faults that hit something. A drill that proves nothing fails like one that shows a fault.
 */
import type { Figures, Verdict } from './judge.ts';
import { KINDS } from './team.ts';

export interface Demands {
  /** Accepted messages; for a drill whose messages are submitted several times, submissions. */
  readonly least: number;
  /** Of `once` work: one in hand for each slot of each worker that was killed, at most. */
  readonly mostInDoubt: number;
  readonly mostRecoveryMs: number;
  /** A killed server of 2.9 keeps acknowledged messages that nobody is given again: what is left there is told, and is no condition. */
  readonly emptiesQueue: boolean;
  /** Figures that must be above 0: without them the faults missed the time in which they hurt. */
  readonly hits: readonly (keyof Figures)[];
}

/**
 * What is in the queue when everything has settled; null = that could not be found out. What only the server counts there is told and
 * is no condition: a server of 2.9 that was killed counts messages that it has not got.
 */
export type Left = { readonly messages: number; readonly counted: number; readonly seen?: unknown } | null;

const MUST_BE_ZERO = ['lost', 'keyed_effects_wrong', 'once_started_twice', 'results_per_key_over_one', 'failed'] as const;
const LEAST_RETRIED_OK = 0.999;
const MOST_IDLE_STRIKES = 0.5;

/** A line for everything that is not as it must be. */
export function broken({ figures, kinds, strikes }: Verdict, left: Left, untold: number | null, demands: Demands): string[] {
  const words: string[] = [];
  for (const field of MUST_BE_ZERO) if (figures[field] !== 0) words.push(`${field}: ${figures[field]}`);
  if (figures.retried_ok_ratio < LEAST_RETRIED_OK) words.push(`retried_ok_ratio: ${figures.retried_ok_ratio}`);
  if (figures.accepted < demands.least) words.push(`only ${figures.accepted} messages were accepted of ${demands.least}`);
  for (const kind of KINDS)
    if (kind !== 'once' && kinds[kind].inDoubt > 0)
      words.push(`${kinds[kind].inDoubt} of ${kind} work are in doubt, which it can never be`);
  if (kinds.once.inDoubt > demands.mostInDoubt)
    words.push(`${kinds.once.inDoubt} of once work are in doubt, more than the ${demands.mostInDoubt} that can have been in hand`);
  if (figures.recovery_ms > demands.mostRecoveryMs) words.push(`recovery_ms: ${figures.recovery_ms} of ${demands.mostRecoveryMs}`);
  for (const field of demands.hits) if (figures[field] === 0) words.push(`${field} is 0: the faults missed the time in which they hurt`);
  if (strikes > 0 && figures.idle_strikes > strikes * MOST_IDLE_STRIKES)
    words.push(`nothing was under way at ${figures.idle_strikes} of ${strikes} faults`);
  if (untold !== null && untold > 0) words.push(`${untold} ends are not what their sender reads in its inbox`);
  if (left === null) words.push('what is left in the queue could not be found out');
  else if (left.messages > 0 && demands.emptiesQueue) words.push(`${left.messages} messages are left in the queue`);
  return words;
}
