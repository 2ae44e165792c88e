import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { create, type DescMessage, fromBinary, toBinary } from '@bufbuild/protobuf';
import {
  type DescriptorProto,
  FieldDescriptorProto_Label as Label,
  FieldDescriptorProto_Type as Type,
  FileDescriptorProtoSchema,
  FileDescriptorSetSchema,
} from '@bufbuild/protobuf/wkt';
import { loadSync } from '@grpc/proto-loader';
import fc from 'fast-check';
import t from 'tap';
import { reachFiles, RpcStatus } from '../../../../proto/wire/reach-messages.ts';
import type { Schema } from '../../../../sidecar/transports/grpc-schema.ts';
import { SchemaFiles } from '../../../../sidecar/transports/grpc-schema-files.ts';
import { readDescriptor } from '../../../../sidecar/transports/grpc-schema-reading.ts';

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
const SHOP = join(folder, 'shop.proto');
writeFileSync(SHOP, PROTO);
t.teardown(() => rmSync(folder, { recursive: true, force: true }));

/** protobufjs, by way of proto-loader, is the other opinion. */
const definition = loadSync(SHOP, { keepCase: true, longs: String });
const orders = definition['shop.v1.Orders'] as unknown as {
  Echo: { requestSerialize(value: object): Buffer; requestDeserialize(bytes: Buffer): Record<string, unknown> };
};
const described = (Object.values(definition)[0] as unknown as { fileDescriptorProtos: Buffer[] }).fileDescriptorProtos;

function schemaOf(files: readonly Uint8Array[]): Schema {
  const all = new SchemaFiles();
  for (const file of files) {
    const words = all.add(file);
    if (words !== '') throw new Error(words);
  }
  const schema = all.schema();
  if (typeof schema === 'string') throw new Error(schema);
  return schema;
}
const schema = schemaOf(described);
const everything = schema.message('shop.v1.Everything') as DescMessage;

type Json = Record<string, unknown>;
function encoded(value: unknown, type = everything, by = schema): Buffer {
  const read = by.encode(type, value);
  if ('problem' in read) throw new Error(read.problem);
  return read.bytes;
}
function problem(value: unknown): string {
  const read = schema.encode(everything, value);
  return 'problem' in read ? read.problem : '';
}
function decoded(bytes: Uint8Array, names: 'camel' | 'original' = 'camel', type = everything, by = schema): Json {
  const read = by.decode(type, bytes, names);
  if ('problem' in read) throw new Error(read.problem);
  return JSON.parse(read.json) as Json;
}
const back = (value: unknown): Json => decoded(encoded(value));

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
  single: 0.25,
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
  for (const [key, part] of Object.entries(FULL)) t.strictSame(value[key] ?? null, part, key);
  t.notOk('byName' in value, 'the other one of a oneof is not there');
  t.notOk('inner' in value, 'a message that was not set is not there');
});

t.test(
  'a number that a double does not hold arrives exactly, is rounded where the field says so, or is refused with its place',
  async (t) => {
    const read = (text: string, type = everything): ReturnType<Schema['encode']> =>
      schema.encode(type, JSON.parse(text), Buffer.from(text));
    const arrived = (text: string): Json => {
      const sent = read(text);
      if ('problem' in sent) throw new Error(sent.problem);
      return decoded(sent.bytes);
    };
    const refusal = (text: string): string => {
      const sent = read(text);
      return 'problem' in sent ? sent.problem : `${text} was sent`;
    };
    const [big, most, least] = ['9007199254740993', '18446744073709551615', '-9223372036854775808'];
    t.match(
      arrived(`{"big":${big},"ubig":${most},"zag":${least},"f64":${most},"sf64":${big},"whole":${big},"small":-5,"order_id":"${big}"}`),
      { big, ubig: most, zag: least, f64: most, sf64: big, whole: big, small: -5, orderId: big },
    );
    t.match(arrived(`{"big":900719925474099.3e1,"ubig":9007199254740993.0}`), { big, ubig: big }, 'however it is written');
    t.match(arrived(`{"inner":{"counts":{"a/b":${big}},"line":{"count":3}},"any":{"@type":"x/shop.v1.Everything","zag":${big}}}`), {
      inner: { counts: { 'a/b': big } },
      any: { zag: big },
    });
    t.match(arrived(`{"any":{"@type":"x/google.protobuf.UInt64Value","value":${most}}}`), { any: { value: most } });
    t.match(
      arrived(`{"real":${big},"anyValue":[3.14159265358979323846,3.141592653589793],"free":{"a":1},"big":${big}}`),
      { real: 9007199254740992, anyValue: [Math.PI, Math.PI], big },
      'where the type is a double, it is rounded',
    );
    for (const [text, words] of [
      [`{"ubig":18446744073709551616}`, /^\/ubig: .*18446744073709551616/],
      [`{"big":-${big}.5}`, /^\/big: .*-9007199254740993\.5/],
      [`{"big":1.00000000000000000001}`, /^\/big: .*1\.00000000000000000001/],
      [`{"anyValue":{"id":[${big}]}}`, /^\/anyValue\/id\/0: 9007199254740993: a google\.protobuf\.Value holds no such number exactly/],
      [`{"free":{"a/b":{"c":-${big}}}}`, /^\/free\/a~1b\/c: -9007199254740993/],
      [`{"list":[1,{"id":${big}}]}`, /^\/list\/1\/id: /],
      [`{"anyValue":1e400}`, /^\/anyValue: 1e400/],
      [`{"real":1e400}`, /^\/real: 1e400/],
      [`{"linesByNo":{"7":{"count":${big}}}}`, /^\/linesByNo\/7\/count: 9007199254740993/],
      [`{"lines":[{"sku":${big}}]}`, /^\/lines\/0\/sku: 9007199254740993/],
      [`{"state":${big}}`, /^\/state: /],
      [`{"at":${big}}`, /^\/at: /],
      [`{"nope":${big}}`, /has no field "nope"/],
    ] as const)
      t.match(refusal(text), words, text);
  },
);

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
  t.match(decoded(theirs), { orderId: 'b', zig: -3, numbers: [5, -6], counts: { k: '-1' }, line: { sku: 's', count: 0 }, blob: 'aGk=' });
});

t.test('what has no presence is written with its default, what has one is left out', async (t) => {
  t.match(back({}), { orderId: '', big: '0', flag: false, state: 'STATE_UNSPECIFIED', numbers: [], counts: {} });
  t.notOk('maybe' in back({}));
  t.strictSame(back(null), back({}), 'null is an empty message');
});

t.test('both spellings of a name are taken, and answers can keep the original one', async (t) => {
  t.equal(back({ order_id: 'x' })['orderId'], 'x');
  t.match(problem({ order_id: 'x', orderId: 'y' }), /set multiple times/);
  t.equal(decoded(encoded({ orderId: 'x' }), 'original')['order_id'], 'x');
});

t.test('what does not fit is refused with its place', async (t) => {
  const refused: readonly (readonly [unknown, RegExp])[] = [
    [{ ordr_id: 1 }, /^shop\.v1\.Everything has no field "ordr_id": did you mean order_id\?/],
    [{ line: { skuu: 'x' } }, /^\/line: shop\.v1\.Line has no field "skuu": did you mean sku\?/],
    [{ inner: { inner: { lines: [{}, { zzz: 1 }] } } }, /^\/inner\/inner\/lines\/1: .*"zzz": it has sku, count/],
    [{ lines: [{}, { count: 'x' }] }, /^\/lines\/1\/count: .*int32/],
    [{ lines_by_no: { 7: { count: true } } }, /^\/lines_by_no\/7\/count: .*int32/],
    [{ numbers: [1, 'x'] }, /^\/numbers: .*item #2/],
    [{ small: 2147483648 }, /^\/small: .*2147483648/],
    [{ small: 1.5 }, /^\/small: /],
    [{ ubig: '-1' }, /^\/ubig: /],
    [{ big: '9223372036854775808' }, /^\/big: /],
    [{ flag: 'true' }, /^\/flag: .*bool/],
    [{ orderId: 7 }, /^\/orderId: .*string/],
    [{ orderId: '\ud800' }, /^\/orderId: .*UTF8/],
    [{ blob: '***' }, /^\/blob: .*base64/],
    [{ state: 'OPNE' }, /^\/state: .*shop\.v1\.State.*OPNE/],
    [{ byName: 'a', byNumber: 1 }, /oneof set multiple times/],
    [{ at: 'yesterday' }, /^\/at: .*RFC 3339/],
    [{ took: '5' }, /^\/took: /],
    [{ numbers: 5 }, /^\/numbers: .*Array/],
    [{ counts: [] }, /^\/counts: .*object/],
    [{ any: { sku: 'x' } }, /^\/any: .*@type/],
    [{ any: { '@type': 'x/shop.v1.Nope' } }, /^\/any: .*shop\.v1\.Nope/],
    [{ single: 1e39 }, /^\/single: /],
    [[], /Everything/],
    ['x', /Everything/],
  ];
  for (const [value, words] of refused) t.match(problem(value), words, JSON.stringify(value));
  for (const levels of [101, 150, 100_000]) {
    let deep: unknown = 1;
    for (let i = 0; i < levels; i++) deep = i % 2 === 0 ? [deep] : { inner: deep };
    t.match(problem({ free: deep }), /nested more than 100 deep/, `${levels} levels`);
  }
});

t.test('null is "not set", except where it is a value', async (t) => {
  t.notOk('line' in back({ line: null }));
  t.equal(back({ anyValue: null })['anyValue'], null);
  t.ok('anyValue' in back({ anyValue: null }));
});

t.test('bytes that are no such message, or go too deep, are a problem in words and never thrown', async (t) => {
  const cut = encoded(FULL).subarray(0, -1);
  t.match(schema.decode(everything, cut), { problem: /EOF/ });
  t.match(schema.decode(everything, Buffer.from([0xff, 0xff, 0xff])), { problem: /./ });
  const nested = (bytes: Buffer, tag: readonly number[], levels: number): Buffer => {
    const heads: Buffer[] = [];
    let length = bytes.length;
    for (let i = 0; i < levels; i++) {
      const head = [...tag];
      let rest = length;
      for (; rest > 0x7f; rest >>>= 7) head.push((rest & 0x7f) | 0x80);
      head.push(rest);
      heads.push(Buffer.from(head));
      length += head.length;
    }
    return Buffer.concat([...heads.reverse(), bytes]);
  };
  // Field 36, of the message's own type.
  t.match(schema.decode(everything, nested(Buffer.alloc(0), [0xa2, 0x02], 50_000)), { problem: /recursion depth of 100/ });
  // A group within a group within …, in a field that nobody knows.
  t.match(schema.decode(everything, Buffer.from('9b06'.repeat(25_000), 'hex')), { problem: /recursion depth/ });
  // Any in Any in …: each is read anew, so that the library's bound does not see it.
  const url = Buffer.from('/google.protobuf.Any');
  const any = schema.message('google.protobuf.Any') as DescMessage;
  const anys = nested(Buffer.alloc(0), [0x0a, url.length, ...url, 0x12], 50_000);
  t.match(schema.decode(any, anys), { problem: /./ });
});

t.test('an Any of a type that nobody described is shown as its bytes', async (t) => {
  const any = { typeUrl: 'type.googleapis.com/other.v1.Thing', value: Buffer.from('hi') };
  const theirs = orders.Echo.requestSerialize({
    order_id: 'a',
    any: { type_url: any.typeUrl, value: any.value },
    inner: { any: { type_url: 'x/Bare', value: Buffer.alloc(0) } },
  });
  t.match(decoded(theirs), {
    orderId: 'a',
    any: { '@type': any.typeUrl, value: 'aGk=' },
    inner: { any: { '@type': 'x/Bare', value: '' } },
  });
  const bad = orders.Echo.requestSerialize({ any: { type_url: 'x/no name', value: Buffer.from('hi') } });
  t.match(schema.decode(everything, bad), { problem: /./ });
});

t.test("an error's details are read by Google's types, the service's own, and our own", async (t) => {
  const line = encoded({ sku: 's', count: 1 }, schema.message('shop.v1.Line') as DescMessage);
  const rpc = schemaOf(reachFiles.file.map((file) => toBinary(FileDescriptorProtoSchema, file)));
  const of = (name: string, json: unknown) => encoded(json, rpc.message(name) as DescMessage, rpc);
  const details: readonly (readonly [string, Uint8Array, Json])[] = [
    ['google.rpc.RetryInfo', of('google.rpc.RetryInfo', { retryDelay: '1.500s' }), { retryDelay: '1.500s' }],
    [
      'google.rpc.BadRequest',
      of('google.rpc.BadRequest', { fieldViolations: [{ field: 'a', description: 'b' }] }),
      { fieldViolations: [{ field: 'a', description: 'b', reason: '' }] },
    ],
    ['google.rpc.Help', of('google.rpc.Help', { links: [{ url: 'u' }] }), { links: [{ description: '', url: 'u' }] }],
    ['google.protobuf.StringValue', Buffer.from([0x0a, 1, 0x61]), { value: 'a' }],
    ['shop.v1.Line', line, { sku: 's', count: 1 }],
    ['agentreach.v1.Failure', of('agentreach.v1.Failure', { code: 5001, text: 'x' }), { code: 5001, text: 'x' }],
    ['shop.v1.Nope', Buffer.from([1]), { value: 'AQ==' }],
    ['shop.v1.Line', Buffer.from([0xff]), { value: '/w==' }],
  ];
  const status = RpcStatus.write({ code: 3, details: details.map(([name, value]) => ({ typeUrl: `t/${name}`, value })) });
  const read = schema.details(status);
  for (const [i, [name, , json]] of details.entries()) t.match(read?.[i], { '@type': `t/${name}`, ...json }, name);
  t.equal(schema.details(Buffer.from([0xff])), null);
});

t.test('methods are found with their streams, and what is missing is named', async (t) => {
  t.match(schema.method('shop.v1.Orders', 'Watch'), { isServerStreaming: true, isClientStreaming: false });
  t.match(schema.method('shop.v1.Orders', 'Upload'), { isClientStreaming: true });
  t.match(schema.method('shop.v1.Orders', 'Nope'), /it has Echo, Watch, Upload/);
  t.match(schema.method('shop.v1.Nope', 'Echo'), /there are shop\.v1\.Orders/);
  t.strictSame(schema.methodsOf('shop.v1.Orders'), ['Echo', 'Watch', 'Upload']);
  t.equal(schema.methodsOf('shop.v1.Nope'), null);
});

const field = (name: string, number: number, type: Type, typeName = '', label = Label.OPTIONAL) => ({
  name,
  number,
  type,
  typeName,
  label,
});
const file = (name: string, messages: readonly object[], more: object = {}): Uint8Array =>
  toBinary(
    FileDescriptorProtoSchema,
    create(FileDescriptorProtoSchema, { name, package: 'p', syntax: 'proto3', messageType: messages as DescriptorProto[], ...more }),
  );

t.test('files come in any order, twice, with relative names, and without what is only imported', async (t) => {
  const first = file(
    'a.proto',
    [{ name: 'A', field: [field('b', 1, Type.MESSAGE, 'B.Inner'), field('at_time', 2, Type.MESSAGE, '.google.protobuf.Timestamp')] }],
    {
      dependency: ['b.proto', 'google/protobuf/timestamp.proto', 'google/api/annotations.proto'],
      extension: [{ ...field('http', 72_295_728, Type.MESSAGE, '.google.api.HttpRule'), extendee: '.google.protobuf.MethodOptions' }],
    },
  );
  const second = file('b.proto', [{ name: 'B', nestedType: [{ name: 'Inner', field: [field('n', 1, Type.INT32)] }] }]);
  const files = new SchemaFiles();
  t.equal(files.add(first), '');
  t.strictSame([...files.missing], ['b.proto', 'google/api/annotations.proto']);
  t.match(files.add(second), '');
  t.match(files.add(second), '');
  t.strictSame([...files.missing], ['google/api/annotations.proto']);
  const made = files.schema() as Schema;
  const type = made.message('p.A') as DescMessage;
  t.strictSame(decoded(encoded({ b: { n: 1 }, atTime: '2026-01-01T00:00:00Z' }, type, made), 'camel', type, made), {
    b: { n: 1 },
    atTime: '2026-01-01T00:00:00Z',
  });
});

t.test('files that are no descriptors, or not whole, or need one another, are refused in words', async (t) => {
  t.match(new SchemaFiles().add(Buffer.from('not a file')), /cannot be read/);
  t.match(new SchemaFiles().addSet(Buffer.from('not a set')), /no FileDescriptorSet/);
  t.match(new SchemaFiles().addSet(Buffer.alloc(0)), /no FileDescriptorSet/);
  const lone = new SchemaFiles();
  lone.add(file('a.proto', [{ name: 'A', field: [field('b', 1, Type.MESSAGE, '.q.B')] }]));
  t.match(lone.schema(), /the type \.q\.B of p\.A\.b is not described/);
  const round = new SchemaFiles();
  round.add(file('a.proto', [{ name: 'A', field: [field('b', 1, Type.MESSAGE, '.p.B')] }]));
  round.add(file('b.proto', [{ name: 'B', field: [field('a', 1, Type.MESSAGE, '.p.A')] }]));
  t.match(round.schema(), /not found/);
});

t.test('required fields, groups and defaults of proto2 are kept', async (t) => {
  const group = { name: 'G', field: [field('n', 1, Type.INT32)] };
  const two = file(
    'two.proto',
    [{ name: 'P', nestedType: [group], field: [field('a', 1, Type.INT32, '', Label.REQUIRED), field('g', 2, Type.GROUP, '.p.P.G')] }],
    { syntax: 'proto2' },
  );
  const made = schemaOf([two]);
  const type = made.message('p.P') as DescMessage;
  t.match(made.encode(type, {}), { problem: /p\.P\.a.*required/ });
  t.strictSame(decoded(encoded({ a: 1, g: { n: 2 } }, type, made), 'camel', type, made), { a: 1, g: { n: 2 } });
});

t.test('a descriptor is a .proto file with what it imports, or a set', async (t) => {
  writeFileSync(join(folder, 'types.proto'), 'syntax="proto3"; package other.v1; message T { string a_b = 1; }');
  writeFileSync(
    join(folder, 'main.proto'),
    'syntax="proto3"; package main.v1; import "types.proto"; message Q { other.v1.T t = 1; optional int32 o = 2; } service S { rpc Get(Q) returns (stream other.v1.T); }',
  );
  const main = await readDescriptor(join(folder, 'main.proto'));
  t.ok('schema' in main, JSON.stringify(main));
  if ('schema' in main) {
    const type = main.schema.message('main.v1.Q') as DescMessage;
    t.strictSame(decoded(encoded({ t: { aB: 'x' }, o: 0 }, type, main.schema), 'camel', type, main.schema), { t: { aB: 'x' }, o: 0 });
    t.match(main.schema.method('main.v1.S', 'Get'), { isServerStreaming: true });
  }
  const set = create(FileDescriptorSetSchema, { file: described.map((bytes) => fromBinary(FileDescriptorProtoSchema, bytes)) });
  writeFileSync(join(folder, 'shop.desc'), toBinary(FileDescriptorSetSchema, set));
  t.ok('schema' in (await readDescriptor(join(folder, 'shop.desc'))));
  writeFileSync(join(folder, 'bad.proto'), 'message {');
  t.match(await readDescriptor(join(folder, 'bad.proto')), { words: /bad\.proto cannot be used: / });
});

t.test('whatever bytes come, reading them ends and throws nothing', async (t) => {
  const good = encoded(FULL);
  fc.assert(
    fc.property(fc.uint8Array({ maxLength: 200 }), fc.nat(good.length), (noise, at) => {
      const spoilt = Buffer.concat([good.subarray(0, at), noise, good.subarray(at)]);
      for (const bytes of [Buffer.from(noise), spoilt]) {
        schema.decode(everything, bytes);
        schema.details(bytes);
        const files = new SchemaFiles();
        files.add(bytes);
        files.schema();
      }
    }),
    { numRuns: 100 },
  );
  const descriptor = described[0] as Buffer;
  fc.assert(
    fc.property(fc.uint8Array({ minLength: 1, maxLength: 8 }), fc.nat(descriptor.length), (noise, at) => {
      const files = new SchemaFiles();
      files.add(Buffer.concat([descriptor.subarray(0, at), noise, descriptor.subarray(at + noise.length)]));
      files.schema();
    }),
    { numRuns: 100 },
  );
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
        const got = back(plain);
        for (const key of ['orderId', 'big', 'numbers', 'free', 'real'] as const)
          if (JSON.stringify(got[key]) !== JSON.stringify(plain[key])) throw new Error(`${key}: ${JSON.stringify(got[key])}`);
      },
    ),
    { numRuns: 100 },
  );
  fc.assert(
    fc.property(fc.jsonValue(), (value) => void schema.encode(everything, value)),
    { numRuns: 300 },
  );
  t.pass();
});
