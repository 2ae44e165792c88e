/** Route tables for tests and benches, from the few parts that a test is about; everything else as the language has it by default. */
import type { Clock } from '../../base/clock.ts';
import type { Contract, Policy, ProviderRecord, TableDocument } from '../../proto/language/types.ts';
import { Call, type HeaderView, NO_HEADERS } from '../../sidecar/call/call.ts';
import { Principal } from '../../sidecar/call/principal.ts';
import type { Capability, Snapshot } from '../../sidecar/table/snapshot.ts';

const UNSAID_RETRY = { max: null, backoffMs: null, backoffMaxMs: null, minRemainingRatio: null };
const UNSAID_LIMITS = { perCaller: null, perProvider: null, requestBytes: null, responseBytes: null, eventBytes: null };
const UNSAID_BREAKER = {
  enabled: null,
  failureRatio: null,
  windowMs: null,
  slowRatio: null,
  slowCallMs: null,
  minCalls: null,
  openMs: null,
  probes: null,
  successes: null,
  ramp: null,
  rampStepMs: null,
};

export function contractOf(name: string, version: string, parts: Partial<Contract> = {}): Contract {
  return {
    name,
    version,
    description: '',
    examples: [],
    aliases: [],
    tags: {},
    input: null,
    output: null,
    execution: 'idempotent',
    affinity: null,
    timeoutMs: null,
    deadlineMs: null,
    retry: UNSAID_RETRY,
    breaker: UNSAID_BREAKER,
    limits: UNSAID_LIMITS,
    fallback: null,
    acl: { isPublic: true, patterns: [] },
    streaming: null,
    success: null,
    ...parts,
  };
}

/** `offers` as `name@version`. */
export function providerOf(agentId: string, offers: readonly string[], parts: Partial<ProviderRecord> = {}): ProviderRecord {
  const [team = '', role = ''] = agentId.split('.');
  return {
    agentId,
    team,
    role,
    offers: offers.map((offer) => {
      const at = offer.indexOf('@');
      return { name: offer.slice(0, at), version: offer.slice(at + 1) };
    }),
    tags: {},
    target: {},
    endpoint: { type: 'mock', address: '', path: null, mapping: {}, credential: null, options: {} },
    region: null,
    zone: null,
    weight: 1,
    tier: 'primary',
    via: null,
    limits: UNSAID_LIMITS,
    drain: false,
    healthCheck: null,
    ...parts,
  };
}

export function policyOf(capability: string, parts: Partial<Policy> = {}): Policy {
  return {
    capability,
    defaultRange: null,
    canary: null,
    load: null,
    panic: null,
    locality: null,
    slowStartMs: null,
    timeoutMs: null,
    deadlineMs: null,
    retry: UNSAID_RETRY,
    breaker: UNSAID_BREAKER,
    limits: UNSAID_LIMITS,
    streaming: { firstChunkMs: null, idleMs: null },
    fallback: null,
    providers: {},
    ...parts,
  };
}

/** Contracts that are not given are made from what the providers offer. */
export function documentOf(providers: readonly ProviderRecord[], parts: Partial<TableDocument> = {}): TableDocument {
  const contracts = new Map<string, Contract>();
  for (const contract of parts.contracts ?? []) contracts.set(`${contract.name}@${contract.version}`, contract);
  for (const { offers } of providers) {
    for (const { name, version } of offers) {
      const key = `${name}@${version}`;
      if (!contracts.has(key)) contracts.set(key, contractOf(name, version));
    }
  }
  return { policies: [], overrides: [], sidecars: [], ...parts, contracts: [...contracts.values()], providers };
}

/** A call as it is when `name` and `identify` are done with it. */
export function callOf(clock: Clock, table: Snapshot, asked: string, parts: Partial<Call> = {}, headers: HeaderView = NO_HEADERS): Call {
  const at = asked.indexOf('@');
  const call = new Call('local', asked, headers, Buffer.alloc(0), '', false, clock);
  call.table = table;
  call.capability = table.capabilities.get(at < 0 ? asked : asked.slice(0, at)) as Capability;
  call.range = at < 0 ? null : asked.slice(at + 1);
  call.principal = new Principal('crm.desk.1');
  call.execution = 'idempotent';
  return Object.assign(call, parts);
}
