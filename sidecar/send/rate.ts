/**
 * How many messages an agent may submit: a bucket of tokens each, filled at its rate up to its burst. Decided before anything
 * else is looked at, so that an agent in a loop costs no more than this. Counted in this sidecar: an agent that submits
 * through two has two buckets. Rates can be changed while it runs; a bucket then keeps what is in it.
 *
 * Which rate: what was set at this sidecar itself until it stops (an emergency), else the operators' quota, else what the
 * settings give the agent, else what they give everybody.
 */
import type { RateSettings } from '../messages-config.ts';
import { Bucket } from '../quotas/bucket.ts';
import type { Tally } from '../quotas/quota-set.ts';
import type { Quotas } from '../quotas/quotas.ts';
import type { Rate } from './door.ts';

/** Buckets that are full say nothing, so they are swept when there are more than this many. */
const SWEEP_ABOVE = 20_000;

/** An agent's bucket, with what its rate was found from. */
class Metered {
  readonly bucket: Bucket;
  revision: number;
  tally: Tally | null;
  constructor(bucket: Bucket, revision: number, tally: Tally | null) {
    this.bucket = bucket;
    this.revision = revision;
    this.tally = tally;
  }
}

export class Rates {
  readonly #metered = new Map<string, Metered>();
  readonly #own = new Map<string, RateSettings>();
  readonly #here = new Map<string, RateSettings>();
  readonly #common: RateSettings;
  readonly #quotas: Quotas | null;
  /** Of what was set here. */
  #set = 0;
  #setAt = 0;
  #sweepAbove = SWEEP_ABOVE;

  constructor(common: RateSettings, own: readonly { readonly agent: string; readonly rate: RateSettings }[], quotas: Quotas | null = null) {
    this.#common = common;
    this.#quotas = quotas;
    for (const { agent, rate } of own) this.#own.set(agent, rate);
  }

  /** Takes one message of an agent; false = it has to wait. */
  take(agent: string, now: number): boolean {
    const { bucket, tally } = this.#meteredOf(agent, now);
    const isTaken = bucket.take(now);
    if (tally !== null) {
      if (isTaken) tally.taken++;
      else tally.refused++;
    }
    return isTaken;
  }

  view(agent: string, now: number): Rate {
    const { bucket } = this.#meteredOf(agent, now);
    const resetMs = bucket.resetMs(now);
    return { limit: bucket.burst, remaining: Math.floor(bucket.tokens), resetMs };
  }

  /** Until the next message of this agent is taken. */
  waitMs(agent: string, now: number): number {
    return this.#meteredOf(agent, now).bucket.waitMs(now);
  }

  of(agent: string): RateSettings {
    return this.#here.get(agent) ?? this.#quotas?.messages(agent)?.value ?? this.#own.get(agent) ?? this.#common;
  }

  /** At this sidecar, from now on until it stops. @param rate null = what holds without it. */
  set(agent: string, rate: RateSettings | null, now: number): void {
    if (rate === null) this.#here.delete(agent);
    else this.#here.set(agent, rate);
    this.#set++;
    this.#setAt = now;
  }

  #meteredOf(agent: string, now: number): Metered {
    const quotas = this.#quotas;
    // Either goes up only, so that together they never say the same of two states.
    const revision = quotas === null ? this.#set : this.#set + quotas.revision;
    const metered = this.#metered.get(agent);
    if (metered?.revision === revision) return metered;
    const { perSec, burst } = this.of(agent);
    const tally = this.#here.has(agent) ? null : (quotas?.messages(agent)?.tally ?? null);
    if (metered !== undefined) {
      metered.bucket.change(perSec, burst, Math.max(this.#setAt, quotas?.since ?? 0));
      metered.revision = revision;
      metered.tally = tally;
      return metered;
    }
    if (this.#metered.size >= this.#sweepAbove) this.#sweep(now);
    const made = new Metered(new Bucket(perSec, burst, now), revision, tally);
    this.#metered.set(agent, made);
    return made;
  }

  #sweep(now: number): void {
    for (const [agent, { bucket }] of this.#metered) if (bucket.isFull(now)) this.#metered.delete(agent);
    // Where all are in use they are not looked through at each new one.
    this.#sweepAbove = Math.max(SWEEP_ABOVE, this.#metered.size * 2);
  }
}
