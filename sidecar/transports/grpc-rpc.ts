/**
 * One gRPC call on the wire: waits for a connection, sends its messages, hands out those that come one by one, and ends
 * exactly once with everything that is known of how. JSON, types and Replies are not its affair.
 */
import { type ClientHttp2Stream, constants, type IncomingHttpHeaders, type OutgoingHttpHeaders } from 'node:http2';
import { Code } from '../../proto/wire/codes.ts';
import type { ReplyHeaders } from '../call/reply.ts';
import type { Tenant } from './grpc-channel.ts';
import type { Connection } from './grpc-connection.ts';
import { Deframer } from './grpc-frames.ts';
import { type Ending, statusOf } from './grpc-status.ts';

export interface RpcListener {
  /** The head came, and more will follow. */
  head(headers: ReplyHeaders): void;
  /** False pauses until `resume`. */
  message(bytes: Buffer): boolean;
  ended(ending: Ending): void;
}

const NONE: ReplyHeaders = Object.freeze({});
const REFUSED_STREAM = 7;

export class Rpc implements Tenant {
  isSettled = false;
  /** Handed to a connection: from here on the server may have acted. */
  isSent = false;
  messages = 0;
  httpStatus = 0;
  readonly #headers: OutgoingHttpHeaders;
  readonly #frames: Buffer;
  readonly #host: string;
  readonly #now: () => number;
  readonly #deframer: Deframer;
  readonly #maxBytes: number;
  readonly #listener: RpcListener;
  #stream: ClientHttp2Stream | null = null;
  #connection: Connection | null = null;
  #startedAt = 0;
  #wasUsed = false;
  #head: ReplyHeaders = NONE;
  #trailers: ReplyHeaders | null = null;
  #isPaused = false;
  #hasEnded = false;
  #isClosed = false;

  constructor(headers: OutgoingHttpHeaders, frames: Buffer, host: string, maxBytes: number, now: () => number, listener: RpcListener) {
    this.#headers = headers;
    this.#frames = frames;
    this.#host = host;
    this.#now = now;
    this.#maxBytes = maxBytes;
    this.#deframer = new Deframer(maxBytes);
    this.#listener = listener;
  }

  /** How far it came, for words. */
  get where(): string {
    if (!this.isSent) return `while waiting for a connection to ${this.#host}`;
    if (this.messages > 0) return `in the middle of the answer, after ${this.messages} messages`;
    return this.httpStatus === 0 ? 'while waiting for an answer' : 'after the head of the answer';
  }

  start(connection: Connection): void {
    let stream: ClientHttp2Stream;
    try {
      stream = connection.session.request(this.#headers, { endStream: false });
    } catch (error) {
      const code = (error as NodeJS.ErrnoException).code ?? '';
      const isGone = connection.session.destroyed || connection.session.closed;
      return this.refused(
        isGone ? Code.connection_lost : Code.invalid_request,
        `the request cannot be sent to ${this.#host}: ${code || (error as Error).message}`,
      );
    }
    this.#stream = stream;
    this.#connection = connection;
    this.#wasUsed = connection.hasServed;
    this.#startedAt = this.#now();
    this.isSent = true;
    connection.begun();
    stream.on('response', (headers, flags) => this.#gotHead(headers, (flags & constants.NGHTTP2_FLAG_END_STREAM) !== 0));
    stream.on('trailers', (headers: IncomingHttpHeaders) => {
      this.#trailers = headers;
    });
    stream.on('data', (chunk: Buffer) => this.#gotData(chunk));
    stream.on('end', () => this.#gotEnd());
    // What went wrong is in the code with which it closes.
    stream.on('error', () => {});
    stream.on('close', () => this.#closed());
    stream.end(this.#frames);
  }

  refused(code: Code, words: string): void {
    this.#end({ ...this.#ending(), status: -1, started: 'not_started', fault: { code, words } });
  }

  /** Gives up at once; nothing is heard of it any more. */
  stop(): void {
    if (this.isSettled) return;
    this.isSettled = true;
    if (this.#connection !== null && this.httpStatus === 0) this.#connection.doubt(this.#startedAt);
    this.#reset();
  }

  resume(): void {
    if (!this.#isPaused) return;
    this.#isPaused = false;
    if (!this.#drain()) return;
    if (this.#isClosed) this.#conclude();
    else if (this.#hasEnded) this.#gotEnd();
    else this.#stream?.resume();
  }

  #gotHead(headers: IncomingHttpHeaders, isEnd: boolean): void {
    const connection = this.#connection as Connection;
    connection.heardAt = this.#now();
    connection.hasServed = true;
    this.httpStatus = headers[':status'] as unknown as number;
    this.#head = headers;
    const encoding = headers['grpc-encoding'];
    this.#deframer.encoding = typeof encoding === 'string' ? encoding : '';
    if (this.isSettled) return;
    if (isEnd) this.#trailers = this.#head;
    else if (this.httpStatus === 200 && isGrpc(headers['content-type'])) this.#listener.head(this.#head);
  }

  #gotData(chunk: Buffer): void {
    if (this.#connection !== null) this.#connection.heardAt = this.#now();
    if (this.isSettled || this.httpStatus !== 200) return;
    if (!isGrpc(this.#head['content-type'])) {
      this.#fail(Code.bad_response, `the answer is ${String(this.#head['content-type'] ?? 'of no type')}, not gRPC`);
      return;
    }
    this.#deframer.push(chunk);
    this.#drain();
  }

  /** Hands out what is there; false when it may not go on. */
  #drain(): boolean {
    for (;;) {
      if (this.isSettled) return false;
      const message = this.#deframer.take();
      if (message === null) break;
      this.messages++;
      if (!this.#listener.message(message)) {
        this.#isPaused = true;
        this.#stream?.pause();
        return false;
      }
    }
    const { problem, announced } = this.#deframer;
    if (problem === 'too_large')
      this.#fail(
        Code.response_too_large,
        `a message of the answer is above the limit of ${this.#maxBytes} bytes${announced > 0 ? `: ${announced} are announced` : ''}`,
      );
    if (problem === 'compressed') this.#fail(Code.bad_response, 'a message of the answer is compressed in a way that was not asked for');
    return problem === '';
  }

  #gotEnd(): void {
    this.#hasEnded = true;
    if (this.#isPaused || this.isSettled) return;
    const headers = this.#trailers;
    // Without trailers, the code with which the stream closes says more.
    if (headers === null || statusOf(headers) < 0) return;
    this.#conclude();
    // The server has answered before it had read the whole request: it need not read on.
    if (this.#stream?.writableFinished === false) this.#reset();
  }

  #closed(): void {
    this.#isClosed = true;
    // Whole to its end, and a part of it waits for the reader: the end is said after that.
    if (!this.isSettled && !(this.#isPaused && this.#hasEnded)) this.#conclude();
    this.#connection?.released();
  }

  #conclude(): void {
    const connection = this.#connection;
    const stream = this.#stream;
    const rst = stream?.rstCode ?? 0;
    const isGone = connection === null || connection.state === 'closed' || connection.session.destroyed;
    const isAbove = connection !== null && connection.lastProcessed >= 0 && (stream?.id ?? 0) > connection.lastProcessed;
    const status = this.#trailers === null ? -1 : statusOf(this.#trailers);
    const isUnseen = this.httpStatus === 0 && (rst === REFUSED_STREAM || (isAbove && (isGone || rst !== 0)));
    const ending: Ending = {
      ...this.#ending(),
      status,
      rst,
      started: isUnseen ? 'not_started' : status >= 0 ? 'done' : 'started',
      isLost: isGone,
    };
    const fault = status === 0 ? this.#whyNotWhole() : null;
    this.#end(fault === null ? ending : { ...ending, status: -1, started: 'started', fault });
  }

  /** The status says OK: is all there that came before it? */
  #whyNotWhole(): Ending['fault'] {
    // What was held back for the reader goes with a connection that breaks.
    if (this.#isPaused && !this.#hasEnded)
      return { code: Code.connection_lost, words: `the connection to ${this.#host} broke before the whole answer was read` };
    return this.#deframer.isInside ? { code: Code.bad_response, words: 'the answer ended in the middle of a message' } : null;
  }

  #ending(): Ending {
    return {
      status: -1,
      headers: this.#trailers === null || this.#trailers === this.#head ? this.#head : { ...this.#head, ...this.#trailers },
      httpStatus: this.httpStatus,
      rst: 0,
      started: 'started',
      isLost: false,
      isReused: this.#wasUsed,
      host: this.#host,
      fault: null,
    };
  }

  #fail(code: Code, words: string): void {
    this.#end({ ...this.#ending(), fault: { code, words } });
    this.#reset();
  }

  #end(ending: Ending): void {
    if (this.isSettled) return;
    this.isSettled = true;
    this.#listener.ended(ending);
  }

  #reset(): void {
    const stream = this.#stream;
    if (stream === null || stream.closed || stream.destroyed) return;
    stream.resume();
    stream.close(constants.NGHTTP2_CANCEL);
  }
}

function isGrpc(type: string | string[] | undefined): boolean {
  return typeof type === 'string' && type.startsWith('application/grpc') && !type.startsWith('application/grpc-web');
}
