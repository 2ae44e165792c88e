/** The result for a CI that reads JUnit's XML: a suite for each file, a case for each run of it, with what does not hold. */
import type { Ending } from './ending.ts';
import { failureLines, titleOf } from './report.ts';

export function junitOf(endings: readonly Ending[]): string {
  const suites = endings.map((ending) => {
    if ('problems' in ending) {
      const words = ending.problems.map(({ line, column, path, message }) => `${line}:${column} ${path} ${message}`).join('\n');
      return `  <testsuite name="${escaped(ending.file)}" tests="1" failures="0" errors="1">\n    <testcase name="${escaped(ending.file)}"><error message="cannot be used">${escaped(words)}</error></testcase>\n  </testsuite>`;
    }
    const cases = ending.reports.map((report) => {
      const name = `name="${escaped(titleOf(report.scenario))}" classname="sandbox" time="${(report.virtualMs / 1_000).toFixed(3)}"`;
      if (report.ok) return `    <testcase ${name}/>`;
      const words = report.failures.flatMap((failure) => failureLines(failure, report.scenario.file, true)).join('\n');
      return `    <testcase ${name}><failure message="${escaped(report.failures[0]?.what ?? '')}">${escaped(words)}</failure></testcase>`;
    });
    const failed = ending.reports.filter((report) => !report.ok).length;
    return `  <testsuite name="${escaped(ending.file)}" tests="${ending.reports.length}" failures="${failed}" errors="0">\n${cases.join('\n')}\n  </testsuite>`;
  });
  return `<?xml version="1.0" encoding="UTF-8"?>\n<testsuites>\n${suites.join('\n')}\n</testsuites>\n`;
}

const ESCAPES: Readonly<Record<string, string>> = Object.freeze({ '&': '&amp;', '<': '&lt;', '>': '&gt;', '"': '&quot;', '\n': '&#10;' });

/** What XML cannot hold at all becomes a question mark. */
function escaped(text: string): string {
  let out = '';
  for (const char of text) out += ESCAPES[char] ?? (char < ' ' && char !== '\t' ? '?' : char);
  return out;
}
