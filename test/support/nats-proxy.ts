/** Stands between clients and a nats-server, and can cut all connections at once while the server knows of no restart. */
import { once } from 'node:events';
import { type AddressInfo, createConnection, createServer, type Server, type Socket } from 'node:net';

export class NatsProxy {
  readonly #server: Server;
  readonly #sockets = new Set<Socket>();
  /** How many connections were accepted. */
  accepted = 0;
  /** While true, whoever comes is hung up on. */
  refuses = false;
  /** What clients sent, when it is recorded; null = it is not. */
  sent: Buffer[] | null = null;
  /** What is sent to the server instead of what clients send. */
  rewrite: ((chunk: Buffer) => Buffer) | null = null;
  readonly #pairs = new Set<readonly [Socket, Socket]>();
  #isBlocked = false;

  /** @param port of the nats-server on 127.0.0.1 */
  static async start(t: { teardown(end: () => void | Promise<void>): unknown }, port: number): Promise<NatsProxy> {
    const proxy = new NatsProxy(port);
    proxy.#server.listen(0, '127.0.0.1');
    await once(proxy.#server, 'listening');
    t.teardown(() => proxy.stop());
    return proxy;
  }

  private constructor(port: number) {
    this.#server = createServer((client) => {
      this.accepted++;
      if (this.refuses) {
        client.destroy();
        return;
      }
      const upstream = createConnection(port, '127.0.0.1');
      this.#keep(client, upstream);
      this.#keep(upstream, client);
      const pair = [client, upstream] as const;
      this.#pairs.add(pair);
      client.on('close', () => this.#pairs.delete(pair));
      client.on('data', (chunk: Buffer) => {
        this.sent?.push(chunk);
        upstream.write(this.rewrite === null ? chunk : this.rewrite(chunk));
      });
      upstream.on('data', (chunk: Buffer) => void client.write(chunk));
      if (this.#isBlocked) pause(pair);
    });
  }

  get url(): string {
    return `nats://127.0.0.1:${(this.#server.address() as AddressInfo).port}`;
  }

  cut(): void {
    for (const socket of this.#sockets) socket.destroy();
  }

  /** Nothing gets through either way, and nobody is hung up on: what was sent meanwhile comes late. */
  block(): void {
    this.#isBlocked = true;
    this.#pairs.forEach(pause);
  }

  unblock(): void {
    this.#isBlocked = false;
    for (const pair of this.#pairs) for (const socket of pair) socket.resume();
  }

  async stop(): Promise<void> {
    const closed = new Promise((done) => this.#server.close(done));
    this.cut();
    await closed;
  }

  #keep(socket: Socket, other: Socket): void {
    this.#sockets.add(socket);
    socket.setNoDelay(true);
    socket.on('error', () => {});
    socket.on('close', () => {
      this.#sockets.delete(socket);
      other.destroy();
    });
  }
}

function pause(pair: readonly [Socket, Socket]): void {
  for (const socket of pair) socket.pause();
}
