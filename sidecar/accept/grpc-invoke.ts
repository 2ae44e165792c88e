/** Invoke and Explain: one message in, a call through the pipeline (or a look at it), one message out; no policy. */
import { Code } from '../../proto/wire/codes.ts';
import { Header } from '../../proto/wire/headers.ts';
import { type Decision, ExplainReply, InvokeReply } from '../../proto/wire/reach-messages.ts';
import { bodyKind } from '../call/answer-body.ts';
import type { Call } from '../call/call.ts';
import { MAX_DETAIL_CHARS, type Result, resultOf } from '../call/result.ts';
import type { TraceLine } from '../../proto/wire/trace-line.ts';
import type { Exchange } from './grpc-exchange.ts';
import { type Form, grpcCall, headerChars, readInvokeRequest } from './grpc-request.ts';
import { attemptOf, failureTrailers, rounded, successTrailers } from './grpc-status.ts';
import { valueOfJson } from './grpc-value.ts';
import { explained } from './pages.ts';

/** When to come back while the sidecar is not ready. */
const STARTING_MS = 1_000;
const JSON_TYPE = 'application/json';

/** A call and the form of its answer; null when the exchange was answered with a refusal. */
export interface Asked {
  readonly call: Call;
  readonly form: Form;
}

export async function invoke(exchange: Exchange, message: Buffer): Promise<void> {
  const { front } = exchange;
  const asked = askedBy(exchange, message, false);
  if (asked === null) return;
  const { call, form } = asked;
  exchange.work = call;
  try {
    await front.pipeline.outbound(front.engine, call);
    exchange.work = null;
    if (!exchange.isOver) answer(exchange, call, form);
  } catch (error) {
    fault(exchange, error);
  }
}

export function explain(exchange: Exchange, message: Buffer): void {
  const asked = askedBy(exchange, message, false);
  if (asked === null) return;
  try {
    const explanation = explained(exchange.front, asked.call);
    const { refusal } = explanation;
    // As over HTTP: who may not call it may not look behind it either.
    if (refusal !== null && (refusal.code === Code.unauthenticated || refusal.code === Code.forbidden)) {
      exchange.refuse(refusal.code, refusal.detail);
      return;
    }
    // As JSON has it: what is undefined is not there.
    exchange.finish(ExplainReply.write({ explanation: JSON.parse(JSON.stringify(explanation)) as object }));
  } catch (error) {
    fault(exchange, error);
  }
}

/** Reads the request; what is wrong with it, or with the time, is told at once. */
export function askedBy(exchange: Exchange, message: Buffer, stream: boolean): Asked | null {
  const { front } = exchange;
  if (notNow(exchange)) return null;
  const request = readInvokeRequest(message);
  if (typeof request === 'string') return refused(exchange, 'request', Code.invalid_request, request);
  const { bodyBytes, headerBytes } = front.engine.config.limits;
  if (request.body.length > bodyBytes)
    return refused(exchange, 'body', Code.payload_too_large, `the body is above the limit of ${bodyBytes} bytes`);
  if (headerChars(request) > headerBytes)
    return refused(exchange, 'head', Code.payload_too_large, `the headers in the message are above the limit of ${headerBytes} bytes`);
  const call = grpcCall(front, exchange.metadata, request, exchange.openedAt, stream);
  if (typeof call === 'string') return refused(exchange, 'request', Code.invalid_request, call);
  return { call, form: request.form };
}

/** True when the exchange was answered, because no call can be taken now. */
export function notNow(exchange: Exchange): boolean {
  const { front, metadata } = exchange;
  if (front.ready) return false;
  const { view } = metadata;
  if (front.draining && front.takesLast(front.engine.identities.caller(view['authorization']), view['traceparent'])) return false;
  front.observation.metrics.requestRefused(front.draining ? 'draining' : 'starting');
  if (front.draining) exchange.refuse(Code.blocked_by_operator, 'this sidecar is stopping and takes no new calls', STARTING_MS);
  else exchange.refuse(Code.none_healthy, 'starting: no route table is loaded yet', STARTING_MS);
  return true;
}

export function fault(exchange: Exchange, error: unknown): void {
  const { work } = exchange;
  exchange.front.observation.fault(error);
  exchange.refuse(Code.internal, 'a fault in Agent-Reach');
  work?.cancel();
}

function refused(exchange: Exchange, reason: string, code: Code, detail: string): null {
  exchange.front.observation.metrics.requestRefused(reason);
  exchange.refuse(code, detail);
  return null;
}

/** The Result of a call whose answer is whole. */
export function answer(exchange: Exchange, call: Call, form: Form): void {
  const result = resultOf(call, form !== 'payload' || mayBeBad(call));
  if (result.entry.code !== Code.ok) {
    exchange.fail(failureTrailers(result));
    return;
  }
  if (exchange.givesUp(bytesOf(call).length)) return;
  exchange.finish(
    InvokeReply.write({ ...resultFields(result, contentTypeOf(call)), output: outputOf(result, form) }),
    successTrailers(call),
  );
}

function outputOf(result: Result, form: Form): InvokeReply['output'] {
  if (form === 'payload') return { case: 'data', value: bytesOf(result.call) };
  const value = form === 'params' ? valueOfJson(result.data) : null;
  return value === null ? { case: 'json', value: result.data.toString('utf8') } : { case: 'result', value };
}

/** Whether the Result's data can turn out not to be what it says: only then is it made, since bytes go as they came. */
function mayBeBad(call: Call): boolean {
  const { reply } = call;
  if (reply === null || reply.stream !== null) return false;
  return reply.headers['content-encoding'] !== undefined || (!call.outputChecked && bodyKind(reply.headers['content-type']) === 'json');
}

function bytesOf(call: Call): Buffer {
  return call.staticBody ?? (call.reply as NonNullable<Call['reply']>).body;
}

export function contentTypeOf(call: Call): string {
  if (call.staticBody !== null || call.reply === null) return JSON_TYPE;
  const contentType = call.reply.headers['content-type'];
  return typeof contentType === 'string' ? contentType : '';
}

/** All of message `InvokeReply` but its data. */
export function resultFields(result: Result, contentType: string): Partial<InvokeReply> {
  const { call } = result;
  const wish = call.headers[Header.explain];
  return {
    status: result.status,
    contentType,
    elapsedMs: rounded(result.elapsedMs),
    definitelySuccess: call.definitelySuccess,
    degraded: call.degraded,
    provider: result.provider ?? '',
    version: result.version ?? '',
    traceId: call.traceId,
    attempts: call.attempts.map((attempt) => attemptOf(attempt, MAX_DETAIL_CHARS)),
    cause: call.cause ?? '',
    decision: wish === '1' || wish === 'true' ? call.trace.lines().map(decisionOf) : [],
    replay: call.replay !== null,
  };
}

function decisionOf({ at_ms: atMs, stage, reason, code, words }: TraceLine): Decision {
  return { atMs, stage, reason, code, words };
}
