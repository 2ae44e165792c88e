/**
 * Asynchronous work: casts through a sender's sidecar, a real nats-server and control plane, workers' sidecars in
 * this process or, where they are to stand still or be killed, in one of their own. What was carried out is counted at the agents.
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

// Input: ack wait 5 s, standstill 20 s; a quarter of it here, with the claims' lease of 15 s in the same proportion.
for (const [kind, headers] of [
  ['keyed', { 'idempotency-key': 'order-4711' }],
  ['idempotent', {}],
] as const) {
  t.test(`C089 slow, not dead: a worker that stood still does not end a task that another one has done (${kind})`, async (t) => {
    const fleet = await Fleet.start(t, '  messages: {ack_wait: 2s}\n');
    // The same agent behind both sidecars would be two agents; each has its own, and they count together.
    // It answers while its sidecar stands still.
    let answer = (): void => {};
    const stands = new Promise<void>((done) => {
      answer = done;
    });
    const slow = await agentOf(t, 'slow', async () => {
      await stands;
      return { body: { by: 'slow' } };
    });
    const quick = await agentOf(t, 'quick', () => ({ body: { by: 'quick' } }));
    const CLAIMS = '  claims: {lease: 4s}\n';
    const frozen = workerProcess(t, fleet, 'frozen', tableOf('frozen', [['crm.order.1', slow]], kind), CLAIMS).start();
    const sender = await fleet.sidecar('sender', NONE, FAST);
    await knows(sender, NAME);
    const task = await cast(sender, NAME, { n: 1 }, headers);
    await waitUntil('the worker has it', () => slow.executions === 1, 10_000);
    const other = await fleet.sidecar('other', tableOf('other', [['crm.order.2', quick]], kind), CLAIMS);
    await knows(sender, NAME, 2);
    frozen.signal('SIGSTOP');
    const stoodAt = performance.now();
    answer();
    await waitUntil('another one has done it', () => quick.executions === 1, 40_000);
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

t.test('C093 giving up looks the same from everywhere: status, events, dead letters, alert', async (t) => {
  const fleet = await Fleet.start(t);
  const agent = await agentOf(t, 'crashing', (_request, response) => {
    response.socket?.destroy();
    return undefined;
  });
  const worker = await fleet.sidecar('worker', tableOf('worker', [['crm.order.1', agent]], 'keyed'), '  messages: {work: {tries: 3}}\n');
  const sender = await fleet.sidecar('sender', NONE);
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
