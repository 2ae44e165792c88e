/** A small real agent for tests: an HTTP server on 127.0.0.1 that counts what it was asked and answers as it is told. */
import { createServer, type IncomingHttpHeaders, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import type { AddressInfo, Socket } from 'node:net';

export interface AgentRequest {
  readonly method: string;
  readonly path: string;
  readonly headers: IncomingHttpHeaders;
  readonly body: Buffer;
  /** 1 for the first. */
  readonly number: number;
  /** The parsed body; undefined when it is not JSON. */
  readonly json: unknown;
}

/** What to answer; a function of the request may also take the response into its own hands and return nothing. */
export interface AgentAnswer {
  readonly status?: number;
  readonly headers?: Readonly<Record<string, string | string[]>>;
  /** A Buffer or string goes as it is; anything else as JSON. */
  readonly body?: unknown;
}
export type AgentBehaviour = (
  request: AgentRequest,
  response: ServerResponse,
) => AgentAnswer | undefined | Promise<AgentAnswer | undefined>;

export class TestAgent {
  readonly name: string;
  readonly requests: AgentRequest[] = [];
  /** Requests whose caller closed the connection before the answer was out. */
  abandoned = 0;
  /** Requests whose head has arrived; those in `requests` are whole. */
  begun = 0;
  readonly #server: Server;
  readonly #sockets = new Set<Socket>();
  #behaviour: AgentBehaviour;

  private constructor(name: string, behaviour: AgentBehaviour) {
    this.name = name;
    this.#behaviour = behaviour;
    this.#server = createServer((request, response) => void this.#serve(request, response));
    this.#server.on('connection', (socket) => {
      this.#sockets.add(socket);
      socket.on('close', () => this.#sockets.delete(socket));
    });
  }

  /** Without a behaviour it answers 200 with its name and the payload. */
  static async listen(name: string, behaviour?: AgentBehaviour, port = 0): Promise<TestAgent> {
    const agent = new TestAgent(name, behaviour ?? ((request) => ({ body: { agent: name, payload: request.json ?? null } })));
    await new Promise<void>((done, fail) => {
      agent.#server.once('error', fail);
      agent.#server.listen(port, '127.0.0.1', done);
    });
    return agent;
  }

  get executions(): number {
    return this.requests.length;
  }

  get port(): number {
    return (this.#server.address() as AddressInfo).port;
  }

  get url(): string {
    return `http://127.0.0.1:${this.port}`;
  }

  get openConnections(): number {
    return this.#sockets.size;
  }

  /** Idle time after which it closes a kept-alive connection. */
  set keepAliveMs(ms: number) {
    this.#server.keepAliveTimeout = ms;
  }

  set behaviour(behaviour: AgentBehaviour) {
    this.#behaviour = behaviour;
  }

  /** Ends every connection at once, as a killed process would. */
  async close(): Promise<void> {
    for (const socket of this.#sockets) socket.destroy();
    if (this.#server.listening) await new Promise<void>((done) => this.#server.close(() => done()));
  }

  async #serve(request: IncomingMessage, response: ServerResponse): Promise<void> {
    this.begun++;
    const chunks: Buffer[] = [];
    response.on('close', () => {
      if (!response.writableFinished) this.abandoned++;
    });
    try {
      for await (const chunk of request) chunks.push(chunk as Buffer);
    } catch {
      return;
    }
    const body = Buffer.concat(chunks);
    const seen = {
      method: request.method ?? '',
      path: request.url ?? '',
      headers: request.headers,
      body,
      number: this.requests.length + 1,
      json: parsed(body),
    };
    this.requests.push(seen);
    const answer = await this.#behaviour(seen, response);
    if (answer === undefined || response.headersSent || response.destroyed) return;
    const payload = answer.body;
    const isRaw = typeof payload === 'string' || Buffer.isBuffer(payload);
    const bytes = payload === undefined ? '' : isRaw ? payload : JSON.stringify(payload);
    response.writeHead(answer.status ?? 200, { ...(isRaw ? {} : { 'content-type': 'application/json' }), ...answer.headers });
    response.end(bytes);
  }
}

function parsed(body: Buffer): unknown {
  try {
    return JSON.parse(body.toString('utf8'));
  } catch {
    return undefined;
  }
}
