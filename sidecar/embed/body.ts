/**
 * What a function gives as bytes. Values are JSON; bytes are bytes; what can be iterated is a stream of pieces, of which the
 * first decides the form: bytes or text go out as they are, all else is one JSON text a line (application/x-ndjson).
 */
import { jsonText } from '../../base/json-text.ts';
import { TextBytes } from '../../base/pieces.ts';
import { Code } from '../../proto/wire/codes.ts';
import type { BodySink, BodySource } from '../call/reply.ts';

/** Bytes with their content type. */
export interface Encoded {
  readonly bytes: Buffer;
  readonly contentType: string;
}

/** A whole value. Throws when it cannot be written as JSON. */
export function encoded(value: unknown): Encoded {
  if (value instanceof Uint8Array) return { bytes: bytesOf(value), contentType: 'application/octet-stream' };
  const text = jsonText(value);
  if (text === undefined) throw new TypeError(`a ${typeof value} cannot be an answer: it has no form in JSON`);
  return { bytes: Buffer.from(text, 'utf8'), contentType: 'application/json' };
}

export type PieceForm = 'bytes' | 'text' | 'lines';

export const PIECE_TYPES: Readonly<Record<PieceForm, string>> = {
  bytes: 'application/octet-stream',
  text: 'text/plain; charset=utf-8',
  lines: 'application/x-ndjson',
};

export function formOf(first: unknown): PieceForm {
  return first instanceof Uint8Array ? 'bytes' : typeof first === 'string' ? 'text' : 'lines';
}

/** The pieces of one stream as bytes, in their order. */
export class Pieces {
  readonly form: PieceForm;
  readonly #text = new TextBytes();

  constructor(form: PieceForm) {
    this.form = form;
  }

  /** Throws for a piece that has not the form of the first. */
  bytes(piece: unknown): Buffer {
    if (this.form === 'lines') return Buffer.from(`${encoded(piece).bytes.toString('utf8')}\n`, 'utf8');
    if (typeof piece === 'string') return this.#text.push(piece);
    if (piece instanceof Uint8Array) {
      const rest = this.#text.rest();
      return rest.length === 0 ? bytesOf(piece) : Buffer.concat([rest, bytesOf(piece)]);
    }
    throw new TypeError(`a piece of a stream that began as ${this.form} is ${piece === null ? 'null' : `a ${typeof piece}`}`);
  }

  /** What is left when the last piece has come. */
  rest(): Buffer {
    return this.#text.rest();
  }
}

function bytesOf(value: Uint8Array): Buffer {
  return Buffer.isBuffer(value) ? value : Buffer.from(value.buffer, value.byteOffset, value.byteLength);
}

/** Tells an iterator that nobody reads on. What it throws then is heard by nobody: its answer has been given up. */
export function giveUp(iterator: AsyncIterator<unknown>): void {
  try {
    void Promise.resolve(iterator.return?.()).catch(ignore);
  } catch {
    // The same, thrown before there was a promise.
  }
}

function ignore(): void {}

/** Pieces at the pace of their reader: the next one is asked for when the one before was taken. */
export class IteratedBody implements BodySource {
  readonly #iterator: AsyncIterator<unknown>;
  readonly #pieces: Pieces;
  readonly #next: () => Promise<IteratorResult<unknown>>;
  readonly #ended: () => void;
  #held: Buffer | null;
  #sink: BodySink | null = null;
  #goOn: (() => void) | null = null;
  #isOver = false;
  /** Cancelled before anybody read it. */
  #cut: { readonly code: Code; readonly detail: string } | null = null;

  /**
   * @param pieces has made bytes of the first.
   * @param first the piece that has been taken already; null = the stream is empty.
   * @param next asks for the next one, in the context of its work.
   * @param ended told once, however it ends.
   */
  constructor(
    iterator: AsyncIterator<unknown>,
    pieces: Pieces,
    first: Buffer | null,
    next: () => Promise<IteratorResult<unknown>>,
    ended: () => void,
  ) {
    this.#iterator = iterator;
    this.#pieces = pieces;
    this.#held = first;
    this.#next = next;
    this.#ended = ended;
  }

  pipe(sink: BodySink): void {
    this.#sink = sink;
    if (this.#cut !== null) sink.cut(this.#cut.code, this.#cut.detail);
    else void this.#pump(sink);
  }

  resume(): void {
    const goOn = this.#goOn;
    this.#goOn = null;
    goOn?.();
  }

  cancel(code: Code, detail: string): void {
    if (this.#isOver) return;
    this.#isOver = true;
    this.#ended();
    this.resume();
    // A generator that waits for something hears of it when it goes on; nobody waits for that.
    giveUp(this.#iterator);
    if (this.#sink === null) this.#cut = { code, detail };
    else this.#sink.cut(code, detail);
  }

  async #pump(sink: BodySink): Promise<void> {
    try {
      if (this.#held !== null && !this.#pass(sink, this.#held)) await this.#resumed();
      while (!this.#isOver && this.#held !== null) {
        const { done, value } = await this.#next();
        if (this.#isOver) return;
        if (done === true) break;
        if (!this.#pass(sink, this.#pieces.bytes(value))) await this.#resumed();
      }
      if (!this.#isOver) this.#pass(sink, this.#pieces.rest());
      if (this.#isOver) return;
      this.#isOver = true;
      this.#ended();
      sink.end();
    } catch (error) {
      if (this.#isOver) return;
      this.#isOver = true;
      this.#ended();
      sink.cut(
        Code.stream_interrupted,
        `the agent failed in the middle of its stream: ${error instanceof Error ? error.message : String(error)}`,
      );
    }
  }

  /** Empty pieces are none: an empty chunk would end the answer on some wires. */
  #pass(sink: BodySink, bytes: Buffer): boolean {
    return bytes.length === 0 || sink.chunk(bytes);
  }

  #resumed(): Promise<void> {
    return new Promise((done) => {
      if (this.#isOver) done();
      else this.#goOn = done;
    });
  }
}
