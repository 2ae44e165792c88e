import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, readdirSync, readFileSync, renameSync, rmSync, statSync, truncateSync, writeFileSync } from 'node:fs';
import { hostname, tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { setTimeout as sleep } from 'node:timers/promises';
import t from 'tap';
import { type Clock, realClock } from '../../../../base/clock.ts';
import { SeededRandom } from '../../../../base/random.ts';
import { decodeEnvelope, encodeEnvelope, type Envelope } from '../../../../proto/wire/envelope.ts';
import { aged } from '../../../../sidecar/send/outbox-age.ts';
import { encodeRecord, findRecord, MAX_BODY_BYTES, recordBytes, saltOf, segmentHead } from '../../../../sidecar/send/outbox-record.ts';
import { DiskOutbox } from '../../../../sidecar/send/outbox.ts';
import { unsendable } from '../../../../sidecar/send/unsendable.ts';
import { nodeArgs, REPO } from '../../../support/paths.ts';
import { providerOf } from '../../../support/route-table.ts';
import { ScriptedBus, ScriptedStream, SendWorld } from './world.ts';

const NAME = 'crm.order.query';
const worker = (id: string) => providerOf(`crm.order.${id}`, [`${NAME}@2.1.0`], { via: 'two' });

const folders: string[] = [];
t.teardown(() => folders.forEach((folder) => rmSync(folder, { recursive: true, force: true })));

function newFolder(): string {
  const folder = mkdtempSync(join(tmpdir(), 'reach-outbox-'));
  folders.push(folder);
  return folder;
}

class Rig {
  readonly folder: string;
  readonly bus = new ScriptedBus();
  readonly stream = new ScriptedStream();
  readonly warnings: string[] = [];
  /** Messages that the server never takes. */
  readonly given: { readonly data: Buffer; readonly why: string }[] = [];
  maxBytes = 16 * 1_048_576;
  clock: Clock = realClock;
  box: DiskOutbox | null = null;

  constructor(folder = newFolder()) {
    this.folder = folder;
    this.bus.connected = false;
  }

  async open(): Promise<DiskOutbox> {
    const box = await this.tried();
    if (typeof box === 'string') throw new Error(box);
    this.box = box;
    return box;
  }

  tried(): Promise<DiskOutbox | string> {
    const { folder, bus, maxBytes, clock } = this;
    const stream = Object.assign(this.stream, { close: (): void => undefined });
    const warn = (words: string): void => void this.warnings.push(words);
    const never = (data: Buffer, why: string): void => void this.given.push({ data, why });
    return DiskOutbox.open({ folder, maxBytes, bus, stream, clock, random: new SeededRandom(1), warn, never });
  }

  segments(): string[] {
    return readdirSync(this.folder)
      .filter((name) => name.endsWith('.log'))
      .sort()
      .map((name) => join(this.folder, name));
  }

  async emptied(): Promise<void> {
    await until(() => this.box?.pending === 0);
  }

  ids(): string[] {
    return this.stream.sent.map(({ msgId }) => msgId);
  }
}

async function until(holds: () => boolean): Promise<void> {
  for (let i = 0; !holds(); i++) {
    if (i > 2_000) throw new Error('it did not come true');
    await sleep(5);
  }
}

const body = (n: number, bytes = 40): Buffer => Buffer.alloc(bytes, `message ${n} `);
const put = (box: DiskOutbox, n: number, bytes?: number): Promise<string> => box.put('ar.t.task.p.normal.0.s', body(n, bytes), `id-${n}`);
const range = (from: number, to: number): number[] => Array.from({ length: to - from }, (_, i) => from + i);
const idsOf = (numbers: readonly number[]): string[] => numbers.map((n) => `id-${n}`);

t.test('A record is found again as it was written', async (t) => {
  const salt = Buffer.from('saltsalt');
  const data = Buffer.from([0, 1, 2, 255]);
  const bytes = Buffer.concat([segmentHead(salt), encodeRecord(salt, 'id-ü', 'a.b', data), encodeRecord(salt, '', 'c', Buffer.alloc(0))]);
  t.same(saltOf(bytes), salt);
  t.equal(recordBytes('id-ü', 'a.b', data), encodeRecord(salt, 'id-ü', 'a.b', data).length);
  const first = findRecord(bytes, 16, salt);
  t.match(first, { record: { msgId: 'id-ü', subject: 'a.b', data }, skipped: 0 });
  const second = findRecord(bytes, first.record === null ? 0 : first.end, salt);
  t.match(second, { record: { msgId: '', subject: 'c' }, skipped: 0, end: bytes.length });
  t.same(findRecord(bytes, bytes.length, salt), { record: null, needed: 24 - 8 });
  t.equal(saltOf(Buffer.from('something else altogether')), null);
  t.throws(() => encodeRecord(salt, 'x'.repeat(70_000), 's', data));
});

t.test('No bit of a record can change without its being noticed, and what follows is found', async (t) => {
  const salt = Buffer.from('saltsalt');
  const one = encodeRecord(salt, 'one', 'a.b', body(1));
  const two = encodeRecord(salt, 'two', 'a.b', body(2));
  let unnoticed = 0;
  for (let bit = 0; bit < one.length * 8; bit++) {
    const bytes = Buffer.concat([one, two]);
    bytes[bit >> 3] = (bytes[bit >> 3] as number) ^ (1 << (bit & 7));
    const found = findRecord(bytes, 0, salt);
    if (found.record === null || found.record.msgId !== 'two' || found.skipped !== one.length) unnoticed++;
  }
  t.equal(unnoticed, 0);
});

t.test('A record inside a payload, made without the salt, is not taken for one', async (t) => {
  const salt = Buffer.from('saltsalt');
  const forged = encodeRecord(Buffer.from('guessed!'), 'forged', 'a.b', body(1));
  const outer = encodeRecord(salt, 'outer', 'a.b', forged);
  outer[outer.length - 1] = (outer[outer.length - 1] as number) ^ 1;
  t.equal(findRecord(outer, 0, salt).record, null);
  t.ok(MAX_BODY_BYTES > 8 * 1_048_576);
});

t.test('What is stored leaves in its order when there is a connection, and its files go', async (t) => {
  const rig = new Rig();
  const box = await rig.open();
  const kept = await Promise.all(range(0, 1_000).map((n) => put(box, n)));
  t.ok(kept.every((one) => one === 'stored'));
  t.equal(box.pending, 1_000);
  t.equal(rig.stream.sent.length, 0, 'nothing is sent without a connection');
  rig.bus.go(true);
  await rig.emptied();
  t.same(rig.ids(), idsOf(range(0, 1_000)));
  t.same(rig.stream.sent[999]?.data, body(999));
  t.equal(rig.stream.sent[999]?.subject, 'ar.t.task.p.normal.0.s');
  await until(() => rig.segments().length === 0);
  t.equal(await put(box, 1_000), 'stored', 'and it goes on');
  await rig.emptied();
  await box.close();
  t.same(rig.warnings, []);
});

t.test('New messages go behind those that are being drained', async (t) => {
  const rig = new Rig();
  const box = await rig.open();
  await Promise.all(range(0, 300).map((n) => put(box, n)));
  rig.bus.go(true);
  let next = 300;
  while (box.pending > 0 && next < 900) {
    await Promise.all(range(next, next + 20).map((n) => put(box, n)));
    next += 20;
  }
  await rig.emptied();
  t.same(rig.ids(), idsOf(range(0, next)));
  await box.close();
});

t.test('A restart sends what was left, in order, and says how many', async (t) => {
  const rig = new Rig();
  const box = await rig.open();
  await Promise.all(range(0, 50).map((n) => put(box, n)));
  await box.close();
  t.equal(await put(box, 51), 'broken', 'a closed one takes nothing');
  const again = new Rig(rig.folder);
  const second = await again.open();
  t.equal(second.pending, 50);
  t.match(again.warnings.join('\n'), /holds 50 messages from before/);
  await put(second, 50);
  again.bus.go(true);
  await again.emptied();
  t.same(again.ids(), idsOf(range(0, 51)));
  await second.close();
  const third = new Rig(rig.folder);
  t.equal((await third.open()).pending, 0);
  await third.box?.close();
});

t.test('What was stored before a restart is not sent again after it, except what was on its way', async (t) => {
  const rig = new Rig();
  const box = await rig.open();
  await Promise.all(range(0, 60).map((n) => put(box, n)));
  let answered = 0;
  rig.stream.auto = (count) => (++answered <= 40 ? { seq: count, duplicate: false } : { failed: 'no answer in time', ambiguous: true });
  rig.bus.go(true);
  await until(() => box.pending === 20);
  await box.close();
  const again = new Rig(rig.folder);
  const second = await again.open();
  t.equal(second.pending, 20);
  again.bus.go(true);
  await again.emptied();
  t.same(again.ids(), idsOf(range(40, 60)));
  await second.close();
});

t.test(
  'A message that is not stored stops the rest; the same ones are sent again with their ids, none twice once it is stored',
  async (t) => {
    const rig = new Rig();
    const box = await rig.open();
    await Promise.all(range(0, 200).map((n) => put(box, n)));
    const stored: string[] = [];
    let refusals = 0;
    rig.stream.auto = () => {
      const { msgId } = rig.stream.sent[answered++] as { msgId: string };
      if (msgId === 'id-20' && refusals++ < 2) return { failed: 'storing: maximum messages exceeded', ambiguous: false, full: true };
      stored.push(msgId);
      return { seq: stored.length, duplicate: false };
    };
    let answered = 0;
    rig.bus.go(true);
    await rig.emptied();
    t.same(new Set(stored), new Set(idsOf(range(0, 200))));
    t.equal(stored.length, 200, 'none is stored twice');
    const afterRefusal = stored.slice(stored.indexOf('id-20'));
    t.same(
      afterRefusal.slice(1),
      afterRefusal.slice(1).toSorted((a, b) => Number(a.slice(3)) - Number(b.slice(3))),
      'the rest keeps its order',
    );
    t.match(rig.warnings.join('\n'), /the outbox waits: .*exceeded/);
    await box.close();
  },
);

t.test('A lost connection in the middle loses nothing', async (t) => {
  const rig = new Rig();
  const box = await rig.open();
  await Promise.all(range(0, 100).map((n) => put(box, n)));
  rig.stream.auto = null;
  rig.bus.go(true);
  await until(() => rig.stream.waiting.length === 1);
  rig.stream.waiting.shift()?.({ seq: 1, duplicate: false });
  await until(() => rig.stream.waiting.length === 2);
  rig.bus.go(false);
  for (const then of rig.stream.waiting.splice(0)) then({ failed: 'the connection broke', ambiguous: true });
  rig.stream.auto = (count) => ({ seq: count, duplicate: false });
  await sleep(20);
  rig.bus.go(true);
  await rig.emptied();
  t.same(rig.ids().slice(3), idsOf(range(1, 100)), 'from the first that is not known to be stored');
  await box.close();
});

t.test('What the server never takes is set aside and said, and the rest goes on', async (t) => {
  const rig = new Rig();
  const box = await rig.open();
  await Promise.all(range(0, 10).map((n) => put(box, n)));
  let answered = 0;
  rig.stream.auto = (count) =>
    ++answered === 4
      ? { failed: 'storing x: a message of 9 bytes: the server takes 8', ambiguous: false }
      : { seq: count, duplicate: false };
  rig.bus.go(true);
  await rig.emptied();
  t.equal(rig.stream.sent.length, 10);
  const aside = readdirSync(rig.folder).find((name) => name.startsWith('aside-')) as string;
  t.same(readFileSync(join(rig.folder, aside)), Buffer.concat([Buffer.from('id-3\nar.t.task.p.normal.0.s\n'), body(3)]));
  t.match(rig.warnings.join('\n'), /cannot send message id-3.*kept in/);
  t.same(rig.given, [{ data: body(3), why: 'storing x: a message of 9 bytes: the server takes 8' }], 'whoever sent it can be told');
  await box.close();
});

t.test('What may not be sent holds up the rest for some seconds, and is set aside then; permissions may come back', async (t) => {
  const rig = new Rig();
  const speed = 50;
  rig.clock = {
    wallMs: () => realClock.wallMs(),
    now: () => realClock.now() * speed,
    after: (ms: number, run: () => void) => realClock.after(ms / speed, run),
  };
  const review = 'ar.t.kept.review.task-4';
  const denied = new Set(['ar.t.task.p.normal.0.old', 'ar.t.task.p.high.0.old', 'ar.t.task.q.high.3.old', review]);
  let answered = 0;
  rig.stream.auto = (count) => {
    const { subject } = rig.stream.sent[answered++] as { subject: string };
    if (!denied.has(subject)) return { seq: count, duplicate: false };
    // Here, not when somebody has looked: ten seconds are soon over at this speed.
    if (subject === review) denied.delete(review);
    return { failed: `storing ${subject}: no permission to publish there`, ambiguous: false };
  };
  const box = await rig.open();
  const old = (n: number, place: string) => box.put(`ar.t.task.${place}.old`, body(n), `old-${n}`);
  await Promise.all([
    old(1, 'p.normal.0'),
    old(2, 'p.high.0'),
    put(box, 1),
    old(3, 'q.high.3'),
    put(box, 2),
    box.put(review, body(4), 'old-4'),
    put(box, 3),
  ]);
  const startedAt = rig.clock.now();
  rig.bus.go(true);
  await until(() => rig.given.length > 0);
  t.ok(rig.clock.now() - startedAt >= 10_000, 'not at the first refusal');
  t.ok(rig.ids().filter((id) => id === 'old-1').length >= 3);
  await until(() => rig.ids().includes('old-4'));
  t.equal(rig.given.length, 3, 'others that the same permission is for are judged by one try more');
  for (const id of ['old-2', 'old-3']) t.equal(rig.ids().filter((each) => each === id).length, 1, id);
  await rig.emptied();
  t.equal(rig.given.length, 3, 'what is permitted in time is stored');
  t.match(rig.given[0], { data: body(1), why: /no permission/ }, 'whoever sent it can be told');
  t.equal(readdirSync(rig.folder).filter((name) => name.startsWith('aside-')).length, 3);
  const first = rig.ids().filter((id, i, all) => id.startsWith('id-') && all.indexOf(id) === i);
  t.strictSame(first, idsOf([1, 2, 3]), 'all others, in their order');
  await box.close();
});

t.test('What has lain on the disk leaves with what is left of its time; nothing else about it changes', async (t) => {
  const world = new SendWorld([worker('a')]);
  await world.submit(NAME, { 'reach-expires': '1h', 'reach-tags': 'a=b' }, '{"n":"\u00e9\\n"}');
  const sent = world.stream.sent[0]?.data as Buffer;
  const before = decodeEnvelope(sent) as { envelope: Envelope; payload: Buffer };
  const acceptedAt = Date.UTC(2026, 0, 1);
  const data = encodeEnvelope({ ...before.envelope, accepted_at_ms: acceptedAt }, before.payload);
  t.equal(aged(data, acceptedAt + 900), data, 'a moment is not worth it');
  t.equal(aged(data, acceptedAt - 60_000), data, 'the clock was set back');
  t.equal(aged(data, acceptedAt), data);
  const later = decodeEnvelope(aged(data, acceptedAt + 600_000.4)) as { envelope: Envelope; payload: Buffer };
  t.strictSame(later.envelope, { ...before.envelope, accepted_at_ms: acceptedAt, expires_ms: 3_000_000 });
  t.same(later.payload, before.payload);
  t.equal(decodeEnvelope(aged(data, acceptedAt + 7_200_000))?.envelope.expires_ms, 1, 'over: whoever has it says so');
  t.ok(aged(data, acceptedAt + 600_000).length <= data.length, 'it never outgrows what NATS takes');
  const unset = encodeEnvelope({ ...before.envelope, accepted_at_ms: 5_000 }, before.payload);
  t.equal(aged(unset, acceptedAt), unset, 'accepted by a clock that was not set');
  for (const other of [Buffer.from('no newline'), Buffer.from('{"wire":1}\n')]) t.equal(aged(other, acceptedAt + 600_000), other);
  const entry = Buffer.from(`{"wire":1,"kind":"review","task_id":"${later.envelope.task_id}","source":"a.b.c"}\n`);
  const review = aged(Buffer.concat([entry, data]), acceptedAt + 600_000.4);
  t.same(review, Buffer.concat([entry, aged(data, acceptedAt + 600_000.4)]), 'one that waits for a person too');

  const rig = new Rig();
  const box = await rig.open();
  const wallMs = realClock.wallMs();
  await box.put(
    'ar.t.task.p.normal.0.s',
    encodeEnvelope({ ...before.envelope, accepted_at_ms: Math.round(wallMs - 600_000) }, before.payload),
    'old',
  );
  rig.bus.go(true);
  await rig.emptied();
  const leftMs = decodeEnvelope(rig.stream.sent[0]?.data as Buffer)?.envelope.expires_ms as number;
  t.ok(leftMs > 2_990_000 && leftMs <= 3_000_000, `${leftMs} ms are left`);
  await box.close();
  world.close();
});

t.test('Who sent what can never be sent is told, also when it was meant for people', async (t) => {
  const world = new SendWorld([worker('a')]);
  await world.submit(NAME);
  const data = world.stream.sent[0]?.data as Buffer;
  const { task_id: taskId } = world.envelope();
  const expected = {
    source: 'support.planner.1',
    replyTo: 'support.planner.1',
    event: { task_id: taskId, state: 'failed', cause: 'unsendable', detail: /onto the disk.*too much/, at_ms: 5 },
  };
  t.match(unsendable(data, 'too much', 5), expected);
  const entry = Buffer.from(`{"wire":1,"kind":"review","task_id":"${taskId}","source":"support.planner.1"}\n`);
  t.match(unsendable(Buffer.concat([entry, data]), 'too much', 5), expected);
  t.match(unsendable(data, 'storing x: no permission to publish there', 5), { event: { state: 'failed', code: 7001 } });
  t.match(unsendable(data, 'a message of 9 bytes: the server takes 8', 5), { event: { state: 'failed', code: 4005 } });
  t.equal(unsendable(Buffer.from('rubbish'), 'x', 5), null);
  t.equal(unsendable(entry, 'x', 5), null);
  world.close();
});

t.test('A tail that a crash cut short is cut off, and said; everything before it is there', async (t) => {
  const whole = new Rig();
  const box = await whole.open();
  for (const n of range(0, 5)) await put(box, n);
  await box.close();
  const [segment] = whole.segments() as [string];
  const bytes = readFileSync(segment);
  const oneRecord = (bytes.length - 16) / 5;
  for (const cut of [1, Math.floor(oneRecord / 2), oneRecord - 1]) {
    const rig = new Rig();
    writeFileSync(join(rig.folder, '0000000001.log'), bytes);
    truncateSync(join(rig.folder, '0000000001.log'), bytes.length - cut);
    const again = await rig.open();
    t.equal(again.pending, 4, `${cut} bytes are missing`);
    t.match(rig.warnings.join('\n'), new RegExp(`cuts ${oneRecord - cut} bytes off the end`));
    await put(again, 7);
    rig.bus.go(true);
    await rig.emptied();
    t.same(rig.ids(), ['id-0', 'id-1', 'id-2', 'id-3', 'id-7']);
    await again.close();
  }
});

t.test('Zeros and rubbish at the end are cut off too', async (t) => {
  for (const rubbish of [Buffer.alloc(5_000), Buffer.from('rubbish '.repeat(100))]) {
    const rig = new Rig();
    const box = await rig.open();
    await put(box, 1);
    await box.close();
    const [segment] = rig.segments() as [string];
    writeFileSync(segment, rubbish, { flag: 'a' });
    const again = await rig.open();
    t.equal(again.pending, 1);
    t.match(rig.warnings.join('\n'), new RegExp(`cuts ${rubbish.length} bytes`));
    await again.close();
    t.equal(statSync(segment).size % 1_000 > 0 && statSync(segment).size < 200, true);
  }
});

t.test('A damaged place in the middle is skipped and said, what is behind it is sent, and the file is kept', async (t) => {
  const rig = new Rig();
  const box = await rig.open();
  for (const n of range(0, 5)) await put(box, n);
  await box.close();
  const [segment] = rig.segments() as [string];
  const bytes = readFileSync(segment);
  const oneRecord = (bytes.length - 16) / 5;
  bytes.fill(0x55, 16 + oneRecord + 30, 16 + oneRecord + 40);
  writeFileSync(segment, bytes);
  const again = await rig.open();
  t.equal(again.pending, 4);
  t.match(rig.warnings.join('\n'), new RegExp(`skips ${oneRecord} damaged bytes`));
  rig.bus.go(true);
  await rig.emptied();
  t.same(rig.ids(), ['id-0', 'id-2', 'id-3', 'id-4']);
  await again.close();
  t.ok(readdirSync(rig.folder).some((name) => name.endsWith('.damaged')));
});

t.test('A segment whose beginning is damaged, or that was just begun, stops nothing', async (t) => {
  const rig = new Rig();
  writeFileSync(join(rig.folder, '0000000001.log'), 'not a segment, but longer than the head of one');
  writeFileSync(join(rig.folder, '0000000002.log'), 'ARoutb');
  writeFileSync(join(rig.folder, '0000000003.log'), '');
  const box = await rig.open();
  t.equal(box.pending, 0);
  t.match(rig.warnings.join('\n'), /cannot read .*0000000001.log.*damaged/);
  await put(box, 1);
  rig.bus.go(true);
  await rig.emptied();
  await box.close();
});

t.test('At its bound it is full, and takes again what fits when it was drained', async (t) => {
  const rig = new Rig();
  rig.maxBytes = 1_048_576;
  const box = await rig.open();
  let stored = 0;
  while ((await put(box, stored, 10_000)) === 'stored') stored++;
  t.ok(stored > 95 && stored < 106, `${stored}`);
  t.equal(await put(box, 0, 10_000), 'full');
  t.match(rig.warnings, [/is full: \d+ messages wait/], 'said once');
  t.ok(rig.segments().length > 5, 'in several segments');
  rig.bus.go(true);
  await rig.emptied();
  t.equal(await put(box, stored, 10_000), 'stored');
  await rig.emptied();
  t.same(rig.ids(), idsOf(range(0, stored + 1)));
  await box.close();
});

t.test('Puts that the disk is too slow for are refused before they fill the memory', async (t) => {
  const rig = new Rig();
  rig.maxBytes = 1_073_741_824;
  const box = await rig.open();
  const kept = await Promise.all(range(0, 48).map((n) => put(box, n, 1_048_576)));
  t.ok(kept.slice(0, 31).every((one) => one === 'stored'));
  t.equal(kept.at(-1), 'full');
  t.equal(box.pending, kept.filter((one) => one === 'stored').length);
  rig.bus.go(true);
  await rig.emptied();
  await box.close();
});

t.test('A folder that is in use is refused by name; that of a process which was killed is taken over', async (t) => {
  const rig = new Rig();
  const box = await rig.open();
  t.match(await new Rig(rig.folder).tried(), /in use by this process already/);
  await box.close();
  const child = startChild(rig.folder);
  const lines = createInterface({ input: child.stdout as NodeJS.ReadableStream });
  await once(lines, 'line');
  const refused = await new Rig(rig.folder).tried();
  t.match(refused, new RegExp(`the outbox .* is in use by process ${child.pid}: each sidecar needs a state_dir, or a name, of its own`));
  child.kill('SIGKILL');
  await once(child, 'exit');
  const after = new Rig(rig.folder);
  await after.open();
  await after.box?.close();
  t.notOk(
    readdirSync(rig.folder).some((name) => name.startsWith('lock')),
    'no lock is left',
  );
});

t.test('A lock of an earlier process with our id, of one that was given the id again, or of rubbish is no lock', async (t) => {
  for (const lock of [
    JSON.stringify({ pid: process.pid, host: hostname(), started: 'another boot 17' }),
    JSON.stringify({ pid: process.ppid, host: hostname(), started: 'another boot 17' }),
    'rubbish',
    '',
  ]) {
    const rig = new Rig();
    writeFileSync(join(rig.folder, 'lock'), lock);
    await rig.open();
    await rig.box?.close();
  }
  const rig = new Rig();
  writeFileSync(join(rig.folder, 'lock'), JSON.stringify({ pid: 1, host: 'elsewhere', started: '' }));
  t.match(await rig.tried(), /in use by process 1 on elsewhere/, 'a holder on another machine counts while it touches the file');
});

t.test('A folder that cannot be used is said in one sentence', async (t) => {
  const folder = newFolder();
  writeFileSync(join(folder, 'file'), '');
  t.match(await new Rig(join(folder, 'file', 'outbox')).tried(), /^the outbox .* cannot be used: ENOTDIR/);
});

t.test('A disk that fails refuses at once, is tried again after a second, and loses nothing that was stored', async (t) => {
  const rig = new Rig();
  const box = await rig.open();
  await put(box, 0);
  const gone = rig.folder;
  // A new segment cannot be made where there is no folder.
  rig.bus.go(true);
  await rig.emptied();
  await until(() => rig.segments().length === 0);
  rig.bus.go(false);
  renameSync(gone, `${gone}-away`);
  t.equal(await put(box, 1), 'broken');
  t.equal(await put(box, 2), 'broken', 'at once');
  t.match(rig.warnings.join('\n'), /cannot be written: ENOENT/);
  renameSync(`${gone}-away`, gone);
  t.equal(box.pending, 0);
  await sleep(1_050);
  t.equal(await put(box, 3), 'stored');
  t.match(rig.warnings.join('\n'), /can be written again/);
  rig.bus.go(true);
  await rig.emptied();
  t.same(rig.ids(), ['id-0', 'id-3']);
  await box.close();
});

t.test('SIGKILL in the midst of puts: all that was said to be stored is there, whole and in order', async (t) => {
  const folder = newFolder();
  for (let round = 0; round < 3; round++) {
    const child = startChild(folder, String(round));
    const said: string[] = [];
    const lines = createInterface({ input: child.stdout as NodeJS.ReadableStream });
    lines.on('line', (line) => said.push(line));
    await until(() => said.length > 200 + round * 150);
    child.kill('SIGKILL');
    await once(child, 'exit');
    await sleep(20);
    const rig = new Rig(folder);
    await rig.open();
    rig.bus.go(true);
    await rig.emptied();
    const ids = new Set(rig.ids());
    const promised = said.filter((line) => line.startsWith('id-'));
    t.same(
      promised.filter((id) => !ids.has(id)),
      [],
      `round ${round}: ${promised.length} were promised`,
    );
    const numbers = rig.ids().map((id) => Number(id.split('-')[1]));
    t.same(
      numbers,
      numbers.toSorted((a, b) => a - b),
    );
    t.ok(rig.stream.sent.every(({ data, msgId }) => data.toString('latin1') === `payload of ${msgId} `.repeat(20)));
    await rig.box?.close();
  }
});

/** A process that puts messages into the outbox as fast as it can and prints each id that is stored. */
function startChild(folder: string, round = '0'): ChildProcess {
  return spawn(process.execPath, [...nodeArgs('test/support/outbox-child.ts'), folder, round], {
    cwd: REPO,
    stdio: ['ignore', 'pipe', 'inherit'],
  });
}
