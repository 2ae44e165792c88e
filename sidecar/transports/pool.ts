/**
 * Connections to one origin: a fixed number of undici Clients (one connection each, one request at a time), handed out
 * most recently used first, so that a quiet origin keeps few sockets warm and the rest fall idle and close.
 *
 * Why not undici's own Pool: it drops a Client from its list after a failed connect while that Client may still serve,
 * so `close` could leave sockets behind; a request that waits in it cannot be withdrawn; and a failed request cannot
 * learn whether its socket had served before. Here a slot knows all three.
 *
 * It decides nothing about time but the connect timeout: the attempt stage owns the clock of a request.
 */
import type { buildConnector as Connector, Dispatcher } from 'undici';
import { buildConnector, Client } from './undici.ts';
import type { Socket } from 'node:net';
import { atTurnEnd, type Clock, type Timer } from '../../base/clock.ts';
import { Code } from '../../proto/wire/codes.ts';
import { ContinueFilter } from './continue.ts';
import { type Destination, NotAllowed } from './destinations.ts';

/** How long an idle connection is kept when the provider says nothing, milliseconds. */
const KEEP_ALIVE_MS = 4000;
/** At most this long when the provider's `keep-alive: timeout=` hint says more. */
const KEEP_ALIVE_MAX_MS = 60_000;

/**
 * For so long a connection that has carried a 500 is not used again, milliseconds. Frameworks answer for a handler that threw
 * and then close without having said so (uvicorn does for every FastAPI service): what is sent in between is lost, and nobody knows
 * whether it was read. The end comes with the answer or just behind it; after this time the connection is as good as any.
 */
const DOUBT_MS = 100;

/** A reset that struck a request under way; see `Slot`. */
export const RESET_IN_USE = 'REACH_RESET_IN_USE';

/** A request that runs in a slot. The pool tells it where it runs; it must give the slot back exactly once. */
export interface Tenant extends Dispatcher.DispatchHandler {
  slot: Slot | null;
  readonly options: Dispatcher.DispatchOptions;
  /** Wants a connection that has not served yet. */
  readonly fresh: boolean;
  /** True once nobody waits for it any more: it is then not started at all. */
  readonly isSettled: boolean;
  /** The request was handed to the connection. */
  readonly sent: boolean;
  /** Bytes of the answer have been seen by the parser. */
  readonly begun: boolean;
  /** The connection has ended while the body was held back. */
  unpause(): void;
  /** It was refused before it got a slot, since the pool is closing. */
  refused(): void;
  /** Link of the waiting list; owned by the pool. */
  next: Tenant | null;
}

/** No connection came to be. Carries the code and words of the Reply; undici passes it on untouched. */
export class ConnectFailure extends Error {
  readonly reachCode: Code;
  constructor(reachCode: Code, words: string) {
    super(words);
    this.reachCode = reachCode;
  }
}

const NOT_WANTED = new ConnectFailure(Code.cancelled, 'nobody waits for this connection');
const REPLACED = new ConnectFailure(Code.connection_lost, 'replaced by a fresh connection');

export class Slot {
  readonly pool: Pool;
  readonly client: InstanceType<typeof Client>;
  tenant: Tenant | null = null;
  /** Whether the present connection has carried a whole answer before. */
  hasServed = false;
  /** Until then the other side may be about to close the present connection, on the monotonic clock; 0 = nothing speaks for it. */
  doubtedUntil = 0;
  #socket: Socket | null = null;

  constructor(pool: Pool, settings: PoolSettings) {
    this.pool = pool;
    this.client = new Client(pool.origin, {
      pipelining: 1,
      keepAliveTimeout: KEEP_ALIVE_MS,
      keepAliveMaxTimeout: KEEP_ALIVE_MAX_MS,
      maxHeaderSize: settings.maxResponseHeaderBytes,
      headersTimeout: 0,
      bodyTimeout: 0,
      connect: (options: Connector.Options, callback: Connector.Callback) => this.#connect(options, callback),
    });
  }

  /**
   * undici asserts that its parser is not paused when it finishes an answer that the end of the connection may end; a
   * provider that closes while our reader holds the stream back would so end this process. Before undici hears of the
   * end, the parser is therefore let go (nothing is left to read then) …
   */
  readonly #onEnd = (): void => {
    this.tenant?.unpause();
  };

  /**
   * … and a reset, after which it cannot be let go, gets a code for which undici does not try to finish the answer. It
   * would take a reset for the proper end of an answer that only the end of its connection delimits: a cut for the whole.
   * A reset of a kept connection on which the next request has not been written yet concerns nobody: undici is told that
   * the other side closed, and connects anew instead of failing what waits.
   */
  readonly #onError = (error: NodeJS.ErrnoException): void => {
    if (error.code !== 'ECONNRESET' || this.tenant === null) return;
    if (this.tenant.sent) error.code = RESET_IN_USE;
    else if (this.hasServed) error.code = 'UND_ERR_SOCKET';
  };

  #connect(options: Connector.Options, callback: Connector.Callback): void {
    this.hasServed = false;
    this.doubtedUntil = 0;
    // After an aborted request undici connects anew although nothing waits for it: a connection that nobody asked for.
    if (this.tenant === null || this.tenant.isSettled) {
      callback(NOT_WANTED, null);
      return;
    }
    if (this.pool.refusal !== null) {
      callback(new ConnectFailure(Code.connect_timeout, `no connection to ${this.pool.host}: ${this.pool.refusal}`), null);
      return;
    }
    const attempt = new Connecting(this.pool, options.protocol === 'https:', callback);
    // Although its type says otherwise, the connector gives the socket at once: our listeners come before undici's.
    const socket = this.pool.connector(options, (error, connected) => {
      if (error === null) attempt.succeeded(connected);
      else attempt.failed(error);
    }) as unknown as Socket;
    attempt.watch(socket);
    this.#socket = socket;
    socket.on('end', this.#onEnd);
    socket.on('error', this.#onError);
    this.#filter(socket);
  }

  /** A part of the request has not left yet although its answer is whole: a provider that does not read it blocks the next one. */
  get isClogged(): boolean {
    return this.#socket !== null && !this.#socket.destroyed && this.#socket.writableLength > 0;
  }

  /** Its connection serves no more requests, by the word of whoever makes such connections. */
  isOutdated(secure: SecureConnectors): boolean {
    return this.#socket !== null && secure.isOutdated(this.#socket);
  }

  /** undici reads with `read()`. */
  #filter(socket: Socket): void {
    const filter = new ContinueFilter();
    const read = socket.read.bind(socket) as (bytes?: number) => Buffer | null;
    socket.read = (bytes?: number): Buffer | null => {
      const chunk = read(bytes);
      const { tenant } = this;
      return chunk !== null && tenant !== null && tenant.sent && !tenant.begun ? filter.pass(chunk) : chunk;
    };
  }
}

/** Connections that are encrypted, to a sidecar that is known by name. */
export interface SecureConnectors {
  /** @param options for every connection, such as how names become addresses. */
  to(sidecar: string, options: object): Connector.connector;
  /** The next request has to make another connection. */
  isOutdated(socket: Socket): boolean;
}

export interface PoolSettings {
  readonly clock: Clock;
  readonly connectTimeoutMs: number;
  readonly connectionsPerOrigin: number;
  readonly maxResponseHeaderBytes: number;
  /** Whether a 500 may be the last word on its connection; false where sidecars answer, who carry their providers' 500. Absent = true. */
  readonly doubtsFailures?: boolean;
  /** Of the pools that reach sidecars by name; absent = there are none. */
  readonly secure?: SecureConnectors | null;
}

export class Pool {
  readonly origin: string;
  /** The sidecar that has to be at the other end; '' = whoever answers. */
  readonly peer: string;
  /** For messages: host and port, never credentials. */
  readonly host: string;
  readonly settings: PoolSettings;
  readonly connector: Connector.connector;
  /** Why nothing may be sent there; null = nothing is against it so far. */
  readonly refusal: string | null;
  readonly sockets = new Set<Socket>();
  /** When it was last used, in the owner's own count; for eviction. */
  usedAt = 0;
  closed = false;
  #slots: Slot[] = [];
  #free: Slot[] = [];
  #firstWaiting: Tenant | null = null;
  #lastWaiting: Tenant | null = null;
  #whenEmpty: (() => void) | null = null;

  /** @param destination judges the address, and every one that its name leads to; null = it is not judged. */
  constructor(url: URL, destination: Destination | null, settings: PoolSettings, peer = '') {
    this.origin = url.origin;
    this.peer = peer;
    this.host = url.host;
    this.settings = settings;
    this.refusal = destination?.refusal(url) ?? null;
    // timeout 0: undici's connect timer has a resolution of a second, ours is the Clock's.
    const options = destination === null ? {} : { lookup: destination.lookupFor(url) };
    const { secure } = settings;
    this.connector = peer === '' || secure == null ? buildConnector({ timeout: 0, allowH2: false, ...options }) : secure.to(peer, options);
  }

  get isIdle(): boolean {
    return this.#free.length === this.#slots.length && this.#firstWaiting === null;
  }

  /** Starts it in a free slot, or lets it wait for one in the order of arrival. */
  run(tenant: Tenant): void {
    if (this.closed) {
      tenant.refused();
      return;
    }
    const slot = this.#takeFree() ?? this.#newSlot();
    if (slot === null) {
      if (this.#lastWaiting === null) this.#firstWaiting = tenant;
      else this.#lastWaiting.next = tenant;
      this.#lastWaiting = tenant;
      return;
    }
    this.#start(slot, tenant);
  }

  /** As `release`, of a connection on which a 500 has come: see `DOUBT_MS`. */
  releaseDoubted(done: Slot): void {
    if (this.settings.doubtsFailures !== false) done.doubtedUntil = this.settings.clock.now() + DOUBT_MS;
    this.release(done);
  }

  /**
   * A request ended well: its connection can be used again at once. An encrypted one says a turn late that what was written
   * has left; taken for clogged, it would cost a handshake.
   */
  release(done: Slot): void {
    done.tenant = null;
    if (this.closed) return;
    if (this.peer !== '' && done.isClogged) atTurnEnd(() => this.#goOn(done));
    else this.#goOn(done);
  }

  #goOn(done: Slot): void {
    if (this.closed) return;
    const slot = done.isClogged ? this.#replaced(done) : done;
    const next = this.#takeWaiting();
    if (next === null) this.#free.push(slot);
    else this.#start(slot, next);
  }

  /** As `release`, but after the present turn: undici forbids a new request on a Client from inside its failure paths. */
  releaseLater(slot: Slot): void {
    slot.tenant = null;
    queueMicrotask(() => this.release(slot));
  }

  /** Ends every connection, whatever runs on it; resolves when none is left. */
  async close(): Promise<void> {
    this.closed = true;
    for (let tenant = this.#takeWaiting(); tenant !== null; tenant = this.#takeWaiting()) tenant.refused();
    const why = new ConnectFailure(Code.connection_lost, 'the sidecar is closing its connections');
    await Promise.all(this.#slots.map((slot) => slot.client.destroy(why)));
    this.#slots = [];
    this.#free = [];
    for (const socket of this.sockets) socket.destroy();
    if (this.sockets.size > 0) await new Promise<void>((resolve) => (this.#whenEmpty = resolve));
  }

  socketClosed(socket: Socket): void {
    this.sockets.delete(socket);
    if (this.sockets.size === 0) this.#whenEmpty?.();
  }

  #newSlot(): Slot | null {
    if (this.#slots.length >= this.settings.connectionsPerOrigin) return null;
    const slot = new Slot(this, this.settings);
    this.#slots.push(slot);
    return slot;
  }

  #start(free: Slot, tenant: Tenant): void {
    const slot = free.hasServed && (tenant.fresh || this.#isDoubted(free) || this.#isOutdated(free)) ? this.#replaced(free) : free;
    slot.tenant = tenant;
    tenant.slot = slot;
    slot.client.dispatch(tenant.options, tenant);
  }

  #isDoubted(slot: Slot): boolean {
    return slot.doubtedUntil !== 0 && this.settings.clock.now() < slot.doubtedUntil;
  }

  #isOutdated(slot: Slot): boolean {
    const { secure } = this.settings;
    return this.peer !== '' && secure != null && slot.isOutdated(secure);
  }

  /** The one that was used last; before one whose connection is in doubt any other. */
  #takeFree(): Slot | undefined {
    const last = this.#free.pop();
    if (last === undefined || last.doubtedUntil === 0 || !this.#isDoubted(last)) return last;
    for (let i = this.#free.length - 1; i >= 0; i--) {
      const slot = this.#free[i] as Slot;
      if (this.#isDoubted(slot)) continue;
      this.#free[i] = last;
      return slot;
    }
    return last;
  }

  /** A slot without a connection in the place of one that has an old one. */
  #replaced(old: Slot): Slot {
    const slot = new Slot(this, this.settings);
    this.#slots[this.#slots.indexOf(old)] = slot;
    // Not from inside undici's own callback.
    queueMicrotask(() => void old.client.destroy(REPLACED));
    return slot;
  }

  #takeWaiting(): Tenant | null {
    for (let tenant = this.#firstWaiting; tenant !== null; tenant = this.#firstWaiting) {
      this.#firstWaiting = tenant.next;
      if (this.#firstWaiting === null) this.#lastWaiting = null;
      tenant.next = null;
      if (!tenant.isSettled) return tenant;
    }
    return null;
  }
}

/** One connection in the making: its timer, and the translation of what goes wrong. */
class Connecting {
  readonly #pool: Pool;
  readonly #isTls: boolean;
  readonly #callback: Connector.Callback;
  #timer: Timer | null = null;
  #reachedHost = false;

  constructor(pool: Pool, isTls: boolean, callback: Connector.Callback) {
    this.#pool = pool;
    this.#isTls = isTls;
    this.#callback = callback;
  }

  watch(socket: Socket): void {
    const pool = this.#pool;
    pool.sockets.add(socket);
    socket.once('connect', () => {
      this.#reachedHost = true;
    });
    socket.once('close', () => {
      this.#timer?.cancel();
      pool.socketClosed(socket);
    });
    const limitMs = pool.settings.connectTimeoutMs;
    this.#timer = pool.settings.clock.after(limitMs, () => {
      socket.destroy(new ConnectFailure(Code.connect_timeout, `no connection to ${pool.host} within ${limitMs} ms`));
    });
  }

  succeeded(socket: Socket): void {
    this.#timer?.cancel();
    this.#callback(null, socket);
  }

  failed(error: Error): void {
    this.#timer?.cancel();
    this.#callback(this.#translated(error), null);
  }

  #translated(error: Error): ConnectFailure {
    if (error instanceof ConnectFailure) return error;
    if (error instanceof NotAllowed)
      return new ConnectFailure(Code.connect_timeout, `no connection to ${this.#pool.host}: ${error.message}`);
    const why = (error as NodeJS.ErrnoException).code ?? error.message;
    if (this.#isTls && this.#reachedHost)
      return new ConnectFailure(Code.tls_failed, `the TLS handshake with ${this.#pool.host} failed: ${why}`);
    return new ConnectFailure(Code.connect_timeout, `no connection to ${this.#pool.host}: ${CONNECT_WORDS[why] ?? why}`);
  }
}

const CONNECT_WORDS: Readonly<Record<string, string>> = {
  ECONNREFUSED: 'refused, nothing listens there',
  ENOTFOUND: 'the name does not resolve',
  EAI_AGAIN: 'the name server does not answer',
  EHOSTUNREACH: 'the host cannot be reached',
  ENETUNREACH: 'the network cannot be reached',
  ECONNRESET: 'reset while connecting',
  EMFILE: 'this sidecar has no file descriptor left',
};
