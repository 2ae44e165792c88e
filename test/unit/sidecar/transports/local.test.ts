import t from 'tap';
import { VirtualClock } from '../../../../base/virtual-clock.ts';
import type { Endpoint } from '../../../../proto/language/types.ts';
import { Code } from '../../../../proto/wire/codes.ts';
import { judgeAnswer } from '../../../../sidecar/attempt/judge.ts';
import { type Handler, ServingAgent } from '../../../../sidecar/embed/agent.ts';
import { ServedAnswer, type ServedRequest } from '../../../../sidecar/embed/request.ts';
import { workNow } from '../../../../sidecar/embed/work.ts';
import { LocalHub } from '../../../../sidecar/transports/local-hub.ts';
import { LocalTransport, localKind } from '../../../../sidecar/transports/local.ts';
import type { Exchange } from '../../../../sidecar/transports/transport.ts';
import { candidateOf, Collector, contextOf, type ExchangeParts, exchangeOf } from './exchanges.ts';

const OWN = [
  'reach-deadline-ms',
  '900',
  'traceparent',
  '00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01',
  'reach-path',
  'shop.order.1>crm.order.query',
  'reach-caller',
  'support.planner.1',
  'reach-power-id',
  'k-1',
];

function scene(handler: Handler | null): {
  local: LocalTransport;
  ask: (parts?: ExchangeParts) => Exchange;
  lost: string[];
  clock: VirtualClock;
} {
  const clock = new VirtualClock();
  const lost: string[] = [];
  const hub = new LocalHub();
  if (handler !== null) {
    const agent = new ServingAgent('shop.order.1', clock, (words) => lost.push(words));
    agent.set('crm.order.query@2.1.0', handler);
    hub.set(agent);
  }
  const candidate = candidateOf({ endpoint: { type: 'local' } });
  return {
    local: new LocalTransport(contextOf({ local: hub, clock })),
    ask: (parts = {}) => exchangeOf(candidate, { own: OWN, ...parts }),
    lost,
    clock,
  };
}

const none = (): unknown => undefined;

t.test('a function is asked with what an agent with a port would get, and its value is the answer as JSON', async (t) => {
  const seen: ServedRequest[] = [];
  const { local, ask, clock } = scene((request) => {
    seen.push(request);
    return { ok: true };
  });
  const reply = await local.invoke(ask({ incoming: { 'x-note': 'yes', authorization: 'Bearer secret' } }));
  t.equal(reply.code, Code.ok);
  t.equal(reply.status, 200);
  t.equal(reply.started, 'done');
  t.equal(reply.body.toString(), '{"ok":true}');
  t.equal(reply.headers['content-type'], 'application/json');
  const [request] = seen as [ServedRequest];
  t.equal(request.capability, 'crm.order.query');
  t.equal(request.version, '2.1.0');
  t.equal(request.caller, 'support.planner.1');
  t.equal(request.powerId, 'k-1');
  t.equal(request.traceId, '0af7651916cd43dd8448eb211c80319c');
  t.strictSame(request.payload, { id: 7 });
  t.equal(request.headers['x-note'], 'yes');
  t.equal(request.headers['reach-deadline-ms'], '900');
  t.equal(request.headers['authorization'], undefined);
  t.equal(request.isStream, false);
  t.equal(request.remainingMs, 5_000);
  await clock.advance(4_000);
  t.equal(request.remainingMs, 1_000);
});

t.test('values, bytes, nothing and answers with a status each have their form', async (t) => {
  const rows: readonly [unknown, number, string, string | undefined][] = [
    [null, 200, 'null', 'application/json'],
    ['text', 200, '"text"', 'application/json'],
    [[1], 200, '[1]', 'application/json'],
    [Buffer.from('raw'), 200, 'raw', 'application/octet-stream'],
    [new Uint8Array([65]).subarray(0), 200, 'A', 'application/octet-stream'],
    [undefined, 204, '', undefined],
    [new ServedAnswer(201, { id: 1 }, { 'X-Place': 'here' }), 201, '{"id":1}', 'application/json'],
    [new ServedAnswer(404, { why: 'none' }), 404, '{"why":"none"}', 'application/json'],
    [new ServedAnswer(200, Buffer.from('<a/>'), { 'Content-Type': 'application/xml' }), 200, '<a/>', 'application/xml'],
  ];
  for (const [value, status, body, type] of rows) {
    const { local, ask } = scene(() => value);
    const reply = await local.invoke(ask());
    t.equal(reply.status, status);
    t.equal(reply.body.toString(), body);
    t.equal(reply.headers['content-type'], type);
    if (value instanceof ServedAnswer && status === 201) t.equal(reply.headers['x-place'], 'here');
  }
});

t.test('what a function throws is the agent’s own error, with its message and, where it has one, its status', async (t) => {
  const rows: readonly [unknown, number, RegExp][] = [
    [new Error('the database is away'), 500, /500: the database is away/],
    [Object.assign(new Error('no such order'), { status: 404 }), 404, /404: no such order/],
    [Object.assign(new Error('odd'), { status: 200 }), 500, /500: odd/],
    ['a text', 500, /500: a text/],
    [new ServedAnswer(409, { taken: true }), 409, /409/],
    [new ServedAnswer(409, () => 1), 409, /409/],
  ];
  for (const [thrown, status, words] of rows) {
    for (const isLater of [false, true]) {
      const { local, ask } = scene(async () => {
        if (isLater) await Promise.resolve();
        throw thrown;
      });
      const reply = await local.invoke(ask());
      t.equal(reply.code, Code.ok);
      t.equal(reply.status, status);
      const judged = judgeAnswer(reply, null, none);
      t.equal(judged.code, Code.provider_error);
      t.match(judged.detail, words);
    }
  }
  const { local, ask } = scene(() => () => 1);
  t.equal((await local.invoke(ask())).status, 500, 'a function has no form in JSON');
});

t.test('what is thrown without a form as text is an error all the same, and brings nobody down', async (t) => {
  const circular = Object.create(null) as Record<string, unknown>;
  circular['a'] = circular;
  const mute = new Error('x');
  Object.defineProperty(mute, 'message', {
    get: () => {
      throw new Error('not even its message');
    },
  });
  const rows: readonly [unknown, number][] = [
    [Object.create(null), 500],
    [circular, 500],
    [mute, 500],
    [Object.assign(new Error('x'), { message: { a: 1 } }), 500],
    [Symbol('s'), 500],
    [undefined, 500],
    [new ServedAnswer(422, circular), 422],
  ];
  for (const [thrown, status] of rows) {
    const { local, ask } = scene(() => {
      throw thrown;
    });
    const reply = await local.invoke(ask());
    t.equal(reply.status, status);
    t.type(reply.detail, 'string');
    t.type(JSON.parse(reply.body.toString()), status === 422 ? 'string' : 'object');
  }
});

t.test('a number that JSON has not is an error, never null', async (t) => {
  for (const value of [Number.NaN, { a: [1, Number.POSITIVE_INFINITY] }, { price: Number.NaN, other: null }]) {
    const { local, ask } = scene(() => value);
    const reply = await local.invoke(ask());
    t.equal(reply.status, 500);
    t.match(reply.detail, /has no form in JSON/);
  }
  const { local, ask } = scene(() => ({ a: null, b: 'null', c: -0 }));
  t.equal((await local.invoke(ask())).body.toString(), '{"a":null,"b":"null","c":0}');
});

t.test('headers of an answer are text that HTTP can have', async (t) => {
  const given = (headers: object): ServedAnswer => new ServedAnswer(200, 1, headers as Record<string, string>);
  t.strictSame(given({ 'X-Count': 5, 'x-on': true, 'x-none': undefined, 'x-text': 'ü' }).headers, {
    'x-count': '5',
    'x-on': 'true',
    'x-text': 'ü',
  });
  for (const headers of [{ 'x a': '1' }, { '': '1' }, { 'x-a': 'a\r\nb: c' }, { 'x-a': ['a', 'b'] }, { 'x-a': '日' }])
    t.throws(() => given(headers), TypeError, JSON.stringify(headers));
});

t.test('who waits no longer is told so, and the exchange settles at once although the function goes on', async (t) => {
  const seen: ServedRequest[] = [];
  const { local, ask } = scene((request) => {
    seen.push(request);
    void request.signal;
    return new Promise(() => {});
  });
  const exchange = ask();
  const waiting = local.invoke(exchange);
  exchange.abort?.();
  const reply = await waiting;
  t.equal(reply.code, Code.cancelled);
  t.equal(reply.started, 'started');
  t.equal(seen[0]?.signal.aborted, true);
  const late = scene((request) => {
    seen.push(request);
    return new Promise(() => {});
  });
  const second = late.ask();
  void late.local.invoke(second);
  second.abort?.();
  t.equal(seen[1]?.signal.aborted, true, 'a signal that is asked for afterwards as well');
});

t.test('an iteration is a stream: bytes and text as they are, all else as lines', async (t) => {
  const rows: readonly [unknown[], string, string][] = [
    [[Buffer.from('a'), Buffer.from('b')], 'application/octet-stream', 'ab'],
    [['a', '', 'b'], 'text/plain; charset=utf-8', 'ab'],
    [[{ a: 1 }, 2, 'x', null], 'application/x-ndjson', '{"a":1}\n2\n"x"\nnull\n'],
    [[], 'application/x-ndjson', ''],
  ];
  for (const [pieces, type, body] of rows) {
    const make = async function* (): AsyncGenerator<unknown> {
      for (const piece of pieces) yield piece;
    };
    const { local, ask } = scene(make);
    const reply = await local.invokeStream(ask());
    t.equal(reply.headers['content-type'], type);
    const collected = new Collector(reply.stream);
    await collected.ended;
    t.equal(collected.text, body);
    t.equal(collected.code, 0);
    t.equal(collected.endings, 1);
    t.equal((await local.invoke(ask())).body.toString(), body, 'asked for whole');
    const plain = scene(function* () {
      yield* pieces;
    });
    t.equal((await plain.local.invoke(plain.ask())).body.toString(), body, 'from a generator that never waits');
    if (body.length > 1) t.equal((await local.invoke(ask({ maxResponseBytes: 1 }))).code, Code.response_too_large);
  }
});

t.test('an iterator that throws when it is given up harms nobody', async (t) => {
  const pieces = {
    [Symbol.asyncIterator]: () => ({
      next: () => Promise.resolve({ done: false, value: 'a' }),
      return: () => {
        throw new Error('not so');
      },
    }),
  };
  const { local, ask } = scene(() => pieces);
  const reply = await local.invokeStream(ask());
  reply.stream?.cancel(Code.cancelled, 'enough');
  const collected = new Collector(reply.stream);
  await collected.ended;
  t.equal(collected.code, Code.cancelled);
  t.equal((await local.invoke(ask({ maxResponseBytes: 10 }))).code, Code.response_too_large);
});

t.test('a stream goes at the pace of its reader, and ends with its function told when it is given up', async (t) => {
  const made: number[] = [];
  let isClosed = false;
  const { local, ask } = scene(async function* () {
    try {
      for (let i = 0; i < 1_000; i++) {
        made.push(i);
        yield Buffer.from([i & 255]);
      }
    } finally {
      isClosed = true;
    }
  });
  const reply = await local.invokeStream(ask());
  t.equal(made.length, 1, 'nothing is made before somebody reads');
  const told: string[] = [];
  reply.stream?.pipe({
    chunk: (data) => {
      told.push(String(data[0]));
      return false;
    },
    end: () => told.push('end'),
    cut: (code) => told.push(`cut ${code}`),
  });
  const turn = (): Promise<void> => new Promise((done) => setImmediate(done));
  await turn();
  t.equal(made.length, 1);
  for (let i = 2; i <= 5; i++) {
    reply.stream?.resume();
    await turn();
    t.equal(made.length, i);
  }
  reply.stream?.cancel(Code.cancelled, 'gone');
  t.strictSame(told, ['0', '1', '2', '3', '4', `cut ${Code.cancelled}`]);
  await new Promise((done) => setImmediate(done));
  t.ok(isClosed);
});

t.test('a failure before the first piece is an error, after it a cut; a piece of another form is a cut too', async (t) => {
  const early = scene(async function* () {
    await Promise.resolve();
    if (made()) yield 1;
    throw new Error('no');
  });
  const made = (): boolean => false;
  const error = await early.local.invokeStream(early.ask());
  t.equal(error.stream, null);
  t.equal(error.status, 500);
  for (const [second, words] of [[new Error('boo'), /boo/] as const, [7, /text/] as const]) {
    const { local, ask } = scene(async function* () {
      yield 'one';
      if (second instanceof Error) throw second;
      yield second;
    });
    const reader = new Collector((await local.invokeStream(ask())).stream);
    await reader.ended;
    t.equal(reader.code, Code.stream_interrupted);
    t.match(reader.detail, words);
    t.equal(reader.text, 'one');
    t.equal(reader.endings, 1);
  }
});

t.test('what a function does carries its work, also in the pieces of a stream', async (t) => {
  const agents: (string | undefined)[] = [];
  const { local, ask } = scene(async function* () {
    await Promise.resolve();
    agents.push(workNow()?.agent);
    yield 1;
    await Promise.resolve();
    agents.push(workNow()?.agent);
    yield 2;
  });
  const reader = new Collector((await local.invokeStream(ask())).stream);
  await reader.ended;
  t.strictSame(agents, ['shop.order.1', 'shop.order.1']);
  t.equal(workNow(), null);
});

t.test('a cast is handed over at once; what goes wrong afterwards is told to the log', async (t) => {
  let go: () => void = () => {};
  const { local, ask, lost } = scene(async () => {
    await new Promise<void>((done) => (go = done));
    throw new Error('later');
  });
  t.equal((await local.cast(ask())).status, 202);
  go();
  await new Promise((done) => setImmediate(done));
  t.match(lost.join(), /shop\.order\.1 failed.*later/);
});

t.test('who is not served here has not started, and nor does anything after the end', async (t) => {
  for (const { local, ask } of [scene(null)]) {
    const reply = await local.invoke(ask());
    t.equal(reply.code, Code.connect_timeout);
    t.equal(reply.started, 'not_started');
    t.match(reply.detail, /not served in this process/);
  }
  const { local, ask } = scene(() => 1);
  await local.close();
  t.equal((await local.invoke(ask())).started, 'not_started');
});

t.test('nothing can be written for it beside its type', async (t) => {
  const problems = (more: Partial<Endpoint>): string =>
    localKind.problems({ type: 'local', address: '', path: null, mapping: {}, credential: null, options: {}, ...more }).join(' | ');
  t.equal(problems({}), '');
  t.match(problems({ address: 'http://x' }), /address/);
  t.match(problems({ options: { path: '/x' } }), /unknown key "path"/);
  t.match(problems({ credential: { header: 'a', prefix: '', secret: { env: 'X' } } }), /credential/);
});
