/**
 * Whether a backlog is growing, out of how many waited at some times. Pure.
 *
 * A queue breathes: it fills while a batch comes in and empties again, and what it holds at two instants says nothing. It is growing
 * when the least that was seen in the last third of the window lies above the most of the first third, and above the floor. Draining
 * is the same the other way round, or being below the floor. And few that wait are too many when none of them is taken any more: the
 * oldest has then been waiting for longer and longer.
 */
import type { BacklogSettings } from './config.ts';

export interface Seen {
  readonly atMs: number;
  readonly waiting: number;
}

/** For how long some have waited and none was taken. */
export interface Still {
  readonly forMs: number;
  /** It may be longer: since it is looked at, none has been taken. */
  readonly isAtLeast: boolean;
}

export type Growth =
  | { readonly kind: 'unknown' }
  | { readonly kind: 'growing'; readonly from: number; readonly to: number }
  | { readonly kind: 'stuck' | 'between' | 'calm' };

const UNKNOWN: Growth = Object.freeze({ kind: 'unknown' });
const STUCK: Growth = Object.freeze({ kind: 'stuck' });
const BETWEEN: Growth = Object.freeze({ kind: 'between' });
const CALM: Growth = Object.freeze({ kind: 'calm' });

/** Fewer looks than this in a third say nothing. */
const FEWEST_LOOKS = 2;

/** @param seen oldest first; it may reach back further than the window @param still null = of this list nobody takes anything away by itself */
export function judgeGrowth(
  seen: readonly Seen[],
  still: Still | null,
  { floor, windowMs, stuckMs }: Omit<BacklogSettings, 'enabled'>,
): Growth {
  const last = seen.at(-1);
  if (last === undefined) return UNKNOWN;
  if (last.waiting === 0) return CALM;
  if (still !== null && still.forMs >= stuckMs) return STUCK;
  const from = last.atMs - windowMs;
  const first = seen.filter(({ atMs }) => atMs >= from && atMs <= from + windowMs / 3);
  const newest = seen.filter(({ atMs }) => atMs > last.atMs - windowMs / 3);
  const isWhole = (seen[0] as Seen).atMs <= from + windowMs / 6;
  if (!isWhole || first.length < FEWEST_LOOKS || newest.length < FEWEST_LOOKS) return UNKNOWN;
  const [firstLeast, firstMost] = range(first);
  const [newestLeast, newestMost] = range(newest);
  if (newestLeast >= floor && newestLeast > firstMost) return { kind: 'growing', from: firstMost, to: last.waiting };
  const isMoving = still === null || (!still.isAtLeast && still.forMs < stuckMs / 2);
  return isMoving && (newestMost < firstLeast || newestMost < floor) ? CALM : BETWEEN;
}

function range(seen: readonly Seen[]): readonly [least: number, most: number] {
  let least = Number.POSITIVE_INFINITY;
  let most = 0;
  for (const { waiting } of seen) {
    if (waiting < least) least = waiting;
    if (waiting > most) most = waiting;
  }
  return [least, most];
}
