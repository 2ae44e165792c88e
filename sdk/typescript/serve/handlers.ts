/**
 * Runs a handler for a request and makes an answer of what it does, whichever way the request came. What a handler throws
 * becomes the agent's own error; what it throws by mistake is logged here and hidden from the caller.
 */
import { Code } from '../../../proto/wire/codes.ts';
import { Header } from '../../../proto/wire/headers.ts';
import { isBytes } from '../ask.ts';
import { ReachError } from '../error.ts';
import type { Settings } from '../options.ts';
import { type Scope, scopeFrom, within } from '../scope.ts';
import { AgentError } from './agent-error.ts';
import { Context } from './context.ts';
import type { Offer } from './offer.ts';

/** Gives JSON (undefined is null), bytes, or an async iterable of text, bytes or JSON values: a streamed answer. */
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
    if (isIterable(value)) return await streamed(value[Symbol.asyncIterator](), context, scope);
    if (isBytes(value) || (typeof value === 'string' && context.answerType !== '')) {
      const bytes = encoded(value);
      return new Answer(context.status, context.answerType || 'application/octet-stream', headersOf(context), { kind: 'bytes', bytes });
    }
    // What is no JSON is found here, where it still is an error and not a broken answer.
    return new Answer(context.status, context.answerType || JSON_TYPE, headersOf(context), jsonOf(value));
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
    body = jsonOf(data);
  } catch {
    body = jsonOf(String(data));
  }
  return new Answer(status, JSON_TYPE, headers, body);
}

function jsonOf(value: unknown): Body {
  const text = JSON.stringify(value ?? null) as string | undefined;
  if (text === undefined) throw new TypeError(`an answer is JSON or bytes, not a ${typeof value}`);
  return { kind: 'json', value: value ?? null, text };
}

function headersOf(context: Context): Readonly<Record<string, string>> {
  return context.definitelySuccess ? { ...context.answerHeaders, [Header.definitelySuccess]: 'true' } : context.answerHeaders;
}

function isIterable(value: unknown): value is AsyncIterable<unknown> {
  return typeof value === 'object' && value !== null && Symbol.asyncIterator in value;
}

/** The first chunk is awaited: it says what the body is, and an error before it is an ordinary error. */
async function streamed(source: AsyncIterator<unknown>, context: Context, scope: Scope): Promise<Answer> {
  const first = await within(scope, () => source.next());
  const contentType = context.answerType || (first.done === true ? 'application/octet-stream' : typeOf(first.value));
  const chunks = new Chunks(source, scope, first);
  return new Answer(context.status, contentType, headersOf(context), { kind: 'stream', chunks });
}

/** A generator's body runs in the context of whoever asks for the next chunk: so it is asked in the handler's. */
class Chunks implements AsyncIterator<Buffer> {
  readonly #source: AsyncIterator<unknown>;
  readonly #scope: Scope;
  #first: IteratorResult<unknown> | null;

  constructor(source: AsyncIterator<unknown>, scope: Scope, first: IteratorResult<unknown>) {
    this.#source = source;
    this.#scope = scope;
    this.#first = first;
  }

  async next(): Promise<IteratorResult<Buffer>> {
    const step = this.#first ?? (await within(this.#scope, () => this.#source.next()));
    this.#first = null;
    return step.done === true ? { done: true, value: undefined } : { done: false, value: encoded(step.value) };
  }

  async return(): Promise<IteratorResult<Buffer>> {
    await within(this.#scope, () => this.#source.return?.());
    return { done: true, value: undefined };
  }
}

function typeOf(chunk: unknown): string {
  if (typeof chunk === 'string') return 'text/plain; charset=utf-8';
  return isBytes(chunk) ? 'application/octet-stream' : 'application/x-ndjson';
}

function encoded(chunk: unknown): Buffer {
  if (typeof chunk === 'string') return Buffer.from(chunk);
  if (isBytes(chunk)) return Buffer.from(chunk.buffer, chunk.byteOffset, chunk.byteLength);
  return Buffer.from(`${JSON.stringify(chunk ?? null)}\n`);
}
