/**
 * What is told of a task, and what is kept of it: final states with their result go to the sender's inbox and are durable before
 * anything is acknowledged. The others go there too, without anybody's waiting for it, and to the sender's home at once, where the
 * task may be watched. What needs a person goes to the kept messages. A stream that does
 * not answer is asked again for as long as a fail-over takes: the message id makes the repeat harmless.
 */
import type { Clock } from '../../base/clock.ts';
import type { Logger } from '../../base/log.ts';
import type { Appended } from '../../base/pub-ack.ts';
import type { Code } from '../../proto/wire/codes.ts';
import type { Envelope } from '../../proto/wire/envelope.ts';
import type { KeptEntry, TaskEvent, TaskState } from '../../proto/wire/messages.ts';
import { MESSAGE_WIRE } from '../../proto/wire/envelope.ts';
import { INBOX_STREAM, KEPT_STREAM, type Subjects } from '../../proto/wire/subjects.ts';
import { NO_BODY } from '../call/reply.ts';
import type { DeliverSettings } from './settings.ts';

/** What is needed of a `StreamPublisher`. */
export interface Appender {
  send(subject: string, data: Uint8Array, options: { msgId: string; stream: string }, then: (outcome: Appended) => void): boolean;
}

/** What is needed of the bus. */
export interface Post {
  readonly maxPayload: number;
  publish(subject: string, data: Uint8Array): boolean;
}

/** What an event says beside what the envelope does. */
export interface Told {
  readonly state: TaskState;
  readonly code: Code;
  readonly cause: string;
  readonly detail: string;
  readonly by: string;
  readonly version: string;
  readonly attempts: number;
  readonly receivedAtMs: number;
  readonly status: number;
  readonly contentType: string;
  readonly replay: boolean;
}

/** `too_large`: the server would not take it, whoever asks. */
export type Stored = 'stored' | 'too_large' | 'not_stored';

const NEWLINE = 0x0a;
const NOT_WAITED_FOR = (): void => undefined;
/** Headers of a stored message, at most. */
const HEADER_BYTES = 512;
const FIRST_PAUSE_MS = 250;
const LONGEST_PAUSE_MS = 4_000;
const MAX_DETAIL_CHARS = 1_024;

export class Results {
  readonly #post: Post;
  readonly #appender: Appender;
  readonly #subjects: Subjects;
  readonly #clock: Clock;
  readonly #settings: DeliverSettings;
  readonly #log: Logger;

  constructor(post: Post, appender: Appender, subjects: Subjects, clock: Clock, settings: DeliverSettings, log: Logger) {
    this.#post = post;
    this.#appender = appender;
    this.#subjects = subjects;
    this.#clock = clock;
    this.#settings = settings;
    this.#log = log;
  }

  /**
   * A final state with its result. Where nobody wants it, the home is told, and that is all.
   * @param seq of the message in the queue: a task that is driven again may end in the same way again, and that is no repeat
   */
  final(envelope: Envelope, told: Told, body: Buffer, seq: number): Stored | Promise<Stored> {
    if (envelope.reply_to === null) {
      this.#tellHome(envelope, this.#event(envelope, told));
      return 'stored';
    }
    const data = joined(this.#event(envelope, told), body);
    if (data.length + HEADER_BYTES > this.#post.maxPayload) return 'too_large';
    const subject = this.#subjects.inbox(envelope.home, envelope.reply_to);
    const id = told.state === 'done' ? `${envelope.task_id}.done` : `${envelope.task_id}.${told.state}.${seq}`;
    return this.#store(subject, data, id, INBOX_STREAM);
  }

  /** A state that is not final: may be lost with this process or its connection, and is never waited for. */
  note(envelope: Envelope, told: Told): void {
    const event = this.#event(envelope, told);
    this.#tellHome(envelope, event);
    if (envelope.reply_to === null) return;
    const subject = this.#subjects.inbox(envelope.home, envelope.reply_to);
    const msgId = `${envelope.task_id}.${told.state}.${told.attempts}.${told.by}`;
    this.#appender.send(subject, Buffer.from(`${event}\n`, 'utf8'), { msgId, stream: INBOX_STREAM }, NOT_WAITED_FOR);
  }

  #tellHome(envelope: Envelope, event: string): void {
    this.#post.publish(this.#subjects.note(envelope.home), Buffer.from(event, 'utf8'));
  }

  /** @param message as it stood in the queue */
  async keep(entry: KeptEntry, message: Buffer, id: string): Promise<boolean> {
    const head = JSON.stringify(entry);
    const whole = joined(head, message);
    // The message was as large as can be: what people need most is kept all the same.
    const data = whole.length + HEADER_BYTES > this.#post.maxPayload ? joined(head, NO_BODY) : whole;
    return (await this.#store(this.#subjects.kept(entry.kind, entry.task_id), data, id, KEPT_STREAM)) === 'stored';
  }

  #event(envelope: Envelope, told: Told): string {
    const event: TaskEvent = {
      wire: MESSAGE_WIRE,
      kind: 'state',
      task_id: envelope.task_id,
      power_id: envelope.power_id,
      message_type: envelope.message_type,
      capability: envelope.capability,
      state: told.state,
      code: told.code,
      cause: told.cause,
      detail: told.detail.length > MAX_DETAIL_CHARS ? `${told.detail.slice(0, MAX_DETAIL_CHARS - 1)}…` : told.detail,
      by: told.by,
      version: told.version,
      attempts: told.attempts,
      at_ms: Math.round(this.#clock.wallMs()),
      received_at_ms: Math.round(told.receivedAtMs),
      status: told.status,
      content_type: told.contentType,
      replay: told.replay,
      trace_id: envelope.traceparent.slice(3, 35),
      traceparent: envelope.traceparent,
    };
    return JSON.stringify(event);
  }

  #store(subject: string, data: Buffer, msgId: string, stream: string): Promise<Stored> {
    return new Promise((resolve) => {
      const until = this.#clock.now() + this.#settings.storeForMs;
      new Storing(this.#appender, this.#clock, this.#log, subject, data, { msgId, stream }, until, resolve).attempt();
    });
  }
}

class Storing {
  readonly #appender: Appender;
  readonly #clock: Clock;
  readonly #log: Logger;
  readonly #subject: string;
  readonly #data: Buffer;
  readonly #options: { readonly msgId: string; readonly stream: string };
  readonly #until: number;
  readonly #resolve: (stored: Stored) => void;
  #pauseMs = FIRST_PAUSE_MS;

  constructor(
    appender: Appender,
    clock: Clock,
    log: Logger,
    subject: string,
    data: Buffer,
    options: { readonly msgId: string; readonly stream: string },
    until: number,
    resolve: (stored: Stored) => void,
  ) {
    this.#appender = appender;
    this.#clock = clock;
    this.#log = log;
    this.#subject = subject;
    this.#data = data;
    this.#options = options;
    this.#until = until;
    this.#resolve = resolve;
  }

  attempt(): void {
    if (!this.#appender.send(this.#subject, this.#data, this.#options, (outcome) => this.#heard(outcome)))
      this.#later('it cannot be sent now');
  }

  #heard(outcome: Appended): void {
    if ('seq' in outcome) this.#resolve('stored');
    else this.#later('failed' in outcome ? outcome.failed : 'refused');
  }

  #later(why: string): void {
    if (this.#clock.now() + this.#pauseMs > this.#until) {
      this.#log.warn({ subject: this.#subject, why }, 'not stored; the message will come again');
      this.#resolve('not_stored');
      return;
    }
    this.#clock.after(this.#pauseMs, () => this.attempt());
    this.#pauseMs = Math.min(2 * this.#pauseMs, LONGEST_PAUSE_MS);
  }
}

/** A line of JSON, its newline, bytes. */
function joined(head: string, body: Buffer): Buffer {
  const headBytes = Buffer.byteLength(head);
  const all = Buffer.allocUnsafe(headBytes + 1 + body.length);
  all.write(head, 0, 'utf8');
  all[headBytes] = NEWLINE;
  body.copy(all, headBytes + 1);
  return all;
}
