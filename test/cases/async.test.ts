/**
 * Asynchronous work and priority lanes: casts through a sender's sidecar, a real nats-server and control plane, workers' sidecars in
 * this process or, where they are to stand still or be killed, in one of their own. What was carried out is counted at the agents.
 */
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import t, { type Test } from 'tap';
import { TestAgent } from '../support/agent.ts';
import { DeliverRig, deliverTable } from '../support/deliver-rig.ts';
import { cast, Fleet, knows } from '../support/fleet.ts';
import { assertQuiet, takeBase } from '../support/invariants.ts';
import type { Rig } from '../support/rig.ts';
import { waitUntil } from '../support/settle.ts';
import { type Program, startProgram } from '../support/sockets.ts';

t.setTimeout(118_000);
const before = takeBase();
const NAME = 'crm.order.query';
const sleep = (ms: number): Promise<void> => new Promise((done) => setTimeout(done, ms));
/** A sender that may submit as fast as a test can. */
const FAST = '  messages: {rate: {per_sec: 100000, burst: 100000}}\n';

function tableOf(sidecar: string, agents: readonly (readonly [string, TestAgent])[], execution: string, more = ''): string {
  const providers = agents.map(
    ([id, agent]) => `  - {agent_id: ${id}, offers: [${NAME}@1.0.0], via: ${sidecar}, endpoint: {type: http, address: "${agent.url}"}}\n`,
  );
  return `contracts: [{name: ${NAME}, version: 1.0.0, description: x, acl: public, execution: ${execution}${more}}]\nproviders:\n${providers.join('')}`;
}

async function agentOf(t: Test, name: string, behaviour?: Parameters<typeof TestAgent.listen>[1]): Promise<TestAgent> {
  const agent = await TestAgent.listen(name, behaviour);
  t.teardown(() => agent.close());
  return agent;
}

/** A worker's sidecar in a process of its own. */
function workerProcess(t: Test, fleet: Fleet, name: string, table: string, settings = ''): { start(): Program } {
  const folder = mkdtempSync(join(tmpdir(), 'reach-worker-'));
  t.teardown(() => rmSync(folder, { recursive: true, force: true }));
  writeFileSync(join(folder, 'table.yaml'), table);
  writeFileSync(
    join(folder, 'sidecar.yaml'),
    `sidecar:\n  name: ${name}\n  listen: 127.0.0.1:0\n  table: ./table.yaml\n  log: {level: info}\n  mesh: {listen: "127.0.0.1:0", token: token-of-the-mesh}\n${fleet.registryLines()}${settings}`,
  );
  return {
    start: () => {
      const program = startProgram('sidecar/main.ts', ['run', join(folder, 'sidecar.yaml')]);
      t.teardown(async () => {
        program.signal('SIGCONT');
        program.signal('SIGKILL');
        await program.ended();
      });
      return program;
    },
  };
}

/** Nothing is left in the queue or in hand, nothing open, and the agents were asked as often as said. */
async function finish(t: Test, fleet: Fleet, rigs: readonly Rig[], counts: readonly (readonly [TestAgent, number])[]): Promise<void> {
  t.equal(await fleet.queued(), 0, 'nothing is left in the queue');
  for (const rig of rigs) {
    await waitUntil('calls under way have ended', () => rig.quiet.inFlight() === 0, 5_000).catch(() => undefined);
    t.equal(rig.started.front.work?.inHand, 0, 'no message is in hand');
    await rig.stop();
  }
  for (const [agent] of counts) await agent.close();
  await fleet.plane.control.stop(0);
  await fleet.bus.close();
  await fleet.nats.stop();
  await assertQuiet(t, {
    before,
    engines: rigs.map((rig) => rig.quiet),
    providers: counts.map(([agent, expected]) => ({ name: agent.name, count: () => agent.executions, expected })),
  });
}

// Input: ack wait 5 s, standstill 20 s; a quarter of it here, with the claims' lease of 15 s in the same proportion.
for (const [kind, headers] of [
  ['keyed', { 'idempotency-key': 'order-4711' }],
  ['idempotent', {}],
] as const) {
  t.test(`C089 slow, not dead: a worker that stood still does not end a task that another one has done (${kind})`, async (t) => {
    const fleet = await Fleet.start(t, '  messages: {ack_wait: 2s}\n');
    // The same agent behind both sidecars would be two agents; each has its own, and they count together.
    const slow = await agentOf(t, 'slow', async () => {
      await sleep(1_500);
      return { body: { by: 'slow' } };
    });
    const quick = await agentOf(t, 'quick', () => ({ body: { by: 'quick' } }));
    const CLAIMS = '  claims: {lease: 4s}\n';
    const frozen = workerProcess(t, fleet, 'frozen', tableOf('frozen', [['crm.order.1', slow]], kind), CLAIMS).start();
    const sender = await fleet.sidecar('sender', 'contracts: []\nproviders: []\n', FAST);
    await knows(sender, NAME);
    const task = await cast(sender, NAME, { n: 1 }, headers);
    await waitUntil('the worker has it', () => slow.executions === 1, 10_000);
    const other = await fleet.sidecar('other', tableOf('other', [['crm.order.2', quick]], kind), CLAIMS);
    await knows(sender, NAME, 2);
    frozen.signal('SIGSTOP');
    const stoodAt = performance.now();
    await waitUntil('another one has done it', () => quick.executions === 1, 20_000);
    await fleet.emptied(10_000);
    await sleep(Math.max(0, 5_500 - (performance.now() - stoodAt)));
    frozen.signal('SIGCONT');
    await frozen.said(/what came of a task is not taken/, 10_000);
    await sleep(300);
    const finals = (await fleet.finals()).filter(({ event }) => event.task_id === task);
    t.equal(finals.length, 1, 'one stored result');
    t.match(finals[0], { event: { state: 'done', by: 'crm.order.2', replay: false }, body: '{"by":"quick"}' });
    const keys = [...slow.requests, ...quick.requests].map((request) => request.headers['idempotency-key']);
    t.equal(keys.length, 2);
    t.ok(keys[0] !== undefined && keys[0] === keys[1], 'both saw the same key');
    if (kind === 'keyed') t.equal(keys[0], 'order-4711');
    await frozen.stop();
    await finish(
      t,
      fleet,
      [sender, other],
      [
        [slow, 1],
        [quick, 1],
      ],
    );
  });
}

// Variant of C089: there are no casts for a later time; what waits longer than the ack wait is a failed one before its next try.
t.test('C089 what waits for its next try longer than the ack wait is tried once, not once an ack wait', async (t) => {
  const rig = new DeliverRig(deliverTable({ 'crm.order.1': 'behaviours: [{after: 0, until: 6, status: 500}], body: {ok: true}' }), [
    'crm.order.1',
  ]);
  const task = rig.send({ kind: 'idempotent' });
  await rig.pass(120_000, () => rig.queue.left() === 0, 50);
  t.strictSame(rig.stateOf(task), ['done']);
  t.equal(rig.rig.executions('crm.order.1'), 7, 'the last pause was 32 s and more, with an ack wait of 20 s');
  await rig.stop();
});

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
  const sender = await fleet.sidecar('sender', 'contracts: []\nproviders: []\n', FAST);
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
  const sender = await fleet.sidecar('sender', 'contracts: []\nproviders: []\n', FAST);
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

t.test('C093 giving up looks the same from everywhere: status, events, dead letters, alert', async (t) => {
  const fleet = await Fleet.start(t);
  const agent = await agentOf(t, 'crashing', (_request, response) => {
    response.socket?.destroy();
    return undefined;
  });
  const worker = await fleet.sidecar('worker', tableOf('worker', [['crm.order.1', agent]], 'keyed'), '  messages: {work: {tries: 3}}\n');
  const sender = await fleet.sidecar('sender', 'contracts: []\nproviders: []\n');
  await knows(sender, NAME);
  const task = await cast(sender, NAME, { n: 1 });
  let hang = (): void => undefined;
  const hangUp = new Promise<void>((done) => (hang = done));
  t.teardown(() => hang());
  const watching = sender.ask(`/v1/tasks/${task}`, { headers: { accept: 'text/event-stream' }, hangUp });
  watching.catch(() => undefined);
  await fleet.emptied(20_000);
  const finals = (await fleet.finals()).filter(({ event }) => event.task_id === task);
  t.equal(finals.length, 1, 'one final event');
  const expected = { state: 'dead_lettered', code: 7002, cause: 'attempts_exhausted', attempts: 3 };
  t.match(finals[0]?.event, expected);
  t.match(finals[0]?.event.detail, /crm.order.1/, 'with the last cause');
  const kept = await fleet.kept();
  t.equal(kept.length, 1, 'exactly one dead letter');
  t.match(kept[0], { kind: 'dead', task_id: task, cause: 'attempts_exhausted', code: 7002 });
  t.equal(kept[0]?.attempts.length, 3);
  t.equal(kept[0]?.detail, finals[0]?.event.detail, 'the same words');
  const polled = await sender.ask(`/v1/tasks/${task}?wait=5s`);
  t.equal(polled.status, 200);
  t.match(polled.json, { task_id: task, state: 'dead_lettered' });
  t.match(JSON.stringify(polled.json), /attempts_exhausted/);
  const events = (await watching).bytes.toString('utf8');
  t.match(events, /dead_lettered/);
  t.notMatch(events, /"state":"failed"/, 'no other word for it');
  const metrics = (await worker.ask('/metrics')).bytes.toString('utf8');
  t.match(metrics, /^reach_messages_total\{outcome="dead_lettered"\} 1$/m, 'the counter that alerts look at');
  await finish(t, fleet, [worker, sender], [[agent, 3]]);
});
