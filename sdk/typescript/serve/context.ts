/** What a handler is told beside the payload, and what it may say beside its answer. */
import { Header } from '../../../proto/wire/headers.ts';
import { scopeNow } from '../scope.ts';
import type { Settings } from '../options.ts';

export class Context {
  /** The canonical name that was asked for. */
  readonly capability: string;
  /** The exact version; '' when the sidecar did not say. */
  readonly version: string;
  /** Lower-case names. */
  readonly headers: Readonly<Record<string, string>>;
  readonly contentType: string;
  /** Aborted when nobody waits for the answer any more. */
  readonly signal: AbortSignal;
  /** Of the answer. */
  status = 200;
  /** Of the answer; '' = by what is returned: JSON, bytes, or text chunks. */
  answerType = '';
  /** Further headers of the answer. */
  readonly answerHeaders: Record<string, string> = {};
  /** An empty or neutral answer that is a success all the same: never retried, never held against this agent. */
  definitelySuccess = false;
  readonly #settings: Settings;

  /** @internal */
  constructor(settings: Settings, capability: string, version: string, headers: Readonly<Record<string, string>>, signal: AbortSignal) {
    this.#settings = settings;
    this.capability = capability;
    this.version = version;
    this.headers = headers;
    this.contentType = headers['content-type'] ?? '';
    this.signal = signal;
  }

  /** Agent id, as the sidecar has established it; '' when it did not say. */
  get caller(): string {
    return this.headers[Header.caller] ?? '';
  }

  /** The same key means the same work; null = none was given. */
  get idempotencyKey(): string | null {
    return this.headers[Header.idempotencyKey] ?? null;
  }

  /** The caller's conversation; null = none was given. */
  get sequenceId(): string | null {
    return this.headers[Header.sequenceId] ?? null;
  }

  /** Key by which the conversation was led here; null = none. */
  get affinity(): string | null {
    return this.headers[Header.affinity] ?? null;
  }

  /** Of work that came as a message: by this id it is extended, and its end told when it was taken with 202. null = it is a call. */
  get taskId(): string | null {
    return this.headers[Header.taskId] ?? null;
  }

  /** Of a message, such as `task_request`; null = it is a call. */
  get messageType(): string | null {
    return this.headers[Header.messageType] ?? null;
  }

  /** The task to which its sender says that a message belongs; null = none. */
  get inReplyTo(): string | null {
    return this.headers[Header.inReplyTo] ?? null;
  }

  /** Of a message. */
  get tags(): Readonly<Record<string, string>> {
    const pairs = (this.headers[Header.tags] ?? '').split(',').filter((pair) => pair !== '');
    return Object.fromEntries(pairs.map((pair) => [pair.slice(0, pair.indexOf('=')), pair.slice(pair.indexOf('=') + 1)]));
  }

  /** 32 hex digits; '' = none. */
  get traceId(): string {
    return this.headers[Header.traceparent]?.slice(3, 35) ?? '';
  }

  /** Milliseconds left for the answer; Infinity when the sidecar did not say. Ask it inside the handler. */
  get leftMs(): number {
    return Math.max(0, scopeNow().endsAt - this.#settings.clock.now());
  }
}
