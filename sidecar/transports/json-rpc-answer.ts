/**
 * What a JSON-RPC answer means, as the HTTP answer that it would have been: the same judgement (`attempt/judge`) is then
 * made of both, so that a caller's mistake never counts against the agent. Pure. The bytes of `result` and of the
 * error's `data` are passed on as they came.
 *
 * | error                                   | status        | why                                                        |
 * |-----------------------------------------|---------------|------------------------------------------------------------|
 * | `data.status`, an HTTP error status     | that          | the agent says it itself                                   |
 * | `data.code` and `data.name` are ours    | that code's   | another sidecar, or an agent that uses our table           |
 * | -32700, -32600, -32602                  | 400           | the request is at fault                                    |
 * | -32601                                  | 404           | the agent has no such method                               |
 * | -32603, -32000 to -32099, -32768 …      | 500           | the agent is at fault                                      |
 * | 400 to 599                              | that          | agents that put HTTP's numbers there                       |
 * | any other                               | 422           | the application's own answer: it works, and says no        |
 * With the last two rows of numbers, an HTTP status of 400 or more is believed before the rule.
 */
import { cited } from '../../base/redact.ts';
import { quote } from '../../base/duration.ts';
import { Code, codeEntry, isCode } from '../../proto/wire/codes.ts';
import { readRpc, type RpcFailure, type RpcLimits } from '../../proto/wire/json-rpc.ts';
import { bodyKind } from '../call/answer-body.ts';
import { answered, failed, NO_BODY, Reply, type ReplyHeaders } from '../call/reply.ts';
import { encodingOf } from './decode.ts';
import type { Enough } from './http-exchange.ts';
import { EventTexts } from './json-rpc-events.ts';

/** What the envelope around a result may add to it. */
export const ENVELOPE_BYTES = 4_096;
const MAX_SHOWN_CHARS = 300;
/** As much as `Retry-After` can say. */
const MAX_WAIT_MS = 999_999_999_000;
/** One answer to one request. */
const LIMITS: RpcLimits = Object.freeze({ batch: 0 });

/** One request as its answer is held against it. A stream of events that may stay open is read as far as the answer, and no further. */
export class RpcAsked implements Enough {
  /** 0 = a notification: nothing is due. */
  readonly id: number;
  readonly method: string;
  readonly maxBytes: number;
  #events: EventTexts | null = null;

  constructor(id: number, method: string, maxBytes: number) {
    this.id = id;
    this.method = method;
    this.maxBytes = maxBytes;
  }

  head(status: number, headers: ReplyHeaders): boolean {
    if (status >= 300 || !isEvents(headers['content-type']) || encodingOf(headers) !== '') return false;
    this.#events = new EventTexts();
    return this.id === 0;
  }

  piece(bytes: Buffer): boolean {
    const events = this.#events;
    return events !== null && events.take(bytes).some((text) => isAnswer(text, this.id));
  }
}

/** The HTTP answer to a request with an id. */
export function understood(reply: Reply, asked: RpcAsked): Reply {
  if (reply.status < 300 && isEvents(reply.headers['content-type'])) {
    for (const text of new EventTexts().take(reply.body)) {
      const read = answerIn(reply, text, asked);
      // Notifications and requests of the agent may come before it.
      if (read instanceof Reply) return read;
    }
    return bad('the stream of events ended without it');
  }
  const read = answerIn(reply, reply.body, asked);
  if (read instanceof Reply) return read;
  // An HTTP error of whatever stands before the agent, in its own words.
  if (reply.status >= 300) return reply;
  return bad(reply.body.length === 0 ? `HTTP ${reply.status} without a body` : read);
}

/** The HTTP answer to a notification: nothing is due, but an error is heard. */
export function notified(reply: Reply): Reply {
  if (reply.body.length > 0) {
    const reading = readRpc(reply.body, LIMITS);
    if (!reading.isBatch && reading.message.kind === 'error') return failure(reply, reading.message, '');
  }
  return answered(reply.status, reply.headers, NO_BODY);
}

/** The Reply that a text makes, or why it is not the answer to this request. */
function answerIn(reply: Reply, text: Buffer, asked: RpcAsked): Reply | string {
  const reading = readRpc(text, LIMITS);
  if (reading.isBatch) return 'a list of answers came';
  const { message } = reading;
  switch (message.kind) {
    case 'invalid':
      return message.problem;
    case 'request':
    case 'notification':
      return 'a request came';
    case 'result':
      return message.id === String(asked.id) ? success(reply, message.result, asked) : strange(message.id, asked);
    case 'error':
      // An agent that could not read the request does not know its id.
      return message.id === String(asked.id) || message.id === 'null' ? failure(reply, message, asked.method) : strange(message.id, asked);
  }
}

/** To this request, whatever it says. */
function isAnswer(text: Buffer, asked: number): boolean {
  const reading = readRpc(text, LIMITS);
  if (reading.isBatch) return false;
  const { message } = reading;
  if (message.kind === 'result') return message.id === String(asked);
  return message.kind === 'error' && (message.id === String(asked) || message.id === 'null');
}

function strange(id: string, asked: RpcAsked): string {
  return `it has the id ${quote(id, 60).slice(1, -1)}, and the request had ${asked.id}`;
}

function success(reply: Reply, result: Buffer, asked: RpcAsked): Reply {
  if (result.length > asked.maxBytes)
    return failed(Code.response_too_large, 'started', `the answer is above the limit of ${asked.maxBytes} bytes: ${result.length} came`);
  return answered(reply.status < 300 ? reply.status : 200, jsonHeaders(reply.headers), result);
}

function failure(reply: Reply, error: RpcFailure, method: string): Reply {
  const { code, message } = error;
  const data = error.data === null ? null : mapIn(error.data);
  const words = `JSON-RPC error ${code}${message === '' ? '' : `: ${cited(message, MAX_SHOWN_CHARS)}`}`;
  const detail = code === METHOD_NOT_FOUND && method !== '' ? `it has no method ${quote(method)} (${words})` : words;
  const wait = data?.['retry_after_ms'];
  return new Reply(
    Code.ok,
    'done',
    statusOf(code, data, reply.status),
    jsonHeaders(reply.headers),
    bodyOf(error),
    null,
    detail,
    false,
    typeof wait === 'number' && wait > 0 ? Math.min(wait, MAX_WAIT_MS) : 0,
  );
}

/** The error object. */
function bodyOf({ code, message, data }: RpcFailure): Buffer {
  const head = `{"code":${code},"message":${JSON.stringify(message)}`;
  return data === null ? Buffer.from(`${head}}`, 'utf8') : Buffer.concat([Buffer.from(`${head},"data":`, 'utf8'), data, END]);
}

const END = Buffer.from('}', 'latin1');
const METHOD_NOT_FOUND = -32601;

function statusOf(code: number, data: Readonly<Record<string, unknown>> | null, httpStatus: number): number {
  if (data !== null && isErrorStatus(data['status'])) return data['status'];
  const own = data?.['code'];
  if (typeof own === 'number' && own !== Code.ok && isCode(own) && data?.['name'] === codeEntry(own).name) return codeEntry(own).http;
  if (code === -32700 || code === -32600 || code === -32602) return 400;
  if (code === METHOD_NOT_FOUND) return 404;
  if (code === -32603) return 500;
  if (isErrorStatus(httpStatus)) return httpStatus;
  if (code <= -32000 && code >= -32768) return 500;
  return isErrorStatus(code) ? code : 422;
}

function isErrorStatus(value: unknown): value is number {
  return typeof value === 'number' && Number.isInteger(value) && value >= 400 && value <= 599;
}

const JSON_TYPE: ReplyHeaders = Object.freeze({ 'content-type': 'application/json' });

/** The agent's headers; they shall say of the body what it is now. */
function jsonHeaders(headers: ReplyHeaders): ReplyHeaders {
  return bodyKind(headers['content-type']) === 'json' ? headers : Object.assign({}, headers, JSON_TYPE);
}

function isEvents(contentType: string | string[] | undefined): boolean {
  return typeof contentType === 'string' && contentType.trim().toLowerCase().startsWith('text/event-stream');
}

function bad(why: string): Reply {
  return failed(Code.bad_response, 'done', `the answer is no JSON-RPC 2.0 answer to this request: ${why}`);
}

function mapIn(text: Buffer): Readonly<Record<string, unknown>> | null {
  const value: unknown = JSON.parse(text.toString('utf8'));
  return typeof value === 'object' && value !== null && !Array.isArray(value) ? (value as Record<string, unknown>) : null;
}
