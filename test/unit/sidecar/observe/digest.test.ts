import t from 'tap';
import type { Random } from '../../../../base/random.ts';
import { Sketch, SKETCH_BUCKETS, sketchEndMs } from '../../../../base/sketch.ts';
import { VirtualClock } from '../../../../base/virtual-clock.ts';
import { readDigest } from '../../../../control-plane/traffic/reading.ts';
import type { Code } from '../../../../proto/wire/codes.ts';
import { type Digest, DIGEST_EVERY_MS, MAX_DIGEST_BYTES, MAX_EDGES, type EdgeDigest } from '../../../../proto/wire/digests.ts';
import { Attempt } from '../../../../sidecar/call/attempt-record.ts';
import { Call, NO_HEADERS, type WayIn } from '../../../../sidecar/call/call.ts';
import { Principal } from '../../../../sidecar/call/principal.ts';
import { NO_BODY } from '../../../../sidecar/call/reply.ts';
import { Health } from '../../../../sidecar/health/health.ts';
import { DigestSender } from '../../../../sidecar/observe/digest-sender.ts';
import { DigestCounts } from '../../../../sidecar/observe/digest.ts';
import type { Candidate } from '../../../../sidecar/table/snapshot.ts';
import { candidateOf } from '../../../support/front.ts';

const clock = new VirtualClock();
const health = new Health(clock, { consecutive: 3, forMs: 1_000 });
const [a, b] = ['crm.order.a', 'crm.order.b'].map((agent) => candidateOf(health, 'crm.order.query', '2.1.0', agent)) as [
  Candidate,
  Candidate,
];

function counting(): DigestCounts {
  const counts = new DigestCounts();
  counts.begin();
  return counts;
}

let made = 0;
function traceId(): string {
  return (++made).toString(16).padStart(32, '0');
}

/** A call as it has ended: whom it asked, in turn. */
function ended(
  counts: DigestCounts,
  served: readonly Candidate[],
  elapsedMs: number,
  code: Code = 0,
  more: (call: Call) => void = () => {},
  way: WayIn = 'http',
): Call {
  const call = new Call(way, 'crm.order.query', NO_HEADERS, NO_BODY, '', false, clock);
  call.traceId = traceId();
  call.code = code;
  call.capability = a.version.capability;
  call.principal = new Principal('shop.chat.1');
  for (const [i, candidate] of served.entries()) {
    const attempt = new Attempt(candidate, 0);
    attempt.elapsedMs = elapsedMs / served.length;
    attempt.isFault = i < served.length - 1 || code !== 0;
    call.attempts.push(attempt);
    counts.attemptEnded(call, attempt);
  }
  more(call);
  counts.callEnded(call, elapsedMs);
  return call;
}

function p95Of(times: readonly number[]): number {
  const sketch = new Sketch();
  sketch.addPairs(times);
  return sketch.quantile(0.95) ?? -1;
}

t.test('a call counts on the edge from its caller to whoever answered last, an attempt at whom it was made', async (t) => {
  const counts = counting();
  for (let i = 0; i < 20; i++) ended(counts, [a], 10);
  ended(counts, [a, b], 40);
  ended(counts, [], 0.2, 3003);
  ended(counts, [a], 3, 0, () => {}, 'message');
  const { edges, providers } = counts.take();
  const of = (provider: string): EdgeDigest | undefined => edges.find((edge) => edge.provider === provider);
  t.match(
    of('crm.order.a'),
    { caller: 'shop.chat.1', capability: 'crm.order.query', version: '2.1.0', calls: 21, retries: 0, codes: [] },
    'messages too',
  );
  t.match(of('crm.order.b'), { calls: 1, retries: 1 });
  t.match(of(''), { calls: 1, version: '', codes: [3003, 1] }, 'nobody was asked');
  t.equal(
    edges.reduce((sum, { calls }) => sum + calls, 0),
    23,
  );
  t.ok(Math.abs(p95Of(of('crm.order.a')?.times ?? []) - 10) < 0.3);
  t.match(
    providers.map(({ provider, attempts, failures }) => [provider, attempts, failures]),
    [
      ['crm.order.a', 22, 1],
      ['crm.order.b', 1, 0],
    ],
  );
});

t.test('what a peer asks for is counted by the peer; a fallback counts under what was asked for', async (t) => {
  const counts = counting();
  ended(counts, [a], 5, 0, () => {}, 'mesh');
  const cache = candidateOf(health, 'crm.cache.query', '1.0.0', 'crm.cache.a');
  ended(counts, [a, cache], 5, 0, (call) => {
    call.fallbackFrom = a.version.capability;
    call.capability = cache.version.capability;
    call.degraded = true;
  });
  ended(counts, [cache], 5, 0, (call) => {
    call.capability = cache.version.capability;
  });
  ended(counts, [a], 5, 0, (call) => {
    call.fallbackFrom = a.version.capability;
    call.staticBody = Buffer.from('1');
  });
  ended(counts, [], 0.1, 0, (call) => {
    call.fallbackFrom = a.version.capability;
    call.staticBody = Buffer.from('1');
  });
  ended(counts, [a], 5);
  t.same(
    counts.take().edges.map(({ capability, version, provider, calls, degraded }) => [capability, version, provider, calls, degraded]),
    [
      ['crm.order.query', '1.0.0', 'crm.cache.a', 1, 1],
      ['crm.cache.query', '1.0.0', 'crm.cache.a', 1, 0],
      ['crm.order.query', '2.1.0', 'crm.order.a', 2, 0],
      ['crm.order.query', '', '', 1, 0],
    ],
    'a static text is no answer of nobody where somebody was asked',
  );
});

t.test('two of the newest failures and the slowest call are told by their traces', async (t) => {
  const counts = counting();
  const calls = [5, 6, 7].map((ms) => ended(counts, [a], ms, 1003));
  const slow = ended(counts, [a], 900);
  ended(counts, [a], 1);
  const [edge] = counts.take().edges;
  t.same(edge?.examples, [
    { trace_id: calls[1]?.traceId, code: 1003, elapsed_ms: 6 },
    { trace_id: calls[2]?.traceId, code: 1003, elapsed_ms: 7 },
    { trace_id: slow.traceId, code: 0, elapsed_ms: 900 },
  ]);
  t.same(edge?.codes, [1003, 3]);
  const worst = ended(counts, [a], 9, 1003);
  t.same(counts.take().edges[0]?.examples, [{ trace_id: worst.traceId, code: 1003, elapsed_ms: 9 }], 'once, though it is both');
});

t.test('a period begins anew, and what had no traffic in it is forgotten', async (t) => {
  const counts = counting();
  ended(counts, [a], 10);
  t.equal(counts.take().edges.length, 1);
  t.same(counts.take(), { edges: [], providers: [], breakers: [] });
  ended(counts, [a], 700);
  const [edge] = counts.take().edges;
  t.match(edge, { calls: 1, codes: [], retries: 0 });
  t.ok(p95Of(edge?.times ?? []) > 600, 'times of the period before are gone');
});

t.test('beyond the bound the rest counts under other names, by capability, and nothing is lost', async (t) => {
  const counts = counting();
  const some = MAX_EDGES + 500;
  for (let i = 0; i < some; i++)
    ended(counts, [a], 1, 0, (call) => {
      call.principal = new Principal(`shop.chat.${i}`);
    });
  const { edges } = counts.take();
  t.equal(edges.length, MAX_EDGES + 1);
  t.match(edges.at(-1), { caller: 'other', capability: 'crm.order.query', provider: 'other', calls: 500 });
  t.equal(
    edges.reduce((sum, { calls }) => sum + calls, 0),
    some,
  );
  counts.take();
  for (let i = 0; i < MAX_EDGES; i++)
    ended(counts, [a], 1, 0, (call) => {
      call.principal = new Principal(`shop.chat.${i}`);
    });
  for (const served of [[a], [], []]) ended(counts, served, 1, 0, (call) => void (call.principal = new Principal('shop.late.1')));
  t.match(
    counts.take().edges.slice(MAX_EDGES),
    [
      { caller: 'other', provider: 'other', calls: 1 },
      { caller: 'other', provider: '', calls: 2 },
    ],
    'calls for which nobody was asked stand apart also there',
  );
  counts.take();
  ended(counts, [a], 1);
  t.match(counts.take().edges, [{ caller: 'shop.chat.1', provider: 'crm.order.a' }], 'there is room again');
});

t.test('without anybody who reads it nothing is counted', async (t) => {
  const counts = new DigestCounts();
  ended(counts, [a], 1);
  counts.breakerMoved('crm.order.a', 'crm.order.query', 'closed', 'open', 'x', 1);
  t.same(counts.take(), { edges: [], providers: [], breakers: [] });
});

interface Told {
  readonly sender: DigestSender;
  readonly counts: DigestCounts;
  readonly clock: VirtualClock;
  readonly bus: { connected: boolean };
  readonly digests: Digest[];
}

function telling(chance = 0.5, sizes: number[] = []): Told {
  const counts = new DigestCounts();
  const own = new VirtualClock();
  const digests: Digest[] = [];
  const bus = {
    connected: true,
    publish: (subject: string, data: Uint8Array): boolean => {
      t.equal(subject, 'ar.t.digest.shop-1');
      sizes.push(data.length);
      const digest = readDigest(JSON.parse(Buffer.from(data).toString('utf8')));
      if (digest === null) t.fail('the control plane cannot read it');
      else digests.push(digest);
      return true;
    },
  };
  const random: Random = { next: () => chance };
  const sender = new DigestSender({ counts, clock: own, random, sidecar: 'shop-1', instance: 'i-1', bus, subject: 'ar.t.digest.shop-1' });
  return { sender, counts, clock: own, bus, digests };
}

t.test('each ten seconds is told, traffic or not, and the last period when it stops', async (t) => {
  const told = telling();
  told.sender.start();
  await told.clock.advance(DIGEST_EVERY_MS / 2);
  t.match(told.digests, [{ seq: 1, edges: [], providers: [], breakers: [] }], 'the first after a part of a period');
  ended(told.counts, [a], 12);
  told.counts.breakerMoved('crm.order.a', 'crm.order.query', 'closed', 'open', 'too many failed', told.clock.wallMs());
  await told.clock.advance(DIGEST_EVERY_MS);
  t.match(told.digests[1], {
    seq: 2,
    sidecar: 'shop-1',
    instance: 'i-1',
    edges: [{ calls: 1 }],
    breakers: [{ from: 'closed', to: 'open', why: 'too many failed' }],
  });
  t.equal((told.digests[1]?.to_ms ?? 0) - (told.digests[1]?.from_ms ?? 0), DIGEST_EVERY_MS);
  ended(told.counts, [a], 12);
  told.sender.stop();
  told.sender.stop();
  await told.clock.advance(5 * DIGEST_EVERY_MS);
  t.equal(told.digests.length, 3);
  t.match(told.digests[2], { seq: 3, edges: [{ calls: 1 }] });
  t.same(told.sender.figures, { sent: 3, dropped: 0 });
});

t.test('while NATS is away a period is lost and its number is not, so that the gap is seen', async (t) => {
  const told = telling(0);
  told.sender.start();
  await told.clock.advance(0);
  told.bus.connected = false;
  ended(told.counts, [a], 12);
  await told.clock.advance(DIGEST_EVERY_MS);
  told.bus.connected = true;
  await told.clock.advance(DIGEST_EVERY_MS);
  t.same(
    told.digests.map(({ seq, edges }) => [seq, edges.length]),
    [
      [1, 0],
      [3, 0],
    ],
  );
  t.same(told.sender.figures, { sent: 2, dropped: 1 });
  told.sender.stop();
});

t.test('a period that is too large for one message goes in several, which add up', async (t) => {
  const told = telling(0);
  told.sender.start();
  await told.clock.advance(0);
  for (let i = 0; i < 1_700; i++)
    ended(told.counts, [a], 1 + (i % 50), i % 9 === 0 ? 1003 : 0, (call) => {
      call.principal = new Principal(`shop.chat.${i}`);
    });
  await told.clock.advance(DIGEST_EVERY_MS);
  const parts = told.digests.slice(1);
  t.ok(parts.length > 4, `${parts.length} parts`);
  t.same(
    parts.map(({ seq }) => seq),
    parts.map((_, i) => i + 2),
  );
  t.equal(parts.flatMap(({ edges }) => edges).length, 1_700);
  t.equal(parts.flatMap(({ providers }) => providers).length, 1);
  for (const part of parts) t.ok(JSON.stringify(part).length < 300_000);
  told.sender.stop();
});

t.test('rows with many different durations go in messages that NATS takes', async (t) => {
  const sizes: number[] = [];
  const told = telling(0, sizes);
  told.sender.start();
  await told.clock.advance(0);
  // Every bucket there is, at 120 callers and 120 providers.
  const spread = Array.from({ length: SKETCH_BUCKETS }, (_, bucket) => sketchEndMs(bucket));
  for (let i = 0; i < 120; i++) {
    const candidate = candidateOf(health, 'crm.order.query', '2.1.0', `crm.order.p${i}`);
    for (const ms of spread)
      ended(told.counts, [candidate], ms, 0, (call) => {
        call.principal = new Principal(`shop.chat.${i}`);
      });
  }
  told.counts.breakerMoved('crm.order.a', 'crm.order.query', 'half_open', 'open', 'still so', told.clock.wallMs());
  await told.clock.advance(DIGEST_EVERY_MS);
  const parts = told.digests.slice(1);
  t.ok(
    sizes.every((size) => size < MAX_DIGEST_BYTES + 10_000),
    `${sizes.join(', ')} bytes`,
  );
  t.ok(sizes.reduce((sum, size) => sum + size, 0) > MAX_DIGEST_BYTES, 'one message would not have held it');
  t.equal(
    parts.flatMap(({ edges }) => edges).reduce((sum, { calls }) => sum + calls, 0),
    120 * spread.length,
  );
  t.equal(
    parts.flatMap(({ providers }) => providers).reduce((sum, { attempts }) => sum + attempts, 0),
    120 * spread.length,
  );
  t.match(
    parts.flatMap(({ breakers }) => breakers),
    [{ from: 'half_open', to: 'open' }],
  );
  told.sender.stop();
});
