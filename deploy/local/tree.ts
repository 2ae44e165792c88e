/** Where files of the source tree are, whether this runs from its source or compiled: what is not compiled lies there only. */
import { dirname, extname, join } from 'node:path';
import { fileURLToPath } from 'node:url';

const HERE = dirname(fileURLToPath(import.meta.url));
const TOP = extname(fileURLToPath(import.meta.url)) === '.ts' ? join(HERE, '..', '..') : join(HERE, '..', '..', '..');

/** Absolute path of a file, named from the top of the tree. */
export function treeFile(...parts: readonly string[]): string {
  return join(TOP, ...parts);
}
