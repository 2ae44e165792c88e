/**
 * Makes the console's files: one script, one style sheet, the icon and the page that names them. Script and style are named by what is
 * in them, so that a browser may keep them for good and never shows an old page with a new style.
 */
import { mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { basename, join } from 'node:path';
import { buildSync } from 'esbuild';

const NAMES = ['script', 'style', 'icon'] as const;

/** @param source folder with app.tsx  @param target is made anew  @returns names of the files, with their bytes */
export function buildConsole(source: string, target: string): ReadonlyMap<string, number> {
  rmSync(target, { recursive: true, force: true });
  mkdirSync(target, { recursive: true });
  const { metafile } = buildSync({
    entryPoints: [
      { out: 'script', in: join(source, 'app.tsx') },
      { out: 'style', in: join(source, 'page.css') },
      { out: 'icon', in: join(source, 'icon.svg') },
    ],
    outdir: target,
    entryNames: '[name]-[hash]',
    bundle: true,
    minify: true,
    platform: 'browser',
    format: 'esm',
    target: 'es2022',
    jsx: 'automatic',
    jsxImportSource: 'preact',
    loader: { '.svg': 'copy' },
    legalComments: 'none',
    metafile: true,
    logLevel: 'warning',
  });
  const sizes = new Map(Object.entries(metafile.outputs).map(([path, { bytes }]) => [basename(path), bytes]));
  let page = readFileSync(join(source, 'index.html'), 'utf8');
  for (const name of NAMES) {
    const made = [...sizes.keys()].find((each) => each.startsWith(`${name}-`));
    if (made === undefined) throw new Error(`the console's ${name} was not made`);
    page = page.replace(`{{${name}}}`, made);
  }
  writeFileSync(join(target, 'index.html'), page);
  return sizes.set('index.html', Buffer.byteLength(page));
}
