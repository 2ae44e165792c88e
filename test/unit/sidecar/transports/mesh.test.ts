import t from 'tap';
import { Code } from '../../../../proto/wire/codes.ts';
import { Frame, frameHead, type FrameType } from '../../../../proto/wire/frames.ts';
import type { BodySink } from '../../../../sidecar/call/reply.ts';
import { FramedBody } from '../../../../sidecar/transports/framed-body.ts';
import { endpointTypes, registerTransports, Transports } from '../../../../sidecar/transports/index.ts';
import { MeshTransport } from '../../../../sidecar/transports/mesh.ts';
import { buildConnector, Client } from '../../../../sidecar/transports/undici.ts';
import { type AgentAnswer, TestAgent } from '../../../support/agent.ts';
import { rawAnswer, TcpStub } from '../../../support/tcp-stub.ts';
import { candidateOf, Collector, contextOf, exchangeOf } from './exchanges.ts';

type Tap = Pick<typeof t, 'teardown'>;

async function withHost(test: Tap, answer: () => AgentAnswer) {
  const host = await TestAgent.listen('sidecar-b', answer);
  const mesh = new MeshTransport(contextOf(), 'mesh-t0ken');
  test.teardown(async () => {
    await mesh.close();
    await host.close();
  });
  return { host, mesh, candidate: candidateOf({ reach: 'mesh', meshUrl: host.url }) };
}

t.test('a call to a provider of another sidecar names capability, version, provider and wire, and proves who asks', async (t) => {
  const { host, mesh, candidate } = await withHost(t, () => ({ status: 200, headers: { 'reach-code': '0' }, body: { ok: 1 } }));
  const reply = await mesh.invoke(
    exchangeOf(candidate, {
      incoming: { authorization: 'Bearer caller', 'reach-provider': 'evil', 'x-a': '1' },
      own: ['reach-caller', 'shop.web.1'],
    }),
  );
  t.match(reply, { code: 0, status: 200, started: 'done' });
  t.equal(reply.body.toString(), '{"ok":1}');
  const seen = host.requests[0];
  t.match(seen, { method: 'POST', path: '/mesh/v1/invoke/crm.order.query' });
  t.match(seen?.headers, {
    authorization: 'Bearer mesh-t0ken',
    'reach-wire': '1',
    'reach-version': '2.1.0',
    'reach-provider': 'shop.order.1',
    'reach-caller': 'shop.web.1',
    'content-type': 'application/json',
    'x-a': '1',
  });
  t.notOk('reach-stream' in (seen?.headers ?? {}));
});

t.test('what the other sidecar says of the work is believed, in its own code', async (t) => {
  let answer: AgentAnswer = {};
  const { mesh, candidate } = await withHost(t, () => answer);
  const table: [string, AgentAnswer, object][] = [
    [
      'busy, never started',
      {
        status: 503,
        headers: {
          'reach-code': '3003',
          'reach-started': 'not_started',
          'reach-detail': 'full%3A%208%20of%208',
          'reach-retry-after-ms': '250',
        },
      },
      { code: Code.provider_busy, started: 'not_started', detail: 'full: 8 of 8', retryAfterMs: 250, status: 0 },
    ],
    [
      'an attempt that broke there',
      { status: 502, headers: { 'reach-code': '1002', 'reach-started': 'started' } },
      { code: Code.connection_lost, started: 'started' },
    ],
    [
      'nothing said about how far: the worse is taken',
      { status: 502, headers: { 'reach-code': '1003' } },
      { code: Code.response_timeout, started: 'started', retryAfterMs: 0 },
    ],
    [
      'done, but against its contract',
      { status: 502, headers: { 'reach-code': '4004', 'reach-started': 'done' } },
      { code: Code.invalid_response, started: 'done' },
    ],
    [
      "the provider's own error is an answer",
      { status: 500, headers: { 'reach-code': '0', 'reach-started': 'done' }, body: { error: 'x' } },
      { code: 0, status: 500, started: 'done' },
    ],
    [
      'a code of a newer sidecar',
      { status: 500, headers: { 'reach-code': '8123', 'reach-detail': 'new' } },
      { code: Code.internal, detail: 'code 8123 of a newer sidecar: new' },
    ],
    [
      'a detail that is not encoded',
      { status: 500, headers: { 'reach-code': '9001', 'reach-detail': '50%' } },
      { code: Code.internal, detail: '50%' },
    ],
    ['no sidecar', { status: 200, body: 'hello' }, { code: Code.bad_response, started: 'started' }],
    ['a code that is no number', { status: 200, headers: { 'reach-code': 'fine' } }, { code: Code.bad_response }],
  ];
  for (const [name, said, wanted] of table) {
    answer = said;
    t.match(await mesh.invoke(exchangeOf(candidate)), wanted, name);
    t.match(
      await mesh.invokeStream(exchangeOf(candidate)),
      said.status === 200 && said.headers?.['reach-code'] === '0' ? {} : wanted,
      `${name}, streaming`,
    );
  }
});

t.test('streams come through, a cut one as cut', async (t) => {
  const stub = await TcpStub.listen(async (connection, request) => {
    await connection.write(rawAnswer(200, { 'reach-code': 0, 'transfer-encoding': 'chunked' }));
    await connection.write('2\r\nab\r\n');
    if (request.number === 1) await connection.write('0\r\n\r\n');
    else connection.rst();
  });
  const mesh = new MeshTransport(contextOf(), 'x');
  t.teardown(async () => {
    await mesh.close();
    await stub.close();
  });
  const candidate = candidateOf({ reach: 'mesh', meshUrl: `${stub.url}/` });
  const whole = new Collector((await mesh.invokeStream(exchangeOf(candidate))).stream);
  await whole.ended;
  t.match(whole, { code: 0, text: 'ab' });
  t.match(stub.requests[0]?.head, /reach-stream: 1/);
  const reply = await mesh.invokeStream(exchangeOf(candidate));
  if (reply.stream !== null) {
    const cut = new Collector(reply.stream);
    await cut.ended;
    t.match(cut, { code: Code.stream_interrupted, endings: 1 });
  } else t.match(reply, { code: Code.connection_lost }, 'the reset overtook the head');
});

t.test('in frames, only the end frame is an end: every other ending is a cut with its own code', async (t) => {
  const frame = (type: FrameType, payload: string): Buffer => Buffer.concat([frameHead(type, payload.length), Buffer.from(payload)]);
  const said = (code: number): Buffer => frame(Frame.error, JSON.stringify({ code, error: { detail: 'why' } }));
  const data = frame(Frame.data, 'ab');
  const table: [string, Buffer[], object][] = [
    ['the end', [data, frame(Frame.keepAlive, ''), data, frame(Frame.end, '{"code":0}')], { code: 0, text: 'abab' }],
    ['the code of the other end', [data, said(1005)], { code: 1005, detail: 'why', text: 'ab' }],
    ['a time-out there', [said(1003)], { code: 1003, detail: 'why', text: '' }],
    ['an error that says all is well', [data, said(0)], { code: 1006, text: 'ab' }],
    ['a code of a newer sidecar', [said(1999)], { code: 1006, detail: 'code 1999 of another sidecar: why' }],
    ['an error without words', [frame(Frame.error, 'oops')], { code: 1006, detail: /gave no reason/ }],
    ['no end frame', [data], { code: 1006, detail: 'the frames ended without an end frame', text: 'ab' }],
    ['half a frame', [data, frameHead(Frame.data, 9), Buffer.from('xyz')], { code: 1006, detail: /inside a frame, 6 of 9/, text: 'abxyz' }],
    ['no frames at all', [Buffer.from('<html>')], { code: 1004, detail: /cannot be read: a frame of version 60/ }],
  ];
  for (const [name, frames, wanted] of table) {
    const body = Buffer.concat(frames).toString('latin1');
    const stub = await TcpStub.listen(async (connection) => {
      await connection.write(rawAnswer(200, { 'reach-code': 0, 'reach-frames': 1, 'transfer-encoding': 'chunked' }));
      for (const byte of body) await connection.write(`1\r\n${byte}\r\n`);
      await connection.write('0\r\n\r\n');
    });
    const mesh = new MeshTransport(contextOf(), 'x');
    const reply = await mesh.invokeStream(exchangeOf(candidateOf({ reach: 'mesh', meshUrl: stub.url })));
    t.match(stub.requests[0]?.head, /reach-frames: 1/, 'it says that it can read them');
    const seen = new Collector(reply.stream);
    await seen.ended;
    t.match(seen, { ...wanted, endings: 1 }, name);
    await mesh.close();
    await stub.close();
  }
});

t.test('of frames that come at once, none is passed on behind the one at which the reader gave up', (t) => {
  let connection: BodySink | null = null;
  const seen: string[] = [];
  const body = new FramedBody({
    pipe: (sink) => (connection = sink),
    resume: () => {},
    cancel: (code, detail) => connection?.cut(code, detail),
  });
  body.pipe({
    chunk: (data) => {
      seen.push(data.toString());
      body.cancel(Code.cancelled, 'enough');
      return true;
    },
    end: () => seen.push('end'),
    cut: (code) => seen.push(`cut ${code}`),
  });
  const frame = (text: string): Buffer => Buffer.concat([frameHead(Frame.data, text.length), Buffer.from(text)]);
  (connection as BodySink | null)?.chunk(Buffer.concat(['a', 'b', 'c'].map(frame)));
  t.same(seen, ['a', 'cut 5003']);
  t.end();
});

t.test('a stream from what is no sidecar is let go', async (t) => {
  const stub = await TcpStub.listen((connection) => connection.write(`${rawAnswer(200, { 'transfer-encoding': 'chunked' })}2\r\nab\r\n`));
  const mesh = new MeshTransport(contextOf(), 'x');
  t.teardown(async () => {
    await mesh.close();
    await stub.close();
  });
  const reply = await mesh.invokeStream(exchangeOf(candidateOf({ reach: 'mesh', meshUrl: stub.url })));
  t.match(reply, { code: Code.bad_response, stream: null });
  await stub.allClosed();
});

t.test('a host that is gone, has no usable address, or whose token we lack: not started', async (t) => {
  const { host, mesh } = await withHost(t, () => ({}));
  const gone = host.url;
  await host.close();
  t.match(await mesh.invoke(exchangeOf(candidateOf({ reach: 'mesh', meshUrl: gone }))), {
    code: Code.connect_timeout,
    started: 'not_started',
  });
  t.match(await mesh.invoke(exchangeOf(candidateOf({ reach: 'mesh', meshUrl: '' }))), { code: Code.internal, started: 'not_started' });
  const tokenless = new MeshTransport(contextOf(), null);
  t.match(await tokenless.invoke(exchangeOf(candidateOf({ reach: 'mesh', meshUrl: gone }))), {
    code: Code.internal,
    started: 'not_started',
    detail: /no mesh token/,
  });
});

t.test('which adapter serves a candidate', async (t) => {
  const factories = registerTransports('token');
  t.same(
    endpointTypes(factories),
    ['channel', 'grpc', 'http', 'jsonrpc', 'local', 'mock', 'nats'],
    'mesh is a way of reaching, not a type that people may write',
  );
  const transports = new Transports(contextOf(), factories);
  t.teardown(() => transports.close());
  t.equal(transports.for(candidateOf()), transports.of('http'));
  t.equal(transports.for(candidateOf({ endpoint: { type: 'mock' } })), transports.of('mock'));
  t.equal(transports.for(candidateOf({ reach: 'mesh' })), transports.of('mesh'), 'whatever the type of its endpoint');
  t.equal(transports.of('carrier-pigeon'), null);

  const unknown = candidateOf({ endpoint: { type: 'carrier-pigeon' } });
  t.match(await transports.for(unknown).invoke(exchangeOf(unknown)), {
    code: Code.internal,
    started: 'not_started',
    detail: /carrier-pigeon.*channel, grpc, http, jsonrpc, local, mock, nats/,
  });

  const own = candidateOf({ reach: 'self' });
  t.equal(transports.for(own), transports.of('http'), 'an agent hosted here is reached directly');
  await transports.close();
});

t.test('the parts of undici that are loaded alone are those of its front module', async (t) => {
  const front = await import('undici');
  t.equal(Client, front.Client);
  t.equal(buildConnector, front.buildConnector);
});
