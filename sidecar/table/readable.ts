/**
 * What came over the bus, judged before it is believed: JSON of a known version, about the subject it came on, and such
 * that it can be compiled. The leader has validated all of it; this is the second look of whoever has to live with it, so
 * that one bad message costs nothing but itself.
 */
import { parse as parseSemver } from 'semver';
import { compileSchema } from '../../base/json-schema.ts';
import { isAgentId, isCapabilityName } from '../../proto/language/names.ts';
import { type Beacon, type CapabilityState, REGISTRY_WIRE, type ScopeState } from '../../proto/wire/registry.ts';
import type { Speech } from '../../proto/wire/subjects.ts';
import { readsWire, wireProblem } from '../../proto/wire/version.ts';
import type { BeaconView } from './chain.ts';
import { MAX_SHARDS } from './scope.ts';

/** Any message of the registry, opened. */
export interface Opened {
  readonly epoch: string;
  readonly value: Readonly<Record<string, unknown>>;
}

export interface Unreadable {
  readonly problem: string;
}

const MAX_EPOCH_CHARS = 128;

export function open(data: Uint8Array): Opened | Unreadable {
  let value: unknown;
  try {
    value = JSON.parse(Buffer.from(data.buffer, data.byteOffset, data.byteLength).toString('utf8'));
  } catch {
    return { problem: 'it is not JSON' };
  }
  if (!isMap(value)) return { problem: 'it is not a JSON object' };
  if (!readsWire(value['wire'], REGISTRY_WIRE)) return { problem: wireProblem(value['wire'], REGISTRY_WIRE, "the registry's wire") };
  const epoch = value['epoch'];
  if (typeof epoch !== 'string' || epoch === '' || epoch.length > MAX_EPOCH_CHARS) return { problem: 'it names no epoch' };
  return { epoch, value };
}

export function readBeacon(data: Uint8Array): (BeaconView & { readonly epoch: string; readonly speech: Speech }) | null {
  const opened = open(data);
  if ('problem' in opened) return null;
  const { lastSeq, recent, since, speech } = opened.value as unknown as Beacon;
  if (!isSequence(lastSeq) || !Array.isArray(recent)) return null;
  for (const pair of recent as readonly unknown[])
    if (!Array.isArray(pair) || typeof pair[0] !== 'string' || !isSequence(pair[1])) return null;
  return {
    epoch: opened.epoch,
    lastSeq,
    recent,
    since: isSequence(since) ? since : null,
    speech: speech === 'named' || speech === 'asks' ? speech : 'plain',
  };
}

export function readScope({ value }: Opened): ScopeState | Unreadable {
  const names = value['capabilities'];
  if (!Array.isArray(names)) return { problem: 'capabilities must be a list of names' };
  for (const name of names as readonly unknown[])
    if (typeof name !== 'string' || !isCapabilityName(name)) return { problem: `${shown(name)} is not the name of a capability` };
  return value as unknown as ScopeState;
}

export function readCapability({ value }: Opened, name: string, shard: number): CapabilityState | Unreadable {
  const problem = capabilityProblem(value, name, shard);
  return problem === null ? (value as unknown as CapabilityState) : { problem };
}

function capabilityProblem(value: Opened['value'], name: string, shard: number): string | null {
  if (value['name'] !== name) return `it speaks of ${shown(value['name'])}, and came on the subject of ${name}`;
  if (value['shard'] !== shard) return `it calls itself shard ${shown(value['shard'])}, and came on the subject of shard ${shard}`;
  const { shards, providers, contracts, policies, staged } = value;
  if (!isSequence(shards) || shards < 1 || shards > MAX_SHARDS) return `${shown(shards)} is not a number of shards`;
  if (!Array.isArray(providers) || !Array.isArray(contracts) || !Array.isArray(policies))
    return 'contracts, policies and providers must be lists';
  return (
    firstProblem(providers, providerProblem) ??
    firstProblem(contracts, (each) => contractProblem(each, name)) ??
    firstProblem(policies, policyProblem) ??
    stagedProblem(staged, name)
  );
}

function stagedProblem(staged: unknown, name: string): string | null {
  if (staged === null || staged === undefined) return null;
  if (!isMap(staged) || typeof staged['share'] !== 'number' || typeof staged['version'] !== 'number')
    return 'staged must have version and share';
  const { contracts, policies } = staged;
  if (!Array.isArray(contracts) || !Array.isArray(policies)) return 'the staged contracts and policies must be lists';
  return firstProblem(contracts, (each) => contractProblem(each, name)) ?? firstProblem(policies, policyProblem);
}

function contractProblem(contract: unknown, name: string): string | null {
  if (!isMap(contract)) return 'a contract is not a map';
  const { version, acl, aliases, tags } = contract;
  if (contract['name'] !== name) return `a contract of ${shown(contract['name'])} stands under ${name}`;
  if (typeof version !== 'string' || parseSemver(version) === null) return `${shown(version)} is not a version`;
  const words = `${name}@${version}`;
  if (!isMap(acl) || typeof acl['isPublic'] !== 'boolean' || !Array.isArray(acl['patterns'])) return `${words} has no acl`;
  if (!Array.isArray(aliases) || !aliases.every(isText)) return `${words}: aliases must be a list of names`;
  if (!isMap(tags)) return `${words}: tags must be a map`;
  for (const part of ['retry', 'breaker', 'limits'] as const) if (!isMap(contract[part])) return `${words}: ${part} is missing`;
  for (const part of ['input', 'output'] as const) {
    const schema = contract[part];
    if (schema === null || schema === undefined) continue;
    const compiled = compileSchema(schema);
    if ('problem' in compiled) return `${words}: the ${part} schema does not compile: ${compiled.problem}`;
  }
  return null;
}

function policyProblem(policy: unknown): string | null {
  if (!isMap(policy) || typeof policy['capability'] !== 'string') return 'a policy names no capability';
  for (const part of ['retry', 'breaker', 'limits', 'providers'] as const)
    if (!isMap(policy[part])) return `the policy for ${shown(policy['capability'])}: ${part} is missing`;
  return null;
}

function providerProblem(provider: unknown): string | null {
  if (!isMap(provider) || !isMap(provider['record'])) return 'a provider has no record';
  const { record, mesh, instance } = provider as {
    readonly record: Readonly<Record<string, unknown>>;
    readonly mesh: unknown;
    readonly instance: unknown;
  };
  const { agentId, offers, endpoint, weight, via } = record;
  if (typeof agentId !== 'string' || !isAgentId(agentId)) return `${shown(agentId)} is not an agent id`;
  if (mesh !== null && typeof mesh !== 'string') return `${agentId}: the mesh address must be text or null`;
  if (instance !== undefined && typeof instance !== 'string') return `${agentId}: the instance must be text`;
  if (via !== null && typeof via !== 'string') return `${agentId}: via must be text or null`;
  if (!Array.isArray(offers) || !offers.every(isOffer)) return `${agentId}: offers must be a list of names with versions`;
  if (typeof weight !== 'number' || !(weight >= 0)) return `${agentId}: ${shown(weight)} is not a weight`;
  if (!isMap(endpoint) || !isText(endpoint['type']) || !isText(endpoint['address'])) return `${agentId}: it has no endpoint`;
  for (const part of ['limits', 'tags', 'target'] as const) if (!isMap(record[part])) return `${agentId}: ${part} is missing`;
  return null;
}

function isOffer(offer: unknown): boolean {
  return isMap(offer) && isText(offer['name']) && isText(offer['version']);
}

function firstProblem(all: readonly unknown[], problemOf: (one: unknown) => string | null): string | null {
  for (const one of all) {
    const problem = problemOf(one);
    if (problem !== null) return problem;
  }
  return null;
}

function isMap(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

function isText(value: unknown): boolean {
  return typeof value === 'string';
}

function isSequence(value: unknown): value is number {
  return typeof value === 'number' && Number.isSafeInteger(value) && value >= 0;
}

/** Whatever stood there, in few words. */
function shown(value: unknown): string {
  return (JSON.stringify(value) ?? 'nothing').slice(0, 80);
}
