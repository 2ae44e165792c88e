/**
 * A sudden empty or shrunken registry is not believed blindly (SPEC R2.7). This is the last look before what is stored is
 * overwritten: a leader that read half of its input would otherwise erase the other half for everybody. Judged over the
 * whole, since a capability with two providers halves whenever one leaves.
 */
import type { CapabilityState } from '../../proto/wire/registry.ts';

export interface Tally {
  readonly providers: ReadonlySet<string>;
  /** With at least one provider. */
  readonly capabilities: ReadonlySet<string>;
}

const MIN_PROVIDERS = 8;

export function tallyOf(states: Iterable<CapabilityState>): Tally {
  const shards = new Map<string, number>();
  const all = [...states];
  for (const state of all) if (state.shard === 0) shards.set(state.name, state.shards);
  const providers = new Set<string>();
  const capabilities = new Set<string>();
  for (const state of all) {
    if (state.shard >= (shards.get(state.name) ?? 0)) continue;
    for (const { record } of state.providers) providers.add(record.agentId);
    if (state.providers.length > 0) capabilities.add(state.name);
  }
  return { providers, capabilities };
}

/**
 * Why the step from `before` to `after` is held back; null when it may be made.
 * @param isKnown whether the registry knows an agent at all: of one that it knows it also knows why it is offline.
 */
export function shrinks(before: Tally, after: Tally, isKnown: (agentId: string) => boolean = () => false): string | null {
  if (before.providers.size < MIN_PROVIDERS) return null;
  let lost = 0;
  for (const agent of before.providers) if (!after.providers.has(agent) && !isKnown(agent)) lost++;
  if (lost * 2 > before.providers.size)
    return `${lost} of ${before.providers.size} providers would go without a known reason: nothing is written until this is confirmed`;
  if (lost === 0) return null;
  let gone = 0;
  for (const name of before.capabilities) if (!after.capabilities.has(name)) gone++;
  if (gone * 2 > before.capabilities.size && gone >= MIN_PROVIDERS / 2)
    return `${gone} of ${before.capabilities.size} capabilities would have no provider left: nothing is written until this is confirmed`;
  return null;
}
