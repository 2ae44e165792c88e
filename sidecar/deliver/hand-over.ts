/**
 * A message as a call, and what a finished call says of it. The call goes through the provider's end of the pipeline like any
 * other (ACL, overrides, contract, slots, loops): being in the queue gives a message no rights. What the sender's sidecar has
 * stamped stands for what a peer's headers say of a call.
 */
import type { Clock } from '../../base/clock.ts';
import type { Random } from '../../base/random.ts';
import type { Execution } from '../../proto/language/types.ts';
import { Code } from '../../proto/wire/codes.ts';
import type { Envelope } from '../../proto/wire/envelope.ts';
import { Header } from '../../proto/wire/headers.ts';
import { readTraceContext } from '../../proto/wire/trace-context.ts';
import type { Started } from '../call/attempt-record.ts';
import { Call } from '../call/call.ts';
import { Principal } from '../call/principal.ts';
import { NO_BODY } from '../call/reply.ts';
import { detailOf } from '../call/result.ts';
import type { Version } from '../table/snapshot.ts';
import type { WorkReport } from './door.ts';

/** What the total has beyond the time of one try, where the sender set none: the try is to be what runs out. */
const SLACK_MS = 1_000;

/** @param via sidecar that stamped it: the last token of the subject, which the bus binds to its owner. @param leftMs of the task's working time, null = not limited @param spanId of the delivery; '' = no traces are made */
export function callFor(
  envelope: Envelope,
  payload: Buffer,
  via: string,
  leftMs: number | null,
  storedAtMs: number,
  clock: Clock,
  random: Random,
  spanId: string,
): Call {
  const headers: Record<string, string> = { ...envelope.headers };
  headers[Header.powerId] = envelope.power_id;
  if (envelope.sequence_id !== null) headers[Header.sequenceId] = envelope.sequence_id;
  if (envelope.path.length !== 0) headers[Header.path] = envelope.path.join(', ');
  const call = new Call('message', envelope.capability, headers, payload, envelope.content_type, false, clock);
  call.principal = new Principal(envelope.source, via);
  call.statement = envelope.home_statement ?? null;
  call.storedAtMs = storedAtMs;
  call.about = aboutOf(envelope);
  call.attemptMs = envelope.timeout_ms;
  call.totalMs = leftMs ?? envelope.timeout_ms + SLACK_MS;
  readTraceContext(call, envelope.traceparent, envelope.tracestate === '' ? undefined : envelope.tracestate, random);
  if (spanId !== '') call.parentSpanId = spanId;
  return call;
}

/** What an agent has to know of a message beside its payload: by its id it is extended and ended, and the rest is the sender's word. */
function aboutOf({ task_id: taskId, message_type: messageType, in_reply_to: inReplyTo, tags, lane }: Envelope): readonly string[] {
  const about = [Header.taskId, taskId, Header.messageType, messageType, Header.priority, lane];
  if (inReplyTo !== null) about.push(Header.inReplyTo, inReplyTo);
  let said = '';
  for (const name in tags) said += `${said === '' ? '' : ','}${name}=${tags[name] as string}`;
  if (said !== '') about.push(Header.tags, said);
  return about;
}

/** As the contract stage will find it. */
export function executionFor(envelope: Envelope, version: Version): Execution {
  const said = envelope.headers[Header.execution];
  return said === 'once' || said === 'idempotent' || said === 'keyed' ? said : version.contract.execution;
}

/** How a hand-over ended, in the agent's words and ours. */
export class Report {
  readonly code: Code;
  readonly status: number;
  readonly started: Started;
  readonly noRetry: boolean;
  /** When to come back, as whoever refused has said; 0 = unknown. */
  readonly retryAfterMs: number;
  readonly detail: string;
  readonly contentType: string;
  readonly body: Buffer;

  constructor(
    code: Code,
    status: number,
    started: Started,
    noRetry: boolean,
    retryAfterMs: number,
    detail: string,
    contentType: string,
    body: Buffer,
  ) {
    this.code = code;
    this.status = status;
    this.started = started;
    this.noRetry = noRetry;
    this.retryAfterMs = retryAfterMs;
    this.detail = detail;
    this.contentType = contentType;
    this.body = body;
  }
}

export function reportOf(call: Call): Report {
  const { reply, attempts } = call;
  const last = attempts[attempts.length - 1];
  const isAnswer = reply !== null && reply.status > 0 && (call.code === Code.ok || call.code === Code.provider_error);
  const contentType = isAnswer ? reply.headers['content-type'] : undefined;
  return new Report(
    call.code,
    call.status,
    last === undefined ? 'not_started' : last.started,
    call.noRetry,
    call.retryAfterMs,
    call.code === Code.ok ? '' : detailOf(call),
    typeof contentType === 'string' ? contentType : '',
    isAnswer ? reply.body : NO_BODY,
  );
}

/** What the agent has said of work that it had taken with 202; to say 202 again would be to say that it goes on. */
export function reported({ code, status, detail, contentType, body }: WorkReport): Report {
  return new Report(code, status === 202 ? 200 : status, 'done', false, 0, detail, contentType, body);
}

/** A report of ours about work that the agent was doing. */
export function brokenOff(code: Code, detail: string): Report {
  return new Report(code, 0, 'started', false, 0, detail, '', NO_BODY);
}
