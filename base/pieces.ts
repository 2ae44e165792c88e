/** What a function gives piece by piece: whether it does, and its text as bytes. */

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

/** Text that comes in pieces, as UTF-8. A character whose halves (surrogates) lie on two pieces is one all the same. */
export class TextBytes {
  /** The first half of a character whose second half has not come. */
  #half = '';

  push(piece: string): Buffer {
    const text = this.#half + piece;
    const last = text.charCodeAt(text.length - 1);
    const isCut = last >= 0xd800 && last <= 0xdbff;
    this.#half = isCut ? text.slice(-1) : '';
    return Buffer.from(isCut ? text.slice(0, -1) : text, 'utf8');
  }

  /** What is held back when no more text comes: empty, or the mark of half a character. */
  rest(): Buffer {
    const rest = Buffer.from(this.#half, 'utf8');
    this.#half = '';
    return rest;
  }
}
