/**
 * A sidecar with a registry on a real nats-server: joins, is pushed to, registers its agents, and goes on without NATS and
 * without a control plane. A tiny writer plays the control plane, so that what fails here is the sidecar's.
 */
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import t, { type Test } from 'tap';
import type { Bus } from '../../base/nats.ts';
import type { AgentRegistration } from '../../proto/wire/registry.ts';
import { TestAgent } from '../support/agent.ts';
import { NatsServer } from '../support/nats.ts';
import { documentOf, RegistryWriter } from '../support/registry-writer.ts';
import { type Answer, CALLER, Rig, TOKEN } from '../support/rig.ts';
import { waitUntil } from '../support/settle.ts';

t.setTimeout(180_000);

const QUERY = 'crm.order.query';
const OPERATOR = 'token-of-the-operator';
/** One of the rig's callers, which is a provider here. */
const AGENT = 'sales.helper.2';
const AGENT_TOKEN = 'token-of-the-helper';
const contracts = (version = '2.0.0'): string =>
  `contracts: [{name: ${QUERY}, version: ${version}, description: x, acl: public, execution: idempotent}]`;
const provider = (id: string, url: string, more = ''): string =>
  `{agent_id: ${id}, offers: [${QUERY}@2.0.0], endpoint: {type: http, address: "${url}", path: /}${more}}`;
const tableOf = (...providers: string[]): string => `${contracts()}\nproviders: [${providers.join(', ')}]\n`;

class World {
  readonly nats: NatsServer;
  readonly bus: Bus;
  readonly writer: RegistryWriter;
  readonly folder: string;
  readonly #t: Test;
  readonly known = new Map<string, AgentRegistration>();

  private constructor(t: Test, nats: NatsServer, bus: Bus) {
    this.#t = t;
    this.nats = nats;
    this.bus = bus;
    this.writer = new RegistryWriter(bus);
    this.folder = mkdtempSync(join(tmpdir(), 'reach-registry-e2e-'));
    t.teardown(() => rmSync(this.folder, { recursive: true, force: true }));
  }

  static async start(t: Test): Promise<World> {
    const nats = await NatsServer.start(t);
    const world = new World(t, nats, await nats.connect());
    await world.writer.begin();
    t.teardown(() => world.writer.die());
    return world;
  }

  /** Whoever registers is put into force and into the scope of its sidecar. */
  takesAll(): void {
    const { writer, known } = this;
    const write = async (sidecar: string): Promise<void> => {
      await writer.capability(
        { ...documentOf(`${contracts()}\nproviders: []`), providers: [...known.values()].map(({ record }) => record) },
        QUERY,
      );
      await writer.scope(sidecar, [QUERY]);
    };
    writer.onHello = async ({ sidecar, agents }) => {
      for (const agent of agents) known.set(agent.record.agentId, agent);
      await write(sidecar);
    };
    writer.onRegister = async ({ sidecar, agent }) => {
      if (writer.refuses(agent.record.agentId) !== null) return;
      known.set(agent.record.agentId, agent);
      await write(sidecar);
    };
    writer.onLeave = async ({ sidecar, agent }) => {
      if (agent !== null) known.delete(agent);
      await write(sidecar);
    };
  }

  sidecar(table: string | null = '', settings = ''): Promise<Rig> {
    return Rig.start(this.#t, {
      table: table === '' ? 'contracts: []\n' : table,
      folder: this.folder,
      settings: `  registry: {nats: "${this.nats.url}", env: test}\n  operator_token: ${OPERATOR}${settings}`,
    });
  }
}

async function agentFor(t: Test, name: string): Promise<TestAgent> {
  const agent = await TestAgent.listen(name);
  t.teardown(() => agent.close());
  return agent;
}

const health = async (rig: Rig): Promise<Answer['json']> => (await rig.ask('/v1/health')).json;
const call = (rig: Rig): Promise<Answer> => rig.invoke(QUERY);

t.test('a sidecar joins, is pushed to, and says how it stands', async (t) => {
  const world = await World.start(t);
  const [first, second] = [await agentFor(t, 'first'), await agentFor(t, 'second')];
  const rig = await world.sidecar();
  t.equal((await rig.ask('/v1/ready')).status, 503, 'not ready before there is anything to route by');
  t.match(await health(rig), { status: 'starting', config_stale: true, registry: { connected: Boolean } });
  await world.writer.all(tableOf(provider('crm.order.1', first.url)), 'one');
  world.writer.lead();
  await waitUntil('ready', async () => (await rig.ask('/v1/ready')).status === 200);
  t.match((await call(rig)).json, { code: 0, provider: 'crm.order.1' });
  await waitUntil('confirmed', async () => (await health(rig)).config_stale === false && (await health(rig)).registry.announced);
  t.match(await health(rig), {
    status: 'ok',
    table: { source: 'registry', stale_because: null },
    registry: { connected: true, epoch: 'epoch-1', confirmed: true, scope: 1, refused: [], announced: true },
  });
  t.test('a change is in force in a moment, and nobody asked for it', async (t) => {
    const began = performance.now();
    await world.writer.capability(tableOf(provider('crm.order.2', second.url)), QUERY);
    await waitUntil('the new provider', async () => (await call(rig)).json.provider === 'crm.order.2', 2_000, 2);
    t.ok(performance.now() - began < 1_000);
  });
  t.test('it makes no consumer', async (t) => t.equal(await world.nats.consumers(), 0));
  t.test('explain and metrics say how fresh the table is', async (t) => {
    t.match((await rig.ask(`/v1/explain/${QUERY}`)).json, {
      table_source: 'registry',
      table_stale_because: null,
      would_serve: { provider: 'crm.order.2' },
    });
    const text = (await rig.ask('/metrics')).bytes.toString('utf8');
    t.match(text, /^reach_table_stale 0$/m);
    t.match(text, /^reach_registry_connected 1$/m);
    t.match(text, /^reach_registry_events_total\{event="deltas"\} [1-9]/m);
  });
  t.test('the control plane can ask it', async (t) => {
    const ask = async (question: object): Promise<unknown> => {
      const reply = await world.bus.request(world.writer.subjects.ask('one'), Buffer.from(JSON.stringify(question)), 2_000);
      return reply.kind === 'ok' ? JSON.parse(reply.message.data.toString('utf8')) : reply;
    };
    t.match(await ask({ wire: 1, what: 'status' }), { ok: true, report: { sidecar: 'one', staleBecause: '' }, health: { status: 'ok' } });
    t.match(await ask({ wire: 1, what: 'explain', target: QUERY, as: CALLER, headers: {} }), {
      ok: true,
      explanation: { caller: CALLER, would_serve: { provider: 'crm.order.2' }, table_stale_because: null },
    });
    t.match(await ask({ wire: 1, what: 'explain', target: 'no.such.thing', as: null, headers: {} }), {
      ok: true,
      explanation: { would_serve: null },
    });
    for (const bad of [
      { wire: 2, what: 'status' },
      { wire: 1, what: 'dance' },
      { wire: 1, what: 'explain' },
      { wire: 1, what: 'explain', target: QUERY, as: 'x' },
    ])
      t.match(await ask(bad), { ok: false, problem: String });
    const { length } = world.writer.hellos;
    world.bus.publish(world.writer.subjects.ask('one'), Buffer.from(JSON.stringify({ wire: 1, what: 'hello' })));
    await waitUntil('another hello', () => world.writer.hellos.length > length);
  });
  t.test('a change that cannot be used changes nothing and is seen', async (t) => {
    await world.writer.putRaw(`cap.${QUERY}`, '{"wire": 9}');
    await waitUntil('it is told', () => world.writer.reports.at(-1)?.refused.length === 1);
    t.match(await health(rig), {
      status: 'stale',
      config_stale: true,
      registry: { refused: [{ tail: `cap.${QUERY}`, why: /version 9/ }] },
    });
    t.match((await call(rig)).json, { code: 0, provider: 'crm.order.2' });
    t.match((await rig.ask(`/v1/explain/${QUERY}`)).json.table_stale_because, /was refused/);
    await world.writer.capability(tableOf(provider('crm.order.1', first.url)), QUERY);
    await waitUntil('the good one', async () => (await call(rig)).json.provider === 'crm.order.1');
    t.equal((await health(rig)).status, 'ok');
  });
});

t.test('agents register through it', async (t) => {
  const world = await World.start(t);
  world.takesAll();
  world.writer.lead();
  const agent = await agentFor(t, 'agent');
  const rig = await world.sidecar();
  await waitUntil('ready', async () => (await rig.ask('/v1/ready')).status === 200);
  const body = (id = AGENT, more = ''): string => `${contracts()}\nprovider: ${provider(id, agent.url, more)}\n`;
  const post = (text: string, token: string | null = AGENT_TOKEN): Promise<Answer> =>
    rig.ask('/v1/agents', { method: 'POST', body: text, token, headers: { 'content-type': 'application/yaml' } });
  const list = async (token = OPERATOR): Promise<Answer['json']> => (await rig.ask('/v1/agents', { token })).json;

  t.test('by its own token; the answer says what is in force, and it is called', async (t) => {
    const answer = await post(body());
    t.equal(answer.status, 201);
    t.match(answer.json, { agent: AGENT, state: 'in_force', source: 'api', seq: Number, offers: [`${QUERY}@2.0.0`], problems: [] });
    t.match((await call(rig)).json, { code: 0, provider: AGENT });
    t.match(world.writer.registers.at(-1), { sidecar: 'one', agent: { record: { agentId: AGENT, via: 'one' } } });
  });
  t.test('JSON does as well, and the same again is the same', async (t) => {
    const json = {
      contracts: [{ name: QUERY, version: '2.0.0', description: 'x', acl: 'public', execution: 'idempotent' }],
      provider: { agent_id: AGENT, offers: [`${QUERY}@2.0.0`], endpoint: { type: 'http', address: agent.url, path: '/' } },
    };
    t.equal((await rig.ask('/v1/agents', { method: 'POST', payload: json, token: AGENT_TOKEN })).status, 201);
    t.equal((await list()).agents.length, 1);
  });
  t.test('what cannot be read is refused with everything that is wrong and where', async (t) => {
    const answer = await post(
      'contracts: [{name: crm.order, version: "2", acl: public}]\nprovider: {agent_id: nobody, offers: [], endpont: 1}\n',
    );
    t.equal(answer.status, 422);
    t.match(answer.headers['content-type'], /problem\+json/);
    t.ok(answer.json.problems.length >= 4);
    t.match(answer.json.problems, [/^line 1, column 20: \/contracts\/0\/name: "crm\.order" is not/, /column 40/]);
    t.match((await post('- 1')).json, { status: 422, problems: [/a registration is a map/] });
    t.match((await post('')).json, { status: 422 });
    t.match((await post(body(AGENT, ', via: two'))).json, { status: 422, problems: [/leave via out/] });
    t.match((await post(body().replace('type: http', 'type: pigeon'))).json, { status: 422, problems: [/no transport is called/] });
  });
  t.test('what the registry refuses is refused with its list', async (t) => {
    world.writer.refuses = (id) =>
      id === AGENT ? { agent: id, code: 4003, problems: ['2.0.0 breaks 1.9.0: input/x is gone', 'and one more'] } : null;
    const answer = await post(body().replaceAll('2.0.0', '2.1.0'));
    t.equal(answer.status, 409);
    t.match(answer.json, { code: 4003, problems: [/input\/x is gone/, 'and one more'] });
    world.writer.refuses = () => null;
    t.match((await call(rig)).json, { code: 0, provider: AGENT, version: '2.0.0' }, 'what was in force is');
  });
  t.test('nobody registers another, reads a secret or reaches for the credentials of the machine', async (t) => {
    t.equal((await post(body(), null)).status, 401);
    t.equal((await post(body(), 'wrong-token')).status, 401);
    t.equal((await post(body('crm.order.8'))).status, 403);
    const secret = body().replace('path: /', 'path: /, credential: {secret: {file: /etc/hostname}}');
    t.match((await post(secret)).json, { status: 403, detail: /cannot have the sidecar read a secret/ });
    const metadata = body().replace(agent.url, 'http://169.254.169.254');
    t.equal((await post(metadata)).status, 403);
    t.equal((await post(metadata, OPERATOR)).status, 403);
    t.equal((await rig.ask(`/v1/agents/${AGENT}`, { method: 'DELETE', token: TOKEN })).status, 403);
    t.equal((await rig.ask(`/v1/agents/${AGENT}/heartbeat`, { method: 'POST', token: TOKEN })).status, 403);
    t.strictSame((await list(TOKEN)).agents, [], 'an agent sees itself alone');
    t.equal(world.known.size, 1);
  });
  t.test('it beats; who is not known is told to register again', async (t) => {
    const beat = (id: string, token = OPERATOR): Promise<Answer> => rig.ask(`/v1/agents/${id}/heartbeat`, { method: 'POST', token });
    t.match((await beat(AGENT, AGENT_TOKEN)).json, { agent: AGENT, state: 'in_force', idle_ms: Number, lease_ms: 135_000 });
    t.equal((await beat('crm.order.9')).status, 404);
  });
  t.test('while the control plane is away it is pending, called here all the same, and in force later', async (t) => {
    world.writer.die();
    const answer = await post(body('crm.order.8'), OPERATOR);
    t.equal(answer.status, 202);
    t.match(answer.json, { agent: 'crm.order.8', state: 'pending' });
    t.match((await rig.invoke(QUERY, { headers: { 'reach-pin': 'crm.order.8' } })).json, { code: 0, provider: 'crm.order.8' });
    world.writer.lead();
    await waitUntil('in force', async () => (await list()).agents.every((each: { state: string }) => each.state === 'in_force'), 10_000);
    t.ok(world.known.has('crm.order.8'));
  });
  t.test('it leaves at once', async (t) => {
    t.equal((await rig.ask('/v1/agents/crm.order.8', { method: 'DELETE', token: OPERATOR })).status, 204);
    t.equal((await rig.ask('/v1/agents/crm.order.8', { method: 'DELETE', token: OPERATOR })).status, 404);
    await waitUntil('gone', async () => (await rig.invoke(QUERY, { headers: { 'reach-pin': 'crm.order.8' } })).json.code !== 0);
    t.notOk(world.known.has('crm.order.8'));
  });
  t.test('a killed sidecar that starts again hosts it without its doing', async (t) => {
    await rig.stop();
    t.match(world.writer.leaves.at(-1), { agent: null }, 'a graceful stop says goodbye');
    world.known.clear();
    const again = await world.sidecar();
    await waitUntil('it is back', () => world.known.has(AGENT), 10_000);
    await waitUntil('and called', async () => (await call(again)).json.provider === AGENT, 5_000);
  });
});

t.test('the agents of its own file are registered, and again when the file changes', async (t) => {
  const world = await World.start(t);
  world.takesAll();
  world.writer.lead();
  const agent = await agentFor(t, 'agent');
  const rig = await world.sidecar(tableOf(provider('crm.order.1', agent.url, ', via: one')));
  await waitUntil('served', async () => (await call(rig)).json.provider === 'crm.order.1', 10_000);
  t.match(world.writer.hellos[0], { callers: [AGENT, CALLER].sort(), agents: [{ record: { agentId: 'crm.order.1' } }] });

  const table = join(world.folder, 'table.yaml');
  writeFileSync(table, tableOf(provider('crm.order.2', agent.url, ', via: one')));
  await waitUntil('the other one', async () => (await call(rig)).json.provider === 'crm.order.2', 5_000);
  await waitUntil('the first one has left', () => world.writer.leaves.at(-1)?.agent === 'crm.order.1');
  for (const [text, why] of [
    ['contracts: [', /refused/],
    [`${tableOf(provider('crm.order.2', agent.url))}policies: [{capability: "*", timeout: 1s}]\n`, /refused/],
  ] as const) {
    writeFileSync(table, text);
    await waitUntil('it is refused', async () => why.test((await health(rig)).registry.own_file_trouble ?? ''));
    t.match((await call(rig)).json, { provider: 'crm.order.2' });
  }
});

t.test('NATS comes and goes', async (t) => {
  const world = await World.start(t);
  const [first, second] = [await agentFor(t, 'first'), await agentFor(t, 'second')];
  world.writer.lead();
  await world.writer.all(tableOf(provider('crm.order.1', first.url)), 'one');
  const rig = await world.sidecar();
  await waitUntil('ready', async () => (await health(rig)).status === 'ok', 10_000);

  t.test(
    'a restart of the server: what is pushed after it, and what is written before the sidecar is back, is in force within 5 s (C075)',
    async (t) => {
      for (const [id, url] of [
        ['crm.order.2', second.url],
        ['crm.order.1', first.url],
      ] as const) {
        await world.nats.kill();
        t.match((await call(rig)).json, { code: 0 }, 'calls go on');
        await waitUntil('it is seen', async () => (await health(rig)).config_stale === true);
        t.match((await health(rig)).table.stale_because, /NATS cannot be reached/);
        await world.nats.restart();
        await waitUntil('the writer is back', () => world.bus.connected, 10_000);
        // Most often before the sidecar, which waits longer between its dials.
        await world.writer.capability(tableOf(provider(id, url)), QUERY);
        await waitUntil('the sidecar is back', async () => (await health(rig)).registry.connected, 20_000);
        const back = performance.now();
        await waitUntil('the new provider', async () => (await call(rig)).json.provider === id, 6_000);
        t.ok(performance.now() - back < 5_000);
        await waitUntil('fresh', async () => (await health(rig)).config_stale === false, 6_000);
      }
      t.equal(await world.nats.consumers(), 0, 'C076');
    },
  );

  t.test('a server that is stopped but not gone costs no call, and is usable within 10 s of its return (C077)', async (t) => {
    world.nats.pause();
    const until = performance.now() + 8_000;
    let calls = 0;
    while (performance.now() < until) {
      const { json, elapsedMs } = await call(rig);
      calls++;
      if (json.code !== 0 || elapsedMs > 1_000) t.fail(`call ${calls}: code ${json.code} after ${elapsedMs} ms`);
      await new Promise((done) => setTimeout(done, 50));
    }
    t.equal((await health(rig)).config_stale, true);
    world.nats.resume();
    const back = performance.now();
    await waitUntil(
      'the writer can write',
      async () => {
        try {
          await world.writer.capability(tableOf(provider('crm.order.2', second.url)), QUERY);
          return true;
        } catch {
          return false;
        }
      },
      10_000,
    );
    await waitUntil('the new provider', async () => (await call(rig)).json.provider === 'crm.order.2', 10_000);
    t.ok(performance.now() - back < 10_000);
  });

  t.test('a sidecar that is started while NATS and control plane are dead goes on with its copy', async (t) => {
    await new Promise((done) => setTimeout(done, 1_200));
    await rig.stop();
    world.writer.die();
    await world.nats.kill();
    const again = await world.sidecar();
    t.equal((await again.ask('/v1/ready')).status, 200, 'at once');
    t.match((await call(again)).json, { code: 0, provider: 'crm.order.2' });
    t.match(await health(again), {
      status: 'stale',
      config_stale: true,
      table: { source: 'last good copy', stale_because: /NATS cannot be reached/ },
    });
    await world.nats.restart();
    await waitUntil('the writer is back', () => world.bus.connected, 10_000);
    await world.writer.capability(tableOf(provider('crm.order.1', first.url)), QUERY);
    world.writer.lead();
    await waitUntil(
      'converged',
      async () => (await call(again)).json.provider === 'crm.order.1' && (await health(again)).status === 'ok',
      20_000,
    );
  });
});

t.test('without a registry the routes of agents say so', async (t) => {
  const agent = await agentFor(t, 'agent');
  const rig = await Rig.start(t, { table: tableOf(provider('crm.order.1', agent.url)) });
  const answer = await rig.ask('/v1/agents', { method: 'POST', payload: {} });
  t.equal(answer.status, 409);
  t.match(answer.json.detail, /no registry/);
  t.equal((await rig.ask('/v1/agents')).status, 409);
  t.match(await health(rig), { status: 'ok', registry: null, config_stale: false });
});
