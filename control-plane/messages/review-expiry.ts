/**
 * Messages that wait for a person's decision (`review`) and whose time is over: nobody pulls them, so the leader says that they have
 * expired, and takes them out. They were accepted, and lie nowhere else. It is done as an order of a person is, one at a time for
 * a task, so that none is released and expired at once.
 */
import { KEPT_STREAM } from '../../proto/wire/subjects.ts';
import type { StreamFacts } from '../../base/jetstream.ts';
import { DueList } from './due-list.ts';
import type { Done, KeptDesk } from './kept-desk.ts';
import { endsAt, type Kept, readKept } from './kept-entry.ts';
import { faultOf } from './fault.ts';
import type { MessageParts } from './parts.ts';
import { serverTime } from './time-left.ts';

const PAGE = 100;
/** Entries read, and ended, in one look; the next look goes on. */
const READ_A_LOOK = 2_000;
const END_A_LOOK = 500;
/** Somebody is doing something with it, or the sender cannot be told now. */
const LATER_MS = 10_000;

export class ReviewExpiry {
  /** Told in this reign. */
  count = 0;
  readonly #parts: MessageParts;
  readonly #kept: KeptDesk;
  readonly #due = new DueList();
  /** Sequence of the latest entry that was read. */
  #scanned = 0;
  /** Up to here nothing more is to be read. */
  #readTo = 0;
  #seenTo = 0;
  #isBusy = false;
  #isClosed = false;

  constructor(parts: MessageParts, kept: KeptDesk) {
    this.#parts = parts;
    this.#kept = kept;
  }

  close(): void {
    this.#isClosed = true;
  }

  /** Not awaited by who looks. @param kept the stream as the server has it now */
  async look(kept: StreamFacts): Promise<void> {
    if (this.#isBusy) return;
    this.#isBusy = true;
    try {
      // A stream that was made anew counts from the start.
      if (kept.lastSeq < this.#readTo) this.#scanned = this.#readTo = this.#seenTo = 0;
      if (kept.lastSeq > this.#readTo) await this.#read(kept.lastSeq);
      if (this.#due.size > 0) await this.#endAll();
    } finally {
      this.#isBusy = false;
    }
  }

  async #read(lastSeq: number): Promise<void> {
    const { bus, subjects } = this.#parts;
    for (let left = READ_A_LOOK; left > 0 && !this.#isClosed; left -= PAGE) {
      const page = await bus.history(KEPT_STREAM, subjects.kept('review', '*'), PAGE, this.#scanned + 1);
      if ('failed' in page) return;
      for (const stored of page) {
        this.#scanned = stored.seq;
        const kept = readKept(stored);
        const at = kept === null || kept.envelope === null ? null : endsAt(kept.envelope, kept.storedAtMs);
        if (at !== null) this.#due.add(at, stored.seq);
      }
      if (page.length >= PAGE) continue;
      // A replica that answered may have been a little behind: what was there at the look before has been read for certain.
      this.#readTo = this.#seenTo;
      this.#seenTo = lastSeq;
      return;
    }
  }

  async #endAll(): Promise<void> {
    const { bus, subjects, logger } = this.#parts;
    const serverMs = await serverTime(this.#parts);
    if (serverMs === null) return;
    let told = 0;
    for (let left = END_A_LOOK; left > 0 && this.#due.nextAt < serverMs && !this.#isClosed; left--) {
      const seq = this.#due.take();
      const page = await bus.history(KEPT_STREAM, subjects.kept('review', '*'), 1, seq);
      const stored = 'failed' in page ? null : page[0];
      // Taken out meanwhile.
      if (stored !== null && stored?.seq !== seq) continue;
      const kept = stored === null ? null : readKept(stored);
      const done = kept === null ? null : await this.#expire(kept);
      if (done !== null && 'ok' in done) told++;
      else if (done === null || done.kind !== 'absent') this.#due.add(serverMs + LATER_MS, seq);
    }
    this.count += told;
    if (told > 0) logger.info({ tasks: told }, 'tasks that nobody reviewed in time have ended: their senders are told');
  }

  /** Whatever somebody wrote into the stream: one that cannot be ended is left to people, and the others are looked at. */
  async #expire(kept: Kept): Promise<Done<unknown>> {
    try {
      return await this.#kept.expire(kept);
    } catch (error) {
      const why = faultOf(error);
      this.#parts.logger.error({ task: kept.entry.task_id, seq: kept.seq }, `its time for review is over, and it cannot be ended: ${why}`);
      return { kind: 'absent', why };
    }
  }
}
