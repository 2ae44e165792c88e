import t from 'tap';
import { VirtualClock } from '../../../../base/virtual-clock.ts';
import { SeededRandom } from '../../../../base/random.ts';
import type { BusMessage } from '../../../../base/bus-message.ts';
import { Code } from '../../../../proto/wire/codes.ts';
import { MAX_BATCH_BYTES, MAX_SPANS_PER_BATCH, type Span, type SpanBatch, SPANS_WIRE } from '../../../../proto/wire/spans.ts';
import { CONTROL, Subjects } from '../../../../proto/wire/subjects.ts';
import { newSpanId, newTraceId } from '../../../../proto/wire/trace-context.ts';
import { Attempt } from '../../../../sidecar/call/attempt-record.ts';
import { Call, NO_HEADERS, record } from '../../../../sidecar/call/call.ts';
import { Principal } from '../../../../sidecar/call/principal.ts';
import { NO_BODY } from '../../../../sidecar/call/reply.ts';
import { passing, refusing, Verdict } from '../../../../sidecar/call/verdict.ts';
import { HeadSampling } from '../../../../sidecar/observe/head-sampling.ts';
import { KeptTraces } from '../../../../sidecar/observe/kept-traces.ts';
import { SlowCalls } from '../../../../sidecar/observe/slow-calls.ts';
import { MAX_LINES, type SpanRecord } from '../../../../sidecar/observe/span-record.ts';
import { spanOf } from '../../../../sidecar/observe/span-of.ts';
import { type SpanSink, Spans } from '../../../../sidecar/observe/spans.ts';
import { SpansPublisher } from '../../../../sidecar/observe/spans-publisher.ts';
import type { Candidate } from '../../../../sidecar/table/snapshot.ts';
import { TRACE_DEFAULTS, type TraceSettings } from '../../../../sidecar/traces-config.ts';

const PARENT = '00f067aa0ba902b7';
const picked = passing('choose', 'least_request', '{a} with {b} in flight, of {c}');
const failed = refusing('attempt', 'connection_lost', Code.connection_lost, '{a}: {b} (after {c} ms)');

const capability = { name: 'crm.order.query' };
const version = { text: '2.1.0', capability };
const candidate = {
  version,
  provider: { agentId: 'crm.order.a1', reach: 'self', record: { endpoint: { type: 'http', address: 'http://127.0.0.1:4000/x?y=1' } } },
} as unknown as Candidate;

class Told implements SpanSink {
  readonly spans: Span[] = [];
  take(told: SpanRecord): void {
    this.spans.push(spanOf(told));
  }
  of(traceId: string): Span[] {
    return this.spans.filter((span) => span.trace_id === traceId);
  }
}

interface World {
  readonly clock: VirtualClock;
  readonly random: SeededRandom;
  readonly spans: Spans;
  readonly told: Told;
  readonly named: string[];
}

function world(settings: Partial<TraceSettings> = {}, seed = 7): World {
  const clock = new VirtualClock();
  const random = new SeededRandom(seed);
  const spans = new Spans(clock, random, { ...TRACE_DEFAULTS, ...settings });
  const told = new Told();
  const named: string[] = [];
  spans.sinks.push(told);
  spans.onNamed = (traces) => void named.push(...traces);
  return { clock, random, spans, told, named };
}

function begun({ clock, random, spans }: World, more: (call: Call) => void = () => undefined): Call {
  const call = new Call('http', 'crm.order.query', NO_HEADERS, NO_BODY, '', false, clock);
  call.traceId = newTraceId(random);
  more(call);
  spans.begin(call);
  call.capability = capability as unknown as NonNullable<Call['capability']>;
  call.principal = new Principal('shop.chat.1');
  return call;
}

/** One attempt, one verdict, and its end. */
function end({ clock, spans }: World, call: Call, code: Code = 0, elapsedMs = 2): Call {
  call.chosen = candidate;
  record(call, new Verdict(picked, 'crm.order.a1', 0, 3));
  const attempt = new Attempt(candidate, clock.now() - call.startedAt);
  attempt.spanId = spans.newId();
  attempt.elapsedMs = elapsedMs;
  attempt.code = code;
  attempt.status = code === 0 ? 200 : 0;
  attempt.started = code === 0 ? 'done' : 'started';
  attempt.detail = code === 0 ? '' : 'the provider said "her name is Ada" at http://a.b/c?key=secret-1';
  call.attempts.push(attempt);
  spans.attemptEnded(call, attempt);
  if (code !== 0) record(call, new Verdict(failed, 'crm.order.a1', attempt.detail, 2));
  call.status = attempt.status;
  spans.callEnded(call, elapsedMs);
  return call;
}

t.test('a call is told as a hop with its attempts below it', async (t) => {
  const at = world();
  await at.clock.advance(5);
  const call = end(
    at,
    begun(at, (each) => (each.parentSpanId = PARENT)),
  );
  t.equal(at.told.spans.length, 0, 'nothing is done on the path of the call');
  await at.clock.advance(300);
  const hop = at.told.spans.find(({ stage }) => stage === 'outbound');
  const attempt = at.told.spans.find(({ stage }) => stage === 'attempt');
  t.match(hop, {
    trace_id: call.traceId,
    span_id: call.spanId,
    parent_span_id: PARENT,
    start_ms: 1_700_000_000_005,
    elapsed_ms: 2,
    code: 0,
    status: 200,
    capability: 'crm.order.query',
    version: '2.1.0',
    provider: 'crm.order.a1',
    caller: 'shop.chat.1',
    way: 'http',
    decision: [{ at_ms: 0, stage: 'choose', reason: 'least_request', code: 0, words: 'crm.order.a1 with 0 in flight, of 3' }],
  });
  t.match(attempt, { parent_span_id: call.spanId, way: 'http', started: 'done', status: 200, elapsed_ms: 2 });
  t.equal(attempt?.decision, undefined);
  t.equal(attempt?.span_id, call.attempts[0]?.spanId);
});

t.test('what a provider has said is not told', async (t) => {
  const at = world();
  const call = end(at, begun(at), Code.connection_lost);
  await at.clock.advance(300);
  const text = JSON.stringify(at.told.of(call.traceId));
  t.notMatch(text, /Ada|secret-1/);
  t.match(text, /the provider said/);
});

t.test('a call that was refused, one from static, a repeat and one at the provider are told as what they are', async (t) => {
  const at = world();
  const refused = begun(at);
  record(refused, new Verdict(refusing('acl', 'not_named', Code.forbidden, 'no')));
  at.spans.callEnded(refused, 0.1);
  const nobody = begun(at);
  nobody.capability = null;
  record(nobody, new Verdict(refusing('name', 'unknown', Code.bad_name, 'no such')));
  at.spans.callEnded(nobody, 0.1);
  const fromStatic = begun(at);
  fromStatic.staticBody = NO_BODY;
  fromStatic.degraded = true;
  fromStatic.chosen = candidate;
  at.spans.callEnded(fromStatic, 1);
  const again = begun(at);
  again.replay = { provider: 'crm.order.a2', version: '2.1.0' };
  at.spans.callEnded(again, 1);
  const inbound = begun(at);
  inbound.isInbound = true;
  at.spans.callEnded(inbound, 1);
  const notSent = begun(at);
  const attempt = new Attempt(candidate, 0);
  attempt.code = Code.breaker_open;
  at.spans.attemptEnded(notSent, attempt);
  await at.clock.advance(300);
  const of = ({ traceId }: Call): Span | undefined => at.told.of(traceId)[0];
  t.match(of(refused), { code: Code.forbidden, stage: 'outbound' });
  t.equal(of(refused)?.provider, undefined);
  t.match(of(nobody), { code: Code.bad_name, capability: 'crm.order.query' });
  t.match(of(fromStatic), { degraded: true });
  t.equal(of(fromStatic)?.provider, undefined, 'nobody served it');
  t.match(of(again), { replay: true, provider: 'crm.order.a2' });
  t.equal(of(inbound)?.stage, 'inbound');
  t.match(of(notSent), { stage: 'attempt', code: Code.breaker_open, started: 'not_started', parent_span_id: notSent.spanId });
  t.match(of(notSent)?.span_id, /^[0-9a-f]{16}$/);
});

t.test('a decision of many stages is cut, and a record is used again without traces of the one before', async (t) => {
  const at = world({ heldSpans: 256 });
  const long = begun(at);
  for (let i = 0; i < 3 * MAX_LINES; i++) record(long, new Verdict(picked, `a${i}`));
  at.spans.callEnded(long, 1);
  at.spans.tell(stage(long.traceId, 'deliver', { task_id: 'task1', lane: 'high', pool: 'p1', rule: 'r', tries: 2 }), true);
  await at.clock.advance(300);
  t.equal(at.told.spans[0]?.decision?.length, MAX_LINES);
  const after = Array.from({ length: 256 }, () => begun(at));
  for (const call of after) at.spans.callEnded(call, 1);
  await at.clock.advance(2_000);
  for (const call of after) {
    const [span] = at.told.of(call.traceId);
    t.strictSame([span?.decision, span?.task_id, span?.lane, span?.tries], [undefined, undefined, undefined, undefined]);
  }
  // A submission that was refused has a lane, and nothing else of a message.
  for (let i = 0; i < 256; i++) at.spans.tell(stage(long.traceId, 'send', { code: Code.forbidden, lane: 'urgent' }), true);
  await at.clock.advance(2_000);
  t.equal(at.told.spans.at(-1)?.lane, 'urgent');
  const [call] = Array.from({ length: 256 }, () => end(at, begun(at)));
  await at.clock.advance(2_000);
  for (const span of at.told.of(call?.traceId ?? '')) t.equal(span.lane, undefined);
});

function stage(traceId: string, name: Span['stage'], more: Partial<Span> = {}): Span {
  return {
    trace_id: traceId,
    span_id: 'b'.repeat(16),
    parent_span_id: PARENT,
    stage: name,
    start_ms: 1_700_000_000_000,
    elapsed_ms: 4,
    code: 0,
    capability: 'crm.order.query',
    ...more,
  };
}

t.test('which traces are told', async (t) => {
  await t.test('thresholds nest: what a sidecar with less room picks, one with more picks too', async (t) => {
    const random = new SeededRandom(3);
    const [small, large] = [new HeadSampling(0.1, 1e7), new HeadSampling(0.5, 1e7)];
    let both = 0;
    for (let i = 0; i < 4_000; i++) {
      const id = newTraceId(random);
      const inSmall = small.picks(id, 0);
      if (inSmall && !large.picks(id, 0)) t.fail(id);
      if (inSmall) both++;
    }
    t.ok(both > 300 && both < 500, `${both} of 4000`);
  });

  await t.test('the bound of a second holds, in the first one about, then well, and the share comes back', async (t) => {
    const random = new SeededRandom(4);
    const head = new HeadSampling(1, 100);
    const second = (from: number, calls: number): number => {
      let told = 0;
      for (let i = 0; i < calls; i++) if (head.picks(newTraceId(random), from + (i * 1_000) / calls)) told++;
      return told;
    };
    const first = second(0, 20_000);
    t.ok(first >= 100 && first <= 400, `${first} in the first second`);
    for (let i = 1; i < 5; i++) {
      const told = second(i * 1_000, 20_000);
      t.ok(told >= 60 && told <= 200, `${told} in second ${i + 1}`);
    }
    second(5_000, 50);
    t.equal(second(6_000, 50), 50, 'all of them');
    t.equal(head.ratio, 1);
  });

  await t.test('what the caller did not pick is not picked; that it did forces nothing', async (t) => {
    const at = world({ ratio: 0 });
    const forced = begun(at, (call) => (call.traceFlags = 3));
    t.equal(forced.traceFlags, 2, 'whoever is asked is told so; other flags stay');
    end(at, forced);
    await at.clock.advance(1_000);
    t.equal(at.told.spans.length, 0);
    const all = world();
    end(
      all,
      begun(all, (call) => (call.traceFlags = 0)),
    );
    await all.clock.advance(1_000);
    t.equal(all.told.spans.length, 0);
  });

  await t.test('what failed is told all the same, with what came before it, and named to the others', async (t) => {
    const at = world({ ratio: 0 });
    const inner = begun(at);
    end(at, inner);
    await at.clock.advance(1_000);
    t.equal(at.told.spans.length, 0);
    const outer = begun(at, (call) => (call.traceId = inner.traceId));
    end(at, outer, Code.connection_lost);
    await at.clock.advance(1_000);
    t.equal(at.told.of(inner.traceId).length, 4);
    t.strictSame(at.named, [inner.traceId], 'once');
    const later = begun(at, (call) => (call.traceId = inner.traceId));
    end(at, later);
    await at.clock.advance(1_000);
    t.equal(at.told.of(inner.traceId).length, 6, 'and what comes behind it');
  });

  await t.test('a failed attempt is enough, also where the call went well', async (t) => {
    const at = world({ ratio: 0 });
    const call = begun(at);
    const attempt = new Attempt(candidate, 0);
    attempt.code = Code.connection_lost;
    at.spans.attemptEnded(call, attempt);
    end(at, call);
    await at.clock.advance(1_000);
    t.equal(at.told.of(call.traceId).length, 3);
  });

  await t.test('a call that was retried is told whole, however long after the failed attempt it answers, and is named anew', async (t) => {
    for (const minutes of [1.5, 45]) {
      const at = world({ ratio: 0 });
      const call = begun(at);
      const failedFirst = new Attempt(candidate, 0);
      failedFirst.code = Code.connection_lost;
      call.attempts.push(failedFirst);
      at.spans.attemptEnded(call, failedFirst);
      await at.clock.advance(minutes * 60_000);
      end(at, call, 0, minutes * 60_000);
      await at.clock.advance(1_000);
      t.same(
        at.told.of(call.traceId).map(({ stage: each, code }) => [each, code]),
        [
          ['attempt', Code.connection_lost],
          ['attempt', 0],
          ['outbound', 0],
        ],
        `${minutes} minutes`,
      );
      t.equal(at.named.filter((trace) => trace === call.traceId).length, 2);
    }
  });

  await t.test(
    'so is a hop above it that ends minutes later without a failure of its own, and a message that was handed over again',
    async (t) => {
      const at = world({ ratio: 0 });
      const above = begun(at, (call) => (call.isInbound = true));
      end(
        at,
        begun(at, (call) => (call.traceId = above.traceId)),
        Code.connection_lost,
      );
      const other = begun(at);
      await at.clock.advance(500_000);
      end(at, above);
      end(at, other);
      at.spans.tell(stage('d'.repeat(32), 'deliver', { task_id: 'task1', tries: 2 }), false);
      at.spans.tell(stage('e'.repeat(32), 'deliver', { task_id: 'task2', tries: 1 }), false);
      await at.clock.advance(1_000);
      t.ok(at.told.of(above.traceId).some(({ stage: each }) => each === 'inbound'));
      t.equal(at.told.of('d'.repeat(32)).length, 1);
      t.equal(at.told.of(other.traceId).length + at.told.of('e'.repeat(32)).length, 0, 'no others');
    },
  );

  await t.test('what others name in a flood drives out nothing that failed here', async (t) => {
    const at = world({ ratio: 0 });
    const call = begun(at);
    end(
      at,
      begun(at, (each) => (each.traceId = call.traceId)),
      Code.connection_lost,
    );
    await at.clock.advance(1_000);
    for (let i = 0; i < 60; i++) {
      at.spans.keep(Array.from({ length: 1_000 }, () => newTraceId(at.random)));
      await at.clock.advance(1_000);
    }
    end(at, call);
    await at.clock.advance(1_000);
    t.equal(at.told.of(call.traceId).length, 4);
  });

  await t.test('a trace is kept for its time at least, for less only where more come than there is room for, and not for ever', (t) => {
    const kept = new KeptTraces(1_000, 100);
    kept.forget(0);
    t.ok(kept.isEmpty);
    t.ok(kept.add(1, 500));
    t.notOk(kept.add(1, 600));
    kept.forget(1_499);
    t.ok(kept.has(1));
    t.notOk(kept.add(1, 1_499), 'it stays for as long again');
    kept.forget(2_499);
    t.ok(kept.has(1));
    kept.forget(3_499);
    t.notOk(kept.has(1));
    t.ok(kept.isEmpty);
    for (let i = 0; i < 1_000; i++) kept.add(i, 4_000);
    for (let i = 900; i < 1_000; i++) t.ok(kept.has(i));
    t.notOk(kept.has(799));
    t.end();
  });

  await t.test('another sidecar names a trace: what is held is told, for as long as it is held', async (t) => {
    const at = world({ ratio: 0, holdMs: 5_000 });
    const old = end(at, begun(at));
    await at.clock.advance(4_000);
    const held = end(at, begun(at));
    await at.clock.advance(2_000);
    at.spans.keep([held.traceId, old.traceId]);
    await at.clock.advance(1_000);
    t.equal(at.told.of(held.traceId).length, 2);
    t.equal(at.told.of(old.traceId).length, 0);
    at.spans.keep([held.traceId]);
    await at.clock.advance(1_000);
    t.equal(at.told.of(held.traceId).length, 2, 'nothing twice');
    t.strictSame(at.named, [], 'and nothing is named on');
  });

  await t.test('where everything fails there is a bound as well', async (t) => {
    const at = world({ ratio: 0, maxPerSec: 20 });
    for (let i = 0; i < 500; i++) end(at, begun(at), Code.connection_lost);
    await at.clock.advance(900);
    t.equal(new Set(at.told.spans.map(({ trace_id: id }) => id)).size, 20);
    t.equal(at.named.length, 20);
  });

  await t.test('slow is what takes longer than the rest, or than was set', async (t) => {
    const slow = new SlowCalls(0);
    const random = new SeededRandom(9);
    let told = 0;
    for (let i = 0; i < 50_000; i++) if (slow.isSlow('a.b.c', 5 + random.next() * 10)) told++;
    t.ok(told > 200 && told < 1_200, `${told} of 50000, of which 1 % are above the P99`);
    t.ok(slow.isSlow('a.b.c', 100));
    t.notOk(slow.isSlow('d.e.f', 100), 'nothing is known of it yet');
    const fixed = new SlowCalls(1_000);
    t.ok(fixed.isSlow('d.e.f', 1_001));
    t.notOk(fixed.isSlow('d.e.f', 999));
    const at = world({ ratio: 0, slowMs: 50 });
    const call = end(at, begun(at), 0, 60);
    end(at, begun(at), 0, 40);
    await at.clock.advance(1_000);
    t.equal(at.told.spans.length, 2);
    t.equal(at.told.of(call.traceId).length, 2);
  });

  await t.test('what is overwritten before it was looked at is counted', async (t) => {
    const at = world({ heldSpans: 256, maxPerSec: 1e6 });
    for (let i = 0; i < 300; i++) at.spans.callEnded(begun(at), 1);
    await at.clock.advance(1_000);
    t.equal(at.spans.counts.dropped, 44);
    t.equal(at.spans.counts.told, 256);
    t.equal(at.spans.counts.made, 300);
  });
});

t.test('what this sidecar holds of a trace can be asked, told or not', async (t) => {
  const at = world({ ratio: 0 });
  const call = end(at, begun(at));
  end(at, begun(at));
  t.same(
    at.spans.of(call.traceId).map(({ stage: each }) => each),
    ['attempt', 'outbound'],
  );
  t.equal(at.spans.of('f'.repeat(32)).length, 0);
});

t.test('ids come out as they went in', async (t) => {
  const at = world();
  const digits = '0123456789abcdef';
  const ids = Array.from({ length: 16 }, (_, i) => digits.slice(i) + digits.slice(0, i));
  for (const id of ids) at.spans.tell(stage(id + id, 'send', { span_id: id, parent_span_id: id }), true);
  await at.clock.advance(1_000);
  t.same(
    at.told.spans.map(({ trace_id: trace, span_id: span, parent_span_id: parent }) => [trace, span, parent]),
    ids.map((id) => [id + id, id, id]),
  );
  const made = Array.from({ length: 100 }, () => [newTraceId(at.random), newSpanId(at.random)] as const);
  for (const [trace, span] of made) t.ok(/^[0-9a-f]{32}$/.test(trace) && /^[0-9a-f]{16}$/.test(span), `${trace} ${span}`);
  t.equal(new Set(made.flat().join('')).size, 16);
});

t.test('what another one should have told is told later, and only along with the rest', async (t) => {
  const at = world();
  at.spans.retell(stage('a'.repeat(32), 'send'), true);
  at.spans.retell(stage('c'.repeat(32), 'send'), false);
  await at.clock.advance(2_000);
  t.equal(at.told.spans.length, 0);
  await at.clock.advance(2_000);
  t.same(
    at.told.spans.map(({ trace_id: id }) => id),
    ['a'.repeat(32)],
  );
  at.spans.keep(['c'.repeat(32)]);
  await at.clock.advance(1_000);
  t.equal(at.told.spans.length, 2);
});

t.test('a wall clock that is set moves the calls that begin afterwards, and tears none apart', async (t) => {
  let ahead = 0;
  const clock = new VirtualClock();
  const set = Object.assign(Object.create(clock) as VirtualClock, {
    wallMs: () => clock.wallMs() + ahead,
    now: () => clock.now(),
    after: (ms: number, fire: () => void) => clock.after(ms, fire),
  });
  const spans = new Spans(set, new SeededRandom(1), TRACE_DEFAULTS);
  const told = new Told();
  spans.sinks.push(told);
  const at: World = { clock: set, random: new SeededRandom(2), spans, told, named: [] };
  const began = clock.wallMs();
  const call = begun(at);
  const first = new Attempt(candidate, 0);
  Object.assign(first, { code: Code.connection_lost, elapsedMs: 500 });
  call.attempts.push(first);
  await clock.advance(500);
  spans.attemptEnded(call, first);
  await clock.advance(400);
  ahead = -30_000;
  await clock.advance(100);
  end(at, call, 0, 1_000);
  await clock.advance(60_000);
  t.same(
    told.spans.map(({ start_ms: start }) => start - began),
    [0, 1_000, 0],
    'the failed attempt, the one that answered, and the call',
  );
  const later = end(at, begun(at));
  await clock.advance(1_000);
  t.equal(told.of(later.traceId).at(-1)?.start_ms, began + 61_000 - 30_000, 'also where nothing was looked at in between');
  t.equal(spans.wallAt(clock.now()), set.wallMs(), 'and stages of messages');
});

t.test('when it stops, everything that has ended is told, and nothing afterwards', async (t) => {
  const at = world();
  end(at, begun(at));
  at.spans.stop();
  t.equal(at.told.spans.length, 2);
  end(at, begun(at));
  await at.clock.advance(1_000);
  t.equal(at.told.spans.length, 2);
});

class Bus {
  connected = true;
  takes = true;
  readonly sent: { readonly subject: string; readonly data: Buffer }[] = [];
  readonly handlers: ((message: BusMessage) => void)[] = [];
  publish(subject: string, data: Uint8Array): boolean {
    if (this.takes) this.sent.push({ subject, data: Buffer.from(data) });
    return this.takes;
  }
  subscribe(_pattern: string, handler: (message: BusMessage) => void): { close(): void } {
    this.handlers.push(handler);
    return { close: () => undefined };
  }
  batches(): SpanBatch[] {
    return this.sent.map(({ data }) => JSON.parse(data.toString('utf8')) as SpanBatch);
  }
}

t.test('batches to the control plane', async (t) => {
  const make = (settings: Partial<TraceSettings> = {}): World & { readonly bus: Bus; readonly publisher: SpansPublisher } => {
    const at = world({ maxPerSec: 1e6, heldSpans: 20_000, ...settings });
    const bus = new Bus();
    const publisher = new SpansPublisher({
      bus: bus as unknown as ConstructorParameters<typeof SpansPublisher>[0]['bus'],
      subjects: new Subjects('test', 'one'),
      clock: at.clock,
      sidecar: 'one',
      instance: 'i1',
      dropped: () => at.spans.counts.dropped,
      keep: (traces) => at.spans.keep(traces),
      show: (traces) => at.spans.show(traces),
      tellOwed: () => at.spans.tellOwed(),
    });
    at.spans.controlPlane = publisher;
    at.spans.onNamed = (traces) => publisher.name(traces);
    return { ...at, bus, publisher };
  };

  await t.test('leave each second, in order, bounded in number and bytes', async (t) => {
    const at = make();
    for (let i = 0; i < 600; i++) end(at, begun(at));
    await at.clock.advance(1_500);
    const batches = at.bus.batches();
    t.equal(batches.flatMap(({ spans }) => spans).length, 1_200);
    for (const { spans } of batches) t.ok(spans.length <= MAX_SPANS_PER_BATCH);
    for (const { data, subject } of at.bus.sent) {
      t.ok(data.length <= MAX_BATCH_BYTES);
      t.equal(subject, 'ar.test.spans.one');
    }
    t.match(batches[0], { wire: SPANS_WIRE, sidecar: 'one', instance: 'i1', dropped: 0 });
    t.equal(at.publisher.published, 1_200);
  });

  await t.test('what a second has no room for is told in the next ones, as far as it is still held; the rest is counted', async (t) => {
    const at = make({ heldSpans: 2_500 });
    for (let i = 0; i < 3_000; i++) {
      end(at, begun(at));
      if (i % 300 === 0) await at.clock.advance(10);
    }
    await at.clock.advance(500);
    t.ok(at.publisher.published <= 2_048);
    for (let i = 0; i < 30; i++) await at.clock.advance(500);
    const { made, dropped } = at.spans.counts;
    t.equal(made, 6_000);
    t.ok(dropped > 500 && dropped < 2_000, String(dropped));
    t.equal(at.publisher.published + dropped, 6_000);
    const told = at.bus.batches().flatMap(({ spans }) => spans);
    t.equal(new Set(told.map(({ span_id: id }) => id)).size, told.length, 'none twice');
    end(at, begun(at));
    await at.clock.advance(2_000);
    t.equal(at.bus.batches().at(-1)?.dropped, dropped);
    const sent = at.bus.sent.length;
    await at.clock.advance(10_000);
    t.equal(at.bus.sent.length, sent, 'then it is silent');
  });

  await t.test('what ends while NATS is away is told when it is back, and a collector is told at once and only once', async (t) => {
    const at = make();
    const under = begun(at);
    end(at, under);
    await at.clock.advance(600);
    t.equal(at.publisher.published, 0, 'in a batch that is open');
    at.bus.connected = false;
    const lost = end(at, begun(at), Code.connection_lost);
    await at.clock.advance(30_000);
    t.equal(at.bus.sent.length, 0);
    t.equal(at.told.of(lost.traceId).length, 2);
    at.bus.connected = true;
    await at.clock.advance(3_000);
    const told = at.bus.batches().flatMap(({ spans }) => spans ?? []);
    t.same(told.map(({ trace_id: id }) => id).sort(), [under, under, lost, lost].map(({ traceId }) => traceId).sort());
    t.equal(at.told.spans.length, 4);
    t.equal(at.spans.counts.dropped + at.publisher.dropped, 0);
    at.bus.takes = false;
    end(at, begun(at));
    await at.clock.advance(2_000);
    t.equal(at.publisher.dropped, 2, 'what the connection itself refuses is lost, and counted');
  });

  await t.test('asked by the control plane they tell it all that they hold of a trace, told or not, and it alone', async (t) => {
    const at = make({ ratio: 0.5, holdMs: 1_000 });
    const calls: Call[] = [];
    for (let i = 0; i < 20; i++) calls.push(end(at, begun(at)));
    const isToldOf = (call: Call): boolean => at.told.of(call.traceId).length > 0;
    await at.clock.advance(60_000);
    const [told, held] = [calls.find(isToldOf) as Call, calls.find((call) => !isToldOf(call)) as Call];
    const count = at.told.spans.length;
    at.bus.sent.length = 0;
    for (const handler of at.bus.handlers)
      handler({
        subject: new Subjects('test', 'one').keep(CONTROL),
        data: Buffer.from(JSON.stringify({ wire: SPANS_WIRE, traces: [told.traceId, held.traceId] })),
        reply: '',
        header: () => null,
      });
    // What still runs belongs to it.
    const late = end(
      at,
      begun(at, (call) => (call.traceId = held.traceId)),
    );
    await at.clock.advance(2_000);
    const shown = at.bus.batches().flatMap(({ spans }) => spans);
    t.equal(shown.filter(({ trace_id: id }) => id === told.traceId).length, 2, 'what had been told');
    t.equal(shown.filter(({ trace_id: id }) => id === held.traceId).length, 4, 'what had not');
    t.ok(shown.some(({ span_id: id }) => id === late.spanId));
    t.equal(at.told.spans.length, count, 'the collector has it already, or was not to have it');
  });

  await t.test('traces are named, and such as others name are heard; words that are none are not', async (t) => {
    const at = make({ ratio: 0 });
    const call = end(at, begun(at), Code.connection_lost);
    const held = end(at, begun(at));
    await at.clock.advance(500);
    const named = at.bus.sent.find(({ subject }) => subject === 'ar.test.keep.one');
    t.same(JSON.parse(String(named?.data)), { wire: SPANS_WIRE, traces: [call.traceId] });
    const hear = (subject: string, data: string): void => {
      for (const handler of at.bus.handlers) handler({ subject, data: Buffer.from(data), reply: '', header: () => null });
    };
    for (const text of ['', '{', 'null', '{"wire":1,"traces":"x"}', '{"wire":9,"traces":[]}', '{"wire":1,"traces":[1,"zz"]}'])
      hear('ar.test.keep.two', text);
    hear('ar.test.keep.one', JSON.stringify({ wire: SPANS_WIRE, traces: [held.traceId] }));
    await at.clock.advance(1_500);
    t.equal(at.told.of(held.traceId).length, 0, 'its own words say nothing new');
    hear('ar.test.keep.two', JSON.stringify({ wire: SPANS_WIRE, traces: [held.traceId] }));
    await at.clock.advance(1_500);
    t.equal(at.told.of(held.traceId).length, 2);
  });

  await t.test('what is at hand leaves when it stops', async (t) => {
    const at = make();
    end(at, begun(at));
    at.spans.stop();
    at.publisher.close();
    t.equal(at.bus.batches().flatMap(({ spans }) => spans).length, 2);
  });
});
