/** A message as the user of the SDK puts it, as a request to the sidecar. Nothing is judged, and nothing is sent twice. */
import { Header } from '../../proto/wire/headers.ts';
import { type Ask, bodyOf, isBytes, put, tagsText } from './ask.ts';
import type { Scope } from './scope.ts';

/** Whom a message is for, when it is not a capability alone. */
export interface Address {
  /** `name`, alias or `name@range`. */
  readonly capability?: string;
  /** A role, or a capability tag of whoever works on it. */
  readonly role?: string;
  /** Agent id. */
  readonly agent?: string;
}

export interface CastOptions {
  /** Default `task_request`. */
  readonly messageType?: string;
  readonly priority?: 'high' | 'normal' | 'low';
  /** The same key with the same payload means the same work, and has one result. */
  readonly idempotencyKey?: string;
  /** The sender's conversation. Default: that of the work that it is part of. */
  readonly sequenceId?: string;
  readonly tags?: Readonly<Record<string, string>>;
  /** Whether a try that failed may be followed by another. Default: it may. */
  readonly retryable?: boolean;
  /** When it is given up that nobody has begun, from its acceptance. Default 24 h. */
  readonly expiresMs?: number;
  /** Working time of all tries together. */
  readonly deadlineMs?: number;
  /** `none`: nobody wants the result. */
  readonly replyTo?: 'inbox' | 'none';
  /** The task to which this belongs. */
  readonly inReplyTo?: string;
  /** Where nothing durable can be had: try at once, without a promise. */
  readonly bestEffort?: boolean;
  /** Further headers, for the agent; they win over what this client writes. */
  readonly headers?: Readonly<Record<string, string>>;
  /** Of a payload of bytes. Default: `application/octet-stream`. */
  readonly contentType?: string;
  /** Gives the wait for the answer up. What was accepted by then goes on. */
  readonly signal?: AbortSignal;
}

/** The sidecar answers when the message is durable, or says within ten seconds that it is not. */
const LIMIT_MS = 30_000;

/** What a message inherits is trace, path and conversation: it outlives the work that it is part of, and so its time. */
export function castAsk(target: string | Address, payload: unknown, options: CastOptions, scope: Scope): Ask {
  const headers: Record<string, string> = {};
  if (scope.sequenceId !== '') headers[Header.sequenceId] = scope.sequenceId;
  if (scope.path !== '') headers[Header.path] = scope.path;
  if (scope.traceparent !== '') headers[Header.traceparent] = scope.traceparent;
  if (scope.tracestate !== '') headers[Header.tracestate] = scope.tracestate;
  put(headers, Header.messageType, options.messageType);
  put(headers, Header.priority, options.priority);
  put(headers, Header.idempotencyKey, options.idempotencyKey);
  put(headers, Header.sequenceId, options.sequenceId);
  put(headers, Header.tags, tagsText(options.tags));
  put(headers, Header.retryable, options.retryable === undefined ? undefined : String(options.retryable));
  put(headers, Header.expires, options.expiresMs === undefined ? undefined : `${Math.round(options.expiresMs)}ms`);
  put(headers, Header.deadlineTotalMs, options.deadlineMs === undefined ? undefined : String(Math.round(options.deadlineMs)));
  put(headers, Header.replyTo, options.replyTo);
  put(headers, Header.inReplyTo, options.inReplyTo);
  if (options.bestEffort === true) headers[Header.bestEffort] = '1';
  const { capability, role, agent } = typeof target === 'string' ? { capability: target } : target;
  put(headers, Header.role, role);
  put(headers, Header.agent, agent);
  const bytes = bodyOf(payload);
  const contentType = isBytes(payload) ? (options.contentType ?? 'application/octet-stream') : 'application/json';
  for (const [name, value] of Object.entries(options.headers ?? {})) headers[name.toLowerCase()] = value;
  const signals = options.signal === undefined ? [] : [options.signal];
  if (capability !== undefined) {
    headers['content-type'] ??= contentType;
    return { method: 'POST', path: `/v1/cast/${encodeURIComponent(capability)}`, headers, body: bytes, signals, limitMs: LIMIT_MS };
  }
  const said = headers['content-type'] ?? contentType;
  headers['content-type'] = 'application/json';
  const body = Buffer.from(
    isBytes(payload)
      ? JSON.stringify({ payload_base64: bytes.toString('base64'), content_type: said })
      : `{"payload":${bytes.toString('utf8')},"content_type":${JSON.stringify(said)}}`,
  );
  return { method: 'POST', path: '/v1/messages', headers, body, signals, limitMs: LIMIT_MS };
}
