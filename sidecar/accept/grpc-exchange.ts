/**
 * One RPC on its HTTP/2 stream: length-prefixed messages in and out, compression of what comes, the status in the trailers.
 * Decides when a request is whole, too large, too slow or not to be read, and that a stream which was closed before its
 * end cancels the work. What the messages mean is the business of whoever takes them.
 */
import { constants, type IncomingHttpHeaders, type OutgoingHttpHeaders, type ServerHttp2Stream } from 'node:http2';
import { gunzip, inflate } from 'node:zlib';
import { nextTurn, type Timer } from '../../base/clock.ts';
import { HeldBytes } from '../../base/held-bytes.ts';
import { Code } from '../../proto/wire/codes.ts';
import type { Front } from './front.ts';
import type { Backlog } from './grpc-backlog.ts';
import { type Metadata, readMetadata } from './grpc-request.ts';
import { OK, refusalTrailers, Status, type Trailers } from './grpc-status.ts';
import type { Stoppable } from './line.ts';

/** Flag and length before every message. */
export const PREFIX_BYTES = 5;
/** The request of an RPC with one: as long as HTTP gives a request. */
const REQUEST_MS = 60_000;
/** One write to the stream. Small enough that a slow client shows within the stall limit that it takes something. */
const SLICE_BYTES = 65_536;
const ENCODINGS = 'identity,gzip,deflate';

const HEAD: OutgoingHttpHeaders = Object.freeze({
  ':status': 200,
  'content-type': 'application/grpc+proto',
  'grpc-accept-encoding': ENCODINGS,
});
const WITH_TRAILERS = Object.freeze({ waitForTrailers: true, sendDate: false });
const TRAILERS_ONLY = Object.freeze({ endStream: true, sendDate: false });

const EXCHANGE = Symbol('exchange');
type Owned = ServerHttp2Stream & { [EXCHANGE]?: Exchange };

// One listener of a kind for all streams, so that none is made per call.

function onData(this: Owned, chunk: Buffer): void {
  this[EXCHANGE]?.take(chunk);
}

function onEnd(this: Owned): void {
  this[EXCHANGE]?.ended();
}

function onClose(this: Owned): void {
  this[EXCHANGE]?.closed();
}

function onDrain(this: Owned): void {
  this[EXCHANGE]?.drained();
}

function onWantTrailers(this: Owned): void {
  this[EXCHANGE]?.sendTrailers();
}

/** Takes the messages of an RPC. */
export interface Taker {
  message(exchange: Exchange, message: Buffer): void;
  /** The client has said all; called after the last message. */
  allSaid(exchange: Exchange): void;
}

export class Exchange {
  readonly front: Front;
  readonly stream: ServerHttp2Stream;
  readonly metadata: Metadata;
  /** `clock.now()` when the headers came. */
  readonly openedAt: number;
  /** Stopped when the client leaves; set by whoever works for it. */
  work: Stoppable | null = null;
  /** Called when the client takes more after `send` gave false. */
  onDrain: (() => void) | null = null;
  /** In the connection's list. */
  place = 0;
  readonly #backlog: Backlog;
  readonly #taker: Taker;
  readonly #maxMessageBytes: number;
  /** Of a message that is not whole yet, in one piece: a client chooses how small it cuts. */
  readonly #held = new HeldBytes();
  /** With fewer bytes nothing can be done. */
  #needed = PREFIX_BYTES;
  #saidAll = false;
  #inflating = false;
  /** What the stream has not been given yet, in slices. */
  #queue: Buffer[] | null = null;
  #queuedBytes = 0;
  /** As the connection knows it. */
  #countedBytes = 0;
  #isHeadOut = false;
  #isOver = false;
  #isClosed = false;
  #trailers: Trailers = OK;
  #timer: Timer | null = null;

  /** @param slow true: the client may take its time between messages. */
  constructor(
    front: Front,
    stream: ServerHttp2Stream,
    rawHeaders: readonly string[],
    taker: Taker,
    { slow, backlog }: { readonly slow: boolean; readonly backlog: Backlog },
  ) {
    this.front = front;
    this.stream = stream;
    this.#backlog = backlog;
    backlog.opened(this);
    this.#taker = taker;
    this.openedAt = front.engine.clock.now();
    this.metadata = readMetadata(rawHeaders);
    const { limits } = front.engine.config;
    // The bytes of the payload, and room for its name and headers.
    this.#maxMessageBytes = limits.bodyBytes + limits.headerBytes;
    (stream as Owned)[EXCHANGE] = this;
    stream.on('data', onData);
    stream.on('end', onEnd);
    stream.on('close', onClose);
    stream.on('drain', onDrain);
    if (!slow) this.#timer = front.engine.clock.after(REQUEST_MS, () => this.#tooSlow());
  }

  /** The status is out, or the client is gone. */
  get isOver(): boolean {
    return this.#isOver;
  }

  /** Nothing can be written: a stream is destroyed a moment before it says that it is closed. */
  get #isGone(): boolean {
    return this.#isOver || this.stream.destroyed || this.stream.closed;
  }

  /** The headers of the answer go before there is anything to say. */
  begin(): void {
    if (!this.#isGone) this.#openHead();
  }

  /** Sends a message; false = wait for `onDrain`. */
  send(message: Uint8Array): boolean {
    if (this.#isGone) return true;
    this.#openHead();
    return this.#write(framed(message));
  }

  /**
   * True when an answer of so many bytes was given up, because the client does not take those that wait already. What was
   * asked for has been done, so the status says that nobody knows.
   */
  givesUp(bytes: number): boolean {
    if (this.#isGone || bytes <= SLICE_BYTES || this.#backlog.hasRoomFor(bytes)) return false;
    this.front.observation.metrics.requestRefused('unsent');
    const words = `the answer of ${bytes} bytes is given up: ${this.#backlog.bytes} bytes of others wait on this connection to be taken`;
    this.fail(refusalTrailers(Code.response_too_large, words, 0, Status.resource_exhausted, true));
    return true;
  }

  /** The last message, and the good end. */
  finish(message: Uint8Array | null, trailers: Trailers = OK): void {
    if (this.#isGone) return;
    this.#trailers = trailers;
    const bytes = message === null ? 0 : PREFIX_BYTES + message.length;
    this.#openHead();
    this.#over();
    if (message === null) this.#end();
    else if (this.#queue === null && bytes <= SLICE_BYTES) {
      this.stream.end(framed(message));
      this.count();
    } else {
      this.#write(framed(message));
      this.#end();
    }
  }

  /** Ends with a status that is not OK; messages sent before it get there before it. */
  fail(trailers: Trailers): void {
    if (this.#isGone) return;
    this.#trailers = trailers;
    this.#over();
    const { stream } = this;
    if (this.#isHeadOut) this.#end();
    else stream.respond({ ...HEAD, ...trailers }, TRAILERS_ONLY);
    if (this.#saidAll) return;
    // The client is still sending: it is told that nobody reads it, after it was told why.
    stream.resume();
    if (!this.#isHeadOut) stream.close(constants.NGHTTP2_NO_ERROR);
  }

  refuse(code: Code, detail: string, retryAfterMs = 0, status?: number): void {
    this.fail(refusalTrailers(code, detail, retryAfterMs, status));
  }

  /** Bytes that were written and have not left; told to the connection. */
  count(): number {
    const bytes = this.#isClosed ? 0 : this.stream.writableLength + this.#queuedBytes;
    this.#backlog.changed(bytes - this.#countedBytes);
    this.#countedBytes = bytes;
    return bytes;
  }

  #write(bytes: Buffer): boolean {
    if (this.#queue !== null || bytes.length > SLICE_BYTES) {
      const queue = (this.#queue ??= []);
      for (let at = 0; at < bytes.length; at += SLICE_BYTES) queue.push(bytes.subarray(at, at + SLICE_BYTES));
      this.#queuedBytes += bytes.length;
      if (!this.stream.writableNeedDrain) this.#writeQueued();
    } else this.stream.write(bytes);
    this.count();
    return this.#queue === null && !this.stream.writableNeedDrain;
  }

  #writeQueued(): void {
    const queue = this.#queue as Buffer[];
    const { stream } = this;
    while (queue.length > 0 && !stream.writableNeedDrain) {
      const slice = queue.shift() as Buffer;
      this.#queuedBytes -= slice.length;
      stream.write(slice);
    }
    if (queue.length === 0) this.#queue = null;
  }

  /** After all that was written. */
  #end(): void {
    if (this.#queue === null) this.stream.end();
  }

  drained(): void {
    this.#backlog.taken();
    if (this.#queue !== null) {
      this.#writeQueued();
      if (this.#queue === null && this.#isOver) this.stream.end();
    }
    this.count();
    if (this.#queue === null && !this.stream.writableNeedDrain) this.onDrain?.();
  }

  #openHead(): void {
    if (this.#isHeadOut) return;
    this.#isHeadOut = true;
    this.stream.respond(HEAD, WITH_TRAILERS);
    this.stream.on('wantTrailers', onWantTrailers);
  }

  #over(): void {
    this.#isOver = true;
    if (!this.#isClosed) this.#backlog.ending();
    this.work = null;
    this.onDrain = null;
    this.#held.clear();
    this.#timer?.cancel();
  }

  // From the stream.

  sendTrailers(): void {
    const { stream } = this;
    stream.sendTrailers(this.#trailers);
    // A client that has not said all would keep its stream, and with it the connection, for as long as it likes. Said in
    // the same turn, it would be said instead of the trailers.
    if (!this.#saidAll) void nextTurn().then(() => stream.close(constants.NGHTTP2_NO_ERROR));
  }

  closed(): void {
    this.#timer?.cancel();
    const { work } = this;
    this.#isClosed = true;
    this.#queue = null;
    this.#queuedBytes = 0;
    this.count();
    this.#backlog.closed(this, this.#isOver);
    if (this.#isOver) return;
    this.#over();
    work?.cancel();
  }

  take(chunk: Buffer): void {
    if (this.#isOver) return;
    if (this.#held.length === 0 && !this.#inflating) {
      this.#read(chunk);
      return;
    }
    this.#held.add(chunk);
    if (!this.#inflating && this.#held.length >= this.#needed) this.#read(this.#held.take());
  }

  /** Hands on what is whole, and keeps the rest. */
  #read(bytes: Buffer): void {
    let at = 0;
    this.#needed = PREFIX_BYTES;
    while (!this.#isOver && !this.#inflating && bytes.length - at >= PREFIX_BYTES) {
      const flag = bytes[at] as number;
      const end = at + PREFIX_BYTES + bytes.readUInt32BE(at + 1);
      if (flag > 1) {
        this.#refuseRequest('framing', Code.invalid_request, 'a message begins with a flag that gRPC does not know');
        return;
      }
      if (end - at - PREFIX_BYTES > this.#maxMessageBytes) {
        this.#tooLarge();
        return;
      }
      if (bytes.length < end) {
        this.#needed = end - at;
        break;
      }
      const message = bytes.subarray(at + PREFIX_BYTES, end);
      at = end;
      if (flag === 0) this.#taker.message(this, message);
      else this.#inflate(message);
    }
    if (this.#isOver) return;
    if (at < bytes.length) this.#held.add(bytes.subarray(at));
    if (this.#saidAll && !this.#inflating) this.#lastSaid();
  }

  ended(): void {
    this.#saidAll = true;
    if (!this.#isOver && !this.#inflating) this.#lastSaid();
  }

  #lastSaid(): void {
    this.#timer?.cancel();
    if (this.#held.length > 0) this.#refuseRequest('framing', Code.invalid_request, 'the stream ended inside a message');
    else this.#taker.allSaid(this);
  }

  #inflate(message: Buffer): void {
    const { encoding } = this.metadata;
    const inflater = encoding === 'gzip' ? gunzip : encoding === 'deflate' ? inflate : null;
    if (inflater === null) {
      const words = `a message is compressed with ${JSON.stringify(encoding.slice(0, 40))}; known are gzip and deflate`;
      this.refuse(Code.invalid_request, words, 0, Status.unimplemented);
      return;
    }
    this.#inflating = true;
    this.stream.pause();
    inflater(message, { maxOutputLength: this.#maxMessageBytes }, (error, plain) => {
      this.#inflating = false;
      if (this.#isOver) return;
      this.stream.resume();
      if (error === null) {
        this.#taker.message(this, plain);
        this.#read(this.#held.take());
      } else if ((error as NodeJS.ErrnoException).code === 'ERR_BUFFER_TOO_LARGE') this.#tooLarge();
      else this.#refuseRequest('framing', Code.invalid_request, `a message could not be decompressed (${encoding})`);
    });
  }

  #tooLarge(): void {
    this.#refuseRequest(
      'body',
      Code.payload_too_large,
      `the message is above the limit of ${this.front.engine.config.limits.bodyBytes} bytes of payload`,
    );
  }

  #tooSlow(): void {
    this.#refuseRequest('slow', Code.invalid_request, `the request did not arrive within ${REQUEST_MS / 1_000} s`);
  }

  #refuseRequest(reason: string, code: Code, detail: string): void {
    this.front.observation.metrics.requestRefused(reason);
    this.refuse(code, detail);
  }
}

/** Whether the content type says gRPC with Protocol Buffers. */
export function isGrpc(headers: IncomingHttpHeaders): boolean {
  const type = headers['content-type'];
  if (type === undefined || !type.startsWith('application/grpc')) return false;
  const rest = type.slice('application/grpc'.length);
  return rest === '' || rest.startsWith('+proto') || rest.startsWith(';');
}

function framed(message: Uint8Array): Buffer {
  const bytes = Buffer.allocUnsafe(PREFIX_BYTES + message.length);
  bytes[0] = 0;
  bytes.writeUInt32BE(message.length, 1);
  bytes.set(message, PREFIX_BYTES);
  return bytes;
}
