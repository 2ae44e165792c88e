/** Sessions of people who have signed in, how often somebody may be wrong, and the console's files as a browser gets them. */
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { createServer, get } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { brotliDecompressSync } from 'node:zlib';
import t, { type Test } from 'tap';
import { VirtualClock } from '../../../base/virtual-clock.ts';
import { Operators } from '../../../control-plane/api/operators.ts';
import { Site } from '../../../control-plane/api/site.ts';
import { cookieIn, Sessions } from '../../../control-plane/sessions/sessions.ts';
import { networkOf, Tries } from '../../../control-plane/sessions/tries.ts';
import { asBrowser, pageHeaders, sessionHeaders, signIn } from '../../support/browser-session.ts';
import { OPERATOR, Plane, settingsText } from '../../support/control-plane.ts';
import { NatsServer } from '../../support/nats.ts';
import { waitUntil } from '../../support/settle.ts';

const HOUR_MS = 3_600_000;
const ADA = { name: 'ada', role: 'operator', token: 'one-of-ada' } as const;
const VIC = { name: 'vic', role: 'viewer', token: 'one-of-vic' } as const;

function sessionsOf(
  clock: VirtualClock,
  { operators = [ADA, VIC] as readonly { name: string; role: 'operator' | 'viewer'; token: string }[], env = 'test' } = {},
) {
  return new Sessions({ operators: new Operators(operators), env, sessionMs: HOUR_MS, clock });
}
const header = (sessions: Sessions, cookie: string): string => `theme=dark; ${sessions.cookieName}=${cookie}`;

t.test('a session is good at every replica of the same settings, for its time, and the role is looked up', async (t) => {
  const clock = new VirtualClock();
  const here = sessionsOf(clock);
  const { session, cookie } = await here.begin({ name: 'ada', role: 'operator' });
  t.match(session, { operator: { name: 'ada', role: 'operator' }, untilMs: session.begunMs + HOUR_MS });
  const there = await sessionsOf(clock).read(header(here, cookie));
  t.strictSame(there, session, 'nothing is stored: another replica knows it, and the same word for changes');
  const less = sessionsOf(clock, { operators: [{ ...ADA, role: 'viewer' }] });
  t.equal((await less.read(header(here, cookie)))?.operator.role, 'viewer', 'a role that was taken away is gone');
  await clock.advance(HOUR_MS - 1);
  t.not(await here.read(header(here, cookie)), null);
  await clock.advance(1);
  t.equal(await here.read(header(here, cookie)), null, 'over');
});

t.test('a session ends with its operator and with what he proves himself by, and is of one environment', async (t) => {
  const clock = new VirtualClock();
  const here = sessionsOf(clock);
  const { cookie } = await here.begin({ name: 'ada', role: 'operator' });
  t.equal(await sessionsOf(clock, { operators: [VIC] }).read(header(here, cookie)), null, 'taken out of the settings');
  t.equal(await sessionsOf(clock, { operators: [{ ...ADA, token: 'another' }] }).read(header(here, cookie)), null, 'replaced');
  const other = sessionsOf(clock, { env: 'other' });
  t.equal(await other.read(header(other, cookie)), null, 'another environment');
  t.equal(await here.read(header(other, cookie)), null);
});

t.test('what is ended is ended, and what others have ended is taken in, without end and without losing any', async (t) => {
  const clock = new VirtualClock();
  const [here, there] = [sessionsOf(clock), sessionsOf(clock)];
  const [one, two] = [await here.begin({ name: 'ada', role: 'operator' }), await here.begin({ name: 'ada', role: 'operator' })];
  here.end(one.session, false);
  t.equal(await here.read(header(here, one.cookie)), null);
  t.not(await there.read(header(here, one.cookie)), null, 'the other replica has not heard');
  there.take(JSON.parse(JSON.stringify(here.ended)));
  t.equal(await there.read(header(here, one.cookie)), null);
  t.not(await there.read(header(here, two.cookie)), null, 'and no more than that');
  there.end(two.session, true);
  here.take(there.ended);
  t.equal(await here.read(header(here, two.cookie)), null, 'all of them');
  await clock.advance(10);
  const three = await here.begin({ name: 'ada', role: 'operator' });
  t.not(await here.read(header(here, three.cookie)), null, 'one that is begun afterwards is good');
  for (let i = 0; i < 200; i++) here.end((await here.begin({ name: 'vic', role: 'viewer' })).session, false);
  const ids = Object.keys(here.ended['vic']?.ids ?? {});
  t.ok(ids.length <= 64, 'the list is bounded');
  t.ok((here.ended['vic']?.beforeMs ?? 0) > 0, 'by ending all of that operator: none is forgotten');
  t.not(await here.read(header(here, three.cookie)), null, 'which touches nobody else');
});

t.test('the cookie is for this host, for requests of its own pages, and for no script', (t) => {
  const sessions = sessionsOf(new VirtualClock());
  t.equal(sessions.setCookie('x', true), 'reach-session-test=x; Path=/; Max-Age=3600; HttpOnly; SameSite=Strict; Secure');
  t.equal(sessions.setCookie('', false), 'reach-session-test=; Path=/; Max-Age=0; HttpOnly; SameSite=Strict');
  t.equal(cookieIn('a=1; b=2', 'b'), '2');
  t.equal(cookieIn('a=1; b=2; b=3', 'b'), null, 'twice');
  t.equal(cookieIn('ab=1', 'b'), null);
  t.equal(cookieIn(undefined, 'b'), null);
  t.end();
});

t.test('wrong ones are bounded by address, and time makes them good', async (t) => {
  const clock = new VirtualClock();
  const tries = new Tries({ clock, burst: 3, perSec: 0.5 });
  for (let i = 0; i < 3; i++) t.equal(tries.wrong('10.0.0.1'), 0);
  t.equal(tries.wrong('10.0.0.1'), 2_000);
  t.equal(tries.wrong('10.0.0.2'), 0, 'others do not suffer');
  t.equal(tries.wrong('10.0.0.1'), 2_000, 'no deeper than empty');
  await clock.advance(2_000);
  t.equal(tries.wrong('10.0.0.1'), 0);
  for (const [address, network] of [
    ['::ffff:10.0.0.1', '10.0.0.1'],
    ['2001:db8:1:2:3:4:5:6', '2001:db8:1:2::/64'],
    ['2001:db8::1', '2001:db8:0:0::/64'],
    ['::1', '0:0:0:0::/64'],
    ['fe80::1%eth0', 'fe80:0:0:0::/64'],
  ] as const)
    t.equal(networkOf(address), network, address);
  while (tries.wrong('192.0.2.1') === 0);
  for (let i = 0; i < 20_000; i++) tries.wrong(`10.${i >> 16}.${(i >> 8) & 255}.${i & 255}`);
  t.equal(tries.wrong('192.0.2.1'), 0, 'a flood of addresses fills nothing: the oldest is forgotten');
});

t.test('a key that could not be made is made at the next attempt', async (t) => {
  const clock = new VirtualClock();
  let isBroken = true;
  const derive = (digest: Buffer): Promise<Buffer> => (isBroken ? Promise.reject(new Error('no memory')) : Promise.resolve(digest));
  const sessions = new Sessions({ operators: new Operators([ADA]), env: 'test', sessionMs: HOUR_MS, clock, derive });
  await t.rejects(sessions.begin({ name: 'ada', role: 'operator' }), /no memory/);
  isBroken = false;
  const { session, cookie } = await sessions.begin({ name: 'ada', role: 'operator' });
  t.strictSame(await sessions.read(header(sessions, cookie)), session);
});

/** As a browser gets it, still compressed. */
function bytesOf(t: Test, url: string): Promise<Buffer> {
  return new Promise((done, failed) => {
    const asked = get(url, { headers: { 'accept-encoding': 'gzip, br' }, agent: false }, (response) => {
      t.equal(response.headers['content-encoding'], 'br');
      const chunks: Buffer[] = [];
      response.on('data', (chunk: Buffer) => chunks.push(chunk)).on('end', () => done(Buffer.concat(chunks)));
    });
    asked.on('error', failed);
  });
}

t.test('the files of the console come from memory, compressed, with what lets a browser keep them', async (t) => {
  const folder = mkdtempSync(join(tmpdir(), 'reach-site-'));
  t.teardown(() => rmSync(folder, { recursive: true, force: true }));
  t.equal(Site.from(join(folder, 'nothing')), null);
  t.equal(Site.from(folder), null, 'without a page there is no console');
  writeFileSync(join(folder, 'index.html'), '<!doctype html><title>x</title>');
  mkdirSync(join(folder, 'assets'));
  writeFileSync(join(folder, 'assets', 'app-4K7QZ2XA.js'), `export default ${JSON.stringify('x'.repeat(20_000))};`);
  writeFileSync(join(folder, 'notes.md'), 'not for browsers');
  const site = Site.from(folder) as Site;
  const server = createServer((request, response) => {
    void site.serve((request.url ?? '').slice(1), request, response).then((isThere) => {
      if (!isThere) response.writeHead(404).end();
    });
  });
  await new Promise<void>((done) => server.listen(0, '127.0.0.1', done));
  t.teardown(() => server.close());
  const at = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  const page = await asBrowser(at, '/');
  t.equal(page.status, 200);
  t.equal(page.headers['cache-control'], 'no-cache');
  t.equal((await asBrowser(at, '/', { headers: { 'if-none-match': String(page.headers['etag']) } })).status, 304);
  const script = await fetch(`${at}/assets/app-4K7QZ2XA.js`, { headers: { 'accept-encoding': 'identity' } });
  t.equal(script.headers.get('cache-control'), 'public, max-age=31536000, immutable');
  t.equal(script.headers.get('content-type'), 'text/javascript; charset=utf-8');
  const plain = Buffer.from(await script.arrayBuffer());
  const small = await bytesOf(t, `${at}/assets/app-4K7QZ2XA.js`);
  t.ok(small.length < plain.length / 10);
  t.strictSame(brotliDecompressSync(small), plain);
  t.equal((await asBrowser(at, '/assets/app-4K7QZ2XA.js', { method: 'HEAD' })).text, '', 'HEAD has no body');
  t.equal((await asBrowser(at, '/notes.md')).status, 404);
});

t.test('signing in and out over HTTP: the cookie, who it is, what a follower does with an order, and the stream that ends', async (t) => {
  const nats = await NatsServer.start(t);
  const plane = await Plane.start(t, nats);
  await plane.leads();
  const follower = await Plane.start(t, nats, 'cp-2');
  await follower.follows();
  const { url } = follower;
  const ada = await signIn(url, OPERATOR);
  t.match(ada, { name: 'ada', role: 'operator' });
  t.notMatch(ada.setCookie, /Secure/);
  t.match((await signIn(url, OPERATOR, { 'x-forwarded-proto': 'https' })).setCookie, /; Secure$/, 'behind TLS it is for TLS alone');
  const headers = sessionHeaders(url, ada);
  t.match((await asBrowser(url, '/v1/session', { headers })).json, {
    name: 'ada',
    role: 'operator',
    csrf: ada.csrf,
    env: 'test',
    replica: 'cp-2',
  });
  const quota = { calls_per_sec: 5, reason: 'from a page' };
  const set = await asBrowser(url, '/v1/quotas/capability/crm.order.query', { method: 'PUT', json: quota, headers });
  t.equal(set.status, 200, `what only the leader does is carried there: ${set.text}`);
  t.match(plane.control.registry().operators().quotas.quotas, [{ target: 'crm.order.query', author: 'ada' }]);
  const told = await plane.ask('/v1/quotas', { method: 'GET' });
  t.equal(told.status, 200);
  t.equal((await follower.ask('/v1/quotas/capability/crm.order.query', { method: 'DELETE' })).status, 307, 'a program is still sent there');
  const stream = await fetch(`${url}/v1/live`, { headers: { cookie: ada.cookie } });
  t.equal(stream.headers.get('content-type'), 'text/event-stream');
  await stream.body?.cancel();
  t.equal((await asBrowser(url, '/v1/session', { headers: pageHeaders(url) })).status, 401);
  t.equal((await plane.ask('/v1/session')).status, 400, 'a program has no session');
  t.equal((await asBrowser(url, '/v1/session', { json: { token: '' }, headers: pageHeaders(url) })).status, 400);
  t.equal((await asBrowser(url, '/v1/session', { json: { token: 'x', more: 1 }, headers: pageHeaders(url) })).status, 400);
  const out = await asBrowser(url, '/v1/session', { method: 'DELETE', headers });
  t.match(out.json, { ended: true, on_all_replicas: true, why: null });
  t.match(String(out.headers['set-cookie']), /Max-Age=0/);
  const there = async (): Promise<number> => (await asBrowser(plane.url, '/v1/session', { headers: { cookie: ada.cookie } })).status;
  await waitUntil('the other replica has heard of it', async () => (await there()) === 401, 5_000);
  const off = await Plane.start(t, nats, 'cp-3', '  console: {enabled: false}\n');
  t.equal(
    (await asBrowser(off.url, '/v1/session', { json: { token: OPERATOR }, headers: pageHeaders(off.url) })).status,
    404,
    'turned off',
  );
  t.equal((await asBrowser(off.url, '/console/')).status, 404);
  t.notOk(off.said(/can be guessed/));
  const weak = await Plane.startWith(t, settingsText('cp-4', nats.url).replace(OPERATOR, 'a-short-one'));
  t.ok(weak.said(/of operator ada has fewer than 16 characters: it can be guessed/), 'since guesses do not shut out who is right');
  t.equal((await asBrowser(url, '/')).headers['location'], 'console/', 'the way to it holds behind a path of a proxy as well');
});
