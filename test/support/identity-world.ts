/**
 * A control plane that issues identities, and sidecars that demand them, each a process of its own, on a real nats-server:
 * as an operator sets them up, by the same commands.
 */
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Test } from 'tap';
import { TestAgent } from './agent.ts';
import { ENV, OPERATOR, settingsText } from './control-plane.ts';
import { NatsServer } from './nats.ts';
import { waitUntil } from './settle.ts';
import { freePort, type Program, startProgram } from './sockets.ts';

export const QUERY = 'crm.order.query';
export const CALLER = 'crm.bot.a1';
export const OTHER = 'crm.bot.b2';

export interface SidecarSettings {
  /** Lines under `identity`. */
  readonly identity?: string;
  /** What stands in place of the mesh's `tls`. */
  readonly tls?: string;
  /** Lines of the table: agents of its own. */
  readonly table?: string;
  readonly more?: string;
}

export interface Answered {
  readonly status: number;
  readonly headers: Headers;
  readonly json: { readonly [key: string]: any };
}

export class IdentityWorld {
  readonly nats: NatsServer;
  readonly folder: string;
  readonly agent: TestAgent;
  control!: Program;
  controlUrl = '';
  readonly #t: Test;
  #port = 0;

  static async start(t: Test, identity = ''): Promise<IdentityWorld> {
    const folder = mkdtempSync(join(tmpdir(), 'reach-identity-'));
    t.teardown(() => rmSync(folder, { recursive: true, force: true }));
    const nats = await NatsServer.start(t);
    const agent = await TestAgent.listen('order');
    t.teardown(() => agent.close());
    const world = new IdentityWorld(t, nats, folder, agent);
    await Promise.all([
      world.ctl('identity', 'init', '--out', world.path('keys')),
      world.ctl('identity', 'ca', '--out', world.path('ca'), '--env', ENV),
    ]);
    world.#port = await freePort();
    await world.startControl(identity);
    return world;
  }

  private constructor(t: Test, nats: NatsServer, folder: string, agent: TestAgent) {
    this.#t = t;
    this.nats = nats;
    this.folder = folder;
    this.agent = agent;
  }

  path(...parts: string[]): string {
    return join(this.folder, ...parts);
  }

  /** @param identity lines under `identity` beside the signing key; begins with line breaks. */
  async startControl(identity = '', key = this.path('keys', 'signing-key.pem')): Promise<void> {
    const more = `  identity:\n    signing_key: {file: "${key}"}\n${identity}`;
    const file = this.path('control.yaml');
    writeFileSync(file, settingsText('cp-1', this.nats.url, more, this.#port).replace('level: silent', 'level: info'));
    const program = startProgram('control-plane/main.ts', ['run', file]);
    this.#t.teardown(async () => void (await program.stop()));
    this.control = program;
    this.controlUrl = `http://127.0.0.1:${this.#port}`;
    await program.said(/listens on/, 20_000);
    await waitUntil('the control plane leads', async () => (await this.health()) === 'leading', 15_000, 30);
  }

  async health(): Promise<string> {
    const response = await fetch(`${this.controlUrl}/v1/health`).catch(() => null);
    return response === null ? 'away' : String(((await response.json()) as { status: string }).status);
  }

  /** Runs reachctl; gives what it wrote. */
  async ctl(...args: string[]): Promise<string> {
    const program = startProgram('control-plane/cli/main.ts', args, { env: { REACH_SERVER: this.controlUrl, REACH_TOKEN: OPERATOR } });
    const { code } = await program.ended(30_000);
    if (code !== 0) throw new Error(`reachctl ${args.join(' ')}: exit ${code}\n${program.stderr}`);
    return program.stdout.trim();
  }

  /** The API itself, for what has to be quick. */
  async order(path: string, json: object): Promise<{ readonly [key: string]: any }> {
    const response = await fetch(`${this.controlUrl}${path}`, {
      method: 'POST',
      headers: { authorization: `Bearer ${OPERATOR}`, 'content-type': 'application/json' },
      body: JSON.stringify(json),
    });
    const answer = (await response.json()) as { [key: string]: any };
    if (!response.ok) throw new Error(`${path}: ${response.status} ${answer['detail']}`);
    return answer;
  }

  async token(agent: string, more: object = {}): Promise<string> {
    return (await this.order('/v1/identities', { kind: 'agent', name: agent, ...more }))['token'] as string;
  }

  /** Certificate and token of a sidecar, as an operator makes them. */
  async equip(name: string): Promise<void> {
    mkdirSync(this.path(name), { recursive: true });
    await Promise.all([
      this.ctl('sidecar', 'cert', name, '--ca', this.path('ca'), '--env', ENV, '--out', this.path(name)),
      this.ctl('sidecar', 'add', name, '--out', this.path(name, 'token')),
    ]);
  }

  tls(name: string): string {
    return `{cert: "${this.path(name, `${name}.pem`)}", key: "${this.path(name, `${name}-key.pem`)}", ca: "${this.path('ca', 'ca.pem')}", reload: 200ms}`;
  }

  async sidecar(name: string, settings: SidecarSettings = {}): Promise<Sidecar> {
    const file = this.path(`${name}.yaml`);
    const identity = settings.identity ?? `token: {file: "${this.path(name, 'token')}"}`;
    const port = await freePort();
    writeFileSync(
      file,
      `sidecar:
  name: ${name}
  listen: 127.0.0.1:${port}
  mesh: {listen: "127.0.0.1:0", ${settings.tls ?? `tls: ${this.tls(name)}`}}
  registry: {nats: "${this.nats.url}", env: ${ENV}, addresses: {loopback: true}}
${identity === '' ? '' : `  identity: {${identity}}\n`}${settings.more ?? ''}
${settings.table ?? 'contracts: []\nproviders: []\n'}`,
    );
    const sidecar = new Sidecar(name, file, `http://127.0.0.1:${port}`);
    this.#t.teardown(async () => void (await sidecar.program.stop()));
    await sidecar.program.said(/127\.0\.0\.1:\d+/, 20_000);
    return sidecar;
  }

  /** Hosts the order agent. */
  host(name = 'order-side', settings: SidecarSettings = {}): Promise<Sidecar> {
    return this.sidecar(name, {
      table: `contracts: [{name: ${QUERY}, version: 2.0.0, description: x, acl: ["team:crm"], execution: idempotent}]
providers: [{agent_id: crm.order.1, via: ${name}, offers: [${QUERY}@2.0.0], endpoint: {type: http, address: "${this.agent.url}", path: /}}]
`,
      ...settings,
    });
  }
}

export class Sidecar {
  readonly name: string;
  readonly url: string;
  program: Program;
  readonly #file: string;

  constructor(name: string, file: string, url: string) {
    this.name = name;
    this.url = url;
    this.#file = file;
    this.program = startProgram('sidecar/main.ts', ['run', file]);
  }

  async restart(): Promise<void> {
    await this.program.stop();
    this.program = startProgram('sidecar/main.ts', ['run', this.#file]);
    await this.program.said(/127\.0\.0\.1:\d+/, 20_000);
  }

  async call(token: string | null, headers: Readonly<Record<string, string>> = {}): Promise<Answered> {
    const response = await fetch(`${this.url}/v1/invoke/${QUERY}`, {
      method: 'POST',
      headers: { 'content-type': 'application/json', ...(token === null ? {} : { authorization: `Bearer ${token}` }), ...headers },
      body: '{"order":"O-1"}',
    });
    return { status: response.status, headers: response.headers, json: (await response.json()) as Answered['json'] };
  }

  async ask(path: string, token: string | null = null): Promise<Answered> {
    const response = await fetch(`${this.url}${path}`, { headers: token === null ? {} : { authorization: `Bearer ${token}` } });
    const text = await response.text();
    return {
      status: response.status,
      headers: response.headers,
      json: (text.startsWith('{') ? JSON.parse(text) : { text }) as Answered['json'],
    };
  }
}

export function tokenIn(text: string): string {
  return text.trim().split('\n').at(-1) as string;
}
