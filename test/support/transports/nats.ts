/** A responder on a real nats-server for the conformance suite: one subject a capability, the micro convention's error headers. */
import { type Msg, type MsgHdrs, type NatsConnection, connect, headers as natsHeaders } from 'nats';
import { NatsServer } from '../nats.ts';
import { act, type Answering, behaviourOf, CannotDo, type Seen } from './behaviour.ts';
import type { StartedPeer, TransportFixture } from './fixture.ts';

const NO_CANCEL = 'NATS has no way to take back a request';
const NO_CONNECTION = 'asker and responder have no connection with one another that could break';

class NatsPeer implements StartedPeer {
  readonly #connection: NatsConnection;
  readonly #server: NatsServer;

  private constructor(server: NatsServer, connection: NatsConnection) {
    this.#server = server;
    this.#connection = connection;
  }

  static async start(t: Parameters<typeof NatsServer.start>[0], seen: Seen): Promise<NatsPeer> {
    const server = await NatsServer.start(t);
    const connection = await connect({ servers: server.url, name: 'conformance' });
    connection.subscribe('peer.*.do', {
      callback: (error, message) => {
        if (error === null) void serve(seen, message, connection);
      },
    });
    await connection.flush();
    return new NatsPeer(server, connection);
  }

  /** Nobody has subscribed to the subject of `gone`. */
  provider(behaviour: string): string[] {
    const more = STREAMING.has(behaviour) ? ', stream: true' : behaviour === 'gone' ? ', subject: nobody.is.here' : '';
    return [`endpoint: {type: nats, address: "${this.#server.url}"${more}}`];
  }

  open(): number {
    return 0;
  }

  async close(): Promise<void> {
    await this.#connection.close();
    await this.#server.stop();
  }
}

const STREAMING: ReadonlySet<string> = new Set(['flows', 'steps', 'silent', 'snaps', 'drips', 'pours']);

async function serve(seen: Seen, message: Msg, connection: NatsConnection): Promise<void> {
  const behaviour = behaviourOf(message.subject);
  if (behaviour === null) return;
  const headers: Record<string, string> = {};
  for (const [name, values] of message.headers ?? []) headers[name.toLowerCase()] = values.join(', ');
  const left = headers['reach-deadline-ms'];
  await act(
    seen,
    behaviour,
    { body: Buffer.from(message.data), headers, deadlineMs: left === undefined ? null : Number(left) },
    new NatsAnswering(message, connection),
  );
}

class NatsAnswering implements Answering {
  readonly #message: Msg;
  readonly #connection: NatsConnection;

  constructor(message: Msg, connection: NatsConnection) {
    this.#message = message;
    this.#connection = connection;
  }

  /** Nobody tells it: it goes on until its own connection is closed. */
  get isGone(): boolean {
    return this.#connection.isClosed();
  }

  answer(json: string): void {
    this.#message.respond(Buffer.from(json));
  }

  empty(): void {
    this.#message.respond();
  }

  fail(whose: 'theirs' | 'ours', detail: unknown): void {
    this.#respond(JSON.stringify(detail), { 'Nats-Service-Error': 'no', 'Nats-Service-Error-Code': whose === 'theirs' ? '422' : '500' });
  }

  sure(): void {
    this.#respond('[]', { 'reach-definitely-success': 'true' });
  }

  die(): void {
    throw new CannotDo(NO_CONNECTION);
  }

  halve(): void {
    throw new CannotDo(NO_CONNECTION);
  }

  /** It says that it is JSON. */
  malformed(): void {
    this.#respond('{"never": ended', { 'content-type': 'application/json' });
  }

  write(line: string): Promise<void> {
    this.#message.respond(Buffer.from(line));
    return Promise.resolve();
  }

  end(): void {
    this.#message.respond();
  }

  /** It gives up in the middle and says so. */
  snap(): void {
    this.#respond('', { 'Nats-Service-Error': 'gave up', 'Nats-Service-Error-Code': '500' });
  }

  #respond(text: string, fields: Readonly<Record<string, string>>): void {
    const head: MsgHdrs = natsHeaders();
    for (const [name, value] of Object.entries(fields)) head.set(name, value);
    this.#message.respond(Buffer.from(text), { headers: head });
  }
}

export const natsFixture: TransportFixture = {
  type: 'nats',
  errorStatus: { theirs: 422, ours: 500 },
  cannot: {
    timeout_told: NO_CANCEL,
    cancel_told: NO_CANCEL,
    dies: NO_CONNECTION,
    halves: 'a message comes whole or not at all',
    stream_pace: 'NATS cannot tell a responder to wait: what is not read is held up to 4 MiB, then the stream is cut',
    stream_cancel: NO_CANCEL,
  },
  start: (t, seen) => NatsPeer.start(t, seen),
};
