import t from 'tap';
import { hash32, Owners, unit } from '../../../base/rendezvous.ts';

const KEYS = Array.from({ length: 20_000 }, (_, i) => hash32(`session-${i}`, 7));

function countsOf(owners: Owners, count: number): number[] {
  const counts = new Array<number>(count).fill(0);
  for (const key of KEYS) counts[owners.ownerOf(key)] = (counts[owners.ownerOf(key)] as number) + 1;
  return counts;
}

t.test('keys are shared out by weight', (t) => {
  const weights = [1, 2, 3, 4, 0.5];
  const total = 10.5;
  const counts = countsOf(new Owners(['a.b.1', 'a.b.2', 'a.b.3', 'a.b.4', 'a.b.5'], weights), 5);
  counts.forEach((count, i) => {
    const wanted = (KEYS.length * (weights[i] as number)) / total;
    t.ok(Math.abs(count - wanted) < 5 * Math.sqrt(wanted), `owner ${i}: ${count}, wanted about ${Math.round(wanted)}`);
  });
  t.end();
});

t.test('equal weights give equal shares, whatever the weight is, and ids that differ little are no worse', (t) => {
  const ids = Array.from({ length: 10 }, (_, i) => `crm.order.${i}`);
  for (const weight of [1, 0.01, 50]) {
    for (const count of countsOf(
      new Owners(
        ids,
        ids.map(() => weight),
      ),
      10,
    ))
      t.ok(Math.abs(count - 2_000) < 5 * Math.sqrt(2_000), `${count} of 2000`);
  }
  t.end();
});

t.test('a very small weight is honoured, not rounded to nothing', (t) => {
  const [, few] = countsOf(new Owners(['big', 'small'], [0.996, 0.004]), 2) as [number, number];
  t.ok(few > 40 && few < 130, `${few} of about 80`);
  t.end();
});

t.test('an owner who leaves moves only its own keys, and exactly those come back with it', (t) => {
  const ids = ['p1', 'p2', 'p3', 'p4', 'p5'];
  const weights = [1, 3, 2, 5, 1];
  const all = new Owners(ids, weights);
  const rest = [0, 1, 3, 4];
  const without = new Owners(
    rest.map((i) => ids[i] as string),
    rest.map((i) => weights[i] as number),
  );
  let moved = 0;
  let wrong = 0;
  const owners = new Set<number>();
  for (const key of KEYS) {
    const before = all.ownerOf(key);
    const after = rest[without.ownerOf(key)] as number;
    if (before === 2) {
      moved++;
      owners.add(after);
    } else if (before !== after) wrong++;
    if (all.ownerOf(key, Uint8Array.from([1, 1, 0, 1, 1])) !== after) wrong++;
  }
  t.equal(wrong, 0, "nobody else's key moves, and masking an owner is the same as its absence");
  t.ok(moved > 3_000, 'the case is not empty');
  t.equal(owners.size, 4, 'its keys are shared among all who are left');
  t.end();
});

t.test('a weight that grows only draws keys to its owner', (t) => {
  const ids = ['p1', 'p2', 'p3'];
  const before = new Owners(ids, [1, 1, 1]);
  const after = new Owners(ids, [1, 2, 1]);
  let drawn = 0;
  let wrong = 0;
  for (const key of KEYS) {
    const from = before.ownerOf(key);
    const to = after.ownerOf(key);
    if (from === to) continue;
    drawn++;
    if (to !== 1) wrong++;
  }
  t.equal(wrong, 0);
  t.ok(drawn > 2_500 && drawn < 4_200, `${drawn} of about a sixth`);
  t.end();
});

t.test('the owner is the one with the least cost', (t) => {
  const owners = new Owners(['a', 'b', 'c', 'd'], [1, 2, 2, 7]);
  const wrong = KEYS.slice(0, 2_000).filter((key) => {
    const costs = [0, 1, 2, 3].map((i) => owners.costOf(key, i));
    return costs.indexOf(Math.min(...costs)) !== owners.ownerOf(key);
  });
  t.strictSame(wrong, []);
  t.end();
});

t.test('nobody owns a key where there is nobody', (t) => {
  t.equal(new Owners([], []).ownerOf(1), -1);
  t.equal(new Owners(['a'], [1]).ownerOf(1, Uint8Array.from([0])), -1);
  t.end();
});

t.test('the hash spreads evenly, differs by seed, and sees every character', (t) => {
  const buckets = new Array<number>(16).fill(0);
  for (let i = 0; i < 16_000; i++) {
    const at = Math.floor(unit(hash32(i.toString(16).padStart(32, '0'))) * 16);
    buckets[at] = (buckets[at] as number) + 1;
  }
  for (const count of buckets) t.ok(Math.abs(count - 1_000) < 160, `${count} of 1000`);
  t.not(hash32('a', 1), hash32('a', 2));
  t.not(hash32('a'), hash32('a\0'));
  t.not(hash32(`${'x'.repeat(1_000)}1`), hash32(`${'x'.repeat(1_000)}2`));
  t.end();
});
