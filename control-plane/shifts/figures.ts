/**
 * What was measured of one shift lately: attempts of the new and of the old side in a window that slides in tenths. By the
 * clock of whoever measures, since reports carry counts and no times; begun anew with each step.
 */
import { bucketMs, type ShiftCount, TIME_BUCKETS } from '../../proto/wire/shifts.ts';
import type { Side } from './guard.ts';

const PARTS = 10;

class Slice {
  index = -1;
  readonly calls = [0, 0];
  readonly errors = [0, 0];
  readonly times = [new Float64Array(TIME_BUCKETS), new Float64Array(TIME_BUCKETS)];

  reset(index: number): void {
    this.index = index;
    for (const side of [0, 1]) {
      this.calls[side] = 0;
      this.errors[side] = 0;
      (this.times[side] as Float64Array).fill(0);
    }
  }
}

export class Figures {
  readonly #sliceMs: number;
  readonly #slices = Array.from({ length: PARTS }, () => new Slice());

  constructor(windowMs: number) {
    this.#sliceMs = windowMs / PARTS;
  }

  add(count: ShiftCount, isFresh: boolean, now: number): void {
    const index = Math.floor(now / this.#sliceMs);
    const slice = this.#slices[index % PARTS] as Slice;
    if (slice.index !== index) slice.reset(index);
    const side = isFresh ? 1 : 0;
    slice.calls[side] = (slice.calls[side] as number) + count.calls;
    slice.errors[side] = (slice.errors[side] as number) + Math.min(count.errors, count.calls);
    const times = slice.times[side] as Float64Array;
    for (let i = 0; i + 1 < count.times.length; i += 2) {
      const bucket = count.times[i] as number;
      if (bucket < TIME_BUCKETS) times[bucket] = (times[bucket] as number) + (count.times[i + 1] as number);
    }
  }

  side(isFresh: boolean, now: number): Side {
    const side = isFresh ? 1 : 0;
    const oldest = Math.floor(now / this.#sliceMs) - PARTS + 1;
    const times = new Float64Array(TIME_BUCKETS);
    let calls = 0;
    let errors = 0;
    for (const slice of this.#slices) {
      if (slice.index < oldest) continue;
      calls += slice.calls[side] as number;
      errors += slice.errors[side] as number;
      (slice.times[side] as Float64Array).forEach((count, i) => {
        times[i] = (times[i] as number) + count;
      });
    }
    return { calls, errors, p95Ms: p95(times) };
  }

  clear(): void {
    for (const slice of this.#slices) slice.reset(-1);
  }
}

/** The upper end of the bucket in which it lies. */
function p95(times: Float64Array): number | null {
  const total = times.reduce((sum, count) => sum + count, 0);
  if (total === 0) return null;
  let seen = 0;
  for (let i = 0; i < times.length; i++) {
    seen += times[i] as number;
    if (seen >= 0.95 * total) return bucketMs(i);
  }
  return bucketMs(TIME_BUCKETS - 1);
}
