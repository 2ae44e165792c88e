/** An answer that may come after its caller was told that the time is over: it is still the answer to the call's key. */
import type { Candidate } from '../table/snapshot.ts';
import type { Reply } from './reply.ts';

const NONE: Promise<null> = Promise.resolve(null);

export class LateAnswer {
  readonly candidate: Candidate;
  /** It stands in for another capability's. */
  readonly degraded: boolean;
  /** Known when it is there. */
  definitely = false;
  /** null in it = no good one came. */
  reply: Promise<Reply | null> = NONE;

  constructor(candidate: Candidate, degraded: boolean) {
    this.candidate = candidate;
    this.degraded = degraded;
  }
}
