/** Pools and rules as they are pushed to a sidecar: never older, repaired like the table, kept over restarts. On a bus in memory. */
import t from 'tap';
import type { Rule } from '../../../../proto/language/rule.ts';
import { shareOf } from '../../../../proto/language/share.ts';
import type { WorkPool } from '../../../../proto/wire/messages.ts';
import { poolId } from '../../../../proto/wire/pool.ts';
import { Tail } from '../../../../proto/wire/subjects.ts';
import { tableOf, VirtualRegistry } from '../../../support/virtual-registry.ts';

const QUERY = 'crm.order.query';
const WORK = Tail.work('here');

function workOf(...agents: string[]): { pools: WorkPool[] } {
  const parts = { capability: QUERY, version: '1.0.0', role: null, agent: null, tags: {}, sticky: false };
  return { pools: [{ pool: { id: poolId(parts), ...parts }, agents, partitions: [] }] };
}

function rule(name: string): Rule {
  const when = { messageType: null, sourceRole: null, targetRole: null, capability: null, tags: {} };
  return { name, when, dispatch: 'random', stickyBy: null, priority: null, fallback: null };
}

const agentsOf = (work: { readonly pools: readonly WorkPool[] }): string[] => work.pools.flatMap(({ agents }) => agents);

t.test('what is pushed is there at once, and whoever listens is told', async (t) => {
  const world = await VirtualRegistry.begun(t);
  await world.writer.all(tableOf({ [QUERY]: 1 }), 'here');
  const { client } = await world.joined();
  t.same(client.work.current().pools, [], 'nothing has been written yet');
  t.equal(client.work.isKnown, true);
  const told: string[][] = [];
  const listening = client.work.onChange((work) => told.push(agentsOf(work)));
  await world.writer.put(WORK, workOf('crm.order.1'));
  await world.writer.put(Tail.work('there'), workOf('crm.order.2'));
  await world.clock.advance(1);
  t.same(told, [['crm.order.1']]);
  t.same(agentsOf(client.work.current()), ['crm.order.1']);
  listening.close();
  await world.writer.put(WORK, workOf());
  await world.clock.advance(1);
  t.equal(told.length, 1);
});

t.test('what was lost is found by the beacon, by a list that is too short, and after a break', async (t) => {
  const world = await VirtualRegistry.begun(t);
  await world.writer.all(tableOf({ [QUERY]: 1 }), 'here');
  await world.writer.put(WORK, workOf('crm.order.1'));
  const here = await world.joined();
  const agents = (): string[] => agentsOf(here.client.work.current());
  t.same(agents(), ['crm.order.1'], 'read at the join');

  world.nats.loses = (client, subject) => client === 'here' && subject.includes('.push.');
  await world.writer.put(WORK, workOf('crm.order.2'));
  await world.clock.advance(1_100);
  t.same(agents(), ['crm.order.2'], 'named by a beacon');

  await world.writer.put(WORK, workOf('crm.order.3'));
  world.writer.forgetRecent();
  await world.clock.advance(3_000);
  t.same(agents(), ['crm.order.3'], 'a list that does not reach back');

  here.bus.disconnect('gone');
  await world.writer.put(WORK, workOf('crm.order.4'));
  world.writer.forgetRecent();
  here.bus.connect();
  await world.clock.advance(3_000);
  t.same(agents(), ['crm.order.4'], 'after a break');
});

t.test('an older one, one that cannot be read, and one of a registry that is no more change nothing', async (t) => {
  const world = await VirtualRegistry.begun(t);
  await world.writer.all(tableOf({ [QUERY]: 1 }), 'here');
  await world.writer.put(WORK, workOf('crm.order.1'));
  const here = await world.joined();
  const { client } = here;
  const bad: readonly (readonly [object, RegExp])[] = [
    [{ pools: 'all' }, /pools must be a list/],
    [{ pools: [{ agents: [] }] }, /an entry has no pool/],
    [{ pools: [{ ...workOf('x').pools[0], agents: ['not an agent'] }] }, /list of agent ids/],
    [{ pools: [{ ...workOf('x').pools[0], pool: { id: 'p1' } }] }, /a pool has no id/],
    [{ pools: [{ ...workOf('crm.order.1').pools[0], partitions: [{ index: 99, owner: '', term: 1 }] }] }, /partitions cannot be read/],
  ];
  for (const [state, why] of bad) {
    await world.writer.put(WORK, state);
    await world.clock.advance(1_100);
    t.same(agentsOf(client.work.current()), ['crm.order.1']);
    t.match(here.stale, why, 'and it is said');
  }
  t.match(client.report().refused, [{ tail: WORK, why: /partitions/ }]);
  await world.writer.put(WORK, workOf('crm.order.5'));
  await world.clock.advance(1_100);
  t.equal(here.stale, '', 'a good one takes that back');
  t.same(agentsOf(client.work.current()), ['crm.order.5']);

  await world.beginAnew('epoch-2');
  await world.clock.advance(5_000);
  t.same(agentsOf(client.work.current()), ['crm.order.5'], 'a registry that has begun anew has nothing for us yet');
  await world.writer.put(WORK, workOf('crm.order.6'));
  await world.clock.advance(5_000);
  t.same(agentsOf(client.work.current()), ['crm.order.6'], 'a lower sequence of a newer registry');
  await world.writer.putRaw(WORK, JSON.stringify({ wire: 1, epoch: 'epoch-2', ...workOf('crm.order.7') }));
  await world.clock.advance(1_100);
  t.same(agentsOf(client.work.current()), ['crm.order.7']);
});

t.test('rules: the staged ones for those in the share, and a set that cannot be used is refused', async (t) => {
  const world = await VirtualRegistry.begun(t);
  await world.writer.all(tableOf({ [QUERY]: 1 }), 'here');
  const here = world.client();
  const { rules } = here.client;
  rules.tryOut = ({ rules: list }) => (list.some(({ name }) => name === 'bad') ? 'bad is bad' : null);
  await world.clock.advance(10_000);
  t.match(rules.inForce(), { version: 0, staged: false, rules: [] });
  await world.writer.put(Tail.rules, { version: 3, rules: [rule('one')], staged: null });
  await world.clock.advance(1);
  t.match(rules.inForce(), { version: 3, staged: false, rules: [{ name: 'one' }] });
  const share = shareOf('here');
  await world.writer.put(Tail.rules, {
    version: 3,
    rules: [rule('one')],
    staged: { version: 4, share: share + 0.001, rules: [rule('two')] },
  });
  await world.clock.advance(1);
  t.match(rules.inForce(), { version: 4, staged: true, rules: [{ name: 'two' }] });
  await world.writer.put(Tail.rules, { version: 3, rules: [rule('one')], staged: { version: 4, share, rules: [rule('two')] } });
  await world.clock.advance(1);
  t.match(rules.inForce(), { version: 3, staged: false });
  await world.writer.put(Tail.rules, { version: 5, rules: [rule('bad')], staged: null });
  await world.clock.advance(1_100);
  t.match(rules.inForce(), { version: 3, rules: [{ name: 'one' }] });
  t.match(here.stale, /a change of rules was refused: bad is bad/);
});

t.test('a sidecar that starts without NATS has the pools and rules that it had last', async (t) => {
  const world = await VirtualRegistry.begun(t);
  await world.writer.all(tableOf({ [QUERY]: 1 }), 'here');
  await world.writer.put(WORK, workOf('crm.order.1'));
  await world.writer.put(Tail.rules, { version: 3, rules: [rule('one')], staged: null });
  const first = await world.joined({ keepAt: world.keepAt });
  await world.written(first);
  world.nats.down();
  const second = world.client({ keepAt: world.keepAt });
  t.same(agentsOf(second.client.work.current()), ['crm.order.1']);
  t.match(second.client.rules.inForce(), { version: 3, rules: [{ name: 'one' }] });
  const elsewhere = world.client({ keepAt: world.keepAt, env: 'other' });
  t.same(elsewhere.client.work.current().pools, [], 'a copy of another environment is not believed');
});

t.test('quotas and what is watched are pushed like the others, refused when they cannot be read, and kept over restarts', async (t) => {
  const world = await VirtualRegistry.begun(t);
  await world.writer.all(tableOf({ [QUERY]: 1 }), 'here');
  const quota = {
    kind: 'agent',
    target: 'sales.*.*',
    calls: { perSec: 5, burst: 5 },
    messages: null,
    inFlight: null,
    reason: '',
    author: 'ada',
    atMs: 1,
    expiresAtMs: null,
  };
  await world.writer.put(Tail.quotas, { quotas: [quota] });
  const first = await world.joined({ keepAt: world.keepAt });
  await world.writer.put(Tail.shifts, { watched: [QUERY] });
  await world.clock.advance(1);
  t.match(first.client.quotas.current().quotas, [quota]);
  t.same(first.client.shifts.current().watched, [QUERY]);
  const wrong: readonly unknown[] = [
    { quotas: 7 },
    { quotas: [{ ...quota, kind: 'team' }] },
    { quotas: [{ ...quota, target: 'sales.*' }] },
    { quotas: [{ ...quota, target: 'sales.>.*' }] },
    { quotas: [{ ...quota, calls: { perSec: 0, burst: 1 } }] },
    { quotas: [{ ...quota, inFlight: -1 }] },
  ];
  for (const state of wrong) await world.writer.put(Tail.quotas, state as object);
  await world.writer.put(Tail.shifts, { watched: ['nonsense'] });
  await world.clock.advance(1);
  t.match(first.client.quotas.current().quotas, [quota], 'what was in force stays');
  t.same(first.client.shifts.current().watched, [QUERY]);
  t.equal(first.client.report().refused.filter(({ tail }) => tail === Tail.quotas).length > 0, true, 'and people see it');
  await world.written(first);
  const second = world.client({ keepAt: world.keepAt });
  t.match(second.client.quotas.current().quotas, [quota], 'before anybody was asked');
});
