/**
 * The console in a real Chromium, as a person meets it who was called because something is wrong: sign in, see what it is, look at a
 * call that failed, press the red button, see it in force, and release it. With a real nats-server, control plane, two sidecars and
 * agents of which one fails.
 */
import type { BrowserContext, Page } from 'playwright-core';
import t, { type Test } from 'tap';
import { type Clock, realClock } from '../../base/clock.ts';
import { DIGEST_EVERY_MS } from '../../proto/wire/digests.ts';
import { TestAgent } from '../support/agent.ts';
import { signIn } from '../support/browser-session.ts';
import { by, shoot, TestBrowser, type Watched, watched } from '../support/browser.ts';
import { FakeSidecar, OPERATOR, VIEWER } from '../support/control-plane.ts';
import { digestOf } from '../support/digests.ts';
import { Fleet, knows } from '../support/fleet.ts';
import type { Answer, Rig } from '../support/rig.ts';
import { waitUntil } from '../support/settle.ts';

t.setTimeout(110_000);

const QUERY = 'crm.order.query';
const REFUND = 'crm.refund.apply';
/** Whatever is shown as anything but text sets this, or loads that. */
const EVIL = '<img src=x onerror="window.__evil=1"><script>window.__evil=1</script>';
const PAGES = [
  'overview',
  'topology',
  'capabilities',
  'agents',
  'traces',
  'messages',
  'rules',
  'quotas',
  'shifts',
  'fleet',
  'alerts',
  'audit',
];

/** What sidecars tell each ten seconds or five they tell here in a tenth of it; all else takes the time that it takes. */
const hurried: Clock = {
  now: () => realClock.now(),
  wallMs: () => realClock.wallMs(),
  after: (delayMs, fire) => realClock.after(delayMs <= DIGEST_EVERY_MS && delayMs > 1_500 ? delayMs / 10 : delayMs, fire),
};

function tableOf(sidecar: string, agent: string, offer: string, url: string): string {
  return `contracts:
  - name: ${offer}
    version: 1.0.0
    description: ${JSON.stringify(`${offer} ${EVIL}`)}
    acl: public
    execution: idempotent
    breaker: {enabled: false}
providers:
  - {agent_id: ${agent}, offers: [${offer}@1.0.0], via: ${sidecar}, endpoint: {type: http, address: "${url}"}}
`;
}

let fleet: Fleet;
let one: Rig;
let browser: TestBrowser;
let url: string;
/** Of every page that was opened. */
const watching: Watched[] = [];

const call = (target: string, payload: unknown = {}): Promise<Answer> => one.invoke(target, { payload });

async function opened(person: BrowserContext, path = '/console/'): Promise<Page> {
  const page = await person.newPage();
  page.setDefaultTimeout(20_000);
  watching.push(watched(page, url));
  await page.goto(`${url}${path}`, { waitUntil: 'commit' });
  return page;
}

/** A page of somebody who has signed in before: how that is done is shown once, and by keyboard. */
async function signedIn(options: Parameters<TestBrowser['person']>[0] = {}, secret = OPERATOR): Promise<Page> {
  const person = await browser.person(options);
  const { cookie } = await signIn(url, secret);
  const [name, value] = cookie.split('=', 2) as [string, string];
  await person.addCookies([{ name, value, url, httpOnly: true, sameSite: 'Strict' }]);
  const page = await opened(person);
  await page.locator(by('who')).waitFor();
  return page;
}

/** Wider than the window: somebody would have to scroll sideways. */
const sideways = (page: Page): Promise<number> =>
  page.evaluate('document.documentElement.scrollWidth - document.documentElement.clientWidth');

/** All that is shown has been answered. */
const settled = (page: Page): Promise<void> =>
  waitUntil('the page has its answers', async () => (await page.getByText('Asking for ').count()) === 0, 15_000, 20);

/** By the page's own clock. */
const usable = (page: Page): Promise<void> =>
  waitUntil('the page is usable', async () => (await page.evaluate('window.__usableMs')) !== undefined, 15_000, 20);

t.before(async () => {
  const launching = TestBrowser.launch(t);
  fleet = await Fleet.start(t);
  ({ url } = fleet.plane);
  const good = await TestAgent.listen('good');
  const bad = await TestAgent.listen('bad', ({ json }) =>
    (json as { fail?: boolean }).fail === true ? { status: 500, body: { error: `no such account ${EVIL}` } } : { body: { ok: true } },
  );
  t.teardown(() => Promise.all([good.close(), bad.close()]).then(() => undefined));
  [one] = await Promise.all([
    fleet.sidecar('one', tableOf('one', 'crm.order.1', QUERY, good.url), '', { clock: hurried }),
    fleet.sidecar('two', tableOf('two', 'crm.refund.1', REFUND, bad.url), '', { clock: hurried }),
  ]);
  await Promise.all([knows(one, REFUND), knows(one, QUERY)]);
  for (let i = 0; i < 30; i++) {
    await call(QUERY);
    await call(REFUND, { fail: i % 2 === 0 });
  }
  browser = await launching;
});

t.test('whoever has no place here is asked who he is, and a wrong answer is refused in words', async (t) => {
  const page = await opened(await browser.person());
  await page.locator(by('sign-in-token')).fill('nobody');
  await page.locator(by('sign-in-submit')).click();
  t.match(await page.locator(by('sign-in-error')).textContent(), /no operator/);
  await shoot(page, 'sign-in');
  await page.locator(by('sign-in-token')).fill(OPERATOR);
  await page.locator(by('sign-in-submit')).click();
  await page.locator(by('who')).waitFor();
  t.match(await page.locator(by('who')).textContent(), /ada.*operator/, 'and a right one lets in');
  await page.context().close();
});

t.test('two clicks lead from what is wrong to the call that failed; the red button stops it, and releasing lets it go on', async (t) => {
  const page = await signedIn();
  // Once both sidecars have told of all of it.
  const problem = page.locator(by('problem', '[data-kind="failing"]'), { hasText: '15 of 30 calls' }).first();
  await problem.waitFor();
  t.match(
    await problem.textContent(),
    /15 of 30 calls of crm\.refund\.apply failed in the last 3 minutes \(50 %\), all with 6001 provider_error/,
  );
  t.equal(await problem.getAttribute('data-severity'), 'critical');
  t.equal(await page.locator(by('problem')).first().getAttribute('data-kind'), 'failing', 'what is worst stands first');
  t.equal(await page.locator(by('capability-row')).first().getAttribute('data-name'), REFUND, 'and so does its line');
  await shoot(page, 'overview');
  await problem.locator(by('problem-capability')).click();
  await page.locator(by('capability-head')).waitFor();
  t.equal(await page.locator(by('capability-head')).textContent(), REFUND, 'the first click');
  await page.locator(by('provider-row', '[data-name="crm.refund.1"]')).waitFor();
  await shoot(page, 'capability');
  await page.locator(by('failure-link')).first().click();
  await page.locator(by('timeline')).waitFor();
  await page.locator(by('trace-complete')).waitFor();
  const stages = await page.locator(by('span-row')).evaluateAll((rows) => rows.map((row) => row.getAttribute('data-stage')));
  t.same(stages, ['outbound', 'attempt', 'inbound', 'attempt'], 'the second click: the call over both sidecars, whole');
  t.match(await page.locator(by('trace-why')).textContent(), /crm\.refund\.1/, 'why it went there');
  t.equal(await page.locator(by('span-row', '[data-code="6001"]')).count(), 4);
  await shoot(page, 'trace');

  await page.goBack();
  await page.locator(by('red-here-block')).click();
  await page.locator(by('red-reason')).fill(`it is down ${EVIL}`);
  await page.locator(by('red-for')).selectOption('30m');
  await page.locator(by('red-next')).click();
  t.match(await page.locator(by('red-hits')).textContent(), /1 capability \(crm\.refund\.apply\)/, 'what it would hit is shown before');
  t.equal((await call(REFUND)).status, 200, 'and nothing has happened yet');
  await page.locator(by('confirm')).click();
  await page.locator(by('red-progress', '[data-in-force="2"][data-of="2"]')).waitFor();
  await shoot(page, 'red-button');
  const refused = await call(REFUND);
  t.equal(refused.json.code, 2006, `a real call is refused: ${refused.bytes.toString('utf8')}`);
  t.match(refused.json.error?.detail ?? '', /it is down/);
  t.equal((await call(QUERY)).status, 200, 'and no other');

  const row = page.locator(`${by('red-panel')} ${by('override-row')}`).first();
  t.match(await row.textContent(), /ada/);
  t.ok((await row.textContent())?.includes(EVIL), 'what somebody has written is text');
  t.equal(await page.evaluate('window.__evil'), undefined, 'and never runs');
  t.equal(await page.locator('img[src="x"]').count(), 0);
  await row.locator(by('lift')).click();
  await page
    .locator(`dialog ${by('confirm')}`)
    .last()
    .click();
  await waitUntil('it is lifted', () => fleet.plane.control.overrides.overrides.length === 0, 5_000);
  await waitUntil('calls work again', async () => (await call(REFUND)).status === 200, 3_000);
  await page.context().close();
});

t.test('what changes is shown without anybody asking for it, and only what has changed', async (t) => {
  const page = await signedIn();
  await page.locator(by('live-state', '[data-state="live"]')).waitFor();
  await page.evaluate('window.__same = 1');
  const set = await fleet.plane.ask('/v1/overrides', { json: { target: { capability: QUERY }, reason: 'by somebody else', for: '5m' } });
  await page.locator(by('problem', '[data-kind="override"]')).waitFor();
  t.match(await page.locator(by('problem', '[data-kind="override"]')).textContent(), /by somebody else/);
  await fleet.plane.ask(`/v1/overrides/${String(set.body['id'])}`, { method: 'DELETE' });
  await page.locator(by('problem', '[data-kind="override"]')).waitFor({ state: 'detached' });
  t.equal(await page.evaluate('window.__same'), 1, 'the page was not loaded anew');
  await page.locator(by('sign-out')).click();
  await page.locator(by('sign-in-token')).waitFor();
  await page.reload();
  await page.locator(by('sign-in-token')).waitFor();
  t.equal(await page.locator(by('who')).count(), 0, 'who has signed out is out, also after loading anew');
  t.equal(await page.evaluate("fetch('/v1/session').then((answer) => answer.status)"), 401);
  await page.context().close();
});

t.test('an order whose answer is lost is found when it stands, and stays one order when it is pressed again', async (t) => {
  const page = await signedIn();
  const seen = watching.at(-1) as Watched;
  const held = () => fleet.plane.control.overrides.overrides;
  const ready = async (why: string): Promise<void> => {
    await page.goto(`${url}/console/#/capability/${REFUND}`);
    await page.locator(by('red-here-block')).click();
    await page.locator(by('red-reason')).fill(why);
    await page.locator(by('red-next')).click();
    await page.locator(by('red-hits')).waitFor();
  };
  const names: unknown[] = [];
  /** The order itself comes through or not; its answer never does. */
  const losing = async (isCarriedOut: boolean): Promise<void> => {
    await page.unroute('**/v1/overrides');
    await page.route('**/v1/overrides', async (route, request) => {
      if (request.method() !== 'POST') return route.continue();
      names.push((request.postDataJSON() as { id?: unknown }).id);
      if (isCarriedOut) await route.fetch();
      await route.abort();
    });
  };
  await ready('the answer is lost');
  await losing(true);
  await page.locator(by('confirm')).click();
  await page.locator(by('red-progress', '[data-in-force="2"]')).waitFor();
  t.same(
    held().map(({ id }) => id),
    names,
    'it stands, and is shown as such',
  );
  await page.unroute('**/v1/overrides');
  await page.reload();
  await ready('the order is lost');
  await losing(false);
  await page.locator(by('confirm')).click();
  await page.locator(`${by('red-panel')} ${by('page-problem')}`, { hasText: 'Pressing again is safe' }).waitFor();
  t.equal(held().length, 1);
  // Closed and opened again, for the same.
  await page.keyboard.press('Escape');
  await page.unroute('**/v1/overrides');
  await ready('the order is lost');
  await losing(true);
  await page.locator(by('confirm')).click();
  await page.locator(by('red-progress')).waitFor();
  t.equal(held().length, 2);
  t.equal(names[1], names[2], 'the same order');
  for (const { id } of held()) await fleet.plane.ask(`/v1/overrides/${id}`, { method: 'DELETE' });
  await page.context().close();
  // What was broken on purpose the browser calls an error.
  t.same(
    seen.errors.splice(0).filter((words) => !words.includes('Failed to load resource')),
    [],
  );
});

t.test('any number of windows of one browser are told, and the red button works in each', async (t) => {
  const first = await signedIn();
  const others = await Promise.all(Array.from({ length: 5 }, () => opened(first.context())));
  const last = await opened(first.context());
  const seen = watching.at(-1) as Watched;
  const pages = [first, ...others, last];
  await Promise.all(pages.map((page) => page.locator(by('live-state', '[data-state="live"]')).waitFor()));
  await fleet.plane.ask('/v1/overrides', { json: { target: { capability: QUERY }, reason: 'in all windows', for: '5m' } });
  const shown = by('problem', '[data-kind="override"]');
  await Promise.all(pages.map((page) => page.locator(shown).waitFor()));

  // Somebody signs in anew in the first one, and most are closed: among them the one that has the stream for all, or had it before.
  const status = await first.evaluate(`fetch('/v1/session', { method: 'POST', headers: { 'content-type': 'application/json' },
    body: JSON.stringify({ token: '${OPERATOR}' }) }).then((answer) => answer.status)`);
  t.equal(status, 201, 'a page that knows nothing of the session there is may sign in');
  await Promise.all(pages.slice(0, 4).map((page) => page.goto('about:blank')));
  // The last one says so, and goes on as who it is now.
  await last.bringToFront();
  await last.locator(by('red-button')).click();
  await last.locator(by('lift')).first().click();
  await last.locator(by('confirm')).last().click();
  await last.locator(by('page-problem')).getByText('signed in anew meanwhile').waitFor();
  t.match(seen.errors.splice(0).join(), /403/);
  await last.locator(by('confirm')).last().click();
  await last
    .locator(`${by('red-panel')} ${by('said')}`)
    .getByText('Lifted')
    .waitFor();
  t.equal(await last.locator(by('said')).count(), 1, 'it is said in the uppermost window alone');
  await Promise.all(pages.slice(4).map((page) => page.locator(shown).waitFor({ state: 'detached' })));
  await last.context().close();
});

t.test('a viewer sees everything and is offered nothing', async (t) => {
  const page = await signedIn({}, VIEWER);
  t.match(await page.locator(by('who')).textContent(), /vic.*viewer/);
  await page.locator(by('red-button')).click();
  await page.locator(`${by('red-panel')} ${by('viewer-note')}`).waitFor();
  t.equal(await page.locator(by('red-next')).count(), 0);
  await page.keyboard.press('Escape');
  await page.goto(`${url}/console/#/capability/${REFUND}`);
  await page.locator(by('provider-row')).first().waitFor();
  t.equal(await page.locator(by('red-here-block')).count(), 0);
  await page.context().close();
});

t.test('everything can be done by keyboard alone', async (t) => {
  const page = await opened(await browser.person());
  await page.locator(by('sign-in-token')).waitFor();
  const { keyboard } = page;
  await keyboard.type(OPERATOR);
  await keyboard.press('Enter');
  await page.locator(by('who')).waitFor();
  await keyboard.press('g');
  await keyboard.press('c');
  // The overview has such rows too: only once the other page is there, keys are meant for it.
  await page.locator(by('nav-capabilities', '[aria-current="page"]')).waitFor();
  await page.locator(by('capability-row')).first().waitFor();
  await keyboard.press('/');
  await keyboard.type('refund');
  await keyboard.press('Escape');
  await page.locator(by('capability-row', `[data-name="${QUERY}"]`)).waitFor({ state: 'detached' });
  await keyboard.press('j');
  await keyboard.press('Enter');
  await page.locator(by('capability-head')).waitFor();
  t.equal(await page.locator(by('capability-head')).textContent(), REFUND);
  await keyboard.press('b');
  await page.locator(by('red-panel')).waitFor();
  await keyboard.press('Escape');
  await page.locator(by('red-panel')).waitFor({ state: 'detached' });
  await keyboard.press('?');
  await page.locator('dialog[open]').waitFor();
  await shoot(page, 'keys');
  await keyboard.press('Escape');
  await keyboard.press('g');
  await keyboard.press('o');
  await page.locator(by('problem')).first().waitFor();
  // What a row is about keeps the focus, whatever its figures say.
  await page
    .locator(`${by('problem')} ${by('problem-capability')}`)
    .first()
    .focus();
  await page.evaluate('window.__held = document.activeElement');
  const said = async (): Promise<string> => (await page.locator(`${by('problem')} .problem-words`).allTextContents()).join();
  const words = await said();
  await waitUntil(
    'a figure has changed',
    async () => {
      await Promise.all(Array.from({ length: 5 }, () => call(REFUND, { fail: true })));
      return (await said()) !== words;
    },
    20_000,
    250,
  );
  t.equal(await page.evaluate('document.activeElement === window.__held'), true);
  // Keys that find no further row are the browser's: the page is scrolled.
  await page.setViewportSize({ width: 1_280, height: 300 });
  await keyboard.press('g');
  await keyboard.press('u');
  await page.locator(by('audit-row')).first().waitFor();
  await keyboard.press('ArrowDown');
  t.equal(
    await page.evaluate('document.activeElement.textContent'),
    await page
      .locator(`${by('audit-row')} [data-row]`)
      .first()
      .textContent(),
  );
  await keyboard.press('g');
  await keyboard.press('q');
  await page.locator(by('nav-quotas', '[aria-current="page"]')).waitFor();
  await page.evaluate("document.querySelector('main').append(Object.assign(document.createElement('div'), { style: 'height: 3000px' }))");
  await keyboard.press('ArrowDown');
  await waitUntil('the page is scrolled', async () => (await page.evaluate<number>('scrollY')) > 0);
  await page.context().close();
});

t.test('every page, dark and light, wide and on a telephone', async (t) => {
  const page = await signedIn({ colorScheme: 'dark' });
  const ground = (): Promise<string> => page.evaluate('getComputedStyle(document.documentElement).backgroundColor');
  const dark = await ground();
  for (const name of PAGES) {
    await page.locator(by(`nav-${name}`)).click();
    await settled(page);
    if (name !== 'overview') await shoot(page, name);
    t.ok((await sideways(page)) <= 0, `${name}: ${await sideways(page)} px too wide`);
    t.equal(
      await page.locator(by('page-problem')).count(),
      0,
      `${name} shows no error: ${(await page.locator(by('page-problem')).allTextContents()).join(' ')}`,
    );
  }
  await page.goto(`${url}/console/#/agent/crm.refund.1`);
  await settled(page);
  await shoot(page, 'agent');
  await page.setViewportSize({ width: 360, height: 740 });
  for (const hash of [...PAGES.map((name) => `#/${name}`), `#/capability/${REFUND}`]) {
    await page.goto(`${url}/console/${hash}`);
    await settled(page);
    t.ok((await sideways(page)) <= 0, `${hash} at 360 px: ${await sideways(page)} px too wide`);
  }
  await page.goto(`${url}/console/#/overview`);
  await page.locator(by('problem')).first().waitFor();
  await shoot(page, 'overview-narrow');
  await page.emulateMedia({ colorScheme: 'light' });
  t.not(await ground(), dark, 'the colours follow the system');
  await shoot(page, 'overview-narrow-light');
  await page.context().close();
});

t.test('with 300 agents and 1,000 capabilities the page stays light, quick and readable', async (t: Test) => {
  await Promise.all(
    Array.from({ length: 10 }, async (_, s) => {
      const offers: Record<string, string[]> = {};
      // The last fifty agents serve what others serve as well.
      for (let a = 0; a < 30; a++) {
        const first = (s * 30 + a) * 4;
        const things = first < 1_000 ? [0, 1, 2, 3].map((c) => first + c) : [first - 1_000];
        offers[`big.agent.s${s}a${a}`] = things.map((thing) => `big.thing${thing}.do@1.0.0`);
      }
      const sidecar = await FakeSidecar.join(fleet.nats, `big-${s}`, offers);
      await sidecar.hello();
      fleet.plane.control.traffic.take(
        digestOf(
          `big-${s}`,
          Array.from({ length: 100 }, (__, c) => ({
            capability: `big.thing${s * 100 + c}.do`,
            version: '1.0.0',
            provider: `big.agent.s${s}a${c % 30}`,
            calls: 10 + c,
            ms: 5 + c,
          })),
        ),
      );
    }),
  );
  const page = await signedIn();
  const person = page.context();
  await page.locator(by('capability-row')).first().waitFor();
  await page.addInitScript(`
    new MutationObserver((_, observer) => {
      if (document.querySelector('[data-test="capability-row"]') === null) return;
      window.__usableMs = performance.now();
      observer.disconnect();
    }).observe(document, { childList: true, subtree: true });
  `);
  const cdp = await person.newCDPSession(page);
  await cdp.send('Network.clearBrowserCache');
  const took: number[] = [];
  for (let i = 0; i < 3; i++) {
    await page.reload({ waitUntil: 'commit' });
    await usable(page);
    took.push(await page.evaluate<number>('window.__usableMs'));
  }
  await cdp.send('Network.clearBrowserCache');
  await page.reload();
  await usable(page);
  const files = await page.evaluate<readonly { name: string; sent: number }[]>(
    "[...performance.getEntriesByType('navigation'), ...performance.getEntriesByType('resource')].map(({ name, transferSize }) => ({ name, sent: transferSize }))",
  );
  const weight = files.filter(({ name }) => !name.includes('/v1/')).reduce((sum, { sent }) => sum + sent, 0);
  const data = files.filter(({ name }) => name.includes('/v1/')).reduce((sum, { sent }) => sum + sent, 0);
  t.comment(
    `usable after ${took.map((ms) => ms.toFixed(0)).join(', ')} ms; ${(weight / 1_024).toFixed(1)} KiB of page, ${(data / 1_024).toFixed(1)} KiB of data`,
  );
  t.ok(Math.min(...took) < 1_000, `usable after ${took.map((ms) => ms.toFixed(0)).join(', ')} ms`);
  t.ok(weight > 10_000 && weight < 200_000, `${weight} bytes`);
  t.ok((await page.locator(by('capability-row')).count()) <= 200, 'a thousand lines are not shown at once');
  t.equal(await page.locator(by('capability-row')).first().getAttribute('data-name'), REFUND, 'and what is wrong is the first of them');
  await page.locator(by('search')).first().fill('thing777');
  await page.locator(by('capability-row', '[data-name="big.thing777.do"]')).waitFor();
  await shoot(page, 'overview-large');
  await page.goto(`${url}/console/#/topology`);
  await settled(page);
  t.ok((await sideways(page)) <= 0, 'nor does the topology run out of the window');
  await shoot(page, 'topology-large');
  await person.close();
});

t.test('no page complained of anything, and none asked anybody else', (t) => {
  t.ok(watching.length >= 5);
  t.same(
    watching.flatMap(({ errors }) => errors),
    [],
  );
  t.same(
    watching.flatMap(({ foreign }) => foreign),
    [],
  );
  t.end();
});
