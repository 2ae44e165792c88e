/**
 * A message without durable messages: carried out at once as a call, in the background, and nothing is promised. For
 * senders that say so themselves; everybody else is refused.
 */
import type { Clock } from '../../base/clock.ts';
import type { Random } from '../../base/random.ts';
import { Code, codeEntry } from '../../proto/wire/codes.ts';
import { MESSAGE_CAPABILITY, MESSAGE_WIRE } from '../../proto/wire/envelope.ts';
import { Header } from '../../proto/wire/headers.ts';
import type { TaskEvent } from '../../proto/wire/messages.ts';
import { readTraceContext } from '../../proto/wire/trace-context.ts';
import { Call } from '../call/call.ts';
import { resultOf } from '../call/result.ts';
import type { Submission, Submitted } from './door.ts';
import { TASK_REQUEST } from './envelope-of.ts';
import type { Home } from './home.ts';
import { refused } from './sender.ts';

export interface BestEffortParts {
  readonly clock: Clock;
  readonly random: Random;
  readonly home: Home;
  readonly instance: string;
  /** The caller's end of the pipeline; never rejects. */
  readonly call: (call: Call) => Promise<void>;
}

/** Carried out at once; more would be a queue in memory. */
const MOST_AT_ONCE = 1_024;

export class BestEffort {
  readonly #parts: BestEffortParts;
  readonly #open = new Set<Call>();
  #last = 0;

  constructor(parts: BestEffortParts) {
    this.#parts = parts;
  }

  submit(submission: Submission): Submitted {
    const { clock, random, home, instance } = this.#parts;
    const { target, principal } = submission;
    if (target.role !== null || (target.capability === null && target.agent === null))
      return refused(Code.delivery_unavailable, 'without durable messages a role cannot be addressed: name a capability');
    if (this.#open.size >= MOST_AT_ONCE)
      return refused(Code.caller_busy, `${this.#open.size} messages are being carried out without a promise already`, 1_000);
    const asked = target.capability ?? MESSAGE_CAPABILITY;
    const headers: Record<string, string | string[] | undefined> = { ...submission.headers };
    // The tags are the message's; for a call they would choose a provider.
    delete headers[Header.tags];
    if (target.agent !== null) headers[Header.pin] = target.agent;
    const call = new Call('message', asked, headers, submission.payload, submission.contentType, false, clock);
    readTraceContext(call, headers[Header.traceparent], headers[Header.tracestate], random);
    call.principal = principal;
    const taskId = `${instance}b${(++this.#last).toString(36)}`;
    const powerId = submission.key ?? `${principal.agent}:${taskId}:${clock.wallMs()}`;
    const capability = asked.split('@', 1)[0] as string;
    home.accepted({ taskId, powerId, agent: principal.agent, capability, lane: null, state: 'accepted', acceptedAtMs: clock.wallMs() });
    this.#open.add(call);
    void this.#run(call, taskId, powerId, submission);
    return {
      ok: true,
      taskId,
      powerId,
      durable: 'none',
      state: 'accepted',
      capability,
      version: null,
      lane: submission.priority ?? 'normal',
      rule: null,
      traceId: call.traceId,
    };
  }

  /** What is under way is given up. */
  close(): void {
    for (const call of this.#open) call.cancel();
    this.#open.clear();
  }

  async #run(call: Call, taskId: string, powerId: string, submission: Submission): Promise<void> {
    const { clock, home } = this.#parts;
    await this.#parts.call(call);
    this.#open.delete(call);
    const result = resultOf(call, false);
    const { reply } = call;
    const event: TaskEvent = {
      wire: MESSAGE_WIRE,
      kind: 'state',
      task_id: taskId,
      power_id: powerId,
      message_type: submission.messageType ?? TASK_REQUEST,
      capability: call.capability?.name ?? '',
      state: call.cancelled ? 'cancelled' : result.entry.code === Code.ok ? 'done' : 'failed',
      code: result.entry.code,
      cause: '',
      detail: result.detail === '' && result.entry.code !== Code.ok ? codeEntry(result.entry.code).meaning : result.detail,
      by: result.provider ?? '',
      version: result.version ?? '',
      attempts: call.attempts.length,
      at_ms: clock.wallMs(),
      received_at_ms: 0,
      status: result.status,
      content_type: typeof reply?.headers['content-type'] === 'string' ? reply.headers['content-type'] : '',
      replay: false,
      trace_id: call.traceId,
    };
    home.noted(event, call.staticBody ?? reply?.body ?? null, submission.principal.agent);
  }
}
