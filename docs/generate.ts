/**
 * Writes the generated pages (`make docs`), or with `--check` says which are stale (`make test`). A page is generated
 * where it would otherwise be a second truth beside the code.
 */
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { configPage } from './generate-config.ts';
import { errorsPage } from './generate-errors.ts';
import { metricsPage } from './generate-metrics.ts';
import { transportsPage } from './generate-transports.ts';

const PAGES: readonly (readonly [file: string, page: () => string])[] = [
  ['docs/errors.md', errorsPage],
  ['docs/config.md', configPage],
  ['docs/transports.md', transportsPage],
  ['docs/metrics.md', metricsPage],
];

/** make and npm run programs from the top of the tree. */
const top = process.cwd();
const check = process.argv.includes('--check');
let stale = 0;
for (const [file, page] of PAGES) {
  const path = join(top, file);
  const fresh = page();
  if (fresh === readOrEmpty(path)) continue;
  stale++;
  if (check) process.stdout.write(`${file} is stale: run 'make docs' and commit it\n`);
  else writeFileSync(path, fresh);
}
if (check) process.stdout.write(stale === 0 ? `${PAGES.length} pages fresh\n` : `${stale} of ${PAGES.length} pages stale\n`);
else process.stdout.write(`${PAGES.length} pages, ${stale} written\n`);
process.exitCode = check && stale > 0 ? 1 : 0;

function readOrEmpty(path: string): string {
  try {
    return readFileSync(path, 'utf8');
  } catch {
    return '';
  }
}
