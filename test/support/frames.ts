/** Binary frames in an answer that was taken off the wire by hand. */
import { FrameReader } from '../../proto/wire/frame-reader.ts';
import type { FrameType } from '../../proto/wire/frames.ts';

/** The head and the bytes of a chunked body, as far as whole chunks have come. */
export function dechunked(received: Buffer): { readonly head: string; readonly body: Buffer } {
  const headEnd = received.indexOf('\r\n\r\n');
  const chunks: Buffer[] = [];
  for (let at = headEnd + 4; ; ) {
    const lineEnd = received.indexOf('\r\n', at);
    const size = lineEnd < 0 ? 0 : Number.parseInt(received.toString('latin1', at, lineEnd), 16);
    if (!(size > 0) || received.length < lineEnd + 4 + size) break;
    chunks.push(received.subarray(lineEnd + 2, lineEnd + 2 + size));
    at = lineEnd + 4 + size;
  }
  return { head: `${received.toString('latin1', 0, headEnd)}\r\n`, body: Buffer.concat(chunks) };
}

/** Type and payload (one character a byte) of every frame; throws when the bytes are no frames. */
export function framesOf(body: Buffer): [FrameType, string][] {
  const frames: [FrameType, string][] = [];
  const reader = new FrameReader({ frame: (type, payload) => void frames.push([type, payload.toString('latin1')]) });
  const problem = reader.push(body);
  if (problem !== null) throw new Error(problem);
  return frames;
}
