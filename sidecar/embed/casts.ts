/** Messages from inside the process: a value and options to a Submission, and what came of it to a plain object. */
import { jsonText } from '../../base/json-text.ts';
import { submissionFrom } from '../accept/submission.ts';
import type { Front } from '../accept/front.ts';
import { submitted } from '../accept/cast.ts';
import { type Accepted, acceptedOf } from '../accept/submitted.ts';
import { codeEntry, type CodeName } from '../../proto/wire/codes.ts';
import { Header } from '../../proto/wire/headers.ts';
import type { TaskEvent, TaskState } from '../../proto/wire/messages.ts';
import { FINAL_STATES } from '../../proto/wire/messages.ts';
import { NO_BODY } from '../call/reply.ts';
import type { TaskView } from '../send/door.ts';
import type { Calls } from './calls.ts';
import { type CallOptions, headersOf } from './options.ts';
import { inherit, workNow } from './work.ts';

/** What a sender may say of a message: the headers of `POST /v1/cast` under other names. */
export interface CastOptions extends Pick<CallOptions, 'as' | 'affinity' | 'sequenceId' | 'tags' | 'powerId' | 'contentType' | 'headers'> {
  /** Default `task_request`. */
  readonly messageType?: string;
  readonly priority?: 'high' | 'normal' | 'low';
  /** false = a failed try is not followed by another. */
  readonly retryable?: boolean;
  /** Milliseconds after which it is given up when nobody has begun. */
  readonly expiresMs?: number;
  /** Working time of all tries, milliseconds. */
  readonly deadlineMs?: number;
  /** Whoever has this role, or this agent; with or instead of a capability. */
  readonly role?: string;
  readonly agent?: string;
  /** Default `inbox`. */
  readonly replyTo?: 'inbox' | 'none';
  /** Id of the task that it belongs to. */
  readonly inReplyTo?: string;
  /** Without durable messages: carried out at once, and nothing is promised. */
  readonly bestEffort?: boolean;
}

export type CastResult =
  | ({ readonly ok: true } & Accepted)
  | {
      readonly ok: false;
      readonly code: number;
      readonly name: CodeName;
      readonly message: string;
      readonly detail: string;
      readonly retryable: boolean;
      /** It may have been stored all the same, and is being called off: send it again with the same key only. */
      readonly ambiguous: boolean;
      /** When to come back; 0 = not known. */
      readonly retryAfterMs: number;
      /** How many messages this agent may submit, when that is why; null = it is not. */
      readonly rate: { readonly limit: number; readonly remaining: number; readonly resetMs: number } | null;
    };

export interface TaskStatus {
  readonly taskId: string;
  readonly state: TaskState;
  readonly isFinal: boolean;
  readonly capability: string;
  readonly events: readonly TaskEvent[];
  /** null = there is none, or none yet. */
  readonly result: Buffer | null;
}

export class Casts {
  readonly #front: Front;
  readonly #calls: Calls;

  constructor(front: Front, calls: Calls) {
    this.#front = front;
    this.#calls = calls;
  }

  /** Who is meant where nobody is named: the agent whose function asks, else that of the process. Throws when there is none. */
  agentOf(as: string | undefined): string {
    return this.#calls.principal(as ?? workNow()?.agent ?? this.#calls.agent).agent;
  }

  /** @param target null = a role or an agent is addressed by the options. */
  async cast(target: string | null, payload: unknown, options: CastOptions): Promise<CastResult> {
    const work = workNow();
    const headers = headersFor(options);
    if (work !== null) inherit(work, this.#front.engine.clock, headers);
    const isBytes = payload instanceof Uint8Array;
    const body = payload === undefined ? NO_BODY : isBytes ? Buffer.from(payload) : Buffer.from(jsonText(payload) ?? 'null', 'utf8');
    const contentType = options.contentType ?? (body.length === 0 ? '' : isBytes ? 'application/octet-stream' : 'application/json');
    const principal = this.#calls.principal(options.as ?? work?.agent ?? this.#calls.agent);
    const came = await submitted(this.#front, submissionFrom(principal, target, headers, body, contentType));
    if (came.ok) return { ok: true, ...acceptedOf(came) };
    const { code, name, meaning, retryable } = codeEntry(came.code);
    const { detail, ambiguous, retryAfterMs, rate } = came;
    return { ok: false, code, name, message: meaning, detail, retryable: retryable && !ambiguous, ambiguous, retryAfterMs, rate };
  }

  /** null = not known, or another agent's; `unsure` = it cannot be looked up now. */
  async task(taskId: string, as: string | undefined): Promise<TaskStatus | null | 'unsure'> {
    const view = await this.#front.send?.task(this.#calls.principal(as ?? workNow()?.agent ?? this.#calls.agent), taskId);
    return view === null || view === undefined ? null : view === 'unsure' ? view : statusOf(view);
  }

  /** When it has ended, or as it is when the time is over. */
  async wait(taskId: string, timeoutMs: number, as: string | undefined): Promise<TaskStatus | null | 'unsure'> {
    const { send, engine } = this.#front;
    const principal = this.#calls.principal(as ?? workNow()?.agent ?? this.#calls.agent);
    let over = (): void => undefined;
    const ended = new Promise<void>((done) => (over = done));
    const watching = await send?.watch(principal, taskId, ({ state }) => {
      if (FINAL_STATES.has(state)) over();
    });
    if (watching === null || watching === undefined || watching === 'unsure') return watching ?? null;
    const waiting = { cancel: over };
    this.#front.waiting.add(waiting);
    const timer = engine.clock.after(timeoutMs, over);
    await ended;
    timer.cancel();
    watching.close();
    this.#front.waiting.delete(waiting);
    return await this.task(taskId, as);
  }

  async cancel(taskId: string, as: string | undefined): Promise<'cancelled' | 'requested' | 'too_late' | 'unknown' | 'unsure'> {
    const principal = this.#calls.principal(as ?? workNow()?.agent ?? this.#calls.agent);
    return (await this.#front.send?.cancel(principal, taskId)) ?? 'unknown';
  }
}

function headersFor(options: CastOptions): Record<string, string> {
  const { messageType, priority, retryable, expiresMs, deadlineMs, role, agent, replyTo, inReplyTo, bestEffort, ...common } = options;
  const headers = headersOf(common);
  if (messageType !== undefined) headers[Header.messageType] = messageType;
  if (priority !== undefined) headers[Header.priority] = priority;
  if (retryable !== undefined) headers[Header.retryable] = String(retryable);
  if (expiresMs !== undefined) headers[Header.expires] = `${Math.round(expiresMs)}ms`;
  if (deadlineMs !== undefined) headers[Header.deadlineTotalMs] = String(Math.round(deadlineMs));
  if (role !== undefined) headers[Header.role] = role;
  if (agent !== undefined) headers[Header.agent] = agent;
  if (replyTo !== undefined) headers[Header.replyTo] = replyTo;
  if (inReplyTo !== undefined) headers[Header.inReplyTo] = inReplyTo;
  if (bestEffort !== undefined) headers[Header.bestEffort] = bestEffort ? '1' : '0';
  return headers;
}

function statusOf({ taskId, state, capability, events, result }: TaskView): TaskStatus {
  return { taskId, state, isFinal: FINAL_STATES.has(state), capability, events: [...events], result };
}
