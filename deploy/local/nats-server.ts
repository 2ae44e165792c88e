/**
 * A nats-server of our own: on 127.0.0.1, on a port that was free, with JetStream in a folder of its own. Never the one that a package
 * starts on the usual port, which has no JetStream and may belong to somebody. It can be killed, brought back on the same port and
 * folder, halted and let go on: that is how faults are tried.
 */
import { type ChildProcess, spawn } from 'node:child_process';
import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { ensureNatsServer, versionOf } from './nats-binary.ts';
import { unusedPort } from './ports.ts';

const START_MOST_MS = 20_000;
const STOP_MOST_MS = 5_000;
const LOOK_EVERY_MS = 15;
const KEPT_CHARS = 16_384;

export interface NatsOptions {
  readonly binary: string;
  /** Its store and its configuration. Must exist; is left behind. */
  readonly folder: string;
  /** 0 = any free one. */
  readonly port?: number;
  /** Lines for its configuration: users, permissions, limits. */
  readonly config?: string;
  /** Every message is on the disk before it is acknowledged; servers before 2.10 do not know it and refuse to start. */
  readonly sync?: 'always';
}

interface Ports {
  readonly nats: number;
  readonly monitor: number;
}

export class NatsProcess {
  readonly #options: NatsOptions;
  #child: ChildProcess | null = null;
  #end: Promise<void> = Promise.resolve();
  #ports: Ports;
  /** The end of its log. */
  said = '';

  /** Throws with its own words when it does not start. */
  static async start(options: NatsOptions): Promise<NatsProcess> {
    const [nats, monitor] = await Promise.all([(options.port ?? 0) === 0 ? unusedPort() : (options.port as number), unusedPort()]);
    const server = new NatsProcess(options, { nats, monitor });
    await server.#start();
    return server;
  }

  private constructor(options: NatsOptions, ports: Ports) {
    this.#options = options;
    this.#ports = ports;
  }

  get url(): string {
    return `nats://127.0.0.1:${this.#ports.nats}`;
  }

  get port(): number {
    return this.#ports.nats;
  }

  /** Base URL of its HTTP monitor (`/connz`, `/jsz`, …). */
  get monitorUrl(): string {
    return `http://127.0.0.1:${this.#ports.monitor}`;
  }

  /** Null while it does not run. */
  get pid(): number | null {
    return this.#child?.pid ?? null;
  }

  get version(): string {
    return versionOf(this.#options.binary);
  }

  /** SIGKILL; resolves when it is gone. */
  async kill(): Promise<void> {
    this.#signal('SIGKILL');
    await this.#end;
  }

  /** Again, on the same port and folder; ends it first if it runs. */
  async restart(): Promise<void> {
    await this.stop();
    await this.#start();
  }

  /** Halts it: connections stay open and nothing answers. */
  pause(): void {
    this.#signal('SIGSTOP');
  }

  resume(): void {
    this.#signal('SIGCONT');
  }

  async stop(): Promise<void> {
    if (this.#child === null) return;
    this.#signal('SIGTERM');
    this.#signal('SIGCONT');
    const late = setTimeout(() => this.#signal('SIGKILL'), STOP_MOST_MS);
    await this.#end;
    clearTimeout(late);
  }

  #signal(signal: NodeJS.Signals): void {
    this.#child?.kill(signal);
  }

  async #start(): Promise<void> {
    const { binary, folder } = this.#options;
    const file = join(folder, 'nats.conf');
    mkdirSync(join(folder, 'store'), { recursive: true });
    for (const name of readdirSync(folder)) if (name.endsWith('.ports')) rmSync(join(folder, name));
    writeFileSync(file, this.#config());
    this.said = '';
    const child = spawn(binary, ['-c', file], { stdio: ['ignore', 'ignore', 'pipe'] });
    child.stderr.setEncoding('utf8').on('data', (text: string) => {
      this.said = (this.said + text).slice(-KEPT_CHARS);
    });
    this.#child = child;
    this.#end = new Promise((done) => {
      const ended = (): void => {
        if (this.#child === child) this.#child = null;
        done();
      };
      child.once('exit', ended);
      child.once('error', (error) => {
        this.said += error.message;
        ended();
      });
    });
    this.#ports = await this.#portsOnceOpen(child);
  }

  #config(): string {
    const { folder, config = '', sync } = this.#options;
    // Not a port that the system chooses: while the server is down, a connection of somebody else could be given it.
    return [
      `host: "127.0.0.1"`,
      `port: ${this.#ports.nats}`,
      `http: "127.0.0.1:${this.#ports.monitor}"`,
      `ports_file_dir: ${JSON.stringify(folder)}`,
      `server_name: "local"`,
      `jetstream { store_dir: ${JSON.stringify(join(folder, 'store'))}${sync === undefined ? '' : `, sync_interval: ${sync}`} }`,
      config,
      '',
    ].join('\n');
  }

  /** It writes the file once it takes connections. */
  async #portsOnceOpen(child: ChildProcess): Promise<Ports> {
    const end = performance.now() + START_MOST_MS;
    while (performance.now() < end && this.#child === child) {
      const name = readdirSync(this.#options.folder).find((each) => each.endsWith(`_${child.pid}.ports`));
      const ports = name === undefined ? null : readPorts(join(this.#options.folder, name));
      if (ports !== null) return ports;
      await new Promise((done) => setTimeout(done, LOOK_EVERY_MS));
    }
    const words = this.said.trim();
    await this.kill();
    throw new Error(`nats-server did not start: ${words === '' ? 'it said nothing' : words}`);
  }
}

function readPorts(file: string): Ports | null {
  try {
    const { nats, monitoring } = JSON.parse(readFileSync(file, 'utf8')) as { nats: string[]; monitoring: string[] };
    return { nats: Number(new URL(nats[0] ?? '').port), monitor: Number(new URL(monitoring[0] ?? '').port) };
  } catch {
    return null; // not all of it is written yet
  }
}

/** The NATS that `make dev` and `make demo` work with. */
export interface LocalNats {
  readonly url: string;
  /** Null when it is somebody else's ($REACH_NATS_URL): then it cannot be killed for a story. */
  readonly process: NatsProcess | null;
  /** '' when it is not known before somebody has connected. */
  readonly version: string;
  /** Ends it and removes its folder; leaves somebody else's alone. */
  stop(): Promise<void>;
}

/** What $REACH_NATS_URL names, else one that is started here, found or got by the system's own means. Throws a sentence for people. */
export async function getNats(say: (line: string) => void = () => {}): Promise<LocalNats> {
  const url = process.env['REACH_NATS_URL'] ?? '';
  if (url !== '') return { url, process: null, version: '', stop: async () => {} };
  const binary = ensureNatsServer(say);
  const folder = mkdtempSync(join(tmpdir(), 'reach-nats-'));
  const remove = (): void => rmSync(folder, { recursive: true, force: true });
  try {
    const server = await NatsProcess.start({ binary, folder });
    const stop = async (): Promise<void> => {
      await server.stop();
      remove();
    };
    return { url: server.url, process: server, version: versionOf(binary), stop };
  } catch (error) {
    remove();
    throw error;
  }
}
