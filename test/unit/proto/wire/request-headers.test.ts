import t from 'tap';
import { SeededRandom } from '../../../../base/random.ts';
import { allowanceFrom, MAX_STEPS, parseBudgets, stepAllowance } from '../../../../proto/wire/budget.ts';
import { parseDeadlineMs } from '../../../../proto/wire/deadline.ts';
import { formatTraceparent, newSpanId, newTraceId, readTraceContext, type TraceFields } from '../../../../proto/wire/trace-context.ts';

const TRACE = '4bf92f3577b34da6a3ce929d0e0e4736';
const SPAN = '00f067aa0ba902b7';

function read(traceparent: string | string[] | undefined, tracestate?: string | string[]): TraceFields {
  const fields: TraceFields = { traceId: 'x', parentSpanId: 'x', traceFlags: 9, traceState: 'x' };
  readTraceContext(fields, traceparent, tracestate, new SeededRandom(1));
  return fields;
}

t.test('a well-formed traceparent is taken over with its state', async (t) => {
  t.same(read(`00-${TRACE}-${SPAN}-01`, 'a=1,b=2'), { traceId: TRACE, parentSpanId: SPAN, traceFlags: 1, traceState: 'a=1,b=2' });
  t.equal(read(`00-${TRACE}-${SPAN}-00`).traceFlags, 0, 'not sampled stays not sampled');
  t.equal(read(`00-${TRACE}-${SPAN}-ff`).traceFlags, 3, 'only the defined flags are kept');
  t.equal(
    read('00-12345678901234567890123456789012-1234567890123456-01').traceId,
    '12345678901234567890123456789012',
    'all digits are hex digits too',
  );
});

t.test('a later version gives its ids, whatever follows them', async (t) => {
  t.equal(read(`cc-${TRACE}-${SPAN}-01`).traceId, TRACE);
  t.equal(read(`cc-${TRACE}-${SPAN}-01-what-the-future-brings`).traceId, TRACE);
  t.not(read(`cc-${TRACE}-${SPAN}-01.x`).traceId, TRACE, 'what follows must be set off by a dash');
});

t.test('anything malformed starts a new trace and drops the state', async (t) => {
  const bad: Record<string, string | string[] | undefined> = {
    absent: undefined,
    empty: '',
    'version ff': `ff-${TRACE}-${SPAN}-01`,
    'version ff with more': `ff-${TRACE}-${SPAN}-01-x`,
    'zero trace id': `00-${'0'.repeat(32)}-${SPAN}-01`,
    'zero span id': `00-${TRACE}-${'0'.repeat(16)}-01`,
    'upper case': `00-${TRACE.toUpperCase()}-${SPAN}-01`,
    'upper case in a later version': `cc-${TRACE.toUpperCase()}-${SPAN}-01`,
    'trailing on version 00': `00-${TRACE}-${SPAN}-01-x`,
    'trailing space on version 00': `00-${TRACE}-${SPAN}-01 `,
    'two headers, joined': `00-${TRACE}-${SPAN}-01, 00-${TRACE}-${SPAN}-01`,
    'two headers of a later version, joined': `cc-${TRACE}-${SPAN}-01-x, cc-${TRACE}-${SPAN}-01-x`,
    'two headers, as a list': [`00-${TRACE}-${SPAN}-01`, `00-${TRACE}-${SPAN}-01`],
    'bad flags': `00-${TRACE}-${SPAN}-0x`,
    'no dashes': `00.${TRACE}.${SPAN}.01`,
    'too short': `00-${TRACE}-${SPAN}-1`,
  };
  for (const [what, value] of Object.entries(bad)) {
    const fields = read(value, 'a=1');
    t.match(fields.traceId, /^[0-9a-f]{32}$/, what);
    t.not(fields.traceId, TRACE, what);
    t.equal(fields.parentSpanId, '', what);
    t.equal(fields.traceFlags, 1, what);
    t.equal(fields.traceState, '', what);
  }
});

t.test('a tracestate out of bounds is dropped and the trace goes on', async (t) => {
  const parent = `00-${TRACE}-${SPAN}-01`;
  const members = (n: number): string => Array.from({ length: n }, (_, i) => `k${i}=v`).join(',');
  t.equal(read(parent, members(32)).traceState, members(32));
  t.equal(read(parent, ['a=1', 'b=2']).traceState, 'a=1,b=2', 'several headers are one list');
  for (const state of [members(33), `a=${'x'.repeat(5_000)}`, 'a=\u0001', 'a=\u007f', 'a=ü', 'a=\n']) {
    const fields = read(parent, state);
    t.equal(fields.traceState, '');
    t.equal(fields.traceId, TRACE);
  }
});

t.test('ids are fresh, of the right length, and never zero', async (t) => {
  const random = new SeededRandom(3);
  const seen = new Set<string>();
  for (let i = 0; i < 1_000; i++) {
    const trace = newTraceId(random);
    const span = newSpanId(random);
    t.ok(/^[0-9a-f]{32}$/.test(trace) && /^[0-9a-f]{16}$/.test(span));
    seen.add(trace);
    seen.add(span);
  }
  t.equal(seen.size, 2_000);
  const nothing = { next: () => 0 };
  t.equal(newTraceId(nothing), `${'0'.repeat(31)}1`);
  t.equal(newSpanId(nothing), `${'0'.repeat(15)}1`);
  t.equal(formatTraceparent(TRACE, SPAN, 1), `00-${TRACE}-${SPAN}-01`);
  t.equal(formatTraceparent(TRACE, SPAN, 0xfc), `00-${TRACE}-${SPAN}-00`, 'undefined flags are not sent');
});

t.test('a deadline is whole milliseconds that remain', async (t) => {
  const parse = (value: string | string[] | undefined): number | null | string => parseDeadlineMs('Reach-Deadline-Ms', value, 3_600_000);
  t.equal(parse(undefined), null, 'absent is not zero');
  t.equal(parse('500'), 500);
  t.equal(parse(' 500 '), 500, 'space around a field value does not count');
  t.equal(parse('0500'), 500);
  t.equal(parse('0'), 0, 'over already');
  t.equal(parse('-1'), 0, 'over already');
  t.equal(parse('-99999999999999999999'), 0, 'over already');
  t.equal(parse('3600000'), 3_600_000, 'the maximum itself is taken');
  for (const bad of [
    '',
    ' ',
    'abc',
    '1e3',
    '12.5',
    '+5',
    '-',
    '--1',
    '-abc',
    '0x10',
    '١٢',
    '5 0',
    'NaN',
    'Infinity',
    '2026-01-01T00:00:00Z',
    'Thu, 01 Jan 1970 00:00:00 GMT',
  ])
    t.type(parse(bad), 'string', `${JSON.stringify(bad)} is refused`);
  t.match(parse('99999999999999999999'), /above the maximum of 3600000 ms/);
  t.match(parse('3600001'), /above the maximum/);
  t.match(parse('2147483648'), /above the maximum/, 'beyond one platform timer');
  t.match(parse('1700000000000'), /above the maximum/, 'an absolute time in milliseconds is not trusted');
  t.match(parse('100, 9000'), /more than once/);
  t.match(parse(['100', '9000']), /2 times/);
  t.ok((parse('x'.repeat(100_000)) as string).length < 200, 'the refusal is short');
});

t.test('a step may use what remains minus the budgets of later steps', async (t) => {
  const text = 'intent=1500, sentiment=1000, order=2500, knowledge=3000, generation=2000';
  const budgets = parseBudgets(text, 3_600_000);
  if (typeof budgets === 'string') throw new Error(budgets);
  t.equal(budgets.length, 5);
  t.equal(stepAllowance(budgets, 'intent', 10_000), 1_500);
  t.equal(stepAllowance(budgets, 'sentiment', 9_900), 2_400, 'time saved early is there later');
  t.equal(stepAllowance(budgets, 'generation', 1_200), 1_200, 'the last step has all that is left');
  t.equal(stepAllowance(budgets, 'order', 4_000), 0, 'a late step does not eat what the rest needs');
  t.match(stepAllowance(budgets, 'nobody', 4_000), /"nobody" is not among the steps.*intent, sentiment/);
});

t.test('malformed budgets are refused in words', async (t) => {
  for (const bad of [
    '',
    'intent',
    'intent=',
    '=5',
    'intent=-1',
    'intent=1.5',
    'intent=1e3',
    'a b=5',
    'intent=5,',
    'intent=5;order=6',
    'intent=1500ms',
    '__proto__=x',
    'é=5',
  ])
    t.type(parseBudgets(bad, 3_600_000), 'string', JSON.stringify(bad));
  t.match(parseBudgets('a=1, a=2', 3_600_000), /the step a twice/);
  t.match(parseBudgets('a=4000000', 3_600_000), /above the maximum/);
  t.match(parseBudgets(Array.from({ length: MAX_STEPS + 1 }, (_, i) => `s${i}=1`).join(','), 3_600_000), /65 steps, 64/);
  t.same(parseBudgets('constructor=5', 3_600_000), [{ step: 'constructor', ms: 5 }], 'a step may have any name');
});

t.test('the two budget headers together decide', async (t) => {
  const max = 3_600_000;
  t.equal(allowanceFrom(undefined, undefined, 500, max), null);
  t.equal(allowanceFrom('a=100, b=200', undefined, 500, max), null, 'budgets without a step are only carried along');
  t.equal(allowanceFrom('a=100, b=200', 'a', 500, max), 300);
  t.equal(allowanceFrom('a=100, b=200', ' b ', 500, max), 500);
  t.match(allowanceFrom(undefined, 'a', 500, max), /without Reach-Budget/);
  t.match(allowanceFrom('a=1', 'c', 500, max), /not among/);
  t.match(allowanceFrom(['a=1', 'b=2'], 'a', 500, max), /given once/);
  t.match(allowanceFrom('nonsense', undefined, 500, max), /must read like/);
});
