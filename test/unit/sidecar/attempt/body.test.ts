import fc from 'fast-check';
import t from 'tap';
import { VirtualClock } from '../../../../base/virtual-clock.ts';
import { Code } from '../../../../proto/wire/codes.ts';
import { MeteredBody } from '../../../../sidecar/attempt/body.ts';
import { EndMarker, markerFor, missingIn } from '../../../../sidecar/attempt/end-marker.ts';
import { answered, type BodyEnd, type BodySink, type BodySource } from '../../../../sidecar/call/reply.ts';

class Source implements BodySource {
  sink: BodySink | null = null;
  cancelled: [Code, string] | null = null;
  resumes = 0;
  endsByClose = false;
  pipe(sink: BodySink): void {
    this.sink = sink;
  }
  resume(): void {
    this.resumes++;
  }
  cancel(code: Code, detail: string): void {
    this.cancelled ??= [code, detail];
    this.sink?.cut(code, detail);
  }
}

class Sink implements BodySink {
  text = '';
  takes = true;
  endings: (string | number)[] = [];
  chunk(data: Buffer): boolean {
    this.text += data.toString();
    return this.takes;
  }
  end(): void {
    this.endings.push('end');
  }
  cut(code: Code): void {
    this.endings.push(code);
  }
}

function flowing(marker: EndMarker | null = null, idleMs = 30_000) {
  const clock = new VirtualClock();
  const source = new Source();
  const sink = new Sink();
  const ended: [Code, string, number | null][] = [];
  const times = { startedAt: clock.now(), firstChunkMs: 5_000, idleMs, totalAt: clock.now() + 120_000 };
  const body = new MeteredBody(source, clock, times, marker, { came: () => {}, ended: (...how) => void ended.push(how) });
  body.pipe(sink);
  const push = (text: string): boolean => source.sink?.chunk(Buffer.from(text)) ?? false;
  return { clock, source, sink, ended, body, push };
}

t.test('a stream whose first piece does not come in time is cut off as too slow', async (t) => {
  const { clock, source, sink, ended } = flowing();
  await clock.advance(4_999);
  t.equal(source.cancelled, null);
  await clock.advance(1);
  t.same(source.cancelled, [Code.response_timeout, 'no chunk of the body within 5000 ms']);
  t.same(sink.endings, [Code.response_timeout]);
  t.same(ended, [[Code.response_timeout, 'no chunk of the body within 5000 ms', null]]);
  t.equal(clock.nextAt(), null, 'no timer is left');
});

t.test('silence is noticed when its own time is over, also where a first piece would have had more', async (t) => {
  const { clock, source, sink, push } = flowing(null, 1_000);
  await clock.advance(10);
  push('a');
  await clock.advance(999);
  t.equal(source.cancelled, null);
  await clock.advance(1);
  t.match(source.cancelled, [Code.stream_interrupted, /nothing came for 1000 ms/]);
  t.same(sink.endings, [Code.stream_interrupted]);
  t.equal(clock.nextAt(), null, 'no timer is left');
});

t.test('a piece that comes after the end is nobody’s', async (t) => {
  const { sink, ended, body, push } = flowing();
  push('a');
  body.cancel(Code.cancelled, 'enough');
  push('b');
  t.equal(sink.text, 'a');
  t.same(sink.endings, [Code.cancelled]);
  t.equal(ended.length, 1);
});

t.test('silence between two pieces is cut off as an interruption, and told from a slow start', async (t) => {
  const { clock, source, sink, ended, push } = flowing();
  await clock.advance(4_000);
  push('a');
  await clock.advance(20_000);
  push('b');
  await clock.advance(29_999);
  t.equal(source.cancelled, null, 'every piece begins the silence anew');
  await clock.advance(1);
  t.match(source.cancelled, [Code.stream_interrupted, /nothing came for 30000 ms/]);
  t.same(sink.endings, [Code.stream_interrupted]);
  t.match(ended, [[Code.stream_interrupted, /nothing came/, 4_000]], 'the time to the first piece is what counts as slow or not');
  t.equal(clock.nextAt(), null);
});

t.test('time in which the reader holds the provider back is not silence; the total time goes on', async (t) => {
  const { clock, source, sink, body, push } = flowing();
  sink.takes = false;
  t.equal(push('a'), false);
  await clock.advance(90_000);
  t.equal(source.cancelled, null);
  sink.takes = true;
  body.resume();
  t.equal(source.resumes, 1);
  await clock.advance(29_000);
  t.equal(source.cancelled, null, 'it has its whole time from then on');
  await clock.advance(1_000);
  t.match(source.cancelled, [Code.deadline_exceeded, 'the total time was over before the stream ended']);
  t.same(sink.endings, [Code.deadline_exceeded]);
});

t.test('an end is told once, and nothing after it', async (t) => {
  const { clock, source, sink, ended, body, push } = flowing();
  push('a');
  source.sink?.end();
  body.cancel(Code.cancelled, 'late');
  t.same(ended, [[Code.ok, '', 0]]);
  t.equal(sink.endings[0], 'end');
  t.equal(clock.nextAt(), null);
});

t.test('a stream that ends without its declared end is a cut, however cleanly its connection was closed', async (t) => {
  const without = flowing(new EndMarker('[DONE]', true));
  without.push('data: one\n\n');
  without.source.sink?.end();
  t.match(without.ended, [[Code.stream_interrupted, 'the stream ended without "[DONE]", which ends a whole one', 0]]);
  t.same(without.sink.endings, [Code.stream_interrupted]);
  const withIt = flowing(new EndMarker('[DONE]', true));
  withIt.push('data: one\n\ndata: [DO');
  withIt.push('NE]\n\n');
  withIt.source.sink?.end();
  t.same(withIt.sink.endings, ['end']);
});

t.test('once the last word was said, neither a reset nor silence makes the answer less whole; the caller leaving does', async (t) => {
  const reset = flowing(new EndMarker('done', true));
  reset.push('event: done\ndata: {}\n\n');
  reset.source.sink?.cut(Code.stream_interrupted, 'reset');
  t.same([reset.sink.endings, reset.ended[0]?.[0]], [['end'], Code.ok]);
  const silent = flowing(new EndMarker('done', true));
  silent.push('event: done\ndata: {}\n\n');
  await silent.clock.advance(30_000);
  t.same([silent.sink.endings, silent.ended[0]?.[0]], [['end'], Code.ok]);
  t.not(silent.source.cancelled, null, 'its connection is let go');
  const left = flowing(new EndMarker('done', true));
  left.push('event: done\ndata: {}\n\n');
  left.body.cancel(Code.cancelled, 'gone');
  t.same(left.ended[0]?.[0], Code.cancelled);
});

const seen = (marker: string, isEvents: boolean, ...pieces: string[]): boolean => {
  const watch = new EndMarker(marker, isEvents);
  for (const piece of pieces) watch.watch(Buffer.from(piece));
  return watch.isDone();
};

t.test('the end of a stream of events is the name or the whole data of an event', async (t) => {
  t.ok(seen('[DONE]', true, 'data: [DONE]\n\n'));
  t.ok(seen('[DONE]', true, 'data:[DONE]\r\n\r\n'));
  t.ok(seen('[DONE]', true, 'data: x\r\rdata: [DONE]\r\r'));
  t.ok(seen('[DONE]', true, '\uFEFFdata: [DONE]\n\n'));
  t.ok(seen('[DONE]', true, 'data: x\n\ndata: [DONE]'), 'also without the empty line, or any line end');
  t.ok(seen('message_stop', true, 'event: message_stop\ndata: {"type":"message_stop"}\n\n'));
  t.ok(seen('done', true, 'event: done\n\n: a comment\n\n'));
  t.notOk(seen('[DONE]', true, 'data: not [DONE] yet\n\n'));
  t.notOk(seen('[DONE]', true, 'data: [DONE]\ndata: more\n\n'), 'it is the whole data');
  t.notOk(seen('[DONE]', true, `data: ${'x'.repeat(5_000)}\ndata: [DONE]\n\n`));
  t.notOk(seen('[DONE]', true, ': [DONE]\n\nid: [DONE]\n\n'));
  t.notOk(seen('done', true, 'event: done-not\ndata: x\n\n'));
  t.notOk(seen('x', true));
});

t.test('the end of lines is the line, or the type, the event or the truth of a JSON line, and only of the last one', async (t) => {
  t.ok(seen('[DONE]', false, '{"a":1}\n[DONE]\n'));
  t.ok(seen('end', false, '{"type":"end"}\n\n'));
  t.ok(seen('end', false, '{"event":"end","n":3}'));
  t.ok(seen('done', false, '{"done":false}\n{"done":true,"total":8}\n'));
  t.notOk(seen('end', false, '{"type":"end"}\n{"type":"more"}\n'));
  t.notOk(seen('end', false, '{"type":"end"'));
  t.notOk(seen('end', false, `{"pad":"${'x'.repeat(9_000)}","type":"end"}\n`), 'a line that is too long to be looked at is none');
});

t.test('however the body is cut, its end is found', async (t) => {
  const line = fc.constantFrom('data: a', 'data: [DONE]', 'event: tick', '', ': c', 'data');
  fc.assert(
    fc.property(
      fc.array(line, { maxLength: 12 }),
      fc.constantFrom('\n', '\r', '\r\n'),
      fc.array(fc.nat(200), { maxLength: 20 }),
      (lines, end, at) => {
        const text = lines.map((one) => one + end).join('');
        const cuts = [...new Set(at.map((place) => place % (text.length + 1)))].sort((a, b) => a - b);
        const pieces = [0, ...cuts].map((from, i) => text.slice(from, cuts[i] ?? text.length));
        t.equal(seen('[DONE]', true, ...pieces), seen('[DONE]', true, text));
      },
    ),
    { numRuns: 300 },
  );
});

t.test('what is watched for, and in what', async (t) => {
  const of = (type: string | undefined, declared: string | null, endsByClose: boolean) =>
    markerFor(type === undefined ? {} : { 'content-type': type }, declared, endsByClose)?.text ?? null;
  t.equal(of('text/event-stream', null, false), null, 'chunks tell the end by themselves');
  t.equal(of('text/event-stream; charset=utf-8', 'bye', false), 'bye');
  t.equal(of('text/event-stream', null, true), '[DONE]', 'where nothing else tells the end, the usual marker does');
  t.equal(of('application/x-ndjson', 'bye', true), 'bye');
  t.equal(of('application/octet-stream', 'bye', true), null, 'other bodies have no events');
  t.equal(of(undefined, 'bye', true), null);
});

t.test('a body that came whole is held against the same words', async (t) => {
  const missing = (type: string, body: string, end: BodyEnd, declared: string | null): string => {
    const reply = answered(200, { 'content-type': type }, Buffer.from(body));
    reply.end = end;
    return missingIn(reply, declared);
  };
  t.equal(missing('application/x-ndjson', '{"a":1}\n', 'told', null), '');
  t.equal(missing('application/x-ndjson', '{"a":1}\nbye\n', 'told', 'bye'), '');
  t.equal(missing('application/x-ndjson', '{"a":1}\n', 'told', 'bye'), 'the answer ended without "bye", which ends a whole one');
  t.match(
    missing('text/event-stream', 'data: 1\n\n', 'by_close', null),
    /^the answer is not known to be whole: .*"\[DONE\]" did not come$/,
  );
  t.equal(missing('text/event-stream', 'data: [DONE]\n\n', 'by_close', null), '');
  t.equal(missing('application/json', '{"a":1}', 'by_close', 'bye'), '', 'other bodies have no last word');
});
