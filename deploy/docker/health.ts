/**
 * The health check of the image, which does not know which program a container runs: it looks at what process 1 was started
 * with, and asks that program by its own `health` command. A container that runs something else (`reachctl`) is well while it runs.
 */
import { readFileSync } from 'node:fs';
import { basename, dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';

/** By the name that they are called by, from this file's folder. */
const PROGRAMS: Readonly<Record<string, string>> = {
  'reach-sidecar': 'bundle/main.js',
  'reach-control': 'bundle-control/reach-control.js',
};

/** Which program with which settings a command line starts; null = neither of ours, or not to stay up. */
function servedBy(words: readonly string[]): { readonly program: string; readonly settings: string } | null {
  for (const [at, word] of words.entries()) {
    const program = PROGRAMS[basename(word)];
    const settings = words[at + 2];
    if (program !== undefined && words[at + 1] === 'run' && settings !== undefined) return { program, settings };
  }
  return null;
}

const pid = process.argv[2] ?? '1';
const served = servedBy(readFileSync(`/proc/${pid}/cmdline`, 'utf8').split('\0'));
if (served !== null) {
  process.argv = [process.execPath, served.program, 'health', served.settings];
  await import(join(dirname(fileURLToPath(import.meta.url)), served.program));
}
