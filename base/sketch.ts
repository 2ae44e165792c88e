/**
 * Durations as counts in buckets whose bounds are the same everywhere, so that what many processes measured can be added up
 * and a quantile of all of it still has a stated error: at most 3 % of the value (REL_ERROR), from 0.05 ms to 1 h. What is
 * shorter counts as the shortest, what is longer as the longest.
 *
 * Twelve buckets to an octave, each 2^(1/12) wide, above its lower end and up to its upper end. Only the span of buckets that
 * has been seen is kept, so that a thousand of them cost what their durations differ by. Adding is arithmetic and one array
 * write; memory moves only when a duration lies outside the span seen so far.
 */
const PER_OCTAVE = 12;
/** The upper end of bucket 0. */
const FIRST_MS = 1 / 32;
const LAST_MS = 3_600_000;

/** Numbers of buckets are below it. */
export const SKETCH_BUCKETS = Math.ceil(Math.log2(LAST_MS / FIRST_MS) * PER_OCTAVE) + 1;
const STEP = 2 ** (1 / PER_OCTAVE);
/** Of a quantile, between 0.05 ms and 1 h. */
export const REL_ERROR = (STEP - 1) / (STEP + 1);

const MOST = 0xffff_ffff;
/** The span grows by this many at least, and to both sides, so that it soon grows no more. */
const SPARE = 4;

/** The number of the bucket a duration belongs to. */
export function sketchBucket(ms: number): number {
  // NaN as well.
  if (!(ms > FIRST_MS)) return 0;
  const bucket = Math.ceil(Math.log2(ms / FIRST_MS) * PER_OCTAVE);
  return bucket < SKETCH_BUCKETS ? bucket : SKETCH_BUCKETS - 1;
}

/** The upper end of a bucket. */
export function sketchEndMs(bucket: number): number {
  return FIRST_MS * 2 ** (bucket / PER_OCTAVE);
}

/** What stands for all that is in a bucket: as far from its lower end as from its upper end, in parts of the value. */
function middleMs(bucket: number): number {
  if (bucket === 0) return FIRST_MS;
  return (2 * sketchEndMs(bucket)) / (STEP + 1);
}

export class Sketch {
  /** Counts of the buckets from `#from` on. */
  #counts = new Uint32Array(0);
  #from = 0;
  #count = 0;

  /** How many durations have been added. */
  get count(): number {
    return this.#count;
  }

  add(ms: number): void {
    const bucket = sketchBucket(ms);
    let at = bucket - this.#from;
    if (at < 0 || at >= this.#counts.length) at = this.#reach(bucket);
    (this.#counts[at] as number)++;
    this.#count++;
  }

  /** @param bucket 0 to SKETCH_BUCKETS - 1 @param times a whole number, not below 0 */
  addBucket(bucket: number, times: number): void {
    if (times === 0) return;
    let at = bucket - this.#from;
    if (at < 0 || at >= this.#counts.length) at = this.#reach(bucket);
    this.#counts[at] = Math.min(MOST, (this.#counts[at] as number) + times);
    this.#count += times;
  }

  merge(other: Sketch): void {
    const counts = other.#counts;
    for (let i = 0; i < counts.length; i++) this.addBucket(other.#from + i, counts[i] as number);
  }

  /** Adds what `pairs` told. False, and nothing is added, when it is nothing of the kind. */
  addPairs(pairs: readonly unknown[]): boolean {
    if (!arePairs(pairs)) return false;
    for (let i = 0; i < pairs.length; i += 2) this.addBucket(pairs[i] as number, pairs[i + 1] as number);
    return true;
  }

  /** For the wire: bucket and count in turn, rising, those that are empty left out. */
  pairs(): number[] {
    const pairs: number[] = [];
    for (let i = 0; i < this.#counts.length; i++) {
      const count = this.#counts[i] as number;
      if (count > 0) pairs.push(this.#from + i, count);
    }
    return pairs;
  }

  /** The duration that this share of all does not exceed, within REL_ERROR; null = there is nothing. @param share 0 to 1 */
  quantile(share: number): number | null {
    if (this.#count === 0) return null;
    const rank = Math.max(1, Math.ceil(share * this.#count));
    let seen = 0;
    let last = 0;
    for (let i = 0; i < this.#counts.length; i++) {
      const count = this.#counts[i] as number;
      if (count === 0) continue;
      seen += count;
      last = i;
      if (seen >= rank) break;
    }
    return middleMs(this.#from + last);
  }

  /** How many are longer, within REL_ERROR: those of the buckets whose middle is. */
  countAbove(ms: number): number {
    let above = 0;
    for (let i = this.#counts.length - 1; i >= 0 && middleMs(this.#from + i) > ms; i--) above += this.#counts[i] as number;
    return above;
  }

  /** Forgets what was added and keeps the room. */
  clear(): void {
    if (this.#count === 0) return;
    this.#counts.fill(0);
    this.#count = 0;
  }

  /** Gives back the room on both sides that nothing is in: for those that are kept and hardly added to any more. */
  trim(): void {
    const counts = this.#counts;
    let first = 0;
    let end = counts.length;
    while (first < end && counts[first] === 0) first++;
    while (end > first && counts[end - 1] === 0) end--;
    if (end - first === counts.length) return;
    this.#counts = counts.slice(first, end);
    this.#from += first;
  }

  /** Makes room for a bucket; where it stands then. */
  #reach(bucket: number): number {
    const had = this.#counts;
    if (had.length === 0) this.#from = bucket;
    const from = Math.max(0, Math.min(this.#from, bucket - SPARE));
    const end = Math.min(SKETCH_BUCKETS, Math.max(this.#from + had.length, bucket + 1 + SPARE));
    const counts = new Uint32Array(end - from);
    counts.set(had, this.#from - from);
    this.#counts = counts;
    this.#from = from;
    return bucket - from;
  }
}

/** Buckets rising, counts above 0: what `pairs` makes, and nothing else. */
function arePairs(pairs: readonly unknown[]): pairs is readonly number[] {
  if (pairs.length % 2 !== 0 || pairs.length > 2 * SKETCH_BUCKETS) return false;
  let before = -1;
  for (let i = 0; i < pairs.length; i += 2) {
    const bucket = pairs[i];
    const count = pairs[i + 1];
    if (!Number.isInteger(bucket) || (bucket as number) <= before || (bucket as number) >= SKETCH_BUCKETS) return false;
    if (!Number.isInteger(count) || (count as number) < 1 || (count as number) > MOST) return false;
    before = bucket as number;
  }
  return true;
}
