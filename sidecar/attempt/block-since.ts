/**
 * Operators' rules for one provider that came after the call had read its table: nothing is sent there any more, and the call
 * goes on elsewhere. A provider with a sidecar of its own is guarded there too; one of this sidecar, or without any, only here.
 */
import { coversAgent, coversName } from '../../proto/language/covers.ts';
import { isInForce, signatureOf } from '../../proto/language/override-words.ts';
import type { Call } from '../call/call.ts';
import type { Candidate, Table } from '../table/snapshot.ts';

/** In words; null = there is none. A drain lets go on what has begun. */
export function blockSince(table: Table, call: Call, { provider, version }: Candidate): string | null {
  const { overrides } = table.current();
  if (overrides.length === 0 || overrides === call.table?.overrides) return null;
  const now = call.clock.wallMs();
  for (const rule of overrides) {
    if (rule.provider === null || rule.action === 'drain' || !isInForce(rule, now)) continue;
    if (!coversAgent(rule.provider, provider.agentId) || !coversName(rule.capability, version.capability.name)) continue;
    if (rule.caller !== null && (call.principal === null || !coversAgent(rule.caller, call.principal.agent))) continue;
    return `override ${rule.name} blocks it: ${rule.reason} (by ${signatureOf(rule)})`;
  }
  return null;
}
