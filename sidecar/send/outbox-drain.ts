/**
 * Sends what lies in the outbox, oldest first, while there is a connection. Several are on their way at once; the first that is
 * not stored stops the rest, everything is awaited, and it goes on with the first that is missing, one at a time at first, with the
 * same ids: what was stored before is not stored twice, and nothing overtakes what the stream had no room for. What the server
 * will never take is set aside and said, since it would hold up everything behind it. So is what there is no permission for, when
 * that has not changed for some seconds (`Denials`): permissions may be on their way, and it is accepted work.
 */
import type { Clock, Timer } from '../../base/clock.ts';
import type { Bus } from '../../base/nats.ts';
import type { Appended } from '../../base/pub-ack.ts';
import type { Random } from '../../base/random.ts';
import type { StreamPublisher } from '../../base/stream-publisher.ts';
import { Denials } from './denials.ts';
import { isDenied, isTooLarge } from './unsendable.ts';
import type { Cursor, LoggedRecord, OutboxLog } from './outbox-log.ts';

export interface DrainParts {
  readonly log: OutboxLog;
  readonly bus: Pick<Bus, 'connected' | 'onState'>;
  readonly stream: Pick<StreamPublisher, 'send'>;
  readonly clock: Clock;
  readonly random: Random;
  readonly warn: (words: string) => void;
  /** So many more are with the stream, or set aside. */
  readonly gone: (count: number) => void;
  /** Nothing waits, and nothing is being written. */
  readonly isEmpty: () => boolean;
  /** What goes to the stream of what lies on the disk. */
  readonly leaving: (data: Buffer) => Buffer;
  /** It is with the stream; `why`: it will never be, and is set aside. */
  readonly left: (data: Buffer, why: string) => void;
  /** It was accepted, and the server will never take it. */
  readonly never: (data: Buffer, why: string) => void;
}

/** On their way at once; at 0.3 ms a round trip 256 keep a stream busy. */
const WINDOW = 256;
const WINDOW_BYTES = 4 * 1_024 * 1_024;
const FIRST_PAUSE_MS = 100;
const LONGEST_PAUSE_MS = 5_000;
const POSITION_EVERY_MS = 500;

class Sending {
  readonly logged: LoggedRecord;
  isStored = false;
  /** Why the server will never take it; '' = it may. */
  neverBecause = '';
  readonly heard: (outcome: Appended) => void;

  constructor(logged: LoggedRecord, heard: (sending: Sending, outcome: Appended) => void) {
    this.logged = logged;
    this.heard = (outcome) => heard(this, outcome);
  }
}

export class OutboxDrain {
  readonly #parts: DrainParts;
  readonly #listener: { close(): void };
  readonly #onHeard = (sending: Sending, outcome: Appended): void => this.#heard(sending, outcome);
  /** Read and not all stored, in order. */
  #queue: Sending[] = [];
  /** How many at the front of the queue have been sent at least once since the last failure. */
  #sent = 0;
  #underWay = 0;
  #bytesUnderWay = 0;
  #window = 1;
  #failed: string | null = null;
  #saidFailed = '';
  #pauseMs = FIRST_PAUSE_MS;
  #read: Cursor;
  /** Everything before it is stored. */
  #done: Cursor;
  #keptAt = 0;
  #wake: (() => void) | null = null;
  #isWoken = false;
  #endPause: (() => void) | null = null;
  #timer: Timer | null = null;
  #isClosed = false;
  readonly #denials = new Denials();
  readonly #running: Promise<void>;

  constructor(parts: DrainParts) {
    this.#parts = parts;
    this.#read = parts.log.start;
    this.#done = this.#read;
    this.#listener = parts.bus.onState(() => {
      // Another connection may have other permissions.
      this.#denials.clear();
      this.#endPause?.();
      this.look();
    });
    this.#running = this.#run();
  }

  /** There is something new, or a connection. */
  look(): void {
    this.#isWoken = true;
    this.#wake?.();
  }

  /** Ends with what is on its way left behind: it is sent again at the next start. */
  async close(): Promise<void> {
    this.#isClosed = true;
    this.#listener.close();
    this.#endPause?.();
    this.look();
    await this.#running;
    await this.#parts.log.keepPosition(this.#done);
  }

  async #run(): Promise<void> {
    while (!this.#isClosed) {
      try {
        await this.#turn();
      } catch (error) {
        this.#say(`the outbox cannot be read: ${(error as Error).message}`);
        await this.#pause();
      }
    }
  }

  async #turn(): Promise<void> {
    await this.#settle();
    if (this.#failed !== null && this.#underWay === 0) {
      await this.#pause();
      this.#beginAnew();
    }
    if (this.#failed === null && this.#parts.bus.connected) {
      if (this.#sent >= this.#queue.length && this.#queue.length < this.#window) await this.#fill();
      this.#send();
    }
    await this.#woken();
  }

  /** Drops what is stored from the front, with its files. */
  async #settle(): Promise<void> {
    let count = 0;
    for (; count < this.#queue.length && (this.#queue[count] as Sending).isStored; count++) {
      const { logged, neverBecause } = this.#queue[count] as Sending;
      const { record, segment, end } = logged;
      if (neverBecause !== '') {
        this.#parts.warn(
          `the outbox cannot send message ${record.msgId}: ${neverBecause}; it is kept in ${await this.#parts.log.setAside(logged)}`,
        );
        this.#parts.never(record.data, neverBecause);
      }
      this.#parts.left(record.data, neverBecause);
      this.#done = { segment, offset: end };
    }
    if (count === 0) return;
    this.#queue.splice(0, count);
    this.#sent = Math.max(0, this.#sent - count);
    this.#parts.gone(count);
    const { log, clock } = this.#parts;
    const isAll = this.#parts.isEmpty();
    await log.dropBefore(this.#done.segment, isAll);
    if (!isAll && clock.now() - this.#keptAt < POSITION_EVERY_MS) return;
    this.#keptAt = clock.now();
    await log.keepPosition(this.#done);
  }

  async #fill(): Promise<void> {
    const { records, next } = await this.#parts.log.read(this.#read);
    this.#read = next;
    for (const logged of records) {
      this.#queue.push(new Sending(logged, this.#onHeard));
    }
  }

  #send(): void {
    while (this.#sent < this.#queue.length && this.#underWay < this.#window && this.#failed === null) {
      const next = this.#queue[this.#sent] as Sending;
      if (!next.isStored) {
        const { subject, data, msgId } = next.logged.record;
        if (this.#underWay > 0 && this.#bytesUnderWay + data.length > WINDOW_BYTES) return;
        if (!this.#parts.stream.send(subject, this.#parts.leaving(data), { msgId }, next.heard)) {
          // Not sent at all: it is tried again when there is room, or a connection.
          if (this.#parts.bus.connected && this.#underWay === 0) this.#failed = 'the connection to NATS takes nothing now';
          return;
        }
        this.#underWay++;
        this.#bytesUnderWay += data.length;
      }
      this.#sent++;
    }
  }

  #heard(sending: Sending, outcome: Appended): void {
    this.#underWay--;
    this.#bytesUnderWay -= sending.logged.record.data.length;
    if ('seq' in outcome) {
      sending.isStored = true;
      this.#window = Math.min(WINDOW, this.#window * 2);
      this.#pauseMs = FIRST_PAUSE_MS;
      this.#saidFailed = '';
      this.#denials.stored(sending.logged.record.subject);
    } else {
      const failed = 'failed' in outcome ? outcome.failed : 'the stream expects another sequence';
      if ('failed' in outcome && !outcome.ambiguous && this.#isNever(sending.logged.record.subject, failed)) {
        sending.isStored = true;
        sending.neverBecause = failed;
        this.#pauseMs = FIRST_PAUSE_MS;
      } else this.#failed ??= failed;
    }
    this.look();
  }

  #isNever(subject: string, failed: string): boolean {
    if (isTooLarge(failed)) return true;
    return isDenied(failed) && this.#denials.refused(subject, this.#parts.clock.now());
  }

  /** From the first that is missing, carefully. */
  #beginAnew(): void {
    this.#failed = null;
    this.#sent = 0;
    this.#window = 1;
  }

  async #pause(): Promise<void> {
    const { bus, clock, random } = this.#parts;
    const pauseMs = this.#pauseMs * (0.8 + 0.4 * random.next());
    this.#pauseMs = Math.min(LONGEST_PAUSE_MS, this.#pauseMs * 2);
    if (this.#failed !== null && bus.connected) this.#say(`the outbox waits: ${this.#failed}`);
    await new Promise<void>((done) => {
      this.#timer = clock.after(pauseMs, done);
      this.#endPause = done;
    });
    this.#timer?.cancel();
    this.#endPause = null;
    this.#isWoken = true;
  }

  async #woken(): Promise<void> {
    if (!this.#isWoken)
      await new Promise<void>((done) => {
        this.#wake = done;
      });
    this.#wake = null;
    this.#isWoken = false;
  }

  /** Once for a run of equal failures. */
  #say(words: string): void {
    if (words === this.#saidFailed) return;
    this.#saidFailed = words;
    this.#parts.warn(words);
  }
}
