/**
 * `make test`, last step: all tests, then whether a credential stands anywhere in what they wrote, then one plain line with the
 * counts. Words as arguments keep the files that contain one.
 */
import { LIMITS } from './limits.ts';
import { describeRun } from './print.ts';
import { runFiles } from './run-files.ts';
import { tally } from './tally.ts';
import { compiledName, TEST_FOLDERS, testFiles } from './test-files.ts';
import { Written } from './written.ts';

const MOST_SHOWN = 20;
const sources = testFiles(TEST_FOLDERS, process.argv.slice(2));
const written = new Written();
const onEnd = (run: Parameters<typeof describeRun>[0]): void => void process.stdout.write(describeRun(run));
const runs = await runFiles(sources, { ...LIMITS, program: compiledName, written, onEnd });
const { passed, failed, skipped, checks, faults } = tally(sources, runs);
for (const line of faults) process.stdout.write(`FAIL ${line}\n`);
const leaks = written.end();
for (const { file, what, at } of leaks.slice(0, MOST_SHOWN)) process.stdout.write(`FAIL ${what} stands in ${file} at ${at}\n`);
process.stdout.write(`\n${sources.length} files, ${checks} checks, ${skipped} skipped; a test is a top-level subtest of a file\n`);
process.stdout.write(
  leaks.length === 0
    ? `no credential stands in what the tests wrote (${written.files} files, ${(written.bytes / 1_048_576).toFixed(0)} MiB, looked through in ${(written.tookMs / 1_000).toFixed(1)} s)\n`
    : `${leaks.length} credentials stand in what the tests wrote\n`,
);
process.stdout.write(`${passed} passed, ${failed} failed\n`);
process.exitCode = failed === 0 && leaks.length === 0 ? 0 : 1;
