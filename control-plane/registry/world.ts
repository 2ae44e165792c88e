/** What is registered, as an operators' document is judged against it. */
import type { RuleWorld } from '../../proto/language/rule-lint.ts';
import type { Contract } from '../../proto/language/types.ts';
import type { OperatorsDocument, World } from '../rules/document.ts';
import { labelOf } from './contracts.ts';
import { differingInterface, versionProblems } from './guard.ts';
import type { RegistryState } from './state.ts';

export function worldOf(state: RegistryState): World {
  const { book, byAgent } = state;
  return {
    *contracts() {
      for (const name of book.names()) for (const known of book.versions(name).values()) yield known.contract;
    },
    *providers() {
      for (const entries of byAgent.values()) if (entries[0] !== undefined) yield entries[0].record;
    },
    contractProblems: (contract) => problemsOf(state, contract),
    ruleWorld: () => ruleWorldOf(state),
  };
}

/** By what conditions of rules can be met at present. */
export function ruleWorldOf(state: RegistryState): RuleWorld {
  const senders = new Set<string>();
  const targets = new Set<string>();
  for (const { callers } of state.sidecars.values()) for (const caller of callers) senders.add(roleOf(caller));
  for (const entries of state.byAgent.values())
    for (const { record } of entries) {
      senders.add(record.role);
      targets.add(record.role);
      for (const tag of Object.keys(record.tags)) targets.add(tag);
    }
  const capabilities = state.names();
  return {
    senders,
    targets,
    capabilities,
    ownerOf: (alias) => {
      const owner = state.canonical(alias);
      return owner === alias ? null : owner;
    },
  };
}

function roleOf(agent: string): string {
  return agent.split('.')[1] ?? '';
}

/** What stands against a contract that an operator lays down beside those that agents have registered. */
function problemsOf({ book }: RegistryState, contract: Contract): string[] {
  const problems: string[] = [];
  const registered = book.get(contract.name, contract.version);
  const parts = registered === undefined ? [] : differingInterface(registered.contract, contract);
  if (parts.length > 0)
    problems.push(
      `agents have registered ${labelOf(contract)} with other content (${parts.join(', ')}), and it is what they do: write these parts as they are, or give it a new version`,
    );
  const others = [...book.versions(contract.name).values()].map((known) => known.contract);
  problems.push(...versionProblems(contract, others));
  for (const alias of contract.aliases) {
    const owner = book.ownerOf(alias);
    if (book.hasName(alias)) problems.push(`the alias ${alias} is the name of another capability`);
    else if (owner !== undefined && owner !== contract.name) problems.push(`the alias ${alias} belongs to ${owner} already`);
  }
  const owner = book.hasName(contract.name) ? undefined : book.ownerOf(contract.name);
  if (owner !== undefined) problems.push(`the name ${contract.name} is an alias of ${owner}`);
  return problems;
}

/** Contracts that providers rely on and that a new document no longer lays down; one sentence each. */
export function lostContracts({ book, byCapability }: RegistryState, document: OperatorsDocument): string[] {
  const lost: string[] = [];
  const kept = new Set(document.contracts.map(labelOf));
  for (const [name, entries] of byCapability) {
    const offers = [...entries].flatMap((entry) => entry.record.offers.filter((offer) => offer.name === name));
    for (const version of new Set(offers.map((offer) => offer.version)))
      if (!kept.has(`${name}@${version}`) && book.get(name, version) === undefined)
        lost.push(
          `${name}@${version} is offered by agents that did not register its contract, and it is no longer laid down here: they get no calls`,
        );
  }
  return lost;
}
