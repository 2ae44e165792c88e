import { createHmac } from 'node:crypto';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import t from 'tap';
import { realClock } from '../../../base/clock.ts';
import { createLog } from '../../../base/log.ts';
import { SeededRandom } from '../../../base/random.ts';
import { Sketch } from '../../../base/sketch.ts';
import { type Alert, ALERT_KINDS, fits, type Observation, type Patience, type StoredAlerts } from '../../../control-plane/alerts/alert.ts';
import { AlertBook, MAX_OF_KIND, MAX_OWED, MAX_RESOLVED, MAX_SILENCES } from '../../../control-plane/alerts/book.ts';
import { DEFAULT_ALERTS, limitsFor } from '../../../control-plane/alerts/config.ts';
import { judgeGrowth, type Seen, type Still } from '../../../control-plane/alerts/growth.ts';
import { goneAgents } from '../../../control-plane/alerts/offline.ts';
import { OfflineTimes } from '../../../control-plane/alerts/offline-times.ts';
import { type Move, openingsOf } from '../../../control-plane/alerts/openings.ts';
import { baselineOf, judgeRise, type MinuteTimes, minutesNeeded } from '../../../control-plane/alerts/rise.ts';
import { readStored } from '../../../control-plane/alerts/stored.ts';
import { alertRoutes, type AlertsAnswer, alertsOf, type SilenceAnswer } from '../../../control-plane/api/alerts.ts';
import type { Plane } from '../../../control-plane/api/plane.ts';
import { Notices } from '../../../control-plane/messages/notices.ts';
import type { MessageParts } from '../../../control-plane/messages/parts.ts';
import { Mirror } from '../../../control-plane/push/mirror.ts';
import { isRefused, type Reply } from '../../../control-plane/api/route.ts';
import { readControlPlaneConfig } from '../../../control-plane/config.ts';
import { Tail } from '../../../proto/wire/subjects.ts';
import { contractLine, mockLine } from '../../support/offline.ts';
import { VirtualFleet } from '../../support/virtual-plane.ts';
import { AlertWorld, CAPABILITY, provider, sidecar, type Told } from '../../support/alert-world.ts';

const RISE = DEFAULT_ALERTS.p95;
const NEEDED = minutesNeeded(RISE);
const MIN = 60_000;

/** Durations of one call, by what distribution they have. */
function distributions(random: SeededRandom): Readonly<Record<string, () => number>> {
  const gauss = (): number => Math.sqrt(-2 * Math.log(1 - random.next())) * Math.cos(2 * Math.PI * random.next());
  return {
    'all alike': () => 100,
    'log-normal, narrow': () => 100 * Math.exp(0.2 * gauss()),
    'log-normal, as services are': () => 100 * Math.exp(0.7 * gauss()),
    exponential: () => -100 * Math.log(1 - random.next()),
    'with 4 % that wait': () => (random.next() < 0.04 ? 1_000 + 200 * random.next() : 50 + 10 * random.next()),
  };
}

function minute(count: number, each: () => number, factor = 1): MinuteTimes {
  if (count === 0) return { times: null, unusual: 0 };
  const times = new Sketch();
  for (let i = 0; i < count; i++) times.add(each() * factor);
  return { times, unusual: 0 };
}

t.test('the P95 of a capability', async (t) => {
  await t.test('a day of one distribution never counts as risen, however many or few the calls', async (t) => {
    for (const calls of [1, 8, 40, 200]) {
      const random = new SeededRandom(calls);
      for (const [name, each] of Object.entries(distributions(random))) {
        const minutes: MinuteTimes[] = [];
        let risen = 0;
        for (let i = 0; i < 1_440; i++) {
          minutes.push(minute(Math.floor(random.next() * 2 * calls), each));
          if (minutes.length > NEEDED) minutes.shift();
          if (judgeRise(minutes, RISE, null).kind === 'risen') risen++;
        }
        t.equal(risen, 0, `${name}, about ${calls} calls a minute`);
      }
    }
  });

  await t.test('doubled and held for 11 min it has risen, with enough calls, and never before 10', async (t) => {
    for (const [name, each] of Object.entries(distributions(new SeededRandom(5)))) {
      const minutes = Array.from({ length: NEEDED }, () => minute(200, each));
      const at: string[] = [];
      for (let i = 1; i <= 12; i++) {
        minutes.push(minute(200, each, 2));
        at.push(judgeRise(minutes.slice(-NEEDED), RISE, null).kind);
      }
      t.notOk(at.slice(0, 9).includes('risen'), `${name}: ${at.join(' ')}`);
      t.equal(at[10], 'risen', name);
    }
  });

  await t.test('what it is held against, and what changes nothing', async (t) => {
    const each = distributions(new SeededRandom(9))['log-normal, narrow'] as () => number;
    const hour = (calls: number, factor = 1): MinuteTimes[] => Array.from({ length: 60 }, () => minute(calls, each, factor));
    const eleven = (calls: number, factor: number): MinuteTimes[] => Array.from({ length: 11 }, () => minute(calls, each, factor));
    const kind = (minutes: MinuteTimes[], heldMs: number | null = null): string => judgeRise(minutes, RISE, heldMs).kind;
    t.equal(kind([...hour(60), ...eleven(60, 2)]), 'risen');
    t.equal(kind([...hour(60), ...eleven(120, 1)]), 'calm', 'traffic that doubles');
    t.equal(kind([...hour(60), ...eleven(60, 1.3)]), 'between', '30 % are not 40 %');
    t.equal(kind([...hour(60), ...eleven(0, 1)]), 'unknown', 'silence');
    t.equal(kind([...hour(0), ...eleven(60, 2)]), 'unknown', 'a capability that has just appeared');
    t.equal(kind([...hour(60), ...eleven(60, 2).with(0, minute(60, each))]), 'rising', 'ten of eleven minutes');
    t.equal(
      kind([...hour(60), ...eleven(60, 1).with(4, minute(2_000, each, 10))]),
      'calm',
      'one bad minute with more calls than all others',
    );
    t.not(
      kind([...hour(60), ...Array.from({ length: 10 }, () => minute(0, each)), minute(500, each, 3)]),
      'risen',
      'calls in one minute only',
    );
    const bad = [...hour(60).slice(0, 40), ...Array.from({ length: 20 }, () => minute(60, each, 4)), ...eleven(60, 2)];
    t.equal(kind(bad), 'risen', 'an incident of twenty minutes in the baseline hides nothing');
    t.equal(kind([...hour(60, 2), ...eleven(60, 2)]), 'calm', 'an hour of it is its own baseline');
    t.equal(kind([...hour(60, 2), ...eleven(60, 2)], 139), 'risen', 'but an alert that lasts keeps the one it began with');
    t.equal(kind([...hour(60, 0.01), ...eleven(60, 0.03)]), 'calm', 'of 4 ms nobody notices that they were 1.5');
    t.equal(judgeRise([...hour(60, 0.01), ...eleven(60, 0.03)], { ...RISE, floorMs: 0 }, null).kind, 'risen', 'unless it is asked for');
    t.equal(baselineOf(hour(1).slice(0, 50), 100), null, 'too few calls for a baseline');
    const otherwise = (minutes: MinuteTimes[], unusual: number): MinuteTimes[] => minutes.map((each) => ({ ...each, unusual }));
    const outage = [...hour(60).slice(0, 20), ...otherwise(hour(60, 0.05).slice(0, 40), 0.9)];
    t.equal(kind([...outage, ...eleven(60, 1)]), 'calm', 'forty minutes in which most failed at once are not held against what came after');
    t.equal(kind([...outage, ...eleven(60, 2)]), 'risen', 'nor do they hide a rise');
    t.equal(kind([...otherwise(hour(60, 0.05), 0.9), ...eleven(60, 1)]), 'unknown', 'with nothing else to hold it against nobody can tell');
    t.equal(kind([...otherwise(hour(60), 0.4), ...otherwise(eleven(60, 2), 0.4)]), 'risen', 'what always fails so often is as usual');
    t.equal(kind([...hour(60), ...otherwise(eleven(60, 2), 0.9)]), 'risen', 'calls that fail late are slow calls');
  });
});

t.test('openings of a breaker', async (t) => {
  const path = (host: string, startMs: number, stepMs: number, ...to: Move['to'][]): Move[] =>
    to.map((each, i) => ({ sidecar: host, instance: 'i', to: each, atMs: startMs + i * stepMs }));
  const once: Move['to'][] = ['open', 'half_open', 'ramping', 'closed'];
  const cases: readonly (readonly [string, Move[], number])[] = [
    ['nothing', [], 0],
    ['four, one after another', path('a', 0, 10_000, ...once, ...once, ...once, ...once), 4],
    [
      'probes that fail are the same outage',
      path('a', 0, 10_000, 'open', 'half_open', 'open', 'half_open', 'open', 'half_open', 'open'),
      1,
    ],
    [
      'a ramp that breaks off is the same outage',
      path('a', 0, 10_000, 'open', 'half_open', 'ramping', 'open', 'half_open', 'ramping', 'closed'),
      1,
    ],
    ['fifty sidecars see one outage', Array.from({ length: 50 }, (_, i) => path(`s${i}`, i * 300, 20_000, ...once)).flat(), 1],
    ['one sees it while it goes on at another', [...path('a', 0, 100_000, ...once), ...path('b', 120_000, 10_000, ...once)], 1],
    ['two outages, each seen by another sidecar', [...path('a', 0, 10_000, ...once), ...path('b', 600_000, 10_000, ...once)], 2],
    [
      'one flaps four times while another stays open',
      [...path('a', 0, 1_000_000, 'open'), ...path('b', 5_000, 10_000, ...once, ...once, ...once, ...once)],
      4,
    ],
    [
      'half of the fleet is started anew within an outage',
      [
        ...path('a', 0, 60_000, 'open', 'half_open'),
        ...path('b', 1_000, 60_000, 'open'),
        { sidecar: 'b', instance: 'j', to: 'open', atMs: 70_000 },
      ],
      1,
    ],
  ];
  for (const [what, moves, count] of cases) t.equal(openingsOf(moves, 0).length, count, what);
  const move = (host: string, from: Move['to'], to: Move['to'], atMs: number): Move => ({ sidecar: host, instance: 'i', from, to, atMs });
  const late = [
    move('a', 'half_open', 'open', 10_000),
    move('a', 'open', 'half_open', 40_000),
    move('a', 'half_open', 'open', 41_000),
    move('b', 'closed', 'open', 50_000),
  ];
  t.strictSame(openingsOf(late, 0), [], 'who begins to listen in an outage counts no probe that fails, nor who joins it');
  t.strictSame(
    openingsOf([...late, ...['a', 'b'].map((host) => move(host, 'ramping', 'closed', 60_000)), move('a', 'closed', 'open', 200_000)], 0),
    [200_000],
    'the next one counts',
  );
  t.equal(
    openingsOf([move('a', 'closed', 'open', 0), move('a', 'closed', 'open', 100_000)], 0).length,
    2,
    'what was not heard in between is told by from where it moved',
  );
  const random = new SeededRandom(3);
  const some = cases.flatMap(([, moves]) => moves);
  const counted = openingsOf(some, 0);
  for (let i = 0; i < 50; i++) {
    const shuffled = some.map((move) => [random.next(), move] as const).sort(([a], [b]) => a - b);
    t.strictSame(
      openingsOf(
        shuffled.map(([, move]) => move),
        0,
      ),
      counted,
      'the order in which it is told does not matter',
    );
  }
  t.equal(openingsOf(path('a', 0, 10_000, ...once, ...once, ...once, ...once), 100_000).length, 1, 'only those within the window');
  const apart = [...path('a', 0, 10_000, 'open'), ...path('b', 5_000_000, 10_000, ...once)];
  t.equal(openingsOf(apart, 0).length, 1, 'it is open at another sidecar for more than an hour, which is heard');
  t.equal(
    openingsOf(apart, 0, ({ sidecar: host }) => (host === 'a' ? 900_000 : Number.POSITIVE_INFINITY)).length,
    2,
    'or was gone by then',
  );
  t.equal(
    openingsOf(path('a', 0, 10_000, 'open', 'half_open', 'open'), 15_000).length,
    0,
    'what was before it tells what state it began in',
  );
});

t.test('a breaker that flaps is seen beside a dead agent whose probes fail at fifty sidecars', async (t) => {
  const world = new AlertWorld();
  const dead = ['c0', 'c1', 'c2', 'c3', 'c4'].map((name) => ({ provider: 'crm.dead.a', capability: `crm.dead.${name}`, why: 'x' }));
  const tell = (host: string, breakers: Told['breakers']): void =>
    world.traffic.take(world.digest({ sidecar: host, times: [], breakers: breakers ?? [] }));
  const flap = { provider: 'crm.flap.a', capability: 'crm.flap.do', why: 'f' };
  await world.clock.advance(3_700_000);
  for (let minute = 0; minute < 40; minute++) {
    for (let i = 0; i < 50; i++)
      if (minute === 0)
        tell(
          `s${i}`,
          dead.map((each) => ({ ...each, from: 'closed', to: 'open' })),
        );
      else if (minute % 2 === 1)
        tell(
          `s${i}`,
          dead.flatMap((each) => [
            { ...each, from: 'open', to: 'half_open' },
            { ...each, from: 'half_open', to: 'open' },
          ]),
        );
    if (minute % 12 === 0) tell('s1', [{ ...flap, from: 'closed', to: 'open' }]);
    if (minute % 12 === 1) tell('s1', [{ ...flap, from: 'open', to: 'closed' }]);
    await world.clock.advance(MIN);
    world.watch.tick();
  }
  await world.clock.advance(0);
  t.strictSame(world.heard(), ['breaker_flapping crm.flap.a crm.flap.do firing']);
});

t.test('a backlog', async (t) => {
  const settings = DEFAULT_ALERTS.backlog;
  const series = (waiting: (i: number) => number, looks = 61): Seen[] =>
    Array.from({ length: looks }, (_, i) => ({ atMs: i * 10_000, waiting: Math.round(waiting(i)) }));
  const moving: Still = { forMs: 0, isAtLeast: false };
  const cases: readonly (readonly [string, Seen[], Still | null, string])[] = [
    ['nothing has been looked at', [], moving, 'unknown'],
    ['nothing waits', series(() => 0), moving, 'calm'],
    ['it grows', series((i) => 200 + i * 10), moving, 'growing'],
    ['it grows, but it is little', series((i) => i), moving, 'calm'],
    ['it stays as it is', series(() => 500), moving, 'between'],
    ['it breathes', series((i) => 300 + 250 * Math.sin(i / 3)), moving, 'between'],
    ['it is drained', series((i) => 1_000 - i * 10), moving, 'calm'],
    ['it grew within two looks', series((i) => 200 + i * 100, 2), moving, 'unknown'],
    ['few, and none is taken for 16 min', series(() => 3), { forMs: 16 * MIN, isAtLeast: false }, 'stuck'],
    ['few, and none is taken for 10 min', series(() => 3), { forMs: 10 * MIN, isAtLeast: false }, 'between'],
    ['few, and who knows for how long', series(() => 3), { forMs: 2 * MIN, isAtLeast: true }, 'between'],
    ['few dead letters, that nobody takes by themselves', series(() => 3), null, 'calm'],
    ['dead letters come in', series((i) => 100 + i), null, 'growing'],
  ];
  for (const [what, seen, still, kind] of cases) t.equal(judgeGrowth(seen, still, settings).kind, kind, what);
});

t.test('agents that are gone', async (t) => {
  const lost = { status: 'offline', why: 'lease', offlineSinceMs: 5, leaseLeftMs: null } as const;
  const subjects = (...args: Parameters<typeof goneAgents>): string[] => goneAgents(...args).map(({ subject }) => subject);
  const here = [sidecar('shop-1', 'online')];
  t.strictSame(subjects([provider('crm.a.a'), provider('crm.a.b', lost)], here, null), ['crm.a.b']);
  for (const [what, more] of [
    ['it said goodbye', { ...lost, why: 'left' }],
    ['it was drained', { ...lost, drain: true }],
    ['it is there', {}],
  ] as const)
    t.strictSame(subjects([provider('crm.a.b', more)], here, null), [], what);
  t.strictSame(subjects([provider('crm.a.b', { ...lost, why: 'probe' })], here, null), ['crm.a.b'], 'a health check that fails');
  const dead = [sidecar('shop-1', 'offline')];
  t.strictSame(subjects([provider('crm.a.a', lost), provider('crm.a.b', lost)], dead, null), ['sidecar:shop-1']);
  t.strictSame(subjects([provider('crm.a.a', lost)], dead, null), ['crm.a.a'], 'with a single agent it is that agent');
  t.strictSame(subjects([provider('crm.a.a', lost), provider('crm.a.b')], dead, null), ['crm.a.a'], 'one of them is there');
  t.strictSame(subjects([provider('crm.a.a', lost), provider('crm.a.b', lost)], here, null).length, 2, 'their sidecar lives');
  const many = Array.from({ length: 40 }, (_, i) => provider(`crm.a.x${i}`, { ...lost, sidecar: `s${i}`, region: 'eu' }));
  const eu = many.map((one) => sidecar(one.sidecar, 'offline', 'eu'));
  const us = provider('crm.a.us', { sidecar: 'us', region: 'us' });
  const region = goneAgents([...many, us], [...eu, sidecar('us', 'online', 'us')], null);
  t.strictSame(
    region.map(({ subject }) => subject),
    ['region:eu'],
  );
  t.equal(region[0]?.agents.length, 40);
  t.match(region[0]?.words, /all of the region eu is gone: 40 sidecars \(s0, .* and 30 more\) with 40 agents/);
  t.strictSame(
    subjects([...many, us], [...eu.map((one) => ({ ...one, region: null })), sidecar('us', 'online')], null),
    ['fleet'],
    'many of no region',
  );
  const overdue = many.map((one) => ({ ...one, status: 'overdue' as const, why: null }));
  t.strictSame(subjects(overdue, eu, '40 of 40 providers fell silent'), ['fleet'], 'what the registry itself does not believe is one');
});

const PATIENCE: Patience = { forMs: 10 * MIN, calmMs: 5 * MIN, unknownMs: 60 * MIN };
const observation = (grade: Observation['grade'], more: Partial<Observation> = {}): Observation => ({
  kind: 'p95_rise',
  subject: CAPABILITY,
  grade,
  words: grade,
  value: 1,
  limit: 1,
  capability: CAPABILITY,
  agent: null,
  sidecar: null,
  traceId: null,
  look: '',
  held: null,
  beganMs: null,
  ...more,
});

t.test('pending, firing, resolved', async (t) => {
  /** Its states by minute, one letter each. */
  const states = (grades: string): string => {
    const book = new AlertBook(1, 'e');
    const words = { b: 'bad', r: 'rising', m: 'between', g: 'good', u: 'unknown' } as const;
    return grades
      .split('')
      .map((grade, i) => {
        book.observe(observation(words[grade as keyof typeof words]), PATIENCE, i * MIN);
        return book.alerts[0]?.state[0] ?? '-';
      })
      .join('');
  };
  t.equal(states('gggg'), '----');
  t.equal(states('bbbbbbbbbbbb'), 'ppppppppppff', 'fires after ten minutes');
  t.equal(states('bbbbgbbbbbbb'), 'pppp-ppppppp', 'a good one begins it anew');
  t.equal(states('bbbbmmmubbbf'.replace('f', 'b')), 'ppppppppppff', 'what is neither goes on');
  t.equal(states('mmmmuuuu'), '--------', 'and begins nothing');
  t.equal(states('rrrrrrrrrrrr'), 'pppppppppppp', 'on its way is not there');
  const firing = 'bbbbbbbbbbb';
  t.equal(states(`${firing}gggggg`).slice(11), 'fffffr', 'good for five minutes');
  t.equal(states(`${firing}ggbggbggb`).slice(11), 'fffffffff', 'a break in it begins the wait anew');
  t.equal(
    states(firing + 'u'.repeat(62))
      .slice(11)
      .indexOf('r'),
    60,
    'not knowing ends it after an hour',
  );
  t.equal(states(firing + 'bg'.repeat(15)).slice(11), 'f'.repeat(30), 'thirty swings are one alert');
  t.match(states('bg'.repeat(30)), /^(p-)+$/, 'and swings that never last are none');
});

/** As a receiver does that takes everything. @returns what it was told */
function tellAll(book: AlertBook, nowMs: number): string[] {
  const untold = book.untold(nowMs);
  const ids = new Map<string, Set<'firing' | 'resolved'>>();
  for (const { alert, state } of untold) ids.set(alert.id, (ids.get(alert.id) ?? new Set()).add(state));
  book.told(ids);
  return untold.map(({ alert, state }) => `${alert.subject} ${state}`);
}

t.test('what operators were told of has an end that they are told of', async (t) => {
  const now: Patience = { forMs: 0, calmMs: 0, unknownMs: 0 };
  const silence = { kind: null, subject: '*', untilMs: 1_000, reason: 'known', author: 'ada', createdMs: 0 };
  const good = (book: AlertBook, subject: string, atMs: number): void => {
    for (let twice = 0; twice < 2; twice++) book.observe(observation('good', { subject }), now, atMs);
  };
  const book = new AlertBook(1, 'e');
  book.observe(observation('bad', { subject: 'a' }), now, 0);
  t.strictSame(tellAll(book, 0), ['a firing']);
  book.observe(observation('bad', { subject: 'b' }), now, 1);
  const toldOfB = new Set(book.alerts.filter(({ subject }) => subject === 'b').map(({ id }) => id));
  book.silence(silence);
  book.observe(observation('bad', { subject: 'c' }), now, 2);
  for (const subject of ['a', 'b', 'c']) good(book, subject, 3);
  book.tidy(4, toldOfB);
  t.match(
    book.alerts,
    [
      { subject: 'c', toldFiring: true, toldResolved: true },
      { subject: 'b', toldFiring: false, toldResolved: false },
      { subject: 'a', toldFiring: true, toldResolved: false },
    ],
    'what came and went in the silence is not told; of what began before it, and of what somebody is being told at this moment, the end is',
  );
  book.told(new Map([...toldOfB].map((id) => [id, new Set(['firing'] as const)])));
  book.tidy(5);
  t.strictSame(tellAll(book, 5), ['a resolved', 'b resolved'], 'also while the silence lasts');

  const many = new AlertBook(1, 'e');
  for (let round = 0; round < 3; round++) {
    for (let i = 0; i < MAX_OF_KIND; i++) many.observe(observation('bad', { subject: `x${round}.${i}` }), now, round);
    many.told(new Map(many.active('p95_rise').map(({ id }) => [id, new Set(['firing'] as const)])));
    for (let i = 0; i < MAX_OF_KIND; i++) good(many, `x${round}.${i}`, round);
  }
  many.tidy(10);
  many.tidy(100_000_000);
  t.equal(tellAll(many, 100_000_000).length, 3 * MAX_OF_KIND, `more than the ${MAX_RESOLVED} that are shown, and however late`);
  many.tidy(100_000_001);
  t.strictSame([many.alerts.length, many.dropped], [0, 0]);
});

t.test('a flood of one kind shuts out neither another kind nor what fires', async (t) => {
  const now: Patience = { forMs: 0, calmMs: 10, unknownMs: 1_000 };
  const book = new AlertBook(1, 'e');
  for (let i = 0; i < 300; i++) book.observe(observation('rising', { subject: `x${i}` }), now, 0);
  t.equal(book.active('p95_rise').length, MAX_OF_KIND);
  t.equal(book.crowd('p95_rise', 0), null, 'what is on its way and finds no room is nothing to tell');
  t.ok(book.observe(observation('bad', { kind: 'agent_offline', subject: 'fleet' }), now, 0));
  for (let i = 1_000; i < 1_000 + MAX_OF_KIND + 12; i++) book.observe(observation('bad', { subject: `x${i}` }), now, 0);
  t.strictSame(
    [book.active('p95_rise').filter(({ state }) => state === 'firing').length, book.active('agent_offline').length],
    [MAX_OF_KIND, 1],
    'what fires takes the place of what is pending',
  );
  const crowd = (atMs: number): boolean => {
    const seen = book.crowd('p95_rise', atMs);
    return seen !== null && book.observe(seen, now, atMs);
  };
  t.ok(crowd(0));
  t.match(book.find('p95_rise', 'more'), {
    state: 'firing',
    value: 12,
    words: /^12 more capabilities whose P95 rose: x1050, x1051, .*x1059 and 2 more$/,
  });
  t.notOk(
    book.active('p95_rise').some(({ subject }) => subject === 'more'),
    'no judge is asked of it',
  );
  book.silence({ kind: 'p95_rise', subject: 'x106*', untilMs: 100, reason: 'known', author: 'ada', createdMs: 0 });
  crowd(1);
  t.equal(book.find('p95_rise', 'more')?.value, 10, 'who is silenced is no one of them');
  book.unsilence('q1');
  for (let twice = 0; twice < 2; twice++) book.observe(observation('good', { subject: 'x1000' }), { ...now, calmMs: 0 }, 2);
  book.observe(observation('bad', { subject: 'x1055' }), now, 2);
  crowd(2);
  t.strictSame([book.find('p95_rise', 'x1055')?.state, book.find('p95_rise', 'more')?.value], ['firing', 11], 'there is room again');
  const stored = readStored(JSON.parse(JSON.stringify(book.stored)));
  for (let i = 1_050; i < 1_062; i++) if (i !== 1_055) book.observe(observation('good', { subject: `x${i}` }), now, 3);
  crowd(3);
  crowd(13);
  t.match(
    book.alerts.find(({ subject }) => subject === 'more'),
    { state: 'resolved', words: /^no more of them/ },
  );
  const next = new AlertBook(1, 'e');
  next.load(stored as StoredAlerts, 20);
  const seen = next.crowd('p95_rise', 20) as Observation;
  t.equal(seen.grade, 'unknown', 'who leads next has looked at nobody yet');

  await t.test('which is over by the time of the next leader ends then', async (t) => {
    const graded = (grade: 'good' | 'bad', atMs: number): string | undefined => {
      next.observe(observation(grade, { subject: 'x1001' }), now, atMs);
      return next.crowd('p95_rise', atMs)?.grade;
    };
    t.equal(graded('bad', 20 + 20 * MIN), 'unknown', 'one that is bad tells nothing of the others');
    t.equal(graded('good', 20 + 20 * MIN), 'unknown');
    t.equal(graded('good', 10 + 30 * MIN), 'unknown');
    next.shift(-3_600_000);
    t.equal(graded('good', 20 + 30 * MIN - 3_600_000), 'good', 'they were looked at for ten minutes, whatever the clock says');
  });

  await t.test('and what stands for many has room beside it, or has been bad for as long as it was seen', async (t) => {
    const patience: Patience = { forMs: MIN, calmMs: MIN, unknownMs: 60 * MIN };
    const book = new AlertBook(1, 'e');
    const bad = (subject: string, atMs: number, beganMs: number | null): void =>
      void book.observe(observation('bad', { kind: 'agent_offline', subject, beganMs }), patience, atMs);
    for (let i = 0; i < MAX_OF_KIND; i++) bad(`crm.a.x${i}`, 2 * MIN, 0);
    for (let i = 0; i < MAX_OF_KIND; i++) bad(`region:r${i}`, 2 * MIN, 0);
    for (let atMs = 2 * MIN; atMs <= 3 * MIN; atMs += 10_000) {
      bad('fleet', atMs, null);
      bad('region:late', atMs, null);
      if (atMs < 3 * MIN) t.notOk(book.crowd('agent_offline', atMs), 'not bad for long enough');
    }
    t.equal(book.find('agent_offline', 'fleet')?.state, 'firing');
    t.match(book.crowd('agent_offline', 3 * MIN), { value: 1, words: /: region:late$/ });
    bad('region:later', 3 * MIN, null);
    bad('region:later', 5 * MIN, null);
    t.match(book.crowd('agent_offline', 5 * MIN), { value: 1 }, 'out of sight in between, it begins anew');
    t.equal(book.active('agent_offline').length, 2 * MAX_OF_KIND + 1);
  });
});

t.test(
  'the alert about those without room of a kind ends in the next reign, also where nobody is left or it is switched off',
  async (t) => {
    const lost = { status: 'offline', why: 'lease', offlineSinceMs: 0 } as const;
    const stored = (): string => {
      const book = new AlertBook(1, 'e1');
      for (let i = 0; i < MAX_OF_KIND + 2; i++)
        book.observe(observation('bad', { kind: 'agent_offline', subject: `crm.a.x${i}` }), { forMs: 0, calmMs: 0, unknownMs: 1 }, 1);
      book.observe(book.crowd('agent_offline', 1) as Observation, { forMs: 0, calmMs: 0, unknownMs: 1 }, 1);
      return JSON.stringify({ ...book.stored, alerts: book.alerts.filter(({ subject }) => subject === 'more') });
    };
    const world = new AlertWorld();
    world.providers = [provider('crm.a.x1', lost)];
    world.stored = stored();
    world.changeLeader(true);
    const more = (of: AlertWorld): string | undefined => of.watch.book.find('agent_offline', 'more')?.state;
    await world.minutes(14);
    t.equal(more(world), 'firing', 'not at once: some may come late');
    await world.minutes(2);
    t.equal(more(world), undefined);

    const off = new AlertWorld({ ...DEFAULT_ALERTS, offline: { ...DEFAULT_ALERTS.offline, enabled: false } });
    off.stored = stored();
    off.changeLeader(true);
    t.equal(more(off), 'firing');
    await off.minutes(1);
    t.equal(more(off), undefined);
  },
);

t.test('what is stored is bounded, read back, and taken in from an export', async (t) => {
  const book = new AlertBook(1, 'e');
  const words = 'w'.repeat(600);
  for (let round = 0; round <= 2; round++)
    for (const kind of ALERT_KINDS)
      for (let i = 0; i < MAX_OF_KIND + 5; i++) {
        const of = { kind, subject: `crm.a.x${i}.${'s'.repeat(120)}`, words };
        book.observe(observation('bad', of), { ...PATIENCE, forMs: 0 }, round);
        if (round === 2) continue;
        for (let twice = 0; twice < 2; twice++) book.observe(observation('good', of), { ...PATIENCE, calmMs: 0 }, round);
        if (round === 0) tellAll(book, round);
      }
  book.tidy(3);
  t.strictSame(
    [book.alerts.length, book.dropped],
    [4 * MAX_OF_KIND + MAX_RESOLVED + MAX_OWED, 4 * (MAX_OF_KIND + 5) - MAX_OWED],
    'those that are bad, those that are over, and of those those that nobody was told of: each has its bound',
  );
  t.ok(JSON.stringify(book.stored).length < 800_000, 'within one message of NATS');
  tellAll(book, 3);
  for (const { kind, subject } of book.alerts)
    for (let twice = 0; twice < 2; twice++) book.observe(observation('good', { kind, subject }), { ...PATIENCE, calmMs: 0 }, 4);
  tellAll(book, 4);
  book.tidy(5);
  t.equal(book.alerts.length, MAX_RESOLVED);
  book.tidy(90_000_000);
  t.equal(book.alerts.length, 0, 'after a day they are gone');
  const silence = { kind: null, subject: 'a*', untilMs: 100, reason: 'r', author: 'ada', createdMs: 0 };
  for (let i = 0; i < MAX_SILENCES; i++) book.silence(silence);
  t.type(book.silence(silence), 'string');
  book.tidy(101);
  t.equal(book.silences.length, 0);

  const old = new AlertBook(1, 'e1');
  old.observe(observation('bad'), { ...PATIENCE, forMs: 0 }, 0);
  old.silence({ ...silence, untilMs: 1_000 });
  const stored = readStored(JSON.parse(JSON.stringify(old.stored)));
  t.strictSame(stored, old.stored);
  const fresh = new AlertBook(1, 'e2');
  t.ok(stored !== null && fresh.takeIn(stored, 10));
  t.match(fresh.alerts, [{ id: 'a1', subject: CAPABILITY, state: 'firing' }], 'it goes on where it was');
  t.equal(fresh.silencedUntil({ kind: 'backlog', subject: 'abc' }, 10), 1_000);
  t.notOk(stored === null || fresh.takeIn(stored, 10), 'twice is once');
  const full = new AlertBook(1, 'e3');
  const large = {
    ...old.stored,
    alerts: Array.from({ length: MAX_OF_KIND + 20 }, (_, i) => ({ ...(old.alerts[0] as Alert), id: `a${i}`, subject: `crm.a.x${i}` })),
  };
  t.ok(full.takeIn(large, 10));
  t.strictSame(
    [full.alerts.length, full.dropped, full.alerts[0]?.subject],
    [MAX_OF_KIND, 20, 'crm.a.x0'],
    'what is taken in finds room or is counted',
  );
  fresh.observe(observation('bad', { subject: 'crm.b.c' }), { ...PATIENCE, forMs: 0 }, 0);
  t.equal(fresh.alerts[0]?.id, 'a2', 'no id is given twice');
  for (const bad of [null, 1, [], {}, { wire: 1, alerts: 1, silences: [] }]) t.equal(readStored(bad), null);
  t.strictSame(
    readStored({ wire: 1, alerts: [null, { kind: 'x' }, 7], silences: [{}] })?.alerts,
    [],
    'what is not in its form is left out',
  );
});

t.test('subjects are matched by pieces between stars', async (t) => {
  for (const [pattern, text, isFit] of [
    ['crm.order.query', 'crm.order.query', true],
    ['crm.order', 'crm.order.query', false],
    ['crm.*', 'crm.order.query', true],
    ['*', '', true],
    ['*.query', 'crm.order.query', true],
    ['crm.*.query', 'crm.order.query', true],
    ['crm.*order.query', 'crm.order.query', true],
    ['a*a', 'a', false],
    ['a*b*c', 'axxbxxc', true],
    ['a*b*c', 'axxcxxb', false],
    ['sidecar:*', 'region:eu', false],
    [`${'*a'.repeat(200)}b`, 'a'.repeat(5_000), false],
  ] as const)
    t.equal(fits(pattern, text), isFit, `${pattern.slice(0, 20)} ${text.slice(0, 20)}`);
});

t.test('traffic as it is told', async (t) => {
  const steady =
    (world: AlertWorld, ms = 100): (() => Told[]) =>
    () => [
      { sidecar: 's1', times: world.times(10, ms) },
      { sidecar: 's2', times: world.times(10, ms) },
    ];

  await t.test('a rise is told in words, with its limit, a trace and the slowest provider', async (t) => {
    const world = new AlertWorld();
    await world.minutes(75, steady(world));
    await world.minutes(13, () => [
      { sidecar: 's1', times: world.times(10, 300), provider: 'crm.order.b' },
      { sidecar: 's2', times: world.times(10, 100) },
    ]);
    const [alert] = world.active();
    t.match(
      alert?.words,
      /^P95 of crm\.order\.query rose from 1\d\d ms to \d{3} ms over 10 min; 1,[23]\d\d calls; the slowest provider is crm\.order\.b \(P95 \d{3} ms\)$/,
    );
    t.match(alert, { state: 'firing', kind: 'p95_rise', subject: CAPABILITY, capability: CAPABILITY, traceId: /^[0-9a-f]{32}$/ });
    t.ok((alert?.value ?? 0) > (alert?.limit ?? 0) && (alert?.limit ?? 0) > 200);
    t.equal(alert?.look, `reachctl trace ${alert?.traceId}`);
    t.match(world.received, [
      { kind: 'alert', alert: 'p95_rise', state: 'firing', detail: alert?.words, hint: alert?.look, resolved: null },
    ]);
  });

  await t.test('a sidecar whose fast calls are not heard any more is no rise', async (t) => {
    const world = new AlertWorld();
    const both = (): Told[] => [
      { sidecar: 'fast', times: world.times(30, 20) },
      { sidecar: 'slow', times: world.times(10, 20) },
      { sidecar: 'slowest', times: world.times(1, 300) },
    ];
    await world.minutes(75, both);
    await world.minutes(30, () => both().slice(1));
    t.strictSame(world.received, [], 'the P95 of what is left is another one, and nobody became slower');
    await world.minutes(14, () =>
      both()
        .slice(1)
        .map((one) => ({ ...one, times: one.times.map((ms) => ms * 3) })),
    );
    t.equal(world.received.length, 1, 'that they do become slower is still seen');
  });

  await t.test('a deploy that doubles the traffic, with callers who ask for more, is no rise', async (t) => {
    const world = new AlertWorld();
    await world.minutes(75, steady(world));
    await world.minutes(30, () => [
      ...steady(world)(),
      { sidecar: 's3', times: world.times(10, 500) },
      { sidecar: 's4', times: world.times(10, 100) },
    ]);
    t.strictSame(world.received, []);
  });

  await t.test('a quiet night and a morning with twenty times the calls is no rise', async (t) => {
    const world = new AlertWorld();
    await world.minutes(120, (second) =>
      second % 60 === 0 ? [{ sidecar: 's1', times: world.times(2, 100) }] : [{ sidecar: 's1', times: [] }],
    );
    for (let calls = 1; calls <= 20; calls++) await world.minutes(6, () => [{ sidecar: 's1', times: world.times(calls, 100) }]);
    t.strictSame(world.watch.book.alerts, []);
  });

  await t.test('in which order and by how many sidecars it is told does not matter', async (t) => {
    const outcomes = [1, 2, 3].map(async (seed) => {
      const world = new AlertWorld(DEFAULT_ALERTS, 1);
      const order = new SeededRandom(seed);
      await world.minutes(75, () => steady(world)().sort(() => order.next() - 0.5));
      await world.minutes(13, () => steady(world, 300)().sort(() => order.next() - 0.5));
      return [world.heard(), world.active().map(({ value, limit }) => [value > limit, limit > 200])];
    });
    const [first, ...others] = await Promise.all(outcomes);
    for (const other of others) t.strictSame(other, first);
  });

  await t.test('a level that lasts for a day is how it is', async (t) => {
    const world = new AlertWorld();
    const told = (ms: number) => (): Told[] => [{ sidecar: 's1', times: world.times(4, ms) }];
    await world.minutes(75, told(100));
    await world.minutes(600, told(300));
    t.equal(world.active()[0]?.state, 'firing', 'after ten hours it is still held against what was before it');
    await world.minutes(900, told(300));
    t.strictSame(world.heard(), [`p95_rise ${CAPABILITY} firing`, `p95_rise ${CAPABILITY} resolved`]);
    t.match(world.received[1]?.detail, /has been about \d+ ms for a day/);
  });
});

t.test('silences', async (t) => {
  const world = new AlertWorld();
  const lost = { status: 'offline', why: 'lease', leaseLeftMs: null } as const;
  const silenced = world.watch.silence({
    kind: null,
    subject: 'crm.*',
    untilMs: world.clock.wallMs() + 10 * MIN,
    reason: 'moving',
    author: 'ada',
    createdMs: 0,
  });
  world.providers = [provider('crm.a.a', lost), provider('crm.a.b'), provider('shop.a.c', lost)];
  await world.minutes(2);
  t.strictSame(world.heard(), ['agent_offline shop.a.c firing']);
  t.equal(world.active().length, 2, 'both are shown');
  world.providers = [provider('crm.a.a'), provider('crm.a.b', lost), provider('shop.a.c', lost)];
  await world.minutes(4);
  world.changeLeader(true);
  await world.minutes(1);
  t.equal(world.received.length, 1, 'a new leader keeps to it; what came and went meanwhile is nobody’s news');
  await world.minutes(4);
  t.strictSame(world.heard().slice(1), ['agent_offline crm.a.b firing'], 'what still fires when it is over is told then');
  t.type(silenced, Object);
  const again = world.watch.silence({
    kind: 'backlog',
    subject: '*',
    untilMs: world.clock.wallMs() + MIN,
    reason: 'r',
    author: 'ada',
    createdMs: 0,
  });
  t.equal(typeof again === 'string' ? null : world.watch.unsilence(again.id)?.id, 'q2');
  t.equal(world.watch.unsilence('q2'), null);
});

t.test('of a sidecar that dies bit by bit its own alert takes the place of those of its agents', async (t) => {
  const world = new AlertWorld();
  const lost = { status: 'offline', why: 'lease', leaseLeftMs: null } as const;
  world.sidecars = [sidecar('shop-1', 'online')];
  world.providers = [provider('crm.a.a', lost), provider('crm.a.b'), provider('crm.a.c')];
  await world.minutes(2);
  t.strictSame(world.heard(), ['agent_offline crm.a.a firing']);
  world.sidecars = [sidecar('shop-1', 'offline')];
  world.providers = world.providers.map(({ agent }) => provider(agent, lost));
  await world.minutes(2);
  t.strictSame(
    world.heard(),
    ['agent_offline crm.a.a firing', 'agent_offline crm.a.a resolved', 'agent_offline sidecar:shop-1 firing'],
    'whoever was told of the first one is told that it is part of another one now',
  );
  t.match(world.received[1], { detail: /is offline: .*; now part of the alert a\d+$/ });
  t.strictSame(
    world.active().map(({ subject }) => subject),
    ['sidecar:shop-1'],
  );
  world.sidecars = [sidecar('shop-1', 'online')];
  world.providers = [provider('crm.a.a'), provider('crm.a.b', lost), provider('crm.a.c')];
  await world.minutes(3);
  t.strictSame(
    world.heard().slice(3),
    ['agent_offline crm.a.b firing', 'agent_offline sidecar:shop-1 resolved'],
    'who is still away has its own then',
  );
});

t.test('a wall clock that is set is no time that has passed', async (t) => {
  const HOUR = 60 * MIN;
  const DAY = 24 * HOUR;
  const lost = (world: AlertWorld) =>
    ({ status: 'offline', why: 'lease', leaseLeftMs: null, offlineSinceMs: world.clock.wallMs() }) as const;

  for (const [what, byMs] of [
    ['an hour on', HOUR],
    ['a day back', -DAY],
  ] as const)
    await t.test(what, async (t) => {
      const config = { ...DEFAULT_ALERTS, offline: { ...DEFAULT_ALERTS.offline, forMs: 5 * MIN } };
      const world = new AlertWorld(config);
      world.providers = [provider('crm.a.a'), provider('crm.a.b')];
      await world.minutes(1);
      const went = world.clock.wallMs();
      world.providers = [provider('crm.a.a', lost(world)), provider('crm.a.b')];
      await world.minutes(2);
      t.equal(world.active()[0]?.state, 'pending');
      world.clock.aheadMs = byMs;
      await world.minutes(2);
      t.equal(world.active()[0]?.state, 'pending', 'nothing fires by it');
      t.equal(world.active()[0]?.sinceMs, went + byMs, 'and it is shown as the clock would have shown it');
      await world.minutes(2);
      t.strictSame(world.heard(), ['agent_offline crm.a.a firing'], 'five minutes are five minutes');
      t.ok(
        world.watch.silence({
          kind: null,
          subject: 'x.*',
          untilMs: world.clock.wallMs() + 10 * MIN,
          reason: 'r',
          author: 'ada',
          createdMs: world.clock.wallMs(),
        }),
      );
      world.clock.aheadMs = 0;
      world.providers = [provider('crm.a.a'), provider('crm.a.b', { ...lost(world), offlineSinceMs: world.clock.wallMs() + byMs })];
      await world.minutes(1.5);
      t.strictSame(world.heard().slice(1), ['agent_offline crm.a.a resolved'], 'what is over ends a minute later');
      t.equal(world.watch.book.silences.length, 1, 'a silence lasts as long as was meant');
      await world.minutes(2);
      t.equal(world.active()[0]?.state, 'pending', 'nor does the time of a clock that is no more count');
      await world.minutes(7);
      t.strictSame(world.heard().slice(2), ['agent_offline crm.a.b firing']);
      t.equal(world.watch.book.silences.length, 0);
    });

  await t.test('what another replica stored is never later than now', async (t) => {
    const book = new AlertBook(1, 'e');
    book.observe(observation('bad'), PATIENCE, 2 * DAY);
    book.silence({ kind: null, subject: 'x', untilMs: 2 * DAY + HOUR, reason: 'r', author: 'ada', createdMs: 2 * DAY });
    const next = new AlertBook(1, 'e');
    next.load(book.stored, DAY);
    t.match(next.alerts, [{ state: 'pending', sinceMs: DAY }]);
    t.match(next.silences, [{ createdMs: DAY, untilMs: DAY + HOUR }]);
    for (let i = 0; i <= 10; i++) next.observe(observation('bad'), PATIENCE, DAY + i * MIN);
    t.equal(next.alerts[0]?.state, 'firing', 'ten minutes later, and not a day');
  });

  await t.test('who was gone when the looks began has gone when the registry says', (t) => {
    const times = new OfflineTimes();
    const since = (agent: string, saidMs: number, wallMs: number, nowMs: number): unknown =>
      times.corrected([provider(agent, { status: 'offline', offlineSinceMs: saidMs })], wallMs, nowMs)[0]?.offlineSinceMs;
    t.equal(since('a', 500, 1_000, 100), 500);
    t.equal(since('a', 500, 51_010, 110), 50_500, 'the clock was set by 49,990');
    t.equal(since('a', 99_000, 51_020, 120), 51_020, 'it has gone anew, and not in time to come');
    t.equal(since('b', 7, 51_030, 130), 51_020, 'nobody has gone before the look that found it there');
    t.end();
  });
});

t.test('settings', async (t) => {
  const read = (yaml: string) =>
    readControlPlaneConfig(`control_plane:\n  name: a\n  nats: {url: "nats://127.0.0.1:4222"}\n${yaml}`, 'c.yaml');
  const alerts = (yaml: string) => {
    const reading = read(yaml);
    return 'config' in reading ? reading.config.alerts : reading.problems.map(({ message }) => message);
  };
  t.strictSame(alerts(''), DEFAULT_ALERTS);
  t.match(DEFAULT_ALERTS, {
    p95: { enabled: true, rise: 0.4, forMs: 600_000, baselineMs: 3_600_000, minCalls: 100, floorMs: 5 },
    breakers: { enabled: true, openings: 3, windowMs: 3_600_000 },
    backlog: { enabled: true, floor: 100, windowMs: 600_000, stuckMs: 900_000, keptFloor: 20 },
    offline: { enabled: true, forMs: 30_000 },
  });
  const some = alerts(
    '  alerts: {p95: {rise: 150%}, capabilities: [{match: "crm.*", p95: {rise: 80%, min_calls: 30}}, {match: crm.order.query, p95: {enabled: false}, backlog: {stuck: 2h}}]}',
  );
  t.notOk(Array.isArray(some), String(some));
  const config = some as typeof DEFAULT_ALERTS;
  t.equal(limitsFor(config, 'shop.a.b').p95.rise, 1.5);
  t.match(limitsFor(config, 'crm.order.list').p95, { rise: 0.8, minCalls: 30, enabled: true });
  t.match(limitsFor(config, CAPABILITY), {
    p95: { rise: 0.8, enabled: false },
    backlog: { stuckMs: 7_200_000, floor: 100 },
    breakers: { openings: 3 },
  });
  t.match(alerts('  alerts: {p95: {rise: 0%}}'), [/must be a rise above 0%/]);
  t.match(alerts('  alerts: {p95: {for: 90s}}'), [/for must be from 2m to 25m/]);
  t.match(alerts('  alerts: {p95: {for: 150s}}'), [/for must be whole minutes/]);
  t.match(alerts('  alerts: {p59: {}}'), [/unknown key "p59": did you mean p95\?/]);
  t.match(alerts('  alerts: {capabilities: [{p95: {}}]}'), [/match is missing/]);

  const off = new AlertWorld({ ...DEFAULT_ALERTS, offline: { ...DEFAULT_ALERTS.offline, enabled: false } });
  off.providers = [provider('crm.a.a', { status: 'offline', why: 'lease' })];
  await off.minutes(5);
  t.strictSame(off.watch.book.alerts, [], 'switched off, it says nothing');
});

t.test('in a reign: what fires is stored, the next leader goes on with it, and operators silence it by the API', async (t) => {
  const fleet = new VirtualFleet();
  t.teardown(() => fleet.stop());
  const table = (ids: string[]): string =>
    `contracts:\n${contractLine(CAPABILITY, '1.0.0')}\nproviders:\n${ids.map((id) => mockLine(`crm.order.${id}`, [`${CAPABILITY}@1.0.0`])).join('\n')}\n`;
  const one = fleet.replica('one');
  await one.lead();
  const lost = await fleet.sidecar('shop-1', table(['a', 'b']));
  await fleet.sidecar('shop-2', table(['c']));
  t.strictSame(one.leading.alerts.book.alerts, []);
  await lost.kill();
  await fleet.pass(200_000);
  const [alert] = one.leading.alerts.book.alerts;
  t.match(alert, { subject: 'sidecar:shop-1', state: 'firing', words: /gone, with its 2 agents: crm\.order\.a, crm\.order\.b/ });
  t.ok(one.events.some(({ kind, words }) => kind === 'alert' && words.startsWith('alert a1 fires: the sidecar shop-1 is gone')));

  const two = fleet.replica('two');
  one.die();
  await two.lead(2);
  await fleet.pass(30_000);
  t.match(two.leading.alerts.book.alerts, [{ id: 'a1', state: 'firing', toldFiring: true }]);

  const audited: string[] = [];
  const plane = {
    get leading() {
      return two.isLeading ? two.leading : null;
    },
    mirror: two.mirror,
    clock: fleet.clock,
    audit: {
      record: ({ action, actor, subject, reason }: Record<string, string>) => audited.push([action, actor, subject, reason].join(' ')),
    },
  } as unknown as Plane;
  const ask = async (
    method: string,
    path: string,
    more: { body?: object; query?: Record<string, string>; id?: string } = {},
  ): Promise<Reply> => {
    const route = alertRoutes(plane).find((each) => each.method === method && each.path === path);
    const params: Record<string, string> = more.id === undefined ? {} : { id: more.id };
    const asked = route?.handle({
      params,
      query: more.query ?? {},
      body: JSON.stringify(more.body ?? {}),
      operator: { name: 'ada', role: 'operator' } as never,
      session: null,
      from: null as never,
    });
    for (let turn = 0; turn < 20; turn++) await fleet.clock.advance(1);
    return (await asked) as Reply;
  };
  const jsonOf = <T>(reply: Reply): T => (reply as { json: unknown }).json as T;
  const silences = '/v1/alerts/silences';
  const body = { subject: 'sidecar:*', kind: 'agent_offline', for: '2h', reason: 'moving house' };
  const made = await ask('POST', silences, { body });
  t.match(made, { status: 201 });
  const silence = jsonOf<SilenceAnswer>(made);
  t.match(silence, { id: 'q1', subject: 'sidecar:*', kind: 'agent_offline', author: 'ada', reason: 'moving house' });
  t.equal(silence.until_ms, silence.created_ms + 7_200_000);
  const shown = jsonOf<AlertsAnswer>(await ask('GET', '/v1/alerts', { query: { state: 'firing' } }));
  t.match(shown, {
    alerts: [{ id: 'a1', silenced_until_ms: silence.until_ms, look: 'reachctl sidecars list', told: true }],
    silences: [{ id: 'q1' }],
  });
  t.strictSame(jsonOf<AlertsAnswer>(await ask('GET', '/v1/alerts', { query: { state: 'pending' } })).alerts, []);
  t.strictSame(alertsOf({ leading: null, mirror: two.mirror, clock: fleet.clock }), shown, 'a replica that does not lead says the same');
  for (const [bad, why] of [
    [{ ...body, for: undefined }, /say either for/],
    [{ ...body, for: '31d' }, /for: /],
    [{ ...body, until_ms: 5 }, /say either for/],
    [{ ...body, for: undefined, until_ms: 5 }, /must lie ahead/],
    [{ ...body, kind: 'p95' }, /kind is p95_rise/],
    [{ ...body, subject: ' ' }, /subject must be/],
    [{ ...body, reason: undefined }, /reason must be/],
    [{ ...body, author: 'eve' }, /unknown key "author"/],
  ] as const) {
    const refused = await ask('POST', silences, { body: bad });
    t.ok(isRefused(refused));
    t.match(refused, { status: 400, detail: why });
  }
  t.match(await ask('GET', '/v1/alerts', { query: { state: 'x' } }), { status: 400 });
  t.match(await ask('DELETE', `${silences}/:id`, { id: 'q9' }), { status: 404 });
  t.match(await ask('DELETE', `${silences}/:id`, { id: 'q1' }), { status: 200 });
  t.strictSame(jsonOf<AlertsAnswer>(await ask('GET', '/v1/alerts')).silences, []);
  t.strictSame(audited, ['alert.silence ada q1 moving house', 'alert.unsilence ada q1 ']);

  const stored = two.mirror.state<object>(Tail.alerts);
  t.match(stored, { alerts: [{ id: 'a1' }], silences: [] }, 'what was lifted is not stored any more');
  await two.leading.import([], two.leading.registry.operators(), [], readStored(stored));
  await fleet.pass(20_000);
  t.match(two.leading.alerts.book.alerts, [{ id: 'a1', state: 'firing' }], 'an import ends nothing and begins nothing');
  t.equal(two.leading.alerts.book.alerts.length, 1);
});

t.test('operators are told by the webhook of notices, signed as every notice is', async (t) => {
  const got: { body: string; signature: string }[] = [];
  let status = 500;
  const hook = createServer((request, response) => {
    let body = '';
    request.on('data', (chunk: Buffer) => (body += chunk.toString('utf8')));
    request.on('end', () => {
      if (status === 200) got.push({ body, signature: String(request.headers['reach-signature']) });
      response.writeHead(status).end();
    });
  });
  await new Promise<void>((done) => hook.listen(0, '127.0.0.1', done));
  t.teardown(() => hook.close());
  const parts = {
    bus: { connected: false },
    clock: realClock,
    random: new SeededRandom(1),
    mirror: new Mirror(),
    logger: createLog({ level: 'silent', to: 'stderr', service: 'test' }).logger,
  } as unknown as MessageParts;
  const webhook = `http://127.0.0.1:${(hook.address() as AddressInfo).port}/hook`;
  const notices = new Notices(parts, { webhook, secret: { literal: 'shared' } });
  t.teardown(() => notices.close());
  const world = new AlertWorld();
  world.providers = [provider('crm.a.a', { status: 'offline', why: 'lease' })];
  await world.minutes(2);
  t.equal(world.received.length, 1);
  t.equal(await notices.deliver(world.received), 'it answered 500', 'whoever tells is told that it was not taken');
  status = 200;
  t.equal(await notices.deliver(world.received), null);
  const [first] = got;
  t.strictSame(JSON.parse(first?.body ?? ''), { notices: JSON.parse(JSON.stringify(world.received)) as unknown });
  const [, seconds, signed] = /^t=(\d+),v1=([0-9a-f]{64})$/.exec(first?.signature ?? '') ?? [];
  t.equal(signed, createHmac('sha256', 'shared').update(`${seconds}.${first?.body}`).digest('hex'));
  notices.close();
  t.match(await notices.deliver(world.received), /leads no longer/);
});
