/**
 * Which nats-server to run. Looked for, in this order: the program that $REACH_NATS_SERVER names; `nats-server` on the PATH; the folders
 * where package managers and Go put it. When there is none, it is got by the system's own means; no package is brought along.
 */
import { spawnSync } from 'node:child_process';
import { accessSync, constants, existsSync, statSync } from 'node:fs';
import { homedir } from 'node:os';
import { delimiter, join } from 'node:path';
import { versionWarning } from '../../base/jetstream.ts';

const NAME = 'nats-server';
/** Of the lines that production should run, the one that has been out for longer. */
const GO_MODULE = 'github.com/nats-io/nats-server/v2@v2.14.10';
const GO_COMMAND = `go install ${GO_MODULE}`;
const INSTALL_MOST_MS = 300_000;

/** What a person without any of the means is told. */
export const HOW_TO_GET_ONE =
  `No nats-server was found. Get one with "apt-get install nats-server", "brew install nats-server" or "${GO_COMMAND}", ` +
  'or name the program: REACH_NATS_SERVER=/path/to/nats-server.';
/** Where one that already runs would do. */
export const OR_NAME_ONE = 'Or name one that runs: REACH_NATS_URL=nats://host:4222.';

interface Way {
  readonly program: string;
  readonly isPossible: () => boolean;
  /** Tried one after the other until one works; before the second one, `prepare`. */
  readonly command: readonly string[];
  readonly prepare: readonly string[] | null;
}

const WAYS: readonly Way[] = [
  {
    program: 'apt-get',
    isPossible: () => process.getuid?.() === 0 && existsSync('/etc/debian_version'),
    command: ['install', '-y', '--no-install-recommends', NAME],
    prepare: ['update'],
  },
  { program: 'brew', isPossible: () => true, command: ['install', NAME], prepare: null },
  { program: 'go', isPossible: () => true, command: ['install', GO_MODULE], prepare: null },
];

/** Path of the program; null when there is none. */
export function findNatsServer(): string | null {
  const named = process.env['REACH_NATS_SERVER'] ?? '';
  if (named !== '') return named;
  return findProgram(NAME, [...pathFolders(), ...USUAL_FOLDERS, ...goFolders()]);
}

/** Finds it or gets it, telling in one line what is done; throws a sentence when that is not possible. */
export function ensureNatsServer(say: (line: string) => void): string {
  const found = findNatsServer();
  if (found !== null) return found;
  const failures: string[] = [];
  for (const way of WAYS) {
    const program = findProgram(way.program, pathFolders());
    if (program === null || !way.isPossible()) continue;
    say(`no nats-server here: getting one with "${way.program} ${way.command.join(' ')}"`);
    let problem = run(program, way.command);
    if (problem !== null && way.prepare !== null && run(program, way.prepare) === null) problem = run(program, way.command);
    const installed = findNatsServer();
    if (installed !== null) return installed;
    failures.push(`${way.program}: ${problem ?? 'it is not where such programs are put'}`);
  }
  throw new Error(failures.length === 0 ? HOW_TO_GET_ONE : `${HOW_TO_GET_ONE} Tried: ${failures.join('; ')}`);
}

/**
 * One of a version that production should run, for what older ones do not know: another one that is here, or one that Go makes now.
 * Null when there is none.
 */
export function supportedNatsServer(say: (line: string) => void): string | null {
  const found = findSupported();
  const go = findProgram('go', pathFolders());
  if (found !== null || go === null) return found;
  say(`no nats-server of a supported version here: getting one with "${GO_COMMAND}"`);
  const problem = run(go, ['install', GO_MODULE]);
  if (problem !== null) say(`that did not work: ${problem}`);
  return findSupported();
}

function findSupported(): string | null {
  const first = findNatsServer();
  const others = [...pathFolders(), ...USUAL_FOLDERS, ...goFolders()].map((folder) => findProgram(NAME, [folder]));
  for (const each of [first, ...others]) {
    const version = each === null ? '' : versionOf(each);
    if (version !== '' && versionWarning(version) === null) return each;
  }
  return null;
}

/** Such as `2.14.10`; '' when the program does not say. */
export function versionOf(binary: string): string {
  const ran = spawnSync(binary, ['--version'], { encoding: 'utf8' });
  return /v(\d+\.\d+\.\d+\S*)/.exec(ran.stdout ?? '')?.[1] ?? '';
}

/** Debian puts it where only root has its PATH. */
const USUAL_FOLDERS: readonly string[] = ['/usr/local/bin', '/usr/local/sbin', '/usr/bin', '/usr/sbin', '/opt/homebrew/bin'];

function pathFolders(): string[] {
  return (process.env['PATH'] ?? '').split(delimiter).filter((folder) => folder !== '');
}

function goFolders(): string[] {
  const bin = process.env['GOBIN'] ?? '';
  const path = process.env['GOPATH'] ?? '';
  return [bin, ...path.split(delimiter).map((folder) => (folder === '' ? '' : join(folder, 'bin'))), join(homedir(), 'go', 'bin')].filter(
    (folder) => folder !== '',
  );
}

function findProgram(name: string, folders: readonly string[]): string | null {
  for (const folder of folders) {
    const path = join(folder, name);
    try {
      accessSync(path, constants.X_OK);
      if (statSync(path).isFile()) return path;
    } catch {
      // not there
    }
  }
  return null;
}

/** Null when it went well, else the last line that it wrote. */
function run(program: string, args: readonly string[]): string | null {
  const ran = spawnSync(program, args, {
    encoding: 'utf8',
    timeout: INSTALL_MOST_MS,
    stdio: ['ignore', 'ignore', 'pipe'],
    env: { ...process.env, DEBIAN_FRONTEND: 'noninteractive' },
  });
  if (ran.status === 0) return null;
  return (ran.stderr ?? '').trim().split('\n').at(-1) || ran.error?.message || `it ended with ${ran.status ?? ran.signal}`;
}
