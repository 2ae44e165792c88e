import t from 'tap';
import { SeededRandom } from '../../../base/random.ts';
import { VirtualClock } from '../../../base/virtual-clock.ts';
import type { Quota, Shares } from '../../../proto/wire/quotas.ts';
import { Subjects } from '../../../proto/wire/subjects.ts';
import { steeringMessages } from '../../../control-plane/push/derive-writes.ts';
import { readQuotasReport } from '../../../control-plane/registry/measures.ts';
import { Registry } from '../../../control-plane/registry/registry.ts';
import { readQuota, targetOf } from '../../../control-plane/quotas/reading.ts';
import { shareOut } from '../../../control-plane/quotas/shares.ts';
import { Sharing } from '../../../control-plane/quotas/sharing.ts';

t.test('an order is read in words', async (t) => {
  const read = (kind: Quota['kind'], order: object) => readQuota(kind, 'a.b.c', order as Record<string, unknown>, 'ada', 1_000);
  t.match(read('agent', { calls_per_sec: 1_000, messages_per_sec: 0.5, in_flight: 20, for: '2h', reason: 'campaign' }), {
    calls: { perSec: 1_000, burst: 1_000 },
    messages: { perSec: 0.5, burst: 1 },
    inFlight: 20,
    author: 'ada',
    expiresAtMs: 7_201_000,
  });
  t.match(read('capability', { calls_per_sec: 10, calls_burst: 3 }), { calls: { perSec: 10, burst: 3 }, expiresAtMs: null });
  for (const [kind, order, part] of [
    ['agent', {}, /name at least one limit/],
    ['agent', { calls_per_sec: 0 }, /block it by an override/],
    ['agent', { calls_per_sec: '100' }, /must be a number/],
    ['agent', { calls_burst: 5 }, /stands beside calls_per_sec/],
    ['agent', { calls_per_sec: 5, calls_burst: 0 }, /calls_burst must be a whole number/],
    ['agent', { in_flight: 1.5 }, /whole number/],
    ['agent', { calls_per_sec: 5, for: '2 apples' }, /^for: /],
    ['agent', { calls_per_sec: 5, reason: 7 }, /reason/],
    ['capability', { messages_per_sec: 5 }, /limited for agents/],
    ['capability', { in_flight: 5 }, /agents and providers/],
    ['provider', { calls_per_sec: 1, messages_per_sec: 5 }, /limited for agents/],
  ] as const)
    t.match(read(kind, order), part);
});

t.test('what a quota may be of', async (t) => {
  t.same(targetOf('agent', '*'), { target: '*.*.*' });
  t.same(targetOf('agent', 'team:sales'), { target: 'sales.*.*' });
  t.same(targetOf('provider', 'crm.order.A1'), { target: 'crm.order.A1' });
  t.same(targetOf('capability', 'crm.*.*'), { target: 'crm.*.*' });
  t.match(targetOf('agent', 'sales'), { problem: /not a pattern/ });
  t.match(targetOf('capability', 'team:sales'), { problem: /no capability/ });
  t.match(targetOf('capability', 'crm.order'), { problem: /no capability/ });
});

t.test('a rate is shared out', async (t) => {
  const parts = (demands: Record<string, number[]>, sidecars: number) => shareOut(100, new Map(Object.entries(demands)), sidecars);
  t.test('nobody asks: equally', async (t) => {
    t.same(parts({}, 4), { rest: 0.25, burst: 0.25, of: {} });
    t.match(parts({}, 200), { rest: 0.005, burst: 0.125 }, 'but of the burst nobody has next to nothing');
  });
  t.test('alone: all of it', async (t) => {
    t.same(parts({ one: [500] }, 1), { rest: 0, burst: 0, of: { one: 1 } });
    t.match(parts({ one: [10] }, 10), { rest: 0.01, burst: 0.1 }, 'of the burst whoever is quiet keeps a part of what is not asked for');
  });
  t.test("the greed of one sidecar's caller takes nothing from another one's that asks for less than its equal part", async (t) => {
    const { of } = parts({ greedy: [10_000], polite: [30] }, 2);
    t.ok((of['polite'] as number) >= 0.3);
    t.ok((of['greedy'] as number) >= 0.69, 'and what that leaves is used');
  });
  t.test('by callers, not by sidecars: three who want all get three quarters beside one who does', async (t) => {
    const { of } = parts({ three: [900, 900, 900], one: [900] }, 2);
    t.equal(Math.round((of['three'] as number) * 100), 75);
  });
  t.test('who does not ask can begin to; together it is never more than the whole', async (t) => {
    const random = new SeededRandom(3);
    for (let round = 0; round < 200; round++) {
      const demands: Record<string, number[]> = {};
      const asking = 1 + Math.floor(random.next() * 6);
      for (let i = 0; i < asking; i++)
        demands[`s${i}`] = Array.from({ length: 1 + Math.floor(random.next() * 5) }, () => random.next() * 200);
      const sidecars = asking + Math.floor(random.next() * 5);
      const { rest, of } = parts(demands, sidecars);
      const sum = Object.values(of).reduce((a, b) => a + b, 0) + rest * (sidecars - asking);
      t.ok(sum <= 1 + 1e-9 && sum > 0.999, `${sum}`);
      if (sidecars > asking) t.ok(rest > 0);
    }
  });
});

t.test('shares are told each second while something is shared out, and at once after a change', async (t) => {
  const clock = new VirtualClock();
  const said: Shares[] = [];
  let quotas: readonly Quota[] = [];
  const sharing = new Sharing({
    bus: {
      publish: (_subject: string, data: Uint8Array) => void said.push(JSON.parse(Buffer.from(data).toString('utf8')) as Shares),
    } as never,
    subjects: new Subjects('test'),
    clock,
    epoch: 'e1',
    quotas: () => quotas,
    sidecars: () => 2,
  });
  const tick = async (ms: number): Promise<void> => {
    for (let i = 0; i < ms / 250; i++) {
      await clock.advance(250);
      sharing.tick();
    }
  };
  await tick(3_000);
  t.same(said, [], 'nothing is shared out');
  quotas = [
    {
      kind: 'capability',
      target: 'crm.order.query',
      calls: { perSec: 100, burst: 100 },
      messages: null,
      inFlight: null,
      reason: '',
      author: '',
      atMs: 0,
      expiresAtMs: null,
    },
  ];
  await tick(250);
  t.match(said, [{ rest: 0.5, shares: {} }]);
  sharing.take('s1', [
    { kind: 'capability', name: 'crm.order.query', asked: [400] },
    { kind: 'capability', name: 'crm.other.query', asked: [400] },
  ]);
  await tick(1_000);
  t.same(Object.keys(said.at(-1)?.shares ?? {}), ['capability:crm.order.query'], 'what has no quota is not told');
  t.ok((said.at(-1)?.shares['capability:crm.order.query']?.of['s1'] as number) >= 0.94);
  await tick(3_000);
  t.same(said.at(-1)?.shares, {}, 'a demand that is not told again counts no longer');
  t.equal(said.length, 5);
});

t.test('the registry keeps quotas, pushes them, and takes out those whose time is over', async (t) => {
  const clock = new VirtualClock();
  const registry = new Registry(clock);
  const quota = (target: string, perSec: number, expiresAtMs: number | null = null): Quota => ({
    kind: 'agent',
    target,
    calls: { perSec, burst: perSec },
    messages: null,
    inFlight: null,
    reason: '',
    author: 'ada',
    atMs: clock.wallMs(),
    expiresAtMs,
  });
  t.same(
    steeringMessages(registry, () => null),
    [],
    'of a registry that never had any, nothing is written',
  );
  t.match(registry.setQuota(quota('sales.*.*', 5)).change.operators, ['quotas']);
  registry.setQuota(quota('*.*.*', 100, clock.wallMs() + 60_000));
  registry.setQuota(quota('sales.*.*', 10));
  const [message] = steeringMessages(registry, () => null);
  t.equal(message?.tail, 'quotas');
  t.match(JSON.parse(message?.text ?? ''), { quotas: [{ target: '*.*.*' }, { target: 'sales.*.*', calls: { perSec: 10 } }] });
  await clock.advance(60_001);
  const swept = registry.sweep();
  t.match(swept, { operators: ['quotas'], events: [{ kind: 'quota-over', words: /agent \*\.\*\.\* is over/ }] });
  t.equal(registry.quotas().quotas.length, 1);
  t.equal(registry.removeQuota('agent', 'sales.*.*').problem, null);
  t.match(registry.removeQuota('agent', 'sales.*.*').problem, /there is no quota of the agent sales/);
});

t.test('a report is read with distrust', async (t) => {
  t.same(
    readQuotasReport({
      seq: 4,
      hits: { 'agent:a.b.c': { taken: 2, refused: -1 }, 'what ever': { taken: 1 }, 'agent:x': 7 },
      demand: [{ kind: 'capability', name: 'crm.order.query', asked: [3, 'x'] }, { kind: 'agent', name: 'a.b.c', asked: [] }, null],
    }),
    { seq: 4, hits: { 'agent:a.b.c': { taken: 2, refused: 0 } }, demand: [{ kind: 'capability', name: 'crm.order.query', asked: [3, 0] }] },
  );
});
