/** `make test`, last step: all tests, then one plain line with the counts. Words as arguments keep the files that contain one. */
import { LIMITS } from './limits.ts';
import { describeRun } from './print.ts';
import { runFiles } from './run-files.ts';
import { tally } from './tally.ts';
import { compiledName, TEST_FOLDERS, testFiles } from './test-files.ts';

const sources = testFiles(TEST_FOLDERS, process.argv.slice(2));
const runs = await runFiles(sources, { ...LIMITS, program: compiledName, onEnd: (run) => process.stdout.write(describeRun(run)) });
const { passed, failed, skipped, checks, faults } = tally(sources, runs);
for (const line of faults) process.stdout.write(`FAIL ${line}\n`);
process.stdout.write(`\n${sources.length} files, ${checks} checks, ${skipped} skipped; a test is a top-level subtest of a file\n`);
process.stdout.write(`${passed} passed, ${failed} failed\n`);
process.exitCode = failed === 0 ? 0 : 1;
