/**
 * The processes of the team: started from this very tree, watched, and stopped by their pids, the last started first.
 * What they say is kept (the end of it), so that a failure can be told in their own words.
 */
import { type ChildProcess, spawn } from 'node:child_process';
import { dirname, extname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { pythonPath } from './python.ts';
import { treeFile } from './tree.ts';

const HERE = dirname(fileURLToPath(import.meta.url));
const EXTENSION = extname(fileURLToPath(import.meta.url));
const KEPT_CHARS = 65_536;
/** Time to end in peace after SIGTERM. */
const PATIENCE_MS = 5_000;

/** What people run is bundled. Both are named from this folder. */
const BUNDLES: ReadonlyMap<string, string> = new Map([
  ['../../sidecar/main.ts', '../../bundle/main.js'],
  ['../../control-plane/main.ts', '../../bundle-control/reach-control.js'],
  ['../../control-plane/cli/main.ts', '../../bundle-control/reachctl.js'],
]);

/** Arguments for Node to run a program of this tree, compiled or not as we are ourselves. `source` is named from this folder. */
function nodeArgs(source: string): string[] {
  // By its address: we may be run in a folder that has no such package.
  if (EXTENSION === '.ts') return ['--import', import.meta.resolve('tsx'), join(HERE, source)];
  const bundle = BUNDLES.get(source);
  if (bundle !== undefined) return [join(HERE, bundle)];
  return ['--enable-source-maps', join(HERE, source.replace(/\.ts$/, EXTENSION))];
}

export class Process {
  readonly name: string;
  readonly pid: number;
  /** The end of what it wrote, both streams together. */
  said = '';
  stdout = '';
  stderr = '';
  ended = false;
  /** Null while it runs, and when a signal ended it. */
  code: number | null = null;
  /** We asked it to end, or killed it for the story. */
  expected = false;
  readonly end: Promise<void>;

  constructor(name: string, child: ChildProcess) {
    if (child.pid === undefined) throw new Error(`${name} could not be started`);
    this.name = name;
    this.pid = child.pid;
    child.stdout?.setEncoding('utf8').on('data', (text: string) => {
      this.stdout = (this.stdout + text).slice(-KEPT_CHARS);
      this.said = (this.said + text).slice(-KEPT_CHARS);
    });
    child.stderr?.setEncoding('utf8').on('data', (text: string) => {
      this.stderr = (this.stderr + text).slice(-KEPT_CHARS);
      this.said = (this.said + text).slice(-KEPT_CHARS);
    });
    this.end = new Promise((done) => {
      child.once('close', (code) => {
        this.ended = true;
        this.code = code;
        done();
      });
    });
  }

  /** Harmless when it has ended: a pid is never signalled after its process is gone. */
  signal(signal: NodeJS.Signals): void {
    if (this.ended) return;
    this.expected = true;
    try {
      process.kill(this.pid, signal);
    } catch {
      // ended this instant
    }
  }

  /** The first line of JSON that it wrote, with which some programs say that they are ready; null before. */
  get ready(): Readonly<Record<string, unknown>> | null {
    for (const line of this.stdout.split('\n').slice(0, -1)) if (line.startsWith('{')) return JSON.parse(line) as Record<string, unknown>;
    return null;
  }

  /** Its last lines, to be put behind an error; '' when it said nothing. */
  get lastWords(): string {
    const lines = this.said.trim().split('\n').slice(-5).join('\n');
    return lines === '' ? '' : `: ${lines}`;
  }
}

export class Processes {
  readonly #all: Process[] = [];
  /** Started to do one thing and end, such as a command of reachctl. */
  readonly #errands = new Set<Process>();
  #isStopping = false;

  start(name: string, source: string, args: readonly string[], env: Readonly<Record<string, string>>): Process {
    this.#mayStart();
    const started = launch(name, source, args, env);
    this.#all.push(started);
    return started;
  }

  /** @param source of a Python program, from this folder */
  startPython(name: string, source: string, args: readonly string[], env: Readonly<Record<string, string>>): Process {
    this.#mayStart();
    const program = treeFile('deploy', 'local', source);
    const started = spawned(name, pythonPath(), ['-u', program, ...args], { PYTHONDONTWRITEBYTECODE: '1', ...env });
    this.#all.push(started);
    return started;
  }

  /** Runs a program to its end. */
  async run(name: string, source: string, args: readonly string[], env: Readonly<Record<string, string>>): Promise<Process> {
    const errand = launch(name, source, args, env);
    this.#errands.add(errand);
    await errand.end;
    this.#errands.delete(errand);
    return errand;
  }

  /** Those that were started to stay, in order; also those that have ended. */
  all(): readonly Process[] {
    return this.#all;
  }

  /** How many were started to stay. */
  get count(): number {
    return this.#all.length;
  }

  /** Processes that ended although nobody asked them to. */
  casualties(): Process[] {
    return this.#all.filter((each) => each.ended && !each.expected);
  }

  /** Nobody would stop what is started from now on. */
  #mayStart(): void {
    if (this.#isStopping) throw new Error('stopped meanwhile');
  }

  /** Asks all of them to end and waits; gives the names of those that had to be killed. */
  async stop(): Promise<string[]> {
    this.#isStopping = true;
    const alive = [...this.#errands, ...[...this.#all].reverse()].filter((each) => !each.ended);
    for (const each of alive) each.signal('SIGTERM');
    const killed: string[] = [];
    await Promise.all(
      alive.map(async (each) => {
        if (await endsWithin(each, PATIENCE_MS)) return;
        killed.push(each.name);
        each.signal('SIGKILL');
        await endsWithin(each, PATIENCE_MS);
      }),
    );
    return killed;
  }
}

function launch(name: string, source: string, args: readonly string[], env: Readonly<Record<string, string>>): Process {
  return spawned(name, process.execPath, [...nodeArgs(source), ...args], env);
}

function spawned(name: string, program: string, args: readonly string[], env: Readonly<Record<string, string>>): Process {
  const child = spawn(program, args, {
    env: { ...process.env, ...env },
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  return new Process(name, child);
}

async function endsWithin(child: Process, ms: number): Promise<boolean> {
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<void>((done) => {
    timer = setTimeout(done, ms);
  });
  await Promise.race([child.end, late]);
  clearTimeout(timer);
  return child.ended;
}
