/**
 * The part of the table that one capability is, out of what the registry says of it, what is kept through a loss of the
 * registry, and what this sidecar registers itself and the registry has not confirmed yet. Pure. The part before comes
 * back itself when nothing differs, which is how the compiler knows that nothing has to be done.
 */
import type { Contract } from '../../proto/language/types.ts';
import type { CapabilityState } from '../../proto/wire/registry.ts';
import type { CapabilityPart } from './compile.ts';
import { sharedList } from './sharing.ts';

type PartProvider = CapabilityPart['providers'][number];

/** Contracts and providers that stand beside the registry's word; it wins where both speak of the same. */
export interface Beside {
  readonly contracts: readonly Contract[];
  readonly providers: readonly PartProvider[];
}

/**
 * @param shards of the capability, the first one first; empty = the registry knows nothing of it.
 * @param share this sidecar's own number in [0, 1): below a roll-out's share it takes part.
 * @returns null when there is nothing to serve it by: no contract.
 */
export function assemble(
  name: string,
  shards: readonly CapabilityState[],
  share: number,
  beside: readonly Beside[],
  isUsable: (provider: PartProvider) => boolean,
  before: CapabilityPart | null,
): CapabilityPart | null {
  const first = shards[0];
  const staged = first?.staged ?? null;
  const said = staged !== null && share < staged.share ? staged : first;
  const contracts = new Map<string, Contract>();
  for (const contract of said?.contracts ?? []) contracts.set(contract.version, contract);
  const providers = new Map<string, PartProvider>();
  // A provider that moves from one shard to another may stand in both for a moment; one of them counts.
  for (const shard of shards)
    for (const { record, mesh, instance } of shard.providers)
      providers.set(record.agentId, { record, mesh: mesh ?? '', ...(instance === undefined ? null : { instance }) });
  for (const more of beside) {
    for (const contract of more.contracts) if (!contracts.has(contract.version)) contracts.set(contract.version, contract);
    for (const provider of more.providers) if (!providers.has(provider.record.agentId)) providers.set(provider.record.agentId, provider);
  }
  if (contracts.size === 0) return null;
  const part: CapabilityPart = {
    name,
    contracts: sharedList([...contracts.values()], before?.contracts ?? [], (contract) => contract.version),
    policies: sharedList(said?.policies ?? [], before?.policies ?? [], (policy) => policy.capability),
    providers: sharedList([...providers.values()].filter(isUsable), before?.providers ?? [], (provider) => provider.record.agentId),
  };
  return before !== null && part.contracts === before.contracts && part.policies === before.policies && part.providers === before.providers
    ? before
    : part;
}

/** Whether the operators' document that a state was made from is a staged one for this sidecar, and its version. */
export function documentOf(shards: readonly CapabilityState[], share: number): { readonly version: number; readonly staged: boolean } {
  const first = shards[0];
  const staged = first?.staged ?? null;
  if (staged !== null && share < staged.share) return { version: staged.version, staged: true };
  return { version: first?.policiesVersion ?? 0, staged: false };
}
