/**
 * The standalone table: one YAML or JSON file that names contracts, providers, policies, overrides and sidecars. It is
 * judged as a whole: every problem is named with its place, and a file with any problem gives no document at all.
 */
import { describe } from '../../base/duration.ts';
import { contract, contractFields } from './contract.ts';
import { crossCheck } from './cross-check.ts';
import { addressProblem, tidyAddress } from './http-text.ts';
import { override, overrideFields } from './override.ts';
import { policy, policyFields } from './policy.ts';
import { provider, providerFields, sidecarName } from './provider.ts';
import {
  BAD,
  type FieldTable,
  mapped,
  object,
  openSource,
  optional,
  Place,
  readPresent,
  refuseUnknown,
  required,
  type SchemaNode,
  type Shape,
  type Source,
} from './reader.ts';
import { checkRules, MAX_RULES, rule, ruleFields, rulesShape } from './rule-reading.ts';
import type { Rule } from './rule.ts';
import type { Section } from './sections.ts';
import { breaker, limits, retry } from './settings-fields.ts';
import { list, listEach, text } from './shapes.ts';
import type { Contract, Override, Policy, Problem, ProviderRecord, SidecarAddress, TableDocument } from './types.ts';

export type TableReading = { readonly document: TableDocument } | { readonly problems: readonly Problem[] };

const sidecarFields = {
  name: required(sidecarName, 'its name, as in `via`'),
  mesh: required(
    mapped(
      text('an http or https address', (value) => addressProblem(value, false)),
      tidyAddress,
    ),
    'the address of its mesh port, such as http://127.0.0.1:9001',
  ),
};

const sidecar: Shape<SidecarAddress> = object('sidecar', sidecarFields);

const MAX_ENTRIES = 100_000;
const none: readonly never[] = Object.freeze([]);

/** The sections of a table, in the order of the docs. */
export const tableFields = {
  contracts: optional(list(contract, MAX_ENTRIES), 'What the capabilities are: names, schemas, who may call, how a call is handled.', none),
  providers: optional(list(provider, MAX_ENTRIES), 'Who serves them, and how they are reached.', none),
  policies: optional(list(policy, MAX_ENTRIES), 'What the operator says about them; stronger than the contract.', none),
  overrides: optional(list(override, 1_000), 'Emergency rules; stronger than everything.', none),
  sidecars: optional(list(sidecar, MAX_ENTRIES), 'Where the sidecars named in `via` are reached.', none),
  rules: optional(
    rulesShape,
    "What is done with messages: of the rules that match, the one whose condition names most decides (each tag counts), of two that name as many the one with the longer capability, then the first. Operators apply them with `reachctl apply`; messages need NATS, so in a sidecar's own file they are looked through and used for nothing.",
    none,
  ),
};

/**
 * Reads and checks a whole table.
 * @param ownSidecar the sidecar that reads it: it may stand in `via` without being listed.
 * @param isWhole false = contracts that are offered may be known elsewhere (a registry).
 */
export function readTable(text: string, fileName: string, ownSidecar: string | null = null, isWhole = true): TableReading {
  const { source, value } = openSource(text, fileName);
  if (value === undefined) return { problems: source.problems };
  const place = new Place(source);
  if (typeof value !== 'object' || value === null || Array.isArray(value)) {
    place.bad(
      value === null
        ? 'the file is empty: a table names contracts, providers, policies, overrides, sidecars'
        : `a table is a map with contracts, providers, policies, overrides, sidecars, not ${describe(value)}`,
    );
    return { problems: source.problems };
  }
  const map = value as Readonly<Record<string, unknown>>;
  explainStrays(source);
  refuseUnknown(map, tableFields, place);
  const document = readSections(map, place, ownSidecar, isWhole);
  return document === null ? { problems: source.problems } : { document };
}

/** Reads the sections of a table out of a map that may hold other keys too; null when there is any problem in the file. */
export function readSections(
  map: Readonly<Record<string, unknown>>,
  place: Place,
  ownSidecar: string | null,
  isWhole = true,
): TableDocument | null {
  const contracts = section(map, 'contracts', contract, place);
  const providers = section(map, 'providers', provider, place);
  const policies = section(map, 'policies', policy, place);
  const overrides = section(map, 'overrides', override, place);
  const sidecars = section(map, 'sidecars', sidecar, place);
  const rules = section(map, 'rules', rule, place, MAX_RULES);
  checkRules(rules, place.at('rules'));
  crossCheck({ contracts, providers, policies, overrides, sidecars }, place, ownSidecar, isWhole);
  if (place.source.problems.length > 0) return null;
  return deepFreeze({
    contracts: contracts.entries as Contract[],
    providers: providers.entries as ProviderRecord[],
    policies: policies.entries as Policy[],
    overrides: overrides.entries as Override[],
    sidecars: sidecars.entries as SidecarAddress[],
    ...(rules.entries.length === 0 ? null : { rules: rules.entries as Rule[] }),
  });
}

function section<T>(
  map: Readonly<Record<string, unknown>>,
  key: keyof typeof tableFields,
  shape: Shape<T>,
  place: Place,
  max = MAX_ENTRIES,
): Section<T> {
  const raw = map[key];
  if (!(key in map)) return { entries: [], raw: [] };
  const entries = readPresent<Section<T>['entries']>(
    { ...list(shape, max), read: (value, at) => listEach(shape, value, at, max) },
    raw,
    place.at(key),
  );
  return entries === BAD ? { entries: [], raw: [] } : { entries, raw: raw as readonly unknown[] };
}

/** Lets the reader say where a key that stands in the wrong map would belong. */
export function explainStrays(source: Source): void {
  source.homeOf = (key) => HOMES.find(([, fields]) => Object.hasOwn(fields, key))?.[0] ?? null;
}

const HOMES: readonly (readonly [string, FieldTable])[] = [
  ['the top level of the file', tableFields],
  ['a contract or a policy', Object.fromEntries(Object.entries(contractFields).filter(([key]) => key in policyFields)) as FieldTable],
  ['a contract', contractFields],
  ['a policy', policyFields],
  ['a provider', providerFields],
  ['an override', overrideFields],
  ['a rule', ruleFields],
  ['retry (in a contract or a policy)', retry.fields as FieldTable],
  ['breaker (in a contract or a policy)', breaker.fields as FieldTable],
  ['limits (in a contract, a policy or a provider)', limits.fields as FieldTable],
];

/** Freezes plain data all the way down. */
export function deepFreeze<T>(value: T): T {
  if (typeof value !== 'object' || value === null) return value;
  for (const part of Object.values(value)) deepFreeze(part);
  return Object.freeze(value);
}

/** JSON Schema of the table for editors, from the same tables that read it. */
export function documentSchema(): SchemaNode {
  return { $schema: 'https://json-schema.org/draft/2020-12/schema', title: 'Agent-Reach table', ...object('table', tableFields).schema() };
}
