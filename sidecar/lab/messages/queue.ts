/**
 * The task queue of a scenario: in memory, on its clock, with what JetStream promises delivery: durable consumers, pull requests that
 * stand, a wait for the acknowledgement after which a message comes again, deliveries that are counted, naks with a delay. It decides
 * nothing about messages: that is `deliver`'s, the same code as on a real server.
 */
import type { Clock } from '../../../base/clock.ts';
import type { Delivery } from '../../../base/puller.ts';
import type { Pull, PullEvents, Queue, QueueFacts } from '../../deliver/queue.ts';

class Message {
  readonly subject: string;
  readonly data: Buffer;
  readonly seq: number;
  readonly storedAtMs: number;
  deliveries = 0;
  /** Number of the delivery that counts; 0 = it is with nobody. */
  token = 0;
  /** `clock.now()` until which it is with somebody. */
  waitsUntil = 0;

  constructor(subject: string, data: Buffer, seq: number, storedAtMs: number) {
    this.subject = subject;
    this.data = data;
    this.seq = seq;
    this.storedAtMs = storedAtMs;
  }
}

/** What one consumer gives out. */
class Line {
  readonly name: string;
  /** Never given out, the oldest first, from `first` on. */
  readonly fresh: Message[] = [];
  first = 0;
  /** Given back or not acknowledged in time, and due. */
  readonly again: Message[] = [];
  readonly pulls: LinePull[] = [];
  consumerSeq = 0;
  unacknowledged = 0;

  constructor(name: string) {
    this.name = name;
  }

  get waiting(): number {
    return this.fresh.length - this.first;
  }

  empty(): void {
    this.fresh.length = 0;
    this.first = 0;
    this.again.length = 0;
  }

  next(): Message | null {
    const back = this.again.shift();
    if (back !== undefined) return back;
    const message = this.fresh[this.first];
    if (message === undefined) return null;
    this.first++;
    if (this.first > 1_024 && this.first * 2 > this.fresh.length) {
      this.fresh.splice(0, this.first);
      this.first = 0;
    }
    return message;
  }
}

/** A message that has not ended, and where it lies: another line when the owner of its partition changes, whoever has it then. */
interface Open {
  readonly message: Message;
  line: Line;
}

class LinePull implements Pull {
  outstanding = 0;
  isClosed = false;
  readonly events: PullEvents;
  readonly #line: Line;
  readonly #queue: LabQueue;

  constructor(queue: LabQueue, line: Line, events: PullEvents) {
    this.#queue = queue;
    this.#line = line;
    this.events = events;
  }

  request(count: number): void {
    this.outstanding += count;
    this.#queue.pump(this.#line);
  }

  close(): void {
    this.isClosed = true;
    this.outstanding = 0;
    const at = this.#line.pulls.indexOf(this);
    if (at >= 0) this.#line.pulls.splice(at, 1);
  }
}

export class LabQueue implements Queue {
  readonly #clock: Clock;
  readonly #ackWaitMs: number;
  readonly #lines = new Map<string, Line>();
  /** Not acknowledged, by sequence. */
  readonly #open = new Map<number, Open>();
  #seq = 0;
  #token = 0;
  #isClosed = false;

  constructor(clock: Clock, ackWaitMs: number) {
    this.#clock = clock;
    this.#ackWaitMs = ackWaitMs;
  }

  /** Messages that have not ended. */
  get size(): number {
    return this.#open.size;
  }

  /** Stores a message for a consumer; its sequence. */
  put(consumer: string, subject: string, data: Buffer): number {
    const line = this.#of(consumer);
    const message = new Message(subject, data, ++this.#seq, this.#clock.wallMs());
    line.fresh.push(message);
    this.#open.set(message.seq, { message, line });
    this.pump(line);
    return message.seq;
  }

  pull(consumer: string, events: PullEvents): Pull {
    const line = this.#of(consumer);
    const pull = new LinePull(this, line, events);
    line.pulls.push(pull);
    return pull;
  }

  end(delivery: Delivery): Promise<boolean> {
    this.#open.delete(delivery.streamSeq);
    return Promise.resolve(true);
  }

  giveBack(delivery: Delivery, delayMs: number): boolean {
    const held = this.#open.get(delivery.streamSeq);
    if (held === undefined || held.message.token !== tokenOf(delivery)) return true;
    held.message.token = 0;
    const { line, message } = held;
    if (delayMs <= 0) this.#back(line, message);
    else this.#clock.after(delayMs, () => this.#back(line, message));
    return true;
  }

  extend(delivery: Delivery): Promise<boolean> {
    const held = this.#open.get(delivery.streamSeq);
    if (held !== undefined && held.message.token === tokenOf(delivery)) held.message.waitsUntil = this.#clock.now() + this.#ackWaitMs;
    return Promise.resolve(true);
  }

  answers(): Promise<boolean> {
    return Promise.resolve(true);
  }

  facts(): Promise<QueueFacts | null> {
    return Promise.resolve({ nowMs: this.#clock.wallMs(), ackWaitMs: this.#ackWaitMs });
  }

  /**
   * What lies at one consumer lies at another one from now on, the oldest first: the owner of a partition has changed. As on a real
   * server, where that is a new consumer, it is given everything that has not ended: also what pauses, and what the former owner has.
   */
  move(from: string, to: string): void {
    const old = this.#lines.get(from);
    if (old === undefined) return;
    const line = this.#of(to);
    this.#lines.delete(from);
    for (const open of this.#open.values()) {
      if (open.line !== old) continue;
      open.line = line;
      open.message.token = 0;
      open.message.deliveries = 0;
      line.fresh.push(open.message);
    }
    old.empty();
    this.pump(line);
  }

  close(): void {
    this.#isClosed = true;
  }

  /** Gives out what can be given out. */
  pump(line: Line): void {
    for (let i = 0; i < line.pulls.length; i++) {
      const pull = line.pulls[i] as LinePull;
      while (pull.outstanding > 0) {
        const message = line.next();
        if (message === null) return;
        if (!this.#open.has(message.seq)) continue;
        pull.outstanding--;
        this.#give(line, pull, message);
      }
    }
  }

  #give(line: Line, pull: LinePull, message: Message): void {
    message.deliveries++;
    message.token = ++this.#token;
    message.waitsUntil = this.#clock.now() + this.#ackWaitMs;
    this.#watch(line, message, message.token, this.#ackWaitMs);
    const delivery = {
      subject: message.subject,
      data: message.data,
      ackSubject: `ack.${message.token}`,
      streamSeq: message.seq,
      consumerSeq: ++line.consumerSeq,
      deliveries: message.deliveries,
      storedAtMs: message.storedAtMs,
      pending: line.waiting,
    } as Delivery;
    queueMicrotask(() => {
      if (pull.isClosed) this.giveBack(delivery, 0);
      else pull.events.message(delivery);
    });
  }

  /** It comes again when nobody has said anything of it until then. */
  #watch(line: Line, message: Message, token: number, waitMs: number): void {
    this.#clock.after(waitMs, () => {
      if (this.#isClosed || message.token !== token || !this.#open.has(message.seq)) return;
      const left = message.waitsUntil - this.#clock.now();
      if (left > 0) return this.#watch(line, message, token, left);
      message.token = 0;
      this.#back(line, message);
    });
  }

  /** @param line where it was: when it lies elsewhere by now, it has come again there */
  #back(line: Line, message: Message): void {
    if (this.#isClosed || this.#open.get(message.seq)?.line !== line) return;
    line.again.push(message);
    this.pump(line);
  }

  #of(consumer: string): Line {
    let line = this.#lines.get(consumer);
    if (line === undefined) {
      line = new Line(consumer);
      this.#lines.set(consumer, line);
    }
    return line;
  }
}

function tokenOf(delivery: Delivery): number {
  return Number(delivery.ackSubject.slice(4));
}
