/**
 * `reach-sidecar sandbox scenario.yaml …`: runs scenarios and tells how they went. 0 = every expectation holds, 1 = some do
 * not, 2 = a file cannot be used. A folder stands for the scenarios in it. Files are run one after the other; one that cannot be used
 * does not keep the others from running, but other policies (`--with`) that are about none of them do.
 */
import { readdirSync, readFileSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import type { Clock } from '../../base/clock.ts';
import type { Problem } from '../../proto/language/types.ts';
import { wordsOfProblem } from '../table/file.ts';
import type { Ending } from './ending.ts';
import { junitOf } from './junit.ts';
import { type Overlay, readOverlay } from './overlay.ts';
import { readScenarios } from './read-scenario.ts';
import { jsonOf, tableOf } from './report.ts';
import { type RunReport, runScenario } from './run.ts';
import type { Scenario, ScenariosReading } from './scenario.ts';
import { figuresOf, summaryOf } from './summary.ts';

export interface SandboxOptions {
  readonly json: boolean;
  /** Policies, overrides, rules, contracts, providers, settings that are laid over every scenario; null = none. */
  readonly withFile?: string | null;
  /** In place of the scenarios' own; null = their own. */
  readonly seed?: number | null;
  /** Only scenarios whose name or file holds one of these words; empty = all. */
  readonly only?: readonly string[];
  /** Every step of every scenario, also where several are run. */
  readonly isDetailed?: boolean;
  /** Where the result is written for a CI that reads JUnit's XML; null = nowhere. */
  readonly junit?: string | null;
  /** Of the machine, for the time that it took; null = nothing is said of it. */
  readonly clock?: Clock | null;
  /** One line of output at a time, without its end. */
  readonly write: (line: string) => void;
}

/** The exit code. */
export async function runSandbox(paths: readonly string[], options: SandboxOptions): Promise<number> {
  const { write, json, clock = null } = options;
  const refuse = (problem: string): number => {
    write(json ? JSON.stringify({ sandbox: 'invalid', ok: false, problem }) : problem);
    return 2;
  };
  if (paths.length === 0) return refuse(NO_FILES);
  const files = filesOf(paths);
  if (typeof files === 'string') return refuse(files);
  const given = overlayOf(options.withFile ?? null);
  if ('problems' in given) return refuse(problemLines(given.problems).join('\n'));
  const beganAt = clock?.now() ?? 0;
  const readings: Reading[] = [];
  for (const file of files) {
    const reading = readFile(file, given.overlay, options);
    if (reading !== null) readings.push(reading);
  }
  if (readings.length === 0)
    return refuse(`no scenario is called ${(options.only ?? []).map((word) => JSON.stringify(word)).join(' or ')}`);
  const { overlay } = given;
  if (overlay !== null && readings.every((reading) => 'scenarios' in reading)) {
    overlay.met?.refuseStrays(overlay);
    const { problems } = overlay.place.source;
    if (problems.length > 0) return refuse(problemLines(problems).join('\n'));
  }
  const endings: Ending[] = [];
  for (const reading of readings) endings.push('problems' in reading ? reading : await runAll(reading));
  const tookMs = clock === null ? null : Math.round(clock.now() - beganAt);
  if (json) write(JSON.stringify({ ...countsOf(endings, tookMs), scenarios: endings.flatMap(endingJson) }));
  else tell(endings, options, tookMs);
  if (options.junit != null) writeFileSync(options.junit, junitOf(endings));
  const { invalid, failed } = countsOf(endings, null);
  return invalid > 0 ? 2 : failed > 0 ? 1 : 0;
}

const NO_FILES = 'name at least one scenario file: reach-sidecar sandbox scenario.yaml';

/** One scenario is told step by step; of several only those that fail, and all of them in one table. The last line is for programs. */
function tell(endings: readonly Ending[], { write, isDetailed = false }: SandboxOptions, tookMs: number | null): void {
  let told = 0;
  for (const ending of endings) {
    if ('problems' in ending) {
      if (told++ > 0) write('');
      for (const line of problemLines(ending.problems)) write(line);
      continue;
    }
    for (const report of ending.reports) {
      if (endings.length > 1 && !isDetailed && report.ok) continue;
      if (told++ > 0) write('');
      for (const line of tableOf(report, endings.length === 1 || isDetailed)) write(line);
    }
  }
  if (endings.length > 1) {
    if (told > 0) write('');
    for (const line of summaryOf(endings)) write(line);
  }
  write(JSON.stringify(countsOf(endings, tookMs)));
}

interface Counts {
  readonly sandbox: 'ok' | 'failed' | 'invalid';
  readonly ok: boolean;
  readonly scenarios: number;
  readonly passed: number;
  readonly failed: number;
  readonly invalid: number;
}

/** One file is one scenario, however many variants it has. */
function countsOf(endings: readonly Ending[], tookMs: number | null): Counts & Record<string, unknown> {
  let [passed, failed, invalid, runs, calls, messages, virtualMs] = [0, 0, 0, 0, 0, 0, 0];
  for (const ending of endings) {
    if ('problems' in ending) {
      invalid++;
      continue;
    }
    if (ending.reports.every((report) => report.ok)) passed++;
    else failed++;
    for (const report of ending.reports) {
      runs++;
      calls += report.tally.calls + report.agentCalls;
      for (const n of report.messages.values()) messages += n;
      virtualMs += report.virtualMs;
    }
  }
  return {
    sandbox: invalid > 0 ? 'invalid' : failed > 0 ? 'failed' : 'ok',
    ok: invalid + failed === 0,
    scenarios: endings.length,
    passed,
    failed,
    invalid,
    runs,
    calls,
    messages,
    virtual_ms: Math.round(virtualMs),
    ...(tookMs === null ? {} : { took_ms: tookMs }),
    ...figuresOf(endings),
  };
}

/** Folders become the files in them, by name; or what is wrong. */
function filesOf(paths: readonly string[]): readonly string[] | string {
  const files: string[] = [];
  for (const path of paths) {
    if (!isFolder(path)) {
      files.push(path);
      continue;
    }
    const inside = readdirSync(path, { withFileTypes: true })
      .filter((entry) => entry.isFile() && /\.ya?ml$/.test(entry.name))
      .map((entry) => join(path, entry.name))
      .sort();
    if (inside.length === 0) return `${path}: there is no scenario (*.yaml) in this folder`;
    files.push(...inside);
  }
  return files;
}

function isFolder(path: string): boolean {
  try {
    return statSync(path).isDirectory();
  } catch {
    return false;
  }
}

function overlayOf(file: string | null): { readonly overlay: Overlay | null } | { readonly problems: readonly Problem[] } {
  if (file === null) return { overlay: null };
  const content = contentOf(file);
  if (typeof content !== 'string') return { problems: [content] };
  const { overlay, source } = readOverlay(content, file);
  return source.problems.length > 0 ? { problems: source.problems } : { overlay };
}

type Reading = { readonly file: string } & ScenariosReading;

/** null = it is not asked for. */
function readFile(file: string, given: Overlay | null, { only = [], seed = null }: SandboxOptions): Reading | null {
  const content = contentOf(file);
  if (typeof content !== 'string') return { file, problems: [content] };
  const reading = readScenarios(content, file, given, seed);
  const name = 'scenarios' in reading ? (reading.scenarios[0]?.name ?? '') : '';
  if (only.length > 0 && !only.some((word) => `${file} ${name}`.toLowerCase().includes(word.toLowerCase()))) return null;
  return { file, ...reading };
}

async function runAll({ file, scenarios }: { readonly file: string; readonly scenarios: readonly Scenario[] }): Promise<Ending> {
  const reports: RunReport[] = [];
  for (const scenario of scenarios) reports.push(await runScenario(scenario));
  return { file, reports };
}

function contentOf(file: string): string | Problem {
  try {
    return readFileSync(file, 'utf8');
  } catch (error) {
    return { file, line: 0, column: 0, path: '', message: `cannot be read (${(error as NodeJS.ErrnoException).code ?? 'error'})` };
  }
}

function problemLines(problems: readonly Problem[]): string[] {
  return [...problems.map(wordsOfProblem), `not run: ${problems.length} problem${problems.length === 1 ? '' : 's'}`];
}

function endingJson(ending: Ending): unknown[] {
  return 'reports' in ending ? ending.reports.map(jsonOf) : [{ file: ending.file, ok: false, problems: ending.problems }];
}
