/**
 * Requests of sidecars, from JSON that somebody sent to what the registry takes. One bad agent does not spoil the others:
 * each is judged by itself, with everything that is wrong with it. Whether it fits the rest of the registry is asked there.
 */
import { isDeeper } from '../../base/depth.ts';
import { quote } from '../../base/duration.ts';
import { contract as contractShape } from '../../proto/language/contract.ts';
import { deepFreeze } from '../../proto/language/document.ts';
import { addressProblem, tidyAddress } from '../../proto/language/http-text.ts';
import { agentIdProblem } from '../../proto/language/names.ts';
import { provider as providerShape } from '../../proto/language/provider.ts';
import { isRuleName, MAX_RULES } from '../../proto/language/rule-reading.ts';
import { BAD, openSource, Place, type Shape } from '../../proto/language/reader.ts';
import type { Contract, ProviderRecord } from '../../proto/language/types.ts';
import { writeContract, writeProvider } from '../../proto/language/written.ts';
import { Code } from '../../proto/wire/codes.ts';
import { refusedIn } from '../../proto/wire/overrides.ts';
import {
  type AgentRegistration,
  type Heartbeat,
  type Hello,
  type Leave,
  type Refusal,
  type Register,
  type RegistrationState,
  REGISTRY_WIRE,
  type Report,
  type RulesReport,
} from '../../proto/wire/registry.ts';
import { readsWire, wireProblem } from '../../proto/wire/version.ts';
import { readQuotasReport, readShifted } from './measures.ts';

/** A request that could be read; `refused` names the agents that could not. */
export interface Read<T> {
  readonly request: T;
  readonly refused: readonly Refusal[];
}
export type Reading<T> = Read<T> | { readonly request: null; readonly refused: readonly Refusal[] };

type Loose = Readonly<Record<string, unknown>>;

const MAX_DEPTH = 64;
const MAX_AGENTS = 10_000;
/** A sidecar may have twelve thousand dial-in agents, who all may call; with ids of usual length this many fit into one message. */
const MAX_CALLERS = 20_000;
const MAX_CONTRACTS = 1_000;
/** Larger ones would crowd the messages in which they travel. */
export const MAX_CONTRACT_BYTES = 65_536;
export const MAX_RECORD_BYTES = 32_768;

/** One token of a subject; file names may have dots, the registry cannot. */
const SIDECAR = /^[a-z0-9][a-z0-9_-]{0,62}$/;
const INSTANCE = /^[A-Za-z0-9_-]{1,64}$/;
const PLACE_NAME = /^[A-Za-z0-9][A-Za-z0-9_.-]{0,62}$/;

export function readHello(json: unknown): Reading<Hello> {
  const problems: string[] = [];
  const from = readSender(json, problems);
  if (from === null) return refusedWhole(problems);
  const mesh = readMesh(from.map['mesh'], problems);
  const region = readPlace(from.map['region'], 'region', problems);
  const zone = readPlace(from.map['zone'], 'zone', problems);
  const callers = readCallers(from.map['callers'], problems);
  const list = from.map['agents'];
  if (!Array.isArray(list) || list.length > MAX_AGENTS) problems.push(`agents must be a list of at most ${MAX_AGENTS}`);
  if (problems.length > 0) return refusedWhole(problems);
  const agents: AgentRegistration[] = [];
  const refused: Refusal[] = [];
  const seen = new Set<string>();
  for (const [i, each] of (list as readonly unknown[]).entries()) {
    const read = readAgent(each);
    if ('problems' in read) refused.push(read.agent === '' ? { ...read, agent: `agents/${i}` } : read);
    else if (seen.has(read.record.agentId)) refused.push(refusal(read.record.agentId, ['this agent is listed twice in one hello']));
    else {
      seen.add(read.record.agentId);
      agents.push(read);
    }
  }
  const named = from.map['named'] === true ? ({ named: true } as const) : null;
  return { request: { ...from.head, mesh, region, zone, callers, ...named, agents }, refused };
}

export function readRegister(json: unknown): Reading<Register> {
  const problems: string[] = [];
  const from = readSender(json, problems);
  if (from === null) return refusedWhole(problems);
  const agent = readAgent(from.map['agent']);
  if ('problems' in agent) return { request: null, refused: [agent] };
  return { request: { ...from.head, agent }, refused: [] };
}

export function readLeave(json: unknown): Reading<Leave> {
  const problems: string[] = [];
  const from = readSender(json, problems);
  if (from === null) return refusedWhole(problems);
  const agent = from.map['agent'] ?? null;
  const problem = agent === null ? null : typeof agent === 'string' ? agentIdProblem(agent) : 'agent must be an agent id or null';
  if (problem !== null) return refusedWhole([problem]);
  return { request: { ...from.head, agent: agent as string | null, why: from.map['why'] === 'lease' ? 'lease' : 'left' }, refused: [] };
}

/** Null when it is none: there is nobody to answer. */
export function readHeartbeat(json: unknown): Heartbeat | null {
  const from = readSender(json, []);
  if (from === null || !isMap(from.map['agents'])) return null;
  const agents: Record<string, { idleMs: number; inFlight: number }> = Object.create(null) as Record<
    string,
    { idleMs: number; inFlight: number }
  >;
  for (const [agent, life] of Object.entries(from.map['agents'])) {
    if (!isMap(life) || agentIdProblem(agent) !== null) continue;
    agents[agent] = { idleMs: atLeastZero(life['idleMs']), inFlight: atLeastZero(life['inFlight']) };
  }
  return { ...from.head, agents };
}

/**
 * What one sidecar has registered, out of an export that somebody may have edited: judged like a hello. `problems` says
 * what was left out; null when the sidecar itself cannot be read.
 */
export function readRegistration(json: unknown): { readonly state: RegistrationState | null; readonly problems: readonly string[] } {
  const map = isMap(json) ? json : {};
  const { request, refused } = readHello(map['hello']);
  const problems = refused.flatMap((each) => each.problems.map((problem) => (each.agent === '' ? problem : `${each.agent}: ${problem}`)));
  if (map['wire'] !== REGISTRY_WIRE)
    return { state: null, problems: ['a registration is a map with wire, epoch, hello and offline', ...problems] };
  if (request === null) return { state: null, problems };
  const offline: Record<string, RegistrationState['offline'][string]> = {};
  for (const { record } of request.agents) {
    const said = isMap(map['offline']) && Object.hasOwn(map['offline'], record.agentId) ? map['offline'][record.agentId] : undefined;
    if (!isMap(said)) continue;
    const why = OFFLINE_WHYS.find((each) => each === said['why']) ?? 'lease';
    offline[record.agentId] = { sinceMs: atLeastZero(said['sinceMs']), why };
  }
  const retired: { contract: Contract; sinceMs: number }[] = [];
  for (const [i, each] of (Array.isArray(map['retired']) ? (map['retired'] as readonly unknown[]) : []).entries()) {
    if (!isMap(each) || isDeeper(each, MAX_DEPTH)) continue;
    const contract = readPart(contractShape, writeContract(each['contract']), `retired/${i}`, problems) as Contract | null;
    if (contract !== null) retired.push({ contract: deepFreeze(contract), sinceMs: atLeastZero(each['sinceMs']) });
  }
  return { state: { wire: REGISTRY_WIRE, epoch: word(map['epoch']), hello: request, offline, retired }, problems };
}

const OFFLINE_WHYS = ['lease', 'left', 'probe'] as const;

const MAX_REFUSED_MESSAGES = 20;

/** Null when it is none. */
export function readReport(json: unknown): Report | null {
  const from = readSender(json, []);
  if (from === null) return null;
  const { map } = from;
  const policies = isMap(map['policies']) ? map['policies'] : {};
  const refused = Array.isArray(map['refused']) ? (map['refused'] as readonly unknown[]) : [];
  return {
    ...from.head,
    version: word(map['version']),
    epoch: word(map['epoch']),
    appliedSeq: atLeastZero(map['appliedSeq']),
    tableVersion: atLeastZero(map['tableVersion']),
    capabilities: atLeastZero(map['capabilities']),
    providers: atLeastZero(map['providers']),
    staleBecause: word(map['staleBecause']),
    refused: refused
      .filter(isMap)
      .slice(-MAX_REFUSED_MESSAGES)
      .map((each) => ({ tail: word(each['tail']), seq: atLeastZero(each['seq']), why: word(each['why']) })),
    policies: { version: atLeastZero(policies['version']), staged: policies['staged'] === true },
    ...(isMap(map['rules']) ? { rules: readRulesReport(map['rules']) } : null),
    ...(isMap(map['overrides']) ? { overrides: readOverridesReport(map['overrides']) } : null),
    ...(isMap(map['quotas']) ? { quotas: readQuotasReport(map['quotas']) } : null),
    ...(Array.isArray(map['shifted']) ? { shifted: readShifted(map['shifted']) } : null),
    ...(isMap(map['work']) ? { work: { seq: atLeastZero(map['work']['seq']) } } : null),
  };
}

function readOverridesReport(map: Readonly<Record<string, unknown>>): NonNullable<Report['overrides']> {
  return { epoch: word(map['epoch']), seq: atLeastZero(map['seq']), ...refusedIn(map['refused']) };
}

function readRulesReport(map: Readonly<Record<string, unknown>>): RulesReport {
  const hits: Record<string, number> = {};
  if (isMap(map['hits']))
    for (const [name, count] of Object.entries(map['hits']).slice(0, 2 * MAX_RULES)) if (isRuleName(name)) hits[name] = atLeastZero(count);
  return {
    version: atLeastZero(map['version']),
    staged: map['staged'] === true,
    seq: atLeastZero(map['seq']),
    forMs: atLeastZero(map['forMs']),
    messages: atLeastZero(map['messages']),
    hits,
  };
}

/** One agent in the normal form, or its refusal. What is stored is what the reader made, and plain JSON. */
export function readAgent(json: unknown): AgentRegistration | Refusal {
  if (!isMap(json) || !isMap(json['record'])) return refusal('', ['an agent is a map with contracts and record']);
  if (isDeeper(json, MAX_DEPTH)) return refusal('', [`nested more than ${MAX_DEPTH} levels deep`]);
  const { agentId } = json['record'];
  const name = typeof agentId === 'string' && agentIdProblem(agentId) === null ? agentId : '';
  const problems: string[] = [];
  const record = readPart(providerShape, writeProvider(json['record']), 'record', problems) as ProviderRecord | null;
  if (record !== null && sizeOf(record) > MAX_RECORD_BYTES)
    problems.push(`the record has ${sizeOf(record)} bytes, and at most ${MAX_RECORD_BYTES} are allowed`);
  const list = json['contracts'] ?? [];
  const contracts: Contract[] = [];
  if (!Array.isArray(list) || list.length > MAX_CONTRACTS) problems.push(`contracts must be a list of at most ${MAX_CONTRACTS}`);
  else
    for (const [i, each] of list.entries()) {
      const read = readPart(contractShape, writeContract(each), `contracts/${i}`, problems) as Contract | null;
      if (read === null) continue;
      const label = `${read.name}@${read.version}`;
      if (sizeOf(read) > MAX_CONTRACT_BYTES)
        problems.push(`the contract ${label} has ${sizeOf(read)} bytes, and at most ${MAX_CONTRACT_BYTES} are allowed`);
      if (contracts.some((other) => other.name === read.name && other.version === read.version)) problems.push(`${label} is listed twice`);
      contracts.push(read);
    }
  if (problems.length > 0 || record === null) return refusal(name, problems);
  return deepFreeze({ contracts, record });
}

const cache = new WeakMap<object, number>();

/** Bytes of a frozen part as JSON; worked out once. */
export function sizeOf(part: object): number {
  let bytes = cache.get(part);
  if (bytes === undefined) {
    bytes = Buffer.byteLength(JSON.stringify(part));
    cache.set(part, bytes);
  }
  return bytes;
}

function readPart(shape: Shape<unknown>, written: unknown, at: string, problems: string[]): unknown {
  const { source } = openSource('{}', 'request');
  const read = shape.read(written, new Place(source));
  for (const problem of source.problems) problems.push(`${at}${problem.path}: ${problem.message}`);
  return read === BAD ? null : JSON.parse(JSON.stringify(read));
}

interface Sender {
  readonly map: Loose;
  readonly head: { readonly wire: number; readonly sidecar: string; readonly instance: string };
}

function readSender(json: unknown, problems: string[]): Sender | null {
  if (!isMap(json)) {
    problems.push('a request is a map');
    return null;
  }
  const { wire, sidecar, instance } = json;
  if (!readsWire(wire, REGISTRY_WIRE)) problems.push(wireProblem(wire, REGISTRY_WIRE, "the registry's wire"));
  else if (typeof sidecar !== 'string' || !SIDECAR.test(sidecar))
    problems.push(
      `${quote(String(sidecar))} cannot be the name of a sidecar in a registry: 1 to 63 of a-z, 0-9, _ and - (no dots), beginning with a letter or digit`,
    );
  else if (typeof instance !== 'string' || !INSTANCE.test(instance)) problems.push('instance must be 1 to 64 of A-Z, a-z, 0-9, _ and -');
  else return { map: json, head: { wire: REGISTRY_WIRE, sidecar, instance } };
  return null;
}

function readMesh(value: unknown, problems: string[]): string | null {
  if (value === null || value === undefined) return null;
  const problem = typeof value === 'string' ? addressProblem(value, false) : 'mesh must be an address or null';
  if (problem === null) return tidyAddress(value as string);
  problems.push(`mesh: ${problem}`);
  return null;
}

function readPlace(value: unknown, what: string, problems: string[]): string | null {
  if (value === null || value === undefined) return null;
  if (typeof value === 'string' && PLACE_NAME.test(value)) return value;
  problems.push(`${what} must be 1 to 63 letters, digits, _ . and -, or null`);
  return null;
}

function readCallers(value: unknown, problems: string[]): readonly string[] {
  if (value === undefined) return [];
  if (!Array.isArray(value) || value.length > MAX_CALLERS) {
    problems.push(`callers must be a list of at most ${MAX_CALLERS} agent ids`);
    return [];
  }
  for (const each of value) {
    const problem = typeof each === 'string' ? agentIdProblem(each) : 'callers must be a list of agent ids';
    if (problem !== null) problems.push(`callers: ${problem}`);
  }
  return problems.length > 0 ? [] : [...new Set(value as string[])].sort();
}

export function refusal(agent: string, problems: readonly string[], code: number = Code.invalid_request): Refusal {
  return {
    agent,
    code: problems.some((problem) => / is not an? (?:agent id|capability name|alias)\b/.test(problem)) ? Code.bad_name : code,
    problems,
  };
}

function refusedWhole(problems: readonly string[]): { readonly request: null; readonly refused: readonly Refusal[] } {
  return { request: null, refused: [refusal('', problems)] };
}

const isMap = (value: unknown): value is Loose => typeof value === 'object' && value !== null && !Array.isArray(value);
const atLeastZero = (value: unknown): number => (typeof value === 'number' && value >= 0 && Number.isFinite(value) ? value : 0);
const word = (value: unknown): string => (typeof value === 'string' ? value.slice(0, 500) : '');
