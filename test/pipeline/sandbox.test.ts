import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import t from 'tap';
import { runSandbox } from '../../sidecar/lab/command.ts';
import { brokenInvariants } from '../../sidecar/lab/invariants.ts';
import { readScenario } from '../../sidecar/lab/read-scenario.ts';
import { jsonOf, tableOf } from '../../sidecar/lab/report.ts';
import { type RunReport, runScenario } from '../../sidecar/lab/run.ts';
import { World } from '../../sidecar/lab/world.ts';
import { repoFile } from '../support/paths.ts';

const FOLDER = repoFile('test/pipeline/scenarios');
const FILES = readdirSync(FOLDER).filter((name) => name.endsWith('.yaml'));
const textOf = (name: string): string => readFileSync(join(FOLDER, name), 'utf8');

function read(text: string, file = 'scenario.yaml') {
  const reading = readScenario(text, file);
  if ('problems' in reading)
    throw new Error(reading.problems.map((each) => `${each.line}:${each.column} ${each.path} ${each.message}`).join('\n'));
  return reading.scenario;
}

const run = (text: string, file?: string): Promise<RunReport> => runScenario(read(text, file));
const wrongIn = (report: RunReport): string[] => report.failures.map((failure) => `${failure.step ?? 'run'}: ${failure.what}`);

/** Every problem as `line path message`. */
function problemsIn(text: string): string[] {
  const reading = readScenario(text, 'scenario.yaml');
  return 'problems' in reading ? reading.problems.map((each) => `${each.line} ${each.path} ${each.message}`) : [];
}

/** Contracts and two mock providers, to put steps under. */
const BASE = `
scenario: small
as: web.desk.1
contracts:
  - {name: crm.order.query, version: 2.0.0, description: Looks an order up., acl: public, execution: idempotent, aliases: [order]}
providers:
  - {agent_id: crm.order.1, offers: [crm.order.query@2.0.0]}
  - {agent_id: crm.order.2, offers: [crm.order.query@2.0.0]}
mocks:
  crm.order.1: {latency: 10ms}
  crm.order.2: {latency: 10ms}
`;
const withSteps = (steps: string): string => `${BASE}steps:\n${steps}`;

t.test('every shipped scenario holds', async (t) => {
  t.ok(FILES.length >= 8, 'there are at least eight');
  for (const file of FILES) {
    const report = await run(textOf(file), file);
    t.strictSame(wrongIn(report), [], report.scenario.name);
    t.ok(report.tally.calls > 0 && report.ok, `${file} makes calls`);
  }
});

/** A policy that is deliberately wrong, and what must be said about it. */
const MUTATIONS: readonly { readonly file: string; readonly from: string; readonly to: string; readonly says: readonly RegExp[] }[] = [
  {
    file: 'slow-model.yaml',
    from: 'slow_call: 3s',
    to: 'slow_call: 10s',
    says: [/^4: the breaker of nlp\.generator\.1 nlp\.text\.generate is closed, expected open$/, /^5: degraded is false, expected true$/],
  },
  {
    file: 'retry-storm.yaml',
    from: 'ratio: 20%',
    to: 'ratio: 100%',
    says: [
      /^3: calls ending with 3005 retry_budget_spent: 0 of 3000 \(0%\), expected 67% \.\. 85%$/,
      /^run: retries: \d{4}, expected 600 \.\. 1100$/,
    ],
  },
  {
    file: 'affinity.yaml',
    from: 'in a conversation about it.\n    acl: [web.*.*]\n    affinity: {from: "header:x-session", required: true}',
    to: 'x\n    acl: [web.*.*]',
    says: [/^2: \d+ of 60 calls met another provider than in "asked": call \d+: crm\.order\.\d instead of crm\.order\.\d/],
  },
  {
    file: 'canary.yaml',
    from: '{"2.1.0": 5%}',
    to: '{"2.1.0": 50%}',
    says: [/^1: calls served by version 2\.1\.0: \d+ of 1000 \(\d+(\.\d+)?%\), expected 3% \.\. 7%$/],
  },
  {
    file: 'failover-once.yaml',
    from: 'execution: once',
    to: 'execution: idempotent',
    says: [
      /^5: code is 0 ok, expected 1002 connection_lost$/,
      /^5: the decision has retry\.elsewhere \(.*\), which was not expected$/,
      /^run: executions at pay\.card\.2 pay\.order\.charge: 31, expected 11$/,
    ],
  },
  {
    file: 'deadline-budget.yaml',
    from: 'hanging:\n    deadline: 10s\n    budget: {intent: 1500ms, sentiment: 1s, order: 2500ms, knowledge: 3s, generation: 2s}',
    to: 'hanging:\n    deadline: 10s\n    budget: {intent: 1s, sentiment: 1s, order: 8s, knowledge: 0s, generation: 0s}',
    says: [/^9: elapsed: 9\.5s, expected 4500ms$/, /^11: code is 5001 deadline_exceeded, expected 0 ok/],
  },
  {
    file: 'half-open-herd.yaml',
    from: 'probes: 3',
    to: 'probes: 100',
    says: [/^5: calls ending with 6001 provider_error: 100, expected 3$/],
  },
  {
    file: 'loop.yaml',
    from: 'as: team.writer.1',
    to: 'as: team.writer.1\nsidecar: {max_hops: 40}',
    says: [/^4: code is 0 ok, expected 2005 loop_detected$/, /^4: the decision has no too_many_hops$/],
  },
];

t.test('a deliberately wrong policy makes the expectations of its scenario fail, with words that say why', async (t) => {
  t.strictSame(MUTATIONS.map((each) => each.file).sort(), [...FILES].sort(), 'every shipped scenario can fail');
  for (const { file, from, to, says } of MUTATIONS) {
    const text = textOf(file);
    t.ok(text.includes(from), `${file} says ${from.slice(0, 40)}`);
    const report = await run(text.replace(from, to), file);
    t.notOk(report.ok, file);
    for (const pattern of says)
      t.ok(
        wrongIn(report).some((line) => pattern.test(line)),
        `${file}: ${pattern.source}\n${wrongIn(report).join('\n')}`,
      );
    t.notOk(
      wrongIn(report).some((line) => line.includes('invariant')),
      'nothing is left open all the same',
    );
  }
});

t.test(
  'the table for people shows steps, breakers, the failed expectation with file and line, and the decision of one failing call',
  async (t) => {
    const report = await run(textOf('slow-model.yaml').replace('slow_call: 3s', 'slow_call: 10s'), 'slow-model.yaml');
    const lines = tableOf(report);
    t.ok(
      lines.some((line) =>
        /^ +19\.8s +3 {2}call nlp\.text\.generate × 30, every 1s as web\.desk\.1 \[slow\] +30 ok; .* ms each, at most 4000 ms +FAILED$/.test(
          line,
        ),
      ),
      lines.join('\n'),
    );
    const at = lines.findIndex((line) =>
      /^ {2}✗ step 5 \(slow-model\.yaml:\d+\), call 1 and 49 more: degraded is false, expected true$/.test(line),
    );
    t.ok(at > 0);
    t.ok(lines.slice(at + 1).some((line) => /^ +what was decided about call 1:$/.test(line)));
    t.ok(lines.slice(at + 1).some((line) => /attempt\.served +nlp\.generator\.1 answered 200 in 4000 ms/.test(line)));
    t.match(lines.at(-1), /^ {2}FAIL: \d+ expectations do not hold$/);
    const good = tableOf(await run(textOf('slow-model.yaml'), 'slow-model.yaml'));
    t.ok(
      good.some((line) =>
        /31\.8s .*breaker nlp\.generator\.1 nlp\.text\.generate: closed → open +9 of 29 calls took longer than 3 s/.test(line),
      ),
      good.join('\n'),
    );
    t.match(good.at(-1), /PASS: every expectation holds/);
  },
);

t.test('the same seed gives the same run, another seed another one', async (t) => {
  const dice = withSteps('  - {call: order, times: 200, every: 5ms}').replace(
    'crm.order.1: {latency: 10ms}',
    'crm.order.1: {latency: {from: 1ms, to: 90ms}, error_rate: 30%}',
  );
  const first = JSON.stringify(jsonOf(await run(dice)));
  t.equal(JSON.stringify(jsonOf(await run(dice))), first);
  t.not(JSON.stringify(jsonOf(await run(dice.replace('scenario: small', 'scenario: small\nseed: 2')))), first);
});

t.test('an hour of traffic takes seconds', async (t) => {
  const report = await run(withSteps('  - {call: order, every: 200ms, for: 1h, expect: {code: ok, elapsed: 10ms}}'));
  t.ok(report.ok);
  t.equal(report.tally.calls, 18_000);
  t.ok(report.virtualMs >= 3_599_800);
});

t.test('time', async (t) => {
  t.test('a step begins when the ones before it have ended, and `after` that long after', async (t) => {
    const report = await run(withSteps('  - {call: order, times: 3}\n  - {call: order, after: 100ms}\n  - {wait: 1s}\n  - {call: order}'));
    t.strictSame(
      report.steps.map((step) => [step.beganAtMs, step.endedAtMs]),
      [
        [0, 30],
        [130, 140],
        [140, 1_140],
        [1_140, 1_150],
      ],
    );
  });
  t.test('a step with `at` begins then, whatever is under way', async (t) => {
    const report = await run(
      withSteps(
        '  - {call: order, times: 4, every: 100ms}\n  - {at: 150ms, call: order, times: 2}\n  - {at: 155ms, expect: {in_flight: 1, calls: 2}}',
      ),
    );
    t.ok(report.ok, wrongIn(report).join());
    t.strictSame(
      report.steps.map((step) => [step.beganAtMs, step.endedAtMs]),
      [
        [0, 310],
        [150, 170],
        [155, 155],
      ],
    );
  });
  t.test('an `at` that has passed already is said, not bent', async (t) => {
    const report = await run(withSteps('  - {call: order, times: 4}\n  - {wait: 0s}\n  - {at: 20ms, call: order}'));
    t.match(wrongIn(report), [
      '3: was to begin at 20 ms, and the steps before it ended only at 40 ms: give it after instead of at, or a later time',
    ]);
  });
  t.test('`parallel` keeps as many under way, or with `every` begins as many at once', async (t) => {
    const kept = await run(withSteps('  - {call: order, times: 6, parallel: 3}'));
    t.equal(kept.virtualMs, 20);
    const together = await run(withSteps('  - {call: order, times: 6, parallel: 3, every: 100ms}'));
    t.equal(together.virtualMs, 110);
  });
});

t.test('a caller that leaves is a cancelled call, and gives everything back', async (t) => {
  const report = await run(
    withSteps(
      '  - {mock: [crm.order.1, crm.order.2], set: {hang: true}}\n  - {call: order, times: 5, parallel: 5, cancel_after: 40ms, expect: {code: cancelled, elapsed: 40ms, ambiguous: true}}',
    ),
  );
  t.ok(report.ok, wrongIn(report).join());
});

t.test('a stream is taken to its end, and a cut one is an error', async (t) => {
  const report = await run(
    withSteps(`
  - mock: [crm.order.1, crm.order.2]
    set: {slow_body: {chunks: 10, every: 20ms}, body: {text: many words}}
  - {call: order, stream: true, expect: {code: ok, elapsed: 190ms, data: {text: many words}, reasons: [attempt.streaming]}}
  - mock: [crm.order.1, crm.order.2]
    set: {reset: mid_body}
  - {call: order, stream: true, expect: {code: stream_interrupted, elapsed: 110ms, ambiguous: true, attempts: 1}}
  - {call: order, stream: true, cancel_after: 50ms, expect: {code: cancelled, elapsed: 50ms}}
`),
  );
  t.ok(report.ok, wrongIn(report).join());
});

t.test('the operator: block with an end, lift, drain, reroute, degrade', async (t) => {
  const report = await run(
    withSteps(`
  - override: {name: stop, action: block, capability: crm.order.*, reason: wrong prices}
    for: 30s
  - {call: order, expect: {code: blocked_by_operator, attempts: 0, detail: [stop, wrong prices]}}
  - after: 29s
    call: order
    expect: {code: blocked_by_operator}
  - {after: 1s, call: order, note: it has run out by itself, expect: {code: ok}}
  - override: {name: rest, action: drain, provider: crm.order.1, reason: an update}
  - {call: order, times: 20, expect: {code: ok, provider: crm.order.2}}
  - {lift: rest}
  - {call: order, times: 20, parallel: 10, expect: {code: ok, providers: {crm.order.1: ">= 1", crm.order.2: ">= 1"}}}
  - table:
      overrides: [{name: plain, action: degrade, capability: crm.order.query, data: {text: later}, reason: too much load}]
  - {call: order, expect: {code: ok, degraded: true, attempts: 0, data: {text: later}, provider: none}}
`),
  );
  t.ok(report.ok, wrongIn(report).join());
});

t.test('providers that join, leave, and change places', async (t) => {
  const report = await run(
    withSteps(`
  - {remove: crm.order.1}
  - {call: order, times: 10, expect: {code: ok, provider: crm.order.2}}
  - {remove: crm.order.2}
  - {call: order, expect: {code: no_provider, attempts: 0}}
  - add: {agent_id: crm.order.3, offers: [crm.order.query@2.0.0]}
  - {call: order, expect: {code: ok, provider: crm.order.3, elapsed: 0ms}}
  - policies: [{capability: "crm.*", providers: {crm.order.3: {drain: true}}}]
  - {call: order, expect: {code: none_healthy, attempts: 0, detail: draining}}
`),
  );
  t.ok(report.ok, wrongIn(report).join());
});

t.test('no socket is ever opened', async (t) => {
  const table = `
contracts:
  - {name: crm.order.query, version: 2.0.0, description: Looks an order up., acl: public}
providers:
  - agent_id: crm.order.1
    offers: [crm.order.query@2.0.0]
    endpoint: {type: http, address: "https://crm.example", credential: {header: authorization, secret: {env: NOT_SET}}}
    via: crm-sidecar
sidecars:
  - {name: crm-sidecar, mesh: "http://127.0.0.1:1"}
`;
  const folder = t.testdir({
    'team.yaml': table,
    'one.yaml':
      'scenario: of a file\nas: a.b.c\ntable: ./team.yaml\nmocks: {crm.order.1: {latency: 5ms}}\nsteps: [{call: crm.order.query, expect: {code: ok, elapsed: 5ms}}]\n',
  });
  t.test('a table file with real endpoints runs on mocks, `via` included', async (t) => {
    const file = join(folder, 'one.yaml');
    const report = await run(readFileSync(file, 'utf8'), file);
    t.ok(report.ok, wrongIn(report).join());
  });
  t.test('an endpoint without a mock is refused before anything runs', async (t) => {
    const reading = readScenario(
      `scenario: x\nas: a.b.c\ntable: ./team.yaml\nsteps: [{call: crm.order.query}]\n`,
      join(folder, 'two.yaml'),
    );
    t.match('problems' in reading ? reading.problems : [], [
      {
        file: './team.yaml',
        line: 7,
        message: /the lab opens no socket, so an endpoint of type http cannot be used: give crm\.order\.1 a mock/,
      },
    ]);
  });
  t.test('rules are for messages, and the lab has none', async (t) => {
    t.match(problemsIn('scenario: x\nas: a.b.c\nrules: [{name: one}]\nsteps: [{wait: 1s}]\n'), [/^3 \/rules the lab makes calls/]);
  });
  t.test('a table file that is not there is said at its place', async (t) => {
    t.match(problemsIn('scenario: x\nas: a.b.c\ntable: ./nowhere.yaml\nsteps: [{wait: 1s}]\n'), [
      '3 /table the table "./nowhere.yaml" cannot be read (ENOENT)',
    ]);
  });
});

t.test('mistakes in a scenario are named at their place, before anything runs', async (t) => {
  const cases: readonly (readonly [what: string, text: string, says: RegExp])[] = [
    ['nothing', '', /the file is empty/],
    ['no steps', BASE, /steps is missing/],
    ['a list', '- a\n', /a scenario is a map/],
    ['an unknown key', `${BASE}step: []\nsteps: [{wait: 1s}]\n`, /^\d+ \/step unknown key "step": did you mean steps\?/],
    [
      'an unknown key of the table',
      withSteps('  - {wait: 1s}').replace('description:', 'descripton:'),
      /unknown key "descripton": did you mean description\?/,
    ],
    ['an unknown kind of step', withSteps('  - {cal: order}'), /this one has cal; did you mean call\?/],
    ['two kinds in one', withSteps('  - {call: order, wait: 1s}'), /a step does one thing, and this one has call and wait/],
    [
      'an unknown expectation',
      withSteps('  - {call: order, expect: {cod: 0}}'),
      /^\d+ \/steps\/0\/expect\/cod unknown key "cod": did you mean code\?/,
    ],
    [
      'an unknown code',
      withSteps('  - {call: order, expect: {code: breaker_opn}}'),
      /no code of the table .* did you mean breaker_open \(3001\)\?/,
    ],
    ['a share where a number belongs', withSteps('  - {call: order, expect: {attempts: 50%}}'), /attempts: must be a number such as 18/],
    ['a time without a unit', withSteps('  - {call: order, expect: {elapsed: "<= 200"}}'), /"200" has no unit/],
    ['two codes', withSteps('  - {call: order, expect: {code: 0, code_name: internal}}'), /code and code_name name different codes/],
    [
      'a provider nobody has',
      withSteps('  - {call: order, expect: {provider: crm.order.9}}'),
      /\/steps\/0\/expect\/provider no table of this scenario has a provider crm\.order\.9; did you mean crm\.order\.1\?/,
    ],
    [
      'a breaker of nobody',
      `${withSteps('  - {wait: 1s}')}\nexpect: {breaker: {crm.ordr.1 crm.order.query: open}}\n`,
      /no table of this scenario has a provider crm\.ordr\.1/,
    ],
    [
      'a label nobody has',
      withSteps('  - {call: order, label: one}\n  - {call: order, expect: {same_provider_as: ones}}'),
      /no step has the label "ones"; did you mean one\?/,
    ],
    [
      'a label with fewer calls',
      withSteps('  - {call: order, label: one}\n  - {call: order, times: 2, expect: {same_provider_as: one}}'),
      /has 1 calls, and this one 2/,
    ],
    [
      'a mock of nobody',
      withSteps('  - {wait: 1s}').replace('  crm.order.1: {', '  crm.order.7: {'),
      /\/mocks\/crm\.order\.7 no table of this scenario has a provider crm\.order\.7/,
    ],
    [
      'a misspelt fault',
      withSteps('  - {mock: crm.order.1, set: {latncy: 5ms}}'),
      /^\d+ \/steps\/0\/set\/latncy latncy is not known to a mock; did you mean "latency"\?/,
    ],
    [
      'a provider that is not there',
      withSteps('  - {remove: crm.order.1}\n  - {remove: crm.order.1}'),
      /the table has no crm\.order\.1 at this point; did you mean crm\.order\.2\?/,
    ],
    ['an override that is not there', withSteps('  - {lift: stop}'), /the table has no stop at this point/],
    [
      'a push that does not fit the table',
      withSteps('  - policies: [{capability: crm.order.query, loads: random}]'),
      /^\d+ \/steps\/0\/policies\/0\/loads unknown key "loads": did you mean load\?/,
    ],
    [
      'a provider that offers what nobody defined',
      withSteps('  - add: {agent_id: crm.order.3, offers: [crm.order.query@9.0.0]}'),
      /\/steps\/0\/add\/offers/,
    ],
    ['nobody who calls', withSteps('  - {call: order}').replace('as: web.desk.1\n', ''), /who calls\? Write as: team\.role\.id/],
    ['steps out of order', withSteps('  - {at: 2s, wait: 0s}\n  - {at: 1s, wait: 0s}'), /steps stand in the order of their time/],
    ['a task nobody has', withSteps('  - {call: order, task: t}'), /the scenario has no task "t"/],
    ['`for` without `every`', withSteps('  - {call: order, for: 1m}'), /for needs every/],
    ['too many calls', withSteps('  - {call: order, every: 1ms, for: 1h}'), /more than 1000000 calls/],
    ['settings of sockets', `sidecar: {listen: "127.0.0.1:1"}\n${withSteps('  - {wait: 1s}')}`, /listen means nothing in the lab/],
    ['a misspelt setting', `sidecar: {max_hop: 3}\n${withSteps('  - {wait: 1s}')}`, /unknown key "max_hop": did you mean max_hops\?/],
  ];
  for (const [what, text, says] of cases) {
    const problems = problemsIn(text);
    t.ok(
      problems.some((problem) => says.test(problem)),
      `${what}: ${problems.join(' | ') || 'no problem at all'}`,
    );
  }
  t.ok(
    problemsIn(withSteps('  - {call: order, expect: {cod: 0}}\n  - {waits: 1s}\n  - {call: order, expect: {provider: x}}')).length >= 3,
    'all of them at once',
  );
});

t.test('every kind of expectation can fail', async (t) => {
  const cases: readonly (readonly [expect: string, says: RegExp])[] = [
    ['code: cancelled', /^code is 0 ok, expected 5003 cancelled$/],
    ['status: 204', /^status is 200, expected 204$/],
    ['capability: crm.order.cancel', /^capability is crm\.order\.query, expected crm\.order\.cancel$/],
    ['provider: none', /^provider is crm\.order\.[12], expected none$/],
    ['version: 2.0.1', /^version is 2\.0\.0, expected 2\.0\.1$/],
    ['degraded: true', /^degraded is false, expected true$/],
    ['definitely_success: true', /^definitely_success is false, expected true$/],
    ['ambiguous: true', /^ambiguous is false, expected true$/],
    ['attempts: "> 1"', /^attempts: 1, expected > 1$/],
    ['elapsed: "< 10ms"', /^elapsed: 10ms, expected < 10ms$/],
    ['data: {payload: {id: 8}}', /^data\/payload\/id is 7, expected 8$/],
    ['data: {payload: {list: [1]}}', /^data\/payload\/list has 2 entries, expected 1$/],
    ['data: {payload: {other: 1}}', /^data\/payload\/other is missing, expected 1$/],
    ['detail: something', /^detail is "", expected to contain "something"$/],
    ['reasons: [retry.elsewhere]', /^the decision has no retry\.elsewhere$/],
    ['not_reasons: [served]', /^the decision has attempt\.served \(.*\), which was not expected$/],
    ['succeeded: "< 50%"', /^succeeded: 10 of 10 \(100%\), expected < 50%$/],
    ['codes: {ok: 9}', /^calls ending with 0 ok: 10, expected 9$/],
    ['codes: {cancelled: 0}', /^calls ending with 0 ok: 10, expected none \(it is not named\)$/],
    ['providers: {crm.order.1: 100%}', /^calls served by crm\.order\.1: \d of 10 \(\d0%\), expected 100%$/],
    ['versions: {2.0.0: 3}', /^calls served by version 2\.0\.0: 10, expected 3$/],
    ['same_provider: true', /^served by crm\.order\.\d \(\d\), crm\.order\.\d \(\d\), expected one provider for all$/],
  ];
  const steps = cases.map(([expect]) => `  - {call: order, times: 10, payload: {id: 7, list: [1, 2]}, expect: {${expect}}}`).join('\n');
  const report = await run(withSteps(steps));
  for (const [i, [expect, says]] of cases.entries()) {
    const found = report.failures.filter((failure) => failure.step === i + 1).map((failure) => failure.what);
    t.ok(
      found.some((what) => says.test(what)),
      `${expect}: ${found.join(' | ') || 'it held'}`,
    );
  }
  const state = await run(`${withSteps('  - {call: order, times: 4}')}
tasks: {t: {deadline: 1s}}
expect: {calls: 5, succeeded: 3, codes: {cancelled: 4}, attempts: 3, retries: 1, fallbacks: 1, in_flight: 1, executions: {crm.order.1: 9}, breaker: {crm.order.1 crm.order.query: open}, opened: {crm.order.1 crm.order.query: 1}, tasks: {t: "> 1s"}}
`);
  t.equal(state.failures.length, 12, wrongIn(state).join('\n'));
});

t.test('`$n` is the number of the call, as a number alone and as text within words', async (t) => {
  const report = await run(
    withSteps(
      '  - {call: order, times: 3, payload: {n: $n, text: "call $n of $name"}, headers: {x-s: "s$n"}, expect: {data: {payload: {text: "call 2 of $name", n: 2}}}}',
    ),
  );
  t.match(
    wrongIn(report).map((line) => line.slice(0, 60)),
    [/text is call 1 of \$name, expected call 2/, /text is call 3 of \$name, expected call 2/],
  );
});

t.test('what must be true at every end is checked by itself, and a leak is named', async (t) => {
  const world = new World(read(withSteps('  - {wait: 1s}')));
  t.strictSame(brokenInvariants(world, 0), []);
  world.health.provider('crm.order.1').inFlight++;
  world.witness.callStarted();
  world.clock.after(5, () => undefined);
  world.witness.bugs.push('TypeError: x');
  t.match(brokenInvariants(world, 0), [
    'calls started: 1, must be 0',
    'calls in flight at crm.order.1: 1, must be 0',
    'a timer is still set, for 5 ms',
    'a fault in the pipeline: TypeError: x',
  ]);
});

t.test('the command', async (t) => {
  const folder = t.testdir({
    'good.yaml': withSteps('  - {call: order, expect: {code: ok}}'),
    'failing.yaml': withSteps('  - {call: order, expect: {code: cancelled}}'),
    'bad.yaml': withSteps('  - {cal: order}'),
  });
  const sandbox = async (names: readonly string[], json = false): Promise<{ code: number; lines: string[] }> => {
    const lines: string[] = [];
    const code = await runSandbox(
      names.map((name) => join(folder, name)),
      { json, write: (line) => lines.push(line) },
    );
    return { code, lines };
  };
  t.test('exits 0 when all expectations hold, 1 when not, 2 for a file that cannot be used', async (t) => {
    t.equal((await sandbox(['good.yaml'])).code, 0);
    t.equal((await sandbox(['failing.yaml'])).code, 1);
    t.equal((await sandbox(['bad.yaml'])).code, 2);
    t.equal((await sandbox(['nowhere.yaml'])).code, 2);
    t.equal((await sandbox(['good.yaml', 'failing.yaml', 'bad.yaml'])).code, 2);
    t.equal((await sandbox([])).code, 2);
  });
  t.test('names a bad file with line and column, and runs the others all the same', async (t) => {
    const { lines } = await sandbox(['bad.yaml', 'good.yaml', 'nowhere.yaml']);
    t.ok(lines.some((line) => /bad\.yaml:\d+:\d+ \/steps\/0: a step needs one of the keys/.test(line)));
    t.ok(lines.some((line) => line.includes('PASS')));
    t.ok(
      lines.some((line) => /nowhere\.yaml cannot be read \(ENOENT\)/.test(line)),
      lines.join('\n'),
    );
    t.match(lines.at(-1), /1 of 3 scenarios pass, 2 cannot be used/);
  });
  t.test('--json is one object', async (t) => {
    const { code, lines } = await sandbox(['failing.yaml', 'good.yaml', 'bad.yaml'], true);
    t.equal(code, 2);
    t.equal(lines.length, 1);
    const said = JSON.parse(lines[0] as string) as { scenarios: { ok: boolean }[] };
    t.match(said, { ok: false, passed: 1, failed: 1, invalid: 1 });
    t.match(said.scenarios, [
      {
        ok: false,
        calls: 1,
        failures: [{ step: 1, what: /code is 0 ok, expected 5003/, decision: [{ stage: 'identify', reason: 'known', code: 0 }] }],
      },
      { ok: true, calls: 1, codes: { 0: 1 }, failures: [], steps: [{ what: 'call order as web.desk.1', ok: true, providers: {} }] },
      { ok: false, problems: [{ line: Number, column: Number }] },
    ]);
  });
});
