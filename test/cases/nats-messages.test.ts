/**
 * Messages and NATS providers against a real nats-server: what nobody answers, what is too large, times in the right unit. and a
 * worker that is cut off from it. Workers that are killed or drained are in `workers.test.ts`.
 */
import { connect, headers, type Msg, type NatsConnection } from 'nats';
import t from 'tap';
import { realClock } from '../../base/clock.ts';
import type { ConsumerFacts, ConsumerSpec } from '../../base/consumer.ts';
import { ackConfirmed, type Delivery, extend, Puller } from '../../base/puller.ts';
import { StreamPublisher } from '../../base/stream-publisher.ts';
import { TASK_STREAM } from '../../proto/wire/subjects.ts';
import { cast, Fleet, knows } from '../support/fleet.ts';
import { assertQuiet, takeBase } from '../support/invariants.ts';
import { NatsServer } from '../support/nats.ts';
import { NatsProxy } from '../support/nats-proxy.ts';
import { Rig } from '../support/rig.ts';
import { waitUntil } from '../support/settle.ts';
import { agentOf, FAST, finishFleet, NONE, WORK, workTable } from '../support/workers.ts';

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
const EXECUTION = 'reach-execution';
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

/** Stops all of it and asserts that nothing is left. */
async function over(t: Test, { nats, agent, rig }: Awaited<ReturnType<typeof providers>>, seen: number, expected: number): Promise<void> {
  await rig.stop();
  await agent.close();
  await nats.stop();
  await rig.finish(t, before, [{ name: 'the providers', count: seen, expected }]);
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
    await alone.rig.stop();
    await alone.agent.close();
    await alone.nats.stop();
    await over(t, pair, there.seen.length, 10);
    await over(t, alone, listening.seen.length, 1);
  },
);

t.test('C081 what NATS does not take is not sent to a NATS provider, and the connection lives on', async (t) => {
  const made = await providers(t, ['orders']);
  const { nats, agent, rig } = made;
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
  await over(t, made, orders.seen.length, 2);
});

t.test('C081 the bus refuses what is above the limit before it is published', async (t) => {
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

t.test('C084 an extension that did not arrive is not confirmed, and that is known within the ack wait', async (t) => {
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

// Input: 60 s of work, an ack wait of 15 s, cut off after 5 s; a fifth of it here, with the claims' lease (15 s) in proportion.
t.test('C084 who is cut off from NATS stops within the ack wait, and what comes of its work is not taken', async (t) => {
  const fleet = await Fleet.start(t, '  messages: {ack_wait: 3s}\n');
  const proxy = await NatsProxy.start(t, fleet.nats.process.port);
  const CLAIMS = '  claims: {lease: 3s}\n';
  const kindOf = (json: unknown): string => (json as { kind: string }).kind;
  const begun = new Map<string, number>();
  const left = new Map<string, number>();
  let letGo = (): void => undefined;
  const end = new Promise<void>((done) => (letGo = done));
  const a = await agentOf(t, 'a', async ({ json }, response) => {
    const kind = kindOf(json);
    begun.set(kind, performance.now());
    response.on('close', () => left.set(kind, performance.now()));
    // It works on, whether anybody waits for it or not.
    await end;
    return { body: { by: 'a' } };
  });
  // As long as the input says, it would only make the test longer.
  const b = await agentOf(t, 'b', async () => {
    await sleep(1_000);
    return { body: { by: 'b' } };
  });
  const cutOff = await fleet.sidecar('cut-off', workTable('cut-off', [['crm.order.1', a]], 'idempotent'), CLAIMS, {}, proxy.url);
  const sender = await fleet.sidecar('sender', NONE, FAST);
  await knows(sender, WORK);
  const tasks = new Map<string, string>();
  for (const kind of ['idempotent', 'keyed', 'once']) {
    const key: Record<string, string> = kind === 'keyed' ? { 'idempotency-key': 'order-4711' } : {};
    tasks.set(kind, await cast(sender, WORK, { kind }, { [EXECUTION]: kind, ...key }));
  }
  await waitUntil('A has all three', () => begun.size === 3, 5_000);
  const other = await fleet.sidecar('other', workTable('other', [['crm.order.2', b]], 'idempotent'), CLAIMS);
  await knows(sender, WORK, 2);
  await sleep(1_000);
  proxy.block();
  const blockedAt = performance.now();
  await waitUntil('A has stopped', () => left.size === 2, 10_000);
  // Nobody else begins what runs once, so that it may go on; whether its end is taken is not for A to say.
  t.strictSame([...left.keys()].sort(), ['idempotent', 'keyed'], 'what others may begin is let go');
  for (const [kind, at] of left)
    t.ok(at - blockedAt <= 3_000 + 500, `${kind}: its agent was let go ${(at - blockedAt).toFixed(0)} ms after the cut`);
  await waitUntil('B has done them', () => b.executions === 2, 15_000);
  await fleet.emptied(10_000);
  // Everything that A's sidecar wanted to say arrives now, and then its agent answers what it was asked once.
  proxy.unblock();
  await sleep(500);
  letGo();
  await waitUntil(
    'it is refused',
    () => cutOff.logged.some(({ task, msg }) => task === tasks.get('once') && /what came of a task is not taken/.test(String(msg))),
    10_000,
  );
  await sleep(500);
  const finals = await fleet.finals();
  const of = (kind: string): typeof finals => finals.filter(({ event }) => event.task_id === tasks.get(kind));
  for (const kind of ['idempotent', 'keyed']) {
    t.equal(of(kind).length, 1, `${kind}: exactly one stored result`);
    t.match(of(kind)[0], { event: { state: 'done', by: 'crm.order.2', replay: false }, body: '{"by":"b"}' });
    const keys = [...a.requests, ...b.requests]
      .filter(({ json }) => kindOf(json) === kind)
      .map(({ headers }) => headers['idempotency-key']);
    t.equal(keys.length, 2, `${kind}: both had it`);
    t.ok(keys[0] !== undefined && keys[0] === keys[1], 'and saw the same key');
  }
  t.equal(of('once').length, 1, 'once: one final state');
  t.match(of('once')[0]?.event, { state: 'in_doubt', code: 7003 }, 'work that runs once is not started again');
  t.match(await fleet.kept(), [{ kind: 'in_doubt', task_id: tasks.get('once') }], 'it waits for a person');
  await cutOff.stop();
  await proxy.stop();
  await finishFleet(
    t,
    before,
    fleet,
    [sender, other, cutOff],
    [
      [a, 3],
      [b, 2],
    ],
  );
});

t.test('C081 a cast above the limit is refused before it is published, and a result above it is told', async (t) => {
  const LIMIT = 1_048_576;
  const fleet = await Fleet.start(t);
  const large = 'x'.repeat(2_000_000);
  const agent = await agentOf(t, 'agent', ({ json }) => ({ body: (json as { big?: true }).big === true ? { large } : { small: true } }));
  const worker = await fleet.sidecar('worker', workTable('worker', [['crm.order.1', agent]], 'idempotent'));
  const sender = await fleet.sidecar('sender', NONE);
  await knows(sender, WORK);
  const connections = async (): Promise<number[]> => (await fleet.nats.connections()).map(({ cid }) => cid).sort();
  const had = await connections();
  const send = (body: string): ReturnType<Rig['ask']> => sender.ask(`/v1/cast/${WORK}`, { method: 'POST', body });
  const ofSize = (bytes: number): string => JSON.stringify({ text: 'x'.repeat(bytes - '{"text":""}'.length) });
  const [over, small, exact] = await Promise.all([send(ofSize(LIMIT + 1)), send('{}'), send(ofSize(LIMIT))]);
  for (const [what, { status, json }] of [
    ['one byte above', over],
    ['as large as the limit, with its envelope above it', exact],
  ] as const) {
    t.equal(status, 413, what);
    t.match(json, { code: 4005, detail: /1048576/ }, 'the limit that the server told');
  }
  t.equal(small.status, 202, 'a small one in parallel is taken');
  const withinLimit = await send(ofSize(LIMIT - 4_096));
  t.equal(withinLimit.status, 202, 'and one that fits');
  const big = await send('{"big":true}');
  const told = await sender.ask(`/v1/tasks/${big.json.task_id}?wait=10s`);
  t.match(
    told.json,
    { state: 'failed', code: 1005, detail: /carried out.*2\d{6} bytes/ },
    'it was carried out, and its result is too large',
  );
  for (const { json } of [small, withinLimit]) t.match((await sender.ask(`/v1/tasks/${json.task_id}?wait=10s`)).json, { state: 'done' });
  t.same(await connections(), had, 'nobody was cut off');
  await fleet.emptied(5_000);
  await finishFleet(t, before, fleet, [worker, sender], [[agent, 3]]);
});

t.test('C081 a NATS provider whose answer is too large says so, and its caller is told at once', async (t) => {
  const made = await providers(t, ['orders']);
  const { nats, agent, rig } = made;
  const orders = serve(agent, 'orders', (message) => {
    try {
      message.respond(Buffer.alloc(2_000_000, 'x'));
    } catch (error) {
      // Its own client knows the limit; the micro convention has headers for what it says then.
      const said = headers(413, (error as Error).message);
      said.set('Nats-Service-Error-Code', '413');
      said.set('Nats-Service-Error', 'the answer is too large');
      message.respond(Buffer.from(''), { headers: said });
    }
  });
  await agent.flush();
  const connections = (await nats.connections()).map(({ cid }) => cid);
  const [answer, other] = await Promise.all([rig.invoke(NAME), rig.invoke(NAME)]);
  for (const { json, elapsedMs } of [answer, other]) {
    t.match(json, { code: 6001, detail: /too large/ }, "the provider's own error, in its words");
    t.ok(elapsedMs < 1_000, `after ${elapsedMs.toFixed(0)} ms, not at the deadline`);
  }
  const now = (await nats.connections()).map(({ cid }) => cid);
  t.ok(
    connections.every((cid) => now.includes(cid)),
    'nobody was cut off',
  );
  await over(t, made, orders.seen.length, orders.seen.length >= 2 ? orders.seen.length : 2);
});

t.test('C085 a hundred casts of 4 s each are delivered once', async (t) => {
  const fleet = await Fleet.start(t);
  const agent = await agentOf(t, 'agent', async () => {
    await sleep(4_000);
    return { body: {} };
  });
  const table = workTable('worker', [['crm.order.1', agent]], 'idempotent', ', timeout: 10s, deadline: 20s, limits: {per_provider: 100}');
  const worker = await fleet.sidecar('worker', table);
  const sender = await fleet.sidecar('sender', NONE, FAST);
  await knows(sender, WORK);
  const tasks = await Promise.all(Array.from({ length: 100 }, (_, n) => cast(sender, WORK, { n })));
  await waitUntil('the agent has them', () => agent.executions === 100, 10_000);
  const look = async (): Promise<readonly ConsumerFacts[]> => {
    const found = await fleet.bus.consumers(TASK_STREAM);
    if ('failed' in found) throw new Error(found.failed);
    return found;
  };
  t.ok((await look()).length >= 3, 'three lanes');
  for (const { name, ackWaitNs } of await look()) t.equal(ackWaitNs, 20_000_000_000, name);
  const monitored = JSON.stringify(await fleet.nats.monitor('jsz?consumers=true&config=true'));
  t.ok(monitored.split('"ack_wait":20000000000').length > 3, 'as the server itself says, in nanoseconds');
  await fleet.emptied(15_000);
  await sleep(500);
  t.strictSame(
    (await look()).map(({ redelivered, ackPending, pending }) => [redelivered, ackPending, pending]),
    (await look()).map(() => [0, 0, 0]),
    'no redelivery',
  );
  const finals = await fleet.finals();
  t.same(finals.map(({ event }) => event.task_id).sort(), [...tasks].sort(), 'one result each');
  t.ok(finals.every(({ event }) => event.state === 'done' && event.attempts === 1));
  await finishFleet(t, before, fleet, [worker, sender], [[agent, 100]]);
});

t.test('C085 a server that understands another time than was asked for is found out at once', async (t) => {
  const nats = await NatsServer.start(t);
  const proxy = await NatsProxy.start(t, nats.process.port);
  // Microseconds where nanoseconds are expected; as many bytes, so that the protocol's lengths hold.
  proxy.rewrite = (chunk) => Buffer.from(chunk.toString('latin1').replace('"ack_wait":20000000000', '"ack_wait":   20000000'), 'latin1');
  const bus = await nats.connect({ servers: [proxy.url] });
  await bus.ensureStream({ name: 'T', subjects: ['t.>'], retention: 'workqueue', discard: 'new' });
  const made = await bus.ensureConsumer(SPEC);
  t.match(made, { failed: /not what it should be: .*ack_wait/ });
  const said = await nats.connect();
  t.match(await said.consumer('T', 'lane'), { ackWaitNs: 20_000_000 }, 'the server has it in the wrong unit');
  proxy.rewrite = null;
  t.match(
    await bus.ensureConsumer(SPEC),
    { change: 'updated', facts: { ackWaitNs: 20_000_000_000 } },
    'and it is put right when it can be',
  );
  await Promise.all([bus.close(), said.close()]);
  await proxy.stop();
  await nats.stop();
  await assertQuiet(t, { before });
});
