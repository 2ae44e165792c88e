import t from 'tap';
import { boundsProblem } from '../../../base/depth.ts';
import { repeatedName } from '../../../base/json-repeats.ts';
import { isJson, isShallowJson } from '../../../base/json-scan.ts';
import { SeededRandom } from '../../../base/random.ts';

function byParser(text: string): boolean {
  try {
    JSON.parse(text);
    return true;
  } catch {
    return false;
  }
}

t.test('it says the same as the parser of what is well formed and what is not', async (t) => {
  const texts = [
    'null',
    'true',
    'false',
    '0',
    '-0',
    '1.0',
    '1e400',
    '-1.5E+10',
    '9007199254740993',
    '""',
    '"a"',
    '"\\u00e9\\n\\"\\\\\\/"',
    '[]',
    '{}',
    ' [ 1 , 2 ] ',
    '\t\r\n{"a":{"b":[{}]}}',
    '{"a":1,"a":2}',
    '"\u2028\u007f"',
    '[[[[]]]]',
    '{"":""}',
    '"💡"',
    '',
    ' ',
    'nul',
    'nulll',
    'True',
    'NaN',
    'Infinity',
    '-',
    '+1',
    '01',
    '1.',
    '.5',
    '1e',
    '1e+',
    '0x1',
    '1_0',
    '"',
    '"\\',
    '"\\x"',
    '"\\u12"',
    '"\\u12g4"',
    '"a\nb"',
    '"\t"',
    "'a'",
    '[',
    ']',
    '[1',
    '[1,',
    '[1,]',
    '[,]',
    '[1 2]',
    '{',
    '}',
    '{]',
    '[}',
    '{"a"',
    '{"a":',
    '{"a":}',
    '{"a":1,',
    '{"a":1,}',
    '{a:1}',
    '{1:1}',
    '{"a" 1}',
    '{"a":1 "b":2}',
    '1 2',
    '{}{}',
    '{"ok":true}x',
    '// a\n1',
    '\u00a01',
    '\ufeff1',
    '\u0000',
    '[1]\u0000',
  ];
  t.same(
    texts.filter((text) => isJson(Buffer.from(text)) !== byParser(text)),
    [],
  );
  t.ok(texts.some(byParser) && !texts.every(byParser));
});

t.test('bytes that are no UTF-8 are no JSON', async (t) => {
  for (const bytes of [
    [0x22, 0xff, 0x22],
    [0x22, 0xc3, 0x22],
    [0x22, 0xed, 0xa0, 0x80, 0x22],
    [0x22, 0xc0, 0x80, 0x22],
  ])
    t.notOk(isJson(Buffer.from(bytes)));
});

t.test('a part of a larger buffer is read as that part', async (t) => {
  t.ok(isJson(Buffer.from('xx[1]yy').subarray(2, 5)));
  const deep = `x${'['.repeat(1_000)}${']'.repeat(1_000)}x`;
  t.ok(isJson(Buffer.from(deep).subarray(1, -1)), 'however deep');
  t.notOk(isJson(Buffer.from('['.repeat(100_000))));
  t.ok(isJson(Buffer.from(`${'{"a":'.repeat(300)}1${'}'.repeat(300)}`)));
  t.notOk(isJson(Buffer.from(`${'{"a":'.repeat(300)}1${'}'.repeat(299)}]`)));
});

t.test('for texts made by chance, and for good ones with a byte changed, it agrees with the parser', async (t) => {
  const random = new SeededRandom(42);
  const pick = (from: string): string => from[Math.floor(random.next() * from.length)] as string;
  const alphabet = '{}[]:,"\\ \ntrufalsn0123456789.-+eE\u0001b/é';
  let good = 0;
  for (let i = 0; i < 100_000; i++) {
    let text = '';
    for (let length = 1 + Math.floor(random.next() * 7); length > 0; length--) text += pick(alphabet);
    const expected = byParser(text);
    if (expected) good++;
    if (isJson(Buffer.from(text)) !== expected) t.fail(JSON.stringify(text));
  }
  t.ok(good > 1_000, 'there was something to agree on');
  const sample = JSON.stringify({ id: 17, ratio: -1.5e-7, text: 'a "quoted" line\n\u00e9', list: [true, false, null, {}, [], [[0]]] });
  for (let i = 0; i < 50_000; i++) {
    const bytes = Buffer.from(sample);
    bytes[Math.floor(random.next() * bytes.length)] = Math.floor(random.next() * 128);
    const text = bytes.toString('utf8');
    if (isJson(bytes) !== (byParser(text) && !text.includes('\ufffd'))) t.fail(text);
  }
});

t.test('a name that stands in an object twice is found, at any depth and however it is escaped', async (t) => {
  const twice: readonly (readonly [string, string])[] = [
    ['{"a":1,"a":2}', 'a'],
    ['{"x":{"b":[{"c":1,"c":2}]}}', 'c'],
    ['{"name":1,"\\u006eame":2}', 'name'],
    ['{"":1,"":2}', ''],
    ['{"__proto__":1,"__proto__":2}', '__proto__'],
    ['[{"a":"}","a":1}]', 'a'],
    ['{"a":{},"b":[],"a":null}', 'a'],
  ];
  for (const [text, name] of twice) t.equal(repeatedName(text), name, text);
  const once = [
    '{}',
    '[]',
    '"a"',
    '1',
    '{"a":"a","b":"a"}',
    '{"a":{"a":{"a":1}}}',
    '[{"a":1},{"a":1}]',
    '{"a":["a","a"]}',
    '{"a":"\\"a\\":1","b":"{\\"a\\":1}"}',
    '{"constructor":1,"toString":2}',
  ];
  for (const text of once) t.equal(repeatedName(text), null, text);
  const deep = `${'{"a":['.repeat(50_000)}1${']}'.repeat(50_000)}`;
  t.equal(repeatedName(deep), null, 'without running out of stack');
});

t.test('data keeps within bounds of depth, width and names', async (t) => {
  const bounds = { levels: 3, members: 6, nameChars: 4 };
  for (const fine of [null, 1, 'x'.repeat(99), [], {}, [[[1]]], { a: { b: { c: 1 } } }, { abcd: [1, 2, 3, 4, 5] }])
    t.equal(boundsProblem(fine, bounds), null, JSON.stringify(fine));
  t.match(boundsProblem([[[[]]]], bounds), /more than 3 levels/);
  t.match(boundsProblem({ a: { b: { c: {} } } }, bounds), /more than 3 levels/);
  t.match(boundsProblem([1, 2, 3, 4, 5, 6, 7], bounds), /more than 6 members/);
  t.match(boundsProblem({ a: [1, 2, 3], b: [1, 2] }, bounds), /more than 6 members/);
  t.match(boundsProblem({ abcde: 1 }, bounds), /name of more than 4/);
  t.match(boundsProblem(JSON.parse(`${'['.repeat(1_000_000)}${']'.repeat(1_000_000)}`), bounds), /levels/, 'without running out of stack');
  t.equal(isShallowJson(Buffer.from('{"a":[1]}')), true);
  t.equal(isShallowJson(Buffer.from('{"a":[1}')), false);
  t.equal(isShallowJson(Buffer.from(`${'['.repeat(257)}${']'.repeat(257)}`)), 'deep');
});
