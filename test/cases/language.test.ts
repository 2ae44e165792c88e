/** What people write, and when it takes effect: YAML that expands without end, bad and mended tables, unknown options, what a push may not wipe, and the order of a start. */
import { appendFileSync, existsSync, mkdtempSync, readFileSync, renameSync, rmSync, utimesSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import t from 'tap';
import { readTable } from '../../proto/language/document.ts';
import { readSettings, startSidecar, StartRefused } from '../../sidecar/sidecar.ts';
import { createLog } from '../../base/log.ts';
import { TestAgent } from '../support/agent.ts';
import { assertQuiet, takeBase } from '../support/invariants.ts';
import { contractLine, metricIn, mockLine, Offline } from '../support/offline.ts';
import { CALLER, Rig, TOKEN } from '../support/rig.ts';
import { waitUntil } from '../support/settle.ts';

type Test = Parameters<typeof Rig.start>[0];

// Other tests share the machine.
t.setTimeout(110_000);
const before = takeBase();
const NAME = 'crm.order.query';
const sleep = (ms: number): Promise<void> => new Promise((done) => setTimeout(done, ms));

/** One capability, whose description tells which table this is, and one mock provider. */
const small = (mark: string, rest = ''): string =>
  `contracts:\n  - {name: ${NAME}, version: "2.0.0", description: ${JSON.stringify(mark)}, acl: public, execution: idempotent}\nproviders:\n${mockLine('crm.order.p1', [`${NAME}@2.0.0`])}\n${rest}`;
const markOf = (rig: Rig): string => rig.started.front.table.current().document.contracts[0]?.description ?? 'nothing';
const problemsOf = (text: string): string[] => {
  const reading = readTable(text, 'team.yaml');
  return 'problems' in reading ? reading.problems.map((each) => `${each.line}:${each.column} ${each.path} ${each.message}`) : [];
};

/** A folder that outlives the sidecars that are started in it. */
function workFolder(t: Test): string {
  const folder = mkdtempSync(join(tmpdir(), 'reach-case-'));
  t.teardown(() => rmSync(folder, { recursive: true, force: true }));
  return folder;
}

/** What somebody who cannot start is told. */
function refusalOf(start: () => unknown): string {
  try {
    start();
  } catch (error) {
    return error instanceof StartRefused ? error.lines.join('\n') : `not a refusal: ${String(error)}`;
  }
  return 'it started';
}

/** As an editor does it: a new file takes the place of the old one. */
function replace(folder: string, text: string): void {
  writeFileSync(join(folder, 'table.yaml.new'), text);
  renameSync(join(folder, 'table.yaml.new'), join(folder, 'table.yaml'));
}

t.test('C068 aliases, anchors and merge keys are refused before anything is expanded', async (t) => {
  const levels = (first: string): string =>
    `a: &a ${first}\n${Array.from({ length: 20 }, (_, i) => `b${i}: &b${i} [*${i === 0 ? 'a' : `b${i - 1}`}, *${i === 0 ? 'a' : `b${i - 1}`}]`).join('\n')}\n`;
  const good = small('good');
  const files: readonly (readonly [string, string])[] = [
    ['20 levels', `${good}${levels('[lol, lol]')}`],
    ['500 merge keys', `${good}B: &B {x: 1, y: 2}\nmany:\n${'  - { <<: *B }\n'.repeat(500)}`],
    ['an anchor that holds itself', `${good}self: &self\n  again: *self\n`],
    // Neighbours.
    ['an anchor that nobody uses', good.replace('acl: public', 'acl: &who public')],
    ['an alias as a key', `${good}policies: [{*x : 1}]\n`],
    ['a merge key with the values beside it', good.replace('acl: public', '<<: {acl: public}')],
    ['a merge of a list', `${good}m: {<<: [*a, *b]}\n`],
    ['a tag that makes something', `${good}x: !!js/function "f"\n`],
    ['a directive', `%YAML 1.1\n---\n${good}`],
    ['two documents', `${good}---\n${good}`],
    ['ten thousand brackets', `${good}x: ${'['.repeat(10_000)}${']'.repeat(10_000)}\n`],
    ['ten thousand levels of blocks', `${good}x:\n${Array.from({ length: 2_000 }, (_, i) => `${' '.repeat(i + 1)}a:`).join('\n')} 1\n`],
    ['five megabytes', `${good}# ${'x'.repeat(5_000_000)}\n`],
    ['a million aliases', `${good}x: &x 1\ny: [${'*x,'.repeat(300_000)}]\n`],
  ];
  for (const [, text] of files) problemsOf(text.slice(0, 2_000)); // what is compiled once is not measured
  for (const [what, text] of files) {
    // The best of three: other tests share the machine.
    let elapsedMs = Number.POSITIVE_INFINITY;
    let grown = Number.POSITIVE_INFINITY;
    let found: string[] = [];
    for (let i = 0; i < 3; i++) {
      const rss = process.memoryUsage.rss();
      const began = performance.now();
      found = problemsOf(text);
      elapsedMs = Math.min(elapsedMs, performance.now() - began);
      grown = Math.min(grown, process.memoryUsage.rss() - rss);
    }
    t.ok(found.length >= 1 && found.length <= 50, `${what}: refused: ${found[0]?.slice(0, 100)}`);
    t.ok(elapsedMs < 50, `${what}: in ${elapsedMs.toFixed(1)} ms`);
    t.ok(grown < 10_000_000, `${what}: ${grown} bytes of memory`);
  }
  t.strictSame(problemsOf(good.replace('"good"', '"a * b, &c and << are only text when quoted"')), [], 'text is not mistaken for them');

  const rig = await Rig.start(t, { table: good });
  for (const [what, text] of files) {
    t.equal(await rig.push(text), 'refused', what);
    t.equal(markOf(rig), 'good', 'the table before it stays');
  }
  const health = (await rig.ask('/v1/health')).json;
  t.match(health, { status: 'stale', table: { refusals: files.length } });
  t.equal((await rig.invoke(NAME)).status, 200);
  t.ok(JSON.stringify(health).length < 20_000, 'what is told of it is bounded');
  await rig.finish(t, before);
});

t.test('C070 one bad rule refuses its version as a whole, and a restart begins with the last good one', async (t) => {
  const rules = (bad: number | null, mark: string): string =>
    `contracts:\n${Array.from({ length: 50 }, (_, i) => (i === bad ? `  - {name: crm.order.get${i}, version: "1.0.0", acl: nobody}` : contractLine(`crm.order.get${i}`, '1.0.0', `description: ${mark}`))).join('\n')}\nproviders:\n${mockLine(
      'crm.order.p1',
      Array.from({ length: 50 }, (_, i) => `crm.order.get${i}@1.0.0`),
    )}\n`;
  const folder = workFolder(t);
  const rig = await Rig.start(t, { table: rules(null, 'v1'), folder });
  t.equal((await rig.invoke('crm.order.get7')).status, 200);

  await t.test('v2 with one bad rule: refused and named; traffic goes on by v1', async (t) => {
    t.equal(await rig.push(rules(17, 'v2')), 'refused');
    const health = (await rig.ask('/v1/health')).json;
    t.match(health, { status: 'stale', table: { version: 1, refusals: 1, stale_because: /was refused: \d+ problem/ } });
    t.match(health.table.problems[0], { line: 19, path: '/contracts/17/acl', message: /acl must be the word public or a list/ });
    t.ok((await rig.ask('/v1/ready')).status === 200, 'ready, by v1');
    for (let i = 0; i < 50; i++) t.equal((await rig.invoke(`crm.order.get${i}`)).status, 200);
    t.match(markOf(rig), 'v1');
  });

  const second = await t.test('a restart with v2 in the file', async (t) => {
    await rig.stop();
    const again = await Rig.start(t, { table: null, folder });
    const health = (await again.ask('/v1/health')).json;
    t.match(health, { status: 'stale', table: { version: 1, source: 'last good copy', stale_because: /was refused/ } });
    t.ok(health.table.problems.length >= 1, 'what is wrong with the file is still told');
    t.match((await again.ask('/v1/ready')).json, { ready: true, status: 'stale' });
    t.equal((await again.invoke('crm.order.get17')).status, 200, 'the table is not empty');
    t.ok(
      again.logged.some((line) => line['level'] === 50 && String(line['msg']).includes('refused')),
      'at error level',
    );
    t.ok(again.logged.some((line) => String(line['msg']).includes('last good')));

    t.equal(await again.push(rules(null, 'v3')), 'installed');
    t.match((await again.ask('/v1/health')).json, { status: 'ok', table: { source: 'file', stale_because: null, problems: [] } });
    t.equal(markOf(again), 'v3');
    await again.finish(t, before);
  });
  void second;

  await t.test('and with the file gone altogether', async (t) => {
    rmSync(join(folder, 'table.yaml'));
    const again = await Rig.start(t, { table: null, folder });
    t.equal(markOf(again), 'v3', 'the newest good one, not the first');
    t.match((await again.ask('/v1/health')).json, { status: 'stale', table: { source: 'last good copy', stale_because: /was refused/ } });
    t.equal((await again.invoke('crm.order.get1')).status, 200);
    await again.finish(t, before);
  });

  await t.test('with no good copy it is not ready and says so', async (t) => {
    const empty = workFolder(t);
    for (const copy of [null, 'contracts: [{name: broken', '', 'contracts: 5\n']) {
      if (copy !== null) writeFileSync(join(empty, '.reach', 'one.last-good.yaml'), copy);
      const again = await Rig.start(t, { table: rules(3, 'v1'), folder: empty });
      t.match(await again.ask('/v1/ready'), { status: 503, json: { ready: false, status: 'starting' } });
      t.match(await again.invoke('crm.order.get1'), { status: 503, json: { code: 2003, retryable: true } });
      t.equal(await again.push(rules(null, 'v2')), 'installed', 'and recovers as soon as the file is mended');
      t.equal((await again.ask('/v1/ready')).status, 200);
      t.ok(existsSync(join(empty, '.reach', 'one.last-good.yaml')));
      await again.finish(t, before);
      if (copy === null) continue;
    }
  });

  await t.test('the same with settings and table in one file', async (t) => {
    const here = workFolder(t);
    const file = join(here, 'all.yaml');
    const whole = (table: string): string =>
      `sidecar:\n  name: one\n  listen: 127.0.0.1:0\n  callers: [{agent: ${CALLER}, token: ${TOKEN}}]\n${table}`;
    const log = createLog({ level: 'silent', to: 'stderr', service: 'one' });
    writeFileSync(file, whole(rules(3, 'v0')));
    t.match(
      refusalOf(() => readSettings(file)),
      /contracts\/3\/acl/,
      'a first start with a mistake is refused',
    );
    writeFileSync(file, whole(rules(null, 'v1')));
    await (await startSidecar(file, log)).stop(0);
    writeFileSync(file, whole(rules(3, 'v2')));
    const started = await startSidecar(file, log);
    t.equal(started.front.table.source, 'last good copy');
    t.ok(started.front.ready);
    t.ok(started.front.table.problems.length > 0);
    writeFileSync(file, whole(rules(null, 'v3')));
    await waitUntil('v3', () => started.front.table.current().document.contracts[0]?.description === 'v3', 3_000);
    await started.stop(0);
    writeFileSync(file, whole(rules(null, 'v3')).replace('name: one', 'nam: one'));
    t.match(
      refusalOf(() => readSettings(file)),
      /unknown key "nam"/,
      "settings of its own that are wrong are not covered by yesterday's table",
    );
    await assertQuiet(t, { before });
  });
});

t.test('C071 after a bad push the next good one is taken, however it is written', async (t) => {
  await t.test('bad, bad, good, bad, good within a second', async (t) => {
    const rig = await Rig.start(t, { table: small('first') });
    const bad = small('bad').replace('acl: public', 'acl: 7');
    const pushed = [bad, `${bad}\n# again`, small('good one'), 'nonsense: [', small('good two')];
    const seen = new Set<string>();
    let isOver = false;
    const watch = (async () => {
      while (!isOver) {
        seen.add(markOf(rig));
        t.equal((await rig.invoke(NAME)).status, 200, 'calls go on all the while');
        await sleep(10);
      }
    })();
    for (const text of pushed) {
      replace(rig.folder, text);
      await sleep(190);
    }
    const written = performance.now();
    await waitUntil('the newest good one is in force', () => markOf(rig) === 'good two', 1_000);
    t.ok(performance.now() - written < 1_000);
    isOver = true;
    await watch;
    t.ok(
      [...seen].every((mark) => ['first', 'good one', 'good two'].includes(mark)),
      'never a bad one',
    );
    const health = (await rig.ask('/v1/health')).json;
    t.match(health, { status: 'ok', table: { stale_because: null, problems: [] } });
    t.ok(health.table.refusals >= 1, `${health.table.refusals} were refused`);
    t.ok(
      rig.logged.some((line) => line['level'] === 50 && JSON.stringify(line).includes('acl')),
      'with the reason',
    );
    t.match((await rig.ask('/metrics')).bytes.toString(), new RegExp(`reach_rejected_pushes_total ${health.table.refusals}\\n`));
    t.equal(
      readFileSync(join(rig.folder, '.reach', 'one.last-good.yaml'), 'utf8'),
      small('good two'),
      'the copy on disk is the newest good one',
    );
    // Nothing comes late: what was written first is not taken up again.
    const { version } = rig.started.front.table.current();
    await sleep(600);
    t.equal(rig.started.front.table.current().version, version);
    t.equal(markOf(rig), 'good two');
    await rig.finish(t, before);
  });

  await t.test('a start with a broken file, mended in every way there is', async (t) => {
    const mend: readonly (readonly [string, (folder: string, file: string) => void | Promise<void>])[] = [
      ['written in place', (_folder, file) => writeFileSync(file, small('mended'))],
      ['replaced by rename (new inode)', (folder) => replace(folder, small('mended'))],
      [
        'deleted, then created',
        async (_folder, file) => {
          rmSync(file);
          await sleep(300);
          writeFileSync(file, small('mended'));
        },
      ],
      [
        'of the same length and with the old time stamp',
        (_folder, file) => {
          const then = new Date(1_700_000_000_000);
          writeFileSync(file, small('mended'));
          utimesSync(file, then, then);
        },
      ],
      [
        'written in pieces',
        async (_folder, file) => {
          writeFileSync(file, '');
          for (const line of small('mended').split(/(?<=\n)/)) {
            appendFileSync(file, line);
            await sleep(15);
          }
        },
      ],
    ];
    for (const [how, write] of mend) {
      const folder = workFolder(t);
      const file = join(folder, 'table.yaml');
      const broken = small('mended').replace('public', 'publik');
      const rig = await Rig.start(t, { table: broken, folder });
      if (how.includes('time stamp')) utimesSync(file, new Date(1_700_000_000_000), new Date(1_700_000_000_000));
      t.equal((await rig.ask('/v1/ready')).status, 503);
      await write(folder, file);
      await waitUntil(`${how}: taken`, () => rig.started.front.ready, 1_000);
      t.equal(markOf(rig), 'mended');
      t.equal((await rig.invoke(NAME)).status, 200, how);
      t.match((await rig.ask('/v1/health')).json, { status: 'ok', table: { problems: [] } });
      await rig.finish(t, before);
    }
  });

  await t.test('half a table that reads well is not taken while the other half is being written', async (t) => {
    const rig = await Rig.start(t, { table: small('first') });
    const file = join(rig.folder, 'table.yaml');
    const next = small('second');
    const cut = next.indexOf('providers:');
    t.strictSame(problemsOf(next.slice(0, cut)), [], 'the first half is a table of its own: a capability that nobody offers');
    let inTime = 0;
    for (let n = 0; n < 8; n++) {
      writeFileSync(file, next.slice(0, cut));
      const halfSince = performance.now();
      for (let i = 0; i < 3; i++) {
        const { status } = await rig.invoke(NAME);
        // A file that has stood still for 50 ms counts as written; on a machine that stood still itself, this one has.
        if (performance.now() - halfSince < 50) inTime += Number(t.equal(status, 200));
        await sleep(8);
      }
      appendFileSync(file, next.slice(cut));
      await sleep(60);
    }
    t.ok(inTime > 0, 'it was asked while only half of it stood there');
    await waitUntil('the whole one', () => markOf(rig) === 'second', 5_000);
    t.equal((await rig.invoke(NAME)).status, 200);
    await rig.finish(t, before);
  });
});

t.test('C073 an option that does not exist, or stands in the wrong place, is refused by name', async (t) => {
  const contract = (line: string): string => small('x').replace('acl: public', `acl: public, ${line}`);
  const provider = (line: string): string => small('x').replace('endpoint:', `${line}, endpoint:`);
  const policy = (line: string): string => small('x', `policies:\n  - {capability: ${NAME}, ${line}}\n`);
  const cases: readonly (readonly [string, string, RegExp])[] = [
    ['a misspelt fallback', contract('fallbak: none'), /^2:\d+ \/contracts\/0\/fallbak unknown key "fallbak": did you mean fallback\?$/],
    [
      'retry at the wrong level',
      provider('retry: {max: 2}'),
      /\/providers\/0\/retry unknown key "retry": it belongs under a contract or a policy$/,
    ],
    ['retry at the top', `${small('x')}retry: {max: 2}\n`, /\/retry unknown key "retry": it belongs under a contract or a policy$/],
    ['a field of retry one level up', contract('max: 2'), /\/contracts\/0\/max unknown key "max": it belongs under retry$/],
    ['a priority', policy('priority: high'), /\/policies\/0\/priority unknown key "priority": known are capability, default_range/],
    ['a priority in a contract', contract('priority: high'), /\/contracts\/0\/priority unknown key "priority"/],
    // Neighbours.
    ['another case', contract('Fallback: none'), /unknown key "Fallback": did you mean fallback\?/],
    ['a dash', policy('default-range: "^2"'), /unknown key "default-range": did you mean default_range\?/],
    ['deep inside', policy('breaker: {slow_cal: 3s}'), /\/policies\/0\/breaker\/slow_cal unknown key "slow_cal": did you mean slow_call\?/],
    [
      'in a step of a fallback',
      policy('fallback: [{capabilty: crm.order.query}]'),
      /\/policies\/0\/fallback\/0 .*one of the keys capability, provider, static/,
    ],
    [
      'two kinds in one step',
      policy('fallback: [{capability: crm.order.query, static: 1}]'),
      /\/policies\/0\/fallback\/0\/static unknown key "static"/,
    ],
    ['in a single provider of a policy', policy('providers: {crm.order.p1: {wieght: 2}}'), /unknown key "wieght": did you mean weight\?/],
    // Judged before a provider is chosen, so that it would say nothing there.
    ['a limit on requests at a provider', provider('limits: {request: 1MiB}'), /\/providers\/0\/limits\/request unknown key "request"/],
    [
      'a limit on callers at one provider',
      policy('providers: {crm.order.p1: {limits: {per_caller: 2}}}'),
      /\/crm\.order\.p1\/limits\/per_caller unknown key "per_caller"/,
    ],
    [
      'public in a list',
      small('x').replace('acl: public', 'acl: [public]'),
      /\/acl\/0 public stands alone, not in a list: write acl: public$/,
    ],
    ['a section', `${small('x')}policy: []\n`, /\/policy unknown key "policy": known are contracts, providers, policies/],
    ['a value that is none of the words', policy('load: round-robin'), /load must be one of .*; did you mean round_robin\?/],
    ['an affinity mode', contract('affinity: {from: /a, mode: sticky}'), /mode must be one of soft, strict/],
    [
      'an option of a transport',
      small('x').replace('{type: mock}', '{type: http, address: "http://127.0.0.1:1", adress: x}'),
      /\/endpoint\/adress unknown key "adress": did you mean address\?/,
    ],
    [
      'an override without effect',
      `${small('x')}overrides:\n  - {name: o, reason: r, action: block, capability: ${NAME}, expire: 5m}\n`,
      /unknown key "expire": did you mean expires\?/,
    ],
  ];
  for (const [what, text, wanted] of cases) {
    const found = problemsOf(text);
    t.ok(
      found.some((line) => wanted.test(line)),
      `${what}: ${found.join(' | ').slice(0, 300)}`,
    );
  }

  await t.test('in the push, at error level, in health and in the metric; and never half applied', async (t) => {
    const rig = await Rig.start(t, { table: small('in force') });
    let refusals = 0;
    const transports: readonly (readonly [string, string, RegExp])[] = [
      [
        'a transport that there is none of',
        small('x').replace('{type: mock}', '{type: htttp, address: "http://127.0.0.1:1"}'),
        /^\/providers\/0\/endpoint\/type no transport is called "htttp"; did you mean http\?$/,
      ],
      [
        'a script that no mock understands',
        small('x').replace('{type: mock}', '{type: mock, latencyy: 10ms}'),
        /^\/providers\/0\/endpoint \/latencyy/,
      ],
    ];
    for (const [what, text, wanted] of [...cases.map(([what, text, wanted]) => [what, text, wanted] as const), ...transports]) {
      t.equal(await rig.push(text), 'refused', what);
      refusals++;
      const health = (await rig.ask('/v1/health')).json;
      t.equal(health.table.refusals, refusals);
      const shown = (health.table.problems as { line: number; column: number; path: string; message: string }[]).map((each) => [
        `${each.line}:${each.column} ${each.path} ${each.message}`,
        `${each.path} ${each.message}`,
      ]);
      t.ok(
        shown.some((ways) => ways.some((line) => wanted.test(line))),
        `${what}: ${JSON.stringify(shown).slice(0, 200)}`,
      );
      t.ok(
        (health.table.problems as { line: number }[]).every((each) => each.line > 0),
        'with a line',
      );
    }
    t.equal(
      rig.logged.filter((line) => line['level'] === 50 && Array.isArray(line['problems'])).length,
      refusals,
      'each once, at error level',
    );
    t.equal(metricIn((await rig.ask('/metrics')).bytes.toString(), 'reach_rejected_pushes_total'), refusals);
    t.equal(markOf(rig), 'in force');
    await rig.finish(t, before);
  });

  await t.test("and in the sidecar's own settings the process does not start", async (t) => {
    const settings = async (lines: string): Promise<string> => {
      const folder = workFolder(t);
      return await Rig.start(t, { table: small('x'), folder, settings: lines }).then(
        () => 'started',
        (error: unknown) => (error instanceof StartRefused ? error.lines.join('\n') : String(error)),
      );
    };
    t.match(await settings('  max_hop: 3'), /sidecar\.yaml:\d+:3 \/sidecar\/max_hop: unknown key "max_hop": did you mean max_hops\?/);
    t.match(await settings('  retry: {max: 2}'), /\/sidecar\/retry: unknown key "retry": it belongs under a contract or a policy/);
    t.match(await settings('  log: {level: debug, acces: all}'), /unknown key "acces": did you mean access\?/);
    t.match(await settings('  ejection: {consecutive: 3, for: 5}'), /for must be a duration/);
    await assertQuiet(t, { before });
  });
});

t.test('C074 a push changes what it says and wipes nothing else', async (t) => {
  const OTHER = 'crm.order.list';
  const P = (n: number): string => `crm.order.p${n}`;
  const text = (parts: { p3?: boolean; p1?: boolean; other?: string; policy?: string } = {}): string => {
    const offers = [`${NAME}@2.0.0`, `${OTHER}@1.0.0`];
    const agents = [...(parts.p1 === false ? [] : [1]), 2, ...(parts.p3 === true ? [3] : []), 4, 5];
    return `contracts:\n${contractLine(NAME, '2.0.0', 'affinity: {from: "header:x-session"}, limits: {per_caller: 4, per_provider: 2}, retry: {max: 1}')}\n${contractLine(OTHER, '1.0.0')}\nproviders:\n${agents
      .map((n) => mockLine(P(n), offers, n === 2 ? 'drain: true' : '', n === 5 ? 'latency: 1h' : ''))
      .join(
        '\n',
      )}\npolicies:\n  - {capability: ${OTHER}, ${parts.other ?? 'timeout: 2s'}}\n${parts.policy === undefined ? '' : `  - {capability: ${NAME}, ${parts.policy}}\n`}`;
  };
  const undrained = text().replace('drain: true', 'drain: false');
  const world = new Offline(undrained, { settings: '  max_deadline: 24h\n  retry_budget: {ratio: 20%, min_per_sec: 1}' });
  const { clock, health, engine } = world;
  const session = (n: number) => ({ headers: { 'x-session': `s${n}` } });

  // Conversations at everybody but the slow one, then P2 is drained.
  health.provider(P(5)).offline = true;
  const holders: (string | null)[] = [];
  for (let n = 0; n < 1_000; n++) holders.push((await world.call(NAME, session(n))).provider);
  health.provider(P(5)).offline = false;
  world.push(text());
  // P1: open. P4: some failures in its window, and two refused connections on the way to an ejection.
  const now = (): number => clock.now();
  const cell = (n: number, name = NAME) => world.cell(P(n), name);
  while (cell(1).stateName !== 'open') cell(1).end(cell(1).admit(now()), 'failure', 1, now());
  for (let i = 0; i < 4; i++) cell(4).end(cell(4).admit(now()), 'failure', 1, now());
  health.provider(P(4)).connectFailed(now());
  health.provider(P(4)).connectFailed(now());
  // Half of the caller's places and all of P5's are taken by calls that are under way.
  const underWay = [0, 1].map(() => world.begin(NAME, { headers: { 'reach-pin': P(5), 'reach-deadline-ms': '7200000' } }));
  await clock.advance(1_000);
  // Half of the retry budget is spent.
  while (engine.retryBudget.recent().retries < 3) engine.retryBudget.take(now());

  const state = () => ({
    p1: [cell(1).stateName, cell(1).reopensAt(now()), cell(1).why],
    p4: [cell(4).callsInWindow(now()), cell(4).failuresInWindow(now()), health.provider(P(4)).consecutiveFailures],
    p5: health.provider(P(5)).inFlight,
    bound: engine.chooser.bound,
    limits: engine.limits.inFlight(),
    budget: engine.retryBudget.recent(),
    firstSeen: [1, 2, 4, 5].map((n) => health.provider(P(n)).firstSeenAt),
  });
  const found = state();
  t.match(found, { p1: ['open'], p4: [Number, 4, 2], p5: 2, bound: 1_000, limits: 2, budget: { retries: 3 } });

  const checks = async (t: Test): Promise<void> => {
    t.strictSame(state(), found, 'all of it is as it was');
    const result = await world.call(NAME, session(-1));
    t.match(result.call.code, 0);
    const explained = (await world.call(NAME, { headers: { 'reach-pin': P(1) } })).detail;
    t.match(explained, /breaker open for another/);
    t.equal((await world.call(NAME, { headers: { 'reach-pin': P(5) } })).entry.code, 3003, 'its places are still taken');
  };
  await t.test('a change of an unrelated capability', async (t) => {
    world.push(text({ other: 'timeout: 3s' }));
    await checks(t);
  });
  const same = async (t: Test): Promise<void> => {
    // One call a conversation; those of P1 are stood in for while its breaker is open.
    const moved = new Set<string>();
    for (let n = 0; n < 1_000; n++) {
      const { provider } = await world.call(NAME, session(n));
      if (provider !== holders[n] && holders[n] !== P(1)) moved.add(`${holders[n]} to ${provider}`);
    }
    t.strictSame([...moved], [], 'every conversation is where it was, those of the drained one too');
  };
  await t.test('a new provider', async (t) => {
    found.bound = engine.chooser.bound;
    found.budget = engine.retryBudget.recent();
    found.p4 = state().p4; // calls were served meanwhile
    world.push(text({ other: 'timeout: 3s', p3: true }));
    t.strictSame(state(), found);
    await same(t);
    const fresh = await world.counts(200, NAME, (n) => session(10_000 + n));
    t.equal(fresh[P(2)], undefined, 'the drained one gets nothing new');
    t.ok((fresh[P(3)] ?? 0) > 0, 'the new one does');
  });
  await t.test('new breaker settings keep the state too', async (t) => {
    const reopens = cell(1).reopensAt(now());
    world.push(text({ p3: true, policy: 'breaker: {window: 30s, min_calls: 5}' }));
    t.equal(cell(1).stateName, 'open');
    t.equal(cell(1).reopensAt(now()), reopens);
  });
  await t.test('a bad push and a table that is put back', async (t) => {
    world.table.refuse([], 'a mistake');
    world.push(text({ p3: true }));
    t.equal(cell(1).stateName, 'open');
    t.equal(health.provider(P(5)).inFlight, 2);
    await same(t);
  });
  await t.test('only what is keyed by somebody who is gone goes', async (t) => {
    world.push(text({ p3: true, p1: false }));
    t.throws(() => cell(1));
    t.equal(health.provider(P(5)).inFlight, 2);
    t.equal(engine.limits.inFlight(), 2);
    world.push(text({ p3: true }));
    t.equal(cell(1).stateName, 'closed', 'who comes back begins anew');
    const decisions = new Set<string>();
    for (const [n, holder] of holders.entries()) {
      if (holder !== P(1)) continue;
      for (const line of (await world.call(NAME, session(n))).call.trace.lines()) if (line.stage === 'choose') decisions.add(line.reason);
    }
    t.strictSame([...decisions], ['affinity_rebound'], 'and has not its old conversations');
  });
  await t.test('breakers open and close on, a push in between or not', async (t) => {
    const c = cell(4);
    while (c.stateName !== 'open') c.end(c.admit(now()), 'failure', 1, now());
    const opensAt = c.reopensAt(now()) as number;
    for (let i = 0; i < 10; i++) {
      await clock.advance((opensAt - now()) / 2);
      world.push(text({ p3: true, other: `timeout: ${i + 2}s` }));
      t.equal(cell(4), c, 'the very same');
    }
    await clock.advanceTo(opensAt);
    t.equal(cell(4).usable(now()), 'probe', 'it is due when it was due');
  });
  await clock.advance(3_600_000);
  await Promise.all(underWay);
  const spent = world.mock.executions(P(5));
  t.equal(spent, 2);
  await assertQuiet(t, { before, engines: [world.quiet], providers: [{ name: P(5), count: world.mock.executions(P(5)), expected: 2 }] });
});

t.test('C135 an agent that is there before its sidecar is told to wait, never that nothing exists', async (t) => {
  await t.test('the table comes two seconds late', async (t) => {
    const agent = await TestAgent.listen('order');
    const folder = workFolder(t);
    const meshToken = 'token-of-the-mesh';
    const rig = await Rig.start(t, { table: null, folder, meshToken });
    const table = small('late').replace('{type: mock}', `{type: http, address: "${agent.url}"}`);
    const began = performance.now();
    const answers: { at: number; status: number; ready: number }[] = [];
    let written = Number.POSITIVE_INFINITY;
    while (performance.now() - began < 3_000) {
      const [call, ready] = await Promise.all([rig.invoke(NAME), rig.ask('/v1/ready')]);
      answers.push({ at: performance.now(), status: call.status, ready: ready.status });
      if (written === Number.POSITIVE_INFINITY) {
        t.match(call, { status: 503, json: { code: 2003, name: 'none_healthy', retryable: true, detail: /^starting/ } });
        t.ok(Number(call.headers['retry-after']) >= 1, 'with the time to come back');
        for (const path of [
          `/v1/stream/${NAME}`,
          `/v1/explain/${NAME}`,
          '/v1/capabilities',
          '/v1/invoke/nobody.knows.this',
          '/v1/invoke/not-a-name',
        ]) {
          const other = await rig.ask(path, { method: path.includes('capabilities') ? 'GET' : 'POST' });
          t.equal(other.status, 503, `${path} neither`);
          t.ok(other.headers['retry-after'] !== undefined);
        }
        t.match((await rig.ask('/v1/health')).json, { status: 'starting', table: { version: 0 } });
        const mesh = await fetch(`${rig.started.meshUrl}/mesh/v1/invoke/${NAME}`, {
          method: 'POST',
          headers: {
            authorization: `Bearer ${meshToken}`,
            'reach-wire': '1',
            'reach-provider': 'crm.order.p1',
            'reach-version': '2.0.0',
            connection: 'close',
          },
          body: '{}',
        });
        t.equal(mesh.status, 503);
        t.equal(mesh.headers.get('reach-started'), 'not_started', 'a peer may go elsewhere');
        t.equal((await fetch(`${rig.started.meshUrl}/mesh/v1/ready`, { headers: { connection: 'close' } })).status, 503);
      }
      if (performance.now() - began >= 2_000 && written === Number.POSITIVE_INFINITY) {
        writeFileSync(join(folder, 'table.yaml'), table);
        written = performance.now();
      }
      await sleep(50);
    }
    t.strictSame([...new Set(answers.map((each) => each.status))].sort(), [200, 503], 'starting, then served; nothing else');
    const turn = answers.findIndex((each) => each.status === 200);
    t.ok(
      answers.slice(turn).every((each) => each.status === 200),
      'from then on',
    );
    t.ok((answers[turn] as { at: number }).at - written < 1_000, 'within a second of the table');
    for (const [i, each] of answers.entries())
      if (i !== turn) t.equal(each.ready === 200, each.status === 200, 'ready says the same as the calls');
    const good = answers.length - turn;
    await rig.stop();
    await agent.close();
    await rig.finish(t, before, [{ name: 'order', count: agent.executions, expected: good }]);
  });

  await t.test('an open port has its table already', async (t) => {
    const rig = await Rig.start(t, { table: small('there') });
    const first = await rig.invoke(NAME);
    t.equal(first.status, 200, 'the first call after the port opened');
    t.match((await rig.ask('/v1/ready')).json, { ready: true, status: 'ok' });
    t.match(await rig.invoke('nobody.knows.this'), { status: 404, json: { code: 2001 } }, 'now it may say that something does not exist');
    await rig.finish(t, before);
  });

  await t.test('the source is away: the local copy serves, and says that it is old', async (t) => {
    const folder = workFolder(t);
    const first = await Rig.start(t, { table: small('yesterday'), folder });
    await first.stop();
    rmSync(join(folder, 'table.yaml'));
    const rig = await Rig.start(t, { table: null, folder });
    t.equal((await rig.invoke(NAME)).status, 200);
    t.match((await rig.ask('/v1/ready')).json, { ready: true, status: 'stale' });
    t.match((await rig.ask('/v1/health')).json, { status: 'stale', table: { source: 'last good copy', stale_because: /refused|read/ } });
    t.match(
      rig.logged.find((line) => String(line['msg']).includes('last good')),
      { level: 40 },
    );
    replace(folder, small('today'));
    await waitUntil('the source is back', () => markOf(rig) === 'today', 1_000);
    t.match((await rig.ask('/v1/health')).json, { status: 'ok' });
    await rig.finish(t, before);
  });

  await t.test('a sidecar that cannot open its ports says why and leaves nothing behind', async (t) => {
    const folder = workFolder(t);
    const first = await Rig.start(t, { table: small('x'), folder });
    writeFileSync(join(folder, 'other.yaml'), `sidecar:\n  name: two\n  listen: 127.0.0.1:${first.port}\n  table: ./table.yaml\n`);
    const second = await startSidecar(join(folder, 'other.yaml'), createLog({ level: 'silent', to: 'stderr', service: 'two' })).catch(
      (error: unknown) => error,
    );
    t.match(
      refusalOf(() => {
        throw second;
      }),
      /the port 127\.0\.0\.1:\d+ is taken/,
    );
    await first.finish(t, before);
  });
});
