/**
 * A streamed body that comes compressed although plain bytes were asked for, unpacked piece by piece: framing, clocks and
 * the words that end a stream look into the body, and none of them can look into a packed one. Holds as much as the
 * unpacker itself does; whoever reads sets the pace. A packed body that ends in the middle is a cut, also where its
 * connection ended well.
 */
import { createBrotliDecompress, createGunzip, createInflate } from 'node:zlib';
import { Code } from '../../proto/wire/codes.ts';
import { type BodySink, type BodySource, failed, type Reply, streaming } from '../call/reply.ts';
import { encodingOf, plainHeaders, unreadable } from './decode.ts';

type Unpacker = ReturnType<typeof createGunzip>;

const UNPACKERS: Readonly<Record<string, () => Unpacker>> = {
  gzip: createGunzip,
  'x-gzip': createGunzip,
  deflate: createInflate,
  br: createBrotliDecompress,
};

/** The same reply with a plain body; whole answers are the exchange's affair. */
export function unpacked(reply: Reply): Reply {
  if (reply.stream === null) return reply;
  const encoding = encodingOf(reply.headers);
  if (encoding === '') return reply;
  const make = Object.hasOwn(UNPACKERS, encoding) ? UNPACKERS[encoding] : undefined;
  if (make === undefined) {
    const words = unreadable(encoding);
    reply.stream.cancel(Code.bad_response, words);
    return failed(Code.bad_response, 'started', words);
  }
  return streaming(reply.status, plainHeaders(reply.headers), new UnpackedBody(reply.stream, make(), encoding));
}

class UnpackedBody implements BodySource, BodySink {
  readonly #source: BodySource;
  readonly #unpacker: Unpacker;
  #sink: BodySink | null = null;
  #isOver = false;

  constructor(source: BodySource, unpacker: Unpacker, encoding: string) {
    this.#source = source;
    this.#unpacker = unpacker;
    unpacker.on('drain', () => source.resume());
    unpacker.on('end', () => {
      if (this.#close()) this.#sink?.end();
    });
    unpacker.on('error', (error) => this.cancel(Code.stream_interrupted, `the body says content-encoding ${encoding}: ${error.message}`));
  }

  /** Packed bytes tell their own end. */
  readonly endsByClose = false;

  pipe(sink: BodySink): void {
    this.#sink = sink;
    this.#unpacker.on('data', (piece: Buffer) => {
      if (!this.#isOver && !sink.chunk(piece)) this.#unpacker.pause();
    });
    this.#source.pipe(this);
  }

  resume(): void {
    this.#unpacker.resume();
  }

  cancel(code: Code, detail: string): void {
    this.#source.cancel(code, detail);
    this.cut(code, detail);
  }

  // From the connection.

  chunk(data: Buffer): boolean {
    return this.#isOver || this.#unpacker.write(data);
  }

  end(): void {
    if (!this.#isOver) this.#unpacker.end();
  }

  cut(code: Code, detail: string): void {
    if (!this.#close()) return;
    this.#unpacker.destroy();
    this.#sink?.cut(code, detail);
  }

  /** False when it was over before. */
  #close(): boolean {
    if (this.#isOver) return false;
    this.#isOver = true;
    return true;
  }
}
