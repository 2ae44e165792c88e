/** A JSON-RPC 2.0 agent for the conformance suite, over HTTP: one method a capability. */
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import type { AddressInfo, Socket } from 'node:net';
import { act, type Answering, behaviourOf, CannotDo, type Seen } from './behaviour.ts';
import type { StartedPeer, TransportFixture } from './fixture.ts';

const ONE_ANSWER = 'JSON-RPC has one whole answer to a request';

class RpcPeer implements StartedPeer {
  readonly #server: Server;
  readonly #sockets = new Set<Socket>();
  readonly #seen: Seen;

  private constructor(seen: Seen) {
    this.#seen = seen;
    this.#server = createServer((request, response) => void this.#serve(request, response));
    this.#server.on('connection', (socket) => {
      this.#sockets.add(socket);
      socket.on('close', () => this.#sockets.delete(socket));
    });
  }

  static async start(seen: Seen): Promise<RpcPeer> {
    const peer = new RpcPeer(seen);
    await new Promise<void>((done) => peer.#server.listen(0, '127.0.0.1', done));
    return peer;
  }

  provider(behaviour: string): string[] {
    const url = behaviour === 'gone' ? 'http://127.0.0.1:1/rpc' : `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}/rpc`;
    return [`endpoint: {type: jsonrpc, address: "${url}"}`];
  }

  open(): number {
    return this.#sockets.size;
  }

  async close(): Promise<void> {
    for (const socket of this.#sockets) socket.destroy();
    if (this.#server.listening) await new Promise<void>((done) => this.#server.close(() => done()));
  }

  async #serve(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const chunks: Buffer[] = [];
    for await (const chunk of request) chunks.push(chunk as Buffer);
    const text = Buffer.concat(chunks).toString('utf8');
    const { id, method } = JSON.parse(text) as { id: unknown; method: string };
    const behaviour = behaviourOf(method);
    const answering = new RpcAnswering(request, response, this.#seen, id);
    if (behaviour === null) return answering.error(-32601, 'Method not found', undefined);
    const headers: Record<string, string> = {};
    for (const [name, value] of Object.entries(request.headers)) headers[name] = String(value);
    const left = request.headers['reach-deadline-ms'];
    await act(this.#seen, behaviour, { body: paramsIn(text), headers, deadlineMs: left === undefined ? null : Number(left) }, answering);
  }
}

/** The bytes of `params` as they came; it stands last. */
function paramsIn(text: string): Buffer {
  const at = text.indexOf('"params":');
  return Buffer.from(at < 0 ? 'null' : text.slice(at + 9, text.lastIndexOf('}')), 'utf8');
}

class RpcAnswering implements Answering {
  readonly #request: IncomingMessage;
  readonly #response: ServerResponse;
  readonly #id: unknown;
  isGone = false;

  constructor(request: IncomingMessage, response: ServerResponse, seen: Seen, id: unknown) {
    this.#request = request;
    this.#response = response;
    this.#id = id;
    response.on('close', () => {
      if (response.writableFinished) return;
      this.isGone = true;
      seen.gone++;
    });
  }

  answer(json: string): void {
    // Nothing is due to a notification.
    if (this.#id === undefined) this.#response.writeHead(202).end();
    else this.#send(`{"jsonrpc":"2.0","id":${JSON.stringify(this.#id)},"result":${json}}`);
  }

  /** The nearest thing to nothing that the protocol has. */
  empty(): void {
    this.answer('null');
  }

  fail(whose: 'theirs' | 'ours', detail: unknown): void {
    if (whose === 'theirs') this.error(1_422, 'no', detail);
    else this.error(-32603, 'Internal error', detail);
  }

  error(code: number, message: string, data: unknown): void {
    this.#send(JSON.stringify({ jsonrpc: '2.0', id: this.#id, error: { code, message, data } }));
  }

  sure(): void {
    this.#send(`{"jsonrpc":"2.0","id":${JSON.stringify(this.#id)},"result":[]}`, { 'reach-definitely-success': 'true' });
  }

  die(): void {
    this.#request.socket.resetAndDestroy();
  }

  halve(): void {
    this.#response.writeHead(200, { 'content-type': 'application/json', 'content-length': 1_000 });
    this.#response.write('{"jsonrpc":"2.0",', () => this.#request.socket.destroy());
  }

  malformed(): void {
    this.#send('{"jsonrpc":"2.0","id":"somebody else\'s","result":1}');
  }

  write(): Promise<void> {
    return Promise.reject(new CannotDo(ONE_ANSWER));
  }

  end(): void {
    throw new CannotDo(ONE_ANSWER);
  }

  snap(): void {
    throw new CannotDo(ONE_ANSWER);
  }

  #send(text: string, headers: Readonly<Record<string, string>> = {}): void {
    this.#response.writeHead(200, { 'content-type': 'application/json', 'content-length': Buffer.byteLength(text), ...headers }).end(text);
  }
}

export const jsonRpcFixture: TransportFixture = {
  type: 'jsonrpc',
  errorStatus: { theirs: 422, ours: 500 },
  cannot: {
    stream: ONE_ANSWER,
    stream_steps: ONE_ANSWER,
    stream_empty: ONE_ANSWER,
    stream_pace: ONE_ANSWER,
    stream_cut: ONE_ANSWER,
    stream_deadline: ONE_ANSWER,
    stream_cancel: ONE_ANSWER,
  },
  start: (_t, seen) => RpcPeer.start(seen),
};
