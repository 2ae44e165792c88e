/** The real grpcurl, where it is or can be had. */
import { spawnSync } from 'node:child_process';
import { accessSync, constants, mkdirSync } from 'node:fs';
import { delimiter, join } from 'node:path';
import { repoFile } from './paths.ts';

/** What `go install` takes. */
export const GRPCURL_MODULE = 'github.com/fullstorydev/grpcurl/cmd/grpcurl@v1.9.4';

const OWN = repoFile('build', 'peers', 'bin');
/** Where Go's own installer puts it, which is not on every PATH. */
const GO = '/usr/local/go/bin/go';
const INSTALL_MS = 300_000;

/** The program's path: on the PATH, else the one of our own; null = there is none. */
export function grpcurl(): string | null {
  return onPath('grpcurl') ?? runnable(join(OWN, 'grpcurl'));
}

/** Go itself; null = there is none. */
export function goProgram(): string | null {
  return onPath('go') ?? runnable(GO);
}

/** Builds it into `build/peers/bin` with Go; null when there is no Go, or the build failed (which is told on stderr). */
export function installGrpcurl(): string | null {
  const go = goProgram();
  if (go === null) return null;
  mkdirSync(OWN, { recursive: true });
  const done = spawnSync(go, ['install', GRPCURL_MODULE], {
    env: { ...process.env, GOBIN: OWN },
    stdio: ['ignore', 'ignore', 'inherit'],
    timeout: INSTALL_MS,
  });
  return done.status === 0 ? runnable(join(OWN, 'grpcurl')) : null;
}

function onPath(name: string): string | null {
  for (const folder of (process.env['PATH'] ?? '').split(delimiter)) {
    const found = folder === '' ? null : runnable(join(folder, name));
    if (found !== null) return found;
  }
  return null;
}

function runnable(path: string): string | null {
  try {
    accessSync(path, constants.X_OK);
    return path;
  } catch {
    return null;
  }
}
