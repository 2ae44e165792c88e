/**
 * One request and its answer on an HTTP connection: the handler that undici calls, the Promise's other end, and, for a
 * stream, the BodySource. Settles exactly once, gives its slot back exactly once, and after `stop` nothing it hears
 * changes what was said.
 */
import type { Dispatcher } from 'undici';
import type { Timer } from '../../base/clock.ts';
import { Code } from '../../proto/wire/codes.ts';
import { answered, type BodySink, type BodySource, failed, NO_BODY, type Reply, type ReplyHeaders, streaming } from '../call/reply.ts';
import type { Started } from '../call/attempt-record.ts';
import { decodeBody, encodingOf } from './decode.ts';
import { cutWords, failureOf, type Progress } from './http-errors.ts';
import type { Pool, Slot, Tenant } from './pool.ts';

/** `head`: the answer's body is of no interest (a cast). */
export type Mode = 'whole' | 'stream' | 'head';

/** Knows when enough of a whole answer has come: what follows, in a stream that may never end, is not waited for. */
export interface Enough {
  head(status: number, headers: ReplyHeaders): boolean;
  piece(bytes: Buffer): boolean;
}

/** After enough has come the end has so long to come as well, milliseconds: then its connection can be used again, else it is cut. */
const REST_MS = 100;

/** A body that nobody wants is read and dropped up to this size, so that the connection stays usable; then it is cut. */
const DRAIN_BYTES = 65_536;

/** One Error for all: undici wants one, nobody reads it. */
const STOPPED = new Error('stopped by the sidecar');
const NONE: ReplyHeaders = Object.freeze({});

export class HttpExchange implements Tenant, BodySource, Progress {
  readonly options: Dispatcher.DispatchOptions;
  readonly host: string;
  readonly maxHeaderBytes: number;
  readonly fresh: boolean;
  slot: Slot | null = null;
  next: Tenant | null = null;
  sent = false;
  begun = false;
  status = 0;
  receivedBytes = 0;
  isSettled = false;
  readonly #mode: Mode;
  readonly #maxBytes: number;
  readonly #enough: Enough | null;
  /** Runs while the end may come yet after enough has come. */
  #rest: Timer | null = null;
  #resolve: ((reply: Reply) => void) | null;
  #controller: Dispatcher.DispatchController | null = null;
  #headers: ReplyHeaders = NONE;
  #first: Buffer | null = null;
  #more: Buffer[] | null = null;
  /** No length was announced for a body that is wanted whole. */
  #isUnannounced = false;
  /** The head was given out and the body goes chunk by chunk. */
  #isStreaming = false;
  #sink: BodySink | null = null;
  /** How the body ended while no sink was there to hear it; null = not ended. */
  #ending: Ending | null = null;
  #isOver = false;

  constructor(
    options: Dispatcher.DispatchOptions,
    mode: Mode,
    maxBytes: number,
    fresh: boolean,
    pool: Pool,
    resolve: (reply: Reply) => void,
    enough: Enough | null = null,
  ) {
    this.options = options;
    this.host = pool.host;
    this.maxHeaderBytes = pool.settings.maxResponseHeaderBytes;
    this.fresh = fresh;
    this.#mode = mode;
    this.#maxBytes = maxBytes;
    this.#resolve = resolve;
    this.#enough = enough;
  }

  get reused(): boolean {
    return this.slot !== null && this.slot.hasServed;
  }

  /** HTTP/1.0 and `connection: close` framing; a body of a known length or in chunks cannot be cut unnoticed. */
  get endsByClose(): boolean {
    return this.#headers['content-length'] === undefined && this.#headers['transfer-encoding'] === undefined;
  }

  /** Gives up at once: settles, and destroys the connection when the request is on one. */
  stop(): void {
    if (this.#isStreaming) this.cancel(Code.cancelled, 'stopped by the sidecar');
    else if (!this.isSettled) this.#fail(failed(Code.cancelled, this.#started(), `stopped ${this.#where()}`));
  }

  // What undici calls.

  onRequestStart(controller: Dispatcher.DispatchController): void {
    // Throwing here is undici's way to withdraw a request while its connection stays whole.
    if (this.isSettled) throw STOPPED;
    this.#controller = controller;
    this.sent = true;
  }

  onResponseStarted(): void {
    this.begun = true;
  }

  onResponseStart(controller: Dispatcher.DispatchController, status: number, headers: ReplyHeaders): void {
    if (status < 200 || this.isSettled) return;
    this.status = status;
    this.#headers = headers;
    if (status === 204 || status === 304) {
      // No body can follow, whatever content-length says; undici drops the connection when it says something.
      this.#settle(answered(status, headers, NO_BODY));
    } else if (this.#mode === 'head') {
      this.#settle(answered(status, headers, NO_BODY));
    } else if (this.#mode === 'stream' && status < 300) {
      this.#isStreaming = true;
      controller.pause();
      this.#settle(streaming(status, headers, this));
    } else {
      const announced = this.options.method === 'HEAD' ? undefined : headers['content-length'];
      if (announced === undefined) this.#isUnannounced = true;
      else if (typeof announced === 'string' && Number(announced) > this.#maxBytes) this.#tooLarge(`${announced} bytes are announced`);
      if (this.#enough !== null && !this.isSettled && this.#enough.head(status, headers)) this.#suffices(controller);
    }
  }

  onResponseData(controller: Dispatcher.DispatchController, chunk: Buffer): void {
    // A paused parser that is resumed hands out an empty rest; asking for a pause on it would pause it for ever.
    if (chunk.length === 0) return;
    this.receivedBytes += chunk.length;
    if (this.#isStreaming) {
      if (this.#sink !== null && !this.#sink.chunk(chunk) && !this.#isOver) controller.pause();
      else if (this.#sink === null && !this.#isOver) this.#hold(chunk);
    } else if (this.isSettled) {
      if (this.receivedBytes > DRAIN_BYTES) controller.abort(STOPPED);
    } else if (this.receivedBytes > this.#maxBytes) {
      this.#tooLarge(`it went on after ${this.#maxBytes} bytes`);
    } else {
      this.#hold(chunk);
      if (this.#enough !== null && this.#enough.piece(chunk)) this.#suffices(controller);
    }
  }

  onResponseEnd(): void {
    this.#rest?.cancel();
    const slot = this.slot;
    if (slot !== null) {
      slot.hasServed = true;
      this.slot = null;
      if (this.status === 500) slot.pool.releaseDoubted(slot);
      else slot.pool.release(slot);
    }
    if (this.#isStreaming) this.#over(ENDED);
    else if (!this.isSettled) this.#answer();
  }

  onResponseError(_controller: Dispatcher.DispatchController, error: Error): void {
    this.#rest?.cancel();
    const slot = this.slot;
    if (this.#isStreaming) this.#over(new Ending(Code.stream_interrupted, cutWords(error, this.receivedBytes)));
    else if (!this.isSettled) this.#settle(failureOf(error, this));
    this.slot = null;
    if (slot !== null) slot.pool.releaseLater(slot);
  }

  // What the pool calls.

  unpause(): void {
    this.#controller?.resume();
  }

  refused(): void {
    if (!this.isSettled) this.#settle(failed(Code.connection_lost, 'not_started', 'the sidecar is closing its connections'));
  }

  // What the reader of a stream calls.

  pipe(sink: BodySink): void {
    this.#sink = sink;
    let goesOn = true;
    const first = this.#first;
    const more = this.#more;
    this.#first = null;
    this.#more = null;
    if (first !== null) goesOn = sink.chunk(first);
    if (more !== null) for (const chunk of more) goesOn = sink.chunk(chunk);
    const ending = this.#ending;
    if (ending !== null) {
      this.#ending = null;
      ending.tell(sink);
    } else if (goesOn) {
      this.resume();
    }
  }

  resume(): void {
    this.#controller?.resume();
  }

  cancel(code: Code, detail: string): void {
    if (this.#isOver) return;
    this.#over(new Ending(code, detail));
    this.#controller?.abort(STOPPED);
  }

  #over(ending: Ending): void {
    if (this.#isOver) return;
    this.#isOver = true;
    if (this.#sink === null) this.#ending = ending;
    else ending.tell(this.#sink);
  }

  #hold(chunk: Buffer): void {
    if (this.#first === null) this.#first = chunk;
    else if (this.#more === null) this.#more = [chunk];
    else this.#more.push(chunk);
  }

  #answer(): void {
    const first = this.#first;
    const body = first === null ? NO_BODY : this.#more === null ? first : Buffer.concat([first, ...this.#more], this.receivedBytes);
    this.#first = null;
    this.#more = null;
    const encoding = encodingOf(this.#headers);
    if (encoding === '' || body.length === 0) {
      const reply = answered(this.status, this.#headers, body);
      if (this.#isUnannounced && this.endsByClose) reply.end = 'by_close';
      this.#settle(reply);
    }
    // Packed bytes tell their own end.
    else
      void decodeBody(encoding, this.status, this.#headers, body, this.#maxBytes).then((reply) => {
        if (!this.isSettled) this.#settle(reply);
      });
  }

  #suffices(controller: Dispatcher.DispatchController): void {
    this.#answer();
    this.#rest = this.slot?.pool.settings.clock.after(REST_MS, () => controller.abort(STOPPED)) ?? null;
  }

  #tooLarge(words: string): void {
    this.#fail(failed(Code.response_too_large, 'started', `the answer is above the limit of ${this.#maxBytes} bytes: ${words}`));
  }

  #fail(reply: Reply): void {
    this.#settle(reply);
    this.#first = null;
    this.#more = null;
    this.#controller?.abort(STOPPED);
    // Still waiting for a connection: the body need not wait with it.
    if (!this.sent) this.options.body = null;
  }

  #settle(reply: Reply): void {
    this.isSettled = true;
    const resolve = this.#resolve;
    this.#resolve = null;
    if (resolve !== null) resolve(reply);
  }

  #started(): Started {
    return this.sent ? 'started' : 'not_started';
  }

  #where(): string {
    if (this.slot === null) return `while waiting for a free connection to ${this.host}`;
    if (!this.sent) return `while connecting to ${this.host}`;
    if (this.status === 0) return 'while waiting for an answer';
    return `in the middle of the answer, after ${this.receivedBytes} bytes of its body`;
  }
}

/** How a streamed body ended; kept when it did so before anybody listened. */
class Ending {
  readonly code: Code;
  readonly detail: string;
  constructor(code: Code, detail: string) {
    this.code = code;
    this.detail = detail;
  }
  tell(sink: BodySink): void {
    if (this.code === 0) sink.end();
    else sink.cut(this.code, this.detail);
  }
}

const ENDED = new Ending(0, '');
