import t from 'tap';
import { VirtualClock } from '../../../../base/virtual-clock.ts';
import type { BreakerSettings } from '../../../../proto/language/settings.ts';
import { MAX_HOST_OPEN_MS, MIN_ERROR_FACTOR } from '../../../../sidecar/health/cell.ts';
import { cellKey, Health } from '../../../../sidecar/health/health.ts';
import type { HealthCell } from '../../../../sidecar/health/cell.ts';

const SETTINGS: BreakerSettings = {
  enabled: true,
  failureRatio: 0.5,
  windowMs: 60_000,
  slowRatio: 0.3,
  slowCallMs: 3_000,
  minCalls: 10,
  openMs: 120_000,
  probes: 1,
  successes: 1,
  ramp: [2],
  rampStepMs: 5_000,
};

const EJECTION = { consecutive: 3, forMs: 5_000 };
const SLOW_START_MS = 10_000;
const ORDER = 'crm.order.query';
const REFUND = 'crm.refund.apply';

function setup(): { clock: VirtualClock; health: Health } {
  const clock = new VirtualClock();
  return { clock, health: new Health(clock, EJECTION) };
}

function warmCell(health: Health, agentId: string, capability = ORDER, settings = SETTINGS): HealthCell {
  const cell = health.cell(agentId, capability, settings, SLOW_START_MS);
  health.warm();
  return cell;
}

function calls(cell: HealthCell, clock: VirtualClock, count: number, outcome: 'success' | 'failure', durationMs = 5): void {
  for (let i = 0; i < count; i++) cell.end(cell.admit(clock.now()), outcome, durationMs, clock.now());
}

t.test('a reader that keeps its cache while version stands still and nextChangeAt is ahead never misses a change', async (t) => {
  const { clock, health } = setup();
  const cells = ['a.b.1', 'a.b.2', 'a.b.3'].map((id) => warmCell(health, id));
  let seenVersion = -1;
  let cached = '';
  const look = (): string =>
    cells.map((cell) => `${cell.usable(clock.now())} ${cell.weightFactor(clock.now()) > 0.99 ? '' : 'light'}`).join(',');
  const read = (): string => {
    if (health.version !== seenVersion || clock.now() >= health.nextChangeAt) {
      cached = look();
      seenVersion = health.version;
    }
    return cached;
  };
  const check = (what: string): void => {
    const read1 = read();
    t.equal(read1, look(), what);
  };
  check('at rest');
  calls(cells[0] as HealthCell, clock, 10, 'failure');
  check('first open');
  await clock.advance(10_000);
  for (let i = 0; i < 3; i++) (cells[1] as HealthCell).connectFailed(clock.now());
  check('second ejected');
  (cells[2] as HealthCell).provider.offline = true;
  check('third offline');
  await clock.advance(5_000);
  check('ejection over');
  (cells[2] as HealthCell).provider.offline = false;
  check('third back, starting slowly');
  await clock.advance(9_000);
  check('third in full weight');
  await clock.advanceTo(120_000);
  check('first may be probed');
  const probe = (cells[0] as HealthCell).admit(clock.now());
  check('its one place is taken');
  (cells[0] as HealthCell).end(probe, 'success', 5, clock.now());
  check('ramping');
  const ramped = [(cells[0] as HealthCell).admit(clock.now()), (cells[0] as HealthCell).admit(clock.now())];
  check('ramp full');
  (cells[0] as HealthCell).end(ramped[0] as number, 'success', 5, clock.now());
  check('room again');
  await clock.advance(5_000);
  check('closed');
  t.equal(health.nextChangeAt, Number.POSITIVE_INFINITY, 'nothing pending at the end');
});

t.test('a quiet closed breaker costs readers nothing: version and nextChangeAt stand still', async (t) => {
  const { clock, health } = setup();
  const cell = warmCell(health, 'a.b.1');
  await clock.advance(60_000);
  cell.usable(clock.now());
  const version = health.version;
  calls(cell, clock, 1_000, 'success');
  t.equal(health.version, version);
  t.equal(health.nextChangeAt, Number.POSITIVE_INFINITY);
});

t.test('breakers are kept per provider and capability, and transitions are announced with their reason', async (t) => {
  const { clock, health } = setup();
  const order = warmCell(health, 'a.b.1');
  const refund = warmCell(health, 'a.b.1', REFUND);
  const other = warmCell(health, 'a.b.2');
  const heard: string[] = [];
  health.onTransition = (cell, from, to, why) => heard.push(`${cell.agentId} ${cell.capability}: ${from} > ${to}: ${why}`);
  calls(order, clock, 10, 'failure');
  t.same(
    [order, refund, other].map((cell) => cell.usable(clock.now())),
    ['breaker_open', 'yes', 'yes'],
  );
  t.equal(order.provider, refund.provider);
  t.same(heard, ['a.b.1 crm.order.query: closed > open: 10 of 10 calls failed in the last 60 s (limit 50 %)']);
  t.equal(order.retryAfterMs(clock.now()), 120_000);
  t.equal(order.reopensAt(clock.now()), 120_000);
  t.equal(order.admit(clock.now()), 0);
  await clock.advance(120_000);
  t.same(
    [...health.cells()].map((cell) => cell.stateName),
    ['half_open', 'closed', 'closed'],
    'a scrape sees the present without any traffic',
  );
  t.equal(order.retryAfterMs(clock.now()), 0);
  t.equal(heard.length, 2);
});

t.test('connect failures and time-outs in a row eject the provider, for all its capabilities, for a short while', async (t) => {
  const { clock, health } = setup();
  const order = warmCell(health, 'a.b.1');
  const refund = warmCell(health, 'a.b.1', REFUND);
  order.connectFailed(clock.now());
  refund.timedOut(clock.now());
  t.equal(order.usable(clock.now()), 'yes');
  order.connectFailed(clock.now());
  t.same([order.usable(clock.now()), refund.usable(clock.now())], ['ejected', 'ejected']);
  t.equal(order.admit(clock.now()), 0);
  t.equal(order.provider.lastFailure, 'connect failures');
  t.equal(order.retryAfterMs(clock.now()), 5_000);
  await clock.advance(3_000);
  for (let i = 0; i < 10; i++) order.timedOut(clock.now());
  await clock.advance(2_000);
  t.equal(order.usable(clock.now()), 'yes', 'late failures do not lengthen it');
  t.equal(order.provider.consecutiveFailures, 0);
});

t.test('any answer resets the count and ends an ejection', async (t) => {
  const { clock, health } = setup();
  const cell = warmCell(health, 'a.b.1');
  const under = cell.admit(clock.now());
  for (let round = 0; round < 3; round++) {
    cell.timedOut(clock.now());
    cell.timedOut(clock.now());
    if (round === 1) cell.connected(clock.now());
    else calls(cell, clock, 1, 'success');
  }
  t.equal(cell.usable(clock.now()), 'yes');
  for (let i = 0; i < 3; i++) cell.timedOut(clock.now());
  t.equal(cell.usable(clock.now()), 'ejected');
  await clock.advance(100);
  cell.end(under, 'success', 100, clock.now());
  t.equal(cell.usable(clock.now()), 'yes');
  t.equal(cell.provider.lastAnswerAt, 100);
});

t.test('an ejection count of 0 switches ejection off', async (t) => {
  const clock = new VirtualClock();
  const cell = warmCell(new Health(clock, { consecutive: 0, forMs: 5_000 }), 'a.b.1');
  for (let i = 0; i < 100; i++) cell.connectFailed(clock.now());
  t.equal(cell.usable(clock.now()), 'yes');
});

t.test('the word of the host keeps us away from one capability, the latest word counts, and never for more than ten minutes', async (t) => {
  const { clock, health } = setup();
  const order = warmCell(health, 'a.b.1', ORDER, { ...SETTINGS, enabled: false });
  const refund = warmCell(health, 'a.b.1', REFUND);
  order.ejectUntil(30_000);
  t.same([order.usable(clock.now()), refund.usable(clock.now())], ['breaker_open', 'yes']);
  t.equal(order.admit(clock.now()), 0);
  t.equal(order.retryAfterMs(clock.now()), 30_000);
  order.ejectUntil(10_000);
  await clock.advance(10_000);
  t.equal(order.usable(clock.now()), 'yes');
  t.equal(order.reopensAt(clock.now()), null);
  order.ejectUntil(Number.POSITIVE_INFINITY);
  t.equal(order.retryAfterMs(clock.now()), MAX_HOST_OPEN_MS);
  order.ejectUntil(Number.NaN);
  t.equal(order.usable(clock.now()), 'breaker_open', 'junk is not heard');
  order.ejectUntil(0);
  t.equal(order.usable(clock.now()), 'yes');
});

t.test('offline says so before everything else', async (t) => {
  const { clock, health } = setup();
  const cell = warmCell(health, 'a.b.1');
  for (let i = 0; i < 3; i++) cell.connectFailed(clock.now());
  t.equal(cell.usable(clock.now()), 'ejected');
  cell.provider.offline = true;
  t.equal(cell.usable(clock.now()), 'offline');
  t.equal(cell.admit(clock.now()), 0);
});

t.test('C041: a breaker that has judged outranks an ejection, and its probes pass', async (t) => {
  const { clock, health } = setup();
  const cell = warmCell(health, 'a.b.1', ORDER, { ...SETTINGS, openMs: 1_000 });
  const other = warmCell(health, 'a.b.1', REFUND);
  calls(cell, clock, 10, 'failure');
  for (let i = 0; i < 3; i++) cell.timedOut(clock.now());
  t.same(
    [cell.usable(clock.now()), other.usable(clock.now())],
    ['breaker_open', 'ejected'],
    'the other capability has no verdict of its own',
  );
  t.same([cell.retryAfterMs(clock.now()), other.retryAfterMs(clock.now())], [1_000, 5_000]);
  await clock.advance(1_000);
  t.equal(cell.usable(clock.now()), 'probe', 'long before the ejection is over');
  const probe = cell.admit(clock.now());
  t.ok(probe > 0);
  cell.end(probe, 'success', 5, clock.now());
  t.same([cell.usable(clock.now()), other.usable(clock.now())], ['yes', 'yes'], 'a good probe ends both');
});

t.test('C032: who asked for a pause comes last for so long, and at most ten minutes', async (t) => {
  const { clock, health } = setup();
  const cell = warmCell(health, 'a.b.1');
  const { version } = health;
  cell.pause(3_000, clock.now());
  t.same([cell.pausedUntil, cell.usable(clock.now())], [3_000, 'yes'], 'usable all the same');
  t.equal(health.version, version + 1, 'readers hear of it');
  cell.pause(2_000, clock.now());
  t.same([cell.pausedUntil, health.version], [2_000, version + 1], 'the latest word counts, and is no news');
  cell.pause(0, clock.now());
  t.equal(cell.pausedUntil, 1_000, 'without a time, a second');
  cell.pause(Number.MAX_SAFE_INTEGER, clock.now());
  t.equal(cell.pausedUntil, MAX_HOST_OPEN_MS);
});

t.test('providers of the first table are warm, later ones start in ten steps from a tenth', async (t) => {
  const { clock, health } = setup();
  const first = warmCell(health, 'a.b.1');
  await clock.advance(1_000);
  const late = health.cell('a.b.2', ORDER, SETTINGS, SLOW_START_MS);
  const factors: number[] = [];
  for (let step = 0; step <= 10; step++) {
    factors.push(late.weightFactor(clock.now()));
    t.equal(first.weightFactor(clock.now()), 1);
    await clock.advance(1_000);
  }
  t.same(factors, [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1, 1]);
  t.equal(health.cell('a.b.3', ORDER, SETTINGS, 0).weightFactor(clock.now()), 1, 'no slow start configured');
});

t.test('a provider back from offline starts slowly again; a new capability of a known one does not', async (t) => {
  const { clock, health } = setup();
  const cell = warmCell(health, 'a.b.1');
  t.equal(health.cell('a.b.1', REFUND, SETTINGS, SLOW_START_MS).weightFactor(clock.now()), 1);
  cell.provider.offline = true;
  await clock.advance(60_000);
  cell.provider.offline = false;
  t.equal(cell.weightFactor(clock.now()), 0.1);
  cell.provider.offline = false;
  await clock.advance(4_000);
  t.equal(cell.weightFactor(clock.now()), 0.5);
});

t.test('recent errors lower the weight once there are enough samples, but never to nothing', async (t) => {
  const { clock, health } = setup();
  const cell = warmCell(health, 'a.b.1', ORDER, { ...SETTINGS, enabled: false });
  calls(cell, clock, 6, 'success');
  calls(cell, clock, 3, 'failure');
  t.equal(cell.weightFactor(clock.now()), 1, 'nine samples');
  calls(cell, clock, 1, 'success', 4_000);
  t.equal(cell.weightFactor(clock.now()), 0.7);
  t.equal(cell.errorRatio(clock.now()), 0.3);
  t.equal(cell.slowRatio(clock.now()), 0.1);
  t.same([cell.callsInWindow(clock.now()), cell.failuresInWindow(clock.now()), cell.slowInWindow(clock.now())], [10, 3, 1]);
  calls(cell, clock, 1_000, 'failure');
  t.equal(cell.weightFactor(clock.now()), MIN_ERROR_FACTOR);
  await clock.advance(70_000);
  t.equal(cell.weightFactor(clock.now()), 1, 'forgotten with the window');
  t.equal(cell.errorRatio(clock.now()), 0);
});

t.test('readers who cache weights are told when errors have moved them by a tenth, not at every call', async (t) => {
  const { clock, health } = setup();
  const cell = warmCell(health, 'a.b.1');
  await clock.advance(60_000);
  cell.usable(clock.now());
  let version = health.version;
  calls(cell, clock, 90, 'success');
  calls(cell, clock, 9, 'failure');
  t.equal(health.version, version, '9 %');
  calls(cell, clock, 2, 'failure');
  t.equal(health.version, version + 1, 'past 10 %, told once');
  version = health.version;
  calls(cell, clock, 500, 'success');
  t.ok(health.version <= version + 1, '500 calls, at most one word');
  await clock.advance(61_000);
  version = health.version;
  calls(cell, clock, 1, 'success');
  calls(cell, clock, 100, 'success');
  t.ok(health.version <= version + 1);
  t.equal(cell.weightFactor(clock.now()), 1);
});

t.test('C074: a table push keeps everything of those that stay and forgets only what was removed', async (t) => {
  const { clock, health } = setup();
  const open = warmCell(health, 'a.b.1');
  const gone = warmCell(health, 'a.b.2');
  const ejected = warmCell(health, 'a.b.3');
  calls(open, clock, 10, 'failure');
  calls(gone, clock, 10, 'failure');
  for (let i = 0; i < 3; i++) ejected.connectFailed(clock.now());
  open.provider.inFlight = 7;
  await clock.advance(1_000);

  const heard: string[] = [];
  health.onTransition = (cell) => heard.push(cell.agentId);
  t.equal(health.cell('a.b.1', ORDER, { ...SETTINGS, slowCallMs: 200 }, SLOW_START_MS), open, 'the same cell');
  health.cell('a.b.3', ORDER, { ...SETTINGS }, SLOW_START_MS);
  health.cell('a.b.4', ORDER, SETTINGS, SLOW_START_MS);
  health.retain(new Set(['a.b.1', 'a.b.3', 'a.b.4']), new Set(['a.b.1', 'a.b.3', 'a.b.4'].map((id) => cellKey(id, ORDER))));

  t.equal(open.usable(clock.now()), 'breaker_open');
  t.equal(open.openedAt, 0);
  t.equal(open.settings.slowCallMs, 200);
  t.equal(health.provider('a.b.1').inFlight, 7);
  t.equal(ejected.usable(clock.now()), 'ejected');
  t.same(
    [...health.cells()].map((cell) => cell.agentId),
    ['a.b.1', 'a.b.3', 'a.b.4'],
  );
  t.same(
    [...health.providers()].map((provider) => provider.agentId),
    ['a.b.1', 'a.b.3', 'a.b.4'],
  );
  t.same(heard, ['a.b.2'], 'whoever counts open breakers is told that there is one less');

  await clock.advance(200_000);
  t.equal(open.usable(clock.now()), 'probe');
  gone.end(gone.admit(clock.now()), 'failure', 5, clock.now());
  t.same(heard, ['a.b.2', 'a.b.1'], 'what was forgotten is not heard of again');
  const again = health.cell('a.b.2', ORDER, SETTINGS, SLOW_START_MS);
  t.not(again, gone);
  t.equal(again.usable(clock.now()), 'yes');
  t.equal(again.weightFactor(clock.now()), 0.1, 'whoever comes back is new');
});

t.test('a provider whose sidecar was started anew is left alone no longer for what the process before has done', async (t) => {
  const { clock, health } = setup();
  const cell = warmCell(health, 'a.b.1');
  const { provider } = cell;
  provider.servedBy('one');
  for (let i = 0; i < 3; i++) cell.connectFailed(clock.now());
  provider.servedBy('one');
  t.equal(cell.usable(clock.now()), 'ejected', 'the same process as before');
  const { version } = health;
  provider.servedBy('two');
  t.equal(cell.usable(clock.now()), 'yes');
  t.ok(health.version > version, 'and whoever keeps what follows from that is told');
  t.equal(cell.weightFactor(clock.now()), 0.1, 'it starts slowly');
  for (let i = 0; i < 2; i++) cell.connectFailed(clock.now());
  provider.servedBy('three');
  cell.connectFailed(clock.now());
  t.equal(cell.usable(clock.now()), 'yes', 'failures of another process are not counted together with its own');
});

t.test('calls that are under way at a provider that goes and comes back still count; everything else of it is new', async (t) => {
  const { clock, health } = setup();
  const cell = warmCell(health, 'a.b.1');
  const { provider } = cell;
  for (let i = 0; i < 3; i++) cell.connectFailed(clock.now());
  provider.inFlight = 2;
  health.retain(new Set(), new Set());
  t.same([...health.providers()], [], 'metrics and the choice no longer know it');
  t.equal(health.known('a.b.1'), provider, 'who asks for it by name finds what it is doing');
  provider.inFlight = 1;
  health.retain(new Set(), new Set());
  const again = health.cell('a.b.1', ORDER, SETTINGS, SLOW_START_MS);
  t.equal(again.provider, provider);
  t.equal(again.provider.inFlight, 1);
  t.equal(again.usable(clock.now()), 'yes', 'no longer ejected');
  t.equal(again.weightFactor(clock.now()), 0.1);
  provider.inFlight = 0;
  health.retain(new Set(), new Set());
  t.equal(health.known('a.b.1'), null, 'at rest it is forgotten');
  t.not(health.provider('a.b.1'), provider);
});

t.test('a capability that a provider no longer offers is forgotten alone', async (t) => {
  const { clock, health } = setup();
  const order = warmCell(health, 'a.b.1');
  warmCell(health, 'a.b.1', REFUND);
  health.retain(new Set(['a.b.1']), new Set([cellKey('a.b.1', ORDER)]));
  t.same([...health.cells()], [order]);
  order.provider.offline = true;
  order.provider.offline = false;
  await clock.advance(500);
  t.equal(order.usable(clock.now()), 'yes');
});

t.test('C053: in panic a forced permit passes whatever is in the way, and recovery is as without it', async (t) => {
  const { clock, health } = setup();
  const cells = ['a.b.1', 'a.b.2', 'a.b.3'].map((id) => warmCell(health, id));
  for (const cell of cells.slice(0, 2)) calls(cell, clock, 10, 'failure');
  (cells[1] as HealthCell).provider.offline = true;
  for (let i = 0; i < 3; i++) (cells[2] as HealthCell).connectFailed(clock.now());
  t.same(
    cells.map((cell) => cell.usable(clock.now())),
    ['breaker_open', 'offline', 'ejected'],
  );
  for (const cell of cells) {
    const permit = cell.force(clock.now());
    t.ok(permit > 0);
    cell.end(permit, 'failure', 5, clock.now());
  }
  await clock.advance(120_000);
  const [healed] = cells as [HealthCell];
  t.equal(healed.usable(clock.now()), 'probe');
  calls(healed, clock, 1, 'success');
  t.equal(healed.stateName, 'ramping');
});

t.test('a callback that reads health while it is told of a timed change sees a consistent view', async (t) => {
  const { clock, health } = setup();
  const cells = ['a.b.1', 'a.b.2'].map((id) => warmCell(health, id));
  for (const cell of cells) calls(cell, clock, 10, 'failure');
  const seen: string[] = [];
  health.onTransition = (cell) => seen.push(cell.usable(clock.now()));
  await clock.advance(120_000);
  health.advance(clock.now());
  t.same(seen, ['probe', 'probe']);
  t.equal(health.nextChangeAt, Number.POSITIVE_INFINITY);
});
