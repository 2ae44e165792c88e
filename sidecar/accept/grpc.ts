/**
 * The gRPC port: HTTP/2 in clear text, for agents that have a gRPC library. Decides what may come in, which RPC is served by
 * which file, and how the port closes. One line a method.
 *
 * Why our own server on Node's HTTP/2 and not that of grpc-js: that one answers a malformed `grpc-timeout` with INTERNAL,
 * ends an RPC by itself when its time is over (which looks like a client that went away, and has none of our trailers),
 * refuses what is too large without a code, shows no headers before a message is read, and counts no connections. None of
 * it can be changed from outside, and all of it would make a gRPC caller's Result another one than an HTTP caller's.
 */
import {
  constants,
  createServer,
  type Http2Server,
  type IncomingHttpHeaders,
  type ServerHttp2Session,
  type ServerHttp2Stream,
} from 'node:http2';
import type { AddressInfo, Socket } from 'node:net';
import type { Timer } from '../../base/clock.ts';
import { type Refusal, refusal } from '../../base/host-guard.ts';
import type { Listen } from '../../proto/language/process-shapes.ts';
import { Code } from '../../proto/wire/codes.ts';
import type { GrpcConfig } from '../config.ts';
import type { AllChannels } from './channel/all-channels.ts';
import type { Front } from './front.ts';
import { Backlog } from './grpc-backlog.ts';
import { cast } from './grpc-cast.ts';
import { GrpcChannel } from './grpc-channel.ts';
import { Exchange, isGrpc, type Taker } from './grpc-exchange.ts';
import { check, watch } from './grpc-health.ts';
import { explain, invoke } from './grpc-invoke.ts';
import { reflect } from './grpc-reflection.ts';
import { refusalTrailers, Status } from './grpc-status.ts';
import { invokeStream } from './grpc-stream.ts';
import { codeOfRefusal, LocalGuard } from './guard.ts';
import { whyNotBound } from './server.ts';

/** A client that has not said that it speaks HTTP/2 by then holds the connection without using it. */
const PREFACE_MS = 10_000;
/** A connection on which nothing is heard for so long is asked whether it lives. */
const PING_EVERY_MS = 60_000;
/** Answers to a ping come in a round trip. */
const PING_MS = 20_000;
/** Libraries ping every ten seconds at the most; whoever does it so often in one second means something else. */
const MAX_PINGS_PER_SEC = 50;
/**
 * What the platform may hold for one connection, in MiB. It refuses without a word, so our own limits lie below it: a
 * stream gives it one slice of its answer at a time.
 */
const MAX_SESSION_MIB = 512;
/** How often to look for connections that do not take their answers. */
const LOOK_EVERY_MS = 1_000;

/** A client that reads has made room by then. */
const RETRY_MS = 1_000;

const SERVICE = 'agentreach.v1.Reach';
const SERVICES: ReadonlySet<string> = new Set([SERVICE]);
/** Open to whoever only looks whether the process lives. */
const HEALTH = '/grpc.health.v1.Health/';
const BROWSER = refusal(403, 'origin', 'this port is for gRPC clients; requests of web pages are refused');
const ONE_MESSAGE = 'this method takes exactly one message';
const CHANNEL = `/${SERVICE}/Channel`;

type Method = (exchange: Exchange, message: Buffer) => void;

/** Exactly one message from the client. */
class One implements Taker {
  readonly #method: Method;
  #message: Buffer | null = null;

  constructor(method: Method) {
    this.#method = method;
  }

  message(exchange: Exchange, message: Buffer): void {
    if (this.#message === null) this.#message = message;
    else exchange.refuse(Code.invalid_request, ONE_MESSAGE);
  }

  allSaid(exchange: Exchange): void {
    if (this.#message === null) exchange.refuse(Code.invalid_request, ONE_MESSAGE);
    else this.#method(exchange, this.#message);
  }
}

/** Any number, each with what it brings. */
class Each implements Taker {
  readonly #method: Method;

  constructor(method: Method) {
    this.#method = method;
  }

  message(exchange: Exchange, message: Buffer): void {
    this.#method(exchange, message);
  }

  allSaid(exchange: Exchange): void {
    exchange.finish(null);
  }
}

/** By path. */
const METHODS: ReadonlyMap<string, { readonly method: Method; readonly each: boolean }> = new Map(
  Object.entries({
    [`/${SERVICE}/Invoke`]: { method: (exchange: Exchange, message: Buffer) => void invoke(exchange, message), each: false },
    [`/${SERVICE}/InvokeStream`]: { method: (exchange: Exchange, message: Buffer) => void invokeStream(exchange, message), each: false },
    [`/${SERVICE}/Explain`]: { method: explain, each: false },
    [`/${SERVICE}/Cast`]: { method: (exchange: Exchange, message: Buffer) => void cast(exchange, message), each: false },
    [CHANNEL]: { method: ignore, each: true },
    '/grpc.health.v1.Health/Check': { method: (exchange: Exchange, message: Buffer) => check(exchange, message, SERVICES), each: false },
    '/grpc.health.v1.Health/Watch': { method: (exchange: Exchange, message: Buffer) => watch(exchange, message, SERVICES), each: false },
    '/grpc.reflection.v1.ServerReflection/ServerReflectionInfo': { method: reflect, each: true },
    '/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo': { method: reflect, each: true },
  }),
);

interface Connection {
  readonly socket: Socket;
  readonly backlog: Backlog;
}

/** The open port. */
export class GrpcPort {
  readonly #front: Front;
  /** null = no agent can dial in here. */
  readonly #channels: AllChannels | null;
  readonly #guard: LocalGuard;
  readonly #server: Http2Server;
  readonly #sockets = new Set<Socket>();
  readonly #sessions = new Map<ServerHttp2Session, Connection>();
  /** Whose session is made next: the platform does so in the same turn. */
  #arriving: Socket | null = null;
  #looking: Timer | null = null;
  /** RPCs that are no calls and may last as long as their clients like: they end when the port closes. */
  readonly #lasting = new Set<Exchange>();
  #address: Listen;
  #whenEmpty: (() => void) | null = null;

  constructor(front: Front, config: GrpcConfig, channels: AllChannels | null) {
    this.#front = front;
    this.#channels = channels;
    this.#address = config.listen;
    this.#guard = new LocalGuard(front.engine.config.allowedHosts);
    const { limits } = front.engine.config;
    this.#server = createServer({
      maxSessionMemory: MAX_SESSION_MIB,
      settings: { maxConcurrentStreams: config.streams, maxHeaderListSize: limits.headerBytes },
    });
    this.#server.maxConnections = limits.connections;
    this.#server.prependListener('connection', (socket: Socket) => this.#connected(socket));
    this.#server.on('session', (session) => this.#opened(session));
    this.#server.on('stream', (stream: ServerHttp2Stream, headers: IncomingHttpHeaders, _flags: number, ...rest: unknown[]) =>
      this.#asked(stream, headers, rest[0] as string[]),
    );
    // Told by the session as well, which closes then.
    this.#server.on('sessionError', () => undefined);
  }

  /** Binds; rejects with one sentence when the port cannot be had. */
  async open(): Promise<void> {
    const { host, port } = this.#address;
    try {
      await new Promise<void>((done, fail) => {
        this.#server.once('error', fail);
        this.#server.listen({ host, port, backlog: 1_024 }, () => {
          this.#server.removeListener('error', fail);
          done();
        });
      });
    } catch (error) {
      throw new Error(whyNotBound(error as NodeJS.ErrnoException, host, port));
    }
    const bound = this.#server.address() as AddressInfo;
    this.#address = { host: bound.address, port: bound.port };
  }

  get address(): Listen {
    return this.#address;
  }

  get connections(): number {
    return this.#sockets.size;
  }

  /** The time for what is under way is over: it ends with words. */
  goAway(): void {
    for (const { backlog } of this.#sessions.values()) backlog.goAway();
  }

  /**
   * Tells every client to send nothing new (GOAWAY) and lets what is under way end; after `graceMs` the connections are cut.
   * Resolves when none is left.
   */
  async close(graceMs: number): Promise<void> {
    const closed = new Promise<void>((done) => this.#server.close(() => done()));
    for (const exchange of this.#lasting) {
      const { work } = exchange;
      if (work instanceof GrpcChannel) {
        work.leave(graceMs);
        continue;
      }
      exchange.refuse(Code.blocked_by_operator, 'this sidecar is stopping');
      work?.cancel();
    }
    for (const session of this.#sessions.keys()) session.close();
    const grace = this.#front.engine.clock.after(graceMs, () => {
      for (const session of this.#sessions.keys()) session.destroy();
      for (const socket of this.#sockets) socket.destroy();
    });
    await closed;
    if (this.#sockets.size > 0) await new Promise<void>((done) => (this.#whenEmpty = done));
    grace.cancel();
  }

  #connected(socket: Socket): void {
    this.#arriving = socket;
    this.#sockets.add(socket);
    // Trailers are a write of their own: they must not wait for the peer to acknowledge the one before.
    socket.setNoDelay(true);
    socket.once('close', () => {
      this.#sockets.delete(socket);
      if (this.#sockets.size === 0) this.#whenEmpty?.();
    });
  }

  #opened(session: ServerHttp2Session): void {
    this.#sessions.set(session, { socket: this.#arriving as Socket, backlog: new Backlog(this.#front.engine.config.limits.unsentBytes) });
    this.#looking ??= this.#front.engine.clock.after(LOOK_EVERY_MS, () => this.#look());
    const liveness = new Liveness(this.#front, session);
    session.once('close', () => {
      liveness.stop();
      this.#sessions.delete(session);
      if (this.#sessions.size > 0) return;
      this.#looking?.cancel();
      this.#looking = null;
    });
    session.on('error', () => session.destroy());
  }

  #look(): void {
    const { clock, config } = this.#front.engine;
    const { stallMs } = config.limits;
    const now = clock.now();
    for (const [session, { socket, backlog }] of this.#sessions) {
      if (session.destroyed) {
        // It waits for the peer to take what was written, and that may never be.
        socket.destroy();
        continue;
      }
      if (backlog.stalledMs(now) < stallMs) continue;
      this.#front.observation.metrics.requestRefused('stalled');
      session.goaway(constants.NGHTTP2_ENHANCE_YOUR_CALM, 0, Buffer.from('answers are not taken'));
      session.destroy();
    }
    this.#looking = clock.after(LOOK_EVERY_MS, () => this.#look());
  }

  #asked(stream: ServerHttp2Stream, headers: IncomingHttpHeaders, rawHeaders: readonly string[]): void {
    // What breaks a stream also closes it, and that is what is listened to.
    stream.on('error', ignore);
    const { metrics } = this.#front.observation;
    if (!isGrpc(headers)) {
      metrics.requestRefused('request');
      stream.respond({ ':status': constants.HTTP_STATUS_UNSUPPORTED_MEDIA_TYPE }, { endStream: true });
      stream.close(constants.NGHTTP2_NO_ERROR);
      return;
    }
    const refused = this.#problem(headers);
    const connection = this.#sessions.get(stream.session as ServerHttp2Session);
    // Gone before it was looked at.
    if (connection === undefined || stream.destroyed) return;
    const { backlog } = connection;
    const path = headers[':path'] ?? '';
    const found = METHODS.get(path);
    if (refused !== null || found === undefined) {
      metrics.requestRefused(refused?.reason ?? 'path');
      const trailers =
        refused === null
          ? refusalTrailers(Code.invalid_request, `there is no method ${path.slice(0, 200)} here`, 0, Status.unimplemented)
          : refusalTrailers(codeOfRefusal(refused), refused.detail, 0);
      new Exchange(this.#front, stream, rawHeaders, NOBODY, { slow: true, backlog }).fail(trailers);
      return;
    }
    const { method, each } = found;
    const channel = path === CHANNEL ? new GrpcChannel() : null;
    const taker = backlog.isFull ? NOBODY : (channel ?? (each ? new Each(method) : new One(method)));
    const exchange = new Exchange(this.#front, stream, rawHeaders, taker, { slow: each, backlog });
    if (taker === NOBODY) {
      metrics.requestRefused('unsent');
      exchange.refuse(Code.caller_busy, `this connection has not taken ${backlog.bytes} bytes of its answers: read them first`, RETRY_MS);
      return;
    }
    if (each || path === '/grpc.health.v1.Health/Watch') this.#last(exchange);
    channel?.open(this.#channels, exchange);
  }

  #last(exchange: Exchange): void {
    this.#lasting.add(exchange);
    exchange.stream.once('close', () => this.#lasting.delete(exchange));
  }

  #problem(headers: IncomingHttpHeaders): Refusal | null {
    if (headers['origin'] !== undefined || headers['sec-fetch-site'] !== undefined) return BROWSER;
    const host = this.#guard.hostProblem(headers[':authority'] ?? headers.host);
    if (host !== null || headers[':path']?.startsWith(HEALTH) === true) return host;
    return this.#front.apiToken?.problem(headers) ?? null;
  }
}

function ignore(): void {}

const NOBODY: Taker = { message: () => undefined, allSaid: () => undefined };

/** Whether the client of one connection is there, speaks HTTP/2, and does not ping for the sake of it. */
class Liveness {
  readonly #front: Front;
  readonly #session: ServerHttp2Session;
  #timer: Timer;
  #pings = 0;
  #pingsSince = 0;

  constructor(front: Front, session: ServerHttp2Session) {
    this.#front = front;
    this.#session = session;
    this.#timer = front.engine.clock.after(PREFACE_MS, () => session.destroy());
    session.once('remoteSettings', () => {
      this.#timer.cancel();
      this.#later();
    });
    session.on('ping', () => this.#pinged());
  }

  stop(): void {
    this.#timer.cancel();
  }

  #later(): void {
    if (!this.#session.destroyed) this.#timer = this.#front.engine.clock.after(PING_EVERY_MS, () => this.#ask());
  }

  #ask(): void {
    const session = this.#session;
    if (session.destroyed || session.closed) return;
    this.#timer = this.#front.engine.clock.after(PING_MS, () => session.destroy());
    const sent = session.ping(() => {
      this.#timer.cancel();
      this.#later();
    });
    if (!sent) session.destroy();
  }

  #pinged(): void {
    const now = this.#front.engine.clock.now();
    if (now - this.#pingsSince >= 1_000) {
      this.#pingsSince = now;
      this.#pings = 0;
    }
    if (++this.#pings <= MAX_PINGS_PER_SEC || this.#session.destroyed) return;
    this.#front.observation.metrics.requestRefused('pings');
    this.#session.goaway(constants.NGHTTP2_ENHANCE_YOUR_CALM, 0, Buffer.from('too_many_pings'));
    this.#session.destroy();
  }
}

export function grpcPort(front: Front, config: GrpcConfig, channels: AllChannels | null = null): GrpcPort {
  return new GrpcPort(front, config, channels);
}
