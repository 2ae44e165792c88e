/** Leases, the merged list, addresses: what the registry believes of providers, and how that reaches those who call them. */
import type { LookupFunction } from 'node:net';
import t from 'tap';
import { type AddressPolicy, AllowList, NOTHING_ALLOWED } from '../../base/address-guard.ts';
import { VirtualClock } from '../../base/virtual-clock.ts';
import { REGISTRY_WIRE } from '../../proto/wire/registry.ts';
import { Tail } from '../../proto/wire/subjects.ts';
import type { Reply } from '../../sidecar/call/reply.ts';
import type { Result } from '../../sidecar/call/result.ts';
import { Destinations } from '../../sidecar/transports/destinations.ts';
import { HttpTransport } from '../../sidecar/transports/http.ts';
import { TestAgent } from '../support/agent.ts';
import { Plane, ENV as WIRE_ENV } from '../support/control-plane.ts';
import { assertQuiet, takeBase } from '../support/invariants.ts';
import { contractLine, mockLine } from '../support/offline.ts';
import { NatsServer } from '../support/nats.ts';
import { agentOf, agentsOf, askLeader, beatOf, helloOf } from '../support/registry-kit.ts';
import { type Answer, Rig } from '../support/rig.ts';
import { waitUntil } from '../support/settle.ts';
import { LEASES, VirtualFleet, type VirtualReplica, type VirtualSidecar } from '../support/virtual-plane.ts';

import { candidateOf, contextOf, exchangeOf } from '../unit/sidecar/transports/exchanges.ts';

type Test = Parameters<typeof assertQuiet>[0];

// Other tests share the machine.
t.setTimeout(110_000);
const before = takeBase();
const NAME = 'crm.order.query';
const P1 = 'crm.order.p1';
/** Heartbeats come up to a tenth late. */
const BEAT_MS = 50_000;

/** Ends the world and asserts that nothing is left of it; `executions` per sidecar whose mocks did the work. */
async function finish(
  t: Test,
  fleet: VirtualFleet,
  executions: readonly (readonly [VirtualSidecar, Readonly<Record<string, number>>])[],
): Promise<void> {
  const providers = executions.flatMap(([{ offline, name }, counts]) =>
    Object.entries(counts).map(([agent, expected]) => ({
      name: `${agent} by ${name}`,
      count: () => offline.mock.executions(agent),
      expected,
    })),
  );
  await fleet.stop();
  t.equal(fleet.nats.subscriptions.size, 0, 'no subscription is left on the bus');
  await assertQuiet(t, { before, engines: fleet.sidecars.map(({ offline }) => offline.quiet), providers });
}

const wordsOf = (replica: VirtualReplica, kind: string, agent = P1): string[] =>
  replica.events.filter((event) => event.kind === kind && event.agent === agent).map(({ words }) => words);

/** A provider that takes `ms` for its first call and is quick afterwards. */
function slowFile(ms: number, via: string): string {
  const long = 'timeout: 200s, deadline: 200s';
  const script = `latency: ${ms}ms, behaviours: [{after: 1, latency: 1ms}]`;
  return `contracts:\n${contractLine(NAME, '1.0.0', long)}\nproviders:\n${mockLine(P1, [`${NAME}@1.0.0`], `via: ${via}`, script)}\n`;
}

const DEADLINE = { headers: { 'reach-deadline-ms': '200000' } };

interface Blocked {
  readonly fleet: VirtualFleet;
  readonly plane: VirtualReplica;
  readonly host: VirtualSidecar;
  readonly caller: VirtualSidecar;
  readonly hostClock: VirtualClock;
}

async function blockedWorld(blockMs: number): Promise<Blocked> {
  const fleet = new VirtualFleet();
  const plane = fleet.replica('cp');
  await plane.lead();
  const hostClock = new VirtualClock();
  const host = await fleet.sidecar('host', slowFile(blockMs, 'host'), { clock: hostClock });
  const caller = await fleet.sidecar('caller', '', { callers: ['support.planner.1'] });
  return { fleet, plane, host, caller, hostClock };
}

/** Lets time pass second by second and gives how many of the seconds saw the provider in the caller's table. */
async function secondsListed({ fleet, caller }: Blocked, seconds: number): Promise<number> {
  let listed = 0;
  for (let second = 0; second < seconds; second++) {
    await fleet.pass(1_000);
    if (caller.providersOf(NAME).includes(P1)) listed++;
  }
  return listed;
}

const state = (plane: VirtualReplica): string | undefined => plane.leading.registry.providers().find(({ agent }) => agent === P1)?.status;

t.test(
  'C062 a busy provider keeps its place for a whole lease, then gets no new calls, and its pending call is answered all the same',
  async (t) => {
    // Who sees the silence: the agent alone hangs, and its sidecar sees it; or agent and sidecar stand still together, and nobody beats.
    for (const what of ['the agent blocks, its sidecar lives', 'agent and sidecar block together'] as const) {
      const isNode = what === 'agent and sidecar block together';
      // The call comes from the agent's own sidecar, which sees the work under way; or, when that stands still, from another one.
      const callFrom = ({ host, caller }: Blocked): VirtualSidecar => (isNode ? caller : host);

      await t.test(`${what} for 60 s: it stays online all the time, and the call is answered`, async (t) => {
        const world = await blockedWorld(60_000);
        const { fleet, plane, hostClock } = world;
        const begun = callFrom(world).offline.begin(NAME, DEADLINE);
        if (isNode) fleet.halt(hostClock);
        t.equal(await secondsListed(world, 60), 60);
        await fleet.pass(10);
        const result = await begun;
        t.equal(result.entry.code, 0);
        t.equal(result.provider, P1);
        if (isNode) await hostClock.advance(60_000);
        fleet.letGo(hostClock);
        t.equal(await secondsListed(world, 200), 200, 'and afterwards');
        t.same(wordsOf(plane, 'offline'), []);
        t.equal(wordsOf(plane, 'registered').length, 1);
        await finish(t, fleet, [[callFrom(world), { [P1]: 1 }]]);
      });

      await t.test(`${what} for 140 s: no new calls, the pending one is answered, back at the next beat, registered once`, async (t) => {
        const world = await blockedWorld(140_000);
        const { fleet, plane, host, caller, hostClock } = world;
        const begun = callFrom(world).offline.begin(NAME, DEADLINE);
        let isOver = false;
        void begun.then(() => {
          isOver = true;
        });
        if (isNode) fleet.halt(hostClock);
        // Not before its lease has run out: 135 s after it was last seen at rest, or last heard of.
        const sure = isNode ? 135 - BEAT_MS / 1_000 : 134;
        t.equal(await secondsListed(world, sure), sure);
        await secondsListed(world, 139 - sure);
        t.equal(state(plane), 'offline');
        t.equal(isOver, false, 'the call is still under way');
        for (let n = 0; n < 5; n++) {
          t.equal(await caller.offline.served(NAME, { payload: { n } }), '2001', 'who calls elsewhere is told that nobody serves it');
          if (!isNode) t.equal(await host.offline.served(NAME, { payload: { n } }), '2001', 'so is who calls at its own sidecar');
        }
        await fleet.pass(1_100);
        const result = await begun;
        t.equal(result.entry.code, 0, 'the pending call is answered within its deadline');
        t.equal(result.provider, P1);
        t.ok(result.elapsedMs >= 140_000 && result.elapsedMs < 200_000, `after ${result.elapsedMs} ms`);

        const beats: number[] = [];
        const ear = fleet.nats.open('ear');
        await ear.ready();
        ear.subscribe(fleet.subjects.heartbeat('host'), () => void beats.push(fleet.clock.now()));
        const returnedAt = fleet.clock.now();
        if (isNode) await hostClock.advance(140_000);
        fleet.letGo(hostClock);
        while (beats.length === 0 && fleet.clock.now() - returnedAt < BEAT_MS) await fleet.pass(100);
        await fleet.pass(100);
        t.ok(beats.length > 0, 'it has beaten');
        t.equal(state(plane), 'online', 'online at that very beat');
        await fleet.pass(400);
        t.equal(await served(fleet, callFrom(world)), P1, 'and in use again');
        t.equal(wordsOf(plane, 'offline').length, 1);
        t.equal(wordsOf(plane, 'online').length, 1);
        t.equal(wordsOf(plane, 'registered').length, 1, 'no second registration');
        t.equal(plane.leading.registry.providers().filter(({ agent }) => agent === P1).length, 1);
        t.same(caller.providersOf(NAME), [P1]);
        await ear.close();
        await finish(t, fleet, [[callFrom(world), { [P1]: 2 }]]);
      });
    }

    // A neighbour: out of the table, its calls under way must not be forgotten, or the next beat would call it idle and bring it back.
    await t.test('the beats of its sidecar do not bring back an agent that still hangs on its call', async (t) => {
      const world = await blockedWorld(195_000);
      const { fleet, plane, host, caller } = world;
      const begun = host.offline.begin(NAME, DEADLINE);
      await secondsListed(world, 137);
      t.equal(state(plane), 'offline');
      t.equal(await secondsListed(world, 57), 0, 'in none of the seconds until it answers');
      await fleet.pass(2_000);
      t.equal((await begun).entry.code, 0);
      await fleet.pass(BEAT_MS);
      t.same(caller.providersOf(NAME), [P1]);
      t.equal(wordsOf(plane, 'online').length, 1);
      await finish(t, fleet, [[host, { [P1]: 1 }]]);
    });

    // A neighbour: a provider that takes 190 s for each call, but answers others meanwhile, is alive and stays.
    await t.test('whoever answers other calls meanwhile is not gone, however long one of them takes', async (t) => {
      const world = await blockedWorld(190_000);
      const { fleet, plane, host } = world;
      const long = host.offline.begin(NAME, DEADLINE);
      for (let n = 0; n < 18; n++) {
        t.equal(await secondsListed(world, 10), 10);
        t.equal(await served(fleet, host), P1);
      }
      await fleet.pass(15_000);
      t.equal((await long).entry.code, 0);
      t.same(wordsOf(plane, 'offline'), []);
      await finish(t, fleet, [[host, { [P1]: 19 }]]);
    });

    await t.test('500 providers that beat in the same second: under 5 % of a CPU, and nobody flaps', async (t) => {
      const fleet = new VirtualFleet();
      const plane = fleet.replica('cp');
      await plane.lead();
      const bus = fleet.nats.open('the-500');
      await bus.ready();
      const speakers = Array.from({ length: 500 }, (_, n) => ({ sidecar: `host-${n}`, instance: `i-${n}`, agent: `crm.order.p${n}` }));
      const answers = speakers.map((speaker) => {
        const text = `contracts:\n${contractLine(NAME, '1.0.0')}\nproviders:\n${mockLine(speaker.agent, [`${NAME}@1.0.0`], `via: ${speaker.sidecar}`)}\n`;
        return askLeader(bus, fleet.subjects, 'hello', helloOf(speaker, [agentOf(text, speaker.sidecar)]));
      });
      await fleet.pass(2_000);
      t.ok((await Promise.all(answers)).every(({ ok }) => ok));
      t.equal(plane.leading.registry.providers().filter(({ status }) => status === 'online').length, 500);
      const seqBefore = plane.mirror.lastSeq;
      const cpuBefore = process.cpuUsage();
      const beganAt = fleet.clock.now();
      for (let wave = 0; wave < 12; wave++) {
        // Each misses one beat in a while: one that is lost takes nobody away.
        const beating = speakers.filter((_, n) => (n + wave) % 7 !== 0);
        for (const [n, speaker] of beating.entries()) {
          bus.publish(
            fleet.subjects.heartbeat(speaker.sidecar),
            encode(beatOf(speaker, { [speaker.agent]: { idleMs: 45_000, inFlight: 0 } })),
          );
          if (n % 50 === 49) await fleet.pass(100);
        }
        await fleet.pass(beganAt + (wave + 1) * LEASES.heartbeatMs - fleet.clock.now());
      }
      const { user, system } = process.cpuUsage(cpuBefore);
      const share = (user + system) / 1_000 / (fleet.clock.now() - beganAt);
      t.ok(share < 0.05, `${(share * 100).toFixed(3)} % of a CPU over ${(fleet.clock.now() - beganAt) / 1_000} s`);
      t.equal(plane.leading.registry.providers().filter(({ status }) => status === 'online').length, 500);
      t.same(
        plane.events.filter(({ kind }) => kind === 'offline' || kind === 'online'),
        [],
      );
      t.equal(plane.mirror.lastSeq, seqBefore, 'beats write and push nothing');
      await finish(t, fleet, []);
    });
  },
);

t.test('C063 what a killed provider offered does not hide what a new one offers, and its end is told once', async (t) => {
  const offers = (names: readonly string[]): string[] => names.map((name) => `crm.order.${name}`);
  const file = (agent: string, names: readonly string[], script: string, via: string): string => {
    const lines = offers(names).map((name) => contractLine(name, '1.0.0'));
    const provider = mockLine(
      agent,
      offers(names).map((name) => `${name}@1.0.0`),
      `via: ${via}`,
      script,
    );
    return `contracts:\n${lines.join('\n')}\nproviders:\n${provider}\n`;
  };
  const OLD = 'crm.order.old';
  const NEW = 'crm.order.new';
  const fleet = new VirtualFleet();
  const plane = fleet.replica('cp');
  await plane.lead();
  // Nobody listens at the old one's port any more after ten seconds of this world.
  const old = await fleet.sidecar('old', file(OLD, ['a', 'b'], 'latency: 1ms, behaviours: [{after: 7s, refuse_connect: true}]', 'old'));
  const caller = await fleet.sidecar('caller', '', { callers: ['support.planner.1'] });
  const call = async (name: string): Promise<string> => served(fleet, caller, `crm.order.${name}`);
  t.equal(await call('a'), OLD);
  t.equal(await call('c'), '2001', 'c is nobody’s yet');
  await fleet.pass(8_000);
  await old.kill();
  const killedAt = fleet.clock.now();

  await fleet.sidecar('new', file(NEW, ['a', 'b', 'c'], 'latency: 1ms', 'new'), { mesh: 'http://127.0.0.1:2' });
  t.equal(await call('c'), NEW, 'c can be called as soon as the new one has registered');
  t.ok(fleet.clock.now() - killedAt < 5_000);
  for (const name of ['a', 'b']) t.equal(await call(name), NEW, 'what reaches the dead one first is served by the other');
  const listed = (): Record<string, string[]> =>
    Object.fromEntries(offers(['a', 'b', 'c']).map((name) => [name.slice('crm.order.'.length), caller.providersOf(name)]));
  t.strictSame(listed(), { a: [NEW, OLD], b: [NEW, OLD], c: [NEW] }, 'the union over all whose lease runs');
  const registry = (): Record<string, number> =>
    Object.fromEntries(plane.leading.registry.capabilities().map((one) => [one.capability, one.online]));
  t.strictSame(registry(), { 'crm.order.a': 2, 'crm.order.b': 2, 'crm.order.c': 1 });

  const refusedBefore = caller.offline.mock.executions(OLD);
  const stored: string[] = [];
  const enough = plane.mirror.listen((tail) => stored.push(tail));
  await fleet.pass(140_000);
  enough();
  t.strictSame(listed(), { a: [NEW], b: [NEW], c: [NEW] }, 'after its lease it is gone from every list');
  t.strictSame(registry(), { 'crm.order.a': 1, 'crm.order.b': 1, 'crm.order.c': 1 });
  t.equal(wordsOf(plane, 'offline', OLD).length, 1, 'told once');
  t.strictSame(
    stored.sort(),
    [Tail.capability('crm.order.a'), Tail.capability('crm.order.b'), Tail.alerts, Tail.registration('old')],
    'and pushed once: what is stored of its sidecar, and the two capabilities; that it is gone is on its way to being an alert',
  );
  const health = [...caller.offline.health.providers()].map(({ agentId }) => agentId);
  t.strictSame(health, [NEW], 'nothing is measured of it any more');
  caller.offline.metricsForget();
  t.match(await caller.offline.metrics(), /reach_attempts_total{[^}]*crm\.order\.old/, 'its last calls are shown once more');
  t.notMatch(await caller.offline.metrics(), OLD, 'and then nothing of it');
  const counts: Record<string, number> = {};
  for (let n = 0; n < 90; n++) {
    const who = await call(['a', 'b', 'c'][n % 3] as string);
    counts[who] = (counts[who] ?? 0) + 1;
  }
  t.strictSame(counts, { [NEW]: 90 }, 'nobody is sent to it');
  t.equal(caller.offline.mock.executions(OLD), refusedBefore);
  await fleet.pass(300_000);
  t.equal(wordsOf(plane, 'offline', OLD).length, 1, 'never again');
  await finish(t, fleet, [[caller, { [OLD]: 1, [NEW]: 3 + 90 }]]);
});

// ---- addresses

const PAY = 'ext.pay.charge';
const NOTHING: AddressPolicy = { allow: NOTHING_ALLOWED, loopback: false, private: false };

/** A file that describes third parties, one for each address. */
function thirdParties(addresses: readonly string[], more = ''): string {
  const lines = addresses.map(
    (address, n) => `  - {agent_id: ext.pay.p${n}, offers: ["${PAY}@1.0.0"], endpoint: {type: http, address: "${address}", path: /}}`,
  );
  return `contracts:\n${contractLine(PAY, '1.0.0')}\nproviders:\n${lines.join('\n')}\n${more}`;
}

/** A name server whose answers are written down here. */
function lookupOf(answers: (name: string) => readonly string[]): LookupFunction {
  return (name, _options, callback) => {
    const found = answers(name).map((address) => ({ address, family: address.includes(':') ? 6 : 4 }));
    if (found.length > 0) callback(null, found);
    else callback(Object.assign(new Error('no such name'), { code: 'ENOTFOUND' }), []);
  };
}

async function sentTo(address: string, destinations: Destinations, reach: 'direct' | 'self' = 'direct'): Promise<Reply> {
  const transport = new HttpTransport(contextOf({ destinations }));
  const reply = await transport.invoke(exchangeOf(candidateOf({ address, reach })));
  await transport.close();
  return reply;
}

t.test(
  'C117 a registered address never leads where the operator does not let it, however it is spelt and whatever it turns into',
  async (t) => {
    await t.test(
      'third parties are judged by the operator’s list when they are registered, on every address that a name leads to',
      async (t) => {
        const names: Record<string, readonly string[]> = {
          '127.0.0.1.nip-like.test': ['127.0.0.1'],
          'half.example.test': ['93.184.216.34', '10.0.0.5'],
          'api.example.test': ['93.184.216.34'],
          'billing.internal': ['10.0.0.7'],
        };
        const allow = AllowList.parse(['billing.internal', '10.20.0.0/16']) as AllowList;
        const fleet = new VirtualFleet();
        const plane = fleet.replica('cp', { addresses: { ...NOTHING, allow }, resolve: async (name) => names[name] ?? [] });
        await plane.lead();
        const bad = [
          'http://[::ffff:7f00:1]:9200',
          'http://2130706433:9200',
          'http://0x7f.1:9200',
          'http://0177.0.0.01:9200',
          'http://127.0.0.1.nip-like.test:9200',
          'http://localhost:9200',
          'http://[::1]:9200',
          'http://[64:ff9b::7f00:1]:9200',
          'http://0.0.0.0:9200',
          'http://169.254.169.254/latest/meta-data',
          'http://half.example.test',
          'http://10.0.0.7',
        ];
        const good = ['https://api.example.test', 'http://billing.internal:8080', 'http://10.20.3.4', 'http://93.184.216.34'];
        const bus = fleet.nats.open('asker');
        await bus.ready();
        const asked = askLeader(
          bus,
          fleet.subjects,
          'hello',
          helloOf({ sidecar: 'one', instance: 'i' }, agentsOf(thirdParties([...bad, ...good]), 'one')),
        );
        await fleet.pass(3_000);
        const answer = await asked;
        t.strictSame(
          answer.refused.map(({ agent }) => agent),
          bad.map((_, n) => `ext.pay.p${n}`),
          'each of these is refused, and those alone',
        );
        for (const { agent, code, problems } of answer.refused) {
          t.equal(code, 4002, `${agent} forbidden`);
          t.match(problems[0], /loopback|private|credentials|stands for no machine/);
        }
        t.strictSame(
          plane.leading.registry.providers().map(({ agent }) => agent),
          good.map((_, n) => `ext.pay.p${bad.length + n}`),
        );
        await bus.close();
        await finish(t, fleet, []);
      },
    );

    /** What listens on this machine and is nobody's provider. */
    const admin = await TestAgent.listen('admin');
    const ADMIN = admin.port;

    await t.test('what a name leads to is judged again when a socket is opened: a name that flips leads nowhere', async (t) => {
      let asked = 0;
      const flips = lookupOf(() => (asked++ === 0 ? ['93.184.216.34'] : ['127.0.0.1']));
      await new Promise((done) => flips('flip.example.test', {}, done));
      const reply = await sentTo(`http://flip.example.test:${ADMIN}`, new Destinations(NOTHING, flips));
      t.equal(reply.code, 1001);
      t.equal(reply.started, 'not_started', 'so that another provider may be tried');
      t.match(reply.detail, /"flip\.example\.test" leads to 127\.0\.0\.1, which is a loopback address/);
      for (const [address, answers, words] of [
        [`http://a.test:${ADMIN}`, ['::ffff:127.0.0.1'], /loopback/],
        ['http://a.test', ['169.254.169.254'], /credentials of a machine/],
        ['http://a.test', ['10.0.0.1', 'fd00::1'], /private/],
        [`http://localhost:${ADMIN}`, ['127.0.0.1'], /loopback/],
        ['http://169.254.169.254', [], /credentials of a machine/],
        ['http://[fd00:ec2::254]', [], /credentials of a machine/],
      ] as const)
        t.match(
          await sentTo(
            address,
            new Destinations(
              NOTHING,
              lookupOf(() => answers),
            ),
          ),
          { code: 1001, started: 'not_started', detail: words },
          address,
        );
      t.equal(admin.executions, 0);
      t.equal(admin.openConnections, 0);
      // The same name is fine where the operator lets it be.
      const allowed = new Destinations(
        { ...NOTHING, allow: AllowList.parse(['*.example.test']) as AllowList },
        lookupOf(() => ['127.0.0.1']),
      );
      t.match(await sentTo(`http://billing.example.test:${ADMIN}`, allowed), { code: 0 });
      t.match(
        await sentTo(
          'http://billing.example.test',
          new Destinations(
            NOTHING,
            lookupOf(() => []),
          ),
        ),
        { code: 1001, detail: /does not resolve/ },
      );
      t.equal(admin.executions, 1);
    });

    await t.test('a sidecar’s own ports are no target, on whichever of its addresses', async (t) => {
      const destinations = new Destinations(
        { ...NOTHING, loopback: true, private: true },
        lookupOf(() => ['127.0.0.1']),
      );
      destinations.own(ADMIN);
      for (const host of ['127.0.0.1', '[::ffff:7f00:1]', '2130706433', '0x7f.1', 'localhost', 'me.example.test', '127.9.9.9', '0.0.0.0'])
        for (const reach of ['direct', 'self'] as const)
          t.match(
            await sentTo(`http://${host}:${ADMIN}`, destinations, reach),
            { code: 1001, started: 'not_started' },
            `${host}, ${reach}`,
          );
      t.equal(admin.executions, 1, 'as before');
    });

    await t.test('over the wire: agents that register, redirects, and the operator’s list', async (t) => {
      const nats = await NatsServer.start(t);
      const plane = await Plane.start(t, nats, 'cp-1', `  addresses: {allow: [127.0.0.1]}\n`);
      await plane.leads();
      const pay = await TestAgent.listen('pay');
      const moved = await TestAgent.listen('moved', () => ({ status: 302, headers: { location: `${admin.url}/secrets` } }));
      const meta = await TestAgent.listen('meta', () => ({
        status: 307,
        headers: { location: 'http://169.254.169.254/latest/meta-data' },
      }));
      const hosted = [moved, meta].map(
        ({ name, url }) =>
          `  - {agent_id: ext.${name}.1, offers: ["ext.${name}.go@1.0.0"], via: one, endpoint: {type: http, address: "${url}", path: /}}\n`,
      );
      const contracts = [moved, meta].map(({ name }) => `${contractLine(`ext.${name}.go`, '1.0.0')}\n`);
      const rig = await Rig.start(t, {
        table: thirdParties([pay.url, `http://[::1]:${ADMIN}`], hosted.join('')).replace(
          'contracts:\n',
          `contracts:\n${contracts.join('')}`,
        ),
        settings: `  registry: {nats: "${nats.url}", env: ${WIRE_ENV}}\n  operator_token: token-of-the-operator\n  mesh: {listen: "127.0.0.1:0", token: token-of-the-mesh}\n`,
      });
      await waitUntil('the sidecar is fresh', async () => (await rig.ask('/v1/health')).json.status === 'ok', 20_000);
      t.match((await rig.invoke(PAY)).json, { code: 0, provider: 'ext.pay.p0' }, 'what the list allows is served');
      const agents = (await rig.ask('/v1/agents', { token: 'token-of-the-operator' })).json.agents as {
        agent: string;
        state: string;
        problems: string[];
      }[];
      t.match(
        agents.find(({ agent }) => agent === 'ext.pay.p1'),
        { state: 'refused', problems: [/::1 is a loopback address/] },
      );
      t.equal((await rig.invoke('ext.moved.go')).json.code === 0, false, 'a redirect is no answer');
      t.equal((await rig.invoke('ext.meta.go')).json.code === 0, false);

      const register = async (address: string): Promise<Answer> => {
        const contract = { name: 'crm.order.query', version: '1.0.0', acl: 'public' };
        const provider = { agent_id: 'sales.helper.2', offers: ['crm.order.query@1.0.0'], endpoint: { type: 'http', address, path: '/' } };
        return await rig.ask('/v1/agents', { method: 'POST', payload: { contracts: [contract], provider }, token: 'token-of-the-helper' });
      };
      const mesh = new URL(rig.started.meshUrl ?? '').port;
      for (const port of [String(rig.port), mesh]) {
        for (const host of ['127.0.0.1', '[::ffff:7f00:1]', '2130706433', '0x7f.1']) {
          const answer = await register(`http://${host}:${port}`);
          t.ok(answer.status === 403 || answer.status === 409 || answer.status === 422, `${host}:${port} refused: ${answer.status}`);
          t.match(JSON.stringify(answer.json), /a port of (?:this sidecar|Agent-Reach) itself/);
        }
      }
      t.match(await register(`http://user:pass@127.0.0.1:${ADMIN}`), { status: 422 }, 'no credentials in an address');
      t.notMatch(JSON.stringify((await register(`http://user:pass@127.0.0.1:${ADMIN}`)).json), /user:pass/, 'nor are they repeated');
      for (const address of ['http://169.254.169.254', 'http://[::ffff:a9fe:a9fe]']) t.ok((await register(address)).status >= 400, address);
      t.equal((await register(pay.url)).status, 201, 'an agent on its own machine is what a sidecar is for');

      await rig.stop();
      await plane.control.stop(0);
      for (const agent of [pay, moved, meta]) await agent.close();
      await nats.stop();
      const counts = [pay, moved, meta].map((agent) => ({ name: agent.name, count: () => agent.executions, expected: 1 }));
      await assertQuiet(t, { before, engines: [rig.quiet], providers: counts, mayStayOpen: { TCPServerWrap: 1, socket: 1 } });
    });

    await admin.close();
    await assertQuiet(t, { before, providers: [{ name: 'admin', count: admin.executions, expected: 1 }] });
  },
);

/** Makes a call and lets the time of everybody pass until it has ended. */
async function served(fleet: VirtualFleet, { offline }: VirtualSidecar, asked = NAME): Promise<string> {
  let result: Result | null = null;
  void offline.begin(asked, DEADLINE).then((ended) => {
    result = ended;
  });
  for (let step = 0; step < 100 && result === null; step++) await fleet.pass(10);
  const { entry, provider } = result as unknown as Result;
  return entry.code === 0 ? (provider ?? 'nobody') : String(entry.code);
}

const encode = (message: object): Uint8Array => Buffer.from(JSON.stringify({ ...message, wire: REGISTRY_WIRE }));
