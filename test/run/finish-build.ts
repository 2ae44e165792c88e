/**
 * After tsc: takes out of `dist/` what has no source any more (a deleted test must not run on), copies what programs read
 * beside their code, and makes the two ways to start the sidecar work: `npx reach-sidecar` and `dist/sidecar/main.js`.
 */
import { chmodSync, copyFileSync, existsSync, mkdirSync, readdirSync, rmSync, symlinkSync } from 'node:fs';
import { dirname, extname, join } from 'node:path';
import { REPO } from '../support/paths.ts';

const DIST = join(REPO, 'dist');
const SOURCES: readonly string[] = ['base', 'proto', 'sidecar', 'control-plane', 'sdk', 'deploy', 'docs', 'test'];
/** Kinds of file that code reads from beside itself. */
const ASSETS: ReadonlySet<string> = new Set(['.yaml', '.yml', '.json', '.proto', '.txt', '.html']);

function* filesBelow(folder: string): Generator<string> {
  if (!existsSync(folder)) return;
  for (const entry of readdirSync(folder, { withFileTypes: true })) {
    const path = join(folder, entry.name);
    if (entry.isDirectory()) yield* filesBelow(path);
    else if (entry.isFile()) yield path;
  }
}

/** The file a built one comes from, or null when it was not built from a file. */
function originOf(built: string): string {
  const relative = built.slice(DIST.length + 1);
  const source = relative.replace(/\.js(\.map)?$/, '.ts');
  return join(REPO, source);
}

for (const folder of SOURCES) {
  for (const source of filesBelow(join(REPO, folder))) {
    if (!ASSETS.has(extname(source))) continue;
    const target = join(DIST, source.slice(REPO.length + 1));
    mkdirSync(dirname(target), { recursive: true });
    copyFileSync(source, target);
  }
}
for (const built of filesBelow(DIST)) {
  if (!existsSync(originOf(built))) rmSync(built);
}

const program = join(DIST, 'sidecar', 'main.js');
if (existsSync(program)) {
  chmodSync(program, 0o755);
  const link = join(REPO, 'node_modules', '.bin', 'reach-sidecar');
  rmSync(link, { force: true });
  symlinkSync(join('..', '..', 'dist', 'sidecar', 'main.js'), link);
}
