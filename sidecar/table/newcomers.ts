/**
 * Agents that show a credential here for the first time. What they may call is pushed to a sidecar only once the registry
 * knows that they call through it; so the first call of such an agent waits a moment, instead of being told that there is
 * nobody. It never waits for a registry that does not answer: what is here then has to do.
 */
import type { Clock } from '../../base/clock.ts';

export interface NewcomerParts {
  readonly clock: Clock;
  /** Tells the registry; false when it knows already. */
  meet(agent: string): boolean;
  isConnected(): boolean;
  /** Whether everything up to a sequence is in force here. */
  isThrough(seq: number): boolean;
}

/** The registry is to answer within this. */
const ANSWER_MS = 1_500;
/** What is pushed is here some milliseconds after the answer; the answer may name a sequence that is not pushed here. */
const PUSHED_MS = 250;
const LOOK_MS = 10;

export class Newcomers {
  readonly #parts: NewcomerParts;
  readonly #arriving = new Map<string, Promise<void>>();
  #told = new Set<(seq: number) => void>();
  /** Told when there are some, and when there are none any more. */
  onChange: (arriving: ReadonlyMap<string, Promise<void>> | null) => void = () => {};

  constructor(parts: NewcomerParts) {
    this.#parts = parts;
  }

  met(agent: string): void {
    if (!this.#parts.meet(agent) || !this.#parts.isConnected() || this.#arriving.has(agent)) return;
    this.#arriving.set(agent, this.#arrive(agent));
    if (this.#arriving.size === 1) this.onChange(this.#arriving);
  }

  /** The registry has taken a hello that names all who had been met. */
  helloTaken(seq: number): void {
    const told = this.#told;
    this.#told = new Set();
    for (const tell of told) tell(seq);
  }

  async #arrive(agent: string): Promise<void> {
    const { clock } = this.#parts;
    const seq = await this.#answered();
    const until = clock.now() + PUSHED_MS;
    while (seq !== null && !this.#parts.isThrough(seq) && clock.now() < until) await pause(clock, LOOK_MS);
    this.#arriving.delete(agent);
    if (this.#arriving.size === 0) this.onChange(null);
  }

  /** Null = it does not answer. */
  #answered(): Promise<number | null> {
    return new Promise((done) => {
      const tell = (seq: number): void => {
        timer.cancel();
        done(seq);
      };
      const timer = this.#parts.clock.after(ANSWER_MS, () => {
        this.#told.delete(tell);
        done(null);
      });
      this.#told.add(tell);
    });
  }
}

function pause(clock: Clock, ms: number): Promise<void> {
  return new Promise((done) => void clock.after(ms, done));
}
