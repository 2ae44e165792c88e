/**
 * Counts the numbered cases from what the tests of `test/cases` did. One id may be proved by several subtests, and then
 * all must pass. A case has passed only if it ran, asserted something, and nothing in it failed or was skipped.
 */
import type { Point } from './report.ts';
import { countChecks, type FileRun, holdsSkipped } from './tally.ts';

export interface CaseTally {
  readonly cases: number;
  readonly passed: number;
  readonly failed: number;
  readonly skipped: number;
  /** One line for every case that did not pass and every subtest that is no known case. */
  readonly faults: readonly string[];
}

type Standing = 'passed' | 'failed' | 'skipped';

const CASE_NAME = /^(C\d{3})\b/;

/** `runs` are those of the files in `test/cases`; `expected` the ids that must be there. */
export function tallyCases(expected: readonly string[], runs: readonly FileRun[]): CaseTally {
  const faults: string[] = [];
  const standing = new Map<string, Standing>();
  for (const { file, report } of runs) {
    for (const test of report.points) {
      const id = CASE_NAME.exec(test.name)?.[1];
      if (id === undefined || !expected.includes(id)) {
        faults.push(`${file}: "${test.name}" does not start with the id of an expected case`);
        continue;
      }
      const [now, why] = judge(test);
      if (now !== 'passed') faults.push(`${id} ${now}: ${why} in "${test.name}" (${file})`);
      standing.set(id, worse(standing.get(id) ?? 'passed', now));
    }
  }
  const counts = { passed: 0, failed: 0, skipped: 0 };
  for (const id of expected) {
    const is = standing.get(id);
    if (is === undefined) faults.push(`${id} failed: no subtest of this name ran`);
    counts[is ?? 'failed']++;
  }
  return { cases: expected.length, ...counts, faults };
}

function judge(test: Point): [Standing, string] {
  if (holdsSkipped(test)) return ['skipped', 'a skip or todo'];
  if (!test.ok) return ['failed', 'a failed assertion'];
  if (!test.isSubtest || countChecks(test) === 0) return ['failed', 'nothing was asserted'];
  return ['passed', ''];
}

function worse(one: Standing, other: Standing): Standing {
  if (one === 'failed' || other === 'failed') return 'failed';
  return one === 'skipped' || other === 'skipped' ? 'skipped' : 'passed';
}
