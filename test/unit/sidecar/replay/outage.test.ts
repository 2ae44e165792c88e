/** Breakers under changed settings, over an outage that lasts longer than their window. */
import t from 'tap';
import { readRecording } from '../../../../sidecar/record/reading.ts';
import { type Changes, readChanges } from '../../../../sidecar/replay/changes.ts';
import { replay, type ReplayReport } from '../../../../sidecar/replay/replay.ts';
import { jsonOf, linesOf } from '../../../../sidecar/replay/report.ts';
import { RecordedWorld } from '../../../support/recorded-world.ts';

const TABLE = `
scenario: recorded
as: crm.web.1
contracts:
  - {name: crm.order.query, version: 2.0.0, description: Orders., acl: public, execution: idempotent, retry: {max: 0}}
providers:
  - {agent_id: crm.order.1, offers: [crm.order.query@2.0.0]}
mocks:
  crm.order.1: {latency: 5ms, status: 503}
steps:
  - {call: crm.order.query}
`;

function changed(...sets: string[]): Changes {
  const read = readChanges(null, sets);
  if (!('words' in read)) throw new Error(read.join());
  return read;
}

let world: RecordedWorld;
const codes = new Map<number, number>();
t.before(async () => {
  world = new RecordedWorld(TABLE);
  for (let n = 0; n < 200; n++) {
    const { code } = await world.call({ name: 'crm.order.query' });
    codes.set(code, (codes.get(code) ?? 0) + 1);
    await world.world.clock.advance(1_000);
  }
  await world.written();
});
t.teardown(() => world.remove());

async function under(...sets: string[]): Promise<ReplayReport> {
  const recording = readRecording(world.folder);
  if (typeof recording === 'string') throw new Error(recording);
  return replay(recording, { changes: changed(...sets), limit: Number.POSITIVE_INFINITY });
}

t.test('what does not change whether a breaker trips leaves every call of a long outage as it was', async (t) => {
  t.ok([...codes.values()].every((count) => count > 10) && codes.size === 2, 'some were tried, and some met an open breaker');
  for (const set of ['breaker.failure_ratio=20%', 'breaker.failure_ratio=100%', 'breaker.probes=2', 'breaker.successes=7']) {
    const { sums } = await under(set);
    t.match(sums, { broken: 0, same: 200, different: 0, undecided: 0 }, set);
  }
});

t.test(
  'earlier limits refuse more, later ones leave only the beginning undecided, and no breaker means that everybody is asked',
  async (t) => {
    const refused = [...codes.values()].reduce((least, count) => Math.max(least, count), 0);
    const earlier = await under('breaker.min_calls=5');
    t.match(earlier.sums, { broken: 0, different: 5, undecided: 0 }, 'those between the fifth and the tenth');
    const off = await under('breaker.enabled=false');
    t.equal(off.sums.undecided, refused, 'whoever was refused would have asked, and what was answered is not known');
    const sooner = await under('breaker.open=5s');
    t.ok(sooner.sums.undecided > 0 && sooner.sums.undecided < refused, 'sooner probed, and no sooner than that');
  },
);

t.test('a setting that samples were counted by is said to change nothing', async (t) => {
  const report = await under('breaker.slow_call=1ms', 'breaker.window=120s');
  t.match(report.sums, { broken: 0, same: 200 });
  t.match(linesOf(report).join('\n'), /breaker\.slow_call: calls were counted as slow by the limit of then[^]*breaker\.window: no more/);
  t.match(jsonOf(report), { without_effect: [/slow_call/, /window/] });
  t.strictSame((await under('breaker.failure_ratio=20%')).withoutEffect, []);
});
