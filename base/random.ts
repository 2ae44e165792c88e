/** Chance, passed in, for the same reason as time: a decision must be repeatable from its inputs. */
export interface Random {
  /** A number in [0, 1). */
  next(): number;
}

export const systemRandom: Random = { next: () => Math.random() };

/** The same seed gives the same sequence (mulberry32: 32 bits of state, good enough to spread load, not for secrets). */
export class SeededRandom implements Random {
  #state: number;
  constructor(seed: number) {
    this.#state = seed >>> 0;
  }
  next(): number {
    this.#state = (this.#state + 0x6d2b79f5) >>> 0;
    let t = this.#state;
    t = Math.imul(t ^ (t >>> 15), t | 1);
    t ^= t + Math.imul(t ^ (t >>> 7), t | 61);
    return ((t ^ (t >>> 14)) >>> 0) / 4_294_967_296;
  }
}
