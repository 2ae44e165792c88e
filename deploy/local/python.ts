/** The Python that agents of other makers run in: a virtual environment below `build/`, made by `make python` and by nothing else. */
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { treeFile } from './tree.ts';

export const PYTHON_FOLDER: string = treeFile('build', 'peers', 'python');

/** Path of the interpreter; throws a sentence when it has not been made. */
export function pythonPath(): string {
  if (!hasPython()) throw new Error('the Python of the agents is not there: run `make python` first');
  return PYTHON;
}

export function hasPython(): boolean {
  return existsSync(PYTHON);
}

const PYTHON = join(PYTHON_FOLDER, 'bin', 'python');
