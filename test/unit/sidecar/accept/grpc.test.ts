import { execFile } from 'node:child_process';
import { connect as connectHttp2, constants, type ClientHttp2Session, type ClientHttp2Stream, type ServerHttp2Stream } from 'node:http2';
import { type AddressInfo, connect as connectTcp, createServer as listenTcp, type Socket } from 'node:net';
import { PassThrough } from 'node:stream';
import { setTimeout as sleep } from 'node:timers/promises';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { gzipSync, inflateSync } from 'node:zlib';
import { fromBinary, toBinary } from '@bufbuild/protobuf';
import { ValueSchema } from '@bufbuild/protobuf/wkt';
import { loadFileDescriptorSetFromBuffer, loadSync } from '@grpc/proto-loader';
import fc from 'fast-check';
import t, { type Test } from 'tap';
import { hasExactNumbers } from '../../../../base/json-exact.ts';
import { VirtualClock } from '../../../../base/virtual-clock.ts';
import { Code, CODES } from '../../../../proto/wire/codes.ts';
import { REACH_DESCRIPTORS } from '../../../../proto/wire/reach-descriptors.ts';
import type { Front } from '../../../../sidecar/accept/front.ts';
import { type GrpcPort, grpcPort } from '../../../../sidecar/accept/grpc.ts';
import { Backlog } from '../../../../sidecar/accept/grpc-backlog.ts';
import { Exchange } from '../../../../sidecar/accept/grpc-exchange.ts';
import { readInvokeRequest, readMetadata, timeoutMs } from '../../../../sidecar/accept/grpc-request.ts';
import { percentEncoded, statusOfHttp } from '../../../../sidecar/accept/grpc-status.ts';
import { jsonOfValue, valueOfJson } from '../../../../sidecar/accept/grpc-value.ts';
import { refusing, Verdict } from '../../../../sidecar/call/verdict.ts';
import { TestAgent } from '../../../support/agent.ts';
import { compiledDescriptors, PROTO_FILES } from '../../../support/descriptors.ts';
import { type FrontOptions, type Script, type ScriptedBody, ScriptedFront } from '../../../support/front.ts';
import { fromStruct, fromValue, GrpcClient, likeGrpcurl, toValue } from '../../../support/grpc-client.ts';
import { grpcurl } from '../../../support/grpcurl.ts';
import { takeBase } from '../../../support/invariants.ts';
import { repoFile } from '../../../support/paths.ts';
import { Rig, TOKEN } from '../../../support/rig.ts';
import { settle, waitUntil } from '../../../support/settle.ts';

interface Opened {
  readonly front: ScriptedFront;
  readonly port: GrpcPort;
  readonly address: string;
  readonly client: GrpcClient;
}

async function open(t: Test, script: Script, more: Partial<FrontOptions> = {}, streams = 1_000): Promise<Opened> {
  const front = new ScriptedFront({ script, ...more });
  const port = grpcPort(front, { listen: { host: '127.0.0.1', port: 0 }, streams });
  await port.open();
  const address = `127.0.0.1:${port.address.port}`;
  const client = new GrpcClient(address);
  t.teardown(async () => {
    client.close();
    await port.close(200);
    const seen = {
      started: front.observation.started(),
      ended: front.observation.ended(),
      inFlight: front.observation.inFlight(),
      records: front.accessLines().length,
      connections: port.connections,
    };
    if (seen.inFlight !== 0 || seen.started !== seen.ended || seen.records !== seen.ended || seen.connections !== 0)
      throw new Error(`left behind: ${JSON.stringify(seen)}`);
  });
  return { front, port, address, client };
}

const ok: Script = (call, stage) => stage.answer(call, 200, '{"ok":true}');
const NAME = 'crm.order.query';
const INVOKE = '/agentreach.v1.Reach/Invoke';
const no = refusing('limits', 'rate', Code.rate_limited, 'too many: {a}');

// One call, one Result.

t.test("a success carries the provider's bytes as they were, and the Result's fields", async (t) => {
  const bytes = '{ "id": 9007199254740993, "big": 1e400, "zero": -0, "one": 1.0, "text": "ü\\u0000" }';
  const { client, front } = await open(t, (call, stage) => stage.answer(call, 201, bytes, { 'content-type': 'application/json' }));
  const came = await client.invoke(
    { capability: `${NAME}@^2.0`, payload: Buffer.from('{"q":1}') },
    { token: 'good', metadata: { traceparent: `00-${'a'.repeat(32)}-${'b'.repeat(16)}-01`, 'reach-step': 'one' } },
  );
  t.equal(came.status, 0);
  const [reply] = came.replies;
  t.equal((reply.data as Buffer).toString(), bytes);
  t.match(reply, {
    status: 201,
    content_type: 'application/json',
    provider: 'crm.order.a',
    version: '2.1.0',
    trace_id: 'a'.repeat(32),
    degraded: false,
    attempts: [{ provider: 'crm.order.a', version: '2.1.0', code: 0, status: 201, started: 'done' }],
  });
  const [call] = front.calls;
  t.equal(call?.way, 'grpc');
  t.equal(call?.asked, `${NAME}@^2.0`);
  t.equal(call?.body.toString(), '{"q":1}');
  t.equal(call?.contentType, 'application/json');
  t.equal(call?.headers['content-type'], 'application/json');
  t.equal(call?.headers['reach-step'], 'one');
  t.equal(call?.headers.authorization, 'Bearer good');
});

t.test('the first answer to a key once more says so', async (t) => {
  let isReplay = false;
  const { client } = await open(t, (call, stage) => {
    stage.answer(call, 200, '{}');
    if (isReplay) call.replay = { provider: 'crm.order.a', version: '2.1.0' };
  });
  t.equal((await client.invoke({ capability: NAME, json: '{}' })).replies[0].replay, false);
  isReplay = true;
  t.match((await client.invoke({ capability: NAME, json: '{}' })).replies[0], { replay: true, provider: 'crm.order.a' });
});

t.test('asked with params or json, the answer comes as a value or as JSON text', async (t) => {
  let answer = '{"order":7,"tags":["a",null,true,0.5],"__proto__":{"x":1}}';
  let type = 'application/json';
  const { client, front } = await open(t, (call, stage) => stage.answer(call, 200, answer, { 'content-type': type }));
  const params = { order: 7, list: [1, 'ü', null, true, { deep: {} }, []] };
  const byParams = await client.invoke({ capability: NAME, params: toValue(params) });
  t.strictSame(JSON.parse(front.calls[0]?.body.toString() ?? ''), params);
  t.equal(JSON.stringify(fromValue(byParams.replies[0].result)), answer, 'keys like any other');
  t.equal(byParams.replies[0].output, 'result');
  const byJson = await client.invoke({ capability: NAME, json: '{"order":9007199254740993}' });
  t.equal(front.calls[1]?.body.toString(), '{"order":9007199254740993}', 'unchanged');
  t.equal(byJson.replies[0].json, answer);
  answer = '{"id":9007199254740993}';
  const large = await client.invoke({ capability: NAME, params: toValue({}) });
  t.equal(large.replies[0].json, answer, 'a number that a double does not hold comes as text, not rounded');
  answer = 'plain ü';
  type = 'text/plain';
  const text = await client.invoke({ capability: NAME, params: toValue(null) });
  t.equal(fromValue(text.replies[0].result), 'plain ü');
  type = 'application/octet-stream';
  const binary = await client.invoke({ capability: NAME, json: '1' });
  t.strictSame(JSON.parse(binary.replies[0].json), { base64: Buffer.from(answer).toString('base64'), content_type: type });
  const none = await client.invoke({ capability: NAME });
  t.equal(front.calls.at(-1)?.body.length, 0, 'none of the three: an empty body');
  t.equal((none.replies[0].data as Buffer).toString(), answer);
});

t.test('a success that is none is 1004, as over HTTP', async (t) => {
  let headers: Record<string, string> = { 'content-type': 'application/json' };
  const { client } = await open(t, (call, stage) => stage.answer(call, 200, '{"half":', headers));
  t.match(await client.invoke({ capability: NAME }), { status: 13, trailers: { 'reach-code': '1004' } });
  headers = { 'content-type': 'text/plain', 'content-encoding': 'gzip' };
  t.match(await client.invoke({ capability: NAME }), { status: 13, trailers: { 'reach-code': '1004' } });
});

t.test('reach-explain brings the decision', async (t) => {
  const { client } = await open(t, (call, stage) => {
    call.trace.add(1, new Verdict(no, 'x'));
    stage.answer(call, 200, '{}');
  });
  const came = await client.invoke({ capability: NAME }, { metadata: { 'reach-explain': '1' } });
  t.match(came.replies[0].decision, [{ stage: 'limits', reason: 'rate', code: 3004, words: 'too many: x' }]);
  t.strictSame((await client.invoke({ capability: NAME })).replies[0].decision, []);
});

// Failures.

t.test('every code ends with its status, its trailers and the standard details', async (t) => {
  let code: Code = Code.internal;
  const { client } = await open(t, (call, stage) => {
    stage.attempt(call, code, 'started', 0, 'words of it');
    call.code = code;
    call.retryAfterMs = 1_500;
  });
  for (const entry of CODES) {
    if (entry.code === Code.ok || entry.code === Code.provider_error) continue;
    code = entry.code;
    const came = await client.invoke({ capability: NAME });
    t.match(
      came,
      {
        status: entry.grpc,
        trailers: { 'reach-code': String(code), 'reach-ambiguous': 'true', 'reach-retry-after-ms': '1500', 'reach-attempts': '1' },
        details: {
          Status: { code: entry.grpc },
          ErrorInfo: { reason: entry.name.toUpperCase(), domain: 'agent-reach', metadata: { code: String(code), ambiguous: 'true' } },
          RetryInfo: { retry_delay: { seconds: 1, nanos: 500_000_000 } },
          Failure: { code, name: entry.name, ambiguous: true, attempts: [{ detail: 'words of it', started: 'started' }] },
        },
      },
      entry.name,
    );
    t.equal(came.trailers['grpc-retry-pushback-ms'], '-1', 'an ambiguous failure of a call that may run once is not repeated by a library');
    t.match(came.trailers['reach-trace-id'], /^[0-9a-f]{32}$/);
    t.equal(came.message.startsWith(`${code} ${entry.name}: `), true);
  }
});

t.test('a refusal says when to come back, and what else HTTP says', async (t) => {
  const { client } = await open(t, (call) => {
    call.refusal = new Verdict(no, 'zu "viele" 100% ü');
    call.code = Code.rate_limited;
    call.retryAfterMs = 20;
  });
  const came = await client.invoke({ capability: NAME });
  t.equal(came.message, '3004 rate_limited: too many: zu "viele" 100% ü');
  t.equal(decodeURIComponent(came.trailers['reach-detail'] ?? ''), 'too many: zu "viele" 100% ü');
  t.equal(came.trailers['reach-retry'], 'none');
  t.equal(came.details['Failure'].detail, 'too many: zu "viele" 100% ü');
});

t.test("an agent's own error has the status that says the same, and its words", async (t) => {
  let status = 400;
  let body: string | Buffer = '{"why":"ü"}';
  const { client } = await open(t, (call, stage) =>
    stage.answer(call, status, body, { 'content-type': 'application/json' }, Code.provider_error),
  );
  const expected: Record<number, number> = {
    400: 3,
    401: 16,
    403: 7,
    404: 5,
    409: 10,
    422: 3,
    429: 8,
    500: 2,
    501: 12,
    503: 14,
    504: 4,
    418: 2,
  };
  for (const [http, grpc] of Object.entries(expected)) {
    status = Number(http);
    const came = await client.invoke({ capability: NAME });
    t.match(came, { status: grpc, trailers: { 'reach-code': '6001' } }, http);
    t.match(came.details['Failure'], { status, content_type: 'application/json', text: body, answer_left_out: false });
    t.equal(statusOfHttp(status), grpc);
  }
  body = Buffer.from([0xff, 0x00]);
  t.strictSame((await client.invoke({ capability: NAME })).details['Failure'].data, body);
  body = 'x'.repeat(3_000);
  const large = await client.invoke({ capability: NAME });
  t.match(large.details['Failure'], { text: undefined, answer_left_out: true }, 'what does not fit is left out, and said so');
});

t.test('trailers stay below 8 KiB whatever is in them', async (t) => {
  const { client, address } = await open(t, (call, stage) => {
    for (let i = 0; i < 60; i++) stage.attempt(call, Code.connection_lost, 'started', 0, 'ü'.repeat(2_000));
    call.reply = null;
    call.cause = 'c'.repeat(5_000);
    stage.answer(call, 500, 'ü'.repeat(1_000), { 'content-type': 't'.repeat(4_000) }, Code.provider_error);
    call.retryAfterMs = 123;
  });
  const headers = await rawRpc(t, address, INVOKE, message(Buffer.from('0a0161', 'hex')));
  let bytes = 0;
  for (const [name, value] of Object.entries(headers.all)) bytes += name.length + String(value).length + 32;
  t.ok(bytes < 8_192, `${bytes} bytes`);
  t.equal(headers.all['reach-code'], '6001', 'the code is there');
  const came = await client.invoke({ capability: NAME });
  t.equal(came.details['Failure'].attempts_left_out, true);
});

// What comes in.

t.test('metadata are headers: lower case, what is sent twice one value as over HTTP, binary and gRPC’s own left out', (t) => {
  const { view, timeout, encoding } = readMetadata(
    [
      ':method',
      'POST',
      ':authority',
      'x',
      'te',
      'trailers',
      'content-type',
      'application/grpc',
      'grpc-timeout',
      '5S',
      'grpc-encoding',
      'gzip',
    ].concat([
      'reach-step',
      'a',
      'reach-step',
      'b',
      'reach-step',
      'c',
      'x-bin',
      'AAAA',
      '__proto__',
      'p',
      'user-agent',
      'u',
      'grpc-trace-bin',
      'x',
      'authorization',
      'Bearer a',
      'authorization',
      'Bearer b',
    ]),
  );
  t.strictSame(
    { ...view },
    { 'reach-step': 'a, b, c', ['__proto__']: 'p', 'user-agent': 'u', authorization: 'Bearer a, Bearer b' },
    'two credentials are one that nobody has, and not none',
  );
  t.equal(timeout, '5S');
  t.equal(encoding, 'gzip');
  t.end();
});

t.test('headers of the message stand below the metadata', async (t) => {
  const { client, front } = await open(t, ok);
  await client.invoke(
    {
      capability: NAME,
      payload: Buffer.from('x'),
      headers: {
        'Reach-Step': 'low',
        'X-Own': '1',
        authorization: 'Bearer good',
        'content-type': 'text/plain',
        'grpc-timeout': '1n',
        te: 'x',
      },
    },
    { metadata: { 'reach-step': 'high' } },
  );
  const [call] = front.calls;
  t.match(call?.headers, { 'reach-step': 'high', 'x-own': '1', authorization: 'Bearer good', 'content-type': 'text/plain' });
  t.equal(call?.contentType, 'text/plain');
  t.equal(call?.headers['te'], undefined);
  t.equal(call?.headers['reach-deadline-ms'], undefined, 'a timeout is of the RPC');
  for (const headers of [{ 'a b': '1' }, { '': '1' }, { ok: 'a\r\nb: c' }, { ok: '日' }, { ':path': '/' }])
    t.match(await client.invoke({ capability: NAME, headers }), { status: 3, trailers: { 'reach-code': '4003' } }, JSON.stringify(headers));
  t.equal(front.calls.length, 1, 'none of them became a call');
});

t.test('a header means the same twice in metadata as twice over HTTP', async (t) => {
  const before = takeBase();
  const agent = await TestAgent.listen('order');
  t.teardown(() => agent.close());
  const table = `
contracts: [{name: ${NAME}, version: "2.1.0", acl: public}]
providers: [{agent_id: crm.order.1, offers: ["${NAME}@2.1.0"], endpoint: {type: http, address: "${agent.url}"}}]
`;
  const rig = await Rig.start(t, { table, settings: '  grpc: {listen: "127.0.0.1:0"}\n  anonymous: dev.laptop.1' });
  const client = new GrpcClient(rig.started.grpcAddress as string);
  t.teardown(() => client.close());
  const twice: readonly (readonly [string, readonly [string, string]])[] = [
    ['reach-pin', ['crm.order.1', 'crm.order.2']],
    ['reach-deadline-ms', ['100', '9000']],
    ['reach-budget', ['one=100', 'two=200']],
    ['reach-path', ['a.b.c>x.y.z', `crm.order.1>${NAME}`]],
    ['reach-affinity', ['a', 'b']],
    ['x-own', ['1', '2']],
  ];
  const seen: unknown[] = [];
  for (const [name, values] of twice) {
    const byHttp = await rig.invoke(NAME, { headers: { [name]: [...values] } });
    const one = agent.requests.splice(0).map(({ headers }) => headers[name]);
    const byGrpc = await client.invoke({ capability: NAME, json: '{}' }, { token: TOKEN, metadata: { [name]: values } });
    const other = agent.requests.splice(0).map(({ headers }) => headers[name]);
    t.equal(Number(byGrpc.trailers['reach-code'] ?? 0), byHttp.json.code, name);
    t.strictSame(other, one, `${name} as the agent sees it`);
    seen.push([name, byHttp.json.code, ...one]);
  }
  t.strictSame(seen[0], ['reach-pin', 2001], 'two wishes are not none');
  t.strictSame(seen[3], ['reach-path', 2005], 'a loop is seen in either half');
  client.close();
  await agent.close();
  await rig.finish(t, before);
});

t.test('headers of the message are bounded as those of HTTP are', async (t) => {
  const { address, front } = await open(t, ok, { config: { limits: { headerBytes: 4_096 } } } as Partial<FrontOptions>);
  const pair = (name: string, value: string): Buffer => {
    const inner = Buffer.concat([text(1, name), text(2, value)]);
    return Buffer.concat([Buffer.from([4 * 8 + 2, inner.length]), inner]);
  };
  const request = (count: number): Buffer =>
    Buffer.concat([text(1, NAME), ...Array.from({ length: count }, (_, i) => pair(`x-${i}`, '1'))]);
  t.match((await rawRpc(t, address, INVOKE, message(request(30)))).all, { 'grpc-status': '0' });
  const began = performance.now();
  const many = await rawRpc(t, address, INVOKE, message(request(60_000)));
  t.match(many.all, { 'grpc-status': '8', 'reach-code': '4005', 'reach-detail': /headers/ });
  t.ok(performance.now() - began < 2_000, 'and it took no time');
  t.equal(front.calls.length, 1);
});

t.test('a request that cannot be read is INVALID_ARGUMENT and no call', async (t) => {
  const { address, client, front } = await open(t, ok);
  const bad = { status: 3, trailers: { 'reach-code': '4003' } };
  t.match(await client.invoke({ capability: NAME, json: '1', content_type: 'text/plain' }), bad);
  t.match(await client.invoke({ capability: NAME, params: toValue(Number.NaN) }), bad);
  t.match(await client.invoke({ capability: NAME, params: toValue(Number.POSITIVE_INFINITY) }), bad);
  const raw: Readonly<Record<string, Buffer>> = {
    'not a message': message(Buffer.from([0x0a, 0x7f])),
    'text that is not UTF-8': message(Buffer.from([0x0a, 1, 0xff])),
    'two messages': Buffer.concat([message(Buffer.from([0x0a, 1, 0x61])), message(Buffer.alloc(0))]),
    'no message': Buffer.alloc(0),
    'half a message': message(Buffer.from([0x0a, 1, 0x61])).subarray(0, 7),
    'half a prefix': Buffer.from([0, 0]),
    'an unknown flag': Buffer.from([7, 0, 0, 0, 0]),
    'a flag that says compressed and is not': Buffer.from([1, 0, 0, 0, 1, 0]),
  };
  for (const [what, bytes] of Object.entries(raw)) {
    const came = await rawRpc(t, address, INVOKE, bytes, what.includes('compressed') ? { 'grpc-encoding': 'gzip' } : {});
    t.match(came.all, { 'grpc-status': '3', 'reach-code': '4003' }, what);
  }
  t.match((await rawRpc(t, address, INVOKE, Buffer.from([1, 0, 0, 0, 1, 0]), { 'grpc-encoding': 'zstd' })).all, { 'grpc-status': '12' });
  t.equal(front.calls.length, 0);
});

t.test('a compressed request is read, and no bomb', async (t) => {
  const { address, front } = await open(t, ok);
  const plain = Buffer.concat([Buffer.from([0x0a, NAME.length]), Buffer.from(NAME)]);
  const came = await rawRpc(t, address, INVOKE, message(gzipSync(plain), 1), { 'grpc-encoding': 'gzip' });
  t.equal(came.all['grpc-status'], '0');
  t.equal(front.calls[0]?.asked, NAME);
  const bomb = await rawRpc(t, address, INVOKE, message(gzipSync(Buffer.alloc(5_000_000)), 1), { 'grpc-encoding': 'gzip' });
  t.match(bomb.all, { 'grpc-status': '8', 'reach-code': '4005' });
});

t.test('what is too large is RESOURCE_EXHAUSTED 4005, told before it has all come', async (t) => {
  const { client, address, front } = await open(t, ok);
  const most = await client.invoke({ capability: NAME, payload: Buffer.alloc(65_536, 'a') });
  t.equal(most.status, 0, 'the limit itself is taken');
  for (const bytes of [65_537, 3_000_000])
    t.match(await client.invoke({ capability: NAME, payload: Buffer.alloc(bytes, 'a') }), {
      status: 8,
      trailers: { 'reach-code': '4005' },
    });
  // Only the prefix is ever sent.
  const came = await rawRpc(t, address, INVOKE, Buffer.from([0, 0x7f, 0xff, 0xff, 0xff]), {}, true);
  t.match(came.all, { 'grpc-status': '8', 'reach-code': '4005' });
  t.equal(front.calls.length, 1);
});

t.test('headers above the limit are refused by the connection', async (t) => {
  const { client, front } = await open(t, ok);
  const came = await client.invoke({ capability: NAME }, { metadata: { 'x-large': 'x'.repeat(30_000) } });
  t.not(came.status, 0);
  t.equal(front.calls.length, 0);
  t.equal((await client.invoke({ capability: NAME })).status, 0, 'the next call works');
});

t.test('grpc-timeout is the time that the client waits', async (t) => {
  t.equal(timeoutMs('1H'), 3_600_000);
  t.equal(timeoutMs('99999999M'), 5_999_999_940_000);
  t.equal(timeoutMs('2S'), 2_000);
  t.equal(timeoutMs('250m'), 250);
  t.equal(timeoutMs('1500u'), 2);
  t.equal(timeoutMs('1n'), 1);
  t.equal(timeoutMs('0m'), 0);
  for (const bad of ['', '5', 'S', '5x', '-1S', '1.5S', ' 5S', '5 S', '123456789S', '5S, 5S', '5s']) t.equal(timeoutMs(bad), null, bad);
  const { address, front } = await open(t, ok, { config: { maxDeadlineMs: 600_000 } });
  const plain = message(Buffer.from([0x0a, 1, 0x61]));
  const left = async (headers: Record<string, string>): Promise<unknown> => {
    const came = await rawRpc(t, address, INVOKE, plain, headers);
    t.equal(came.all['grpc-status'], '0', JSON.stringify(came.all));
    return front.calls.at(-1)?.headers['reach-deadline-ms'];
  };
  const near = (value: unknown, ms: number): void => {
    t.ok(Number(value) <= ms && Number(value) > ms - 500, `${String(value)} of ${ms}`);
  };
  near(await left({ 'grpc-timeout': '5S' }), 5_000);
  near(await left({ 'grpc-timeout': '5S', 'reach-deadline-ms': '9000' }), 5_000);
  t.equal(await left({ 'grpc-timeout': '5S', 'reach-deadline-ms': '900' }), '900', 'the smaller counts');
  for (const bad of ['soon', '1e9', '0x10000', '9000.5', '600001', ''])
    t.equal(await left({ 'grpc-timeout': '5S', 'reach-deadline-ms': bad }), bad, `${bad}: left for its stage to refuse`);
  near(await left({ 'grpc-timeout': '99H' }), 600_000);
  t.equal(await left({}), undefined);
  for (const timeout of ['5', 'soon', '-5S', '123456789m']) {
    const came = await rawRpc(t, address, INVOKE, plain, { 'grpc-timeout': timeout });
    t.match(came.all, { 'grpc-status': '3', 'reach-code': '4003' }, timeout);
  }
});

t.test('a client that cancels, or leaves, cancels its call', async (t) => {
  const cancelled: boolean[] = [];
  const { client, front, address } = await open(t, async (call) => {
    await new Promise<void>((done) => {
      call.onCancel = done;
    });
    cancelled.push(call.cancelled);
    call.code = Code.cancelled;
  });
  const came = await client.invoke(
    { capability: NAME },
    { onStart: (cancel) => void waitUntil('it runs', () => front.calls.length === 1).then(cancel) },
  );
  t.equal(came.status, 1);
  await waitUntil('the call is cancelled', () => cancelled.length === 1);
  const timed = await client.invoke({ capability: NAME }, { deadlineMs: 100 });
  t.equal(timed.status, 4);
  await waitUntil('so is that of a client whose time is over', () => cancelled.length === 2);
  const session = connectHttp2(`http://${address}`);
  session.on('error', () => undefined);
  const stream = session.request(requestHead(INVOKE));
  stream.on('error', () => undefined);
  stream.end(message(Buffer.from([0x0a, 1, 0x61])));
  await waitUntil('the third runs', () => front.calls.length === 3);
  session.destroy();
  await waitUntil('so is that of a lost connection', () => cancelled.length === 3);
  t.strictSame(cancelled, [true, true, true]);
});

t.test('work that was given up is told CANCELLED to a client that is still there', async (t) => {
  const { client } = await open(t, (call) => {
    call.cancelled = true;
    call.code = Code.cancelled;
  });
  t.match(await client.invoke({ capability: NAME }), { status: 1, trailers: { 'reach-code': '5003' } });
});

// Streams.

async function streaming(t: Test, headers: Record<string, string>): Promise<Opened & { body(): ScriptedBody }> {
  let body: ScriptedBody | null = null;
  const opened = await open(t, (call, stage) => {
    body = stage.stream(call, headers);
  });
  return { ...opened, body: () => body as unknown as ScriptedBody };
}

t.test('a stream comes piece by piece, and its end is told', async (t) => {
  const { client, body } = await streaming(t, { 'content-type': 'application/octet-stream' });
  const seen: unknown[] = [];
  const done = client.stream({ capability: NAME }, { onReply: (reply) => seen.push(reply) });
  await waitUntil('the head is there before any byte', () => seen.length === 1);
  t.match(seen[0], { head: { status: 200, content_type: 'application/octet-stream', provider: 'crm.order.a', version: '2.1.0' } });
  body().push(Buffer.from([1, 2, 0xff]));
  await waitUntil('the first piece is there before the second exists', () => seen.length === 2);
  t.strictSame((seen[1] as { data: Buffer }).data, Buffer.from([1, 2, 0xff]));
  body().push(Buffer.alloc(2_500_000, 7));
  body().end();
  const came = await done;
  t.equal(came.status, 0);
  t.strictSame(
    came.replies.slice(2, -1).map((reply) => (reply.data as Buffer).length),
    [1_048_576, 1_048_576, 402_848],
    'messages that any client takes',
  );
  t.match(came.replies.at(-1), { end: { status: 200, provider: 'crm.order.a', attempts: [{ started: 'done' }] } });
});

t.test('text is text when it was asked for with params or json: whole characters', async (t) => {
  const { client, body } = await streaming(t, { 'content-type': 'text/event-stream' });
  const done = client.stream({ capability: NAME, params: toValue({}) });
  await waitUntil('it streams', () => body() !== null && body().sink !== null);
  const bytes = Buffer.from('a€b');
  body().push(bytes.subarray(0, 2));
  body().push(bytes.subarray(2, 3));
  body().push(bytes.subarray(3));
  body().end();
  const came = await done;
  t.strictSame(
    came.replies.slice(1, -1).map((reply) => reply.text),
    ['a', '€b'],
  );
});

t.test('a cut is the status of its code, after what had come', async (t) => {
  const { client, body } = await streaming(t, { 'content-type': 'text/plain' });
  const done = client.stream({ capability: NAME });
  await waitUntil('it streams', () => body() !== null && body().sink !== null);
  body().push('half');
  body().cut(Code.stream_interrupted, 'gone');
  const came = await done;
  t.match(came, { status: 14, trailers: { 'reach-code': '1006' }, details: { Failure: { code: 1006 } } });
  t.equal((came.replies[1].data as Buffer).toString(), 'half');
  t.equal(
    came.replies.some((reply) => reply.end !== null),
    false,
    'never as an end',
  );
});

t.test("the caller's pace rules a stream", async (t) => {
  const { body, address } = await streaming(t, { 'content-type': 'text/plain' });
  const session = connectHttp2(`http://${address}`);
  const stream = session.request(requestHead('/agentreach.v1.Reach/InvokeStream'));
  stream.end(message(Buffer.from([0x0a, 1, 0x61])));
  await waitUntil('it streams', () => body() !== null && body().sink !== null);
  let sent = 0;
  while (!body().paused && sent < 1_000) {
    body().push(Buffer.alloc(65_536));
    sent++;
    await sleep(0);
  }
  t.ok(body().paused, `paused after ${sent} pieces`);
  t.ok(sent < 10, 'soon');
  const resumes = body().resumes;
  stream.resume();
  await waitUntil('it goes on when the client reads', () => body().resumes > resumes);
  body().end();
  await new Promise<void>((done) => stream.on('close', done));
  session.close();
});

t.test('a client that leaves a stream stops its source', async (t) => {
  const { client, body } = await streaming(t, { 'content-type': 'text/plain' });
  const came = await client.stream({ capability: NAME }, { onReply: (_reply, cancel) => cancel() });
  t.equal(came.status, 1);
  await waitUntil('the source is stopped', () => body().cancelled !== null);
  t.equal(body().cancelled?.code, 5003);
});

t.test('a stream without a streamed body is a whole answer or its status', async (t) => {
  let code: Code = 0;
  const { client } = await open(t, (call, stage) =>
    stage.answer(call, code === 0 ? 200 : 404, 'x', { 'content-type': 'text/plain' }, code),
  );
  const whole = await client.stream({ capability: NAME });
  t.strictSame([whole.status, whole.replies.length], [0, 3]);
  t.equal((whole.replies[1].data as Buffer).toString(), 'x');
  code = Code.provider_error;
  t.match(await client.stream({ capability: NAME }), { status: 5, replies: [], trailers: { 'reach-code': '6001' } });
});

// The other methods.

t.test('Explain answers what HTTP explains', async (t) => {
  const { client } = await open(t, ok);
  const came = await client.unary('/agentreach.v1.Reach/Explain', { capability: NAME }, { token: 'good' });
  t.match(fromStruct(came.replies[0].explanation), { asked: NAME, table_source: 'file' });
  t.match(await client.unary('/agentreach.v1.Reach/Explain', { capability: NAME }), { status: 16, trailers: { 'reach-code': '4001' } });
});

t.test('Cast is UNAVAILABLE 7001 where there are no messages, and Channel UNIMPLEMENTED where nobody can dial in', async (t) => {
  const { client } = await open(t, ok);
  const none = { status: 14, trailers: { 'reach-code': '7001' } };
  t.match(await client.unary('/agentreach.v1.Reach/Cast', { capability: NAME }, { token: 'good' }), none);
  t.match(await client.unary('/agentreach.v1.Reach/Cast', { capability: NAME }), { status: 16, trailers: { 'reach-code': '4001' } });
  t.match(await client.bidi('/agentreach.v1.Reach/Channel', [{ text: 'x' }]), { status: 16, trailers: { 'reach-code': '4001' } });
  t.match(await client.bidi('/agentreach.v1.Reach/Channel', [{ text: 'x' }], { token: 'good' }), {
    status: 12,
    trailers: { 'reach-code': '4003' },
  });
});

t.test('health answers readiness, and a watcher is told of changes', async (t) => {
  const { client, front, port } = await open(t, ok);
  const health = (service: string) => client.unary('/grpc.health.v1.Health/Check', { service });
  t.equal((await health('')).replies[0].status, 'SERVING');
  t.equal((await health('agentreach.v1.Reach')).replies[0].status, 'SERVING');
  t.equal((await health('other')).status, 5);
  front.scripted.ready = false;
  t.equal((await health('')).replies[0].status, 'NOT_SERVING');
  t.match(await client.invoke({ capability: NAME }), { status: 14, trailers: { 'reach-code': '2003', 'reach-retry-after-ms': '1000' } });
  const seen: string[] = [];
  const watching = client.serverStream(
    '/grpc.health.v1.Health/Watch',
    {},
    { onReply: (reply) => seen.push((reply as { status: string }).status) },
  );
  await waitUntil('the standing is told', () => seen.length === 1);
  front.scripted.ready = true;
  await waitUntil('the change is told', () => seen.length === 2);
  t.strictSame(seen, ['NOT_SERVING', 'SERVING']);
  front.draining = true;
  t.match(await client.invoke({ capability: NAME }), { status: 14, trailers: { 'reach-code': '2006' } });
  const began = performance.now();
  await port.close(5_000);
  t.ok(performance.now() - began < 3_000, 'a watcher does not hold up the stop');
  t.match(await watching, { status: 14 });
});

t.test('what is under way ends while the port closes; after the grace it is cut', async (t) => {
  let release: () => void = () => undefined;
  const { client, front, port } = await open(t, async (call, stage) => {
    await new Promise<void>((done) => {
      release = done;
      call.onCancel = done;
    });
    if (call.cancelled) call.code = Code.cancelled;
    else stage.answer(call, 200, '{}');
  });
  const first = client.invoke({ capability: NAME });
  await waitUntil('it runs', () => front.calls.length === 1);
  const closing = port.close(5_000);
  await sleep(20);
  release();
  t.equal((await first).status, 0, 'a good answer after the stop began');
  await closing;

  const other = await open(t, async (call) => {
    await new Promise<void>((done) => {
      call.onCancel = done;
    });
    call.code = Code.cancelled;
  });
  const stuck = other.client.invoke({ capability: NAME });
  await waitUntil('it runs', () => other.front.calls.length === 1);
  await other.port.close(50);
  t.not((await stuck).status, 0);
  t.ok(other.front.calls[0]?.cancelled);
});

t.test('a client that holds a stream open does not hold the stop up', async (t) => {
  const { address, port } = await open(t, ok);
  const held = rawRpc(
    t,
    address,
    '/grpc.reflection.v1.ServerReflection/ServerReflectionInfo',
    message(Buffer.from([7 * 8 + 2, 0])),
    {},
    true,
  );
  await waitUntil('it is there', () => port.connections === 1);
  await sleep(50);
  const began = performance.now();
  await port.close(5_000);
  t.ok(performance.now() - began < 2_000, 'the port is closed long before the grace is over');
  t.match((await held).all, { ':status': 200, 'reach-code': '2006' });
});

t.test('a port that is taken is said in one sentence', async (t) => {
  const { port, front } = await open(t, ok);
  await t.rejects(grpcPort(front, { listen: port.address, streams: 1 }).open(), { message: /is taken by another process/ });
});

// Who may come in.

t.test('web pages and strange hosts are refused, as on the HTTP port', async (t) => {
  const { address, front } = await open(t, ok);
  const plain = message(Buffer.from([0x0a, 1, 0x61]));
  const ask = async (headers: Record<string, string>): Promise<Record<string, unknown>> =>
    (await rawRpc(t, address, INVOKE, plain, headers)).all;
  const refused = { 'grpc-status': '7', 'reach-code': '4002' };
  t.match(await ask({ ':authority': 'evil.example:7702' }), refused);
  t.match(await ask({ origin: 'https://evil.example' }), refused);
  t.match(await ask({ 'sec-fetch-site': 'cross-site' }), refused);
  t.equal(front.calls.length, 0);
  for (const host of ['localhost:1', '127.0.0.1', '[::1]:7702', 'reach.internal'])
    t.match(await ask({ ':authority': host }), { 'grpc-status': '0' }, host);
  t.match((await rawRpc(t, address, '/agentreach.v1.Reach/Nope', plain)).all, { 'grpc-status': '12', 'reach-code': '4003' });
  for (const type of ['application/json', 'application/grpc-web', 'text/plain'])
    t.equal((await rawRpc(t, address, INVOKE, plain, { 'content-type': type })).all[':status'], 415, type);
});

t.test('connections and RPCs on one of them are bounded', async (t) => {
  let running = 0;
  let most = 0;
  const release: (() => void)[] = [];
  const { client, port, front } = await open(
    t,
    async (call, stage) => {
      running++;
      most = Math.max(most, running);
      await new Promise<void>((done) => release.push(done));
      running--;
      stage.answer(call, 200, '{}');
    },
    { config: { limits: { bodyBytes: 65_536, headerBytes: 16_384, connections: 2, batch: 1, unsentBytes: 1_048_576, stallMs: 10_000 } } },
    3,
  );
  const calls = Array.from({ length: 8 }, () => client.invoke({ capability: NAME }));
  await waitUntil('three run', () => running === 3);
  await sleep(30);
  t.equal(front.calls.length, 3, 'the client holds back the rest');
  const timer = setInterval(() => release.splice(0).forEach((done) => done()), 5);
  t.strictSame(
    (await Promise.all(calls)).map(({ status }) => status),
    [0, 0, 0, 0, 0, 0, 0, 0],
  );
  clearInterval(timer);
  t.equal(most, 3);
  const sockets = [1, 2, 3].map(() => connectTcp(port.address.port, '127.0.0.1'));
  for (const socket of sockets) socket.on('error', () => undefined);
  await waitUntil('the third is turned away', () => sockets.filter((socket) => socket.closed).length >= 2);
  t.ok(port.connections <= 2);
  for (const socket of sockets) socket.destroy();
});

t.test('a client that pings for the sake of it is sent away; one that keeps alive is not', async (t) => {
  const { address } = await open(t, ok);
  const session = connectHttp2(`http://${address}`, { maxOutstandingPings: 1_000 });
  session.on('error', () => undefined);
  let goaway = 0;
  session.on('goaway', (code: number) => (goaway = code));
  await new Promise<void>((done) => session.on('connect', () => done()));
  for (let i = 0; i < 10; i++) session.ping(() => undefined);
  await sleep(50);
  t.notOk(session.destroyed, 'ten at once are nothing');
  for (let i = 0; i < 200 && !session.destroyed; i++) session.ping(() => undefined);
  await waitUntil('it is sent away', () => session.destroyed);
  t.equal(goaway, constants.NGHTTP2_ENHANCE_YOUR_CALM);
});

t.test('bytes that are not HTTP/2 harm nobody', async (t) => {
  const { port, client } = await open(t, ok);
  const socket = connectTcp(port.address.port, '127.0.0.1', () => socket.write('GET / HTTP/1.1\r\nhost: x\r\n\r\n'));
  socket.on('error', () => undefined);
  socket.resume();
  await new Promise<void>((done) => socket.on('close', () => done()));
  t.equal((await client.invoke({ capability: NAME })).status, 0);
});

t.test('who is slow, silent or gone is not waited for', async (t) => {
  const clock = new VirtualClock();
  const { port, address, front } = await open(t, ok, { clock });
  const silent = connectTcp(port.address.port, '127.0.0.1');
  silent.on('error', () => undefined);
  silent.resume();
  await waitUntil('it is connected', () => port.connections === 1);
  await settle(5);
  await clock.advance(10_001);
  await waitUntil('who never says that it speaks HTTP/2 is let go', () => port.connections === 0);

  const session = connectHttp2(`http://${address}`);
  session.on('error', () => undefined);
  const slow = session.request(requestHead(INVOKE));
  const head: Record<string, unknown> = {};
  slow.on('response', (headers) => Object.assign(head, headers));
  slow.on('error', () => undefined);
  slow.resume();
  slow.write(Buffer.from([0, 0, 0]));
  await waitUntil('it is there', () => port.connections === 1);
  await sleep(30);
  await clock.advance(60_001);
  await waitUntil('a request that does not come is refused', () => head['grpc-status'] === '3');
  t.equal(head['reach-code'], '4003');
  await sleep(30);
  t.equal(port.connections, 1, 'the client answers pings, so it stays');

  session.destroy();
  await waitUntil('it is gone', () => port.connections === 0);
  // Speaks HTTP/2 once (preface and empty SETTINGS) and answers nothing any more.
  const dead = connectTcp(port.address.port, '127.0.0.1', () =>
    dead.write(Buffer.concat([Buffer.from('PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n'), Buffer.from([0, 0, 0, 4, 0, 0, 0, 0, 0])])),
  );
  dead.on('error', () => undefined);
  dead.resume();
  await waitUntil('it is connected', () => port.connections === 1);
  await sleep(50);
  await clock.advance(60_001);
  await sleep(50);
  t.equal(port.connections, 1, 'asked whether it lives');
  await clock.advance(20_001);
  await waitUntil('it is let go', () => port.connections === 0);
  t.equal(front.calls.length, 0);
});

/** RPCs on one connection; what each was answered with so far. */
function asking(session: ClientHttp2Session, count: number, path = INVOKE): { head: Record<string, unknown>; stream: ClientHttp2Stream }[] {
  const request = Buffer.from([0, 0, 0, 0, NAME.length + 2, 0x0a, NAME.length, ...Buffer.from(NAME)]);
  return Array.from({ length: count }, () => {
    const stream = session.request(requestHead(path));
    const head: Record<string, unknown> = {};
    stream.on('response', (headers) => Object.assign(head, headers));
    stream.on('trailers', (headers) => Object.assign(head, headers));
    stream.on('error', () => undefined);
    stream.end(request);
    return { head, stream };
  });
}

/** A client whose window for answers is shut, and one whose machine reads nothing after the handshake. */
for (const kind of ['window', 'socket'] as const)
  t.test(`a client that does not take its answers gets no new ones, and is cut off after the stall limit (${kind})`, async (t) => {
    const clock = new VirtualClock();
    const body = JSON.stringify('x'.repeat(400_000));
    const { port, front, client } = await open(t, (call, stage) => stage.answer(call, 200, body), { clock });
    const relayed: Socket[] = [];
    const relay = listenTcp((near) => {
      const far = connectTcp(port.address.port, '127.0.0.1');
      relayed.push(far);
      near.pipe(far);
      far.pipe(near);
      for (const socket of [near, far]) socket.on('error', () => undefined);
      far.on('close', () => near.destroy());
      near.on('close', () => far.destroy());
    });
    await new Promise<void>((done) => relay.listen(0, '127.0.0.1', done));
    t.teardown(() => relay.close());
    const settings = { initialWindowSize: kind === 'window' ? 0 : 2_147_483_647 };
    const session = connectHttp2(`http://127.0.0.1:${(relay.address() as AddressInfo).port}`, { settings });
    session.on('error', () => undefined);
    let goaway = 0;
    session.on('goaway', (code: number) => (goaway = code));
    await new Promise<void>((done) => session.on('remoteSettings', () => done()));
    if (kind === 'socket') {
      session.setLocalWindowSize(2_147_483_647);
      await sleep(30);
      relayed[0]?.unpipe();
      relayed[0]?.pause();
    }
    // What the buffers of the machine take is taken; so more is asked for until nothing is.
    const rounds = kind === 'window' ? 1 : 8;
    for (let i = 0; i < rounds; i++) {
      asking(session, kind === 'window' ? 3 : 20);
      await sleep(30);
    }
    const served = front.calls.length;
    if (kind === 'window') t.equal(served, 3, 'up to the limit of 1 MiB they are served');
    else t.ok(served < 8 * 20, `${served} of 160 were served`);
    const [late] = asking(session, 1);
    if (kind === 'window') {
      await waitUntil('it is refused', () => late?.head['grpc-status'] !== undefined);
      t.match(late?.head, { 'grpc-status': '8', 'reach-code': '3002', 'reach-ambiguous': 'false' });
      t.match(decodeURIComponent(late?.head['grpc-message'] as string), /has not taken \d+ bytes of its answers/);
    } else await sleep(30);
    t.equal(front.calls.length, served, 'nothing new is asked of anybody');
    for (let i = 0; i < 9; i++) {
      await clock.advance(1_000);
      await settle(2);
    }
    t.notOk(session.destroyed, 'nine seconds are borne');
    t.equal((await client.invoke({ capability: NAME })).status, 0, 'another client is served as ever');
    for (let i = 0; i < 4; i++) {
      await clock.advance(1_000);
      await settle(2);
    }
    await waitUntil('it is cut off', () => port.connections === 1);
    if (kind === 'window') t.equal(goaway, constants.NGHTTP2_ENHANCE_YOUR_CALM);
    session.destroy();
    for (const socket of relayed) socket.destroy();
  });

t.test('a client that takes its answers slowly but takes them is served to the end, and gets every byte', async (t) => {
  const clock = new VirtualClock();
  const body = JSON.stringify('x'.repeat(900_000));
  const { address } = await open(t, (call, stage) => stage.answer(call, 200, body), { clock });
  const session = connectHttp2(`http://${address}`);
  session.on('error', () => undefined);
  const [one] = asking(session, 1);
  let bytes = 0;
  let ended = false;
  one?.stream.on('end', () => (ended = true));
  one?.stream.on('data', (chunk: Buffer) => {
    bytes += chunk.length;
    one.stream.pause();
  });
  let rounds = 0;
  for (; rounds < 500 && !ended; rounds++) {
    await clock.advance(1_000);
    one?.stream.resume();
    await sleep(2);
  }
  t.ok(rounds > 30, `it took ${rounds} s`);
  t.equal(one?.head['grpc-status'], '0');
  t.ok(bytes > 900_000, `${bytes} bytes`);
  session.destroy();
});

t.test('answers of RPCs that were under way already are bounded too: one too many is given up, and says so', async (t) => {
  const clock = new VirtualClock();
  const release: (() => void)[] = [];
  const body = JSON.stringify('x'.repeat(900_000));
  const { address, front } = await open(
    t,
    async (call, stage) => {
      await new Promise<void>((done) => release.push(done));
      stage.answer(call, 200, body);
    },
    { clock },
  );
  const session = connectHttp2(`http://${address}`, { settings: { initialWindowSize: 0 } });
  session.on('error', () => undefined);
  const all = asking(session, 8);
  await waitUntil('all are under way', () => release.length === 8);
  for (const done of release) done();
  const given = (): Record<string, unknown>[] => all.map(({ head }) => head).filter((head) => head['grpc-status'] !== undefined);
  await waitUntil('those above four times the limit are given up', () => given().length === 4);
  for (const head of given()) t.match(head, { 'grpc-status': '8', 'reach-code': '1005', 'reach-ambiguous': 'true' });
  t.equal(front.calls.length, 8);
  session.destroy();
});

t.test('a stream whose caller stops reading goes on to its own end; after it the connection is cut off', async (t) => {
  const clock = new VirtualClock();
  let source: ScriptedBody | null = null;
  const { address, front, port } = await open(
    t,
    (call, stage) => {
      source = stage.stream(call, { 'content-type': 'application/octet-stream' });
    },
    { clock },
  );
  const session = connectHttp2(`http://${address}`, { settings: { initialWindowSize: 0 } });
  session.on('error', () => undefined);
  asking(session, 1, '/agentreach.v1.Reach/InvokeStream');
  await waitUntil('it has begun', () => source?.sink !== null && source?.sink !== undefined);
  const body = source as unknown as ScriptedBody;
  while (body.push(Buffer.alloc(60_000))) await settle(1);
  for (let i = 0; i < 30; i++) {
    await clock.advance(1_000);
    await settle(2);
  }
  t.equal(body.cancelled, null, 'thirty seconds without a byte taken');
  t.equal(port.connections, 1);
  t.equal(front.observation.inFlight(), 1);
  // As the total deadline does it.
  body.cut(5001, 'the total deadline has passed');
  t.equal(front.observation.inFlight(), 0, 'the call is over');
  for (let i = 0; i < 12; i++) {
    await clock.advance(1_000);
    await settle(2);
  }
  await waitUntil('the connection is cut off', () => port.connections === 0);
});

t.test('any bytes in any pieces end with a status, and the connection serves on', async (t) => {
  const { address, client } = await open(t, ok);
  const session = connectHttp2(`http://${address}`);
  session.on('error', () => undefined);
  const good = message(text(1, NAME));
  const send = async (pieces: readonly Buffer[]): Promise<unknown> => {
    const stream = session.request(requestHead(INVOKE));
    const seen: Record<string, unknown> = {};
    stream.on('response', (headers) => Object.assign(seen, headers));
    stream.on('trailers', (headers) => Object.assign(seen, headers));
    stream.on('error', () => undefined);
    stream.resume();
    const closed = new Promise<void>((done) => stream.on('close', () => done()));
    for (const piece of pieces) {
      stream.write(piece);
      await settle(1);
    }
    stream.end();
    await closed;
    return seen['grpc-status'];
  };
  t.equal(await send([...good].map((byte) => Buffer.from([byte]))), '0', 'byte by byte');
  await fc.assert(
    fc.asyncProperty(fc.array(fc.uint8Array({ minLength: 1, maxLength: 40 }), { maxLength: 4 }), async (pieces) =>
      ['0', '3', '8', '12'].includes(String(await send(pieces.map((piece) => Buffer.from(piece))))),
    ),
    { numRuns: 100, seed: 4 },
  );
  t.equal(await send([good]), '0', 'the same connection still serves');
  session.close();
  t.equal((await client.invoke({ capability: NAME })).status, 0);
});

// Values.

t.test('any JSON is the same after the way through a Value', (t) => {
  fc.assert(
    fc.property(fc.jsonValue({ maxDepth: 5 }), (json) => {
      const text = JSON.stringify(json);
      const value = valueOfJson(Buffer.from(text));
      if (value === null) return !hasExactNumbers(Buffer.from(text));
      const back = jsonOfValue(fromBinary(ValueSchema, toBinary(ValueSchema, value)));
      return back !== null && JSON.stringify(JSON.parse(back)) === JSON.stringify(JSON.parse(text));
    }),
    { numRuns: 1_000, seed: 4 },
  );
  const exact = [
    '0',
    '-0',
    '0.1000',
    '0.1234567890123456',
    '123456789012345',
    '1e300',
    '12340000000000000000',
    '"9007199254740993"',
    '"a\\"9007199254740993"',
    '[1,2]',
    '0e999',
  ];
  const inexact = [
    '9007199254740993',
    '0.10000000000000001',
    '[1,{"a":1285704473650888702}]',
    '1e400',
    '-1e400',
    '1e-400',
    `1${'0'.repeat(400)}`,
  ];
  for (const text of exact) t.equal(hasExactNumbers(Buffer.from(text)), true, text.slice(0, 40));
  for (const text of inexact) t.equal(hasExactNumbers(Buffer.from(text)), false, text.slice(0, 40));
  let deep = '1';
  for (let i = 0; i < 50; i++) deep = `[${deep}]`;
  t.equal(valueOfJson(Buffer.from(deep)), null, 'deeper than clients read');
  t.end();
});

t.test('any bytes are a request, or a refusal in words', (t) => {
  fc.assert(
    fc.property(fc.uint8Array({ maxLength: 300 }), (bytes) => {
      const read = readInvokeRequest(Buffer.from(bytes));
      return typeof read === 'string' ? read.length > 0 : true;
    }),
    { numRuns: 2_000, seed: 4 },
  );
  t.equal(percentEncoded('a%ü\n\ud800'), 'a%25%C3%BC%0A%EF%BF%BD');
  t.end();
});

// The .proto files, and grpcurl.

t.test('what reflection shows is what stands in the .proto files', (t) => {
  const built = inflateSync(Buffer.from(REACH_DESCRIPTORS, 'base64'));
  const options = { keepCase: true } as const;
  const texts = loadSync([...PROTO_FILES], { includeDirs: [repoFile('proto')], ...options });
  const compiled = loadFileDescriptorSetFromBuffer(built, options);
  for (const name of Object.keys(texts)) {
    if (name.startsWith('google.protobuf')) continue;
    t.strictSame(shapeOf(compiled[name]), shapeOf(texts[name]), `${name} (else: make descriptors)`);
  }
  const program = grpcurl();
  if (program !== null) t.ok(compiledDescriptors(program).equals(built), 'to the letter, comments too (else: make descriptors)');
  t.end();
});

t.test('grpcurl needs no .proto file, and reads like the README', async (t) => {
  const { address, client } = await open(t, (call, stage) => {
    if (call.headers.authorization !== 'Bearer good') call.code = Code.unauthenticated;
    else stage.answer(call, 200, `{"order":${call.body.length}}`);
  });
  const run = runner(address);
  const H = ['-H', 'authorization: Bearer good'];
  const byParams = await run([...H, '-d', '{"capability":"crm.order.query","params":{"order":7}}', 'agentreach.v1.Reach/Invoke']);
  t.match(JSON.parse(byParams.out), { status: 200, provider: 'crm.order.a', result: { order: 11 } });
  const payload = Buffer.from('{"order":7}').toString('base64');
  const byBytes = await run([...H, '-d', `{"capability":"crm.order.query","payload":"${payload}"}`, 'agentreach.v1.Reach/Invoke']);
  t.match(JSON.parse(byBytes.out), { data: Buffer.from('{"order":11}').toString('base64') });
  const refused = await run(['-d', '{"capability":"crm.order.query"}', 'agentreach.v1.Reach/Invoke']);
  t.equal(refused.code, 64 + 16);
  t.match(refused.err, /Code: Unauthenticated\s+Message: 4001 unauthenticated/);
  const health = await run(['grpc.health.v1.Health/Check']);
  t.match(JSON.parse(health.out), { status: 'SERVING' });
  const program = grpcurl();
  if (program !== null) {
    t.match((await exec(program, ['-plaintext', address, 'list'])).out.trim().split('\n'), [
      'agentreach.v1.Reach',
      'grpc.health.v1.Health',
      'grpc.reflection.v1.ServerReflection',
    ]);
    const described = await exec(program, ['-plaintext', address, 'describe', 'agentreach.v1.InvokeRequest']);
    t.match(described.out, /google\.protobuf\.Value params = 6/);
    t.match(described.out, /what is easiest by hand/, 'with its comments');
    const details = await exec(program, ['-plaintext', '-d', '{}', address, 'agentreach.v1.Reach/Invoke']);
    t.match(details.err, /"reason": "UNAUTHENTICATED"/, 'details are read by reflection too');
  }
  const INFO = '/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo';
  const came = await client.bidi(INFO, [
    { host: 'h', list_services: '*' },
    { file_containing_symbol: 'agentreach.v1.Reach.Invoke' },
    { file_by_filename: 'google/protobuf/struct.proto' },
    { file_containing_symbol: 'nope.Nothing' },
    { all_extension_numbers_of_type: 'agentreach.v1.InvokeRequest' },
    { file_containing_extension: { containing_type: 'x', extension_number: 1 } },
    {},
  ]);
  t.match(came.replies, [
    { valid_host: 'h', original_request: { list_services: '*' }, list_services_response: { service: [{ name: 'agentreach.v1.Reach' }] } },
    { message_response: 'file_descriptor_response' },
    { message_response: 'file_descriptor_response' },
    { error_response: { error_code: 5 } },
    { all_extension_numbers_response: { base_type_name: 'agentreach.v1.InvokeRequest' } },
    { error_response: { error_code: 5 } },
    { error_response: { error_code: 12 } },
  ]);
  t.equal(came.replies[1].file_descriptor_response.file_descriptor_proto.length, 2, 'the file and what it needs');
});

// A whole sidecar.

const TABLE = `
contracts:
  - {name: crm.order.query, version: 2.1.0, description: orders, acl: public, streaming: true}
providers:
  - {agent_id: crm.order.a, endpoint: {type: http, address: AGENT}, offers: [crm.order.query@2.1.0]}
`;

t.test('sidecar.grpc opens the port, and a call through it is a call', async (t) => {
  const before = takeBase();
  const agent = await TestAgent.listen('order', async (request) => {
    if ((request.json as { slow?: boolean } | null)?.slow === true) await sleep(1_000);
    return { body: { got: request.json, left: request.headers['reach-deadline-ms'], step: request.headers['x-own'] } };
  });
  const rig = await Rig.start(t, { table: TABLE.replace('AGENT', agent.url), settings: '  grpc: {listen: "127.0.0.1:0"}' });
  const address = rig.started.grpcAddress as string;
  t.match(address, /^127\.0\.0\.1:\d+$/);
  const run = runner(address);
  const came = await run([
    '-H',
    `authorization: Bearer ${TOKEN}`,
    '-H',
    'x-own: 1',
    '-d',
    '{"capability":"crm.order.query@^2.0","params":{"order":7}}',
    'agentreach.v1.Reach/Invoke',
  ]);
  t.match(JSON.parse(came.out), { status: 200, version: '2.1.0', result: { got: { order: 7 }, step: '1' } }, came.err);
  const client = new GrpcClient(address);
  const slow = { capability: NAME, json: '{"slow":true}' };
  const late = await client.invoke(slow, { token: TOKEN, metadata: { 'reach-deadline-ms': '100' }, deadlineMs: 5_000 });
  t.match(late, { status: 4, trailers: { 'reach-code': '5001', 'reach-ambiguous': 'true', 'grpc-retry-pushback-ms': '-1' } });
  const own = await rawRpc(t, address, INVOKE, message(Buffer.concat([text(1, NAME), text(5, '{"slow":true}')])), {
    authorization: `Bearer ${TOKEN}`,
    'grpc-timeout': '100m',
  });
  t.match(
    own.all,
    { 'grpc-status': '4', 'reach-code': '5001' },
    "a client's own time is over: told as a deadline, not as a client that left",
  );
  t.match(await client.invoke({ capability: 'no.such.thing' }, { token: TOKEN }), { status: 12, trailers: { 'reach-code': '2001' } });
  t.match(await client.invoke({ capability: NAME }, { token: null }), { status: 16, trailers: { 'reach-code': '4001' } });
  client.close();
  t.equal(rig.logged.filter((line) => line['msg'] === 'call' && line['way'] === 'grpc').length, 5);
  await rig.stop();
  await agent.close();
  await rig.finish(t, before, [{ name: 'order', count: agent.executions, expected: 3 }]);
});

// By hand.

function text(field: number, value: string): Buffer {
  return Buffer.concat([Buffer.from([field * 8 + 2, Buffer.byteLength(value)]), Buffer.from(value)]);
}

function message(bytes: Buffer, flag = 0): Buffer {
  const framed = Buffer.alloc(5 + bytes.length);
  framed[0] = flag;
  framed.writeUInt32BE(bytes.length, 1);
  bytes.copy(framed, 5);
  return framed;
}

function requestHead(path: string, headers: Record<string, string> = {}): Record<string, string> {
  return { ':method': 'POST', ':path': path, 'content-type': 'application/grpc', te: 'trailers', ...headers };
}

/** One RPC in raw bytes: head and trailers together. `open` true: the request does not end. */
async function rawRpc(
  t: Test,
  address: string,
  path: string,
  bytes: Buffer,
  headers: Record<string, string> = {},
  isOpen = false,
): Promise<{ readonly all: Record<string, unknown> }> {
  const session: ClientHttp2Session = connectHttp2(`http://${address}`);
  session.on('error', (error) => t.comment(String(error)));
  const all: Record<string, unknown> = {};
  const stream = session.request(requestHead(path, headers));
  stream.on('response', (head) => Object.assign(all, head));
  stream.on('trailers', (trailers) => Object.assign(all, trailers));
  stream.on('error', () => undefined);
  stream.resume();
  if (isOpen) stream.write(bytes);
  else stream.end(bytes);
  await new Promise<void>((done) => stream.on('close', () => done()));
  session.destroy();
  return { all };
}

/** Fields and methods as either loader tells them. */
function shapeOf(definition: unknown): unknown {
  const one = definition as { type?: { field?: unknown[]; value?: unknown[] }; format?: string };
  if (one.format === undefined) return Object.keys(definition as object).sort();
  const fields = (one.type?.field ?? []) as { name: string; number: number; label: string; type: string; typeName: string }[];
  return {
    fields: fields
      .map(({ name, number, label, type, typeName }) =>
        [
          name,
          number,
          label,
          type,
          typeName
            .split('.')
            .at(-1)
            ?.replace(/Entry$/, ''),
        ].join(' '),
      )
      .sort(),
    values: one.type?.value ?? [],
  };
}

interface Ran {
  readonly code: number;
  readonly out: string;
  readonly err: string;
}

/** grpcurl where it is, else what stands in for it; the last argument is the method. */
function runner(address: string): (args: readonly string[]) => Promise<Ran> {
  const program = grpcurl();
  return (args) => {
    const whole = ['-plaintext', ...args.slice(0, -1), address, args.at(-1) as string];
    return program === null ? likeGrpcurl(whole) : exec(program, whole);
  };
}

function exec(program: string, args: readonly string[]): Promise<Ran> {
  return new Promise((done) => {
    execFile(program, args, { timeout: 20_000 }, (error, out, err) =>
      done({ code: error === null ? 0 : typeof error.code === 'number' ? error.code : 1, out, err }),
    );
  });
}

t.test('a message that comes byte by byte costs about as many bytes as it has, and is whole in the end', async (t) => {
  setFlagsFromString('--expose-gc');
  const collect = runInNewContext('gc') as () => void;
  const inUse = (): number => {
    collect();
    const { heapUsed, arrayBuffers } = process.memoryUsage();
    return heapUsed + arrayBuffers;
  };
  const BYTES = 65_000;
  const whole: Buffer[] = [];
  const { engine, observation } = new ScriptedFront({ script: ok });
  const stream = new PassThrough() as unknown as ServerHttp2Stream;
  const taker = { message: (_exchange: Exchange, message: Buffer) => void whole.push(message), allSaid: () => {} };
  const front = { engine, observation } as unknown as Front;
  const exchange = new Exchange(front, stream, [], taker, { slow: true, backlog: new Backlog(1_048_576) });
  const prefix = Buffer.from([0, 0, 0, 0, 0]);
  prefix.writeUInt32BE(BYTES, 1);
  const before = inUse();
  exchange.take(prefix);
  // As they come in reads of 64 KiB, each byte in a DATA frame of its own.
  for (let sent = 0; sent < BYTES - 1; ) {
    const read = Buffer.alloc(65_536, 7);
    for (let at = 9; at < read.length && sent < BYTES - 1; at += 10, sent++) exchange.take(read.subarray(at, at + 1));
  }
  const held = inUse() - before;
  t.ok(held < 2 * 1_048_576, `${held} bytes are held for ${BYTES - 1}`);
  t.equal(whole.length, 0);
  exchange.take(Buffer.from([7, 0, 0, 0, 0, 1, 9, 0, 0]));
  t.strictSame(
    whole.map((message) => message.length),
    [BYTES, 1],
    'and so is the next one, which came with its end',
  );
  t.ok(whole[0]?.every((byte) => byte === 7));
  exchange.closed();
});
