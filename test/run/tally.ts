/**
 * Counting, apart from running. A *test* is one top-level subtest (or one bare assertion) of a test file. What goes wrong
 * around the tests counts as failed too: a file that crashes, runs out of time, holds no test, is never run, or leaves
 * processes behind.
 */
import type { Point, Report } from './report.ts';

/** How one test file went. */
export interface FileRun {
  /** Its source, from the top of the tree. */
  readonly file: string;
  readonly report: Report;
  /** Null when a signal ended it. */
  readonly exitCode: number | null;
  readonly signal: string | null;
  readonly timedOut: boolean;
  /** Processes that it had started were still there after its end. */
  readonly leftProcesses: boolean;
  readonly tookMs: number;
  readonly stderr: string;
}

export interface Tally {
  readonly passed: number;
  readonly failed: number;
  readonly skipped: number;
  /** Single assertions inside the tests. */
  readonly checks: number;
  /** One line for each failure that is not a test. */
  readonly faults: readonly string[];
}

/** `expected` are the files that had to be run. */
export function tally(expected: readonly string[], runs: readonly FileRun[]): Tally {
  const faults: string[] = expected.length === 0 ? ['no test files were found'] : [];
  let passed = 0;
  let failed = 0;
  let skipped = 0;
  let checks = 0;
  for (const file of expected) {
    const run = runs.find((one) => one.file === file);
    if (run === undefined) {
      faults.push(`${file}: was not run`);
      continue;
    }
    for (const test of run.report.points) {
      checks += countChecks(test);
      if (test.skipped) skipped++;
      else if (test.ok) passed++;
      else failed++;
    }
    faults.push(...faultsOf(run).map((what) => `${file}: ${what}`));
  }
  return { passed, failed: failed + faults.length, skipped, checks, faults };
}

/** What is wrong with a file beyond its failed tests. */
export function faultsOf(run: FileRun): string[] {
  const faults: string[] = [];
  const someFailed = run.report.points.some((test) => !test.ok && !test.skipped);
  if (run.report.points.length === 0) faults.push(`holds no tests (${ending(run)})`);
  else if (run.timedOut) faults.push('was stopped, since it took too long');
  else if (run.report.bailedOut !== null) faults.push(`bailed out: ${run.report.bailedOut}`);
  else if (!someFailed && (run.exitCode !== 0 || !run.report.ok)) faults.push(`no test failed, yet the file did (${ending(run)})`);
  if (run.leftProcesses) faults.push('left processes running; they were stopped');
  return faults;
}

function ending(run: FileRun): string {
  if (run.timedOut) return 'stopped, since it took too long';
  if (run.signal !== null) return `ended by ${run.signal}`;
  return run.exitCode === 0 ? 'its report is not whole' : `exit code ${run.exitCode}`;
}

/** The assertions under a point; a subtest itself is none. */
export function countChecks(point: Point): number {
  if (!point.isSubtest) return point.skipped ? 0 : 1;
  let checks = 0;
  for (const child of point.children) checks += countChecks(child);
  return checks;
}

/** True when anything under the point was marked skip or todo: such a test has not shown what it promises. */
export function holdsSkipped(point: Point): boolean {
  return point.skipped || point.children.some(holdsSkipped);
}
