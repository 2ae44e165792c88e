/**
 * When calls of generated load begin: open arrivals, which come whatever is still under way, evenly or by chance (Poisson), at a rate
 * that stands, rises or falls, with bursts on top. Pure but for the dice that it is given.
 */
import type { Random } from '../../base/random.ts';

/** Straight from one rate to another. */
export interface Slope {
  readonly forMs: number;
  readonly fromPerMs: number;
  readonly toPerMs: number;
}

export interface Load {
  readonly slopes: readonly Slope[];
  readonly totalMs: number;
  readonly spread: 'even' | 'poisson';
  /** So many at once, each time that this has passed; null = none. */
  readonly bursts: { readonly everyMs: number; readonly calls: number } | null;
}

/** Calls that are to be expected of it. */
export function expectedOf({ slopes, totalMs, bursts }: Load): number {
  let sum = 0;
  for (const { forMs, fromPerMs, toPerMs } of slopes) sum += (forMs * (fromPerMs + toPerMs)) / 2;
  return Math.ceil(sum) + (bursts === null ? 0 : Math.floor(totalMs / bursts.everyMs) * bursts.calls);
}

export interface Arrival {
  /** From the beginning of the load. */
  readonly atMs: number;
  readonly calls: number;
}

export class Arrivals {
  readonly #load: Load;
  readonly #random: Random;
  /** Calls that would have come by the next arrival, at the rates that were said. */
  #area = 0;
  /** Of the slopes before the present one. */
  #slope = 0;
  #slopeFromMs = 0;
  #slopeFromArea = 0;
  #next: number;
  #burstAt: number;

  constructor(load: Load, random: Random) {
    this.#load = load;
    this.#random = random;
    this.#burstAt = load.bursts === null ? Number.POSITIVE_INFINITY : load.bursts.everyMs;
    this.#next = this.#draw();
  }

  /** null = it is over. */
  next(): Arrival | null {
    const { totalMs, bursts } = this.#load;
    if (bursts !== null && this.#burstAt <= this.#next && this.#burstAt <= totalMs) {
      const atMs = this.#burstAt;
      this.#burstAt += bursts.everyMs;
      return { atMs, calls: bursts.calls };
    }
    if (this.#next === Number.POSITIVE_INFINITY) return null;
    const atMs = this.#next;
    this.#next = this.#draw();
    return { atMs, calls: 1 };
  }

  /** When the area under the rates has grown by one more call; Infinity = not within its time. */
  #draw(): number {
    const { slopes, spread } = this.#load;
    // The first of even ones begins at once.
    this.#area += spread === 'poisson' ? -Math.log(1 - this.#random.next()) : this.#area === 0 ? Number.MIN_VALUE : 1;
    for (; this.#slope < slopes.length; this.#slope++) {
      const { forMs, fromPerMs, toPerMs } = slopes[this.#slope] as Slope;
      const area = (forMs * (fromPerMs + toPerMs)) / 2;
      const wanted = this.#area - this.#slopeFromArea;
      if (wanted < area) return this.#slopeFromMs + into(wanted, forMs, fromPerMs, toPerMs);
      this.#slopeFromMs += forMs;
      this.#slopeFromArea += area;
    }
    return Number.POSITIVE_INFINITY;
  }
}

/** How far into a slope so many calls have come. */
function into(calls: number, forMs: number, fromPerMs: number, toPerMs: number): number {
  const steepness = (toPerMs - fromPerMs) / forMs;
  if (Math.abs(steepness) < 1e-15) return calls / fromPerMs;
  return (Math.sqrt(Math.max(0, fromPerMs * fromPerMs + 2 * steepness * calls)) - fromPerMs) / steepness;
}
