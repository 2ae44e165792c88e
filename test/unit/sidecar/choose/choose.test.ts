import t from 'tap';
import { SeededRandom } from '../../../../base/random.ts';
import type { Override, ProviderRecord } from '../../../../proto/language/types.ts';
import type { Call } from '../../../../sidecar/call/call.ts';
import { Principal } from '../../../../sidecar/call/principal.ts';
import { Chooser } from '../../../../sidecar/choose/choose.ts';
import { draw, Group } from '../../../../sidecar/choose/group.ts';
import { explainChoice } from '../../../../sidecar/choose/explain.ts';
import { resolve } from '../../../../sidecar/resolve/resolve.ts';
import type { Candidate } from '../../../../sidecar/table/snapshot.ts';
import { BREAKER, NAME, near, P1, P2, P3, provider, shown, three, tried, World } from '../../../support/choosing.ts';
import { providerOf } from '../../../support/route-table.ts';

t.test('every mode serves with one provider, and uses all of two and three', (t) => {
  for (const load of ['least_request', 'round_robin', 'random'] as const) {
    t.strictSame(Object.keys(new World([provider(P1)], { load }).counts(20)), [P1]);
    const two = new World([provider(P1), provider(P2)], { load }).counts(3_000);
    near(t, two[P1], 1_500, `${load}, first of two`);
    const all = new World(three(), { load }).counts(3_000);
    for (const agentId of [P1, P2, P3]) near(t, all[agentId], 1_000, `${load}, of three`);
  }
  t.end();
});

t.test('weights share the work; 0 gets none, 0.4 % gets 0.4 % (C057)', (t) => {
  for (const load of ['least_request', 'round_robin', 'random'] as const) {
    const here = new World([provider(P1, { weight: 3 }), provider(P2, { weight: 1 }), provider(P3, { weight: 0 })], { load });
    const got = here.counts(10_000);
    near(t, got[P1], 7_500, load);
    t.equal(got[P3], undefined, 'weight 0');
    const tiny = new World([provider(P1, { weight: 99.6 }), provider(P2, { weight: 0.4 })], { load }).counts(10_000);
    near(t, tiny[P2], 40, `${load}, tiny`);
    here.break(P1);
    here.break(P2);
    t.equal(here.pick(), '3001', 'weight 0 is no spill either, and does not hide what is wrong');
  }
  const none = new World([provider(P1, { weight: 0 }), provider(P2, { weight: 0 })]);
  const got = none.verdict({}, `${NAME}@^2`);
  t.equal(got.code, 2003);
  t.match(got.words, /crm\.p\.1: weight 0; crm\.p\.2: weight 0/);
  t.end();
});

t.test('round robin rotates, exactly by weight, and starts anywhere (C060)', (t) => {
  const plain = new World(three(), { load: 'round_robin' });
  const first = [plain.pick(), plain.pick(), plain.pick()];
  t.equal(new Set(first).size, 3);
  t.strictSame([plain.pick(), plain.pick(), plain.pick()], first);
  const uneven = new World([provider(P1, { weight: 5 }), provider(P2), provider(P3)], { load: 'round_robin' });
  t.strictSame(uneven.counts(700), { [P1]: 500, [P2]: 100, [P3]: 100 });
  const inARow = Array.from({ length: 70 }, () => uneven.pick()).join(' ');
  t.notMatch(inARow, new RegExp(`(${P1} ?){6}`), 'well mixed, not in blocks');
  const starts: Record<string, number> = {};
  for (let sidecar = 0; sidecar < 200; sidecar++) {
    const who = new World([...three(), provider('crm.p.4')], { load: 'round_robin' }, {}, sidecar + 1).pick();
    starts[who] = (starts[who] ?? 0) + 1;
  }
  for (const agentId of [P1, P2, P3, 'crm.p.4'])
    t.ok(Math.abs((starts[agentId] ?? 0) - 50) <= 20, `${agentId} first at ${starts[agentId]} of 200`);
  const unevenStarts = new Set(
    Array.from({ length: 50 }, (_, i) => new World([provider(P1, { weight: 2 }), provider(P2)], { load: 'round_robin' }, {}, i + 1).pick()),
  );
  t.equal(unevenStarts.size, 2, 'with uneven weights too');
  t.end();
});

t.test('round robin keeps its place over a table push', (t) => {
  for (const weight of [1, 2]) {
    const providers = [provider(P1, { weight }), provider(P2), provider(P3)];
    const pushed = new World(providers, { load: 'round_robin' });
    const still = new World(providers, { load: 'round_robin' });
    const order: string[] = [];
    const wanted: string[] = [];
    for (let i = 0; i < 24; i++) {
      order.push(pushed.pick());
      wanted.push(still.pick());
      pushed.push(providers);
    }
    t.strictSame(order, wanted);
  }
  t.end();
});

t.test('a second draw leaves out the first by weight, and a mask leaves out whom it names', (t) => {
  const here = new World([provider(P1, { weight: 1 }), provider(P2, { weight: 6 }), provider(P3, { weight: 3 })]);
  const candidates = here.table.capabilities.get(NAME)?.versions[0]?.candidates ?? [];
  const drawn = (group: Group, mask: Uint8Array | null, except: number): number[] => {
    const counts = [0, 0, 0];
    for (let i = 0; i < 8_000; i++) {
      const at = draw(group, here.random, mask, except);
      counts[at] = (counts[at] ?? 0) + 1;
    }
    return counts;
  };
  const uneven = new Group(candidates, Float64Array.from([1, 6, 3]), 0);
  const table: readonly [Uint8Array | null, number, readonly number[]][] = [
    [null, -1, [800, 4_800, 2_400]],
    [null, 0, [0, 5_333, 2_667]],
    [null, 1, [2_000, 0, 6_000]],
    [null, 2, [1_143, 6_857, 0]],
    [Uint8Array.from([1, 0, 1]), -1, [2_000, 0, 6_000]],
    [Uint8Array.from([1, 1, 1]), 1, [2_000, 0, 6_000]],
  ];
  for (const [mask, except, wanted] of table) {
    const got = drawn(uneven, mask, except);
    wanted.forEach((count, i) => near(t, got[i], count, `mask ${mask?.join('') ?? 'none'}, except ${except}, member ${i}`));
  }
  const even = drawn(new Group(candidates, Float64Array.from([2, 2, 2]), 0), null, 1);
  t.equal(even[1], 0);
  near(t, even[0], 4_000, 'equal weights');
  t.equal(draw(uneven, here.random, Uint8Array.from([0, 1, 0]), 1), -1, 'nobody is left');
  t.end();
});

t.test('least_request takes the less busy of two, for its weight', (t) => {
  const two = new World([provider(P1), provider(P2)]);
  two.health.provider(P1).inFlight = 1;
  t.strictSame(two.counts(200), { [P2]: 200 }, 'with two both are compared');
  const many = new World(Array.from({ length: 10 }, (_, i) => provider(`crm.p.${i}`)));
  many.health.provider('crm.p.0').inFlight = 50;
  t.equal(many.counts(2_000)['crm.p.0'], undefined, 'the busiest never wins a comparison');
  const weighed = new World([provider(P1, { weight: 4 }), provider(P2)]);
  weighed.health.provider(P1).inFlight = 3;
  weighed.health.provider(P2).inFlight = 1;
  t.strictSame(weighed.counts(100), { [P1]: 100 }, '3 of weight 4 is less than 1 of weight 1');
  t.match(weighed.verdict().words, /crm\.p\.1 by least_request with 3 in flight, of 2 usable outside this region/);
  t.end();
});

t.test('primary_backup is the same one always, then the next', (t) => {
  const here = new World([provider(P1), provider(P2, { weight: 2 }), provider(P3, { weight: 2 })], { load: 'primary_backup' });
  t.strictSame(here.counts(20), { [P2]: 20 }, 'highest weight, then agent id');
  here.break(P2);
  t.strictSame(here.counts(20), { [P3]: 20 });
  here.health.provider(P3).inFlight = 1_000;
  t.strictSame(here.counts(20), { [P1]: 20 });
  t.end();
});

t.test('recent errors and a slow start lower the weight, not to nothing', async (t) => {
  const here = new World([provider(P1), provider(P2)], { load: 'random', breaker: { ...BREAKER, minCalls: 10, failureRatio: 0.9 } });
  const cell = here.cell(P1);
  for (let i = 0; i < 20; i++) cell.end(cell.admit(0), i % 2 === 0 ? 'failure' : 'success', 1, 0);
  await here.clock.advance(2_000);
  near(t, here.counts(3_000)[P1], 1_000, 'half its calls fail: half its weight');
  const starting = new World([provider(P1)], { load: 'random', slowStartMs: 10_000 });
  await starting.clock.advance(60_000);
  starting.push([provider(P1), provider(P2)]);
  near(t, starting.counts(3_300)[P2], 300, 'a tenth at first');
  await starting.clock.advance(10_000);
  near(t, starting.counts(3_000)[P2], 1_500, 'then all of it');
});

t.test('nearest first; the others only when those are unfit or busy', (t) => {
  const at = (agentId: string, region: string, zone: string, parts: Partial<ProviderRecord> = {}) =>
    provider(agentId, { region, zone, ...parts });
  const here = new World([at(P1, 'eu', 'a'), at(P2, 'eu', 'b'), at(P3, 'us', 'a')]);
  t.strictSame(here.counts(50), { [P1]: 50 });
  t.match(here.verdict().words, /in this zone$/);
  here.health.provider(P1).inFlight = here.health.provider(P1).limit;
  t.strictSame(here.counts(50), { [P2]: 50 }, 'busy');
  t.match(here.verdict().words, /in this region; spilled over/);
  here.break(P2);
  t.strictSame(here.counts(50), { [P3]: 50 }, 'broken');
  here.health.provider(P1).inFlight = 0;
  t.strictSame(here.counts(50), { [P1]: 50 }, 'and back');
  const anywhere = new World([at(P1, 'eu', 'a'), at(P2, 'us', 'b')], { locality: 'ignore', load: 'round_robin' });
  t.strictSame(anywhere.counts(50), { [P1]: 25, [P2]: 25 });
  t.end();
});

t.test('inside one place the primaries come before the backups', (t) => {
  const here = new World([provider(P1, { tier: 'backup' }), provider(P2), provider(P3, { region: 'eu', zone: 'a', tier: 'backup' })]);
  t.strictSame(here.counts(30), { [P3]: 30 }, 'a near backup is before a far primary');
  here.break(P3);
  t.strictSame(here.counts(30), { [P2]: 30 });
  here.break(P2);
  t.strictSame(here.counts(30), { [P1]: 30 });
  t.end();
});

t.test('busy is not the end while somebody has room; when nobody has, the code says so', (t) => {
  const here = new World(three());
  for (const agentId of [P1, P2]) here.health.provider(agentId).inFlight = here.health.provider(agentId).limit;
  t.strictSame(here.counts(50), { [P3]: 50 });
  here.health.provider(P3).inFlight = here.health.provider(P3).limit;
  const got = here.verdict();
  t.equal(got.code, 3003);
  t.match(got.words, /crm\.p\.1: 128 calls in flight, its limit/);
  t.end();
});

t.test('a provider already tried is never chosen again (C030)', (t) => {
  for (const load of ['least_request', 'round_robin', 'random', 'primary_backup', 'sticky'] as const) {
    const two = new World([provider(P1), provider(P2)], { load });
    let wrong = 0;
    for (let i = 0; i < 300; i++) {
      const call = two.call({ affinityKey: i % 2 === 0 ? null : `s${i}` });
      two.chooser.choose(call, 0);
      const first = (call.chosen as Candidate).provider.agentId;
      two.chooser.choose(tried(call, first), 0);
      if ((call.chosen as Candidate).provider.agentId === first) wrong++;
    }
    t.equal(wrong, 0, load);
    const one = new World([provider(P1)], { load });
    const call = tried(one.call({ affinityKey: 's1' }), P1);
    const got = shown(one.chooser.choose(call, 0));
    t.equal(got.code, 2003, `${load}: nobody else is there`);
    t.match(got.words, /crm\.p\.1: tried already in this call/);
  }
  t.end();
});

t.test('a capability of the fallback chain may use an agent that failed at another capability', (t) => {
  const here = new World([providerOf(P1, [`${NAME}@2.0.0`, 'crm.order.guess@1.0.0'])]);
  const call = tried(here.call(), P1);
  call.fallbackFrom = call.capability;
  call.capability = here.table.capabilities.get('crm.order.guess') ?? null;
  call.attemptsFrom = 1;
  resolve(call, here.random);
  t.ok(here.chooser.choose(call, 0).reason.passes);
  t.end();
});

t.test('nothing healthy: fail fast with every reason, no mixture (C053)', (t) => {
  const here = new World([...three(), provider('crm.p.4', { drain: true })]);
  for (const agentId of [P1, P2]) here.break(agentId);
  for (let i = 0; i < 3; i++) here.cell(P3).connectFailed(0);
  const got = here.verdict();
  t.equal(got.code, 2003);
  t.equal(got.name, 'none_healthy');
  t.match(got.words, /crm\.p\.1: breaker open for another 10 s \(.*2 of 2.*\)/);
  t.match(got.words, /crm\.p\.3: ejected for another 5 s/);
  t.match(got.words, /crm\.p\.4: draining/);
  const broken = new World(three());
  for (const agentId of [P1, P2, P3]) broken.break(agentId);
  t.equal(broken.pick(), '3001');
  const many = new World(Array.from({ length: 30 }, (_, i) => provider(`crm.p.${i + 10}`, { drain: true })));
  t.match(many.verdict().words, /and 22 more draining$/);
  t.end();
});

t.test('panic uses all who are unfit, and ends when one recovers (C053)', async (t) => {
  const here = new World([...three(), provider('crm.p.4', { drain: true }), provider('crm.p.5', { weight: 0 }), provider('crm.p.6')], {
    panic: true,
  });
  for (const agentId of [P1, P2, P3]) here.break(agentId);
  here.health.provider('crm.p.6').offline = true;
  const call = here.call();
  t.equal(here.chooser.choose(call, 0).reason.name, 'panic');
  t.equal(call.panicked, true);
  const got = here.counts(3_000);
  for (const agentId of [P1, P2, P3]) near(t, got[agentId], 1_000, agentId);
  t.strictSame(Object.keys(got).sort(), [P1, P2, P3], 'not the draining, the offline, or weight 0');
  here.health.provider('crm.p.6').offline = false;
  t.strictSame(here.counts(100), { 'crm.p.6': 100 }, 'one is well again: only that one');
  here.health.provider('crm.p.6').inFlight = 1_000;
  t.equal(here.verdict().code, 2003, 'busy is not unhealthy: no panic');
  t.equal(new World([provider(P1, { drain: true })], { panic: true }).pick(), '2003');
});

t.test('panic waits until no version is left', (t) => {
  const here = new World([providerOf(P1, [`${NAME}@2.1.0`]), providerOf(P2, [`${NAME}@2.0.0`])], { panic: true });
  here.break(P1);
  const call = here.call();
  t.equal(here.chooser.choose(call, 0).reason.passes, false);
  call.lineIndex++;
  t.equal(here.chooser.choose(call, 0).reason.name, 'least_request');
  here.break(P2);
  const again = here.call();
  t.equal(here.chooser.choose(again, 0).reason.name, 'panic');
  t.equal((again.chosen as Candidate).provider.agentId, P1, 'of the version that was picked');
  t.end();
});

t.test('a half-open provider gets its probe although others are healthy (C047)', async (t) => {
  const here = new World([provider(P1), provider(P2)]);
  here.break(P1);
  t.strictSame(here.counts(50), { [P2]: 50 });
  await here.clock.advance(10_000);
  const got = here.verdict();
  t.equal(got.name, 'probe');
  t.match(got.words, /crm\.p\.1 is half-open/);
  t.equal(here.pick(), P1, 'as long as nobody is trying it');
  const permit = here.cell(P1).admit(here.clock.now());
  t.strictSame(here.counts(50), { [P2]: 50 }, 'one at a time while others can serve');
  here.cell(P1).end(permit, 'success', 1, here.clock.now());
  near(t, here.counts(400)[P1], 200, 'healed');
});

t.test('a single half-open provider takes as many probes as it has room for, then 3001', async (t) => {
  const here = new World([provider(P1)]);
  here.break(P1);
  t.equal(here.pick(), '3001');
  await here.clock.advance(10_000);
  t.equal(here.pick(), P1);
  here.cell(P1).admit(here.clock.now());
  t.equal(here.pick(), P1, 'nobody else is there');
  here.cell(P1).admit(here.clock.now());
  const got = here.verdict();
  t.equal(got.code, 3001);
  t.match(got.words, /half-open, 2 of 2 probes under way/);
});

t.test('work that may run only once probes only when no repeatable call came for a second', async (t) => {
  const here = new World([provider(P1), provider(P2)]);
  here.break(P1);
  await here.clock.advance(10_000);
  here.cell(P1).admit(here.clock.now());
  t.equal(here.pick({ execution: 'idempotent' }), P2, 'a repeatable call comes by while a probe is under way');
  here.cell(P1).end(here.cell(P1).admit(here.clock.now()), 'ignored', 1, here.clock.now());
  const cell = here.cell(P1);
  t.equal(cell.limitedInFlight, 1);
  const fresh = new World([provider(P1), provider(P2)]);
  fresh.break(P1);
  fresh.pick({ execution: 'keyed' });
  await fresh.clock.advance(10_000);
  t.equal(fresh.pick({ execution: 'once' }), P1, 'no other kind of traffic for ten seconds');
  const mixed = new World([provider(P1), provider(P2)]);
  mixed.break(P1);
  await mixed.clock.advance(9_500);
  mixed.pick({ execution: 'idempotent' });
  await mixed.clock.advance(600);
  t.equal(mixed.pick({ execution: 'once' }), P2, 'a repeatable call came just before, another will come');
  await mixed.clock.advance(400);
  t.equal(mixed.pick({ execution: 'once' }), P1);
  const alone = new World([provider(P1)]);
  alone.break(P1);
  await alone.clock.advance(9_900);
  alone.pick({ execution: 'idempotent' });
  await alone.clock.advance(100);
  t.equal(alone.pick({ execution: 'once' }), P1, 'and at once when nobody else is usable');
});

t.test('a retry is no probe while others are healthy, and a far or backup provider is not probed for its own sake', async (t) => {
  const here = new World(three());
  here.break(P1);
  await here.clock.advance(10_000);
  const call = tried(here.call(), P2);
  here.chooser.choose(call, here.clock.now());
  t.equal((call.chosen as Candidate).provider.agentId, P3);
  const backup = new World([provider(P1, { tier: 'backup' }), provider(P2)]);
  backup.break(P1);
  await backup.clock.advance(10_000);
  t.strictSame(backup.counts(20), { [P2]: 20 });
  backup.break(P2);
  t.equal(backup.pick(), P1, 'when it is needed it is probed');
});

t.test('the view follows the breaker by time alone and by every transition', async (t) => {
  const here = new World([provider(P1), provider(P2)], { breaker: { ...BREAKER, ramp: [1, 100], rampStepMs: 1_000 } });
  here.break(P1);
  t.strictSame(here.counts(10), { [P2]: 10 });
  await here.clock.advance(10_000);
  const now = here.clock.now();
  here.cell(P1).end(here.cell(P1).admit(now), 'success', 1, now);
  t.equal(here.cell(P1).stateName, 'ramping');
  t.ok((here.counts(100)[P1] ?? 0) > 20);
  const permit = here.cell(P1).admit(now);
  t.strictSame(here.counts(50), { [P2]: 50 }, 'the one place of the step is taken');
  here.cell(P1).end(permit, 'success', 1, now);
  t.ok((here.counts(100)[P1] ?? 0) > 20);
});

t.test('when a version has nobody left the next one is asked, and the refusal names all that were', (t) => {
  const here = new World([providerOf(P1, [`${NAME}@2.1.0`]), providerOf(P2, [`${NAME}@2.0.0`]), providerOf(P3, [`${NAME}@1.0.0`])]);
  here.break(P1);
  const call = here.call({}, `${NAME}@>=1`);
  t.strictSame(
    call.lines.map((line) => line.text),
    ['2.1.0', '2.0.0'],
  );
  t.equal(here.chooser.choose(call, 0).reason.code, 3001);
  call.lineIndex = 1;
  t.ok(here.chooser.choose(call, 0).reason.passes);
  here.health.provider(P2).inFlight = 1_000;
  const got = shown(here.chooser.choose(call, 0));
  t.equal(got.code, 2003, 'one broken, one busy');
  t.match(got.words, /crm\.p\.1 \(2\.1\.0\): breaker open .*; crm\.p\.2 \(2\.0\.0\): 1000 calls in flight/);
  t.end();
});

const RULE: Override = {
  name: 'stop-p1',
  action: 'block',
  capability: null,
  provider: P1,
  caller: null,
  to: null,
  data: null,
  cut: false,
  reason: 'wrong prices',
  author: 'ops',
  expiresAtMs: null,
};

t.test('a blocked provider gets nothing until the rule runs out', async (t) => {
  const here = new World([provider(P1), provider(P2)]);
  const until = here.clock.wallMs() + 500;
  here.push([provider(P1), provider(P2)], { overrides: [{ ...RULE, expiresAtMs: until }] });
  t.strictSame(here.counts(50), { [P2]: 50 });
  t.equal(here.pick({}, NAME, { 'reach-pin': P1 }), '2006');
  await here.clock.advance(501);
  t.ok((here.counts(100)[P1] ?? 0) > 20, 'nobody had to remove it');
  here.push([provider(P1)], { overrides: [RULE] });
  const got = here.verdict();
  t.equal(got.code, 2006);
  t.match(got.words, /crm\.p\.1: blocked by override stop-p1: wrong prices \(by ops\)/);
});

t.test('rules reach by capability, caller and pattern', (t) => {
  const providers = [provider(P1), provider(P2)];
  const here = new World(providers);
  const count = (rule: Partial<Override>, parts: Partial<Call> = {}): number => {
    here.push(providers, { overrides: [{ ...RULE, ...rule }] });
    return here.counts(60, parts)[P1] ?? 0;
  };
  t.equal(count({ capability: 'crm.order.*' }), 0);
  t.ok(count({ capability: 'crm.refund.*' }) > 10, 'another capability');
  t.equal(count({ provider: 'role:p' }, {}), 0);
  t.equal(here.pick(), '2006', 'both are of that role');
  t.equal(count({ provider: 'agent:crm.p.1' }), 0);
  t.equal(count({ caller: 'crm.desk.*' }), 0);
  t.ok(count({ caller: 'crm.desk.2' }) > 10, 'another caller');
  t.ok(count({ caller: 'team:web' }) > 10);
  t.equal(count({ caller: 'team:web' }, { principal: new Principal('web.guest.1') }), 0);
  t.equal(count({ caller: 'team:web' }, { principal: new Principal('web.guest.1'), affinityKey: 's2' }), 0, 'with a key as well');
  t.equal(count({ action: 'degrade' }), 0, 'one that is degraded is not chosen either');
  t.end();
});

t.test('a pin reaches its provider or nobody', (t) => {
  const here = new World([
    ...three(),
    provider('crm.p.4', { drain: true }),
    provider('crm.p.5', { weight: 0 }),
    providerOf('crm.q.1', ['crm.other.thing@1.0.0']),
  ]);
  const pin = (agentId: string) => here.verdict({}, NAME, { 'reach-pin': agentId });
  t.equal(pin(P2).name, 'pinned');
  t.equal(here.pick({}, NAME, { 'reach-pin': P2 }), P2);
  t.equal(here.pick({ affinityKey: 'x' }, NAME, { 'reach-pin': P2 }), P2, 'a pin is before affinity');
  t.equal(here.pick({}, NAME, { 'reach-pin': 'crm.p.4' }), 'crm.p.4', 'a drain lets what has begun go on');
  t.equal(pin('crm.p.5').code, 2003, 'weight 0 means none');
  t.equal(pin('crm.p.9').code, 2001);
  t.match(pin('crm.p.9').words, /no such provider is registered/);
  t.equal(pin('crm.q.1').code, 2001);
  t.match(pin('crm.q.1').words, /serves crm\.order\.query in no version/);
  here.break(P1);
  t.equal(pin(P1).code, 3001);
  t.match(pin(P1).words, /breaker open/);
  here.health.provider(P2).inFlight = 1_000;
  t.equal(pin(P2).code, 3003);
  here.health.provider(P3).offline = true;
  t.equal(pin(P3).code, 2003);
  t.ok(here.pick({}, NAME, { 'reach-pin': '' }) !== '2001', 'an empty pin is none');
  t.end();
});

t.test('a pin finds its provider in a later version, and holds for retries', (t) => {
  const here = new World([providerOf(P1, [`${NAME}@2.1.0`]), providerOf(P2, [`${NAME}@2.0.0`])]);
  const call = here.call({}, NAME, { 'reach-pin': P2 });
  const first = here.chooser.choose(call, 0);
  t.equal(first.reason.passes, false);
  t.match(shown(first).words, /does not serve 2\.1\.0; it does serve 2\.0\.0, which is tried next/);
  call.lineIndex++;
  t.ok(here.chooser.choose(call, 0).reason.passes);
  t.equal((call.chosen as Candidate).provider.agentId, P2);
  tried(call, P2);
  t.match(shown(here.chooser.choose(call, 0)).words, /tried already/);
  t.end();
});

t.test("the provider of a fallback step is a pin; the caller's own pin does not follow it, nor an operator's reroute", (t) => {
  const here = new World(three());
  const headers = { 'reach-pin': P1 };
  const capability = here.table.capabilities.get(NAME) ?? null;
  t.equal(here.pick({ pin: P3, fallbackFrom: capability }, NAME, headers), P3);
  here.health.provider(P1).offline = true;
  t.ok(here.verdict({ fallbackFrom: capability }, NAME, headers).code === 0);
  t.ok(here.verdict({ reroutedBy: RULE }, NAME, headers).code === 0);
  t.end();
});

t.test('a tag selector chooses among the providers that carry the tags', (t) => {
  const here = new World([provider(P1, { tags: { model: 'big' } }), provider(P2), provider(P3, { tags: { model: 'big' } })], {
    load: 'round_robin',
  });
  t.strictSame(here.counts(40, { tags: 'model=big' }), { [P1]: 20, [P3]: 20 });
  t.equal(Object.keys(here.counts(40)).length, 3);
  const two = new World(
    ['a', 'b', 'a', 'b'].map((set, i) => provider(`crm.p.${i}`, { tags: { set } })),
    { load: 'round_robin' },
  );
  const used = new Set<string>();
  for (let i = 0; i < 20; i++) used.add(two.pick({ tags: i % 2 === 0 ? 'set=a' : 'set=b' }));
  t.equal(used.size, 4, 'each selector has its own round');
  t.end();
});

t.test('two choosers over one table keep their own memories', (t) => {
  const here = new World([provider(P1), provider(P2)], { load: 'round_robin' });
  const other = new Chooser(here.clock, new SeededRandom(9), here.health, { maxEntries: 10, ttlMs: 1_000 });
  const counts: Record<string, number> = {};
  for (let i = 0; i < 20; i++) {
    const who = here.pick();
    counts[who] = (counts[who] ?? 0) + 1;
    other.choose(here.call(), 0);
  }
  t.strictSame(counts, { [P1]: 10, [P2]: 10 }, 'nobody skips a turn of the other');
  t.end();
});

t.test('explain says of every candidate why, and changes nothing', async (t) => {
  const here = new World(
    [
      provider(P1, { region: 'eu', zone: 'a' }),
      provider(P2, { region: 'us', zone: 'a' }),
      provider(P3, { drain: true }),
      provider('crm.p.4', { region: 'eu', zone: 'a' }),
      providerOf('crm.p.5', [`${NAME}@2.0.0-rc.1`]),
      providerOf('crm.p.6', [`${NAME}@1.0.0`]),
      providerOf('crm.p.7', [`${NAME}@1.9.9`]),
    ],
    { load: 'round_robin', canary: { '1.0.0': 0 } },
  );
  here.break('crm.p.4');
  const call = here.call({ traceId: 'x' });
  const candidates = explainChoice(here.chooser, call, 0);
  const of = (agentId: string) => candidates.find((one) => one.agent_id === agentId);
  t.equal(candidates.length, 7);
  t.strictSame(
    candidates.filter((one) => one.verdict === 'serves').map((one) => one.agent_id),
    [P1],
  );
  t.match(of(P1)?.because, /crm\.p\.1 by round_robin, of 1 usable in this zone/);
  t.match(of(P2)?.because, /farther away/);
  t.equal(of(P3)?.because, 'draining');
  t.match(of('crm.p.4')?.because, /breaker open/);
  t.match(of('crm.p.5')?.because, /none of those this call may use \(2\.0\.0\)/);
  t.match(of('crm.p.6')?.because, /share of 0/);
  t.strictSame(of('crm.p.4')?.numbers, {
    weight: 1,
    weight_now: 0.05,
    distance: 0,
    tier: 'primary',
    in_flight: 0,
    limit: 128,
    error_ratio: 1,
    breaker: 'open',
    affinity: null,
  });
  t.equal((call.chosen as Candidate).provider.agentId, P1);
  t.equal(call.trace.lines().at(-1)?.stage, 'choose');

  const turns = new World(three(), { load: 'round_robin' });
  const twin = new World(three(), { load: 'round_robin' });
  for (let i = 0; i < 9; i++) {
    t.equal(explainChoice(turns.chooser, turns.call(), 0).length, 3);
    const wanted = twin.pick();
    if (i > 0) t.equal((foreseen(turns) as Candidate).provider.agentId, wanted, 'what it says comes true');
    t.equal(turns.pick(), wanted, 'nothing was used up');
  }
  const keyed = turns.call({ affinityKey: 's1' });
  const withKey = explainChoice(turns.chooser, keyed, 0);
  t.equal(turns.chooser.bound, 0, 'no binding');
  const server = withKey.find((one) => one.verdict === 'serves');
  t.strictSame(server?.numbers.affinity, { holds: false, rank: 1 });
  t.equal(turns.pick({ affinityKey: 's1' }), server?.agent_id);
  t.match(
    explainChoice(turns.chooser, turns.call({ affinityKey: 's1' }), 0).find((one) => one.verdict === 'serves'),
    { because: /holds this conversation/, numbers: { affinity: { holds: true } } },
  );
});

function foreseen(here: World): Candidate | null {
  return here.chooser.foresee(here.call(), here.clock.now()).chosen;
}

t.test('explain of a call that would be refused names the refusal and every reason', (t) => {
  const here = new World([provider(P1), provider(P2)]);
  here.break(P1);
  here.health.provider(P2).offline = true;
  const call = here.call({}, `${NAME}@^2`);
  const candidates = explainChoice(here.chooser, call, 0);
  t.strictSame(
    candidates.map((one) => [one.verdict, one.because.slice(0, 12)]),
    [
      ['left_out', 'breaker open'],
      ['left_out', 'offline'],
    ],
  );
  t.equal(call.chosen, null);
  t.equal(call.refusal?.reason.code, 2003);
  const none = here.call({}, `${NAME}@^9`);
  t.strictSame(
    explainChoice(here.chooser, none, 0).map((one) => one.because),
    Array(2).fill('version 2.0.0 is not what was asked for (^9)'),
  );
  const offline = here.call({}, `${NAME}@^2.0`);
  offline.lines = [];
  t.equal(explainChoice(here.chooser, offline, 0)[1]?.because, 'offline', 'what fits, and is not there');
  t.end();
});

t.test(
  'thousands that come and go: a large version is not looked through at every change, and nobody who has gone is picked',
  async (t) => {
    const ids = Array.from({ length: 2_000 }, (_, i) => `crm.p.${i}`);
    const here = new World(ids.map((id) => provider(id)));
    t.equal(here.pick().slice(0, 6), 'crm.p.');
    let looks = 0;
    for (const candidate of here.table.capabilities.get(NAME)?.versions[0]?.candidates ?? []) {
      const { health } = candidate;
      const weightFactor = health.weightFactor.bind(health);
      health.weightFactor = (now) => {
        looks++;
        return weightFactor(now);
      };
    }
    const isOnline = (id: string): boolean => here.health.known(id)?.offline === false;
    const move = (id: string, offline: boolean): void => {
      (here.health.known(id) as { offline: boolean }).offline = offline;
    };
    // Everybody loses the connection and dials in anew within a second, while calls come in between.
    for (let i = 0; i < ids.length; i++) {
      if (i % 2 === 0) await here.clock.advance(1);
      move(ids[i] as string, true);
      if (i >= 100) move(ids[i - 100] as string, false);
      const who = here.pick();
      t.ok(isOnline(who), `${who} is there`);
    }
    const made = looks / (ids.length - 100);
    t.ok(made < 350, `views made for 2,000 calls during 3,900 changes: ${Math.round(made)}`);
    // Everybody at once, and one of them back: the next call finds that out.
    for (const id of ids) move(id, true);
    t.strictSame(here.call().lines, [], 'nobody is there');
    move('crm.p.7', false);
    t.equal(here.pick(), 'crm.p.7', 'back is back, at once where nobody else is');
    move('crm.p.8', false);
    await here.clock.advance(5);
    const both = here.counts(100);
    t.strictSame(Object.keys(both).sort(), ['crm.p.7', 'crm.p.8'], 'and a moment later where somebody is');
  },
);

t.test('a change shows at once: in a small version, and to a pin or a conversation in a large one', (t) => {
  const small = new World(three());
  small.pick();
  (small.health.known(P1) as { offline: boolean }).offline = true;
  t.equal(small.counts(50)[P1], undefined);
  (small.health.known(P1) as { offline: boolean }).offline = false;
  t.ok((small.counts(100)[P1] ?? 0) > 0, 'back without the clock having moved');
  const large = new World(Array.from({ length: 1_000 }, (_, i) => provider(`crm.p.${i}`)));
  const first = large.pick({ affinityKey: 'talk' });
  large.pick();
  (large.health.known(first) as { offline: boolean }).offline = true;
  t.not(large.pick({ affinityKey: 'talk' }), first, 'the holder has gone');
  t.not(large.pick({ affinityKey: 'talk' }), '2003');
  t.equal(large.pick({ pin: first }).length, 4, 'a pin on it is refused');
  (large.health.known(first) as { offline: boolean }).offline = false;
  t.equal(large.pick({ affinityKey: 'talk' }), first, 'and has it again');
  t.equal(large.pick({ pin: first }), first);
  t.end();
});
