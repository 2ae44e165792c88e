/**
 * A walk along a page as its reader takes it: files are written and commands typed as the page has them, in one folder, and what a
 * command shows is compared with what the page shows. Only ports are others, and `npx`, `npm` and the virtual environment lead to
 * what is built and installed already.
 */
import { spawn } from 'node:child_process';
import { chmodSync, mkdirSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { connect } from 'node:net';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import type { Test } from 'tap';
import { findNatsServer } from '../../deploy/local/nats-binary.ts';
import { pythonPath } from '../../deploy/local/python.ts';
import { likeGrpcurl } from './grpc-client.ts';
import { grpcurl } from './grpcurl.ts';
import { COMPILED, nodeArgs, repoFile } from './paths.ts';
import { waitUntil } from './settle.ts';
import { type Step, unlike } from './tour.ts';

/** A person types more slowly than a table is read again, or an agent has dialled in. */
const PATIENCE_MS = 15_000;

type Command = Extract<Step, { kind: 'command' }>;

interface Shown {
  readonly code: number | null;
  readonly out: string;
  readonly err: string;
}

interface Background {
  readonly command: string;
  readonly said: () => string;
  readonly stop: () => Promise<number | null>;
}

export class Walk {
  readonly folder = mkdtempSync(join(tmpdir(), 'reach-readme-tour-'));
  readonly started: Background[] = [];
  readonly #ports: ReadonlyMap<string, number>;
  readonly #env: NodeJS.ProcessEnv;
  /** What holds for every later command: functions and exported variables. */
  #prelude = '';

  private constructor(ports: ReadonlyMap<string, number>, env: Readonly<Record<string, string>>) {
    this.#ports = ports;
    this.#env = { ...process.env, PATH: `${join(this.folder, 'bin')}:${process.env['PATH']}`, ...env };
    for (const name of ['http_proxy', 'https_proxy', 'all_proxy', 'no_proxy', 'HTTP_PROXY', 'HTTPS_PROXY', 'ALL_PROXY', 'NO_PROXY'])
      delete this.#env[name];
  }

  /** @param ports as they stand on the page, and as they are here. @param env what every command has in its environment */
  static make(t: Test, ports: ReadonlyMap<string, number>, env: Readonly<Record<string, string>> = {}): Walk {
    const walk = new Walk(ports, env);
    t.teardown(async () => {
      for (const each of walk.started) await each.stop();
      rmSync(walk.folder, { recursive: true, force: true });
    });
    walk.#installed();
    return walk;
  }

  /** What `make build`, `npm install` and `pip install` give. */
  #installed(): void {
    const tsx = [process.execPath, '--import', import.meta.resolve('tsx')];
    const sidecar = [process.execPath, ...nodeArgs('sidecar/main.ts')];
    this.#script('bin/node', [`exec ${quoted([process.execPath])} "$@"`]);
    this.#script('bin/npx', [
      'program=$1; shift',
      'case $program in',
      `reach-sidecar) exec ${quoted(sidecar)} "$@";;`,
      `reach-control) exec ${quoted([process.execPath, ...nodeArgs('control-plane/main.ts')])} "$@";;`,
      `reachctl) exec ${quoted([process.execPath, ...nodeArgs('control-plane/cli/main.ts')])} "$@";;`,
      `tsx) exec ${quoted(tsx)} "$@";;`,
      '*) echo "npx $program is not in this test" >&2; exit 2;;',
      'esac',
    ]);
    this.#script('bin/nats-server', [`exec ${quoted([findNatsServer() ?? 'nats-server'])} "$@"`]);
    this.#script('build/tour/python/bin/python', [`exec ${quoted([pythonPath()])} -u "$@"`]);
    const program = grpcurl();
    if (program !== null) this.#script('bin/grpcurl', [`exec ${quoted([program])} "$@"`]);
    // The package as `npm install` lays it down; from its sources when this test runs from its own.
    const manifest = JSON.parse(readFileSync(repoFile('sdk/typescript/package.json'), 'utf8')) as object;
    const sdk = join(this.folder, 'build/tour/node_modules/@agent-reach/sdk');
    mkdirSync(sdk, { recursive: true });
    writeFileSync(
      join(sdk, 'package.json'),
      JSON.stringify(COMPILED ? manifest : { ...manifest, exports: './dist/sdk/typescript/index.ts' }),
    );
    symlinkSync(COMPILED ? repoFile('dist') : repoFile(), join(sdk, 'dist'));
  }

  #script(name: string, lines: readonly string[]): void {
    const path = join(this.folder, name);
    mkdirSync(dirname(path), { recursive: true });
    writeFileSync(path, `#!/bin/sh\n${lines.join('\n')}\n`);
    chmodSync(path, 0o755);
  }

  write(name: string, text: string): void {
    writeFileSync(join(this.folder, 'build/tour', name), this.#local(text));
  }

  /** Until the sidecar has read it: a conversation that is asked sooner stays with what it met. */
  async rewrite(name: string, text: string): Promise<void> {
    const before = await this.#tableVersion();
    this.write(name, text);
    await waitUntil(`${name} to be in force`, async () => (await this.#tableVersion()) > before, PATIENCE_MS);
  }

  async #tableVersion(): Promise<number> {
    const health = (await (await fetch(`${this.#env['REACH_URL']}/v1/health`)).json()) as { table: { version: number } };
    return health.table.version;
  }

  #local(text: string): string {
    return text.replace(new RegExp(`\\b(?:${[...this.#ports.keys()].join('|')})\\b`, 'g'), (port) => String(this.#ports.get(port)));
  }

  #asInReadme(text: string): string {
    let out = text;
    for (const [inReadme, port] of this.#ports) out = out.replaceAll(new RegExp(`\\b${port}\\b`, 'g'), inReadme);
    return out;
  }

  keep(command: string): void {
    this.#prelude += `${this.#local(command)}\n`;
  }

  /** Runs it to its end. */
  async run(command: string): Promise<Shown> {
    if (command.startsWith('grpcurl ') && grpcurl() === null) {
      const { out } = await this.run(`grpcurl() { printf '%s\\0' "$@"; }\n${command}`);
      return await likeGrpcurl(this.#local(out).split('\0').slice(0, -1));
    }
    const child = spawn('bash', ['-c', this.#prelude + this.#local(command)], {
      cwd: this.folder,
      env: this.#env,
      stdio: ['ignore', 'pipe', 'pipe'],
      timeout: 60_000,
    });
    let out = '';
    let err = '';
    child.stdout.setEncoding('utf8').on('data', (text: string) => (out += text));
    child.stderr.setEncoding('utf8').on('data', (text: string) => (err += text));
    const code = await new Promise<number | null>((done) => child.once('close', done));
    return { code, out: this.#asInReadme(out), err };
  }

  /** The port of the README that its last word is, if it is one, takes connections when this is done. */
  async start(command: string): Promise<Background> {
    const child = spawn('bash', ['-c', this.#prelude + this.#local(command)], {
      cwd: this.folder,
      env: this.#env,
      stdio: ['ignore', 'pipe', 'pipe'],
      // A group of its own: what a command starts stops with it.
      detached: true,
    });
    let said = '';
    child.stdout.setEncoding('utf8').on('data', (text: string) => (said += text));
    let isOver = false;
    const ended = new Promise<number | null>((done) => child.once('close', done));
    void ended.then(() => {
      isOver = true;
    });
    const stop = async (): Promise<number | null> => {
      if (!isOver) process.kill(-(child.pid as number), 'SIGTERM');
      const late = setTimeout(() => process.kill(-(child.pid as number), 'SIGKILL'), 10_000);
      const code = await ended;
      clearTimeout(late);
      return code;
    };
    const background = { command, said: () => this.#asInReadme(said), stop };
    this.started.push(background);
    const port = this.#ports.get(command.split(' ').at(-1) as string);
    if (port !== undefined) await waitUntil(`${command} listens`, () => takesConnections(port), PATIENCE_MS);
    return background;
  }
}

function quoted(words: readonly string[]): string {
  return words.map((word) => `'${word}'`).join(' ');
}

function takesConnections(port: number): Promise<boolean> {
  return new Promise((done) => {
    const socket = connect(port, '127.0.0.1');
    socket.once('connect', () => {
      socket.destroy();
      done(true);
    });
    socket.once('error', () => done(false));
  });
}

/** Types it, again until it shows what the page shows or nobody would wait any more. */
export async function typed(t: Test, walk: Walk, step: Command): Promise<void> {
  const { command, shows } = step;
  // The tests of the SDKs install them.
  if (/^(?:npm|python3 -m venv) /.test(command)) return;
  if (/^(?:export \w+=|\w+\(\) \{)/.test(command)) {
    walk.keep(command);
    return;
  }
  const end = performance.now() + PATIENCE_MS;
  const background = step.inBackground ? await walk.start(command) : null;
  if (background !== null && shows === '') return;
  for (;;) {
    const { code, out, err } = background === null ? await walk.run(command) : { code: 0, out: background.said(), err: '' };
    const missing = code === 0 ? unlike(shows, out) : `exit status 0, not ${code}`;
    if (missing === '' || performance.now() > end) {
      t.equal(missing, '', command, missing === '' ? {} : { came: out, err });
      return;
    }
    await new Promise<void>((done) => setTimeout(done, 100));
  }
}
