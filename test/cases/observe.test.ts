/** Seeing: how many series strangers can make, and what a malformed trace context does. */
import t from 'tap';
import { MAX_HISTOGRAM_SERIES, MAX_SERIES } from '../../sidecar/observe/declared-metrics.ts';
import { Metrics } from '../../sidecar/observe/metrics.ts';
import { SeededRandom } from '../../base/random.ts';
import { readTraceContext } from '../../proto/wire/trace-context.ts';
import { TestAgent } from '../support/agent.ts';
import { collected } from '../support/heap.ts';
import { assertQuiet, takeBase } from '../support/invariants.ts';
import { contractLine, metricIn, mockLine, Offline } from '../support/offline.ts';
import { ask as askRaw } from '../support/raw-http.ts';
import { Rig, TOKEN } from '../support/rig.ts';
import { tableOf } from './http-table.ts';

// Other tests share the machine.
t.setTimeout(110_000);
const before = takeBase();
const NAME = 'crm.order.query';

/** Series by metric name, without the lines that one histogram series is made of. */
function seriesOf(text: string): Map<string, Set<string>> {
  const found = new Map<string, Set<string>>();
  for (const line of text.split('\n')) {
    if (line === '' || line.startsWith('#')) continue;
    const [, name = '', labels = ''] = /^([a-z_]+)(\{.*\})? /.exec(line) ?? [];
    const base = name.replace(/_(bucket|sum|count)$/, '');
    const set = found.get(base) ?? new Set();
    set.add(labels.replace(/le="[^"]*",?/, '').replace(/,?\}/, '}'));
    found.set(base, set);
  }
  return found;
}

/** Resident memory when all that can go is gone: the heap gives its pages back a moment after a collection. */
async function resident(): Promise<number> {
  collected();
  await new Promise((done) => setTimeout(done, 300));
  collected();
  return process.memoryUsage.rss();
}

t.test('C128 strangers make no series: unknown names, ids, versions, errors and header values', async (t) => {
  await t.test('100,000 calls of all kinds', async (t) => {
    const table = `contracts:\n${contractLine(NAME, '2.0.0', 'retry: {max: 0}, breaker: {enabled: false}, affinity: {from: "header:x-session"}')}\nproviders:\n${mockLine('crm.order.p1', [`${NAME}@2.0.0`])}\n${mockLine('crm.order.p2', [`${NAME}@2.0.0`], '', 'error_rate: 50%, status: 500')}\n`;
    const world = new Offline(table);
    const random = new SeededRandom(11);
    const word = (): string =>
      Math.floor(random.next() * 2 ** 40)
        .toString(36)
        .replace(/^[0-9]+/, '') || 'x';
    const headers = (): Record<string, string> => ({
      [`x-${word()}`]: word(),
      'user-agent': word(),
      'reach-sequence-id': word(),
      'x-request-id': word(),
    });
    const kinds: (() => [string, Record<string, string>])[] = [
      () => [`a${word()}.b${word()}.c${word()}`, headers()],
      () => [`${word()}%${word()}`, headers()],
      () => [`${NAME}@${Math.floor(random.next() * 1e6)}.${Math.floor(random.next() * 1e6)}.0`, headers()],
      () => [NAME, { ...headers(), 'reach-pin': `${word()}.role.${word()}` }],
      () => [NAME, { ...headers(), 'reach-tags': `a${word()}=b${word()}` }],
      () => [NAME, { ...headers(), 'x-session': word() }],
      () => [NAME, { ...headers(), 'reach-path': `x.y.${word()}>${NAME}`, traceparent: word() }],
      () => [NAME, { ...headers(), 'reach-step': word(), 'reach-budget': `${word()}=1` }],
    ];
    const run = async (count: number): Promise<void> => {
      for (let i = 0; i < count; i++) {
        const [asked, headers] = (kinds[i % kinds.length] as () => [string, Record<string, string>])();
        await world.call(asked, { headers });
      }
    };
    await run(8_000);
    const memoryBefore = await resident();
    const shapesBefore = seriesOf(await world.metrics());
    await run(92_000);
    const grown = (await resident()) - memoryBefore;
    t.ok(grown < 20_000_000, `${grown} bytes of resident memory more`);

    let best = Number.POSITIVE_INFINITY;
    let text = '';
    for (let i = 0; i < 3; i++) {
      const began = performance.now();
      text = await world.metrics();
      best = Math.min(best, performance.now() - began);
    }
    t.ok(best < 200, `a scrape in ${best.toFixed(1)} ms`);
    const shapes = seriesOf(text);
    for (const [name, series] of shapes) {
      t.ok(series.size <= MAX_SERIES, `${name}: ${series.size} series`);
      t.ok(series.size <= (shapesBefore.get(name)?.size ?? 0) + 4, `${name} did not grow with the calls`);
    }
    t.ok([...shapes.values()].reduce((sum, each) => sum + each.size, 0) < 100);
    t.ok(metricIn(text, 'reach_calls_total', { capability: 'unknown' }) >= 24_000, 'unknown names share one label');
    t.equal(metricIn(text, 'reach_calls_total'), 100_000, 'and every call is counted');
    for (const [, value] of text.matchAll(/="([^"]*)"/g))
      if (value !== undefined && !/^[a-z0-9_.+-]*$/i.test(value)) t.fail(`a label ${value}`);
    const labels = new Set([...text.matchAll(/(?:capability|version|provider)="([^"]*)"/g)].map(([, value]) => value));
    t.strictSame(
      [...labels].sort(),
      ['', '2.0.0', 'crm.order.p1', 'crm.order.p2', NAME, 'unknown'].sort(),
      'names and versions come from the table alone',
    );
    t.equal(world.observation.inFlight(), 0);
    await assertQuiet(t, { before, engines: [world.quiet] });
  });

  await t.test('tables that come and go: at most 2,000 series a metric, then one called other', async (t) => {
    const world = new Offline(`contracts:\n${contractLine(NAME, '1.0.0')}\nproviders:\n${mockLine('crm.order.p1', [`${NAME}@1.0.0`])}\n`);
    for (let push = 0; push < 13; push++) {
      const names = Array.from({ length: 200 }, (_, i) => `t${push}.n${i}.query`);
      world.push(
        `contracts:\n${names.map((name) => contractLine(name, '1.0.0')).join('\n')}\nproviders:\n${names.map((name, i) => mockLine(`t${push}.agent.${i}`, [`${name}@1.0.0`])).join('\n')}\n`,
      );
      for (const name of names) if ((await world.call(name)).entry.code !== 0) t.fail(name);
    }
    let best = Number.POSITIVE_INFINITY;
    let text = '';
    for (let i = 0; i < 3; i++) {
      const began = performance.now();
      text = await world.metrics();
      best = Math.min(best, performance.now() - began);
    }
    for (const [name, series] of seriesOf(text)) t.ok(series.size <= MAX_SERIES + 1, `${name}: ${series.size} series`);
    for (const name of ['reach_call_duration_seconds', 'reach_attempt_duration_seconds'])
      t.ok((seriesOf(text).get(name)?.size ?? 0) <= MAX_HISTOGRAM_SERIES + 1, name);
    t.equal(metricIn(text, 'reach_calls_total'), 2_600, 'nothing is lost');
    t.ok(metricIn(text, 'reach_calls_total', { capability: 'other' }) >= 600, 'what does not fit is counted together');
    t.equal(metricIn(text, 'reach_attempts_total'), 2_600);
    t.ok(metricIn(text, 'reach_attempts_total', { capability: 'other' }) >= 600);
    t.equal(metricIn(text, 'reach_call_duration_seconds_count'), 2_600);
    t.ok(best < 200, `a scrape in ${best.toFixed(1)} ms`);
    await assertQuiet(t, { before, engines: [world.quiet] });
  });

  await t.test('reasons of refusals, breakers and providers are bounded too', async (t) => {
    const metrics = new Metrics();
    for (let i = 0; i < 10_000; i++) {
      metrics.requestRefused(`made-up-${i}`);
      metrics.breakerMoved(`a.b.${i}`, `c.d.e${i}`, 'closed', 'open');
    }
    const many = function* (): Generator<{
      agentId: string;
      capability: string;
      stateName: 'open';
      inFlight: number;
      ejectedUntil: number;
    }> {
      for (let i = 0; i < 10_000; i++)
        yield { agentId: `a.b.${i}`, capability: `c.d.e${i}`, stateName: 'open', inFlight: 0, ejectedUntil: 0 };
    };
    const text = await metrics.render({ table: { version: 1, ageMs: 0, rejected: 0 }, breakers: many(), providers: many() });
    for (const [name, series] of seriesOf(text)) t.ok(series.size <= MAX_SERIES + 1, `${name}: ${series.size} series`);
    t.equal(metricIn(text, 'reach_refused_requests_total'), 10_000);
    t.equal(metricIn(text, 'reach_breaker_transitions_total'), 10_000);
  });

  await t.test('over the wire: paths and hosts that nobody has', async (t) => {
    const agent = await TestAgent.listen('order');
    const rig = await Rig.start(t, { table: tableOf([{ name: NAME, at: [agent.url] }]) });
    for (let i = 0; i < 300; i++) {
      await Promise.all([
        rig.ask(`/nothing/${i}?x=${i}`),
        askRaw(rig.port, 'GET', `/v1/health?${i}`, { host: `evil-${i}.test` }),
        askRaw(rig.port, `GET`, `/v1/explain/a.b.c${i}`, { authorization: `Bearer wrong-${i}` }),
        rig.invoke(`a.b.c${i}`, { token: i % 2 === 0 ? `unknown-${i}` : TOKEN }),
      ]);
    }
    const scrape = await rig.ask('/metrics');
    t.ok(scrape.elapsedMs < 200, `a scrape in ${Math.round(scrape.elapsedMs)} ms`);
    const text = scrape.bytes.toString('utf8');
    t.notMatch(text, /evil-|nothing\/|a\.b\.c|wrong-|unknown-/);
    t.ok((seriesOf(text).get('reach_refused_requests_total')?.size ?? 0) <= 5);
    t.equal(metricIn(text, 'reach_calls_total', { capability: 'unknown' }), 300);
    await rig.stop();
    await agent.close();
    await rig.finish(t, before, [{ name: 'order', count: agent.executions, expected: 0 }]);
  });
});

t.test('C129 a malformed trace context starts a new trace, and never costs the call', async (t) => {
  const agent = await TestAgent.listen('order');
  const rig = await Rig.start(t, { table: tableOf([{ name: NAME, at: [agent.url] }]) });
  const TRACE = '0af7651916cd43dd8448eb211c80319c';
  const SPAN = 'b7ad6b7169203331';
  const digits = '11111111222222223333333344444444';
  const STATE = 'vendor=value,other=1';
  const good = (version = '00', trace = TRACE, span = SPAN, flags = '01', rest = ''): string =>
    `${version}-${trace}-${span}-${flags}${rest}`;
  /** What the provider got for these headers. */
  const sent = async (
    headers: Record<string, string>,
  ): Promise<{ trace: string; span: string; flags: string; state: string | undefined; raw: string[]; reported: string }> => {
    const answer = await askRaw(rig.port, 'POST', `/v1/invoke/${NAME}`, { authorization: `Bearer ${TOKEN}`, ...headers }, '{}');
    if (answer.status !== 200) t.fail(`${JSON.stringify(headers).slice(0, 100)}: ${answer.status} ${answer.body}`);
    const request = agent.requests.at(-1);
    const [, trace = '', span = '', flags = ''] = String(request?.headers['traceparent']).split('-');
    return {
      trace,
      span,
      flags,
      state: request?.headers['tracestate'] as string | undefined,
      raw: [String(request?.headers['traceparent'])],
      reported: (JSON.parse(answer.body) as { trace_id: string }).trace_id,
    };
  };

  await t.test('refused ones: a new trace, without the state', async (t) => {
    const bad: readonly (readonly [string, string])[] = [
      ['version ff', good('ff')],
      ['version ff and more', good('ff', TRACE, SPAN, '01', '-x')],
      ['a trace id of zeros', good('00', '0'.repeat(32))],
      ['a span id of zeros', good('00', TRACE, '0'.repeat(16))],
      ['upper case', good().toUpperCase()],
      ['upper case in the trace id', good('00', TRACE.toUpperCase())],
      ['upper case in the span id', good('00', TRACE, SPAN.toUpperCase())],
      ['upper case in the flags', good('00', TRACE, SPAN, '0A')],
      ['no flags', `00-${TRACE}-${SPAN}-`],
      ['flags of one letter', `00-${TRACE}-${SPAN}-x`],
      ['more behind version 00', good('00', TRACE, SPAN, '01', '-x')],
      ['a dash behind version 00', good('00', TRACE, SPAN, '01', '-')],
      ['two in one', `${good()}, ${good('00', digits)}`],
      ['two in one, of a later version', `${good('cc', TRACE, SPAN, '01', '-x')}, ${good('cc', digits)}`],
      // Neighbours.
      ['a short trace id', good('00', TRACE.slice(1))],
      ['a long trace id', good('00', `${TRACE}a`)],
      ['no hex', good('00', `${TRACE.slice(1)}g`)],
      ['no hex version', good('0g')],
      ['a version of one digit', good('0')],
      ['blanks', good().replaceAll('-', ' ')],
      ['underscores', good().replaceAll('-', '_')],
      ['more without a dash', good('cc', TRACE, SPAN, '01', 'x')],
      ['a number with a sign', good('00', `+${TRACE.slice(1)}`)],
      ['nothing', ''],
      ['rubbish', 'x'.repeat(5_000)],
      ['b3', `${TRACE}-${SPAN}-1`],
    ];
    const seen = new Set<string>();
    for (const [what, traceparent] of bad) {
      const got = await sent({ traceparent, tracestate: STATE });
      t.match(got.trace, /^[0-9a-f]{32}$/, what);
      t.not(got.trace, TRACE, `${what}: not the caller's`);
      t.not(got.trace.toLowerCase(), TRACE);
      t.not(got.trace, '0'.repeat(32));
      t.equal(got.state, undefined, `${what}: without the state`);
      t.equal(got.reported, got.trace, 'and the Result names the same');
      seen.add(got.trace);
    }
    t.equal(seen.size, bad.length, 'each a trace of its own');
  });

  await t.test('good ones are taken over', async (t) => {
    const taken: readonly (readonly [string, string, string])[] = [
      ['plain', good(), TRACE],
      ['all digits', good('00', digits, '1234567812345678', '00'), digits],
      ['a later version', good('cc'), TRACE],
      ['a later version with more', good('cc', TRACE, SPAN, '01', '-what-comes-later'), TRACE],
      ['version 01', good('01', TRACE, SPAN, '03', '-'), TRACE],
      ['flags that nobody knows', good('00', TRACE, SPAN, 'ff'), TRACE],
      ['blanks around', `  ${good()}  `, TRACE],
    ];
    const spans = new Set<string>([SPAN]);
    for (const [what, traceparent, trace] of taken) {
      const got = await sent({ traceparent, tracestate: STATE });
      t.equal(got.trace, trace, what);
      t.equal(got.state, STATE, `${what}: with the state`);
      t.match(got.raw[0], /^00-[0-9a-f]{32}-[0-9a-f]{16}-0[0-3]$/, 'one header, of the version that we speak');
      t.notOk(spans.has(got.span), 'a span of its own');
      spans.add(got.span);
      t.equal(got.reported, trace);
    }
    t.equal((await sent({ traceparent: good('00', TRACE, SPAN, '00') })).flags, '00', 'not sampled stays so');
  });

  await t.test('two headers of one name', async (t) => {
    const got = await (async () => {
      const { RawClient } = await import('../support/raw-http.ts');
      const client = await RawClient.to(rig.port);
      client.write(
        `POST /v1/invoke/${NAME} HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer ${TOKEN}\r\ntraceparent: ${good()}\r\ntraceparent: ${good('00', digits)}\r\ntracestate: a=1\r\ntracestate: b=2\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}`,
      );
      const answer = await client.answer();
      client.close();
      return answer;
    })();
    t.equal(got.status, 200);
    const trace = (JSON.parse(got.body) as { trace_id: string }).trace_id;
    t.ok(trace !== TRACE && trace !== digits);
    t.equal(agent.requests.at(-1)?.headers['tracestate'], undefined);
  });

  await t.test('the state alone may be dropped; the ids are taken all the same', async (t) => {
    const members = (count: number): string => Array.from({ length: count }, (_, i) => `k${i}=v`).join(',');
    t.equal((await sent({ traceparent: good(), tracestate: members(32) })).state, members(32), '32 members');
    for (const [what, tracestate] of [
      ['33 members', members(33)],
      ['5 KB', `a=${'x'.repeat(5_000)}`],
      ['bytes that are no text', 'a=\u00e9\u00ff'],
    ] as const) {
      const got = await sent({ traceparent: good(), tracestate });
      t.equal(got.trace, TRACE, what);
      t.equal(got.state, undefined, what);
    }
    const twice = await sent({ traceparent: good(), tracestate: 'a=1, b=2' });
    t.match(twice.state, /a=1, ?b=2/);
    t.equal((await sent({ tracestate: STATE })).state, undefined, 'a state without a parent means nothing');
    // Control characters do not come through HTTP: the parser refuses the whole request, whatever header they are in.
    for (const name of ['tracestate', 'x-anything'])
      t.equal(
        (
          await askRaw(
            rig.port,
            'POST',
            `/v1/invoke/${NAME}`,
            { authorization: `Bearer ${TOKEN}`, traceparent: good(), [name]: 'a=\u0001' },
            '{}',
          )
        ).status,
        400,
        name,
      );
    // By the ways in that are not HTTP they can come.
    for (const tracestate of ['a=\u0001', 'a=\r\nx-admin: 1', 'a=\u0000', 'a=\u007f', 'a=\u2028', ['a=1', 'b=\u0007']]) {
      const into = { traceId: '', parentSpanId: '', traceFlags: 0, traceState: 'x' };
      readTraceContext(into, good(), tracestate, new SeededRandom(1));
      t.strictSame(into, { traceId: TRACE, parentSpanId: SPAN, traceFlags: 1, traceState: '' });
    }
  });

  await t.test('every attempt has a span of its own, all in one trace', async (t) => {
    const here = takeBase();
    const failing = await TestAgent.listen('failing', () => ({ status: 500, body: {} }));
    const two = await Rig.start(t, { table: tableOf([{ name: NAME, at: [failing.url, failing.url] }]) });
    const answer = await two.invoke(NAME, { headers: { traceparent: good(), tracestate: STATE } });
    t.equal(answer.json.attempts.length, 2);
    const got = failing.requests.map((request) => String(request.headers['traceparent']).split('-'));
    t.strictSame(
      got.map(([, trace]) => trace),
      [TRACE, TRACE],
    );
    t.equal(new Set([SPAN, ...got.map(([, , span]) => span)]).size, 3);
    await two.stop();
    await failing.close();
    await two.finish(t, here, [{ name: 'failing', count: failing.executions, expected: 2 }]);
  });
  const count = agent.executions;
  await rig.stop();
  await agent.close();
  await rig.finish(t, before, [{ name: 'order', count, expected: agent.executions }]);
  t.equal(rig.started.front.observation.ended(), count, 'every request that was well-formed HTTP was served');
});
