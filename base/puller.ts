/**
 * Takes messages from a durable consumer, as many as were asked for and not one more: ack wait starts when the server delivers,
 * so nothing may be fetched ahead. Pull requests are made by hand, their answers come to one address, and no promise or timer is
 * made for a message. What a request did not bring (it ran out, the connection broke, the server moved the consumer) is asked for
 * again, or given back when the owner wants to spread it anew. Who works on what, and when to ask, is left to the owner.
 */
import { type BusMessage, GIVEN_OUT, sequence, STATUS } from './bus-message.ts';
import { atTurnEnd, type Clock, type Timer } from './clock.ts';
import { digitsIn } from './digits.ts';
import type { Bus } from './nats.ts';
import type { ReplyBox } from './nats-listeners.ts';

const NAK_NOW = Buffer.from('-NAK', 'latin1');
const TERM = Buffer.from('+TERM', 'latin1');
const WORKING = Buffer.from('+WPI', 'latin1');
const ACK = Buffer.from('+ACK', 'latin1');
const NOTHING = Buffer.alloc(0);
const NANOS_PER_MS = 1_000_000;
/** `$JS.ACK.` stream, consumer, deliveries, two sequences, time, pending; the newer form has domain and account before them. */
const SHORT_TOKENS = 9;
const LONG_TOKENS = 11;
const FIRST_SHORT = 2;
const FIRST_LONG = 4;

export interface PullerOptions {
  readonly stream: string;
  /** Name of the durable, made before by somebody else. */
  readonly consumer: string;
  readonly onMessage: (delivery: Delivery) => void;
  /** Why nothing comes, for people; told once for a run of equal reasons. It goes on trying. */
  readonly onTrouble?: (why: string) => void;
  /** Told what a request that ran out did not bring; given this, it is no longer outstanding. Left out: it is asked for again. */
  readonly onReturned?: (count: number) => void;
  /** How long a request waits at the server. */
  readonly expiresMs?: number;
}

/** A message in hand: it is ours until it is acknowledged, given back or the ack wait is over. */
export class Delivery {
  readonly subject: string;
  /** A view into what was received: copy it if it is to be kept for long. */
  readonly data: Buffer;
  readonly ackSubject: string;
  /** Its position in the stream. */
  readonly streamSeq: number;
  readonly consumerSeq: number;
  /** How often it was delivered, this one included. */
  readonly deliveries: number;
  /** When the server stored it, by the server's clock. */
  readonly storedAtMs: number;
  /** What the consumer had not delivered yet at that moment. */
  readonly pending: number;

  constructor(message: BusMessage, numbers: readonly number[]) {
    this.subject = message.subject;
    this.data = (message.times?.(GIVEN_OUT) ?? 0) === 0 ? message.data : NOTHING;
    this.ackSubject = message.reply;
    this.deliveries = numbers[0] as number;
    this.streamSeq = numbers[1] as number;
    this.consumerSeq = numbers[2] as number;
    this.storedAtMs = numbers[3] as number;
    this.pending = numbers[4] as number;
  }

  /** Null when the message is not one that a consumer delivered. */
  static of(message: BusMessage): Delivery | null {
    const numbers = ackNumbers(message.reply);
    return numbers === null ? null : new Delivery(message, numbers);
  }
}

/** Sent and not confirmed: when it is lost, the message comes again. */
export function ack(bus: Pick<Bus, 'post'>, delivery: Pick<Delivery, 'ackSubject'>): boolean {
  return bus.post(delivery.ackSubject, ACK);
}

/** True once the server has it: the message does not come again. False leaves it in doubt. */
export function ackConfirmed(bus: Bus, delivery: Delivery, timeoutMs: number): Promise<boolean> {
  return bus.confirm(delivery.ackSubject, ACK, timeoutMs);
}

/** It is delivered again, to anybody, after that time; until then it counts as outstanding at the consumer. */
export function nak(bus: Pick<Bus, 'post'>, delivery: Pick<Delivery, 'ackSubject'>, delayMs: number): boolean {
  if (delayMs <= 0) return bus.post(delivery.ackSubject, NAK_NOW);
  return bus.post(delivery.ackSubject, Buffer.from(`-NAK {"delay":${Math.round(delayMs) * NANOS_PER_MS}}`, 'latin1'));
}

/** It never comes again, and a work queue forgets it. */
export function term(bus: Bus, delivery: Delivery): boolean {
  return bus.post(delivery.ackSubject, TERM);
}

/** Starts the ack wait anew, where a second delivery would do no harm. */
export function extendUnconfirmed(bus: Pick<Bus, 'post'>, delivery: Pick<Delivery, 'ackSubject'>): boolean {
  return bus.post(delivery.ackSubject, WORKING);
}

/**
 * Starts the ack wait anew. True once the server has said so, which is no proof that the message is still ours: it says the same
 * when it was delivered to another one meanwhile. False: act as if it was.
 */
export function extend(bus: Bus, delivery: Delivery, timeoutMs: number): Promise<boolean> {
  return bus.confirm(delivery.ackSubject, WORKING, timeoutMs);
}

const EXPIRES_MS = 5_000;
/** For the server's word that a request ran out to arrive. */
const GRACE_MS = 1_000;
/** Before it is tried again after a refusal. */
const HOLD_MS = 1_000;
/** A request for a few more is put off while so many times as many are outstanding: each waits at the server on its own. */
const ENOUGH = 4;

/** After closing, a message that is given back could come to another of our own requests: not many times a millisecond. */
const BOUNCE_MS = 50;

export class Puller {
  readonly #bus: Bus;
  readonly #clock: Clock;
  readonly #options: PullerOptions;
  readonly #subject: string;
  readonly #expiresMs: number;
  readonly #box: ReplyBox;
  /** Requests that may still bring something, by token, oldest first. Which of them a message belongs to the server does not say. */
  readonly #requests = new Map<string, Request>();
  readonly #pull = (): void => this.#pullNow();
  /** Asked for, and not requested yet. */
  #wanted = 0;
  /** Requested, and not come yet. */
  #requested = 0;
  #nextToken = 0;
  #isDue = false;
  #watch: Timer | null = null;
  #hold: Timer | null = null;
  #trouble = '';
  #isClosing = false;

  constructor(bus: Bus, clock: Clock, options: PullerOptions) {
    this.#bus = bus;
    this.#clock = clock;
    this.#options = options;
    this.#expiresMs = options.expiresMs ?? EXPIRES_MS;
    this.#subject = `$JS.API.CONSUMER.MSG.NEXT.${options.stream}.${options.consumer}`;
    this.#box = bus.openBox({
      message: (message) => this.#heard(message),
      up: () => this.#due(),
      down: () => this.#lost(),
      denied: (subject) => {
        if (subject === '' || subject === this.#subject) this.#refused(`no permission to pull from ${options.consumer}`, this.#requested);
      },
    });
  }

  /** Asked for, and not come yet. */
  get outstanding(): number {
    return this.#wanted + this.#requested;
  }

  /** Asks for so many more. */
  request(count: number): void {
    if (this.#isClosing) return;
    this.#wanted += count;
    this.#due();
  }

  /**
   * Nothing is asked for any more. What still arrives for requests that wait at the server is given back to it, so that another
   * one gets it without the ack wait (it counts as delivered once more); messages in hand stay with whoever has them.
   */
  close(): void {
    if (this.#isClosing) return;
    this.#isClosing = true;
    this.#wanted = 0;
    this.#hold?.cancel();
    if (this.#requested === 0) this.#end();
    else this.#watchRequests();
  }

  #due(): void {
    if (this.#isDue || this.#wanted === 0) return;
    this.#isDue = true;
    atTurnEnd(this.#pull);
  }

  #pullNow(): void {
    this.#isDue = false;
    const count = this.#wanted;
    if (count === 0 || this.#isClosing || this.#hold !== null || this.#box.address === '') return;
    if (this.#requested > count * ENOUGH) return; // it is looked at again with each message
    const token = (this.#nextToken++).toString(36);
    const body = Buffer.from(`{"batch":${count},"expires":${this.#expiresMs * NANOS_PER_MS}}`, 'latin1');
    if (!this.#bus.post(this.#subject, body, this.#box.address + token)) {
      this.#holdOn();
      return;
    }
    this.#wanted = 0;
    this.#requested += count;
    this.#requests.set(token, new Request(count, this.#clock.now() + this.#expiresMs + GRACE_MS));
    this.#watchRequests();
  }

  #heard(message: BusMessage): void {
    const delivery = Delivery.of(message);
    if (delivery === null) {
      this.#status(message);
      return;
    }
    // more than was asked for can come after a stall: it is ours all the same
    if (this.#requested > 0) this.#requested--;
    if (this.#requested === 0) this.#requests.clear();
    if (this.#isClosing) {
      nak(this.#bus, delivery, BOUNCE_MS);
      if (this.#requested === 0) atTurnEnd(() => this.#end());
      return;
    }
    this.#trouble = '';
    if (this.#wanted > 0) this.#due();
    this.#options.onMessage(delivery);
  }

  /** The server says how a request ended. */
  #status(message: BusMessage): void {
    const status = message.header(STATUS);
    if (status === null || status === '100') return;
    const token = message.subject.slice(this.#box.address.length);
    const request = this.#requests.get(token);
    if (request === undefined) return;
    this.#requests.delete(token);
    const said = sequence(message.header('Nats-Pending-Messages'));
    const missing = Math.min(said ?? request.count, this.#requested);
    if (status === '404' || status === '408') this.#giveBack(missing);
    else this.#refused(refusalWords(status, message, this.#options.consumer), missing);
  }

  /** @param count how many of the requested ones do not come */
  #giveBack(count: number): void {
    this.#requested -= count;
    if (this.#requested === 0) this.#requests.clear();
    if (this.#isClosing) {
      if (this.#requested === 0) this.#end();
    } else if (this.#options.onReturned === undefined || count === 0) {
      this.#wanted += count;
      this.#due();
    } else {
      // What was put off for the sake of these has nothing to wait for any more.
      this.#due();
      this.#options.onReturned(count);
    }
  }

  #refused(why: string, missing: number): void {
    this.#requested -= missing;
    if (this.#requested === 0) this.#requests.clear();
    if (this.#isClosing) {
      if (this.#requested === 0) this.#end();
      return;
    }
    this.#wanted += missing;
    this.#holdOn();
    if (why === this.#trouble) return;
    this.#trouble = why;
    this.#options.onTrouble?.(why);
  }

  #holdOn(): void {
    this.#hold ??= this.#clock.after(HOLD_MS, () => {
      this.#hold = null;
      this.#due();
    });
  }

  /** With the connection all requests are gone; the server finds nobody at their address and keeps the messages. */
  #lost(): void {
    if (this.#isClosing) {
      this.#end();
      return;
    }
    this.#wanted += this.#requested;
    this.#requested = 0;
    this.#requests.clear();
  }

  #watchRequests(): void {
    if (this.#watch !== null) return;
    for (const request of this.#requests.values()) {
      this.#watch = this.#clock.after(Math.max(0, request.deadlineMs - this.#clock.now()), () => void this.#overdue());
      return;
    }
  }

  /**
   * The server should have said by now that these ran out. It may be that it stands still, and has them before it when it wakes: so
   * they count as lost only once it answers again.
   */
  async #overdue(): Promise<void> {
    const now = this.#clock.now();
    const answered = await this.#bus.answers(this.#expiresMs);
    this.#watch = null;
    if (answered) await this.#dropOverdue(now);
    if (this.#requests.size > 0) this.#watchRequests();
  }

  async #dropOverdue(now: number): Promise<void> {
    let left = 0;
    for (const [token, request] of this.#requests) {
      if (request.deadlineMs <= now) this.#requests.delete(token);
      else left += request.count;
    }
    const missing = this.#requested - left;
    if (missing <= 0) return;
    // a server with JetStream keeps silent for a consumer that is not there
    this.#giveBackUnless(missing, await this.#bus.consumer(this.#options.stream, this.#options.consumer));
  }

  #giveBackUnless(missing: number, found: Awaited<ReturnType<Bus['consumer']>>): void {
    const count = Math.min(missing, this.#requested);
    const { consumer } = this.#options;
    if (found === null) this.#refused(`there is no consumer ${consumer}`, count);
    else if ('failed' in found) this.#refused(`no word of the consumer ${consumer}: ${found.failed}`, count);
    else this.#giveBack(count);
  }

  #end(): void {
    this.#watch?.cancel();
    this.#watch = null;
    this.#requests.clear();
    this.#requested = 0;
    this.#box.close();
  }
}

class Request {
  readonly count: number;
  readonly deadlineMs: number;

  constructor(count: number, deadlineMs: number) {
    this.count = count;
    this.deadlineMs = deadlineMs;
  }
}

function refusalWords(status: string, message: BusMessage, consumer: string): string {
  if (status === '503') return `there is no consumer ${consumer}, or nobody who answers for it`;
  return `the server refuses to deliver from ${consumer}: ${status} ${message.header('Description') ?? ''}`.trimEnd();
}

/** Deliveries, sequence in the stream, sequence of the consumer, milliseconds, pending; null = the subject has another form. */
function ackNumbers(subject: string): readonly number[] | null {
  if (!subject.startsWith(ACK_PREFIX)) return null;
  let points = 0;
  for (let i = 0; i < subject.length; i++) if (subject.charCodeAt(i) === POINT) points++;
  const first = points === SHORT_TOKENS - 1 ? FIRST_SHORT : points >= LONG_TOKENS - 1 ? FIRST_LONG : 0;
  if (first === 0) return null;
  // The numbers begin behind the names of stream and consumer.
  let at = 0;
  for (let passed = 0; passed < first + 2; passed++) at = subject.indexOf('.', at) + 1;
  const numbers = [0, 0, 0, 0, 0];
  for (let i = 0; i < numbers.length; i++) {
    const point = subject.indexOf('.', at);
    const end = point < 0 ? subject.length : point;
    // nanoseconds have more digits than a number holds: those below the millisecond go
    const number = digitsIn(subject, at, i === STAMP ? end - 6 : end);
    if (number < 0) return null;
    numbers[i] = number;
    at = end + 1;
  }
  return numbers;
}

const ACK_PREFIX = '$JS.ACK.';
const POINT = 0x2e;
/** Which of the numbers is a time. */
const STAMP = 3;
