/**
 * WebSocket frames as a server reads them (RFC 6455): masked frames of any cut to whole messages, with every check that the
 * protocol asks for. What is wrong is told once, with the close code that it deserves, and nothing is read after it. Holds
 * no more than one message up to the limit, and nothing at all between messages: twelve thousand idle readers are small.
 *
 * Why our own: a call over a channel is one short frame each way, and a general receiver (a stream of its own with its
 * buffers and events) costs more for it than all the rest of the channel, in time and in memory for every connection.
 */
import { isUtf8 } from 'node:buffer';
import { Crumbs } from './crumbs.ts';

export interface FrameSink {
  text(payload: Buffer): void;
  binary(payload: Buffer): void;
  ping(payload: Buffer): void;
  pong(): void;
  /** The peer's closing word; 1005 = it gave no code. */
  close(code: number): void;
  /** It breaks the protocol, or a limit. `words` hold nothing of what was sent. */
  broken(code: 1002 | 1007 | 1009, words: string): void;
  /** Nothing more shall be read: it is over. */
  readonly isOver: boolean;
}

const Op = { more: 0, text: 1, binary: 2, close: 8, ping: 9, pong: 10 } as const;
const MAX_CONTROL_BYTES = 125;
/** Pieces of one message; far above honest use, since each costs memory beside its bytes. */
const MAX_PIECES = 16_384;
/** What is left of a chunk must not keep all of it alive while its rest is waited for. */
const SMALL_REST_BYTES = 1_024;

export class WebSocketReader {
  readonly #maxBytes: number;
  /** The beginning of a frame that is not whole yet. */
  #held: Crumbs | null = null;
  /** As many bytes as the frame under way has, head and all; 0 = its head is not whole. */
  #needed = 0;
  /** Pieces of a message that comes in several frames. */
  #pieces: Crumbs | null = null;
  #piecesCount = 0;
  #piecesBytes = 0;
  #piecesOp = 0;

  /** @param maxBytes of one message. */
  constructor(maxBytes: number) {
    this.#maxBytes = maxBytes;
  }

  /** The bytes are the reader's from here on: they are unmasked where they stand. */
  push(chunk: Buffer, sink: FrameSink): void {
    let bytes = chunk;
    if (this.#held !== null) {
      this.#held.add(chunk);
      if (this.#held.bytes < this.#needed) return;
      bytes = this.#held.whole();
      this.#held = null;
      this.#needed = 0;
    }
    let at = 0;
    while (at < bytes.length && !sink.isOver) {
      const taken = this.#frame(bytes, at, sink);
      if (taken === 0) {
        this.#hold(bytes, at);
        return;
      }
      at += taken;
    }
  }

  #hold(bytes: Buffer, at: number): void {
    const rest = at === 0 ? bytes : bytes.subarray(at);
    this.#held = new Crumbs();
    this.#held.add(rest.length < SMALL_REST_BYTES && at > 0 ? Buffer.from(rest) : rest);
  }

  /** How many bytes the frame at `at` took; 0 = it is not whole. */
  #frame(bytes: Buffer, at: number, sink: FrameSink): number {
    const left = bytes.length - at;
    const first = bytes[at] as number;
    const op = first & 0x0f;
    const isFinal = (first & 0x80) !== 0;
    const early = this.#problem(first, op, isFinal);
    if (early !== '') return broken(sink, 1002, early);
    if (left < 2) return 0;
    const second = bytes[at + 1] as number;
    if ((second & 0x80) === 0) return broken(sink, 1002, 'a frame of a client must be masked');
    const short = second & 0x7f;
    if (op >= Op.close && short > MAX_CONTROL_BYTES) return broken(sink, 1002, 'a control frame has at most 125 bytes');
    const head = short < 126 ? 6 : short === 126 ? 8 : 14;
    if (left < head) return 0;
    let length = short;
    if (short === 126) length = bytes.readUInt16BE(at + 2);
    else if (short === 127) length = bytes.readUInt32BE(at + 2) * 0x1_0000_0000 + bytes.readUInt32BE(at + 6);
    // What is said between the pieces of a message is not of the message.
    if (op < Op.close && length + this.#piecesBytes > this.#maxBytes)
      return broken(sink, 1009, `a message has at most ${this.#maxBytes} bytes`);
    if (left < head + length) {
      this.#needed = head + length;
      return 0;
    }
    const from = at + head;
    unmask(bytes, from, from + length, from - 4);
    const payload = bytes.subarray(from, from + length);
    if (op >= Op.close) control(op, payload, sink);
    else if (isFinal && this.#pieces === null) message(op, payload, sink);
    else this.#piece(op, isFinal, payload, sink);
    return head + length;
  }

  /** What its first byte alone shows; '' = nothing wrong. */
  #problem(first: number, op: number, isFinal: boolean): string {
    if ((first & 0x70) !== 0) return 'a reserved bit is set, and no extension was agreed on';
    if (op > Op.pong || (op > Op.binary && op < Op.close)) return `there is no frame of type ${op}`;
    if (op >= Op.close) return isFinal ? '' : 'a control frame comes in one piece';
    if (op === Op.more) return this.#pieces === null ? 'a continuation without a beginning' : '';
    return this.#pieces === null ? '' : 'a message begins before the last one has ended';
  }

  #piece(op: number, isFinal: boolean, payload: Buffer, sink: FrameSink): void {
    if (this.#pieces === null) {
      this.#pieces = new Crumbs();
      this.#piecesOp = op;
    }
    this.#pieces.add(payload);
    this.#piecesBytes += payload.length;
    if (++this.#piecesCount > MAX_PIECES) {
      broken(sink, 1009, `a message has at most ${MAX_PIECES} pieces`);
      return;
    }
    if (!isFinal) return;
    const whole = this.#pieces.whole();
    this.#pieces = null;
    this.#piecesCount = 0;
    this.#piecesBytes = 0;
    message(this.#piecesOp, whole, sink);
  }
}

function broken(sink: FrameSink, code: 1002 | 1007 | 1009, words: string): number {
  sink.broken(code, words);
  // Anything but 0: there is nothing to wait for.
  return 1;
}

function message(op: number, payload: Buffer, sink: FrameSink): void {
  if (op === Op.binary) sink.binary(payload);
  else if (isUtf8(payload)) sink.text(payload);
  else sink.broken(1007, 'a text that is not UTF-8');
}

function control(op: number, payload: Buffer, sink: FrameSink): void {
  if (op === Op.ping) sink.ping(payload);
  else if (op === Op.pong) sink.pong();
  else if (payload.length === 0) sink.close(1005);
  else if (payload.length === 1 || !isCloseCode(payload.readUInt16BE(0))) sink.broken(1002, 'a closing word with a code that there is not');
  else if (!isUtf8(payload.subarray(2))) sink.broken(1007, 'a closing word that is not UTF-8');
  else sink.close(payload.readUInt16BE(0));
}

/** Codes that may travel: those of the protocol but for the three that only describe, and those of libraries and programs. */
function isCloseCode(code: number): boolean {
  return (code >= 1000 && code <= 1014 && code !== 1004 && code !== 1005 && code !== 1006) || (code >= 3000 && code <= 4999);
}

/** Four bytes at a time where they lie right for it, as they do in the usual frame. */
function unmask(bytes: Buffer, from: number, to: number, maskAt: number): void {
  let i = from;
  if (to - from >= 64) {
    const misaligned = (bytes.byteOffset + from) & 3;
    const start = misaligned === 0 ? from : from + 4 - misaligned;
    for (; i < start; i++) bytes[i] = (bytes[i] as number) ^ (bytes[maskAt + ((i - from) & 3)] as number);
    const words = new Int32Array(bytes.buffer, bytes.byteOffset + start, (to - start) >> 2);
    const mask = wordAt(bytes, maskAt, start - from);
    for (let w = 0; w < words.length; w++) words[w] = (words[w] as number) ^ mask;
    i = start + words.length * 4;
  }
  for (; i < to; i++) bytes[i] = (bytes[i] as number) ^ (bytes[maskAt + ((i - from) & 3)] as number);
}

const word = new Int32Array(1);
const wordBytes = new Uint8Array(word.buffer);

/** The mask as a word of this machine, turned by as many bytes as have been done. */
function wordAt(bytes: Buffer, maskAt: number, turn: number): number {
  for (let i = 0; i < 4; i++) wordBytes[i] = bytes[maskAt + ((turn + i) & 3)] as number;
  return word[0] as number;
}
