/**
 * The users of a NATS server, as `reachctl nats` keeps them: their names, what they are for, and the public halves of their
 * keys. The seeds lie beside it in files of their own and are never read here. What is written is checked like anything that
 * a person may have edited.
 */
import { isUserKey } from '../../base/nkey.ts';
import { capabilityPatternProblem } from '../../proto/language/policy.ts';
import type { Kind, Scope } from '../../proto/wire/permissions.ts';
import { EVERYTHING } from '../../proto/wire/permissions.ts';

export interface NatsUser {
  readonly name: string;
  readonly kind: Kind;
  /** Newest first; a second one counts while a change of keys is under way. */
  readonly keys: readonly string[];
  /** Of sidecars. */
  readonly scope: Scope;
}

export interface NatsUsers {
  readonly version: 1;
  readonly env: string;
  /** By kind, then by name. */
  readonly users: readonly NatsUser[];
}

/** The replicas of the control plane share one user; no sidecar can have this name on NATS, which is `_control` there. */
export const CONTROL_USER = 'control-plane';
export const MONITOR_USER = 'monitor';
const KINDS: readonly Kind[] = ['control', 'operator', 'monitor', 'sidecar'];
const NAME = /^[a-z0-9][a-z0-9_-]{0,62}$/;
const ENV = /^[a-zA-Z0-9_-]{1,64}$/;
const MAX_PATTERNS = 1_000;

export function nameProblem(name: string): string | null {
  return NAME.test(name)
    ? null
    : `${JSON.stringify(name.slice(0, 80))} is not a name: 1 to 63 of a-z, 0-9, _ and -, beginning with a letter or digit`;
}

export function envProblem(env: string): string | null {
  return ENV.test(env) ? null : `${JSON.stringify(env.slice(0, 80))} is not an environment: 1 to 64 of a-z, A-Z, 0-9, _ and -`;
}

export function readsProblem(reads: readonly string[]): string | null {
  if (reads.length > MAX_PATTERNS) return `${reads.length} patterns: at most ${MAX_PATTERNS} are taken`;
  for (const pattern of reads) {
    const problem = capabilityPatternProblem(pattern);
    if (problem !== null) return problem;
  }
  return null;
}

export function emptyUsers(env: string): NatsUsers {
  return { version: 1, env, users: [] };
}

export function userOf(book: NatsUsers, name: string): NatsUser | null {
  return book.users.find((user) => user.name === name) ?? null;
}

/** In the place of the one of the same name, if there is one. */
export function withUser(book: NatsUsers, user: NatsUser): NatsUsers {
  const users = [...book.users.filter(({ name }) => name !== user.name), user];
  const rank = (one: NatsUser): string => `${KINDS.indexOf(one.kind)} ${one.name}`;
  return { ...book, users: users.sort((a, b) => (rank(a) < rank(b) ? -1 : 1)) };
}

export function withoutUser(book: NatsUsers, name: string): NatsUsers {
  return { ...book, users: book.users.filter((user) => user.name !== name) };
}

export function writeUsers(book: NatsUsers): string {
  const users = book.users.map(({ name, kind, keys, scope }) => ({ name, kind, keys, ...(kind === 'sidecar' ? scope : null) }));
  return `${JSON.stringify({ ...book, users }, null, 2)}\n`;
}

/** A sentence when it is not such a list. */
export function readUsers(text: string): NatsUsers | string {
  let json: unknown;
  try {
    json = JSON.parse(text);
  } catch {
    return 'it is not JSON';
  }
  if (!isMap(json) || json['version'] !== 1 || !Array.isArray(json['users'])) return 'it is not a list of users of version 1';
  const { env } = json;
  if (typeof env !== 'string' || envProblem(env) !== null) return 'it names no environment';
  let book = emptyUsers(env);
  for (const [i, each] of (json['users'] as readonly unknown[]).entries()) {
    const user = readUser(each);
    if (typeof user === 'string') return `users/${i}: ${user}`;
    if (userOf(book, user.name) !== null) return `users/${i}: ${user.name} stands there twice`;
    book = withUser(book, user);
  }
  return book;
}

function readUser(each: unknown): NatsUser | string {
  if (!isMap(each)) return 'it is not a map';
  const { name, keys, reads = EVERYTHING.reads, works = EVERYTHING.works } = each;
  const kind = KINDS.find((known) => known === each['kind']);
  if (typeof name !== 'string' || nameProblem(name) !== null) return 'it has no name';
  if (kind === undefined) return `its kind is none of ${KINDS.join(', ')}`;
  if (!Array.isArray(keys) || keys.length === 0 || keys.length > 2 || !keys.every((key) => typeof key === 'string' && isUserKey(key)))
    return 'its keys must be one or two public keys of users (U…)';
  if (!Array.isArray(reads) || !reads.every((pattern) => typeof pattern === 'string')) return 'reads must be a list of patterns';
  const problem = readsProblem(reads);
  if (problem !== null) return problem;
  if (typeof works !== 'boolean') return 'works must be true or false';
  return { name, kind, keys, scope: { reads, works } };
}

function isMap(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}
