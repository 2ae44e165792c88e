/** At the provider's end there is nothing to resolve: the caller's sidecar named provider and version; they must be hosted here. */
import { Code } from '../../proto/wire/codes.ts';
import { Header } from '../../proto/wire/headers.ts';
import { type Call, headerOf } from '../call/call.ts';
import { passing, refusing, Verdict } from '../call/verdict.ts';
import type { Capability } from '../table/snapshot.ts';

const hosted = passing('resolve', 'hosted', '{a}@{b} is served by {c}, hosted here');
const notHosted = refusing('resolve', 'not_hosted', Code.no_provider, '{a} does not serve {b}@{c} at this sidecar');
const draining = refusing('resolve', 'draining', Code.blocked_by_operator, '{a} is draining');

export function host(call: Call, agentId: string, version: string): Verdict {
  const capability = call.capability as Capability;
  for (const line of capability.versions) {
    if (line.text !== version) continue;
    const candidate = line.candidates[line.placeOf(agentId)];
    if (candidate === undefined || candidate.provider.reach !== 'self') continue;
    call.lines = [line];
    call.chosen = candidate;
    // A drain lets nothing new begin; what names this provider continues something.
    if (candidate.drain && call.affinityKey === null && headerOf(call, Header.pin) !== agentId) return new Verdict(draining, agentId);
    return new Verdict(hosted, capability.name, version, agentId);
  }
  return new Verdict(notHosted, agentId, capability.name, version);
}
