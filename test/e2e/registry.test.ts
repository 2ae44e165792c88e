/**
 * Whole fleets on a virtual clock, from the agent's registration to the table of who calls it: the leader's reign and the sidecars'
 * side of the registry, with a bus in memory between them. What goes wrong here takes minutes, or must happen in one instant.
 */
import t from 'tap';
import { SeededRandom } from '../../base/random.ts';
import { VirtualClock } from '../../base/virtual-clock.ts';
import type { CapabilityState } from '../../proto/wire/registry.ts';
import { CONFIG_STREAM, Tail } from '../../proto/wire/subjects.ts';
import { contractLine, mockLine } from '../support/offline.ts';
import { agentOf, askLeader, helloOf, leaveOf, registerOf } from '../support/registry-kit.ts';
import { VirtualFleet, type VirtualReplica, type VirtualSidecar } from '../support/virtual-plane.ts';

t.setTimeout(100_000);

const NAME = 'crm.order.query';

function fileOf(agent: string, via: string, more = ''): string {
  return `contracts:\n${contractLine(NAME, '1.0.0')}\nproviders:\n${mockLine(agent, [`${NAME}@1.0.0`], `via: ${via}${more}`)}\n`;
}

/** Sidecars that host one agent each, and one that calls them. */
async function fleetOf(
  count: number,
  leader = 'cp',
): Promise<{ fleet: VirtualFleet; plane: VirtualReplica; caller: VirtualSidecar; agents: string[] }> {
  const fleet = new VirtualFleet();
  const plane = fleet.replica(leader);
  await plane.lead();
  const agents = Array.from({ length: count }, (_, n) => `crm.order.p${n}`);
  for (const [n, agent] of agents.entries()) await fleet.sidecar(`host-${n}`, fileOf(agent, `host-${n}`));
  const caller = await fleet.sidecar('caller', '', { callers: ['support.planner.1'] });
  if (caller.providersOf(NAME).join() !== agents.join()) throw new Error(`the caller knows ${caller.providersOf(NAME).join()}`);
  return { fleet, plane, caller, agents };
}

/** Lets time pass and gives every set of providers that the caller's table had meanwhile, in order. */
async function seen(fleet: VirtualFleet, caller: VirtualSidecar, ms: number): Promise<string[]> {
  const sets: string[] = [];
  for (let left = ms; left > 0; left -= 50) {
    await fleet.pass(50);
    const now = caller.providersOf(NAME).join(' ');
    if (sets.at(-1) !== now) sets.push(now);
  }
  return sets;
}

const short = (agents: readonly string[]): string => agents.join(' ');

/** What the stream says of a capability. */
function stored(fleet: VirtualFleet): { seq: number; agents: string[] } {
  const found = fleet.nats.streams.get(CONFIG_STREAM)?.lastOf(fleet.subjects.cfg(Tail.capability(NAME))) ?? null;
  if (found === null) return { seq: 0, agents: [] };
  return {
    seq: found.seq,
    agents: (JSON.parse(found.data.toString('utf8')) as CapabilityState).providers.map(({ record }) => record.agentId).sort(),
  };
}

t.test('two replicas that both think they lead', async (t) => {
  await t.test('one of them writes, the other finds out with its first word, and nothing that was answered is lost', async (t) => {
    for (const seed of [1, 2, 3, 4, 5]) {
      const random = new SeededRandom(seed);
      const { fleet, plane: one, caller, agents } = await fleetOf(2, 'one');
      const two = fleet.replica('two');
      await two.lead(2);
      t.ok(one.isLeading && two.isLeading, 'both think so');
      // Forty sidecars speak to whoever listens; both do.
      const bus = fleet.nats.open('forty');
      await bus.ready();
      const accepted = new Set(agents);
      const asked: Promise<void>[] = [];
      for (let n = 0; n < 40; n++) {
        const agent = `crm.order.x${n}`;
        const sidecar = `side-${n}`;
        const hello = helloOf({ sidecar, instance: 'i' }, [agentOf(fileOf(agent, sidecar), sidecar)]);
        asked.push(
          askLeader(bus, fleet.subjects, 'hello', hello).then((answer) => {
            if (answer.ok) accepted.add(agent);
          }),
        );
        if (random.next() < 0.3) await fleet.pass(50 * Math.ceil(random.next() * 4));
      }
      await fleet.pass(7_000);
      await Promise.all(asked);
      t.equal(Number(one.isLeading) + Number(two.isLeading), 1, 'one is left');
      const loser = one.isLeading ? two : one;
      t.match(loser.lost, [/another replica has written/]);
      const inForce = stored(fleet);
      for (const agent of accepted) t.ok(inForce.agents.includes(agent), `${agent} was accepted and is in force`);
      t.strictSame(caller.providersOf(NAME), inForce.agents, 'and every table says the same');

      // The loser reads what is stored, and has nothing to add to it.
      const winner = one.isLeading ? one : two;
      winner.die();
      const { lastSeq } = fleet.nats.streams.get(CONFIG_STREAM) ?? { lastSeq: 0 };
      await loser.lead(3);
      await fleet.pass(1_000);
      t.equal(fleet.nats.streams.get(CONFIG_STREAM)?.lastSeq, lastSeq, 'taking over again changes nothing');
      await bus.close();
      await fleet.stop();
    }
  });

  await t.test('one that was asleep while the other led cannot undo what has happened since', async (t) => {
    const fleet = new VirtualFleet();
    const sleepy = new VirtualClock();
    const old = fleet.replica('old', { clock: sleepy });
    await old.lead();
    const hosts: VirtualSidecar[] = [];
    for (const n of [0, 1, 2]) hosts.push(await fleet.sidecar(`host-${n}`, fileOf(`crm.order.p${n}`, `host-${n}`)));
    const caller = await fleet.sidecar('caller', '', { callers: ['support.planner.1'] });
    fleet.halt(sleepy);
    // It neither hears nor says anything while it sleeps.
    fleet.nats.loses = (client) => client === 'old';
    const next = fleet.replica('next');
    await next.lead(2);
    await fleet.sidecar('host-3', fileOf('crm.order.p3', 'host-3'));
    t.equal(next.leading.registry.setProvider('crm.order.p1', { drain: true }).problem, null);
    await hosts[0]?.registry.leave(1_000);
    await fleet.pass(2_000);
    const now = stored(fleet);
    t.strictSame(now.agents, ['crm.order.p1', 'crm.order.p2', 'crm.order.p3']);
    fleet.nats.loses = () => false;
    // It wakes three minutes later, and by its own clock the lease of everybody has run out.
    await sleepy.advance(180_000);
    fleet.letGo(sleepy);
    t.strictSame(await seen(fleet, caller, 20_000), [short(now.agents)], 'no table has moved');
    t.strictSame(stored(fleet).agents, now.agents);
    const bus = fleet.nats.open('asker');
    await bus.ready();
    const asked = askLeader(
      bus,
      fleet.subjects,
      'hello',
      helloOf({ sidecar: 'late', instance: 'i' }, [agentOf(fileOf('crm.order.p4', 'late'), 'late')]),
    );
    await fleet.pass(6_000);
    t.match(await asked, { ok: true });
    t.equal(old.isLeading, false, 'with its first word it has noticed');
    t.equal(next.isLeading, true);
    t.strictSame(stored(fleet).agents, [...now.agents, 'crm.order.p4']);
    await bus.close();
    await fleet.stop();
  });
});

t.test('a stream that is deleted and made anew', async (t) => {
  const { fleet, plane, caller, agents } = await fleetOf(4);
  const epoch = caller.registry.sync.epoch;
  // Something is known of each of them that a fresh table would not know.
  const cell = caller.offline.cell(agents[0] as string, NAME);
  for (let n = 0; n < 2; n++) cell.connectFailed(fleet.clock.now());
  fleet.nats.deleteStream(CONFIG_STREAM);
  plane.die();
  const writing = fleet.replica('cp-2');
  await writing.lead(2);
  const sets = await seen(fleet, caller, 20_000);
  t.strictSame(sets, [short(agents)], 'no provider was missing from the table for a moment, though the registry began empty');
  t.not(caller.registry.sync.epoch, epoch, 'it is the new one');
  t.strictSame(stored(fleet).agents, agents, 'all have registered again by themselves');
  t.equal(caller.offline.cell(agents[0] as string, NAME), cell, 'what calls had shown of them');
  t.equal(cell.provider.consecutiveFailures, 2, 'is still known');
  t.equal(caller.registry.status().kept.length, 0, 'and nothing is kept beside the registry any more');
  t.equal(caller.offline.table.staleBecause, '');
  await fleet.stop();
});

t.test('a clock that jumps', async (t) => {
  await t.test('the wall clocks of all machines, by years: nobody looks at them', async (t) => {
    const { fleet, plane, caller, agents } = await fleetOf(3);
    const wall = fleet.clock.wallMs.bind(fleet.clock);
    fleet.clock.wallMs = () => wall() - 3 * 365 * 86_400_000;
    t.strictSame(await seen(fleet, caller, 200_000), [short(agents)]);
    t.equal(plane.events.filter(({ kind }) => kind === 'offline').length, 0);
    await fleet.stop();
  });

  await t.test('a leader that stood still for longer than a lease does not take its own silence for that of others', async (t) => {
    for (const seconds of [40, 140, 3_600]) {
      const fleet = new VirtualFleet();
      const clock = new VirtualClock();
      const plane = fleet.replica('cp', { clock });
      await plane.lead();
      await fleet.sidecar('host', fileOf('crm.order.p0', 'host'));
      const caller = await fleet.sidecar('caller', '', { callers: ['support.planner.1'] });
      // Halted, or the machine asleep: all its timers are overdue at once, and what was sent to it is read after them.
      jumpBy(clock, seconds * 1_000);
      t.strictSame(await seen(fleet, caller, 60_000), ['crm.order.p0'], `${seconds} s`);
      t.equal(plane.events.filter(({ kind }) => kind === 'offline').length, 0);
      await fleet.stop();
    }
  });

  await t.test('a sidecar that stood still for an hour: gone meanwhile, back with its next word, registered once', async (t) => {
    const fleet = new VirtualFleet();
    const plane = fleet.replica('cp');
    await plane.lead();
    const clock = new VirtualClock();
    await fleet.sidecar('host', fileOf('crm.order.p0', 'host'), { clock });
    const caller = await fleet.sidecar('caller', '', { callers: ['support.planner.1'] });
    fleet.halt(clock);
    t.strictSame(await seen(fleet, caller, 200_000), ['crm.order.p0', ''], 'gone once');
    jumpBy(clock, 3_600_000);
    fleet.letGo(clock);
    t.strictSame(await seen(fleet, caller, 10_000), ['', 'crm.order.p0'], 'back once');
    t.equal(plane.events.filter(({ kind }) => kind === 'registered').length, 1);
    t.strictSame(await seen(fleet, caller, 300_000), ['crm.order.p0']);
    await fleet.stop();
  });
});

/** What is due within that time is due now, and each timer fires once: as for a process that was halted. */
function jumpBy(clock: VirtualClock, ms: number): void {
  const now = clock.now.bind(clock);
  clock.now = () => now() + ms;
}

t.test('a registration that flaps ten times a second', async (t) => {
  const { fleet, plane, caller, agents } = await fleetOf(2);
  const steady = short(agents);
  const bus = fleet.nats.open('flapper');
  await bus.ready();
  const from = { sidecar: 'flapper', instance: 'i' };
  const flapping = (weight: number): ReturnType<typeof agentOf> =>
    agentOf(fileOf('crm.order.z', 'flapper', `, weight: ${weight}`), 'flapper');
  const hello = askLeader(bus, fleet.subjects, 'hello', helloOf(from));
  await fleet.pass(1_000);
  t.match(await hello, { ok: true });

  const seqBefore = plane.mirror.lastSeq;
  const installedBefore = caller.offline.table.current().version;
  const answers: Promise<unknown>[] = [];
  for (let n = 0; n < 300; n++) {
    const isComing = n % 2 === 0;
    const said = isComing
      ? askLeader(bus, fleet.subjects, 'register', registerOf(from, flapping(n + 1)))
      : askLeader(bus, fleet.subjects, 'leave', leaveOf(from, 'crm.order.z'));
    answers.push(said);
    await fleet.pass(100);
    t.ok(caller.providersOf(NAME).join(' ').startsWith(steady), 'the others are not touched');
  }
  await fleet.pass(5_000);
  await Promise.all(answers);
  const written = plane.mirror.lastSeq - seqBefore;
  const installed = caller.offline.table.current().version - installedBefore;
  t.ok(written <= 2 * (30 + 10), `${written} messages for 300 changes in 30 s: one change a second after a burst`);
  t.ok(installed <= 30 + 10, `${installed} tables`);
  t.strictSame(caller.providersOf(NAME), agents, 'the last word was a goodbye, and it counts');

  // The last word wins, whichever it is, and is in force soon.
  const last = askLeader(bus, fleet.subjects, 'register', registerOf(from, flapping(777)));
  await fleet.pass(2_000);
  t.match(await last, { ok: true });
  t.strictSame(caller.providersOf(NAME), [...agents, 'crm.order.z']);
  t.equal(caller.offline.table.current().providers.get('crm.order.z')?.record.weight, 777);
  await bus.close();
  await fleet.stop();
});
