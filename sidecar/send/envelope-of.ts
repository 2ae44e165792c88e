/**
 * A submission and what was decided about it to the envelope that travels. What is stamped stands here and nowhere else, so
 * that nothing an agent writes can take its place.
 */
import { hash } from 'node:crypto';
import { type Envelope, type Lane, MESSAGE_WIRE } from '../../proto/wire/envelope.ts';
import { Header } from '../../proto/wire/headers.ts';
import { formatTraceparent } from '../../proto/wire/trace-context.ts';
import type { Call } from '../call/call.ts';
import type { MessageSettings } from '../messages-config.ts';
import { forwardRequestHeaders } from '../transports/hygiene.ts';
import type { Submission } from './door.ts';
import type { SendPool } from './pools.ts';

/** What was decided. */
export interface Decided {
  readonly pool: SendPool;
  readonly lane: Lane;
  readonly rule: string | null;
  readonly stickyKey: string | null;
}

export interface Stamp {
  readonly taskId: string;
  readonly home: string;
  readonly wallMs: number;
  readonly spanId: string;
  /** That the sender is at home here; null = there is none. */
  readonly statement: string | null;
}

const NO_PATH: readonly string[] = Object.freeze([]);
const NO_NAMES: readonly string[] = Object.freeze([]);
const NO_HEADERS: Readonly<Record<string, string>> = Object.freeze({});
/** Ours, and meant for the call that the message becomes. */
const MEANT_FOR_WORK: readonly string[] = [Header.affinity, Header.execution];
/** About the connection, or about an answer that nobody waits for. */
const NOT_OF_A_MESSAGE: ReadonlySet<string> = new Set([
  'accept',
  'accept-language',
  'user-agent',
  'origin',
  'referer',
  Header.idempotencyKey,
]);

/** The headers that the worker may see; or the words of a refusal. */
export function passedOn(submission: Submission): Readonly<Record<string, string>> | string {
  const flat: string[] = [];
  const problem = forwardRequestHeaders(submission.headers, NO_NAMES, NOT_OF_A_MESSAGE, flat);
  if (problem !== '') return problem;
  let kept: Record<string, string> | null = null;
  for (let i = 0; i < flat.length; i += 2) {
    kept ??= {};
    const name = flat[i] as string;
    const before = Object.hasOwn(kept, name) ? kept[name] : undefined;
    kept[name] = before === undefined ? (flat[i + 1] as string) : `${before}, ${flat[i + 1] as string}`;
  }
  for (const name of MEANT_FOR_WORK) {
    const value = submission.headers[name];
    if (typeof value === 'string') (kept ??= {})[name] = value;
  }
  return kept ?? NO_HEADERS;
}

/** @param call what the stages made of it: capability, version, execution, trace, path. */
export function envelopeOf(
  submission: Submission,
  call: Call,
  { pool: { pool }, lane, rule, stickyKey }: Decided,
  stamp: Stamp,
  headers: Readonly<Record<string, string>>,
  settings: MessageSettings,
): Envelope {
  const source = submission.principal.agent;
  const messageType = submission.messageType ?? TASK_REQUEST;
  const { key } = submission;
  return {
    wire: MESSAGE_WIRE,
    task_id: stamp.taskId,
    power_id: key ?? `${source}:${stamp.taskId}:${stamp.wallMs}`,
    keyed: key !== null,
    message_type: messageType,
    source,
    home: stamp.home,
    reply_to: submission.replyTo === 'inbox' ? source : null,
    in_reply_to: submission.inReplyTo,
    target: submission.target,
    capability: pool.capability,
    version: pool.version,
    pool: pool.id,
    lane,
    tags: submission.tags,
    sequence_id: submission.sequenceId,
    ...(stickyKey === null ? null : { sticky_key: stickyKey }),
    retryable: submission.retryable,
    expires_ms: submission.expiresMs ?? settings.expiresMs,
    deadline_ms: submission.deadlineMs,
    timeout_ms: timeoutOf(messageType, settings),
    traceparent: formatTraceparent(call.traceId, stamp.spanId, call.traceFlags),
    tracestate: call.traceState,
    ...(call.parentSpanId === '' ? null : { sent_in: call.parentSpanId }),
    path: call.path.length === 0 ? NO_PATH : call.path,
    content_type: submission.contentType,
    headers,
    rule,
    payload_hash: key !== null || call.execution !== 'idempotent' ? hash('sha256', submission.payload, 'base64url') : '',
    ...(stamp.statement === null ? null : { home_statement: stamp.statement }),
    accepted_at_ms: stamp.wallMs,
  };
}

export const TASK_REQUEST = 'task_request';

function timeoutOf(messageType: string, { timeouts }: MessageSettings): number {
  if (messageType === TASK_REQUEST) return timeouts.taskRequestMs;
  return messageType === 'health_check' ? timeouts.healthCheckMs : timeouts.otherMs;
}
