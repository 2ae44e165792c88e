import t from 'tap';
import { SeededRandom } from '../../../../base/random.ts';
import { DEFAULT_SETTINGS } from '../../../../proto/language/defaults.ts';
import { Breaker, type BreakerDump, type BreakerListener } from '../../../../sidecar/health/breaker.ts';
import { Window } from '../../../../sidecar/health/window.ts';

const NOBODY: BreakerListener = { breakerMoved: () => undefined, roomChanged: () => undefined };
const SETTINGS = {
  ...DEFAULT_SETTINGS.breaker,
  minCalls: 5,
  failureRatio: 0.5,
  openMs: 1_000,
  probes: 1,
  successes: 2,
  ramp: [1, 2],
  rampStepMs: 500,
};

/** As a file gives it back. */
function written(dump: BreakerDump): BreakerDump {
  return JSON.parse(JSON.stringify(dump)) as BreakerDump;
}

t.test('a window goes on from what was written of it, whenever that was', (t) => {
  const random = new SeededRandom(7);
  for (let run = 0; run < 50; run++) {
    const first = new Window(1_000);
    let second = new Window(1_000);
    let now = 0;
    const seen: [number[], number[]] = [[], []];
    for (let step = 0; step < 60; step++) {
      now += random.next() * 150;
      const [failed, slow] = [random.next() < 0.3, random.next() < 0.2];
      first.add(now, failed, slow);
      second.add(now, failed, slow);
      if (random.next() < 0.3) {
        const dump = second.dump();
        second = new Window(1_000);
        second.restore(dump === null ? null : (JSON.parse(JSON.stringify(dump)) as typeof dump));
      }
      const later = now + random.next() * 400;
      if (random.next() < 0.3) {
        first.roll(later);
        second.roll(later);
        now = later;
      }
      for (const [i, { calls, failures, slow }] of [first, second].entries()) seen[i as 0 | 1].push(calls, failures, slow);
    }
    t.strictSame(seen[1], seen[0], `run ${run}`);
    t.ok(Math.max(...seen[0]) > 3, 'and there is something in it');
  }
  t.end();
});

t.test('a breaker goes on from what was written of it through every state', (t) => {
  const random = new SeededRandom(11);
  const seen = new Set<string>();
  for (let run = 0; run < 100; run++) {
    const first = new Breaker(SETTINGS, NOBODY);
    let second = new Breaker(SETTINGS, NOBODY);
    let now = 0;
    for (let step = 0; step < 80; step++) {
      now += random.next() * 200;
      const outcome = random.next() < (step % 40 < 20 ? 0.7 : 0.05) ? 'failure' : 'success';
      for (const breaker of [first, second]) {
        breaker.advance(now);
        const permit = breaker.admit(now);
        if (permit > 0) breaker.end(permit, outcome, 10, now);
      }
      if (random.next() < 0.3) {
        const dump = written(second.dump());
        second = new Breaker(SETTINGS, NOBODY);
        second.restore(dump);
      }
      seen.add(first.stateName);
      const [was, is] = [first, second].map(
        (each) => `${each.stateName} ${each.why} ${each.dueAt} ${each.window.calls} ${each.window.failures} ${each.passage()}`,
      );
      if (was !== is) return void t.fail(`run ${run}, step ${step}: ${was}, but ${is}`);
    }
  }
  t.strictSame([...seen].sort(), ['closed', 'half_open', 'open', 'ramping']);
  t.end();
});

t.test('under other settings the samples at hand open a closed breaker, or close an open one, and say why', (t) => {
  const lenient = { ...SETTINGS, failureRatio: 0.9 };
  const breaker = new Breaker(lenient, NOBODY);
  for (let i = 0; i < 10; i++) breaker.end(breaker.admit(i), i % 2 === 0 ? 'failure' : 'success', 10, i);
  t.equal(breaker.stateName, 'closed');
  const strict = new Breaker({ ...SETTINGS, failureRatio: 0.4 }, NOBODY);
  strict.restore(written(breaker.dump()));
  t.equal(strict.rejudge(20, breaker.isBad(20)), true);
  t.match([strict.stateName, strict.why, strict.reopensAt], ['open', /^5 of 10 calls failed/, 1_020]);
  const back = new Breaker(lenient, NOBODY);
  back.restore(written(strict.dump()));
  t.equal(back.rejudge(30, strict.isBad(30)), true);
  t.equal(back.stateName, 'closed');
  t.equal(back.rejudge(30, true), false, 'there is nothing more to say');
  const off = new Breaker({ ...SETTINGS, enabled: false }, NOBODY);
  off.restore(written(strict.dump()));
  off.rejudge(30, strict.isBad(30));
  t.equal(off.stateName, 'closed', 'one that is switched off lets everything pass');
  for (const state of ['half_open', 'ramping'] as const) {
    const probed = new Breaker(SETTINGS, NOBODY);
    probed.restore(written(strict.dump()));
    probed.advance(1_020);
    if (state === 'ramping') while (probed.stateName === 'half_open') probed.end(probed.admit(1_021), 'success', 10, 1_021);
    t.equal(probed.stateName, state);
    off.restore(written(probed.dump()));
    t.equal(off.rejudge(1_030, false), true, `from ${state} too`);
    t.equal(off.stateName, 'closed');
  }
  t.end();
});

t.test('under other settings one that a probe opened stays open: its few samples were no evidence, and are none', (t) => {
  const breaker = new Breaker(SETTINGS, NOBODY);
  for (let i = 0; i < 10; i++) breaker.end(breaker.admit(i), 'failure', 10, i);
  const openFor = SETTINGS.openMs;
  breaker.advance(100_000);
  breaker.end(breaker.admit(100_000), 'failure', 10, 100_000);
  t.match([breaker.stateName, breaker.why], ['open', 'a probe failed']);
  for (const other of [{ failureRatio: 0.2 }, { failureRatio: 0.9 }, { minCalls: 50 }]) {
    const now = new Breaker({ ...SETTINGS, ...other }, NOBODY);
    now.restore(written(breaker.dump()));
    t.equal(now.rejudge(100_000 + openFor / 2, breaker.isBad(100_000 + openFor / 2)), false);
    t.equal(now.stateName, 'open');
  }
  t.end();
});
