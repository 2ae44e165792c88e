/** Waiting for the server's word: each who waits is told once, in time, and one timer is enough for all. */
import t from 'tap';
import { Confirms } from '../../../base/confirms.ts';
import { VirtualClock } from '../../../base/virtual-clock.ts';

function world(): {
  clock: VirtualClock;
  confirms: Confirms;
  told: string[];
  timers: () => number;
  add(token: string, ms: number, subject?: string): void;
} {
  const clock = new VirtualClock();
  let made = 0;
  const confirms = new Confirms({
    now: () => clock.now(),
    wallMs: () => clock.wallMs(),
    after: (ms, fire) => {
      made++;
      return clock.after(ms, fire);
    },
  });
  const told: string[] = [];
  const add = (token: string, ms: number, subject = 's'): void =>
    confirms.add(token, subject, ms, (isConfirmed) => told.push(`${token} ${isConfirmed ? 'yes' : 'no'} at ${clock.now()}`));
  return { clock, confirms, told, timers: () => made, add };
}

t.test('whoever is answered is told so, once; a late answer is nobody’s', async (t) => {
  const { clock, confirms, told, add } = world();
  const start = clock.now();
  add('a', 100);
  add('b', 100);
  t.equal(confirms.answered('a', true), true);
  t.equal(confirms.answered('a', true), false);
  t.equal(confirms.answered('b', false), true, 'nobody is there who could confirm it');
  await clock.advance(1_000);
  t.same(told, [`a yes at ${start}`, `b no at ${start}`]);
  t.equal(confirms.answered('b', true), false);
});

t.test('each waits for its own time, whatever the order, and a shorter one is not held up', async (t) => {
  const { clock, told, add } = world();
  const start = clock.now();
  add('long', 400);
  add('short', 100);
  await clock.advance(50);
  add('later', 100);
  await clock.advance(1_000);
  t.same(told, [`short no at ${start + 100}`, `later no at ${start + 150}`, `long no at ${start + 400}`]);
});

t.test('a thousand that are answered in time share a timer', async (t) => {
  const { clock, confirms, told, timers, add } = world();
  for (let i = 0; i < 1_000; i++) {
    add(`t${i}`, 4_000);
    await clock.advance(1);
    confirms.answered(`t${i}`, true);
  }
  t.equal(told.length, 1_000);
  t.equal(timers(), 1);
});

t.test('a subject that is denied, and the end of the connection, end those whom they concern', async (t) => {
  const { clock, confirms, told, add } = world();
  const start = clock.now();
  add('a', 100, 'x');
  add('b', 100, 'y');
  confirms.denied('x');
  t.same(told, [`a no at ${start}`]);
  confirms.endAll();
  t.same(told, [`a no at ${start}`, `b no at ${start}`]);
  add('c', 100);
  await clock.advance(100);
  t.equal(told.at(-1), `c no at ${start + 100}`, 'and the next connection begins anew');
});

t.test('one who asks again when told is not forgotten', async (t) => {
  const { clock, confirms, told, add } = world();
  const start = clock.now();
  confirms.add('a', 's', 100, () => add('again', 100));
  await clock.advance(300);
  t.same(told, [`again no at ${start + 200}`]);
  confirms.add('b', 's', 100, () => add('more', 100));
  confirms.endAll();
  await clock.advance(300);
  t.equal(told.length, 2);
});
