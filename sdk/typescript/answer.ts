/** HTTP answers of the sidecar read as Results: an envelope, a problem document, or the agent's own answer with `Reach-*` headers. */
import type { IncomingHttpHeaders } from 'node:http';
import { Code, codeEntry } from '../../proto/wire/codes.ts';
import { Header } from '../../proto/wire/headers.ts';
import type { HttpAnswer } from './http.ts';
import { type Failure, ownFailure, type Result, resultFrom, type Success } from './result.ts';

/** What to do about it is known here: the sidecar cannot tell how its caller was started. */
const NO_TOKEN = 'no token was sent: set REACH_TOKEN, or the option token';

/** Never null: what is not a sidecar's answer is a failure that says so. */
export function resultIn(answer: HttpAnswer, elapsedMs: number): Result {
  const result = resultAsTold(answer, elapsedMs);
  if (result.ok || result.code !== Code.unauthenticated || !answer.isAnonymous) return result;
  const { detail, message } = result.error;
  return { ...result, error: { ...result.error, detail: `${detail || message}; ${NO_TOKEN}` } };
}

function resultAsTold(answer: HttpAnswer, elapsedMs: number): Result {
  const { headers, bytes, status } = answer;
  const json = parsed(bytes);
  const isProblem = (headers['content-type'] ?? '').startsWith('application/problem+json');
  const code = Number(headers[Header.code] ?? Number.NaN);
  // The agent's own error may be a problem document too: then the code is the headers' alone.
  if (Number.isNaN(code) || (isProblem && code !== 0 && code !== Code.provider_error)) {
    const result = resultFrom(json, headers[Header.retry] === 'none');
    if (result !== null && (Number.isNaN(code) || result.code === code)) return result;
  }
  if (Number.isNaN(code)) return ownFailure(Code.bad_response, `the answer (status ${status}) is not a sidecar's`, true, elapsedMs);
  if (code === 0) return { ...successOf(status, headers, elapsedMs), data: json ?? bytes.toString('utf8') };
  return { ...failureOf(code, status, headers, elapsedMs), data: bytes.length === 0 ? null : (json ?? bytes.toString('utf8')) };
}

/** What the headers say of a success whose body came apart from them. */
export function successOf(status: number, headers: IncomingHttpHeaders, elapsedMs: number): Success {
  return { ok: true, code: 0, data: null, error: null, ...commonOf(status, headers, elapsedMs) };
}

function failureOf(code: number, status: number, headers: IncomingHttpHeaders, elapsedMs: number): Failure {
  const { name, meaning, retryable } = codeEntry(code);
  const ambiguous = headers[Header.ambiguous] === 'true';
  const detail = decoded(textOf(headers, Header.detail) ?? '');
  return {
    ok: false,
    code,
    data: null,
    error: { code, name, message: meaning, retryable, ambiguous, detail },
    ...commonOf(status, headers, elapsedMs),
  };
}

function commonOf(status: number, headers: IncomingHttpHeaders, elapsedMs: number): Omit<Success, 'ok' | 'code' | 'data' | 'error'> {
  return {
    status,
    elapsedMs: Number(headers[Header.elapsedMs] ?? elapsedMs),
    definitelySuccess: headers[Header.definitelySuccess] === 'true',
    degraded: headers[Header.degraded] === 'true',
    provider: textOf(headers, Header.provider),
    version: textOf(headers, Header.version),
    attempts: [],
    traceId: textOf(headers, Header.traceId) ?? '',
    retryAfterMs: Number(headers[Header.retryAfterMs] ?? 0),
    noRetry: headers[Header.retry] === 'none',
    replay: headers[Header.replay] === 'true',
    cause: null,
    decision: null,
  };
}

/** undefined when it is not JSON. */
export function parsed(bytes: Buffer): unknown {
  try {
    return JSON.parse(bytes.toString('utf8')) as unknown;
  } catch {
    return undefined;
  }
}

export function textOf(headers: IncomingHttpHeaders, name: string): string | null {
  const value = headers[name];
  return typeof value === 'string' ? value : null;
}

function decoded(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}
