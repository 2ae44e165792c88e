/** One line a test file, and under a failed one what went wrong and where. No cursor tricks: a CI log reads like a terminal. */
import type { Point } from './report.ts';
import { countChecks, faultsOf, type FileRun } from './tally.ts';

/** What tap adds to a failure and what helps nobody: the same source lines are in the stack. */
const HIDDEN: ReadonlySet<string> = new Set(['source', 'compare', 'generated']);

export function describeRun(run: FileRun): string {
  const { points } = run.report;
  const failed = points.filter((test) => !test.ok && !test.skipped);
  const faults = faultsOf(run);
  const bad = failed.length + faults.length > 0;
  const checks = points.reduce((sum, test) => sum + countChecks(test), 0);
  const head = `${bad ? 'FAIL' : 'ok  '} ${run.file}  ${points.length} tests, ${checks} checks, ${(run.tookMs / 1_000).toFixed(1)} s\n`;
  if (!bad) return head;
  const stderr = run.stderr.trim();
  return [
    head,
    ...failed.map((test) => describeFailure(test, [])),
    ...faults.map((what) => `\n     ✗ the file ${what}\n`),
    stderr === '' ? '' : `\n     on stderr:\n${indent(stderr)}`,
    '\n',
  ].join('');
}

function describeFailure(point: Point, above: readonly string[]): string {
  const path = [...above, point.name];
  const deeper = point.children.filter((child) => !child.ok && !child.skipped);
  if (deeper.length > 0) return deeper.map((child) => describeFailure(child, path)).join('');
  let text = `\n     ✗ ${path.join(' > ')}\n`;
  for (const [key, value] of Object.entries(point.diagnosis ?? {})) {
    if (!HIDDEN.has(key) && value !== null && value !== '') text += indent(`${key}: ${shown(key, value)}`);
  }
  return text;
}

function shown(key: string, value: unknown): string {
  if (key === 'at' && typeof value === 'object' && value !== null) {
    const { fileName, lineNumber } = value as { fileName?: string; lineNumber?: number };
    return `${fileName}:${lineNumber}`;
  }
  if (typeof value !== 'string') return JSON.stringify(value);
  return value.includes('\n') ? `\n${value.trimEnd()}` : value;
}

function indent(text: string): string {
  return `${text.replace(/^/gm, '       ')}\n`;
}
