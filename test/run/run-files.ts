/**
 * Runs test files, some at a time, each as a plain Node process (a tap file is a program that prints TAP), and reads what
 * each said. Not through `tap run`: that takes 0.75 s a file where this takes 0.3, loads its hooks into every process that
 * a test starts, sidecars included, and can lose a file from its report when another runs out of time.
 *
 * A file is the leader of a process group of its own, so that what it leaves running is found and stopped, by that group.
 */
import { type ChildProcess, spawn } from 'node:child_process';
import { mkdirSync, writeFileSync } from 'node:fs';
import { dirname, join, resolve as resolvePath } from 'node:path';
import { pathToFileURL } from 'node:url';
import { REPO } from '../support/paths.ts';
import { livesOn } from './process-group.ts';
import { readReport } from './report.ts';
import type { FileRun } from './tally.ts';
import type { Written } from './written.ts';

export interface RunOptions {
  /** The program of a source file, from the top of the tree or absolute. */
  readonly program: (source: string) => string;
  /** Where what the run writes is kept to be looked through; absent = wherever each file likes. */
  readonly written?: Written;
  /** Files at the same time. */
  readonly jobs: number;
  /** Files that wait for most of their time: one of them at a time runs beside the others, in this order. */
  readonly patient?: readonly string[];
  /** For one file; tap itself ends it with a report a little earlier. */
  readonly limitMs: number;
  /** Told of each file at its end. */
  readonly onEnd: (run: FileRun) => void;
}

/** Within its limit tap gets this long to end a file by itself and say which test hung. */
const REPORT_MS = 10_000;
/** What a file has told to stop before its end may take this long to be gone. */
const GRACE_MS = 500;
/** Enough to see what happened; a file that logs without end must not fill the memory. */
const MAX_STDERR_CHARS = 65_536;

/** Loaded before each file, where what it writes is kept. */
const KEEP = 'test/run/keep-written.ts';

const groups = new Set<number>();

/** `sources` as `testFiles` gives them. The raw TAP of each stays in `build/tap/`. */
export async function runFiles(sources: readonly string[], options: RunOptions): Promise<FileRun[]> {
  const runs: FileRun[] = [];
  const { patient = [] } = options;
  const waiting = patient.filter((source) => sources.includes(source));
  const queue = sources.filter((source) => !waiting.includes(source));
  const onSignal = (signal: NodeJS.Signals): void => {
    for (const group of groups) stopGroup(group);
    process.exit(signal === 'SIGINT' ? 130 : 143);
  };
  process.once('SIGINT', onSignal).once('SIGTERM', onSignal);
  const worker = async (next: () => string | undefined): Promise<void> => {
    for (let source = next(); source !== undefined; source = next()) {
      const run = await runFile(source, options);
      runs.push(run);
      options.onEnd(run);
    }
  };
  // Whoever has nothing else to do any more helps with the patient ones.
  const busy = Array.from({ length: options.jobs }, () => worker(() => queue.shift() ?? waiting.shift()));
  await Promise.all([...busy, worker(() => waiting.shift())]);
  process.off('SIGINT', onSignal).off('SIGTERM', onSignal);
  return runs;
}

async function runFile(source: string, { program, limitMs, written }: RunOptions): Promise<FileRun> {
  const startedAt = performance.now();
  const keeping = written === undefined ? [] : ['--import', pathToFileURL(resolvePath(REPO, program(KEEP))).href];
  const child = spawn(process.execPath, [...keeping, '--enable-source-maps', resolvePath(REPO, program(source))], {
    cwd: REPO,
    env: { ...process.env, ...written?.env, TAP_TIMEOUT: String(Math.max(limitMs / 2, limitMs - REPORT_MS) / 1_000) },
    stdio: ['ignore', 'pipe', 'pipe'],
    detached: true,
  });
  const group = child.pid;
  if (group !== undefined) groups.add(group);
  const tap: Buffer[] = [];
  let stderr = '';
  child.stdout.on('data', (chunk: Buffer) => tap.push(chunk));
  child.stderr.setEncoding('utf8').on('data', (text: string) => {
    stderr = (stderr + text).slice(-MAX_STDERR_CHARS);
  });
  let timedOut = false;
  const limit = setTimeout(() => {
    timedOut = true;
    if (group !== undefined) stopGroup(group);
  }, limitMs);
  const { exitCode, signal, leftProcesses } = await ending(child, group);
  clearTimeout(limit);
  if (group !== undefined) groups.delete(group);
  const text = Buffer.concat(tap).toString('utf8');
  keep(source, text);
  written?.look(source, [text, stderr]);
  return {
    file: source,
    report: readReport(text),
    exitCode,
    signal,
    timedOut,
    leftProcesses,
    tookMs: performance.now() - startedAt,
    stderr,
  };
}

interface Ending {
  readonly exitCode: number | null;
  readonly signal: string | null;
  readonly leftProcesses: boolean;
}

function ending(child: ChildProcess, group: number | undefined): Promise<Ending> {
  return new Promise((resolve, reject) => {
    let leftProcesses = Promise.resolve(false);
    child.once('error', reject);
    // Its pipes stay open as long as a process it left behind holds them: stop those first, then wait for the pipes.
    child.once('exit', () => {
      if (group !== undefined) leftProcesses = stopLeftovers(group);
    });
    child.once('close', (exitCode, signal) => {
      leftProcesses.then((left) => resolve({ exitCode, signal, leftProcesses: left }), reject);
    });
  });
}

/** True when some had to be stopped. */
async function stopLeftovers(group: number): Promise<boolean> {
  for (const end = performance.now() + GRACE_MS; livesOn(group); await new Promise((done) => setTimeout(done, 20))) {
    if (performance.now() < end) continue;
    stopGroup(group);
    return true;
  }
  return false;
}

function stopGroup(group: number): void {
  try {
    process.kill(-group, 'SIGKILL');
  } catch {
    // all of it has ended
  }
}

function keep(source: string, tap: string): void {
  const path = join(REPO, 'build', 'tap', source.replace(/\.ts$/, '.tap'));
  mkdirSync(dirname(path), { recursive: true });
  writeFileSync(path, tap);
}
