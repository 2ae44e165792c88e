/** Delivery as a whole, on a virtual clock: the live engine with mock agents, queue and ledger in memory. */
import t, { type Test } from 'tap';
import { Code } from '../../../../proto/wire/codes.ts';
import { Consumer } from '../../../../proto/wire/messages.ts';
import { CAPABILITY, DeliverRig, deliverTable, poolOf, SENDER, stickyWork, workOf } from '../../../support/deliver-rig.ts';

const A = 'crm.order.1';
const B = 'crm.order.2';
const GOOD = 'latency: 20ms, body: {ok: true}';

async function finish(t: Test, rig: DeliverRig, executions: Readonly<Record<string, number>>): Promise<void> {
  await rig.stop();
  t.equal(rig.ledger.open, 0, 'no claim is left open');
  t.equal(rig.deliver.inHand, 0, 'nothing is in hand');
  for (const [agent, count] of Object.entries(executions)) t.equal(rig.rig.executions(agent), count, `${agent} was asked ${count} times`);
}

t.test('a message is handed over, its result stored, and only then acknowledged', async (t) => {
  const rig = new DeliverRig(deliverTable({ [A]: GOOD }), [A]);
  const task = rig.send({ kind: 'once' });
  await rig.pass(1_000, () => rig.events.length === 1);
  await rig.pass(100);
  const [{ event, body, subject }] = rig.events as [(typeof rig.events)[number]];
  t.match(event, {
    task_id: task,
    state: 'done',
    code: 0,
    by: A,
    version: '1.0.0',
    attempts: 1,
    status: 200,
    replay: false,
    kind: 'state',
  });
  t.equal(body, '{"ok":true}');
  t.equal(subject, 'ar.test.inbox.sender.web.desk.1');
  t.ok(event.received_at_ms > 0, 'a 200 is both received and done');
  t.strictSame(rig.ledger.log, [`claim ${task}`, `done ${task}`]);
  t.strictSame(rig.order, [`event ${task} done`, 'ack 1']);
  t.strictSame(rig.notes, [], 'it was over before anything else was worth telling');
  await finish(t, rig, { [A]: 1 });
});

t.test('a result that cannot be stored leaves the message in the queue, and the work is not repeated', async (t) => {
  const rig = new DeliverRig(deliverTable({ [A]: GOOD }), [A], { storeForMs: 2_000 });
  rig.isDown = true;
  rig.send({ kind: 'once' });
  await rig.pass(5_000);
  t.equal(rig.queue.left(), 1, 'not acknowledged');
  t.equal(rig.deliver.counts.notStored, 1);
  rig.isDown = false;
  await rig.pass(30_000, () => rig.queue.left() === 0);
  t.match(rig.events, [{ event: { state: 'done', replay: true }, body: '{"ok":true}' }], 'what was recorded under its key');
  await finish(t, rig, { [A]: 1 });
});

t.test('a failure that cannot be stored makes no second start of once work, and another one of work that may be repeated', async (t) => {
  const rig = new DeliverRig(deliverTable({ [A]: 'status: 500, body: {why: broken}' }), [A], { storeForMs: 2_000, maxTries: 1 });
  rig.isDown = true;
  const once = rig.send({ kind: 'once' });
  await rig.pass(5_000);
  t.equal(rig.queue.left(), 1);
  t.equal(rig.ledger.open, 0, 'its claim is not kept for ever');
  rig.isDown = false;
  await rig.pass(40_000, () => rig.queue.left() === 0, 50);
  t.strictSame(rig.stateOf(once), ['in_doubt']);
  const idempotent = rig.send({ kind: 'idempotent', more: { retryable: false } });
  await rig.pass(5_000, () => rig.queue.left() === 0);
  t.strictSame(rig.stateOf(idempotent), ['failed']);
  await finish(t, rig, { [A]: 2 });
});

t.test('once work whose answer is no good has failed, and its key is not free again', async (t) => {
  const table = deliverTable({ [A]: 'body: {ok: true}' }).replaceAll(
    'acl: public,',
    'acl: public, output: {type: object, required: [sum]},',
  );
  const rig = new DeliverRig(table, [A]);
  const first = rig.send({ kind: 'once', key: 'k' });
  await rig.pass(2_000, () => rig.queue.left() === 0);
  const second = rig.send({ kind: 'once', key: 'k' });
  await rig.pass(2_000, () => rig.queue.left() === 0);
  t.strictSame(rig.stateOf(first), ['failed']);
  t.match(rig.events[0]?.event, { code: Code.invalid_response });
  t.strictSame(rig.stateOf(second), ['in_doubt']);
  await finish(t, rig, { [A]: 1 });
});

t.test('idempotent work without a key costs no claim at its first delivery, and has one at the next', async (t) => {
  const rig = new DeliverRig(
    deliverTable({ [A]: 'latency: 20ms, behaviours: [{after: 0, until: 1, reset: before_head}], body: {ok: true}' }),
    [A],
  );
  const task = rig.send({ kind: 'idempotent' });
  await rig.pass(500, () => rig.deliver.counts.again === 1);
  t.strictSame(rig.ledger.log, []);
  t.match(rig.notes, [{ state: 'waiting', code: Code.connection_lost, attempts: 1 }]);
  t.strictSame(rig.passing, rig.notes, 'in the inbox too');
  await rig.pass(5_000, () => rig.events.length === 1);
  t.strictSame(rig.ledger.log, [`claim ${task}`, `done ${task}`]);
  t.match(rig.events, [{ event: { state: 'done', attempts: 2 } }]);
  await finish(t, rig, { [A]: 2 });
});

t.test('once work whose agent broke off is in doubt: kept, told, acknowledged, never run again', async (t) => {
  const rig = new DeliverRig(deliverTable({ [A]: 'reset: before_head' }), [A]);
  const task = rig.send({ kind: 'once', body: '{"n":1}' });
  await rig.pass(1_000, () => rig.queue.left() === 0);
  t.strictSame(rig.order, [`kept ${task}`, `event ${task} in_doubt`, 'ack 1']);
  t.match(rig.events, [{ event: { state: 'in_doubt', code: Code.in_doubt, by: A, attempts: 1 } }]);
  t.match(rig.kept, [{ subject: `ar.test.kept.in_doubt.${task}`, entry: { kind: 'in_doubt', source: SENDER, attempts: [{ by: A }] } }]);
  t.ok(rig.kept[0]?.message.toString('utf8').endsWith('\n{"n":1}'), 'the message as it stood in the queue');
  const twin = rig.send({ kind: 'once', key: 'k', body: '{}' });
  await rig.pass(1_000, () => rig.events.length === 2);
  const again = rig.send({ kind: 'once', key: 'k', body: '{}' });
  await rig.pass(1_000, () => rig.events.length === 3);
  t.strictSame(rig.stateOf(twin), ['in_doubt']);
  t.match(rig.events[2]?.event, { task_id: again, state: 'in_doubt', detail: /another task with the same key/ });
  t.equal(rig.kept.length, 2, 'kept once for each key');
  await finish(t, rig, { [A]: 2 });
});

t.test('the seventh failed try is the last: 1, 2, 4 … s between them, then kept as dead', async (t) => {
  const rig = new DeliverRig(deliverTable({ [A]: 'status: 500, body: {why: broken}' }, 'policies: []'), [A]);
  const task = rig.send({ kind: 'keyed', key: 'k1' });
  await rig.pass(120_000, () => rig.queue.left() === 0, 100);
  t.match(rig.events, [
    { event: { task_id: task, state: 'dead_lettered', code: Code.dead_lettered, cause: 'attempts_exhausted', attempts: 7 } },
  ]);
  t.equal(rig.kept.length, 1, 'exactly one entry');
  t.match(rig.kept[0]?.entry, { kind: 'dead', cause: 'attempts_exhausted' });
  t.equal(rig.kept[0]?.entry.attempts.length, 7);
  t.strictSame(rig.order, [`kept ${task}`, `event ${task} dead_lettered`, 'ack 1']);
  const pauses = rig.queue.log.filter((line) => line.startsWith('nak')).map((line) => Number(line.split(' ')[2]));
  for (const [i, ms] of [1_000, 2_000, 4_000, 8_000, 16_000, 32_000].entries()) {
    t.ok((pauses[i] as number) >= ms && (pauses[i] as number) <= 1.2 * ms, `pause ${i + 1}: ${pauses[i]}`);
  }
  await finish(t, rig, { [A]: 7 });
});

t.test('a message that kills every sidecar that has it ends as dead after so many tries, and is not handed over once more', async (t) => {
  const rig = new DeliverRig(deliverTable({ [A]: GOOD }), [A]);
  const task = 'task000001';
  const id = `${SENDER} ${CAPABILITY} ${task}`;
  // Its seventh worker has died like the six before it: all that is left of them is the claim, which lapses.
  rig.ledger.put(id, { taskId: task, execution: 'keyed', worker: A }, 'executing', 7);
  t.equal(rig.send({ kind: 'keyed' }), task);
  await rig.pass(60_000, () => rig.queue.left() === 0, 50);
  t.match(rig.events, [{ event: { state: 'dead_lettered', cause: 'attempts_exhausted', attempts: 7, by: '' } }]);
  t.match(rig.kept, [{ entry: { kind: 'dead', task_id: task, detail: /vanished/ } }]);
  await finish(t, rig, { [A]: 0 });
});

t.test('the tries of one task are not those of another one with the same key', async (t) => {
  const rig = new DeliverRig(deliverTable({ [A]: GOOD }), [A]);
  rig.ledger.put(`${SENDER} ${CAPABILITY} k1`, { taskId: 'taskbefore', execution: 'keyed', worker: A, key: 'k1' }, 'released', 7);
  const task = rig.send({ kind: 'keyed', key: 'k1' });
  await rig.pass(5_000, () => rig.queue.left() === 0);
  t.match(rig.events, [{ event: { task_id: task, state: 'done', attempts: 1 } }]);
  await finish(t, rig, { [A]: 1 });
});

t.test('driven again and dead again: a second entry and a second event, however soon', async (t) => {
  const rig = new DeliverRig(deliverTable({ [A]: 'status: 500' }), [A], { maxTries: 1 });
  const task = rig.send();
  await rig.pass(1_000, () => rig.queue.left() === 0);
  rig.send({ more: { task_id: task } });
  await rig.pass(1_000, () => rig.queue.left() === 0);
  t.strictSame(rig.stateOf(task), ['dead_lettered', 'dead_lettered']);
  t.equal(rig.kept.length, 2);
  await finish(t, rig, { [A]: 2 });
});

t.test('the sender decides whether a failed try is the last', async (t) => {
  const rig = new DeliverRig(deliverTable({ [A]: 'status: 500, body: {why: broken}' }), [A]);
  rig.send({ kind: 'idempotent', more: { retryable: false } });
  await rig.pass(1_000, () => rig.queue.left() === 0);
  t.match(rig.events, [{ event: { state: 'failed', code: Code.provider_error, status: 500, attempts: 1 }, body: '{"why":"broken"}' }]);
  await finish(t, rig, { [A]: 1 });
});

t.test("an agent's refusal is the result, with its own words", async (t) => {
  const rig = new DeliverRig(deliverTable({ [A]: 'status: 409, body: {why: sold}' }), [A]);
  rig.send({ kind: 'once' });
  await rig.pass(1_000, () => rig.queue.left() === 0);
  t.match(rig.events, [{ event: { state: 'failed', code: Code.provider_error, status: 409 }, body: '{"why":"sold"}' }]);
  t.strictSame(rig.ledger.log.slice(-1), ['release task000001 (a try)'], 'failures are not kept as answers');
  await finish(t, rig, { [A]: 1 });
});

t.test('ACL and contract are looked at again at the hand-over', async (t) => {
  const table = deliverTable({ [A]: GOOD }).replaceAll('acl: public', 'acl: ["team:other"]');
  const rig = new DeliverRig(table, [A]);
  rig.send();
  await rig.pass(1_000, () => rig.queue.left() === 0);
  t.match(rig.events, [{ event: { state: 'failed', code: Code.forbidden, by: A } }]);
  await finish(t, rig, { [A]: 0 });
});

t.test('more never wait in the agent than it may have: the rest stays in the queue', async (t) => {
  const rig = new DeliverRig(deliverTable({ [A]: 'latency: 100ms, body: {ok: true}' }), [A], { concurrency: 3 });
  for (let i = 0; i < 30; i++) rig.send({ kind: 'idempotent' });
  const provider = rig.rig.world.table.current().providers.get(A);
  let most = 0;
  await rig.pass(5_000, () => {
    most = Math.max(most, provider?.health.inFlight ?? 0);
    return rig.queue.left() === 0;
  });
  t.equal(most, 3);
  t.equal(rig.events.length, 30);
  t.ok(rig.clock.now() < 1_400, `no slot stood idle: ${rig.clock.now()} ms for ten rounds of 100`);
  await finish(t, rig, { [A]: 30 });
});

t.test('lanes get 60, 30 and 10 of a hundred starts with one slot, and the idle share goes to the others', async (t) => {
  const rig = new DeliverRig(deliverTable({ [A]: 'latency: 10ms, body: {ok: true}' }), [A], { concurrency: 1 });
  for (let i = 0; i < 200; i++) for (const lane of ['low', 'normal', 'high'] as const) rig.send({ lane });
  const lanes = new Map<string, string>();
  let issued = 0;
  for (let i = 0; i < 200; i++) for (const lane of ['low', 'normal', 'high']) lanes.set(`task${String(++issued).padStart(6, '0')}`, lane);
  await rig.pass(60_000, () => rig.events.length >= 110, 2);
  const counted = (from: number, to: number): number[] => {
    const slice = rig.events.slice(from, to).map(({ event }) => lanes.get(event.task_id));
    return ['high', 'normal', 'low'].map((lane) => slice.filter((each) => each === lane).length);
  };
  const [high, normal, low] = counted(10, 110) as [number, number, number];
  t.ok(Math.abs(high - 60) <= 3 && Math.abs(normal - 30) <= 3 && Math.abs(low - 10) <= 3, `of a hundred: ${high}, ${normal}, ${low}`);
  await rig.pass(120_000, () => rig.queue.left() === 0, 5);
  t.equal(rig.events.length, 600, 'and everybody had their turn');
  await finish(t, rig, { [A]: 600 });
});

t.test('slots that are kept for the high lane are not taken by others', async (t) => {
  const rig = new DeliverRig(deliverTable({ [A]: 'latency: 2s, body: {ok: true}' }), [A], { concurrency: 3, reserveHigh: 1 });
  for (let i = 0; i < 10; i++) rig.send({ lane: 'low' });
  await rig.pass(500);
  const provider = rig.rig.world.table.current().providers.get(A);
  t.equal(provider?.health.inFlight, 2);
  const urgent = rig.send({ lane: 'high' });
  await rig.pass(100);
  t.equal(provider?.health.inFlight, 3, 'the urgent one began at once');
  await rig.pass(60_000, () => rig.queue.left() === 0, 50);
  t.ok(rig.events.slice(0, 3).some(({ event }) => event.task_id === urgent));
  await finish(t, rig, { [A]: 11 });
});

t.test('an agent that may have no more than is kept for the high lane still gets others: one slot is always theirs too', async (t) => {
  const rig = new DeliverRig(deliverTable({ [A]: GOOD }), [A], { concurrency: 2, reserveHigh: 4 });
  for (let i = 0; i < 6; i++) rig.send({ lane: i % 2 === 0 ? 'low' : 'normal' });
  await rig.pass(5_000, () => rig.queue.left() === 0, 50);
  t.equal(rig.events.length, 6);
  await finish(t, rig, { [A]: 6 });
});

t.test('an agent with an open breaker is not pulled for, and its messages wait', async (t) => {
  const table = deliverTable({ [A]: 'behaviours: [{after: 0, until: 10, reset: before_head}], body: {ok: true}' }).replaceAll(
    'timeout: 5s,',
    'timeout: 5s, breaker: {min_calls: 5, open: 10s, probes: 1},',
  );
  const rig = new DeliverRig(table, [A], { concurrency: 1 });
  for (let i = 0; i < 30; i++) rig.send({ kind: 'idempotent' });
  const cell = rig.rig.cell(A, CAPABILITY);
  await rig.pass(2_000, () => cell.stateName === 'open');
  t.equal(cell.stateName, 'open');
  await rig.pass(2_000);
  const started = rig.deliver.counts.started;
  const asked = rig.queue.asked;
  await rig.pass(5_000);
  t.equal(rig.deliver.counts.started, started, 'nothing is handed over');
  t.equal(rig.queue.asked, asked, 'nothing is asked for');
  await rig.pass(200_000, () => rig.queue.left() === 0, 50);
  t.equal(rig.events.filter(({ event }) => event.state === 'done').length, 30, 'and all are done when it has recovered');
  await finish(t, rig, {});
});

t.test('a breaker closes again also by messages of a lane that may not use the reserve', async (t) => {
  const table = deliverTable({ [A]: 'behaviours: [{after: 0, until: 10, reset: before_head}], body: {ok: true}' }).replaceAll(
    'timeout: 5s,',
    'timeout: 5s, breaker: {min_calls: 5, open: 10s, probes: 1},',
  );
  const rig = new DeliverRig(table, [A], { concurrency: 3, reserveHigh: 2 });
  for (let i = 0; i < 30; i++) rig.send({ kind: 'idempotent', lane: 'low' });
  await rig.pass(300_000, () => rig.queue.left() === 0, 50);
  t.equal(rig.events.filter(({ event }) => event.state === 'done').length, 30);
  await finish(t, rig, {});
});

t.test('a provider that an operator blocks gets nothing, and the other one does', async (t) => {
  const table = deliverTable({ [A]: GOOD, [B]: GOOD }, `overrides: [{name: repair, action: block, provider: ${A}, reason: repair}]`);
  const rig = new DeliverRig(table, [A, B]);
  for (let i = 0; i < 20; i++) rig.send();
  await rig.pass(5_000, () => rig.queue.left() === 0);
  t.equal(rig.events.filter(({ event }) => event.state === 'done').length, 20);
  await finish(t, rig, { [A]: 0, [B]: 20 });
});

t.test('the freest agent takes it', async (t) => {
  const rig = new DeliverRig(deliverTable({ [A]: 'latency: 3s, body: {}', [B]: 'latency: 10ms, body: {}' }), [A, B], { concurrency: 4 });
  for (let i = 0; i < 40; i++) rig.send();
  await rig.pass(20_000, () => rig.queue.left() === 0);
  t.ok(rig.rig.executions(A) <= 8 && rig.rig.executions(B) >= 32, `${rig.rig.executions(A)} and ${rig.rig.executions(B)}`);
  await finish(t, rig, {});
});

t.test('a message that failed is tried by another agent next, however many slots the first one has free', async (t) => {
  const slowFirst = 'latency: 5ms, behaviours: [{after: 0, until: 1, latency: 100s}], body: {ok: true}';
  for (const order of [
    [A, B],
    [B, A],
  ]) {
    const rig = new DeliverRig(deliverTable({ [A]: 'status: 500, body: {why: broken}', [B]: slowFirst }), order);
    rig.send({ more: { timeout_ms: 200_000 } });
    await rig.pass(3_000, () => rig.rig.executions(B) === 1);
    t.equal(rig.rig.executions(B), 1, 'B has a long job');
    const before = rig.rig.executions(A);
    const task = rig.send();
    await rig.pass(5_000, () => rig.stateOf(task).length > 0);
    t.match(
      rig.events.find(({ event }) => event.task_id === task),
      { event: { state: 'done', by: B, attempts: 2 } },
      order.join(', '),
    );
    t.equal(rig.rig.executions(A) - before, 1, 'the one that failed is not asked again');
    await rig.stop();
  }
});

t.test('where all fail, they fail in turns; a rule for its sender sends a message elsewhere too', async (t) => {
  const bad = 'status: 500, body: {}';
  const rig = new DeliverRig(deliverTable({ [A]: bad, [B]: bad }), [A, B]);
  const task = rig.send();
  await rig.pass(120_000, () => rig.queue.left() === 0, 100);
  t.strictSame(rig.stateOf(task), ['dead_lettered']);
  const by = rig.kept[0]?.entry.attempts.map((one) => one.by) ?? [];
  t.equal(by.length, 7);
  for (const agent of [A, B]) t.ok(by.filter((one) => one === agent).length >= 3, `${agent}: ${by.join()}`);
  await finish(t, rig, {});

  const rule = `overrides: [{name: not-for-desk, action: block, provider: ${A}, caller: ${SENDER}, reason: test}]`;
  const ruled = new DeliverRig(deliverTable({ [A]: GOOD, [B]: 'latency: 500ms, body: {}' }, rule), [A, B]);
  for (let i = 0; i < 6; i++) ruled.send();
  await ruled.pass(6_000, () => ruled.queue.left() === 0);
  t.equal(ruled.queue.left(), 0, 'none is handed to and fro');
  await finish(t, ruled, { [A]: 0, [B]: 6 });
});

t.test('C032 an agent that asked for a pause (429) gets no message until it is over, and the refused one goes elsewhere', async (t) => {
  const limited = 'status: 429, headers: {retry-after: "20"}, body: {why: limited}';
  const rig = new DeliverRig(deliverTable({ [A]: limited, [B]: 'latency: 400ms, body: {ok: true}' }), [A, B]);
  for (let i = 0; i < 40; i++) {
    rig.send();
    await rig.pass(250);
  }
  await rig.pass(3_000, () => rig.queue.left() === 0);
  t.equal(rig.queue.left(), 0, 'none waited for the one that limits its callers');
  t.equal(rig.events.filter(({ event }) => event.state === 'done' && event.by === B).length, 40);
  await finish(t, rig, { [A]: 1, [B]: 40 });

  const alone = new DeliverRig(deliverTable({ [A]: `behaviours: [{after: 0, until: 1, ${limited}}], latency: 20ms, body: {}` }), [A]);
  for (let i = 0; i < 5; i++) {
    alone.send();
    await alone.pass(1_000);
  }
  t.equal(alone.rig.executions(A), 1, 'where there is no other one, messages wait in the queue');
  await alone.pass(14_500);
  t.equal(alone.rig.executions(A), 1);
  await alone.pass(5_000, () => alone.queue.left() === 0);
  t.match(
    alone.events.map(({ event }) => [event.state, event.attempts]),
    Array(5).fill(['done', 1]),
    'it was no try',
  );
  await finish(t, alone, { [A]: 6 });
});

t.test('a message that is too old by the server clock is not delivered, however the own clock stands', async (t) => {
  const rig = new DeliverRig(deliverTable({ [A]: GOOD }), []);
  rig.queue.aheadMs = -3_600_000;
  const late = rig.send({ more: { expires_ms: 5_000 } });
  await rig.pass(6_000, undefined, 500);
  const fresh = rig.send({ more: { expires_ms: 5_000 } });
  rig.assign([workOf('idempotent', [A])]);
  await rig.pass(2_000, () => rig.queue.left() === 0);
  t.strictSame(rig.stateOf(late), ['expired']);
  t.match(rig.events.find(({ event }) => event.task_id === late)?.event, { code: Code.expired, attempts: 0, by: '' });
  t.strictSame(rig.stateOf(fresh), ['done']);
  await finish(t, rig, { [A]: 1 });
});

t.test('called off: before it is pulled, while the agent has it, and by a stranger', async (t) => {
  const rig = new DeliverRig(deliverTable({ [A]: 'latency: 5s, body: {ok: true}' }), [A], { concurrency: 1 });
  const first = rig.send();
  const second = rig.send();
  const third = rig.send();
  await rig.pass(200);
  rig.callOff(second);
  rig.callOff(third, 'some.body.else');
  await rig.pass(200);
  rig.callOff(first);
  await rig.pass(20_000, () => rig.queue.left() === 0);
  t.strictSame(rig.stateOf(first), ['cancelled']);
  t.match(rig.events.find(({ event }) => event.task_id === first)?.event, { detail: /it may have acted/, by: A });
  t.strictSame(rig.stateOf(second), ['cancelled']);
  t.match(rig.events.find(({ event }) => event.task_id === second)?.event, { detail: /before anybody had it/, attempts: 0 });
  t.strictSame(rig.stateOf(third), ['done']);
  await finish(t, rig, { [A]: 2 });
});

t.test('received is told of a 202 and of work that goes on, and of nothing else', async (t) => {
  const rig = new DeliverRig(deliverTable({ [A]: 'latency: 700ms, body: {}', [B]: 'status: 202, body: {}' }), [A]);
  const slow = rig.send();
  await rig.pass(5_000, () => rig.events.length === 1);
  t.match(rig.notes, [{ task_id: slow, state: 'received', by: A }]);
  t.strictSame(rig.passing, rig.notes, 'and the same in the inbox of whoever sent it');
  t.ok((rig.events[0]?.event.received_at_ms ?? 0) > 0);
  rig.assign([workOf('once', [B])]);
  const long = rig.send({ kind: 'once', more: { timeout_ms: 10_000 } });
  await rig.pass(1_000, () => rig.notes.length === 2);
  t.match(rig.notes[1], { task_id: long, state: 'received', by: B });
  t.strictSame(rig.passing, rig.notes);
  t.equal(rig.deliver.extend('some.body.else', long), null, 'not its work');
  await rig.pass(8_000, undefined, 50);
  t.equal(rig.deliver.extend(B, long), 10_000);
  await rig.pass(8_000, undefined, 50);
  t.equal(await rig.deliver.done('some.body.else', long, good('{}')), 'unknown');
  let reported = '';
  void rig.deliver.done(B, long, good('{"sum":3}')).then((said) => (reported = said));
  await rig.pass(500, () => reported !== '');
  t.equal(reported, 'stored');
  t.match(rig.events[1], { event: { task_id: long, state: 'done', by: B, status: 200 }, body: '{"sum":3}' });
  t.equal(await rig.deliver.done(B, long, good('{}')), 'unknown', 'it has ended');
  await finish(t, rig, { [A]: 1, [B]: 1 });
});

t.test('an agent that said 202 and is not heard of again: idempotent work starts anew, once work is in doubt', async (t) => {
  const rig = new DeliverRig(deliverTable({ [A]: 'behaviours: [{after: 0, until: 2, status: 202}], body: {ok: true}' }), [A]);
  const once = rig.send({ kind: 'once', more: { timeout_ms: 2_000 } });
  await rig.pass(100);
  const idempotent = rig.send({ kind: 'idempotent', more: { timeout_ms: 2_000 } });
  await rig.pass(10_000, () => rig.queue.left() === 0, 50);
  t.strictSame(rig.stateOf(once), ['in_doubt']);
  t.strictSame(rig.stateOf(idempotent), ['done']);
  await finish(t, rig, { [A]: 3 });
});

t.test('work in hand is extended; when the queue no longer confirms, unclaimed work is stopped and its result not taken', async (t) => {
  const rig = new DeliverRig(deliverTable({ [A]: 'latency: 60s, body: {ok: true}' }), [A]);
  rig.send({ kind: 'idempotent', more: { timeout_ms: 120_000 } });
  await rig.pass(30_000, undefined, 100);
  t.ok(rig.queue.log.filter((line) => line === 'extend 1').length >= 5, 'every five seconds');
  t.equal(rig.deliver.counts.started, 1);
  rig.queue.isMute = true;
  await rig.pass(25_000, () => rig.deliver.counts.fenced === 1, 100);
  t.equal(rig.deliver.counts.fenced, 1, 'dropped within the ack wait');
  t.strictSame(rig.events, []);
  rig.queue.isMute = false;
  rig.queue.pump();
  await rig.pass(100_000, () => rig.queue.left() === 0, 100);
  t.equal(rig.events.length, 1);
  await finish(t, rig, { [A]: 2 });
});

t.test('a claim whose answer came when its lease was over is given back, and nothing begins by it', async (t) => {
  const rig = new DeliverRig(deliverTable({ [A]: GOOD }), [A]);
  rig.ledger.stale = 1;
  rig.send({ kind: 'once' });
  await rig.pass(100_000, () => rig.events.length === 1, 100);
  t.strictSame(rig.ledger.log, ['claim task000001', 'release task000001', 'claim task000001', 'done task000001']);
  t.equal(rig.deliver.counts.started, 1);
  t.match(rig.events, [{ event: { state: 'done' } }]);
  await finish(t, rig, { [A]: 1 });
});

t.test('a fault while one message is dealt with does not touch the others', async (t) => {
  const rig = new DeliverRig(deliverTable({ [A]: GOOD }), [A]);
  rig.ledger.onClaim = ({ taskId }) => (taskId === 'task000001' ? Promise.reject(new Error('a bug')) : Promise.resolve());
  const bad = rig.send({ kind: 'once' });
  for (let i = 0; i < 10; i++) rig.send({ kind: 'once' });
  await rig.pass(2_000, () => rig.events.length === 10);
  t.equal(rig.events.filter(({ event }) => event.state === 'done').length, 10);
  await rig.pass(200_000, () => rig.queue.left() === 0, 100);
  t.match(rig.kept, [{ entry: { task_id: bad, kind: 'dead', cause: 'fault' } }], 'set aside in the end');
  await finish(t, rig, { [A]: 10 });
});

t.test('what cannot be read is kept as dead and passes nobody by', async (t) => {
  const rig = new DeliverRig(deliverTable({ [A]: GOOD }), [A]);
  const consumer = Consumer.lane(poolOf('idempotent').id, 'normal');
  rig.queue.put(consumer, 'ar.test.task.p.normal.0.sender', Buffer.from('junk'));
  rig.queue.put(consumer, 'ar.test.task.p.normal.0.sender', Buffer.from('{"wire":1,"task_id":"t","source":"s"}\n'));
  rig.send({ more: { home: 'no.such home' } });
  rig.send({ more: { expires_ms: Number.NaN } });
  rig.send();
  await rig.pass(2_000, () => rig.queue.left() === 0);
  t.equal(rig.deliver.counts.unreadable, 4);
  t.equal(rig.kept.length, 4);
  t.match(rig.kept[0]?.entry, { cause: 'unreadable', detail: 'it has no envelope that can be read' });
  t.equal(rig.kept[0]?.message.toString('utf8'), 'junk');
  t.equal(rig.events.length, 1);
  await finish(t, rig, { [A]: 1 });
});

t.test('a result that the bus does not take is said to be left out, and the task ends', async (t) => {
  const rig = new DeliverRig(deliverTable({ [A]: `body: {big: "${'x'.repeat(5_000)}"}` }), [A], {}, [], 4_096);
  rig.send({ kind: 'once' });
  await rig.pass(1_000, () => rig.queue.left() === 0);
  t.match(rig.events, [{ event: { state: 'failed', code: Code.response_too_large, detail: /carried out/ }, body: '' }]);
  await finish(t, rig, { [A]: 1 });
});

t.test('the working time of a task is that of all tries together', async (t) => {
  const rig = new DeliverRig(deliverTable({ [A]: 'latency: 2s, reset: before_head' }), [A]);
  rig.send({ kind: 'idempotent', more: { deadline_ms: 5_000 } });
  await rig.pass(60_000, () => rig.queue.left() === 0, 50);
  t.match(rig.events, [{ event: { state: 'failed', code: Code.deadline_exceeded } }]);
  t.ok(rig.rig.executions(A) <= 3, `${rig.rig.executions(A)} tries of 2 s in 5 s`);
  await finish(t, rig, {});
});

t.test('stopping: nothing new is pulled, what can end ends, the rest is counted and given back or in doubt', async (t) => {
  const rig = new DeliverRig(deliverTable({ [A]: 'latency: 600s, body: {}', [B]: 'latency: 300ms, body: {}' }), [A], { concurrency: 2 });
  const again = rig.send({ kind: 'idempotent', more: { timeout_ms: 900_000 } });
  const once = rig.send({ kind: 'once', more: { timeout_ms: 900_000 } });
  await rig.pass(300);
  rig.assign([workOf('idempotent', [B])]);
  const quick = rig.send({ kind: 'idempotent' });
  await rig.pass(50);
  for (let i = 0; i < 5; i++) rig.send({ kind: 'once' });
  let left = -1;
  const began = rig.clock.now();
  void rig.deliver.stop(10_000).then((count) => (left = count));
  await rig.pass(20_000, () => left >= 0);
  t.equal(left, 2);
  t.ok(rig.clock.now() - began < 10_500, 'at the end of its grace');
  t.strictSame(rig.stateOf(quick), ['done']);
  t.strictSame(rig.stateOf(again), []);
  t.strictSame(rig.stateOf(once), ['in_doubt']);
  t.ok(rig.queue.log.includes('nak 1 0'), 'given back for others');
  t.equal(rig.queue.left(), 6);
  t.equal(rig.ledger.open, 0);
});

t.test('sticky: the messages of a key in order, one after another, also when one fails and is tried again', async (t) => {
  const work = stickyWork('idempotent', [A], [{ index: 3, owner: A, term: 1 }]);
  const rig = new DeliverRig(
    deliverTable({ [A]: 'latency: 50ms, behaviours: [{after: 2, until: 3, reset: before_head}], body: {}' }),
    [A],
    {},
    [work],
  );
  const sent: string[] = [];
  for (let i = 0; i < 6; i++) sent.push(rig.sendSticky(work, 3, 1, 'conversation'));
  await rig.pass(10_000, () => rig.queue.left() === 0);
  t.strictSame(
    rig.events.map(({ event }) => event.task_id),
    sent,
  );
  t.equal(rig.events[2]?.event.attempts, 2);
  t.notOk(
    rig.queue.log.some((line) => line.startsWith('nak')),
    'nothing went back to the queue',
  );
  await finish(t, rig, { [A]: 7 });
});

t.test('sticky: an owner that asked for a pause (429) is left alone until it is over, also by what waits in its place', async (t) => {
  const work = stickyWork('idempotent', [A], [{ index: 0, owner: A, term: 1 }]);
  const limited = 'status: 429, headers: {retry-after: "120"}, body: {why: limited}';
  const rigOf = (rest: string): DeliverRig =>
    new DeliverRig(deliverTable({ [A]: `behaviours: [{after: 0, until: 2, ${limited}}], ${rest}` }), [A], { concurrency: 2 }, [work]);
  const rig = rigOf('latency: 20ms, body: {}');
  const sent = ['a', 'a', 'b'].map((key) => rig.sendSticky(work, 0, 1, key));
  const short = rig.sendSticky(work, 0, 1, 'c', { expires_ms: 60_000 });
  await rig.pass(119_000, () => false, 200);
  t.equal(rig.rig.executions(A), 2, 'one of each key that had a slot, and neither again');
  await rig.pass(40_000, () => rig.queue.left() === 0, 50);
  t.strictSame(rig.stateOf(short), ['expired']);
  const done = rig.events.filter(({ event }) => event.state === 'done');
  t.same(new Set(done.map(({ event }) => event.task_id)), new Set(sent));
  t.ok(done.findIndex(({ event }) => event.task_id === sent[0]) < done.findIndex(({ event }) => event.task_id === sent[1]), 'in order');
  t.match(
    done.map(({ event }) => event.attempts),
    [1, 1, 1],
    'none of that was a try',
  );
  await finish(t, rig, { [A]: 5 });

  const alone = rigOf(GOOD);
  const expires = alone.sendSticky(work, 0, 1, 'a', { expires_ms: 50_000 });
  await alone.pass(95_000, () => alone.events.length === 1, 50);
  t.strictSame(alone.stateOf(expires), ['expired'], 'its time is over long before the pause, and that is told');
  alone.sendSticky(work, 0, 1, 'a');
  await alone.pass(120_000, () => alone.rig.executions(A) === 2, 50);
  await alone.pass(1_000);
  alone.assign([stickyWork('idempotent', [A, B], [{ index: 0, owner: B, term: 2 }])]);
  await alone.pass(100);
  t.equal(alone.deliver.atWork, 0, 'a partition that is given to another is let go in the midst of it');
  await finish(t, alone, { [A]: 2 });
});

t.test('sticky: other keys go on while one waits, and a partition that is given to another is let go', async (t) => {
  const work = stickyWork('idempotent', [A], [{ index: 0, owner: A, term: 1 }]);
  const rig = new DeliverRig(deliverTable({ [A]: 'latency: 400ms, body: {}' }), [A], { concurrency: 2 }, [work]);
  const first = [rig.sendSticky(work, 0, 1, 'a'), rig.sendSticky(work, 0, 1, 'a')];
  const other = rig.sendSticky(work, 0, 1, 'b');
  await rig.pass(500, () => rig.events.length === 2);
  t.ok(rig.stateOf(other).length === 1 && rig.stateOf(first[0] as string).length === 1, 'one of each key');
  await rig.pass(1_000, () => rig.events.length === 3);
  rig.assign([stickyWork('idempotent', [A], [{ index: 0, owner: B, term: 2 }])]);
  rig.sendSticky(work, 0, 1, 'a');
  await rig.pass(2_000);
  t.equal(rig.events.length, 3, 'nothing is pulled from the old one');
  t.equal(rig.queue.waiting(Consumer.partition(work.pool.id, 0, 2)), 0, 'nor from the new one, which is not ours');
  await finish(t, rig, { [A]: 3 });
});

t.test(
  'sticky: what pauses before another try when its partition becomes another agent’s is tried no more for the one before',
  async (t) => {
    const work = stickyWork('idempotent', [A, B], [{ index: 0, owner: A, term: 1 }]);
    const rig = new DeliverRig(deliverTable({ [A]: 'status: 500, body: {}', [B]: GOOD }), [A, B], {}, [work]);
    const sent = [rig.sendSticky(work, 0, 1, 'a'), rig.sendSticky(work, 0, 1, 'a')];
    await rig.pass(5_000, () => rig.rig.executions(A) === 2);
    await rig.pass(100);
    t.equal(rig.deliver.atWork, 1, 'it pauses');
    rig.assign([stickyWork('idempotent', [A, B], [{ index: 0, owner: B, term: 2 }])]);
    await rig.pass(100);
    t.equal(rig.deliver.atWork, 0, 'it is let go at once');
    await rig.pass(200_000);
    t.equal(rig.rig.executions(A), 2, 'not once more, however long it takes until the queue has given it to the next owner');
    t.strictSame(rig.events, [], 'nor has it ended');
    t.equal(rig.queue.left(), sent.length);
    await finish(t, rig, { [A]: 2, [B]: 0 });
  },
);

t.test('sticky: an owner that stood still for longer than the ack wait begins nothing more of what it had', async (t) => {
  const work = stickyWork('idempotent', [A], [{ index: 0, owner: A, term: 1 }]);
  const rig = new DeliverRig(deliverTable({ [A]: 'latency: 60ms, body: {}' }), [A], { concurrency: 1 }, [work]);
  for (let i = 0; i < 8; i++) rig.sendSticky(work, 0, 1, 'abcd'[i % 4] as string);
  await rig.pass(2_000, () => rig.rig.executions(A) === 2, 5);
  t.equal(rig.events.length, 1, 'the second is at work, others wait here');
  rig.queue.isMute = true;
  // Halted, as by SIGSTOP; the agent's answer is the first that is heard afterwards. Others have all of it by now.
  rig.clock.halt(60_000);
  await rig.pass(1_000);
  t.equal(rig.rig.executions(A), 2, 'nothing more was begun');
  t.equal(rig.events.length, 1, 'and what came of the second one is not told');
  await finish(t, rig, { [A]: 2 });
});

t.test(
  'sticky: one that went astray with a connection comes before a later one of its key, and of any other until it is known',
  async (t) => {
    const work = stickyWork('idempotent', [A], [{ index: 0, owner: A, term: 1 }]);
    const rig = new DeliverRig(deliverTable({ [A]: 'latency: 20ms, body: {}' }), [A], { concurrency: 4 }, [work]);
    const first = rig.sendSticky(work, 0, 1, 'a');
    await rig.pass(500, () => rig.events.length === 1);
    rig.queue.astray = 2;
    const sent = [
      rig.sendSticky(work, 0, 1, 'a'),
      rig.sendSticky(work, 0, 1, 'b'),
      rig.sendSticky(work, 0, 1, 'a'),
      rig.sendSticky(work, 0, 1, 'b'),
      rig.sendSticky(work, 0, 1, 'c'),
    ];
    await rig.pass(60_000, () => rig.events.length === 6, 50);
    const order = rig.events.map(({ event }) => event.task_id);
    t.equal(order[0], first);
    for (const [earlier, later] of [
      [0, 2],
      [1, 3],
    ] as const)
      t.ok(order.indexOf(sent[earlier] as string) < order.indexOf(sent[later] as string), order.join());
    await finish(t, rig, { [A]: 6 });
  },
);

t.test('sticky: those that wait here and are not confirmed for too long come again in their order', async (t) => {
  const work = stickyWork('idempotent', [A], [{ index: 0, owner: A, term: 1 }]);
  const rig = new DeliverRig(deliverTable({ [A]: 'latency: 26s, body: {}' }), [A], { concurrency: 4 }, [work]);
  const sent = [rig.sendSticky(work, 0, 1, 'a', { timeout_ms: 40_000 })];
  for (let i = 0; i < 3; i++) {
    await rig.pass(1_500, () => false, 100);
    sent.push(rig.sendSticky(work, 0, 1, 'a', { timeout_ms: 40_000 }));
  }
  await rig.pass(3_000, () => false, 100);
  // For a while nothing is confirmed: the first goes on, the others expire one after another.
  const extend = rig.queue.extend.bind(rig.queue);
  rig.queue.extend = () => Promise.resolve(false);
  await rig.pass(18_500, () => false, 100);
  rig.queue.extend = extend;
  await rig.pass(400_000, () => rig.queue.left() === 0, 200);
  const begun = rig.events.map(({ event }) => event.task_id);
  t.strictSame(begun, sent);
  await rig.stop();
});

t.test('what has been held for a slot for longer than the ack wait is not begun', async (t) => {
  const rig = new DeliverRig(deliverTable({ [A]: 'latency: 60ms, body: {}' }), [A], { concurrency: 1, holdMs: 600_000 });
  for (let i = 0; i < 4; i++) rig.send({ lane: i % 2 === 0 ? 'high' : 'low' });
  await rig.pass(1_000, () => rig.rig.executions(A) === 1, 5);
  const begun = rig.rig.executions(A);
  rig.queue.isMute = true;
  rig.clock.halt(60_000);
  await rig.pass(2_000);
  t.equal(rig.rig.executions(A), begun);
  await finish(t, rig, { [A]: begun });
});

t.test('what lay in the socket of a process that stood still is as old as that, until the server has answered again', async (t) => {
  const rig = new DeliverRig(deliverTable({ [A]: 'latency: 60ms, body: {}' }), [A], { concurrency: 8 });
  await rig.pass(600);
  rig.send();
  rig.send();
  // On its way when it stopped; it is there as soon as it goes on, before anything else is looked at.
  rig.clock.halt(30_000);
  await new Promise((soon) => setImmediate(soon));
  await rig.pass(200, () => false, 5);
  t.equal(rig.rig.executions(A), 0, 'others have them by now');
  t.ok(rig.deliver.counts.fenced >= 2, 'they are let go, and not given back: they are not ours to give');
  t.strictSame(
    rig.queue.log.filter((line) => line.startsWith('nak')),
    [],
  );
  const later = rig.send();
  await rig.pass(1_000, () => rig.stateOf(later).length === 1);
  t.strictSame(rig.stateOf(later), ['done'], 'what comes afterwards is young');
  await rig.pass(40_000, () => rig.queue.left() === 0, 50);
  t.equal(rig.events.length, 3, 'and the others come again after the ack wait');
  await finish(t, rig, { [A]: 3 });
});

function good(body: string): Parameters<DeliverRig['deliver']['done']>[2] {
  return { code: Code.ok, status: 200, contentType: 'application/json', body: Buffer.from(body), detail: '' };
}

t.test('once work that failed is not begun again because the queue went away before the acknowledgement', async (t) => {
  const rig = new DeliverRig(deliverTable({ [A]: 'status: 500, body: {why: broken}' }), [A]);
  const push = rig.events.push.bind(rig.events);
  rig.events.push = (...events) => {
    rig.queue.isMute = true;
    return push(...events);
  };
  const task = rig.send({ kind: 'once' });
  await rig.pass(8_000, () => false, 50);
  t.strictSame(rig.stateOf(task), ['failed']);
  t.equal(rig.ledger.open, 1, 'its key is not free before the queue has forgotten the message');
  rig.queue.isMute = false;
  await rig.pass(40_000, () => rig.queue.left() === 0, 50);
  await rig.pass(500);
  t.strictSame(rig.stateOf(task), ['failed'], 'one end, told once');
  await finish(t, rig, { [A]: 1 });
});

t.test('once work that failed is not begun again when the server, killed, forgets an acknowledgement that it had confirmed', async (t) => {
  const rig = new DeliverRig(deliverTable({ [A]: 'status: 500, body: {why: broken}' }), [A]);
  const task = rig.send({ kind: 'once', key: 'k' });
  const put = rig.queue.put.bind(rig.queue);
  let stored: Parameters<typeof put> | null = null;
  rig.queue.put = (...message) => {
    stored = message;
    return put(...message);
  };
  rig.queue.end = ((end) => (delivery) => {
    stored ??= [Consumer.lane(poolOf('once').id, 'normal'), delivery.subject, Buffer.from(delivery.data)];
    return end(delivery);
  })(rig.queue.end);
  await rig.pass(2_000, () => rig.queue.left() === 0);
  t.strictSame(rig.stateOf(task), ['failed']);
  put(...(stored as unknown as Parameters<typeof put>));
  await rig.pass(2_000, () => rig.queue.left() === 0);
  t.strictSame(rig.stateOf(task), ['failed'], 'told once');
  t.equal(rig.rig.executions(A), 1);
  const other = rig.send({ kind: 'once', key: 'k' });
  await rig.pass(2_000, () => rig.queue.left() === 0);
  t.strictSame(rig.stateOf(other), ['failed'], 'for another task the key is free');
  await finish(t, rig, { [A]: 2 });
});

t.test('one that is delivered anew is not said to have expired, or to be called off, while another worker has it', async (t) => {
  for (const how of ['expired', 'called off'] as const) {
    const rig = new DeliverRig(deliverTable({ [A]: GOOD }), [A]);
    const id = `${SENDER} ${CAPABILITY} task000001`;
    const other = await rig.ledger.claim({
      id,
      caller: SENDER,
      capability: CAPABILITY,
      version: '1.0.0',
      payloadHash: '',
      execution: 'once',
      key: 'task000001',
      taskId: 'task000001',
      worker: B,
    });
    const task = rig.send({ kind: 'once', more: { expires_ms: how === 'expired' ? 2_000 : 60_000 } });
    await rig.pass(1_500);
    if (how === 'called off') rig.callOff(task);
    await rig.pass(4_000);
    t.strictSame(rig.stateOf(task), [], how);
    if (other.kind === 'claimed')
      await other.claim.done({
        code: 0,
        status: 200,
        contentType: 'application/json',
        provider: B,
        version: '1.0.0',
        detail: '',
        body: Buffer.from('{"by":"b"}'),
        leftOutBytes: 0,
        marks: null,
      });
    await rig.pass(4_000, () => rig.queue.left() === 0);
    t.match(rig.events, [{ event: { state: 'done', replay: true, by: B }, body: '{"by":"b"}' }]);
    await finish(t, rig, { [A]: 0 });
  }
});

t.test('one that expires after a failed try is told to have expired, and its key is free', async (t) => {
  const rig = new DeliverRig(deliverTable({ [A]: 'status: 503' }), [A]);
  const task = rig.send({ kind: 'keyed', more: { expires_ms: 500 } });
  await rig.pass(4_000, () => rig.queue.left() === 0);
  t.strictSame(rig.stateOf(task), ['expired']);
  t.match(rig.events, [{ event: { attempts: 1, code: Code.expired } }]);
  await finish(t, rig, { [A]: 1 });
});

t.test('one that is called off while it is looked at is not begun', async (t) => {
  const rig = new DeliverRig(deliverTable({ [A]: GOOD }), [A]);
  const facts = rig.queue.facts.bind(rig.queue);
  rig.queue.facts = async () => {
    await new Promise<void>((done) => void rig.clock.after(200, done));
    return await facts();
  };
  const task = rig.send({ kind: 'idempotent' });
  await rig.pass(100);
  rig.callOff(task);
  await rig.pass(2_000, () => rig.queue.left() === 0);
  t.strictSame(rig.stateOf(task), ['cancelled']);
  await finish(t, rig, { [A]: 0 });
});

t.test('an agent that reports a failed try of its own is told that it was taken, and the task is tried again', async (t) => {
  const rig = new DeliverRig(deliverTable({ [A]: 'status: 202' }), [A]);
  const task = rig.send({ kind: 'idempotent' });
  await rig.pass(500, () => rig.notes.length === 1);
  const failed = { code: Code.provider_error, status: 503, contentType: '', body: Buffer.alloc(0), detail: '' } as const;
  t.equal(await rig.deliver.done(A, task, failed), 'stored');
  t.equal(await rig.deliver.done(A, task, failed), 'unknown', 'it rests');
  await rig.pass(3_000, () => rig.notes.filter(({ state }) => state === 'received').length === 2);
  const done = rig.deliver.done(A, task, { ...failed, code: Code.ok, status: 200, body: Buffer.from('{"n":1}') });
  await rig.pass(500, () => rig.queue.left() === 0);
  t.equal(await done, 'stored');
  t.match(rig.events, [{ event: { state: 'done', attempts: 2 }, body: '{"n":1}' }]);
  await finish(t, rig, { [A]: 2 });
});

t.test('work in hand of any kind is extended by its agent, and by nobody else, within the time of the task', async (t) => {
  const rig = new DeliverRig(deliverTable({ [A]: 'latency: 3s, body: {ok: true}' }), [A]);
  const task = rig.send({ kind: 'once', more: { timeout_ms: 1_000 } });
  for (let i = 0; i < 5; i++) {
    await rig.pass(600);
    t.equal(rig.deliver.extend(B, task), null);
    t.equal(rig.deliver.extend(A, task), i < 4 ? 1_000 : null, 'it had its answer in 3 s');
    if (i === 3) await rig.pass(700, () => rig.queue.left() === 0);
  }
  t.strictSame(rig.stateOf(task), ['done']);
  const bound = rig.send({ kind: 'once', more: { timeout_ms: 1_000, deadline_ms: 1_500 } });
  await rig.pass(900);
  t.equal(Math.round(rig.deliver.extend(A, bound) ?? 0), 600);
  await rig.pass(2_000, () => rig.queue.left() === 0);
  t.strictSame(rig.stateOf(bound), ['in_doubt']);
  const silent = rig.send({ kind: 'once', more: { timeout_ms: 1_000 } });
  await rig.pass(1_200, () => rig.queue.left() === 0);
  t.strictSame(rig.stateOf(silent), ['in_doubt'], 'without a word it has what its type has');
  await finish(t, rig, { [A]: 3 });
});

t.test('sticky: what ended here unheard by the queue comes again before a later one of its key', async (t) => {
  const partitions = [{ index: 0, owner: A, term: 1 }];
  const work = stickyWork('idempotent', [A], partitions);
  const rig = new DeliverRig(deliverTable({ [A]: 'latency: 3s, body: {ok: true}' }), [A], { storeForMs: 1_000 }, [work]);
  const first = rig.sendSticky(work, 0, 1, 'k');
  const second = rig.sendSticky(work, 0, 1, 'k');
  await rig.pass(100);
  rig.queue.isMute = true;
  rig.isDown = true;
  await rig.pass(18_000, () => false, 50);
  t.equal(rig.rig.executions(A), 1, 'the later one waits');
  rig.isDown = false;
  rig.queue.isMute = false;
  await rig.pass(60_000, () => rig.queue.left() === 0, 50);
  t.strictSame(
    rig.events.map(({ event }) => event.task_id),
    [first, second],
  );
  await finish(t, rig, { [A]: 3 });
});
