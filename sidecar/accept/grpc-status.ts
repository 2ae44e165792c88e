/**
 * How a failure is told over gRPC: the status of its code, the fields of the Result in the trailers under the names of the
 * HTTP headers, and the standard error model in `grpc-status-details-bin`. Clients commonly take no more than 8 KiB of
 * trailers, so what is long is cut, and the details before the code.
 */
import { isUtf8 } from 'node:buffer';
import { Code, type CodeEntry, codeEntry } from '../../proto/wire/codes.ts';
import { Header } from '../../proto/wire/headers.ts';
import { Attempt, ErrorInfo, Failure, RetryInfo, RpcStatus } from '../../proto/wire/reach-messages.ts';
import type { Attempt as AttemptRecord } from '../call/attempt-record.ts';
import { cut, failureStatus, type Result } from '../call/result.ts';
import type { Call } from '../call/call.ts';
import { headerText, pushOwn } from './answer.ts';
import { pushQuota } from './rate-headers.ts';

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

const NONE: readonly string[] = Object.freeze([]);

export const OK: Trailers = Object.freeze({ [STATUS]: '0' });

/** Of a call that went well: more than `ok` only for a caller that has a quota. */
export function successTrailers(call: Call): Trailers {
  if (call.quota === null) return OK;
  const more: string[] = [];
  pushQuota(more, call);
  const trailers: Record<string, string> = { [STATUS]: '0' };
  for (let i = 0; i < more.length; i += 2) trailers[more[i] as string] = more[i + 1] as string;
  return trailers;
}

/** For what never became a call. `status` is the code's own unless another fits better. @param more further trailers, flat */
export function refusalTrailers(
  code: Code,
  detail: string,
  retryAfterMs: number,
  status: number = codeEntry(code).grpc,
  isAmbiguous = false,
  more: readonly string[] = NONE,
): Trailers {
  const entry = codeEntry(code);
  const trailers = begin(status, entry, detail, retryAfterMs, entry.retryable && !isAmbiguous);
  trailers[Header.code] = String(code);
  trailers[Header.ambiguous] = String(isAmbiguous);
  if (detail !== '') trailers[Header.detail] = headerText(detail);
  if (retryAfterMs > 0) trailers[Header.retryAfterMs] = String(Math.ceil(retryAfterMs));
  const info = errorInfo(entry, [Header.code, String(code), Header.ambiguous, String(isAmbiguous)]);
  const failure = {
    code,
    name: entry.name,
    retryable: entry.retryable && !isAmbiguous,
    ambiguous: isAmbiguous,
    detail: cut(detail, MAX_WORDS_CHARS),
  };
  trailers[DETAILS] = details(status, messageOf(entry, detail), info, retryAfterMs, failure);
  for (let i = 0; i < more.length; i += 2) trailers[more[i] as string] = more[i + 1] as string;
  return trailers;
}

/** For a call that failed. */
export function failureTrailers(result: Result): Trailers {
  const { entry, retryAfterMs, call } = result;
  const status = entry.code === Code.provider_error ? statusOfHttp(failureStatus(result)) : entry.grpc;
  // Over a quota the time to wait is the very answer; of other refusals a client that repeats by itself only makes more.
  const mayRetry = result.retryable && (!result.noRetry || (entry.code === Code.rate_limited && retryAfterMs > 0 && !call.noRetry));
  const trailers = begin(status, entry, result.detail, retryAfterMs, mayRetry);
  const own: string[] = [];
  pushOwn(own, result);
  for (let i = 0; i < own.length; i += 2) trailers[own[i] as string] = own[i + 1] as string;
  const info = errorInfo(entry, own);
  const failure: Partial<Failure> = {
    code: entry.code,
    name: entry.name,
    retryable: result.retryable,
    ambiguous: result.ambiguous,
    detail: cut(result.detail, MAX_WORDS_CHARS),
    elapsedMs: rounded(result.elapsedMs),
    provider: result.provider ?? '',
    version: result.version ?? '',
    traceId: call.traceId,
    cause: cut(call.cause ?? '', MAX_WORDS_CHARS),
    ...(entry.code === Code.provider_error ? answerOf(result) : null),
  };
  const all = call.attempts.map((attempt) => attemptOf(attempt, MAX_ATTEMPT_WORDS_CHARS));
  const attempts = thoseThatFit(all, MAX_DETAILS_BYTES - Failure.write(failure).length - info.length);
  const whole = { ...failure, attempts, attemptsLeftOut: attempts.length < all.length };
  trailers[DETAILS] = details(status, messageOf(entry, result.detail), info, retryAfterMs, whole);
  return trailers;
}

/** The first ones, as many as `bytes` hold. */
function thoseThatFit(attempts: readonly Attempt[], bytes: number): readonly Attempt[] {
  let left = bytes;
  for (let i = 0; i < attempts.length; i++) {
    left -= Attempt.write(attempts[i] as Attempt).length;
    if (left < 0) return attempts.slice(0, i);
  }
  return attempts;
}

/** One attempt as message `Attempt`. */
export function attemptOf(attempt: AttemptRecord, maxWordsChars: number): Attempt {
  return {
    provider: attempt.candidate.provider.agentId,
    version: attempt.candidate.version.text,
    atMs: rounded(attempt.atMs),
    elapsedMs: rounded(attempt.elapsedMs),
    code: attempt.code,
    status: attempt.status,
    started: attempt.started,
    detail: cut(attempt.detail, maxWordsChars),
  };
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
function errorInfo(entry: CodeEntry, fields: readonly string[]): Uint8Array {
  const metadata: Record<string, string> = {};
  for (let i = 0; i < fields.length; i += 2) {
    const name = (fields[i] as string).replace(/^reach-/, '').replaceAll('-', '_');
    // It is the status's message and the Failure's already.
    if (name === 'detail') continue;
    metadata[name] = fields[i + 1] as string;
  }
  return ErrorInfo.write({ reason: entry.name.toUpperCase(), domain: DOMAIN, metadata });
}

/** google.rpc.Status, in base64. */
function details(status: number, message: string, info: Uint8Array, retryAfterMs: number, failure: Partial<Failure>): string {
  const all = [any('google.rpc.ErrorInfo', info)];
  if (retryAfterMs > 0) {
    const ms = Math.ceil(retryAfterMs);
    const retryDelay = { seconds: BigInt(Math.floor(ms / 1_000)), nanos: (ms % 1_000) * 1_000_000 };
    all.push(any('google.rpc.RetryInfo', RetryInfo.write({ retryDelay })));
  }
  all.push(any('agentreach.v1.Failure', Failure.write(failure)));
  return Buffer.from(RpcStatus.write({ code: status, message, details: all })).toString('base64');
}

function any(type: string, value: Uint8Array): { readonly typeUrl: string; readonly value: Uint8Array } {
  return { typeUrl: TYPE + type, value };
}

/** An agent's own error. */
function answerOf(result: Result): Partial<Failure> {
  const { status } = result;
  const { reply } = result.call;
  if (reply === null) return { status };
  const said = reply.headers['content-type'];
  const contentType = typeof said === 'string' ? cut(said, MAX_WORDS_CHARS) : '';
  if (reply.stream !== null || reply.body.length > MAX_ANSWER_BYTES) return { status, contentType, answerLeftOut: true };
  if (reply.body.length === 0) return { status, contentType };
  return {
    status,
    contentType,
    answer: isUtf8(reply.body) ? { case: 'text', value: reply.body.toString('utf8') } : { case: 'data', value: reply.body },
  };
}
