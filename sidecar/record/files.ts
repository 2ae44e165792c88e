/**
 * The files of a recording, and what waits to be written. Nobody waits for the disk: what finds no room in the queue is dropped
 * and counted, and a disk that fails is tried again after a while that doubles, leaving nothing behind. What comes within a moment
 * goes to the disk together.
 *
 * The oldest file goes when there are too many bytes, or when it is too old; that is looked at while nothing is recorded as well.
 * How old it is says its time on the disk; one that is still to come (the clock has been set back) is as of when it is first seen.
 * A file is never opened again by another process: each start begins a new one. One is filled for an eighth of the age at most, so
 * that what is removed for its age is not much younger than that.
 */
import { randomBytes } from 'node:crypto';
import { type FileHandle, mkdir, open, readdir, stat, unlink, utimes } from 'node:fs/promises';
import { join } from 'node:path';
import type { Clock, Timer } from '../../base/clock.ts';
import { FILE_HEAD_BYTES, fileHead, frame } from './frames.ts';

export interface FileLimits {
  readonly maxBytes: number;
  readonly fileBytes: number;
  readonly maxAgeMs: number;
}

/** Waits at most for the disk. */
const QUEUE_BYTES = 8 * 1_024 * 1_024;
const TRY_AGAIN_MS = 5_000;
const LONGEST_PAUSE_MS = 300_000;
/** A file server's clock may be so much ahead of this one. */
const AHEAD_MS = 60_000;
/** What waits is written when it is so much, or so old. */
const BATCH_BYTES = 131_072;
const BATCH_MS = 200;
/** Of the age that files may have: how long one is filled, and how often it is looked for too old ones. */
const FILLED_PART = 8;
const LOOKS = 64;
const MIN_LOOK_MS = 1_000;
const MAX_LOOK_MS = 600_000;
export const EXTENSION = '.reachrec';

interface Waiting {
  readonly data: Buffer;
  /** A new file begins with it. */
  readonly begins: string | null;
  readonly isCall: boolean;
}

interface OldFile {
  readonly name: string;
  readonly bytes: number;
  /** On the wall. */
  readonly bornAt: number;
  readonly writtenAt: number;
}

export class RecordingFiles {
  readonly #folder: string;
  readonly #limits: FileLimits;
  readonly #clock: Clock;
  readonly #warn: (words: string) => void;
  #salt: Buffer = randomBytes(8);
  #waiting: Waiting[] = [];
  #waitingBytes = 0;
  /** Of the file that is being filled, with what waits for it. */
  #fileBytes = 0;
  #fileBegunAt = 0;
  #files = 0;
  #handle: FileHandle | null = null;
  #handleName = '';
  #writing: Promise<void> | null = null;
  #batch: Timer | null = null;
  #look: Timer | null = null;
  #looking: Promise<void> | null = null;
  #isUntidy = false;
  #again: Timer | null = null;
  #isFailing = false;
  /** Before the disk is tried again; 0 = it took what came last. */
  #pauseMs = 0;
  #isClosed = false;
  /** Bytes on disk in all files, as far as known. */
  bytes = 0;
  /** The file under way is gone, and with it what calls to come would refer to; so many calls that were put will not be written. */
  onLost: (calls: number) => void = () => undefined;

  constructor(folder: string, limits: FileLimits, clock: Clock, warn: (words: string) => void) {
    this.#folder = folder;
    this.#limits = limits;
    this.#clock = clock;
    this.#warn = warn;
  }

  get folder(): string {
    return this.#folder;
  }

  /** The file under way has all that it may have, or is as old as it may become. */
  get isFull(): boolean {
    const { fileBytes, maxAgeMs } = this.#limits;
    return this.#fileBytes >= fileBytes || this.#clock.now() - this.#fileBegunAt >= maxAgeMs / FILLED_PART;
  }

  /** From now on files that are too old are removed, also those of earlier processes, until it is closed. */
  watchAge(): void {
    this.#lookNow();
  }

  /** The disk does not take anything at present. */
  get isFailing(): boolean {
    return this.#isFailing;
  }

  /** What is put from now on stands in a new file. False = there is no room to begin one. */
  begin(): boolean {
    if (this.#isFailing || this.#waitingBytes + FILE_HEAD_BYTES > QUEUE_BYTES) return false;
    this.#salt = randomBytes(8);
    const at = new Date(this.#clock.wallMs()).toISOString().replaceAll(/[-:.]/g, '').slice(0, 18);
    const name = `${at}-${String(this.#files++).padStart(4, '0')}-${this.#salt.toString('hex').slice(0, 6)}${EXTENSION}`;
    const head = fileHead(this.#salt);
    this.#waiting.push({ data: head, begins: name, isCall: false });
    this.#waitingBytes += head.length;
    this.#fileBytes = head.length;
    this.#fileBegunAt = this.#clock.now();
    this.#write();
    return true;
  }

  /** False = there is no room, and it is dropped. */
  put(json: string, isCall = false): boolean {
    if (this.#isFailing || this.#isClosed || this.#waitingBytes + json.length > QUEUE_BYTES) return false;
    const data = frame(this.#salt, json);
    this.#waiting.push({ data, begins: null, isCall });
    this.#waitingBytes += data.length;
    this.#fileBytes += data.length;
    this.#write();
    return true;
  }

  /** Writes what waits, and closes. */
  async close(): Promise<void> {
    this.#isClosed = true;
    for (const timer of [this.#again, this.#look]) timer?.cancel();
    this.#again = null;
    this.#look = null;
    await this.flushed();
    await this.#handle?.close().catch(() => undefined);
    this.#handle = null;
  }

  /** What was put so far is on its way to the disk no more, and what was too old is gone. */
  async flushed(): Promise<void> {
    this.#writeNow();
    while (this.#writing !== null) await this.#writing;
    while (this.#looking !== null) await this.#looking;
  }

  #write(): void {
    if (this.#waitingBytes >= BATCH_BYTES) this.#writeNow();
    else if (this.#writing === null) this.#batch ??= this.#clock.after(BATCH_MS, () => this.#writeNow());
  }

  #writeNow(): void {
    this.#batch?.cancel();
    this.#batch = null;
    if (this.#writing !== null || this.#isFailing || this.#waiting.length === 0) return;
    this.#writing = this.#drain().finally(() => {
      this.#writing = null;
    });
  }

  async #drain(): Promise<void> {
    while (this.#looking !== null) await this.#looking;
    while (this.#waiting.length > 0) {
      const batch = this.#waiting;
      this.#waiting = [];
      try {
        await this.#writeAll(batch);
      } catch (error) {
        this.#failed(error, batch);
        return;
      }
    }
  }

  async #writeAll(batch: Waiting[]): Promise<void> {
    for (let i = 0; i < batch.length; ) {
      const { begins } = batch[i] as Waiting;
      if (begins !== null) {
        await this.#handle?.close();
        this.#handle = null;
        await mkdir(this.#folder, { recursive: true, mode: 0o700 });
        await this.#tidy(this.#limits.fileBytes);
        this.#handle = await open(join(this.#folder, begins), 'wx', 0o600);
        this.#handleName = begins;
      } else if (this.#handle !== null && (await there(stat(join(this.#folder, this.#handleName)), null)) === null) {
        // Somebody has removed it, and what is written to it now is nowhere.
        this.#warn('recording: the file under way was removed; the next call begins a new one');
        await this.#abandon(batch.splice(i));
        return;
      }
      let end = i + 1;
      while (end < batch.length && (batch[end] as Waiting).begins === null) end++;
      const data = Buffer.concat(batch.slice(i, end).map((each) => each.data));
      // The file that it belongs to could not be begun, or is gone.
      if (this.#handle === null) throw Object.assign(new Error(), { code: 'no file' });
      try {
        await this.#handle.writeFile(data);
      } catch (error) {
        // Nothing can be told from a file without its head: it would only lie about.
        if (begins !== null) await unlink(join(this.#folder, begins)).catch(() => undefined);
        throw error;
      }
      if (this.#pauseMs > 0) this.#warn('recording: the disk takes it again');
      this.#pauseMs = 0;
      this.#waitingBytes -= data.length;
      this.bytes += data.length;
      i = end;
    }
  }

  #failed(error: unknown, batch: readonly Waiting[]): void {
    // What of the batch has been written already counts as lost too: nobody can tell.
    this.onLost([...batch, ...this.#waiting].filter(({ isCall }) => isCall).length);
    this.#isFailing = true;
    this.#waiting = [];
    this.#waitingBytes = 0;
    const handle = this.#handle;
    this.#handle = null;
    handle?.close().catch(() => undefined);
    // Once for a run of failures.
    if (this.#pauseMs === 0)
      this.#warn(`recording: the disk does not take it (${(error as NodeJS.ErrnoException).code ?? 'error'}); calls go on unrecorded`);
    this.#pauseMs = this.#pauseMs === 0 ? TRY_AGAIN_MS : Math.min(LONGEST_PAUSE_MS, 2 * this.#pauseMs);
    if (this.#isClosed) return;
    this.#again = this.#clock.after(this.#pauseMs, () => {
      this.#isFailing = false;
    });
  }

  #lookNow(): void {
    if (this.#isClosed) return;
    const { maxAgeMs } = this.#limits;
    this.#look = this.#clock.after(Math.min(MAX_LOOK_MS, Math.max(MIN_LOOK_MS, maxAgeMs / LOOKS)), () => this.#lookNow());
    // While it is written, the next look does.
    if (this.#writing !== null || this.#looking !== null) return;
    this.#looking = this.#tidy(0)
      .catch((error: unknown) => {
        if (this.#isUntidy) return;
        this.#isUntidy = true;
        const { code = 'error' } = error as NodeJS.ErrnoException;
        this.#warn(`recording: files that are too old cannot be removed (${code})`);
      })
      .finally(() => {
        this.#looking = null;
      });
  }

  /** Removes what is too old, and the oldest until there is that much room. */
  async #tidy(roomBytes: number): Promise<void> {
    const oldest = this.#clock.wallMs() - this.#limits.maxAgeMs;
    const files: OldFile[] = [];
    for (const name of await there(readdir(this.#folder), [])) {
      const file = name.endsWith(EXTENSION) ? await this.#fileOf(name) : null;
      if (file !== null) files.push(file);
    }
    files.sort((a, b) => a.writtenAt - b.writtenAt || (a.name < b.name ? -1 : 1));
    let bytes = files.reduce((sum, file) => sum + file.bytes, 0);
    for (const { name, bytes: ofFile, bornAt } of files) {
      const isUnderWay = this.#isUnderWay(name);
      if (bornAt >= oldest && (isUnderWay || bytes + roomBytes <= this.#limits.maxBytes)) continue;
      if (isUnderWay) await this.#abandon([]);
      await there(unlink(join(this.#folder, name)), undefined);
      bytes -= ofFile;
    }
    this.bytes = bytes;
  }

  #isUnderWay(name: string): boolean {
    return this.#handle !== null && name === this.#handleName;
  }

  /** Null = it is gone. */
  async #fileOf(name: string): Promise<OldFile | null> {
    const path = join(this.#folder, name);
    const found = await there(stat(path), null);
    if (found === null) return null;
    const { size, birthtimeMs, mtimeMs } = found;
    const wallMs = this.#clock.wallMs();
    if (mtimeMs <= wallMs + AHEAD_MS || this.#isUnderWay(name)) {
      const bornAt = birthtimeMs > 0 ? Math.min(birthtimeMs, mtimeMs) : mtimeMs;
      return { name, bytes: size, bornAt, writtenAt: mtimeMs };
    }
    const isSet = await utimes(path, wallMs / 1_000, wallMs / 1_000).then(
      () => true,
      () => false,
    );
    // Where its time cannot be set it is the first to make room.
    return { name, bytes: size, bornAt: wallMs, writtenAt: isSet ? wallMs : 0 };
  }

  /** The file under way is gone, or as old as any may become. @param unwritten what was to be written to it just now */
  async #abandon(unwritten: readonly Waiting[]): Promise<void> {
    const handle = this.#handle;
    this.#handle = null;
    // What waits for it has nowhere to go, and goes with it; what stands behind a new beginning stays.
    this.#waiting.unshift(...unwritten);
    const begins = this.#waiting.findIndex((each) => each.begins !== null);
    const gone = this.#waiting.splice(0, begins < 0 ? this.#waiting.length : begins);
    for (const { data } of gone) this.#waitingBytes -= data.length;
    this.onLost(gone.filter(({ isCall }) => isCall).length);
    await handle?.close();
  }
}

/** Somebody else may have removed it: so be it. */
async function there<T>(looking: Promise<T>, otherwise: T): Promise<T> {
  try {
    return await looking;
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    if (code === 'ENOENT' || code === 'ENOTDIR') return otherwise;
    throw error;
  }
}
