import {
  chmodSync,
  existsSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  symlinkSync,
  utimesSync,
  writeFileSync,
} from 'node:fs';
import { open } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import t, { type Test } from 'tap';
import { VirtualClock } from '../../../../base/virtual-clock.ts';
import { RecordingFiles } from '../../../../sidecar/record/files.ts';
import { fileHead, frame, readFrames } from '../../../../sidecar/record/frames.ts';
import { readRecording, recordedIn, type Recording } from '../../../../sidecar/record/reading.ts';
import { NO_CHANGES } from '../../../../sidecar/replay/changes.ts';
import { sendToSandbox } from '../../../../sidecar/replay/send.ts';
import { replay } from '../../../../sidecar/replay/replay.ts';
import { isSampled } from '../../../../sidecar/record/watch.ts';
import { MARK } from '../../../support/credential-mark.ts';
import { RecordedWorld } from '../../../support/recorded-world.ts';

const TABLE = `
scenario: recorded
as: crm.web.1
contracts:
  - {name: crm.order.query, version: 2.0.0, description: Orders., acl: public, execution: idempotent}
  - {name: crm.order.charge, version: 1.0.0, description: Once., acl: public, execution: once, affinity: {from: /session}}
  - {name: crm.text.write, version: 1.0.0, description: Streams., acl: public, execution: idempotent, streaming: {first_chunk: 1s}}
providers:
  - {agent_id: crm.order.1, offers: [crm.order.query@2.0.0, crm.order.charge@1.0.0]}
  - {agent_id: crm.order.2, offers: [crm.order.query@2.0.0]}
  - {agent_id: crm.text.1, offers: [crm.text.write@1.0.0]}
mocks:
  crm.order.1: {latency: 5ms, headers: {set-cookie: "sid=${MARK}", x-seen: "${MARK}"}}
  crm.order.2: {latency: 5ms, status: 503, body: {error: "${MARK}"}}
  crm.text.1: {latency: 5ms, body: "${'text '.repeat(50)}", slow_body: {chunks: 5, every: 5ms}}
steps:
  - {call: crm.order.query, as: crm.web.1}
  - {call: crm.order.query, as: crm.web.2}
`;

function read(folder: string): Recording {
  const recording = readRecording(folder);
  if (typeof recording === 'string') throw new Error(recording);
  return recording;
}

t.test('records are framed so that a torn end is left out and a damaged place skipped', (t) => {
  const salt = Buffer.from('saltsalt');
  const [a, b, c] = ['{"k":1}', '{"k":"ü"}', '{"k":3}'].map((json) => frame(salt, json)) as [Buffer, Buffer, Buffer];
  const whole = Buffer.concat([fileHead(salt), a, b, c]);
  const texts = (bytes: Buffer): string[] | undefined => readFrames(bytes)?.bodies.map((body) => body.toString());
  t.strictSame(texts(whole), ['{"k":1}', '{"k":"ü"}', '{"k":3}']);
  for (let cut = 1; cut < c.length; cut++) {
    const torn = readFrames(whole.subarray(0, whole.length - cut));
    t.equal(torn?.bodies.length, 2);
    t.equal(torn?.tornBytes, c.length - cut);
  }
  const damaged = Buffer.from(whole);
  const place = fileHead(salt).length + a.length + 20;
  damaged[place] = (damaged[place] as number) ^ 0xff;
  t.strictSame(texts(damaged), ['{"k":1}', '{"k":3}']);
  t.equal(readFrames(damaged)?.damagedBytes, b.length);
  t.equal(readFrames(Buffer.from('something else, longer than a head')), null);
  t.end();
});

t.test('what another format has written is refused with a sentence, and a torn file is read as far as it goes', async (t) => {
  const salt = Buffer.from('saltsalt');
  const other = Buffer.concat([fileHead(salt), frame(salt, JSON.stringify({ k: 'file', format: 9, program: '4.2.0' }))]);
  t.match(recordedIn(other, 'x.reachrec', []), /written by Agent-Reach 4\.2\.0 in format 9, and this program reads format 1/);
  const world = new RecordedWorld(TABLE);
  t.teardown(() => world.remove());
  for (let n = 0; n < 3; n++) await world.call({ name: 'crm.order.query' });
  const folder = await world.written();
  const file = join(folder, readdirSync(folder)[0] as string);
  const bytes = readFileSync(file);
  writeFileSync(file, bytes.subarray(0, bytes.length - 10));
  const recording = read(file);
  t.equal(recording.files[0]?.calls.length, 2);
  t.match(recording.remarks, [/its last \d+ bytes are a record that was not written to its end/]);
  t.match(readRecording(join(folder, 'nothing')), /cannot be read/);
  t.match(readRecording(mkdtempSync(join(tmpdir(), 'reach-none-'))), /there is no recording in this folder/);
});

t.test('a share of the traces is recorded, the same at every sidecar, and the rest goes through untouched', async (t) => {
  const world = new RecordedWorld(TABLE, { filter: { share: 0.25, capability: '*', caller: '', codes: [], failedOnly: false } });
  t.teardown(() => world.remove());
  const ids: string[] = [];
  for (let n = 0; n < 200; n++) ids.push((await world.call({ name: 'crm.order.query' })).traceId);
  const expected = ids.filter((id) => isSampled(id, 0.25));
  t.ok(expected.length > 25 && expected.length < 80);
  const calls = read(await world.written()).files.flatMap((file) => file.calls);
  t.strictSame(
    calls.map(({ trace_id: id }) => id),
    expected,
  );
  t.equal(world.world.witness.callsEnded, 200);
});

t.test(
  'calls are recorded by capability, caller, code, or only when they failed, and recording starts and stops at run time',
  async (t) => {
    const world = new RecordedWorld(TABLE, { isOn: false });
    t.teardown(() => world.remove());
    const { recorder } = world;
    await world.call({ name: 'crm.order.query', headers: { 'reach-pin': 'crm.order.1' } });
    t.equal(recorder.counts.recorded, 0);
    recorder.start({ failedOnly: true });
    await world.call({ name: 'crm.order.query', headers: { 'reach-pin': 'crm.order.1' } });
    await world.call({ name: 'crm.order.query', headers: { 'reach-pin': 'crm.order.2' } });
    t.equal(recorder.counts.recorded, 1);
    recorder.start({ caller: 'crm.*.2' });
    await world.call({ name: 'crm.order.query', caller: 'crm.web.1' });
    await world.call({ name: 'crm.order.query', caller: 'crm.web.2' });
    t.equal(recorder.counts.recorded, 2);
    recorder.start({ codes: [2001] });
    await world.call({ name: 'crm.order.query' });
    await world.call({ name: 'crm.order.quary' });
    t.equal(recorder.counts.recorded, 3);
    recorder.start({ capability: 'crm.text.*' });
    await world.call({ name: 'crm.order.query' });
    await world.call({ name: 'crm.text.write' });
    t.equal(recorder.counts.recorded, 4);
    void recorder.stop();
    await world.call({ name: 'crm.text.write' });
    t.match(recorder.status(), { isOn: false, recorded: 4, disk: 0, cpu: 0 });
    const report = await replay(read(await world.written()), { changes: NO_CHANGES, limit: 10 });
    t.strictSame(
      report.calls.map(({ broken }) => broken),
      [null, null, null, null],
    );
  },
);

t.test('nothing is in a recording but what its rules name: no credential, no cookie, no key, no conversation', async (t) => {
  const world = new RecordedWorld(TABLE, {}, { headers: ['x-kept'], query: [], json: ['/state'], bodies: ['image/png', 'text/plain'] });
  t.teardown(() => world.remove());
  const secret = (place: string): string => `${MARK}-${place}`;
  const png = Buffer.from([0x89, 0x50, 0x4e, 0x47, 0, 0xff, 0xfe, 10, 13]);
  const headers = {
    cookie: `sid=${secret('cookie')}`,
    'x-api-key': secret('header'),
    'x-kept': 'yes',
    'idempotency-key': secret('key'),
    'reach-sequence-id': secret('sequence'),
    'reach-home': secret('home'),
    traceparent: `00-${'a'.repeat(32)}-${'b'.repeat(16)}-01`,
  };
  await world.call({
    name: 'crm.order.charge',
    headers,
    body: { session: secret('session'), state: 'open', deep: [{ card: secret('card') }] },
  });
  await world.call({
    name: 'crm.order.query',
    headers: { 'reach-affinity': secret('affinity') },
    bytes: Buffer.from(secret('bytes')),
    type: 'text/html',
  });
  await world.call({ name: 'crm.order.query', bytes: png, type: 'image/png' });
  await world.call({ name: secret('name') });
  await world.call({ name: 'crm.order.query', headers: { 'reach-budget': `"${secret('budget')}"` } });
  await world.call({ name: 'crm.order.query', headers: { authorization: `Bearer ${secret('token')}` } });
  await world.call({ name: 'crm.order.query', headers: { 'reach-pin': 'crm.order.2' }, body: `${secret('text')}` });
  const folder = await world.written();
  for (const file of readdirSync(folder)) {
    const text = readFileSync(join(folder, file), 'latin1');
    t.notOk(text.includes(MARK), 'marked texts are nowhere in it');
    t.notOk(text.includes(Buffer.from(MARK).toString('base64').slice(0, 10)), 'nor in base64');
  }
  const recording = read(folder);
  const calls = recording.files.flatMap((file) => file.calls);
  t.match(calls[0], {
    headers: { 'x-kept': 'yes', cookie: '[not shown]' },
    body: { json: { state: 'open', session: '[not shown]' }, whole: false },
  });
  t.strictSame(Buffer.from(calls[2]?.body.base64 ?? '', 'base64'), png, 'bytes that may be kept are kept as they are');
  t.equal(calls[1]?.body.base64, undefined);
  const report = await replay(recording, { changes: NO_CHANGES, limit: 10 });
  t.strictSame(
    report.calls.filter(({ broken }) => broken !== null).map(({ broken }) => broken),
    [],
    'they are decided as they were without it',
  );
  t.ok(report.unfit.size > 0, 'where what was left out decides, it is said');
});

t.test('of a stream its beginning is kept, and how much it was in all', async (t) => {
  const world = new RecordedWorld(TABLE, { streamBytes: 16 }, { headers: [], query: [], json: [], bodies: ['application/json'] });
  t.teardown(() => world.remove());
  await world.call({ name: 'crm.text.write', stream: true });
  const [call] = read(await world.written()).files.flatMap((file) => file.calls);
  const stream = call?.sends[0]?.sends[0]?.stream;
  t.match(stream, { chunks: 5, ended: { by: 'end' } });
  t.ok((stream?.bytes ?? 0) > 200);
  t.equal(Buffer.from(stream?.head ?? '', 'base64').length, 16);
  const { sent } = await sendToSandbox(read(world.folder), NO_CHANGES, 10);
  t.match(sent, [{ diff: [], miss: null, notCompared: [/the streamed answer \(\d+ bytes\)/] }], 'sent anew, it is said not to be compared');
});

t.test('files are bounded in number and size, and each is whole by itself', async (t) => {
  const world = new RecordedWorld(TABLE, { fileBytes: 65_536, maxBytes: 200_000 });
  t.teardown(() => world.remove());
  for (let n = 0; n < 300; n++) {
    await world.call({ name: 'crm.order.query', body: { n } });
    if (n % 20 === 0) await world.recorder.flushed();
  }
  const folder = await world.written();
  const files = readdirSync(folder);
  t.ok(files.length >= 2 && files.length <= 4, `${files.length} files`);
  let bytes = 0;
  for (const file of files) bytes += readFileSync(join(folder, file)).length;
  t.ok(bytes <= 210_000, `${bytes} bytes`);
  const last = read(join(folder, files.sort().at(-1) as string));
  const report = await replay(last, { changes: NO_CHANGES, limit: 1_000 });
  t.ok(report.calls.length > 0);
  t.strictSame(report.calls.filter(({ broken }) => broken !== null).length, 0);
  const { recorded, rotated } = world.recorder.counts;
  t.equal(recorded + rotated, 300);
});

t.test('a disk that does not take it costs no call: they are dropped, counted, and said once', async (t) => {
  const folder = mkdtempSync(join(tmpdir(), 'reach-full-'));
  t.teardown(() => rmSync(folder, { recursive: true, force: true }));
  // Where the folder should be stands a file.
  const blocked = join(folder, 'blocked');
  writeFileSync(blocked, '');
  chmodSync(blocked, 0o400);
  const world = new RecordedWorld(TABLE, {}, { headers: [], query: [], json: [] }, join(blocked, 'recordings'));
  const codes = new Set<number>();
  for (let n = 0; n < 20; n++) codes.add((await world.call({ name: 'crm.order.query', headers: { 'reach-pin': 'crm.order.1' } })).code);
  await world.recorder.flushed();
  t.strictSame([...codes], [0]);
  const { disk, recorded, rotated } = world.recorder.counts;
  t.strictSame([recorded, disk + rotated], [0, 20]);
  t.ok(disk >= 15, `${disk} dropped`);
  t.match(world.warnings, [/the disk does not take it \(ENOTDIR\)/]);
  t.equal(world.recorder.status().isFailing, true);
  await world.recorder.close();
});

t.test('more time than it may take is not spent: calls that come then are not recorded, and counted', async (t) => {
  const world = new RecordedWorld(TABLE, { cpu: 0.01 });
  t.teardown(() => world.remove());
  const { recorder } = world;
  recorder.timed(() => world.world.clock.halt(150));
  await world.call({ name: 'crm.order.query' });
  t.match(recorder.counts, { recorded: 0, cpu: 1 });
  await world.world.clock.advance(60_000);
  await world.call({ name: 'crm.order.query' });
  t.match(recorder.counts, { recorded: 1, cpu: 1 });
});

t.test('a fault in the recording is none of the call: it goes on, and is counted', async (t) => {
  const world = new RecordedWorld(TABLE);
  t.teardown(() => world.remove());
  const { health } = world.world;
  const advance = health.advance.bind(health);
  let isBroken = true;
  Object.assign(health, {
    advance: (now: number) => {
      if (isBroken && new Error().stack?.includes('health-changes') === true) throw new TypeError('a fault');
      advance(now);
    },
  });
  const call = await world.call({ name: 'crm.order.query', headers: { 'reach-pin': 'crm.order.1' } });
  t.equal(call.code, 0);
  t.match(world.recorder.counts, { recorded: 0, fault: 1 });
  t.match(world.warnings, ['recording: a fault in Agent-Reach (a fault)']);
  isBroken = false;
  await world.call({ name: 'crm.order.query' });
  t.equal(world.recorder.counts.recorded, 1);
});

t.test('a disk that failed before the first call ended, and is well again, gets a whole new file', async (t) => {
  const folder = mkdtempSync(join(tmpdir(), 'reach-full-'));
  t.teardown(() => rmSync(folder, { recursive: true, force: true }));
  const place = join(folder, 'recordings');
  writeFileSync(place, 'in the way');
  const world = new RecordedWorld(TABLE, {}, { headers: [], query: [], json: [] }, place);
  const { recorder } = world;
  const running = world.call({ name: 'crm.order.query' });
  await recorder.flushed();
  t.equal(recorder.status().isFailing, true, 'the head of the file found no place');
  await running;
  t.equal(recorder.counts.recorded, 0);
  t.equal(recorder.counts.disk + recorder.counts.rotated, 1, 'what began in it is not in it');
  rmSync(place);
  await world.world.clock.advance(5_000);
  for (let n = 0; n < 5; n++) await world.call({ name: 'crm.order.query' });
  t.match(recorder.counts, { recorded: 5 });
  const files = read(await world.written()).files;
  t.strictSame(
    files.map(({ calls }) => calls.length),
    [5],
    'what is counted as recorded can be read',
  );
});

t.test('files go when they are too old, also when nothing is recorded', async (t) => {
  const world = new RecordedWorld(TABLE, { maxAgeMs: 80_000 });
  t.teardown(() => world.remove());
  const { recorder, folder } = world;
  const { clock } = world.world;
  const old = join(folder, '20200101T000000000-0000-abcdef.reachrec');
  writeFileSync(old, 'x');
  const at = new Date(clock.wallMs() - 81_000);
  utimesSync(old, at, at);
  const waited = async (ms: number): Promise<void> => {
    for (let passed = 0; passed < ms; passed += 1_250) {
      await clock.advance(1_250);
      await recorder.flushed();
    }
  };
  await waited(2_500);
  t.notOk(existsSync(old), 'one of an earlier process');
  await world.call({ name: 'crm.order.query' });
  await clock.advance(9_000);
  await world.call({ name: 'crm.order.query' });
  await clock.advance(2_000);
  await world.call({ name: 'crm.order.query' });
  await recorder.flushed();
  const there = (): string[] => readdirSync(folder).sort();
  t.equal(there().length, 2, 'one is filled for an eighth of the age');
  void recorder.stop();
  for (const file of there()) {
    const begun = new Date(clock.wallMs() - 100_000);
    utimesSync(join(folder, file), begun, begun);
    t.ok(statSync(join(folder, file)).size > 0);
  }
  await waited(2_500);
  t.strictSame(there(), [], 'while it is off, and the one under way too');
  recorder.start();
  await world.call({ name: 'crm.order.query' });
  await recorder.flushed();
  t.strictSame(
    read(folder).files.map(({ calls }) => calls.length),
    [1],
    'then a new one is begun',
  );
  t.strictSame(world.warnings, []);
});

t.test('what the filter does not want leaves next to nothing behind, and is not counted', async (t) => {
  for (const [filter, wanted] of [
    [{ failedOnly: true }, { name: 'crm.order.query', headers: { 'reach-pin': 'crm.order.2' } }],
    [{ capability: 'crm.text.*' }, { name: 'crm.text.write' }],
    [{ caller: 'crm.*.2' }, { name: 'crm.order.query', caller: 'crm.web.2' }],
  ] as const) {
    const world = new RecordedWorld(TABLE, { filter: { share: 1, capability: '*', caller: '', codes: [], failedOnly: false, ...filter } });
    t.teardown(() => world.remove());
    const { recorder } = world;
    const unwanted = { name: 'crm.order.query', caller: 'crm.web.1', headers: { 'reach-pin': 'crm.order.1' } };
    for (let n = 0; n < 300; n++) await world.call(unwanted);
    await recorder.flushed();
    t.ok(recorder.status().bytes < 2_048, `${recorder.status().bytes} bytes of 300 calls`);
    for (let n = 0; n < 30; n++) {
      await world.calls([unwanted, unwanted]);
      await world.call(wanted);
    }
    t.match(recorder.counts, { recorded: 30, disk: 0, cpu: 0, rotated: 0, fault: 0 });
    const report = await replay(read(await world.written()), { changes: NO_CHANGES, limit: 100 });
    t.match(report.sums, { calls: 30, identical: 30 });
  }
});

t.test('calls that may not be watched count only when they would have been wanted', async (t) => {
  const world = new RecordedWorld(TABLE, { cpu: 0.01 });
  t.teardown(() => world.remove());
  const { recorder } = world;
  recorder.start({ failedOnly: true });
  recorder.timed(() => world.world.clock.halt(150));
  await world.call({ name: 'crm.order.query', headers: { 'reach-pin': 'crm.order.1' } });
  t.match(recorder.counts, { recorded: 0, cpu: 0 });
  await world.call({ name: 'crm.order.query', headers: { 'reach-pin': 'crm.order.2' } });
  t.match(recorder.counts, { recorded: 0, cpu: 1 });
});

t.test('another filter begins another file, whose head says what stands in it', async (t) => {
  const world = new RecordedWorld(TABLE);
  t.teardown(() => world.remove());
  await world.call({ name: 'crm.order.query' });
  world.recorder.start({});
  await world.call({ name: 'crm.order.query' });
  world.recorder.start({ share: 0.999_999 });
  await world.call({ name: 'crm.order.query' });
  t.strictSame(
    read(await world.written()).files.map(({ head, calls }) => [head.share, calls.length]),
    [
      [1, 2],
      [0.999_999, 1],
    ],
  );
});

t.test('wherever a recording is damaged, its calls are decided as they were, or said not to be decidable', async (t) => {
  const world = new RecordedWorld(TABLE);
  t.teardown(() => world.remove());
  for (let n = 0; n < 12; n++) await world.call({ name: 'crm.order.query', body: { n } });
  const folder = await world.written();
  const bytes = readFileSync(join(folder, readdirSync(folder)[0] as string));
  const whole = readFrames(bytes)?.bodies ?? [];
  let unfit = 0;
  for (const [i, body] of whole.entries()) {
    if (i === 0) continue;
    const damaged = Buffer.from(bytes);
    const at = body.byteOffset - bytes.byteOffset + 5;
    damaged[at] = (damaged[at] as number) ^ 0xff;
    const remarks: string[] = [];
    const file = recordedIn(damaged, 'x', remarks);
    if (file === null || typeof file === 'string') throw new Error(String(file));
    const report = await replay({ files: [file], remarks, problems: [] }, { changes: NO_CHANGES, limit: 100 });
    t.equal(report.sums.broken, 0, `record ${i} of ${whole.length}`);
    t.equal(report.sums.identical + report.sums.unfit, report.sums.calls);
    if (i < whole.length - 1) t.equal(remarks.length, 1);
    for (const why of report.unfit.keys()) t.match(why, /damaged place/);
    unfit += report.sums.unfit;
  }
  t.ok(unfit > 12, `${unfit} in all cannot be told`);
});

t.test('without a file nothing counts as written, and that a file is lost is told though no call waited for it', async (t) => {
  const folder = mkdtempSync(join(tmpdir(), 'reach-full-'));
  t.teardown(() => rmSync(folder, { recursive: true, force: true }));
  const place = join(folder, 'recordings');
  writeFileSync(place, 'in the way');
  const clock = new VirtualClock();
  const lost: number[] = [];
  const files = new RecordingFiles(place, { maxBytes: 1 << 20, fileBytes: 1 << 16, maxAgeMs: 3_600_000 }, clock, () => undefined);
  files.onLost = (calls) => lost.push(calls);
  t.ok(files.begin());
  t.ok(files.put('{"k":"file"}'));
  await files.flushed();
  t.strictSame(lost, [0]);
  rmSync(place);
  await clock.advance(5_000);
  t.ok(files.put('{"k":"call"}', true));
  await files.flushed();
  t.strictSame(lost, [0, 1]);
  t.equal(files.bytes, 0);
  await files.close();
});

/** Of every file that is written: fails while it is true. */
async function fullDisk(t: Test, folder: string): Promise<{ isFull: boolean; tries: number }> {
  const probe = await open(join(folder, 'probe'), 'w');
  const file = Object.getPrototypeOf(probe) as { writeFile: (data: Buffer) => Promise<void> };
  await probe.close();
  rmSync(join(folder, 'probe'));
  const disk = { isFull: true, tries: 0 };
  const { writeFile } = file;
  file.writeFile = function (this: typeof file, data: Buffer): Promise<void> {
    disk.tries++;
    return disk.isFull ? Promise.reject(Object.assign(new Error(), { code: 'ENOSPC' })) : writeFile.call(this, data);
  };
  t.teardown(() => {
    file.writeFile = writeFile;
  });
  return disk;
}

t.test('a disk that is full is tried less and less often, is said once, and nothing is left lying about', async (t) => {
  const folder = mkdtempSync(join(tmpdir(), 'reach-full-'));
  t.teardown(() => rmSync(folder, { recursive: true, force: true }));
  const disk = await fullDisk(t, folder);
  const clock = new VirtualClock();
  const warned: string[] = [];
  const limits = { maxBytes: 1 << 20, fileBytes: 1 << 16, maxAgeMs: 3_600_000 };
  const files = new RecordingFiles(folder, limits, clock, (words) => warned.push(words));
  for (let i = 0; i < 360; i++) {
    if (files.begin()) files.put('{"k":"file"}');
    await files.flushed();
    await clock.advance(5_000);
  }
  t.strictSame(readdirSync(folder), []);
  t.ok(disk.tries >= 8 && disk.tries <= 14, `${disk.tries} tries in half an hour`);
  t.match(warned, [/the disk does not take it \(ENOSPC\)/]);
  t.equal(warned.length, 1);
  disk.isFull = false;
  await clock.advance(300_000);
  t.ok(files.begin());
  t.ok(files.put('{"k":"file"}'));
  await files.flushed();
  t.equal(readdirSync(folder).length, 1);
  t.match(warned[1], /the disk takes it again/);
  disk.isFull = true;
  t.ok(files.put('{"k":"call"}', true));
  await files.flushed();
  t.equal(readdirSync(folder).length, 1, 'what stands on the disk whole stays');
  await files.close();
});

t.test('files of a time when the clock was ahead make room as the others do, and grow old', async (t) => {
  const folder = mkdtempSync(join(tmpdir(), 'reach-ahead-'));
  t.teardown(() => rmSync(folder, { recursive: true, force: true }));
  const clock = new VirtualClock(Date.now() - 1_000);
  const ahead = join(folder, '20990101T000000000-0000-aaaaaa.reachrec');
  writeFileSync(ahead, Buffer.alloc(500_000));
  const later = new Date('2099-01-01');
  utimesSync(ahead, later, later);
  const files = new RecordingFiles(folder, { maxBytes: 1_048_576, fileBytes: 524_288, maxAgeMs: 80_000 }, clock, (words) => t.fail(words));
  const fill = async (): Promise<string[]> => {
    files.begin();
    for (let k = 0; k < 6; k++) files.put(JSON.stringify({ pad: 'x'.repeat(80_000) }), true);
    await files.flushed();
    return readdirSync(folder).sort();
  };
  const [first] = await fill();
  await clock.advance(1_000);
  const there = await fill();
  t.equal(there.length, 2);
  t.notOk(there.includes('20990101T000000000-0000-aaaaaa.reachrec'));
  t.ok(there.includes(first as string), 'not the one that was just finished');
  await files.close();

  writeFileSync(ahead, '');
  utimesSync(ahead, later, later);
  const idle = new RecordingFiles(folder, { maxBytes: 1 << 22, fileBytes: 1 << 16, maxAgeMs: 80_000 }, clock, (words) => t.fail(words));
  idle.watchAge();
  await clock.advance(1_250);
  await idle.flushed();
  t.ok(existsSync(ahead));
  // Each look is waited for: while one is at the (real) disk, the others are passed over, and this clock does not wait.
  for (let i = 0; i < 70; i++) {
    await clock.advance(1_250);
    await idle.flushed();
  }
  t.notOk(existsSync(ahead), 'it is as old as it has been seen');
  await idle.close();
});

t.test('where the folder of a recording is removed, what comes then stands in a new one, and what is lost is counted', async (t) => {
  const world = new RecordedWorld(TABLE);
  t.teardown(() => world.remove());
  const { recorder, folder } = world;
  await world.call({ name: 'crm.order.query' });
  await recorder.flushed();
  rmSync(folder, { recursive: true });
  await world.call({ name: 'crm.order.query' });
  await recorder.flushed();
  t.match(recorder.counts, { recorded: 1, disk: 1 });
  t.match(recorder.status(), { isFailing: false });
  t.match(world.warnings, [/the file under way was removed/]);
  for (let n = 0; n < 3; n++) await world.call({ name: 'crm.order.query' });
  t.strictSame(
    read(await world.written()).files.map(({ calls }) => calls.length),
    [3],
  );
});

t.test('a file of a folder that cannot be read is left out and said; a file or a folder of which nothing can is a problem', async (t) => {
  const world = new RecordedWorld(TABLE);
  t.teardown(() => world.remove());
  await world.call({ name: 'crm.order.query' });
  const folder = await world.written();
  const salt = Buffer.from('saltsalt');
  const odd = (name: string): string => join(folder, `2019010${name}.reachrec`);
  writeFileSync(odd('1-empty'), '');
  writeFileSync(odd('2-torn'), fileHead(salt).subarray(0, 10));
  writeFileSync(odd('3-other'), 'something else, longer than a head');
  writeFileSync(odd('4-next'), Buffer.concat([fileHead(salt), frame(salt, JSON.stringify({ k: 'file', format: 9, program: '4.2.0' }))]));
  symlinkSync(join(folder, 'gone'), odd('5-gone'));
  const { files, remarks } = read(folder);
  t.strictSame(
    files.map(({ calls }) => calls.length),
    [1],
  );
  t.match(remarks, [
    /1-empty.*nothing was written to it but 0 bytes of its beginning; it is left out$/,
    /2-torn.*but 10 bytes/,
    /3-other.*this is no recording of Agent-Reach; it is left out$/,
    /4-next.*format 9/,
    /5-gone.*cannot be read \(ENOENT\)/,
  ]);
  t.match(readRecording(odd('1-empty')), /nothing was written to it but 0 bytes/);
  t.match(readRecording(odd('3-other')), /this is no recording/);
  for (const file of readdirSync(folder)) if (!file.startsWith('2019')) rmSync(join(folder, file));
  t.match(readRecording(folder), /1-empty.*nothing was written/);
});
