import t from 'tap';
import type { AgentRegistration } from '../../../../proto/wire/registry.ts';
import { documentOf } from '../../../support/registry-writer.ts';
import { settle } from '../../../support/settle.ts';
import { LEASE_MS, tableOf, type VirtualClient, VirtualRegistry } from '../../../support/virtual-registry.ts';

const QUERY = 'crm.order.query';

/** One agent with its contract, hosted here. */
function agent(id: string, name = QUERY, more = ''): AgentRegistration {
  const document = documentOf(`
contracts: [{name: ${name}, version: 1.0.0, description: x, acl: public}]
providers: [{agent_id: ${id}, offers: [${name}@1.0.0], via: here, endpoint: {type: http, address: "http://127.0.0.1:9"}${more}}]
`);
  return { contracts: document.contracts, record: document.providers[0] as AgentRegistration['record'] };
}

const fileOf = (...ids: string[]) => ({
  ...documentOf(tableOf({ [QUERY]: 0 })),
  providers: ids.map((id) => agent(id).record),
});

/** The writer puts into force whatever registers. */
function takesAll(world: VirtualRegistry): void {
  const known = new Map<string, AgentRegistration>();
  const write = async (): Promise<void> => {
    const providers = [...known.values()].map(({ record }) => record);
    await world.writer.capability({ ...documentOf(tableOf({ [QUERY]: 0 })), providers }, QUERY);
    await world.writer.scope('here', [QUERY]);
  };
  world.writer.onHello = async (hello) => {
    known.clear();
    for (const each of hello.agents) if (world.writer.refuses(each.record.agentId) === null) known.set(each.record.agentId, each);
    await write();
  };
  world.writer.onRegister = async ({ agent: each }) => {
    if (world.writer.refuses(each.record.agentId) !== null) return;
    known.set(each.record.agentId, each);
    await write();
  };
  world.writer.onLeave = async ({ agent: id }) => {
    if (id === null) known.clear();
    else known.delete(id);
    await write();
  };
}

const stateOf = (client: VirtualClient, id: string): string | undefined => client.client.own.get(id)?.state;

t.test('hello', async (t) => {
  t.test('says who is here, who calls, and all that is hosted', async (t) => {
    const world = await VirtualRegistry.begun(t);
    takesAll(world);
    const here = world.client({ callers: ['a.b.1', 'a.b.2'], announce: false });
    here.client.announcer.setFile(fileOf('crm.order.1', 'crm.order.2'));
    here.client.announce('http://127.0.0.1:7701');
    await world.clock.advance(5_000);
    t.match(world.writer.hellos, [
      {
        wire: 1,
        sidecar: 'here',
        instance: 'instance-of-here',
        mesh: 'http://127.0.0.1:7701',
        callers: ['a.b.1', 'a.b.2'],
        agents: [{ record: { agentId: 'crm.order.1', via: 'here' }, contracts: [{ name: QUERY }] }, { record: { agentId: 'crm.order.2' } }],
      },
    ]);
    t.strictSame(here.providers(QUERY), ['crm.order.1', 'crm.order.2']);
    t.equal(stateOf(here, 'crm.order.1'), 'in_force');
  });

  t.test('is tried again with growing pauses while nobody answers, and soon when somebody is heard', async (t) => {
    const world = new VirtualRegistry(t);
    const here = world.client();
    const asked: number[] = [];
    const ask = here.bus.request.bind(here.bus);
    here.bus.request = (subject, ...rest) => {
      if (subject === world.writer.subjects.ctl('hello')) asked.push(world.clock.now());
      return ask(subject, ...rest);
    };
    await world.clock.advance(120_000);
    const pauses = asked.slice(1).map((at, i) => at - (asked[i] as number));
    t.ok(asked.length >= 8 && asked.length <= 30, `${asked.length} hellos in two minutes`);
    t.ok(Math.max(...pauses) <= 22_500, `${Math.max(...pauses)}`);
    t.ok((pauses[0] as number) < (pauses.at(-1) as number));
    await world.begin();
    takesAll(world);
    await world.clock.advance(10_000);
    t.equal(world.writer.hellos.length, 1, 'the first beacon brings it forward');
    t.ok(here.client.announcer.isKnown);
  });

  t.test('two hundred sidecars that see the control plane come back do not speak in one breath', async (t) => {
    const world = await VirtualRegistry.begun(t);
    world.writer.die();
    const clients = Array.from({ length: 200 }, (_, i) => world.client({ name: `s${i}`, seed: i }));
    await world.clock.advance(30_000);
    const at: number[] = [];
    world.writer.onHello = async ({ sidecar }) => {
      at.push(world.clock.now());
      await world.writer.scope(sidecar, []);
    };
    world.writer.lead();
    await world.clock.advance(20_000);
    t.equal(new Set(world.writer.hellos.map(({ sidecar }) => sidecar)).size, 200);
    const busiest = Math.max(...at.map((start) => at.filter((each) => each >= start && each < start + 100).length));
    t.ok(busiest <= 60, `${busiest} in a tenth of a second`);
    t.ok(clients.every((each) => each.client.announcer.isKnown));
  });

  t.test('is said again after a break, after the registry has begun anew, and when the leader asks for it', async (t) => {
    const world = await VirtualRegistry.begun(t);
    takesAll(world);
    const here = world.client({ announce: false });
    here.client.announcer.setFile(fileOf('crm.order.1'));
    here.client.announce(null);
    await world.clock.advance(10_000);
    t.equal(world.writer.hellos.length, 1);
    here.bus.disconnect('gone');
    await world.clock.advance(1_000);
    here.bus.connect();
    await world.clock.advance(10_000);
    t.equal(world.writer.hellos.length, 2);
    await world.beginAnew('epoch-2');
    await world.clock.advance(10_000);
    t.equal(world.writer.hellos.length, 3);
    t.equal(stateOf(here, 'crm.order.1'), 'in_force');
    here.client.announcer.helloSoon();
    await world.clock.advance(5_000);
    t.equal(world.writer.hellos.length, 4);
  });

  t.test('a refused agent does not hold up the others, and is shown with all that is wrong', async (t) => {
    const world = await VirtualRegistry.begun(t);
    takesAll(world);
    world.writer.refuses = (id) => (id === 'crm.order.2' ? { agent: id, code: 4003, problems: ['breaks 0.9.0', 'and more'] } : null);
    const here = world.client({ announce: false });
    here.client.announcer.setFile(fileOf('crm.order.1', 'crm.order.2'));
    here.client.announce(null);
    await world.clock.advance(5_000);
    t.strictSame(here.providers(QUERY), ['crm.order.1'], 'the refused one is not routed to, not even here');
    t.match(here.client.own.get('crm.order.2'), { state: 'refused', code: 4003, problems: ['breaks 0.9.0', 'and more'] });
  });

  t.test('what is in force otherwise than it was said is logged and shown, until it is as it was said', async (t) => {
    const world = await VirtualRegistry.begun(t);
    takesAll(world);
    world.writer.warns = (id) => (id === 'crm.order.2' ? { agent: id, code: 4003, problems: ['other content (acl)'] } : null);
    const here = world.client({ announce: false });
    here.client.announcer.setFile(fileOf('crm.order.1', 'crm.order.2'));
    here.client.announce(null);
    await world.clock.advance(5_000);
    t.match(here.client.own.get('crm.order.2'), { state: 'in_force', warnings: ['other content (acl)'] });
    t.same(here.client.own.get('crm.order.1')?.warnings, []);
    t.equal(here.logged.filter((line) => line.includes('other content (acl)')).length, 1);
    world.writer.warns = () => null;
    here.client.announcer.helloSoon();
    await world.clock.advance(5_000);
    t.same(here.client.own.get('crm.order.2')?.warnings, []);
  });

  t.test('a sidecar that is refused as a whole says why and goes on trying', async (t) => {
    const world = await VirtualRegistry.begun(t);
    world.writer.refuses = (id) => (id === '' ? { agent: '', code: 4002, problems: ['a sidecar of this name is alive elsewhere'] } : null);
    const here = world.client();
    await world.clock.advance(70_000);
    t.match(here.client.status().announce_trouble, /alive elsewhere/);
    t.notOk(here.client.announcer.isKnown);
    t.ok(world.writer.hellos.length >= 3 && world.writer.hellos.length <= 8, `${world.writer.hellos.length}`);
    world.writer.refuses = () => null;
    await world.clock.advance(40_000);
    t.ok(here.client.announcer.isKnown);
  });
});

t.test('one agent', async (t) => {
  t.test('registers, is in force, and leaves', async (t) => {
    const world = await VirtualRegistry.begun(t);
    takesAll(world);
    const here = await world.joined();
    const registered = await here.client.announcer.register(agent('crm.order.7'), 'api');
    t.match(registered, { state: 'in_force', seq: world.writer.lastSeq });
    await world.clock.advance(10);
    t.strictSame(here.providers(QUERY), ['crm.order.7']);
    t.equal(await here.client.announcer.deregister('crm.order.7'), true);
    t.match(world.writer.leaves, [{ agent: 'crm.order.7', why: 'left' }]);
    await world.clock.advance(10);
    t.strictSame(here.providers(QUERY), []);
    t.equal(await here.client.announcer.deregister('crm.order.7'), false);
    await world.clock.advance(20_000);
    t.equal(world.writer.hellos.length, 1, 'no hello was needed for it');
  });

  t.test('is routable at its own sidecar before anybody else can hear of it', async (t) => {
    const world = await VirtualRegistry.begun(t);
    takesAll(world);
    const here = await world.joined();
    let seen: string[] | null = null;
    const write = world.writer.onRegister;
    world.writer.onRegister = async (register) => {
      await world.clock.advance(5);
      seen = here.providers(QUERY);
      await write(register);
    };
    const registering = here.client.announcer.register(agent('crm.order.7'), 'api');
    await world.clock.advance(100);
    await registering;
    t.strictSame(seen, ['crm.order.7']);
  });

  t.test('says hello first where its sidecar has not been heard yet', async (t) => {
    const world = await VirtualRegistry.begun(t);
    takesAll(world);
    const stranger = { ok: false, again: 'hello', seq: 0, refused: [{ agent: '', code: 4001, problems: ['say hello first'] }] } as const;
    world.writer.more = (verb) => (verb !== 'hello' && world.writer.hellos.length === 0 ? stranger : {});
    const register = world.writer.onRegister;
    world.writer.onRegister = async (said) => {
      if (world.writer.hellos.length > 0) await register(said);
    };
    const here = world.client({ announce: false });
    await settle();
    here.client.announce(null);
    const [one, two] = await Promise.all(['crm.order.7', 'crm.order.8'].map((id) => here.client.announcer.register(agent(id), 'api')));
    t.match([one, two], [{ state: 'in_force' }, { state: 'in_force' }], 'the one that spoke too early is not to blame');
    t.equal(world.writer.hellos.length, 1, 'one hello is enough for both');
    await world.clock.advance(10_000);
    t.strictSame(here.providers(QUERY), ['crm.order.7', 'crm.order.8']);
    t.ok(world.writer.hellos.length <= 2, `${world.writer.hellos.length} hellos`);
    t.equal(here.client.status().announce_trouble, null);
  });

  t.test('that leaves while the hello before its word is under way is not registered after all', async (t) => {
    const world = await VirtualRegistry.begun(t);
    takesAll(world);
    const here = await world.joined();
    world.writer.more = (verb) => (verb === 'register' && world.writer.hellos.length === 1 ? { ok: false, again: 'hello', seq: 0 } : {});
    let isGone = false;
    const hello = world.writer.onHello;
    world.writer.onHello = async (said) => {
      await hello(said);
      isGone = await here.client.announcer.deregister('crm.order.7');
    };
    await here.client.announcer.register(agent('crm.order.7'), 'api');
    t.equal(isGone, true);
    t.equal(world.writer.registers.length, 1, 'it is not said again');
    world.writer.onHello = hello;
    await world.clock.advance(20_000);
    t.strictSame(here.providers(QUERY), []);
  });

  t.test('that could not be stored yet is pending, reached here, and told again', async (t) => {
    const world = await VirtualRegistry.begun(t);
    takesAll(world);
    const here = await world.joined();
    const later = {
      ok: false,
      again: 'later',
      seq: 0,
      refused: [{ agent: '', code: 7001, problems: ['not written: NATS is away'] }],
    } as const;
    world.writer.more = () => later;
    const { onRegister, onHello } = world.writer;
    world.writer.onRegister = () => Promise.resolve();
    world.writer.onHello = () => Promise.resolve();
    const registered = await here.client.announcer.register(agent('crm.order.7'), 'api');
    t.match(registered, { state: 'pending', problems: [] });
    await world.clock.advance(5_000);
    t.strictSame(here.providers(QUERY), ['crm.order.7'], 'also after a hello that could not be stored');
    t.ok(world.writer.hellos.length >= 2);
    t.equal(here.client.status().announce_trouble, 'not written: NATS is away');
    Object.assign(world.writer, { onRegister, onHello, more: () => ({}) });
    await world.clock.advance(20_000);
    t.equal(stateOf(here, 'crm.order.7'), 'in_force');
    t.strictSame(here.providers(QUERY), ['crm.order.7']);
  });

  t.test('is routable here until the very state has come in which the registry speaks of it, and no longer', async (t) => {
    const world = await VirtualRegistry.begun(t);
    await world.writer.scope('here', []);
    const here = await world.joined();
    const scope = await world.writer.scope('here', [QUERY]);
    await world.clock.advance(100);
    // The word of a hello overtook that of the register: nothing new, and what it says again is still on its way here.
    world.writer.more = () => ({ seq: 0, states: { [QUERY]: scope + 1 } });
    const registered = await here.client.announcer.register(agent('crm.order.7'), 'api');
    t.match(registered, { state: 'in_force', seq: 0 });
    await world.clock.advance(1_000);
    t.strictSame(here.providers(QUERY), ['crm.order.7']);
    // By now an operator has taken it out.
    await world.writer.capability(tableOf({ [QUERY]: 0 }), QUERY);
    await world.writer.scope('here', [QUERY, 'crm.order.more']);
    await world.clock.advance(100);
    t.strictSame(here.providers(QUERY), []);
    world.writer.more = () => ({ seq: world.writer.lastSeq, states: { [QUERY]: scope + 1 } });
    await here.client.announcer.register(agent('crm.order.7'), 'api');
    await world.clock.advance(100);
    t.strictSame(here.providers(QUERY), [], 'although other states are newer');
  });

  t.test('is in the table that calls use when the registration has ended', async (t) => {
    const world = await VirtualRegistry.begun(t);
    takesAll(world);
    const here = await world.joined();
    const registering = here.client.register(agent('crm.order.7'), 'api').then(() => here.providers(QUERY));
    await settle();
    t.equal(stateOf(here, 'crm.order.7'), 'in_force', 'the registry has answered');
    await world.clock.advance(10);
    t.strictSame(await registering, ['crm.order.7']);
  });

  t.test('is pending while the control plane is away, reached here, and told later', async (t) => {
    const world = await VirtualRegistry.begun(t);
    takesAll(world);
    const here = await world.joined();
    world.writer.die();
    const registered = await here.client.announcer.register(agent('crm.order.7'), 'api');
    t.equal(registered.state, 'pending');
    await world.clock.advance(10);
    t.strictSame(here.providers(QUERY), ['crm.order.7']);
    await world.clock.advance(20_000);
    world.writer.lead();
    await world.clock.advance(10_000);
    t.equal(stateOf(here, 'crm.order.7'), 'in_force');
    t.match(world.writer.hellos.at(-1)?.agents, [{ record: { agentId: 'crm.order.7' } }]);
  });

  t.test('that is refused leaves in force what it said before', async (t) => {
    const world = await VirtualRegistry.begun(t);
    takesAll(world);
    const here = await world.joined();
    await here.client.announcer.register(agent('crm.order.7'), 'api');
    world.writer.refuses = (id) => (id === 'crm.order.7' ? { agent: id, code: 4003, problems: ['no'] } : null);
    const again = await here.client.announcer.register(agent('crm.order.7', 'crm.order.delete'), 'api');
    t.match(again, { state: 'refused', problems: ['no'] });
    await world.clock.advance(10);
    t.match(here.client.own.get('crm.order.7'), { state: 'in_force', registration: { record: { offers: [{ name: QUERY }] } } });
    t.strictSame(here.providers(QUERY), ['crm.order.7']);
    t.equal(here.providers('crm.order.delete'), null);
    const fresh = await here.client.announcer.register(agent('crm.order.8'), 'api');
    t.equal(fresh.state, 'in_force');
  });

  t.test('a new one that is refused is forgotten', async (t) => {
    const world = await VirtualRegistry.begun(t);
    takesAll(world);
    const here = await world.joined();
    world.writer.refuses = (id) => (id === '' ? null : { agent: id, code: 4003, problems: ['no'] });
    await here.client.announcer.register(agent('crm.order.7'), 'api');
    await world.clock.advance(10);
    t.equal(here.client.own.get('crm.order.7'), null);
    t.strictSame(here.providers(QUERY), []);
  });

  t.test('that an operator takes out stays out, although it is registered here', async (t) => {
    const world = await VirtualRegistry.begun(t);
    takesAll(world);
    const here = await world.joined();
    await here.client.announcer.register(agent('crm.order.7'), 'api');
    await world.clock.advance(100);
    await world.writer.capability(tableOf({ [QUERY]: 0 }), QUERY);
    await world.clock.advance(10);
    t.strictSame(here.providers(QUERY), []);
  });

  t.test('that left while the control plane is away is not called here any more', async (t) => {
    const world = await VirtualRegistry.begun(t);
    takesAll(world);
    const here = await world.joined();
    await here.client.announcer.register(agent('crm.order.7'), 'api');
    await here.client.announcer.register(agent('crm.order.8'), 'api');
    await world.clock.advance(10);
    world.writer.die();
    await here.client.announcer.deregister('crm.order.7');
    await world.clock.advance(10);
    t.strictSame(here.providers(QUERY), ['crm.order.8']);
    await world.clock.advance(10_000);
    world.writer.lead();
    await world.clock.advance(10_000);
    t.strictSame(here.providers(QUERY), ['crm.order.8']);
    t.match(world.writer.hellos.at(-1)?.agents, [{ record: { agentId: 'crm.order.8' } }], 'a hello that does not name it says so');
  });

  t.test('survives a restart of its sidecar, with NATS or without', async (t) => {
    for (const isAway of [false, true]) {
      const world = await VirtualRegistry.begun(t);
      takesAll(world);
      const first = await world.joined({ keepAt: world.keepAt });
      await first.client.announcer.register(agent('crm.order.7'), 'api');
      await world.written(first);
      first.bus.disconnect('killed');
      if (isAway) world.nats.down();
      const second = world.client({ keepAt: world.keepAt });
      t.strictSame(second.providers(QUERY), ['crm.order.7']);
      await world.clock.advance(10_000);
      t.equal(stateOf(second, 'crm.order.7'), isAway ? 'pending' : 'in_force');
      t.strictSame(second.providers(QUERY), ['crm.order.7']);
    }
  });
});

t.test('an agent that dials in', async (t) => {
  const ID = 'crm.order.7';
  const dialIn = (name = QUERY): AgentRegistration => {
    const { contracts, record } = agent(ID, name);
    return { contracts, record: { ...record, endpoint: { ...record.endpoint, type: 'channel', address: '' } } };
  };
  const connected = new Set<string>();
  const rivals = [{ agent: ID, code: 4003, problems: ['it belongs to another sidecar'] }];
  const begun = async (): Promise<{ world: VirtualRegistry; here: VirtualClient; asked: () => number }> => {
    const world = await VirtualRegistry.begun(t);
    takesAll(world);
    let asked = 0;
    const { onRegister } = world.writer;
    world.writer.onRegister = async (register) => {
      asked++;
      await onRegister(register);
    };
    const here = await world.joined();
    connected.clear();
    here.client.own.isConnected = (id) => connected.has(id);
    return { world, here, asked: () => asked };
  };

  t.test('is there while it is connected, whatever it says by other ways', async (t) => {
    const { world, here, asked } = await begun();
    await here.client.announcer.register(dialIn(), 'api');
    t.equal(stateOf(here, ID), 'gone');
    here.client.announcer.beat(ID);
    await world.clock.advance(100);
    t.same([stateOf(here, ID), asked()], ['gone', 1], 'a beat over HTTP does not make it callable');
    connected.add(ID);
    here.client.announcer.beat(ID);
    await world.clock.advance(100);
    t.equal(stateOf(here, ID), 'in_force');
  });

  t.test(
    'that was refused for the sake of another sidecar is asked about again when it dials in, and not named while it is away',
    async (t) => {
      const { world, here, asked } = await begun();
      connected.add(ID);
      here.client.announcer.setFile({ ...fileOf(), providers: [dialIn().record] });
      world.writer.refuses = (id) => rivals.find((each) => each.agent === id) ?? null;
      here.client.announcer.beat(ID);
      await world.clock.advance(5_000);
      t.equal(stateOf(here, ID), 'refused');
      connected.delete(ID);
      here.client.announcer.disconnected(ID);
      await world.clock.advance(100);
      world.writer.refuses = () => null;
      here.client.announcer.helloSoon();
      await world.clock.advance(5_000);
      t.same(world.writer.hellos.at(-1)?.agents, [], 'a hello does not bring it into force where it is not');
      const before = asked();
      connected.add(ID);
      here.client.announcer.beat(ID);
      here.client.announcer.beat(ID);
      await world.clock.advance(100);
      t.same([stateOf(here, ID), asked()], ['in_force', before + 1]);
    },
  );

  t.test('that hangs up while a new word of it is refused is not in force by its old one', async (t) => {
    const { world, here } = await begun();
    connected.add(ID);
    await here.client.announcer.register(dialIn(), 'api');
    world.writer.refuses = (id) => rivals.find((each) => each.agent === id) ?? null;
    const again = here.client.announcer.register(dialIn('crm.order.delete'), 'api');
    connected.delete(ID);
    here.client.announcer.disconnected(ID);
    await again;
    await world.clock.advance(100);
    t.equal(stateOf(here, ID), 'gone');
    world.writer.refuses = () => null;
    connected.add(ID);
    here.client.announcer.beat(ID);
    await world.clock.advance(100);
    t.equal(stateOf(here, ID), 'in_force', 'so that its next connection brings it back');
  });

  t.test('that has moved to another sidecar is called there', async (t) => {
    const { world, here } = await begun();
    connected.add(ID);
    await here.client.announcer.register(dialIn(), 'api');
    connected.delete(ID);
    here.client.announcer.disconnected(ID);
    await world.clock.advance(100);
    t.strictSame(here.providers(QUERY), [], 'away');
    const moved = { ...dialIn().record, via: 'there' };
    await world.writer.capability(
      { ...documentOf(tableOf({ [QUERY]: 0 })), providers: [moved], sidecars: [{ name: 'there', mesh: 'http://127.0.0.1:9' }] },
      QUERY,
    );
    await world.clock.advance(100);
    t.strictSame(here.providers(QUERY), [ID]);
  });
});

t.test('the own file', async (t) => {
  t.test('a reload announces the difference and nothing else', async (t) => {
    const world = await VirtualRegistry.begun(t);
    takesAll(world);
    const here = world.client({ announce: false });
    here.client.announcer.setFile(fileOf('crm.order.1', 'crm.order.2'));
    here.client.announce(null);
    await world.clock.advance(10_000);
    here.client.announcer.setFile(fileOf('crm.order.2', 'crm.order.3'));
    await world.clock.advance(5_000);
    t.strictSame(
      world.writer.registers.map(({ agent: { record } }) => record.agentId),
      ['crm.order.3'],
    );
    t.strictSame(
      world.writer.leaves.map(({ agent: id }) => id),
      ['crm.order.1'],
    );
    t.equal(world.writer.hellos.length, 1);
    t.strictSame(here.providers(QUERY), ['crm.order.2', 'crm.order.3']);
    here.client.announcer.setFile(fileOf('crm.order.2', 'crm.order.3'));
    await world.clock.advance(5_000);
    t.equal(world.writer.registers.length, 1, 'the same again says nothing');
  });

  t.test('many changes are one hello', async (t) => {
    const world = await VirtualRegistry.begun(t);
    takesAll(world);
    const here = await world.joined();
    const many = Array.from({ length: 40 }, (_, i) => `crm.order.${i}`);
    here.client.announcer.setFile(fileOf(...many));
    await world.clock.advance(3_000);
    t.equal(world.writer.registers.length, 0);
    t.equal(world.writer.hellos.length, 2);
    t.equal(here.providers(QUERY)?.length, 40);
  });

  t.test('does not remove an agent of the API', async (t) => {
    const world = await VirtualRegistry.begun(t);
    takesAll(world);
    const here = await world.joined();
    await here.client.announcer.register(agent('crm.order.7'), 'api');
    here.client.announcer.setFile(fileOf());
    await world.clock.advance(1_000);
    t.equal(stateOf(here, 'crm.order.7'), 'in_force');
  });

  t.test('agents of the file are reached when everything is away and there is a copy', async (t) => {
    const world = await VirtualRegistry.begun(t);
    takesAll(world);
    await world.written(await world.joined({ keepAt: world.keepAt }));
    world.nats.down();
    const here = world.client({ keepAt: world.keepAt, announce: false });
    here.client.announcer.setFile(fileOf('crm.order.1'));
    here.client.announce(null);
    await world.clock.advance(10);
    t.strictSame(here.providers(QUERY), ['crm.order.1']);
  });
});

t.test('signs of life', async (t) => {
  t.test('a heartbeat every 45 s, not all at once, with what each agent does', async (t) => {
    const world = await VirtualRegistry.begun(t);
    takesAll(world);
    const here = world.client({ announce: false });
    here.client.announcer.setFile(fileOf('crm.order.1'));
    here.client.announce(null);
    await world.clock.advance(40_000);
    here.answered('crm.order.1', world.clock);
    here.health.provider('crm.order.1').inFlight = 2;
    await world.clock.advance(450_000 - 40_000);
    const { beats } = world.writer;
    t.ok(beats.length >= 9 && beats.length <= 12, `${beats.length} in ten periods`);
    t.match(beats[0], { sidecar: 'here', instance: 'instance-of-here', agents: { 'crm.order.1': { inFlight: Number } } });
    t.equal(beats.at(-1)?.agents['crm.order.1']?.inFlight, 2);
    const first = Array.from({ length: 50 }, (_, i) => world.client({ name: `s${i}`, seed: i }));
    const at: number[] = [];
    world.nats.subscriptions.add({
      bus: first[0]?.bus as never,
      pattern: 'ar.test.hb.*',
      queue: '',
      handler: () => void at.push(Math.floor(world.clock.now() / 1_000)),
    });
    await world.clock.advance(45_000);
    const busiest = Math.max(...at.map((second) => at.filter((each) => each === second).length));
    t.ok(busiest <= 8, `${busiest} of 50 in one second`);
  });

  t.test('an agent of the API that is silent for a lease is gone, and back with its next beat', async (t) => {
    const world = await VirtualRegistry.begun(t);
    takesAll(world);
    const here = await world.joined();
    await here.client.announcer.register(agent('crm.order.7'), 'api');
    await world.clock.advance(LEASE_MS - 10_000);
    t.equal(stateOf(here, 'crm.order.7'), 'in_force');
    await world.clock.advance(20_000);
    t.equal(stateOf(here, 'crm.order.7'), 'gone');
    t.match(world.writer.leaves, [{ agent: 'crm.order.7', why: 'lease' }]);
    t.strictSame(here.providers(QUERY), []);
    await world.clock.advance(50_000);
    t.notOk('crm.order.7' in (world.writer.beats.at(-1)?.agents ?? {}));
    here.client.announcer.beat('crm.order.7');
    await world.clock.advance(100);
    t.equal(stateOf(here, 'crm.order.7'), 'in_force');
    t.strictSame(here.providers(QUERY), ['crm.order.7']);
    t.equal(here.client.own.counts().in_force, 1, 'and there is one of it');
  });

  t.test('a sidecar that stood still does not take that time for the silence of its agents', async (t) => {
    const world = await VirtualRegistry.begun(t);
    takesAll(world);
    const here = await world.joined();
    await here.client.announcer.register(agent('crm.order.7'), 'api');
    await world.clock.advance(30_000);
    // Halted for three minutes: one look is overdue, and what the agent said meanwhile has not been read yet.
    const now = world.clock.now.bind(world.clock);
    world.clock.now = () => now() + 180_000;
    await world.clock.advance(LEASE_MS - 40_000);
    t.equal(stateOf(here, 'crm.order.7'), 'in_force');
    t.strictSame(world.writer.leaves, []);
    await world.clock.advance(20_000);
    t.equal(stateOf(here, 'crm.order.7'), 'gone', 'silence since then counts');
  });

  t.test('it lives as long as it beats, or as it answers calls (C062)', async (t) => {
    for (const how of ['beats', 'answers']) {
      const world = await VirtualRegistry.begun(t);
      takesAll(world);
      const here = await world.joined();
      await here.client.announcer.register(agent('crm.order.7'), 'api');
      for (let i = 0; i < 10; i++) {
        await world.clock.advance(60_000);
        if (how === 'beats') here.client.announcer.beat('crm.order.7');
        else here.answered('crm.order.7', world.clock);
      }
      t.equal(stateOf(here, 'crm.order.7'), 'in_force', how);
      t.strictSame(world.writer.leaves, []);
    }
  });

  t.test('while the registry is away it is not routed to here either', async (t) => {
    const world = await VirtualRegistry.begun(t);
    takesAll(world);
    const here = await world.joined();
    await here.client.announcer.register(agent('crm.order.7'), 'api');
    await world.clock.advance(10);
    world.writer.die();
    await world.clock.advance(LEASE_MS + 10_000);
    t.strictSame(here.providers(QUERY), []);
    here.client.announcer.beat('crm.order.7');
    await world.clock.advance(10);
    t.strictSame(here.providers(QUERY), ['crm.order.7']);
  });

  t.test('goodbye is said at once, and waits for nobody long', async (t) => {
    const world = await VirtualRegistry.begun(t);
    takesAll(world);
    const here = await world.joined();
    await here.client.announcer.register(agent('crm.order.7'), 'api');
    await here.client.leave(1_000);
    t.match(world.writer.leaves.at(-1), { agent: null, why: 'left' });
    const { length } = world.writer.beats;
    await world.clock.advance(200_000);
    t.equal(world.writer.beats.length, length, 'whoever has left does not beat');
    t.equal(world.writer.hellos.length, 1);
    const there = await world.joined({ name: 'there' }).catch(() => null);
    t.equal(there, null, 'the writer gives it no scope');
  });
});

t.test('reports come soon after a change and every five seconds', async (t) => {
  const world = await VirtualRegistry.begun(t);
  await world.writer.all(tableOf({ [QUERY]: 1 }), 'here');
  const here = await world.joined();
  const { length } = world.writer.reports;
  await world.clock.advance(20_000);
  t.equal(world.writer.reports.length - length, 4);
  const seq = await world.writer.capability(tableOf({ [QUERY]: 2 }), QUERY);
  await world.clock.advance(120);
  t.match(world.writer.reports.at(-1), {
    wire: 1,
    sidecar: 'here',
    instance: 'instance-of-here',
    version: '0.0.0',
    epoch: 'epoch-1',
    appliedSeq: seq,
    capabilities: 1,
    providers: 2,
    staleBecause: '',
    refused: [],
    tableVersion: here.table.current().version,
  });

  // While changes follow one another how far it has come is told once a second; what somebody waits for is told at once.
  const before = world.writer.reports.length;
  for (let n = 0; n < 40; n++) {
    await world.writer.capability(tableOf({ [QUERY]: 3 + (n % 2) }), QUERY);
    await world.clock.advance(50);
  }
  t.ok(world.writer.reports.length - before <= 3, `${world.writer.reports.length - before} reports of 40 changes in 2 s`);
  await world.writer.putRaw('cap.crm.order.query', 'broken');
  await world.clock.advance(120);
  t.match(world.writer.reports.at(-1), { refused: [{ why: /not JSON/ }] });
  await world.writer.capability(tableOf({ [QUERY]: 5 }), QUERY);
  await world.clock.advance(1_100);
  t.match(world.writer.reports.at(-1), { providers: 5, refused: [] });
});
