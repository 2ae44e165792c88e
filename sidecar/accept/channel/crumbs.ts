/**
 * Bytes that are kept in the pieces in which they came, until somebody takes them. A peer chooses how small it cuts, and a
 * Buffer of one byte costs hundreds: so small pieces are copied out of the chunk in which they came, which they would keep
 * alive whole, and joined as soon as there are a few. What is kept costs about what it holds, whatever the cuts.
 */
const SMALL_BYTES = 1_024;
const JOIN = 64;
/** A piece may keep alive so many times its own bytes. */
const MOST_KEPT = 4;

export class Crumbs {
  readonly #pieces: (Buffer | null)[] = [];
  /** Those before it have been taken. */
  #first = 0;
  /** So many at the end are small and not joined yet. */
  #small = 0;
  /** Of what has not been taken. */
  bytes = 0;

  /** Places in the list, taken or not: for tests. */
  get places(): number {
    return this.#pieces.length;
  }

  /** How many pieces are kept: for tests and limits. */
  get count(): number {
    return this.#pieces.length - this.#first;
  }

  add(piece: Buffer): void {
    if (piece.length === 0) return;
    this.bytes += piece.length;
    this.#pieces.push(piece.buffer.byteLength > MOST_KEPT * piece.length + SMALL_BYTES ? Buffer.from(piece) : piece);
    if (piece.length >= SMALL_BYTES) this.#small = 0;
    else if (++this.#small >= JOIN) this.#join();
  }

  /** The oldest piece; null = there is none. */
  take(): Buffer | null {
    if (this.#first === this.#pieces.length) return null;
    const piece = this.#pieces[this.#first] as Buffer;
    this.#pieces[this.#first++] = null;
    this.bytes -= piece.length;
    // A reader that is always a little behind never empties it: the places of what has been taken are given back.
    if (this.#first >= JOIN && this.#first * 2 >= this.#pieces.length) {
      this.#pieces.splice(0, this.#first);
      this.#first = 0;
    }
    return piece;
  }

  /** All that has not been taken, in one; a single piece as it is. */
  whole(): Buffer {
    const rest = this.#pieces.slice(this.#first) as Buffer[];
    return rest.length === 1 ? (rest[0] as Buffer) : Buffer.concat(rest, this.bytes);
  }

  #join(): void {
    this.#small = 0;
    const from = Math.max(this.#first, this.#pieces.length - JOIN);
    const joined = Buffer.concat(this.#pieces.slice(from) as Buffer[]);
    this.#pieces.length = from;
    this.#pieces.push(joined);
  }
}
