/** What the API answers about tasks and pools, in the words of its JSON; `_ms` as in `shapes.ts`. */
import type { Envelope } from '../../proto/wire/envelope.ts';
import type { KeptEntry, KeptKind } from '../../proto/wire/messages.ts';

export interface KeptView {
  readonly seq: number;
  readonly kind: KeptKind;
  readonly task_id: string;
  readonly power_id: string;
  readonly capability: string;
  readonly version: string | null;
  readonly source: string;
  readonly lane: string | null;
  readonly pool: string | null;
  readonly code: number;
  readonly name: string;
  readonly cause: string;
  readonly detail: string;
  readonly attempts: number;
  readonly rule: string | null;
  /** By the clock of NATS. */
  readonly since_ms: number;
  readonly payload_bytes: number;
  readonly content_type: string;
}

export interface KeptAnswer {
  readonly entries: readonly KeptView[];
  readonly next: number | null;
}

/** What everybody may see of a message: neither what its sender's headers say, nor what is signed. */
export type MessageShown = Pick<
  Envelope,
  | 'message_type'
  | 'source'
  | 'home'
  | 'in_reply_to'
  | 'target'
  | 'capability'
  | 'version'
  | 'pool'
  | 'lane'
  | 'tags'
  | 'sequence_id'
  | 'retryable'
  | 'expires_ms'
  | 'deadline_ms'
  | 'timeout_ms'
  | 'traceparent'
  | 'path'
  | 'content_type'
  | 'rule'
  | 'accepted_at_ms'
> & {
  /** Their names. */
  readonly headers: readonly string[];
};

/** `message`: null when it cannot be read. */
export type KeptShown = KeptView & { readonly tries: KeptEntry['attempts']; readonly message: MessageShown | null };

export interface PayloadAnswer {
  readonly content_type: string;
  /** The sender's, that the worker is given. */
  readonly headers: Readonly<Record<string, string>>;
  readonly base64: string;
}

export interface TaskOrderAnswer {
  readonly task_id: string;
  readonly kind: KeptKind;
  readonly capability: string;
  readonly version: string | null;
  /** Where it went; null = it was dropped. */
  readonly pool: string | null;
}

export interface RedriveAnswer {
  readonly redriven: number;
  readonly failed: readonly { readonly task_id: string; readonly why: string }[];
  /** Why the rest was not looked at; null = all were. */
  readonly stopped: string | null;
}

export interface PoolView {
  readonly pool: string;
  readonly words: string;
  readonly capability: string | null;
  readonly version: string | null;
  readonly role: string | null;
  readonly agent: string | null;
  readonly tags: Readonly<Record<string, string>>;
  readonly sticky: boolean;
  readonly messages: number;
  readonly lanes: Readonly<Record<string, number>>;
  /** With workers, or waiting for another try; as it was some seconds ago. */
  readonly in_hand: number;
  readonly agents: number;
  /** Of these, those that are drained. */
  readonly drained: number;
  readonly sidecars: readonly string[];
  readonly owners: readonly string[];
  /** Age of the oldest message; null = there is none. */
  readonly oldest_ms: number | null;
}

export interface PoolsAnswer {
  readonly pools: readonly PoolView[];
}

export interface ParkedView {
  readonly seq: number;
  readonly task_id: string;
  readonly message_type: string;
  readonly capability: string;
  readonly version: string | null;
  readonly source: string;
  readonly lane: string;
  readonly rule: string | null;
  readonly tags: Readonly<Record<string, string>>;
  /** By the clock of NATS. */
  readonly since_ms: number;
  readonly payload_bytes: number;
}

export interface ParkedAnswer {
  readonly tasks: readonly ParkedView[];
  readonly next: number | null;
}

export interface HandledAnswer {
  readonly done: readonly string[];
  readonly failed: readonly { readonly task_id: string; readonly why: string }[];
}
