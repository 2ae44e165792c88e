/**
 * Candidates among which only weight and load still matter: same version, same place, same tier, all usable. The picks
 * are arithmetic over arrays made once per health version; `allowed` (1 = yes; null = all) leaves out those that are
 * busy or were tried already. Weights are the configured ones times the health view's factor, all above 0.
 */
import type { Random } from '../../base/random.ts';
import type { ProviderHealth } from '../health/provider.ts';
import type { Candidate } from '../table/snapshot.ts';

export class Group {
  readonly candidates: readonly Candidate[];
  /** Of the candidates: whoever is only compared is not touched elsewhere, since among thousands every step is a cold one. */
  readonly healths: readonly ProviderHealth[];
  /** Order among groups, least first: see `placeOf`. */
  readonly place: number;
  readonly weights: Float64Array;
  /** Sums of the weights up to and including each. */
  readonly ends: Float64Array;
  readonly total: number;
  /** All weights are the same. */
  readonly equal: boolean;
  /** Index of the one that serves while it can (mode `primary_backup`): highest weight, then agent id. */
  readonly first: number;
  /** Smooth weighted round robin: what each has saved up. Made when first needed. */
  saved: Float64Array | null = null;

  constructor(candidates: readonly Candidate[], weights: Float64Array, place: number) {
    this.candidates = candidates;
    this.healths = candidates.map((one) => one.provider.health);
    this.weights = weights;
    this.place = place;
    this.ends = new Float64Array(weights.length);
    let total = 0;
    let equal = true;
    let first = 0;
    for (let i = 0; i < weights.length; i++) {
      total += weights[i] as number;
      this.ends[i] = total;
      if (weights[i] !== weights[0]) equal = false;
      if (standsBefore(candidates, i, first)) first = i;
    }
    this.total = total;
    this.equal = equal;
    this.first = first;
  }
}

/** The configured weight decides, not the momentary one: a standby must not swap places over one slow start or error. */
function standsBefore(candidates: readonly Candidate[], i: number, best: number): boolean {
  const a = candidates[i] as Candidate;
  const b = candidates[best] as Candidate;
  return a.weight > b.weight || (a.weight === b.weight && a.provider.agentId < b.provider.agentId);
}

/** By weight; `except` (an index, or -1) gets nothing. -1 when nobody is left. */
export function draw(group: Group, random: Random, allowed: Uint8Array | null, except: number): number {
  if (allowed !== null) return drawAllowed(group, random, allowed, except);
  const count = group.weights.length;
  if (group.equal) {
    if (except < 0) return Math.floor(random.next() * count);
    if (count < 2) return -1;
    const i = Math.floor(random.next() * (count - 1));
    return i >= except ? i + 1 : i;
  }
  if (except < 0) return placeIn(group.ends, random.next() * group.total);
  if (count < 2) return -1;
  const gap = group.weights[except] as number;
  const before = (group.ends[except] as number) - gap;
  let point = random.next() * (group.total - gap);
  if (point >= before) point += gap;
  const i = placeIn(group.ends, point);
  if (i !== except) return i;
  // Rounding put the point on an edge of the gap: its neighbour owns it.
  return except === count - 1 ? except - 1 : except + 1;
}

function drawAllowed(group: Group, random: Random, allowed: Uint8Array, except: number): number {
  let total = 0;
  for (let i = 0; i < allowed.length; i++) if (allowed[i] === 1 && i !== except) total += group.weights[i] as number;
  let point = random.next() * total;
  let last = -1;
  for (let i = 0; i < allowed.length; i++) {
    if (allowed[i] !== 1 || i === except) continue;
    last = i;
    point -= group.weights[i] as number;
    if (point < 0) break;
  }
  return last;
}

/** The first index whose end lies beyond the point. */
function placeIn(ends: Float64Array, point: number): number {
  let low = 0;
  let high = ends.length - 1;
  while (low < high) {
    const middle = (low + high) >>> 1;
    if ((ends[middle] as number) > point) high = middle;
    else low = middle + 1;
  }
  return low;
}

/**
 * Power of two choices: draw two by weight, take the one with fewer calls in flight for its weight; a tie goes to the
 * first drawn, so that idle providers share by weight. With two providers both are compared, with one there is no draw.
 */
export function leastRequest(group: Group, random: Random, allowed: Uint8Array | null): number {
  if (group.weights.length === 1) return allowed === null || allowed[0] === 1 ? 0 : -1;
  const first = draw(group, random, allowed, -1);
  if (first < 0) return -1;
  const second = draw(group, random, allowed, first);
  if (second < 0) return first;
  if (group.equal) return underWay(group, second) < underWay(group, first) ? second : first;
  return loadOf(group, second) < loadOf(group, first) ? second : first;
}

function loadOf(group: Group, i: number): number {
  return underWay(group, i) / (group.weights[i] as number);
}

function underWay(group: Group, i: number): number {
  return (group.healths[i] as ProviderHealth).inFlight;
}

/** The highest weight that is allowed; the others stand by. */
export function primaryBackup(group: Group, allowed: Uint8Array | null): number {
  if (allowed === null) return group.first;
  let best = -1;
  for (let i = 0; i < allowed.length; i++) {
    if (allowed[i] === 1 && (best < 0 || standsBefore(group.candidates, i, best))) best = i;
  }
  return best;
}
