/**
 * A new state of a capability with the parts of the one before wherever they say the same: a provider that did not change
 * stays the same object, so that what was made from it can be kept, and memory holds it once.
 */
import type { CapabilityState, PushedProvider } from '../../proto/wire/registry.ts';

export function shared(state: CapabilityState, before: CapabilityState | null): CapabilityState {
  if (before === null) return state;
  const keyOf = (provider: PushedProvider): string => provider.record.agentId;
  return {
    ...state,
    contracts: sharedList(state.contracts, before.contracts, (contract) => contract.version),
    policies: sharedList(state.policies, before.policies, (policy) => policy.capability),
    providers: sharedList(state.providers, before.providers, keyOf),
  };
}

/** What of a state, shared with the one before, has not been compiled yet: what is the same object has been. */
export function untried(state: CapabilityState, before: CapabilityState | null): CapabilityState {
  if (before === null || state.contracts !== before.contracts || state.policies !== before.policies) return state;
  if ((state.staged ?? null) !== null || (before.staged ?? null) !== null) return state;
  const tried = new Set(before.providers);
  return { ...state, providers: state.providers.filter((provider) => !tried.has(provider)) };
}

/** The list before itself when nothing differs. */
export function sharedList<T>(list: readonly T[], before: readonly T[], keyOf: (one: T) => string): readonly T[] {
  const known = new Map(before.map((one) => [keyOf(one), one]));
  const merged = list.map((one) => {
    const old = known.get(keyOf(one));
    return old !== undefined && (old === one || isSame(old, one)) ? old : one;
  });
  return merged.length === before.length && merged.every((one, i) => one === before[i]) ? before : merged;
}

/** Both came as JSON: the order of keys means nothing. */
function isSame(a: unknown, b: unknown): boolean {
  if (a === b) return true;
  if (typeof a !== 'object' || typeof b !== 'object' || a === null || b === null) return false;
  if (Array.isArray(a) !== Array.isArray(b)) return false;
  const keys = Object.keys(a);
  if (keys.length !== Object.keys(b).length) return false;
  for (const key of keys) if (!Object.hasOwn(b, key) || !isSame((a as Fields)[key], (b as Fields)[key])) return false;
  return true;
}

type Fields = Readonly<Record<string, unknown>>;
