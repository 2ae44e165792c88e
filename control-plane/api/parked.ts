/** Tasks that are parked: pools that nobody works on, what waits in them, and what people do with it. */
import type { Done } from '../messages/kept-desk.ts';
import type { Handled, ParkedTask } from '../messages/parked-desk.ts';
import type { WaitingPool } from '../messages/waiting.ts';
import type { Leading } from '../push/leading.ts';
import { recordOrder } from './audited.ts';
import type { Plane } from './plane.ts';
import { invalid, Refused, unavailable } from './problem.ts';
import { type Asked, json, type Reply, type Route } from './route.ts';
import type { HandledAnswer, ParkedAnswer, ParkedView, PoolsAnswer, PoolView } from './task-shapes.ts';
import { mapOf, REASON, reasonIn, refusalOf } from './task-orders.ts';

const MAX_PAGE = 500;
const MAX_AT_ONCE = 1_000;
const POOL = [{ name: 'pool', doc: 'Id of the pool.', example: 'pvackvlwphqa22e2z733b' }];

export function parkedRoutes(plane: Plane): readonly Route[] {
  const look = { method: 'GET', role: 'viewer', onLeader: true } as const;
  const order = { method: 'POST', role: 'operator', onLeader: true, params: POOL } as const;
  const some = {
    task: { type: 'string', description: 'Only this one; absent: all, the oldest first.' },
    limit: { type: 'integer', minimum: 1, maximum: MAX_AT_ONCE, description: 'At most so many, usually 100.' },
    reason: REASON,
  };
  return [
    {
      ...look,
      path: '/v1/tasks/parked',
      summary: 'Pools that hold tasks and have nobody who works on them, or only agents that are drained.',
      answer: { status: 200, doc: 'With counts and the age of the oldest.' },
      handle: () => pools(plane, true),
    },
    {
      ...look,
      path: '/v1/tasks/parked/:pool',
      summary: 'The tasks that wait in one pool, the oldest first.',
      params: POOL,
      query: [
        { name: 'after', doc: 'Sequence after which to go on: `next` of the page before.' },
        { name: 'limit', doc: `At most so many; 1 to ${MAX_PAGE}, usually 100.` },
      ],
      answer: { status: 200, doc: '`next` is null when that was all.' },
      handle: (asked) => list(plane, asked),
    },
    {
      ...order,
      path: '/v1/tasks/parked/:pool/reroute',
      summary: 'Sends what is parked to another capability. Refused while anybody works on the pool.',
      body: {
        contentType: 'application/json',
        doc: 'Where to, which, and why.',
        schema: { type: 'object', properties: { capability: { type: 'string' }, ...some }, required: ['capability'] },
      },
      answer: { status: 200, doc: 'Which went, and which did not, with the reason.' },
      handle: (asked) => reroute(plane, asked),
    },
    {
      ...order,
      path: '/v1/tasks/parked/:pool/drop',
      summary: 'Takes what is parked out for good; the senders are told. Refused while anybody works on the pool.',
      body: { contentType: 'application/json', doc: 'Which, and why.', schema: { type: 'object', properties: some } },
      answer: { status: 200, doc: 'Which went, and which did not, with the reason.' },
      handle: (asked) => drop(plane, asked),
    },
    {
      ...look,
      path: '/v1/pools',
      summary: 'Every pool: who works on it, and what waits in it.',
      answer: { status: 200, doc: 'By id.' },
      handle: () => pools(plane, false),
    },
  ];
}

async function list(plane: Plane, { params, query }: Asked): Promise<Reply> {
  const limit = Number(query['limit'] ?? 100);
  if (!Number.isInteger(limit) || limit < 1 || limit > MAX_PAGE) return invalid(`limit must be a whole number from 1 to ${MAX_PAGE}`);
  const after = Number(query['after'] ?? 0);
  if (!Number.isSafeInteger(after) || after < 0) return invalid('after must be a sequence: 0 or more');
  const page = await (plane.leading as Leading).messages.parked.list(params['pool'] ?? '', after, limit);
  if (!('ok' in page)) return refusalOf(page);
  const answer: ParkedAnswer = { tasks: page.ok.tasks.map(taskView), next: page.ok.next };
  return json(answer);
}

async function reroute(plane: Plane, asked: Asked): Promise<Reply> {
  const read = orderIn(asked, ['capability']);
  if (read instanceof Refused) return read;
  const target = read.map['capability'];
  if (typeof target !== 'string' || target === '') return invalid('capability must say where they are to go, such as crm.order.query@^2');
  const { parked } = (plane.leading as Leading).messages;
  const done = await parked.reroute(read.pool, read.task, target, read.limit, asked.operator?.name ?? '');
  return handled(plane, asked, 'parked.reroute', read, { capability: target }, done);
}

async function drop(plane: Plane, asked: Asked): Promise<Reply> {
  const read = orderIn(asked, []);
  if (read instanceof Refused) return read;
  const done = await (plane.leading as Leading).messages.parked.drop(read.pool, read.task, read.limit, asked.operator?.name ?? '');
  return handled(plane, asked, 'parked.drop', read, {}, done);
}

interface ParkedOrder {
  readonly map: Readonly<Record<string, unknown>>;
  readonly pool: string;
  readonly task: string | null;
  readonly limit: number;
}

function orderIn(asked: Asked, keys: readonly string[]): ParkedOrder | Refused {
  const map = mapOf(asked, [...keys, 'task', 'limit']);
  if (map instanceof Refused) return map;
  const { task = null, limit = 100 } = map;
  if (task !== null && typeof task !== 'string') return invalid('task must be the id of one');
  if (typeof limit !== 'number' || !Number.isInteger(limit) || limit < 1 || limit > MAX_AT_ONCE)
    return invalid(`limit must be a whole number from 1 to ${MAX_AT_ONCE}`);
  return { map, pool: asked.params['pool'] ?? '', task, limit };
}

async function handled(
  plane: Plane,
  asked: Asked,
  what: string,
  { map, pool, task, limit }: ParkedOrder,
  more: object,
  done: Done<Handled>,
): Promise<Reply> {
  if (!('ok' in done)) return refusalOf(done);
  const answer: HandledAnswer = {
    done: done.ok.done,
    failed: done.ok.failed.map(({ task: id, why }) => ({ task_id: id, why })),
  };
  recordOrder(plane, asked, {
    what,
    target: pool,
    before: { task, limit, ...more },
    after: answer,
    reason: reasonIn(map),
  });
  return json(answer);
}

async function pools(plane: Plane, isParkedOnly: boolean): Promise<Reply> {
  const all = await (plane.leading as Leading).messages.waiting.all(isParkedOnly);
  if ('failed' in all) return unavailable(`the queue cannot be looked at: ${all.failed}`);
  const answer: PoolsAnswer = { pools: all.map((each) => poolView(each, plane.clock.wallMs())) };
  return json(answer);
}

function taskView({ seq, storedAtMs, envelope, payload }: ParkedTask): ParkedView {
  return {
    seq,
    task_id: envelope.task_id,
    message_type: envelope.message_type,
    capability: envelope.capability,
    version: envelope.version,
    source: envelope.source,
    lane: envelope.lane,
    rule: envelope.rule,
    tags: envelope.tags,
    since_ms: storedAtMs,
    payload_bytes: payload.length,
  };
}

function poolView(
  { id, pool, words, messages, lanes, agents, drained, sidecars, inHand, owners, oldestAtMs }: WaitingPool,
  nowMs: number,
): PoolView {
  return {
    pool: id,
    words,
    capability: pool?.capability ?? null,
    version: pool?.version ?? null,
    role: pool?.role ?? null,
    agent: pool?.agent ?? null,
    tags: pool?.tags ?? {},
    sticky: pool?.sticky ?? false,
    messages,
    lanes,
    in_hand: inHand,
    agents,
    drained,
    sidecars,
    owners,
    oldest_ms: oldestAtMs === null ? null : Math.max(0, Math.round(nowMs - oldestAtMs)),
  };
}
