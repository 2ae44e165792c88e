/** The port of a replica without NATS: wrong credentials beside right ones, and what becomes of what only the leader answers. */
import { createServer, type RequestListener } from 'node:http';
import type { AddressInfo } from 'node:net';
import t, { type Test } from 'tap';
import { createLog } from '../../../base/log.ts';
import { VirtualClock } from '../../../base/virtual-clock.ts';
import { Operators } from '../../../control-plane/api/operators.ts';
import { json, type Route } from '../../../control-plane/api/route.ts';
import { ApiPort, type LeaderView } from '../../../control-plane/api/server.ts';
import type { Audit } from '../../../control-plane/audit/audit.ts';
import { Sessions } from '../../../control-plane/sessions/sessions.ts';
import { Code } from '../../../proto/wire/codes.ts';
import { asBrowser, type BrowserAnswer, pageHeaders } from '../../support/browser-session.ts';
import { OPERATOR, VIEWER } from '../../support/control-plane.ts';

const ADA = { name: 'ada', role: 'operator', token: OPERATOR } as const;
const VIC = { name: 'vic', role: 'viewer', token: VIEWER } as const;

interface Rig {
  readonly url: string;
  readonly clock: VirtualClock;
  readonly refusals: { readonly code: number }[];
  leader: LeaderView;
  /** Ends of what has been begun at `/v1/dear`. */
  readonly dear: readonly (() => void)[];
  /** Of the page that has signed in. */
  readonly headers: Readonly<Record<string, string>>;
  bearer(token: string): Promise<BrowserAnswer>;
  /** As a page that has signed in. */
  page(method: 'GET' | 'POST'): Promise<BrowserAnswer>;
}

async function start(t: Test, leaderUrl: string | null = null): Promise<Rig> {
  const clock = new VirtualClock();
  const operators = new Operators([ADA, VIC]);
  const sessions = new Sessions({ operators, env: 'test', sessionMs: 3_600_000, clock });
  const refusals: { readonly code: number }[] = [];
  const audit = {
    refusedRequest: (said: { readonly code: number }) => void refusals.push(said),
    order: () => undefined,
  } as unknown as Audit;
  const route = (method: 'GET' | 'POST', path: string, onLeader: boolean): Route => ({
    method,
    path,
    role: 'viewer',
    onLeader,
    summary: '',
    answer: { status: 200, doc: '' },
    handle: () => json({ done: true }),
  });
  const rig = { dear: [] as (() => void)[], leader: { isLeading: false, url: leaderUrl } as LeaderView };
  const port = new ApiPort(
    {
      listen: { host: '127.0.0.1', port: 0 },
      allowedHosts: [],
      bodyBytes: 65_536,
      connections: 100,
      operators,
      sessions,
      site: null,
      leader: () => rig.leader,
      clock,
      logger: createLog({ level: 'silent', to: { write: () => undefined }, service: 'x' }).logger,
      audit,
      count: () => undefined,
    },
    [
      route('GET', '/v1/look', false),
      route('GET', '/v1/only', true),
      route('POST', '/v1/only', true),
      { ...route('POST', '/v1/open', false), role: 'open' },
      {
        ...route('POST', '/v1/dear', false),
        isDear: true,
        body: { contentType: 'application/yaml', doc: '', schema: {}, maxBytes: 1_000 },
        handle: () => new Promise((done) => rig.dear.push(() => done(json({ done: true })))),
      },
    ],
  );
  await port.open();
  t.teardown(async () => {
    const closing = port.close(1_000);
    await clock.advance(1_100);
    await closing;
  });
  const { url } = port;
  const { session, cookie } = await sessions.begin({ name: 'ada', role: 'operator' });
  const headers = { ...pageHeaders(url), cookie: `${sessions.cookieName}=${cookie}`, 'x-reach-csrf': session.csrf };
  return Object.assign(rig, {
    url,
    clock,
    refusals,
    headers,
    bearer: (token: string) => asBrowser(url, '/v1/look', { headers: { authorization: `Bearer ${token}` } }),
    page: (method: 'GET' | 'POST') => asBrowser(url, '/v1/only', { method, headers }),
  });
}

async function listen(t: Test, handler: RequestListener): Promise<string> {
  const server = createServer(handler);
  await new Promise<void>((done) => server.listen(0, '127.0.0.1', done));
  t.teardown(() => server.close());
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
}

t.test('who guesses is told to wait, and shuts out nobody of the same address', async (t) => {
  const rig = await start(t);
  for (let i = 0; i < 20; i++) await Promise.all(Array.from({ length: 50 }, () => rig.bearer('wrong')));
  t.equal(rig.refusals.filter(({ code }) => code === Code.unauthenticated).length, 1_000);
  const over = await rig.bearer('wrong');
  t.equal(over.status, 429);
  t.equal(over.headers['retry-after'], '1');
  t.equal(rig.refusals.at(-1)?.code, Code.rate_limited, 'and is counted still');
  t.equal((await rig.bearer(OPERATOR)).status, 200);
  t.equal((await rig.bearer(`${OPERATOR}x`)).status, 429);
  await rig.clock.advance(100);
  t.equal((await rig.bearer('wrong')).status, 401);
});

t.test(
  'an order whose answer is lost may have been carried out; one that never left has not, and a question may be asked again',
  async (t) => {
    const gone = await new Promise<string>((done) => {
      const server = createServer().listen(0, '127.0.0.1', () => {
        const { port } = server.address() as AddressInfo;
        server.close(() => done(`http://127.0.0.1:${port}`));
      });
    });
    const rig = await start(t, gone);
    const unsent = await rig.page('POST');
    t.match(unsent, { status: 503, headers: { 'retry-after': '1' }, json: { code: Code.delivery_unavailable, ambiguous: false } });
    t.match(unsent.json.detail, new RegExp(`no answer came from the one that does, at ${gone} \\(ECONNREFUSED\\): nothing was changed`));
    let seen = 0;
    const cuts = await listen(t, (request) => {
      seen++;
      request.resume().on('end', () => request.socket.destroy());
    });
    rig.leader = { isLeading: false, url: cuts };
    const lost = await rig.page('POST');
    t.equal(seen, 1);
    t.match(lost, { status: 502, json: { code: Code.connection_lost, ambiguous: true, retryable: false } });
    t.equal(lost.headers['retry-after'], undefined);
    t.match(lost.json.detail, /its answer was lost \(ECONNRESET\)\. It may have been carried out: look before you repeat it/);
    t.match(await rig.page('GET'), { status: 503, headers: { 'retry-after': '1' }, json: { ambiguous: false } });
    rig.leader = { isLeading: false, url: await listen(t, (_request, response) => void response.end('{"there":true}')) };
    t.match(await rig.page('POST'), { status: 200, json: { there: true } });
  },
);

t.test('a page that knows nothing of the session there is may sign in, and change nothing', async (t) => {
  const rig = await start(t);
  const { 'x-reach-csrf': _csrf, ...headers } = rig.headers;
  const ask = (path: string, more: Record<string, string> = {}) =>
    asBrowser(rig.url, path, { method: 'POST', headers: { ...headers, ...more }, json: {} });
  t.equal((await ask('/v1/open')).status, 200);
  t.equal((await ask('/v1/only')).status, 403);
  t.equal(
    (await ask('/v1/open', { origin: 'http://elsewhere', 'sec-fetch-site': 'cross-site' })).status,
    403,
    'from another site nobody may',
  );
});

t.test('what takes long is done one after the other, by turns, and leaves as long in between', async (t) => {
  const rig = await start(t);
  const judge = (token: string, body = 'x') => asBrowser(rig.url, '/v1/dear', { headers: { authorization: `Bearer ${token}` }, body });
  const asked = [judge(OPERATOR)];
  while (rig.dear.length === 0) await new Promise((done) => setImmediate(done));
  for (let i = 0; i < 16; i++) {
    asked.push(judge(OPERATOR));
    // Each is there before the next one is asked: their order counts below.
    await rig.bearer(OPERATOR);
  }
  const over = await judge(OPERATOR);
  t.equal(over.status, 429, 'one operator may have so many, and no more');
  t.equal(over.headers['retry-after'], '1');
  t.equal((await rig.bearer(OPERATOR)).status, 200, 'nothing else waits');
  const other = judge(VIEWER);
  await rig.bearer(OPERATOR);
  for (const [i, each] of [asked[0], asked[1], other, asked[2]].entries()) {
    t.equal(rig.dear.length, i + 1);
    await rig.clock.advance(700);
    rig.dear[i]?.();
    t.equal((await each)?.status, 200, 'who asks once comes right after the next of who asks without end');
    await rig.clock.advance(699);
    t.equal(rig.dear.length, i + 1, 'as long as it took, the next one waits');
    await rig.clock.advance(1);
  }
  for (let i = 4; i < 18; i++) {
    rig.dear[i]?.();
    await asked[i - 1];
    await rig.clock.advance(0);
  }
  t.match(await judge(OPERATOR, 'x'.repeat(1_001)), { status: 413, text: /above the limit of 1000 bytes/ });
});

t.test('an address of the leader that leads to a replica which does not lead is named, with what to set', async (t) => {
  const rig = await start(t);
  rig.leader = { isLeading: false, url: rig.url };
  const { status, json: problem } = await rig.page('POST');
  t.equal(status, 503);
  t.match(problem.detail, new RegExp(`was carried to ${rig.url}, .* api\\.public_url must be each replica's own`));
  rig.leader = { isLeading: false, url: null };
  t.match((await rig.page('POST')).json.detail, /no replica leads at present/);
});
