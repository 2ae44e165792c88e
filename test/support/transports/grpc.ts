/**
 * A gRPC server for the conformance suite: one method a behaviour, JSON values as messages, described by a .proto file that
 * is written for it. Behind a forwarder of bytes, so that the connection can be broken as a network breaks it.
 */
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { type AddressInfo, connect, createServer, type Server as TcpServer, type Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import {
  Metadata,
  Server,
  ServerCredentials,
  type ServerUnaryCall,
  type ServerWritableStream,
  type UntypedServiceImplementation,
  type sendUnaryData,
  status as Status,
} from '@grpc/grpc-js';
import { loadSync, type MethodDefinition } from '@grpc/proto-loader';
import { fromValue, toValue } from '../grpc-client.ts';
import { act, type Answering, BEHAVIOURS, type Behaviour, CannotDo, capabilityOf, type Seen } from './behaviour.ts';
import type { StartedPeer, TransportFixture } from './fixture.ts';

const SERVICE = 'conformance.v1.Peer';
const STREAMING: ReadonlySet<Behaviour> = new Set(['flows', 'steps', 'silent', 'snaps', 'drips', 'pours']);
const ONE_MESSAGE = 'the answer is one message and counts when it is whole: a break within it is a break before it';

function methodOf(behaviour: Behaviour): string {
  return behaviour.charAt(0).toUpperCase() + behaviour.slice(1);
}

const PROTO = `syntax = "proto3";
package conformance.v1;
import "google/protobuf/struct.proto";
import "google/protobuf/empty.proto";
service Peer {
${BEHAVIOURS.map((behaviour) => {
  const answer = behaviour === 'empty' ? 'google.protobuf.Empty' : 'google.protobuf.Value';
  return `  rpc ${methodOf(behaviour)}(google.protobuf.Value) returns (${STREAMING.has(behaviour) ? 'stream ' : ''}${answer});`;
}).join('\n')}
}
`;

type Call = ServerUnaryCall<object, object> | ServerWritableStream<object, object>;

class GrpcPeer implements StartedPeer {
  readonly #server: Server;
  readonly #folder: string;
  readonly #forwarder: Forwarder;

  private constructor(server: Server, folder: string, forwarder: Forwarder) {
    this.#server = server;
    this.#folder = folder;
    this.#forwarder = forwarder;
  }

  static async start(seen: Seen): Promise<GrpcPeer> {
    const folder = mkdtempSync(join(tmpdir(), 'reach-grpc-peer-'));
    const file = join(folder, 'peer.proto');
    writeFileSync(file, PROTO);
    const definition = loadSync(file, { keepCase: true, oneofs: true, defaults: true });
    const service = { ...(definition[SERVICE] as unknown as Record<string, MethodDefinition<object, object>>) };
    // What is no message of its type.
    const bad = methodOf('malformed');
    service[bad] = { ...(service[bad] as MethodDefinition<object, object>), responseSerialize: () => Buffer.from([0xff, 0xff, 0xff]) };
    const server = new Server();
    const forwarder = new Forwarder();
    const methods: UntypedServiceImplementation = {};
    for (const behaviour of BEHAVIOURS)
      methods[methodOf(behaviour)] = (call: Call, done?: sendUnaryData<object>) => {
        const asked = { body: bodyOf(call), headers: headersOf(call), deadlineMs: leftOf(call) };
        void act(seen, behaviour, asked, new GrpcAnswering(call, done ?? null, seen, () => forwarder.break()));
      };
    server.addService(service, methods);
    const port = await new Promise<number>((done, fail) =>
      server.bindAsync('127.0.0.1:0', ServerCredentials.createInsecure(), (error, bound) => (error === null ? done(bound) : fail(error))),
    );
    await forwarder.open(port);
    return new GrpcPeer(server, folder, forwarder);
  }

  provider(behaviour: Behaviour | 'gone'): string[] {
    const port = behaviour === 'gone' ? 1 : this.#forwarder.port;
    const methods = behaviour === 'gone' ? `${SERVICE}/Echo` : `${SERVICE}/${methodOf(behaviour)}`;
    return [
      `endpoint: {type: grpc, address: "grpc://127.0.0.1:${port}", descriptor: "${join(this.#folder, 'peer.proto')}", methods: {${capabilityOf(behaviour)}: ${methods}}}`,
    ];
  }

  open(): number {
    return this.#forwarder.size;
  }

  async close(): Promise<void> {
    this.#server.forceShutdown();
    await this.#forwarder.close();
    rmSync(this.#folder, { recursive: true, force: true });
  }
}

/** Passes bytes on in both directions until it is told to break every connection. */
class Forwarder {
  readonly #sockets = new Set<Socket>();
  #server: TcpServer | null = null;

  get port(): number {
    const address = this.#server?.address() as AddressInfo | null | undefined;
    return address?.port ?? 0;
  }

  /** Connections of clients. */
  get size(): number {
    return this.#sockets.size;
  }

  async open(to: number): Promise<void> {
    const server = createServer((client) => {
      const target = connect(to, '127.0.0.1');
      this.#sockets.add(client);
      client.on('close', () => {
        this.#sockets.delete(client);
        target.destroy();
      });
      target.on('close', () => client.destroy());
      client.on('error', () => undefined);
      target.on('error', () => undefined);
      client.pipe(target);
      target.pipe(client);
    });
    this.#server = server;
    await new Promise<void>((done) => server.listen(0, '127.0.0.1', done));
  }

  break(): void {
    for (const socket of this.#sockets) socket.resetAndDestroy();
  }

  async close(): Promise<void> {
    for (const socket of this.#sockets) socket.destroy();
    const server = this.#server;
    if (server?.listening === true) await new Promise<void>((done) => server.close(() => done()));
  }
}

class GrpcAnswering implements Answering {
  readonly #call: Call;
  readonly #done: sendUnaryData<object> | null;
  readonly #break: () => void;
  isGone = false;
  #room: () => void = () => undefined;

  constructor(call: Call, done: sendUnaryData<object> | null, seen: Seen, breaks: () => void) {
    this.#call = call;
    this.#done = done;
    this.#break = breaks;
    call.on('cancelled', () => {
      this.isGone = true;
      seen.gone++;
      this.#room();
    });
    call.on('drain', () => this.#room());
    call.on('error', () => undefined);
  }

  answer(json: string): void {
    this.#done?.(null, toValue(JSON.parse(json)));
  }

  empty(): void {
    this.#done?.(null, {});
  }

  fail(whose: 'theirs' | 'ours', detail: unknown): void {
    const code = whose === 'theirs' ? Status.INVALID_ARGUMENT : Status.INTERNAL;
    this.#done?.({ code, details: JSON.stringify(detail) });
  }

  sure(): void {
    const trailers = new Metadata();
    trailers.set('reach-definitely-success', 'true');
    this.#done?.(null, toValue([]), trailers);
  }

  die(): void {
    this.#break();
  }

  halve(): void {
    throw new CannotDo(ONE_MESSAGE);
  }

  malformed(): void {
    this.#done?.(null, {});
  }

  async write(line: string): Promise<void> {
    const stream = this.#call as ServerWritableStream<object, object>;
    if (this.isGone || stream.write(toValue(JSON.parse(line)))) return;
    await new Promise<void>((done) => {
      this.#room = done;
    });
  }

  end(): void {
    (this.#call as ServerWritableStream<object, object>).end();
  }

  snap(): void {
    this.#break();
  }
}

function bodyOf(call: Call): Buffer {
  return Buffer.from(JSON.stringify(fromValue(call.request)), 'utf8');
}

function headersOf(call: Call): Record<string, string> {
  return Object.fromEntries(Object.entries(call.metadata.getMap()).map(([name, value]) => [name, String(value)]));
}

function leftOf(call: Call): number | null {
  const deadline = call.getDeadline();
  const at = deadline instanceof Date ? deadline.getTime() : deadline;
  return Number.isFinite(at) ? at - Date.now() : null;
}

export const grpcFixture: TransportFixture = {
  type: 'grpc',
  errorStatus: { theirs: 400, ours: 500 },
  cannot: {
    exact: "protobuf's fields have types: what they do not hold (an integer beyond 64 bits, the spelling of a number) is not sent",
    halves: ONE_MESSAGE,
  },
  start: (_t, seen) => GrpcPeer.start(seen),
};
