/** A clock that stands still until it is told to move: for the sandbox, replay and unit tests. */
import type { Clock, Timer } from './clock.ts';

interface Pending {
  at: number;
  seq: number;
  fire: () => void;
  live: boolean;
}

/** Timers that fall due at the same instant fire in the order in which they were set. */
export class VirtualClock implements Clock {
  #now = 0;
  #seq = 0;
  #pending: Pending[] = [];
  readonly #wallStartMs: number;
  readonly #turns: number;

  /** @param turns of the event loop that promises are given between two timers; more where work hands itself on by turns */
  constructor(wallStartMs = 1_700_000_000_000, turns = 2) {
    this.#wallStartMs = wallStartMs;
    this.#turns = turns;
  }

  now(): number {
    return this.#now;
  }

  wallMs(): number {
    return this.#wallStartMs + this.#now;
  }

  after(delayMs: number, fire: () => void): Timer {
    const entry: Pending = { at: this.#now + Math.max(0, delayMs), seq: this.#seq++, fire, live: true };
    this.#pending.splice(this.#placeOf(entry), 0, entry);
    return {
      cancel: () => {
        if (!entry.live) return;
        entry.live = false;
        this.#pending.splice(this.#placeOf(entry), 1);
      },
    };
  }

  /** Where an entry stands, or belongs: by its time, then by when it was set. */
  #placeOf({ at, seq }: Pending): number {
    let low = 0;
    let high = this.#pending.length;
    while (low < high) {
      const mid = (low + high) >>> 1;
      const other = this.#pending[mid] as Pending;
      if (other.at < at || (other.at === at && other.seq < seq)) low = mid + 1;
      else high = mid;
    }
    return low;
  }

  /** When the next timer is due (same scale as `now()`), or null when none is set. */
  nextAt(): number | null {
    return this.#pending[0]?.at ?? null;
  }

  /** Moves to `at` (never back) and fires what is due by then, letting promises settle in between. */
  async advanceTo(at: number): Promise<void> {
    await settle(this.#turns);
    for (let next = this.#pending[0]; next !== undefined && next.at <= at; next = this.#pending[0]) {
      this.#pending.shift();
      next.live = false;
      this.#now = Math.max(this.#now, next.at);
      next.fire();
      await settle(this.#turns);
    }
    this.#now = Math.max(this.#now, at);
  }

  /** As when the process stands still: time passes, and what fell due meanwhile fires with the next `advance`, late, in its order. */
  halt(ms: number): void {
    this.#now += ms;
  }

  async advance(ms: number): Promise<void> {
    await this.advanceTo(this.#now + ms);
  }
}

/** Lets every promise that can settle without a timer do so (setImmediate runs after the microtask queue is dry). */
async function settle(turns: number): Promise<void> {
  for (let turn = 0; turn < turns; turn++) await new Promise<void>((done) => setImmediate(done));
}
