/**
 * Where things are, whether a program runs from its source (tsx) or from `dist/`: a test is compiled, its fixtures are
 * not, and the sidecar it starts should be the same build as the test itself.
 */
import { existsSync } from 'node:fs';
import { dirname, join, sep } from 'node:path';
import { fileURLToPath } from 'node:url';

const here = dirname(fileURLToPath(import.meta.url));

/** The top of the source tree: the nearest folder above with a package.json. */
export const REPO: string = findRepo(here);

/** True when this very file was compiled. */
export const COMPILED: boolean = here.startsWith(join(REPO, 'dist') + sep);

/** Absolute path of a file of the source tree, named from its top: `repoFile('test/fixtures/two.yaml')`. */
export function repoFile(...parts: string[]): string {
  return join(REPO, ...parts);
}

const BUNDLED: Readonly<Record<string, string>> = {
  'sidecar/main.ts': 'bundle/main.js',
  'control-plane/main.ts': 'bundle-control/reach-control.js',
  'control-plane/cli/main.ts': 'bundle-control/reachctl.js',
};

/**
 * How to start a program of this tree: the arguments for `process.execPath`. `program` is its source,
 * `sidecar/main.ts`; a compiled test starts the compiled program, one under tsx starts the source through tsx.
 */
export function nodeArgs(program: string): string[] {
  // By its address: the program may be started in a folder that has no such package.
  if (!COMPILED) return ['--import', import.meta.resolve('tsx'), join(REPO, program)];
  // What people run: the bundle, without the source maps that cost it memory.
  const bundled = BUNDLED[program];
  if (bundled !== undefined) return [join(REPO, 'dist', bundled)];
  return ['--enable-source-maps', join(REPO, 'dist', program.replace(/\.ts$/, '.js'))];
}

function findRepo(from: string): string {
  for (let at = from; ; at = dirname(at)) {
    if (existsSync(join(at, 'package.json'))) return at;
    if (dirname(at) === at) throw new Error(`no package.json above ${from}`);
  }
}
