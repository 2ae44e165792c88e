/** What is kept of one attempt: shown in the Result, counted in metrics, read by `retry`. */
import type { Execution } from '../../proto/language/types.ts';
import { Code } from '../../proto/wire/codes.ts';
import type { Candidate } from '../table/snapshot.ts';

/** How far the provider got: `not_started` is provable, `done` means a whole answer came, `started` is everything between. */
export type Started = 'not_started' | 'started' | 'done';

export class Attempt {
  readonly candidate: Candidate;
  /** Milliseconds after the call's acceptance. */
  readonly atMs: number;
  /** How often the work may run that was asked for: the next capability of a fallback chain has a contract of its own. */
  readonly execution: Execution;
  elapsedMs = 0;
  code: Code = 0;
  /** The provider's status; 0 when none came. */
  status = 0;
  started: Started = 'not_started';
  detail = '';
  /** It says something of the provider: it was begun there, and neither the caller nor a limit ended it. */
  isTelling = false;
  /** It counts against the provider. */
  isFault = false;
  /** Span id of the attempt, 16 hex digits. */
  spanId = '';

  constructor(candidate: Candidate, atMs: number, execution: Execution = 'once') {
    this.candidate = candidate;
    this.atMs = atMs;
    this.execution = execution;
  }
}

/** With a whole answer that we could not use: the work was done all the same. */
const UNUSABLE: ReadonlySet<number> = new Set([Code.bad_response, Code.response_too_large, Code.invalid_response]);

/** Of `once` work that may have been carried out, and whose end nobody here knows: it must not be begun again. */
export function isInDoubt({ execution, started, code }: Attempt): boolean {
  return execution === 'once' && (started === 'started' || (started === 'done' && UNUSABLE.has(code)));
}
