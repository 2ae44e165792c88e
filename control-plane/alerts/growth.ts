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
  /** What has been taken so far, counting up: as long as it stands still, the oldest is the same. null = not known. */
  readonly taken: number | null;
}

export type Growth =
  | { readonly kind: 'unknown' }
  | { readonly kind: 'growing'; readonly from: number; readonly to: number }
  /** `forMs`: how long none has been taken. */
  | { readonly kind: 'stuck'; readonly waiting: number; readonly forMs: number }
  | { readonly kind: 'between'; readonly waiting: number }
  | { readonly kind: 'calm'; readonly waiting: number };

/** Fewer looks than this in a third say nothing. */
const FEWEST_LOOKS = 2;

/** @param seen oldest first; it may reach back further than the window */
export function judgeGrowth(seen: readonly Seen[], { floor, windowMs, stuckMs }: BacklogSettings): Growth {
  const last = seen.at(-1);
  if (last === undefined) return { kind: 'unknown' };
  const forMs = stillFor(seen);
  if (last.waiting > 0 && forMs >= stuckMs) return { kind: 'stuck', waiting: last.waiting, forMs };
  if (last.waiting === 0) return { kind: 'calm', waiting: 0 };
  const from = last.atMs - windowMs;
  const first = seen.filter(({ atMs }) => atMs >= from && atMs <= from + windowMs / 3);
  const newest = seen.filter(({ atMs }) => atMs > last.atMs - windowMs / 3);
  const isWhole = first.length >= FEWEST_LOOKS && newest.length >= FEWEST_LOOKS && (seen[0] as Seen).atMs <= from + windowMs / 6;
  // Without a whole window behind it nothing is called growing; what is little is little all the same.
  if (!isWhole) return last.waiting < floor && forMs < stuckMs / 2 && seen.length > 1 ? { kind: 'calm', waiting: last.waiting } : { kind: 'unknown' };
  const least = Math.min(...newest.map(({ waiting }) => waiting));
  const most = Math.max(...first.map(({ waiting }) => waiting));
  if (least >= floor && least > most) return { kind: 'growing', from: most, to: last.waiting };
  const wasLeast = Math.min(...first.map(({ waiting }) => waiting));
  const isMost = Math.max(...newest.map(({ waiting }) => waiting));
  const isDraining = isMost < wasLeast || isMost < floor;
  return { kind: isDraining && forMs < stuckMs / 2 ? 'calm' : 'between', waiting: last.waiting };
}

/** For how long some have waited and none was taken, up to the last look. */
function stillFor(seen: readonly Seen[]): number {
  const last = seen.at(-1) as Seen;
  if (last.taken === null) return 0;
  let since = last.atMs;
  for (let i = seen.length - 1; i >= 0; i--) {
    const { atMs, waiting, taken } = seen[i] as Seen;
    if (waiting === 0 || taken !== last.taken) break;
    since = atMs;
  }
  return last.atMs - since;
}
