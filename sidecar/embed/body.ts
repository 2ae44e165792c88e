/**
 * What a function gives as bytes. Values are JSON; bytes are bytes; what can be iterated is a stream of pieces, of which the
 * first decides the form: bytes or text go out as they are, all else is one JSON text a line (application/x-ndjson).
 */
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

/** As `JSON.stringify` has it, but a number that JSON has not is refused: it would arrive as null, and nobody would know. */
export function jsonText(value: unknown): string | undefined {
  const text = JSON.stringify(value) as string | undefined;
  // Looked for only where it can be.
  if (text !== undefined && text.includes('null')) JSON.stringify(value, refuseNonFinite);
  return text;
}

function refuseNonFinite(key: string, value: unknown): unknown {
  if (typeof value === 'number' && !Number.isFinite(value))
    throw new TypeError(`${value}${key === '' ? '' : ` at ${JSON.stringify(key.slice(0, 64))}`} has no form in JSON`);
  return value;
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

/** Throws for a piece that has not the form of the first. */
export function pieceBytes(piece: unknown, form: PieceForm): Buffer {
  if (form === 'lines') return Buffer.from(`${encoded(piece).bytes.toString('utf8')}\n`, 'utf8');
  if (piece instanceof Uint8Array) return bytesOf(piece);
  if (typeof piece === 'string') return Buffer.from(piece, 'utf8');
  throw new TypeError(`a piece of a stream that began as ${form} is ${piece === null ? 'null' : `a ${typeof piece}`}`);
}

function bytesOf(value: Uint8Array): Buffer {
  return Buffer.isBuffer(value) ? value : Buffer.from(value.buffer, value.byteOffset, value.byteLength);
}

/** Null = it is a value: lists, sets and maps are, a generator that runs is not. */
export function iteratorOf(value: unknown): AsyncIterator<unknown> | null {
  if (typeof value !== 'object' || value === null) return null;
  const make = (value as Partial<AsyncIterable<unknown>>)[Symbol.asyncIterator];
  if (typeof make === 'function') return make.call(value);
  const { next, [Symbol.iterator]: again } = value as Partial<IterableIterator<unknown>>;
  return typeof next === 'function' && typeof again === 'function' ? oneByOne(value as Iterable<unknown>) : null;
}

async function* oneByOne(values: Iterable<unknown>): AsyncGenerator<unknown> {
  yield* values;
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
  readonly #form: PieceForm;
  readonly #next: () => Promise<IteratorResult<unknown>>;
  readonly #ended: () => void;
  #held: Buffer | null;
  #sink: BodySink | null = null;
  #goOn: (() => void) | null = null;
  #isOver = false;
  /** Cancelled before anybody read it. */
  #cut: { readonly code: Code; readonly detail: string } | null = null;

  /**
   * @param first the piece that has been taken already; null = the stream is empty.
   * @param next asks for the next one, in the context of its work.
   * @param ended told once, however it ends.
   */
  constructor(
    iterator: AsyncIterator<unknown>,
    form: PieceForm,
    first: Buffer | null,
    next: () => Promise<IteratorResult<unknown>>,
    ended: () => void,
  ) {
    this.#iterator = iterator;
    this.#form = form;
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
        if (!this.#pass(sink, pieceBytes(value, this.#form))) await this.#resumed();
      }
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
