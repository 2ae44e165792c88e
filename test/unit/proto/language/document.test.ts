/** proto/language/document.ts and what it reads: contract, provider, policy, override, cross-check, fallback-check. */
import t from 'tap';
import { compileSchema } from '../../../../base/json-schema.ts';
import { documentSchema, readTable } from '../../../../proto/language/document.ts';
import { readRegistration } from '../../../../proto/language/registration.ts';
import type { TableDocument } from '../../../../proto/language/types.ts';

const read = (text: string, own: string | null = null): TableDocument => {
  const reading = readTable(text, 'team.yaml', own);
  if ('problems' in reading)
    throw new Error(reading.problems.map((each) => `${each.line}:${each.column} ${each.path} ${each.message}`).join('\n'));
  return reading.document;
};
const problems = (text: string, own: string | null = null): string[] => {
  const reading = readTable(text, 'team.yaml', own);
  return 'problems' in reading ? reading.problems.map((each) => `${each.line}:${each.column} ${each.path} ${each.message}`) : [];
};

const QUERY = `
  - name: crm.order.query
    version: "2.0.0"
    acl: public`;
const B1 = `
  - agent_id: crm.order.b1
    offers: ["crm.order.query@2.0.0"]
    endpoint: {type: http, address: "http://127.0.0.1:9000"}`;
const base = (contract = '', provider = '', rest = ''): string => `contracts:${QUERY}${contract}\nproviders:${B1}${provider}\n${rest}`;
const inContract = (lines: string): string[] => problems(base(`\n    ${lines}`));
const inProvider = (lines: string): string[] => problems(base('', `\n    ${lines}`));
const inPolicy = (lines: string): string[] => problems(base('', '', `policies:\n  - capability: crm.order.query\n    ${lines}`));
const inOverride = (lines: string): string[] => problems(base('', '', `overrides:\n  - {name: o1, reason: because, ${lines}}`));

t.test('a whole table is read into its normal form, frozen', async (t) => {
  const document = read(`
contracts:
  - name: crm.order.query
    version: "2.0.0"
    description: Where is my order?
    examples: [{id: "o1"}]
    aliases: [orders, order.query]
    tags: {lang: de}
    input: {type: object, required: [id], properties: {id: {type: string}}}
    output: true
    execution: idempotent
    affinity: {required: true, from: "header: X-Session", mode: strict}
    timeout: 800ms
    deadline: 4s
    retry: {max: 2, backoff: 10ms, backoff_max: 100ms, min_remaining: 25%}
    breaker: {enabled: true, failure_ratio: 40%, window: 30s, slow_ratio: 0.2, slow_call: 200ms, min_calls: 5, open: 10s, probes: 2, successes: 2, ramp: [1, 2], ramp_step: 1s}
    limits: {per_caller: 8, per_provider: 16, request: 64KB, response: 1MiB}
    fallback:
      - capability: crm.order.cached@^1
      - provider: crm.order.b1
      - static: {text: try later}
    acl: ["crm.*.*", "role:planner"]
    streaming: true
    success: {definitely: [{status: 404}, {pointer: /items, empty: true}], unless: [{pointer: /confidence, below: 0.3}]}
  - {name: crm.order.cached, version: "1.2.0", acl: public, fallback: none, affinity: {from: /session/id}}
providers:
  - agent_id: crm.order.b1
    offers: ["crm.order.query@2.0.0", "crm.order.cached@1.2.0"]
    tags: {tier: gold}
    target: {lang: de}
    endpoint: {type: http, address: "http://127.0.0.1:9000/base/", path: "/call/{capability}/{version}"}
    locality: {region: eu, zone: eu-1}
    weight: 0.4
    tier: backup
    via: s1
    limits: {per_provider: 3}
    drain: true
    health_check: {path: /health, interval: 10s}
  - agent_id: ext.bank.api
    offers: ["crm.order.query@2.0.0"]
    weight: 0
    endpoint:
      type: http
      address: https://api.test/v1
      mapping:
        crm.order.query: {method: GET, path: "/orders/{/order/id}", query: {full: "true"}, headers: {X-Version: "{/v}"}}
        "*": {path: /any, body: {order: "{/order/id}", fixed: 1}}
      credential: {header: X-Api-Key, prefix: "Key ", secret: {env: BANK_KEY}}
  - {agent_id: lab.mock.m1, offers: ["crm.order.query@2.0.0"], endpoint: {type: mock, latency: 20ms, script: [1, 2]}}
policies:
  - capability: crm.order.query
    default_range: ^2
    canary: {"2.0.0": 5%}
    load: round_robin
    panic: true
    locality: ignore
    slow_start: 0s
    providers: {crm.order.b1: {weight: 2, drain: false, timeout: 1s, breaker: {open: 5s}, limits: {per_provider: 1}}}
  - {capability: "crm.*", timeout: 1s, fallback: none}
overrides:
  - {name: stop, action: block, capability: "crm.order.*", caller: "team:x", reason: incident 7, author: ann, expires: "2030-01-31T18:00:00+01:00"}
  - {name: soft, action: degrade, capability: crm.order.query, data: null, reason: test}
  - {name: away, action: reroute, capability: crm.order.query, to: crm.order.cached, reason: test}
sidecars:
  - {name: s1, mesh: "http://127.0.0.1:9001/"}
`);
  const [query, cached] = document.contracts;
  t.match(query, {
    name: 'crm.order.query',
    execution: 'idempotent',
    timeoutMs: 800,
    deadlineMs: 4_000,
    streaming: { done: null, firstChunkMs: null, idleMs: null },
    aliases: ['orders', 'order.query'],
  });
  t.same(query?.affinity, { required: true, from: { header: 'x-session' }, mode: 'strict' });
  t.same(query?.retry, { max: 2, backoffMs: 10, backoffMaxMs: 100, minRemainingRatio: 0.25 });
  t.same(query?.breaker, {
    enabled: true,
    failureRatio: 0.4,
    windowMs: 30_000,
    slowRatio: 0.2,
    slowCallMs: 200,
    minCalls: 5,
    openMs: 10_000,
    probes: 2,
    successes: 2,
    ramp: [1, 2],
    rampStepMs: 1_000,
  });
  t.same(query?.limits, { perCaller: 8, perProvider: 16, requestBytes: 64_000, responseBytes: 1_048_576, eventBytes: null });
  t.same(
    query?.fallback?.chain.map((step) => step.kind),
    ['capability', 'provider', 'static'],
  );
  t.same(
    query?.acl.patterns.map((pattern) => pattern.text),
    ['crm.*.*', 'role:planner'],
  );
  t.match(query?.success?.definitely, [
    { status: 404, pointer: null },
    { pointer: '/items', empty: true },
  ]);
  t.equal(query?.success?.definitely[0]?.equals, undefined);
  t.same(cached?.fallback, { chain: [] }, 'none is an empty chain, said on purpose');
  t.same(cached?.affinity, { required: false, from: { pointer: '/session/id' }, mode: 'soft' });
  t.same(cached?.acl, { isPublic: true, patterns: [] });
  t.equal(cached?.execution, 'once');
  const [own, third, mock] = document.providers;
  t.match(own, {
    agentId: 'crm.order.b1',
    team: 'crm',
    role: 'order',
    region: 'eu',
    zone: 'eu-1',
    weight: 0.4,
    tier: 'backup',
    via: 's1',
    drain: true,
  });
  t.same(own?.healthCheck, { path: '/health', intervalMs: 10_000 });
  t.equal(own?.endpoint.address, 'http://127.0.0.1:9000/base', 'no slash at the end');
  t.equal(third?.weight, 0);
  t.match(third?.endpoint.mapping['crm.order.query'], { method: 'GET', body: 'none', headers: { 'x-version': '{/v}' } });
  t.match(third?.endpoint.mapping['*'], { method: 'POST', body: { template: { order: '{/order/id}', fixed: 1 } } });
  t.same(third?.endpoint.credential, { header: 'x-api-key', prefix: 'Key ', secret: { env: 'BANK_KEY' } });
  t.match(
    mock?.endpoint,
    { type: 'mock', address: '', options: { latency: '20ms', script: [1, 2] } },
    'what the transport checks itself is kept',
  );
  t.match(mock, { weight: 1, tier: 'primary', via: null, region: null });
  const [exact, wide] = document.policies;
  t.match(exact, { defaultRange: '^2', load: 'round_robin', panic: true, locality: 'ignore', slowStartMs: 0, timeoutMs: null });
  t.same({ ...exact?.canary }, { '2.0.0': 0.05 });
  t.match(exact?.providers['crm.order.b1'], { weight: 2, drain: false, timeoutMs: 1_000 });
  t.match(wide, { capability: 'crm.*', timeoutMs: 1_000, fallback: { chain: [] }, load: null });
  t.equal(document.overrides[0]?.expiresAtMs, Date.UTC(2030, 0, 31, 17));
  t.same(document.sidecars, [{ name: 's1', mesh: 'http://127.0.0.1:9001' }]);
  t.ok(
    Object.isFrozen(document) && Object.isFrozen(document.contracts) && Object.isFrozen(query?.breaker) && Object.isFrozen(own?.endpoint),
  );
});

t.test('JSON is read as YAML is', async (t) => {
  const document = read(JSON.stringify({ contracts: [{ name: 'a.b.c', version: '1.0.0', acl: 'public' }] }, null, '\t'));
  t.equal(document.contracts[0]?.name, 'a.b.c');
  t.same(read('contracts: []'), { contracts: [], providers: [], policies: [], overrides: [], sidecars: [] });
});

t.test('all problems of a file are named at once, each at its place, and no document comes out', async (t) => {
  const found = problems(`contracts:
  - name: crm.Order.query
    version: 2.0
    fallbak: none
    streaming: yes
providers:
  - agent_id: crm.order
    offers: []
    weight:
polices: []
`);
  for (const expected of [
    /^5:16 /,
    /^10:1 /,
    /^4:5 /,
    /^2:11 /,
    /^3:14 /,
    /^2:5 /,
    /^7:15 /,
    /^8:13 /,
    /^9:5 .*weight is empty/,
    /^7:5 .*endpoint is missing/,
  ])
    t.ok(
      found.some((each) => expected.test(each)),
      String(expected),
    );
  t.equal(found.length, 10, 'and nothing is named twice');
});

t.test('the list of problems is bounded', async (t) => {
  t.equal(problems(`contracts:\n${Array.from({ length: 500 }, (_, i) => `  - {name: "x${i}", version: 1}`).join('\n')}`).length, 50);
});

t.test('an empty file, a list or a text is no table', async (t) => {
  t.match(problems(''), [/the file is empty/]);
  t.match(problems('# only a comment\n'), [/the file is empty/]);
  t.match(problems('[1]'), [/not a list/]);
  t.match(problems('hello'), [/not "hello"/]);
  t.match(problems('contracts:\n'), [/contracts is empty/]);
  t.match(problems('contracts: {a: 1}\n'), [/contracts must be a list/]);
  t.match(problems('contracts: [5]\n'), [/\/contracts\/0 .*must be a map/]);
});

t.test('an unknown or misplaced key is refused with the nearest one or with where it belongs', async (t) => {
  t.match(inContract('max: 2'), [/unknown key "max": it belongs under retry/]);
  t.match(inContract('weight: 2'), [/unknown key "weight": it belongs under a provider/]);
  t.match(inContract('retry: {timeout: 1s}'), [/unknown key "timeout": it belongs under a contract or a policy/]);
  t.match(inProvider('retry: {max: 2}'), [/\/providers\/0\/retry unknown key "retry": it belongs under a contract or a policy/]);
  t.match(inProvider('priority: high'), [/unknown key "priority": known are agent_id/]);
  t.match(inPolicy('fallbak: none'), [/did you mean fallback\?/]);
  t.match(inPolicy('acl: public'), [/it belongs under a contract/]);
  t.match(problems(base('', '', 'retry: {max: 1}')), [/unknown key "retry": it belongs under a contract or a policy/]);
});

t.test('a stream is declared by a word or by a map, and nothing else', async (t) => {
  const streaming = (text: string): unknown => read(base(`\n    streaming: ${text}`)).contracts[0]?.streaming;
  t.same(streaming('true'), { done: null, firstChunkMs: null, idleMs: null });
  t.equal(streaming('false'), null);
  t.same(streaming('{}'), { done: null, firstChunkMs: null, idleMs: null });
  t.same(streaming('{done: "[DONE]", first_chunk: 5s, idle: 1m}'), { done: '[DONE]', firstChunkMs: 5_000, idleMs: 60_000 });
  for (const [text, words] of [
    ['"yes"', /streaming must be true, false, or a map such as \{done/],
    ['[true]', /must be true, false, or a map/],
    ['5s', /must be true, false, or a map/],
    ['{done: true}', /an unquoted true is a boolean: quote it/],
    ['{done: [DONE]}', /done must be the name or the data of an event/],
    ['{done: ""}', /done is empty/],
    ['{done: " x"}', /without blanks around it/],
    ['{done: "a\\nb"}', /one line of text/],
    [`{done: ${'x'.repeat(257)}}`, /longer than 256 bytes/],
    ['{idle: 5}', /idle must be a duration .*unit/],
    ['{idle: 0s}', /idle must be from 1ms/],
    ['{first_chunk: -1s}', /first_chunk must be a duration/],
    ['{firstchunk: 1s}', /did you mean first_chunk\?/],
  ] as const)
    t.match(inContract(`streaming: ${text}`), [words], text);
  t.match(inPolicy('streaming: {done: x}'), [/unknown key "done"/]);
  t.match(inPolicy('streaming: true'), [/must be a map/]);
  t.match(inContract('limits: {event: 5}'), [/event must be a size|event must be from/]);
});

t.test('every absurd breaker setting is refused by name with its range', async (t) => {
  const table: [string, RegExp][] = [
    ['half_open_max: 0', /unknown key "half_open_max": known are .*probes/],
    ['probes: 0', /probes must be a whole number from 1 to 100, not 0/],
    ['failure_ratio: 0', /failure_ratio must be a ratio above 0, up to 1/],
    ['failure_ratio: 101', /failure_ratio must be a ratio above 0, up to 1/],
    ['failure_ratio: 101%', /failure_ratio must be a ratio above 0, up to 1/],
    ['slow_ratio: NaN', /slow_ratio must be a ratio above 0, up to 1/],
    ['slow_ratio: .nan', /slow_ratio must be a ratio above 0, up to 1/],
    ['window: 0', /window must be a duration from 1s to 1h/],
    ['window: 0s', /window must be from 1s to 1h/],
    ['min_calls: 0', /min_calls must be a whole number from 1 to 100000, not 0/],
    ['min_calls: 2.5', /min_calls must be a whole number/],
    ['min_calls: "50%"', /min_calls must be a whole number/],
    ['min_calls: .nan', /min_calls must be a whole number .*not NaN/],
    ['open: -1', /open must be a duration from 100ms to 24h/],
    ['open: -1s', /open must be a duration .*negative/],
    ['open: "50%"', /open must be a duration/],
    ['successes: 0', /successes must be a whole number from 1/],
    ['ramp: [0]', /ramp must be a whole number from 1/],
    ['ramp: [4, 2]', /ramp must not go down/],
    ['ramp_step: 1', /ramp_step must be a duration/],
    ['slow_call: 0ms', /slow_call must be from 1ms/],
    ['enabled: 1', /enabled must be true or false, not 1/],
  ];
  for (const [line, expected] of table) {
    const found = inContract(`breaker: {${line}}`);
    t.equal(found.length, 1, line);
    t.match(found[0], expected, line);
    t.match(found[0], /^5:\d+ \/contracts\/0\/breaker\//);
  }
  t.same(inContract('breaker: {failure_ratio: "50%", slow_ratio: 1, ramp: []}'), []);
});

t.test('durations, retries, limits and affinity are checked with their ranges', async (t) => {
  for (const [line, expected] of [
    ['timeout: 5', /has no unit/],
    ['timeout: 31d', /at most 30 days/],
    ['timeout: 0s', /timeout must be from 1ms/],
    ['deadline: soon', /not a duration/],
    ['retry: {max: 3}', /max must be a whole number from 0 to 2, not 3/],
    ['retry: 1', /retry must be a map/],
    ['retry: {backoff: 1s, backoff_max: 500ms}', /backoff_max must not be shorter/],
    ['retry: {min_remaining: 20}', /out of range/],
    ['limits: {per_caller: 0}', /per_caller must be a whole number from 1/],
    ['limits: {request: 2GiB}', /request must be from 1B to 1GiB/],
    ['limits: {request: 1M}', /not a size/],
    ['affinity: {required: true}', /from is missing/],
    ['affinity: {from: session}', /header:<name> or a JSON pointer/],
    ['affinity: {from: "header:x y"}', /not a header name/],
    ['affinity: {from: "/a~2"}', /~0/],
    ['affinity: {from: /a, mode: hard}', /mode must be one of soft, strict/],
    ['execution: idempotnet', /did you mean idempotent\?/],
    ['success: {definitely: [{}]}', /needs at least one/],
    ['success: {definitely: [{pointer: /a}]}', /needs one of/],
    ['success: {definitely: [{status: 99}]}', /from 100 to 599/],
    ['input: {type: objct}', /input is not a usable JSON Schema/],
    ['input: {pattern: "(a+)+$"}', /exponential/],
    ['input: "string"', /must be a JSON Schema/],
    ['examples: [.inf]', /number that JSON cannot hold/],
    ['tags: {lang: 5}', /quote it/],
    ['description: ""', /description is empty/],
    ['aliases: ["a b"]', /not an alias/],
    ['aliases: [crm.order.query]', /the contract's own name/],
    ['version: "2.0"', /stands here twice/],
  ] as const) {
    const found = inContract(line);
    t.equal(found.length, 1, line);
    t.match(found[0], expected, line);
  }
});

t.test('a contract without acl is refused, and so is an acl that lets nobody in or is not understood', async (t) => {
  t.match(problems('contracts:\n  - {name: a.b.c, version: "1.0.0"}\n'), [/acl is missing: who may call/]);
  for (const [acl, expected] of [
    ['[]', /at least one/],
    ['publik', /the word public or a list/],
    ['["crm.*"]', /pattern of agents/],
    ['', /acl is empty/],
    ['true', /acl must be public/],
  ] as const) {
    t.match(problems(`contracts:\n  - name: a.b.c\n    version: "1.0.0"\n    acl: ${acl}\n`), [expected], acl);
  }
  t.match(problems('contracts:\n  - name: a.b.c\n    version: "1.0.0"\n    acl: {team: crm}\n'), [
    /unknown key "team": known are allow, mode/,
    /allow is missing: who may call/,
  ]);
});

t.test('a weight is kept exactly, and an empty or negative one is refused', async (t) => {
  for (const [text, weight] of [
    ['0', 0],
    ['0.4', 0.4],
    ['100', 100],
    ['0.0', 0],
  ] as const)
    t.equal(read(base('', `\n    weight: ${text}`)).providers[0]?.weight, weight);
  t.match(inProvider('weight:'), [/weight is empty/]);
  t.match(inProvider('weight: null'), [/weight is empty/]);
  t.match(inProvider('weight: ""'), [/weight must be a number from 0 to 1000000, not an empty text/]);
  t.match(inProvider('weight: -1'), [/weight must be a number from 0/]);
  t.match(inProvider('weight: .nan'), [/not NaN/]);
  t.match(inPolicy('providers: {crm.order.b1: {weight: null}}'), [/weight is empty/]);
  t.equal(
    read(base('', '', 'policies: [{capability: crm.order.query, providers: {crm.order.b1: {weight: 0}}}]')).policies[0]?.providers[
      'crm.order.b1'
    ]?.weight,
    0,
  );
});

t.test('an endpoint is a plain http address, and secrets stand elsewhere', async (t) => {
  const at = (endpoint: string): string[] =>
    problems(
      `contracts:${QUERY}\nproviders:\n  - agent_id: crm.order.b1\n    offers: ["crm.order.query@2.0.0"]\n    endpoint: ${endpoint}\n`,
    );
  for (const [endpoint, expected] of [
    ['{type: http, address: "http://user:pass@x.test"}', /must not hold a user name or password/],
    ['{type: http, address: "ftp://x.test"}', /begins with http:\/\/ or https:\/\//],
    ['{type: http, address: "file:///etc/passwd"}', /begins with http/],
    ['{type: http, address: "x.test:80"}', /http/],
    ['{type: http, address: "http://x.test/?a=b"}', /no query/],
    ['{type: http, address: "http://x.test/a b"}', /no spaces/],
    ['{type: http}', /address is missing/],
    ['{address: "http://x.test"}', /type is missing/],
    ['http://x.test', /endpoint must be a map/],
    ['{type: http, address: "http://x.test", latency: 5ms}', /unknown key "latency"/],
    ['{type: http, address: "http://x.test", path: "call"}', /a path begins with \//],
    ['{type: http, address: "http://x.test", path: "/a/../b"}', /\. or \.\. parts/],
    ['{type: http, address: "http://x.test", path: "/{name}"}', /cannot be filled/],
    ['{type: http, address: "http://x.test", path: "/{/id}"}', /use a mapping/],
    ['{type: http, address: "http://x.test", credential: {secret: topsecret}}', /a reference to a secret/],
    [
      '{type: http, address: "http://x.test", mapping: {"*": {path: /, headers: {Authorization: "Bearer topsecret"}}}}',
      /a secret does not stand in this file/,
    ],
    ['{type: http, address: "http://x.test", mapping: {"*": {path: /, headers: {x-vendor-token: topsecret}}}}', /under credential/],
    ['{type: http, address: "http://x.test", mapping: {"*": {path: /, query: {api_key: topsecret}}}}', /under credential/],
    ['{type: http, address: "http://x.test", credential: {header: Host, secret: {env: A}}}', /set by the sidecar itself/],
    ['{type: http, address: "http://x.test", credential: {secret: {env: "A B"}}}', /environment variable/],
    ['{type: http, address: "http://x.test", mapping: {crm.order.query: {path: "/{id}"}}}', /cannot be filled/],
    ['{type: http, address: "http://x.test", mapping: {crm.order.query: {path: "/{/id"}}}', /\{ without|without its/],
    [
      '{type: http, address: "http://x.test", mapping: {crm.order.query: {method: GET, path: /a, body: payload}}}',
      /GET request has no body/,
    ],
    [
      '{type: http, address: "http://x.test", mapping: {crm.order.query: {path: /a, headers: {Reach-Caller: x}}}}',
      /set by the sidecar itself/,
    ],
    ['{type: http, address: "http://x.test", mapping: {crm.order.query: {path: /a, headers: {x-a: "b\\r\\nc"}}}}', /one line|control/],
    ['{type: http, address: "http://x.test", mapping: {crm.order.refund: {path: /a}}}', /does not offer/],
    ['{type: HTTP, address: "http://x.test"}', /not the name of a transport/],
  ] as const) {
    const found = at(endpoint);
    t.ok(found.length >= 1, endpoint);
    t.ok(
      found.some((each) => expected.test(each)),
      `${endpoint}: ${found.join(' | ')}`,
    );
    t.notMatch(found.join(), /user:pass|topsecret/, 'a secret is not repeated');
  }
});

t.test('what a provider offers must exist, and the refusal lists what does', async (t) => {
  const offers = (text: string): string[] =>
    problems(`contracts:${QUERY}\nproviders:\n  - agent_id: crm.order.b1\n    offers: [${text}]\n    endpoint: {type: mock}\n`);
  t.match(offers('"crm.ordr.query@2.0.0"'), [
    /^7:14 \/providers\/0\/offers\/0 no contract is called "crm.ordr.query"; did you mean crm.order.query\?/,
  ]);
  t.match(offers('"bank.pay.now@1.0.0"'), [/there are crm.order.query/]);
  t.match(offers('"crm.order.query@3.0.0"'), [/crm.order.query has no version 3.0.0; it has 2.0.0/]);
  t.match(offers('"crm.order.query"'), [/names no version/]);
  t.match(offers('"crm.order.query@^2"'), [/not an exact version/]);
  t.match(offers('"crm.order.query@2.0.0", "crm.order.query@2.0.0"'), [/offered twice/]);
  t.same(
    problems(`contracts:\n  - {name: crm.order.query, version: "2.0.0", acl: nobody}\nproviders:${B1}\n`).length,
    1,
    'a contract that is bad itself is not named again by those who offer it',
  );
});

t.test('nothing stands twice: contracts, agents, aliases, policies, overrides, sidecars', async (t) => {
  t.match(problems(`contracts:${QUERY}${QUERY}\n`), [
    /^6:14 \/contracts\/1\/version crm.order.query@2.0.0 is defined twice \(first at line 2\)/,
  ]);
  t.match(problems(`contracts:${QUERY}\nproviders:${B1}${B1}\n`), [/the agent crm.order.b1 is listed twice \(first at line 6\)/]);
  t.match(
    problems(
      'contracts:\n  - {name: a.b.c, version: "1.0.0", acl: public, aliases: [x]}\n  - {name: a.b.d, version: "1.0.0", acl: public, aliases: [x]}\n',
    ),
    [/the alias x belongs to a.b.c already/],
  );
  t.same(
    problems(
      'contracts:\n  - {name: a.b.c, version: "1.0.0", acl: public, aliases: [x]}\n  - {name: a.b.c, version: "1.1.0", acl: public, aliases: [x]}\n',
    ),
    [],
    'versions of one contract share an alias',
  );
  t.match(
    problems(
      'contracts:\n  - {name: a.b.c, version: "1.0.0", acl: public, aliases: [a.b.d]}\n  - {name: a.b.d, version: "1.0.0", acl: public, aliases: [a.b.c]}\n',
    ),
    [/a.b.d is the name of another contract/, /a.b.c is the name of another contract/],
    'aliases cannot run in a circle',
  );
  t.match(problems(base('', '', 'policies: [{capability: crm.*}, {capability: crm.*, panic: true}]')), [
    /there is a policy for crm.\* already \(line \d+\)/,
  ]);
  t.match(
    problems(
      base(
        '',
        '',
        'overrides: [{name: a, action: block, capability: "*", reason: x}, {name: a, action: block, capability: "*", reason: x}]',
      ),
    ),
    [/there is an override a already/],
  );
  t.match(problems(base('', '', 'sidecars: [{name: a, mesh: "http://a.test"}, {name: a, mesh: "http://b.test"}]')), [/listed twice/]);
});

t.test('via names a sidecar that is listed, or the one that reads the file', async (t) => {
  t.match(inProvider('via: s9'), [/the sidecar "s9" is not listed under sidecars/]);
  t.match(problems(base('', '\n    via: s2', 'sidecars: [{name: s1, mesh: "http://127.0.0.1:1"}]')), [/did you mean s1\?/]);
  t.same(problems(base('', '\n    via: s9'), 's9'), []);
  t.match(problems(base('', '', 'sidecars: [{name: s1, mesh: "http://127.0.0.1:1/x"}]')), [/without a path/]);
});

t.test('a policy names what exists, and shares of traffic add up', async (t) => {
  t.match(problems(base('', '', 'policies: [{capability: crm.ordr.query}]')), [/did you mean crm.order.query\?/]);
  t.match(problems(base('\n    aliases: [orders.all.now]', '', 'policies: [{capability: orders.all.now}]')), [
    /is an alias: write crm.order.query/,
  ]);
  for (const bad of ['crm', 'crm.order.que*', '*.order.query', 'crm.*.query', 'crm.order.query.*', '**'])
    t.match(problems(base('', '', `policies: [{capability: "${bad}"}]`)), [/pattern of capabilities/], bad);
  t.match(inPolicy('default_range: ^3'), [/crm.order.query has no version that meets "\^3"; it has 2.0.0/]);
  for (const bad of ['"||"', '"^1 ||"', 'latest', '""']) t.equal(inPolicy(`default_range: ${bad}`).length, 1, bad);
  t.match(inPolicy('default_range: 2.0'), [/quote it/]);
  t.match(inPolicy('canary: {"2.1.0": 5%}'), [/has no version 2.1.0/]);
  t.match(inPolicy('canary: {"2.0.0": 101%}'), [/out of range/]);
  t.match(inPolicy('canary: {2.0: 5%}'), [/"2.0" is not an exact version/]);
  t.match(inPolicy('canary: {"2.0.0": null}'), [/is empty/]);
  t.match(problems(base('', '', 'policies: [{capability: "crm.*", canary: {"2.0.0": 5%}}]')), [/write its full name/]);
  const two = `contracts:${QUERY}\n  - {name: crm.order.query, version: "2.1.0", acl: public}\npolicies: [{capability: crm.order.query, canary: `;
  t.match(problems(`${two}{"2.0.0": 60%, "2.1.0": 50%}}]`), [/add up to 110%/]);
  t.same({ ...read(`${two}{"2.0.0": 99.6%, "2.1.0": 0.4%}}]`).policies[0]?.canary }, { '2.0.0': 0.996, '2.1.0': 0.004 });
  t.same({ ...read(`${two}{"2.1.0": 0%}}]`).policies[0]?.canary }, { '2.1.0': 0 });
  t.match(inPolicy('providers: {crm.order.b2: {drain: true}}'), [/no provider is called "crm.order.b2"; did you mean crm.order.b1\?/]);
  t.match(inPolicy('load: least_requests'), [/did you mean least_request\?/]);
});

t.test('fallbacks lead somewhere and never back to where they began', async (t) => {
  t.match(inContract('fallback: [{capability: crm.order.nope}]'), [/no contract is called/]);
  t.match(inContract('fallback: [{capability: "crm.order.query@^9"}]'), [/no version that meets "\^9"/]);
  t.match(inContract('fallback: [{capability: "crm.order.query@"}]'), [/empty range/]);
  t.match(inContract('fallback: [{provider: crm.order.b7}]'), [/no provider is called/]);
  t.match(
    problems(
      base(
        '',
        '\n  - {agent_id: x.y.z, offers: ["a.b.c@1.0.0"], endpoint: {type: mock}}',
        'policies: [{capability: crm.order.query, fallback: [{provider: x.y.z}]}]',
      ).replace('providers:', '  - {name: a.b.c, version: "1.0.0", acl: public}\nproviders:'),
    ),
    [/x.y.z does not offer crm.order.query/],
  );
  t.match(inContract('fallback: []'), [/at least one/]);
  t.match(inContract('fallback: nothing'), [/must be none or a list/]);
  t.match(inContract('fallback: [{static: 1}, {provider: crm.order.b1}]'), [/never reached/]);
  t.match(inContract('fallback: [{static: 1, provider: crm.order.b1}]'), [/unknown key/]);
  t.match(inContract('fallback: [{retry: 1}]'), [/must be a map with one of the keys/]);
  t.match(inContract('fallback: [{capability: crm.order.query}]'), [
    /comes back to where it began: crm.order.query@2.0.0 > crm.order.query@2.0.0/,
  ]);
  const ring =
    'contracts:\n  - {name: a.b.c, version: "1.0.0", acl: public, fallback: [{capability: x}]}\n  - {name: a.b.d, version: "1.0.0", aliases: [x], acl: public, fallback: [{static: 1}]}\n';
  t.same(problems(ring), []);
  t.match(
    problems(`${ring}policies: [{capability: a.b.d, fallback: [{capability: "a.b.c@1"}]}]\n`),
    [/comes back to where it began: a.b.c@1.0.0 > a.b.d@1.0.0 > a.b.c@1.0.0/],
    'a policy can close a circle',
  );
  const versions =
    'contracts:\n  - {name: a.b.c, version: "1.0.0", acl: public}\n  - {name: a.b.c, version: "2.0.0", acl: public, fallback: [{capability: "a.b.c@^1"}]}\n';
  t.same(problems(versions), [], 'an older version may stand in for a newer one');
  t.same(read(inFallback('{static: null}')).contracts[0]?.fallback, { chain: [{ kind: 'static', data: null }] }, 'null is an answer');
});

function inFallback(step: string): string {
  return base(`\n    fallback: [${step}]`);
}

t.test('an override says whom, why and until when', async (t) => {
  t.match(inOverride('action: block'), [/at least one of capability, provider, caller/]);
  t.match(inOverride('action: blok, capability: "*"'), [/did you mean block\?/]);
  t.match(inOverride('action: reroute, capability: crm.order.query'), [/a reroute needs to/]);
  t.match(inOverride('action: reroute, capability: crm.order.query, to: crm.order.query'), [/sent to itself/]);
  t.same(inOverride('action: reroute, capability: crm.order.query, to: "crm.order.query@2.0.0"'), []);
  t.match(inOverride('action: block, capability: crm.order.query, to: crm.order.query'), [/to belongs to reroute/]);
  t.match(inOverride('action: block, capability: crm.order.query, data: {}'), [/data belongs to degrade/]);
  t.match(inOverride('action: degrade, provider: crm.order.b1'), [/provider goes with block and drain/]);
  t.match(inOverride('action: block, capability: crm.ordr.query'), [/did you mean crm.order.query\?/]);
  t.match(inOverride('action: drain, provider: crm.order.b9'), [/did you mean crm.order.b1\?/]);
  t.same(inOverride('action: drain, provider: "team:crm"'), []);
  t.match(inOverride('action: block, caller: "crm"'), [/pattern of agents/]);
  for (const bad of ['2030-01-31', '2030-01-31T18:00:00', 'tomorrow', '2030-02-31T25:00:00Z', '5m'])
    t.match(inOverride(`action: block, capability: "*", expires: "${bad}"`), [/expires|exists/], bad);
  t.match(problems(base('', '', 'overrides: [{name: o1, action: block, capability: "*"}]')), [/reason is missing/]);
});

t.test('a version that breaks an earlier one of its major is refused with what broke', async (t) => {
  const versions = (later: string, version: string): string[] =>
    problems(
      `contracts:\n  - {name: a.b.c, version: "1.0.0", acl: public, input: {type: object, properties: {id: {type: string}}}}\n  - {name: a.b.c, version: "${version}", acl: public, input: ${later}}\n`,
    );
  t.match(versions('{type: object, required: [id], properties: {id: {type: string}}}', '1.1.0'), [
    /^3:28 \/contracts\/1\/version a.b.c@1.1.0 breaks 1.0.0 of the same major: input \/id is newly required/,
  ]);
  t.same(versions('{type: object, required: [id], properties: {id: {type: string}}}', '2.0.0'), []);
  t.same(versions('{type: object, properties: {id: {type: string}, more: {type: number}}}', '1.1.0'), []);
});

t.test('hostile names in keys and values touch nothing', async (t) => {
  const texts = [
    base('\n    tags: {__proto__: {admin: true}}'),
    base('\n    aliases: [constructor]'),
    base('', '\n    tags: {constructor: x}'),
    '{"contracts": [], "__proto__": {"admin": true}}',
    base('', '', 'policies: [{capability: crm.order.query, providers: {__proto__: {drain: true}}}]'),
    base('\n    examples: [{constructor: {prototype: {x: 1}}}]'),
  ];
  for (const text of texts) problems(text);
  t.equal(({} as { admin?: unknown }).admin, undefined);
  t.equal(({} as { x?: unknown }).x, undefined);
  t.same(problems(texts[1] as string), [], 'an alias called constructor is a name like another');
  t.match(problems(texts[0] as string), [/not allowed as a key/]);
});

t.test('a table of a thousand providers reads in well under a second', async (t) => {
  const contracts = Array.from(
    { length: 100 },
    (_, i) => `  - {name: load.cap.c${i}, version: "1.0.0", acl: public, input: {type: object, properties: {a${i % 10}: {type: string}}}}`,
  ).join('\n');
  const providers = Array.from(
    { length: 1_000 },
    (_, i) =>
      `  - {agent_id: load.cap.p${i}, offers: ["load.cap.c${i % 100}@1.0.0"], endpoint: {type: http, address: "http://127.0.0.1:${1_000 + i}"}}`,
  ).join('\n');
  const began = performance.now();
  t.equal(read(`contracts:\n${contracts}\nproviders:\n${providers}\n`).providers.length, 1_000);
  t.ok(performance.now() - began < 2_000);
});

t.test('the JSON Schema for editors comes from the same tables and takes what the reader takes', async (t) => {
  const schema = documentSchema();
  const compiled = compileSchema(schema);
  if ('problem' in compiled) throw new Error(compiled.problem);
  const good = {
    contracts: [{ name: 'a.b.c', version: '1.0.0', acl: ['team:x'], timeout: '5s', fallback: 'none' }],
    providers: [{ agent_id: 'a.b.c', offers: ['a.b.c@1.0.0'], endpoint: { type: 'http', address: 'http://x.test' } }],
  };
  t.equal(compiled.validator.validate(good), null);
  t.ok(compiled.validator.validate({ contracts: [{ name: 'a.b.c', version: '1.0.0', acl: 'public', fallbak: 'none' }] }));
  t.ok(compiled.validator.validate({ contracts: [{ name: 'a.b.c', version: '1.0.0' }] }), 'acl is required there too');
});

t.test('the registration of one agent', async (t) => {
  const read = (text: string): string[] | ReturnType<typeof readRegistration> => {
    const reading = readRegistration(text, 'request', 's1');
    return 'problems' in reading ? reading.problems.map(({ line, path, message }) => `${line} ${path} ${message}`) : reading;
  };
  const contract = '{name: a.b.c, version: "1.0.0", acl: public}';
  const provider = (more = ''): string =>
    `{agent_id: a.b.c1, offers: ["a.b.c@1.0.0"], endpoint: {type: http, address: "http://127.0.0.1:1"}${more}}`;
  t.match(read(`contracts: [${contract}]\nprovider: ${provider()}\n`), {
    registration: { contracts: [{ name: 'a.b.c' }], record: { agentId: 'a.b.c1', via: 's1' } },
  });
  t.match(
    read(`provider: ${provider(', via: s1')}`),
    { registration: { contracts: [], record: { via: 's1' } } },
    'contracts may be known already',
  );
  t.match(
    read('{"provider": {"agent_id": "a.b.c1", "offers": ["a.b.c@1.0.0"], "endpoint": {"type": "http", "address": "http://127.0.0.1:1"}}}'),
    { registration: { record: { agentId: 'a.b.c1' } } },
    'JSON',
  );
  for (const [text, expected] of [
    ['', [/a registration is a map.*empty/]],
    ['[]', [/a registration is a map/]],
    ['contracts: []', [/provider is missing/]],
    [`providers: [${provider()}]`, [/unknown key "providers": did you mean provider\?/, /provider is missing/]],
    [`provider: ${provider(', via: s2')}`, [/1 \/provider\/via .*this one is s1, not s2/]],
    [`provider: ${provider(', weigth: 1')}`, [/did you mean weight\?/]],
    [
      `provider: {agent_id: a.b.c1, offers: ["a.b.c@1.0.0"], endpoint: {type: http, address: "http://127.0.0.1:1", mapping: {x.y.z: {method: GET, path: /}}}}`,
      [/which this provider does not offer/],
    ],
    [`contracts: [${contract}, ${contract}]\nprovider: ${provider()}`, [/a\.b\.c@1\.0\.0 is defined twice/]],
    [
      `contracts: [{name: a.b.c, version: "1.0.0", acl: public, input: {type: object}}, {name: a.b.c, version: "1.1.0", acl: public, input: {type: object, required: [x]}}]\nprovider: ${provider()}`,
      [/1\.1\.0 breaks 1\.0\.0 of the same major/],
    ],
    [`contracts: [{name: a.b.c, version: "1.0.0"}]\nprovider: ${provider()}`, [/acl is missing/]],
    [`contracts: 3\nprovider: ${provider()}`, [/contracts must be a list/]],
    [`provider: {agent_id: a.b.c1`, [/./]],
  ] as const)
    t.match(read(text), expected, text);
});
