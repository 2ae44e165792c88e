/** C123 alone: it needs everything at once, calls and messages by every way in, providers of every kind that fail, and then all that was written. */
import { mkdtempSync, readdirSync, readFileSync, rmSync, statSync } from 'node:fs';
import { request as httpRequest } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import t from 'tap';
import { scrubbed } from '../../base/redact.ts';
import { redactionRules } from '../../base/redact.ts';
import { readRecording } from '../../sidecar/record/reading.ts';
import { NO_CHANGES } from '../../sidecar/replay/changes.ts';
import { replay } from '../../sidecar/replay/replay.ts';
import { TestAgent } from '../support/agent.ts';
import { ChannelPeer } from '../support/channel-peer.ts';
import { Fleet, knows } from '../support/fleet.ts';
import { GrpcClient } from '../support/grpc-client.ts';
import { GrpcStub, SHOP_PROTO } from '../support/grpc-stub.ts';
import { type Rig, TOKEN } from '../support/rig.ts';
import { waitUntil } from '../support/settle.ts';
import { TcpStub } from '../support/tcp-stub.ts';
import { writeFileSync } from 'node:fs';

t.setTimeout(110_000);

/** Every call, and of each what may be kept. */
const RECORDING =
  '  recording: {keep: {headers: [content-type, x-kept], query: [page], json: [/order/status, "/items/*/sku"]}, share: 100%, cpu: 100%, dir: recorded}\n';

/** One for each place, so that what is found says where it came from. */
const PLACES = {
  vendor: 'request header X-Vendor-Token',
  private: 'request header PRIVATE-TOKEN',
  cookie: 'request header Cookie',
  query: 'query of an address',
  path: 'segment of a path',
  user: 'user and password in an address',
  deep: 'JSON six levels down, in lists',
  base64: 'body in base64',
  binary: 'body of bytes',
  metadata: 'gRPC metadata',
  binmetadata: 'binary gRPC metadata',
  castpayload: 'payload of a message',
  castheader: 'header of a message',
  setcookie: 'answer header Set-Cookie',
  answerheader: 'answer header of a vendor',
  trailer: 'trailer',
  answerbody: 'body of an answer',
  rpcerror: 'error of a JSON-RPC agent',
  grpcerror: 'status message of a gRPC agent',
  grpctrailer: 'trailers of a gRPC agent',
  location: 'where a provider would lead to',
  config: 'config of an Error',
  message: 'what an Error quotes',
  thirdparty: 'secret of a third party',
  credential: "a caller's token",
} as const;
type Place = keyof typeof PLACES;
const secret = (place: Place): string => `s3cr3t-${place}-a1b2c3`;
const FOUND = /s3cr3t-([a-z0-9]+)-a1b2c3/g;

/** Places whose secret stands in a text, plain, in base64 or percent-encoded. */
function leaks(text: string): Place[] {
  const found = new Set<string>([...text.matchAll(FOUND)].map((match) => match[1] as string));
  for (const place of Object.keys(PLACES) as Place[]) {
    const base64 = Buffer.from(secret(place)).toString('base64').replace(/=+$/, '').slice(0, -1);
    if (text.includes(base64)) found.add(place);
  }
  return [...found].sort() as Place[];
}

const NAMES = ['crm.echo.query', 'crm.cut.query', 'crm.rpc.query', 'crm.grpc.query', 'crm.away.query', 'crm.odd.query'] as const;

t.test('C123 what is secret is written nowhere: not in logs, metrics, traces, pages, files or recordings', async (t) => {
  const echo = await TestAgent.listen('echo', (request) => ({
    status: 500,
    headers: {
      'set-cookie': `sid=${secret('setcookie')}`,
      'x-vendor-answer': secret('answerheader'),
      'www-authenticate': `Bearer ${secret('answerheader')}`,
    },
    body: { error: secret('answerbody'), config: { headers: request.headers, data: request.body.toString('base64') } },
  }));
  const cut = await TcpStub.listen((connection, { number }) => {
    const head = `HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nset-cookie: a=${secret('setcookie')}\r\ntrailer: x-vendor-token\r\ntransfer-encoding: chunked\r\n\r\n`;
    const text = `{"a":"${secret('answerbody')}"`;
    // Cut; no JSON, with a trailer; no HTTP.
    if (number % 3 === 0) void connection.write(`${head}${text.length.toString(16)}\r\n${text}\r\n`).then(() => connection.rst());
    else if (number % 3 === 1)
      void connection.write(`${head}${text.length.toString(16)}\r\n${text}\r\n0\r\nx-vendor-token: ${secret('trailer')}\r\n\r\n`);
    else
      void connection
        .write(`HTTP/1.1 200 OK\r\nx-bad header ${secret('answerheader')}\r\n\r\n${secret('answerbody')}`)
        .then(() => connection.fin());
  });
  const rpc = await TestAgent.listen('rpc', (request) => ({
    body: {
      jsonrpc: '2.0',
      id: (request.json as { id?: unknown } | undefined)?.id ?? null,
      error: { code: -32000, message: secret('rpcerror'), data: { token: secret('rpcerror') } },
    },
  }));
  const grpc = await GrpcStub.listen((stream) => {
    stream.respond(
      { ':status': 200, 'content-type': 'application/grpc', 'x-vendor-answer': secret('answerheader') },
      { waitForTrailers: true },
    );
    stream.on('wantTrailers', () =>
      stream.sendTrailers({ 'grpc-status': '16', 'grpc-message': secret('grpcerror'), 'x-vendor-token': secret('grpctrailer') }),
    );
    stream.end();
  });
  const away = await TestAgent.listen('away', () => ({
    status: 302,
    headers: { location: `http://user:${secret('user')}@127.0.0.1:9/?token=${secret('location')}` },
    body: { moved: secret('answerbody') },
  }));
  const odd = await TestAgent.listen('odd', () => ({
    status: 200,
    body: { unexpected: secret('answerbody'), order: { deep: [secret('answerbody')] } },
  }));
  process.env['C123_SECRET'] = secret('thirdparty');
  t.teardown(() => delete process.env['C123_SECRET']);

  const folder = mkdtempSync(join(tmpdir(), 'reach-c123-'));
  t.teardown(() => rmSync(folder, { recursive: true, force: true }));
  writeFileSync(join(folder, 'shop.proto'), SHOP_PROTO);
  const fleet = await Fleet.start(t);
  const contract = (name: string, more = ''): string =>
    `  - {name: ${name}, version: 1.0.0, acl: public, execution: idempotent, retry: {max: 0}, breaker: {enabled: false}, timeout: 500ms${more}}\n`;
  const provider = (agent: string, name: string, endpoint: string): string =>
    `  - {agent_id: ${agent}, via: order-side, offers: [${name}@1.0.0], endpoint: {${endpoint}}}\n`;
  const order = await fleet.sidecar(
    'order-side',
    `contracts:
${NAMES.map((name) => contract(name, name === 'crm.odd.query' ? ', output: {type: object, required: [order], additionalProperties: false}' : '')).join('')}providers:
${provider('crm.echo.1', NAMES[0], `type: http, address: "${echo.url}", credential: {header: x-api-key, secret: {env: C123_SECRET}}`)}${provider('crm.cut.1', NAMES[1], `type: http, address: "http://127.0.0.1:${cut.port}"`)}${provider('crm.rpc.1', NAMES[2], `type: jsonrpc, address: "${rpc.url}"`)}${provider('crm.grpc.1', NAMES[3], `type: grpc, address: "${grpc.address}", methods: {${NAMES[3]}: shop.v1.Orders/Query}, descriptor: "${join(folder, 'shop.proto')}"`)}${provider('crm.away.1', NAMES[4], `type: http, address: "${away.url}"`)}${provider('crm.odd.1', NAMES[5], `type: http, address: "${odd.url}"`)}`,
    RECORDING,
  );
  const front = await fleet.sidecar('front-side', 'contracts: []\nproviders: []\n', `  grpc: {listen: "127.0.0.1:0"}\n${RECORDING}`, {
    callers: { 'ops.odd.1': secret('credential') },
  });
  for (const name of NAMES)
    await knows(front, name).catch((error: unknown) => {
      throw new Error(`${String(error)}: ${JSON.stringify(order.logged.slice(-5))}`);
    });

  const headers = { 'x-vendor-token': secret('vendor'), 'private-token': secret('private'), cookie: `sid=${secret('cookie')}` };
  const payload = { a: [{ b: [{ c: { d: [{ e: { password: secret('deep') } }] } }] }] };
  const told: unknown[] = [];
  for (const name of NAMES) {
    for (let i = 0; i < 3; i++) {
      const answer = await front.invoke(name, { payload, headers: { ...headers, 'reach-explain': '1' } });
      t.not(answer.status, 200, `${name} fails`);
      told.push(answer.json?.decision ?? answer.json?.trace ?? null);
    }
    await front.invoke(name, { body: Buffer.from(secret('binary')), headers: { ...headers, 'content-type': 'application/octet-stream' } });
    await front.invoke(name, {
      payload: { base64: Buffer.from(secret('base64')).toString('base64') },
      headers: { ...headers, 'reach-mode': 'raw' },
    });
    await front.invoke(name, { payload, token: secret('credential'), headers });
    await front.invoke(name, { body: `{"broken": "${secret('deep')}"`, headers });
    await front.ask(`/v1/stream/${name}?token=${secret('query')}`, { method: 'POST', payload, headers });
  }
  await front.ask(`/v1/nothing?api_key=${secret('query')}`, { headers });
  await front.ask(`/v1/invoke/${NAMES[0]}?api_key=${secret('query')}`, {
    method: 'POST',
    payload,
    headers,
    token: `wrong-${secret('credential')}`,
  });
  await proxied(front, `http://u:${secret('user')}@${NAMES[0]}/x?token=${secret('query')}`, headers);
  await proxied(front, `http://${NAMES[0]}/reset/${secret('path')}/x?token=${secret('query')}`, headers);
  await front.ask('/rpc', { method: 'POST', headers, body: JSON.stringify({ jsonrpc: '2.0', id: 1, method: NAMES[0], params: payload }) });
  await front.ask('/rpc', {
    method: 'POST',
    headers,
    body: `{"jsonrpc":"2.0","id":1,"method":"${NAMES[0]}","params":{"x":"${secret('deep')}"`,
  });
  const client = new GrpcClient(front.started.grpcAddress as string);
  const metadata = {
    'x-vendor-token': secret('metadata'),
    'private-token': secret('metadata'),
    'x-odd-bin': Buffer.from(secret('binmetadata')).toString('base64'),
  };
  for (const name of NAMES) await client.invoke({ capability: name, json: JSON.stringify(payload) }, { token: TOKEN, metadata });
  client.close();
  const { peer } = await ChannelPeer.greet(front.url, TOKEN, { serve: false, metadata: { token: secret('metadata') } });
  for (const name of NAMES)
    await peer.ask('reach.invoke', JSON.stringify({ capability: name, payload, headers: { 'x-vendor-token': secret('vendor') } })).answer;
  await peer.close();
  const tasks: string[] = [];
  for (const name of [NAMES[0], NAMES[2], NAMES[3], NAMES[5]]) {
    const body = {
      target: { capability: name },
      payload: { secret: secret('castpayload') },
      headers: { 'x-vendor-token': secret('castheader') },
      retryable: false,
    };
    const answer = await front.ask('/v1/messages', { method: 'POST', payload: body, headers });
    t.equal(answer.status, 202, answer.bytes.toString());
    tasks.push(answer.json.task_id as string);
  }
  await waitUntil('the messages have failed', async () => (await fleet.finals()).length >= tasks.length, 15_000);
  const error = Object.assign(
    new Error(
      `request to http://u:${secret('user')}@host/?k=${secret('query')} failed: "${secret('message')}" with Bearer ${secret('message')}`,
    ),
    {
      config: { headers: { authorization: secret('config') }, data: secret('config') },
      response: { headers: { 'set-cookie': secret('config') } },
      cause: new Error(secret('config')),
    },
  );
  front.started.front.observation.fault(error);
  front.started.front.observation.fault(secret('config'));
  front.started.front.observation.fault({ headers: { 'x-vendor-token': secret('config') } });
  let parsing: unknown = null;
  try {
    JSON.parse(`{"a": ${secret('message')}}`);
  } catch (thrown) {
    parsing = thrown;
  }
  front.started.front.observation.fault(parsing);

  t.test('the logs', (t) => {
    for (const [what, lines] of [
      ['of the caller’s sidecar', front.logged],
      ['of the provider’s sidecar', order.logged],
      ['of the control plane', fleet.plane.lines],
    ] as const) {
      const bad = lines.filter((line) => leaks(JSON.stringify(line)).length > 0);
      t.strictSame(bad.slice(0, 5), [], `${lines.length} lines ${what}: ${leaks(JSON.stringify(lines)).map((place) => PLACES[place])}`);
    }
    t.ok(
      front.logged.some(({ msg }) => msg === 'call') && front.logged.some(({ msg }) => msg === 'a fault'),
      'and there was something to read',
    );
    t.end();
  });

  await t.test('the pages: metrics, health, explain, tasks, and all that the control plane shows', async (t) => {
    const look = (what: string, text: string): void => t.strictSame(leaks(text), [], what) as unknown as void;
    for (const rig of [front, order]) {
      for (const path of [
        '/metrics',
        '/v1/health',
        '/v1/capabilities',
        `/v1/explain/${NAMES[0]}?token=${secret('query')}`,
        '/v1/openapi.json',
        '/v1/agents',
      ])
        look(path, (await rig.ask(path, { headers })).bytes.toString());
    }
    // A task's own page is the Result of its sender, shown to nobody else: what its agent answered belongs there.
    t.ok(
      told.some((each) => each !== null),
      'there are decisions to look at',
    );
    look('decisions that calls carry', JSON.stringify(told));
    const { body } = await fleet.plane.ask('/v1/openapi.json');
    for (const [path, methods] of Object.entries(body['paths'] as Record<string, Record<string, unknown>>)) {
      // The payload: that is what it is for, and that somebody looked stands in the audit. Streams say what the other pages say.
      if (!('get' in methods) || path.endsWith('/payload') || JSON.stringify(methods['get']).includes('text/event-stream')) continue;
      const params: Record<string, string> = {
        task: tasks[0] as string,
        capability: NAMES[0],
        agent: 'crm.echo.1',
        sidecar: 'front-side',
        name: 'crm.echo.1',
      };
      const asked = path.replace(/\{([a-z]+)\}/g, (_, name: string) => params[name] ?? 'x');
      const { body: shown } = await fleet.plane.ask(asked);
      look(`control plane ${path}`, JSON.stringify(shown));
    }
  });

  await t.test('a recording keeps what its rules name, and is not begun without rules', async (t) => {
    for (const rules of [
      undefined,
      null,
      {},
      [],
      'all',
      { headers: [] },
      { headers: [], query: [] },
      { headers: ['*'], query: [], json: [] },
      { headers: ['authorization'], query: [], json: [] },
      { headers: [], query: [], json: ['order'] },
      { headers: [], query: [], json: [], deny: ['x'] },
      { headers: [], query: [], json: [], bodies: ['*/*'] },
      { headers: [], query: [], json: [], paths: ['orders/*'] },
      { headers: [], query: [], json: [], paths: ['/orders?id=1'] },
    ])
      t.type(redactionRules(rules), 'string', JSON.stringify(rules));
    for (const rig of [front, order]) {
      const recording = readRecording(join(rig.folder, 'recorded'));
      if (typeof recording === 'string') throw new Error(recording);
      const calls = recording.files.flatMap((file) => file.calls);
      t.ok(calls.length > 5, `${calls.length} calls`);
      t.strictSame(leaks(JSON.stringify(calls)), []);
      t.ok(
        calls.some(({ headers }) => headers['x-kept'] !== undefined || Object.values(headers).includes('[not shown]')),
        'the names of headers stay',
      );
      const report = await replay(recording, { changes: NO_CHANGES, limit: 1_000 });
      t.strictSame(
        report.calls.filter(({ broken }) => broken !== null).map(({ record, broken }) => `${record.way} ${record.asked}: ${broken}`),
        [],
        'what was left out is not needed to decide anew',
      );
    }
    t.equal(
      scrubbed(`${secret('config')} is said plainly`).includes('s3cr3t'),
      true,
      'words that nobody marked as data are not guessed at',
    );
  });

  await t.test('the files that are kept', async (t) => {
    for (const rig of [front, order]) {
      for (const file of filesIn(rig.folder)) {
        // The settings are where the token was written by hand.
        if (file.endsWith('sidecar.yaml')) continue;
        t.strictSame(leaks(readFileSync(file, 'latin1')), [], file.slice(rig.folder.length));
      }
    }
  });

  await front.stop();
  await order.stop();
  for (const each of [echo, cut, rpc, grpc, away, odd]) await each.close();
  t.equal(front.quiet.inFlight() + order.quiet.inFlight(), 0);
  t.equal(front.quiet.accessRecords(), front.quiet.calls(), 'one access record a call');
});

function proxied(rig: Rig, target: string, headers: Readonly<Record<string, string>>): Promise<number> {
  return new Promise((done) => {
    const request = httpRequest(
      {
        host: '127.0.0.1',
        port: rig.port,
        path: target,
        method: 'POST',
        agent: false,
        headers: { host: NAMES[0], 'proxy-authorization': `Bearer ${TOKEN}`, 'content-type': 'application/json', ...headers },
      },
      (response) => {
        response.resume();
        response.on('end', () => done(response.statusCode ?? 0));
      },
    );
    request.on('error', () => done(0));
    request.end('{}');
  });
}

function filesIn(folder: string): string[] {
  return readdirSync(folder, { recursive: true, encoding: 'utf8' })
    .map((name) => join(folder, name))
    .filter((file) => statSync(file).isFile());
}
