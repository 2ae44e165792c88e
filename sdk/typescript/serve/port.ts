/**
 * Serving on a port of the agent's own: every POST is a request of the sidecar. It is for the sidecar alone: a request
 * without the sidecar's headers is turned away, which no web page can send, and so is one under a foreign name of the host.
 * Whoever can reach the port from this machine could call past the sidecar; use the channel where that matters.
 */
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { Header } from '../../../proto/wire/headers.ts';
import type { Settings } from '../options.ts';
import { type Answer, type Handlers, wordsOf } from './handlers.ts';

/** Longer than the sidecar keeps an idle connection, so that the sidecar is the one who closes it. */
const KEEP_ALIVE_MS = 75_000;
const LOOPBACK: ReadonlySet<string> = new Set(['127.0.0.1', 'localhost', '[::1]']);

export class Port {
  readonly #settings: Settings;
  readonly #handlers: Handlers;
  readonly #host: string;
  readonly #server: Server;
  readonly #underWay = new Set<ServerResponse>();

  constructor(settings: Settings, handlers: Handlers, host: string) {
    this.#settings = settings;
    this.#handlers = handlers;
    this.#host = host;
    this.#server = createServer({ keepAliveTimeout: KEEP_ALIVE_MS }, (request, response) => void this.#serve(request, response));
  }

  get port(): number {
    return (this.#server.address() as AddressInfo).port;
  }

  open(port: number): Promise<void> {
    return new Promise((done, fail) => {
      this.#server.once('error', fail);
      this.#server.listen(port, this.#host, () => {
        this.#server.off('error', fail);
        done();
      });
    });
  }

  /** What is under way has `graceMs` to end. */
  async close(graceMs: number): Promise<void> {
    const closed = new Promise<void>((done) => this.#server.close(() => done()));
    for (const response of this.#underWay) if (!response.headersSent) response.setHeader('connection', 'close');
    const grace = this.#settings.clock.after(graceMs, () => this.#server.closeAllConnections());
    await closed;
    grace.cancel();
  }

  async #serve(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const capability = request.headers[Header.capability];
    if (request.method !== 'POST' || typeof capability !== 'string' || !this.#isOurs(request.headers.host)) {
      response.writeHead(404, { 'content-type': 'application/json' });
      response.end('{"error":"this port is for the agent\'s sidecar"}');
      return;
    }
    const gone = new AbortController();
    this.#underWay.add(response);
    response.on('close', () => {
      this.#underWay.delete(response);
      if (!response.writableFinished) gone.abort();
    });
    try {
      const headers = flatHeaders(request);
      const payload = payloadOf(await bodyOf(request), headers['content-type'] ?? '');
      if (payload === BAD_JSON) await send(response, BAD_PAYLOAD);
      else {
        const version = headers[Header.version] ?? '';
        await send(response, await this.#handlers.run({ capability, version, payload, headers, signal: gone.signal }));
      }
    } catch (error) {
      if (!gone.signal.aborted) this.#settings.log(`the answer to ${capability} was cut: ${wordsOf(error)}`);
      // Without its last chunk nobody takes it for a whole one.
      response.destroy();
    }
  }

  #isOurs(host: string | undefined): boolean {
    return !LOOPBACK.has(this.#host) || LOOPBACK.has((host ?? '').replace(/:\d+$/, '').toLowerCase());
  }
}

const BAD_JSON = Symbol('bad JSON');
const BAD_PAYLOAD = {
  status: 400,
  contentType: 'application/json',
  headers: {},
  body: { kind: 'json', value: null, text: '{"error":"the payload is not JSON"}' },
} as const;

async function bodyOf(request: IncomingMessage): Promise<Buffer> {
  const chunks: Buffer[] = [];
  for await (const chunk of request) chunks.push(chunk as Buffer);
  return Buffer.concat(chunks);
}

function flatHeaders(request: IncomingMessage): Record<string, string> {
  const flat: Record<string, string> = {};
  for (const [name, value] of Object.entries(request.headers))
    if (value !== undefined) flat[name] = typeof value === 'string' ? value : value.join(', ');
  return flat;
}

/** JSON unless it says otherwise; text as a string, other bytes as they are. */
function payloadOf(bytes: Buffer, contentType: string): unknown {
  const type = (contentType.split(';', 1)[0] as string).trim().toLowerCase();
  if (type === '' || type === 'application/json' || type.endsWith('+json')) {
    if (bytes.length === 0) return null;
    try {
      return JSON.parse(bytes.toString('utf8')) as unknown;
    } catch {
      return BAD_JSON;
    }
  }
  return type.startsWith('text/') ? bytes.toString('utf8') : bytes;
}

async function send(response: ServerResponse, answer: Answer): Promise<void> {
  const head = { ...answer.headers, 'content-type': answer.contentType };
  const { body } = answer;
  if (body.kind !== 'stream') {
    const bytes = body.kind === 'bytes' ? body.bytes : Buffer.from(body.text);
    response.writeHead(answer.status, { ...head, 'content-length': bytes.length });
    response.end(bytes);
    return;
  }
  response.writeHead(answer.status, head);
  response.flushHeaders();
  let isWhole = false;
  try {
    for (;;) {
      const step = await body.chunks.next();
      if (step.done === true) break;
      if (response.destroyed) return;
      if (!response.write(step.value)) await drained(response);
    }
    isWhole = true;
    response.end();
  } finally {
    if (!isWhole) await body.chunks.return?.();
  }
}

/** Settles when there is room again, or nobody reads any more. */
function drained(response: ServerResponse): Promise<void> {
  return new Promise((done) => {
    const over = (): void => {
      response.off('drain', over);
      response.off('close', over);
      done();
    };
    response.on('drain', over);
    response.on('close', over);
    if (response.destroyed) over();
  });
}
