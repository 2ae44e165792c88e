/** The live commands of reachctl against a server that says what it is told: `top` at a terminal and elsewhere, `trace --follow`, `tail`. */
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import t, { type Test } from 'tap';
import { realClock } from '../../../base/clock.ts';
import type { OverviewAnswer } from '../../../control-plane/overview/overview-shapes.ts';
import { runReachctl } from '../../../control-plane/cli/program.ts';
import { cutTo, isUnicode, paintFor, spell, type Terminal, widthFor, wrap } from '../../../control-plane/cli/terminal.ts';
import { sorted, topWords } from '../../../control-plane/cli/top-view.ts';
import { waitUntil } from '../../support/settle.ts';

const ROW = {
  capability: '',
  calls_per_s: 0,
  error_share: 0,
  p50_ms: 2,
  p95_ms: 10,
  p99_ms: 20,
  providers: 2,
  offline: 0,
  breakers_open: 0,
  in_flight: 0,
  spark: [0, 1, 4],
};
const OVERVIEW: OverviewAnswer = {
  at_ms: Date.UTC(2026, 0, 1, 12, 0, 0),
  replica: 'cp-1',
  leads: true,
  unknown: [],
  problems: [
    {
      severity: 'critical',
      kind: 'capability_failing',
      words: 'crm.order.query: 40 % of its calls fail\u001B[2J',
      capability: 'crm.order.query',
      agent: null,
      sidecar: null,
      trace_id: null,
      since_ms: null,
    },
  ] as unknown as OverviewAnswer['problems'],
  problems_total: 7,
  totals: {
    calls_per_s: 123.4,
    error_share: 0.1,
    p95_ms: 15,
    agents: 9,
    agents_offline: 1,
    capabilities: 3,
    sidecars: { current: 3, behind: 1, stale: 0, missing: 0 },
    messages: { waiting: 4, parked: 0, dead: 2, in_doubt: null, review: 0 },
  },
  capabilities: [
    { ...ROW, capability: 'crm.order.query', calls_per_s: 100, error_share: 0.4, breakers_open: 1, in_flight: 3 },
    { ...ROW, capability: 'kb.doc.search', calls_per_s: 23.4, p95_ms: 2_500, p99_ms: 9_000, offline: 1 },
    { ...ROW, capability: 'ai.reply.write', p50_ms: null, p95_ms: null, p99_ms: null },
  ],
};

/** A window of a terminal that remembers what was written and is typed into. */
class Window implements Terminal {
  columns = 120;
  rows = 30;
  written = '';
  #hear: (key: string) => void = () => {};
  open = 0;
  write(text: string): void {
    this.written += text;
  }
  keys(hear: (key: string) => void): () => void {
    this.#hear = hear;
    this.open++;
    return () => void this.open--;
  }
  resized(): () => void {
    return () => {};
  }
  type(key: string): void {
    this.written = '';
    this.#hear(key);
  }
  get plain(): string {
    return this.written.replaceAll(/\u001B\[[?\d;]*[A-Za-z]/g, '');
  }
}

type Answering = (request: IncomingMessage, response: ServerResponse) => void;

async function serverFor(t: Test, answering: Answering): Promise<string> {
  const server = createServer(answering).listen(0, '127.0.0.1');
  await new Promise<void>((done) => server.once('listening', () => done()));
  t.teardown(() => {
    server.closeAllConnections();
    server.close();
  });
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
}

const answer = (response: ServerResponse, body: unknown, status = 200): void => {
  response.writeHead(status, { 'content-type': 'application/json' }).end(JSON.stringify(body));
};

async function run(server: string, args: readonly string[], terminal?: Terminal, env: Readonly<Record<string, string>> = {}) {
  const out: string[] = [];
  const err: string[] = [];
  const io = {
    out: (text: string) => void out.push(text),
    err: (text: string) => void err.push(text),
    env: { REACH_SERVER: server, ...env },
    clock: realClock,
    stdin: async () => '',
  };
  const exit = await runReachctl(args, terminal === undefined ? io : { ...io, terminal }, '1');
  return { exit, out: out.join('\n'), err: err.join('\n') };
}

t.test('top, once: what is wrong first, then the capabilities; it fits, whatever the width', async (t) => {
  const asked: string[] = [];
  const server = await serverFor(t, ({ url }, response) => {
    asked.push(url ?? '');
    answer(response, OVERVIEW);
  });
  const { exit, out } = await run(server, ['top']);
  t.equal(exit, 0);
  t.match(asked, ['/v1/overview?limit=1000']);
  t.match(out, /^12:00:00 {2}123 calls\/s, 10% failed, P95 15ms {2}\(cp-1\)$/m);
  t.match(out, /^9 agents, 1 offline; 3 capabilities; 3 sidecars current, 1 not; messages: 4 waiting, 2 dead$/m);
  t.match(out, /^critical: crm\.order\.query: 40 % of its calls fail\\u001b\[2J$/m, 'nothing moves the cursor');
  t.match(out, /^and 6 more$/m);
  t.match(out, /^crm\.order\.query +100 +40% +2\.0ms +10ms +20ms +3 +2 +1 open/m);
  t.match(out, /^kb\.doc\.search +23\.4 +0% +2\.0ms +2\.50s +9\.00s +0 +1\/2 +-/m);
  t.match(out, /^ai\.reply\.write +0\.00 +- +- +- +- /m);
  t.notMatch(out, /\u001B/);
  for (const columns of [40, 60, 80, 100, 200]) {
    const narrow = await run(server, ['top', '--once'], Object.assign(new Window(), { columns }), { NO_COLOR: '1' });
    for (const line of narrow.out.split('\n')) t.ok(Array.from(line).length <= columns, `${columns}: ${line}`);
    t.match(narrow.out, /crm\.order\.query/);
  }
  t.match(JSON.parse((await run(server, ['top', '--json', '--capability', 'kb.*'])).out), { capabilities: { length: 1 } });
  t.match(await run(server, ['top', '--sort', 'colour']), { exit: 2, err: /Allowed choices/ });
  t.match(await run(server, ['top', '--interval', '1ms']), { exit: 2 });
});

t.test('top, sorted in each way', async (t) => {
  const first = (sort: Parameters<typeof sorted>[1]): string =>
    (sorted(OVERVIEW.capabilities, sort)[0] as { capability: string }).capability;
  t.equal(first('worst'), 'crm.order.query');
  t.equal(first('calls'), 'crm.order.query');
  t.equal(first('p95'), 'kb.doc.search');
  t.equal(first('p99'), 'kb.doc.search');
  t.equal(first('name'), 'ai.reply.write');
  t.equal(first('in_flight'), 'crm.order.query');
  const look = {
    width: 100,
    rows: 14,
    paint: (_: unknown, text: string) => text,
    unicode: false,
    sort: 'name',
    from: 1,
    note: 'keys',
  } as const;
  const words = topWords({ ...OVERVIEW, problems: [], problems_total: 0 }, look);
  t.notMatch(words, /ai\.reply/, 'scrolled past');
  t.match(words, /keys$/);
});

t.test('top at a terminal is a page of its own, obeys keys, lives through a replica that is away, and leaves as it came', async (t) => {
  let isAway = false;
  let looks = 0;
  const server = await serverFor(t, (request, response) => {
    looks++;
    if (isAway) request.socket.destroy();
    else answer(response, OVERVIEW);
  });
  const window = new Window();
  const running = run(server, ['top', '--interval', '500ms'], window);
  await waitUntil('it has the page', () => window.open === 1);
  t.match(window.written, /\u001B\[\?1049h.*CAPABILITY/s);
  t.match(window.plain, /by worst · q quit/);
  const order = (): string[] => [...window.plain.matchAll(/^(?:crm|kb|ai)\.\w+\.\w+/gm)].map(([name]) => name);
  window.type('n');
  t.same(order(), ['ai.reply.write', 'crm.order.query', 'kb.doc.search']);
  window.type('5');
  t.equal(order()[0], 'kb.doc.search');
  window.type('down');
  t.equal(order().length, 2);
  window.type('space');
  t.match(window.plain, /STOPPED/);
  window.type('space');
  isAway = true;
  await waitUntil('it says that it is old', () => /old: http.* cannot be reached/.test(window.plain), 5_000);
  isAway = false;
  const before = looks;
  await waitUntil('it looks again', () => looks > before && !/old:/.test(window.plain.slice(-400)), 5_000);
  window.type('ctrl-c');
  t.match(await running, { exit: 0, err: '' });
  t.equal(window.open, 0);
  t.match(window.written, /\u001B\[\?25h\u001B\[\?1049l$/, 'cursor and page are given back');
});

t.test('top that is left while a look is under way, or is refused, asks and writes nothing any more', async (t) => {
  const looks = { slow: 0, refused: 0 };
  let isGivenUp = false;
  let late: () => void = () => {};
  const slow = await serverFor(t, (request, response) => {
    if (++looks.slow === 1) return answer(response, OVERVIEW);
    request.socket.once('close', () => {
      isGivenUp = true;
    });
    late = () => answer(response, OVERVIEW);
  });
  const refusing = await serverFor(t, (_, response) =>
    ++looks.refused === 1 ? answer(response, OVERVIEW) : answer(response, { status: 403, detail: 'a viewer may not' }, 403),
  );
  const window = new Window();
  const other = new Window();
  const left = run(slow, ['top', '--interval', '500ms'], window);
  const refused = run(refusing, ['top', '--interval', '500ms'], other);
  await waitUntil('a look is under way', () => looks.slow === 2);
  window.type('q');
  t.match(await left, { exit: 0, err: '' });
  t.match(await refused, { exit: 1, err: /a viewer may not/ });
  t.strictSame([window.open, other.open], [0, 0]);
  await waitUntil('the look is given up', () => isGivenUp);
  late();
  const written = [window.written, other.written];
  // Longer than it waits between two looks.
  await new Promise<void>((done) => void realClock.after(700, done));
  t.strictSame([window.written, other.written], written, 'the shell is not written over');
  t.strictSame(looks, { slow: 2, refused: 2 });
});

t.test('a trace is followed while something is under way: drawn anew at a terminal, a line a span elsewhere', async (t) => {
  const span = (id: string, more: object = {}) => ({
    trace_id: 'ab'.repeat(16),
    span_id: id,
    parent_span_id: '',
    stage: 'outbound',
    start_ms: 1_000,
    elapsed_ms: 5,
    code: 0,
    capability: 'crm.order.query',
    caller: 'a.b.c',
    sidecar: 's',
    depth: 0,
    shown_start_ms: 1_000,
    self_ms: 5,
    ...more,
  });
  const trace = (spans: object[], more: object) => ({
    trace_id: 'ab'.repeat(16),
    start_ms: 1_000,
    elapsed_ms: 9,
    complete: false,
    gaps: [],
    under_way: [],
    orphans: 0,
    notes: [],
    why: [],
    spans,
    ...more,
  });
  const told = [
    null,
    trace([span('1')], { under_way: ['the message waits\u0007'] }),
    trace([span('1'), span('2', { depth: 1, stage: 'attempt', provider: 'a.b.d' })], { complete: true }),
  ];
  const follow = async (isTerminal: boolean): Promise<void> => {
    let asked = 0;
    const server = await serverFor(t, (_request, response) => {
      const next = told[Math.min(asked++, told.length - 1)] ?? null;
      if (next === null) answer(response, { status: 404, detail: 'no such trace', code: 4003 }, 404);
      else answer(response, next);
    });
    const window = new Window();
    const { exit, out } = await run(server, ['trace', 'ab'.repeat(16), '--follow'], isTerminal ? window : undefined);
    t.equal(exit, 0);
    if (isTerminal) {
      t.match(window.plain, /under way\n- the message waits\\u0007/);
      t.match(window.written, /\u001B\[\d+A\r/, 'in place of what was there');
      t.match(window.plain.trimEnd(), /└ at a\.b\.d +5\.0ms +ok.*$/);
    } else {
      t.match(out, /^\+ +0\.0ms +5\.0ms {2}a\.b\.c calls crm\.order\.query: ok$/m);
      t.match(out, /^\+ +0\.0ms +5\.0ms {4}at a\.b\.d: ok$/m);
      t.equal(out.match(/^\+.*a\.b\.c calls/gm)?.length, 1, 'each once');
      t.match(out, /complete$/m);
    }
  };
  await Promise.all([follow(false), follow(true)]);
});

t.test('tail says what was left out, comes back after a break, and counts', async (t) => {
  let streams = 0;
  const queries: string[] = [];
  const hop = {
    trace_id: 'ab'.repeat(16),
    span_id: '1',
    parent_span_id: '',
    stage: 'deliver',
    start_ms: 1_000,
    elapsed_ms: 5,
    code: 1003,
    detail: 'slow\u001B',
    capability: 'crm.order.query',
    caller: 'a.b.c',
    provider: 'a.b.d',
    sidecar: 's',
  };
  const server = await serverFor(t, ({ url }, response) => {
    queries.push(url ?? '');
    response.writeHead(200, { 'content-type': 'text/event-stream' });
    response.write(`event: hello\ndata: {}\n\nevent: hop\ndata: ${JSON.stringify(hop)}\n\n`);
    if (++streams === 1) response.end('event: left_out\ndata: {"count":12}\n\n');
  });
  const { exit, out, err } = await run(server, [
    'tail',
    '--failed',
    '--code',
    '1003',
    '--stage',
    'all',
    '--max-per-sec',
    '5',
    '--count',
    '2',
  ]);
  t.equal(exit, 0);
  t.equal(queries[0], '/v1/tail?code=1003&failed=1&stage=all&max_per_sec=5');
  t.equal(out.split('\n').length, 2);
  t.match(
    out,
    /^00:00:01\.005 {2}deliver a\.b\.c > crm\.order\.query at a\.b\.d {2}5\.0ms {2}1003 response_timeout: slow\\u001b {2}(?:ab){16}$/m,
  );
  t.match(err, /12 more were left out/);
  t.match(err, /the stream has ended; looking again/);
  const full = await serverFor(t, (_request, response) => {
    response.writeHead(200, { 'content-type': 'text/event-stream' });
    response.end('event: full\ndata: {"detail":"too many look on"}\n\n');
  });
  t.match(await run(full, ['tail']), { exit: 1, err: /too many look on/ });
});

t.test('text for a terminal', async (t) => {
  t.equal(cutTo('äöüß', 3), 'äö…');
  t.equal(wrap('one two three four', 9, '  '), 'one two\n  three\n  four');
  t.same([0.04, 12.4, 1_234, 12_345, 250_000, null].map(spell), ['0.0ms', '12ms', '1.23s', '12.3s', '4m 10s', '-']);
  t.equal(widthFor(undefined, { COLUMNS: '90' }), 90);
  t.equal(widthFor(undefined, {}), 120);
  t.equal(widthFor(Object.assign(new Window(), { columns: 10 }), {}), 40);
  t.equal(paintFor(new Window(), {})('bad', 'x'), '\u001B[31mx\u001B[0m');
  for (const env of [{ NO_COLOR: '1' }, { TERM: 'dumb' }]) t.equal(paintFor(new Window(), env)('bad', 'x'), 'x');
  t.equal(paintFor(undefined, {})('bad', 'x'), 'x');
  t.ok(isUnicode({ LANG: 'de_DE.UTF-8' }) && isUnicode({}));
  t.notOk(isUnicode({ LC_ALL: 'C', LANG: 'de_DE.UTF-8' }));
});
