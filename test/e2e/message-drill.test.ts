/**
 * A drill as a program: that it ends with a failure when it has shown less than it is about, also when it is told to stop, and that
 * nothing it has started is left behind. What it judges, and how, is tried in `unit/test/message-drills.test.ts` and
 * `unit/test/rolling-drill.test.ts`.
 */
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { readdirSync, readFileSync, realpathSync } from 'node:fs';
import t, { type Test } from 'tap';
import { nodeArgs, REPO } from '../support/paths.ts';
import { waitUntil } from '../support/settle.ts';

class Drill {
  readonly child: ChildProcess;
  readonly folder: string;
  said = '';
  readonly #end: Promise<unknown[]>;

  constructor(t: Test, env: Readonly<Record<string, string>>, program = 'test/drills/messages/worker.ts') {
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

t.test('A drill that is about more than it was allowed to show', { timeout: 90_000 }, async (t) => {
  const drill = new Drill(t, { DRILL_COUNT: '30' });
  t.equal(await drill.ended(), 1, drill.said.slice(-2_000));
  t.match(drill.said, /!! only 30 messages were accepted of 20000/);
  const last = JSON.parse(drill.said.trim().split('\n').at(-1) as string) as Record<string, unknown>;
  t.match(last, { drill: 'worker', accepted: 30, lost: 0, keyed_effects_wrong: 0, once_started_twice: 0, left: 0, nats: /^2\.\d+\.\d+/ });
  t.equal(drill.alive(), 0, 'has left nothing behind');
});

t.test('A drill that is told to stop in the midst of it', { timeout: 90_000 }, async (t) => {
  const drill = new Drill(t, {});
  await waitUntil('the first kill', () => drill.said.includes('is killed'), 60_000);
  t.ok(drill.alive() >= 8, 'many programs run');
  drill.child.kill('SIGTERM');
  t.equal(await drill.ended(), 143);
  t.equal(drill.alive(), 0, 'has left nothing behind');
});

t.test('A rolling drill that replaces one sidecar only', { timeout: 120_000 }, async (t) => {
  const drill = new Drill(t, { DRILL_ROLL: 's1' }, 'test/drills/rolling.ts');
  t.equal(await drill.ended(), 1, drill.said.slice(-2_000));
  const last = JSON.parse(drill.said.trim().split('\n').at(-1) as string) as Record<string, number>;
  t.match(last, { drill: 'rolling', replaced: 2, failed: 0, lost: 0, once_started_twice: 0, keyed_effects_wrong: 0, untold: 0 });
  for (const field of ['calls', 'messages', 'reconnects']) t.ok((last[field] ?? 0) > 0, `${field}: ${last[field]}`);
  const faults = drill.said.split('\n').filter((line) => line.includes('!!'));
  t.match(faults.join('\n'), /SIGTERM never came to w1, w2, w3, s2, cp-1, cp-2, nats/);
  t.ok(
    faults.every((line) => / only \d+ (calls|messages) of | never came to /.test(line)),
    `it has shown less than it is about, and nothing is wrong: ${faults.join('; ')}`,
  );
  t.equal(drill.alive(), 0, 'has left nothing behind');
});
