/**
 * The bus: the one file that knows the NATS client. Decides how a connection is kept (for ever, with patience and chance) and
 * what may be sent, and turns what a network does into values: not connected, no answer, refused. What is said over the bus
 * is left to its users.
 *
 * The client's own reconnecting is not used. It dials at once after a loss, all clients in the same instant; it gives up for
 * good when a credential is refused twice; it leaves an open socket behind for each attempt on a server that accepts and does
 * not speak (one that is stopped, or overloaded); and it waits without end for the last bytes to leave towards a dead one. So
 * each connection is a new client that is not to reconnect, dialled here once the server was heard to speak.
 */
import type { ConnectionOptions, Msg, MsgHdrs, NatsConnection, NatsError, Subscription } from 'nats';
import { type BusMessage, type BusReply } from './bus-message.ts';
import type { Clock, Timer } from './clock.ts';
import { type Stored, type StreamFacts, type StreamSpec, versionWarning } from './jetstream.ts';
import type { Random } from './random.ts';
import { DEFAULT_PACE, type ReconnectPace, waitBeforeDial } from './reconnect.ts';
import { Greeting, readServerAddress, type ServerAddress } from './server-address.ts';
import { type Appended, type AppendOptions, type Failed, type Headers, STATUS, type StreamReady, Streams } from './streams.ts';
import { apiSubjectProblem, headerProblem, patternProblem, subjectProblem } from './subject.ts';

export type BusCredential =
  | { readonly user: string; readonly password: string }
  | { readonly token: string }
  /** Text of a `.creds` file. */
  | { readonly creds: string }
  /** Seed of an nkey. */
  | { readonly nkeySeed: string };

export interface BusOptions {
  /** `nats://[user:password@]host[:port]` or `tls://…`, one or more. Only these are dialled. */
  readonly servers: readonly string[];
  /** Shown in the server's list of connections. */
  readonly name: string;
  readonly clock: Clock;
  readonly random: Random;
  /** Told when a connection is there, is lost, or something about it is wrong. */
  readonly notice?: (level: 'info' | 'warn' | 'error', words: string) => void;
  /** Asked at every dial, so that a changed one is used. Wins over what stands in the URL. */
  readonly credential?: () => BusCredential | null;
  /** Files of the TLS set-up; the server's name is always checked. */
  readonly tls?: { readonly caFile?: string; readonly certFile?: string; readonly keyFile?: string };
  /** Subjects of answers begin with it; it must itself begin with `_INBOX`. Each user has its own where permissions tell them apart. */
  readonly inboxPrefix?: string;
  readonly pace?: ReconnectPace;
  /** Time for each of the two steps of an attempt to connect. */
  readonly dialTimeoutMs?: number;
  /** A connection is asked for a sign of life this often; when two were not answered at the third time, it is given up. */
  readonly pingEveryMs?: number;
}

export interface BusState {
  readonly connected: boolean;
  /** How often a connection was made after the first one. */
  readonly reconnects: number;
  /** Why there is no connection; '' when there is one. */
  readonly why: string;
}

export interface BusSubscription {
  /** Why it is not in force: a bad subject, no permission; null = it is, or will be with the connection. */
  readonly refused: string | null;
  close(): void;
}

type Handler = (message: BusMessage) => void | Promise<void>;
/** Answers a request; null = with nothing. */
type Responder = (message: BusMessage) => Uint8Array | null | Promise<Uint8Array | null>;
type Client = typeof import('nats');

const DIAL_TIMEOUT_MS = 5_000;
/** A dead connection is noticed after 20 to 30 s. */
const PING_EVERY_MS = 10_000;
const MAX_PINGS_OUT = 2;
const READ_TIMEOUT_MS = 5_000;
const FLUSH_TIMEOUT_MS = 1_000;
/** What a server allows by default; used until it has said what it allows. */
const USUAL_MAX_PAYLOAD = 1_048_576;
/** So much may be under way without a sign that the server reads it. More would only make our memory grow. */
const MAX_UNCONFIRMED_BYTES = 32 * 1_048_576;
const CONFIRM_EVERY_BYTES = 1_048_576;
const INBOX = '_INBOX';
const BROKEN_HANDLER = 'Nats-Service-Error';
const EMPTY = new Uint8Array(0);

export class Bus {
  readonly #options: BusOptions;
  readonly #clock: Clock;
  readonly #servers: readonly ServerAddress[];
  readonly #inboxPrefix: string;
  readonly #subscribed = new Set<Subscribed>();
  readonly #listeners = new Set<(state: BusState) => void>();
  readonly #pending = new Map<string, Pending>();
  readonly #streams: Streams;
  #client: Client | null = null;
  #connection: NatsConnection | null = null;
  /** Where answers come to, with the point at its end; another one for each connection. */
  #inbox = '';
  #nextToken = 0;
  #connections = 0;
  #why = 'not connected yet';
  #version = '';
  #maxPayload = USUAL_MAX_PAYLOAD;
  #unconfirmedBytes = 0;
  #isConfirming = false;
  #isClosed = false;
  /** Ends the wait that is under way. */
  #wake: () => void = () => {};
  readonly #running: Promise<void>;

  /** Returns at once and connects in the background, for as long as it takes. Throws when the options make no sense. */
  static open(options: BusOptions): Bus {
    return new Bus(options);
  }

  private constructor(options: BusOptions) {
    this.#options = options;
    this.#clock = options.clock;
    if (options.servers.length === 0) throw new Error('the bus needs the address of a server');
    this.#servers = options.servers.map((text) => {
      const address = readServerAddress(text);
      // the text may hold a password
      if (typeof address === 'string') throw new Error(`the address of a NATS server ${address}`);
      return address;
    });
    this.#inboxPrefix = options.inboxPrefix ?? INBOX;
    const problem = this.#inboxPrefix.startsWith(INBOX) ? subjectProblem(this.#inboxPrefix) : `does not begin with ${INBOX}`;
    if (problem !== null) throw new Error(`the inbox prefix ${JSON.stringify(this.#inboxPrefix)} ${problem}`);
    this.#streams = new Streams({
      ask: async (subject, data, timeoutMs, headers) => await this.request(subject, data, timeoutMs, headers),
      askApi: async (verb, data, timeoutMs) => {
        const subject = `$JS.API.${verb}`;
        const why = this.#unfit(subject, apiSubjectProblem(subject), data, undefined);
        return why === null ? await this.#ask(subject, data, timeoutMs, undefined) : { kind: 'refused', why };
      },
    });
    this.#running = this.#keepConnected();
  }

  get connected(): boolean {
    return this.#connection !== null;
  }

  get state(): BusState {
    return { connected: this.connected, reconnects: Math.max(0, this.#connections - 1), why: this.connected ? '' : this.#why };
  }

  /** Such as `2.14.0`, of the latest connection; '' before the first one. */
  get serverVersion(): string {
    return this.#version;
  }

  /** What is wrong with running that version in production; null = nothing. */
  get serverWarning(): string | null {
    return versionWarning(this.#version);
  }

  /** Most bytes of one message, headers included. */
  get maxPayload(): number {
    return this.#maxPayload;
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
    if (why === null) return this.#send(subject, data, '', headers);
    this.#notice('error', `not published: ${why}`);
    return false;
  }

  /** The handler is called for each message, over all connections to come; what it throws is reported and goes no further. */
  subscribe(pattern: string, handler: Handler, options: { readonly queue?: string } = {}): BusSubscription {
    const queue = options.queue ?? '';
    const subscribed = new Subscribed(pattern, queue, handler, (it) => {
      this.#subscribed.delete(it);
      it.client?.unsubscribe();
      it.client = null;
    });
    const problem = patternProblem(pattern) ?? (queue === '' ? null : subjectProblem(queue));
    if (problem !== null) {
      subscribed.refused = `cannot subscribe to ${quoted(pattern)}: it ${problem}`;
      this.#notice('error', subscribed.refused);
    } else if (!this.#isClosed) {
      this.#subscribed.add(subscribed);
      if (this.#connection !== null) this.#subscribeAt(this.#connection, subscribed);
    }
    return subscribed;
  }

  /** Answers requests. Only inboxes are answered, else a requester could have us publish where it must not. */
  serve(subject: string, respond: Responder, options: { readonly queue?: string } = {}): BusSubscription {
    const handler = async (message: BusMessage): Promise<void> => {
      const { reply } = message;
      if (!reply.startsWith(INBOX)) {
        this.#notice('warn', `a request on ${quoted(message.subject)} wants its answer at ${quoted(reply)}, which is no inbox: left unanswered`);
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

  async request(subject: string, data: Uint8Array, timeoutMs: number, headers?: Headers): Promise<BusReply> {
    const why = this.#unfit(subject, subjectProblem(subject), data, headers);
    return why === null ? await this.#ask(subject, data, timeoutMs, headers) : { kind: 'refused', why };
  }

  /** Stores a message in the stream that takes its subject. Not repeated by itself. */
  async append(subject: string, data: Uint8Array, options: AppendOptions = {}): Promise<Appended> {
    return await this.#streams.append(subject, data, options);
  }

  /** The last message of a subject, null when there is none. In the form that permissions can confine; any replica may answer. */
  async last(stream: string, subject: string, timeoutMs: number = READ_TIMEOUT_MS): Promise<Stored | null | Failed> {
    return await this.#streams.last(stream, subject, timeoutMs);
  }

  /**
   * The last message of every subject that matches, by sequence, as the stream's leader has them; no consumer is made. What is
   * stored meanwhile may be missing: `lastSeq` is from before, so that a writer who expects it finds out.
   */
  async readAll(stream: string, pattern: string): Promise<{ readonly messages: Stored[]; readonly lastSeq: number } | Failed> {
    return await this.#streams.readAll(stream, pattern);
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
      for (const each of ready.ignored) this.#notice('warn', `nats-server ${this.#version} did not take over, for the stream ${spec.name}, ${each}`);
    }
    return ready;
  }

  /** Ends everything: what was published gets a moment to leave, whoever awaits an answer is told, nothing is dialled again. */
  async close(): Promise<void> {
    if (!this.#isClosed) {
      this.#isClosed = true;
      this.#why = 'closed';
      for (const each of [...this.#subscribed]) each.close();
      this.#wake();
      const connection = this.#connection;
      if (connection === null) this.#tell();
      else {
        await this.#atMost(FLUSH_TIMEOUT_MS, connection.flush());
        await connection.close();
      }
    }
    await this.#running;
  }

  // ---- keeping a connection

  async #keepConnected(): Promise<void> {
    const pace = this.#options.pace ?? DEFAULT_PACE;
    let failures = 0;
    let hadConnection = false;
    for (let isFirst = true; !this.#isClosed; isFirst = false) {
      await this.#pause(isFirst ? 0 : waitBeforeDial(pace, failures, hadConnection, this.#options.random));
      const connection = await this.#dialAny();
      if (typeof connection === 'string') {
        hadConnection = false;
        failures++;
        if (connection !== this.#why) this.#lost(connection, `no connection to NATS: ${connection}`);
        continue;
      }
      const since = this.#clock.now();
      this.#up(connection);
      const end = await connection.closed();
      this.#down(end instanceof Error && end.message !== '' ? end.message : 'the server hung up');
      hadConnection = true;
      failures = this.#clock.now() - since >= pace.stableMs ? 0 : failures + 1;
    }
  }

  /** Tries each server once, beginning with any of them. Gives the reason when none takes us. */
  async #dialAny(): Promise<NatsConnection | string> {
    const count = this.#servers.length;
    const first = Math.floor(this.#options.random.next() * count);
    let why = 'closed';
    for (let i = 0; i < count && !this.#isClosed; i++) {
      const address = this.#servers[(first + i) % count] as ServerAddress;
      const dialled = await this.#dial(address);
      if (typeof dialled === 'string') why = `${address.host}:${address.port}: ${dialled}`;
      else if (!this.#isClosed) return dialled;
      else await dialled.close();
    }
    return why;
  }

  async #dial(address: ServerAddress): Promise<NatsConnection | string> {
    const timeoutMs = this.#options.dialTimeoutMs ?? DIAL_TIMEOUT_MS;
    const greeting = new Greeting(address, this.#clock, timeoutMs);
    this.#wake = greeting.cancel;
    const heard = await greeting.result;
    if ('failed' in heard) return heard.failed;
    try {
      // only now: a process without a bus does not pay for the client
      this.#client ??= await import('nats');
      const isTls = address.isTls || heard.needsTls;
      return await this.#client.connect({
        servers: [`${address.host.includes(':') ? `[${address.host}]` : address.host}:${address.port}`],
        name: this.#options.name,
        reconnect: false,
        timeout: timeoutMs,
        pingInterval: this.#options.pingEveryMs ?? PING_EVERY_MS,
        maxPingOut: MAX_PINGS_OUT,
        inboxPrefix: this.#inboxPrefix,
        ignoreClusterUpdates: true,
        noAsyncTraces: true,
        // only a name that the client resolves itself is checked against the certificate; else the system's look-up serves better
        resolve: isTls,
        ...(isTls ? { tls: this.#options.tls ?? {} } : {}),
        ...this.#login(this.#client, address),
      });
    } catch (error) {
      return error instanceof Error && error.message !== '' ? error.message : String(error);
    }
  }

  #login(client: Client, address: ServerAddress): ConnectionOptions {
    const credential = this.#options.credential?.() ?? address.login;
    if (credential === null) return {};
    if ('user' in credential) return { user: credential.user, pass: credential.password };
    if ('token' in credential) return { token: credential.token };
    if ('creds' in credential) return { authenticator: client.credsAuthenticator(Buffer.from(credential.creds, 'utf8')) };
    return { authenticator: client.nkeyAuthenticator(Buffer.from(credential.nkeySeed, 'utf8')) };
  }

  async #pause(ms: number): Promise<void> {
    await new Promise<void>((resolve) => {
      const timer = this.#clock.after(ms, resolve);
      this.#wake = () => {
        timer.cancel();
        resolve();
      };
    });
  }

  #up(connection: NatsConnection): void {
    const info = connection.info;
    const isNewVersion = this.#version !== info?.version;
    this.#connection = connection;
    this.#connections++;
    this.#version = info?.version ?? '';
    this.#maxPayload = info?.max_payload ?? USUAL_MAX_PAYLOAD;
    this.#unconfirmedBytes = 0;
    this.#isConfirming = false;
    this.#inbox = `${(this.#client as Client).createInbox(this.#inboxPrefix)}.`;
    void this.#follow(connection);
    this.#attempt(() => {
      connection.subscribe(`${this.#inbox}*`, { callback: (error, message) => this.#answered(error, message) });
    });
    for (const each of this.#subscribed) this.#subscribeAt(connection, each);
    this.#notice('info', `connected to NATS ${this.#version} at ${connection.getServer()}`);
    if (isNewVersion && this.serverWarning !== null) this.#notice('warn', this.serverWarning);
    if (isNewVersion && info?.jetstream !== true) this.#notice('warn', 'this nats-server runs without JetStream: nothing can be stored');
    this.#tell();
  }

  #down(why: string): void {
    this.#connection = null;
    for (const each of this.#subscribed) each.client = null;
    const pending = [...this.#pending.values()];
    this.#pending.clear();
    for (const each of pending) each.end({ kind: 'unreachable', sent: true });
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
    for (const listener of [...this.#listeners]) {
      try {
        listener(state);
      } catch (error) {
        this.#broke('who listens to the state of the bus', error);
      }
    }
  }

  /** What the client says about its connection. */
  async #follow(connection: NatsConnection): Promise<void> {
    try {
      for await (const status of connection.status()) {
        const type: string = status.type;
        if (type === 'staleConnection') await connection.close();
        else if (type === 'error') this.#serverSaid(String(status.data), status.permissionContext);
      }
    } catch (error) {
      this.#broke('the client', error);
    }
  }

  #serverSaid(words: string, context: { operation: string; subject: string } | undefined): void {
    if (context === undefined) this.#notice('warn', `the server says: ${words}`);
    if (context?.operation !== 'publish') return; // a refused subscription is told to its callback
    const why = `no permission to publish to ${quoted(context.subject)}`;
    this.#notice('warn', why);
    for (const [token, pending] of this.#pending) {
      if (pending.subject !== context.subject) continue;
      this.#pending.delete(token);
      pending.end({ kind: 'refused', why });
    }
  }

  // ---- subscriptions

  #subscribeAt(connection: NatsConnection, subscribed: Subscribed): void {
    subscribed.refused = null;
    this.#attempt(() => {
      subscribed.client = connection.subscribe(subscribed.pattern, {
        ...(subscribed.queue === '' ? {} : { queue: subscribed.queue }),
        callback: (error, message) => this.#deliver(subscribed, error, message),
      });
    });
  }

  #deliver(subscribed: Subscribed, error: NatsError | null, message: Msg): void {
    if (error !== null) {
      subscribed.refused = `no permission to subscribe to ${quoted(subscribed.pattern)}`;
      this.#notice('warn', subscribed.refused);
      return;
    }
    const broke = (thrown: unknown): void => this.#broke(`the handler of ${quoted(subscribed.pattern)}`, thrown);
    try {
      const handling = subscribed.handler(new Received(message));
      if (handling instanceof Promise) handling.catch(broke);
    } catch (thrown) {
      broke(thrown);
    }
  }

  // ---- requests: one subscription for all answers, one entry for each that is awaited

  #ask(subject: string, data: Uint8Array, timeoutMs: number, headers: Headers | undefined): Promise<BusReply> {
    const token = (this.#nextToken++).toString(36);
    return new Promise((resolve) => {
      if (!this.#send(subject, data, this.#inbox + token, headers)) {
        resolve({ kind: 'unreachable', sent: false });
        return;
      }
      const timer = this.#clock.after(timeoutMs, () => {
        if (this.#pending.delete(token)) resolve({ kind: 'timeout' });
      });
      this.#pending.set(token, new Pending(subject, timer, resolve));
    });
  }

  #answered(error: NatsError | null, message: Msg): void {
    if (error !== null) {
      this.#notice('error', `no permission to receive answers at ${quoted(`${this.#inbox}*`)}`);
      return;
    }
    const token = message.subject.slice(this.#inbox.length);
    const pending = this.#pending.get(token);
    if (pending === undefined) return; // too late
    this.#pending.delete(token);
    const received = new Received(message);
    const broken = received.header(BROKEN_HANDLER);
    if (received.data.length === 0 && received.header(STATUS) === '503') pending.end({ kind: 'no_responder' });
    else pending.end(broken === null ? { kind: 'ok', message: received } : { kind: 'refused', why: broken });
  }

  // ---- sending

  /** Why it cannot be sent, whatever the connection does; null = it can. */
  #unfit(subject: string, problem: string | null, data: Uint8Array, headers: Headers | undefined): string | null {
    if (problem !== null) return `the subject ${quoted(subject)} ${problem}`;
    let bytes = data.length;
    if (headers !== undefined) {
      bytes += HEADER_FRAME_BYTES;
      for (const [name, value] of Object.entries(headers)) {
        const wrong = headerProblem(name, value);
        if (wrong !== null) return wrong;
        bytes += name.length + Buffer.byteLength(value) + HEADER_LINE_BYTES;
      }
    }
    return bytes > this.#maxPayload ? `a message of ${bytes} bytes for ${quoted(subject)}: the server takes ${this.#maxPayload}` : null;
  }

  /** False when there is no connection, or none that reads. */
  #send(subject: string, data: Uint8Array, reply: string, headers: Headers | undefined): boolean {
    const connection = this.#connection;
    if (connection === null || this.#unconfirmedBytes > MAX_UNCONFIRMED_BYTES) return false;
    const options = headers === undefined ? { reply } : { reply, headers: clientHeaders(this.#client as Client, headers) };
    if (!this.#attempt(() => connection.publish(subject, data, options))) return false;
    this.#unconfirmedBytes += subject.length + data.length;
    if (this.#unconfirmedBytes > CONFIRM_EVERY_BYTES && !this.#isConfirming) this.#confirm(connection);
    return true;
  }

  /** Sends a ping behind all that was sent: its answer says that the server has read so far. */
  #confirm(connection: NatsConnection): void {
    const upTo = this.#unconfirmedBytes;
    this.#isConfirming = true;
    connection.flush().then(
      () => {
        if (connection !== this.#connection) return;
        this.#unconfirmedBytes -= upTo;
        this.#isConfirming = false;
      },
      () => {},
    );
  }

  /** The client throws when its connection ends this very instant, before we were told. */
  #attempt(action: () => void): boolean {
    try {
      action();
      return true;
    } catch {
      return false;
    }
  }

  async #atMost(ms: number, work: Promise<void>): Promise<void> {
    await new Promise<void>((resolve) => {
      const timer = this.#clock.after(ms, resolve);
      const end = (): void => {
        timer.cancel();
        resolve();
      };
      work.then(end, end);
    });
  }

  #broke(who: string, error: unknown): void {
    this.#notice('error', `${who} threw: ${error instanceof Error ? (error.stack ?? error.message) : String(error)}`);
  }

  #notice(level: 'info' | 'warn' | 'error', words: string): void {
    this.#options.notice?.(level, words);
  }
}

/** `NATS/1.0`, its end and the end of all; colon, blank and end of a line. */
const HEADER_FRAME_BYTES = 12;
const HEADER_LINE_BYTES = 4;
const MAX_QUOTED_CHARS = 120;

class Subscribed implements BusSubscription {
  readonly pattern: string;
  readonly queue: string;
  readonly handler: Handler;
  readonly #onClose: (it: Subscribed) => void;
  refused: string | null = null;
  client: Subscription | null = null;

  constructor(pattern: string, queue: string, handler: Handler, onClose: (it: Subscribed) => void) {
    this.pattern = pattern;
    this.queue = queue;
    this.handler = handler;
    this.#onClose = onClose;
  }

  close(): void {
    this.#onClose(this);
  }
}

class Pending {
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

class Received implements BusMessage {
  readonly subject: string;
  readonly data: Buffer;
  readonly reply: string;
  readonly #headers: MsgHdrs | undefined;

  constructor(message: Msg) {
    const bytes = message.data;
    this.subject = message.subject;
    this.data = Buffer.isBuffer(bytes) ? bytes : Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);
    this.reply = message.reply ?? '';
    this.#headers = message.headers;
  }

  header(name: string): string | null {
    const headers = this.#headers;
    if (headers === undefined) return null;
    if (name === STATUS) return headers.code === 0 ? null : String(headers.code);
    return headers.has(name) ? headers.get(name) : null;
  }
}

function clientHeaders(client: Client, headers: Headers): MsgHdrs {
  const made = client.headers();
  for (const [name, value] of Object.entries(headers)) made.set(name, value);
  return made;
}

/** Of unknown origin and perhaps long: as it may stand in a message for people. */
function quoted(text: string): string {
  return JSON.stringify(text.length > MAX_QUOTED_CHARS ? `${text.slice(0, MAX_QUOTED_CHARS)}…` : text);
}
