/** Which files are tests. The same list drives the run and the check that every one of them was really run. */
import { readdirSync } from 'node:fs';
import { join } from 'node:path';
import { REPO } from '../support/paths.ts';

/** Folders of `test/` that hold test files. `lint` proves that the rules of the house still bite. */
export const TEST_FOLDERS: readonly string[] = ['unit', 'pipeline', 'conformance', 'cases', 'attacks', 'e2e', 'sdk', 'lint'];

/**
 * The test files as sources (`test/unit/base/clock.test.ts`), sorted. `only` keeps those whose path contains one of the
 * words; none given keeps all.
 */
export function testFiles(folders: readonly string[] = TEST_FOLDERS, only: readonly string[] = []): string[] {
  const found: string[] = [];
  for (const folder of folders) {
    for (const entry of listing(join(REPO, 'test', folder))) {
      if (entry.endsWith('.test.ts')) found.push(`test/${folder}/${entry}`);
    }
  }
  return found.filter((file) => only.length === 0 || only.some((word) => file.includes(word))).sort();
}

/** The program that tsc makes of a source. */
export function compiledName(source: string): string {
  return `dist/${source.replace(/\.ts$/, '.js')}`;
}

function listing(folder: string): string[] {
  try {
    return readdirSync(folder, { recursive: true, encoding: 'utf8' }).map((name) => name.replaceAll('\\', '/'));
  } catch {
    return []; // a folder that is not there yet holds no tests
  }
}
