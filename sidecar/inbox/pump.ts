/**
 * Takes what comes for the agents of this sidecar from its one durable consumer, and knows whether it has seen everything:
 * the consumer counts its deliveries, so one that went elsewhere (to a process that died, into a connection that broke) leaves a
 * hole. From `coverage` on everything of the stream for this home has come through here; what lies before has to be read.
 */
import type { Clock, Timer } from '../../base/clock.ts';
import type { Logger } from '../../base/log.ts';
import type { Bus } from '../../base/nats.ts';
import { type Delivery, Puller } from '../../base/puller.ts';
import { Consumer } from '../../proto/wire/messages.ts';
import { INBOX_STREAM } from '../../proto/wire/subjects.ts';

/** Asked for ahead. What comes is taken at once, so this is for the way there and back only. */
const WINDOW = 256;
const AGAIN_MS = 1_000;
const NANOS_PER_MS = 1_000_000;
/** Told to the server within a third of the time after which it would deliver again. */
const TELLS_PER_WAIT = 3;

export interface PumpParts {
  readonly bus: Bus;
  readonly clock: Clock;
  readonly log: Logger;
  readonly sidecar: string;
  /** @param isNew the next one of the stream; false: out of turn, and not to be put behind the others. */
  take(delivery: Delivery, isNew: boolean): void;
  /** The server gives out so many that are not acknowledged, to this process and to those before it. */
  atMost(unacknowledged: number): void;
  /** Something did not come this way: whoever waits has to look for it. */
  missed(): void;
  /** The stream has been made anew: positions begin anew as well. */
  restarted(): void;
}

export class Pump {
  readonly #parts: PumpParts;
  /** Everything from this position on has come through here; Infinity = not known. */
  coverage = Number.POSITIVE_INFINITY;
  /** Rises whenever `coverage` is not the continuation of what it was. */
  epoch = 0;
  /** How often the server wants to hear of what is in hand. */
  tellEveryMs = 20_000;
  #puller: Puller | null = null;
  /** The consumer's number of the next delivery. */
  #expected = 0;
  /** From this number on no delivery is missing. */
  #runFrom = 0;
  #lastSeq = 0;
  #lastStoredAtMs = 0;
  #timer: Timer | null = null;
  #states: { close(): void } | null = null;
  #isSyncing = false;
  #trouble = '';
  #isClosed = false;

  constructor(parts: PumpParts) {
    this.#parts = parts;
  }

  start(): void {
    let wasConnected = this.#parts.bus.connected;
    this.#states = this.#parts.bus.onState(({ connected }) => {
      // What was on its way when the connection broke comes only when the ack wait is over.
      if (connected && !wasConnected) void this.#sync();
      wasConnected = connected;
    });
    void this.#sync();
  }

  close(): void {
    this.#isClosed = true;
    this.#states?.close();
    this.#timer?.cancel();
    this.#puller?.close();
  }

  /** Where the consumer stands. It may not be there yet: the control plane makes it when it has heard of this sidecar. */
  async #sync(): Promise<void> {
    if (this.#isSyncing || this.#isClosed) return;
    this.#isSyncing = true;
    const { bus, sidecar } = this.#parts;
    const facts = await bus.consumer(INBOX_STREAM, Consumer.inbox(sidecar));
    this.#isSyncing = false;
    if (this.#isClosed) return;
    if (facts === null || 'failed' in facts) {
      this.#later(facts === null ? 'the control plane has not made its consumer yet' : facts.failed);
      return;
    }
    this.#trouble = '';
    this.tellEveryMs = facts.ackWaitNs / NANOS_PER_MS / TELLS_PER_WAIT;
    if (facts.maxAckPending > 0) this.#parts.atMost(facts.maxAckPending);
    const delivered = facts.deliveredConsumerSeq;
    if (delivered + 1 < this.#runFrom) {
      // What came meanwhile has holes of its own.
      this.#later('');
      return;
    }
    if (this.coverage === Number.POSITIVE_INFINITY || delivered + 1 > this.#expected) {
      this.coverage = Math.max(facts.deliveredSeq, this.#lastSeq) + 1;
      this.#expected = Math.max(this.#expected, delivered + 1);
      this.#runFrom = 0;
      this.epoch++;
      this.#parts.missed();
    }
    if (this.#puller === null) this.#open();
  }

  #later(why: string): void {
    if (why !== '' && why !== this.#trouble) this.#parts.log.info({ why }, 'inboxes cannot be read yet; trying again');
    this.#trouble = why;
    this.#timer?.cancel();
    this.#timer = this.#parts.clock.after(AGAIN_MS, () => void this.#sync());
  }

  #open(): void {
    const { bus, clock, log, sidecar } = this.#parts;
    this.#puller = new Puller(bus, clock, {
      stream: INBOX_STREAM,
      consumer: Consumer.inbox(sidecar),
      onMessage: (delivery) => this.#heard(delivery),
      onTrouble: (why) => log.warn({ why }, 'inboxes: nothing comes'),
    });
    this.#puller.request(WINDOW);
  }

  #heard(delivery: Delivery): void {
    const { streamSeq, consumerSeq, storedAtMs } = delivery;
    this.#puller?.request(1);
    const isFirst = delivery.deliveries === 1;
    if (isFirst && streamSeq < this.#lastSeq && storedAtMs > this.#lastStoredAtMs) this.#startAnew();
    if (consumerSeq > this.#expected || (consumerSeq < this.#expected && isFirst && streamSeq >= this.coverage)) {
      this.coverage = Number.POSITIVE_INFINITY;
      this.epoch++;
      this.#runFrom = consumerSeq;
      this.#expected = consumerSeq;
      void this.#sync();
    }
    if (consumerSeq === this.#expected) this.#expected++;
    if (streamSeq > this.#lastSeq) {
      this.#lastSeq = streamSeq;
      this.#lastStoredAtMs = storedAtMs;
    }
    this.#parts.take(delivery, isFirst && streamSeq >= this.coverage);
  }

  /** A message that is younger than one with a higher position: the stream is another one. */
  #startAnew(): void {
    this.#lastSeq = 0;
    this.#lastStoredAtMs = 0;
    this.coverage = Number.POSITIVE_INFINITY;
    this.epoch++;
    this.#expected = 0;
    this.#parts.restarted();
  }
}
