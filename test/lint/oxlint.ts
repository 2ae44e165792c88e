/** Runs oxlint as a program and reads its JSON report; its configuration stands in `.oxlintrc.json`. */
import { spawnSync } from 'node:child_process';
import { join } from 'node:path';
import { REPO } from '../support/paths.ts';
import type { Finding } from './house-rules.ts';

export interface OxlintReport {
  readonly findings: readonly Finding[];
  /** How many files it looked at. */
  readonly files: number;
}

interface RawReport {
  diagnostics: { message: string; help?: string; code?: string; filename?: string; labels?: { span?: { line?: number } }[] }[];
  number_of_files: number;
}

/** `args` are paths and options of oxlint; `cwd` is where the paths start. Throws when oxlint itself did not work. */
export function runOxlint(args: readonly string[], cwd: string): OxlintReport {
  const ran = spawnSync(process.execPath, [join(REPO, 'node_modules/oxlint/bin/oxlint'), '--format=json', ...args], {
    cwd,
    encoding: 'utf8',
    maxBuffer: 64 * 1024 * 1024,
  });
  if (ran.error !== undefined) throw ran.error;
  const raw = parse(ran.stdout);
  if (raw === null) throw new Error(`oxlint gave no report (exit code ${ran.status}): ${(ran.stderr + ran.stdout).trim().slice(0, 2_000)}`);
  const findings = raw.diagnostics.map((found) => ({
    file: (found.filename ?? '?').replaceAll('\\', '/'),
    line: found.labels?.[0]?.span?.line ?? 0,
    what: `${found.message}${found.help === undefined ? '' : ` ${found.help}`} [${found.code ?? 'oxlint'}]`,
  }));
  if (findings.length === 0 && ran.status !== 0) throw new Error(`oxlint failed (exit code ${ran.status}): ${ran.stderr.trim()}`);
  return { findings, files: raw.number_of_files };
}

function parse(text: string): RawReport | null {
  try {
    const value: unknown = JSON.parse(text);
    return typeof value === 'object' && value !== null && 'number_of_files' in value ? (value as RawReport) : null;
  } catch {
    return null;
  }
}
