/**
 * Workers that are killed or drained while they have messages in hand: casts through a sender's sidecar, a real nats-server and
 * control plane, and workers' sidecars that are processes of their own. What was carried out is counted at the agents.
 */
import t from 'tap';
import { DEFAULT_MESSAGES } from '../../control-plane/messages/config.ts';
import { cast, Fleet, knows } from '../support/fleet.ts';
import { takeBase } from '../support/invariants.ts';
import { waitUntil } from '../support/settle.ts';
import { agentOf, FAST, finishFleet, NONE, WORK, workerProcess, workTable } from '../support/workers.ts';

t.setTimeout(118_000);
const before = takeBase();
const sleep = (ms: number): Promise<void> => new Promise((done) => setTimeout(done, ms));
const EXECUTION = 'reach-execution';

// Input: an agent that may take 10 minutes. Ack wait and lease (20 s and 15 s) are a fifth of what they are by default.
t.test('C086 what a killed worker had is begun elsewhere after the ack wait, however long it may take', async (t) => {
  const SCALE = 5;
  t.equal(DEFAULT_MESSAGES.ackWaitMs, 20_000);
  const fleet = await Fleet.start(t, `  messages: {ack_wait: ${DEFAULT_MESSAGES.ackWaitMs / SCALE}ms}\n`);
  const CLAIMS = `  claims: {lease: ${15_000 / SCALE}ms}\n`;
  const LONG = ', timeout: 10m, deadline: 10m';
  const never = await agentOf(t, 'never', () => new Promise(() => undefined));
  const begun = new Map<string, number>();
  const idle = await agentOf(t, 'idle', ({ json }) => {
    begun.set((json as { kind: string }).kind, performance.now());
    return { body: { by: 'idle' } };
  });
  const first = workerProcess(t, fleet, 'first', workTable('first', [['crm.order.1', never]], 'idempotent', LONG), CLAIMS).start();
  const sender = await fleet.sidecar('sender', NONE, '  messages: {timeouts: {task_request: 10m}}\n');
  await knows(sender, WORK);
  const tasks = new Map<string, string>();
  for (const kind of ['idempotent', 'keyed', 'once'])
    tasks.set(kind, await cast(sender, WORK, { kind }, { [EXECUTION]: kind, 'reach-deadline-total-ms': '600000' }));
  await waitUntil('the worker has all three', () => never.executions === 3, 10_000);
  const second = await fleet.sidecar('second', workTable('second', [['crm.order.2', idle]], 'idempotent', LONG), CLAIMS);
  await knows(sender, WORK, 2);
  await sleep(1_000);
  t.equal(idle.executions, 0, 'the second worker is idle');
  first.signal('SIGKILL');
  await first.ended();
  const killedAt = performance.now();
  await waitUntil('both that may begin again have', () => begun.size === 2, 30_000);
  for (const [kind, at] of begun) {
    t.comment(`${kind}: ${(at - killedAt).toFixed(0)} ms`);
    t.ok(
      (at - killedAt) * SCALE <= 30_000,
      `${kind}: begun again ${(((at - killedAt) * SCALE) / 1_000).toFixed(1)} s after the kill, at most 30`,
    );
  }
  await fleet.emptied(10_000);
  for (const kind of ['idempotent', 'keyed']) t.strictSame(await fleet.statesOf(tasks.get(kind) as string), ['done'], kind);
  t.strictSame(await fleet.statesOf(tasks.get('once') as string), ['in_doubt'], 'once');
  await finishFleet(
    t,
    before,
    fleet,
    [sender, second],
    [
      [never, 3],
      [idle, 2],
    ],
  );
});

t.test('C087 a drain under load loses nothing and takes no longer than its limit', async (t) => {
  const fleet = await Fleet.start(t);
  const done = new Set<number>();
  const behaviour = (waits: boolean) => async (request: { readonly json: unknown }) => {
    const { n } = request.json as { n: number };
    // Ten minutes are for ever here.
    if (n < 0 && waits) await new Promise(() => undefined);
    done.add(n);
    return { body: { n } };
  };
  const drained = await agentOf(t, 'drained', behaviour(true));
  const staying = await agentOf(t, 'staying', behaviour(false));
  const LIMIT = ', limits: {per_provider: 32}, timeout: 10m, deadline: 10m';
  const leaving = workerProcess(t, fleet, 'leaving', workTable('leaving', [['crm.order.1', drained]], 'idempotent', LIMIT)).start();
  const sender = await fleet.sidecar('sender', NONE, `${FAST.replace('}}', '}, timeouts: {task_request: 10m}}')}`);
  await knows(sender, WORK);
  // Two that take ten minutes, in the hands of the one that is going to leave.
  const long = [await cast(sender, WORK, { n: -1 }), await cast(sender, WORK, { n: -2 })];
  await waitUntil('the leaving one has them', () => drained.executions === 2, 10_000);
  const stays = await fleet.sidecar('stays', workTable('stays', [['crm.order.2', staying]], 'idempotent', LIMIT));
  await knows(sender, WORK, 2);
  // Input: a thousand a second; ten batches of a hundred, of which each is to take a tenth of a second, for three seconds.
  const submitted: Promise<string>[] = [];
  let n = 0;
  let answered = 0;
  const counted = (task: string): string => {
    answered++;
    return task;
  };
  const publish = async (batches: number): Promise<void> => {
    for (let batch = 0; batch < batches; batch++) {
      const next = performance.now() + 100;
      // Each comes on a connection of its own, and no more than some hundred may wait at a port: on a slow machine it takes longer.
      await waitUntil('the sender keeps up', () => n - answered < 500, 10_000, 5);
      for (let i = 0; i < 100; i++) submitted.push(cast(sender, WORK, { n: n++ }).then(counted));
      await sleep(Math.max(0, next - performance.now()));
    }
  };
  await publish(10);
  t.ok(drained.executions > 2, 'the leaving one takes its part of the load');
  leaving.signal('SIGTERM');
  const drainingAt = performance.now();
  await publish(20);
  const tasks = await Promise.all(submitted);
  const exit = await leaving.ended(15_000);
  const tookMs = performance.now() - drainingAt;
  t.strictSame(exit, { code: 0, signal: null });
  t.ok(tookMs >= 9_500 && tookMs < 13_000, `it was gone after ${tookMs.toFixed(0)} ms, with a limit of 10 s`);
  const said = leaving.stdout + leaving.stderr;
  t.match(said, /"unfinished":2\b.*still at work when the time to stop was over/, 'it says how many had not ended');
  const takenBy = drained.executions;
  await fleet.emptied(10_000);
  t.equal(drained.executions, takenBy, 'it takes no more');
  t.equal(done.size, n + 2, `all ${n} casts were carried out, and the two long ones by the other worker`);
  const states = new Map<string, string[]>();
  for (const { event } of await fleet.finals()) states.set(event.task_id, [...(states.get(event.task_id) ?? []), event.state]);
  t.strictSame(
    [...tasks, ...long].filter((task) => states.get(task)?.join() !== 'done'),
    [],
    'each has one result: 0 lost',
  );
  const redone = drained.executions + staying.executions - (n + 4);
  t.equal(redone, 0, 'nothing but the two was begun twice: what could end has ended, what was not begun was given back');
  await finishFleet(
    t,
    before,
    fleet,
    [sender, stays],
    [
      [drained, drained.executions],
      [staying, staying.executions],
    ],
  );
});
