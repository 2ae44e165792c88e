/**
 * In how many ways a pattern can match the same text: what makes a backtracking engine slow. The pattern becomes an
 * automaton with one state per character set; two different ways round the same loop mean exponential time, a loop that
 * hands over to another on the same text means polynomial time (Weber and Seidl's criteria, taken conservatively).
 */
import { type CharSet, overlaps, type Tree } from './regex-tree.ts';

export interface Ambiguity {
  /** `unknown`: too large to be judged. */
  readonly growth: 'linear' | 'polynomial' | 'exponential' | 'unknown';
  /** Upper bound of the polynomial's degree. */
  readonly degree: number;
  /** Ways to take the parts that are not loops. */
  readonly ways: number;
}

const MAX_STATES = 400;
const MAX_STEPS = 4_000_000;

/** @param isSearch the pattern may begin anywhere in the text: a loop over any character stands before it. */
export function ambiguityOf(tree: Tree, isSearch: boolean): Ambiguity {
  const automaton = build(tree, isSearch);
  if (automaton === null) return { growth: 'unknown', degree: 0, ways: 0 };
  const loops = components(automaton);
  const ways = waysOutsideLoops(automaton, loops);
  if (hasTwoWaysRound(automaton, loops)) return { growth: 'exponential', degree: 0, ways };
  const degree = longestChain(automaton, loops);
  return { growth: degree > 1 && handsOver(automaton, loops) ? 'polynomial' : 'linear', degree, ways };
}

/** State 0 is the start; `follow[p]` may name a state twice: then two ways lead to it. */
interface Automaton {
  readonly sets: CharSet[];
  readonly follow: number[][];
  readonly overlap: Uint8Array;
}

interface Fragment {
  readonly first: readonly number[];
  readonly last: readonly number[];
  readonly canBeEmpty: boolean;
}

const NOTHING: Fragment = { first: [], last: [], canBeEmpty: true };

function build(tree: Tree, isSearch: boolean): Automaton | null {
  const sets: CharSet[] = [[]];
  const follow: number[][] = [[]];
  let isTooLarge = false;

  const link = (from: readonly number[], to: readonly number[]): void => {
    for (const p of from) for (const q of to) (follow[p] as number[]).push(q);
  };
  const state = (set: CharSet): Fragment => {
    if (sets.length > MAX_STATES) isTooLarge = true;
    else {
      sets.push(set);
      follow.push([]);
    }
    const id = sets.length - 1;
    return { first: [id], last: [id], canBeEmpty: false };
  };
  const join = (a: Fragment, b: Fragment): Fragment => {
    link(a.last, b.first);
    return {
      first: a.canBeEmpty ? [...a.first, ...b.first] : a.first,
      last: b.canBeEmpty ? [...a.last, ...b.last] : b.last,
      canBeEmpty: a.canBeEmpty && b.canBeEmpty,
    };
  };
  const make = (node: Tree): Fragment => {
    if (isTooLarge) return NOTHING;
    switch (node.kind) {
      case 'set':
        return state(node.set);
      case 'sequence':
        return node.parts.reduce<Fragment>((whole, part) => join(whole, make(part)), NOTHING);
      case 'choice': {
        const parts = node.parts.map(make);
        return {
          first: parts.flatMap((part) => part.first),
          last: parts.flatMap((part) => part.last),
          canBeEmpty: parts.some((part) => part.canBeEmpty),
        };
      }
      case 'repeat':
        return repeat(node.body, node.min, node.max);
      default:
        return NOTHING;
    }
  };
  const repeat = (body: Tree, min: number, max: number): Fragment => {
    if (max === 0) return NOTHING;
    if (max === 1) {
      const inner = make(body);
      return min === 0 ? { ...inner, canBeEmpty: true } : inner;
    }
    if (min === max && isRigid(body)) {
      let whole = NOTHING;
      for (let i = 0; i < max && !isTooLarge; i++) whole = join(whole, make(body));
      return whole;
    }
    // a loop, also when it is bounded: {1,64} and more is as good as endless to whoever waits for it
    const inner = make(body);
    link(inner.last, inner.first);
    return { ...inner, canBeEmpty: inner.canBeEmpty || min === 0 };
  };

  let start: readonly number[] = [0];
  if (isSearch) {
    const any = state([[0, 0x10ffff]]);
    link([0], any.first);
    link(any.last, any.first);
    start = [0, ...any.last];
  }
  link(start, make(tree).first);
  if (isTooLarge) return null;
  const n = sets.length;
  const overlap = new Uint8Array(n * n);
  for (let p = 1; p < n; p++)
    for (let q = p; q < n; q++) if (overlaps(sets[p] as CharSet, sets[q] as CharSet)) overlap[p * n + q] = overlap[q * n + p] = 1;
  return { sets, follow, overlap };
}

/** One way to match, of one length: repeating it a fixed number of times adds no choice. */
function isRigid(tree: Tree): boolean {
  if (tree.kind === 'sequence') return tree.parts.every(isRigid);
  if (tree.kind === 'choice') return false;
  return tree.kind === 'repeat' ? tree.min === tree.max && isRigid(tree.body) : true;
}

/** Which loop (strongly connected component) each state belongs to; -1 = none. */
function components(automaton: Automaton): Int32Array {
  const n = automaton.follow.length;
  const reach = reachability(automaton);
  const loop = new Int32Array(n).fill(-1);
  let count = 0;
  for (let p = 0; p < n; p++) {
    if (loop[p] !== -1 || reach[p * n + p] !== 1) continue;
    for (let q = p; q < n; q++) if (reach[p * n + q] === 1 && reach[q * n + p] === 1) loop[q] = count;
    count++;
  }
  return loop;
}

/** `reach[p * n + q]` = q can be reached from p by at least one step. */
function reachability(automaton: Automaton): Uint8Array {
  const n = automaton.follow.length;
  const reach = new Uint8Array(n * n);
  for (let p = 0; p < n; p++) {
    const open = [...(automaton.follow[p] as number[])];
    while (open.length > 0) {
      const q = open.pop() as number;
      if (reach[p * n + q] === 1) continue;
      reach[p * n + q] = 1;
      for (const r of automaton.follow[q] as number[]) if (reach[p * n + r] !== 1) open.push(r);
    }
  }
  return reach;
}

function waysOutsideLoops(automaton: Automaton, loop: Int32Array): number {
  const n = automaton.follow.length;
  let ways = 1;
  for (let p = 0; p < n; p++) {
    if (loop[p] !== -1) continue;
    const next = automaton.follow[p] as number[];
    let most = 1;
    for (const q of next)
      most = Math.max(
        most,
        next.reduce((sum, r) => sum + (automaton.overlap[q * n + r] as number), 0),
      );
    ways *= most;
  }
  return ways;
}

/** Whether some text leads round a loop in two different ways. */
function hasTwoWaysRound(automaton: Automaton, loop: Int32Array): boolean {
  const n = automaton.follow.length;
  const inLoop = (p: number): number[] => (automaton.follow[p] as number[]).filter((q) => loop[q] === loop[p]);
  // from every pair (p, p), on the same text, to pairs that differ …
  const cameFrom = new Map<number, number[]>();
  const open: number[] = [];
  const backToSame: number[] = [];
  let steps = 0;
  const step = (p: number, q: number, from: number): void => {
    for (const next of inLoop(p)) {
      for (const other of inLoop(q)) {
        steps++;
        if (automaton.overlap[next * n + other] !== 1) continue;
        const pair = next * n + other;
        if (next === other) {
          if (from >= 0) backToSame.push(from);
          continue;
        }
        const known = cameFrom.get(pair);
        if (known === undefined) {
          cameFrom.set(pair, from >= 0 ? [from] : []);
          open.push(pair);
        } else if (from >= 0) known.push(from);
      }
    }
  };
  for (let p = 0; p < n; p++) {
    if (loop[p] === -1) continue;
    const next = inLoop(p);
    if (new Set(next).size < next.length) return true;
    step(p, p, -1);
  }
  while (open.length > 0) {
    if (steps > MAX_STEPS) return true;
    const pair = open.pop() as number;
    step(Math.floor(pair / n), pair % n, pair);
  }
  // … and from such a pair back to one that is the same: then both ways go round
  return backToSame.length > 0;
}

/** The most loops that one text can pass through. */
function longestChain(automaton: Automaton, loop: Int32Array): number {
  const n = automaton.follow.length;
  const reach = reachability(automaton);
  const count = Math.max(-1, ...loop) + 1;
  const member = Array.from({ length: count }, (_, id) => loop.indexOf(id));
  const depth = new Map<number, number>();
  const depthOf = (id: number): number => {
    const known = depth.get(id);
    if (known !== undefined) return known;
    let best = 1;
    for (let other = 0; other < count; other++)
      if (other !== id && reach[(member[id] as number) * n + (member[other] as number)] === 1) best = Math.max(best, 1 + depthOf(other));
    depth.set(id, best);
    return best;
  };
  let longest = 0;
  for (let id = 0; id < count; id++) longest = Math.max(longest, depthOf(id));
  return longest;
}

/** Whether some text v leads from p round to p, from p to q, and from q round to q, in two different loops. */
function handsOver(automaton: Automaton, loop: Int32Array): boolean {
  const n = automaton.follow.length;
  const reach = reachability(automaton);
  let steps = 0;
  for (let p = 0; p < n; p++) {
    for (let q = 0; q < n; q++) {
      if (loop[p] === -1 || loop[q] === -1 || loop[p] === loop[q] || reach[p * n + q] !== 1) continue;
      const seen = new Set<number>();
      const open: [number, number, number][] = [[p, p, q]];
      while (open.length > 0) {
        const [a, b, c] = open.pop() as [number, number, number];
        for (const nextA of automaton.follow[a] as number[]) {
          if (loop[nextA] !== loop[p]) continue;
          for (const nextC of automaton.follow[c] as number[]) {
            if (loop[nextC] !== loop[q] || automaton.overlap[nextA * n + nextC] !== 1) continue;
            for (const nextB of automaton.follow[b] as number[]) {
              if (++steps > MAX_STEPS) return true;
              if (automaton.overlap[nextA * n + nextB] !== 1 || automaton.overlap[nextB * n + nextC] !== 1) continue;
              if (nextA === p && nextB === q && nextC === q) return true;
              const key = (nextA * n + nextB) * n + nextC;
              if (seen.has(key)) continue;
              seen.add(key);
              open.push([nextA, nextB, nextC]);
            }
          }
        }
      }
    }
  }
  return false;
}
