/**
 * `make python`: gets what agents of other makers need that are written in Python, so that a fresh clone needs nothing
 * installed by hand: a virtual environment in `build/peers/python` with pinned packages and with `sdk/python`; stamps beside
 * it say from which files it was made, so that a second run does nothing. What cannot be had is named in one sentence.
 * `--if-possible`: that is no failure.
 */
import { spawnSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { cpSync, existsSync, mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join, relative } from 'node:path';
import { PYTHON_FOLDER } from './python.ts';
import { treeFile } from './tree.ts';

const BUILD = treeFile('build', 'peers');
const REQUIREMENTS = treeFile('deploy', 'local', 'peers', 'requirements.txt');
const SDK = treeFile('sdk', 'python');
const PYTHON = join(PYTHON_FOLDER, 'bin', 'python');
/** The oldest that all pinned packages have wheels for. */
const OLDEST = [3, 10] as const;
/** What is first on the PATH may be too old, or lack venv. */
const PROGRAMS: readonly string[] = ['python3', '/usr/bin/python3', 'python3.13', 'python3.12', 'python3.11', 'python3.10'];
const INSTALL_MOST_MS = 600_000;
/** Another run may be installing; it gets this long. */
const LOCK_MOST_MS = 600_000;
const SKIPPED: ReadonlySet<string> = new Set(['__pycache__', 'build', 'dist', '.pytest_cache', '.venv']);

const say = (line: string): void => void process.stderr.write(`${line}\n`);

/** Null when it went well, else the last line that it wrote. */
function run(program: string, args: readonly string[]): string | null {
  const ran = spawnSync(program, args, {
    encoding: 'utf8',
    timeout: INSTALL_MOST_MS,
    maxBuffer: 64 * 1_048_576,
    stdio: ['ignore', 'pipe', 'pipe'],
    env: { ...process.env, DEBIAN_FRONTEND: 'noninteractive', PIP_DISABLE_PIP_VERSION_CHECK: '1', PIP_NO_INPUT: '1' },
  });
  if (ran.status === 0) return null;
  return (ran.stderr || ran.stdout || '').trim().split('\n').at(-1) || ran.error?.message || `it ended with ${ran.status ?? ran.signal}`;
}

/** `3.11`, or null when there is no such program. */
function versionOf(program: string): readonly [number, number] | null {
  const ran = spawnSync(program, ['-c', 'import sys; print(sys.version_info[0], sys.version_info[1])'], { encoding: 'utf8' });
  const [major, minor] = (ran.stdout ?? '').trim().split(' ').map(Number);
  return ran.status === 0 && major !== undefined && minor !== undefined ? [major, minor] : null;
}

function isNewEnough([major, minor]: readonly [number, number]): boolean {
  return major > OLDEST[0] || (major === OLDEST[0] && minor >= OLDEST[1]);
}

/** A python3 that can make virtual environments; installed by the system's own means when that is possible. */
function basePython(): string {
  const need = `Python ${OLDEST.join('.')} or newer with venv`;
  for (const program of PROGRAMS) if (problemOf(program) === null) return program;
  let problem = problemOf('python3');
  if (process.getuid?.() === 0 && existsSync('/etc/debian_version') && spawnSync('apt-get', ['--version']).status === 0) {
    say(`${problem}: getting python3-venv with apt-get`);
    const command = ['install', '-y', '--no-install-recommends', 'python3', 'python3-venv'];
    let failure = run('apt-get', command);
    if (failure !== null && run('apt-get', ['update']) === null) failure = run('apt-get', command);
    // What apt-get installs is here; the PATH may lead to another one that lacks venv.
    for (const program of PROGRAMS) {
      problem = problemOf(program);
      if (problem === null) return program;
    }
    throw new Error(`The agents written in Python need ${need}: ${problem}${failure === null ? '' : ` (apt-get: ${failure})`}.`);
  }
  throw new Error(
    `The agents written in Python need ${need}: ${problem}. Install it (Debian: python3 python3-venv; macOS: brew install python).`,
  );
}

function problemOf(program: string): string | null {
  const version = versionOf(program);
  if (version === null) return `there is no ${program} that works`;
  if (!isNewEnough(version)) return `${program} is ${version.join('.')}`;
  return run(program, ['-c', 'import venv, ensurepip']) === null ? null : `${program} has no venv`;
}

function* filesBelow(folder: string): Generator<string> {
  if (!existsSync(folder)) return;
  for (const entry of readdirSync(folder, { withFileTypes: true }).sort((a, b) => (a.name < b.name ? -1 : 1))) {
    const path = join(folder, entry.name);
    if (SKIPPED.has(entry.name) || entry.name.endsWith('.egg-info')) continue;
    if (entry.isDirectory()) yield* filesBelow(path);
    else if (entry.isFile()) yield path;
  }
}

function digestOf(files: Iterable<string>): string {
  const hash = createHash('sha256');
  for (const file of files)
    hash
      .update(`${relative(BUILD, file)}\0`)
      .update(readFileSync(file))
      .update('\0');
  return hash.digest('hex');
}

/** Runs `make` unless the stamp says that it was done for the same input. */
function stamped(name: string, input: string, make: () => void): void {
  const stamp = join(BUILD, `${name}.stamp`);
  if (existsSync(stamp) && readFileSync(stamp, 'utf8') === input) return;
  rmSync(stamp, { force: true });
  make();
  writeFileSync(stamp, input);
}

function must(what: string, failure: string | null): void {
  if (failure !== null) throw new Error(`${what}: ${failure}`);
}

function installPython(): void {
  // Made from another python3, or broken since: anew.
  if (versionOf(PYTHON) === null) for (const stamp of ['python', 'sdk']) rmSync(join(BUILD, `${stamp}.stamp`), { force: true });
  stamped('python', digestOf([REQUIREMENTS]), () => {
    const base = basePython();
    say('installing the Python of the agents (build/peers/python)');
    rmSync(PYTHON_FOLDER, { recursive: true, force: true });
    rmSync(join(BUILD, 'sdk.stamp'), { force: true });
    must('The Python of the agents cannot be made', run(base, ['-m', 'venv', PYTHON_FOLDER]));
    // No compiler is asked for: what has no wheel for this machine is said at once.
    const pip = ['-m', 'pip', 'install', '--quiet', '--only-binary', ':all:', '-r', REQUIREMENTS];
    must('The packages of deploy/local/peers/requirements.txt cannot be installed', run(PYTHON, pip));
  });
}

/** Built from a copy: a build leaves its litter beside its sources. */
function installSdk(): void {
  if (!existsSync(join(SDK, 'pyproject.toml'))) return;
  stamped('sdk', digestOf(filesBelow(SDK)), () => {
    say('installing sdk/python');
    const copy = join(BUILD, 'sdk');
    rmSync(copy, { recursive: true, force: true });
    for (const file of filesBelow(SDK)) cpSync(file, join(copy, relative(SDK, file)));
    const pip = ['-m', 'pip', 'install', '--quiet', '--no-build-isolation', '--force-reinstall', '--no-deps', copy];
    must('sdk/python cannot be installed', run(PYTHON, pip));
    must(
      'sdk/python needs something that deploy/local/peers/requirements.txt does not have',
      run(PYTHON, ['-m', 'pip', 'check', '--quiet']),
    );
  });
}

/** One at a time: `make test` and `make cases` may be run side by side. */
async function locked(work: () => void | Promise<void>): Promise<void> {
  const lock = join(BUILD, 'lock');
  const end = performance.now() + LOCK_MOST_MS;
  for (;;) {
    try {
      writeFileSync(lock, String(process.pid), { flag: 'wx' });
      break;
    } catch {
      if (!holderLives(lock)) rmSync(lock, { force: true });
      else if (performance.now() > end) throw new Error(`another run is still installing (${lock})`);
      else await new Promise<void>((done) => setTimeout(done, 200));
    }
  }
  try {
    await work();
  } finally {
    rmSync(lock, { force: true });
  }
}

function holderLives(lock: string): boolean {
  try {
    const pid = Number(readFileSync(lock, 'utf8'));
    return pid > 0 && process.kill(pid, 0);
  } catch {
    return false;
  }
}

try {
  mkdirSync(BUILD, { recursive: true });
  await locked(() => {
    installPython();
    installSdk();
  });
} catch (error) {
  say(error instanceof Error ? error.message : String(error));
  process.exitCode = process.argv.includes('--if-possible') ? 0 : 1;
}
