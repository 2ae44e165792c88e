/**
 * What an ended gRPC call means here. Two kinds of end:
 *
 * The server has given a status: an answer of the agent itself, with the HTTP status that Google's table gives it, so that
 * breaker, retry and callers treat it as they do an HTTP agent's:
 *   1 CANCELLED 499 · 2 UNKNOWN 500 · 3 INVALID_ARGUMENT 400 · 5 NOT_FOUND 404 · 6 ALREADY_EXISTS 409 · 7 PERMISSION_DENIED 403 ·
 *   8 RESOURCE_EXHAUSTED 429 (413 when it is our message that is too large; 1005 when it is the server's own) ·
 *   9 FAILED_PRECONDITION 400 · 10 ABORTED 409 · 11 OUT_OF_RANGE 400 · 12 UNIMPLEMENTED 501 · 13 INTERNAL 500 ·
 *   14 UNAVAILABLE 503 · 15 DATA_LOSS 500 · 16 UNAUTHENTICATED 401; 4 DEADLINE_EXCEEDED is 1003 response_timeout.
 *   Body: {code, status, message, details}, as google.rpc.Status in JSON.
 *
 * There is none: HTTP 401, 403, 404, 429, 502, 503, 504 (a box in the middle) as these; any other HTTP answer and an end
 * without a status 1004 · RST 7 REFUSED_STREAM: 3003 provider_busy, and streams above GOAWAY's last: 1002, both provably not
 * started (a server that is full is not ill: no breaker counts it) · RST 8 CANCEL and a broken connection: 1002 · RST 11 ENHANCE_YOUR_CALM: 3004 · other RSTs: 1004.
 *
 * A message is cut at `MESSAGE_CHARS` with a mark, details above `DETAILS_BYTES` are dropped and that is said; the code stays.
 * One header field above 64 KiB cannot be decoded by the HTTP/2 library (nghttp2) at all.
 */
import { cited } from '../../base/redact.ts';
import { Code } from '../../proto/wire/codes.ts';
import { GRPC_STATUS_NAMES } from '../../proto/wire/grpc-status.ts';
import type { Started } from '../call/attempt-record.ts';
import { answered, failed, Reply, type ReplyHeaders } from '../call/reply.ts';
import type { Schema } from './grpc-schema.ts';

/** All trailers of an answer together. */
export const MAX_TRAILER_BYTES = 262_144;
export const MESSAGE_CHARS = 4_096;
export const DETAILS_BYTES = 32_768;
/** Of the message, in the words of an attempt. */
const SHOWN_CHARS = 300;

const HTTP_STATUS: readonly number[] = [200, 499, 500, 400, 504, 404, 409, 403, 429, 400, 409, 400, 501, 500, 503, 500, 401];

/** How a call ended on the wire. */
export interface Ending {
  /** gRPC status; -1 = the server gave none. */
  readonly status: number;
  /** Head and trailers as they came, without pseudo headers. */
  readonly headers: ReplyHeaders;
  /** HTTP status; 0 = no head came. */
  readonly httpStatus: number;
  /** HTTP/2 code with which the stream was reset; 0 = none, or NO_ERROR. */
  readonly rst: number;
  readonly started: Started;
  /** The connection went away under it. */
  readonly isLost: boolean;
  readonly isReused: boolean;
  readonly host: string;
  /** Another reason why nothing can be made of it; null = none. */
  readonly fault: { readonly code: Code; readonly words: string } | null;
}

/** Never for status 0: what a call that failed answers. `schema` reads the details; without one there are none. */
export function replyOf(ending: Ending, schema: Schema | null): Reply {
  if (ending.fault !== null) return failed(ending.fault.code, ending.started, ending.fault.words);
  if (ending.status < 0) return withoutStatus(ending);
  const { status, headers } = ending;
  const name = nameOf(status);
  const { message, details, retryAfterMs, reason } = readStatus(headers, schema);
  const words = `${name} (${status})${reason === '' ? '' : ` ${reason}`}${message === '' ? '' : `: ${cited(message, SHOWN_CHARS)}`}`;
  if (status === 4) return failed(Code.response_timeout, 'started', `the server says ${words}`);
  if (status === 8 && /sent message larger|response.{0,20}too large/i.test(message))
    return failed(Code.response_too_large, 'started', `the server says ${words}`);
  const http = status === 8 && /larger than max|exceeds maximum/i.test(message) ? 413 : (HTTP_STATUS[status] ?? 500);
  const body = Buffer.from(JSON.stringify({ code: status, status: name, message, ...details }));
  const reply = answered(http, { ...metadataOf(headers), 'content-type': 'application/json', 'grpc-status': String(status) }, body);
  return new Reply(reply.code, 'done', http, reply.headers, body, null, `the provider answered ${words}`, false, retryAfterMs);
}

/** In words, for a stream that was cut. */
export function endingWords(ending: Ending, schema: Schema | null): string {
  if (ending.fault !== null) return ending.fault.words;
  if (ending.status < 0) return withoutStatus(ending).detail;
  const { message, reason } = readStatus(ending.headers, schema);
  return `the stream ended with ${nameOf(ending.status)} (${ending.status})${reason === '' ? '' : ` ${reason}`}${message === '' ? '' : `: ${cited(message, SHOWN_CHARS)}`}`;
}

function withoutStatus(ending: Ending): Reply {
  const { httpStatus, rst, started, host } = ending;
  if (started === 'not_started')
    return rst === 7
      ? failed(Code.provider_busy, 'not_started', `${host} refused the stream before it was processed (RST 7 REFUSED_STREAM)`)
      : failed(Code.connection_lost, 'not_started', `${host} went away before it had processed the stream (GOAWAY)`);
  if (httpStatus !== 0 && httpStatus !== 200) {
    const words = `HTTP ${httpStatus} without a gRPC status: something between here and the server answered`;
    if (MIDDLE_BOX.has(httpStatus)) {
      const body = Buffer.from(JSON.stringify({ http_status: httpStatus, message: words }));
      return new Reply(
        0,
        'done',
        httpStatus,
        { ...metadataOf(ending.headers), 'content-type': 'application/json' },
        body,
        null,
        words,
        false,
        0,
      );
    }
    return failed(Code.bad_response, 'started', words);
  }
  const when = httpStatus === 0 ? 'before an answer' : 'before the status';
  if (ending.isLost)
    return failed(Code.connection_lost, 'started', `the connection to ${host} was closed ${when}`, ending.isReused && httpStatus === 0);
  if (rst === 8) return failed(Code.connection_lost, 'started', `${host} cancelled the stream ${when} (RST 8 CANCEL)`);
  if (rst === 11) return failed(Code.rate_limited, 'started', `${host} asks for calm (RST 11 ENHANCE_YOUR_CALM)`);
  if (rst !== 0) return failed(Code.bad_response, 'started', `${host} reset the stream ${when} (RST ${rst})`);
  return failed(
    Code.bad_response,
    'started',
    `the answer ended without a gRPC status${httpStatus === 0 ? ' and without a head' : ` (HTTP ${httpStatus})`}`,
  );
}

/** Answers of proxies and gateways that mean the same as a status would. */
const MIDDLE_BOX: ReadonlySet<number> = new Set([401, 403, 404, 429, 502, 503, 504]);

interface Said {
  readonly message: string;
  readonly details: { readonly details?: unknown; readonly details_dropped?: string };
  readonly retryAfterMs: number;
  /** Of google.rpc.ErrorInfo. */
  readonly reason: string;
}

function readStatus(headers: ReplyHeaders, schema: Schema | null): Said {
  const message = cut(percentDecoded(textOf(headers, 'grpc-message')));
  const packed = textOf(headers, 'grpc-status-details-bin');
  if (packed === '' || schema === null) return { message, details: {}, retryAfterMs: 0, reason: '' };
  const bytes = Buffer.from(packed, 'base64');
  if (bytes.length > DETAILS_BYTES)
    return {
      message,
      details: { details_dropped: `${bytes.length} bytes, above the limit of ${DETAILS_BYTES}` },
      retryAfterMs: 0,
      reason: '',
    };
  const details = schema.details(bytes);
  if (details === null) return { message, details: { details_dropped: 'they cannot be read' }, retryAfterMs: 0, reason: '' };
  let retryAfterMs = 0;
  let reason = '';
  for (const one of details) {
    const type = one['@type'];
    const delay = one['retryDelay'];
    if (typeof type !== 'string') continue;
    if (type.endsWith('/google.rpc.RetryInfo') && typeof delay === 'string') retryAfterMs = Math.max(0, Number.parseFloat(delay) * 1000);
    const said = one['reason'];
    if (type.endsWith('/google.rpc.ErrorInfo') && typeof said === 'string') reason = said.slice(0, 100);
  }
  return { message, details: details.length === 0 ? {} : { details }, retryAfterMs, reason };
}

/** What a server may say beside its status: neither pseudo headers nor gRPC's own. */
export function metadataOf(headers: ReplyHeaders): Record<string, string | string[] | undefined> {
  const kept: Record<string, string | string[] | undefined> = {};
  for (const name of Object.keys(headers)) {
    if (name.startsWith(':') || name.startsWith('grpc-') || name === 'content-type' || name === 'content-length') continue;
    kept[name] = headers[name];
  }
  return kept;
}

export function statusOf(headers: ReplyHeaders): number {
  const text = textOf(headers, 'grpc-status');
  if (!/^\d{1,9}$/.test(text)) return text === '' ? -1 : 2;
  const status = Number(text);
  // One that nobody has defined is UNKNOWN.
  return status > 16 ? 2 : status;
}

function nameOf(status: number): string {
  return GRPC_STATUS_NAMES[status] ?? 'UNKNOWN';
}

/**
 * Only what is well formed is decoded; the rest stays as it came, also text that a server forgot to encode (it comes a
 * character a byte). Bytes that are no UTF-8 become the replacement mark.
 */
export function percentDecoded(text: string): string {
  if (!/[%\x80-\xff]/.test(text)) return text;
  const bytes: number[] = [];
  for (let i = 0; i < text.length; i++) {
    const hex = text[i] === '%' ? text.slice(i + 1, i + 3) : '';
    if (/^[0-9A-Fa-f]{2}$/.test(hex)) {
      bytes.push(Number.parseInt(hex, 16));
      i += 2;
    } else bytes.push(text.charCodeAt(i) & 0xff);
  }
  return Buffer.from(bytes).toString('utf8');
}

function cut(message: string): string {
  if (message.length <= MESSAGE_CHARS) return message;
  const kept = message.slice(0, MESSAGE_CHARS).replace(/[\uD800-\uDBFF]$/, '');
  return `${kept} … [cut, ${message.length} characters]`;
}

function textOf(headers: ReplyHeaders, name: string): string {
  const value = headers[name];
  return typeof value === 'string' ? value : Array.isArray(value) ? (value[0] ?? '') : '';
}
