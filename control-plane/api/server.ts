/**
 * The control plane's HTTP port: guard before routing, one body limit, tokens, the way to the leader, problem documents,
 * server-sent events, the console's files. What the routes do is decided in their own files, who asks in `who.ts`.
 */
import { createServer, type IncomingMessage, type RequestListener, type Server, type ServerResponse } from 'node:http';
import type { AddressInfo, Socket } from 'node:net';
import { promisify } from 'node:util';
import { gzip } from 'node:zlib';
import { type FastifyError, type FastifyInstance, type FastifyReply, type FastifyRequest, fastify } from 'fastify';
import type { Clock, Timer } from '../../base/clock.ts';
import { HostGuard } from '../../base/host-guard.ts';
import { type Logger, errorWords, printable } from '../../base/log.ts';
import { redactedUrl } from '../../base/redact.ts';
import type { Listen } from '../../proto/language/process-shapes.ts';
import { Code } from '../../proto/wire/codes.ts';
import type { Audit } from '../audit/audit.ts';
import { audited } from './audited.ts';
import { DearWork } from './dear-work.ts';
import type { Session, Sessions } from '../sessions/sessions.ts';
import { mayAct, type Operator, type Operators } from './operators.ts';
import { PROBLEM_TYPE, Refused, unavailable } from './problem.ts';
import { type Lost, relay, RELAYED } from './relay.ts';
import { type Asked, isRefused, type Reply, type Route, type Streaming, strayQuery } from './route.ts';
import { CONSOLE_PATH, EVERYWHERE, sendPlain, type Site } from './site.ts';
import { Who } from './who.ts';

/** How the port finds out who leads. */
export interface LeaderView {
  readonly isLeading: boolean;
  /** Base URL of the leader's API; null when nobody is known to lead. */
  readonly url: string | null;
}

export interface ApiOptions {
  readonly listen: Listen;
  readonly allowedHosts: readonly string[];
  readonly bodyBytes: number;
  readonly connections: number;
  readonly operators: Operators;
  /** Null = nobody signs in, and there is no console. */
  readonly sessions: Sessions | null;
  /** The console's files; null = this build carries none, or they are not to be served. */
  readonly site: Site | null;
  readonly leader: () => LeaderView;
  readonly clock: Clock;
  readonly logger: Logger;
  readonly audit: Audit;
  /** Counted for the metrics: path template, status. */
  readonly count: (route: string, status: number) => void;
}

export const MAX_HEADER_BYTES = 16_384;
const KEEP_ALIVE_MS = 75_000;
const HEAD_MS = 10_000;
const REQUEST_MS = 60_000;
/** How often Node looks for heads and requests that take too long. */
const CHECK_EVERY_MS = 1_000;
/** A comment that keeps proxies from closing a quiet event stream. */
const PING_MS = 15_000;
/** While closing: how often to look for connections that have fallen idle. */
const LOOK_EVERY_MS = 50;
/** A reader that lets this much pile up is cut off: it can ask again and sees the newest state. */
const MAX_UNREAD_BYTES = 4 * 1_048_576;
/** The order was carried out and is not in the audit log yet; why. It waits, and stands in the log of the replica. */
export const UNAUDITED = 'reach-audit-pending';
/** A request on these connections was turned away as it arrived: what was sent behind it is not to be believed, and not carried out. */
const DOOMED = new WeakSet<Socket>();
const JSON_TYPE = 'application/json; charset=utf-8';
/** From here on an answer to a browser is compressed. */
const BIG_CHARS = 8_192;
const SECRET_NAME = /^(access_?token|token|api_?key|auth|authorization|bearer|password|secret|session)$/i;
const BAD_HOST = 'the Host header names no host of this control plane (localhost, 127.0.0.1, [::1], or one of api.allowed_hosts)';
const NO_CONSOLE = 'This control plane serves no console: it is turned off (console.enabled), or this build carries none.';

export class ApiPort {
  readonly app: FastifyInstance;
  readonly #options: ApiOptions;
  readonly #who: Who;
  readonly #dear: DearWork;
  readonly #server: Server;
  readonly #streams = new Set<() => void>();
  readonly #sockets = new Set<Socket>();
  #address: { readonly host: string; readonly port: number };

  constructor(options: ApiOptions, routes: readonly Route[]) {
    this.#options = options;
    this.#who = new Who(options);
    this.#dear = new DearWork(options.clock);
    this.#address = options.listen;
    const guard = new HostGuard(options.allowedHosts, BAD_HOST);
    let made: Server | null = null;
    this.app = fastify({
      logger: false,
      requestIdHeader: false,
      exposeHeadRoutes: false,
      return503OnClosing: false,
      bodyLimit: options.bodyBytes,
      routerOptions: { maxParamLength: 512, caseSensitive: true },
      clientErrorHandler: (error: NodeJS.ErrnoException, socket: Socket) => garbled(error, socket),
      serverFactory: (handler: RequestListener) => {
        made = createServer(
          {
            maxHeaderSize: MAX_HEADER_BYTES,
            keepAliveTimeout: KEEP_ALIVE_MS,
            headersTimeout: HEAD_MS,
            requestTimeout: REQUEST_MS,
            connectionsCheckingInterval: CHECK_EVERY_MS,
            insecureHTTPParser: false,
            joinDuplicateHeaders: true,
          },
          (request: IncomingMessage, response: ServerResponse) => {
            if (DOOMED.has(request.socket)) return;
            const refusal = guard.check(request);
            if (refusal === null || (refusal.reason === 'origin' && isLinkToConsole(request))) return handler(request, response);
            DOOMED.add(request.socket);
            const code = refusal.status === 403 ? Code.forbidden : Code.invalid_request;
            refuse(response, new Refused(refusal.status, code, refusal.detail), true);
          },
        );
        return made;
      },
    } as Parameters<typeof fastify>[0]) as unknown as FastifyInstance;
    this.#server = made as unknown as Server;
    this.#server.maxConnections = options.connections;
    this.#server.on('connection', (socket: Socket) => {
      this.#sockets.add(socket);
      socket.once('close', () => this.#sockets.delete(socket));
    });
    this.app.removeAllContentTypeParsers();
    this.app.addContentTypeParser(
      '*',
      { parseAs: 'string' },
      (_request: FastifyRequest, body: string | Buffer, done: (error: Error | null, body?: unknown) => void) => done(null, String(body)),
    );
    this.app.setErrorHandler((error: FastifyError, request: FastifyRequest, reply: FastifyReply) => this.#failed(error, request, reply));
    this.app.setNotFoundHandler((request: FastifyRequest, reply: FastifyReply) => {
      reply.hijack();
      refuse(
        reply.raw,
        new Refused(
          404,
          Code.invalid_request,
          `there is nothing at ${request.method} ${printable(redactedUrl(request.url), 200)}; see GET /v1/openapi.json`,
        ),
        false,
      );
    });
    for (const route of routes) this.#mount(route);
    this.#mountSite();
  }

  /** Binds; rejects with one sentence when the port cannot be had. */
  async open(): Promise<void> {
    const { host, port } = this.#options.listen;
    try {
      await this.app.listen({ host, port, listenTextResolver: () => '' });
    } catch (error) {
      throw new Error(
        `the API cannot listen on ${host.includes(':') ? `[${host}]` : host}:${port} (${(error as NodeJS.ErrnoException).code ?? 'error'})`,
      );
    }
    const bound = this.#server.address() as AddressInfo;
    this.#address = { host: bound.address, port: bound.port };
  }

  get url(): string {
    const { host, port } = this.#address;
    return `http://${host.includes(':') ? `[${host}]` : host}:${port}`;
  }

  /** Who watches has to look for the leader anew. */
  endStreams(): void {
    for (const end of this.#streams) end();
  }

  /** Ends event streams, lets what is under way end, at most `graceMs`. */
  async close(graceMs: number): Promise<void> {
    this.endStreams();
    const cut = this.#options.clock.after(graceMs, () => {
      for (const socket of this.#sockets) socket.destroy();
    });
    const closed = new Promise<void>((done) => this.#server.close(() => done()));
    this.#server.closeIdleConnections();
    // A kept connection falls idle when its last answer is out, and nobody tells.
    const look = (): Timer =>
      this.#options.clock.after(LOOK_EVERY_MS, () => {
        this.#server.closeIdleConnections();
        looking = look();
      });
    let looking = look();
    await closed;
    looking.cancel();
    cut.cancel();
    await this.app.close();
  }

  #mount(route: Route): void {
    this.app.route({
      method: route.method,
      url: route.path,
      bodyLimit: Math.min(this.#options.bodyBytes, route.body?.maxBytes ?? Number.POSITIVE_INFINITY),
      handler: async (request, reply) => {
        reply.hijack();
        const response = reply.raw;
        response.on('finish', () => this.#options.count(`${route.method} ${route.path}`, response.statusCode));
        try {
          const secretName = secretInQuery(request.query as object);
          if (secretName !== null) return refuse(response, secretInUrl(secretName), false);
          const asks = await this.#who.asks(request.raw, route);
          if (asks instanceof Refused) return refuse(response, asks, false);
          const { operator, session, from } = asks;
          if (route.role !== 'open' && (operator === null || !mayAct(operator, route.role))) {
            this.#turnedAway(route, operator, operator === null ? Code.unauthenticated : Code.forbidden);
            return refuse(response, this.#who.refusal(operator), false);
          }
          const query = oneEach(request.query as Record<string, string | string[]>);
          const stray = typeof query === 'string' ? query : strayQuery(route, query);
          if (stray !== null || typeof query === 'string')
            return refuse(response, new Refused(400, Code.invalid_request, stray ?? ''), false);
          const body = typeof request.body === 'string' ? request.body : '';
          if (route.onLeader && !this.#options.leader().isLeading) return this.#toLeader(request, body, session, response);
          const asked: Asked = { params: request.params as Record<string, string>, query, body, operator, session, from };
          const answer = route.role === 'operator' ? await this.#order(route, asked, response) : await this.#answer(route, asked);
          if (response.destroyed) return;
          if (isRefused(answer)) refuse(response, answer, false);
          else if ('start' in answer) this.#stream(answer, session, response);
          else {
            if ('json' in answer) for (const [name, value] of Object.entries(answer.headers ?? {})) response.setHeader(name, value);
            const [type, text] = 'json' in answer ? [JSON_TYPE, JSON.stringify(answer.json)] : [answer.contentType, answer.text];
            if (session !== null && text.length >= BIG_CHARS) await sendSmall(request.raw, response, answer.status, type, text);
            else send(response, answer.status, type, text);
          }
        } catch (error) {
          this.#options.logger.error({ err: errorWords(error), route: route.path }, 'a fault in the API');
          if (!response.headersSent) refuse(response, new Refused(500, Code.internal, 'a fault in the control plane'), true);
          else response.destroy();
        }
      },
    });
  }

  /** What changes something: it is in the audit log when it is answered, or the answer says that it is not yet. */
  async #order(route: Route, asked: Asked, response: ServerResponse): Promise<Reply> {
    const { reply, unaudited } = await audited(this.#options.audit, route, asked);
    if (unaudited !== null && !response.headersSent) response.setHeader(UNAUDITED, printable(unaudited, 300).replace(/[^\x20-\x7e]/g, '?'));
    return reply;
  }

  async #answer(route: Route, asked: Asked): Promise<Reply> {
    if (route.isDear !== true) return route.handle(asked);
    return (await this.#dear.run(asked.operator?.name ?? '', () => route.handle(asked))) ?? TOO_DEAR;
  }

  #turnedAway({ method, path }: Route, operator: Operator | null, code: Code): void {
    this.#options.audit.refusedRequest({ actor: operator?.name ?? '', role: operator?.role ?? '', route: `${method} ${path}`, code });
  }

  /** A program is told where to ask; what a page asks is carried there. */
  #toLeader(request: FastifyRequest, body: string, session: Session | null, response: ServerResponse): void {
    const { url } = this.#options.leader();
    if (url === null)
      return refuse(
        response,
        unavailable('no replica leads at present: NATS is away, or an election is under way; ask again in a few seconds'),
        false,
      );
    if (request.headers[RELAYED] !== undefined) return refuse(response, ledBack(url), false);
    if (session !== null) return relay(url, request.raw, body, response, (lost) => refuse(response, unanswered(url, lost), false));
    response.setHeader('location', `${url}${request.url}`);
    send(response, 307, JSON_TYPE, JSON.stringify({ leader: url }));
  }

  /** The console's files, and the way there. Paths and not routes: they are no part of the API. */
  #mountSite(): void {
    const { site } = this.#options;
    const answer = (path: (request: FastifyRequest) => string | null) => (request: FastifyRequest, reply: FastifyReply) => {
      reply.hijack();
      const response = reply.raw;
      const secretName = secretInQuery(request.query as object);
      if (secretName !== null) return refuse(response, secretInUrl(secretName), false);
      if (site === null) return sendPlain(response, 404, NO_CONSOLE);
      const name = path(request);
      // Relative, so that it also holds behind a proxy that has put us below a path.
      if (name === null) return sendPlain(response, 302, 'The console is at /console/.', { location: CONSOLE_PATH.slice(1) });
      site.serve(name, request.raw, response).then(
        (isThere) => {
          if (!isThere) sendPlain(response, 404, 'The console has no such file.');
        },
        (error: unknown) => {
          this.#options.logger.error({ err: errorWords(error) }, 'a file of the console cannot be served');
          response.destroy();
        },
      );
      return undefined;
    };
    const method = ['GET', 'HEAD'];
    this.app.route({ method, url: '/', handler: answer(() => null) });
    this.app.route({ method, url: '/console', handler: answer(() => null) });
    this.app.route({ method, url: `${CONSOLE_PATH}*`, handler: answer(({ params }) => (params as { '*': string })['*']) });
  }

  #stream(streaming: Streaming, session: Session | null, response: ServerResponse): void {
    const { clock, sessions } = this.#options;
    response.writeHead(200, { ...EVERYWHERE, 'content-type': 'text/event-stream', 'cache-control': 'no-store', 'x-accel-buffering': 'no' });
    let ping: Timer | null = null;
    const beat = (): void => {
      // A stream goes on for days; the session that it was begun with may be over, or ended.
      if (session !== null && sessions?.isGood(session) !== true) return end();
      response.write(': still here\n\n');
      ping = clock.after(PING_MS, beat);
    };
    ping = clock.after(PING_MS, beat);
    const end = (): void => {
      response.end();
    };
    this.#streams.add(end);
    const stop = streaming.start({
      event: (name, data) => {
        if (response.writableEnded || response.destroyed) return false;
        if (response.writableLength > MAX_UNREAD_BYTES) {
          response.destroy();
          return false;
        }
        response.write(`event: ${name}\ndata: ${JSON.stringify(data)}\n\n`);
        return true;
      },
      end,
    });
    response.on('close', () => {
      ping?.cancel();
      this.#streams.delete(end);
      stop();
    });
  }

  #failed(error: FastifyError, request: FastifyRequest, reply: FastifyReply): void {
    reply.hijack();
    const response = reply.raw;
    DOOMED.add(request.raw.socket);
    if (response.headersSent || response.destroyed) return;
    if (error.statusCode === 413)
      return refuse(
        response,
        new Refused(413, Code.payload_too_large, `the body is above the limit of ${request.routeOptions.bodyLimit} bytes`),
        true,
      );
    if (error.statusCode !== undefined && error.statusCode >= 400 && error.statusCode < 500)
      return refuse(response, new Refused(error.statusCode, Code.invalid_request, error.message), true);
    this.#options.logger.error({ err: errorWords(error), path: printable(redactedUrl(request.url), 200) }, 'a fault in the API');
    refuse(response, new Refused(500, Code.internal, 'a fault in the control plane'), true);
  }
}

/** Words when one stands there twice: whoever looks at the request on its way may take the other one. */
function oneEach(query: Readonly<Record<string, string | string[]>>): Readonly<Record<string, string>> | string {
  const one = Object.create(null) as Record<string, string>;
  for (const [key, value] of Object.entries(query)) {
    if (Array.isArray(value)) return `the query parameter ${JSON.stringify(key.slice(0, 80))} stands there twice`;
    one[key] = value;
  }
  return one;
}

function whatWasWrong(fault: string | undefined): { readonly status: string; readonly code: Code; readonly detail: string } {
  switch (fault) {
    case 'HPE_HEADER_OVERFLOW':
      return {
        status: '431 Request Header Fields Too Large',
        code: Code.payload_too_large,
        detail: `the request's headers are above the limit of ${MAX_HEADER_BYTES} bytes`,
      };
    case 'ERR_HTTP_REQUEST_TIMEOUT':
      return {
        status: '408 Request Timeout',
        code: Code.invalid_request,
        detail: `the request did not arrive within ${HEAD_MS / 1_000} s (head) or ${REQUEST_MS / 1_000} s (body)`,
      };
    default:
      return { status: '400 Bad Request', code: Code.invalid_request, detail: 'the request is not well-formed HTTP' };
  }
}

function refuse(response: ServerResponse, refused: Refused, isLast: boolean): void {
  if (isLast) response.setHeader('connection', 'close');
  if (refused.status === 401) response.setHeader('www-authenticate', 'Bearer');
  if (refused.status === 503) response.setHeader('retry-after', '1');
  for (const [name, value] of Object.entries(refused.headers)) response.setHeader(name, value);
  send(response, refused.status, PROBLEM_TYPE, refused.body());
}

function send(response: ServerResponse, status: number, contentType: string, text: string): void {
  response.writeHead(status, {
    ...EVERYWHERE,
    'content-type': contentType,
    'content-length': String(Buffer.byteLength(text)),
    'cache-control': 'no-store',
  });
  response.end(text);
}

/** To browsers, which ask for big lists again each second, perhaps over a thin line. Nothing secret stands in these beside what others wrote. */
async function sendSmall(
  request: IncomingMessage,
  response: ServerResponse,
  status: number,
  contentType: string,
  text: string,
): Promise<void> {
  if (!/\bgzip\b/.test(String(request.headers['accept-encoding'] ?? ''))) return send(response, status, contentType, text);
  const bytes = await promisify(gzip)(text, { level: 1 });
  if (response.destroyed) return;
  const head = { 'content-type': contentType, 'content-encoding': 'gzip', vary: 'accept-encoding', 'cache-control': 'no-store' };
  response.writeHead(status, { ...EVERYWHERE, ...head, 'content-length': String(bytes.length) });
  response.end(bytes);
}

/** A link to the console in a mail or a chat: a browser follows it from another site, into a window of its own. */
function isLinkToConsole({ method, url, headers }: IncomingMessage): boolean {
  return (
    (method === 'GET' || method === 'HEAD') &&
    (url === '/' || url === '/console' || (url ?? '').startsWith(CONSOLE_PATH)) &&
    headers.origin === undefined &&
    headers['sec-fetch-mode'] === 'navigate' &&
    headers['sec-fetch-dest'] === 'document'
  );
}

const TOO_DEAR = new Refused(
  429,
  Code.rate_limited,
  'many documents of yours wait to be judged already, one after the other: wait for their answers',
  [],
  {},
  { 'retry-after': '1' },
);

/** Another replica has carried it to the leader's address, and it came here. */
const ledBack = (url: string): Refused =>
  unavailable(
    `what only the leader answers was carried to ${url}, as the leader's address, and came to a replica that does not lead: either the lead has just changed (ask again in a few seconds), or that address leads to several replicas. api.public_url must be each replica's own; the name of a proxy belongs in api.allowed_hosts`,
  );

function unanswered(url: string, { why, mayBeDone }: Lost): Refused {
  if (!mayBeDone)
    return unavailable(`this replica does not lead, and no answer came from the one that does, at ${url} (${why}): nothing was changed`);
  const words = `this replica does not lead; the order left for the one that does, at ${url}, and its answer was lost (${why}). It may have been carried out: look before you repeat it`;
  return new Refused(502, Code.connection_lost, words, [], { retryable: false, ambiguous: true });
}

/** The name of a query parameter by which somebody hands over a credential; null = none. */
function secretInQuery(query: object): string | null {
  return Object.keys(query).find((name) => SECRET_NAME.test(name)) ?? null;
}

const secretInUrl = (name: string): Refused =>
  new Refused(
    400,
    Code.invalid_request,
    `${JSON.stringify(name.slice(0, 40))} does not belong into an address, which is kept in histories and logs of proxies: send Authorization: Bearer <token>, or sign in at /console/. Take that token for known to others, and replace it`,
  );

function garbled(error: NodeJS.ErrnoException, socket: Socket): void {
  if (error.code === 'ECONNRESET' || !socket.writable || DOOMED.has(socket)) return void socket.destroy();
  DOOMED.add(socket);
  const { status, code, detail } = whatWasWrong(error.code);
  const body = new Refused(Number(status.slice(0, 3)), code, detail).body();
  socket.end(
    `HTTP/1.1 ${status}\r\nconnection: close\r\ncontent-type: ${PROBLEM_TYPE}\r\ncontent-length: ${Buffer.byteLength(body)}\r\n\r\n${body}`,
  );
}
