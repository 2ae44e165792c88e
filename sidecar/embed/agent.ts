/**
 * One agent of this process: its functions by capability and version, and what an exchange with one of them comes to. The
 * function is never waited for longer than somebody waits for it: when the attempt is given up the exchange settles at once and the
 * function is told by its signal. What it throws is the agent's own error (6001), with its message.
 */
import type { Clock } from '../../base/clock.ts';
import { iteratorOf } from '../../base/pieces.ts';
import { Code } from '../../proto/wire/codes.ts';
import { Header } from '../../proto/wire/headers.ts';
import { answered, failed, NO_BODY, Reply, type ReplyHeaders, streaming } from '../call/reply.ts';
import type { Mode } from '../transports/http-exchange.ts';
import type { LocalAgent } from '../transports/local-hub.ts';
import type { Exchange } from '../transports/transport.ts';
import { encoded, formOf, giveUp, IteratedBody, PIECE_TYPES, Pieces } from './body.ts';
import { ownOf, ServedAnswer, ServedRequest } from './request.ts';
import { type Work, within } from './work.ts';

/** Serves one capability. Returns a value (JSON), bytes, something to iterate (a stream), a `ServedAnswer`, or nothing. */
export type Handler = (request: ServedRequest) => unknown;

export class ServingAgent implements LocalAgent {
  readonly agentId: string;
  readonly #clock: Clock;
  /** Told what nobody else hears: a function that failed after its answer was no longer awaited. */
  readonly #lost: (words: string) => void;
  readonly #handlers = new Map<string, Handler>();

  constructor(agentId: string, clock: Clock, lost: (words: string) => void) {
    this.agentId = agentId;
    this.#clock = clock;
    this.#lost = lost;
  }

  /** @param target `name@version` */
  set(target: string, handler: Handler): void {
    this.#handlers.set(target, handler);
  }

  delete(target: string): void {
    this.#handlers.delete(target);
  }

  has(target: string): boolean {
    return this.#handlers.has(target);
  }

  get isEmpty(): boolean {
    return this.#handlers.size === 0;
  }

  send(exchange: Exchange, mode: Mode): Promise<Reply> {
    const { version } = exchange.candidate;
    const handler = this.#handlers.get(`${version.capability.name}@${version.text}`);
    if (handler === undefined)
      return Promise.resolve(
        failed(Code.connect_timeout, 'not_started', `${this.agentId} serves no ${version.capability.name}@${version.text} in this process`),
      );
    return new Promise((resolve) => {
      const running = new Running(exchange, mode, this.agentId, this.#clock, this.#lost, resolve);
      exchange.abort = stopper(running);
      void running.run(handler);
    });
  }
}

/** Not a literal where it is assigned: V8 would allocate it in the old generation, see `attempt`. */
function stopper(running: Running): () => void {
  return () => running.stop();
}

/** One call of a function; settles once. */
class Running {
  readonly #exchange: Exchange;
  readonly #mode: Mode;
  readonly #request: ServedRequest;
  readonly #work: Work;
  readonly #lost: (words: string) => void;
  #resolve: ((reply: Reply) => void) | null;
  #body: IteratedBody | null = null;

  constructor(exchange: Exchange, mode: Mode, agent: string, clock: Clock, lost: (words: string) => void, resolve: (reply: Reply) => void) {
    this.#exchange = exchange;
    this.#mode = mode;
    this.#request = new ServedRequest(exchange, mode === 'stream', clock);
    const leftMs = Number(ownOf(exchange, Header.deadlineMs));
    this.#work = {
      agent,
      endsAt: clock.now() + (leftMs > 0 ? leftMs : exchange.timeoutMs),
      totalMs: ownOf(exchange, Header.deadlineTotalMs),
      budget: ownOf(exchange, Header.budget),
      traceparent: ownOf(exchange, Header.traceparent),
      tracestate: ownOf(exchange, Header.tracestate),
      path: ownOf(exchange, Header.path),
      sequenceId: ownOf(exchange, Header.sequenceId),
    };
    this.#lost = lost;
    this.#resolve = resolve;
  }

  async run(handler: Handler): Promise<void> {
    // The agent has it: whoever hands over waits no longer.
    if (this.#mode === 'head') this.#settle(answered(202, NO_HEADERS, NO_BODY));
    try {
      const value = await within(this.#work, () => handler(this.#request));
      await this.#answer(value);
    } catch (error) {
      this.#failed(error);
    }
  }

  stop(): void {
    this.#request.give('nobody waits for the answer any more');
    if (this.#body !== null) this.#body.cancel(Code.cancelled, 'stopped by the sidecar');
    else this.#settle(failed(Code.cancelled, 'started', 'stopped while the agent was at work'));
  }

  async #answer(value: unknown): Promise<void> {
    const own = value instanceof ServedAnswer ? value : null;
    const body = own === null ? value : own.body;
    const iterator = iteratorOf(body);
    if (iterator !== null) await this.#pieces(iterator, own);
    else if (body === undefined) this.#settle(answered(own?.status ?? 204, own?.headers ?? NO_HEADERS, NO_BODY));
    else {
      const { bytes, contentType } = encoded(body);
      this.#whole(own?.status ?? 200, headersWith(contentType, own), bytes);
    }
  }

  async #pieces(iterator: AsyncIterator<unknown>, own: ServedAnswer | null): Promise<void> {
    if (this.#resolve === null && this.#mode !== 'head') {
      giveUp(iterator);
      return;
    }
    const next = (): Promise<IteratorResult<unknown>> => within(this.#work, () => iterator.next());
    // The first piece tells the form; and what fails before it can be tried elsewhere.
    const { done, value } = await next();
    const pieces = new Pieces(formOf(done === true ? undefined : value));
    const first = done === true ? null : pieces.bytes(value);
    const headers = headersWith(PIECE_TYPES[pieces.form], own);
    if (this.#mode === 'stream' && (own === null || own.status < 300)) {
      if (this.#resolve === null) {
        giveUp(iterator);
        return;
      }
      this.#body = new IteratedBody(iterator, pieces, first, next, () => this.#request.give('the stream has ended'));
      this.#settle(streaming(own?.status ?? 200, headers, this.#body));
      return;
    }
    const all: Buffer[] = first === null ? [] : [first];
    let bytes = first?.length ?? 0;
    for (let isDone = done === true; !isDone; ) {
      const step = await next();
      isDone = step.done === true;
      if (isDone) break;
      if (this.#resolve === null && this.#mode !== 'head') {
        giveUp(iterator);
        return;
      }
      const piece = pieces.bytes(step.value);
      bytes += piece.length;
      if (bytes > this.#exchange.maxResponseBytes) {
        giveUp(iterator);
        break;
      }
      all.push(piece);
    }
    all.push(pieces.rest());
    if (bytes > this.#exchange.maxResponseBytes) this.#tooLarge(bytes);
    else this.#whole(own?.status ?? 200, headers, Buffer.concat(all));
  }

  #whole(status: number, headers: ReplyHeaders, bytes: Buffer): void {
    if (bytes.length > this.#exchange.maxResponseBytes) this.#tooLarge(bytes.length);
    else this.#settle(answered(status, headers, bytes));
  }

  #tooLarge(bytes: number): void {
    const limit = this.#exchange.maxResponseBytes;
    this.#settle(failed(Code.response_too_large, 'started', `the answer is above the limit of ${limit} bytes: ${bytes} came`));
  }

  /** The agent's own error. */
  #failed(thrown: unknown): void {
    const message = wordsOf(thrown);
    if (this.#resolve === null) {
      if (this.#mode === 'head') this.#lost(`${this.#work.agent} failed at what was handed over to it: ${message}`);
      return;
    }
    if (thrown instanceof ServedAnswer && thrown.status >= 400) {
      const { bytes, contentType } = thrown.body === undefined ? EMPTY : encoded(plainOf(thrown.body));
      this.#settle(answered(thrown.status, headersWith(contentType, thrown), bytes));
      return;
    }
    const { status: said } = (typeof thrown === 'object' && thrown !== null ? thrown : {}) as { status?: unknown };
    const status = typeof said === 'number' && Number.isInteger(said) && said >= 400 && said <= 599 ? said : 500;
    const name = thrown instanceof Error && typeof thrown.name === 'string' ? thrown.name : 'Error';
    const body = Buffer.from(JSON.stringify({ error: { name, message } }), 'utf8');
    this.#settle(new Reply(Code.ok, 'done', status, JSON_HEADERS, body, null, message, false, 0));
  }

  #settle(reply: Reply): void {
    const resolve = this.#resolve;
    this.#resolve = null;
    resolve?.(reply);
  }
}

const NO_HEADERS: ReplyHeaders = Object.freeze({});
const JSON_HEADERS: ReplyHeaders = Object.freeze({ 'content-type': 'application/json' });
const EMPTY = Object.freeze({ bytes: NO_BODY, contentType: 'application/json' });

/** The body of an error is a value; what has no form in JSON is told as text. */
function plainOf(body: unknown): unknown {
  try {
    encoded(body);
    return body;
  } catch {
    return textOf(body);
  }
}

/** Anything can be thrown, also what has no form as text. */
function wordsOf(thrown: unknown): string {
  try {
    const words: unknown = thrown instanceof Error ? thrown.message : thrown;
    return textOf(words);
  } catch {
    return UNSPEAKABLE;
  }
}

function textOf(value: unknown): string {
  try {
    return String(value);
  } catch {
    return UNSPEAKABLE;
  }
}

const UNSPEAKABLE = 'something that has no form as text';

function headersWith(contentType: string, own: ServedAnswer | null): ReplyHeaders {
  const headers: Record<string, string> = { 'content-type': contentType };
  if (own !== null) for (const [name, value] of Object.entries(own.headers)) headers[name.toLowerCase()] = value;
  return headers;
}
