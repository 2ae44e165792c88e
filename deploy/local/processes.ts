/**
 * The processes of the team: started from this very tree, watched, and stopped by their pids, the last started first.
 * What they say is kept (the end of it), so that a failure can be told in their own words.
 */
import { type ChildProcess, spawn } from 'node:child_process';
import { dirname, extname, join } from 'node:path';
import { fileURLToPath } from 'node:url';

const HERE = dirname(fileURLToPath(import.meta.url));
const EXTENSION = extname(fileURLToPath(import.meta.url));
const KEPT_CHARS = 8_192;
/** Time to end in peace after SIGTERM. */
const PATIENCE_MS = 5_000;

/** Arguments for Node to run a program of this tree, compiled or not as we are ourselves. `source` is named from this folder. */
function nodeArgs(source: string): string[] {
  if (EXTENSION === '.ts') return ['--import', 'tsx', join(HERE, source)];
  // The sidecar as people run it: bundled.
  if (source.endsWith('sidecar/main.ts')) return [join(HERE, source.replace('sidecar/main.ts', 'bundle/main.js'))];
  return ['--enable-source-maps', join(HERE, source.replace(/\.ts$/, EXTENSION))];
}

export class Process {
  readonly name: string;
  readonly pid: number;
  /** The end of what it wrote, both streams together. */
  said = '';
  ended = false;
  /** We asked it to end, or killed it for the story. */
  expected = false;
  readonly end: Promise<void>;

  constructor(name: string, child: ChildProcess) {
    if (child.pid === undefined) throw new Error(`${name} could not be started`);
    this.name = name;
    this.pid = child.pid;
    for (const stream of [child.stdout, child.stderr]) {
      stream?.setEncoding('utf8').on('data', (text: string) => {
        this.said = (this.said + text).slice(-KEPT_CHARS);
      });
    }
    this.end = new Promise((done) => {
      child.once('close', () => {
        this.ended = true;
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
}

export class Processes {
  readonly #all: Process[] = [];

  start(name: string, source: string, args: readonly string[], env: Readonly<Record<string, string>>): Process {
    const child = spawn(process.execPath, [...nodeArgs(source), ...args], {
      env: { ...process.env, ...env },
      stdio: ['ignore', 'pipe', 'pipe'],
    });
    const started = new Process(name, child);
    this.#all.push(started);
    return started;
  }

  get count(): number {
    return this.#all.length;
  }

  /** Processes that ended although nobody asked them to. */
  casualties(): Process[] {
    return this.#all.filter((each) => each.ended && !each.expected);
  }

  /** Asks all of them to end and waits; gives the names of those that had to be killed. */
  async stop(): Promise<string[]> {
    const alive = this.#all.filter((each) => !each.ended).reverse();
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

async function endsWithin(child: Process, ms: number): Promise<boolean> {
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<void>((done) => {
    timer = setTimeout(done, ms);
  });
  await Promise.race([child.end, late]);
  clearTimeout(timer);
  return child.ended;
}
