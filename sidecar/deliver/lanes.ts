/**
 * Whose turn it is among the lanes: 60, 30, 10 of a hundred messages started. Weighted round robin whose credit is carried from
 * one turn to the next, so that the shares hold with a single slot as well; a lane that has nothing takes no part and gains
 * no credit, so that its share goes to the others at once and is not called in later. Pure.
 */
import { LANES } from '../../proto/wire/envelope.ts';

export const LANE_COUNT = LANES.length;
/** Of `high`, `normal`, `low`. */
export const LANE_WEIGHTS: readonly number[] = [60, 30, 10];

export class LaneTurns {
  readonly #credit: number[] = LANE_WEIGHTS.map(() => 0);

  /** The lane whose turn it is; -1 when none has anything. @param has bit i: lane i has something to start */
  next(has: number): number {
    let best = -1;
    let total = 0;
    for (let lane = 0; lane < LANE_COUNT; lane++) {
      if ((has & (1 << lane)) === 0) continue;
      const weight = LANE_WEIGHTS[lane] as number;
      total += weight;
      const credit = (this.#credit[lane] as number) + weight;
      this.#credit[lane] = credit;
      if (best < 0 || credit > (this.#credit[best] as number)) best = lane;
    }
    if (best >= 0) this.#credit[best] = (this.#credit[best] as number) - total;
    return best;
  }

  /** Something of this lane was started out of turn, while those of `has` had something too: it is put down to the lane. */
  charge(lane: number, has: number): void {
    const all = has | (1 << lane);
    let total = 0;
    for (let each = 0; each < LANE_COUNT; each++) {
      if ((all & (1 << each)) === 0) continue;
      const weight = LANE_WEIGHTS[each] as number;
      total += weight;
      this.#credit[each] = (this.#credit[each] as number) + weight;
    }
    this.#credit[lane] = (this.#credit[lane] as number) - total;
  }
}
