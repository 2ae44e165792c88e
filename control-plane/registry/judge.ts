/**
 * Whether an agent's registration fits what is there: whose agent it is, what its contracts break, whose names they take.
 * Its form has been judged before (`requests.ts`), and the addresses too (`address-guard.ts`). Says everything that is
 * wrong at once; changes nothing.
 */
import { sameValue } from '../../proto/language/schema-compat.ts';
import type { Contract } from '../../proto/language/types.ts';
import { Code } from '../../proto/wire/codes.ts';
import type { AgentRegistration, Refusal } from '../../proto/wire/registry.ts';
import { circleFrom, fallbackOf, targetsOf } from '../rules/circle.ts';
import { labelOf } from './contracts.ts';
import type { AgentEntry, SidecarEntry } from './entries.ts';
import { differingInterface, differingParts, sameVersionBreaks, versionProblems } from './guard.ts';
import { refusal, sizeOf } from './requests.ts';
import { contractsSaid } from './said.ts';
import type { RegistryState } from './state.ts';

/** What one sidecar registers travels in one message. */
const MAX_SIDECAR_BYTES = 786_432;
/** The contracts of one capability travel in one message. */
const MAX_CAPABILITY_BYTES = 393_216;

export interface Judgement {
  /** What stands against it; null = it is admitted. */
  readonly refusal: Refusal | null;
  /** What is in force otherwise than it says; null = nothing. */
  readonly warning: Refusal | null;
  /** Contracts that others have otherwise in parts that make no difference to what the agent does. */
  readonly contested: readonly Contract[];
}

/**
 * One version is the same everywhere. An agent that does the same work under another description, ACL or timeout is not
 * turned away for that (in a rolling change the first one always differs): it serves under the contract that is known, is
 * told so, and its own is taken when nobody insists on the old one any more.
 */
export function judgeAgent(state: RegistryState, sidecar: SidecarEntry, registration: AgentRegistration): Judgement {
  const { record, contracts } = registration;
  const barred = (problems: readonly string[], code: number = Code.invalid_request): Judgement => ({
    refusal: refusal(record.agentId, problems, code),
    warning: null,
    contested: [],
  });
  if (record.via !== null && record.via !== sidecar.name)
    return barred(
      [
        `via is ${record.via}, and the sidecar ${sidecar.name} registers only what it hosts itself (via: ${sidecar.name}) or third parties (no via)`,
      ],
      Code.forbidden,
    );
  const problems = ownerProblems(state, sidecar, registration);
  const contested: Contract[] = [];
  const contests: string[] = [];
  for (const contract of contracts) {
    const contest = contestOf(state, sidecar, contract);
    if (contest === null || !contest.isHarmless) problems.push(...contractProblems(state, contract, contest?.words ?? null));
    else {
      contested.push(contract);
      contests.push(`${contest.words}; until then the registered one is in force, for this agent too`);
    }
  }
  for (const offer of record.offers) {
    const isListed = contracts.some((contract) => contract.name === offer.name && contract.version === offer.version);
    if (!isListed && !isKnown(state, offer.name, offer.version))
      problems.push(`it offers ${labelOf(offer)}, and no contract of that name and version is known: register the contract with it`);
  }
  for (const name of Object.keys(record.endpoint.mapping))
    if (name !== '*' && !record.offers.some((offer) => offer.name === name))
      problems.push(`a mapping for ${name}, which this provider does not offer`);
  problems.push(...sizeProblems(state, sidecar, registration));
  if (problems.length === 0) problems.push(...circleProblems(state, contracts));
  if (problems.length > 0) return barred([...problems, ...contests]);
  return { refusal: null, warning: contests.length === 0 ? null : refusal(record.agentId, contests), contested };
}

function isKnown(state: RegistryState, name: string, version: string): boolean {
  if (state.book.get(name, version) !== undefined) return true;
  return state.active.contracts.some((contract) => contract.name === name && contract.version === version);
}

/** Another sidecar's agent of this id that cannot be taken over; those that are offline can. */
export function rivalsOf(state: RegistryState, sidecar: SidecarEntry, agentId: string): AgentEntry[] {
  return (state.byAgent.get(agentId) ?? []).filter((entry) => entry.sidecar !== sidecar);
}

/** Several sidecars may describe the same third party, as long as they say the same. */
export function isShared(entry: AgentEntry, record: AgentRegistration['record']): boolean {
  return entry.record.via === null && record.via === null && sameValue(entry.record, record);
}

function ownerProblems(state: RegistryState, sidecar: SidecarEntry, { record }: AgentRegistration): string[] {
  const problems: string[] = [];
  for (const rival of rivalsOf(state, sidecar, record.agentId)) {
    if (!rival.isOnline || isShared(rival, record)) continue;
    const seconds = Math.round((state.clock.now() - Math.max(rival.activeAt ?? rival.restedAt, rival.sidecar.lastSignAt())) / 1_000);
    const held = `the agent ${record.agentId} is registered by the sidecar ${rival.sidecar.name} (online, last sign of life ${seconds} s ago)`;
    problems.push(
      record.via === null && rival.record.via === null
        ? `${held} with another record (${differingFields(rival.record, record).join(', ')}): sidecars that describe the same third party must say the same`
        : `${held}: an agent id belongs to one sidecar at a time. Give this one another id, or stop that one; it can be taken over when that one has said goodbye or been silent for ${state.times.offlineMs / 1_000} s`,
    );
  }
  return problems;
}

function differingFields(a: object, b: object): string[] {
  const [one, other] = [a as Record<string, unknown>, b as Record<string, unknown>];
  return Object.keys(one).filter((key) => !sameValue(one[key], other[key]));
}

/** Another sidecar that is online has the same version with other content. */
function contestOf(
  state: RegistryState,
  sidecar: SidecarEntry,
  contract: Contract,
): { readonly words: string; readonly isHarmless: boolean } | null {
  const label = labelOf(contract);
  const known = state.book.get(contract.name, contract.version);
  if (known === undefined || sameValue(known.contract, contract)) return null;
  const insists = (entry: AgentEntry): boolean => {
    const wish = entry.contested.get(label);
    return entry.isOnline && entry.sidecar !== sidecar && (wish === undefined || !sameValue(wish, contract));
  };
  const holder = [...known.holders].find(insists);
  if (holder === undefined) return null;
  const parts = differingParts(known.contract, contract).join(', ');
  return {
    words: `${label} is registered by the sidecar ${holder.sidecar.name} with other content (${parts}): one version is the same everywhere. Give the changed one a new version, or change it everywhere`,
    isHarmless: differingInterface(known.contract, contract).length === 0,
  };
}

/** What stands against one contract beside everything that is known. */
function contractProblems(state: RegistryState, contract: Contract, contest: string | null): string[] {
  const problems: string[] = [];
  const label = labelOf(contract);
  const laidDown = [...state.active.contracts, ...(state.staged?.contracts ?? [])].find((each) => labelOf(each) === label);
  if (laidDown !== undefined) {
    const parts = differingInterface(laidDown, contract);
    if (parts.length > 0)
      problems.push(`${label} is laid down by the operators with other content (${parts.join(', ')}): register the same, or a new version`);
  }
  const known = state.book.get(contract.name, contract.version);
  if (contest !== null) problems.push(contest);
  else if (known !== undefined && !sameValue(known.contract, contract)) {
    const broken = sameVersionBreaks(known.contract, contract);
    if (broken.length > 0)
      problems.push(
        `${label} breaks what was registered as ${label} before: ${broken.join('; ')}. Give it a new major, or take these back`,
      );
  }
  const said = [
    ...contractsSaid(contract.name, state.book, state.active),
    ...(state.staged?.contracts ?? []).filter((each) => each.name === contract.name),
  ];
  problems.push(...new Set(versionProblems(contract, said)));
  problems.push(...aliasProblems(state, contract));
  return problems;
}

/** An alias must not stand for two things, nor a name be another's alias. */
function aliasProblems(state: RegistryState, contract: Contract): string[] {
  const problems: string[] = [];
  for (const alias of contract.aliases) {
    if (state.knows(alias)) problems.push(`the alias ${alias} is the name of another capability`);
    else {
      const owner = state.canonical(alias);
      if (owner !== alias && owner !== contract.name) problems.push(`the alias ${alias} belongs to ${owner} already`);
    }
  }
  const owner = state.knows(contract.name) ? contract.name : state.canonical(contract.name);
  if (owner !== contract.name) problems.push(`the name ${contract.name} is an alias of ${owner}`);
  return problems;
}

function sizeProblems(state: RegistryState, sidecar: SidecarEntry, { record, contracts }: AgentRegistration): string[] {
  const problems: string[] = [];
  const before = sidecar.agents.get(record.agentId);
  let bytes = sidecar.bytes - (before === undefined ? 0 : sizeOf(before.record)) + sizeOf(record);
  const labels = new Set([...contracts.map(labelOf), ...[...sidecar.agents.values()].flatMap((entry) => entry.labels)]);
  for (const label of labels) {
    const own = contracts.find((contract) => labelOf(contract) === label) ?? state.book.byLabel(label)?.contract;
    if (own !== undefined) bytes += sizeOf(own);
  }
  if (bytes > MAX_SIDECAR_BYTES)
    problems.push(
      `the sidecar ${sidecar.name} would register ${bytes} bytes, and at most ${MAX_SIDECAR_BYTES} are allowed: spread its agents over several`,
    );
  for (const name of new Set(contracts.map((contract) => contract.name))) {
    const own = contracts.filter((contract) => contract.name === name);
    let total = state.book.bytesOf(name);
    for (const contract of own) {
      const known = state.book.get(name, contract.version);
      total += sizeOf(contract) - (known === undefined ? 0 : sizeOf(known.contract));
    }
    if (total > MAX_CAPABILITY_BYTES)
      problems.push(
        `the versions of ${name} would have ${total} bytes together, and at most ${MAX_CAPABILITY_BYTES} are allowed: drop old ones or shorten their schemas`,
      );
  }
  return problems;
}

function circleProblems(state: RegistryState, contracts: readonly Contract[]): string[] {
  const problems: string[] = [];
  for (const contract of contracts) {
    const { policies } = state.active;
    if (targetsOf(fallbackOf(contract, policies)).length === 0) continue;
    const own = new Map(contracts.filter((each) => each.name === contract.name).map((each) => [each.version, each]));
    const circle = circleFrom(contract, {
      policies,
      canonical: (name) =>
        contracts.some((each) => each.name === name)
          ? name
          : (contracts.find((each) => each.aliases.includes(name))?.name ?? state.canonical(name)),
      versionsOf: (name) => {
        const versions = new Map(contractsSaid(name, state.book, state.active).map((each) => [each.version, each]));
        for (const each of name === contract.name ? own.values() : contracts) if (each.name === name) versions.set(each.version, each);
        return [...versions.values()];
      },
    });
    if (circle !== null) problems.push(`the fallback comes back to where it began: ${circle}`);
  }
  return problems;
}
