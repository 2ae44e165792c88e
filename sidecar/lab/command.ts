/**
 * `reach-sidecar sandbox scenario.yaml …`: runs scenarios and tells how they went. 0 = every expectation holds, 1 = some do
 * not, 2 = a file cannot be used. Files are run one after the other; one that cannot be used does not keep the others from running.
 */
import { readFileSync } from 'node:fs';
import type { Problem } from '../../proto/language/types.ts';
import { wordsOfProblem } from '../table/file.ts';
import { readScenario } from './read-scenario.ts';
import { jsonOf, tableOf } from './report.ts';
import { type RunReport, runScenario } from './run.ts';

export interface SandboxOptions {
  readonly json: boolean;
  /** One line of output at a time, without its end. */
  readonly write: (line: string) => void;
}

type Ending = { readonly file: string; readonly report: RunReport } | { readonly file: string; readonly problems: readonly Problem[] };

/** The exit code. */
export async function runSandbox(files: readonly string[], options: SandboxOptions): Promise<number> {
  const endings: Ending[] = [];
  for (const file of files) {
    const ending = await runFile(file);
    endings.push(ending);
    if (options.json) continue;
    if (endings.length > 1) options.write('');
    for (const line of 'report' in ending ? tableOf(ending.report) : problemLines(ending.problems)) options.write(line);
  }
  const passed = endings.filter((ending) => 'report' in ending && ending.report.ok).length;
  const invalid = endings.filter((ending) => 'problems' in ending).length;
  const failed = endings.length - passed - invalid;
  if (files.length === 0) options.write(options.json ? JSON.stringify({ ok: false, problem: NO_FILES }) : NO_FILES);
  else if (options.json)
    options.write(JSON.stringify({ ok: passed === endings.length, passed, failed, invalid, scenarios: endings.map(endingJson) }));
  else if (endings.length > 1)
    options.write(
      `\n${passed} of ${endings.length} scenarios pass${failed > 0 ? `, ${failed} fail` : ''}${invalid > 0 ? `, ${invalid} cannot be used` : ''}`,
    );
  if (files.length === 0 || invalid > 0) return 2;
  return failed > 0 ? 1 : 0;
}

const NO_FILES = 'name at least one scenario file: reach-sidecar sandbox scenario.yaml';

async function runFile(file: string): Promise<Ending> {
  let content: string;
  try {
    content = readFileSync(file, 'utf8');
  } catch (error) {
    return {
      file,
      problems: [{ file, line: 0, column: 0, path: '', message: `cannot be read (${(error as NodeJS.ErrnoException).code ?? 'error'})` }],
    };
  }
  const reading = readScenario(content, file);
  if ('problems' in reading) return { file, problems: reading.problems };
  return { file, report: await runScenario(reading.scenario) };
}

function problemLines(problems: readonly Problem[]): string[] {
  return [...problems.map(wordsOfProblem), `not run: ${problems.length} problem${problems.length === 1 ? '' : 's'}`];
}

function endingJson(ending: Ending): unknown {
  return 'report' in ending ? jsonOf(ending.report) : { file: ending.file, ok: false, problems: ending.problems };
}
