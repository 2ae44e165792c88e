/** The sidecar as forward proxy: what an HTTP client that knows nothing of it sends, and what it gets. */
import { execFile } from 'node:child_process';
import { request as httpRequest } from 'node:http';
import { promisify } from 'node:util';
import { gzipSync } from 'node:zlib';
import fc from 'fast-check';
import t from 'tap';
import { readProxied } from '../../../../sidecar/accept/proxy-guard.ts';
import { TestAgent } from '../../../support/agent.ts';
import { type Base, takeBase } from '../../../support/invariants.ts';
import { head, RawClient } from '../../../support/raw-http.ts';
import { Rig, TOKEN } from '../../../support/rig.ts';

type Test = Parameters<typeof Rig.start>[0];

t.setTimeout(60_000);
const before: Base = takeBase();
const run = promisify(execFile);
const MESH_TOKEN = 'mesh-token-of-this-test';
const HELPER = 'token-of-the-helper';

const table = (address: string, more: { contract?: string; provider?: string; rest?: string; path?: string } = {}): string => `
contracts:
  - name: crm.order.query
    version: "2.1.0"
    acl: public
    aliases: [orders]
    input: {type: object, required: [id]}
${more.contract ?? ''}
  - name: crm.order.query
    version: "1.0.0"
    acl: public
  - name: crm.order.secret
    version: "1.0.0"
    acl: [sales.*.*]
  - name: nlp.text.write
    version: "1.0.0"
    acl: public
    streaming: true
  - name: nlp.text.end
    version: "1.0.0"
    acl: public
    streaming: {done: "[DONE]"}
providers:
  - agent_id: crm.order.1
    offers: ["crm.order.query@2.1.0", "crm.order.secret@1.0.0", "nlp.text.write@1.0.0", "nlp.text.end@1.0.0"]
    endpoint: {type: http, address: "${address}${more.path ?? ''}"}
${more.provider ?? ''}
  - agent_id: crm.order.old
    offers: ["crm.order.query@1.0.0"]
    endpoint: {type: http, address: "${address}/old"}
${more.provider ?? ''}
${more.rest ?? ''}`;

/** The sidecar under test and the agent; with two hops the agent is hosted by another sidecar. */
async function world(
  t: Test,
  hops = 1,
  more: Parameters<typeof table>[1] = {},
  settings = '',
): Promise<{ rig: Rig; agent: TestAgent; all: Rig[] }> {
  const agent = await TestAgent.listen('crm.order.1');
  t.teardown(() => agent.close());
  const also = settings === '' ? {} : { settings };
  if (hops === 1) {
    const rig = await Rig.start(t, { table: table(agent.url, more), ...also });
    return { rig, agent, all: [rig] };
  }
  const hosted = { ...more, provider: '    via: two' };
  const rest = (mesh: string): string => `sidecars: [{name: two, mesh: "${mesh}"}]`;
  const host = await Rig.start(t, {
    name: 'two',
    meshToken: MESH_TOKEN,
    table: table(agent.url, { ...hosted, rest: rest('http://127.0.0.1:1') }),
  });
  const rig = await Rig.start(t, {
    meshToken: MESH_TOKEN,
    table: table(agent.url, { ...hosted, rest: rest(host.started.meshUrl as string) }),
    ...also,
  });
  return { rig, agent, all: [rig, host] };
}

async function finish(t: Test, rigs: readonly Rig[], agent: TestAgent, executions: number): Promise<void> {
  t.equal(agent.executions, executions, 'the agent was asked as often as it should be');
  await agent.close();
  for (const rig of rigs) await rig.stop();
  for (const rig of rigs) await rig.finish(t, before);
}

interface Seen {
  readonly status: number;
  readonly headers: Readonly<Record<string, string | string[] | undefined>>;
  readonly body: string;
}

/** What a client does that has been told of a proxy. */
function ask(rig: Rig, method: string, url: string, headers: Record<string, string | string[]> = {}, body = ''): Promise<Seen> {
  return new Promise((resolve, reject) => {
    const request = httpRequest(
      {
        host: '127.0.0.1',
        port: rig.port,
        method,
        path: url,
        agent: false,
        headers: {
          host: url.split(/[/?]/)[2] ?? '',
          'proxy-authorization': `Bearer ${TOKEN}`,
          ...(body === '' ? {} : { 'content-type': 'application/json', 'content-length': String(Buffer.byteLength(body)) }),
          ...headers,
        },
      },
      (response) => {
        const chunks: Buffer[] = [];
        response.on('data', (chunk: Buffer) => chunks.push(chunk));
        response.on('error', reject);
        response.on('end', () =>
          resolve({ status: response.statusCode ?? 0, headers: response.headers, body: Buffer.concat(chunks).toString('utf8') }),
        );
      },
    );
    request.on('error', reject);
    request.end(body);
  });
}

const raw = async (
  rig: Rig,
  text: string,
  within = 2_000,
): Promise<{ status: number; body: string; headers: Readonly<Record<string, string>> }> => {
  const client = await RawClient.to(rig.port);
  client.write(text);
  const answer = await client.answer(within);
  client.close();
  return answer;
};

for (const hops of [1, 2]) {
  const where = hops === 1 ? '' : ', through the sidecar that hosts the agent';

  t.test(`method, path, query, body and headers reach the agent as they were sent${where}`, async (t) => {
    const { rig, agent, all } = await world(t, hops);
    agent.behaviour = () => ({
      status: 201,
      headers: { 'x-own': ['a', 'b'], etag: '"7"', 'content-type': 'text/plain' },
      body: 'made 1.0',
    });
    const answer = await ask(
      rig,
      'PUT',
      'http://crm.order.query/orders/7%2F8?x=1&y=%20a',
      {
        'x-tenant': 'blue',
        accept: 'text/plain',
        'if-match': '"6"',
        'user-agent': 'old-client/1',
        authorization: 'Digest of-the-provider',
        cookie: 'session=1',
      },
      '{"id":9007199254740993}',
    );
    t.equal(answer.status, 201);
    t.equal(answer.body, 'made 1.0', 'the answer is the agent’s own');
    t.match(answer.headers, {
      etag: '"7"',
      'x-own': 'a, b',
      'content-type': 'text/plain',
      'reach-code': '0',
      'reach-provider': 'crm.order.1',
      'reach-version': '2.1.0',
    });
    const got = agent.requests[0] as NonNullable<(typeof agent.requests)[0]>;
    t.equal(got.method, 'PUT');
    t.equal(got.path, '/orders/7%2F8?x=1&y=%20a');
    t.equal(String(got.body), '{"id":9007199254740993}');
    t.match(got.headers, {
      'x-tenant': 'blue',
      accept: 'text/plain',
      'if-match': '"6"',
      'user-agent': 'old-client/1',
      'content-type': 'application/json',
      authorization: 'Digest of-the-provider',
      cookie: 'session=1',
      'reach-capability': 'crm.order.query',
      'reach-caller': 'support.planner.1',
    });
    t.notMatch(
      JSON.stringify(got.headers),
      /token-of|mesh-token|proxy-|reach-(?:method|target|authorization|cookie)/,
      'and no credential of ours',
    );

    for (const method of ['GET', 'DELETE', 'OPTIONS', 'PATCH', 'POST']) {
      const one = await ask(rig, method, 'http://orders', {}, method === 'PATCH' || method === 'POST' ? '{"id":1}' : '');
      t.equal(one.status, 201, method);
      const last = agent.requests.at(-1);
      t.equal(last?.method, method);
      t.equal(last?.path, '/', 'an address without a path means the root');
      if (method === 'GET') t.equal(last?.headers['content-length'], undefined, 'a GET announces no body');
    }
    for (const method of ['GET', 'DELETE']) {
      t.equal((await ask(rig, method, 'http://orders/_search', {}, '{"id":1}')).status, 201, `${method} with a body`);
      t.match([agent.requests.at(-1)?.method, String(agent.requests.at(-1)?.body)], [method, '{"id":1}']);
    }
    t.equal((await ask(rig, 'GET', 'http://crm.order.query?a=1')).status, 201);
    t.equal(agent.requests.at(-1)?.path, '/?a=1');
    await finish(t, all, agent, 9);
  });

  t.test(`HEAD has no body, statuses and redirects of the agent are its answer, failures are problem documents${where}`, async (t) => {
    const { rig, agent, all } = await world(t, hops, { contract: '    output: {type: object, required: [ok]}\n    timeout: 300ms' });
    agent.behaviour = (request, response) => {
      if (request.method === 'HEAD') response.writeHead(200, { 'content-type': 'application/json', 'content-length': '12345678' }).end();
      else if (request.path === '/hang') return undefined;
      else if (request.path === '/moved') return { status: 302, headers: { location: '/there' }, body: '' };
      else if (request.path === '/bad') return { body: { wrong: true } };
      else if (request.path === '/none') return { status: 204 };
      else return { status: 418, headers: { 'content-type': 'text/plain' }, body: 'teapot' };
      return undefined;
    };
    const headed = await ask(rig, 'HEAD', 'http://crm.order.query/x');
    t.equal(headed.status, 200);
    t.equal(headed.body, '');
    if (hops === 1) t.equal(headed.headers['content-length'], '12345678', 'as the agent said, however large');
    t.equal(headed.headers['transfer-encoding'], undefined);
    const moved = await ask(rig, 'GET', 'http://crm.order.query/moved');
    t.match(moved, { status: 302, headers: { location: '/there' } }, 'a redirect is the client’s to follow');
    t.match(await ask(rig, 'GET', 'http://crm.order.query/tea'), { status: 418, body: 'teapot', headers: { 'reach-code': '6001' } });
    const bad = await ask(rig, 'GET', 'http://crm.order.query/bad');
    t.match(bad, { status: 502, headers: { 'content-type': 'application/problem+json', 'reach-code': '4004' } }, 'the contract holds');
    const hung = await ask(rig, 'GET', 'http://crm.order.query/hang');
    t.match(hung, { status: 504, headers: { 'content-type': 'application/problem+json' } });
    t.equal(JSON.parse(hung.body).name, 'response_timeout');
    const noHead = await ask(rig, 'HEAD', 'http://crm.order.secret/x');
    t.match(noHead, { status: 403, body: '' });
    const misfit = await ask(rig, 'POST', 'http://crm.order.query/x', {}, '{"no":1}');
    t.match(misfit, { status: 400, headers: { 'reach-code': '4003' } }, 'a body has to fit the contract');
    await finish(t, all, agent, 5);
  });

  t.test(`a stream is passed on piece by piece${where}`, async (t) => {
    const { rig, agent, all } = await world(t, hops);
    let goOn: (() => void) | null = null;
    agent.behaviour = (request, response) => {
      response.writeHead(200, { 'content-type': request.path === '/events' ? 'text/event-stream' : 'text/plain' });
      response.write('data: 1\n\n');
      goOn = () => (request.path === '/cut' ? response.destroy() : response.end('data: 2\n\n'));
      return undefined;
    };
    for (const [url, accept] of [
      ['http://nlp.text.write/plain', '*/*'],
      ['http://crm.order.query/events', 'text/event-stream'],
      ['http://nlp.text.write/cut', '*/*'],
    ] as const) {
      const client = await RawClient.to(rig.port);
      client.write(
        head('GET', url, { host: url.split('/')[2] as string, authorization: null, 'proxy-authorization': `Bearer ${TOKEN}`, accept }),
      );
      await client.until((text) => text.includes('data: 1\n\n'));
      t.match(client.text, /transfer-encoding: chunked/i, url);
      t.match(client.text, /data: 1\n\n/, 'the first piece has come while the agent still holds the second');
      (goOn as (() => void) | null)?.();
      const answer = await client.answer(1_500);
      t.equal(answer.isWhole, !url.endsWith('/cut'), 'a cut never looks like an end');
      if (answer.isWhole) t.equal(answer.body, 'data: 1\n\ndata: 2\n\n', 'and nothing is added');
      client.close();
    }
    await finish(t, all, agent, 3);
  });
}

/** As a test may say it: without the credential itself. */
function said(shown: string | string[]): string {
  return String(shown)
    .replaceAll(TOKEN, '<token>')
    .replaceAll(HELPER, '<helper>')
    .replaceAll(/[A-Za-z0-9+/=]{24,}/g, '<base64>');
}

t.test('who calls: Proxy-Authorization, else a Bearer token of ours, else nobody', async (t) => {
  const { rig, agent, all } = await world(t);
  const basic = (pair: string): string => `Basic ${Buffer.from(pair).toString('base64')}`;
  const get = async (headers: Record<string, string>): Promise<[number, string | undefined, string | undefined]> => {
    const count = agent.executions;
    const answer = await ask(rig, 'GET', 'http://crm.order.query/x', { 'proxy-authorization': [], ...headers });
    const seen = agent.executions > count ? agent.requests.at(-1)?.headers : undefined;
    return [answer.status, seen?.['reach-caller'] as string | undefined, seen?.authorization];
  };
  t.strictSame(await get({ 'proxy-authorization': `Bearer ${TOKEN}` }), [200, 'support.planner.1', undefined]);
  t.strictSame(await get({ 'proxy-authorization': `bEaReR  ${TOKEN}` }), [200, 'support.planner.1', undefined]);
  t.strictSame(await get({ 'proxy-authorization': basic(`anybody:${HELPER}`) }), [200, 'sales.helper.2', undefined]);
  t.strictSame(await get({ authorization: `Bearer ${TOKEN}` }), [200, 'support.planner.1', undefined], 'our token does not go on');
  t.strictSame(await get({ 'proxy-authorization': `Bearer ${TOKEN}`, authorization: 'Bearer of-the-api' }), [
    200,
    'support.planner.1',
    'Bearer of-the-api',
  ]);
  for (const ours of [`Bearer ${HELPER}`, `bearer ${HELPER}`, basic(`x:${HELPER}`)])
    t.strictSame(
      await get({ 'proxy-authorization': `Bearer ${TOKEN}`, authorization: ours }),
      [200, 'support.planner.1', undefined],
      said(ours),
    );
  t.equal(agent.executions, 8);
  for (const bad of [
    {},
    { authorization: 'Bearer of-the-api' },
    { 'proxy-authorization': 'Bearer wrong' },
    { 'proxy-authorization': basic('token:') },
    { 'proxy-authorization': TOKEN },
    { 'proxy-authorization': 'Bearer wrong', authorization: `Bearer ${TOKEN}` },
  ])
    t.equal((await get(bad as Record<string, string>))[0], 407, said(JSON.stringify(bad)));
  const asked = await ask(rig, 'POST', 'http://crm.order.query/x', { 'proxy-authorization': 'Bearer wrong' }, '{"id":1}');
  t.match(asked.headers['proxy-authenticate'], /Basic realm=.*Bearer/);
  t.equal(asked.headers['www-authenticate'], undefined);
  t.match(JSON.parse(asked.body), { code: 4001, status: 407 });
  await finish(t, all, agent, 8);
});

t.test('with anonymous callers a client needs no credential, and keeps its own for the agent', async (t) => {
  const { rig, agent, all } = await world(t, 1, {}, '  anonymous: dev.laptop.1');
  const plain = await ask(rig, 'GET', 'http://orders/x', {
    'proxy-authorization': [],
    authorization: 'Bearer of-the-api',
  });
  t.equal(plain.status, 200);
  t.match(agent.requests[0]?.headers, { authorization: 'Bearer of-the-api', 'reach-caller': 'dev.laptop.1' });
  await finish(t, all, agent, 1);
});

t.test('a token of ours goes to no agent, however it is written', async (t) => {
  const { rig, agent, all } = await world(t, 1, {}, '  anonymous: dev.laptop.1');
  const basic = Buffer.from(`agent:${TOKEN}`).toString('base64');
  const shown: readonly (string | string[])[] = [
    [`Bearer ${TOKEN}`, 'Basic b3RoZXI6a2V5'],
    ['Basic b3RoZXI6a2V5', `Bearer ${HELPER}`],
    TOKEN,
    `Token ${TOKEN}`,
    `bearer   ${TOKEN}`,
    `Basic ${basic}`,
    `Digest ${basic}`,
  ];
  for (const authorization of shown) {
    const answer = await ask(rig, 'GET', 'http://orders/x', { 'proxy-authorization': [], authorization: authorization as string });
    t.equal(answer.status, 200, said(authorization));
    t.equal(agent.requests.at(-1)?.headers.authorization, undefined, `${said(authorization)} stays here`);
  }
  const own = await ask(rig, 'GET', 'http://orders/x', { 'proxy-authorization': [], authorization: 'Token of-the-api, x' });
  t.equal(own.status, 200);
  t.equal(agent.requests.at(-1)?.headers.authorization, 'Token of-the-api, x', 'what is nobody’s here goes on');
  await finish(t, all, agent, shown.length + 1);
});

t.test('what a client shows an agent is shown to no agent of another capability', async (t) => {
  const { rig, agent, all } = await world(t, 1, {
    contract: '    execution: idempotent\n    fallback: [{capability: nlp.text.write}]\n    retry: {max: 0}',
  });
  let isDown = false;
  agent.behaviour = (request) => ({ status: isDown && request.number % 2 === 0 ? 503 : 200, body: {} });
  const credentials = { authorization: 'Bearer of-the-api', cookie: 'session=1' };
  await ask(rig, 'GET', 'http://crm.order.query/a', credentials);
  t.match(agent.requests.at(-1)?.headers, { 'reach-capability': 'crm.order.query', ...credentials });
  isDown = true;
  const moved = await ask(rig, 'GET', 'http://crm.order.query/a', credentials);
  t.match(moved, { status: 200, headers: { 'reach-degraded': 'true' } });
  const [, first, second] = agent.requests;
  t.match(first?.headers, { 'reach-capability': 'crm.order.query', ...credentials });
  t.match(second, {
    method: 'GET',
    path: '/a',
    headers: { 'reach-capability': 'nlp.text.write', authorization: undefined, cookie: undefined },
  });
  await finish(t, all, agent, 3);
});

t.test('only capabilities are reached, and nothing twice', async (t) => {
  const { rig, agent, all } = await world(t);
  const own = new URL(rig.url).host;
  for (const url of [
    'http://example.com/',
    'http://www.example.com/',
    `http://${own}/v1/health`,
    `http://${own}/`,
    `http://localhost:${rig.port}/v1/capabilities`,
    'http://127.0.0.1/',
    'http://[::1]:80/',
    'http://169.254.169.254/latest/meta-data',
    'http://crm.order.query:8080/',
    'http://crm.order.query./',
    'http://crm.order.qury/',
    agent.url,
  ]) {
    const answer = await ask(rig, 'GET', url);
    t.equal(answer.status, 404, url);
    t.match(JSON.parse(answer.body), { code: 2001, detail: /no_proxy/ });
  }
  t.match((await ask(rig, 'GET', 'http://crm.order.qury/')).body, /did you mean crm\.order\.query/);
  for (const url of [
    'https://crm.order.query/',
    'ftp://crm.order.query/',
    'crm.order.query',
    'http://',
    'http:///x',
    'http://a:b@crm.order.query/',
    'http://crm.order.query@2/',
    'http://crm.order.query/a/../b',
    'http://crm.order.query/%2e%2E/b',
    'http://crm.order.query/a%2f..%5cb',
    'http://crm.order.query/..;x/b',
  ])
    t.equal((await raw(rig, head('GET', url, { authorization: null, 'proxy-authorization': `Bearer ${TOKEN}` }))).status, 400, url);
  t.equal((await ask(rig, 'TRACE', 'http://crm.order.query/')).status, 400, 'TRACE would show the agent’s secrets');
  t.equal((await ask(rig, 'GET', 'http://CRM.Order.Query:80/x')).status, 200, 'a host is the same in capitals, and 80 is the port of http');
  await finish(t, all, agent, 1);
});

t.test('a range comes in Reach-Range, and a base path cannot be left', async (t) => {
  const { rig, agent, all } = await world(t, 1, { path: '/base' });
  t.match(await ask(rig, 'GET', 'http://crm.order.query/x?y', { 'reach-range': '^1.0' }), {
    status: 200,
    headers: { 'reach-version': '1.0.0' },
  });
  t.equal(agent.requests[0]?.path, '/old/x?y');
  t.equal((await ask(rig, 'GET', 'http://crm.order.query/a.b/..c/...?../..')).status, 200, 'dots that climb nowhere are harmless');
  t.equal(agent.requests[1]?.path, '/base/a.b/..c/...?../..');
  t.match(await ask(rig, 'GET', 'http://crm.order.query/', { 'reach-range': '^9' }), { status: 404, headers: { 'reach-code': '2002' } });
  t.match(await ask(rig, 'GET', 'http://crm.order.query/', { 'reach-range': 'junk' }), { status: 400, headers: { 'reach-code': '4006' } });
  await finish(t, all, agent, 2);
});

t.test('where the agent names its own address in a redirect, the client is led back to the capability', async (t) => {
  for (const hops of [1, 2]) {
    const { rig, agent, all } = await world(t, hops, { path: '/base' });
    let location = '';
    agent.behaviour = () => ({ status: 307, headers: { location }, body: '' });
    for (const [said, got] of [
      [`${agent.url}/base/orders/?x=1`, 'http://crm.order.query/orders/?x=1'],
      [`${agent.url}/base`, 'http://crm.order.query'],
      [`${agent.url}/elsewhere`, 'http://crm.order.query/elsewhere'],
      ['/base/orders/', '/orders/'],
      ['/based/x', '/based/x'],
      ['orders/', 'orders/'],
      ['//cdn.example/x', '//cdn.example/x'],
      [`${agent.url}.evil.test/`, `${agent.url}.evil.test/`],
      ['https://login.example/', 'https://login.example/'],
    ] as const) {
      location = said;
      const answer = await ask(rig, 'GET', 'http://orders/orders');
      t.equal(answer.status, 307);
      t.equal(answer.headers.location, got, said);
    }
    // Of a capability that streams, a success comes piece by piece.
    agent.behaviour = () => ({ status: 201, headers: { location: `${agent.url}/base/texts/7` }, body: '{}' });
    const made = await ask(rig, 'POST', 'http://nlp.text.write/texts', {}, '{}');
    t.match(made, { status: 201, headers: { location: 'http://nlp.text.write/texts/7' }, body: '{}' });
    await finish(t, all, agent, 10);
  }
});

t.test('a stream that comes packed although plain bytes were asked for is unpacked where its last word is watched for', async (t) => {
  for (const hops of [1, 2]) {
    const { rig, agent, all } = await world(t, hops, { rest: '' });
    const events = 'data: a\n\ndata: [DONE]\n\n';
    agent.behaviour = (request, response) => {
      const [, how, type] = request.path.split('/');
      response.useChunkedEncodingByDefault = how !== 'close';
      response.writeHead(200, { 'content-encoding': 'gzip', 'content-type': type === 'events' ? 'text/event-stream' : 'text/plain' });
      response.end(gzipSync(events));
      return undefined;
    };
    const watched = await ask(rig, 'GET', 'http://nlp.text.write/close/events');
    t.match(watched, { status: 200, body: events }, 'where nothing but the end of its connection ends it');
    t.equal(watched.headers['content-encoding'], undefined);
    const declared = await ask(rig, 'GET', 'http://nlp.text.end/chunked/events');
    t.match(declared, { status: 200, body: events }, 'where the contract says how it ends');
    t.equal(declared.headers['content-encoding'], undefined);
    const asItIs = await ask(rig, 'GET', 'http://nlp.text.end/chunked/text');
    t.match(asItIs, { status: 200, headers: { 'content-encoding': 'gzip' } }, 'else the client gets the bytes as they are');
    await finish(t, all, agent, 3);
  }
});

t.test('a provider behind a mapping, and one that speaks something else, get the body as their payload', async (t) => {
  const agent = await TestAgent.listen('crm.order.1', (request) =>
    request.path === '/rpc'
      ? { body: { jsonrpc: '2.0', result: { got: request.json }, id: (request.json as { id: unknown }).id } }
      : { body: { path: request.path } },
  );
  t.teardown(() => agent.close());
  const rig = await Rig.start(t, {
    table: `
contracts:
  - {name: crm.order.mapped, version: "1.0.0", acl: public}
  - {name: crm.order.spoken, version: "1.0.0", acl: public}
providers:
  - agent_id: crm.order.1
    offers: ["crm.order.mapped@1.0.0"]
    endpoint: {type: http, address: "${agent.url}", mapping: {crm.order.mapped: {method: GET, path: "/api/{/id}"}}}
  - agent_id: crm.order.2
    offers: ["crm.order.spoken@1.0.0"]
    endpoint: {type: jsonrpc, address: "${agent.url}/rpc"}
`,
  });
  t.match(
    await ask(rig, 'PUT', 'http://crm.order.mapped/other?x=1', { authorization: 'Bearer of-the-client', cookie: 'a=b' }, '{"id":7}'),
    { status: 200, body: '{"path":"/api/7"}' },
  );
  t.match(agent.requests[0], { method: 'GET' });
  t.match(
    await ask(rig, 'PUT', 'http://crm.order.spoken/other?x=1', { authorization: 'Bearer of-the-client', cookie: 'a=b' }, '{"id":7}'),
    { status: 200, body: /"params":\{"id":7\}/ },
  );
  for (const { headers } of agent.requests)
    t.strictSame([headers.authorization, headers.cookie], [undefined, undefined], 'a credential goes only where the request goes as it is');
  await finish(t, [rig], agent, 2);
});

t.test('a browser is refused, whatever page it shows, and a Host of two minds as well', async (t) => {
  const { rig, agent, all } = await world(t, 1, {}, '  anonymous: dev.laptop.1');
  const host = 'crm.order.query';
  const url = `http://${host}/delete?all=1`;
  const basic = `Basic ${Buffer.from(`a:${TOKEN}`).toString('base64')}`;
  const browsers: readonly Readonly<Record<string, string>>[] = [
    { origin: 'https://evil.test' },
    { origin: 'null' },
    { origin: `http://${host}` },
    { 'sec-fetch-site': 'cross-site' },
    { 'sec-fetch-site': 'none' },
    { 'sec-fetch-mode': 'no-cors' },
    { 'user-agent': 'Mozilla/5.0 (X11; Linux x86_64) Gecko/20100101 Firefox/130.0' },
    { 'user-agent': 'Mozilla/5.0', 'proxy-authorization': basic },
    { origin: 'https://evil.test', 'proxy-authorization': `Bearer ${TOKEN}` },
  ];
  for (const headers of browsers)
    for (const method of ['GET', 'POST']) {
      const answer = await raw(
        rig,
        head(method, url, { host, authorization: null, 'content-length': method === 'POST' ? '0' : null, ...headers }),
      );
      t.equal(answer.status, 403, `${method} ${said(JSON.stringify(headers))}`);
    }
  for (const type of ['text/plain', 'application/x-www-form-urlencoded', 'multipart/form-data; boundary=x']) {
    const answer = await raw(rig, `${head('POST', url, { host, authorization: null, 'content-type': type, 'content-length': '2' })}{}`);
    t.equal(answer.status, 403, `${type} without a credential is a form’s`);
  }
  // A rebound name is a path in the request and the page's name in Host: nothing of this makes that any weaker.
  for (const name of ['evil.test', host, 'orders', `${host}:${rig.port}`]) {
    for (const path of ['/v1/capabilities', '/v1/invoke/crm.order.query', '/metrics', '/rpc'])
      t.equal((await raw(rig, head('GET', path, { host: name, authorization: null }))).status, 403, `${path} at ${name}`);
  }
  for (const other of ['evil.test', 'crm.order.secret', `${host}:81`, `${host}, evil.test`])
    t.equal((await raw(rig, head('GET', url, { host: other, authorization: null }))).status, 400, other);
  t.equal(agent.executions, 0);
  for (const fits of [host, `${host}:80`, 'CRM.order.query', `127.0.0.1:${rig.port}`, 'localhost'])
    t.equal((await raw(rig, head('GET', url, { host: fits, authorization: null }))).status, 200, fits);
  const agentThatClaims = {
    host,
    authorization: null,
    'user-agent': 'Mozilla/5.0 (compatible; agent)',
    'proxy-authorization': `Bearer ${TOKEN}`,
  };
  t.equal((await raw(rig, head('GET', url, agentThatClaims))).status, 200, 'no page can send a Bearer token to a proxy');
  t.equal((await raw(rig, head('GET', url, { host: null, authorization: null }, '1.0'))).status, 200, 'HTTP/1.0 needs no Host');
  await finish(t, all, agent, 7);
});

t.test('framing is as strict as elsewhere, and what is too large is refused', async (t) => {
  const { rig, agent, all } = await world(t, 1, {}, '  limits: {body: 1KiB}');
  const url = 'http://crm.order.query/x';
  const base = { host: 'crm.order.query', authorization: null, 'proxy-authorization': `Bearer ${TOKEN}` };
  const hidden = 'GET http://crm.order.secret/ HTTP/1.1\r\nhost: crm.order.secret\r\n\r\n';
  for (const [what, text] of [
    ['two lengths', `${head('POST', url, { ...base, 'content-length': '5', 'transfer-encoding': 'chunked' })}0\r\n\r\n${hidden}`],
    ['a coding', `${head('POST', url, { ...base, 'transfer-encoding': 'gzip, chunked' })}0\r\n\r\n${hidden}`],
    ['chunks in 1.0', `${head('POST', url, { ...base, 'transfer-encoding': 'chunked' }, '1.0')}0\r\n\r\n${hidden}`],
  ] as const) {
    const client = await RawClient.to(rig.port);
    client.write(text);
    const answer = await client.answer(2_000);
    t.equal(answer.status, 400, what);
    t.ok(await client.closed(2_000), 'and the connection is closed');
    t.notMatch(client.text, /HTTP\/1\.1 200/);
  }
  t.equal((await ask(rig, 'POST', url, {}, JSON.stringify({ id: 'x'.repeat(2_000) }))).status, 413);
  const chunked = `${head('POST', url, { ...base, 'content-type': 'application/json', 'transfer-encoding': 'chunked' })}8\r\n{"id":1 \r\n1\r\n}\r\n0\r\n\r\n`;
  t.equal((await raw(rig, chunked)).status, 200);
  t.equal(String(agent.requests[0]?.body), '{"id":1 }');
  await finish(t, all, agent, 1);
});

t.test('a sidecar that stops, or has no table yet, says so', async (t) => {
  const { rig, agent, all } = await world(t);
  rig.started.front.draining = true;
  const stopping = await ask(rig, 'GET', 'http://crm.order.query/x');
  t.match(stopping, { status: 503, headers: { 'retry-after': '1' } });
  t.equal(JSON.parse(stopping.body).code, 2006);
  await finish(t, all, agent, 0);
});

t.test('CONNECT is answered at once, and leaves nothing behind', async (t) => {
  const { rig, agent, all } = await world(t);
  for (const target of ['crm.order.query:443', 'example.com:443', `127.0.0.1:${rig.port}`]) {
    const client = await RawClient.to(rig.port);
    client.write(`CONNECT ${target} HTTP/1.1\r\nhost: ${target}\r\nproxy-authorization: Bearer ${TOKEN}\r\n\r\n\x16\x03\x01`);
    const answer = await client.answer(1_000);
    t.equal(answer.status, 405, target);
    t.match(JSON.parse(answer.body).detail, /no_proxy/);
    t.ok(await client.closed(1_500));
  }
  const reset = await RawClient.to(rig.port);
  reset.write('CONNECT x:443 HTTP/1.1\r\nhost: x\r\n\r\n');
  reset.socket.resetAndDestroy();
  await finish(t, all, agent, 0);
});

t.test('a caller that leaves stops the work, and a failed one is not repeated because its method is GET', async (t) => {
  const { rig, agent, all } = await world(t);
  agent.behaviour = () => undefined;
  const client = await RawClient.to(rig.port);
  client.write(
    head('GET', 'http://crm.order.query/x', { host: 'crm.order.query', authorization: null, 'proxy-authorization': `Bearer ${TOKEN}` }),
  );
  while (agent.executions === 0) await new Promise((resolve) => setTimeout(resolve, 5));
  client.close();
  while (agent.abandoned === 0) await new Promise((resolve) => setTimeout(resolve, 5));
  agent.behaviour = (_request, response) => {
    response.destroy();
    return undefined;
  };
  const answer = await ask(rig, 'GET', 'http://crm.order.query/x');
  t.match(answer, { status: 502, headers: { 'reach-ambiguous': 'true', 'reach-attempts': '1' } });
  await finish(t, all, agent, 2);
});

t.test('curl and urllib reach an agent with nothing but http_proxy', async (t) => {
  const { rig, agent, all } = await world(t);
  const proxy = `http://support:${TOKEN}@127.0.0.1:${rig.port}`;
  const env = { ...process.env, http_proxy: proxy, https_proxy: proxy, no_proxy: '' };
  const curl = async (...args: string[]): Promise<string> => (await run('curl', ['-sS', '--max-time', '5', ...args], { env })).stdout;
  const got = JSON.parse(await curl('-H', 'content-type: application/json', '-d', '{"id":7}', 'http://crm.order.query/orders?x=1'));
  t.same(got, { agent: 'crm.order.1', payload: { id: 7 } });
  t.match(agent.requests[0], { method: 'POST', path: '/orders?x=1' });
  t.match(await curl('-I', 'http://orders/'), /^HTTP\/1\.1 200/);
  t.equal(await curl('-o', '/dev/null', '-w', '%{http_code}', 'http://example.com/'), '404');
  await t.rejects(curl('https://crm.order.query/'), /405/, 'https fails at once and says why');
  t.match(await curl('-o', '/dev/null', '-w', '%{http_code}', '-x', `http://127.0.0.1:${rig.port}`, 'http://orders/'), '407');
  const script = `
import urllib.request, json
request = urllib.request.Request("http://crm.order.query/orders/9?a=b", data=b'{"id": 9}', headers={"content-type": "application/json"}, method="PUT")
print(json.dumps(json.load(urllib.request.urlopen(request, timeout=5))))`;
  const { stdout } = await run('python3', ['-c', script], { env });
  t.same(JSON.parse(stdout), { agent: 'crm.order.1', payload: { id: 9 } });
  t.match(agent.requests.at(-1), { method: 'PUT', path: '/orders/9?a=b' });
  await finish(t, all, agent, 3);
});

t.test('no target makes it throw, and none gets past with a host of two readings or a path that climbs', async () => {
  const part = fc.constantFrom(
    'http://',
    'HTTP://',
    'crm.order.query',
    'a',
    ':80',
    ':',
    '@',
    '/',
    '//',
    '..',
    '.',
    '%2e',
    '%2F',
    '%5c',
    '\\',
    ';',
    '?',
    '#',
    ' ',
    'ü',
    '%',
    '[::1]',
    '\u0000',
  );
  fc.assert(
    fc.property(fc.array(part, { maxLength: 12 }), (parts) => {
      const text = parts.join('');
      const read = readProxied(text);
      if (typeof read === 'string') return read !== '';
      if (/[/?#@]/.test(read.host) || read.host === '' || read.host !== read.host.toLowerCase() || !/^\/[!-~]*$/.test(read.target))
        return false;
      // Another reader of the same text comes to the same host, and to a path without folders to climb.
      const { pathname, host } = new URL(`http://x${read.target}`);
      return host === 'x' && (pathname === read.target.split('?')[0] || read.target.includes('\\'));
    }),
    { numRuns: 3_000 },
  );
});

t.test('targets are taken apart', async (t) => {
  t.strictSame(readProxied('http://crm.order.query/a?b'), { host: 'crm.order.query', target: '/a?b' });
  t.strictSame(readProxied('HTTP://A.B.C:80'), { host: 'a.b.c', target: '/' });
  t.strictSame(readProxied('http://a.b.c:81?x'), { host: 'a.b.c:81', target: '/?x' });
  for (const bad of [
    'http://',
    'http://a/#x',
    'http://a/ü',
    'http://a/ b',
    'http://a/\u0000',
    'http://a/./b',
    'http://a/b/.',
    'http://a/b/..?x',
    '*',
    'a:80',
    'http:/a',
  ])
    t.type(readProxied(bad), 'string', bad);
});
