/**
 * A durable message as it lies in a stream: one line of JSON, the envelope, then the payload's bytes exactly as the sender
 * gave them. Whoever moves a message reads the line only, and never the payload. What is stamped by a sidecar (`source`,
 * `home`, `capability`, `version`, `pool`, `lane`, `rule`) is never taken from what an agent wrote.
 */
import { readsWire } from './version.ts';

export const MESSAGE_WIRE = 1;

/** Highest first. */
export const LANES = ['high', 'normal', 'low'] as const;
export type Lane = (typeof LANES)[number];

export interface Envelope {
  readonly wire: number;
  /** Names this submission: 8 to 40 of a-z, 0-9. */
  readonly task_id: string;
  /** The idempotency key: the caller's, else `{agent_id}:{task_id}:{timestamp_ms}`. */
  readonly power_id: string;
  /** The caller gave the key: repeats of it are looked for across all sidecars. */
  readonly keyed: boolean;
  /** `task_request`, `task_result`, `health_check` or any other word `[a-z][a-z0-9_]{0,62}`. */
  readonly message_type: string;
  /** Agent id of the sender, stamped. */
  readonly source: string;
  /** The sidecar to whose inboxes state and result of the task go. */
  readonly home: string;
  /** Agent id whose inbox gets result and states; null = nobody wants them. */
  readonly reply_to: string | null;
  /** The task's id of which this is the result, or that the sender says it belongs to; null = none. */
  readonly in_reply_to: string | null;
  /** What the sender addressed. */
  readonly target: Target;
  /** Canonical capability that the worker serves. */
  readonly capability: string;
  /** Exact version; null for pools by role or agent, where the worker's own is used. */
  readonly version: string | null;
  readonly pool: string;
  readonly lane: Lane;
  readonly tags: Readonly<Record<string, string>>;
  /** The sender's conversation, for stickiness. */
  readonly sequence_id: string | null;
  /** Of a message to a sticky pool: what its order is kept by (the value of the rule's `sticky_by`). Absent = it has none. */
  readonly sticky_key?: string;
  /** The sender says whether a failed try may be followed by another. */
  readonly retryable: boolean;
  /** From acceptance, milliseconds; in the queue, from when the server stored it: what lay on the sender's disk before has less. */
  readonly expires_ms: number;
  /** Total working time of all tries, milliseconds; null = only `timeout_ms` counts. */
  readonly deadline_ms: number | null;
  /** One try, from hand-over, renewed by extension. */
  readonly timeout_ms: number;
  /** W3C trace context of the sender's call. */
  readonly traceparent: string;
  readonly tracestate: string;
  /**
   * The span in which it was sent (16 hex digits), which is the parent of the one that `traceparent` names: whoever has the message can
   * tell the whole timeline again when its sender is gone. Absent = the trace begins with it, or an older sidecar sent it.
   */
  readonly sent_in?: string;
  /** Agents and capabilities passed so far, `agent>capability`. */
  readonly path: readonly string[];
  readonly content_type: string;
  /** Further headers of the submission that the worker may see, lower case (what hygiene lets through). */
  readonly headers: Readonly<Record<string, string>>;
  /** Name of the rule that decided; null = none matched. */
  readonly rule: string | null;
  /** sha256 of the payload, base64url; '' when no claim needs it. */
  readonly payload_hash: string;
  /**
   * The control plane's word that `source` is at home at `home`, signed (proto/wire/identity.ts). It ends within a day, and the
   * message may wait for longer: it is judged as of the time at which the server stored the message. Absent = the sender's sidecar
   * had none, or knows of none.
   */
  readonly home_statement?: string;
  /** Wall clock of the sender's sidecar at acceptance, for people only. */
  readonly accepted_at_ms: number;
}

/** Exactly one of `capability`, `role`, `agent` leads; the others may narrow it. */
export interface Target {
  /** Name or alias, with an optional range, as written. */
  readonly capability: string | null;
  readonly role: string | null;
  readonly agent: string | null;
}

/** Messages to a role or an agent that name no capability are work of this one: such agents offer it, with an ACL of their own. */
export const MESSAGE_CAPABILITY = 'agent.message.handle';

const NEWLINE = 0x0a;

export function encodeEnvelope(envelope: Envelope, payload: Buffer): Buffer {
  const head = JSON.stringify(envelope);
  const headBytes = Buffer.byteLength(head);
  const all = Buffer.allocUnsafe(headBytes + 1 + payload.length);
  all.write(head, 0, 'utf8');
  all[headBytes] = NEWLINE;
  payload.copy(all, headBytes + 1);
  return all;
}

/** Null when it is none, or of a version this program does not know. The payload is a view into `data`. */
export function decodeEnvelope(data: Buffer): { readonly envelope: Envelope; readonly payload: Buffer } | null {
  const at = data.indexOf(NEWLINE);
  if (at < 0) return null;
  try {
    const envelope = JSON.parse(data.toString('utf8', 0, at)) as Envelope;
    if (!readsWire(envelope.wire, MESSAGE_WIRE) || typeof envelope.task_id !== 'string' || typeof envelope.source !== 'string') return null;
    return { envelope, payload: data.subarray(at + 1) };
  } catch {
    return null;
  }
}
