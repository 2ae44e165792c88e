/**
 * One HTTP port: a fastify server with what every port here shares. The guard stands before the router, so that it covers
 * every path; bodies come as Buffers; errors of the protocol become problem documents; connections know what is under way
 * on them; closing lets what is under way finish. Which routes there are is decided in `http.ts` and `mesh.ts`.
 */
import { createServer, type IncomingMessage, type RequestListener, type Server, type ServerOptions, type ServerResponse } from 'node:http';
import { type AddressInfo, Server as NetServer, type Socket } from 'node:net';
import { type FastifyError, type FastifyInstance, type FastifyReply, type FastifyRequest, fastify } from 'fastify';
import { atTurnEnd, type Timer } from '../../base/clock.ts';
import { Code, codeEntry } from '../../proto/wire/codes.ts';
import type { PeerCertificate } from '../call/peer.ts';
import { plainProblem } from '../call/result.ts';
import type { Listen } from '../../proto/language/process-shapes.ts';
import { PROBLEM_TYPE, refuse } from './answer.ts';
import { type BodyDone, readBody } from './body.ts';
import type { Front } from './front.ts';
import { codeOfRefusal } from './guard.ts';
import type { Refusal } from '../../base/host-guard.ts';
import { type Line, lineOf, openLine } from './line.ts';
import type { SocketPlace } from '../config.ts';
import { UnixSocket } from './unix-socket.ts';
import { isForWebSocket, readAgainWithout, refuseUpgrade, whenAnswered } from './offer.ts';

/** Longer than the pools of usual HTTP clients keep a connection, so that the client is the one who closes it. */
const KEEP_ALIVE_MS = 75_000;
/** A head of a few kilobytes takes a millisecond; who needs ten seconds for it is holding the connection, not using it. */
export const HEAD_MS = 10_000;
/** Head and body of a request together. */
export const REQUEST_MS = 60_000;
/** How often Node looks for heads and requests that take too long. */
const CHECK_EVERY_MS = 1_000;
/** While closing: how often to look for connections that have fallen idle. */
const LOOK_EVERY_MS = 20;
/**
 * While closing: looks at which a connection has to be idle, with nothing come in between, before it is closed. A client that uses it
 * still sends its next request meanwhile, and learns from the answer that it was the last one; closed at once, that request would be
 * cut, and nobody could say whether it was taken.
 */
const QUIET_LOOKS = 3;
/** A target is at most three segments of 63 and a range; the router's own limit must lie above the name stage's. */
export const MAX_TARGET_CHARS = 8_192;

/** The parser's word for a connection that begins as HTTP/2 does. */
const HTTP2_PREFACE = 'HPE_PAUSED_H2_UPGRADE';

/** Only the agents' port has it. */
const GUIDE = '/v1/openapi.json';

export interface PortOptions {
  readonly listen: Listen;
  readonly guard: (request: IncomingMessage) => Refusal | null;
  /** Takes connections that become WebSockets; absent = none do, and the offer of another protocol is passed over. */
  readonly upgrades?: UpgradeDoor;
  /** Encrypts the port, and says who is at the other end; absent = clear text. */
  readonly tls?: SecureDoor;
  /** Takes requests to a proxy, which the guard has let pass; absent = there are none. */
  readonly proxy?: ProxyDoor;
  /** Listens here instead of at `listen`. */
  readonly socket?: SocketPlace;
}

export interface SecureDoor {
  server(options: ServerOptions, handler: RequestListener): Server;
  /** Null = nobody who has any business here. */
  peerOf(socket: Socket): PeerCertificate | null;
  /** What is under way on this connection is the last. */
  isOutdated(socket: Socket): boolean;
}

export interface ProxyDoor {
  isMeant(request: IncomingMessage): boolean;
  serve(request: IncomingMessage, response: ServerResponse): void;
  /** A CONNECT; the connection is the door's to end. */
  tunnel(request: IncomingMessage, socket: Socket): void;
}

export interface UpgradeDoor {
  /** The guard has let it pass; the connection is the door's from here on. */
  upgrade(request: IncomingMessage, socket: Socket, head: Buffer): void;
  /** The port closes: what has been taken may end within the grace. */
  close(graceMs: number): Promise<void>;
}

/** One open port. */
export class Port {
  readonly app: FastifyInstance;
  /** `METHOD /path` of every route, for the document that describes them. */
  readonly routes: string[] = [];
  readonly #server: Server;
  readonly #sockets = new Set<Socket>();
  /** Of an encrypted port: connections that have not proved yet who they are, by where they come from. */
  readonly #shaking = new Map<string, Socket>();
  #isClosing = false;
  readonly #front: Front;
  readonly #listen: Listen;
  readonly #upgrades: UpgradeDoor | null;
  readonly #tls: SecureDoor | null;
  readonly #socket: UnixSocket | null;
  #address: { readonly host: string; readonly port: number };
  #whenEmpty: (() => void) | null = null;
  #hasToldOfHttp2 = false;

  constructor(front: Front, options: PortOptions) {
    this.#front = front;
    this.#listen = options.listen;
    this.#upgrades = options.upgrades ?? null;
    this.#address = options.listen;
    const { limits } = front.engine.config;
    let made: Server | null = null;
    this.app = fastify({
      logger: false,
      requestIdHeader: false,
      exposeHeadRoutes: false,
      return503OnClosing: false,
      bodyLimit: limits.bodyBytes,
      routerOptions: { maxParamLength: MAX_TARGET_CHARS, caseSensitive: true },
      clientErrorHandler: (error: NodeJS.ErrnoException, socket: Socket) => this.#garbled(error, socket),
      frameworkErrors: (error: FastifyError, _request: FastifyRequest, reply: FastifyReply) => this.#failed(error, reply),
      serverFactory: (handler: RequestListener) => {
        made = serverFor(handler, options, limits.headerBytes, front, () => this.#isClosing);
        return made;
      },
    } as Parameters<typeof fastify>[0]) as unknown as FastifyInstance;
    this.#server = made as unknown as Server;
    this.#server.maxConnections = limits.connections;
    this.#tls = options.tls ?? null;
    this.#socket = options.socket === undefined ? null : new UnixSocket(options.socket);
    if (options.socket !== undefined) this.#address = { host: `unix:${options.socket.path}`, port: 0 };
    // Of an encrypted port, a connection is one whose other end has proved who it is.
    this.#server.on(options.tls === undefined ? 'connection' : 'secureConnection', (socket: Socket) => this.#opened(socket));
    if (options.tls !== undefined) this.#server.on('connection', (socket: Socket) => this.#knocked(socket));
    this.app.addHook('onRoute', (route) => {
      for (const method of [route.method].flat()) this.routes.push(`${method} ${route.url}`);
    });
    this.app.removeAllContentTypeParsers();
    this.app.addContentTypeParser('*', (_request: FastifyRequest, payload: IncomingMessage, done: BodyDone) =>
      readBody(payload, limits.bodyBytes, done),
    );
    this.app.setErrorHandler((error: FastifyError, _request: FastifyRequest, reply: FastifyReply) => this.#failed(error, reply));
    this.app.setNotFoundHandler((request: FastifyRequest, reply: FastifyReply) => {
      reply.hijack();
      front.observation.metrics.requestRefused('path');
      this.#nothingHere(request, reply.raw);
    });
  }

  /** Binds; rejects with one sentence when the port cannot be had. */
  async open(): Promise<void> {
    const { host, port } = this.#listen;
    if (this.#socket !== null) return this.#socket.open((path) => this.app.listen({ path, backlog: 1_024, listenTextResolver: () => '' }));
    try {
      await this.app.listen({ host, port, backlog: 1_024, listenTextResolver: () => '' });
      const bound = this.#server.address() as AddressInfo;
      this.#address = { host: bound.address, port: bound.port };
    } catch (error) {
      throw new Error(whyNotBound(error as NodeJS.ErrnoException, host, port));
    }
  }

  /** Where it listens; the configured place until it is open. Of a socket, `unix:` and its path, and port 0. */
  get address(): { readonly host: string; readonly port: number } {
    return this.#address;
  }

  get connections(): number {
    return this.#sockets.size;
  }

  /** The time for what is under way is over: it ends with words, where its form has any. */
  goAway(): void {
    for (const socket of this.#sockets) lineOf(socket).goAway();
  }

  /**
   * Stops taking connections and closes idle ones; what is under way has `graceMs` to end, then its connections are cut.
   * Resolves when none is left.
   */
  async close(graceMs: number): Promise<void> {
    const { clock } = this.#front.engine;
    this.#isClosing = true;
    // Node's own way of closing an HTTP server destroys idle connections at once, also those on which a request has just come in.
    const closed = new Promise<void>((done) => void NetServer.prototype.close.call(this.#server, () => done()));
    // A kept connection falls idle when its last answer has been written; nobody tells, so one looks: at the end of a turn, when what
    // has come in has been read.
    const quiet = new Map<Socket, Quiet>();
    let looking: Timer | null = null;
    let isOver = false;
    const look = (): void => {
      if (isOver) return;
      for (const socket of this.#sockets) if (isQuiet(socket, quiet)) socket.destroySoon();
      looking = clock.after(LOOK_EVERY_MS, () => atTurnEnd(look));
    };
    look();
    for (const socket of this.#shaking.values()) socket.destroy();
    const grace = clock.after(graceMs, () => {
      for (const socket of this.#sockets) socket.destroy();
    });
    await Promise.all([closed, this.#upgrades?.close(graceMs)]);
    // The server is closed a moment before its last socket says that it is.
    if (this.#sockets.size > 0) await new Promise<void>((done) => (this.#whenEmpty = done));
    isOver = true;
    (looking as Timer | null)?.cancel();
    grace.cancel();
    // It has no connections any more; what it looks at now and then ends with it.
    this.#server.close();
    this.#socket?.close();
    await this.app.close();
  }

  /** Its handshake begins; when it is done, `#opened` is told of another socket, that of what is encrypted. */
  #knocked(socket: Socket): void {
    const from = placeOf(socket);
    this.#shaking.set(from, socket);
    socket.once('close', () => {
      if (this.#shaking.get(from) === socket) this.#shaking.delete(from);
    });
  }

  #opened(socket: Socket): void {
    if (this.#tls !== null) this.#shaking.delete(placeOf(socket));
    // Given back to be read again, see `upgrade.ts`.
    if (this.#sockets.has(socket)) return;
    const peer = this.#tls?.peerOf(socket) ?? null;
    if (this.#tls !== null && peer === null) {
      this.#front.observation.metrics.requestRefused('tls');
      socket.destroy();
      return;
    }
    openLine(socket);
    lineOf(socket).peer = peer;
    this.#sockets.add(socket);
    socket.once('close', () => {
      this.#sockets.delete(socket);
      if (this.#sockets.size === 0) this.#whenEmpty?.();
    });
  }

  /** A path that is here for another method only is told apart: whoever guesses the API is one word away from it. */
  #nothingHere(request: FastifyRequest, response: ServerResponse): void {
    const asked = request.raw.url?.slice(0, 200) ?? '';
    const methods = methodsAt(this.routes, asked.split('?', 1)[0] as string);
    if (methods.length > 0) {
      response.setHeader('allow', methods.join(', '));
      refuse(response, Code.invalid_request, 405, `${request.method} ${asked}: send it with ${methods.join(' or ')}`, 'keep');
      return;
    }
    const guide = this.routes.includes(`GET ${GUIDE}`) ? `; see GET ${GUIDE}` : '';
    refuse(response, Code.invalid_request, 404, `there is nothing at ${request.method} ${asked}${guide}`, 'keep');
  }

  /** An error before a handler ran: an unreadable URL, a body that is too long or ended too soon. */
  #failed(error: FastifyError, reply: FastifyReply): void {
    reply.hijack();
    const response = reply.raw;
    if (response.destroyed || response.socket === null || response.socket.destroyed) return;
    const { metrics } = this.#front.observation;
    lineOf(response.socket).doomed = true;
    if (error.statusCode === 413) {
      metrics.requestRefused('body');
      refuse(
        response,
        Code.payload_too_large,
        413,
        `the body is above the limit of ${this.#front.engine.config.limits.bodyBytes} bytes`,
        'hear_out',
      );
    } else if (error.statusCode !== undefined && error.statusCode >= 400 && error.statusCode < 500) {
      metrics.requestRefused('request');
      refuse(response, Code.invalid_request, error.statusCode, error.message, 'hear_out');
    } else {
      metrics.requestRefused('fault');
      this.#front.observation.fault(error);
      refuse(response, Code.internal, 500, 'a fault in Agent-Reach', 'hear_out');
    }
  }

  /** The parser gave up: nothing on this connection can be believed any more. */
  #garbled(error: NodeJS.ErrnoException, socket: Socket): void {
    if (this.#tls !== null && !this.#sockets.has(socket)) {
      // It has not proved who it is; there is nobody to say so to.
      this.#front.observation.metrics.requestRefused('tls');
      socket.destroy();
      return;
    }
    const line = lineOf(socket);
    if (error.code === 'ECONNRESET' || !socket.writable || line.doomed || !line.isIdle) {
      socket.destroy();
      return;
    }
    line.doomed = true;
    if (error.code === HTTP2_PREFACE) {
      this.#spokeHttp2(socket);
      return;
    }
    const { status, code, detail, reason } = this.#whatWasWrong(error);
    this.#front.observation.metrics.requestRefused(reason);
    const body = plainProblem(code, status, detail);
    socket.end(
      `HTTP/1.1 ${status} ${REASONS[status] ?? 'Bad Request'}\r\nconnection: close\r\ncontent-type: ${PROBLEM_TYPE}\r\ncontent-length: ${Buffer.byteLength(body)}\r\n\r\n${body}`,
      () => socket.destroy(),
    );
  }

  /**
   * No answer: clients of HTTP/2 take one in HTTP/1.1 for a server that is not up yet and try again until their patience
   * ends, and one in HTTP/2 for a server that is up and come back at once. A connection that is closed they take for a no.
   */
  #spokeHttp2(socket: Socket): void {
    const { observation, engine } = this.#front;
    observation.metrics.requestRefused('http2');
    if (!this.#hasToldOfHttp2) {
      this.#hasToldOfHttp2 = true;
      const { grpc } = engine.config;
      const where = grpc === null ? 'sidecar.grpc opens one, and none is set' : `it listens at ${grpc.listen.host}:${grpc.listen.port}`;
      observation.hint(`a client spoke HTTP/2 to a port for HTTP/1.1 and was let go; gRPC has a port of its own: ${where}`);
    }
    socket.end(() => socket.destroy());
  }

  #whatWasWrong(error: NodeJS.ErrnoException): { status: number; code: Code; detail: string; reason: string } {
    switch (error.code) {
      case 'HPE_HEADER_OVERFLOW':
        return {
          status: 431,
          code: Code.payload_too_large,
          detail: `the request's headers are above the limit of ${this.#front.engine.config.limits.headerBytes} bytes`,
          reason: 'head',
        };
      case 'ERR_HTTP_REQUEST_TIMEOUT':
        return {
          status: 408,
          code: Code.invalid_request,
          detail: `the request did not arrive within ${HEAD_MS / 1_000} s (head) or ${REQUEST_MS / 1_000} s (body)`,
          reason: 'slow',
        };
      default:
        return {
          status: 400,
          code: Code.invalid_request,
          detail: `the request is not well-formed HTTP (${error.code ?? 'unknown'})`,
          reason: 'framing',
        };
    }
  }
}

/** Methods of the routes that match a path: `:name` stands for one segment, `*` for the rest. */
function methodsAt(routes: readonly string[], path: string): string[] {
  const asked = path.split('/');
  const methods = new Set<string>();
  for (const route of routes) {
    const [method, pattern] = route.split(' ', 2) as [string, string];
    const parts = pattern.split('/');
    const isOpen = parts.at(-1) === '*';
    if (isOpen ? asked.length < parts.length : asked.length !== parts.length) continue;
    if (parts.every((part, i) => part === '*' || part.startsWith(':') || part === asked[i])) methods.add(method);
  }
  return [...methods];
}

const TOO_FAR_AHEAD = 'too many requests were sent on this connection ahead of their answers: wait for some';
const REASONS: Readonly<Record<number, string>> = { 400: 'Bad Request', 408: 'Request Timeout', 431: 'Request Header Fields Too Large' };

interface Quiet {
  looks: number;
  bytes: number;
}

/** Idle since some looks ago. */
function isQuiet(socket: Socket, seen: Map<Socket, Quiet>): boolean {
  const { bytesRead: bytes } = socket;
  const before = seen.get(socket);
  if (before === undefined || before.bytes !== bytes || !lineOf(socket).isIdle) {
    seen.set(socket, { looks: 0, bytes });
    return false;
  }
  return ++before.looks >= QUIET_LOOKS;
}

function placeOf({ remoteAddress, remotePort }: Socket): string {
  return `${remoteAddress} ${remotePort}`;
}

function serverFor(
  handler: RequestListener,
  { guard, proxy, upgrades, tls }: PortOptions,
  headerBytes: number,
  front: Front,
  isClosing: () => boolean,
): Server {
  const options = {
    maxHeaderSize: headerBytes,
    keepAliveTimeout: KEEP_ALIVE_MS,
    headersTimeout: HEAD_MS,
    requestTimeout: REQUEST_MS,
    connectionsCheckingInterval: CHECK_EVERY_MS,
    insecureHTTPParser: false,
    // Two `Host` or `Authorization` headers become one value that is nobody's, instead of the first one winning.
    joinDuplicateHeaders: true,
  };
  const make = tls === undefined ? createServer : tls.server.bind(tls);
  const server = make(options, (request: IncomingMessage, response: ServerResponse) => {
    const line = lineOf(request.socket);
    if (line.doomed) return;
    response.on('close', answered);
    // About to stop: nobody is to keep a connection for a request that would find it closed.
    if (front.draining) response.shouldKeepAlive = false;
    if (isClosing() || tls?.isOutdated(request.socket) === true) response.shouldKeepAlive = false;
    if (!line.opens()) {
      line.doomed = true;
      front.observation.metrics.requestRefused('pipelined');
      refuse(response, Code.caller_busy, codeEntry(Code.caller_busy).http, TOO_FAR_AHEAD, 'close');
      return;
    }
    const refusal = guard(request);
    if (refusal !== null) turnAway(front, line, response, refusal);
    else if (proxy?.isMeant(request) === true) proxy.serve(request, response);
    else handler(request, response);
  });
  server.timeout = front.engine.config.limits.stallMs;
  server.on('timeout', (socket: Socket) => untouched(front, server.timeout, socket));
  if (upgrades !== undefined)
    server.on('upgrade', (request: IncomingMessage, socket: Socket, head: Buffer) => {
      socket.on('error', ignore);
      whenAnswered(socket, () => takeUpgrade(front, server, guard, upgrades, request, socket, head));
    });
  if (proxy !== undefined) server.on('connect', (request: IncomingMessage, socket: Socket) => proxy.tunnel(request, socket));
  return server;
}

function answered(this: ServerResponse): void {
  lineOf(this.req.socket).answered();
}

/**
 * Nothing has moved on a connection for a while: it waits for its next request and has done so for too long, or it does not
 * take what was written. The platform counts bytes of an unfinished write as movement, so a slow reader is not meant. While
 * work is under way it is left alone: a provider may take its time, and of a stream the caller may.
 */
function untouched(front: Front, stallMs: number, socket: Socket): void {
  if (socket.timeout !== stallMs) {
    socket.destroy();
    return;
  }
  if (socket.writableLength > 0 && lineOf(socket).isIdle) {
    front.observation.metrics.requestRefused('stalled');
    socket.destroy();
    return;
  }
  socket.setTimeout(stallMs);
}

/** The platform hands out connections that offer another protocol before anybody has looked at them: the guard looks here. */
function takeUpgrade(
  front: Front,
  server: Server,
  guard: PortOptions['guard'],
  upgrades: UpgradeDoor,
  request: IncomingMessage,
  socket: Socket,
  head: Buffer,
): void {
  if (lineOf(socket).doomed) {
    socket.destroy();
    return;
  }
  if (!isForWebSocket(request)) {
    readAgainWithout(server, request, socket, head);
    return;
  }
  const refusal = guard(request);
  if (refusal === null) {
    upgrades.upgrade(request, socket, head);
    return;
  }
  front.observation.metrics.requestRefused(refusal.reason);
  refuseUpgrade(socket, codeOfRefusal(refusal), refusal.status, refusal.detail);
}

function ignore(): void {
  // Whoever has the socket hears of its end.
}

function turnAway(front: Front, line: Line, response: ServerResponse, refusal: Refusal): void {
  line.doomed = true;
  front.observation.metrics.requestRefused(refusal.reason);
  refuse(response, codeOfRefusal(refusal), refusal.status, refusal.detail, refusal.reason === 'framing' ? 'close' : 'hear_out');
}

/** One sentence for whoever wrote the address. */
export function whyNotBound(error: NodeJS.ErrnoException, host: string, port: number): string {
  const place = `${host.includes(':') ? `[${host}]` : host}:${port}`;
  switch (error.code) {
    case 'EADDRINUSE':
      return `the port ${place} is taken by another process`;
    case 'EACCES':
      return `the port ${place} may not be opened by this user (ports below 1024 need a privilege)`;
    case 'EADDRNOTAVAIL':
    case 'ENOTFOUND':
      return `${host} is not an address of this machine`;
    default:
      return `the port ${place} cannot be opened (${error.code ?? error.message})`;
  }
}
