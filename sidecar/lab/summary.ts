/** Several scenarios in one table: a line for each run, and the figures that they tell. */
import { formatDuration } from '../../base/duration.ts';
import type { Ending } from './ending.ts';
import { clockText, codesText, fatesText, titleOf } from './report.ts';
import type { RunReport } from './run.ts';

export function summaryOf(endings: readonly Ending[]): string[] {
  const rows: [string, string, string, string][] = [];
  for (const ending of endings) {
    if ('problems' in ending) rows.push(['-', ending.file, '', 'cannot be used']);
    else for (const report of ending.reports) rows.push(rowOf(report));
  }
  const width = [0, 1, 2].map((column) => Math.max(...rows.map((row) => (row[column] as string).length)));
  const lines = rows.map(([mark, title, time, what]) =>
    `${mark.padEnd(width[0] as number)}  ${title.padEnd(width[1] as number)}  ${time.padStart(width[2] as number)}  ${what}`.trimEnd(),
  );
  const failed = endings.filter((ending) => 'reports' in ending && !ending.reports.every((report) => report.ok)).length;
  const invalid = endings.filter((ending) => 'problems' in ending).length;
  const bad = `${failed > 0 ? `, ${failed} fail` : ''}${invalid > 0 ? `, ${invalid} cannot be used` : ''}`;
  return [...lines, `${endings.length - failed - invalid} of ${endings.length} scenarios pass${bad}`];
}

function rowOf(report: RunReport): [string, string, string, string] {
  const parts: string[] = [];
  if (report.tally.calls > 0) parts.push(`${report.tally.calls} calls: ${codesText(report.tally)}`);
  if (report.agentCalls > 0) parts.push(`${report.agentCalls} calls of agents`);
  if (report.messages.size > 0) parts.push(`messages: ${fatesText(report.messages)}`);
  for (const [name, ms] of report.figures) parts.push(`${name} ${formatDuration(ms)}`);
  const n = report.failures.length;
  if (!report.ok) parts.unshift(`${n} expectation${n === 1 ? ' does' : 's do'} not hold`);
  return [report.ok ? 'ok' : 'FAIL', titleOf(report.scenario), clockText(report.virtualMs), parts.join('; ')];
}

/** By name; of a scenario with variants by variant. A name that two scenarios use is that of the last. */
export function figuresOf(endings: readonly Ending[]): Record<string, unknown> {
  const figures: Record<string, unknown> = {};
  for (const ending of endings) {
    if ('problems' in ending) continue;
    for (const { scenario, figures: mine } of ending.reports) {
      for (const [name, ms] of mine) {
        if (scenario.variant === null) figures[name] = ms;
        else figures[name] = { ...(typeof figures[name] === 'object' ? figures[name] : {}), [scenario.variant]: ms };
      }
    }
  }
  return figures;
}
