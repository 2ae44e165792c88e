import t from 'tap';
import { MAX_DELAY_MS, realClock } from '../../../base/clock.ts';
import { VirtualClock } from '../../../base/virtual-clock.ts';

t.test('a virtual clock', async (t) => {
  t.test('stands still until it is moved, and its wall time moves along', async (t) => {
    const clock = new VirtualClock(1_000);
    let fired = 0;
    clock.after(5, () => fired++);
    t.equal(clock.now(), 0);
    t.equal(clock.wallMs(), 1_000);
    t.equal(fired, 0);
    await clock.advance(4.5);
    t.equal(fired, 0);
    await clock.advance(0.5);
    t.equal(fired, 1);
    t.equal(clock.now(), 5);
    t.equal(clock.wallMs(), 1_005);
  });

  t.test('fires in the order of time, and at one instant in the order of setting', async (t) => {
    const clock = new VirtualClock();
    const order: string[] = [];
    clock.after(20, () => order.push('late'));
    clock.after(10, () => order.push('first'));
    clock.after(10, () => order.push('second'));
    clock.after(0, () => order.push('now'));
    clock.after(-5, () => order.push('past'));
    await clock.advance(30);
    t.strictSame(order, ['now', 'past', 'first', 'second', 'late']);
  });

  t.test('shows each timer the instant at which it is due', async (t) => {
    const clock = new VirtualClock();
    const seen: number[] = [];
    for (const delayMs of [30, 10, 20]) clock.after(delayMs, () => seen.push(clock.now()));
    await clock.advance(100);
    t.strictSame(seen, [10, 20, 30]);
    t.equal(clock.now(), 100);
  });

  t.test('fires what a timer sets, in the same move when it is due by then', async (t) => {
    const clock = new VirtualClock();
    const seen: number[] = [];
    const again = (): void => {
      seen.push(clock.now());
      clock.after(10, again);
    };
    clock.after(10, again);
    await clock.advance(35);
    t.strictSame(seen, [10, 20, 30]);
    t.equal(clock.nextAt(), 40);
  });

  t.test('lets promises settle between two timers', async (t) => {
    const clock = new VirtualClock();
    const order: string[] = [];
    clock.after(1, () => {
      void Promise.resolve().then(() => order.push('promise of the first'));
    });
    clock.after(2, () => order.push('second'));
    await clock.advance(2);
    t.strictSame(order, ['promise of the first', 'second']);
  });

  t.test('forgets a cancelled timer, before and after it fired, and one cancelled by another at the same instant', async (t) => {
    const clock = new VirtualClock();
    let fired = 0;
    const timer = clock.after(1, () => fired++);
    t.equal(clock.nextAt(), 1);
    timer.cancel();
    timer.cancel();
    t.equal(clock.nextAt(), null);
    clock.after(2, () => victim.cancel());
    const victim = clock.after(2, () => fired++);
    const done = clock.after(3, () => fired++);
    await clock.advance(5);
    t.equal(fired, 1);
    done.cancel();
    t.equal(clock.nextAt(), null);
  });

  t.test('never moves back', async (t) => {
    const clock = new VirtualClock();
    await clock.advance(10);
    await clock.advanceTo(4);
    t.equal(clock.now(), 10);
  });
});

t.test('the real clock', async (t) => {
  t.test('never goes back, and tells the wall time of the machine', async (t) => {
    const first = realClock.now();
    t.ok(realClock.now() >= first);
    t.ok(Math.abs(realClock.wallMs() - Date.now()) < 1_000);
  });

  t.test('fires once, and not when cancelled', async (t) => {
    let cancelled = 0;
    realClock.after(1, () => cancelled++).cancel();
    let fired = 0;
    await new Promise<void>((done) =>
      realClock.after(1, () => {
        fired++;
        realClock.after(5, done);
      }),
    );
    t.equal(fired, 1);
    t.equal(cancelled, 0);
  });

  t.test('waits out a delay that one timer cannot hold, instead of firing at once', async (t) => {
    let fired = 0;
    const timer = realClock.after(MAX_DELAY_MS + 1, () => fired++);
    t.teardown(() => timer.cancel());
    await new Promise<void>((done) => realClock.after(10, done));
    t.equal(fired, 0);
  });

  t.test('waits the pieces of a long delay one after the other, and can be cancelled in any of them', async (t) => {
    const set: { delayMs: number; fire: () => void }[] = [];
    const cleared: unknown[] = [];
    t.intercept(globalThis, 'setTimeout', {
      value: (fire: () => void, delayMs: number) => {
        set.push({ delayMs, fire });
        return set.length;
      },
    });
    t.intercept(globalThis, 'clearTimeout', { value: (handle: unknown) => cleared.push(handle) });
    let fired = 0;
    const timer = realClock.after(2 * MAX_DELAY_MS + 7, () => fired++);
    set[0]?.fire();
    set[1]?.fire();
    t.equal(fired, 0);
    timer.cancel();
    set[2]?.fire();
    t.strictSame(
      set.map(({ delayMs }) => delayMs),
      [MAX_DELAY_MS, MAX_DELAY_MS, 7],
    );
    t.equal(fired, 1, 'the last piece fires');
    t.strictSame(cleared, [3], 'cancelling stops the piece that is running, not the first');
  });
});
