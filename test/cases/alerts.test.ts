/** Alerts: what is no event raises none, and one event raises one. On a virtual clock, with traffic as sidecars would tell it. */
import t from 'tap';
import { MAX_OF_KIND } from '../../control-plane/alerts/book.ts';
import { AlertWorld, CAPABILITY, provider, sidecar, type Told } from '../support/alert-world.ts';
import { assertQuiet, takeBase } from '../support/invariants.ts';

t.setTimeout(110_000);
const before = takeBase();
/** An hour of it is the baseline. */
const LEARN_MIN = 75;

/** Four sidecars, 30 calls a minute each, around 100 ms. */
function steady(world: AlertWorld, ms = 100, calls = 5): (second: number) => Told[] {
  return () => ['s1', 's2', 's3', 's4'].map((name) => ({ sidecar: name, times: world.times(calls, ms) }));
}

t.test('C131 alerts neither on no data, nor on one failure, nor thirty times on flapping', async (t) => {
  await t.test('0 calls for 10 min: nothing is raised, and nothing that fires is resolved by it', async (t) => {
    const silent = new AlertWorld();
    await silent.minutes(30);
    t.strictSame([silent.watch.book.alerts, silent.received], [[], []], 'nobody has ever called');

    const world = new AlertWorld();
    await world.minutes(LEARN_MIN, steady(world));
    await world.minutes(10);
    t.strictSame([world.active(), world.received], [[], []], 'ten minutes without a call after an hour with calls');
    await world.minutes(15, steady(world));
    t.strictSame([world.active(), world.received], [[], []], 'nor when they come again');

    await world.minutes(14, steady(world, 300));
    t.strictSame(world.heard(), [`p95_rise ${CAPABILITY} firing`], 'a real rise');
    await world.minutes(10);
    t.strictSame(world.heard(), [`p95_rise ${CAPABILITY} firing`], 'ten minutes of silence are no end of it');
    t.equal(world.active()[0]?.state, 'firing');
    await world.minutes(15, steady(world, 300));
    t.strictSame(world.heard(), [`p95_rise ${CAPABILITY} firing`], 'nor do they begin it anew');
  });

  await t.test('1 call, failed; 2 of 3 failed; one that took a minute: too few to judge', async (t) => {
    for (const [what, calls, failures, ms] of [
      ['one call, failed', 1, 1, 100],
      ['two of three failed', 3, 2, 100],
      ['one slow call', 1, 0, 60_000],
      ['three slow calls', 3, 0, 60_000],
    ] as const) {
      const world = new AlertWorld();
      await world.pass([{ sidecar: 's1', times: world.times(calls, ms), failures }]);
      await world.minutes(20);
      t.strictSame([world.watch.book.alerts, world.received], [[], []], `${what}, where nobody has called before`);
      await world.minutes(LEARN_MIN, steady(world));
      for (let minute = 0; minute < 20; minute++) {
        await world.pass([...steady(world)(0), { sidecar: 's5', times: world.times(calls, ms), failures }]);
        for (let i = 0; i < 5; i++) await world.pass(steady(world)(0));
      }
      t.strictSame([world.watch.book.alerts, world.received], [[], []], `${what} each minute, beside 120 that are well`);
    }
  });

  await t.test('swinging around the limit each 10 s: one alert, not 30', async (t) => {
    const world = new AlertWorld();
    await world.minutes(LEARN_MIN, steady(world));
    // 4 to 6 % of the calls are beyond the limit that 5 % may be beyond.
    await world.minutes(60, (second) => [
      { sidecar: 's1', times: [...world.times(94 + (second % 20 === 0 ? 0 : 2), 80), ...world.times(second % 20 === 0 ? 6 : 4, 2_000)] },
    ]);
    t.ok(world.received.length <= 1, `${world.received.length} notices in an hour: ${world.heard().join(', ')}`);

    const failing = new AlertWorld();
    await failing.minutes(60, (second) => [{ sidecar: 's1', times: failing.times(100, 100), failures: second % 20 === 0 ? 6 : 4 }]);
    t.strictSame(
      [failing.watch.book.alerts, failing.received],
      [[], []],
      '4 to 6 % that fail, each 10 s: shares of errors are a dashboard',
    );

    const flapping = new AlertWorld();
    await flapping.minutes(LEARN_MIN, steady(flapping));
    // Clearly bad and clearly good in turn.
    await flapping.minutes(60, (second) => steady(flapping, second % 20 === 0 ? 400 : 90)(0));
    t.strictSame(flapping.heard(), [`p95_rise ${CAPABILITY} firing`], 'half of all calls are slow for an hour: that is one event');
    await flapping.minutes(20, steady(flapping));
    t.strictSame(flapping.heard(), [`p95_rise ${CAPABILITY} firing`, `p95_rise ${CAPABILITY} resolved`]);
  });

  await t.test('what is measured starts anew: no resolve and no second fire', async (t) => {
    const world = new AlertWorld();
    await world.minutes(LEARN_MIN, steady(world));
    await world.minutes(14, steady(world, 300));
    const fired = world.active()[0];
    t.equal(fired?.state, 'firing');
    for (const name of ['s1', 's2']) world.restart(name);
    await world.minutes(5, steady(world, 300));
    world.changeLeader(true);
    await world.minutes(5, steady(world, 300));
    // The whole control plane: nothing is known of the traffic before.
    world.changeLeader(false);
    await world.minutes(70, steady(world, 300));
    t.strictSame(
      world.heard(),
      [`p95_rise ${CAPABILITY} firing`],
      'half of the fleet, the leader, and the whole control plane were started anew',
    );
    t.equal(world.active()[0]?.id, fired?.id);
    await world.minutes(12, steady(world));
    t.strictSame(world.heard(), [`p95_rise ${CAPABILITY} firing`, `p95_rise ${CAPABILITY} resolved`], 'it ends when it is over');

    const calm = new AlertWorld();
    await calm.minutes(LEARN_MIN, steady(calm));
    for (const name of ['s1', 's2', 's3', 's4']) calm.restart(name);
    calm.changeLeader(false);
    await calm.minutes(30, steady(calm));
    t.strictSame(calm.received, [], 'a restart raises nothing by itself');
  });

  await t.test('the receiver is down for 1 min: it gets everything once, later, and nothing waits for it', async (t) => {
    const world = new AlertWorld();
    await world.minutes(LEARN_MIN, steady(world));
    world.isDown = true;
    await world.minutes(12, steady(world, 300));
    const fired = world.active()[0];
    t.match(fired, { state: 'firing', toldFiring: false }, 'it fires all the same');
    t.strictSame(world.received, []);
    await world.minutes(1, steady(world, 300));
    world.isDown = false;
    await world.minutes(3, steady(world, 300));
    t.strictSame(world.heard(), [`p95_rise ${CAPABILITY} firing`], 'once');
    t.equal(world.received[0]?.id, `e1/alert/${fired?.id}/firing`);
    await world.minutes(10, steady(world, 300));
    t.equal(world.received.length, 1, 'and not again');

    world.isDown = true;
    await world.minutes(14, steady(world));
    t.equal(world.watch.book.alerts[0]?.state, 'resolved');
    world.changeLeader(true);
    world.isDown = false;
    await world.minutes(2, steady(world));
    t.strictSame(
      world.heard(),
      [`p95_rise ${CAPABILITY} firing`, `p95_rise ${CAPABILITY} resolved`],
      'a new leader tells what the old one could not',
    );
  });

  await t.test('a sidecar that is gone with 200 agents: one alert', async (t) => {
    const world = new AlertWorld();
    const agents = Array.from({ length: 200 }, (_, i) => `crm.order.a${i}`);
    world.providers = agents.map((agent) => provider(agent));
    world.sidecars = [sidecar('shop-1', 'online')];
    await world.minutes(5);
    world.providers = agents.map((agent) =>
      provider(agent, { status: 'offline', why: 'lease', offlineSinceMs: world.clock.wallMs(), leaseLeftMs: null }),
    );
    world.sidecars = [sidecar('shop-1', 'offline')];
    await world.minutes(5);
    t.strictSame(world.heard(), ['agent_offline sidecar:shop-1 firing'], 'one, and it lists them');
    t.match(world.received[0]?.detail, /the sidecar shop-1 is gone, with its 200 agents: crm\.order\.a0, .* and 190 more/);
    world.changeLeader(true);
    world.providers = agents.map((agent) => provider(agent));
    world.sidecars = [sidecar('shop-1', 'online')];
    await world.minutes(3);
    t.strictSame(world.heard(), ['agent_offline sidecar:shop-1 firing', 'agent_offline sidecar:shop-1 resolved']);
  });

  await t.test('a breaker that 20 sidecars see: an outage is one, and probes that fail are none', async (t) => {
    const world = new AlertWorld();
    const move =
      (to: 'open' | 'half_open' | 'ramping' | 'closed') =>
      (index: number): Told => ({
        sidecar: `s${index}`,
        times: [],
        breakers: [{ provider: 'crm.order.a', capability: CAPABILITY, to, why: 'half of 20 calls failed' }],
      });
    const everywhere = Array.from({ length: 20 }, (_, i) => i);
    for (const to of ['open', 'half_open', 'open', 'half_open', 'open', 'half_open', 'open', 'half_open', 'ramping', 'closed'] as const) {
      await world.pass(everywhere.map(move(to)));
      await world.minutes(1);
    }
    t.strictSame(world.received, [], 'one outage that twenty sidecars see, with four probes that fail, is one opening');
    for (let outage = 0; outage < 3; outage++)
      for (const to of ['open', 'half_open', 'ramping', 'closed'] as const) {
        await world.pass(everywhere.map(move(to)));
        await world.minutes(1);
      }
    t.strictSame(world.heard(), [`breaker_flapping crm.order.a ${CAPABILITY} firing`], 'the fourth opening within the hour');
    t.match(world.received[0], {
      value: 4,
      limit: 3,
      detail: /opened 4 times in 60 min, as 20 sidecars saw it; last: half of 20 calls failed/,
    });
  });

  await t.test('an outage in which all ends at once is over: that it works again is no rise', async (t) => {
    for (const [what, minutes, calls, more] of [
      ['nobody is left to ask for 40 min', 40, 5, { provider: '', failures: 5 }],
      ['an order blocks it for 22 min, and callers ask six times as often', 22, 30, { provider: '', failures: 30 }],
      ['its provider fails at once for 40 min', 40, 5, { failures: 5 }],
      ['a fallback answers for 40 min', 40, 5, { provider: 'crm.cache.a', degraded: 5 }],
    ] as const) {
      const world = new AlertWorld();
      await world.minutes(LEARN_MIN, steady(world));
      await world.minutes(minutes, () => steady(world, 0.2, calls)(0).map((told) => ({ ...told, ...more })));
      await world.minutes(90, steady(world));
      t.strictSame([world.active(), world.received], [[], []], what);
      await world.minutes(14, steady(world, 300));
      t.strictSame(world.heard(), [`p95_rise ${CAPABILITY} firing`], `${what}: a real rise after it is seen`);
      await world.minutes(20, () => steady(world, 0.2, calls)(0).map((told) => ({ ...told, ...more })));
      t.strictSame(world.heard(), [`p95_rise ${CAPABILITY} firing`], `${what}: that it does so once more is no end of the rise`);
      await world.minutes(14, steady(world));
      t.strictSame(world.heard(), [`p95_rise ${CAPABILITY} firing`, `p95_rise ${CAPABILITY} resolved`], 'that it is fast again is one');
    }
  });

  await t.test(
    'the breakers of 80 agents at once: bounded alerts, one about the rest, nothing else is hidden, and all of them end',
    async (t) => {
      const world = new AlertWorld();
      const all = (from: 'closed' | 'open', to: 'closed' | 'open'): Told[] => [
        {
          sidecar: 's1',
          times: [],
          breakers: Array.from({ length: 80 }, (_, i) => ({ provider: `crm.order.a${i}`, capability: CAPABILITY, from, to, why: 'x' })),
        },
      ];
      for (let i = 0; i < 4; i++) {
        await world.pass(all('closed', 'open'));
        await world.pass(all('open', 'closed'));
      }
      world.providers = [
        provider('crm.order.b', { status: 'offline', why: 'lease', offlineSinceMs: world.clock.wallMs(), leaseLeftMs: null }),
      ];
      await world.minutes(2);
      const firing = world.heard();
      t.equal(firing.length, MAX_OF_KIND + 2);
      t.ok(firing.includes('agent_offline crm.order.b firing'), 'what explains it');
      t.match(
        world.received.find(({ subject }) => subject === 'more'),
        { alert: 'breaker_flapping', state: 'firing', value: 80 - MAX_OF_KIND },
      );
      world.watch.silence({
        kind: null,
        subject: '*',
        untilMs: world.clock.wallMs() + 7_200_000,
        reason: 'known',
        author: 'a',
        createdMs: 0,
      });
      world.providers = [provider('crm.order.b')];
      await world.minutes(75);
      t.strictSame(
        world.heard().slice(firing.length).sort(),
        firing.map((words) => words.replace('firing', 'resolved')).sort(),
        'the end of each that was told of, also in a silence',
      );
      t.strictSame(world.active(), []);
    },
  );

  await t.test('a queue that breathes is no backlog', async (t) => {
    const world = new AlertWorld();
    const queue = (waiting: number, taken: number): void => {
      world.backlog = {
        atMs: world.clock.now(),
        lists: [
          { subject: 'pool:p1', capability: CAPABILITY, name: 'the queue of crm.order.query', waiting, taken, isParked: false, look: '' },
        ],
      };
    };
    for (let i = 0; i < 360; i++) {
      queue(i % 30 < 15 ? (i % 15) * 100 : (15 - (i % 15)) * 100, i);
      await world.pass();
    }
    t.strictSame(world.received, [], 'a queue that fills and empties for an hour');
    for (let i = 0; i < 90; i++) {
      queue(500 + i * 20, 1_000 + i);
      await world.pass();
    }
    t.strictSame(world.heard(), ['backlog pool:p1 firing'], 'one that only grows');
    for (let i = 0; i < 120; i++) {
      queue(Math.max(0, 2_300 - i * 40), 2_000 + i);
      await world.pass();
    }
    t.strictSame(world.heard(), ['backlog pool:p1 firing', 'backlog pool:p1 resolved'], 'draining resolves it');
  });

  await assertQuiet(t, { before });
});
