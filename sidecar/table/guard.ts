/**
 * When a registry that begins anew is not believed at once (SPEC R2.7). Pure.
 *
 * Within one epoch a newer sequence is the leader's word and is taken as it is: the leader has its own guard, and a rule
 * about shares would misfire with the one to three providers that capabilities usually have. A new epoch is another
 * matter: the stream was lost or made anew, and providers are missing from it for no better reason than that their
 * sidecars have not come back to say that they are there. So
 *  - a provider that is absent is kept for some seconds, in which whoever lives says hello again. The own agents of a
 *    sidecar are not meant: they are looked after by themselves;
 *  - a provider that is absent but has answered within the last lease is kept for one more lease, unless the new registry
 *    names it: every living sidecar beats within a lease, so that whoever has not been named by then is gone;
 *  - a table that would shrink by more than half is put into force only when two beacons of the new epoch have confirmed
 *    it, a second apart: the registry that fills up meanwhile is not taken half full.
 */
import type { CapabilityPart, CapabilityParts } from './compile.ts';
import type { Beside } from './parts.ts';

/** Below so many providers a half is one or two, and says nothing; an empty table is held back all the same. */
const FEW = 4;

export function isSuspiciouslySmall(before: CapabilityParts, after: CapabilityParts): boolean {
  const was = providersIn(before).size;
  const is = providersIn(after).size;
  if (was === 0) return false;
  return is === 0 || (was >= FEW && is * 2 < was);
}

export function providersIn(parts: CapabilityParts): Set<string> {
  const agents = new Set<string>();
  for (const part of parts.values()) for (const { record } of part.providers) agents.add(record.agentId);
  return agents;
}

/** By capability: those providers that are missing from `after` and stay, with the contracts they need. */
export function absentProviders(before: CapabilityParts, after: CapabilityParts, stays: (agentId: string) => boolean): Map<string, Beside> {
  const kept = new Map<string, Beside>();
  for (const part of before.values()) {
    const named = new Set(after.get(part.name)?.providers.map(({ record }) => record.agentId));
    const providers = part.providers.filter(({ record }) => !named.has(record.agentId) && stays(record.agentId));
    if (providers.length > 0) kept.set(part.name, { contracts: contractsOf(part, providers), providers });
  }
  return kept;
}

function contractsOf(part: CapabilityPart, providers: CapabilityPart['providers']): Beside['contracts'] {
  const offered = new Set(
    providers.flatMap(({ record }) => record.offers.filter(({ name }) => name === part.name).map(({ version }) => version)),
  );
  return part.contracts.filter(({ version }) => offered.has(version));
}
