/** What the control plane does for messages: pools, work, owners of partitions, inboxes, what is kept for people, notices. On a real nats-server. */
import { createHmac } from 'node:crypto';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { connect } from 'nats';
import t, { type Test } from 'tap';
import { VirtualClock } from '../../../base/virtual-clock.ts';
import type { Bus } from '../../../base/nats.ts';
import { ack, Puller } from '../../../base/puller.ts';
import { realClock } from '../../../base/clock.ts';
import { runReachctl } from '../../../control-plane/cli/program.ts';
import type { Leading } from '../../../control-plane/push/leading.ts';
import { inboxPage } from '../../../control-plane/messages/inbox-page.ts';
import { DEFAULT_MESSAGES } from '../../../control-plane/messages/config.ts';
import { serverTime } from '../../../control-plane/messages/time-left.ts';
import { guessPool, poolFor } from '../../../control-plane/messages/pool-guess.ts';
import { messageStreams } from '../../../control-plane/messages/streams.ts';
import { isEligible, PoolBook } from '../../../control-plane/registry/pool-book.ts';
import { assign, keepsOwnership } from '../../../control-plane/registry/sticky.ts';
import { decodeEnvelope, encodeEnvelope, type Envelope, MESSAGE_WIRE } from '../../../proto/wire/envelope.ts';
import { floorKey, ledgerKey } from '../../../proto/wire/ledger-key.ts';
import {
  Consumer,
  type KeptEntry,
  type KeptKind,
  type Pool,
  type PoolAnswer,
  POOL_SECRET,
  type PoolState,
  type TaskAnswer,
  type TaskEvent,
  type WorkState,
} from '../../../proto/wire/messages.ts';
import { partitionOf, poolId } from '../../../proto/wire/pool.ts';
import type { Beacon } from '../../../proto/wire/registry.ts';
import { CONFIG_STREAM, INBOX_STREAM, KEPT_STREAM, LEDGER_STREAM, Subjects, Tail, TASK_STREAM } from '../../../proto/wire/subjects.ts';
import { askLeader, ENV, FakeSidecar, OPERATOR, Plane, VIEWER } from '../../support/control-plane.ts';
import { systemRandom } from '../../../base/random.ts';
import type { ClaimAsk } from '../../../sidecar/ledger/ledger.ts';
import { NatsLedger } from '../../../sidecar/ledger/nats-ledger.ts';
import { envelopeOf as anEnvelope } from '../../support/envelope.ts';
import { NatsServer } from '../../support/nats.ts';
import { providerOf } from '../../support/route-table.ts';
import { waitUntil } from '../../support/settle.ts';

t.setTimeout(90_000);

const ORDER = 'crm.order.query';
const REFUND = 'crm.refund.apply';
const subjects = new Subjects(ENV);

function poolOf(parts: Partial<Omit<Pool, 'id'>> = {}): Pool {
  const whole = { capability: ORDER, version: '2.0.0', role: null, agent: null, tags: {}, sticky: false, ...parts };
  return { id: poolId(whole), ...whole };
}

const envelopeOf = (parts: Partial<Envelope> = {}): Envelope => anEnvelope(ORDER, poolOf().id, parts);

class World {
  readonly nats: NatsServer;
  readonly plane: Plane;
  readonly bus: Bus;

  static async start(t: Test, more = ''): Promise<World> {
    const nats = await NatsServer.start(t);
    const plane = await Plane.start(t, nats, 'cp-1', more);
    await plane.leads();
    return new World(nats, plane, await nats.connect());
  }

  private constructor(nats: NatsServer, plane: Plane, bus: Bus) {
    this.nats = nats;
    this.plane = plane;
    this.bus = bus;
  }

  async usePool(pool: unknown, sidecar = 'front'): Promise<PoolAnswer> {
    return (await askLeader(this.bus, subjects.ctl('pool'), { wire: MESSAGE_WIRE, sidecar, pool })) as PoolAnswer;
  }

  async tail<T>(tail: string): Promise<T | null> {
    const found = await this.bus.lastAtLeader(CONFIG_STREAM, subjects.cfg(tail));
    if (found === null) return null;
    if ('failed' in found) throw new Error(found.failed);
    return JSON.parse(found.data.toString('utf8')) as T;
  }

  work(sidecar: string): Promise<WorkState | null> {
    return this.tail<WorkState>(Tail.work(sidecar));
  }

  async agentsAt(sidecar: string): Promise<readonly string[]> {
    return (await this.work(sidecar))?.pools.flatMap(({ agents }) => agents) ?? [];
  }

  async consumers(stream = TASK_STREAM): Promise<string[]> {
    const listed = await this.bus.consumers(stream);
    return 'failed' in listed ? [] : listed.map(({ name }) => name).sort();
  }

  /** As an operator's slip, or a lost disk. */
  async lose(stream: string): Promise<void> {
    const operator = await connect({ servers: this.nats.url });
    await (await operator.jetstreamManager()).streams.delete(stream);
    await operator.close();
  }

  async count(stream: string): Promise<number> {
    const facts = await this.bus.stream(stream);
    return facts === null || 'failed' in facts ? -1 : facts.messages;
  }

  async append(subject: string, data: Uint8Array): Promise<number> {
    const stored = await this.bus.append(subject, data);
    if (!('seq' in stored)) throw new Error(JSON.stringify(stored));
    return stored.seq;
  }

  async keep(kind: KeptKind, envelope: Envelope, payload: string, parts: Partial<KeptEntry> = {}): Promise<number> {
    const entry: KeptEntry = {
      wire: MESSAGE_WIRE,
      kind,
      task_id: envelope.task_id,
      capability: envelope.capability,
      source: envelope.source,
      code: kind === 'dead' ? 7002 : kind === 'in_doubt' ? 7003 : 7005,
      cause: kind === 'dead' ? 'attempts_exhausted' : '',
      detail: 'it went wrong',
      attempts: [{ by: 'crm.order.a', at_ms: 5, code: 1002, detail: 'gone' }],
      since_ms: 7,
      rule: null,
      ...parts,
    };
    const message = encodeEnvelope(envelope, Buffer.from(payload));
    return this.append(subjects.kept(kind, envelope.task_id), Buffer.concat([Buffer.from(`${JSON.stringify(entry)}\n`), message]));
  }

  async queued(pool: Pool): Promise<{ subject: string; envelope: Envelope; payload: string }[]> {
    const found = await this.bus.history(TASK_STREAM, `${subjects.tasks.slice(0, -1)}${pool.id}.>`);
    if ('failed' in found) throw new Error(found.failed);
    return found.map(({ subject, data }) => {
      const read = decodeEnvelope(data);
      if (read === null) throw new Error('unreadable');
      return { subject, envelope: read.envelope, payload: read.payload.toString('utf8') };
    });
  }
}

const json = (value: unknown): Buffer => Buffer.from(JSON.stringify(value), 'utf8');

async function eventually<T>(what: string, look: () => Promise<T>, isIt: (value: T) => boolean, withinMs = 8_000): Promise<T> {
  let last: T | undefined;
  await waitUntil(
    what,
    async () => {
      last = await look();
      return isIt(last);
    },
    withinMs,
  );
  return last as T;
}

t.test('who is eligible for a pool', async (t) => {
  const both = providerOf('crm.order.a', [`${ORDER}@2.0.0`, `${ORDER}@2.1.0`], { tags: { retriever: 'yes' }, target: { region: 'eu' } });
  const table: readonly (readonly [Partial<Omit<Pool, 'id'>>, boolean, string])[] = [
    [{ tags: { region: 'eu' } }, true, 'its version, its tag'],
    [{ version: null, tags: { region: 'eu' } }, true, 'any version'],
    [{ version: '1.0.0', tags: { region: 'eu' } }, false, 'a version that it does not offer'],
    [{ capability: REFUND, tags: { region: 'eu' } }, false, 'another capability'],
    [{ tags: { region: 'us' } }, false, 'a tag that it is not fit for'],
    [{}, false, 'a pool that says nothing of a tag that it names'],
    [{ tags: { region: 'eu', size: 'xl' } }, true, 'a tag that it does not name'],
    [{ role: 'order', tags: { region: 'eu' } }, true, 'its role'],
    [{ role: 'retriever', tags: { region: 'eu' } }, true, 'a role that stands among its tags'],
    [{ role: 'boss', tags: { region: 'eu' } }, false, 'another role'],
    [{ agent: 'crm.order.a', tags: { region: 'eu' } }, true, 'itself'],
    [{ agent: 'crm.order.b', tags: { region: 'eu' } }, false, 'another agent'],
  ];
  for (const [parts, is, words] of table) t.equal(isEligible(poolOf(parts), both), is, words);
});

t.test('partitions are shared out evenly, and stay where they are', async (t) => {
  const free = Array.from({ length: 8 }, () => ({ owner: '', term: 0 }));
  const shared = (moves: readonly { owner: string }[]): Record<string, number> => {
    const counts: Record<string, number> = {};
    for (const { owner } of moves) counts[owner] = (counts[owner] ?? 0) + 1;
    return counts;
  };
  t.same(
    assign(free, [], () => true),
    [],
    'nobody is there',
  );
  t.same(shared(assign(free, ['a', 'b'], () => true)), { a: 4, b: 4 });
  const counts = Object.values(shared(assign(free, ['a', 'b', 'c'], () => true))).sort();
  t.same(counts, [2, 3, 3]);
  const owned = free.map((_, i) => ({ owner: i < 5 ? 'a' : 'b', term: 1 }));
  t.same(
    assign(owned, ['a', 'b', 'c'], () => true),
    [],
    'a newcomer gets nothing that somebody has',
  );
  const moves = assign(owned, ['b', 'c'], (owner) => owner !== 'a');
  t.same(
    moves.map(({ index }) => index),
    [0, 1, 2, 3, 4],
    'only what the one who is gone had',
  );
  t.same(shared(moves), { b: 1, c: 4 }, 'and so that it is even afterwards');
  t.same(
    assign(owned, ['b', 'c'], () => true),
    [],
    'an owner that is away keeps what it has',
  );
  t.ok(keepsOwnership({ kind: 'online', sidecar: 's' }, true, 0, 0));
  t.notOk(keepsOwnership({ kind: 'online', sidecar: 's' }, false, 0, 1_000), 'it is there, and works on this no longer');
  t.ok(keepsOwnership({ kind: 'offline', why: 'left', sinceMs: 100 }, false, 1_000, 1_000), 'a short restart');
  t.notOk(keepsOwnership({ kind: 'offline', why: 'left', sinceMs: 100 }, false, 1_200, 1_000));
  t.notOk(keepsOwnership({ kind: 'offline', why: 'lease', sinceMs: 100 }, false, 101, 1_000), 'a lease is longer than any restart');
  t.notOk(keepsOwnership({ kind: 'unknown' }, false, 0, 1_000));
});

t.test('the book of pools tells whose work has changed, and only theirs', async (t) => {
  const clock = new VirtualClock();
  let workers = [
    { agent: 'crm.order.a', sidecar: 'one', record: providerOf('crm.order.a', [`${ORDER}@2.0.0`]) },
    { agent: 'crm.order.b', sidecar: 'two', record: providerOf('crm.order.b', [`${ORDER}@2.0.0`]) },
  ];
  const book = new PoolBook((name) => (name === ORDER ? workers : []));
  const entry = book.add(poolOf(), [], clock.now());
  book.add(poolOf({ capability: REFUND }), [], clock.now());
  t.same(book.takeDirty(), ['one', 'two']);
  t.same(book.takeDirty(), []);
  book.touch([ORDER, REFUND, 'x.y.z'], clock.now());
  t.same(book.takeDirty(), [], 'nothing has changed');
  workers = workers.slice(0, 1);
  book.touch([ORDER], clock.now());
  t.same(book.takeDirty(), ['two']);
  t.same(book.work('two'), []);
  t.match(book.work('one'), [{ pool: { id: poolOf().id }, agents: ['crm.order.a'], partitions: [] }]);
  book.remove(entry);
  t.same(book.takeDirty(), ['one']);
  t.equal(book.size, 1);
});

t.test('a forgotten pool is worked out from a message of it, and proved', async (t) => {
  const pool = poolOf({ role: 'order', tags: { region: 'eu' }, sticky: true });
  const target = { capability: null, role: 'order', agent: null };
  t.same(guessPool(envelopeOf({ pool: pool.id, target, tags: { region: 'eu', other: 'x' } })), pool);
  t.equal(guessPool(envelopeOf({ pool: `p${'a'.repeat(20)}` })), null);
  t.same(
    poolFor(ORDER, '2.0.0', { region: 'eu', other: 'x' }, [{ region: 'us' }]),
    poolOf({ tags: { region: 'eu' } }),
    'only tags that somebody asks about',
  );
  t.equal(partitionOf('k'), partitionOf('k'));
  t.ok(Array.from({ length: 100 }, (_, i) => partitionOf(`key-${i}`)).every((partition) => partition >= 0 && partition < 8));
});

t.test('streams, pools and work', async (t) => {
  const world = await World.start(t, '  messages: {pools: 4, tasks: {count: 2000}}\n');
  const { bus } = world;
  const sidecar = await FakeSidecar.join(world.nats, 'order-a', { 'crm.order.a': [`${ORDER}@2.0.0`] });
  await sidecar.hello();

  await t.test('the streams are as the settings say', async (t) => {
    t.match(await world.usePool(poolOf()), { ok: true, why: '' });
    const config = { ...DEFAULT_MESSAGES, tasks: { ...DEFAULT_MESSAGES.tasks, count: 2_000 } };
    for (const spec of messageStreams(subjects, config, 1)) {
      const ready = await bus.ensureStream(spec);
      t.match(ready, { change: 'none', ignored: [] }, spec.name);
    }
  });

  await t.test('a pool has its consumers, is stored, and whoever works on it is told, all before the answer', async (t) => {
    const pool = poolOf({ tags: { region: 'eu' } });
    t.match(await world.usePool(pool), { ok: true });
    t.same(
      (await world.consumers()).filter((name) => name.startsWith(pool.id)),
      [`${pool.id}_high`, `${pool.id}_low`, `${pool.id}_normal`],
    );
    t.match(await world.tail<PoolState>(Tail.pool(pool.id)), { pool, partitions: [] });
    t.match(await world.work('order-a'), { pools: [{ agents: ['crm.order.a'] }, { agents: ['crm.order.a'] }] });
    const lane = await bus.consumer(TASK_STREAM, Consumer.lane(pool.id, 'high'));
    t.match(lane, { filter: `ar.test.task.${pool.id}.high.*.*`, ackWaitNs: 20_000_000_000 });
    t.match(await world.usePool(pool), { ok: true }, 'a second sender names the same');
  });

  await t.test('work follows the agents', async (t) => {
    const other = await FakeSidecar.join(world.nats, 'order-b', { 'crm.order.b': [`${ORDER}@2.0.0`], 'crm.order.c': [`${ORDER}@1.0.0`] });
    await other.hello();
    await eventually(
      'b works',
      () => world.agentsAt('order-b'),
      (agents) => agents.length === 2 && agents.every((each) => each === 'crm.order.b'),
    );
    await other.leave('crm.order.b');
    await eventually(
      'b is gone',
      () => world.agentsAt('order-b'),
      (agents) => agents.length === 0,
    );
    t.same((await world.work('order-b'))?.pools, []);
    t.equal(await world.work('front'), null, 'who never had work is told nothing');
  });

  await t.test('a pool that is none is refused, and so is one too many', async (t) => {
    const good = poolOf({ version: '9.9.9' });
    t.match(await world.usePool({ ...good, id: poolOf().id }), { ok: false, why: /calls itself/ });
    t.match(await world.usePool({ ...good, capability: 'nonsense' }), { ok: false, why: /not the name of a capability/ });
    t.match(await world.usePool({ ...good, version: '^2' }), { ok: false, why: /not an exact version/ });
    t.match(await world.usePool({ ...good, agent: 'x' }), { ok: false, why: /not an agent id/ });
    t.match(await world.usePool({ ...good, role: 'a b' }), { ok: false, why: /not a role/ });
    t.match(await world.usePool({ ...good, tags: { 'a b': 'c' } }), { ok: false, why: /tags/ });
    t.match(await world.usePool({ ...good, sticky: 'yes' }), { ok: false, why: /true or false/ });
    t.match(await world.usePool(null), { ok: false, why: /must be a map/ });
    t.match(await world.usePool(good), { ok: true }, 'one that nobody offers yet');
    t.match(await world.usePool(poolOf({ version: '9.9.8' })), { ok: true });
    t.match(await world.usePool(poolOf({ version: '9.9.7' })), { ok: false, why: /there are 4 pools, which is as many as are kept/ });
  });

  await t.test('what the server has lost is made again', async (t) => {
    const id = poolOf().id;
    await bus.deleteConsumer(TASK_STREAM, Consumer.lane(id, 'normal'));
    await bus.deleteConsumer(INBOX_STREAM, Consumer.inbox('order-a'));
    await eventually(
      'the consumer is back',
      () => world.consumers(),
      (names) => names.includes(`${id}_normal`),
      12_000,
    );
    await bus.ensureConsumer({
      stream: INBOX_STREAM,
      name: Consumer.inbox('ghost'),
      filter: subjects.inboxesAt('ghost'),
      ackWaitMs: 30_000,
      maxAckPending: 10,
      maxDeliver: -1,
      deliver: 'all',
    });
    await eventually(
      'the inbox is back',
      () => world.consumers(INBOX_STREAM),
      (names) => names.includes('inbox_order-a'),
      12_000,
    );
    await eventually(
      'that of a sidecar that is gone is not',
      () => world.consumers(INBOX_STREAM),
      (names) => !names.includes('inbox_ghost'),
      12_000,
    );
    await world.lose(TASK_STREAM);
    await eventually(
      'the stream is gone',
      () => world.consumers(),
      (found) => found.length === 0,
    );
    const names = await eventually(
      'stream and consumers are back',
      () => world.consumers(),
      (found) => found.length === 12,
      12_000,
    );
    t.ok(names.includes(`${id}_normal`));
  });

  await t.test('what is parked is listed, with how much and since when', async (t) => {
    const pool = poolOf({ version: '9.9.9' });
    await world.append(subjects.task(pool.id, 'high', 0, 'front'), encodeEnvelope(envelopeOf({ pool: pool.id }), Buffer.from('x')));
    await world.append(subjects.task(pool.id, 'low', 0, 'front'), encodeEnvelope(envelopeOf({ pool: pool.id }), Buffer.from('y')));
    await world.append(subjects.task(poolOf().id, 'low', 0, 'front'), encodeEnvelope(envelopeOf(), Buffer.from('z')));
    const { body } = await world.plane.ask('/v1/tasks/parked', { token: VIEWER });
    const pools = body['pools'] as { pool: string; messages: number; lanes: object; oldest_ms: number; words: string }[];
    t.match(pools, [{ pool: pool.id, messages: 2, lanes: { high: 1, low: 1 }, agents: 0, words: `${ORDER}@9.9.9` }]);
    t.ok((pools[0]?.oldest_ms ?? -1) >= 0 && (pools[0]?.oldest_ms ?? 1e9) < 60_000);
    await eventually(
      'monitors see it',
      async () => (await world.plane.ask('/metrics')).body['text'] as string,
      (text) => /reach_control_pools_parked 1\n/.test(text) && /reach_control_tasks_waiting\{lane="low"\} 2\n/.test(text),
    );
    const all = (await world.plane.ask('/v1/pools')).body['pools'] as { pool: string; agents: number }[];
    t.equal(all.length, 4);
    t.match(
      all.find((one) => one.pool === poolOf().id),
      { agents: 1, messages: 1, sidecars: ['order-a'] },
    );
    const drain = (verb: string) =>
      world.plane.ask(`/v1/providers/crm.order.a/${verb}`, { method: 'POST', token: OPERATOR, json: { reason: 'x' } });
    t.equal((await drain('drain')).status, 200);
    t.match(
      ((await world.plane.ask('/v1/tasks/parked', { token: VIEWER })).body['pools'] as { pool: string }[]).find(
        (one) => one.pool === poolOf().id,
      ),
      { agents: 1, drained: 1, messages: 1 },
      'one whose workers are all drained is seen there too',
    );
    t.equal((await drain('restore')).status, 200);
  });

  await t.test('the next leader knows the pools, and writes nothing anew', async (t) => {
    const second = await Plane.start(t, world.nats, 'cp-2', '  messages: {pools: 4, tasks: {count: 2000}}\n');
    await second.follows();
    const before = await world.bus.lastAtLeader(CONFIG_STREAM, subjects.cfg(Tail.work('order-a')));
    await world.plane.control.stop(0);
    await second.leads();
    t.match(await world.usePool(poolOf()), { ok: true });
    const after = await world.bus.lastAtLeader(CONFIG_STREAM, subjects.cfg(Tail.work('order-a')));
    t.ok(before !== null && after !== null && 'seq' in before && 'seq' in after && before.seq === after.seq);
    t.match(await world.usePool(poolOf({ version: '9.9.7' })), { ok: false, why: /there are 4 pools/ });
  });
});

t.test('partitions of a sticky pool', async (t) => {
  const world = await World.start(t, '  messages: {sticky_grace: 1500ms}\n');
  const pool = poolOf({ sticky: true });
  const one = await FakeSidecar.join(world.nats, 'one', { 'crm.order.a': [`${ORDER}@2.0.0`] });
  const two = await FakeSidecar.join(world.nats, 'two', { 'crm.order.b': [`${ORDER}@2.0.0`] });
  t.match(await world.usePool(pool), { ok: true });
  await one.hello();
  await two.hello();
  const state = (): Promise<PoolState | null> => world.tail<PoolState>(Tail.pool(pool.id));
  const ownersOf = (found: PoolState | null): string[] => (found?.partitions ?? []).map(({ owner }) => owner);
  const first = await eventually(
    'owners',
    state,
    (found) => ownersOf(found).every((owner) => owner !== '') && ownersOf(found).length === 8,
  );
  t.equal(ownersOf(first).filter((owner) => owner === 'crm.order.a').length, 4, 'evenly, since both came before they were shared out');
  t.same(
    await world.consumers(),
    Array.from({ length: 8 }, (_, i) => Consumer.partition(pool.id, i, 1)),
  );
  const work = await eventually(
    'work',
    () => world.work('one'),
    (found) => (found?.pools[0]?.partitions.length ?? 0) === 4,
  );
  t.ok(work?.pools[0]?.partitions.every(({ owner, term }) => owner === 'crm.order.a' && term === 1));

  await t.test('a short restart keeps them, also when others come meanwhile', async (t) => {
    const before = await state();
    await one.leave('crm.order.a');
    await eventually(
      'no work',
      () => world.agentsAt('one'),
      (agents) => agents.length === 0,
    );
    two.host('crm.order.d', [`${ORDER}@2.0.0`]);
    await two.hello();
    await one.hello();
    await eventually(
      'work again',
      () => world.work('one'),
      (found) => (found?.pools[0]?.partitions.length ?? 0) === 4,
    );
    t.same(await state(), before);
  });

  await t.test(
    'a sidecar that was started anew gets them by new terms, so that what the one before had in hand comes again in order',
    async (t) => {
      const before = (await state()) as PoolState;
      t.ok(before.partitions.every(({ host, owner }) => host === (owner === 'crm.order.a' ? 'one/one-1' : 'two/two-1')));
      one.instance = 'one-2';
      await one.hello();
      const after = (await eventually(
        'new terms',
        state,
        (found) => found?.partitions.every(({ owner, term }) => term === (owner === 'crm.order.a' ? 2 : 1)) === true,
      )) as PoolState;
      t.same(ownersOf(after), ownersOf(before), 'nothing else moves');
      const work = await eventually(
        'work',
        () => world.work('one'),
        (found) => found?.pools[0]?.partitions.every(({ term }) => term === 2) === true,
      );
      t.ok(work?.pools[0]?.partitions.every(({ host }) => host === 'one/one-2'));
      await one.hello();
      await new Promise<void>((done) => void realClock.after(1_200, done));
      t.same(await state(), after, 'a hello of the same process changes nothing');
    },
  );

  await t.test('an owner that is gone for longer loses them: a new term, whose consumer is there, and the old one is not', async (t) => {
    const before = (await state()) as PoolState;
    const index = before.partitions.findIndex(({ owner }) => owner === 'crm.order.a');
    await world.append(
      subjects.task(pool.id, 'normal', index, 'front'),
      encodeEnvelope(envelopeOf({ pool: pool.id }), Buffer.from('kept')),
    );
    await one.leave('crm.order.a');
    const after = (await eventually('all at others', state, (found) => !ownersOf(found).includes('crm.order.a'))) as PoolState;
    for (const [i, { owner, term }] of after.partitions.entries()) {
      const old = before.partitions[i];
      t.equal(term, old?.owner === 'crm.order.a' ? (old.term ?? 0) + 1 : 1);
      t.equal(owner === old?.owner, old?.owner !== 'crm.order.a');
    }
    const names = await world.consumers();
    t.same(names, after.partitions.map(({ term }, i) => Consumer.partition(pool.id, i, term)).sort());
    const facts = await world.bus.consumer(TASK_STREAM, Consumer.partition(pool.id, index, after.partitions[index]?.term ?? 0));
    t.match(facts, { pending: 1 }, 'what waited waits for the new owner');
    const owned = ownersOf(after);
    t.ok(Math.abs(owned.filter((owner) => owner === 'crm.order.b').length - owned.filter((owner) => owner === 'crm.order.d').length) <= 1);
  });

  await t.test('an owner that moves house is fenced at the old one', async (t) => {
    const before = (await state()) as PoolState;
    const mine = before.partitions.flatMap(({ owner }, i) => (owner === 'crm.order.d' ? [i] : []));
    t.ok(mine.length > 0);
    await two.leave('crm.order.d');
    const three = await FakeSidecar.join(world.nats, 'three', { 'crm.order.d': [`${ORDER}@2.0.0`] });
    await three.hello();
    const after = (await eventually('new terms', state, (found) =>
      mine.every((i) => (found?.partitions[i]?.term ?? 0) > (before.partitions[i]?.term ?? 0)),
    )) as PoolState;
    t.ok(mine.every((i) => after.partitions[i]?.owner === 'crm.order.d'));
    const work = await eventually(
      'work at the new home',
      () => world.work('three'),
      (found) => found?.pools[0]?.partitions.length === mine.length,
    );
    t.same(
      work?.pools[0]?.partitions.map(({ index }) => index),
      mine,
    );
  });
});

t.test('inboxes', async (t) => {
  const world = await World.start(t);
  const { bus } = world;
  const agent = 'crm.order.a';
  const old = await FakeSidecar.join(world.nats, 'old', { [agent]: [`${ORDER}@2.0.0`] });
  old.callers = [];
  await old.hello();
  await eventually(
    'a consumer for its inboxes',
    () => world.consumers(INBOX_STREAM),
    (names) => names.includes('inbox_old'),
  );
  const event = (task: string): Buffer => {
    const told: Partial<TaskEvent> = {
      wire: MESSAGE_WIRE,
      kind: 'state',
      task_id: task,
      power_id: `k:${task}`,
      state: 'done',
      capability: ORDER,
    };
    return Buffer.from(`${JSON.stringify(told)}\nresult of ${task}`, 'utf8');
  };
  for (const task of ['task0001', 'task0002', 'task0003', 'task0004']) await world.append(subjects.inbox('old', agent), event(task));

  const asker = await world.nats.connect({ inboxPrefix: '_INBOX.old' });
  const ask = async (question: object, from: Bus = asker): Promise<TaskAnswer> => {
    return (await askLeader(from, subjects.ctl('task'), { wire: MESSAGE_WIRE, sidecar: 'old', agent, ...question })) as TaskAnswer;
  };

  await t.test('history is read by whoever is its home, and by nobody else', async (t) => {
    const page = await ask({ what: 'inbox', from: 0, limit: 2 });
    t.match(page, { ok: true, entries: [{ home: 'old' }, { home: 'old' }], more: true, first: 1, last: 4 });
    if (!page.ok || page.what !== 'inbox') throw new Error('no page');
    t.match(Buffer.from(page.entries[1]?.data ?? '', 'base64').toString('utf8'), /"task0002".*\nresult of task0002$/);
    t.match(await ask({ what: 'inbox', from: (page.entries[1]?.seq ?? 0) + 1, limit: 2 }), {
      entries: [{ seq: 3 }, { seq: 4 }],
      more: false,
    });
    t.match(await ask({ what: 'inbox', from: 5, limit: 2 }), { entries: [], more: false });
    t.match(await ask({ what: 'inbox', from: 0, limit: 2, agent: 'crm.order.z' }), { ok: false, code: 4002, why: /not at home with old/ });
    t.match(await ask({ what: 'inbox', from: 0, limit: 2 }, bus), { ok: false, code: 4002, why: /not go to an inbox of old/ });
    t.match(await ask({ what: 'inbox', from: -1, limit: 2 }), { ok: false, code: 4003 });
    t.match(await ask({ what: 'else' }), { ok: false, code: 4003 });
  });

  await t.test('what became of a task: in the inbox, kept, or still in the queue', async (t) => {
    const done = await ask({ what: 'status', task_id: 'task0002' });
    t.match(done, {
      found: { state: 'done', event: { task_id: 'task0002' }, result: Buffer.from('result of task0002').toString('base64') },
    });
    t.match(await ask({ what: 'status', task_id: 'nowhere1' }), { ok: true, found: null });
    await world.keep('in_doubt', envelopeOf({ task_id: 'doubt001', source: agent }), 'x');
    t.match(await ask({ what: 'status', task_id: 'doubt001' }), { found: { state: 'in_doubt', kept: { kind: 'in_doubt' } } });
    await world.keep('dead', envelopeOf({ task_id: 'others01', source: 'crm.front.x' }), 'x');
    t.match(await ask({ what: 'status', task_id: 'others01' }), { ok: true, found: null }, 'another agent’s');
    t.match(await world.usePool(poolOf()), { ok: true });
    const waiting = envelopeOf({ task_id: 'waits001', source: agent, home: 'old' });
    await world.append(subjects.task(poolOf().id, 'normal', 0, 'old'), encodeEnvelope(waiting, Buffer.from('x')));
    t.match(await ask({ what: 'status', task_id: 'waits001' }), { found: { state: 'waiting' } });
  });

  await t.test('what is not acknowledged follows an agent to its new home, in order', async (t) => {
    const puller = new Puller(bus, realClock, {
      stream: INBOX_STREAM,
      consumer: 'inbox_old',
      onMessage: (delivery) => {
        if (delivery.streamSeq === 1) ack(bus, delivery);
      },
    });
    t.teardown(() => puller.close());
    puller.request(4);
    await eventually(
      'acknowledged',
      () => bus.consumer(INBOX_STREAM, 'inbox_old'),
      (facts) => facts !== null && 'ackFloorSeq' in facts && facts.ackFloorSeq === 1,
    );
    // 2 is acknowledged by the agent's own word, although the consumer's floor is still below it
    await world.append(subjects.idem(floorKey(agent)), json({ wire: MESSAGE_WIRE, kind: 'floor', agent, seq: 2 }));
    await old.leave(agent);
    const young = await FakeSidecar.join(world.nats, 'young', { [agent]: [`${ORDER}@2.0.0`] });
    await young.hello();
    const moved = await eventually(
      'moved',
      () => bus.history(INBOX_STREAM, subjects.inbox('young', agent)),
      (found) => !('failed' in found) && found.length === 2,
    );
    if ('failed' in moved) throw new Error(moved.failed);
    t.same(
      moved.map(({ data }) => /"task_id":"(\w+)"/.exec(data.toString('utf8'))?.[1]),
      ['task0003', 'task0004'],
    );
    const left = await bus.history(INBOX_STREAM, subjects.inbox('old', agent));
    t.equal('failed' in left ? -1 : left.length, 2, 'what was acknowledged is history at the old home');
    // a result that still goes to the old home, by an envelope from before
    await world.append(subjects.inbox('old', agent), event('task0009'));
    await eventually(
      'the latecomer too',
      () => bus.history(INBOX_STREAM, subjects.inbox('young', agent)),
      (found) => !('failed' in found) && found.length === 3,
      15_000,
    );
  });
});

t.test('what became of a task is found however much lies before it: a look that is not through says where it goes on', async (t) => {
  const world = await World.start(t);
  const agent = 'crm.order.a';
  const sidecar = await FakeSidecar.join(world.nats, 'old', { [agent]: [`${ORDER}@2.0.0`] });
  await sidecar.hello();
  t.match(await world.usePool(poolOf()), { ok: true });
  const asker = await world.nats.connect({ inboxPrefix: '_INBOX.old' });
  const ask = async (question: object): Promise<TaskAnswer> => {
    const asked = { wire: MESSAGE_WIRE, sidecar: 'old', agent, what: 'status', ...question };
    return (await askLeader(asker, subjects.ctl('task'), asked)) as TaskAnswer;
  };
  const look = async (task: string): Promise<{ answer: TaskAnswer; asks: number }> => {
    let answer = await ask({ task_id: task });
    let asks = 1;
    for (; answer.ok && answer.what === 'status' && answer.more !== undefined && asks < 40; asks++)
      answer = await ask({ task_id: task, from: answer.more });
    return { answer, asks };
  };
  const final = (task: string): Buffer =>
    Buffer.from(
      `${JSON.stringify({ wire: MESSAGE_WIRE, kind: 'state', task_id: task, power_id: `k:${task}`, state: 'done', capability: ORDER })}\nyes`,
    );
  const MANY = 2_200;
  for (let i = 0; i < MANY; i += 100)
    await Promise.all(Array.from({ length: 100 }, () => world.append(subjects.inbox('old', agent), final('filler01'))));
  await world.append(subjects.inbox('old', agent), final('late0001'));
  const waiting = (task: string): Buffer => encodeEnvelope(envelopeOf({ task_id: task, source: agent, home: 'old' }), Buffer.from('x'));
  for (let i = 0; i < MANY; i += 100)
    await Promise.all(Array.from({ length: 100 }, () => world.append(subjects.task(poolOf().id, 'low', 0, 'old'), waiting('filler02'))));
  await world.append(subjects.task(poolOf().id, 'low', 0, 'old'), waiting('waits001'));

  const late = await look('late0001');
  t.ok(late.asks > 1, 'not in one go');
  t.match(late.answer, {
    ok: true,
    found: { state: 'done', event: { task_id: 'late0001' }, result: Buffer.from('yes').toString('base64') },
  });
  t.match((await look('waits001')).answer, { ok: true, found: { state: 'waiting' } });
  const nowhere = await look('nowhere2');
  t.match(nowhere.answer, { ok: true, found: null });
  t.notOk('more' in nowhere.answer, 'everything was looked at');
  t.match(await ask({ task_id: 'late0001', from: { inbox: 'x', queue: -1 } }), { ok: false, code: 4003 });
});

t.test('an agent that moves house finds there also what its old home had acknowledged to the server in its stead', async (t) => {
  const world = await World.start(t);
  const { bus } = world;
  const agent = 'crm.order.a';
  const old = await FakeSidecar.join(world.nats, 'old', { [agent]: [`${ORDER}@2.0.0`] });
  old.callers = [];
  await old.hello();
  await eventually(
    'a consumer for its inboxes',
    () => world.consumers(INBOX_STREAM),
    (names) => names.includes('inbox_old'),
  );
  for (let i = 0; i < 5; i++)
    await world.append(subjects.inbox('old', agent), Buffer.from(`{"wire":1,"kind":"state","task_id":"task000${i}"}\n`));
  // Of an agent that is away a sidecar holds so many only; the others it lets the server forget. The agent has had the first one.
  const puller = new Puller(bus, realClock, { stream: INBOX_STREAM, consumer: 'inbox_old', onMessage: (delivery) => ack(bus, delivery) });
  t.teardown(() => puller.close());
  puller.request(4);
  await eventually(
    'acknowledged to the server',
    () => bus.consumer(INBOX_STREAM, 'inbox_old'),
    (facts) => facts !== null && 'ackFloorSeq' in facts && facts.ackFloorSeq === 4,
  );
  await world.append(subjects.idem(floorKey(agent)), json({ wire: MESSAGE_WIRE, kind: 'floor', agent, seq: 1 }));
  await old.leave(agent);
  const young = await FakeSidecar.join(world.nats, 'young', { [agent]: [`${ORDER}@2.0.0`] });
  await young.hello();
  const moved = await eventually(
    'moved',
    () => bus.history(INBOX_STREAM, subjects.inbox('young', agent)),
    (found) => !('failed' in found) && found.length >= 4,
  );
  t.same('failed' in moved ? [] : moved.map(({ data }) => /"task_id":"(\w+)"/.exec(data.toString('utf8'))?.[1]), [
    'task0001',
    'task0002',
    'task0003',
    'task0004',
  ]);
});

t.test('what is kept for people', async (t) => {
  const world = await World.start(t);
  const { bus, plane } = world;
  const sidecar = await FakeSidecar.join(world.nats, 'order-a', {
    'crm.order.a': [`${ORDER}@2.0.0`, `${ORDER}@2.1.0`],
    'crm.refund.a': [`${REFUND}@1.0.0`],
  });
  await sidecar.hello();
  t.match(await world.usePool(poolOf()), { ok: true });
  await world.keep(
    'dead',
    envelopeOf({ task_id: 'dead0001', headers: { 'x-card': '4111-1111' }, home_statement: 'signed-word', payload_hash: 'of-the-payload' }),
    '{"a":1}',
    { attempts: [{ by: 'crm.order.a', at_ms: 5, code: 1002, detail: 'no such card "4111-1111"' }] },
  );
  await world.keep('in_doubt', envelopeOf({ task_id: 'doubt001' }), 'pay 5');
  await world.keep('review', envelopeOf({ task_id: 'review01' }), 'look', { rule: 'fallback_to_human_review', code: 7005 });
  await world.keep('dead', envelopeOf({ task_id: 'dead0002', capability: REFUND, pool: `p${'a'.repeat(20)}` }), 'x');
  const order = (task: string, verb: string, body: object = {}) =>
    plane.ask(`/v1/tasks/kept/${task}/${verb}`, { json: { reason: 'a test', ...body } });
  const audits = async (): Promise<{ action: string }[]> =>
    (await plane.ask('/v1/audit?outcome=done')).body['entries'] as { action: string }[];

  await t.test('it is listed, page by page, and shown', async (t) => {
    const all = (await plane.ask('/v1/tasks/kept', { token: VIEWER })).body;
    t.match(all, { entries: [{ task_id: 'dead0001', kind: 'dead', name: 'dead_lettered' }, {}, {}, { task_id: 'dead0002' }], next: null });
    const first = (await plane.ask('/v1/tasks/kept?limit=3')).body;
    t.match(first, { entries: [{}, {}, { task_id: 'review01' }], next: 3 });
    t.match((await plane.ask('/v1/tasks/kept?limit=3&after=3')).body, { entries: [{ task_id: 'dead0002' }], next: null });
    t.match((await plane.ask('/v1/tasks/kept?kind=in_doubt')).body, { entries: [{ task_id: 'doubt001' }], next: null });
    t.match((await plane.ask(`/v1/tasks/kept?capability=${REFUND}`)).body, { entries: [{ task_id: 'dead0002' }], next: null });
    t.equal((await plane.ask('/v1/tasks/kept?kind=lost')).status, 400);
    const shown = (await plane.ask('/v1/tasks/kept/dead0001')).body;
    t.match(shown, { tries: [{ by: 'crm.order.a', code: 1002 }], message: { source: 'crm.front.x', lane: 'normal' }, payload_bytes: 7 });
    t.notMatch(JSON.stringify(shown), /a\\":1/, 'the payload is not shown to everybody');
    t.match(shown, { message: { headers: ['x-card'] } });
    t.notMatch(JSON.stringify(shown), /4111|signed-word|of-the-payload/, 'nor what is quoted of it, what headers say, or what is signed');
    t.equal((await plane.ask('/v1/tasks/kept/nothing1')).status, 404);
    t.equal((await plane.ask('/v1/tasks/kept/dead0001/payload', { token: VIEWER })).status, 403);
    const payload = (await plane.ask('/v1/tasks/kept/dead0001/payload')).body;
    t.equal(Buffer.from(String(payload['base64']), 'base64').toString('utf8'), '{"a":1}');
    t.strictSame(payload['headers'], { 'x-card': '4111-1111' }, 'an operator who asks for the one is given the other');
    t.match(await audits(), [{ action: 'task.payload', subject: 'dead0001', actor: 'ada' }]);
  });

  await t.test('a task in doubt is run again on a person’s word: its claim is freed first, the sender hears of it', async (t) => {
    const id = ledgerKey('crm.front.x', ORDER, 'doubt001');
    await world.append(subjects.idem(id), Buffer.from('{"wire":1,"state":"unknown"}\n'));
    const heard: TaskEvent[] = [];
    bus.subscribe(subjects.note('front'), ({ data }) => void heard.push(JSON.parse(data.toString('utf8')) as TaskEvent));
    t.equal((await plane.ask('/v1/tasks/kept/doubt001/release', { json: {}, token: VIEWER })).status, 403);
    const { status, body } = await order('doubt001', 'release');
    t.equal(status, 200);
    t.match(body, { task_id: 'doubt001', kind: 'in_doubt', pool: poolOf().id });
    t.equal(await bus.lastAtLeader(LEDGER_STREAM, subjects.idem(id)), null, 'the claim');
    const [queued] = await world.queued(poolOf());
    t.match(queued, {
      subject: `ar.test.task.${poolOf().id}.normal.0.front`,
      payload: 'pay 5',
      envelope: { task_id: 'doubt001', home: 'front' },
    });
    t.equal((await plane.ask('/v1/tasks/kept/doubt001')).status, 404);
    await waitUntil('the sender is told', () => heard.length === 1);
    t.match(heard, [{ task_id: 'doubt001', state: 'waiting', cause: 'released', detail: 'released by ada' }]);
    t.match(await audits(), [
      { action: 'task.release', subject: 'doubt001', actor: 'ada', reason: 'a test', detail: { 'before.kind': 'in_doubt' } },
    ]);
    t.equal((await order('doubt001', 'release')).status, 404, 'once');
  });

  await t.test('one whose completion was recorded meanwhile is not run again', async (t) => {
    await world.keep('in_doubt', envelopeOf({ task_id: 'doubt002', keyed: true, power_id: 'my-key' }), 'pay 6');
    await world.append(subjects.idem(ledgerKey('crm.front.x', ORDER, 'my-key')), Buffer.from('{"wire":1,"state":"done"}\nresult'));
    const refused = await order('doubt002', 'release');
    t.equal(refused.status, 409);
    t.match(refused.body, { detail: /completion has been recorded/ });
    t.equal((await world.queued(poolOf())).length, 1);
    t.equal((await order('doubt002', 'drop')).status, 200);
    await world.keep('dead', envelopeOf({ task_id: 'dead0003' }), 'x');
    const claim = subjects.idem(ledgerKey('crm.front.x', ORDER, 'dead0003'));
    await world.append(claim, Buffer.from('{"wire":1,"state":"executing","lease_ms":60000}\n'));
    t.match((await order('dead0003', 'release')).body, { status: 409, detail: /somebody works on this key/ });
    await world.append(claim, Buffer.from('{"wire":1,"state":"executing","lease_ms":0}\n'));
    t.equal((await order('dead0003', 'release')).status, 200, 'a lease that has run out is nobody’s');
  });

  await t.test('an order about one task does not undo what the ledger says of another one with its key', async (t) => {
    const claim = (key: string, record: object): Promise<number> =>
      world.append(subjects.idem(ledgerKey('crm.front.x', ORDER, key)), Buffer.from(`${JSON.stringify({ wire: 1, ...record })}\n`));
    const before = (await world.queued(poolOf())).length;
    const refund = poolOf({ capability: REFUND, version: '1.0.0' });
    const refunds = (await world.queued(refund)).length;
    await world.keep('in_doubt', envelopeOf({ task_id: 'doubt041', keyed: true, power_id: 'pay-0' }), 'pay 42');
    for (const [i, [record, words]] of (
      [
        [{ state: 'unknown', task: 'doubt041' }, /doubt041, is in doubt.*decide about that one first/],
        // a call's, or dropped before that was written down: nobody can decide about it, and it is said when it ends
        [
          { state: 'unknown', task: 'doubt042' },
          /doubt042, is in doubt.*Nothing is kept of it.*its record ends by itself, at 20\d\d-\d\d-\d\dT.*drop this/,
        ],
        [{ state: 'executing', task: 'doubt042', lease_ms: 0 }, /doubt042, had a worker that is not heard of.*ends by itself/],
        [{ state: 'executing', task: 'doubt042', lease_ms: 60_000 }, /somebody works on this key/],
        [{ state: 'done', task: 'other042' }, /completion has been recorded/],
      ] as const
    ).entries()) {
      const task = `deadkey${i}`;
      await world.keep('dead', envelopeOf({ task_id: task, keyed: true, power_id: `pay-${i}` }), 'pay 42');
      const seq = await claim(`pay-${i}`, record);
      t.match((await order(task, 'release')).body, { status: 409, detail: words }, `${record.state}: release`);
      t.match((await order(task, 'reroute', { capability: REFUND })).body, { status: 409, detail: words }, `${record.state}: reroute`);
      const left = await bus.lastAtLeader(LEDGER_STREAM, subjects.idem(ledgerKey('crm.front.x', ORDER, `pay-${i}`)));
      t.match(left, { seq }, 'the record stands');
      t.equal((await order(task, 'drop')).status, 200);
    }
    t.equal((await order('doubt041', 'drop')).status, 200);
    t.equal((await world.queued(poolOf())).length, before, 'nothing was begun');
    t.equal((await world.queued(refund)).length, refunds);
    await world.keep('dead', envelopeOf({ task_id: 'deadkey9', keyed: true, power_id: 'pay-9' }), 'pay 42');
    await claim('pay-9', { state: 'released', task: 'other042' });
    t.equal((await order('deadkey9', 'reroute', { capability: REFUND })).status, 200, 'a key that nobody has is no obstacle');
  });

  await t.test('a doubt that a person has dropped stands in the way of no other order, and of every sender', async (t) => {
    const keyed = { keyed: true, power_id: 'pay-drop' };
    const subject = subjects.idem(ledgerKey('crm.front.x', ORDER, 'pay-drop'));
    const record = async (): Promise<unknown> => {
      const found = await bus.lastAtLeader(LEDGER_STREAM, subject);
      return found === null || 'failed' in found ? found : JSON.parse(found.data.toString('utf8'));
    };
    await world.keep('in_doubt', envelopeOf({ task_id: 'doubt050', ...keyed }), 'pay 42');
    await world.keep('dead', envelopeOf({ task_id: 'deadkeyx', ...keyed }), 'pay 42');
    const head = { wire: 1, state: 'unknown', execution: 'once', caller: 'crm.front.x', capability: ORDER, key: 'pay-drop', hash: '' };
    await world.append(
      subject,
      Buffer.from(`${JSON.stringify({ ...head, task: 'doubt050', worker: 'crm.order.a', nonce: 'n', step: 1 })}\n`),
    );
    t.match((await order('deadkeyx', 'release')).body, { status: 409, detail: /doubt050, is in doubt.*decide about that one first/ });
    t.equal((await order('doubt050', 'drop')).status, 200);
    t.match(await record(), { ...head, task: 'doubt050', decided: true }, 'it stands, so that no repeat of a sender begins it');
    const ledger = new NatsLedger({
      bus,
      subjects,
      clock: realClock,
      random: systemRandom,
      log: { warn: () => undefined },
      self: 'order-a',
    });
    t.teardown(() => ledger.close());
    const ask: ClaimAsk = {
      id: ledgerKey('crm.front.x', ORDER, 'pay-drop'),
      caller: 'crm.front.x',
      capability: ORDER,
      version: '2.0.0',
      payloadHash: '',
      execution: 'once',
      key: 'pay-drop',
      taskId: 'repeat01',
      worker: 'crm.order.a',
    };
    t.match(await ledger.claim(ask), { kind: 'in_doubt' });
    const asOneOfMany = await (plane.control.leading as Leading).messages.kept.release('deadkeyx', 'ada', true);
    t.match(asOneOfMany, { kind: 'conflict', why: /has been dropped: release this one by itself/ });
    t.equal((await order('deadkeyx', 'release')).status, 200, 'on a word about this one it is begun');
    t.equal(await record(), null);
  });

  await t.test('one goes to another capability, in a version that fits and is online', async (t) => {
    await world.keep('review', envelopeOf({ task_id: 'review00', expires_ms: 60_000 }), 'aged', { rule: 'r' });
    await new Promise((done) => setTimeout(done, 50));
    t.equal((await order('review00', 'reroute', { capability: REFUND })).status, 200);
    const aged = (await world.queued(poolOf({ capability: REFUND, version: '1.0.0' }))).find(({ payload }) => payload === 'aged');
    const leftMs = aged?.envelope.expires_ms ?? 0;
    t.ok(leftMs > 30_000 && leftMs < 60_000, `it has what is left of its time: ${leftMs} ms`);
    t.match((await order('review01', 'reroute', { capability: 'no.such.thing' })).status, 404);
    t.match((await order('review01', 'reroute', { capability: `${REFUND}@^7` })).body, { detail: /no version of crm.refund.apply fits/ });
    t.equal((await order('review01', 'reroute')).status, 400);
    t.equal((await order('review01', 'reroute', { capability: REFUND, more: 1 })).status, 400);
    const { body } = await order('review01', 'reroute', { capability: `${ORDER}@^2` });
    const pool = poolOf({ version: '2.1.0' });
    t.match(body, { capability: ORDER, version: '2.1.0', pool: pool.id });
    t.match(await world.queued(pool), [{ payload: 'look', envelope: { task_id: 'review01', pool: pool.id, version: '2.1.0' } }]);
  });

  await t.test('dropped is dropped; a sender that was still waiting is told', async (t) => {
    await world.keep('review', envelopeOf({ task_id: 'review02' }), 'look', { rule: 'r' });
    t.match((await order('review02', 'drop')).body, { task_id: 'review02', pool: null });
    const told = await inboxPage(bus, subjects, 'crm.front.x', 1_000, 1);
    t.match(
      'failed' in told ? '' : told.map(({ data }) => data.toString('utf8')).join(),
      /"review02".*"state":"cancelled".*dropped by ada/,
    );
  });

  await t.test('dropped, and nobody wanted the result: its home is told all the same, for whoever asks there', async (t) => {
    const heard: TaskEvent[] = [];
    const hearing = bus.subscribe(subjects.note('front'), ({ data }) => void heard.push(JSON.parse(data.toString('utf8')) as TaskEvent));
    t.teardown(() => hearing.close());
    await world.keep('review', envelopeOf({ task_id: 'review03', reply_to: null }), 'look', { rule: 'r' });
    t.equal((await order('review03', 'drop')).status, 200);
    await waitUntil('its home hears', () => heard.some(({ task_id, state }) => task_id === 'review03' && state === 'cancelled'));
  });

  await t.test('two leaders, for a moment: what one has begun to do the other can only do as well', async (t) => {
    const kept = await world.keep('review', envelopeOf({ task_id: 'review04' }), 'look', { rule: 'r' });
    // The leader before this one stood still in the midst of releasing it.
    const order04 = { wire: MESSAGE_WIRE, task_id: 'review04', entry: kept, verb: 'release', target: '', who: 'bob' };
    await world.append(subjects.order('review04'), json(order04));
    t.match((await order('review04', 'drop')).body, { status: 409, detail: /bob has begun to release it/ });
    t.match((await order('review04', 'reroute', { capability: REFUND })).body, { status: 409, detail: /bob has begun to release it/ });
    const before = (await world.queued(poolOf())).length;
    t.equal((await order('review04', 'release')).status, 200, 'the same is carried to its end');
    t.equal((await world.queued(poolOf())).length, before + 1);
    t.equal(await bus.lastAtLeader(KEPT_STREAM, subjects.order('review04')), null, 'nothing is left of it');
    t.notMatch(JSON.stringify((await plane.ask('/v1/tasks/kept')).body), /review04/);
    // An order that failed before anything was changed binds nobody.
    await world.keep('review', envelopeOf({ task_id: 'review05', pool: `p${'b'.repeat(20)}` }), 'look', { rule: 'r' });
    t.equal((await order('review05', 'release')).status, 409);
    t.equal((await order('review05', 'drop')).status, 200);
    t.equal(await bus.lastAtLeader(KEPT_STREAM, subjects.order('review05')), null);
  });

  await t.test('two people at once: one does it, the other is told', async (t) => {
    for (const [i, verbs] of [
      ['release', 'drop'],
      ['drop', 'release'],
      ['release', 'release'],
      ['drop', 'drop'],
    ].entries()) {
      const task = `racing0${i}`;
      await world.keep('review', envelopeOf({ task_id: task }), 'look', { rule: 'r' });
      const both = await Promise.all(verbs.map((verb) => order(task, verb)));
      t.same(both.map(({ status }) => status).sort(), [200, 409], verbs.join(' and '));
      const won = verbs[both.findIndex(({ status }) => status === 200)];
      const isQueued = (await world.queued(poolOf())).some(({ envelope }) => envelope.task_id === task);
      t.equal(isQueued, won === 'release');
      const told = await inboxPage(bus, subjects, 'crm.front.x', 1_000, 1);
      t.equal('failed' in told ? true : told.some(({ data }) => data.includes(task)), won === 'drop');
    }
  });

  await t.test('a lease is judged by the server’s time, however the clock here stands', async (t) => {
    const id = subjects.idem(ledgerKey('crm.front.x', ORDER, 'dead0009'));
    await world.keep('dead', envelopeOf({ task_id: 'dead0009' }), 'x');
    await world.append(id, Buffer.from('{"wire":1,"state":"executing","lease_ms":15000}\n'));
    plane.wallAheadMs = 60_000;
    t.teardown(() => (plane.wallAheadMs = 0));
    t.match((await order('dead0009', 'release')).body, { status: 409, detail: /somebody works on this key/ });
    plane.wallAheadMs = 0;
    t.equal((await order('dead0009', 'drop')).status, 200);
  });

  await t.test('many at once, but none that is in doubt', async (t) => {
    await world.keep('in_doubt', envelopeOf({ task_id: 'doubt003' }), 'x');
    t.equal((await plane.ask('/v1/tasks/redrive', { json: { kind: 'in_doubt' } })).status, 400);
    const before = (await world.queued(poolOf())).length;
    const answer = await plane.ask('/v1/tasks/redrive', { json: { capability: ORDER } });
    t.match(answer.body, { redriven: 1, failed: [] });
    t.equal((await world.queued(poolOf())).length, before + 1);
    // its pool is known to nobody, and cannot be worked out: the message is of another one
    const rest = await plane.ask('/v1/tasks/redrive', { json: {} });
    t.match(rest.body, { redriven: 0, failed: [{ task_id: 'dead0002', why: /nobody knows the pool/ }] });
    t.match(await audits(), [{ action: 'task.redrive' }]);

    await world.keep('dead', envelopeOf({ task_id: 'dead0020' }), 'x');
    await world.keep('dead', envelopeOf({ task_id: 'dead0021' }), 'x');
    const { kept } = (plane.control.leading as Leading).messages;
    const list = kept.list.bind(kept);
    t.teardown(() => (kept.list = list));
    kept.list = async (kind, name, after) => {
      const page = await list(kind, name, after, 1);
      if (after > 0) return { kind: 'away', why: 'NATS is away' };
      return page;
    };
    const half = await plane.ask('/v1/tasks/redrive', { json: { capability: ORDER, reason: 'half' } });
    t.match(half, { status: 200, body: { redriven: 1, failed: [], stopped: 'NATS is away' } }, 'what was released is said');
    t.match((await audits())[0], {
      action: 'task.redrive',
      reason: 'half',
      detail: { 'after.redriven': 1, 'after.stopped': 'NATS is away' },
    });
    kept.list = async () => ({ kind: 'away', why: 'NATS is away' });
    t.equal((await plane.ask('/v1/tasks/redrive', { json: {} })).status, 503, 'nothing was done, and it is refused');
    kept.list = list;
    t.match((await plane.ask('/v1/tasks/redrive', { json: { capability: ORDER } })).body, { redriven: 1, stopped: null });
  });

  await t.test('reachctl says the same', async (t) => {
    const run = async (...args: string[]): Promise<{ exit: number; out: string }> => {
      const out: string[] = [];
      const io = {
        out: (text: string) => void out.push(text),
        err: (text: string) => void out.push(text),
        env: { REACH_SERVER: plane.url, REACH_TOKEN: OPERATOR },
        clock: realClock,
        stdin: async () => '',
      };
      const exit = await runReachctl(args, io, '0');
      return { exit, out: out.join('\n') };
    };
    t.match((await run('tasks', 'list')).out, /TASK +KIND[\s\S]*doubt003 +in_doubt .*7003 in_doubt/);
    t.match((await run('tasks', 'show', 'doubt003', '--payload')).out, /doubt003 \(in_doubt\)[\s\S]*try 1 [\s\S]*\nx$/);
    t.match(await run('tasks', 'release', 'doubt003', '--reason', 'they asked'), {
      exit: 0,
      out: /doubt003 waits in pool p.*crm.order.query@2.0.0/,
    });
    t.match(await run('tasks', 'release', 'doubt003'), { exit: 1, out: /nothing is kept of the task doubt003/ });
    t.match(await run('tasks', 'reroute', 'dead0002', '--to', REFUND), { exit: 0, out: /crm.refund.apply@1.0.0/ });
    t.match((await run('tasks', 'list', '--json')).out, /"entries": \[\]/);
    t.match(await run('tasks', 'redrive'), { exit: 0, out: /0 released/ });
    t.match((await run('tasks', 'parked')).out, /nothing is parked/);
    t.match(await run('tasks', 'drop'), { exit: 2, out: /say which task to drop, or a pool/ });
    await world.append(
      subjects.task(poolOf({ version: '0.1.0' }).id, 'low', 0, 'front'),
      encodeEnvelope(envelopeOf({ task_id: 'parked01' }), Buffer.from('x')),
    );
    const parked = poolOf({ version: '0.1.0' }).id;
    t.match((await run('tasks', 'parked')).out, new RegExp(`${parked} +1 .*a pool that nobody remembers`));
    t.match((await run('tasks', 'parked', parked)).out, /TASK +SINCE[\s\S]*parked01 .*crm.front.x/);
    t.match(await run('tasks', 'reroute', 'parked01', '--pool', parked, '--to', REFUND), { exit: 0, out: /1 sent to crm.refund.apply/ });
    t.match(await run('tasks', 'drop', '--pool', parked), { exit: 0, out: /0 dropped/ });
    t.match((await run('pools', 'list')).out, /POOL +AGENTS +WAITING[\s\S]*crm.refund.apply@1.0.0/);
    t.match(await run('tasks', 'drop', 'nothing1'), { exit: 1 });
  });
});

t.test('what is parked can be sent elsewhere or dropped, as long as nobody works on it and it was not begun', async (t) => {
  const world = await World.start(t);
  const { plane, bus } = world;
  const pool = poolOf({ version: '1.0.0' });
  t.match(await world.usePool(pool), { ok: true });
  for (const task of ['parked01', 'parked02', 'parked03'])
    await world.append(
      subjects.task(pool.id, 'high', 0, 'front'),
      encodeEnvelope(envelopeOf({ task_id: task, pool: pool.id, lane: 'high' }), Buffer.from(task)),
    );
  const listed = (await plane.ask(`/v1/tasks/parked/${pool.id}?limit=2`, { token: VIEWER })).body;
  t.match(listed, { tasks: [{ task_id: 'parked01', lane: 'high', payload_bytes: 8 }, { task_id: 'parked02' }], next: 2 });
  t.match((await plane.ask(`/v1/tasks/parked/${pool.id}?limit=2&after=2`)).body, { tasks: [{ task_id: 'parked03' }], next: null });
  t.equal((await plane.ask('/v1/tasks/parked/nonsense')).status, 404);
  const order = (verb: string, body: object) => plane.ask(`/v1/tasks/parked/${pool.id}/${verb}`, { json: body });
  t.match((await order('reroute', { capability: ORDER })).body, { done: [], failed: [{ why: /no capability/ }, {}, {}] });

  const sidecar = await FakeSidecar.join(world.nats, 'order-a', { 'crm.order.a': [`${ORDER}@2.0.0`] });
  await sidecar.hello();
  await world.append(subjects.idem(ledgerKey('crm.front.x', ORDER, 'parked02')), Buffer.from('{"wire":1,"state":"executing"}\n'));
  const parkedAtMs = (listed['tasks'] as { since_ms: number }[])[0]?.since_ms ?? Number.NaN;
  await eventually(
    'the leader knows that some time has gone by',
    async () => (await serverTime({ bus, subjects })) ?? 0,
    (serverMs) => serverMs > parkedAtMs,
  );
  t.match((await order('reroute', { capability: ORDER, task: 'parked01', reason: 'newer' })).body, { done: ['parked01'], failed: [] });
  const leftMs = (await world.queued(poolOf()))[0]?.envelope.expires_ms ?? 0;
  t.ok(leftMs > 86_300_000 && leftMs < 86_400_000, `it has what is left of its time: ${leftMs} ms`);
  t.match((await order('reroute', { capability: ORDER, task: 'parked01' })).status, 404);
  t.match(await world.queued(poolOf()), [
    { subject: `ar.test.task.${poolOf().id}.high.0.front`, payload: 'parked01', envelope: { version: '2.0.0', lane: 'high' } },
  ]);
  t.match((await order('drop', {})).body, {
    done: ['parked03'],
    failed: [{ task_id: 'parked02', why: /may have been begun: its claim is executing/ }],
  });
  const told = await inboxPage(bus, subjects, 'crm.front.x', 1_000, 1);
  t.match('failed' in told ? [] : told.map(({ data }) => data.toString('utf8')), [/"parked03".*"state":"cancelled"/]);
  t.same(
    (await world.queued(pool)).map(({ envelope }) => envelope.task_id),
    ['parked02'],
  );
  t.match((await plane.ask('/v1/audit?outcome=done')).body, {
    entries: [
      { action: 'parked.drop', subject: pool.id },
      { action: 'parked.reroute', reason: 'newer', detail: { 'before.task': 'parked01', 'before.capability': ORDER } },
    ],
  });
  sidecar.host('crm.order.old', [`${ORDER}@1.0.0`]);
  await sidecar.hello();
  await eventually(
    'somebody works on it',
    () => world.agentsAt('order-a'),
    (agents) => agents.includes('crm.order.old'),
  );
  t.match(await order('drop', {}), { status: 409, body: { detail: /1 agents work on this pool/ } });
});

t.test('a parked task that a person moves is not begun by a worker that comes in that moment', async (t) => {
  const world = await World.start(t);
  const { plane, bus } = world;
  const pool = poolOf({ version: '1.0.0' });
  t.match(await world.usePool(pool), { ok: true });
  const sidecar = await FakeSidecar.join(world.nats, 'order-a', { 'crm.order.a': [`${ORDER}@2.0.0`] });
  await sidecar.hello();
  await eventually(
    'it is known',
    async () => (await plane.ask('/v1/capabilities')).body,
    (body) => JSON.stringify(body).includes('2.0.0'),
  );
  const park = (task: string, more: Partial<Envelope> = {}): Promise<number> =>
    world.append(
      subjects.task(pool.id, 'high', 0, 'front'),
      encodeEnvelope(envelopeOf({ task_id: task, pool: pool.id, version: '1.0.0', payload_hash: 'h', ...more }), Buffer.from(task)),
    );
  const order = (verb: string, body: object) => plane.ask(`/v1/tasks/parked/${pool.id}/${verb}`, { json: body });
  const ledger = new NatsLedger({ bus, subjects, clock: realClock, random: systemRandom, log: { warn: () => undefined }, self: 'order-a' });
  t.teardown(() => ledger.close());
  const askFor = (task: string): ClaimAsk => ({
    id: ledgerKey('crm.front.x', ORDER, task),
    caller: 'crm.front.x',
    capability: ORDER,
    version: '1.0.0',
    payloadHash: 'h',
    execution: 'once',
    key: task,
    taskId: task,
    worker: 'crm.order.old',
  });

  // A worker claims it at the same time as it is taken out: exactly one of the two has it, and what was sent elsewhere is begun once.
  let [byWorker, byPerson] = [0, 0];
  for (let i = 0; i < 20; i++) {
    const task = `moment${String(i).padStart(2, '0')}`;
    await park(task);
    const [done, claimed] = await Promise.all([
      order(i % 2 === 0 ? 'drop' : 'reroute', { task, ...(i % 2 === 0 ? {} : { capability: `${ORDER}@^2` }) }),
      new Promise((late) => void realClock.after(i % 10, () => late(null))).then(() => ledger.claim(askFor(task))),
    ]);
    const isMoved = (done.body['done'] as string[]).length === 1;
    const isDrop = i % 2 === 0;
    if (isDrop) t.not(isMoved, claimed.kind === 'claimed', `${task}: ${JSON.stringify(done.body)} ${claimed.kind}`);
    else t.ok(isMoved || claimed.kind === 'claimed');
    if (isMoved) {
      byPerson++;
      const after = await ledger.claim(askFor(task));
      if (isDrop) t.equal(after.kind, 'ended', 'whoever still has it lets go of it');
      // Its key is the same where it is now: whoever is first begins it, and the other one waits for what comes of it.
      else t.equal(after.kind, claimed.kind === 'claimed' ? 'executing' : 'claimed', `${task} is begun once`);
      if (after.kind === 'claimed') {
        t.equal(after.claim.tries, 1);
        after.claim.abandon();
      }
    } else byWorker++;
    if (claimed.kind === 'claimed') claimed.claim.abandon();
  }
  t.comment(`${byWorker} by the worker, ${byPerson} by the person`);
  const rerouted = await world.queued(poolOf());
  t.ok(rerouted.every(({ envelope }) => Number(envelope.task_id.slice(6)) % 2 === 1));

  // The queue takes no more: it is as it was.
  await park('toolarge');
  const refused = await order('reroute', { task: 'toolarge', capability: 'no.such.thing' });
  t.match(refused.body, { failed: [{ task_id: 'toolarge', why: /no capability/ }] });
  const free = await ledger.claim(askFor('toolarge'));
  t.match(free, { kind: 'claimed', claim: { tries: 1 } });
  if (free.kind === 'claimed') await free.claim.release(false);
  t.match((await order('drop', { task: 'toolarge' })).body, { done: ['toolarge'] });

  // A replica of the control plane died in the midst of it: nobody else does it for as long as it might still be at it.
  await park('stopped1');
  const half = {
    wire: 1,
    state: 'executing',
    key: 'stopped1',
    hash: 'h',
    execution: 'idempotent',
    task: 'stopped1',
    worker: 'operator bob',
    version: '1.0.0',
    lease_ms: 15_000,
    nonce: 'x',
    tries: 0,
    step: 0,
  };
  await world.append(subjects.idem(ledgerKey('crm.front.x', ORDER, 'stopped1')), Buffer.from(`${JSON.stringify(half)}\n`));
  t.match((await order('drop', { task: 'stopped1' })).body, { failed: [{ why: /somebody else is moving it/ }] });

  // Nobody wants its result: its home hears that it was dropped.
  const heard: TaskEvent[] = [];
  bus.subscribe(subjects.note('front'), ({ data }) => void heard.push(JSON.parse(data.toString('utf8')) as TaskEvent));
  await park('nobody01', { reply_to: null });
  t.match((await order('drop', { task: 'nobody01' })).body, { done: ['nobody01'] });
  await waitUntil('its home hears', () => heard.some(({ task_id, state }) => task_id === 'nobody01' && state === 'cancelled'));
});

t.test('messages of a pool that nobody remembers are not lost: it is made again from what they say', async (t) => {
  const world = await World.start(t);
  t.match(await world.usePool(poolOf()), { ok: true });
  await world.append(subjects.task(poolOf().id, 'normal', 0, 'front'), encodeEnvelope(envelopeOf(), Buffer.from('x')));
  // The registry's stream is lost, that of the tasks is not.
  await world.lose(CONFIG_STREAM);
  t.equal(await world.tail(Tail.pool(poolOf().id)).catch(() => null), null);
  await eventually(
    'the pool is back',
    async () => world.tail<PoolState>(Tail.pool(poolOf().id)).catch(() => null),
    (found) => found?.pool.id === poolOf().id,
    // Seven seconds; another lease and another round of looking where the machine is busy with others.
    40_000,
  );
  t.same((await world.consumers()).map(Consumer.shown), [`${poolOf().id}_high`, `${poolOf().id}_low`, `${poolOf().id}_normal`]);
});

t.test('a server without room for the streams stops no call: it is said where people look, and to senders', async (t) => {
  const world = await World.start(t, '  messages: {tasks: {size: 1024GiB}}\n');
  await waitUntil('it is said', () =>
    world.plane.control.warnings().some((words) => /^messages: .*no room for a stream of this size/.test(words)),
  );
  t.match(await world.usePool(poolOf()), { ok: false, why: /no room/ });
  const sidecar = await FakeSidecar.join(world.nats, 'order-a', { 'crm.order.a': [`${ORDER}@2.0.0`] });
  t.match(await sidecar.hello(), { ok: true });
});

t.test('operators are told of what is newly kept, signed, until it is taken', async (t) => {
  const got: { body: string; signature: string }[] = [];
  let answer = 500;
  let asked = 0;
  const hook = createServer((request, response) => {
    let body = '';
    request.on('data', (chunk: Buffer) => {
      body += chunk.toString('utf8');
    });
    request.on('end', () => {
      asked++;
      if (answer === 200) got.push({ body, signature: String(request.headers['reach-signature']) });
      response.writeHead(answer).end();
    });
  });
  await new Promise<void>((done) => hook.listen(0, '127.0.0.1', done));
  t.teardown(() => hook.close());
  const { port } = hook.address() as AddressInfo;
  const settings = `  messages: {notices: {webhook: "http://127.0.0.1:${port}/hook", secret: "shared-secret"}}\n`;
  const world = await World.start(t, settings);
  await eventually(
    'told up to here',
    () => world.tail<{ seq: number }>(Tail.notices),
    (found) => found !== null,
  );
  await world.keep('review', envelopeOf({ task_id: 'review01' }), 'look', { rule: 'fallback_to_human_review' });
  await world.keep('dead', envelopeOf({ task_id: 'dead0001' }), 'x');
  await waitUntil('it was tried twice', () => asked >= 2, 10_000);
  t.match(world.plane.control.warnings().join('\n'), /notices to operators do not get through: it answered 500/);
  answer = 200;
  await waitUntil('they are taken', () => got.length > 0, 10_000);
  const [first] = got;
  const { notices } = JSON.parse(first?.body ?? '') as { notices: { id: string; task_id: string }[] };
  t.match(notices, [
    { kind: 'review', task_id: 'review01', rule: 'fallback_to_human_review', hint: 'reachctl tasks show review01' },
    { kind: 'dead', task_id: 'dead0001', code: 7002, code_name: 'dead_lettered', attempts: 1 },
  ]);
  t.equal(new Set(notices.map(({ id }) => id)).size, 2);
  const [, seconds, signed] = /^t=(\d+),v1=([0-9a-f]{64})$/.exec(first?.signature ?? '') ?? [];
  t.equal(signed, createHmac('sha256', 'shared-secret').update(`${seconds}.${first?.body}`).digest('hex'));
  await eventually(
    'it is remembered',
    () => world.tail<{ seq: number }>(Tail.notices),
    (found) => found?.seq === 2,
  );

  const second = await Plane.start(t, world.nats, 'cp-2', settings);
  await second.follows();
  await world.plane.control.stop(0);
  await world.keep('in_doubt', envelopeOf({ task_id: 'doubt001' }), 'x');
  await second.leads();
  await waitUntil('the next leader goes on', () => got.length > 1, 10_000);
  t.match(JSON.parse(got[1]?.body ?? ''), { notices: [{ task_id: 'doubt001' }] });
  t.equal(await world.count(KEPT_STREAM), 3);
});

t.test('a receiver of notices leads nowhere else, holds nobody up, and gets a long backlog quickly and in order', async (t) => {
  let elsewhere = 0;
  const inside = createServer((_, response) => {
    elsewhere++;
    response.end();
  });
  await new Promise<void>((done) => inside.listen(0, '127.0.0.1', done));
  t.teardown(() => inside.close());
  const got: string[] = [];
  let mode: 'redirect' | 'silent' | 'fine' = 'redirect';
  let asked = 0;
  const hook = createServer((request, response) => {
    let body = '';
    request.on('data', (chunk: Buffer) => {
      body += chunk.toString('utf8');
    });
    request.on('end', () => {
      asked++;
      if (mode === 'redirect') response.writeHead(307, { location: `http://127.0.0.1:${(inside.address() as AddressInfo).port}/` }).end();
      else if (mode === 'fine') {
        for (const { task_id } of (JSON.parse(body) as { notices: { task_id: string }[] }).notices) got.push(task_id);
        response.end();
      }
    });
  });
  await new Promise<void>((done) => hook.listen(0, '127.0.0.1', done));
  t.teardown(() => {
    hook.closeAllConnections();
    hook.close();
  });
  const { port } = hook.address() as AddressInfo;
  const world = await World.start(t, `  messages: {notices: {webhook: "http://127.0.0.1:${port}/hook"}}\n`);
  await eventually(
    'told up to here',
    () => world.tail<{ seq: number }>(Tail.notices),
    (found) => found !== null,
  );
  const tasks = Array.from({ length: 230 }, (_, i) => `backlog${String(i).padStart(3, '0')}`);
  for (const task of tasks) await world.keep('dead', envelopeOf({ task_id: task }), 'x');
  await waitUntil('it was asked', () => asked > 0);
  mode = 'silent';
  const before = asked;
  await waitUntil('it is asked again, and says nothing', () => asked > before, 10_000);
  t.equal(elsewhere, 0, 'a redirection is not followed');
  t.match(world.plane.control.warnings().join(), /it answered 307/);
  t.match(
    (await world.plane.ask('/v1/tasks/kept?limit=1')).body,
    { entries: [{ task_id: 'backlog000' }] },
    'everybody else is served meanwhile',
  );
  mode = 'fine';
  await waitUntil('the first are taken', () => got.length > 0, 15_000);
  const startedAt = performance.now();
  await waitUntil('all are taken', () => got.length >= tasks.length, 10_000);
  t.ok(performance.now() - startedAt < 2_500, `${Math.round(performance.now() - startedAt)} ms for the rest`);
  t.same(got, tasks);
});

t.test('consumers of pools have names that nobody can guess, while no sidecar of the version before works there', async (t) => {
  const world = await World.start(t);
  const { bus } = world;
  const beacons: string[] = [];
  bus.subscribe(subjects.beacon, ({ data }) => void beacons.push(String((JSON.parse(data.toString('utf8')) as Beacon).speech)));
  const young = await FakeSidecar.join(world.nats, 'young', { 'crm.order.a': [`${ORDER}@2.0.0`] });
  young.named = true;
  await young.hello();
  const [lanes, sticky] = [poolOf(), poolOf({ sticky: true })];
  for (const pool of [lanes, sticky]) t.match(await world.usePool(pool, 'young'), { ok: true });
  const names = (id: string): Promise<string[]> => world.consumers().then((all) => all.filter((name) => name.startsWith(id)));
  const secret = (await world.tail<PoolState>(Tail.pool(lanes.id)))?.secret ?? '';
  t.match(secret, POOL_SECRET);
  t.same(
    await names(lanes.id),
    ['high', 'low', 'normal'].map((lane) => `${lanes.id}_${lane}_${secret}`),
  );
  t.match(await world.work('young'), { pools: [{ secret: POOL_SECRET }, { secret: POOL_SECRET }] }, 'whoever works there is told');
  await eventually(
    'partitions have owners',
    () => names(sticky.id),
    (all) => all.length === 8,
  );
  t.ok((await names(sticky.id)).every((name) => /_s\d_t\d+_[a-z2-7]{26}$/.test(name)));
  await eventually(
    'everybody speaks with names',
    () => Promise.resolve(beacons.at(-1)),
    (said) => said === 'named',
  );

  const old = await FakeSidecar.join(world.nats, 'old', { 'crm.order.b': [`${ORDER}@2.0.0`] });
  await old.hello();
  await eventually(
    'the old one can pull there',
    () => names(lanes.id),
    (all) => all.length === 3 && all.includes(`${lanes.id}_normal`),
  );
  await eventually(
    'and from partitions',
    () => names(sticky.id),
    (all) => all.length === 8 && all.every((name) => !/_[a-z2-7]{26}$/.test(name)),
  );
  await eventually(
    'nobody is told a secret',
    () => world.work('young'),
    (work) => work !== null && work.pools.every((each) => each.secret === undefined),
  );
  await eventually(
    'inboxes are written to without names',
    () => Promise.resolve(beacons.at(-1)),
    (said) => said === 'asks',
  );

  await old.leave();
  await eventually(
    'names are secret again',
    () => names(lanes.id),
    (all) => all.length === 3 && all.every((name) => /_[a-z2-7]{26}$/.test(name)),
  );
  t.notOk((await names(lanes.id)).includes(`${lanes.id}_normal_${secret}`), 'and other ones');
  const lost = (await world.bus.consumer(TASK_STREAM, (await names(lanes.id))[0] as string)) as { readonly filter: string };
  t.match(lost.filter, /^ar\.test\.task\.p[a-z2-7]{20}\.high\.\*\.\*$/);
});
