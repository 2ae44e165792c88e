/**
 * What is measured while traffic is shifted: sidecars learn from the tail `shifts` which capabilities are watched, count
 * the attempts that they make themselves by version and provider, and tell the counts with their reports, each second
 * while there is something to tell. Nothing is counted while nothing is shifted.
 */

/** Pushed as `shifts`. */
export interface ShiftsState {
  readonly wire: number;
  readonly epoch: string;
  /** Capabilities that are watched, sorted. */
  readonly watched: readonly string[];
}

export const MAX_RUNNING_SHIFTS = 50;
/** Versions and providers of one capability that are told apart at one sidecar. */
export const MAX_SHIFT_CELLS = 64;

/** Attempts of one provider in one version, since the report before. */
export interface ShiftCount {
  readonly capability: string;
  readonly version: string;
  readonly provider: string;
  readonly calls: number;
  /** Those that count against the provider, as its breaker sees it. */
  readonly errors: number;
  /** Durations: index of the bucket and how many, in turn. */
  readonly times: readonly number[];
}

/** Buckets a factor of the fourth root of two: 19 % wide, from a quarter of a millisecond to two minutes. */
export const TIME_BUCKETS = 76;
const PER_OCTAVE = 4;
const FIRST_MS = 0.25;

export function timeBucket(ms: number): number {
  if (!(ms > FIRST_MS)) return 0;
  return Math.min(TIME_BUCKETS - 1, Math.ceil(Math.log2(ms / FIRST_MS) * PER_OCTAVE));
}

/** The upper end of a bucket. */
export function bucketMs(index: number): number {
  return FIRST_MS * 2 ** (index / PER_OCTAVE);
}
