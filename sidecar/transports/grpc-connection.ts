/**
 * One HTTP/2 connection to one address of a gRPC server. Ready once the server's own settings have come: what listens
 * there speaks HTTP/2 then, and says how many calls it takes at once. A connection that is told to go away takes nothing
 * new, finishes what it has and is not pinged any more: a ping that fails then would end calls the server is still serving.
 */
import { type ClientHttp2Session, connect as http2Connect } from 'node:http2';
import { connect as tcpConnect, isIP, type Socket } from 'node:net';
import { connect as tlsConnect, type TLSSocket } from 'node:tls';
import type { Clock, Timer } from '../../base/clock.ts';
import { Code } from '../../proto/wire/codes.ts';
import { bracketed, type GrpcAddress } from './grpc-endpoint.ts';
import { MAX_TRAILER_BYTES } from './grpc-status.ts';

/** How much of one stream the server may send ahead of its reader: what a slow reader costs in memory. */
const STREAM_WINDOW = 262_144;
const CONNECTION_WINDOW = 2_097_152;
const ENHANCE_YOUR_CALM = 11;
/** A call that was given up without a word from the server is followed by a ping, at most so often. */
const DOUBT_MS = 10_000;
const DOUBT_TIMEOUT_MS = 5_000;

export interface ConnectionOwner {
  ready(connection: Connection): void;
  /** It never became ready. */
  failed(connection: Connection, code: Code, words: string): void;
  /** It takes no new calls any more. */
  leaving(connection: Connection): void;
  /** It was ready and is gone. */
  lost(connection: Connection): void;
  /** A call has ended: there may be room for another. */
  room(connection: Connection): void;
  /** The server says that it is pinged too often. */
  tooManyPings(): void;
}

interface ConnectionSettings {
  readonly clock: Clock;
  readonly at: GrpcAddress;
  readonly connectTimeoutMs: number;
  readonly keepaliveMs: number | null;
  readonly keepaliveTimeoutMs: number;
}

export class Connection {
  readonly address: string;
  /** Calls on it. */
  active = 0;
  state: 'connecting' | 'ready' | 'leaving' | 'closed' = 'connecting';
  /** Streams above this were not processed; -1 = the server has not said. */
  lastProcessed = -1;
  usedAt: number;
  heardAt: number;
  hasServed = false;
  /** It has taken a call. */
  hasBegun = false;
  /** The owner knows that it is as good as gone. */
  isWrittenOff = false;
  #session: ClientHttp2Session | null = null;
  readonly #socket: Socket;
  readonly #settings: ConnectionSettings;
  readonly #owner: ConnectionOwner;
  #timer: Timer | null = null;
  #pingTimer: Timer | null = null;
  /** Of pings that wait for their answer. */
  readonly #pings = new Set<Timer>();
  #doubtedAt = Number.NEGATIVE_INFINITY;
  #reachedHost = false;
  #failure: { readonly code: Code; readonly words: string } | null = null;

  constructor(address: string, settings: ConnectionSettings, owner: ConnectionOwner) {
    this.address = address;
    this.#settings = settings;
    this.#owner = owner;
    const { at, clock, connectTimeoutMs } = settings;
    this.usedAt = clock.now();
    this.heardAt = this.usedAt;
    const where = { host: address, port: at.port };
    this.#socket = at.isTls
      ? tlsConnect({ ...where, ALPNProtocols: ['h2'], ...(isIP(at.host) === 0 ? { servername: at.host } : {}) })
      : tcpConnect(where);
    this.#socket.setNoDelay(true);
    this.#timer = clock.after(connectTimeoutMs, () =>
      this.#fail(Code.connect_timeout, `no connection to ${this.name} within ${connectTimeoutMs} ms`),
    );
    this.#socket.once('connect', () => (this.#reachedHost = true));
    this.#socket.on('error', (error: NodeJS.ErrnoException) => this.#socketFailed(error));
    this.#socket.once('close', () => this.#ended());
    this.#socket.once(at.isTls ? 'secureConnect' : 'connect', () => this.#begin());
  }

  /** For messages. */
  get name(): string {
    const { host, port } = this.#settings.at;
    return host === this.address ? `${bracketed(host)}:${port}` : `${host}:${port} (${this.address})`;
  }

  get session(): ClientHttp2Session {
    if (this.#session === null) throw new Error('the connection is not ready');
    return this.#session;
  }

  /** New calls may be sent on it. The session knows of an end before the socket says so. */
  get isUsable(): boolean {
    return this.state === 'ready' && !this.session.destroyed && !this.session.closed;
  }

  get hasRoom(): boolean {
    return this.isUsable && this.active < (this.session.remoteSettings.maxConcurrentStreams ?? Number.POSITIVE_INFINITY);
  }

  begun(): void {
    this.active++;
    this.hasBegun = true;
    this.usedAt = this.#settings.clock.now();
    if (this.active === 1) this.#armPing();
  }

  /** A call on it has ended. */
  released(): void {
    this.active--;
    if (this.active === 0) {
      this.#pingTimer?.cancel();
      this.#pingTimer = null;
      if (this.state === 'leaving') this.#session?.close();
    }
    this.#owner.room(this);
  }

  /** A call was given up and the server had not said a word since it began: is it there at all? */
  doubt(since: number): void {
    const now = this.#settings.clock.now();
    if (this.state !== 'ready' || this.heardAt > since || now - this.#doubtedAt < DOUBT_MS) return;
    this.#doubtedAt = now;
    this.#ping(DOUBT_TIMEOUT_MS);
  }

  /** Takes nothing new; closes when what runs on it has ended. */
  leave(): void {
    if (this.state !== 'ready') return;
    this.state = 'leaving';
    this.#pingTimer?.cancel();
    this.#pingTimer = null;
    this.#owner.leaving(this);
    if (this.active === 0) this.#session?.close();
  }

  /** Ends it at once, with all that runs on it. */
  destroy(): void {
    this.#session?.destroy();
    this.#socket.destroy();
  }

  #begin(): void {
    const { at } = this.#settings;
    if (at.isTls && (this.#socket as TLSSocket).alpnProtocol !== 'h2')
      return this.#fail(Code.tls_failed, `what listens at ${this.name} does not speak HTTP/2 over TLS`);
    const session = http2Connect(`${at.isTls ? 'https' : 'http'}://${bracketed(at.host)}:${at.port}`, {
      createConnection: () => this.#socket,
      maxSessionMemory: 64,
      maxHeaderListPairs: 1_000,
      settings: { enablePush: false, initialWindowSize: STREAM_WINDOW, maxHeaderListSize: MAX_TRAILER_BYTES },
    });
    this.#session = session;
    session.once('connect', () => session.setLocalWindowSize(CONNECTION_WINDOW));
    session.once('remoteSettings', () => this.#ready());
    session.on('goaway', (code: number, last: number, data?: Uint8Array) => this.#toldToGo(code, last, data));
    session.on('error', (error: NodeJS.ErrnoException) => {
      if (this.state === 'connecting')
        this.#fail(
          Code.connect_timeout,
          `no connection to ${this.name}: what listens there does not speak HTTP/2 (${error.code ?? error.message})`,
        );
    });
    session.once('close', () => {
      this.#socket.destroy();
    });
  }

  #ready(): void {
    if (this.state !== 'connecting') return;
    this.#timer?.cancel();
    this.state = 'ready';
    this.#owner.ready(this);
  }

  #toldToGo(code: number, last: number, data: Uint8Array | undefined): void {
    this.lastProcessed = last;
    if (
      code === ENHANCE_YOUR_CALM &&
      Buffer.from(data ?? [])
        .toString('latin1')
        .includes('too_many_pings')
    )
      this.#owner.tooManyPings();
    if (this.state === 'connecting')
      this.#fail(Code.connect_timeout, `no connection to ${this.name}: it is told to go away (HTTP/2 code ${code})`);
    else this.leave();
  }

  #socketFailed(error: NodeJS.ErrnoException): void {
    if (this.state !== 'connecting') return;
    const why = error.code ?? error.message;
    if (this.#settings.at.isTls && this.#reachedHost) this.#fail(Code.tls_failed, `the TLS handshake with ${this.name} failed: ${why}`);
    else this.#fail(Code.connect_timeout, `no connection to ${this.name}: ${CONNECT_WORDS[why] ?? why}`);
  }

  #fail(code: Code, words: string): void {
    if (this.state !== 'connecting' || this.#failure !== null) return;
    this.#failure = { code, words };
    this.destroy();
  }

  #ended(): void {
    this.#timer?.cancel();
    this.#pingTimer?.cancel();
    for (const timer of this.#pings) timer.cancel();
    this.#pings.clear();
    this.#session?.destroy();
    const was = this.state;
    this.state = 'closed';
    if (was === 'connecting') {
      const { code, words } = this.#failure ?? {
        code: Code.connect_timeout,
        words: `no connection to ${this.name}: closed while connecting`,
      };
      this.#owner.failed(this, code, words);
    } else this.#owner.lost(this);
  }

  #armPing(): void {
    const { keepaliveMs, clock, keepaliveTimeoutMs } = this.#settings;
    if (keepaliveMs === null || this.state !== 'ready') return;
    this.#pingTimer = clock.after(keepaliveMs, () => {
      this.#pingTimer = null;
      if (this.state !== 'ready' || this.active === 0) return;
      this.#ping(keepaliveTimeoutMs);
    });
  }

  #ping(timeoutMs: number): void {
    const { clock } = this.#settings;
    const session = this.#session;
    if (session === null || session.destroyed) return;
    const timer = clock.after(timeoutMs, () => {
      // Told to go in the meantime: the ping's answer no longer matters.
      if (this.state === 'ready') this.destroy();
    });
    this.#pings.add(timer);
    const isSent = session.ping((error) => {
      timer.cancel();
      this.#pings.delete(timer);
      if (error !== null) return;
      this.heardAt = clock.now();
      if (this.#pingTimer === null && this.active > 0) this.#armPing();
    });
    if (!isSent) timer.cancel();
  }
}

const CONNECT_WORDS: Readonly<Record<string, string>> = {
  ECONNREFUSED: 'refused, nothing listens there',
  EHOSTUNREACH: 'the host cannot be reached',
  ENETUNREACH: 'the network cannot be reached',
  ECONNRESET: 'reset while connecting',
  EMFILE: 'this sidecar has no file descriptor left',
};
