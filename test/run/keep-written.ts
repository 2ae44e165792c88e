/**
 * Loaded before a test file (`--import`) in a whole run: what the test would delete of its folders is put aside instead, for the
 * run to look through at its end. A test deletes by `node:fs`, whichever way; elsewhere than in the run's own folder for
 * temporary things, deleting stays deleting.
 */
import fs from 'node:fs';
import { syncBuiltinESMExports } from 'node:module';
import { basename, join, resolve, sep } from 'node:path';

const written = process.env['REACH_TEST_WRITTEN'];
const temporary = process.env['TMPDIR'];

if (written !== undefined && temporary !== undefined) {
  let count = 0;
  const within = resolve(temporary) + sep;
  /** True when it has been put aside. */
  const aside = (path: unknown): boolean => {
    if (typeof path !== 'string' || !resolve(path).startsWith(within)) return false;
    try {
      fs.renameSync(path, join(written, `${process.pid}-${++count}.${basename(path)}`));
      return true;
    } catch {
      return false;
    }
  };
  const { rmSync, rm } = fs;
  const { rm: rmLater } = fs.promises;
  fs.rmSync = (path, options) => {
    if (!aside(path)) rmSync(path, options);
  };
  fs.rm = ((path: fs.PathLike, ...rest: unknown[]) => {
    const done = rest.at(-1) as () => void;
    if (aside(path)) setImmediate(done);
    else (rm as (...args: unknown[]) => void)(path, ...rest);
  }) as typeof fs.rm;
  fs.promises.rm = async (path, options) => {
    if (!aside(path)) await rmLater(path, options);
  };
  syncBuiltinESMExports();
}
