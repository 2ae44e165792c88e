/**
 * The bus of a scenario: what `send` and `deliver` need of NATS, in memory, in one process. It stores tasks in the queue, hands what is
 * put into inboxes and among the kept to whoever asked for it, and carries what is said to whoever listens. Nothing is lost here: what
 * a broken connection does is tried on a real server.
 */
import type { BusMessage, BusReply, WireHeaders } from '../../../base/bus-message.ts';
import type { Bus, BusState } from '../../../base/nats.ts';
import type { BoxEvents, ReplyBox } from '../../../base/nats-listeners.ts';

type Handler = (message: BusMessage) => void | Promise<void>;

/** Takes what is stored; its sequence. */
export type Store = (subject: string, data: Buffer) => number;

const CONNECTED: BusState = Object.freeze({ connected: true, reconnects: 0, why: '' });
const MAX_PAYLOAD = 1_048_576;
const MSG_ID = /\r\nNats-Msg-Id: ([^\r\n]*)\r\n/;
const NO_HEADER = (): null => null;

export class LabBus {
  readonly connected = true;
  readonly state = CONNECTED;
  readonly serverVersion = '2.14.0';
  readonly serverWarning = null;
  readonly maxPayload = MAX_PAYLOAD;
  readonly #store: Store;
  readonly #ask: (subject: string, data: Uint8Array) => Uint8Array | null;
  readonly #subscribed = new Set<{ readonly pattern: string; readonly handler: Handler }>();
  readonly #boxes = new Map<string, BoxEvents>();
  /** Ids of what was stored: a repeat is not stored again. */
  readonly #stored = new Map<string, number>();
  #made = 0;

  /** @param ask answers requests to the control plane; null = nobody does */
  constructor(store: Store, ask: (subject: string, data: Uint8Array) => Uint8Array | null) {
    this.#store = store;
    this.#ask = ask;
  }

  /** Under the type that its users know. */
  get bus(): Bus {
    return this as unknown as Bus;
  }

  onState(): { close(): void } {
    return { close: () => undefined };
  }

  openBox(events: BoxEvents): ReplyBox {
    const address = `_INBOX.${++this.#made}.`;
    this.#boxes.set(address, events);
    return { address, close: () => void this.#boxes.delete(address) };
  }

  /** Stores; the stream's answer comes to the box. */
  post(subject: string, data: Uint8Array, reply: string, headers: WireHeaders | null): boolean {
    const seq = this.#once(subject, Buffer.from(data), headers);
    const events = this.#boxes.get(reply.slice(0, reply.lastIndexOf('.') + 1));
    const answer = Buffer.from(`{"stream":"LAB","seq":${seq}}`);
    if (events !== undefined) queueMicrotask(() => events.message({ subject: reply, data: answer, reply: '', header: NO_HEADER }));
    return true;
  }

  publish(subject: string, data: Uint8Array): boolean {
    this.#route(subject, Buffer.from(data), '');
    return true;
  }

  subscribe(pattern: string, handler: Handler): { readonly refused: null; close(): void } {
    const one = { pattern, handler };
    this.#subscribed.add(one);
    return { refused: null, close: () => void this.#subscribed.delete(one) };
  }

  request(subject: string, data: Uint8Array): Promise<BusReply> {
    const answer = this.#ask(subject, data);
    if (answer === null) return Promise.resolve({ kind: 'no_responder' });
    return Promise.resolve({ kind: 'ok', message: { subject, data: Buffer.from(answer), reply: '', header: NO_HEADER } });
  }

  #once(subject: string, data: Buffer, headers: WireHeaders | null): number {
    const id = headers === null ? undefined : MSG_ID.exec(headers.bytes.toString('latin1'))?.[1];
    if (id === undefined) return this.#store(subject, data);
    // Of each stream its own.
    const key = `${subject.split('.', 3)[2]} ${id}`;
    const known = this.#stored.get(key);
    if (known !== undefined) return known;
    const seq = this.#store(subject, data);
    this.#stored.set(key, seq);
    return seq;
  }

  #route(subject: string, data: Buffer, reply: string): void {
    for (const { pattern, handler } of this.#subscribed)
      if (matches(pattern, subject)) queueMicrotask(() => void handler({ subject, data, reply, header: NO_HEADER }));
  }
}

function matches(pattern: string, subject: string): boolean {
  if (pattern === subject) return true;
  const wanted = pattern.split('.');
  const tokens = subject.split('.');
  return wanted.length === tokens.length && wanted.every((token, i) => token === '*' || token === tokens[i]);
}
