/** One agent's reader that entries are pushed to, at the pace at which it takes them. Nothing is kept for it but its position. */
import type { Clock, Timer } from '../../base/clock.ts';
import type { Box, Wakes } from './box.ts';
import type { InboxFollowing, InboxReader } from './door.ts';
import type { Entry } from './entry.ts';
import type { Positions } from './positions.ts';

const PAGE = 64;
/** Before it is tried again when the stream cannot be read, or something is on its way. */
const AGAIN_MS = 1_000;
const NONE: readonly Entry[] = Object.freeze([]);

export class Following implements InboxFollowing, Wakes {
  readonly ok = true;
  readonly from: number;
  readonly floor: number;
  readonly #box: Box;
  readonly #reader: InboxReader;
  readonly #positions: Positions;
  readonly #clock: Clock;
  #at: number;
  /** Taken from the inbox, and not given yet. */
  #page: readonly Entry[] = NONE;
  #given = 0;
  #isReady = false;
  #isRunning = false;
  #isOver = false;
  #timer: Timer | null = null;

  readonly #gave: (entry: Entry) => void;

  /** @param gave hears of each entry before it is given */
  constructor(box: Box, at: number, reader: InboxReader, positions: Positions, clock: Clock, gave: (entry: Entry) => void) {
    this.#gave = gave;
    this.from = at;
    this.floor = box.floor;
    this.#box = box;
    this.#at = at;
    this.#reader = reader;
    this.#positions = positions;
    this.#clock = clock;
  }

  ready(): void {
    this.#isReady = true;
    this.wake();
  }

  wake(): void {
    if (!this.#isRunning && this.#isReady && !this.#isOver && this.#timer === null) void this.#run();
  }

  close(): void {
    this.#isOver = true;
    this.#timer?.cancel();
    this.#page = NONE;
    if (this.#box.follower === this) this.#box.follower = null;
    this.#box.usedAt = this.#clock.now();
  }

  replaced(): void {
    this.#end('replaced');
  }

  closing(): void {
    this.#end('closing');
  }

  #end(why: 'replaced' | 'closing'): void {
    if (this.#isOver) return;
    this.close();
    this.#reader.ended(why);
  }

  async #run(): Promise<void> {
    this.#isRunning = true;
    while (this.#goesOn && this.#give()) {
      const hot = this.#positions.hot(this.#box, this.#at, PAGE);
      const came = hot ?? (await this.#positions.step(this.#box, this.#at, PAGE));
      if (this.#isOver) break;
      if (!came.ok) {
        this.#later();
        break;
      }
      this.#at = came.at;
      this.#page = came.entries;
      this.#given = 0;
      if (came.entries.length > 0) continue;
      // The hot copy says that there is nothing more; the stream says it only for what it had.
      if (came.at < this.#positions.completeFrom(this.#box)) this.#later();
      else if (hot === null) continue;
      break;
    }
    this.#isRunning = false;
  }

  /** Asked for anew after each wait, during which it may have changed. */
  get #goesOn(): boolean {
    return this.#isReady && !this.#isOver;
  }

  /** True when all that was at hand is given. */
  #give(): boolean {
    while (this.#given < this.#page.length) {
      if (!this.#goesOn) return false;
      const entry = this.#page[this.#given++] as Entry;
      this.#gave(entry);
      if (entry.seq > this.#box.given) this.#box.given = entry.seq;
      if (!this.#reader.take(entry)) this.#isReady = false;
    }
    return this.#goesOn;
  }

  #later(): void {
    this.#timer ??= this.#clock.after(AGAIN_MS, () => {
      this.#timer = null;
      this.wake();
    });
  }
}
