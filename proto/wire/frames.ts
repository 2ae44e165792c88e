/**
 * Binary frames: how a streamed body travels where its end must be told from a cut and text would be waste. One head of six
 * bytes everywhere: version, type, and a number, big endian. On a byte stream (`/v1/stream` with
 * `accept: application/vnd.agent-reach.frames`, and between sidecars) the number is the length of the payload that follows;
 * on a channel, where WebSocket tells the length, it is the stream that the frame belongs to.
 */
export const FRAMES_TYPE = 'application/vnd.agent-reach.frames';
export const FRAME_VERSION = 1;
export const FRAME_HEAD_BYTES = 6;
/** A longer payload is refused by readers: it is garbage read as a length, or meant to fill memory. Writers cut data smaller. */
export const MAX_FRAME_BYTES = 16_777_216;

export const Frame = {
  /** A piece of the body. */
  data: 1,
  /** The proper end; the payload is the Result without `data`, as JSON. Nothing follows. */
  end: 2,
  /** The body was cut: it is not whole. The payload is the Result, as JSON, with its `error`. Nothing follows. */
  error: 3,
  /** Says that the stream lives; no payload. */
  keepAlive: 4,
  /** Channel only: the reader will take so many more bytes (payload: four bytes, big endian) of this stream. */
  credit: 5,
} as const;
export type FrameType = (typeof Frame)[keyof typeof Frame];

/** The six bytes before a payload. @param number length (byte streams) or stream (channel), 0 … 2^32 - 1. */
export function frameHead(type: FrameType, number: number): Buffer {
  const head = Buffer.allocUnsafe(FRAME_HEAD_BYTES);
  head[0] = FRAME_VERSION;
  head[1] = type;
  head.writeUInt32BE(number, 2);
  return head;
}
