/**
 * Who owns the partitions of a sticky pool. An owner keeps what it has for as long as it is there, also over a short
 * restart, since order per key holds only while ownership does; what has no owner goes to whoever has least. So agents that
 * come later get nothing until something falls free: that is the price of order. Pure.
 */
import { hash32 } from '../../base/rendezvous.ts';
import type { PoolState } from '../../proto/wire/messages.ts';
import type { Presence } from './workers.ts';

export type Partition = PoolState['partitions'][number];

export interface Assignment {
  readonly index: number;
  readonly owner: string;
}

/**
 * @param eligible agents that may own one, online, in any order.
 * @param keeps whether an owner keeps what it has.
 * @returns those that get another owner; nothing moves while nobody could take it.
 */
export function assign(partitions: readonly Partition[], eligible: readonly string[], keeps: (owner: string) => boolean): Assignment[] {
  if (eligible.length === 0) return [];
  const owned = new Map(eligible.map((agent) => [agent, 0]));
  const free: number[] = [];
  for (const [index, { owner }] of partitions.entries()) {
    if (owner === '' || !keeps(owner)) free.push(index);
    else if (owned.has(owner)) owned.set(owner, (owned.get(owner) as number) + 1);
  }
  return free.map((index) => {
    const owner = leastLoaded(owned, index);
    owned.set(owner, (owned.get(owner) as number) + 1);
    return { index, owner };
  });
}

function leastLoaded(owned: ReadonlyMap<string, number>, index: number): string {
  let best = '';
  let bestCount = Number.POSITIVE_INFINITY;
  let bestHash = 0;
  for (const [agent, count] of owned) {
    const hash = hash32(agent, index);
    if (count > bestCount || (count === bestCount && hash <= bestHash)) continue;
    best = agent;
    bestCount = count;
    bestHash = hash;
  }
  return best;
}

/**
 * Whether an owner keeps its partitions. One whose lease has run out has been silent for longer than any restart; one that
 * said goodbye, or that a probe found dead, may be back in a moment.
 * @param isEligible it is online and may own one.
 */
export function keepsOwnership(presence: Presence, isEligible: boolean, wallMs: number, graceMs: number): boolean {
  switch (presence.kind) {
    case 'online':
      return isEligible;
    case 'offline':
      return presence.why !== 'lease' && wallMs - presence.sinceMs < graceMs;
    case 'unknown':
      return false;
  }
}
