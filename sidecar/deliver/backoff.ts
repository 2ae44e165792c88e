/** How long a message rests before it is tried again: 1, 2, 4 … 32 s, and up to a fifth more by chance. Pure. */
import type { DeliverSettings } from './settings.ts';

/** @param tries hand-overs so far, at least 1. @param chance 0 up to 1. */
export function pauseAfter(tries: number, chance: number, settings: DeliverSettings): number {
  const doubled = settings.firstPauseMs * 2 ** Math.max(0, Math.min(tries, 64) - 1);
  return Math.round(spread(Math.min(doubled, settings.longestPauseMs), chance, settings));
}

/** As long as whoever refused has said, at least a little. */
export function pauseWhenBusy(askedMs: number, chance: number, settings: DeliverSettings): number {
  return Math.round(spread(Math.min(Math.max(askedMs, settings.busyPauseMs), settings.longestPauseMs), chance, settings));
}

function spread(ms: number, chance: number, { jitter }: DeliverSettings): number {
  return ms * (1 + jitter * chance);
}
