/**
 * Loaded before a measured program (`node --import`): answers what the process has used so far, from its own accounting
 * (user and system time of all its threads, in microseconds, wherever Node runs), and takes a CPU profile on demand. The
 * program itself knows nothing of it, but for `process.nextTick`, which is kept quick in all alike. When whoever asked is gone, the program is told to stop: no bench leaves a server behind.
 */
import { writeFileSync } from 'node:fs';
import type { Session } from 'node:inspector/promises';
import { keepTickShape } from '../../base/tick-shape.ts';

/** What can be asked. `profile` names the file that `unprofile` will write. */
export type Ask =
  | { readonly ask: 'usage' }
  | { readonly ask: 'memory' }
  | { readonly ask: 'profile' }
  | { readonly ask: 'unprofile'; readonly file: string };

export interface Usage {
  readonly cpuUs: number;
  readonly rssBytes: number;
}

/** What is in use after everything that can be collected has been. */
export interface Memory {
  /** Heap, and what hangs on it outside: buffers among it. */
  readonly usedBytes: number;
  readonly rssBytes: number;
}

// In every measured process, the floor too: otherwise a collection at an idle moment makes one or the other some microseconds slower for good.
keepTickShape();

let session: Session | null = null;

function usage(): Usage {
  const { user, system } = process.cpuUsage();
  return { cpuUs: user + system, rssBytes: process.memoryUsage.rss() };
}

async function profile(): Promise<void> {
  // Loaded only now: a measured process must not carry what only a profiled one needs.
  const inspector = await import('node:inspector/promises');
  session = new inspector.Session();
  session.connect();
  await session.post('Profiler.enable');
  await session.post('Profiler.setSamplingInterval', { interval: 200 });
  await session.post('Profiler.start');
}

async function unprofile(file: string): Promise<void> {
  if (session === null) return;
  const { profile: taken } = await session.post('Profiler.stop');
  session.disconnect();
  session = null;
  writeFileSync(file, JSON.stringify(taken));
}

/** Collects first, several times: what a finalizer lets go is found by the next. */
async function memory(): Promise<Memory> {
  const { setFlagsFromString } = await import('node:v8');
  const { runInNewContext } = await import('node:vm');
  setFlagsFromString('--expose-gc');
  const collect = runInNewContext('gc') as () => void;
  for (let i = 0; i < 4; i++) {
    collect();
    await new Promise((done) => setImmediate(done));
  }
  const { heapUsed, external, rss } = process.memoryUsage();
  return { usedBytes: heapUsed + external, rssBytes: rss };
}

async function answer(message: Ask): Promise<void> {
  if (message.ask === 'memory') {
    process.send?.(await memory());
    return;
  }
  if (message.ask === 'profile') await profile();
  else if (message.ask === 'unprofile') await unprofile(message.file);
  process.send?.(usage());
}

if (process.channel !== undefined) {
  process.on('message', (message: Ask) => void answer(message));
  process.on('disconnect', () => process.kill(process.pid, 'SIGTERM'));
  // The channel must not keep a program alive that has come to its end.
  process.channel?.unref();
}
