/** Ports and processes for tests that need real ones. Everything is bounded in time, and a process is stopped by its pid. */
import { type ChildProcessByStdio, spawn } from 'node:child_process';
import type { Readable } from 'node:stream';
import { putAside } from '../run/written.ts';
import { unusedPort } from '../../deploy/local/ports.ts';
import { nodeArgs, REPO } from './paths.ts';
import { waitUntil } from './settle.ts';

/** A port of 127.0.0.1 that was free a moment ago. Prefer port 0 wherever the program can tell which one it got. */
export function freePort(): Promise<number> {
  return unusedPort();
}

export interface Exit {
  /** Null when a signal ended it. */
  readonly code: number | null;
  readonly signal: NodeJS.Signals | null;
}

export interface ProgramOptions {
  /** Added to the environment of this process. */
  readonly env?: Readonly<Record<string, string>>;
  readonly cwd?: string;
}

/** A program that was started, with all that it has said. */
export class Program {
  readonly pid: number;
  stdout = '';
  stderr = '';
  exit: Exit | null = null;
  readonly #child: ChildProcessByStdio<null, Readable, Readable>;
  readonly #ended: Promise<Exit>;

  constructor(child: ChildProcessByStdio<null, Readable, Readable>) {
    if (child.pid === undefined) throw new Error('the program could not be started');
    this.#child = child;
    this.pid = child.pid;
    child.stdout.setEncoding('utf8').on('data', (text: string) => {
      this.stdout += text;
    });
    child.stderr.setEncoding('utf8').on('data', (text: string) => {
      this.stderr += text;
    });
    this.#ended = new Promise((resolve) => {
      child.once('close', (code, signal) => {
        this.exit = { code, signal };
        const name = nameOf(child.spawnargs);
        putAside(`${name}.${this.pid}.stdout`, this.stdout);
        putAside(`${name}.${this.pid}.stderr`, this.stderr);
        resolve(this.exit);
      });
    });
  }

  /** Resolves when it has ended and said its last word; throws after `withinMs`. */
  async ended(withinMs = 10_000): Promise<Exit> {
    await waitUntil(`process ${this.pid} ends`, () => this.exit !== null, withinMs);
    return await this.#ended;
  }

  /** Waits for `pattern` in stdout or stderr and gives the match; throws with what was said when it ends first or is late. */
  async said(pattern: RegExp, withinMs = 10_000): Promise<RegExpExecArray> {
    const look = (): RegExpExecArray | null => pattern.exec(this.stdout) ?? pattern.exec(this.stderr);
    let match = look();
    try {
      await waitUntil(`process ${this.pid} says ${pattern.source}`, () => (match = look()) !== null || this.exit !== null, withinMs);
    } catch (cause) {
      throw new Error(`${(cause as Error).message}${this.#words()}`);
    }
    if (match === null) throw new Error(`process ${this.pid} ended without saying ${pattern.source}${this.#words()}`);
    return match;
  }

  /** Sends a signal to this process alone; harmless when it has ended. */
  signal(signal: NodeJS.Signals): void {
    if (this.exit === null && this.#child.exitCode === null && this.#child.signalCode === null) process.kill(this.pid, signal);
  }

  /** Asks it to stop, insists after `patienceMs`, and gives how it ended. */
  async stop(patienceMs = 5_000): Promise<Exit> {
    this.signal('SIGTERM');
    try {
      return await this.ended(patienceMs);
    } catch {
      this.signal('SIGKILL');
      return await this.ended(patienceMs);
    }
  }

  #words(): string {
    return `\n--- stdout\n${this.stdout.slice(-4_000)}\n--- stderr\n${this.stderr.slice(-4_000)}`;
  }
}

/** `reachctl-agent-add-…`, or the folder of the program and its arguments: what its words are put aside under. */
function nameOf([, ...args]: readonly string[]): string {
  const words = args.filter((word) => !word.startsWith('--import') && !/loader|tsx/.test(word));
  const said = words.map((word) => word.replace(`${REPO}/`, '')).join(' ');
  return said
    .replace(/.*(control-plane\/cli\/main|reachctl)\.[jt]s/, 'reachctl')
    .replace(/[^\w.-]+/g, '-')
    .slice(0, 80);
}

/** Starts a program of this tree by its source name (`sidecar/main.ts`). Stop it in the test's teardown. */
export function startProgram(source: string, args: readonly string[] = [], options: ProgramOptions = {}): Program {
  return startNode([...nodeArgs(source), ...args], options);
}

/** Starts Node with these arguments. */
export function startNode(args: readonly string[], options: ProgramOptions = {}): Program {
  const child = spawn(process.execPath, args, {
    cwd: options.cwd ?? REPO,
    env: { ...process.env, ...options.env },
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  return new Program(child);
}
