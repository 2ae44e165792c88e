/**
 * The one file that knows the NATS client: keeps a connection, for ever, with patience and chance. What is sent over it, and
 * what comes of it, is left to the bus (nats.ts).
 *
 * The client's own reconnecting is not used. It dials at once after a loss, all clients in the same instant; it gives up for
 * good when a credential is refused twice; it leaves an open socket behind for each attempt on a server that accepts and does
 * not speak (one that is stopped, or overloaded); and it waits without end for the last bytes to leave towards a dead one. So
 * each connection is a new client that is not to reconnect, dialled here once the server was heard to speak.
 */
import type * as NatsClient from 'nats';
import type { ConnectionOptions, Msg, MsgHdrs, NatsConnection } from 'nats';
import { type BusMessage, type Headers, STATUS, type WireHeaders } from './bus-message.ts';
import { atTurnEnd, type Clock } from './clock.ts';
import type { Command } from './nats-commands.ts';
import { NatsFastLane } from './nats-fast-lane.ts';
import type { Random } from './random.ts';
import { DEFAULT_PACE, type ReconnectPace, waitBeforeDial } from './reconnect.ts';
import { Greeting, readServerAddress, type ServerAddress } from './server-address.ts';

export type BusCredential =
  | { readonly user: string; readonly password: string }
  | { readonly token: string }
  /** Text of a `.creds` file. */
  | { readonly creds: string }
  /** Seed of an nkey. */
  | { readonly nkeySeed: string };

export interface LinkOptions {
  /** `nats://[user:password@]host[:port]` or `tls://…`, one or more. Only these are dialled. */
  readonly servers: readonly string[];
  /** Shown in the server's list of connections. */
  readonly name: string;
  readonly clock: Clock;
  readonly random: Random;
  /** Asked at every dial, so that a changed one is used. Wins over what stands in the URL. */
  readonly credential?: () => BusCredential | null;
  /** Asked at every dial, since a name may lead elsewhere by then: why nothing may be sent there; null = nothing is against it. */
  readonly refusal?: (address: ServerAddress) => Promise<string | null>;
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

/** Who is told what happens. None of them may throw. */
export interface LinkEvents {
  up(): void;
  /** The connection is gone. */
  down(why: string): void;
  /** An attempt came to nothing; told at each one. */
  failed(why: string): void;
  /** The server does not allow to publish there. */
  denied(subject: string): void;
  /** An error that concerns no subject. */
  said(words: string): void;
}

export interface ServerFacts {
  /** Such as `2.14.0`. */
  readonly version: string;
  readonly hasJetStream: boolean;
  /** Most bytes of one message, headers included. */
  readonly maxPayload: number;
}

type Client = Pick<typeof NatsClient, 'connect' | 'createInbox' | 'credsAuthenticator' | 'headers' | 'nkeyAuthenticator'>;

const DIAL_TIMEOUT_MS = 5_000;
/** A dead connection is noticed after 20 to 30 s. */
const PING_EVERY_MS = 10_000;
const MAX_PINGS_OUT = 2;
const FLUSH_TIMEOUT_MS = 1_000;
/** So much may be under way without a sign that the server reads it. More would only make our memory grow. */
const MAX_UNCONFIRMED_BYTES = 32 * 1_048_576;
const CONFIRM_EVERY_BYTES = 1_048_576;
export const INBOX = '_INBOX';
/** What a server allows by default; used until it has said what it allows. */
const UNKNOWN_SERVER: ServerFacts = Object.freeze({ version: '', hasJetStream: true, maxPayload: 1_048_576 });

export class Link {
  /** Of the latest connection. */
  server: ServerFacts = UNKNOWN_SERVER;
  readonly #options: LinkOptions;
  readonly #clock: Clock;
  readonly #events: LinkEvents;
  readonly #servers: readonly ServerAddress[];
  #client: Client | null = null;
  #connection: NatsConnection | null = null;
  /** Past the client, over its connection; null = the client does not let us. */
  #fast: NatsFastLane | null = null;
  #unconfirmedBytes = 0;
  /** To leave at the end of this turn, over the connection that is there now. */
  #posts: Post[] = [];
  readonly #sendPosts = (): void => this.#send();
  #isConfirming = false;
  #isSilent = false;
  #isClosed = false;
  /** Ends the wait that is under way. */
  #wake: () => void = () => {};
  readonly #running: Promise<void>;

  /** Dials from now on. Throws when an address is none. */
  constructor(options: LinkOptions, events: LinkEvents) {
    this.#options = options;
    this.#clock = options.clock;
    this.#events = events;
    if (options.servers.length === 0) throw new Error('the bus needs the address of a server');
    this.#servers = options.servers.map((text) => {
      const address = readServerAddress(text);
      // the text may hold a password
      if (typeof address === 'string') throw new Error(`the address of a NATS server ${address}`);
      return address;
    });
    this.#running = this.#keepConnected();
  }

  get connected(): boolean {
    return this.#connection !== null;
  }

  /** Where answers can come to; nobody can guess it. Only when connected. */
  newInbox(): string {
    return (this.#client as Client).createInbox(this.#options.inboxPrefix ?? INBOX);
  }

  /** False when there is no connection, or none that reads. Subject and headers must be fit to be sent. */
  publish(subject: string, data: Uint8Array, reply: string, headers: Headers | undefined): boolean {
    const connection = this.#connection;
    if (connection === null || this.#unconfirmedBytes > MAX_UNCONFIRMED_BYTES) return false;
    try {
      const made = headers === undefined ? undefined : clientHeaders(this.#client as Client, headers);
      connection.publish(subject, data, made === undefined ? { reply } : { reply, headers: made });
    } catch {
      return false; // it ends this very instant
    }
    this.#unconfirmedBytes += subject.length + data.length;
    if (this.#unconfirmedBytes > CONFIRM_EVERY_BYTES && !this.#isConfirming) this.#confirm(connection);
    return true;
  }

  /**
   * As `publish`, and it leaves at the end of this turn, with all else that was posted in it: the client writes to its socket at
   * each turn of the smallest kind, so that many small messages would cost a write each. `data` must not change until then.
   */
  post(subject: string, data: Uint8Array, reply: string, headers: WireHeaders | null): boolean {
    if (this.#connection === null || this.#unconfirmedBytes > MAX_UNCONFIRMED_BYTES) return false;
    this.#unconfirmedBytes += subject.length + data.length;
    this.#posts.push(new Post(subject, data, reply, headers));
    if (this.#posts.length === 1) atTurnEnd(this.#sendPosts);
    return true;
  }

  /** When the server has read all that was sent before; rejects with the connection's end. */
  async alive(): Promise<void> {
    this.#send();
    await this.#connection?.flush();
  }

  /** For as long as the connection lasts; null when it ends this very instant. `onRefused`: the server does not allow it. */
  subscribe(pattern: string, queue: string, onMessage: (message: BusMessage) => void, onRefused: () => void): { close(): void } | null {
    try {
      const subscription = (this.#connection as NatsConnection).subscribe(pattern, {
        ...(queue === '' ? {} : { queue }),
        callback: (error, message) => {
          if (error === null) onMessage(new Received(message));
          else onRefused();
        },
      });
      const sid = subscription.getID();
      const fast = this.#fast;
      fast?.on(sid, onMessage);
      return {
        close: () => {
          fast?.off(sid);
          subscription.unsubscribe();
        },
      };
    } catch {
      return null;
    }
  }

  /** What was published gets a moment to leave; nothing is dialled again. */
  async close(): Promise<void> {
    if (!this.#isClosed) {
      this.#isClosed = true;
      this.#wake();
      this.#send();
      const connection = this.#connection;
      if (connection !== null) {
        await this.#atMost(FLUSH_TIMEOUT_MS, connection.flush());
        await connection.close();
      }
    }
    await this.#running;
  }

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
        if (!this.#isClosed) this.#events.failed(connection);
        continue;
      }
      const since = this.#clock.now();
      this.#up(connection);
      const end = await connection.closed();
      this.#connection = null;
      this.#posts = [];
      const why = this.#isSilent ? 'no sign of life from the server' : 'the server hung up';
      this.#events.down(end instanceof Error && end.message !== '' ? end.message : why);
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
    const refusal = (await this.#options.refusal?.(address)) ?? null;
    if (refusal !== null) return refusal;
    if (this.#isClosed) return 'closed';
    const greeting = new Greeting(address, this.#clock, timeoutMs);
    this.#wake = greeting.cancel;
    const heard = await greeting.result;
    if ('failed' in heard) return heard.failed;
    try {
      // only now: a process without a bus does not pay for the client
      this.#client ??= clientIn(await import('nats'));
      // who names certificates wants no talk without them, whatever somebody on the way makes of the server's greeting
      const isTls = address.isTls || heard.needsTls || this.#options.tls !== undefined;
      return await this.#client.connect({
        servers: [`${address.host.includes(':') ? `[${address.host}]` : address.host}:${address.port}`],
        name: this.#options.name,
        reconnect: false,
        timeout: timeoutMs,
        pingInterval: this.#options.pingEveryMs ?? PING_EVERY_MS,
        maxPingOut: MAX_PINGS_OUT,
        inboxPrefix: this.#options.inboxPrefix ?? INBOX,
        ignoreClusterUpdates: true,
        noAsyncTraces: true,
        // only a name that the client resolves itself is checked against the certificate; else the system's look-up serves better
        resolve: isTls,
        ...(isTls ? { tls: this.#options.tls ?? {} } : {}),
        ...this.#login(this.#client, address),
      });
    } catch (error) {
      const why = error instanceof Error && error.message !== '' ? error.message : String(error);
      // the client says no more than which option it was
      return why === 'tls' ? 'the server offers no TLS, and nothing is sent without it' : why;
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
    const { info } = connection;
    this.#connection = connection;
    this.#fast = NatsFastLane.of(connection, (error) => {
      this.#events.said(`whoever was given a message threw: ${error instanceof Error ? (error.stack ?? error.message) : String(error)}`);
    });
    this.#unconfirmedBytes = 0;
    this.#isConfirming = false;
    this.#isSilent = false;
    if (info !== undefined) this.server = { version: info.version, hasJetStream: info.jetstream === true, maxPayload: info.max_payload };
    void this.#follow(connection);
    this.#events.up();
  }

  /** What the client says about its connection. */
  async #follow(connection: NatsConnection): Promise<void> {
    try {
      for await (const { type, data, permissionContext } of connection.status()) {
        const kind: string = type;
        if (kind === 'staleConnection') await connection.close();
        // which ping in a row this is without an answer to the one before
        else if (kind === 'pingTimer') this.#isSilent = Number(data) > 1;
        else if (kind !== 'error') continue;
        else if (permissionContext === undefined) this.#events.said(typeof data === 'string' ? data : kind);
        // a refused subscription is told to its callback
        else if (permissionContext.operation === 'publish') this.#events.denied(permissionContext.subject);
      }
    } catch (error) {
      this.#events.said(error instanceof Error ? error.message : String(error));
    }
  }

  #send(): void {
    const connection = this.#connection;
    const posts = this.#posts;
    if (connection === null || posts.length === 0) return;
    this.#posts = [];
    try {
      if (this.#fast !== null) this.#fast.send(posts);
      else for (const post of posts) connection.publish(post.subject, post.data, optionsOf(post));
    } catch {
      return; // it ends this very instant, and whoever awaits answers is told so
    }
    if (this.#unconfirmedBytes > CONFIRM_EVERY_BYTES && !this.#isConfirming) this.#confirm(connection);
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
}

/** A message that waits for the end of the turn. */
class Post implements Command {
  readonly subject: string;
  readonly data: Uint8Array;
  readonly reply: string;
  readonly headers: WireHeaders | null;

  constructor(subject: string, data: Uint8Array, reply: string, headers: WireHeaders | null) {
    this.subject = subject;
    this.data = data;
    this.reply = reply;
    this.headers = headers;
  }
}

/** In the client's form. */
function optionsOf({ reply, headers }: Post): { reply: string; headers?: MsgHdrs } {
  // of the client's headers only `encode` is used when it sends
  return headers === null ? { reply } : { reply, headers: headers as unknown as MsgHdrs };
}

/** Headers are read when somebody asks for one: most messages on the fast path have none, or none that matter. */
class Received implements BusMessage {
  readonly subject: string;
  readonly data: Buffer;
  readonly reply: string;
  readonly #message: Msg;

  constructor(message: Msg) {
    const bytes = message.data;
    this.subject = message.subject;
    this.data = Buffer.isBuffer(bytes) ? bytes : Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);
    this.reply = message.reply ?? '';
    this.#message = message;
  }

  header(name: string): string | null {
    const { headers } = this.#message;
    if (headers === undefined) return null;
    if (name === STATUS) return headers.code === 0 ? null : String(headers.code);
    return headers.has(name) ? headers.get(name) : null;
  }

  times(name: string): number {
    return this.#message.headers?.values(name).length ?? 0;
  }

  names(): readonly string[] {
    return this.#message.headers?.keys() ?? [];
  }
}

/** The package is CommonJS: when this program is bundled, all of it stands under `default` and nowhere else. */
function clientIn(loaded: Client & { readonly default?: Client }): Client {
  return loaded.default ?? loaded;
}

function clientHeaders(client: Client, headers: Headers): MsgHdrs {
  const made = client.headers();
  for (const [name, value] of Object.entries(headers)) made.set(name, value);
  return made;
}
