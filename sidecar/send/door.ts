/** Messages out, as the ways in see them: submit, ask, cancel. All refusals are values with a code of the closed table. */
import type { Code } from '../../proto/wire/codes.ts';
import type { Lane, Target } from '../../proto/wire/envelope.ts';
import type { TaskEvent, TaskState } from '../../proto/wire/messages.ts';
import type { HeaderView } from '../call/call.ts';
import type { Principal } from '../call/principal.ts';
import type { RateSettings } from '../messages-config.ts';

/** A message as a way in has read it; absent parts are null. What is stamped is not in it. */
export interface Submission {
  readonly principal: Principal;
  readonly target: Target;
  /** null = `task_request`. */
  readonly messageType: string | null;
  readonly tags: Readonly<Record<string, string>>;
  readonly sequenceId: string | null;
  readonly priority: Lane | null;
  readonly retryable: boolean;
  /** The caller's key (`Idempotency-Key`, `power_id`); null = one is minted, and no repeat can be recognised. */
  readonly key: string | null;
  readonly expiresMs: number | null;
  readonly deadlineMs: number | null;
  readonly replyTo: 'inbox' | 'none';
  readonly inReplyTo: string | null;
  readonly payload: Buffer;
  readonly contentType: string;
  /** Request headers, lower case: trace, path, and what is passed on. */
  readonly headers: HeaderView;
  /** Standalone, or NATS and disk away: try at once without a promise instead of refusing. */
  readonly bestEffort: boolean;
}

export type Submitted =
  | {
      readonly ok: true;
      readonly taskId: string;
      readonly powerId: string;
      /** Where it is durable; `none` for best effort. */
      readonly durable: 'stream' | 'local-disk' | 'none';
      /** `parked`: nobody is there to work on it now. */
      readonly state: 'accepted' | 'parked';
      readonly capability: string;
      readonly version: string | null;
      readonly lane: Lane;
      readonly rule: string | null;
      readonly traceId: string;
    }
  | {
      readonly ok: false;
      readonly code: Code;
      readonly detail: string;
      /** 0 = not known. */
      readonly retryAfterMs: number;
      /** It may have been stored all the same; it is being called off. */
      readonly ambiguous: boolean;
      /** For 429: limit and what is left of it. */
      readonly rate: Rate | null;
    };

export interface Rate {
  readonly limit: number;
  readonly remaining: number;
  readonly resetMs: number;
}

export interface TaskView {
  readonly taskId: string;
  readonly powerId: string;
  readonly capability: string;
  readonly state: TaskState;
  readonly lane: Lane | null;
  readonly acceptedAtMs: number;
  readonly events: readonly TaskEvent[];
  /** The result's bytes when they are at hand; null = not finished, or not kept. */
  readonly result: Buffer | null;
}

export interface SendDoor {
  submit(submission: Submission): Promise<Submitted>;
  /** null = not known, or another agent's; `unsure` = not known here, and it could not be looked up everywhere now. */
  task(principal: Principal, taskId: string): Promise<TaskView | null | 'unsure'>;
  /** Calls `hear` at each change from now on; the current state first. null, `unsure`: as above. */
  watch(principal: Principal, taskId: string, hear: (view: TaskView) => void): Promise<{ close(): void } | null | 'unsure'>;
  /** `too_late`: it is being worked on and cannot be stopped, or has ended. `unsure`: as above. */
  cancel(principal: Principal, taskId: string): Promise<'cancelled' | 'requested' | 'too_late' | 'unknown' | 'unsure'>;
  /** Rate of an agent, for RateLimit headers. */
  rate(agent: string): Rate;
  /** Another rate for one agent from now on, until the sidecar stops; null = that of its settings for everybody. */
  setRate(agent: string, rate: RateSettings | null): void;
}
