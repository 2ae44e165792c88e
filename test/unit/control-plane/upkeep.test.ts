/** What the leader does for messages that nobody else would look after: such as a killed server brings back, such as nobody pulls, and streams that fill up. On a real nats-server. */
import t, { type Test } from 'tap';
import type { Bus } from '../../../base/nats.ts';
import { ackConfirmed, type Delivery, extend, nak, Puller } from '../../../base/puller.ts';
import { realClock } from '../../../base/clock.ts';
import { SeededRandom } from '../../../base/random.ts';
import { runReachctl } from '../../../control-plane/cli/program.ts';
import { readControlPlaneConfig } from '../../../control-plane/config.ts';
import { inboxPage } from '../../../control-plane/messages/inbox-page.ts';
import { DueList } from '../../../control-plane/messages/due-list.ts';
import { eventOf, type Kept } from '../../../control-plane/messages/kept-entry.ts';
import { ReviewExpiry } from '../../../control-plane/messages/review-expiry.ts';
import { isGhost, StreamEnd } from '../../../control-plane/messages/ghosts.ts';
import { flushIn, flushWords, NatsFlush } from '../../../control-plane/nats-flush.ts';
import { encodeEnvelope, type Envelope, MESSAGE_WIRE } from '../../../proto/wire/envelope.ts';
import { ledgerKey } from '../../../proto/wire/ledger-key.ts';
import { Consumer, type KeptEntry, type Pool, type PoolAnswer, type TaskEvent } from '../../../proto/wire/messages.ts';
import { poolId } from '../../../proto/wire/pool.ts';
import { KEPT_STREAM, LEDGER_STREAM, Subjects, TASK_STREAM } from '../../../proto/wire/subjects.ts';
import { fullness } from '../../../control-plane/messages/streams.ts';
import { askLeader, ENV, FakeSidecar, Plane, settingsText, VIEWER } from '../../support/control-plane.ts';
import { envelopeOf } from '../../support/envelope.ts';
import { NatsServer } from '../../support/nats.ts';
import { waitUntil } from '../../support/settle.ts';

t.setTimeout(120_000);

const ORDER = 'crm.order.query';
const subjects = new Subjects(ENV);
let tasks = 0;

function poolOf(parts: Partial<Omit<Pool, 'id'>> = {}): Pool {
  const whole = { capability: ORDER, version: '2.0.0', role: null, agent: null, tags: {}, sticky: false, ...parts };
  return { id: poolId(whole), ...whole };
}

class World {
  readonly nats: NatsServer;
  readonly plane: Plane;
  readonly bus: Bus;

  static async start(t: Test, more = ''): Promise<World> {
    const nats = await NatsServer.start(t);
    const plane = await Plane.start(t, nats, 'cp-1', more);
    await plane.leads();
    return new World(nats, plane, await nats.connect());
  }

  private constructor(nats: NatsServer, plane: Plane, bus: Bus) {
    this.nats = nats;
    this.plane = plane;
    this.bus = bus;
  }

  async usePool(pool: Pool): Promise<void> {
    const answer = (await askLeader(this.bus, subjects.ctl('pool'), { wire: MESSAGE_WIRE, sidecar: 'front', pool })) as PoolAnswer;
    if (!answer.ok) throw new Error(JSON.stringify(answer));
  }

  /** Puts a task into the queue; gives its sequence and its id. */
  async send(pool: Pool, parts: Partial<Envelope> = {}, partition = 0): Promise<{ readonly seq: number; readonly envelope: Envelope }> {
    const task = parts.task_id ?? `task${String(++tasks).padStart(6, '0')}`;
    const envelope = envelopeOf(pool.capability, pool.id, {
      task_id: task,
      target: { capability: ORDER, role: null, agent: null },
      ...parts,
    });
    const data = encodeEnvelope(envelope, Buffer.from('{"order":1}'));
    const stored = await this.bus.append(subjects.task(pool.id, envelope.lane, partition, 'front'), data);
    if (!('seq' in stored)) throw new Error(JSON.stringify(stored));
    return { seq: stored.seq, envelope };
  }

  /** What the normal lane's consumer is called; the end of its name nobody can guess. */
  async lane(pool: string): Promise<string> {
    const listed = await this.bus.consumers(TASK_STREAM);
    const found = 'failed' in listed ? undefined : listed.find(({ name }) => Consumer.shown(name) === Consumer.lane(pool, 'normal'));
    if (found === undefined) throw new Error(`${pool} has no normal lane`);
    return found.name;
  }

  /** Pulls so many, does something with each, and gives their sequences. */
  async pull(consumer: string, count: number, act: (delivery: Delivery) => unknown): Promise<number[]> {
    const { bus } = this;
    const got: number[] = [];
    const doing: unknown[] = [];
    const puller = new Puller(bus, realClock, {
      stream: TASK_STREAM,
      consumer,
      onMessage: (delivery) => {
        got.push(delivery.streamSeq);
        doing.push(act(delivery));
      },
    });
    puller.request(count);
    await waitUntil(`${count} messages`, () => got.length >= count, 8_000);
    await Promise.all(doing);
    puller.close();
    return got;
  }

  async queued(): Promise<number[]> {
    let found = await this.bus.history(TASK_STREAM, subjects.tasks);
    // The server was just started.
    if ('failed' in found) found = await this.bus.history(TASK_STREAM, subjects.tasks);
    if ('failed' in found) throw new Error(found.failed);
    return found.map(({ seq }) => seq);
  }

  /** Every final event of the sender. */
  async events(): Promise<TaskEvent[]> {
    const found = await inboxPage(this.bus, subjects, 'crm.front.x', 1_000, 1);
    if ('failed' in found) throw new Error(found.failed);
    return found.map(({ data }) => JSON.parse(data.toString('utf8', 0, data.indexOf(0x0a))) as TaskEvent);
  }

  async kept(): Promise<KeptEntry[]> {
    const found = await this.bus.history(KEPT_STREAM, subjects.allKept);
    if ('failed' in found) throw new Error(found.failed);
    return found.map(({ data }) => JSON.parse(data.toString('utf8', 0, data.indexOf(0x0a))) as KeptEntry);
  }
}

t.test('what is a ghost', async (t) => {
  t.ok(isGhost({ seq: 5, timestampMs: 100 }, 5, []), 'at the floor');
  t.notOk(isGhost({ seq: 6, timestampMs: 100 }, 5, []), 'above it');
  const twice = [{ upTo: 10, afterMs: 100 }];
  t.ok(isGhost({ seq: 5, timestampMs: 100 }, 8, twice), 'it was there before the stream went back');
  t.notOk(isGhost({ seq: 5, timestampMs: 101 }, 8, twice), 'its number was given to another one before');
  t.ok(isGhost({ seq: 11, timestampMs: 101 }, 12, twice), 'its number is new');

  const end = new StreamEnd();
  t.equal(end.seen({ lastSeq: 10, lastAtMs: 100 }, [10, 3]), null);
  t.equal(end.seen({ lastSeq: 12, lastAtMs: 120 }, [11]), null);
  t.same(end.twice, []);
  t.match(end.seen({ lastSeq: 9, lastAtMs: 90 }, [8]), /gone back from 12 to 9/, 'seen by us');
  t.same(end.twice, [{ upTo: 12, afterMs: 120 }]);
  t.equal(end.seen({ lastSeq: 11, lastAtMs: 300 }, [8]), null, 'said once');
  t.equal(end.seen({ lastSeq: 20, lastAtMs: 400 }, [8]), null);
  t.same(end.twice, [{ upTo: 12, afterMs: 120 }], 'and not forgotten');

  const late = new StreamEnd();
  t.match(late.seen({ lastSeq: 4, lastAtMs: 40 }, [9]), /gone back from 9 to 4/, 'found out by a consumer that is ahead');
  t.same(late.twice, [{ upTo: 9, afterMs: 40 }], 'whatever is stored from now on is new');
});

t.test('acknowledged messages that a killed server brings back are deleted; what waits or is in hand is not', async (t) => {
  const world = await World.start(t);
  const pool = poolOf();
  const other = poolOf({ capability: 'crm.refund.apply' });
  const sticky = poolOf({ sticky: true });
  const unknown = poolOf({ capability: 'x.y.z' });
  await world.usePool(pool);
  await world.usePool(other);
  await world.usePool(sticky);
  const waiting: number[] = [];
  for (let i = 0; i < 300; i++) {
    await world.send(pool);
    if (i % 10 === 0) waiting.push((await world.send(other)).seq, (await world.send(sticky, {}, 3)).seq, (await world.send(unknown)).seq);
  }
  const lane = await world.lane(pool.id);
  await world.pull(lane, 250, (delivery) => ackConfirmed(world.bus, delivery, 5_000));
  // One is in hand, the ones behind it are acknowledged: nothing below it is gone before it is.
  const [inHand] = await world.pull(lane, 1, (delivery) => nak(world.bus, delivery, 600_000));
  await world.pull(lane, 20, (delivery) => ackConfirmed(world.bus, delivery, 5_000));
  const left = await world.queued();
  t.equal(left.length, 300 - 270 + waiting.length);
  // The server writes down what its consumers have acknowledged a little later.
  await new Promise((done) => setTimeout(done, 2_500));
  await world.nats.kill();
  await world.nats.restart();
  await world.bus.ready(10_000);
  const back = (await world.queued()).length;
  t.comment(`${world.bus.serverVersion}: ${left.length} before, ${back} after the restart`);
  if (world.bus.serverVersion === '2.9.10') t.ok(back > left.length, 'this server forgets what is gone');
  const facts = await world.bus.consumer(TASK_STREAM, lane);
  const floor = facts === null || 'failed' in facts ? 0 : facts.ackFloorSeq;
  t.ok(floor > 0 && floor < (inHand as number), 'the floor was kept, below what is in hand');
  const waits = new Set(left);
  await waitUntil('nothing below the floor', async () => (await world.queued()).every((seq) => seq > floor || waits.has(seq)), 20_000);
  const now = await world.queued();
  t.same(
    left.filter((seq) => !now.includes(seq)),
    [],
    'nothing else is gone: what waits here or elsewhere, what has no consumer, what is in hand',
  );
  if (back > left.length) {
    await waitUntil('it is said', () => world.plane.said(/had come back with a restart of NATS/), 10_000);
    const { body } = await world.plane.ask('/metrics');
    const [, count = '0'] = /^reach_control_tasks_come_back_deleted (\d+)/m.exec(String(body['text'])) ?? [];
    t.ok(Number(count) > 0, 'counted');
  }
});

t.test('what is due comes out by its time', async (t) => {
  const due = new DueList();
  t.equal(due.nextAt, Number.POSITIVE_INFINITY);
  t.equal(due.take(), -1);
  const random = new SeededRandom(3);
  const times = Array.from({ length: 500 }, () => Math.floor(random.next() * 100));
  for (const [i, at] of times.entries()) due.add(at, i);
  const taken: number[] = [];
  while (due.size > 0) taken.push(times[due.take()] as number);
  t.same(
    taken,
    times.toSorted((a, b) => a - b),
  );
});

t.test('a task that nobody takes in time ends, once, whoever works on its pool later', async (t) => {
  const world = await World.start(t, '  messages: {ack_wait: 2s}\n');
  const { bus } = world;
  const eventsOf = async (task: string): Promise<TaskEvent[]> => (await world.events()).filter(({ task_id }) => task_id === task);
  const ends = async (task: string, state: string, withinMs = 25_000): Promise<TaskEvent> => {
    await waitUntil(`${task} has ended`, async () => (await eventsOf(task)).length > 0, withinMs);
    const [event] = await eventsOf(task);
    t.equal(event?.state, state, `${task} is ${state}`);
    return event as TaskEvent;
  };
  const claim = async (envelope: Envelope, parts: object, body = ''): Promise<void> => {
    const subject = subjects.idem(ledgerKey(envelope.source, envelope.capability, envelope.task_id));
    const head = {
      wire: 1,
      state: 'executing',
      key: envelope.task_id,
      caller: envelope.source,
      capability: envelope.capability,
      version: '2.0.0',
    };
    const line = {
      ...head,
      hash: '',
      execution: 'once',
      task: envelope.task_id,
      worker: 'crm.order.a',
      nonce: 'n1',
      step: 1,
      tries: 1,
      lease_ms: 500,
      ...parts,
    };
    await bus.append(subject, Buffer.from(`${JSON.stringify(line)}\n${body}`));
  };
  const recordOf = async ({ source, capability, task_id }: Envelope): Promise<string> => {
    const found = await bus.lastAtLeader(LEDGER_STREAM, subjects.idem(ledgerKey(source, capability, task_id)));
    return found === null || 'failed' in found
      ? 'none'
      : (JSON.parse(found.data.toString('utf8', 0, found.data.indexOf(0x0a))) as { state: string }).state;
  };

  await t.test('what was never delivered, between others that have time left; also without a consumer', async (t) => {
    const pool = poolOf();
    const sticky = poolOf({ sticky: true });
    await world.usePool(pool);
    await world.usePool(sticky);
    const notes: TaskEvent[] = [];
    bus.subscribe(subjects.note('front'), ({ data }) => void notes.push(JSON.parse(data.toString('utf8')) as TaskEvent));
    const before = await world.send(pool);
    // As nobody writes them who keeps to the form: neither they nor what comes after them may stand still for it.
    const nameless = await world.send(pool, { lane: 'low', expires_ms: 400, reply_to: 5 as never });
    const endless = await world.send(pool, { lane: 'low', expires_ms: undefined as never });
    const traceless = await world.send(pool, { lane: 'low', expires_ms: 500, traceparent: undefined as never });
    const due = await world.send(pool, { expires_ms: 1_000 });
    const unheard = await world.send(pool, { expires_ms: 500, reply_to: null });
    const part = await world.send(sticky, { expires_ms: 500 }, 5);
    const after = await world.send(pool, { lane: 'high' });
    const event = await ends(due.envelope.task_id, 'expired');
    t.match(event, { code: 7004, cause: 'no_worker', by: '', attempts: 0 });
    await ends(part.envelope.task_id, 'expired');
    await ends(traceless.envelope.task_id, 'expired');
    await waitUntil('all that were due are gone', async () => (await world.queued()).length === 4);
    t.same(await world.queued(), [before.seq, nameless.seq, endless.seq, after.seq], 'the others wait on');
    t.ok(world.plane.said(/a task's time is over, and it cannot be ended: a fault/), 'and it is said');
    t.match(notes, [{ task_id: unheard.envelope.task_id, state: 'expired' }], 'where nobody wants the result, its home hears of it');
    await world.pull(await world.lane(pool.id), 1, (delivery) => ackConfirmed(bus, delivery, 5_000));
    t.same(await world.queued(), [nameless.seq, endless.seq, after.seq], 'and a worker gets them');
    t.equal((await eventsOf(due.envelope.task_id)).length, 1);
  });

  await t.test('what was delivered and given back; what somebody has in hand is left alone', async (t) => {
    const pool = poolOf({ capability: 'a.b.c' });
    await world.usePool(pool);
    const lane = await world.lane(pool.id);
    const tried = await world.send(pool, { expires_ms: 1_500 });
    const held = await world.send(pool, { expires_ms: 1_500 });
    const patient = await world.send(pool);
    const inHand: Delivery[] = [];
    await world.pull(lane, 3, (delivery) => {
      if (delivery.streamSeq === held.seq) inHand.push(delivery);
      else nak(bus, delivery, 1_000);
    });
    const [work] = inHand as [Delivery];
    let isWorking = true;
    const working = (async (): Promise<void> => {
      while (isWorking) {
        await extend(bus, work, 1_000);
        await new Promise((done) => setTimeout(done, 300));
      }
    })();
    await ends(tried.envelope.task_id, 'expired');
    await new Promise((done) => setTimeout(done, 3_000));
    t.same(await eventsOf(held.envelope.task_id), [], 'it is being worked on');
    t.ok((await world.queued()).includes(held.seq));
    isWorking = false;
    await working;
    t.ok(await ackConfirmed(bus, work, 5_000));
    const again: Delivery[] = [];
    await world.pull(lane, 1, (delivery) => {
      again.push(delivery);
      return ackConfirmed(bus, delivery, 5_000);
    });
    t.equal(again[0]?.streamSeq, patient.seq, 'what has time left is there for the next worker');
    t.equal((await eventsOf(tried.envelope.task_id)).length, 1);
  });

  await t.test('what its key says is told: done, in doubt, already told; a claim that lives is waited for', async (t) => {
    const pool = poolOf({ capability: 'd.e.f' });
    await world.usePool(pool);
    const send = (parts: Partial<Envelope> = {}): Promise<{ seq: number; envelope: Envelope }> =>
      world.send(pool, { expires_ms: 500, ...parts });
    const result = { code: 0, status: 201, content_type: 'text/plain', provider: 'crm.order.a', version: '2.0.0', detail: '', left_out: 0 };
    const [done, doubt, told, alive, lapsed, released] = await Promise.all([send(), send(), send(), send(), send(), send()]);
    await claim(done.envelope, { state: 'done', result }, 'the result');
    await claim(doubt.envelope, {});
    await claim(told.envelope, { state: 'released', ended: true });
    await claim(alive.envelope, { lease_ms: 600_000 });
    await claim(lapsed.envelope, { execution: 'keyed' });
    await claim(released.envelope, { state: 'released', tries: 3 });
    t.match(await ends(done.envelope.task_id, 'done'), { status: 201, by: 'crm.order.a', replay: true });
    t.match(await ends(doubt.envelope.task_id, 'in_doubt'), { code: 7003, cause: 'worker_vanished' });
    t.match(
      (await world.kept()).filter(({ kind }) => kind === 'in_doubt'),
      [{ task_id: doubt.envelope.task_id }],
    );
    t.equal(await recordOf(doubt.envelope), 'unknown', 'it is never begun again by itself');
    await ends(lapsed.envelope.task_id, 'expired');
    t.equal(await recordOf(lapsed.envelope), 'released', 'whoever had it cannot record anything any more');
    t.match(await ends(released.envelope.task_id, 'expired'), { attempts: 3 });
    const ours = new Set([done, doubt, told, alive, lapsed, released].map(({ seq }) => seq));
    await waitUntil('all but one are gone', async () => (await world.queued()).filter((seq) => ours.has(seq)).length === 1);
    t.ok((await world.queued()).includes(alive.seq));
    t.same(await eventsOf(told.envelope.task_id), [], 'it had been told');
    t.same(await eventsOf(alive.envelope.task_id), [], 'somebody may be at it still');
  });

  await t.test('what waits for a person ends by its time too, and what people do with it counts before', async (t) => {
    const notes: TaskEvent[] = [];
    const hearing = bus.subscribe(subjects.note('front'), ({ data }) => void notes.push(JSON.parse(data.toString('utf8')) as TaskEvent));
    t.teardown(() => hearing.close());
    const review = async (task: string, parts: Partial<Envelope>): Promise<void> => {
      const envelope = envelopeOf('r.v.w', poolOf().id, { task_id: task, ...parts });
      const entry = { wire: 1, kind: 'review', task_id: task, capability: 'r.v.w', source: envelope.source, attempts: [], code: 7005 };
      const line = Buffer.from(`${JSON.stringify(entry)}\n`);
      await bus.append(subjects.kept('review', task), Buffer.concat([line, encodeEnvelope(envelope, Buffer.from('look'))]));
    };
    await review('reviewd1', { expires_ms: 700 });
    await review('reviewd2', { expires_ms: 500, reply_to: null });
    await review('reviewd3', {});
    t.match(await ends('reviewd1', 'expired'), { code: 7004, cause: 'not_reviewed', attempts: 0 });
    await waitUntil('the home hears', () => notes.some(({ task_id, state }) => task_id === 'reviewd2' && state === 'expired'), 8_000);
    const left = async (): Promise<string[]> => (await world.kept()).filter(({ kind }) => kind === 'review').map(({ task_id }) => task_id);
    await waitUntil('they are taken out', async () => (await left()).length === 1, 8_000);
    t.strictSame(await left(), ['reviewd3'], 'the others wait on');
    t.equal((await eventsOf('reviewd1')).length, 1);
  });

  await t.test('where there are workers it is theirs to say', async (t) => {
    const pool = poolOf({ capability: 'g.h.i', version: '1.0.0' });
    const sidecar = await FakeSidecar.join(world.nats, 'order-g', { 'crm.order.g': ['g.h.i@1.0.0'] });
    await sidecar.hello();
    await world.usePool(pool);
    const { seq, envelope } = await world.send(pool, { expires_ms: 500 });
    await new Promise((done) => setTimeout(done, 8_000));
    t.ok((await world.queued()).includes(seq));
    t.same(await eventsOf(envelope.task_id), []);
  });
});

t.test('one that waits for a person and cannot be ended is passed over, whoever wrote it, and the others end by their time', async (t) => {
  const keptAs = (task: string, parts: object, line: object | null = {}): Buffer => {
    const entry = { wire: 1, kind: 'review', task_id: task, capability: ORDER, source: 'crm.front.x', code: 7005, ...line };
    const envelope = envelopeOf(ORDER, poolOf().id, { task_id: task, ...parts });
    return Buffer.concat([Buffer.from(`${JSON.stringify(line === null ? null : entry)}\n`), encodeEnvelope(envelope, Buffer.from('look'))]);
  };
  const entries = [
    keptAs('nothing1', { expires_ms: 1 }, null),
    keptAs('endless1', { expires_ms: undefined }),
    keptAs('endless2', { expires_ms: null }),
    keptAs('faulty01', { expires_ms: 4 }),
    keptAs('tracelss', { expires_ms: 5, traceparent: undefined }),
    keptAs('welldone', { expires_ms: 6 }),
  ].map((data, i) => ({ seq: i + 1, subject: subjects.kept('review', `t${i}`), data, timestampMs: 1_000 }));
  const gone = new Set<number>();
  const said: string[] = [];
  const expiry = new ReviewExpiry(
    {
      subjects,
      bus: {
        history: async (_: string, __: string, limit: number, from: number) =>
          entries.filter(({ seq }) => seq >= from && !gone.has(seq)).slice(0, limit),
        lastAtLeader: async () => ({ seq: 1, subject: subjects.leader, data: Buffer.alloc(0), timestampMs: 1_000_000 }),
      },
      logger: { info: () => undefined, error: (_: object, words: string) => void said.push(words) },
    } as never,
    {
      expire: async (kept: Kept) => {
        if (kept.entry.task_id === 'faulty01') throw new TypeError('it has no home');
        eventOf(kept.envelope as Envelope, 'expired', 7004, '', '', 1);
        t.same([kept.entry.attempts, kept.entry.detail], [[], ''], 'what it leaves out is not missed');
        gone.add(kept.seq);
        return { ok: { kept } };
      },
    } as never,
  );
  for (let i = 0; i < 3; i++) await expiry.look({ lastSeq: entries.length } as never);
  t.same([...gone], [5, 6]);
  t.equal(expiry.count, 2);
  t.match(said, [/cannot be ended: a fault in Agent-Reach \(it has no home\)/]);
  t.equal(said.length, 1, 'said once, not at each look');
});

t.test('a task that a person takes out of the midst of a queue hides no other', async (t) => {
  const world = await World.start(t);
  const pool = poolOf();
  await world.usePool(pool);
  const lane = await world.lane(pool.id);
  const sent: { readonly seq: number; readonly envelope: Envelope }[] = [];
  for (let i = 0; i < 5; i++) sent.push(await world.send(pool));
  for (const i of [4, 3, 1, 0]) {
    const task = sent[i]?.envelope.task_id;
    const asked = await world.plane.ask(`/v1/tasks/parked/${pool.id}/drop`, { json: { task } });
    t.match(asked.body, { done: [task], failed: [] }, `${i}`);
  }
  t.same(
    await world.pull(lane, 1, (delivery) => ackConfirmed(world.bus, delivery, 5_000)),
    [sent[2]?.seq],
    'the one that is left is there for a worker',
  );
  t.same(await world.queued(), []);
  t.equal((await world.events()).filter(({ state }) => state === 'cancelled').length, 4);
});

t.test('a stream that is nearly full is named before it refuses', async (t) => {
  const world = await World.start(t, '  messages: {tasks: {count: 1000}, ledger: {keys: 1000}}\n');
  await waitUntil('the streams are there', () => world.plane.said(/streams for messages were made/), 10_000);
  t.notOk(world.plane.said(/is full/));
  await Promise.all(Array.from({ length: 820 }, (_, i) => world.bus.append(subjects.idem(`key${i}`), Buffer.from('{}\n'))));
  await waitUntil('it is said', () => world.plane.said(/AR_IDEM is full to more than 80 % \(control_plane\.messages\.ledger\)/), 10_000);
  const { body } = await world.plane.ask('/metrics');
  t.match(String(body['text']), /^reach_control_stream_fill_ratio\{stream="AR_IDEM"\} 0\.82$/m);
  t.match(JSON.stringify((await world.plane.ask('/v1/health')).body), /AR_IDEM is full to more than 80 %/);
  t.notOk(world.plane.said(/AR_TASKS is full/));
  const kept = await world.bus.stream(KEPT_STREAM);
  if (kept === null || 'failed' in kept) throw new Error('no such stream');
  const words = (messages: number): string[] => fullness(new Map([[KEPT_STREAM, { ...kept, messages, maxMessages: 100 }]]));
  t.strictSame(words(79), []);
  t.match(words(96), [/AR_DLQ is full to more than 95 % \(control_plane\.messages\.kept\); when it is full its oldest entries go unseen/]);
});

t.test('when NATS flushes what it acknowledges is shown, or that nobody knows', async (t) => {
  t.same(flushIn('{"config":{"sync_interval":120000000000,"sync_always":true}}'), { everyMs: 0, why: '' });
  t.same(flushIn('{"config":{"sync_interval":120000000000}}'), { everyMs: 120_000, why: '' });
  t.match(flushIn('{"config":{"max_memory":1}}'), { everyMs: null, why: /does not say/ });
  t.match(flushIn('{"disabled":true}'), { everyMs: null, why: /not on/ });
  t.match(flushIn('<html>'), { everyMs: null, why: /no JSON/ });
  const always = { everyMs: 0, why: '' };
  t.equal(flushWords([always]), 'always');
  t.equal(flushWords([always, { everyMs: 120_000, why: '' }]), 'every 2m', 'the worst one counts');
  t.equal(flushWords([always, { everyMs: null, why: 'away' }]), 'unknown (away)');

  const world = await World.start(t);
  const words = await new NatsFlush([world.nats.process.monitorUrl], realClock).words();
  t.match(words, world.bus.serverVersion.startsWith('2.9.') ? /^unknown \(this version/ : /^(always|every 2m)$/);
  t.match(await new NatsFlush(['http://127.0.0.1:1'], realClock).words(), /^unknown \(127\.0\.0\.1:1: /);
  t.match(readControlPlaneConfig(settingsText('cp-1', 'nats://x:1').replace('nats: {', 'nats: {monitor: ["http://x:8222"], '), 'cp.yaml'), {
    config: { nats: { monitor: ['http://x:8222'] } },
  });
  const shown: string[] = [];
  const exit = await runReachctl(
    ['fleet'],
    {
      out: (text) => void shown.push(text),
      err: (text) => void shown.push(text),
      env: { REACH_SERVER: world.plane.url, REACH_TOKEN: VIEWER },
      clock: realClock,
      stdin: async () => '',
    },
    '0',
  );
  t.equal(exit, 0);
  t.match(shown.join('\n'), /NATS 2\.\d+\.\d+, flushes what it acknowledges: unknown \(control_plane\.nats\.monitor is not set\)/);
});
