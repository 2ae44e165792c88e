/**
 * Where round robin stands within one version: it outlives table pushes, and starts at random so that a fleet of sidecars
 * does not march in step. With equal weights it is a plain rotation; with unequal ones everybody saves its weight, the
 * richest serves and pays the sum, so that in every round each serves exactly by weight, well mixed.
 */
import type { Random } from '../../base/random.ts';
import type { Group } from './group.ts';

/** Steps from the common start that a random beginning is chosen from; about one round, bounded. */
const START_STEPS_MAX = 1_000;

/** By place: whose turn is next, and what each agent has saved. */
export interface TurnsDump {
  readonly next: readonly (number | null)[];
  readonly saved: readonly (readonly (readonly [agentId: string, saved: number])[] | null)[];
}

export class Turns {
  /** By place of the group; undefined = not started. */
  readonly #next: (number | undefined)[] = [];
  /** The groups used last, by place: savings are carried over when a group is rebuilt. */
  readonly #groups: (Group | undefined)[] = [];

  /** Savings of before, by place and agent, where there is no group that has them. */
  readonly #carried: (ReadonlyMap<string, number> | undefined)[] = [];

  /** Whose turn it is among those `allowed` (1 = yes; null = all); `peek` leaves it their turn. -1 when nobody is. */
  pick(group: Group, random: Random, allowed: Uint8Array | null, peek: boolean): number {
    return group.equal ? this.#rotate(group, random, allowed, peek) : this.#smooth(group, random, allowed, peek);
  }

  /** null = nobody has had a turn. */
  dump(): TurnsDump | null {
    if (this.#next.length === 0 && this.#groups.length === 0) return null;
    return {
      next: Array.from(this.#next, (each) => each ?? null),
      saved: Array.from(this.#groups, (group) => {
        const saved = group?.saved ?? null;
        return group === undefined || saved === null
          ? null
          : group.candidates.map((candidate, i) => [candidate.provider.agentId, saved[i] as number] as const);
      }),
    };
  }

  restore(dump: TurnsDump | null): void {
    this.#next.length = 0;
    this.#groups.length = 0;
    this.#carried.length = 0;
    if (dump === null) return;
    for (const each of dump.next) this.#next.push(each ?? undefined);
    for (const each of dump.saved) this.#carried.push(each === null ? undefined : new Map(each));
  }

  #rotate(group: Group, random: Random, allowed: Uint8Array | null, peek: boolean): number {
    const count = group.weights.length;
    let next = this.#next[group.place] ?? Math.floor(random.next() * count);
    for (let step = 0; step < count; step++, next++) {
      const i = next % count;
      if (allowed !== null && allowed[i] !== 1) continue;
      if (!peek) this.#next[group.place] = (next + 1) % Number.MAX_SAFE_INTEGER;
      return i;
    }
    return -1;
  }

  #smooth(group: Group, random: Random, allowed: Uint8Array | null, peek: boolean): number {
    if (peek) return step(group.weights, Float64Array.from(group.saved ?? this.#savings(group, random)), allowed);
    if (group.saved === null) {
      group.saved = this.#savings(group, random);
      this.#groups[group.place] = group;
    }
    return step(group.weights, group.saved, allowed);
  }

  #savings(group: Group, random: Random): Float64Array {
    const saved = new Float64Array(group.weights.length);
    const before = this.#groups[group.place];
    const carried = this.#carried[group.place];
    if (carried !== undefined && before === undefined) {
      for (let i = 0; i < saved.length; i++) saved[i] = carried.get(group.candidates[i]?.provider.agentId ?? '') ?? 0;
      return saved;
    }
    if (before === undefined || before.saved === null) {
      const round = Math.ceil(group.total / smallest(group.weights));
      const steps = Math.floor(random.next() * Math.min(START_STEPS_MAX, round));
      for (let i = 0; i < steps; i++) step(group.weights, saved, null);
      return saved;
    }
    const known = new Map<string, number>();
    for (let i = 0; i < before.candidates.length; i++) known.set(before.candidates[i]?.provider.agentId ?? '', before.saved[i] as number);
    for (let i = 0; i < saved.length; i++) saved[i] = known.get(group.candidates[i]?.provider.agentId ?? '') ?? 0;
    return saved;
  }
}

function smallest(weights: Float64Array): number {
  let least = Number.POSITIVE_INFINITY;
  for (const weight of weights) if (weight < least) least = weight;
  return least;
}

function step(weights: Float64Array, saved: Float64Array, allowed: Uint8Array | null): number {
  let best = -1;
  let most = Number.NEGATIVE_INFINITY;
  let total = 0;
  for (let i = 0; i < weights.length; i++) {
    if (allowed !== null && allowed[i] !== 1) continue;
    const weight = weights[i] as number;
    const value = (saved[i] as number) + weight;
    saved[i] = value;
    total += weight;
    if (value > most) {
      most = value;
      best = i;
    }
  }
  if (best >= 0) saved[best] = most - total;
  return best;
}
