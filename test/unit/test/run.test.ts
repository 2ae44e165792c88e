import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import t from 'tap';
import { EXPECTED_CASES } from '../../cases/expected.ts';
import { REACHED_NOTHING } from '../../attacks/words.ts';
import { tallyAttacks } from '../../run/attack-tally.ts';
import { tallyCases } from '../../run/case-tally.ts';
import { LIMITS } from '../../run/limits.ts';
import { describeRun } from '../../run/print.ts';
import { type Point, readReport, type Report } from '../../run/report.ts';
import { runFiles } from '../../run/run-files.ts';
import { type FileRun, tally } from '../../run/tally.ts';
import { compiledName, testFiles } from '../../run/test-files.ts';
import { repoFile } from '../../support/paths.ts';

function ranAs(report: Report, over: Partial<FileRun> = {}): FileRun {
  const ended = { exitCode: report.ok ? 0 : 1, signal: null, timedOut: false, leftProcesses: false, tookMs: 10, stderr: '' };
  return { file: 'a.test.ts', report, ...ended, ...over };
}

const GREEN = `TAP version 14
# Subtest: adds
    ok 1 - one and one
    # Subtest: carries
        ok 1 - nine and one
        1..1
    ok 2 - carries
    1..2
ok 1 - adds # time=2ms
# Subtest: C999 subtracts
    ok 1 - two less one
    1..1
ok 2 - C999 subtracts
ok 3 - waits # SKIP slow
ok 4 - hopes # TODO
ok 5 - bare
1..5
# time=9ms
`;
const RED = GREEN.replace('        ok 1 - nine', '        not ok 1 - nine')
  .replace('    ok 2 - carries', '    not ok 2 - carries')
  .replace('\nok 1 - adds', '\nnot ok 1 - adds');
const EMPTY = 'TAP version 14\n1..0 # no tests found\n';

t.test('counts are those of the run', async (t) => {
  const only = ['a.test.ts'];

  t.test('a test is a top-level subtest or a bare assertion; skip and todo are neither passed nor failed', async (t) => {
    t.strictSame(tally(only, [ranAs(readReport(GREEN))]), { passed: 3, failed: 0, skipped: 2, checks: 4, faults: [] });
  });

  t.test('a failure deep down fails its test once', async (t) => {
    t.match(tally(only, [ranAs(readReport(RED))]), { passed: 2, failed: 1, skipped: 2, checks: 4, faults: [] });
  });

  t.test('a file without tests, a file never run, and a run without files have failed', async (t) => {
    t.match(tally(only, [ranAs(readReport(EMPTY), { exitCode: 0 })]), { passed: 0, failed: 1, faults: [/holds no tests/] });
    t.match(tally(only, [ranAs(readReport(''), { exitCode: 0 })]), { passed: 0, failed: 1, faults: [/holds no tests/] });
    t.match(tally(['a.test.ts', 'b.test.ts'], [ranAs(readReport(GREEN))]), { passed: 3, failed: 1, faults: ['b.test.ts: was not run'] });
    t.match(tally([], []), { passed: 0, failed: 1, faults: ['no test files were found'] });
  });

  t.test('a file that ends badly although its tests passed has failed', async (t) => {
    const report = readReport(GREEN);
    t.match(tally(only, [ranAs(report, { exitCode: 7 })]), { passed: 3, failed: 1, faults: [/exit code 7/] });
    t.match(tally(only, [ranAs(report, { exitCode: null, signal: 'SIGSEGV' })]), { failed: 1, faults: [/ended by SIGSEGV/] });
    t.match(tally(only, [ranAs(report, { timedOut: true })]), { failed: 1, faults: [/took too long/] });
    t.match(tally(only, [ranAs(report, { leftProcesses: true })]), { failed: 1, faults: [/left processes running/] });
  });

  t.test('a report that is cut, breaks its plan or bails out is a failure, whatever the exit code', async (t) => {
    for (const [why, tap] of [
      ['cut in a subtest', GREEN.slice(0, GREEN.indexOf('ok 2 - C999'))],
      ['one test fewer than planned', GREEN.replace('ok 5 - bare\n', '')],
      ['bailed out', GREEN.replace('ok 5 - bare\n', 'Bail out! the disk is full\n')],
    ] as const) {
      t.ok(tally(only, [ranAs(readReport(tap), { exitCode: 0 })]).failed > 0, why);
    }
  });

  t.test('what a test prints is not taken for a result', async (t) => {
    const noisy = GREEN.replace('# Subtest: adds\n', 'listening on 127.0.0.1\n{"level":30}\n# Subtest: adds\n');
    t.match(tally(only, [ranAs(readReport(noisy))]), { passed: 3, failed: 0, skipped: 2 });
  });

  t.test('the printed line of a failed file names the failed assertion by its whole path', async (t) => {
    t.match(
      describeRun(ranAs(readReport(RED), { stderr: 'oh dear' })),
      /^FAIL a\.test\.ts {2}5 tests[^]*✗ adds > carries > nine and one[^]*oh dear/,
    );
    t.equal(describeRun(ranAs(readReport(GREEN), { stderr: 'a warning' })), 'ok   a.test.ts  5 tests, 4 checks, 0.0 s\n');
  });
});

t.test('files are run as programs', async (t) => {
  const folder = mkdtempSync(join(tmpdir(), 'reach-run-'));
  t.teardown(() => rmSync(folder, { recursive: true, force: true }));
  const tap = JSON.stringify(pathToFileURL(repoFile('node_modules/tap/dist/esm/index.js')).href);
  const programs: Record<string, string> = {
    good: `import t from ${tap}; t.test('works', async (t) => { t.ok(true); });`,
    bad: `import t from ${tap}; t.test('works not', async (t) => { t.equal(1, 2); }); t.test('works', async (t) => { t.ok(true); });`,
    empty: `import t from ${tap}; void t;`,
    no_tap: `console.log('hello');`,
    no_parse: `import t from ${tap}; t.test('`,
    loose: `import t from ${tap}; t.test('works', async (t) => { t.ok(true); }); setTimeout(() => { throw new Error('loose'); }, 20);`,
    exits: `import t from ${tap}; t.test('works', async (t) => { t.ok(true); }); process.on('exit', () => process.kill(process.pid, 'SIGKILL'));`,
    hangs: `import t from ${tap}; t.test('hangs', () => new Promise(() => setInterval(() => {}, 1000)));`,
    spins: `import t from ${tap}; t.test('works', async (t) => { t.ok(true); }); await t.test('spins', async () => { for (;;); });`,
    leaves: `import t from ${tap}; import { spawn } from 'node:child_process';
      t.test('works', async (t) => { t.ok(true); });
      spawn(process.execPath, ['-e', 'setInterval(() => {}, 1000)'], { stdio: 'inherit' }).unref();`,
  };
  for (const [name, text] of Object.entries(programs)) writeFileSync(join(folder, `${name}.mjs`), text);
  const names = Object.keys(programs);
  const ended: string[] = [];
  const runs = await runFiles(names, {
    program: (name) => join(folder, `${name}.mjs`),
    jobs: 2,
    limitMs: 3_000,
    onEnd: ({ file }) => ended.push(file),
  });
  t.strictSame([...ended].sort(), [...names].sort(), 'each is reported once');
  const expected: Record<string, { passed: number; failed: number; faults: (RegExp | string)[] }> = {
    good: { passed: 1, failed: 0, faults: [] },
    bad: { passed: 1, failed: 1, faults: [] },
    empty: { passed: 0, failed: 1, faults: [/holds no tests/] },
    no_tap: { passed: 0, failed: 1, faults: [/holds no tests/] },
    no_parse: { passed: 0, failed: 1, faults: [/holds no tests \(exit code 1\)/] },
    loose: { passed: 1, failed: 1, faults: [] },
    exits: { passed: 1, failed: 1, faults: [/ended by SIGKILL/] },
    hangs: { passed: 0, failed: 2, faults: [/took too long/] },
    spins: { passed: 1, failed: 1, faults: [/took too long/] },
    leaves: { passed: 1, failed: 1, faults: [/left processes running/] },
  };
  for (const name of names) t.match(tally([name], runs), expected[name] ?? {}, name);
});

t.test('a file that waits for most of its time runs beside the others, in its order, and is run once', async (t) => {
  const folder = mkdtempSync(join(tmpdir(), 'reach-run-'));
  t.teardown(() => rmSync(folder, { recursive: true, force: true }));
  const tap = JSON.stringify(pathToFileURL(repoFile('node_modules/tap/dist/esm/index.js')).href);
  const program = `import t from ${tap}; t.test('works', async (t) => { await new Promise((done) => setTimeout(done, 300)); t.ok(true); });`;
  for (const name of ['a', 'b', 'c', 'd']) writeFileSync(join(folder, `${name}.mjs`), program);
  const ended: string[] = [];
  let atOnce = 0;
  let most = 0;
  await runFiles(['a', 'b', 'c', 'd'], {
    program: (name) => {
      most = Math.max(most, ++atOnce);
      return join(folder, `${name}.mjs`);
    },
    jobs: 1,
    patient: ['d', 'c', 'not asked for'],
    limitMs: 20_000,
    onEnd: ({ file }) => {
      atOnce--;
      ended.push(file);
    },
  });
  t.equal(most, 2);
  t.strictSame(
    ended.filter((name) => 'ab'.includes(name)),
    ['a', 'b'],
  );
  t.strictSame(
    ended.filter((name) => 'cd'.includes(name)),
    ['d', 'c'],
  );
  const files = testFiles();
  for (const file of LIMITS.patient) t.ok(files.includes(file), file);
});

function point(name: string, over: Partial<Point> = {}): Point {
  const check: Point = { name: 'check', ok: true, skipped: false, diagnosis: null, children: [], isSubtest: false };
  return { ...check, name, isSubtest: true, children: [check], ...over };
}

function caseFile(...points: Point[]): FileRun[] {
  return [ranAs({ points, ok: points.every(({ ok }) => ok), bailedOut: null })];
}

t.test('cases are counted by their ids', async (t) => {
  const two = ['C001', 'C002'];

  t.test('a case passes when all of its subtests ran and passed', async (t) => {
    const runs = caseFile(point('C001 refuses an empty body'), point('C001 refuses a huge body'), point('C002 answers'));
    t.strictSame(tallyCases(two, runs), { cases: 2, passed: 2, failed: 0, skipped: 0, faults: [] });
  });

  t.test('one failed subtest of several fails the case', async (t) => {
    const runs = caseFile(point('C001 a', { ok: false }), point('C001 b'), point('C002 c'));
    t.match(tallyCases(two, runs), { passed: 1, failed: 1, skipped: 0, faults: [/^C001 failed: a failed assertion/] });
  });

  t.test('a skip anywhere inside makes the case skipped, and a failure beside it failed', async (t) => {
    const check = point('deep', { isSubtest: false, children: [], skipped: true });
    const holding = point('C001 a', { children: [point('inner', { children: [check] })] });
    t.match(tallyCases(two, caseFile(holding, point('C002 c'))), { passed: 1, failed: 0, skipped: 1 });
    t.match(tallyCases(two, caseFile(holding, point('C001 b', { ok: false }), point('C002 c'))), { passed: 1, failed: 1, skipped: 0 });
  });

  t.test('a case that asserted nothing, or never ran, has failed', async (t) => {
    t.match(tallyCases(two, caseFile(point('C001 a', { children: [] }))), {
      passed: 0,
      failed: 2,
      faults: [/^C001 failed: nothing was asserted/, /^C002 failed: no subtest of this name ran/],
    });
  });

  t.test('a subtest that is no expected case is an error', async (t) => {
    const runs = caseFile(point('C001 a'), point('C002 b'), point('C003 c'), point('opens the door'), point('C0011 d'));
    const { faults, ...counts } = tallyCases(two, runs);
    t.strictSame(counts, { cases: 2, passed: 2, failed: 0, skipped: 0 });
    t.equal(faults.length, 3);
  });

  t.test('98 different ids are expected', async (t) => {
    t.equal(EXPECTED_CASES.length, 98);
    t.equal(new Set(EXPECTED_CASES).size, 98);
    t.ok(EXPECTED_CASES.every((id) => /^C\d{3}$/.test(id)));
  });
});

t.test('counting attacks', async (t) => {
  const look = (ok: boolean): Point => ({ ...point(REACHED_NOTHING, { ok }), children: [], isSubtest: false });
  const attack = (name: string, reached: boolean, over: Partial<Point> = {}): Point =>
    point(name, { ok: !reached, children: [point('inside', { children: [look(!reached)] })], ...over });

  t.test('an attempt that was refused, and has reached nothing, is counted as that', async (t) => {
    const runs = caseFile(attack('a forged token', false), attack('a stolen one', false), point('rightful: the owner', {}));
    t.strictSame(tallyAttacks(runs), { attacks: 2, refused: 2, reached_provider: 0, faults: [] });
  });

  t.test('one that has reached a provider is counted as that, whatever was answered', async (t) => {
    const { faults, ...counts } = tallyAttacks(caseFile(attack('a forged token', true), attack('a stolen one', false)));
    t.strictSame(counts, { attacks: 2, refused: 1, reached_provider: 1 });
    t.match(faults, [/"a forged token" was not refused/]);
  });

  t.test('one that does not look, was skipped, or failed otherwise is not refused', async (t) => {
    const runs = caseFile(
      point('looks nowhere', {}),
      attack('skipped', false, { skipped: true }),
      attack('wrong code', false, { ok: false }),
    );
    const { faults, ...counts } = tallyAttacks(runs);
    t.strictSame(counts, { attacks: 3, refused: 0, reached_provider: 0 });
    t.equal(faults.length, 3);
  });

  t.test('where nobody is served, refusals prove nothing; and no attempts are no success', async (t) => {
    t.match(tallyAttacks(caseFile(attack('a', false), point('rightful: b', { ok: false }))).faults, [/refusals prove nothing/]);
    t.match(tallyAttacks([]), { attacks: 0, faults: ['there are no attempts'] });
  });
});

t.test('test files are found, kept by word, and none of the broken ones is among them', async (t) => {
  const all = testFiles();
  t.ok(all.includes('test/unit/test/run.test.ts'));
  t.ok(all.includes('test/lint/lint.test.ts'));
  t.notOk(all.some((file) => file.includes('/broken/')));
  t.strictSame(testFiles(undefined, ['test/run.test']), ['test/unit/test/run.test.ts']);
  t.equal(compiledName('test/unit/test/run.test.ts'), 'dist/test/unit/test/run.test.js');
});
