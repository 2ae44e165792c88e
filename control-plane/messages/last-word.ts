/**
 * What is said of a task whose time is over and that no worker takes: the same that a worker would say who found it so. Its key
 * is looked at first, since it may have been carried out, or begun, by somebody who is gone: what was recorded is told, what
 * was begun and may be started only once is in doubt, and the rest is expired. A claim that lapsed is freed before, so that
 * whoever had it cannot record anything any more. Told under the same ids as a worker tells, so that both at once are one.
 */
import type { Stored } from '../../base/jetstream.ts';
import { Code } from '../../proto/wire/codes.ts';
import { encodeEnvelope, type Envelope, MESSAGE_WIRE } from '../../proto/wire/envelope.ts';
import { ledgerKey } from '../../proto/wire/ledger-key.ts';
import type { KeptEntry, TaskEvent, TaskState } from '../../proto/wire/messages.ts';
import { INBOX_STREAM, KEPT_STREAM, LEDGER_STREAM } from '../../proto/wire/subjects.ts';
import { encode } from '../push/json.ts';
import { eventLine, eventOf } from './kept-entry.ts';
import type { MessageParts } from './parts.ts';

/** Of the streams' headers, at most. */
const HEADER_BYTES = 512;
/** The lease is over for certain: stamps of one clock are compared, and the server's time is known a little late. */
const LEASE_SLACK_MS = 1_000;
const NEWLINE = 0x0a;

/** `told`: it has ended, and may be taken out of the queue. `later`: somebody may have it still. Else why it could not be told. */
export type LastWord = 'told' | 'later' | { readonly failed: string };

export interface Overdue {
  readonly seq: number;
  readonly envelope: Envelope;
  readonly payload: Buffer;
}

/** What the record of a key says. */
interface Head {
  readonly state: string;
  readonly task: string;
  readonly worker: string;
  readonly execution: string;
  readonly ended: boolean;
  readonly tries: number;
  readonly leaseMs: number;
  readonly result: Readonly<Record<string, unknown>>;
}

export async function lastWord(parts: MessageParts, overdue: Overdue, serverMs: number, cause: string): Promise<LastWord> {
  const { envelope } = overdue;
  const { source, capability, keyed, power_id, task_id } = envelope;
  const subject = parts.subjects.idem(ledgerKey(source, capability, keyed ? power_id : task_id));
  const record = await parts.bus.lastAtLeader(LEDGER_STREAM, subject);
  if (record === null) return await expired(parts, overdue, 0, cause);
  if ('failed' in record) return record;
  const head = headOf(record.data);
  if (head === null) return await inDoubt(parts, overdue, 0, 'the record of its key cannot be read', true);
  const isOwn = head.task === task_id;
  switch (head.state) {
    case 'released':
      // Its sender has been told already.
      if (head.ended && isOwn) return 'told';
      return await expired(parts, overdue, head.tries, cause);
    case 'done':
      return await replay(parts, overdue, head, record.data);
    case 'executing':
      return await begun(parts, overdue, record, head, serverMs, cause);
    default:
      return await inDoubt(parts, overdue, head.tries, `${head.worker} vanished after it got the task`, isOwn);
  }
}

async function begun(
  parts: MessageParts,
  overdue: Overdue,
  record: Stored,
  head: Head,
  serverMs: number,
  cause: string,
): Promise<LastWord> {
  if (record.timestampMs + head.leaseMs + LEASE_SLACK_MS > serverMs) return 'later';
  const isOwn = head.task === overdue.envelope.task_id;
  const words = `${head.worker} vanished after it got the task`;
  if (head.execution === 'once') {
    if (isOwn && !(await rewrite(parts, record, { state: 'unknown', detail: words }))) return 'later';
    return await inDoubt(parts, overdue, head.tries, words, isOwn);
  }
  if (isOwn && !(await rewrite(parts, record, { state: 'released' }))) return 'later';
  return await expired(parts, overdue, head.tries, cause);
}

/** False when somebody else has written meanwhile, or it cannot be written. The record is one that can be read. */
export async function rewrite({ bus, random }: MessageParts, { subject, seq, data }: Stored, change: object): Promise<boolean> {
  const at = data.indexOf(NEWLINE);
  const line = JSON.parse(data.toString('utf8', 0, at < 0 ? data.length : at)) as object;
  // Another writer than the one of before: whoever had the claim must see that it is not its own.
  const nonce = `leader${Math.floor(random.next() * 2 ** 48).toString(36)}`;
  const text = `${JSON.stringify({ ...line, room: undefined, nonce, step: 1, ...change })}\n`;
  const written = await bus.append(subject, Buffer.from(text, 'utf8'), { stream: LEDGER_STREAM, expectLastSubjectSeq: seq });
  return 'seq' in written;
}

export async function expired(parts: MessageParts, overdue: Overdue, tries: number, cause: string): Promise<LastWord> {
  const detail = `nobody took it within ${overdue.envelope.expires_ms} ms`;
  return await tell(parts, overdue, { state: 'expired', code: Code.expired, cause, detail, attempts: tries });
}

async function replay(parts: MessageParts, overdue: Overdue, { result, tries }: Head, record: Buffer): Promise<LastWord> {
  const code = whole(result['code']);
  const leftOut = whole(result['left_out']);
  const body = record.subarray(record.indexOf(NEWLINE) + 1);
  return await tell(
    parts,
    overdue,
    {
      state: code === 0 && leftOut === 0 ? 'done' : 'failed',
      code: leftOut > 0 && code === 0 ? Code.response_too_large : code,
      detail: leftOut > 0 ? `the result had ${leftOut} bytes and was not kept` : text(result['detail']),
      by: text(result['provider']),
      version: text(result['version']),
      status: whole(result['status']),
      content_type: text(result['content_type']),
      attempts: tries,
      replay: true,
    },
    body,
  );
}

/** @param isOwn this task is the one that nobody knows about; else one of the same key is */
async function inDoubt(parts: MessageParts, overdue: Overdue, tries: number, words: string, isOwn: boolean): Promise<LastWord> {
  const { envelope, payload, seq } = overdue;
  const { bus, subjects, clock } = parts;
  if (isOwn) {
    const entry: KeptEntry = {
      wire: MESSAGE_WIRE,
      kind: 'in_doubt',
      task_id: envelope.task_id,
      capability: envelope.capability,
      source: envelope.source,
      code: Code.in_doubt,
      cause: 'worker_vanished',
      detail: words,
      attempts: [],
      since_ms: Math.round(clock.wallMs()),
      rule: envelope.rule,
    };
    const head = Buffer.from(`${JSON.stringify(entry)}\n`, 'utf8');
    const whole = Buffer.concat([head, encodeEnvelope(envelope, payload)]);
    const kept = await bus.append(
      subjects.kept('in_doubt', envelope.task_id),
      whole.length + HEADER_BYTES > bus.maxPayload ? head : whole,
      { stream: KEPT_STREAM, msgId: `${envelope.task_id}.in_doubt.${seq}` },
    );
    if (!('seq' in kept)) return { failed: 'failed' in kept ? kept.failed : 'what is kept for people cannot be written' };
  }
  const detail = isOwn ? words : `another task with the same key is in doubt: ${words}`;
  return await tell(parts, overdue, { state: 'in_doubt', code: Code.in_doubt, cause: 'worker_vanished', detail, attempts: tries });
}

async function tell(
  parts: MessageParts,
  { envelope, seq }: Overdue,
  told: Partial<TaskEvent> & { readonly state: TaskState },
  body: Buffer = Buffer.alloc(0),
): Promise<LastWord> {
  const { bus, subjects, clock } = parts;
  let event: TaskEvent = { ...eventOf(envelope, told.state, told.code ?? 0, told.cause ?? '', told.detail ?? '', clock.wallMs()), ...told };
  if (envelope.reply_to === null) {
    bus.publish(subjects.note(envelope.home), encode(event));
    return 'told';
  }
  let data: Buffer = Buffer.concat([eventLine(event), body]);
  if (data.length + HEADER_BYTES > bus.maxPayload) {
    const detail = `it was carried out; its result of ${body.length} bytes is more than the bus takes, and is left out`;
    event = { ...event, state: event.state === 'done' ? 'failed' : event.state, code: Code.response_too_large, detail, content_type: '' };
    data = eventLine(event);
  }
  const msgId = event.state === 'done' ? `${envelope.task_id}.done` : `${envelope.task_id}.${event.state}.${seq}`;
  const stored = await bus.append(subjects.inbox(envelope.home, envelope.reply_to), data, { stream: INBOX_STREAM, msgId });
  return 'seq' in stored ? 'told' : { failed: 'failed' in stored ? stored.failed : 'the sender’s inbox refused it' };
}

function headOf(record: Buffer): Head | null {
  const at = record.indexOf(NEWLINE);
  try {
    const line = JSON.parse(record.toString('utf8', 0, at < 0 ? record.length : at)) as Readonly<Record<string, unknown>>;
    const result = line['result'];
    return {
      state: text(line['state']),
      task: text(line['task']),
      worker: text(line['worker']),
      execution: text(line['execution']),
      ended: line['ended'] === true,
      tries: whole(line['tries']),
      leaseMs: whole(line['lease_ms']),
      result: typeof result === 'object' && result !== null ? (result as Readonly<Record<string, unknown>>) : {},
    };
  } catch {
    return null;
  }
}

function text(value: unknown): string {
  return typeof value === 'string' ? value : '';
}

function whole(value: unknown): number {
  return typeof value === 'number' && Number.isSafeInteger(value) && value >= 0 ? value : 0;
}
