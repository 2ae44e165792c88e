/**
 * Agents that exist already, unchanged: a Python gRPC service with reflection, a FastAPI service, a JSON-RPC service of the
 * standard library, a NATS micro service. Each is reached through one sidecar by HTTP, JSON-RPC and gRPC callers, and by
 * the real curl and grpcurl. `make peers` installs what they need.
 */
import { spawn } from 'node:child_process';
import t from 'tap';
import { pythonPath } from '../../deploy/local/python.ts';
import { Code } from '../../proto/wire/codes.ts';
import { SIDECAR_METRICS } from '../../sidecar/observe/declared-metrics.ts';
import { likeGrpcurl } from '../support/grpc-client.ts';
import { grpcurl } from '../support/grpcurl.ts';
import { type Base, takeBase } from '../support/invariants.ts';
import { NatsServer } from '../support/nats.ts';
import { repoFile } from '../support/paths.ts';
import { type Peer, startNode, startPython } from '../support/peers.ts';
import { eventsIn, openReading } from '../support/reading.ts';
import { CALLER, Rig, TOKEN } from '../support/rig.ts';
import { waitUntil } from '../support/settle.ts';
import { GrpcWay } from '../support/ways/grpc.ts';
import { HttpWay } from '../support/ways/http.ts';
import { RpcWay } from '../support/ways/json-rpc.ts';
import type { Told, WayClient } from '../support/ways/way.ts';

t.setTimeout(110_000);
const before: Base = takeBase();

const ORDER = {
  orderId: 'o-7',
  state: 'SHIPPED',
  totalCents: '9007199254740993',
  items: [{ sku: 'bean-1kg', count: 2 }],
  createdAt: '2026-03-01T12:00:00Z',
  note: 'grüße ☕',
  seal: 'AP8=',
};

interface Scene {
  readonly rig: Rig;
  readonly orders: Peer;
  readonly text: Peer;
  readonly callers: ReadonlyMap<string, WayClient>;
  readonly stop: () => Promise<void>;
}

function tableOf(orders: string, text: string, stock: string, nats: string): string {
  const contract = (name: string, more = ''): string =>
    `  - {name: ${name}, version: "1.0.0", acl: public, streaming: true, timeout: 5s, breaker: {enabled: false}${more}}\n`;
  return `contracts:
${contract('shop.order.get')}${contract('shop.order.list')}${contract('shop.order.audit', ', timeout: 600ms').replace('timeout: 5s, ', '')}${contract('shop.order.headers')}\
${contract('text.sentiment.analyze')}${contract('text.generation.events')}${contract('text.generation.lines')}${contract('text.work.slow')}\
${contract('stock.level.query')}${contract('stock.count.total')}${contract('stock.work.unknown')}\
${contract('parcel.position.track')}${contract('parcel.request.headers')}${contract('weather.sky.now')}
providers:
  - agent_id: shop.orders.1
    offers: ["shop.order.get@1.0.0", "shop.order.list@1.0.0", "shop.order.audit@1.0.0", "shop.order.headers@1.0.0"]
    endpoint: {type: grpc, address: "${orders}", service: shop.orders.v1.Orders}
  - agent_id: text.service.1
    offers: ["text.sentiment.analyze@1.0.0", "text.generation.events@1.0.0", "text.generation.lines@1.0.0", "text.work.slow@1.0.0"]
    endpoint:
      type: http
      address: "${text}"
      mapping:
        text.sentiment.analyze: {path: /sentiment}
        text.generation.events: {path: /generate/sse}
        text.generation.lines: {path: /generate/ndjson}
        text.work.slow: {path: /slow}
  - agent_id: stock.service.1
    offers: ["stock.level.query@1.0.0", "stock.count.total@1.0.0", "stock.work.unknown@1.0.0"]
    endpoint:
      type: jsonrpc
      address: "${stock}"
      methods: {stock.level.query: stock.level, stock.count.total: stock.total, stock.work.unknown: nobody.knows}
  - agent_id: parcel.service.1
    offers: ["parcel.position.track@1.0.0", "parcel.request.headers@1.0.0"]
    endpoint: {type: nats, address: "${nats}", service: parcels}
  - agent_id: weather.service.1
    offers: ["weather.sky.now@1.0.0"]
    endpoint: {type: nats, address: "${nats}", service: weather, endpoint: now}
`;
}

interface Family {
  readonly type: string;
  readonly help: string;
  readonly samples: number;
  readonly labels: readonly string[];
  readonly exemplars: readonly string[];
}

async function sceneFor(t: Parameters<typeof Rig.start>[0]): Promise<Scene> {
  const nats = await NatsServer.start(t);
  const [orders, text, stock, parcels, weather] = await Promise.all([
    startPython(t, 'deploy/local/peers/grpc_agent.py'),
    startPython(t, 'deploy/local/peers/fastapi_agent.py'),
    startPython(t, 'deploy/local/peers/jsonrpc_agent.py'),
    startPython(t, 'deploy/local/peers/nats_agent.py', [nats.url]),
    startNode(t, 'test/peers/nats_service.ts', [nats.url]),
  ]);
  const rig = await Rig.start(t, {
    table: tableOf(`grpc://127.0.0.1:${orders.port}`, text.url, stock.url, nats.url),
    settings: '  grpc: {listen: "127.0.0.1:0"}',
  });
  t.strictSame(rig.started.front.table.problems, [], 'the table is taken');
  const callers = new Map<string, WayClient>([
    ['http', new HttpWay(rig)],
    ['json-rpc', new RpcWay(rig)],
    ['grpc', new GrpcWay(rig.started.grpcAddress as string)],
  ]);
  const stop = async (): Promise<void> => {
    for (const caller of callers.values()) await caller.close();
    await rig.stop();
    for (const peer of [orders, text, stock, parcels, weather]) await peer.stop();
    await nats.stop();
  };
  t.teardown(stop);
  return { rig, orders, text, callers, stop };
}

interface Run {
  readonly code: number | null;
  readonly out: string;
  readonly err: string;
}

function run(program: string, args: readonly string[], env: Readonly<Record<string, string>> = {}, input = ''): Promise<Run> {
  const child = spawn(program, args, { env: { ...process.env, ...env }, stdio: ['pipe', 'pipe', 'pipe'] });
  child.stdin.end(input);
  let out = '';
  let err = '';
  child.stdout.setEncoding('utf8').on('data', (text: string) => (out += text));
  child.stderr.setEncoding('utf8').on('data', (text: string) => (err += text));
  return new Promise((done, fail) => {
    child.once('error', fail);
    child.once('close', (code) => done({ code, out, err }));
  });
}

t.test('agents that know nothing of us, by every protocol to every protocol', async (t) => {
  const scene = await sceneFor(t);
  const { rig, orders, text, callers } = scene;

  for (const [name, caller] of callers) {
    const call = async (capability: string, payload: unknown): Promise<Told> =>
      (await caller.call({ capability, payload: JSON.stringify(payload) })) as Told;

    await t.test(`${name} → the Python gRPC service, by reflection`, async (t) => {
      const good = await call('shop.order.get', { orderId: 'o-7' });
      t.match(good, { code: 0, provider: 'shop.orders.1', version: '1.0.0' });
      t.strictSame(good.data, ORDER);
      const none = await call('shop.order.get', { orderId: 'none-1' });
      t.match(none, { code: Code.provider_error, status: 404, retryable: false, ambiguous: false });
      t.match(JSON.stringify(none.data), /no order none-1.*ORDER_UNKNOWN/, 'message and details of the service');
      t.match(await call('shop.order.get', { orderId: 'bad-1' }), { code: Code.provider_error, status: 400 });
      t.match(await call('shop.order.get', { orderId: 'crash-1' }), { code: Code.provider_error, status: 500 });
      t.match(await call('shop.order.get', { order: 'o-7' }), { code: Code.invalid_request }, 'a field that the message does not have');
      t.match(await call('shop.order.audit', { seconds: 3 }), { code: Code.response_timeout, ambiguous: true });
    });

    await t.test(`${name} → the FastAPI service`, async (t) => {
      const good = await call('text.sentiment.analyze', { text: 'good ☕' });
      t.match(good, { code: 0, data: { label: 'positive', text: 'good ☕', score: 0.75 } });
      t.match(await call('text.sentiment.analyze', { text: 'teapot' }), {
        code: Code.provider_error,
        status: 418,
        data: { detail: { kind: 'teapot' } },
      });
      t.match(await call('text.sentiment.analyze', { text: 'boom' }), { code: Code.provider_error, status: 500 });
      t.match(
        await call('text.sentiment.analyze', { nothing: 1 }),
        { code: Code.provider_error, status: 422 },
        "the service's own validation",
      );
    });

    await t.test(`${name} → the JSON-RPC service`, async (t) => {
      const good = await call('stock.level.query', { sku: 'bean', at: 'köln' });
      t.match(good, { code: 0, data: { sku: 'bean', at: 'köln', note: 'grüße ☕' } });
      t.match(await call('stock.count.total', [1, 2, 3]), { code: 0, data: 6 }, 'params by position');
      const refused = await call('stock.level.query', { sku: 'unknown' });
      t.match(refused, { code: Code.provider_error, status: 422, data: { code: 1404, data: { sku: 'unknown' } } });
      t.match(await call('stock.level.query', { sku: 'bug' }), { code: Code.provider_error, status: 500 });
      t.match(await call('stock.level.query', { wrong: 1 }), { code: Code.provider_error, status: 400 });
      t.match(await call('stock.work.unknown', {}), { code: Code.provider_error, status: 404 });
    });

    await t.test(`${name} → the NATS micro service of the Node client`, async (t) => {
      t.match(await call('weather.sky.now', { city: 'bonn' }), { code: 0, data: { city: 'bonn', sky: 'blau ☀' } });
      t.match(await call('weather.sky.now', { city: 'storm' }), { code: Code.provider_error, status: 503 });
      t.match(await call('weather.sky.now', { city: 'nowhere' }), { code: Code.provider_error, status: 404, data: { city: 'nowhere' } });
    });

    await t.test(`${name} → the NATS micro service of the Python client, found by its name`, async (t) => {
      const good = await call('parcel.position.track', { parcel: 'p-1' });
      t.match(good, { code: 0, data: { parcel: 'p-1', at: 'Köln' }, provider: 'parcel.service.1' });
      t.match(await call('parcel.position.track', { parcel: 'none' }), { code: Code.provider_error, status: 404 });
      t.match(await call('parcel.position.track', { parcel: 'bug' }), { code: Code.provider_error, status: 500 });
      const headers = await call('parcel.request.headers', {});
      t.match(headers.data, { 'reach-caller': CALLER, traceparent: /^00-/ });
    });
  }

  await t.test('streams come piece by piece from gRPC, SSE and NDJSON', async (t) => {
    const list = await openReading(rig, 'shop.order.list', { payload: { count: 3, pauseMs: 20 } });
    t.equal(list.headers['content-type'], 'application/x-ndjson');
    const { text: lines, cut } = await list.rest();
    t.equal(cut, false);
    t.strictSame(
      lines
        .trimEnd()
        .split('\n')
        .map((line) => JSON.parse(line).orderId),
      ['o-0', 'o-1', 'o-2'],
    );
    const failed = eventsIn(
      (await (await openReading(rig, 'shop.order.list', { payload: { count: 5, failAt: 3 }, events: true })).rest()).text,
    );
    t.equal(failed.at(-1)?.event, 'error');
    t.match(JSON.parse(failed.at(-1)?.data ?? '{}'), { code: Code.stream_interrupted });
    t.equal(failed.length, 3, 'two orders and then the cut');

    const events = eventsIn(
      (await (await openReading(rig, 'text.generation.events', { payload: { text: 'w', words: 3 }, events: true })).rest()).text,
    );
    t.strictSame(
      events.filter(({ event }) => event === 'word').map(({ data }) => JSON.parse(data).word),
      ['w-0', 'w-1', 'w-2'],
      "the service's own events",
    );
    const ndjson = await (await openReading(rig, 'text.generation.lines', { payload: { text: 'w', words: 3 } })).rest();
    t.equal(ndjson.text, '{"n": 0, "word": "w-0"}\n{"n": 1, "word": "w-1"}\n{"n": 2, "word": "w-2"}\n', 'byte for byte');

    const grpc = await (callers.get('grpc') as WayClient).stream({ capability: 'shop.order.list', payload: '{"count":3}' });
    t.match(grpc, { how: 'whole', code: 0 });
    t.equal(grpc.text.trimEnd().split('\n').length, 3);
  });

  await t.test('a reader that leaves stops the service', async (t) => {
    const reading = await openReading(rig, 'text.generation.lines', { payload: { text: 'left', words: 10_000, pause_ms: 10 } });
    await reading.until(1);
    reading.leave();
    await waitUntil('FastAPI has seen it', async () => ((await (await fetch(`${text.url}/gone`)).json()) as string[]).includes('left'));
    t.pass('its generator was cancelled');
  });

  await t.test('what a gRPC service is told beside the message', async (t) => {
    const told = (await (callers.get('http') as WayClient).call({
      capability: 'shop.order.headers',
      key: 'key-7',
      deadlineMs: 3_000,
    })) as Told;
    const { headers, secondsLeft } = told.data as { headers: Record<string, string>; secondsLeft: number };
    t.match(headers, { 'reach-caller': CALLER, 'idempotency-key': 'key-7', traceparent: /^00-/, 'reach-path': /shop\.order\.headers/ });
    t.ok(secondsLeft > 0.5 && secondsLeft <= 3, `grpc-timeout: ${secondsLeft}`);
    t.notMatch(JSON.stringify(headers), new RegExp(TOKEN), 'no credential of ours');
  });

  await t.test('the real curl: a call, JSON-RPC, a stream, and the sidecar as its proxy', async (t) => {
    const auth = ['-sS', '-H', `Authorization: Bearer ${TOKEN}`];
    const call = await run('curl', [
      ...auth,
      '-H',
      'content-type: application/json',
      '-d',
      '{"orderId":"o-7"}',
      `${rig.url}/v1/invoke/shop.order.get`,
    ]);
    t.match(JSON.parse(call.out), { code: 0, data: ORDER });
    const rpc = await run('curl', [
      ...auth,
      '-H',
      'content-type: application/json',
      '-d',
      '{"jsonrpc":"2.0","id":"a","method":"stock.level.query","params":{"sku":"bean"}}',
      `${rig.url}/rpc`,
    ]);
    t.match(JSON.parse(rpc.out), { id: 'a', result: { code: 0, data: { sku: 'bean' } } });
    const stream = await run('curl', [
      ...auth,
      '-N',
      '-H',
      'accept: text/event-stream',
      '-H',
      'content-type: application/json',
      '-d',
      '{"count":2}',
      `${rig.url}/v1/stream/shop.order.list`,
    ]);
    t.equal(eventsIn(stream.out).at(-1)?.event, 'end');
    const proxied = await run(
      'curl',
      ['-sS', '-H', 'content-type: application/json', '-d', '{"text":"good"}', 'http://text.sentiment.analyze/sentiment'],
      {
        http_proxy: rig.url.replace('http://', `http://${CALLER}:${TOKEN}@`),
        no_proxy: '',
      },
    );
    t.match(JSON.parse(proxied.out), { label: 'positive', text: 'good' }, "the service's own answer");
  });

  await t.test('grpcurl calls the Python service through the sidecar', async (t) => {
    const args = ['-plaintext', '-H', `authorization: Bearer ${TOKEN}`, '-d', '{"capability":"shop.order.get","params":{"orderId":"o-7"}}'];
    const target = [rig.started.grpcAddress as string, 'agentreach.v1.Reach/Invoke'];
    const real = grpcurl();
    t.comment(real === null ? 'no grpcurl here: its stand-in was used' : `with ${real}`);
    const { code, out, err } = real === null ? await likeGrpcurl([...args, ...target]) : await run(real, [...args, ...target]);
    t.equal(code, 0, err);
    t.match(JSON.parse(out), { status: 200, provider: 'shop.orders.1', result: ORDER });
  });

  await t.test("Prometheus' own client reads the metrics in both formats, and finds what is declared", async (t) => {
    const page = async (accept: string, format: string): Promise<Record<string, Family>> => {
      const answer = await rig.ask('/metrics', { headers: { accept }, token: null });
      t.match(answer.headers['content-type'], accept.split(';')[0]);
      const { out, err } = await run(pythonPath(), [repoFile('test/peers/read_metrics.py'), format], {}, answer.bytes.toString('utf8'));
      if (out === '') throw new Error(err);
      return JSON.parse(out) as Record<string, Family>;
    };
    const caller = callers.get('http') as WayClient;
    await page('application/openmetrics-text;version=1.0.0', 'openmetrics');
    await caller.call({ capability: 'shop.order.get', payload: '{"orderId":"o-7"}' });
    for (const [accept, format] of [
      ['text/plain', 'text'],
      ['application/openmetrics-text;version=1.0.0,text/plain;q=0.5', 'openmetrics'],
    ] as const) {
      const families = await page(accept, format);
      const declared = Object.values(SIDECAR_METRICS);
      t.equal(Object.keys(families).length, declared.length, format);
      for (const { name, type, help, labels } of declared) {
        const family = families[type === 'counter' ? name.replace(/_total$/, '') : name];
        t.match(family, { type, help }, name);
        const allowed = new Set<string>(type === 'histogram' ? [...labels, 'le'] : labels);
        t.same(
          family?.labels.filter((label) => !allowed.has(label)),
          [],
          `${name}: labels`,
        );
      }
      t.ok((families['reach_calls']?.samples ?? 0) > 5);
      const exemplars = families['reach_call_duration_seconds']?.exemplars ?? [];
      t.equal(exemplars.length > 0, format === 'openmetrics');
      for (const id of exemplars) t.match(id, /^[0-9a-f]{32}$/);
    }
  });

  await t.test('a service that is killed in the middle of a call, and comes back', async (t) => {
    const caller = callers.get('http') as WayClient;
    t.match(await caller.call({ capability: 'shop.order.get', payload: '{"orderId":"quit-1"}' }), {
      code: Code.connection_lost,
      ambiguous: true,
    });
    await waitUntil('it has ended', () => orders.hasEnded);
    t.match(await caller.call({ capability: 'shop.order.get', payload: '{"orderId":"o-7"}' }), {
      code: Code.connect_timeout,
      ambiguous: false,
    });
    const again = await startPython(t, 'deploy/local/peers/grpc_agent.py', [String(orders.port)]);
    let last: Told | null = null;
    await waitUntil(
      'it is reached again',
      async () => {
        last = await caller.call({ capability: 'shop.order.get', payload: '{"orderId":"o-7"}' });
        return last?.code === 0;
      },
      8_000,
      100,
    );
    t.match(last, { code: 0, data: ORDER });
    await again.stop();
  });

  await scene.stop();
  await rig.finish(t, before);
});
