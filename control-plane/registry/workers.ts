/**
 * Who can work on messages: agents that are online, hosted by a sidecar (a third party without one has nobody who pulls for
 * it) and offer the capability. And who an agent is at home with. Read from the registry's state; nothing is decided here.
 */
import type { ProviderRecord } from '../../proto/language/types.ts';
import type { OfflineWhy } from '../../proto/wire/registry.ts';
import type { RegistryState } from './state.ts';

export interface Worker {
  readonly agent: string;
  readonly sidecar: string;
  readonly record: ProviderRecord;
}

/** Whether an agent that owns something is still there. */
export type Presence =
  | { readonly kind: 'online'; readonly sidecar: string }
  /** `sinceMs`: wall clock. */
  | { readonly kind: 'offline'; readonly why: OfflineWhy; readonly sinceMs: number }
  | { readonly kind: 'unknown' };

/** By agent id. */
export function workersOf(state: RegistryState, capability: string): Worker[] {
  const workers: Worker[] = [];
  for (const entry of state.byCapability.get(capability) ?? [])
    if (entry.isOnline && entry.record.via !== null)
      workers.push({ agent: entry.agentId, sidecar: entry.sidecar.name, record: entry.record });
  return workers.sort((a, b) => (a.agent < b.agent ? -1 : 1));
}

export function presenceOf(state: RegistryState, agent: string): Presence {
  const entry = state.entryOf(agent);
  if (entry === undefined) return { kind: 'unknown' };
  if (entry.offline === null) return { kind: 'online', sidecar: entry.sidecar.name };
  return { kind: 'offline', why: entry.offline.why, sinceMs: entry.offline.sinceMs };
}

/**
 * Sidecars at which an agent is at home: where it is hosted; when it is hosted nowhere, those through which it calls and that
 * are heard. An agent that dials in moves between gateways that all know its name: the one that hosts it now counts alone.
 */
export function homesOf(state: RegistryState, agent: string): string[] {
  const hosts: string[] = [];
  for (const entry of state.byAgent.get(agent) ?? []) if (entry.isOnline && entry.record.via !== null) hosts.push(entry.sidecar.name);
  if (hosts.length > 0) return hosts;
  const since = state.clock.now() - state.times.offlineMs;
  const homes: string[] = [];
  for (const sidecar of state.sidecars.values())
    if (sidecar.leftAt === null && sidecar.lastSignAt() > since && calls(sidecar.callers, agent)) homes.push(sidecar.name);
  return homes;
}

/** Whether a sidecar may ask about an agent: it hosts it, or the agent calls through it. */
export function isHostedAt(state: RegistryState, sidecar: string, agent: string): boolean {
  const entry = state.sidecars.get(sidecar);
  return entry !== undefined && (calls(entry.callers, agent) || entry.agents.has(agent));
}

/** A gateway has thousands of callers, and is asked about each of them. A list never changes: another one takes its place. */
const sets = new WeakMap<readonly string[], ReadonlySet<string>>();

function calls(callers: readonly string[], agent: string): boolean {
  let set = sets.get(callers);
  if (set === undefined) {
    set = new Set(callers);
    sets.set(callers, set);
  }
  return set.has(agent);
}

/**
 * Judges of agents whether they are at home at a sidecar, whose process asks: hosted there, or calling through it and hosted
 * nowhere else. Null when this process has not said hello here.
 * @returns of an agent, why it is not at home there; null = it is.
 */
export function homeJudge(state: RegistryState, sidecar: string, instance: string): ((agent: string) => string | null) | null {
  const entry = state.sidecars.get(sidecar);
  if (entry === undefined || entry.instance !== instance || entry.leftAt !== null) return null;
  const callers = new Set(entry.callers);
  return (agent) => {
    if (entry.agents.has(agent)) return null;
    if (!callers.has(agent)) return `it is neither hosted by ${sidecar} nor among those who call through it`;
    const host = (state.byAgent.get(agent) ?? []).find((each) => each.isOnline && each.record.via !== null);
    return host === undefined ? null : `it is hosted by ${host.sidecar.name}`;
  };
}
