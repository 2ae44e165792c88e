import { spawnSync } from 'node:child_process';
import { chmodSync, existsSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { delimiter, join } from 'node:path';
import { minVersion, satisfies } from 'semver';
import t from 'tap';
import { repoFile } from '../support/paths.ts';

interface Package {
  readonly engines: { readonly node: string };
  readonly bin: Readonly<Record<string, string>>;
  readonly dependencies: Readonly<Record<string, string>>;
  readonly devDependencies: Readonly<Record<string, string>>;
}

interface Lock {
  readonly packages: Readonly<
    Record<string, { readonly dev?: boolean; readonly engines?: { readonly node?: string }; readonly resolved?: string }>
  >;
}

const text = (file: string): string => readFileSync(repoFile(file), 'utf8');
const house = JSON.parse(text('package.json')) as Package;
const lock = JSON.parse(text('package-lock.json')) as Lock;
const floor = minVersion(house.engines.node)?.version ?? '';

t.test('every package that runs in production accepts the oldest Node that we accept', async (t) => {
  const production = Object.entries(lock.packages).filter(([path, entry]) => path !== '' && entry.dev !== true);
  t.ok(production.length > 20, 'there is something to check');
  const unwilling = production.filter(([, { engines }]) => engines?.node !== undefined && !satisfies(floor, engines.node));
  t.strictSame(
    unwilling.map(([path, { engines }]) => `${path} wants ${engines?.node}`),
    [],
  );
});

t.test('versions are exact, and the lock file names no place to download from', async (t) => {
  for (const [name, version] of Object.entries({ ...house.dependencies, ...house.devDependencies })) {
    t.match(version, /^\d+\.\d+\.\d+$/, name);
  }
  t.strictSame(
    Object.entries(lock.packages).filter(([, { resolved }]) => resolved !== undefined),
    [],
  );
  t.notMatch(text('package-lock.json'), /https?:\/\/[^"]*registry/);
  t.match(text('.npmrc'), /^omit-lockfile-registry-resolved=true$/m, 'and it stays so for everybody');
});

t.test('the programs that package.json promises are built, start with Node and answer', async (t) => {
  for (const [name, file] of Object.entries(house.bin)) {
    if (!t.ok(existsSync(repoFile(file)), `${name} is built as ${file}`)) continue;
    t.match(text(file), /^#!\/usr\/bin\/env node\n/, name);
    const { status, stdout } = spawnSync(process.execPath, [repoFile(file), '--version'], { encoding: 'utf8', timeout: 20_000 });
    t.equal(status, 0, name);
    t.match(stdout, /^\d+\.\d+\.\d+\n$/, name);
  }
});

t.test('make', async (t) => {
  /** A PATH with make and a shell, and what the test puts there. */
  function makeWith(programs: Record<string, string>, target: string): { status: number | null; stderr: string; stdout: string } {
    const bin = mkdtempSync(join(tmpdir(), 'reach-bin-'));
    try {
      for (const [name, script] of Object.entries(programs)) {
        writeFileSync(join(bin, name), `#!/bin/sh\n${script}\n`);
        chmodSync(join(bin, name), 0o755);
      }
      for (const name of ['make', 'sh', 'awk']) {
        const found = (process.env['PATH'] ?? '').split(delimiter).find((folder) => existsSync(join(folder, name)));
        if (found !== undefined && programs[name] === undefined) symlinkSync(join(found, name), join(bin, name));
      }
      const { MAKEFLAGS: _flags, MAKELEVEL: _level, ...env } = process.env;
      return spawnSync(join(bin, 'make'), ['-s', target], { cwd: repoFile(), env: { ...env, PATH: bin }, encoding: 'utf8' });
    } finally {
      rmSync(bin, { recursive: true, force: true });
    }
  }
  const oneSentence = (stderr: string): string => stderr.split('\n').filter((line) => line !== '' && !line.startsWith('make'))[0] ?? '';

  t.test('says in one sentence what is missing, before anything else', async (t) => {
    const none = makeWith({}, 'test');
    t.not(none.status, 0);
    t.equal(oneSentence(none.stderr), `Agent-Reach needs Node ${floor} or newer, and no 'node' is on the PATH.`);
    t.equal(none.stdout, '');
    const real = process.execPath;
    const old = makeWith({ node: 'case "$1" in --version) echo v18.20.4;; *) exit 1;; esac', npm: 'exit 0' }, 'test');
    t.not(old.status, 0);
    t.equal(oneSentence(old.stderr), `Agent-Reach needs Node ${floor} or newer; this is v18.20.4.`);
    const noNpm = makeWith({ node: `exec "${real}" "$@"` }, 'check-node');
    t.equal(oneSentence(noNpm.stderr), `Agent-Reach needs npm, which comes with Node, and no 'npm' is on the PATH.`);
    t.equal(makeWith({ node: `exec "${real}" "$@"`, npm: 'exit 0' }, 'check-node').status, 0);
  });

  t.test('compares versions by number', async (t) => {
    const as = (version: string): string => {
      const faked = `Object.defineProperty(process.versions, "node", { value: "${version}" });`;
      return `case "$1" in --version) echo v${version};; -e) exec "${process.execPath}" -e '${faked}'"$2";; esac`;
    };
    for (const version of ['20.18.1', '20.18.10', '20.19.0', '21.0.0', '22.1.0', '100.0.0']) {
      t.equal(makeWith({ node: as(version), npm: 'exit 0' }, 'check-node').status, 0, version);
    }
    for (const version of ['20.18.0', '20.9.5', '18.20.8', '4.0.0'])
      t.not(makeWith({ node: as(version), npm: 'exit 0' }, 'check-node').status, 0, version);
  });

  t.test('help names every target that is meant for people', async (t) => {
    const { stdout, status } = makeWith({}, 'help');
    t.equal(status, 0);
    for (const target of 'install build dev demo demo-standalone test cases lint format docs sandbox bench-call bench-decide clean help'.split(
      ' ',
    )) {
      t.match(stdout, new RegExp(`^ +${target} +\\S`, 'm'), target);
    }
  });
});

t.test('CI runs what the README tells a newcomer to run', async (t) => {
  const commands = text('.ci/run')
    .split('\n')
    .filter((line) => line.startsWith('make '));
  t.strictSame(commands, ['make test']);
  t.match(text('.ci/run'), /^set -euo pipefail$/m);
});
