/**
 * Whether a pushed state compiles, found out apart from everything that is in force: the compiler runs on it with a health
 * view of its own that is thrown away. What it throws for would otherwise take the whole table with it.
 */
import type { Clock } from '../../base/clock.ts';
import type { AgentRegistration, CapabilityState } from '../../proto/wire/registry.ts';
import { Health } from '../health/health.ts';
import { type CapabilityPart, compileParts, type Standpoint } from './compile.ts';
import type { TryOut } from './held.ts';
import { readCapability } from './readable.ts';

export function tryOutFor(clock: Clock, here: Standpoint): TryOut {
  return (state) => {
    const health = new Health(clock, { consecutive: 0, forMs: 0 });
    try {
      for (const part of partsIn(state)) compileParts(new Map([[part.name, part]]), [], null, health, here, 1);
      return null;
    } catch (error) {
      return `it does not compile: ${error instanceof Error ? error.message.slice(0, 300) : 'unknown'}`;
    }
  };
}

/** The same of one agent's registration, for each capability that it offers. */
export function isRegistrationUsable(registration: AgentRegistration, tryOut: TryOut): boolean {
  const { contracts, record } = registration;
  if (!Array.isArray(contracts) || !Array.isArray(record?.offers)) return false;
  const names = new Set(record.offers.map((offer) => String(offer?.name)));
  return [...names].every((name) => {
    const value = {
      name,
      shard: 0,
      shards: 1,
      contracts: contracts.filter((contract) => contract?.name === name),
      policies: [],
      staged: null,
      providers: [{ record, mesh: null }],
    };
    const state = readCapability({ epoch: '', value }, name, 0);
    return !('problem' in state) && tryOut(state) === null;
  });
}

function partsIn(state: CapabilityState): CapabilityPart[] {
  const providers = state.providers.map(({ record, mesh }) => ({ record, mesh: mesh ?? '' }));
  const part = { name: state.name, contracts: state.contracts, policies: state.policies, providers };
  return state.staged === null || state.staged === undefined
    ? [part]
    : [part, { ...part, contracts: state.staged.contracts, policies: state.staged.policies }];
}
