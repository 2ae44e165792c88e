import t from 'tap';
import { SeededRandom } from '../../../../base/random.ts';
import type { BreakerSettings } from '../../../../proto/language/settings.ts';
import { Breaker } from '../../../../sidecar/health/breaker.ts';
import type { BreakerListener } from '../../../../sidecar/health/breaker.ts';
import { PROBE_FLOOR_MS, probeLimitMs, tripCause, tripWords } from '../../../../sidecar/health/trip.ts';
import { Window } from '../../../../sidecar/health/window.ts';

const SETTINGS: BreakerSettings = {
  enabled: true,
  failureRatio: 0.5,
  windowMs: 60_000,
  slowRatio: 0.3,
  slowCallMs: 3_000,
  minCalls: 10,
  openMs: 1_000,
  probes: 3,
  successes: 2,
  ramp: [2, 4],
  rampStepMs: 500,
};

class Log implements BreakerListener {
  readonly moves: string[] = [];
  rooms = 0;
  breakerMoved(from: string, to: string): void {
    this.moves.push(`${from}>${to}`);
  }
  roomChanged(): void {
    this.rooms++;
  }
}

function make(changes: Partial<BreakerSettings> = {}): { breaker: Breaker; log: Log } {
  const log = new Log();
  return { breaker: new Breaker({ ...SETTINGS, ...changes }, log), log };
}

/** What went wrong with which seed; a run says '' when all was right. */
function failing(seeds: number, run: (seed: number) => string): string[] {
  const wrong: string[] = [];
  for (let seed = 1; seed <= seeds; seed++) {
    const what = run(seed);
    if (what !== '') wrong.push(`seed ${seed}: ${what}`);
  }
  return wrong;
}

/** One whole call, as `attempt` makes it. */
function call(breaker: Breaker, now: number, outcome: 'success' | 'failure' | 'ignored', durationMs = 5): boolean {
  breaker.advance(now);
  const permit = breaker.admit(now);
  if (permit === 0) return false;
  breaker.end(permit, outcome, durationMs, now);
  return true;
}

function opened(changes: Partial<BreakerSettings> = {}, at = 0): { breaker: Breaker; log: Log } {
  const made = make(changes);
  for (let i = 0; i < 10; i++) call(made.breaker, at, 'failure');
  return made;
}

/** Where buckets lie is part of the agreement: the first begins with the first sample, an emptied window starts anew. */
function windowAgainstList(seed: number): string {
  const random = new SeededRandom(seed);
  const window = new Window(1_000);
  let samples: { bucket: number; failed: boolean; slow: boolean }[] = [];
  let firstAt = 0;
  let now = random.next() * 10_000;
  for (let i = 0; i < 300; i++) {
    now += random.next() < 0.05 ? random.next() * 3_000 : random.next() * 40;
    const present = Math.floor((now - firstAt) / 100);
    samples = samples.filter((sample) => sample.bucket > present - 10);
    window.roll(now);
    if (window.calls !== samples.length) return `step ${i}: ${window.calls} calls after rolling, expected ${samples.length}`;
    if (samples.length === 0) firstAt = now;
    const sample = { bucket: samples.length === 0 ? 0 : present, failed: random.next() < 0.3, slow: random.next() < 0.2 };
    samples.push(sample);
    window.add(now, sample.failed, sample.slow);
    const want = `${samples.length}/${samples.filter((s) => s.failed).length}/${samples.filter((s) => s.slow).length}`;
    const got = `${window.calls}/${window.failures}/${window.slow}`;
    if (got !== want) return `step ${i}: ${got}, expected ${want}`;
  }
  return '';
}

t.test('the window agrees with a plain list of samples, whatever the rhythm of the calls (100 seeds)', async (t) => {
  t.same(failing(100, windowAgainstList), []);
});

t.test('samples leave the window after its length, and an idle window is empty', async (t) => {
  const window = new Window(60_000);
  for (let i = 0; i < 6; i++) window.add(i * 9_000, true, false);
  t.equal(window.calls, 6);
  window.roll(61_000);
  t.equal(window.calls, 5, 'the first bucket has left');
  window.roll(500_000);
  t.same([window.calls, window.failures, window.slow], [0, 0, 0]);
  window.add(500_000, false, true);
  t.same([window.calls, window.failures, window.slow], [1, 0, 1]);
});

t.test('when to trip: the table', async (t) => {
  const rows: [number, number, number, number, number, string | null, string][] = [
    [9, 9, 9, 10, 1, null, 'too few calls'],
    [10, 4, 0, 10, 1, null, 'below the failure ratio'],
    [10, 5, 0, 10, 1, 'failures', 'exactly the failure ratio'],
    [10, 0, 2, 10, 1, null, 'below the slow ratio'],
    [10, 0, 3, 10, 1, 'slow', 'exactly the slow ratio'],
    [10, 5, 3, 10, 1, 'failures', 'both: failures are named'],
    [10, 0, 0, 10, 1, null, 'all well'],
    [1, 1, 1, 1, 3, null, 'not enough bad ones'],
    [4, 3, 0, 1, 3, 'failures', 'enough bad ones'],
  ];
  for (const [calls, failures, slow, minCalls, minBad, want, name] of rows) {
    t.equal(tripCause(calls, failures, slow, minCalls, minBad, SETTINGS), want, name);
  }
  t.equal(tripCause(100, 7, 0, 10, 1, { ...SETTINGS, failureRatio: 0.07 }), 'failures', '7 of 100 is 7 %');
  t.equal(tripWords('failures', 10, 6, 0, SETTINGS), '6 of 10 calls failed in the last 60 s (limit 50 %)');
  t.equal(tripWords('slow', 20, 0, 7, SETTINGS), '7 of 20 calls took longer than 3 s in the last 60 s (limit 30 %)');
  t.equal(probeLimitMs(200), PROBE_FLOOR_MS);
  t.equal(probeLimitMs(20_000), 40_000);
});

t.test('it opens at half the calls failing, and says so', async (t) => {
  const { breaker, log } = make();
  for (let i = 0; i < 5; i++) call(breaker, i, 'success');
  for (let i = 0; i < 4; i++) call(breaker, i, 'failure');
  t.equal(breaker.stateName, 'closed', 'nine calls are too few');
  call(breaker, 9, 'failure');
  t.equal(breaker.stateName, 'open');
  t.equal(breaker.openedAt, 9);
  t.equal(breaker.reopensAt, 1_009);
  t.match(breaker.why, /^5 of 10 calls failed/);
  t.same(log.moves, ['closed>open']);
  t.equal(call(breaker, 10, 'success'), false, 'nobody passes');
});

t.test('slow calls open it whether they succeed or fail, and a call of exactly the limit is not slow', async (t) => {
  for (const outcome of ['success', 'failure'] as const) {
    const { breaker } = make({ failureRatio: 1 });
    for (let i = 0; i < 14; i++) call(breaker, i, 'success', 3_000);
    for (let i = 0; i < 5; i++) call(breaker, 14, outcome, 3_001);
    t.equal(breaker.stateName, 'closed');
    t.equal(breaker.window.slow, 5);
    call(breaker, 19, outcome, 3_001);
    t.equal(breaker.stateName, 'open', outcome);
    t.match(breaker.why, /took longer than 3 s/);
  }
});

t.test('failures that have left the window do not count', async (t) => {
  const { breaker } = make();
  for (let i = 0; i < 9; i++) call(breaker, 0, 'failure');
  call(breaker, 70_000, 'failure');
  t.equal(breaker.stateName, 'closed');
  t.equal(breaker.window.calls, 1);
});

t.test('C029: fifty callers giving up just before their deadline, told as failures, open it; cancels alone never do', async (t) => {
  const { breaker } = make();
  for (let i = 0; i < 50; i++) call(breaker, i, 'ignored', 50);
  t.equal(breaker.stateName, 'closed');
  t.equal(breaker.window.calls, 0);
  for (let i = 0; i < 50; i++) call(breaker, 100 + i, 'failure', 499);
  t.equal(breaker.stateName, 'open');
});

t.test('C035: calls refused by a local limit, ended without verdict, leave no mark', async (t) => {
  const { breaker } = make();
  for (let i = 0; i < 98; i++) call(breaker, i, 'ignored', 0);
  for (let i = 0; i < 2; i++) call(breaker, i, 'success', 200);
  t.equal(breaker.stateName, 'closed');
  t.same([breaker.window.calls, breaker.window.failures], [2, 0]);
});

t.test('C041: half-open lets in `probes` at once, also in the very tick, and the ramp follows its steps', async (t) => {
  const { breaker } = opened();
  // The provider hangs; callers give up after 2 s. 500 callers a second for 10 s, in ticks of 10 callers.
  let pending: { permit: number; until: number }[] = [];
  let most = 0;
  let admittedInTick = 0;
  for (let now = 20; now <= 10_000; now += 20) {
    breaker.advance(now);
    for (const { permit, until } of pending) if (until <= now) breaker.end(permit, 'failure', 2_000, now);
    pending = pending.filter((p) => p.until > now);
    let admitted = 0;
    for (let caller = 0; caller < 10; caller++) {
      breaker.advance(now);
      const permit = breaker.admit(now);
      if (permit > 0) {
        pending.push({ permit, until: now + 2_000 });
        admitted++;
      }
    }
    admittedInTick = Math.max(admittedInTick, admitted);
    most = Math.max(most, pending.length);
  }
  t.equal(most, 3);
  t.equal(admittedInTick, 3);

  // It heals: every call answers in 100 ms.
  for (const { permit } of pending) breaker.end(permit, 'ignored', 1, 10_000);
  const seen = new Map<string, number>();
  pending = [];
  for (let now = 10_000; now <= 16_000; now += 20) {
    for (const { permit, until } of pending) {
      breaker.advance(now);
      if (until <= now) breaker.end(permit, 'success', 100, now);
    }
    pending = pending.filter((p) => p.until > now);
    for (let caller = 0; caller < 10; caller++) {
      breaker.advance(now);
      const state = breaker.stateName;
      const permit = breaker.admit(now);
      if (permit > 0) pending.push({ permit, until: now + 100 });
      if (state === breaker.stateName) seen.set(state, Math.max(seen.get(state) ?? 0, pending.length));
    }
  }
  t.equal(seen.get('half_open'), 3);
  t.equal(seen.get('ramping'), 4);
  t.ok((seen.get('closed') ?? 0) > 4, 'no limit at the end');
  t.equal(breaker.stateName, 'closed');
});

t.test('the ramp allows ramp[i] calls in flight in step i, probes still under way included', async (t) => {
  const { breaker, log } = opened();
  breaker.advance(1_000);
  const probes = [breaker.admit(1_000), breaker.admit(1_000), breaker.admit(1_000)] as const;
  t.equal(breaker.admit(1_000), 0);
  t.equal(breaker.passage(), 'half_open_full');
  breaker.end(probes[0], 'success', 5, 1_010);
  t.equal(breaker.passage(), 'probe');
  breaker.end(probes[1], 'success', 5, 1_010);
  t.equal(breaker.stateName, 'ramping');
  t.equal(breaker.limitedInFlight, 1, 'the third probe is still out');
  t.ok(breaker.admit(1_011) > 0);
  t.equal(breaker.admit(1_011), 0);
  t.equal(breaker.passage(), 'ramp_full');
  breaker.end(probes[2], 'success', 5, 1_012);
  t.equal(breaker.passage(), 'yes');
  breaker.advance(1_510);
  for (let i = 0; i < 3; i++) t.ok(breaker.admit(1_510) > 0);
  t.equal(breaker.passage(), 'ramp_full', 'four in the second step');
  breaker.advance(2_009.9);
  t.equal(breaker.stateName, 'ramping');
  breaker.advance(2_010);
  t.equal(breaker.stateName, 'closed');
  t.same(log.moves, ['closed>open', 'open>half_open', 'half_open>ramping', 'ramping>closed']);
});

t.test('without a ramp, good probes close it', async (t) => {
  const { breaker, log } = opened({ ramp: [] });
  call(breaker, 1_000, 'success');
  t.equal(breaker.probeSuccesses, 1);
  call(breaker, 1_001, 'success');
  t.same(log.moves, ['closed>open', 'open>half_open', 'half_open>closed']);
  t.equal(breaker.window.calls, 0, 'the window was cleared');
});

function simultaneousFailures(seed: number): string {
  const random = new SeededRandom(seed);
  const { breaker, log } = make({ minCalls: 5, successes: 1, probes: 1 });
  const state = (): string => breaker.stateName;
  let now = 0;
  const out: number[] = [];
  for (let i = 0; i < 50; i++) out.push(breaker.admit(now));
  // Ends come in any order: in the same tick, while open, beside the probe, after the recovery.
  for (let i = out.length - 1; i > 0; i--) {
    const j = Math.floor(random.next() * (i + 1));
    [out[i], out[j]] = [out[j] as number, out[i] as number];
  }
  const late = out.splice(0, Math.floor(random.next() * 40));
  for (const permit of out) breaker.end(permit, 'failure', 10, now);
  const reopensAt = breaker.reopensAt;
  if (reopensAt !== 1_000) return `not open: ${state()}`;
  for (let n = Math.floor(late.length * random.next()); n > 0; n--) {
    now = Math.min(999, now + random.next() * 50);
    breaker.advance(now);
    breaker.end(late.pop() as number, 'failure', 10, now);
    if (breaker.reopensAt !== reopensAt) return 'a late end moved the open period';
  }
  now = 1_000;
  breaker.advance(now);
  if (breaker.passage() !== 'probe') return `${breaker.passage()} after the open time`;
  const probe = breaker.admit(now);
  for (const permit of late.splice(0, Math.floor(late.length / 2))) breaker.end(permit, 'failure', 10, now);
  if (state() !== 'half_open') return 'a late end disturbed the probe';
  breaker.end(probe, 'success', 5, now);
  for (const permit of late.splice(0, Math.floor(late.length / 2))) breaker.end(permit, 'failure', 10, now);
  if (state() !== 'ramping') return 'a late end disturbed the ramp';
  breaker.advance(now + 1_000);
  for (const permit of late) breaker.end(permit, 'failure', 10, now + 1_000);
  return state() === 'closed' && breaker.window.failures === 0 ? '' : `${state()}: ${log.moves.join(' ')}`;
}

t.test('C042: fifty failures in one tick, in every order, never keep it from recovering (200 seeds)', async (t) => {
  t.same(failing(200, simultaneousFailures), []);
});

function anyTraffic(seed: number): string {
  const random = new SeededRandom(seed);
  const { breaker, log } = make({ probes: 1 + Math.floor(random.next() * 3), minCalls: 4 });
  const probes = breaker.settings.probes;
  let now = 0;
  /** Permits not ended, given since it opened last; the forgotten ones among them. */
  const valid = new Set<number>();
  let out: { permit: number; at: number }[] = [];
  let opened = 0;
  const noticeOpening = (): void => {
    const times = log.moves.filter((move) => move.endsWith('>open')).length;
    if (times !== opened) valid.clear();
    opened = times;
  };
  for (let step = 0; step < 400; step++) {
    now += random.next() * (random.next() < 0.02 ? 40_000 : 120);
    breaker.advance(now);
    noticeOpening();
    if (breaker.stateName !== 'closed' && breaker.dueAt <= now) return 'something overdue has not happened';
    if (random.next() < 0.6) {
      const passage = breaker.passage();
      const permit = breaker.admit(now);
      if (permit > 0 !== (passage === 'yes' || passage === 'probe')) return `admit and passage disagree: ${passage}`;
      if (permit > 0) {
        out.push({ permit, at: now });
        valid.add(permit);
      }
    }
    if (out.length > 0 && random.next() < 0.6) {
      const one = out.splice(Math.floor(random.next() * out.length), 1)[0] as { permit: number; at: number };
      const dice = random.next();
      valid.delete(one.permit);
      breaker.end(one.permit, dice < 0.6 ? 'success' : dice < 0.8 ? 'failure' : 'ignored', now - one.at, now);
      noticeOpening();
    }
    if (random.next() < 0.02) out = []; // callers that forget
    const limited = breaker.stateName === 'half_open' || breaker.stateName === 'ramping';
    if (breaker.stateName === 'half_open' && breaker.limitedInFlight > probes) return `${breaker.limitedInFlight} probes`;
    if (limited && breaker.limitedInFlight !== valid.size) return `${breaker.limitedInFlight} places for ${valid.size} calls`;
    if (breaker.stateName === 'closed' && breaker.passage() !== 'yes') return 'closed and refusing';
  }
  // Everybody forgets: a provider healthy from now on is in full use within twice (open time + probe limit) + ramp.
  const until = now + 2 * (1_000 + PROBE_FLOOR_MS) + 2_000;
  for (; now < until; now += 50) call(breaker, now, 'success');
  return breaker.stateName === 'closed' ? '' : `never recovered (${breaker.stateName})`;
}

t.test('whatever calls do, places in use are calls in flight, and time brings it back (300 seeds)', async (t) => {
  t.same(failing(300, anyTraffic), []);
});

t.test('C043: a probe that ends in any way, or never, does not block the breaker', async (t) => {
  const ways: [string, 'success' | 'failure' | 'ignored' | null][] = [
    ['404', 'success'],
    ['body truncated', 'failure'],
    ['caller cancels', 'ignored'],
    ['provider hangs, nobody ends it', null],
    ['adapter throws', 'failure'],
  ];
  for (const [name, outcome] of ways) {
    const { breaker } = opened({ probes: 1, successes: 1 });
    breaker.advance(1_000);
    const probe = breaker.admit(1_000);
    t.ok(probe > 0);
    if (outcome !== null) breaker.end(probe, outcome, 20, 1_020);
    let flowsAt = 0;
    for (let now = 2_000; now <= 60_000 && flowsAt === 0; now += 1_000) if (call(breaker, now, 'success')) flowsAt = now;
    t.ok(flowsAt > 0 && flowsAt <= 1_000 + 1_000 + PROBE_FLOOR_MS + 1_000, `${name}: flows again at ${flowsAt} ms`);
    const state = breaker.stateName;
    breaker.end(probe, 'failure', 50_000, flowsAt + 1);
    t.equal(breaker.stateName, state, `${name}: a late or second end changes nothing`);
  }
});

t.test('a lost probe counts from the instant it fell due, even when noticed much later', async (t) => {
  const { breaker, log } = opened({ probes: 1, successes: 1 });
  breaker.advance(1_000);
  t.ok(breaker.admit(1_000) > 0);
  breaker.advance(1_000 + PROBE_FLOOR_MS - 1);
  t.equal(breaker.stateName, 'half_open');
  breaker.advance(1_000 + PROBE_FLOOR_MS);
  t.equal(breaker.stateName, 'open');
  t.match(breaker.why, /no answer within 30 s/);
  breaker.advance(2_000 + PROBE_FLOOR_MS);
  t.ok(breaker.admit(2_000 + PROBE_FLOOR_MS) > 0, 'next probe');
  breaker.advance(3_600_000);
  t.equal(breaker.passage(), 'probe', 'an hour later the open period is long over: this call is the probe');
  t.same(log.moves.slice(-2), ['half_open>open', 'open>half_open']);
});

t.test('a long stream that shows signs of life is no lost probe', async (t) => {
  const { breaker } = opened({ probes: 1, successes: 1 });
  breaker.advance(1_000);
  const probe = breaker.admit(1_000);
  for (let now = 20_000; now <= 200_000; now += 20_000) {
    breaker.advance(now);
    breaker.progress(probe, now);
  }
  t.equal(breaker.stateName, 'half_open');
  t.equal(breaker.passage(), 'half_open_full');
  breaker.end(probe, 'success', 300, 200_001);
  t.equal(breaker.stateName, 'ramping');
});

t.test('C044: a probe refused by another gate gives its place back and the next call probes', async (t) => {
  const { breaker, log } = opened({ probes: 1, successes: 1 });
  breaker.advance(1_000);
  const rooms = log.rooms;
  const permit = breaker.admit(1_000);
  t.equal(breaker.passage(), 'half_open_full');
  breaker.end(permit, 'ignored', 0, 1_000);
  t.equal(breaker.passage(), 'probe');
  t.ok(log.rooms >= rooms + 2, 'readers were told both times');
  t.ok(call(breaker, 1_001, 'success'));
  t.equal(breaker.stateName, 'ramping');
});

t.test('C044: looking takes no place', async (t) => {
  const { breaker } = opened({ probes: 1 });
  breaker.advance(1_000);
  for (let i = 0; i < 100; i++) t.equal(breaker.passage(), 'probe');
  t.ok(breaker.admit(1_000) > 0);
});

t.test('C046: a 400 from a probe counts as an answer, a cancel as nothing', async (t) => {
  const { breaker } = opened({ probes: 1, successes: 1 });
  call(breaker, 1_000, 'ignored');
  t.equal(breaker.stateName, 'half_open');
  call(breaker, 1_001, 'success');
  t.equal(breaker.stateName, 'ramping');
});

t.test('one failed or one slow probe opens it again, for a whole open period', async (t) => {
  for (const [outcome, durationMs, why] of [
    ['failure', 5, /^a probe failed/],
    ['success', 3_001, /^a probe took 3 s/],
  ] as const) {
    const { breaker } = opened();
    breaker.advance(1_000);
    const [good, bad, other] = [breaker.admit(1_000), breaker.admit(1_000), breaker.admit(1_000)] as const;
    breaker.end(good, 'success', 5, 1_100);
    breaker.end(bad, outcome, durationMs, 1_200);
    t.equal(breaker.stateName, 'open');
    t.match(breaker.why, why);
    t.equal(breaker.reopensAt, 2_200);
    breaker.end(other, 'failure', 5, 1_300);
    t.equal(breaker.reopensAt, 2_200, 'the third probe belongs to the time before');
  }
});

t.test('C047: a healed provider passes its next three calls once the open time is over', async (t) => {
  const { breaker } = make({ minCalls: 6 });
  for (let i = 0; i < 6; i++) call(breaker, 0, 'failure');
  t.equal(breaker.stateName, 'open');
  for (let i = 0; i < 3; i++) t.ok(call(breaker, 1_000 + i, 'success'));
  t.equal(breaker.stateName, 'ramping');
});

t.test('C050: five failed attempts of a window of five open it', async (t) => {
  const { breaker } = make({ minCalls: 5, failureRatio: 1 });
  for (let i = 0; i < 4; i++) call(breaker, i, 'failure');
  t.equal(breaker.stateName, 'closed');
  call(breaker, 4, 'failure');
  t.equal(breaker.stateName, 'open');
});

t.test('the ramp opens it again on failures in a row or on a reached ratio, not on one stray error in a thousand', async (t) => {
  const ramp = (changes: Partial<BreakerSettings> = {}): Breaker => {
    const { breaker } = opened({ rampStepMs: 10_000, ...changes });
    call(breaker, 1_000, 'success');
    call(breaker, 1_000, 'success');
    return breaker;
  };
  const dead = ramp();
  t.equal(dead.stateName, 'ramping');
  for (let i = 0; i < 500; i++) call(dead, 1_001, 'success');
  call(dead, 1_002, 'failure');
  call(dead, 1_002, 'success', 3_500);
  t.equal(dead.stateName, 'ramping', 'two in a row');
  call(dead, 1_002, 'failure');
  t.equal(dead.stateName, 'open', 'three in a row, slow ones included');
  t.match(dead.why, /^3 calls in a row/);

  const half = ramp();
  for (const outcome of ['failure', 'success', 'failure', 'success'] as const) call(half, 1_001, outcome);
  t.equal(half.stateName, 'ramping', 'two bad ones are too few');
  call(half, 1_001, 'failure');
  t.equal(half.stateName, 'open');
  t.match(half.why, /^while ramping up, 3 of 5 calls failed/);

  const stray = ramp({ probes: 1 });
  for (let i = 0; i < 5_000; i++) call(stray, 1_001 + i, i % 100 === 50 ? 'failure' : 'success');
  t.equal(stray.stateName, 'ramping', 'one in a hundred');
  stray.advance(30_000);
  t.equal(stray.stateName, 'closed');
});

t.test('switched off it admits all, measures, and never opens; switching off closes it, switching on keeps the samples', async (t) => {
  const { breaker, log } = make({ enabled: false });
  for (let i = 0; i < 50; i++) t.ok(call(breaker, i, 'failure'));
  t.equal(breaker.stateName, 'closed');
  t.equal(breaker.window.failures, 50);
  breaker.configure({ ...SETTINGS, enabled: true }, 60);
  t.equal(breaker.window.failures, 50);
  call(breaker, 61, 'failure');
  t.equal(breaker.stateName, 'open');
  breaker.configure({ ...SETTINGS, enabled: false }, 62);
  t.equal(breaker.passage(), 'yes');
  t.same(log.moves, ['closed>open', 'open>closed']);
});

t.test('C074: new settings keep state, samples and probes; a new open time holds for the period under way', async (t) => {
  const { breaker } = make();
  for (let i = 0; i < 9; i++) call(breaker, 0, 'failure');
  breaker.configure({ ...SETTINGS, windowMs: 30_000 }, 1);
  t.equal(breaker.window.failures, 9);
  call(breaker, 2, 'failure');
  t.equal(breaker.stateName, 'open');
  breaker.configure({ ...SETTINGS, openMs: 5_000 }, 3);
  t.equal(breaker.openedAt, 2);
  t.equal(breaker.reopensAt, 5_002);
  breaker.configure({ ...SETTINGS, openMs: 100 }, 500);
  t.equal(breaker.stateName, 'half_open', 'the shorter period is over already');
  const probe = breaker.admit(500);
  breaker.configure({ ...SETTINGS, probes: 1 }, 501);
  t.equal(breaker.passage(), 'half_open_full');
  breaker.end(probe, 'success', 5, 502);
  t.equal(breaker.probeSuccesses, 1);
});

t.test(
  'C053: a forced call of panic mode passes an open breaker and its end changes nothing; where a place is free it counts',
  async (t) => {
    const { breaker } = opened();
    const forced = breaker.force(10);
    t.ok(forced > 0);
    breaker.end(forced, 'failure', 5, 20);
    breaker.end(forced, 'success', 5, 20);
    t.equal(breaker.stateName, 'open');
    t.equal(breaker.reopensAt, 1_000);
    breaker.advance(1_000);
    for (let i = 0; i < 2; i++) breaker.end(breaker.force(1_000), 'success', 5, 1_000);
    t.equal(breaker.stateName, 'ramping');
  },
);
