/**
 * Attacks on people who have signed in to the console, and on the page itself: what another page can make a browser send, what a
 * stolen cookie is good for, and where a path can lead. What is watched is the red button: nothing of an attack may be in force.
 */
import { createHmac } from 'node:crypto';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import t, { type Test } from 'tap';
import { realClock } from '../../base/clock.ts';
import { Operators } from '../../control-plane/api/operators.ts';
import { Sessions } from '../../control-plane/sessions/sessions.ts';
import { Code, codeEntry } from '../../proto/wire/codes.ts';
import { by, TestBrowser } from '../support/browser.ts';
import {
  asBrowser,
  type BrowserAnswer,
  type BrowserAsking,
  pageHeaders,
  sessionHeaders,
  type SignedIn,
  signIn,
} from '../support/browser-session.ts';
import { FakeSidecar, OPERATOR, Plane, settingsText, VIEWER } from '../support/control-plane.ts';
import { NatsServer } from '../support/nats.ts';
import { waitUntil } from '../support/settle.ts';
import { REACHED_NOTHING } from './words.ts';

t.setTimeout(60_000);

const ORDER = 'crm.order.query';
const nats = await NatsServer.start(t);
const plane = await Plane.start(t, nats);
await plane.leads();
const sidecar = await FakeSidecar.join(nats, 'order-a', { 'crm.order.a': [`${ORDER}@2.0.0`] });
await sidecar.hello();
const { url } = plane;

const PRESS = { target: { capability: ORDER }, reason: 'attack', wait: '0s' };
const evil = { origin: 'https://evil.example', 'sec-fetch-site': 'cross-site', 'sec-fetch-mode': 'no-cors' };

/** How many orders are in force; those of attacks would be among them. */
const inForce = (): string => JSON.stringify(plane.control.overrides.overrides.map(({ id }) => id));

/** What is tried is refused with this code, and no order has come of it. */
async function refused(
  t: Test,
  what: string,
  code: Code,
  asking: BrowserAsking & { readonly path?: string; readonly status?: number },
): Promise<BrowserAnswer> {
  const before = inForce();
  const answer = await asBrowser(url, asking.path ?? '/v1/overrides', { method: 'POST', json: PRESS, ...asking });
  t.equal(answer.json?.code, code, `refused with its code: ${what} (${String(answer.json?.detail)})`);
  t.equal(answer.status, asking.status ?? codeEntry(code).http, `and its status: ${what}`);
  t.equal(inForce(), before, `${REACHED_NOTHING}: ${what}, no order is in force`);
  return answer;
}

let ada: SignedIn;
t.before(async () => {
  ada = await signIn(url, OPERATOR);
});

t.test('rightful: whoever has signed in presses the red button and releases it', async (t) => {
  const headers = sessionHeaders(url, ada);
  const pressed = await asBrowser(url, '/v1/overrides', { json: PRESS, headers });
  t.equal(pressed.status, 201, String(pressed.json?.detail));
  t.equal(plane.control.overrides.overrides[0]?.author, 'ada', 'the order names who it was');
  const lifted = await asBrowser(url, `/v1/overrides/${String(pressed.json.id)}`, { method: 'DELETE', headers });
  t.equal(lifted.status, 200);
  t.equal(inForce(), '[]');
});

t.test('a form of another site, sent with the cookie, is refused', async (t) => {
  const { cookie } = ada;
  for (const type of ['application/x-www-form-urlencoded', 'text/plain', 'multipart/form-data; boundary=x'])
    await refused(t, type, Code.forbidden, { headers: { ...evil, cookie, 'content-type': type } });
  await refused(t, 'with the header of the session guessed', Code.forbidden, { headers: { ...evil, cookie, 'x-reach-csrf': 'x' } });
  // A page on another port of the same machine: of the same site, so the browser sends the cookie along.
  const near = { origin: 'http://127.0.0.1:9', 'sec-fetch-site': 'same-site' };
  await refused(t, 'a page on another port', Code.forbidden, { headers: { ...near, cookie, 'x-reach-csrf': ada.csrf } });
  await refused(t, 'an origin that is none', Code.forbidden, { headers: { origin: 'null', cookie, 'x-reach-csrf': ada.csrf } });
  await refused(t, 'a browser that says nothing of where it comes from', Code.forbidden, { headers: { cookie, 'x-reach-csrf': ada.csrf } });
  await refused(t, 'an address that was typed', Code.forbidden, {
    headers: { 'sec-fetch-site': 'none', cookie, 'x-reach-csrf': ada.csrf },
  });
});

t.test('a change without the word that only our page knows, or with a wrong one, is refused', async (t) => {
  const page = { ...pageHeaders(url), cookie: ada.cookie };
  await refused(t, 'none', Code.forbidden, { headers: page });
  await refused(t, 'an empty one', Code.forbidden, { headers: { ...page, 'x-reach-csrf': '' } });
  await refused(t, 'one that is cut', Code.forbidden, { headers: { ...page, 'x-reach-csrf': ada.csrf.slice(0, -1) } });
  const other = await signIn(url, OPERATOR);
  await refused(t, 'that of another session', Code.forbidden, { headers: { ...page, 'x-reach-csrf': other.csrf } });
  const viewer = await signIn(url, VIEWER);
  await refused(t, "a viewer's", Code.forbidden, { headers: { ...page, 'x-reach-csrf': viewer.csrf } });
  await refused(t, 'in the body', Code.forbidden, { headers: page, json: { ...PRESS, csrf: ada.csrf } });
  for (const method of ['PUT', 'DELETE'])
    await refused(t, method, Code.forbidden, { headers: page, method, path: `/v1/quotas/capability/${ORDER}` });
});

t.test('a viewer who presses the red button is refused, and the log names who it was', async (t) => {
  const vic = await signIn(url, VIEWER);
  const headers = sessionHeaders(url, vic);
  const { json } = await refused(t, 'a block', Code.forbidden, { headers });
  t.match(json.detail, /vic may look but not change/);
  await refused(t, 'an apply', Code.forbidden, { headers, path: '/v1/policies' });
  t.ok(
    plane.lines.some((line) => JSON.stringify(line).includes('"actor":"vic"') && JSON.stringify(line).includes('refused')),
    'it stands in the log',
  );
  t.equal((await asBrowser(url, '/v1/overview', { headers })).status, 200, 'looking is open');
});

t.test('a stolen cookie is worth nothing after its owner has signed out, on no replica', async (t) => {
  const second = await Plane.start(t, nats, 'cp-2');
  await second.follows();
  const victim = await signIn(url, OPERATOR);
  const headers = sessionHeaders(url, victim);
  t.equal(
    (await asBrowser(second.url, '/v1/session', { headers: { cookie: victim.cookie } })).status,
    200,
    'until then it is good there too',
  );
  const out = await asBrowser(url, '/v1/session', { method: 'DELETE', headers });
  t.match(out.json, { ended: true, on_all_replicas: true });
  await refused(t, 'at the same replica', Code.unauthenticated, { headers });
  const before = inForce();
  const status = async (): Promise<number> => (await asBrowser(second.url, '/v1/session', { headers: { cookie: victim.cookie } })).status;
  await waitUntil('the other one has heard of it', async () => (await status()) === 401, 5_000);
  const there = await asBrowser(second.url, '/v1/overrides', { json: PRESS, headers: sessionHeaders(second.url, victim) });
  t.equal(there.status, 401, 'at the other replica');
  t.equal(inForce(), before, `${REACHED_NOTHING}: at the other replica, no order is in force`);
  const third = await Plane.start(t, nats, 'cp-3');
  await third.follows();
  t.equal(
    (await asBrowser(third.url, '/v1/session', { headers: { cookie: victim.cookie } })).status,
    401,
    'nor at one that has been started since',
  );
});

t.test('a stolen cookie is worth nothing after its owner has ended all sessions, or the secret was changed', async (t) => {
  const [stolen, mine] = [await signIn(url, OPERATOR), await signIn(url, OPERATOR)];
  const out = await asBrowser(url, '/v1/session?everywhere=true', { method: 'DELETE', headers: sessionHeaders(url, mine) });
  t.equal(out.json?.ended, true);
  await refused(t, 'the other session of the same operator', Code.unauthenticated, { headers: sessionHeaders(url, stolen) });
  await new Promise((done) => setTimeout(done, 5));
  ada = await signIn(url, OPERATOR);
  t.equal((await asBrowser(url, '/v1/session', { headers: { cookie: ada.cookie } })).status, 200, 'one that is begun afterwards is good');
  const changed = settingsText('cp-9', nats.url).replace(OPERATOR, `${OPERATOR}-new`);
  const replica = await Plane.startWith(t, changed);
  t.equal(
    (await asBrowser(replica.url, '/v1/session', { headers: { cookie: ada.cookie } })).status,
    401,
    'where the secret is another one it is void',
  );
});

t.test('a cookie of another environment, or one that is made by hand, is refused', async (t) => {
  const operators = new Operators([{ name: 'ada', role: 'operator', token: OPERATOR }]);
  const there = new Sessions({ operators, env: 'other', sessionMs: 3_600_000, clock: realClock });
  const { session: foreign, cookie: value } = await there.begin({ name: 'ada', role: 'operator' });
  const as = (cookie: string): Record<string, string> => ({ ...pageHeaders(url), cookie, 'x-reach-csrf': foreign.csrf });
  await refused(t, 'under its own name', Code.unauthenticated, { headers: as(`${there.cookieName}=${value}`) });
  await refused(t, 'under our name', Code.unauthenticated, { headers: as(`reach-session-test=${value}`) });
  const own = ada.cookie.slice(ada.cookie.indexOf('=') + 1);
  const [name = '', begun = '', id = '', mac = ''] = own.split('.');
  const later = (Number.parseInt(begun, 36) + 60_000).toString(36);
  const hmac = createHmac('sha256', OPERATOR).update(`session ${name}.${begun}.${id}`).digest('base64url');
  for (const [what, forged] of [
    ['longer', `${name}.${later}.${id}.${mac}`],
    ['of somebody else', `vic.${begun}.${id}.${mac}`],
    ['of nobody', `eve.${begun}.${id}.${mac}`],
    ['without a signature', `${name}.${begun}.${id}.`],
    ['signed with the secret as it is', `${name}.${begun}.${id}.${hmac}`],
    ['with a part too many', `${own}.x`],
    ['named like a part of every object', `__proto__.${begun}.${id}.${mac}`],
    ['empty', ''],
  ] as const)
    await refused(t, what, Code.unauthenticated, { headers: { ...as(`reach-session-test=${forged}`), 'x-reach-csrf': ada.csrf } });
  await refused(t, 'twice, of which one is good', Code.unauthenticated, {
    headers: { ...as(`reach-session-test=x; reach-session-test=${own}`), 'x-reach-csrf': ada.csrf },
  });
});

t.test('a wrong secret beside a good cookie counts alone', async (t) => {
  await refused(t, 'wrong and right', Code.unauthenticated, { headers: { ...sessionHeaders(url, ada), authorization: 'Bearer wrong' } });
});

let browser: Promise<TestBrowser> | null = null;

/** Signs in as a person does. */
async function atConsole(outer: Test) {
  browser ??= TestBrowser.launch(t);
  const person = await (await browser).person();
  outer.teardown(() => person.close());
  const page = await person.newPage();
  page.setDefaultTimeout(20_000);
  await page.goto(`${url}/console/`);
  await page.locator(by('sign-in-token')).fill(OPERATOR);
  await page.locator(by('sign-in-submit')).click();
  await page.locator(by('who')).waitFor();
  return { person, page };
}

t.test('a page of another site, open in the same browser, gets nothing done and sees nothing', async (t) => {
  const before = inForce();
  const body = JSON.stringify(PRESS);
  // What a form sends as text/plain can be JSON, but for its equals sign, which is put into a text of it.
  const [head, tail] = [`${body.slice(0, -1)},"id":"`, '"}'];
  const html = `<iframe name="f" src="${url}/console/"></iframe><iframe name="g"></iframe>
    <form target="g" method="post" enctype="text/plain" action="${url}/v1/overrides"><input name='${head}' value='${tail}'></form>
    <script>
      document.forms[0].submit();
      const post = (headers, mode) => fetch('${url}/v1/overrides', { method: 'POST', credentials: 'include', mode, headers, body: ${JSON.stringify(body)} });
      const tries = [
        post({}, 'no-cors'),
        post({ 'content-type': 'application/json' }, 'cors'),
        fetch('${url}/v1/session', { credentials: 'include' }).then((r) => r.text()),
        fetch('${url}/v1/session', { method: 'DELETE', credentials: 'include' }),
      ];
      Promise.allSettled(tries).then((ends) => { window.__ends = ends.map(({ status, value }) => status + (typeof value === 'string' ? value : '')); });
    </script>`;
  const evilServer = createServer((_request, response) => void response.writeHead(200, { 'content-type': 'text/html' }).end(html));
  await new Promise<void>((done) => evilServer.listen(0, '127.0.0.1', done));
  t.teardown(() => {
    evilServer.closeAllConnections();
    evilServer.close();
  });
  const { port } = evilServer.address() as AddressInfo;
  const { person, page } = await atConsole(t);
  // Another site; and another port of this host, which is the same site to a browser, so that the cookie goes along.
  for (const host of ['localhost', '127.0.0.1']) {
    const trap = await person.newPage();
    await trap.goto(`http://${host}:${port}/`);
    await waitUntil('it has tried everything', async () => (await trap.evaluate('window.__ends')) !== undefined, 10_000, 20);
    const ends = await trap.evaluate<string[]>('window.__ends');
    t.notOk(
      ends.some((end) => end.includes('csrf')),
      `${host}: it has read nothing (${ends.join(', ')})`,
    );
    const framed = trap.frames().find((frame) => frame.name() === 'f');
    t.equal(await framed?.locator('#app').count(), 0, `${host}: and framed nothing`);
    await trap.close();
  }
  t.equal(inForce(), before, `${REACHED_NOTHING}: no order is in force`);
  await page.reload();
  await page.locator(by('who')).waitFor();
  t.match(await page.locator(by('who')).textContent(), /operator/, 'and the session goes on');
});

t.test('what others have written is text to the browser, and never runs', async (t) => {
  const html = '<img src=x onerror="window.__evil=1"><svg onload="window.__evil=1"></svg>';
  sidecar.agents = sidecar.agents.map(({ record, contracts }) => ({
    record,
    contracts: contracts.map((each) => ({ ...each, description: html })),
  }));
  await sidecar.hello();
  sidecar.report({ refused: [{ tail: html, seq: 1, why: html }], staleBecause: html });
  await plane.ask('/v1/quotas/agent/crm.front.x', { method: 'PUT', json: { calls_per_sec: 5, reason: html } });
  const set = await plane.ask('/v1/overrides', {
    json: { target: { agent: 'crm.nobody.x' }, reason: html, for: '5m', confirm: true, wait: '0s' },
  });
  t.equal(set.status, 201);
  const { page } = await atConsole(t);
  let seen = 0;
  for (const hash of ['overview', 'fleet', 'quotas', 'audit', `capability/${ORDER}`, `capability/${encodeURIComponent(html)}`]) {
    await page.goto(`${url}/console/#/${hash}`);
    await waitUntil('it is shown', async () => (await page.getByText('Asking for ').count()) === 0, 5_000, 20);
    if (String(await page.locator('body').textContent()).includes('<img src=x')) seen++;
  }
  t.ok(seen >= 4, `it is there, as text, on ${seen} pages`);
  t.equal(await page.locator('img[src="x"], svg[onload]').count(), 0);
  t.equal(await page.evaluate('window.__evil'), undefined, `${REACHED_NOTHING}: none of it ran`);
  await plane.ask(`/v1/overrides/${String(set.body['id'])}`, { method: 'DELETE' });
});

t.test('who guesses at sign-in is held up, and shuts out nobody who is right, at sign-in or as a program', async (t) => {
  const guess = (secret: string): Promise<BrowserAnswer> =>
    asBrowser(url, '/v1/session', { json: { token: secret }, headers: pageHeaders(url) });
  const before = inForce();
  const statuses: number[] = [];
  for (let i = 0; i < 14; i++) statuses.push((await guess(`guess-${i}`)).status);
  t.same([...new Set(statuses)], [401, 429]);
  const near = await guess(`${OPERATOR}x`);
  t.ok(Number(near.headers['retry-after']) >= 1);
  t.equal(near.headers['set-cookie'], undefined);
  t.same((await guess('guess-1')).json, near.json, 'a near one hears what a far one hears');
  t.equal((await guess(OPERATOR)).status, 201, 'the right one passes, from the same address');
  t.equal((await guess('guess-2')).status, 429, 'which gives guesses nothing');
  t.equal((await asBrowser(url, '/v1/session', { headers: { cookie: ada.cookie } })).status, 200, 'who is signed in stays so');
  t.equal((await plane.ask('/v1/providers')).status, 200, 'and programs go on');
  t.equal(inForce(), before, `${REACHED_NOTHING}: no order is in force`);
});

t.test('no page can frame the console, and none of another origin can read it', async (t) => {
  const before = inForce();
  for (const path of ['/console/', '/v1/session', '/v1/overview', '/nothing', '/console/nothing.js']) {
    const { headers } = await asBrowser(url, path, { headers: { cookie: ada.cookie } });
    t.equal(headers['x-content-type-options'], 'nosniff', path);
    t.equal(headers['cross-origin-resource-policy'], 'same-origin', path);
    t.equal(headers['access-control-allow-origin'], undefined, path);
  }
  const page = await asBrowser(url, '/console/', {});
  const policy = String(page.headers['content-security-policy']);
  t.match(policy, /default-src 'self'/);
  t.match(policy, /frame-ancestors 'none'/);
  t.notMatch(policy, /unsafe/);
  t.equal(page.headers['x-frame-options'], 'DENY');
  t.equal(page.headers['referrer-policy'], 'no-referrer');
  t.equal(page.headers['cross-origin-opener-policy'], 'same-origin');
  const frame = { 'sec-fetch-site': 'cross-site', 'sec-fetch-mode': 'navigate', 'sec-fetch-dest': 'iframe' };
  t.equal((await asBrowser(url, '/console/', { headers: frame })).status, 403, 'a frame of another site');
  const link = { 'sec-fetch-site': 'cross-site', 'sec-fetch-mode': 'navigate', 'sec-fetch-dest': 'document' };
  t.equal((await asBrowser(url, '/console/', { headers: link })).status, page.status, 'a link in a mail leads there');
  t.equal((await asBrowser(url, '/v1/export', { headers: { ...link, cookie: ada.cookie } })).status, 403, 'and to nothing else');
  t.equal(inForce(), before, `${REACHED_NOTHING}: no order is in force`);
});

t.test('no path leads out of the files of the console', async (t) => {
  const before = inForce();
  for (const path of [
    '/console/../package.json',
    '/console/..%2fpackage.json',
    '/console/%2e%2e/%2e%2e/package.json',
    '/console/..%5c..%5cpackage.json',
    '/console//etc/passwd',
    '/console/%2fetc%2fpasswd',
    '/console/....//....//etc/passwd',
    '/console/index.html%00.js',
    '/console/constructor',
    '/console/__proto__',
    '/console/../../../../../../etc/passwd',
  ]) {
    const { status, text } = await asBrowser(url, path);
    t.ok(status === 404 || status === 400, `${path}: ${status}`);
    t.notMatch(text, /root:|"dependencies"/, path);
  }
  t.equal(inForce(), before, `${REACHED_NOTHING}: no order is in force`);
});

t.test('a name that was bound to this address by somebody else gets nothing, cookie or not', async (t) => {
  for (const host of ['evil.example', 'evil.example:7800', '127.0.0.1.evil.example', 'localhost.evil.example']) {
    await refused(t, `Host ${host}`, Code.forbidden, { headers: { ...sessionHeaders(url, ada), host, origin: `http://${host}` } });
    const page = await asBrowser(url, '/console/', { headers: { host, 'sec-fetch-mode': 'navigate', 'sec-fetch-dest': 'document' } });
    t.equal(page.status, 403, 'nor the page');
  }
});

t.test('what is secret is refused in an address, and stands in no log and no answer', async (t) => {
  for (const path of [
    `/v1/overview?token=${OPERATOR}`,
    `/console/?access_token=${OPERATOR}`,
    `/nothing?token=${OPERATOR}`,
    `/?token=${OPERATOR}`,
    `/v1/session?token=${OPERATOR}`,
  ]) {
    const before = inForce();
    const { status, text, headers } = await asBrowser(url, path, { headers: { cookie: '' } });
    t.ok(status === 400 || status === 404, `${path.split('=', 1)[0] ?? ''}: ${status}`);
    t.notOk(text.includes(OPERATOR), 'not in the answer');
    t.notOk(JSON.stringify(headers).includes(OPERATOR), 'nor in its head');
    t.equal(inForce(), before, `${REACHED_NOTHING}: no order is in force`);
  }
  t.notOk(
    plane.lines.some((line) => JSON.stringify(line).includes(OPERATOR)),
    'not in the log',
  );
  t.notOk(
    plane.lines.some((line) => JSON.stringify(line).includes(ada.cookie.split('.').at(-1) as string)),
    'nor does a cookie',
  );
});
