/**
 * The bytes of protocol buffers: varints, fixed numbers, length-delimited parts. Knows nothing of types. What is read came
 * from somebody else, so a reader never leaves its part and says `isBroken` instead of throwing.
 */

export const WIRE_VARINT = 0;
export const WIRE_FIXED64 = 1;
export const WIRE_BYTES = 2;
const WIRE_GROUP = 3;
const WIRE_GROUP_END = 4;
export const WIRE_FIXED32 = 5;

const MAX_GROUP_DEPTH = 100;

export class WireReader {
  readonly bytes: Buffer;
  pos: number;
  readonly end: number;
  /** What was read is no protocol buffer, or was cut. Everything read since is worth nothing. */
  isBroken = false;

  constructor(bytes: Buffer, pos = 0, end = bytes.length) {
    this.bytes = bytes;
    this.pos = pos;
    this.end = end;
  }

  get isAtEnd(): boolean {
    return this.pos >= this.end || this.isBroken;
  }

  /** Unsigned, 64 bits. */
  varint(): bigint {
    let low = 0;
    for (let shift = 0; shift < 28; shift += 7) {
      const byte = this.#byte();
      low |= (byte & 0x7f) << shift;
      if (byte < 0x80) return BigInt(low);
    }
    let value = BigInt(low);
    for (let shift = 28n; shift < 70n; shift += 7n) {
      const byte = this.#byte();
      value |= BigInt(byte & 0x7f) << shift;
      if (byte < 0x80) return BigInt.asUintN(64, value);
    }
    this.isBroken = true;
    return 0n;
  }

  /** The low 32 bits, signed; longer ones are cut as the format demands. */
  varint32(): number {
    let value = 0;
    for (let shift = 0; shift < 70; shift += 7) {
      const byte = this.#byte();
      if (shift < 32) value |= (byte & 0x7f) << shift;
      if (byte < 0x80) return value;
    }
    this.isBroken = true;
    return 0;
  }

  fixed32(): number {
    if (!this.#has(4)) return 0;
    this.pos += 4;
    return this.bytes.readUInt32LE(this.pos - 4);
  }

  fixed64(): bigint {
    if (!this.#has(8)) return 0n;
    this.pos += 8;
    return this.bytes.readBigUInt64LE(this.pos - 8);
  }

  float(): number {
    if (!this.#has(4)) return 0;
    this.pos += 4;
    return this.bytes.readFloatLE(this.pos - 4);
  }

  double(): number {
    if (!this.#has(8)) return 0;
    this.pos += 8;
    return this.bytes.readDoubleLE(this.pos - 8);
  }

  /** A length-delimited part, not copied. */
  part(): Buffer {
    const length = this.varint32() >>> 0;
    if (!this.#has(length)) return this.bytes.subarray(0, 0);
    this.pos += length;
    return this.bytes.subarray(this.pos - length, this.pos);
  }

  skip(wire: number, depth = 0): void {
    if (wire === WIRE_VARINT) this.varint32();
    else if (wire === WIRE_FIXED64) this.fixed64();
    else if (wire === WIRE_BYTES) this.part();
    else if (wire === WIRE_FIXED32) this.fixed32();
    else if (wire === WIRE_GROUP && depth < MAX_GROUP_DEPTH) {
      while (!this.isAtEnd) {
        const inner = this.varint32() & 7;
        if (inner === WIRE_GROUP_END) return;
        this.skip(inner, depth + 1);
      }
      this.isBroken = true;
    } else this.isBroken = true;
  }

  #byte(): number {
    if (this.pos >= this.end) {
      this.isBroken = true;
      return 0;
    }
    return this.bytes[this.pos++] as number;
  }

  #has(length: number): boolean {
    if (this.pos + length <= this.end) return true;
    this.isBroken = true;
    this.pos = this.end;
    return false;
  }
}

/** One field as it stands in the bytes: a number or a part, by its wire type. */
export interface RawField {
  readonly number: number;
  readonly value: bigint;
  readonly part: Buffer;
}

const NO_PART = Buffer.alloc(0);

/** Every field, in order; null when the bytes are no protocol buffer. For small things: descriptors, statuses. */
export function rawFields(bytes: Buffer): readonly RawField[] | null {
  const reader = new WireReader(bytes);
  const found: RawField[] = [];
  while (!reader.isAtEnd) {
    const tag = reader.varint32() >>> 0;
    const number = tag >>> 3;
    const wire = tag & 7;
    if (wire === WIRE_BYTES) found.push({ number, value: 0n, part: reader.part() });
    else if (wire === WIRE_VARINT) found.push({ number, value: reader.varint(), part: NO_PART });
    else reader.skip(wire);
  }
  return reader.isBroken ? null : found;
}

/** Grows as needed. */
export class WireWriter {
  #bytes: Buffer;
  #at = 0;

  constructor(sizeHint = 256) {
    this.#bytes = Buffer.allocUnsafe(sizeHint);
  }

  get length(): number {
    return this.#at;
  }

  finish(): Buffer {
    return this.#bytes.subarray(0, this.#at);
  }

  tag(number: number, wire: number): void {
    this.varint32(((number << 3) | wire) >>> 0);
  }

  /** Unsigned. */
  varint32(value: number): void {
    this.#room(5);
    let rest = value >>> 0;
    while (rest > 0x7f) {
      this.#bytes[this.#at++] = (rest & 0x7f) | 0x80;
      rest >>>= 7;
    }
    this.#bytes[this.#at++] = rest;
  }

  varint(value: bigint): void {
    this.#room(10);
    let rest = BigInt.asUintN(64, value);
    while (rest > 0x7fn) {
      this.#bytes[this.#at++] = Number(rest & 0x7fn) | 0x80;
      rest >>= 7n;
    }
    this.#bytes[this.#at++] = Number(rest);
  }

  fixed32(value: number): void {
    this.#room(4);
    this.#at = this.#bytes.writeUInt32LE(value >>> 0, this.#at);
  }

  fixed64(value: bigint): void {
    this.#room(8);
    this.#at = this.#bytes.writeBigUInt64LE(BigInt.asUintN(64, value), this.#at);
  }

  float(value: number): void {
    this.#room(4);
    this.#at = this.#bytes.writeFloatLE(value, this.#at);
  }

  double(value: number): void {
    this.#room(8);
    this.#at = this.#bytes.writeDoubleLE(value, this.#at);
  }

  part(bytes: Buffer): void {
    this.varint32(bytes.length);
    this.#room(bytes.length);
    this.#at += bytes.copy(this.#bytes, this.#at);
  }

  text(value: string): void {
    const length = Buffer.byteLength(value);
    this.varint32(length);
    this.#room(length);
    this.#at += this.#bytes.write(value, this.#at, 'utf8');
  }

  /** Begins a part whose length is not known yet; give what it returns to `close`. */
  open(): number {
    return this.#at;
  }

  close(start: number): void {
    const length = this.#at - start;
    let size = 1;
    for (let rest = length; rest > 0x7f; rest >>>= 7) size++;
    this.#room(size);
    this.#bytes.copyWithin(start + size, start, this.#at);
    this.#at = start;
    this.varint32(length);
    this.#at = start + size + length;
  }

  #room(more: number): void {
    if (this.#at + more <= this.#bytes.length) return;
    const larger = Buffer.allocUnsafe(Math.max(this.#bytes.length * 2, this.#at + more));
    this.#bytes.copy(larger, 0, 0, this.#at);
    this.#bytes = larger;
  }
}
