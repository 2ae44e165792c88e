/**
 * The clock of a call that is decided anew. As long as the call goes the way that was recorded it tells the very instants that were
 * read then, so that every word and number comes out as it did. When it leaves that way, it goes on as a virtual one from
 * the last of them.
 */
import type { Clock, Timer } from '../../base/clock.ts';
import type { Stretch } from '../record/shapes.ts';

export interface Waiting {
  readonly dueAt: number;
  readonly delayMs: number;
  readonly fire: () => void;
  isLive: boolean;
}

export class ReplayClock implements Clock {
  readonly #stretches: readonly Stretch[];
  readonly #wallOffset: number;
  #at = 0;
  #nows = 0;
  #walls = 0;
  #last: number;
  #lastWall: number | null = null;
  #waiting: Waiting[] = [];
  /** The call goes another way than the recorded one. */
  isAside = false;

  constructor(stretches: readonly Stretch[], startedAt: number, wallMs: number) {
    this.#stretches = stretches;
    this.#last = startedAt;
    this.#wallOffset = wallMs - startedAt;
  }

  now(): number {
    if (this.isAside) return this.#last;
    const read = this.#stretches[this.#at]?.now[this.#nows];
    if (read === undefined) return this.#last;
    this.#nows++;
    this.#last = read;
    return read;
  }

  wallMs(): number {
    const read = this.isAside ? undefined : this.#stretches[this.#at]?.wall[this.#walls];
    if (read === undefined) return this.isAside || this.#lastWall === null ? Math.floor(this.#last + this.#wallOffset) : this.#lastWall;
    this.#walls++;
    this.#lastWall = read;
    return read;
  }

  after(delayMs: number, fire: () => void): Timer {
    const waiting: Waiting = { dueAt: this.#last + delayMs, delayMs, fire, isLive: true };
    this.#waiting.push(waiting);
    return {
      cancel: () => {
        waiting.isLive = false;
      },
    };
  }

  /** For what had the clock of all calls: it tells the present one, and none of what this call read goes to it. */
  beside(): Clock {
    return {
      now: () => this.#last,
      wallMs: () => Math.floor(this.#last + this.#wallOffset),
      after: (delayMs, fire) => this.after(delayMs, fire),
    };
  }

  /** What it was told last. */
  get last(): number {
    return this.#last;
  }

  /** What had been waited for next; null = nothing more. */
  get next(): Stretch | null {
    return this.isAside ? null : (this.#stretches[this.#at + 1] ?? null);
  }

  /** The next instant that was read in this stretch, and is not told yet; null = none. */
  get unread(): number | null {
    return this.isAside ? null : (this.#stretches[this.#at]?.now[this.#nows] ?? null);
  }

  /** What was waited for next has come. */
  enter(): void {
    this.#at++;
    this.#nows = 0;
    this.#walls = 0;
    const first = this.#stretches[this.#at]?.now[0];
    if (first !== undefined) this.#last = first;
  }

  /** From here on another way. */
  leave(): void {
    this.isAside = true;
  }

  /** Aside only. */
  moveTo(at: number): void {
    if (at > this.#last) this.#last = at;
  }

  /** The timer that is due first; null = none. */
  earliest(): Waiting | null {
    this.#waiting = this.#waiting.filter(({ isLive }) => isLive);
    let first: Waiting | null = null;
    for (const waiting of this.#waiting) if (first === null || waiting.dueAt < first.dueAt) first = waiting;
    return first;
  }

  fire(waiting: Waiting): void {
    waiting.isLive = false;
    waiting.fire();
  }
}
