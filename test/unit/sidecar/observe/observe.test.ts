import { readdirSync, readFileSync } from 'node:fs';
import t from 'tap';
import { createLog, loggableHeaders, printable, printableId } from '../../../../base/log.ts';
import { VirtualClock } from '../../../../base/virtual-clock.ts';
import type { Code } from '../../../../proto/wire/codes.ts';
import { Attempt } from '../../../../sidecar/call/attempt-record.ts';
import { Call, NO_HEADERS } from '../../../../sidecar/call/call.ts';
import { Principal } from '../../../../sidecar/call/principal.ts';
import { failed, NO_BODY } from '../../../../sidecar/call/reply.ts';
import { ending, passing, type Reason, Verdict } from '../../../../sidecar/call/verdict.ts';
import { Health } from '../../../../sidecar/health/health.ts';
import type { AccessMode } from '../../../../sidecar/observe/access.ts';
import { MAX_SERIES } from '../../../../sidecar/observe/declared-metrics.ts';
import { NOTABLE } from '../../../../sidecar/observe/not-plain.ts';
import { Observation } from '../../../../sidecar/observe/observer.ts';
import type { ScrapeSources } from '../../../../sidecar/observe/scrape.ts';
import { Histogram, Reading, Series } from '../../../../sidecar/observe/series.ts';
import type { Candidate } from '../../../../sidecar/table/snapshot.ts';
import { candidateOf } from '../../../support/front.ts';
import { repoFile } from '../../../support/paths.ts';

interface Watched {
  readonly clock: VirtualClock;
  readonly health: Health;
  readonly observation: Observation;
  readonly lines: string[];
}

function watch(access: AccessMode = 'all'): Watched {
  const clock = new VirtualClock();
  const lines: string[] = [];
  const log = createLog({ level: 'info', service: 'test', to: { write: (line: string) => void lines.push(line) } });
  return {
    clock,
    health: new Health(clock, { consecutive: 3, forMs: 1_000 }),
    observation: new Observation(clock, log.logger, access),
    lines,
  };
}

const NOTHING: ScrapeSources = { table: { version: 3, ageMs: 1_500, rejected: 2 }, breakers: [], providers: [] };

function callOf(clock: VirtualClock, candidate: Candidate | null, code: Code = 0, more: (call: Call) => void = () => {}): Call {
  const call = new Call('http', 'crm.order.query', NO_HEADERS, NO_BODY, '', false, clock);
  call.traceId = 'a'.repeat(32);
  call.code = code;
  if (candidate !== null) {
    call.capability = candidate.version.capability;
    call.lines = [candidate.version];
    call.chosen = candidate;
    call.principal = new Principal('shop.chat.1');
  }
  more(call);
  return call;
}

function run({ observation }: Watched, call: Call): void {
  observation.callStarted(call);
  observation.callEnded(call);
}

/** Value of one line of the exposition text; null when it is not there. */
function valueOf(text: string, series: string): number | null {
  const line = text.split('\n').find((one) => one.startsWith(`${series} `));
  return line === undefined ? null : Number(line.slice(series.length + 1));
}

t.test('a call is counted by canonical name, version, code and way in', async (t) => {
  const w = watch();
  const candidate = candidateOf(w.health);
  for (let i = 0; i < 3; i++) {
    const call = callOf(w.clock, candidate);
    w.observation.callStarted(call);
    t.equal(w.observation.metrics.inFlight(), 1);
    await w.clock.advance(2);
    w.observation.callEnded(call);
  }
  run(w, callOf(w.clock, candidate, 3003));
  run(w, callOf(w.clock, null, 2001));
  const text = await w.observation.metrics.render(NOTHING);
  t.equal(valueOf(text, 'reach_calls_total{capability="crm.order.query",version="2.1.0",code="0",way="http"}'), 3);
  t.equal(valueOf(text, 'reach_calls_total{capability="crm.order.query",version="2.1.0",code="3003",way="http"}'), 1);
  t.equal(valueOf(text, 'reach_calls_total{capability="unknown",version="",code="2001",way="http"}'), 1);
  t.equal(valueOf(text, 'reach_call_duration_seconds_bucket{le="0.001",capability="crm.order.query",stage="outbound"}'), 1);
  t.equal(valueOf(text, 'reach_call_duration_seconds_bucket{le="0.0025",capability="crm.order.query",stage="outbound"}'), 4);
  t.equal(valueOf(text, 'reach_call_duration_seconds_bucket{le="+Inf",capability="crm.order.query",stage="outbound"}'), 4);
  t.equal(valueOf(text, 'reach_call_duration_seconds_count{capability="crm.order.query",stage="outbound"}'), 4);
  t.equal(valueOf(text, 'reach_call_duration_seconds_sum{capability="crm.order.query",stage="outbound"}'), 0.006);
  t.equal(valueOf(text, 'reach_in_flight{way="http"}'), 0);
  const shown = await w.observation.metrics.render(NOTHING, 'openmetrics', 1_700_000_000_000);
  t.notMatch(shown, /# \{trace_id/, 'nobody has asked for exemplars yet');
  const traced = callOf(w.clock, candidate);
  w.observation.callStarted(traced);
  await w.clock.advance(2_000);
  w.observation.callEnded(traced);
  const open = await w.observation.metrics.render(NOTHING, 'openmetrics', 1_700_000_000_000);
  const line = open.split('\n').find((one) => one.startsWith('reach_call_duration_seconds_bucket{le="2.5",'));
  t.equal(
    line?.split(' # ')[1],
    `{trace_id="${'a'.repeat(32)}"} 2 1700000002.006`,
    'the newest trace of a bucket, with its time on the wall',
  );
  t.match(open, /# TYPE reach_calls counter\nreach_calls_total\{/);
  t.ok(open.endsWith('\n# EOF\n'));
  t.notMatch(await w.observation.metrics.render(NOTHING), /trace_id|# EOF/, 'the plain format has neither');
  t.equal(valueOf(text, 'reach_table_version'), 3);
  t.equal(valueOf(text, 'reach_table_age_seconds'), 1.5);
  t.equal(valueOf(text, 'reach_rejected_pushes_total'), 2);
  t.ok((valueOf(text, 'process_resident_memory_bytes') ?? 0) > 1_000_000);
  for (const name of ['reach_calls_total', 'process_cpu_seconds_total'])
    t.match(text, new RegExp(`# HELP ${name} .+\\n# TYPE ${name} counter`));
});

t.test('a pushed table goes on counting in the same series', async (t) => {
  const w = watch();
  run(w, callOf(w.clock, candidateOf(w.health)));
  run(w, callOf(w.clock, candidateOf(w.health)));
  const text = await w.observation.metrics.render(NOTHING);
  t.equal(valueOf(text, 'reach_calls_total{capability="crm.order.query",version="2.1.0",code="0",way="http"}'), 2);
});

t.test('attempts, retries, fallbacks and panic are counted', async (t) => {
  const w = watch();
  const first = candidateOf(w.health);
  const second = candidateOf(w.health, 'crm.order.query', '2.1.0', 'crm.order.b');
  const other = candidateOf(w.health, 'crm.cache.query', '1.0.0', 'crm.cache.a');
  // The same capability object for both providers, as in a compiled table.
  (second.version as { capability: unknown }).capability = first.version.capability;
  const call = callOf(w.clock, other, 0, (made) => {
    for (const candidate of [first, second, other]) {
      const attempt = new Attempt(candidate, 0);
      attempt.code = candidate === other ? 0 : 1003;
      attempt.elapsedMs = 30;
      made.attempts.push(attempt);
      w.observation.attemptEnded(made, attempt);
    }
    made.fallbackFrom = first.version.capability;
    made.panicked = true;
  });
  run(w, call);
  run(
    w,
    callOf(w.clock, first, 0, (made) => {
      made.fallbackFrom = first.version.capability;
      made.staticBody = Buffer.from('1');
    }),
  );
  run(
    w,
    callOf(w.clock, first, 2003, (made) => {
      made.fallbackFrom = first.version.capability;
    }),
  );
  const text = await w.observation.metrics.render(NOTHING);
  t.equal(valueOf(text, 'reach_attempts_total{capability="crm.order.query",provider="crm.order.b",code="1003"}'), 1);
  t.equal(valueOf(text, 'reach_attempt_duration_seconds_count{capability="crm.cache.query",provider="crm.cache.a"}'), 1);
  t.equal(valueOf(text, 'reach_retries_total{capability="crm.order.query"}'), 1, 'the fallback is no retry');
  t.equal(valueOf(text, 'reach_retries_total{capability="crm.cache.query"}'), null);
  for (const result of ['served', 'static', 'failed'])
    t.equal(valueOf(text, `reach_fallbacks_total{capability="crm.order.query",result="${result}"}`), 1, result);
  t.equal(valueOf(text, 'reach_panic_total{capability="crm.order.query"}'), 1);
  t.equal(w.observation.attemptsEnded(), 3);
});

t.test('breakers and providers are shown as they are now', async (t) => {
  const w = watch();
  const candidate = candidateOf(w.health);
  w.health.onTransition = w.observation.breakerMoved;
  const opened = 'reach_breaker_transitions_total{provider="crm.order.a",capability="crm.order.query",from="closed",to="open"}';
  const before = await w.observation.metrics.render({ ...NOTHING, breakers: w.health.cells() });
  t.equal(valueOf(before, opened), 0, 'before it opens for the first time, so that this is an increase too');
  for (let i = 0; i < 10; i++) candidate.health.end(candidate.health.admit(w.clock.now()), 'failure', 1, w.clock.now());
  candidate.provider.health.inFlight = 4;
  const text = await w.observation.metrics.render({ ...NOTHING, breakers: w.health.cells(), providers: w.health.providers() });
  t.equal(valueOf(text, 'reach_breaker_state{provider="crm.order.a",capability="crm.order.query"}'), 3);
  t.equal(valueOf(text, opened), 1);
  t.equal(valueOf(text, 'reach_provider_in_flight{provider="crm.order.a"}'), 4);
  t.match(
    w.lines.map((line) => JSON.parse(line) as object),
    [{ level: 40, msg: 'breaker', from: 'closed', to: 'open', provider: 'crm.order.a' }],
  );
  t.notMatch(await w.observation.metrics.render(NOTHING), /reach_provider_in_flight\{/, 'what is gone is not shown any more');
});

t.test('that a breaker has never opened is shown no longer than its provider is known, and leaves room for what has been', async (t) => {
  const w = watch();
  const known = new Set(['crm.order.a']);
  const breakers = [...known].map((agentId) => ({ agentId, capability: 'crm.order.query', stateName: 'closed' as const }));
  const scrape = (shown: ScrapeSources['breakers']): Promise<string> =>
    w.observation.metrics.render({ ...NOTHING, breakers: shown, isKnown: (agentId) => known.has(agentId) });
  t.match(await scrape(breakers), /reach_breaker_transitions_total\{provider="crm.order.a"/);
  known.clear();
  await scrape([]);
  t.notMatch(await scrape([]), /reach_breaker_transitions_total\{/);
  const many = Array.from({ length: 3_000 }, (_, i) => ({
    agentId: `crm.order.${i}`,
    capability: 'crm.order.query',
    stateName: 'closed' as const,
  }));
  for (const { agentId } of many) known.add(agentId);
  const text = await scrape(many);
  t.equal(text.match(/reach_breaker_transitions_total\{/g)?.length, 1_000, 'half of the room');
  w.observation.metrics.breakerMoved('crm.order.2999', 'crm.order.query', 'closed', 'open');
  t.match(await scrape(many), /reach_breaker_transitions_total\{provider="crm.order.2999".*from="closed",to="open"\} 1/);
});

t.test('what was counted of a provider that is gone is shown once more and then no longer, and its place is given away', async (t) => {
  const w = watch();
  const known = new Set(['crm.order.a', 'crm.order.b']);
  const scrape = (): Promise<string> => w.observation.metrics.render({ ...NOTHING, isKnown: (agentId) => known.has(agentId) });
  const provider = (agentId: string): Candidate => candidateOf(w.health, 'crm.order.query', '2.1.0', agentId);
  const [a, b] = [provider('crm.order.a'), provider('crm.order.b')];
  const end = (candidate: Candidate, times: number): void => {
    for (let n = 0; n < times; n++) w.observation.metrics.attemptEnded(new Attempt(candidate, 0));
  };
  const of = (text: string, agentId: string): (number | null)[] => [
    valueOf(text, `reach_attempts_total{capability="crm.order.query",provider="${agentId}",code="0"}`),
    valueOf(text, `reach_attempt_duration_seconds_count{capability="crm.order.query",provider="${agentId}"}`),
  ];
  end(a, 3);
  end(b, 5);
  t.same(of(await scrape(), 'crm.order.a'), [3, 3]);
  known.delete('crm.order.a');
  end(a, 1);
  t.same(of(await scrape(), 'crm.order.a'), [4, 4], 'its last call is not lost');
  const after = await scrape();
  t.notMatch(after, 'crm.order.a');
  t.same(of(after, 'crm.order.b'), [5, 5], 'others go on');
  // Another takes its place and counts from nothing; a call to the old one that ends only now is not put down to it.
  const c = provider('crm.order.c');
  known.add('crm.order.c');
  end(c, 2);
  end(a, 1);
  const late = await scrape();
  t.same(of(late, 'crm.order.c'), [2, 2]);
  t.same(of(late, 'crm.order.a'), [1, 1]);
  await scrape();
  t.notMatch(await scrape(), 'crm.order.a');
  t.same(of(await scrape(), 'crm.order.c'), [2, 2]);
});

t.test('a hundred thousand made-up names grow neither memory nor the scrape', async (t) => {
  const w = watch('off');
  const random = (): string => Math.random().toString(36);
  run(w, callOf(w.clock, null, 2001));
  const before = process.memoryUsage().heapUsed;
  for (let i = 0; i < 100_000; i++) {
    const call = new Call('http', `${random()}.${random()}`, { 'reach-tags': random() }, NO_BODY, '', false, w.clock);
    call.principal = new Principal(`x.y.${random()}`);
    call.reply = failed(2001, 'not_started', random());
    call.code = 2001;
    run(w, call);
  }
  t.ok(process.memoryUsage().heapUsed - before < 20_000_000);
  const text = await w.observation.metrics.render(NOTHING);
  t.equal(text.split('\n').filter((line) => line.startsWith('reach_calls_total{')).length, 1);
  t.equal(valueOf(text, 'reach_calls_total{capability="unknown",version="",code="2001",way="http"}'), 100_001);
});

t.test('series are bounded, and a full scrape is quick', async (t) => {
  const w = watch('off');
  for (let i = 0; i < 3_000; i++) {
    const candidate = candidateOf(w.health, `crm.order.q${i}`, '1.0.0', `crm.order.a${i}`);
    const call = callOf(w.clock, candidate);
    const attempt = new Attempt(candidate, 0);
    call.attempts.push(attempt);
    w.observation.attemptEnded(call, attempt);
    run(w, call);
  }
  const times: number[] = [];
  let text = '';
  for (let i = 0; i < 3; i++) {
    const started = performance.now();
    text = await w.observation.metrics.render({ ...NOTHING, breakers: w.health.cells(), providers: w.health.providers() });
    times.push(performance.now() - started);
  }
  // The quickest of three: a machine that does other things must not fail it.
  t.ok(Math.min(...times) < 200);
  for (const name of ['reach_calls_total', 'reach_attempts_total', 'reach_breaker_state', 'reach_provider_in_flight']) {
    const lines = text.split('\n').filter((line) => line.startsWith(`${name}{`));
    t.ok(lines.length <= MAX_SERIES, `${name}: ${lines.length}`);
  }
  t.ok(
    (valueOf(text, 'reach_calls_total{capability="other",version="other",code="0",way="http"}') ??
      valueOf(text, 'reach_calls_total{capability="other",version="other",code="other",way="other"}') ??
      0) > 900,
    'the rest is counted as other',
  );
  const sum = text
    .split('\n')
    .filter((line) => line.startsWith('reach_calls_total{'))
    .reduce((total, line) => total + Number(line.slice(line.lastIndexOf(' '))), 0);
  t.equal(sum, 3_000, 'nothing is lost');
});

t.test('cells stay valid while a series grows; buckets add up', async (t) => {
  const series = new Series('counter', 'x', 'y', ['a'], 50);
  const first = series.cell('0');
  for (let i = 1; i < 40; i++) series.add(series.cell(String(i)), i);
  series.add(first, 7);
  t.equal(series.value(first), 7);
  t.equal(series.cell('39'), series.cell('39'));
  for (let i = 40; i < 100; i++) series.add(series.cell(String(i)), 1);
  t.equal(series.size, 50);
  t.equal(series.get().values.find((value) => value.labels['a'] === 'other')?.value, 51);
  const histogram = new Histogram('h', 'y', ['a'], [1, 2], 3);
  const cell = histogram.cell('one');
  for (let i = 0; i < 40; i++) histogram.cell(`${i}`);
  for (const seconds of [0, 1, 1.5, 2, 9]) histogram.add(cell, seconds);
  t.equal(histogram.size, 3);
  t.same(
    histogram
      .get()
      .values.slice(0, 5)
      .map((value) => [value.metricName, value.labels['le'], value.value]),
    [
      ['h_bucket', 1, 2],
      ['h_bucket', 2, 4],
      ['h_bucket', '+Inf', 5],
      ['h_sum', undefined, 13.5],
      ['h_count', undefined, 5],
    ],
  );
  const reading = new Reading('gauge', 'r', 'y', ['a'], 2);
  for (const label of ['1', '2', '3']) reading.set(1, label);
  t.equal(reading.get().values.length, 2);
});

t.test('every call leaves one access record, which says how it ended', async (t) => {
  const w = watch();
  const candidate = candidateOf(w.health);
  run(w, callOf(w.clock, candidate));
  run(w, callOf(w.clock, candidate, 1003));
  run(w, callOf(w.clock, candidate, 5003));
  run(w, callOf(w.clock, candidate, 9001));
  const records = w.lines.map((line) => JSON.parse(line) as Record<string, unknown>);
  t.match(records, [
    {
      level: 30,
      outcome: 'ok',
      code: 0,
      name: 'ok',
      caller: 'shop.chat.1',
      capability: 'crm.order.query',
      version: '2.1.0',
      provider: 'crm.order.a',
      trace_id: 'a'.repeat(32),
      msg: 'call',
    },
    { level: 30, outcome: 'error', code: 1003, name: 'response_timeout' },
    { level: 30, outcome: 'cancelled', code: 5003 },
    { level: 50, outcome: 'error', code: 9001 },
  ]);
  t.same([w.observation.started(), w.observation.ended(), w.observation.inFlight(), w.observation.accessRecords()], [4, 4, 0, 4]);
  t.notOk('asked' in (records[0] as object), 'a known name is said once');
});

t.test(
  'an access record says what was not the plain path, in the words of the stage that decided it, and nothing of the rest',
  async (t) => {
    const w = watch();
    const candidate = candidateOf(w.health);
    const note = (call: Call, reason: Reason, ...values: string[]): void => call.trace.add(1, new Verdict(reason, ...values));
    run(
      w,
      callOf(w.clock, candidate, 0, (call) => {
        call.spanId = 'b'.repeat(16);
        note(call, passing('acl', 'allowed', '{a} may call'), 'x');
        note(call, passing('choose', 'weighted', 'one of many'));
        note(call, ending('retry', 'not_repeatable', 'no'));
      }),
    );
    run(
      w,
      callOf(w.clock, candidate, 0, (call) => {
        call.isInbound = true;
        call.replay = { provider: 'crm.order.b', version: '2.0.0' };
        note(call, passing('overrides', 'rerouted', 'override {a} sends it to {b}'), 'OV-1', 'crm.x.y');
        note(call, passing('retry', 'elsewhere', 'retry {a}'), '1');
        call.chosen = null;
        call.degraded = true;
      }),
    );
    const [plain, other] = w.lines.map((line) => JSON.parse(line) as Record<string, unknown>);
    t.match(plain, { span_id: 'b'.repeat(16), stage: 'outbound' });
    for (const absent of ['why', 'detail', 'degraded', 'replay']) t.notOk(absent in (plain as object), absent);
    t.match(other, {
      stage: 'inbound',
      provider: 'crm.order.b',
      version: '2.0.0',
      replay: true,
      degraded: true,
      why: 'override OV-1 sends it to crm.x.y; retry 1',
    });
    for (const [stage, names] of Object.entries(NOTABLE)) {
      const source = readdirSync(repoFile(`sidecar/${stage}`))
        .map((file) => readFileSync(repoFile(`sidecar/${stage}/${file}`), 'utf8'))
        .join('\n');
      for (const name of names) t.match(source, new RegExp(`'${stage}',\\s+'${name}'`), `${stage} ${name} is a reason that there is`);
    }
  },
);

t.test('access records can be limited to failures or switched off', async (t) => {
  for (const [mode, lines] of [
    ['all', 2],
    ['errors', 1],
    ['off', 0],
  ] as const) {
    const w = watch(mode);
    const candidate = candidateOf(w.health);
    run(w, callOf(w.clock, candidate));
    run(w, callOf(w.clock, candidate, 1001));
    t.equal(w.lines.length, lines, mode);
    t.equal(w.observation.accessRecords(), lines);
    t.equal(w.observation.ended(), 2);
  }
});

t.test('nothing that others write can forge a record or reach a terminal raw', async (t) => {
  const w = watch();
  const nasty = 'x\n{"level":30,"msg":"call"}\r\u001b[31m\u2028\u0085\u009b\u202e' + 'z'.repeat(1_000_000);
  const call = new Call('http', nasty, { authorization: 'Bearer secret-token' }, Buffer.from('secret-payload'), '', false, w.clock);
  call.traceId = 'b'.repeat(32);
  call.principal = new Principal(nasty);
  call.reply = failed(1004, 'started', nasty);
  call.code = 1004;
  run(w, call);
  w.observation.bug(call, new Error(nasty));
  w.observation.breakerMoved({ agentId: 'crm.order.a', capability: 'crm.order.query' }, 'closed', 'open', nasty);
  t.equal(w.lines.length, 3);
  for (const line of w.lines) {
    t.equal(line.indexOf('\n'), line.length - 1, 'one line');
    t.notOk(
      line
        .slice(0, -1)
        .split('')
        .some((c) => c < ' ' || (c >= '\u007f' && c <= '\u009f') || c === '\u2028' || c === '\u202e'),
      'no control character',
    );
    t.ok(line.length < 12_000, 'cut');
    t.notOk(line.includes('secret'), 'no header, no payload');
    JSON.parse(line);
  }
  t.match(JSON.parse(w.lines[0] as string), { caller: 'invalid', capability: null });
});

t.test('only listed header values are ever logged', async (t) => {
  const shown = loggableHeaders({
    authorization: 'Bearer s3cret',
    cookie: 'a=s3cret',
    'x-api-key': 's3cret',
    'proxy-authorization': 's3cret',
    'x-anything': 's3cret',
    'content-type': 'application/json',
    'user-agent': 'a\nb',
    accept: ['a', 'b'],
    absent: undefined,
  });
  t.notOk(JSON.stringify(shown).includes('s3cret'));
  t.match(shown, { authorization: '[not shown]', 'content-type': 'application/json', 'user-agent': 'a\\u000ab', accept: 'a,b' });
  const lines: string[] = [];
  createLog({ level: 'info', service: 's', to: { write: (line: string) => void lines.push(line) } }).logger.info(
    { headers: { authorization: 's3cret' }, err: new TypeError('why\n') },
    'x',
  );
  t.match(JSON.parse(lines[0] as string), { headers: { authorization: '[not shown]' }, err: { type: 'TypeError', message: 'why\\u000a' } });
});

t.test('ids and texts are made fit to print', async (t) => {
  t.equal(printableId('crm.order.a_b-9'), 'crm.order.a_b-9');
  for (const bad of ['', 'a b', 'a\n', 'ä', 'a/b', 'x'.repeat(129), 'a:b'])
    t.equal(printableId(bad), 'invalid', JSON.stringify(bad.slice(0, 10)));
  t.equal(printableId('x'.repeat(128)).length, 128);
  t.equal(printable('plain ü 💡'), 'plain ü 💡');
  t.equal(printable('a\u0000b\u007f\u061c\ufeff'), 'a\\u0000b\\u007f\\u061c\\ufeff');
  t.equal(printable('abcdef', 3), 'abc…');
});
