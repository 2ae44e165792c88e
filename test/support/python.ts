/**
 * The Python that the peers run in: a virtual environment below `build/`, made by `make peers` and by nothing else. Here
 * is only where it is; `test/peers/install.ts` makes it.
 */
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { repoFile } from './paths.ts';

export const PYTHON_FOLDER: string = repoFile('build/peers/python');

/** Path of the interpreter; throws a sentence when it has not been made. */
export function pythonPath(): string {
  const path = join(PYTHON_FOLDER, 'bin', 'python');
  if (!existsSync(path)) throw new Error('the Python of the peers is not there: run `make peers` first');
  return path;
}
