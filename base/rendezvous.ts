/**
 * Weighted rendezvous hashing (highest random weight): which of several owners a key belongs to. Every (key, owner) pair
 * has a score of its own that does not depend on who else is there, so that an owner who leaves moves only its own keys,
 * one who returns gets exactly those back, and a weight that grows only draws keys to its owner. No ring, no state.
 *
 * Not for secrets: the hash spreads well but is not meant to resist somebody who looks for collisions.
 */

/** 32 bits of a text, well mixed. The same text with another seed gives an unrelated number. */
export function hash32(text: string, seed = 0): number {
  let h = (seed ^ text.length) | 0;
  for (let i = 0; i < text.length; i++) {
    h = Math.imul(h ^ text.charCodeAt(i), 0x5bd1e995);
    h ^= h >>> 15;
  }
  return mix(h, 0);
}

/** A number in [0, 1) from 32 bits. */
export function unit(hash: number): number {
  return (hash >>> 0) / 4_294_967_296;
}

/** A bijection of 32 bits in which every input bit reaches every output bit; `second` joins half-way. */
function mix(value: number, second: number): number {
  let h = value;
  h = Math.imul(h ^ (h >>> 16), 0x85ebca6b) ^ second;
  h = Math.imul(h ^ (h >>> 13), 0xc2b2ae35);
  return (h ^ (h >>> 16)) >>> 0;
}

const SEED_A = 0x3c6ef372;
const SEED_B = 0x1f83d9ab;
const RANGE = 4_294_967_296;

/**
 * The owners among whom keys are shared out, with their weights (above 0). Two hashes an owner, so that two owners whose
 * ids collide in one of them still share the keys between them.
 *
 * An owner's cost for a key is -ln(u) / weight, u being the pair's own number in (0, 1); the least cost wins. Owners are
 * kept in classes of equal weight: within a class the greatest u wins, and only the winner of a class needs a logarithm.
 */
export class Owners {
  /** In the order of `#order`. */
  readonly #a: Int32Array;
  readonly #b: Int32Array;
  /** Position in the classes → index as given. */
  readonly #order: Int32Array;
  /** The inverse of `#order`. */
  readonly #position: Int32Array;
  /** 1 / weight, by index as given. */
  readonly #inverse: Float64Array;
  /** Where each class ends, and 1 / weight in it. */
  readonly #ends: number[] = [];
  readonly #scales: number[] = [];

  constructor(ids: readonly string[], weights: ArrayLike<number>) {
    const order = Array.from(ids, (_, i) => i).sort((a, b) => (weights[b] as number) - (weights[a] as number) || a - b);
    this.#order = Int32Array.from(order);
    this.#position = new Int32Array(order.length);
    order.forEach((index, position) => {
      this.#position[index] = position;
    });
    this.#inverse = Float64Array.from(order, (_, index) => 1 / (weights[index] as number));
    this.#a = Int32Array.from(order, (index) => hash32(ids[index] as string, SEED_A));
    this.#b = Int32Array.from(order, (index) => hash32(ids[index] as string, SEED_B));
    for (let position = 1; position <= order.length; position++) {
      const weight = weights[order[position - 1] as number] as number;
      if (position < order.length && weights[order[position] as number] === weight) continue;
      this.#ends.push(position);
      this.#scales.push(1 / weight);
    }
  }

  /** Index of the owner of a key (given as `hash32` of it) among those `allowed` (1 = yes; null = all); -1 when there are none. */
  ownerOf(key: number, allowed: Uint8Array | null = null): number {
    if (allowed !== null) return this.#ownerAmong(key, allowed);
    let best = -1;
    let bestCost = Number.POSITIVE_INFINITY;
    let start = 0;
    for (let i = 0; i < this.#ends.length; i++) {
      const end = this.#ends[i] as number;
      const scale = this.#scales[i] as number;
      const position = this.#greatest(key, start, end);
      start = end;
      const u = this.#draw(key, position);
      // -ln(u) is never below 1 - u.
      if ((1 - u) * scale >= bestCost) continue;
      const cost = -Math.log(u) * scale;
      if (cost >= bestCost) continue;
      bestCost = cost;
      best = this.#order[position] as number;
    }
    return best;
  }

  /** Lower is nearer: sorting by it gives the order in which the owners stand in for one another. */
  costOf(key: number, index: number): number {
    const position = this.#position[index] as number;
    return -Math.log(this.#draw(key, position)) * (this.#inverse[index] as number);
  }

  /** In (0, 1), uniform over keys. */
  #draw(key: number, position: number): number {
    return (mix(key ^ (this.#a[position] as number), this.#b[position] as number) + 0.5) / RANGE;
  }

  /** The position with the greatest draw. Compared as signed numbers with the sign turned, which is the same order. */
  #greatest(key: number, start: number, end: number): number {
    const a = this.#a;
    const b = this.#b;
    let best = start;
    let bestValue = -0x8000_0000;
    for (let i = start; i < end; i++) {
      const value = mix(key ^ (a[i] as number), b[i] as number) ^ 0x8000_0000;
      if (value <= bestValue) continue;
      bestValue = value;
      best = i;
    }
    return best;
  }

  #ownerAmong(key: number, allowed: Uint8Array): number {
    let best = -1;
    let bestCost = Number.POSITIVE_INFINITY;
    for (let i = 0; i < allowed.length; i++) {
      if (allowed[i] !== 1) continue;
      const cost = this.costOf(key, i);
      if (cost >= bestCost) continue;
      bestCost = cost;
      best = i;
    }
    return best;
  }
}
