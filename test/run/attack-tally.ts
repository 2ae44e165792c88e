/**
 * Counts attempts from what the tests of `test/attacks` did: each top-level subtest is one. It counts as refused only if it
 * ran, nothing in it failed or was skipped, and it looked whether the provider was reached. A subtest that shows that the
 * way is open for whoever may go it is no attempt; its name says so.
 */
import { REACHED_NOTHING } from '../attacks/words.ts';
import type { Point } from './report.ts';
import { type FileRun, holdsSkipped } from './tally.ts';

export interface AttackTally {
  readonly attacks: number;
  readonly refused: number;
  /** Attempts of which something arrived at a provider. */
  readonly reached_provider: number;
  readonly faults: readonly string[];
}

/** Begins the name of a subtest that is no attempt. */
export const NO_ATTEMPT = 'rightful:';

export function tallyAttacks(runs: readonly FileRun[]): AttackTally {
  const faults: string[] = [];
  const counts = { attacks: 0, refused: 0, reached_provider: 0 };
  for (const { file, report } of runs) {
    for (const test of report.points) {
      if (test.name.startsWith(NO_ATTEMPT)) {
        if (!test.ok || test.skipped) faults.push(`"${test.name}" failed, so that refusals prove nothing (${file})`);
        continue;
      }
      counts.attacks++;
      const looks = looksOf(test);
      if (looks.some(({ ok }) => !ok)) counts.reached_provider++;
      if (looks.length === 0) faults.push(`"${test.name}" does not look whether the provider was reached (${file})`);
      else if (!test.ok || holdsSkipped(test)) faults.push(`"${test.name}" was not refused as it must be (${file})`);
      else counts.refused++;
    }
  }
  if (counts.attacks === 0) faults.push('there are no attempts');
  return { ...counts, faults };
}

/** The checks that nothing reached a provider, at any depth. */
function looksOf(point: Point): Point[] {
  if (!point.isSubtest) return point.name.startsWith(REACHED_NOTHING) ? [point] : [];
  return point.children.flatMap(looksOf);
}
