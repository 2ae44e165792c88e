/** What a function of this process is asked, and what it may answer beside a plain value. */
import type { Clock } from '../../base/clock.ts';
import { Header } from '../../proto/wire/headers.ts';
import { forwardRequestHeaders, hasForbiddenCharacter, isHeaderName } from '../transports/hygiene.ts';
import type { Exchange } from '../transports/transport.ts';

/** One call as its function sees it. Nothing is parsed or made before it is read. */
export class ServedRequest {
  /** Canonical name. */
  readonly capability: string;
  /** Exact version. */
  readonly version: string;
  /** The agent that asks. */
  readonly caller: string;
  /** The bytes of the payload. */
  readonly body: Buffer;
  readonly contentType: string;
  /** The answer is wanted piece by piece. */
  readonly isStream: boolean;
  readonly #clock: Clock;
  readonly #exchange: Exchange;
  readonly #endsAt: number;
  #payload: unknown;
  #hasPayload = false;
  #headers: Record<string, string> | null = null;
  #controller: AbortController | null = null;
  #reason: string | null = null;

  constructor(exchange: Exchange, isStream: boolean, clock: Clock) {
    const { version } = exchange.candidate;
    this.capability = version.capability.name;
    this.version = version.text;
    this.caller = ownOf(exchange, Header.caller);
    this.body = exchange.body;
    this.contentType = exchange.contentType;
    this.isStream = isStream;
    this.#clock = clock;
    this.#exchange = exchange;
    this.#endsAt = clock.now() + exchange.timeoutMs;
  }

  /** The payload as a value; null when there is none. Throws for what is not JSON: read `body` then. */
  get payload(): unknown {
    if (!this.#hasPayload) {
      const { json, body } = this.#exchange;
      this.#payload = json !== undefined ? json : body.length === 0 ? null : JSON.parse(body.toString('utf8'));
      this.#hasPayload = true;
    }
    return this.#payload;
  }

  /** As an agent with a port would get them: lower case, with ours. */
  get headers(): Readonly<Record<string, string>> {
    if (this.#headers === null) {
      const flat: string[] = [];
      forwardRequestHeaders(this.#exchange.incoming, this.#exchange.own, null, flat);
      const headers: Record<string, string> = {};
      for (const list of [flat, this.#exchange.own])
        for (let i = 0; i + 1 < list.length; i += 2) headers[list[i] as string] = list[i + 1] as string;
      this.#headers = headers;
    }
    return this.#headers;
  }

  /** Milliseconds for which somebody still waits for the head of the answer; 0 when nobody does. */
  get remainingMs(): number {
    return Math.max(0, this.#endsAt - this.#clock.now());
  }

  /** The caller's key of the work; null = none. */
  get powerId(): string | null {
    return this.#said(Header.powerId);
  }

  /** Of work that came as a message: by this id it is extended, and its end told when it was taken with status 202. null = it is a call. */
  get taskId(): string | null {
    return this.#said(Header.taskId);
  }

  /** Of a message, such as `task_request`; null = it is a call. */
  get messageType(): string | null {
    return this.#said(Header.messageType);
  }

  /** The task to which its sender says that a message belongs; null = none. */
  get inReplyTo(): string | null {
    return this.#said(Header.inReplyTo);
  }

  /** Of a message. */
  get tags(): Readonly<Record<string, string>> {
    const tags: Record<string, string> = {};
    for (const pair of (this.#said(Header.tags) ?? '').split(',')) {
      const at = pair.indexOf('=');
      if (at > 0) tags[pair.slice(0, at)] = pair.slice(at + 1);
    }
    return tags;
  }

  get traceId(): string {
    return ownOf(this.#exchange, Header.traceparent).slice(3, 35);
  }

  /** Aborted when nobody waits for the answer any more: the time is over, or the caller has left. */
  get signal(): AbortSignal {
    if (this.#controller === null) {
      this.#controller = new AbortController();
      if (this.#reason !== null) this.#controller.abort(new Error(this.#reason));
    }
    return this.#controller.signal;
  }

  /** null = the sidecar says nothing of it. */
  #said(name: string): string | null {
    const value = ownOf(this.#exchange, name);
    return value === '' ? null : value;
  }

  /** @internal */
  give(up: string): void {
    this.#reason ??= up;
    this.#controller?.abort(new Error(up));
  }
}

/** A header that the sidecar adds; '' = not there. */
export function ownOf({ own }: Exchange, name: string): string {
  for (let i = 0; i + 1 < own.length; i += 2) if (own[i] === name) return own[i + 1] as string;
  return '';
}

/** An answer with a status or headers of its own; thrown or returned. Below 500 the caller is at fault, and it does not count against the agent. */
export class ServedAnswer extends Error {
  readonly status: number;
  readonly headers: Readonly<Record<string, string>>;
  /** Whatever a function may return. */
  readonly body: unknown;

  constructor(status: number, body: unknown, headers: Readonly<Record<string, string>> = {}) {
    super(typeof body === 'string' ? body : `status ${status}`);
    if (!Number.isInteger(status) || status < 200 || status > 599)
      throw new TypeError(`the status of an answer is 200 to 599, not ${status}`);
    this.name = 'ServedAnswer';
    this.status = status;
    this.body = body;
    this.headers = sendable(headers);
  }
}

/** Names in lower case, numbers as text; throws for what no header can be, since the answer would be lost with it. */
function sendable(headers: Readonly<Record<string, unknown>>): Readonly<Record<string, string>> {
  const out: Record<string, string> = {};
  for (const [name, value] of Object.entries(headers)) {
    if (value === undefined || value === null) continue;
    const text = typeof value === 'number' || typeof value === 'boolean' ? String(value) : value;
    if (!isHeaderName(name)) throw new TypeError(`${JSON.stringify(name.slice(0, 64))} is not the name of a header`);
    if (typeof text !== 'string' || hasForbiddenCharacter(text))
      throw new TypeError(`the header ${name.slice(0, 64)} of an answer has to be text without control characters`);
    out[name.toLowerCase()] = text;
  }
  return out;
}
