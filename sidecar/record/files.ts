/**
 * The files of a recording, and what waits to be written. Nobody waits for the disk: what finds no room in the queue is dropped
 * and counted, and a disk that fails is tried again after a while. The oldest file goes when there are too many bytes, or when it
 * is too old. A file is never opened again by another process: each start begins a new one.
 */
import { randomBytes } from 'node:crypto';
import { type FileHandle, mkdir, open, readdir, stat, unlink } from 'node:fs/promises';
import { join } from 'node:path';
import { type Clock, nextTurn, type Timer } from '../../base/clock.ts';
import { FILE_HEAD_BYTES, fileHead, frame } from './frames.ts';

export interface FileLimits {
  readonly maxBytes: number;
  readonly fileBytes: number;
  readonly maxAgeMs: number;
}

/** Waits at most for the disk. */
const QUEUE_BYTES = 8 * 1_024 * 1_024;
const TRY_AGAIN_MS = 5_000;
export const EXTENSION = '.reachrec';

interface Waiting {
  readonly data: Buffer;
  /** A new file begins with it. */
  readonly begins: string | null;
  readonly isCall: boolean;
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
  #files = 0;
  #handle: FileHandle | null = null;
  #writing: Promise<void> | null = null;
  #again: Timer | null = null;
  #isFailing = false;
  #isClosed = false;
  /** Bytes on disk in all files, as far as known. */
  bytes = 0;
  /** Calls that were put and will not be written. */
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

  /** The file under way has all that it may have. */
  get isFull(): boolean {
    return this.#fileBytes >= this.#limits.fileBytes;
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
    this.#again?.cancel();
    this.#again = null;
    while (this.#writing !== null) await this.#writing;
    await this.#handle?.close().catch(() => undefined);
    this.#handle = null;
  }

  /** What was put so far is on its way to the disk no more. */
  async flushed(): Promise<void> {
    while (this.#writing !== null) await this.#writing;
  }

  #write(): void {
    if (this.#writing !== null || this.#isFailing) return;
    this.#writing = this.#drain().finally(() => {
      this.#writing = null;
    });
  }

  async #drain(): Promise<void> {
    // Calls of the same turn go to the disk together.
    await nextTurn();
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

  async #writeAll(batch: readonly Waiting[]): Promise<void> {
    for (let i = 0; i < batch.length; ) {
      const { begins } = batch[i] as Waiting;
      if (begins !== null) {
        await this.#handle?.close();
        this.#handle = null;
        await mkdir(this.#folder, { recursive: true, mode: 0o700 });
        await this.#tidy();
        this.#handle = await open(join(this.#folder, begins), 'wx', 0o600);
      }
      let end = i + 1;
      while (end < batch.length && (batch[end] as Waiting).begins === null) end++;
      const data = Buffer.concat(batch.slice(i, end).map((each) => each.data));
      if (this.#handle !== null) await this.#handle.writeFile(data);
      this.#waitingBytes -= data.length;
      this.bytes += data.length;
      i = end;
    }
  }

  #failed(error: unknown, batch: readonly Waiting[]): void {
    // What of the batch has been written already counts as lost too: nobody can tell.
    const lost = [...batch, ...this.#waiting].filter(({ isCall }) => isCall).length;
    if (lost > 0) this.onLost(lost);
    this.#isFailing = true;
    this.#waiting = [];
    this.#waitingBytes = 0;
    const handle = this.#handle;
    this.#handle = null;
    handle?.close().catch(() => undefined);
    this.#warn(`recording: the disk does not take it (${(error as NodeJS.ErrnoException).code ?? 'error'}); calls go on unrecorded`);
    if (this.#isClosed) return;
    this.#again = this.#clock.after(TRY_AGAIN_MS, () => {
      this.#isFailing = false;
    });
  }

  /** Before a file is begun: makes room for it. */
  async #tidy(): Promise<void> {
    const oldest = this.#clock.wallMs() - this.#limits.maxAgeMs;
    const files: { readonly path: string; readonly bytes: number; readonly at: number }[] = [];
    for (const name of await readdir(this.#folder)) {
      if (!name.endsWith(EXTENSION)) continue;
      const path = join(this.#folder, name);
      const { size, birthtimeMs, mtimeMs } = await stat(path);
      files.push({ path, bytes: size, at: Math.min(birthtimeMs > 0 ? birthtimeMs : mtimeMs, mtimeMs) });
    }
    files.sort((a, b) => (a.path < b.path ? -1 : 1));
    let bytes = files.reduce((sum, file) => sum + file.bytes, 0);
    for (const { path, bytes: ofFile, at } of files) {
      if (at >= oldest && bytes + this.#limits.fileBytes <= this.#limits.maxBytes) continue;
      await unlink(path);
      bytes -= ofFile;
    }
    this.bytes = bytes;
  }
}
