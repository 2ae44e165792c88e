/** Whether a chain of fallbacks comes back to where it began, over everything that is registered and said. */
import { policiesFor } from '../../proto/language/merge.ts';
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
  let fallback = contract.fallback;
  for (const policy of policiesFor(contract.name, policies)) fallback = policy.fallback ?? fallback;
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
  const done = new Set<string>();
  const trail: string[] = [];
  const startLabel = labelOf(start);
  const visit = (contract: Contract): boolean => {
    const label = labelOf(contract);
    if (label === startLabel && trail.length > 0) return true;
    if (done.has(label)) return false;
    done.add(label);
    trail.push(label);
    for (const next of nextOf(contract, world)) if (visit(next)) return true;
    trail.pop();
    return false;
  };
  return visit(start) ? [...trail, startLabel].join(' > ') : null;
}

function nextOf(contract: Contract, world: FallbackWorld): Contract[] {
  return targetsOf(fallbackOf(contract, world.policies)).flatMap((text) => {
    const target = parseTarget(text);
    return 'problem' in target ? [] : mayMeet(world.canonical(target.name), target.range, world);
  });
}

/** The versions that a call with this range (null: none) may meet. */
function mayMeet(name: string, range: string | null, world: FallbackWorld): readonly Contract[] {
  const versions = world.versionsOf(name);
  let text = range;
  if (text === null) for (const policy of policiesFor(name, world.policies)) text = policy.defaultRange ?? text;
  if (text !== null) {
    const compiled = compileRange(text);
    return 'problem' in compiled ? [] : versions.filter((contract) => compiled.satisfiedBy(parseVersion(contract.version)));
  }
  const stable = versions.filter((contract) => parseVersion(contract.version).prerelease.length === 0);
  if (stable.length === 0) return versions;
  const newest = Math.max(...stable.map((contract) => parseVersion(contract.version).major));
  return stable.filter((contract) => parseVersion(contract.version).major === newest);
}

const labelOf = (contract: Contract): string => `${contract.name}@${contract.version}`;
