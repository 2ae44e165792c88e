/**
 * How a failure is told over gRPC: the status of its code, the fields of the Result in the trailers under the names of the
 * HTTP headers, and the standard error model in `grpc-status-details-bin`. Clients commonly take no more than 8 KiB of
 * trailers, so what is long is cut, and the details before the code.
 */
import { isUtf8 } from 'node:buffer';
import { Writer } from '../../base/protobuf-fields.ts';
import { Code, type CodeEntry, codeEntry } from '../../proto/wire/codes.ts';
import { Header } from '../../proto/wire/headers.ts';
import type { Attempt } from '../call/attempt-record.ts';
import { cut, failureStatus, type Result } from '../call/result.ts';
import { headerText, pushOwn } from './answer.ts';

export const Status = {
  ok: 0,
  cancelled: 1,
  unknown: 2,
  invalid_argument: 3,
  deadline_exceeded: 4,
  not_found: 5,
  permission_denied: 7,
  resource_exhausted: 8,
  failed_precondition: 9,
  aborted: 10,
  out_of_range: 11,
  unimplemented: 12,
  unavailable: 14,
  unauthenticated: 16,
} as const;

const STATUS = 'grpc-status';
const MESSAGE = 'grpc-message';
const DETAILS = 'grpc-status-details-bin';
/** What clients with a retry policy heed: milliseconds to wait, or a negative number for `do not`. */
const PUSHBACK = 'grpc-retry-pushback-ms';
const DOMAIN = 'agent-reach';
const TYPE = 'type.googleapis.com/';

/** Characters of `grpc-message` before encoding; a character may take nine bytes. */
const MAX_MESSAGE_CHARS = 300;
/** All details before base64: four thirds of it, and the rest of the trailers, stay below 8 KiB. */
const MAX_DETAILS_BYTES = 3_600;
const MAX_ANSWER_BYTES = 2_048;
const MAX_WORDS_CHARS = 300;
const MAX_ATTEMPT_WORDS_CHARS = 120;

/** Trailers of an RPC, and the HTTP/2 headers of one that has nothing else. */
export type Trailers = Readonly<Record<string, string>>;

export const OK: Trailers = Object.freeze({ [STATUS]: '0' });

/** For what never became a call. `status` is the code's own unless another fits better. */
export function refusalTrailers(code: Code, detail: string, retryAfterMs: number, status: number = codeEntry(code).grpc): Trailers {
  const entry = codeEntry(code);
  const trailers = begin(status, entry, detail, retryAfterMs, entry.retryable);
  trailers[Header.code] = String(code);
  trailers[Header.ambiguous] = 'false';
  if (detail !== '') trailers[Header.detail] = headerText(detail);
  if (retryAfterMs > 0) trailers[Header.retryAfterMs] = String(Math.ceil(retryAfterMs));
  const info = errorInfo(entry, [Header.code, String(code), Header.ambiguous, 'false']);
  const failure = new Writer();
  failure.uint(1, code);
  failure.text(2, entry.name);
  failure.bool(3, entry.retryable);
  failure.text(5, cut(detail, MAX_WORDS_CHARS));
  trailers[DETAILS] = details(status, messageOf(entry, detail), info, retryAfterMs, failure);
  return trailers;
}

/** For a call that failed. */
export function failureTrailers(result: Result): Trailers {
  const { entry, retryAfterMs, call } = result;
  const status = entry.code === Code.provider_error ? statusOfHttp(failureStatus(result)) : entry.grpc;
  const trailers = begin(status, entry, result.detail, retryAfterMs, result.retryable && !result.noRetry);
  const own: string[] = [];
  pushOwn(own, result);
  for (let i = 0; i < own.length; i += 2) trailers[own[i] as string] = own[i + 1] as string;
  const info = errorInfo(entry, own);
  const failure = new Writer();
  failure.uint(1, entry.code);
  failure.text(2, entry.name);
  failure.bool(3, result.retryable);
  failure.bool(4, result.ambiguous);
  failure.text(5, cut(result.detail, MAX_WORDS_CHARS));
  failure.double(11, rounded(result.elapsedMs));
  failure.text(12, result.provider ?? '');
  failure.text(13, result.version ?? '');
  failure.text(14, call.traceId);
  failure.text(17, cut(call.cause ?? '', MAX_WORDS_CHARS));
  if (entry.code === Code.provider_error) writeAnswer(failure, result);
  for (const attempt of call.attempts) {
    const written = attemptOf(attempt, MAX_ATTEMPT_WORDS_CHARS);
    if (failure.length + written.length + info.length > MAX_DETAILS_BYTES) {
      failure.bool(16, true);
      break;
    }
    failure.message(15, written);
  }
  trailers[DETAILS] = details(status, messageOf(entry, result.detail), info, retryAfterMs, failure);
  return trailers;
}

/** One attempt as message `Attempt`. */
export function attemptOf(attempt: Attempt, maxWordsChars: number): Writer {
  const writer = new Writer(0, 128);
  writer.text(1, attempt.candidate.provider.agentId);
  writer.text(2, attempt.candidate.version.text);
  writer.double(3, rounded(attempt.atMs));
  writer.double(4, rounded(attempt.elapsedMs));
  writer.uint(5, attempt.code);
  writer.uint(6, attempt.status);
  writer.text(7, attempt.started);
  writer.text(8, cut(attempt.detail, maxWordsChars));
  return writer;
}

/** Microseconds are all that a clock tells, and all that anybody reads. */
export function rounded(ms: number): number {
  return Math.round(ms * 1_000) / 1_000;
}

/** An agent's own error, told by the status that says the same in gRPC. */
export function statusOfHttp(http: number): number {
  switch (http) {
    case 400:
    case 422:
      return Status.invalid_argument;
    case 401:
      return Status.unauthenticated;
    case 403:
      return Status.permission_denied;
    case 404:
    case 410:
      return Status.not_found;
    case 409:
      return Status.aborted;
    case 412:
    case 428:
      return Status.failed_precondition;
    case 408:
    case 504:
      return Status.deadline_exceeded;
    case 413:
    case 429:
      return Status.resource_exhausted;
    case 416:
      return Status.out_of_range;
    case 405:
    case 501:
      return Status.unimplemented;
    case 499:
      return Status.cancelled;
    case 502:
    case 503:
      return Status.unavailable;
    default:
      return Status.unknown;
  }
}

function begin(status: number, entry: CodeEntry, detail: string, retryAfterMs: number, mayRetry: boolean): Record<string, string> {
  const trailers: Record<string, string> = { [STATUS]: String(status), [MESSAGE]: percentEncoded(messageOf(entry, detail)) };
  if (!mayRetry) trailers[PUSHBACK] = '-1';
  else if (retryAfterMs > 0) trailers[PUSHBACK] = String(Math.ceil(retryAfterMs));
  return trailers;
}

/** What a client shows without looking at anything else. */
function messageOf(entry: CodeEntry, detail: string): string {
  return cut(`${entry.code} ${entry.name}: ${detail === '' ? entry.meaning : detail}`, MAX_MESSAGE_CHARS);
}

/** Every byte outside printable ASCII, and the percent sign, as `%XX`; a lone half of a character becomes U+FFFD. */
export function percentEncoded(text: string): string {
  let out = '';
  for (const byte of Buffer.from(text, 'utf8')) {
    if (byte >= 0x20 && byte <= 0x7e && byte !== 0x25) out += String.fromCharCode(byte);
    else out += `%${byte < 16 ? '0' : ''}${byte.toString(16).toUpperCase()}`;
  }
  return out;
}

/** google.rpc.ErrorInfo; `fields` are names and values in turn, which stand there without `reach-`. */
function errorInfo(entry: CodeEntry, fields: readonly string[]): Writer {
  const info = new Writer();
  info.text(1, entry.name.toUpperCase());
  info.text(2, DOMAIN);
  for (let i = 0; i < fields.length; i += 2) {
    const name = (fields[i] as string).replace(/^reach-/, '').replaceAll('-', '_');
    // It is the status's message and the Failure's already.
    if (name === 'detail') continue;
    const pair = new Writer(0, 64);
    pair.text(1, name);
    pair.text(2, fields[i + 1] as string);
    info.message(3, pair);
  }
  return info;
}

/** google.rpc.Status, in base64. */
function details(status: number, message: string, info: Writer, retryAfterMs: number, failure: Writer): string {
  const whole = new Writer(0, 1_024);
  whole.uint(1, status);
  whole.text(2, message);
  whole.message(3, any('google.rpc.ErrorInfo', info));
  if (retryAfterMs > 0) {
    const ms = Math.ceil(retryAfterMs);
    const delay = new Writer(0, 32);
    delay.uint(1, Math.floor(ms / 1_000));
    delay.uint(2, (ms % 1_000) * 1_000_000);
    const retry = new Writer(0, 32);
    retry.message(1, delay);
    whole.message(3, any('google.rpc.RetryInfo', retry));
  }
  whole.message(3, any('agentreach.v1.Failure', failure));
  return whole.finish().toString('base64');
}

function any(type: string, value: Writer): Writer {
  const writer = new Writer();
  writer.text(1, TYPE + type);
  writer.message(2, value);
  return writer;
}

function writeAnswer(failure: Writer, result: Result): void {
  failure.uint(6, result.status);
  const { reply } = result.call;
  if (reply === null) return;
  const contentType = reply.headers['content-type'];
  if (typeof contentType === 'string') failure.text(7, cut(contentType, MAX_WORDS_CHARS));
  if (reply.stream !== null || reply.body.length > MAX_ANSWER_BYTES) failure.bool(10, true);
  else if (isUtf8(reply.body)) failure.text(8, reply.body.toString('utf8'));
  else failure.bytes(9, reply.body);
}
