/**
 * What sidecars and the control plane say to each other about durable messages: which pools there are and who works on them,
 * what became of a task, what is kept for people. JSON, with a wire number; unknown fields are ignored.
 */
import type { Rule } from '../language/rule.ts';
import type { Envelope } from './envelope.ts';

/**
 * Tasks for which the same workers are eligible. Its id is derived from the other fields (`poolId`), so that two sidecars
 * that never spoke mean the same pool.
 */
export interface Pool {
  /** `p` and 20 of a-z2-7. */
  readonly id: string;
  /** The worker must offer it. */
  readonly capability: string;
  /** Exact version; null = any that the worker offers (pools by role or agent). */
  readonly version: string | null;
  /** The worker's role, or a tag of it; null = any. */
  readonly role: string | null;
  /** One agent; null = any. */
  readonly agent: string | null;
  /** Message tags on which eligibility depends: a worker whose `target{}` names one of them must have the same value. */
  readonly tags: Readonly<Record<string, string>>;
  /** Tasks of one key go to one worker, in order. */
  readonly sticky: boolean;
}

export const PARTITIONS = 8;

/** 130 bits. */
export const POOL_SECRET = /^[a-z2-7]{26}$/;
const SECRET_END = /_[a-z2-7]{26}$/;

/** Stored as `pool.<id>` in AR_CFG, written by the leader only. */
export interface PoolState {
  readonly wire: number;
  readonly epoch: string;
  readonly pool: Pool;
  /**
   * Of a sticky pool, PARTITIONS of them: who owns each one; '' = nobody yet. `term` rises at each change of owner, or of the process
   * that hosts it (`host`: `<sidecar>/<instance>`), and names the consumer.
   */
  readonly partitions: readonly { readonly owner: string; readonly term: number; readonly host?: string }[];
  /** In the names of its consumers; absent = they have none, since a sidecar of the version before works on it. */
  readonly secret?: string;
}

/** Request `ctl.pool`: this pool is going to be used. Answered with `PoolAnswer` once its consumers exist. */
export interface PoolAsk {
  readonly wire: number;
  readonly sidecar: string;
  readonly pool: Pool;
}

export interface PoolAnswer {
  readonly wire: number;
  readonly ok: boolean;
  /** Why not; '' = it is there. */
  readonly why: string;
}

/** Stored as `work.<sidecar>` in AR_CFG: the pools on which agents of this sidecar work. */
export interface WorkState {
  readonly wire: number;
  readonly epoch: string;
  readonly pools: readonly WorkPool[];
}

export interface WorkPool {
  readonly pool: Pool;
  /** Agent ids hosted here that are eligible. */
  readonly agents: readonly string[];
  /** Of a sticky pool: the partitions that these agents own. Another process than the named one leaves them alone. */
  readonly partitions: readonly { readonly index: number; readonly owner: string; readonly term: number; readonly host?: string }[];
  /** As in `PoolState`. Only sidecars that work on the pool are told. */
  readonly secret?: string;
}

/**
 * Durable consumers of AR_TASKS, made by the control plane. Several sidecars share one, and which pools there are is not known when
 * permissions are made; so a name ends in what nobody can guess, told only to those who work on the pool: whoever does not know it
 * can neither pull there nor acknowledge for others.
 */
export const Consumer = {
  lane: (pool: string, lane: string, secret = ''): string => `${pool}_${lane}${secret === '' ? '' : `_${secret}`}`,
  partition: (pool: string, index: number, term: number, secret = ''): string =>
    `${pool}_s${index}_t${term}${secret === '' ? '' : `_${secret}`}`,
  /** Without its secret, for logs. */
  shown: (name: string): string => name.replace(SECRET_END, ''),
  /** Of AR_INBOX. */
  inbox: (sidecar: string): string => `inbox_${sidecar}`,
} as const;

/** Stored as `rules` in AR_CFG: the rules in force, for every sidecar that sends. */
export interface RulesState {
  readonly wire: number;
  readonly epoch: string;
  /** Version of the operators' document in which they last changed. */
  readonly version: number;
  readonly rules: readonly Rule[];
  /** A staged roll-out: sidecars in the share use these instead. */
  readonly staged: { readonly version: number; readonly share: number; readonly rules: readonly Rule[] } | null;
}

/** A message as rules see it, and the rule that decided: of accepted ones a sidecar remembers some, without payload and names. */
export interface RecordedMessage {
  readonly message_type: string;
  readonly source_role: string;
  readonly target_role: string | null;
  readonly capability: string | null;
  readonly tags: Readonly<Record<string, string>>;
  readonly rule: string | null;
}

/** Answer to `ask` about messages. */
export interface RecordedAnswer {
  readonly wire: number;
  readonly ok: true;
  /** Newest first. */
  readonly messages: readonly RecordedMessage[];
}

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

export const FINAL_STATES: ReadonlySet<TaskState> = new Set(['done', 'failed', 'dead_lettered', 'in_doubt', 'expired', 'cancelled']);

/**
 * What became of a task. Final ones are messages of AR_INBOX (subject `inbox(home, reply_to)`): this line of JSON, a newline,
 * then the result's bytes. Those that are not final go to the sender's home over core NATS (`note(home)`), without bytes.
 */
export interface TaskEvent {
  readonly wire: number;
  readonly kind: 'state';
  readonly task_id: string;
  readonly power_id: string;
  readonly message_type: string;
  readonly capability: string;
  readonly state: TaskState;
  /** Code of the closed table; 0 = fine. */
  readonly code: number;
  /** Such as `attempts_exhausted`; '' = the code says it all. */
  readonly cause: string;
  readonly detail: string;
  /** Agent id and version of who has it, or had it last; '' = nobody. */
  readonly by: string;
  readonly version: string;
  /** Hand-overs so far. */
  readonly attempts: number;
  /** Wall clock of the worker's sidecar. */
  readonly at_ms: number;
  /** When the agent had it; 0 = never, or unknown. */
  readonly received_at_ms: number;
  /** The provider's own status; 0 = none. */
  readonly status: number;
  readonly content_type: string;
  /** The result had been made before, for the same key. */
  readonly replay: boolean;
  readonly trace_id: string;
  /** W3C trace context of the message, as in its envelope. Absent = an older program wrote this. */
  readonly traceparent?: string;
}

/**
 * A message to one agent that takes none by `agent.message.handle`: it lies in the agent's inbox as it is, this line and then the
 * payload. The sidecar that keeps the inbox says that it is there (state `done`), to the inbox of whoever sent it.
 */
export interface InboxMessage
  extends Pick<
    Envelope,
    | 'task_id'
    | 'power_id'
    | 'message_type'
    | 'source'
    | 'home'
    | 'reply_to'
    | 'tags'
    | 'sequence_id'
    | 'in_reply_to'
    | 'content_type'
    | 'traceparent'
    | 'accepted_at_ms'
    | 'home_statement'
  > {
  readonly wire: number;
  readonly kind: 'message';
}

/**
 * Up to where an agent has acknowledged its inbox. One record an agent in AR_IDEM (`floorKey`), whichever sidecar it is at home
 * with; gone after as long as the inbox keeps its messages, when nothing that it covers is left.
 */
export interface FloorRecord {
  readonly wire: number;
  readonly kind: 'floor';
  readonly agent: string;
  readonly seq: number;
}

/** Why a message is kept for people. */
export type KeptKind = 'dead' | 'in_doubt' | 'review';

/**
 * An entry of AR_DLQ, subject `kept(kind, task)`: this line of JSON, a newline, then the message as it stood in AR_TASKS
 * (envelope, newline, payload).
 */
export interface KeptEntry {
  readonly wire: number;
  readonly kind: KeptKind;
  readonly task_id: string;
  readonly capability: string;
  readonly source: string;
  readonly code: number;
  readonly cause: string;
  readonly detail: string;
  readonly attempts: readonly { readonly by: string; readonly at_ms: number; readonly code: number; readonly detail: string }[];
  /** Wall clock, for people. */
  readonly since_ms: number;
  /** The rule that wants a person to look; null = none. */
  readonly rule: string | null;
}

/** Requests of sidecars about tasks, answered by the leader: `ctl.task`. */
export type TaskAsk =
  /** What became of it: for tasks that their home no longer remembers. `from`: `more` of the answer before. */
  | {
      readonly wire: number;
      readonly what: 'status';
      readonly sidecar: string;
      readonly agent: string;
      readonly task_id: string;
      readonly from?: TaskCursor;
    }
  /** The inbox of an agent from `from` on, also what is acknowledged. At most `limit` entries or a mebibyte. */
  | {
      readonly wire: number;
      readonly what: 'inbox';
      readonly sidecar: string;
      readonly agent: string;
      readonly from: number;
      readonly limit: number;
    };

/** Sequences from which on is to be looked: in the agent's inbox, and in the queue; -1 = there is nothing more to look at there. */
export interface TaskCursor {
  readonly inbox: number;
  readonly queue: number;
}

/**
 * Answer to `TaskAsk`. It goes to an inbox of the asking sidecar (`_INBOX.<sidecar>.…`) and to nowhere else, so that who may
 * not listen there learns nothing.
 */
export type TaskAnswer =
  | {
      readonly wire: number;
      readonly ok: true;
      readonly what: 'status';
      readonly found: TaskFound | null;
      /** Not everything was looked at: ask again from here. What is found then counts more. Absent = that was all. */
      readonly more?: TaskCursor;
    }
  | {
      readonly wire: number;
      readonly ok: true;
      readonly what: 'inbox';
      /** In the order of `seq`; `writer`: as `InboxPlace` has it; `data` is the whole message (head line, newline, bytes) in base64. */
      readonly entries: readonly { readonly seq: number; readonly home: string; readonly writer?: string | null; readonly data: string }[];
      /** There is more after the last entry. */
      readonly more: boolean;
      /** First sequence that the stream still has, and its last one: what is before is gone, what is after is ahead. */
      readonly first: number;
      readonly last: number;
    }
  | { readonly wire: number; readonly ok: false; readonly code: number; readonly why: string };

/** Where a task was found that its home no longer remembers. */
export interface TaskFound {
  readonly state: TaskState;
  readonly capability: string;
  readonly power_id: string;
  /** Its final event, when it is in the inbox still; null = it has none, or nobody wanted one. */
  readonly event: TaskEvent | null;
  /** The result's bytes in base64; null = none, or more than half a mebibyte. */
  readonly result: string | null;
  /** How it is kept for people; null = it is not. */
  readonly kept: KeptEntry | null;
}

/** Core NATS, `cancel`: whoever has this task waiting or in hand stops it. Also remembered by workers for what they pull later. */
export interface CancelNote {
  readonly wire: number;
  readonly task_id: string;
  readonly source: string;
}

/** Of the worker that has the task, at once; who has it not says nothing. `cancelled`: it was stopped before its end, and a final event follows. */
export interface CancelAnswer {
  readonly wire: number;
  readonly task_id: string;
  readonly outcome: 'cancelled' | 'too_late';
}
