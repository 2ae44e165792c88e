/** Free ports of 127.0.0.1. Each stays occupied by us until the moment its user is started, so that nobody else takes it. */
import { once } from 'node:events';
import { createServer, type Server } from 'node:net';

export class Port {
  readonly number: number;
  #holder: Server | null;

  private constructor(number: number, holder: Server) {
    this.number = number;
    this.#holder = holder;
  }

  static async reserve(): Promise<Port> {
    const holder = createServer();
    holder.listen(0, '127.0.0.1');
    await once(holder, 'listening');
    holder.unref();
    const address = holder.address();
    if (address === null || typeof address === 'string') throw new Error('a TCP server without a port');
    return new Port(address.port, holder);
  }

  /** Lets go of it, for the program that is started next. */
  async release(): Promise<void> {
    const holder = this.#holder;
    this.#holder = null;
    if (holder !== null) await new Promise((done) => holder.close(done));
  }

  get url(): string {
    return `http://127.0.0.1:${this.number}`;
  }
}
