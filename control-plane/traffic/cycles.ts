/**
 * Who calls whom in a circle, as was observed: an agent calls a capability, another serves it, and from there calls lead back to
 * the first. That each call had its own cause cannot be seen here (a sidecar refuses a call that comes back in the same chain,
 * 2005); it is where a chain could turn in circles, and where it would hurt.
 *
 * Agents that can reach one another make one group (Tarjan); of each group one shortest cycle through each of its first few
 * agents is shown, not all cycles there are: those grow faster than anything.
 */
import { OTHER } from '../../proto/wire/digests.ts';
import type { EdgeName } from './minute.ts';

export const MAX_CYCLES = 20;
/** Groups of agents larger than it are searched from so many agents only. */
const MAX_STARTS = 50;

export function cyclesOf(edges: readonly EdgeName[]): string[][] {
  const next = new Map<string, Set<string>>();
  for (const { caller, provider } of edges) {
    if (caller === '' || provider === '' || caller === OTHER || provider === OTHER) continue;
    const known = next.get(caller);
    if (known === undefined) next.set(caller, new Set([provider]));
    else known.add(provider);
  }
  const cycles = new Map<string, string[]>();
  for (const group of groupsOf(next)) {
    const isIn = new Set(group);
    for (const start of group.sort().slice(0, MAX_STARTS)) {
      const cycle = shortest(start, next, isIn);
      if (cycle === null) continue;
      const turned = fromLeast(cycle);
      cycles.set(turned.join(' '), turned);
      if (cycles.size >= MAX_CYCLES) return sorted(cycles);
    }
  }
  return sorted(cycles);
}

function sorted(cycles: ReadonlyMap<string, string[]>): string[][] {
  return [...cycles.values()].sort((a, b) => a.length - b.length || (a.join(' ') < b.join(' ') ? -1 : 1));
}

/** The same cycle however it was found: its least name first. */
function fromLeast(cycle: readonly string[]): string[] {
  let least = 0;
  for (let i = 1; i < cycle.length; i++) if ((cycle[i] as string) < (cycle[least] as string)) least = i;
  return [...cycle.slice(least), ...cycle.slice(0, least)];
}

/** Breadth first, inside the group. */
function shortest(start: string, next: ReadonlyMap<string, ReadonlySet<string>>, isIn: ReadonlySet<string>): string[] | null {
  const from = new Map<string, string>();
  let front = [start];
  while (front.length > 0) {
    const after: string[] = [];
    for (const agent of front)
      for (const called of next.get(agent) ?? []) {
        if (called === start) return wayBack(agent, start, from);
        if (!isIn.has(called) || from.has(called)) continue;
        from.set(called, agent);
        after.push(called);
      }
    front = after;
  }
  return null;
}

function wayBack(last: string, start: string, from: ReadonlyMap<string, string>): string[] {
  const cycle: string[] = [];
  for (let at = last; at !== start; at = from.get(at) as string) cycle.push(at);
  cycle.push(start);
  return cycle.reverse();
}

/** Groups of agents each of which reaches all others of its group; those with nobody else and no call to themselves are left out. Without recursion: a chain may be long. */
function groupsOf(next: ReadonlyMap<string, ReadonlySet<string>>): string[][] {
  const order = new Map<string, number>();
  const low = new Map<string, number>();
  const open: string[] = [];
  const isOpen = new Set<string>();
  const groups: string[][] = [];
  const walk: { readonly agent: string; readonly rest: Iterator<string> }[] = [];
  const enter = (agent: string): void => {
    order.set(agent, order.size);
    low.set(agent, order.size - 1);
    open.push(agent);
    isOpen.add(agent);
    walk.push({ agent, rest: (next.get(agent) ?? NOBODY).values() });
  };
  for (const root of next.keys()) {
    if (order.has(root)) continue;
    enter(root);
    for (let at = walk.at(-1); at !== undefined; at = walk.at(-1)) {
      const { agent, rest } = at;
      const step = rest.next();
      if (step.done !== true) {
        if (!order.has(step.value)) enter(step.value);
        else if (isOpen.has(step.value)) low.set(agent, Math.min(low.get(agent) as number, order.get(step.value) as number));
        continue;
      }
      walk.pop();
      const above = walk.at(-1);
      if (above !== undefined) low.set(above.agent, Math.min(low.get(above.agent) as number, low.get(agent) as number));
      if (low.get(agent) !== order.get(agent)) continue;
      const group = open.splice(open.lastIndexOf(agent));
      for (const member of group) isOpen.delete(member);
      if (group.length > 1 || next.get(agent)?.has(agent) === true) groups.push(group);
    }
  }
  return groups;
}

const NOBODY: ReadonlySet<string> = new Set();
