/**
 * A gRPC server on bare HTTP/2, for answers that no gRPC library would send: each request is given to a script together
 * with its stream. The service is that of `SHOP_PROTO`; its messages are so small that they are written by hand here.
 */
import {
  createServer,
  type Http2Server,
  type IncomingHttpHeaders,
  type ServerHttp2Session,
  type ServerHttp2Stream,
  type Settings,
} from 'node:http2';
import type { AddressInfo, Socket } from 'node:net';

export const SHOP_PROTO = `syntax = "proto3";
package shop.v1;
message Ask { int32 n = 1; string word = 2; }
message Told { string agent = 1; int32 n = 2; }
service Orders {
  rpc Query(Ask) returns (Told);
  rpc Watch(Ask) returns (stream Told);
}
`;

export interface GrpcRequest {
  readonly path: string;
  readonly headers: IncomingHttpHeaders;
  /** The frame as it came: five bytes of head, then the message. */
  readonly body: Buffer;
  readonly number: number;
  /** 1 for the first connection. */
  readonly onSession: number;
}
export type GrpcScript = (stream: ServerHttp2Stream, request: GrpcRequest, session: ServerHttp2Session) => void;

export class GrpcStub {
  readonly requests: GrpcRequest[] = [];
  readonly sessions: ServerHttp2Session[] = [];
  pings = 0;
  script: GrpcScript;
  onPing: (session: ServerHttp2Session) => void = () => {};
  readonly #server: Http2Server;
  readonly #open = new Set<ServerHttp2Session>();
  readonly #sockets = new Set<Socket>();

  private constructor(script: GrpcScript, settings: Settings) {
    this.script = script;
    this.#server = createServer({ settings, maxSendHeaderBlockLength: 1_048_576 });
    this.#server.on('connection', (socket: Socket) => {
      this.#sockets.add(socket);
      socket.on('close', () => this.#sockets.delete(socket));
    });
    this.#server.on('session', (session) => this.#accept(session));
  }

  static async listen(script: GrpcScript, parts: { host?: string; port?: number; settings?: Settings } = {}): Promise<GrpcStub> {
    const stub = new GrpcStub(script, parts.settings ?? {});
    await new Promise<void>((done, fail) => {
      stub.#server.once('error', fail);
      stub.#server.listen(parts.port ?? 0, parts.host ?? '127.0.0.1', done);
    });
    return stub;
  }

  get port(): number {
    return (this.#server.address() as AddressInfo).port;
  }

  get address(): string {
    return `grpc://127.0.0.1:${this.port}`;
  }

  get openSessions(): number {
    return this.#open.size;
  }

  /** Ends every connection without a word, as a killed process would. */
  kill(): void {
    for (const socket of this.#sockets) socket.resetAndDestroy();
  }

  async close(): Promise<void> {
    for (const session of this.#open) session.destroy();
    if (this.#server.listening) await new Promise<void>((done) => this.#server.close(() => done()));
  }

  #accept(session: ServerHttp2Session): void {
    this.sessions.push(session);
    this.#open.add(session);
    const onSession = this.sessions.length;
    session.on('close', () => this.#open.delete(session));
    session.on('error', () => {});
    session.on('ping', () => {
      this.pings++;
      this.onPing(session);
    });
    session.on('stream', (stream, headers) => {
      const chunks: Buffer[] = [];
      stream.on('error', () => {});
      stream.on('data', (chunk: Buffer) => chunks.push(chunk));
      stream.on('end', () => {
        const request = { path: headers[':path'] ?? '', headers, body: Buffer.concat(chunks), number: this.requests.length + 1, onSession };
        this.requests.push(request);
        this.script(stream, request, session);
      });
    });
  }
}

export const GRPC_HEAD = { ':status': 200, 'content-type': 'application/grpc' };

/** One `Told` in its frame. */
export function told(agent: string, n = 0): Buffer {
  const name = Buffer.from(agent);
  const message = Buffer.concat([Buffer.from([0x0a, name.length]), name, n === 0 ? Buffer.alloc(0) : Buffer.from([0x10, n])]);
  return Buffer.concat([Buffer.from([0, 0, 0, 0, message.length]), message]);
}

/** A whole answer: messages, then the trailers. */
export function answer(
  stream: ServerHttp2Stream,
  frames: readonly Buffer[],
  trailers: Readonly<Record<string, string>> = { 'grpc-status': '0' },
): void {
  if (stream.destroyed) return;
  stream.respond(GRPC_HEAD, { waitForTrailers: true });
  stream.on('wantTrailers', () => stream.sendTrailers(trailers));
  for (const frame of frames) stream.write(frame);
  stream.end();
}
