import t from 'tap';
import { createLog } from '../../../base/log.ts';
import { VirtualClock } from '../../../base/virtual-clock.ts';
import type { Report } from '../../../proto/wire/registry.ts';
import { bucketMs, type ShiftCount, TIME_BUCKETS, timeBucket } from '../../../proto/wire/shifts.ts';
import { Registry } from '../../../control-plane/registry/registry.ts';
import { Figures } from '../../../control-plane/shifts/figures.ts';
import { decide, judge, type Side } from '../../../control-plane/shifts/guard.ts';
import { sharesFor, weightsFor } from '../../../control-plane/shifts/placing.ts';
import { readShift } from '../../../control-plane/shifts/reading.ts';
import { ShiftRunner } from '../../../control-plane/shifts/runner.ts';
import type { Guard, Shift } from '../../../control-plane/shifts/shift.ts';
import type { ShiftOrder } from '../../../control-plane/shifts/desk.ts';
import { readShifted } from '../../../control-plane/registry/measures.ts';
import { agent, arrive, hello } from '../../support/registrations.ts';

const NAME = 'crm.order.query';
const GUARD: Guard = { errors: 0.05, p95: 0.4, minCalls: 50, windowMs: 10_000 };

const side = (calls: number, errors: number, p95Ms: number | null = 100): Side => ({ calls, errors, p95Ms });

t.test('durations fall into buckets that are 19 % wide', async (t) => {
  for (const ms of [0, 0.2, 1, 3.7, 50, 999, 60_000]) {
    const upper = bucketMs(timeBucket(ms));
    t.ok(ms <= upper + 1e-9 && (ms < 0.25 || upper < ms * 1.2), `${ms} ≤ ${upper}`);
  }
  t.equal(timeBucket(1e9), TIME_BUCKETS - 1);
  t.equal(timeBucket(Number.NaN), 0);
});

t.test('the guard', async (t) => {
  const cases: readonly (readonly [string, Side, Side, 'good' | 'wait' | 'bad'])[] = [
    ['enough attempts, few errors', side(100, 2), side(400, 4), 'good'],
    ['enough attempts, too many errors', side(100, 8), side(400, 4), 'bad'],
    ['the old side fails alike: going back would not help', side(100, 20), side(400, 80), 'good'],
    ['the old side fails too, but far less', side(100, 20), side(400, 40), 'bad'],
    ['too few attempts to judge', side(20, 1), side(400, 0), 'wait'],
    ['too few attempts, but good ones could not make up for it any more', side(20, 12), side(400, 0), 'bad'],
    ['one or two failures are chance', side(50, 2, 100), side(50, 0), 'good'],
    ['nobody else to compare with: the limit alone counts', side(100, 8), side(0, 0, null), 'bad'],
    ['too few of the old side to compare with', side(100, 8), side(10, 5), 'bad'],
    ['slower by half', side(100, 0, 150), side(400, 0, 100), 'bad'],
    ['slower, but not by so much', side(100, 0, 130), side(400, 0, 100), 'good'],
    ['slower by half of next to nothing', side(100, 0, 1.2), side(400, 0, 0.5), 'good'],
    ['nothing at all', side(0, 0, null), side(0, 0, null), 'wait'],
  ];
  for (const [what, fresh, old, kind] of cases) t.equal(judge(GUARD, fresh, old).kind, kind, what);
  t.match(judge(GUARD, side(100, 8), side(400, 4)), {
    why: '8 of 100 attempts failed within 10 s, above 5 %; of the others 4 of 400 failed',
  });
  t.equal(
    judge(GUARD, side(100, 0, 150), side(0, 0, null), 100).kind,
    'bad',
    'at all of the traffic the last known P95 of the old side counts',
  );
  t.equal(judge({ ...GUARD, p95: null }, side(100, 0, 900), side(400, 0, 100)).kind, 'good', 'what is not guarded is not looked at');
});

function shiftOf(more: Partial<Shift> = {}): Shift {
  return {
    id: 's1',
    capability: NAME,
    target: { kind: 'version', name: '2.1.0' },
    steps: [0.05, 0.5, 1],
    step: 0,
    everyMs: 60_000,
    guard: GUARD,
    before: { shares: null, weights: {} },
    set: { shares: null, weights: {} },
    status: 'running',
    author: 'ada',
    reason: '',
    startedAtMs: 0,
    stepAtMs: 0,
    endedAtMs: null,
    why: '',
    ...more,
  };
}

t.test('what follows', async (t) => {
  const good = side(100, 0);
  const few = side(10, 0);
  const old = side(400, 0);
  t.match(decide(shiftOf(), good, old, null, 30_000), { kind: 'stay', why: 'the next step is due in 30 s' });
  t.match(decide(shiftOf(), good, old, null, 60_000), { kind: 'advance' });
  t.match(decide(shiftOf({ step: 2 }), good, old, null, 60_000), { kind: 'finish' });
  t.match(decide(shiftOf(), few, old, null, 600_000), { kind: 'stay', why: /waits: 10 of the 50 attempts/ }, 'nothing goes on unseen');
  t.match(decide(shiftOf({ guard: null }), few, old, null, 60_000), { kind: 'advance' }, 'without a guard time alone counts');
  t.match(decide(shiftOf({ everyMs: 0, steps: [0.2] }), good, old, null, 1e12), { kind: 'stay', why: /by an operator/ });
  t.match(decide(shiftOf({ everyMs: 0, steps: [0.2] }), side(100, 50), old, null, 5), { kind: 'roll_back' });
});

t.test('the window slides, and what is old is forgotten', async (t) => {
  const figures = new Figures(1_000);
  const count = (calls: number, errors: number, ms: number): ShiftCount => ({
    capability: NAME,
    version: '2.1.0',
    provider: 'crm.order.a',
    calls,
    errors,
    times: [timeBucket(ms), calls],
  });
  figures.add(count(95, 0, 10), true, 0);
  figures.add(count(5, 5, 500), true, 500);
  figures.add(count(7, 0, 1), false, 500);
  t.match(figures.side(true, 900), { calls: 100, errors: 5 });
  t.ok((figures.side(true, 900).p95Ms as number) < 12, 'the upper end of the bucket in which the P95 lies');
  t.match(figures.side(true, 1_200), { calls: 5, errors: 5 });
  t.match(figures.side(false, 1_200), { calls: 7, errors: 0 });
  t.same(figures.side(true, 2_000), { calls: 0, errors: 0, p95Ms: null });
});

t.test('shares and weights', async (t) => {
  const versions = ['1.9.0', '2.0.0', '2.1.0'];
  t.same(sharesFor(null, versions, '2.1.0', 0.2), { '2.1.0': 0.2 }, 'what is not named goes to the newest of them, as always');
  t.same(sharesFor({ '2.0.0': 0.6, '1.9.0': 0.4 }, versions, '2.1.0', 0.5), { '2.1.0': 0.5, '2.0.0': 0.3, '1.9.0': 0.2 });
  t.same(
    sharesFor({ '2.1.0': 0.1, '1.9.0': 0.45 }, versions, '2.1.0', 0.2),
    { '2.1.0': 0.2, '1.9.0': 0.4 },
    '2.0.0 keeps its part of the rest',
  );
  t.same(sharesFor({ '2.0.0': 1 }, versions, '2.1.0', 1), { '2.1.0': 1, '2.0.0': 0 });
  for (const share of [0.05, 1 / 3, 0.9, 1]) {
    const sum = Object.values(sharesFor({ '2.0.0': 1 / 3, '1.9.0': 2 / 3 }, versions, '2.1.0', share)).reduce((a, b) => a + b, 0);
    t.ok(sum <= 1 + 1e-9, `${sum}`);
  }
  const others = [
    { agent: 'crm.order.b', weight: 1 },
    { agent: 'crm.order.c', weight: 2 },
  ];
  t.same(weightsFor({ agent: 'crm.order.a', weight: 1 }, others, 0.25), { 'crm.order.a': 1 });
  t.same(weightsFor({ agent: 'crm.order.a', weight: 1 }, others, 1), { 'crm.order.a': 1, 'crm.order.b': 0, 'crm.order.c': 0 });
});

t.test('an order is read in words', async (t) => {
  t.match(readShift({ capability: NAME, version: '2.1.0', share: '20%' }, 'ada'), {
    steps: [0.2],
    everyMs: 0,
    guard: { errors: 0.05, minCalls: 50 },
  });
  t.match(readShift({ capability: NAME, version: '2.1.0', share: '20%', guard: null }, 'ada'), { guard: null });
  t.match(
    readShift({ capability: NAME, provider: 'crm.order.b', steps: ['5%', 0.5, '100%'], every: '5m', guard: { p95: '140%' } }, 'ada'),
    {
      target: { kind: 'provider' },
      steps: [0.05, 0.5, 1],
      everyMs: 300_000,
      guard: { errors: null, p95: 1.4 },
    },
  );
  for (const [order, part] of [
    [{ version: '2.1.0', share: '20%' }, /capability is missing/],
    [{ capability: NAME, share: '20%' }, /either a version or a provider/],
    [{ capability: NAME, version: '^2', share: '20%' }, /version/],
    [{ capability: NAME, version: '2.1.0' }, /either a share/],
    [{ capability: NAME, version: '2.1.0', share: '0%' }, /above 0/],
    [{ capability: NAME, version: '2.1.0', steps: ['20%', '5%'], every: '1m' }, /steps grow/],
    [{ capability: NAME, version: '2.1.0', steps: ['5%', '20%'] }, /steps need every/],
    [{ capability: NAME, version: '2.1.0', share: '20%', guard: { p99: '5%' } }, /unknown key.*p99/],
    [{ capability: NAME, version: '2.1.0', share: '20%', guard: { window: '10ms' } }, /guard.window/],
    [{ capability: NAME, version: '2.1.0', share: '20%', guard: { errors: 7 } }, /guard.errors/],
  ] as const)
    t.match(readShift(order, 'ada'), part);
});

t.test('counts that cannot be meant are left out', async (t) => {
  t.same(
    readShifted([null, { capability: 1 }, { capability: NAME, version: '2.1.0', provider: 'a', calls: 3, errors: 9, times: [1, -2, 'x'] }]),
    [{ capability: NAME, version: '2.1.0', provider: 'a', calls: 3, errors: 3, times: [1, 0, 0] }],
  );
});

/** A registry with two versions of one capability, as its leader has it. */
class Reign {
  readonly clock: VirtualClock;
  readonly registry: Registry;
  readonly runner: ShiftRunner;
  readonly told: string[] = [];
  readonly notices: unknown[] = [];
  readonly audited: { action: string; reason?: string }[] = [];

  constructor(clock: VirtualClock, before: Registry | null = null) {
    this.clock = clock;
    this.registry = new Registry(clock, { heartbeatMs: 45_000, offlineMs: 1e9 });
    const sidecars = [
      hello('s1', [
        agent('crm.order.a', [`${NAME}@2.0.0`]),
        agent('crm.order.b', [`${NAME}@2.1.0`]),
        agent('crm.order.c', [`${NAME}@2.0.0`]),
      ]),
    ];
    if (before === null) {
      this.registry.load('e1', [], new Registry(clock).operators());
      for (const each of sidecars) arrive(this.registry, each);
    } else {
      // What is stored, as the next leader reads it: through JSON.
      const stored = JSON.parse(JSON.stringify([before.registration('s1'), before.operators()]));
      this.registry.load('e1', [stored[0]], stored[1]);
    }
    this.runner = new ShiftRunner({
      clock,
      logger: createLog({ level: 'silent', to: 'stderr', service: 'test' }).logger,
      audit: { record: (said) => void this.audited.push(said) },
      registry: () => this.registry,
      commit: async () => undefined,
      onEvent: ({ words }) => void this.told.push(words),
      notify: (notice) => void this.notices.push(notice),
    });
  }

  start(order: Partial<ShiftOrder>): string | null {
    const whole: ShiftOrder = {
      capability: NAME,
      target: { kind: 'version', name: '2.1.0' },
      steps: [0.05, 0.5, 1],
      everyMs: 10_000,
      guard: { errors: 0.05, p95: null, minCalls: 20, windowMs: 5_000 },
      reason: 'a test',
      author: 'ada',
      ...order,
    };
    return this.registry.shift((desk) => desk.start(whole)).problem;
  }

  /** One second of traffic, reported. @param errors of the new side and of the old one, per cent */
  async second(errors: readonly [number, number], calls: readonly [number, number] = [20, 100]): Promise<void> {
    const count = (version: string, provider: string, i: 0 | 1): ShiftCount => ({
      capability: NAME,
      version,
      provider,
      calls: calls[i],
      errors: Math.round((calls[i] * errors[i]) / 100),
      times: [timeBucket(20), calls[i]],
    });
    this.runner.report({ shifted: [count('2.1.0', 'crm.order.b', 0), count('2.0.0', 'crm.order.a', 1)] } as unknown as Report);
    for (let i = 0; i < 4; i++) {
      await this.clock.advance(250);
      this.runner.tick();
    }
  }

  get shift(): Shift {
    return this.registry.shiftList()[0] as Shift;
  }
  get shares(): unknown {
    return this.registry.operators().canary.canary[NAME] ?? null;
  }
}

t.test('a shift', async (t) => {
  t.test('goes on step by step while all is well, and is finished', async (t) => {
    const reign = new Reign(new VirtualClock());
    t.equal(reign.start({}), null);
    t.same(reign.registry.shifts().watched, [NAME], 'sidecars are told to measure');
    t.same(reign.shares, { '2.1.0': 0.05 });
    for (let i = 0; i < 11; i++) await reign.second([0, 0]);
    t.same(reign.shares, { '2.1.0': 0.5 });
    for (let i = 0; i < 22; i++) await reign.second([1, 1], [100, 50]);
    t.match(reign.shift, { status: 'finished', step: 2 });
    t.same(reign.shares, { '2.1.0': 1 });
    t.same(reign.registry.shifts().watched, [], 'and nothing is measured any more');
    t.same(
      reign.audited.map(({ action }) => action),
      ['shift.advanced', 'shift.advanced', 'shift.finished'],
    );
  });
  t.test('is taken back by itself when errors rise, with what was before it, a reason and a notice', async (t) => {
    const reign = new Reign(new VirtualClock());
    t.equal(reign.registry.shiftCanary(NAME, { '2.1.0': 0.01, '2.0.0': 0.99 }).problem, null);
    t.equal(reign.start({}), null);
    t.same(reign.shares, { '2.1.0': 0.05, '2.0.0': 0.95 });
    await reign.second([0, 0]);
    await reign.second([0, 0]);
    await reign.second([40, 1]);
    t.match(reign.shift, { status: 'rolled_back', why: /of 60 attempts failed within 5 s, above 5 %; of the others 1 of 300 failed/ });
    t.same(reign.shares, { '2.1.0': 0.01, '2.0.0': 0.99 });
    t.match(reign.told, [/shift s1 of crm\.order\.query to 2\.1\.0: rolled back; 8 of 60 attempts failed/]);
    t.match(reign.audited, [{ action: 'shift.rolled_back', subject: 's1' }]);
    t.match(reign.notices, [{ id: 'e1/shift/s1', kind: 'shift', outcome: 'rolled_back', hint: 'reachctl shift show s1' }]);
  });
  t.test('stays where it is while too little is known', async (t) => {
    const reign = new Reign(new VirtualClock());
    reign.start({});
    for (let i = 0; i < 60; i++) await reign.second([0, 0], [1, 50]);
    t.match(reign.shift, { status: 'running', step: 0 });
    t.match(reign.runner.figures(reign.shift)?.why, /the next step waits: [45] of the 20 attempts/);
  });
  t.test('survives a change of leader: the next one goes on with it and knows what to put back', async (t) => {
    const clock = new VirtualClock();
    const first = new Reign(clock);
    first.start({});
    for (let i = 0; i < 5; i++) await first.second([0, 0]);
    const second = new Reign(clock, first.registry);
    t.match(second.shift, { id: 's1', status: 'running', step: 0, author: 'ada' });
    for (let i = 0; i < 6; i++) await second.second([0, 0]);
    t.same(second.shares, { '2.1.0': 0.5 }, 'the step ends when it would have ended');
    const third = new Reign(clock, second.registry);
    await third.second([50, 0], [50, 50]);
    t.match(third.shift, { status: 'rolled_back' });
    t.same(third.shares, { '2.1.0': 0 }, 'before the shift it had everything, being the newest: it is not given that back');
    t.match(third.shift.why, /it gets nothing now/);
  });
  t.test('is over when somebody sets shares by hand: a person counts more', async (t) => {
    const reign = new Reign(new VirtualClock());
    reign.start({});
    reign.registry.shiftCanary(NAME, { '2.1.0': 0.3 });
    await reign.second([100, 0]);
    t.match(reign.shift, { status: 'overtaken' });
    t.same(reign.shares, { '2.1.0': 0.3 }, 'which stay');
    t.equal(reign.start({}), null, 'and another may begin');
  });
  t.test('is paused, resumed, finished and aborted by operators', async (t) => {
    const reign = new Reign(new VirtualClock());
    const say = (act: 'pause' | 'resume') => reign.registry.shift((desk) => desk[act]('s1')).problem;
    reign.start({});
    t.equal(say('pause'), null);
    t.match(say('pause'), /paused already/);
    for (let i = 0; i < 20; i++) await reign.second([100, 0]);
    t.match(reign.shift, { status: 'paused', step: 0 }, 'nothing is judged');
    t.equal(say('resume'), null);
    await reign.second([0, 0]);
    t.equal(reign.registry.shift((desk) => desk.finish('s1', true, 'looks fine')).problem, null);
    t.same(reign.shares, { '2.1.0': 1 });
    t.match(reign.registry.shift((desk) => desk.abort('s1', '')).problem, /is over: finished/);
    reign.start({ steps: [0.2], everyMs: 0 });
    t.equal(reign.registry.shift((desk) => desk.abort('s2', 'no')).problem, null);
    t.same(reign.shares, { '2.1.0': 1 });
    t.match(reign.registry.shift((desk) => desk.pause('s9')).problem, /no shift is called s9/);
  });
  t.test('between providers goes by weight, and their weights come back', async (t) => {
    const reign = new Reign(new VirtualClock());
    const weights = () => {
      const { providers } = reign.registry.operators().providers;
      return [providers['crm.order.a']?.weight ?? null, providers['crm.order.c']?.weight ?? null];
    };
    t.equal(reign.start({ target: { kind: 'provider', name: 'crm.order.c' }, steps: [0.25, 1], everyMs: 60_000 }), null);
    t.same(weights(), [null, Math.round(1e6 / 3) / 1e6], 'a quarter beside one of weight 1; another version has no part in it');
    t.equal(reign.registry.shift((desk) => desk.advance('s1')).problem, null);
    t.same(weights(), [0, Math.round(1e6 / 3) / 1e6]);
    t.equal(reign.registry.shift((desk) => desk.abort('s1', '')).problem, null);
    t.same(weights(), [null, null]);
    t.match(reign.start({ target: { kind: 'provider', name: 'crm.order.b' } }), /has nobody beside it/);
    t.match(
      reign.start({ target: { kind: 'provider', name: 'crm.order.zz' } }),
      /no provider of crm\.order\.query is called crm\.order\.zz/,
    );
  });
  t.test('gives back also what came and lost its part meanwhile, and goes on without those who have left', async (t) => {
    const reign = new Reign(new VirtualClock());
    const weight = (id: string) => reign.registry.operators().providers.providers[`crm.order.${id}`]?.weight ?? null;
    arrive(reign.registry, hello('s2', [agent('crm.order.d', [`${NAME}@2.0.0`], 's2')]));
    t.equal(reign.start({ target: { kind: 'provider', name: 'crm.order.c' }, steps: [0.25, 1], everyMs: 60_000 }), null);
    arrive(reign.registry, hello('s2', [agent('crm.order.e', [`${NAME}@2.0.0`], 's2')]));
    t.equal(reign.registry.shift((desk) => desk.advance('s1')).problem, null, 'd has left');
    t.same([weight('a'), weight('e')], [0, 0]);
    await reign.second([0, 0]);
    t.match(reign.shift, { status: 'running', step: 1 }, 'nobody has overtaken it');
    t.equal(reign.registry.shift((desk) => desk.abort('s1', '')).problem, null);
    t.same([weight('a'), weight('c'), weight('e')], [null, null, null]);
  });
  t.test('does not begin where it could not be right', async (t) => {
    const reign = new Reign(new VirtualClock());
    t.match(reign.start({ capability: 'crm.order.qeury' }), /did you mean crm\.order\.query/);
    t.match(reign.start({ target: { kind: 'version', name: '9.0.0' } }), /has no version 9\.0\.0; it has 2\.0\.0, 2\.1\.0/);
    t.equal(reign.start({}), null);
    t.match(reign.start({}), /is being shifted already \(s1, by ada\)/);
    t.equal(reign.registry.shiftList().length, 1);
  });
});
