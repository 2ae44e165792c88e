import { setTimeout as sleep } from 'node:timers/promises';
import t, { type Test } from 'tap';
import { realClock } from '../../../../base/clock.ts';
import { SeededRandom } from '../../../../base/random.ts';
import { VirtualClock } from '../../../../base/virtual-clock.ts';
import { Code } from '../../../../proto/wire/codes.ts';
import { SPAN_STAGES, type Span } from '../../../../proto/wire/spans.ts';
import { Attempt } from '../../../../sidecar/call/attempt-record.ts';
import { Call, NO_HEADERS, record } from '../../../../sidecar/call/call.ts';
import { Principal } from '../../../../sidecar/call/principal.ts';
import { NO_BODY } from '../../../../sidecar/call/reply.ts';
import { passing, Verdict } from '../../../../sidecar/call/verdict.ts';
import { partialSuccessOf, verdictOf } from '../../../../sidecar/observe/otlp-answer.ts';
import { OtlpExport, type OtlpPost, otlpPost } from '../../../../sidecar/observe/otlp-export.ts';
import { SpanColumns, SpanRecord } from '../../../../sidecar/observe/span-record.ts';
import type { Candidate } from '../../../../sidecar/table/snapshot.ts';
import type { OtlpSettings } from '../../../../sidecar/traces-config.ts';
import { Collector } from '../../../support/collector.ts';
import { type ReadRequest, readOtlp } from '../../../support/otlp-reading.ts';
import { settle } from '../../../support/settle.ts';

const TRACE = '4bf92f3577b34da6a3ce929d0e0e4736';
const SPAN = '00f067aa0ba902b7';
const PARENT = '1111111111111111';
const WALL = 1_796_052_864_459.018;
const columns = new SpanColumns(1);

const SETTINGS: OtlpSettings = {
  url: 'http://127.0.0.1:4318/v1/traces',
  headers: {},
  gzip: false,
  timeoutMs: 1_000,
  queueBytes: 8_388_608,
  serviceName: null,
};

interface Exporting {
  readonly clock: VirtualClock;
  readonly out: OtlpExport;
  readonly bodies: ReadRequest[];
  readonly warned: string[];
}

function exporting(post: OtlpPost | null = null, settings: Partial<OtlpSettings> = {}): Exporting {
  const clock = new VirtualClock();
  const bodies: ReadRequest[] = [];
  const warned: string[] = [];
  const taken: OtlpPost = (body) => {
    bodies.push(readOtlp(body));
    return Promise.resolve({ kind: 'taken', rejected: 0, why: '' });
  };
  const resource = { attributes: { 'service.name': 'one', 'reach.sidecar': 'one' }, version: '1.2.3' };
  const out = new OtlpExport({
    clock,
    random: new SeededRandom(1),
    settings: { ...SETTINGS, ...settings },
    resource,
    post: post ?? taken,
    warn: (words) => void warned.push(words),
  });
  return { clock, out, bodies, warned };
}

function stage(span: Partial<Span> = {}): SpanRecord {
  const made = new SpanRecord(columns, 0);
  const base: Span = {
    trace_id: TRACE,
    span_id: SPAN,
    parent_span_id: PARENT,
    stage: 'send',
    start_ms: WALL,
    elapsed_ms: 12.5,
    code: 0,
    capability: 'crm.order.query',
  };
  made.ofStage({ ...base, ...span }, true, false, 0);
  return made;
}

function attemptOf(address: string, type = 'http', status = 200, code: Code = 0): SpanRecord {
  const version = { text: '2.1.0', capability: { name: 'crm.order.query' } };
  const provider = { agentId: 'crm.order.a1', reach: 'self', record: { endpoint: { type, address } } };
  const call = new Call('http', 'crm.order.query', NO_HEADERS, NO_BODY, '', false, new VirtualClock());
  call.traceId = TRACE;
  call.spanId = PARENT;
  call.wallOffset = WALL - call.startedAt;
  call.principal = new Principal('shop.chat.1');
  const attempt = new Attempt({ version, provider } as unknown as Candidate, 0);
  Object.assign(attempt, { spanId: SPAN, status, code, started: 'done', detail: code === 0 ? '' : 'it said "Ada" and Bearer abc.def' });
  const made = new SpanRecord(columns, 0);
  made.ofAttempt(call, attempt);
  return made;
}

async function exported(...records: readonly SpanRecord[]): Promise<ReadRequest> {
  const { clock, out, bodies } = exporting();
  for (const each of records) out.take(each);
  await clock.advance(1_000);
  return bodies[0] as ReadRequest;
}

t.test('spans as OpenTelemetry has them', async (t) => {
  await t.test('every stage has its kind and name, ids, times and attributes', async (t) => {
    const kinds = { outbound: 2, attempt: 3, inbound: 2, send: 4, outbox: 1, queue: 1, deliver: 5, result: 4, inbox: 5 } as const;
    for (const name of SPAN_STAGES) {
      const { spans, resource, scope } = await exported(
        stage({ stage: name, task_id: 'task-1', pool: 'p1', lane: 'high', rule: 'r1', tries: 2 }),
      );
      const [span] = spans;
      t.match(span, { traceId: TRACE, spanId: SPAN, parentSpanId: PARENT, kind: kinds[name], statusCode: 0 });
      t.equal(span?.startNanos, 1_796_052_864_459_018_000n);
      t.equal((span?.endNanos ?? 0n) - (span?.startNanos ?? 0n), 12_500_000n);
      t.match(span?.attributes, { 'reach.stage': name, 'reach.capability': 'crm.order.query', 'reach.code': 0 });
      if (['outbound', 'attempt', 'inbound'].includes(name)) {
        t.equal(span?.name, 'crm.order/query');
        t.match(span?.attributes, { 'rpc.system': 'agent_reach', 'rpc.service': 'crm.order', 'rpc.method': 'query' });
      } else {
        t.equal(span?.name, `${name} crm.order.query`);
        t.match(span?.attributes, {
          'messaging.system': 'nats',
          'messaging.operation.name': name,
          'messaging.destination.name': 'p1',
          'messaging.message.id': 'task-1',
          'reach.lane': 'high',
          'reach.rule': 'r1',
          'reach.tries': 2,
        });
      }
      t.same(resource, { 'service.name': 'one', 'reach.sidecar': 'one' });
      t.same(scope, { name: 'agent-reach', version: '1.2.3' });
    }
  });

  await t.test('an attempt names its server, and never what stands behind its host', async (t) => {
    const of = async (record: SpanRecord): Promise<Readonly<Record<string, unknown>>> =>
      (await exported(record)).spans[0]?.attributes ?? {};
    t.match(await of(attemptOf('https://crm.internal/secret/path?key=1')), {
      'server.address': 'crm.internal',
      'server.port': 443,
      'http.response.status_code': 200,
    });
    t.match(await of(attemptOf('crm.internal:9000', 'grpc', 0)), {
      'server.address': 'crm.internal',
      'server.port': 9_000,
      'rpc.system': 'grpc',
    });
    t.equal((await of(attemptOf('crm.internal:9000', 'grpc', 200)))['http.response.status_code'], undefined);
    t.match(await of(attemptOf('http://a.b/rpc', 'json_rpc')), { 'rpc.system': 'jsonrpc' });
    t.notOk('server.address' in (await of(attemptOf('', 'channel'))));
    t.notMatch(JSON.stringify(await of(attemptOf('https://crm.internal/secret/path?key=1'))), /secret|key/);
  });

  await t.test('a failure has its status, its type and words in which nobody is quoted', async (t) => {
    const [span] = (await exported(attemptOf('http://a.b', 'http', 502, Code.provider_error))).spans;
    t.equal(span?.statusCode, 2);
    t.match(span?.attributes, { 'error.type': 'provider_error', 'reach.code': Code.provider_error, 'reach.status': 502 });
    t.match(span?.statusMessage, /it said/);
    t.notMatch(span?.statusMessage ?? '', /Ada|abc/);
  });

  await t.test('decisions are events; the same ones, said again, are the same bytes', async (t) => {
    const clock = new VirtualClock();
    const reason = passing('choose', 'least_request', '{a} für {b} of {c}');
    const made: SpanRecord[] = [];
    for (let i = 0; i < 40; i++) {
      const call = new Call('http', 'crm.order.query', NO_HEADERS, NO_BODY, '', false, clock);
      call.traceId = TRACE;
      call.spanId = SPAN;
      record(call, new Verdict(reason, 'crm.order.a1', i % 20, 1.5));
      record(call, new Verdict(reason, 'crm.order.a1', i % 20, null));
      const each = new SpanRecord(new SpanColumns(1), 0);
      each.ofCall(call, 1);
      made.push(each);
    }
    const { spans } = await exported(...made);
    t.equal(spans.length, 40);
    // Written from the end: the newest stands first.
    for (const [n, span] of [...spans].reverse().entries()) {
      t.same(
        span.events.map(({ name, attributes }) => [name, attributes['reach.words']]),
        [
          ['choose.least_request', `crm.order.a1 für ${n % 20} of 1.50`],
          ['choose.least_request', `crm.order.a1 für ${n % 20} of -`],
        ],
      );
    }
  });
});

t.test('requests', async (t) => {
  await t.test('are closed a second after their first span, or when they are large', async (t) => {
    const { clock, out, bodies } = exporting();
    out.take(stage());
    await clock.advance(900);
    t.equal(bodies.length, 0);
    await clock.advance(200);
    t.equal(bodies.length, 1);
    for (let i = 0; i < 10_000; i++) out.take(stage());
    await settle(4);
    t.equal(bodies.length, 3, 'two whole ones at once');
    await clock.advance(1_100);
    t.equal(bodies.flatMap(({ spans }) => spans).length, 10_001);
    t.equal(out.counts.exported, 10_001);
  });

  await t.test('what another sidecar tells too is not exported twice', async (t) => {
    const { clock, out, bodies } = exporting();
    const again = stage();
    again.isAgain = true;
    out.take(again);
    await clock.advance(2_000);
    t.equal(bodies.length, 0);
  });

  await t.test('are sent again when the collector is busy, after its own time, else after one that doubles', async (t) => {
    const asked: number[] = [];
    const answers = [verdictOf(503, '7', NO_BODY, 0), verdictOf(429, undefined, NO_BODY, 0), verdictOf(504, undefined, NO_BODY, 0)];
    const at: Exporting = exporting(() => {
      asked.push(at.clock.now());
      return Promise.resolve(answers.shift() ?? verdictOf(200, undefined, NO_BODY, 0));
    });
    at.out.take(stage());
    for (let i = 0; i < 300; i++) await at.clock.advance(100);
    t.equal(asked.length, 4);
    t.equal(Math.round((asked[1] as number) - (asked[0] as number)), 7_000);
    t.ok((asked[3] as number) - (asked[2] as number) >= 2_000);
    t.equal(at.out.counts.exported, 1);
    t.equal(at.out.counts.retries, 3);
    t.equal(at.warned.length, 2, 'when it began, and when it was over');
  });

  await t.test('that cannot be taken are not sent again; what a partial success leaves out is counted', async (t) => {
    const answers = [verdictOf(400, undefined, NO_BODY, 0), verdictOf(200, undefined, partial(3, 'too old'), 0)];
    const at = exporting(() => Promise.resolve(answers.shift() ?? verdictOf(200, undefined, NO_BODY, 0)));
    for (const count of [2, 10, 1]) {
      for (let i = 0; i < count; i++) at.out.take(stage());
      await at.clock.advance(1_500);
    }
    t.match(at.out.counts, { exported: 8, rejected: 5, dropped: 0, requests: 3, retries: 0 });
  });

  await t.test('wait in a bounded room while the collector is away, and the rest is dropped', async (t) => {
    const at = exporting(() => Promise.reject(Object.assign(new Error('no'), { code: 'ECONNREFUSED' })), { queueBytes: 65_536 });
    for (let round = 0; round < 50; round++) {
      for (let i = 0; i < 100; i++) at.out.take(stage({ detail: 'x'.repeat(200), code: Code.internal }));
      await at.clock.advance(1_000);
    }
    t.ok(at.out.counts.dropped > 3_000, `${at.out.counts.dropped} dropped`);
    t.match(at.warned, [/takes no spans at present: ECONNREFUSED/]);
    t.equal(at.warned.length, 1, 'said once');
    await at.out.stop(100);
    t.equal(at.out.counts.dropped, 5_000, 'all of them in the end');
  });

  await t.test('a header that cannot be read is waited for', async (t) => {
    process.env['REACH_TEST_COLLECTOR_KEY'] = '';
    delete process.env['REACH_TEST_COLLECTOR_KEY'];
    const seen: string[] = [];
    const at = exporting(
      (_body, headers) => {
        seen.push(headers['x-key'] ?? '');
        return Promise.resolve(verdictOf(200, undefined, NO_BODY, 0));
      },
      { headers: { 'x-key': { env: 'REACH_TEST_COLLECTOR_KEY' } } },
    );
    at.out.take(stage());
    await at.clock.advance(1_000);
    t.equal(seen.length, 0);
    process.env['REACH_TEST_COLLECTOR_KEY'] = 'key-of-the-collector';
    t.teardown(() => delete process.env['REACH_TEST_COLLECTOR_KEY']);
    await at.clock.advance(2_000);
    t.same(seen, ['key-of-the-collector']);
  });

  await t.test('the last ones are sent when it stops, and not waited for beyond its time', async (t) => {
    const at = exporting();
    at.out.take(stage());
    const stopped = at.out.stop(500);
    await settle(4);
    await at.clock.advance(0);
    await stopped;
    t.equal(at.bodies.length, 1);
    const hung = exporting(() => new Promise(() => undefined));
    hung.out.take(stage());
    const hanging = hung.out.stop(500);
    await settle(2);
    let hasStopped = false;
    void hanging.then(() => {
      hasStopped = true;
    });
    await hung.clock.advance(499);
    await settle(2);
    t.notOk(hasStopped, 'it is given its time');
    await hung.clock.advance(1);
    await settle(2);
    t.ok(hasStopped, 'and no more');
  });
});

/** ExportTraceServiceResponse with a partial success. */
function partial(rejected: number, why: string): Buffer {
  const inner = Buffer.concat([Buffer.from([0x08, rejected, 0x12, why.length]), Buffer.from(why)]);
  return Buffer.concat([Buffer.from([0x0a, inner.length]), inner]);
}

t.test('answers of collectors', async (t) => {
  t.same(partialSuccessOf(partial(5, 'why')), { rejected: 5, why: 'why' });
  for (const bytes of [NO_BODY, Buffer.from('nonsense'), Buffer.from([0x0a, 0xff]), Buffer.from([0x0a]), Buffer.alloc(40, 0xff)])
    t.equal(partialSuccessOf(bytes).rejected, 0);
  t.equal(verdictOf(401, undefined, NO_BODY, 0).kind, 'refused');
  t.match(verdictOf(503, 'Thu, 01 Jan 1970 00:00:20 GMT', NO_BODY, 15_000), { kind: 'again', afterMs: 5_000 });
  t.match(verdictOf(503, 'soon', NO_BODY, 15_000), { kind: 'again', afterMs: 0 });
});

t.test('over a real connection: path, type, headers, compression, and a collector that does not answer', async (t) => {
  const collector = await Collector.start(t);
  for (const gzip of [false, true]) await sent(t, collector, { gzip });
  t.equal(collector.spans.length, 2);
  t.same(collector.paths, ['/v1/traces', '/v1/traces']);
  t.match(collector.heads[1], { 'content-type': 'application/x-protobuf', 'content-encoding': 'gzip', 'x-key': 'a-key-of-ours' });
  const { post, close } = await otlpPost('http://127.0.0.1:9/v1/traces', realClock);
  t.teardown(close);
  await t.rejects(post(NO_BODY, {}, 1_000));
});

async function sent(t: Test, collector: Collector, settings: Partial<OtlpSettings>): Promise<void> {
  const url = `${collector.url}/v1/traces`;
  const { post, close } = await otlpPost(url, realClock);
  const out = new OtlpExport({
    clock: realClock,
    random: new SeededRandom(1),
    settings: { ...SETTINGS, url, headers: { 'x-key': { literal: 'a-key-of-ours' } }, ...settings },
    resource: { attributes: {}, version: '1' },
    post,
    warn: (words) => t.fail(words),
  });
  out.take(stage());
  await out.stop(5_000);
  t.equal(out.counts.exported, 1);
  close();
  await sleep(0);
}
