/** Who leads: on a simulated stream with every fault a network has, and on a real nats-server. */
import t from 'tap';
import type { BusMessage } from '../../../base/bus-message.ts';
import { type Clock, realClock, type Timer } from '../../../base/clock.ts';
import type { Stored } from '../../../base/jetstream.ts';
import type { Bus } from '../../../base/nats.ts';
import { SeededRandom } from '../../../base/random.ts';
import type { Appended, AppendOptions, Failed, StreamReady } from '../../../base/streams.ts';
import { VirtualClock } from '../../../base/virtual-clock.ts';
import { Leadership, type LeaseStore, type Role } from '../../../control-plane/leader.ts';
import { LEASE_TIMES, type LeaseTimes, leaseBytes, NOBODY, readLease } from '../../../control-plane/lease.ts';
import { CONTROL_STREAM, Subjects } from '../../../proto/wire/subjects.ts';
import { NatsServer } from '../../support/nats.ts';
import { waitUntil } from '../../support/settle.ts';

const NOTHING: BusMessage = { subject: '', data: Buffer.alloc(0), reply: '', header: () => null };
const SUBJECT = new Subjects('x').leader;

/** The control stream, with one subject, as the server has it. */
class World {
  last: Stored | null = null;
  seq = 0;
  readonly watchers = new Set<() => void>();

  write(data: Buffer, expected: number): Appended {
    for (const watch of this.watchers) watch();
    if ((this.last?.seq ?? 0) !== expected) return { conflict: this.last?.seq ?? 0 };
    this.last = { subject: SUBJECT, seq: ++this.seq, data, timestampMs: 0 };
    return { seq: this.seq, duplicate: false };
  }

  /** Deleted and made anew. */
  wipe(): void {
    this.last = null;
    this.seq = 0;
  }
}

/** One replica's way to the stream. Each direction takes its time, and some of what is sent is lost. */
class Wire implements LeaseStore {
  connected = true;
  isCut = false;
  lossRatio = 0;
  /** Most time of one direction; one in twenty takes ten times as long. */
  delayMs = 5;
  readonly #world: World;
  readonly #clock: Clock;
  readonly #random: SeededRandom;

  constructor(world: World, clock: Clock, seed: number) {
    this.#world = world;
    this.#clock = clock;
    this.#random = new SeededRandom(seed);
  }

  async append(_subject: string, data: Uint8Array, options: AppendOptions = {}): Promise<Appended> {
    const lost: Appended = { failed: 'no answer in time', ambiguous: true };
    return await this.#roundTrip(options.timeoutMs ?? 5_000, lost, () =>
      this.#world.write(Buffer.from(data), options.expectLastSubjectSeq ?? -1),
    );
  }

  async lastAtLeader(_stream: string, _subject: string, timeoutMs = 5_000): Promise<Stored | null | Failed> {
    return await this.#roundTrip<Stored | null | Failed>(timeoutMs, { failed: 'no answer in time' }, () => this.#world.last);
  }

  async ensureStream(): Promise<StreamReady> {
    const facts = {
      name: CONTROL_STREAM,
      messages: 0,
      bytes: 0,
      firstSeq: 0,
      lastSeq: 0,
      lastAtMs: 0,
      maxMessages: -1,
      maxBytes: -1,
      consumers: 0,
      created: '',
      subjects: [],
    };
    return await this.#roundTrip<StreamReady>(1_000, { failed: 'no answer in time' }, () => ({ facts, change: 'none', ignored: [] }));
  }

  subscribe(_pattern: string, handler: (message: BusMessage) => void): { refused: null; close(): void } {
    const watch = (): void => {
      if (!this.#isLost()) this.#clock.after(this.#delay(), () => handler(NOTHING));
    };
    this.#world.watchers.add(watch);
    return { refused: null, close: () => void this.#world.watchers.delete(watch) };
  }

  /** What arrives at the stream late is done there late: that the asker has given up changes nothing. */
  #roundTrip<T>(timeoutMs: number, late: T, act: () => T): Promise<T> {
    return new Promise((resolve) => {
      const timer = this.#clock.after(timeoutMs, () => resolve(late));
      if (this.#isLost()) return;
      this.#clock.after(this.#delay(), () => {
        const result = act();
        if (this.#isLost()) return;
        this.#clock.after(this.#delay(), () => {
          timer.cancel();
          resolve(result);
        });
      });
    });
  }

  #isLost(): boolean {
    return this.isCut || this.#random.next() < this.lossRatio;
  }

  #delay(): number {
    return this.#random.next() * this.delayMs * (this.#random.next() < 0.05 ? 10 : 1);
  }
}

/** A clock that goes faster or slower, has its own zero, and whose wall time is nonsense. */
class Skewed implements Clock {
  readonly #clock: VirtualClock;
  readonly #rate: number;
  offsetMs: number;
  wall = 0;

  constructor(clock: VirtualClock, rate: number, offsetMs = 0) {
    this.#clock = clock;
    this.#rate = rate;
    this.offsetMs = offsetMs;
  }
  now(): number {
    return this.#clock.now() * this.#rate + this.offsetMs;
  }
  wallMs(): number {
    return this.wall;
  }
  after(delayMs: number, fire: () => void): Timer {
    return this.#clock.after(Math.max(0, delayMs) / this.#rate, fire);
  }
}

interface Member {
  readonly it: Leadership;
  readonly wire: Wire;
  readonly clock: Skewed;
  readonly roles: Role[];
}

function team(count: number, world: World, clock: VirtualClock, seed: number, times: LeaseTimes = LEASE_TIMES): Member[] {
  const random = new SeededRandom(seed);
  return Array.from({ length: count }, (_, i) => {
    const own = new Skewed(clock, 0.95 + random.next() * 0.1, random.next() * 1e6);
    const wire = new Wire(world, own, seed * 100 + i);
    const it = new Leadership(
      wire,
      own,
      'x',
      { id: `cp-${i}`, url: `http://cp-${i}` },
      { random: new SeededRandom(seed * 1_000 + i), times },
    );
    const roles: Role[] = [];
    it.onChange((role) => roles.push(role));
    return { it, wire, clock: own, roles };
  });
}

const leadersOf = (members: readonly Member[]): Member[] => members.filter((each) => each.it.isLeader);

async function stopAll(members: readonly Member[], clock: VirtualClock): Promise<void> {
  for (const { wire } of members) wire.isCut = true;
  const stopping = Promise.all(members.map((each) => each.it.stop()));
  for (let i = 0; i < 100; i++) await clock.advance(100);
  await stopping;
}

t.test('a lease record', async (t) => {
  const lease = { holder: 'cp-1', incarnation: 'a-b', term: 7, url: 'http://x' };
  t.strictSame(readLease(leaseBytes(lease, LEASE_TIMES)), lease);
  for (const text of [
    '',
    '{',
    'null',
    '[]',
    '{"wire":2}',
    '{"wire":1,"holder":1}',
    JSON.stringify({ wire: 1, ...lease, term: -1 }),
    JSON.stringify({ wire: 1, ...lease, term: 1.5 }),
  ])
    t.strictSame(readLease(Buffer.from(text)), NOBODY, text);
  t.throws(
    () =>
      new Leadership(
        new Wire(new World(), realClock, 1),
        realClock,
        'x',
        { id: 'a', url: '' },
        { times: { renewMs: 1, holdMs: 5, expiryMs: 5 } },
      ),
    /before others/,
  );
  t.throws(() => new Leadership(new Wire(new World(), realClock, 1), realClock, 'x', { id: '', url: '' }), /name/);
});

t.test('on a simulated network', async (t) => {
  t.test('five that start at once: one leads, and all know who', async (t) => {
    const [world, clock] = [new World(), new VirtualClock()];
    const members = team(5, world, clock, 1);
    for (const { it } of members) it.start();
    await clock.advance(1_500);
    const [leader] = leadersOf(members);
    t.equal(leadersOf(members).length, 1);
    for (const { it } of members) t.match([it.leader(), it.term], [{ id: leader?.it.leader()?.id, url: /^http:/ }, 1]);
    await clock.advance(60_000);
    t.strictSame(leadersOf(members), [leader], 'and it stays');
    t.strictSame(leader?.roles, ['leader']);
    await stopAll(members, clock);
  });

  t.test('a leader that is cut off stops by its own clock before another begins, and the other begins within 5 s', async (t) => {
    const [world, clock] = [new World(), new VirtualClock()];
    const members = team(3, world, clock, 2);
    for (const { it } of members) it.start();
    await clock.advance(10_300);
    const [old] = leadersOf(members) as [Member];
    old.wire.isCut = true;
    const cutAt = clock.now();
    let stoppedAt = 0;
    let takenAt = 0;
    let most = 0;
    while (takenAt === 0 && clock.now() < cutAt + 10_000) {
      await clock.advance(5);
      const now = leadersOf(members);
      most = Math.max(most, now.length);
      if (stoppedAt === 0 && !now.includes(old)) stoppedAt = clock.now();
      if (now.length === 1 && now[0] !== old) takenAt = clock.now();
    }
    t.equal(most, 1);
    t.ok(stoppedAt - cutAt <= 3_200, `stopped after ${stoppedAt - cutAt} ms`);
    t.ok(takenAt > stoppedAt && takenAt - cutAt <= 5_000, `taken after ${takenAt - cutAt} ms`);
    t.strictSame(old.roles, ['leader', 'follower']);
    t.equal(leadersOf(members)[0]?.it.term, 2);
    t.equal(old.it.leader(), null, 'the one cut off says that it knows of nobody');
    old.wire.isCut = false;
    await clock.advance(3_000);
    t.match(old.it.leader(), { id: leadersOf(members)[0]?.it.leader()?.id });
    await stopAll(members, clock);
  });

  t.test('a renewal whose answer was lost does not cost the office, and does not lengthen it either', async (t) => {
    const [world, clock] = [new World(), new VirtualClock()];
    const [only] = team(1, world, clock, 3) as [Member];
    only.it.start();
    await clock.advance(2_500);
    const write = world.write.bind(world);
    let swallowed = 0;
    world.write = (data, expected) => {
      const result = write(data, expected);
      if (swallowed++ > 0) return result;
      only.wire.isCut = true; // the answer is lost
      clock.after(900, () => {
        only.wire.isCut = false;
      });
      return result;
    };
    await clock.advance(30_000);
    t.ok(swallowed > 10);
    t.strictSame(only.roles, ['leader']);
    t.ok(only.it.isLeader);
    await stopAll([only], clock);
  });

  t.test(
    'a process that was halted does not believe itself leader when it wakes, whatever its timers and its wall clock say',
    async (t) => {
      const [world, clock] = [new World(), new VirtualClock()];
      const members = team(2, world, clock, 4);
      for (const { it } of members) it.start();
      await clock.advance(5_000);
      const [leader] = leadersOf(members) as [Member];
      leader.clock.wall = 4e12;
      await clock.advance(10_000);
      leader.clock.wall = -4e12;
      await clock.advance(10_000);
      t.strictSame(leadersOf(members), [leader], 'wall time is not looked at');
      leader.clock.offsetMs += 3_100;
      t.equal(leader.it.isLeader, false);
      t.equal(leader.it.leader(), null);
      await stopAll(members, clock);
    },
  );

  t.test('giving it back lets another lead at once, and not the same one', async (t) => {
    const [world, clock] = [new World(), new VirtualClock()];
    const members = team(2, world, clock, 5);
    for (const { it } of members) it.start();
    await clock.advance(5_000);
    const [old] = leadersOf(members) as [Member];
    const resigning = old.it.resign();
    t.equal(old.it.isLeader, false, 'from this moment');
    await clock.advance(300);
    await resigning;
    const [heir] = leadersOf(members);
    t.ok(heir !== undefined && heir !== old);
    t.equal(heir?.it.term, 2);
    await clock.advance(30_000);
    t.strictSame(leadersOf(members), [heir]);
    await stopAll(members, clock);
  });

  t.test('alone, who gave it back takes it again after a while', async (t) => {
    const [world, clock] = [new World(), new VirtualClock()];
    const [only] = team(1, world, clock, 6) as [Member];
    only.it.start();
    await clock.advance(2_000);
    const resigning = only.it.resign();
    await clock.advance(2_000);
    await resigning;
    t.equal(only.it.isLeader, false);
    await clock.advance(4_000);
    t.equal(only.it.isLeader, true);
    await stopAll([only], clock);
  });

  t.test('a stream that is deleted and made anew ends no lease before its time', async (t) => {
    const [world, clock] = [new World(), new VirtualClock()];
    const members = team(3, world, clock, 7);
    for (const { it } of members) it.start();
    await clock.advance(20_000);
    world.wipe();
    let isLed = 0;
    let most = 0;
    for (let i = 0; i < 2_000; i++) {
      await clock.advance(5);
      isLed = leadersOf(members).length;
      most = Math.max(most, isLed);
    }
    t.equal(most, 1);
    t.equal(isLed, 1);
    t.ok((leadersOf(members)[0]?.it.term ?? 0) > 1, 'terms go on counting');
    await stopAll(members, clock);
  });

  t.test('rubbish in the stream is nobody’s lease', async (t) => {
    const [world, clock] = [new World(), new VirtualClock()];
    world.write(Buffer.from('rubbish'), 0);
    const [only] = team(1, world, clock, 8) as [Member];
    only.it.start();
    await clock.advance(1_000);
    t.equal(only.it.isLeader, true);
    await stopAll([only], clock);
  });

  t.test(
    'with losses, delays, cuts, halts and clocks that differ by a tenth: never two at an instant, and in quiet times one',
    async (t) => {
      let changes = 0;
      for (let seed = 1; seed <= 25; seed++) {
        const [world, clock] = [new World(), new VirtualClock()];
        const chance = new SeededRandom(seed);
        const members = team(3, world, clock, seed + 100);
        for (const { it } of members) it.start();
        let most = 0;
        for (let step = 0; step < 1_200; step++) {
          if (step > 100 && step % 40 === 0) {
            for (const { wire } of members) {
              wire.isCut = chance.next() < 0.25;
              wire.lossRatio = chance.next() < 0.5 ? 0 : chance.next() * 0.5;
              wire.delayMs = chance.next() < 0.7 ? 5 : chance.next() * 800;
            }
            if (chance.next() < 0.1) world.wipe();
            if (chance.next() < 0.1) void members[Math.floor(chance.next() * 3)]?.it.resign();
          }
          await clock.advance(50);
          most = Math.max(most, leadersOf(members).length);
        }
        for (const { wire } of members) Object.assign(wire, { isCut: false, lossRatio: 0, delayMs: 5 });
        await clock.advance(12_000);
        if (most > 1 || leadersOf(members).length !== 1)
          t.fail(`seed ${seed}: at most ${most} at a time, ${leadersOf(members).length} in the end`);
        changes += members.reduce((sum, each) => sum + each.roles.length, 0);
        await stopAll(members, clock);
      }
      t.ok(changes > 25 * 4, `${changes} changes were seen`);
    },
  );
});

t.test('on a real nats-server', async (t) => {
  const server = await NatsServer.start(t);
  const quick: LeaseTimes = { renewMs: 100, holdMs: 400, expiryMs: 600 };
  let count = 0;
  const replica = async (times: LeaseTimes): Promise<{ it: Leadership; bus: Bus; id: string }> => {
    const n = ++count;
    const id = `cp-${n}`;
    const bus = await server.connect({ name: id });
    const it = new Leadership(bus, realClock, 'x', { id, url: `http://${id}` }, { times, random: new SeededRandom(n) });
    t.teardown(() => it.stop());
    return { it, bus, id };
  };

  t.test('two that start at once, and the one that is killed is replaced within 5.5 s at the shipped times', async (t) => {
    const [a, b] = await Promise.all([replica(LEASE_TIMES), replica(LEASE_TIMES)]);
    a.it.start();
    b.it.start();
    await waitUntil('one leads and both know it', () => a.it.leader() !== null && a.it.leader()?.id === b.it.leader()?.id);
    t.not(a.it.isLeader, b.it.isLeader);
    const [first, second] = a.it.isLeader ? [a, b] : [b, a];
    const at = performance.now();
    await first.bus.close(); // as good as killed: it says no word to anybody
    let both = 0;
    await waitUntil(
      'the other leads',
      () => {
        if (first.it.isLeader && second.it.isLeader) both++;
        return second.it.isLeader;
      },
      8_000,
      2,
    );
    t.ok(performance.now() - at < 5_500, `${Math.round(performance.now() - at)} ms`);
    t.equal(both, 0);
    t.equal(first.it.isLeader, false);
    t.equal(second.it.term, 2);
    await first.it.stop();
    await second.it.stop();
  });

  t.test('a server that is halted ends the office in time, and gives it back when it goes on; so does one that is killed', async (t) => {
    const [a, b] = await Promise.all([replica(quick), replica(quick)]);
    a.it.start();
    b.it.start();
    await waitUntil('one leads', () => a.it.isLeader || b.it.isLeader);
    server.pause();
    const at = performance.now();
    await waitUntil('nobody leads', () => !a.it.isLeader && !b.it.isLeader);
    t.ok(performance.now() - at < 600);
    await new Promise((done) => setTimeout(done, 1_000));
    server.resume();
    await waitUntil('one leads again', () => a.it.isLeader || b.it.isLeader, 5_000);
    await server.kill();
    await waitUntil('nobody leads', () => !a.it.isLeader && !b.it.isLeader);
    await server.restart();
    await waitUntil('one leads again', () => a.it.isLeader !== b.it.isLeader, 10_000);
    await waitUntil('both know', () => a.it.leader() !== null && a.it.leader()?.id === b.it.leader()?.id);
    const heir = a.it.isLeader ? b : a;
    const begun = performance.now();
    await (heir === a ? b : a).it.stop();
    await waitUntil('the heir leads', () => heir.it.isLeader);
    t.ok(performance.now() - begun < 400, 'without waiting for the lease to run out');
    await heir.it.stop();
  });

  t.test('a stream that is deleted under them is made anew, and one leads', async (t) => {
    const [a, b] = await Promise.all([replica(quick), replica(quick)]);
    a.it.start();
    b.it.start();
    await waitUntil('one leads', () => a.it.isLeader || b.it.isLeader);
    const { connect } = await import('nats');
    const operator = await connect({ servers: server.url });
    await (await operator.jetstreamManager()).streams.delete(CONTROL_STREAM);
    await operator.close();
    await waitUntil(
      'one leads, in a new stream',
      async () =>
        (await b.bus.last(CONTROL_STREAM, SUBJECT, 200).then((it) => it !== null && 'seq' in it)) && a.it.isLeader !== b.it.isLeader,
      10_000,
    );
    t.equal(await server.consumers(), 0);
    await a.it.stop();
    await b.it.stop();
  });
});
