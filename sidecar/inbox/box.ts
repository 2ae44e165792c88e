/**
 * The hot copy of one agent's inbox: what came within the last minutes, in the order of the stream, and from which position
 * on that is everything. Below that position the stream has to be asked. Knows no bus and no clock.
 */
import type { Entry } from './entry.ts';

/** Taken entries are cut off the array when there are so many of them. */
const COMPACT = 64;

export interface Wakes {
  /** Something came. */
  wake(): void;
}

export class Box {
  readonly agent: string;
  /** Everything of the agent from this position on is in the hot copy. */
  completeFrom: number;
  /** For which run of the pump that holds. */
  epoch: number;
  /** Everything up to it is acknowledged; -1 = not known yet. */
  floor = -1;
  /** Revision of its record; 0 = there is none. */
  floorRevision = 0;
  isFloorDirty = false;
  loading: Promise<string | null> | null = null;
  /** The highest that was given to the agent by this process. */
  given = 0;
  bytes = 0;
  /** Positions of entries that the server holds as not acknowledged, ascending; some may be acknowledged meanwhile. */
  pending: number[] = [];
  readonly waiters = new Set<Wakes>();
  follower: (Wakes & { replaced(): void; closing(): void }) | null = null;
  /** `clock.now()` of the last use. */
  usedAt: number;
  #entries: Entry[] = [];
  #first = 0;

  constructor(agent: string, completeFrom: number, epoch: number, now: number) {
    this.agent = agent;
    this.completeFrom = completeFrom;
    this.epoch = epoch;
    this.usedAt = now;
  }

  get count(): number {
    return this.#entries.length - this.#first;
  }

  /** 0 = the hot copy is empty. */
  get lastSeq(): number {
    return this.count === 0 ? 0 : (this.#entries.at(-1) as Entry).seq;
  }

  /** The highest position of which it is certain that the agent has, or had, an entry there; positions up to one behind are in order. */
  get known(): number {
    return Math.max(this.lastSeq, this.given, this.floor, 0);
  }

  append(entry: Entry): void {
    this.#entries.push(entry);
    this.bytes += entry.bytes;
  }

  /** Wakes whoever waits for something new. */
  tell(): void {
    this.follower?.wake();
    for (const waiter of this.waiters) waiter.wake();
  }

  oldest(): Entry | null {
    return this.#entries[this.#first] ?? null;
  }

  /** Takes the oldest out of the hot copy: from now on the stream is asked for it. */
  dropOldest(): Entry | null {
    const entry = this.#entries[this.#first];
    if (entry === undefined) return null;
    this.#first++;
    if (this.#first >= COMPACT && this.#first * 2 >= this.#entries.length) {
      this.#entries = this.#entries.slice(this.#first);
      this.#first = 0;
    }
    entry.isGone = true;
    this.bytes -= entry.bytes;
    if (this.completeFrom <= entry.seq) this.completeFrom = entry.seq + 1;
    return entry;
  }

  /** Entries from a position on, no more than so many, and no more bytes than the first and those. */
  slice(from: number, limit: number, maxBytes: number): Entry[] {
    const found: Entry[] = [];
    let bytes = 0;
    for (let i = this.#find(from); i < this.#entries.length && found.length < limit; i++) {
      const entry = this.#entries[i] as Entry;
      bytes += entry.bytes;
      if (bytes > maxBytes && found.length > 0) break;
      found.push(entry);
    }
    return found;
  }

  /** Index of the first at or behind a position. */
  #find(from: number): number {
    let low = this.#first;
    let high = this.#entries.length;
    while (low < high) {
      const middle = (low + high) >>> 1;
      if ((this.#entries[middle] as Entry).seq < from) low = middle + 1;
      else high = middle;
    }
    return low;
  }
}
