/** What operators order: drains, weights, canaries, confirmations. Each is written before it is answered, and kept in the audit log. */
import { parseRatio } from '../../base/duration.ts';
import { nearest } from '../../base/suggest.ts';
import type { OrderOutcome } from '../registry/registry.ts';
import type { Leading } from '../push/leading.ts';
import { recordOrder } from './audited.ts';
import type { Plane } from './plane.ts';
import { absent, conflict, invalid, Refused, unavailable } from './problem.ts';
import { type Asked, bodyMap, json, type Reply, type Route, strayKey } from './route.ts';
import type { CanaryChange, ProviderChange } from './shapes.ts';

const REASON = { type: 'string', maxLength: 500, description: 'Stands in the audit log.' };

/** A reason, or the refusal of the body. */
function reasonIn(map: Readonly<Record<string, unknown>>): string | Refused {
  const reason = map['reason'] ?? '';
  if (typeof reason !== 'string' || reason.length > 500) return invalid('reason must be a text of at most 500 characters');
  return reason;
}

export interface Order {
  readonly what: string;
  readonly target: string;
  readonly reason: string;
  readonly before: unknown;
}

/** Writes an outcome and the audit entry; gives the sequence, or why it is not in force. */
export async function carryOut(
  plane: Plane,
  asked: Asked,
  order: Order,
  outcome: OrderOutcome,
  after: () => unknown,
): Promise<number | Refused> {
  const leading = plane.leading;
  if (leading === null) return unavailable('this replica has just stopped leading; ask again');
  if (outcome.problem !== null) return conflict(outcome.problem);
  const written = await leading.inTime(leading.commit(outcome.change));
  if (!written.ok) return unavailable(`not in force: ${written.why}`);
  recordOrder(plane, asked, {
    what: order.what,
    target: order.target,
    before: order.before,
    after: after(),
    reason: order.reason,
  });
  return written.seq;
}

export function orderRoutes(plane: Plane): readonly Route[] {
  const order = { role: 'operator', onLeader: true } as const;
  const id = [{ name: 'id', doc: 'Agent id.', example: 'crm.order.a' }];
  const body = (properties: Readonly<Record<string, unknown>>) =>
    ({
      contentType: 'application/json',
      doc: 'What is ordered, and why.',
      schema: { type: 'object', properties: { ...properties, reason: REASON } },
    }) as const;
  return [
    {
      ...order,
      method: 'POST',
      path: '/v1/providers/:id/drain',
      summary: 'Gives a provider no new calls; those under way end in peace.',
      params: id,
      body: body({}),
      answer: { status: 200, doc: 'In force at this sequence.' },
      handle: (asked) => provider(plane, asked, 'provider.drain', [], () => ({ drain: true })),
    },
    {
      ...order,
      method: 'POST',
      path: '/v1/providers/:id/restore',
      summary: "Ends a drain and an operator's weight: what its record says counts again.",
      params: id,
      body: body({}),
      answer: { status: 200, doc: 'In force at this sequence.' },
      handle: (asked) => provider(plane, asked, 'provider.restore', [], () => ({ drain: null, weight: null })),
    },
    {
      ...order,
      method: 'PUT',
      path: '/v1/providers/:id/weight',
      summary: 'Its share beside the others of its tier; 0 takes no traffic, null gives back what its record says.',
      params: id,
      body: body({ weight: { type: ['number', 'null'], minimum: 0 } }),
      answer: { status: 200, doc: 'In force at this sequence.' },
      handle: (asked) =>
        provider(plane, asked, 'provider.weight', ['weight'], (map) => {
          const weight = map['weight'];
          if (weight === null) return { weight: null };
          if (typeof weight !== 'number' || !Number.isFinite(weight) || weight < 0 || weight > 1_000_000)
            return 'weight must be a number from 0 to 1000000, or null';
          return { weight };
        }),
    },
    {
      ...order,
      method: 'POST',
      path: '/v1/capabilities/:name/canary',
      summary: 'Splits the traffic of a capability by version.',
      params: [{ name: 'name', doc: 'Canonical name.', example: 'crm.order.query' }],
      body: body({
        shares: {
          type: ['object', 'null'],
          additionalProperties: {
            anyOf: [
              { type: 'number', minimum: 0, maximum: 1 },
              { type: 'string', pattern: '%$' },
            ],
          },
          description: 'Share by exact version; what is not named shares the rest. null: no split.',
        },
      }),
      answer: { status: 200, doc: 'In force at this sequence.' },
      handle: (asked) => canary(plane, asked),
    },
    {
      ...order,
      method: 'POST',
      path: '/v1/confirm',
      summary: 'Says that what is held back (a sudden loss of providers) is true.',
      body: body({}),
      answer: { status: 200, doc: 'What was confirmed; in force at this sequence.' },
      handle: (asked) => confirm(plane, asked),
    },
  ];
}

type Setting = { readonly drain?: boolean | null; readonly weight?: number | null };

async function provider(
  plane: Plane,
  asked: Asked,
  what: string,
  keys: readonly string[],
  setting: (map: Readonly<Record<string, unknown>>) => Setting | string,
): Promise<Reply> {
  const map = bodyMap(asked);
  if (typeof map === 'string') return invalid(map);
  const stray = strayKey(map, [...keys, 'reason']);
  if (stray !== null) return invalid(stray);
  const reason = reasonIn(map);
  if (reason instanceof Refused) return reason;
  const wanted = setting(map);
  if (typeof wanted === 'string') return invalid(wanted);
  const { registry } = plane.leading as Leading;
  const agent = asked.params['id'] ?? '';
  if (!registry.knowsAgent(agent) && registry.operators().providers.providers[agent] === undefined) {
    const known = registry.providers().map((one) => one.agent);
    const near = nearest(agent, known);
    return absent(`no provider is called ${JSON.stringify(agent.slice(0, 200))}${near === null ? '' : `; did you mean ${near}?`}`);
  }
  const now = (): unknown => registry.operators().providers.providers[agent] ?? null;
  const before = now();
  const seq = await carryOut(plane, asked, { what, target: agent, reason, before }, registry.setProvider(agent, wanted), now);
  if (seq instanceof Refused) return seq;
  const answer: ProviderChange = { agent, operator: registry.operators().providers.providers[agent] ?? null, seq };
  return json(answer);
}

async function canary(plane: Plane, asked: Asked): Promise<Reply> {
  const map = bodyMap(asked);
  if (typeof map === 'string') return invalid(map);
  const stray = strayKey(map, ['shares', 'reason']);
  if (stray !== null) return invalid(stray);
  const reason = reasonIn(map);
  if (reason instanceof Refused) return reason;
  const shares = sharesIn(map['shares']);
  if (typeof shares === 'string') return invalid(shares);
  const name = asked.params['name'] ?? '';
  const { registry } = plane.leading as Leading;
  if (!registry.capabilityNames().includes(name)) {
    const near = nearest(name, registry.capabilityNames());
    return absent(`no capability is called ${JSON.stringify(name.slice(0, 200))}${near === null ? '' : `; did you mean ${near}?`}`);
  }
  const now = (): Readonly<Record<string, number>> | null => registry.operators().canary.canary[name] ?? null;
  const before = now();
  const seq = await carryOut(
    plane,
    asked,
    { what: 'capability.canary', target: name, reason, before },
    registry.shiftCanary(name, shares),
    now,
  );
  if (seq instanceof Refused) return seq;
  const answer: CanaryChange = { capability: name, shares: now(), seq };
  return json(answer);
}

function sharesIn(value: unknown): Record<string, number> | null | string {
  if (value === null) return null;
  if (typeof value !== 'object' || value === undefined || Array.isArray(value))
    return 'shares must be an object from exact version to share, such as {"2.1.0": "5%"}, or null';
  const shares: Record<string, number> = {};
  for (const [version, share] of Object.entries(value)) {
    const read = parseRatio(share);
    if (typeof read === 'string') return `the share of ${version.slice(0, 60)}: ${read}`;
    shares[version] = read;
  }
  return Object.keys(shares).length === 0 ? 'shares is empty: name at least one version, or send null to end the split' : shares;
}

async function confirm(plane: Plane, asked: Asked): Promise<Reply> {
  const map = bodyMap(asked);
  if (typeof map === 'string') return invalid(map);
  const stray = strayKey(map, ['reason']);
  if (stray !== null) return invalid(stray);
  const reason = reasonIn(map);
  if (reason instanceof Refused) return reason;
  const leading = plane.leading as Leading;
  const { held } = leading;
  if (held.length === 0) return conflict('nothing is held back');
  const written = await leading.inTime(leading.confirm());
  if (!written.ok) return unavailable(`not in force: ${written.why}`);
  recordOrder(plane, asked, {
    what: 'confirm',
    target: held.map(({ id }) => id).join(' '),
    before: held.map((each) => each.reason),
    after: null,
    reason,
  });
  return json({ confirmed: held.map(({ id, reason: why }) => ({ id, reason: why })), seq: written.seq });
}
