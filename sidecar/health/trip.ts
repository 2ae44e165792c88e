/** When counts are bad enough to open a breaker. Pure arithmetic; ratios are compared by division, so that 7 of 100 is 0.07. */
import type { BreakerSettings } from '../../proto/language/settings.ts';

export type TripCause = 'failures' | 'slow';

/**
 * Null = not bad enough. `minCalls`: samples needed before any judgement. `minBad`: bad ones needed, whatever the
 * ratio says (after a recovery one stray failure among the first calls must not count as 100 %).
 */
export function tripCause(
  calls: number,
  failures: number,
  slow: number,
  minCalls: number,
  minBad: number,
  settings: BreakerSettings,
): TripCause | null {
  if (calls < minCalls) return null;
  if (failures > 0 && failures >= minBad && failures / calls >= settings.failureRatio) return 'failures';
  if (slow > 0 && slow >= minBad && slow / calls >= settings.slowRatio) return 'slow';
  return null;
}

/** For people: which limit was passed, by what, in which span. */
export function tripWords(cause: TripCause, calls: number, failures: number, slow: number, settings: BreakerSettings): string {
  const window = `in the last ${seconds(settings.windowMs)}`;
  return cause === 'failures'
    ? `${failures} of ${calls} calls failed ${window} (limit ${percent(settings.failureRatio)})`
    : `${slow} of ${calls} calls took longer than ${seconds(settings.slowCallMs)} ${window} (limit ${percent(settings.slowRatio)})`;
}

/**
 * How long a probe may be under way, ms. Twice the slow limit is already a failed probe; the floor keeps a fast service
 * (slow at 200 ms) from condemning a probe that is merely waiting for a connection.
 */
export function probeLimitMs(slowCallMs: number): number {
  return Math.max(slowCallMs * PROBE_SLOW_FACTOR, PROBE_FLOOR_MS);
}

export const PROBE_SLOW_FACTOR = 2;
export const PROBE_FLOOR_MS = 30_000;

export function seconds(ms: number): string {
  return ms < 1000 ? `${Math.round(ms)} ms` : `${Math.round(ms / 100) / 10} s`;
}

function percent(ratio: number): string {
  return `${Math.round(ratio * 1000) / 10} %`;
}
