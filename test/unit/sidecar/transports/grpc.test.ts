import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { connect, createServer as createTcpServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import * as grpc from '@grpc/grpc-js';
import { loadSync } from '@grpc/proto-loader';
import t from 'tap';
import { VirtualClock } from '../../../../base/virtual-clock.ts';
import { AllowList } from '../../../../base/address-guard.ts';
import { Code } from '../../../../proto/wire/codes.ts';
import { ReflectionResponse } from '../../../../proto/wire/reach-messages.ts';
import { Destinations } from '../../../../sidecar/transports/destinations.ts';
import { grpcKind, GrpcTransport } from '../../../../sidecar/transports/grpc.ts';
import { readAddress } from '../../../../sidecar/transports/grpc-endpoint.ts';
import { Deframer, frameOf } from '../../../../sidecar/transports/grpc-frames.ts';
import { percentDecoded } from '../../../../sidecar/transports/grpc-status.ts';
import { DnsStub } from '../../../support/dns-stub.ts';
import { answer, GRPC_HEAD, type GrpcScript, GrpcStub, SHOP_PROTO, told } from '../../../support/grpc-stub.ts';
import { waitUntil } from '../../../support/settle.ts';
import { candidateOf, Collector, contextOf, type ExchangeParts, exchangeOf as anyExchangeOf } from './exchanges.ts';

const folder = mkdtempSync(join(tmpdir(), 'reach-grpc-'));
const PROTO = join(folder, 'shop.proto');
writeFileSync(PROTO, SHOP_PROTO);
t.teardown(() => rmSync(folder, { recursive: true, force: true }));
const exchangeOf = (of: ReturnType<typeof candidateOf>, parts: ExchangeParts = {}) => anyExchangeOf(of, { body: '{}', ...parts });

type Tap = Pick<typeof t, 'teardown'>;

function candidate(address: string, capability = 'crm.order.query', options: Record<string, unknown> = {}, credential: unknown = null) {
  const endpoint = {
    type: 'grpc',
    address,
    credential: credential as null,
    options: { service: 'shop.v1.Orders', descriptor: PROTO, ...options },
  };
  return candidateOf({ capability, endpoint });
}

async function withStub(t: Tap, script: GrpcScript, context: Parameters<typeof contextOf>[0] = {}) {
  const stub = await GrpcStub.listen(script);
  const transport = new GrpcTransport(contextOf(context));
  t.teardown(async () => {
    await transport.close();
    await stub.close();
  });
  return { stub, transport };
}

/** A well-behaved server of a gRPC library. */
async function withServer(t: Tap) {
  const loaded = grpc.loadPackageDefinition(loadSync(PROTO)) as unknown as {
    shop: { v1: { Orders: { service: grpc.ServiceDefinition } } };
  };
  const server = new grpc.Server();
  let cancelled = 0;
  server.addService(loaded.shop.v1.Orders.service, {
    Query: (call: grpc.ServerUnaryCall<{ n: number; word: string }, unknown>, done: grpc.sendUnaryData<unknown>) => {
      call.on('cancelled', () => cancelled++);
      if (call.request.word === 'hang') return;
      const trailers = new grpc.Metadata();
      trailers.set('reach-retry', 'none');
      if (call.request.word === 'fail') return done({ code: grpc.status.NOT_FOUND, details: 'kein Auftrag für 你', metadata: trailers });
      done(null, { agent: 'lib', n: call.request.n + 1 });
    },
    Watch: (call: grpc.ServerWritableStream<{ n: number }, unknown>) => {
      call.on('cancelled', () => cancelled++);
      for (let i = 0; i < call.request.n; i++) call.write({ agent: 'lib', n: i });
      call.end();
    },
  });
  const port = await new Promise<number>((done, fail) =>
    server.bindAsync('127.0.0.1:0', grpc.ServerCredentials.createInsecure(), (error, at) => (error === null ? done(at) : fail(error))),
  );
  const transport = new GrpcTransport(contextOf());
  t.teardown(async () => {
    await transport.close();
    server.forceShutdown();
  });
  return { transport, address: `grpc://127.0.0.1:${port}`, cancelled: () => cancelled };
}

t.test('a unary method is called with JSON and answers with JSON', async (t) => {
  const { transport, address } = await withServer(t);
  const reply = await transport.invoke(exchangeOf(candidate(address), { body: '{"n":41}' }));
  t.equal(reply.code, 0, reply.detail);
  t.equal(reply.started, 'done');
  t.same(JSON.parse(reply.body.toString()), { agent: 'lib', n: 42 });
  t.equal(reply.headers['content-type'], 'application/json');
  const stream = await transport.invokeStream(exchangeOf(candidate(address), { body: '{"n":1}' }));
  const collected = new Collector(stream.stream);
  await collected.ended;
  t.equal(collected.text, '{"agent":"lib","n":2}\n', 'called as a stream it gives one line');
});

t.test("an error of the server's is an answer, with its status, words and metadata", async (t) => {
  const { transport, address } = await withServer(t);
  const reply = await transport.invoke(exchangeOf(candidate(address), { body: '{"word":"fail"}' }));
  t.equal(reply.code, 0);
  t.equal(reply.status, 404);
  t.equal(reply.headers['grpc-status'], '5');
  t.equal(reply.headers['reach-retry'], 'none');
  t.same(JSON.parse(reply.body.toString()), { code: 5, status: 'NOT_FOUND', message: 'kein Auftrag für 你' });
  t.match(reply.detail, /NOT_FOUND \(5\): "kein Auftrag/);
});

t.test('a streaming method gives one message a line, or an array when it is invoked', async (t) => {
  const { transport, address } = await withServer(t);
  const watch = candidate(address, 'crm.order.watch');
  const reply = await transport.invokeStream(exchangeOf(watch, { body: '{"n":3}' }));
  t.equal(reply.headers['content-type'], 'application/x-ndjson');
  const collected = new Collector(reply.stream);
  await collected.ended;
  t.equal(collected.code, 0);
  t.same(
    collected.text
      .trim()
      .split('\n')
      .map((line) => JSON.parse(line).n),
    [0, 1, 2],
  );
  const whole = await transport.invoke(exchangeOf(watch, { body: '{"n":2}' }));
  t.same(JSON.parse(whole.body.toString()).length, 2);
  const none = await transport.invokeStream(exchangeOf(watch, { body: '{"n":0}' }));
  t.equal(none.stream, null, 'a stream without a message is an empty answer');
  t.equal(none.status, 200);
});

t.test('a reader who does not read holds the server back, and a stream that is cancelled is reset', async (t) => {
  let written = 0;
  let closed = false;
  const { stub, transport } = await withStub(t, (stream) => {
    stream.respond(GRPC_HEAD, { waitForTrailers: true });
    const frame = Buffer.concat(Array.from({ length: 1_000 }, () => told('x'.repeat(100))));
    const more = (): void => {
      while (!stream.destroyed && stream.write(frame)) written += frame.length;
    };
    stream.on('drain', more);
    stream.on('close', () => (closed = true));
    more();
  });
  const reply = await transport.invokeStream(exchangeOf(candidate(stub.address, 'crm.order.watch')));
  const collected = new Collector(reply.stream);
  collected.goesOn = false;
  await collected.has(1);
  await new Promise((done) => setTimeout(done, 100));
  const held = written;
  await new Promise((done) => setTimeout(done, 100));
  t.equal(written, held, 'it stands still');
  t.ok(held < 2_000_000, `${held} bytes were let through`);
  reply.stream?.cancel(Code.cancelled, 'enough');
  await collected.ended;
  t.equal(collected.code, Code.cancelled);
  t.equal(collected.endings, 1);
  await waitUntil('the server hears of it', () => closed);
});

t.test('metadata: ours, what the caller may pass on, the time left, the credential, and nothing else', async (t) => {
  const { stub, transport } = await withStub(t, (stream) => answer(stream, [told('x')]), { secrets: { KEY: 's3cret' } });
  const credential = { header: 'x-api-key', prefix: 'Key ', secret: { env: 'KEY' } };
  const reply = await transport.invoke(
    exchangeOf(candidate(stub.address, 'crm.order.query', {}, credential), {
      incoming: {
        'x-tenant': 'blue',
        authorization: 'Bearer mine',
        'x-api-key': 'theirs',
        'grpc-timeout': '1H',
        te: 'x',
        'reach-caller': 'forged',
        cookie: 'a=b',
      },
      own: ['traceparent', '00-1-2-01', 'reach-caller', 'support.planner.1'],
    }),
  );
  t.equal(reply.code, 0, reply.detail);
  const headers = stub.requests[0]?.headers ?? {};
  t.match(headers, {
    'x-tenant': 'blue',
    'x-api-key': 'Key s3cret',
    traceparent: '00-1-2-01',
    'reach-caller': 'support.planner.1',
    'reach-capability': 'crm.order.query',
    te: 'trailers',
    'content-type': 'application/grpc',
    'grpc-timeout': '5000m',
    ':path': '/shop.v1.Orders/Query',
  });
  for (const name of ['authorization', 'cookie']) t.notOk(name in headers, `${name} stays here`);
});

t.test('what the server says about its error is read: when to come back, the reason, the fields', async (t) => {
  // google.rpc.Status with RetryInfo(2.5s) and ErrorInfo(OUT_OF_STOCK)
  const any = (type: string, value: Buffer): Buffer => {
    const url = Buffer.from(`type.googleapis.com/google.rpc.${type}`);
    const inner = Buffer.concat([Buffer.from([0x0a, url.length]), url, Buffer.from([0x12, value.length]), value]);
    return Buffer.concat([Buffer.from([0x1a, inner.length]), inner]);
  };
  const delay = Buffer.from([0x0a, 8, 0x08, 2, 0x10, 0x80, 0xca, 0xb5, 0xee, 0x01]);
  const info = Buffer.concat([Buffer.from([0x0a, 12]), Buffer.from('OUT_OF_STOCK')]);
  const bytes = Buffer.concat([Buffer.from([0x08, 8]), any('RetryInfo', delay), any('ErrorInfo', info), any('Nobody', Buffer.from([1]))]);
  const { stub, transport } = await withStub(t, (stream) =>
    answer(stream, [], { 'grpc-status': '8', 'grpc-message': 'slow', 'grpc-status-details-bin': bytes.toString('base64') }),
  );
  const reply = await transport.invoke(exchangeOf(candidate(stub.address)));
  t.equal(reply.status, 429);
  t.equal(reply.retryAfterMs, 2_500);
  t.match(reply.detail, /RESOURCE_EXHAUSTED \(8\) OUT_OF_STOCK: "slow"/);
  const said = JSON.parse(reply.body.toString());
  t.equal(said.details[1].reason, 'OUT_OF_STOCK');
  t.equal(said.details[2].value, 'AQ==', 'a type that nobody described is shown as its bytes');
});

t.test('each status has its meaning', async (t) => {
  let trailers: Record<string, string> = {};
  const { stub, transport } = await withStub(t, (stream) => answer(stream, [], trailers));
  const ask = (status: string, message = '') => {
    trailers = { 'grpc-status': status, 'grpc-message': message };
    return transport.invoke(exchangeOf(candidate(stub.address)));
  };
  for (const [status, http] of [
    [1, 499],
    [2, 500],
    [3, 400],
    [5, 404],
    [6, 409],
    [7, 403],
    [8, 429],
    [9, 400],
    [10, 409],
    [11, 400],
    [12, 501],
    [13, 500],
    [14, 503],
    [15, 500],
    [16, 401],
    [77, 500],
  ] as const) {
    const reply = await ask(String(status));
    t.equal(reply.code, 0);
    t.equal(reply.status, http, `${status} is ${http}`);
  }
  t.match(await ask('4'), { code: Code.response_timeout, started: 'started' });
  t.match(await ask('8', 'Received message larger than max (9 vs. 4)'), { code: 0, status: 413 });
  t.match(await ask('8', 'Sent message larger than max (9 vs. 4)'), { code: Code.response_too_large });
  t.match((await ask('12')).detail, /does not offer shop\.v1\.Orders\/Query/);
  t.match(await ask('junk'), { code: 0, status: 500 });
});

t.test('an exchange that is given up settles at once, and the server is told', async (t) => {
  const { transport, address, cancelled } = await withServer(t);
  const exchange = exchangeOf(candidate(address), { body: '{"word":"hang"}' });
  const promise = transport.invoke(exchange);
  await waitUntil('it is there', () => [...transport.channels.values()].some((channel) => !channel.isIdle));
  await new Promise((done) => setTimeout(done, 50));
  exchange.abort?.();
  t.match(await promise, { code: Code.cancelled, started: 'started', detail: /while waiting for an answer/ });
  await waitUntil('the server is told', () => cancelled() === 1);
  const early = exchangeOf(candidate('grpc://127.0.0.1:1'));
  const never = transport.invoke(early);
  early.abort?.();
  t.match(await never, { code: Code.cancelled, started: 'not_started' });
});

t.test('no server, no HTTP/2, no time: nothing was started, and it is said why', async (t) => {
  const silent = createTcpServer(() => {});
  const http1 = createTcpServer((socket) => socket.end('HTTP/1.1 400 Bad Request\r\n\r\n'));
  for (const server of [silent, http1]) await new Promise<void>((done) => server.listen(0, '127.0.0.1', done));
  const portOf = (server: typeof silent): number => (server.address() as { port: number }).port;
  const transport = new GrpcTransport(contextOf({ connectTimeoutMs: 150 }));
  t.teardown(async () => {
    await transport.close();
    silent.close();
    http1.close();
  });
  const ask = (address: string) => transport.invoke(exchangeOf(candidate(address)));
  t.match(await ask('grpc://127.0.0.1:1'), {
    code: Code.connect_timeout,
    started: 'not_started',
    detail: /refused, nothing listens there/,
  });
  t.match(await ask(`grpc://127.0.0.1:${portOf(silent)}`), { code: Code.connect_timeout, started: 'not_started', detail: /within 150 ms/ });
  t.match(await ask(`grpc://127.0.0.1:${portOf(http1)}`), { code: Code.connect_timeout, started: 'not_started' });
  t.match(await ask(`grpcs://127.0.0.1:${portOf(http1)}`), { code: Code.tls_failed, started: 'not_started' });
  t.match(await ask('grpc://nowhere.invalid:50051'), { code: Code.connect_timeout, detail: /does not resolve|does not answer/ });
});

t.test('limits: of an answer, of a message, of what is sent', async (t) => {
  const { stub, transport } = await withStub(t, (stream) => answer(stream, [told('x'.repeat(100))]));
  t.match(await transport.invoke(exchangeOf(candidate(stub.address), { maxResponseBytes: 50 })), {
    code: Code.response_too_large,
    detail: /102 are announced/,
  });
  t.match(await transport.invoke(exchangeOf(candidate(stub.address), { maxResponseBytes: 110 })), {
    code: Code.response_too_large,
    detail: /as JSON/,
  });
  const small = candidate(stub.address, 'crm.order.query', { max_message: '1KiB' });
  t.match(await transport.invoke(exchangeOf(small, { body: JSON.stringify({ word: 'x'.repeat(2_000) }) })), {
    code: Code.payload_too_large,
    started: 'not_started',
  });
  t.match(await transport.invoke(exchangeOf(small, { body: '{"wrod":"x"}' })), {
    code: Code.invalid_request,
    started: 'not_started',
    detail: /did you mean word/,
  });
  t.match(await transport.invoke(exchangeOf(small, { body: 'no json' })), { code: Code.invalid_request, started: 'not_started' });
});

t.test('a server without reflection, a method that is not there, a descriptor that is not: each names its remedy', async (t) => {
  const { transport, address } = await withServer(t);
  const ask = (options: Record<string, unknown>, capability = 'crm.order.query') =>
    transport.invoke(exchangeOf(candidate(address, capability, options)));
  t.match(await ask({ descriptor: undefined }), { code: Code.internal, started: 'not_started' });
  const bare = candidateOf({ capability: 'crm.order.query', endpoint: { type: 'grpc', address, options: { service: 'shop.v1.Orders' } } });
  t.match(await transport.invoke(exchangeOf(bare)), { code: Code.internal, detail: /no server reflection.*descriptor:/ });
  t.match(await ask({}, 'crm.order.nope'), { code: Code.internal, detail: /no method like nope; it has Query, Watch/ });
  t.match(await ask({ descriptor: join(folder, 'none.desc') }), { code: Code.internal, detail: /there is no such file/ });
  t.match(await ask({ methods: { 'crm.order.query': '/shop.v1.Orders/Query' } }), { code: 0 });
});

t.test('a name that leads to a place where this sidecar may not send anything gets nothing', async (t) => {
  const { stub } = await withStub(t, (stream) => answer(stream, [told('x')]));
  const allow = AllowList.parse([]) as AllowList;
  const destinations = new Destinations({ allow, loopback: false, private: false }, (_name, _options, callback) =>
    callback(null, [{ address: '127.0.0.1', family: 4 }]),
  );
  const transport = new GrpcTransport(contextOf({ destinations }));
  t.teardown(() => transport.close());
  const reply = await transport.invoke(exchangeOf(candidate(`grpc://orders.example.com:${stub.port}`)));
  t.match(reply, { code: Code.connect_timeout, started: 'not_started' });
  t.match(reply.detail, /127\.0\.0\.1/);
  t.equal(stub.sessions.length, 0);
});

t.test('an address that is written as a number was judged when it was registered, and is connected to', async (t) => {
  const { stub } = await withStub(t, (stream) => answer(stream, [told('x')]));
  const allow = AllowList.parse([]) as AllowList;
  const destinations = new Destinations({ allow, loopback: false, private: false });
  const transport = new GrpcTransport(contextOf({ destinations }));
  t.teardown(() => transport.close());
  t.match(await transport.invoke(exchangeOf(candidate(stub.address))), { code: 0 });
  destinations.own(stub.port);
  const circle = new GrpcTransport(contextOf({ destinations }));
  t.teardown(() => circle.close());
  t.match(await circle.invoke(exchangeOf(candidate(stub.address))), { code: Code.connect_timeout, detail: /port of this sidecar itself/ });
});

t.test('one connection carries many calls, and close ends it', async (t) => {
  const { stub, transport } = await withStub(t, (stream) => void setTimeout(() => answer(stream, [told('x')]), 5));
  const replies = await Promise.all(Array.from({ length: 200 }, () => transport.invoke(exchangeOf(candidate(stub.address)))));
  t.ok(replies.every(({ code }) => code === 0));
  t.equal(stub.sessions.length, 1);
  await transport.close();
  await waitUntil('it is closed', () => stub.openSessions === 0);
  t.match(await transport.invoke(exchangeOf(candidate(stub.address))), { code: Code.connection_lost, started: 'not_started' });
});

t.test('a connection that breaks under a call leaves it in doubt, and the next call has a new one', async (t) => {
  const kill = (): void => stub.kill();
  const { stub, transport } = await withStub(t, (stream, request) => (request.number === 1 ? kill() : answer(stream, [told('x')])));
  t.match(await transport.invoke(exchangeOf(candidate(stub.address))), { code: Code.connection_lost, started: 'started' });
  t.match(await transport.invoke(exchangeOf(candidate(stub.address))), { code: 0 });
});

t.test('addresses are read in every usual form, and what is none is refused in words', async (t) => {
  t.same(readAddress('grpc://127.0.0.1:50051', null), { host: '127.0.0.1', port: 50051, isTls: false, nameServer: null });
  t.same(readAddress('grpcs://orders.example.com', null), { host: 'orders.example.com', port: 443, isTls: true, nameServer: null });
  t.same(readAddress('orders:50051', true), { host: 'orders', port: 50051, isTls: true, nameServer: null });
  t.same(readAddress('[::1]:50051', null), { host: '::1', port: 50051, isTls: false, nameServer: null });
  t.same(readAddress('dns:///orders.internal:1', null), { host: 'orders.internal', port: 1, isTls: false, nameServer: null });
  t.same(readAddress('dns://10.0.0.2/orders.internal:1', null), {
    host: 'orders.internal',
    port: 1,
    isTls: false,
    nameServer: '10.0.0.2:53',
  });
  for (const bad of [
    '',
    'grpc://host',
    'ftp://host:1',
    'grpc://user:pw@host:1',
    'grpc://host:1/path',
    'host:99999',
    'dns://ns.internal:53/orders:1',
  ])
    t.type(readAddress(bad, null), 'string', bad);
});

t.test('what is written for it is checked with the table', async (t) => {
  const problems = (options: Record<string, unknown>, address = 'grpc://h:1') =>
    grpcKind.problems(candidateOf({ endpoint: { type: 'grpc', address, options } }).provider.record.endpoint).join('\n');
  t.equal(problems({ service: 'shop.v1.Orders' }), '');
  t.match(problems({}), /say which method is called/);
  t.match(problems({ servise: 'x' }), /unknown key "servise": did you mean service/);
  t.match(problems({ service: 'a.B', methods: { 'crm.order.query': 'Query' } }), /shop\.v1\.Orders\/Query/);
  t.match(problems({ service: 'a.B', keepalive: 5 }), /duration/);
  t.match(problems({ service: 'a.B' }, 'http:/x'), /not the address of a gRPC server/);
});

t.test('frames are cut right wherever the chunks end', async (t) => {
  const bytes = Buffer.concat([frameOf(Buffer.from('one')), frameOf(Buffer.alloc(0)), frameOf(Buffer.from('three'))]);
  for (let size = 1; size <= bytes.length; size++) {
    const deframer = new Deframer(100);
    const got: string[] = [];
    for (let at = 0; at < bytes.length; at += size) {
      deframer.push(bytes.subarray(at, at + size));
      for (let message = deframer.take(); message !== null; message = deframer.take()) got.push(message.toString());
    }
    t.strictSame(got, ['one', '', 'three']);
    t.notOk(deframer.isInside);
  }
  t.equal(percentDecoded('a%20b%'), 'a b%');
});

t.test('a server that says nothing any more is found out by a ping, and its connection is given up', async (t) => {
  const clock = new VirtualClock();
  const { stub, transport } = await withStub(t, () => {}, { clock });
  let freeze = (): void => {};
  const between = createTcpServer((socket) => {
    const to = connect(stub.port, '127.0.0.1');
    socket
      .on('error', () => {})
      .pipe(to.on('error', () => {}))
      .pipe(socket);
    socket.on('close', () => to.destroy());
    freeze = () => void socket.unpipe(to);
  });
  await new Promise<void>((done) => between.listen(0, '127.0.0.1', done));
  t.teardown(() => between.close());
  const exchange = exchangeOf(candidate(`grpc://127.0.0.1:${(between.address() as { port: number }).port}`));
  const promise = transport.invoke(exchange);
  await waitUntil('it is there', () => stub.requests.length === 1);
  freeze();
  exchange.abort?.();
  t.equal((await promise).code, Code.cancelled);
  await clock.advance(5_001);
  const [channel] = [...transport.channels.values()];
  await waitUntil('the connection is gone', () => channel?.openConnections === 0);
});

t.test('types come by reflection, in its older version too, and again after a reconnect', async (t) => {
  const typesOf = (proto: string): Buffer[] => {
    const file = join(folder, 'reflected.proto');
    writeFileSync(file, proto);
    const one = Object.values(loadSync(file))[0] as unknown as { fileDescriptorProtos: Buffer[] };
    return one.fileDescriptorProtos;
  };
  let files = typesOf(SHOP_PROTO);
  const { stub, transport } = await withStub(t, (stream, { path }) => {
    if (path.startsWith('/grpc.reflection.v1.')) answer(stream, [], { 'grpc-status': '12' });
    else if (path.startsWith('/grpc.reflection.v1alpha.'))
      answer(stream, [
        frameOf(ReflectionResponse.write({ messageResponse: { case: 'fileDescriptorResponse', value: { fileDescriptorProto: files } } })),
      ]);
    else answer(stream, [told('x')]);
  });
  const reflected = candidateOf({
    capability: 'crm.order.query',
    endpoint: { type: 'grpc', address: stub.address, options: { service: 'shop.v1.Orders' } },
  });
  const paths = (): string[] => stub.requests.map(({ path }) => path.split('/')[1] ?? '');
  const both = await Promise.all([transport.invoke(exchangeOf(reflected)), transport.invoke(exchangeOf(reflected))]);
  t.same(
    both.map(({ code }) => code),
    [0, 0],
  );
  await transport.invoke(exchangeOf(reflected));
  t.same(
    paths(),
    [
      'grpc.reflection.v1.ServerReflection',
      'grpc.reflection.v1alpha.ServerReflection',
      'shop.v1.Orders',
      'shop.v1.Orders',
      'shop.v1.Orders',
    ],
    'asked once',
  );
  files = typesOf(SHOP_PROTO.replace('string word = 2;', 'string word = 2; string colour = 3;'));
  t.match(await transport.invoke(exchangeOf(reflected, { body: '{"colour":"red"}' })), { code: Code.invalid_request });
  stub.kill();
  await waitUntil('the connection is gone', () => [...transport.channels.values()][0]?.openConnections === 0);
  t.match(await transport.invoke(exchangeOf(reflected)), { code: 0 }, 'the old types serve till the new ones are read');
  t.match(await transport.invoke(exchangeOf(reflected, { body: '{"colour":"red"}' })), { code: 0 }, 'the new release is known');
});

t.test('a reflection service that never ends is given up at a limit, before it has filled the memory', async (t) => {
  let sent = 0;
  const flood = frameOf(ReflectionResponse.write({ validHost: 'x'.repeat(1_000_000) }));
  const { stub, transport } = await withStub(t, (stream) => {
    stream.respond(GRPC_HEAD);
    const more = (): void => {
      while (!stream.destroyed && sent < 200_000_000) {
        sent += flood.length;
        if (!stream.write(flood)) return void stream.once('drain', more);
      }
    };
    more();
  });
  const endpoint = { type: 'grpc', address: stub.address, options: { service: 'shop.v1.Orders' } };
  const reply = await transport.invoke(exchangeOf(candidateOf({ endpoint })));
  t.same([reply.code, reply.started], [Code.response_too_large, 'not_started']);
  t.match(reply.detail, /its reflection service tells more than 16777216 bytes/);
  t.ok(sent < 40_000_000, `${sent} bytes were sent`);
});

t.test('a credential that has been put right is the one that types are asked for with', async (t) => {
  const { fileDescriptorProtos } = Object.values(loadSync(PROTO))[0] as unknown as { fileDescriptorProtos: Buffer[] };
  const types = { case: 'fileDescriptorResponse', value: { fileDescriptorProto: fileDescriptorProtos } } as const;
  const { stub, transport } = await withStub(
    t,
    (stream, { path, headers }) => {
      if (headers['authorization'] !== 'right') answer(stream, [], { 'grpc-status': '16' });
      else
        answer(stream, [path.startsWith('/grpc.reflection.') ? frameOf(ReflectionResponse.write({ messageResponse: types })) : told('x')]);
    },
    { secrets: { OLD: 'wrong', NEW: 'right' } },
  );
  const ask = (env: string) => {
    const credential = { header: 'authorization', prefix: '', secret: { env } };
    const options = { service: 'shop.v1.Orders' };
    const { address } = stub;
    return transport.invoke(exchangeOf(candidateOf({ endpoint: { type: 'grpc', address, options, credential } })));
  };
  t.match((await ask('OLD')).detail, /does not tell its types: .*UNAUTHENTICATED/);
  const reply = await ask('NEW');
  t.equal(reply.code, Code.ok, reply.detail);
});

t.test('a reader who takes one message at a time gets every one, and the end after the last', async (t) => {
  const { stub, transport } = await withStub(t, (stream) =>
    answer(
      stream,
      Array.from({ length: 50 }, (_, i) => told('x', i + 1)),
    ),
  );
  const reply = await transport.invokeStream(exchangeOf(candidate(stub.address, 'crm.order.watch')));
  await new Promise((done) => setTimeout(done, 50));
  const collected = new Collector(reply.stream);
  collected.goesOn = false;
  for (let i = 2; i <= 50; i++) {
    t.equal(collected.endings, 0);
    reply.stream?.resume();
    await collected.has(i);
    t.equal(collected.chunks.length, i);
  }
  reply.stream?.resume();
  await collected.ended;
  t.equal(collected.code, 0);
  t.equal(collected.text.trim().split('\n').length, 50);
});

t.test('what was held back for a reader and is lost with its connection is a cut, although the status had said OK', async (t) => {
  const { stub, transport } = await withStub(t, (stream) =>
    answer(
      stream,
      Array.from({ length: 60 }, (_, i) => told('x'.repeat(100), i + 1)),
    ),
  );
  for (const isKilled of [true, false]) {
    const { stream } = await transport.invokeStream(exchangeOf(candidate(stub.address, 'crm.order.watch')));
    let text = '';
    let ending: readonly [number, string] | null = null;
    stream?.pipe({
      chunk: (data) => {
        text += data.toString();
        return false;
      },
      end: () => (ending = [0, '']),
      cut: (code, detail) => (ending = [code, detail]),
    });
    await new Promise((done) => setTimeout(done, 100));
    if (isKilled) stub.kill();
    else for (const session of stub.sessions) session.close();
    await new Promise((done) => setTimeout(done, 50));
    for (let i = 0; i < 500 && ending === null; i++) {
      stream?.resume();
      await new Promise((done) => setImmediate(done));
    }
    const lines = text.split('\n').length - 1;
    if (isKilled)
      t.same(ending, [Code.stream_interrupted, `the connection to 127.0.0.1:${stub.port} broke before the whole answer was read`]);
    else t.same([ending, lines], [[0, ''], 60], 'a connection that is closed in order loses nothing');
  }
});

t.test('a method that does not stream gives one message, also when it is called as a stream', async (t) => {
  const { stub, transport } = await withStub(t, (stream) => answer(stream, []));
  const none = await transport.invokeStream(exchangeOf(candidate(stub.address)));
  t.equal(none.code, Code.bad_response);
  t.match(none.detail, /0 messages/);
  stub.script = (stream) => answer(stream, [told('a'), told('b')]);
  const two = await transport.invokeStream(exchangeOf(candidate(stub.address)));
  const collected = new Collector(two.stream);
  await collected.ended;
  t.equal(collected.code, Code.stream_interrupted);
  t.equal(collected.text, '{"agent":"a","n":0}\n');
});

t.test('a server that takes no call is not hammered, and does not fill the memory', async (t) => {
  const shut = await GrpcStub.listen((stream) => answer(stream, [told('open')]), { settings: { maxConcurrentStreams: 0 } });
  const transport = new GrpcTransport(contextOf());
  t.teardown(async () => {
    await transport.close();
    await shut.close();
  });
  const tired = setInterval(() => {
    for (const session of shut.sessions) if (!session.destroyed && !session.closed) session.goaway(0, 0);
  }, 2);
  t.teardown(() => clearInterval(tired));
  const held = exchangeOf(candidate(shut.address));
  const waits = transport.invoke(held);
  await new Promise((done) => setTimeout(done, 700));
  t.ok(shut.sessions.length <= 20, `${shut.sessions.length} connections in 0.7 s`);
  await waitUntil('it tries again', () => shut.sessions.length >= 2);
  clearInterval(tired);
  for (let i = 0; i < 1_000; i++) {
    const exchange = exchangeOf(candidate(shut.address));
    const reply = transport.invoke(exchange);
    exchange.abort?.();
    t.equal((await reply).started, 'not_started');
  }
  const channel = [...transport.channels.values()][0];
  t.ok(channel !== undefined && channel.waiting < 200, `${channel?.waiting} still wait`);
  held.abort?.();
  await waits;
});

t.test('a name that leads nowhere is not looked up for every call, and is found as soon as it leads somewhere', async (t) => {
  const { stub, transport } = await withStub(t, (stream) => answer(stream, [told('here')]));
  const dns = await DnsStub.listen([]);
  t.teardown(() => dns.close());
  const at = candidate(`dns://${dns.address}/orders.test:${stub.port}`);
  for (let i = 0; i < 20; i++) {
    const reply = await transport.invoke(exchangeOf(at));
    t.same([reply.code, reply.started], [Code.connect_timeout, 'not_started']);
  }
  t.equal(dns.asked, 1);
  dns.addresses = ['127.0.0.1'];
  await waitUntil('it is found', async () => (await transport.invoke(exchangeOf(at))).code === 0, 3_000, 100);
  t.equal(dns.asked, 2);
});
