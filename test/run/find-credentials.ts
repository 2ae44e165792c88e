/**
 * Looks through files for credentials: those of the tests, which all contain a mark; tokens that the control plane issued (a
 * signed JWT for an agent or a sidecar; a statement about a home is shown to everybody, and is none); private keys; seeds of
 * NATS keys. They may stand in the files that are their own home, which are listed here and nowhere else.
 */
import { closeSync, fstatSync, openSync, readdirSync, readSync, statSync } from 'node:fs';
import { basename, join } from 'node:path';
import { MARK } from '../support/credential-mark.ts';

export interface Found {
  readonly file: string;
  /** What it is; never the thing itself. */
  readonly what: string;
  readonly at: number;
}

export interface LookedThrough {
  readonly found: readonly Found[];
  readonly files: number;
  readonly bytes: number;
}

/** A file that is larger is looked at up to here. */
const MOST_BYTES = 67_108_864;
const JWT = /eyJ[\w-]{10,}\.(eyJ[\w-]{10,})\.[\w-]{80,}/g;
/** With the key itself, also as it stands in JSON; programs that can read keys have the line above it in their text. */
const PRIVATE_KEY = /-----BEGIN (?:[A-Z]+ )*PRIVATE KEY-----(?:\\[rn]|\s)*[A-Za-z0-9+/]{40}/g;
const SEED = /\bS[UANOCX][A-Z2-7]{56}\b/g;
const MARKED = new RegExp(MARK, 'g');

/** Files that are a secret's own home; by the end of the path where it says a folder, else by the name alone. */
const HOMES: readonly { readonly name: RegExp; readonly isPath?: true; readonly isPrivate: boolean; readonly why: string }[] = [
  { name: /\.ya?ml$/, isPrivate: false, why: 'settings that a test has written, with a token in them' },
  { name: /\.conf$/, isPrivate: false, why: 'the configuration of a nats-server' },
  { name: /(key|token|seed|nkey|creds|secret)[\w.-]*$/, isPrivate: true, why: 'a file that only its owner can read' },
  { name: /\/keys\/[\w.-]+$/, isPath: true, isPrivate: true, why: 'a file that only its owner can read' },
  { name: /\.(pem|nk|creds)$/, isPrivate: true, why: 'a file that only its owner can read' },
  {
    name: /\/secrets\/(nats\/)?[\w-]+\.(pem|nk)$/,
    isPath: true,
    isPrivate: false,
    why: 'prepared for containers, in a folder that only its owner gets into (deploy/compose/prepare.sh)',
  },
  { name: /^[\d-]+\.reachctl.*(add|rotate).*\.stdout$/, isPrivate: false, why: 'a token is shown to whoever orders it, once' },
];

/** A file, or everything under a folder; what vanishes meanwhile is left out. */
export function findCredentials(path: string): LookedThrough {
  const found: Found[] = [];
  let count = 0;
  let bytes = 0;
  const files = statSync(path, { throwIfNoEntry: false })?.isFile() === true ? [path] : filesUnder(path);
  for (const file of files) {
    const read = readWhole(file);
    if (read === null) continue;
    count++;
    bytes += read.text.length;
    if (isHome(file, read.mode)) continue;
    for (const { what, at } of credentialsOf(read.text)) found.push({ file, what, at });
  }
  return { found, files: count, bytes };
}

export function credentialsOf(text: string): { what: string; at: number }[] {
  const found: { what: string; at: number }[] = [];
  for (const match of text.matchAll(MARKED)) found.push({ what: 'a credential of the tests', at: match.index });
  for (const match of text.matchAll(PRIVATE_KEY)) found.push({ what: 'a private key', at: match.index });
  for (const match of text.matchAll(SEED)) found.push({ what: 'the seed of a NATS key', at: match.index });
  for (const match of text.matchAll(JWT)) {
    const audience = audienceOf(match[1] as string);
    if (audience !== 'home') found.push({ what: `a signed token (${audience})`, at: match.index });
  }
  return found;
}

function audienceOf(claims: string): string {
  try {
    const { aud } = JSON.parse(Buffer.from(claims, 'base64url').toString('utf8')) as { aud?: unknown };
    return typeof aud === 'string' ? aud.slice(0, 40) : 'for nobody';
  } catch {
    return 'that cannot be read';
  }
}

function isHome(file: string, mode: number): boolean {
  const name = basename(file);
  const isPrivate = (mode & 0o077) === 0;
  return HOMES.some((home) => home.name.test(home.isPath === true ? file : name) && (isPrivate || !home.isPrivate));
}

function* filesUnder(folder: string): Generator<string> {
  let entries: ReturnType<typeof listed>;
  try {
    entries = listed(folder);
  } catch {
    return;
  }
  for (const entry of entries) {
    const path = join(folder, entry.name);
    if (entry.isDirectory()) yield* filesUnder(path);
    else if (entry.isFile()) yield path;
  }
}

const listed = (folder: string) => readdirSync(folder, { withFileTypes: true });

function readWhole(file: string): { readonly text: string; readonly mode: number } | null {
  let handle: number;
  try {
    handle = openSync(file, 'r');
  } catch {
    return null;
  }
  try {
    const { size, mode } = fstatSync(handle);
    const bytes = Buffer.allocUnsafe(Math.min(size, MOST_BYTES));
    const read = bytes.length === 0 ? 0 : readSync(handle, bytes, 0, bytes.length, 0);
    return { text: bytes.toString('latin1', 0, read), mode };
  } catch {
    return null;
  } finally {
    closeSync(handle);
  }
}
