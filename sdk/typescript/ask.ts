/** One call as the user of the SDK puts it, as an HTTP request to the sidecar: target, body and headers. Nothing is judged. */
import type { Clock } from '../../base/clock.ts';
import { jsonText } from '../../base/json-text.ts';
import { Header } from '../../proto/wire/headers.ts';
import { budgetText, type Scope, scopeHeaders } from './scope.ts';

export interface InvokeOptions {
  /** For the whole call; never more than what is left of the work that it is part of. */
  readonly deadlineMs?: number;
  /** Milliseconds of each step, in order. */
  readonly budget?: Readonly<Record<string, number>>;
  /** Which step of the budget this call is. */
  readonly step?: string;
  /** Key of the conversation: calls with the same one meet the same agent. */
  readonly affinity?: string;
  /** The caller's own conversation; handed on to the calls below. */
  readonly sequenceId?: string;
  /** The provider that is wanted, by agent id. */
  readonly pin?: string;
  /** Only providers with these. */
  readonly tags?: Readonly<Record<string, string>>;
  /** How often the work may run, for this call. */
  readonly execution?: 'once' | 'idempotent' | 'keyed';
  /** The same key with the same payload means the same work. */
  readonly idempotencyKey?: string;
  /** Further headers, for the agent; they win over what this client writes. */
  readonly headers?: Readonly<Record<string, string>>;
  /** Of a payload of bytes. Default: `application/octet-stream`. */
  readonly contentType?: string;
  /** Gives the call up: it fails with 5003. */
  readonly signal?: AbortSignal;
}

export interface Ask {
  readonly method: 'GET' | 'POST' | 'DELETE';
  readonly path: string;
  readonly headers: Record<string, string>;
  readonly body: Buffer | null;
  readonly signals: readonly AbortSignal[];
  /** Milliseconds that the caller gives it; Infinity = not said. */
  limitMs: number;
}

/** How long it may take is said by `timed`, when it is sent. @param base `/v1/invoke/`, `/v1/stream/` or `/v1/explain/`. */
export function askFor(base: string, target: string, payload: unknown, options: InvokeOptions, scope: Scope): Ask {
  const headers: Record<string, string> = {};
  scopeHeaders(scope, headers);
  if (options.budget !== undefined) headers[Header.budget] = budgetText(options.budget);
  put(headers, Header.step, options.step);
  put(headers, Header.affinity, options.affinity);
  put(headers, Header.sequenceId, options.sequenceId);
  put(headers, Header.pin, options.pin);
  put(headers, Header.execution, options.execution);
  put(headers, Header.idempotencyKey, options.idempotencyKey);
  put(headers, Header.tags, tagsText(options.tags));
  const body = bodyOf(payload);
  if (body !== null) headers['content-type'] = isBytes(payload) ? (options.contentType ?? 'application/octet-stream') : 'application/json';
  for (const [name, value] of Object.entries(options.headers ?? {})) headers[name.toLowerCase()] = value;
  const signals: AbortSignal[] = [];
  if (options.signal !== undefined) signals.push(options.signal);
  if (scope.signal !== null) signals.push(scope.signal);
  const limitMs = options.deadlineMs ?? Number.POSITIVE_INFINITY;
  return { method: 'POST', path: base + encodeURIComponent(target), headers, body, signals, limitMs };
}

/** As it is sent now: with the time that it has from here on, and the sidecar told of it. @param endsAt of the work that it is part of. */
export function timed(ask: Ask, endsAt: number, clock: Clock): Ask {
  ask.limitMs = Math.min(endsAt - clock.now(), ask.limitMs);
  if (ask.limitMs !== Number.POSITIVE_INFINITY) ask.headers[Header.deadlineMs] ??= String(Math.max(0, Math.floor(ask.limitMs)));
  return ask;
}

export function isBytes(value: unknown): value is Uint8Array {
  return value instanceof Uint8Array;
}

/** Bytes go as they are, everything else as JSON; undefined is `null`. Throws for what JSON cannot say. */
export function bodyOf(payload: unknown): Buffer {
  if (isBytes(payload)) return Buffer.from(payload.buffer, payload.byteOffset, payload.byteLength);
  const text = jsonText(payload ?? null);
  if (text === undefined) throw new TypeError(`a payload is JSON or bytes, not a ${typeof payload}`);
  return Buffer.from(text);
}

/** undefined = there are none. */
export function tagsText(tags: Readonly<Record<string, string>> | undefined): string | undefined {
  const pairs = Object.entries(tags ?? {});
  return pairs.length === 0 ? undefined : pairs.map(([key, value]) => `${key}=${value}`).join(', ');
}

export function put(headers: Record<string, string>, name: string, value: string | undefined): void {
  if (value !== undefined) headers[name] = value;
}
