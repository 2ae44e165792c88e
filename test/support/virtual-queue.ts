/**
 * The task queue in memory, on the test's clock: durable consumers with an ack wait, pull requests that wait, deliveries that are
 * counted, naks with a delay. What NATS does, as far as delivery can see it.
 */
import type { Clock } from '../../base/clock.ts';
import type { Delivery } from '../../base/puller.ts';
import type { Pull, PullEvents, Queue, QueueFacts } from '../../sidecar/deliver/queue.ts';

interface Message {
  readonly subject: string;
  readonly data: Buffer;
  readonly seq: number;
  readonly storedAtMs: number;
  deliveries: number;
  /** `clock.now()` from which it can be delivered (again); Infinity = it is with somebody, until the wait is over. */
  dueAt: number;
  /** Number of the delivery that counts. */
  token: number;
  isNew: boolean;
}

class VirtualPull implements Pull {
  outstanding = 0;
  isClosed = false;
  readonly events: PullEvents;
  readonly #queue: VirtualQueue;
  constructor(queue: VirtualQueue, events: PullEvents) {
    this.#queue = queue;
    this.events = events;
  }
  request(count: number): void {
    this.outstanding += count;
    this.#queue.asked += count;
    this.#queue.pump();
  }
  close(): void {
    this.isClosed = true;
    this.outstanding = 0;
  }
}

export class VirtualQueue implements Queue {
  readonly clock: Clock;
  readonly ackWaitMs: number;
  /** What happened, in order: `ack 3`, `nak 3 1000`, `extend 3`. */
  readonly log: string[] = [];
  /** Messages asked for so far. */
  asked = 0;
  /** The server answers nothing, though messages still come. */
  isMute = false;
  /** The server's clock is so far ahead of the sidecar's wall clock. */
  aheadMs = 0;
  readonly #consumers = new Map<string, Message[]>();
  readonly #pulls = new Map<string, VirtualPull[]>();
  /** So many of the next deliveries go astray: the server has sent them, and nobody gets them. */
  astray = 0;
  readonly #delivered = new Map<string, number>();
  #seq = 0;
  #token = 0;

  constructor(clock: Clock, ackWaitMs = 20_000) {
    this.clock = clock;
    this.ackWaitMs = ackWaitMs;
  }

  /** Stores a message for a consumer. */
  put(consumer: string, subject: string, data: Buffer): number {
    const seq = ++this.#seq;
    const now = this.clock.now();
    this.#of(consumer).push({ subject, data, seq, storedAtMs: this.#serverMs(), deliveries: 0, dueAt: now, token: 0, isNew: true });
    this.pump();
    return seq;
  }

  /** Messages that are not acknowledged. */
  left(consumer?: string): number {
    if (consumer !== undefined) return this.#of(consumer).length;
    let sum = 0;
    for (const messages of this.#consumers.values()) sum += messages.length;
    return sum;
  }

  waiting(consumer: string): number {
    let sum = 0;
    for (const pull of this.#pulls.get(consumer) ?? []) sum += pull.outstanding;
    return sum;
  }

  pull(consumer: string, events: PullEvents): Pull {
    const pull = new VirtualPull(this, events);
    const pulls = this.#pulls.get(consumer) ?? [];
    pulls.push(pull);
    this.#pulls.set(consumer, pulls);
    return pull;
  }

  end(delivery: Delivery): Promise<boolean> {
    if (this.isMute) return Promise.resolve(false);
    this.log.push(`ack ${delivery.streamSeq}`);
    for (const messages of this.#consumers.values()) {
      const place = messages.findIndex(({ seq }) => seq === delivery.streamSeq);
      if (place >= 0) messages.splice(place, 1);
    }
    return Promise.resolve(true);
  }

  giveBack(delivery: Delivery, delayMs: number): boolean {
    if (this.isMute) return false;
    this.log.push(`nak ${delivery.streamSeq} ${delayMs}`);
    const message = this.#find(delivery);
    if (message === null) return true;
    message.token = 0;
    message.dueAt = this.clock.now() + delayMs;
    this.clock.after(delayMs, () => this.pump());
    return true;
  }

  extend(delivery: Delivery): Promise<boolean> {
    if (this.isMute) return Promise.resolve(false);
    this.log.push(`extend ${delivery.streamSeq}`);
    const message = this.#find(delivery);
    if (message !== null) this.#wait(message);
    return Promise.resolve(true);
  }

  answers(): Promise<boolean> {
    return Promise.resolve(!this.isMute);
  }

  facts(): Promise<QueueFacts | null> {
    return Promise.resolve(this.isMute ? null : { nowMs: this.#serverMs(), ackWaitMs: this.ackWaitMs });
  }

  /** Delivers what can be delivered. */
  pump(): void {
    if (this.isMute) return;
    const now = this.clock.now();
    for (const [consumer, messages] of this.#consumers) {
      for (const pull of this.#pulls.get(consumer) ?? []) {
        while (pull.outstanding > 0 && !pull.isClosed) {
          const message = messages.find(({ dueAt, isNew }) => dueAt <= now && !isNew) ?? messages.find(({ dueAt }) => dueAt <= now);
          if (message === undefined) break;
          pull.outstanding--;
          message.deliveries++;
          message.isNew = false;
          message.token = ++this.#token;
          this.#wait(message);
          const consumerSeq = (this.#delivered.get(consumer) ?? 0) + 1;
          this.#delivered.set(consumer, consumerSeq);
          if (this.astray > 0) {
            this.astray--;
            continue;
          }
          const pending = messages.filter(({ isNew }) => isNew).length;
          const delivery = {
            subject: message.subject,
            data: message.data,
            ackSubject: `ack.${message.token}`,
            streamSeq: message.seq,
            consumerSeq,
            deliveries: message.deliveries,
            storedAtMs: message.storedAtMs,
            pending,
          } as Delivery;
          setImmediate(() => {
            if (pull.isClosed) this.giveBack(delivery, 0);
            else pull.events.message(delivery);
          });
        }
      }
    }
  }

  #serverMs(): number {
    return this.clock.wallMs() + this.aheadMs;
  }

  #wait(message: Message): void {
    const until = this.clock.now() + this.ackWaitMs;
    message.dueAt = until;
    this.clock.after(this.ackWaitMs, () => this.pump());
  }

  #of(consumer: string): Message[] {
    let messages = this.#consumers.get(consumer);
    if (messages === undefined) {
      messages = [];
      this.#consumers.set(consumer, messages);
    }
    return messages;
  }

  #find(delivery: Delivery): Message | null {
    for (const messages of this.#consumers.values()) {
      for (const message of messages) if (message.seq === delivery.streamSeq) return message;
    }
    return null;
  }
}
