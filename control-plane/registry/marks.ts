/**
 * What has changed and is not handed out yet. An agent whose registration flaps would cost a write and a push each time:
 * after a burst it gets one change a second. Only the *telling* waits. The state itself is always the newest, so the last
 * word wins and none is lost.
 */
import type { Clock } from '../../base/clock.ts';
import type { Refusal } from '../../proto/wire/registry.ts';
import type { Change, OperatorsPart, RegistryEvent } from './change.ts';

/** What one agent's (or sidecar's) change touches. */
export class Touch {
  readonly registrations = new Set<string>();
  readonly capabilities = new Set<string>();
  readonly scopes = new Set<string>();
  readonly forgotten = new Set<string>();

  add(other: Touch): void {
    for (const name of other.registrations) this.registrations.add(name);
    for (const name of other.capabilities) this.capabilities.add(name);
    for (const name of other.scopes) this.scopes.add(name);
    for (const tail of other.forgotten) this.forgotten.add(tail);
  }

  get isEmpty(): boolean {
    return this.registrations.size + this.capabilities.size + this.scopes.size + this.forgotten.size === 0;
  }
}

/** Changes that one agent may make at once, after which it gets one a second. Deploys and restarts need two or three. */
const BURST = 5;
const REFILL_MS = 1_000;

class Bucket {
  tokens = BURST;
  at: number;
  waiting: Touch | null = null;
  constructor(now: number) {
    this.at = now;
  }
  refill(now: number): void {
    this.tokens = Math.min(BURST, this.tokens + (now - this.at) / REFILL_MS);
    this.at = now;
  }
}

export class Marks {
  readonly #clock: Clock;
  readonly #buckets = new Map<string, Bucket>();
  readonly #deferred = new Set<string>();
  #touched = new Touch();
  #operators = new Set<OperatorsPart>();
  #isStranger = false;
  #refused: Refusal[] = [];
  #warned: Refusal[] = [];
  #events: RegistryEvent[] = [];

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** @param key agent id, or `sidecar:<name>` */
  touch(key: string, touch: Touch): void {
    if (touch.isEmpty) return;
    const now = this.#clock.now();
    const bucket = this.#buckets.get(key) ?? new Bucket(now);
    this.#buckets.set(key, bucket);
    bucket.refill(now);
    if (bucket.waiting !== null) bucket.waiting.add(touch);
    else if (bucket.tokens >= 1) {
      bucket.tokens--;
      this.#touched.add(touch);
      return;
    } else {
      bucket.waiting = new Touch();
      bucket.waiting.add(touch);
    }
    this.#deferred.add(key);
  }

  /** What an operator or time itself has changed: never made to wait. */
  atOnce(touch: Touch): void {
    this.#touched.add(touch);
  }

  operators(part: OperatorsPart): void {
    this.#operators.add(part);
  }

  /** Whoever speaks has not said hello. */
  stranger(): void {
    this.#isStranger = true;
  }

  refuse(refusal: Refusal): void {
    this.#refused.push(refusal);
  }

  warn(refusal: Refusal): void {
    this.#warned.push(refusal);
  }

  event(event: Omit<RegistryEvent, 'atMs'>): void {
    this.#events.push({ ...event, atMs: this.#clock.wallMs() });
  }

  /** Lets out what has waited long enough, and forgets who has been quiet. */
  release(): void {
    const now = this.#clock.now();
    for (const [key, bucket] of this.#buckets) {
      bucket.refill(now);
      if (bucket.waiting !== null) {
        if (bucket.tokens < 1) continue;
        bucket.tokens--;
        this.#touched.add(bucket.waiting);
        bucket.waiting = null;
      } else if (bucket.tokens >= BURST) this.#buckets.delete(key);
    }
  }

  /** Nothing has changed after all: it is as it was stored. */
  discard(): void {
    this.#buckets.clear();
    this.take();
  }

  take(): Change {
    const touched = this.#touched;
    const change: Change = {
      isStranger: this.#isStranger,
      refused: this.#refused,
      warned: this.#warned,
      registrations: [...touched.registrations],
      operators: [...this.#operators],
      capabilities: [...touched.capabilities],
      scopes: [...touched.scopes],
      forgotten: [...touched.forgotten],
      deferred: [...this.#deferred],
      events: this.#events,
    };
    this.#touched = new Touch();
    this.#operators = new Set();
    this.#isStranger = false;
    this.#refused = [];
    this.#warned = [];
    this.#events = [];
    this.#deferred.clear();
    return change;
  }
}
