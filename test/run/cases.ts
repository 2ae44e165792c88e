/** `make cases`: the tests of `test/cases` alone, then one line of JSON with the counts of the cases, from the run itself. */
import { EXPECTED_CASES } from '../cases/expected.ts';
import { tallyCases } from './case-tally.ts';
import { LIMITS } from './limits.ts';
import { describeRun } from './print.ts';
import { runFiles } from './run-files.ts';
import { tally } from './tally.ts';
import { compiledName, testFiles } from './test-files.ts';

const sources = testFiles(['cases']);
const runs = await runFiles(sources, { ...LIMITS, program: compiledName, onEnd: (run) => process.stdout.write(describeRun(run)) });
const { faults, ...counts } = tallyCases(EXPECTED_CASES, runs);
const whole = tally(sources, runs);
for (const line of [...whole.faults, ...faults]) process.stdout.write(`FAIL ${line}\n`);
process.stdout.write(`${JSON.stringify(counts)}\n`);
process.exitCode = counts.passed === counts.cases && faults.length === 0 && whole.failed === 0 ? 0 : 1;
