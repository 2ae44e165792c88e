/**
 * Tasks that are kept for people, and what people do with them. Every action stands in the audit log
 * with what it was done to. Only the leader answers: it alone knows pools, and two people must not release one task at once.
 */
import { scrubbed } from '../../base/redact.ts';
import { codeEntry, isCode } from '../../proto/wire/codes.ts';
import type { Envelope } from '../../proto/wire/envelope.ts';
import type { KeptKind } from '../../proto/wire/messages.ts';
import type { Done } from '../messages/kept-desk.ts';
import { type Kept, KEPT_KINDS, traceIdOf } from '../messages/kept-entry.ts';
import type { Messages } from '../messages/messages.ts';
import type { Leading } from '../push/leading.ts';
import { recordOrder } from './audited.ts';
import type { Plane } from './plane.ts';
import { invalid, Refused } from './problem.ts';
import { type Asked, json, type Reply, type Route } from './route.ts';
import { mapOf, REASON, reasonIn, refusalOf } from './task-orders.ts';
import type { KeptAnswer, KeptShown, KeptView, MessageShown, PayloadAnswer, RedriveAnswer, TaskOrderAnswer } from './task-shapes.ts';

const MAX_PAGE = 500;
const MAX_REDRIVE = 1_000;

const TASK = [{ name: 'task', doc: 'Id of the task.', example: 'k3j9x0q2m4' }];

export function taskRoutes(plane: Plane): readonly Route[] {
  const look = { method: 'GET', role: 'viewer', onLeader: true } as const;
  const order = { method: 'POST', role: 'operator', onLeader: true } as const;
  const body = (properties: Readonly<Record<string, unknown>>, required: readonly string[] = []) =>
    ({
      contentType: 'application/json',
      doc: 'What is ordered, and why.',
      schema: { type: 'object', properties: { ...properties, reason: REASON }, required },
    }) as const;
  const capability = { type: 'string', description: 'Name or alias, with a range where one is wanted: `crm.order.query@^2`.' };
  return [
    {
      ...look,
      path: '/v1/tasks/kept',
      summary: 'What is kept for people: dead letters, tasks in doubt, tasks to be reviewed. The oldest first.',
      query: [
        { name: 'kind', doc: `${KEPT_KINDS.join(', ')}; absent: all.` },
        { name: 'capability', doc: 'Only of this one.' },
        { name: 'after', doc: 'Sequence after which to go on: `next` of the page before.' },
        { name: 'limit', doc: `At most so many; 1 to ${MAX_PAGE}, usually 100.` },
      ],
      answer: { status: 200, doc: '`next` is null when that was all.' },
      handle: (asked) => list(plane, asked),
    },
    {
      ...look,
      path: '/v1/tasks/kept/:task',
      summary: 'One of them with everything but its payload and what its headers say.',
      params: TASK,
      answer: { status: 200, doc: 'The newest entry of the task.' },
      handle: ({ params }) => show(plane, params['task'] ?? ''),
    },
    {
      ...look,
      role: 'operator',
      path: '/v1/tasks/kept/:task/payload',
      summary: 'Its payload and headers, which may hold what not everybody may see; that it was looked at stands in the audit log.',
      params: TASK,
      answer: { status: 200, doc: '`base64` are the bytes as the sender gave them.' },
      handle: (asked) => payload(plane, asked),
    },
    {
      ...order,
      path: '/v1/tasks/kept/:task/release',
      summary: 'Puts it back into the queue: a task in doubt may then be carried out a second time, on your word.',
      params: TASK,
      body: body({}),
      answer: { status: 200, doc: 'Where it went.' },
      handle: (asked) => act(plane, asked, 'task.release', [], (messages, task, who) => messages.kept.release(task, who)),
    },
    {
      ...order,
      path: '/v1/tasks/kept/:task/reroute',
      summary: 'Sends it to another capability.',
      params: TASK,
      body: body({ capability }, ['capability']),
      answer: { status: 200, doc: 'Where it went.' },
      handle: (asked) =>
        act(plane, asked, 'task.reroute', ['capability'], (messages, task, who, map) => {
          const target = map['capability'];
          return typeof target === 'string' && target !== ''
            ? messages.kept.reroute(task, target, who)
            : invalid('capability must say where it is to go, such as crm.order.query or crm.order.query@^2');
        }),
    },
    {
      ...order,
      path: '/v1/tasks/kept/:task/drop',
      summary: 'Takes it out for good.',
      params: TASK,
      body: body({}),
      answer: { status: 200, doc: 'What was dropped.' },
      handle: (asked) => act(plane, asked, 'task.drop', [], (messages, task, who) => messages.kept.drop(task, who)),
    },
    {
      ...order,
      path: '/v1/tasks/redrive',
      summary: 'Releases many at once: dead letters, or tasks to be reviewed. Those in doubt are released one by one.',
      body: body({
        kind: { enum: ['dead', 'review'] },
        capability,
        limit: { type: 'integer', minimum: 1, maximum: MAX_REDRIVE },
      }),
      answer: {
        status: 200,
        doc: 'How many went, and which did not, with the reason; `stopped`: why it did not look at all of them, null = it did.',
      },
      handle: (asked) => redrive(plane, asked),
    },
  ];
}

function messagesOf(plane: Plane): Messages {
  return (plane.leading as Leading).messages;
}

async function list(plane: Plane, { query }: Asked): Promise<Reply> {
  const kind = query['kind'] ?? null;
  if (kind !== null && !(KEPT_KINDS as readonly string[]).includes(kind)) return invalid(`kind must be one of ${KEPT_KINDS.join(', ')}`);
  const limit = Number(query['limit'] ?? 100);
  if (!Number.isInteger(limit) || limit < 1 || limit > MAX_PAGE) return invalid(`limit must be a whole number from 1 to ${MAX_PAGE}`);
  const after = Number(query['after'] ?? 0);
  if (!Number.isSafeInteger(after) || after < 0) return invalid('after must be a sequence: 0 or more');
  const page = await messagesOf(plane).kept.list(kind as KeptKind | null, query['capability'] ?? null, after, limit);
  if (!('ok' in page)) return refusalOf(page);
  const answer: KeptAnswer = { entries: page.ok.entries.map(viewOf), next: page.ok.next };
  return json(answer);
}

async function show(plane: Plane, task: string): Promise<Reply> {
  const found = await messagesOf(plane).kept.find(task);
  if (!('ok' in found)) return refusalOf(found);
  const { entry, envelope } = found.ok;
  const tries = entry.attempts.map((each) => ({ ...each, detail: scrubbed(each.detail) }));
  const answer: KeptShown = { ...viewOf(found.ok), tries, message: envelope === null ? null : messageShown(envelope) };
  return json(answer);
}

async function payload(plane: Plane, asked: Asked): Promise<Reply> {
  const found = await messagesOf(plane).kept.find(asked.params['task'] ?? '');
  if (!('ok' in found)) return refusalOf(found);
  audit(plane, asked, 'task.payload', found.ok, null, '');
  const { envelope, payload: bytes } = found.ok;
  const answer: PayloadAnswer = {
    content_type: envelope?.content_type ?? '',
    headers: envelope?.headers ?? {},
    base64: bytes.toString('base64'),
  };
  return json(answer);
}

type Act = (
  messages: Messages,
  task: string,
  who: string,
  map: Readonly<Record<string, unknown>>,
) =>
  | Promise<
      Done<{ readonly kept: Kept; readonly pool?: { readonly id: string; readonly capability: string; readonly version: string | null } }>
    >
  | Refused;

async function act(plane: Plane, asked: Asked, what: string, keys: readonly string[], order: Act): Promise<Reply> {
  const map = mapOf(asked, keys);
  if (map instanceof Refused) return map;
  const done = order(messagesOf(plane), asked.params['task'] ?? '', asked.operator?.name ?? '', map);
  if (done instanceof Refused) return done;
  const outcome = await done;
  if (!('ok' in outcome)) return refusalOf(outcome);
  const { kept, pool } = outcome.ok;
  const answer: TaskOrderAnswer = {
    task_id: kept.entry.task_id,
    kind: kept.entry.kind,
    capability: pool?.capability ?? kept.entry.capability,
    version: pool?.version ?? null,
    pool: pool?.id ?? null,
  };
  audit(plane, asked, what, kept, pool === undefined ? null : answer, reasonIn(map));
  return json(answer);
}

async function redrive(plane: Plane, asked: Asked): Promise<Reply> {
  const map = mapOf(asked, ['kind', 'capability', 'limit']);
  if (map instanceof Refused) return map;
  const { kind = 'dead', capability = null, limit = 100 } = map;
  if (kind !== 'dead' && kind !== 'review') return invalid('kind must be dead or review: tasks in doubt are released one by one');
  if (capability !== null && typeof capability !== 'string') return invalid('capability must be a name');
  if (typeof limit !== 'number' || !Number.isInteger(limit) || limit < 1 || limit > MAX_REDRIVE)
    return invalid(`limit must be a whole number from 1 to ${MAX_REDRIVE}`);
  const { kept } = messagesOf(plane);
  const who = asked.operator?.name ?? '';
  const failed: { task_id: string; why: string }[] = [];
  let redriven = 0;
  let stopped: string | null = null;
  let after = 0;
  while (redriven + failed.length < limit) {
    const page = await kept.list(kind, capability, after, Math.min(MAX_PAGE, limit - redriven - failed.length));
    if (!('ok' in page)) {
      if (redriven + failed.length === 0) return refusalOf(page);
      // What has been released is, and stands in the audit.
      stopped = page.why;
      break;
    }
    for (const { entry } of page.ok.entries) {
      const done = await kept.release(entry.task_id, who, true);
      if ('ok' in done) redriven++;
      else failed.push({ task_id: entry.task_id, why: done.why });
    }
    if (page.ok.next === null) break;
    after = page.ok.next;
  }
  recordOrder(plane, asked, {
    what: 'task.redrive',
    target: capability ?? '',
    before: { kind, limit },
    after: { redriven, failed: failed.length, ...(stopped === null ? null : { stopped }) },
    reason: reasonIn(map),
  });
  const answer: RedriveAnswer = { redriven, failed, stopped };
  return json(answer);
}

function audit(plane: Plane, asked: Asked, what: string, kept: Kept, after: unknown, reason: string): void {
  const { task_id, kind, capability, source, code } = kept.entry;
  const before = { kind, capability, source, code, trace_id: kept.envelope === null ? undefined : traceIdOf(kept.envelope) };
  recordOrder(plane, asked, { what, target: task_id, before, after, reason });
}

/** Field by field: what is new in a message is shown to nobody until somebody has thought about it. */
function messageShown(envelope: Envelope): MessageShown {
  return {
    message_type: envelope.message_type,
    source: envelope.source,
    home: envelope.home,
    in_reply_to: envelope.in_reply_to,
    target: envelope.target,
    capability: envelope.capability,
    version: envelope.version,
    pool: envelope.pool,
    lane: envelope.lane,
    tags: envelope.tags,
    sequence_id: envelope.sequence_id,
    retryable: envelope.retryable,
    expires_ms: envelope.expires_ms,
    deadline_ms: envelope.deadline_ms,
    timeout_ms: envelope.timeout_ms,
    traceparent: envelope.traceparent,
    path: envelope.path,
    content_type: envelope.content_type,
    rule: envelope.rule,
    accepted_at_ms: envelope.accepted_at_ms,
    headers: Object.keys(envelope.headers ?? {}),
  };
}

function viewOf({ seq, storedAtMs, entry, envelope, payload: bytes }: Kept): KeptView {
  return {
    seq,
    kind: entry.kind,
    task_id: entry.task_id,
    power_id: envelope?.power_id ?? '',
    capability: entry.capability,
    version: envelope?.version ?? null,
    source: entry.source,
    lane: envelope?.lane ?? null,
    pool: envelope?.pool ?? null,
    code: entry.code,
    name: isCode(entry.code) ? codeEntry(entry.code).name : '',
    cause: entry.cause,
    // A provider may repeat in its error what it was asked with; the payload is shown by an order of its own.
    detail: scrubbed(entry.detail),
    attempts: entry.attempts.length,
    rule: entry.rule,
    since_ms: storedAtMs,
    payload_bytes: bytes.length,
    content_type: envelope?.content_type ?? '',
  };
}
