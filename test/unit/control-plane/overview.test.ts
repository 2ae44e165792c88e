/** The overview: what is wrong comes first and in sentences, every replica answers, and it costs next to nothing. */
import t, { type Test } from 'tap';
import { VirtualClock } from '../../../base/virtual-clock.ts';
import type { Bus } from '../../../base/nats.ts';
import { breakerProblems } from '../../../control-plane/overview/agent-problems.ts';
import {
  capabilityProblems,
  capabilityRows,
  type CapabilityRow,
  LATELY,
  rowsWorstFirst,
  unknownNames,
} from '../../../control-plane/overview/capability-rows.ts';
import { breakersOf, type BreakerState, breakerStates } from '../../../control-plane/overview/breakers.ts';
import { Overview } from '../../../control-plane/overview/overview.ts';
import type { OverviewAnswer, ProblemView } from '../../../control-plane/overview/overview-shapes.ts';
import { percent, type Problem, problem, worstFirst } from '../../../control-plane/overview/problem.ts';
import { QueueLook } from '../../../control-plane/overview/queue-facts.ts';
import type { ProviderView } from '../../../control-plane/registry/views.ts';
import type { TopologyAnswer } from '../../../control-plane/api/overview.ts';
import type { CapabilityViewAnswer } from '../../../control-plane/api/capability-view.ts';
import { topicOf } from '../../../control-plane/api/live.ts';
import type { BreakerMove } from '../../../control-plane/traffic/breaker-book.ts';
import { Traffic } from '../../../control-plane/traffic/traffic.ts';
import { KEPT_STREAM, Subjects, Tail } from '../../../proto/wire/subjects.ts';
import { provider } from '../../support/alert-world.ts';
import { FakeSidecar, Plane } from '../../support/control-plane.ts';
import { type CallsOf, digestOf } from '../../support/digests.ts';
import { NatsServer } from '../../support/nats.ts';
import { waitUntil } from '../../support/settle.ts';

t.setTimeout(60_000);

const ORDER = 'crm.order.query';
const NOTE = 'crm.note.write';
const TRACE = 'a'.repeat(32);

let nats: NatsServer;
let plane: Plane;
let follower: Plane;
let sidecar: FakeSidecar;

t.before(async () => {
  nats = await NatsServer.start(t);
  plane = await Plane.start(t, nats);
  await plane.leads();
  follower = await Plane.start(t, nats, 'cp-2');
  await follower.follows();
  sidecar = await FakeSidecar.join(nats, 'order-a', {
    'crm.order.a': [`${ORDER}@2.0.0`],
    'crm.order.b': [`${ORDER}@2.1.0`],
    'crm.note.a': [`${NOTE}@1.0.0`],
  });
  await sidecar.hello();
});

/** Not a second old: made anew. */
async function overview(of: Plane = plane, limit = 100): Promise<OverviewAnswer> {
  const queue = { facts: () => Promise.resolve({ tasks: 0, dead: 0, inDoubt: 0, review: 0 }) };
  return JSON.parse(await new Overview(of.control, queue).text(limit)) as OverviewAnswer;
}

const found = ({ problems }: OverviewAnswer, kind: string): ProblemView | undefined => problems.find((each) => each.kind === kind);

t.test('nothing wrong is nothing said, and every capability has its line', async (t) => {
  sidecar.report({ appliedSeq: Number.MAX_SAFE_INTEGER });
  await waitUntil('the report is heard', () => plane.control.fleet.report('order-a') !== null);
  const { problems, totals, capabilities } = await overview();
  t.same(
    // A server as old as Debian's is something to be said.
    problems.filter(({ severity, words }) => severity !== 'info' && !/^nats-server [\d.]+ is below/.test(words)),
    [],
  );
  t.match(totals, { agents: 3, agents_offline: 0, capabilities: 2, sidecars: { current: 1, missing: 0 } });
  t.same(capabilities.map(({ capability }) => capability).sort(), [NOTE, ORDER]);
  t.equal(capabilities[0]?.spark.length, 30);
});

t.test('a capability that fails stands first: how much, with what, at whom, and a call to look at', async (t) => {
  for (const of of [plane, follower])
    of.control.traffic.take(
      digestOf('front', [
        { capability: ORDER, provider: 'crm.order.a', calls: 30 },
        { capability: ORDER, version: '2.1.0', provider: 'crm.order.b', calls: 10, failed: { 6001: 9 }, ms: 80, trace: TRACE },
        { capability: NOTE, version: '1.0.0', provider: 'crm.note.a', calls: 50 },
      ]),
    );
  for (const of of [plane, follower]) {
    const answer = await overview(of);
    t.match(
      answer.problems[0],
      { severity: 'critical', kind: 'failing', capability: ORDER, agent: 'crm.order.b', trace_id: TRACE },
      `at ${of.control.name}: ${JSON.stringify(answer.problems[0])}`,
    );
    t.equal(
      answer.problems[0]?.words,
      `9 of 40 calls of ${ORDER} failed in the last 3 minutes (23 %), all with 6001 provider_error; at crm.order.b (version 2.1.0) 9 of 10 attempts failed, the other agent fares better`,
    );
    t.match(answer.capabilities[0], { capability: ORDER, error_share: 9 / 40, providers: 2, offline: 0 }, 'its line is the first too');
    t.ok(answer.totals.calls_per_s > 0);
  }
});

t.test('what callers or operators have brought on themselves is told, and is no fault of who serves', async (t) => {
  plane.control.traffic.take(digestOf('front', [{ capability: NOTE, version: '1.0.0', provider: '', calls: 40, failed: { 2006: 40 } }]));
  const refused = found(await overview(), 'refused');
  t.match(refused, { severity: 'info', capability: NOTE });
  t.match(refused?.words, /^40 of 90 calls of crm\.note\.write were refused .* all with 2006 blocked_by_operator: no fault/);
});

t.test('an open breaker says who is left; one of which nothing is heard any more is not shown', async (t) => {
  const move = { provider: 'crm.order.b', capability: ORDER, to: 'open', why: '50 % of 20 calls failed' } as const;
  plane.control.traffic.take(digestOf('order-a', [], [move]));
  const breaker = found(await overview(), 'breaker');
  t.match(breaker, { severity: 'warning', capability: ORDER, agent: 'crm.order.b', sidecar: 'order-a' });
  t.equal(
    breaker?.words,
    'The breaker of crm.order.b for crm.order.query is open at order-a (50 % of 20 calls failed): 1 other agent serves it',
  );
  plane.control.traffic.take(digestOf('order-a', [], [{ ...move, provider: 'crm.order.a' }]));
  t.match(found(await overview(), 'breaker'), { severity: 'critical', words: /nobody else is left/ });
  plane.control.traffic.take(
    digestOf(
      'order-a',
      [],
      [
        { ...move, to: 'closed' },
        { ...move, to: 'closed', provider: 'crm.order.a' },
      ],
    ),
  );
  t.equal(found(await overview(), 'breaker'), undefined);
  const at = (to: BreakerMove['to'], atMs: number, host = 'x'): BreakerMove => ({
    ...move,
    to,
    atMs,
    sidecar: host,
    instance: `${host}-1`,
  });
  t.match(
    breakerStates([at('open', 0), at('half_open', 5, 'y')], () => true),
    [{ state: 'open', sidecars: ['x', 'y'], openAt: ['x'] }],
    'the worst of all sidecars',
  );
  t.same(
    breakerStates([at('open', 0), at('open', 0, 'y')], ({ sidecar: host }) => host === 'y'),
    [{ ...(breakerStates([at('open', 0, 'y')], () => true)[0] as BreakerState) }],
    'its sidecar is gone',
  );
  t.match(
    breakerStates(
      [at('open', 5), at('closed', 8), at('open', 10), at('half_open', 40), { ...at('open', 41), from: 'half_open' }],
      () => true,
    ),
    [{ state: 'open', atMs: 41, sinceMs: 10 }],
    'a probe that fails is the same outage',
  );
  t.match(
    breakerStates([at('open', 5), { ...at('open', 50), from: 'closed' }], () => true),
    [{ sinceMs: 50 }],
    'its end in between was not heard',
  );
});

interface Told {
  readonly rows: readonly CapabilityRow[];
  readonly problems: readonly Problem[];
  words(kind: string): string[];
}

const A = provider('crm.order.a', { offers: [`${ORDER}@2.0.0`] });
const B = provider('crm.order.b', { offers: [`${ORDER}@2.1.0`] });
const DRAINED = { drain: null, weight: null } as const;

/** What is said of some calls and breakers, of a fleet that is made up. */
function told(
  providers: readonly ProviderView[],
  calls: readonly CallsOf[],
  open: Readonly<Record<string, readonly string[]>> = {},
  later: (traffic: Traffic) => void = () => {},
): Told {
  const clock = new VirtualClock();
  const traffic = new Traffic(clock);
  traffic.take(digestOf('front', calls));
  for (const [host, agents] of Object.entries(open))
    traffic.take(
      digestOf(
        host,
        [],
        agents.map((agent) => ({ provider: agent, capability: ORDER, from: 'closed', to: 'open', why: '' })),
      ),
    );
  later(traffic);
  const breakers = breakersOf(traffic, clock.now());
  const rows = rowsWorstFirst(capabilityRows(traffic, providers, breakers));
  const problems = [
    ...capabilityProblems(rows, traffic.providers(LATELY)),
    ...unknownNames(traffic),
    ...breakerProblems(breakers, rows, 0),
  ];
  return { rows, problems, words: (kind) => problems.filter((each) => each.kind === kind).map(({ words }) => words) };
}

t.test('the code that is named is one of those that are counted', (t) => {
  const call = (failed: Record<number, number>): CallsOf => ({ capability: ORDER, provider: 'crm.order.a', calls: 100, failed });
  t.match(told([A], [call({ 6001: 46, 6002: 6, 2006: 48 })]).words('failing'), [/^52 of 100 calls .*\(52 %\), most with 6001 /]);
  t.match(told([A], [call({ 6001: 6, 3004: 40 })]).words('failing'), [/^6 of 100 calls .*\(6 %\), all with 6001 /], 'not the callers’ own');
  t.match(
    told([A], [call({ 6001: 3, 6002: 2, 6003: 2 })]).words('failing'),
    [/^7 of 100 calls .*, 3 with 6001 /],
    'less than half is not most',
  );
  t.match(told([A], [call({ 6001: 2, 2006: 5 })]).words('refused'), [/^5 of 100 calls .*, all with 2006 /], 'nor the faults');
  t.end();
});

t.test('an agent is blamed when it fails clearly more often, not when it has most of the calls', (t) => {
  const calls = (agent: string, version: string, count: number, failures: number): CallsOf => ({
    capability: ORDER,
    version,
    provider: agent,
    calls: count,
    failed: { 6001: failures },
  });
  const blame = (...some: CallsOf[]): Problem | undefined => told([A, B], some).problems.find(({ kind }) => kind === 'failing');
  const even = blame(calls('crm.order.a', '2.0.0', 90, 45), calls('crm.order.b', '2.1.0', 10, 5));
  t.match(even, { agent: null });
  t.notMatch(even?.words, /better|attempts/);
  t.match(blame(calls('crm.order.a', '2.0.0', 90, 45), calls('crm.order.b', '2.1.0', 1, 0)), { agent: null }, 'one call proves nothing');
  t.match(blame(calls('crm.order.a', '2.0.0', 40, 20), calls('crm.order.b', '2.1.0', 60, 1)), {
    agent: 'crm.order.a',
    words: /at crm\.order\.a \(version 2\.0\.0\) 20 of 40 attempts failed, the other agent fares better$/,
  });
  t.match(
    blame(calls('crm.order.a', '2.0.0', 40, 20), calls('crm.order.a', '2.2.0', 40, 18), calls('crm.order.b', '2.1.0', 60, 1)),
    { agent: 'crm.order.a', words: /at crm\.order\.a 38 of 80 attempts failed/ },
    'all its versions together',
  );
  t.match(
    blame(calls('crm.order.a', '2.0.0', 40, 0), calls('crm.order.a', '2.2.0', 40, 18)),
    { agent: 'crm.order.a', words: /at crm\.order\.a \(version 2\.2\.0\) 18 of 40 attempts failed$/ },
    'the only one, by its version',
  );
  t.end();
});

t.test('who is left is counted at each sidecar, without those who are drained', (t) => {
  const all = [{ capability: ORDER, provider: 'crm.order.a', calls: 10 }];
  const each = told([A, B], all, { s1: ['crm.order.a'], s2: ['crm.order.b'] });
  t.match(
    each.problems.filter(({ kind }) => kind === 'breaker'),
    [
      { severity: 'warning', sidecar: 's1', words: /at s1: 1 other agent serves it$/ },
      { severity: 'warning', sidecar: 's2', words: /at s2: 1 other agent serves it$/ },
    ],
    'each sidecar still has somebody',
  );
  const one = told([A, B], all, { s1: ['crm.order.a', 'crm.order.b'], s2: ['crm.order.b'] });
  t.match(
    one.problems.filter(({ kind }) => kind === 'breaker'),
    [
      { severity: 'critical', agent: 'crm.order.a', sidecar: 's1', words: /at s1: nobody else is left to serve it there$/ },
      { severity: 'critical', agent: 'crm.order.b', sidecar: 's1', words: /at 2 sidecars: nobody else is left to serve it at s1$/ },
    ],
  );
  const drained = told([A, { ...B, operator: { ...DRAINED, drain: true } }], all, { s1: ['crm.order.a'] });
  t.match(drained.problems, [{ severity: 'critical', words: /nobody else is left/ }], 'nobody is sent to who is drained');
  const gone = (traffic: Traffic): void => {
    traffic.take({ ...digestOf('s1', []), instance: 's1-2' });
  };
  t.strictSame(told([A], all, { s1: ['crm.order.a'] }, gone).words('breaker'), [], 'another process of the sidecar has closed ones');
  t.end();
});

t.test('a capability that is called and that nobody serves is told, whatever the reason', (t) => {
  const failed = [{ capability: ORDER, provider: '', version: '', calls: 20, failed: { 2003: 20 } }];
  const critical = (words: RegExp): readonly object[] => [{ severity: 'critical', kind: 'no_provider', capability: ORDER, words }];
  const nobody = (...providers: ProviderView[]): readonly Problem[] =>
    told(providers, failed).problems.filter(({ kind }) => kind === 'no_provider');
  t.match(nobody({ ...A, drain: true }), critical(/its only agent \(crm\.order\.a\) is drained, and it is being called$/));
  t.match(nobody({ ...A, drain: true }, { ...B, operator: { ...DRAINED, drain: true } }), critical(/all 2 of its agents .* are drained,/));
  t.match(nobody({ ...A, drain: true }, { ...B, status: 'offline' }), critical(/cannot be reached or are drained,/));
  t.match(nobody(), critical(/^Nobody serves crm\.order\.query: no agent that does is registered, and it is being called$/));
  t.strictSame(nobody(A), []);
  t.strictSame(
    told([], [{ capability: ORDER, provider: 'crm.order.a', calls: 20 }]).problems,
    [],
    'somebody served it a moment ago, registered or not',
  );
  t.equal(told([{ ...A, drain: true }], failed).rows[0]?.online, 1, 'who is drained is not offline');
  t.end();
});

t.test('calls of names that nobody has are one warning, by whom, and no capability', (t) => {
  const { rows, problems } = told(
    [A],
    [
      { caller: 'crm.front.x', capability: 'unknown', version: '', provider: '', calls: 10, failed: { 2001: 10 } },
      { caller: 'crm.front.y', capability: 'unknown', version: '', provider: '', calls: 38, failed: { 2001: 38 } },
      { caller: 'unknown', capability: 'unknown', version: '', provider: '', calls: 2, failed: { 2001: 2 } },
      { caller: 'other', capability: 'other', version: '', provider: 'other', calls: 5, failed: { 6001: 5 } },
    ],
  );
  t.strictSame(
    rows.map(({ capability }) => capability),
    [ORDER],
  );
  t.match(problems, [
    {
      severity: 'warning',
      kind: 'unknown_name',
      capability: null,
      agent: null,
      words: '50 calls asked for names that nobody has in the last 3 minutes, by crm.front.y, crm.front.x, callers nobody knows',
    },
  ]);
  t.end();
});

t.test('what waits is never hours old, and a count that failed is counted again', async (t) => {
  const clock = new VirtualClock();
  const subjects = new Subjects('t');
  let waits = 3;
  let isFailing = true;
  const bus = {
    connected: true,
    stream: (name: string) => Promise.resolve({ messages: name === KEPT_STREAM ? 2 : waits, firstSeq: 1, lastSeq: 2 }),
    subjects: (_: string, pattern: string) =>
      Promise.resolve(isFailing && pattern.includes('review') ? { failed: 'timeout' } : new Map([[pattern, 1]])),
  } as unknown as Pick<Bus, 'connected' | 'stream' | 'subjects'>;
  const look = new QueueLook(bus, subjects, clock);
  t.same(await look.facts(), { tasks: 3, dead: 1, inDoubt: 1, review: null });
  isFailing = false;
  waits = 900;
  await clock.advance(3_600_000);
  t.same(await look.facts(), { tasks: 900, dead: 1, inDoubt: 1, review: 1 }, 'as it is now, whenever it was asked last');
  waits = 901;
  await clock.advance(3_000);
  t.match(await look.facts(), { tasks: 900 }, 'some seconds are no matter: nobody waits for them');
});

t.test('agents that are gone, sidecars that are silent or refuse, orders and where they are not in force', async (t) => {
  const gone = await FakeSidecar.join(nats, 'gone', { 'crm.gone.a': ['crm.gone.do@1.0.0'] });
  await gone.hello();
  await gone.leave('crm.gone.a');
  sidecar.report({ refused: [{ tail: 'rules', seq: 3, why: 'it knows no such action' }] });
  await waitUntil('the refusal is heard', () => (plane.control.fleet.report('order-a')?.refused.length ?? 0) > 0);
  const set = await plane.ask('/v1/overrides', {
    json: { target: { capability: ORDER }, reason: 'too many <b>errors</b>', wait: '0s', for: '5m' },
  });
  t.equal(set.status, 201);
  const answer = await overview();
  t.match(found(answer, 'no_provider'), { severity: 'warning', capability: 'crm.gone.do', words: /^Nobody serves crm\.gone\.do/ });
  t.equal(found(answer, 'agent_offline'), undefined, 'who has said goodbye is no fault');
  t.match(found(answer, 'push_refused'), { sidecar: 'order-a', words: /refuses what was pushed \(rules\): it knows no such action/ });
  t.match(found(answer, 'sidecar_missing'), { sidecar: 'gone', words: /never reported/ });
  const missing = found(answer, 'override_missing');
  t.match(missing, { severity: 'critical', capability: ORDER });
  t.match(
    missing?.words,
    /block of capability crm\.order\.query, by ada \(too many <b>errors<\/b>\), until .*, in force on 0 of 2: not at/,
  );
  await plane.ask(`/v1/overrides/${String(set.body['id'])}`, { method: 'DELETE' });
});

t.test('a follower says what it cannot know, and shows no nought for it', async (t) => {
  const answer = await overview(follower);
  t.match(answer, { leads: false, replica: 'cp-2', totals: { messages: { parked: null } } });
  t.ok(answer.unknown.some((words) => /does not lead/.test(words)));
  const { body } = await follower.ask('/v1/overview?limit=1');
  t.equal((body['capabilities'] as unknown[]).length, 1);
  t.match(body['totals'], { messages: { waiting: 0, dead: 0, in_doubt: 0, review: 0 } }, 'what NATS counts it knows');
  t.equal((await follower.ask('/v1/overview?limit=0')).status, 400);
});

t.test('who calls whom, with circles, of one capability or agent', async (t) => {
  plane.control.traffic.take(
    digestOf('front', [
      { caller: 'a.a.1', capability: 'b.b.b', provider: 'b.b.1', calls: 5 },
      { caller: 'b.b.1', capability: 'a.a.a', provider: 'a.a.1', calls: 4 },
    ]),
  );
  const all = (await plane.ask('/v1/topology?window=5m')).body as unknown as TopologyAnswer;
  t.ok(
    all.cycles.some((cycle) => cycle.join() === 'a.a.1,b.b.1'),
    JSON.stringify(all.cycles),
  );
  t.equal(all.cut, false);
  t.ok(
    all.edges.some(
      ({ capability, provider, examples }) => capability === ORDER && provider === 'crm.order.b' && examples[0]?.trace_id === TRACE,
    ),
  );
  const one = (await plane.ask(`/v1/topology?capability=${ORDER}&limit=1`)).body as unknown as TopologyAnswer;
  t.match(one, { cut: true, edges: [{ capability: ORDER, calls: 30 }] });
  const near = (await plane.ask('/v1/topology?agent=b.b.1')).body as unknown as TopologyAnswer;
  t.equal(near.edges.length, 2);
  for (const window of ['0s', '30s', '3h', 'x']) t.equal((await plane.ask(`/v1/topology?window=${window}`)).status, 400, window);
});

t.test('a capability whole: providers with breaker and figures, limits, quotas, failures', async (t) => {
  plane.control.traffic.take(
    digestOf('order-a', [], [{ provider: 'crm.order.b', capability: ORDER, to: 'half_open', why: 'tries again' }]),
  );
  await plane.ask('/v1/quotas/capability/crm.order.*', { method: 'PUT', json: { calls_per_sec: 100 } });
  const { status, body } = await plane.ask(`/v1/capabilities/${ORDER}/view`);
  t.equal(status, 200);
  const view = body as unknown as CapabilityViewAnswer;
  t.match(view, {
    capability: ORDER,
    online: 2,
    lately: { calls: 40, codes: [{ code: 6001, name: 'provider_error', count: 9 }] },
    quotas: [{ target: 'crm.order.*', calls_per_sec: 100 }],
    failures: [{ trace_id: TRACE, code: 6001, provider: 'crm.order.b', caller: 'crm.front.x' }],
  });
  t.match(
    view.provider_list.find(({ agent }) => agent === 'crm.order.b'),
    { versions: ['2.1.0'], breaker: { state: 'half_open', sidecars: ['order-a'], why: 'tries again' }, attempts: 10, failures: 9 },
  );
  t.match(view.provider_list.find(({ agent }) => agent === 'crm.order.a')?.breaker, { state: 'closed', since_ms: null });
  t.equal(view.minutes.length, 60);
  t.equal(view.callers.length, 2);
  const near = await plane.ask('/v1/capabilities/crm.order.qeury/view');
  t.equal(near.status, 404);
  t.match(near.body['detail'], /did you mean crm\.order\.query/);
});

t.test('a page is told which topics have changed, once a second at most', async (t) => {
  const response = await fetch(`${plane.url}/v1/live`, {
    headers: { authorization: `Bearer ${(await import('../../support/control-plane.ts')).VIEWER}` },
  });
  const reader = (response.body as ReadableStream<Uint8Array>).getReader();
  t.teardown(() => reader.cancel());
  let heard = '';
  const listening = (async () => {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      heard += Buffer.from(value).toString('utf8');
    }
  })();
  await waitUntil('it says hello', () => heard.includes('event: hello'));
  const begun = Date.now();
  for (let i = 0; i < 20; i++) plane.control.traffic.take(digestOf('front', [{ capability: NOTE, provider: 'crm.note.a', calls: 1 }]));
  await sidecar.hello();
  await waitUntil('traffic has changed', () => /"topics":\[[^\]]*"traffic"/.test(heard), 5_000);
  const events = heard.split('event: changed').length - 1;
  t.ok(events <= 1 + Math.ceil((Date.now() - begun) / 1_000), `${events} events`);
  t.equal(topicOf(Tail.alerts), 'alerts');
  t.equal(topicOf(Tail.policies), 'policies');
  t.equal(topicOf(Tail.capability(ORDER)), 'registry');
  t.equal(topicOf(Tail.scope('x')), null);
  void listening;
});

t.test('problems have one order, worst first, and words that are no nought', (t) => {
  const order = worstFirst([
    problem('info', 'override', 'c', 9),
    problem('critical', 'held', 'b', 1),
    problem('critical', 'failing', 'a', 5),
    problem('warning', 'kept', 'd', 1),
  ]);
  t.same(
    order.map(({ words }) => words),
    ['a', 'b', 'd', 'c'],
  );
  t.same([0, 0.0001, 0.004, 0.125, 1].map(percent), ['0 %', '0.1 %', '0.4 %', '13 %', '100 %']);
  t.end();
});

t.test('an overview of 300 agents and 1,000 capabilities costs some milliseconds', async (t: Test) => {
  const sidecars = await Promise.all(
    Array.from({ length: 10 }, async (_, s) => {
      const offers: Record<string, string[]> = {};
      for (let a = 0; a < 30; a++)
        offers[`big.agent.s${s}a${a}`] = Array.from(
          { length: 4 },
          (__, c) => `big.thing${(s * 30 + a) * 4 + c > 999 ? c : (s * 30 + a) * 4 + c}.do@1.0.0`,
        );
      const one = await FakeSidecar.join(nats, `big-${s}`, offers);
      await one.hello();
      one.report({ appliedSeq: Number.MAX_SAFE_INTEGER });
      return one;
    }),
  );
  t.equal(sidecars.length, 10);
  for (let minute = 0; minute < 3; minute++)
    for (let s = 0; s < 10; s++)
      plane.control.traffic.take(
        digestOf(
          `big-${s}`,
          Array.from({ length: 100 }, (_, c) => ({
            capability: `big.thing${s * 100 + c}.do`,
            version: '1.0.0',
            provider: `big.agent.s${s}a${c % 30}`,
            calls: 10 + c,
            ms: 5 + c,
          })),
        ),
      );
  const isAllThere = ({ totals }: OverviewAnswer): boolean => totals.agents >= 300 && totals.capabilities >= 1_000;
  await waitUntil('all are known', async () => isAllThere(await overview()), 20_000, 100);
  for (let i = 0; i < 5; i++) await overview();
  const before = process.cpuUsage();
  const times = 10;
  for (let i = 0; i < times; i++) await overview(plane, 2_000);
  const { user, system } = process.cpuUsage(before);
  const ms = (user + system) / 1_000 / times;
  t.comment(`${ms.toFixed(1)} ms of CPU each`);
  t.ok(ms < 60, `${ms.toFixed(1)} ms of CPU each`);
  const [one, two] = await Promise.all([plane.ask('/v1/overview'), plane.ask('/v1/overview')]);
  t.equal(one.body['at_ms'], two.body['at_ms'], 'for a second it is one and the same for everybody');
});
