/** Faults at a gRPC server's end: statuses that come late or not at all, servers that go away, names that move. */
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { request } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import t from 'tap';
import { DnsStub } from '../support/dns-stub.ts';
import { answer, GRPC_HEAD, GrpcStub, type GrpcScript, SHOP_PROTO, told } from '../support/grpc-stub.ts';
import { type Base, takeBase } from '../support/invariants.ts';
import { type Answer, Rig, TOKEN } from '../support/rig.ts';
import { waitUntil } from '../support/settle.ts';

type Test = Parameters<typeof Rig.start>[0];

t.setTimeout(110_000);
const before: Base = takeBase();
const sleep = (ms: number): Promise<void> => new Promise((done) => setTimeout(done, ms));
const folder = mkdtempSync(join(tmpdir(), 'reach-grpc-'));
const PROTO = join(folder, 'shop.proto');
writeFileSync(PROTO, SHOP_PROTO);
t.teardown(() => rmSync(folder, { recursive: true, force: true }));

const fine =
  (name: string): GrpcScript =>
  (stream, request) =>
    answer(stream, request.path.endsWith('Watch') ? [told(name, 1), told(name, 2)] : [told(name)]);

async function stubbed(t: Test, script: GrpcScript, parts: Parameters<typeof GrpcStub.listen>[1] = {}): Promise<GrpcStub> {
  const stub = await GrpcStub.listen(script, parts);
  t.teardown(() => stub.close());
  return stub;
}

/** `crm.order.query` (unary) and `crm.order.watch` (streaming); the first address is preferred. */
function tableOf(addresses: readonly string[], execution = 'idempotent', extra = ''): string {
  const lines = ['contracts:'];
  for (const name of ['crm.order.query', 'crm.order.watch'])
    lines.push(`  - {name: ${name}, version: "2.0.0", acl: public, streaming: true, execution: ${execution}, timeout: 8s}`);
  lines.push('providers:');
  addresses.forEach((address, i) =>
    lines.push(
      `  - agent_id: crm.order.${i + 1}`,
      '    offers: ["crm.order.query@2.0.0", "crm.order.watch@2.0.0"]',
      `    tier: ${i === 0 ? 'primary' : 'backup'}`,
      `    endpoint: {type: grpc, address: "${address}", service: shop.v1.Orders, descriptor: "${PROTO}"${extra}}`,
    ),
  );
  lines.push(
    'policies:',
    '  - {capability: crm.order.query, load: primary_backup}',
    '  - {capability: crm.order.watch, load: primary_backup}',
  );
  return `${lines.join('\n')}\n`;
}

async function quiet(t: Test, rig: Rig, stubs: readonly (readonly [GrpcStub, number])[]): Promise<void> {
  await waitUntil('calls under way have ended', () => rig.quiet.inFlight() === 0, 5_000).catch(() => undefined);
  const counts = stubs.map(([stub, expected], i) => ({ name: `server ${i + 1}`, count: stub.requests.length, expected }));
  await rig.stop();
  for (const [stub] of stubs) {
    await waitUntil('the adapter has closed its connections', () => stub.openSessions === 0, 2_000);
    await stub.close();
  }
  await rig.finish(t, before, counts);
}

/** What comes of a stream, also of one that is cut. */
function streamed(rig: Rig, target: string): Promise<string> {
  return new Promise((done, fail) => {
    const headers = { authorization: `Bearer ${TOKEN}`, 'content-type': 'application/json', 'content-length': 2 };
    const asked = request(`${rig.url}/v1/stream/${target}`, { method: 'POST', agent: false, headers }, (response) => {
      let text = '';
      response.on('data', (chunk: Buffer) => (text += chunk.toString()));
      response.on('error', () => {});
      response.on('close', () => done(response.complete ? text : `${text}[cut]`));
    });
    asked.on('error', fail);
    asked.end('{}');
  });
}

const attempts = (got: Answer): number[] => (got.json.attempts as { code: number }[]).map(({ code }) => code);

t.test('C037 a failure that only the trailers tell is a failure: retried while nothing was forwarded, an error afterwards', async (t) => {
  const bad = await stubbed(t, (stream) => answer(stream, [], { 'grpc-status': '14', 'grpc-message': 'draining' }));
  const good = await stubbed(t, fine('second'));
  const rig = await Rig.start(t, { table: tableOf([bad.address, good.address]) });
  const got = await rig.invoke('crm.order.query');
  t.equal(got.json.code, 0);
  t.same(got.json.data, { agent: 'second', n: 0 });
  t.same(attempts(got), [6001, 0], 'retried at the second');
  t.match(got.json.attempts[0].detail, /UNAVAILABLE \(14\): "draining/);

  bad.script = (stream) => answer(stream, [told('half')], { 'grpc-status': '14', 'grpc-message': 'draining' });
  const variant = await rig.invoke('crm.order.query');
  t.same(variant.json.data, { agent: 'second', n: 0 }, 'a message before a failed status is no success of a unary call');
  t.same(attempts(variant), [6001, 0]);

  bad.script = (stream) => answer(stream, [], { 'grpc-status': '14' });
  const early = await rig.ask('/v1/stream/crm.order.watch', { method: 'POST' });
  t.match(early.bytes.toString(), /second/, 'a stream that failed before its first message begins elsewhere');

  bad.script = (stream) => answer(stream, [told('first', 1)], { 'grpc-status': '14', 'grpc-message': 'gone' });
  const text = await streamed(rig, 'crm.order.watch');
  t.match(text, /first/, 'the first message went through');
  t.notMatch(text, /second/, 'and nothing was retried after it');
  t.match(text, /\[cut\]$/, 'a cut is no end');
  const lastLine = (): string => JSON.stringify(rig.logged.findLast((line) => line['msg'] === 'call') ?? {});
  await waitUntil('it is accounted for', () => lastLine().includes('1006'));
  t.match(lastLine(), /UNAVAILABLE \(14\): \\"\[not shown\]/);

  bad.script = (stream) => {
    stream.respond({ ...GRPC_HEAD, 'grpc-status': '14' }, { endStream: true });
  };
  t.same(attempts(await rig.invoke('crm.order.query')), [6001, 0], 'the same in a head that is the end as well');
  await quiet(t, rig, [
    [bad, 5],
    [good, 4],
  ]);
});

t.test('C100 HTTP errors without a gRPC status, an end without trailers, and resets, each for what it is', async (t) => {
  const bad = await stubbed(t, fine('first'));
  const rig = await Rig.start(t, { table: tableOf([bad.address]).replaceAll('timeout: 8s', 'timeout: 8s, breaker: {enabled: false}') });
  const html =
    (status: number): GrpcScript =>
    (stream) => {
      stream.respond({ ':status': status, 'content-type': 'text/html' });
      stream.end('<html>no</html>');
    };
  const expected: readonly (readonly [number, number, number])[] = [
    [400, 1004, 0],
    [401, 6001, 401],
    [403, 6001, 403],
    [404, 6001, 404],
    [502, 6001, 502],
    [503, 6001, 503],
    [504, 6001, 504],
    [500, 1004, 0],
    [302, 1004, 0],
  ];
  for (const [status, code, shown] of expected) {
    bad.script = html(status);
    const got = await rig.invoke('crm.order.query');
    t.equal(got.json.code, code, `${status} is ${code}`);
    if (shown !== 0) t.equal(got.json.status, shown);
    t.match(JSON.stringify(got.json), new RegExp(`HTTP ${status} without a gRPC status`), 'the HTTP status is named');
  }
  const ends: readonly (readonly [GrpcScript, number, string, RegExp])[] = [
    [(stream) => (stream.respond(GRPC_HEAD), stream.end()), 1004, 'started', /without a gRPC status \(HTTP 200\)/],
    [(stream) => (stream.respond(GRPC_HEAD), stream.end(told('x'))), 1004, 'started', /without a gRPC status/],
    [(stream) => (stream.respond(GRPC_HEAD), stream.end(told('x').subarray(0, 6))), 1004, 'started', /without a gRPC status/],
    [(stream) => answer(stream, [told('x').subarray(0, 6)]), 1004, 'started', /in the middle of a message/],
    [(stream) => answer(stream, []), 1004, 'started', /0 messages/],
    [(stream) => stream.close(0), 1004, 'started', /without a gRPC status/],
    [(stream) => stream.close(7), 3003, 'not_started', /RST 7 REFUSED_STREAM/],
    [(stream) => stream.close(8), 1002, 'started', /RST 8 CANCEL/],
    [(stream) => stream.close(11), 3004, 'started', /RST 11 ENHANCE_YOUR_CALM/],
    [(stream) => stream.close(2), 1004, 'started', /RST 2/],
  ];
  for (const [script, code, started, words] of ends) {
    bad.script = script;
    const got = await rig.invoke('crm.order.query');
    t.equal(got.json.code, code, `${words} is ${code}`);
    t.match(got.json.attempts[0].detail, words);
    t.equal(got.json.attempts[0].started, started);
  }
  const first = expected.length + ends.length;
  t.equal(bad.sessions.length, 1, 'one connection has served them all');
  await sleep(1_100);
  bad.script = html(429);
  t.equal((await rig.invoke('crm.order.query')).json.code, 3004, '429 limits');
  const sum = bad.requests.length;
  t.equal(sum, first + 1);
  await quiet(t, rig, [[bad, sum]]);

  t.comment('retry: what may be repeated goes elsewhere, and what was refused goes elsewhere whatever it is');
  for (const [execution, script, expectedCodes] of [
    ['idempotent', html(503), [6001, 0]],
    ['idempotent', html(429), [3004, 0]],
    ['once', html(503), [6001]],
    ['once', ((stream) => stream.close(7)) as GrpcScript, [3003, 0]],
    ['once', ((stream) => stream.close(8)) as GrpcScript, [1002]],
  ] as const) {
    const one = await stubbed(t, script);
    const two = await stubbed(t, fine('second'));
    const pair = await Rig.start(t, { table: tableOf([one.address, two.address], execution) });
    t.same(attempts(await pair.invoke('crm.order.query')), expectedCodes, `${execution}: ${expectedCodes.join(', then ')}`);
    await quiet(t, pair, [
      [one, 1],
      [two, expectedCodes.length - 1],
    ]);
  }
});

t.test('C101 a server that goes away finishes its calls, and one that is pinged too often is pinged less', async (t) => {
  await t.test('GOAWAY', async (t) => {
    const server = await stubbed(t, (stream, request, session) => {
      if (request.number > 1) return answer(stream, [told('new')]);
      setTimeout(() => session.goaway(0, stream.id as number), 10);
      setTimeout(() => answer(stream, [told('old')]), 3_000);
    });
    const rig = await Rig.start(t, { table: tableOf([server.address], 'once', ', keepalive: 1s, keepalive_timeout: 800ms') });
    const first = rig.invoke('crm.order.query');
    await waitUntil('the first call is there', () => server.requests.length === 1);
    // The goodbye, which comes 10 ms later, has been read.
    await sleep(300);
    for (let i = 0; i < 20; i++) t.equal((await rig.invoke('crm.order.query')).json.code, 0, 'a new call is served at once');
    t.equal(server.sessions.length, 2, 'by a new connection');
    const got = await first;
    t.equal(got.json.code, 0, 'the call that was accepted before is finished');
    t.equal(got.json.data.agent, 'old');
    t.ok(got.elapsedMs >= 2_900);
    await waitUntil('the old connection is closed', () => server.openSessions === 1);
    await quiet(t, rig, [[server, 21]]);
  });

  await t.test('too many pings', async (t) => {
    const server = await stubbed(t, (stream, request) => {
      const timer = setTimeout(() => answer(stream, [told('slow')]), request.number === 1 ? 2_500 : 1_700);
      stream.on('close', () => clearTimeout(timer));
    });
    server.onPing = (session) => session.goaway(11, 0, Buffer.from('too_many_pings'));
    const rig = await Rig.start(t, { table: tableOf([server.address], 'once', ', keepalive: 1s') });
    const first = await rig.invoke('crm.order.query');
    t.equal(first.json.code, 1002, 'the server ended the connection under the call');
    for (let i = 0; i < 2; i++) t.equal((await rig.invoke('crm.order.query')).json.code, 0, 'calls of 1.7 s are not pinged any more');
    t.equal(server.pings, 1);
    t.equal(server.sessions.length, 2, 'no reconnect loop');
    const warned = rig.logged.filter((line) => String(line['msg']).includes('pinged more often'));
    t.equal(warned.length, 1, 'said once');
    t.match(warned[0]?.['msg'], /2000 ms/);
    await quiet(t, rig, [[server, 3]]);
  });
});

t.test('C102 a name is looked up again: after a failure at once, and now and then without one, but never per call', async (t) => {
  const dns = await DnsStub.listen(['127.0.0.2']);
  const old = await stubbed(t, fine('old'), { host: '127.0.0.2' });
  const next = await stubbed(t, fine('next'), { host: '127.0.0.3', port: old.port });
  // Scale: the name moves after 1.2 s instead of 10 s, and the refresh interval is 2 s instead of its default of 30 s.
  const rig = await Rig.start(t, { table: tableOf([`dns://${dns.address}/orders.test:${old.port}`], 'idempotent', ', refresh: 2s') });
  const agentOf = async (): Promise<string> => {
    const got = await rig.invoke('crm.order.query');
    return got.json.code === 0 ? got.json.data.agent : String(got.json.code);
  };
  for (let i = 0; i < 50; i++) t.equal(await agentOf(), 'old');
  t.equal(dns.asked, 1, 'one lookup for fifty calls');

  await sleep(1_200);
  dns.addresses = ['127.0.0.3'];
  await old.close();
  await waitUntil('the connection is gone', () => old.openSessions === 0);
  const failedAt = performance.now();
  await waitUntil('the new address is used', async () => (await agentOf()) === 'next', 5_000, 20);
  t.ok(performance.now() - failedAt < 5_000, 'within 5 s of the first failure');
  t.equal(await agentOf(), 'next');

  const again = await stubbed(t, fine('old'), { host: '127.0.0.2', port: next.port });
  dns.addresses = ['127.0.0.2', '127.0.0.3'];
  const askedBefore = dns.asked;
  const failures: string[] = [];
  await waitUntil(
    'the added address gets traffic',
    async () => {
      const agent = await agentOf();
      if (agent !== 'next' && agent !== 'old') failures.push(agent);
      return agent === 'old';
    },
    3_000,
    20,
  );
  t.same(failures, [], 'with no failure needed');
  const split: Record<string, number> = {};
  for (let i = 0; i < 20; i++) {
    const agent = await agentOf();
    split[agent] = (split[agent] ?? 0) + 1;
  }
  t.same(split, { old: 10, next: 10 }, 'calls go round over both');
  t.ok(dns.asked - askedBefore <= 3, 'no lookup per call');
  await dns.close();
  const sums = [old, again, next].map((stub) => stub.requests.length);
  await quiet(t, rig, [
    [old, sums[0] as number],
    [again, sums[1] as number],
    [next, sums[2] as number],
  ]);
});

t.test('C104 large trailers: the code always stays, the message is cut with a mark, details go first', async (t) => {
  let trailers: Record<string, string> = {};
  const server = await stubbed(t, (stream) => answer(stream, [], trailers));
  const rig = await Rig.start(t, { table: tableOf([server.address], 'once') });
  for (const kilobytes of [1, 11, 13, 64]) {
    const bytes = kilobytes * 1_024;
    // Each letter is nine characters on the wire; 64 KiB in one field is what the HTTP/2 library can carry.
    const letters = Math.floor(bytes / 9);
    const details = Buffer.concat([
      Buffer.from([0x08, 9]),
      Buffer.from([0x12]),
      lengthOf(bytes * 0.75 - 16),
      Buffer.alloc(Math.floor(bytes * 0.75) - 16, 'd'),
    ]);
    trailers = { 'grpc-status': '9', 'grpc-message': '%E4%BD%A0'.repeat(letters), 'grpc-status-details-bin': details.toString('base64') };
    const got = await rig.invoke('crm.order.query');
    t.equal(got.json.code, 6001);
    t.equal(got.json.status, 400, `${kilobytes} KB: FAILED_PRECONDITION is kept`);
    const said = got.json.data ?? got.json.error.data;
    t.equal(said.code, 9);
    t.equal(said.status, 'FAILED_PRECONDITION');
    if (letters <= 4_096) t.equal(said.message, '你'.repeat(letters), 'decoded whole');
    else t.equal(said.message, `${'你'.repeat(4_096)} … [cut, ${letters} characters]`, 'cut, with a mark');
    if (kilobytes === 64) t.match(said.details_dropped, /above the limit of 32768/);
    t.match(got.json.attempts[0].detail, /FAILED_PRECONDITION \(9\): "你/);
  }
  trailers = { 'grpc-status': '5', 'grpc-message': 'half %E4%BD, odd %, %zz and 100%25' };
  const odd = await rig.invoke('crm.order.query');
  t.equal(
    (odd.json.data ?? odd.json.error.data).message,
    'half \ufffd, odd %, %zz and 100%',
    'what is badly encoded does not hide the rest',
  );
  t.equal(server.sessions.length, 1);
  await quiet(t, rig, [[server, 5]]);
});

function lengthOf(length: number): Buffer {
  const bytes: number[] = [];
  for (let rest = Math.floor(length); ; rest >>>= 7) {
    if (rest < 128) return Buffer.from([...bytes, rest]);
    bytes.push((rest & 127) | 128);
  }
}

t.test('C105 refused streams go elsewhere whatever the work is, and the channel serves again when the server does', async (t) => {
  let refuses = true;
  let most = 0;
  let open = 0;
  const refusing: GrpcScript = (stream) => {
    if (refuses) return stream.close(7);
    most = Math.max(most, ++open);
    stream.on('close', () => open--);
    setTimeout(() => answer(stream, [told('first')]), 5);
  };
  const settings = { settings: { maxConcurrentStreams: 1 } };
  const alone = await stubbed(t, refusing, settings);
  const rig = await Rig.start(t, { table: tableOf([alone.address], 'once') });
  const stopsAt = setTimeout(() => (refuses = false), 2_000);
  t.teardown(() => clearTimeout(stopsAt));
  const many = await Promise.all(Array.from({ length: 50 }, () => rig.invoke('crm.order.query')));
  t.ok(
    many.every(({ json }) => json.code === 3003 && json.error.ambiguous !== true),
    'every one is told that it never started',
  );

  const first = await stubbed(t, refusing, settings);
  const second = await stubbed(t, fine('second'));
  const pair = await Rig.start(t, {
    table: tableOf([first.address, second.address], 'once'),
    settings: '  retry_budget: {ratio: 1, min_per_sec: 1000}',
  });
  const moved = await Promise.all(Array.from({ length: 50 }, () => pair.invoke('crm.order.query')));
  t.ok(
    moved.every(({ json }) => json.code === 0 && json.data.agent === 'second'),
    'refused is not processed: served elsewhere',
  );
  t.ok(refuses, 'while the first still refused');

  await waitUntil('the server is well again', () => !refuses, 3_000);
  const wellAt = performance.now();
  await waitUntil('it is served', async () => (await rig.invoke('crm.order.query')).json.code === 0, 2_000, 20);
  t.ok(performance.now() - wellAt < 2_000);
  const after = await Promise.all(Array.from({ length: 50 }, () => rig.invoke('crm.order.query')));
  t.ok(
    after.every(({ json }) => json.code === 0),
    'fifty at once, one stream a connection: those without room wait for it',
  );
  t.ok(most <= 8, `no more than eight connections to one address (${most})`);
  const sums = [alone, first, second].map((stub) => stub.requests.length);
  await pair.stop();
  await Promise.all([first.close(), second.close()]);
  await quiet(t, rig, [[alone, sums[0] as number]]);
  await pair.finish(t, before, [
    { name: 'first', count: first.requests.length, expected: sums[1] as number },
    { name: 'second', count: second.requests.length, expected: 50 },
  ]);
});
