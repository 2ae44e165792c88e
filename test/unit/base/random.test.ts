import t from 'tap';
import { SeededRandom, systemRandom } from '../../../base/random.ts';

function draw(seed: number, count: number): number[] {
  const random = new SeededRandom(seed);
  return Array.from({ length: count }, () => random.next());
}

t.test('one seed gives one sequence, and another seed another', async (t) => {
  t.strictSame(draw(7, 100), draw(7, 100));
  t.notSame(draw(7, 100), draw(8, 100));
  t.strictSame(draw(-1, 10), draw(2 ** 32 - 1, 10), 'a seed is read as 32 bits');
});

t.test('the sequence of a seed never changes: recorded decisions are replayed with it', async (t) => {
  // mulberry32 of seed 1 as its author's reference code gives it, in units of 2^-32
  t.strictSame(
    draw(1, 3).map((value) => value * 2 ** 32),
    [2_693_262_067, 11_749_833, 2_265_367_787],
  );
});

t.test('draws lie in [0, 1) and spread evenly', async (t) => {
  const buckets = new Array<number>(10).fill(0);
  for (const value of draw(42, 100_000)) {
    if (value < 0 || value >= 1) t.fail(`${value} is outside`);
    const bucket = Math.floor(value * 10);
    buckets[bucket] = (buckets[bucket] ?? 0) + 1;
  }
  // 10,000 each; the standard deviation is 95
  for (const count of buckets) t.ok(Math.abs(count - 10_000) < 500, `${count} of 100,000 in a tenth`);
});

t.test('seeds that follow one another start far apart', async (t) => {
  const firsts = Array.from({ length: 100 }, (_, seed) => draw(seed, 1)[0] ?? 0);
  const mean = firsts.reduce((sum, value) => sum + value, 0) / firsts.length;
  t.ok(Math.abs(mean - 0.5) < 0.1, `mean ${mean}`);
  t.equal(new Set(firsts).size, 100);
});

t.test('the system source draws in [0, 1)', async (t) => {
  for (let i = 0; i < 1_000; i++) {
    const value = systemRandom.next();
    if (value < 0 || value >= 1) t.fail(`${value} is outside`);
  }
  t.pass('1,000 draws');
});
