/** What can be read of the registry and the fleet: every replica answers it. */
import { nearest } from '../../base/suggest.ts';
import { Code } from '../../proto/wire/codes.ts';
import type { CapabilityState } from '../../proto/wire/registry.ts';
import { REGISTRY_WIRE } from '../../proto/wire/registry.ts';
import { Tail } from '../../proto/wire/subjects.ts';
import type { Plane } from './plane.ts';
import { absent, invalid, Refused, unavailable } from './problem.ts';
import { type Asked, json, type Reply, type Route } from './route.ts';
import { type CapabilitiesAnswer, type CapabilityAnswer, type FleetAnswer, type ProvidersAnswer, snake } from './shapes.ts';

const STATES = ['online', 'offline', 'overdue', 'draining'] as const;

export function readRoutes(plane: Plane): readonly Route[] {
  const read = { method: 'GET', role: 'viewer', onLeader: false } as const;
  return [
    {
      ...read,
      path: '/v1/capabilities',
      summary: 'Everything that can be asked for.',
      answer: { status: 200, doc: 'Capabilities with their versions and how many serve each.' },
      handle: () => {
        const answer: CapabilitiesAnswer = { capabilities: plane.registry().capabilities().map(snake) };
        return json(answer);
      },
    },
    {
      ...read,
      path: '/v1/capabilities/:name',
      summary: 'One capability: contracts, policies that cover it, providers.',
      params: [{ name: 'name', doc: 'Canonical name.', example: 'crm.order.query' }],
      answer: { status: 200, doc: 'As it is pushed to the sidecars that may use it.' },
      handle: ({ params }) => capability(plane, params['name'] ?? ''),
    },
    {
      ...read,
      path: '/v1/providers',
      summary: 'Every provider, with its standing and last activity.',
      query: [
        { name: 'capability', doc: 'Only those that offer it.' },
        { name: 'sidecar', doc: 'Only those that this sidecar registered.' },
        { name: 'state', doc: `One of ${STATES.join(', ')}.` },
      ],
      answer: { status: 200, doc: 'Providers.' },
      handle: (asked) => providers(plane, asked),
    },
    {
      ...read,
      path: '/v1/sidecars',
      summary: 'The fleet: what each sidecar has applied, how far behind it is, what it refused, who is missing.',
      answer: { status: 200, doc: 'Sidecars, a summary, what is held back, a roll-out under way.' },
      handle: async () => json(fleet(plane, await plane.natsFlush())),
    },
    {
      ...read,
      path: '/v1/explain',
      summary: 'Asks a live sidecar who would serve, and why everybody else was left out. Nothing is sent.',
      query: [
        { name: 'sidecar', doc: 'The sidecar that is asked.' },
        { name: 'target', doc: 'A capability, with or without range.', example: 'crm.order.query@^2.0' },
        { name: 'as', doc: 'The agent that would call.' },
        { name: 'headers', doc: 'Headers that the call would carry, as a JSON object.' },
      ],
      answer: { status: 200, doc: "The sidecar's own explanation." },
      handle: (asked) => explain(plane, asked),
    },
  ];
}

function capability(plane: Plane, name: string): Reply {
  const all = plane.registry().capabilities();
  const found = all.find((each) => each.capability === name);
  if (found === undefined) {
    const near = nearest(
      name,
      all.map((each) => each.capability),
    );
    return absent(`no capability is called ${JSON.stringify(name.slice(0, 200))}${near === null ? '' : `; did you mean ${near}?`}`);
  }
  const states = plane.registry().capabilityStates(name);
  const first: CapabilityState | undefined = states[0];
  const answer: CapabilityAnswer = {
    ...snake(found),
    seq: plane.mirror.get(Tail.capability(name))?.seq ?? 0,
    contracts: first?.contracts ?? [],
    policy_list: first?.policies ?? [],
    provider_list: plane
      .registry()
      .providers()
      .filter(({ offers }) => offers.some((offer) => offer.startsWith(`${name}@`)))
      .map(snake),
  };
  return json(answer);
}

function providers(plane: Plane, { query }: Asked): Reply {
  const { capability: name, sidecar, state } = query;
  if (state !== undefined && !(STATES as readonly string[]).includes(state)) return invalid(`state must be one of ${STATES.join(', ')}`);
  const found = plane
    .registry()
    .providers()
    .filter(
      (one) =>
        (name === undefined || one.offers.some((offer) => offer.startsWith(`${name}@`))) &&
        (sidecar === undefined || one.sidecar === sidecar) &&
        (state === undefined || (state === 'draining' ? one.drain : one.status === state)),
    );
  const answer: ProvidersAnswer = { providers: found.map(snake) };
  return json(answer);
}

/** @param flush when NATS flushes what it acknowledges */
export function fleet(plane: Plane, flush: string): FleetAnswer {
  const now = plane.clock.now();
  const registry = plane.registry();
  const registered = new Map(registry.sidecars().map((one) => [one.sidecar, one]));
  const rows = plane.fleet.rows(now);
  const count = (standing: string): number => rows.filter((row) => row.standing === standing).length;
  const rollout = registry.rollout();
  return {
    epoch: plane.epoch,
    last_seq: plane.mirror.lastSeq,
    nats: { version: plane.natsVersion, flush },
    sidecars: rows.map((row) => {
      const one = registered.get(row.sidecar);
      return { ...snake(row), registered: one === undefined ? null : snake(one) };
    }),
    summary: {
      total: rows.length,
      current: count('current'),
      behind: count('behind'),
      stale: count('stale'),
      missing: count('missing'),
      refusing: rows.filter((row) => row.refused.length > 0).length,
    },
    held:
      plane.leading === null
        ? null
        : plane.leading.held.map(({ id, reason, sinceMs }) => ({
            id,
            reason,
            for_ms: sinceMs === null ? null : Math.round(now - sinceMs),
          })),
    rollout: rollout === null ? null : snake(rollout),
  };
}

async function explain(plane: Plane, { query }: Asked): Promise<Reply> {
  const { sidecar, target, as, headers } = query;
  if (sidecar === undefined || target === undefined) return invalid('say which sidecar is asked (?sidecar=) and what for (&target=)');
  if (!/^[a-z0-9][a-z0-9_-]{0,62}$/.test(sidecar)) return invalid('sidecar is not the name of a sidecar in the registry');
  const words = headers === undefined ? {} : headerMap(headers);
  if (words === null) return invalid('headers must be a JSON object whose values are texts');
  const asked = await plane.ask(sidecar, { wire: REGISTRY_WIRE, what: 'explain', target, as: as ?? null, headers: words });
  if ('answer' in asked) return json(asked.answer);
  if (asked.kind === 'absent') return absent(asked.why);
  if (asked.kind === 'away') return unavailable(asked.why);
  if (asked.kind === 'late') return new Refused(504, Code.response_timeout, asked.why);
  return invalid(asked.why);
}

function headerMap(text: string): Record<string, string> | null {
  try {
    const value = JSON.parse(text) as unknown;
    if (typeof value !== 'object' || value === null || Array.isArray(value)) return null;
    const map: Record<string, string> = {};
    for (const [key, each] of Object.entries(value)) {
      if (typeof each !== 'string') return null;
      map[key.toLowerCase()] = each;
    }
    return map;
  } catch {
    return null;
  }
}
