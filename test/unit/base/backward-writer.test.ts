import { BinaryReader, WireType } from '@bufbuild/protobuf/wire';
import t from 'tap';
import { BackwardWriter } from '../../../base/backward-writer.ts';

t.test('what is written backwards is read forwards by another reader', async (t) => {
  const to = new BackwardWriter(16);
  const numbers = [0, 1, 127, 128, 300, 16_383, 16_384, 2 ** 31, 2 ** 32 + 5, 2 ** 50 + 1];
  const texts = ['', 'a', 'é€😀', 'x'.repeat(127), 'y'.repeat(128), 'z'.repeat(40_000)];
  for (const text of [...texts].reverse()) to.text(2, text);
  for (const number of [...numbers].reverse()) to.uint(1, number);
  const reader = new BinaryReader(to.bytes());
  for (const number of numbers) {
    t.strictSame(reader.tag(), [1, WireType.Varint]);
    t.equal(String(reader.uint64()), String(number));
  }
  for (const text of texts) {
    t.strictSame(reader.tag(), [2, WireType.LengthDelimited]);
    t.equal(reader.string(), text);
  }
  t.equal(reader.pos, reader.len);
});

t.test('numbers in a text read as toFixed(2) shows them, and a time can be set in what was written before', async (t) => {
  const to = new BackwardWriter(8);
  for (const value of [
    0,
    0.004,
    0.01,
    0.1,
    1,
    9.99,
    12.338406999999961,
    99.5,
    1_234.56,
    21_474_836.47,
    21_474_836.48,
    1e12 + 0.25,
    -1.5,
    Number.NaN,
  ]) {
    to.clear();
    to.hundredths(value);
    t.equal(to.bytes().toString(), value.toFixed(2));
  }
  to.clear();
  to.text(2, 'after');
  to.nanos(1, 5);
  const event = to.since(0);
  to.clear();
  to.rawAt(event, 1, 1_796_052_864_459.018);
  const reader = new BinaryReader(to.bytes());
  t.strictSame(reader.tag(), [1, WireType.Bit64]);
  t.equal(String(reader.fixed64()), '1796052864459018000');
  t.strictSame(reader.tag(), [2, WireType.LengthDelimited]);
  t.equal(reader.string(), 'after');
});

t.test('nested messages, times, words and raw bytes', async (t) => {
  const to = new BackwardWriter(8);
  const wallMs = 1_796_052_864_459.018;
  to.nanos(9, wallMs);
  to.fixed32(8, 0xfffffffe);
  const began = to.length;
  to.words(3, new Uint32Array([0, 0x4bf92f35, 0x77b34da6]), 1, 2);
  const inner = to.since(began);
  to.bool(2, true);
  to.close(70_000, began);
  const reader = new BinaryReader(to.bytes());
  t.strictSame(reader.tag(), [70_000, WireType.LengthDelimited]);
  const nested = new BinaryReader(reader.bytes());
  t.strictSame(nested.tag(), [2, WireType.Varint]);
  t.equal(nested.bool(), true);
  t.strictSame(nested.tag(), [3, WireType.LengthDelimited]);
  t.equal(Buffer.from(nested.bytes()).toString('hex'), '4bf92f3577b34da6');
  t.strictSame(reader.tag(), [8, WireType.Bit32]);
  t.equal(reader.fixed32(), 0xfffffffe);
  t.strictSame(reader.tag(), [9, WireType.Bit64]);
  t.equal(String(reader.fixed64()), '1796052864459018000');
  to.clear();
  t.equal(to.length, 0);
  to.raw(inner);
  to.raw(Buffer.alloc(100, 7));
  t.same(to.bytes(), Buffer.concat([Buffer.alloc(100, 7), inner]));
});
