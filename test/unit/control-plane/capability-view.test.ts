/** One capability with all that limits it and how it does, and who calls whom: the figures are those that hold. */
import t from 'tap';
import { VirtualClock } from '../../../base/virtual-clock.ts';
import type { CapabilityViewAnswer } from '../../../control-plane/api/capability-view.ts';
import { TopologyOnce } from '../../../control-plane/traffic/fresh-topology.ts';
import type { CapabilityState } from '../../../proto/wire/registry.ts';
import { Health } from '../../../sidecar/health/health.ts';
import { compileParts } from '../../../sidecar/table/compile.ts';
import { FakeSidecar, Plane } from '../../support/control-plane.ts';
import { digestOf } from '../../support/digests.ts';
import { NatsServer } from '../../support/nats.ts';
import { contractOf } from '../../support/route-table.ts';

t.test('limits, slots and durations are those that hold: as sidecars work them out, and over all versions', async (t) => {
  const nats = await NatsServer.start(t);
  const plane = await Plane.start(t, nats);
  await plane.leads();
  const name = 'crm.slots.do';
  const slots = await FakeSidecar.join(nats, 'slots', {
    'crm.slots.both': [`${name}@1.0.0`, `${name}@2.0.0`],
    'crm.slots.said': [`${name}@1.0.0`],
  });
  slots.host('crm.slots.own', [`${name}@1.0.0`], { limits: { ...contractOf(name, '1.0.0').limits, perProvider: 7 } });
  for (const each of slots.agents)
    each.contracts = each.contracts.map(({ version, limits }) =>
      contractOf(name, version, {
        timeoutMs: 4_000,
        limits: { ...limits, requestBytes: 2_048, perProvider: version === '1.0.0' ? 5 : 4 },
      }),
    );
  await slots.hello();
  const applied = await plane.ask('/v1/policies', {
    body: `policies:\n  - capability: ${name}\n    limits: {per_caller: 2}\n    providers: {crm.slots.said: {limits: {per_provider: 3}}}\n`,
  });
  t.equal(applied.status, 200, JSON.stringify(applied.body));
  plane.control.traffic.take(
    digestOf('front', [
      { capability: name, version: '1.0.0', provider: 'crm.slots.both', calls: 30, ms: 10 },
      { capability: name, version: '2.0.0', provider: 'crm.slots.both', calls: 20, ms: 500 },
    ]),
  );
  const view = (await plane.ask(`/v1/capabilities/${name}/view`)).body as unknown as CapabilityViewAnswer;
  t.match(view.limits, {
    '1.0.0': { perCaller: 2, perProvider: 5, requestBytes: 2_048, responseBytes: 8_388_608, timeoutMs: 4_000, deadlineMs: 10_000 },
    '2.0.0': { perCaller: 2, perProvider: 4 },
  });
  const shown = view.provider_list.map((row) => [row.agent, row.slots]);
  t.same(shown, [
    ['crm.slots.both', 4],
    ['crm.slots.own', 7],
    ['crm.slots.said', 3],
  ]);
  const both = view.provider_list[0];
  t.equal(both?.attempts, 50);
  t.ok((both?.p50_ms ?? 0) < 20 && (both?.p95_ms ?? 0) > 400, JSON.stringify(both));
  plane.control.traffic.take(
    digestOf('front', [{ capability: 'crm.bill.send', version: '', provider: '', calls: 40, failed: { 2001: 40 }, ms: 1 }]),
  );
  const unknown = await plane.ask('/v1/capabilities/crm.bill.send/view');
  t.match(
    unknown,
    {
      status: 200,
      body: { capability: 'crm.bill.send', versions: [], provider_list: [], lately: { calls: 40, codes: [{ code: 2001, count: 40 }] } },
    },
    'what nobody has registered, and somebody asks for all the same, is shown',
  );
  t.match((unknown.body['callers'] as unknown[]).length, 1);
  t.equal((await plane.ask('/v1/capabilities/crm.bill.sent/view')).status, 404, 'what nobody asks for is nothing');
  const pushed = (await slots.capability(name)) as { state: CapabilityState };
  const { contracts, policies, providers } = pushed.state;
  const parts = new Map([[name, { name, contracts, policies, providers: providers.map(({ record }) => ({ record, mesh: '' })) }]]);
  const table = compileParts(
    parts,
    [],
    null,
    new Health(new VirtualClock(), { consecutive: 3, forMs: 5_000 }),
    { name: 'x', region: null, zone: null },
    1,
  );
  const members = table.capabilities.get(name)?.members ?? new Map<string, { limit: number }>();
  t.same(
    [...members].map(([agent, { limit }]) => [agent, limit]),
    shown,
    'a sidecar reads the same of what is pushed',
  );
});

t.test('who calls whom is summed up once a second for all who ask', async (t) => {
  const clock = new VirtualClock();
  const sums: number[] = [];
  const once = new TopologyOnce(
    {
      topology: ({ minutes }) => {
        sums.push(minutes);
        return { edges: [], cycles: [], isCut: false };
      },
      seconds: () => 1,
    },
    clock,
  );
  let made = 0;
  const text = (minutes: number, key: string): string => once.of({ minutes }).text(key, () => `${key} ${++made}`);
  t.equal(text(5, 'all'), 'all 1');
  await clock.advance(999);
  t.equal(text(5, 'all'), 'all 1', 'the very text');
  t.equal(text(5, 'one'), 'one 2', 'other filters, of the same sum');
  t.same(sums, [5]);
  await clock.advance(1);
  t.equal(text(5, 'all'), 'all 3');
  for (const minutes of [5, 6, 7, 8, 5, 9, 5]) once.of({ minutes });
  t.same(sums, [5, 5, 6, 7, 8, 9, 5], 'of several windows the newest four');
  for (let i = 0; i < 100; i++) text(5, `x${i}`);
  t.equal(text(5, 'x0'), 'x0 4');
  t.not(text(5, 'x99'), text(5, 'x99'), 'what finds no room is made each time');
});
