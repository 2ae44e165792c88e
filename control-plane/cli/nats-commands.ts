/**
 * `nats`: users of the NATS server, each with a key of its own and no more permissions than it needs, kept in one folder: the
 * list of users, a seed for each (for its owner alone, shown to nobody), and the part of the server's configuration that
 * follows. Nobody is asked and no server is needed; what is there already is kept, so that a command can be given again.
 */
import { chmodSync, existsSync, mkdirSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import type { Command } from 'commander';
import { newUserKey, publicKeyOf } from '../../base/nkey.ts';
import { EVERYTHING, type Kind, type Scope } from '../../proto/wire/permissions.ts';
import { FORMS, serverConfig } from '../permissions/server-config.ts';
import {
  CONTROL_USER,
  emptyUsers,
  envProblem,
  MONITOR_USER,
  type NatsUser,
  type NatsUsers,
  nameProblem,
  readsProblem,
  readUsers,
  userOf,
  withoutUser,
  withUser,
  writeUsers,
} from '../permissions/users.ts';
import { Exit, Failed } from './client.ts';
import type { Context } from './context.ts';
import type { Act, Options } from './program.ts';
import { table } from './table.ts';

const ONLY_OWNER = 0o600;
const READABLE = 0o644;
const USERS_FILE = 'nats-users.json';
const CONFIG_FILE = 'nats-users.conf';
const FOLDER = 'nats';
const RELOAD =
  'into force: nats-server --signal reload (or --signal reload=<pid>); who is connected with a key that is gone is cut off then';

export function natsCommands(program: Command, act: Act): void {
  const nats = program
    .command('nats')
    .description('users of NATS, each with its own key and permissions; nobody is asked')
    .helpCommand(false);
  const command = (parent: Command, name: string, description: string): Command =>
    parent.command(name).description(description).option('--folder <folder>', 'where users, seeds and the configuration are kept', FOLDER);
  command(nats, 'init', 'make the folder, with users for the control plane and for a monitor')
    .option('--env <name>', 'the environment, as in the settings', 'default')
    .option('--operator <name...>', 'people who may set overrides by NATS alone (reachctl stop-bleeding --nats)')
    .action(act((context, _args, options) => init(context, options)));
  const sidecar = nats.command('sidecar').description('users for sidecars').helpCommand(false);
  command(sidecar, 'add <names...>', 'a user for each sidecar; of one that is there the key stays')
    .option('--reads <pattern...>', 'capabilities whose configuration it may read, such as crm.* (else all)')
    .option('--work', 'its agents may take tasks out of the queue (they may, when nothing is said)')
    .option('--no-work', 'its agents only call and send: nothing is taken out of the queue')
    .action(act((context, names, options) => addSidecars(context, names, options)));
  command(nats, 'rotate <name>', 'a new key for a user; the one before counts too, until `settle`')
    .option('--at-once', 'the one before counts no more as soon as the server has reloaded')
    .action(act((context, [name], options) => rotate(context, name as string, options)));
  command(nats, 'settle <name>', 'end a change of keys: only the newest one counts').action(
    act((context, [name], options) => settle(context, name as string, options)),
  );
  command(nats, 'remove <names...>', 'take a user and its seed away').action(
    act((context, names, options) => remove(context, names, options)),
  );
  command(nats, 'list', 'the users, what each is for, and the public halves of their keys').action(
    act((context, _args, options) => {
      const { book } = open(options);
      context.show<NatsUsers>(book, listWords);
    }),
  );
  command(nats, 'permissions', 'write the part of the server’s configuration anew')
    .option('--out <file>', `where to (else ${CONFIG_FILE} in the folder; - shows it)`)
    .option('--form <form>', `${FORMS.join(' or ')}: a whole block, or the list of users for an account of your own`, 'authorization')
    .action(act((context, _args, options) => permissions(context, options)));
}

interface Opened {
  readonly folder: string;
  readonly book: NatsUsers;
}

function init(context: Context, options: Options): void {
  const folder = String(options['folder']);
  const env = String(options['env']);
  const problem = envProblem(env);
  if (problem !== null) throw new Failed(Exit.usage, [`--env: ${problem}`]);
  const operators = (options['operator'] ?? []) as readonly string[];
  refuseBadNames(operators);
  let book = existsSync(join(folder, USERS_FILE)) ? open(options).book : emptyUsers(env);
  if (book.env !== env)
    throw new Failed(Exit.usage, [`${folder} is for the environment ${book.env}: take another folder for ${env} (--folder)`]);
  makeFolder(folder);
  const wanted: readonly (readonly [string, Kind])[] = [
    [CONTROL_USER, 'control'],
    [MONITOR_USER, 'monitor'],
    ...operators.map((name) => [name, 'operator'] as const),
  ];
  for (const [name, kind] of wanted) book = ensure(folder, book, name, kind, null);
  save(folder, book);
  context.show({ folder, env, users: book.users.map(({ name }) => name) }, () =>
    [
      `${join(folder, CONFIG_FILE)}  for nats-server: include it`,
      ...book.users.map((user) => `${seedFile(folder, user.name)}  ${purpose(user)}`),
      RELOAD,
    ].join('\n'),
  );
}

function addSidecars(context: Context, names: readonly string[], options: Options): void {
  refuseBadNames(names);
  const { folder, book: before } = open(options);
  const reads = options['reads'] as readonly string[] | undefined;
  const problem = reads === undefined ? null : readsProblem(reads);
  if (problem !== null) throw new Failed(Exit.usage, [`--reads: ${problem}`]);
  let book = before;
  for (const name of names) {
    const known = userOf(book, name)?.scope ?? EVERYTHING;
    // Not said = as it was.
    const scope: Scope = { reads: reads ?? known.reads, works: (options['work'] as boolean | undefined) ?? known.works };
    book = ensure(folder, book, name, 'sidecar', scope);
  }
  save(folder, book);
  context.show({ folder, users: names.map((name) => userOf(book, name)) }, () =>
    [...names.map((name) => `${seedFile(folder, name)}  ${purpose(userOf(book, name) as NatsUser)}`), RELOAD].join('\n'),
  );
}

function rotate(context: Context, name: string, options: Options): void {
  const { folder, book } = open(options);
  const user = known(book, name);
  const atOnce = options['atOnce'] === true;
  if (!atOnce && user.keys.length > 1)
    throw new Failed(Exit.refused, [
      `a change of keys of ${name} is under way: end it first (reachctl nats settle ${name}), or say --at-once`,
    ]);
  const { seed, publicKey } = newUserKey();
  const after = withUser(book, { ...user, keys: atOnce ? [publicKey] : [publicKey, ...user.keys] });
  // First the server's side: a seed that no server knows is of no use to anybody.
  save(folder, after);
  write(seedFile(folder, name), `${seed}\n`, ONLY_OWNER);
  context.show({ name, file: seedFile(folder, name), public_key: publicKey, before: atOnce ? null : user.keys[0] }, () =>
    [
      `${name} has a new key in ${seedFile(folder, name)}${atOnce ? '' : '; the one before counts until: reachctl nats settle ' + name}`,
      `order: reload the server, put the file where the settings of ${name} name it; it is read at each connect, so nothing is restarted${atOnce ? '' : '; then settle, and reload again'}`,
      RELOAD,
    ].join('\n'),
  );
}

function settle(context: Context, name: string, options: Options): void {
  const { folder, book } = open(options);
  const user = known(book, name);
  save(folder, withUser(book, { ...user, keys: user.keys.slice(0, 1) }));
  context.show({ name, public_key: user.keys[0] }, () => [`only the newest key of ${name} counts`, RELOAD].join('\n'));
}

function remove(context: Context, names: readonly string[], options: Options): void {
  const { folder, book: before } = open(options);
  for (const name of names) known(before, name);
  const book = names.reduce(withoutUser, before);
  save(folder, book);
  for (const name of names) rmSync(seedFile(folder, name), { force: true });
  context.show({ removed: names }, () => [`gone: ${names.join(', ')}`, RELOAD].join('\n'));
}

function permissions(context: Context, options: Options): void {
  const { folder, book } = open(options);
  const form = FORMS.find((each) => each === options['form']);
  if (form === undefined) throw new Failed(Exit.usage, [`--form must be ${FORMS.join(' or ')}`]);
  const text = serverConfig(book, form);
  const { out: said } = options;
  const out = typeof said === 'string' ? said : join(folder, CONFIG_FILE);
  if (out === '-') return context.io.out(text.trimEnd());
  write(out, text, READABLE);
  context.show({ file: out, users: book.users.length }, () => [`${out}  ${book.users.length} users`, RELOAD].join('\n'));
}

/** A user of that name, with the key that it has or a new one. @param scope null = everything */
function ensure(folder: string, book: NatsUsers, name: string, kind: Kind, scope: Scope | null): NatsUsers {
  const user = userOf(book, name);
  if (user === null) {
    const file = seedFile(folder, name);
    const found = existsSync(file) ? publicKeyOf(read(file)) : null;
    if (existsSync(file) && found === null) throw new Failed(Exit.refused, [`${file} is there already and is no seed of a user’s key`]);
    let key = found;
    if (key === null) {
      const made = newUserKey();
      write(file, `${made.seed}\n`, ONLY_OWNER);
      key = made.publicKey;
    }
    return withUser(book, { name, kind, keys: [key], scope: scope ?? EVERYTHING });
  }
  if (user.kind !== kind) throw new Failed(Exit.refused, [`${name} is there already, as ${user.kind}: take another name`]);
  return scope === null ? book : withUser(book, { ...user, scope });
}

function open(options: Options): Opened {
  const folder = String(options['folder']);
  const file = join(folder, USERS_FILE);
  if (!existsSync(file)) throw new Failed(Exit.usage, [`${file} is not there; begin with: reachctl nats init --folder ${folder}`]);
  const book = readUsers(read(file));
  if (typeof book === 'string') throw new Failed(Exit.refused, [`${file}: ${book}`]);
  return { folder, book };
}

/** The list, and the configuration that follows from it. */
function save(folder: string, book: NatsUsers): void {
  write(join(folder, USERS_FILE), writeUsers(book), READABLE);
  write(join(folder, CONFIG_FILE), serverConfig(book, 'authorization'), READABLE);
}

function makeFolder(folder: string): void {
  try {
    mkdirSync(folder, { recursive: true, mode: 0o755 });
  } catch (error) {
    throw new Failed(Exit.usage, [`${folder}: cannot be made (${(error as NodeJS.ErrnoException).code ?? 'error'})`]);
  }
}

/** Whole or not at all: a server that reloads now must not read half a list. */
function write(file: string, text: string, mode: number): void {
  const next = `${file}.new`;
  try {
    rmSync(next, { force: true });
    writeFileSync(next, text, { mode, flag: 'wx' });
    chmodSync(next, mode);
    renameSync(next, file);
  } catch (error) {
    throw new Failed(Exit.refused, [`${file}: cannot be written (${(error as NodeJS.ErrnoException).code ?? 'error'})`]);
  }
}

function read(file: string): string {
  try {
    return readFileSync(file, 'utf8');
  } catch (error) {
    throw new Failed(Exit.refused, [`${file}: cannot be read (${(error as NodeJS.ErrnoException).code ?? 'error'})`]);
  }
}

function seedFile(folder: string, name: string): string {
  return join(folder, `${name}.nk`);
}

function known(book: NatsUsers, name: string): NatsUser {
  const user = userOf(book, name);
  if (user === null) throw new Failed(Exit.usage, [`there is no user ${JSON.stringify(name.slice(0, 80))}: see reachctl nats list`]);
  return user;
}

function refuseBadNames(names: readonly string[]): void {
  for (const name of names) {
    const problem = nameProblem(name);
    if (problem !== null) throw new Failed(Exit.usage, [problem]);
  }
}

function purpose({ name, kind, scope }: NatsUser): string {
  switch (kind) {
    case 'control':
      return 'control_plane.nats.credential.nkey, on every replica';
    case 'operator':
      return `of ${name}, for reachctl stop-bleeding --nats`;
    case 'monitor':
      return 'for whoever watches, and changes nothing';
    case 'sidecar':
      return `sidecar.registry.credential.nkey of ${name}${scopeWords(scope)}`;
  }
}

function scopeWords({ reads, works }: Scope): string {
  const limits = [...(reads.includes('*') ? [] : [`reads ${reads.join(' ')}`]), ...(works ? [] : ['takes no tasks'])];
  return limits.length === 0 ? '' : ` (${limits.join('; ')})`;
}

function listWords({ users }: NatsUsers): string {
  return table(
    ['NAME', 'KIND', 'READS', 'WORKS', 'KEY', 'KEY BEFORE'],
    users.map(({ name, kind, scope, keys }) => [
      name,
      kind,
      kind === 'sidecar' ? scope.reads.join(' ') : '',
      kind === 'sidecar' ? (scope.works ? 'yes' : 'no') : '',
      keys[0] ?? '',
      keys[1] ?? '',
    ]),
  );
}
