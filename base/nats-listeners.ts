/**
 * Who listens on the connection to NATS, and what each of them keeps: a subscription, an address of one's own, whoever waits for the answer to
 * one question. They outlive a connection; what they mean on the present one is set by `nats.ts`.
 */
import type { BusMessage, BusReply } from './bus-message.ts';
import type { Timer } from './clock.ts';

export interface BusSubscription {
  /** Why it is not in force: a bad subject, no permission; null = it is, or will be with the connection. */
  readonly refused: string | null;
  close(): void;
}

/** An address of one's own for answers, and who is told what arrives there. `down` comes before `up`; neither may throw. */
export interface BoxEvents {
  message(message: BusMessage): void;
  /** There is a connection, and the address is a new one. */
  up(): void;
  /** The connection is gone: no answer to what was asked over it will come. */
  down(why: string): void;
  /** The server does not allow to publish there, or (subject '') to receive anything at the address. */
  denied(subject: string): void;
}

export interface ReplyBox {
  /** With the point at its end: a message to this and one more token arrives. '' = no connection. */
  readonly address: string;
  close(): void;
}

export type Handler = (message: BusMessage) => void | Promise<void>;

export class Subscribed implements BusSubscription {
  readonly pattern: string;
  readonly queue: string;
  readonly handler: Handler;
  /** It hears what a stream publishes again; others hear nothing that the server gives out of one. */
  readonly isForPushed: boolean;
  readonly #onClose: (it: Subscribed) => void;
  refused: string | null = null;
  inForce: { close(): void } | null = null;

  constructor(pattern: string, queue: string, handler: Handler, isForPushed: boolean, onClose: (it: Subscribed) => void) {
    this.isForPushed = isForPushed;
    this.pattern = pattern;
    this.queue = queue;
    this.handler = handler;
    this.#onClose = onClose;
  }

  close(): void {
    this.#onClose(this);
  }
}

export class Box implements ReplyBox {
  readonly events: BoxEvents;
  readonly #onClose: (it: Box) => void;
  address = '';
  inForce: { close(): void } | null = null;

  constructor(events: BoxEvents, onClose: (it: Box) => void) {
    this.events = events;
    this.#onClose = onClose;
  }

  close(): void {
    this.#onClose(this);
  }

  leave(): void {
    this.inForce?.close();
    this.inForce = null;
    this.address = '';
  }
}

/** Whoever waits for answers at a token of the inbox. */
export interface Awaited {
  readonly subject: string;
  end(reply: BusReply): void;
}

/** One side of a conversation. */
export class Heard implements Awaited {
  readonly subject: string;
  readonly end: (reply: BusReply) => void;

  constructor(subject: string, hear: (reply: BusReply) => void) {
    this.subject = subject;
    this.end = hear;
  }
}

export class Pending implements Awaited {
  readonly subject: string;
  readonly #timer: Timer;
  readonly #resolve: (reply: BusReply) => void;

  constructor(subject: string, timer: Timer, resolve: (reply: BusReply) => void) {
    this.subject = subject;
    this.#timer = timer;
    this.#resolve = resolve;
  }

  end(reply: BusReply): void {
    this.#timer.cancel();
    this.#resolve(reply);
  }
}
