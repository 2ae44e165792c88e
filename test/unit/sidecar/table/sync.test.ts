import { copyFileSync, existsSync, readFileSync, truncateSync, writeFileSync } from 'node:fs';
import t from 'tap';
import { SeededRandom } from '../../../../base/random.ts';
import { Tail } from '../../../../proto/wire/subjects.ts';
import { statesOf } from '../../../support/registry-writer.ts';
import { LEASE_MS, tableOf, VirtualRegistry } from '../../../support/virtual-registry.ts';

const QUERY = 'crm.order.query';
const WRITE = 'nlp.text.write';
const ids = (count: number, prefix = 'crm.order'): string[] => Array.from({ length: count }, (_, i) => `${prefix}.${i + 1}`).sort();

t.test('joining', async (t) => {
  t.test('a sidecar reads its scope and everything in it, and nothing else', async (t) => {
    const world = await VirtualRegistry.begun(t);
    await world.writer.capability(tableOf({ [QUERY]: 2 }), QUERY);
    await world.writer.capability(tableOf({ [WRITE]: 2 }), WRITE);
    await world.writer.scope('here', [QUERY]);
    const { table, client, stale } = await world.joined();
    t.ok(table.ready);
    t.equal(stale, '');
    t.equal(table.source, 'registry');
    t.strictSame([...table.current().capabilities.keys()], [QUERY]);
    t.strictSame([...table.current().providers.keys()].sort(), ids(2));
    t.match(client.status(), { connected: true, epoch: 'epoch-1', scope: 1, confirmed: true, announced: true });
  });

  t.test('what another sidecar may use never reaches this one', async (t) => {
    const world = await VirtualRegistry.begun(t);
    await world.writer.all(tableOf({ [QUERY]: 1 }), 'here');
    const here = await world.joined();
    const before = here.table.current();
    await world.writer.capability(tableOf({ [WRITE]: 3 }), WRITE);
    await world.writer.scope('there', [WRITE]);
    await world.clock.advance(3_000);
    t.equal(here.table.current(), before, 'not even a new table is made');
    t.equal(here.client.status().counters.comparisons, 1);
  });

  t.test('the control plane may be dead: scope and states are in the stream', async (t) => {
    const world = await VirtualRegistry.begun(t);
    await world.writer.all(tableOf({ [QUERY]: 3 }), 'here');
    world.writer.die();
    const here = world.client();
    await world.clock.advance(1_000);
    t.strictSame(here.providers(QUERY), ids(3));
    t.match(here.stale, /the control plane is not heard/, 'and it says so');
    await world.clock.advance(10_000);
    t.ok(here.client.status().stale_for_ms > 9_000);
  });

  t.test('a sidecar that the registry does not know says hello, and is served when it has its scope', async (t) => {
    const world = await VirtualRegistry.begun(t);
    await world.writer.capability(tableOf({ [QUERY]: 1 }), QUERY);
    world.writer.onHello = async ({ sidecar }) => {
      await world.writer.scope(sidecar, [QUERY]);
    };
    const here = world.client();
    t.notOk(here.table.ready);
    await world.clock.advance(500);
    t.ok(here.table.ready, 'the scope that is pushed wakes the waiting comparison');
    t.match(world.writer.hellos, [
      { sidecar: 'here', instance: 'instance-of-here', callers: ['support.planner.1'], mesh: 'http://127.0.0.1:7701' },
    ]);
    t.equal(world.writer.hellos.length, 1);
  });

  t.test('without NATS and without a copy it is not ready, and says why; it joins when NATS is there', async (t) => {
    const world = new VirtualRegistry(t);
    world.nats.down();
    const here = world.client();
    await world.clock.advance(20_000);
    t.notOk(here.table.ready);
    t.match(here.stale, /NATS cannot be reached/);
    world.nats.up();
    await world.clock.advance(1_000);
    t.notOk(here.table.ready);
    t.match(here.stale, /the registry cannot be read/, 'there is no stream yet');
    await world.begin();
    await world.writer.all(tableOf({ [QUERY]: 1 }), 'here');
    await world.clock.advance(8_000);
    t.ok(here.table.ready);
    t.equal(here.stale, '');
  });

  t.test('what is pushed while the join reads is not missed', async (t) => {
    const world = await VirtualRegistry.begun(t);
    const names = Array.from({ length: 60 }, (_, i) => `crm.order${i}.query`);
    await world.writer.all(tableOf(Object.fromEntries(names.map((name) => [name, 1]))), 'here');
    const here = world.client();
    for (const name of names) await world.writer.capability(tableOf({ [name]: 2 }), name);
    await world.clock.advance(50);
    for (const name of names) t.equal(here.providers(name)?.length, 2, name);
    await world.clock.advance(3_000);
    t.equal(here.client.status().counters.repairs, 0);
  });

  t.test('a capability above 64 providers comes in shards, and is used when all of them are there', async (t) => {
    const world = await VirtualRegistry.begun(t);
    await world.writer.all(tableOf({ [QUERY]: 150 }), 'here');
    const here = await world.joined();
    t.strictSame(here.providers(QUERY), ids(150));
    t.test('a change of one shard is one message', async (t) => {
      const { deltas } = here.client.status().counters;
      const states = statesOf(tableOf({ [QUERY]: 149 }), QUERY);
      await world.writer.put(Tail.shard(QUERY, 2), states[2] as object);
      await world.clock.advance(10);
      t.equal(here.client.status().counters.deltas, deltas + 1);
      t.equal(here.providers(QUERY)?.length, 149);
    });
    t.test('fewer shards leave the last ones void, more make them count again', async (t) => {
      const states = statesOf(tableOf({ [QUERY]: 149 }), QUERY);
      await world.writer.put(Tail.shard(QUERY, 0), { ...states[0], shards: 1 });
      await world.clock.advance(10);
      t.equal(here.providers(QUERY)?.length, 64);
      await world.writer.put(Tail.shard(QUERY, 0), { ...states[0], shards: 3 });
      await world.clock.advance(10);
      t.equal(here.providers(QUERY)?.length, 149, 'although the shards themselves were not written again');
    });
    t.test('a shard that has not come yet leaves in force what was there', async (t) => {
      const before = here.table.current();
      const states = statesOf(tableOf({ [QUERY]: 250 }), QUERY);
      await world.writer.put(Tail.shard(QUERY, 0), states[0] as object);
      await world.writer.put(Tail.shard(QUERY, 1), states[1] as object);
      world.nats.loses = (client, subject) => client === 'here' && subject.includes('.push.');
      await world.writer.put(Tail.shard(QUERY, 2), states[2] as object);
      await world.writer.put(Tail.shard(QUERY, 3), states[3] as object);
      world.nats.loses = () => false;
      await world.clock.advance(1);
      t.ok(here.table.current() === before || here.providers(QUERY)?.length === 250, 'never a part of it');
      await world.clock.advance(1_100);
      t.equal(here.providers(QUERY)?.length, 250);
    });
  });
});

t.test('changes', async (t) => {
  t.test('a delta is in force at once; many in one turn are one table', async (t) => {
    const world = await VirtualRegistry.begun(t);
    await world.writer.all(tableOf({ [QUERY]: 1, [WRITE]: 1 }), 'here');
    const here = await world.joined();
    const { version } = here.table.current();
    for (let count = 2; count <= 20; count++) await world.writer.capability(tableOf({ [QUERY]: count }), QUERY);
    await world.writer.capability(tableOf({ [WRITE]: 5 }), WRITE);
    await world.clock.advance(1);
    t.strictSame(here.providers(QUERY), ids(20));
    t.strictSame(here.providers(WRITE), ids(5, 'nlp.text'));
    t.equal(here.table.current().version, version + 1);
  });

  t.test('what did not change keeps its objects: caches, providers, health', async (t) => {
    const world = await VirtualRegistry.begun(t);
    await world.writer.all(tableOf({ [QUERY]: 2, [WRITE]: 1 }), 'here');
    const here = await world.joined();
    const write = here.table.current().capabilities.get(WRITE);
    const record = here.table.current().providers.get('crm.order.1')?.record;
    const health = here.table.current().providers.get('crm.order.1')?.health;
    await world.writer.capability(tableOf({ [QUERY]: 3 }), QUERY);
    await world.clock.advance(1);
    t.equal(here.table.current().capabilities.get(WRITE), write);
    t.equal(here.table.current().providers.get('crm.order.1')?.record, record);
    t.equal(here.table.current().providers.get('crm.order.1')?.health, health);
    const { version } = here.table.current();
    await world.writer.capability(tableOf({ [QUERY]: 3 }), QUERY);
    await world.clock.advance(1);
    t.equal(here.table.current().version, version, 'the same state again makes no new table');
  });

  t.test('a capability leaves with its scope, and comes back with it', async (t) => {
    const world = await VirtualRegistry.begun(t);
    await world.writer.all(tableOf({ [QUERY]: 2, [WRITE]: 1 }), 'here');
    const here = await world.joined();
    await world.writer.scope('here', [WRITE]);
    await world.clock.advance(1);
    t.strictSame([...here.table.current().capabilities.keys()], [WRITE]);
    await world.writer.capability(tableOf({ [QUERY]: 4 }), QUERY);
    await world.clock.advance(1);
    t.equal(here.providers(QUERY), null, 'its changes are not followed');
    await world.writer.scope('here', [QUERY, WRITE]);
    await world.clock.advance(1);
    t.strictSame(here.providers(QUERY), ids(4));
  });

  t.test('a capability that is gone has no contract', async (t) => {
    const world = await VirtualRegistry.begun(t);
    await world.writer.all(tableOf({ [QUERY]: 2 }), 'here');
    const here = await world.joined();
    await world.writer.put(Tail.capability(QUERY), {
      name: QUERY,
      shard: 0,
      shards: 1,
      contracts: [],
      policies: [],
      staged: null,
      providers: [],
    });
    await world.clock.advance(1);
    t.equal(here.providers(QUERY), null);
    t.equal(here.table.current().providers.size, 0);
  });

  t.test('an older message that comes late changes nothing', async (t) => {
    const world = await VirtualRegistry.begun(t);
    await world.writer.all(tableOf({ [QUERY]: 1 }), 'here');
    const here = await world.joined();
    const seq = await world.writer.capability(tableOf({ [QUERY]: 5 }), QUERY);
    await world.clock.advance(1);
    const old = { wire: 1, epoch: 'epoch-1', ...statesOf(tableOf({ [QUERY]: 1 }), QUERY)[0] };
    for (const late of [seq - 1, seq]) {
      world.nats.route(`ar.test.push.${Tail.capability(QUERY)}`, Buffer.from(JSON.stringify(old)), '', {
        'Nats-Stream': 'AR_CFG',
        'Nats-Subject': `ar.test.cfg.${Tail.capability(QUERY)}`,
        'Nats-Sequence': String(late),
        'Nats-Last-Sequence': '0',
      });
      await world.clock.advance(5);
      t.strictSame(here.providers(QUERY), ids(5));
    }
    t.equal(here.stale, '');
  });

  t.test('a staged roll-out is followed by the sidecars of its share alone', async (t) => {
    const world = await VirtualRegistry.begun(t);
    const table = tableOf({ [QUERY]: 1 });
    const staged = (share: number) => ({
      staged: {
        version: 7,
        share,
        contracts: [{ ...(statesOf(tableOf({ [QUERY]: 1 }, '1.1.0'), QUERY)[0] as { contracts: object[] }).contracts[0] }],
        policies: [],
      },
      policiesVersion: 6,
    });
    await world.writer.all(table, 'here');
    const here = await world.joined();
    await world.writer.capability(table, QUERY, staged(1) as never);
    await world.clock.advance(200);
    t.strictSame(here.providers(QUERY, '1.1.0'), []);
    t.match(here.client.report().policies, { version: 7, staged: true });
    await world.writer.capability(table, QUERY, staged(0) as never);
    await world.clock.advance(200);
    t.equal(here.providers(QUERY, '1.1.0'), null);
    t.match(here.client.report().policies, { version: 6, staged: false });
  });

  t.test('a provider that this sidecar has no transport for is left out and named', async (t) => {
    const world = await VirtualRegistry.begun(t);
    await world.writer.all(tableOf({ [QUERY]: 2 }), 'here');
    const here = await world.joined({ unreachable: ({ agentId }) => (agentId === 'crm.order.1' ? 'no transport is called pigeon' : null) });
    t.strictSame(here.providers(QUERY), ['crm.order.2']);
    t.match(here.client.status().unusable, [{ provider: 'crm.order.1', why: /pigeon/ }]);
  });
});

t.test('losses', async (t) => {
  t.test('a lost last message is found by the next beacon', async (t) => {
    const world = await VirtualRegistry.begun(t);
    await world.writer.all(tableOf({ [QUERY]: 1 }), 'here');
    const here = await world.joined();
    world.nats.loses = (client, subject) => client === 'here' && subject.includes('.push.cap.');
    await world.writer.capability(tableOf({ [QUERY]: 3 }), QUERY);
    world.nats.loses = () => false;
    await world.clock.advance(1_050);
    t.strictSame(here.providers(QUERY), ids(3));
    t.match(here.client.status().counters, { repairs: 1, comparisons: 1 });
  });

  t.test('a lost change of the scope is found by it too', async (t) => {
    const world = await VirtualRegistry.begun(t);
    await world.writer.all(tableOf({ [QUERY]: 1 }), 'here');
    await world.writer.capability(tableOf({ [WRITE]: 1 }), WRITE);
    const here = await world.joined();
    world.nats.loses = (client, subject) => client === 'here' && subject.includes('.push.');
    await world.writer.scope('here', [QUERY, WRITE]);
    world.nats.loses = () => false;
    await world.clock.advance(1_100);
    t.strictSame(here.providers(WRITE), ids(1, 'nlp.text'));
  });

  t.test('a gap is taken as a sign that others were lost too: the newer state counts at once, and everything is compared', async (t) => {
    const world = await VirtualRegistry.begun(t);
    await world.writer.all(tableOf({ [QUERY]: 1, [WRITE]: 1 }), 'here');
    const here = await world.joined();
    world.writer.stopBeacon();
    world.nats.loses = (client, subject) => client === 'here' && subject.includes('.push.cap.');
    await world.writer.capability(tableOf({ [QUERY]: 2 }), QUERY);
    await world.writer.capability(tableOf({ [WRITE]: 4 }), WRITE);
    world.nats.loses = () => false;
    await world.writer.capability(tableOf({ [QUERY]: 3 }), QUERY);
    await world.clock.advance(1);
    t.strictSame(here.providers(QUERY), ids(3));
    t.equal(here.client.status().counters.gaps, 1);
    world.writer.forgetRecent();
    world.writer.startBeacon();
    await world.clock.advance(12_000);
    t.strictSame(here.providers(WRITE), ids(4, 'nlp.text'));
  });

  t.test('beacons that were missed while changes left their list lead to a comparison', async (t) => {
    const world = await VirtualRegistry.begun(t);
    await world.writer.all(tableOf({ [QUERY]: 1 }), 'here');
    const here = await world.joined();
    world.nats.loses = (client) => client === 'here';
    await world.writer.capability(tableOf({ [QUERY]: 6 }), QUERY);
    world.writer.forgetRecent();
    await world.clock.advance(20_000);
    t.match(here.stale, /the control plane is not heard/);
    world.nats.loses = () => false;
    await world.clock.advance(2_000);
    t.strictSame(here.providers(QUERY), ids(6));
    t.equal(here.stale, '');
  });

  t.test('after a break of the connection a change that was made meanwhile is in force within 5 s (C075)', async (t) => {
    for (const isPushedDuring of [true, false]) {
      const world = await VirtualRegistry.begun(t);
      await world.writer.all(tableOf({ [QUERY]: 1 }), 'here');
      const here = await world.joined();
      here.bus.disconnect('reset by peer');
      t.match(here.stale, /NATS cannot be reached \(reset by peer\)/);
      if (isPushedDuring) await world.writer.capability(tableOf({ [QUERY]: 2 }), QUERY);
      await world.clock.advance(10_000);
      t.strictSame(here.providers(QUERY), ids(1), 'what was in force stays in force');
      world.writer.stopBeacon();
      here.bus.connect();
      await world.clock.advance(1);
      t.match(here.stale, /not compared/, 'connected is not yet confirmed');
      world.writer.startBeacon();
      if (!isPushedDuring) await world.writer.capability(tableOf({ [QUERY]: 2 }), QUERY);
      await world.clock.advance(5_000);
      t.strictSame(here.providers(QUERY), ids(2));
      t.equal(here.stale, '');
      t.equal(here.client.status().reconnects, 1);
    }
  });

  t.test('it is repaired without a control plane as well', async (t) => {
    const world = await VirtualRegistry.begun(t);
    await world.writer.all(tableOf({ [QUERY]: 1, [WRITE]: 1 }), 'here');
    const here = await world.joined();
    here.bus.disconnect('gone');
    await world.writer.capability(tableOf({ [QUERY]: 2 }), QUERY);
    world.writer.die();
    here.bus.connect();
    await world.clock.advance(5_000);
    t.strictSame(here.providers(QUERY), ids(2));
    await world.clock.advance(2_000);
    t.match(here.stale, /the control plane is not heard/);
  });

  t.test('a break in which nothing changed costs one beacon, not a comparison', async (t) => {
    const world = await VirtualRegistry.begun(t);
    await world.writer.all(tableOf({ [QUERY]: 1 }), 'here');
    const here = await world.joined();
    here.bus.disconnect('gone');
    await world.clock.advance(60_000);
    here.bus.connect();
    await world.clock.advance(3_000);
    t.equal(here.stale, '');
    t.equal(here.client.status().counters.comparisons, 1, 'the join’s own');
  });

  t.test('a connection that breaks in the middle of everything ends well', async (t) => {
    const world = await VirtualRegistry.begun(t);
    const names = Array.from({ length: 40 }, (_, i) => `crm.order${i}.query`);
    await world.writer.all(tableOf(Object.fromEntries(names.map((name) => [name, 1]))), 'here');
    const here = world.client();
    for (let round = 0; round < 30; round++) {
      await world.writer.capability(tableOf({ [names[round] as string]: 2 }), names[round] as string);
      here.bus.disconnect('again');
      await world.clock.advance(37 * round);
      here.bus.connect();
      await world.clock.advance(11 * round);
    }
    await world.clock.advance(5_000);
    t.equal(here.stale, '');
    for (const [i, name] of names.entries()) t.equal(here.providers(name)?.length, i < 30 ? 2 : 1);
  });

  t.test('whatever is lost, broken and changed, in the end the table is what the stream holds', async (t) => {
    for (let seed = 1; seed <= 15; seed++) {
      const random = new SeededRandom(seed);
      const pick = (n: number): number => Math.floor(random.next() * n);
      const world = await VirtualRegistry.begun(t);
      const names = Array.from({ length: 6 }, (_, i) => `crm.order${i}.query`);
      const wanted = new Map(names.map((name) => [name, 1]));
      let scope = names;
      await world.writer.all(tableOf(Object.fromEntries(wanted)), 'here');
      const here = world.client({ seed });
      const lost = (): boolean => random.next() < 0.4;
      for (let step = 0; step < 40; step++) {
        const name = names[pick(names.length)] as string;
        const what = pick(9);
        world.nats.loses = (client, subject) => client === 'here' && !subject.startsWith('_INBOX') && lost();
        if (what < 4) {
          wanted.set(name, 1 + pick(90));
          await world.writer.capability(tableOf({ [name]: wanted.get(name) as number }), name);
        } else if (what === 4) {
          scope = names.filter(() => random.next() < 0.7);
          await world.writer.scope('here', scope);
        } else if (what === 5) here.bus.disconnect('chance');
        else if (what === 6) here.bus.connect();
        else if (what === 7) world.writer.forgetRecent();
        await world.clock.advance(pick(4) === 0 ? pick(12_000) : pick(300));
      }
      world.nats.loses = () => false;
      here.bus.connect();
      await world.clock.advance(25_000);
      const found = Object.fromEntries(
        [...here.table.current().capabilities.keys()].sort().map((name) => [name, here.providers(name)?.length]),
      );
      const expected = Object.fromEntries([...scope].sort().map((name) => [name, wanted.get(name)]));
      t.strictSame(found, expected, `seed ${seed}`);
      t.equal(here.stale, '', `seed ${seed}`);
    }
  });

  t.test('sidecars make no consumers, and four subscriptions more for a scope of one', async (t) => {
    const world = await VirtualRegistry.begun(t);
    await world.writer.all(tableOf({ [QUERY]: 1 }), 'here');
    const before = world.nats.subscriptions.size;
    const here = await world.joined();
    const count = (): number => world.nats.subscriptions.size - before;
    t.equal(count(), 9, 'beacon, scope, capability, work, rules, quotas, shifts, overrides and their beacon');
    for (let i = 0; i < 20; i++) {
      here.bus.disconnect('again');
      await world.clock.advance(2_000);
      here.bus.connect();
      await world.clock.advance(2_000);
    }
    t.equal(count(), 9);
  });
});

t.test('what cannot be used', async (t) => {
  const bad: readonly (readonly [what: string, text: string | ((good: object) => object), why: RegExp])[] = [
    ['not JSON', 'what?', /not JSON/],
    ['another wire', (good) => ({ ...good, wire: 2 }), /speaks version 2/],
    ['another capability', (good) => ({ ...good, name: WRITE }), /came on the subject of crm.order.query/],
    ['another shard', (good) => ({ ...good, shard: 3 }), /calls itself shard 3/],
    ['no lists', (good) => ({ ...good, providers: null }), /must be lists/],
    ['no acl', (good) => ({ ...good, contracts: [{ ...(good as { contracts: object[] }).contracts[0], acl: null }] }), /has no acl/],
    [
      'a schema that does not compile',
      (good) => ({ ...good, contracts: [{ ...(good as { contracts: object[] }).contracts[0], input: { type: 'strnig' } }] }),
      /input schema does not compile/,
    ],
    [
      'no version',
      (good) => ({ ...good, contracts: [{ ...(good as { contracts: object[] }).contracts[0], version: '2' }] }),
      /is not a version/,
    ],
    ['a provider without an id', (good) => ({ ...good, providers: [{ record: { agentId: 'nobody' }, mesh: null }] }), /not an agent id/],
  ];
  for (const [what, text, why] of bad) {
    t.test(`${what}: nothing changes for that capability, it is told, and a later good one applies`, async (t) => {
      const world = await VirtualRegistry.begun(t);
      await world.writer.all(tableOf({ [QUERY]: 2, [WRITE]: 1 }), 'here');
      const here = await world.joined();
      const good = { wire: 1, epoch: 'epoch-1', ...statesOf(tableOf({ [QUERY]: 3 }), QUERY)[0] };
      const seq = await world.writer.putRaw(Tail.capability(QUERY), typeof text === 'string' ? text : JSON.stringify(text(good)));
      await world.writer.capability(tableOf({ [WRITE]: 2 }), WRITE);
      await world.clock.advance(1_500);
      t.strictSame(here.providers(QUERY), ids(2));
      t.strictSame(here.providers(WRITE), ids(2, 'nlp.text'), 'others are not held up');
      t.match(here.stale, why);
      t.match(here.table.problems, [{ file: 'cap.crm.order.query', message: why }]);
      t.match(world.writer.reports.at(-1), { sidecar: 'here', refused: [{ tail: 'cap.crm.order.query', seq, why }], staleBecause: why });
      await world.writer.capability(tableOf({ [QUERY]: 4 }), QUERY);
      await world.clock.advance(1_000);
      t.strictSame(here.providers(QUERY), ids(4));
      t.equal(here.stale, '');
      t.match(world.writer.reports.at(-1), { refused: [], staleBecause: '' });
    });
  }

  t.test('bad, bad, good, bad, good: the newest good one is in force (C071)', async (t) => {
    const world = await VirtualRegistry.begun(t);
    await world.writer.all(tableOf({ [QUERY]: 1 }), 'here');
    const here = await world.joined();
    const wanted = [1, 1, 3, 3, 5];
    for (const [i, good] of [false, false, true, false, true].entries()) {
      if (good) await world.writer.capability(tableOf({ [QUERY]: wanted[i] as number }), QUERY);
      else await world.writer.putRaw(Tail.capability(QUERY), '{');
      await world.clock.advance(150);
      t.equal(here.providers(QUERY)?.length, wanted[i]);
    }
    t.equal(here.table.refusals, 3);
  });

  t.test('what does not come from the stream is not believed', async (t) => {
    const world = await VirtualRegistry.begun(t);
    await world.writer.all(tableOf({ [QUERY]: 1 }), 'here');
    const here = await world.joined();
    const forged = { wire: 1, epoch: 'epoch-1', ...statesOf(tableOf({ [QUERY]: 9 }), QUERY)[0] };
    world.nats.route(`ar.test.push.${Tail.capability(QUERY)}`, Buffer.from(JSON.stringify(forged)), '');
    await world.clock.advance(5);
    t.strictSame(here.providers(QUERY), ids(1));
    t.match(here.client.status().refused, [{ why: /has no sequence/ }]);
  });

  t.test('a state that cannot be used at the join leaves the rest in force', async (t) => {
    const world = await VirtualRegistry.begun(t);
    await world.writer.all(tableOf({ [QUERY]: 1, [WRITE]: 1 }), 'here');
    await world.writer.putRaw(Tail.capability(QUERY), 'broken');
    const here = await world.joined();
    t.strictSame([...here.table.current().capabilities.keys()], [WRITE]);
    t.match(here.stale, /refused/);
  });
});

t.test('a registry that begins anew', async (t) => {
  t.test('what is held stays in force until the new state is complete', async (t) => {
    const world = await VirtualRegistry.begun(t);
    await world.writer.all(tableOf({ [QUERY]: 2 }), 'here');
    const here = await world.joined();
    world.writer.onHello = async () => {
      await world.writer.all(tableOf({ [QUERY]: 3 }), 'here');
    };
    await world.beginAnew('epoch-2');
    await world.clock.advance(300);
    t.strictSame(here.providers(QUERY), ids(2));
    await world.clock.advance(8_000);
    t.strictSame(here.providers(QUERY), ids(3));
    t.match(here.client.status(), { epoch: 'epoch-2', counters: { epochs: 1 } });
    t.equal(here.stale, '');
    await world.writer.capability(tableOf({ [QUERY]: 4 }), QUERY);
    await world.clock.advance(5);
    t.strictSame(here.providers(QUERY), ids(4), 'although its sequence is lower than those of the old epoch');
  });

  t.test('a provider that is absent but has answered within a lease is kept for a lease, and marked', async (t) => {
    const world = await VirtualRegistry.begun(t);
    await world.writer.all(tableOf({ [QUERY]: 3 }), 'here');
    const here = await world.joined();
    here.answered('crm.order.2', world.clock);
    await world.clock.advance(60_000);
    await world.beginAnew('epoch-2');
    await world.writer.all(tableOf({ [QUERY]: 1 }), 'here');
    await world.clock.advance(8_000);
    t.strictSame(here.providers(QUERY), ['crm.order.1', 'crm.order.2'], 'the third has not answered for long');
    t.match(here.client.status().kept, [{ capability: QUERY, provider: 'crm.order.2' }]);
    await world.writer.capability(tableOf({ [QUERY]: 1 }), QUERY, { policiesVersion: 2 });
    await world.clock.advance(5);
    t.strictSame(here.providers(QUERY), ['crm.order.1', 'crm.order.2'], 'a push that does not name it yet changes nothing');
    await world.clock.advance(LEASE_MS);
    t.strictSame(here.providers(QUERY), ['crm.order.1'], 'whoever lives has said so by now');
    t.strictSame(here.client.status().kept, []);
  });

  t.test('one that has not answered has some seconds to come back, so that nobody finds a registry half full', async (t) => {
    const world = await VirtualRegistry.begun(t);
    await world.writer.all(tableOf({ [QUERY]: 3 }), 'here');
    const here = await world.joined();
    await world.clock.advance(600_000);
    await world.beginAnew('epoch-2');
    await world.writer.all(tableOf({ [QUERY]: 2 }), 'here');
    await world.clock.advance(3_000);
    t.match(here.client.status(), { epoch: 'epoch-2', kept: [{ capability: QUERY, provider: 'crm.order.3' }] });
    t.strictSame(here.providers(QUERY), ids(3));
    await world.clock.advance(5_000);
    t.strictSame(here.providers(QUERY), ids(2));
    t.strictSame(here.client.status().kept, []);
  });

  t.test('a kept provider that the new registry names and then takes out is gone at once', async (t) => {
    const world = await VirtualRegistry.begun(t);
    await world.writer.all(tableOf({ [QUERY]: 2 }), 'here');
    const here = await world.joined();
    here.answered('crm.order.2', world.clock);
    await world.beginAnew('epoch-2');
    await world.writer.all(tableOf({ [QUERY]: 1 }), 'here');
    await world.clock.advance(8_000);
    t.strictSame(here.providers(QUERY), ids(2));
    await world.writer.capability(tableOf({ [QUERY]: 2 }), QUERY);
    await world.clock.advance(5);
    t.strictSame(here.client.status().kept, []);
    await world.writer.capability(tableOf({ [QUERY]: 1 }), QUERY);
    await world.clock.advance(5);
    t.strictSame(here.providers(QUERY), ids(1));
  });

  t.test('one with less than half of the providers is held back until two beacons have confirmed it', async (t) => {
    const world = await VirtualRegistry.begun(t);
    await world.writer.all(tableOf({ [QUERY]: 8 }), 'here');
    const here = await world.joined();
    world.writer.stopBeacon();
    await world.beginAnew('epoch-2');
    await world.writer.all(tableOf({ [QUERY]: 3 }), 'here');
    world.writer.beacon();
    await world.clock.advance(30_000);
    t.strictSame(here.providers(QUERY), ids(8));
    t.match(here.stale, /names 3 providers where there were 8: held back/);
    world.writer.beacon();
    world.writer.beacon();
    await world.clock.advance(100);
    t.strictSame(here.providers(QUERY), ids(8), 'two in one instant are one');
    await world.clock.advance(1_000);
    world.writer.beacon();
    await world.clock.advance(10);
    t.strictSame(here.providers(QUERY), ids(3));
    t.equal(here.stale, '');
  });

  t.test('one that fills up meanwhile is taken as soon as it is large enough', async (t) => {
    const world = await VirtualRegistry.begun(t);
    await world.writer.all(tableOf({ [QUERY]: 8 }), 'here');
    const here = await world.joined();
    world.writer.stopBeacon();
    await world.beginAnew('epoch-2');
    await world.writer.all(tableOf({ [QUERY]: 1 }), 'here');
    world.writer.beacon();
    await world.clock.advance(2_000);
    t.strictSame(here.providers(QUERY), ids(8));
    await world.writer.capability(tableOf({ [QUERY]: 7 }), QUERY);
    world.writer.beacon();
    await world.clock.advance(100);
    t.strictSame(here.providers(QUERY), ids(8), 'whoever is missing may still come back');
    await world.clock.advance(4_000);
    t.strictSame(here.providers(QUERY), ids(7));
  });

  t.test('an empty one is not believed blindly, however small the old one was', async (t) => {
    const world = await VirtualRegistry.begun(t);
    await world.writer.all(tableOf({ [QUERY]: 1 }), 'here');
    const here = await world.joined();
    world.writer.stopBeacon();
    await world.beginAnew('epoch-2');
    await world.writer.scope('here', []);
    world.writer.beacon();
    await world.clock.advance(10_000);
    t.strictSame(here.providers(QUERY), ids(1));
    world.writer.startBeacon();
    await world.clock.advance(4_000);
    t.equal(here.providers(QUERY), null, 'in the end the registry is right');
  });

  t.test('one that goes back within its epoch is not followed, and that is said aloud', async (t) => {
    const world = await VirtualRegistry.begun(t);
    for (let i = 0; i < 10; i++) await world.writer.all(tableOf({ [QUERY]: 2 }), 'here');
    const here = await world.joined();
    await world.beginAnew('epoch-1');
    await world.writer.all(tableOf({ [QUERY]: 1 }), 'here');
    await world.clock.advance(5_000);
    t.strictSame(here.providers(QUERY), ids(2));
    t.match(here.stale, /has gone back to sequence 3, and 21 is held here.* needs a new epoch/);
    await world.beginAnew('epoch-2');
    await world.writer.all(tableOf({ [QUERY]: 1 }), 'here');
    await world.clock.advance(8_000);
    t.strictSame(here.providers(QUERY), ids(1));
    t.equal(here.stale, '');
  });

  t.test('a writer of an old epoch that is still heard changes nothing', async (t) => {
    const world = await VirtualRegistry.begun(t);
    await world.writer.all(tableOf({ [QUERY]: 2 }), 'here');
    const here = await world.joined();
    const zombie = JSON.stringify({ wire: 1, epoch: 'epoch-0', lastSeq: 900, recent: [[Tail.capability(QUERY), 900]], term: 1 });
    for (let i = 0; i < 10; i++) {
      world.nats.route('ar.test.beacon', Buffer.from(zombie), '');
      await world.clock.advance(1_000);
    }
    t.strictSame(here.providers(QUERY), ids(2));
    t.equal(here.stale, '');
    t.equal(here.client.status().epoch, 'epoch-1');
    t.equal(here.client.status().counters.comparisons, 1, 'one look at the epoch tells');
  });
});

t.test('the copy on disk', async (t) => {
  t.test('a restart while NATS is away goes on with it, and says so', async (t) => {
    const world = await VirtualRegistry.begun(t);
    await world.writer.all(tableOf({ [QUERY]: 2, [WRITE]: 70 }), 'here');
    const first = await world.joined({ keepAt: world.keepAt });
    await world.writer.capability(tableOf({ [QUERY]: 3 }), QUERY);
    await world.written(first);
    world.nats.down();
    const second = world.client({ keepAt: world.keepAt });
    t.ok(second.table.ready, 'at once');
    t.equal(second.table.source, 'last good copy');
    t.strictSame(second.providers(QUERY), ids(3));
    t.equal(second.providers(WRITE)?.length, 70);
    t.match(second.stale, /NATS cannot be reached/);
    t.equal(second.client.status().applied_seq, first.client.status().applied_seq);
    world.nats.up();
    await world.writer.capability(tableOf({ [QUERY]: 5 }), QUERY);
    await world.clock.advance(5_000);
    t.strictSame(second.providers(QUERY), ids(5));
    t.equal(second.table.source, 'registry');
    t.equal(second.stale, '');
  });

  t.test('whatever byte the last writing was cut at, the copy is one of the last two as a whole', async (t) => {
    const world = await VirtualRegistry.begun(t);
    await world.writer.all(tableOf({ [QUERY]: 2 }), 'here');
    const first = await world.joined({ keepAt: world.keepAt });
    await world.clock.advance(1_100);
    await world.writer.capability(tableOf({ [QUERY]: 3 }), QUERY);
    await world.written(first);
    world.nats.down();
    const file = `${world.keepAt}.registry`;
    const whole = readFileSync(file);
    const before = `${file}.before`;
    t.ok(existsSync(before));
    copyFileSync(file, `${file}.kept`);
    for (let bytes = 0; bytes <= whole.length; bytes += 97) {
      copyFileSync(`${file}.kept`, file);
      truncateSync(file, Math.min(bytes, whole.length));
      const client = world.client({ keepAt: world.keepAt, announce: false });
      const count = client.providers(QUERY)?.length;
      if (count !== (bytes >= whole.length ? 3 : 2)) t.fail(`cut at ${bytes}: ${count} providers`);
    }
    const flipped = Buffer.from(whole);
    flipped[flipped.length >> 1] = (flipped[flipped.length >> 1] as number) ^ 1;
    writeFileSync(file, flipped);
    t.equal(world.client({ keepAt: world.keepAt, announce: false }).providers(QUERY)?.length, 2, 'one flipped bit is found out');
    writeFileSync(before, flipped);
    t.notOk(world.client({ keepAt: world.keepAt, announce: false }).table.ready, 'and with both spoilt there is none');
  });

  t.test('a copy of another environment or another sidecar is not believed', async (t) => {
    const world = await VirtualRegistry.begun(t);
    await world.writer.all(tableOf({ [QUERY]: 2 }), 'here');
    await world.written(await world.joined({ keepAt: world.keepAt }));
    world.nats.down();
    t.notOk(world.client({ keepAt: world.keepAt, env: 'prod' }).table.ready);
    t.notOk(world.client({ keepAt: world.keepAt, name: 'there' }).table.ready);
    t.ok(world.client({ keepAt: world.keepAt }).table.ready);
  });

  t.test('a copy of an older epoch serves until the new one is complete', async (t) => {
    const world = await VirtualRegistry.begun(t);
    await world.writer.all(tableOf({ [QUERY]: 2 }), 'here');
    await world.written(await world.joined({ keepAt: world.keepAt }));
    await world.beginAnew('epoch-2');
    world.writer.onHello = async () => {
      await world.writer.all(tableOf({ [QUERY]: 3 }), 'here');
    };
    const here = world.client({ keepAt: world.keepAt });
    t.strictSame(here.providers(QUERY), ids(2));
    await world.clock.advance(10_000);
    t.strictSame(here.providers(QUERY), ids(3));
  });
});
