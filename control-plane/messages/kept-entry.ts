/** An entry of AR_DLQ as it is stored: a line about why it is kept, then the message as it stood in the queue. Reading and writing; nothing is decided. */
import type { Stored } from '../../base/jetstream.ts';
import { decodeEnvelope, type Envelope, MESSAGE_WIRE } from '../../proto/wire/envelope.ts';
import type { KeptEntry, KeptKind, TaskEvent, TaskState } from '../../proto/wire/messages.ts';

const NEWLINE = 0x0a;

export const KEPT_KINDS: readonly KeptKind[] = ['dead', 'in_doubt', 'review'];

export interface Kept {
  readonly seq: number;
  /** The server's time of storing it. */
  readonly storedAtMs: number;
  readonly entry: KeptEntry;
  /** null = the message cannot be read by this version. */
  readonly envelope: Envelope | null;
  readonly payload: Buffer;
}

/** Null when it is none. */
export function readKept({ seq, data, timestampMs }: Stored): Kept | null {
  const at = data.indexOf(NEWLINE);
  if (at < 0) return null;
  let entry: KeptEntry;
  try {
    entry = JSON.parse(data.toString('utf8', 0, at)) as KeptEntry;
  } catch {
    return null;
  }
  if (typeof entry !== 'object' || entry === null) return null;
  if (entry.wire !== MESSAGE_WIRE || typeof entry.task_id !== 'string' || !KEPT_KINDS.includes(entry.kind)) return null;
  // Whoever may write here may leave out what everybody reads.
  if (!Array.isArray(entry.attempts)) entry = { ...entry, attempts: [] };
  if (typeof entry.detail !== 'string') entry = { ...entry, detail: '' };
  const message = decodeEnvelope(data.subarray(at + 1));
  return { seq, storedAtMs: timestampMs, entry, envelope: message?.envelope ?? null, payload: message?.payload ?? Buffer.alloc(0) };
}

/** What the control plane itself has to say of a task. */
export function eventOf(envelope: Envelope, state: TaskState, code: number, cause: string, detail: string, atMs: number): TaskEvent {
  return {
    wire: MESSAGE_WIRE,
    kind: 'state',
    task_id: envelope.task_id,
    power_id: envelope.power_id,
    message_type: envelope.message_type,
    capability: envelope.capability,
    state,
    code,
    cause,
    detail,
    by: '',
    version: '',
    attempts: 0,
    at_ms: atMs,
    received_at_ms: 0,
    status: 0,
    content_type: '',
    replay: false,
    trace_id: traceIdOf(envelope),
    traceparent: envelope.traceparent,
  };
}

/** '' = it has none: whoever writes to a stream may leave out what he likes. */
export function traceIdOf({ traceparent }: { readonly traceparent?: unknown }): string {
  return typeof traceparent === 'string' ? (traceparent.split('-')[1] ?? '') : '';
}

/** When its time is over, as the server counts; null = it does not say. */
export function endsAt({ expires_ms }: Envelope, storedAtMs: number): number | null {
  return Number.isFinite(expires_ms) ? storedAtMs + expires_ms : null;
}

/** A state as it lies in an inbox: without a result. */
export function eventLine(event: TaskEvent): Buffer {
  return Buffer.from(`${JSON.stringify(event)}\n`, 'utf8');
}

export interface ClaimHead {
  /** executing, done, released or unknown; `unreadable` when it says nothing. */
  readonly state: string;
  /** How long an executing one holds from when it was stored, if it is not extended. */
  readonly leaseMs: number;
  /** Whose it is; '' = it does not say. */
  readonly task: string;
  /** Of one in doubt: a person has dropped it. The key is free for orders of people, and for nobody else. */
  readonly isDecided: boolean;
}

/** What the head of a claim says. */
export function claimHead(record: Buffer): ClaimHead {
  const at = record.indexOf(NEWLINE);
  try {
    const head = JSON.parse(record.toString('utf8', 0, at < 0 ? record.length : at)) as {
      readonly state?: unknown;
      readonly lease_ms?: unknown;
      readonly task?: unknown;
      readonly decided?: unknown;
    };
    return {
      state: typeof head.state === 'string' ? head.state : 'unreadable',
      leaseMs: typeof head.lease_ms === 'number' ? head.lease_ms : 0,
      task: typeof head.task === 'string' ? head.task : '',
      isDecided: head.decided === true,
    };
  } catch {
    return { state: 'unreadable', leaseMs: 0, task: '', isDecided: false };
  }
}
