/**
 * What each sidecar is to know (SPEC R2.8): the capabilities that one of its callers may call in some version, those that
 * it hosts, and those to which the fallbacks of these lead. Kept up to date capability by capability, since working it all
 * out for every sidecar at every change would cost sidecars × capabilities.
 */
import { parseTarget } from '../../proto/language/names.ts';
import type { Acl, Contract } from '../../proto/language/types.ts';
import type { SidecarEntry } from './entries.ts';

export interface ScopeWorld {
  sidecars(): Iterable<SidecarEntry>;
  /** Every version that some sidecar may be told of, the staged ones too. */
  contractsOf(name: string): readonly Contract[];
  /** Targets of the fallbacks that are in force, as written. */
  targetsOf(name: string): readonly string[];
  names(): Iterable<string>;
  /** The name that an alias stands for, or the name itself. */
  canonical(name: string): string;
  /** Some version of it refuses nobody: its ACL is in audit. */
  isOpen(name: string): boolean;
  /** Names of the sidecars that have a provider of it registered. */
  hostsOf(name: string): ReadonlySet<string>;
}

type Parts = readonly [team: string, role: string, id: string];

class Scope {
  readonly direct = new Set<string>();
  /** Reached by fallbacks only. */
  extra = new Set<string>();
  callers: readonly Parts[];
  constructor(callers: readonly string[]) {
    this.callers = callers.map(partsOf);
  }
}

export class Scopes {
  readonly #world: ScopeWorld;
  readonly #scopes = new Map<string, Scope>();
  /** Capability → names that its fallbacks lead to, as written, without ranges; only those that have any. */
  readonly #edges = new Map<string, readonly string[]>();
  /** What each of those names meant when it was last looked at; '' = nothing. */
  #meanings = new Map<string, string>();

  constructor(world: ScopeWorld) {
    this.#world = world;
  }

  /** Sorted. */
  of(sidecar: string): string[] {
    const scope = this.#scopes.get(sidecar);
    return scope === undefined ? [] : [...scope.direct, ...scope.extra].sort();
  }

  forget(sidecar: string): void {
    this.#scopes.delete(sidecar);
  }

  /** A sidecar is new, or its callers or what it hosts have changed; true when its scope has. */
  refresh(sidecar: SidecarEntry): boolean {
    const before = this.of(sidecar.name);
    const scope = new Scope(sidecar.callers);
    this.#scopes.set(sidecar.name, scope);
    for (const name of hostedBy(sidecar)) scope.direct.add(name);
    if (scope.callers.length > 0)
      for (const name of this.#world.names()) if (this.#admits(name, this.#world.contractsOf(name), scope.callers)) scope.direct.add(name);
    scope.extra = this.#extraOf(scope);
    return !sameWords(before, this.of(sidecar.name));
  }

  /** What a sidecar hosts has changed for these names only; true when its scope may have. */
  hostingChanged(sidecar: SidecarEntry, names: Iterable<string>): boolean {
    const scope = this.#scopes.get(sidecar.name);
    if (scope === undefined) return this.refresh(sidecar);
    let hasChanged = false;
    for (const name of names) {
      const contracts = this.#world.contractsOf(name);
      if (this.#place(scope, name, contracts, this.#world.hostsOf(name).has(sidecar.name))) hasChanged = true;
    }
    return hasChanged;
  }

  /** The contracts or fallbacks of a capability have changed: the sidecars whose scope may have. */
  capabilityChanged(name: string): string[] {
    const isRerouted = this.#setEdges(name) || this.#meaningsChanged();
    const contracts = this.#world.contractsOf(name);
    const hosts = this.#world.hostsOf(name);
    const changed: string[] = [];
    for (const sidecar of this.#world.sidecars()) {
      const scope = this.#scopes.get(sidecar.name);
      if (scope === undefined) continue;
      const isMoved = this.#place(scope, name, contracts, hosts.has(sidecar.name));
      const isExtended = isRerouted && this.#follow(scope);
      if (isMoved || isExtended) changed.push(sidecar.name);
    }
    return changed;
  }

  #setEdges(name: string): boolean {
    const targets = [...new Set(this.#world.targetsOf(name).map(nameOf))];
    const before = this.#edges.get(name) ?? [];
    if (targets.length > 0) this.#edges.set(name, targets);
    else this.#edges.delete(name);
    return !sameWords(before, targets);
  }

  #meaningsChanged(): boolean {
    if (this.#edges.size === 0 && this.#meanings.size === 0) return false;
    const now = new Map<string, string>();
    let hasChanged = false;
    for (const targets of this.#edges.values()) {
      for (const target of targets) {
        if (now.has(target)) continue;
        const meaning = this.#meaningOf(target);
        now.set(target, meaning);
        if (this.#meanings.get(target) !== meaning) hasChanged = true;
      }
    }
    this.#meanings = now;
    return hasChanged;
  }

  #meaningOf(target: string): string {
    const name = this.#world.canonical(target);
    return this.#world.contractsOf(name).length === 0 ? '' : name;
  }

  /** Whether a capability is in scope for what it is itself; true when that has changed. */
  #place(scope: Scope, name: string, contracts: readonly Contract[], isHosted: boolean): boolean {
    const isIn = isHosted || this.#admits(name, contracts, scope.callers);
    if (isIn === scope.direct.has(name)) return false;
    if (isIn) scope.direct.add(name);
    else scope.direct.delete(name);
    if (this.#edges.size > 0 || scope.extra.size > 0) this.#follow(scope);
    return true;
  }

  /** Where a list only audits, everybody's sidecar must know the capability: else nobody would get as far as the list. */
  #admits(name: string, contracts: readonly Contract[], callers: readonly Parts[]): boolean {
    return admitsAny(contracts, callers) || (callers.length > 0 && contracts.length > 0 && this.#world.isOpen(name));
  }

  #follow(scope: Scope): boolean {
    const before = scope.extra;
    scope.extra = this.#extraOf(scope);
    return before.size !== scope.extra.size || [...before].some((name) => !scope.extra.has(name));
  }

  /** Follows the fallbacks from what is in scope. Costs as many steps as there are capabilities with fallbacks. */
  #extraOf(scope: Scope): Set<string> {
    const extra = new Set<string>();
    const queue: string[] = [];
    for (const name of this.#edges.keys()) if (scope.direct.has(name)) queue.push(name);
    for (let name = queue.pop(); name !== undefined; name = queue.pop()) {
      for (const target of this.#edges.get(name) ?? []) {
        const next = this.#meaningOf(target);
        if (next === '' || scope.direct.has(next) || extra.has(next)) continue;
        extra.add(next);
        queue.push(next);
      }
    }
    return extra;
  }
}

function nameOf(target: string): string {
  const parsed = parseTarget(target);
  return 'problem' in parsed ? target : parsed.name;
}

function partsOf(agent: string): Parts {
  const [team = '', role = '', id = ''] = agent.split('.');
  return [team, role, id];
}

function hostedBy(sidecar: SidecarEntry): Set<string> {
  const names = new Set<string>();
  for (const agent of sidecar.agents.values()) for (const offer of agent.record.offers) names.add(offer.name);
  return names;
}

function admitsAny(contracts: readonly Contract[], callers: readonly Parts[]): boolean {
  return callers.length > 0 && contracts.some((contract) => callers.some((caller) => admits(contract.acl, caller)));
}

function admits(acl: Acl, [team, role, id]: Parts): boolean {
  return (
    acl.isPublic ||
    acl.patterns.some(
      (pattern) =>
        (pattern.team === null || pattern.team === team) &&
        (pattern.role === null || pattern.role === role) &&
        (pattern.id === null || pattern.id === id),
    )
  );
}

function sameWords(a: readonly string[], b: readonly string[]): boolean {
  return a.length === b.length && a.every((word, i) => word === b[i]);
}
