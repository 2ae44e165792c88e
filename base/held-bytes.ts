/**
 * Bytes that are held back until something about them is known. They are copied into one growing buffer: a list of the
 * pieces would keep alive the whole read that each came from, and costs a hundred bytes apiece when they come singly.
 */
const FIRST_BYTES = 1_024;
const NOTHING: Buffer = Buffer.alloc(0);

export class HeldBytes {
  #bytes: Buffer = NOTHING;
  #length = 0;

  get length(): number {
    return this.#length;
  }

  add(data: Buffer): void {
    const needed = this.#length + data.length;
    if (needed > this.#bytes.length) {
      const larger = Buffer.allocUnsafe(Math.max(FIRST_BYTES, this.#bytes.length * 2, needed));
      this.#bytes.copy(larger, 0, 0, this.#length);
      this.#bytes = larger;
    }
    data.copy(this.#bytes, this.#length);
    this.#length = needed;
  }

  /** All of it, now the taker's; nothing is held afterwards. */
  take(): Buffer {
    const taken = this.#bytes.subarray(0, this.#length);
    this.clear();
    return taken;
  }

  clear(): void {
    this.#bytes = NOTHING;
    this.#length = 0;
  }
}
