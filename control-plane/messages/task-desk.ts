/**
 * Questions of sidecars about tasks and inboxes (`ctl.task`), answered from the streams: for what a home has forgotten, and
 * for what was acknowledged long ago. A sidecar may ask about agents that it hosts or that call through it, and the answer
 * goes to its own inbox only, which NATS permissions bind to it.
 */
import { isAgentId } from '../../proto/language/names.ts';
import { Code } from '../../proto/wire/codes.ts';
import { decodeEnvelope, MESSAGE_WIRE } from '../../proto/wire/envelope.ts';
import type { TaskAnswer, TaskAsk, TaskEvent, TaskFound } from '../../proto/wire/messages.ts';
import { INBOX_STREAM, TASK_STREAM } from '../../proto/wire/subjects.ts';
import { parse } from '../push/json.ts';
import type { KeptDesk } from './kept-desk.ts';
import type { MessageParts } from './parts.ts';
import type { PoolDesk } from './pool-desk.ts';

const MAX_ENTRIES = 200;
/** Base64 makes three bytes four, and a message holds a mebibyte. */
const MAX_BYTES = 524_288;
/** Of an agent's inbox, or of a sidecar's waiting tasks, looked through for one task. */
const SCAN = 2_000;
const SCAN_PAGE = 100;
const SCAN_MS = 1_500;
const TASK = /^[a-z0-9]{8,40}$/;
const NEWLINE = 0x0a;

export class TaskDesk {
  readonly #parts: MessageParts;
  readonly #kept: KeptDesk;
  readonly #pools: PoolDesk;

  constructor(parts: MessageParts, kept: KeptDesk, pools: PoolDesk) {
    this.#parts = parts;
    this.#kept = kept;
    this.#pools = pools;
  }

  /** @param reply where the answer goes. */
  async answer(data: Buffer, reply: string): Promise<TaskAnswer> {
    const ask = parse(data) as TaskAsk | null;
    if (ask === null || typeof ask !== 'object' || ask.wire !== MESSAGE_WIRE)
      return refused(Code.invalid_request, 'the question cannot be read');
    const { sidecar, agent } = ask;
    if (typeof sidecar !== 'string' || typeof agent !== 'string' || !isAgentId(agent))
      return refused(Code.invalid_request, 'it names no sidecar or no agent');
    if (!reply.startsWith(`_INBOX.${sidecar}.`)) return refused(Code.forbidden, `the answer would not go to an inbox of ${sidecar}`);
    if (!this.#parts.registry().isHostedAt(sidecar, agent)) return refused(Code.forbidden, `${agent} is not at home with ${sidecar}`);
    if (ask.what === 'status') {
      if (typeof ask.task_id !== 'string' || !TASK.test(ask.task_id)) return refused(Code.invalid_request, 'it names no task');
      return this.#status(sidecar, agent, ask.task_id);
    }
    if (ask.what === 'inbox') {
      const { from, limit } = ask;
      if (!Number.isSafeInteger(from) || from < 0 || !Number.isSafeInteger(limit) || limit < 1)
        return refused(Code.invalid_request, 'from and limit must be whole numbers');
      return this.#inbox(agent, from, Math.min(limit, MAX_ENTRIES));
    }
    return refused(Code.invalid_request, 'it asks for neither status nor inbox');
  }

  async #inbox(agent: string, from: number, limit: number): Promise<TaskAnswer> {
    const { bus, subjects } = this.#parts;
    const facts = await bus.stream(INBOX_STREAM);
    if (facts === null || 'failed' in facts)
      return refused(Code.delivery_unavailable, facts === null ? 'there are no inboxes yet' : facts.failed);
    // One more, to know whether that was all.
    const page = await bus.history(INBOX_STREAM, subjects.inbox('*', agent), limit + 1, Math.max(1, from));
    if ('failed' in page) return refused(Code.delivery_unavailable, page.failed);
    const start = subjects.inboxes.length - 1;
    const entries: { seq: number; home: string; data: string }[] = [];
    let bytes = 0;
    for (const { seq, subject, data } of page.slice(0, limit)) {
      bytes += data.length;
      if (bytes > MAX_BYTES && entries.length > 0) break;
      entries.push({ seq, home: subject.slice(start, subject.indexOf('.', start)), data: data.toString('base64') });
    }
    return {
      wire: MESSAGE_WIRE,
      ok: true,
      what: 'inbox',
      entries,
      more: entries.length < page.length,
      first: facts.firstSeq,
      last: facts.lastSeq,
    };
  }

  async #status(sidecar: string, agent: string, task: string): Promise<TaskAnswer> {
    const found = (await this.#inInbox(agent, task)) ?? (await this.#amongKept(agent, task)) ?? (await this.#waiting(sidecar, agent, task));
    return typeof found === 'string' ? refused(Code.delivery_unavailable, found) : { wire: MESSAGE_WIRE, ok: true, what: 'status', found };
  }

  /** Its final event. A sentence when that cannot be looked up. */
  async #inInbox(agent: string, task: string): Promise<TaskFound | string | null> {
    const needle = `"task_id":"${task}"`;
    let found: TaskFound | null = null;
    const problem = await this.#scan(INBOX_STREAM, this.#parts.subjects.inbox('*', agent), (data) => {
      const at = data.indexOf(NEWLINE);
      const head = data.toString('utf8', 0, at < 0 ? data.length : at);
      if (!head.includes(needle)) return false;
      const event = parse(Buffer.from(head, 'utf8')) as TaskEvent | null;
      if (event === null || event.kind !== 'state' || event.task_id !== task) return false;
      const body = at < 0 ? null : data.subarray(at + 1);
      found = {
        state: event.state,
        capability: event.capability,
        power_id: event.power_id,
        event,
        result: body === null || body.length === 0 || body.length > MAX_BYTES ? null : body.toString('base64'),
        kept: null,
      };
      // A later one may say more: a dead letter that was sent out again has ended better.
      return false;
    });
    return found ?? problem;
  }

  async #amongKept(agent: string, task: string): Promise<TaskFound | string | null> {
    const found = await this.#kept.find(task);
    if (!('ok' in found)) return found.kind === 'absent' ? null : found.why;
    const { entry, envelope } = found.ok;
    if (entry.source !== agent) return null;
    const state = entry.kind === 'dead' ? 'dead_lettered' : entry.kind === 'in_doubt' ? 'in_doubt' : 'parked';
    return { state, capability: entry.capability, power_id: envelope?.power_id ?? '', event: null, result: null, kept: entry };
  }

  /** In the queue still. Only what this sidecar has sent is looked through, and not without end. */
  async #waiting(sidecar: string, agent: string, task: string): Promise<TaskFound | string | null> {
    const { subjects } = this.#parts;
    let found: TaskFound | null = null;
    const needle = `"task_id":"${task}"`;
    const mine = `${subjects.tasks.slice(0, -1)}*.*.*.${sidecar}`;
    const problem = await this.#scan(TASK_STREAM, mine, (data) => {
      const at = data.indexOf(NEWLINE);
      if (at < 0 || !data.subarray(0, at).includes(needle)) return false;
      const envelope = decodeEnvelope(data)?.envelope;
      if (envelope === undefined || envelope.task_id !== task || envelope.source !== agent) return false;
      const hasWorkers = (this.#pools.book.get(envelope.pool)?.workers.size ?? 0) > 0;
      found = {
        state: hasWorkers ? 'waiting' : 'parked',
        capability: envelope.capability,
        power_id: envelope.power_id,
        event: null,
        result: null,
        kept: null,
      };
      return true;
    });
    return found ?? problem;
  }

  /** Looks at each until one is it. A sentence when it could not look at all of them. */
  async #scan(stream: string, pattern: string, look: (data: Buffer) => boolean): Promise<string | null> {
    const { bus, clock } = this.#parts;
    const until = clock.now() + SCAN_MS;
    let from = 1;
    for (let looked = 0; looked < SCAN && clock.now() < until; looked += SCAN_PAGE) {
      const page = await bus.history(stream, pattern, SCAN_PAGE, from);
      if ('failed' in page) return page.failed;
      for (const { seq, data } of page) {
        if (look(data)) return null;
        from = seq + 1;
      }
      if (page.length < SCAN_PAGE) return null;
    }
    return null;
  }
}

function refused(code: Code, why: string): TaskAnswer {
  return { wire: MESSAGE_WIRE, ok: false, code, why };
}
