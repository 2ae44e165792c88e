/**
 * The outbox's files: segments, written one after another and flushed before anything in them counts. Decides where a batch goes,
 * what a failed write leaves behind, and what is found again at a start. When it is read and when a segment may go is the
 * drain's; who may use the folder is the lock's.
 *
 * A flush that failed is not tried again on the same file: the system may have dropped the pages and would say that all is well.
 * The segment is closed at its last good byte, and the next one is begun.
 */
import { randomBytes } from 'node:crypto';
import { mkdir, open, readdir, readFile, rename, unlink, writeFile, type FileHandle } from 'node:fs/promises';
import { join } from 'node:path';
import { encodeRecord, findRecord, type OutboxRecord, SEGMENT_HEAD_BYTES, saltOf, segmentHead } from './outbox-record.ts';

export interface OutboxLogOptions {
  readonly folder: string;
  /** A segment that has grown to this is closed and the next one begun. */
  readonly segmentBytes: number;
  /** Told of what was cut off, skipped or cannot be done. */
  readonly warn: (words: string) => void;
}

export type Kept = 'stored' | 'full' | 'broken';

/** How far the log was read: all before `offset` of this segment, and every earlier segment. */
export interface Cursor {
  readonly segment: number;
  readonly offset: number;
}

export interface LoggedRecord {
  readonly record: OutboxRecord;
  readonly segment: number;
  /** Of the segment: where the next record begins. */
  readonly end: number;
}

const SEGMENT = /^(\d{10})\.log$/;
const POSITION = 'position';
const READ_BYTES = 1_048_576;
const NO_ROOM: ReadonlySet<string> = new Set(['ENOSPC', 'EDQUOT', 'EFBIG']);

class Segment {
  readonly id: number;
  readonly file: string;
  readonly salt: Buffer;
  handle: FileHandle | null;
  /** Written and flushed. */
  bytes: number;
  /** Something in it cannot be read; its file is kept for people. */
  isDamaged = false;

  constructor(id: number, file: string, salt: Buffer, handle: FileHandle | null, bytes: number) {
    this.id = id;
    this.file = file;
    this.salt = salt;
    this.handle = handle;
    this.bytes = bytes;
  }
}

export class OutboxLog {
  readonly #options: OutboxLogOptions;
  /** Oldest first; the last one may be the one that is written. */
  #segments: Segment[] = [];
  #active: Segment | null = null;
  #nextId = 1;
  #start: Cursor = { segment: 0, offset: 0 };
  #found = 0;
  #why = '';

  /** Makes the folder. */
  static async prepare(folder: string): Promise<void> {
    await mkdir(folder, { recursive: true, mode: 0o700 });
  }

  /** Reads what is there; the folder must be this process's. Rejects when it cannot be read. */
  static async open(options: OutboxLogOptions): Promise<OutboxLog> {
    const log = new OutboxLog(options);
    await log.#recover();
    return log;
  }

  private constructor(options: OutboxLogOptions) {
    this.#options = options;
  }

  /** Records that were found at the opening and are still to be sent. */
  get found(): number {
    return this.#found;
  }

  /** Where reading begins. */
  get start(): Cursor {
    return this.#start;
  }

  /** On the disk. */
  get bytes(): number {
    let sum = 0;
    for (const { bytes } of this.#segments) sum += bytes;
    return sum;
  }

  /** Why the last append came to nothing; '' = it did not. */
  get why(): string {
    return this.#why;
  }

  /** All of them, on the disk for good, or none. One at a time. */
  async append(records: readonly OutboxRecord[]): Promise<Kept> {
    let segment: Segment | null = null;
    try {
      segment = this.#active ?? (await this.#begin());
      const { salt, handle } = segment;
      const batch = Buffer.concat(records.map(({ msgId, subject, data }) => encodeRecord(salt, msgId, subject, data)));
      await writeAll(handle as FileHandle, batch, segment.bytes);
      await (handle as FileHandle).datasync();
      segment.bytes += batch.length;
      if (segment.bytes >= this.#options.segmentBytes) this.#active = null;
      this.#why = '';
      return 'stored';
    } catch (error) {
      const { code, message } = error as NodeJS.ErrnoException;
      const isFull = NO_ROOM.has(code ?? '');
      this.#why = message;
      if (segment !== null) await this.#cutOff(segment, isFull);
      return isFull ? 'full' : 'broken';
    }
  }

  /** What follows `from`, as much as a read gives; nothing when there is nothing more. Rejects when the file cannot be read. */
  async read(from: Cursor): Promise<{ readonly records: readonly LoggedRecord[]; readonly next: Cursor }> {
    const records: LoggedRecord[] = [];
    let next = from;
    for (const segment of this.#segments) {
      if (segment.id < from.segment) continue;
      const begin = segment.id === from.segment ? Math.max(SEGMENT_HEAD_BYTES, from.offset) : SEGMENT_HEAD_BYTES;
      if (begin >= segment.bytes) continue;
      const end = await this.#readFrom(segment, begin, records);
      next = { segment: segment.id, offset: end };
      if (records.length > 0) break;
    }
    return { records, next };
  }

  /** Segments before this one are done with, and go. When `all`, this one too: nothing waits any more. */
  async dropBefore(segment: number, all: boolean): Promise<void> {
    const gone = this.#segments.filter(({ id }) => id < segment || (all && id <= segment));
    if (gone.length === 0) return;
    this.#segments = this.#segments.filter((each) => !gone.includes(each));
    if (this.#active !== null && gone.includes(this.#active)) this.#active = null;
    for (const each of gone) {
      await closed(each.handle);
      each.handle = null;
      try {
        if (each.isDamaged) await rename(each.file, `${each.file}.damaged`);
        else await unlink(each.file);
      } catch (error) {
        this.#options.warn(`the outbox cannot remove ${each.file}: ${(error as Error).message}`);
      }
    }
  }

  /** How far everything has been stored by the stream; only saves repeats after a start, so it is not flushed. */
  async keepPosition({ segment, offset }: Cursor): Promise<void> {
    const file = join(this.#options.folder, POSITION);
    try {
      await writeFile(`${file}.tmp`, `${segment} ${offset}\n`, { mode: 0o600 });
      await rename(`${file}.tmp`, file);
    } catch {
      // What was sent is sent again after a start, with the same ids.
    }
  }

  /** Keeps a message for people that can never be sent: its id and subject as a line each, then its bytes. @returns the file. */
  async setAside({ record, segment, end }: LoggedRecord): Promise<string> {
    const file = join(this.#options.folder, `aside-${segment}-${end}`);
    await writeFile(file, Buffer.concat([Buffer.from(`${record.msgId}\n${record.subject}\n`, 'utf8'), record.data]), {
      mode: 0o600,
      flush: true,
    });
    return file;
  }

  async close(): Promise<void> {
    this.#active = null;
    for (const segment of this.#segments) {
      await closed(segment.handle);
      segment.handle = null;
    }
  }

  async #begin(): Promise<Segment> {
    const { folder } = this.#options;
    const id = this.#nextId++;
    const file = join(folder, `${String(id).padStart(10, '0')}.log`);
    const salt = randomBytes(8);
    const handle = await open(file, 'wx+', 0o600);
    try {
      await writeAll(handle, segmentHead(salt), 0);
      await handle.datasync();
      // A file whose name is not on the disk is not there after a power cut.
      await flushFolder(folder);
    } catch (error) {
      await closed(handle);
      await unlink(file).catch(() => undefined);
      throw error;
    }
    const segment = new Segment(id, file, salt, handle, SEGMENT_HEAD_BYTES);
    this.#segments.push(segment);
    this.#active = segment;
    return segment;
  }

  /** Nothing of a batch that failed may be found at the next start; behind a flush that failed nothing more is written. */
  async #cutOff(segment: Segment, isFull: boolean): Promise<void> {
    this.#active = null;
    try {
      await segment.handle?.truncate(segment.bytes);
      await segment.handle?.datasync();
      if (isFull) this.#active = segment;
    } catch (error) {
      this.#options.warn(
        `the outbox cannot cut a failed write off ${segment.file}: what was refused may be sent after a restart (${(error as Error).message})`,
      );
    }
    if (segment.bytes > SEGMENT_HEAD_BYTES) return;
    this.#active = null;
    this.#segments = this.#segments.filter((each) => each !== segment);
    await closed(segment.handle);
    await unlink(segment.file).catch(() => undefined);
  }

  /** @returns where the next read of this segment begins. */
  async #readFrom(segment: Segment, begin: number, into: LoggedRecord[]): Promise<number> {
    segment.handle ??= await open(segment.file, 'r');
    let wanted = READ_BYTES;
    for (;;) {
      const most = Math.min(wanted, segment.bytes - begin);
      const bytes = await readAll(segment.handle, begin, most);
      const isAll = begin + bytes.length >= segment.bytes || bytes.length < most;
      let at = 0;
      for (;;) {
        const found = findRecord(bytes, at, segment.salt);
        if (found.record === null) {
          if (into.length > 0 && !isAll) return begin + at;
          if (isAll) {
            if (at < bytes.length) segment.isDamaged = true;
            return segment.bytes;
          }
          // One record is longer than the read, or a damaged place is.
          wanted = Math.max(wanted * 2, at + found.needed);
          into.length = 0;
          break;
        }
        if (found.skipped > 0) segment.isDamaged = true;
        at = found.end;
        into.push({ record: found.record, segment: segment.id, end: begin + at });
      }
    }
  }

  async #recover(): Promise<void> {
    const { folder, warn } = this.#options;
    const position = await readPosition(join(folder, POSITION));
    const ids = (await readdir(folder)).flatMap((name) => SEGMENT.exec(name)?.[1] ?? []).map(Number);
    ids.sort((a, b) => a - b);
    this.#nextId = Math.max(position.segment, ids.at(-1) ?? 0) + 1;
    for (const id of ids) {
      const file = join(folder, `${String(id).padStart(10, '0')}.log`);
      if (id < position.segment) {
        await unlink(file).catch(() => undefined);
        continue;
      }
      await this.#recoverSegment(id, file, id === position.segment ? position.offset : SEGMENT_HEAD_BYTES);
    }
    this.#start = position;
    if (this.#found > 0) warn(`the outbox ${folder} holds ${this.#found} messages from before: they are sent first`);
  }

  async #recoverSegment(id: number, file: string, from: number): Promise<void> {
    const { warn } = this.#options;
    const bytes = await readFile(file);
    const salt = saltOf(bytes);
    if (salt === null) {
      // A kill between the making of the file and its first flush: nothing in it was ever said to be stored.
      if (bytes.length <= SEGMENT_HEAD_BYTES) await unlink(file).catch(() => undefined);
      else {
        await rename(file, `${file}.damaged`);
        warn(`the outbox cannot read ${file} (${bytes.length} bytes): its beginning is damaged; it is kept as ${file}.damaged`);
      }
      return;
    }
    let at = SEGMENT_HEAD_BYTES;
    let skipped = 0;
    let count = 0;
    for (;;) {
      const found = findRecord(bytes, at, salt);
      if (found.record === null) break;
      skipped += found.skipped;
      at = found.end;
      if (at > from) count++;
    }
    const segment = new Segment(id, file, salt, null, at);
    if (skipped > 0) {
      segment.isDamaged = true;
      warn(`the outbox skips ${skipped} damaged bytes within ${file}: messages that were accepted are lost there; the file is kept`);
    }
    if (at < bytes.length) {
      const handle = await open(file, 'r+');
      try {
        await handle.truncate(at);
        await handle.datasync();
      } finally {
        await closed(handle);
      }
      warn(`the outbox cuts ${bytes.length - at} bytes off the end of ${file}: a write that a crash cut short`);
    }
    if (count === 0 && !segment.isDamaged) {
      await unlink(file).catch(() => undefined);
      return;
    }
    this.#found += count;
    this.#segments.push(segment);
  }
}

async function readPosition(file: string): Promise<Cursor> {
  try {
    const [segment, offset] = (await readFile(file, 'latin1')).trim().split(' ').map(Number);
    if (Number.isSafeInteger(segment) && Number.isSafeInteger(offset)) return { segment: segment as number, offset: offset as number };
  } catch {
    // There is none.
  }
  return { segment: 0, offset: 0 };
}

async function writeAll(handle: FileHandle, bytes: Buffer, position: number): Promise<void> {
  for (let done = 0; done < bytes.length; ) done += (await handle.write(bytes, done, bytes.length - done, position + done)).bytesWritten;
}

async function readAll(handle: FileHandle, position: number, count: number): Promise<Buffer> {
  const bytes = Buffer.allocUnsafe(count);
  let done = 0;
  while (done < count) {
    const { bytesRead } = await handle.read(bytes, done, count - done, position + done);
    if (bytesRead === 0) break;
    done += bytesRead;
  }
  return bytes.subarray(0, done);
}

async function flushFolder(folder: string): Promise<void> {
  const handle = await open(folder, 'r');
  try {
    await handle.sync();
  } finally {
    await closed(handle);
  }
}

async function closed(handle: FileHandle | null): Promise<void> {
  try {
    await handle?.close();
  } catch {
    // What matters was flushed before.
  }
}
