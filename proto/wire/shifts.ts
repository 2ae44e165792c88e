/**
 * What is measured while traffic is shifted: sidecars learn from the tail `shifts` which capabilities are watched, count
 * the attempts that they make themselves by version and provider, and tell the counts with their reports, each second
 * while there is something to tell. Nothing is counted while nothing is shifted.
 */
import { sketchBucket, sketchEndMs } from '../../base/sketch.ts';

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

/** Each is three buckets of base/sketch.ts: a fourth of an octave, 19 % wide, from a quarter of a millisecond to two minutes. */
export const TIME_BUCKETS = 76;
const FINER = 3;
const FIRST_MS = 0.25;
const FIRST = sketchBucket(FIRST_MS);

export function timeBucket(ms: number): number {
  return Math.max(0, Math.min(TIME_BUCKETS - 1, Math.ceil((sketchBucket(ms) - FIRST) / FINER)));
}

/** The upper end of a bucket. */
export function bucketMs(index: number): number {
  return sketchEndMs(FIRST + index * FINER);
}
