/** A real nats-server for one test: its own port and folder, gone at the end of the test. */
import { mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { realClock } from '../../base/clock.ts';
import { Bus, type BusOptions } from '../../base/nats.ts';
import { SeededRandom } from '../../base/random.ts';
import type { ReconnectPace } from '../../base/reconnect.ts';
import { findNatsServer, HOW_TO_GET_ONE } from '../../deploy/local/nats-binary.ts';
import { NatsProcess } from '../../deploy/local/nats-server.ts';

/** What is needed of tap's `t`. */
interface Teardown {
  teardown(end: () => void | Promise<void>): unknown;
}

/** Back at once: tests do not wait for politeness. */
export const HASTY: ReconnectPace = Object.freeze({ spreadMs: 40, firstMs: 20, mostMs: 200, stableMs: 500 });

const STOPS_WITHIN_MS = 1_000;

/** Each of its threads, as far as the system tells (`/proc`). */
function isStopped(pid: number): boolean {
  try {
    return readdirSync(`/proc/${pid}/task`).every((thread) => /\) T /.test(readFileSync(`/proc/${pid}/task/${thread}/stat`, 'utf8')));
  } catch {
    return true; // not Linux, or it has ended
  }
}

export interface Connection {
  readonly cid: number;
  readonly name?: string;
  readonly subscriptions: number;
}

export class NatsServer {
  readonly process: NatsProcess;
  readonly #t: Teardown;
  #opened = 0;

  /** @param config lines for the server's configuration */
  static async start(t: Teardown, config = ''): Promise<NatsServer> {
    const binary = findNatsServer();
    if (binary === null) throw new Error(HOW_TO_GET_ONE);
    const folder = mkdtempSync(join(tmpdir(), 'reach-test-nats-'));
    t.teardown(() => rmSync(folder, { recursive: true, force: true }));
    const server = await NatsProcess.start({ binary, folder, config });
    t.teardown(() => server.stop());
    return new NatsServer(server, t);
  }

  private constructor(server: NatsProcess, t: Teardown) {
    this.process = server;
    this.#t = t;
  }

  get url(): string {
    return this.process.url;
  }

  async kill(): Promise<void> {
    await this.process.kill();
  }

  /** Same port, same folder. */
  async restart(): Promise<void> {
    await this.process.restart();
  }

  /** It stands still when this returns: the signal alone is under way for a moment, in which a request may still be answered. */
  pause(): void {
    this.process.pause();
    const { pid } = this.process;
    for (const end = performance.now() + STOPS_WITHIN_MS; pid !== null && !isStopped(pid) && performance.now() < end; );
  }

  resume(): void {
    this.process.resume();
  }

  async stop(): Promise<void> {
    await this.process.stop();
  }

  /** A client that comes back quickly, closed with the test. */
  open(options: Partial<BusOptions> = {}): Bus {
    this.#opened++;
    const bus = Bus.open({
      servers: [this.url],
      name: `test-${this.#opened}`,
      clock: realClock,
      random: new SeededRandom(this.#opened),
      pace: HASTY,
      ...options,
    });
    this.#t.teardown(() => bus.close());
    return bus;
  }

  /** As `open`, and connected. */
  async connect(options: Partial<BusOptions> = {}): Promise<Bus> {
    const bus = this.open(options);
    if (!(await bus.ready(10_000))) throw new Error(`no connection to the test's nats-server: ${bus.state.why}`);
    return bus;
  }

  /** What the server's monitor says, such as `jsz?consumers=true`. */
  async monitor(path: string): Promise<Record<string, unknown>> {
    const response = await fetch(`${this.process.monitorUrl}/${path}`);
    return (await response.json()) as Record<string, unknown>;
  }

  async connections(): Promise<Connection[]> {
    return (await this.monitor('connz?subs=0'))['connections'] as Connection[];
  }

  /** Consumers over all streams. */
  async consumers(): Promise<number> {
    return (await this.monitor('jsz'))['consumers'] as number;
  }
}
