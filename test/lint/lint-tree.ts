/**
 * Lints one tree: oxlint (types, cycles, bans) and the rules of the house. A linter that looked at nothing has found
 * nothing wrong, so the tree also fails when either saw fewer files than there are, or none.
 */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { type Finding, findingsIn } from './house-rules.ts';
import { runOxlint } from './oxlint.ts';
import { sourceFiles } from './source-files.ts';

export interface Linted {
  readonly ok: boolean;
  readonly findings: readonly Finding[];
  /** What it says, the verdict last. */
  readonly lines: readonly string[];
}

/** `top` holds the folders of the tree and an `.oxlintrc.json`. */
export function lintTree(top: string): Linted {
  const files = sourceFiles(top);
  if (files.length === 0) return { ok: false, findings: [], lines: ['lint saw no files'] };
  const oxlint = runOxlint(['--deny-warnings', '.'], top);
  const house = files.flatMap((file) => findingsIn(file, readFileSync(join(top, file), 'utf8')));
  const findings = [...oxlint.findings, ...house];
  const lines = findings.map(({ file, line, what }) => `${file}:${line}: ${what}`);
  const sawAll = oxlint.files >= files.length;
  if (!sawAll) lines.push(`oxlint saw ${oxlint.files} files of ${files.length}`);
  const ok = findings.length === 0 && sawAll;
  lines.push(ok ? `${files.length} files, nothing found` : `${findings.length} problems in ${files.length} files`);
  return { ok, findings, lines };
}
