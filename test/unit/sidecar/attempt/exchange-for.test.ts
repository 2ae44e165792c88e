import t from 'tap';
import { SeededRandom } from '../../../../base/random.ts';
import { VirtualClock } from '../../../../base/virtual-clock.ts';
import { Header } from '../../../../proto/wire/headers.ts';
import { readTraceContext } from '../../../../proto/wire/trace-context.ts';
import { exchangeFor } from '../../../../sidecar/attempt/exchange-for.ts';
import { Attempt } from '../../../../sidecar/call/attempt-record.ts';
import { Call, NO_HEADERS } from '../../../../sidecar/call/call.ts';
import { Principal } from '../../../../sidecar/call/principal.ts';
import { NO_BODY } from '../../../../sidecar/call/reply.ts';
import { Spans } from '../../../../sidecar/observe/spans.ts';
import type { Candidate } from '../../../../sidecar/table/snapshot.ts';
import { TRACE_DEFAULTS } from '../../../../sidecar/traces-config.ts';

const TRACE = '4bf92f3577b34da6a3ce929d0e0e4736';
const PARENT = '00f067aa0ba902b7';
const candidate = reachedBy('self');

function reachedBy(reach: 'self' | 'mesh'): Candidate {
  return { provider: { agentId: 'crm.order.a1', reach }, settings: { limits: { responseBytes: 1_000 } } } as unknown as Candidate;
}

/** What the provider is sent for a call that came with these flags. Null = the sidecar makes no spans. */
function sent(flags: string, ratio: number | null): string {
  const clock = new VirtualClock();
  const random = new SeededRandom(3);
  const call = new Call('http', 'crm.order.query', NO_HEADERS, NO_BODY, '', false, clock);
  readTraceContext(call, `00-${TRACE}-${PARENT}-${flags}`, undefined, random);
  if (ratio !== null) new Spans(clock, random, { ...TRACE_DEFAULTS, ratio }).begin(call);
  call.principal = new Principal('shop.chat.1');
  const made = new Attempt(candidate, 0);
  made.spanId = '1111111111111111';
  const { own } = exchangeFor(call, candidate, made, 1_000, 0, clock.now(), '');
  return own[own.indexOf(Header.traceparent) + 1] as string;
}

function ownOf(headers: Readonly<Record<string, string>>, to: Candidate = candidate): readonly string[] {
  const call = new Call('http', 'crm.order.query', headers, NO_BODY, '', false, new VirtualClock());
  call.principal = new Principal('shop.chat.1');
  return exchangeFor(call, to, new Attempt(to, 0), 1_000, 0, 0, '').own;
}

t.test('that nothing is to be tried again is told to the hosting sidecar, and to no agent', (t) => {
  const hosted = reachedBy('mesh');
  const own = ownOf({ 'reach-retry': 'none' }, hosted);
  t.equal(own[own.indexOf(Header.retry) + 1], 'none');
  t.notOk(ownOf({}, hosted).includes(Header.retry));
  t.notOk(ownOf({ 'reach-retry': 'none' }).includes(Header.retry));
  t.end();
});

t.test('the budgets of a task go on to the agent for the calls that it makes; the step is that of this call', (t) => {
  const own = ownOf({ 'reach-budget': 'one=1000, two=2000', 'reach-step': 'one' });
  t.equal(own[own.indexOf(Header.budget) + 1], 'one=1000, two=2000');
  t.notOk(own.includes(Header.step));
  t.notOk(ownOf({}).includes(Header.budget));
  t.end();
});

t.test('traceparent says of the trace what came, and that it is told only where it was picked', async (t) => {
  const rows: readonly (readonly [came: string, ratio: number | null, leaves: string])[] = [
    ['00', 1, '00'],
    ['01', 1, '01'],
    ['02', 1, '02'],
    ['03', 1, '03'],
    ['00', 0, '00'],
    ['01', 0, '00'],
    ['02', 0, '02'],
    ['03', 0, '02'],
    ['03', null, '03'],
    ['02', null, '02'],
    ['ff', 1, '03'],
  ];
  for (const [came, ratio, leaves] of rows) t.equal(sent(came, ratio), `00-${TRACE}-1111111111111111-${leaves}`, `${came}, ratio ${ratio}`);
});
