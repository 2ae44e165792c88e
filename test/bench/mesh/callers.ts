/** The asking end over each protocol, written as a sidecar would: one pool or one session, no object built per call that need not be. */
import { type ClientHttp2Session, type ClientHttp2Stream, connect, constants } from 'node:http2';
import { Client, credentials, Metadata } from '@grpc/grpc-js';
import { realClock } from '../../../base/clock.ts';
import type { Candidate } from '../../../sidecar/table/snapshot.ts';
import { run } from '../../../sidecar/transports/http.ts';
import { Pools } from '../../../sidecar/transports/pools.ts';
import { Exchange } from '../../../sidecar/transports/transport.ts';
import { ANSWER, type Caller, HEADERS, type Ports, type Protocol, QUESTION, STREAM_PATH, UNARY_PATH } from './hop.ts';

/** The product's own pool and exchange over undici. */
class Http1Caller implements Caller {
  readonly #pools = new Pools({ clock: realClock, connectTimeoutMs: 1_000, connectionsPerOrigin: 64, maxResponseHeaderBytes: 16_384 });
  readonly #url: URL;
  readonly #headers = HEADERS.flat();

  constructor(port: number) {
    this.#url = new URL(`http://127.0.0.1:${port}`);
  }

  async call(): Promise<void> {
    const reply = await this.#ask(UNARY_PATH, QUESTION, 'whole');
    if (reply.status !== 200 || reply.body.length !== ANSWER.length) throw new Error(`http1: ${reply.status} ${reply.detail}`);
  }

  async stream(bytes: number): Promise<void> {
    const { stream } = await this.#ask(STREAM_PATH, Buffer.from(String(bytes)), 'stream');
    if (stream === null) throw new Error('http1: no stream');
    let seen = 0;
    await new Promise<void>((done, failed) =>
      stream.pipe({
        chunk: (data) => {
          seen += data.length;
          return true;
        },
        end: () => (seen === bytes ? done() : failed(new Error(`http1: ${seen} bytes`))),
        cut: (_code, detail) => failed(new Error(`http1: ${detail}`)),
      }),
    );
  }

  close(): Promise<void> {
    return this.#pools.close();
  }

  #ask(path: string, body: Buffer, mode: 'whole' | 'stream') {
    const exchange = new Exchange(null as unknown as Candidate, body, 'application/json', {}, [], 8_000, 8_388_608, undefined);
    const pool = this.#pools.use(this.#pools.for(this.#url), this.#url);
    return run(exchange, pool, { method: 'POST', path, headers: this.#headers.slice(), body }, mode);
  }
}

class Http2Caller implements Caller {
  readonly #session: ClientHttp2Session;
  readonly #headers: Readonly<Record<string, string>> = Object.fromEntries(HEADERS);

  constructor(port: number) {
    // A window that does not hold a stream back more than HTTP/1.1 would.
    this.#session = connect(`http://127.0.0.1:${port}`, { settings: { initialWindowSize: 4_194_304 } });
    this.#session.on('connect', () => this.#session.setLocalWindowSize(16_777_216));
  }

  async call(): Promise<void> {
    const chunks: Buffer[] = [];
    await this.#ask(UNARY_PATH, QUESTION, (chunk) => chunks.push(chunk));
    const body = chunks.length === 1 ? (chunks[0] as Buffer) : Buffer.concat(chunks);
    if (body.length !== ANSWER.length) throw new Error(`http2: ${body.length} bytes`);
  }

  async stream(bytes: number): Promise<void> {
    let seen = 0;
    await this.#ask(STREAM_PATH, Buffer.from(String(bytes)), (chunk) => (seen += chunk.length));
    if (seen !== bytes) throw new Error(`http2: ${seen} bytes`);
  }

  async close(): Promise<void> {
    await new Promise<void>((done) => this.#session.close(done));
  }

  #ask(path: string, body: Buffer, came: (chunk: Buffer) => void): Promise<void> {
    return new Promise((done, failed) => {
      const request: ClientHttp2Stream = this.#session.request({ ':method': 'POST', ':path': path, ...this.#headers });
      request.on('response', (headers) => {
        if (headers[':status'] !== 200) failed(new Error(`http2: ${headers[':status']}`));
      });
      request.on('data', came);
      request.on('end', () => (request.rstCode === constants.NGHTTP2_NO_ERROR ? done() : failed(new Error('http2: reset'))));
      request.on('error', failed);
      request.end(body);
    });
  }
}

const asIs = (bytes: Buffer): Buffer => bytes;

class GrpcCaller implements Caller {
  readonly #client: Client;
  readonly #metadata = new Metadata();

  constructor(port: number) {
    this.#client = new Client(`127.0.0.1:${port}`, credentials.createInsecure());
    for (const [name, value] of HEADERS) if (name !== 'content-type') this.#metadata.set(name, value);
  }

  call(): Promise<void> {
    return new Promise((done, failed) => {
      this.#client.makeUnaryRequest(UNARY_PATH, asIs, asIs, QUESTION, this.#metadata, { deadline: Date.now() + 8_000 }, (error, body) => {
        if (error !== null) failed(error);
        else if (body?.length !== ANSWER.length) failed(new Error('grpc: another answer'));
        else done();
      });
    });
  }

  stream(bytes: number): Promise<void> {
    return new Promise((done, failed) => {
      let seen = 0;
      const call = this.#client.makeServerStreamRequest(STREAM_PATH, asIs, asIs, Buffer.from(String(bytes)), this.#metadata);
      call.on('data', (chunk: Buffer) => {
        seen += chunk.length;
      });
      call.on('error', failed);
      call.on('end', () => (seen === bytes ? done() : failed(new Error(`grpc: ${seen} bytes`))));
    });
  }

  async close(): Promise<void> {
    this.#client.close();
  }
}

export function callersFor(ports: Ports): Record<Protocol, Caller> {
  return { http1: new Http1Caller(ports.http1), http2: new Http2Caller(ports.http2), grpc: new GrpcCaller(ports.grpc) };
}
