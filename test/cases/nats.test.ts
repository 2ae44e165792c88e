/** NATS goes, hangs and comes back, and names that would mean something to it: with a real nats-server, control plane and sidecar. */
import { request as httpRequest } from 'node:http';
import { createConnection, createServer } from 'node:net';
import { performance } from 'node:perf_hooks';
import t from 'tap';
import { realClock } from '../../base/clock.ts';
import { createLog } from '../../base/log.ts';
import { Bus } from '../../base/nats.ts';
import { SeededRandom } from '../../base/random.ts';
import { VirtualClock } from '../../base/virtual-clock.ts';
import { CONFIG_STREAM, Subjects } from '../../proto/wire/subjects.ts';
import { Health } from '../../sidecar/health/health.ts';
import { InstalledTable } from '../../sidecar/table/installed.ts';
import { RegistryClient } from '../../sidecar/table/registry.ts';
import { TestAgent } from '../support/agent.ts';
import { type Asked, ENV, FakeSidecar, Plane } from '../support/control-plane.ts';
import { assertQuiet, takeBase } from '../support/invariants.ts';
import { HASTY, NatsServer } from '../support/nats.ts';
import { NatsProxy } from '../support/nats-proxy.ts';
import { CALLER, Rig, TOKEN } from '../support/rig.ts';
import { waitUntil } from '../support/settle.ts';
import { freePort } from '../support/sockets.ts';

type Test = Parameters<typeof Rig.start>[0];

// Other tests share the machine.
t.setTimeout(118_000);
const before = takeBase();
const NAME = 'crm.order.query';
const sleep = (ms: number): Promise<void> => new Promise((done) => setTimeout(done, ms));

/** A real everything: one agent, hosted by the sidecar through which it is called. */
class World {
  readonly nats: NatsServer;
  readonly plane: Plane;
  readonly agent: TestAgent;
  readonly rig: Rig;
  readonly proxy: NatsProxy;
  calls = 0;

  private constructor(nats: NatsServer, plane: Plane, agent: TestAgent, proxy: NatsProxy, rig: Rig) {
    this.nats = nats;
    this.plane = plane;
    this.agent = agent;
    this.proxy = proxy;
    this.rig = rig;
  }

  /** The sidecar's way to NATS leads through the proxy, the control plane's does not. */
  static async start(t: Test): Promise<World> {
    const nats = await NatsServer.start(t);
    const proxy = await NatsProxy.start(t, nats.process.port);
    const plane = await Plane.start(t, nats);
    await plane.leads();
    const agent = await TestAgent.listen('order');
    t.teardown(() => agent.close());
    const table = `contracts: [{name: ${NAME}, version: 1.0.0, description: x, acl: public, execution: idempotent}]\nproviders: [{agent_id: crm.order.1, offers: [${NAME}@1.0.0], via: one, endpoint: {type: http, address: "${agent.url}", path: /}}]\n`;
    const settings = `  registry: {nats: "${proxy.url}", env: ${ENV}}\n  mesh: {listen: "127.0.0.1:0", token: token-of-the-mesh}\n  messages: {ack_wait: 2s}\n`;
    const rig = await Rig.start(t, { table, settings });
    const world = new World(nats, plane, agent, proxy, rig);
    await waitUntil('the sidecar is fresh', async () => (await world.health()).status === 'ok', 20_000);
    return world;
  }

  async health(): Promise<{
    status: string;
    config_stale: boolean;
    registry: { connected: boolean; confirmed: boolean; reconnects: number };
  }> {
    return (await this.rig.ask('/v1/health')).json;
  }

  /** One more message for the agent. */
  async cast(): Promise<Awaited<ReturnType<Rig['ask']>>> {
    this.calls++;
    return await this.rig.ask(`/v1/cast/${NAME}`, { method: 'POST' });
  }

  async endOf(cast: { readonly json: { readonly task_id: string } }): Promise<unknown> {
    return (await this.rig.ask(`/v1/tasks/${cast.json.task_id}?wait=20s`)).json;
  }

  /** Whether a call was answered well and soon. */
  async call(): Promise<string> {
    this.calls++;
    const { json, elapsedMs } = await this.rig.invoke(NAME);
    return json?.code === 0 && elapsedMs < 2_000 ? 'well' : `code ${json?.code} after ${elapsedMs.toFixed(0)} ms`;
  }

  /** Calls one after another until told to stop; gives those that did not go well. */
  callOn(): { stop(): Promise<string[]> } {
    const bad: string[] = [];
    let isOver = false;
    const running = (async () => {
      while (!isOver) {
        const went = await this.call();
        if (went !== 'well') bad.push(went);
        await sleep(20);
      }
    })();
    return {
      stop: async () => {
        isOver = true;
        await running;
        return bad;
      },
    };
  }

  /** The operators' word on how long a call may take. */
  apply(timeoutMs: number): Promise<Asked> {
    return this.plane.ask('/v1/policies', { body: `policies:\n  - {capability: ${NAME}, timeout: ${timeoutMs}ms}\n` });
  }

  /** The same as the sidecar has it in force. */
  async inForce(): Promise<number> {
    const { json } = await this.rig.ask('/v1/capabilities');
    return json.capabilities[0]?.versions[0]?.timeout_ms ?? 0;
  }

  async finish(t: Test): Promise<void> {
    await this.rig.stop();
    await this.plane.control.stop(0);
    await this.agent.close();
    await this.proxy.stop();
    await this.nats.stop();
    await assertQuiet(t, {
      before,
      engines: [this.rig.quiet],
      providers: [{ name: 'order', count: this.agent.executions, expected: this.calls }],
    });
  }
}

t.test('C075 rules that are pushed after, during or around an outage of NATS are in force within five seconds of its end', async (t) => {
  const world = await World.start(t);
  const reconnects = async (): Promise<number> => (await world.health()).registry.reconnects;
  /** From when the sidecar is connected again until it has the new rules; also whether it ever called old ones fresh. */
  const awaitVersion = async (t: Test, timeoutMs: number, since: () => Promise<boolean>): Promise<void> => {
    await waitUntil('the sidecar is connected again', since, 20_000, 20);
    const connectedAt = performance.now();
    let lied = 0;
    await waitUntil(
      `${timeoutMs} ms in force`,
      async () => {
        const { config_stale: isStale } = await world.health();
        const has = await world.inForce();
        if (!isStale && has !== timeoutMs && (await world.inForce()) !== timeoutMs) lied++;
        return has === timeoutMs;
      },
      10_000,
      20,
    );
    const tookMs = performance.now() - connectedAt;
    t.ok(tookMs < 5_000, `in force ${tookMs.toFixed(0)} ms after it was connected`);
    t.equal(lied, 0, 'health never called the old rules fresh');
    await waitUntil('fresh', async () => !(await world.health()).config_stale, 10_000);
  };
  t.equal((await world.apply(3_001)).status, 200);
  await waitUntil('the first rules', async () => (await world.inForce()) === 3_001);

  await t.test('the server is restarted, and the rules change afterwards', async (t) => {
    const had = await reconnects();
    await world.nats.restart();
    await waitUntil('stale at once', async () => (await world.health()).config_stale, 2_000, 5);
    await waitUntil('connected again', async () => (await reconnects()) > had, 20_000, 20);
    // It may believe for a moment that it still leads; an order given then is refused in so many words, and given again.
    await waitUntil('the order is taken', async () => (await world.apply(3_002)).status === 200, 20_000, 200);
    await awaitVersion(t, 3_002, async () => true);
  });

  await t.test(
    'the server is away for ten seconds: what is ordered meanwhile is in force afterwards, or was refused in so many words',
    async (t) => {
      const had = await reconnects();
      await world.nats.kill();
      const downAt = performance.now();
      await waitUntil('stale at once', async () => (await world.health()).config_stale, 2_000, 5);
      const ordered = await world.apply(3_003);
      t.ok(ordered.status === 200 || ordered.status === 503, `answered ${ordered.status}: ${JSON.stringify(ordered.body)}`);
      while (performance.now() - downAt < 10_000) {
        t.equal(await world.call(), 'well');
        t.equal((await world.health()).config_stale, true, 'stale all the time');
        await sleep(500);
      }
      await world.nats.restart();
      await waitUntil('the control plane leads again', () => world.plane.control.leading !== null, 20_000);
      // A refused order is given again, as the answer says; nothing of it may come into force behind the operator's back.
      if (ordered.status === 503) {
        t.match((await world.plane.ask('/v1/policies')).body, { version: 2 }, 'the refused order is not in force');
        await waitUntil('the order is taken', async () => (await world.apply(3_003)).status === 200, 20_000, 200);
      }
      await awaitVersion(t, 3_003, async () => (await reconnects()) > had);
    },
  );

  await t.test('the sidecar alone is cut off for five seconds, and the rules change twice meanwhile', async (t) => {
    const had = await reconnects();
    world.proxy.refuses = true;
    world.proxy.cut();
    await waitUntil('stale at once', async () => (await world.health()).config_stale, 2_000, 5);
    t.equal((await world.apply(3_004)).status, 200);
    await sleep(4_000);
    t.equal((await world.apply(3_005)).status, 200);
    await sleep(1_000);
    t.match(await world.health(), { config_stale: true, status: 'stale' });
    t.equal(await world.inForce(), 3_003, 'what it had stays in force');
    world.proxy.refuses = false;
    await awaitVersion(t, 3_005, async () => (await reconnects()) > had);
  });

  t.equal(await world.call(), 'well');
  t.equal(await world.nats.consumers(), 1, 'that of the inboxes of the one sidecar');
  await world.finish(t);
});

/** What a sidecar has inside, on its own connection through the proxy. */
class TableClient {
  readonly bus: Bus;
  readonly registry: RegistryClient;
  readonly table: InstalledTable;
  /** When a connection was made after the first one. */
  readonly backAt: number[] = [];

  constructor(n: number, url: string) {
    const name = `client-${n}`;
    this.bus = Bus.open({ servers: [url], name, clock: realClock, random: new SeededRandom(n + 1) });
    this.bus.onState(({ connected, reconnects }) => {
      if (connected && reconnects > 0) this.backAt.push(performance.now());
    });
    this.table = new InstalledTable(realClock, new Health(realClock, { consecutive: 3, forMs: 10_000 }), {
      name,
      region: null,
      zone: null,
    });
    this.registry = new RegistryClient({
      bus: this.bus,
      subjects: new Subjects(ENV),
      env: ENV,
      clock: realClock,
      random: new SeededRandom(n + 101),
      log: createLog({ level: 'silent', to: 'stderr', service: name }).logger,
      table: this.table,
      self: { sidecar: name, instance: `i-${n}`, region: null, zone: null, callers: [CALLER], heartbeatMs: 45_000, leaseMs: 135_000 },
      staleAfterMs: 5_000,
      keepAt: null,
      version: 'test',
      unreachable: () => null,
    });
    this.registry.start();
    this.registry.announce(null);
  }

  get isFresh(): boolean {
    return this.registry.sync.confirmed && this.table.current().capabilities.has(NAME) && this.table.staleBecause === '';
  }

  async stop(): Promise<void> {
    await this.registry.stop();
    await this.bus.close();
  }
}

t.test(
  'C076 twenty sidecars whose connections are cut again and again leave nothing behind on the server, and come back one by one',
  async (t) => {
    const nats = await NatsServer.start(t);
    const proxy = await NatsProxy.start(t, nats.process.port);
    const plane = await Plane.start(t, nats);
    await plane.leads();
    const host = await FakeSidecar.join(nats, 'host', { 'crm.order.1': [`${NAME}@1.0.0`] });
    t.match(await host.hello(), { ok: true });
    const connectionsBefore = (await nats.connections()).length;
    const clients = Array.from({ length: 20 }, (_, n) => new TableClient(n, proxy.url));
    await waitUntil('all are fresh', () => clients.every((client) => client.isFresh), 20_000);
    const subscriptions = async (): Promise<number[]> =>
      (await nats.connections())
        .filter(({ name }) => name?.startsWith('client-'))
        .map((one) => one.subscriptions)
        .sort();
    const perClient = await subscriptions();

    // Cut every two seconds as written; for 10 s instead of a minute, since what could pile up shows after two cuts.
    const cutAt: number[] = [];
    for (let n = 0; n < 5; n++) {
      cutAt.push(performance.now());
      proxy.cut();
      await sleep(2_000);
    }
    const calmAt = performance.now();
    await waitUntil('all are fresh again', () => clients.every((client) => client.isFresh), 20_000);
    t.ok(performance.now() - calmAt < 12_000, `fresh ${(performance.now() - calmAt).toFixed(0)} ms after the last cut`);

    const back = clients.flatMap(({ backAt }) => backAt).sort((a, b) => a - b);
    t.ok(
      clients.every(({ backAt }) => backAt.length >= 2),
      'each has come back several times',
    );
    const fullest = (times: readonly number[]): number =>
      Math.max(...times.map((at) => times.filter((other) => other >= at && other < at + 100).length));
    const share = fullest(back) / back.length;
    t.ok(share <= 0.3, `at most ${(share * 100).toFixed(0)} % of ${back.length} reconnects within 100 ms`);
    // The first cut meets all twenty at once: that is where a herd would show.
    const first = back.filter((at) => at < (cutAt[1] as number));
    t.ok(first.length >= 10, `${first.length} are back before the second cut`);
    // A herd would be all of them; a busy machine bunches those of a few tenths of a second.
    t.ok(fullest(first) / 20 <= 0.5, `at most ${fullest(first)} of 20 within 100 ms of the first cut`);

    t.equal(
      await nats.consumers(),
      21,
      'one for the inboxes of each sidecar and of the host, as before the cuts: it is made once, by the control plane',
    );
    t.match(await host.bus.consumers(CONFIG_STREAM), [], 'and none for the pushed configuration');
    t.equal((await nats.connections()).length, connectionsBefore + 20, 'one connection each');
    t.same(await subscriptions(), perClient, 'and as many subscriptions as before');

    for (const client of clients) await client.stop();
    await host.bus.close();
    await plane.control.stop(0);
    await proxy.stop();
    await nats.stop();
    await assertQuiet(t, { before });
  },
);

t.test('C077 a server that hangs, or is away, costs no call, leaves no request hanging, and is used again by itself', async (t) => {
  await t.test('stopped with its sockets open', async (t) => {
    const world = await World.start(t);
    // One that notices at once that nobody answers its pings: what the shipped 20 to 30 s would show only after minutes.
    const alert = await world.nats.connect({ pingEveryMs: 400, dialTimeoutMs: 1_000 });
    const patient = await world.nats.connect();
    const reconnectsOf = { alert: alert.state.reconnects, patient: patient.state.reconnects };
    const calling = world.callOn();
    // Eight seconds instead of five minutes: long enough for several attempts that are accepted and never greeted.
    world.nats.pause();
    // The signal takes effect when the kernel gets round to it; what is asked before may still be answered.
    await sleep(200);
    const pausedAt = performance.now();
    const overdue: string[] = [];
    const ask = async (bus: Bus, name: string, deadlineMs: number): Promise<void> => {
      const began = performance.now();
      const reply = await bus.request('nobody.home', Buffer.from('x'), deadlineMs);
      const tookMs = performance.now() - began;
      if (tookMs > deadlineMs + 1_500) overdue.push(`${name}: ${reply.kind} after ${tookMs.toFixed(0)} of ${deadlineMs} ms`);
      if (reply.kind === 'ok' || reply.kind === 'no_responder') overdue.push(`${name}: ${reply.kind} of a server that stands still`);
    };
    const asked: Promise<void>[] = [];
    while (performance.now() - pausedAt < 8_000) {
      for (const deadlineMs of [200, 2_000]) asked.push(ask(alert, 'alert', deadlineMs), ask(patient, 'patient', deadlineMs));
      await sleep(250);
    }
    // The first one waits for the stream as long as it may (2 s here, 10 s by default), then it is on the disk; the next ones go there at once.
    const [first, next] = [await world.cast(), await world.cast()];
    for (const cast of [first, next]) t.match(cast, { status: 202, json: { durable: 'local-disk' } });
    t.ok(first.elapsedMs < 5_500, `the first cast is answered in ${first.elapsedMs.toFixed(0)} ms`);
    t.ok(next.elapsedMs < 1_000, `the next one in ${next.elapsedMs.toFixed(0)} ms`);
    await Promise.all(asked);
    t.same(overdue, [], `all of ${asked.length} requests ended by their deadline`);
    t.equal(alert.connected, false, 'who looks closely has noticed');
    t.equal((await world.health()).config_stale, true);
    world.nats.resume();
    const resumedAt = performance.now();
    t.same(await calling.stop(), [], 'every call went well all the time');
    for (const bus of [alert, patient])
      await waitUntil('usable', async () => (await bus.stream(CONFIG_STREAM)) !== null && bus.connected, 10_000);
    await waitUntil('fresh', async () => !(await world.health()).config_stale, 10_000 - (performance.now() - resumedAt));
    t.ok(performance.now() - resumedAt < 10_000);
    t.ok(alert.state.reconnects > reconnectsOf.alert);
    t.equal(patient.state.reconnects, reconnectsOf.patient, 'who had not given up goes on with the same connection');
    t.equal((await world.apply(4_001)).status, 200);
    await waitUntil('a change is in force', async () => (await world.inForce()) === 4_001, 5_000);
    for (const cast of [first, next]) t.match(await world.endOf(cast), { state: 'done' }, 'what was on the disk is carried out');
    for (const bus of [alert, patient]) await bus.close();
    await world.finish(t);
  });

  await t.test('away', async (t) => {
    const world = await World.start(t);
    // Tries at least ten times as often as the ten times after which the client's own default gives up.
    const hasty = await world.nats.connect({ pace: { ...HASTY, mostMs: 60 } });
    const calling = world.callOn();
    await world.nats.stop();
    const downAt = performance.now();
    let refusedAtOnce = 0;
    while (performance.now() - downAt < 7_000) {
      const began = performance.now();
      const reply = await hasty.request('nobody.home', Buffer.from('x'), 5_000);
      if (reply.kind === 'unreachable' && performance.now() - began < 500) refusedAtOnce++;
      await sleep(500);
    }
    t.ok(refusedAtOnce >= 10, 'who asks meanwhile is told at once');
    const cast = await world.cast();
    t.match(cast, { status: 202, json: { durable: 'local-disk' } });
    t.ok(cast.elapsedMs < 1_000, `a cast is on the disk after ${cast.elapsedMs.toFixed(0)} ms`);
    await world.nats.restart();
    const upAt = performance.now();
    await waitUntil('usable', async () => hasty.connected && (await hasty.stream(CONFIG_STREAM)) !== null, 10_000);
    await waitUntil('fresh', async () => !(await world.health()).config_stale, 15_000);
    t.ok(performance.now() - upAt < 10_000, `fresh ${(performance.now() - upAt).toFixed(0)} ms after its return`);
    t.same(await calling.stop(), [], 'every call went well all the time');
    t.match(await world.endOf(cast), { state: 'done' }, 'what was on the disk is carried out');
    await hasty.close();
    await world.finish(t);
  });

  await t.test('away for five minutes by a clock that is told to move: it never gives up', async (t) => {
    const port = await freePort();
    const clock = new VirtualClock();
    let attempts = 0;
    let bus: Bus | null = null;
    const whys = new Set<string>();
    bus = Bus.open({
      servers: [`nats://127.0.0.1:${port}`],
      name: 'patient',
      clock,
      random: { next: () => (attempts++, 0.5) },
    });
    bus.onState(({ why }) => void whys.add(why));
    const pass = async (seconds: number, until: () => boolean = () => false): Promise<void> => {
      for (let step = 0; step < seconds * 4 && !until(); step++) {
        await clock.advance(250);
        await sleep(2);
      }
    };
    await pass(300);
    t.equal(bus.connected, false);
    const dialled = attempts;
    t.ok(dialled > 60, `${dialled} decisions about dialling in five minutes`);
    // Somebody who speaks NATS appears at that address.
    const server = await NatsServer.start(t);
    const relay = createServer((socket) => {
      const upstream = createConnection(server.process.port, '127.0.0.1');
      socket.pipe(upstream).pipe(socket);
      for (const each of [socket, upstream]) each.on('error', () => {});
    });
    await new Promise<void>((done) => relay.listen(port, '127.0.0.1', done));
    const began = clock.now();
    await pass(30, () => bus.connected);
    t.equal(bus.connected, true);
    t.ok(clock.now() - began <= 10_000, `connected ${clock.now() - began} ms after its return`);
    await bus.close();
    await new Promise((done) => relay.close(done));
    await server.stop();
    await assertQuiet(t, { before });
  });
});

const LONG = `crm.order.${'q'.repeat(5_000)}`;
/** What would be another subject, a wildcard, a command of the protocol, or the server's own. */
const BAD_NAMES = [
  'crm.order query',
  'crm..query',
  'crm.*',
  'crm.>',
  'crm.order\r\nPUB x 0',
  LONG,
  '$SYS.x',
  'crm.order.*',
  '.crm.order',
  'crm.order.',
  '_INBOX.x',
  'crm.order.query\0x',
  'crm.order.\tquery',
  'crm.ördér.query',
];

/** A request as no library would send it. */
function raw(port: number, text: string): Promise<string> {
  return new Promise((done, fail) => {
    const socket = createConnection(port, '127.0.0.1', () => socket.write(Buffer.from(text, 'latin1')));
    let said = '';
    socket.setTimeout(5_000, () => socket.destroy(new Error('no answer')));
    socket.on('data', (data: Buffer) => {
      said += data.toString('latin1');
      socket.end();
    });
    socket.on('error', fail);
    socket.on('close', () => done(said));
  });
}

t.test('C079 what would mean something else in a subject or a header is refused before a byte goes to NATS', async (t) => {
  const world = await World.start(t);
  const { rig, proxy, plane } = world;
  const bus = await world.nats.connect();
  const accepted = proxy.accepted;
  proxy.sent = [];
  const calling = world.callOn();

  for (const name of BAD_NAMES) {
    const shown = JSON.stringify(name.slice(0, 30));
    const answer = await rig.invoke(encodeURIComponent(name));
    t.equal(answer.status, 400, `${shown} as a capability`);
    t.equal(answer.json?.code ?? answer.json?.error?.code, 4006, 'bad_name');
    t.ok(answer.bytes.length < 4_000, 'the answer does not repeat it at length');
    t.equal((await rig.ask(`/v1/explain/${encodeURIComponent(name)}`)).json?.refusal?.code, 4006, `${shown} explained`);

    const provider = (agentId: string, offer: string): string =>
      JSON.stringify({
        contracts: [{ name: offer, version: '1.0.0', acl: 'public' }],
        provider: { agent_id: agentId, offers: [`${offer}@1.0.0`], endpoint: { type: 'http', address: 'http://127.0.0.1:9' } },
      });
    for (const body of [provider('sales.helper.2', name), provider(name, NAME)]) {
      const registered = await rig.ask('/v1/agents', { method: 'POST', body, token: 'token-of-the-helper' });
      t.equal(registered.status, 422, `${shown} registered`);
    }
    for (const method of ['PUT', 'DELETE']) {
      const path = method === 'PUT' ? '/heartbeat' : '';
      const asked = await rig.ask(`/v1/agents/${encodeURIComponent(name)}${path}`, { method, token: 'token-of-the-helper' });
      t.ok(asked.status >= 400 && asked.status < 500, `${shown} ${method}: ${asked.status}`);
    }

    // The control plane's own doors.
    const canary = await plane.ask(`/v1/capabilities/${encodeURIComponent(name)}/canary`, { json: { shares: { '1.0.0': 0.5 } } });
    t.ok(canary.status >= 400 && canary.status < 500, `${shown} as a canary's: ${canary.status}`);
    const explained = await plane.ask(`/v1/explain?sidecar=${encodeURIComponent(name)}&target=${NAME}`);
    t.ok(explained.status >= 400 && explained.status < 500, `${shown} as a sidecar's name: ${explained.status}`);
    const policies = await plane.ask('/v1/policies', { body: JSON.stringify({ policies: [{ capability: `${name}!`, timeout: '1s' }] }) });
    t.equal(policies.status, 422, `${shown} in a policy`);
    t.match(policies.body['detail'], /nothing was changed/);
    const answered = await bus.request(new Subjects(ENV).ctl('hello'), hello(name), 5_000);
    t.equal(answered.kind, 'ok');
    if (answered.kind === 'ok') t.match(JSON.parse(answered.message.data.toString('utf8')), { ok: false, seq: 0 }, `${shown} says hello`);

    // The makers of subjects, and the bus itself, should all of them fail.
    const subjects = new Subjects(ENV);
    for (const make of [subjects.heartbeat, subjects.report, subjects.ask])
      t.throws(() => make.call(subjects, name), /cannot stand in a subject/);
    t.throws(() => new Subjects(name), /environment/);
    for (const subject of [name, `ar.test.hb.${name}`, `ar.test.cfg.cap.${name}`]) {
      if (isPlain(subject)) continue;
      t.equal(bus.publish(subject, Buffer.from('x')), false, `${shown} as a subject`);
      t.match(await bus.request(subject, Buffer.from('x'), 1_000), { kind: 'refused' });
      t.match(await bus.append(subject, Buffer.from('x')), { failed: /subject/, ambiguous: false });
    }
    t.equal(bus.publish('ar.test.fine', Buffer.from('x'), { 'X-Name': `${name.slice(0, 40)}\r\nX-Other: 1` }), false, 'as a header');
  }

  await t.test('header values of a caller with control characters', async (t) => {
    const head = `POST /v1/invoke/${NAME} HTTP/1.1\r\nhost: 127.0.0.1:${rig.port}\r\nauthorization: Bearer ${TOKEN}\r\ncontent-type: application/json\r\ncontent-length: 2\r\n`;
    for (const value of ['a\rb', 'a\nb', 'a\0b', 'a\x07b']) {
      const answer = await raw(rig.port, `${head}reach-sequence: ${value}\r\n\r\n{}`);
      t.match(answer, /^HTTP\/1\.1 400 /, JSON.stringify(value));
    }
    // A line break that HTTP takes for one begins another header: that one is the caller's own, and goes nowhere but to us.
    const own = await new Promise<number>((done, fail) => {
      const request = httpRequest(
        `${rig.url}/v1/invoke/${NAME}`,
        { method: 'POST', agent: false, headers: { authorization: `Bearer ${TOKEN}`, 'content-type': 'application/json' } },
        (response) => {
          response.resume();
          response.on('end', () => done(response.statusCode ?? 0));
        },
      );
      request.on('error', fail);
      t.throws(() => request.setHeader('x-evil', 'a\r\nPUB x 0'), 'Node itself does not send it');
      request.end('{}');
    });
    world.calls++;
    t.equal(own, 200);
  });

  t.same(await calling.stop(), [], 'calls of others were not touched');
  await sleep(100);
  const sent = Buffer.concat(proxy.sent).toString('latin1');
  for (const evil of ['crm.order query', 'crm..query', 'PUB x 0', 'qqqqqqqqqq', '$SYS', 'X-Other', 'crm.>', 'crm.*', 'helper'])
    t.notOk(sent.includes(evil), `nothing of ${JSON.stringify(evil)} went to NATS`);
  t.equal(proxy.accepted, accepted, 'the shared connection has stayed up');
  t.match(await world.health(), { status: 'ok', registry: { connected: true, reconnects: 0 } });
  t.equal(bus.connected, true);
  t.equal(bus.state.reconnects, 0);
  t.equal(plane.control.natsConnected, true);
  t.notOk(plane.said(/NATS says/), 'the server had nothing to complain of');
  t.same(await host(world), ['crm.order.1'], 'and the registry is what it was');
  await bus.close();
  await world.finish(t);
});

/** A subject like any other: a dollar sign means something at its very beginning only. */
const isPlain = (subject: string): boolean => subject.length <= 1_024 && /^[a-zA-Z0-9_-]+(\.[a-zA-Z0-9_$-]+)*$/.test(subject);

function hello(sidecar: string): Buffer {
  return Buffer.from(JSON.stringify({ wire: 1, sidecar, instance: 'x', mesh: null, region: null, zone: null, callers: [], agents: [] }));
}

async function host(world: World): Promise<string[]> {
  const { body } = await world.plane.ask('/v1/providers');
  return (body['providers'] as { agent: string }[]).map(({ agent }) => agent);
}
