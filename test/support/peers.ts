/**
 * Third-party agents as processes of a test: started on a port that was free, ready when they have said so in a line of
 * JSON, stopped by their pid at the end of the test. Python runs in the environment that `make python` made.
 */
import { type ChildProcess, spawn } from 'node:child_process';
import { nodeArgs, repoFile } from './paths.ts';
import { pythonPath } from '../../deploy/local/python.ts';

const START_MOST_MS = 20_000;
const STOP_MOST_MS = 3_000;
const KEPT_CHARS = 16_384;

/** What is needed of tap's `t`. */
interface Teardown {
  teardown(end: () => void | Promise<void>): unknown;
}

export class Peer {
  readonly name: string;
  readonly pid: number;
  /** The first line of JSON that it wrote. */
  readonly ready: Readonly<Record<string, unknown>>;
  readonly #child: ChildProcess;
  readonly #end: Promise<void>;
  readonly #words: () => string;

  constructor(name: string, child: ChildProcess, end: Promise<void>, ready: Readonly<Record<string, unknown>>, words: () => string) {
    this.name = name;
    this.pid = child.pid as number;
    this.ready = ready;
    this.#child = child;
    this.#end = end;
    this.#words = words;
  }

  /** The port that it named; throws when it named none. */
  get port(): number {
    const { port } = this.ready;
    if (typeof port !== 'number') throw new Error(`${this.name} named no port: ${JSON.stringify(this.ready)}`);
    return port;
  }

  get url(): string {
    return `http://127.0.0.1:${this.port}`;
  }

  /** The end of what it has written, both streams together. */
  get words(): string {
    return this.#words();
  }

  get hasEnded(): boolean {
    return this.#child.exitCode !== null || this.#child.signalCode !== null;
  }

  /** At once, as a crash would. */
  async kill(): Promise<void> {
    this.#child.kill('SIGKILL');
    await this.#end;
  }

  /** Asks it to end; one that does not is killed. */
  async stop(): Promise<void> {
    if (this.hasEnded) return;
    this.#child.kill('SIGTERM');
    const timer = setTimeout(() => this.#child.kill('SIGKILL'), STOP_MOST_MS);
    await this.#end;
    clearTimeout(timer);
  }
}

/** @param program from the top of the tree, such as `deploy/local/peers/grpc_agent.py` */
export function startPython(t: Teardown, program: string, args: readonly string[] = []): Promise<Peer> {
  return start(t, program, pythonPath(), ['-u', repoFile(program), ...args], { PYTHONDONTWRITEBYTECODE: '1' });
}

/** @param program from the top of the tree, such as `test/peers/nats_service.ts` */
export function startNode(t: Teardown, program: string, args: readonly string[] = []): Promise<Peer> {
  return start(t, program, process.execPath, [...nodeArgs(program), ...args], {});
}

async function start(
  t: Teardown,
  name: string,
  program: string,
  args: readonly string[],
  env: Readonly<Record<string, string>>,
): Promise<Peer> {
  const child = spawn(program, args, { env: { ...process.env, ...env }, stdio: ['ignore', 'pipe', 'pipe'] });
  let said = '';
  let line = '';
  const end = new Promise<void>((done) => {
    child.once('close', () => done());
    child.once('error', (error) => {
      said += error.message;
      done();
    });
  });
  const ready = await new Promise<Readonly<Record<string, unknown>> | null>((done) => {
    const late = setTimeout(() => done(null), START_MOST_MS);
    const settle = (value: Readonly<Record<string, unknown>> | null): void => {
      clearTimeout(late);
      done(value);
    };
    child.stdout.setEncoding('utf8').on('data', (text: string) => {
      said = (said + text).slice(-KEPT_CHARS);
      line += text;
      for (let at = line.indexOf('\n'); at >= 0; at = line.indexOf('\n')) {
        const value = objectIn(line.slice(0, at));
        line = line.slice(at + 1);
        if (value !== null) settle(value);
      }
    });
    child.stderr.setEncoding('utf8').on('data', (text: string) => {
      said = (said + text).slice(-KEPT_CHARS);
    });
    void end.then(() => settle(null));
  });
  if (ready === null) {
    child.kill('SIGKILL');
    await end;
    throw new Error(`${name} did not start: ${said.trim() || 'it said nothing'}`);
  }
  const peer = new Peer(name, child, end, ready, () => said);
  t.teardown(() => peer.stop());
  return peer;
}

function objectIn(line: string): Record<string, unknown> | null {
  try {
    const value: unknown = JSON.parse(line);
    return typeof value === 'object' && value !== null && !Array.isArray(value) ? (value as Record<string, unknown>) : null;
  } catch {
    return null;
  }
}
