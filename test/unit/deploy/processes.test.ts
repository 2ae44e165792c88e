import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import t from 'tap';
import { Processes } from '../../../deploy/local/processes.ts';

t.test('a program of this tree starts in any folder, also one that has no packages', async (t) => {
  const folder = mkdtempSync(join(tmpdir(), 'elsewhere-'));
  const here = process.cwd();
  process.chdir(folder);
  t.teardown(() => {
    process.chdir(here);
    rmSync(folder, { recursive: true });
  });
  const processes = new Processes();
  const ran = await processes.run('sidecar', '../../sidecar/main.ts', ['--help'], {});
  t.equal(ran.code, 0, ran.lastWords);
  t.match(ran.stdout, /reach-sidecar/);
});
