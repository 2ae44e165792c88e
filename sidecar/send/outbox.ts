/**
 * The outbox on this machine's disk: many puts, one flush, and each put is told once it is flushed. Decides how much is taken
 * and when a broken disk is tried again; the files are outbox-log.ts, sending them outbox-drain.ts, one process to a folder
 * outbox-lock.ts.
 */
import type { Clock } from '../../base/clock.ts';
import type { Bus } from '../../base/nats.ts';
import type { Random } from '../../base/random.ts';
import type { StreamPublisher } from '../../base/stream-publisher.ts';
import { aged } from './outbox-age.ts';
import type { Outbox } from './outbox-door.ts';
import { OutboxDrain } from './outbox-drain.ts';
import { FolderLock } from './outbox-lock.ts';
import { type Kept, OutboxLog } from './outbox-log.ts';
import { MAX_BODY_BYTES, recordBytes } from './outbox-record.ts';

export interface OutboxParts {
  /** Of this sidecar alone; made when it is missing. */
  readonly folder: string;
  /** Of all messages in it, on the disk. */
  readonly maxBytes: number;
  readonly bus: Pick<Bus, 'connected' | 'onState'>;
  /** Its own, so that draining cannot take the room of what is sent directly. */
  readonly stream: Pick<StreamPublisher, 'send' | 'close'>;
  readonly clock: Clock;
  readonly random: Random;
  readonly warn: (words: string) => void;
  /** A message has left the disk: see `DrainParts`; absent = nobody wants to know. */
  readonly left?: (data: Buffer, why: string) => void;
  /** A message was accepted, and the server will never take it. */
  readonly never: (data: Buffer, why: string) => void;
}

/** Small enough that an outbox near its bound is emptied piece by piece, large enough that files are not the work. */
const SEGMENTS = 16;
const LEAST_SEGMENT_BYTES = 65_536;
const MOST_SEGMENT_BYTES = 8 * 1_024 * 1_024;
/** One write and one flush. */
const BATCH_BYTES = 4 * 1_024 * 1_024;
/** Puts that wait for their flush; a disk that is slower than what comes in refuses, it does not fill the memory. */
const WAITING_BYTES = 32 * 1_024 * 1_024;
/** A disk that failed is tried again with a put after so long. */
const AGAIN_MS = 1_000;

const NOBODY = (): void => undefined;

interface Put {
  readonly msgId: string;
  readonly subject: string;
  readonly data: Buffer;
  readonly bytes: number;
  readonly told: (kept: Kept) => void;
}

export class DiskOutbox implements Outbox {
  readonly isThere = true;
  readonly #parts: OutboxParts;
  readonly #lock: FolderLock;
  readonly #log: OutboxLog;
  readonly #drain: OutboxDrain;
  #waiting: Put[] = [];
  #waitingBytes = 0;
  #pending: number;
  #flushing: Promise<void> | null = null;
  #brokenAt: number | null = null;
  #said = '';
  #isClosed = false;

  /** Takes the folder and reads what is in it; a sentence when another process has it, or it cannot be written. */
  static async open(parts: OutboxParts): Promise<DiskOutbox | string> {
    const { folder, maxBytes, clock, warn } = parts;
    let lock: FolderLock | string = '';
    try {
      const segmentBytes = Math.min(MOST_SEGMENT_BYTES, Math.max(LEAST_SEGMENT_BYTES, Math.floor(maxBytes / SEGMENTS)));
      await OutboxLog.prepare(folder);
      lock = FolderLock.take(folder, clock);
      if (typeof lock === 'string') return lock;
      return new DiskOutbox(parts, lock, await OutboxLog.open({ folder, segmentBytes, warn }));
    } catch (error) {
      if (typeof lock !== 'string') lock.release();
      return `the outbox ${folder} cannot be used: ${(error as Error).message}`;
    }
  }

  private constructor(parts: OutboxParts, lock: FolderLock, log: OutboxLog) {
    this.#parts = parts;
    this.#lock = lock;
    this.#log = log;
    this.#pending = log.found;
    const { bus, stream, clock, random, warn } = parts;
    this.#drain = new OutboxDrain({
      log,
      bus,
      stream,
      clock,
      random,
      warn,
      gone: (count) => {
        this.#pending -= count;
      },
      isEmpty: () => this.#pending === 0,
      leaving: (data) => aged(data, clock.wallMs()),
      left: parts.left ?? NOBODY,
      never: parts.never,
    });
    this.#drain.look();
  }

  get pending(): number {
    return this.#pending;
  }

  put(subject: string, data: Buffer, msgId: string): Promise<Kept> {
    const { clock, maxBytes } = this.#parts;
    if (this.#isClosed) return Promise.resolve('broken');
    if (this.#brokenAt !== null && clock.now() - this.#brokenAt < AGAIN_MS) return Promise.resolve('broken');
    const bytes = recordBytes(msgId, subject, data);
    const isTooMuch = this.#waitingBytes + bytes > WAITING_BYTES || this.#log.bytes + this.#waitingBytes + bytes > maxBytes;
    if (isTooMuch || data.length > MAX_BODY_BYTES / 2) {
      this.#say(`the outbox ${this.#parts.folder} is full: ${this.#pending} messages wait in it`);
      return Promise.resolve('full');
    }
    // Counted at once: what comes after it goes behind it.
    this.#pending++;
    this.#waitingBytes += bytes;
    return new Promise((told) => {
      this.#waiting.push({ msgId, subject, data, bytes, told });
      this.#flushing ??= this.#flush();
    });
  }

  /** Ends what is being written; what is on the disk is sent at the next start. */
  async close(): Promise<void> {
    if (this.#isClosed) return;
    this.#isClosed = true;
    await this.#flushing;
    await this.#drain.close();
    this.#parts.stream.close();
    await this.#log.close();
    this.#lock.release();
  }

  async #flush(): Promise<void> {
    // Puts of one turn go together.
    await Promise.resolve();
    while (this.#waiting.length > 0) {
      const batch = this.#takeBatch();
      const kept = await this.#log.append(batch);
      this.#judge(kept);
      for (const { bytes, told } of batch) {
        this.#waitingBytes -= bytes;
        if (kept !== 'stored') this.#pending--;
        told(kept);
      }
      if (kept === 'stored') this.#drain.look();
    }
    this.#flushing = null;
  }

  #takeBatch(): Put[] {
    let bytes = 0;
    let count = 0;
    for (; count < this.#waiting.length; count++) {
      bytes += (this.#waiting[count] as Put).bytes;
      if (count > 0 && bytes > BATCH_BYTES) break;
    }
    return this.#waiting.splice(0, count);
  }

  #judge(kept: Kept): void {
    const { folder, clock } = this.#parts;
    if (kept === 'stored') {
      if (this.#brokenAt !== null) this.#parts.warn(`the outbox ${folder} can be written again`);
      this.#brokenAt = null;
      this.#said = '';
      return;
    }
    this.#brokenAt = kept === 'broken' ? clock.now() : null;
    this.#say(`the outbox ${folder} cannot be written: ${this.#log.why}`);
  }

  /** Once for a run of equal troubles. */
  #say(words: string): void {
    const kind = words.slice(0, words.lastIndexOf(':'));
    if (kind === this.#said) return;
    this.#said = kind;
    this.#parts.warn(words);
  }
}
