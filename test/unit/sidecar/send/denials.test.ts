import t from 'tap';
import { Denials } from '../../../../sidecar/send/denials.ts';

const NORMAL = 'ar.t.task.p.normal.0.me';
const HIGH = 'ar.t.task.p.high.0.me';
const review = (n: number): string => `ar.t.kept.review.task${n}`;

/** Refused at 0, 5 and 10 s. */
function denied(subject: string): Denials {
  const denials = new Denials();
  for (const now of [0, 5_000, 10_000]) denials.refused(subject, now);
  return denials;
}

t.test('a refusal lasts after three tries over ten seconds, and not before', (t) => {
  const denials = new Denials();
  t.strictSame(
    [0, 100, 200, 9_999, 10_000].map((now) => denials.refused(NORMAL, now)),
    [false, false, false, false, true],
  );
  const seldom = new Denials();
  t.strictSame(
    [0, 60_000, 60_001].map((now) => seldom.refused(NORMAL, now)),
    [false, false, true],
  );
  denials.clear();
  t.notOk(denials.refused(NORMAL, 10_100), 'another connection: from the beginning');
  t.end();
});

t.test('what waits for people has a subject for each task, and the seconds pass once for all of them', (t) => {
  const denials = denied(review(0));
  for (let n = 1; n < 3_000; n++) if (!denials.refused(review(n), 10_000 + n)) t.fail(`review ${n} waits again`);
  t.notOk(denials.refused('ar.t.kept.dead.task1', 20_000), 'what is kept as dead has a permission of its own');
  t.notOk(denials.refused(NORMAL, 20_000), 'and so have tasks');
  t.end();
});

t.test('tasks go by who sends them, whatever their pool, lane and partition', (t) => {
  const denials = denied(NORMAL);
  t.ok(denials.refused(HIGH, 10_000));
  t.ok(denials.refused('ar.t.task.other.low.31.me', 10_000));
  t.notOk(denials.refused('ar.t.task.p.normal.0.another', 10_000));
  t.notOk(denials.refused('ar.t.task.p.normal.0', 10_000), 'the form without a sender, of a release before');
  t.end();
});

t.test('one that is stored shows that its kind is permitted; where permissions are narrower, a subject is known by itself', (t) => {
  const granted = denied(review(0));
  granted.stored(review(1));
  t.notOk(granted.refused(review(2), 20_000), 'permitted meanwhile, and refused again: from the beginning');

  const narrow = denied(HIGH);
  narrow.stored(NORMAL);
  for (const now of [11_000, 16_000]) t.notOk(narrow.refused('ar.t.task.p.low.0.me', now), 'others of the kind are permitted');
  narrow.stored(NORMAL);
  t.ok(narrow.refused(HIGH, 20_000), 'not ten seconds more for each of its records');
  narrow.stored(HIGH);
  t.notOk(narrow.refused(HIGH, 40_000));
  t.end();
});
