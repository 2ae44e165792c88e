/**
 * Questions of sidecars about tasks and inboxes (`ctl.task`), answered from the streams: for what a home has forgotten, and
 * for what was acknowledged long ago. A sidecar may ask about agents that it hosts or that call through it, and the answer
 * goes to its own inbox only, which NATS permissions bind to it.
 */
import type { BusMessage } from '../../base/bus-message.ts';
import type { Stored } from '../../base/jetstream.ts';
import type { Failed } from '../../base/jetstream-api.ts';
import { isAgentId } from '../../proto/language/names.ts';
import { Code } from '../../proto/wire/codes.ts';
import { decodeEnvelope, MESSAGE_WIRE } from '../../proto/wire/envelope.ts';
import type { TaskAnswer, TaskAsk, TaskCursor, TaskEvent, TaskFound, TaskState } from '../../proto/wire/messages.ts';
import { INBOX_STREAM, TASK_STREAM } from '../../proto/wire/subjects.ts';
import { parse } from '../push/json.ts';
import { speakerProblem } from '../push/speaker.ts';
import { inboxPage } from './inbox-page.ts';
import type { KeptDesk } from './kept-desk.ts';
import type { MessageParts } from './parts.ts';
import type { PoolDesk } from './pool-desk.ts';

const MAX_ENTRIES = 200;
/** Base64 makes three bytes four, and a message holds a mebibyte. */
const MAX_BYTES = 524_288;
/** Of an agent's inbox and of a sidecar's waiting tasks, looked through in one go for one task: there are other things to do. */
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

  async answer(message: BusMessage): Promise<TaskAnswer> {
    const { data, reply } = message;
    const ask = parse(data) as TaskAsk | null;
    if (ask === null || typeof ask !== 'object' || ask.wire !== MESSAGE_WIRE)
      return refused(Code.invalid_request, 'the question cannot be read');
    const { sidecar, agent } = ask;
    if (typeof sidecar !== 'string' || typeof agent !== 'string' || !isAgentId(agent))
      return refused(Code.invalid_request, 'it names no sidecar or no agent');
    if (!reply.startsWith(`_INBOX.${sidecar}.`)) return refused(Code.forbidden, `the answer would not go to an inbox of ${sidecar}`);
    const stranger = speakerProblem(this.#parts.subjects, message, sidecar);
    if (stranger !== null) return refused(Code.forbidden, stranger);
    if (!this.#parts.registry().isHostedAt(sidecar, agent)) return refused(Code.forbidden, `${agent} is not at home with ${sidecar}`);
    if (ask.what === 'status') {
      if (typeof ask.task_id !== 'string' || !TASK.test(ask.task_id)) return refused(Code.invalid_request, 'it names no task');
      const from = ask.from ?? START;
      if (!isCursor(from)) return refused(Code.invalid_request, 'from must be what `more` was before');
      return this.#status(sidecar, agent, ask.task_id, from);
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
    const page = await inboxPage(bus, subjects, agent, limit + 1, Math.max(1, from));
    if ('failed' in page) return refused(Code.delivery_unavailable, page.failed);
    const entries: { seq: number; home: string; writer: string | null; data: string }[] = [];
    let bytes = 0;
    for (const { seq, subject, data } of page.slice(0, limit)) {
      bytes += data.length;
      if (bytes > MAX_BYTES && entries.length > 0) break;
      const { home = '', writer = null } = subjects.inboxPlace(subject) ?? {};
      entries.push({ seq, home, writer, data: data.toString('base64') });
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

  async #status(sidecar: string, agent: string, task: string, from: TaskCursor): Promise<TaskAnswer> {
    const looking = new Looking(this.#parts.clock.now() + SCAN_MS);
    let inbox = from.inbox;
    if (inbox >= 0) {
      const seen = await this.#inInbox(agent, task, inbox, looking);
      if (typeof seen === 'string') return refused(Code.delivery_unavailable, seen);
      if (seen.next !== null) return statusAnswer(seen.found, { inbox: seen.next, queue: seen.found === null ? from.queue : -1 });
      if (seen.found !== null || from.queue < 0) return statusAnswer(seen.found, null);
      const kept = await this.#amongKept(agent, task);
      if (typeof kept === 'string') return refused(Code.delivery_unavailable, kept);
      if (kept !== null) return statusAnswer(kept, null);
      inbox = -1;
    }
    if (from.queue < 0) return statusAnswer(null, null);
    const waits = await this.#waiting(sidecar, agent, task, from.queue, looking);
    if (typeof waits === 'string') return refused(Code.delivery_unavailable, waits);
    return statusAnswer(waits.found, waits.next === null ? null : { inbox, queue: waits.next });
  }

  /** Its final event. A sentence when that cannot be looked up. */
  async #inInbox(agent: string, task: string, from: number, looking: Looking): Promise<Seen | string> {
    const needle = `"task_id":"${task}"`;
    let found: TaskFound | null = null;
    const { bus, subjects } = this.#parts;
    const read = (at: number): Promise<Stored[] | Failed> => inboxPage(bus, subjects, agent, SCAN_PAGE, at);
    const next = await this.#scan(read, from, looking, (data) => {
      const at = data.indexOf(NEWLINE);
      const head = data.subarray(0, at < 0 ? data.length : at);
      if (!head.includes(needle)) return false;
      const event = parse(head) as TaskEvent | null;
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
      // A later one may say more: what was in doubt or dead and was sent out again has ended better.
      return !REVIVABLE.has(event.state);
    });
    return typeof next === 'string' ? next : { found, next };
  }

  async #amongKept(agent: string, task: string): Promise<TaskFound | string | null> {
    const found = await this.#kept.find(task);
    if (!('ok' in found)) return found.kind === 'absent' ? null : found.why;
    const { entry, envelope } = found.ok;
    if (entry.source !== agent) return null;
    const state = entry.kind === 'dead' ? 'dead_lettered' : entry.kind === 'in_doubt' ? 'in_doubt' : 'parked';
    return { state, capability: entry.capability, power_id: envelope?.power_id ?? '', event: null, result: null, kept: entry };
  }

  /** In the queue still. Only what this sidecar has sent is looked through. */
  async #waiting(sidecar: string, agent: string, task: string, from: number, looking: Looking): Promise<Seen | string> {
    const { bus, subjects } = this.#parts;
    let found: TaskFound | null = null;
    const needle = `"task_id":"${task}"`;
    const mine = `${subjects.tasks.slice(0, -1)}*.*.*.${sidecar}`;
    const read = (at: number): Promise<Stored[] | Failed> => bus.history(TASK_STREAM, mine, SCAN_PAGE, at);
    const next = await this.#scan(read, from, looking, (data) => {
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
    return typeof next === 'string' ? next : { found, next };
  }

  /** Looks at each until one is it. Null when that was all, or it is it; where to go on; a sentence when it cannot be looked at. */
  async #scan(
    read: (from: number) => Promise<Stored[] | Failed>,
    start: number,
    looking: Looking,
    look: (data: Buffer) => boolean,
  ): Promise<number | null | string> {
    const { clock } = this.#parts;
    let from = Math.max(1, start);
    while (looking.left > 0 && clock.now() < looking.until) {
      const page = await read(from);
      if ('failed' in page) return page.failed;
      for (const { seq, data } of page) {
        if (look(data)) return null;
        from = seq + 1;
      }
      if (page.length < SCAN_PAGE) return null;
      looking.left -= SCAN_PAGE;
    }
    return from;
  }
}

/** How much is looked through in one go. */
class Looking {
  left = SCAN;
  readonly until: number;
  constructor(until: number) {
    this.until = until;
  }
}

interface Seen {
  readonly found: TaskFound | null;
  /** Where to go on; null = there is nothing more to look at. */
  readonly next: number | null;
}

const START: TaskCursor = Object.freeze({ inbox: 0, queue: 0 });
const REVIVABLE: ReadonlySet<TaskState> = new Set(['dead_lettered', 'in_doubt', 'expired']);

function isCursor(from: unknown): from is TaskCursor {
  if (typeof from !== 'object' || from === null) return false;
  const { inbox, queue } = from as Partial<TaskCursor>;
  return Number.isSafeInteger(inbox) && Number.isSafeInteger(queue) && (inbox as number) >= -1 && (queue as number) >= -1;
}

function statusAnswer(found: TaskFound | null, more: TaskCursor | null): TaskAnswer {
  return { wire: MESSAGE_WIRE, ok: true, what: 'status', found, ...(more === null ? null : { more }) };
}

function refused(code: Code, why: string): TaskAnswer {
  return { wire: MESSAGE_WIRE, ok: false, code, why };
}
