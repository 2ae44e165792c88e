/**
 * Messages that go straight into an agent's inbox, for agents that are addressed by name and do not take messages as work: what is
 * written for the reader, and what the reader's sidecar tells the sender once it is there. No worker and no queue stands between.
 */
import { Code } from '../../proto/wire/codes.ts';
import { type Envelope, MESSAGE_WIRE } from '../../proto/wire/envelope.ts';
import type { InboxMessage, TaskEvent } from '../../proto/wire/messages.ts';

const NEWLINE = 0x0a;

export function encodeMail(envelope: Envelope, payload: Buffer): Buffer {
  const message: InboxMessage = {
    wire: MESSAGE_WIRE,
    kind: 'message',
    task_id: envelope.task_id,
    power_id: envelope.power_id,
    message_type: envelope.message_type,
    source: envelope.source,
    home: envelope.home,
    reply_to: envelope.reply_to,
    tags: envelope.tags,
    sequence_id: envelope.sequence_id,
    in_reply_to: envelope.in_reply_to,
    content_type: envelope.content_type,
    traceparent: envelope.traceparent,
    ...(envelope.home_statement === undefined ? null : { home_statement: envelope.home_statement }),
    accepted_at_ms: envelope.accepted_at_ms,
  };
  const head = Buffer.from(JSON.stringify(message), 'utf8');
  const all = Buffer.allocUnsafe(head.length + 1 + payload.length);
  head.copy(all);
  all[head.length] = NEWLINE;
  payload.copy(all, head.length + 1);
  return all;
}

/** @param isLetIn false = its sender may not write there, and the reader never sees it */
export function mailEvent(message: InboxMessage, reader: string, capability: string, isLetIn: boolean, wallMs: number): TaskEvent {
  const atMs = Math.round(wallMs);
  return {
    wire: MESSAGE_WIRE,
    kind: 'state',
    task_id: message.task_id,
    power_id: message.power_id,
    message_type: message.message_type,
    capability,
    state: isLetIn ? 'done' : 'failed',
    code: isLetIn ? Code.ok : Code.forbidden,
    cause: isLetIn ? 'inbox' : '',
    detail: isLetIn ? `it lies in the inbox of ${reader}` : `${message.source} may not write to ${reader}: it may ask it for nothing`,
    by: isLetIn ? reader : '',
    version: '',
    attempts: 0,
    at_ms: atMs,
    received_at_ms: 0,
    status: 0,
    content_type: '',
    replay: false,
    trace_id: typeof message.traceparent === 'string' ? message.traceparent.slice(3, 35) : '',
    ...(typeof message.traceparent === 'string' ? { traceparent: message.traceparent } : null),
  };
}
