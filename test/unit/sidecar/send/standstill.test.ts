/** A sender whose NATS stands still (SIGSTOP): connections stay open, nothing is answered. A real nats-server, a real disk. */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import t from 'tap';
import { realClock } from '../../../../base/clock.ts';
import { SeededRandom } from '../../../../base/random.ts';
import { StreamPublisher } from '../../../../base/stream-publisher.ts';
import { Subjects, TASK_STREAM } from '../../../../proto/wire/subjects.ts';
import { DiskOutbox } from '../../../../sidecar/send/outbox.ts';
import { Post, type Posted } from '../../../../sidecar/send/post.ts';
import { NatsServer } from '../../../support/nats.ts';
import { waitUntil } from '../../../support/settle.ts';

t.setTimeout(60_000);

const subjects = new Subjects('test');

t.test('the first message waits for one try, the next ones for nothing; each is in the stream once, in order', async (t) => {
  const server = await NatsServer.start(t);
  const bus = await server.connect();
  const made = await bus.ensureStream({
    name: TASK_STREAM,
    subjects: [subjects.tasks],
    storage: 'file',
    retention: 'workqueue',
    discard: 'new',
    duplicateWindowMs: 120_000,
  });
  t.notOk('failed' in made);
  const folder = mkdtempSync(join(tmpdir(), 'reach-standstill-'));
  t.teardown(() => rmSync(folder, { recursive: true, force: true }));
  const own = { clock: realClock, random: new SeededRandom(1), warn: () => undefined, never: () => undefined };
  const stream = new StreamPublisher(bus, realClock, { timeoutMs: 5_000, maxPending: 256 });
  const outbox = await DiskOutbox.open({ folder, maxBytes: 10_000_000, bus, stream, ...own });
  if (typeof outbox === 'string') throw new Error(outbox);
  const direct = new StreamPublisher(bus, realClock, { timeoutMs: 2_000, maxPending: 1_000 });
  const post = new Post({ bus, stream: direct, outbox: () => outbox, clock: realClock, waitMs: 10_000, maxOpen: 1_000 });
  t.teardown(async () => {
    post.close();
    await outbox.close();
    direct.close();
  });
  const subject = subjects.task(`p${'a'.repeat(20)}`, 'normal', 0, 'one');
  let sent = 0;
  const put = async (): Promise<{ readonly posted: Posted; readonly ms: number }> => {
    const begun = performance.now();
    const id = `task${sent++}`;
    const posted = await post.put(subject, Buffer.from(`{"task_id":"${id}"}\n`), id);
    return { posted, ms: performance.now() - begun };
  };
  t.match((await put()).posted, { kind: 'stream' });
  server.pause();
  await new Promise((done) => setTimeout(done, 200)); // a signal takes its time
  const first = await put();
  t.match(first.posted, { kind: 'local-disk' });
  t.ok(first.ms > 1_500 && first.ms < 3_000, `the first: ${Math.round(first.ms)} ms`);
  for (let i = 0; i < 20; i++) {
    const { posted, ms } = await put();
    t.match(posted, { kind: 'local-disk' });
    t.ok(ms < 1_000, `${Math.round(ms)} ms`);
  }
  server.resume();
  await waitUntil('the disk is empty', () => outbox.pending === 0, 20_000);
  t.match((await put()).posted, { kind: 'stream' });
  const stored = await bus.history(TASK_STREAM, subjects.tasks);
  t.same(
    'failed' in stored ? stored : stored.map(({ data }) => JSON.parse(data.toString('utf8')).task_id),
    Array.from({ length: sent }, (_, i) => `task${i}`),
  );
});
