/**
 * How a streamed body is written to the caller: as it came, or as binary frames (events: `sse.ts`). Decides what stands
 * around the pieces, and how an end, a cut and a sign of life are told. Pure: bytes in, bytes out; who writes them, and
 * when, is `stream.ts`'s affair.
 */
import { Frame, FRAME_HEAD_BYTES, frameHead, MAX_FRAME_BYTES } from '../../proto/wire/frames.ts';

export interface Framing {
  /** What to write for a piece of the body; empty = nothing yet. */
  chunk(data: Buffer): Buffer | string;
  /** Goes before what `chunk` gave, in the same packet, so that big pieces need not be copied; null = nothing does. */
  head(length: number): Buffer | null;
  /** `chunk` gave all that could be passed on, and the body must not go on: why; '' = nothing is wrong. */
  readonly problem: string;
  /** What to write at the proper end. `result` is JSON in one line; '' unless `tellsResult`. */
  end(result: string): Buffer | string;
  /** The proper end carries the Result. */
  readonly tellsResult: boolean;
  /** null = there is no way to tell a cut: the connection must break. */
  cut(result: string): Buffer | string | null;
  /** The same, when it is cut because a sidecar on the way stops: where to go on is in it. */
  goAway(result: string): Buffer | string | null;
  /** What the caller has had, for whoever goes on: the provider's last event id, or how many events; '' = not known. */
  position(): string;
  /** Says that the stream lives; null = it cannot be said (now). */
  keepAlive(): Buffer | string | null;
}

/** The provider's chunks as they come. */
export class PlainFraming implements Framing {
  readonly problem = '';
  readonly tellsResult = false;
  chunk(data: Buffer): Buffer {
    return data;
  }
  head(): null {
    return null;
  }
  end(): string {
    return '';
  }
  cut(): null {
    return null;
  }
  goAway(): null {
    return null;
  }
  position(): string {
    return '';
  }
  keepAlive(): null {
    return null;
  }
}

const ALIVE = frameHead(Frame.keepAlive, 0);

/** Length-prefixed binary frames; see `proto/wire/frames.ts`. */
export class BinaryFraming implements Framing {
  readonly problem = '';
  readonly tellsResult = true;

  /** A piece is usually what one read of a socket gave; only what is larger than a frame may be is cut up, and copied. */
  chunk(data: Buffer): Buffer {
    if (data.length <= MAX_FRAME_BYTES) return data;
    const parts: Buffer[] = [];
    for (let at = 0; at < data.length; at += MAX_FRAME_BYTES) {
      const part = data.subarray(at, at + MAX_FRAME_BYTES);
      // The head of the first frame is written by `head`.
      if (at > 0) parts.push(frameHead(Frame.data, part.length));
      parts.push(part);
    }
    return Buffer.concat(parts);
  }

  head(length: number): Buffer {
    return frameHead(Frame.data, Math.min(length, MAX_FRAME_BYTES));
  }

  end(result: string): Buffer {
    return withHead(Frame.end, result);
  }

  cut(result: string): Buffer {
    return withHead(Frame.error, result);
  }

  goAway(result: string): Buffer {
    return withHead(Frame.error, result);
  }

  position(): string {
    return '';
  }

  keepAlive(): Buffer {
    return ALIVE;
  }
}

function withHead(type: typeof Frame.end | typeof Frame.error, text: string): Buffer {
  const length = Buffer.byteLength(text);
  const frame = Buffer.allocUnsafe(FRAME_HEAD_BYTES + length);
  frameHead(type, length).copy(frame);
  frame.write(text, FRAME_HEAD_BYTES, 'utf8');
  return frame;
}
