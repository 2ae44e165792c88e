/** The TypeScript files of the tree: what both linters have to have seen. */
import { readdirSync } from 'node:fs';
import { join } from 'node:path';

const TOP_FOLDERS: readonly string[] = ['base', 'proto', 'sidecar', 'control-plane', 'sdk', 'deploy', 'docs', 'test'];
/** Broken on purpose: the linters' own tests read them. */
const BROKEN = 'test/lint/broken/';

/** Named from `top`, with forward slashes, sorted. */
export function sourceFiles(top: string): string[] {
  const found: string[] = [];
  for (const folder of TOP_FOLDERS) walk(top, folder, found);
  return found.filter((file) => !file.startsWith(BROKEN)).sort();
}

function walk(top: string, folder: string, found: string[]): void {
  let entries;
  try {
    entries = readdirSync(join(top, folder), { withFileTypes: true });
  } catch {
    return; // not there yet
  }
  for (const entry of entries) {
    if (entry.name === 'node_modules' || entry.name === 'dist') continue;
    const path = `${folder}/${entry.name}`;
    if (entry.isDirectory()) walk(top, path, found);
    else if (entry.name.endsWith('.ts') || entry.name.endsWith('.tsx')) found.push(path);
  }
}
