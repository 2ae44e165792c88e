/** JSON-RPC 2.0 at `/rpc`, against the HTTP way in: the same call, the same Result. */
import { type IncomingMessage, request as httpRequest } from 'node:http';
import t from 'tap';
import { Code, codeEntry } from '../../../../proto/wire/codes.ts';
import type { Finishing } from '../../../../sidecar/accept/finishing.ts';
import { httpPort } from '../../../../sidecar/accept/http.ts';
import { TestAgent } from '../../../support/agent.ts';
import { type FrontOptions, ScriptedFront } from '../../../support/front.ts';
import { type Base, takeBase } from '../../../support/invariants.ts';
import { ask } from '../../../support/raw-http.ts';
import { type Answer, type Asking, Rig } from '../../../support/rig.ts';

type Test = Parameters<typeof Rig.start>[0];

t.setTimeout(60_000);
const before: Base = takeBase();

const table = (address: string): string => `
contracts:
  - name: crm.order.query
    version: "2.1.0"
    acl: public
    aliases: [orders]
    timeout: 300ms
  - name: crm.order.strict
    version: "1.0.0"
    acl: public
    input: {type: object, required: [id]}
providers:
  - agent_id: crm.order.1
    offers: ["crm.order.query@2.1.0", "crm.order.strict@1.0.0"]
    endpoint: {type: http, address: "${address}"}
`;

async function world(t: Test, settings = ''): Promise<{ rig: Rig; agent: TestAgent }> {
  const agent = await TestAgent.listen('crm.order.1');
  t.teardown(() => agent.close());
  return { rig: await Rig.start(t, { table: table(agent.url), ...(settings === '' ? {} : { settings }) }), agent };
}

async function finish(t: Test, { rig, agent }: { rig: Rig; agent: TestAgent }, executions: number): Promise<void> {
  t.equal(agent.executions, executions, 'the agent was asked as often as it should be');
  await agent.close();
  await rig.finish(t, before);
}

const rpc = (rig: Rig, body: string, asking: Asking = {}): Promise<Answer> => rig.ask('/rpc', { method: 'POST', body, ...asking });
const message = (method: string, params: string | null = null, id: string | null = '1'): string =>
  `{"jsonrpc":"2.0","method":${JSON.stringify(method)}${params === null ? '' : `,"params":${params}`}${id === null ? '' : `,"id":${id}`}}`;

/** Without what is another for every call. */
// biome-ignore lint/suspicious/noExplicitAny: whatever came
function lasting(result: any): unknown {
  const text = JSON.stringify(result, (key, value) => (['elapsed_ms', 'at_ms', 'trace_id', 'instance'].includes(key) ? undefined : value));
  return JSON.parse(text.replaceAll(/\(after \d+ ms\)/g, ''));
}

t.test('a method is a capability, an alias or one with a range; the result is the Result', async (t) => {
  const it = await world(t);
  const payload = '{ "id": 9007199254740993, "x": 1.0, "t": "\\u00e9" }';
  const byHttp = await it.rig.invoke('crm.order.query', { body: payload });
  for (const method of ['crm.order.query', 'orders', 'crm.order.query@^2.0', 'orders@2']) {
    const answer = await rpc(it.rig, message(method, payload));
    t.equal(answer.status, 200);
    t.equal(answer.headers['content-type'], 'application/json');
    t.strictSame(lasting(answer.json.result), lasting(byHttp.json), method);
    t.equal(String(it.agent.requests.at(-1)?.body), payload, 'params arrive byte by byte');
  }
  t.match(it.agent.requests.at(-1)?.headers['content-type'], 'application/json');
  await rpc(it.rig, message('orders', '[1.0,{"a":1e400}]'));
  t.equal(String(it.agent.requests.at(-1)?.body), '[1.0,{"a":1e400}]', 'a list is as good as an object');
  for (const params of [null, 'null']) {
    await rpc(it.rig, message('orders', params));
    t.equal(String(it.agent.requests.at(-1)?.body), 'null', 'none is null');
  }
  it.agent.behaviour = () => ({ headers: { 'content-type': 'application/json' }, body: '{"big":12345678901234567890,"one":1.0}' });
  const exact = await rpc(it.rig, message('orders', null, '"ü\\u0041"'));
  t.match(String(exact.bytes), '"data":{"big":12345678901234567890,"one":1.0}');
  t.ok(String(exact.bytes).endsWith(',"id":"ü\\u0041"}'), 'an id that is not ASCII comes back as it was');
  await finish(t, it, 9);
});

t.test('raw mode gives the data alone', async (t) => {
  const it = await world(t);
  const answers: readonly (readonly [string, string, string])[] = [
    ['application/json', '{"a":1.0}', '{"a":1.0}'],
    ['text/plain', 'plain ü', '"plain ü"'],
    ['application/json', '', 'null'],
    ['image/png', 'x', '{"base64":"eA==","content_type":"image/png"}'],
  ];
  for (const [type, body, data] of answers) {
    it.agent.behaviour = () => ({ headers: { 'content-type': type }, body });
    const answer = await rpc(it.rig, message('orders'), { headers: { 'reach-mode': 'raw' } });
    t.equal(String(answer.bytes), `{"jsonrpc":"2.0","result":${data},"id":1}`);
  }
  const byQuery = await it.rig.ask('/rpc?mode=raw', { method: 'POST', body: message('orders') });
  t.equal(byQuery.json.result.base64, 'eA==');
  const wrong = await rpc(it.rig, message('orders'), { headers: { 'reach-mode': 'cooked' } });
  t.match(wrong.json, { id: null, error: { code: -32600, data: { detail: /raw or envelope/ } } });
  await finish(t, it, 5);
});

t.test('a failure is an error whose data is the problem document of HTTP', async (t) => {
  const it = await world(t, '  max_hops: 4');
  it.agent.behaviour = (request) => {
    const what = (request.json as { do?: string } | null)?.do;
    if (what === 'fail') return { status: 409, body: { reason: 'taken' } };
    if (what === 'hang') return undefined;
    if (what === 'lie') return { headers: { 'content-type': 'application/json' }, body: '{' };
    return { body: {} };
  };
  const cases: readonly (readonly [string, string | null, number, number, Record<string, string>?])[] = [
    ['crm.order.query', '{"do":"fail"}', Code.provider_error, -32000],
    ['crm.order.query', '{"do":"hang"}', Code.response_timeout, -32001],
    ['crm.order.query', '{"do":"lie"}', Code.bad_response, -32001],
    ['crm.order.nobody', null, Code.no_provider, -32601],
    ['crm.order.query@^9', null, Code.no_matching_version, -32601],
    ['m', null, Code.bad_name, -32601],
    ['CRM Order', null, Code.bad_name, -32601],
    ['', null, Code.bad_name, -32601],
    ['crm.order.strict', '{"no":1}', Code.invalid_request, -32602],
    ['crm.order.query', '{}', Code.invalid_request, -32602, { 'reach-deadline-ms': 'soon' }],
    ['crm.order.query', '{}', Code.deadline_exceeded, -32005, { 'reach-deadline-ms': '0' }],
  ];
  for (const [method, params, code, rpcCode, headers = {}] of cases) {
    const answer = await rpc(it.rig, message(method, params), { headers });
    const name = codeEntry(code).name;
    t.equal(answer.status, 200, `${method}: ${name}`);
    t.match(answer.json, { jsonrpc: '2.0', id: 1, error: { code: rpcCode, message: codeEntry(code).meaning } });
    const byHttp = await it.rig.invoke(encodeURIComponent(method), { body: params ?? 'null', headers });
    if (method !== '') t.strictSame(lasting(answer.json.error.data), lasting(byHttp.json), 'the same in data');
    t.match(answer.json.error.data, { code, name, trace_id: /^[0-9a-f]{32}$/, retryable: Boolean, ambiguous: Boolean, attempts: Array });
  }
  await finish(t, it, 6);
});

t.test('headers hold for every message: credential, trace, deadline, explain', async (t) => {
  const it = await world(t);
  const trace = '0af7651916cd43dd8448eb211c80319c';
  const both = await rpc(it.rig, `[${message('orders')},${message('orders', null, '2')}]`, {
    headers: { traceparent: `00-${trace}-b7ad6b7169203331-01`, 'reach-deadline-ms': '5000', 'reach-explain': '1' },
    token: 'token-of-the-helper',
  });
  for (const [i, one] of both.json.entries()) {
    t.equal(one.result.trace_id, trace);
    t.ok(one.result.decision.length > 3, 'the decision is told');
    t.match(it.agent.requests[i]?.headers, { 'reach-caller': 'sales.helper.2', 'reach-deadline-total-ms': '5000' });
  }
  const stranger = await rpc(it.rig, message('orders'), { token: 'wrong' });
  t.equal(stranger.status, 200);
  t.match(stranger.json.error, { code: -32004, data: { code: 4001 } });
  await finish(t, it, 2);
});

t.test('the time that a caller gives is for the whole batch', async (t) => {
  const it = await world(t);
  it.agent.behaviour = async () => {
    await new Promise((resolve) => setTimeout(resolve, 200));
    return { body: {} };
  };
  const slow = await rpc(it.rig, `[${new Array(60).fill(message('orders')).join(',')}]`, { headers: { 'reach-deadline-ms': '500' } });
  const codes: number[] = slow.json.map((one: { error?: { data: { code: number } } }) => one.error?.data.code ?? 0);
  t.ok(slow.elapsedMs < 1_500, 'it ends with its time');
  t.strictSame(codes.slice(0, 16), new Array(16).fill(0), 'what had the time is done');
  t.ok(
    codes.slice(-8).every((code) => code === Code.deadline_exceeded),
    'what had none is told so',
  );
  const executions = it.agent.executions;
  t.ok(executions <= 48, 'and nobody was troubled with it');
  await finish(t, it, executions);
});

t.test('reach.explain says what /v1/explain says; names of the protocol and of ours are no capabilities', async (t) => {
  const it = await world(t);
  const byHttp = await it.rig.ask('/v1/explain/orders');
  const byRpc = await rpc(it.rig, message('reach.explain', '{"capability":"orders"}'));
  const shape = (explanation: { decision: { reason: string }[] }): unknown => ({
    ...explanation,
    decision: explanation.decision.map(({ reason }) => reason),
    table_stale_for_ms: 0,
  });
  t.strictSame(shape(byRpc.json.result), shape(byHttp.json));
  const misfit = await rpc(it.rig, message('reach.explain', '{"payload":{"no":1},"capability":"crm.order.strict"}'));
  t.match(misfit.json.result.refusal, { code: 4003 }, 'a payload is looked at');
  t.match((await rpc(it.rig, message('reach.explain', '{"capability":"orders"}'), { token: null })).json.error, {
    code: -32004,
    data: { code: 4001 },
  });
  for (const params of [
    null,
    '[]',
    '["orders"]',
    '{}',
    '{"capability":7}',
    '{"capability":"a","capability":"b"}',
    '{"capability":"a","x":1}',
    '{"capability":"a","payload":1,"payload":2}',
  ])
    t.equal((await rpc(it.rig, message('reach.explain', params))).json.error.code, -32602, String(params));
  t.equal((await rpc(it.rig, message('reach.explain', '{"capability":"orders"}', null))).status, 204, 'nobody hears the answer');
  for (const method of ['rpc.discover', 'rpc.a.b', 'reach.nothing', 'reach.', 'reach.invoke', 'reach.cancel', 'reach.a.b'])
    t.match((await rpc(it.rig, message(method))).json, { id: 1, error: { code: -32601 } }, method);
  const stream = await rpc(it.rig, message('reach.stream', '{"capability":"orders"}'));
  t.match(stream.json.error, { code: -32601, data: { detail: /\/v1\/stream\// } });
  const events = await rpc(it.rig, message('orders'), { headers: { accept: 'text/event-stream' } });
  t.equal(events.status, 406);
  t.match(events.json, { id: null, error: { code: -32600, data: { detail: /\/v1\/stream\// } } });
  t.equal(
    (await rpc(it.rig, message('orders'), { headers: { accept: 'application/json, text/event-stream' } })).status,
    200,
    'a client that takes either gets JSON',
  );
  await finish(t, it, 1);
});

t.test('what is no message of the protocol, and an answer that nobody asked for', async (t) => {
  const it = await world(t);
  for (const [body, code] of [
    ['', -32700],
    ['{"jsonrpc":', -32700],
    ['\u0000', -32700],
    ['7', -32600],
    ['{"jsonrpc":"2.0","result":1,"id":5}', -32600],
    ['{"jsonrpc":"2.0","error":{"code":1,"message":"x"},"id":5}', -32600],
  ] as const) {
    const answer = await rpc(it.rig, body);
    t.equal(answer.status, 200);
    t.match(
      answer.json,
      { jsonrpc: '2.0', id: null, error: { code, message: code === -32700 ? 'Parse error' : 'Invalid Request', data: { code: 4003 } } },
      body,
    );
  }
  t.match(await it.rig.ask('/rpc'), { status: 405, headers: { allow: 'POST' } });
  const tooDeep = message('orders', `${'['.repeat(300)}${']'.repeat(300)}`, null);
  t.match(await rpc(it.rig, tooDeep), { status: 204 }, 'a notification is not answered, whatever is wrong with its params');
  t.match(await rpc(it.rig, `[${tooDeep}]`), { status: 204 });
  const squeezed = await rpc(it.rig, message('orders'), { headers: { 'content-encoding': 'gzip' } });
  t.match(squeezed, { status: 415, headers: { 'accept-encoding': 'identity' }, json: { id: null, error: { code: -32600 } } });
  const large = await rpc(it.rig, `[${'1,'.repeat(5_000_000)}1]`).catch(() => null);
  t.ok(large === null || large.status === 413, 'what is above the limit on bodies is not read at all');
  await finish(t, it, 0);
});

async function scripted(t: Test, options: FrontOptions): Promise<{ front: ScriptedFront; port: number }> {
  const front = new ScriptedFront(options);
  const port = httpPort(front);
  await port.open();
  t.teardown(() => port.close(0));
  return { front, port: port.address.port };
}

t.test('while no calls can be taken, the error is one of the protocol with the status of HTTP', async (t) => {
  const { front, port } = await scripted(t, { script: (call, stage) => stage.answer(call, 200, '{}') });
  front.scripted.ready = false;
  const starting = await ask(port, 'POST', '/rpc', {}, message('crm.order.query'));
  t.equal(starting.status, 503);
  t.match(starting.headers, { 'retry-after': '1' });
  t.match(JSON.parse(starting.body), { jsonrpc: '2.0', id: null, error: { code: -32002, data: { code: 2003 } } });
  front.scripted.ready = true;
  front.draining = true;
  const stopping = await ask(port, 'POST', '/rpc', {}, message('crm.order.query'));
  t.match(JSON.parse(stopping.body), { error: { data: { code: 2006 } } });
  t.equal(stopping.headers['connection'], 'close');

  // What an agent finishes its work with is told by its trace: that of the request, or of every message.
  const traceId = 'a'.repeat(32);
  const traceparent = `00-${traceId}-${'b'.repeat(16)}-01`;
  const other = `00-${'c'.repeat(32)}-${'b'.repeat(16)}-01`;
  front.finishing = { admits: (_agent: string, trace: string) => trace === traceId } as unknown as Finishing;
  const own = `{"jsonrpc":"2.0","id":1,"method":"crm.order.query","traceparent":"${traceparent}"}`;
  const inParams = message('crm.order.query', `{"_meta":{"traceparent":"${traceparent}"}}`, '2');
  for (const [body, headers, status] of [
    [message('crm.order.query'), { traceparent }, 200],
    [own, {}, 200],
    [inParams, { traceparent: other }, 200],
    [`[${own},${inParams}]`, {}, 200],
    [`[${own},${message('crm.order.query')}]`, {}, 503],
    [own.replace(traceparent, other), {}, 503],
    ['[]', {}, 503],
    ['nonsense', {}, 503],
  ] as const)
    t.equal((await ask(port, 'POST', '/rpc', headers, body)).status, status, body.slice(0, 60));
});

t.test('a fault of ours is -32603 for the message that it struck, and for no other', async (t) => {
  const { port } = await scripted(t, {
    script: (call, stage) => {
      if (call.asked === 'crm.order.broken') throw new Error('a bug');
      stage.answer(call, 200, '{}');
    },
  });
  const answer = await ask(
    port,
    'POST',
    '/rpc',
    {},
    `[${message('crm.order.query')},${message('crm.order.broken', null, '2')},${message('crm.order.broken', null, null)}]`,
  );
  t.match(JSON.parse(answer.body), [
    { id: 1, result: { code: 0 } },
    { id: 2, error: { code: -32603, message: 'Internal error', data: { code: 9001 } } },
  ]);
});

t.test('answers beyond what is kept leave in pieces, in the order of the messages, at the pace of the reader', async (t) => {
  const big = JSON.stringify('x'.repeat(1_000_000));
  let served = 0;
  const { port } = await scripted(t, {
    script: async (call, stage) => {
      served++;
      // The later ones are faster.
      await new Promise((resolve) => setTimeout(resolve, Math.max(0, 40 - served)));
      stage.answer(call, 200, big);
    },
  });
  const batch = `[${Array.from({ length: 60 }, (_, i) => message('crm.order.query', null, String(i))).join(',')}]`;
  const response = await new Promise<IncomingMessage>((resolve, reject) => {
    const headers = { authorization: 'Bearer good', 'content-type': 'application/json' };
    httpRequest({ host: '127.0.0.1', port, path: '/rpc', method: 'POST', agent: false, headers }, resolve).on('error', reject).end(batch);
  });
  await new Promise((resolve) => setTimeout(resolve, 600));
  t.ok(served < 45, `a reader that does not read holds the rest back (${served} of 60 were begun)`);
  t.equal(response.headers['transfer-encoding'], 'chunked');
  const chunks: Buffer[] = [];
  for await (const chunk of response) chunks.push(chunk as Buffer);
  const answers = JSON.parse(Buffer.concat(chunks).toString('utf8')) as { id: number; result: { data: string } }[];
  t.strictSame(
    answers.map(({ id }) => id),
    Array.from({ length: 60 }, (_, i) => i),
  );
  t.ok(answers.every(({ result }) => result.data.length === 1_000_000));
});
