/**
 * A streamed answer. Asked for as frames, so that an end is told from a cut: iteration ends only when the whole body has
 * come, and throws `stream_interrupted` (1006) or what else cut it. Leaving the loop early gives the call up, all the way
 * to the agent. The reader sets the pace: what is not read is not fetched.
 */
import type { IncomingMessage } from 'node:http';
import { StringDecoder } from 'node:string_decoder';
import { Code } from '../../proto/wire/codes.ts';
import { FrameReader, type FrameSink } from '../../proto/wire/frame-reader.ts';
import { Frame, FRAMES_TYPE, type FrameType } from '../../proto/wire/frames.ts';
import { Header } from '../../proto/wire/headers.ts';
import { parsed, resultIn, successOf, textOf } from './answer.ts';
import { type Ask, timed } from './ask.ts';
import { ReachError } from './error.ts';
import { EventReader, LineReader, type StreamEvent } from './events.ts';
import type { Exchange, Http } from './http.ts';
import { type Failure, ownFailure, resultFrom, type Success } from './result.ts';

export interface StreamHead {
  readonly status: number;
  /** Of the body; '' = not said. */
  readonly contentType: string;
  readonly headers: Readonly<Record<string, string | string[] | undefined>>;
  readonly provider: string | null;
  readonly version: string | null;
  readonly traceId: string;
}

/** Iterating gives text, decoded; `bytes`, `messages` and `events` give the body in other forms. One of them, once. */
export class ReachStream implements AsyncIterable<string> {
  readonly #http: Http;
  readonly #ask: Ask;
  /** When the work that it is part of ends; Infinity = nobody has said. */
  readonly #endsAt: number;
  #opened: Promise<Open> | null = null;
  #exchange: Exchange | null = null;
  #isTaken = false;
  #result: Success | null = null;

  /** @internal */
  constructor(http: Http, ask: Ask, endsAt: number) {
    this.#http = http;
    this.#ask = ask;
    this.#endsAt = endsAt;
  }

  /** The Result without data, once the stream has come to its end; null before. */
  get result(): Success | null {
    return this.#result;
  }

  /** Sends the request, unless iteration has done so already, and waits for the answer's head. */
  async head(): Promise<StreamHead> {
    return (await this.#open()).head;
  }

  /** Gives the call up, when it was opened and is not to be read. */
  async cancel(): Promise<void> {
    // Not after its head: it may be the head that does not come.
    this.#exchange?.giveUp();
    await this.#opened?.catch(() => null);
    this.#exchange?.done();
  }

  [Symbol.asyncIterator](): AsyncIterator<string> {
    return this.#texts();
  }

  /** Pieces as they come; their borders mean nothing. */
  async *bytes(): AsyncGenerator<Buffer, void, undefined> {
    if (this.#isTaken) throw new TypeError('a stream can be read once');
    this.#isTaken = true;
    const { exchange, response, isFramed } = await this.#open();
    try {
      if (isFramed) yield* this.#framed(exchange, response);
      else {
        for await (const chunk of response) yield chunk as Buffer;
        this.#result = successOf(response.statusCode ?? 0, response.headers, exchange.elapsedMs);
      }
    } catch (error) {
      throw exchange.failure(error, Code.stream_interrupted);
    } finally {
      exchange.done();
    }
  }

  /** One JSON value a line (`application/x-ndjson`). */
  async *messages<T = unknown>(): AsyncGenerator<T, void, undefined> {
    const lines = new LineReader();
    for await (const text of this.#texts()) for (const line of lines.push(text)) if (line.trim() !== '') yield JSON.parse(line) as T;
    const last = lines.finish();
    if (last.trim() !== '') yield JSON.parse(last) as T;
  }

  /** Server-sent events (`text/event-stream`). */
  async *events(): AsyncGenerator<StreamEvent, void, undefined> {
    const events = new EventReader();
    for await (const text of this.#texts()) yield* events.push(text);
  }

  async *#texts(): AsyncGenerator<string, void, undefined> {
    const decoder = new StringDecoder('utf8');
    let isFirst = true;
    for await (const piece of this.bytes()) {
      let text = decoder.write(piece);
      if (text === '') continue;
      // A byte order mark is no text.
      if (isFirst && text.startsWith('\uFEFF')) text = text.slice(1);
      isFirst = false;
      if (text !== '') yield text;
    }
    const rest = decoder.end();
    if (rest !== '') yield rest;
  }

  async *#framed(exchange: Exchange, response: IncomingMessage): AsyncGenerator<Buffer, void, undefined> {
    const frames = new Frames();
    const reader = new FrameReader(frames, 'pieces');
    for await (const chunk of response) {
      const problem = reader.push(chunk as Buffer);
      for (const piece of frames.take()) yield piece;
      if (problem !== null) throw new Error(problem);
    }
    const problem = reader.finish();
    if (problem !== null) throw new Error(problem);
    const result = resultFrom(parsed(frames.last), response.headers[Header.retry] === 'none');
    if (result === null) throw new Error('the last frame holds no Result');
    if (frames.isCut || !result.ok) throw new ReachError(result.ok ? cutOf(exchange) : result);
    this.#result = result;
  }

  #open(): Promise<Open> {
    return (this.#opened ??= this.#send());
  }

  async #send(): Promise<Open> {
    const exchange = this.#http.open(timed(this.#ask, this.#endsAt, this.#http.settings.clock));
    this.#exchange = exchange;
    try {
      const response = await exchange.head;
      const contentType = response.headers['content-type'] ?? '';
      const isFramed = contentType.startsWith(FRAMES_TYPE);
      if (!isFramed && isFailed(response)) {
        const chunks: Buffer[] = [];
        for await (const chunk of response) chunks.push(chunk as Buffer);
        throw new ReachError(failureIn(response, Buffer.concat(chunks), exchange));
      }
      return { exchange, response, isFramed, head: headOf(response) };
    } catch (error) {
      const told = exchange.failure(error);
      exchange.done();
      throw told;
    }
  }
}

interface Open {
  readonly exchange: Exchange;
  readonly response: IncomingMessage;
  readonly isFramed: boolean;
  readonly head: StreamHead;
}

class Frames implements FrameSink {
  /** Payload of the last frame. */
  last: Buffer = Buffer.alloc(0);
  isCut = false;
  #pieces: Buffer[] = [];

  frame(type: FrameType, payload: Buffer): void {
    if (type === Frame.data) {
      if (payload.length > 0) this.#pieces.push(payload);
    } else if (type === Frame.end || type === Frame.error) {
      this.last = payload;
      this.isCut = type === Frame.error;
    }
  }

  take(): Buffer[] {
    const pieces = this.#pieces;
    this.#pieces = [];
    return pieces;
  }
}

function isFailed(response: IncomingMessage): boolean {
  const code = response.headers[Header.code];
  return (response.statusCode ?? 0) >= 400 || (typeof code === 'string' && code !== '0');
}

/** A problem document, or the agent's own answer with its code in the headers. */
function failureIn(response: IncomingMessage, bytes: Buffer, exchange: Exchange): Failure {
  const { isAnonymous, elapsedMs } = exchange;
  const told = resultIn({ status: response.statusCode ?? 0, headers: response.headers, bytes, isAnonymous }, elapsedMs);
  return told.ok ? cutOf(exchange) : told;
}

function cutOf(exchange: Exchange): Failure {
  return ownFailure(Code.stream_interrupted, 'the stream was cut', true, exchange.elapsedMs);
}

function headOf(response: IncomingMessage): StreamHead {
  const { headers } = response;
  const contentType = headers['content-type'] ?? '';
  return {
    status: response.statusCode ?? 0,
    contentType: contentType.startsWith(FRAMES_TYPE) ? (textOf(headers, Header.contentType) ?? '') : contentType,
    headers,
    provider: textOf(headers, Header.provider),
    version: textOf(headers, Header.version),
    traceId: textOf(headers, Header.traceId) ?? '',
  };
}
