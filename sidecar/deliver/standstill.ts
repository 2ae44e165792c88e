/**
 * Whether this process stood still (stopped, starved, its machine asleep), and what that says of messages that arrive then: they may
 * have lain in its socket since, and the queue's wait for them runs from when they were sent. What arrives after a standstill counts
 * as old as the last sign of life before it, until the server has answered something that was asked afterwards: on one connection nothing
 * overtakes, so what comes behind that answer is young.
 */
import type { Clock } from '../../base/clock.ts';

/** Signs of life come some times a second. */
const STILL_MS = 1_000;

export class Standstill {
  readonly #clock: Clock;
  /** True once the server has answered. */
  readonly #roundTrip: () => Promise<boolean>;
  #beatAt: number;
  /** Since when; null = it does not. */
  #since: number | null = null;
  /** Which one: an answer to what was asked before another one says nothing. */
  #count = 0;
  #isAsking = false;

  constructor(clock: Clock, roundTrip: () => Promise<boolean>) {
    this.#clock = clock;
    this.#roundTrip = roundTrip;
    this.#beatAt = clock.now();
  }

  /** A sign of life: to be given some times a second. */
  beat(): void {
    const now = this.#clock.now();
    this.#noticed(now);
    this.#beatAt = now;
    if (this.#since !== null && !this.#isAsking) void this.#ask();
  }

  /** When what arrives now was sent, at the earliest (`clock.now()`). */
  sentAt(now: number): number {
    this.#noticed(now);
    return this.#since ?? now;
  }

  #noticed(now: number): void {
    if (now - this.#beatAt < STILL_MS) return;
    this.#since ??= this.#beatAt;
    this.#beatAt = now;
    this.#count++;
  }

  async #ask(): Promise<void> {
    const asked = this.#count;
    this.#isAsking = true;
    const isAnswered = await this.#roundTrip();
    this.#isAsking = false;
    if (isAnswered && asked === this.#count) this.#since = null;
  }
}
