import t from 'tap';
import { Code } from '../../../../proto/wire/codes.ts';
import { CAPABILITY, DeliverRig, deliverTable, SENDER, workOf } from '../../../support/deliver-rig.ts';
import { StageWitness } from '../../../support/stage-witness.ts';

const A = 'crm.order.1';
const SEND = 'b7ad6b7169203331';
const TRACE = '0af7651916cd43dd8448eb211c80319c';

function rigOf(
  mock: string,
  settings: ConstructorParameters<typeof DeliverRig>[2] = {},
): { readonly rig: DeliverRig; readonly seen: StageWitness } {
  const seen = new StageWitness();
  return { rig: new DeliverRig(deliverTable({ [A]: mock }), [A], settings, [], undefined, seen), seen };
}

t.test('a message that goes well: queue, deliver and result stand below send, which is said again', async (t) => {
  const { rig, seen } = rigOf('latency: 20ms, body: {ok: true}');
  const task = rig.send({ more: { lane: 'high', rule: 'urgent', sent_in: '00f067aa0ba902b7' } });
  await rig.pass(1_000, () => rig.events.length === 1);
  await rig.pass(100);
  t.same(
    seen.told.map(({ stage }) => stage),
    ['queue', 'deliver', 'result'],
  );
  for (const span of seen.told)
    t.match(span, {
      trace_id: TRACE,
      parent_span_id: SEND,
      code: 0,
      capability: CAPABILITY,
      caller: SENDER,
      way: 'message',
      task_id: task,
      rule: 'urgent',
    });
  t.equal(new Set(seen.told.map(({ span_id: id }) => id)).size, 3);
  t.match(seen.of('deliver'), [{ provider: A, version: '2.0.0', status: 200, started: 'done', tries: 1 }]);
  t.ok((seen.of('deliver')[0]?.elapsed_ms ?? 0) >= 20);
  t.match(seen.retold, [{ stage: 'send', span_id: SEND, parent_span_id: '00f067aa0ba902b7', code: 0 }]);
  t.equal(rig.events[0]?.event.traceparent, `00-${TRACE}-${SEND}-01`, 'so that the inbox can go on below it');
  await rig.stop();
});

t.test('each try has its deliver; at last the message is dead, and its result says so', async (t) => {
  const { rig, seen } = rigOf('status: 500, body: {why: broken}', { maxTries: 3 });
  rig.send();
  await rig.pass(60_000, () => rig.events.length === 1, 50);
  await rig.pass(100);
  t.match(seen.of('deliver'), [
    { tries: 1, code: Code.provider_error, status: 500 },
    { tries: 2, code: Code.provider_error },
    { tries: 3, code: Code.provider_error },
  ]);
  t.equal(new Set(seen.of('deliver').map(({ span_id: id }) => id)).size, 3);
  t.match(seen.of('result'), [{ code: Code.dead_lettered, detail: /^dead_lettered \(attempts_exhausted\)/, tries: 3 }]);
  await rig.stop();
});

t.test('expired before anybody had it; and a result that cannot be stored yet', async (t) => {
  const expired = rigOf('body: {ok: true}');
  expired.rig.assign([]);
  await expired.rig.pass(100);
  expired.rig.send({ more: { expires_ms: 5_000 } });
  await expired.rig.pass(6_000);
  expired.rig.assign([workOf('idempotent', [A])]);
  await expired.rig.pass(5_000, () => expired.rig.events.length === 1);
  t.equal(expired.rig.events[0]?.event.state, 'expired');
  t.match(expired.seen.of('result'), [{ code: Code.expired, detail: /^expired/ }]);
  t.equal(expired.seen.of('deliver').length, 0);
  await expired.rig.stop();
  const away = rigOf('body: {ok: true}', { storeForMs: 2_000 });
  away.rig.isDown = true;
  away.rig.send();
  await away.rig.pass(5_000);
  t.match(away.seen.of('result')[0], { code: Code.delivery_unavailable, detail: /could not be stored/ });
  await away.rig.stop();
});

t.test('a message of a trace that was not picked says so, and one without a context has no spans', async (t) => {
  const { rig, seen } = rigOf('body: {ok: true}');
  rig.send({ more: { traceparent: `00-${TRACE}-${SEND}-00` } });
  rig.send({ more: { traceparent: 'nonsense' } });
  await rig.pass(2_000, () => rig.events.length === 2);
  await rig.pass(100);
  t.same([...new Set(seen.picked)], [false]);
  t.equal(seen.told.length, 3);
  await rig.stop();
});

t.test('one that was given back without having been started has its time in the queue told by whoever has it next, once', async (t) => {
  const limited = '{after: 0, until: 1, status: 429, headers: {retry-after: "5"}, body: {}}';
  const { rig, seen } = rigOf(`behaviours: [${limited}, {after: 1, until: 3, status: 500}], latency: 20ms, body: {}`);
  rig.send();
  await rig.pass(500);
  const waits = rig.send();
  await rig.pass(60_000, () => rig.events.length === 2, 50);
  await rig.pass(100);
  t.ok(rig.queue.log.includes('nak 2 0'), `it was held and given back: ${rig.queue.log.join()}`);
  const own = seen.told.filter(({ task_id: id }) => id === waits);
  t.strictSame(
    own.map(({ stage }) => stage),
    ['queue', 'deliver', 'deliver', 'result'],
    'and not at the next try of it',
  );
  t.ok((own[0]?.elapsed_ms ?? 0) >= 3_000, 'from when it was stored');
  t.equal(seen.retold.filter(({ stage, task_id: id }) => stage === 'send' && id === waits).length, 1, 'and so is that it was sent');
  await rig.stop();
});
