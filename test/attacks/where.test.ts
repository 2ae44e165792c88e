/** Attacks on the ports, from wherever somebody is: a web page in the user's browser, a client that lies about its lengths, an agent that registers addresses of others, somebody at the control plane. */
import { connect as connectTls } from 'node:tls';
import t from 'tap';
import { Code } from '../../proto/wire/codes.ts';
import { FakeSidecar, OPERATOR, VIEWER } from '../support/control-plane.ts';
import { TestAgent } from '../support/agent.ts';
import { GrpcClient } from '../support/grpc-client.ts';
import { type RawAnswer, RawClient, ask as askRaw } from '../support/raw-http.ts';
import { waitUntil } from '../support/settle.ts';
import { type Outcome, reaches } from './provider-watch.ts';
import { ALICE, AttackWorld, FRONT, MALLORY, outcomeOf, QUERY } from './world.ts';

t.setTimeout(60_000);

const world = await AttackWorld.start(t);
const { watch, front, plane } = world;
const { forbidden, unauthenticated, invalid_request: invalid } = Code;
const INVOKE = `/v1/invoke/${QUERY}`;
const BEARER = `Bearer ${world.token(ALICE)}`;
const CONTROL = Number(new URL(plane.url).port);

const told = ({ status, body }: RawAnswer): Outcome => {
  try {
    return outcomeOf(status, JSON.parse(body));
  } catch {
    return { status, code: null, detail: body };
  }
};
const post = async (headers: Readonly<Record<string, string | null>>, path = INVOKE, port = front.port): Promise<Outcome> =>
  told(await askRaw(port, 'POST', path, { authorization: BEARER, ...headers }, '{}'));

t.test('rightful: the agent itself is served: its own Host, no Origin, its credential', async (t) => {
  await reaches(t, watch, () => world.call({ agent: ALICE }));
});

// ---- web pages

t.test('a page whose name was rebound to this machine gets nothing, with credential or without', async (t) => {
  for (const host of [
    'evil.test',
    `evil.test:${front.port}`,
    'localhost.evil.test',
    '127.0.0.1.evil.test',
    '127.0.0.1@evil.test',
    '127.0.0.1, evil.test',
    '',
  ])
    for (const authorization of [BEARER, null])
      await watch.refused(t, () => post({ host, authorization }), { code: forbidden, detail: /Host/ }, host);
  const none = await post({ host: null });
  t.equal(none.status, 400, 'nor one without any');
  await watch.refused(t, () => post({ host: 'evil.test' }, '/v1/identities', CONTROL), forbidden, 'nor at the control plane');
});

t.test('a rebound name opens the gRPC port no more than the other', async (t) => {
  const address = front.started.grpcAddress as string;
  const client = new GrpcClient(address, { 'grpc.default_authority': 'evil.test' });
  t.teardown(() => client.close());
  const call = async (): Promise<Outcome> => {
    const { status, trailers, message } = await client.invoke({ capability: QUERY, json: '{}' }, { token: world.token(ALICE) });
    return { code: status === 0 ? 0 : Number(trailers['reach-code']), detail: message };
  };
  await watch.refused(t, call, forbidden);
});

t.test('a page of another origin calls nothing, by any method', async (t) => {
  const foreign: readonly Record<string, string>[] = [
    { origin: 'https://evil.test' },
    { origin: 'null' },
    { origin: `http://127.0.0.1:${front.port}.evil.test` },
    { origin: 'http://localhost:1' },
    { 'sec-fetch-site': 'cross-site' },
    { 'sec-fetch-site': 'same-site', 'sec-fetch-mode': 'no-cors' },
  ];
  for (const headers of foreign) {
    await watch.refused(t, () => post(headers), forbidden, JSON.stringify(headers));
    await watch.refused(t, () => post(headers, `/v1/cast/${QUERY}`), forbidden, 'as a message');
    await watch.refused(t, () => post(headers, '/rpc'), forbidden, 'as JSON-RPC');
    await watch.refused(
      t,
      () => post({ ...headers, authorization: `Bearer ${OPERATOR}` }, '/v1/identities', CONTROL),
      forbidden,
      'at the control plane',
    );
  }
});

t.test('a form, or what needs no preflight, does no work', async (t) => {
  for (const type of [
    'text/plain',
    'application/x-www-form-urlencoded',
    'multipart/form-data; boundary=x',
    'TEXT/plain;charset=utf-8',
    null,
  ]) {
    await watch.refused(t, () => post({ 'content-type': type, authorization: null }), forbidden, String(type));
    await watch.refused(
      t,
      () => post({ 'content-type': type, authorization: null }, '/v1/identities', CONTROL),
      forbidden,
      `control plane, ${type}`,
    );
  }
});

t.test('a page that uses the sidecar as its proxy is told apart from an agent', async (t) => {
  const asked = async (headers: Readonly<Record<string, string | null>>): Promise<Outcome> =>
    told(await askRaw(front.port, 'POST', `http://${QUERY}/`, { host: QUERY, authorization: null, ...headers }, '{}'));
  const basic = `Basic ${Buffer.from(`x:${world.token(ALICE)}`).toString('base64')}`;
  for (const headers of [
    { origin: 'http://evil.test' },
    { 'user-agent': 'Mozilla/5.0 (X11)', 'proxy-authorization': basic },
    { 'sec-fetch-mode': 'cors' },
  ])
    await watch.refused(t, () => asked(headers), forbidden, JSON.stringify(headers));
  const tunnel = await askRaw(front.port, 'CONNECT', `127.0.0.1:${watch.agent.port}`, { 'proxy-authorization': BEARER });
  t.ok(tunnel.status >= 400, `nor does it tunnel: ${tunnel.status}`);
  await watch.refused(
    t,
    async () =>
      told(
        await askRaw(front.port, 'GET', `http://127.0.0.1:${watch.agent.port}/`, {
          host: `127.0.0.1:${watch.agent.port}`,
          'proxy-authorization': BEARER,
        }),
      ),
    Code.no_provider,
    'an open proxy',
  );
});

t.test('a WebSocket of a foreign page is not taken', async (t) => {
  const upgrade = {
    connection: 'Upgrade',
    upgrade: 'websocket',
    'sec-websocket-version': '13',
    'sec-websocket-key': 'AAAAAAAAAAAAAAAAAAAAAA==',
  };
  const dial = async (headers: Readonly<Record<string, string | null>>, query = ''): Promise<Outcome> => {
    const answer = await askRaw(front.port, 'GET', `/v1/channel${query}`, { authorization: BEARER, ...upgrade, ...headers });
    return answer.status === 101 ? { status: 101, code: 0 } : told(answer);
  };
  await watch.refused(t, () => dial({ origin: 'https://evil.test' }), forbidden);
  await watch.refused(t, () => dial({ host: 'evil.test' }), forbidden);
  const { json } = await world.ask('/v1/channel', { method: 'POST', agent: ALICE });
  await watch.refused(
    t,
    () => dial({ origin: 'https://evil.test', authorization: null }, `?ticket=${json.ticket}`),
    forbidden,
    'with a stolen ticket',
  );
  await watch.refused(t, () => dial({ authorization: null }), unauthenticated, 'without any credential');
});

// ---- lengths

const SMUGGLED = `POST ${INVOKE} HTTP/1.1\r\nhost: 127.0.0.1\r\nauthorization: ${BEARER}\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}`;

/** What a request may be hidden behind: head lines and body of the one before it. */
const CARRIERS: Readonly<Record<string, readonly [string, string]>> = {
  'both lengths': ['content-length: 4\r\ntransfer-encoding: chunked\r\n', `0\r\n\r\n${SMUGGLED}`],
  'both, the other way round': ['transfer-encoding: chunked\r\ncontent-length: 4\r\n', `0\r\n\r\n${SMUGGLED}`],
  'two lengths': ['content-length: 0\r\ncontent-length: 2\r\n', SMUGGLED],
  'a list of lengths': ['content-length: 0, 2\r\n', SMUGGLED],
  'a length with a sign': ['content-length: +0\r\n', SMUGGLED],
  'a length in hex': ['content-length: 0x0\r\n', SMUGGLED],
  'an odd coding': ['transfer-encoding: xchunked\r\n', `0\r\n\r\n${SMUGGLED}`],
  'two codings': ['transfer-encoding: gzip, chunked\r\n', `0\r\n\r\n${SMUGGLED}`],
  'a coding behind a tab': ['transfer-encoding:\tchunked\r\ncontent-length: 3\r\n', `0\r\n\r\n${SMUGGLED}`],
  'a space before the colon': ['transfer-encoding : chunked\r\n', `0\r\n\r\n${SMUGGLED}`],
  'a folded line': ['x-odd: 1\r\n transfer-encoding: chunked\r\n', `0\r\n\r\n${SMUGGLED}`],
  'a bad piece': ['transfer-encoding: chunked\r\n', `zz\r\n${SMUGGLED}`],
  'a piece with a sign': ['transfer-encoding: chunked\r\n', `-1\r\n${SMUGGLED}`],
  'a piece that is too large to count': ['transfer-encoding: chunked\r\n', `ffffffffffffffffff\r\n${SMUGGLED}`],
  'a bare line feed': ['x-odd: 1\ntransfer-encoding: chunked\r\n', `0\r\n\r\n${SMUGGLED}`],
  'a bare carriage return': ['x-odd: 1\rtransfer-encoding: chunked\r\n', `0\r\n\r\n${SMUGGLED}`],
  'a zero byte': ['x-odd: a\u0000b\r\ncontent-length: 0\r\n', SMUGGLED],
};

/** The first request may have been answered before what follows it was seen to be none; nothing after it is done. */
const isOne = (came: readonly number[]): boolean => came.slice(came[0] === 200 ? 1 : 0).every((status) => status === 400);

/** Sends bytes; the statuses that came until the connection ended or was quiet. */
async function statuses(
  write: (text: string) => void,
  heard: () => string,
  ended: () => Promise<boolean>,
  text: string,
): Promise<number[]> {
  write(text);
  await ended();
  return [...heard().matchAll(/HTTP\/1\.1 (\d{3})/g)].map(([, status]) => Number(status));
}

async function sentTo(port: number, text: string): Promise<number[]> {
  const client = await RawClient.to(port);
  const came = await statuses(
    (bytes) => client.write(bytes),
    () => client.text,
    () => client.closed(400),
    text,
  );
  client.close();
  return came;
}

t.test('no request is smuggled behind another on the port for agents', async (t) => {
  for (const [what, [lines, body]] of Object.entries(CARRIERS)) {
    const before = watch.count;
    const came = await sentTo(front.port, `GET /v1/ready HTTP/1.1\r\nhost: 127.0.0.1\r\n${lines}\r\n${body}`);
    t.ok(isOne(came), `${what}: ${came}`);
    await watch.untouched(t, before, `: ${what}`);
  }
});

t.test('nor between sidecars, where a certificate opens the connection', async (t) => {
  const shown = await world.shown(FRONT);
  const { hostname, port } = new URL(world.mesh);
  for (const [what, [lines, body]] of Object.entries(CARRIERS)) {
    const before = watch.count;
    const socket = connectTls({ host: hostname, port: Number(port), ...shown, checkServerIdentity: () => undefined });
    let heard = '';
    socket.on('data', (data) => (heard += data.toString('latin1')));
    socket.on('error', () => {});
    const closed = new Promise<boolean>((done) => {
      socket.on('close', () => done(true));
      setTimeout(() => done(false), 400);
    });
    const came = await statuses(
      (bytes) => void socket.write(bytes, 'latin1'),
      () => heard,
      () => closed,
      `GET /mesh/v1/ready HTTP/1.1\r\nhost: 127.0.0.1\r\n${lines}\r\n${body.replace(INVOKE, `/mesh/v1/invoke/${QUERY}`)}`,
    );
    socket.destroy();
    t.ok(isOne(came), `${what}: ${came}`);
    await watch.untouched(t, before, `: ${what}`);
  }
});

t.test('nor at the control plane', async (t) => {
  const order = `POST /v1/identities HTTP/1.1\r\nhost: 127.0.0.1\r\nauthorization: Bearer ${OPERATOR}\r\ncontent-type: application/json\r\ncontent-length: 44\r\n\r\n{"kind":"agent","name":"crm.bot.smuggled1"}  `;
  const before = watch.count;
  for (const [what, [lines, body]] of Object.entries(CARRIERS)) {
    const came = await sentTo(CONTROL, `GET /v1/ready HTTP/1.1\r\nhost: 127.0.0.1\r\n${lines}\r\n${body.replace(SMUGGLED, order)}`);
    t.ok(isOne(came), `${what}: ${came}`);
  }
  t.notMatch(JSON.stringify((await plane.ask('/v1/identities')).body), 'smuggled', 'and no order was given');
  await watch.untouched(t, before);
});

t.test('what is above a limit is refused with its code', async (t) => {
  const deep = (levels: number): string => `${'['.repeat(levels)}${']'.repeat(levels)}`;
  const send = (body: string, headers: Readonly<Record<string, string>> = {}): Promise<Outcome> =>
    world.call({ agent: ALICE, body, headers });
  await watch.refused(t, () => send(JSON.stringify('x'.repeat(65_536))), Code.payload_too_large, 'the body');
  await watch.refused(t, () => send('{}', { 'x-long': 'x'.repeat(16_384) }), { code: Code.payload_too_large, status: 431 }, 'the headers');
  await watch.refused(
    t,
    () => send('{}', Object.fromEntries(Array.from({ length: 200 }, (_, i) => [`x-h${i}`, 'v']))),
    invalid,
    'the number of headers',
  );
  await watch.refused(t, () => send('{}', { 'x-a': 'y'.repeat(13_000) }), invalid, 'headers to be passed on');
  await watch.refused(t, () => send(deep(200)), { code: invalid, detail: /levels/ }, 'the depth');
  await watch.refused(t, () => send(deep(30_000)), { code: invalid, detail: /levels/ }, 'a depth beyond the stack');
  await watch.refused(t, () => send(`{${'"a":{'.repeat(5_000)}${'}'.repeat(5_001)}`), invalid, 'of maps');
  await watch.refused(t, () => world.call({ agent: ALICE }, `${'a'.repeat(7_000)}`), Code.bad_name, 'the name');
  await watch.refused(t, () => world.call({ agent: ALICE, headers: { 'idempotency-key': 'k'.repeat(257) } }), invalid, 'the key');
  const batch = JSON.stringify(Array.from({ length: 101 }, (_, id) => ({ jsonrpc: '2.0', id, method: QUERY, params: {} })));
  await watch.refused(
    t,
    () => world.ask('/rpc', { method: 'POST', agent: ALICE, body: batch }),
    { code: invalid, status: 200 },
    'the batch',
  );
});

t.test('what is no JSON, or JSON in two ways, goes to nobody', async (t) => {
  const bodies = [
    '{',
    '{}{}',
    '{"a":1,}',
    "{'a':1}",
    '{"a":NaN}',
    '\u0000{}',
    '{"a":"\u0001"}',
    Buffer.from([0x22, 0xc0, 0xae, 0x22]),
    Buffer.from([0xff, 0xfe, 0x7b, 0, 0x7d, 0]),
    '[1,2',
    '01',
    '{"a":1 "b":2}',
  ];
  for (const body of bodies) await watch.refused(t, () => world.call({ agent: ALICE, body }), invalid, JSON.stringify(String(body)));
  const rpc = (body: string): Promise<Outcome> => world.ask('/rpc', { method: 'POST', agent: ALICE, body });
  await watch.refused(
    t,
    () => rpc(`{"jsonrpc":"2.0","id":1,"method":"crm.a.b","method":"${QUERY}","params":{}}`),
    { code: invalid, status: 200 },
    'two methods',
  );
  await watch.refused(
    t,
    () => rpc(`{"jsonrpc":"2.0","id":1,"id":2,"method":"${QUERY}","params":{}}`),
    { code: invalid, status: 200 },
    'two ids',
  );
});

// ---- addresses of others

t.test('nobody has others connect to where only this machine can', async (t) => {
  const spelt = [
    `http://127.0.0.1:${watch.agent.port}`,
    `http://localhost:${watch.agent.port}`,
    `http://127.1:${watch.agent.port}`,
    `http://2130706433:${watch.agent.port}`,
    `http://0x7f000001:${watch.agent.port}`,
    `http://0177.0.0.1:${watch.agent.port}`,
    `http://[::ffff:127.0.0.1]:${watch.agent.port}`,
    `http://[::1]:${watch.agent.port}`,
    `http://0.0.0.0:${watch.agent.port}`,
    `http://localhost.:${watch.agent.port}`,
    `http://[64:ff9b::7f00:1]:${watch.agent.port}`,
    'http://169.254.169.254/latest/meta-data',
    'http://[fd00:ec2::254]/',
    'http://metadata.google.internal/',
    'http://169.254.10.1/',
    'http://[fe80::1]/',
    'http://10.0.0.1/',
    'http://255.255.255.255/',
  ];
  const sidecar = await FakeSidecar.join(world.nats, 'evil-side');
  for (const [i, address] of spelt.entries())
    sidecar.host(`ext.evil.p${i}`, ['crm.evil.query@1.0.0'], {
      via: null,
      endpoint: { type: 'http', address, path: null, mapping: {}, credential: null, options: {} },
    });
  // What only its own sidecar connects to may be near, and not a port of ours all the same.
  const ours = [
    plane.url,
    world.mesh,
    `http://127.0.0.1:${new URL(world.nats.url).port}`,
    `http://localhost:${new URL(world.nats.url).port}`,
  ];
  for (const [i, address] of ours.entries())
    sidecar.host(`ext.near.p${i}`, ['crm.evil.query@1.0.0'], {
      endpoint: { type: 'http', address, path: null, mapping: {}, credential: null, options: {} },
    });
  const before = watch.count;
  const answer = await sidecar.hello();
  const wanted = [...spelt.map((_, i) => `ext.evil.p${i} ${forbidden}`), ...ours.map((_, i) => `ext.near.p${i} ${forbidden}`)];
  t.same(answer.refused.map(({ agent, code }) => `${agent} ${code}`).sort(), wanted.sort());
  await watch.refused(t, () => world.call({ agent: ALICE }, 'crm.evil.query'), Code.no_provider);
  await watch.untouched(t, before);
});

t.test("an agent registers no address that is not its own machine's or a public one, nor any of ours", async (t) => {
  const register = (address: string, more: object = {}): Promise<Outcome> =>
    world.ask('/v1/agents', {
      method: 'POST',
      agent: MALLORY,
      payload: {
        provider: { agent_id: MALLORY, offers: ['crm.fake.query@2.0.0'], endpoint: { type: 'http', address, ...more } },
        contracts: [{ name: 'crm.fake.query', version: '2.0.0', acl: 'public' }],
      },
    });
  for (const address of [
    'http://169.254.169.254/',
    'http://[fd00:ec2::254]/',
    'http://0xa9fea9fe/',
    'http://[::ffff:169.254.169.254]/',
    'http://metadata.google.internal/',
    'http://0.0.0.0:80/',
  ])
    await watch.refused(t, () => register(address), forbidden, address);
  for (const address of [
    'file:///etc/passwd',
    'gopher://127.0.0.1:4222/',
    'http://user:secret@127.0.0.1/',
    'http://127.0.0.1/?x=1',
    'http://127.0.0.1/#x',
    'unix:/var/run/docker.sock',
  ])
    await watch.refused(t, () => register(address), { code: invalid, status: 422 }, address);
  await watch.refused(t, () => register(watch.url, { credential: { secret: { file: '/etc/passwd' } } }), forbidden, 'to have a file read');
  const bus = new URL(world.nats.url).port;
  for (const host of ['127.0.0.1', 'localhost', '127.1', '[::ffff:127.0.0.1]'])
    await watch.refused(
      t,
      () => register(`http://${host}:${bus}`),
      { code: invalid, status: 422, detail: /own bus/ },
      `the bus at ${host}`,
    );
  const ours = [plane.url, world.mesh.replace('https', 'http')];
  for (const address of ours) {
    const { status, code } = await register(address);
    t.ok(status === 409 || status === 403, `${address}: ${status}`);
    t.equal(code, forbidden);
  }
});

t.test('no secret is registered in the open, and no schema that a text could hang', async (t) => {
  const register = (endpoint: object, contract: object = {}): Promise<Outcome> =>
    world.ask('/v1/agents', {
      method: 'POST',
      agent: MALLORY,
      payload: {
        provider: { agent_id: MALLORY, offers: ['crm.fake.query@2.0.0'], endpoint: { type: 'http', address: watch.url, ...endpoint } },
        contracts: [{ name: 'crm.fake.query', version: '2.0.0', acl: 'public', ...contract }],
      },
    });
  const mapping = (more: object): object => ({ mapping: { '*': { path: '/', ...more } } });
  for (const open of [
    mapping({ headers: { authorization: 'Bearer s3cret-value' } }),
    mapping({ query: { api_key: 's3cret-value' } }),
    { credential: { secret: 's3cret-value' } },
  ]) {
    const outcome = await watch.refused(t, () => register(open), { code: invalid, status: 422 });
    t.notMatch(JSON.stringify(outcome), 's3cret-value', 'nor is it repeated');
  }
  for (const pattern of [
    '^(a+)+$',
    '^(a|a)*$',
    '(x+x+)+y',
    '^(.*a){25}$',
    '^(\\w+\\s?)*$',
    '(?=(a+))\\1b',
    `^${'(a?)'.repeat(30)}${'a'.repeat(30)}$`,
  ])
    await watch.refused(t, () => register({}, { input: { type: 'string', pattern } }), { code: invalid, status: 422 }, pattern);
  const shown = JSON.stringify([
    (await world.ask('/v1/agents', { token: 'operator-of-the-sidecar' })).json,
    (await plane.ask('/v1/export')).body,
  ]);
  t.notMatch(shown, /s3cret-value|crm\.fake\.query/, 'and nothing of it is kept');
});

t.test('no name reaches what all objects have in common, by any way in', async (t) => {
  const names = ['__proto__', 'constructor', 'prototype'];
  const before = watch.count;
  for (const name of names) {
    const poison = `{"${name}": {"polluted": "yes", "prototype": {"polluted": "yes"}}}`;
    for (const body of [
      `{"target": ${poison}}`,
      `{"target": {"capability": "${QUERY}"}, "tags": ${poison}}`,
      `{"target": {"capability": "${QUERY}"}, "headers": ${poison}}`,
      `{"${name}": ${poison}}`,
    ])
      await watch.refused(t, () => world.ask('/v1/messages', { method: 'POST', agent: ALICE, body }), invalid, body);
    await watch.refused(
      t,
      () => world.ask('/rpc', { method: 'POST', agent: ALICE, body: `{"jsonrpc":"2.0","id":1,"method":"${name}","params":${poison}}` }),
      { code: Code.bad_name, status: 200 },
    );
    await watch.refused(t, () => world.ask('/v1/agents', { method: 'POST', agent: MALLORY, body: `{"provider": ${poison}}` }), {
      code: invalid,
      status: 422,
    });
    await watch.refused(
      t,
      () => world.call({ agent: ALICE }, `${name}.${name}.${name}`),
      name === '__proto__' ? Code.bad_name : Code.no_provider,
    );
    for (const path of ['/v1/policies', '/v1/identities', '/v1/policies/diff']) {
      const asked = await plane.ask(path, { body: path.endsWith('identities') ? poison : `policies: ${poison}\n` });
      t.ok(asked.status >= 400 && asked.status < 500, `${path}: ${asked.status}`);
    }
  }
  t.equal(({} as { polluted?: string }).polluted, undefined);
  t.equal((() => undefined as unknown as { polluted?: string })()?.polluted, undefined);
  await watch.untouched(t, before);
});

t.test('a document of operators that expands without end, or says what YAML readers disagree about, is refused at once', async (t) => {
  const before = watch.count;
  const bomb = `a: &a [x, x, x, x, x, x, x, x, x]\n${'bcdefghi'
    .split('')
    .map((name, i) => `${name}: &${name} [${`*${'abcdefghi'[i]}, `.repeat(9)}]\n`)
    .join('')}policies: *i\n`;
  const began = performance.now();
  for (const body of [
    bomb,
    'policies: &p [*p]\n',
    'policies: !!js/function "x"\n',
    '--- \npolicies: []\n---\npolicies: []\n',
    `policies: ${'['.repeat(10_000)}\n`,
    '<<: {policies: []}\n',
    'policies:\n\t- {}\n',
  ]) {
    const { status, body: told } = await plane.ask('/v1/policies', { body });
    t.match(outcomeOf(status, told), { code: invalid }, body.slice(0, 30));
    t.ok(status >= 400 && status < 500);
  }
  t.ok(performance.now() - began < 5_000, 'without work');
  await watch.untouched(t, before);
});

t.test('HTTP/1.1, and what a page could send as gRPC, gets nothing from the gRPC port', async (t) => {
  const port = Number((front.started.grpcAddress as string).split(':').at(-1));
  const before = watch.count;
  for (const type of ['application/grpc-web+proto', 'application/grpc-web-text', 'application/grpc', 'text/plain']) {
    const client = await RawClient.to(port);
    client.write(
      `POST /agentreach.v1.Reach/Invoke HTTP/1.1\r\nhost: localhost\r\nauthorization: ${BEARER}\r\ncontent-type: ${type}\r\ncontent-length: 5\r\n\r\n\u0000\u0000\u0000\u0000\u0000`,
    );
    await client.closed(300);
    t.notMatch(client.text, /200 OK/, type);
    client.close();
  }
  await watch.untouched(t, before);
});

t.test('no provider leads the sidecar on to another address', async (t) => {
  const redirecting = await TestAgent.listen('redirecting', () => ({
    status: 307,
    headers: { location: `${watch.url}/${QUERY}` },
    body: {},
  }));
  t.teardown(() => redirecting.close());
  const { status } = await world.ask('/v1/agents', {
    method: 'POST',
    token: 'operator-of-the-sidecar',
    payload: {
      provider: { agent_id: 'crm.moved.1', offers: ['crm.moved.query@1.0.0'], endpoint: { type: 'http', address: redirecting.url } },
      contracts: [{ name: 'crm.moved.query', version: '1.0.0', acl: ['team:crm'] }],
    },
  });
  t.ok(status === 201 || status === 202, String(status));
  await waitUntil(
    'it is asked',
    async () => {
      await world.call({ agent: ALICE }, 'crm.moved.query');
      return redirecting.executions > 0;
    },
    5_000,
    50,
  );
  await watch.refused(t, () => world.call({ agent: ALICE }, 'crm.moved.query'), { code: Code.bad_response, status: 502 });
});

// ---- the control plane

t.test('every order to the control plane needs the token of an operator', async (t) => {
  const { body } = await plane.ask('/v1/openapi.json');
  const before = watch.count;
  let orders = 0;
  let questions = 0;
  const wrong = ['wrong', `${OPERATOR}x`, OPERATOR.slice(0, -1), world.token(ALICE), 'operator-of-the-sidecar'];
  for (const token of wrong) {
    const { status, body: answer } = await plane.ask('/v1/session', { json: { token }, token: null });
    t.match(outcomeOf(status, answer), { status: 401, code: unauthenticated }, 'signing in is open, and needs it in the body');
  }
  for (const [path, methods] of Object.entries(
    body['paths'] as Record<string, Record<string, { security: object[]; description?: string }>>,
  )) {
    for (const [name, { security, description }] of Object.entries(methods)) {
      if (security.length === 0) {
        t.match(`${name} ${path}`, /^(get \/(v1\/(health|ready|openapi\.json)|metrics)|post \/v1\/session)$/, 'open to everybody');
        continue;
      }
      const ask = async (token: string | null): Promise<Outcome> => {
        const { status, body: answer } = await plane.ask(path.replace(/\{[a-z]+\}/g, 'x'), {
          method: name.toUpperCase(),
          token,
          ...(name === 'get' ? {} : { json: {} }),
        });
        return outcomeOf(status, answer);
      };
      for (const token of [null, '', ...wrong]) t.match(await ask(token), { status: 401, code: unauthenticated }, `${name} ${path}`);
      if (description?.includes('role operator') === true) {
        orders++;
        t.match(await ask(VIEWER), { status: 403, code: forbidden }, `${name} ${path}, who may only look`);
      } else questions++;
    }
  }
  t.ok(orders > 15 && questions > 10, `${orders} orders, ${questions} questions`);
  await watch.untouched(t, before);
});

t.test('a document that says something twice is not taken by the control plane', async (t) => {
  const before = watch.count;
  const twice = `{"kind": "agent", "name": "crm.bot.one", "name": "ops.root.two"}`;
  const issued = await plane.ask('/v1/identities', { body: twice, type: 'application/json' });
  t.match(outcomeOf(issued.status, issued.body), { status: 400, code: invalid, detail: /twice/ });
  const applied = await plane.ask('/v1/policies', { body: `policies:\n  - {capability: ${QUERY}, timeout: 1s, timeout: 2s}\n` });
  t.match(outcomeOf(applied.status, applied.body), { code: invalid });
  const polluted = await plane.ask('/v1/identities', {
    body: '{"kind": "agent", "__proto__": {"name": "ops.root.two"}}',
    type: 'application/json',
  });
  t.equal(polluted.status, 400);
  t.equal(({} as { name?: string }).name, undefined);
  t.notMatch(JSON.stringify((await plane.ask('/v1/identities')).body), /ops\.root\.two|crm\.bot\.one/);
  await watch.untouched(t, before);
});
