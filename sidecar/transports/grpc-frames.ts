/** gRPC's own framing inside an HTTP/2 stream: one byte of flags, four of length, the message. */
import { gunzipSync, inflateSync } from 'node:zlib';

const HEAD = 5;

export function frameOf(message: Uint8Array): Buffer {
  const frame = Buffer.allocUnsafe(HEAD + message.length);
  frame[0] = 0;
  frame.writeUInt32BE(message.length, 1);
  frame.set(message, HEAD);
  return frame;
}

/** Cuts what comes into messages. Say what came with `push`, then take messages until there is none. */
export class Deframer {
  /** Why nothing more can be read: '' = all is well. */
  problem: '' | 'too_large' | 'compressed' = '';
  /** Length that a message announced when it is too large. */
  announced = 0;
  readonly #maxBytes: number;
  #rest: Buffer = NOTHING;
  #more: Buffer[] = [];
  #moreBytes = 0;
  encoding = '';

  constructor(maxBytes: number) {
    this.#maxBytes = maxBytes;
  }

  /** Something came that is no whole message. */
  get isInside(): boolean {
    return this.#rest.length + this.#moreBytes > 0;
  }

  push(chunk: Buffer): void {
    this.#more.push(chunk);
    this.#moreBytes += chunk.length;
  }

  /** The next whole message; null = none yet, or a problem. */
  take(): Buffer | null {
    if (this.problem !== '') return null;
    const has = this.#rest.length + this.#moreBytes;
    if (this.#rest.length < HEAD) {
      if (has < HEAD) return null;
      this.#join();
    }
    const length = this.#rest.readUInt32BE(1);
    if (length > this.#maxBytes) {
      this.problem = 'too_large';
      this.announced = length;
      return null;
    }
    if (has < HEAD + length) return null;
    this.#join();
    const message = this.#rest.subarray(HEAD, HEAD + length);
    const isCompressed = this.#rest[0] !== 0;
    this.#rest = this.#rest.subarray(HEAD + length);
    return isCompressed ? this.#unpacked(message) : message;
  }

  #join(): void {
    if (this.#more.length === 0) return;
    this.#rest =
      this.#rest.length === 0 && this.#more.length === 1 ? (this.#more[0] as Buffer) : Buffer.concat([this.#rest, ...this.#more]);
    this.#more = [];
    this.#moreBytes = 0;
  }

  /** We ask for plain messages; one that is compressed all the same is opened, up to the same limit. */
  #unpacked(message: Buffer): Buffer | null {
    try {
      if (this.encoding === 'gzip') return gunzipSync(message, { maxOutputLength: this.#maxBytes });
      if (this.encoding === 'deflate') return inflateSync(message, { maxOutputLength: this.#maxBytes });
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code === 'ERR_BUFFER_TOO_LARGE') {
        this.problem = 'too_large';
        return null;
      }
    }
    this.problem = 'compressed';
    return null;
  }
}

const NOTHING: Buffer = Buffer.alloc(0);
