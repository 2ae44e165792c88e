import t from 'tap';
import { Sketch } from '../../../base/sketch.ts';
import { VirtualClock } from '../../../base/virtual-clock.ts';
import { breakersOf } from '../../../control-plane/overview/breakers.ts';
import { BreakerBook, type BreakerMove } from '../../../control-plane/traffic/breaker-book.ts';
import { cyclesOf, MAX_CYCLES } from '../../../control-plane/traffic/cycles.ts';
import { hearDigests } from '../../../control-plane/traffic/hearing.ts';
import { KEPT_EDGES, MAX_CAPABILITIES, MAX_EDGES_A_MINUTE } from '../../../control-plane/traffic/minute.ts';
import { readDigest } from '../../../control-plane/traffic/reading.ts';
import type { Figures } from '../../../control-plane/traffic/figures.ts';
import { KEPT_MINUTES, Traffic } from '../../../control-plane/traffic/traffic.ts';
import type { BreakerDigest, Digest, EdgeDigest } from '../../../proto/wire/digests.ts';
import { Subjects } from '../../../proto/wire/subjects.ts';
import { NatsServer } from '../../support/nats.ts';

const MINUTE = 60_000;

function timesOf(ms: readonly number[]): number[] {
  const sketch = new Sketch();
  for (const each of ms) sketch.add(each);
  return sketch.pairs();
}

function edge(caller: string, capability: string, provider: string, ms: readonly number[], more: Partial<EdgeDigest> = {}): EdgeDigest {
  return {
    caller,
    capability,
    version: '1.0.0',
    provider,
    calls: ms.length,
    codes: [],
    retries: 0,
    degraded: 0,
    times: timesOf(ms),
    examples: [],
    ...more,
  };
}

const seqs = new Map<string, number>();
function digest(sidecar: string, edges: readonly EdgeDigest[], more: Partial<Digest> = {}): Digest {
  const instance = more.instance ?? `${sidecar}-1`;
  const seq = (seqs.get(instance) ?? 0) + 1;
  const made: Digest = {
    wire: 1,
    sidecar,
    instance,
    seq,
    from_ms: 1_000_000,
    to_ms: 1_010_000,
    edges,
    providers: [],
    breakers: [],
    ...more,
  };
  seqs.set(instance, made.seq);
  return made;
}

t.beforeEach(() => seqs.clear());

t.test('digests of all sidecars add up by capability and by edge, with quantiles of all of it', async (t) => {
  const clock = new VirtualClock();
  const traffic = new Traffic(clock);
  await clock.advance(5 * MINUTE);
  const fast = Array.from({ length: 90 }, (_, i) => 10 + i / 100);
  const slow = Array.from({ length: 10 }, (_, i) => 2_000 + i);
  traffic.take(digest('shop-1', [edge('shop.chat.1', 'crm.order.query', 'crm.order.a', fast)]));
  traffic.take(
    digest('shop-2', [edge('shop.chat.2', 'crm.order.query', 'crm.order.b', slow, { codes: [1003, 4], retries: 2, degraded: 1 })]),
  );
  traffic.take(digest('shop-2', [edge('shop.chat.2', 'crm.stock.query', 'crm.stock.a', [1])]));
  const window = { minutes: 5 };
  t.same(traffic.capabilities(window), ['crm.order.query', 'crm.stock.query']);
  const figures = traffic.capability('crm.order.query', window);
  t.match(figures, { calls: 100, failed: 4, retries: 2, degraded: 1 });
  t.same([...(figures?.codes ?? [])], [[1003, 4]]);
  t.ok(Math.abs((figures?.times.quantile(0.5) ?? 0) - 10.4) < 0.5);
  t.ok(Math.abs((figures?.times.quantile(0.95) ?? 0) - 2_004) < 61);
  t.equal(traffic.capability('crm.nobody.query', window), null);
  t.equal(traffic.total(window).calls, 101);
  t.same(
    traffic.edges(window).map(({ caller, capability, provider, figures: { calls } }) => [caller, capability, provider, calls]),
    [
      ['shop.chat.1', 'crm.order.query', 'crm.order.a', 90],
      ['shop.chat.2', 'crm.order.query', 'crm.order.b', 10],
      ['shop.chat.2', 'crm.stock.query', 'crm.stock.a', 1],
    ],
  );
});

t.test('attempts at a provider add up over callers', async (t) => {
  const clock = new VirtualClock();
  const traffic = new Traffic(clock);
  for (const sidecar of ['shop-1', 'shop-2'])
    traffic.take(
      digest(sidecar, [], {
        providers: [
          { capability: 'crm.order.query', version: '1.0.0', provider: 'crm.order.a', attempts: 10, failures: 3, times: timesOf([5]) },
        ],
      }),
    );
  t.match(traffic.providers({ minutes: 1 }), [{ provider: 'crm.order.a', figures: { attempts: 20, failures: 6 } }]);
});

t.test('each minute stands for itself, and says how many sidecars spoke in it', async (t) => {
  const clock = new VirtualClock();
  const traffic = new Traffic(clock);
  await clock.advance(10 * MINUTE);
  const speak = (calls: number): void =>
    traffic.take(
      digest('shop-1', calls === 0 ? [] : [edge('shop.chat.1', 'crm.order.query', 'crm.order.a', Array<number>(calls).fill(5))]),
    );
  speak(3);
  await clock.advance(MINUTE);
  speak(0);
  await clock.advance(2 * MINUTE);
  speak(1);
  await clock.advance(30_000);
  const rows = traffic.minutes('crm.order.query', 5);
  t.same(
    rows.map(({ figures, sidecars, isRunning }) => [figures?.calls ?? null, sidecars, isRunning]),
    [
      [null, 0, false],
      [3, 1, false],
      [null, 1, false],
      [null, 0, false],
      [1, 1, true],
    ],
    'calm, with a digest, is not the silence in which nobody spoke',
  );
  t.same(
    rows.map(({ index }) => index - (rows[0]?.index ?? 0)),
    [0, 1, 2, 3, 4],
  );
  t.equal(rows.at(-1)?.startMs, clock.wallMs() - 30_000);
  // A window that ends in the past has whole minutes alone.
  t.equal(traffic.capability('crm.order.query', { minutes: 1, endsMinutesAgo: 1 }), null);
  t.equal(traffic.capability('crm.order.query', { minutes: 2, endsMinutesAgo: 1 })?.calls, 3);
  t.equal(traffic.capability('crm.order.query', { minutes: 3, endsMinutesAgo: 0 })?.calls, 4);
  t.equal(traffic.capability('crm.order.query', { minutes: 1, endsMinutesAgo: 0 })?.calls, 1);
  t.equal(traffic.seconds({ minutes: 3 }), 210);
  t.equal(traffic.seconds({ minutes: 3, endsMinutesAgo: 1 }), 180);
  t.equal(traffic.seconds({ minutes: 60 }), 13 * 60 + 30, 'not longer than this replica has listened');
});

t.test('a digest counts once, gaps are counted, and a new run of the process begins anew', async (t) => {
  const clock = new VirtualClock();
  const traffic = new Traffic(clock);
  const one = edge('shop.chat.1', 'crm.order.query', 'crm.order.a', [5]);
  traffic.take(digest('shop-1', [one], { seq: 7 }));
  t.match(traffic.sidecars(), [{ sidecar: 'shop-1', missed: 0 }], 'what was said before this replica listened is not missed');
  traffic.take(digest('shop-1', [one], { seq: 7 }));
  traffic.take(digest('shop-1', [one], { seq: 6 }));
  t.equal(traffic.total({ minutes: 1 }).calls, 1);
  traffic.take(digest('shop-1', [one], { seq: 10 }));
  t.match(traffic.sidecars(), [{ missed: 2, digests: 2 }]);
  traffic.take(digest('shop-1', [one], { instance: 'shop-1-2', seq: 1 }));
  // The last word of the run before comes late.
  traffic.take(digest('shop-1', [one], { seq: 11 }));
  traffic.take(digest('shop-1', [one], { seq: 11 }));
  traffic.take(digest('shop-1', [one], { instance: 'shop-1-2', seq: 2 }));
  t.equal(traffic.total({ minutes: 1 }).calls, 5);
  t.match(traffic.sidecars(), [{ instance: 'shop-1-2', missed: 2, digests: 5 }]);
  t.same(traffic.counts, { heard: 5, repeated: 3, missed: 2, refused: 0 });
});

t.test('a sidecar that is not heard any more is silent, and after two hours forgotten', async (t) => {
  const clock = new VirtualClock();
  const traffic = new Traffic(clock);
  traffic.take(digest('shop-1', []));
  traffic.take(digest('shop-2', []));
  await clock.advance(25_000);
  traffic.take(digest('shop-2', []));
  await clock.advance(10_000);
  t.match(traffic.sidecars(), [
    { sidecar: 'shop-1', isSilent: true, lastHeardAgoMs: 35_000 },
    { sidecar: 'shop-2', isSilent: false },
  ]);
  await clock.advance(121 * MINUTE);
  t.same(traffic.sidecars(), []);
});

t.test('when a breaker moved is told by our clock, whatever the other one reads', async (t) => {
  const clock = new VirtualClock();
  const traffic = new Traffic(clock);
  await clock.advance(3 * MINUTE);
  const move = (at: number): BreakerDigest => ({ provider: 'crm.order.a', capability: 'crm.order.query', to: 'open', why: 'x', at_ms: at });
  // Its clock is at 1970: 4 s before the end of the period; long after it; long before it.
  traffic.take(digest('shop-1', [], { from_ms: 0, to_ms: 10_000, breakers: [move(6_000)] }));
  traffic.take(digest('shop-1', [], { from_ms: 0, to_ms: 10_000, breakers: [move(99_000_000)] }));
  traffic.take(digest('shop-2', [], { from_ms: 9e12, to_ms: 9e12 + 10_000, breakers: [move(0)] }));
  const now = clock.now();
  t.same(
    traffic.breakerMoves(10 * MINUTE).map(({ atMs, sidecar }) => [now - atMs, sidecar]),
    [
      [60_000, 'shop-2'],
      [4_000, 'shop-1'],
      [0, 'shop-1'],
    ],
  );
  await clock.advance((KEPT_MINUTES + 2) * MINUTE);
  traffic.take(digest('shop-1', []));
  t.match(traffic.breakerMoves(1e12), [{ sidecar: 'shop-1' }, { sidecar: 'shop-1' }], 'bounded in time, but for what is open as ever');
  await clock.advance(MINUTE);
  traffic.take(digest('shop-1', [], { instance: 'another' }));
  await clock.advance(MINUTE);
  traffic.take(digest('shop-1', [], { instance: 'another' }));
  t.same(traffic.breakerMoves(1e12), [], 'of another process it is not');
});

t.test('durations that are judged are those of calls for which a provider was asked, those that are shown are of all', async (t) => {
  const clock = new VirtualClock();
  const traffic = new Traffic(clock);
  const asked = edge('a.b.c', 'crm.a.b', 'crm.a.1', [100, 100, 100, 100], { codes: [6001, 1], degraded: 1 });
  const refused = edge('a.b.c', 'crm.a.b', '', [0.1, 0.1, 0.1, 0.1, 0.1], { codes: [3001, 5] });
  const of = (): unknown[] => {
    const { calls, times, answered, unusualShare } = traffic.capability('crm.a.b', { minutes: 5 }) as Figures;
    return [calls, times.count, answered.count, answered.countAbove(50), unusualShare];
  };
  traffic.take(digest('shop-1', [asked]));
  t.same(of(), [4, 4, 4, 4, 0.5]);
  traffic.take(digest('shop-1', [refused]));
  t.same(of(), [9, 9, 4, 4, 0.5]);
  traffic.take(digest('shop-1', [asked]));
  t.same(of(), [13, 13, 8, 8, 0.5]);
  await clock.advance(MINUTE);
  traffic.take(digest('shop-1', [refused, asked]));
  await clock.advance(MINUTE);
  traffic.take(digest('shop-1', [asked]));
  t.same(of(), [26, 26, 16, 16, 0.5], 'minutes of both kinds add up');
});

t.test('each breaker has moves of its own, and its state is known for as long as its sidecar is heard', async (t) => {
  const book = new BreakerBook();
  const now = { ms: 0 };
  const move = (of: Partial<BreakerMove>): void =>
    book.take({
      sidecar: 's1',
      instance: 'i',
      provider: 'crm.a.1',
      capability: 'crm.a.b',
      from: 'closed',
      to: 'open',
      why: '',
      atMs: now.ms,
      ...of,
    });
  const kept = (of: Partial<BreakerMove> = {}): string =>
    book
      .since(0)
      .filter((each) => Object.entries(of).every(([key, value]) => each[key as keyof BreakerMove] === value))
      .map(({ to, atMs }) => `${to} ${atMs}`)
      .join(', ');
  move({});
  for (now.ms = 10; now.ms < 5_000; now.ms += 10)
    if (now.ms % 20 === 10) move({ from: 'open', to: 'half_open' });
    else move({ from: 'half_open', to: 'open' });
  t.equal(kept(), 'open 0, half_open 4970, open 4980, half_open 4990', 'of probes that fail the newest is kept');
  move({ from: 'half_open', to: 'ramping' });
  move({ from: 'ramping', to: 'open', atMs: 5_010 });
  t.equal(kept(), 'open 0, half_open 4990, ramping 5000, open 5010', 'nor is a ramp that breaks off more than that');
  move({ from: 'open', to: 'closed', atMs: 5_020 });
  move({ atMs: 5_030 });
  move({ from: 'open', to: 'half_open', atMs: 5_025 });
  t.equal(kept(), 'open 0, half_open 4990, ramping 5000, open 5010, closed 5020, open 5030, half_open 5030', 'and time goes on');
  t.equal(
    book
      .since(5_100)
      .map(({ to }) => to)
      .join(),
    'open,half_open',
    'what has not closed is told however long ago it was',
  );
  book.forget(5_100, () => false);
  t.equal(kept(), 'open 5030, half_open 5030', 'what closed long ago goes');
  move({ provider: 'crm.a.2', atMs: 5_040 });
  for (let i = 0; i < 9_000; i++) {
    move({ provider: 'crm.a.3', atMs: 6_000 + i });
    move({ provider: 'crm.a.3', from: 'open', to: 'closed', atMs: 6_000 + i });
    move({ sidecar: `x${i}`, provider: 'crm.a.4', atMs: 6_000 + i });
    move({ sidecar: `x${i}`, provider: 'crm.a.4', from: 'open', to: 'closed', atMs: 6_000 + i });
  }
  t.ok(book.since(0).length <= 20_000);
  t.match(
    [kept({ provider: 'crm.a.1' }), kept({ provider: 'crm.a.2' })],
    ['open 5030, half_open 5030', 'open 5040'],
    'who moves a lot pushes out nobody else',
  );
  t.match(kept({ provider: 'crm.a.3' }), /, open 14999, closed 14999$/, 'but its own oldest');
  book.forget(1e6, () => true);
  t.equal(kept(), '', 'with its sidecar it goes');

  const clock = new VirtualClock();
  const traffic = new Traffic(clock);
  const shown = (): string[] => breakersOf(traffic, clock.now()).map(({ state, openAt }) => `${state} at ${openAt.join(' and ')}`);
  const opens: BreakerDigest = { provider: 'crm.a.1', capability: 'crm.a.b', from: 'closed', to: 'open', why: 'x', at_ms: 0 };
  for (const host of ['shop-1', 'shop-2']) traffic.take(digest(host, [], { breakers: [opens] }));
  for (let minute = 0; minute < 180; minute++) {
    await clock.advance(MINUTE);
    traffic.take(digest('shop-1', []));
    if (minute < 10) traffic.take(digest('shop-2', []));
    if (minute === 9) t.same(shown(), ['open at shop-1 and shop-2']);
    if (minute === 13) t.same(shown(), ['open at shop-1'], 'the other one is gone, and so is its breaker');
  }
  t.same(shown(), ['open at shop-1'], 'it is open for 3 hours');
  seqs.set('shop-1-1', (seqs.get('shop-1-1') as number) + 1);
  traffic.take(digest('shop-1', []));
  t.same(shown(), [], 'but its end may have been in the digest that was missed');
  const probes: BreakerDigest[] = [
    { ...opens, from: 'open', to: 'half_open' },
    { ...opens, from: 'half_open' },
  ];
  await clock.advance(MINUTE);
  traffic.take(digest('shop-1', [], { breakers: probes }));
  t.same(shown(), ['open at shop-1'], 'until it is told again');
  traffic.take(digest('shop-1', [], { breakers: [{ ...opens, from: 'open', to: 'closed' }] }));
  t.same(shown(), []);
});

t.test('room is bounded: the rest counts as other, old minutes keep their busiest edges, and nothing stays for ever', async (t) => {
  const clock = new VirtualClock();
  const traffic = new Traffic(clock);
  for (let part = 0; part < 10; part++)
    traffic.take(
      digest(
        'shop-1',
        Array.from({ length: 250 }, (_, i) =>
          edge(`shop.chat.${part * 250 + i}`, `crm.order.q${part * 250 + i}`, 'crm.order.a', i === 7 ? [5, 5, 5] : [5]),
        ),
      ),
    );
  const calls = 2_500 + 20;
  const first = traffic.edges({ minutes: 1 });
  t.equal(first.length, MAX_EDGES_A_MINUTE + 1);
  t.equal(traffic.capabilities({ minutes: 1 }).length, MAX_CAPABILITIES + 1);
  t.equal(
    first.reduce((sum, { figures }) => sum + figures.calls, 0),
    calls,
  );
  t.equal(traffic.total({ minutes: 1 }).calls, calls);
  await clock.advance(17 * MINUTE);
  traffic.take(digest('shop-1', []));
  const later = traffic.edges({ minutes: 20 });
  t.equal(later.length, KEPT_EDGES + 1);
  t.ok(
    later.some(({ caller }) => caller === 'shop.chat.7'),
    'the busy one is still there',
  );
  t.equal(
    later.reduce((sum, { figures }) => sum + figures.calls, 0),
    calls,
  );
  t.equal(traffic.capability('crm.order.q1', { minutes: 20 })?.calls, 1, 'figures by capability stay whole');
  const cut = traffic.topology({ minutes: 20 }, 10);
  t.match(cut, { isCut: true });
  t.equal(cut.edges.length, 10);
  await clock.advance((KEPT_MINUTES + 1) * MINUTE);
  traffic.take(digest('shop-1', []));
  t.equal(traffic.total({ minutes: KEPT_MINUTES }).calls, 0);
});

t.test('cycles between agents are found from who called whom', async (t) => {
  const calls = (text: string): { caller: string; capability: string; version: string; provider: string }[] =>
    text.split(' ').map((pair) => {
      const [caller, provider] = pair.split('>') as [string, string];
      return { caller, capability: 'c', version: '1.0.0', provider };
    });
  t.same(cyclesOf(calls('a>b b>c c>d')), []);
  t.same(cyclesOf(calls('b>a a>b')), [['a', 'b']], 'each once, its least name first');
  t.same(cyclesOf(calls('a>b b>c c>a c>d d>e')), [['a', 'b', 'c']]);
  t.same(cyclesOf(calls('a>a')), [['a']]);
  t.same(cyclesOf(calls('a>b b>a b>c c>d d>b')), [
    ['a', 'b'],
    ['b', 'c', 'd'],
  ]);
  t.same(cyclesOf(calls('other>a a>other >b b>')), [], 'names that stand for many, or for nobody, are none');
  const chain = Array.from({ length: 20_000 }, (_, i) => `a${i}>a${i + 1}`).join(' ');
  t.same(cyclesOf(calls(chain)), [], 'a long chain is no deep recursion');
  t.equal(cyclesOf(calls(`${chain} a20000>a0`))[0]?.length, 20_001);
  const pairs = Array.from({ length: 100 }, (_, i) => `a${i}>b${i} b${i}>a${i}`).join(' ');
  t.equal(cyclesOf(calls(pairs)).length, MAX_CYCLES);
});

t.test('what is no digest is not taken', async (t) => {
  const good = JSON.parse(JSON.stringify(digest('shop-1', [edge('shop.chat.1', 'crm.order.query', 'crm.order.a', [5])]))) as Record<
    string,
    unknown
  >;
  t.ok(readDigest(good));
  const first = (good['edges'] as object[])[0] as object;
  const bad: unknown[] = [
    null,
    [],
    { ...good, wire: 2 },
    { ...good, sidecar: '../x' },
    { ...good, seq: 0 },
    { ...good, edges: {} },
    { ...good, edges: Array(251).fill(first) },
    { ...good, to_ms: 'now' },
    ...[
      { caller: 'a b' },
      { caller: 'x'.repeat(300) },
      { calls: -1 },
      { calls: 1e12 },
      { times: [5, 1, 4, 1] },
      { times: [5] },
      { times: [9_999, 1] },
      { codes: [1003] },
      { examples: [{ trace_id: 'x', code: 0, elapsed_ms: 1 }] },
      { examples: Array(4).fill({ trace_id: 'a'.repeat(32), code: 0, elapsed_ms: 1 }) },
    ].map((change) => ({ ...good, edges: [{ ...first, ...change }] })),
    { ...good, providers: [{ capability: 'c', version: '', provider: 'p', attempts: 1, failures: 2, times: [] }] },
    { ...good, breakers: [{ provider: 'p', capability: 'c', to: 'ajar', why: '', at_ms: 1 }] },
  ];
  for (const [i, one] of bad.entries()) t.equal(readDigest(one), null, `${i}`);
});

t.test('over NATS, a digest in the name of another sidecar is refused', async (t) => {
  const server = await NatsServer.start(t);
  const control = server.open();
  const traffic = new Traffic(new VirtualClock());
  hearDigests(control, new Subjects('t'), traffic);
  const sidecar = await server.connect();
  t.ok(await control.ready(10_000));
  // What comes back on the same connection says that the server knows of the subscription before it.
  const heard = new Promise<void>((done) => void control.subscribe('heard', () => done()));
  control.publish('heard', Buffer.alloc(0));
  await heard;
  const send = (as: string, said: unknown): unknown => sidecar.publish(new Subjects('t', as).digest(as), Buffer.from(JSON.stringify(said)));
  const taken = new Promise<void>((done) => void traffic.onTaken(done));
  send('shop-2', digest('shop-1', []));
  send('shop-2', 'nonsense');
  send('shop-2', digest('shop-2', [edge('shop.chat.1', 'crm.order.query', 'crm.order.a', [5])]));
  await taken;
  t.match(traffic.sidecars(), [{ sidecar: 'shop-2' }]);
  t.same(traffic.counts, { heard: 1, repeated: 0, missed: 0, refused: 2 });
});
