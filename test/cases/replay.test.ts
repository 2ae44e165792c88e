/** C137: a replay answers what was recorded and nothing else. */
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import t from 'tap';
import { Code } from '../../proto/wire/codes.ts';
import { NO_CHANGES } from '../../sidecar/replay/changes.ts';
import { sendLines } from '../../sidecar/replay/report.ts';
import { answersOf, requestOf, sendToSandbox } from '../../sidecar/replay/send.ts';
import { sendToUrl } from '../../sidecar/replay/send-url.ts';
import { readRecording, type Recording } from '../../sidecar/record/reading.ts';
import { type Ask, RecordedAnswers, type ReplayMiss } from '../../sidecar/transports/recorded-answers.ts';
import { RecordedWorld } from '../support/recorded-world.ts';

/** The provider stands at an address that somebody listens at: whoever came there would be seen. */
const table = (port: number): string => `
scenario: recorded
as: crm.web.1
contracts:
  - {name: crm.order.query, version: 2.0.0, description: Orders., acl: public, execution: idempotent, retry: {max: 0}}
  - {name: crm.order.query, version: 2.1.0, description: Orders., acl: public, execution: idempotent, retry: {max: 0}}
providers:
  - {agent_id: crm.order.1, offers: [crm.order.query@2.0.0], endpoint: {type: http, address: "http://127.0.0.1:${port}"}}
  - {agent_id: crm.order.2, offers: [crm.order.query@2.1.0], endpoint: {type: http, address: "http://127.0.0.1:${port}"}}
mocks:
  crm.order.1: {latency: 5ms}
  crm.order.2: {latency: 5ms}
steps:
  - {call: crm.order.query}
`;

const WHOLE = { headers: [], query: [], json: ['/n', '/deep/*', '/agent', '/payload/n', '/payload/deep/*'] };

function read(folder: string): Recording {
  const recording = readRecording(folder);
  if (typeof recording === 'string') throw new Error(recording);
  return recording;
}

function ask(body: unknown, more: Partial<Ask> = {}): Ask {
  return {
    capability: 'crm.order.query',
    version: '2.0.0',
    caller: 'crm.web.1',
    http: null,
    body: Buffer.isBuffer(body) ? body : Buffer.from(typeof body === 'string' ? body : JSON.stringify(body)),
    type: 'application/json',
    ...more,
  };
}

function missOf(outcome: object): ReplayMiss {
  if (!('why' in outcome)) throw new Error(`an answer was given: ${JSON.stringify(outcome)}`);
  return outcome as ReplayMiss;
}

t.test('C137 a changed request is a miss, told with what is different, and reaches nobody', async (t) => {
  let reached = 0;
  const provider = createServer((_request, response) => {
    reached++;
    response.end('{}');
  });
  await new Promise<void>((done) => provider.listen(0, '127.0.0.1', done));
  const { port } = provider.address() as AddressInfo;
  t.teardown(() => provider.close());
  const world = new RecordedWorld(table(port), {}, WHOLE);
  t.teardown(() => world.remove());
  await world.call({ name: 'crm.order.query@2.0.0', body: { n: 1, deep: { a: 1, b: 2 } } });
  await world.call({ name: 'crm.order.query@2.0.0', body: { n: 1, deep: { a: 1, b: 2 } } });
  const recording = read(await world.written());
  const answers = (): RecordedAnswers<unknown> => new RecordedAnswers(answersOf(recording.files[0] as (typeof recording.files)[number]));

  await t.test('another body, version, caller or capability is a miss', async (t) => {
    const same = { n: 1, deep: { a: 1, b: 2 } };
    const changed = missOf(answers().take(ask({ ...same, n: 2 })));
    t.match(changed, { why: /call 1, attempt 1 comes nearest/, diff: ['body /n: asked 2, recorded 1'] });
    t.match(missOf(answers().take(ask(same, { version: '2.1.0' }))).diff, ['version: asked 2.1.0, recorded 2.0.0']);
    t.match(missOf(answers().take(ask(same, { caller: 'crm.web.2' }))).diff, ['caller: asked by crm.web.2, recorded by crm.web.1']);
    t.match(missOf(answers().take(ask(same, { capability: 'crm.note.read' }))).why, /no call of crm\.note\.read was recorded/);
    for (const [body, diff] of [
      [{ n: 1 }, /body \/deep: is not there, and was recorded/],
      [{ ...same, more: 'x7-not-to-be-shown' }, /body \/more: was not there when it was recorded/],
      [{ ...same, n: '1' }, /body \/n: asked "1", recorded 1/],
      [{ ...same, deep: [1, 2] }, /body \/deep: asked a list, recorded a map/],
      ['{"n": ', /not JSON/],
      ['', /not JSON/],
    ] as const) {
      const miss = missOf(answers().take(ask(body)));
      t.match(miss.diff.join('; '), diff);
      t.notMatch(miss.diff.join('; '), /not-to-be-shown/, 'a value at a place that is not kept is not shown');
    }
  });

  await t.test('members of a map may stand in another order, and numbers be written otherwise', async (t) => {
    t.match(answers().take(ask('{"deep": {"b": 2.0, "a": 1}, "n": 1e0}')), { name: 'call 1, attempt 1', notCompared: [] });
    t.ok('why' in answers().take(ask({ deep: [2, 1], n: 1 })), 'the items of a list may not');
  });

  await t.test('each recorded answer is given once: of three calls where two were recorded, the third is a miss', async (t) => {
    const two = answers();
    const same = ask({ n: 1, deep: { a: 1, b: 2 } });
    t.match(two.take(same), { name: 'call 1, attempt 1' });
    t.match(two.take(same), { name: 'call 2, attempt 1' });
    t.match(missOf(two.take(same)).why, 'it was recorded 2 times, and each recorded answer is given once');
    t.equal(two.left, 0);
    const file = withCalls(recording, [0, 1, 1]) as (typeof recording.files)[number];
    // The third was sent, and its answer is not there.
    Object.assign((file.calls[2] as object as { decision: object }).decision, { attempts: [] });
    const report = await sendToSandbox({ files: [file], remarks: [], problems: [] }, NO_CHANGES, 10);
    t.match(
      report.sent.map(({ miss }) => miss),
      [null, null, /it was recorded 2 times, and each recorded answer is given once/],
    );
  });

  await t.test('method and target of an HTTP request are never enough', async (t) => {
    const http = { method: 'POST', target: '/orders?page=2' };
    const recordedHttp = new RecordedAnswers([
      {
        capability: 'crm.order.query',
        version: '2.0.0',
        caller: 'crm.web.1',
        http,
        body: { bytes: 7, type: 'application/json', json: { n: 1 }, whole: true },
        answer: 1,
        name: 'one',
      },
    ]);
    t.match(missOf(recordedHttp.take(ask({ n: 2 }, { http }))).diff, ['body /n: asked 2, recorded 1']);
    t.match(missOf(recordedHttp.take(ask({ n: 1 }, { http: { ...http, method: 'PUT' } }))).diff, [/method/]);
    t.match(missOf(recordedHttp.take(ask({ n: 1 }, { http: { ...http, target: '/orders?page=3' } }))).diff, [
      /query page: asked "3", recorded "2"/,
    ]);
    t.match(missOf(recordedHttp.take(ask({ n: 1 }))).diff, [/way/]);
    t.match(recordedHttp.take(ask({ n: 1 }, { http })), { answer: 1, notCompared: [] });
  });

  await t.test('unchanged, it is answered as it was, by mocks alone', async (t) => {
    const report = await sendToSandbox(recording, NO_CHANGES, 10);
    t.strictSame(
      report.sent.map(({ diff, miss, code }) => ({ diff, miss, code })),
      [
        { diff: [], miss: null, code: 0 },
        { diff: [], miss: null, code: 0 },
      ],
    );
    t.match(sendLines(report)[0], '2 requests sent to sandbox: 2 answered as they were recorded, 0 otherwise, 0 REPLAY_MISS');
  });

  await t.test('a request that was changed in the recording is a miss of the sandbox too, in words', async (t) => {
    const file = withCalls(recording, [0, 1]) as (typeof recording.files)[number];
    const [first] = file.calls as { asked: string }[];
    if (first !== undefined) first.asked = 'crm.order.query@2.1.0';
    const other = await sendToSandbox({ files: [file], remarks: [], problems: [] }, NO_CHANGES, 1);
    t.match(
      other.sent[0]?.miss,
      /asked crm\.order\.2: no recorded request is the same; call 1, attempt 1 comes nearest: version: asked 2\.1\.0, recorded 2\.0\.0/,
    );
    t.match(sendLines(other).join('\n'), /call 1 crm\.order\.query@2\.1\.0: REPLAY_MISS/);
    t.equal(other.sent[0]?.code, Code.internal);
  });

  t.equal(reached, 0, 'no provider was reached, however the requests were changed');
  t.notMatch(
    JSON.stringify(recording.files[0]?.part(recording.files[0].calls[0]?.parts[0] ?? 0)),
    String(port),
    'its address is in no recording',
  );
});

t.test('C137 what was not kept is not matched in silence', async (t) => {
  const world = new RecordedWorld(table(9), {}, { headers: [], query: [], json: ['/n', '/payload/n'] });
  t.teardown(() => world.remove());
  await world.call({ name: 'crm.order.query@2.0.0', body: { n: 1, card: '4111' } });
  await world.call({ name: 'crm.order.query@2.0.0', bytes: Buffer.from([1, 2, 3]), type: 'application/octet-stream' });
  const recording = read(await world.written());
  const answers = new RecordedAnswers(answersOf(recording.files[0] as (typeof recording.files)[number]));
  t.match(missOf(answers.take(ask({ n: 1 }))).diff, ['body /card: is not there, and was recorded'], 'its absence is no match');
  t.match(missOf(answers.take(ask({ n: 2, card: '4111' }))).diff, ['body /n: asked 2, recorded 1']);
  t.match(answers.take(ask({ n: 1, card: '4222' })), { notCompared: ['/card'] }, 'it is said that its value was not compared');
  t.match(missOf(answers.take(ask(Buffer.from([1, 2]), { type: 'application/octet-stream' }))).diff.length, 1);
  t.match(answers.take(ask(Buffer.from([3, 2, 1]), { type: 'application/octet-stream' })), {
    notCompared: ['the body, of which only the size is recorded (3 bytes)'],
  });
  const report = await sendToSandbox(recording, NO_CHANGES, 10);
  t.match(sendLines(report).join('\n'), /compared in part only, since these are not kept: .*\/card/);
});

t.test('C137 a number that a double does not hold is recorded, compared and sent with its own digits', async (t) => {
  const world = new RecordedWorld(table(9), {}, WHOLE);
  t.teardown(() => world.remove());
  const texts = [
    '{"n":9007199254740993}',
    '{"n":{"a":1},"deep":{"x/y":-18446744073709551615,"pi":3.14159265358979323846}}',
    '{"n":1e400}',
    '{"n":[1.0,0.1000,3.141592653589793,"9007199254740993"]}',
  ];
  for (const text of texts) await world.call({ name: 'crm.order.query@2.0.0', bytes: Buffer.from(text) });
  const recording = read(await world.written());
  const file = recording.files[0] as (typeof recording.files)[number];
  t.same(
    file.calls.map(({ body }) => body.whole),
    [true, false, true, false],
    'only what is named is kept',
  );
  t.equal(requestOf(file.calls[0] as (typeof file.calls)[number])?.body.toString(), texts[0]);
  t.equal(
    requestOf(file.calls[1] as (typeof file.calls)[number])?.body.toString(),
    '{"n":{"a":"[not shown]"},"deep":{"x/y":-18446744073709551615,"pi":3.14159265358979323846}}',
  );
  const answers = new RecordedAnswers(answersOf(file));
  t.same(missOf(answers.take(ask('{"n":9007199254740992}'))).diff, ['body /n: asked 9007199254740992, recorded 9007199254740993']);
  t.same(missOf(answers.take(ask('{"n":9007199254740995}'))).diff, ['body /n: asked 9007199254740995, recorded 9007199254740993']);
  t.match(answers.take(ask('{"n":9007199254740993.0}')), { name: 'call 1, attempt 1', notCompared: [] }, 'the same value is the same');
  t.match(missOf(answers.take(ask('{"n":{"a":2},"deep":{"x/y":-18446744073709551616,"pi":3.14159265358979323846}}'))).diff, [/x~1y/]);
  t.match(missOf(answers.take(ask('{"n":{"a":2},"deep":{"x/y":-18446744073709551615,"pi":3.141592653589793}}'))).diff, [
    /pi: asked 3.141592653589793, rec/,
  ]);
  t.match(answers.take(ask((texts[1] as string).replace('1,', '1 ,'))), { notCompared: ['/n/a'] });
  t.equal(missOf(answers.take(ask('{"n":1e401}'))).diff.length > 0, true);
  t.match(answers.take(ask('{"n":10e399}')), { name: 'call 3, attempt 1' });
  const report = await sendToSandbox(recording, NO_CHANGES, 10);
  t.same(
    report.sent.map(({ miss, diff }) => [miss, diff]),
    texts.map(() => [null, []]),
  );
});

t.test('C137 recorded requests are sent to a sandbox on this machine only', async (t) => {
  const world = new RecordedWorld(table(9), {}, WHOLE);
  t.teardown(() => world.remove());
  await world.call({ name: 'crm.order.query@2.0.0', body: { n: 1 } });
  const recording = read(await world.written());
  for (const target of ['http://orders.example.com', 'https://127.0.0.1:7700', 'http://10.0.0.7:7700', 'orders', 'http://u:p@127.0.0.1:1'])
    t.type(await sendToUrl(recording, target, null, 10), 'string', target);
  const asked: string[] = [];
  let isSandbox = false;
  const server = createServer((request, response) => {
    asked.push(`${request.method} ${request.url}`);
    const chunks: Buffer[] = [];
    request.on('data', (chunk: Buffer) => chunks.push(chunk));
    request.on('end', () => {
      const body =
        request.url === '/v1/health'
          ? { status: 'ok', ...(isSandbox ? { sandbox: true } : {}) }
          : { agent: 'crm.order.1', payload: { n: 1 } };
      response.setHeader('content-type', 'application/json');
      response.end(JSON.stringify(body));
    });
  });
  await new Promise<void>((done) => server.listen(0, '127.0.0.1', done));
  t.teardown(() => server.close());
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  t.match(await sendToUrl(recording, url, null, 10), /does not say that it is a sandbox/);
  t.strictSame(asked, ['GET /v1/health'], 'nothing was sent to what may be a real one');
  isSandbox = true;
  const report = await sendToUrl(recording, url, null, 10);
  if (typeof report === 'string') throw new Error(report);
  t.strictSame(report.sent[0]?.diff, []);
  t.equal(asked.at(-1), 'POST /v1/invoke/crm.order.query%402.0.0');
});

/** The same file with those of its calls, each a copy. */
function withCalls({ files }: Recording, numbers: readonly number[]): object {
  const [file] = files as unknown as [{ readonly calls: readonly object[] } & Recording['files'][number]];
  const copy = readAgain(file);
  copy.calls.length = 0;
  for (const number of numbers) copy.calls.push(structuredClone(file.calls[number]) as (typeof copy.calls)[number]);
  return copy;
}

function readAgain(file: Recording['files'][number]): Recording['files'][number] {
  return read(file.name).files[0] as Recording['files'][number];
}
