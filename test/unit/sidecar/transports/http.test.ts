import { once } from 'node:events';
import { createServer } from 'node:net';
import { createGzip, gzipSync, brotliCompressSync } from 'node:zlib';
import t from 'tap';
import { Code } from '../../../../proto/wire/codes.ts';
import { VirtualClock } from '../../../../base/virtual-clock.ts';
import { HttpTransport } from '../../../../sidecar/transports/http.ts';
import { Pools } from '../../../../sidecar/transports/pools.ts';
import type { HttpMapping } from '../../../../proto/language/types.ts';
import { type AgentBehaviour, TestAgent } from '../../../support/agent.ts';
import { waitUntil } from '../../../support/settle.ts';
import { rawAnswer, TcpStub, type StubScript } from '../../../support/tcp-stub.ts';
import { candidateOf, Collector, contextOf, exchangeOf } from './exchanges.ts';

type Context = Parameters<typeof contextOf>[0];

const uncaught: unknown[] = [];
process.on('uncaughtException', (error) => uncaught.push(error));
process.on('unhandledRejection', (error) => uncaught.push(error));
let leakedSockets = 0;

/** A stub, an adapter and a candidate; all closed, and nothing left open, at the end of the subtest. */
async function withStub(test: Tap, script: StubScript, context: Context = {}) {
  const stub = await TcpStub.listen(script);
  const http = new HttpTransport(contextOf(context));
  test.teardown(async () => {
    await http.close();
    leakedSockets += http.pools.openSockets;
    await stub.close();
  });
  return { stub, http, candidate: candidateOf({ address: stub.url }) };
}

async function withAgent(test: Tap, behaviour?: AgentBehaviour, context: Context = {}) {
  const agent = await TestAgent.listen('shop.order.1', behaviour);
  const http = new HttpTransport(contextOf(context));
  test.teardown(async () => {
    await http.close();
    leakedSockets += http.pools.openSockets;
    await agent.close();
  });
  return { agent, http, candidate: candidateOf({ address: agent.url }) };
}

type Tap = Pick<typeof t, 'teardown'>;

function sleep(ms: number): Promise<void> {
  return new Promise((done) => setTimeout(done, ms));
}

t.test('a request reaches the agent with the payload as given, at /{capability}, and the answer comes back whole', async (t) => {
  const { agent, http, candidate } = await withAgent(t, () => ({ status: 201, headers: { 'x-a': ['1', '2'] }, body: { ok: true } }));
  const reply = await http.invoke(
    exchangeOf(candidate, {
      body: '{"id": 7}',
      incoming: { 'x-custom': 'c', authorization: 'Bearer caller' },
      own: ['reach-deadline-ms', '900', 'traceparent', '00-1-2-01'],
    }),
  );
  t.equal(reply.code, 0);
  t.equal(reply.started, 'done');
  t.equal(reply.status, 201);
  t.equal(reply.body.toString(), '{"ok":true}');
  t.same(reply.headers['x-a'], ['1', '2']);
  const seen = agent.requests[0];
  t.equal(seen?.method, 'POST');
  t.equal(seen?.path, '/crm.order.query');
  t.equal(seen?.body.toString(), '{"id": 7}');
  t.match(seen?.headers, {
    'content-type': 'application/json',
    'accept-encoding': 'identity',
    'reach-capability': 'crm.order.query',
    'reach-version': '2.1.0',
    'reach-deadline-ms': '900',
    traceparent: '00-1-2-01',
    'x-custom': 'c',
  });
  t.notOk('authorization' in (seen?.headers ?? {}), "the caller's credential to us is not sent on");
});

t.test('the path of an endpoint is filled in and put after the base of its address', async (t) => {
  const { agent, http } = await withAgent(t);
  for (const [address, path, wanted] of [
    ['', null, '/crm.order.query'],
    ['/api/', null, '/api/crm.order.query'],
    ['/api', '/v/{version}/{capability}', '/api/v/2.1.0/crm.order.query'],
    ['', '/fixed', '/fixed'],
  ] as const) {
    await http.invoke(exchangeOf(candidateOf({ address: agent.url + address, endpoint: { path } })));
    t.equal(agent.requests.at(-1)?.path, wanted);
  }
});

t.test('connections are kept, reused, and bounded; what is above the bound waits in order', async (t) => {
  let running = 0;
  let most = 0;
  const { agent, http, candidate } = await withAgent(
    t,
    async (request) => {
      most = Math.max(most, ++running);
      await sleep(5);
      running--;
      return { body: request.json };
    },
    { connectionsPerOrigin: 3 },
  );
  const replies = await Promise.all(Array.from({ length: 20 }, (_, i) => http.invoke(exchangeOf(candidate, { body: String(i) }))));
  t.same(
    replies.map((reply) => reply.body.toString()),
    Array.from({ length: 20 }, (_, i) => String(i)),
  );
  t.equal(most, 3);
  t.equal(agent.openConnections, 3);
  t.equal(http.pools.openSockets, 3);
  await http.close();
  t.equal(http.pools.openSockets, 0);
  await http.invoke(exchangeOf(candidate)).then((reply) => t.match(reply, { started: 'not_started' }, 'after close nothing is sent'));
});

t.test('no connection: 1001, the provider never saw it', async (t) => {
  const http = new HttpTransport(contextOf({ connectTimeoutMs: 80 }));
  t.teardown(() => http.close());
  const closed = createServer().listen(0, '127.0.0.1');
  await once(closed, 'listening');
  const { port } = closed.address() as { port: number };
  closed.close();
  const refused = await http.invoke(exchangeOf(candidateOf({ address: `http://127.0.0.1:${port}` })));
  t.match(refused, { code: Code.connect_timeout, started: 'not_started', reusedConnection: false });
  t.match(refused.detail, `127.0.0.1:${port}`);
  t.match(refused.detail, 'refused');
  const again = await http.invoke(exchangeOf(candidateOf({ address: `http://127.0.0.1:${port}` })));
  t.equal(again.code, Code.connect_timeout, 'the pool goes on after a refused connection');
  const unknown = await http.invoke(exchangeOf(candidateOf({ address: 'http://no-such-host.invalid' })));
  t.match(unknown, { code: Code.connect_timeout, started: 'not_started' });
  t.match(unknown.detail, 'no-such-host.invalid');
  for (const address of ['not a url', 'file:///etc/passwd', 'ftp://127.0.0.1'])
    t.match(await http.invoke(exchangeOf(candidateOf({ address }))), { code: Code.internal, started: 'not_started' }, address);
});

t.test('a host that does not answer the connection is given up after the connect timeout, by the Clock', async (t) => {
  // A full backlog: the kernel drops further SYNs, as a dead host would.
  const clock = new VirtualClock();
  const http = new HttpTransport(contextOf({ clock, connectTimeoutMs: 700 }));
  t.teardown(() => http.close());
  // TEST-NET-1 is never routed; where the machine refuses it at once, the answer is 1001 as well.
  const pending = http.invoke(exchangeOf(candidateOf({ address: 'http://192.0.2.1:81' })));
  await clock.advance(699);
  await clock.advance(2);
  const reply = await pending;
  t.match(reply, { code: Code.connect_timeout, started: 'not_started' });
});

t.test('TLS that fails: 1007, not started', async (t) => {
  const { stub, http } = await withStub(t, () => {});
  stub.script = (connection) => connection.fin();
  const plain = createServer((socket) => {
    socket.on('error', () => {});
    socket.end('HTTP/1.1 400 Bad\r\n\r\n');
  }).listen(0, '127.0.0.1');
  await once(plain, 'listening');
  t.teardown(() => plain.close());
  const reply = await http.invoke(exchangeOf(candidateOf({ address: `https://127.0.0.1:${(plain.address() as { port: number }).port}` })));
  t.match(reply, { code: Code.tls_failed, started: 'not_started' });
});

t.test('C001 a kept-alive connection that the provider closes while we use it', async (t) => {
  await t.test('FIN at once after the answer, without Connection: close', async (t) => {
    const { stub, http, candidate } = await withStub(t, async (connection) => {
      await connection.write(rawAnswer(200, { 'content-length': 2 }, '{}'));
      connection.fin();
    });
    let lost = 0;
    for (let i = 0; i < 500; i++) {
      const reply = await http.invoke(exchangeOf(candidate));
      if (reply.code === 0) continue;
      lost++;
      t.match(reply, { code: Code.connection_lost, started: 'started', reusedConnection: true });
    }
    t.ok(stub.requests.length <= 500, `${stub.requests.length} executions, ${lost} lost`);
    t.equal(stub.requests.length + lost >= 500, true);
  });
  await t.test('an idle timeout of the provider that strikes as we call', async (t) => {
    const { stub, http, candidate } = await withStub(t, async (connection) => {
      await connection.write(rawAnswer(200, { 'content-length': 2 }, '{}'));
      const marked = connection.socket as { idle?: NodeJS.Timeout };
      clearTimeout(marked.idle);
      marked.idle = setTimeout(() => connection.fin(), 4);
    });
    let lost = 0;
    for (let i = 0; i < 500; i++) {
      const reply = await http.invoke(exchangeOf(candidate));
      if (reply.code !== 0) {
        lost++;
        t.match(reply, { code: Code.connection_lost, started: 'started', reusedConnection: true });
      }
      await sleep(3 + (i % 3));
    }
    t.ok(stub.requests.length <= 500, `${stub.requests.length} executions, ${lost} lost`);
  });
  await t.test('an agent whose handler threw: 500, and a moment later the end of its connection that nobody was told of', async (t) => {
    const end = (connection: { fin(): void }, afterMs: number): void => void setTimeout(() => connection.fin(), afterMs);
    const script: StubScript = async (connection, request) => {
      await connection.write(rawAnswer(request.number % 2 === 1 ? 500 : 200, { 'content-length': 2 }, '{}'));
      if (request.number % 2 === 1) end(connection, request.number % 8);
    };
    // The time of doubt stands still: however slow this machine is, it is not over.
    const { stub, http, candidate } = await withStub(t, script, { clock: new VirtualClock() });
    for (let i = 0; i < 50; i++) {
      t.equal((await http.invoke(exchangeOf(candidate))).status, 500);
      await sleep(i % 7);
      t.equal((await http.invoke(exchangeOf(candidate))).status, 200, 'the next call is not lost with it');
    }
    t.equal(stub.requests.length, 100);
    t.equal(stub.connections, 51, 'and an answer of 200 keeps its connection');
  });
  await t.test('a 500 whose connection lives on is used again after a moment', async (t) => {
    const clock = new VirtualClock();
    const { stub, http, candidate } = await withStub(t, (connection) => connection.write(rawAnswer(500, { 'content-length': 2 }, '{}')), {
      clock,
    });
    for (const [afterMs, connections] of [
      [0, 1],
      [99, 2],
      [100, 2],
      [1_000, 2],
    ] as const) {
      await clock.advance(afterMs);
      await http.invoke(exchangeOf(candidate));
      t.equal(stub.connections, connections, `${afterMs} ms after the one before`);
    }
  });
  await t.test('one that nobody doubts is taken first', async (t) => {
    const { stub, http, candidate } = await withStub(
      t,
      async (connection, request) => {
        await sleep(20);
        await connection.write(rawAnswer(request.number === 1 ? 500 : 200, { 'content-length': 2 }, '{}'));
      },
      { clock: new VirtualClock() },
    );
    const slow = http.invoke(exchangeOf(candidate));
    await waitUntil('the first is there', () => stub.requests.length === 1);
    const other = http.invoke(exchangeOf(candidate));
    await Promise.all([slow, other]);
    for (let i = 0; i < 5; i++) await http.invoke(exchangeOf(candidate));
    t.equal(stub.connections, 2, 'no handshake more');
  });
  await t.test('a reset of a used connection says so, of a fresh one does not', async (t) => {
    const { stub, http, candidate } = await withStub(t, (connection, request) => {
      if (request.onConnection === 1 && request.number === 1) return connection.write(rawAnswer(200, { 'content-length': 2 }, '{}'));
      connection.rst();
      return undefined;
    });
    t.equal((await http.invoke(exchangeOf(candidate))).code, 0);
    const used = await http.invoke(exchangeOf(candidate));
    t.match(used, { code: Code.connection_lost, started: 'started', reusedConnection: true });
    t.match(used.detail, 'kept-alive');
    const fresh = await http.invoke(exchangeOf(candidate));
    t.match(fresh, { code: Code.connection_lost, started: 'started', reusedConnection: false });
    t.equal(stub.requests.length, 3);
  });
  await t.test('an answer cut in its head on a used connection is no idle race', async (t) => {
    const { http, candidate } = await withStub(t, async (connection, request) => {
      await connection.write(request.number === 1 ? rawAnswer(200, { 'content-length': 2 }, '{}') : 'HTTP/1.1 200 OK\r\nx-a: b\r\n');
      if (request.number > 1) connection.fin();
    });
    await http.invoke(exchangeOf(candidate));
    t.match(await http.invoke(exchangeOf(candidate)), { code: Code.connection_lost, started: 'started', reusedConnection: false });
  });
});

t.test('C002 headers, then nothing: abort settles at once and the connection is destroyed', async (t) => {
  const { stub, http, candidate } = await withStub(t, (connection) =>
    connection.write(`${rawAnswer(200, { 'content-type': 'application/json', 'content-length': 100 })}{"a":`),
  );
  const exchange = exchangeOf(candidate);
  const pending = http.invoke(exchange);
  await waitUntil('it is connected', () => stub.openConnections === 1);
  await sleep(50);
  const before = performance.now();
  exchange.abort?.();
  const reply = await pending;
  t.ok(performance.now() - before < 50, 'settled at once');
  t.match(reply, { code: Code.cancelled, started: 'started' });
  t.match(reply.detail, 'after 5 bytes');
  await stub.allClosed();
  t.ok(performance.now() - before < 100, `closed after ${performance.now() - before} ms`);
  exchange.abort?.();
  stub.script = (connection) => connection.write(rawAnswer(200, { 'content-length': 2 }, '{}'));
  t.equal((await http.invoke(exchangeOf(candidate))).code, 0, 'the pool goes on with a fresh connection');
  t.equal(stub.connections, 2);
});

t.test('abort before anything was sent: not started, and no connection is lost for it', async (t) => {
  const { stub, http, candidate } = await withStub(
    t,
    async (connection, request) => {
      if (request.number === 1) await sleep(60);
      await connection.write(rawAnswer(200, { 'content-length': 2 }, '{}'));
    },
    { connectionsPerOrigin: 1 },
  );
  const first = http.invoke(exchangeOf(candidate));
  const waiting = exchangeOf(candidate);
  const second = http.invoke(waiting);
  const third = http.invoke(exchangeOf(candidate));
  await sleep(10);
  waiting.abort?.();
  const dropped = await second;
  t.match(dropped, { code: Code.cancelled, started: 'not_started' });
  t.match(dropped.detail, 'waiting for a free connection');
  t.equal((await first).code, 0);
  t.equal((await third).code, 0);
  t.equal(stub.requests.length, 2);
  t.equal(stub.connections, 1);

  const connecting = exchangeOf(candidateOf({ address: stub.url.replace('127.0.0.1', 'localhost') }));
  const fourth = http.invoke(connecting);
  connecting.abort?.();
  const reply = await fourth;
  t.match(reply, { code: Code.cancelled, started: 'not_started' });
  t.match(reply.detail, 'while connecting');
  await sleep(30);
  t.equal(stub.requests.length, 2, 'it was not sent when the connection came');
});

t.test('C004 a body that is cut is no answer, although its bytes parse', async (t) => {
  const cases: [string, string, RegExp][] = [
    ['chunked, no last chunk', `${rawAnswer(200, { 'transfer-encoding': 'chunked' })}b\r\n{"ok":true}\r\n`, /cut.*after 11 bytes/],
    ['content-length 20, 11 bytes', `${rawAnswer(200, { 'content-length': 20 })}{"ok":true}`, /cut.*after 11 bytes/],
    [
      'the same with Connection: close',
      `${rawAnswer(200, { 'content-length': 20, connection: 'close' })}{"ok":true}`,
      /cut.*after 11 bytes/,
    ],
    [
      'chunked with Connection: close',
      `${rawAnswer(200, { 'transfer-encoding': 'chunked', connection: 'close' })}b\r\n{"ok":true}\r\n`,
      /cut.*after 11 bytes/,
    ],
    ['an error status as well', `${rawAnswer(500, { 'content-length': 20 })}{"ok":true}`, /cut/],
  ];
  for (const [name, bytes, words] of cases) {
    for (const how of ['fin', 'rst'] as const) {
      await t.test(`${name}, ${how}`, async (t) => {
        const { http, candidate } = await withStub(t, async (connection) => {
          await connection.write(bytes);
          await sleep(15);
          connection[how]();
        });
        const reply = await http.invoke(exchangeOf(candidate));
        t.match(reply, { code: Code.bad_response, started: 'started', status: 0 });
        t.match(reply.detail, words);
        t.equal(reply.body.length, 0);
      });
    }
  }
  await t.test('a body that only the end of the connection delimits is whole', async (t) => {
    const { http, candidate } = await withStub(t, async (connection) => {
      await connection.write(`HTTP/1.0 200 OK\r\n\r\n{"ok":true}`);
      connection.fin();
    });
    const reply = await http.invoke(exchangeOf(candidate));
    t.match(reply, { code: 0, started: 'done' });
    t.equal(reply.body.toString(), '{"ok":true}');
  });
});

t.test('C006 statuses that have no body never wait for one', async (t) => {
  for (const status of [204, 304]) {
    await t.test(`${status} with a content-length`, async (t) => {
      const { stub, http, candidate } = await withStub(t, async (connection, request) => {
        await connection.write(
          request.number === 1 ? rawAnswer(status, { 'content-length': 12 }) : rawAnswer(200, { 'content-length': 2 }, '{}'),
        );
      });
      const before = performance.now();
      const reply = await http.invoke(exchangeOf(candidate));
      t.ok(performance.now() - before < 100);
      t.match(reply, { code: 0, status, started: 'done' });
      t.equal(reply.body.length, 0);
      t.equal((await http.invoke(exchangeOf(candidate))).body.toString(), '{}');
      t.equal(stub.connections, 2, 'the connection was not used again');
    });
    await t.test(`${status} and 12 stray bytes, at once or later`, async (t) => {
      for (const laterMs of [0, 20]) {
        const { stub, http, candidate } = await withStub(t, async (connection, request) => {
          if (request.number > 1) return connection.write(rawAnswer(200, { 'content-length': 2 }, '{}'));
          const head = rawAnswer(status, laterMs === 0 ? {} : { 'content-length': 12 });
          await connection.write(laterMs === 0 ? `${head}stray bytes!` : head);
          await sleep(laterMs);
          return laterMs === 0 ? undefined : connection.write('stray bytes!');
        });
        t.match(await http.invoke(exchangeOf(candidate)), { code: 0, status });
        await sleep(40);
        const next = await http.invoke(exchangeOf(candidate));
        t.match(next, { code: 0, status: 200 });
        t.equal(next.body.toString(), '{}');
        t.equal(stub.connections, 2);
      }
    });
  }
  await t.test('103, then 200', async (t) => {
    const { stub, http, candidate } = await withStub(t, (connection) =>
      connection.write(`HTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\n${rawAnswer(200, { 'content-length': 2 }, '{}')}`),
    );
    for (let i = 0; i < 2; i++) {
      const reply = await http.invoke(exchangeOf(candidate));
      t.match(reply, { code: 0, status: 200 });
      t.notOk('link' in reply.headers);
    }
    t.equal(stub.connections, 1);
  });
  await t.test('stray bytes after a whole answer are not read as the next one', async (t) => {
    const { stub, http, candidate } = await withStub(t, (connection, request) =>
      connection.write(
        request.number === 1
          ? `${rawAnswer(200, { 'content-length': 2 }, '{}')}${rawAnswer(200, { 'content-length': 5 }, 'false')}`
          : rawAnswer(200, { 'content-length': 4 }, 'true'),
      ),
    );
    t.equal((await http.invoke(exchangeOf(candidate))).body.toString(), '{}');
    t.equal((await http.invoke(exchangeOf(candidate))).body.toString(), 'true');
    t.equal(stub.connections, 2);
  });
});

t.test('C008 headers above the limit: 1004 that names the limit, others unharmed', async (t) => {
  const { stub, http, candidate } = await withStub(t, async (connection, request) => {
    if (request.number === 1) return connection.write(rawAnswer(200, { 'x-big': 'a'.repeat(20_000), 'content-length': 2 }, '{}'));
    if (request.number === 2) {
      await connection.write('HTTP/1.1 200 OK\r\n');
      for (let i = 0; i < 5000 && !connection.socket.destroyed; i++) await connection.write(`x-${i}: ${'b'.repeat(1000)}\r\n`);
      return undefined;
    }
    return connection.write(rawAnswer(200, { 'content-length': 2 }, '{}'));
  });
  for (let i = 0; i < 2; i++) {
    const reply = await http.invoke(exchangeOf(candidate));
    t.match(reply, { code: Code.bad_response, started: 'started' });
    t.match(reply.detail, 'limit of 16384 bytes');
  }
  t.equal((await http.invoke(exchangeOf(candidate))).code, 0);
  t.equal(stub.requests.length, 3);
});

t.test('what is not HTTP/1.1 is a bad answer', async (t) => {
  for (const bytes of [
    'SSH-2.0-OpenSSH_9\r\n',
    'HTTP/1.1 200 OK\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\nab',
    'HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: x\r\n\r\n',
    `${rawAnswer(200, { 'transfer-encoding': 'chunked' })}zz\r\n`,
    `HTTP/1.1 200 OK\r\ncontent-length: 2\r\ntransfer-encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n`,
  ]) {
    await t.test(JSON.stringify(bytes.slice(0, 40)), async (t) => {
      const { http, candidate } = await withStub(t, (connection) => connection.write(bytes));
      t.match(await http.invoke(exchangeOf(candidate)), { code: Code.bad_response, started: 'started' });
    });
  }
});

t.test('a redirect is an answer, never followed', async (t) => {
  const { agent, http, candidate } = await withAgent(t, () => ({
    status: 302,
    headers: { location: 'http://127.0.0.1:1/secret' },
    body: 'moved',
  }));
  const reply = await http.invoke(exchangeOf(candidate));
  t.match(reply, { code: 0, status: 302 });
  t.equal(agent.executions, 1);
});

t.test('an answer above the limit is cut off, announced or not', async (t) => {
  const { http, candidate, agent } = await withAgent(t, (request, response) => {
    if (request.number === 1) return { body: 'x'.repeat(2000), headers: { 'content-length': '2000' } };
    if (request.number === 2) {
      response.writeHead(200);
      const more = setInterval(() => response.write('y'.repeat(600)), 2);
      response.on('close', () => clearInterval(more));
      return undefined;
    }
    return { body: 'x'.repeat(1000) };
  });
  const announced = await http.invoke(exchangeOf(candidate, { maxResponseBytes: 1000 }));
  t.match(announced, { code: Code.response_too_large, started: 'started' });
  t.match(announced.detail, /limit of 1000 bytes.*2000/);
  const endless = await http.invoke(exchangeOf(candidate, { maxResponseBytes: 1000 }));
  t.match(endless, { code: Code.response_too_large, started: 'started' });
  t.equal((await http.invoke(exchangeOf(candidate, { maxResponseBytes: 1000 }))).body.length, 1000, 'exactly the limit is fine');
  t.equal(agent.abandoned >= 1, true, 'the agent saw the close');
});

t.test('a body that comes packed although plain bytes were asked for is unpacked, within the limit', async (t) => {
  const text = JSON.stringify({ text: 'a'.repeat(5000) });
  let encoding = 'gzip';
  let bytes: Buffer = gzipSync(text);
  const { http, candidate } = await withAgent(t, () => ({
    headers: { 'content-encoding': encoding, 'content-type': 'application/json' },
    body: bytes,
  }));
  const reply = await http.invoke(exchangeOf(candidate));
  t.equal(reply.body.toString(), text);
  t.notOk('content-encoding' in reply.headers);
  t.equal(reply.headers['content-type'], 'application/json');
  const bomb = await http.invoke(exchangeOf(candidate, { maxResponseBytes: 4000 }));
  t.match(bomb, { code: Code.response_too_large, started: 'done' });
  encoding = 'br';
  bytes = brotliCompressSync(text);
  t.equal((await http.invoke(exchangeOf(candidate))).body.toString(), text);
  encoding = 'gzip';
  bytes = Buffer.from('not packed');
  t.match(await http.invoke(exchangeOf(candidate)), { code: Code.bad_response, started: 'done' });
  encoding = 'zstd-of-the-future';
  const unknown = await http.invoke(exchangeOf(candidate));
  t.match(unknown, { code: Code.bad_response, started: 'done' });
  t.match(unknown.detail, 'zstd-of-the-future');
  encoding = 'identity';
  t.equal((await http.invoke(exchangeOf(candidate))).body.toString(), 'not packed');
});

t.test('a cast settles with the head and leaves the connection usable', async (t) => {
  const { agent, http, candidate } = await withAgent(t, () => ({ status: 202, body: 'ignored' }));
  for (let i = 0; i < 3; i++) {
    const reply = await http.cast(exchangeOf(candidate));
    t.match(reply, { code: 0, status: 202 });
    t.equal(reply.body.length, 0);
    await sleep(5);
  }
  t.equal(agent.openConnections, 1);
});

t.test('streams', async (t) => {
  await t.test('head first, then chunk by chunk to a clean end; the connection is used again', async (t) => {
    const { stub, http, candidate } = await withStub(t, async (connection) => {
      await connection.write(rawAnswer(200, { 'content-type': 'text/event-stream', 'transfer-encoding': 'chunked' }));
      for (let i = 0; i < 3; i++) {
        await sleep(10);
        await connection.write('2\r\nab\r\n');
      }
      await connection.write('0\r\n\r\n');
    });
    for (let i = 0; i < 2; i++) {
      const reply = await http.invokeStream(exchangeOf(candidate));
      t.match(reply, { code: 0, status: 200, started: 'started' });
      t.equal(reply.headers['content-type'], 'text/event-stream');
      const body = new Collector(reply.stream);
      t.equal(body.chunks.length, 0);
      await body.ended;
      t.match(body, { code: 0, endings: 1, text: 'ababab' });
      t.equal(body.chunks.length, 3);
    }
    t.equal(stub.connections, 1);
  });
  await t.test('C005 cut in the middle: 1006, no clean end, no foreign text in the data', async (t) => {
    for (const how of ['fin', 'rst'] as const) {
      const { http, candidate } = await withStub(t, async (connection) => {
        await connection.write(rawAnswer(200, { 'transfer-encoding': 'chunked' }));
        for (let i = 0; i < 3; i++) await connection.write('2\r\nab\r\n');
        await sleep(20);
        connection[how]();
      });
      const reply = await http.invokeStream(exchangeOf(candidate));
      const body = new Collector(reply.stream);
      await body.ended;
      t.match(body, { code: Code.stream_interrupted, endings: 1, text: 'ababab' });
      t.match(body.detail, /cut.*after 6 bytes/);
    }
  });
  await t.test('a reader that asks for a pause stops the sender, and gets everything after `resume`', async (t) => {
    const total = 8 * 1024 * 1024;
    let sent = 0;
    const { http, candidate } = await withStub(t, async (connection) => {
      await connection.write(rawAnswer(200, { 'content-length': total }));
      for (; sent < total; sent += 65_536) await connection.write(Buffer.alloc(65_536, 'z'));
    });
    const reply = await http.invokeStream(exchangeOf(candidate));
    const body = new Collector(reply.stream);
    body.goesOn = false;
    await sleep(150);
    const held = sent;
    t.ok(held < total, `the sender was stopped after ${held} bytes`);
    t.ok(body.chunks.length <= 2);
    body.goesOn = true;
    reply.stream?.resume();
    await body.ended;
    t.equal(body.code, 0);
    t.equal(Buffer.concat(body.chunks).length, total);
  });
  await t.test('a provider that closes or resets while the reader pauses does no harm', async (t) => {
    for (const how of ['fin', 'rst'] as const) {
      for (const headers of [
        { connection: 'close' },
        { connection: 'close', 'transfer-encoding': 'chunked' },
        { 'content-length': 10, connection: 'close' },
        { 'content-length': 10 },
        { 'transfer-encoding': 'chunked' },
      ]) {
        const { http, candidate } = await withStub(t, async (connection) => {
          await connection.write(rawAnswer(200, headers));
          await sleep(10);
          await connection.write('transfer-encoding' in headers ? '3\r\nabc\r\n' : 'abc');
          await sleep(10);
          connection[how]();
        });
        const reply = await http.invokeStream(exchangeOf(candidate));
        const body = new Collector(reply.stream);
        body.goesOn = false;
        await sleep(40);
        reply.stream?.resume();
        await body.ended;
        const whole = how === 'fin' && !('transfer-encoding' in headers) && !('content-length' in headers);
        t.match(body, { code: whole ? 0 : Code.stream_interrupted, endings: 1, text: 'abc' }, `${how} ${JSON.stringify(headers)}`);
      }
    }
  });
  await t.test('`cancel` closes the connection, and the sink hears of it once', async (t) => {
    const { stub, http, candidate } = await withStub(t, async (connection) => {
      await connection.write(rawAnswer(200, { 'transfer-encoding': 'chunked' }));
      while (!connection.socket.destroyed) {
        await connection.write('2\r\nab\r\n');
        await sleep(2);
      }
    });
    const exchange = exchangeOf(candidate);
    const reply = await http.invokeStream(exchange);
    const body = new Collector(reply.stream);
    await body.has(2);
    reply.stream?.cancel(Code.deadline_exceeded, 'time is over');
    t.match(body, { code: Code.deadline_exceeded, detail: 'time is over', endings: 1 });
    const got = body.chunks.length;
    await stub.allClosed();
    reply.stream?.cancel(Code.cancelled, 'again');
    exchange.abort?.();
    t.equal(body.endings, 1);
    t.equal(body.chunks.length, got);

    const second = exchangeOf(candidate);
    const other = await http.invokeStream(second);
    second.abort?.();
    const late = new Collector(other.stream);
    t.match(late, { code: Code.cancelled, endings: 1 }, 'also when it was stopped before anybody read');
    await stub.allClosed();
  });
  await t.test('an end that comes before anybody reads is not lost', async (t) => {
    const { http, candidate } = await withStub(t, async (connection) => {
      await connection.write(`${rawAnswer(200, { 'content-length': 10 })}abc`);
      connection.rst();
    });
    const reply = await http.invokeStream(exchangeOf(candidate));
    if (reply.code === 0) {
      await sleep(30);
      const body = new Collector(reply.stream);
      await body.ended;
      t.match(body, { code: Code.stream_interrupted, endings: 1 });
    } else t.equal(reply.code, Code.connection_lost, 'the reset overtook the head');
  });
  await t.test('an empty stream ends', async (t) => {
    const { http, candidate } = await withStub(t, (connection) => connection.write(rawAnswer(200, { 'content-length': 0 })));
    const body = new Collector((await http.invokeStream(exchangeOf(candidate))).stream);
    await body.ended;
    t.match(body, { code: 0, text: '' });
  });
  await t.test('an error status comes whole, not as a stream', async (t) => {
    const { http, candidate } = await withAgent(t, (request) => ({
      status: request.number === 1 ? 503 : 204,
      body: request.number === 1 ? { error: 'busy' } : undefined,
    }));
    const reply = await http.invokeStream(exchangeOf(candidate));
    t.match(reply, { code: 0, status: 503, stream: null });
    t.equal(reply.body.toString(), '{"error":"busy"}');
    t.match(await http.invokeStream(exchangeOf(candidate)), { code: 0, status: 204, stream: null });
  });
  await t.test('closing the adapter cuts what is open', async (t) => {
    const { stub, http, candidate } = await withStub(t, (connection) =>
      connection.write(rawAnswer(200, { 'transfer-encoding': 'chunked' })),
    );
    const body = new Collector((await http.invokeStream(exchangeOf(candidate))).stream);
    const hanging = await TcpStub.listen(() => {});
    const pending = http.invoke(exchangeOf(candidateOf({ address: hanging.url })));
    await sleep(20);
    await http.close();
    await body.ended;
    t.match(body, { code: Code.stream_interrupted, endings: 1 });
    t.match(await pending, { code: Code.connection_lost, started: 'started' });
    await stub.allClosed();
    await hanging.allClosed();
    await hanging.close();
  });
});

t.test("C015 nothing that belongs to the caller's connection, and nothing of ours but our own copy, reaches the provider", async (t) => {
  const { stub, http, candidate } = await withStub(t, (connection) => connection.write(rawAnswer(200, { 'content-length': 2 }, '{}')));
  await http.invoke(
    exchangeOf(candidate, {
      incoming: {
        connection: 'X-Custom, Reach-Caller, traceparent',
        'x-custom': '1',
        te: 'trailers',
        'keep-alive': 'timeout=9',
        'proxy-authorization': 'x',
        upgrade: 'foo',
        'reach-caller': 'evil.a.b',
        traceparent: 'fake',
        'x-kept': 'yes',
        'idempotency-key': 'theirs',
      },
      own: ['reach-caller', 'shop.web.1', 'traceparent', '00-a-b-01', 'idempotency-key', 'ours'],
    }),
  );
  const head = stub.requests[0]?.head.toLowerCase() ?? '';
  for (const gone of ['x-custom', '\r\nte:', 'keep-alive: timeout', 'proxy-', 'upgrade', 'evil', 'fake', 'theirs'])
    t.notOk(head.includes(gone), gone);
  for (const kept of [
    'reach-caller: shop.web.1',
    'traceparent: 00-a-b-01',
    'x-kept: yes',
    'idempotency-key: ours',
    'connection: keep-alive',
  ])
    t.ok(head.includes(kept), kept);
});

t.test('headers that cannot be sent refuse the call before anything is sent', async (t) => {
  const { agent, http, candidate } = await withAgent(t);
  const control = await http.invoke(exchangeOf(candidate, { incoming: { 'x-a': 'a\r\nX-Admin: 1' } }));
  t.match(control, { code: Code.invalid_request, started: 'not_started' });
  t.match(control.detail, 'x-a');
  t.match(await http.invoke(exchangeOf(candidate, { incoming: { 'bad name': 'a' } })), {
    code: Code.invalid_request,
    started: 'not_started',
  });
  t.match(await http.invoke(exchangeOf(candidate, { contentType: 'a\nb' })), { code: Code.invalid_request, started: 'not_started' });
  t.match(await http.invoke(exchangeOf(candidate, { incoming: { 'x-big': 'a'.repeat(20_000) } })), {
    code: Code.invalid_request,
    started: 'not_started',
  });
  t.equal(agent.executions, 0);
  t.equal((await http.invoke(exchangeOf(candidate))).code, 0, 'the pool goes on');
});

const TRACKING: HttpMapping = {
  method: 'GET',
  path: '/v1/orders/{/order/id}',
  query: { lang: '{/lang}', fixed: 'a b' },
  headers: { 'X-Tenant': 'acme-{/tenant}' },
  body: 'none',
};

t.test('a third party is reached by its mapping, with the secret that the caller never sees', async (t) => {
  const { agent, http } = await withAgent(t, undefined, { secrets: { SHIP_KEY: 'k3y\n' } });
  const endpoint = {
    mapping: { 'crm.order.query': TRACKING },
    credential: { header: 'authorization', prefix: 'Bearer ', secret: { env: 'SHIP_KEY' } },
  };
  const candidate = candidateOf({ address: `${agent.url}/base`, endpoint });
  const reply = await http.invoke(
    exchangeOf(candidate, {
      body: '{"order":{"id":"A/1?x"},"lang":"d&e","tenant":7}',
      incoming: {
        authorization: 'Bearer mine',
        'x-tenant': 'other',
        accept: 'application/json',
        'x-session': 's7',
        'user-agent': 'desk/1',
      },
      own: ['reach-path', 'shop.web.1>crm.order.query', 'traceparent', '00-a-b-01', 'idempotency-key', 'k1'],
    }),
  );
  t.equal(reply.code, 0);
  const seen = agent.requests[0];
  t.equal(seen?.method, 'GET');
  t.equal(seen?.path, '/base/v1/orders/A%2F1%3Fx?lang=d%26e&fixed=a%20b');
  t.equal(seen?.body.length, 0);
  t.match(seen?.headers, {
    authorization: 'Bearer k3y',
    'x-tenant': 'acme-7',
    traceparent: '00-a-b-01',
    'idempotency-key': 'k1',
    accept: 'application/json',
  });
  t.same(
    Object.keys(seen?.headers ?? {}).filter((name) => name.startsWith('reach-')),
    [],
    'a third party does not learn the names of our agents',
  );
  t.notOk(seen !== undefined && ('x-session' in seen.headers || 'user-agent' in seen.headers), "nor what the caller's own headers say");

  const missing = await http.invoke(exchangeOf(candidate, { body: '{"lang":"de","tenant":7}' }));
  t.match(missing, { code: Code.invalid_request, started: 'not_started' });
  t.match(missing.detail, '/order/id');
  t.match(await http.invoke(exchangeOf(candidate, { body: 'no json' })), { code: Code.invalid_request, started: 'not_started' });
  t.equal(agent.executions, 1);

  const templated: HttpMapping = {
    method: 'PUT',
    path: '/x',
    query: {},
    headers: {},
    body: { template: { id: '{/order/id}', all: '{}', note: 'n {/order/id}' } },
  };
  await http.invoke(
    exchangeOf(candidateOf({ address: agent.url, endpoint: { mapping: { '*': templated } } }), { body: '{"order":{"id":3}}' }),
  );
  t.same(agent.requests.at(-1)?.json, { id: 3, all: { order: { id: 3 } }, note: 'n 3' });
  t.match(agent.requests.at(-1)?.headers, {
    'content-type': 'application/json',
    'content-length': String(agent.requests.at(-1)?.body.length),
  });

  const asGiven: HttpMapping = { method: 'POST', path: '/y', query: {}, headers: {}, body: 'payload' };
  await http.invoke(
    exchangeOf(candidateOf({ address: agent.url, endpoint: { mapping: { 'crm.order.query': asGiven } } }), {
      body: 'plain',
      contentType: 'text/plain',
    }),
  );
  t.match(agent.requests.at(-1), { method: 'POST', path: '/y', headers: { 'content-type': 'text/plain' } });
  t.equal(agent.requests.at(-1)?.body.toString(), 'plain');
});

t.test('a secret that is not there refuses without showing anything; one in a file is read anew after a while', async (t) => {
  const clock = new VirtualClock();
  let secret: string | null = 'one';
  let reads = 0;
  const { agent, http } = await withAgent(t, undefined, {
    clock,
    secret: () => {
      reads++;
      if (secret === null) throw new Error('cannot read /run/secrets/key: s3cr3t-path');
      return secret;
    },
  });
  const candidate = candidateOf({
    address: agent.url,
    endpoint: { credential: { header: 'x-api-key', prefix: '', secret: { file: '/run/secrets/key' } } },
  });
  const key = async (): Promise<unknown> => {
    const reply = await http.invoke(exchangeOf(candidate, { incoming: { 'x-api-key': 'callers' } }));
    return reply.code === 0 ? agent.requests.at(-1)?.headers['x-api-key'] : reply;
  };
  t.equal(await key(), 'one');
  secret = 'two';
  t.equal(await key(), 'one');
  t.equal(reads, 1, 'not read per call');
  await clock.advance(5000);
  t.equal(await key(), 'two');
  secret = null;
  await clock.advance(5000);
  t.equal(await key(), 'two', 'a file that vanishes does not take the key away');

  const other = candidateOf({ address: agent.url, endpoint: { credential: { header: 'x-api-key', prefix: '', secret: { env: 'NONE' } } } });
  const before = agent.executions;
  const refused = await http.invoke(exchangeOf(other));
  t.match(refused, { code: Code.internal, started: 'not_started' });
  t.match(refused.detail, 'x-api-key');
  t.notMatch(refused.detail, 's3cr3t');
  secret = 'a\r\nb';
  t.match(await http.invoke(exchangeOf(other)), { code: Code.internal, started: 'not_started' }, 'a secret with a line break is not sent');
  t.equal(agent.executions, before);
});

t.test('credentials in an address are refused, and not shown', async (t) => {
  const http = new HttpTransport(contextOf());
  t.teardown(() => http.close());
  const reply = await http.invoke(exchangeOf(candidateOf({ address: 'http://user:pa55@127.0.0.1:1/' })));
  t.equal(reply.started, 'not_started');
  t.match(reply.detail, 'name a credential instead');
  t.notMatch(reply.detail, 'pa55');
});

t.test('pools are bounded: the longest unused idle one goes, one in use stays, and a candidate outlives its pool', async (t) => {
  const agents = await Promise.all([1, 2, 3].map((n) => TestAgent.listen(`shop.order.${n}`)));
  t.teardown(() => Promise.all(agents.map((agent) => agent.close())));
  const pools = new Pools(contextOf(), 2);
  const [a, b, c] = agents.map((agent) => new URL(agent.url)) as [URL, URL, URL];
  const first = pools.for(a);
  pools.use(first, a);
  pools.use(pools.for(b), b);
  pools.use(first, a);
  const third = pools.for(c);
  t.equal(pools.size, 2);
  t.equal(first.closed, false, 'used later than the second');
  t.equal(pools.for(a), first);
  t.not(third, first);
  pools.use(third, c);
  pools.for(b);
  t.equal(first.closed, true);
  t.equal(pools.use(first, a) === first, false, 'its candidate gets a new pool');
  t.equal(pools.size, 2);
  await pools.close();
});

t.test('a stream that comes packed all the same is unpacked piece by piece, at the pace of its reader', async (t) => {
  const chunk = (data: Buffer): Buffer => Buffer.concat([Buffer.from(`${data.length.toString(16)}\r\n`), data, Buffer.from('\r\n')]);
  const head = (encoding: string): string => rawAnswer(200, { 'transfer-encoding': 'chunked', 'content-encoding': encoding });
  const { stub, http, candidate } = await withStub(t, () => {});

  stub.script = async (connection) => {
    const packer = createGzip();
    const flushed = (): Promise<Buffer> => new Promise((done) => packer.flush(() => done(packer.read() as Buffer)));
    await connection.write(head('gzip'));
    packer.write('one');
    await connection.write(chunk(await flushed()));
    await sleep(50);
    packer.end('two');
    await once(packer, 'readable');
    await connection.write(chunk(packer.read() as Buffer));
    await connection.write('0\r\n\r\n');
  };
  const reply = await http.invokeStream(exchangeOf(candidate));
  t.notOk('content-encoding' in reply.headers);
  const collected = new Collector(reply.stream);
  await collected.has(1);
  t.equal(collected.text, 'one', 'the first piece comes when it comes');
  await collected.ended;
  t.same([collected.text, collected.code, collected.endings], ['onetwo', 0, 1]);

  const packed = gzipSync('a whole answer '.repeat(1_000));
  for (const [name, bytes] of [
    ['ends in the middle', packed.subarray(0, packed.length - 12)],
    ['is none', Buffer.from('no gzip at all')],
  ] as const) {
    stub.script = (connection) => connection.write(Buffer.concat([Buffer.from(head('gzip')), chunk(bytes), Buffer.from('0\r\n\r\n')]));
    const cut = new Collector((await http.invokeStream(exchangeOf(candidate))).stream);
    await cut.ended;
    t.same([cut.code, cut.endings], [Code.stream_interrupted, 1], `a packed body that ${name} is a cut, although its chunks ended well`);
  }

  stub.script = (connection) => connection.write(Buffer.concat([Buffer.from(head('gzip')), chunk(packed.subarray(0, 60))]));
  const left = await http.invokeStream(exchangeOf(candidate));
  const leaving = new Collector(left.stream);
  left.stream?.cancel(Code.cancelled, 'enough');
  await leaving.ended;
  t.same([leaving.code, leaving.endings], [Code.cancelled, 1]);
  await stub.allClosed();

  stub.script = (connection) => connection.write(head('klingon'));
  const strange = await http.invokeStream(exchangeOf(candidate));
  t.equal(strange.code, Code.bad_response);
  await stub.allClosed();

  const bomb = gzipSync(Buffer.alloc(50_000_000));
  stub.script = (connection) => connection.write(Buffer.concat([Buffer.from(head('gzip')), chunk(bomb), Buffer.from('0\r\n\r\n')]));
  const held = await http.invokeStream(exchangeOf(candidate));
  const holding = new Collector(held.stream);
  holding.goesOn = false;
  await holding.has(1);
  await sleep(100);
  t.equal(holding.chunks.length, 1, 'who does not read gets no more, however much is packed in it');
  holding.goesOn = true;
  held.stream?.resume();
  await holding.ended;
  t.same([holding.code, holding.chunks.reduce((sum, { length }) => sum + length, 0)], [0, 50_000_000]);
});

t.test('after all of this nothing is left open and nothing was thrown into the void', async (t) => {
  t.equal(leakedSockets, 0);
  t.same(uncaught, []);
});
