/**
 * The registry of a registered team: a nats-server of our own and a control plane beside it, and reachctl to speak to it
 * with. Both can be killed and brought back, on the same ports and with what they kept on disk.
 */
import { mkdirSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { stringify } from 'yaml';
import { put } from './files.ts';
import { ensureNatsServer } from './nats-binary.ts';
import { type LocalNats, NatsProcess } from './nats-server.ts';
import { Port } from './ports.ts';
import type { Process, Processes } from './processes.ts';
import { secret } from './secret.ts';

const LOOK_EVERY_MS = 50;
const START_MS = 30_000;
/** The lease of a leader that was killed has to run out first. */
const LEAD_MS = 20_000;
export const ENVIRONMENT = 'local';
const REPLICA = 'cp-1';
const SECOND = 'cp-2';

/** What a replica says of itself at `/v1/leader`. */
interface LeaderAnswer {
  readonly status: string;
  readonly epoch: string;
  readonly last_seq: number;
}

export class LocalRegistry {
  readonly nats: LocalNats;
  readonly url: string;
  /** What an operator shows to the control plane. */
  readonly token: string;
  /** Name of the replica. */
  readonly name: string;
  readonly #children: Processes;
  readonly #folder: string;
  readonly #port: Port;
  readonly #messages: Readonly<Record<string, unknown>>;
  #plane: Process | null = null;

  /** Starts it; resolves when it leads. @param messages what its settings say of messages */
  static async start(
    children: Processes,
    folder: string,
    nats: LocalNats,
    messages: Readonly<Record<string, unknown>> = {},
  ): Promise<LocalRegistry> {
    const registry = new LocalRegistry(children, folder, nats, await Port.reserve(), messages, REPLICA, secret());
    await registry.startPlane();
    return registry;
  }

  /** A second replica of it, with the same operators; resolves when it is ready. It has no life of its own: whoever stops the first stops it. */
  async second(name = SECOND): Promise<LocalRegistry> {
    const other = new LocalRegistry(this.#children, this.#folder, this.nats, await Port.reserve(), this.#messages, name, this.token);
    await other.startReplica();
    return other;
  }

  private constructor(
    children: Processes,
    folder: string,
    nats: LocalNats,
    port: Port,
    messages: Readonly<Record<string, unknown>>,
    name: string,
    token: string,
  ) {
    this.name = name;
    this.token = token;
    this.#children = children;
    this.#folder = folder;
    this.nats = nats;
    this.#port = port;
    this.#messages = messages;
    this.url = port.url;
    put(this.#settingsFile, this.#settings());
  }

  get plane(): Process {
    if (this.#plane === null) throw new Error('the control plane was not started');
    return this.#plane;
  }

  /** Resolves when it leads. */
  async startPlane(): Promise<void> {
    await this.#start('leads', async () => (await this.get<LeaderAnswer>('/v1/leader')).status === 'leading');
  }

  /** Resolves when it is ready, whoever leads. */
  async startReplica(): Promise<void> {
    await this.#start('is ready', async () => (await this.get<{ ready: boolean }>('/v1/ready')).ready);
  }

  async #start(what: string, isThere: () => Promise<boolean>): Promise<void> {
    await this.#port.release();
    const name = this.name === REPLICA ? 'control plane' : `control plane ${this.name}`;
    const plane = this.#children.start(name, '../../control-plane/main.ts', ['run', this.#settingsFile], {});
    this.#plane = plane;
    const end = performance.now() + Math.max(START_MS, LEAD_MS);
    while (performance.now() < end) {
      if (plane.ended) throw new Error(`the control plane ended at once${plane.lastWords}`);
      if (await isThere().catch(() => false)) return;
      await sleep(LOOK_EVERY_MS);
    }
    throw new Error(`the control plane ${this.name} was not seen to be one that ${what}${plane.lastWords}`);
  }

  /** SIGKILL to both, at once. */
  async kill(): Promise<void> {
    this.plane.signal('SIGKILL');
    await Promise.all([this.#natsProcess.kill(), this.plane.end]);
  }

  /** SIGKILL to nats-server alone. */
  async killNats(): Promise<void> {
    await this.#natsProcess.kill();
  }

  /** The same port, the same folder. */
  async restartNats(): Promise<void> {
    await this.#natsProcess.restart();
  }

  get #natsProcess(): NatsProcess {
    if (this.nats.process === null) throw new Error("this nats-server is somebody else's and is not killed for a story");
    return this.nats.process;
  }

  /** The parsed answer of the control plane's API; throws for everything but 200. */
  async get<T>(path: string): Promise<T> {
    const answer = await fetch(`${this.url}${path}`, { headers: { authorization: `Bearer ${this.token}` } });
    const text = await answer.text();
    if (answer.status !== 200) throw new Error(`GET ${path}: ${answer.status} ${text.slice(0, 300)}`);
    return JSON.parse(text) as T;
  }

  /** Runs reachctl as an operator would. */
  reachctl(...args: readonly string[]): Promise<Process> {
    return this.#children.run(`reachctl ${args[0] ?? ''}`, '../../control-plane/cli/main.ts', args, this.#operatorEnv);
  }

  get #operatorEnv(): Record<string, string> {
    return { REACH_SERVER: this.url, REACH_TOKEN: this.token };
  }

  get #settingsFile(): string {
    return join(this.#folder, this.name === REPLICA ? 'control-plane.yaml' : `control-plane-${this.name}.yaml`);
  }

  #settings(): string {
    return stringify({
      control_plane: {
        name: this.name,
        env: ENVIRONMENT,
        nats: { url: this.nats.url },
        api: { listen: `127.0.0.1:${this.#port.number}`, operators: [{ name: 'demo', role: 'operator', token: this.token }] },
        // Everything here is on one machine.
        addresses: { loopback: true },
        messages: this.#messages,
      },
    });
  }
}

/** A server that may be killed, whatever REACH_NATS_URL names: that one may be somebody's. */
export async function ownNats(folder: string, say: (line: string) => void): Promise<LocalNats> {
  if ((process.env['REACH_NATS_URL'] ?? '') !== '')
    say('REACH_NATS_URL is left alone: this server will be killed, so it is one of our own');
  const binary = ensureNatsServer(say);
  const home = join(folder, 'nats');
  mkdirSync(home, { recursive: true });
  const server = await NatsProcess.start({ binary, folder: home });
  return { url: server.url, process: server, version: server.version, stop: () => server.stop() };
}
