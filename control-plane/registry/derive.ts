/**
 * What is stored and pushed, worked out from the registry's state. Pure: the same state gives the same messages, in the
 * same order, so that a new leader that rebuilds them writes nothing when nothing has changed.
 */
import { hash32 } from '../../base/rendezvous.ts';
import type { ProviderRecord } from '../../proto/language/types.ts';
import {
  type AgentRegistration,
  type CapabilityState,
  type PushedProvider,
  REGISTRY_WIRE,
  type RegistrationState,
  type ScopeState,
  type Staged,
} from '../../proto/wire/registry.ts';
import { PROVIDERS_PER_SHARD } from '../../proto/wire/subjects.ts';
import { sameValue } from '../../proto/language/schema-compat.ts';
import type { RulesState } from '../../proto/wire/messages.ts';
import { keysFor, RULES_KEY } from '../rules/rollout.ts';
import type { SidecarEntry } from './entries.ts';
import type { OperatorsState } from './operators.ts';
import { sizeOf } from './requests.ts';
import { contractsSaid, policiesSaid } from './said.ts';
import type { RegistryState } from './state.ts';

/** Bytes of providers in one message: far enough below what a server takes (1 MB) for the rest of it. */
const MAX_SHARD_BYTES = 458_752;
/** Providers that a shard has on average after a split, at most. */
const SHARD_FILL = PROVIDERS_PER_SHARD / 2;

/** Whole state of one capability, shard by shard. */
export function capabilityStates(state: RegistryState, operators: OperatorsState, name: string): CapabilityState[] {
  const providers = onlineProviders(state, name);
  const shards = split(providers);
  const head = { wire: REGISTRY_WIRE, epoch: state.epoch, name, shards: shards.length };
  return shards.map((part, shard) =>
    shard === 0
      ? {
          ...head,
          shard,
          contracts: contractsSaid(name, state.book, state.active),
          policies: policiesSaid(name, state.active, state.canary[name]),
          policiesVersion: saidVersion(name, operators),
          staged: stagedFor(state, operators, name),
          providers: part,
        }
      : { ...head, shard, contracts: [], policies: [], staged: null, providers: part },
  );
}

function onlineProviders(state: RegistryState, name: string): PushedProvider[] {
  const pushed: PushedProvider[] = [];
  const seen = new Set<string>();
  for (const { agentId } of state.byCapability.get(name) ?? []) {
    if (seen.has(agentId)) continue;
    seen.add(agentId);
    const entry = state.entryOf(agentId);
    if (entry === undefined || !entry.isOnline || !entry.record.offers.some((offer) => offer.name === name)) continue;
    const record = recordSaid(state, entry.record);
    const { mesh, instance } = entry.sidecar;
    pushed.push(record.via === null ? { record, mesh: null } : { record, mesh, instance });
  }
  return pushed.sort((a, b) => (a.record.agentId < b.record.agentId ? -1 : 1));
}

/** A record with what operators set for it. */
export function recordSaid(state: RegistryState, record: ProviderRecord): ProviderRecord {
  const setting = Object.hasOwn(state.settings, record.agentId) ? state.settings[record.agentId] : undefined;
  if (setting === undefined) return record;
  return { ...record, drain: setting.drain ?? record.drain, weight: setting.weight ?? record.weight };
}

const SHARD_SEED = 0x27d4eb2f;

/**
 * By a hash of the agent's id, so that one that comes or goes changes one shard; the number doubles, so that a shard that
 * is split leaves one half where it is.
 */
function split(providers: readonly PushedProvider[]): PushedProvider[][] {
  if (providers.length <= PROVIDERS_PER_SHARD && bytesOf(providers) <= MAX_SHARD_BYTES) return [[...providers]];
  for (let count = 2; ; count *= 2) {
    if (providers.length > count * SHARD_FILL && count < providers.length) continue;
    const shards: PushedProvider[][] = Array.from({ length: count }, () => []);
    for (const provider of providers) (shards[hash32(provider.record.agentId, SHARD_SEED) % count] as PushedProvider[]).push(provider);
    const fits = shards.every((shard) => shard.length <= PROVIDERS_PER_SHARD && bytesOf(shard) <= MAX_SHARD_BYTES);
    if (fits || count >= providers.length * 8) return shards;
  }
}

function bytesOf(providers: readonly PushedProvider[]): number {
  let bytes = 0;
  for (const { record } of providers) bytes += sizeOf(record) + 128;
  return bytes;
}

/** The version in which anything that covers the capability last changed; 0 = never. */
export function saidVersion(name: string, operators: OperatorsState): number {
  let version = 0;
  const { stamps } = operators.policies;
  for (const key of keysFor(name)) version = Math.max(version, stamps[key] ?? 0);
  return version;
}

/** What the share of a roll-out uses instead; null where it says the same. */
function stagedFor(state: RegistryState, operators: OperatorsState, name: string): Staged | null {
  const rollout = operators.policies.staged;
  if (state.staged === null || rollout === null || rollout.halted !== '') return null;
  const contracts = contractsSaid(name, state.book, state.staged);
  const policies = policiesSaid(name, state.staged, state.canary[name]);
  if (
    sameValue(contracts, contractsSaid(name, state.book, state.active)) &&
    sameValue(policies, policiesSaid(name, state.active, state.canary[name]))
  )
    return null;
  return { version: rollout.version, share: rollout.share, contracts, policies };
}

/** The rules for messages, whole: they go to every sidecar that sends. */
export function rulesState(state: RegistryState, operators: OperatorsState): RulesState {
  const { rules } = state.active;
  const rollout = operators.policies.staged;
  return {
    wire: REGISTRY_WIRE,
    epoch: state.epoch,
    version: operators.policies.stamps[RULES_KEY] ?? 0,
    rules,
    staged: stagedRules(state, rollout),
  };
}

function stagedRules({ active, staged }: RegistryState, rollout: OperatorsState['policies']['staged']): RulesState['staged'] {
  if (staged === null || rollout === null || rollout.halted !== '' || sameValue(staged.rules, active.rules)) return null;
  return { version: rollout.version, share: rollout.share, rules: staged.rules };
}

export function scopeState(state: RegistryState, sidecar: string): ScopeState {
  return { wire: REGISTRY_WIRE, epoch: state.epoch, capabilities: state.scopes.of(sidecar) };
}

/** What one sidecar has registered; of a forgotten one: nothing. Each contract stands once, with the first agent that holds it. */
export function registrationState(state: RegistryState, name: string): RegistrationState {
  const sidecar = state.sidecars.get(name);
  if (sidecar === undefined) return { wire: REGISTRY_WIRE, epoch: state.epoch, hello: emptyHello(name), offline: {} };
  const written = new Set<string>();
  const agents: AgentRegistration[] = [];
  const offline: Record<string, RegistrationState['offline'][string]> = {};
  for (const entry of sidecar.agents.values()) {
    const labels = entry.labels.filter((label) => !written.has(label));
    for (const label of labels) written.add(label);
    agents.push({ contracts: labels.flatMap((label) => state.book.byLabel(label)?.contract ?? []), record: entry.record });
    if (entry.offline !== null) offline[entry.agentId] = { sinceMs: entry.offline.sinceMs, why: entry.offline.why };
  }
  const retired = [...sidecar.retired].flatMap(([label, { sinceMs }]) => {
    const contract = state.book.byLabel(label)?.contract;
    return contract === undefined ? [] : [{ contract, sinceMs }];
  });
  return { wire: REGISTRY_WIRE, epoch: state.epoch, hello: helloOf(sidecar, agents), offline, retired };
}

function helloOf(sidecar: SidecarEntry, agents: readonly AgentRegistration[]): RegistrationState['hello'] {
  const { instance, mesh, region, zone, callers } = sidecar;
  const named = sidecar.isNamed ? ({ named: true } as const) : null;
  return { wire: REGISTRY_WIRE, sidecar: sidecar.name, instance, mesh, region, zone, callers, ...named, agents };
}

function emptyHello(sidecar: string): RegistrationState['hello'] {
  return { wire: REGISTRY_WIRE, sidecar, instance: '', mesh: null, region: null, zone: null, callers: [], agents: [] };
}
