/** A drill as whoever makes it has it: a program, with all that it starts. */
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { readdirSync, readFileSync, realpathSync } from 'node:fs';
import type { Test } from 'tap';
import { nodeArgs, REPO } from './paths.ts';

export class DrillProgram {
  readonly child: ChildProcess;
  readonly folder: string;
  said = '';
  readonly #end: Promise<unknown[]>;

  constructor(t: Test, program: string, env: Readonly<Record<string, string>>) {
    this.folder = realpathSync(t.testdir());
    // All that it starts has this folder in its environment, and is known by it.
    this.child = spawn(process.execPath, nodeArgs(program), {
      cwd: REPO,
      env: { ...process.env, ...env, TMPDIR: this.folder },
    });
    for (const stream of [this.child.stdout, this.child.stderr])
      stream?.setEncoding('utf8').on('data', (text: string) => {
        this.said += text;
      });
    this.#end = once(this.child, 'close');
    t.teardown(() => this.child.kill('SIGTERM'));
  }

  async ended(): Promise<number | null> {
    const [code] = await this.#end;
    return code as number | null;
  }

  /** Itself and all that it started. */
  alive(): number {
    const mark = `TMPDIR=${this.folder}`;
    return readdirSync('/proc').filter((pid) => /^\d+$/.test(pid) && environOf(pid).split('\0').includes(mark)).length;
  }
}

function environOf(pid: string): string {
  try {
    return readFileSync(`/proc/${pid}/environ`, 'latin1');
  } catch {
    return ''; // ended meanwhile
  }
}
