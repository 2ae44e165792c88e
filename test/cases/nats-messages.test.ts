/**
 * Messages and NATS providers against a real nats-server. Only a name that begins with its id counts as a case: what runs here of
 * C081, C084 and C085 without the ways in and the delivery of messages is named `bus half of …` or `provider half of …` until then.
 */
import { connect, type Msg, type NatsConnection } from 'nats';
import t from 'tap';
import { realClock } from '../../base/clock.ts';
import type { ConsumerSpec } from '../../base/consumer.ts';
import { ackConfirmed, type Delivery, extend, Puller } from '../../base/puller.ts';
import { StreamPublisher } from '../../base/stream-publisher.ts';
import { assertQuiet, takeBase } from '../support/invariants.ts';
import { NatsServer } from '../support/nats.ts';
import { NatsProxy } from '../support/nats-proxy.ts';
import { Rig } from '../support/rig.ts';
import { waitUntil } from '../support/settle.ts';

type Test = Parameters<typeof Rig.start>[0];

t.setTimeout(118_000);
const before = takeBase();
const NAME = 'crm.order.query';
const SPEC: ConsumerSpec = {
  stream: 'T',
  name: 'lane',
  filter: 't.p.*',
  ackWaitMs: 20_000,
  maxAckPending: 10_000,
  maxDeliver: -1,
  deliver: 'all',
};
const sleep = (ms: number): Promise<void> => new Promise((done) => setTimeout(done, ms));

/** A sidecar whose providers are subjects of a NATS; `one` is preferred by its priority. */
async function providers(t: Test, subjects: readonly string[]): Promise<{ nats: NatsServer; agent: NatsConnection; rig: Rig }> {
  const nats = await NatsServer.start(t);
  const agent = await connect({ servers: nats.url });
  t.teardown(() => agent.close());
  const lines = subjects.map(
    (subject, i) =>
      `  - {agent_id: crm.order.${i + 1}, offers: [${NAME}@1.0.0], via: one, endpoint: {type: nats, address: "${nats.url}", subject: ${subject}}}\n`,
  );
  const table = `contracts: [{name: ${NAME}, version: 1.0.0, description: x, acl: public, execution: idempotent}]\nproviders:\n${lines.join('')}`;
  return { nats, agent, rig: await Rig.start(t, { table }) };
}

function serve(agent: NatsConnection, subject: string, answer: (message: Msg) => void): { unsubscribe(): void; seen: Msg[] } {
  const seen: Msg[] = [];
  const subscription = agent.subscribe(subject, {
    callback: (error, message) => {
      if (error !== null) return;
      seen.push(message);
      answer(message);
    },
  });
  return { seen, unsubscribe: () => subscription.unsubscribe() };
}

const metrics = async (rig: Rig): Promise<string> => (await rig.ask('/metrics')).bytes.toString('utf8');

t.test(
  'C080 nobody who listens is told at once and by name, one who keeps silent at the deadline, and the two are told apart',
  async (t) => {
    const well = (message: Msg): void => void message.respond(Buffer.from('{"by":"NATS"}'));
    const alone = await providers(t, ['only']);
    const listening = serve(alone.agent, 'only', well);
    await alone.agent.flush();
    t.equal((await alone.rig.invoke(NAME)).json.code, 0, 'it answers');
    listening.unsubscribe();
    await alone.agent.flush();
    const nobody = await alone.rig.invoke(NAME, { headers: { 'reach-deadline-ms': '2000' } });
    t.equal(nobody.json.code, 1001);
    t.ok(nobody.elapsedMs < 50, `in ${nobody.elapsedMs.toFixed(0)} ms`);
    t.match(JSON.stringify(nobody.json), new RegExp(NAME.replaceAll('.', '\\.')), 'naming the capability');
    t.match(JSON.stringify(nobody.json), /nobody answers/, 'in words');
    const silent = serve(alone.agent, 'only', () => {});
    await alone.agent.flush();
    const late = await alone.rig.invoke(NAME, { headers: { 'reach-deadline-ms': '400' } });
    t.ok(late.json.code === 5001 || late.json.code === 1003, `code ${late.json.code} of a time that is over`);
    t.ok(late.elapsedMs >= 300 && late.elapsedMs < 900, `at the deadline: ${late.elapsedMs.toFixed(0)} ms`);
    t.equal(silent.seen.length >= 1, true, 'it was asked');
    const counted = await metrics(alone.rig);
    t.match(counted, /reach_attempts_total\{[^}]*code="1001"[^}]*\} [1-9]/);
    t.match(counted, /reach_attempts_total\{[^}]*code="(1003|5001)"[^}]*\} [1-9]/);

    const pair = await providers(t, ['gone', 'there']);
    const there = serve(pair.agent, 'there', well);
    await pair.agent.flush();
    for (let i = 0; i < 10; i++) {
      const answer = await pair.rig.invoke(NAME);
      t.equal(answer.json.code, 0, 'the next provider is tried');
    }
    t.equal(there.seen.length, 10);
  },
);

t.test('provider half of C081: what NATS does not take is refused before it is sent, and the connection lives on', async (t) => {
  const { nats, agent, rig } = await providers(t, ['orders']);
  const orders = serve(agent, 'orders', (message) => void message.respond(Buffer.from('{}')));
  await agent.flush();
  t.equal((await rig.invoke(NAME)).json.code, 0);
  const connections = (await nats.connections()).map((one) => one.cid).sort();
  const [big, small] = await Promise.all([rig.invoke(NAME, { payload: { text: 'x'.repeat(1_048_577) } }), rig.invoke(NAME)]);
  t.equal(big.json.code, 4005);
  t.match(JSON.stringify(big.json), /1048576/, 'the limit that the server told');
  t.equal(small.json.code, 0, 'a small one in parallel is fine');
  t.equal(orders.seen.length, 2, 'the big one never left');
  t.same((await nats.connections()).map((one) => one.cid).sort(), connections, 'nobody was cut off');
});

t.test('bus half of C081: a message above the limit is refused before it is published', async (t) => {
  const nats = await NatsServer.start(t);
  const bus = await nats.connect();
  await bus.ensureStream({ name: 'T', subjects: ['t.>'], retention: 'workqueue', discard: 'new' });
  const publisher = new StreamPublisher(bus, realClock, { timeoutMs: 2_000, maxPending: 16 });
  t.teardown(() => publisher.close());
  const put = (bytes: number): Promise<unknown> => new Promise((done) => publisher.send('t.p.s', Buffer.alloc(bytes, 'x'), null, done));
  const [big, exact, small] = await Promise.all([put(1_048_577), put(1_048_576), put(10)]);
  t.match(big, { failed: /1048577 bytes: the server takes 1048576/, ambiguous: false });
  t.match(exact, { seq: 1 });
  t.match(small, { seq: 2 });
  t.equal(bus.state.reconnects, 0);
});

t.test('bus half of C084: who is cut off knows within the ack wait that its extension was not confirmed', async (t) => {
  const nats = await NatsServer.start(t);
  const proxy = await NatsProxy.start(t, nats.process.port);
  const setUp = await nats.connect();
  await setUp.ensureStream({ name: 'T', subjects: ['t.>'], retention: 'workqueue', discard: 'new' });
  await setUp.ensureConsumer({ ...SPEC, ackWaitMs: 1_500 });
  const a = await nats.connect({ servers: [proxy.url] });
  const b = await nats.connect();
  const gotA: Delivery[] = [];
  const gotB: Delivery[] = [];
  const pullerA = new Puller(a, realClock, { stream: 'T', consumer: 'lane', onMessage: (one) => void gotA.push(one) });
  const pullerB = new Puller(b, realClock, { stream: 'T', consumer: 'lane', onMessage: (one) => void gotB.push(one) });
  t.teardown(() => pullerA.close());
  t.teardown(() => pullerB.close());
  pullerA.request(1);
  await setUp.append('t.p.s', Buffer.from('x'));
  await waitUntil('A has it', () => gotA.length === 1);
  pullerB.request(1);
  t.equal(await extend(a, gotA[0] as Delivery, 500), true, 'confirmed while it can be');
  proxy.refuses = true;
  proxy.cut();
  const since = Date.now();
  t.equal(await extend(a, gotA[0] as Delivery, 500), false, 'not confirmed');
  t.ok(Date.now() - since < 1_500, 'known within the ack wait');
  await waitUntil('B has it', () => gotB.length === 1);
  t.equal(gotB[0]?.streamSeq, gotA[0]?.streamSeq);
  t.equal(gotB[0]?.deliveries, 2, 'B can see that it was in another hand');
  t.equal(await ackConfirmed(b, gotB[0] as Delivery, 1_000), true);
  t.equal(await ackConfirmed(a, gotA[0] as Delivery, 300), false, 'A has no confirmation');
});

t.test('bus half of C085: an ack wait of 20 s is 20,000,000,000 ns at the server, and work of 4 s is not redelivered', async (t) => {
  const nats = await NatsServer.start(t);
  const bus = await nats.connect();
  await bus.ensureStream({ name: 'T', subjects: ['t.>'], retention: 'workqueue', discard: 'new' });
  t.match(await bus.ensureConsumer(SPEC), { change: 'created', facts: { ackWaitNs: 20_000_000_000 } });
  const said = (await nats.monitor('jsz?consumers=true&config=true')) as {
    account_details: { stream_detail: { consumer_detail: { config: { ack_wait: number } }[] }[] }[];
  };
  t.equal(said.account_details[0]?.stream_detail[0]?.consumer_detail[0]?.config.ack_wait, 20_000_000_000, 'as the server itself says');
  const got: Delivery[] = [];
  const puller = new Puller(bus, realClock, { stream: 'T', consumer: 'lane', onMessage: (one) => void got.push(one), expiresMs: 1_000 });
  puller.request(120);
  for (let i = 0; i < 100; i++) await bus.append('t.p.s', Buffer.from(`${i}`));
  await waitUntil('all came', () => got.length === 100);
  await sleep(4_000);
  t.same(
    await Promise.all(got.map((one) => ackConfirmed(bus, one, 2_000))),
    got.map(() => true),
  );
  await sleep(500);
  t.equal(got.length, 100, 'nothing came again');
  t.ok(got.every((one) => one.deliveries === 1));
  t.match(await bus.consumer('T', 'lane'), { redelivered: 0, ackPending: 0, pending: 0 });
  puller.close();
  await waitUntil('the puller is gone', () => puller.outstanding === 0);
});

t.test('and after all of it nothing is left open', async (t) => {
  await assertQuiet(t, { before });
});
