/** A task that was sent: where it is durable, what becomes of it, its result, and calling it off. */
import { Code, codeEntry } from '../../proto/wire/codes.ts';
import { parsed, resultIn } from './answer.ts';
import type { Ask } from './ask.ts';
import { ReachError } from './error.ts';
import type { Http, HttpAnswer } from './http.ts';
import { ownFailure } from './result.ts';
import { Backoff, pause } from './serve/backoff.ts';

type Fields = Readonly<Record<string, unknown>>;

/**
 * How far a task is. On the way: `accepted` (it waits for a free worker), `parked` (nobody is there who could work on it), `received`
 * (an agent has it), `waiting` (a try failed, and another one follows). Ends: `done`; `failed` (the agent, or a check, said no);
 * `dead_lettered` (every try failed); `in_doubt` (its worker vanished, and it must not be begun twice); `expired`; `cancelled`. Dead
 * ones and those in doubt are kept for a person, whose release gives them another end.
 */
export type TaskState =
  | 'accepted'
  | 'waiting'
  | 'received'
  | 'done'
  | 'failed'
  | 'dead_lettered'
  | 'in_doubt'
  | 'expired'
  | 'parked'
  | 'cancelled';

/** What the sidecar answered when the message was durable. */
export interface Accepted {
  readonly taskId: string;
  readonly powerId: string;
  /** Where it is durable; `none`: no promise was asked for. */
  readonly durable: 'stream' | 'local-disk' | 'none';
  /** `parked`: nobody is there to work on it now, and it waits. */
  readonly state: 'accepted' | 'parked';
  readonly capability: string;
  readonly version: string | null;
  readonly lane: 'high' | 'normal' | 'low';
  readonly rule: string | null;
  readonly traceId: string;
}

export interface TaskStatus<T = unknown> {
  readonly taskId: string;
  readonly powerId: string;
  readonly capability: string;
  readonly state: TaskState;
  /** It stays so. */
  readonly isFinal: boolean;
  readonly lane: string | null;
  /** Milliseconds since 1970, by the clock of the sender's sidecar; null = not known (any more). */
  readonly acceptedAtMs: number | null;
  /** The same of the worker's sidecar, when an agent was known to have it; null = not yet, or it was too quick to be told. */
  readonly receivedAtMs: number | null;
  /** Who has it, or had it last; null = nobody. */
  readonly by: string | null;
  readonly version: string | null;
  /** Hand-overs to agents so far. */
  readonly attempts: number;
  /** 0 = fine; else of docs/errors.md. */
  readonly code: number;
  /** Such as `attempts_exhausted` or `worker_vanished`; null = the code says it all. */
  readonly cause: string | null;
  readonly detail: string | null;
  /** The agent's own status; 0 = none. */
  readonly status: number;
  /** The result had been made before, for the same key. */
  readonly replay: boolean;
  readonly traceId: string | null;
  /** JSON, text, or {base64, content_type}; null = none, or not yet. */
  readonly result: T;
  /** Each change, as the sidecar tells it. */
  readonly events: readonly Fields[];
}

/** One request waits so long, and is followed by the next. */
const WAIT_MS = 30_000;
const PATIENCE_MS = 15_000;

/** A task of this agent, wherever it is worked on. Nothing here is repeated: it only asks what became of it. `T` is its result. */
export class Task<T = unknown> {
  /** 8 to 40 of a-z and 0-9. Worth keeping: `reach.task(id)` finds it again, also after a restart. */
  readonly id: string;
  /** null = the task was looked up by its id. */
  readonly accepted: Accepted | null;
  readonly #http: Http;

  /** @internal */
  constructor(http: Http, id: string, accepted: Accepted | null) {
    this.#http = http;
    this.id = id;
    this.accepted = accepted;
  }

  /** As it is now. Rejects with a ReachError when no such task of this agent is known. */
  async status(): Promise<TaskStatus<T>> {
    return this.#read(await this.#http.ask(this.#ask('GET', '', [], PATIENCE_MS)));
  }

  /** When it has ended, or as it is when the time (milliseconds) is over. A sidecar that is away meanwhile is asked again. */
  async wait({ timeoutMs = Number.POSITIVE_INFINITY, signal }: { timeoutMs?: number; signal?: AbortSignal } = {}): Promise<TaskStatus<T>> {
    const { clock, random } = this.#http.settings;
    const until = clock.now() + timeoutMs;
    const backoff = new Backoff(random);
    const signals = signal === undefined ? [] : [signal];
    for (;;) {
      const waitMs = Math.round(Math.max(0, Math.min(WAIT_MS, until - clock.now())));
      try {
        const view = this.#read(await this.#http.ask(this.#ask('GET', `?wait=${waitMs}ms`, signals, waitMs + PATIENCE_MS)));
        if (view.isFinal || clock.now() >= until) return view;
        backoff.reset();
        // A sidecar that stops answers before the time is over.
        if (waitMs > 0) await pause(1, clock, signal ?? NEVER);
      } catch (error) {
        if (!isPassing(error) || this.#http.isClosed || clock.now() >= until) throw error;
        await pause(Math.min(backoff.next(), until - clock.now()), clock, signal ?? NEVER);
      }
    }
  }

  /**
   * The result of a task that is done: JSON, text, or {base64, content_type}. Rejects with a ReachError for every other end, with
   * its code: that of the failure (6001 with the agent's own `data` and `status`), 7002 dead_lettered, 7003 in_doubt, 7004
   * expired, 5003 cancelled; and with 5001 when the time is over first: the task goes on. Without `timeoutMs` it waits for as long as it takes.
   */
  async result(options: { timeoutMs?: number; signal?: AbortSignal } = {}): Promise<T> {
    const { state, isFinal, code, detail, result, status } = await this.wait(options);
    if (state === 'done') return result;
    const failed = isFinal ? (code as Code) || Code.cancelled : Code.deadline_exceeded;
    const words = isFinal ? `the task is ${state}: ${detail ?? codeEntry(failed).meaning}` : `the task is ${state} still`;
    throw new ReachError({ ...ownFailure(failed, words, state === 'in_doubt' || !isFinal, 0), data: result, status });
  }

  /** `cancelled`: it was stopped. `requested`: it will be, if that is still possible. `too_late`: it has ended, or cannot be stopped. */
  async cancel(): Promise<'cancelled' | 'requested' | 'too_late'> {
    const answer = await this.#http.ask(this.#ask('DELETE', '', [], PATIENCE_MS));
    if (answer.status === 409) return 'too_late';
    const json = parsed(answer.bytes) as Fields | undefined;
    if (answer.status < 300 && (json?.['outcome'] === 'cancelled' || json?.['outcome'] === 'requested')) return json['outcome'];
    throw failureIn(answer);
  }

  #read(answer: HttpAnswer): TaskStatus<T> {
    const json = parsed(answer.bytes) as Fields | undefined;
    if (answer.status !== 200 || typeof json?.['state'] !== 'string') throw failureIn(answer);
    return statusOf(json) as TaskStatus<T>;
  }

  #ask(method: Ask['method'], query: string, signals: readonly AbortSignal[], limitMs: number): Ask {
    return { method, path: `/v1/tasks/${encodeURIComponent(this.id)}${query}`, headers: {}, body: null, signals, limitMs };
  }
}

const NEVER = new AbortController().signal;

/** The task in the answer to a submission; throws the refusal. */
export function taskIn<T>(http: Http, answer: HttpAnswer): Task<T> {
  const json = parsed(answer.bytes) as Fields | undefined;
  if (answer.status !== 202 || typeof json?.['task_id'] !== 'string') throw failureIn(answer);
  const accepted: Accepted = {
    taskId: json['task_id'],
    powerId: String(json['power_id']),
    durable: json['durable'] as Accepted['durable'],
    state: json['state'] as Accepted['state'],
    capability: String(json['capability']),
    version: json['version'] as string | null,
    lane: json['lane'] as Accepted['lane'],
    rule: json['rule'] as string | null,
    traceId: String(json['trace_id']),
  };
  return new Task<T>(http, accepted.taskId, accepted);
}

/** Whatever else a sidecar, or somebody who is none, has answered. */
export function failureIn(answer: HttpAnswer): ReachError {
  const result = resultIn(answer, 0);
  return new ReachError(result.ok ? ownFailure(Code.bad_response, 'the answer is not a sidecar’s', false, 0) : result);
}

/** The same question may be answered later: the sidecar, or what is behind it, is away. */
export function isPassing(error: unknown): boolean {
  if (!(error instanceof ReachError)) return false;
  switch (error.code) {
    case Code.connect_timeout:
    case Code.connection_lost:
    case Code.deadline_exceeded:
    case Code.delivery_unavailable:
    case Code.blocked_by_operator:
    case Code.none_healthy:
      return true;
    default:
      return false;
  }
}

function statusOf(json: Fields): TaskStatus {
  return {
    taskId: String(json['task_id']),
    powerId: String(json['power_id']),
    capability: String(json['capability']),
    state: json['state'] as TaskState,
    isFinal: json['is_final'] === true,
    lane: json['lane'] as string | null,
    acceptedAtMs: json['accepted_at_ms'] as number | null,
    receivedAtMs: json['received_at_ms'] as number | null,
    by: json['by'] as string | null,
    version: json['version'] as string | null,
    attempts: Number(json['attempts']),
    code: Number(json['code']),
    cause: json['cause'] as string | null,
    detail: json['detail'] as string | null,
    status: Number(json['status']),
    replay: json['replay'] === true,
    traceId: json['trace_id'] as string | null,
    result: json['result'] ?? null,
    events: json['events'] as readonly Fields[],
  };
}
