import t from 'tap';
import { SeededRandom } from '../../../../base/random.ts';
import { VirtualClock } from '../../../../base/virtual-clock.ts';
import { Code } from '../../../../proto/wire/codes.ts';
import type { Reply } from '../../../../sidecar/call/reply.ts';
import { MockTransport } from '../../../../sidecar/transports/mock.ts';
import { readScript } from '../../../../sidecar/transports/mock-reading.ts';
import { actOf } from '../../../../sidecar/transports/mock-script.ts';
import { candidateOf, Collector, contextOf, exchangeOf, type ExchangeParts } from './exchanges.ts';

/** A mock under a virtual clock; `call` gives the reply and the virtual time it took, or null while it has not come. */
function mocked(options: Record<string, unknown>, seed = 1) {
  const clock = new VirtualClock();
  const mock = new MockTransport(contextOf({ clock, random: new SeededRandom(seed) }));
  const candidate = candidateOf({ endpoint: { type: 'mock', options } });
  const start = (parts: ExchangeParts = {}, how: 'invoke' | 'invokeStream' | 'cast' = 'invoke') => {
    const exchange = exchangeOf(candidate, parts);
    const seen: { reply: Reply | null; atMs: number; readonly exchange: typeof exchange } = { reply: null, atMs: -1, exchange };
    void mock[how](exchange).then((reply) => {
      seen.reply = reply;
      seen.atMs = clock.now();
    });
    return seen;
  };
  return { clock, mock, candidate, start };
}

async function one(options: Record<string, unknown>, parts: ExchangeParts = {}): Promise<Reply> {
  const { clock, start } = mocked(options);
  const seen = start(parts);
  await clock.advance(60_000);
  if (seen.reply === null) throw new Error('no reply in a minute');
  return seen.reply;
}

t.test('without a script it answers who it is and what it was given', async (t) => {
  const reply = await one({});
  t.match(reply, { code: 0, status: 200, started: 'done', headers: { 'content-type': 'application/json' } });
  t.same(JSON.parse(reply.body.toString()), { agent: 'shop.order.1', payload: { id: 7 } });
});

t.test('bodies: words become what they stand for, the rest stands', async (t) => {
  const body = {
    echo: '$payload',
    who: ['$agent', '$capability', '$version', '$call'],
    left: '$header.Reach-Deadline-Ms',
    accept: '$header.accept',
    none: '$header.x',
    other: '$other',
    text: 'cost $5',
    n: 1,
    z: null,
  };
  const reply = await one({ body }, { own: ['reach-deadline-ms', '900'], incoming: { accept: 'a/b' } });
  t.same(JSON.parse(reply.body.toString()), {
    echo: { id: 7 },
    who: ['shop.order.1', 'crm.order.query', '2.1.0', 1],
    left: '900',
    accept: 'a/b',
    none: null,
    other: '$other',
    text: 'cost $5',
    n: 1,
    z: null,
  });
  t.equal((await one({ body: '$payload' }, { body: 'not json' })).body.toString(), '"not json"');
  t.equal((await one({ body: '$payload' }, { body: '' })).body.toString(), 'null');
  t.equal((await one({ body: null })).body.toString(), 'null', 'null is a body, not "not said"');
  t.match(await one({ status: 204, body: { a: 1 } }), { status: 204, body: { length: 0 } });
});

t.test('latency passes on the Clock', async (t) => {
  const { clock, start } = mocked({ latency: '20ms' });
  const seen = start();
  await clock.advance(19);
  t.equal(seen.reply, null);
  await clock.advance(1);
  t.match(seen, { reply: { code: 0 }, atMs: 20 });

  const ranged = mocked({ latency: { from: '10ms', to: '30ms' } });
  const all = Array.from({ length: 50 }, () => ranged.start());
  await ranged.clock.advance(40);
  const times = all.map((call) => call.atMs);
  t.ok(times.every((at) => at >= 10 && at < 30));
  t.ok(new Set(times).size > 10, 'spread');
});

t.test("the same seed gives the same run, and a failure of some calls does not move the others' dice", async (t) => {
  const run = async (options: Record<string, unknown>): Promise<[number, number][]> => {
    const { clock, start } = mocked(options, 42);
    const all = Array.from({ length: 200 }, () => start());
    await clock.advance(1000);
    return all.map((call) => [call.reply?.status ?? 0, call.atMs]);
  };
  const options = { latency: { from: '1ms', to: '99ms' }, error_rate: 0.2, status: 503 };
  const first = await run(options);
  t.same(await run(options), first);
  const failures = first.filter(([status]) => status === 503).length;
  t.ok(failures > 20 && failures < 60, `${failures} of 200 at 20 %`);
  t.ok(first.every(([status]) => status === 200 || status === 503));
  t.same(
    (await run({ ...options, error_rate: 0 })).map(([, at]) => at),
    first.map(([, at]) => at),
  );
  t.ok(
    (await run({ error_rate: '100%' })).every(([status]) => status === 500),
    'an error without a status is 500',
  );
  t.ok(
    (await run({ status: 404 })).every(([status]) => status === 404),
    "a status without a rate is every call's",
  );
});

t.test('faults have the codes and the `started` of a real provider', async (t) => {
  const table: [Record<string, unknown>, object][] = [
    [{ refuse_connect: true }, { code: Code.connect_timeout, started: 'not_started' }],
    [{ reset: 'before_head' }, { code: Code.connection_lost, started: 'started', status: 0 }],
    [{ reset: true }, { code: Code.connection_lost, started: 'started' }],
    [{ reset: 'after_head' }, { code: Code.bad_response, started: 'started', detail: /cut/ }],
    [{ reset: 'mid_body' }, { code: Code.bad_response, started: 'started', detail: /cut/ }],
    [{ body: 'x'.repeat(100) }, { code: Code.response_too_large, started: 'started', detail: /limit of 50 bytes/ }],
    [
      { status: 302, headers: { Location: '/x' }, body: '' },
      { code: 0, status: 302, headers: { location: '/x' } },
    ],
  ];
  for (const [options, wanted] of table) t.match(await one(options, { maxResponseBytes: 50 }), wanted, JSON.stringify(options));
});

t.test('C138 a hang is stopped like any other call, wherever it hangs', async (t) => {
  for (const hang of [true, 'before_head', 'after_head', 'mid_body']) {
    const { clock, mock, start } = mocked({ hang, slow_body: { chunks: 4, every: '10ms' } });
    const seen = start();
    await clock.advance(100_000);
    t.equal(seen.reply, null, `${hang} does not answer`);
    t.equal(mock.open, 1);
    seen.exchange.abort?.();
    await clock.advance(0);
    t.match(seen.reply, { code: Code.cancelled, started: 'started' });
    t.equal(mock.open, 0);
    t.equal(clock.nextAt(), null, 'no timer is left');
  }
});

t.test('a slow body takes its time, in one piece or as a stream', async (t) => {
  const { clock, mock, start } = mocked({ latency: '5ms', body: 'abcdefgh', slow_body: { chunks: 5, every: '100ms' } });
  const whole = start();
  await clock.advance(404);
  t.equal(whole.reply, null);
  await clock.advance(1);
  t.equal(whole.atMs, 405);
  const head = start({}, 'invokeStream');
  await clock.advance(5);
  t.match(head.reply, { code: 0, started: 'started' });
  const body = new Collector(head.reply?.stream ?? null);
  t.equal(body.chunks.length, 1);
  await clock.advance(100);
  t.equal(body.chunks.length, 2);
  body.goesOn = false;
  await clock.advance(100);
  t.equal(body.chunks.length, 3, 'the chunk that asked for the pause');
  await clock.advance(1000);
  t.equal(body.chunks.length, 3, 'a pause holds');
  body.goesOn = true;
  head.reply?.stream?.resume();
  await clock.advance(1000);
  t.match(body, { code: 0, endings: 1, text: '"abcdefgh"' });
  t.equal(mock.open, 0);
});

t.test('streams break, stall and stop as told', async (t) => {
  const options = { body: 'abcdefgh', slow_body: { chunks: 4, every: '10ms' } };
  const cut = mocked({ ...options, reset: 'mid_body' });
  const broken = cut.start({}, 'invokeStream');
  await cut.clock.advance(0);
  const first = new Collector(broken.reply?.stream ?? null);
  await cut.clock.advance(100);
  t.match(first, { code: Code.stream_interrupted, endings: 1 });
  t.equal(first.chunks.length, 2);

  const stalls = mocked({ ...options, hang: 'mid_body' });
  const stalled = stalls.start({}, 'invokeStream');
  await stalls.clock.advance(0);
  const second = new Collector(stalled.reply?.stream ?? null);
  await stalls.clock.advance(10_000);
  t.match(second, { endings: 0 });
  t.equal(second.chunks.length, 2);
  stalled.reply?.stream?.cancel(Code.deadline_exceeded, 'time is over');
  t.match(second, { code: Code.deadline_exceeded, detail: 'time is over', endings: 1 });

  const early = mocked(options);
  const unread = early.start({}, 'invokeStream');
  await early.clock.advance(0);
  unread.exchange.abort?.();
  t.match(new Collector(unread.reply?.stream ?? null), { code: Code.cancelled, endings: 1 }, 'stopped before anybody read');
  for (const { mock, clock } of [cut, stalls, early]) {
    t.equal(mock.open, 0);
    t.equal(clock.nextAt(), null);
  }
  const error = mocked({ status: 503 });
  const refused = error.start({}, 'invokeStream');
  await error.clock.advance(0);
  t.match(refused.reply, { status: 503, stream: null }, 'an error comes whole');
});

t.test('behaviours come and go by time or by the number of the call', async (t) => {
  const { clock, mock, start } = mocked({
    body: 'base',
    behaviours: [
      { after: '10s', until: '20s', status: 503 },
      { after: 2, until: 3, refuse_connect: true },
      { after: 3, until: 4, hang: false, body: 'fourth' },
    ],
  });
  const seen: (number | string)[] = [];
  const call = async (): Promise<void> => {
    const run = start();
    await clock.advance(0);
    seen.push(
      run.reply?.code === 0 ? (run.reply.status === 200 ? run.reply.body.toString() : run.reply.status) : (run.reply?.code ?? 'none'),
    );
  };
  for (let i = 0; i < 5; i++) await call();
  await clock.advanceTo(10_000);
  await call();
  await clock.advanceTo(20_000);
  await call();
  t.same(seen, ['"base"', '"base"', Code.connect_timeout, '"fourth"', '"base"', 503, '"base"']);
  t.equal(mock.executions('shop.order.1'), 6, 'a refused connection is no execution');
  t.equal(mock.executions('shop.order.1', 'crm.order.query'), 6);
  t.equal(mock.executions('shop.order.2'), 0);
});

t.test('a capability may have its own script', async (t) => {
  const mock = new MockTransport(contextOf({ clock: new VirtualClock() }));
  const options = { status: 503, capabilities: { 'crm.refund.apply': { body: 'refund' } } };
  const query = candidateOf({ endpoint: { type: 'mock', options } });
  const refund = candidateOf({ endpoint: { type: 'mock', options }, capability: 'crm.refund.apply' });
  t.match(await mock.invoke(exchangeOf(query)), { status: 503 });
  const reply = await mock.invoke(exchangeOf(refund));
  t.match(reply, { status: 200 });
  t.equal(reply.body.toString(), '"refund"');
  t.equal(mock.executions('shop.order.1'), 2);
  t.equal(mock.executions('shop.order.1', 'crm.refund.apply'), 1);
});

t.test('a cast gets the head only; closing ends what is open', async (t) => {
  const { clock, mock, start } = mocked({ latency: '5ms', slow_body: { chunks: 3, every: '1s' } });
  const cast = start({}, 'cast');
  await clock.advance(5);
  t.match(cast.reply, { code: 0, status: 200, body: { length: 0 } });
  const stream = start({}, 'invokeStream');
  await clock.advance(5);
  const body = new Collector(stream.reply?.stream ?? null);
  const call = start();
  await mock.close();
  await clock.advance(0);
  t.match(call.reply, { code: Code.connection_lost });
  t.match(body, { code: Code.stream_interrupted, endings: 1 });
  t.equal(mock.open, 0);
  t.equal(clock.nextAt(), null);
  t.match(await mock.invoke(exchangeOf(candidateOf({ endpoint: { type: 'mock' } }))), { started: 'not_started' });
});

t.test('a script that is not understood is refused whole, with every problem and its place', async (t) => {
  const table: [Record<string, unknown>, RegExp][] = [
    [{ latencey: '20ms' }, /^\/latencey: .*did you mean "latency"/],
    [{ latency: 20 }, /^\/latency: .*no unit/],
    [{ latency: { from: '20ms', to: '10ms' } }, /^\/latency: /],
    [{ error_rate: 20 }, /^\/error_rate: .*out of range/],
    [{ status: 99 }, /^\/status: .*200 to 599/],
    [{ hang: 'sometimes' }, /^\/hang: .*before_head/],
    [{ reset: 1 }, /^\/reset: /],
    [{ refuse_connect: 'yes' }, /^\/refuse_connect: /],
    [{ slow_body: { every: '1s' } }, /^\/slow_body\/chunks: is needed/],
    [{ slow_body: { chunks: 0, every: '1s' } }, /^\/slow_body\/chunks: /],
    [{ headers: { a: [] } }, /^\/headers\/a: /],
    [{ behaviours: {} }, /^\/behaviours: /],
    [{ behaviours: [{ after: -1 }] }, /^\/behaviours\/0\/after: /],
    [{ behaviours: [{ until: '1 parsec' }] }, /^\/behaviours\/0\/until: /],
    [{ behaviours: [{ capabilities: {} }] }, /^\/behaviours\/0\/capabilities: /],
    [{ capabilities: { a: { statuss: 1 } } }, /^\/capabilities\/a\/statuss: .*"status"/],
  ];
  for (const [options, words] of table) {
    const problems = readScript(options);
    t.ok(Array.isArray(problems), JSON.stringify(options));
    t.match((problems as readonly string[])[0], words);
  }
  t.equal((readScript({ status: 1, hang: 3, nope: 1 }) as readonly string[]).length, 3);
  const { mock, candidate } = mocked({ nope: 1 });
  t.match(await mock.invoke(exchangeOf(candidate)), { code: Code.internal, started: 'not_started', detail: /nope/ });
  t.equal(mock.executions('shop.order.1'), 0);
});

/** The times of so many calls at once. */
async function timesOf(latency: unknown, calls = 2_000): Promise<number[]> {
  const { clock, start } = mocked({ latency }, 7);
  const all = Array.from({ length: calls }, () => start());
  await clock.advance(600_000);
  return all.map((call) => call.atMs);
}

const share = (times: readonly number[], below: number): number => times.filter((ms) => ms <= below).length / times.length;

t.test('latency has the distribution that was asked for', async (t) => {
  const normal = await timesOf({ mean: '200ms', deviation: '50ms' });
  t.ok(Math.abs(share(normal, 200) - 0.5) < 0.04, 'half below the mean');
  t.ok(Math.abs(share(normal, 250) - 0.841) < 0.03, 'one deviation above');
  const tail = await timesOf({ median: '100ms', p95: '1s', most: '5s' });
  t.ok(Math.abs(share(tail, 100) - 0.5) < 0.04, 'lognormal: half below the median');
  t.ok(Math.abs(share(tail, 1_000) - 0.95) < 0.02, 'and 95 % below its P95');
  t.ok(Math.max(...tail) <= 5_000, 'cut at the most');
  const measured = await timesOf({ p50: '200ms', p95: '1s', p99: '4s', most: '6s' });
  for (const [ms, part] of [
    [200, 0.5],
    [1_000, 0.95],
    [4_000, 0.99],
  ] as const)
    t.ok(Math.abs(share(measured, ms) - part) < 0.04, `${part} of the measured ones within ${ms} ms: ${share(measured, ms)}`);
  t.ok(Math.max(...measured) <= 6_000 && Math.min(...measured) >= 100);
  t.same(await timesOf(['10ms', '20ms', '3s'], 5), [10, 20, 3_000, 10, 20], 'a list is gone through in order, again and again');
  t.same(await timesOf({ list: ['5ms'] }, 2), [5, 5]);
});

t.test('errors by status, answers in order, retry-after, hangs of a share', async (t) => {
  const { clock, start } = mocked({ errors: { 503: '20%', 429: '10%' }, retry_after: '1500ms' }, 3);
  const all = Array.from({ length: 1_000 }, () => start());
  await clock.advance(0);
  const count = (status: number): number => all.filter((call) => call.reply?.status === status).length;
  t.ok(Math.abs(count(503) - 200) < 45 && Math.abs(count(429) - 100) < 35, `${count(503)} and ${count(429)}`);
  t.ok(
    all.filter((call) => (call.reply?.status ?? 0) >= 400).every((call) => call.reply?.headers['retry-after'] === '2'),
    'whole seconds, never sooner',
  );
  t.ok(all.filter((call) => call.reply?.status === 200).every((call) => call.reply?.headers['retry-after'] === undefined));

  const listed = mocked({ body: 'base', answers: [{ status: 503 }, { body: 'second', latency: '5ms' }, {}] });
  const seen: unknown[] = [];
  for (let i = 0; i < 4; i++) {
    const call = listed.start();
    await listed.clock.advance(10);
    seen.push(call.reply?.status === 200 ? call.reply.body.toString() : call.reply?.status);
  }
  t.same(seen, [503, '"second"', '"base"', '"base"']);

  const hanging = mocked({ latency: '5ms', hang: true, hang_rate: '25%' });
  const some = Array.from({ length: 400 }, () => hanging.start());
  await hanging.clock.advance(1_000);
  const open = some.filter((call) => call.reply === null).length;
  t.ok(Math.abs(open - 100) < 30, `${open} of 400 hang`);
  t.equal(hanging.mock.open, open);
  for (const call of some) call.exchange.abort?.();
});

t.test('streams are cut, or stop, after so many chunks, and so are whole answers', async (t) => {
  const options = { body: 'abcdefgh', slow_body: { chunks: 5, every: '10ms' } };
  const cut = mocked({ ...options, reset: { after_chunks: 3 } });
  const stream = cut.start({}, 'invokeStream');
  await cut.clock.advance(0);
  const body = new Collector(stream.reply?.stream ?? null);
  await cut.clock.advance(100);
  t.match(body, { code: Code.stream_interrupted, endings: 1, chunks: { length: 3 } });
  const whole = cut.start();
  await cut.clock.advance(100);
  t.match(whole.reply, { code: Code.bad_response, detail: /cut/ });
  const stalled = mocked({ ...options, hang: { after_chunks: 2 } });
  const call = stalled.start();
  await stalled.clock.advance(10_000);
  t.equal(call.reply, null);
  call.exchange.abort?.();
  t.equal(stalled.mock.open, 0);
});

t.test('an agent that flaps is there and away by its schedule, and cuts what it is at', async (t) => {
  const { clock, start, mock } = mocked({ latency: '3s', flap: { up: '10s', down: '5s' } });
  const early = start();
  await clock.advanceTo(8_000);
  t.match(early, { reply: { code: 0 }, atMs: 3_000 });
  const across = start();
  await clock.advanceTo(12_000);
  t.match(across, { reply: { code: Code.connection_lost, started: 'started' }, atMs: 10_000 });
  const away = start();
  await clock.advance(0);
  t.match(away.reply, { code: Code.connect_timeout, started: 'not_started' });
  await clock.advanceTo(15_000);
  const back = start();
  await clock.advance(3_000);
  t.match(back.reply, { code: 0 });
  t.equal(mock.open, 0);
  t.equal(clock.nextAt(), null);
  const down = mocked({ flap: { up: '10s', down: '5s', first: 'down' } });
  const first = down.start();
  await down.clock.advance(0);
  t.match(first.reply, { code: Code.connect_timeout });
});

t.test('a crash takes everything that the agent was at, and is over when it is back, slow at first', async (t) => {
  const { clock, start, mock } = mocked({ latency: '100ms', crash: { on_call: 3, back_after: '10s' }, warm_up: { for: '10s', slower: 3 } });
  const [one, two, three] = [start(), start(), start()];
  const stream = start({}, 'invokeStream');
  await clock.advance(300);
  t.match(one.reply, { code: 0 }, 'answered in the same instant, before it');
  t.match(two.reply, { code: 0 });
  t.match(three.reply, { code: Code.connection_lost, started: 'started' });
  t.match(stream.reply, { code: Code.connection_lost });
  const away = start();
  await clock.advance(0);
  t.match(away.reply, { code: Code.connect_timeout });
  await clock.advanceTo(10_300);
  const back = start();
  await clock.advance(10_000);
  t.ok(back.atMs - 10_300 >= 290 && back.atMs - 10_300 <= 300, `cold: ${back.atMs - 10_300} ms`);
  await clock.advance(10_000);
  const warm = start();
  const beganAt = clock.now();
  await clock.advance(1_000);
  t.equal(warm.atMs - beganAt, 100, 'warm, and it does not crash a second time');
  t.equal(mock.open, 0);

  const timed = mocked({ latency: '1s', crash: { at: '5s', every: '20s', back_after: '2s' } });
  const codes: (number | undefined)[] = [];
  for (const at of [4_500, 6_000, 8_000, 24_500, 28_000]) {
    await timed.clock.advanceTo(at);
    const call = timed.start();
    await timed.clock.advance(1_000);
    codes.push(call.reply?.code);
  }
  t.same(codes, [Code.connection_lost, Code.connect_timeout, 0, Code.connection_lost, 0]);
});

t.test('above its capacity an agent says that it is busy; streams count until their end', async (t) => {
  const { clock, start } = mocked({
    latency: '100ms',
    body: 'abcd',
    slow_body: { chunks: 4, every: '100ms' },
    capacity: { concurrent: 2, status: 429, retry_after: '3s' },
  });
  const calls = [start(), start({}, 'invokeStream'), start()];
  await clock.advance(0);
  t.match(calls[2]?.reply, { status: 429, headers: { 'retry-after': '3' } });
  await clock.advance(400);
  t.match(calls[0]?.reply, { status: 200 });
  const body = new Collector(calls[1]?.reply?.stream ?? null);
  const [third, fourth] = [start(), start()];
  await clock.advance(0);
  t.match([third.reply, fourth.reply], [null, { status: 429 }], 'the stream takes a place still');
  await clock.advance(1_000);
  t.match(body, { endings: 1, code: 0 });
});

t.test('answers may come from elsewhere than a script: what was recorded', async (t) => {
  const clock = new VirtualClock();
  const recorded = [actOf({ latencyMs: 20, body: 'first' }), actOf({ status: 404 })];
  const mock = new MockTransport(contextOf({ clock }), (_agent, _capability, n) => recorded[n - 1] ?? null);
  const candidate = candidateOf({ endpoint: { type: 'mock', options: { body: 'script' } } });
  const replies: (Reply | null)[] = [];
  for (let i = 0; i < 3; i++) {
    void mock.invoke(exchangeOf(candidate)).then((reply) => replies.push(reply));
    await clock.advance(20);
  }
  t.match(replies, [{ status: 200 }, { status: 404 }, { status: 200 }]);
  t.equal(replies[0]?.body.toString(), '"first"');
  t.equal(replies[2]?.body.toString(), '"script"', 'where nothing is recorded, the script says');
});

t.test('slips in the newer words are named too', async (t) => {
  const table: [Record<string, unknown>, RegExp][] = [
    [{ latency: { mean: '1s' } }, /^\/latency\/deviation: /],
    [{ latency: { median: '1s', p95: '500ms' } }, /^\/latency: `p95` is not below `median`/],
    [{ latency: { p50: '1s', p95: '500ms' } }, /^\/latency: must rise/],
    [{ latency: { p0: '1s' } }, /^\/latency\/p0: is no percentile/],
    [{ latency: [] }, /^\/latency: is a list of durations/],
    [{ errors: { 200: '5%' } }, /^\/errors\/200: /],
    [{ errors: { 500: '60%', 503: '60%' } }, /^\/errors: adds up to more than 100%/],
    [{ error_rate: '5%', errors: { 500: '5%' } }, /^\/error_rate: write either/],
    [{ hang_rate: '5%' }, /^\/hang_rate: needs hang/],
    [{ reset: { after_chunk: 3 } }, /^\/reset\/after_chunk: .*did you mean "after_chunks"/],
    [{ flap: { up: '1s' } }, /^\/flap\/down: /],
    [{ flap: { up: '1s', down: '1s', first: 'left' } }, /^\/flap\/first: /],
    [{ crash: {} }, /^\/crash: needs either/],
    [{ crash: { at: '1s', every: '5s', back_after: '5s' } }, /^\/crash\/back_after: must be less/],
    [{ capacity: { status: 503 } }, /^\/capacity\/concurrent: is needed/],
    [{ warm_up: { for: '1s' } }, /^\/warm_up\/slower: /],
    [{ answers: {} }, /^\/answers: is a list of answers/],
    [{ answers: [{ flap: {} }] }, /^\/answers\/0\/flap: /],
    [{ calls: [] }, /^\/calls: is a list of 1 to 64 calls/],
    [{ calls: [{ on_error: 'stop' }] }, /^\/calls\/0\/call: /],
    [{ calls: { steps: ['a.b.c'], paralel: true } }, /^\/calls\/paralel: .*did you mean "parallel"/],
    [{ capabilities: { 'a.b.c': { crash: { at: '1s' } } } }, /^\/capabilities\/a\.b\.c\/crash: /],
  ];
  for (const [options, words] of table) {
    const problems = readScript(options);
    t.match(Array.isArray(problems) ? problems[0] : 'no problem', words, JSON.stringify(options));
  }
});
