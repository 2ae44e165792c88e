/**
 * The operators' document: policies, rules for messages, and contracts that operators lay down themselves. Judged as a whole, with line and
 * column, against itself and against what is registered. What contradicts something is a problem, and nothing of the
 * document is applied; what names something that is not there (yet) is a warning, since policies may come before the
 * agents that they are for.
 */
import { describe, quote } from '../../base/duration.ts';
import { contract } from '../../proto/language/contract.ts';
import { checkContracts } from '../../proto/language/cross-check.ts';
import { deepFreeze, explainStrays } from '../../proto/language/document.ts';
import { Known } from '../../proto/language/known.ts';
import { PolicyIndex } from '../../proto/language/merge.ts';
import { isCapabilityName } from '../../proto/language/names.ts';
import { policy } from '../../proto/language/policy.ts';
import {
  BAD,
  object,
  openSource,
  optional,
  Place,
  readPresent,
  refuseUnknown,
  type SchemaNode,
  type Shape,
} from '../../proto/language/reader.ts';
import { faultsIn, type RuleWorld } from '../../proto/language/rule-lint.ts';
import { checkRules, MAX_RULES, rule, rulesShape } from '../../proto/language/rule-reading.ts';
import type { Rule } from '../../proto/language/rule.ts';
import { good, type Section, type Sections } from '../../proto/language/sections.ts';
import { list, listEach } from '../../proto/language/shapes.ts';
import type { Contract, FallbackPolicy, Policy, Problem, ProviderRecord } from '../../proto/language/types.ts';
import { circlesIn, circleWords } from './circle.ts';

export interface OperatorsDocument {
  readonly contracts: readonly Contract[];
  readonly policies: readonly Policy[];
  /** For messages; where two are equally specific, the order counts. */
  readonly rules: readonly Rule[];
}

export const EMPTY_DOCUMENT: OperatorsDocument = Object.freeze({
  contracts: Object.freeze([]),
  policies: Object.freeze([]),
  rules: Object.freeze([]),
});

/** What is registered, to judge a document against. */
export interface World {
  contracts(): Iterable<Contract>;
  providers(): Iterable<ProviderRecord>;
  /** Why a contract cannot stand beside what agents have registered; one sentence each. */
  contractProblems(contract: Contract): readonly string[];
  /** What conditions of rules can be met by. */
  ruleWorld(): RuleWorld;
}

export interface DocumentReading {
  /** Null when there is any problem. */
  readonly document: OperatorsDocument | null;
  readonly problems: readonly Problem[];
  readonly warnings: readonly Problem[];
}

const MAX_ENTRIES = 10_000;
/** It travels in one message, as JSON text. */
export const MAX_DOCUMENT_BYTES = 524_288;
/**
 * Reading takes about a second for so many, and stands in the way of everything else meanwhile, the lease too (it is held for three
 * seconds without renewal). Ten thousand policies of one field each, the longest list that is allowed, have 180,000.
 */
const MAX_DOCUMENT_TOKENS = 262_144;
/** Circles that are looked at: a knot of versions comes back to the same names over and over. */
const MAX_CIRCLES = 200;
const none: readonly never[] = Object.freeze([]);

/** The sections of the document. */
export const operatorsFields = {
  policies: optional(list(policy, MAX_ENTRIES), 'What the operator says about capabilities; stronger than their contracts.', none),
  contracts: optional(
    list(contract, MAX_ENTRIES),
    'Contracts that the operator lays down; stronger than the same version as agents register it.',
    none,
  ),
  rules: optional(
    rulesShape,
    'What is done with messages: the most specific rule that matches decides, of equally specific ones the first.',
    none,
  ),
};

const ELSEWHERE: Readonly<Record<string, string>> = {
  providers: 'providers register themselves through their sidecars; drain and weight of one are set with reachctl providers',
  sidecars: 'sidecars say themselves where they are reached',
  overrides: 'overrides do not stand in this file',
  sidecar: "this is a sidecar's own file: put policies, rules and contracts into a file of their own",
};

const NO_SECTION: Section<never> = { entries: none, raw: none };

/** @param world null: the document was judged when it was applied, and only its form is read again. */
export function readOperatorsDocument(text: string, file: string, world: World | null): DocumentReading {
  const { source, value } = openSource(text, file, { bytes: MAX_DOCUMENT_BYTES, tokens: MAX_DOCUMENT_TOKENS });
  if (value === undefined) return refused(source.problems);
  const place = new Place(source);
  if (Buffer.byteLength(JSON.stringify(text)) > MAX_DOCUMENT_BYTES) place.bad(`the file is larger than ${MAX_DOCUMENT_BYTES} bytes`);
  if (value === null) place.bad('the file is empty: it names policies, rules and contracts; to clear them all write policies: []');
  else if (typeof value !== 'object' || Array.isArray(value))
    place.bad(`an operators' file is a map with policies, rules and contracts, not ${describe(value)}`);
  if (source.problems.length > 0) return refused(source.problems);
  const map = value as Readonly<Record<string, unknown>>;
  explainStrays(source);
  const known = Object.fromEntries(Object.entries(map).filter(([key]) => !(key in ELSEWHERE)));
  for (const key of Object.keys(map)) if (key in ELSEWHERE) place.at(key).badKey(`${key}: ${ELSEWHERE[key] as string}`);
  refuseUnknown(known, operatorsFields, place);
  const sections = { contracts: section(map, 'contracts', contract, place), policies: section(map, 'policies', policy, place) };
  const rules = section(map, 'rules', rule, place, MAX_RULES);
  checkRules(rules, place.at('rules'));
  const own: Sections = { ...sections, providers: NO_SECTION, overrides: NO_SECTION, sidecars: NO_SECTION };
  const warner = source.beside();
  if (world !== null) {
    checkContracts(own, place, new Known(own));
    for (const [i, each] of good(own.contracts)) {
      if (source.isFull) break;
      for (const problem of world.contractProblems(each)) place.at('contracts', i, 'version').bad(problem);
    }
    checkRepeats(own, place);
    checkNames(own, rules, world, new Place(warner));
    checkCircles(own, world, place);
  }
  if (source.problems.length > 0) return refused(source.problems, warner.problems);
  const document: OperatorsDocument = {
    contracts: own.contracts.entries as Contract[],
    policies: own.policies.entries as Policy[],
    rules: rules.entries as Rule[],
  };
  if (world !== null) warnOfRules(document.rules, ruleWorldWith(document.contracts, world.ruleWorld()), new Place(warner));
  return {
    document: deepFreeze(JSON.parse(JSON.stringify(document)) as OperatorsDocument),
    problems: [],
    warnings: inOrder(warner.problems),
  };
}

function refused(problems: readonly Problem[], warnings: readonly Problem[] = []): DocumentReading {
  return { document: null, problems: inOrder(problems), warnings: inOrder(warnings) };
}

/** From the top of the file to its end, as a person goes through it. */
function inOrder(problems: readonly Problem[]): Problem[] {
  return problems.toSorted((a, b) => a.line - b.line || a.column - b.column);
}

/** JSON Schema of the document for editors. */
export function operatorsSchema(): SchemaNode {
  return {
    $schema: 'https://json-schema.org/draft/2020-12/schema',
    title: 'Agent-Reach policies',
    ...object('file', operatorsFields).schema(),
  };
}

function section<T>(
  map: Readonly<Record<string, unknown>>,
  key: keyof typeof operatorsFields,
  shape: Shape<T>,
  place: Place,
  max = MAX_ENTRIES,
): Section<T> {
  if (!(key in map)) return { entries: [], raw: [] };
  const lists: Shape<Section<T>['entries']> = { ...list(shape, max), read: (value, at) => listEach(shape, value, at, max) };
  const entries = readPresent(lists, map[key], place.at(key));
  return entries === BAD ? { entries: [], raw: [] } : { entries, raw: map[key] as readonly unknown[] };
}

/** Rules that can never decide, or that nothing meets as far as is known; for the rest there is `rules lint`. */
function warnOfRules(rules: readonly Rule[], world: RuleWorld, place: Place): void {
  for (const { kind, rule: name, index, words } of faultsIn(rules, world))
    place.at('rules', index, 'name').bad(`rule ${name} is ${kind}: ${words}`);
}

/** With what a document lays down beside it. */
export function ruleWorldWith(contracts: readonly Contract[], world: RuleWorld): RuleWorld {
  const capabilities = new Set(world.capabilities);
  for (const { name } of contracts) capabilities.add(name);
  const owners = new Map(contracts.flatMap(({ name, aliases }) => aliases.map((alias) => [alias, name] as const)));
  return { ...world, capabilities, ownerOf: (alias) => owners.get(alias) ?? world.ownerOf(alias) };
}

function checkRepeats(own: Sections, place: Place): void {
  const seen = new Map<string, number>();
  for (const [i, each] of good(own.policies)) {
    const before = seen.get(each.capability);
    if (before === undefined) seen.set(each.capability, i);
    else {
      const line = place.source.lineOf(place.at('policies', before).path);
      place.at('policies', i, 'capability').bad(`there is a policy for ${each.capability} already (line ${line}): put the two together`);
    }
  }
}

/** Names that lead nowhere at present. */
function checkNames(own: Sections, rules: Section<Rule>, world: World, place: Place): void {
  const labels = new Set([...good(own.contracts)].map(([, each]) => `${each.name}@${each.version}`));
  const registered = [...world.contracts()].filter((each) => !labels.has(`${each.name}@${each.version}`));
  const providers = [...world.providers()];
  const known = new Known({
    ...own,
    contracts: { entries: [...own.contracts.entries, ...registered], raw: own.contracts.raw },
    providers: { entries: providers, raw: providers },
  });
  // Each of these may look through all names for one that is near: where no more is taken, nothing is looked for.
  const { source } = place;
  for (const [i, { fallback }] of good(rules)) {
    if (source.isFull) return;
    if (fallback?.kind === 'capability')
      warn(known.targetProblem(fallback.target), place.at('rules', i, 'fallback', 'if_no_available_agent'));
  }
  for (const [i, each] of good(own.contracts)) checkSteps(each.fallback, each.name, place.at('contracts', i, 'fallback'), known);
  for (const [i, each] of good(own.policies)) {
    if (source.isFull) return;
    const at = place.at('policies', i);
    const exact = isCapabilityName(each.capability) ? each.capability : null;
    checkSteps(each.fallback, exact, at.at('fallback'), known);
    for (const agent of Object.keys(each.providers)) {
      if (source.isFull) return;
      warn(known.agentProblem(agent), at.at('providers', agent), true);
    }
    if (exact === null) continue;
    const unknown = known.nameProblem(exact, false);
    warn(unknown, at.at('capability'));
    if (unknown !== null) continue;
    if (each.defaultRange !== null) warn(known.targetProblem(`${exact}@${each.defaultRange}`), at.at('default_range'));
    for (const version of Object.keys(each.canary ?? {})) warn(known.versionProblem(exact, version), at.at('canary', version), true);
  }
}

function checkSteps(fallback: FallbackPolicy | null, capability: string | null, place: Place, known: Known): void {
  for (const [i, step] of (fallback?.chain ?? []).entries()) {
    if (place.source.isFull) return;
    if (step.kind === 'capability') warn(known.targetProblem(step.target), place.at(i, 'capability'));
    if (step.kind !== 'provider') continue;
    const problem = known.agentProblem(step.agentId);
    const offers = capability === null || known.offers(step.agentId, capability);
    warn(problem ?? (offers ? null : `${step.agentId} does not offer ${quote(capability)}`), place.at(i, 'provider'));
  }
}

function warn(problem: string | null, place: Place, atKey = false): void {
  if (problem === null) return;
  if (atKey) place.badKey(problem);
  else place.bad(problem);
}

/** Circles in which this document has a hand. */
function checkCircles(own: Sections, world: World, place: Place): void {
  const policies = [...good(own.policies)].map(([, each]) => each);
  const said = new Map<string, Map<string, Contract>>();
  const aliases = new Map<string, string>();
  for (const each of [...world.contracts(), ...[...good(own.contracts)].map(([, each]) => each)]) {
    const versions = said.get(each.name) ?? new Map<string, Contract>();
    said.set(each.name, versions.set(each.version, each));
    for (const alias of each.aliases) aliases.set(alias, each.name);
  }
  const fallbacks = {
    versionsOf: (name: string) => [...(said.get(name)?.values() ?? [])],
    canonical: (name: string) => (said.has(name) ? name : (aliases.get(name) ?? name)),
    policies,
  };
  const all = [...said.values()].flatMap((versions) => [...versions.values()]);
  const reported = new Set<string>();
  const placeOf = circlePlaces(own, policies, place);
  let looked = 0;
  for (const circle of circlesIn(all, fallbacks)) {
    // the versions of one capability make one circle, not several
    const names = new Set(circle.map(({ name }) => name));
    const key = [...names].sort().join(' ');
    if (!reported.has(key)) placeOf(names).bad(`the fallback comes back to where it began: ${circleWords(circle)}`);
    reported.add(key);
    if (place.source.isFull || ++looked >= MAX_CIRCLES) return;
  }
}

/** Of a circle: the first policy or contract of the document that sends one of its members on. */
function circlePlaces(own: Sections, policies: readonly Policy[], place: Place): (names: ReadonlySet<string>) => Place {
  const index = new PolicyIndex(policies.filter(({ fallback }) => fallback !== null));
  const at = new Map<Policy, number>();
  const laidDown = new Map<string, number>();
  for (const [i, each] of good(own.policies)) at.set(each, i);
  for (const [i, each] of good(own.contracts)) if (each.fallback !== null && !laidDown.has(each.name)) laidDown.set(each.name, i);
  return (names) => {
    let policy = Number.POSITIVE_INFINITY;
    let contractAt = Number.POSITIVE_INFINITY;
    for (const name of names) {
      for (const each of index.covering(name)) policy = Math.min(policy, at.get(each) as number);
      contractAt = Math.min(contractAt, laidDown.get(name) ?? Number.POSITIVE_INFINITY);
    }
    if (Number.isFinite(policy)) return place.at('policies', policy, 'fallback');
    return Number.isFinite(contractAt) ? place.at('contracts', contractAt, 'fallback') : place;
  };
}
