/** Overrides as they come to a sidecar: in force at once, never older, never half, kept over restarts, told to everybody. On a bus in memory. */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { pino } from 'pino';
import t, { type Test } from 'tap';
import { SeededRandom } from '../../../../base/random.ts';
import { VirtualClock } from '../../../../base/virtual-clock.ts';
import { overrideStream } from '../../../../control-plane/overrides/stream.ts';
import type { Override } from '../../../../proto/language/types.ts';
import { type InForce, type OverrideEntry, readInForce } from '../../../../proto/wire/overrides.ts';
import { OVERRIDE_STREAM, Subjects } from '../../../../proto/wire/subjects.ts';
import { DurableFile } from '../../../../sidecar/table/durable-file.ts';
import { OverridesInForce } from '../../../../sidecar/table/overrides-in-force.ts';
import { OperatorsClock } from '../../../../sidecar/table/operators-clock.ts';
import { type MemoryBus, MemoryNats } from '../../../support/memory-bus.ts';
import { settle } from '../../../support/settle.ts';

const subjects = new Subjects('test');

/** A stream, a writer that plays the control plane, and sidecars. */
class World {
  readonly clock = new VirtualClock();
  readonly nats = new MemoryNats(() => this.clock.wallMs());
  readonly writer: MemoryBus;
  readonly told: InForce[] = [];
  epoch = 'e1';
  revision = 0;

  private constructor() {
    this.writer = this.nats.open('cp');
  }

  static async begun(): Promise<World> {
    const world = new World();
    await settle();
    await world.writer.ensureStream(overrideStream(subjects, 1));
    world.writer.subscribe(subjects.inForce('*'), ({ data }) => void world.told.push(readInForce(data) as InForce));
    return world;
  }

  entry(id: string, more: Partial<OverrideEntry> = {}): OverrideEntry {
    const at = this.clock.wallMs();
    const target = { capability: 'crm.order.query' };
    return { id, action: 'block', target, to: null, cut: false, reason: `why ${id}`, author: 'dana', at, expires_at: null, ...more };
  }

  async put(...overrides: OverrideEntry[]): Promise<number> {
    return await this.putRaw(JSON.stringify({ wire: 1, epoch: this.epoch, revision: ++this.revision, overrides }));
  }

  async putRaw(text: string): Promise<number> {
    const stored = await this.writer.append(subjects.overrides, Buffer.from(text));
    await this.clock.advance(1);
    return 'seq' in stored ? stored.seq : 0;
  }

  async beacon(more: object = {}): Promise<void> {
    const seq = this.nats.streams.get(OVERRIDE_STREAM)?.lastSeq ?? 0;
    const beacon = { wire: 1, from: 'cp', epoch: this.epoch, seq, at: this.clock.wallMs(), ...more };
    this.writer.publish(subjects.overrideBeacon, Buffer.from(JSON.stringify(beacon)));
    await this.clock.advance(300);
  }

  /** The stream is deleted and made anew. */
  async lose(): Promise<void> {
    this.nats.streams.delete(OVERRIDE_STREAM);
    await this.writer.ensureStream(overrideStream(subjects, 1));
  }
}

class Sidecar {
  readonly bus: MemoryBus;
  readonly overrides: OverridesInForce;
  readonly logged: string[] = [];
  installed: readonly Override[] = [];
  installations = 0;

  constructor(world: World, name = 'one', file: DurableFile | null = null, clock = world.clock) {
    this.bus = world.nats.open(name);
    this.overrides = new OverridesInForce({
      bus: this.bus.bus,
      subjects,
      env: 'test',
      clock,
      random: new SeededRandom(1),
      log: pino({ level: 'debug' }, { write: (line: string) => void this.logged.push(line) }),
      table: {
        installOverrides: (rules) => {
          this.installed = rules;
          this.installations++;
        },
      },
      sidecar: name,
      instance: `i-${name}`,
      file,
    });
    this.overrides.start();
  }

  get ids(): string[] {
    return this.installed.map(({ name }) => name);
  }

  says(words: RegExp): boolean {
    return this.logged.some((line) => words.test(line));
  }
}

t.test('what is pushed is in force at once and told; what is lifted is gone', async (t) => {
  const world = await World.begun();
  const here = new Sidecar(world);
  await world.clock.advance(10);
  const seq = await world.put(world.entry('a'));
  t.strictSame(here.ids, ['a']);
  t.match(world.told.at(-1), { sidecar: 'one', instance: 'i-one', epoch: 'e1', seq });
  t.match(here.overrides.standing, { epoch: 'e1', seq });
  t.match(here.overrides.status(), {
    in_force: [{ id: 'a', reason: 'why a', author: 'dana', expires_at: null }],
    refused: null,
    trouble: null,
  });
  await world.put();
  t.strictSame(here.ids, []);
  t.match(here.overrides.status().in_force, []);
  await here.overrides.stop();
});

t.test('a lost push is found by a beacon, by a reconnect, and by who joins later', async (t) => {
  const world = await World.begun();
  const here = new Sidecar(world);
  await world.put(world.entry('a'));
  world.nats.loses = (client, subject) => client === 'one' && subject.includes('.ovrpush.');
  await world.put(world.entry('a'), world.entry('b'));
  t.strictSame(here.ids, ['a']);
  await world.beacon();
  t.strictSame(here.ids, ['a', 'b'], 'named by a beacon');
  here.bus.disconnect('gone');
  await world.put(world.entry('c'));
  here.bus.connect();
  await world.clock.advance(300);
  t.strictSame(here.ids, ['c'], 'after a break');
  const late = new Sidecar(world, 'late');
  await world.clock.advance(1);
  t.strictSame(late.ids, ['c'], 'who joins');
  const before = world.told.length;
  await world.beacon({ tell: true, from: 'reachctl' });
  t.equal(world.told.length, before + 2, 'asked, everybody says it again');
  await Promise.all([here.overrides.stop(), late.overrides.stop()]);
});

t.test('nothing older comes into force, and what no stream has published does not either', async (t) => {
  const world = await World.begun();
  const here = new Sidecar(world);
  await world.put(world.entry('a'));
  await world.put(world.entry('a'), world.entry('b'));
  const state = JSON.stringify({ wire: 1, epoch: 'e1', revision: 9, overrides: [] });
  const forged = (headers: Record<string, string>): void => {
    world.nats.route(subjects.pushedOverrides, Buffer.from(state), '', headers);
  };
  forged({});
  forged({ 'Nats-Stream': 'AR_CFG', 'Nats-Subject': subjects.overrides, 'Nats-Sequence': '99', 'Nats-Last-Sequence': '2' });
  forged({ 'Nats-Stream': OVERRIDE_STREAM, 'Nats-Subject': 'ar.test.ovr.other', 'Nats-Sequence': '99', 'Nats-Last-Sequence': '2' });
  forged({ 'Nats-Stream': OVERRIDE_STREAM, 'Nats-Subject': subjects.overrides, 'Nats-Sequence': '1', 'Nats-Last-Sequence': '0' });
  await world.clock.advance(300);
  t.strictSame(here.ids, ['a', 'b']);
  t.ok(here.says(/not published by its stream/));
  await here.overrides.stop();
});

t.test('a list that cannot be read lifts nothing, is said, and the next good one takes that back', async (t) => {
  const world = await World.begun();
  const here = new Sidecar(world);
  await world.put(world.entry('a'));
  for (const text of [
    '{',
    JSON.stringify({ wire: 2, epoch: 'e1', revision: 7, overrides: [] }),
    JSON.stringify({ wire: 1, epoch: 'e1', revision: 7, overrides: [{ ...world.entry('b'), action: 'freeze' }] }),
  ]) {
    const seq = await world.putRaw(text);
    t.strictSame(here.ids, ['a']);
    t.match(here.overrides.standing, { seq: 1, refused: { seq } });
    t.match(world.told.at(-1), { seq: 1, refused: { seq, why: /./ } });
    await world.beacon();
    t.strictSame(here.ids, ['a'], 'read again it is no better');
  }
  t.ok(here.says(/A LIST OF OVERRIDES CANNOT BE USED/));
  await world.put(world.entry('c'));
  t.strictSame(here.ids, ['c']);
  t.equal(here.overrides.standing.refused, undefined);
  await here.overrides.stop();
});

t.test('a stream that was made anew: what it has counts, though its numbers are lower; one that has nothing lifts nothing', async (t) => {
  const world = await World.begun();
  const here = new Sidecar(world);
  for (const id of ['a', 'b', 'c']) await world.put(world.entry(id));
  await world.lose();
  world.epoch = 'e2';
  await world.beacon({ seq: 1 });
  t.strictSame(here.ids, ['c'], 'it has nothing yet');
  here.bus.disconnect('x');
  here.bus.connect();
  await world.clock.advance(300);
  t.strictSame(here.ids, ['c']);
  await world.put(world.entry('d'));
  await world.clock.advance(100);
  t.strictSame(here.ids, ['d'], 'sequence 1 of another life');
  t.match(here.overrides.standing, { epoch: 'e2', seq: 1 });
  await here.overrides.stop();
});

t.test('what is on disk is in force before NATS is there; a restart never goes back', async (t) => {
  const world = await World.begun();
  const folder = mkdtempSync(join(tmpdir(), 'reach-ovr-'));
  t.teardown(() => rmSync(folder, { recursive: true, force: true }));
  const file = (): DurableFile => new DurableFile(join(folder, 'one.overrides'));
  const before = new Sidecar(world, 'one', file());
  await world.put(world.entry('a'), world.entry('short', { expires_at: world.clock.wallMs() + 5_000 }));
  await before.overrides.stop();
  await before.bus.close();
  world.nats.down();
  await world.clock.advance(6_000);
  const after = new Sidecar(world, 'one', file());
  t.strictSame(after.ids, ['a'], 'and what has run out meanwhile is not');
  t.match(after.overrides.standing, { epoch: 'e1', seq: 1 });
  world.nats.up();
  await world.put(world.entry('b'));
  await world.clock.advance(300);
  t.strictSame(after.ids, ['b']);
  await after.overrides.stop();
});

t.test('an override runs out by itself, by the operators’ clock where this host’s is wrong', async (t) => {
  const world = await World.begun();
  const here = new Sidecar(world);
  await world.put(world.entry('a', { expires_at: world.clock.wallMs() + 10_000 }), world.entry('b'));
  await world.clock.advance(9_900);
  t.strictSame(here.ids, ['a', 'b']);
  await world.clock.advance(200);
  t.strictSame(here.ids, ['b'], 'nobody had to lift it');

  const fast = new VirtualClock();
  await fast.advance(3_600_000);
  const folder = mkdtempSync(join(tmpdir(), 'reach-ovr-'));
  t.teardown(() => rmSync(folder, { recursive: true, force: true }));
  const kept = join(folder, 'wrong.overrides');
  const wrong = new Sidecar(world, 'wrong', new DurableFile(kept), fast);
  await world.put(world.entry('c', { expires_at: world.clock.wallMs() + 60_000 }));
  await settle();
  t.strictSame(wrong.ids, [], 'an hour ahead: it would be over');
  await world.beacon();
  t.strictSame(wrong.ids, ['c'], 'the beacon shows that it is not');
  t.equal(Math.round(wrong.overrides.status().clock_behind_ms / 60_000), -60);
  t.ok(wrong.says(/clock differs/));
  const [rule] = wrong.installed;
  t.ok((rule?.expiresAtMs ?? 0) > fast.wallMs(), 'the stages look at this host’s clock');
  await world.beacon({ tell: true, from: 'laptop', at: 5 });
  t.equal(Math.round(wrong.overrides.status().clock_behind_ms / 60_000), -60, 'a person’s machine has no say');
  await Promise.all([here.overrides.stop(), wrong.overrides.stop()]);
  world.nats.down();
  const again = new Sidecar(world, 'wrong', new DurableFile(kept), fast);
  t.strictSame(again.ids, ['c'], 'after a restart without NATS too');
  await again.overrides.stop();
});

t.test('the clock that counts is the median of the replicas, the lower one of two, and small differences are none', (t: Test) => {
  const clock = new OperatorsClock();
  t.notOk(clock.heard('a', 1_500, 0, 0));
  t.equal(clock.aheadMs, 0);
  t.ok(clock.heard('a', 60_000, 0, 1));
  t.equal(clock.aheadMs, 60_000);
  t.ok(clock.heard('b', 100, 0, 2));
  t.equal(clock.aheadMs, 0, 'rather too long');
  t.ok(clock.heard('c', 61_000, 0, 3));
  t.equal(clock.aheadMs, 60_000);
  t.ok(clock.heard('d', 0, 0, 40_000), 'those that are silent have no say');
  t.equal(clock.aheadMs, 0);
  t.end();
});
