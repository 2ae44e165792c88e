/**
 * What follows from how a hand-over ended, as a pure function, so that the promise of each kind of work can be read in one place:
 * what may have been carried out is run again only if the work allows it, and `once` never is; what provably did not begin
 * always may; an answer that is a refusal stands. Pauses, records and messages are made by others.
 */
import type { Execution } from '../../proto/language/types.ts';
import { Code, codeEntry } from '../../proto/wire/codes.ts';
import type { Started } from '../call/attempt-record.ts';

/** Why work in hand was stopped from here; `no` = it was not. */
export type StoppedBy = 'no' | 'cancel' | 'lost' | 'draining';

export interface Ended {
  readonly code: Code;
  /** The agent's own status; 0 = none. */
  readonly status: number;
  readonly started: Started;
  readonly execution: Execution;
  /** The sender allows another try. */
  readonly retryable: boolean;
  /** The agent said that nobody should repeat it. */
  readonly noRetry: boolean;
  /** Hand-overs so far, this one included. */
  readonly tries: number;
  readonly maxTries: number;
  readonly stoppedBy: StoppedBy;
}

export type Outcome =
  /** The result stands. */
  | 'done'
  /** The agent has it (202) and says later how it ended. */
  | 'goes_on'
  /** Nobody could take it: later, and it does not count. */
  | 'wait'
  /** A failed try: again after a pause that grows. */
  | 'again'
  /** Given back at once: this sidecar is stopping. */
  | 'give_back'
  | 'failed'
  /** It failed too often. */
  | 'dead'
  | 'in_doubt'
  | 'cancelled'
  /** It is somebody else's by now: nothing is said, nothing is acknowledged. */
  | 'dropped';

/** Nobody was there for it just now, though somebody may be soon. */
const NOBODY_FREE: ReadonlySet<number> = new Set([
  Code.no_provider,
  Code.none_healthy,
  Code.blocked_by_operator,
  Code.breaker_open,
  Code.caller_busy,
  Code.provider_busy,
  Code.rate_limited,
  Code.in_flight,
]);

/** Where another try may end otherwise although the agent's own answer was whole. */
const MAY_PASS: ReadonlySet<number> = new Set([408, 425]);

export function outcomeOf(ended: Ended): Outcome {
  const { code, started, execution, stoppedBy } = ended;
  if (stoppedBy === 'lost') return 'dropped';
  if (code === Code.ok) return ended.status === 202 ? 'goes_on' : 'done';
  if (stoppedBy === 'cancel') return 'cancelled';
  if (started === 'not_started') return notStarted(ended);
  if (code === Code.rate_limited) return ended.noRetry ? 'failed' : 'wait';
  if (started === 'done') {
    if (isRefusal(ended) || execution === 'once') return 'failed';
    return again(ended);
  }
  if (execution === 'once') return 'in_doubt';
  // Cut off by an operator: it is no failed try, and begins again when the block is lifted.
  if (code === Code.blocked_by_operator) return stoppedBy === 'draining' ? 'give_back' : 'wait';
  if (stoppedBy === 'draining') return 'give_back';
  return mayPass(code) ? again(ended) : 'failed';
}

function notStarted(ended: Ended): Outcome {
  if (ended.stoppedBy === 'draining') return 'give_back';
  if (NOBODY_FREE.has(ended.code)) return 'wait';
  return mayPass(ended.code) ? again(ended) : 'failed';
}

function again(ended: Ended): Outcome {
  if (!ended.retryable || ended.noRetry) return 'failed';
  return ended.tries >= ended.maxTries ? 'dead' : 'again';
}

/** The agent, or we, looked at it and said no: it would be said again. */
function isRefusal({ code, status }: Ended): boolean {
  if (code === Code.provider_error) return status < 500 && !MAY_PASS.has(status);
  return !mayPass(code);
}

/** Transport, time of one try and faults pass; what breaks a contract does not. */
function mayPass(code: Code): boolean {
  return code === Code.internal || code === Code.provider_error || code === Code.cancelled || codeEntry(code).retryable;
}
