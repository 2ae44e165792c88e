/**
 * The registered mode as its first user meets it: the very files of README.md, with a real nats-server, a real control plane
 * and reachctl as a process. Whoever changes that page changes what this test runs, so that it cannot rot.
 */
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import t, { type Test } from 'tap';
import { NatsServer } from '../support/nats.ts';
import { repoFile } from '../support/paths.ts';
import { waitUntil } from '../support/settle.ts';
import { freePort, type Program, startNode, startProgram } from '../support/sockets.ts';
import { stepsOf } from '../support/tour.ts';
import { typed, Walk } from '../support/walk.ts';

/** Two dozen processes in all, on a machine that may be busy. */
t.setTimeout(150_000);

const README = readFileSync(repoFile('README.md'), 'utf8');
const JSON_TYPE = { 'content-type': 'application/json' };
const TOKEN = 'not-for-production';
/** As they stand in the README. */
const PORTS = ['4222', '7800', '7710', '7711', '7720', '7721', '9001', '9002'] as const;

type Body = Record<string, unknown>;

/** A block of the README, found by the beginning of its first line. */
function readmeBlock(start: string): string {
  for (const match of README.matchAll(/^```[a-z]+\n([^]*?)^```/gm)) if (match[1]?.startsWith(start)) return match[1];
  throw new Error(`README.md has no block that begins with ${start}`);
}

class Tour {
  readonly folder = mkdtempSync(join(tmpdir(), 'reach-registered-'));
  readonly nats: NatsServer;
  readonly #ports: ReadonlyMap<string, number>;

  private constructor(nats: NatsServer, ports: ReadonlyMap<string, number>) {
    this.nats = nats;
    this.#ports = ports;
  }

  static async make(t: Test): Promise<Tour> {
    const nats = await NatsServer.start(t);
    const free = await Promise.all(PORTS.map(async (port) => [port, port === '4222' ? nats.process.port : await freePort()] as const));
    const tour = new Tour(nats, new Map(free));
    t.teardown(() => rmSync(tour.folder, { recursive: true, force: true }));
    return tour;
  }

  port(inReadme: (typeof PORTS)[number]): number {
    return this.#ports.get(inReadme) as number;
  }

  get ports(): ReadonlyMap<string, number> {
    return this.#ports;
  }

  /** With the ports of this run in place of those of the README. */
  local(text: string): string {
    return text.replace(new RegExp(`\\b(${PORTS.join('|')})\\b`, 'g'), (port) => String(this.#ports.get(port)));
  }

  write(file: string, text: string): string {
    const path = join(this.folder, file);
    writeFileSync(path, this.local(text));
    return path;
  }

  start(t: Test, program: string, file: string): Program {
    const started = startProgram(program, ['run', join(this.folder, file)]);
    t.teardown(() => started.stop(15_000));
    return started;
  }

  async ask(port: '7710' | '7720', path: string, payload?: unknown, token: string = TOKEN): Promise<{ status: number; body: Body }> {
    const post = payload === undefined ? {} : { method: 'POST', body: JSON.stringify(payload) };
    const answer = await fetch(`http://127.0.0.1:${this.port(port)}${path}`, {
      ...post,
      headers: { authorization: `Bearer ${token}`, ...JSON_TYPE },
    });
    return { status: answer.status, body: (await answer.json()) as Body };
  }

  greet(): Promise<{ status: number; body: Body }> {
    return this.ask('7720', '/v1/invoke/demo.text.greet', {});
  }

  /** Runs reachctl to its end. */
  async reachctl(...args: readonly string[]): Promise<{ code: number | null; stdout: string; stderr: string }> {
    const env = { REACH_SERVER: `http://127.0.0.1:${this.port('7800')}`, REACH_TOKEN: TOKEN };
    const ran = startProgram('control-plane/cli/main.ts', args, { env, cwd: this.folder });
    const { code } = await ran.ended(20_000);
    return { code, stdout: ran.stdout, stderr: ran.stderr };
  }

  /** Until every sidecar has applied all that concerns it. */
  async everywhere(): Promise<void> {
    let said = '';
    const isCurrent = async (): Promise<boolean> => {
      const { code, stdout, stderr } = await this.reachctl('fleet', '--check');
      said = stdout + stderr;
      return code === 0;
    };
    await waitUntil('every sidecar to be current', isCurrent, 20_000).catch((error: Error) => {
      throw new Error(`${error.message}\n${said}`);
    });
  }
}

t.test('the page of the README about the control plane', async (t) => {
  const whole = t;
  const tour = await Tour.make(t);
  const agentFile = tour.write('agent.mjs', readmeBlock('// agent.mjs'));
  for (const [name, port] of [
    ['a', '9001'],
    ['b', '9002'],
  ] as const) {
    const agent = startNode([agentFile, name, String(tour.port(port))]);
    t.teardown(() => agent.stop());
  }
  tour.write('control-plane.yaml', readmeBlock('# control-plane.yaml'));
  tour.write('greeter.yaml', readmeBlock('# greeter.yaml'));
  tour.write('caller.yaml', readmeBlock('# caller.yaml'));
  const policies = readmeBlock('# policies.yaml');
  tour.write('policies.yaml', policies);
  // The order of a start does not matter: the control plane comes last.
  tour.start(t, 'sidecar/main.ts', 'greeter.yaml');
  let caller = tour.start(t, 'sidecar/main.ts', 'caller.yaml');
  const plane = tour.start(t, 'control-plane/main.ts', 'control-plane.yaml');

  await t.test('an agent that its sidecar registers from the file is called by somebody who names only the capability', async (t) => {
    await waitUntil('the first answer', async () => (await tour.greet().catch(() => null))?.status === 200, 30_000);
    t.match(await tour.greet(), { body: { code: 0, data: { text: 'Hello from a' }, provider: 'demo.greeter.a', version: '1.0.0' } });
  });

  await t.test('another one registers itself, and is in force when it is told so', async (t) => {
    const [, text = ''] = /localhost:7710\/v1\/agents -d '([^']+)'/.exec(README) ?? [];
    const registered = await tour.ask('7710', '/v1/agents', JSON.parse(tour.local(text)), 'token-of-agent-b');
    t.match(registered, {
      status: 201,
      body: { agent: 'demo.greeter.b', state: 'in_force', source: 'api', offers: ['demo.text.greet@1.1.0'] },
    });
    await tour.everywhere();
    const listed = await tour.reachctl('providers', 'list', '--json');
    t.match(JSON.parse(listed.stdout), {
      providers: [
        { agent: 'demo.greeter.a', status: 'online' },
        { agent: 'demo.greeter.b', status: 'online' },
      ],
    });
  });

  await t.test('policies, a canary and a drain are in force everywhere, and explain tells them', async (t) => {
    const applied = await tour.reachctl('apply', 'policies.yaml');
    t.match(applied, {
      code: 0,
      stdout: /\+ policy demo\.text\.greet\n {4}canary\.1\.1\.0: 20%\n {4}timeout: 500ms\nversion 1 is in force/,
    });
    t.match(await tour.reachctl('canary', 'demo.text.greet', '1.1.0=50%'), {
      code: 0,
      stdout: /^demo\.text\.greet: 1\.1\.0 50%; in force at sequence \d+$/m,
    });
    t.match(await tour.reachctl('providers', 'drain', 'demo.greeter.a', '--reason', 'new disk'), {
      code: 0,
      stdout: /^demo\.greeter\.a: draining/,
    });
    await tour.everywhere();
    const explained = await tour.reachctl('explain', 'demo.text.greet', '--sidecar', 'caller', '--as', 'demo.me.1');
    t.match(explained, { code: 0, stdout: /^demo\.greeter\.b would serve version 1\.1\.0\n/ });
    t.match(explained.stdout, /^demo\.greeter\.a +1\.0\.0 +left out +draining$/m);
    t.match(await tour.greet(), { body: { code: 0, provider: 'demo.greeter.b' } });
    t.match((await tour.reachctl('audit')).stdout, /me +provider\.drain +demo\.greeter\.a +new disk/);
  });

  await t.test('a file with a mistake is refused with line and column and changes nothing', async (t) => {
    const before = (await tour.reachctl('policies', 'show')).stdout;
    tour.write('policies.yaml', policies.replace('500ms', '500'));
    const refused = await tour.reachctl('apply', 'policies.yaml');
    t.equal(refused.code, 1);
    t.match(refused.stderr, /policies\.yaml:4:14: timeout must be a duration .* 500 has no unit/);
    t.equal((await tour.reachctl('policies', 'show')).stdout, before);
  });

  await t.test('control plane and NATS are killed: calls go on, also through a sidecar that is restarted meanwhile', async (t) => {
    plane.signal('SIGKILL');
    await Promise.all([plane.ended(), tour.nats.kill()]);
    t.match(await tour.greet(), { status: 200, body: { code: 0, provider: 'demo.greeter.b' } });
    caller.signal('SIGKILL');
    await caller.ended();
    caller = tour.start(whole, 'sidecar/main.ts', 'caller.yaml');
    await caller.said(/listens on .* from last good copy\)\n/, 20_000);
    t.match(await tour.greet(), { status: 200, body: { code: 0, provider: 'demo.greeter.b' } });
    t.match(await tour.ask('7720', '/v1/health'), {
      body: { status: 'stale', config_stale: true, table: { source: 'last good copy', stale_because: /NATS cannot be reached/ } },
    });
    t.match(await tour.reachctl('fleet'), { code: 3, stderr: /cannot be reached/ });
  });

  await t.test('both are back: everything is current again', async (t) => {
    await tour.nats.restart();
    tour.start(whole, 'control-plane/main.ts', 'control-plane.yaml');
    await tour.everywhere();
    // On a busy machine a beacon may come late, and then it is stale again for a moment.
    await waitUntil('a fresh table', async () => (await tour.ask('7720', '/v1/health')).body['status'] === 'ok', 20_000);
    t.match(await tour.ask('7720', '/v1/health'), { body: { table: { source: 'registry' } } });
    const explained = await tour.reachctl('explain', 'demo.text.greet', '--sidecar', 'caller', '--as', 'demo.me.1');
    t.match(explained.stdout, /^demo\.greeter\.a +1\.0\.0 +left out +draining$/m, 'what the operators said has outlived it');
  });

  await t.test('the page about messages, line by line', async (t) => {
    const walk = Walk.make(t, tour.ports, { REACH_SERVER: `http://127.0.0.1:${tour.port('7800')}`, REACH_TOKEN: TOKEN });
    for (const step of stepsOf(README, 'A tour of five minutes'))
      if (step.kind === 'command' && step.command.startsWith('reach() {')) walk.keep(step.command);
    for (const step of stepsOf(README, 'Messages')) {
      if (step.kind === 'file') walk.write(step.name, step.text);
      else if (step.kind === 'command') await typed(t, walk, step);
    }
  });
});
