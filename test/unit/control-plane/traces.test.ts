/** The store of traces: what it takes, keeps and lets go; the tree it makes of spans, what it says is missing, and why calls went where. */
import t from 'tap';
import { printable } from '../../../base/log.ts';
import { VirtualClock } from '../../../base/virtual-clock.ts';
import { labelOf, outcomeOf } from '../../../control-plane/cli/trace-view.ts';
import { DEFAULT_TRACES, type TracesConfig } from '../../../control-plane/traces/config.ts';
import { TraceDesk } from '../../../control-plane/traces/desk.ts';
import { readSpans, type ToldSpan } from '../../../control-plane/traces/read-batch.ts';
import { TraceStore } from '../../../control-plane/traces/store.ts';
import { Tail } from '../../../control-plane/traces/tail.ts';
import { type PlacedSpan, type Timeline, timelineOf } from '../../../control-plane/traces/timeline.ts';
import type { Surroundings } from '../../../control-plane/traces/why.ts';
import type { BreakerMove } from '../../../control-plane/traffic/breaker-book.ts';
import { type KeepTraces, SPAN_STAGES, type Span } from '../../../proto/wire/spans.ts';
import { tripWords } from '../../../sidecar/health/trip.ts';
import type { TraceLine } from '../../../proto/wire/trace-line.ts';
import { CONTROL, Subjects } from '../../../proto/wire/subjects.ts';
import { type MemoryBus, MemoryNats } from '../../support/memory-bus.ts';
import { batchOf, idOf, meshCall, spanOf, TRACE, WALL } from '../../support/spans.ts';

const NOBODY: Surroundings = { openBreakers: () => [] };
const SETTLED = {
  cut: 0,
  conflicts: [] as readonly string[],
  isRemainder: false,
  dropped: new Map<string, number>(),
  silentMs: 60_000,
  standing: () => null,
  serves: () => false,
};

const told = (sidecar: string, spans: readonly Span[]): ToldSpan[] => spans.map((span) => ({ ...span, sidecar }));
const line = (stage: string, reason: string, words: string, code = 0): TraceLine => ({ at_ms: 0, stage, reason, code, words });
const bytes = (value: unknown): Buffer => Buffer.from(typeof value === 'string' ? value : JSON.stringify(value), 'utf8');

function timeline(spans: readonly ToldSpan[], facts: Partial<typeof SETTLED> = {}, around = NOBODY): Timeline {
  return timelineOf(TRACE, spans, { ...SETTLED, ...facts }, around);
}

/** A replica's desk on a bus in memory, and sidecars that speak to it. */
class Rig {
  readonly clock: VirtualClock;
  readonly hub: MemoryNats;
  readonly subjects = new Subjects('test', CONTROL);
  readonly desk: TraceDesk;
  readonly sidecar: MemoryBus;

  constructor(
    config: Partial<TracesConfig> = {},
    hub?: MemoryNats,
    clock = new VirtualClock(),
    name = 'cp-1',
    moves: readonly BreakerMove[] = [],
  ) {
    this.clock = clock;
    this.hub = hub ?? new MemoryNats(() => clock.wallMs());
    const bus = this.hub.open(name).bus;
    this.desk = new TraceDesk({
      bus,
      inbound: bus,
      subjects: this.subjects,
      clock,
      config: { ...DEFAULT_TRACES, ...config },
      name,
      traffic: { breakerMoves: () => [...moves] },
      serves: () => false,
    });
    this.sidecar = this.hub.open(`sidecars-of-${name}`);
  }

  async tell(sidecar: string, batch: unknown, subject = this.subjects.spans(sidecar)): Promise<void> {
    await this.clock.advance(0);
    this.sidecar.publish(subject, bytes(batch));
    await this.clock.advance(0);
  }

  /** While it asks around, time passes. */
  async timeline(id = TRACE): Promise<Timeline | null> {
    const asked = this.desk.timeline(id);
    await this.clock.advance(2_000);
    return asked;
  }
}

t.test('a call through two sidecars is one tree, whatever order its spans come in', async (t) => {
  const { front, order } = meshCall();
  const spans = [...told('order-a', order), ...told('front-a', front)];
  for (const given of [spans, [...spans].reverse(), [spans[2], spans[0], spans[3], spans[1]] as ToldSpan[]]) {
    const shown = timeline(given);
    t.same(
      shown.spans.map(({ span_id: id, depth }) => [id, depth]),
      ['out', 'try', 'in', 'own'].map((name, depth) => [idOf(name), depth]),
    );
    t.match(shown, { complete: true, gaps: [], under_way: [], orphans: 0, elapsed_ms: 30, start_ms: WALL });
    t.same(
      shown.spans.map(({ self_ms: self }) => self),
      [4, 4, 2, 20],
    );
  }
});

t.test('children stand depth first and by time, side by side ones count once', async (t) => {
  const spans = told('s', [
    spanOf('outbound', 'root', '', 0, 100, { caller: 'a.b.c' }),
    spanOf('attempt', 'late', 'root', 50, 40, { provider: 'a.b.x', way: 'http', started: 'done' }),
    spanOf('attempt', 'early', 'root', 10, 50, { provider: 'a.b.y', way: 'http', started: 'done' }),
    spanOf('outbound', 'below', 'early', 20, 10, { caller: 'a.b.y' }),
  ]);
  const shown = timeline(spans);
  t.same(
    shown.spans.map(({ span_id: id }) => id),
    ['root', 'early', 'below', 'late'].map(idOf),
  );
  t.equal(shown.spans[0]?.self_ms, 20, '10 to 90 is covered');
  t.ok(shown.complete);
});

t.test('the beginning', async (t) => {
  const { front, order } = meshCall();
  await t.test('may have a parent at a caller outside: it is a root all the same, and says so', async (t) => {
    const outside = front.map((span) => (span.stage === 'outbound' ? { ...span, parent_span_id: '1234567890abcdef' } : span));
    const shown = timeline([...told('front-a', outside), ...told('order-a', order)]);
    t.match(shown, { complete: true, orphans: 0, spans: [{ remote_parent: true, depth: 0 }] });
    const two = timeline(told('f', [outside[0] as Span, { ...(outside[0] as Span), span_id: idOf('second') }]));
    t.match(two, { complete: true }, 'two calls of one caller, in its own span');
  });
  await t.test('may be work that goes on: what an agent asks is told before what it asks it for', async (t) => {
    const asks = [1, 2].map((i) => spanOf('outbound', `ask${i}`, 'its work', i, 1, { caller: 'crm.order.a' }));
    const serves = (agent: string): boolean => agent === 'crm.order.a';
    t.match(timeline(told('s', asks), { silentMs: 100, serves } as never), {
      complete: false,
      gaps: [],
      under_way: [/^crm\.order\.a is still at the work/],
    });
    t.match(timeline(told('s', asks), { silentMs: 100 }), { complete: true }, 'who serves nothing is outside');
    t.match(timeline(told('s', asks), { silentMs: 90_000, serves } as never), { complete: true }, 'nothing more came');
  });
  await t.test('is missing: the gap says it, and what is there is shown', async (t) => {
    const shown = timeline(told('order-a', order));
    t.match(shown, { complete: false, orphans: 1, spans: [{ orphan: true }, { depth: 1 }] });
    t.match(shown.gaps.join('\n'), /where the trace begins is missing/);
    t.match(shown.gaps.join('\n'), new RegExp(`parent of the call that came to crm\\.order\\.a .* never came \\(span ${idOf('try')}\\)`));
  });
  await t.test('may not be two things that nothing ties together', async (t) => {
    const shown = timeline(told('f', [spanOf('outbound', 'x', '', 0, 1), spanOf('outbound', 'y', '', 5, 1)]));
    t.match(shown, { complete: false, orphans: 0 });
    t.match(shown.gaps, [/begins 2 times/]);
  });
  await t.test(
    'an agent that is instrumented itself hides its own spans: its call hangs below the work that it was made for',
    async (t) => {
      const next = spanOf('outbound', 'next', 'a span of the agent', 10, 5, { caller: 'crm.order.a', capability: 'kb.doc.search' });
      const shown = timeline([...told('front-a', front), ...told('order-a', [...order, next])]);
      t.match(shown, { complete: true, orphans: 0 });
      t.match(shown.spans.at(-1), { span_id: idOf('next'), depth: 4, inferred_parent: idOf('own') });
    },
  );
});

t.test(
  'an attempt through the mesh whose sidecar says nothing is a gap, and the drops that sidecars told of stand beside it',
  async (t) => {
    const { front } = meshCall();
    const shown = timeline(told('front-a', front), { dropped: new Map([['order-a', 7]]) });
    t.match(shown, { complete: false, orphans: 0, under_way: [] });
    t.match(shown.gaps, [/sidecar that crm\.order\.a is at has told nothing/, /order-a said of that time that it had no room for 7 spans/]);
    t.match(
      timeline(told('front-a', front), { silentMs: 100 }),
      { complete: false, gaps: [], under_way: [/told nothing/] },
      'it may come yet',
    );
    const unseen = front.map((span) => (span.stage === 'attempt' ? { ...span, code: 1001, started: 'not_started' as const } : span));
    t.match(timeline(told('front-a', unseen)), { complete: true }, 'it never got there');
  },
);

t.test('clocks that differ: what cannot be is moved for display and said, durations stay', async (t) => {
  const { front, order } = meshCall();
  for (const [by, words] of [
    [-500, /clock of order-a is about 498 ms behind that of front-a: .* shown later/],
    [900, /clock of order-a is about 898 ms ahead of that of front-a: .* shown earlier/],
  ] as const) {
    const spans = order.map((span) => ({ ...span, start_ms: span.start_ms + by }));
    const shown = timeline([...told('front-a', front), ...told('order-a', spans)]);
    t.match(shown.notes, [words]);
    t.match(shown, { complete: true, elapsed_ms: 30 });
    t.equal(shown.spans[2]?.start_ms, WALL + 4 + by, 'what was told stays');
    const [inbound, own] = shown.spans.slice(2);
    t.ok((inbound?.shown_start_ms ?? 0) >= WALL + 2 && (inbound?.shown_start_ms ?? 0) <= WALL + 6.01, 'inside its parent');
    t.equal((own?.shown_start_ms ?? 0) - (inbound?.shown_start_ms ?? 0), 1, 'what is below moves along');
  }
  t.same(timeline([...told('front-a', front), ...told('order-a', order)]).notes, []);
});

t.test('messages', async (t) => {
  const common = { caller: 'crm.front.a', capability: 'crm.invoice.send', task_id: 'task-1', pool: 'p1', lane: 'normal', rule: 'invoices' };
  const send = spanOf('send', 'send', '', 0, 5, { ...common, way: 'message' });
  const queue = spanOf('queue', 'queue', 'send', 5, 100, common);
  const deliver = spanOf('deliver', 'deliver', 'send', 105, 50, { ...common, provider: 'crm.records.b', tries: 1, started: 'done' });
  const inbound = spanOf('inbound', 'in', 'deliver', 106, 48, { ...common, provider: 'crm.records.b', way: 'message' });
  const own = spanOf('attempt', 'own', 'in', 107, 46, { ...common, provider: 'crm.records.b', way: 'http', started: 'done' });
  const result = spanOf('result', 'result', 'send', 155, 4, common);
  const inbox = spanOf('inbox', 'inbox', 'send', 159, 1_000, common);
  const all = [...told('front', [send, inbox]), ...told('records', [queue, deliver, inbound, own, result])];

  await t.test('whole: every stage below its sending, and how long it took does not count the fetching', async (t) => {
    const shown = timeline(all);
    t.match(shown, { complete: true, elapsed_ms: 159 });
    t.same(
      shown.spans.map(({ stage, depth }) => `${depth} ${stage}`),
      ['0 send', '1 queue', '1 deliver', '2 inbound', '3 attempt', '1 result', '1 inbox'],
    );
    t.match(shown.why, [
      /^crm\.front\.a sent a message to crm\.invoice\.send \(task task-1\): it went to pool p1, lane normal by the rule invoices$/,
      /waited 100 ms, and was worked on once: crm\.records\.b did it in 50 ms/,
      /its result was in the inbox of crm\.front\.a 159 ms after/,
      /where the time went: 100 ms of 159 ms \(63 %\) in the queue/,
    ]);
  });
  const without = (...names: readonly string[]): ToldSpan[] => all.filter(({ span_id: id }) => !names.map(idOf).includes(id));
  await t.test('not yet worked on: that is under way and no gap', async (t) => {
    const waits = timeline(told('front', [send]));
    t.match(waits, { complete: false, gaps: [], under_way: [/crm\.invoice\.send \(task task-1\) waits in the queue/] });
    const standing = () => ({ how: 'goes_on', words: 'is being worked on by crm.records.b, for 12 s' });
    t.match(timeline(told('front', [send]), { standing } as never).under_way, [/is being worked on by crm\.records\.b, for 12 s/]);
  });
  await t.test('a stage that should be there: the result, the queue, the call to the agent, the delivery', async (t) => {
    t.match(timeline(without('result')).gaps, [/nobody told that its result came/]);
    t.match(timeline(without('result'), { silentMs: 100 }), { gaps: [], under_way: [/result of the message .* is on its way/] });
    t.match(timeline(without('queue')).gaps, [/how long the message .* waited in the queue was not told/]);
    t.match(timeline(without('in', 'own')).gaps, [/told nothing of the call to its agent \(try 1\)/]);
    t.match(timeline(without('queue', 'deliver', 'in', 'own')).gaps, [/nobody told of the delivery .* and it has a result/]);
    t.match(timeline(without('inbox')), { complete: true }, 'that the agent has not taken it is nobody’s fault');
  });
  await t.test('tried twice: both tries are told', async (t) => {
    const first = told('other', [{ ...deliver, span_id: idOf('first'), start_ms: WALL + 20, code: 1002, detail: 'it broke', tries: 1 }]);
    const shown = timeline([...all, ...first]);
    t.match(shown, { complete: true });
    t.match(
      shown.why[1],
      /worked on 2 times: crm\.records\.b failed with 1002 connection_lost after 50 ms \(it broke\); then crm\.records\.b did it/,
    );
  });
});

t.test('why a call went where it went', async (t) => {
  const who = { caller: 'crm.chat.a', capability: 'kb.doc.search' };
  await t.test('to the fallback, because of what its breaker had seen', async (t) => {
    const decision = [
      line('resolve', 'only_match', '2.0.0 is the only living version that matches (^2)'),
      line(
        'choose',
        'breaker_open',
        `every breaker of kb.doc.search is open: kb.doc.a: breaker open for another 9 s (${tripWords('slow', 12, 0, 4, { windowMs: 60_000, slowCallMs: 3_000, slowRatio: 0.3 } as never)})`,
        3001,
      ),
      line('fallback', 'capability', 'kb.doc.search failed with 3001: falling back to kb.faq.search'),
    ];
    const [first, ...rest] = timeline(
      told('s', [
        spanOf('outbound', 'root', '', 0, 5_000, { caller: 'crm.front.a' }),
        spanOf('outbound', 'out', 'root', 100, 80, { ...who, degraded: true, provider: 'kb.faq.a', decision }),
      ]),
    ).why.filter((sentence) => sentence.startsWith('step 2: '));
    t.equal(first, 'step 2: crm.chat.a asked for kb.doc.search: kb.faq.a served it in 80 ms, as its fallback');
    t.ok(
      rest.includes('step 2: went to the fallback, kb.faq.search, because 4 of 12 calls to kb.doc.a took longer than 3 s in the last 60 s'),
      rest.join('\n'),
    );
  });
  await t.test('to another provider: what was tried, the retry, and who was left out', async (t) => {
    const decision = [
      line('name', 'alias', 'search is an alias of kb.doc.search'),
      line('overrides', 'rerouted', 'override o1 sends it to @^2: new index'),
      line('choose', 'least_request', 'kb.doc.a by least_request with 0 in flight, of 2 usable anywhere'),
      line('retry', 'elsewhere', 'retry 1 of 2, elsewhere, after 40 ms'),
      line('choose', 'least_request', 'kb.doc.b by least_request with 1 in flight, of 1 usable anywhere'),
    ];
    const spans = told('s', [
      spanOf('outbound', 'out', '', 10_000, 400, { ...who, provider: 'kb.doc.b', version: '2.0.0', decision }),
      spanOf('attempt', 'a', 'out', 10_001, 300, {
        ...who,
        provider: 'kb.doc.a',
        code: 1003,
        started: 'started',
        detail: 'no answer',
        way: 'http',
      }),
      spanOf('attempt', 'b', 'out', 10_341, 50, { ...who, provider: 'kb.doc.b', started: 'done', way: 'http' }),
    ]);
    const around: Surroundings = {
      openBreakers: (sidecar, capability, wallMs) =>
        sidecar === 's' && capability === 'kb.doc.search' && wallMs === WALL + 10_000
          ? [{ provider: 'kb.doc.c', why: '5 of 8 calls failed', openedAgoMs: 4_000 }]
          : [],
    };
    const { why } = timeline(spans, {}, around);
    for (const sentence of [
      'crm.chat.a asked for kb.doc.search: kb.doc.b (2.0.0) served it in 400 ms',
      'search is an alias of kb.doc.search',
      'override o1 sends it to @^2: new index',
      'left out: kb.doc.c, whose breaker had opened 4 s before (5 of 8 calls failed)',
      'tried: kb.doc.a failed with 1003 response_timeout after 300 ms (no answer); then kb.doc.b answered after 50 ms',
      'retry 1 of 2, elsewhere, after 40 ms',
      'where the time went: 300 ms of 400 ms (75 %) at kb.doc.a, working on kb.doc.search',
    ])
      t.ok(why.includes(sentence), sentence);
  });
  await t.test('nowhere: refused, and by whom; the time it was given, when that was short', async (t) => {
    const refused = timeline(
      told('s', [
        spanOf('outbound', 'x', '', 0, 1, {
          ...who,
          code: 4002,
          detail: 'no',
          decision: [line('acl', 'denied', 'crm.chat.a may not call it', 4002)],
        }),
      ]),
    );
    t.match(refused.why.slice(0, 2), [/failed with 4002 forbidden after 1 ms: no/, /refused by acl: crm\.chat\.a may not call it/]);
    const late = timeline(
      told('s', [
        spanOf('outbound', 'x', '', 0, 1_900, {
          ...who,
          decision: [line('deadline', 'step', 'step find may use 2000 of the 8000 ms left')],
        }),
      ]),
    );
    t.ok(late.why.includes('time: step find may use 2000 of the 8000 ms left; it took 1.9 s'), late.why.join('\n'));
  });
  await t.test('of very many steps, the usual ones are counted', async (t) => {
    const steps = Array.from({ length: 200 }, (_, i) =>
      spanOf('outbound', `s${i}`, i === 0 ? '' : 's0', i, 1, i === 150 ? { code: 9001 } : {}),
    );
    const { why } = timeline(told('s', steps));
    t.ok(why.length < 20, String(why.length));
    t.match(why.join('\n'), /step 151: .*failed with 9001/);
    t.match(why.join('\n'), /199 further steps went as usual/);
  });
});

t.test('bad batches are refused, and what is good in others is kept', async (t) => {
  const rig = new Rig();
  const good = meshCall().front;
  const refusedWhole: readonly (readonly [string, unknown])[] = [
    ['no JSON', '{'],
    ['no map', '[]'],
    ['nothing', 'null'],
    ['another version', { ...batchOf('front-a', good), wire: 99 }],
    ['spans of another sidecar', batchOf('order-a', good)],
    ['no list', { ...batchOf('front-a', good), spans: 7 }],
    ['too large', `${JSON.stringify(batchOf('front-a', good))}${' '.repeat(700_000)}`],
  ];
  for (const [what, batch] of refusedWhole) {
    const before = rig.desk.figures.refusedBatches;
    await rig.tell('front-a', batch);
    t.equal(rig.desk.figures.refusedBatches, before + 1, what);
  }
  t.equal(rig.desk.figures.spans, 0);
  const [first] = good as [Span];
  const bad: readonly unknown[] = [
    null,
    7,
    {},
    { ...first, trace_id: 'xyz' },
    { ...first, trace_id: '0'.repeat(32) },
    { ...first, span_id: '0'.repeat(16) },
    { ...first, span_id: first.span_id.toUpperCase() },
    { ...first, parent_span_id: 'no' },
    { ...first, parent_span_id: first.span_id },
    { ...first, stage: 'guess' },
    { ...first, start_ms: -1 },
    { ...first, start_ms: 1e300 },
    { ...first, start_ms: '5' },
    { ...first, elapsed_ms: 1e300 },
    { ...first, code: 1.5 },
    { ...first, capability: 7 },
  ];
  await rig.tell('front-a', { ...batchOf('front-a', good), spans: [...bad, ...good] });
  t.match(rig.desk.figures, { refusedSpans: bad.length, spans: 2, traces: 1 });
  const huge = { ...first, span_id: idOf('huge'), capability: 'x'.repeat(9_999), detail: 'y'.repeat(99_999), stray: 'z'.repeat(9_999) };
  await rig.tell('front-a', batchOf('front-a', [huge]));
  const kept = [...rig.desk.all()][0]?.spans().find(({ span_id: id }) => id === idOf('huge'));
  t.equal(kept?.capability.length, 256);
  t.equal(kept?.detail?.length, 600);
  t.notOk('stray' in (kept ?? {}));
  await rig.tell(
    'front-a',
    batchOf(
      'front-a',
      Array.from({ length: 600 }, (_, i) => ({ ...first, span_id: idOf(`n${i}`) })),
    ),
  );
  t.equal(rig.desk.figures.refusedSpans, bad.length + 88, 'one batch holds 512');
});

t.test('texts of a sidecar cannot move a cursor, and that a mock answered is kept', async (t) => {
  const bad = '\u001b[2J\u202e\u0007x';
  const [, attempt] = meshCall().front as readonly [Span, Span];
  const fields = {
    capability: bad,
    version: bad,
    provider: bad,
    caller: bad,
    way: bad,
    task_id: bad,
    lane: bad,
    pool: bad,
    rule: bad,
    detail: bad,
  };
  const decision = [{ at_ms: 0, stage: bad, reason: bad, code: 0, words: bad }];
  const { spans } = readSpans([{ ...attempt, ...fields, decision, sandbox: true }], 'front-a');
  const [read] = spans;
  t.equal(spans.length, 1);
  const clean = '\\u001b[2J\\u202e\\u0007x';
  for (const name of Object.keys(fields)) t.equal(read?.[name as keyof Span], clean, name);
  t.same(read?.decision, [{ at_ms: 0, stage: clean, reason: clean, code: 0, words: clean }]);
  t.equal(read?.sandbox, true);
  t.equal(readSpans([{ ...attempt, sidecar: bad }], null).refused, 1, 'nor its name, as another replica tells it');
  const raw = { ...attempt, ...fields, sidecar: bad, depth: 0, shown_start_ms: 0, self_ms: 0 };
  for (const stage of SPAN_STAGES) t.equal(printable(labelOf({ ...raw, stage })), labelOf({ ...raw, stage }), `${stage} at a terminal`);
  const placed = timeline(spans).spans[0] as PlacedSpan;
  t.match(labelOf({ ...placed, stage: 'attempt' }), /, a mock$/);
  t.equal(outcomeOf(placed), 'ok, by a mock');
});

t.test('spans that come twice count once, those of one trace are bounded, and bytes and age bound all of them', async (t) => {
  await t.test('twice', async (t) => {
    const rig = new Rig();
    for (let i = 0; i < 3; i++) await rig.tell('front-a', batchOf('front-a', meshCall().front));
    t.match(rig.desk.figures, { spans: 2, twice: 4 });
    await rig.tell('evil', batchOf('evil', [{ ...(meshCall().front[0] as Span), code: 9001 }]));
    const shown = await rig.timeline();
    t.match(shown?.notes, [`span ${idOf('out')} was told by front-a and then by evil: the first is shown`]);
    t.equal(shown?.spans[0]?.code, 0);
  });
  await t.test('100,000 spans in one trace', async (t) => {
    const store = new TraceStore(DEFAULT_TRACES);
    const [first] = told('s', meshCall().front) as [ToldSpan];
    for (let i = 0; i < 100_000; i++) store.add({ ...first, span_id: (i + 1).toString(16).padStart(16, '0') }, 0);
    const trace = store.get(TRACE);
    t.equal(trace?.size, 5_000);
    t.equal(trace?.cut, 95_000);
    t.ok(store.bytes < 5_000_000);
    const shown = timeline(trace?.spans() ?? [], { cut: trace?.cut ?? 0 });
    t.match(shown.gaps.at(-1), /95000 further spans were told: a trace is kept up to 5000/);
  });
  const trace = (i: number): string => (i + 1).toString(16).padStart(32, '0');
  const one = (i: number, more: Partial<Span> = {}): ToldSpan => ({
    ...(told('s', meshCall().front)[0] as ToldSpan),
    trace_id: trace(i),
    ...more,
  });
  await t.test('the oldest good ones go first, failed ones last, and what goes is counted', async (t) => {
    const store = new TraceStore({ ...DEFAULT_TRACES, bytes: 100_000 });
    for (let i = 0; i < 20; i++) store.add(one(i, { code: 9001 }), i);
    for (let i = 20; i < 500; i++) store.add(one(i), i);
    t.ok(store.bytes <= 100_000);
    for (let i = 0; i < 20; i++) t.ok(store.get(trace(i)) !== null, `failed ${i}`);
    t.equal(store.get(trace(20)), null);
    t.ok(store.get(trace(499)) !== null);
    t.equal(store.counts.evicted + store.size, 500);
    store.add(one(20, { span_id: idOf('its rest') }), 600);
    t.equal(store.get(trace(20))?.isRemainder, true, 'its rest does not pass for the whole');
  });
  await t.test('where everything fails, good ones keep a quarter of the room', async (t) => {
    const store = new TraceStore({ ...DEFAULT_TRACES, bytes: 100_000 });
    for (let i = 0; i < 500; i++) store.add(one(i, i % 10 === 0 ? {} : { code: 9001 }), i);
    const good = [...store.all()].filter(({ failed }) => !failed).length;
    t.ok(good >= 10 && good < store.size / 2, `${good} of ${store.size}`);
  });
  await t.test('by age: one that is full and goes on being told holds nobody else up, nor itself', async (t) => {
    const store = new TraceStore({ ...DEFAULT_TRACES, keepMs: 60_000, keepTroubledMs: 60_000 });
    let spans = 0;
    const tellLoop = (atMs: number): boolean => store.add(one(0, { span_id: (++spans).toString(16).padStart(16, '0') }), atMs);
    while (tellLoop(0));
    for (let i = 1; i <= 10; i++) store.add(one(i), 1_000);
    for (let at = 0; at <= 59_000; at += 1_000) tellLoop(at);
    store.expire(60_000);
    t.equal(store.get(trace(0)), null, 'its last span that was kept is a minute old');
    t.equal(store.size, 10);
    for (let at = 60_000; at <= 200_000; at += 1_000) {
      tellLoop(at);
      store.expire(at);
    }
    t.equal(store.size, 1);
    t.equal(store.counts.aged, 11);
  });
  await t.test(
    'what lies in a queue, on a disk or in an inbox for hours is not slow, and an inbox is not part of how long it took',
    async (t) => {
      const store = new TraceStore({ ...DEFAULT_TRACES, slowMs: 1_000 });
      const hour = 3_600_000;
      store.add(one(1, { stage: 'inbox', start_ms: WALL + 40, elapsed_ms: 9 * hour }), 0);
      t.equal(store.get(trace(1))?.endMs, WALL + 40 + 9 * hour, 'when there is nothing else, it is the time there is');
      store.add(one(1, { stage: 'send', span_id: idOf('send'), start_ms: WALL, elapsed_ms: 5 }), 0);
      for (const stage of ['outbox', 'queue', 'inbox'] as const)
        store.add(one(1, { stage, span_id: idOf(`its ${stage}`), start_ms: WALL + 5, elapsed_ms: stage === 'inbox' ? 8 * hour : hour }), 0);
      t.match(store.get(trace(1)), { startMs: WALL, endMs: WALL + 5 + hour, troubled: false, failed: false });
      store.add(one(1, { stage: 'deliver', span_id: idOf('deliver'), start_ms: WALL + hour, elapsed_ms: 999 }), 0);
      t.equal(store.get(trace(1))?.troubled, false);
      store.add(one(1, { stage: 'deliver', span_id: idOf('again'), start_ms: WALL + hour, elapsed_ms: 1_000 }), 0);
      t.equal(store.get(trace(1))?.troubled, true, 'work that takes long is');
    },
  );
  await t.test('by age: failed and slow ones are held for longer', async (t) => {
    const rig = new Rig({ keepMs: 60_000, keepTroubledMs: 300_000, slowMs: 1_000 });
    await rig.tell(
      's',
      batchOf(
        's',
        [one(1), one(2, { code: 1003 }), one(3, { elapsed_ms: 2_000 })].map(({ sidecar: _, ...span }) => span),
      ),
    );
    await rig.clock.advance(100_000);
    t.same([...rig.desk.all()].map(({ id }) => id).sort(), [trace(2), trace(3)]);
    await rig.clock.advance(300_000);
    t.match(rig.desk.figures, { traces: 0, aged: 3 });
    t.equal(rig.desk.figures.bytes, 0, 'nothing is left over');
  });
});

t.test('a replica that has just started asks the others and the sidecars, and waits a moment', async (t) => {
  const { front, order } = meshCall();
  const old = new Rig();
  await old.tell('front-a', batchOf('front-a', front));
  await old.tell('order-a', batchOf('order-a', order));
  const young = new Rig({}, old.hub, old.clock, 'cp-2');
  await old.clock.advance(0);
  t.match(await young.timeline(), { complete: true, spans: [{ sidecar: 'front-a' }, {}, { sidecar: 'order-a' }, {}] });

  const alone = new Rig();
  const kept: unknown[] = [];
  await alone.clock.advance(0);
  alone.sidecar.subscribe(alone.subjects.keep('*'), ({ data, subject }) => {
    kept.push([subject, JSON.parse(data.toString('utf8'))]);
    alone.sidecar.publish(alone.subjects.spans('front-a'), bytes(batchOf('front-a', [...front, ...order.map((span) => ({ ...span }))])));
  });
  t.match(await alone.timeline(), { complete: true });
  t.match(kept, [['ar.test.keep._control', { traces: [TRACE] }]]);
  const nobody = 'cd'.repeat(16);
  t.equal(await alone.timeline(nobody), null);
  const count = kept.length;
  t.equal(await alone.timeline(nobody), null);
  t.equal(kept.length, count, 'not asked for again at once');
});

t.test('a replica that holds a part waits until sidecars can have answered, and whoever asks meanwhile waits with the first', async (t) => {
  const rig = new Rig();
  const { front, order } = meshCall();
  const other = 'cd'.repeat(16);
  const later = spanOf('outbound', 'alone', '', 0, 5, { caller: 'a.b.c', trace_id: other });
  await rig.tell('order-a', batchOf('order-a', order));
  let asks = 0;
  rig.sidecar.subscribe(rig.subjects.keep(CONTROL), ({ data }) => {
    asks++;
    const of = JSON.parse(data.toString()) as KeepTraces;
    // As late as a sidecar may be.
    const spans = of.traces[0] === other ? [later] : front;
    rig.clock.after(1_240, () => void rig.sidecar.publish(rig.subjects.spans('front-a'), bytes(batchOf('front-a', spans))));
  });
  await rig.clock.advance(0);
  const answers: string[] = [];
  const ask = (id: string, who: string): void =>
    void rig.desk
      .timeline(id)
      .then((shown) => answers.push(`${who} at ${Math.round(rig.clock.now())}: ${shown === null ? 'nothing' : shown.complete}`));
  const begun = Math.round(rig.clock.now());
  for (const id of [TRACE, other]) ask(id, 'first');
  await rig.clock.advance(700);
  for (const id of [TRACE, other]) ask(id, 'second');
  await rig.clock.advance(2_000);
  t.strictSame(
    answers.sort(),
    ['first', 'first', 'second', 'second'].map((who) => `${who} at ${begun + 1_600}: true`),
    'one holds a half, the other nothing',
  );
  t.equal(asks, 2, 'sidecars are asked once for each');
  ask('ef'.repeat(16), 'third');
  await rig.clock.advance(1_650);
  t.match(answers.at(-1), /^third at .*: /);
  ask('ef'.repeat(16), 'fourth');
  await rig.clock.advance(0);
  t.match(answers.at(-1), /^fourth at .*: nothing/, 'and not again at once for what nobody has');
  rig.desk.stop();
});

t.test('what sidecars had no room for is told of the time it was', async (t) => {
  const rig = new Rig();
  const { front } = meshCall('', 0);
  await rig.tell('order-a', batchOf('order-a', [], 5));
  await rig.tell('order-a', batchOf('order-a', [], 12));
  await rig.tell('front-a', batchOf('front-a', front));
  const shown = await rig.timeline();
  await rig.clock.advance(10_000);
  t.match((await rig.timeline())?.gaps.join('\n'), /order-a said of that time that it had no room for 7 spans/);
  t.equal(rig.desk.figures.droppedBySidecars, 7, 'what was lost before it listened is nothing new');
  t.notOk(shown?.complete);
});

t.test('breakers that were open then are looked up at the sidecar that chose', async (t) => {
  const move = (sidecar: string, to: 'open' | 'closed', atMs: number): BreakerMove => ({
    sidecar,
    instance: 'i1',
    provider: 'crm.order.b',
    capability: 'crm.order.query',
    to,
    why: '3 of 4 calls failed',
    atMs,
  });
  for (const [moves, isLeftOut] of [
    [[move('front-a', 'open', -5_000)], true],
    [[move('front-a', 'open', -5_000), move('front-a', 'closed', -1_000)], false],
    [[move('front-a', 'open', 5_000)], false],
    [[move('other', 'open', -5_000)], false],
  ] as const) {
    const rig = new Rig({}, undefined, new VirtualClock(WALL), 'cp-1', moves);
    const { front, order } = meshCall();
    await rig.tell('front-a', batchOf('front-a', front));
    await rig.tell('order-a', batchOf('order-a', order));
    const why = (await rig.timeline())?.why.join('\n') ?? '';
    t.equal(/left out: crm\.order\.b, whose breaker had opened 5 s before \(3 of 4 calls failed\)/.test(why), isLeftOut);
  }
});

t.test('who looks on gets what fits, in the order in which it ended, and is told how much was left out', async (t) => {
  const rig = new Rig();
  const hops: string[] = [];
  const leftOut: number[] = [];
  const tail = new Tail(rig.clock, ({ stage }) => stage === 'outbound', 8, {
    hop: ({ span_id: id }) => hops.push(id) > 0,
    leftOut: (count) => leftOut.push(count) > 0,
  });
  rig.desk.addTail(tail);
  await rig.tell('f', batchOf('f', [...meshCall('late', 500).front, ...meshCall('early', 0).front]));
  t.same(hops, [], 'written together');
  await rig.clock.advance(300);
  t.same(hops, [idOf('outearly'), idOf('outlate')]);
  t.same(leftOut, []);
  await rig.tell(
    'f',
    batchOf(
      'f',
      Array.from({ length: 50 }, (_, i) => spanOf('outbound', `many${i}`, '', i, 1)),
    ),
  );
  await rig.clock.advance(300);
  t.equal(hops.length, 4);
  t.same(leftOut, [48]);
  rig.desk.removeTail(tail);
  await rig.tell('f', batchOf('f', [spanOf('outbound', 'after', '', 0, 1)]));
  await rig.clock.advance(300);
  t.equal(hops.length, 4);
});
