/**
 * The processes of the bench. Each is started by this one, spoken to over IPC, and stopped by its pid. A measured program
 * is the plain one, with the probe loaded before it.
 */
import { type ChildProcess, spawn } from 'node:child_process';
import { closeSync, openSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { COMPILED, REPO } from '../support/paths.ts';
import type { Ask, Memory, Usage } from './probe.ts';

const ANSWER_WITHIN_MS = 5_000;

/** Node's arguments for a program of this tree, as a user would start it: the sidecar from its bundle, nothing with source maps. */
function plainArgs(program: string, asModules: boolean): string[] {
  if (!COMPILED) return ['--import', import.meta.resolve('tsx'), join(REPO, program)];
  return [program === 'sidecar/main.ts' && !asModules ? join(REPO, 'dist', 'bundle', 'main.js') : built(program)];
}

function probeArgs(): string[] {
  return ['--import', COMPILED ? built('test/bench/probe.ts') : join(REPO, 'test/bench/probe.ts')];
}

function built(program: string): string {
  return join(REPO, 'dist', program.replace(/\.ts$/, '.js'));
}

export interface StartOptions {
  readonly args?: readonly string[];
  /** Load the probe before it. */
  readonly measured: boolean;
  /** The sidecar from its modules, not its bundle: for profiles that name files and functions. */
  readonly asModules: boolean;
  /** File that takes its stdout and stderr. */
  readonly outputFile: string;
  readonly cwd: string;
}

export class Server {
  readonly name: string;
  readonly pid: number;
  readonly #outputFile: string;
  #ended: string | null = null;
  readonly #child: ChildProcess;

  private constructor(name: string, child: ChildProcess, outputFile: string) {
    if (child.pid === undefined) throw new Error(`${name} could not be started`);
    this.name = name;
    this.pid = child.pid;
    this.#outputFile = outputFile;
    this.#child = child;
    child.once('exit', (code, signal) => {
      this.#ended = signal ?? `exit code ${code}`;
    });
  }

  static start(name: string, program: string, options: StartOptions): Server {
    const output = openSync(options.outputFile, 'w');
    const args = [
      ...(options.measured && !COMPILED ? ['--import', import.meta.resolve('tsx')] : []),
      ...(options.measured ? probeArgs() : []),
      ...plainArgs(program, options.asModules),
      ...(options.args ?? []),
    ];
    const child = spawn(process.execPath, args, { cwd: options.cwd, stdio: ['ignore', output, output, 'ipc'] });
    closeSync(output);
    return new Server(name, child, options.outputFile);
  }

  /** How it ended, or null while it runs. */
  get ended(): string | null {
    return this.#ended;
  }

  get output(): string {
    return readFileSync(this.#outputFile, 'utf8');
  }

  /** The end of its output, to be put behind an error. */
  get lastWords(): string {
    const output = this.output;
    return output === '' ? '' : `:\n${output.slice(-2_000)}`;
  }

  /** Sends a message, if any, and gives the next one that comes. */
  ask<Answer>(message: object | null, withinMs = ANSWER_WITHIN_MS): Promise<Answer> {
    return new Promise((resolve, reject) => {
      const finish = (): void => {
        clearTimeout(timer);
        this.#child.off('message', heard);
        this.#child.off('exit', left);
      };
      const heard = (answer: unknown): void => {
        finish();
        resolve(answer as Answer);
      };
      const left = (): void => {
        finish();
        reject(new Error(`${this.name} ended (${this.#ended ?? 'unknown'}) before it answered${this.lastWords}`));
      };
      const timer = setTimeout(() => {
        finish();
        reject(new Error(`${this.name} gave no answer within ${withinMs} ms${this.lastWords}`));
      }, withinMs);
      this.#child.on('message', heard);
      this.#child.on('exit', left);
      if (this.#ended !== null) left();
      else if (message !== null) this.#child.send(message);
    });
  }

  usage(): Promise<Usage> {
    return this.#probe({ ask: 'usage' });
  }

  memory(): Promise<Memory> {
    return this.ask<Memory>({ ask: 'memory' } satisfies Ask, 60_000);
  }

  profile(): Promise<Usage> {
    return this.#probe({ ask: 'profile' });
  }

  unprofile(file: string): Promise<Usage> {
    return this.#probe({ ask: 'unprofile', file });
  }

  /** Asks it to stop, insists after five seconds; harmless when it has ended. */
  async stop(): Promise<void> {
    if (this.#ended !== null) return;
    const gone = new Promise<void>((done) => this.#child.once('exit', () => done()));
    this.#child.kill('SIGTERM');
    const timer = setTimeout(() => this.#child.kill('SIGKILL'), 5_000);
    await gone;
    clearTimeout(timer);
  }

  #probe(ask: Ask): Promise<Usage> {
    return this.ask<Usage>(ask, 30_000);
  }
}
