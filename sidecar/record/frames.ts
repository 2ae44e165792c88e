/**
 * How a recording lies in a file. It begins with words of its own (its salt, drawn at random), and so does each record, so that
 * behind a damaged place the next whole record is found again. Files are only appended to; one whose process died may end in
 * the middle of a record, which is said and not read.
 *
 *     file   = magic (8 bytes) salt (8) record …
 *     record = salt (8) length of the body (4, little endian) crc32 of length and body (4) body (JSON, UTF-8)
 */
import { crc32 } from 'node:zlib';

const MAGIC = Buffer.from('ARrecrd1', 'latin1');
const SALT_BYTES = 8;
const HEAD_BYTES = SALT_BYTES + 8;
export const FILE_HEAD_BYTES = MAGIC.length + SALT_BYTES;
export const MAX_RECORD_BYTES = 256 * 1_024 * 1_024;

export function fileHead(salt: Buffer): Buffer {
  return Buffer.concat([MAGIC, salt.subarray(0, SALT_BYTES)]);
}

export function frame(salt: Buffer, json: string): Buffer {
  const bytes = Buffer.byteLength(json);
  const whole = Buffer.allocUnsafe(HEAD_BYTES + bytes);
  salt.copy(whole, 0, 0, SALT_BYTES);
  whole.writeUInt32LE(bytes, SALT_BYTES);
  whole.write(json, HEAD_BYTES, 'utf8');
  whole.writeUInt32LE(sumOf(whole, 0, whole.length), SALT_BYTES + 4);
  return whole;
}

export interface Frames {
  /** Views into what was read. */
  readonly bodies: readonly Buffer[];
  /** In places that are damaged, with whole records behind them. */
  readonly damagedBytes: number;
  /** Behind the last whole record: one that was being written. */
  readonly tornBytes: number;
}

/** Its process died, or its disk was full, before the head stood in it. */
export function isTornHead(bytes: Buffer): boolean {
  return bytes.length < FILE_HEAD_BYTES && bytes.subarray(0, MAGIC.length).equals(MAGIC.subarray(0, bytes.length));
}

/** Null = this is no recording. */
export function readFrames(bytes: Buffer): Frames | null {
  if (bytes.length < FILE_HEAD_BYTES || !bytes.subarray(0, MAGIC.length).equals(MAGIC)) return null;
  const salt = bytes.subarray(MAGIC.length, FILE_HEAD_BYTES);
  const bodies: Buffer[] = [];
  let damagedBytes = 0;
  let at = FILE_HEAD_BYTES;
  let from = at;
  while (from < bytes.length) {
    const begin = bytes.indexOf(salt, from);
    if (begin < 0 || begin + HEAD_BYTES > bytes.length) break;
    const length = bytes.readUInt32LE(begin + SALT_BYTES);
    const end = begin + HEAD_BYTES + length;
    if (length <= MAX_RECORD_BYTES && end <= bytes.length && bytes.readUInt32LE(begin + SALT_BYTES + 4) === sumOf(bytes, begin, end)) {
      damagedBytes += begin - at;
      bodies.push(bytes.subarray(begin + HEAD_BYTES, end));
      at = end;
      from = end;
    } else from = begin + 1;
  }
  return { bodies, damagedBytes, tornBytes: bytes.length - at };
}

/** Over the length and the body. */
function sumOf(bytes: Buffer, begin: number, end: number): number {
  return crc32(bytes.subarray(begin + HEAD_BYTES, end), crc32(bytes.subarray(begin + SALT_BYTES, begin + SALT_BYTES + 4)));
}
