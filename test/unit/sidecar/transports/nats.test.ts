import { connect, headers as natsHeaders, type Msg, type NatsConnection, ServiceError } from 'nats';
import t, { type Test } from 'tap';
import { NOTHING_ALLOWED } from '../../../../base/address-guard.ts';
import type { Endpoint } from '../../../../proto/language/types.ts';
import { Code } from '../../../../proto/wire/codes.ts';
import { judgeAnswer } from '../../../../sidecar/attempt/judge.ts';
import type { Reply } from '../../../../sidecar/call/reply.ts';
import { Destinations } from '../../../../sidecar/transports/destinations.ts';
import { NatsTransport, natsKind } from '../../../../sidecar/transports/nats.ts';
import type { Exchange, TransportContext } from '../../../../sidecar/transports/transport.ts';
import { NatsServer } from '../../../support/nats.ts';
import { waitUntil } from '../../../support/settle.ts';
import { candidateOf, Collector, contextOf, type ExchangeParts, exchangeOf } from './exchanges.ts';

/** A server, a client of it that plays the agents, and the adapter under test. */
class Scene {
  readonly server: NatsServer;
  readonly agent: NatsConnection;
  readonly transport: NatsTransport;

  private constructor(server: NatsServer, agent: NatsConnection, transport: NatsTransport) {
    this.server = server;
    this.agent = agent;
    this.transport = transport;
  }

  static async start(
    t: Test,
    config = '',
    context: Partial<TransportContext> & { readonly secrets?: Record<string, string> } = {},
    login: { readonly user?: string; readonly pass?: string; readonly token?: string } = {},
  ): Promise<Scene> {
    const server = await NatsServer.start(t, config);
    const agent = await connect({ servers: server.url, ...login });
    t.teardown(() => agent.close());
    const transport = new NatsTransport(contextOf(context));
    t.teardown(() => transport.close());
    return new Scene(server, agent, transport);
  }

  /** Answers on a subject; gives what came. */
  answer(subject: string, respond: (message: Msg) => void): Msg[] {
    const seen: Msg[] = [];
    this.agent.subscribe(subject, {
      callback: (error, message) => {
        if (error !== null) return;
        seen.push(message);
        respond(message);
      },
    });
    return seen;
  }

  /** Exchanges of one candidate, so that what is prepared for it is kept. */
  asking(
    options: Record<string, unknown> = {},
    more: { capability?: string; endpoint?: Partial<Endpoint> } = {},
  ): (parts?: ExchangeParts) => Exchange {
    const candidate = candidateOf({
      ...(more.capability === undefined ? {} : { capability: more.capability }),
      endpoint: { type: 'nats', address: this.server.url, options, ...more.endpoint },
    });
    return (parts = {}) => exchangeOf(candidate, parts);
  }
}

const textOf = (reply: Reply): string => reply.body.toString('utf8');

t.test('a request goes to the subject with the payload and headers as they are, and its answer is the reply', async (t) => {
  const scene = await Scene.start(t);
  const seen = scene.answer('orders.crm.order.query', (message) => {
    const headers = natsHeaders();
    headers.set('Reach-Definitely-Success', 'true');
    headers.set('Nats-Internal', 'x');
    message.respond(Buffer.from('{"n":12345678901234567890}'), { headers });
  });
  const ask = scene.asking({ subject: 'orders.{capability}' });
  const reply = await scene.transport.invoke(
    ask({
      body: '{"id": 9007199254740993}',
      incoming: { 'x-note': 'yes', authorization: 'Bearer secret', 'nats-service-error': 'forged', 'reach-caller': 'forged' },
      own: ['reach-deadline-ms', '900', 'traceparent', '00-1-2-01', 'reach-caller', 'support.planner.1', 'reach-power-id', 'k'],
    }),
  );
  t.equal(reply.code, Code.ok, reply.detail);
  t.equal(reply.status, 200);
  t.equal(reply.started, 'done');
  t.equal(textOf(reply), '{"n":12345678901234567890}');
  t.strictSame(reply.headers, { 'reach-definitely-success': 'true', 'content-type': 'application/json' });
  const [message] = seen as [Msg];
  t.equal(Buffer.from(message.data).toString(), '{"id": 9007199254740993}');
  const header = (name: string): string => message.headers?.get(name) ?? '';
  t.equal(header('reach-deadline-ms'), '900');
  t.equal(header('traceparent'), '00-1-2-01');
  t.equal(header('reach-caller'), 'support.planner.1');
  t.equal(header('reach-power-id'), 'k');
  t.equal(header('reach-capability'), 'crm.order.query');
  t.equal(header('reach-version'), '2.1.0');
  t.equal(header('content-type'), 'application/json');
  t.equal(header('x-note'), 'yes');
  t.notOk(message.headers?.has('authorization'));
  t.notOk(message.headers?.has('nats-service-error'));
});

t.test('the capability is the subject unless another one is written; text, bytes and nothing are answers too', async (t) => {
  const scene = await Scene.start(t);
  const bodies: (string | Buffer)[] = ['hello', Buffer.from([0xff, 0xfe, 0]), ''];
  scene.answer('crm.order.query', (message) => message.respond(bodies.shift()));
  const ask = scene.asking();
  const text = await scene.transport.invoke(ask());
  t.equal(text.headers['content-type'], 'text/plain; charset=utf-8');
  t.equal(textOf(text), 'hello');
  const bytes = await scene.transport.invoke(ask());
  t.equal(bytes.headers['content-type'], 'application/octet-stream');
  t.equal(bytes.body.length, 3);
  const nothing = await scene.transport.invoke(ask());
  t.equal(nothing.code, Code.ok);
  t.equal(nothing.body.length, 0);
});

t.test('that nobody listens is known at once and proves that nothing has begun', async (t) => {
  const scene = await Scene.start(t);
  const since = performance.now();
  for (const method of ['invoke', 'invokeStream', 'cast'] as const) {
    const reply = await scene.transport[method](scene.asking({ subject: 'nobody.here' })());
    t.equal(reply.code, Code.connect_timeout);
    t.equal(reply.started, 'not_started');
    t.match(reply.detail, /nobody answers at nobody\.here/);
  }
  t.ok(performance.now() - since < 2_000);
});

t.test('abort settles at once, also while the connection is being made; a late answer is nobody’s', async (t) => {
  const scene = await Scene.start(t);
  const held = scene.answer('crm.order.query', () => {});
  const ask = scene.asking();
  const early = ask();
  const beginning = scene.transport.invoke(early);
  early.abort?.();
  const stopped = await beginning;
  t.equal(stopped.code, Code.cancelled);
  t.equal(stopped.started, 'not_started');
  const exchange = ask();
  const waiting = scene.transport.invoke(exchange);
  await waitUntil('the request has come', () => held.length === 1);
  exchange.abort?.();
  const gone = await waiting;
  t.equal(gone.code, Code.cancelled);
  t.equal(gone.started, 'started');
  held[0]?.respond('late');
  await scene.agent.flush();
  const next = scene.transport.invoke(ask());
  await waitUntil('the next request has come', () => held.length === 2);
  held[1]?.respond('mine');
  t.equal(textOf(await next), 'mine');
});

t.test('a thousand at once get each its own answer, whatever the order', async (t) => {
  const scene = await Scene.start(t);
  const held: Msg[] = [];
  scene.answer('crm.order.query', (message) => {
    held.push(message);
    if (held.length === 100) for (const each of held.splice(0).reverse()) each.respond(each.data);
  });
  const ask = scene.asking();
  const replies = await Promise.all(Array.from({ length: 1_000 }, (_, i) => scene.transport.invoke(ask({ body: String(i) }))));
  t.strictSame(
    replies.map(textOf),
    Array.from({ length: 1_000 }, (_, i) => String(i)),
  );
  t.equal(scene.transport.buses.size, 1);
});

t.test('error headers of the micro convention are the agent’s own error, with its code where it is a status', async (t) => {
  const scene = await Scene.start(t);
  const rows: readonly [string, string, string, number, RegExp][] = [
    ['404', 'no such order', '{"id":7}', 404, /404: "no such order"$/],
    ['429', 'slow down', '', 429, /429.*slow down/],
    ['503', 'overloaded', '', 503, /503: "overloaded"$/],
    ['17', 'odd', '', 500, /500: code 17: "odd"$/],
    ['200', 'no error code', '', 500, /500/],
    ['', 'no code', '', 500, /500/],
  ];
  let row = rows[0] as (typeof rows)[number];
  scene.answer('crm.order.query', (message) => {
    const headers = natsHeaders();
    if (row[0] !== '') headers.set('Nats-Service-Error-Code', row[0]);
    headers.set('Nats-Service-Error', row[1]);
    message.respond(row[2], { headers });
  });
  const ask = scene.asking();
  for (row of rows) {
    const reply = await scene.transport.invoke(ask());
    t.equal(reply.code, Code.ok, row[0]);
    t.equal(reply.status, row[3], row[0]);
    t.match(judgeAnswer(reply, null, () => undefined).detail, row[4], row[0]);
    if (row[2] === '') t.match(textOf(reply), row[1]);
    else t.equal(textOf(reply), row[2]);
  }
});

t.test(
  'a service of the micro convention is found by its name, its errors are read, and it is found again when it has moved',
  async (t) => {
    const scene = await Scene.start(t);
    const first = await scene.agent.services.add({ name: 'OrderService', version: '2.1.0', queue: 'q' });
    first.addEndpoint('list', { subject: 'v1.orders.list', handler: (_error, message) => void message.respond('list') });
    first.addEndpoint('query', {
      subject: 'v1.orders.query',
      handler: (_error, message) => {
        if (message.data.length === 0) throw new ServiceError(422, 'empty');
        if (Buffer.from(message.data).toString() === 'no') message.respondError(404, 'no such order', Buffer.from('{"id":1}'));
        else message.respond(message.data);
      },
    });
    const ask = scene.asking({ service: 'OrderService' });
    t.equal(textOf(await scene.transport.invoke(ask({ body: '{"a":1}' }))), '{"a":1}', 'the endpoint that fits by its name: the action');
    const refused = await scene.transport.invoke(ask({ body: 'no' }));
    t.equal(refused.status, 404);
    t.equal(textOf(refused), '{"id":1}');
    t.equal(textOf(await scene.transport.invoke(scene.asking({ service: 'OrderService', endpoint: 'list' })())), 'list');
    const unknown = await scene.transport.invoke(scene.asking({ service: 'OrderService', endpoint: 'lst' })());
    t.equal(unknown.code, Code.connect_timeout);
    t.match(unknown.detail, /no endpoint lst; it has list, query/);
    await first.stop();
    const gone = await scene.transport.invoke(ask());
    t.equal(gone.code, Code.connect_timeout);
    t.equal(gone.started, 'not_started');
    t.match(gone.detail, /OrderService/);
    const second = await scene.agent.services.add({ name: 'OrderService', version: '3.0.0', queue: 'q' });
    second.addEndpoint('query', { subject: 'v2.orders.query', handler: (_error, message) => void message.respond('moved') });
    await scene.agent.flush();
    t.equal(textOf(await scene.transport.invoke(ask())), 'moved');
  },
);

t.test('a service that moves while its subject is known costs no call: it is asked again and the call goes on', async (t) => {
  const scene = await Scene.start(t);
  const ask = scene.asking({ service: 'Mover' });
  for (const subject of ['a.b', 'c.d', 'e.f']) {
    const service = await scene.agent.services.add({ name: 'Mover', version: '1.0.0', queue: 'q' });
    service.addEndpoint('only', { subject, handler: (_error, message) => void message.respond(subject) });
    await scene.agent.flush();
    const replies = await Promise.all([1, 2, 3].map(() => scene.transport.invoke(ask())));
    t.strictSame(replies.map(textOf), [subject, subject, subject]);
    await service.stop();
    await scene.agent.flush();
  }
});

t.test('who has hardly any time left does not end the search for the service for those who have more', async (t) => {
  const scene = await Scene.start(t);
  scene.agent.subscribe('$SRV.INFO.Slow', {
    callback: (_error, message) => {
      const info = { name: 'Slow', id: '1', version: '1.0.0', endpoints: [{ name: 'query', subject: 'slow.query' }] };
      setTimeout(() => message.respond(JSON.stringify(info)), 100);
    },
  });
  scene.answer('slow.query', (message) => message.respond('found'));
  await scene.agent.flush();
  const ask = scene.asking({ service: 'Slow' });
  const hasty = ask({ timeoutMs: 1 });
  const [first, second] = [scene.transport.invoke(hasty), scene.transport.invoke(ask())];
  hasty.abort?.();
  t.equal((await first).started, 'not_started');
  const reply = await second;
  t.equal(textOf(reply), 'found', reply.detail);
});

t.test('any word is the name of a header, also one that every object has', async (t) => {
  const scene = await Scene.start(t);
  const seen = scene.answer('crm.order.query', (message) => message.respond('x'));
  await scene.transport.invoke(scene.asking()({ incoming: { constructor: 'mine', 'x-note': 'yes' } }));
  t.same(
    seen.map(({ headers }) => [headers?.get('constructor'), headers?.get('x-note')]),
    [['mine', 'yes']],
  );
});

t.test('what is published is handed over and answered 202, whether anybody listens or not', async (t) => {
  const scene = await Scene.start(t);
  const seen = scene.answer('events.crm.order.query', () => {});
  const ask = scene.asking({ mode: 'publish', subject: 'events.{capability}' });
  const reply = await scene.transport.invoke(ask({ body: '{"a":1}' }));
  t.equal(reply.status, 202);
  t.equal(reply.started, 'done');
  t.equal(reply.body.length, 0);
  await waitUntil('it has come', () => seen.length === 1);
  t.equal(Buffer.from((seen[0] as Msg).data).toString(), '{"a":1}');
  t.equal(seen[0]?.reply ?? '', '');
  t.equal((await scene.transport.cast(scene.asking({ mode: 'publish', subject: 'nobody.at.all' })())).status, 202);
});

t.test('a payload above what the server takes is refused before it is sent', async (t) => {
  const scene = await Scene.start(t, 'max_payload: 2048');
  scene.answer('crm.order.query', (message) => message.respond('x'));
  const ask = scene.asking();
  const reply = await scene.transport.invoke(ask({ body: 'x'.repeat(2_049) }));
  t.equal(reply.code, Code.payload_too_large);
  t.equal(reply.started, 'not_started');
  t.match(reply.detail, /2048/);
  t.equal((await scene.transport.invoke(ask({ body: 'x'.repeat(2_000) }))).code, Code.payload_too_large, 'headers count');
  t.equal((await scene.transport.invoke(ask({ body: 'x'.repeat(1_500) }))).code, Code.ok);
  t.equal((await scene.transport.invoke(ask({ body: 'x', maxResponseBytes: 0 }))).code, Code.response_too_large);
});

t.test('a connection that is away is told at once, and one that comes back is used', async (t) => {
  const scene = await Scene.start(t, '', { connectTimeoutMs: 1_000 });
  const ask = scene.asking();
  scene.answer('crm.order.query', (message) => message.respond('x'));
  t.equal((await scene.transport.invoke(ask())).code, Code.ok);
  await scene.server.kill();
  let away: Reply | null = null;
  await waitUntil('the loss is seen', async () => {
    away = await scene.transport.invoke(ask());
    return away.code === Code.connect_timeout;
  });
  const since = performance.now();
  const reply = await scene.transport.invoke(ask());
  t.equal(reply.code, Code.connect_timeout);
  t.equal(reply.started, 'not_started');
  t.match(reply.detail, /no connection to NATS/);
  t.ok(performance.now() - since < 300);
  await scene.server.restart();
  await waitUntil('it is back', async () => (await scene.transport.invoke(ask())).code === Code.ok, 20_000);
});

t.test('a request under way when the connection breaks may have been done', async (t) => {
  const scene = await Scene.start(t);
  const seen = scene.answer('crm.order.query', () => {});
  const waiting = scene.transport.invoke(scene.asking()());
  await waitUntil('the request has come', () => seen.length === 1);
  await scene.server.kill();
  const reply = await waiting;
  t.equal(reply.code, Code.connection_lost);
  t.equal(reply.started, 'started');
});

t.test('an address where nothing listens costs no more than the time for a connection', async (t) => {
  const transport = new NatsTransport(contextOf({ connectTimeoutMs: 400 }));
  t.teardown(() => transport.close());
  const candidate = candidateOf({ endpoint: { type: 'nats', address: 'nats://127.0.0.1:1' } });
  for (let i = 0; i < 2; i++) {
    const since = performance.now();
    const reply = await transport.invoke(exchangeOf(candidate));
    t.equal(reply.code, Code.connect_timeout);
    t.equal(reply.started, 'not_started');
    t.match(reply.detail, /127\.0\.0\.1:1/);
    t.ok(performance.now() - since < 900);
  }
});

t.test('where connections may not lead, none is opened: judged by number, and by what a name leads to', async (t) => {
  const server = await NatsServer.start(t);
  const { port } = new URL(server.url);
  const destinations = new Destinations({ allow: NOTHING_ALLOWED, loopback: false, private: false });
  const transport = new NatsTransport(contextOf({ destinations }));
  t.teardown(() => transport.close());
  const rows: readonly [string, 'direct' | 'self', RegExp][] = [
    [`nats://localhost:${port}`, 'direct', /no connection to NATS at nats:\/\/localhost:\d+: /],
    ['nats://169.254.169.254:4222', 'direct', /169\.254/],
    ['nats://169.254.169.254:4222', 'self', /169\.254/],
    [`nats://[::ffff:169.254.169.254]:4222`, 'self', /no connection to NATS/],
  ];
  for (const [address, reach, words] of rows) {
    const reply = await transport.invoke(exchangeOf(candidateOf({ reach, endpoint: { type: 'nats', address } })));
    t.equal(reply.code, Code.connect_timeout, address);
    t.equal(reply.started, 'not_started');
    t.match(reply.detail, words);
  }
  const hosted = await transport.invoke(
    exchangeOf(candidateOf({ reach: 'self', endpoint: { type: 'nats', address: `nats://localhost:${port}` } })),
  );
  t.match(hosted.detail, /nobody answers/, 'what this sidecar hosts may stand on its own machine');
  destinations.bus([server.url]);
  for (const host of ['localhost', '127.0.0.1']) {
    const endpoint = { type: 'nats', address: `nats://${host}:${port}` } as const;
    const reply = await transport.invoke(exchangeOf(candidateOf({ reach: 'self', endpoint })));
    t.match(reply.detail, /nobody answers/, 'nor is the server of the bus closed to agents that stand there: its language is spoken');
    t.match(destinations.hosted.refusal(new URL(`http://${host}:${port}`)), /own bus/, 'which others do not');
  }
  t.equal((await server.connections()).length, 2);
});

t.test('where a name leads is judged anew whenever the connection is made again', async (t) => {
  const server = await NatsServer.start(t);
  const { port } = new URL(server.url);
  const policy = { allow: NOTHING_ALLOWED, loopback: true, private: false };
  let leadsTo = '127.0.0.1';
  const destinations = new Destinations(policy, (_name, _options, done) => done(null, [{ address: leadsTo, family: 4 }]));
  const transport = new NatsTransport(contextOf({ destinations }));
  t.teardown(() => transport.close());
  const candidate = candidateOf({ endpoint: { type: 'nats', address: `nats://localhost:${port}` } });
  t.match((await transport.invoke(exchangeOf(candidate))).detail, /nobody answers/, 'it is connected');
  leadsTo = '169.254.169.254';
  await server.kill();
  await server.restart();
  await waitUntil('it is refused', async () => /169\.254/.test((await transport.invoke(exchangeOf(candidate))).detail), 20_000);
  t.equal((await server.connections()).length, 0);
});

t.test('a credential is read by reference; one address with two credentials is two connections', async (t) => {
  const config = 'authorization: {users: [{user: reach, password: right}, {user: agent, password: right}]}';
  const scene = await Scene.start(t, config, { secrets: { PASSWORD: 'right', WRONG: 'wrong' } }, { user: 'agent', pass: 'right' });
  scene.answer('crm.order.query', (message) => message.respond('x'));
  const secret = (env: string): Partial<Endpoint> => ({ credential: { header: 'authorization', prefix: '', secret: { env } } });
  t.equal((await scene.transport.invoke(scene.asking({ user: 'reach' }, { endpoint: secret('PASSWORD') })())).code, Code.ok);
  const wrong = await scene.transport.invoke(scene.asking({ user: 'reach' }, { endpoint: secret('WRONG') })());
  t.equal(wrong.code, Code.connect_timeout);
  t.equal(wrong.started, 'not_started');
  t.notMatch(wrong.detail, /wrong/);
  t.equal(scene.transport.buses.size, 2);
  const missing = await scene.transport.invoke(scene.asking({ user: 'reach' }, { endpoint: secret('NOT_SET') })());
  t.equal(missing.started, 'not_started');
  t.match(missing.detail, /NOT_SET/);
  t.equal((await scene.transport.invoke(scene.asking({ user: 'reach' }, { endpoint: secret('PASSWORD') })())).code, Code.ok);
});

t.test('what the credential may not publish is refused with words, and has not started', async (t) => {
  const config = 'authorization: {users: [{user: reach, password: right, permissions: {publish: ["a.>"], subscribe: ["_INBOX.>"]}}]}';
  const server = await NatsServer.start(t, config);
  const transport = new NatsTransport(contextOf({ secrets: { PASSWORD: 'right' } }));
  t.teardown(() => transport.close());
  const credential = { header: 'authorization', prefix: '', secret: { env: 'PASSWORD' } };
  const reply = await transport.invoke(
    exchangeOf(candidateOf({ endpoint: { type: 'nats', address: server.url, options: { user: 'reach' }, credential } })),
  );
  t.equal(reply.code, Code.connect_timeout);
  t.equal(reply.started, 'not_started');
  t.match(reply.detail, /no permission to publish/);
});

t.test('a stream is lines, one a message, until the empty one; an error in it cuts it', async (t) => {
  const scene = await Scene.start(t);
  scene.answer('crm.order.query', (message) => {
    message.respond('{"a":\n 1}');
    message.respond('text');
    message.respond(Buffer.from([0xff]));
    message.respond();
  });
  const reply = await scene.transport.invokeStream(scene.asking({ stream: true })());
  t.equal(reply.code, Code.ok);
  t.equal(reply.headers['content-type'], 'application/x-ndjson');
  const collected = new Collector(reply.stream);
  await collected.ended;
  t.equal(collected.code, 0);
  t.equal(collected.endings, 1);
  const lines = collected.text.split('\n');
  t.equal(lines.pop(), '');
  t.strictSame(
    lines.map((line) => JSON.parse(line) as unknown),
    [{ a: 1 }, 'text', { base64: '/w==', content_type: '' }],
  );
  const whole = await scene.transport.invoke(scene.asking({ stream: true })());
  t.equal(textOf(whole), collected.text, 'asked for whole, the lines come together');

  scene.answer('broken.stream', (message) => {
    message.respond('1');
    const headers = natsHeaders();
    headers.set('Nats-Service-Error', 'the model died');
    headers.set('Nats-Service-Error-Code', '500');
    message.respond('', { headers });
    message.respond('2');
  });
  await scene.agent.flush();
  const cut = new Collector((await scene.transport.invokeStream(scene.asking({ stream: true, subject: 'broken.stream' })())).stream);
  await cut.ended;
  t.equal(cut.code, Code.stream_interrupted);
  t.match(cut.detail, /the model died/);
  t.equal(cut.text, '1\n');
  const failedWhole = await scene.transport.invoke(scene.asking({ stream: true, subject: 'broken.stream' })());
  t.match(failedWhole, { code: Code.ok, started: 'done', status: 500 }, 'asked for whole, the error is the answer, and at once');
  t.match(failedWhole.detail, /the model died/);
  t.match(textOf(failedWhole), /"the model died"/);

  scene.answer('early.error', (message) => {
    const headers = natsHeaders();
    headers.set('Nats-Service-Error', 'no');
    headers.set('Nats-Service-Error-Code', '403');
    message.respond('', { headers });
  });
  await scene.agent.flush();
  const early = await scene.transport.invokeStream(scene.asking({ stream: true, subject: 'early.error' })());
  t.equal(early.stream, null);
  t.equal(early.status, 403);

  scene.answer('empty.stream', (message) => message.respond());
  await scene.agent.flush();
  const empty = new Collector((await scene.transport.invokeStream(scene.asking({ stream: true, subject: 'empty.stream' })())).stream);
  await empty.ended;
  t.equal(empty.code, 0);
  t.equal(empty.chunks.length, 0);
});

t.test(
  'a stream is read at the reader’s pace, can be given up, and is cut when the reader is too slow or the connection breaks',
  async (t) => {
    const scene = await Scene.start(t);
    const held = scene.answer('crm.order.query', (message) => message.respond('0'));
    const ask = scene.asking({ stream: true });

    const reply = await scene.transport.invokeStream(ask());
    const paused = new Collector(reply.stream);
    paused.goesOn = false;
    held[0]?.respond('1');
    await paused.has(1);
    held[0]?.respond('2');
    held[0]?.respond();
    await scene.agent.flush();
    await waitUntil('what comes waits', () => paused.chunks.length <= 2);
    t.equal(paused.endings, 0, 'the end waits behind what was not read');
    paused.goesOn = true;
    reply.stream?.resume();
    await paused.ended;
    t.equal(paused.text, '0\n1\n2\n');

    const given = await scene.transport.invokeStream(ask());
    const reader = new Collector(given.stream);
    given.stream?.cancel(Code.cancelled, 'gone');
    held[1]?.respond('late');
    await reader.ended;
    t.equal(reader.code, Code.cancelled);
    t.equal(reader.endings, 1);

    const slow = await scene.transport.invokeStream(ask());
    for (let i = 0; i < 6; i++) held[2]?.respond('x'.repeat(1_000_000));
    await scene.agent.flush();
    await new Promise((done) => setTimeout(done, 200));
    const late = new Collector(slow.stream);
    await late.ended;
    t.equal(late.code, Code.stream_interrupted);
    t.match(late.detail, /too slow/);

    const lost = new Collector((await scene.transport.invokeStream(ask())).stream);
    await scene.server.kill();
    await lost.ended;
    t.equal(lost.code, Code.stream_interrupted);
    t.match(lost.detail, /connection to NATS broke/);
  },
);

t.test('what is written for it is read with the table, and refused with a suggestion', async (t) => {
  const problems = (options: Record<string, unknown>, more: Partial<Endpoint> = {}): string =>
    natsKind
      .problems({ type: 'nats', address: 'nats://127.0.0.1:4222', path: null, mapping: {}, credential: null, options, ...more })
      .join(' | ');
  const credential = { header: 'authorization', prefix: '', secret: { env: 'X' } };
  t.equal(problems({}), '');
  t.equal(problems({ subject: 'a.{capability}.b', stream: true }), '');
  t.equal(problems({ service: 'OrderService', endpoint: 'query' }), '');
  t.equal(problems({ login: 'creds' }, { credential }), '');
  t.match(problems({}, { address: '' }), /address is missing/);
  t.match(problems({}, { address: 'http://x:1' }), /NATS/);
  t.match(problems({}, { address: 'nats://user:secret@x:1' }), /credential/);
  t.notMatch(problems({}, { address: 'nats://user:secret@x:1' }), /secret@/);
  t.match(problems({ subjct: 'a' }), /subjct.*subject/);
  for (const subject of ['a b', 'a..b', '$SYS.REQ', 'a.*', 'a.>', 'a.{version}', 'a\nb'])
    t.match(problems({ subject }), /subject/, subject);
  t.match(problems({ mode: 'service' }), /service is missing/);
  t.match(problems({ mode: 'request', service: 'X' }), /mode is request/);
  t.match(problems({ service: 'X', subject: 'a' }), /says itself/);
  t.match(problems({ service: 'a.b' }), /name of a service/);
  t.match(problems({ mode: 'publish', stream: true }), /nobody answers/);
  t.match(problems({ user: 'x' }), /credential is missing/);
  t.match(problems({ login: 'password' }, { credential }), /user is missing/);
  t.match(problems({ user: 'x', login: 'nkey' }, { credential }), /login is nkey/);
  t.match(problems({}, { credential: { ...credential, header: 'x-key' } }), /no meaning for NATS/);
});
