/**
 * Agents that are gone without a goodbye, and how they belong together: an alert for each agent, but one for a sidecar that is gone
 * with all it hosts, one for a region of which all sidecars are, and one for the whole when the registry itself does not believe a
 * sudden loss. Who is drained, has said goodbye or was taken out on purpose is none. Pure.
 */
import type { ProviderView, SidecarView } from '../registry/views.ts';

export interface Gone {
  /** `crm.order.a`, `sidecar:shop-1`, `region:eu`, `fleet`. */
  readonly subject: string;
  readonly agents: readonly string[];
  readonly sidecars: readonly string[];
  /** The first that went, by the registry's wall clock; null = not known. */
  readonly sinceMs: number | null;
  readonly words: string;
}

/** The subject of the alert about all of them. No agent, capability or pool is named so. */
export const FLEET = 'fleet';
const REGION = 'region:';

/** Whether an alert with this subject is one about many sidecars. */
export function isGroup(subject: string): boolean {
  return subject === FLEET || subject.startsWith(REGION);
}

/** So many are named in a sentence. */
const NAMED = 10;
/** More alerts than this at once are one about all of them. */
const MANY = 20;

/** @param held why the registry waits for an operator's word before it believes a loss; null = it does not */
export function goneAgents(providers: readonly ProviderView[], sidecars: readonly SidecarView[], held: string | null): Gone[] {
  const lost = providers.filter(isLost);
  const overdue = providers.filter(({ status }) => status === 'overdue');
  const gone: Gone[] = [];
  if (held !== null && overdue.length > 0)
    gone.push({
      subject: FLEET,
      agents: overdue.map(({ agent }) => agent),
      sidecars: [...new Set(overdue.map(({ sidecar }) => sidecar))],
      sinceMs: null,
      words: `${held}: ${listed(overdue.map(({ agent }) => agent))}`,
    });
  const dead = sidecarsGone(lost, providers, sidecars);
  const regions = regionsGone(dead, providers, sidecars);
  const within = new Set(regions.flatMap(({ sidecars: names }) => names));
  const rest: Gone[] = [];
  for (const [sidecar, agents] of dead) if (!within.has(sidecar) && agents.length > 1) rest.push(ofSidecar(sidecar, agents));
  for (const one of lost) if (!within.has(one.sidecar) && (dead.get(one.sidecar)?.length ?? 1) < 2) rest.push(ofAgent(one));
  gone.push(...regions);
  if (rest.length <= MANY) gone.push(...rest);
  else if (gone[0]?.subject !== FLEET) gone.push(ofMany(rest));
  return gone;
}

function isLost({ status, why, drain }: ProviderView): boolean {
  return status === 'offline' && (why === 'lease' || why === 'probe') && !drain;
}

/** Sidecars of which nothing is heard and all agents are gone, of those that were not taken out on purpose. */
function sidecarsGone(
  lost: readonly ProviderView[],
  providers: readonly ProviderView[],
  sidecars: readonly SidecarView[],
): Map<string, readonly ProviderView[]> {
  const online = new Set(providers.filter(({ status }) => status !== 'offline').map(({ sidecar }) => sidecar));
  // After a change of leaders a sidecar counts as there until it should have spoken; here it has to have spoken.
  const heard = new Set(
    sidecars.filter(({ status, lastBeatMs }) => status === 'online' && lastBeatMs !== null).map(({ sidecar }) => sidecar),
  );
  const by = new Map<string, ProviderView[]>();
  for (const one of lost) {
    if (one.why !== 'lease' || online.has(one.sidecar) || heard.has(one.sidecar)) continue;
    const same = by.get(one.sidecar);
    if (same === undefined) by.set(one.sidecar, [one]);
    else same.push(one);
  }
  return by;
}

/** Two sidecars or more, and none of that region is left. */
function regionsGone(
  groups: ReadonlyMap<string, readonly ProviderView[]>,
  providers: readonly ProviderView[],
  sidecars: readonly SidecarView[],
): Gone[] {
  const hosts = new Set(providers.filter(({ status, why }) => status !== 'offline' || why === 'lease').map(({ sidecar }) => sidecar));
  const regions = new Map<string, string[]>();
  for (const { sidecar, region, status } of sidecars) {
    if (region === null || status === 'left' || !hosts.has(sidecar)) continue;
    const same = regions.get(region);
    if (same === undefined) regions.set(region, [sidecar]);
    else same.push(sidecar);
  }
  const gone: Gone[] = [];
  for (const [region, names] of regions) {
    if (names.length < 2 || !names.every((name) => groups.has(name))) continue;
    const agents = names.flatMap((name) => groups.get(name) ?? []);
    gone.push({
      subject: `${REGION}${region}`,
      agents: agents.map(({ agent }) => agent),
      sidecars: names,
      sinceMs: firstOf(agents),
      words: `all of the region ${region} is gone: ${names.length} sidecars (${listed(names)}) with ${agents.length} agents (${listed(agents.map(({ agent }) => agent))})`,
    });
  }
  return gone;
}

function ofSidecar(sidecar: string, agents: readonly ProviderView[]): Gone {
  return {
    subject: `sidecar:${sidecar}`,
    agents: agents.map(({ agent }) => agent),
    sidecars: [sidecar],
    sinceMs: firstOf(agents),
    words: `the sidecar ${sidecar} is gone, with its ${agents.length} agents: ${listed(agents.map(({ agent }) => agent))}`,
  };
}

function ofAgent({ agent, sidecar, why, offers, offlineSinceMs }: ProviderView): Gone {
  const because = why === 'probe' ? 'its health check fails' : `no sign of life through ${sidecar}`;
  const words = `${agent} is offline: ${because}; it serves ${listed(offers)}`;
  return { subject: agent, agents: [agent], sidecars: [sidecar], sinceMs: offlineSinceMs, words };
}

function ofMany(rest: readonly Gone[]): Gone {
  const agents = rest.flatMap((one) => one.agents);
  const sidecars = [...new Set(rest.flatMap((one) => one.sidecars))];
  const times = rest.flatMap(({ sinceMs }) => sinceMs ?? []);
  return {
    subject: FLEET,
    agents,
    sidecars,
    sinceMs: times.length === 0 ? null : Math.min(...times),
    words: `${agents.length} agents on ${sidecars.length} sidecars are offline: ${listed(agents)}`,
  };
}

function firstOf(agents: readonly ProviderView[]): number | null {
  const times = agents.flatMap(({ offlineSinceMs }) => offlineSinceMs ?? []);
  return times.length === 0 ? null : Math.min(...times);
}

function listed(names: readonly string[]): string {
  if (names.length === 0) return 'nothing';
  const more = names.length - NAMED;
  return more > 0 ? `${names.slice(0, NAMED).join(', ')} and ${more} more` : names.join(', ');
}
