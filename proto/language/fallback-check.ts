/** Fallback chains over the whole table: every step leads somewhere, and no chain comes back to where it began. */
import type { Known } from './known.ts';
import { policiesFor } from './merge.ts';
import { isCapabilityName, parseTarget } from './names.ts';
import type { Place } from './reader.ts';
import { good, type Sections } from './sections.ts';
import type { Contract, FallbackPolicy } from './types.ts';

export function checkFallbacks(sections: Sections, place: Place, known: Known): void {
  for (const [i, contract] of good(sections.contracts))
    checkSteps(contract.fallback, contract.name, place.at('contracts', i, 'fallback'), known);
  for (const [i, policy] of good(sections.policies))
    checkSteps(policy.fallback, isCapabilityName(policy.capability) ? policy.capability : null, place.at('policies', i, 'fallback'), known);
  new Circles(sections, place, known).check();
}

function checkSteps(fallback: FallbackPolicy | null, capability: string | null, place: Place, known: Known): void {
  for (const [i, step] of (fallback?.chain ?? []).entries()) {
    if (step.kind === 'capability') {
      const problem = known.targetProblem(step.target);
      if (problem !== null) place.at(i, 'capability').bad(problem);
    } else if (step.kind === 'provider') {
      const problem = known.agentProblem(step.agentId);
      if (problem !== null) place.at(i, 'provider').bad(problem);
      else if (capability !== null && !known.offers(step.agentId, capability))
        place.at(i, 'provider').bad(`${step.agentId} does not offer ${capability}`);
    }
  }
}

/** Depth-first over contracts (name and version), following the fallback that is in force for each. */
class Circles {
  readonly #sections: Sections;
  readonly #place: Place;
  readonly #known: Known;
  readonly #state = new Map<Contract, 'open' | 'done'>();
  readonly #trail: Contract[] = [];
  readonly #reported = new Set<string>();

  constructor(sections: Sections, place: Place, known: Known) {
    this.#sections = sections;
    this.#place = place;
    this.#known = known;
  }

  check(): void {
    for (const [, contract] of good(this.#sections.contracts)) this.#visit(contract);
  }

  #visit(contract: Contract): void {
    const state = this.#state.get(contract);
    if (state === 'done') return;
    if (state === 'open') {
      this.#report(this.#trail.slice(this.#trail.indexOf(contract)));
      return;
    }
    this.#state.set(contract, 'open');
    this.#trail.push(contract);
    for (const next of this.#next(contract)) this.#visit(next);
    this.#trail.pop();
    this.#state.set(contract, 'done');
  }

  #inForce(contract: Contract): { readonly fallback: FallbackPolicy | null; readonly at: Place } {
    let fallback = contract.fallback;
    let at = this.#place.at('contracts', this.#sections.contracts.entries.indexOf(contract), 'fallback');
    const policies = [...good(this.#sections.policies)].map(([, policy]) => policy);
    for (const policy of policiesFor(contract.name, policies)) {
      if (policy.fallback === null) continue;
      fallback = policy.fallback;
      at = this.#place.at('policies', this.#sections.policies.entries.indexOf(policy), 'fallback');
    }
    return { fallback, at };
  }

  #next(contract: Contract): Contract[] {
    const next: Contract[] = [];
    for (const step of this.#inForce(contract).fallback?.chain ?? []) {
      if (step.kind !== 'capability') continue;
      const target = parseTarget(step.target);
      if (!('problem' in target)) next.push(...this.#known.versionsOf(this.#known.canonical(target.name), target.range));
    }
    return next;
  }

  #report(circle: readonly Contract[]): void {
    const names = circle.map((contract) => `${contract.name}@${contract.version}`);
    const key = [...names].sort().join(' ');
    if (this.#reported.has(key)) return;
    this.#reported.add(key);
    this.#inForce(circle[0] as Contract).at.bad(`the fallback comes back to where it began: ${[...names, names[0]].join(' > ')}`);
  }
}
