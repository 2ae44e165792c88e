/**
 * The Result as the sidecar tells it, in the words of this language. Every call comes to one, whatever happened, also when
 * the sidecar itself could not be asked: then the client writes it, with a code of the same table.
 */
import { type Code, codeEntry } from '../../proto/wire/codes.ts';

export interface Attempt {
  readonly provider: string;
  readonly version: string;
  /** Since the call was accepted. */
  readonly atMs: number;
  readonly elapsedMs: number;
  readonly code: number;
  readonly status: number;
  readonly started: 'not_started' | 'started' | 'done';
  /** '' on success. */
  readonly detail: string;
}

export interface ErrorInfo {
  readonly code: number;
  readonly name: string;
  readonly message: string;
  /** The same request may succeed later or elsewhere. */
  readonly retryable: boolean;
  /** The provider may have acted although no answer came. */
  readonly ambiguous: boolean;
  readonly detail: string;
}

interface Common {
  /** The provider's own status; 0 when none came. */
  readonly status: number;
  readonly elapsedMs: number;
  readonly definitelySuccess: boolean;
  /** A fallback answered. */
  readonly degraded: boolean;
  /** Agent id; null when no provider answered. */
  readonly provider: string | null;
  readonly version: string | null;
  readonly attempts: readonly Attempt[];
  /** '' when the sidecar was not reached. */
  readonly traceId: string;
  /** When to come back; 0 = not said. */
  readonly retryAfterMs: number;
  /** Nobody on the way back should repeat it. */
  readonly noRetry: boolean;
  /** The first answer to this key once more: no provider was asked. */
  readonly replay: boolean;
  /** What went wrong before the fallback, or before the time was over. */
  readonly cause: string | null;
  /** What every stage decided, when the call was made with the header `reach-explain: 1`. */
  readonly decision: unknown;
}

export interface Success<T = unknown> extends Common {
  readonly ok: true;
  readonly code: 0;
  readonly data: T;
  readonly error: null;
}

export interface Failure extends Common {
  readonly ok: false;
  readonly code: number;
  /** The agent's own error, for code 6001; null otherwise. */
  readonly data: unknown;
  readonly error: ErrorInfo;
}

export type Result<T = unknown> = Success<T> | Failure;

type Fields = Readonly<Record<string, unknown>>;

/** From the JSON of an envelope, a problem document or the end of a stream; null when it is none of them. */
export function resultFrom(json: unknown, noRetry: boolean): Result | null {
  if (typeof json !== 'object' || json === null || typeof (json as Fields)['code'] !== 'number') return null;
  const fields = json as Fields;
  const common: Common = {
    status: fields['error'] === null || attemptsIn(fields).length > 0 ? statusIn(fields) : 0,
    elapsedMs: numberIn(fields, 'elapsed_ms'),
    definitelySuccess: fields['definitely_success'] === true,
    degraded: fields['degraded'] === true,
    provider: textIn(fields, 'provider'),
    version: textIn(fields, 'version'),
    attempts: attemptsIn(fields),
    traceId: textIn(fields, 'trace_id') ?? '',
    retryAfterMs: numberIn(fields, 'retry_after_ms'),
    noRetry,
    replay: fields['replay'] === true,
    cause: textIn(fields, 'cause'),
    decision: fields['decision'] ?? null,
  };
  const code = fields['code'] as number;
  if (code === 0) return { ok: true, code: 0, data: fields['data'] ?? null, error: null, ...common };
  return { ok: false, code, data: fields['data'] ?? null, error: errorIn(fields, code), ...common };
}

/** What the client itself has to say: the sidecar could not be asked, or did not finish. */
export function ownFailure(code: Code, detail: string, ambiguous: boolean, elapsedMs: number): Failure {
  const { name, meaning, retryable } = codeEntry(code);
  return {
    ok: false,
    code,
    data: null,
    error: { code, name, message: meaning, retryable, ambiguous, detail },
    status: 0,
    elapsedMs,
    definitelySuccess: false,
    degraded: false,
    provider: null,
    version: null,
    attempts: [],
    traceId: '',
    retryAfterMs: 0,
    noRetry: false,
    replay: false,
    cause: null,
    decision: null,
  };
}

function statusIn(fields: Fields): number {
  return numberIn(fields, 'status');
}

function errorIn(fields: Fields, code: number): ErrorInfo {
  const error = (typeof fields['error'] === 'object' && fields['error'] !== null ? fields['error'] : {}) as Fields;
  const entry = codeEntry(code);
  return {
    code,
    name: textIn(error, 'name') ?? entry.name,
    message: textIn(error, 'message') ?? entry.meaning,
    retryable: error['retryable'] === true,
    ambiguous: error['ambiguous'] === true,
    detail: textIn(error, 'detail') ?? '',
  };
}

function attemptsIn(fields: Fields): readonly Attempt[] {
  const list = fields['attempts'];
  if (!Array.isArray(list)) return [];
  return (list as Fields[]).map((one) => ({
    provider: textIn(one, 'provider') ?? '',
    version: textIn(one, 'version') ?? '',
    atMs: numberIn(one, 'at_ms'),
    elapsedMs: numberIn(one, 'elapsed_ms'),
    code: numberIn(one, 'code'),
    status: numberIn(one, 'status'),
    started: one['started'] as Attempt['started'],
    detail: textIn(one, 'detail') ?? '',
  }));
}

function numberIn(fields: Fields, name: string): number {
  const value = fields[name];
  return typeof value === 'number' ? value : 0;
}

function textIn(fields: Fields, name: string): string | null {
  const value = fields[name];
  return typeof value === 'string' ? value : null;
}
