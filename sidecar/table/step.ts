/**
 * From one table to the next: which providers it names, what each may be given at once, and what the health view may
 * forget. Done capability by capability, so that a push costs what it changes: a sidecar with two hundred providers in its
 * scope hears of a change of one of them several times a second.
 */
import { cellKey, type Health } from '../health/health.ts';
import type { Capability, Member, Provider } from './snapshot.ts';

/** A capability that is another one than before; null = not there. */
export interface Moved {
  readonly before: Capability | null;
  readonly after: Capability | null;
}

export interface Step {
  readonly providers: Map<string, Provider>;
  /** In how many capabilities an agent stands, where it is more than one. */
  readonly uses: ReadonlyMap<string, number>;
}

export function fromNothing(capabilities: ReadonlyMap<string, Capability>): Step {
  const providers = new Map<string, Provider>();
  const uses = new Map<string, number>();
  const limits = new Map<string, number>();
  for (const capability of capabilities.values()) {
    for (const [agentId, { provider, limit }] of capability.members) {
      if (providers.has(agentId)) uses.set(agentId, (uses.get(agentId) ?? 1) + 1);
      providers.set(agentId, provider);
      limits.set(agentId, Math.min(limit, limits.get(agentId) ?? limit));
    }
  }
  for (const [agentId, limit] of limits) (providers.get(agentId) as Provider).health.limit = limit;
  return { providers, uses };
}

/** Makes the health view forget what no capability and no document names. */
export function retainOnly(capabilities: ReadonlyMap<string, Capability>, providers: ReadonlyMap<string, Provider>, health: Health): void {
  const cells = new Set<string>();
  for (const [name, { members }] of capabilities) for (const agentId of members.keys()) cells.add(cellKey(agentId, name));
  health.retain(new Set(providers.keys()), cells);
}

/** @param capabilities those of the next table. */
export function stepFrom(
  providersBefore: ReadonlyMap<string, Provider>,
  usesBefore: ReadonlyMap<string, number>,
  moved: readonly Moved[],
  capabilities: ReadonlyMap<string, Capability>,
  health: Health,
): Step {
  const providers = new Map(providersBefore);
  const uses = new Map(usesBefore);
  const newest = new Map<string, Member | null>();
  const moves = new Map<string, number>();
  for (const { before, after } of moved) {
    for (const [agentId, { cell }] of before?.members ?? []) {
      if (after?.members.has(agentId) === true) continue;
      moves.set(agentId, (moves.get(agentId) ?? 0) - 1);
      health.dropCell(cell);
      if (!newest.has(agentId)) newest.set(agentId, null);
    }
    for (const [agentId, member] of after?.members ?? []) {
      if (before?.members.has(agentId) !== true) moves.set(agentId, (moves.get(agentId) ?? 0) + 1);
      newest.set(agentId, member);
    }
  }
  for (const [agentId, member] of newest) {
    const countBefore = providersBefore.has(agentId) ? (usesBefore.get(agentId) ?? 1) : 0;
    const count = countBefore + (moves.get(agentId) ?? 0);
    if (count > 1) uses.set(agentId, count);
    else uses.delete(agentId);
    if (count <= 0) {
      providers.delete(agentId);
      health.dropProvider(agentId);
      continue;
    }
    const members = count === 1 && member !== null ? [member] : membersOf(agentId, capabilities);
    const provider = (member ?? (members[0] as Member)).provider;
    providers.set(agentId, provider);
    provider.health.limit = Math.min(...members.map(({ limit }) => limit));
  }
  return { providers, uses };
}

function membersOf(agentId: string, capabilities: ReadonlyMap<string, Capability>): Member[] {
  const members: Member[] = [];
  for (const capability of capabilities.values()) {
    const member = capability.members.get(agentId);
    if (member !== undefined) members.push(member);
  }
  return members;
}
