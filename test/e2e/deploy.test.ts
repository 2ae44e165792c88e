/**
 * The Compose file, carried out without Docker: its settings, secrets, scripts and agents as they stand there, with nothing changed
 * but addresses and paths, on real processes and a real nats-server. What a newcomer starts is what is tried.
 */
import { execFileSync, spawnSync } from 'node:child_process';
import { chmodSync, mkdirSync, mkdtempSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { basename, join } from 'node:path';
import t, { type Test } from 'tap';
import { parse } from 'yaml';
import { NatsServer } from '../support/nats.ts';
import { nodeArgs, repoFile } from '../support/paths.ts';
import { freePort, type Program, startNode, startProgram } from '../support/sockets.ts';

t.setTimeout(150_000);

const COMPOSE = repoFile('deploy/compose');

interface Compose {
  readonly secrets: Readonly<Record<string, { readonly file: string }>>;
}

class Here {
  readonly folder: string;
  readonly #changes = new Map<string, string>();
  readonly #t: Test;

  constructor(t: Test) {
    this.#t = t;
    this.folder = mkdtempSync(join(tmpdir(), 'reach-compose-'));
    t.teardown(() => rmSync(this.folder, { recursive: true, force: true }));
  }

  path(...parts: string[]): string {
    return join(this.folder, ...parts);
  }

  /** What stands in the files for what is meant here. */
  means(word: string, here: string): void {
    this.#changes.set(word, here);
  }

  /** A settings file of the Compose file as it is here, and where it lies. */
  settings(file: string, own: Readonly<Record<string, string>>): string {
    let text = readFileSync(join(COMPOSE, 'config', file), 'utf8');
    for (const [word, here] of [...Object.entries(own), ...this.#changes]) text = text.replaceAll(word, here);
    const path = this.path(file);
    writeFileSync(path, text);
    return path;
  }

  run(source: string, ...args: string[]): Program {
    const program = startProgram(source, args, { cwd: this.folder });
    this.#t.teardown(async () => void (await program.stop()));
    return program;
  }

  agent(file: string, env: Readonly<Record<string, string>>): Program {
    const program = startNode([join(COMPOSE, 'agents', file)], { env });
    this.#t.teardown(async () => void (await program.stop()));
    return program;
  }
}

t.test('what the Compose file describes comes up, answers, and ends in peace', async (t) => {
  const here = new Here(t);
  const secrets = here.path('secrets');
  const reachctl = here.path('bin', 'reachctl');
  mkdirSync(here.path('bin'));
  writeFileSync(
    reachctl,
    `#!/bin/sh\nexec ${[process.execPath, ...nodeArgs('control-plane/cli/main.ts')].map((word) => `'${word}'`).join(' ')} "$@"\n`,
  );
  chmodSync(reachctl, 0o755);
  execFileSync('sh', [join(COMPOSE, 'prepare.sh')], { env: { ...process.env, REACH_SECRETS: secrets, REACHCTL: reachctl }, stdio: 'pipe' });

  const nats = await NatsServer.start(t, readFileSync(join(secrets, 'nats', 'nats-users.conf'), 'utf8'));
  const ports = await Promise.all(Array.from({ length: 7 }, freePort));
  const [control1, control2, order, orderMesh, desk, deskMesh, agent] = ports as [number, number, number, number, number, number, number];
  here.means('nats://nats:4222', nats.url);
  here.means('http://nats:8222', nats.process.monitorUrl);
  here.means('http://control-1:7800', `http://127.0.0.1:${control1}`);
  here.means('http://control-2:7800', `http://127.0.0.1:${control2}`);
  here.means('https://order-sidecar:7701', `https://127.0.0.1:${orderMesh}`);
  here.means('https://desk-sidecar:7701', `https://127.0.0.1:${deskMesh}`);
  here.means('http://127.0.0.1:8080', `http://127.0.0.1:${agent}`);
  here.means('state_dir: /var/lib/reach', `state_dir: ${here.path('state')}`);
  const { secrets: named } = parse(readFileSync(join(COMPOSE, 'compose.yaml'), 'utf8'), { merge: true }) as Compose;
  for (const [name, { file }] of Object.entries(named)) here.means(`/run/secrets/${name}`, join(secrets, file.replace('./secrets/', '')));

  const files = [
    here.settings('control-1.yaml', { '0.0.0.0:7800': `127.0.0.1:${control1}` }),
    here.settings('control-2.yaml', { '0.0.0.0:7800': `127.0.0.1:${control2}` }),
  ];
  const controls = files.map((file) => here.run('control-plane/main.ts', 'run', file));
  const health = (program: string, file: string, ...more: string[]) =>
    spawnSync(process.execPath, [...nodeArgs(program), 'health', file, ...more], { encoding: 'utf8' });
  for (const [i, file] of files.entries()) {
    const { status, stdout, stderr } = health('control-plane/main.ts', file, '--ready', '--wait', '40s');
    t.equal(status, 0, `${basename(file)}: ${stderr}${status === 0 ? '' : controls[i]?.stderr}`);
    t.match(stdout, /leading|following/);
  }

  for (const name of ['order', 'desk']) mkdirSync(here.path('run', name), { recursive: true });
  const issue = () =>
    execFileSync('sh', [join(COMPOSE, 'issue.sh')], {
      encoding: 'utf8',
      env: {
        ...process.env,
        PATH: `${here.path('bin')}:${process.env['PATH']}`,
        REACH_SERVER: `http://127.0.0.1:${control2}`,
        REACH_TOKEN_FILE: join(secrets, 'operator'),
        REACH_FOLDER: here.path('run'),
      },
    });
  t.match(issue(), /order: token .*\n.*shop\.order\.1: token .*at order only/s);
  t.equal(issue(), '', 'a second time nothing is issued');
  const token = here.path('run', 'desk', 'agent-token');
  t.equal(statSync(token).mode & 0o777, 0o600);

  const started = new Map<string, Program>();
  for (const [name, port, mesh] of [
    ['order', order, orderMesh],
    ['desk', desk, deskMesh],
  ] as const) {
    const file = here.settings(`${name}.yaml`, {
      '127.0.0.1:7700': `127.0.0.1:${port}`,
      '0.0.0.0:7701': `127.0.0.1:${mesh}`,
      '/run/reach/': `${here.path('run', name)}/`,
    });
    started.set(name, here.run('sidecar/main.ts', 'run', file));
    t.match(health('sidecar/main.ts', file, '--ready', '--wait', '40s'), { status: 0, stdout: /ready: 200/ }, `${name} is ready`);
  }
  const orderAgent = here.agent('order.mjs', { PORT: String(agent) });
  const deskAgent = here.agent('desk.mjs', { REACH_URL: `http://127.0.0.1:${desk}`, REACH_TOKEN_FILE: token, EVERY_MS: '200' });
  await deskAgent.said(/o-\d+: shipped, by shop\.order\.1/, 30_000);

  for (const [name, program] of [['desk', deskAgent], ['order', orderAgent], ...started] as const)
    t.same(await program.stop(15_000), { code: 0, signal: null }, name);
  for (const control of controls) t.same(await control.stop(15_000), { code: 0, signal: null });
  const written = [...started.values(), ...controls].map(({ stdout, stderr }) => stdout + stderr).join('');
  for (const file of [token, here.path('run', 'order', 'sidecar-token'), join(secrets, 'operator'), join(secrets, 'nats', 'order.nk')])
    t.notOk(written.includes(readFileSync(file, 'utf8').trim()), `${basename(file)} stands in no log`);
});
