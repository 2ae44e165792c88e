/**
 * When a part of the page asks: at once, again when it is told of a change (however often, at most once each `gapMs`), again after a
 * while when nobody says anything, and never while nobody looks at the page; whatever was missed meanwhile is asked for the moment it
 * is looked at again. Questions may overlap: an answer older than the one shown is dropped. What is asked, and shown, is the
 * caller's.
 */
import type { Clock, Timer } from '../../base/clock.ts';

/** What changes without anybody saying so (rates that sink, ages) is asked for this often. */
const QUIET_MS = 20_000;
/** What is told together is asked for together. */
const SOON_MS = 200;

export interface AskingParts<A> {
  readonly clock: Clock;
  /** Between two questions, at least; not when a person asks. */
  readonly gapMs: number;
  readonly ask: () => Promise<A>;
  readonly show: (answer: A) => void;
  /** Nobody looks. */
  readonly isHidden: () => boolean;
}

export class Asking<A> {
  readonly #parts: AskingParts<A>;
  #next: Timer | null = null;
  /** The number of the newest question, and of the one whose answer is shown. */
  #asked = 0;
  #shown = 0;
  #underWay = 0;
  #askedMs = Number.NEGATIVE_INFINITY;
  /** A change was told, and the question about it is still to come. */
  #isWanted = false;
  /** A question was due while nobody looked. */
  #isStale = false;
  #isOver = false;

  constructor(parts: AskingParts<A>) {
    this.#parts = parts;
  }

  /** Asks now, also beside a question that is under way. */
  now(): void {
    if (!this.#isOver) void this.#ask();
  }

  /** What is shown may have changed. */
  changed(): void {
    if (this.#isOver || this.#isWanted) return;
    this.#isWanted = true;
    if (this.#underWay > 0) return;
    const { clock, gapMs } = this.#parts;
    this.#after(Math.max(SOON_MS, this.#askedMs + gapMs - clock.now()));
  }

  /** The page is looked at again. */
  seen(): void {
    if (this.#isStale) this.now();
    else this.changed();
  }

  stop(): void {
    this.#isOver = true;
    this.#next?.cancel();
  }

  async #ask(): Promise<void> {
    const { clock, gapMs, ask, show } = this.#parts;
    this.#next?.cancel();
    this.#isWanted = false;
    this.#isStale = false;
    this.#underWay++;
    const number = ++this.#asked;
    const answer = await ask();
    this.#underWay--;
    if (this.#isOver) return;
    if (number > this.#shown) {
      this.#shown = number;
      show(answer);
    }
    this.#askedMs = clock.now();
    if (this.#underWay === 0) this.#after(this.#isWanted ? gapMs : QUIET_MS);
  }

  #after(delayMs: number): void {
    this.#next?.cancel();
    this.#next = this.#parts.clock.after(delayMs, () => this.#look());
  }

  #look(): void {
    if (!this.#parts.isHidden()) return void this.#ask();
    this.#isStale = true;
    this.#isWanted = false;
    // Browsers say when a page is seen again; should one not, this finds it.
    this.#after(QUIET_MS);
  }
}
