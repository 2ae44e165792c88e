import t from 'tap';
import { SeededRandom } from '../../../base/random.ts';
import { REL_ERROR, Sketch, SKETCH_BUCKETS, sketchBucket, sketchEndMs } from '../../../base/sketch.ts';

/** The same definition as the sketch's: the value of which this share lies at or below. */
function exact(sorted: Float64Array, share: number): number {
  return sorted[Math.max(1, Math.ceil(share * sorted.length)) - 1] as number;
}

t.test('a quantile of thousands is within the stated error, from 0.05 ms to an hour', async (t) => {
  t.ok(REL_ERROR > 0.02 && REL_ERROR < 0.04);
  const random = new SeededRandom(7);
  const shapes: Readonly<Record<string, () => number>> = {
    'evenly over all octaves': () => 0.05 * 2 ** (random.next() * 26.1),
    'two heaps far apart': () => (random.next() < 0.94 ? 2 + random.next() : 9_000 + random.next() * 500),
    'a long tail': () => 5 / (random.next() + 1e-5),
  };
  for (const [shape, draw] of Object.entries(shapes)) {
    const sketch = new Sketch();
    const values = Float64Array.from({ length: 20_000 }, () => Math.min(3_600_000, draw()));
    for (const value of values) sketch.add(value);
    values.sort();
    for (const share of [0, 0.01, 0.5, 0.9, 0.95, 0.99, 0.999, 1]) {
      const wanted = exact(values, share);
      const got = sketch.quantile(share) as number;
      t.ok(Math.abs(got - wanted) <= wanted * REL_ERROR * 1.000_001, `${shape}, ${share}: ${got} for ${wanted}`);
    }
  }
});

t.test('what many measured adds up to what one would have measured', async (t) => {
  const random = new SeededRandom(3);
  const whole = new Sketch();
  const parts = Array.from({ length: 12 }, () => new Sketch());
  for (let i = 0; i < 5_000; i++) {
    const ms = random.next() ** 4 * 20_000;
    whole.add(ms);
    (parts[i % parts.length] as Sketch).add(ms);
  }
  const sum = new Sketch();
  for (const [i, part] of parts.entries()) {
    if (i % 2 === 0) sum.merge(part);
    // Over the wire.
    else t.ok(sum.addPairs(JSON.parse(JSON.stringify(part.pairs())) as unknown[]));
  }
  t.equal(sum.count, 5_000);
  t.same(sum.pairs(), whole.pairs());
  t.equal(sum.quantile(0.95), whole.quantile(0.95));
});

t.test('the ends of the range, and what is no duration', async (t) => {
  const sketch = new Sketch();
  t.equal(sketch.quantile(0.5), null, 'nothing is not 0');
  for (const ms of [0, -5, Number.NaN, 0.000_1]) t.equal(sketchBucket(ms), 0, String(ms));
  for (const ms of [1e9, Number.POSITIVE_INFINITY]) t.equal(sketchBucket(ms), SKETCH_BUCKETS - 1, String(ms));
  t.ok(sketchEndMs(SKETCH_BUCKETS - 1) >= 3_600_000);
  sketch.add(Number.POSITIVE_INFINITY);
  sketch.add(0);
  t.same(sketch.pairs(), [0, 1, SKETCH_BUCKETS - 1, 1]);
  t.ok((sketch.quantile(0.5) as number) < 0.05);
  t.ok((sketch.quantile(1) as number) > 3_300_000);
  sketch.clear();
  t.same([sketch.count, sketch.pairs(), sketch.quantile(0.5)], [0, [], null]);
  sketch.add(12);
  t.equal(sketch.count, 1);
});

t.test('pairs that nobody can have made are refused, and add nothing', async (t) => {
  const sketch = new Sketch();
  for (const bad of [
    [1],
    [-1, 1],
    [1.5, 1],
    [SKETCH_BUCKETS, 1],
    [5, 1, 5, 1],
    [5, 1, 4, 1],
    [5, 0],
    [5, -1],
    [5, 1.5],
    ['5', 1],
    [5, 2 ** 33],
  ])
    t.notOk(sketch.addPairs(bad), JSON.stringify(bad));
  t.notOk(sketch.addPairs(Array.from({ length: 2 * SKETCH_BUCKETS + 2 }, (_, i) => i)));
  t.same([sketch.count, sketch.pairs()], [0, []]);
  t.ok(sketch.addPairs([3, 4_000_000_000, 5, 1]));
  t.ok(sketch.addPairs([3, 4_000_000_000]), 'a count that is full stays full and does not begin anew');
  t.same(sketch.pairs(), [3, 2 ** 32 - 1, 5, 1]);
});
