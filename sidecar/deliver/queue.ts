/**
 * The task queue as delivery uses it: pull from a consumer, and say of a message what became of it. Behind it stands NATS;
 * a test puts a script there.
 */
import type { Clock } from '../../base/clock.ts';
import type { Bus } from '../../base/nats.ts';
import { ackConfirmed, type Delivery, extend, nak, Puller } from '../../base/puller.ts';
import { TASK_STREAM } from '../../proto/wire/subjects.ts';

export interface Pull {
  /** Asked for, and not come yet. */
  readonly outstanding: number;
  request(count: number): void;
  close(): void;
}

export interface PullEvents {
  message(delivery: Delivery): void;
  /** A request ran out: so many are no longer outstanding. */
  returned(count: number): void;
  trouble(why: string): void;
}

export interface QueueFacts {
  /** The server's time. */
  readonly nowMs: number;
  /** What is not extended for so long is delivered to another one. */
  readonly ackWaitMs: number;
}

export interface Queue {
  pull(consumer: string, events: PullEvents): Pull;
  /** It is done with, for good: true once the server has said so. */
  end(delivery: Delivery): Promise<boolean>;
  /** It comes again after that time, to anybody. */
  giveBack(delivery: Delivery, delayMs: number): boolean;
  /** Its wait begins anew: true once the server has said so. */
  extend(delivery: Delivery): Promise<boolean>;
  /** True once the server has answered: what comes behind that was sent afterwards. */
  answers(): Promise<boolean>;
  /** Asked just after a delivery; null = it did not say. */
  facts(consumer: string): Promise<QueueFacts | null>;
}

const CONFIRM_MS = 4_000;
const NANOS_PER_MS = 1_000_000;

export class NatsQueue implements Queue {
  readonly #bus: Bus;
  readonly #clock: Clock;

  constructor(bus: Bus, clock: Clock) {
    this.#bus = bus;
    this.#clock = clock;
  }

  pull(consumer: string, events: PullEvents): Pull {
    return new Puller(this.#bus, this.#clock, {
      stream: TASK_STREAM,
      consumer,
      onMessage: (delivery) => events.message(delivery),
      onReturned: (count) => events.returned(count),
      onTrouble: (why) => events.trouble(why),
    });
  }

  end(delivery: Delivery): Promise<boolean> {
    return ackConfirmed(this.#bus, delivery, CONFIRM_MS);
  }

  giveBack(delivery: Delivery, delayMs: number): boolean {
    return nak(this.#bus, delivery, delayMs);
  }

  extend(delivery: Delivery): Promise<boolean> {
    return extend(this.#bus, delivery, CONFIRM_MS);
  }

  answers(): Promise<boolean> {
    return this.#bus.answers(CONFIRM_MS);
  }

  async facts(consumer: string): Promise<QueueFacts | null> {
    const facts = await this.#bus.consumer(TASK_STREAM, consumer);
    if (facts === null || 'failed' in facts || facts.deliveredAtMs === 0) return null;
    return { nowMs: facts.deliveredAtMs, ackWaitMs: facts.ackWaitNs / NANOS_PER_MS };
  }
}
