/**
 * A nats-server whose users are those that `reachctl nats` makes: the same commands, the same file. What a sidecar is allowed
 * stands in proto/wire/permissions.ts and nowhere else.
 */
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { basename, join } from 'node:path';
import { realClock } from '../../base/clock.ts';
import { runReachctl } from '../../control-plane/cli/program.ts';
import { NatsServer } from './nats.ts';

interface Teardown {
  teardown(end: () => void | Promise<void>): unknown;
}

export interface Users {
  readonly nats: NatsServer;
  /** Where the seeds and the list are. */
  readonly folder: string;
  /** Path of a seed. */
  seedFile(user: string): string;
  seed(user: string): string;
  /** One of the commands under `reachctl nats`; gives what it says. Throws when it fails. */
  command(...words: readonly string[]): Promise<string>;
}

export interface Wanted {
  readonly env: string;
  readonly sidecars: readonly string[];
  readonly operators?: readonly string[];
  /** More words for `sidecar add`, for one of them. */
  readonly scopes?: Readonly<Record<string, readonly string[]>>;
  /** Lines for the server's configuration beside the users. */
  readonly config?: string;
}

export const CONTROL = 'control-plane';

/** The server runs with what the commands have written; `command` afterwards writes anew, and a restart or reload takes it up. */
export async function startWithUsers(t: Teardown, wanted: Wanted): Promise<Users> {
  const folder = mkdtempSync(join(tmpdir(), 'reach-nats-users-'));
  t.teardown(() => rmSync(folder, { recursive: true, force: true }));
  const command = async (...words: readonly string[]): Promise<string> => {
    const said: string[] = [];
    const io = {
      out: (text: string) => void said.push(text),
      err: (text: string) => void said.push(text),
      env: {},
      clock: realClock,
      stdin: () => Promise.resolve(''),
    };
    const exit = await runReachctl(['nats', ...words, '--folder', folder], io, 'test');
    if (exit !== 0) throw new Error(`reachctl nats ${words.join(' ')}: ${said.join('\n')}`);
    return said.join('\n');
  };
  const operators = wanted.operators ?? [];
  await command('init', '--env', wanted.env, ...(operators.length === 0 ? [] : ['--operator', ...operators]));
  for (const name of wanted.sidecars) await command('sidecar', 'add', name, ...(wanted.scopes?.[name] ?? []));
  // Always relative to the file that includes, which lies in a folder beside this one.
  const nats = await NatsServer.start(t, `include "../${basename(folder)}/nats-users.conf"\n${wanted.config ?? ''}`);
  const seedFile = (user: string): string => join(folder, `${user}.nk`);
  return { nats, folder, seedFile, seed: (user) => readFileSync(seedFile(user), 'utf8').trim(), command };
}
