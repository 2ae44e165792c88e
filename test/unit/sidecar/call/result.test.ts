import t from 'tap';
import { VirtualClock } from '../../../../base/virtual-clock.ts';
import type { Code } from '../../../../proto/wire/codes.ts';
import { bodyKind, dataOf, isWholeJson, jsonProblem } from '../../../../sidecar/call/answer-body.ts';
import { Attempt, type Started } from '../../../../sidecar/call/attempt-record.ts';
import { Call, NO_HEADERS } from '../../../../sidecar/call/call.ts';
import { answered, failed, NO_BODY } from '../../../../sidecar/call/reply.ts';
import {
  detailOf,
  envelope,
  failureStatus,
  type JsonBytes,
  MAX_DETAIL_CHARS,
  plainProblem,
  problem,
  resultOf,
  streamEnd,
} from '../../../../sidecar/call/result.ts';
import { refusing, Verdict } from '../../../../sidecar/call/verdict.ts';
import { Health } from '../../../../sidecar/health/health.ts';
import { candidateOf } from '../../../support/front.ts';

const clock = new VirtualClock();
const candidate = candidateOf(new Health(clock, { consecutive: 3, forMs: 1_000 }));
const TRACE = 'a'.repeat(32);

function callWith(more: (call: Call) => void): Call {
  const call = new Call('http', 'crm.order.query', NO_HEADERS, NO_BODY, '', false, clock);
  call.traceId = TRACE;
  more(call);
  return call;
}

function attempted(call: Call, code: Code, started: Started, status = 0, detail = ''): void {
  const attempt = new Attempt(candidate, 0.12345, call.execution);
  attempt.code = code;
  attempt.started = started;
  attempt.status = status;
  attempt.detail = detail;
  call.attempts.push(attempt);
}

function served(body: string | Buffer, contentType: string | null, code: Code = 0, status = 200): Call {
  return callWith((call) => {
    attempted(call, code, 'done', status);
    call.chosen = candidate;
    call.reply = answered(
      status,
      contentType === null ? {} : { 'content-type': contentType },
      typeof body === 'string' ? Buffer.from(body) : body,
    );
    call.status = status;
    call.code = code;
  });
}

/** As a receiver reads it. */
function received(bytes: JsonBytes): string {
  return Buffer.from(bytes as string, 'latin1').toString('utf8');
}

/** The `data` of the answer as text, byte by byte. */
function dataText(call: Call): string {
  const text = received(envelope(resultOf(call, true), false));
  const from = text.indexOf('"data":') + 7;
  return text.slice(from, text.indexOf(',"error":null'));
}

t.test('JSON is spliced byte by byte', async (t) => {
  for (const text of [
    '9007199254740993',
    '1e400',
    '-0',
    '1.0',
    '0.1000',
    '{"a":1,"a":2}',
    '[ 1,\n2 ]',
    '"\\u2028"',
    'null',
    ' true ',
    `{"n":${'9'.repeat(400)}}`,
    '{"__proto__":{"admin":true}}',
  ])
    for (const type of ['application/json', 'Application/JSON; charset=utf-8', 'application/vnd.x+json', null])
      t.equal(dataText(served(text, type)), text, `${text.slice(0, 30)} as ${type}`);
  t.equal(dataText(served('\ufeff{"a":1}', 'application/json')), '{"a":1}', 'a byte order mark is no part of it');
  t.notOk('admin' in {}, 'nothing leaks into prototypes');
});

t.test('what says it is JSON and is not is a bad answer', async (t) => {
  for (const body of [
    '{"ok":true}x',
    '{"ok":true}{"ok":true}',
    '{"a":',
    "{'a':1}",
    'NaN',
    '[1,]',
    '\u0000',
    Buffer.from([0x22, 0xff, 0x22]),
  ]) {
    const result = resultOf(served(body, 'application/json'), true);
    t.match(result, { entry: { code: 1004, http: 502 }, detail: /not well formed/, ambiguous: false });
    t.equal(failureStatus(result), 502);
    t.equal((JSON.parse(received(problem(result, false))) as { data: unknown }).data, null);
  }
  const encoded = served('{}', 'application/json');
  encoded.reply = answered(200, { 'content-type': 'application/json', 'content-encoding': 'gzip' }, Buffer.from('{}'));
  t.match(resultOf(encoded, true), { entry: { code: 1004 }, detail: /gzip/ });
});

t.test('text is a string, other bytes are base64, nothing is null', async (t) => {
  t.equal(dataText(served('a "quoted"\nline', 'text/plain')), '"a \\"quoted\\"\\nline"');
  t.equal(dataText(served('{"a":1}\n{"b":2}', 'application/x-ndjson')), '"{\\"a\\":1}\\n{\\"b\\":2}"');
  t.equal(dataText(served('<a/>', 'image/svg+xml')), '"<a/>"');
  t.equal(dataText(served('not json', null)), '"not json"', 'without a type, text is text');
  t.equal(dataText(served(Buffer.from([0xe4]), 'text/plain; charset=iso-8859-1')), '"ä"');
  t.equal(dataText(served(Buffer.from([0xff, 0xfe]), 'text/plain')), '{"base64":"//4=","content_type":"text/plain"}');
  t.equal(
    dataText(served(Buffer.from([0xff]), 'text/plain; charset=nonsense')),
    '{"base64":"/w==","content_type":"text/plain; charset=nonsense"}',
  );
  t.equal(dataText(served(Buffer.from([1, 2]), 'image/png')), '{"base64":"AQI=","content_type":"image/png"}');
  t.equal(dataText(served(Buffer.from([0xff]), null)), '{"base64":"/w==","content_type":""}');
  t.equal(dataText(served('', 'application/json')), 'null');
  t.equal(dataText(served('', null, 0, 204)), 'null');
});

t.test('large answers and words in any script come through whole', async (t) => {
  const large = JSON.stringify({ text: 'ü💡'.repeat(50_000) });
  t.equal(dataText(served(large, 'application/json')), large);
  const call = served('"ü💡"', 'application/json');
  call.cause = '1003 日本';
  const bytes = envelope(resultOf(call, true), false);
  t.match(JSON.parse(received(bytes)), { data: 'ü💡', cause: '1003 日本' });
  t.equal(bytes.length, Buffer.byteLength(received(bytes)), 'length is in bytes');
});

t.test('a body that was checked already is not looked at again', async (t) => {
  const call = served('{"not": checked}', 'application/json');
  call.outputChecked = true;
  t.equal(dataText(call), '{"not": checked}');
  t.ok(isWholeJson(Buffer.from('[]')));
  t.equal(jsonProblem(Buffer.from('{"a":[1]}')), null);
  t.match(jsonProblem(Buffer.from('{"a":[1}')), /not well formed/);
  const deep = Buffer.from(`${'['.repeat(257)}${']'.repeat(257)}`);
  t.match(jsonProblem(deep), /more than 256 levels/, 'its caller parses the Result that it would stand in');
  t.match(dataOf({ 'content-type': 'application/json' }, deep, false), /levels/);
  t.notOk(isWholeJson(Buffer.from('[] []')));
  t.equal(dataOf({}, NO_BODY, true), null);
  for (let i = 0; i < 1_000; i++) bodyKind(`application/x-${i}`);
  t.equal(bodyKind('application/json'), 'json', 'a flood of types changes nothing');
});

t.test("the agent's own error is passed on whatever it is", async (t) => {
  for (const [body, type, data] of [
    ['{"e":1}', 'application/json', { e: 1 }],
    ['oops', 'application/json', 'oops'],
    ['<html>', 'text/html', '<html>'],
    ['', null, null],
  ] as const) {
    const result = resultOf(served(body, type, 6001, 503), true);
    t.match(JSON.parse(received(problem(result, false))), { code: 6001, status: 503, data, provider: 'crm.order.a' });
  }
  t.equal(failureStatus(resultOf(served('x', null, 6001, 399), true)), 500, "no other status than an error's");
});

t.test('other failures carry no data', async (t) => {
  const result = resultOf(served('{"secret":1}', 'application/json', 4004), true);
  t.match(JSON.parse(received(problem(result, false))), { code: 4004, data: null });
});

t.test('ambiguous is an attempt that started and has no whole answer', async (t) => {
  const mark = (code: Code, started: Started, execution: Call['execution']): object => {
    const call = callWith((call) => {
      call.execution = execution;
      attempted(call, code, started);
      call.code = code;
    });
    const { ambiguous, retryable } = resultOf(call, true);
    return { ambiguous, retryable };
  };
  t.same(mark(5001, 'started', 'once'), { ambiguous: true, retryable: false }, 'timed out, may have been carried out');
  t.same(mark(5001, 'not_started', 'once'), { ambiguous: false, retryable: false });
  t.same(mark(1002, 'started', 'once'), { ambiguous: true, retryable: false });
  t.same(mark(1002, 'started', 'idempotent'), { ambiguous: true, retryable: true });
  t.same(mark(1002, 'started', 'keyed'), { ambiguous: true, retryable: true });
  t.same(mark(1001, 'not_started', 'once'), { ambiguous: false, retryable: true });
  t.same(mark(4004, 'done', 'once'), { ambiguous: false, retryable: false });
  const two = callWith((call) => {
    attempted(call, 1002, 'started');
    attempted(call, 1001, 'not_started');
    call.code = 1001;
  });
  t.ok(resultOf(two, true).ambiguous, 'an earlier attempt counts too');
  t.same(mark(1004, 'done', 'once'), { ambiguous: false, retryable: false }, 'it was done, and nobody can use the answer');
  t.same(mark(1004, 'done', 'idempotent'), { ambiguous: false, retryable: true });
  const stoodIn = callWith((call) => {
    attempted(call, 1003, 'started');
    call.execution = 'idempotent';
    attempted(call, 1003, 'started');
    call.code = 1003;
  });
  t.match(resultOf(stoodIn, true), { ambiguous: true, retryable: false }, 'what stands in says nothing of the work that was asked for');
});

t.test('the words are those of whoever refused it', async (t) => {
  const reason = refusing('limits', 'caller_busy', 3002, '{a} is busy');
  const refused = callWith((call) => {
    call.refusal = new Verdict(reason, 'shop.chat.1');
    call.code = 3002;
  });
  t.equal(detailOf(refused), 'shop.chat.1 is busy');
  const attemptFailed = callWith((call) => {
    call.reply = failed(1001, 'not_started', 'nobody listens at 10.0.0.1:1');
    call.code = 1001;
  });
  t.equal(detailOf(attemptFailed), 'nobody listens at 10.0.0.1:1');
  const onlyAttempt = callWith((call) => {
    attempted(call, 1003, 'started', 0, 'no answer within 5 ms');
    call.code = 1003;
  });
  t.equal(detailOf(onlyAttempt), 'no answer within 5 ms');
  const long = callWith((call) => {
    call.reply = failed(1004, 'started', 'x'.repeat(1_000_000));
    call.code = 1004;
  });
  t.equal(detailOf(long).length, MAX_DETAIL_CHARS);
  const nasty = callWith((call) => {
    call.reply = failed(1004, 'started', 'a\n\u001b[31m\u2028"\\');
    call.code = 1004;
  });
  const body = received(problem(resultOf(nasty, true), false));
  t.notOk(
    body.split('').some((c) => c < ' '),
    'control characters are escaped',
  );
  t.equal((JSON.parse(body) as { detail: string }).detail, 'a\n\u001b[31m\u2028"\\');
});

t.test('a fallback shows whose failure led to it and who was tried', async (t) => {
  const call = served('{"ok":1}', 'application/json');
  call.fallbackFrom = candidate.version.capability;
  call.degraded = true;
  call.cause = '1003 no answer';
  t.match(JSON.parse(received(envelope(resultOf(call, true), false))), {
    degraded: true,
    cause: '1003 no answer',
    attempts: [{ capability: 'crm.order.query', provider: 'crm.order.a', at_ms: 0.123 }],
  });
  call.staticBody = Buffer.from('"sorry"');
  t.match(JSON.parse(received(envelope(resultOf(call, true), false))), { data: 'sorry', provider: null, version: null });
});

t.test('every form is one JSON text with the same fields', async (t) => {
  const good = served('{}', 'application/json');
  t.same(Object.keys(JSON.parse(received(envelope(resultOf(good, true), true))) as object), [
    'code',
    'status',
    'data',
    'error',
    'elapsed_ms',
    'definitely_success',
    'degraded',
    'provider',
    'version',
    'attempts',
    'trace_id',
    'capability',
    'decision',
  ]);
  const bad = served('{}', 'application/json', 4004);
  bad.retryAfterMs = 10.2;
  const shown = JSON.parse(received(problem(resultOf(bad, true), true))) as Record<string, unknown>;
  for (const key of [
    'type',
    'title',
    'status',
    'detail',
    'instance',
    'code',
    'name',
    'retryable',
    'ambiguous',
    'retry_after_ms',
    'data',
    'error',
    'elapsed_ms',
    'definitely_success',
    'degraded',
    'provider',
    'version',
    'attempts',
    'trace_id',
    'capability',
    'decision',
  ])
    t.ok(key in shown, key);
  t.equal(shown['retry_after_ms'], 11);
  for (const call of [good, bad]) {
    const end = streamEnd(resultOf(call, false));
    t.notOk(end.includes('\n'));
    t.match(JSON.parse(end), { code: call.code, trace_id: TRACE });
  }
  t.match(JSON.parse(plainProblem(4003, 404, 'a "b"\n')), { status: 404, detail: 'a "b"\n', error: { code: 4003 } });
});
