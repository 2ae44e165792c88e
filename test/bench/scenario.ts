/**
 * What the sidecars of the bench are told: one capability whose provider is reached directly, one whose provider hangs on a
 * second sidecar. Every policy that a call can have is on, written out where the default would do as well, so that the
 * figures do not move when a default does. The access log alone is left as shipped.
 */
import { stringify } from 'yaml';
import { QUESTION_SCHEMA } from './payload.ts';

export const DIRECT = 'crm.order.query';
export const HOSTED = 'crm.order.explain';
export const CALLER_TOKEN = 'bench-caller-token-0123456789';
const MESH_TOKEN = 'bench-mesh-token-0123456789';
const HOST = 'bench-host';

export function contract(name: string): unknown {
  return {
    name,
    version: '2.0.0',
    description: 'The state of an order and the reason for it',
    execution: 'idempotent',
    input: QUESTION_SCHEMA,
    acl: ['role:planner', 'shop.*.*', 'crm.desk.*', 'crm.*.a1'],
    timeout: '2s',
    deadline: '8s',
    retry: { max: 2, backoff: '25ms', backoff_max: '250ms', min_remaining: '20%' },
    breaker: { failure_ratio: '50%', window: '30s', slow_ratio: '30%', slow_call: '1s', min_calls: 20, open: '10s' },
    limits: { per_caller: 64, per_provider: 128, request: '64KiB', response: '256KiB' },
    fallback: [{ static: { state: 'unknown' } }],
  };
}

/** @param endpoint where it is, as it is written in a table. */
export function provider(agentId: string, offer: string, endpoint: object, via: string | null): unknown {
  return {
    agent_id: agentId,
    offers: [`${offer}@2.0.0`],
    endpoint,
    locality: { region: 'eu', zone: 'a' },
    ...(via === null ? {} : { via }),
  };
}

function http(address: string): object {
  return { type: 'http', address };
}

function settings(name: string, own: object, table: object): string {
  const sidecar = { name, listen: '127.0.0.1:0', locality: { region: 'eu', zone: 'a' }, ...own };
  // The schema stands in two contracts; it is written out in both, since aliases are refused.
  return stringify({ sidecar, ...table }, { aliasDuplicateObjects: false });
}

/** The sidecar beside the provider: it has a mesh port. */
export function hostSettings(agentUrl: string): string {
  return settings(
    HOST,
    { mesh: { listen: '127.0.0.1:0', token: MESH_TOKEN }, callers: [{ agent: 'crm.order.a1', token: `${CALLER_TOKEN}-host` }] },
    { contracts: [contract(HOSTED)], providers: [provider('crm.order.b1', HOSTED, http(agentUrl), HOST)] },
  );
}

/** A sidecar that calls the provider directly, and nothing else. @param more its settings beside that */
export function aloneSettings(name: string, agentUrl: string, more: object): string {
  return settings(
    name,
    { callers: [{ agent: 'crm.planner.a1', token: CALLER_TOKEN }], ...more },
    { contracts: [contract(DIRECT)], providers: [provider('crm.order.a1', DIRECT, http(agentUrl), null)] },
  );
}

/** The caller's sidecar. */
export function callerSettings(agentUrl: string, hostMeshUrl: string): string {
  return settings(
    'bench-caller',
    { mesh: { listen: '127.0.0.1:0', token: MESH_TOKEN }, callers: [{ agent: 'crm.planner.a1', token: CALLER_TOKEN }] },
    {
      contracts: [contract(DIRECT), contract(HOSTED)],
      providers: [provider('crm.order.a1', DIRECT, http(agentUrl), null), provider('crm.order.b1', HOSTED, http(agentUrl), HOST)],
      sidecars: [{ name: HOST, mesh: hostMeshUrl }],
    },
  );
}
