/**
 * What a conformance suite found out, as a matrix: written to `build/conformance/` by each run, and held against
 * `docs/transports.json`, from which the page is made, so that the page cannot say what no run has shown.
 */
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import type { Test } from 'tap';
import { repoFile } from './paths.ts';

/** `true` = passed; text = why the protocol cannot. */
export type Outcome = true | string;

export interface Matrix {
  /** What each case is, by id, in order. */
  readonly cases: Readonly<Record<string, string>>;
  /** By adapter, by case. */
  readonly adapters: Readonly<Record<string, Readonly<Record<string, Outcome>>>>;
}

export type Direction = 'ways_out' | 'ways_in';

const FOLDER = repoFile('build/conformance');
const COMMITTED = repoFile('docs/transports.json');

/** Where a run leaves its outcome. */
export function outcomeFile(direction: Direction): string {
  return join(FOLDER, `${direction}.json`);
}

/** Keeps the outcome; fails when it is not what the page says. With `REACH_CONFORMANCE_KEEP=1` (`make docs-transports`) only kept. */
export function settleMatrix(t: Test, direction: Direction, found: Matrix): void {
  mkdirSync(FOLDER, { recursive: true });
  writeFileSync(outcomeFile(direction), `${JSON.stringify(found, null, 2)}\n`);
  if (process.env['REACH_CONFORMANCE_KEEP'] === '1') return;
  t.strictSame(
    found,
    committed(direction),
    'the matrix in docs/transports.json is what this run has shown; if not: run `make docs-transports`',
  );
}

function committed(direction: Direction): unknown {
  try {
    return (JSON.parse(readFileSync(COMMITTED, 'utf8')) as Record<string, unknown>)[direction] ?? null;
  } catch {
    return null;
  }
}
