/**
 * The rolling drill as a program, made short: one sidecar is replaced, with SIGTERM and with SIGKILL, under a fifth of its load. Nothing
 * may be wrong but that it has shown less than it is about. What it judges, and how, is tried in `unit/test/rolling-drill.test.ts`.
 */
import t from 'tap';
import { DrillProgram } from '../support/drill-program.ts';

t.test('A rolling drill that replaces one sidecar only', { timeout: 110_000 }, async (t) => {
  const drill = new DrillProgram(t, 'test/drills/rolling.ts', { DRILL_ROLL: 's1' });
  t.equal(await drill.ended(), 1, drill.said.slice(-2_000));
  const last = JSON.parse(drill.said.trim().split('\n').at(-1) as string) as Record<string, number>;
  t.match(last, { drill: 'rolling', replaced: 2, failed: 0, lost: 0, once_started_twice: 0, keyed_effects_wrong: 0, untold: 0 });
  for (const field of ['calls', 'messages', 'reconnects']) t.ok((last[field] ?? 0) > 0, `${field}: ${last[field]}`);
  const faults = drill.said.split('\n').filter((line) => line.includes('!!'));
  t.match(faults.join('\n'), /SIGTERM never came to w1, w2, w3, s2, cp-1, cp-2, nats/);
  t.ok(
    faults.every((line) => / only \d+ (calls|messages) of | never came to | under_way is 0: | nothing was under way /.test(line)),
    `it has shown less than it is about, and nothing is wrong: ${faults.join('; ')}`,
  );
  t.equal(drill.alive(), 0, 'has left nothing behind');
});
