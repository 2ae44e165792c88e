/** What is kept of one attempt: shown in the Result, counted in metrics, read by `retry`. */
import type { Code } from '../../proto/wire/codes.ts';
import type { Candidate } from '../table/snapshot.ts';

/** How far the provider got: `not_started` is provable, `done` means a whole answer came, `started` is everything between. */
export type Started = 'not_started' | 'started' | 'done';

export class Attempt {
  readonly candidate: Candidate;
  /** Milliseconds after the call's acceptance. */
  readonly atMs: number;
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

  constructor(candidate: Candidate, atMs: number) {
    this.candidate = candidate;
    this.atMs = atMs;
  }
}
