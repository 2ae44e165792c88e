import fc from 'fast-check';
import t from 'tap';
import { itemsOf, membersOf, startOf } from '../../../../base/json-members.ts';
import {
  idKey,
  MAX_RPC_DEPTH,
  readRpc,
  type RpcMessage,
  type RpcReading,
  writeRpcError,
  writeRpcResult,
} from '../../../../proto/wire/json-rpc.ts';

const read = (text: string, batch = 100): RpcReading => readRpc(Buffer.from(text), { batch });

function single(text: string): RpcMessage {
  const reading = read(text);
  if (reading.isBatch) throw new Error(`${text} is read as a batch`);
  return reading.message;
}

function many(text: string): readonly RpcMessage[] {
  const reading = read(text);
  if (!reading.isBatch) throw new Error(`${text} is no batch`);
  return reading.messages;
}

const bad = (text: string): readonly [number, string] | string => {
  const message = single(text);
  return message.kind === 'invalid' ? [message.code, message.id] : message.kind;
};

t.test('a request keeps its id and its params letter by letter', async (t) => {
  const ids = [
    '1',
    '0',
    '-0',
    '1.0',
    '1.5',
    '1e400',
    '9007199254740993',
    '""',
    '"a\\u0062\\n"',
    '"ünï"',
    'null',
    '12345678901234567890123',
  ];
  for (const id of ids) {
    const params = '{ "n" : 9007199254740993, "x":1.0 , "t":"\\u00e9" }';
    const message = single(` {"id":  ${id} ,"params":${params},"jsonrpc":"2.0","method":"crm.order.query@^2.0"} `);
    t.equal(message.kind, 'request', id);
    if (message.kind !== 'request') continue;
    t.equal(message.id, id);
    t.equal(message.method, 'crm.order.query@^2.0');
    t.equal(String(message.params), params);
  }
});

t.test('no id is a notification, and an id of null is a request', async (t) => {
  t.match(single('{"jsonrpc":"2.0","method":"m"}'), { kind: 'notification', method: 'm', params: null });
  t.match(single('{"jsonrpc":"2.0","method":"m","id":null}'), { kind: 'request', id: 'null' });
  t.match(single('{"jsonrpc":"2.0","method":"m","params":null,"id":1}'), { kind: 'request', params: null }, 'params of null count as none');
  t.match(single('{"jsonrpc":"2.0","method":"m","extra":{"id":7}}'), { kind: 'notification' }, 'an id elsewhere is none');
});

t.test('what is no message is told apart, with its id where that can be read', async (t) => {
  const cases: readonly (readonly [string, readonly [number, string]])[] = [
    ['', [-32700, 'null']],
    ['{', [-32700, 'null']],
    ['{"jsonrpc":"2.0","method":"m","id":1', [-32700, 'null']],
    ['{"jsonrpc": "2.0", "method": "foobar, "params": "bar", "baz]', [-32700, 'null']],
    ['{"a":NaN}', [-32700, 'null']],
    ['1', [-32600, 'null']],
    ['"m"', [-32600, 'null']],
    ['null', [-32600, 'null']],
    ['{}', [-32600, 'null']],
    ['{"jsonrpc":"2.0","method":1,"params":"bar"}', [-32600, 'null']],
    ['{"jsonrpc":"2.0","method":1,"id":"a"}', [-32600, '"a"']],
    ['{"jsonrpc":"1.0","method":"m","id":3}', [-32600, '3']],
    ['{"jsonrpc":2.0,"method":"m","id":3}', [-32600, '3']],
    ['{"method":"m","id":3}', [-32600, '3']],
    ['{"jsonrpc":"2.0","id":3}', [-32600, '3']],
    ['{"jsonrpc":"2.0","method":"m","id":{}}', [-32600, 'null']],
    ['{"jsonrpc":"2.0","method":"m","id":[1]}', [-32600, 'null']],
    ['{"jsonrpc":"2.0","method":"m","id":true}', [-32600, 'null']],
    ['{"jsonrpc":"2.0","method":"m","id":1,"params":"x"}', [-32600, '1']],
    ['{"jsonrpc":"2.0","method":"m","id":1,"params":7}', [-32600, '1']],
    ['{"jsonrpc":"2.0","method":"m","id":1,"result":7}', [-32600, '1']],
    ['{"jsonrpc":"2.0","method":"m","id":1,"error":null}', [-32600, '1']],
    ['[]', [-32600, 'null']],
  ];
  for (const [text, expected] of cases) t.strictSame(bad(text), expected, text);
  const notText = readRpc(Buffer.from([0x22, 0xff, 0x22]), { batch: 1 });
  t.match(notText, { isBatch: false, message: { kind: 'invalid', code: -32700 } }, 'bytes that are no UTF-8');
});

t.test('a member that stands twice is refused, however it is spelled', async (t) => {
  for (const name of ['jsonrpc', 'method', 'params']) {
    const twice = { jsonrpc: '"2.0"', method: '"m"', params: '[]' }[name];
    t.strictSame(bad(`{"jsonrpc":"2.0","method":"m","params":[],"id":4,"${name}":${twice}}`), [-32600, '4'], name);
  }
  t.strictSame(bad('{"jsonrpc":"2.0","method":"m","id":1,"id":2}'), [-32600, 'null'], 'of two ids neither is believed');
  t.strictSame(bad('{"jsonrpc":"2.0","method":"m","id":1,"m\\u0065thod":"n"}'), [-32600, '1']);
  t.match(single('{"jsonrpc":"2.0","method":"m","id":1,"__proto__":{"id":2},"constructor":1}'), { kind: 'request', id: '1' });
});

t.test('batches: bounded, mixed, and never nested', async (t) => {
  t.strictSame(
    many('[1,{"jsonrpc":"2.0","method":"m"},{"jsonrpc":"2.0","method":"m","id":null},[{}],{"jsonrpc":"2.0","result":1,"id":2}]').map(
      (message) => message.kind,
    ),
    ['invalid', 'notification', 'request', 'invalid', 'result'],
  );
  t.equal(many('[1]').length, 1, 'a batch of one is a batch');
  t.match(read('[1,2,3]', 2), { isBatch: false, message: { kind: 'invalid', code: -32600, problem: /more than 2 messages/ } });
  t.match(read('[1,2]', 2), { isBatch: true });
  t.match(read('[1]', 0), { isBatch: false, message: { kind: 'invalid', problem: /not taken/ } });
});

t.test('nesting is bounded and cannot exhaust the stack', async (t) => {
  const nested = (levels: number): string => `${'['.repeat(levels)}${']'.repeat(levels)}`;
  const withParams = (levels: number): string => `{"jsonrpc":"2.0","method":"m","id":1,"params":${nested(levels)}}`;
  t.equal(single(withParams(MAX_RPC_DEPTH)).kind, 'request');
  t.strictSame(bad(withParams(MAX_RPC_DEPTH + 1)), [-32602, '1']);
  t.strictSame(bad(withParams(200_000)), [-32602, '1']);
  t.match(single(withParams(300)), { kind: 'invalid', isNotification: false });
  t.match(single(withParams(300).replace('"id":1,', '')), { kind: 'invalid', isNotification: true }, 'nobody waits to be told');
  t.match(
    single('{"jsonrpc":"2.0","method":"m","params":7}'),
    { kind: 'invalid', isNotification: false },
    'this is no notification either',
  );
  t.equal(many(nested(200_000)).length, 1);
});

t.test('answers: result, error, and what is neither', async (t) => {
  t.match(single('{"jsonrpc":"2.0","result":{"n":1.0},"id":7}'), { kind: 'result', id: '7', result: Buffer.from('{"n":1.0}') });
  t.match(single('{"jsonrpc":"2.0","result":null,"id":7}'), { kind: 'result', result: Buffer.from('null') });
  t.match(single('{"jsonrpc":"2.0","result":1,"error":null,"id":7}'), { kind: 'result' });
  const error = single('{"jsonrpc":"2.0","error":{"code":-32001,"message":"no","data":[1.0]},"id":"a"}');
  t.match(error, { kind: 'error', id: '"a"', code: -32001, message: 'no', data: Buffer.from('[1.0]') });
  t.match(single('{"jsonrpc":"2.0","error":{"code":1,"message":"no"},"result":null,"id":null}'), { kind: 'error', id: 'null', data: null });
  for (const text of [
    '{"jsonrpc":"2.0","result":1}',
    '{"jsonrpc":"2.0","result":1,"error":{"code":1,"message":""},"id":1}',
    '{"jsonrpc":"2.0","error":{"code":1.5,"message":""},"id":1}',
    '{"jsonrpc":"2.0","error":{"code":1,"code":2,"message":""},"id":1}',
    '{"jsonrpc":"2.0","error":{"message":""},"id":1}',
    '{"jsonrpc":"2.0","error":{"code":1,"message":[]},"id":1}',
    '{"jsonrpc":"2.0","error":"no","id":1}',
  ])
    t.equal(single(text).kind, 'invalid', text);
});

t.test('spellings of one id have one key', async (t) => {
  t.equal(idKey('1'), idKey('1.0'));
  t.equal(idKey('"a"'), idKey('"\\u0061"'));
  t.not(idKey('1'), idKey('"1"'));
  t.not(idKey('9007199254740993'), idKey('9007199254740992'));
  t.not(idKey('null'), idKey('0'));
  t.not(idKey('null'), idKey('"null"'));
});

t.test('whatever is written is read back as it was', async () => {
  const json = fc.json().map((text) => Buffer.from(text));
  const structured = fc
    .oneof(fc.array(fc.jsonValue()), fc.dictionary(fc.string(), fc.jsonValue()))
    .map((v) => Buffer.from(JSON.stringify(v)));
  const id = fc.oneof(
    fc.string().map((s) => JSON.stringify(s)),
    fc.bigInt().map(String),
    fc.constant('null'),
    fc.constant('-1.50e3'),
  );
  fc.assert(
    fc.property(id, fc.string(), structured, json, fc.integer(), (one, method, params, value, code) => {
      const request = single(String(`{"jsonrpc":"2.0","params":${String(params)},"id":${one},"method":${JSON.stringify(method)}}`));
      const note = single(String(`{"method":${JSON.stringify(method)},"jsonrpc":"2.0"}`));
      const result = single(String(writeRpcResult(one, value)));
      const error = single(String(writeRpcError(one, code, method, value)));
      return (
        request.kind === 'request' &&
        request.id === one &&
        request.method === method &&
        String(request.params) === String(params) &&
        note.kind === 'notification' &&
        note.method === method &&
        note.params === null &&
        result.kind === 'result' &&
        result.id === one &&
        String(result.result) === String(value).trim() &&
        error.kind === 'error' &&
        error.code === code &&
        error.message === method &&
        String(error.data) === String(value).trim()
      );
    }),
    { numRuns: 300 },
  );
});

t.test('no bytes make it throw, and well-formed text is never called malformed', async () => {
  const pieces = fc.array(
    fc.constantFrom(
      '{',
      '}',
      '[',
      ']',
      ',',
      ':',
      '"',
      '\\',
      '\\u00',
      '"id"',
      '"method"',
      '"jsonrpc":"2.0"',
      'null',
      '1e9',
      '"m"',
      ' ',
      'é',
      '\u0000',
    ),
    { maxLength: 40 },
  );
  fc.assert(
    fc.property(
      fc.oneof(
        fc.uint8Array({ maxLength: 200 }).map((b) => Buffer.from(b)),
        pieces.map((p) => Buffer.from(p.join(''))),
      ),
      (bytes) => {
        const reading = readRpc(bytes, { batch: 10 });
        let isJson = true;
        try {
          JSON.parse(new TextDecoder('utf-8', { fatal: true }).decode(bytes));
        } catch {
          isJson = false;
        }
        const isMalformed = !reading.isBatch && reading.message.kind === 'invalid' && reading.message.code === -32700;
        return isJson !== isMalformed;
      },
    ),
    { numRuns: 2_000 },
  );
});

t.test('members and items are found where the parser finds them', async (t) => {
  fc.assert(
    fc.property(fc.dictionary(fc.string(), fc.jsonValue()), fc.array(fc.jsonValue()), fc.constantFrom(0, 1, '\t'), (map, list, space) => {
      const mapped = Buffer.from(` ${JSON.stringify(map, null, space)}`);
      const found = membersOf(mapped, startOf(mapped)).map(({ name, from, to }) => [name, JSON.parse(String(mapped.subarray(from, to)))]);
      const listed = Buffer.from(JSON.stringify(list, null, space));
      const items = itemsOf(listed, 0, 1_000).map(({ from, to }) => JSON.parse(String(listed.subarray(from, to))));
      return JSON.stringify(found) === JSON.stringify(Object.entries(map)) && JSON.stringify(items) === JSON.stringify(list);
    }),
    { numRuns: 500 },
  );
  const deep = Buffer.from(' {"a":[[1],{"b":"[[[["}],"c":"[","d":{}}');
  t.strictSame(
    membersOf(deep, startOf(deep)).map(({ depth }) => depth),
    [2, 0, 1],
  );
  for (const length of [0, 1, 60, 61, 62, 63, 64, 65, 66, 67, 200])
    for (const slashes of [0, 1, 2, 3, 4]) {
      const text = `${'x'.repeat(length)}${'\\'.repeat(slashes)}"${'y'.repeat(length)}`;
      const bytes = Buffer.from(JSON.stringify({ text, next: [text] }));
      const [first, second] = membersOf(bytes, 0);
      t.equal(JSON.parse(String(bytes.subarray(first?.from, first?.to))), text);
      t.equal(second?.to, bytes.length - 1);
    }
  t.strictSame(itemsOf(Buffer.from('[1,2,3]'), 0, 2).length, 2);
});
