import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { loadSync } from '@grpc/proto-loader';
import fc from 'fast-check';
import t from 'tap';
import { decodeJson } from '../../../base/protobuf-decode.ts';
import { encodeJson } from '../../../base/protobuf-encode.ts';
import { durationText, readDuration, readTime, timeText } from '../../../base/protobuf-known.ts';
import { Schema, type MessageType } from '../../../base/protobuf-schema.ts';
import { rawFields } from '../../../base/protobuf-wire.ts';

const PROTO = `syntax = "proto3";
package shop.v1;
import "google/protobuf/timestamp.proto";
import "google/protobuf/duration.proto";
import "google/protobuf/struct.proto";
import "google/protobuf/wrappers.proto";
import "google/protobuf/any.proto";
import "google/protobuf/field_mask.proto";
enum State { STATE_UNSPECIFIED = 0; OPEN = 1; CLOSED = 2; }
message Line { string sku = 1; int32 count = 2; }
message Everything {
  string order_id = 1; int64 big = 2; uint64 ubig = 3; int32 small = 4; sint32 zig = 5; sint64 zag = 6;
  fixed32 f32 = 7; fixed64 f64 = 8; sfixed32 sf32 = 9; sfixed64 sf64 = 10; bool flag = 11; double real = 12; float single = 13;
  bytes blob = 14; State state = 15; repeated int32 numbers = 16; repeated string words = 17; map<string, int64> counts = 18;
  map<int32, Line> lines_by_no = 19; Line line = 20; repeated Line lines = 21; optional int32 maybe = 22;
  oneof choice { string by_name = 23; int32 by_number = 24; }
  google.protobuf.Timestamp at = 25; google.protobuf.Duration took = 26; google.protobuf.Struct free = 27;
  google.protobuf.Value any_value = 28; google.protobuf.ListValue list = 29; google.protobuf.StringValue text = 30;
  google.protobuf.Int64Value whole = 31; google.protobuf.Any any = 32; google.protobuf.FieldMask mask = 33;
  repeated State states = 34; map<bool, string> flags = 35; Everything inner = 36;
}
service Orders { rpc Echo(Everything) returns (Everything); rpc Watch(Line) returns (stream Line); rpc Upload(stream Line) returns (Line); }
`;
const folder = mkdtempSync(join(tmpdir(), 'reach-proto-'));
writeFileSync(join(folder, 'shop.proto'), PROTO);
t.teardown(() => rmSync(folder, { recursive: true, force: true }));

/** protobufjs, by way of proto-loader, is the other opinion. */
const definition = loadSync(join(folder, 'shop.proto'), { keepCase: true, longs: String });
const orders = definition['shop.v1.Orders'] as unknown as {
  Echo: { requestSerialize(value: object): Buffer; requestDeserialize(bytes: Buffer): Record<string, unknown> };
};
const schema = new Schema();
for (const one of Object.values(definition) as { fileDescriptorProtos?: Buffer[] }[])
  for (const file of one.fileDescriptorProtos ?? []) t.equal(schema.addFile(Buffer.from(file)), '');
t.equal(schema.link(), '');
const everything = schema.message('shop.v1.Everything') as MessageType;

function encoded(value: unknown): Buffer {
  const read = encodeJson(schema, everything, value);
  if ('problem' in read) throw new Error(read.problem);
  return read.bytes;
}
function problem(value: unknown): string {
  const read = encodeJson(schema, everything, value);
  return 'problem' in read ? read.problem : '';
}
const back = (value: unknown): Record<string, unknown> => decodeJson(schema, everything, encoded(value)) as Record<string, unknown>;

const FULL = {
  orderId: 'a',
  big: '9007199254740993',
  ubig: '18446744073709551615',
  small: -5,
  zig: -7,
  zag: '-9',
  f32: 4294967295,
  f64: '1',
  sf32: -3,
  sf64: '-4',
  flag: true,
  real: 1.5,
  single: 0.1,
  blob: 'aGk=',
  state: 'OPEN',
  numbers: [1, -2, 300],
  words: ['é', ''],
  counts: { a: '1' },
  linesByNo: { 7: { sku: 's', count: 2 } },
  line: { sku: 'x', count: 0 },
  lines: [{ sku: '1', count: 1 }],
  maybe: 0,
  byNumber: 0,
  at: '2026-01-31T08:00:00.120Z',
  took: '-1.500s',
  free: { a: [1, null, 'x', { b: true }] },
  anyValue: null,
  list: [1, 'a'],
  text: '',
  whole: '12',
  any: { '@type': 'type.googleapis.com/shop.v1.Line', sku: 'q', count: 3 },
  mask: 'userName,a.bC',
  states: ['OPEN', 'CLOSED', 9],
  flags: { true: 'y' },
};

t.test('every kind of field goes to bytes and back in its own JSON form', async (t) => {
  const value = back(FULL);
  for (const [key, part] of Object.entries(FULL)) t.strictSame(JSON.parse(JSON.stringify(value[key] ?? null)), part, key);
  t.notOk('byName' in value, 'the other one of a oneof is not there');
  t.notOk('inner' in value, 'a message that was not set is not there');
});

t.test('the bytes are those of another implementation, both ways', async (t) => {
  const seen = orders.Echo.requestDeserialize(encoded(FULL));
  t.equal(seen['order_id'], 'a');
  t.equal(seen['big'], '9007199254740993');
  t.equal(seen['zag'], '-9');
  t.equal(seen['sf64'], '-4');
  t.same(seen['numbers'], [1, -2, 300]);
  t.equal(seen['by_number'], 0);
  t.equal(seen['maybe'], 0);
  const theirs = orders.Echo.requestSerialize({
    order_id: 'b',
    zig: -3,
    numbers: [5, -6],
    counts: { k: '-1' },
    line: { sku: 's' },
    blob: Buffer.from('hi'),
  });
  const read = decodeJson(schema, everything, theirs) as Record<string, unknown>;
  t.match(read, { orderId: 'b', zig: -3, numbers: [5, -6], counts: { k: '-1' }, line: { sku: 's', count: 0 }, blob: 'aGk=' });
});

t.test('what has no presence is written with its default, what has one is left out', async (t) => {
  t.match(back({}), { orderId: '', big: '0', flag: false, state: 'STATE_UNSPECIFIED', numbers: [], counts: {} });
  t.notOk('maybe' in back({}));
});

t.test('both spellings of a name are taken, and answers can keep the original one', async (t) => {
  t.equal(back({ order_id: 'x' })['orderId'], 'x');
  t.match(problem({ order_id: 'x', orderId: 'y' }), /twice/);
  const kept = decodeJson(schema, everything, encoded({ orderId: 'x' }), 'original') as Record<string, unknown>;
  t.equal(kept['order_id'], 'x');
});

t.test('what does not fit is refused with its place', async (t) => {
  const refused: readonly (readonly [unknown, RegExp])[] = [
    [{ ordr_id: 1 }, /no field "ordr_id": did you mean order_id/],
    [{ line: { skuu: 'x' } }, /^\/line: shop\.v1\.Line has no field "skuu"/],
    [{ lines: [{}, { count: 'x' }] }, /^\/lines\/1\/count: a whole number/],
    [{ small: 2147483648 }, /is not from -2147483648 to 2147483647/],
    [{ small: 1.5 }, /whole number/],
    [{ ubig: '-1' }, /is not from 0/],
    [{ big: '9223372036854775808' }, /is not from/],
    [{ flag: 'true' }, /true or false/],
    [{ orderId: 7 }, /a text/],
    [{ orderId: '\ud800' }, /lone surrogate/],
    [{ blob: '***' }, /base64/],
    [{ state: 'OPNE' }, /did you mean OPEN/],
    [{ byName: 'a', byNumber: 1 }, /only one of/],
    [{ at: 'yesterday' }, /a time such as/],
    [{ at: '2026-02-30T00:00:00Z' }, /a time such as/],
    [{ took: '5' }, /a duration such as/],
    [{ numbers: 5 }, /a list/],
    [{ counts: [] }, /a map/],
    [{ any: { sku: 'x' } }, /needs "@type"/],
    [{ any: { '@type': 'x/shop.v1.Nope' } }, /not described/],
    [{ single: 1e39 }, /float/],
    [[], /a map/],
    ['x', /a map/],
  ];
  for (const [value, words] of refused) t.match(problem(value), words, JSON.stringify(value));
  let deep: unknown = {};
  for (let i = 0; i < 150; i++) deep = { inner: deep };
  t.match(problem(deep), /nested more than 100/);
});

t.test('null is "not set", except where it is a value', async (t) => {
  t.notOk('line' in back({ line: null }));
  t.equal(back({ anyValue: null })['anyValue'], null);
  t.ok('anyValue' in back({ anyValue: null }));
});

t.test('times and durations keep nanoseconds, offsets and signs', async (t) => {
  t.same(readTime('1970-01-01T01:00:00.000000001+01:00'), { seconds: 0, nanos: 1 });
  t.equal(timeText(-62_135_596_800, 0), '0001-01-01T00:00:00Z');
  t.same(readTime('0001-01-01T00:00:00Z'), { seconds: -62_135_596_800, nanos: 0 });
  t.equal(timeText(253_402_300_800, 0), null);
  t.same(readDuration('-0.5s'), { seconds: 0, nanos: -500_000_000 });
  t.equal(durationText(0, -500_000_000), '-0.500s');
  t.equal(durationText(1, -1), null);
});

t.test('methods are found with their streams, and what is missing is named', async (t) => {
  t.match(schema.method('shop.v1.Orders', 'Watch'), { isServerStreaming: true, isClientStreaming: false });
  t.match(schema.method('shop.v1.Orders', 'Upload'), { isClientStreaming: true });
  t.match(schema.method('shop.v1.Orders', 'Nope'), /it has Echo, Watch, Upload/);
  t.match(schema.method('shop.v1.Nope', 'Echo'), /there are shop\.v1\.Orders/);
  t.match(new Schema().addSet(Buffer.from('not a set')), /no FileDescriptorSet|cannot be read/);
});

t.test('whatever bytes come, reading them ends and throws nothing', async (t) => {
  const good = encoded(FULL);
  fc.assert(
    fc.property(fc.uint8Array({ maxLength: 200 }), fc.nat(good.length), (noise, at) => {
      const spoilt = Buffer.concat([good.subarray(0, at), noise, good.subarray(at)]);
      for (const bytes of [Buffer.from(noise), spoilt]) {
        decodeJson(schema, everything, bytes);
        rawFields(bytes);
        new Schema().addFile(bytes);
      }
    }),
    { numRuns: 300 },
  );
  t.equal(decodeJson(schema, everything, good.subarray(0, good.length - 1)), undefined, 'a cut message is none');
  t.pass();
});

t.test('whatever JSON comes, it is encoded or refused, and what is encoded comes back the same', async (t) => {
  fc.assert(
    fc.property(
      fc.record({
        orderId: fc.string({ unit: 'grapheme' }),
        big: fc.bigInt({ min: -(2n ** 63n), max: 2n ** 63n - 1n }).map(String),
        real: fc.double({ noNaN: true, noDefaultInfinity: true }),
        numbers: fc.array(fc.integer()),
        free: fc.dictionary(fc.string(), fc.jsonValue()),
      }),
      (value) => {
        const plain = JSON.parse(JSON.stringify(value)) as typeof value;
        const got = JSON.parse(JSON.stringify(back(plain))) as Record<string, unknown>;
        for (const key of ['orderId', 'big', 'numbers', 'real'] as const)
          t.ok(Object.is(JSON.stringify(got[key]), JSON.stringify(plain[key])) || (key === 'real' && got[key] === plain[key]));
      },
    ),
    { numRuns: 100 },
  );
  fc.assert(
    fc.property(fc.jsonValue(), (value) => void encodeJson(schema, everything, value)),
    { numRuns: 300 },
  );
});
