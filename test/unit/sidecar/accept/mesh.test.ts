import t, { type Test } from 'tap';
import { Frame } from '../../../../proto/wire/frames.ts';
import { meshPort } from '../../../../sidecar/accept/mesh.ts';
import { LateAnswer } from '../../../../sidecar/call/late-answer.ts';
import { answered, failed } from '../../../../sidecar/call/reply.ts';
import { refusing, Verdict } from '../../../../sidecar/call/verdict.ts';
import { type Candidate, Snapshot } from '../../../../sidecar/table/snapshot.ts';
import { type Script, type ScriptedBody, ScriptedFront } from '../../../support/front.ts';
import { dechunked, framesOf } from '../../../support/frames.ts';
import { ask as askRaw, head, RawClient, type RawAnswer } from '../../../support/raw-http.ts';
import { waitUntil } from '../../../support/settle.ts';

const PATH = '/mesh/v1/invoke/crm.order.query';
const PEER = {
  authorization: 'Bearer mesh',
  'reach-wire': '1',
  'reach-provider': 'crm.order.a',
  'reach-version': '2.1.0',
  'reach-caller': 'shop.chat.1',
};

async function open(t: Test, script: Script): Promise<{ front: ScriptedFront; at: number }> {
  const front = new ScriptedFront({ script });
  const port = meshPort(front, { host: '127.0.0.1', port: 0 });
  await port.open();
  t.teardown(async () => {
    await port.close(200);
    if (front.observation.inFlight() !== 0 || front.accessLines().length !== front.observation.ended())
      throw new Error('something is left behind');
  });
  return { front, at: port.address.port };
}

const ask = (at: number, headers: Record<string, string | null> = {}, body = '{}'): Promise<RawAnswer> =>
  askRaw(at, 'POST', PATH, { ...PEER, ...headers }, body);

t.test("the agent's whole answer is passed on as it came, its own errors too", async (t) => {
  let status = 200;
  const { at, front } = await open(t, (call, stage) => {
    call.definitelySuccess = status === 200;
    call.noRetry = status === 409;
    stage.answer(
      call,
      status,
      '{"n":1e400}',
      { 'content-type': 'application/json', 'x-own': '1', 'reach-code': '9001', 'reach-started': 'not_started' },
      status === 200 ? 0 : 6001,
    );
  });
  const good = await ask(at);
  t.equal(good.status, 200);
  t.equal(good.body, '{"n":1e400}');
  t.match(
    good.headers,
    { 'reach-code': '0', 'reach-started': 'done', 'reach-definitely-success': 'true', 'x-own': '1', 'content-type': 'application/json' },
    'an agent cannot speak for the sidecar',
  );
  t.match(front.calls[0], { way: 'mesh', asked: 'crm.order.query', stream: false });
  status = 409;
  const own = await ask(at);
  t.equal(own.status, 409);
  t.equal(own.body, '{"n":1e400}');
  t.match(own.headers, { 'reach-code': '0', 'reach-started': 'done', 'reach-retry': 'none' });
});

t.test('a refusal says that the work never started, and why', async (t) => {
  const busy = refusing('slots', 'provider_busy', 3003, '{a} has {b} calls');
  const { at } = await open(t, (call) => {
    call.refusal = new Verdict(busy, 'crm.order.ä\n', 7);
    call.code = 3003;
    call.retryAfterMs = 250.5;
  });
  const answer = await ask(at);
  t.equal(answer.status, 503);
  t.equal(answer.body, '');
  t.match(answer.headers, { 'reach-code': '3003', 'reach-started': 'not_started', 'reach-retry-after-ms': '251' });
  t.equal(decodeURIComponent(answer.headers['reach-detail'] ?? ''), 'crm.order.ä\n has 7 calls');
});

t.test('a failed attempt says how far it got; long words are cut to whole characters', async (t) => {
  const { at } = await open(t, (call, stage) => {
    stage.attempt(call, 1002, 'started', 0, 'ü'.repeat(5_000));
    call.reply = failed(1002, 'started', 'ü'.repeat(5_000));
    call.code = 1002;
  });
  const answer = await ask(at);
  t.equal(answer.status, 502);
  t.match(answer.headers, { 'reach-code': '1002', 'reach-started': 'started' });
  const detail = answer.headers['reach-detail'] ?? '';
  t.ok(detail.length <= 1_024 && detail.length > 1_000);
  t.match(decodeURIComponent(detail), /^ü+$/);
});

t.test('an answer that comes too late for the call is passed on where the caller’s end wants it for its key', async (t) => {
  let good = true;
  const { at, front } = await open(t, (call, stage) => {
    stage.attempt(call, 5001, 'started', 0, 'no answer');
    call.reply = failed(5001, 'started', 'no answer');
    call.code = 5001;
    if (call.lateMs > 0) {
      call.late = new LateAnswer({} as Candidate, false);
      call.late.reply = new Promise((done) =>
        setTimeout(() => done(good ? answered(201, { 'content-type': 'application/json' }, Buffer.from('{"n":1}')) : null), 60),
      );
    }
  });
  const late = await ask(at, { 'reach-late-ms': '30000' });
  t.equal(late.status, 201);
  t.equal(late.body, '{"n":1}');
  t.match(late.headers, { 'reach-code': '0', 'reach-started': 'done' });
  t.equal(front.calls[0]?.lateMs, 30_000);
  good = false;
  t.match((await ask(at, { 'reach-late-ms': '30000' })).headers, { 'reach-code': '5001', 'reach-started': 'started' });
  for (const nothing of ['x', '-1', null]) {
    t.match((await ask(at, { 'reach-late-ms': nothing })).headers, { 'reach-code': '5001' });
    t.equal(front.calls.at(-1)?.lateMs, 0);
  }
});

t.test('a peer of another wire version is told both versions', async (t) => {
  const { at, front } = await open(t, (call, stage) => stage.answer(call, 200, '{}'));
  for (const wire of ['2', null]) {
    const answer = await ask(at, { 'reach-wire': wire });
    t.equal(answer.status, 503, "nobody's mistake: another provider's sidecar may understand it");
    t.match(answer.headers, { 'reach-code': '2003', 'reach-started': 'not_started' });
    const detail = decodeURIComponent(answer.headers['reach-detail'] ?? '');
    t.equal(detail, `it speaks version ${wire ?? 'unknown'} of the mesh, and this program version 1: update the older one`);
  }
  t.match((await ask(at, { 'reach-provider': null })).headers, { 'reach-code': '4003' });
  t.match((await ask(at, { 'reach-version': null })).headers, { 'reach-code': '4003' });
  t.equal(front.calls.length, 0);
});

t.test('an intercepted request from a peer is judged here again: no other method, no way out of the agent’s folder', async (t) => {
  const { at, front } = await open(t, (call, stage) => stage.answer(call, 200, '{}'));
  const good = await ask(at, { 'reach-method': 'GET', 'reach-target': '/orders/..x?a=/../b', 'reach-authorization': 'Basic x' });
  t.equal(good.status, 200);
  t.match(front.calls[0]?.http, { method: 'GET', target: '/orders/..x?a=/../b', credentials: ['authorization', 'Basic x'] });
  for (const [method, target] of [
    ['TRACE', '/'],
    ['CONNECT', '/'],
    ['get', '/'],
    ['GET', '/../admin'],
    ['GET', '/a/%2e%2e/admin'],
    ['GET', '/a/..%5cadmin'],
    ['GET', '/a#b'],
    ['GET', 'http://127.0.0.1/'],
    ['GET', null],
    [null, '/'],
  ] as const) {
    const answer = await ask(at, { 'reach-method': method, 'reach-target': target });
    t.match(answer.headers, { 'reach-code': '4003', 'reach-started': 'not_started' }, `${method} ${target}`);
  }
  t.equal(front.calls.length, 1);
});

t.test('a sidecar that starts or stops has not started the work', async (t) => {
  const { at, front } = await open(t, (call, stage) => stage.answer(call, 200, '{}'));
  front.scripted.ready = false;
  t.match(await ask(at), {
    status: 503,
    headers: { 'reach-code': '2003', 'reach-started': 'not_started', 'reach-retry-after-ms': '1000' },
  });
  t.equal((await askRaw(at, 'GET', '/mesh/v1/ready', { authorization: null })).status, 503);
  front.scripted.ready = true;
  t.equal((await askRaw(at, 'GET', '/mesh/v1/ready', { authorization: null })).status, 200);
  front.draining = true;
  t.match(await ask(at), { status: 503, headers: { 'reach-code': '2006', 'reach-started': 'not_started' } });
});

t.test('browsers have no business on this port, whatever the path and the host', async (t) => {
  const { at, front } = await open(t, (call, stage) => stage.answer(call, 200, '{}'));
  for (const headers of [{ origin: 'http://127.0.0.1' }, { origin: 'null' }, { 'sec-fetch-site': 'none' }]) {
    t.equal((await ask(at, headers)).status, 403);
    t.equal((await askRaw(at, 'GET', '/nothing', headers)).status, 403);
  }
  t.equal((await ask(at, { 'transfer-encoding': 'gzip, chunked', 'content-length': null })).status, 400);
  t.equal(front.calls.length, 0);
  const rebound = await ask(at, { host: 'sidecar-b.mesh:7701' });
  t.equal(rebound.status, 403, 'a page may have turned a name of its own onto this address');
  t.equal(front.calls.length, 0);
  front.scripted.snapshot = new Snapshot(
    2,
    { ...front.scripted.snapshot.document, sidecars: [{ name: 'b', mesh: 'http://sidecar-b.mesh:7701' }] },
    front.scripted.snapshot.capabilities,
    new Map(),
    new Map(),
  );
  for (const host of ['sidecar-b.mesh:7701', 'SIDECAR-B.mesh', '10.1.2.3:7701', '[fd00::1]:7701', 'localhost'])
    t.equal((await ask(at, { host })).status, 200, host);
  for (const host of ['evil.test', 'sidecar-b.mesh.evil.test', '10.1.2.3.evil.test', '1.2.3', '[evil]', ''])
    t.equal((await ask(at, { host })).status, 403, host);
});

t.test('a stream passes through chunk by chunk, and a cut stays a cut', async (t) => {
  const bodies: ScriptedBody[] = [];
  const { at, front } = await open(t, (call, stage) => {
    bodies.push(stage.stream(call, { 'content-type': 'text/event-stream' }));
  });
  for (const ending of ['end', 'cut', 'leave'] as const) {
    const client = await RawClient.to(at);
    client.write(`${head('POST', PATH, { ...PEER, 'reach-stream': '1', 'content-length': '2' })}{}`);
    await client.until((text) => text.includes('\r\n\r\n'));
    const source = bodies.at(-1) as ScriptedBody;
    source.push('data: half');
    await client.until((text) => text.includes('half'));
    t.match(client.text, /reach-code: 0\r\n/);
    if (ending === 'end') {
      source.end();
      const answer = await client.answer();
      t.ok(answer.isWhole);
      t.equal(answer.body, 'data: half');
    } else if (ending === 'cut') {
      source.cut(1006, 'gone');
      t.ok(await client.closed());
      t.notOk((await client.answer()).isWhole);
    } else {
      client.close();
      await waitUntil('the agent is told', () => source.cancelled !== null, 500);
    }
    client.close();
  }
  t.ok(front.calls.every((call) => call.stream));
});

t.test('a peer that can read frames gets them: an end and a cut, with code and words, are told apart', async (t) => {
  const { at } = await open(t, (call, stage) => {
    const source = stage.stream(call, { 'content-type': 'text/event-stream' });
    setImmediate(() => {
      source.push('data: half');
      if (call.asked === 'crm.order.query') source.end();
      else {
        (call.attempts[0] as { detail: string }).detail = 'nothing came for 30 s';
        source.cut(1006, 'ignored, the attempt says it');
      }
    });
  });
  for (const path of [PATH, PATH.replace('query', 'cut')]) {
    const client = await RawClient.to(at);
    client.write(`${head('POST', path, { ...PEER, 'reach-stream': '1', 'reach-frames': '1', 'content-length': '2' })}{}`);
    await client.until((text) => text.endsWith('0\r\n\r\n'));
    const { head: headText, body } = dechunked(client.received);
    t.match(headText, /content-type: text\/event-stream\r\n/, 'the type is that of the body');
    t.match(headText, /reach-frames: 1\r\n/);
    const frames = framesOf(body);
    t.same(frames[0], [Frame.data, 'data: half']);
    if (path === PATH) t.same(frames.slice(1), [[Frame.end, '{"code":0,"error":null}']]);
    else {
      t.equal(frames[1]?.[0], Frame.error);
      t.match(JSON.parse(frames[1]?.[1] ?? ''), { code: 1006, error: { name: 'stream_interrupted', detail: 'nothing came for 30 s' } });
    }
    client.close();
  }
});

t.test('a peer that leaves cancels the work', async (t) => {
  const { at, front } = await open(
    t,
    (call) =>
      new Promise<void>((done) => {
        call.onCancel = () => {
          call.code = 5003;
          done();
        };
      }),
  );
  const client = await RawClient.to(at);
  client.write(`${head('POST', PATH, { ...PEER, 'content-length': '2' })}{}`);
  await waitUntil('under way', () => front.observation.inFlight() === 1);
  client.close();
  await waitUntil('cancelled', () => front.observation.inFlight() === 0, 500);
  t.ok(front.calls[0]?.cancelled);
});
