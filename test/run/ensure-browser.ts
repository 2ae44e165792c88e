/** `make browser`: a Chromium for the tests of the console is there, or Debian's is installed, or it is said in one sentence how to get one. */
import { spawnSync } from 'node:child_process';
import { chromiumProgram, NO_BROWSER } from '../support/browser.ts';

const APT_MS = 600_000;

const say = (line: string): void => void process.stderr.write(`${line}\n`);

/** Null = it worked. */
function apt(...args: readonly string[]): string | null {
  const done = spawnSync('apt-get', args, {
    stdio: ['ignore', 2, 2],
    timeout: APT_MS,
    env: { ...process.env, DEBIAN_FRONTEND: 'noninteractive' },
  });
  if (done.error !== undefined) return `there is no apt-get here (${(done.error as NodeJS.ErrnoException).code ?? done.error.message})`;
  return done.status === 0 ? null : `apt-get ${args[0] ?? ''} failed`;
}

if (chromiumProgram() === null) {
  const isRoot = process.getuid?.() === 0;
  say(isRoot ? "installing Debian's Chromium with apt-get" : 'only root may install one');
  const problem = isRoot
    ? apt('install', '-y', '--no-install-recommends', 'chromium') === null
      ? null
      : (apt('update') ?? apt('install', '-y', '--no-install-recommends', 'chromium'))
    : '';
  if (problem !== null && problem !== '') say(problem);
  if (chromiumProgram() === null) {
    say(NO_BROWSER);
    process.exitCode = 1;
  }
}
