/**
 * Free ports of 127.0.0.1. Each stays occupied by us until the moment its user is started, so that nobody else takes it; and it
 * is none of those that systems hand out by themselves, so that in that moment no connection of anybody's takes it either.
 */
import { once } from 'node:events';
import { createServer, type Server } from 'node:net';
import { systemRandom } from '../../base/random.ts';

/** Below what Linux (32768) and macOS (49152) hand out by default, above what services are known by. */
const FIRST = 20_000;
const PAST_LAST = 32_768;
const TRIES = 100;

export class Port {
  readonly number: number;
  #holder: Server | null;

  private constructor(number: number, holder: Server) {
    this.number = number;
    this.#holder = holder;
  }

  static async reserve(): Promise<Port> {
    for (let tries = 1; ; tries++) {
      const number = FIRST + Math.floor(systemRandom.next() * (PAST_LAST - FIRST));
      const holder = createServer();
      holder.listen(number, '127.0.0.1');
      try {
        await once(holder, 'listening');
      } catch (error) {
        if (tries < TRIES) continue;
        throw error;
      }
      holder.unref();
      return new Port(number, holder);
    }
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

/** One that was free a moment ago, for a program that keeps it for long and may come back to it. */
export async function unusedPort(): Promise<number> {
  const port = await Port.reserve();
  await port.release();
  return port.number;
}
