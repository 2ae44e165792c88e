import { execFile } from 'node:child_process';
import { readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import t from 'tap';
import { realClock } from '../../base/clock.ts';
import { runSandbox } from '../../sidecar/lab/command.ts';
import { brokenInvariants } from '../../sidecar/lab/invariants.ts';
import { readScenario, readScenarios } from '../../sidecar/lab/read-scenario.ts';
import { jsonOf, tableOf } from '../../sidecar/lab/report.ts';
import { type RunReport, runScenario } from '../../sidecar/lab/run.ts';
import { World } from '../../sidecar/lab/world.ts';
import { nodeArgs, repoFile } from '../support/paths.ts';

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
    'failing.yaml': withSteps('  - {call: order, expect: {code: cancelled}}').replace('scenario: small', 'scenario: never right'),
    'bad.yaml': withSteps('  - {cal: order}'),
    'with.yaml': 'policies: [{capability: crm.order.query, providers: {crm.order.1: {drain: true}}}]\n',
    'without.yaml': 'polices: []\n',
    some: {
      'b.yaml': withSteps('  - {call: order, times: 3, expect: {code: ok}}'),
      'a.yaml': withSteps('  - {call: order, expect: {code: ok}}'),
      'notes.txt': 'no scenario',
    },
    none: { 'notes.txt': 'no scenario' },
  });
  const sandbox = async (
    names: readonly string[],
    more: Partial<Parameters<typeof runSandbox>[1]> = {},
  ): Promise<{ code: number; lines: string[] }> => {
    const lines: string[] = [];
    const code = await runSandbox(
      names.map((name) => join(folder, name)),
      { json: false, write: (line) => lines.push(line), ...more },
    );
    return { code, lines };
  };
  // biome-ignore lint/suspicious/noExplicitAny: whatever was printed
  const lastOf = (lines: readonly string[]): any => JSON.parse(lines.at(-1) as string);
  t.test('exits 0 when all expectations hold, 1 when not, 2 for a file that cannot be used', async (t) => {
    t.equal((await sandbox(['good.yaml'])).code, 0);
    t.equal((await sandbox(['failing.yaml'])).code, 1);
    t.equal((await sandbox(['bad.yaml'])).code, 2);
    t.equal((await sandbox(['nowhere.yaml'])).code, 2);
    t.equal((await sandbox(['good.yaml', 'failing.yaml', 'bad.yaml'])).code, 2);
    t.equal((await sandbox([])).code, 2);
    t.equal((await sandbox(['none'])).code, 2);
  });
  t.test('names a bad file with line and column, runs the others all the same, and ends with one line for programs', async (t) => {
    const { lines } = await sandbox(['bad.yaml', 'good.yaml', 'nowhere.yaml']);
    t.ok(lines.some((line) => /bad\.yaml:\d+:\d+ \/steps\/0: a step needs one of the keys/.test(line)));
    t.ok(
      lines.some((line) => /^ok +small/.test(line)),
      lines.join('\n'),
    );
    t.ok(lines.some((line) => /nowhere\.yaml cannot be read \(ENOENT\)/.test(line)));
    t.match(lines.at(-2), /1 of 3 scenarios pass, 2 cannot be used/);
    t.match(lastOf(lines), { sandbox: 'invalid', ok: false, scenarios: 3, passed: 1, failed: 0, invalid: 2 });
  });
  t.test('a folder stands for the scenarios in it, in the order of their names', async (t) => {
    const { code, lines } = await sandbox(['some']);
    t.equal(code, 0);
    t.match(lastOf(lines), { sandbox: 'ok', scenarios: 2, calls: 4 });
  });
  t.test('one scenario is told step by step, of several only what fails, and `isDetailed` tells all', async (t) => {
    t.ok((await sandbox(['good.yaml'])).lines.some((line) => /1 {2}call order as web\.desk\.1 +1 ok/.test(line)));
    const both = await sandbox(['good.yaml', 'failing.yaml']);
    t.notOk(both.lines.some((line) => / 1 {2}call order/.test(line)));
    t.ok(both.lines.some((line) => /✗ step 1 .*code is 0 ok, expected 5003 cancelled/.test(line)));
    t.equal(
      (await sandbox(['good.yaml', 'failing.yaml'], { isDetailed: true })).lines.filter((line) => / 1 {2}call order/.test(line)).length,
      2,
    );
  });
  t.test('--only picks by words of the name or the file, and says when there is none', async (t) => {
    t.match(lastOf((await sandbox(['good.yaml', 'failing.yaml'], { only: ['NEVER'] })).lines), { scenarios: 1, failed: 1 });
    t.match(await sandbox(['good.yaml'], { only: ['nothing'] }), { code: 2, lines: [/no scenario is called "nothing"/] });
  });
  t.test("--seed takes the place of the scenarios' own", async (t) => {
    t.match(lastOf((await sandbox(['good.yaml'], { json: true, seed: 77 })).lines), { scenarios: [{ seed: 77 }] });
  });
  t.test('--with lays policies over every scenario, and refuses what it does not know', async (t) => {
    const { lines } = await sandbox(['some/b.yaml'], { json: true, withFile: join(folder, 'with.yaml') });
    t.strictSame(lastOf(lines).scenarios[0].steps[0].providers, { 'crm.order.2': 3 });
    t.match(await sandbox(['good.yaml'], { withFile: join(folder, 'without.yaml') }), {
      code: 2,
      lines: [/without\.yaml:1:1 \/polices: unknown key "polices": did you mean policies\?/],
    });
    t.equal((await sandbox(['good.yaml'], { withFile: join(folder, 'nowhere.yaml') })).code, 2);
    const slips: readonly (readonly [content: string, says: RegExp])[] = [
      [
        'policies: [{capability: crm.order.queery, timeout: 1ms}]',
        /with2\.yaml:1:\d+ .*none has "crm\.order\.queery"; did you mean crm\.order\.query\?/,
      ],
      ['policies: [{capability: "crn.*", timeout: 1ms}, {capability: "*", timeout: 1s}]', /policies\/0: .*none has "crn\.\*"/],
      [
        'contracts: [{name: crm.order.query, version: 2.0.9, execution: once}]',
        /none has "crm\.order\.query@2\.0\.9"; did you mean crm\.order\.query@2\.0\.0\?/,
      ],
      ['providers: [{agent_id: crm.order.11, weight: 2}]', /none has "crm\.order\.11"; did you mean crm\.order\.[12]\?/],
      ['overrides: [{name: b, action: block, provider: crm.ordr.1, reason: why}]', /none has "crm\.ordr\.1"; did you mean crm\.order\.1\?/],
      [
        'rules: [{name: r, when: {capability: crm.order.quer}, action: {lane: high}}]',
        /none has "crm\.order\.quer"; did you mean crm\.order\.query\?/,
      ],
      ['policies: []', /there is nothing to lay over the scenarios/],
    ];
    for (const [content, says] of slips) {
      writeFileSync(join(folder, 'with2.yaml'), content);
      const { code, lines } = await sandbox(['good.yaml', 'some'], { withFile: join(folder, 'with2.yaml') });
      t.equal(code, 2, content);
      t.match(lines.join('\n'), says);
      t.notMatch(lines.join('\n'), /did you mean[^]*did you mean|PASS/, 'once, and nothing was run');
    }
    writeFileSync(join(folder, 'other.yaml'), withSteps('  - {call: order}').replaceAll('crm.order.query', 'crm.order.list'));
    const mixed = await sandbox(['good.yaml', 'other.yaml'], { withFile: join(folder, 'with.yaml') });
    t.not(mixed.code, 2, 'about one of several is enough');
  });
  t.test('--junit writes what a CI reads', async (t) => {
    const junit = join(folder, 'result.xml');
    await sandbox(['good.yaml', 'failing.yaml', 'bad.yaml'], { junit });
    const xml = readFileSync(junit, 'utf8');
    t.equal(xml.match(/<testsuite /g)?.length, 3);
    t.match(xml, /<testcase name="small" classname="sandbox" time="0\.010"\/>/);
    t.match(xml, /<failure message="code is 0 ok, expected 5003 cancelled">/);
    t.match(xml, /<error message="cannot be used">/);
  });
  t.test('--json is one object', async (t) => {
    const { code, lines } = await sandbox(['failing.yaml', 'good.yaml', 'bad.yaml'], { json: true });
    t.equal(code, 2);
    t.equal(lines.length, 1);
    const said = lastOf(lines);
    t.match(said, { ok: false, passed: 1, failed: 1, invalid: 1 });
    t.match(said.scenarios, [
      {
        ok: false,
        sandbox: true,
        calls: 1,
        failures: [{ step: 1, what: /code is 0 ok, expected 5003/, decision: [{ stage: 'identify', reason: 'known', code: 0 }] }],
      },
      { ok: true, calls: 1, codes: { 0: 1 }, failures: [], steps: [{ what: 'call order as web.desk.1', ok: true, providers: {} }] },
      { ok: false, problems: [{ line: Number, column: Number }] },
    ]);
  });
});

const SHIPPED = repoFile('deploy/sandbox');
const shipped = async (withFile: string | null): Promise<{ code: number; lines: string[] }> => {
  const lines: string[] = [];
  const code = await runSandbox([SHIPPED], { json: false, withFile, clock: realClock, write: (line) => lines.push(line) });
  return { code, lines };
};

t.test('the ten shipped scenarios hold, each with its story, and the chain is told before and after', async (t) => {
  const files = readdirSync(SHIPPED).filter((name) => name.endsWith('.yaml'));
  t.equal(files.length, 10);
  for (const name of files) {
    const head = readFileSync(join(SHIPPED, name), 'utf8').split('\n\n')[0] as string;
    t.match(head, /^# /, `${name} begins with its story`);
  }
  const { code, lines } = await shipped(null);
  t.equal(code, 0, lines.join('\n'));
  const last = JSON.parse(lines.at(-1) as string) as { took_ms: number; chain_p95_ms: { before: number; after: number } };
  t.match(last, { sandbox: 'ok', scenarios: 10, failed: 0, runs: 11 });
  t.ok(last.took_ms < 30_000, `all of them in ${last.took_ms} ms`);
  t.ok(last.chain_p95_ms.before > 15_000 && last.chain_p95_ms.after <= 8_000, JSON.stringify(last.chain_p95_ms));
});

t.test('the policies that are deliberately wrong make exactly three of them fail, with a reason that can be understood', async (t) => {
  const { code, lines } = await shipped(join(SHIPPED, 'wrong/policies.yaml'));
  t.equal(code, 1);
  t.match(JSON.parse(lines.at(-1) as string), { sandbox: 'failed', scenarios: 10, passed: 7, failed: 3 });
  const failed = lines.filter((line) => line.startsWith('FAIL')).map((line) => line.slice(6, 40).trim());
  t.match(failed, [/Retry storm/, /Slow model/, /Triple execution/]);
  for (const says of [
    /^ {2}✗ the whole run: executions at crm\.order\.1: \d{4}, expected <= 1300$/,
    /^ {2}✗ step 4 \(.*slow-llm\.yaml:\d+\): the breaker of nlp\.generator\.1 nlp\.text\.generate is closed, expected open$/,
    /^ {2}✗ step 7 \(.*triple-execution\.yaml:\d+\).*: messages that are in_doubt: 0, expected 1$/,
    /^ {2}✗ the whole run: executions under a key: "back-4" was executed 2 times, expected 1$/,
  ])
    t.ok(
      lines.some((line) => says.test(line)),
      says.source,
    );
  t.equal(lines.filter((line) => /what was decided about call \d+/.test(line)).length >= 3, true, 'each with a decision');
  t.ok(lines.some((line) => /retry\.elsewhere +retry 1 of 2, elsewhere/.test(line)));
});

t.test('generated load', async (t) => {
  t.test('comes at the rate that was said, evenly or by chance, in ramps, phases and bursts', async (t) => {
    const report = await run(
      withSteps(`
  - {call: order, for: 10s, rate: 20/s, arrivals: even, expect: {code: ok, per_second: 20}}
  - {call: order, for: 100s, rate: 20/s, expect: {code: ok, per_second: "18 .. 22"}}
  - {call: order, for: 10s, rate: {from: 0/s, to: 20/s}, arrivals: even, expect: {code: ok, per_second: 10}}
  - {call: order, rate: [{for: 10s, rate: 10/s}, {for: 5s, rate: 100/s}], arrivals: even, label: phases}
  - {call: order, for: 1m, rate: 60/m, arrivals: even, bursts: {every: 20s, calls: 50}, label: bursts}
`),
    );
    t.ok(report.ok, wrongIn(report).join('\n'));
    const calls = report.steps.map((step) => step.tally?.calls ?? 0);
    t.strictSame([calls[0], calls[2], calls[3], calls[4]], [200, 100, 600, 210]);
    t.ok(Math.abs((calls[1] as number) - 2_000) < 150, `${calls[1]} by chance`);
    t.strictSame(report.steps.map((step) => step.beganAtMs).slice(0, 2), [0, 9_960], 'the next step begins when the last call has ended');
  });
  t.test('comes from a pool of callers and in sessions, with words that are filled in', async (t) => {
    const report = await run(
      withSteps(`
  - {call: order, times: 300, callers: {prefix: web.desk, count: 5}, payload: {who: $caller, n: $n, dice: "$int(1,6)", one: "$pick(a, b)", id: $id}, label: pool}
  - {call: [order, crm.order.query], times: 400, every: 5ms, sessions: {count: 10, calls: {from: 3, to: 8}}, payload: {s: $session}, expect: {code: ok, broken_sessions: 0}}
`).replace('payload: {who', 'expect: {data: {payload: {who: web.desk.1}}}, payload: {who'),
    );
    const wrong = wrongIn(report);
    t.ok(
      wrong.some((line) => /data\/payload\/who is web\.desk\.[2-5], expected web\.desk\.1/.test(line)),
      'others called as well',
    );
    t.notOk(
      wrong.some((line) => line.startsWith('2:')),
      wrong.join('\n'),
    );
  });
  t.test('an hour of it takes seconds', async (t) => {
    const began = performance.now();
    const report = await run(withSteps('  - {call: order, for: 1h, rate: 4/s, expect: {code: ok, p99: 10ms}}'));
    t.ok(report.ok, wrongIn(report).join());
    t.ok(report.tally.calls > 14_000);
    t.ok(performance.now() - began < 10_000);
    t.comment(`${Math.round(report.tally.calls / ((performance.now() - began) / 1_000))} calls in a second`);
  });
});

t.test('sticky messages whose agent leaves are the next one’s, whether they wait, pause or are at work', async (t) => {
  const scenario = (mock: string, kind: string, dispatch: string, more: string): string => `
scenario: moves
as: web.desk.1
contracts:
  - {name: crm.order.query, version: 2.0.0, description: x, acl: public, execution: ${kind}, timeout: 20s, deadline: 10m, breaker: {enabled: false}}
providers:
  - {agent_id: crm.order.1, offers: [crm.order.query@2.0.0]}
  - {agent_id: crm.order.2, offers: [crm.order.query@2.0.0]}
mocks:
  crm.order.1: {${mock}}
  crm.order.2: {latency: 10ms}
rules:
  - {name: st, when: {capability: crm.order.query}, action: {${dispatch}}}
steps:
  - {send: crm.order.query, label: a, times: 20, every: 10ms, sequence: "k-$int(1,10)", expect: {${more}}}
  - {at: 3s, remove: crm.order.1}
`;
  const sticky = 'dispatch: sticky, sticky_by: sequence_id';
  const failing = await run(scenario('status: 503, latency: 10ms, retry_after: 5s', 'idempotent', sticky, 'state: done, most: "< 60s"'));
  t.strictSame(wrongIn(failing), [], 'those that pause');
  t.equal(failing.messages.get('done'), 20);
  const slow = await run(scenario('latency: 4s', 'idempotent', sticky, 'state: done'));
  t.strictSame(wrongIn(slow), [], 'those that are at work, and those that wait behind them');
});

t.test('where nothing was asked nothing holds', async (t) => {
  const rare = 'for: 1s, rate: 0.001/s';
  const report = await run(`${withSteps(`
  - {call: order, ${rare}, expect: {code: cancelled}}
  - {call: order, ${rare}, label: rare, expect: {p95: "<= 1ms", per_second: "<= 5", succeeded: "<= 100%"}}
  - {call: order, ${rare}}
  - {send: order, ${rare}, expect: {state: done, most: "<= 1s"}}
  - {call: order, label: asked, times: 2, expect: {code: ok, p95: "<= 1s"}}
  - {at: 2s, remove: crm.order.1}
  - {at: 2s, remove: crm.order.2}
  - {at: 3s, send: order, label: waits, sequence: s, expect: {elapsed: "<= 1h", p95: "<= 1h"}}
`)}
tasks: {never: {deadline: 1s}}
expect:
  latency: {rare: {p50: "<= 1s"}, asked: {p50: "<= 1s"}}
  tasks: {never: "<= 1s"}
`);
  const wrong = wrongIn(report);
  t.match(wrong, [
    /^1: nothing was asked, so nothing holds/,
    /^2: nothing was asked, so nothing holds/,
    /^4: nothing was sent, so nothing holds/,
    /^8: elapsed: it is (?:waiting|accepted|parked) and has not ended, so nothing holds/,
    /^8: times: there is none, so nothing holds/,
    /^run: the task never has made no call, so nothing holds/,
    /^run: times of rare: there is none, so nothing holds/,
  ]);
  t.equal(wrong.length, 7, wrong.join('\n'));
});

t.test('messages', async (t) => {
  const WORK = `
scenario: messages
as: web.desk.1
contracts:
  - {name: crm.report.write, version: 1.0.0, acl: public, execution: idempotent, timeout: 2s, deadline: 5s}
  - {name: pay.order.charge, version: 1.0.0, acl: public, execution: once, timeout: 2s, deadline: 5s}
providers:
  - {agent_id: crm.back.1, offers: [crm.report.write@1.0.0, pay.order.charge@1.0.0]}
policies:
  - {capability: "*", breaker: {enabled: false}}
mocks:
  crm.back.1: {latency: 50ms}
steps:
`;
  t.test('are tried again with pauses, put aside after seven times, or in doubt, as on a real queue', async (t) => {
    const report = await run(`${WORK}
  - {send: crm.report.write, times: 5, every: 10ms, expect: {state: done, attempts: 1, provider: crm.back.1, elapsed: "50ms .. 1s"}}
  - {mock: crm.back.1, set: {answers: [{status: 500}, {status: 500}, {status: 200}], behaviours: []}}
  - {mock: crm.back.1, set: {answers: [{status: 500}]}}
  - {send: crm.report.write, label: dead, expect: {state: dead_lettered, attempts: 7, elapsed: ">= 60s"}}
  - {send: crm.report.write, retryable: false, expect: {state: failed, attempts: 1}}
  - {mock: crm.back.1, set: {answers: [{reset: true}]}}
  - {send: pay.order.charge, expect: {state: in_doubt, attempts: 1}}
  - {send: crm.nothing.there, expect: {state: refused, code: no_provider}}
expect: {messages: {sent: 9, done: 5, dead_lettered: 1, failed: 1, in_doubt: 1, refused: 1}, latency: {dead: {p50: ">= 1m"}}}
`);
    t.ok(report.ok, wrongIn(report).join('\n'));
  });
  t.test('wait for somebody who is not there, and go to who comes', async (t) => {
    const report = await run(`${WORK}
  - {remove: crm.back.1}
  - {send: crm.report.write, times: 3, expect: {state: done, provider: crm.back.2}}
  - expect: {messages: {parked: 3}}
  - {add: {agent_id: crm.back.2, offers: [crm.report.write@1.0.0], endpoint: {type: mock, latency: 20ms}}}
  - {wait: 5s}
  - expect: {messages: {done: 3}, executions: {crm.back.2: 3}}
`);
    t.ok(report.ok, wrongIn(report).join('\n'));
  });
  t.test('go by rules: lanes, people who decide, another capability; and the linter is asked', async (t) => {
    const report = await run(
      `${WORK.replace(
        'steps:',
        `rules:
  - {name: reports, when: {capability: crm.report.write}, action: {priority: low}}
  - {name: urgent, when: {capability: crm.report.write, tags: {kind: urgent}}, action: {priority: high}}
  - {name: reports-too, when: {capability: crm.report.write}}
  - {name: people, when: {capability: pay.order.charge}, fallback: {if_no_available_agent: notify_admin}}
steps:`,
      )}
  - {send: crm.report.write, expect: {state: done, rule: reports, lane: low}}
  - {send: crm.report.write, tags: {kind: urgent}, expect: {state: done, rule: urgent, lane: high}}
  - {remove: crm.back.1}
  - {send: pay.order.charge, expect: {state: review, rule: people}}
expect: {lint: {reports-too: shadowed, urgent: clean}}
`,
    );
    t.ok(report.ok, wrongIn(report).join('\n'));
  });
  t.test('of one conversation go to one agent, in order', async (t) => {
    const report = await run(
      `${WORK.replace(
        'steps:',
        'rules:\n  - {name: together, when: {capability: crm.report.write}, action: {dispatch: sticky, sticky_by: sequence_id}}\nsteps:',
      ).replace(
        'policies:',
        '  - {agent_id: crm.back.2, offers: [crm.report.write@1.0.0], endpoint: {type: mock, latency: 50ms}}\npolicies:',
      )}
  - {send: crm.report.write, times: 200, every: 20ms, sessions: {count: 20, calls: 10}, expect: {state: done, broken_sessions: 0, providers: {crm.back.1: ">= 40", crm.back.2: ">= 40"}}}
`,
    );
    t.ok(report.ok, wrongIn(report).join('\n'));
  });
  t.test('what is expected of them can fail', async (t) => {
    const cases: readonly (readonly [expect: string, says: RegExp])[] = [
      ['state: failed', /^it is done, expected failed$/],
      ['code: internal', /^code is 0 ok, expected 9001 internal$/],
      ['provider: none', /^crm\.back\.1 had it last, expected none$/],
      ['version: 2.0.0', /^version is 1\.0\.0, expected 2\.0\.0$/],
      ['rule: other', /^rule is none, expected other$/],
      ['lane: high', /^lane is normal, expected high$/],
      ['replay: true', /^replay is false, expected true$/],
      ['attempts: 2', /^hand-overs: 1, expected 2$/],
      ['elapsed: "< 1ms"', /^elapsed: 50ms, expected < 1ms$/],
      ['detail: nothing', /^detail is "", expected to contain "nothing"$/],
      ['states: {failed: 1}', /^messages that are failed: 0, expected 1$/],
      ['providers: {crm.back.1: 2}', /^messages that crm\.back\.1 had last: 1, expected 2$/],
      ['p95: "< 10ms"', /^P95: 50ms, expected < 10ms$/],
    ];
    const report = await run(`${WORK}${cases.map(([expect]) => `  - {send: crm.report.write, expect: {${expect}}}`).join('\n')}\n`);
    for (const [i, [expect, says]] of cases.entries()) {
      const found = report.failures.filter((failure) => failure.step === i + 1).map((failure) => failure.what);
      t.ok(
        found.some((what) => says.test(what)),
        `${expect}: ${found.join(' | ') || 'it held'}`,
      );
    }
  });
});

t.test('agents that call on', async (t) => {
  const CHAIN = `
scenario: chain
as: web.desk.1
contracts:
  - {name: team.plan.make, version: 1.0.0, acl: public, execution: idempotent, deadline: 30s, timeout: 30s}
  - {name: team.text.write, version: 1.0.0, acl: public, execution: idempotent, deadline: 30s, timeout: 30s}
providers:
  - {agent_id: team.planner.1, offers: [team.plan.make@1.0.0]}
  - {agent_id: team.writer.1, offers: [team.text.write@1.0.0]}
mocks:
  team.planner.1: {latency: 100ms, calls: [{call: team.text.write, payload: {about: $payload}}], body: {plan: $answers.1}}
  team.writer.1: {latency: 200ms, body: {left: $header.reach-deadline-ms, path: $header.reach-path, got: $payload}}
`;
  t.test('hand on time, path and payload, and answer with what they were answered', async (t) => {
    const report = await run(`${CHAIN}steps:
  - call: team.plan.make
    payload: {n: 1}
    deadline: 1s
    expect: {code: ok, elapsed: 300ms, data: {plan: {left: "900", path: "team.planner.1>team.plan.make, team.writer.1>team.text.write", got: {about: {n: 1}}}}}
expect: {agent_calls: 1, latency: {team.text.write: {most: 200ms}}}
`);
    t.ok(report.ok, wrongIn(report).join('\n'));
  });
  t.test('fail with those that they asked, or go on without them', async (t) => {
    const report = await run(`${CHAIN}steps:
  - {mock: team.writer.1, set: {status: 500}}
  - {call: team.plan.make, expect: {code: provider_error, status: 502}}
  - {mock: team.planner.1, set: {calls: [{call: team.text.write, on_error: go_on, tries: 3}]}}
  - {call: team.plan.make, expect: {code: ok}}
  - {mock: team.planner.1, set: {calls: {parallel: true, steps: [team.text.write, team.text.write]}}}
  - {mock: team.writer.1, set: {status: 200}}
  - {call: team.plan.make, expect: {code: ok, elapsed: 300ms}}
expect: {agent_calls: 6}
`);
    t.ok(report.ok, wrongIn(report).join('\n'));
  });
  t.test('a loop through them is refused and named; a careless one goes on for nobody', async (t) => {
    const loop =
      await run(`${CHAIN.replace('team.writer.1: {latency: 200ms', 'team.writer.1: {latency: 200ms, calls: [team.plan.make]')}steps:
  - {call: team.plan.make, expect: {code: provider_error}}
expect: {executions: {team.planner.1: 1, team.writer.1: 1}, agent_calls: 2}
`);
    t.ok(loop.ok, wrongIn(loop).join('\n'));
    const careless = (passesOn: boolean): Promise<RunReport> =>
      run(`${CHAIN.replace('calls: [{call: team.text.write, payload: {about: $payload}}]', `calls: {passes_on: ${passesOn}, steps: [team.text.write, team.text.write]}`)}steps:
  - {call: team.plan.make, deadline: 150ms, expect: {code: deadline_exceeded, elapsed: 150ms}}
expect: {agent_calls: "${passesOn ? 1 : 2}"}
`);
    t.strictSame(wrongIn(await careless(true)), []);
    t.strictSame(wrongIn(await careless(false)), [], 'it asks the second one although nobody waits any more');
  });
});

t.test('variants are runs of one scenario, each with what is laid over it', async (t) => {
  const text = `${BASE}steps:
  - {call: order, times: 50, label: all}
figures: {p95_ms: p95 of all}
variants:
  quick: {note: as it is, expect: {latency: {all: {p95: 10ms}}}}
  slow:
    mocks: {crm.order.1: {latency: 1s}, crm.order.2: {latency: 1s}}
    expect: {latency: {all: {p95: 1s}}}
  drained:
    policies: [{capability: crm.order.query, providers: {crm.order.1: {drain: true}}}]
    expect: {executions: {crm.order.2: 50}}
`;
  const reading = readScenarios(text, 'variants.yaml');
  if ('problems' in reading) throw new Error(JSON.stringify(reading.problems));
  const reports = await Promise.all(reading.scenarios.map((scenario) => runScenario(scenario)));
  t.strictSame(reports.map(wrongIn), [[], [], []]);
  t.strictSame(
    reports.map(({ scenario, figures }) => [scenario.variant, figures.get('p95_ms')]),
    [
      ['quick', 10],
      ['slow', 1_000],
      ['drained', 10],
    ],
  );
  const slips: readonly (readonly [from: string, to: string, says: RegExp])[] = [
    [
      'mocks: {crm.order.1: {latency: 1s}',
      'mocks: {crm.order.1: {latncy: 1s}',
      /^\d+ \/variants\/slow\/mocks\/crm\.order\.1.*latncy is not known to a mock/,
    ],
    [
      'drain: true',
      'drian: true',
      /\/variants\/drained\/policies\/0\/providers\/crm\.order\.1\/drian unknown key "drian": did you mean drain\?/,
    ],
    ['note: as it is', 'notes: as it is', /\/variants\/quick\/notes unknown key "notes": did you mean note\?/],
    ['p95 of all', 'p95 of al', /no step has the label "al".*did you mean all\?/],
    ['p95 of all', 'p93 of all', /a figure is written as "p95 of/],
  ];
  for (const [from, to, says] of slips) {
    const problems = problemsIn(text.replace(from, to));
    t.ok(
      problems.some((problem) => says.test(problem)),
      `${to}: ${problems.join(' | ')}`,
    );
  }
});

t.test('breakers over time, percentiles and keys are expectations too, and can fail', async (t) => {
  const report = await run(`${withSteps(`
  - {mock: [crm.order.1, crm.order.2], set: {status: 500}}
  - {call: order, times: 60, every: 100ms, label: bad}
  - {wait: 3m}
  - {mock: [crm.order.1, crm.order.2], set: {status: 200}}
  - {call: order, times: 100, every: 500ms, key: "k-$int(1,20)", label: good, expect: {p95: "< 5ms", per_second: 9}}
`)}
expect:
  breaker_path: {crm.order.1 crm.order.query: [closed, half_open]}
  open_for: {crm.order.1 crm.order.query: "< 1s"}
  latency: {bad: {p50: 77ms}, crm.order.query: {p99: 88ms}}
  executions_per_key: 2
  messages: {sent: 1}
  agent_calls: 7
  lint: {nobody: clean}
`);
  for (const says of [
    /^5: P95: 10ms, expected < 5ms$/,
    /^5: calls in a second: 2, expected 9$/,
    /^run: the breaker of crm\.order\.1 crm\.order\.query went closed → open → .*, expected closed → half_open$/,
    /^run: time that the breaker of crm\.order\.1 crm\.order\.query was open: \d+s?.*, expected < 1s$/,
    /^run: P50 of bad: \S+, expected 77ms$/,
    /^run: P99 of crm\.order\.query: \S+, expected 88ms$/,
    /^run: executions under a key: "k-\d+" was executed 1 times \(and \d+ more keys\), expected 2$/,
    /^run: messages sent: 0, expected 1$/,
    /^run: calls of agents: 0, expected 7$/,
    /^run: the linter says of rule nobody: there is no such rule, expected clean$/,
  ])
    t.ok(
      wrongIn(report).some((line) => says.test(line)),
      `${says.source}\n${wrongIn(report).join('\n')}`,
    );
});

t.test('slips in what is new are named at their place', async (t) => {
  const cases: readonly (readonly [what: string, text: string, says: RegExp])[] = [
    ['a rate without a unit', withSteps('  - {call: order, for: 1m, rate: 10}'), /rate must be/],
    ['a rate without a time', withSteps('  - {call: order, rate: 10/s}'), /rate needs for: how long/],
    ['a rate and a number', withSteps('  - {call: order, for: 1m, rate: 10/s, every: 1s}'), /write either rate or every/],
    ['bursts of nothing', withSteps('  - {call: order, bursts: {every: 1s, calls: 3}}'), /bursts come on top of generated load/],
    ['two kinds of callers', withSteps('  - {call: order, as: web.desk.2, callers: [web.desk.3]}'), /write either as or callers/],
    ['sessions without sessions', withSteps('  - {call: order, expect: {broken_sessions: 0}}'), /the step has no sessions/],
    ['a state that is none', withSteps('  - {send: order, expect: {states: {don: 1}}}'), /"don" is none of .*; did you mean done\?/],
    ['copies without a key', withSteps('  - {send: order, copies: 3}'), /copies have one key: write key/],
    ['an unknown key of a message', withSteps('  - {send: order, lan: high}'), /unknown key "lan": did you mean lane\?/],
    [
      'a percentile of nobody',
      `${withSteps('  - {call: order, label: one}')}\nexpect: {latency: {on: {p95: 1s}}}\n`,
      /no step has the label "on".*did you mean one\?/,
    ],
  ];
  for (const [what, text, says] of cases) {
    const problems = problemsIn(text);
    t.ok(
      problems.some((problem) => says.test(problem)),
      `${what}: ${problems.join(' | ') || 'no problem at all'}`,
    );
  }
});

t.test('docs/sandbox.md: every snippet of it works as it says', async (t) => {
  const page = readFileSync(repoFile('docs/sandbox.md'), 'utf8');
  const snippets = [...page.matchAll(/^```(\w+)( fails)?\n([\s\S]*?)^```$/gm)].map(([, kind, fails, text]) => ({
    kind,
    fails: fails !== undefined,
    text: text as string,
  }));
  const named = (name: string): string => snippets.find(({ text }) => text.startsWith(`# ${name}\n`))?.text ?? '';
  const folder = t.testdir({
    'scenario.yaml': named('scenario.yaml'),
    'policies.yaml': named('policies.yaml'),
    scenarios: { 'one.yaml': named('scenario.yaml') },
  });
  const scenarios = snippets.filter(({ kind, text }) => kind === 'yaml' && /^scenario: /m.test(text));
  t.equal(scenarios.length, 4);
  for (const { text } of scenarios) {
    const reading = readScenarios(text, 'docs/sandbox.md');
    t.ok('scenarios' in reading, JSON.stringify(reading).slice(0, 300));
    if ('problems' in reading) continue;
    for (const scenario of reading.scenarios) t.strictSame(wrongIn(await runScenario(scenario)), [], scenario.name);
  }
  const commands = [
    ...snippets.filter(({ kind }) => kind === 'sh').map(({ text, fails }) => ({ line: text.trim(), fails })),
    ...[...page.matchAll(/- run: (npx reach-sidecar .*)$/gm)].map(([, line]) => ({ line: line as string, fails: false })),
  ];
  t.equal(commands.length, 3);
  await Promise.all(
    commands.map(async ({ line, fails }) => {
      const { code, out } = await started(line.split(' ').slice(2), folder);
      t.equal(code, fails ? 1 : 0, `${line}\n${out}`);
      t.match(JSON.parse(out.trimEnd().split('\n').at(-1) as string), { sandbox: fails ? 'failed' : 'ok', scenarios: 1 }, line);
    }),
  );
  t.match(readFileSync(join(folder, 'sandbox.xml'), 'utf8'), /<testsuite /, 'the CI has its file');
});

function started(args: readonly string[], cwd: string): Promise<{ code: number | null; out: string }> {
  return new Promise((done) => {
    execFile(process.execPath, [...nodeArgs('sidecar/main.ts'), ...args], { cwd }, (error, out, err) =>
      done({ code: error === null ? 0 : typeof error.code === 'number' ? error.code : null, out: out + err }),
    );
  });
}
