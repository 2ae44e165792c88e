/** The red button in the control plane: what may be ordered, what stands, who writes, who has it. Replicas on a bus in memory. */
import t, { type Test } from 'tap';
import { createLog } from '../../../base/log.ts';
import { SeededRandom } from '../../../base/random.ts';
import { VirtualClock } from '../../../base/virtual-clock.ts';
import type { AuditSaid } from '../../../proto/wire/audit.ts';
import { type InForce, NO_OVERRIDES, type OverrideBeacon, type OverrideEntry, readOverrideState } from '../../../proto/wire/overrides.ts';
import { CONTROL_STREAM, OVERRIDE_STREAM, Subjects } from '../../../proto/wire/subjects.ts';
import { type Edit, withAdded, withLifted, withoutExpired } from '../../../control-plane/overrides/book.ts';
import { OverrideDesk } from '../../../control-plane/overrides/desk.ts';
import { draftOf } from '../../../control-plane/overrides/draft.ts';
import { reachOf, unknownName } from '../../../control-plane/overrides/reach.ts';
import { ServerClock } from '../../../control-plane/overrides/server-clock.ts';
import { OverrideWriter, type WriterParts } from '../../../control-plane/overrides/writer.ts';
import { Fleet } from '../../../control-plane/push/fleet.ts';
import { Mirror } from '../../../control-plane/push/mirror.ts';
import { type MemoryBus, MemoryNats } from '../../support/memory-bus.ts';
import { settle } from '../../support/settle.ts';

const subjects = new Subjects('test');
const random = new SeededRandom(7);
const ENTRY: OverrideEntry = {
  id: 'o-1',
  action: 'block',
  target: { capability: 'crm.order.query' },
  to: null,
  cut: false,
  reason: 'a fire',
  author: 'dana',
  at: 1_000,
  expires_at: null,
};
const EMPTY = { ...NO_OVERRIDES, epoch: 'e' };
const words = (edit: Edit): string => ('problem' in edit ? `${edit.kind}: ${edit.problem}` : 'same' in edit ? 'same' : 'made');

t.test('what is ordered: an hour by default, strictly read, and asked about once more where it is everything', (t) => {
  const draft = (map: object): ReturnType<typeof draftOf> =>
    draftOf(map as Record<string, unknown>, { author: 'dana', nowMs: 1_000, random });
  const good = { target: { capability: 'crm.order.query' }, reason: ' a fire ' };
  t.match(draft(good), {
    entry: { id: /^block-[a-z2-9]{8}$/, action: 'block', author: 'dana', reason: 'a fire', cut: false, at: 1_000, expires_at: 3_601_000 },
    isDry: false,
    waitMs: 1_000,
  });
  t.match(draft({ ...good, for: 'forever' }), { entry: { expires_at: null } });
  t.match(draft({ ...good, for: '30m', id: 'mine', action: 'reroute', to: 'provider:crm.order.b' }), {
    entry: { id: 'mine', expires_at: 1_801_000 },
  });
  const bad: readonly (readonly [object, RegExp])[] = [
    [{ ...good, action: 'stop' }, /action must be one of/],
    [{ reason: 'x' }, /target must be an object/],
    [{ ...good, target: {} }, /say what it is for/],
    [{ ...good, target: { capability: 7 } }, /must be a text/],
    [{ ...good, reason: '' }, /a reason is needed/],
    [{ ...good, for: 'soon' }, /for: .*or the word forever/],
    [{ ...good, for: '0s' }, /must last some time/],
    [{ ...good, for: '400d' }, /for: /],
    [{ ...good, cut: 'yes' }, /cut must be true or false/],
    [{ ...good, action: 'drain', cut: true }, /cut goes with block/],
    [{ ...good, wait: '1h' }, /wait: /],
    [{ ...good, id: 'Not An Id' }, /is not an id/],
    [{ ...good, target: { all: true } }, /blocks everything: say "confirm": true/],
    [{ ...good, target: { capability: '*' } }, /blocks everything/],
    [{ ...good, target: { provider: '*.*.*' } }, /blocks everything/],
  ];
  for (const [map, problem] of bad) t.match(draft(map), problem, JSON.stringify(map));
  for (const more of [{ confirm: true }, { dry_run: true }])
    t.match(draft({ ...good, target: { all: true }, ...more }), { entry: { target: { all: true } } });
  t.end();
});

t.test('what stands beside what: a repeat is the same, contradictions and second steps are refused in words', (t) => {
  const add = (standing: readonly Partial<OverrideEntry>[], entry: Partial<OverrideEntry>): string =>
    words(withAdded({ ...EMPTY, overrides: standing.map((each) => ({ ...ENTRY, ...each })) }, { ...ENTRY, id: 'new', ...entry }, 2_000));
  const from = { capability: 'crm.order.query' };
  t.equal(add([{ id: 'new' }], {}), 'same');
  t.equal(add([{ id: 'new', author: 'eva', at: 5 }], {}), 'same', 'whoever repeats it');
  const hour = { at: 1_000, expires_at: 3_601_000 };
  t.equal(add([{ id: 'new', ...hour }], { at: 1_800_000, expires_at: 5_400_000 }), 'same', 'the same hour, said again');
  t.match(
    withAdded({ ...EMPTY, overrides: [{ ...ENTRY, ...hour }] }, { ...ENTRY, at: 2_000, expires_at: null }, 2_000),
    { state: { revision: 1, overrides: [{ id: 'o-1', expires_at: null }] } },
    'for another time: it ends then',
  );
  t.match(add([{ id: 'new', reason: 'other' }], {}), /conflict: there is an override new already/);
  t.equal(add([{ id: 'other' }], {}), 'made', 'two operators who press at once');
  t.match(add([{}], { action: 'degrade' }), /o-1 blocks that already/);
  t.match(add([{ target: { all: true } }], { action: 'reroute', to: 'crm.order.legacy' }), /a block is stronger/);
  t.equal(add([{ expires_at: 1_500 }], { action: 'degrade' }), 'made', 'it has run out');
  const reroute = { action: 'reroute', target: from, to: 'crm.order.legacy' } as const;
  t.match(add([reroute], { ...reroute, to: 'crm.order.cached' }), /sends that to crm.order.legacy already/);
  t.match(
    add([reroute], { action: 'reroute', target: { capability: 'crm.order.legacy' }, to: 'crm.order.query' }),
    /crm.order.query is itself sent to crm.order.legacy/,
    'a circle',
  );
  t.match(add([{ ...reroute, target: { capability: 'crm.order.legacy' }, to: 'crm.order.cached' }], reroute), /only one step is followed/);
  t.equal(add([{ ...reroute, target: { capability: 'crm.refund.apply' } }], reroute), 'made', 'two that lead to one');
  t.match(add([], { ...reroute, to: 'crm.order.query' }), /invalid: .*sent to itself/);
  const many = Array.from({ length: 256 }, (_, i) => ({ id: `o-${i}` }));
  t.match(add(many, {}), /there are 256 overrides/);
  const long = Array.from({ length: 200 }, (_, i) => ({ id: `o-${i}`, reason: 'ü'.repeat(500), author: 'ü'.repeat(500) }));
  t.match(add(long, {}), /more than 262144 bytes/);
  const both = [
    { ...ENTRY, expires_at: 1_500 },
    { ...ENTRY, id: 'o-2', expires_at: 1_500 },
  ];
  t.match(
    withAdded({ ...EMPTY, overrides: both }, ENTRY, 2_000, false),
    { state: { overrides: { length: 2 } } },
    'by a clock that may be wrong nothing of others has run out; what is ordered anew takes the place of its own',
  );
  t.match(withLifted({ ...EMPTY, overrides: both }, 'o-1', 2_000, false), { state: { overrides: [{ id: 'o-2' }] } });
  const lift = (id: string): string => words(withLifted({ ...EMPTY, overrides: [ENTRY] }, id, 2_000));
  t.equal(lift('o-1'), 'made');
  t.match(lift('o-2'), /absent: no override is called "o-2"/);
  t.match(withLifted({ ...EMPTY, overrides: [ENTRY, { ...ENTRY, id: 'o-2' }] }, 'o-1', 2_000), {
    state: { revision: 1, overrides: [{ id: 'o-2' }] },
  });
  t.equal(withoutExpired({ ...EMPTY, overrides: [ENTRY] }, 2_000), null);
  t.match(withoutExpired({ ...EMPTY, overrides: [ENTRY, { ...ENTRY, id: 'old', expires_at: 1_500 }] }, 2_000), {
    gone: [{ id: 'old' }],
    state: { overrides: [{ id: 'o-1' }] },
  });
  t.end();
});

t.test('whom it would hit, and names that nobody has', (t) => {
  const registry = {
    capabilities: () => [{ capability: 'crm.order.query' }, { capability: 'nlp.text.sum' }],
    providers: () => [
      { agent: 'crm.order.a', offers: ['crm.order.query@1.0.0'], inFlight: 3 },
      { agent: 'nlp.text.a', offers: ['nlp.text.sum@1.0.0'], inFlight: 4 },
    ],
    sidecars: () => [{ callers: ['web.desk.1', 'ops.desk.1'] }, { callers: [] }],
  } as unknown as Parameters<typeof reachOf>[0];
  t.strictSame(reachOf(registry, ENTRY), {
    capabilities: ['crm.order.query'],
    providers: ['crm.order.a'],
    callers: ['ops.desk.1', 'web.desk.1'],
    sidecars: 2,
    in_flight: 3,
  });
  t.match(reachOf(registry, { ...ENTRY, target: { caller: 'team:web' } }), { callers: ['web.desk.1'], capabilities: { length: 2 } });
  t.match(reachOf(registry, { ...ENTRY, target: { provider: 'nlp.text.a' } }), { capabilities: ['nlp.text.sum'], in_flight: 4 });
  const unknown = (target: object, to: string | null = null): string | null => unknownName(registry, { ...ENTRY, target, to });
  t.match(unknown({ capability: 'crm.order.qury' }), /nobody offers crm.order.qury; did you mean crm.order.query\?/);
  t.match(unknown({ provider: 'crm.order.b' }), /no provider is called crm.order.b; did you mean crm.order.a\?/);
  t.match(unknown({ agent: 'agent:hr.leave.1' }), /no agent is called hr.leave.1/);
  t.match(unknown({ caller: 'web.desk.11' }), /did you mean web.desk.1\?/);
  t.match(unknown({ capability: 'crm.order.query' }, 'hr.leave.book'), /nobody offers hr.leave.book/);
  t.match(unknown({ capability: 'crm.order.query' }, 'provider:crm.order.z'), /no provider is called/);
  for (const target of [{ capability: 'hr.*' }, { provider: 'team:hr' }, { agent: 'web.desk.1' }, { all: true }])
    t.equal(unknown(target), null);
  t.end();
});

/** Replicas, and sidecars that say what they have. */
class World {
  readonly clock = new VirtualClock();
  readonly nats = new MemoryNats(() => this.clock.wallMs());
  readonly audits: AuditSaid[] = [];
  readonly probe: MemoryBus = this.nats.open('probe');
  left = new Set<string>();

  async replica(name: string): Promise<{ desk: OverrideDesk; fleet: Fleet; bus: MemoryBus; mirror: Mirror }> {
    const bus = this.nats.open(name);
    await settle();
    const mirror = new Mirror();
    const fleet = new Fleet(mirror, 15_000);
    const desk = new OverrideDesk({
      bus: bus.bus,
      inbound: bus.bus,
      subjects,
      clock: this.clock,
      random: new SeededRandom(name.length),
      logger: createLog({ level: 'silent', to: 'stderr', service: name }).logger,
      fleet,
      audit: { record: (said) => void this.audits.push(said) },
      name,
      replicas: 1,
      left: () => this.left,
    });
    return { desk, fleet, bus, mirror };
  }

  /** As the registry of that replica would know it. */
  seen(fleet: Fleet, sidecar: string, overrides?: { epoch: string; seq: number }): void {
    const report = {
      wire: 1,
      sidecar,
      instance: 'i',
      version: '1',
      epoch: '',
      appliedSeq: 0,
      tableVersion: 1,
      capabilities: 0,
      providers: 0,
    };
    const policies = { version: 0, staged: false };
    fleet.take(
      { ...report, staleBecause: '', refused: [], policies, ...(overrides === undefined ? null : { overrides }) },
      this.clock.now(),
    );
  }

  /** The leader renews its lease. */
  async lead(): Promise<void> {
    await this.probe.ensureStream({ name: CONTROL_STREAM, subjects: [subjects.leader] });
    await this.probe.append(subjects.leader, Buffer.from('{}'), {});
  }

  says(sidecar: string, epoch: string, seq: number, refused?: InForce['refused']): void {
    const said: InForce = { wire: 1, sidecar, instance: 'i', epoch, seq, ...(refused === undefined ? null : { refused }) };
    this.probe.publish(subjects.inForce(sidecar), Buffer.from(JSON.stringify(said)));
  }

  async stored(): Promise<readonly string[]> {
    const found = await this.probe.last(OVERRIDE_STREAM, subjects.overrides);
    if (found === null || 'failed' in found) return ['nothing'];
    const read = readOverrideState(found.data);
    return 'problem' in read ? [read.problem] : read.overrides.map(({ id }) => id);
  }

  entry(id: string, more: Partial<OverrideEntry> = {}): OverrideEntry {
    return { ...ENTRY, id, at: this.clock.wallMs(), expires_at: null, ...more };
  }
}

async function within<T>(world: World, ms: number, act: Promise<T>): Promise<T> {
  for (let passed = 0; passed < ms; passed += 10) await world.clock.advance(10);
  return await act;
}

t.test('any replica writes, all know it, and two at once lose nothing', async (t) => {
  const world = new World();
  const one = await world.replica('cp-1');
  const two = await world.replica('cp-2');
  t.equal(await one.desk.arrive(), null);
  t.equal(await two.desk.arrive(), null);
  t.equal(one.desk.epoch, two.desk.epoch);
  t.not(one.desk.epoch, '');
  const orders = Promise.all([one.desk.add(world.entry('a')), two.desk.add(world.entry('b')), two.desk.add(world.entry('c'))]);
  t.match(await within(world, 500, orders), [{ entry: { id: 'a' }, isRepeated: false }, {}, {}]);
  t.strictSame([...(await world.stored())].sort(), ['a', 'b', 'c']);
  for (const { desk } of [one, two]) t.strictSame(desk.overrides.map(({ id }) => id).sort(), ['a', 'b', 'c']);
  await world.clock.advance(5);
  t.match(await two.desk.add(world.entry('a')), { entry: { id: 'a', author: 'dana' }, isRepeated: true });
  t.match(await two.desk.lift('b'), { entry: { id: 'b' } });
  t.match(await two.desk.lift('b'), { problem: /no override is called/, kind: 'absent' });
  await world.clock.advance(10);
  t.strictSame(one.desk.overrides.map(({ id }) => id).sort(), ['a', 'c']);
  for (const { desk } of [one, two]) desk.stop();
});

t.test('each replica beacons the newest list each second, and finds what it has missed', async (t) => {
  const world = new World();
  const one = await world.replica('cp-1');
  const two = await world.replica('cp-2');
  await one.desk.arrive();
  await two.desk.arrive();
  const beacons: OverrideBeacon[] = [];
  world.probe.subscribe(subjects.overrideBeacon, ({ data }) => void beacons.push(JSON.parse(data.toString()) as OverrideBeacon));
  await world.clock.advance(3_050);
  t.strictSame(beacons.filter(({ from }) => from === 'cp-1').length, 3);
  t.match(beacons[0], { epoch: one.desk.epoch, seq: one.desk.seq });
  world.nats.loses = (client, subject) => client === 'cp-2' && subject.includes('ovrpush');
  await one.desk.add(world.entry('a'));
  await world.clock.advance(20);
  t.strictSame(
    two.desk.overrides.map(({ id }) => id),
    ['a'],
    'told by the other one’s beacon',
  );
  for (const { desk } of [one, two]) desk.stop();
});

t.test('the count: who has it, who lacks it and why, and no longer a wait than for those that can be heard', async (t) => {
  const world = new World();
  const { desk, fleet } = await world.replica('cp-1');
  await desk.arrive();
  const { epoch } = desk;
  for (const name of ['s-1', 's-2', 's-3']) world.seen(fleet, name, { epoch, seq: desk.seq });
  world.seen(fleet, 'old');
  world.seen(fleet, 'dead', { epoch, seq: 1 });
  world.seen(fleet, 'gone', { epoch, seq: 1 });
  world.left = new Set(['gone', 's-1']);
  await world.clock.advance(16_000);
  for (const name of ['s-1', 's-2', 's-3']) world.seen(fleet, name, { epoch, seq: desk.seq });
  world.seen(fleet, 'old');
  const ordered = await desk.add(world.entry('a'));
  const { seq } = ordered as { seq: number };
  t.match(desk.count(seq), { in_force: 0, of: 5 }, 'who has said goodbye and is silent is not missed');
  let isOver = false;
  const counted = desk.counted(seq, 1_000).then((count) => {
    isOver = true;
    return count;
  });
  world.says('s-1', epoch, seq);
  world.says('s-2', epoch, seq);
  await world.clock.advance(100);
  t.equal(isOver, false);
  world.says('s-3', epoch, 1, { seq, why: 'a newer version' });
  await world.clock.advance(950);
  t.match(await counted, {
    in_force: 2,
    of: 5,
    missing: [
      { sidecar: 'dead', why: /not been heard for 1\d s/ },
      { sidecar: 'old', why: /a version that knows no overrides/ },
      { sidecar: 's-3', why: /cannot use the list: a newer version/ },
    ],
  });
  t.match(
    fleet.rows(world.clock.now()).find(({ sidecar }) => sidecar === 's-3'),
    { lacksOverrides: /cannot use/ },
  );
  t.match(
    fleet.rows(world.clock.now()).find(({ sidecar }) => sidecar === 's-1'),
    { lacksOverrides: null, overridesSeq: seq },
  );
  world.seen(fleet, 'old', { epoch, seq });
  const quick = desk.counted(seq, 1_000);
  world.says('s-3', epoch, seq);
  await world.clock.advance(5);
  t.match(await quick, { in_force: 4, of: 5, missing: [{ sidecar: 'dead' }] }, 'at once: nobody waits for the dead');
  t.equal(desk.count(1).in_force, 5, 'an earlier list is in force where a later one is');
  desk.stop();
});

t.test('an order whose answer was lost is found to be done', async (t) => {
  const world = new World();
  const { desk, bus } = await world.replica('cp-1');
  await desk.arrive();
  const append = bus.append.bind(bus);
  let lost = 0;
  bus.append = async (...order) => {
    const appended = await append(...order);
    return lost++ % 2 === 0 ? { failed: 'no answer in time', ambiguous: true } : appended;
  };
  t.match(await within(world, 200, desk.add(world.entry('a'))), { entry: { id: 'a' }, isRepeated: false });
  lost = 0;
  t.match(await within(world, 200, desk.lift('a')), { entry: { id: 'a' }, seq: desk.seq });
  t.equal(lost, 1, 'written once');
  t.strictSame(await world.stored(), []);
  t.match(await within(world, 200, desk.lift('a')), { kind: 'absent' });
  desk.stop();
});

t.test('a replica that has just come waits for whom it has not heard yet; later such a one is silent', async (t) => {
  const world = new World();
  const { desk, fleet, mirror } = await world.replica('cp-1');
  await desk.arrive();
  for (const name of ['s-1', 'gone']) mirror.apply(`reg.${name}`, 1, '{}');
  world.left = new Set(['gone']);
  fleet.hearsAgain(world.clock.now());
  const { seq } = (await desk.add(world.entry('a'))) as { seq: number };
  const counted = desk.counted(seq, 1_000);
  await world.clock.advance(50);
  world.says('s-1', desk.epoch, seq);
  t.match(await within(world, 20, counted), { in_force: 1, of: 1, missing: [] });
  mirror.apply('reg.s-2', 2, '{}');
  await world.clock.advance(16_000);
  t.match(await desk.counted(seq, 1_000), { in_force: 1, of: 2, missing: [{ sidecar: 's-2', why: /never been heard/ }] });
  desk.stop();
});

t.test('what has run out is taken out by one of them, once, and stands in the audit log', async (t) => {
  const world = new World();
  const one = await world.replica('cp-1');
  const two = await world.replica('cp-22');
  await one.desk.arrive();
  await two.desk.arrive();
  await one.desk.add(world.entry('short', { expires_at: world.clock.wallMs() + 5_000 }));
  await one.desk.add(world.entry('long'));
  await world.clock.advance(5_100);
  t.strictSame(
    two.desk.overrides.map(({ id }) => id),
    ['long'],
    'it counts no more',
  );
  t.strictSame(await world.stored(), ['short', 'long'], 'though it is still written');
  await world.lead();
  await world.clock.advance(6_000);
  t.strictSame(await world.stored(), ['short', 'long'], 'nobody knows yet what time it is at the servers: his own clock may be wrong');
  await world.lead();
  await world.clock.advance(6_000);
  t.strictSame(await world.stored(), ['long']);
  t.strictSame(
    world.audits.map(({ action, subject }) => [action, subject]),
    [['override.expired', 'short']],
  );
  for (const { desk } of [one, two]) desk.stop();
});

t.test('a lost stream is made anew with what was held; a list of a newer version is never written over; garbage is', async (t: Test) => {
  const world = new World();
  const { desk } = await world.replica('cp-1');
  await desk.arrive();
  await desk.add(world.entry('a'));
  const before = desk.epoch;
  world.nats.streams.delete(OVERRIDE_STREAM);
  await world.clock.advance(5_000);
  t.strictSame(await world.stored(), ['a'], 'what was blocked stays blocked');
  t.not(desk.epoch, before);
  await world.probe.append(subjects.overrides, Buffer.from('{'));
  await world.clock.advance(10);
  t.match(desk.trouble, /cannot be read here/);
  t.match(await desk.add(world.entry('b')), { entry: { id: 'b' } }, 'the button works');
  t.strictSame(await world.stored(), ['a', 'b']);
  t.equal(desk.trouble, '');
  await world.probe.append(subjects.overrides, Buffer.from(JSON.stringify({ wire: 2, overrides: [] })));
  await world.clock.advance(10);
  t.match(await desk.add(world.entry('c')), { failed: /version 2 of overrides/ });
  desk.stop();
});

t.test('a replica whose clock is wrong counts by the servers’ time, as it is read from the lease', (t) => {
  const clock = new ServerClock();
  clock.seen(5, 1_000, 7_201_000);
  t.equal(clock.aheadMs, 0, 'how old the first one is nobody knows');
  clock.seen(5, 1_000, 7_204_000);
  t.equal(clock.aheadMs, 0, 'nobody leads: it is the same one');
  clock.seen(6, 7_000, 7_208_500);
  clock.seen(7, 11_000, 7_211_100);
  t.equal(clock.aheadMs, -7_200_100, 'the least old one is nearest to the truth');
  const right = new ServerClock();
  for (let i = 1; i < 5; i++) right.seen(i, i * 3_000 - 2_500, i * 3_000);
  t.equal(right.aheadMs, 0);
  t.end();
});

t.test('a stream that is there and does not answer is left as it is: who writes may not know how many copies it shall have', async (t) => {
  const world = new World();
  let made = 0;
  const bus = {
    lastAtLeader: async () => ({ failed: 'no answer in time' }),
    stream: async () => ({ name: OVERRIDE_STREAM }),
    ensureStream: async () => {
      made++;
      return { failed: 'not asked for' };
    },
  } as unknown as WriterParts['bus'];
  const writer = new OverrideWriter({ bus, subjects, clock: world.clock, random, replicas: 1, remembered: () => null });
  t.match(
    await within(
      world,
      2_000,
      writer.change((state) => ({ state })),
    ),
    { failed: 'no answer in time' },
  );
  t.equal(made, 0);
});

t.test('with NATS away an order fails in words, and nothing is promised', async (t) => {
  const world = new World();
  const { desk } = await world.replica('cp-1');
  await desk.arrive();
  world.nats.down();
  t.match(await within(world, 2_000, desk.add(world.entry('a'))), { failed: /no connection/ });
  desk.stop();
});
