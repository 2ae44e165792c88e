/** Builds what people ask the registry for (`views.ts`). */
import { labelOf } from './contracts.ts';
import { recordSaid } from './derive.ts';
import type { AgentEntry, SidecarEntry } from './entries.ts';
import { contractsSaid, policiesSaid } from './said.ts';
import type { RegistryState } from './state.ts';
import type { CapabilityView, ProviderView, SidecarView, VersionView } from './views.ts';

const byText = (a: string, b: string): number => (a < b ? -1 : a > b ? 1 : 0);

/** By agent id. */
export function providerViews(state: RegistryState): ProviderView[] {
  const views: ProviderView[] = [];
  for (const agentId of state.byAgent.keys()) {
    const entry = state.entryOf(agentId);
    if (entry !== undefined) views.push(providerView(state, entry));
  }
  return views.sort((a, b) => byText(a.agent, b.agent));
}

export function providerView(state: RegistryState, entry: AgentEntry): ProviderView {
  const now = state.clock.now();
  const record = recordSaid(state, entry.record);
  const operator = Object.hasOwn(state.settings, entry.agentId) ? state.settings[entry.agentId] : undefined;
  return {
    agent: entry.agentId,
    role: record.role,
    sidecar: entry.sidecar.name,
    via: record.via,
    status: entry.offline !== null ? 'offline' : entry.isOverdue ? 'overdue' : 'online',
    why: entry.offline?.why ?? null,
    offlineSinceMs: entry.offline?.sinceMs ?? null,
    leaseLeftMs: entry.offline === null ? Math.max(0, entry.deadline - now) : null,
    lastActivityMs: entry.activeAt === null ? null : now - entry.activeAt,
    inFlight: entry.inFlight,
    offers: record.offers.map(labelOf),
    address: record.endpoint.address,
    transport: record.endpoint.type,
    mesh: record.via === null ? null : entry.sidecar.mesh,
    region: record.region,
    zone: record.zone,
    tier: record.tier,
    weight: record.weight,
    drain: record.drain,
    operator: operator ?? null,
    probe:
      entry.probing === null || record.healthCheck === null
        ? null
        : { intervalMs: record.healthCheck.intervalMs, failures: entry.probing.failures },
  };
}

/** By name. */
export function sidecarViews(state: RegistryState): SidecarView[] {
  return [...state.sidecars.values()].map((sidecar) => sidecarView(state, sidecar)).sort((a, b) => byText(a.sidecar, b.sidecar));
}

function sidecarView(state: RegistryState, sidecar: SidecarEntry): SidecarView {
  const now = state.clock.now();
  const agents = [...sidecar.agents.values()];
  return {
    sidecar: sidecar.name,
    instance: sidecar.instance,
    mesh: sidecar.mesh,
    region: sidecar.region,
    zone: sidecar.zone,
    status: sidecar.leftAt !== null ? 'left' : now - sidecar.lastSignAt() < state.times.offlineMs ? 'online' : 'offline',
    lastBeatMs: sidecar.beatAt === null ? null : now - sidecar.beatAt,
    callers: sidecar.callers,
    agents: agents.length,
    agentsOnline: agents.filter((entry) => entry.isOnline).length,
    capabilities: state.scopes.of(sidecar.name).length,
  };
}

/** By name. */
export function capabilityViews(state: RegistryState): CapabilityView[] {
  return [...state.names()].sort(byText).map((name) => capabilityView(state, name));
}

function capabilityView(state: RegistryState, name: string): CapabilityView {
  const contracts = contractsSaid(name, state.book, state.active);
  const policies = policiesSaid(name, state.active, state.canary[name]);
  const agents = new Set([...(state.byCapability.get(name) ?? [])].map((entry) => entry.agentId));
  const entries = [...agents].flatMap((agent) => state.entryOf(agent) ?? []);
  let defaultRange: string | null = null;
  let canary: Readonly<Record<string, number>> | null = null;
  for (const policy of policies) {
    defaultRange = policy.defaultRange ?? defaultRange;
    canary = policy.canary ?? canary;
  }
  return {
    capability: name,
    aliases: [...new Set(contracts.flatMap((contract) => contract.aliases))].sort(byText),
    versions: contracts.toReversed().map((contract): VersionView => {
      const offering = entries.filter((entry) => entry.record.offers.some((offer) => labelOf(offer) === labelOf(contract)));
      const known = state.book.get(name, contract.version);
      return {
        version: contract.version,
        online: offering.filter((entry) => entry.isOnline).length,
        providers: offering.length,
        acl: contract.acl.isPublic ? ['public'] : contract.acl.patterns.map((pattern) => pattern.text),
        execution: contract.execution,
        streaming: contract.streaming !== null,
        description: contract.description,
        source: known === undefined || known.contract !== contract ? 'operator' : known.holders.size === 0 ? 'retired' : 'agents',
      };
    }),
    online: entries.filter((entry) => entry.isOnline).length,
    providers: entries.length,
    policies: policies.map((policy) => policy.capability),
    canary,
    defaultRange,
  };
}
