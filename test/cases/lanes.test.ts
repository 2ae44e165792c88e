/**
 * Priority lanes: what gets which share of the starts, and that a message keeps its lane when it is tried again. Casts through a
 * sender's sidecar, a real nats-server and control plane; long times on a virtual clock.
 */
import t, { type Test } from 'tap';
import type { TestAgent } from '../support/agent.ts';
import { DeliverRig, deliverTable } from '../support/deliver-rig.ts';
import { cast, Fleet, knows } from '../support/fleet.ts';
import { takeBase } from '../support/invariants.ts';
import type { Rig } from '../support/rig.ts';
import { waitUntil } from '../support/settle.ts';
import { agentOf, FAST, finishFleet, NONE, WORK as NAME, workerProcess, workTable as tableOf } from '../support/workers.ts';

t.setTimeout(118_000);
const before = takeBase();
const sleep = (ms: number): Promise<void> => new Promise((done) => setTimeout(done, ms));

/** As `finishFleet`, from where this file began. */
function finish(t: Test, fleet: Fleet, rigs: readonly Rig[], counts: readonly (readonly [TestAgent, number])[]): Promise<void> {
  return finishFleet(t, before, fleet, rigs, counts);
}

t.test('C090 a message keeps its lane: the next try of a high one is among the first ten starts after its pause', async (t) => {
  const fleet = await Fleet.start(t, '  messages: {ack_wait: 2s}\n');
  const started: { urgent: boolean; at: number }[] = [];
  let failing = true;
  const agent = await agentOf(t, 'only', async (request) => {
    const { urgent } = request.json as { urgent: boolean };
    started.push({ urgent, at: performance.now() });
    await sleep(3);
    if (!urgent || !failing) return { body: { ok: true } };
    failing = false;
    return { status: 500, body: { why: 'once' } };
  });
  const worker = await fleet.sidecar('worker', tableOf('worker', [['crm.order.1', agent]], 'idempotent', ', limits: {per_provider: 1}'));
  const sender = await fleet.sidecar('sender', NONE, FAST);
  await knows(sender, NAME);
  // More than the thousand of the input wait when the pause is over.
  await Promise.all(Array.from({ length: 1_700 }, (_, n) => cast(sender, NAME, { urgent: false, n }, { 'reach-priority': 'low' })));
  const task = await cast(sender, NAME, { urgent: true }, { 'reach-priority': 'high' });
  await waitUntil('the high one was tried twice', () => started.filter(({ urgent }) => urgent).length === 2, 30_000);
  t.ok((await fleet.queued()) > 100, 'low ones wait all the while');
  const [first, second] = started.filter(({ urgent }) => urgent) as unknown as [{ at: number }, { at: number }];
  const pause = second.at - first.at;
  t.ok(pause >= 1_000, `after its pause: ${pause.toFixed(0)} ms`);
  // By chance the pause is up to a fifth longer than the second.
  const between = started.filter(({ urgent, at }) => !urgent && at > first.at + 1_000 * 1.2 + 20 && at < second.at).length;
  t.ok(between <= 10, `${between} low ones began after its pause and before it`);
  await fleet.emptied(60_000);
  t.strictSame(await fleet.statesOf(task), ['done']);
  await finish(t, fleet, [worker, sender], [[agent, 1_702]]);
});

t.test('C090 the same when the worker is killed while it has a high one', async (t) => {
  const fleet = await Fleet.start(t, '  messages: {ack_wait: 2s}\n');
  const started: { urgent: boolean; at: number }[] = [];
  let letGo = (): void => undefined;
  const held = new Promise<void>((done) => (letGo = done));
  const agent = await agentOf(t, 'only', async (request) => {
    const { urgent } = request.json as { urgent: boolean };
    started.push({ urgent, at: performance.now() });
    if (urgent) await held;
    await sleep(3);
    return { body: { ok: true } };
  });
  const table = tableOf('worker', [['crm.order.1', agent]], 'idempotent', ', limits: {per_provider: 1}');
  const worker = workerProcess(t, fleet, 'worker', table);
  const first = worker.start();
  const sender = await fleet.sidecar('sender', NONE, FAST);
  await knows(sender, NAME);
  const task = await cast(sender, NAME, { urgent: true }, { 'reach-priority': 'high' });
  await waitUntil('the worker has the high one', () => started.length === 1, 10_000);
  await Promise.all(Array.from({ length: 1_500 }, (_, n) => cast(sender, NAME, { urgent: false, n }, { 'reach-priority': 'low' })));
  first.signal('SIGKILL');
  await first.ended();
  const killedAt = performance.now();
  letGo();
  const second = worker.start();
  await waitUntil('the high one is tried again', () => started.filter(({ urgent }) => urgent).length === 2, 40_000);
  const again = started.filter(({ urgent }) => urgent)[1] as { at: number };
  // It cannot be delivered before the ack wait is over, which began with the last word of the killed one.
  const between = started.filter(({ urgent, at }) => !urgent && at > killedAt + 2_000 + 100 && at < again.at).length;
  t.ok(between <= 10, `${between} low ones began when it could be had and before it`);
  await fleet.emptied(60_000);
  t.strictSame(await fleet.statesOf(task), ['done']);
  await second.stop();
  await finish(t, fleet, [sender], [[agent, started.length]]);
  t.ok(started.length >= 1_502 && started.length <= 1_503, `what was in hand at the kill began again, and nothing else: ${started.length}`);
});

t.test('C091 lanes: 60, 30 and 10 of a hundred over any 10 s, no idle share, and no starving with one slot', async (t) => {
  const JOB = 'latency: 50ms, body: {ok: true}';
  const LANES = ['high', 'normal', 'low'] as const;
  type LaneName = (typeof LANES)[number];
  /** The input on a virtual clock at its full length: when each message ended, and of which lane it was. */
  const run = async (
    slots: number,
    forMs: number,
    lanes: Readonly<Record<LaneName, number>>,
  ): Promise<{ at: number; lane: LaneName }[]> => {
    const rig = new DeliverRig(deliverTable({ 'crm.order.1': JOB }), ['crm.order.1'], { concurrency: slots });
    const laneOf = new Map<string, LaneName>();
    for (const lane of LANES) for (let i = 0; i < lanes[lane]; i++) laneOf.set(rig.send({ lane }), lane);
    const ended: { at: number; lane: LaneName }[] = [];
    await rig.pass(
      forMs,
      () => {
        for (; ended.length < rig.events.length; )
          ended.push({ at: rig.clock.now(), lane: laneOf.get(rig.events[ended.length]?.event.task_id as string) as LaneName });
        return false;
      },
      5,
    );
    await rig.stop();
    return ended;
  };
  const shares = (ended: readonly { lane: LaneName }[]): number[] =>
    LANES.map((lane) => (100 * ended.filter((each) => each.lane === lane).length) / ended.length);

  const full = await run(10, 60_000, { high: 8_000, normal: 4_200, low: 1_600 });
  for (let from = 0; from + 10_000 <= 60_000; from += 2_500) {
    const window = full.filter(({ at }) => at >= from && at < from + 10_000);
    const [high, normal, low] = shares(window) as [number, number, number];
    const isFair = Math.abs(high - 60) <= 3 && Math.abs(normal - 30) <= 3 && Math.abs(low - 10) <= 3;
    t.ok(isFair, `from ${from} ms: ${high.toFixed(1)}, ${normal.toFixed(1)}, ${low.toFixed(1)} of a hundred`);
  }
  const lows = full.filter(({ lane }) => lane === 'low').map(({ at }) => at);
  const longest = Math.max(...lows.map((at, i) => at - (lows[i - 1] ?? 0)));
  t.ok(longest <= 500, `a low one ends at the latest after ${longest.toFixed(0)} ms: ten slots, every tenth start`);

  const without = await run(10, 10_000, { high: 0, normal: 2_000, low: 1_000 });
  t.ok(without.length >= 0.95 * full.filter(({ at }) => at < 10_000).length, `its share goes to the others: ${without.length} in 10 s`);
  t.ok(without.length >= 0.95 * 2_000, 'of two thousand that ten slots can do');
  const [none, normal, low] = shares(without) as [number, number, number];
  t.ok(none === 0 && Math.abs(normal - 75) <= 3 && Math.abs(low - 25) <= 3, `${normal.toFixed(1)} and ${low.toFixed(1)} of a hundred`);

  const one = await run(1, 20_000, { high: 400, normal: 400, low: 400 });
  t.ok(Math.abs((shares(one)[2] as number) - 10) <= 3, `with one slot low has ${(shares(one)[2] as number).toFixed(1)} of a hundred`);
  t.ok(one.length >= 0.95 * 400, `and the slot is used: ${one.length} of 400`);

  // The same against a real server, scaled to a second and a half a window: jobs of 5 ms.
  const fleet = await Fleet.start(t);
  const started: LaneName[] = [];
  const agent = await agentOf(t, 'only', async (request) => {
    started.push((request.json as { lane: LaneName }).lane);
    await sleep(5);
    return { body: { ok: true } };
  });
  const sender = await fleet.sidecar(
    'sender',
    tableOf('worker', [['crm.order.1', agent]], 'idempotent').replace(/providers:[^]*/, 'providers: []\n'),
    FAST,
  );
  const worker = await fleet.sidecar('worker', tableOf('worker', [['crm.order.1', agent]], 'idempotent', ', limits: {per_provider: 10}'));
  await knows(sender, NAME);
  let isBusy = true;
  const blocker = agent;
  blocker.behaviour = async (request) => {
    const { lane } = request.json as { lane: LaneName };
    while (isBusy) await sleep(5);
    started.push(lane);
    await sleep(5);
    return { body: { ok: true } };
  };
  const wanted: Readonly<Record<LaneName, number>> = { high: 720, normal: 360, low: 360 };
  for (const lane of LANES)
    await Promise.all(Array.from({ length: wanted[lane] }, () => cast(sender, NAME, { lane }, { 'reach-priority': lane })));
  isBusy = false;
  await fleet.emptied(60_000);
  // The first ones were started while only their lane had something.
  for (const from of [50, 250, 450]) {
    const window = started.slice(from, from + 500).map((lane) => ({ lane }));
    const [h, n, l] = shares(window) as [number, number, number];
    t.ok(
      Math.abs(h - 60) <= 3 && Math.abs(n - 30) <= 3 && Math.abs(l - 10) <= 3,
      `on a real server: ${h.toFixed(1)}, ${n.toFixed(1)}, ${l.toFixed(1)}`,
    );
  }
  await finish(t, fleet, [worker, sender], [[agent, 1_440]]);
});
