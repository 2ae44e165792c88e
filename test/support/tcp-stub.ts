/**
 * A raw TCP server for answers that no HTTP library would send: bytes exactly as written, at the times the script says,
 * ended by FIN or RST. It reads requests only as far as needed to tell one from the next (content-length bodies).
 */
import { createServer, type AddressInfo, type Server, type Socket } from 'node:net';

/** One request as it came. */
export interface StubRequest {
  /** Request line and headers, without the empty line. */
  readonly head: string;
  readonly body: Buffer;
  /** 1 for the first request over all connections. */
  readonly number: number;
  /** 1 for the first request on its connection. */
  readonly onConnection: number;
}

/** What a script may do with the connection. */
export class StubConnection {
  readonly socket: Socket;
  constructor(socket: Socket) {
    this.socket = socket;
  }
  /** Resolves when the bytes have been handed to the kernel, or the connection is gone. */
  write(data: string | Buffer): Promise<void> {
    if (this.socket.destroyed) return Promise.resolve();
    return new Promise((done) => this.socket.write(typeof data === 'string' ? Buffer.from(data, 'latin1') : data, () => done()));
  }
  /** FIN after what was written. */
  fin(): void {
    this.socket.end();
  }
  /** RST: what was not yet read at the other end may be lost. */
  rst(): void {
    this.socket.resetAndDestroy();
  }
}

export type StubScript = (connection: StubConnection, request: StubRequest) => void | Promise<void>;

export class TcpStub {
  readonly requests: StubRequest[] = [];
  connections = 0;
  readonly #server: Server;
  readonly #open = new Set<Socket>();
  #script: StubScript;
  #waiting: (() => void)[] = [];

  private constructor(script: StubScript) {
    this.#script = script;
    this.#server = createServer({ allowHalfOpen: true }, (socket) => this.#accept(socket));
  }

  static async listen(script: StubScript): Promise<TcpStub> {
    const stub = new TcpStub(script);
    await new Promise<void>((done) => stub.#server.listen(0, '127.0.0.1', done));
    return stub;
  }

  get port(): number {
    return (this.#server.address() as AddressInfo).port;
  }

  get url(): string {
    return `http://127.0.0.1:${this.port}`;
  }

  get openConnections(): number {
    return this.#open.size;
  }

  /** What it does from the next request on. */
  set script(script: StubScript) {
    this.#script = script;
  }

  /** Resolves when no connection is open; at once when that is so already. */
  async allClosed(): Promise<void> {
    while (this.#open.size > 0) await new Promise<void>((done) => this.#waiting.push(done));
  }

  async close(): Promise<void> {
    for (const socket of this.#open) socket.destroy();
    await new Promise<void>((done) => this.#server.close(() => done()));
  }

  #accept(socket: Socket): void {
    this.connections++;
    this.#open.add(socket);
    const connection = new StubConnection(socket);
    let seen: Buffer = Buffer.alloc(0);
    let onConnection = 0;
    socket.on('error', () => {});
    socket.on('end', () => socket.end());
    socket.on('close', () => {
      this.#open.delete(socket);
      const waiting = this.#waiting;
      this.#waiting = [];
      for (const done of waiting) done();
    });
    socket.on('data', (data: Buffer) => {
      seen = Buffer.concat([seen, data]);
      for (;;) {
        const end = seen.indexOf('\r\n\r\n');
        if (end < 0) return;
        const head = seen.subarray(0, end).toString('latin1');
        const length = Number(/^content-length: *(\d+)/im.exec(head)?.[1] ?? 0);
        if (seen.length < end + 4 + length) return;
        const request = {
          head,
          body: Buffer.from(seen.subarray(end + 4, end + 4 + length)),
          number: this.requests.length + 1,
          onConnection: ++onConnection,
        };
        seen = seen.subarray(end + 4 + length);
        this.requests.push(request);
        void this.#script(connection, request);
      }
    });
  }
}

/** Lets a script say how it goes without a promise chain: `answer(200, {...}, body)` as bytes. */
export function rawAnswer(status: number, headers: Readonly<Record<string, string | number>>, body = ''): string {
  const lines = Object.entries(headers).map(([name, value]) => `${name}: ${value}\r\n`);
  return `HTTP/1.1 ${status} X\r\n${lines.join('')}\r\n${body}`;
}

/** A request header of a stub's request, or null. */
export function headerIn(request: StubRequest, name: string): string | null {
  const prefix = `${name.toLowerCase()}:`;
  for (const line of request.head.split('\r\n').slice(1))
    if (line.toLowerCase().startsWith(prefix)) return line.slice(prefix.length).trim();
  return null;
}
