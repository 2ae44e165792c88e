/**
 * From what is stored back to the state: after a restart, or when a replica begins to lead. Everybody who was online gets a
 * whole lease, since nobody knows how long ago the last heartbeat was. What was stored has been judged when it came in.
 */
import { REGISTRY_WIRE, type RegistrationState } from '../../proto/wire/registry.ts';
import { AgentEntry, SidecarEntry } from './entries.ts';
import { isShared } from './judge.ts';
import { Touch } from './marks.ts';
import type { RegistryState } from './state.ts';

/** What is offline stays known for so long at least: the wall clock that says since when may have jumped. */
const MIN_KEEP_MS = 3_600_000;

/** @returns what could not be read. */
export function loadRegistrations(
  state: RegistryState,
  regs: readonly RegistrationState[],
  newness: (sidecar: string) => number,
): string[] {
  const troubles: string[] = [];
  const readable = regs.filter((reg) => {
    if (reg.wire === REGISTRY_WIRE) return reg.hello.instance !== '' || reg.hello.agents.length > 0;
    troubles.push(
      `the registration of ${reg.hello.sidecar} is in version ${reg.wire} of the registry's language: a newer control plane wrote it`,
    );
    return false;
  });
  // a contract of two contents: what is online now counts, then what is newer
  const rank = (reg: RegistrationState): number => newness(reg.hello.sidecar);
  const oldestFirst = readable.toSorted((a, b) => rank(a) - rank(b) || (a.hello.sidecar < b.hello.sidecar ? -1 : 1));
  for (const reg of oldestFirst) learnContracts(state, reg);
  for (const reg of oldestFirst) loadOne(state, reg);
  for (const entries of state.byAgent.values()) settleClaims(state, entries);
  for (const sidecar of state.sidecars.values()) state.scopes.refresh(sidecar);
  for (const name of state.names()) state.scopes.capabilityChanged(name);
  return troubles;
}

function learnContracts(state: RegistryState, reg: RegistrationState): void {
  for (const agent of reg.hello.agents) {
    for (const contract of agent.contracts) {
      const isOffline = Object.hasOwn(reg.offline, agent.record.agentId);
      if (!isOffline || state.book.get(contract.name, contract.version) === undefined) state.book.put(contract);
    }
  }
  for (const { contract } of reg.retired ?? []) if (state.book.get(contract.name, contract.version) === undefined) state.book.put(contract);
}

function loadOne(state: RegistryState, reg: RegistrationState): void {
  const now = state.clock.now();
  const sidecar = new SidecarEntry(reg.hello, now, false);
  state.sidecars.set(sidecar.name, sidecar);
  for (const agent of reg.hello.agents) {
    const entry = new AgentEntry(sidecar, agent.record, [], now, now + state.times.offlineMs);
    const offline = Object.hasOwn(reg.offline, entry.agentId) ? reg.offline[entry.agentId] : undefined;
    if (offline !== undefined) entry.offline = { ...offline, forgetAt: forgetAt(state, offline.sinceMs) };
    state.enter(entry);
    state.hold(entry, state.labelsFor(agent), new Touch());
    state.setProbing(entry);
  }
  for (const { contract, sinceMs } of reg.retired ?? []) {
    const known = state.book.get(contract.name, contract.version);
    if (known !== undefined && known.holders.size === 0 && known.retiredAt === null)
      state.retire(known, sidecar, sinceMs, forgetAt(state, sinceMs));
  }
}

function forgetAt(state: RegistryState, sinceMs: number): number {
  const passed = Math.max(0, state.clock.wallMs() - sinceMs);
  const { retentionMs } = state.times;
  return state.clock.now() + Math.max(Math.min(MIN_KEEP_MS, retentionMs), retentionMs - passed);
}

/** A leader that died between two writes of a take-over leaves two claims: the newer one, which stands last, has the agent. */
function settleClaims(state: RegistryState, entries: readonly AgentEntry[]): void {
  const winner = entries.findLast((entry) => entry.isOnline) ?? entries.at(-1);
  if (winner === undefined) return;
  for (const entry of entries) if (entry !== winner && !isShared(entry, winner.record)) state.drop(entry, true);
}
