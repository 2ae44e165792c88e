/** Puts messages into an outbox as fast as they are stored and prints each id that is; made to be killed. Arguments: folder, name of the round. */
import { realClock } from '../../base/clock.ts';
import { systemRandom } from '../../base/random.ts';
import { DiskOutbox } from '../../sidecar/send/outbox.ts';

const AT_ONCE = 16;
const [folder = '', round = ''] = process.argv.slice(2);
const box = await DiskOutbox.open({
  folder,
  maxBytes: 64 * 1_048_576,
  bus: { connected: false, onState: () => ({ close: () => undefined }) },
  stream: { send: () => false, close: () => undefined },
  clock: realClock,
  random: systemRandom,
  warn: (words) => void process.stderr.write(`${words}\n`),
  never: () => undefined,
});
if (typeof box === 'string') throw new Error(box);
process.stdout.write('ready\n');
for (let n = 0; ; n += AT_ONCE)
  await Promise.all(
    Array.from({ length: AT_ONCE }, async (_, i) => {
      const id = `id-${n + i}-${round}`;
      if ((await box.put('ar.t.task.p.normal.0.s', Buffer.from(`payload of ${id} `.repeat(20)), id)) === 'stored')
        process.stdout.write(`${id}\n`);
    }),
  );
