/**
 * Reads frames out of bytes, however they were cut on the way. Pure and bounded: it holds at most one head and the payload
 * under way, and a head that cannot be one is refused in words before a byte of its payload is waited for. What a frame
 * means, and what happens to the connection when the bytes are wrong, is the affair of whoever reads.
 */
import { Frame, FRAME_HEAD_BYTES, FRAME_VERSION, type FrameType, MAX_FRAME_BYTES } from './frames.ts';

/** One frame. */
export interface FrameRead {
  readonly type: FrameType;
  /** The number of its head: a length on byte streams, a stream on a channel. */
  readonly number: number;
  readonly payload: Buffer;
}

export interface FrameSink {
  /** One frame. The payload may share memory with what was pushed. */
  frame(type: FrameType, payload: Buffer): void;
}

/**
 * `whole`: every frame is given as it was sent. `pieces`: the payload of a data frame is given as it comes, in as many
 * `data` calls as there were pieces, without a copy; where the bytes matter and not their borders.
 */
export type FrameReading = 'whole' | 'pieces';

const NOTHING: Buffer = Buffer.alloc(0);

/** For byte streams: the number in the head is the payload's length. */
export class FrameReader {
  readonly #sink: FrameSink;
  readonly #inPieces: boolean;
  readonly #head = Buffer.allocUnsafe(FRAME_HEAD_BYTES);
  #headBytes = 0;
  #type: FrameType = Frame.data;
  #length = 0;
  /** Bytes of the payload that have not come. */
  #missing = 0;
  /** The payload under way; null when it is given in pieces, or has not begun. */
  #payload: Buffer[] = [];
  #isOver = false;
  #problem: string | null = null;

  constructor(sink: FrameSink, reading: FrameReading = 'whole') {
    this.#sink = sink;
    this.#inPieces = reading === 'pieces';
  }

  /** The end (or error) frame has come: nothing may follow. */
  get isOver(): boolean {
    return this.#isOver;
  }

  /** Gives every frame that is whole by now to the sink. @returns what is wrong with the bytes, null = nothing; wrong once is wrong for good. */
  push(data: Buffer): string | null {
    let at = 0;
    while (at < data.length && this.#problem === null) {
      if (this.#headBytes < FRAME_HEAD_BYTES) at = this.#readHead(data, at);
      else at = this.#readPayload(data, at);
    }
    return this.#problem;
  }

  /** The bytes have come to an end. @returns why that is no proper end, null = it is one. */
  finish(): string | null {
    if (this.#problem !== null) return this.#problem;
    if (this.#isOver) return null;
    if (this.#headBytes === 0) return 'the frames ended without an end frame';
    if (this.#headBytes < FRAME_HEAD_BYTES) return 'the frames ended inside the head of a frame';
    return `the frames ended inside a frame, ${this.#missing} of ${this.#length} bytes before its end`;
  }

  #readHead(data: Buffer, from: number): number {
    if (this.#isOver) {
      this.#problem = 'bytes follow the end frame';
      return from;
    }
    const taken = Math.min(FRAME_HEAD_BYTES - this.#headBytes, data.length - from);
    data.copy(this.#head, this.#headBytes, from, from + taken);
    this.#headBytes += taken;
    if (this.#headBytes < FRAME_HEAD_BYTES) {
      // A wrong version or type is told by its byte, not when the rest has come.
      this.#problem = headProblem(this.#head, this.#headBytes);
      return from + taken;
    }
    this.#problem = headProblem(this.#head, FRAME_HEAD_BYTES);
    if (this.#problem !== null) return from + taken;
    this.#type = this.#head[1] as FrameType;
    this.#length = this.#head.readUInt32BE(2);
    this.#problem = lengthProblem(this.#type, this.#length);
    if (this.#problem !== null) return from + taken;
    this.#missing = this.#length;
    if (this.#length === 0) this.#give(NOTHING);
    return from + taken;
  }

  #readPayload(data: Buffer, from: number): number {
    const taken = Math.min(this.#missing, data.length - from);
    const piece = from === 0 && taken === data.length ? data : data.subarray(from, from + taken);
    this.#missing -= taken;
    if (this.#inPieces && this.#type === Frame.data) {
      if (this.#missing === 0) this.#give(piece);
      else this.#sink.frame(Frame.data, piece);
    } else if (this.#missing > 0) this.#payload.push(piece);
    else if (this.#payload.length === 0) this.#give(piece);
    else {
      this.#payload.push(piece);
      const whole = Buffer.concat(this.#payload, this.#length);
      this.#payload = [];
      this.#give(whole);
    }
    return from + taken;
  }

  /** The frame is complete. */
  #give(payload: Buffer): void {
    const type = this.#type;
    this.#headBytes = 0;
    this.#isOver = type === Frame.end || type === Frame.error;
    this.#sink.frame(type, payload);
  }
}

/** One frame that came as a message of its own (a channel): its number is a stream. In words what is wrong with it otherwise. */
export function readFrame(message: Buffer): FrameRead | string {
  if (message.length < FRAME_HEAD_BYTES) return `a frame has a head of ${FRAME_HEAD_BYTES} bytes, this message has ${message.length}`;
  const problem = headProblem(message, FRAME_HEAD_BYTES);
  if (problem !== null) return problem;
  const length = message.length - FRAME_HEAD_BYTES;
  if (length > MAX_FRAME_BYTES) return `a frame of ${length} bytes is above the limit of ${MAX_FRAME_BYTES}`;
  const type = message[1] as FrameType;
  if (type === Frame.credit && length !== 4) return `a credit frame carries 4 bytes, not ${length}`;
  if (type === Frame.keepAlive && length !== 0) return `a keep-alive frame carries nothing, not ${length} bytes`;
  return { type, number: message.readUInt32BE(2), payload: message.subarray(FRAME_HEAD_BYTES) };
}

/** Looks at as much of a head as has come. */
function headProblem(head: Buffer, bytes: number): string | null {
  if (bytes > 0 && head[0] !== FRAME_VERSION) return `a frame of version ${head[0]} cannot be read here, only version ${FRAME_VERSION}`;
  const type = head[1] as number;
  if (bytes > 1 && (type < Frame.data || type > Frame.credit)) return `there is no frame of type ${type}`;
  return null;
}

function lengthProblem(type: FrameType, length: number): string | null {
  if (type === Frame.credit) return 'a credit frame belongs on a channel, not on a byte stream';
  if (type === Frame.keepAlive && length !== 0) return `a keep-alive frame carries nothing, not ${length} bytes`;
  return length > MAX_FRAME_BYTES ? `a frame of ${length} bytes is above the limit of ${MAX_FRAME_BYTES}` : null;
}
