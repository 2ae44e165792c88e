/** A real control plane inside the test's process: real NATS, real API port, and a way to ask it. */
import { Writable } from 'node:stream';
import { stringify } from 'yaml';
import { realClock } from '../../base/clock.ts';
import { createLog } from '../../base/log.ts';
import { SeededRandom } from '../../base/random.ts';
import { readControlPlaneConfig } from '../../control-plane/config.ts';
import { ControlPlane } from '../../control-plane/control-plane.ts';
import { waitUntil } from './settle.ts';

const OPERATOR = 'token-of-the-operator';
export const ENV = 'test';

interface Teardown {
  teardown(end: () => void | Promise<void>): unknown;
}

export interface PlaneOptions {
  /** Default `cp-1`. */
  readonly name?: string;
  /** Further settings under `control_plane`. */
  readonly settings?: Readonly<Record<string, unknown>>;
  /** Wait until it leads. Default true. */
  readonly leads?: boolean;
}

export interface PlaneAnswer {
  readonly status: number;
  // biome-ignore lint/suspicious/noExplicitAny: tests look into whatever came
  readonly json: any;
}

export class Plane {
  readonly control: ControlPlane;
  /** Every log line, parsed. */
  readonly logged: Record<string, unknown>[];
  #isStopped = false;

  /** Starts a replica; it is stopped at the end of the test at the latest. */
  static async start(t: Teardown, natsUrl: string, options: PlaneOptions = {}): Promise<Plane> {
    const name = options.name ?? 'cp-1';
    const text = stringify({
      control_plane: {
        name,
        env: ENV,
        nats: { url: natsUrl },
        api: { listen: '127.0.0.1:0', operators: [{ name: 'tester', role: 'operator', token: OPERATOR }] },
        addresses: { loopback: true, private: true },
        ...options.settings,
      },
    });
    const reading = readControlPlaneConfig(text, 'control-plane.yaml');
    if ('problems' in reading) throw new Error(JSON.stringify(reading.problems));
    const logged: Record<string, unknown>[] = [];
    const to = new Writable({
      write(chunk: Buffer, _encoding, done) {
        for (const line of chunk.toString('utf8').split('\n')) if (line !== '') logged.push(JSON.parse(line) as Record<string, unknown>);
        done();
      },
    });
    const log = createLog({ level: 'info', to, service: name });
    const plane = new Plane(new ControlPlane(reading.config, log, 'test', null, realClock, new SeededRandom(name.length)), logged);
    await plane.control.start();
    t.teardown(() => plane.stop());
    if (options.leads !== false) await plane.leads();
    return plane;
  }

  private constructor(control: ControlPlane, logged: Record<string, unknown>[]) {
    this.control = control;
    this.logged = logged;
  }

  async leads(withinMs = 20_000): Promise<void> {
    await waitUntil(`${this.control.name} leads (${this.control.warnings().join('; ')})`, () => this.control.leading !== null, withinMs);
  }

  async ask(path: string, method = 'GET', body?: unknown): Promise<PlaneAnswer> {
    const isText = typeof body === 'string';
    const response = await fetch(`${this.control.api.url}${path}`, {
      method,
      headers: {
        authorization: `Bearer ${OPERATOR}`,
        connection: 'close',
        ...(body === undefined ? {} : { 'content-type': isText ? 'application/yaml' : 'application/json' }),
      },
      ...(body === undefined ? {} : { body: isText ? body : JSON.stringify(body) }),
    });
    const text = await response.text();
    let json: unknown;
    try {
      json = JSON.parse(text);
    } catch {
      json = text;
    }
    return { status: response.status, json };
  }

  async stop(): Promise<void> {
    if (this.#isStopped) return;
    this.#isStopped = true;
    await this.control.stop(0);
  }
}
