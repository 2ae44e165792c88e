/** An HTTP agent for the conformance suite: one path a capability, NDJSON for streams. */
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import type { AddressInfo, Socket } from 'node:net';
import { act, type Answering, behaviourOf, type Seen } from './behaviour.ts';
import type { StartedPeer, TransportFixture } from './fixture.ts';

export class HttpPeer implements StartedPeer {
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

  static async start(seen: Seen): Promise<HttpPeer> {
    const peer = new HttpPeer(seen);
    await new Promise<void>((done) => peer.#server.listen(0, '127.0.0.1', done));
    return peer;
  }

  get url(): string {
    return `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}`;
  }

  provider(behaviour: string): string[] {
    return [`endpoint: {type: http, address: "${behaviour === 'gone' ? 'http://127.0.0.1:1' : this.url}"}`];
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
    const behaviour = behaviourOf((request.url ?? '').slice(1));
    if (behaviour === null) return void response.writeHead(404).end();
    const answering = new HttpAnswering(request, response, this.#seen);
    const headers: Record<string, string> = {};
    for (const [name, value] of Object.entries(request.headers)) headers[name] = String(value);
    const left = request.headers['reach-deadline-ms'];
    await act(
      this.#seen,
      behaviour,
      { body: Buffer.concat(chunks), headers, deadlineMs: left === undefined ? null : Number(left) },
      answering,
    );
  }
}

class HttpAnswering implements Answering {
  readonly #request: IncomingMessage;
  readonly #response: ServerResponse;
  isGone = false;
  #room: () => void = () => undefined;

  constructor(request: IncomingMessage, response: ServerResponse, seen: Seen) {
    this.#request = request;
    this.#response = response;
    response.on('drain', () => this.#room());
    response.on('close', () => {
      this.#room();
      if (response.writableFinished) return;
      this.isGone = true;
      seen.gone++;
    });
  }

  answer(json: string): void {
    this.#whole(200, json, {});
  }

  empty(): void {
    this.#response.writeHead(204).end();
  }

  fail(whose: 'theirs' | 'ours', detail: unknown): void {
    this.#whole(whose === 'theirs' ? 422 : 500, JSON.stringify(detail), {});
  }

  sure(): void {
    this.#whole(200, '[]', { 'reach-definitely-success': 'true' });
  }

  die(): void {
    this.#request.socket.resetAndDestroy();
  }

  halve(): void {
    this.#response.writeHead(200, { 'content-type': 'application/json', 'content-length': 1_000 });
    this.#response.write('{"half":', () => this.#request.socket.destroy());
  }

  malformed(): void {
    this.#whole(200, '{"never": ended', {});
  }

  async write(line: string): Promise<void> {
    if (!this.#response.headersSent) this.#response.writeHead(200, { 'content-type': 'application/x-ndjson' });
    if (this.#response.write(`${line}\n`) || this.isGone) return;
    await new Promise<void>((done) => {
      this.#room = done;
    });
  }

  end(): void {
    if (!this.#response.headersSent) this.#response.writeHead(200, { 'content-type': 'application/x-ndjson' });
    this.#response.end();
  }

  snap(): void {
    this.#request.socket.destroy();
  }

  #whole(status: number, body: string, headers: Readonly<Record<string, string>>): void {
    this.#response
      .writeHead(status, { 'content-type': 'application/json', 'content-length': Buffer.byteLength(body), ...headers })
      .end(body);
  }
}

export const httpFixture: TransportFixture = {
  type: 'http',
  cannot: {},
  errorStatus: { theirs: 422, ours: 500 },
  start: (_t, seen) => HttpPeer.start(seen),
};
