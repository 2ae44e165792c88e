/**
 * Messages of Protocol Buffers whose fields are known where they are used, written and read field by field without a
 * schema: cheap enough for every call. A writer leaves room for a frame's head, so that a message is put together once. A
 * reader never throws: what is not well formed ends the reading and is marked, and unknown fields are passed over.
 */
import { isUtf8 } from 'node:buffer';
import { WIRE_BYTES, WIRE_FIXED64, WIRE_VARINT, WireReader, WireWriter } from './protobuf-wire.ts';

const FIRST_BYTES = 256;
const EMPTY = Buffer.alloc(0);

/** Puts one message together. Fields that hold their default are left out, as proto3 has it; `always…` writes them. */
export class Writer {
  readonly #out: WireWriter;
  readonly #headBytes: number;

  /** @param headBytes left free at the front, for a frame's head. */
  constructor(headBytes = 0, expectBytes = FIRST_BYTES) {
    this.#headBytes = headBytes;
    this.#out = new WireWriter(headBytes + expectBytes);
    for (let i = 0; i < headBytes; i++) this.#out.varint32(0);
  }

  /** Bytes of the message so far, without the head. */
  get length(): number {
    return this.#out.length - this.#headBytes;
  }

  /** The head's room (zeros, to be filled in) and the message. */
  finish(): Buffer {
    return this.#out.finish();
  }

  /** Non-negative and below 2^32. */
  uint(field: number, value: number): void {
    if (value !== 0) this.alwaysUint(field, value);
  }

  alwaysUint(field: number, value: number): void {
    this.#out.tag(field, WIRE_VARINT);
    this.#out.varint32(value);
  }

  bool(field: number, value: boolean): void {
    if (value) this.alwaysUint(field, 1);
  }

  double(field: number, value: number): void {
    if (value !== 0) this.alwaysDouble(field, value);
  }

  alwaysDouble(field: number, value: number): void {
    this.#out.tag(field, WIRE_FIXED64);
    this.#out.double(value);
  }

  text(field: number, value: string): void {
    if (value !== '') this.alwaysText(field, value);
  }

  alwaysText(field: number, value: string): void {
    this.#out.tag(field, WIRE_BYTES);
    this.#out.text(value);
  }

  bytes(field: number, value: Buffer): void {
    if (value.length > 0) this.alwaysBytes(field, value);
  }

  alwaysBytes(field: number, value: Buffer): void {
    this.#out.tag(field, WIRE_BYTES);
    this.#out.part(value);
  }

  /** A message in the message; written also when it is empty. The other writer must have no head. */
  message(field: number, value: Writer): void {
    this.alwaysBytes(field, value.finish());
  }
}

/**
 * Reads one message: `while (reader.next()) switch (reader.field)`, and afterwards `reader.failed` says whether it was well
 * formed. A field is read by the method of its type; one whose wire type is another is malformed. Unread fields are skipped.
 */
export class Reader {
  readonly #in: WireReader;
  #wire = -1;
  #isRead = true;
  field = 0;

  constructor(bytes: Buffer) {
    this.#in = new WireReader(bytes);
  }

  get failed(): boolean {
    return this.#in.isBroken;
  }

  /** Goes to the next field; false at the end and at what is malformed. */
  next(): boolean {
    if (!this.#isRead) this.#in.skip(this.#wire);
    if (this.#in.isAtEnd) return false;
    const tag = this.#in.varint32() >>> 0;
    this.field = tag >>> 3;
    this.#wire = tag & 7;
    this.#isRead = false;
    if (this.field === 0) this.#in.isBroken = true;
    return !this.#in.isBroken;
  }

  /** The low 32 bits. */
  uint(): number {
    return this.#expects(WIRE_VARINT) ? this.#in.varint32() >>> 0 : 0;
  }

  bool(): boolean {
    return this.#expects(WIRE_VARINT) && this.#in.varint() !== 0n;
  }

  double(): number {
    return this.#expects(WIRE_FIXED64) ? this.#in.double() : 0;
  }

  /** A view of the bytes, not a copy. */
  bytes(): Buffer {
    return this.#expects(WIRE_BYTES) ? this.#in.part() : EMPTY;
  }

  text(): string {
    const bytes = this.bytes();
    if (isUtf8(bytes)) return bytes.toString('utf8');
    this.#in.isBroken = true;
    return '';
  }

  #expects(wire: number): boolean {
    this.#isRead = true;
    if (this.#wire !== wire) this.#in.isBroken = true;
    return !this.#in.isBroken;
  }
}
