/** `make attacks`: the tests of `test/attacks` alone, then one line of JSON with what became of the attempts, from the run itself. */
import { tallyAttacks } from './attack-tally.ts';
import { LIMITS } from './limits.ts';
import { describeRun } from './print.ts';
import { runFiles } from './run-files.ts';
import { tally } from './tally.ts';
import { compiledName, testFiles } from './test-files.ts';

const sources = testFiles(['attacks']);
const runs = await runFiles(sources, { ...LIMITS, program: compiledName, onEnd: (run) => process.stdout.write(describeRun(run)) });
const { faults, ...counts } = tallyAttacks(runs);
const whole = tally(sources, runs);
for (const line of [...whole.faults, ...faults]) process.stdout.write(`FAIL ${line}\n`);
process.stdout.write(`${JSON.stringify(counts)}\n`);
process.exitCode = counts.refused === counts.attacks && counts.reached_provider === 0 && faults.length === 0 && whole.failed === 0 ? 0 : 1;
