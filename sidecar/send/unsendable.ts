/**
 * A message that was accepted and that the stream will never take: NATS takes less now than it did then, or does not permit its
 * subject. Its sender is told that it has failed, as of any other end; its bytes are kept by whoever gives it up.
 */
import { Code } from '../../proto/wire/codes.ts';
import { decodeEnvelope, type Envelope, MESSAGE_CAPABILITY, MESSAGE_WIRE } from '../../proto/wire/envelope.ts';
import type { TaskEvent } from '../../proto/wire/messages.ts';

const NEWLINE = 0x0a;

/** What no repeat will change while the server is the same. */
export function isTooLarge(failed: string): boolean {
  return failed.includes('the server takes');
}

/** What no repeat will change until permissions do. */
export function isDenied(failed: string): boolean {
  return failed.includes('no permission');
}

interface Unsendable {
  readonly event: TaskEvent;
  readonly source: string;
  /** null = nobody wants to hear of it. */
  readonly replyTo: string | null;
}

/** null = no message of ours can be read in it. @param data as it was to be stored, also with an entry for people before it */
export function unsendable(data: Buffer, why: string, wallMs: number): Unsendable | null {
  const envelope = envelopeIn(data);
  if (envelope === null) return null;
  const event: TaskEvent = {
    wire: MESSAGE_WIRE,
    kind: 'state',
    task_id: envelope.task_id,
    power_id: envelope.power_id,
    message_type: envelope.message_type,
    capability: envelope.capability ?? MESSAGE_CAPABILITY,
    state: 'failed',
    code: isTooLarge(why) ? Code.payload_too_large : Code.delivery_unavailable,
    cause: 'unsendable',
    detail: `it was accepted onto the disk, and cannot be sent: ${why}`,
    by: '',
    version: '',
    attempts: 0,
    at_ms: Math.round(wallMs),
    received_at_ms: 0,
    status: 0,
    content_type: '',
    replay: false,
    trace_id: envelope.traceparent.slice(3, 35),
    traceparent: envelope.traceparent,
  };
  return { event, source: envelope.source, replyTo: envelope.reply_to };
}

/** The envelope in what was to be stored: a message, or one with an entry for people before it; null = there is none. */
export function envelopeIn(data: Buffer): Envelope | null {
  const first = decodeEnvelope(data);
  if (first === null) return null;
  if (typeof first.envelope.power_id === 'string' && typeof first.envelope.traceparent === 'string') return first.envelope;
  return data.indexOf(NEWLINE) < 0 ? null : (decodeEnvelope(first.payload)?.envelope ?? null);
}
