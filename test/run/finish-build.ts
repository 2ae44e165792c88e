/**
 * After tsc: takes out of `dist/` what has no source any more (a deleted test must not run on), copies what programs read
 * beside their code, makes the console's files, and bundles the programs that people run: the sidecar is one program without `node_modules`, which starts in half the time and idles
 * in some 8 MB less than its two hundred modules do. `npx reach-sidecar` runs the bundle; tests run the modules.
 */
import { chmodSync, copyFileSync, existsSync, mkdirSync, readdirSync, rmSync, symlinkSync } from 'node:fs';
import { basename, dirname, extname, join } from 'node:path';
import { buildSync } from 'esbuild';
import { REPO } from '../support/paths.ts';
import { buildConsole } from './build-console.ts';

const DIST = join(REPO, 'dist');
const BUNDLE = join(DIST, 'bundle');
/** Read by browsers, not by programs beside it: it is bundled as a whole. */
const CONSOLE = join(REPO, 'control-plane', 'console');
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
  const source = relative.replace(/\.d\.ts$|\.js(\.map)?$/, '.ts');
  return join(REPO, source);
}

for (const folder of SOURCES) {
  for (const source of filesBelow(join(REPO, folder))) {
    if (!ASSETS.has(extname(source)) || source.startsWith(CONSOLE)) continue;
    const target = join(DIST, source.slice(REPO.length + 1));
    mkdirSync(dirname(target), { recursive: true });
    copyFileSync(source, target);
  }
}
for (const built of filesBelow(DIST)) {
  if (!built.startsWith(BUNDLE) && !existsSync(originOf(built))) rmSync(built);
}

/** Programs that share a bundle share what is loaded by both; the sidecar has its own, so that it loads nothing of others. */
const BUNDLES: readonly {
  readonly folder: string;
  readonly programs: Readonly<Record<string, string>>;
  readonly links: Readonly<Record<string, string>>;
}[] = [
  { folder: BUNDLE, programs: { main: 'sidecar/main.js' }, links: { 'reach-sidecar': 'main.js' } },
  {
    folder: `${BUNDLE}-control`,
    programs: { 'reach-control': 'control-plane/main.js', reachctl: 'control-plane/cli/main.js' },
    links: { 'reach-control': 'reach-control.js', reachctl: 'reachctl.js' },
  },
];

for (const { folder, programs, links } of BUNDLES) {
  const entries = Object.entries(programs).map(([name, built]) => ({ out: name, in: join(DIST, built) }));
  if (!entries.every((entry) => existsSync(entry.in))) continue;
  rmSync(folder, { recursive: true, force: true });
  buildSync({
    entryPoints: entries,
    outdir: folder,
    bundle: true,
    splitting: true,
    minify: true,
    keepNames: true,
    sourcemap: 'linked',
    sourcesContent: false,
    platform: 'node',
    format: 'esm',
    target: 'node20',
    logLevel: 'warning',
    // Packages in CommonJS ask for Node's own modules with `require`, which a module does not have.
    banner: { js: "import { createRequire as requireFrom } from 'node:module'; const require = requireFrom(import.meta.url);" },
  });
  for (const [name, bundled] of Object.entries(links)) {
    chmodSync(join(folder, bundled), 0o755);
    const link = join(REPO, 'node_modules', '.bin', name);
    rmSync(link, { force: true });
    symlinkSync(join('..', '..', 'dist', basename(folder), bundled), link);
  }
}

// Beside the control plane's programs, which serve it.
buildConsole(CONSOLE, join(`${BUNDLE}-control`, 'console'));
