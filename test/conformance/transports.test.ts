/**
 * One set of cases over every transport that is registered, each through a whole sidecar to a real peer: same call, same
 * Result, same code. A transport that is registered without a fixture fails here: new ones join by being registered.
 */
import t from 'tap';
import { endpointTypes, registerTransports } from '../../sidecar/transports/index.ts';
import { type Matrix, type Outcome, settleMatrix } from '../support/conformance.ts';
import { type Base, takeBase } from '../support/invariants.ts';
import { Rig } from '../support/rig.ts';
import { waitUntil } from '../support/settle.ts';
import { Seen } from '../support/transports/behaviour.ts';
import { CASE_IDS, CASES, World } from '../support/transports/cases.ts';
import { BEHIND_MESH, FIXTURES } from '../support/transports/fixtures.ts';
import type { TransportFixture } from '../support/transports/fixture.ts';
import { peerTable } from '../support/transports/table.ts';

t.setTimeout(110_000);
const before: Base = takeBase();

const registered = [...endpointTypes(registerTransports(null)), 'mesh'].sort();
const adapters: Record<string, Record<string, Outcome>> = {};

t.test('every transport that is registered has a fixture, and no fixture stands for nothing', (t) => {
  t.strictSame(FIXTURES.map((fixture) => fixture.type).sort(), registered);
  t.end();
});

for (const fixture of [...FIXTURES, ...BEHIND_MESH]) t.test(`${fixture.type}: every case`, (t) => conform(t, fixture));

t.test('the outcome is what docs/transports.md says', (t) => {
  const cases = Object.fromEntries(CASE_IDS.map((id) => [id, CASES[id].what]));
  const matrix: Matrix = { cases, adapters: Object.fromEntries(Object.entries(adapters).sort(([a], [b]) => (a < b ? -1 : 1))) };
  settleMatrix(t, 'ways_out', matrix);
  t.ok(Object.keys(adapters).length > 0);
  t.end();
});

async function conform(t: Parameters<typeof Rig.start>[0], fixture: TransportFixture): Promise<void> {
  const seen = new Seen();
  const peer = await fixture.start(t, seen);
  t.teardown(() => peer.close());
  const rig = await Rig.start(t, {
    table: peerTable((behaviour) => peer.provider(behaviour), peer.tableRest ?? ''),
    ...(peer.settings === undefined ? {} : { settings: peer.settings }),
    ...(peer.meshToken === undefined ? {} : { meshToken: peer.meshToken }),
    ...(peer.callers === undefined ? {} : { callers: peer.callers }),
    ...(peer.local === undefined ? {} : { local: peer.local }),
  });
  await peer.attach?.(rig);
  t.strictSame(rig.started.front.table.problems, [], 'the table is taken');
  const world = new World(rig, seen, fixture, peer.host ?? null);
  const outcome: Record<string, Outcome> = {};
  adapters[fixture.type] = outcome;
  for (const id of CASE_IDS) {
    const reason = fixture.cannot[id];
    if (reason !== undefined) {
      outcome[id] = reason;
      continue;
    }
    await t.test(`${fixture.type}: ${CASES[id].what}`, async (t) => {
      await CASES[id].run(world);
      await waitUntil('nothing is in flight', () => rig.quiet.inFlight() === 0, 3_000);
      t.equal(rig.quiet.ended(), rig.quiet.started(), 'every attempt has ended');
      outcome[id] = true;
    });
  }
  await rig.stop();
  await waitUntil('the peer is at rest', () => peer.open() === 0, 3_000).catch(() => undefined);
  t.equal(peer.open(), 0, 'a stopped sidecar leaves nothing open at the peer');
  await peer.close();
  await rig.finish(t, before);
}
