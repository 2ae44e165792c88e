/** proto/language/names.ts, range.ts, acl.ts */
import fc from 'fast-check';
import { Range as NpmRange, SemVer } from 'semver';
import t from 'tap';
import { parseAgentPattern } from '../../../../proto/language/acl.ts';
import {
  agentIdProblem,
  aliasProblem,
  capabilityNameProblem,
  isAgentId,
  isAlias,
  isCapabilityName,
  matchesTags,
  parseTagSelector,
  parseTarget,
  tagKeyProblem,
  tagValueProblem,
} from '../../../../proto/language/names.ts';
import { compileRange, exactVersionProblem, parseVersion } from '../../../../proto/language/range.ts';

const HOSTILE = [
  '',
  ' ',
  '.',
  '..',
  'crm.order query',
  'crm..query',
  'crm.*',
  'crm.>',
  'crm.order.>',
  'crm.order\r\nPUB x 0',
  '$SYS.x.y',
  'crm.order.query\n',
  ' crm.order.query',
  'crm.order.query.',
  '.crm.order.query',
  'CRM.Admin.x',
  'crm.admin%2F..%2Fpublic.x',
  'crm.public.x#/../admin',
  'crm\u2024order\u2024query',
  'crm.ordér.query',
  'crm.order.quеry',
  '__proto__',
  'crm.__proto__.x',
  'x'.repeat(5_000),
  `a.b.${'c'.repeat(64)}`,
  '1crm.order.query',
  'crm._order.query',
  'crm.order-x.query',
  'crm.order.query\u0000',
];

t.test('a capability name has exactly three segments of one alphabet', async (t) => {
  for (const good of ['crm.order.query', 'nlp.sentiment.analyze', 'a.b.c', 'a1_.b_2.c', `a.b.${'c'.repeat(63)}`, 'constructor.to_string.x'])
    t.equal(isCapabilityName(good), true, good);
  for (const bad of [...HOSTILE, 'crm', 'crm.order', 'crm.order.query.x']) {
    t.equal(isCapabilityName(bad), false, JSON.stringify(bad.slice(0, 60)));
    t.match(capabilityNameProblem(bad), /exactly three segments.*crm\.order\.query/, 'the refusal says the rule and shows a good name');
    t.notMatch(capabilityNameProblem(bad), /\p{Cc}/u);
  }
});

t.test('an alias has one to three segments of the same alphabet', async (t) => {
  for (const good of ['orders', 'order.query', 'crm.order.query', 'constructor']) t.equal(isAlias(good), true, good);
  for (const bad of [...HOSTILE, 'a.b.c.d', 'Orders']) t.equal(isAlias(bad), false, JSON.stringify(bad.slice(0, 60)));
  t.match(aliasProblem('a.b.c.d'), /one to three segments/);
  t.equal(aliasProblem('orders'), null);
});

t.test('an agent id is team.role.id, with dashes, and a free short id', async (t) => {
  for (const good of [
    'crm.order.a1',
    'crm-eu.order_v2.0b0e5a1c-3c5e-4a0e-8a3b-2d6a4a1b5c6d',
    'a.b.C_-9',
    `a.b.${'x'.repeat(64)}`,
    'a.b.__proto__',
    'a.b.-',
  ])
    t.equal(isAgentId(good), true, good);
  const fine = new Set([`a.b.${'c'.repeat(64)}`, 'crm.order-x.query']);
  for (const bad of [
    ...HOSTILE.filter((each) => !fine.has(each)),
    'crm.order',
    'crm.order.',
    'crm.order.a.b',
    'Crm.order.a',
    'crm.Order.a',
    'a.b.x y',
    `a.b.${'x'.repeat(65)}`,
    'a.b.*',
  ]) {
    t.equal(isAgentId(bad), false, JSON.stringify(bad.slice(0, 60)));
  }
  t.match(agentIdProblem('crm.order'), /team\.role\.id.*crm\.order\.7f3a/);
});

t.test('a target is a name or alias, perhaps with a range that is really there', async (t) => {
  t.same(parseTarget('crm.order.query'), { name: 'crm.order.query', range: null });
  t.same(parseTarget('crm.order.query@^2.0'), { name: 'crm.order.query', range: '^2.0' });
  t.same(parseTarget('orders@ >=1.6 <2 || ^3 '), { name: 'orders', range: '>=1.6 <2 || ^3' });
  for (const bad of [
    'crm.order.query@',
    'crm.order.query@ ',
    'crm.order.query@||',
    'crm.order.query@^1 ||',
    'crm.order.query@|| ^1',
    'crm.order.query@undefined',
    'crm.order.query@null',
    'crm.order.query@latest',
    'crm.order.query@^1@2',
    '@^1',
    'crm order@^1',
    `crm.order.query@${'1'.repeat(300)}`,
    'x'.repeat(100_000),
  ]) {
    const target = parseTarget(bad);
    t.ok('problem' in target && target.problem.length > 10 && target.problem.length < 500, bad.slice(0, 60));
  }
});

t.test('pre-releases match only a range that names one of the same version', async (t) => {
  const registered = ['1.6.0', '1.7.0-rc.0', '2.0.0-0', '0.2.3-alpha'];
  const best = (text: string): string | null => {
    const range = compileRange(text);
    if ('problem' in range) return range.problem;
    const found = registered
      .map(parseVersion)
      .filter((version) => range.satisfiedBy(version))
      .sort((a, b) => b.compare(a));
    return found[0]?.version ?? null;
  };
  const table: [string, string | null][] = [
    ['^1', '1.6.0'],
    ['1.x', '1.6.0'],
    ['*', '1.6.0'],
    ['x', '1.6.0'],
    ['^1.7.0-rc', '1.7.0-rc.0'],
    ['^2', null],
    ['^0.2.3', null],
    ['>=1.6.0 <2.0.0', '1.6.0'],
    ['<2.0.0', '1.6.0'],
    ['<=2.0.0', '1.6.0'],
    ['<2', '1.6.0'],
    ['>= 1.6 < 2', '1.6.0'],
    ['1.6.0 - 2.0.0', '1.6.0'],
    ['^3 || ~1.6', '1.6.0'],
    ['2.0.0-0', '2.0.0-0'],
    ['=1.6.0', '1.6.0'],
    ['v1.6', '1.6.0'],
  ];
  for (const [range, expected] of table) t.equal(best(range), expected, range);
});

t.test('a range that means "any" by accident, or nothing, is refused', async (t) => {
  for (const bad of [
    '',
    ' ',
    '\t',
    '||',
    '^1 ||',
    '|| ^1',
    '^1 || || ^2',
    'undefined',
    'null',
    'NaN',
    'latest',
    '>=',
    '>',
    '<x',
    '>=*',
    '^',
    '~',
    '1.2.3.4',
    '^1,^2',
    '^1 && ^2',
    '1 2-',
    '-1',
    '^1.x.x.x',
    '\u202e1',
    `^1 ${'|| ^1 '.repeat(100)}`,
    '>=1 <',
    '0x10',
    '01.2.3',
  ]) {
    const range = compileRange(bad);
    t.ok('problem' in range && range.problem.length > 10, JSON.stringify(bad.slice(0, 40)));
  }
  const began = process.cpuUsage();
  compileRange(' '.repeat(1_000_000));
  compileRange(`1${' '.repeat(200)}x`);
  compileRange(`>${'='.repeat(250)}`);
  const { user, system } = process.cpuUsage(began);
  t.ok(user + system < 250_000, `${user + system} µs of CPU`);
});

t.test('an exact version has three numbers and no decoration', async (t) => {
  for (const good of ['1.0.0', '0.0.1', '2.1.0-rc.1', '10.20.30']) t.equal(exactVersionProblem(good), null, good);
  for (const bad of ['1', '1.0', 'v1.0.0', '1.0.0+build', '01.0.0', '^1.0.0', '', '1.0.0 ', 'latest', '1.0.0-', '1'.repeat(1_000)])
    t.match(exactVersionProblem(bad), /not an exact version/, bad.slice(0, 20));
});

t.test('a tag selector has one canonical form', async (t) => {
  t.same(parseTagSelector('tier=gold, lang=de'), {
    text: 'lang=de,tier=gold',
    pairs: [
      ['lang', 'de'],
      ['tier', 'gold'],
    ],
  });
  for (const bad of [
    '',
    'lang',
    'lang=',
    '=de',
    'a=b,',
    'a=b,a=c',
    'a=b c',
    'toString=x',
    '__proto__=x',
    'a=b\r\nX: y',
    'a==b',
    Array.from({ length: 40 }, (_, i) => `k${i}=v`).join(','),
  ])
    t.ok('problem' in parseTagSelector(bad), JSON.stringify(bad.slice(0, 30)));
  t.equal(tagKeyProblem('team/lang'), null);
  t.type(tagValueProblem(''), 'string');
});

t.test('a selector is met when every pair is there', async (t) => {
  t.equal(matchesTags([['a', '1']], { a: '1', b: '2' }), true);
  t.equal(
    matchesTags(
      [
        ['a', '1'],
        ['b', '1'],
      ],
      { a: '1', b: '2' },
    ),
    false,
  );
  t.equal(matchesTags([['a', '1']], {}), false);
  t.equal(matchesTags([], {}), true);
});

t.test('a pattern of agents is an id with stars, a team, a role or one agent', async (t) => {
  t.same(parseAgentPattern('crm.*.a1'), { text: 'crm.*.a1', team: 'crm', role: null, id: 'a1' });
  t.same(parseAgentPattern('*.*.*'), { text: '*.*.*', team: null, role: null, id: null });
  t.same(parseAgentPattern('team:crm-eu'), { text: 'team:crm-eu', team: 'crm-eu', role: null, id: null });
  t.same(parseAgentPattern('role:planner'), { text: 'role:planner', team: null, role: 'planner', id: null });
  t.same(parseAgentPattern('agent:crm.order.a1'), { text: 'agent:crm.order.a1', team: 'crm', role: 'order', id: 'a1' });
  for (const bad of [
    'crm',
    'crm.*',
    'crm.*.*.*',
    'c*m.order.a',
    'team:',
    'team:*',
    'role:Planner',
    'agent:crm.*.a1',
    'group:x',
    'crm.order.a b',
    '',
  ])
    t.ok('problem' in parseAgentPattern(bad), bad);
});

/** Text near to what is meant, and far from it. */
const nearTarget = fc.oneof(
  fc.string({ unit: 'binary', maxLength: 40 }),
  fc
    .array(
      fc.constantFrom(
        'crm',
        'order',
        'query',
        'x',
        '.',
        '..',
        '@',
        '^2.0',
        '>=1',
        '||',
        ' ',
        '-',
        '_',
        '9',
        'A',
        'é',
        '\u0000',
        '*',
        '/',
        '%2e',
      ),
      {
        maxLength: 12,
      },
    )
    .map((parts) => parts.join('')),
);

t.test('no text makes the reading of a target throw, and what passes is of one alphabet and means one thing', async () => {
  const name = /^[a-z][a-z0-9_]{0,62}(?:\.[a-z][a-z0-9_]{0,62}){0,2}$/;
  fc.assert(
    fc.property(nearTarget, (text) => {
      const read = parseTarget(text);
      if ('problem' in read) return read.problem !== '';
      const again = parseTarget(read.range === null ? read.name : `${read.name}@${read.range}`);
      return (
        name.test(read.name) &&
        text.startsWith(read.name) &&
        !('problem' in again) &&
        again.name === read.name &&
        again.range === read.range
      );
    }),
    { numRuns: 3_000 },
  );
});

t.test('no range makes it throw or takes long, and one that passes holds for just the versions that npm says', async () => {
  const part = fc.constantFrom(
    '^',
    '~',
    '>',
    '<',
    '=',
    '>=',
    '<=',
    '1',
    '2.0',
    '1.2.3',
    '0',
    'x',
    '*',
    '-rc.1',
    '+b',
    '||',
    ' ',
    ' - ',
    'v',
    '.',
    '-',
    '1'.repeat(16),
    '\t',
  );
  const versions = ['0.0.0', '1.0.0', '1.2.3', '1.2.3-rc.1', '2.0.0', '2.0.0-rc.1', '3.5.9'].map((text) => new SemVer(text));
  fc.assert(
    fc.property(fc.array(part, { maxLength: 10 }), (parts) => {
      const text = parts.join('');
      const compiled = compileRange(text);
      if ('problem' in compiled) return compiled.problem !== '';
      const npm = new NpmRange(text);
      return versions.every((version) => compiled.satisfiedBy(version) === npm.test(version));
    }),
    { numRuns: 3_000 },
  );
  for (const piece of ['1', '-', '.', ' ', '||', '1.', '1 ', '1-', '1.1-a.', '>=', '^ ', '~>']) {
    const began = process.hrtime.bigint();
    compileRange(`1${piece.repeat(20_000)}x`);
    compileRange(`1${piece.repeat(Math.floor(250 / piece.length))}!`);
    if (process.hrtime.bigint() - began > 200_000_000n) throw new Error(`${JSON.stringify(piece)} repeated takes long`);
  }
});
