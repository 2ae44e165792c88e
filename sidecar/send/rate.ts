/**
 * How many messages an agent may submit: a bucket of tokens each, filled at its rate up to its burst. Decided before anything
 * else is looked at, so that an agent in a loop costs no more than this. Counted in this sidecar: an agent that submits
 * through two has two buckets. Rates can be changed while it runs; a bucket then keeps what is in it.
 */
import type { RateSettings } from '../messages-config.ts';
import type { Rate } from './door.ts';

/** Buckets that are full say nothing, so they are swept when there are more than this many. */
const SWEEP_ABOVE = 20_000;

class Bucket {
  tokens: number;
  at: number;
  constructor(tokens: number, at: number) {
    this.tokens = tokens;
    this.at = at;
  }
}

export class Rates {
  readonly #buckets = new Map<string, Bucket>();
  readonly #own = new Map<string, RateSettings>();
  #common: RateSettings;
  #sweepAbove = SWEEP_ABOVE;

  constructor(common: RateSettings, own: readonly { readonly agent: string; readonly rate: RateSettings }[]) {
    this.#common = common;
    for (const { agent, rate } of own) this.#own.set(agent, rate);
  }

  /** Takes one message of an agent; false = it has to wait. */
  take(agent: string, now: number): boolean {
    const bucket = this.#filled(agent, now);
    if (bucket.tokens < 1) return false;
    bucket.tokens--;
    return true;
  }

  view(agent: string, now: number): Rate {
    const { perSec, burst } = this.of(agent);
    const { tokens } = this.#filled(agent, now);
    return { limit: burst, remaining: Math.floor(tokens), resetMs: ((burst - tokens) / perSec) * 1_000 };
  }

  /** Until the next message of this agent is taken. */
  waitMs(agent: string, now: number): number {
    return Math.max(0, ((1 - this.#filled(agent, now).tokens) / this.of(agent).perSec) * 1_000);
  }

  of(agent: string): RateSettings {
    return (this.#own.size === 0 ? undefined : this.#own.get(agent)) ?? this.#common;
  }

  /** From now on. @param rate null = that of everybody. */
  set(agent: string, rate: RateSettings | null): void {
    if (rate === null) this.#own.delete(agent);
    else this.#own.set(agent, rate);
  }

  #filled(agent: string, now: number): Bucket {
    const { perSec, burst } = this.of(agent);
    let bucket = this.#buckets.get(agent);
    if (bucket === undefined) {
      if (this.#buckets.size >= this.#sweepAbove) this.#sweep(now);
      bucket = new Bucket(burst, now);
      this.#buckets.set(agent, bucket);
      return bucket;
    }
    const filled = bucket.tokens + ((now - bucket.at) * perSec) / 1_000;
    bucket.tokens = filled < burst ? filled : burst;
    bucket.at = now;
    return bucket;
  }

  #sweep(now: number): void {
    for (const [agent, bucket] of this.#buckets) {
      const { perSec, burst } = this.of(agent);
      if (bucket.tokens + ((now - bucket.at) * perSec) / 1_000 >= burst) this.#buckets.delete(agent);
    }
    // Where all are in use they are not looked through at each new one.
    this.#sweepAbove = Math.max(SWEEP_ABOVE, this.#buckets.size * 2);
  }
}
