/** The route table of the ways in: what the peers of the other suite do, and a capability for each refusal. */
import type { HttpPeer } from '../transports/http.ts';
import { BEHAVIOURS, capabilityOf } from '../transports/behaviour.ts';

/** Lines of the contract, and which behaviour is behind it. */
const REFUSING = {
  'peer.closed.do': { contract: ['acl: ["team:sales"]'], behind: 'echo', provider: [] },
  'peer.strict.do': { contract: ['acl: public', 'input: {type: object, required: [id]}'], behind: 'echo', provider: [] },
  'peer.small.do': { contract: ['acl: public', 'limits: {request: 1KiB}'], behind: 'echo', provider: [] },
  'peer.single.do': { contract: ['acl: public', 'limits: {per_caller: 1}'], behind: 'hangs', provider: [] },
  'peer.drained.do': { contract: ['acl: public'], behind: 'echo', provider: ['drain: true'] },
  'peer.crowded.do': { contract: ['acl: public', 'limits: {per_provider: 1}'], behind: 'hangs', provider: [] },
  'peer.keyed.do': { contract: ['acl: public', 'affinity: {required: true, from: "header:reach-affinity"}'], behind: 'echo', provider: [] },
  'peer.blocked.do': { contract: ['acl: public'], behind: 'echo', provider: [] },
  'peer.lesser.do': { contract: ['acl: public', 'fallback: [{static: {text: "later"}}]'], behind: 'gone', provider: [] },
} as const;

/** The agent's path behind a capability, for who asks it by HTTP; `/` for a name that is none of ours. */
export function pathOf(capability: string): string {
  const refusing = (REFUSING as Readonly<Record<string, { readonly behind: string }>>)[capability];
  return `/${refusing === undefined ? capability : `peer.${refusing.behind}.do`}`;
}

/** @param via a line of every provider record, such as `via: two`; '' = none. */
export function waysTable(agent: HttpPeer, via: string, rest: string): string {
  const contracts = ['contracts:'];
  const providers = ['providers:'];
  const add = (name: string, contract: readonly string[], behind: string, more: readonly string[]): void => {
    contracts.push(`  - name: ${name}`, '    version: "2.0.0"', '    streaming: true', ...contract.map((line) => `    ${line}`));
    const url = behind === 'gone' ? 'http://127.0.0.1:1' : agent.url;
    providers.push(
      `  - agent_id: peer.ways.${name.split('.')[1]}`,
      `    offers: ["${name}@2.0.0"]`,
      `    endpoint: {type: http, address: "${url}", path: "/peer.${behind}.do"}`,
      ...[...more, ...(via === '' ? [] : [via])].map((line) => `    ${line}`),
    );
  };
  for (const behaviour of [...BEHAVIOURS, 'gone'] as const)
    add(capabilityOf(behaviour), ['acl: public', behaviour === 'slow' ? 'timeout: 400ms' : 'timeout: 8s'], behaviour, []);
  for (const [name, { contract, behind, provider }] of Object.entries(REFUSING)) add(name, contract, behind, provider);
  return `${[...contracts, ...providers].join('\n')}\noverrides: [{name: stop, reason: "for the suite", action: block, capability: peer.blocked.do}]\n${rest}`;
}
