/**
 * The tour of README.md as a newcomer walks it: every file is written and every command typed, in the order and the words of
 * the page, and what a command shows is compared with what the page shows. Nothing of the page is repeated here; only ports
 * are others, and `npx`, `npm` and the virtual environment lead to what is built and installed already.
 */
import { spawn } from 'node:child_process';
import { chmodSync, mkdirSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { connect } from 'node:net';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import t, { type Test } from 'tap';
import { likeGrpcurl } from '../support/grpc-client.ts';
import { grpcurl } from '../support/grpcurl.ts';
import { COMPILED, nodeArgs, repoFile } from '../support/paths.ts';
import { pythonPath } from '../../deploy/local/python.ts';
import { waitUntil } from '../support/settle.ts';
import { freePort } from '../support/sockets.ts';
import { type Step, stepsOf, unlike } from '../support/tour.ts';

t.setTimeout(110_000);

const README = readFileSync(repoFile('README.md'), 'utf8');
/** As they stand in the README. */
const PORTS = ['7700', '7702', '9001', '9002'] as const;
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

class Walk {
  readonly folder = mkdtempSync(join(tmpdir(), 'reach-readme-tour-'));
  readonly started: Background[] = [];
  readonly #ports: ReadonlyMap<string, number>;
  readonly #env: NodeJS.ProcessEnv;
  /** What holds for every later command: functions and exported variables. */
  #prelude = '';

  private constructor(ports: ReadonlyMap<string, number>) {
    this.#ports = ports;
    this.#env = {
      ...process.env,
      PATH: `${join(this.folder, 'bin')}:${process.env['PATH']}`,
      REACH_URL: `http://127.0.0.1:${ports.get('7700')}`,
    };
    for (const name of ['http_proxy', 'https_proxy', 'all_proxy', 'no_proxy', 'HTTP_PROXY', 'HTTPS_PROXY', 'ALL_PROXY', 'NO_PROXY'])
      delete this.#env[name];
  }

  static async make(t: Test): Promise<Walk> {
    const walk = new Walk(new Map(await Promise.all(PORTS.map(async (port) => [port, await freePort()] as const))));
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
      `tsx) exec ${quoted(tsx)} "$@";;`,
      '*) echo "npx $program is not in this test" >&2; exit 2;;',
      'esac',
    ]);
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
    return text.replace(new RegExp(`\\b(?:${PORTS.join('|')})\\b`, 'g'), (port) => String(this.#ports.get(port)));
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
      timeout: 20_000,
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
async function typed(t: Test, walk: Walk, step: Command): Promise<void> {
  const { command, shows } = step;
  if (/^(?:npm|python3 -m venv) /.test(command)) {
    t.pass(`${command}: done by the tests of the SDKs`);
    return;
  }
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

/** What the prose says to do. */
async function follow(walk: Walk, text: string, files: ReadonlyMap<string, string>): Promise<void> {
  for (const [, command] of text.matchAll(/`([^`]+) &`/g)) await walk.start(command as string);
  const mistake = /Write `(\w+)` for the first `(\w+)` of `([\w.]+)`/.exec(text);
  if (mistake !== null) {
    const [, wrong, right, name] = mistake as unknown as [string, string, string, string];
    walk.write(name, (files.get(name) as string).replace(right, wrong));
  }
  if (text.includes('Stop both agents')) for (const each of walk.started) if (each.command.includes('agent.mjs')) await each.stop();
}

const TOUR = stepsOf(README, 'A tour of five minutes');

t.test('the tour, from its first line to its last', async (t) => {
  const walk = await Walk.make(t);
  t.comment(grpcurl() === null ? 'no grpcurl here: its stand-in was used' : `with ${grpcurl()}`);
  const files = new Map<string, string>();
  for (const step of TOUR) {
    if (step.kind === 'prose') await follow(walk, step.text, files);
    else if (step.kind === 'command') await typed(t, walk, step);
    else {
      if (files.has(step.name)) await walk.rewrite(step.name, step.text);
      else walk.write(step.name, step.text);
      files.set(step.name, step.text);
    }
  }
  const exits = await Promise.all(walk.started.map(async (each) => `${each.command.includes('agent.mjs') ? 'any' : await each.stop()}`));
  t.ok(exits.every((code) => code === '0' || code === 'any') && exits.length === 5, `what was started ends well: ${exits.join(' ')}`);
});

t.test('the tour shows the same call by every client, and new agents in at most ten lines', async (t) => {
  const commands = TOUR.filter((step) => step.kind === 'command');
  const ways = ['/v1/invoke/demo.text.greet', '/rpc', 'grpcurl ', 'curl -s -x ', 'call.mts', 'call.py'];
  for (const way of ways) {
    const step = commands.find(({ command }) => command.includes(way));
    t.match(step?.shows, /Hello from a/, way);
  }
  for (const name of ['counter.mts', 'speller.py']) {
    const file = TOUR.find((step) => step.kind === 'file' && step.name === name);
    const lines = (file as { text: string }).text.split('\n').filter((line) => line.trim() !== '' && !/^(?:\/\/|#)/.test(line));
    t.ok(lines.length > 3 && lines.length <= 10, `${name} has ${lines.length} lines`);
    t.ok(
      commands.some(({ command, inBackground }) => inBackground && command.includes(name)),
      `${name} is run`,
    );
  }
  const { version } = JSON.parse(readFileSync(repoFile('sdk/typescript/package.json'), 'utf8')) as { version: string };
  t.ok(
    commands.some(({ command }) => command.includes(`agent-reach-sdk-${version}.tgz`)),
    'the package by its name',
  );
});

t.test('its TypeScript is good TypeScript', async (t) => {
  if (!COMPILED) {
    t.comment('the types are those of the build: run compiled');
    return;
  }
  const walk = await Walk.make(t);
  for (const step of TOUR) if (step.kind === 'file' && step.name.endsWith('.mts')) walk.write(step.name, step.text);
  const types = `--types node --typeRoots ${repoFile('node_modules/@types')}`;
  const options = `--ignoreConfig --noEmit --strict --target es2022 --module nodenext ${types}`;
  const { code, out } = await walk.run(`node ${repoFile('node_modules/typescript/bin/tsc')} ${options} build/tour/*.mts`);
  t.equal(code, 0, out);
});

t.test('every page that the README leads to is there', async (t) => {
  for (const [, path] of README.matchAll(/\]\((?!https?:)([^)#]+)(?:#[^)]*)?\)/g)) t.ok(readable(path as string), path as string);
});

t.test('what is shown is compared with what came: this comparison can fail', async (t) => {
  t.equal(unlike('{"a":1, … "elapsed_ms":2.5}', '{"a":1,"b":2,"elapsed_ms":7}'), '');
  t.equal(unlike('a\nb …', 'a b c'), '');
  t.not(unlike('{"a":1}', '{"a":2}'), '');
  t.not(unlike('{"a":1}', '{"a":1}{"b":2}'), '');
  t.not(unlike('{"a":1, … "c":3}', '{"c":3,"a":1}'), '');
  t.not(unlike('… "a b"', '"ab"'), '', 'white space within quotes counts');
  t.not(unlike('{"a":1}', ''), '');
});

function readable(path: string): boolean {
  try {
    readFileSync(fileURLToPath(new URL(path, `file://${repoFile('README.md')}`)));
    return true;
  } catch {
    return false;
  }
}
