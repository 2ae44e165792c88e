import { execFile } from 'node:child_process';
import { connect as connectHttp2 } from 'node:http2';
import { connect, type Socket } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import t, { type Test } from 'tap';
import { VirtualClock } from '../../../../base/virtual-clock.ts';
import { CODES } from '../../../../proto/wire/codes.ts';
import { Frame, FRAMES_TYPE } from '../../../../proto/wire/frames.ts';
import { httpPort } from '../../../../sidecar/accept/http.ts';
import { openApi } from '../../../../sidecar/accept/openapi.ts';
import type { Port } from '../../../../sidecar/accept/server.ts';
import { failed } from '../../../../sidecar/call/reply.ts';
import { refusing, Verdict } from '../../../../sidecar/call/verdict.ts';
import { type FrontOptions, type Script, type ScriptedBody, ScriptedFront } from '../../../support/front.ts';
import { dechunked, framesOf } from '../../../support/frames.ts';
import { grpcurl } from '../../../support/grpcurl.ts';
import { ask, head, RawClient } from '../../../support/raw-http.ts';
import { waitUntil } from '../../../support/settle.ts';

const INVOKE = '/v1/invoke/crm.order.query';
const STREAM = '/v1/stream/crm.order.query';

interface Opened {
  readonly front: ScriptedFront;
  readonly port: Port;
  readonly at: number;
}

async function open(t: Test, script: Script, more: Partial<FrontOptions> = {}): Promise<Opened> {
  const front = new ScriptedFront({ script, ...more });
  const port = httpPort(front);
  await port.open();
  t.teardown(async () => {
    await port.close(200);
    // An assertion cannot be made after a test's end, so what is wrong is thrown.
    const { started, ended, inFlight } = {
      started: front.observation.started(),
      ended: front.observation.ended(),
      inFlight: front.observation.inFlight(),
    };
    const records = front.accessLines().length;
    if (inFlight !== 0 || started !== ended || records !== ended || port.connections !== 0)
      throw new Error(`left behind: ${JSON.stringify({ started, ended, inFlight, records, connections: port.connections })}`);
  });
  return { front, port, at: port.address.port };
}

/** Says something and does not read. */
async function deaf(at: number, text: string): Promise<Socket> {
  const socket = connect(at, '127.0.0.1');
  socket.on('error', () => undefined);
  socket.pause();
  await new Promise<void>((done) => socket.once('connect', () => done()));
  socket.write(text);
  return socket;
}

const ok: Script = (call, stage) => stage.answer(call, 200, '{"ok":true}');
const json = (text: string): Record<string, unknown> => JSON.parse(text) as Record<string, unknown>;

t.test("a success comes as one Result with the provider's bytes as they were", async (t) => {
  const bytes = '{ "id": 9007199254740993, "big": 1e400, "zero": -0, "one": 1.0, "text": "ü\\u0000" }';
  const { at, front } = await open(t, (call, stage) =>
    stage.answer(call, 201, bytes, { 'content-type': 'application/json; charset=utf-8' }),
  );
  const answer = await ask(
    at,
    'POST',
    '/v1/invoke/crm.order.query@%5E2.0',
    { traceparent: `00-${'a'.repeat(32)}-${'b'.repeat(16)}-01` },
    '{"q":1}',
  );
  t.equal(answer.status, 200);
  t.equal(answer.headers['content-type'], 'application/json');
  t.ok(answer.body.includes(`"data":${bytes},"error":null`), 'spliced, not re-written');
  t.match(json(answer.body), {
    code: 0,
    status: 201,
    error: null,
    provider: 'crm.order.a',
    version: '2.1.0',
    degraded: false,
    definitely_success: false,
    trace_id: 'a'.repeat(32),
  });
  const call = front.calls[0];
  t.equal(call?.asked, 'crm.order.query@^2.0');
  t.equal(call?.body.toString(), '{"q":1}');
  t.equal(call?.contentType, 'application/json');
  t.equal(call?.parentSpanId, 'b'.repeat(16));
  t.notOk(call?.stream);
});

t.test('the target reaches the pipeline as it was written, decoded once', async (t) => {
  const { at, front } = await open(t, ok);
  for (const [path, asked] of [
    ['/v1/invoke/crm.order.query@%3E%3D1.0%20%3C3', 'crm.order.query@>=1.0 <3'],
    ['/v1/invoke/crm.order.query@^2.0', 'crm.order.query@^2.0'],
    ['/v1/invoke/crm.admin%2F..%2Fpublic.x', 'crm.admin/../public.x'],
    ['/v1/invoke/crm.public.x#/../admin', 'crm.public.x#/../admin'],
    ['/v1/invoke/a/b', 'a/b'],
    ['/v1/invoke/%2563rm', '%63rm'],
    ['/v1/invoke/CRM.Admin.x', 'CRM.Admin.x'],
    ['/v1/invoke/crm.order.query?mode=envelope', 'crm.order.query'],
    ['/v1/invoke/crm%E2%80%A4order', 'crm․order'],
    ['/v1/%69nvoke/crm.order.query', 'crm.order.query'],
    ['/v1/invoke/', ''],
  ] as const) {
    const answer = await ask(at, 'POST', path, {}, '{}');
    t.equal(answer.status, 200, path);
    t.equal(front.calls.at(-1)?.asked, asked, path);
  }
  t.equal((await ask(at, 'POST', '/v1/invoke/%zz', {}, '{}')).status, 400, 'an escape that is none');
  t.equal((await ask(at, 'POST', '/v1/invoke/%ff', {}, '{}')).status, 400, 'bytes that are no UTF-8');
});

t.test('a body may come in pieces, chunked, or not at all', async (t) => {
  const { at, front } = await open(t, ok);
  const client = await RawClient.to(at);
  client.write(head('POST', INVOKE, { 'content-length': '10', 'content-type': 'application/json' }));
  client.write('{"a":');
  await sleep(20);
  client.write('"xy"}');
  t.equal((await client.answer()).status, 200);
  t.equal(front.calls[0]?.body.toString(), '{"a":"xy"}');
  client.write(`${head('POST', INVOKE, { 'transfer-encoding': 'chunked', 'content-type': 'application/json' })}2\r\n{}\r\n0\r\n\r\n`);
  t.equal((await client.answer()).status, 200);
  t.equal(front.calls[1]?.body.toString(), '{}');
  client.write(head('POST', INVOKE, { 'content-length': '0' }));
  t.equal((await client.answer()).status, 200);
  t.equal(front.calls[2]?.body.length, 0);
  t.equal(front.calls[2]?.contentType, '');
  client.write(head('POST', INVOKE));
  t.equal((await client.answer()).status, 200, 'without any framing there is no body');
  client.close();
});

t.test('pipelined requests are answered in their order', async (t) => {
  let n = 0;
  const { at } = await open(t, async (call, stage) => {
    const mine = ++n;
    if (mine === 1) await sleep(40);
    stage.answer(call, 200, String(mine));
  });
  const client = await RawClient.to(at);
  client.write(head('POST', INVOKE).repeat(3));
  for (const want of [1, 2, 3]) t.equal(json((await client.answer()).body)['data'], want);
  client.close();
});

t.test("raw mode gives the provider's own answer and the rest in headers", async (t) => {
  const { at } = await open(t, (call, stage) => {
    call.degraded = true;
    call.definitelySuccess = true;
    stage.answer(call, 203, 'plain', {
      'content-type': 'text/plain',
      'x-own': '1',
      'set-cookie': ['a=1', 'b=2'],
      connection: 'x-hop',
      'x-hop': '1',
      'keep-alive': 'timeout=1',
      'content-length': '99',
      'reach-provider': 'forged',
      'x-bad': 'a\u0001b',
    });
  });
  for (const [headers, path] of [
    [{ 'reach-mode': 'raw' }, INVOKE],
    [{}, `${INVOKE}?mode=raw`],
  ] as const) {
    const answer = await ask(at, 'POST', path, headers, '{}');
    t.equal(answer.status, 203);
    t.equal(answer.body, 'plain');
    t.match(answer.headers, {
      'content-type': 'text/plain',
      'x-own': '1',
      'set-cookie': 'a=1, b=2',
      'reach-code': '0',
      'reach-provider': 'crm.order.a',
      'reach-version': '2.1.0',
      'reach-attempts': '1',
      'reach-degraded': 'true',
      'reach-definitely-success': 'true',
    });
    t.match(answer.headers['reach-trace-id'], /^[0-9a-f]{32}$/);
    for (const name of ['x-hop', 'x-bad']) t.notOk(name in answer.headers, name);
    t.equal(answer.headers['content-length'], '5');
  }
  const bad = await ask(at, 'POST', INVOKE, { 'reach-mode': 'rwa' }, '{}');
  t.equal(bad.status, 400);
  t.match(json(bad.body), { code: 4003, detail: /raw or envelope/ });
});

t.test('a header that HTTP cannot have is left out of a raw answer, whatever else can have it', async (t) => {
  const { at } = await open(t, (call, stage) =>
    stage.answer(call, 200, '{}', {
      'content-type': 'application/json',
      'a b': '1',
      'x:y': '1',
      '': '1',
      'x-cr': 'a\r\nb: c',
      'x-ok': '1',
    }),
  );
  const raw = await ask(at, 'POST', INVOKE, { 'reach-mode': 'raw' }, '{}');
  t.match(raw, { status: 200, body: '{}', headers: { 'x-ok': '1', 'reach-code': '0' } });
  t.notOk(Object.keys(raw.headers).some((name) => /a b|x:y|x-cr/.test(name)));
});

t.test('an answer without a body is null, or stays empty in raw mode', async (t) => {
  const { at } = await open(t, (call, stage) => stage.answer(call, 204, '', { 'content-length': '12' }));
  t.match(json((await ask(at, 'POST', INVOKE, {}, '{}')).body), { code: 0, status: 204, data: null });
  const client = await RawClient.to(at);
  client.write(head('POST', INVOKE, { 'reach-mode': 'raw' }));
  const raw = await client.answer();
  t.equal(raw.status, 204);
  t.notOk('content-length' in raw.headers);
  client.write(head('POST', INVOKE));
  t.equal((await client.answer()).status, 200, 'the connection goes on');
  client.close();
});

t.test("a failure is a problem document with the code's status and every field of the Result", async (t) => {
  const busy = refusing('slots', 'provider_busy', 3003, '{a} has {b} calls');
  const { at } = await open(t, (call) => {
    call.refusal = new Verdict(busy, 'crm.order.a', 7);
    call.code = 3003;
    call.retryAfterMs = 1_200;
  });
  const answer = await ask(at, 'POST', INVOKE, {}, '{}');
  t.equal(answer.status, 503);
  t.equal(answer.headers['content-type'], 'application/problem+json');
  t.equal(answer.headers['retry-after'], '2', 'never earlier than said');
  const body = json(answer.body);
  t.match(body, {
    type: 'urn:agent-reach:error:3003',
    status: 503,
    code: 3003,
    name: 'provider_busy',
    detail: 'crm.order.a has 7 calls',
    retryable: true,
    ambiguous: false,
    retry_after_ms: 1200,
    data: null,
    provider: null,
    version: null,
    attempts: [],
  });
  t.match(body, {
    error: {
      code: 3003,
      name: 'provider_busy',
      message: /^The provider has/,
      retryable: true,
      ambiguous: false,
      detail: 'crm.order.a has 7 calls',
    },
  });
  t.equal(body['instance'], `urn:agent-reach:trace:${String(body['trace_id'])}`);
  const raw = await ask(at, 'POST', INVOKE, { 'reach-mode': 'raw' }, '{}');
  t.equal(raw.status, 503);
  t.match(raw.headers, {
    'reach-code': '3003',
    'reach-ambiguous': 'false',
    'reach-detail': 'crm.order.a%20has%207%20calls',
    'reach-retry-after-ms': '1200',
  });
});

t.test('every code of the table has its status on the wire', async (t) => {
  let code = 0;
  const { at } = await open(t, (call) => {
    call.code = code as typeof call.code;
  });
  for (const entry of CODES) {
    if (entry.code === 0) continue;
    code = entry.code;
    const answer = await ask(at, 'POST', INVOKE, {}, '{}');
    t.equal(answer.status, entry.http, entry.name);
    t.match(json(answer.body), { code: entry.code, name: entry.name, title: entry.meaning });
    if (entry.code === 4001) t.equal(answer.headers['www-authenticate'], 'Bearer');
  }
});

t.test("the agent's own error keeps its status and its data", async (t) => {
  const { at } = await open(t, (call, stage) =>
    stage.answer(call, 422, '{"why":"no stock"}', { 'content-type': 'application/json' }, 6001),
  );
  const answer = await ask(at, 'POST', INVOKE, {}, '{}');
  t.equal(answer.status, 422);
  t.match(json(answer.body), {
    code: 6001,
    status: 422,
    data: { why: 'no stock' },
    error: { name: 'provider_error' },
    provider: 'crm.order.a',
  });
  const raw = await ask(at, 'POST', INVOKE, { 'reach-mode': 'raw' }, '{}');
  t.equal(raw.status, 422);
  t.equal(raw.body, '{"why":"no stock"}');
  t.equal(raw.headers['reach-code'], '6001');
});

t.test('the decision is told to those who ask', async (t) => {
  const { at } = await open(t, ok);
  for (const wish of ['1', 'true'])
    t.match(json((await ask(at, 'POST', INVOKE, { 'reach-explain': wish }, '{}')).body), { capability: 'crm.order.query', decision: [] });
  t.notOk('decision' in json((await ask(at, 'POST', INVOKE, {}, '{}')).body));
  const explained = await ask(at, 'GET', '/v1/explain/crm.order.query');
  t.equal(explained.status, 200);
  t.match(json(explained.body), { asked: 'crm.order.query' });
  t.equal((await ask(at, 'GET', '/v1/explain/crm.order.query', { authorization: null })).status, 401, 'not to strangers');
});

t.test('what a way in throws is a fault of ours, not the end of the process', async (t) => {
  const { at, front } = await open(t, (call, stage) => {
    stage.answer(call, 200, '{}');
    Object.defineProperty(call, 'reply', {
      get: () => {
        throw new Error('secret words');
      },
    });
  });
  const answer = await ask(at, 'POST', INVOKE, {}, '{}');
  t.equal(answer.status, 500);
  t.match(json(answer.body), { code: 9001 });
  t.notOk(answer.body.includes('secret'));
  t.ok(front.lines.some((line) => line.includes('a fault')));
});

t.test('requests of web pages are refused on every path, before anything happens', async (t) => {
  const { at, front } = await open(t, ok);
  const paths = [
    ['POST', INVOKE],
    ['POST', STREAM],
    ['GET', '/v1/explain/crm.order.query'],
    ['GET', '/v1/capabilities'],
    ['GET', '/v1/health'],
    ['GET', '/v1/ready'],
    ['GET', '/metrics'],
    ['GET', '/v1/openapi.json'],
    ['GET', '/nothing'],
    ['OPTIONS', INVOKE],
    ['GET', '/%zz'],
  ] as const;
  const bad: Record<string, string | null>[] = [
    { host: 'evil.test' },
    { host: 'localhost.evil.test' },
    { host: 'evil.test:80' },
    { host: '127.0.0.1, evil.test' },
    { host: 'localhost:' },
    { host: 'localhost:80x' },
    { host: '' },
    { origin: 'https://evil.test' },
    { origin: 'null' },
    { origin: 'http://127.0.0.1:1' },
    { origin: 'http://127.0.0.1.evil.test' },
    { 'sec-fetch-site': 'cross-site' },
    { 'sec-fetch-site': 'same-site' },
    { origin: 'https://evil.test', connection: 'Upgrade', upgrade: 'websocket' },
  ];
  for (const [method, path] of paths)
    for (const headers of bad) t.equal((await ask(at, method, path, headers)).status, 403, `${method} ${path} ${JSON.stringify(headers)}`);
  for (const type of ['text/plain', 'Text/Plain;charset=utf-8', 'application/x-www-form-urlencoded', 'multipart/form-data; boundary=x'])
    t.equal((await ask(at, 'POST', INVOKE, { authorization: null, 'content-type': type }, 'x')).status, 403, type);
  t.equal((await ask(at, 'POST', INVOKE, { host: 'evil.test' }, 'x'.repeat(100_000))).status, 403, 'also with a body that is still coming');
  t.equal(front.calls.length, 0);
  const twice = await RawClient.to(at);
  twice.write(`POST ${INVOKE} HTTP/1.1\r\nhost: localhost\r\nhost: evil.test\r\ncontent-length: 0\r\n\r\n`);
  t.equal((await twice.answer()).status, 403, 'two hosts are none');
  twice.close();
  for (const host of ['localhost', 'LOCALHOST:1', '127.0.0.1:65535', '[::1]', '[::1]:80', 'reach.internal:9', `127.0.0.1:${at}`])
    t.equal((await ask(at, 'GET', '/v1/health', { host })).status, 200, host);
  t.equal(
    (await ask(at, 'GET', '/v1/health', { host: `localhost:${at}`, origin: `http://localhost:${at}`, 'sec-fetch-site': 'same-origin' }))
      .status,
    200,
    'a page of our own',
  );
  t.equal((await ask(at, 'POST', INVOKE, { 'content-type': 'text/plain' }, 'x')).status, 200, 'with a credential any type is fine');
});

t.test('a body whose length could be read in two ways is refused and the connection closed', async (t) => {
  const { at, front } = await open(t, ok);
  const smuggled = `${head('POST', '/v1/invoke/smuggled.by.body', { 'content-length': '0' })}`;
  const chunked = `${Buffer.byteLength(smuggled).toString(16)}\r\n${smuggled}\r\n0\r\n\r\n`;
  const variants: Record<string, string> = {
    'length 0 and chunked': `${head('POST', INVOKE, { 'content-length': '0', 'transfer-encoding': 'chunked' })}${chunked}`,
    'chunked and length': `${head('POST', INVOKE, { 'transfer-encoding': 'chunked', 'content-length': '5' })}${chunked}`,
    'two lengths': `POST ${INVOKE} HTTP/1.1\r\nhost: localhost\r\ncontent-length: 0\r\ncontent-length: ${smuggled.length}\r\n\r\n${smuggled}`,
    'the same length twice': `POST ${INVOKE} HTTP/1.1\r\nhost: localhost\r\ncontent-length: 2\r\ncontent-length: 2\r\n\r\n{}${smuggled}`,
    'a list of lengths': `${head('POST', INVOKE, { 'content-length': '0, 0' })}${smuggled}`,
    'gzip, chunked': `${head('POST', INVOKE, { 'transfer-encoding': 'gzip, chunked' })}0\r\n\r\n${smuggled}`,
    'chunked, gzip': `${head('POST', INVOKE, { 'transfer-encoding': 'chunked, gzip' })}0\r\n\r\n${smuggled}`,
    'chunked twice': `POST ${INVOKE} HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n${smuggled}`,
    identity: `${head('POST', INVOKE, { 'transfer-encoding': 'identity' })}${smuggled}`,
    xchunked: `${head('POST', INVOKE, { 'transfer-encoding': 'xchunked' })}0\r\n\r\n${smuggled}`,
    'space before the colon': `POST ${INVOKE} HTTP/1.1\r\nhost: localhost\r\nTransfer-Encoding : chunked\r\n\r\n0\r\n\r\n${smuggled}`,
    'a folded line': `POST ${INVOKE} HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding:\r\n chunked\r\ncontent-length: 0\r\n\r\n${smuggled}`,
    'length +5': `${head('POST', INVOKE, { 'content-length': '+5' })}hello${smuggled}`,
    'length -5': `${head('POST', INVOKE, { 'content-length': '-5' })}hello${smuggled}`,
    'length 0x5': `${head('POST', INVOKE, { 'content-length': '0x5' })}hello${smuggled}`,
    'bare LF': `POST ${INVOKE} HTTP/1.1\nhost: localhost\ntransfer-encoding: chunked\n\n0\n\n${smuggled}`,
    'chunked in HTTP/1.0': `${head('POST', INVOKE, { 'transfer-encoding': 'chunked' }, '1.0')}0\r\n\r\n${smuggled}`,
  };
  for (const [what, bytes] of Object.entries(variants)) {
    const client = await RawClient.to(at);
    client.write(bytes);
    const answer = await client.answer();
    t.equal(answer.status, 400, what);
    t.ok(await client.closed(), `${what}: closed`);
    t.equal(client.text.length, 0, `${what}: one answer only`);
  }
  t.equal(front.calls.length, 0, 'nothing became a call');
  t.equal(front.observation.started(), 0);
});

t.test('what is too large is refused with the limit, and the caller can read the answer', async (t) => {
  const { at, front } = await open(t, ok, {
    config: { limits: { bodyBytes: 1_000, headerBytes: 4_096, connections: 100, batch: 100, unsentBytes: 1_048_576, stallMs: 10_000 } },
  });
  const announced = await ask(at, 'POST', INVOKE, {}, 'x'.repeat(2_000_000));
  t.equal(announced.status, 413);
  t.equal(announced.headers['connection'], 'close');
  t.match(json(announced.body), { code: 4005, detail: /1000 bytes/ });
  const client = await RawClient.to(at);
  client.write(`${head('POST', INVOKE, { 'transfer-encoding': 'chunked' })}${'400\r\n'}${'x'.repeat(1024)}\r\n`);
  t.equal((await client.answer()).status, 413, 'also when the length is not announced');
  client.close();
  const heads = await ask(at, 'POST', INVOKE, { 'x-large': 'x'.repeat(20_000) }, '{}');
  t.equal(heads.status, 431);
  t.match(json(heads.body), { code: 4005, detail: /4096 bytes/ });
  t.equal((await ask(at, 'POST', INVOKE, {}, 'x'.repeat(1_000))).status, 200, 'the limit itself is fine');
  t.equal(front.calls.length, 1);
});

t.test('garbage on the wire gets one answer at most and harms nobody else', async (t) => {
  const { at } = await open(t, ok);
  for (const garbage of [
    '\u0016\u0003\u0001\u0000',
    'GET / HTTP/9.9\r\n\r\n',
    'CONNECT evil.test:443 HTTP/1.1\r\nhost: evil.test\r\n\r\n',
    'POST http://evil.test/v1/invoke/x HTTP/1.1\r\nhost: localhost\r\n\r\n',
    '\r\n'.repeat(5_000),
    'A'.repeat(50_000),
  ]) {
    const client = await RawClient.to(at);
    client.write(garbage);
    await client.until((text) => text.includes('\r\n\r\n'), 300);
    if (client.received.length > 0) t.match(client.text, /^HTTP\/1\.1 4\d\d /);
    client.close();
  }
  t.equal((await ask(at, 'POST', INVOKE, {}, '{}')).status, 200);
});

t.test('a caller that does not take a whole answer is cut off after the stall limit; one that takes it slowly is not', async (t) => {
  const body = JSON.stringify('x'.repeat(12_000_000));
  const limits = { bodyBytes: 65_536, headerBytes: 16_384, connections: 100, batch: 100, unsentBytes: 65_536, stallMs: 300 };
  const { at, port } = await open(t, (call, stage) => stage.answer(call, 200, body), { config: { limits } });
  for (const path of [INVOKE, STREAM, '/rpc']) {
    const request = path === '/rpc' ? '{"jsonrpc":"2.0","id":1,"method":"crm.order.query"}' : '{}';
    const never = await deaf(at, `${head('POST', path, { 'content-length': String(request.length) })}${request}`);
    await waitUntil(`${path}: it is there`, () => port.connections === 1);
    await sleep(150);
    t.equal(port.connections, 1, `${path}: borne for a while`);
    await waitUntil(`${path}: cut off`, () => port.connections === 0, 3_000);
    never.destroy();
  }
  const slow = await deaf(at, `${head('POST', INVOKE, { 'content-length': '2' })}{}`);
  let bytes = 0;
  const began = performance.now();
  slow.on('data', (chunk: Buffer) => {
    bytes += chunk.length;
    slow.pause();
  });
  while (bytes < body.length && !slow.destroyed && performance.now() - began < 15_000) {
    slow.resume();
    await sleep(5);
  }
  t.ok(bytes > body.length, `${bytes} bytes came`);
  t.ok(performance.now() - began > 600, 'and it took longer than two limits');
  slow.destroy();
});

t.test('the stall limit is for answers: waiting for a provider, a slow body and a stream that nobody reads are no stalls', async (t) => {
  const limits = { bodyBytes: 65_536, headerBytes: 16_384, connections: 100, batch: 100, unsentBytes: 65_536, stallMs: 100 };
  let source: ScriptedBody | null = null;
  const { at, port, front } = await open(
    t,
    async (call, stage) => {
      if (call.asked === 'slow.one.here') {
        await sleep(350);
        stage.answer(call, 200, '{}');
      } else source = stage.stream(call, { 'content-type': 'application/octet-stream' });
    },
    { config: { limits } },
  );
  t.equal((await ask(at, 'POST', '/v1/invoke/slow.one.here', {}, '{}')).status, 200);
  const client = await RawClient.to(at);
  client.write(head('POST', '/v1/invoke/slow.one.here', { 'content-length': '2' }));
  await sleep(350);
  client.write('{}');
  t.equal((await client.answer()).status, 200);
  client.close();
  await waitUntil('nobody is there', () => port.connections === 0);
  const reader = await deaf(at, head('GET', STREAM, {}));
  await waitUntil('it has begun', () => source !== null && source.sink !== null);
  const body = source as unknown as ScriptedBody;
  while (body.push(Buffer.alloc(1_000_000))) await sleep(1);
  await sleep(350);
  t.equal(port.connections, 1);
  t.equal(body.cancelled, null, 'the caller sets the pace');
  // As the total deadline does it.
  body.cut(5001, 'the total deadline has passed');
  t.equal(front.observation.inFlight(), 0, 'the call is over, and nothing of it is held');
  t.match(front.accessLines().at(-1), { code: 5001 });
  reader.destroy();
});

t.test('requests sent far ahead of their answers are bounded', async (t) => {
  const release: (() => void)[] = [];
  const { at, front } = await open(t, async (call, stage) => {
    await new Promise<void>((done) => release.push(done));
    stage.answer(call, 200, '{}');
  });
  const client = await RawClient.to(at);
  client.write(head('GET', STREAM, {}).repeat(100));
  await waitUntil('as many as may be are under way', () => release.length === 64);
  await sleep(20);
  t.equal(front.calls.length, 64);
  for (const done of release) done();
  for (let i = 0; i < 64; i++) t.equal((await client.answer()).status, 200);
  const last = await client.answer();
  t.equal(last.headers['connection'], 'close');
  t.match(json(last.body), { code: 3002, detail: /ahead of their answers/ });
  t.ok(await client.closed());
});

t.test('a client of HTTP/2 is let go at once, and why is said once', async (t) => {
  const hints: string[] = [];
  const { at, front, port } = await open(t, ok);
  front.observation.hint = (words) => void hints.push(words);
  for (let i = 0; i < 2; i++) {
    const session = connectHttp2(`http://127.0.0.1:${at}`);
    session.on('error', () => undefined);
    const began = performance.now();
    await new Promise<void>((done) => session.on('close', () => done()));
    t.ok(performance.now() - began < 2_000, 'at once');
  }
  t.strictSame(hints.length, 1);
  t.match(hints[0], /spoke HTTP\/2 to a port for HTTP\/1\.1 .* sidecar\.grpc opens one/);
  await waitUntil('nothing stays', () => port.connections === 0);
  const program = grpcurl();
  if (program !== null) {
    const began = performance.now();
    const ended = await new Promise<string>((done) =>
      execFile(program, ['-plaintext', `127.0.0.1:${at}`, 'list'], { timeout: 20_000 }, (_error, _out, err) => done(err)),
    );
    t.match(ended, /Failed to dial/);
    t.ok(performance.now() - began < 5_000, 'grpcurl does not wait for its own limit');
  }
  t.equal(front.calls.length, 0);
});

t.test('a caller that goes away cancels its call, once', async (t) => {
  let cancels = 0;
  const { at, front } = await open(
    t,
    (call) =>
      new Promise<void>((done) => {
        call.onCancel = () => {
          cancels++;
          call.code = 5003;
          done();
        };
      }),
  );
  for (const body of ['{}', 'x'.repeat(20_000)]) {
    const client = await RawClient.to(at);
    client.write(head('POST', INVOKE, { 'content-length': String(body.length) }));
    client.write(body.slice(0, 1));
    await sleep(5);
    client.write(body.slice(1));
    await waitUntil('the call is under way', () => front.observation.inFlight() === 1);
    client.close();
    await waitUntil('the call is cancelled', () => front.observation.inFlight() === 0, 500);
  }
  t.equal(cancels, 2);
  t.ok(
    front.accessLines().every((line) => line['outcome'] === 'cancelled' && line['level'] === 30),
    'told quietly',
  );
});

t.test('a read body is no disconnect, and neither is a kept connection', async (t) => {
  let release: (() => void) | null = null;
  const { at, front } = await open(t, async (call, stage) => {
    await new Promise<void>((done) => (release = done));
    stage.answer(call, 200, '{}');
  });
  for (const connection of ['keep-alive', 'close']) {
    const client = await RawClient.to(at);
    client.write(`${head('POST', INVOKE, { 'content-length': '2', connection })}{}`);
    await waitUntil('under way', () => release !== null);
    await sleep(30);
    t.notOk(front.calls.at(-1)?.cancelled);
    (release as unknown as () => void)();
    release = null;
    t.equal((await client.answer()).status, 200);
    client.close();
  }
});

t.test('a stream of chunks passes through as it comes and ends as it ended', async (t) => {
  let body: ScriptedBody | null = null;
  const { at } = await open(t, (call, stage) => {
    body = stage.stream(call, { 'content-type': 'application/x-ndjson', 'content-length': '5', 'x-own': '1', connection: 'close' });
  });
  const client = await RawClient.to(at);
  client.write(head('POST', STREAM, { 'content-length': '2' }));
  client.write('{}');
  await client.until((text) => text.includes('\r\n\r\n'));
  const source = body as unknown as ScriptedBody;
  t.match(client.text, /^HTTP\/1\.1 200 /, 'the head does not wait for the body');
  source.push('{"a":1}\n');
  await client.until((text) => text.includes('{"a":1}'));
  source.push('{"b":2}\n');
  source.end();
  const answer = await client.answer();
  t.equal(answer.body, '{"a":1}\n{"b":2}\n');
  t.ok(answer.isWhole);
  t.match(answer.headers, {
    'content-type': 'application/x-ndjson',
    'transfer-encoding': 'chunked',
    'x-own': '1',
    'reach-provider': 'crm.order.a',
    'reach-code': '0',
  });
  t.notOk('content-length' in answer.headers);
  client.close();
});

t.test('a cut stream of chunks breaks off without its last chunk', async (t) => {
  for (const version of ['1.1', '1.0']) {
    const { at, front } = await open(t, (call, stage) => {
      const source = stage.stream(call, { 'content-type': 'application/octet-stream' });
      setImmediate(() => {
        for (const chunk of ['one', 'two', 'three']) source.push(chunk);
        source.cut(1006, 'connection reset');
      });
    });
    const client = await RawClient.to(at);
    client.write(head('GET', STREAM, {}, version));
    t.ok(await client.closed());
    const answer = await client.answer();
    if (version === '1.1') {
      t.equal(answer.body, 'onetwothree', 'what came is not lost');
      t.notOk(answer.isWhole);
      t.notOk(client.text.includes('reset'), 'no words inside the data');
    }
    t.match(front.accessLines()[0], { code: 1006, outcome: 'error' });
  }
});

t.test('chunks become events for a caller that wants events', async (t) => {
  const emoji = Buffer.from('data é 💡\nnext');
  const { at } = await open(t, (call, stage) => {
    const source = stage.stream(call, { 'content-type': 'text/plain', 'cache-control': 'max-age=60' });
    setImmediate(() => {
      for (const byte of emoji) source.push(Buffer.from([byte]));
      source.push(Buffer.from([0xc3]));
      source.end();
    });
  });
  const client = await RawClient.to(at);
  client.write(head('POST', STREAM, { accept: 'text/event-stream' }));
  const answer = await client.answer();
  t.match(answer.headers, { 'content-type': 'text/event-stream; charset=utf-8', 'cache-control': 'no-cache' });
  const events = eventsOf(answer.body);
  const last = events.pop();
  t.equal(
    events.map((event) => event.data).join(''),
    `${emoji.toString()}\ufffd`,
    'characters cut in two come whole; half a one at the end is one mark',
  );
  t.match(last, { type: 'end' });
  t.match(json((last as { data: string }).data), { code: 0, error: null, provider: 'crm.order.a' });
  client.close();
});

t.test('bytes that are no text come as base64 events', async (t) => {
  const bytes = Buffer.from([0, 255, 10, 13, 128]);
  const { at } = await open(t, (call, stage) => {
    const source = stage.stream(call, { 'content-type': 'application/octet-stream' });
    setImmediate(() => {
      source.push(bytes);
      source.cut(1006, 'gone');
    });
  });
  const answer = await ask(at, 'GET', STREAM, { accept: 'text/event-stream' });
  const [first, last] = eventsOf(answer.body);
  t.match(first, { type: 'base64', data: bytes.toString('base64') });
  t.match(last, { type: 'error' });
  t.match(json((last as { data: string }).data), { code: 1006, error: { name: 'stream_interrupted' } });
});

t.test("a provider's own events pass through, and a cut is told between two of them", async (t) => {
  const given = ['event: a\r\ndata: 1\r\n', '\r', '\ndata: 2\n\ndata: 3', '\rdata: 33\r\r: comment\n\nid: 9\ndata: half'];
  const { at } = await open(t, (call, stage) => {
    const source = stage.stream(call, { 'content-type': 'text/event-stream' });
    setImmediate(() => {
      for (const piece of given) source.push(piece);
      if (call.asked.endsWith('cut')) source.cut(5001, 'too late');
      else source.end();
    });
  });
  const whole = await ask(at, 'GET', STREAM, { accept: 'text/event-stream' });
  t.equal(whole.body, given.join(''), 'byte by byte');
  const cut = await ask(at, 'GET', `${STREAM}.cut`, { accept: 'text/event-stream' });
  t.ok(cut.isWhole);
  const events = eventsOf(cut.body);
  t.same(
    events.slice(0, -1),
    [
      { type: 'a', data: '1' },
      { type: 'message', data: '2' },
      { type: 'message', data: '3\n33' },
    ],
    'the half event is not there',
  );
  t.match(events.at(-1), { type: 'error' });
  t.notOk(cut.body.includes('half'));
});

t.test('an endless event is not held without end: at the limit the provider is cut off and the caller told', async (t) => {
  const bodies: ScriptedBody[] = [];
  const { at } = await open(t, (call, stage) => {
    const source = stage.stream(call, { 'content-type': 'text/event-stream' });
    bodies.push(source);
    setImmediate(() => {
      source.push('data: fine\n\ndata: ');
      for (let i = 0; i < 40 && source.cancelled === null; i++) source.push('x'.repeat(65_536));
    });
  });
  const answer = await ask(at, 'GET', STREAM, { accept: 'text/event-stream' });
  const events = eventsOf(answer.body);
  t.same(
    events.map((event) => event.type),
    ['message', 'error'],
  );
  t.match(json(events[1]?.data ?? ''), { code: 1005, error: { name: 'response_too_large' } });
  t.match(bodies[0]?.cancelled, { code: 1005, detail: /an event of the stream is above the limit of 1048576 bytes/ });
  t.ok(answer.isWhole, 'the answer itself ends well');
});

t.test('a caller that wants binary frames gets the bytes as they are, their type, and an end that carries the Result', async (t) => {
  const { at } = await open(t, (call, stage) => {
    const source = stage.stream(call, { 'content-type': 'image/png', 'x-own': '1' });
    setImmediate(() => {
      source.push(Buffer.from([0, 255, 13, 10]));
      source.push('two');
      source.end();
    });
  });
  const client = await RawClient.to(at);
  client.write(head('GET', STREAM, { accept: FRAMES_TYPE }));
  await client.until((text) => text.endsWith('0\r\n\r\n'));
  const { head: headText, body } = dechunked(client.received);
  t.match(headText, /content-type: application\/vnd\.agent-reach\.frames\r\n/);
  t.match(headText, /reach-content-type: image\/png\r\n/);
  t.match(headText, /x-own: 1\r\n/);
  t.match(headText, /reach-code: 0\r\n/);
  const frames = framesOf(body);
  t.same(frames.slice(0, 2), [
    [Frame.data, '\x00\xff\r\n'],
    [Frame.data, 'two'],
  ]);
  t.equal(frames[2]?.[0], Frame.end);
  t.match(json(frames[2]?.[1] ?? ''), { code: 0, status: 200, error: null, provider: 'crm.order.a', attempts: [{ code: 0 }] });
  t.equal(frames.length, 3);
  client.close();
});

t.test('a cut is an error frame with the Result; failures before the head and whole answers keep their own form', async (t) => {
  let act: 'cut' | 'failed' | 'static' = 'cut';
  const { at } = await open(t, (call, stage) => {
    if (act === 'failed') {
      call.reply = failed(1001, 'not_started', 'nobody listens');
      call.code = 1001;
    } else if (act === 'static') {
      call.staticBody = Buffer.from('{"sorry":true}');
      call.status = 200;
    } else {
      const source = stage.stream(call, { 'content-type': 'text/plain' });
      setImmediate(() => {
        source.push('half');
        source.cut(1006, 'gone');
      });
    }
  });
  const client = await RawClient.to(at);
  client.write(head('GET', STREAM, { accept: `${FRAMES_TYPE}, */*` }));
  await client.until((text) => text.endsWith('0\r\n\r\n'));
  const frames = framesOf(dechunked(client.received).body);
  t.same(frames[0], [Frame.data, 'half']);
  t.equal(frames[1]?.[0], Frame.error);
  t.match(json(frames[1]?.[1] ?? ''), { code: 1006, error: { code: 1006, name: 'stream_interrupted' } });
  client.close();
  act = 'failed';
  const answer = await ask(at, 'POST', STREAM, { accept: FRAMES_TYPE }, '{}');
  t.match([answer.status, json(answer.body)], [503, { code: 1001 }]);
  act = 'static';
  const second = await RawClient.to(at);
  second.write(`${head('POST', STREAM, { accept: FRAMES_TYPE, 'content-length': '2' })}{}`);
  await second.until((text) => text.endsWith('0\r\n\r\n'));
  const whole = framesOf(dechunked(second.received).body);
  t.same(
    whole.map(([type]) => type),
    [Frame.data, Frame.end],
  );
  t.equal(whole[0]?.[1], '{"sorry":true}');
  second.close();
});

t.test('a stream that failed before its head is an ordinary problem', async (t) => {
  const { at } = await open(t, (call) => {
    call.reply = failed(1001, 'not_started', 'nobody listens');
    call.code = 1001;
  });
  for (const accept of ['*/*', 'text/event-stream']) {
    const answer = await ask(at, 'POST', STREAM, { accept }, '{}');
    t.equal(answer.status, 503);
    t.match(json(answer.body), { code: 1001, detail: 'nobody listens' });
  }
});

t.test('a static answer fits a stream too', async (t) => {
  const { at } = await open(t, (call) => {
    call.staticBody = Buffer.from('{"sorry":true}');
    call.degraded = true;
    call.status = 200;
  });
  const plain = await ask(at, 'POST', STREAM, {}, '{}');
  t.equal(plain.body, '{"sorry":true}');
  t.equal(plain.headers['reach-degraded'], 'true');
  const events = eventsOf((await ask(at, 'POST', STREAM, { accept: 'text/event-stream' }, '{}')).body);
  t.equal(events[0]?.data, '{"sorry":true}');
  t.match(json(events[1]?.data ?? ''), { code: 0, degraded: true, provider: null });
  t.match(json((await ask(at, 'POST', INVOKE, {}, '{}')).body), { data: { sorry: true }, degraded: true, provider: null, status: 200 });
});

t.test('a reader that is slow holds the provider back', async (t) => {
  let body: ScriptedBody | null = null;
  const { at } = await open(t, (call, stage) => {
    body = stage.stream(call, { 'content-type': 'application/octet-stream' });
  });
  const client = await RawClient.to(at);
  client.write(head('GET', STREAM));
  await client.until((text) => text.includes('\r\n\r\n'));
  client.socket.pause();
  const source = body as unknown as ScriptedBody;
  let pushed = 0;
  while (!source.paused && pushed < 1_000) {
    source.push(Buffer.alloc(65_536));
    pushed++;
    if (pushed % 10 === 0) await sleep(1);
  }
  t.ok(source.paused, 'the source is told to wait');
  client.socket.resume();
  await waitUntil('the source goes on', () => source.resumes > 0);
  source.end();
  await client.until((text) => text.endsWith('0\r\n\r\n'));
  client.close();
});

t.test('a caller that leaves a stream stops it; nothing is written after it', async (t) => {
  const bodies: ScriptedBody[] = [];
  const { at, front } = await open(t, (call, stage) => {
    bodies.push(stage.stream(call, { 'content-type': 'text/plain' }));
  });
  for (const accept of ['*/*', 'text/event-stream']) {
    const client = await RawClient.to(at);
    client.write(head('GET', STREAM, { accept }));
    await client.until((text) => text.includes('\r\n\r\n'));
    const source = bodies.at(-1) as ScriptedBody;
    source.push('one');
    await client.until((text) => text.includes('one'));
    client.close();
    await waitUntil('the provider is told', () => source.cancelled !== null, 500);
    t.equal(source.cancelled?.code, 5003);
    source.push('two');
    source.end();
  }
  t.ok(front.accessLines().every((line) => line['outcome'] === 'cancelled'));
});

t.test('a caller that leaves before the head of a stream leaves nothing behind', async (t) => {
  let release: (() => void) | null = null;
  const bodies: ScriptedBody[] = [];
  const { at, front } = await open(t, async (call, stage) => {
    await new Promise<void>((done) => (release = done));
    bodies.push(stage.stream(call, { 'content-type': 'text/plain' }));
  });
  const client = await RawClient.to(at);
  client.write(head('GET', STREAM));
  await waitUntil('under way', () => release !== null);
  client.close();
  await waitUntil('noticed', () => front.calls[0]?.cancelled === true);
  (release as unknown as () => void)();
  await waitUntil('stopped', () => bodies[0]?.cancelled !== null && bodies[0] !== undefined);
  t.equal(front.observation.inFlight(), 0);
});

t.test('an idle stream of events says every 15 s that it lives', async (t) => {
  const clock = new VirtualClock();
  let body: ScriptedBody | null = null;
  const front = new ScriptedFront({
    clock,
    script: (call, stage) => {
      body = stage.stream(call, { 'content-type': 'text/event-stream' });
    },
  });
  const port = httpPort(front);
  await port.open();
  const client = await RawClient.to(port.address.port);
  client.write(head('GET', STREAM, { accept: 'text/event-stream' }));
  await client.until((text) => text.includes('\r\n\r\n'));
  const source = body as unknown as ScriptedBody;
  await clock.advance(14_000);
  source.push('data: 1\n\n');
  await clock.advance(14_000);
  t.notOk(client.text.includes('keep-alive\n'), 'not while there is traffic');
  await clock.advance(1_500);
  await client.until((text) => text.includes(': keep-alive\n\n'));
  t.match(client.text, /: keep-alive\n\n/);
  source.end();
  await client.until((text) => text.endsWith('0\r\n\r\n'));
  t.equal(clock.nextAt(), null, 'no timer is left');
  client.close();
  const closing = port.close(1_000);
  await waitUntil('closed', () => port.connections === 0);
  await closing;
});

t.test('an idle stream of frames says so too, with a frame', async (t) => {
  const clock = new VirtualClock();
  let body: ScriptedBody | null = null;
  const front = new ScriptedFront({ clock, script: (call, stage) => void (body = stage.stream(call, {})) });
  const port = httpPort(front);
  await port.open();
  const client = await RawClient.to(port.address.port);
  client.write(head('GET', STREAM, { accept: FRAMES_TYPE }));
  await client.until((text) => text.includes('\r\n\r\n'));
  for (let i = 1; i <= 3; i++) {
    await clock.advance(15_000);
    await client.until(() => framesOf(dechunked(client.received).body).length === i);
  }
  (body as unknown as ScriptedBody).end();
  await client.until((text) => text.endsWith('0\r\n\r\n'));
  t.same(
    framesOf(dechunked(client.received).body).map(([type]) => type),
    [Frame.keepAlive, Frame.keepAlive, Frame.keepAlive, Frame.end],
  );
  client.close();
  const closing = port.close(1_000);
  await waitUntil('closed', () => port.connections === 0);
  await closing;
});

t.test('lines of a provider are events of their own, asked for as events', async (t) => {
  const { at } = await open(t, (call, stage) => {
    const source = stage.stream(call, { 'content-type': 'application/x-ndjson' });
    setImmediate(() => {
      source.push('{"n":1}\n{"n":2}\n{"n"');
      source.push(':3}\n');
      source.end();
    });
  });
  const events = eventsOf((await ask(at, 'GET', STREAM, { accept: 'text/event-stream' })).body);
  t.same(
    events.map((event) => [event.type, event.type === 'end' ? '' : event.data]),
    [
      ['message', '{"n":1}'],
      ['message', '{"n":2}'],
      ['message', '{"n":3}'],
      ['end', ''],
    ],
  );
});

t.test('until a table is loaded calls are told to wait, never that nothing exists', async (t) => {
  const { at, front } = await open(t, ok);
  front.scripted.ready = false;
  for (const [method, path] of [
    ['POST', INVOKE],
    ['POST', STREAM],
    ['GET', '/v1/explain/x.y.z'],
  ] as const) {
    const answer = await ask(at, method, path);
    t.equal(answer.status, 503);
    t.equal(answer.headers['retry-after'], '1');
    t.match(json(answer.body), { code: 2003, retryable: true, detail: /starting/ });
  }
  t.match(json((await ask(at, 'GET', '/v1/ready')).body), { ready: false, status: 'starting' });
  t.equal((await ask(at, 'GET', '/v1/ready')).status, 503);
  t.equal((await ask(at, 'GET', '/v1/health')).status, 200, 'alive all the same');
  front.scripted.ready = true;
  t.equal((await ask(at, 'GET', '/v1/ready')).status, 200);
  t.equal((await ask(at, 'POST', INVOKE, {}, '{}')).status, 200);
  front.draining = true;
  const leaving = await ask(at, 'POST', INVOKE, {}, '{}');
  t.equal(leaving.status, 503);
  t.equal(leaving.headers['connection'], 'close');
  t.match(json(leaving.body), { code: 2006 });
  t.equal((await ask(at, 'GET', '/v1/ready')).status, 503);
});

t.test('health tells of a table that was refused', async (t) => {
  const { at, front } = await open(t, ok);
  front.scripted.staleBecause = 'the newest team.yaml was refused: 1 problem';
  front.scripted.refusals = 1;
  front.scripted.problems = [{ file: 'team.yaml', line: 3, column: 5, path: '/contracts/0/acl', message: 'is missing' }];
  t.match(json((await ask(at, 'GET', '/v1/health')).body), {
    status: 'stale',
    table: { version: 1, source: 'file', refusals: 1, stale_because: /refused/, problems: [{ line: 3, column: 5 }] },
  });
  t.match((await ask(at, 'GET', '/metrics')).body, /reach_rejected_pushes_total 1/);
  const headOnly = await RawClient.to(at);
  headOnly.write(head('HEAD', '/v1/health', { connection: 'close' }));
  await headOnly.closed();
  t.match(headOnly.text, /^HTTP\/1\.1 200 [^]*\r\n\r\n$/, 'a head only');
});

t.test('a caller sees only what it may call', async (t) => {
  const { at } = await open(t, ok, { acl: { isPublic: false, patterns: [{ text: 'shop.*', team: 'shop', role: null, id: null }] } });
  const seen = json((await ask(at, 'GET', '/v1/capabilities')).body);
  t.match(seen, {
    caller: 'shop.chat.1',
    serves: null,
    capabilities: [
      { name: 'crm.order.query', versions: [{ version: '2.1.0', examples: [{ id: 1 }], providers: { known: 1, usable: 1 } }] },
    ],
  });
  t.equal((await ask(at, 'GET', '/v1/capabilities', { authorization: null })).status, 401);
  t.equal((await ask(at, 'GET', '/v1/capabilities', { authorization: 'Bearer bad' })).status, 401);
  const other = await open(t, ok, { acl: { isPublic: false, patterns: [{ text: 'hr.*', team: 'hr', role: null, id: null }] } });
  t.match(json((await ask(other.at, 'GET', '/v1/capabilities')).body), { capabilities: [] });
});

t.test('an unknown path or method is a problem that names the way out', async (t) => {
  const { at, front } = await open(t, ok);
  for (const [method, path] of [
    ['GET', '/'],
    ['POST', '/v1/invok/x'],
    ['POST', '/v2/invoke/x'],
  ] as const) {
    const answer = await ask(at, method, path);
    t.equal(answer.status, 404, `${method} ${path}`);
    t.match(json(answer.body), { code: 4003, detail: /openapi/ });
  }
  for (const [method, path, allowed] of [
    ['GET', INVOKE, 'POST'],
    ['PUT', `${INVOKE}@%5E1.0?x=1`, 'POST'],
    ['DELETE', '/v1/health', 'GET, HEAD'],
  ] as const) {
    const answer = await ask(at, method, path);
    t.equal(answer.status, 405, `${method} ${path}`);
    t.equal(answer.headers['allow'], allowed);
    t.match(json(answer.body), { code: 4003, detail: `send it with ${allowed.replace(', ', ' or ')}` });
  }
  t.equal(front.calls.length, 0);
});

t.test('closing lets what is under way finish, and cuts it when the grace is over', async (t) => {
  let release: (() => void) | null = null;
  const script: Script = async (call, stage) => {
    await new Promise<void>((done) => {
      release = done;
      call.onCancel = done;
    });
    if (!call.cancelled) stage.answer(call, 200, '{}');
    else call.code = 5003;
  };
  const first = new ScriptedFront({ script });
  const port = httpPort(first);
  await port.open();
  const idle = await RawClient.to(port.address.port);
  const busy = await RawClient.to(port.address.port);
  busy.write(head('POST', INVOKE));
  await waitUntil('under way', () => release !== null);
  const closing = port.close(5_000);
  t.ok(await idle.closed(500), 'idle connections close at once');
  await t.rejects(RawClient.to(port.address.port), 'no new ones are taken');
  (release as unknown as () => void)();
  t.equal((await busy.answer()).status, 200);
  await closing;
  t.equal(port.connections, 0);

  const second = new ScriptedFront({ script });
  const hurried = httpPort(second);
  await hurried.open();
  const held = await RawClient.to(hurried.address.port);
  held.write(head('POST', INVOKE));
  await waitUntil('under way', () => second.observation.inFlight() === 1);
  await hurried.close(50);
  t.ok(await held.closed(500));
  t.equal(second.observation.inFlight(), 0);
});

t.test('a port that is taken is told in one sentence', async (t) => {
  const { at } = await open(t, ok);
  const front = new ScriptedFront({ script: ok, config: { listen: { host: '127.0.0.1', port: at } } });
  await t.rejects(httpPort(front).open(), { message: `the port 127.0.0.1:${at} is taken by another process` });
});

t.test('the OpenAPI document names every route and nothing else, and every reference leads somewhere', async (t) => {
  const { at, port } = await open(t, ok);
  const served = json((await ask(at, 'GET', '/v1/openapi.json')).body);
  t.same(served, JSON.parse(JSON.stringify(openApi())));
  t.equal(served['openapi'], '3.1.0');
  const paths = served['paths'] as Record<
    string,
    Record<string, { operationId: string; responses: Record<string, unknown>; parameters?: unknown[] }>
  >;
  const documented = Object.entries(paths).flatMap(([path, operations]) =>
    Object.keys(operations).map((method) => `${method.toUpperCase()} ${path.replace('{target}', '*').replaceAll(/\{(\w+)\}/g, ':$1')}`),
  );
  t.same(documented.sort(), [...port.routes].sort());
  const ids = Object.values(paths).flatMap((operations) => Object.values(operations).map((operation) => operation.operationId));
  t.equal(new Set(ids).size, ids.length, 'operation ids are unique');
  for (const [path, operations] of Object.entries(paths))
    for (const [method, operation] of Object.entries(operations)) {
      t.ok(Object.keys(operation.responses).length > 0, `${method} ${path} has answers`);
      if (path.includes('{target}')) t.ok(JSON.stringify(operation.parameters).includes('parameters/Target'));
    }
  const refs: string[] = [];
  JSON.stringify(served, (key, value: unknown) => {
    if (key === '$ref') refs.push(value as string);
    return value;
  });
  t.ok(refs.length > 50);
  for (const ref of new Set(refs)) {
    let place: unknown = served;
    for (const part of ref.slice(2).split('/')) place = (place as Record<string, unknown>)[part];
    t.type(place, 'object', ref);
  }
});

interface Event {
  type: string;
  data: string;
}

/** As a browser reads them. */
function eventsOf(text: string): Event[] {
  const events: Event[] = [];
  let type = 'message';
  let data: string[] = [];
  for (const line of text.split(/\r\n|\r|\n/)) {
    if (line === '') {
      if (data.length > 0) events.push({ type, data: data.join('\n') });
      type = 'message';
      data = [];
    } else if (line.startsWith('data:')) data.push(line.slice(5).replace(/^ /, ''));
    else if (line.startsWith('event:')) type = line.slice(6).trim();
  }
  return events;
}
