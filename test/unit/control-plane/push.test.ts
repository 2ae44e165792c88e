/** control-plane/push: what is written, in which order, and what is made of the answers. The stream is played by script. */
import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import t, { type Test } from 'tap';
import { AllowList } from '../../../base/address-guard.ts';
import type { BusMessage } from '../../../base/bus-message.ts';
import { realClock } from '../../../base/clock.ts';
import type { Bus } from '../../../base/nats.ts';
import { VirtualClock } from '../../../base/virtual-clock.ts';
import { Admission } from '../../../control-plane/push/admission.ts';
import { Beacon } from '../../../control-plane/push/beacon.ts';
import { inputMessages, pushedMessages, type States } from '../../../control-plane/push/derive-writes.ts';
import { Door } from '../../../control-plane/push/door.ts';
import { Fleet } from '../../../control-plane/push/fleet.ts';
import { Mirror } from '../../../control-plane/push/mirror.ts';
import { Prober } from '../../../control-plane/push/prober.ts';
import { ShrinkGuard } from '../../../control-plane/push/shrink-guard.ts';
import { type Appended, type ConfigStream, Writer } from '../../../control-plane/push/writer.ts';
import { NO_CHANGE } from '../../../control-plane/registry/change.ts';
import { noOperators } from '../../../control-plane/registry/operators.ts';
import type { Registry } from '../../../control-plane/registry/registry.ts';
import { tallyOf } from '../../../control-plane/registry/shrink.ts';
import { type CapabilityState, type Hello, REGISTRY_WIRE, type Report } from '../../../proto/wire/registry.ts';
import { Subjects } from '../../../proto/wire/subjects.ts';
import { providerOf } from '../../support/route-table.ts';
import { settle } from '../../support/settle.ts';

/** A stream whose answers come when the test says so. */
class Script implements ConfigStream {
  readonly sent: { readonly tail: string; readonly text: string; readonly expect: number }[] = [];
  readonly #waiting: ((appended: Appended) => void)[] = [];

  append(tail: string, text: string, expect: number): Promise<Appended> {
    this.sent.push({ tail, text, expect });
    return new Promise((done) => this.#waiting.push(done));
  }

  /** Answers the oldest `count` messages: all of them as stored. */
  async store(count = this.#waiting.length): Promise<void> {
    const first = this.sent.length - this.#waiting.length;
    for (let i = 0; i < count; i++) this.#waiting.shift()?.({ kind: 'stored', seq: (this.sent[first + i]?.expect ?? 0) + 1 });
    await settle();
  }

  async answer(appended: Appended): Promise<void> {
    this.#waiting.shift()?.(appended);
    await settle();
  }

  get tails(): string[] {
    return this.sent.map(({ tail }) => tail);
  }
}

function pen(lastSeq = 0, maxPending = 1_000): { writer: Writer; stream: Script; mirror: Mirror } {
  const mirror = new Mirror();
  mirror.replace([], lastSeq);
  const stream = new Script();
  const writer = new Writer(stream, mirror, maxPending);
  writer.resume();
  return { writer, stream, mirror };
}

t.test('the mirror never goes back, and says what is news', async (t) => {
  const mirror = new Mirror();
  const heard: string[] = [];
  const stop = mirror.listen((tail, seq) => heard.push(`${tail} ${seq}`));
  t.equal(mirror.apply('cap.a.b.c', 5, '{"n":5}'), true);
  t.equal(mirror.apply('cap.a.b.c', 4, '{"n":4}'), false, 'an older message that comes late is dropped');
  t.equal(mirror.apply('cap.a.b.c', 5, '{"n":5}'), false, 'the same one again is no news');
  t.same(mirror.state('cap.a.b.c'), { n: 5 });
  t.equal(mirror.state('cap.x.y.z'), null);
  mirror.apply('reg.x', 6, 'not json');
  t.equal(mirror.state('reg.x'), null, 'what is not JSON is nothing');
  t.same(mirror.tails('cap.'), ['cap.a.b.c']);
  mirror.replace(
    [
      ['cap.a.b.c', 5, '{"n":5}'],
      ['reg.y', 9, '{}'],
    ],
    9,
  );
  t.same(heard, ['cap.a.b.c 5', 'reg.x 6', 'reg.y 9'], 'a reload tells only what differs');
  t.equal(mirror.lastSeq, 9);
  t.equal(mirror.size, 2);
  stop();
  mirror.apply('reg.z', 10, '{}');
  t.equal(heard.length, 3);
});

t.test('messages go out one behind another, each expecting the one before', async (t) => {
  const { writer, stream, mirror } = pen(7);
  const told: unknown[] = [];
  writer.onStored = (stored) => told.push(...stored);
  const writing = writer.write([
    { tail: 'reg.a', text: '1' },
    { tail: 'cap.a.b.c', text: '2' },
    { tail: 'scope.a', text: '3' },
  ]);
  t.same(
    stream.sent.map(({ tail, expect }) => `${tail} ${expect}`),
    ['reg.a 7', 'cap.a.b.c 8', 'scope.a 9'],
    'without waiting for an answer',
  );
  t.equal(writer.pending, 3);
  await stream.store();
  t.same(await writing, { ok: true, seq: 10 }, 'in force when the last of them is stored');
  t.same(told, [
    ['reg.a', 8],
    ['cap.a.b.c', 9],
    ['scope.a', 10],
  ]);
  t.equal(mirror.get('cap.a.b.c')?.seq, 9);
  t.equal(writer.pending, 0);
});

t.test('what has not changed is not written', async (t) => {
  const { writer, stream } = pen();
  const first = writer.write([{ tail: 'cap.a.b.c', text: 'same' }]);
  const twin = writer.write([{ tail: 'cap.a.b.c', text: 'same' }]);
  await stream.store();
  t.same(await first, { ok: true, seq: 1 });
  t.same(await twin, { ok: true, seq: 1 }, 'who asks for what is under way waits for it');
  t.same(await writer.write([{ tail: 'cap.a.b.c', text: 'same' }]), { ok: true, seq: 0 }, 'nothing changed');
  t.equal(stream.sent.length, 1);
  t.same(await writer.write([]), { ok: true, seq: 0 });
});

t.test('a burst is bounded in what is under way, and of a waiting subject only the newest goes out', async (t) => {
  const { writer, stream } = pen();
  const batches = Array.from({ length: 400 }, (_, i) => writer.write([{ tail: `reg.s${i}`, text: 'x' }]));
  t.equal(stream.sent.length, 256);
  const older = writer.write([{ tail: 'reg.s399', text: 'y' }]);
  const newer = writer.write([{ tail: 'reg.s399', text: 'z' }]);
  while (writer.pending > 0) await stream.store();
  t.equal(stream.sent.filter(({ tail }) => tail === 'reg.s399').length, 1);
  t.equal(stream.sent.at(-1)?.text, 'z');
  t.same(await older, await newer, 'both are in force with the newest');
  t.ok((await Promise.all(batches)).every(({ ok }) => ok));
});

t.test('a conflict ends the pen for good, and says so to everybody who waits', async (t) => {
  const { writer, stream, mirror } = pen();
  let conflicts = 0;
  writer.onConflict = () => conflicts++;
  const first = writer.write([{ tail: 'reg.a', text: '1' }]);
  const second = writer.write([{ tail: 'reg.b', text: '1' }]);
  await stream.answer({ kind: 'conflict', why: 'the stream is at 5' });
  t.match(await first, { ok: false, why: /another replica has written/ });
  t.match(await second, { ok: false });
  t.match(await writer.write([{ tail: 'reg.c', text: '1' }]), { ok: false });
  await stream.store();
  t.equal(conflicts, 1);
  t.equal(mirror.size, 0, 'an answer that comes late counts for nothing');
  writer.resume();
  t.equal(writer.state, 'closed');
});

t.test('a sequence that is not the expected one is a conflict too', async (t) => {
  const { writer, stream } = pen();
  const writing = writer.write([{ tail: 'reg.a', text: '1' }]);
  await stream.answer({ kind: 'stored', seq: 9 });
  t.match(await writing, { ok: false, why: /sequence 9, not 1/ });
});

t.test('while NATS is away changes wait, newest of each subject; then only what is missing is written', async (t) => {
  const { writer, stream, mirror } = pen();
  let pauses = 0;
  writer.onPause = () => pauses++;
  const a = writer.write([{ tail: 'reg.a', text: 'a1' }]);
  const b = writer.write([{ tail: 'reg.b', text: 'b1' }]);
  await stream.answer({ kind: 'unavailable', why: 'no connection' });
  t.equal(writer.state, 'paused');
  const newer = writer.write([{ tail: 'reg.b', text: 'b2' }]);
  const c = writer.write([{ tail: 'reg.c', text: 'c1' }]);
  t.equal(stream.sent.length, 2, 'nothing is sent');
  t.equal(writer.latest('reg.b'), 'b2');
  t.equal(writer.mayHaveWritten('reg.a', 'a1'), true, 'it may have arrived all the same');
  t.equal(writer.mayHaveWritten('reg.b', 'b2'), false);
  // It is back, and the first one had arrived.
  mirror.replace([['reg.a', 1, 'a1']], 1);
  writer.resume();
  t.same(await a, { ok: true, seq: 1 });
  t.same(
    stream.sent.slice(2).map(({ tail, text, expect }) => `${tail} ${text} ${expect}`),
    ['reg.b b2 1', 'reg.c c1 2'],
  );
  await stream.store();
  await stream.store();
  t.match(await b, { ok: true });
  t.match(await newer, { ok: true });
  t.match(await c, { ok: true });
  t.equal(pauses, 1);
});

t.test('what waits is bounded', async (t) => {
  const { writer } = pen(0, 2);
  writer.pause('no connection');
  void writer.write([{ tail: 'reg.a', text: '1' }]);
  void writer.write([{ tail: 'reg.b', text: '1' }]);
  t.match(await writer.write([{ tail: 'reg.c', text: '1' }]), { ok: false, why: /2 changes wait/ });
  void writer.write([{ tail: 'reg.a', text: '2' }]);
  t.equal(writer.latest('reg.a'), '2', 'a newer state of what waits already is taken');
  writer.close('stopping');
});

t.test('the beacon repeats what changed lately, and says from where on it is whole', async (t) => {
  const beacon = new Beacon(3);
  beacon.changed(
    [
      ['cap.a.b.c', 4],
      ['scope.x', 5],
    ],
    0,
  );
  beacon.changed([['cap.a.b.c', 6]], 5_000);
  const message = beacon.message('e1', 6, 12, 5_000, 'named');
  t.same(message, {
    wire: REGISTRY_WIRE,
    epoch: 'e1',
    lastSeq: 6,
    recent: [
      ['scope.x', 5],
      ['cap.a.b.c', 6],
    ],
    since: 3,
    term: 12,
    speech: 'named',
  });
  const later = beacon.message('e1', 6, 0, 12_000, 'named');
  t.same(later.recent, [['cap.a.b.c', 6]], 'what is older than ten seconds is left out');
  t.equal(later.since, 5, 'and the reader is told');
  beacon.changed(
    Array.from({ length: 500 }, (_, i) => [`cap.a.b.c${i}`, 7 + i] as const),
    12_000,
  );
  const full = beacon.message('e1', 506, 0, 12_000, 'named');
  t.equal(full.recent.length, 200);
  t.equal(full.since, 306, 'everything after it is among the two hundred');
});

function capability(name: string, agents: readonly string[], shard = 0, shards = 1): CapabilityState {
  const providers = agents.map((agent) => ({ record: providerOf(agent, [`${name}@1.0.0`]), mesh: null }));
  return { wire: REGISTRY_WIRE, epoch: 'e', name, shard, shards, contracts: [], policies: [], staged: null, providers };
}

t.test('the next leader is told before the sidecars, and capabilities before the scopes that lead to them', async (t) => {
  const states = {
    registration: (sidecar: string) => ({ hello: { sidecar, agents: sidecar === 's1' ? [1] : [] } }),
    operators: () => noOperators('e'),
    capabilityStates: (name: string) => [capability(name, ['a.b.c'])],
    scope: (sidecar: string) => ({ capabilities: [sidecar] }),
    capabilityNames: () => [],
    sidecarNames: () => [],
  } as unknown as States;
  const changed = { registrations: ['s1'], operators: ['canary'] as const, capabilities: ['x.y.z'], scopes: ['s1', 's2'] };
  const tails = [...inputMessages(states, changed), ...pushedMessages(states, changed, () => null)].map(({ tail }) => tail);
  t.same(tails, ['reg.s1', 'op.canary', 'cap.x.y.z', 'scope.s1', 'scope.s2']);
  t.same(
    inputMessages(states, { ...changed, registrations: ['s0', 's1'] }).map(({ tail }) => tail),
    ['reg.s1', 'reg.s0', 'op.canary'],
    'who has an agent now stands before who has none any more',
  );
});

t.test('a provider that moves between shards is never in none of them', async (t) => {
  const stored = new Map<string, string>();
  const write = (next: readonly CapabilityState[]): string[] => {
    const states = { capabilityStates: () => next } as unknown as States;
    const changed = { registrations: [], operators: [], capabilities: ['x.y.z'], scopes: [] };
    const messages = pushedMessages(states, changed, (tail) => stored.get(tail) ?? null);
    for (const { tail, text } of messages) {
      stored.set(tail, text);
      const states = [...stored.values()].map((each) => JSON.parse(each) as CapabilityState);
      const counting = states.find(({ shard }) => shard === 0)?.shards ?? 0;
      const held = new Set(
        states.flatMap(({ shard, providers }) => (shard < counting ? providers.map(({ record }) => record.agentId) : [])),
      );
      for (const agent of ['a.b.1', 'a.b.2']) t.ok(held.has(agent), `${agent} is there after ${tail}`);
    }
    return messages.map(({ tail }) => tail);
  };
  write([capability('x.y.z', ['a.b.1', 'a.b.2'])]);
  t.same(
    write([capability('x.y.z', ['a.b.1'], 0, 2), capability('x.y.z', ['a.b.2', 'a.b.3'], 1, 2)]),
    ['cap.x.y.z.1', 'cap.x.y.z'],
    'more: the higher shards first',
  );
  t.same(write([capability('x.y.z', ['a.b.1', 'a.b.2'])]), ['cap.x.y.z'], 'fewer: the lower ones first');
  t.equal(stored.size, 2, 'the other one is void');
  const shards = (count: number): CapabilityState[] =>
    Array.from({ length: count }, (_, shard) =>
      capability(
        'x.y.z',
        Array.from({ length: 8 }, (_, i) => `a.b.${i}`).filter((_, i) => i % count === shard),
        shard,
        count,
      ),
    );
  write(shards(1));
  write(shards(4));
  t.same(
    write(shards(8)),
    [4, 5, 6, 7, 0, 1, 2, 3].map((shard) => (shard === 0 ? 'cap.x.y.z' : `cap.x.y.z.${shard}`)),
    'the new ones, then the one that says that they count, then those that lost something',
  );
  t.same(
    write(shards(4)),
    [1, 2, 3, 0].map((shard) => (shard === 0 ? 'cap.x.y.z' : `cap.x.y.z.${shard}`)),
    'the one that says that the others are void comes last',
  );
});

t.test('a loss without a trace is held back until it is confirmed or heals', async (t) => {
  const agents = Array.from({ length: 10 }, (_, i) => `a.b.c${i}`);
  const whole = tallyOf([capability('x.y.z', agents)]);
  const half = tallyOf([capability('x.y.z', agents.slice(0, 4))]);
  const guard = new ShrinkGuard();
  t.match(
    guard.judge(whole, half, () => false, 100),
    /6 of 10 providers/,
  );
  t.equal(
    guard.judge(whole, half, () => true, 150),
    null,
    'who said goodbye is not missed',
  );
  guard.judge(whole, half, () => false, 200);
  guard.judge(whole, half, () => false, 300);
  t.equal(guard.held?.sinceMs, 200);
  t.equal(
    guard.judge(whole, whole, () => false, 400),
    null,
    'they are back',
  );
  t.equal(guard.release(), false, 'nothing to confirm');
  guard.judge(whole, half, () => false, 500);
  t.equal(guard.release(), true);
  t.equal(
    guard.judge(whole, half, () => false, 600),
    null,
    'confirmed is confirmed',
  );
});

t.test('the fleet knows who is behind within its own scope, who refuses and who is missing', async (t) => {
  const mirror = new Mirror();
  const put = (tail: string, seq: number, state: unknown): void => void mirror.apply(tail, seq, JSON.stringify(state));
  for (const name of ['s1', 's2', 's3', 's4', 's5']) put(`reg.${name}`, 1, {});
  put('scope.s1', 10, { capabilities: ['a.b.c'] });
  put('scope.s2', 11, { capabilities: ['a.b.c', 'x.y.z'] });
  put('scope.s3', 12, { capabilities: [] });
  put('scope.s5', 13, { capabilities: ['x.y.z'] });
  put('cap.a.b.c', 20, capability('a.b.c', [], 0, 2));
  put('cap.a.b.c.1', 21, capability('a.b.c', [], 1, 2));
  put('cap.x.y.z', 30, capability('x.y.z', []));
  const fleet = new Fleet(mirror, 15_000);
  const report = (sidecar: string, parts: Partial<Report> = {}): Report => ({
    wire: REGISTRY_WIRE,
    sidecar,
    instance: 'i',
    version: '1',
    epoch: 'e',
    appliedSeq: 21,
    tableVersion: 1,
    capabilities: 1,
    providers: 1,
    staleBecause: '',
    refused: [],
    policies: { version: 0, staged: false },
    ...parts,
  });
  fleet.take(report('s1'), 0);
  fleet.take(report('s2'), 0);
  fleet.take(report('s3', { staleBecause: 'NATS is away' }), 0);
  fleet.take(report('s5', { appliedSeq: 40, refused: [{ tail: 'cap.x.y.z', seq: 30, why: 'cannot be read' }] }), 0);
  fleet.take(report('stranger'), 0);
  // Work goes to the one sidecar only, and is followed beside what is in its scope.
  for (const name of ['s6', 's7', 's8']) put(`reg.${name}`, 1, {});
  put('work.s6', 50, { pools: [] });
  put('work.s7', 51, { pools: [] });
  put('work.s8', 52, { pools: [] });
  fleet.take(report('s6', { work: { seq: 50 } }), 0);
  fleet.take(report('s7', { work: { seq: 49 } }), 0);
  fleet.take(report('s8', { work: { seq: 52 }, refused: [{ tail: 'work.s8', seq: 52, why: 'cannot be read' }] }), 0);
  const shown = (now: number): Record<string, string> =>
    Object.fromEntries(fleet.rows(now).map(({ sidecar, standing, behind, wantedSeq }) => [sidecar, `${standing} ${behind} ${wantedSeq}`]));
  t.same(shown(1_000), {
    s1: 'current 0 21',
    s2: 'behind 1 30',
    s3: 'stale 0 12',
    s4: 'missing 0 0',
    s5: 'behind 1 30',
    s6: 'current 0 50',
    s7: 'behind 1 51',
    s8: 'behind 1 52',
    stranger: 'current 0 0',
  });
  fleet.hearsAgain(2_000);
  fleet.take(report('s2'), 2_100);
  t.match(
    shown(2_200),
    { s1: 'stale 0 21', s2: /^(current|behind) /, s4: 'missing 0 0' },
    'what was said before a break of the connection says nothing of now',
  );
  t.equal(shown(15_001)['s1'], 'missing 0 21', 'three reports that did not come');
  t.equal(shown(3_600_001)['stranger'], undefined, 'who is registered nowhere is forgotten after an hour');
});

t.test('an address is judged where it leads, when it is registered', async (t) => {
  const clock = new VirtualClock();
  const names: Record<string, readonly string[]> = {
    'api.example.com': ['93.184.216.34'],
    'nip.test': ['127.0.0.1'],
    'two.test': ['93.184.216.34', '10.0.0.1'],
  };
  const allow = AllowList.parse(['10.9.0.0/16', 'billing.internal']) as AllowList;
  const admission = new Admission(
    { allow, loopback: false, private: false },
    clock,
    async (name) => names[name] ?? Promise.reject(new Error('no such name')),
  );
  const judge = async (address: string, via: string | null = null): Promise<string | null> => {
    const endpoint = { type: 'http', address, path: null, mapping: {}, credential: null, options: {} };
    const { admitted, refused } = await admission.judge([
      { contracts: [], record: providerOf('a.b.c', ['x.y.z@1.0.0'], { endpoint, via }) },
    ]);
    t.equal(admitted.length + refused.length, 1);
    return refused[0]?.problems.join() ?? null;
  };
  for (const address of [
    'http://127.0.0.1:7700',
    'http://[::ffff:7f00:1]:7700',
    'http://2130706433',
    'http://0x7f.1',
    'http://localhost:7700',
    'http://nip.test',
    'http://two.test',
    'http://10.1.2.3',
    'http://169.254.169.254/latest',
  ])
    t.type(await judge(address), 'string', `${address} is refused`);
  for (const address of ['http://api.example.com', 'http://10.9.1.1:80', 'https://93.184.216.34', 'http://unknown.test'])
    t.equal(await judge(address), null, `${address} is taken`);
  t.equal(await judge('http://127.0.0.1:8080', 's1'), null, 'what a sidecar hosts itself is on its own machine');
  t.equal(await judge('http://10.1.2.3:8080', 's1'), null);
  t.match(await judge('http://169.254.169.254', 's1'), /credentials/, 'the metadata address never is');
  admission.own('s1', 'http://127.0.0.1:7701');
  t.match(await judge('http://localhost:7701', 's1'), /would come back/, 'a port of ours is no provider');
  admission.own('s1', null);
  t.equal(await judge('http://localhost:7701', 's1'), null);
  t.equal(admission.mesh('http://10.1.2.3:7701'), null);
  t.match(admission.mesh('http://169.254.169.254:80'), /credentials/);
});

t.test('a resolver that hangs does not hold up the registration', async (t) => {
  const clock = new VirtualClock();
  const admission = new Admission(
    { allow: AllowList.parse([]) as AllowList, loopback: false, private: false },
    clock,
    () => new Promise(() => {}),
  );
  const endpoint = { type: 'http', address: 'http://slow.test', path: null, mapping: {}, credential: null, options: {} };
  const judging = admission.judge([{ contracts: [], record: providerOf('a.b.c', ['x.y.z@1.0.0'], { endpoint }) }]);
  await clock.advance(2_000);
  t.match(await judging, { refused: [] });
});

async function listening(t: Test, answer: (path: string) => { status: number; headers?: Record<string, string> } | null): Promise<string> {
  const server: Server = createServer((request, response) => {
    const made = answer(request.url ?? '');
    if (made !== null) response.writeHead(made.status, made.headers).end();
  });
  await new Promise<void>((done) => server.listen(0, '127.0.0.1', done));
  t.teardown(() => {
    server.closeAllConnections();
    server.close();
  });
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
}

t.test('a health check is a GET that answers 2xx in time, follows nothing, and is guarded at the connection', async (t) => {
  const asked: string[] = [];
  const url = await listening(t, (path) => {
    asked.push(path);
    if (path === '/silent') return null;
    if (path === '/moved') return { status: 302, headers: { location: '/well' } };
    return { status: path === '/well' ? 204 : 500 };
  });
  const allow = AllowList.parse([]) as AllowList;
  const prober = new Prober({ allow, loopback: true, private: false }, realClock);
  t.equal(await prober.run({ url: `${url}/well`, timeoutMs: 2_000 }), true);
  t.equal(await prober.run({ url: `${url}/ill`, timeoutMs: 2_000 }), false);
  t.equal(await prober.run({ url: `${url}/moved`, timeoutMs: 2_000 }), false);
  t.equal(await prober.run({ url: `${url}/silent`, timeoutMs: 50 }), false);
  t.equal(await prober.run({ url: 'http://127.0.0.1:1/', timeoutMs: 2_000 }), false);
  t.equal(await prober.run({ url: 'nonsense', timeoutMs: 2_000 }), false);
  t.same(asked, ['/well', '/ill', '/moved', '/silent']);
  const strict = new Prober({ allow, loopback: false, private: false }, realClock);
  t.equal(await strict.run({ url: `${url}/well`, timeoutMs: 2_000 }), false);
  t.equal(await strict.run({ url: `${url.replace('127.0.0.1', 'localhost')}/well`, timeoutMs: 2_000 }), false);
  t.equal(asked.length, 4, 'it was never connected');
});

t.test('a crowd at the door does not keep sockets and timers waiting, and one sidecar is heard in its own order', async (t) => {
  let now = 0;
  // Time passes whenever somebody looks: the work of one request is longer than half a slice.
  const clock = { now: () => (now += 12), wallMs: () => 0, after: () => ({ cancel: () => {} }) };
  const served = new Map<string, (message: BusMessage) => Promise<Uint8Array | null>>();
  const subscription = { refused: null, close: () => {} };
  const bus = {
    serve: (subject: string, respond: (message: BusMessage) => Promise<Uint8Array | null>) => {
      served.set(subject, respond);
      return subscription;
    },
    subscribe: () => subscription,
  } as unknown as Bus;
  const order: string[] = [];
  const registry = {
    hello: ({ sidecar }: Hello) => {
      order.push(`hello ${sidecar}`);
      const warned = sidecar === 's2' ? [{ agent: 'a.b.c', code: 4003, problems: ['other content (acl)'] }] : [];
      return { ...NO_CHANGE, warned };
    },
    leave: ({ sidecar }: Hello) => {
      order.push(`leave ${sidecar}`);
      return NO_CHANGE;
    },
  } as unknown as Registry;
  const subjects = new Subjects('test');
  const policy = { allow: AllowList.parse([]) as AllowList, loopback: true, private: true };
  const door = new Door({
    bus,
    clock,
    subjects,
    admission: new Admission(policy, clock),
    epoch: 'e1',
    registry: () => registry,
    commit: async () => ({ ok: true, seq: 0 }),
    commitInTime: async () => ({ ok: true, seq: 7 }),
    stateSeq: () => 0,
    lastSeq: () => 7,
  });
  const say = (verb: 'hello' | 'leave', sidecar: string, more: object = {}): Promise<Uint8Array | null> => {
    const request = {
      wire: REGISTRY_WIRE,
      sidecar,
      instance: 'i1',
      mesh: null,
      region: null,
      zone: null,
      callers: [],
      agents: [],
      agent: null,
      ...more,
    };
    const data = Buffer.from(JSON.stringify(request), 'utf8');
    const respond = served.get(subjects.ctl(verb));
    if (respond === undefined) throw new Error(`nobody serves ${verb}`);
    return respond({ subject: subjects.ctl(verb), data, reply: '_INBOX.x', header: () => null });
  };
  const answers = ['s1', 's2', 's3', 's4'].map((sidecar) => say('hello', sidecar));
  answers.push(say('leave', 's4'));
  t.equal(door.isCrowded, true);
  setImmediate(() => order.push('others'));
  const texts = (await Promise.all(answers)).map((each) => JSON.parse(Buffer.from(each ?? []).toString('utf8')) as unknown);
  t.same(texts[0], { wire: REGISTRY_WIRE, ok: true, refused: [], seq: 7, states: {}, epoch: 'e1' });
  t.match(texts[1], { ok: true, warned: [{ agent: 'a.b.c', problems: ['other content (acl)'] }] }, 'what is in force otherwise is said');
  t.equal(door.isCrowded, false);
  t.ok(order.indexOf('others') > 0 && order.indexOf('others') < 4, `others had a turn in between: ${order.join(', ')}`);
  t.same(
    order.filter((each) => each.endsWith('s4')),
    ['hello s4', 'leave s4'],
  );
  door.close();
  t.equal(await say('hello', 's5'), null, 'a closed door does not answer');
});
