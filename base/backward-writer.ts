/**
 * Writes protobuf from the end to the beginning: when a message is closed its length is known, so that one pass makes canonical bytes
 * and nothing is built in between. What is written later stands earlier. The room grows as it must and is used again.
 */
const VARINT = 0;
const FIXED64 = 1;
const BYTES = 2;
const FIXED32 = 5;
const TWO_32 = 4_294_967_296;
const ZERO = 0x30;
const POINT = 0x2e;
/** Below it they are reckoned in 32 bits. */
const MAX_HUNDREDTHS = 2_147_483_648;

export class BackwardWriter {
  #buffer: Buffer;
  #at: number;

  constructor(bytes: number) {
    this.#buffer = Buffer.allocUnsafeSlow(bytes);
    this.#at = bytes;
  }

  /** Bytes written. */
  get length(): number {
    return this.#buffer.length - this.#at;
  }

  /** A view: good until something is written, or `clear`. */
  bytes(): Buffer {
    return this.#buffer.subarray(this.#at);
  }

  /** A copy of what was written since `length` was that. */
  since(length: number): Buffer {
    return Buffer.from(this.#buffer.subarray(this.#at, this.#buffer.length - length));
  }

  /** Takes back what was written since `length` was that. */
  back(length: number): void {
    this.#at = this.#buffer.length - length;
  }

  clear(): void {
    this.#at = this.#buffer.length;
  }

  /** Whole fields, as they were written before. */
  raw(bytes: Uint8Array): void {
    const { length } = bytes;
    this.#room(length);
    this.#at -= length;
    const at = this.#at;
    const buffer = this.#buffer;
    // A call into the platform costs as much as some twenty bytes.
    if (length < 20) for (let i = 0; i < length; i++) buffer[at + i] = bytes[i] as number;
    else buffer.set(bytes, at);
  }

  /** Whole fields as they were written before, but for the time that stands in them at `at`, as `nanos` writes it. */
  rawAt(bytes: Uint8Array, at: number, ms: number): void {
    this.raw(bytes);
    this.#nanosAt(this.#at + at, ms);
  }

  /** Text within a field that is not closed yet: a number as `toFixed(2)` shows it. */
  hundredths(value: number): void {
    let rest = Math.round(value * 100);
    if (!(rest >= 0 && rest < MAX_HUNDREDTHS)) {
      this.#wide(value.toFixed(2));
      return;
    }
    this.#room(16);
    const buffer = this.#buffer;
    let at = this.#at;
    for (let i = 0; rest > 0 || i < 3; i++) {
      if (i === 2) buffer[--at] = POINT;
      const tenth = (rest / 10) | 0;
      buffer[--at] = ZERO + rest - tenth * 10;
      rest = tenth;
    }
    this.#at = at;
  }

  /** Closes a message, or any field with a length, that began when `length` was that. */
  close(field: number, length: number): void {
    this.#varint(this.length - length);
    this.#varint((field << 3) | BYTES);
  }

  text(field: number, text: string): void {
    const { length } = text;
    this.#room(length);
    const before = this.length;
    const buffer = this.#buffer;
    let at = this.#at;
    for (let i = length - 1; i >= 0; i--) {
      const c = text.charCodeAt(i);
      if (c > 0x7f) {
        this.#wide(text);
        this.close(field, before);
        return;
      }
      buffer[--at] = c;
    }
    this.#at = at;
    this.close(field, before);
  }

  /** Bytes that stand in 32-bit words, the first one first. */
  words(field: number, words: Uint32Array, from: number, count: number): void {
    this.#room(4 * count);
    const before = this.length;
    const buffer = this.#buffer;
    let at = this.#at;
    for (let i = from + count - 1; i >= from; i--) {
      const word = words[i] as number;
      buffer[--at] = word & 0xff;
      buffer[--at] = (word >>> 8) & 0xff;
      buffer[--at] = (word >>> 16) & 0xff;
      buffer[--at] = word >>> 24;
    }
    this.#at = at;
    this.close(field, before);
  }

  /** 0 and above. */
  uint(field: number, value: number): void {
    this.#varint(value);
    this.#varint((field << 3) | VARINT);
  }

  bool(field: number, value: boolean): void {
    this.uint(field, value ? 1 : 0);
  }

  fixed32(field: number, value: number): void {
    this.#room(4);
    this.#at -= 4;
    this.#word(this.#at, value);
    this.#varint((field << 3) | FIXED32);
  }

  /** Nanoseconds since 1970, of milliseconds with a fraction; exact to the microsecond. */
  nanos(field: number, ms: number): void {
    this.#room(8);
    this.#at -= 8;
    this.#nanosAt(this.#at, ms);
    this.#varint((field << 3) | FIXED64);
  }

  #nanosAt(at: number, ms: number): void {
    const micros = Math.round(ms * 1_000);
    // Split by multiplication: the remainder of a division of floats is ten times as dear.
    const upper = Math.floor(micros / TWO_32);
    const low = (micros - upper * TWO_32) * 1_000;
    const carry = Math.floor(low / TWO_32);
    this.#word(at, low - carry * TWO_32);
    this.#word(at + 4, upper * 1_000 + carry);
  }

  #word(at: number, value: number): void {
    const buffer = this.#buffer;
    const word = value >>> 0;
    buffer[at] = word & 0xff;
    buffer[at + 1] = (word >>> 8) & 0xff;
    buffer[at + 2] = (word >>> 16) & 0xff;
    buffer[at + 3] = word >>> 24;
  }

  #wide(text: string): void {
    const bytes = Buffer.from(text, 'utf8');
    this.raw(bytes);
  }

  #varint(value: number): void {
    this.#room(8);
    if (value < 0x80) {
      this.#buffer[--this.#at] = value;
      return;
    }
    if (value < 0x4000) {
      this.#buffer[--this.#at] = value >> 7;
      this.#buffer[--this.#at] = (value & 0x7f) | 0x80;
      return;
    }
    let size = 1;
    for (let rest = value; rest >= 0x80; rest = Math.floor(rest / 128)) size++;
    this.#at -= size;
    let rest = value;
    for (let i = 0; i < size - 1; i++) {
      this.#buffer[this.#at + i] = (rest % 128) | 0x80;
      rest = Math.floor(rest / 128);
    }
    this.#buffer[this.#at + size - 1] = rest;
  }

  #room(bytes: number): void {
    if (this.#at >= bytes) return;
    const { length } = this;
    const grown = Buffer.allocUnsafeSlow(Math.max(this.#buffer.length * 2, length + bytes));
    this.#buffer.copy(grown, grown.length - length, this.#at);
    this.#buffer = grown;
    this.#at = grown.length - length;
  }
}
