/**
 * What operators steer by while everything runs, on a real nats-server with a control plane and sidecars: quotas are in force
 * everywhere within a second, and traffic that is shifted to a version that fails comes back by itself.
 */
import t from 'tap';
import { realClock } from '../../base/clock.ts';
import { runReachctl } from '../../control-plane/cli/program.ts';
import { OPERATOR } from '../support/control-plane.ts';
import { Fleet, knows } from '../support/fleet.ts';
import { CALLER, type Rig } from '../support/rig.ts';
import { waitUntil } from '../support/settle.ts';
import { agentOf, NONE } from '../support/workers.ts';

t.setTimeout(60_000);

const NAME = 'crm.order.query';
const OTHER = 'token-of-another';

t.test('quotas and shifts', async (t) => {
  const fleet = await Fleet.start(t);
  let fails = false;
  const good = await agentOf(t, 'old', () => ({ body: { from: 'old' } }));
  const fresh = await agentOf(t, 'new', () => (fails ? { status: 500, body: {} } : { body: { from: 'new' } }));
  const hosts = await fleet.sidecar(
    'hosts',
    `contracts:
  - {name: ${NAME}, version: 2.0.0, acl: public, execution: once}
  - {name: ${NAME}, version: 2.1.0, acl: public, execution: once}
providers:
  - {agent_id: crm.order.a, offers: [${NAME}@2.0.0], via: hosts, endpoint: {type: http, address: "${good.url}"}}
  - {agent_id: crm.order.b, offers: [${NAME}@2.1.0], via: hosts, endpoint: {type: http, address: "${fresh.url}"}}
`,
  );
  const callers = { 'web.desk.2': OTHER };
  const one = await fleet.sidecar('caller-1', NONE, '', { callers });
  const two = await fleet.sidecar('caller-2', NONE, '', { callers });
  for (const rig of [one, two]) await knows(rig, NAME, 2);
  const ctl = async (...args: string[]) => {
    const out: string[] = [];
    const io = {
      out: (text: string) => void out.push(text),
      err: (text: string) => void out.push(text),
      env: { REACH_SERVER: fleet.plane.url, REACH_TOKEN: OPERATOR },
      clock: realClock,
      stdin: async () => '',
    };
    const exit = await runReachctl(args, io, '1.0.0');
    return { exit, out: out.join('\n') };
  };
  /** Calls for so long from one sidecar, one after another; how many were let through. */
  async function press(rig: Rig, ms: number, token?: string): Promise<{ good: number; refused: number }> {
    const until = performance.now() + ms;
    const count = { good: 0, refused: 0 };
    while (performance.now() < until) {
      const { status } = await rig.invoke(NAME, token === undefined ? {} : { token });
      if (status === 200) count.good++;
      else if (status === 429) count.refused++;
      else throw new Error(`unexpected ${status}`);
    }
    return count;
  }

  await t.test('a quota is in force everywhere when the order is answered, and is told in headers', async (t) => {
    const before = await one.invoke(NAME);
    t.equal(before.headers['ratelimit-limit'], undefined);
    const set = await ctl('quota', 'set', 'agent', 'support.*.*', '--calls', '1/s', '--calls-burst', '2', '--reason', 'a test');
    t.match(set, { exit: 0, out: /agent support\.\*\.\*: calls 1\/s, 2 at once; sequence \d+, in force on 3 of 3 sidecars/ });
    for (const rig of [one, two]) {
      t.match((await rig.invoke(NAME)).headers, { 'ratelimit-limit': '2', 'ratelimit-remaining': '1' });
      await rig.invoke(NAME);
      const refused = await rig.invoke(NAME);
      t.match(refused, { status: 429, json: { code: 3004, retryable: true, ambiguous: false }, headers: { 'ratelimit-remaining': '0' } });
      t.match(refused.headers['retry-after'], /^1$/);
    }
    t.equal((await one.invoke(NAME, { token: OTHER })).status, 200, 'another agent has none');
    await ctl('quota', 'set', 'agent', CALLER, '--messages', '1/s');
    const cast = () => one.ask(`/v1/cast/${NAME}`, { method: 'POST' });
    t.match(await cast(), { status: 202, headers: { 'ratelimit-limit': '1', 'ratelimit-remaining': '0' } });
    t.match(await cast(), { status: 429, json: { code: 3004, detail: /may submit 1 messages a second, 1 at once/ } });
    t.match(
      (await one.ask('/metrics')).bytes.toString('utf8'),
      /reach_quota_requests_total\{kind="agent",target="support\.planner\.1",outcome="refused"\} 1/,
    );
  });

  await t.test('it is raised without a restart, and expires by itself', async (t) => {
    const raised = await ctl('quota', 'set', 'agent', CALLER, '--calls', '1000/s', '--for', '2s');
    t.match(raised.out, /in force on 3 of 3/);
    await one.invoke(NAME);
    t.equal((await press(one, 300)).refused, 0);
    await waitUntil('the quota is over', async () => !(await ctl('quota', 'list')).out.includes(CALLER), 5_000);
    await one.invoke(NAME);
    await one.invoke(NAME);
    await one.invoke(NAME);
    t.equal((await one.invoke(NAME)).status, 429, 'that of the pattern counts again');
    t.match((await ctl('quota', 'remove', 'agent', 'support.*.*')).out, /no quota of its own any more/);
    t.equal((await press(one, 100)).refused, 0);
    t.match(await ctl('quota', 'set', 'capability', NAME, '--messages', '5/s'), { exit: 1, out: /limited for agents/ });
    t.match((await ctl('quota', 'set', 'capability', 'crm.order.qeury', '--calls', '5/s')).out, /did you mean crm\.order\.query/);
    await ctl('quota', 'remove', 'capability', 'crm.order.qeury');
  });

  await t.test('of a capability is shared by the sidecars, and by the callers', async (t) => {
    await ctl('quota', 'set', 'capability', NAME, '--calls', '40/s', '--calls-burst', '10');
    // Two that want all they can get, and one that asks for a little, at the first of the two sidecars.
    let polite = 0;
    let asked = 0;
    let isOver = false;
    const asking = (async () => {
      while (!isOver) {
        await new Promise((done) => setTimeout(done, 200));
        asked++;
        if ((await one.invoke(NAME, { token: OTHER })).status === 200) polite++;
      }
    })();
    await Promise.all([press(one, 1_300), press(two, 1_300)]);
    const [first, second] = await Promise.all([press(one, 1_500), press(two, 1_500)]);
    isOver = true;
    await asking;
    const all = first.good + second.good;
    t.ok(all > 30 && all < 85, `${all} of 60 in a second and a half, and 10 at once`);
    t.ok(first.good > 12 && second.good > 12, `${first.good} and ${second.good}: both have their part`);
    t.ok(polite >= 0.8 * asked, `${polite} of ${asked}: whoever asks for little gets it`);
    const listed = await ctl('quota', 'show', 'capability', NAME);
    t.match(listed.out, /capability +crm\.order\.query +40\/s, 10 at once +- +- +[1-9]\d* +[1-9]\d*/);
    await ctl('quota', 'remove', 'capability', NAME);
  });

  await t.test('of a provider is counted where it is hosted, over all callers', async (t) => {
    await ctl('canary', NAME, '2.1.0=0%');
    await ctl('quota', 'set', 'provider', 'crm.order.a', '--calls', '20/s', '--calls-burst', '5');
    const [first, second] = await Promise.all([press(one, 1_000), press(two, 1_000)]);
    const all = first.good + second.good;
    t.ok(all >= 18 && all <= 28, `${all} in a second at 20/s with 5 at once`);
    await ctl('quota', 'remove', 'provider', 'crm.order.a');
    await ctl('canary', NAME, '--clear');
  });

  await t.test('traffic that goes over to a version that fails comes back by itself', async (t) => {
    await ctl('canary', NAME, '2.1.0=0%');
    const begun = await ctl(
      'shift',
      NAME,
      '2.1.0=50%',
      '--guard',
      'errors>5%',
      '--min-calls',
      '10',
      '--for-window',
      '2s',
      '--reason',
      'a new parser',
    );
    t.match(begun, { exit: 0, out: /s1: crm\.order\.query to 2\.1\.0, running/ });
    t.match((await ctl('shift', NAME, '2.1.0=60%')).out, /is being shifted already \(s1/);
    const traffic = async (ms: number): Promise<Record<string, number>> => {
      const until = performance.now() + ms;
      const counts: Record<string, number> = {};
      while (performance.now() < until) {
        const answers = await Promise.all([one.invoke(NAME), two.invoke(NAME)]);
        for (const { status, json } of answers) {
          const from = status === 200 ? (json.data.from as string) : 'failed';
          counts[from] = (counts[from] ?? 0) + 1;
        }
        await new Promise((done) => setTimeout(done, 10));
      }
      return counts;
    };
    await waitUntil('both versions serve', async () => ((await traffic(50))['new'] ?? 0) > 0, 5_000);
    const well = await traffic(1_500);
    t.ok((well['new'] ?? 0) > 10 && (well['old'] ?? 0) > 10, JSON.stringify(well));
    t.match((await ctl('shift', 'show', 's1')).out, /2\.1\.0 +[1-9]\d* +0 +0%/);
    fails = true;
    const since = performance.now();
    await waitUntil(
      'it is rolled back',
      async () => {
        await traffic(100);
        return (await ctl('shift', 'list')).out.includes('rolled back');
      },
      10_000,
    );
    const took = performance.now() - since;
    t.ok(took < 5_000, `${Math.round(took)} ms`);
    await waitUntil('nobody is sent there', async () => (await traffic(200))['failed'] === undefined, 3_000);
    t.same(Object.keys(await traffic(300)), ['old']);
    t.match((await ctl('shift', 'show', 's1')).out, /attempts failed within 2 s, above 5 %/);
    t.match((await ctl('capabilities', 'show', NAME)).out, /canary 2\.1\.0 0%/, 'what was before it');
  });
  t.equal(hosts.started.front.draining, false);

  await t.test('the control plane knows every call that went through, each once, and who served it', async (t) => {
    const { traffic } = fleet.plane.control;
    const rigs = [one, two, hosts];
    for (const rig of rigs) await rig.stop();
    const lines = rigs.flatMap((rig) => rig.logged.filter(({ msg, way }) => msg === 'call' && way !== 'mesh'));
    const window = { minutes: 10 };
    await waitUntil('the last digests are heard', () => traffic.total(window).calls >= lines.length, 3_000);
    t.equal(traffic.total(window).calls, lines.length);
    t.equal(traffic.total(window).failed, lines.filter(({ code }) => code !== 0).length);
    for (const provider of ['crm.order.a', 'crm.order.b']) {
      const told = traffic.edges(window).filter((edge) => edge.caller === CALLER && edge.provider === provider);
      const ours = lines.filter((line) => line['caller'] === CALLER && line['provider'] === provider && Number(line['attempts']) > 0);
      t.ok(ours.length > 100);
      t.equal(
        told.reduce((sum, { figures }) => sum + figures.calls, 0),
        ours.length,
        provider,
      );
    }
    t.match(
      traffic.sidecars().map(({ sidecar, missed }) => [sidecar, missed]),
      [
        ['caller-1', 0],
        ['caller-2', 0],
        ['hosts', 0],
      ],
    );
    t.ok((traffic.capability(NAME, window)?.times.quantile(0.95) ?? 0) > 0.2);
  });
});
