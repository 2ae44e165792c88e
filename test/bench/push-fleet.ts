/**
 * The fleet of the push bench: who provides what, and who may call it. Everybody's scope has the same size, however large
 * the fleet is: the public capabilities and those of one group. What grows with the fleet is the number of groups.
 */
import { stringify } from 'yaml';
import type { AgentRegistration } from '../../proto/wire/registry.ts';
import { agentsOf } from '../support/registry-kit.ts';

const PUBLIC_CAPABILITIES = 10;
const PUBLIC_PROVIDERS = 10;
const GROUP_CAPABILITIES = 15;
const GROUP_PROVIDERS = 6;
/** Providers of one group; each group has a sidecar that hosts them all. */
const PER_GROUP = GROUP_CAPABILITIES * GROUP_PROVIDERS;
const PUBLIC = PUBLIC_CAPABILITIES * PUBLIC_PROVIDERS;

/** Capabilities in everybody's scope. */
export const SCOPE = PUBLIC_CAPABILITIES + GROUP_CAPABILITIES;
/** Providers in everybody's scope. */
export const PROVIDERS_IN_SCOPE = PUBLIC + PER_GROUP;

/** So many groups make up a fleet of about so many providers. */
export function groupsOf(providers: number): number {
  return Math.round((providers - PUBLIC) / PER_GROUP);
}

export const publicName = (n: number): string => `pub.item.n${n % PUBLIC_CAPABILITIES}`;
export const groupName = (group: number, n: number): string => `team${group}.item.n${n % GROUP_CAPABILITIES}`;
export const teamOf = (group: number): string => `team${group}`;

const INPUT = {
  type: 'object',
  required: ['id'],
  properties: { id: { type: 'string', maxLength: 40 }, limit: { type: 'integer', minimum: 1, maximum: 100 } },
};

function contract(name: string, acl: unknown): object {
  return {
    name,
    version: '1.0.0',
    description: `What the bench calls ${name}`,
    execution: 'idempotent',
    acl,
    timeout: '2s',
    input: INPUT,
    limits: { per_caller: 64, per_provider: 128 },
  };
}

function provider(agentId: string, offer: string, via: string, weight: number): object {
  return {
    agent_id: agentId,
    offers: [`${offer}@1.0.0`],
    endpoint: { type: 'http', address: 'http://10.1.0.9:8080' },
    locality: { region: 'eu', zone: 'a' },
    via,
    weight,
  };
}

export interface Host {
  readonly sidecar: string;
  readonly mesh: string;
  readonly agents: readonly AgentRegistration[];
}

function host(sidecar: string, contracts: readonly object[], providers: readonly object[]): Host {
  return {
    sidecar,
    mesh: 'http://10.1.0.9:7701',
    agents: agentsOf(stringify({ contracts, providers }, { aliasDuplicateObjects: false }), sidecar),
  };
}

/** The sidecar that hosts the public providers. */
export function publicHost(): Host {
  const contracts = Array.from({ length: PUBLIC_CAPABILITIES }, (_, n) => contract(publicName(n), 'public'));
  const providers = Array.from({ length: PUBLIC }, (_, n) => provider(`pub.worker.p${n}`, publicName(n), 'host-pub', 100));
  return host('host-pub', contracts, providers);
}

/** The sidecar that hosts a group's. */
export function groupHost(group: number): Host {
  const sidecar = `host-${group}`;
  const contracts = Array.from({ length: GROUP_CAPABILITIES }, (_, n) => contract(groupName(group, n), [`${teamOf(group)}.*.*`]));
  const providers = Array.from({ length: PER_GROUP }, (_, n) =>
    provider(`${teamOf(group)}.worker.p${n}`, groupName(group, n), sidecar, 100),
  );
  return host(sidecar, contracts, providers);
}

/** One agent more for a public capability (group null) or one of a group, as `sidecar` would register it. */
export function extra(sidecar: string, agentId: string, group: number | null, n: number, weight: number): AgentRegistration {
  const name = group === null ? publicName(n) : groupName(group, n);
  const acl = group === null ? 'public' : [`${teamOf(group)}.*.*`];
  const [agent] = host(sidecar, [contract(name, acl)], [provider(agentId, name, sidecar, weight)]).agents;
  if (agent === undefined) throw new Error('no agent was made');
  return agent;
}
