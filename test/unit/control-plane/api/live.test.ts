import t from 'tap';
import { VirtualClock } from '../../../../base/virtual-clock.ts';
import { liveRoutes } from '../../../../control-plane/api/live.ts';
import type { Plane } from '../../../../control-plane/api/plane.ts';
import type { Asked, Streaming } from '../../../../control-plane/api/route.ts';
import { SILENT_MS } from '../../../../control-plane/console/live.ts';

t.test('who listens hears a ping each 15 s, also when nothing changes: the page waits longer than two', async (t) => {
  const clock = new VirtualClock();
  const off = (): void => {};
  // As much of a replica as the stream looks at: one that leads, and at which nothing happens.
  const plane = {
    name: 'one',
    clock,
    mirror: { listen: () => off },
    traffic: { onTaken: () => off },
    watch: () => off,
    fleet: { rows: () => [] },
    leading: { messages: { figures: { waiting: 0, inHand: 0, kept: 0, parkedPools: 0 } } },
    traces: { figures: { batches: 0 } },
    audit: { counts: { done: 0, refused: 0 } },
    overrides: { count: () => ({ in_force: 0, of: 0, missing: [] }), epoch: '', seq: 0, overrides: [] },
  } as unknown as Plane;
  const [route] = liveRoutes(plane);
  const heard: [string, number][] = [];
  const stream = (await route?.handle({} as Asked)) as Streaming;
  const leave = stream.start({ event: (name) => heard.push([name, clock.now()]) > 0, end: off });
  await clock.advance(46_000);
  t.strictSame(
    heard.filter(([name]) => name !== 'changed'),
    [
      ['hello', 0],
      ['ping', 15_000],
      ['ping', 30_000],
      ['ping', 45_000],
    ],
  );
  t.ok(SILENT_MS > 2 * 15_000);
  leave();
  await clock.advance(60_000);
  t.equal(heard.filter(([name]) => name === 'ping').length, 3, 'nobody listens, nothing is said');
});
