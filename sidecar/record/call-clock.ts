/**
 * The clock of one call that is recorded: it tells the time as the real one does and keeps what it told, in stretches. A new stretch
 * begins with whatever the call had waited for, so that a replay that goes another way knows where it left the known one.
 */
import type { Clock, Timer } from '../../base/clock.ts';
import type { Stretch } from './shapes.ts';

/** A call that reads the clock more often is no call that can be replayed. */
const MAX_READINGS = 4_096;

export class CallClock implements Clock {
  readonly stretches: Stretch[] = [];
  /** More was read than is kept. */
  isOver = false;
  readonly #clock: Clock;
  #current: Stretch;
  #readings = 0;
  /** While the body of a stream passes, readings and timers are its own affair. */
  #isMuted = false;

  constructor(clock: Clock) {
    this.#clock = clock;
    this.#current = { after: 'begin', n: 0, now: [], wall: [] };
    this.stretches.push(this.#current);
  }

  now(): number {
    const now = this.#clock.now();
    if (!this.#isMuted && this.#hasRoom()) this.#current.now.push(now);
    return now;
  }

  wallMs(): number {
    const wall = this.#clock.wallMs();
    if (!this.#isMuted && this.#hasRoom()) this.#current.wall.push(wall);
    return wall;
  }

  after(delayMs: number, fire: () => void): Timer {
    return this.#clock.after(delayMs, () => {
      if (!this.#isMuted) this.begin('timer', delayMs);
      fire();
    });
  }

  /** The call has waited for something, and it has come. */
  begin(after: Stretch['after'], n: number): void {
    this.#current = { after, n, now: [], wall: [] };
    this.stretches.push(this.#current);
  }

  mute(isMuted: boolean): void {
    this.#isMuted = isMuted;
  }

  /** What is done meanwhile reads the clock for itself: a replay does not do it. */
  aside(work: () => void): void {
    const before = this.#isMuted;
    this.#isMuted = true;
    work();
    this.#isMuted = before;
  }

  #hasRoom(): boolean {
    if (this.#readings++ < MAX_READINGS) return true;
    this.isOver = true;
    return false;
  }
}
