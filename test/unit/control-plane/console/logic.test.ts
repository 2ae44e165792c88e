import t from 'tap';
import { SeededRandom } from '../../../../base/random.ts';
import { VirtualClock } from '../../../../base/virtual-clock.ts';
import { itemAddress, pageAddress, PAGES, readAddress, traceIdIn, writeQuery } from '../../../../control-plane/console/address.ts';
import { Asking } from '../../../../control-plane/console/asking.ts';
import { Client, problemOf } from '../../../../control-plane/console/client.ts';
import {
  absolute,
  bytes,
  count,
  duration,
  listed,
  many,
  percent,
  rate,
  relative,
  short,
  span,
} from '../../../../control-plane/console/format.ts';
import { edgesOf, layout, MAX_LINKS, MAX_NODES, NODE_HEIGHT, NODE_WIDTH, wantsGroups } from '../../../../control-plane/console/graph.ts';
import { actionOf, PAGE_KEYS } from '../../../../control-plane/console/keys.ts';
import { numberGiven } from '../../../../control-plane/console/given.ts';
import { Live, POLL_MS, SILENT_MS, type Source } from '../../../../control-plane/console/live.ts';
import { type Channel, SharedSource } from '../../../../control-plane/console/shared-source.ts';
import { effectWords, forceWords, isWide, targetWords, typedWord } from '../../../../control-plane/console/override-words.ts';
import { type Known, named, newestOf, type Order, pressed, watchForce } from '../../../../control-plane/console/red-order.ts';
import { keysOf, matching, paged, sorted } from '../../../../control-plane/console/rows.ts';
import type { Edge, TraceSpan } from '../../../../control-plane/console/shapes.ts';
import { niceTop, pieces, sparkPoints } from '../../../../control-plane/console/spark.ts';
import { ticks, timeline, unfolded } from '../../../../control-plane/console/timeline.ts';

t.test('figures are said with their unit, and never as nothing or all when they are not', async (t) => {
  const table: readonly (readonly [string, string])[] = [
    [duration(null), '–'],
    [duration(0), '0 ms'],
    [duration(0.041), '0.041 ms'],
    [duration(4.26), '4.3 ms'],
    [duration(38.4), '38 ms'],
    [duration(999.6), '1 s'],
    [duration(1_250), '1.25 s'],
    [duration(12_340), '12.3 s'],
    [duration(125_000), '2 m 5 s'],
    [duration(-5), '-5 ms'],
    [span(0), '0 s'],
    [span(3_600_000), '1 h'],
    [span(24 * 3_600_000 + 3_600_000), '1 d 1 h'],
    [span(1_830_000), '30 m'],
    [percent(0), '0 %'],
    [percent(0.00001), '< 0.01 %'],
    [percent(0.0002), '0.02 %'],
    [percent(0.042), '4.2 %'],
    [percent(0.9996), '99.9 %'],
    [percent(1), '100 %'],
    [rate(0), '0/s'],
    [rate(0.001), '< 0.01/s'],
    [rate(4.13), '4.1/s'],
    [rate(1_250), '1,250/s'],
    [count(1_234_567), '1,234,567'],
    [many(1, 'agent'), '1 agent'],
    [many(1_200, 'agent'), '1,200 agents'],
    [bytes(900), '900 B'],
    [bytes(1_536), '1.5 KiB'],
    [bytes(3 * 1_048_576), '3 MiB'],
    [short('crm.order.query', 20), 'crm.order.query'],
    [short('abcdefghijkl', 7), 'abc…jkl'],
    [listed([]), 'none'],
    [listed(['a']), 'a'],
    [listed(['a', 'b', 'c']), 'a, b and c'],
    [listed(['a', 'b', 'c', 'd'], 2), 'a, b and 2 more'],
  ];
  for (const [said, wanted] of table) t.equal(said, wanted);
});

t.test('times are relative, and absolute with their zone', async (t) => {
  const at = Date.UTC(2026, 4, 1, 10, 0, 0);
  t.equal(relative(at, at + 400), 'now');
  t.equal(relative(at, at + 12_000), '12 s ago');
  t.equal(relative(at + 240_000, at), 'in 4 m');
  t.equal(absolute(at, 120), '2026-05-01 12:00:00 +02:00');
  t.equal(absolute(at, -210), '2026-05-01 06:30:00 -03:30');
  t.equal(absolute(Number.NaN, 0), '–');
});

t.test('everything that can be looked at has an address, and whatever else stands there is the overview', async (t) => {
  for (const page of PAGES) t.match(readAddress(pageAddress(page)), { page, item: null, id: '' });
  t.strictSame(readAddress(pageAddress('traces', { failed: '1', capability: '' })), {
    page: 'traces',
    item: null,
    id: '',
    query: { failed: '1' },
  });
  t.match(readAddress(itemAddress('capability', 'crm.order.query')), { page: 'capabilities', item: 'capability', id: 'crm.order.query' });
  t.match(readAddress(itemAddress('agent', 'a/b?c#d%e')), { page: 'agents', item: 'agent', id: 'a/b?c#d%e' });
  for (const strange of [
    '',
    '#',
    '#/',
    '#/nowhere',
    '#/capability',
    '#/capability/',
    '#/__proto__/x',
    '#/constructor',
    'javascript:alert(1)',
    '#//evil.example/',
  ])
    t.match(readAddress(strange), { page: 'overview', item: null, id: '' }, strange);
  t.match(readAddress('#/agent/%zz'), { item: 'agent', id: '%zz' }, 'a broken escape is shown as it is');
  t.strictSame(readAddress('#/traces?__proto__=x&a=b').query, { a: 'b' });
  t.equal(writeQuery({ a: 1, b: null, c: '', d: 'x y' }), '?a=1&d=x%20y');
});

t.test('a trace id is found in what people paste', async (t) => {
  const id = '0af7651916cd43dd8448eb211c80319c';
  t.equal(traceIdIn(` ${id.toUpperCase()} `), id);
  t.equal(traceIdIn(`00-${id}-b7ad6b7169203331-01`), id);
  for (const not of ['', 'crm.order.query', id.slice(1), `${id}0`, `${id.slice(1)}g`]) t.equal(traceIdIn(not), null);
});

t.test('lists', async (t) => {
  const rows = [
    { name: 'b', ms: 5 as number | null },
    { name: 'a', ms: null },
    { name: 'c', ms: 9 },
    { name: 'd', ms: 5 },
  ];
  const names = (list: readonly { readonly name: string }[]): string => list.map(({ name }) => name).join('');

  t.test('are sorted without losing the order of equals; what has no value is last both ways', async (t) => {
    t.equal(names(sorted(rows, false, ({ ms }) => ms)), 'bdca');
    t.equal(names(sorted(rows, true, ({ ms }) => ms)), 'cbda');
    t.equal(names(sorted(rows, false, ({ name }) => name)), 'abcd');
  });

  t.test('are searched by all words in any order', async (t) => {
    const agents = ['crm.order.a', 'crm.ticket.b', 'kb.order.c'];
    t.strictSame(
      matching(agents, ' ORDER crm', (row) => row),
      ['crm.order.a'],
    );
    t.equal(matching(agents, '  ', (row) => row).length, 3);
    t.equal(matching(agents, '.*', (row) => row).length, 0, 'words are no pattern');
  });

  t.test('know their rows by what they are about, so that a figure that changes makes no other row', async (t) => {
    const problem = (words: string, capability: string) => ({ kind: 'errors', words, capability, agent: null });
    const about = ({ kind, capability, agent }: ReturnType<typeof problem>) => [kind, capability, agent];
    const before = keysOf([problem('3 of 10', 'a.b.c'), problem('1 of 9', 'a.b.d')], about);
    const after = keysOf([problem('4 of 9', 'a.b.d'), problem('4 of 11', 'a.b.c')], about);
    t.strictSame(after, before.toReversed());
    t.equal(new Set(keysOf([problem('x', 'a.b.c'), problem('y', 'a.b.c')], about)).size, 2, 'two of the same are two');
  });

  t.test('are paged, and a page that is gone is the last one there is', async (t) => {
    const many_ = Array.from({ length: 101 }, (_, i) => i);
    t.match(paged(many_, 0, 50), { page: 0, pages: 3, from: 1, to: 50, of: 101 });
    t.match(paged(many_, 9, 50), { page: 2, from: 101, to: 101 });
    t.match(paged([], 3, 50), { page: 0, pages: 1, from: 0, to: 0, of: 0 });
  });
});

t.test('lines break where nothing is known, and their scale ends at a round figure', async (t) => {
  t.equal(sparkPoints([0, 5, 10], 100, 20), '0,20 50,10 100,0');
  t.equal(sparkPoints([3], 100, 20), '');
  t.equal(sparkPoints([0, 0], 10, 20), '0,20 10,20', 'nothing stands at the bottom');
  t.strictSame(pieces([1, 2, null, 2], 30, 10, 2), ['0,5 10,0', '30,0']);
  t.strictSame([0, 0.3, 1, 4.2, 7, 3010].map(niceTop), [1, 0.5, 1, 5, 10, 5_000]);
});

const spanOf = (id: string, depth: number, start: number, elapsed: number): TraceSpan => ({
  trace_id: 't',
  span_id: id,
  parent_span_id: '',
  stage: 'attempt',
  start_ms: start,
  shown_start_ms: start,
  self_ms: 0,
  elapsed_ms: elapsed,
  code: 0,
  capability: 'crm.order.query',
  sidecar: 's',
  depth,
});

t.test('the timeline', async (t) => {
  const spans = [
    spanOf('a', 0, 1_000, 100),
    spanOf('b', 1, 1_010, 40),
    spanOf('c', 2, 1_020, 10),
    spanOf('d', 1, 1_050, 50),
    spanOf('e', 0, 1_090, 110),
  ];

  t.test('gives each span its place in the whole, also to what ends after the trace is said to', async (t) => {
    const { lines, wholeMs } = timeline(spans, 1_000, 100);
    t.equal(wholeMs, 200);
    t.strictSame(
      lines.map(({ left, width }) => [left, width]),
      [
        [0, 0.5],
        [0.05, 0.2],
        [0.1, 0.05],
        [0.25, 0.25],
        [0.45, 0.55],
      ],
    );
    t.strictSame(
      lines.map(({ below }) => below),
      [3, 1, 0, 0, 0],
    );
  });

  t.test('folds what is below a line', async (t) => {
    const { lines } = timeline(spans, 1_000, 100);
    const ids = (folded: readonly string[]): string =>
      unfolded(lines, new Set(folded))
        .map(({ span: each }) => each.span_id)
        .join('');
    t.equal(ids([]), 'abcde');
    t.equal(ids(['b']), 'abde');
    t.equal(ids(['a', 'b']), 'ae');
  });

  t.test('stays drawable when it took no time, or began before its beginning', async (t) => {
    for (const { left, width } of timeline([spanOf('a', 0, 1_000, 0)], 1_000, 0).lines) t.strictSame([left, width], [0, 0]);
    for (const { left, width } of timeline([spanOf('a', 0, 900, 500)], 1_000, 100).lines) t.strictSame([left, width], [0, 1]);
    t.strictSame(timeline([], 0, 0).lines, []);
  });

  t.test('has round marks', async (t) => {
    t.strictSame(ticks(3_420), [0, 1_000, 2_000, 3_000]);
    t.strictSame(ticks(100), [0, 20, 40, 60, 80, 100]);
    t.strictSame(ticks(0), [0]);
    for (const ms of [0.3, 1, 7, 12, 99, 1234, 86_400_000]) t.ok(ticks(ms).length >= 2 && ticks(ms).length <= 6, `${ms}`);
  });
});

const edgeOf = (caller: string, provider: string, callsPerS = 1, errorShare = 0): Edge => ({
  caller,
  capability: 'crm.order.query',
  version: '2.0.0',
  provider,
  calls_per_s: callsPerS,
  error_share: errorShare,
  p50_ms: 5,
  p95_ms: 10,
  examples: [],
});
const WHOLE = { text: '', focus: '', isGrouped: false };

t.test('the picture of who calls whom', async (t) => {
  t.test('puts callers left of whom they call, also when the calls go round', async (t) => {
    const edges = [edgeOf('a.a.a', 'b.b.b'), edgeOf('b.b.b', 'c.c.c'), edgeOf('c.c.c', 'b.b.b'), edgeOf('a.a.a', 'c.c.c')];
    const graph = layout(edges, [['b.b.b', 'c.c.c']], WHOLE);
    const x = (id: string): number => graph.nodes.find((node) => node.id === id)?.x ?? Number.NaN;
    t.ok(x('a.a.a') < x('b.b.b') && x('b.b.b') < x('c.c.c'));
    t.strictSame(
      graph.links.filter(({ isCycle }) => isCycle).map(({ from, to }) => `${from} ${to}`),
      ['b.b.b c.c.c', 'c.c.c b.b.b'],
    );
    t.strictSame(
      graph.nodes
        .filter(({ isInCycle }) => isInCycle)
        .map(({ id }) => id)
        .sort(),
      ['b.b.b', 'c.c.c'],
    );
  });

  t.test('adds up rates, weighs errors by them, and keeps the worst P95', async (t) => {
    const graph = layout([edgeOf('a.a.a', 'b.b.b', 3, 0), edgeOf('a.a.b', 'b.b.b', 1, 0.4)], [], { ...WHOLE, isGrouped: true });
    t.match(graph.links, [{ from: 'a.*', to: 'b.*', callsPerS: 4, errorShare: 0.1, p95Ms: 10 }]);
    t.match(
      graph.nodes.find(({ id }) => id === 'a.*'),
      { agents: 2, isTeam: true, callsPerS: 0 },
    );
  });

  t.test('shows only the neighbours of what is in focus, and one by one what is in a team that is', async (t) => {
    const edges = [edgeOf('a.a.a', 'b.b.b'), edgeOf('b.b.b', 'c.c.c'), edgeOf('c.c.c', 'd.d.d'), edgeOf('b.b.c', 'e.e.e')];
    const ids = (focus: string, isGrouped: boolean): string =>
      layout(edges, [], { text: '', focus, isGrouped })
        .nodes.map(({ id }) => id)
        .sort()
        .join(' ');
    t.equal(ids('b.b.b', false), 'a.a.a b.b.b c.c.c');
    t.equal(ids('b.*', true), 'a.* b.b.b b.b.c c.* e.*');
    t.equal(edgesOf(edges, { text: 'query d.d', focus: '' }).length, 1);
  });

  t.test('calls that nobody served lead to nobody, and not to an empty name', async (t) => {
    t.strictSame(
      layout([edgeOf('a.a.a', '')], [], WHOLE)
        .nodes.map(({ id }) => id)
        .sort(),
      ['(nobody)', 'a.a.a'],
    );
    const some = [edgeOf('a.a.a', ''), edgeOf('', 'b.b.b'), edgeOf('a.a.a', 'b.b.b')];
    t.strictSame(
      edgesOf(some, { text: '', focus: '(nobody)' }).map(({ caller, provider }) => `${caller}>${provider}`),
      ['a.a.a>', '>b.b.b'],
      'and who asks for nobody is shown them',
    );
  });

  t.test(
    'stays readable with 300 agents that all call one another: bounded boxes and lines, none upon another, always the same',
    async (t) => {
      const agents = Array.from({ length: 300 }, (_, i) => `team${i % 80}.role.a${i}`);
      const edges = agents.flatMap((caller, i) =>
        Array.from({ length: 7 }, (_, k) => edgeOf(caller, agents[(i * 7 + k * 41 + 1) % 300] as string, (i + k) % 9, k === 3 ? 0.2 : 0)),
      );
      const cycles = [[agents[290] as string, agents[291] as string]];
      t.ok(wantsGroups(edges));
      for (const isGrouped of [true, false]) {
        const graph = layout(edges, cycles, { ...WHOLE, isGrouped });
        t.ok(graph.nodes.length <= MAX_NODES && graph.links.length <= MAX_LINKS);
        t.ok(graph.hidden > 0 && graph.hiddenLinks >= 0, 'what is left out is counted');
        t.ok(
          graph.nodes.some(({ isInCycle }) => isInCycle),
          'what goes round is never left out',
        );
        const places = new Set(graph.nodes.map(({ x, y }) => `${x} ${y}`));
        t.equal(places.size, graph.nodes.length);
        for (const { x, y } of graph.nodes) t.ok(x >= 0 && y >= 0 && x + NODE_WIDTH <= graph.width && y + NODE_HEIGHT <= graph.height);
        t.ok(graph.width < 2_000, 'it is not one long chain');
        t.ok(graph.links.every(({ path }) => !path.includes('NaN')));
        t.strictSame(layout([...edges], cycles, { ...WHOLE, isGrouped }), graph);
      }
    },
  );

  t.test('a long chain is folded', async (t) => {
    const edges = Array.from({ length: 40 }, (_, i) => edgeOf(`a.a.n${i}`, `a.a.n${i + 1}`));
    t.ok(layout(edges, [], WHOLE).width < 2_000);
  });
});

t.test('an override is said in words before it is made', async (t) => {
  const draft = { action: 'block', target: { capability: 'crm.refund.apply' }, to: '', cut: false } as const;
  t.match(effectWords(draft)[0], /New calls of crm\.refund\.apply are refused at once with 2006/);
  t.match(effectWords(draft)[1], /end in peace/);
  t.match(effectWords({ ...draft, cut: true })[1], /cancelled at once/);
  t.match(effectWords({ ...draft, target: { provider: 'crm.order.a' } })[2], /accepted and wait/);
  t.match(effectWords({ ...draft, action: 'drain', target: { provider: 'crm.order.a' } })[0], /no new calls: they go to others/);
  t.match(effectWords({ ...draft, action: 'drain' })[0], /refused with 2006/);
  t.match(effectWords({ ...draft, action: 'degrade' })[0], /declared fallback/);
  t.match(effectWords({ ...draft, action: 'reroute', to: 'crm.order.legacy' })[0], /served by crm\.order\.legacy/);
  t.match(effectWords({ ...draft, target: { all: true } })[0], /of everybody to everything/);
  t.equal(targetWords({ capability: 'crm.*', caller: 'sales.bot.a' }), 'capability crm.*, caller sales.bot.a');
});

t.test('what covers more than one name is typed once more', async (t) => {
  const wide = [{ all: true }, { capability: 'crm.order.*' }, { agent: 'team:crm' }, { provider: 'crm.*.*' }];
  for (const target of wide) t.ok(isWide(target), JSON.stringify(target));
  for (const target of [{ capability: 'crm.order.query' }, { agent: 'crm.order.a' }]) t.notOk(isWide(target), JSON.stringify(target));
  t.strictSame(wide.map(typedWord), ['everything', 'crm.order.*', 'team:crm', 'crm.*.*']);
});

t.test('where it is in force is counted, and who is missing is named', async (t) => {
  t.equal(forceWords(200, 200, []), 'in force on all 200 sidecars');
  t.equal(forceWords(198, 200, ['a', 'b']), 'in force on 198 of 200, missing: a, b');
  t.equal(forceWords(190, 200, ['a', 'b', 'c', 'd', 'e', 'f'], 2), 'in force on 190 of 200, missing: a, b and 8 more');
});

t.test('the way to the API', async (t) => {
  interface Sent {
    readonly path: string;
    readonly init: RequestInit;
  }
  const scripted = (answer: () => Response): { client: Client; sent: Sent[] } => {
    const sent: Sent[] = [];
    const client = new Client(async (path, init) => {
      sent.push({ path, init });
      return answer();
    }, new VirtualClock());
    return { client, sent };
  };
  const header = ({ init }: Sent, name: string): string | undefined => (init.headers as Record<string, string>)[name];

  t.test('stays at its own origin; only what changes something carries what a page of ours knows', async (t) => {
    const { client, sent } = scripted(() => Response.json({ fine: true }));
    client.csrf = 'known';
    t.strictSame(await client.get('/v1/overview'), { ok: { fine: true }, pending: null });
    await client.order('POST', '/v1/overrides', { action: 'block' });
    await client.order('DELETE', '/v1/overrides/x');
    t.strictSame(
      sent.map((each) => header(each, 'x-reach-csrf')),
      [undefined, 'known', 'known'],
    );
    for (const { init } of sent) t.match(init, { credentials: 'same-origin', redirect: 'error' });
    t.equal(sent[1]?.init.body, '{"action":"block"}');
    t.equal(sent[2]?.init.body, undefined);
  });

  t.test('a refusal comes back in the words of the API, with the places of mistakes', async (t) => {
    const problems = [{ file: 'policies', line: 3, column: 5, message: 'unknown key' }, { message: 'bad' }];
    const { client } = scripted(() =>
      Response.json({ code: 4003, name: 'invalid_request', detail: 'nothing was changed', problems }, { status: 422 }),
    );
    t.strictSame(await client.get('/v1/rules'), {
      problem: {
        status: 422,
        code: 4003,
        name: 'invalid_request',
        detail: 'nothing was changed',
        mistakes: ['policies:3:5: unknown key', 'bad'],
      },
    });
    t.match(problemOf(502, '<html>'), { status: 502, detail: 'the control plane answered 502', mistakes: [] });
  });

  t.test('what cannot be reached, and an answer that is none, are said as such', async (t) => {
    const heard: boolean[] = [];
    const away = new Client(async () => Promise.reject(new TypeError('failed to fetch')), new VirtualClock());
    away.onReach = (isReached) => heard.push(isReached);
    t.match(await away.get('/v1/overview'), { problem: { status: 0, detail: 'the control plane cannot be reached' } });
    t.strictSame(heard, [false]);
    t.match(await scripted(() => new Response('<html>')).client.get('/v1/overview'), {
      problem: { status: 200, detail: 'the answer is not JSON' },
    });
  });

  t.test('a question that nobody answers ends, and so does the answer that breaks off', async (t) => {
    const clock = new VirtualClock();
    const heard: boolean[] = [];
    const client = new Client((_path, { signal }) => unanswered(signal), clock);
    client.onReach = (isReached) => heard.push(isReached);
    const asked = client.get('/v1/overview');
    const ordered = client.order('POST', '/v1/overrides', {}, 5_000);
    await clock.advance(5_000);
    t.match(await ordered, { problem: { status: 0, detail: 'the control plane did not answer within 5 s' } });
    await clock.advance(10_000);
    t.match(await asked, { problem: { status: 0, detail: 'the control plane did not answer within 15 s' } });
    t.strictSame(heard, [false, false]);
    t.equal(clock.nextAt(), null);
  });

  t.test('a session that is over is noticed by any question but the one that asks for it', async (t) => {
    const { client } = scripted(() => Response.json({ code: 4001 }, { status: 401 }));
    let out = 0;
    client.onSignedOut = () => out++;
    await client.get('/v1/session');
    t.equal(out, 0);
    await client.get('/v1/overview');
    t.equal(out, 1);
  });

  t.test(
    'an order of a session that another window has replaced is not repeated; the window goes on with the one that counts',
    async (t) => {
      const now = { name: 'vic', role: 'viewer', csrf: 'new', until_ms: 1, env: 'test', replica: 'one', version: '1' };
      const asked: string[] = [];
      const client = new Client(async (path, { method, headers }) => {
        asked.push(`${method} ${path}`);
        if (path === '/v1/session') return Response.json(now);
        const isKnown = (headers as Record<string, string>)['x-reach-csrf'] === 'new';
        return Response.json({ detail: isKnown ? 'vic may look but not change' : 'it is missing, or of another session' }, { status: 403 });
      }, new VirtualClock());
      client.csrf = 'old';
      client.onChanged = ({ csrf }) => {
        client.csrf = csrf;
      };
      const answer = await client.order('POST', '/v1/overrides', {});
      t.match(answer, { problem: { status: 403, detail: /signed in anew meanwhile, as vic \(viewer\)/ } });
      t.equal(client.csrf, 'new');
      t.match(await client.order('POST', '/v1/overrides', {}), { problem: { detail: 'vic may look but not change' } });
      t.strictSame(asked, ['POST /v1/overrides', 'GET /v1/session', 'POST /v1/overrides', 'GET /v1/session']);
    },
  );

  t.test('an order that is not in the audit log yet says so', async (t) => {
    const { client } = scripted(() => new Response('{}', { headers: { 'reach-audit-pending': 'NATS is away' } }));
    t.match(await client.order('POST', '/v1/confirm', {}), { pending: 'NATS is away' });
  });
});

/** What a connection that is half open gives: nothing, until it is given up. */
function unanswered(signal: AbortSignal | null | undefined): Promise<Response> {
  return new Promise((_answered, failed) => signal?.addEventListener('abort', () => failed(new DOMException('aborted', 'AbortError'))));
}

t.test('an order of the red button', async (t) => {
  const order: Order = {
    action: 'block',
    target: { capability: 'crm.order.query' },
    to: '',
    cut: false,
    reason: 'it is down',
    lasting: '1h',
  };
  const shown = { id: 'x', in_force: 1, of: 2, missing: [{ sidecar: 'b', why: 'silent' }] };
  /** A control plane that answers by script; null = not at all. */
  const set = (script: readonly (Response | null)[]) => {
    const clock = new VirtualClock();
    const sent: { method: string; path: string; body: Record<string, unknown> | null }[] = [];
    const client = new Client((path, { method = '', body, signal }) => {
      sent.push({ method, path, body: typeof body === 'string' ? (JSON.parse(body) as Record<string, unknown>) : null });
      const answer = script[sent.length - 1] ?? null;
      return answer === null ? unanswered(signal) : Promise.resolve(answer);
    }, clock);
    return { clock, sent, client };
  };
  const random = new SeededRandom(7);

  t.test('has a name from when it is tried, and keeps it as long as it is not known whether it stands', (t) => {
    const first = named(order, null, random);
    t.match(first.id, /^block-[a-z0-9]{8}$/);
    t.not(named(order, null, random).id, first.id, 'another order is another one');
    t.equal(named({ ...order }, first, random).id, first.id, 'the same order again, after going back');
    for (const change of [{ reason: 'other' }, { lasting: '4h' }, { cut: true }, { target: { provider: 'crm.order.a' } }])
      t.not(named({ ...order, ...change }, first, random).id, first.id, JSON.stringify(change));
    t.end();
  });

  t.test('a press without an answer asks whether it stands; the next press is the same order', async (t) => {
    const one = named(order, null, random);
    const { clock, sent, client } = set([
      null,
      Response.json({}, { status: 404 }),
      Response.json({ ...shown, id: one.id, repeated: true }),
    ]);
    const first = pressed(client, one, false);
    await clock.advance(5_000);
    const outcome = await first;
    t.match(outcome, { isUnsure: true, problem: { status: 0, detail: /within 5 s.*does not have it.*is safe.*makes no second one/ } });
    t.match(await pressed(client, one, true), { ordered: { id: one.id, repeated: true } });
    t.strictSame(
      sent.map(({ method, path }) => `${method} ${path}`),
      ['POST /v1/overrides', `GET /v1/overrides/${one.id}`, 'POST /v1/overrides'],
    );
    t.match(sent[0]?.body, { id: one.id, for: '1h', reason: 'it is down' });
    t.strictSame(sent[2]?.body, { ...sent[0]?.body, confirm: true });
  });

  t.test('an order that was carried out although its answer was lost is found, and not pressed again', async (t) => {
    const one = named(order, null, random);
    for (const lost of [null, Response.json({}, { status: 503 }), new Response('<html>', { status: 502 })]) {
      const { clock, sent, client } = set([lost, Response.json({ ...shown, id: one.id })]);
      const outcome = pressed(client, one, false);
      await clock.advance(5_000);
      t.match(await outcome, { ordered: { id: one.id, in_force: 1, of: 2, warnings: [] } });
      t.equal(sent.length, 2);
    }
  });

  t.test('when not even that is answered, it says that it does not know; a refusal is final', async (t) => {
    const one = named(order, null, random);
    const away = set([null, null]);
    const outcome = pressed(away.client, one, false);
    await away.clock.advance(10_000);
    t.match(await outcome, { isUnsure: true, problem: { detail: /could not be found out/ } });
    const refused = set([Response.json({ code: 4003, detail: 'no' }, { status: 409 })]);
    t.match(await pressed(refused.client, one, false), { isUnsure: false, problem: { detail: 'no' } });
    t.equal(refused.sent.length, 1);
  });

  t.test('is watched through looks that fail, until it is in force everywhere', async (t) => {
    const { clock, sent, client } = set([
      Response.json({}, { status: 503 }),
      Response.json(shown),
      null,
      Response.json({ ...shown, in_force: 2, missing: [] }),
    ]);
    const known: Known[] = [];
    watchForce({ client, clock }, 'x', (each) => known.push(each));
    await clock.advance(10_000);
    t.strictSame(
      known.map(({ force, atMs }) => [force.in_force, atMs - clock.wallMs() + 10_000]),
      [
        [1, 500],
        [2, 6_500],
      ],
    );
    t.equal(sent.length, 4);
    t.equal(clock.nextAt(), null);
  });

  t.test('is as the newest of watch and list has it; a list that is hardly newer than the order says not that it is gone', (t) => {
    const ordered = { ...shown, id: 'x', repeated: false, warnings: [] };
    const watched: Known = { force: { ...shown, in_force: 2 }, atMs: 1_500, isGone: false };
    const entry = {
      ...shown,
      action: 'block' as const,
      target: {},
      to: null,
      cut: false,
      reason: '',
      author: '',
      at: '',
      expires_at: null,
    };
    const list = (ids: readonly string[], atMs: number, on = 1) => ({
      data: { in_force: on, of: 2, missing: [], overrides: ids.map((id) => ({ ...entry, id, in_force: on })) },
      atMs,
    });
    t.match(newestOf(ordered, 1_000, null, { data: null, atMs: 0 }), { force: { in_force: 1 }, atMs: 1_000, isGone: false });
    t.match(newestOf(ordered, 1_000, watched, list(['x'], 1_200)), { force: { in_force: 2 }, atMs: 1_500 });
    t.match(newestOf(ordered, 1_000, watched, list(['y', 'x'], 60_000, 0)), { force: { in_force: 0 }, atMs: 60_000, isGone: false });
    t.match(newestOf(ordered, 1_000, watched, list(['y'], 2_000)), { atMs: 1_500, isGone: false });
    t.match(newestOf(ordered, 1_000, watched, list(['y'], 60_000)), { atMs: 60_000, isGone: true });
    t.end();
  });
});

t.test('a part of the page asks', async (t) => {
  const set = () => {
    const clock = new VirtualClock();
    const answers: ((answer: string) => void)[] = [];
    const at: number[] = [];
    const shown: string[] = [];
    const page = { isHidden: false };
    const asking = new Asking<string>({
      clock,
      gapMs: 2_000,
      isHidden: () => page.isHidden,
      ask: () => {
        at.push(clock.now());
        return new Promise((answered) => answers.push(answered));
      },
      show: (answer) => shown.push(answer),
    });
    /** Asked from now on, and answered at once. */
    const instantly = (): void => {
      answers.push = (answered) => (answered('fresh'), 0);
    };
    return { clock, asking, answers, at, shown, page, instantly };
  };

  t.test('at once, after a change but not more often than its gap, and after a while of quiet', async (t) => {
    const { clock, asking, at, instantly } = set();
    instantly();
    asking.now();
    await clock.advance(100);
    for (let i = 0; i < 5; i++) asking.changed();
    await clock.advance(50_000);
    t.strictSame(at, [0, 2_000, 22_000, 42_000]);
    asking.stop();
    asking.changed();
    asking.now();
    await clock.advance(50_000);
    t.equal(at.length, 4);
  });

  t.test('nothing while nobody looks, at once when somebody does, and hears of changes from then on', async (t) => {
    const { clock, asking, at, page, instantly } = set();
    instantly();
    asking.now();
    await clock.advance(5_000);
    page.isHidden = true;
    for (let i = 0; i < 5; i++) {
      asking.changed();
      await clock.advance(5_000);
    }
    t.strictSame(at, [0]);
    page.isHidden = false;
    asking.seen();
    await clock.advance(100);
    t.strictSame(at, [0, 30_000]);
    asking.changed();
    await clock.advance(2_000);
    t.strictSame(at, [0, 30_000, 32_000]);
    // Looked away and back at once: no more often than changes.
    asking.seen();
    asking.seen();
    await clock.advance(2_500);
    t.equal(at.length, 4);
  });

  t.test('also beside a question under way, and an older answer never replaces a newer one', async (t) => {
    const { clock, asking, answers, shown, at } = set();
    asking.now();
    asking.now();
    asking.changed();
    await clock.advance(30_000);
    t.equal(at.length, 2, 'while it waits nothing more is asked');
    answers[1]?.('newer');
    await clock.advance(0);
    answers[0]?.('older');
    await clock.advance(0);
    t.strictSame(shown, ['newer']);
    await clock.advance(2_000);
    t.equal(at.length, 3, 'what changed meanwhile is asked for');
    asking.now();
    answers[2]?.('third');
    await clock.advance(0);
    answers[3]?.('fourth');
    await clock.advance(0);
    t.strictSame(shown, ['newer', 'third', 'fourth'], 'in their order both are shown');
  });
});

/** An event stream as the test says it. */
class FakeSource implements Source {
  isClosed = false;
  readonly #heard = new Map<string, (event: { readonly data?: unknown }) => void>();
  addEventListener(name: string, heard: (event: { readonly data?: unknown }) => void): void {
    this.#heard.set(name, heard);
  }
  close(): void {
    this.isClosed = true;
  }
  say(name: string, data?: unknown): void {
    this.#heard.get(name)?.({ data });
  }
}

t.test('live updates', async (t) => {
  const set = () => {
    const clock = new VirtualClock();
    const sources: FakeSource[] = [];
    const live = new Live({
      clock,
      open: () => {
        const source = new FakeSource();
        sources.push(source);
        return source;
      },
    });
    const heard: string[] = [];
    live.watch(['traffic', 'alerts'], () => heard.push('overview'));
    live.watch(['tasks'], () => heard.push('messages'));
    live.start();
    return { clock, sources, live, heard, newest: () => sources.at(-1) as FakeSource };
  };

  t.test('only what is shown of a changed topic is asked for again; a new connection is a change of everything', async (t) => {
    const { live, heard, newest } = set();
    t.equal(live.state, 'connecting');
    newest().say('hello');
    t.equal(live.state, 'live');
    t.strictSame(heard.splice(0), ['overview', 'messages']);
    newest().say('changed', '{"topics":["tasks","fleet"]}');
    t.strictSame(heard.splice(0), ['messages']);
    for (const nonsense of ['', '{', '{"topics":7}', 'null']) newest().say('changed', nonsense);
    t.strictSame(heard, []);
  });

  t.test('without the stream everything is asked for every few seconds, until it is back', async (t) => {
    const { clock, live, heard, sources, newest } = set();
    newest().say('hello');
    heard.length = 0;
    newest().say('error');
    t.ok(sources[0]?.isClosed);
    t.equal(live.state, 'polling');
    await clock.advance(POLL_MS);
    t.strictSame(heard.splice(0), ['overview', 'messages']);
    t.equal(sources.length, 2, 'and it is opened again');
    newest().say('hello');
    heard.length = 0;
    t.equal(live.state, 'live');
    for (let i = 0; i < 4; i++) {
      await clock.advance(15_000);
      newest().say('ping', '{}');
    }
    t.strictSame(heard, [], 'nobody polls beside it');
    t.equal(sources.length, 2, 'a stream that pings is left as it is');
  });

  t.test('tries are further and further apart, and never given up', async (t) => {
    const { clock, sources, newest } = set();
    const at: number[] = [];
    for (let i = 0; i < 8; i++) {
      newest().say('error');
      const before = sources.length;
      const from = clock.now();
      while (sources.length === before) await clock.advance(500);
      at.push(Math.round((clock.now() - from) / 1_000));
    }
    t.strictSame(at, [1, 2, 4, 8, 16, 30, 30, 30]);
  });

  t.test('when nobody answers either, the connection is lost; the first answer opens the stream at once', async (t) => {
    const { clock, live, sources, newest } = set();
    const states: string[] = [];
    live.onState(() => states.push(live.state));
    newest().say('hello');
    newest().say('error');
    live.reached(false);
    for (let i = 0; i < 5; i++) {
      await clock.advance(30_000);
      newest().say('error');
    }
    const before = sources.length;
    live.reached(true);
    t.equal(sources.length, before + 1);
    newest().say('hello');
    t.strictSame(states, ['live', 'polling', 'lost', 'polling', 'live']);
  });

  t.test('a stream on which nothing is heard is cut, whatever the browser thinks of it', async (t) => {
    const { clock, live, sources, heard, newest } = set();
    newest().say('hello');
    heard.length = 0;
    await clock.advance(SILENT_MS - 1);
    t.equal(live.state, 'live');
    await clock.advance(1);
    t.equal(live.state, 'polling', 'and it says so');
    t.ok(sources[0]?.isClosed);
    sources[0]?.say('changed', '{"topics":["tasks"]}');
    t.strictSame(heard, [], 'it is left for good');
    await clock.advance(1_000);
    t.equal(sources.length, 2);
    // A proxy that holds back what is written: it is open, and says nothing.
    newest().say('open');
    t.equal(live.state, 'polling');
    await clock.advance(2 * POLL_MS);
    t.strictSame(heard.splice(0), ['overview', 'messages', 'overview', 'messages']);
    await clock.advance(10_000);
    t.equal(sources.length, 3);
    newest().say('ping', '{}');
    t.equal(live.state, 'live');
  });

  t.test('a question without an answer, while a ping is overdue, is enough', async (t) => {
    const { clock, live, sources, newest } = set();
    newest().say('hello');
    await clock.advance(15_000);
    newest().say('ping', '{}');
    live.reached(false);
    t.equal(live.state, 'live', 'one question may fail by itself');
    await clock.advance(20_000);
    live.reached(false);
    t.equal(live.state, 'lost');
    t.ok(sources[0]?.isClosed);
  });

  t.test('while nobody looks there is no stream; whoever looks again asks for everything once it speaks', async (t) => {
    const { clock, live, sources, heard, newest } = set();
    newest().say('hello');
    heard.length = 0;
    live.stop();
    t.ok(sources[0]?.isClosed);
    live.reached(true);
    await clock.advance(600_000);
    t.equal(sources.length, 1);
    live.start();
    live.start();
    t.equal(sources.length, 2, 'one, however often it is said');
    newest().say('hello');
    t.strictSame(heard.splice(0), ['overview', 'messages']);
    newest().say('hello');
    t.strictSame(heard, ['overview', 'messages'], 'another stream behind the one that windows share');
  });

  t.test('what has been left is told nothing more', async (t) => {
    const { clock, live, sources, heard, newest } = set();
    newest().say('hello');
    newest().say('error');
    heard.length = 0;
    live.stop();
    await clock.advance(600_000);
    t.strictSame(heard, []);
    t.equal(sources.length, 1);
  });
});

t.test('the windows of one browser', async (t) => {
  /** Windows that hear one another, and the streams that they open. */
  const set = () => {
    const clock = new VirtualClock();
    const streams: FakeSource[] = [];
    const channels = new Map<Channel, (event: { readonly data: unknown }) => void>();
    const air = { isDead: false };
    const window = (number: number) => {
      const channel: Channel = {
        addEventListener: (_name, heard) => void channels.set(channel, heard),
        postMessage: (word) => {
          if (air.isDead) return;
          queueMicrotask(() => {
            for (const [other, heard] of channels) if (other !== channel) heard({ data: structuredClone(word) });
          });
        },
        close: () => channels.delete(channel),
      };
      const heard: string[] = [];
      const open = (): Source => {
        const stream = new FakeSource();
        streams.push(stream);
        return stream;
      };
      const source = new SharedSource({ clock, channel, open, number });
      for (const name of ['hello', 'ping', 'changed', 'error'])
        source.addEventListener(name, ({ data }) => heard.push(data === undefined ? name : `${name} ${String(data)}`));
      return { source, heard };
    };
    return { clock, streams, window, air, open: () => streams.filter(({ isClosed }) => !isClosed) };
  };

  t.test('have one stream among them, and all hear what it says', async (t) => {
    const { clock, streams, window, open } = set();
    const windows = [0.5, 0.2, 0.9, 0.4, 0.7, 0.1, 0.3].map(window);
    await clock.advance(1_000);
    t.equal(open().length, 1);
    t.equal(streams.length, 1, 'nor more for a moment');
    streams[0]?.say('hello');
    streams[0]?.say('changed', '{"topics":["tasks"]}');
    await clock.advance(1);
    for (const { heard } of windows) t.strictSame(heard, ['hello', 'changed {"topics":["tasks"]}']);
    const late = window(0.05);
    await clock.advance(1);
    t.strictSame(late.heard, ['ping'], 'who comes later knows at once that there is a stream');
    await clock.advance(1_000);
    t.equal(streams.length, 1);
  });

  t.test('when the one that has it goes, another takes over, and its stream is a new one to all', async (t) => {
    const { clock, streams, window, open } = set();
    const [first, second, third] = [window(0.1), window(0.5), window(0.9)];
    await clock.advance(1_000);
    streams[0]?.say('hello');
    first.source.close();
    t.equal(open().length, 0);
    await clock.advance(1_000);
    t.equal(open().length, 1);
    streams[1]?.say('hello');
    await clock.advance(1);
    t.strictSame(second.heard, ['hello', 'hello']);
    t.strictSame(third.heard, ['hello', 'hello']);
    t.strictSame(first.heard, ['hello']);
  });

  t.test('two that took it at the same time agree on one with the next word', async (t) => {
    const { clock, streams, window, open, air } = set();
    air.isDead = true;
    window(0.5);
    window(0.4);
    await clock.advance(1_000);
    t.equal(open().length, 2);
    air.isDead = false;
    for (const stream of streams) stream.say('ping');
    await clock.advance(1);
    t.equal(open().length, 1);
    t.notOk(streams[0]?.isClosed, 'the one with the lower number was the first to take it');
  });

  t.test('a stream that breaks off is told to the one that has it; the others take over, each in its turn', async (t) => {
    const { clock, streams, window, open } = set();
    const [first, second] = [window(0.1), window(0.5)];
    await clock.advance(1_000);
    streams[0]?.say('hello');
    streams[0]?.say('error');
    await clock.advance(1);
    t.strictSame(first.heard, ['hello', 'error']);
    t.strictSame(second.heard, ['hello']);
    first.source.close();
    await clock.advance(1_000);
    streams[1]?.say('error');
    t.strictSame(second.heard, ['hello', 'error']);
    second.source.close();
    t.equal(open().length, 0);
  });
});

t.test('a number that cannot be read goes to the API as it was typed, to be refused in words, and never as nothing', async (t) => {
  const given = ['5', ' 0.5 ', '.5', '1.', '-2', '0,5', '1,000', '1_000', '10 per second', 'NaN', 'Infinity', '0x10', '1e3', ' '];
  t.strictSame(given.map(numberGiven), [
    5,
    0.5,
    0.5,
    1,
    -2,
    '0,5',
    '1,000',
    '1_000',
    '10 per second',
    'NaN',
    'Infinity',
    '0x10',
    '1e3',
    '',
  ]);
});

t.test('every page has a key, and keys that are not ours are left to the browser', async (t) => {
  t.strictSame([...new Set(Object.values(PAGE_KEYS))].sort(), [...PAGES].sort());
  t.equal(actionOf('b', false), 'red');
  t.strictSame(actionOf('j', false), { move: 1 });
  t.strictSame(actionOf('t', true), { go: 'topology' });
  t.equal(actionOf('t', false), null);
  for (const other of ['Tab', 'Enter', ' ', 'F5', 'x', 'constructor']) t.equal(actionOf(other, false), null, other);
  t.equal(actionOf('constructor', true), null);
});
