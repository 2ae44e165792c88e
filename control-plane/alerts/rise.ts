/**
 * Whether the P95 of a capability has risen, and stayed up, against its own baseline. Pure: out of its minutes, in any order of what
 * went into them.
 *
 * **Baseline.** The stretch before (`baseline`) in a dozen slices of about as many calls each, fewer where there are few calls; of
 * each its P95, and of those the median. So one bad quarter of an hour in it changes little, a quiet stretch is not judged by single
 * calls, and traffic that doubles changes nothing. While an alert lasts its baseline stands still: else it would rise after the alert and end it.
 * Minutes in which clearly more calls went otherwise than they go now, failed or were answered by a fallback, are no part of it: what
 * fails at once is fast, and when it is over, that the capability works again would look like a rise.
 *
 * **Bad.** A P95 of few calls is chance: of a constant distribution every tenth minute with twenty calls lies 40 % above it. So not
 * two P95s are compared, but calls are counted: were the P95 at most the limit (baseline × 1.4), then at most 5 % of the calls would
 * be longer than it. Bad is when more are, by four standard deviations of such a count, and when more are in each part of the time,
 * not only in the sum, which a single bad minute with many calls would spoil. What lies between half of the rise and the limit goes
 * on with a rise and does not begin one.
 *
 * **Time.** Minutes begin when they like: one more whole minute than `for` must be bad, so that it was so for at least `for`.
 */
import { Sketch } from '../../base/sketch.ts';
import type { RiseSettings } from './config.ts';

/** One whole minute. */
export interface MinuteTimes {
  /** Durations of the calls for which a provider was asked; null = there were none. */
  readonly times: Sketch | null;
  /** Share of them that failed or that a fallback answered, 0 to 1. */
  readonly unusual: number;
}

export type Rise =
  /** Too few calls to tell. */
  | { readonly kind: 'unknown' }
  | {
      /** `risen`: all the time; `rising`: lately; `calm`: lately it was not; `between`: neither. */
      readonly kind: 'risen' | 'rising' | 'calm' | 'between';
      /** Of the baseline, held or measured. */
      readonly baselineMs: number;
      readonly limitMs: number;
      /** Of the last `for`. */
      readonly p95Ms: number;
      /** Within `for`. */
      readonly calls: number;
    };

const UNKNOWN: Rise = Object.freeze({ kind: 'unknown' });

/** Share of calls that are longer than a P95. */
const BEYOND = 0.05;
/** Standard deviations: chance gets there once in 30,000 windows at the limit itself, and the limit is 40 % away. */
const SURE = 4;
/** In each half of the time: with few calls the parts alone are too easily bad by chance. */
const HALF_SURE = 2;
/** It is only said that it may be coming. */
const LIKELY = 3;
/** Minutes that show that a rise begins, and that it is over. */
const RISING_MINUTES = 3;
const CALM_MINUTES = 5;
/** Parts of the time, each of which must be bad. */
const PARTS = 5;
/** Of the baseline. */
const SLICES = 12;
const FEWEST_SLICES = 5;
const MINUTE_MS = 60_000;
/** A minute of the baseline may have so much more, as a share, of what failed than there is now: it moves a P95 to a P93 at most. */
const UNUSUAL = 0.25;

/** How many whole minutes are looked at. */
export function minutesNeeded({ forMs, baselineMs }: RiseSettings): number {
  return forMs / MINUTE_MS + 1 + baselineMs / MINUTE_MS;
}

/**
 * @param minutes whole ones, oldest first, without gaps; the newest `minutesNeeded` count
 * @param heldMs P95 that is to be the baseline, of an alert that lasts; null = what was before
 */
export function judgeRise(minutes: readonly MinuteTimes[], settings: RiseSettings, heldMs: number | null): Rise {
  const span = settings.forMs / MINUTE_MS + 1;
  const recent = minutes.slice(-span);
  const before = minutes.slice(-span - settings.baselineMs / MINUTE_MS, -span);
  const baselineMs = heldMs ?? baselineOf(alike(before, recent), settings.minCalls);
  if (baselineMs === null || recent.length < span) return UNKNOWN;
  const all = pooled(recent);
  const p95Ms = all.quantile(1 - BEYOND);
  if (p95Ms === null) return UNKNOWN;
  const limitMs = Math.max(settings.floorMs, baselineMs * (1 + settings.rise));
  const softMs = Math.max(settings.floorMs, baselineMs * (1 + settings.rise / 2));
  const known = { baselineMs, limitMs, p95Ms, calls: all.count };
  const half = Math.ceil(span / 2);
  const isSure =
    all.count >= settings.minCalls &&
    isMore(all, limitMs, SURE) &&
    isMore(pooled(recent.slice(0, half)), limitMs, HALF_SURE) &&
    isMore(pooled(recent.slice(-half)), limitMs, HALF_SURE);
  if (isSure && isSpread(recent) && inAllParts(recent, softMs, Math.max(4, Math.floor(settings.minCalls / PARTS))))
    return { kind: 'risen', ...known };
  const share = (count: number): number => Math.max(5, Math.floor((settings.minCalls * count) / span));
  const newest = pooled(recent.slice(-RISING_MINUTES));
  if (newest.count >= share(RISING_MINUTES) && isMore(newest, limitMs, LIKELY)) return { kind: 'rising', ...known };
  const last = recent.slice(-CALM_MINUTES);
  const lately = pooled(last);
  if (lately.count < share(CALM_MINUTES)) return UNKNOWN;
  // What fails at once is no sign that it is fast again.
  const isCalm = !isMore(lately, softMs, 0) && unusualOf(last) <= UNUSUAL + unusualOf(before);
  return { kind: isCalm ? 'calm' : 'between', ...known };
}

/** The P95 of what was before; null = there were too few calls. */
export function baselineOf(minutes: readonly MinuteTimes[], minCalls: number): number | null {
  let calls = 0;
  for (const { times } of minutes) calls += times?.count ?? 0;
  if (calls < minCalls) return null;
  const sliceCalls = Math.max(Math.floor(minCalls / FEWEST_SLICES), Math.floor(calls / SLICES));
  const p95s: number[] = [];
  let slice: Sketch | null = null;
  for (const { times } of minutes) {
    if (times === null || times.count === 0) continue;
    // A busy minute is a slice by itself.
    if (slice === null && times.count >= sliceCalls) {
      p95s.push(times.quantile(1 - BEYOND) as number);
      continue;
    }
    slice ??= new Sketch();
    slice.merge(times);
    if (slice.count < sliceCalls) continue;
    p95s.push(slice.quantile(1 - BEYOND) as number);
    slice = null;
  }
  p95s.sort((a, b) => a - b);
  return p95s[p95s.length >>> 1] ?? null;
}

/** Those of before in which calls went about as they go now. */
function alike(before: readonly MinuteTimes[], now: readonly MinuteTimes[]): readonly MinuteTimes[] {
  const most = UNUSUAL + unusualOf(now);
  return before.filter(({ unusual }) => unusual <= most);
}

/** Of all their calls. */
function unusualOf(minutes: readonly MinuteTimes[]): number {
  let calls = 0;
  let sum = 0;
  for (const { times, unusual } of minutes) {
    const count = times?.count ?? 0;
    calls += count;
    sum += count * unusual;
  }
  return calls === 0 ? 0 : sum / calls;
}

function pooled(minutes: readonly MinuteTimes[]): Sketch {
  const sum = new Sketch();
  for (const { times } of minutes) if (times !== null) sum.merge(times);
  return sum;
}

/** More calls are longer than `ms` than if it were the P95, by so many standard deviations. */
function isMore(times: Sketch, ms: number, deviations: number): boolean {
  const expected = BEYOND * times.count;
  return times.countAbove(ms) > expected + deviations * Math.sqrt(expected * (1 - BEYOND));
}

/** There were calls all along: not only at the beginning, nor only now. */
function isSpread(minutes: readonly MinuteTimes[]): boolean {
  const isCalled = ({ times }: MinuteTimes): boolean => times !== null && times.count > 0;
  const edge = Math.max(1, Math.floor(minutes.length / 5));
  return (
    minutes.filter(isCalled).length * 2 >= minutes.length && minutes.slice(0, edge).some(isCalled) && minutes.slice(-edge).some(isCalled)
  );
}

/** Each a minute, or as many as hold enough calls; what is left over at the end belongs to the last one. */
function inAllParts(minutes: readonly MinuteTimes[], ms: number, calls: number): boolean {
  const parts: Sketch[] = [];
  let part = new Sketch();
  for (const { times } of minutes) {
    if (times !== null) part.merge(times);
    if (part.count < calls) continue;
    parts.push(part);
    part = new Sketch();
  }
  const last = parts.at(-1);
  if (last === undefined) return false;
  last.merge(part);
  return parts.every((each) => isMore(each, ms, 0));
}
