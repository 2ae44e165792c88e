/**
 * Whether chains of fallbacks come back to where they began, over everything that is registered and said. Whoever may look may have
 * a document judged, so no document must be dear: each contract and each name is worked out once, whatever the chains are.
 */
import { policiesFor, PolicyIndex } from '../../proto/language/merge.ts';
import { parseTarget } from '../../proto/language/names.ts';
import { compileRange, parseVersion } from '../../proto/language/range.ts';
import type { Contract, FallbackPolicy, Policy } from '../../proto/language/types.ts';

/** Where fallbacks lead. */
export interface FallbackWorld {
  /** Every version that is known under a canonical name. */
  versionsOf(name: string): readonly Contract[];
  /** The name that an alias stands for, or the name itself. */
  canonical(name: string): string;
  readonly policies: readonly Policy[];
}

/** The fallback that is in force for a contract. */
export function fallbackOf(contract: Contract, policies: readonly Policy[]): FallbackPolicy | null {
  return inForce(contract, policiesFor(contract.name, policies));
}

function inForce(contract: Contract, covering: readonly Policy[]): FallbackPolicy | null {
  let { fallback } = contract;
  for (const policy of covering) fallback = policy.fallback ?? fallback;
  return fallback;
}

/** The capabilities that a chain names, as written. */
export function targetsOf(fallback: FallbackPolicy | null): string[] {
  const targets: string[] = [];
  for (const step of fallback?.chain ?? []) if (step.kind === 'capability') targets.push(step.target);
  return targets;
}

/** `a.b.c@1.0.0 > d.e.f@2.0.0 > a.b.c@1.0.0`, or null when no chain from `start` comes back to it. */
export function circleFrom(start: Contract, world: FallbackWorld): string | null {
  const ways = new Ways(world);
  const label = labelOf(start);
  for (const circle of circlesOver([start], (contract) => ways.from(contract)))
    if (labelOf(circle[0] as Contract) === label) return circleWords(circle);
  return null;
}

/** Circles among `contracts` and what their chains lead to: at least one of each knot of them. Each begins with its first contract. */
export function circlesIn(contracts: Iterable<Contract>, world: FallbackWorld): Generator<readonly Contract[]> {
  const ways = new Ways(world);
  return circlesOver(contracts, (contract) => ways.from(contract));
}

export function circleWords(circle: readonly Contract[]): string {
  return [...circle, circle[0] as Contract].map(labelOf).join(' > ');
}

/** Depth first, and without recursion: a chain may be as long as a document. */
function* circlesOver(starts: Iterable<Contract>, nextOf: (contract: Contract) => readonly Contract[]): Generator<readonly Contract[]> {
  /** By label: where it stands on the trail; -1 = everything that it leads to has been looked at. */
  const seen = new Map<string, number>();
  const trail: { readonly contract: Contract; readonly label: string; readonly next: readonly Contract[]; at: number }[] = [];
  const enter = (contract: Contract, label: string): void => {
    seen.set(label, trail.length);
    trail.push({ contract, label, next: nextOf(contract), at: 0 });
  };
  for (const start of starts) {
    const label = labelOf(start);
    if (!seen.has(label)) enter(start, label);
    for (let top = trail.at(-1); top !== undefined; top = trail.at(-1)) {
      const next = top.next[top.at++];
      if (next === undefined) {
        seen.set(top.label, -1);
        trail.pop();
        continue;
      }
      const nextLabel = labelOf(next);
      const at = seen.get(nextLabel);
      if (at === undefined) enter(next, nextLabel);
      else if (at >= 0) yield trail.slice(at).map(({ contract }) => contract);
    }
  }
}

/** Where a call goes on from a contract when nobody is there. */
class Ways {
  readonly #world: FallbackWorld;
  readonly #policies: PolicyIndex;
  /** What a target may meet. */
  readonly #met = new Map<string, readonly Contract[]>();

  constructor(world: FallbackWorld) {
    this.#world = world;
    this.#policies = new PolicyIndex(world.policies);
  }

  from(contract: Contract): readonly Contract[] {
    const targets = targetsOf(inForce(contract, this.#policies.covering(contract.name)));
    return targets.length === 0 ? NOWHERE : targets.flatMap((text) => this.#meets(text));
  }

  #meets(text: string): readonly Contract[] {
    const known = this.#met.get(text);
    if (known !== undefined) return known;
    const target = parseTarget(text);
    const met = 'problem' in target ? NOWHERE : this.#versions(this.#world.canonical(target.name), target.range);
    this.#met.set(text, met);
    return met;
  }

  /** The versions that a call with this range (null: none) may meet. */
  #versions(name: string, range: string | null): readonly Contract[] {
    const versions = this.#world.versionsOf(name);
    let text = range;
    if (text === null) for (const policy of this.#policies.covering(name)) text = policy.defaultRange ?? text;
    if (text !== null) {
      const compiled = compileRange(text);
      return 'problem' in compiled ? [] : versions.filter((contract) => compiled.satisfiedBy(parseVersion(contract.version)));
    }
    const stable = versions.filter((contract) => parseVersion(contract.version).prerelease.length === 0);
    if (stable.length === 0) return versions;
    const newest = Math.max(...stable.map((contract) => parseVersion(contract.version).major));
    return stable.filter((contract) => parseVersion(contract.version).major === newest);
  }
}

const NOWHERE: readonly Contract[] = Object.freeze([]);

const labelOf = (contract: Contract): string => `${contract.name}@${contract.version}`;
