/** `make lint`. */
import { REPO } from '../support/paths.ts';
import { lintTree } from './lint-tree.ts';

const linted = lintTree(REPO);
process.stdout.write(`${linted.lines.join('\n')}\n`);
process.exitCode = linted.ok ? 0 : 1;
