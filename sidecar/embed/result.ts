/** The Result of a call from inside the process: the same fields, by the same names, as in the JSON of the HTTP way in. */
import { Code, codeEntry } from '../../proto/wire/codes.ts';
import { Header } from '../../proto/wire/headers.ts';
import type { Call } from '../call/call.ts';
import { envelope, type JsonBytes, plainProblem, problem, resultOf, streamEnd } from '../call/result.ts';

export interface ResultError {
  readonly code: number;
  readonly name: string;
  readonly message: string;
  /** The same request may succeed later or elsewhere. */
  readonly retryable: boolean;
  /** The provider may have acted although no answer came. */
  readonly ambiguous: boolean;
  readonly detail: string;
}

export interface ResultAttempt {
  readonly provider: string;
  readonly version: string;
  /** After the call's acceptance. */
  readonly at_ms: number;
  readonly elapsed_ms: number;
  readonly code: number;
  readonly status: number;
  readonly started: 'not_started' | 'started' | 'done';
  readonly capability?: string;
  readonly name?: string;
  readonly detail?: string;
}

export interface Result<T = unknown> {
  /** 0 = success. */
  readonly code: number;
  /** The provider's status; that of the failure when there is one; 0 = none. */
  readonly status: number;
  /** The answer, or (code 6001) the agent's own error. */
  readonly data: T;
  readonly error: ResultError | null;
  readonly elapsed_ms: number;
  readonly definitely_success: boolean;
  readonly degraded: boolean;
  readonly provider: string | null;
  readonly version: string | null;
  readonly attempts: readonly ResultAttempt[];
  readonly trace_id: string;
  readonly retry_after_ms?: number;
  /** The first answer to this key once more: no provider was asked. */
  readonly replay?: true;
  /** What went wrong before the time was over, or before a fallback. */
  readonly cause?: string;
  readonly capability?: string | null;
  /** Told when the call was made with `explain`. */
  readonly decision?: readonly unknown[];
}

export function resultFrom<T>(call: Call): Result<T> {
  const result = resultOf(call, true);
  const wish = call.headers[Header.explain];
  const isTold = wish === '1' || wish === 'true';
  return parsed<T>(result.entry.code === Code.ok ? envelope(result, isTold) : problem(result, isTold));
}

/** The Result without data, of a stream that has ended. */
export function streamResult(call: Call): Result<null> {
  return { ...(JSON.parse(streamEnd(resultOf(call, false))) as Result<null>), data: null };
}

/** What never became a call. */
export function refusedResult(code: Code, detail: string): Result<null> {
  const fields = JSON.parse(plainProblem(code, codeEntry(code).http, detail)) as Result<null>;
  return {
    ...fields,
    data: null,
    elapsed_ms: 0,
    definitely_success: false,
    degraded: false,
    provider: null,
    version: null,
    attempts: [],
    trace_id: '',
  };
}

function parsed<T>(json: JsonBytes): Result<T> {
  const bytes = typeof json === 'string' ? Buffer.from(json, 'latin1') : json;
  return JSON.parse(bytes.toString('utf8')) as Result<T>;
}

/** A failed call as an exception: what streams throw when they fail or are cut. */
export class ReachError extends Error {
  readonly code: number;
  readonly result: Result;

  constructor(result: Result) {
    const words = result.error?.detail || result.error?.message || 'the call failed';
    super(`${words} (${result.code})`);
    this.name = result.error?.name ?? 'ReachError';
    this.code = result.code;
    this.result = result;
  }
}
