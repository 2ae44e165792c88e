/**
 * Where a drill may kill this process: `REACH_FAILPOINT=after_effect:0.01` (place, and the share of passes that end there).
 * Read once at the start; without it every check is one comparison with null. For drills only: it ends the process as a
 * power cut would, without a word.
 */
import type { Random } from '../../base/random.ts';

export const FAILPOINTS = ['before_hand_over', 'after_hand_over', 'after_effect', 'after_result', 'before_ack'] as const;
export type FailpointName = (typeof FAILPOINTS)[number];

export class Failpoint {
  readonly at: FailpointName;
  readonly share: number;
  readonly #random: Random;
  readonly #kill: () => void;

  constructor(at: FailpointName, share: number, random: Random, kill: () => void) {
    this.at = at;
    this.share = share;
    this.#random = random;
    this.#kill = kill;
  }

  pass(at: FailpointName): void {
    if (at === this.at && this.#random.next() < this.share) this.#kill();
  }
}

/** Null when none is set. Throws with a sentence when what is set cannot be meant. */
export function failpointFrom(text: string | undefined, random: Random, kill: () => void): Failpoint | null {
  if (text === undefined || text === '') return null;
  const colon = text.indexOf(':');
  const at = FAILPOINTS.find((name) => name === (colon < 0 ? text : text.slice(0, colon)));
  const share = colon < 0 ? 1 : Number(text.slice(colon + 1));
  if (at === undefined || !(share >= 0 && share <= 1))
    throw new Error(`REACH_FAILPOINT must read like after_effect:0.01, with one of ${FAILPOINTS.join(', ')}`);
  return new Failpoint(at, share, random, kill);
}
