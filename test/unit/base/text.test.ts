/** base/duration.ts, base/suggest.ts, base/yaml.ts, base/json-pointer.ts, base/json-source.ts, base/json-exact.ts */
import fc from 'fast-check';
import t from 'tap';
import { describe, formatDuration, formatRatio, formatSize, parseDuration, parseRatio, parseSize, quote } from '../../../base/duration.ts';
import {
  ExactNumber,
  hasExactNumbers,
  hasPlainNumbers,
  parseExact,
  withDigits,
  withDoubles,
  writeExact,
} from '../../../base/json-exact.ts';
import { pointerProblem } from '../../../base/json-pointer.ts';
import { sourceAt } from '../../../base/json-source.ts';
import { jsonText } from '../../../base/json-text.ts';
import { iteratorOf, TextBytes } from '../../../base/pieces.ts';
import { editDistance, nearest } from '../../../base/suggest.ts';
import { type ParsedYaml, parseYaml, pointerOf } from '../../../base/yaml.ts';

t.test('a duration is a number with a unit', async (t) => {
  const good: [string, number][] = [
    ['250ms', 250],
    ['10 s', 10_000],
    ['1.5s', 1_500],
    ['2m', 120_000],
    ['24h', 86_400_000],
    ['7d', 604_800_000],
    ['0s', 0],
    ['30d', 2_592_000_000],
    [' 5s ', 5_000],
    ['0.4ms', 0],
  ];
  for (const [text, ms] of good) t.equal(parseDuration(text), ms, text);
});

t.test('a duration without unit, below zero, above 30 days or malformed is refused with a sentence', async (t) => {
  const bad: [unknown, RegExp][] = [
    [5, /5 has no unit/],
    ['5', /"5" has no unit/],
    [Number.NaN, /NaN has no unit/],
    ['-1s', /negative/],
    ['31d', /at most 30 days/],
    ['2592000001ms', /at most 30 days/],
    ['1y', /not a duration/],
    ['1 minute', /not a duration/],
    ['1h30m', /not a duration/],
    ['', /an empty text/],
    ['1e3s', /not a duration/],
    ['5S', /not a duration/],
    [null, /nothing/],
    [[], /a list/],
    [{}, /a map/],
  ];
  for (const [value, expected] of bad) t.match(parseDuration(value), expected, String(value));
});

t.test('a formatted duration reads back as the same', async (t) => {
  for (const ms of [0, 1, 25, 250, 1_000, 1_500, 2_000, 10_000, 60_000, 90_000, 120_000, 3_600_000, 86_400_000, 604_800_000])
    t.equal(parseDuration(formatDuration(ms)), ms, formatDuration(ms));
  t.equal(formatDuration(1_500), '1.5s');
  t.equal(formatDuration(90_000), '90s');
  t.equal(formatDuration(86_400_000), '24h');
});

t.test('a ratio is 0 to 1 or a percentage, and a plain 50 is not read as 50 %', async (t) => {
  for (const [value, ratio] of [
    [0, 0],
    [0.5, 0.5],
    [1, 1],
    ['50%', 0.5],
    ['50 %', 0.5],
    ['7%', 0.07],
    ['0.4%', 0.004],
    ['0%', 0],
    ['100%', 1],
  ] as const)
    t.equal(parseRatio(value), ratio, String(value));
  for (const value of [50, 1.01, -0.1, Number.NaN, Number.POSITIVE_INFINITY, '101%', '-1%', '0.5', 'half', '', null, true, []])
    t.type(parseRatio(value), 'string', String(value));
  t.equal(formatRatio(0.07), '7%');
  t.equal(formatRatio(1 / 3), '33.3333333333%');
});

t.test('a size is whole bytes or carries a unit of 1000 or 1024', async (t) => {
  for (const [value, bytes] of [
    [0, 0],
    [65_536, 65_536],
    ['1MiB', 1_048_576],
    ['64KB', 64_000],
    ['1.5 KiB', 1_536],
    ['2GiB', 2_147_483_648],
    ['10B', 10],
  ] as const)
    t.equal(parseSize(value), bytes, String(value));
  for (const value of [-1, 1.5, Number.NaN, '1M', '1mb', '-1KB', '', null, '99999999999GiB'])
    t.type(parseSize(value), 'string', String(value));
  t.equal(formatSize(1_048_576), '1MiB');
  t.equal(formatSize(65_537), '65537B');
});

t.test('what is shown of a value is short and holds no control characters', async (t) => {
  t.equal(quote('a\r\nb\u001b[31m\u2028'), '"a\\u000d\\u000ab\\u001b[31m\\u2028"');
  t.equal(quote('x'.repeat(1_000_000)).length, 82);
  t.equal(describe(''), 'an empty text');
  t.equal(describe(undefined), 'nothing (an empty value)');
});

t.test('the nearest word is suggested, and none when nothing is near', async (t) => {
  const known = ['fallback', 'breaker', 'retry', 'timeout', 'via'];
  t.equal(nearest('fallbak', known), 'fallback');
  t.equal(nearest('braeker', known), 'breaker');
  t.equal(nearest('Retry', known), 'retry');
  t.equal(nearest('timeot', known), 'timeout');
  t.equal(nearest('priority', known), null);
  t.equal(nearest('', known), null);
  t.equal(nearest('x'.repeat(10_000), known), null);
  t.equal(editDistance('ab', 'ba'), 1);
  t.equal(editDistance('kitten', 'sitting'), 3);
  t.equal(editDistance('abc', ''), 3);
});

const problemsOf = (text: string): string[] =>
  parseYaml(text, 'f.yaml').problems.map((problem) => `${problem.line}:${problem.column} ${problem.path} ${problem.message}`);
const first = (text: string): string => problemsOf(text)[0] ?? 'no problem';

t.test('YAML and JSON become plain frozen data without prototypes', async (t) => {
  const { value, problems } = parseYaml('a: 1\nb: [true, null, "x", 2.5]\nc: {d: e}\n"f": 0x10\n', 'f.yaml');
  t.equal(problems.length, 0);
  t.equal(JSON.stringify(value), '{"a":1,"b":[true,null,"x",2.5],"c":{"d":"e"},"f":16}');
  t.equal(Object.getPrototypeOf(value), null);
  t.ok(Object.isFrozen(value) && Object.isFrozen((value as { b: unknown }).b));
  t.equal(
    JSON.stringify(parseYaml('{"a":\n\t[1, {"b": "c\\td"}]}', 'f.json').value),
    '{"a":[1,{"b":"c\\td"}]}',
    'JSON may be indented with tabs',
  );
  t.equal(parseYaml('', 'f').value, null);
  t.equal(parseYaml('2026-01-02', 'f').value, '2026-01-02', 'a day stays text');
  t.equal(parseYaml('\uFEFFa: 1', 'f').problems.length, 0, 'a byte order mark is passed over');
});

t.test('every value and key has its line and column, and what is not there points to what is around it', async (t) => {
  const parsed: ParsedYaml = parseYaml('a:\n  b: [1, 22]\n  "c/d": {e: f}\nempty:\n', 'f.yaml');
  t.same(parsed.locate(['a', 'b', 1]), { line: 2, column: 10 });
  t.same(parsed.locateKey(['a', 'b']), { line: 2, column: 3 });
  t.same(parsed.locate(['a', 'c/d', 'e']), { line: 3, column: 14 });
  t.same(parsed.locate(['a', 'missing', 'x']), { line: 2, column: 3 });
  t.same(parsed.locate(['empty']), { line: 4, column: 1 }, 'an empty value stands where its key stands');
  t.equal(pointerOf(['a', 'c/d', '~', 0]), '/a/c~1d/~0/0');
});

t.test('anchors, aliases, merge keys, tags and directives are refused before anything expands', async (t) => {
  t.match(first('a: &x 1\n'), /^1:4 {2}anchors/);
  t.match(first('a: to do: more\n'), /^1:4 .*must be quoted/, "the parser's own words, and what most often stands behind them");
  t.match(first('a: *x\n'), /^1:4 {2}aliases/);
  t.match(first('a: 1\n<<: {b: 2}\n'), /^2:1 \/<< merge keys/);
  t.equal(first('"<<": 1\n'), 'no problem', 'quoted it is a key like any other');
  t.match(first('a: !!binary x\n'), /^1:4 {2}tags/);
  t.match(first('%YAML 1.1\n---\na: 1\n'), /^1:1 {2}directives/);
  t.equal(first('a: "& * !"\nb: x & y * z !\n'), 'no problem', 'inside text they are characters');
});

t.test('alias bombs and texts of extreme depth are refused fast and without much memory', async (t) => {
  const levels = Array.from({ length: 20 }, (_, i) => `b${i + 1}: &b${i + 1} [*b${i}, *b${i}]`).join('\n');
  const bombs = [
    `b0: &b0 [x]\n${levels}`,
    `x: &B {a: 1}\n${Array.from({ length: 500 }, (_, i) => `k${i}: { <<: *B }`).join('\n')}`,
    'a: &a [*a]',
    '['.repeat(100_000),
    '{a: '.repeat(50_000),
    '- '.repeat(100_000),
    '? '.repeat(100_000),
    Array.from({ length: 2_000 }, (_, i) => `${' '.repeat(i)}a:`).join('\n'),
  ];
  parseYaml(bombs[0] as string, 'warm');
  for (const [i, bomb] of bombs.entries()) {
    const heap = process.memoryUsage().heapUsed;
    const began = performance.now();
    const { problems, value } = parseYaml(bomb, 'f.yaml');
    t.ok(problems.length > 0 && problems.length <= 50, `bomb ${i} is refused with a bounded list`);
    t.equal(value, undefined);
    t.ok(performance.now() - began < 50, `bomb ${i} within 50 ms`);
    t.ok(process.memoryUsage().heapUsed - heap < 20e6, `bomb ${i} within memory`);
  }
  t.match(first('['.repeat(65)), /nested more than 64 levels deep/);
  t.equal(first(`${'['.repeat(64)}${']'.repeat(64)}`), 'no problem');
});

t.test('duplicate keys, several documents, tabs, syntax errors and oversize are refused with their place', async (t) => {
  t.match(first('a: 1\nb: 2\na: 3\n'), /^3:1 \/a the key "a" stands here twice \(first at line 1\)/);
  t.match(first('{"a": 1, "a": 2}'), /^1:10 \/a the key "a" stands here twice/);
  t.match(first('a: 1\n---\nb: 2\n'), /several documents/);
  t.match(first('a:\n\tb: 1\n'), /^2:1 {2}a tab/);
  t.match(first('a:\tb\n'), /^1:3 {2}a tab/);
  t.equal(first('a: "x\ty"\nb: |\n  c\td\n'), 'no problem', 'a tab inside text is text');
  t.match(first('a: [1, 2\nb: 3'), /^\d+:\d+ /);
  t.match(first('a: "b'), /^1:\d+ .*[Mm]issing closing/);
  t.match(first(`a: ${'x'.repeat(4 * 1024 * 1024)}`), /larger than 4 MiB/);
  t.match(first('? [a, b]\n: 1\n'), /a key must be a word/);
  t.match(first('~: 1\n').concat(first(': 1\n')), /a key must be a word/);
});

t.test('words that YAML tools read differently are refused with what to write instead', async (t) => {
  for (const word of ['yes', 'no', 'on', 'off', 'y', 'n', 'YES', 'No', 'ON', 'Off', 'Y', 'N']) {
    t.match(first(`a: ${word}\n`), new RegExp(`^1:4 /a the unquoted word ${word} .* write true or false, or quote it: "${word}"`));
    t.equal(first(`a: "${word}"\n`), 'no problem');
    t.equal(first(`${word}: 1\n`), 'no problem', 'as a key it is a word');
  }
  t.match(first('a: 1:30\n'), /base 60/);
  t.match(first('a: 010\n'), /octal/);
  t.match(first('a: 9007199254740993\n'), /too large to be held exactly/);
  t.equal(first('a: [0, 10, -5, 0.5, 1e3, 0o17, 0x1F, 127.0.0.1:80, 9007199254740991]\n'), 'no problem');
});

t.test('keys that could touch a prototype are refused, and nothing is touched', async (t) => {
  for (const key of ['__proto__', 'constructor', 'prototype']) {
    t.match(first(`a: {${key}: {admin: true}}\n`), new RegExp(`/a/${key} "${key}" is not allowed as a key`));
    t.match(first(`{"${key}": {"admin": true}}`), /is not allowed as a key/);
  }
  t.equal(({} as { admin?: unknown }).admin, undefined);
});

t.test('a problem of one value leaves the rest to be judged', async (t) => {
  const parsed = parseYaml('a: yes\nb: 2\n', 'f.yaml');
  t.equal((parsed.value as { b: number }).b, 2);
  t.equal(parsed.problems.length, 1);
  t.equal(parsed.problems[0]?.file, 'f.yaml');
});

t.test('a JSON pointer begins with / and escapes ~', async (t) => {
  for (const good of ['', '/a', '/a/0/b~1c', '/~0']) t.equal(pointerProblem(good), null, good);
  for (const bad of ['a', 'a/b', '/a~2', '/~']) t.type(pointerProblem(bad), 'string', bad);
});

t.test('a value is found in a JSON text as it was written', async (t) => {
  const text =
    ' { "id" : 9007199254740993 , "a":{"b":[1.0, -0 ,{"c":"x\\"]}"}]},"dup":1,"dup":[ 1e400 ],"\\u0061\\/":true,"":null,"s":"a}b", "__proto__":{"x":0.10} } ';
  const cases: [string[], string | null][] = [
    [[], text.trim()],
    [['id'], '9007199254740993'],
    [['a', 'b', '0'], '1.0'],
    [['a', 'b', '1'], '-0'],
    [['a', 'b', '2', 'c'], '"x\\"]}"'],
    [['a', 'b'], '[1.0, -0 ,{"c":"x\\"]}"}]'],
    [['dup'], '[ 1e400 ]'],
    [['dup', '0'], '1e400'],
    [['a/'], 'true'],
    [[''], 'null'],
    [['s'], '"a}b"'],
    [['__proto__', 'x'], '0.10'],
    [['none'], null],
    [['id', 'x'], null],
    [['a', 'b', '3'], null],
    [['a', 'b', '01'], null],
    [['a', 'b', '-1'], null],
    [['a', 'b', 'length'], null],
    [['toString'], null],
  ];
  for (const [keys, wanted] of cases) t.equal(sourceAt(text, keys), wanted, keys.join('/'));
  for (const [whole, keys, wanted] of [
    ['7', [], '7'],
    ['[]', ['0'], null],
    ['{}', ['a'], null],
    ['[[],[]]', ['1'], '[]'],
    ['"x"', ['0'], null],
  ] as const)
    t.equal(sourceAt(whole, keys), wanted, whole);
});

t.test('what is shown of a file or a payload cannot move a cursor', async (t) => {
  t.equal(quote('a\u001b[2J\u009b1m\u2028\u202e\u2066\ufeff\n'), '"a\\u001b[2J\\u009b1m\\u2028\\u202e\\u2066\\ufeff\\u000a"');
  t.equal(pointerOf(['a/b', 0, 'c\u001b~']), '/a~1b/0/c\\u001b~0');
  t.ok(pointerOf(['x'.repeat(5_000)]).length <= 512);
});

/** With doubles for the great whole numbers that are kept in digits to be on the safe side. */
function loose(value: unknown): unknown {
  if (value instanceof ExactNumber) return value.isDouble ? Number(value.text) : value;
  if (Array.isArray(value)) return value.map(loose);
  if (typeof value !== 'object' || value === null) return value;
  for (const [name, part] of Object.entries(value))
    Object.defineProperty(value, name, { value: loose(part), enumerable: true, writable: true, configurable: true });
  return value;
}

t.test('a number that a double does not hold keeps its digits, and everything else is what JSON.parse makes of it', async (t) => {
  const long = '9007199254740993';
  fc.assert(
    fc.property(fc.jsonValue({ maxDepth: 4 }), (value) => {
      const text = JSON.stringify(value, null, 1);
      t.strictSame(loose(parseExact(Buffer.from(`[${text},${long}]`))), [JSON.parse(text) as unknown, new ExactNumber(long)]);
      t.strictSame(loose(parseExact(Buffer.from(text))), JSON.parse(text));
    }),
    { numRuns: 200 },
  );
  const held = ['0', '-0', '1.0', '0.1000', '1E5', '9007199254740991', '3.141592653589793', '0.30000000000000004', '1e23', '5e-324'];
  // Written down again they are the same, or a double holds them; what a field of 64 bits would make of the double may be another one.
  for (const text of ['9007199254740992', '1152921504606846976', '1234567890123450000', '-12340000000000000000']) {
    const number = parseExact(Buffer.from(text)) as ExactNumber;
    t.strictSame(number, new ExactNumber(text));
    t.equal(number.isDouble, true, text);
    t.equal(hasExactNumbers(Buffer.from(text)), String(Number(text)) === text, text);
    t.equal(hasPlainNumbers(Buffer.from(text)), false, text);
  }
  const changed = [long, '-9223372036854775808.1', '18446744073709551615', '1e400', '-1E+400', '1e-400', '0.1234567890123456789'];
  for (const text of held) t.type(parseExact(Buffer.from(`[${text},${long}]`)), Array, text);
  for (const text of held) t.strictSame((parseExact(Buffer.from(`[ ${text} ,${long}]`)) as unknown[])[0], JSON.parse(text), text);
  for (const text of changed) t.strictSame(parseExact(Buffer.from(`{"a~/b": [ ${text} ]}`)), { 'a~/b': [new ExactNumber(text)] }, text);
  const odd = parseExact(Buffer.from(`{"__proto__":{"x":${long}},"a":1,"a":${long},"\\u0062\\"":true,"":null}`)) as Record<string, unknown>;
  t.same(Object.keys(odd), ['__proto__', 'a', 'b"', '']);
  t.equal(writeExact(odd), `{"__proto__":{"x":${long}},"a":${long},"b\\"":true,"":null}`);
  for (const text of ['', '[1,', `{"a":${long}`, `[0${long}]`, '[NaN]']) t.throws(() => parseExact(Buffer.from(text)), SyntaxError, text);
  for (const text of changed) {
    const numbers: Record<string, string> = {};
    const value = parseExact(Buffer.from(`{"a/b":[1,${text}]}`));
    const doubles = withDoubles(value, '', numbers);
    t.strictSame(numbers, { '/a~1b/1': text });
    t.strictSame(withDigits(JSON.parse(JSON.stringify(doubles)), numbers), value);
  }
  for (const text of changed) t.equal(new ExactNumber(text).isDouble, false, text);
  t.ok(new ExactNumber('9007199254740993').isSame(new ExactNumber('900719925474099.30e+1')));
  t.notOk(new ExactNumber('9007199254740993').isSame(new ExactNumber('-9007199254740993')));
  t.equal(new ExactNumber('1844674407370955161.5e1').whole, '18446744073709551615');
  t.equal(new ExactNumber('0.1234567890123456789').whole, null);
  t.equal(new ExactNumber('1e4000').whole, null);
});

t.test('what JSON can say is said as JSON.stringify does', async (t) => {
  class Order {
    readonly id = 7;
    readonly #secret = 1;
    get secret(): number {
      return this.#secret;
    }
  }
  class Nothing {}
  const values: unknown[] = [
    null,
    { a: null, b: {}, c: [], d: undefined },
    'null {}',
    [new Date(0), new Order(), new Nothing(), Object.create(null)],
    [Object(1), Object(''), Object(false)],
    { pixels: new Uint8Array(0), buffer: Buffer.from('x'), more: new Float64Array([1]), empty: {} },
    { toJSON: () => ({}) },
  ];
  for (const value of values) t.equal(jsonText(value), JSON.stringify(value));
  for (const value of [undefined, () => 1, Symbol('x')]) t.equal(jsonText(value), undefined);
});

t.test('what would arrive as null or as an empty object is refused, with its place', async (t) => {
  const refused: readonly (readonly [unknown, RegExp])[] = [
    [Number.NaN, /^NaN has no form in JSON$/],
    [{ balance: Number.POSITIVE_INFINITY }, /^Infinity at "balance" has no form in JSON$/],
    [new Map([['a', 1]]), /^a value of the kind Map has no form in JSON$/],
    [{ tags: new Set(['a']) }, /^a value of the kind Set at "tags" has no form in JSON$/],
    [new ArrayBuffer(8), /kind ArrayBuffer has/],
    [[new DataView(new ArrayBuffer(8))], /kind DataView at "0" has/],
    [{ error: new Error('lost') }, /kind Error at "error" has/],
    [{ later: Promise.resolve(1) }, /kind Promise at "later" has/],
    [{ rows: (function* () {})() }, /kind Generator at "rows" has/],
    [{ query: new URLSearchParams('a=1') }, /kind URLSearchParams at "query" has/],
    [{ ['x'.repeat(500)]: new WeakMap() }, /kind WeakMap at "x{64}" has/],
  ];
  for (const [value, message] of refused) t.throws(() => jsonText(value), { name: 'TypeError', message });
});

const joined = (pieces: readonly string[]): string => {
  const text = new TextBytes();
  return Buffer.concat([...pieces.map((piece) => text.push(piece)), text.rest()]).toString('utf8');
};

t.test('text is the same however it was cut, also inside a character', async (t) => {
  const words = 'a🙂漢é🏳️‍🌈🙂🙂';
  for (let one = 0; one <= words.length; one++)
    for (let two = one; two <= words.length; two++)
      t.equal(joined([words.slice(0, one), '', words.slice(one, two), words.slice(two)]), words, `cut at ${one} and ${two}`);
  t.equal(joined(words.split('')), words, 'half by half');
});

t.test('half a character that stays alone is one mark, and what follows is whole', async (t) => {
  t.equal(joined(['a\ud83d']), 'a\ufffd');
  t.equal(joined(['\ud83d', 'b']), '\ufffdb');
  t.equal(joined(['\ude42', 'b']), '\ufffdb');
  t.equal(joined(['\ud83d', '\ud83d', '\ude42']), '\ufffd🙂');
  t.equal(joined([]), '');
});

t.test('generators and iterators are read one by one, lists and maps are values', async (t) => {
  const read = async (value: unknown): Promise<unknown> => {
    const iterator = iteratorOf(value);
    if (iterator === null) return null;
    const all: unknown[] = [];
    for (let step = await iterator.next(); step.done !== true; step = await iterator.next()) all.push(step.value);
    return all;
  };
  let isClosed = false;
  const some = function* () {
    try {
      yield 1;
      yield 2;
    } finally {
      isClosed = true;
    }
  };
  t.strictSame(await read(some()), [1, 2]);
  t.strictSame(await read([3, 4].values()), [3, 4]);
  t.strictSame(
    await read(
      (async function* () {
        yield 5;
      })(),
    ),
    [5],
  );
  for (const value of [[1], new Set([1]), new Map(), 'text', null, undefined, { next: () => ({}) }]) t.equal(await read(value), null);
  isClosed = false;
  const left = iteratorOf(some());
  await left?.next();
  await left?.return?.();
  t.ok(isClosed, 'who stops reading ends the generator');
});
