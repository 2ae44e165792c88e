/**
 * A drill as a program: that it ends with a failure when it has shown less than it is about, also when it is told to stop, and that
 * nothing it has started is left behind. What it judges, and how, is tried in `unit/test/message-drills.test.ts`.
 */
import t from 'tap';
import { DrillProgram } from '../support/drill-program.ts';
import { waitUntil } from '../support/settle.ts';

const MESSAGES = 'test/drills/messages/worker.ts';

t.test('A drill that is about more than it was allowed to show', { timeout: 90_000 }, async (t) => {
  const drill = new DrillProgram(t, MESSAGES, { DRILL_COUNT: '30' });
  t.equal(await drill.ended(), 1, drill.said.slice(-2_000));
  t.match(drill.said, /!! only 30 messages were accepted of 20000/);
  const last = JSON.parse(drill.said.trim().split('\n').at(-1) as string) as Record<string, unknown>;
  t.match(last, { drill: 'worker', accepted: 30, lost: 0, keyed_effects_wrong: 0, once_started_twice: 0, left: 0, nats: /^2\.\d+\.\d+/ });
  t.equal(drill.alive(), 0, 'has left nothing behind');
});

t.test('A drill that is told to stop in the midst of it', { timeout: 90_000 }, async (t) => {
  const drill = new DrillProgram(t, MESSAGES, {});
  await waitUntil('the first kill', () => drill.said.includes('is killed'), 60_000);
  t.ok(drill.alive() >= 8, 'many programs run');
  drill.child.kill('SIGTERM');
  t.equal(await drill.ended(), 143);
  t.equal(drill.alive(), 0, 'has left nothing behind');
});
