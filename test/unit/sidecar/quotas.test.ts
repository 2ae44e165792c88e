import t from 'tap';
import { SeededRandom } from '../../../base/random.ts';
import { VirtualClock } from '../../../base/virtual-clock.ts';
import type { Quota } from '../../../proto/wire/quotas.ts';
import { timeBucket } from '../../../proto/wire/shifts.ts';
import { pushQuota } from '../../../sidecar/accept/rate-headers.ts';
import { rpcAnswer } from '../../../sidecar/accept/rpc-answer.ts';
import { failureTrailers, successTrailers } from '../../../sidecar/accept/grpc-status.ts';
import { Attempt } from '../../../sidecar/call/attempt-record.ts';
import { Call, NO_HEADERS, type WayIn } from '../../../sidecar/call/call.ts';
import { Principal } from '../../../sidecar/call/principal.ts';
import { resultOf } from '../../../sidecar/call/result.ts';
import { readScenario } from '../../../sidecar/lab/read-scenario.ts';
import { World } from '../../../sidecar/lab/world.ts';
import { ShiftCounts } from '../../../sidecar/observe/shift-counts.ts';
import { explain } from '../../../sidecar/explain.ts';
import { outbound } from '../../../sidecar/pipeline.ts';
import { Bucket } from '../../../sidecar/quotas/bucket.ts';
import { FairBucket, MAX_PARTS } from '../../../sidecar/quotas/fair-bucket.ts';
import { QuotaSet } from '../../../sidecar/quotas/quota-set.ts';
import { Quotas } from '../../../sidecar/quotas/quotas.ts';
import { Rates } from '../../../sidecar/send/rate.ts';

function quota(kind: Quota['kind'], target: string, limits: Partial<Quota> = {}): Quota {
  return {
    kind,
    target,
    calls: null,
    messages: null,
    inFlight: null,
    reason: 'a test',
    author: 'ada',
    atMs: 0,
    expiresAtMs: null,
    ...limits,
  };
}

const rate = (perSec: number, burst = perSec) => ({ perSec, burst });

t.test('a bucket', async (t) => {
  t.test('lets its burst through at once and then its rate, exactly', async (t) => {
    const bucket = new Bucket(100, 100, 0);
    let taken = 0;
    for (let now = 0; now < 10_000; now++) if (bucket.take(now)) taken++;
    t.ok(taken >= 1_098 && taken <= 1_100, `${taken} of 10 s at 100/s with a burst of 100`);
  });
  t.test('keeps what is in it when its rate changes: nothing is forgiven and nothing is given', async (t) => {
    const bucket = new Bucket(100, 100, 0);
    for (let i = 0; i < 100; i++) bucket.take(0);
    t.equal(bucket.take(0), false);
    bucket.change(1_000, 1_000, 50);
    t.equal(Math.round(bucket.tokens), 5, 'the 50 ms before count at the old rate');
    bucket.fill(150);
    t.equal(Math.round(bucket.tokens), 105, 'and the 100 ms after at the new one');
    bucket.change(10, 10, 150);
    t.equal(bucket.tokens, 10, 'a smaller one holds no more than it can');
  });
  t.test('says when one can be taken and when it is full', async (t) => {
    const bucket = new Bucket(10, 5, 0);
    for (let i = 0; i < 5; i++) bucket.take(0);
    t.equal(bucket.waitMs(0), 100);
    t.equal(bucket.resetMs(0), 500);
    t.equal(bucket.waitMs(100), 0);
  });
});

t.test('a bucket that callers share', async (t) => {
  /** Each caller asks at its rate, evenly; how many of each are let through. */
  function run(perSec: number, burst: number, asks: Readonly<Record<string, number>>, seconds: number): Record<string, number> {
    const bucket = new FairBucket(perSec, burst, 0);
    const got: Record<string, number> = {};
    const events: { at: number; who: string }[] = [];
    for (const [who, each] of Object.entries(asks)) {
      got[who] = 0;
      for (let i = 0; i < each * seconds; i++) events.push({ at: ((i + 0.5) * 1_000) / each, who });
    }
    events.sort((a, b) => a.at - b.at);
    for (const { at, who } of events) if (bucket.take(who, at)) got[who] = (got[who] as number) + 1;
    return got;
  }
  t.test('a greedy caller takes nothing from those who stay below their equal share', async (t) => {
    const got = run(100, 20, { greedy: 10_000, polite: 40, modest: 5 }, 20);
    t.ok((got['polite'] as number) >= 0.99 * 40 * 20, `polite got ${got['polite']} of 800`);
    t.ok((got['modest'] as number) >= 0.99 * 5 * 20, `modest got ${got['modest']} of 100`);
    const all = Object.values(got).reduce((sum, one) => sum + one, 0);
    t.ok(all <= 100 * 20 + 20, `${all} is no more than one bucket of this rate lets through`);
    t.ok(all >= 100 * 20 - 5, `${all}: and nothing is left unused while somebody wants it`);
  });
  t.test('two greedy ones get the same', async (t) => {
    const got = run(100, 10, { one: 5_000, other: 1_000 }, 10);
    t.ok(Math.abs((got['one'] as number) - (got['other'] as number)) < 30, `${got['one']} and ${got['other']}`);
  });
  t.test('somebody who calls once in a while, longer apart than a second, gets through all the same', async (t) => {
    const got = run(50, 10, { greedy: 5_000, rare: 0.5 }, 40);
    t.equal(got['rare'], 20);
    t.ok((got['greedy'] as number) + 20 <= 50 * 40 + 10);
  });
  t.test('a burst smaller than the number of callers shuts nobody out', async (t) => {
    const got = run(40, 1, { one: 1_000, two: 1_000, polite: 5 }, 10);
    t.ok((got['polite'] as number) >= 49, `${got['polite']} of 50`);
    t.ok((got['one'] as number) >= 140 && (got['two'] as number) >= 140, JSON.stringify(got));
  });
  t.test('alone a caller gets everything, and the burst at once', async (t) => {
    const bucket = new FairBucket(10, 50, 0);
    let taken = 0;
    while (bucket.take('one', 0)) taken++;
    t.equal(taken, 50);
    t.equal(Math.round(bucket.waitMs('one', 0)), 100);
  });
  t.test('the time before a change counts at the rate that held then', async (t) => {
    const bucket = new FairBucket(1, 1_000, 0);
    while (bucket.take('one', 0));
    bucket.change(1_000, 1_000, 900);
    t.equal(Math.round(bucket.tokens * 10), 9);
    let taken = 0;
    while (bucket.take('one', 901)) taken++;
    t.equal(taken, 1, 'not the 900 of the new rate');
  });
  t.test('never lets more through than its rate and burst, whoever comes and goes', async (t) => {
    const random = new SeededRandom(7);
    for (let round = 0; round < 20; round++) {
      const perSec = 1 + Math.floor(random.next() * 500);
      const burst = 1 + Math.floor(random.next() * 100);
      const bucket = new FairBucket(perSec, burst, 0);
      let now = 0;
      let taken = 0;
      for (let i = 0; i < 5_000; i++) {
        now += random.next() * 5;
        if (bucket.take(`agent-${Math.floor(random.next() * (random.next() < 0.5 ? 3 : 600))}`, now)) taken++;
      }
      const most = Math.max(burst, bucket.callers) + (perSec * now) / 1_000;
      t.ok(taken <= most + 1 + 1e-6, `${taken} ≤ ${most} + 1`);
      t.ok(bucket.callers <= MAX_PARTS + 1, 'and remembers so many at most');
    }
  });
  t.test('tells who asked for how much, once', async (t) => {
    const bucket = new FairBucket(10, 10, 0);
    for (let i = 0; i < 30; i++) bucket.take('greedy', i);
    bucket.take('polite', 31);
    t.same(bucket.demand(), [30, 1]);
    t.same(bucket.demand(), []);
  });
});

t.test('of several quotas the most exact counts, for each limit by itself', async (t) => {
  const set = new QuotaSet(
    [
      quota('agent', '*.*.*', { calls: rate(10), messages: rate(5), inFlight: 50 }),
      quota('agent', 'sales.*.*', { calls: rate(100) }),
      quota('agent', 'sales.bot.7', { messages: rate(1_000) }),
      quota('agent', '*.bot.*', { calls: rate(70) }),
    ],
    new Map(),
  );
  const of = (agent: string) => [
    set.calls('agent', agent)?.value.perSec,
    set.messages(agent)?.value.perSec,
    set.inFlight('agent', agent)?.value,
  ];
  t.same(of('sales.bot.7'), [100, 1_000, 50]);
  t.same(of('sales.desk.1'), [100, 5, 50]);
  t.same(of('crm.bot.1'), [70, 5, 50]);
  t.same(of('crm.desk.1'), [10, 5, 50]);
  t.equal(set.calls('capability', 'crm.order.query'), null);
});

const TABLE = `
contracts:
  - {name: crm.order.query, version: 2.0.0, description: x, acl: public, execution: idempotent}
  - {name: crm.order.lookup, version: 1.0.0, description: x, acl: public, execution: idempotent, fallback: [{capability: crm.order.query}]}
providers:
  - {agent_id: crm.order.1, offers: [crm.order.query@2.0.0, crm.order.lookup@1.0.0]}
  - {agent_id: crm.order.2, offers: [crm.order.query@2.0.0]}
mocks:
  crm.order.1: {latency: 5ms}
  crm.order.2: {latency: 5ms}
`;

function lab(): World {
  const reading = readScenario(`scenario: quotas\nas: web.desk.1\n${TABLE}\nsteps: [{wait: 0s}]\n`, 'table.yaml');
  if ('problems' in reading) throw new Error(reading.problems.map((each) => each.message).join('\n'));
  return new World(reading.scenario);
}

function callOf(world: World, asked = 'crm.order.query', as = 'web.desk.1'): Call {
  const call = new Call('sandbox', asked, NO_HEADERS, Buffer.from('{}'), 'application/json', false, world.clock);
  call.principal = new Principal(as);
  call.traceId = '0af7651916cd43dd8448eb211c80319c';
  return call;
}

async function go(world: World, call: Call): Promise<Call> {
  let isOver = false;
  void outbound(world.engine, call).then(() => (isOver = true));
  await world.clock.advance(0);
  for (let next = world.clock.nextAt(); !isOver && next !== null; next = world.clock.nextAt()) await world.clock.advanceTo(next);
  return call;
}

t.test('the quota of an agent', async (t) => {
  t.test('refuses above its rate with 3004, the time to wait and a word in the trace; nothing was started', async (t) => {
    const world = lab();
    world.engine.quotas.replace([quota('agent', 'web.*.*', { calls: rate(10, 3) })]);
    for (let i = 0; i < 3; i++) t.equal((await go(world, callOf(world))).code, 0);
    const before = world.clock.now();
    const call = await go(world, callOf(world));
    t.equal(call.code, 3004);
    t.same(call.attempts, []);
    t.ok(call.retryAfterMs > 0 && call.retryAfterMs <= 100, `${call.retryAfterMs} ms`);
    t.equal(world.clock.now(), before, 'it did not wait');
    const result = resultOf(call, true);
    t.match({ ambiguous: result.ambiguous, retryable: result.retryable }, { ambiguous: false, retryable: true });
    t.match(call.trace.lines().at(-1), {
      stage: 'quotas',
      reason: 'agent_rate',
      code: 3004,
      words: /quota agent:web\.\*\.\*: 10 calls a second, 3 at once/,
    });
    await world.clock.advance(call.retryAfterMs);
    t.equal((await go(world, callOf(world))).code, 0, 'after that time one is let through');
    t.same(world.engine.quotas.hits(), { 'agent:web.*.*': { taken: 4, refused: 1 } });
  });
  t.test('each agent that a pattern covers has its own; others have none', async (t) => {
    const world = lab();
    world.engine.quotas.replace([quota('agent', 'web.*.*', { calls: rate(1, 1) })]);
    t.equal((await go(world, callOf(world))).code, 0);
    t.equal((await go(world, callOf(world, 'crm.order.query', 'web.desk.2'))).code, 0);
    t.equal((await go(world, callOf(world))).code, 3004);
    const other = await go(world, callOf(world, 'crm.order.query', 'crm.desk.1'));
    t.equal(other.code, 0);
    t.equal(other.quota, null);
    t.notOk(other.trace.lines().some(({ stage }) => stage === 'quotas'));
  });
  t.test('calls in flight are counted and given back, however they end', async (t) => {
    const world = lab();
    world.engine.quotas.replace([quota('agent', 'web.desk.1', { inFlight: 2 })]);
    const first = callOf(world);
    const running = [outbound(world.engine, first), outbound(world.engine, callOf(world))];
    const third = callOf(world);
    await outbound(world.engine, third);
    t.match([third.code, third.refusal?.reason.name], [3004, 'agent_in_flight']);
    await world.clock.advance(10);
    await Promise.all(running);
    t.equal((await go(world, callOf(world))).code, 0);
    const gone = callOf(world);
    const leaving = outbound(world.engine, gone);
    gone.cancel();
    await world.clock.advance(10);
    await leaving;
    const again = [outbound(world.engine, callOf(world)), outbound(world.engine, callOf(world))];
    await world.clock.advance(10);
    await Promise.all(again);
    t.equal((await go(world, callOf(world))).code, 0, 'nothing is left behind');
  });
  t.test('a change holds from the next call on, keeps what was used, and one that ends falls away by itself', async (t) => {
    const world = lab();
    const { quotas } = world.engine;
    quotas.replace([quota('agent', 'web.desk.1', { calls: rate(100) })]);
    const take = async (count: number): Promise<number> => {
      let taken = 0;
      for (let i = 0; i < count; i++) {
        const call = callOf(world);
        const verdict = quotas.agent(call);
        if (verdict?.reason.passes === true) {
          taken++;
          call.quota?.release();
        }
      }
      return taken;
    };
    t.equal(await take(150), 100);
    quotas.replace([quota('agent', 'web.desk.1', { calls: rate(1_000), expiresAtMs: world.clock.wallMs() + 60_000 })]);
    t.equal(await take(10), 0, 'no burst is given with it');
    await world.clock.advance(100);
    t.equal(await take(1_000), 100, 'a tenth of a second at 1000/s');
    await world.clock.advance(60_000);
    t.equal(quotas.isOn, false, 'it is over');
    t.equal((await go(world, callOf(world))).quota, null);
  });
  t.test('is told with every answer, in the words of each way in', async (t) => {
    const world = lab();
    world.engine.quotas.replace([quota('agent', 'web.desk.1', { calls: rate(1, 2) })]);
    const good = await go(world, callOf(world));
    const head: string[] = [];
    pushQuota(head, good);
    t.same(head, ['ratelimit-limit', '2', 'ratelimit-remaining', '1', 'ratelimit-reset', '1']);
    t.match(successTrailers(good), { 'grpc-status': '0', 'ratelimit-limit': '2', 'ratelimit-remaining': '1' });
    t.match(JSON.parse(rpcAnswer('1', good, false).toString()), { result: { rate_limit: { limit: 2, remaining: 1 } } });
    await go(world, callOf(world));
    const refused = await go(world, callOf(world));
    t.equal(refused.code, 3004);
    const rpc = JSON.parse(rpcAnswer('1', refused, false).toString());
    t.match(rpc, { error: { data: { code: 3004, retryable: true, ambiguous: false, rate_limit: { remaining: 0 } } } });
    t.ok(rpc.error.data.retry_after_ms > 900);
    const trailers = failureTrailers(resultOf(refused, true));
    t.match(trailers, {
      'grpc-status': '8',
      'ratelimit-remaining': '0',
      'grpc-retry-pushback-ms': /^\d+$/,
      'reach-retry-after-ms': /^\d+$/,
    });
    const other = await go(world, callOf(world, 'crm.order.query', 'crm.desk.1'));
    t.same(successTrailers(other), { 'grpc-status': '0' }, 'and nothing where there is none');
  });
  t.test('meters are bounded, and one that is forgotten had nothing to remember', async (t) => {
    const clock = new VirtualClock();
    const quotas = new Quotas(clock, 'one');
    quotas.replace([quota('agent', '*.*.*', { calls: rate(10, 10) })]);
    const world = lab();
    for (let i = 0; i < 21_000; i++) {
      const call = callOf(world, 'crm.order.query', `web.desk.${i}`);
      quotas.agent(call);
      call.quota?.release();
      if (i % 1_000 === 0) await clock.advance(1_100);
    }
    t.ok(quotas.size <= 20_000, `${quotas.size}`);
  });
});

t.test('the quota of a capability', async (t) => {
  t.test('is shared by its callers, and a fallback may answer instead', async (t) => {
    const world = lab();
    world.engine.quotas.replace([quota('capability', 'crm.order.lookup', { calls: rate(1, 1) })]);
    t.match(await go(world, callOf(world, 'crm.order.lookup')), { code: 0, degraded: false });
    const second = await go(world, callOf(world, 'crm.order.lookup'));
    t.match([second.code, second.degraded, second.capability?.name], [0, true, 'crm.order.query']);
    t.match(second.firstFailure, { code: 3004 });
  });
  t.test('is counted in the share that the leader gives this sidecar', async (t) => {
    const world = lab();
    const { quotas } = world.engine;
    quotas.replace([quota('capability', '*.*.*', { calls: rate(100, 10) })]);
    let taken = 0;
    const run = async (seconds: number): Promise<void> => {
      for (let i = 0; i < seconds * 200; i++) {
        if (quotas.capability(prepared(world))?.reason.passes === true) taken++;
        await world.clock.advance(5);
      }
    };
    await run(1);
    t.ok(Math.abs(taken - 110) <= 2, `${taken}: all of it until somebody says otherwise`);
    t.match(quotas.demand(), [{ kind: 'capability', name: 'crm.order.query' }]);
    taken = 0;
    quotas.share({
      wire: 1,
      epoch: 'e',
      rest: 0.5,
      burst: 0.5,
      shares: { 'capability:crm.order.query': { rest: 0.1, burst: 0.1, of: { other: 0.7, [world.engine.config.name]: 0.2 } } },
    });
    await run(2);
    t.ok(Math.abs(taken - 40) <= 4, `${taken}: a fifth of 100/s`);
  });
});

function prepared(world: World): Call {
  const call = callOf(world);
  call.table = world.table.current();
  call.capability = call.table.capabilities.get('crm.order.query') ?? null;
  return call;
}

t.test('the quota of a provider sends the call elsewhere, and says so when there is nobody else', async (t) => {
  const world = lab();
  world.engine.quotas.replace([quota('provider', 'crm.order.*', { calls: rate(1, 1) })]);
  const one = await go(world, callOf(world));
  const two = await go(world, callOf(world));
  t.same([one.code, two.code], [0, 0]);
  t.not(one.chosen?.provider.agentId, two.chosen?.provider.agentId, 'each has its own');
  const three = await go(world, callOf(world));
  t.equal(three.code, 3004);
  t.match(
    three.attempts.map(({ code, started }) => [code, started]),
    [
      [3004, 'not_started'],
      [3004, 'not_started'],
    ],
  );
  t.ok(three.retryAfterMs > 0);
  t.equal(resultOf(three, true).ambiguous, false);
  await world.clock.advance(1_100);
  t.equal((await go(world, callOf(world))).code, 0, 'it was not left alone for that');
});

t.test('however many are refused by providers, each is told 3004 and when to come again', async (t) => {
  const world = lab();
  world.engine.quotas.replace([quota('provider', '*.*.*', { calls: rate(1, 1) })]);
  const calls: Call[] = [];
  for (let i = 0; i < 100; i++) calls.push(await go(world, callOf(world)));
  const refused = calls.filter(({ code }) => code !== 0);
  t.ok(refused.length > 90);
  t.same([...new Set(refused.map(({ code }) => code))], [3004]);
  t.ok(refused.every(({ retryAfterMs }) => retryAfterMs > 0));
});

t.test('explain says which quotas a call comes under, and takes nothing', async (t) => {
  const world = lab();
  world.engine.quotas.replace([quota('agent', 'web.*.*', { calls: rate(10, 3) }), quota('capability', 'crm.*.*', { calls: rate(50) })]);
  for (let i = 0; i < 5; i++) {
    const { decision, would_serve: serves } = explain(world.engine, callOf(world), false);
    t.ok(serves);
    t.match(
      decision.filter(({ stage }) => stage === 'quotas').map(({ words }) => words),
      [
        'quota agent:web.*.* of the caller: 3 calls left of 3 at once',
        'quota capability:crm.*.* of the capability: 50 of 50 calls a second are counted here',
      ],
    );
  }
});

t.test('messages: an emergency at the sidecar counts before the quota, and the quota before the settings', async (t) => {
  const clock = new VirtualClock();
  const quotas = new Quotas(clock, 'one');
  const rates = new Rates(rate(100), [{ agent: 'crm.desk.1', rate: rate(7) }], quotas);
  const of = (agent: string) => rates.of(agent).perSec;
  t.same([of('web.desk.1'), of('crm.desk.1')], [100, 7]);
  for (let i = 0; i < 150; i++) rates.take('web.desk.1', clock.now());
  quotas.replace([quota('agent', '*.desk.1', { messages: rate(1_000) })]);
  t.same([of('web.desk.1'), of('crm.desk.1')], [1_000, 1_000]);
  t.equal(rates.take('web.desk.1', clock.now()), false, 'what was used stays used');
  await clock.advance(50);
  t.equal(rates.view('web.desk.1', clock.now()).remaining, 50);
  t.equal(rates.take('web.desk.1', clock.now()), true);
  t.same(quotas.hits(), { 'agent:*.desk.1': { taken: 1, refused: 1 } });
  rates.set('web.desk.1', rate(3), clock.now());
  t.equal(of('web.desk.1'), 3);
  rates.set('web.desk.1', null, clock.now());
  quotas.replace([]);
  t.same([of('web.desk.1'), of('crm.desk.1')], [100, 7]);
});

t.test('what becomes of attempts is measured while traffic is shifted, and only then', async (t) => {
  const world = lab();
  const counts = new ShiftCounts();
  interface Made {
    readonly isFault?: boolean;
    readonly isTelling?: boolean;
    readonly way?: WayIn;
  }
  const attempted = (agentId: string, { isFault = false, isTelling = true, way = 'http' }: Made = {}): void => {
    const candidate = prepared(world).capability?.versions[0]?.candidates.find(({ provider }) => provider.agentId === agentId);
    if (candidate === undefined) throw new Error(`no ${agentId}`);
    const made = new Attempt(candidate, 0);
    made.isFault = isFault;
    made.isTelling = isTelling;
    made.elapsedMs = 20;
    counts.attemptEnded(new Call(way, 'crm.order.query', NO_HEADERS, Buffer.from(''), '', false, world.clock), made);
  };
  let news = 0;
  counts.onNews = () => void news++;
  attempted('crm.order.1');
  t.same([counts.take(), news], [[], 0], 'nothing is watched');
  counts.watch(['crm.order.query']);
  attempted('crm.order.1');
  attempted('crm.order.1', { isFault: true });
  attempted('crm.order.2');
  attempted('crm.order.2', { way: 'mesh' });
  attempted('crm.order.2', { isTelling: false });
  t.equal(news, 1, 'told once until it is taken');
  const bucket = timeBucket(20);
  t.same(counts.take(), [
    { capability: 'crm.order.query', version: '2.0.0', provider: 'crm.order.1', calls: 2, errors: 1, times: [bucket, 2] },
    { capability: 'crm.order.query', version: '2.0.0', provider: 'crm.order.2', calls: 1, errors: 0, times: [bucket, 1] },
  ]);
  t.same(counts.take(), []);
  counts.watch([]);
  attempted('crm.order.1');
  t.same(counts.take(), []);
});
