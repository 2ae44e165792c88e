/**
 * One set of calls through every way in, each to a whole sidecar and a real agent: the same fields of the Result, whatever
 * the protocol. Which ways there are is what the type says; see `ways.ts`.
 */
import t from 'tap';
import { type Matrix, type Outcome, settleMatrix } from '../support/conformance.ts';
import { type Base, takeBase } from '../support/invariants.ts';
import type { Rig } from '../support/rig.ts';
import { waitUntil } from '../support/settle.ts';
import { Seen } from '../support/transports/behaviour.ts';
import { HttpPeer } from '../support/transports/http.ts';
import { WAY_CASE_IDS, WAY_CASES, WayWorld } from '../support/ways/cases.ts';
import { waysTable } from '../support/ways/table.ts';
import type { WayFixture } from '../support/ways/way.ts';
import { WAYS } from '../support/ways/ways.ts';

t.setTimeout(110_000);
const before: Base = takeBase();
const adapters: Record<string, Record<string, Outcome>> = {};

for (const [name, fixture] of Object.entries(WAYS).sort(([a], [b]) => (a < b ? -1 : 1)))
  t.test(`${name}: every call`, (t) => conform(t, name, fixture));

t.test('the outcome is what docs/transports.md says', (t) => {
  const cases = Object.fromEntries(WAY_CASE_IDS.map((id) => [id, WAY_CASES[id].what]));
  const matrix: Matrix = { cases, adapters };
  settleMatrix(t, 'ways_in', matrix);
  t.ok(Object.keys(adapters).length > 0);
  t.end();
});

async function conform(t: Parameters<typeof Rig.start>[0], name: string, fixture: WayFixture): Promise<void> {
  const seen = new Seen();
  const agent = await HttpPeer.start(seen);
  t.teardown(() => agent.close());
  const way = await fixture.start(t, (via = '', rest = '') => waysTable(agent, via, rest));
  t.strictSame(way.rig.started.front.table.problems, [], 'the table is taken');
  const world = new WayWorld(way, seen);
  const outcome: Record<string, Outcome> = {};
  adapters[name] = outcome;
  for (const id of WAY_CASE_IDS) {
    const reason = fixture.cannot[id];
    if (reason !== undefined) {
      outcome[id] = reason;
      continue;
    }
    await t.test(`${name}: ${WAY_CASES[id].what}`, async (t) => {
      await WAY_CASES[id].run(world);
      await waitUntil('nothing is in flight', () => way.rig.quiet.inFlight() === 0, 3_000);
      t.equal(way.rig.quiet.ended(), way.rig.quiet.started(), 'every attempt has ended');
      outcome[id] = true;
    });
  }
  const door = way.others[0] ?? way.rig;
  const seenAs = new Set(door.logged.filter((line) => line['msg'] === 'call' && line['way'] !== 'message').map((line) => line['way']));
  t.strictSame([...seenAs], [fixture.way ?? name], 'every call has come in by this way');
  await way.client.close();
  await way.rig.stop();
  for (const other of way.others) {
    await waitUntil('the other is at rest', () => other.quiet.inFlight() === 0, 3_000).catch(() => undefined);
    await other.stop();
  }
  await agent.close();
  for (const [i, rig] of [way.rig, ...way.others].entries()) {
    const lines = rig.logged.filter((line) => line['msg'] === 'call');
    t.ok(lines.length > 0);
    t.equal(lines.length, rig.quiet.calls(), `one access line a call (sidecar ${i})`);
    const spans = new Set(lines.map((line) => line['span_id']));
    t.equal(spans.size, lines.length, 'each with its own span');
    t.ok(lines.every((line) => /^[0-9a-f]{32}$/.test(String(line['trace_id'])) && 'caller' in line && 'attempts' in line));
  }
  await way.rig.finish(t, before);
}
