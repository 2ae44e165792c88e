/** Inboxes on a bus that does what the test says: holes, bounds, floors, slow readers, streams made anew. */
import t from 'tap';
import type { BusMessage } from '../../../../base/bus-message.ts';
import { createLog } from '../../../../base/log.ts';
import type { Bus } from '../../../../base/nats.ts';
import type { BoxEvents } from '../../../../base/nats-listeners.ts';
import { VirtualClock } from '../../../../base/virtual-clock.ts';
import type { TaskAnswer, TaskAsk, TaskEvent } from '../../../../proto/wire/messages.ts';
import { Subjects } from '../../../../proto/wire/subjects.ts';
import { Asking } from '../../../../sidecar/inbox/asking.ts';
import type { InboxEntry, InboxFollowing, InboxPage, InboxReader } from '../../../../sidecar/inbox/door.ts';
import { Ended } from '../../../../sidecar/inbox/ended.ts';
import { Inbox } from '../../../../sidecar/inbox/inbox.ts';
import type { InboxSettings } from '../../../../sidecar/messages-config.ts';
import { StageWitness } from '../../../support/stage-witness.ts';

const silentLog = createLog({ level: 'silent', to: 'stderr', service: 'test' }).logger;
const SUBJECTS = new Subjects('test');
const AGENT = 'crm.front.1';
const OTHER = 'crm.front.2';
const TRACEPARENT = '00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01';
/** May not write to anybody here. */
const STRANGER = 'evil.caller.1';

interface Kept {
  readonly seq: number;
  readonly agent: string;
  readonly data: Buffer;
}

/** The stream, its consumer, the ledger and the control plane, as far as inboxes see them. */
class World {
  readonly clock = new VirtualClock();
  readonly kept: Kept[] = [];
  first = 1;
  last = 0;
  delivered = { consumerSeq: 0, streamSeq: 0 };
  /** What was said to ack subjects. */
  readonly said: { readonly seq: number; readonly word: string }[] = [];
  readonly floors = new Map<string, { seq: number; data: Buffer }>();
  asked: number[] = [];
  isControlThere = true;
  hasConsumer = true;
  maxAckPending = 100_000;
  writes = 0;
  #events: BoxEvents | null = null;
  #state: ((state: { connected: boolean }) => void) | null = null;
  readonly noted: [TaskEvent, string | null, string][] = [];
  readonly arrived: [string, string, boolean][] = [];
  readonly stages = new StageWitness();
  readonly inbox: Inbox;

  constructor(settings: Partial<InboxSettings> = {}) {
    this.inbox = new Inbox({
      bus: this.#bus() as Bus,
      subjects: SUBJECTS,
      clock: this.clock,
      log: silentLog,
      sidecar: 'home',
      settings: { hotMs: 900_000, bytes: 1_000_000, agentBytes: 100_000, agentCount: 100, unacknowledged: 100, ...settings },
      noted: (event, body, agent) => void this.noted.push([event, body?.toString() ?? null, agent]),
      isLetIn: ({ source }) => source !== STRANGER,
      arrived: ({ task_id: taskId }, agent, isLetIn) => void this.arrived.push([taskId, agent, isLetIn]),
      stages: this.stages,
    });
  }

  #bus(): object {
    let revision = 0;
    return {
      connected: true,
      onState: (listener: (state: { connected: boolean }) => void) => {
        this.#state = listener;
        return { close: () => undefined };
      },
      consumer: async () =>
        this.hasConsumer
          ? {
              deliveredSeq: this.delivered.streamSeq,
              deliveredConsumerSeq: this.delivered.consumerSeq,
              ackWaitNs: 60_000_000_000,
              maxAckPending: this.maxAckPending,
            }
          : null,
      openBox: (events: BoxEvents) => {
        this.#events = events;
        return { address: '_INBOX.home.1.', close: () => undefined };
      },
      answers: async () => true,
      post: (subject: string, data: Buffer) => {
        if (subject.startsWith('$JS.ACK.')) this.said.push({ seq: Number(subject.split('.')[5]), word: data.toString() });
        return true;
      },
      request: async (_subject: string, data: Buffer) => {
        if (!this.isControlThere) return { kind: 'timeout' };
        const ask = JSON.parse(data.toString()) as Extract<TaskAsk, { what: 'inbox' }>;
        this.asked.push(ask.from);
        const found = this.kept.filter(({ seq, agent }) => agent === ask.agent && seq >= ask.from && seq >= this.first);
        const entries = found.slice(0, ask.limit).map(({ seq, data: bytes }) => ({ seq, home: 'home', data: bytes.toString('base64') }));
        const answer: TaskAnswer = {
          wire: 1,
          ok: true,
          what: 'inbox',
          entries,
          more: found.length > ask.limit,
          first: this.first,
          last: this.last,
        };
        return { kind: 'ok', message: { data: Buffer.from(JSON.stringify(answer)) } };
      },
      last: async (_stream: string, subject: string) => this.floors.get(subject) ?? null,
      append: async (subject: string, data: Buffer, { expectLastSubjectSeq }: { expectLastSubjectSeq: number }) => {
        this.writes++;
        const has = this.floors.get(subject)?.seq ?? 0;
        if (has !== expectLastSubjectSeq) return { conflict: has };
        this.floors.set(subject, { seq: ++revision, data });
        return { seq: revision, duplicate: false };
      },
    };
  }

  /** Stored, and not delivered. */
  store(agent = AGENT, body = '{}', step = 1): number {
    this.last += step;
    const head = JSON.stringify({
      wire: 1,
      kind: 'state',
      task_id: `task${this.last}`,
      content_type: 'application/json',
      state: 'done',
      traceparent: TRACEPARENT,
      at_ms: 5,
      capability: 'crm.order.query',
      by: 'crm.order.1',
    });
    this.kept.push({ seq: this.last, agent, data: Buffer.from(`${head}\n${body}`) });
    return this.last;
  }

  /** What another agent sends. */
  storeMail(source: string, agent = AGENT): number {
    this.last++;
    const head = JSON.stringify({
      wire: 1,
      kind: 'message',
      task_id: `task${this.last}`,
      content_type: 'text/plain',
      source,
      traceparent: TRACEPARENT,
    });
    this.kept.push({ seq: this.last, agent, data: Buffer.from(`${head}\nhello`) });
    return this.last;
  }

  /** @param isLost it is on its way and never arrives. */
  deliver(
    seq: number,
    { deliveries = 1, isLost = false, storedAtMs = 1_000 + seq }: { deliveries?: number; isLost?: boolean; storedAtMs?: number } = {},
  ): void {
    const { agent, data } = this.kept.find((one) => one.seq === seq) as Kept;
    this.delivered.consumerSeq++;
    this.delivered.streamSeq = Math.max(this.delivered.streamSeq, seq);
    if (isLost) return;
    const reply = `$JS.ACK.AR_INBOX.inbox_home.${deliveries}.${seq}.${this.delivered.consumerSeq}.${storedAtMs}000000.0`;
    const message: BusMessage = { subject: SUBJECTS.inbox('home', agent), data, reply, header: () => null };
    (this.#events as BoxEvents).message(message);
  }

  bring(agent = AGENT, body = '{}', step = 1): number {
    const seq = this.store(agent, body, step);
    this.deliver(seq);
    return seq;
  }

  async start(): Promise<this> {
    this.inbox.start();
    await this.clock.advance(10);
    return this;
  }

  reconnect(): void {
    this.#state?.({ connected: false });
    this.#state?.({ connected: true });
  }

  words(seq: number): string[] {
    return this.said.filter((one) => one.seq === seq).map(({ word }) => word);
  }
}

class Reader implements InboxReader {
  readonly seqs: number[] = [];
  readonly ends: string[] = [];
  room = Number.POSITIVE_INFINITY;

  take({ seq }: InboxEntry): boolean {
    this.seqs.push(seq);
    return --this.room > 0;
  }

  ended(why: string): void {
    this.ends.push(why);
  }
}

function seqsOf(page: InboxPage): number[] {
  if (!page.ok) throw new Error(`${page.why}: ${page.detail}`);
  return page.entries.map(({ seq }) => seq);
}

async function followed(world: World, from: number | null, reader: Reader): Promise<InboxFollowing> {
  const following = await world.inbox.follow(AGENT, from, reader);
  if (!following.ok) throw new Error(following.detail);
  following.ready();
  return following;
}

t.test('what comes is told and held, and read without asking anybody', async (t) => {
  const world = await new World().start();
  const a = world.bring(AGENT, '{"n":1}');
  world.bring(OTHER);
  const b = world.bring(AGENT, '');
  t.strictSame(seqsOf(await world.inbox.read(AGENT, null, 10, 0)), [a, b]);
  t.strictSame(world.asked, []);
  t.match(world.noted, [
    [{ task_id: 'task1' }, '{"n":1}', AGENT],
    [{ task_id: 'task2' }, '{}', OTHER],
    [{ task_id: 'task3' }, null, AGENT],
  ]);
  t.strictSame(seqsOf(await world.inbox.read(AGENT, null, 1, 0)), [a], 'no more than was asked for');
  t.match(await world.inbox.read(AGENT, b + 1, 10, 0), { ok: true, entries: [], next: b + 1 });
});

t.test('the time of an entry until its agent has it is a span, once, however it is given', async (t) => {
  const world = await new World().start();
  const a = world.bring();
  await world.clock.advance(100);
  t.equal(world.stages.told.length, 0, 'it waits');
  await world.inbox.read(AGENT, null, 10, 0);
  await world.inbox.read(AGENT, a, 10, 0);
  t.match(world.stages.told, [
    {
      trace_id: '0af7651916cd43dd8448eb211c80319c',
      parent_span_id: 'b7ad6b7169203331',
      stage: 'inbox',
      start_ms: 1_001,
      provider: AGENT,
      caller: 'crm.order.1',
      capability: 'crm.order.query',
      task_id: 'task1',
      detail: 'done',
    },
  ]);
  const reader = new Reader();
  await followed(world, a + 1, reader);
  world.bring();
  const mail = world.storeMail('crm.other.1');
  world.deliver(mail);
  await world.clock.advance(10);
  t.match(world.stages.told.slice(1), [{ task_id: 'task2' }, { task_id: 'task3', caller: 'crm.other.1', detail: 'message' }]);
  const later = await new World().start();
  later.first = 1;
  later.store();
  later.delivered = { consumerSeq: 1, streamSeq: 1 };
  const after = await later.start();
  await after.inbox.read(AGENT, null, 10, 0);
  t.match(after.stages.told, [{ start_ms: 5 }], 'out of the stream, after a restart, from when it was written');
  await after.inbox.read(AGENT, 1, 10, 0);
  t.equal(after.stages.told.length, 1);
});

t.test('messages of others lie among the rest; one that may not be there is never shown, not even out of the stream', async (t) => {
  const world = await new World().start();
  const first = world.storeMail('sales.helper.2');
  const strange = world.storeMail(STRANGER);
  world.deliver(first);
  world.deliver(strange);
  const state = world.bring();
  const page = await world.inbox.read(AGENT, null, 10, 0);
  t.strictSame(seqsOf(page), [first, state]);
  t.match(page, { entries: [{ kind: 'message', contentType: 'text/plain', body: Buffer.from('hello') }, { kind: 'state' }] });
  world.deliver(first, { deliveries: 2 });
  t.strictSame(world.arrived, [
    [`task${first}`, AGENT, true],
    [`task${strange}`, AGENT, false],
  ]);
  t.equal(world.noted.length, 1, 'a message is no news of a task');
  t.strictSame(world.words(strange), ['+ACK'], 'it does not come again');
  // So many that a page of the stream holds nothing else.
  const other = new World();
  for (let i = 0; i < 450; i++) other.storeMail(STRANGER);
  const behind = other.store();
  other.delivered = { consumerSeq: behind, streamSeq: behind };
  await other.start();
  t.strictSame(seqsOf(await other.inbox.read(AGENT, 1, 10, 0)), [behind], 'what is passed over is not asked for again and again');
});

t.test('a wait ends with what comes, or with its time', async (t) => {
  const world = await new World().start();
  const waiting = world.inbox.read(AGENT, null, 10, 5_000);
  await world.clock.advance(1_000);
  const seq = world.bring();
  t.strictSame(seqsOf(await waiting), [seq]);
  const second = world.inbox.read(AGENT, seq + 1, 10, 5_000);
  await world.clock.advance(5_001);
  t.match(await second, { ok: true, entries: [] });
  t.strictSame(world.asked, []);
});

t.test(
  'C010 who leaves while it waits is let go at once, and is given nothing; however many others wait, nobody is sent away',
  async (t) => {
    const world = await new World().start();
    const gone = Array.from({ length: 20 }, () => new Asking());
    const left = Promise.all(gone.map((asking) => world.inbox.read(AGENT, null, 10, 60_000, asking)));
    await world.clock.advance(100);
    for (const asking of gone) asking.cancel();
    await world.clock.advance(0);
    t.ok((await left).every((page) => page.ok && page.entries.length === 0));
    const before = gone[0] as Asking;
    t.strictSame(seqsOf(await world.inbox.read(AGENT, null, 10, 60_000, before)), [], 'also who had left before');

    const ended: number[] = [];
    const pages = Array.from({ length: 20 }, (_, i) => world.inbox.read(AGENT, null, 10, 60_000).finally(() => ended.push(i)));
    await world.clock.advance(10_000);
    t.strictSame(ended, [], 'the seventeenth and those after it wait as well');
    const seq = world.bring();
    await world.clock.advance(1_000);
    t.strictSame((await Promise.all(pages)).map(seqsOf), Array(20).fill([seq]));
  },
);

t.test('what an agent acknowledges is acknowledged to the server, and remembered', async (t) => {
  const world = await new World().start();
  const [a, b, c] = [world.bring(), world.bring(), world.bring()];
  await world.inbox.read(AGENT, null, 10, 0);
  t.strictSame(world.said, []);
  t.match(await world.inbox.acknowledge(AGENT, b), { ok: true, floor: b });
  t.strictSame([world.words(a), world.words(b), world.words(c)], [['+ACK'], ['+ACK'], []]);
  t.strictSame(seqsOf(await world.inbox.read(AGENT, null, 10, 0)), [c]);
  t.strictSame(seqsOf(await world.inbox.read(AGENT, a, 10, 0)), [a, b, c], 'and what was is there for who asks');
  t.match(await world.inbox.acknowledge(AGENT, c + 5), { ok: false, why: 'ahead' });
  t.match(await world.inbox.acknowledge(AGENT, 0), { ok: false, why: 'invalid' });
  await world.clock.advance(200);
  t.equal(world.writes, 1);
  await world.inbox.close();
  t.strictSame(world.words(c), ['-NAK {"delay":500000000}'], 'the next process gets the rest');

  const next = new World();
  for (const [subject, record] of world.floors) next.floors.set(subject, record);
  next.kept.push(...world.kept);
  next.last = world.last;
  next.delivered = { ...world.delivered };
  await next.start();
  t.strictSame(seqsOf(await next.inbox.read(AGENT, null, 10, 0)), [c]);
  t.strictSame(next.asked, [b + 1], 'out of the stream: nothing has come here yet');
  next.deliver(c, { deliveries: 2 });
  const d = next.bring();
  t.strictSame(seqsOf(await next.inbox.read(AGENT, null, 10, 0)), [c, d], 'out of the stream and out of memory');
  t.strictSame(seqsOf(await next.inbox.read(AGENT, c + 1, 10, 0)), [d]);
  next.deliver(a, { deliveries: 2 });
  t.strictSame(next.words(a), ['+ACK'], 'a lost acknowledgement is said again');
});

t.test('many floors are written at a bounded pace, and another home’s higher floor counts', async (t) => {
  const world = await new World().start();
  const seqs = Array.from({ length: 5 }, () => world.bring());
  for (const seq of seqs) await world.inbox.acknowledge(AGENT, seq);
  await world.clock.advance(150);
  t.equal(world.writes, 1, 'five acknowledgements, one record');
  const [subject] = world.floors.keys();
  world.floors.set(subject as string, { seq: 99, data: Buffer.from(JSON.stringify({ wire: 1, kind: 'floor', agent: AGENT, seq: 1_000 })) });
  const next = world.bring();
  await world.inbox.acknowledge(AGENT, next);
  await world.clock.advance(1_500);
  t.match(JSON.parse(world.floors.get(subject as string)?.data.toString() as string), { seq: 1_000 });
});

t.test('a delivery that went astray is a hole: the stream is asked, and nothing is skipped', async (t) => {
  const world = await new World().start();
  const reader = new Reader();
  const following = await followed(world, null, reader);
  const a = world.bring();
  const lost = world.store();
  world.deliver(lost, { isLost: true });
  const c = world.bring();
  t.strictSame(reader.seqs, [a], 'what is behind the hole waits');
  await world.clock.advance(2_500);
  t.strictSame(reader.seqs, [a, lost, c]);
  const d = world.bring();
  t.strictSame(reader.seqs, [a, lost, c, d], 'and then it comes from memory again');
  world.deliver(lost, { deliveries: 2 });
  t.strictSame(reader.seqs, [a, lost, c, d]);
  following.close();
});

t.test('what was on its way when the connection broke is looked for at once', async (t) => {
  const world = await new World().start();
  const reader = new Reader();
  await followed(world, null, reader);
  world.deliver(world.store(), { isLost: true });
  world.reconnect();
  await world.clock.advance(50);
  t.strictSame(reader.seqs, [1]);
});

t.test('while the control plane is away nothing is skipped either', async (t) => {
  const world = await new World().start();
  const a = world.bring();
  const lost = world.store();
  world.deliver(lost, { isLost: true });
  world.isControlThere = false;
  const c = world.bring();
  await world.clock.advance(100);
  t.match(await world.inbox.read(AGENT, null, 10, 0), { ok: false, why: 'unreachable' });
  const reader = new Reader();
  const following = await followed(world, null, reader);
  await world.clock.advance(3_000);
  t.strictSame(reader.seqs, []);
  world.isControlThere = true;
  await world.clock.advance(1_500);
  t.strictSame(reader.seqs, [a, lost, c]);
  following.close();
});

t.test('memory is bounded per agent and in all, in time, number and bytes; what it has no more comes from the stream', async (t) => {
  const world = await new World({ agentCount: 3, bytes: 2_000, hotMs: 60_000 }).start();
  const mine = Array.from({ length: 5 }, () => world.bring());
  t.strictSame(
    mine.map((seq) => world.words(seq).length),
    [1, 1, 0, 0, 0],
    'two are only in the stream, and the server need not hold them',
  );
  t.strictSame(seqsOf(await world.inbox.read(AGENT, mine[2] as number, 10, 0)), mine.slice(2));
  t.strictSame(world.asked, []);
  t.strictSame(seqsOf(await world.inbox.read(AGENT, null, 2, 0)), mine.slice(0, 2));
  t.strictSame(seqsOf(await world.inbox.read(AGENT, mine[1] as number, 10, 0)), mine.slice(1), 'out of the stream and out of memory');
  t.ok(world.asked.length >= 2);
  for (let i = 0; i < 40; i++) world.bring(OTHER);
  t.ok(world.inbox.bytes <= 2_000, `${world.inbox.bytes} bytes`);
  await world.clock.advance(61_000);
  t.equal(world.inbox.bytes, 0);
  t.strictSame(seqsOf(await world.inbox.read(AGENT, null, 10, 0)), mine, 'an hour later as well');
});

t.test('the server holds a bounded number, and hears of them before it would deliver again', async (t) => {
  const world = await new World({ unacknowledged: 100, agentCount: 1_000 }).start();
  const seqs = Array.from({ length: 150 }, () => world.bring());
  t.equal(world.said.filter(({ word }) => word === '+ACK').length, 50, 'the oldest are let go');
  t.strictSame(seqsOf(await world.inbox.read(AGENT, null, 1_000, 0)), seqs, 'and are there all the same');
  await world.clock.advance(21_000);
  t.equal(world.said.filter(({ word }) => word === '+WPI').length, 100);
});

t.test('however the settings stand, the server is never left without room to give out more', async (t) => {
  const world = new World({ unacknowledged: 10_000, agentCount: 1_000, agentBytes: 1_000_000 });
  world.maxAckPending = 120;
  await world.start();
  const seqs = Array.from({ length: 400 }, () => world.bring());
  const held = seqs.length - world.said.filter(({ word }) => word === '+ACK').length;
  t.ok(held <= 60, `${held} of 120`);
  t.strictSame(seqsOf(await world.inbox.read(AGENT, null, 1_000, 0)), seqs);
});

t.test('a reader gets what it has room for, and the last reader wins', async (t) => {
  const world = await new World().start();
  const slow = new Reader();
  slow.room = 2;
  const following = await followed(world, null, slow);
  const seqs = Array.from({ length: 6 }, () => world.bring());
  t.strictSame(slow.seqs, seqs.slice(0, 2));
  slow.room = 3;
  following.ready();
  t.strictSame(slow.seqs, seqs.slice(0, 5));
  const second = new Reader();
  await followed(world, seqs[4] as number, second);
  t.strictSame(slow.ends, ['replaced']);
  t.strictSame(second.seqs, seqs.slice(4));
  slow.room = 10;
  following.ready();
  world.bring();
  t.equal(slow.seqs.length, 5, 'who was replaced gets nothing more');
  world.inbox.leave();
  t.strictSame(second.ends, ['closing']);
  t.match(await world.inbox.follow(AGENT, null, slow), { ok: false, why: 'unreachable' });
});

t.test('positions that are gone, ahead or none', async (t) => {
  const world = await new World({ agentCount: 1 }).start();
  world.bring(AGENT, '{}', 20);
  const a = world.bring(AGENT, '{}', 20);
  t.match(await world.inbox.read(AGENT, 10, 10, 0), { ok: true, entries: [{ seq: 20 }] });
  for (let i = 0; i < 10; i++) world.bring(OTHER);
  world.first = 30;
  t.match(await world.inbox.read(AGENT, 10, 10, 0), { ok: false, why: 'gone', from: 30 });
  t.match(await world.inbox.read(AGENT, a + 1, 10, 0), { ok: true, entries: [] });
  t.match(
    await world.inbox.read(AGENT, a + 2, 10, 0),
    { ok: false, why: 'ahead', from: a + 1 },
    'others have entries there, and it is not told',
  );
  t.match(await world.inbox.read(AGENT, 9_999, 10, 0), { ok: false, why: 'ahead' });
  for (const from of [-1, 1.5, Number.NaN]) t.match(await world.inbox.read(AGENT, from, 10, 0), { ok: false, why: 'invalid' });
  t.match(await world.inbox.read('crm.front.3', a, 10, 0), { ok: false, why: 'ahead' }, 'nor who has nothing');
});

t.test('a consumer that is not there yet, or was made anew, and a stream that was', async (t) => {
  const world = new World();
  world.hasConsumer = false;
  await world.start();
  world.store();
  t.strictSame(seqsOf(await world.inbox.read(AGENT, null, 10, 0)), [1], 'the stream is there before its consumer');
  world.hasConsumer = true;
  await world.clock.advance(1_500);
  world.deliver(1);
  const reader = new Reader();
  await followed(world, null, reader);
  t.strictSame(reader.seqs, [1]);
  // The consumer begins anew: everything is delivered once more.
  world.delivered = { consumerSeq: 0, streamSeq: 0 };
  world.deliver(1);
  world.bring();
  await world.clock.advance(2_500);
  world.bring();
  await world.clock.advance(2_500);
  t.strictSame(reader.seqs, [1, 2, 3]);
  await world.inbox.acknowledge(AGENT, 3);
  // The stream as well: positions begin anew, and what was acknowledged of the old one says nothing.
  world.kept.length = 0;
  world.last = 0;
  world.delivered = { consumerSeq: 0, streamSeq: 0 };
  const fresh = world.store();
  world.deliver(fresh, { storedAtMs: 9_999_999 });
  t.strictSame(reader.ends, ['closing']);
  await world.clock.advance(1_500);
  t.strictSame(seqsOf(await world.inbox.read(AGENT, null, 10, 0)), [fresh]);
});

t.test('a task that has ended is not told a second time; what people may begin again ends again', async (t) => {
  const world = await new World().start();
  const end = (task: string, state: string): number => {
    const seq = ++world.last;
    const head = JSON.stringify({ wire: 1, kind: 'state', task_id: task, content_type: 'application/json', state });
    world.kept.push({ seq, agent: AGENT, data: Buffer.from(`${head}\n{}`) });
    world.deliver(seq);
    return seq;
  };
  const first = end('task-a', 'done');
  const again = end('task-a', 'done');
  const otherwise = end('task-a', 'expired');
  end('task-b', 'in_doubt');
  end('task-b', 'done');
  world.deliver(first, { deliveries: 2 });
  await world.clock.advance(10);
  t.same(
    world.noted.slice(0, 3).map(([{ task_id, state }]) => `${task_id} ${state}`),
    ['task-a done', 'task-b in_doubt', 'task-b done'],
  );
  t.same(world.words(again), ['+ACK'], 'it does not come again');
  t.same(world.words(otherwise), ['+ACK']);
  await world.inbox.close();

  const few = new Ended(2);
  for (const [i, task] of ['a', 'b', 'c'].entries()) t.notOk(few.isRepeat({ task_id: task, state: 'done' }, i));
  t.notOk(few.isRepeat({ task_id: 'a', state: 'done' }, 9), 'forgotten');
  t.ok(few.isRepeat({ task_id: 'c', state: 'failed' }, 9));
});
