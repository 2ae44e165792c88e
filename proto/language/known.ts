/** The names of one table, to check references against; a name whose entry is itself in trouble is given the benefit of the doubt. */
import { quote } from '../../base/duration.ts';
import { nearest } from '../../base/suggest.ts';
import type { SemVer } from 'semver';
import { PolicyIndex } from './merge.ts';
import { parseTarget } from './names.ts';
import { compileRange, parseVersion } from './range.ts';
import { BAD } from './reader.ts';
import { good, type Sections } from './sections.ts';
import type { Contract } from './types.ts';

export class Known {
  /** Name → version → contract. */
  readonly #contracts = new Map<string, Map<string, Contract>>();
  readonly #aliases = new Map<string, string>();
  readonly #agents = new Map<string, ReadonlySet<string>>();
  /** Names of contracts that could not be read. */
  readonly #doubtfulNames = new Set<string>();
  readonly #policies: PolicyIndex;
  /** What has been said of targets: many may lead to the same one. */
  readonly #targets = new Map<string, string | null>();
  /** Some contract's very name could not be read: any name may be it. */
  readonly #isAnyNameDoubtful: boolean;
  readonly #areAgentsDoubtful: boolean;

  constructor(sections: Sections) {
    let isAnyNameDoubtful = false;
    for (const [i, entry] of sections.contracts.entries.entries()) {
      if (entry !== BAD) {
        const { name, version } = entry;
        const versions = this.#contracts.get(name) ?? new Map<string, Contract>();
        this.#contracts.set(name, versions.set(version, entry));
        for (const alias of entry.aliases) this.#aliases.set(alias, name);
        continue;
      }
      const name = (sections.contracts.raw[i] as { name?: unknown } | null)?.name;
      if (typeof name === 'string') this.#doubtfulNames.add(name);
      else isAnyNameDoubtful = true;
    }
    for (const [, provider] of good(sections.providers))
      this.#agents.set(provider.agentId, new Set(provider.offers.map((offer) => offer.name)));
    this.#isAnyNameDoubtful = isAnyNameDoubtful;
    this.#areAgentsDoubtful = sections.providers.entries.includes(BAD);
    this.#policies = new PolicyIndex([...good(sections.policies)].map(([, policy]) => policy));
  }

  hasName(name: string): boolean {
    return this.#contracts.has(name) || this.#doubtfulNames.has(name);
  }

  /** The name that an alias stands for, or the name itself. */
  canonical(name: string): string {
    return this.#aliases.get(name) ?? name;
  }

  /** Why no contract has this name; null when one has. */
  nameProblem(name: string, areAliasesAllowed: boolean): string | null {
    if (this.#isAnyNameDoubtful || this.hasName(name)) return null;
    const meant = this.#aliases.get(name);
    if (meant !== undefined) return areAliasesAllowed ? null : `${name} is an alias: write ${meant}`;
    const near = nearest(name, [...this.#contracts.keys(), ...(areAliasesAllowed ? this.#aliases.keys() : [])]);
    return `no contract is called ${quote(name)}${near !== null ? `; did you mean ${near}?` : `; there are ${cut([...this.#contracts.keys()])}`}`;
  }

  versionProblem(name: string, version: string): string | null {
    const problem = this.nameProblem(name, false);
    if (problem !== null) return problem;
    if (this.#isDoubtful(name) || this.#contracts.get(name)?.has(version) === true) return null;
    return `${name} has no version ${version}; it has ${this.#versionsText(name)}`;
  }

  agentProblem(agentId: string): string | null {
    if (this.#areAgentsDoubtful || this.#agents.has(agentId)) return null;
    const near = nearest(agentId, this.#agents.keys());
    return `no provider is called ${quote(agentId)}${near !== null ? `; did you mean ${near}?` : this.#agents.size > 0 ? `; there are ${cut([...this.#agents.keys()])}` : ''}`;
  }

  /** True when the provider offers the capability, or when that cannot be known. */
  offers(agentId: string, name: string): boolean {
    return this.#areAgentsDoubtful || this.#agents.get(agentId)?.has(name) === true;
  }

  /** Why a target (`name`, alias, with or without range) leads nowhere; null when it leads somewhere. */
  targetProblem(text: string): string | null {
    let problem = this.#targets.get(text);
    if (problem === undefined) {
      problem = this.#targetProblem(text);
      this.#targets.set(text, problem);
    }
    return problem;
  }

  #targetProblem(text: string): string | null {
    const target = parseTarget(text);
    if ('problem' in target) return target.problem;
    const problem = this.nameProblem(target.name, true);
    if (problem !== null) return problem;
    const name = this.canonical(target.name);
    if (this.#isDoubtful(name) || this.versionsOf(name, target.range).length > 0) return null;
    return target.range === null ? null : `${name} has no version that meets ${quote(target.range)}; it has ${this.#versionsText(name)}`;
  }

  /** The versions that a call with this range (null: none) may meet. */
  versionsOf(name: string, range: string | null): Contract[] {
    const contracts = [...(this.#contracts.get(name)?.values() ?? [])];
    const text = range ?? this.#defaultRange(name);
    if (text !== null) {
      const compiled = compileRange(text);
      return 'problem' in compiled ? [] : contracts.filter((contract) => compiled.satisfiedBy(parseVersion(contract.version)));
    }
    const stable = contracts.filter((contract) => parseVersion(contract.version).prerelease.length === 0);
    if (stable.length === 0) return contracts;
    const newest = Math.max(...stable.map((contract) => parseVersion(contract.version).major));
    return stable.filter((contract) => parseVersion(contract.version).major === newest);
  }

  #defaultRange(name: string): string | null {
    let range: string | null = null;
    for (const policy of this.#policies.covering(name)) range = policy.defaultRange ?? range;
    return range;
  }

  #isDoubtful(name: string): boolean {
    return this.#isAnyNameDoubtful || this.#doubtfulNames.has(name);
  }

  #versionsText(name: string): string {
    const versions: SemVer[] = [...(this.#contracts.get(name)?.keys() ?? [])].map(parseVersion);
    return versions.length === 0 ? 'none' : cut(versions.sort((a, b) => a.compare(b)).map((version) => version.version));
  }
}

const SHOWN = 10;

function cut(words: readonly string[]): string {
  if (words.length === 0) return 'none';
  return words.length <= SHOWN ? words.join(', ') : `${words.slice(0, SHOWN).join(', ')} and ${words.length - SHOWN} more`;
}
