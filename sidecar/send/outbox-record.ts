/**
 * How messages lie in a segment of the outbox. A segment begins with words of its own (its salt, drawn at random); each record
 * begins with that salt, so that behind a damaged place the next whole record is found again. A sender cannot guess it: what is
 * inside a payload is never taken for a record. Pure; files are those of outbox-log.ts.
 *
 *     segment = magic (8 bytes) salt (8) record …
 *     record  = salt (8) length of the body (4, little endian) crc32 of length and body (4) body
 *     body    = length of the id (2) id, length of the subject (2) subject, data
 */
import { crc32 } from 'node:zlib';

const MAGIC = Buffer.from('ARoutbx1', 'latin1');
const SALT_BYTES = 8;
export const SEGMENT_HEAD_BYTES = MAGIC.length + SALT_BYTES;
const RECORD_HEAD_BYTES = SALT_BYTES + 8;
/** Far above what any server takes as one message. */
export const MAX_BODY_BYTES = 128 * 1_024 * 1_024;
const MAX_TEXT_BYTES = 0xffff;

export interface OutboxRecord {
  readonly msgId: string;
  readonly subject: string;
  /** A view into what was read. */
  readonly data: Buffer;
}

export type Found =
  /** @param skipped bytes before it that are no record. `end`: where the next one begins. */
  | { readonly record: OutboxRecord; readonly skipped: number; readonly end: number }
  /** Nothing whole from `at` on. `needed`: bytes from `at` that the record there says it has; 0 = there is none that could become whole. */
  | { readonly record: null; readonly needed: number };

export function segmentHead(salt: Buffer): Buffer {
  return Buffer.concat([MAGIC, salt.subarray(0, SALT_BYTES)]);
}

/** The salt, or null when this is no segment of ours. */
export function saltOf(segment: Buffer): Buffer | null {
  if (segment.length < SEGMENT_HEAD_BYTES || !segment.subarray(0, MAGIC.length).equals(MAGIC)) return null;
  return Buffer.from(segment.subarray(MAGIC.length, SEGMENT_HEAD_BYTES));
}

/** Bytes of the record that is made of these. */
export function recordBytes(msgId: string, subject: string, data: Buffer): number {
  return RECORD_HEAD_BYTES + 4 + Buffer.byteLength(msgId) + Buffer.byteLength(subject) + data.length;
}

/** Throws for an id or a subject longer than 65,535 bytes: neither could ever be sent. */
export function encodeRecord(salt: Buffer, msgId: string, subject: string, data: Buffer): Buffer {
  const idBytes = Buffer.byteLength(msgId);
  const subjectBytes = Buffer.byteLength(subject);
  if (idBytes > MAX_TEXT_BYTES || subjectBytes > MAX_TEXT_BYTES) throw new Error('an id or a subject of a message is too long');
  const record = Buffer.allocUnsafe(RECORD_HEAD_BYTES + 4 + idBytes + subjectBytes + data.length);
  salt.copy(record, 0);
  record.writeUInt32LE(record.length - RECORD_HEAD_BYTES, SALT_BYTES);
  let at = RECORD_HEAD_BYTES;
  at = record.writeUInt16LE(idBytes, at);
  at += record.write(msgId, at, 'utf8');
  at = record.writeUInt16LE(subjectBytes, at);
  at += record.write(subject, at, 'utf8');
  data.copy(record, at);
  record.writeUInt32LE(sumOf(record, 0, record.length), SALT_BYTES + 4);
  return record;
}

/** The first whole record from `at` on. */
export function findRecord(bytes: Buffer, at: number, salt: Buffer): Found {
  let needed = 0;
  for (let from = at; ; from++) {
    const begin = bytes.indexOf(salt, from);
    if (begin < 0 || begin + RECORD_HEAD_BYTES > bytes.length) {
      // A head that is cut off may become whole when more is read.
      if (needed === 0 && bytes.length - at < RECORD_HEAD_BYTES) needed = RECORD_HEAD_BYTES;
      return { record: null, needed };
    }
    const length = bytes.readUInt32LE(begin + SALT_BYTES);
    const end = begin + RECORD_HEAD_BYTES + length;
    if (length <= MAX_BODY_BYTES) {
      if (end > bytes.length) {
        if (needed === 0) needed = end - at;
      } else if (bytes.readUInt32LE(begin + SALT_BYTES + 4) === sumOf(bytes, begin, end)) {
        const record = readBody(bytes.subarray(begin + RECORD_HEAD_BYTES, end));
        if (record !== null) return { record, skipped: begin - at, end };
      }
    }
    from = begin;
  }
}

/** Over the length and the body. */
function sumOf(bytes: Buffer, begin: number, end: number): number {
  return crc32(bytes.subarray(begin + RECORD_HEAD_BYTES, end), crc32(bytes.subarray(begin, begin + SALT_BYTES + 4)));
}

function readBody(body: Buffer): OutboxRecord | null {
  if (body.length < 4) return null;
  const idEnd = 2 + body.readUInt16LE(0);
  if (idEnd + 2 > body.length) return null;
  const subjectEnd = idEnd + 2 + body.readUInt16LE(idEnd);
  if (subjectEnd > body.length) return null;
  return { msgId: body.toString('utf8', 2, idEnd), subject: body.toString('utf8', idEnd + 2, subjectEnd), data: body.subarray(subjectEnd) };
}
