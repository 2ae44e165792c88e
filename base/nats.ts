/**
 * The bus. Decides what may be sent and turns what a network does into values: not connected, no answer, refused; looks at
 * subjects and headers before a byte leaves. How a connection is kept is the link's (nats-link.ts), JetStream's forms are those of
 * streams.ts, what is said over the bus is its users'.
 */
import { type BusMessage, type BusReply, GIVEN_OUT, type Headers, messageBytes, STATUS, type WireHeaders } from './bus-message.ts';
import type { Clock } from './clock.ts';
import { Confirms } from './confirms.ts';
import type { ConsumerFacts, ConsumerSpec } from './consumer.ts';
import { type ConsumerReady, Consumers } from './consumers.ts';
import { type Stored, type StreamFacts, type StreamSpec, versionWarning } from './jetstream.ts';
import {
  type Awaited,
  Box,
  type BoxEvents,
  type BusSubscription,
  type Handler,
  Heard,
  Pending,
  type ReplyBox,
  Subscribed,
} from './nats-listeners.ts';
import { INBOX, Link, type LinkOptions } from './nats-link.ts';
import type { Asking, Failed } from './jetstream-api.ts';
import type { Appended } from './pub-ack.ts';
import { type AppendOptions, type StreamReady, Streams } from './streams.ts';
import { apiSubjectProblem, headerProblem, patternProblem, subjectProblem, TOLD } from './subject.ts';
import { unguessable } from './unguessable.ts';

export interface BusOptions extends LinkOptions {
  /** Told when a connection is there, is lost, or something about it is wrong. */
  readonly notice?: (level: 'info' | 'warn' | 'error', words: string) => void;
}

export interface BusState {
  readonly connected: boolean;
  /** How often a connection was made after the first one. */
  readonly reconnects: number;
  /** Why there is no connection; '' when there is one. */
  readonly why: string;
}

/** A request whose answers are all told, until it is closed. */
export interface Conversation {
  /** Nothing is told any more; harmless when it is over already. */
  close(): void;
}

/** Answers a request; null = with nothing. */
type Responder = (message: BusMessage) => Uint8Array | null | Promise<Uint8Array | null>;
const READ_TIMEOUT_MS = 5_000;
const BROKEN_HANDLER = 'Nats-Service-Error';
const EMPTY = new Uint8Array(0);
const MAX_QUOTED_CHARS = 120;
const SERVICE_NAME = /^[A-Za-z0-9_-]{1,128}$/;
/** 110 bits. */
const ADDRESS_LETTERS = 22;

export class Bus {
  readonly #options: BusOptions;
  readonly #clock: Clock;
  readonly #link: Link;
  readonly #streams: Streams;
  readonly #consumers: Consumers;
  readonly #boxes = new Set<Box>();
  readonly #subscribed = new Set<Subscribed>();
  readonly #listeners = new Set<(state: BusState) => void>();
  readonly #pending = new Map<string, Awaited>();
  readonly #confirms: Confirms;
  /** Where answers come to, with the point at its end; another one for each connection. */
  #inbox = '';
  #nextToken = 0;
  #connections = 0;
  #why = 'not connected yet';
  #warnedOf = '';
  #isClosed = false;

  /** Returns at once and connects in the background, for as long as it takes. Throws when the options make no sense. */
  static open(options: BusOptions): Bus {
    return new Bus(options);
  }

  private constructor(options: BusOptions) {
    const prefix = options.inboxPrefix ?? INBOX;
    const problem = prefix.startsWith(INBOX) ? subjectProblem(prefix) : `does not begin with ${INBOX}`;
    if (problem !== null) throw new Error(`the inbox prefix ${quoted(prefix)} ${problem}`);
    this.#options = options;
    this.#clock = options.clock;
    this.#confirms = new Confirms(options.clock);
    const asking: Asking = {
      ask: (subject, data, timeoutMs, headers) => this.request(subject, data, timeoutMs, headers),
      askApi: (verb, data, timeoutMs) => this.#askApi(`$JS.API.${verb}`, data, timeoutMs),
    };
    this.#streams = new Streams(asking);
    this.#consumers = new Consumers(asking);
    this.#link = new Link(options, {
      up: () => this.#up(),
      down: (why) => this.#down(why),
      failed: (why) => {
        // once for a run of equal failures
        if (why !== this.#why) this.#lost(why, `no connection to NATS: ${why}`);
      },
      denied: (subject) => this.#denied(subject),
      said: (words) => this.#notice('warn', `NATS says: ${words}`),
    });
  }

  get connected(): boolean {
    return this.#link.connected;
  }

  get state(): BusState {
    return { connected: this.connected, reconnects: Math.max(0, this.#connections - 1), why: this.connected ? '' : this.#why };
  }

  /** Such as `2.14.0`, of the latest connection; '' before the first one. */
  get serverVersion(): string {
    return this.#link.server.version;
  }

  /** What is wrong with running that version in production; null = nothing. */
  get serverWarning(): string | null {
    return versionWarning(this.serverVersion);
  }

  /** Most bytes of one message, headers included. */
  get maxPayload(): number {
    return this.#link.server.maxPayload;
  }

  /** Called at each change from now on. When `connected` is told, the subscriptions stand already. */
  onState(listener: (state: BusState) => void): { close(): void } {
    this.#listeners.add(listener);
    return { close: () => void this.#listeners.delete(listener) };
  }

  /** True as soon as there is a connection, false when there was none within that time. */
  async ready(timeoutMs: number): Promise<boolean> {
    if (this.connected || this.#isClosed) return this.connected;
    return await new Promise((resolve) => {
      const end = (): void => {
        timer.cancel();
        listener.close();
        resolve(this.connected);
      };
      const timer = this.#clock.after(timeoutMs, end);
      const listener = this.onState((state) => {
        if (state.connected || this.#isClosed) end();
      });
    });
  }

  /** True when it was handed to the connection, which is no promise that it arrives; false when it was not. */
  publish(subject: string, data: Uint8Array, headers?: Headers): boolean {
    const why = this.#unfit(subject, subjectProblem(subject), data, headers);
    if (why === null) return this.#link.publish(subject, data, '', headers);
    this.#notice('error', `not published: ${why}`);
    return false;
  }

  /** The handler is called for each message, over all connections to come; what it throws is reported and goes no further. */
  subscribe(pattern: string, handler: Handler, options: { readonly queue?: string; readonly pushed?: true } = {}): BusSubscription {
    const queue = options.queue ?? '';
    const subscribed = new Subscribed(pattern, queue, handler, options.pushed === true, (it) => {
      this.#subscribed.delete(it);
      it.inForce?.close();
      it.inForce = null;
    });
    const problem = patternProblem(pattern) ?? (queue === '' ? null : subjectProblem(queue));
    if (problem !== null) {
      subscribed.refused = `cannot subscribe to ${quoted(pattern)}: it ${problem}`;
      this.#notice('error', subscribed.refused);
    } else if (!this.#isClosed) {
      this.#subscribed.add(subscribed);
      if (this.connected) this.#subscribe(subscribed);
    }
    return subscribed;
  }

  /** Answers requests. Only inboxes are answered, else a requester could have us publish where it must not. */
  serve(subject: string, respond: Responder, options: { readonly queue?: string } = {}): BusSubscription {
    const handler = async (message: BusMessage): Promise<void> => {
      const { reply } = message;
      if (!reply.startsWith(INBOX)) {
        this.#notice(
          'warn',
          `a request on ${quoted(message.subject)} wants its answer at ${quoted(reply)}, which is no inbox: left unanswered`,
        );
        return;
      }
      try {
        const answer = await respond(message);
        if (answer !== null) this.publish(reply, answer);
      } catch (error) {
        this.publish(reply, EMPTY, { [BROKEN_HANDLER]: 'the one who answers broke', 'Nats-Service-Error-Code': '500' });
        throw error;
      }
    };
    return this.subscribe(subject, handler, options);
  }

  /**
   * @param who one token: whoever is asked answers at an address with this name in it. It tells nothing of where other answers come to,
   *   and he needs permission for such addresses alone. Were he let to answer whatever he is sent, he could say anything anywhere: he
   *   sends himself a question, and names the subject that he wants as the place for the answer. null = the server, or who may answer all
   */
  async request(subject: string, data: Uint8Array, timeoutMs: number, headers?: Headers, who: string | null = null): Promise<BusReply> {
    const why = this.#unfit(subject, subjectProblem(subject), data, headers);
    if (why !== null) return { kind: 'refused', why };
    return who === null ? await this.#ask(subject, data, timeoutMs, headers) : await this.#askOf(who, subject, data, timeoutMs, headers);
  }

  /**
   * A request for whoever reads more than one answer, or the headers of a failure, or must be able to stop. Each answer is told as it
   * is; anything else ends it. It has no time limit of its own. Given a reply instead, nothing was sent.
   */
  converse(
    subject: string,
    data: Uint8Array,
    headers: Headers | undefined,
    hear: (reply: BusReply) => void,
  ): Conversation | Exclude<BusReply, { kind: 'ok' }> {
    const why = this.#unfit(subject, subjectProblem(subject), data, headers);
    if (why !== null) return { kind: 'refused', why };
    const token = (this.#nextToken++).toString(36);
    if (!this.#link.publish(subject, data, this.#inbox + token, headers)) return { kind: 'unreachable', sent: false };
    this.#pending.set(token, new Heard(subject, hear));
    return { close: () => void this.#pending.delete(token) };
  }

  /** What a service of the micro convention says of itself (`$SRV.INFO`); the first instance answers. */
  async serviceInfo(name: string, timeoutMs: number): Promise<BusReply> {
    if (!SERVICE_NAME.test(name)) return { kind: 'refused', why: `${quoted(name)} is not the name of a service` };
    return await this.#ask(`$SRV.INFO.${name}`, EMPTY, timeoutMs, undefined);
  }

  /** Stores a message in the stream that takes its subject. Not repeated by itself. */
  async append(subject: string, data: Uint8Array, options: AppendOptions = {}): Promise<Appended> {
    return await this.#streams.append(subject, data, options);
  }

  /** The last message of a subject, null when there is none. In the form that permissions can confine; any replica may answer. */
  async last(stream: string, subject: string, timeoutMs: number = READ_TIMEOUT_MS): Promise<Stored | null | Failed> {
    return await this.#streams.last(stream, subject, timeoutMs);
  }

  /** As `last`, and it is certain to be the last one: the stream's leader answers. */
  async lastAtLeader(stream: string, subject: string, timeoutMs: number = READ_TIMEOUT_MS): Promise<Stored | null | Failed> {
    return await this.#streams.lastAtLeader(stream, subject, timeoutMs);
  }

  /**
   * The last message of every subject that matches, by sequence, as the stream's leader has them; no consumer is made. What is
   * stored meanwhile may be missing: `lastSeq` is from before, so that a writer who expects it finds out.
   */
  async readAll(stream: string, pattern: string): Promise<{ readonly messages: Stored[]; readonly lastSeq: number } | Failed> {
    return await this.#streams.readAll(stream, pattern);
  }

  /** Subjects of the stream that match the pattern, and how many messages each has. */
  async subjects(stream: string, pattern: string): Promise<Map<string, number> | Failed> {
    return await this.#streams.subjects(stream, pattern);
  }

  /** What the stream still has of one subject, oldest first, from `fromSeq`, at most `limit` messages; as its leader has them. */
  async history(stream: string, subject: string, limit: number = 1_000, fromSeq: number = 1): Promise<Stored[] | Failed> {
    return await this.#streams.history(stream, subject, limit, fromSeq);
  }

  /** Null when there is no such stream. */
  async stream(name: string): Promise<StreamFacts | null | Failed> {
    return await this.#streams.facts(name);
  }

  /** Makes the stream, or makes it so, and reads it back: `ignored` names every field that is not as asked. */
  async ensureStream(spec: StreamSpec): Promise<StreamReady> {
    const ready = await this.#streams.ensure(spec);
    if ('ignored' in ready) {
      for (const each of ready.ignored)
        this.#notice('warn', `nats-server ${this.serverVersion} did not take over, for the stream ${spec.name}, ${each}`);
    }
    return ready;
  }

  /** Null when there is no such stream, or no such message in it any more: then nothing was deleted. */
  async deleteMessage(stream: string, seq: number): Promise<true | null | Failed> {
    return await this.#streams.deleteMessage(stream, seq);
  }

  /** Makes the durable pull consumer, or makes it so, and reads it back. What is not as asked is a failure, in words. */
  async ensureConsumer(spec: ConsumerSpec): Promise<ConsumerReady> {
    return await this.#consumers.ensure(spec);
  }

  /** True when it was there. What it delivered and was not acknowledged is left to whoever takes its place. */
  async deleteConsumer(stream: string, name: string): Promise<boolean | Failed> {
    return await this.#consumers.delete(stream, name);
  }

  /** Null when there is no such consumer, or no such stream. */
  async consumer(stream: string, name: string): Promise<ConsumerFacts | null | Failed> {
    return await this.#consumers.facts(stream, name);
  }

  /** All of a stream, by name. */
  async consumers(stream: string): Promise<readonly ConsumerFacts[] | Failed> {
    return await this.#consumers.list(stream);
  }

  // ---- for the fast path (stream-publisher.ts, puller.ts): nothing is looked at that its users have looked at before

  /** Answers come to an address of its own, another one at each connection. */
  openBox(events: BoxEvents): ReplyBox {
    const box = new Box(events, (it) => {
      this.#boxes.delete(it);
      it.leave();
    });
    if (!this.#isClosed) {
      this.#boxes.add(box);
      if (this.connected) this.#fill(box);
    }
    return box;
  }

  /**
   * Leaves at the end of this turn, with all else that was posted in it. Subject, headers and size must be fit to be sent, and
   * `data` must not change until then. False when there is no connection, or none that reads.
   */
  post(subject: string, data: Uint8Array, reply: string = '', headers: WireHeaders | null = null): boolean {
    return this.#link.post(subject, data, reply, headers);
  }

  /** Posts, and gives whether an answer came, whatever it is. */
  confirm(subject: string, data: Uint8Array, timeoutMs: number): Promise<boolean> {
    const token = (this.#nextToken++).toString(36);
    return new Promise((resolve) => {
      if (!this.#link.post(subject, data, this.#inbox + token, null)) {
        resolve(false);
        return;
      }
      this.#confirms.add(token, subject, timeoutMs, resolve);
    });
  }

  /** True once the server has read all that was sent; false when it did not say so in that time. */
  async answers(timeoutMs: number): Promise<boolean> {
    if (!this.connected) return false;
    return await new Promise((resolve) => {
      const timer = this.#clock.after(timeoutMs, () => resolve(false));
      const end = (did: boolean): void => {
        timer.cancel();
        resolve(did);
      };
      this.#link.alive().then(
        () => end(true),
        () => end(false),
      );
    });
  }

  /** For whoever is called back and breaks: it is reported and goes no further. */
  broke(who: string, error: unknown): void {
    this.#notice('error', `${who} threw: ${error instanceof Error ? (error.stack ?? error.message) : String(error)}`);
  }

  /** Ends everything: what was published gets a moment to leave, whoever awaits an answer is told, nothing is dialled again. */
  async close(): Promise<void> {
    if (!this.#isClosed) {
      this.#isClosed = true;
      this.#why = 'closed';
      for (const each of this.#subscribed) each.close();
      if (!this.connected) this.#tell();
    }
    await this.#link.close();
  }

  // ---- the connection comes and goes

  #up(): void {
    const { version, hasJetStream } = this.#link.server;
    this.#connections++;
    this.#inbox = `${this.#link.newInbox()}.`;
    this.#link.subscribe(
      `${this.#inbox}*`,
      '',
      (message) => this.#answered(message),
      () => this.#mayNotReceive(),
    );
    for (const each of this.#subscribed) this.#subscribe(each);
    for (const each of this.#boxes) this.#fill(each);
    this.#notice('info', `connected to NATS ${version}`);
    if (this.#warnedOf !== version) {
      this.#warnedOf = version;
      if (this.serverWarning !== null) this.#notice('warn', this.serverWarning);
      if (!hasJetStream) this.#notice('warn', 'this nats-server runs without JetStream: nothing can be stored');
    }
    this.#tell();
  }

  #down(why: string): void {
    for (const each of this.#subscribed) each.inForce = null;
    this.#confirms.endAll();
    const pending = [...this.#pending.values()];
    this.#pending.clear();
    for (const each of pending) each.end({ kind: 'unreachable', sent: true });
    for (const each of this.#boxes) {
      each.inForce = null;
      each.address = '';
      each.events.down(why);
    }
    this.#lost(why, `the connection to NATS is lost: ${why}`);
  }

  #lost(why: string, words: string): void {
    if (!this.#isClosed) {
      this.#why = why;
      this.#notice('warn', words);
    }
    this.#tell();
  }

  #tell(): void {
    const state = this.state;
    for (const listener of this.#listeners) {
      try {
        listener(state);
      } catch (error) {
        this.broke('who listens to the state of the bus', error);
      }
    }
  }

  #denied(subject: string): void {
    const why = `no permission to publish to ${quoted(subject)}`;
    this.#notice('warn', why);
    this.#confirms.denied(subject);
    for (const [token, pending] of this.#pending) {
      if (pending.subject !== subject) continue;
      this.#pending.delete(token);
      pending.end({ kind: 'refused', why });
    }
    for (const each of this.#boxes) each.events.denied(subject);
  }

  // ---- subscriptions

  #subscribe(subscribed: Subscribed): void {
    subscribed.refused = null;
    const { pattern, queue } = subscribed;
    const onRefused = (): void => {
      subscribed.refused = `no permission to subscribe to ${quoted(pattern)}`;
      this.#notice('warn', subscribed.refused);
    };
    subscribed.inForce = this.#link.subscribe(pattern, queue, (message) => this.#deliver(subscribed, message), onRefused);
  }

  #fill(box: Box): void {
    const address = `${this.#link.newInbox()}.`;
    const onMessage = (message: BusMessage): void => {
      try {
        box.events.message(message);
      } catch (error) {
        this.broke('who takes answers', error);
      }
    };
    const onRefused = (): void => {
      this.#notice('error', `no permission to receive answers at ${quoted(`${address}*`)}`);
      box.events.denied('');
    };
    box.inForce = this.#link.subscribe(`${address}*`, '', onMessage, onRefused);
    box.address = address;
    box.events.up();
  }

  #deliver(subscribed: Subscribed, message: BusMessage): void {
    if (!subscribed.isForPushed && (message.times?.(GIVEN_OUT) ?? 0) > 0) {
      this.#notice('warn', `somebody has had an answer of the server sent to ${quoted(message.subject)}: it is passed over`);
      return;
    }
    const broke = (thrown: unknown): void => this.broke(`the handler of ${quoted(subscribed.pattern)}`, thrown);
    try {
      const handling = subscribed.handler(message);
      if (handling instanceof Promise) handling.catch(broke);
    } catch (thrown) {
      broke(thrown);
    }
  }

  // ---- requests: one subscription for all answers, one entry for each that is awaited

  #ask(
    subject: string,
    data: Uint8Array,
    timeoutMs: number,
    headers: Headers | undefined,
    token: string = (this.#nextToken++).toString(36),
    address: string = this.#inbox + token,
  ): Promise<BusReply> {
    return new Promise((resolve) => {
      if (!this.#link.publish(subject, data, address, headers)) {
        resolve({ kind: 'unreachable', sent: false });
        return;
      }
      const timer = this.#clock.after(timeoutMs, () => {
        if (this.#pending.delete(token)) resolve({ kind: 'timeout' });
      });
      this.#pending.set(token, new Pending(subject, timer, resolve));
    });
  }

  /** The answer comes to an address of its own. */
  async #askOf(who: string, subject: string, data: Uint8Array, timeoutMs: number, headers: Headers | undefined): Promise<BusReply> {
    if (!SERVICE_NAME.test(who)) return { kind: 'refused', why: `${quoted(who)} is not the name of somebody who answers` };
    if (!this.connected) return { kind: 'unreachable', sent: false };
    const address = `${this.#options.inboxPrefix ?? INBOX}.${TOLD}.${who}.${unguessable(ADDRESS_LETTERS)}`;
    const heard = (message: BusMessage): void => this.#end(address, message);
    const listening = this.#link.subscribe(address, '', heard, () => this.#mayNotReceive(address));
    const reply = await this.#ask(subject, data, timeoutMs, headers, address, address);
    listening?.close();
    return reply;
  }

  async #askApi(subject: string, data: Uint8Array, timeoutMs: number): Promise<BusReply> {
    const why = this.#unfit(subject, apiSubjectProblem(subject), data, undefined);
    return why === null ? await this.#ask(subject, data, timeoutMs, undefined) : { kind: 'refused', why };
  }

  #answered(message: BusMessage): void {
    this.#end(message.subject.slice(this.#inbox.length), message);
  }

  #end(token: string, message: BusMessage): void {
    const pending = this.#pending.get(token);
    if (pending === undefined) {
      this.#confirms.answered(token, !isNobody(message)); // or too late
      return;
    }
    if (pending instanceof Heard && !isNobody(message)) {
      pending.end({ kind: 'ok', message });
      return;
    }
    this.#pending.delete(token);
    const broken = message.header(BROKEN_HANDLER);
    if (isNobody(message)) pending.end({ kind: 'no_responder' });
    else pending.end(broken === null ? { kind: 'ok', message } : { kind: 'refused', why: broken });
  }

  #mayNotReceive(address: string = `${this.#inbox}*`): void {
    this.#notice('error', `no permission to receive answers at ${quoted(address)}`);
  }

  /** Why it cannot be sent, whatever the connection does; null = it can. */
  #unfit(subject: string, problem: string | null, data: Uint8Array, headers: Headers | undefined): string | null {
    if (problem !== null) return `the subject ${quoted(subject)} ${problem}`;
    if (headers !== undefined) {
      for (const name in headers) {
        const wrong = headerProblem(name, headers[name] as string);
        if (wrong !== null) return wrong;
      }
    }
    const bytes = messageBytes(data, headers);
    return bytes > this.maxPayload ? `a message of ${bytes} bytes for ${quoted(subject)}: the server takes ${this.maxPayload}` : null;
  }

  #notice(level: 'info' | 'warn' | 'error', words: string): void {
    this.#options.notice?.(level, words);
  }
}

/** The server says so itself. */
export function isNobody(message: BusMessage): boolean {
  return message.data.length === 0 && message.header(STATUS) === '503';
}

/** Of unknown origin and perhaps long: as it may stand in a message for people. */
function quoted(text: string): string {
  return JSON.stringify(text.length > MAX_QUOTED_CHARS ? `${text.slice(0, MAX_QUOTED_CHARS)}…` : text);
}
