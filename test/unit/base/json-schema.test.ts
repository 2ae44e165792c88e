/** base/json-schema.ts, base/schema-safety.ts, base/pattern-safety.ts, base/regex-tree.ts, base/ambiguity.ts */
import t from 'tap';
import { compileSchema, type Validator } from '../../../base/json-schema.ts';
import { patternProblem } from '../../../base/pattern-safety.ts';
import { overlaps, parsePattern } from '../../../base/regex-tree.ts';

const problem = (schema: unknown): string => {
  const compiled = compileSchema(schema);
  return 'problem' in compiled ? compiled.problem : 'no problem';
};
const validator = (schema: unknown): Validator => {
  const compiled = compileSchema(schema);
  if ('problem' in compiled) throw new Error(compiled.problem);
  return compiled.validator;
};

t.test('a valid value gives null, an invalid one sentences with JSON pointers', async (t) => {
  const order = validator({
    type: 'object',
    required: ['id', 'n'],
    additionalProperties: false,
    properties: {
      id: { type: 'string', format: 'uuid' },
      n: { enum: [1, 2] },
      lines: { type: 'array', items: { type: 'number' } },
      k: { const: 'x' },
    },
  });
  t.equal(order.validate({ id: '0b0e5a1c-3c5e-4a0e-8a3b-2d6a4a1b5c6d', n: 1, lines: [1] }), null);
  t.same(order.validate({ id: 'x', n: 3, foo: 1, lines: [1, 'a'], k: 'y' }), [
    '(the whole): has a property that is not allowed: "foo"',
    '/id: must match format "uuid"',
    '/n: must be one of 1, 2',
    '/lines/1: must be number',
    '/k: must be "x"',
  ]);
  t.same(order.validate({}), ["(the whole): must have required property 'id'", "(the whole): must have required property 'n'"]);
  t.equal(validator(true).validate({ any: 'thing' }), null);
  t.same(validator(false).validate(1), ['(the whole): nothing is allowed here']);
});

t.test('the list of errors is bounded, also for huge data, and holds no values of the data', async (t) => {
  const numbers = validator({ type: 'array', items: { type: 'number' } });
  t.equal(numbers.validate(Array.from({ length: 100 }, () => 'secret'))?.length, 20);
  const began = performance.now();
  const many = numbers.validate(Array.from({ length: 100_000 }, () => 'secret'));
  t.equal(many?.length, 1);
  t.ok(performance.now() - began < 200);
  t.notMatch(JSON.stringify(many), /secret/);
  const named = validator({ type: 'object', additionalProperties: false }).validate({
    ['x\r\n\u001b'.repeat(100)]: 1,
  }) as readonly string[];
  t.notMatch(named[0], /\p{Cc}/u);
  t.ok((named[0] as string).length < 700);
});

t.test('validation never changes the data: no coercion, no defaults, nothing removed', async (t) => {
  const cases: [unknown, unknown, boolean][] = [
    [{ oneOf: [{ type: 'null' }, { type: 'string' }] }, null, true],
    [
      {
        allOf: [
          { type: 'object', properties: { a: { type: 'number' } } },
          { type: 'object', properties: { b: { type: 'number' } } },
        ],
      },
      { a: 1, b: 2 },
      true,
    ],
    [
      {
        anyOf: [
          { type: 'object', additionalProperties: false, properties: { a: {} } },
          { type: 'object', required: ['b'] },
        ],
      },
      { a: 1, b: 2 },
      true,
    ],
    [{ type: 'object', properties: { n: { type: 'number' } } }, { n: '5' }, false],
    [{ type: 'object', properties: { n: { type: 'number', default: 7 } } }, {}, true],
  ];
  for (const [schema, value, isValid] of cases) {
    const before = JSON.stringify(value);
    t.equal(validator(schema).validate(value) === null, isValid, JSON.stringify(schema));
    t.equal(JSON.stringify(value), before);
  }
});

t.test('what is misspelt, of another draft or not a schema is refused when it is registered', async (t) => {
  t.match(problem({ type: 'object', propertis: {} }), /unknown keyword "propertis"/);
  t.match(problem({ 'x-note': 1 }), /unknown keyword "x-note"/);
  t.match(problem({ type: 'strng' }), /not valid: \/type/);
  t.match(problem({ minimum: '3' }), /not valid: \/minimum/);
  t.match(problem({ format: 'uuidd' }), /unknown format "uuidd"/);
  t.match(problem({ $schema: 'http://json-schema.org/draft-07/schema#' }), /2020-12/);
  t.match(problem(7), /a schema is a map/);
  t.match(problem(null), /a schema is a map/);
  t.match(problem({ properties: { a: 5 } }), /not valid/);
  t.equal(
    problem({
      $schema: 'https://json-schema.org/draft/2020-12/schema',
      $id: 'https://x.test/a',
      type: ['string', 'null'],
      title: 't',
      description: 'd',
      examples: [1],
      deprecated: true,
    }),
    'no problem',
  );
  t.equal(problem({ $id: 'https://x.test/a', type: 'number' }), 'no problem', 'two schemas may carry the same $id');
});

t.test('references lead into the schema itself and never round in a circle', async (t) => {
  t.match(problem({ $ref: 'https://x.test/schema' }), /must lead into the schema itself/);
  t.match(problem({ $ref: 'other.json#/a' }), /must lead into the schema itself/);
  t.match(problem({ $ref: '#/$defs/missing' }), /which is not there/);
  t.match(problem({ properties: { a: { $id: 'b' } } }), /\$id is not used here/);
  t.match(problem({ $dynamicRef: '#x' }), /\$dynamicRef is not used here/);
  t.match(problem({ $ref: '#' }), /refers to itself/);
  t.match(
    problem({ $ref: '#/$defs/a', $defs: { a: { allOf: [{ $ref: '#/$defs/b' }] }, b: { not: { $ref: '#/$defs/a' } } } }),
    /refers to itself/,
  );
  t.equal(problem({ $ref: '#/$defs/id', $defs: { id: { type: 'string' } } }), 'no problem');
});

t.test('a schema that multiplies without end, is too deep or too large is refused', async (t) => {
  const defs: Record<string, unknown> = { a0: { type: 'string' } };
  for (let i = 1; i < 25; i++) defs[`a${i}`] = { allOf: [{ $ref: `#/$defs/a${i - 1}` }, { $ref: `#/$defs/a${i - 1}` }] };
  t.match(problem({ $ref: '#/$defs/a24', $defs: defs }), /more than 10000 subschemas/);
  let deep: unknown = { type: 'string' };
  for (let i = 0; i < 60; i++) deep = { type: 'object', properties: { a: deep } };
  t.match(problem(deep), /levels deep/);
  t.match(problem({ properties: Object.fromEntries(Array.from({ length: 10_001 }, (_, i) => [`p${i}`, {}])) }), /more than 10000 parts/);
  t.match(problem({ enum: ['x'.repeat(300_000)] }), /larger than 256 KiB/);
  t.match(problem({ const: JSON.parse(`${'['.repeat(100_000)}${']'.repeat(100_000)}`) }), /nested more than 200 levels/);
  t.match(problem({ 'x-y': JSON.parse(`${'['.repeat(100_000)}${']'.repeat(100_000)}`) }), /nested more than 200 levels/);
  const chain = Object.fromEntries(Array.from({ length: 5_000 }, (_, i) => [`a${i}`, i === 0 ? {} : { $ref: `#/$defs/a${i - 1}` }]));
  t.match(problem({ $ref: '#/$defs/a4999', $defs: chain }), /references lead on to one another/);
  const down = Object.fromEntries(
    Array.from({ length: 3_000 }, (_, i) => [`a${i}`, i === 0 ? {} : { properties: { p: { $ref: `#/$defs/a${i - 1}` } } }]),
  );
  t.match(problem({ $ref: '#/$defs/a2999', $defs: down }), /levels deep when its references are followed/);
  t.equal(
    validator({ $ref: '#/$defs/a140', $defs: Object.fromEntries(Object.entries(down).slice(0, 141)) }).validate({ p: { p: {} } }),
    null,
  );
});

t.test('data that is deep beyond the stack ends as an error of the value, not of the process', async (t) => {
  const node = validator({
    $ref: '#/$defs/n',
    $defs: { n: { type: 'object', properties: { k: { type: 'string', pattern: '^[a-z]+$' }, c: { $ref: '#/$defs/n' } } } },
  });
  const nested = (levels: number): unknown => JSON.parse(`${'{"c":'.repeat(levels)}{"k":"a"}${'}'.repeat(levels)}`);
  t.equal(node.validate(nested(200)), null);
  t.match(node.validate(nested(100_000))?.[0], /nested more than 256 levels/);
});

t.test('properties that every object has cannot be named, so that an absent one is never taken for present', async (t) => {
  for (const name of ['constructor', '__proto__', 'toString', 'hasOwnProperty']) {
    t.match(problem(JSON.parse(`{"properties":{"${name}":{}}}`)), /must not be called/, name);
    t.match(problem({ required: [name] }), /must not be called/, name);
  }
  t.equal(validator({ type: 'object', additionalProperties: { type: 'number' } }).validate(JSON.parse('{"__proto__": 1}')), null);
  t.equal(({} as { x?: unknown }).x, undefined);
});

t.test('compiled schemas are shared by their text, and constants compare by value', async (t) => {
  t.equal(validator({ type: 'string', minLength: 3 }), validator({ type: 'string', minLength: 3 }));
  t.equal(validator(Object.assign(Object.create(null), { const: { a: [1] } })).validate({ a: [1] }), null);
});

t.test('patterns that a short text can drive into exponential time are refused', async (t) => {
  const exponential = [
    '(a+)+$',
    '(a+)+',
    '^(a*)*$',
    '^(a|a)*$',
    '^(a|aa)+$',
    '^(a|b|ab)*c$',
    '^(\\w+\\s?)*$',
    '^(.*,)*.*$',
    '^((a+)b?)*$',
    '^(([a-z])+.)+[A-Z]([a-z])+$',
    '^(x{0,20}){0,20}$',
    '(((a|a){4}){4}){4}',
    '^([^"]|.)*"$',
    '^(?:a{1,50}){1,50}$',
    '^(\\d+)*$',
    '^(a?b?)*$',
  ];
  for (const pattern of exponential) t.match(patternProblem(pattern, 10), /exponential/, pattern);
  t.match(patternProblem('^(a?){30}a{30}$', 10), /match nothing/);
  t.match(patternProblem(`^${'a?'.repeat(25)}${'a'.repeat(25)}$`, 10), /too many ways/);
  t.match(patternProblem(`^${'(a|a)'.repeat(40)}$`, 10), /too many ways/);
  t.match(patternProblem('(.)\\1', 10), /refers back/);
  t.match(patternProblem('(?<x>.)\\k<x>', 10), /refers back/);
  t.match(patternProblem('^(?:(?=.*x)a)*$', 10), /inside a repetition/);
  t.match(patternProblem('a'.repeat(513), 10), /longer than 512/);
  t.match(patternProblem('(', 10), /not a regular expression/);
  t.match(patternProblem('^[a-z]{401}.*$', 10), /too large to be judged/);
});

t.test('patterns whose time grows with a power of the length need a short maxLength beside them', async (t) => {
  for (const pattern of ['\\s+$', '^\\S+@\\S+\\.\\S+$', 'foo.*bar', '^a*a*$', '^.*x.*y.*z$', '(?=.*x)a']) {
    t.match(patternProblem(pattern, null), /"maxLength" of at most \d+/, pattern);
    t.match(patternProblem(pattern, 1_000_000), /"maxLength" of at most \d+/, pattern);
    t.equal(patternProblem(pattern, 50), null, pattern);
  }
  t.match(problem({ type: 'string', pattern: '^\\S+@\\S+\\.\\S+$' }), /maxLength/);
  const mail = validator({ type: 'string', maxLength: 254, pattern: '^\\S+@\\S+\\.\\S+$' });
  t.equal(mail.validate('a@b.test'), null);
  t.ok(mail.validate('nobody'));
  const began = performance.now();
  t.ok(mail.validate(`${'a@'.repeat(100_000)}`));
  t.ok(performance.now() - began < 200, 'the pattern is not run on a text that is too long already');
  t.match(problem({ type: 'object', patternProperties: { '(a+)+$': {} } }), /exponential/);
});

t.test('patterns that people write every day are taken', async (t) => {
  const good = [
    '^[a-z]+(\\.[a-z]+)*$',
    '^[a-z][a-z0-9_]{0,62}(\\.[a-z][a-z0-9_]{0,62}){2}$',
    '^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$',
    '^(\\d{1,3}\\.){3}\\d{1,3}$',
    '^[A-Z]{2}\\d+$',
    '\\d+',
    '[A-Z]{2}',
    '^(?=.*[A-Z])(?=.*\\d).{8,}$',
    '^[a-f0-9]{64}$',
    '^ORD-\\d{4,10}$',
    '^(low|normal|high)$',
    '^https?://[^\\s/]+(/.*)?$',
    '^[^@\\s]+@[^@\\s]+$',
    '^\\+?[0-9 ()-]{6,20}$',
    '^\\d{4}-\\d{2}-\\d{2}T\\d{2}:\\d{2}:\\d{2}(\\.\\d+)?Z$',
    '^-?\\d+(\\.\\d+)?([eE][+-]?\\d+)?$',
    '^x-',
    '^.{1,500}$',
    "^[\\p{L} .'-]+$",
    '^[A-Za-z0-9_-]{1,64}$',
    '^(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$',
    '^\\u{1F600}+\\x41\\t$',
    '',
    '^$',
    '^[a-z]{1,64}[a-z0-9]{1,64}$',
  ];
  for (const pattern of good) t.equal(patternProblem(pattern, null), null, pattern);
});

t.test('what is judged safe is fast on the texts that hurt', async (t) => {
  const texts = ['a'.repeat(20_000), 'a.'.repeat(10_000), ' '.repeat(20_000), '1'.repeat(20_000), 'a@a.'.repeat(5_000)];
  for (const pattern of [
    '^[a-z]+(\\.[a-z]+)*$',
    '^[^@\\s]+@[^@\\s]+$',
    '^(?=.*[A-Z])(?=.*\\d).{8,}$',
    '^-?\\d+(\\.\\d+)?([eE][+-]?\\d+)?$',
    '\\d+',
    '^(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$',
  ]) {
    t.equal(patternProblem(pattern, null), null);
    const compiled = new RegExp(pattern, 'u');
    const began = performance.now();
    for (const text of texts) compiled.test(`${text}!`);
    t.ok(performance.now() - began < 100, pattern);
  }
});

t.test('character sets are read as the engine reads them', async (t) => {
  const set = (pattern: string) => {
    const { tree } = parsePattern(pattern);
    if (tree.kind !== 'set') throw new Error(`${pattern} is a ${tree.kind}`);
    return tree.set;
  };
  const samples = ['a', 'Z', '_', '5', ' ', '-', ']', '\n', '\u{1F600}', 'é', '\\', '^'];
  for (const pattern of [
    '[a-f]',
    '[^a-f]',
    '\\d',
    '\\D',
    '\\w',
    '\\W',
    '\\s',
    '\\S',
    '.',
    '[\\w-]',
    '[\\]\\\\^]',
    '[^\\s\\d]',
    '\\u{1F600}',
    '\\uD83D\\uDE00',
    '\\x5A',
    '[a-]',
  ]) {
    for (const sample of samples) {
      const code = sample.codePointAt(0) as number;
      t.equal(
        overlaps(set(pattern), [[code, code]]),
        new RegExp(`^(?:${pattern})$`, 'u').test(sample),
        `${pattern} on ${JSON.stringify(sample)}`,
      );
    }
  }
});
