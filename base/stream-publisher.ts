/**
 * Stores many messages a second. A request each would cost a timer, a promise and a write to the socket; here the answers come to
 * one address, one timer watches over all of them (they all have the same time), and what is sent in one turn leaves together.
 * Nothing is repeated: whether a repeat is safe only the caller knows. Messages leave in the order in which they were given.
 */
import { type BusMessage, type Headers, STATUS, WireHeaders } from './bus-message.ts';
import type { Clock, Timer } from './clock.ts';
import type { Bus } from './nats.ts';
import type { ReplyBox } from './nats-listeners.ts';
import { type Appended, readPubAck } from './pub-ack.ts';
import { headerProblem, subjectProblem } from './subject.ts';

export interface StreamPublisherOptions {
  /** Time for the stream's answer to each message; then it is in doubt whether it was stored. */
  readonly timeoutMs: number;
  /** Messages whose answers are awaited at a time, at most. */
  readonly maxPending: number;
}

export interface SendOptions {
  /** A second one with the same id within the stream's window is not stored. */
  readonly msgId?: string;
  /** Refuse unless this is the last sequence of this subject; 0 = the subject has no message. */
  readonly expectLastSubjectSeq?: number;
  /** Refuse when another stream would take it. */
  readonly stream?: string;
  readonly headers?: Headers;
}

type Then = (outcome: Appended) => void;

export class StreamPublisher {
  readonly #bus: Bus;
  readonly #clock: Clock;
  readonly #timeoutMs: number;
  readonly #maxPending: number;
  readonly #box: ReplyBox;
  /** By token, oldest first. */
  readonly #pending = new Map<string, Waiting>();
  readonly #expire = (): void => this.#expired();
  #timer: Timer | null = null;
  #nextToken = 0;
  #isClosed = false;

  constructor(bus: Bus, clock: Clock, options: StreamPublisherOptions) {
    this.#bus = bus;
    this.#clock = clock;
    this.#timeoutMs = options.timeoutMs;
    this.#maxPending = options.maxPending;
    this.#box = bus.openBox({
      message: (message) => this.#answered(message),
      up: () => {},
      down: (why) => this.#endAll(`the connection to NATS broke before the answer came: ${why}`),
      denied: (subject) => this.#denied(subject),
    });
  }

  /** Messages whose answers are awaited. */
  get pending(): number {
    return this.#pending.size;
  }

  /**
   * False when it cannot be sent now: no connection, too many that wait, closed; `then` is not called. Else it is called once, later.
   * `data` must not change until then.
   */
  send(subject: string, data: Uint8Array, options: SendOptions | null, then: Then): boolean {
    if (this.#isClosed || this.#box.address === '' || this.#pending.size >= this.#maxPending) return false;
    const headers = options === null ? null : wireHeaders(options);
    const problem = typeof headers === 'string' ? headers : this.#unfit(subject, data, headers);
    if (problem !== null) {
      this.#clock.after(0, () => this.#tell(then, { failed: `storing ${subject.slice(0, 120)}: ${problem}`, ambiguous: false }));
      return true;
    }
    const token = (this.#nextToken++).toString(36);
    if (!this.#bus.post(subject, data, this.#box.address + token, headers as WireHeaders | null)) return false;
    this.#pending.set(token, new Waiting(subject, then, this.#clock.now() + this.#timeoutMs));
    this.#timer ??= this.#clock.after(this.#timeoutMs, this.#expire);
    return true;
  }

  /** Whoever waits is told that it is in doubt; nothing can be sent any more. */
  close(): void {
    if (this.#isClosed) return;
    this.#isClosed = true;
    this.#box.close();
    this.#endAll('closed before the answer came');
  }

  #unfit(subject: string, data: Uint8Array, headers: WireHeaders | null): string | null {
    const problem = subjectProblem(subject);
    if (problem !== null) return `the subject ${problem}`;
    const bytes = data.length + (headers === null ? 0 : headers.bytes.length);
    const most = this.#bus.maxPayload;
    return bytes > most ? `a message of ${bytes} bytes: the server takes ${most}` : null;
  }

  #answered(message: BusMessage): void {
    const token = message.subject.slice(this.#box.address.length);
    const waiting = this.#pending.get(token);
    if (waiting === undefined) return; // too late
    this.#pending.delete(token);
    const { data } = message;
    if (data.length === 0 && message.header(STATUS) === '503')
      this.#tell(waiting.then, { failed: `storing ${waiting.subject}: no stream takes it`, ambiguous: false });
    else this.#tell(waiting.then, readPubAck(data, waiting.subject));
  }

  #expired(): void {
    this.#timer = null;
    const now = this.#clock.now();
    for (const [token, waiting] of this.#pending) {
      if (waiting.deadlineMs > now) {
        this.#timer ??= this.#clock.after(waiting.deadlineMs - now, this.#expire);
        return;
      }
      this.#pending.delete(token);
      this.#tell(waiting.then, { failed: `storing ${waiting.subject}: no answer in time`, ambiguous: true });
    }
  }

  #denied(subject: string): void {
    for (const [token, waiting] of this.#pending) {
      if (subject !== '' && waiting.subject !== subject) continue;
      this.#pending.delete(token);
      const failed = `storing ${waiting.subject}: no permission to ${subject === '' ? 'receive the answer' : 'publish there'}`;
      this.#tell(waiting.then, { failed, ambiguous: subject === '' });
    }
  }

  #endAll(why: string): void {
    const all = [...this.#pending.values()];
    this.#pending.clear();
    this.#timer?.cancel();
    this.#timer = null;
    for (const { subject, then } of all) this.#tell(then, { failed: `storing ${subject}: ${why}`, ambiguous: true });
  }

  #tell(then: Then, outcome: Appended): void {
    try {
      then(outcome);
    } catch (error) {
      this.#bus.broke('who stored a message', error);
    }
  }
}

class Waiting {
  readonly subject: string;
  readonly then: Then;
  readonly deadlineMs: number;

  constructor(subject: string, then: Then, deadlineMs: number) {
    this.subject = subject;
    this.then = then;
    this.deadlineMs = deadlineMs;
  }
}

/** Null when there are none; text = what is wrong. */
function wireHeaders(options: SendOptions): WireHeaders | string | null {
  let lines = '';
  if (options.msgId !== undefined) {
    const problem = headerProblem('Nats-Msg-Id', options.msgId);
    if (problem !== null) return problem;
    lines += `Nats-Msg-Id: ${options.msgId}\r\n`;
  }
  if (options.expectLastSubjectSeq !== undefined) lines += `Nats-Expected-Last-Subject-Sequence: ${options.expectLastSubjectSeq}\r\n`;
  if (options.stream !== undefined) {
    const problem = headerProblem('Nats-Expected-Stream', options.stream);
    if (problem !== null) return problem;
    lines += `Nats-Expected-Stream: ${options.stream}\r\n`;
  }
  const { headers } = options;
  if (headers !== undefined) {
    for (const name in headers) {
      const value = headers[name] as string;
      const problem = headerProblem(name, value);
      if (problem !== null) return problem;
      lines += `${name}: ${value}\r\n`;
    }
  }
  return lines === '' ? null : new WireHeaders(lines);
}
