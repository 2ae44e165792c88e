/** proto/language/defaults.ts, merge.ts, compat.ts, schema-compat.ts; docs/generate-config.ts */
import t from 'tap';
import { configPage } from '../../../../docs/generate-config.ts';
import { breaks } from '../../../../proto/language/compat.ts';
import { DEFAULT_ROWS, DEFAULT_SETTINGS } from '../../../../proto/language/defaults.ts';
import { readTable } from '../../../../proto/language/document.ts';
import { mergeSettings, policiesFor, PolicyIndex, providerPolicyFor, specificity } from '../../../../proto/language/merge.ts';
import { schemaBreaks, type Side } from '../../../../proto/language/schema-compat.ts';
import type { Contract, JsonSchema, Policy, TableDocument } from '../../../../proto/language/types.ts';

const table = (document: unknown): TableDocument => {
  const reading = readTable(JSON.stringify(document), 'test');
  if ('problems' in reading) throw new Error(JSON.stringify(reading.problems));
  return reading.document;
};
const contract = (parts: object = {}): Contract =>
  table({ contracts: [{ name: 'crm.order.query', version: '1.0.0', acl: 'public', ...parts }] }).contracts[0] as Contract;
const policies = (...list: object[]): readonly Policy[] =>
  table({
    contracts: [{ name: 'crm.order.query', version: '1.0.0', acl: 'public' }],
    providers: [{ agent_id: 'crm.order.b1', offers: ['crm.order.query@1.0.0'], endpoint: { type: 'mock' } }],
    policies: list,
  }).policies;

t.test('every shipped default is stated here', async (t) => {
  t.same(DEFAULT_SETTINGS, {
    timeoutMs: 5_000,
    deadlineMs: 10_000,
    retry: { max: 1, backoffMs: 25, backoffMaxMs: 250, minRemainingRatio: 0.2 },
    breaker: {
      enabled: true,
      failureRatio: 0.5,
      windowMs: 60_000,
      slowRatio: 0.3,
      slowCallMs: 3_000,
      minCalls: 10,
      openMs: 120_000,
      probes: 3,
      successes: 1,
      ramp: [6, 12, 24],
      rampStepMs: 2_000,
    },
    limits: { perCaller: 64, perProvider: 128, requestBytes: 1_048_576, responseBytes: 8_388_608, eventBytes: 1_048_576 },
    streaming: { firstChunkMs: 30_000, idleMs: 60_000 },
    fallback: null,
    load: 'least_request',
    panic: false,
    locality: 'prefer',
    slowStartMs: 30_000,
  });
  t.ok(Object.isFrozen(DEFAULT_SETTINGS) && Object.isFrozen(DEFAULT_SETTINGS.breaker));
  for (const row of DEFAULT_ROWS)
    t.ok(row.reason.length > 10 && row.advice.length > 10 && row.shown.length > 0, `${row.key} has a reason and advice`);
  t.same(mergeSettings(contract(), []), DEFAULT_SETTINGS, 'and they hold when nobody says anything');
});

t.test('a stronger source wins field by field and leaves the rest', async (t) => {
  const settings = mergeSettings(
    contract({ timeout: '1s', retry: { max: 2 }, breaker: { open: '10s', min_calls: 5 }, fallback: 'none' }),
    policiesFor(
      'crm.order.query',
      policies(
        { capability: 'crm.order.query', breaker: { open: '20s' } },
        {
          capability: '*',
          breaker: { open: '30s', window: '30s' },
          timeout: '2s',
          panic: true,
          load: 'random',
          locality: 'ignore',
          slow_start: '0s',
          limits: { per_caller: 1 },
        },
      ),
    ),
    {
      breaker: { ...contract().breaker, minCalls: 7, enabled: false },
      limits: contract({ limits: { per_provider: 2 } }).limits,
      timeoutMs: 3_000,
      weight: null,
      drain: null,
    },
  );
  t.match(settings, {
    timeoutMs: 3_000,
    deadlineMs: 10_000,
    fallback: { chain: [] },
    panic: true,
    load: 'random',
    locality: 'ignore',
    slowStartMs: 0,
  });
  t.match(settings.breaker, { openMs: 20_000, windowMs: 30_000, minCalls: 7, enabled: false, failureRatio: 0.5 });
  t.same(settings.retry, { max: 2, backoffMs: 25, backoffMaxMs: 250, minRemainingRatio: 0.2 });
  t.match(settings.limits, { perCaller: 1, perProvider: 2 });
  t.ok(Object.isFrozen(settings) && Object.isFrozen(settings.breaker));
});

t.test('values that count as false are values all the same', async (t) => {
  const settings = mergeSettings(
    contract({ retry: { max: 0, backoff: '0s', min_remaining: 0 } }),
    policies({ capability: '*', panic: false, slow_start: '0s', breaker: { enabled: false, ramp: [] } }),
  );
  t.match(settings, { panic: false, slowStartMs: 0 });
  t.match(settings.retry, { max: 0, backoffMs: 0, minRemainingRatio: 0 });
  t.equal(settings.breaker.enabled, false);
  t.same(settings.breaker.ramp, []);
});

t.test('a backoff above the upper bound of another source raises the bound', async (t) => {
  t.match(mergeSettings(contract({ retry: { backoff: '1s' } }), []).retry, { backoffMs: 1_000, backoffMaxMs: 1_000 });
});

t.test('policies apply from the general pattern to the exact name, whatever their order in the file', async (t) => {
  const list = policies(
    { capability: 'crm.order.query' },
    { capability: 'crm.*' },
    { capability: '*' },
    { capability: 'crm.order.*' },
    { capability: 'nlp.*' },
  );
  t.same(
    policiesFor('crm.order.query', list).map((policy) => policy.capability),
    ['*', 'crm.*', 'crm.order.*', 'crm.order.query'],
  );
  t.same(
    policiesFor('crm.refund.apply', list).map((policy) => policy.capability),
    ['*', 'crm.*'],
  );
  t.same(
    policiesFor('crmx.order.query', list).map((policy) => policy.capability),
    ['*'],
  );
  t.equal(specificity('crm.ord.*', 'crm.order.query'), -1);
  const index = new PolicyIndex([...list, ...policies({ capability: 'crm.*', timeout: '1s' })]);
  for (const name of ['crm.order.query', 'crm.refund.apply', 'crmx.order.query', 'nlp.a', 'crm'])
    t.same(
      index.covering(name),
      policiesFor(name, [...list, ...policies({ capability: 'crm.*', timeout: '1s' })]),
      `${name}: the same for many`,
    );
});

t.test('what policies say for one provider is merged the same way', async (t) => {
  const list = policiesFor(
    'crm.order.query',
    policies(
      { capability: 'crm.order.query', providers: { 'crm.order.b1': { weight: 0, breaker: { open: '1s' } } } },
      { capability: '*', providers: { 'crm.order.b1': { weight: 5, drain: true, breaker: { open: '9s', probes: 2 } } } },
    ),
  );
  t.match(providerPolicyFor('crm.order.b1', list), { weight: 0, drain: true, timeoutMs: null, breaker: { openMs: 1_000, probes: 2 } });
  t.equal(providerPolicyFor('crm.order.b2', list), null);
  t.equal(providerPolicyFor('constructor', list), null);
});

const object = (properties: object, more: object = {}): JsonSchema => ({ type: 'object', properties, ...more });

t.test('the guard names every way in which an input or output breaks callers', async (t) => {
  const text = { type: 'string' };
  const cases: [Side, JsonSchema | null, JsonSchema | null, RegExp][] = [
    [
      'input',
      object({ a: text, b: text }),
      object({ a: text }, { additionalProperties: false }),
      /^input \/b was removed, and is refused now$/,
    ],
    ['input', object({ a: text }), object({ a: text }, { required: ['a'] }), /^input \/a is newly required$/],
    ['input', object({ a: { type: ['string', 'null'] } }), object({ a: text }), /\/a no longer takes the type null/],
    ['input', object({ a: { type: 'number' } }), object({ a: { type: 'integer' } }), /no longer takes the type number/],
    ['input', object({ a: { enum: ['x', 'y'] } }), object({ a: { enum: ['x'] } }), /no longer takes: "y"/],
    ['input', object({ a: text }), object({ a: { type: 'string', enum: ['x'] } }), /takes only certain values/],
    [
      'input',
      object({ a: { type: 'string', maxLength: 10 } }),
      object({ a: { type: 'string', maxLength: 5 } }),
      /tighter maxLength \(10 before, 5 now\)/,
    ],
    ['input', object({ a: { type: 'number' } }), object({ a: { type: 'number', minimum: 1 } }), /tighter minimum \(none before, 1 now\)/],
    ['input', object({ a: text }), object({ a: { type: 'string', pattern: '^x' } }), /another pattern/],
    [
      'input',
      object({ a: text }),
      object({ a: text }, { additionalProperties: false }),
      /no longer takes properties that it does not name/,
    ],
    [
      'input',
      object({ a: { type: 'array', items: text } }),
      object({ a: { type: 'array', items: { type: 'number' } } }),
      /\/a\/- no longer takes the type string/,
    ],
    ['input', object({ a: object({ b: text }) }), object({ a: object({ b: { type: 'number' } }) }), /\/a\/b no longer takes/],
    ['input', null, object({}), /takes only object now/],
    ['input', { anyOf: [text, { type: 'number' }] }, { anyOf: [text] }, /alternative 1 of anyOf/],
    [
      'input',
      object({ a: { $ref: '#/$defs/x' } }, { $defs: { x: text } }),
      object({ a: { $ref: '#/$defs/x' } }, { $defs: { x: { type: 'number' } } }),
      /\/a no longer takes the type string/,
    ],
    ['input', text, false, /no longer taken/],
    ['output', object({ a: text, b: text }), object({ a: text }), /^output \/b was removed$/],
    ['output', object({ a: text }, { required: ['a'] }), object({ a: text }), /^output \/a is no longer always there$/],
    ['output', object({ a: text }), object({ a: { type: ['string', 'null'] } }), /can be of the type null now/],
    ['output', object({ a: { type: 'integer' } }), object({ a: { type: 'number' } }), /can be of the type number/],
    ['output', object({ a: { enum: ['x'] } }), object({ a: { enum: ['x', 'y'] } }), /has new values: "y"/],
    ['output', object({ a: { enum: ['x'] } }), object({ a: text }), /can be any now/],
    ['output', object({ a: { type: 'number', maximum: 10 } }), object({ a: { type: 'number', maximum: 100 } }), /had the maximum 10/],
    ['output', object({ a: text }), null, /can be any type now/],
    ['output', { anyOf: [text] }, { anyOf: [text, { type: 'number' }] }, /new alternative 1 of anyOf/],
  ];
  for (const [side, earlier, later, expected] of cases) {
    const found = schemaBreaks(side, earlier, later);
    t.ok(
      found.some((each) => expected.test(each)),
      `${JSON.stringify(earlier)} > ${JSON.stringify(later)}: ${found.join(' | ')}`,
    );
  }
});

t.test('what callers do not feel breaks nothing', async (t) => {
  const text = { type: 'string' };
  const cases: [Side, JsonSchema | null, JsonSchema | null][] = [
    ['input', object({ a: text }), object({ a: text, b: text })],
    ['input', object({ a: text }, { required: ['a'] }), object({ a: text })],
    ['input', object({ a: { type: 'integer' } }), object({ a: { type: 'number' } })],
    ['input', object({ a: text, b: text }), object({ a: text })],
    ['input', object({ a: { enum: ['x'] } }), object({ a: { enum: ['x', 'y'] } })],
    ['input', object({ a: { type: 'string', maxLength: 5 } }), object({ a: { type: 'string', maxLength: 10 } })],
    ['input', object({ a: { const: 'x' } }), object({ a: { enum: ['x', 'y'] } })],
    ['input', object({}), null],
    ['input', { anyOf: [text] }, { anyOf: [text, { type: 'number' }] }],
    ['input', object({ a: { ...text, description: 'old' } }), object({ a: { description: 'new', ...text } })],
    [
      'input',
      object({ n: { $ref: '#/$defs/n' } }, { $defs: { n: object({ n: { $ref: '#/$defs/n' } }) } }),
      object({ n: { $ref: '#/$defs/n' } }, { $defs: { n: object({ n: { $ref: '#/$defs/n' }, x: text }) } }),
    ],
    ['output', object({ a: text }), object({ a: text, b: text })],
    ['output', object({ a: text }), object({ a: text }, { required: ['a'] })],
    ['output', object({ a: { type: ['string', 'null'] } }), object({ a: text })],
    ['output', object({ a: { type: 'number' } }), object({ a: { type: 'integer', minimum: 0 } })],
    ['output', null, object({ a: text })],
    ['output', true, true],
  ];
  for (const [side, earlier, later] of cases)
    t.same(schemaBreaks(side, earlier, later), [], `${side} ${JSON.stringify(earlier)} > ${JSON.stringify(later)}`);
});

t.test('the guard holds within one major only, and below 1.0.0 within one minor', async (t) => {
  const at = (version: string, schema: object): Contract => contract({ version, input: schema });
  const broken = (from: string, to: string): boolean => breaks(at(from, { type: 'object' }), at(to, { type: 'string' })).length > 0;
  for (const [from, to, isBroken] of [
    ['1.0.0', '1.1.0', true],
    ['1.0.0', '1.0.1', true],
    ['1.0.0', '2.0.0', false],
    ['1.1.0', '1.0.0', false],
    ['0.1.0', '0.1.1', true],
    ['0.1.0', '0.2.0', false],
    ['1.1.0-rc.1', '1.1.0', false],
    ['1.0.0', '1.1.0-rc.1', true],
  ] as const)
    t.equal(broken(from, to), isBroken, `${from} > ${to}`);
});

t.test('weaker execution, a newly required key and a lost stream break too', async (t) => {
  const later = (parts: object): Contract => contract({ version: '1.1.0', ...parts });
  t.match(breaks(contract({ execution: 'idempotent' }), later({})), [/execution was idempotent and is once/]);
  t.match(breaks(contract({ execution: 'keyed' }), later({})), [/execution was keyed and is once/]);
  t.same(breaks(contract({}), later({ execution: 'idempotent' })), []);
  t.match(breaks(contract({}), later({ affinity: { required: true, from: '/s' } })), [/affinity is newly required/]);
  t.match(breaks(contract({ streaming: true }), later({})), [/streaming is no longer offered/]);
  t.match(breaks(contract({ streaming: { idle: '5s' } }), later({ streaming: false })), [/streaming is no longer offered/]);
  const done = { streaming: { done: '[DONE]' } };
  t.match(breaks(contract(done), later({ streaming: true })), [/the end of the stream was told by "\[DONE\]" and no longer is/]);
  t.match(breaks(contract(done), later({ streaming: { done: 'end' } })), [/was told by "\[DONE\]"/]);
  t.same(breaks(contract({ streaming: true }), later(done)), [], 'to begin to tell it breaks nobody');
  t.same(breaks(contract({ streaming: { idle: '90s' } }), later({ streaming: { idle: '5s' } })), [], 'and patience is no promise');
  t.same(breaks(contract({}), later({ streaming: true })), []);
});

t.test('how long a stream may keep its reader waiting: default, contract, then the policies', async (t) => {
  const said = contract({ streaming: { done: 'x', first_chunk: '5s' }, limits: { event: '2MiB' } });
  t.same(mergeSettings(said, []).streaming, { firstChunkMs: 5_000, idleMs: 60_000 });
  t.equal(mergeSettings(said, []).limits.eventBytes, 2_097_152);
  const list = policies(
    { capability: '*', streaming: { first_chunk: '7s', idle: '9s' } },
    { capability: 'crm.order.query', streaming: { idle: '1s' } },
  );
  t.same(mergeSettings(said, policiesFor('crm.order.query', list)).streaming, { firstChunkMs: 7_000, idleMs: 1_000 });
  t.same(mergeSettings(contract({ streaming: true }), []).streaming, DEFAULT_SETTINGS.streaming);
  t.same(mergeSettings(contract({}), []).streaming, DEFAULT_SETTINGS.streaming, 'any capability can be asked for a stream');
});

t.test('the page of the configuration names every key with its default', async (t) => {
  const page = configPage();
  for (const row of DEFAULT_ROWS) t.ok(page.includes(`| \`${row.key}\` |`), row.key);
  for (const part of [
    '`breaker.failure_ratio`',
    '`max_hops`',
    '`127.0.0.1:7700`',
    '`endpoint.credential.secret`',
    '`providers.<key>.weight`',
    '`callers[].token`',
    '`100000`',
  ])
    t.ok(page.includes(part), part);
  t.notMatch(page, /undefined|\[object/);
});
