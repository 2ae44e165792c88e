/**
 * Those who wait to hear that the server has something. One timer watches over all of them: a timer for each would cost about as
 * much as what it watches over. Whether an answer came is all that is asked.
 */
import type { Clock, Timer } from './clock.ts';

export class Confirms {
  readonly #clock: Clock;
  readonly #waiting = new Map<string, Waiting>();
  readonly #look = (): void => this.#expire();
  #timer: Timer | null = null;
  /** When the timer fires. */
  #dueAt = 0;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** `end` is called once: true = an answer came, false = it may have come to nothing. */
  add(token: string, subject: string, timeoutMs: number, end: (isConfirmed: boolean) => void): void {
    const deadlineAt = this.#clock.now() + timeoutMs;
    this.#waiting.set(token, new Waiting(subject, deadlineAt, end));
    if (this.#timer === null || deadlineAt < this.#dueAt) this.#arm(deadlineAt, timeoutMs);
  }

  /** False when nobody waits for it (any more). */
  answered(token: string, isConfirmed: boolean): boolean {
    const waiting = this.#waiting.get(token);
    if (waiting === undefined) return false;
    this.#waiting.delete(token);
    waiting.end(isConfirmed);
    return true;
  }

  /** Nothing may be sent there. */
  denied(subject: string): void {
    for (const [token, waiting] of this.#waiting) if (waiting.subject === subject) this.answered(token, false);
  }

  /** No answer will come to any of them. */
  endAll(): void {
    this.#timer?.cancel();
    this.#timer = null;
    // Who is told may ask for something new: that is not for this round.
    const tokens = Array.from(this.#waiting.keys());
    for (const token of tokens) this.answered(token, false);
  }

  #arm(dueAt: number, inMs: number): void {
    this.#timer?.cancel();
    this.#dueAt = dueAt;
    this.#timer = this.#clock.after(inMs, this.#look);
  }

  #expire(): void {
    this.#timer = null;
    const now = this.#clock.now();
    let next = Number.POSITIVE_INFINITY;
    for (const [token, { deadlineAt }] of this.#waiting) {
      if (deadlineAt <= now) this.answered(token, false);
      else next = Math.min(next, deadlineAt);
    }
    if (next !== Number.POSITIVE_INFINITY && (this.#timer === null || next < this.#dueAt)) this.#arm(next, next - now);
  }
}

class Waiting {
  readonly subject: string;
  readonly deadlineAt: number;
  readonly end: (isConfirmed: boolean) => void;

  constructor(subject: string, deadlineAt: number, end: (isConfirmed: boolean) => void) {
    this.subject = subject;
    this.deadlineAt = deadlineAt;
    this.end = end;
  }
}
