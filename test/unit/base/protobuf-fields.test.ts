import fc from 'fast-check';
import t from 'tap';
import { Reader, Writer } from '../../../base/protobuf-fields.ts';

t.test('what is written is read again, defaults left out, with room for a head', (t) => {
  const inner = new Writer();
  inner.text(1, 'ü');
  const writer = new Writer(5, 1);
  writer.uint(1, 0);
  writer.uint(2, 4_294_967_295);
  writer.uint(536_870_911, 300);
  writer.bool(3, true);
  writer.bool(3, false);
  writer.double(4, 0);
  writer.double(5, -0.1);
  writer.text(6, '');
  writer.text(7, 'a'.repeat(1_000));
  writer.bytes(8, Buffer.alloc(0));
  writer.alwaysBytes(8, Buffer.alloc(0));
  writer.message(9, inner);
  const bytes = writer.finish();
  t.equal(bytes.length, writer.length + 5);
  const reader = new Reader(bytes.subarray(5));
  const seen: unknown[] = [];
  while (reader.next()) {
    switch (reader.field) {
      case 2:
      case 3:
      case 536_870_911:
        seen.push([reader.field, reader.uint()]);
        break;
      case 5:
        seen.push([5, reader.double()]);
        break;
      case 7:
        seen.push([7, reader.text().length]);
        break;
      case 8:
        seen.push([8, reader.bytes().length]);
        break;
      case 9: {
        const nested = new Reader(reader.bytes());
        nested.next();
        seen.push([9, nested.text()]);
        break;
      }
      default:
        seen.push(['unexpected', reader.field]);
    }
  }
  t.notOk(reader.failed);
  t.strictSame(seen, [
    [2, 4_294_967_295],
    [536_870_911, 300],
    [3, 1],
    [5, -0.1],
    [7, 1_000],
    [8, 0],
    [9, 'ü'],
  ]);
  t.end();
});

t.test('fields that nobody reads are passed over, whatever their type', (t) => {
  // varint, fixed64, bytes, fixed32, then field 1 = 7
  const bytes = Buffer.from([0x10, 0xff, 0x01, 0x19, 1, 2, 3, 4, 5, 6, 7, 8, 0x22, 2, 9, 9, 0x2d, 1, 2, 3, 4, 0x08, 7]);
  const reader = new Reader(bytes);
  let found = 0;
  while (reader.next()) if (reader.field === 1) found = reader.uint();
  t.equal(found, 7);
  t.notOk(reader.failed);
  t.end();
});

t.test('what is not well formed is marked and never thrown', (t) => {
  const bad: Readonly<Record<string, number[]>> = {
    'a tag without a value': [0x08],
    'a varint of eleven bytes': [0x08, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x01],
    'a length beyond the end': [0x12, 5, 1],
    'a huge length': [0x12, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f],
    'a double cut short': [0x19, 1, 2],
    'field 0': [0x00, 0x01],
    'a group that does not end': [0x0b],
    'wire type 7': [0x0f, 1],
  };
  for (const [what, bytes] of Object.entries(bad)) {
    const reader = new Reader(Buffer.from(bytes));
    while (reader.next());
    t.ok(reader.failed, what);
  }
  const mistyped = new Reader(Buffer.from([0x08, 1]));
  mistyped.next();
  t.equal(mistyped.text(), '');
  t.ok(mistyped.failed, 'a number read as text');
  const latin = new Reader(Buffer.from([0x0a, 1, 0xff]));
  latin.next();
  t.equal(latin.text(), '');
  t.ok(latin.failed, 'text that is not UTF-8');
  t.end();
});

t.test('any bytes are read to their end or to a mark, in bounded steps', (t) => {
  fc.assert(
    fc.property(fc.uint8Array({ maxLength: 200 }), (bytes) => {
      const reader = new Reader(Buffer.from(bytes));
      let steps = 0;
      while (reader.next()) {
        if (reader.field % 3 === 0) reader.bytes();
        else if (reader.field % 3 === 1) reader.uint();
        if (++steps > bytes.length) return false;
      }
      return true;
    }),
    { numRuns: 2_000, seed: 4 },
  );
  t.end();
});
