/** The route table of the conformance suite: one capability and one provider for each behaviour. */
import { BEHAVIOURS, type Behaviour, capabilityOf } from './behaviour.ts';

/** What only some of them need: lines of the contract. */
const EXTRA: Readonly<Partial<Record<Behaviour | 'gone', readonly string[]>>> = {
  slow: ['timeout: 400ms'],
  steps: ['timeout: 400ms'],
  large: ['limits: {response: 64KiB}'],
};

/** @param provider lines of a provider record beside its id and what it offers. */
export function peerTable(provider: (behaviour: Behaviour | 'gone') => readonly string[], rest = ''): string {
  const all = [...BEHAVIOURS, 'gone'] as const;
  const lines = ['contracts:'];
  for (const behaviour of all) {
    lines.push(`  - name: ${capabilityOf(behaviour)}`, '    version: "2.0.0"', '    acl: public', '    streaming: true');
    for (const line of EXTRA[behaviour] ?? ['timeout: 8s']) lines.push(`    ${line}`);
  }
  lines.push('providers:');
  for (const behaviour of all) {
    lines.push(`  - agent_id: peer.conf.${behaviour}`, `    offers: ["${capabilityOf(behaviour)}@2.0.0"]`);
    for (const line of provider(behaviour)) lines.push(`    ${line}`);
  }
  return `${lines.join('\n')}\n${rest}`;
}
