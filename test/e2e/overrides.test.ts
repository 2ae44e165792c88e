/**
 * The red button on a real nats-server: two replicas of the control plane, two sidecars with agents, calls and messages; the API,
 * reachctl, and reachctl with NATS alone. The second half is done with processes that are killed.
 */
import { existsSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import t, { type Test } from 'tap';
import { realClock } from '../../base/clock.ts';
import { runReachctl } from '../../control-plane/cli/program.ts';
import { TestAgent } from '../support/agent.ts';
import { type Asked, ask, OPERATOR, Plane, settingsText, VIEWER } from '../support/control-plane.ts';
import { cast, Fleet, knows } from '../support/fleet.ts';
import { NatsServer } from '../support/nats.ts';
import { CALLER, type Rig, TOKEN } from '../support/rig.ts';
import { waitUntil } from '../support/settle.ts';
import { freePort, type Program, startProgram } from '../support/sockets.ts';

t.setTimeout(110_000);

const ORDER = 'crm.order.query';
const ONCE = 'crm.refund.apply';
const STICKY = `rules:
  - {name: together, when: {capability: ${ONCE}}, action: {dispatch: sticky, sticky_by: sequence_id}}
`;

function tableOf(sidecar: string, agent: string, url: string): string {
  return `contracts:
  - {name: ${ORDER}, version: 1.0.0, description: x, acl: public, execution: idempotent}
  - {name: ${ONCE}, version: 1.0.0, description: x, acl: public, execution: idempotent}
providers:
  - {agent_id: ${agent}, offers: [${ORDER}@1.0.0, ${ONCE}@1.0.0], via: ${sidecar}, endpoint: {type: http, address: "${url}"}}
`;
}

interface World {
  readonly fleet: Fleet;
  readonly second: Plane;
  readonly one: Rig;
  readonly two: Rig;
  readonly agents: readonly TestAgent[];
}

async function begun(t: Test): Promise<World> {
  const fleet = await Fleet.start(t);
  const second = await Plane.start(t, fleet.nats, 'cp-2');
  await second.follows();
  const agents: TestAgent[] = [];
  const rigs: Rig[] = [];
  for (const [name, agent] of [
    ['one', 'crm.order.1'],
    ['two', 'crm.order.2'],
  ] as const) {
    const served = await TestAgent.listen(agent);
    t.teardown(() => served.close());
    agents.push(served);
    rigs.push(await fleet.sidecar(name, tableOf(name, agent, served.url)));
  }
  for (const rig of rigs) await knows(rig, ORDER, 2);
  const [one, two] = rigs as [Rig, Rig];
  await waitUntil('both are heard of', async () => ((await second.ask('/v1/overrides')).body['of'] as number) === 2, 10_000);
  return { fleet, second, one, two, agents };
}

interface Ran {
  readonly exit: number;
  readonly out: string;
  readonly err: string;
}

async function reachctl(url: string, ...args: readonly string[]): Promise<Ran> {
  const out: string[] = [];
  const err: string[] = [];
  const io = {
    out: (text: string) => void out.push(text),
    err: (text: string) => void err.push(text),
    clock: realClock,
    stdin: async () => '',
  };
  const env = { REACH_SERVER: url, REACH_TOKEN: OPERATOR, USER: 'dana' };
  const exit = await runReachctl(args, { ...io, env }, '1.2.3');
  return { exit, out: out.join('\n'), err: err.join('\n') };
}

const executed = ({ agents }: World): number => agents.reduce((sum, { executions }) => sum + executions, 0);
const codes = async ({ one, two }: World): Promise<number[]> => [(await one.invoke(ORDER)).json.code, (await two.invoke(ORDER)).json.code];

let here: World;
t.before(async () => {
  here = await begun(t);
});

t.test('one order at any replica, in force everywhere within a second; looked at, repeated, lifted', async (t) => {
  const { fleet, second, one } = here;
  t.strictSame(await codes(here), [0, 0]);
  const before = executed(here);
  const order = { id: 'incident-17', target: { capability: ORDER }, reason: 'wrong prices', for: '10m' };
  const began = performance.now();
  const made = await second.ask('/v1/overrides', { json: order });
  t.equal(made.status, 201);
  t.match(made.body, {
    id: 'incident-17',
    in_force: 2,
    of: 2,
    missing: [],
    repeated: false,
    override: { author: 'ada', action: 'block', cut: false },
  });
  t.ok(performance.now() - began < 1_000);
  t.strictSame(await codes(here), [2006, 2006]);
  t.equal(executed(here), before, 'nothing reaches an agent');
  t.match((await one.invoke(ORDER)).json.detail, /override incident-17 blocks it: wrong prices \(by ada, until /);
  t.match((await one.ask(`/v1/explain/${ORDER}`)).json, {
    refusal: { code: 2006 },
    decision: [{}, {}, {}, { stage: 'overrides', reason: 'blocked' }],
  });
  t.match((await one.ask('/v1/health')).json.registry.overrides, {
    in_force: [{ id: 'incident-17', reason: 'wrong prices', author: 'ada' }],
    refused: null,
  });
  t.match((await one.ask('/metrics')).bytes.toString(), /reach_overrides_in_force\{action="block"\} 1\n/);

  const repeated = await fleet.plane.ask('/v1/overrides', { json: order });
  t.match([repeated.status, repeated.body], [200, { id: 'incident-17', repeated: true, in_force: 2 }]);
  t.match((await second.ask('/v1/overrides', { json: { ...order, reason: 'another' } })).status, 409);
  const refused: readonly (readonly [object, number, RegExp])[] = [
    [{ target: { capability: 'crm.order.qury' }, reason: 'x' }, 400, /did you mean crm.order.query\? say "confirm": true/],
    [{ target: { all: true }, reason: 'x' }, 400, /"confirm": true/],
    [{ target: { capability: ORDER }, reason: '' }, 400, /a reason is needed/],
    [{ target: { capability: ORDER }, action: 'reroute', to: ORDER, reason: 'x' }, 400, /sent to itself/],
    [{ target: { capability: ORDER }, action: 'degrade', reason: 'x' }, 409, /incident-17 blocks that already/],
    [{ target: { capability: ORDER }, reason: 'x', author: 'eve' }, 400, /unknown key "author"/],
  ];
  for (const [json, status, words] of refused) {
    const answer = await fleet.plane.ask('/v1/overrides', { json });
    t.equal(answer.status, status, JSON.stringify(json));
    t.match(answer.body['detail'], words);
  }
  t.equal((await second.ask('/v1/overrides', { json: order, token: VIEWER })).status, 403);
  t.match((await second.ask('/v1/overrides', { token: VIEWER })).body, {
    in_force: 2,
    of: 2,
    overrides: [{ id: 'incident-17', in_force: 2, of: 2 }],
  });
  t.match((await second.ask('/v1/overrides/incident-17')).body, { id: 'incident-17', missing: [] });
  t.equal((await second.ask('/v1/overrides/nothing')).status, 404);
  t.match((await fleet.plane.ask('/v1/overrides', { json: { target: { provider: 'crm.order.1' }, reason: 'x', dry_run: true } })).body, {
    dry_run: true,
    would_hit: { capabilities: [ORDER, ONCE].sort(), providers: ['crm.order.1'], sidecars: 2 },
    problem: null,
  });
  t.match((await fleet.plane.ask('/v1/sidecars')).body['sidecars'], [{ lacks_overrides: null }, { lacks_overrides: null }]);

  const lifted = await fleet.plane.ask('/v1/overrides/incident-17?reason=fixed', { method: 'DELETE' });
  t.match([lifted.status, lifted.body], [200, { lifted: true, in_force: 2, of: 2 }]);
  t.strictSame(await codes(here), [0, 0]);
  t.equal((await fleet.plane.ask('/v1/overrides/incident-17', { method: 'DELETE' })).status, 404);
  const audit = await second.ask('/v1/audit?action=override.*');
  t.match(audit.body['entries'], [
    { actor: 'ada', action: 'override.lift', subject: 'incident-17', reason: 'fixed' },
    { actor: 'ada', action: 'override.set', subject: 'incident-17', reason: 'wrong prices' },
  ]);
});

t.test('queued messages wait while a block stands, sticky ones too, and go on when it is lifted; new ones are refused', async (t) => {
  const { fleet, one } = here;
  const { agents } = here;
  t.equal((await fleet.plane.ask('/v1/policies', { method: 'POST', body: STICKY })).status, 200);
  await waitUntil('the rule is there', () => one.started.front.registry?.client.rules.inForce().rules.length === 1, 5_000);
  const before = executed(here);
  // Calls are blocked by who serves, so that messages are accepted and wait.
  await fleet.plane.ask('/v1/overrides', { json: { id: 'hold', target: { provider: 'role:order' }, reason: 'a look' } });
  const tasks: string[] = [];
  for (let i = 0; i < 3; i++) {
    tasks.push(await cast(one, ORDER, { n: i }));
    tasks.push(await cast(one, ONCE, { n: i }, { 'reach-sequence-id': 'k1' }));
  }
  await new Promise((done) => setTimeout(done, 600));
  t.equal(executed(here), before, 'nobody gets any');
  t.equal(await fleet.queued(), 6);
  await fleet.plane.ask('/v1/overrides', { json: { id: 'shut', target: { capability: 'crm.*' }, reason: 'a fire' } });
  const refused = await one.ask(`/v1/cast/${ORDER}`, { method: 'POST', payload: {} });
  t.equal(refused.status, 503);
  t.match(refused.json, { code: 2006, detail: /override shut blocks it: a fire/ });
  for (const id of ['hold', 'shut']) await fleet.plane.ask(`/v1/overrides/${id}`, { method: 'DELETE' });
  await fleet.emptied(10_000);
  await waitUntil('all are done', async () => (await fleet.finals()).length === 6, 10_000);
  t.strictSame([...new Set((await fleet.finals()).map(({ event }) => event.state))], ['done']);
  t.equal(executed(here) - before, 6, 'each once');
  const order = agents
    .flatMap(({ requests }) => requests)
    .filter(({ headers }) => headers['reach-sequence-id'] === 'k1')
    .map(({ json }) => (json as { n: number }).n);
  t.strictSame(order, [0, 1, 2], 'one key in its order');
});

t.test('reachctl: the button, the list, and NATS alone when no control plane is left', async (t) => {
  const { fleet, second } = here;
  const { url } = second;
  const asked = await reachctl(url, 'stop-bleeding', '--everything', '--reason', 'incident 17');
  t.match(asked, {
    exit: 1,
    out: /block everything would hit, on 2 sidecars:[\s\S]*2 providers: crm.order.1, crm.order.2/,
    err: /nothing was done: say --yes/,
  });
  t.strictSame(await codes(here), [0, 0]);
  const pressed = await reachctl(url, 'stop-bleeding', '--everything', '--reason', 'incident 17', '--yes', '--for', '5m', '--id', 'i17');
  t.match(pressed, {
    exit: 0,
    out: /set: i17 blocks everything, until 2[\s\S]*in force on 2 of 2\nlift it with: reachctl override lift i17/,
  });
  t.strictSame(await codes(here), [2006, 2006]);
  t.match((await reachctl(url, 'override', 'list')).out, /i17 +block +everything +- +2\S+Z +ada +2\/2 +incident 17/);
  t.match(JSON.parse((await reachctl(url, '--json', 'override', 'show', 'i17')).out), { id: 'i17', in_force: 2, of: 2, missing: [] });
  t.match(await reachctl(url, 'override', 'lift', 'i17', '--reason', 'over'), { exit: 0, out: /lifted i17\nin force on 2 of 2/ });
  t.match(
    await reachctl(
      url,
      'override',
      'set',
      '--action',
      'reroute',
      '--to',
      'provider:crm.order.2',
      '--provider',
      'crm.order.1',
      '--reason',
      'slow',
    ),
    {
      exit: 0,
      out: /reroutes provider crm.order.1 to provider:crm.order.2/,
    },
  );
  for (const [args, words] of [
    [['stop-bleeding', '--reason', 'x'], /say what: --capability/],
    [['stop-bleeding', '--capability', ORDER, '--reason', 'x', '--for', 'soon'], /--for: .*or the word forever/],
    [['stop-bleeding', '--everything', '--reason', 'x', '--nats', fleet.nats.url, '--env', 'test'], /everything wants --yes/],
  ] as const)
    t.match(await reachctl(url, ...args), { exit: 2, err: words });

  await second.control.stop(0);
  await fleet.plane.control.stop(0);
  const away = await reachctl(url, 'stop-bleeding', '--everything', '--reason', 'x', '--yes');
  t.match(away, { exit: 3, err: /with none left write it directly: --nats/ });
  const direct = ['--nats', fleet.nats.url, '--env', 'test', '--as', 'eva'];
  const alone = await reachctl(url, 'stop-bleeding', '--everything', '--reason', 'all is lost', '--yes', '--id', 'last', ...direct);
  t.match(alone, { exit: 0, out: /set: last blocks everything[\s\S]*in force on 2 of 2/ });
  t.strictSame(await codes(here), [2006, 2006]);
  t.match((await here.one.invoke(ORDER)).json.detail, /all is lost \(by eva, until/);
  t.match((await reachctl(url, 'override', 'list', ...direct)).out, /last +block[\s\S]*in force on 2 of 2/);
  const again = await Plane.start(t, fleet.nats, 'cp-3');
  await again.leads();
  t.match(
    (await again.ask('/v1/overrides/last')).body,
    { author: 'eva', reason: 'all is lost' },
    'a control plane that comes back knows of it',
  );
  t.match(
    (await again.ask('/v1/audit?action=override.set&actor=eva')).body['entries'],
    [{ actor: 'eva', subject: 'last' }],
    'and so does the audit log',
  );
  await again.control.stop(0);
  t.match(await reachctl(url, 'override', 'lift', 'last', ...direct), { exit: 0, out: /lifted last/ });
  t.strictSame(await codes(here), [0, 0]);
});

t.test(
  'processes: the leader is killed and another replica takes the order; a sidecar that is killed comes back with the block from its disk',
  async (t) => {
    const nats = await NatsServer.start(t);
    const folder = mkdtempSync(join(tmpdir(), 'reach-red-'));
    t.teardown(() => rmSync(folder, { recursive: true, force: true }));
    const file = (name: string, text: string): string => {
      writeFileSync(join(folder, name), text);
      return join(folder, name);
    };
    const agent = await TestAgent.listen('crm.order.1');
    t.teardown(() => agent.close());
    const ports = [await freePort(), await freePort()];
    const start = (program: string, settings: string): Program => {
      const started = startProgram(program, ['run', settings]);
      t.teardown(() => started.stop());
      return started;
    };
    const planes = ports.map((port, i) =>
      start('control-plane/main.ts', file(`cp-${i}.yaml`, settingsText(`cp-${i}`, nats.url, '', port))),
    );
    const port = await freePort();
    const settings = file(
      'sidecar.yaml',
      `sidecar:
  name: one
  listen: 127.0.0.1:${port}
  state_dir: ./state
  callers: [{agent: ${CALLER}, token: ${TOKEN}}]
  mesh: {listen: "127.0.0.1:0", token: token-of-the-mesh}
  registry: {nats: "${nats.url}", env: test, addresses: {loopback: true}}
  log: {level: error}
${tableOf('one', 'crm.order.1', agent.url)}`,
    );
    const sidecar = start('sidecar/main.ts', settings);
    const code = async (): Promise<unknown> => {
      const init = { method: 'POST', body: '{}', headers: { authorization: `Bearer ${TOKEN}`, 'content-type': 'application/json' } };
      return ((await (await fetch(`http://127.0.0.1:${port}/v1/invoke/${ORDER}`, init)).json()) as { code: unknown }).code;
    };
    const plane = (i: number, path: string, init?: Parameters<typeof ask>[2]): Promise<Asked> =>
      ask(`http://127.0.0.1:${ports[i] ?? 0}`, path, init);
    await waitUntil('it serves', async () => (await code().catch(() => -1)) === 0, 30_000);
    await waitUntil(
      'both replicas know it',
      async () => {
        const all = await Promise.all([0, 1].map((i) => plane(i, '/v1/overrides').catch(() => null)));
        return all.every((answer) => answer?.body['of'] === 1);
      },
      20_000,
    );
    const first = await plane(0, '/v1/leader');
    const leader = (first.body['leader'] as { holder: string }).holder === 'cp-0' ? 0 : 1;
    const dead = planes[leader];
    if (dead === undefined) throw new Error('nobody leads');
    dead.signal('SIGKILL');
    const began = performance.now();
    const made = await plane(1 - leader, '/v1/overrides', {
      json: { id: 'red', target: { all: true }, confirm: true, reason: 'a fire', for: 'forever' },
    });
    t.match([made.status, made.body], [201, { in_force: 1, of: 1, missing: [] }]);
    t.ok(performance.now() - began < 1_000, `in force ${Math.round(performance.now() - began)} ms after the order`);
    t.equal(await code(), 2006);

    await waitUntil('the table is on disk', () => existsSync(join(folder, 'state', 'one.registry')), 10_000);
    sidecar.signal('SIGKILL');
    await Promise.all([sidecar.ended(), nats.kill()]);
    start('sidecar/main.ts', settings);
    const seen = new Set<unknown>();
    await waitUntil(
      'it has its table',
      async () => {
        seen.add(await code().catch(() => 'away'));
        return (await fetch(`http://127.0.0.1:${port}/v1/ready`).catch(() => null))?.status === 200;
      },
      20_000,
    );
    t.equal(await code(), 2006, 'there is nobody to ask, and it is blocked still');
    t.notOk(seen.has(0), 'and at no moment was it let through');
  },
);
