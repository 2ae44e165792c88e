/** Storing and pulling many messages, on a real nats-server: what is promised when all is well, and when the server goes, stands still or refuses. */
import t from 'tap';
import { realClock } from '../../../base/clock.ts';
import type { ConsumerSpec } from '../../../base/consumer.ts';
import { Consumers } from '../../../base/consumers.ts';
import type { Bus } from '../../../base/nats.ts';
import { type Appended, readPubAck } from '../../../base/pub-ack.ts';
import { ack, ackConfirmed, Delivery, extend, nak, Puller, term } from '../../../base/puller.ts';
import { StreamPublisher } from '../../../base/stream-publisher.ts';
import { NatsServer } from '../../support/nats.ts';
import { waitUntil } from '../../support/settle.ts';

const bytes = (text: string): Buffer => Buffer.from(text, 'utf8');
const sleep = (ms: number): Promise<void> => new Promise((done) => setTimeout(done, ms));
const SPEC: ConsumerSpec = {
  stream: 'T',
  name: 'c',
  filter: 't.a.*',
  ackWaitMs: 20_000,
  maxAckPending: 1_000,
  maxDeliver: -1,
  deliver: 'all',
};
const QUICK = { timeoutMs: 5_000, maxPending: 64 };
type Test = Parameters<typeof NatsServer.start>[0] & { equal(a: unknown, b: unknown): unknown };

async function world(t: Test, spec: Partial<ConsumerSpec> = {}): Promise<{ nats: NatsServer; bus: Bus }> {
  const nats = await NatsServer.start(t);
  const bus = await nats.connect();
  await bus.ensureStream({ name: 'T', subjects: ['t.>'], retention: 'workqueue', discard: 'new' });
  const ready = await bus.ensureConsumer({ ...SPEC, ...spec });
  t.equal('failed' in ready ? ready.failed : 'made', 'made');
  return { nats, bus };
}

function stored(
  publisher: StreamPublisher,
  subject: string,
  data = 'x',
  options: Parameters<StreamPublisher['send']>[2] = null,
): Promise<Appended> {
  return new Promise((resolve, reject) => {
    if (!publisher.send(subject, bytes(data), options, resolve)) reject(new Error('not sent'));
  });
}

t.test('the answer of a stream is read', async (t) => {
  const read = (text: string): Appended => readPubAck(bytes(text), 's');
  for (const plain of ['{"stream":"T", "seq":12}', '{"stream":"T","seq":12}']) t.same(read(plain), { seq: 12, duplicate: false });
  t.same(read('{"stream":"T", "seq":12,"duplicate": true}'), { seq: 12, duplicate: true });
  t.same(read('{"stream":"T","domain":"d","seq":12}'), { seq: 12, duplicate: false }, 'a form that is not the usual one');
  const refused = (errCode: number, words: string): Appended =>
    read(JSON.stringify({ error: { code: 400, err_code: errCode, description: words }, stream: 'T', seq: 0 }));
  t.same(refused(10_071, 'wrong last sequence: 7'), { conflict: 7 });
  t.same(refused(10_077, 'maximum messages exceeded'), { failed: 'storing s: maximum messages exceeded', ambiguous: false, full: true });
  t.same(refused(10_060, 'expected stream does not match'), { failed: 'storing s: expected stream does not match', ambiguous: false });
  for (const strange of ['', '{}', '[]', '{"stream":"T","seq":"12"}', '{"stream":"T","seq":-1', '{"stream":"T"', 'x'])
    t.match(read(strange), { ambiguous: true }, `nothing is made up from ${strange}`);
});

t.test('both forms of the subject of an ack are read', async (t) => {
  const of = (reply: string): Delivery | null => Delivery.of({ subject: 't.a.s', data: bytes('x'), reply, header: () => null });
  const wanted = { deliveries: 3, streamSeq: 17, consumerSeq: 21, storedAtMs: 1_700_000_000_123, pending: 5 };
  t.match(of('$JS.ACK.T.c.3.17.21.1700000000123456789.5'), wanted);
  t.match(of('$JS.ACK.hub.abc.T.c.3.17.21.1700000000123456789.5'), wanted);
  t.match(of('$JS.ACK._.abc.T.c.3.17.21.1700000000123456789.5.rnd'), wanted);
  for (const none of ['', '_INBOX.x.y', '$JS.ACK.T.c', '$JS.ACK.T.c.x.17.21.1700000000123456789.5']) t.equal(of(none), null, none);
});

t.test('a publisher', async (t) => {
  const { nats, bus } = await world(t);
  await bus.ensureStream({ name: 'K', subjects: ['k.>'], maxMsgsPerSubject: 1, discard: 'new', allowDirect: true });
  await bus.ensureStream({ name: 'S', subjects: ['s.>'], discard: 'new', maxMsgs: 2 });
  const publisher = new StreamPublisher(bus, realClock, QUICK);

  t.test('stores, each with its own answer, in the order given', async (t) => {
    const all = await Promise.all(Array.from({ length: 50 }, (_, i) => stored(publisher, 't.a.s', `${i}`)));
    t.same(
      all.map((one) => ('seq' in one ? one.seq : one)),
      Array.from({ length: 50 }, (_, i) => i + 1),
    );
    t.equal(publisher.pending, 0);
  });
  t.test('knows a repeat by its id', async (t) => {
    const first = await stored(publisher, 't.b.s', 'x', { msgId: 'one' });
    t.match(first, { duplicate: false });
    t.same(await stored(publisher, 't.b.s', 'x', { msgId: 'one' }), { ...first, duplicate: true });
  });
  t.test('creates and updates only over the sequence expected', async (t) => {
    const made = await stored(publisher, 'k.one', 'a', { expectLastSubjectSeq: 0 });
    t.match(made, { seq: 1 });
    t.same(await stored(publisher, 'k.one', 'b', { expectLastSubjectSeq: 0 }), { conflict: 1 });
    t.match(await stored(publisher, 'k.one', 'c', { expectLastSubjectSeq: 1, headers: { 'Reach-X': 'grün' } }), { seq: 2 });
    const twins = await Promise.all(Array.from({ length: 20 }, () => stored(publisher, 'k.two', 'x', { expectLastSubjectSeq: 0 })));
    t.equal(twins.filter((one) => 'seq' in one).length, 1, 'one of twenty at once');
    t.match(await bus.last('K', 'k.one'), { data: bytes('c') });
  });
  t.test('says that a stream is full, that none takes it, that it is another one', async (t) => {
    await stored(publisher, 's.a');
    await stored(publisher, 's.a');
    t.match(await stored(publisher, 's.a'), { full: true, ambiguous: false });
    t.match(await stored(publisher, 'nobody.a'), { failed: /no stream takes it/, ambiguous: false });
    t.match(await stored(publisher, 's.a', 'x', { stream: 'K' }), { failed: /stream/, ambiguous: false });
  });
  t.test('sends nothing that could not be sent, and the connection lives on', async (t) => {
    const before = bus.state.reconnects;
    for (const subject of ['t.a b', 't..a', '$JS.API.x', 't.*', '']) t.match(await stored(publisher, subject), { ambiguous: false });
    t.match(await stored(publisher, 't.a.s', 'x', { msgId: 'a\r\nb' }), { failed: /control character/, ambiguous: false });
    t.match(await stored(publisher, 't.a.s', 'x'.repeat(bus.maxPayload + 1)), { failed: /the server takes/, ambiguous: false });
    t.match(await stored(publisher, 't.b.s'), { duplicate: false });
    t.equal(bus.state.reconnects, before);
  });
  t.test('takes no more than may wait', async (t) => {
    let told = 0;
    const sent = Array.from({ length: 80 }, () => publisher.send('t.b.s', bytes('x'), null, () => told++)).filter(Boolean).length;
    t.equal(sent, QUICK.maxPending);
    await waitUntil('all are told', () => told === sent);
  });
  t.test('goes on when one who is told throws', async (t) => {
    publisher.send('t.b.s', bytes('x'), null, () => {
      throw new Error('of the caller');
    });
    t.match(await stored(publisher, 't.b.s'), { duplicate: false });
  });
  t.test('tells that it is in doubt when the server stands still, when it dies, and when it is closed', async (t) => {
    const hasty = new StreamPublisher(bus, realClock, { timeoutMs: 150, maxPending: 8 });
    nats.pause();
    await sleep(50);
    const late = await Promise.all([stored(hasty, 't.b.s'), stored(hasty, 't.b.s')]);
    for (const one of late) t.match(one, { failed: /no answer in time/, ambiguous: true });
    t.equal(hasty.pending, 0);
    const dying = stored(publisher, 't.b.s');
    await sleep(20);
    await nats.kill();
    t.match(await dying, { failed: /connection to NATS broke/, ambiguous: true });
    t.equal(
      publisher.send('t.b.s', bytes('x'), null, () => t.fail('told although not sent')),
      false,
      'nothing is sent without a connection',
    );
    await nats.restart();
    await waitUntil('connected again', () => bus.connected);
    t.match(await stored(publisher, 't.b.s'), { duplicate: false }, 'and it works again after');
    const last = stored(hasty, 't.b.s');
    hasty.close();
    t.match(await last, { failed: /closed/, ambiguous: true });
    t.equal(
      hasty.send('t.b.s', bytes('x'), null, () => {}),
      false,
    );
  });
});

t.test('a consumer', async (t) => {
  const { bus } = await world(t);
  t.test('has its times in nanoseconds, as read back', async (t) => {
    t.match(await bus.ensureConsumer(SPEC), { change: 'none', facts: { ackWaitNs: 20_000_000_000, filter: 't.a.*' } });
    t.match(await bus.ensureConsumer({ ...SPEC, ackWaitMs: 15_000 }), { change: 'updated', facts: { ackWaitNs: 15_000_000_000 } });
    t.match(await bus.consumer('T', 'c'), { ackWaitNs: 15_000_000_000 });
  });
  t.test('that the server made otherwise is a failure that names the difference', async (t) => {
    const info = { name: 'c', config: { durable_name: 'c', ack_wait: 20_000_000, filter_subject: 't.a.*' } };
    const consumers = new Consumers({
      ask: () => Promise.resolve({ kind: 'timeout' }),
      askApi: () =>
        Promise.resolve({ kind: 'ok', message: { subject: '', reply: '', data: bytes(JSON.stringify(info)), header: () => null } }),
    });
    t.match(await consumers.ensure(SPEC), { failed: /ack_wait: 20000000000 \(the server has 20000000\)/ });
  });
  t.test('cannot be given a name that is more than a name, or no time', async (t) => {
    for (const name of ['a.b', '*', '>', '', 'a b']) t.match(await bus.ensureConsumer({ ...SPEC, name }), { failed: /no name/ }, name);
    t.match(await bus.ensureConsumer({ ...SPEC, ackWaitMs: 0.02 }), { failed: /ack wait/ });
    t.match(await bus.deleteConsumer('T', '*'), { failed: /no name/ });
    t.match(await bus.ensureConsumer({ ...SPEC, name: 'd', stream: 'NONE' }), { failed: /d of NONE/ }, 'the server refuses it');
  });
  t.test('is listed with what waits, and is gone when deleted', async (t) => {
    await bus.ensureConsumer({ ...SPEC, name: 'b', filter: 't.b.*' });
    await bus.append('t.b.s', bytes('x'));
    t.match(await bus.consumers('T'), [
      { name: 'b', pending: 1, ackPending: 0 },
      { name: 'c', pending: 0 },
    ]);
    t.equal(await bus.deleteConsumer('T', 'b'), true);
    t.equal(await bus.deleteConsumer('T', 'b'), false);
    t.equal(await bus.consumer('T', 'b'), null);
    t.equal(await bus.consumer('NONE', 'b'), null);
  });
  t.test('and a message can be deleted once', async (t) => {
    const appended = await bus.append('t.b.s', bytes('x'));
    const seq = 'seq' in appended ? appended.seq : 0;
    t.equal(await bus.deleteMessage('T', seq), true);
    t.equal(await bus.deleteMessage('T', seq), null);
    t.equal(await bus.deleteMessage('T', 999_999), null);
    t.equal(await bus.deleteMessage('NONE', 1), null);
  });
});

t.test('a puller', async (t) => {
  const { nats, bus } = await world(t, { ackWaitMs: 1_000 });
  const other = await nats.connect();
  const fill = async (count: number): Promise<void> => {
    for (let i = 0; i < count; i++) await bus.append('t.a.s', bytes(`${i}`));
  };
  const empty = async (): Promise<boolean> => {
    const facts = await bus.stream('T');
    return facts !== null && 'messages' in facts && facts.messages === 0;
  };
  const make = (on: Partial<ConstructorParameters<typeof Puller>[2]> = {}, through = bus): { puller: Puller; got: Delivery[] } => {
    const got: Delivery[] = [];
    return {
      got,
      puller: new Puller(through, realClock, {
        stream: 'T',
        consumer: 'c',
        onMessage: (one) => void got.push(one),
        expiresMs: 1_000,
        ...on,
      }),
    };
  };

  t.afterEach(async () => {
    // what was closed has requests at the server until they run out
    await waitUntil('nobody pulls', async () => ((await bus.consumer('T', 'c')) as { waiting?: number }).waiting === 0, 10_000);
  });

  t.test('brings as many as were asked for', async (t) => {
    await fill(10);
    const { puller, got } = make();
    puller.request(2);
    puller.request(1);
    t.equal(puller.outstanding, 3);
    await waitUntil('three came', () => got.length === 3);
    await sleep(50);
    t.equal(got.length, 3, 'and no more');
    t.equal(puller.outstanding, 0);
    t.match(got[0], { subject: 't.a.s', deliveries: 1, data: bytes('0') });
    t.ok(Math.abs((got[0] as Delivery).storedAtMs - Date.now()) < 30_000, 'when the server stored it');
    ack(bus, got[0] as Delivery);
    t.equal(await ackConfirmed(bus, got[1] as Delivery, 2_000), true);
    term(bus, got[2] as Delivery);
    puller.request(20);
    await waitUntil('the other seven', () => got.length === 10);
    t.equal(puller.outstanding, 13);
    for (const one of got.slice(3)) ack(bus, one);
    await waitUntil('nothing is left', empty);
    puller.close();
  });
  t.test('a nak brings it again, at once or later; an extension keeps it', async (t) => {
    await fill(1);
    const { puller, got } = make();
    puller.request(1);
    await waitUntil('it came', () => got.length === 1);
    nak(bus, got[0] as Delivery, 0);
    puller.request(1);
    await waitUntil('it came again', () => got.length === 2);
    t.ok((got[1] as Delivery).deliveries > 1, 'and is counted');
    nak(bus, got[1] as Delivery, 300);
    puller.request(1);
    const since = Date.now();
    await waitUntil('and again', () => got.length === 3);
    t.ok(Date.now() - since >= 250, 'after the delay');
    puller.request(1);
    for (let i = 0; i < 3; i++) {
      await sleep(600);
      t.equal(await extend(bus, got[2] as Delivery, 500), true);
    }
    t.equal(got.length, 3, 'ack wait is over by far, and nobody has it');
    t.equal(await ackConfirmed(bus, got[2] as Delivery, 2_000), true);
    puller.close();
  });
  t.test('asks again for what a request did not bring, or gives it back to an owner who wants that', async (t) => {
    const again = make({ expiresMs: 150 });
    again.puller.request(3);
    await sleep(500);
    t.equal(again.puller.outstanding, 3);
    await fill(1);
    await waitUntil('it came', () => again.got.length === 1);
    ack(bus, again.got[0] as Delivery);
    t.equal(again.puller.outstanding, 2);
    again.puller.close();
    await sleep(400);
    let returned = 0;
    const giving = make({ expiresMs: 150, onReturned: (count) => void (returned += count) });
    await fill(1);
    giving.puller.request(5);
    await waitUntil('the rest was given back', () => returned > 0);
    t.equal(returned, 4);
    t.equal(giving.puller.outstanding, 0);
    ack(bus, giving.got[0] as Delivery);
    await waitUntil('nothing is left', empty);
    giving.puller.close();
  });
  t.test('asks at last for what it put off for the sake of requests that brought nothing', async () => {
    const { puller, got } = make({ expiresMs: 300, onReturned: () => undefined });
    puller.request(10);
    await sleep(50);
    puller.request(1);
    await waitUntil('the ten ran out', () => puller.outstanding === 1, 3_000);
    await fill(1);
    await waitUntil('the one brought it', () => got.length === 1, 2_000);
    ack(bus, got[0] as Delivery);
    await waitUntil('nothing is left', empty);
    puller.close();
  });
  t.test('lets others have at once what arrives after it was closed', async (t) => {
    const closed = make({ expiresMs: 2_000 });
    closed.puller.request(5);
    await sleep(50);
    closed.puller.close();
    const open = make({}, other);
    open.puller.request(5);
    await fill(4);
    const since = Date.now();
    await waitUntil('all four came to the other', () => new Set(open.got.map((one) => one.streamSeq)).size === 4);
    t.ok(Date.now() - since < 800, 'without waiting for the ack wait');
    t.equal(closed.got.length, 0);
    for (const one of open.got) ack(other, one);
    await waitUntil('nothing is left', empty);
    open.puller.close();
  });
  t.test('says that there is no consumer, once, and goes on when there is one', async (t) => {
    const troubles: string[] = [];
    const { puller, got } = make({ consumer: 'later', expiresMs: 200, onTrouble: (why) => void troubles.push(why) });
    puller.request(1);
    await waitUntil('told', () => troubles.length > 0);
    await sleep(2_700);
    t.equal(troubles.length, 1, 'once, although it tried again');
    t.match(troubles[0], /no consumer later/);
    await bus.ensureConsumer({ ...SPEC, name: 'later', filter: 't.later.*' });
    await bus.append('t.later.s', bytes('x'));
    await waitUntil('it came', () => got.length === 1);
    ack(bus, got[0] as Delivery);
    puller.request(1);
    await sleep(100);
    await bus.deleteConsumer('T', 'later');
    await waitUntil('told that it is deleted', () => troubles.length > 1);
    puller.close();
  });
  t.test('asks again after the server died; what was in hand comes again', async (t) => {
    await fill(1);
    const { puller, got } = make();
    puller.request(3);
    await waitUntil('one came', () => got.length === 1);
    await nats.kill();
    await waitUntil('the loss is seen', () => !bus.connected);
    t.equal(puller.outstanding, 2, 'what was asked for stays asked for');
    t.equal(await ackConfirmed(bus, got[0] as Delivery, 100), false);
    t.equal(await extend(bus, got[0] as Delivery, 100), false);
    await nats.restart();
    await waitUntil('connected again', () => bus.connected);
    await fill(1);
    await waitUntil('the new one and the old one', () => got.length === 3, 10_000);
    const [first, ...later] = got;
    t.equal(first?.deliveries, 1);
    t.equal(
      later.filter((one) => one.streamSeq === first?.streamSeq && one.deliveries > 1).length,
      1,
      'the one in hand came again, and is marked so',
    );
    t.equal(new Set(got.map((one) => one.streamSeq)).size, 2);
    t.equal(puller.outstanding, 0);
    for (const one of got) ack(bus, one);
    await waitUntil('nothing is left', empty);
    puller.close();
  });
  t.test('brings what was asked for, and not double, when the server stood still past the end of its requests', async (t) => {
    const { puller, got } = make({ expiresMs: 200 });
    puller.request(2);
    await sleep(50);
    nats.pause();
    await sleep(2_500);
    nats.resume();
    await waitUntil('awake', async () => await bus.answers(1_000));
    await fill(6);
    await waitUntil('two came', () => got.length >= 2);
    await sleep(300);
    t.equal(got.length, 2);
    puller.close();
  });
});
