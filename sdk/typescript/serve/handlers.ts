/**
 * Runs a handler for a request and makes an answer of what it does, whichever way the request came. What a handler throws
 * becomes the agent's own error; what it throws by mistake is logged here and hidden from the caller.
 */
import { jsonText } from '../../../base/json-text.ts';
import { iteratorOf, TextBytes } from '../../../base/pieces.ts';
import { Code } from '../../../proto/wire/codes.ts';
import { Header } from '../../../proto/wire/headers.ts';
import { isBytes } from '../ask.ts';
import { ReachError } from '../error.ts';
import type { Settings } from '../options.ts';
import { type Scope, scopeFrom, within } from '../scope.ts';
import { sendableText } from '../wire-text.ts';
import { AgentError } from './agent-error.ts';
import { leftOut, sendableHeaders } from './answer-headers.ts';
import { Context } from './context.ts';
import type { Offer } from './offer.ts';

/** Gives JSON (undefined is null), bytes, or a generator or async iterable of text, bytes or JSON values: a streamed answer. */
export type Handler<P = unknown, R = unknown> = (payload: P, context: Context) => R;

export interface Job {
  readonly capability: string;
  /** '' = not said. */
  readonly version: string;
  readonly payload: unknown;
  /** Lower-case names. */
  readonly headers: Readonly<Record<string, string>>;
  readonly signal: AbortSignal;
}

export class Answer {
  readonly status: number;
  readonly contentType: string;
  /** Lower-case names, and values as they are sent. */
  readonly headers: Readonly<Record<string, string>>;
  readonly body: Body;

  constructor(status: number, contentType: string, headers: Readonly<Record<string, string>>, body: Body) {
    this.status = status;
    this.contentType = contentType;
    this.headers = headers;
    this.body = body;
  }
}

export type Body =
  | { readonly kind: 'json'; readonly value: unknown; readonly text: string }
  | { readonly kind: 'bytes'; readonly bytes: Buffer }
  | { readonly kind: 'stream'; readonly chunks: AsyncIterator<Buffer> };

const JSON_TYPE = 'application/json';
const TEXT_TYPE = 'text/plain; charset=utf-8';
const BYTES_TYPE = 'application/octet-stream';

interface Served {
  readonly offer: Offer;
  readonly handler: Handler<never>;
}

export class Handlers {
  readonly #settings: Settings;
  readonly #served: Served[] = [];

  constructor(settings: Settings) {
    this.#settings = settings;
  }

  get offers(): readonly Offer[] {
    return this.#served.map(({ offer }) => offer);
  }

  add(offer: Offer, handler: Handler<never>): void {
    if (this.#served.some((other) => other.offer.key === offer.key)) throw new TypeError(`${offer.key} is served already`);
    this.#served.push({ offer, handler });
  }

  /** Settles always. */
  async run(job: Job): Promise<Answer> {
    const served = this.#served.filter(({ offer }) => offer.name === job.capability);
    const found = served.find(({ offer }) => offer.version === job.version) ?? (job.version === '' ? served.at(-1) : undefined);
    if (found === undefined) return failed(404, { error: `this agent does not serve ${job.capability}@${job.version}` });
    const context = new Context(this.#settings, job.capability, found.offer.version, job.headers, job.signal);
    const scope = scopeFrom((name) => job.headers[name] ?? '', job.signal, this.#settings.clock);
    try {
      const value = await within(scope, async () => await found.handler(job.payload as never, context));
      return await this.#answer(value, context, scope);
    } catch (error) {
      return this.#failure(error, job);
    }
  }

  async #answer(value: unknown, context: Context, scope: Scope): Promise<Answer> {
    const source = iteratorOf(value);
    if (source !== null) {
      // The first chunk is awaited: it says what the body is, and an error before it is an ordinary error.
      const first = await within(scope, () => source.next());
      const otherwise = first.done === true ? BYTES_TYPE : typeOf(first.value);
      return this.#answered(context, otherwise, { kind: 'stream', chunks: new Chunks(source, scope, first) });
    }
    if (isBytes(value)) return this.#answered(context, BYTES_TYPE, { kind: 'bytes', bytes: bytesOf(value) });
    if (typeof value === 'string' && context.answerType !== '')
      return this.#answered(context, TEXT_TYPE, { kind: 'bytes', bytes: Buffer.from(value) });
    // What is no JSON is found here, where it still is an error and not a broken answer.
    return this.#answered(context, JSON_TYPE, jsonOf(value));
  }

  /** The head is what the handler has said, as far as it can be sent. @param otherwise its content type, when it has said none */
  #answered(context: Context, otherwise: string, body: Body): Answer {
    const { answerType, capability } = context;
    const { log } = this.#settings;
    const said = answerType === '' ? otherwise : sendableText(answerType);
    if (said === null) log(leftOut(capability, 'content-type', 'it is no text that a header can have'));
    const headers = sendableHeaders(context.answerHeaders, capability, log);
    if (context.definitelySuccess) headers[Header.definitelySuccess] = 'true';
    return new Answer(context.status, said ?? otherwise, headers, body);
  }

  #failure(error: unknown, job: Job): Answer {
    if (error instanceof AgentError) return failed(error.status, error.data);
    if (error instanceof ReachError) {
      const { code, error: told, noRetry } = error.result;
      const status = code === Code.deadline_exceeded || code === Code.deadline_too_short ? 504 : 502;
      return failed(status, { error: told }, noRetry ? { [Header.retry]: 'none' } : {});
    }
    if (!job.signal.aborted) this.#settings.log(`${job.capability} failed: ${wordsOf(error)}`);
    return failed(500, { error: 'the agent failed' });
  }
}

export function wordsOf(error: unknown): string {
  return error instanceof Error ? (error.stack ?? error.message) : String(error);
}

function failed(status: number, data: unknown, headers: Readonly<Record<string, string>> = {}): Answer {
  let body: Body;
  try {
    // An error with NaN in it is better told with a null there than not at all.
    body = jsonOf(data, JSON.stringify);
  } catch {
    body = jsonOf(String(data));
  }
  return new Answer(status, JSON_TYPE, headers, body);
}

function jsonOf(value: unknown, write: (value: unknown) => string | undefined = jsonText): Body {
  const text = write(value ?? null);
  if (text === undefined) throw new TypeError(`an answer is JSON or bytes, not a ${typeof value}`);
  return { kind: 'json', value: value ?? null, text };
}

/** A generator's body runs in the context of whoever asks for the next chunk: so it is asked in the handler's. */
class Chunks implements AsyncIterator<Buffer> {
  readonly #source: AsyncIterator<unknown>;
  readonly #scope: Scope;
  readonly #text = new TextBytes();
  #first: IteratorResult<unknown> | null;
  #isOver = false;

  constructor(source: AsyncIterator<unknown>, scope: Scope, first: IteratorResult<unknown>) {
    this.#source = source;
    this.#scope = scope;
    this.#first = first;
  }

  async next(): Promise<IteratorResult<Buffer>> {
    if (this.#isOver) return { done: true, value: undefined };
    const step = this.#first ?? (await within(this.#scope, () => this.#source.next()));
    this.#first = null;
    if (step.done !== true) return { done: false, value: this.#encoded(step.value) };
    this.#isOver = true;
    const rest = this.#text.rest();
    return rest.length === 0 ? { done: true, value: undefined } : { done: false, value: rest };
  }

  async return(): Promise<IteratorResult<Buffer>> {
    await within(this.#scope, () => this.#source.return?.());
    return { done: true, value: undefined };
  }

  #encoded(chunk: unknown): Buffer {
    if (typeof chunk === 'string') return this.#text.push(chunk);
    const bytes = isBytes(chunk) ? bytesOf(chunk) : lineOf(chunk);
    const rest = this.#text.rest();
    return rest.length === 0 ? bytes : Buffer.concat([rest, bytes]);
  }
}

function typeOf(chunk: unknown): string {
  if (typeof chunk === 'string') return TEXT_TYPE;
  return isBytes(chunk) ? BYTES_TYPE : 'application/x-ndjson';
}

function bytesOf(chunk: Uint8Array): Buffer {
  return Buffer.from(chunk.buffer, chunk.byteOffset, chunk.byteLength);
}

function lineOf(chunk: unknown): Buffer {
  const text = jsonText(chunk ?? null);
  if (text === undefined) throw new TypeError(`a piece of a stream is text, bytes or JSON, not a ${typeof chunk}`);
  return Buffer.from(`${text}\n`);
}
