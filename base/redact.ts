/**
 * What of other people's data may be written down. By allow lists alone: a list of names to hide always misses the next
 * vendor's, so what is not named is not kept, at any depth. Values are dropped, names stay, so that it is seen what was there.
 *
 * Two users: the log, which keeps nothing but the headers in `LOGGABLE_HEADERS` and words that no payload is quoted in; and
 * recordings, whose rules an operator writes and without which none is begun (`sidecar/record/`).
 */

import { quote } from './duration.ts';
import { ExactNumber, parseExact } from './json-exact.ts';

/** What a recording may keep. Empty lists keep nothing, which is a choice that has to be made. */
export interface RedactionRules {
  /** Names of headers, gRPC metadata and trailers whose values are kept; lower case. */
  readonly headers: ReadonlySet<string>;
  /** Names of query parameters whose values are kept. */
  readonly query: ReadonlySet<string>;
  /** Places in JSON whose values are kept, such as `/order/status`; the part `*` is any one name or index. What stands below a place is not kept by it. */
  readonly json: readonly (readonly string[])[];
  /** Content types whose bodies are kept as they are, byte by byte; lower case. */
  readonly bodies: ReadonlySet<string>;
  /** Paths of HTTP requests by their segments; `*` = a segment that is not kept. Of a path that fits none, nothing is kept but its length. */
  readonly paths: readonly (readonly string[])[];
}

/** Stands where a value was. */
export const NOT_SHOWN = '[not shown]';

const MAX_ENTRIES = 1_000;
const MAX_POINTER_PARTS = 64;
/** Deeper parts are dropped whole. */
const MAX_LEVELS = 64;
/** Names and items of one map or list that are shown. */
const MAX_SHOWN = 200;
const MAX_NAME_CHARS = 128;
/** Such names say by themselves that a value is a secret: nobody lists them for good reason. */
const NEVER: ReadonlySet<string> = new Set([
  'authorization',
  'proxy-authorization',
  'cookie',
  'set-cookie',
  'reach-home',
  'reach-authorization',
  'reach-cookie',
  'reach-api-token',
]);

/** `type/subtype`, whole: a pattern would keep what nobody has thought of. */
const CONTENT_TYPE = /^[a-z0-9][a-z0-9!#$&^_.+-]{0,126}\/[a-z0-9][a-z0-9!#$&^_.+-]{0,126}$/;

/** Rules as they are written: headers, query and json must be there, bodies may be. Words when they are none. */
export function redactionRules(written: unknown): RedactionRules | string {
  if (typeof written !== 'object' || written === null || Array.isArray(written))
    return 'recording needs redaction rules: {headers: [...], query: [...], json: [...]}, each a list of what may be kept, perhaps empty';
  const given = written as Readonly<Record<string, unknown>>;
  for (const key of Object.keys(given))
    if (!RULE_KEYS.has(key)) return `redaction rules have headers, query, json, bodies and paths, not ${shown(key)}`;
  const lists: Record<'headers' | 'query' | 'json', readonly string[]> = { headers: [], query: [], json: [] };
  for (const key of ['headers', 'query', 'json'] as const) {
    const list = given[key];
    if (!Array.isArray(list) || list.length > MAX_ENTRIES || !list.every((each) => typeof each === 'string' && each !== ''))
      return `redaction rules need ${key}: a list of at most ${MAX_ENTRIES} texts; an empty one keeps nothing`;
    lists[key] = list as readonly string[];
  }
  const headers = lists.headers.map((name) => name.toLowerCase());
  for (const name of headers) {
    if (name.includes('*')) return `${shown(name)}: a header is named whole, since a pattern would keep what nobody has thought of`;
    if (NEVER.has(name)) return `the header ${name} holds credentials: it is never kept`;
  }
  const json: string[][] = [];
  for (const pointer of lists.json) {
    const parts = pointer.split('/');
    if (parts[0] !== '' || parts.length < 2 || parts.length > MAX_POINTER_PARTS)
      return `${shown(pointer)} is not a place in JSON: write one such as /order/status, with * for any name or index`;
    json.push(parts.slice(1).map((part) => part.replaceAll('~1', '/').replaceAll('~0', '~')));
  }
  const bodies = given['bodies'] ?? [];
  if (!Array.isArray(bodies) || bodies.length > MAX_ENTRIES)
    return `redaction rules: bodies is a list of at most ${MAX_ENTRIES} content types`;
  const types: string[] = [];
  for (const type of bodies as readonly unknown[]) {
    if (typeof type !== 'string' || !CONTENT_TYPE.test(type.toLowerCase()))
      return `redaction rules: bodies names content types such as image/png, not ${shown(String(type))}`;
    types.push(type.toLowerCase());
  }
  const paths = readPaths(given['paths'] ?? []);
  if (typeof paths === 'string') return paths;
  return { headers: new Set(headers), query: new Set(lists.query), json, bodies: new Set(types), paths };
}

const RULE_KEYS: ReadonlySet<string> = new Set(['headers', 'query', 'json', 'bodies', 'paths']);

function readPaths(given: unknown): readonly (readonly string[])[] | string {
  if (!Array.isArray(given) || given.length > MAX_ENTRIES) return `redaction rules: paths is a list of at most ${MAX_ENTRIES} paths`;
  const paths: string[][] = [];
  for (const path of given as readonly unknown[]) {
    if (typeof path !== 'string' || !path.startsWith('/') || /[?#]/.test(path))
      return `redaction rules: paths are written such as /orders/*/items, where * stands for a segment that is not kept, not ${shown(String(path))}`;
    paths.push(path.split('/'));
  }
  return paths;
}

/** The path of a request: segments that a rule names, and the sign for the others. @param path from its first `/` on, without query */
export function redactedPath(path: string, kept: RedactionRules['paths']): string {
  const parts = path.split('/', MAX_SHOWN);
  const rule = kept.find((each) => each.length === parts.length && each.every((part, i) => part === '*' || part === parts[i]));
  // An empty segment holds nothing, and the first always is.
  return parts.map((part, i) => (part === '' || (rule !== undefined && rule[i] !== '*') ? part : NOT_SHOWN)).join('/');
}

/** Headers, metadata or trailers: every name, and the values that may be kept. */
export function redactedHeaders(
  headers: Readonly<Record<string, string | readonly string[] | undefined>>,
  kept: ReadonlySet<string>,
): Record<string, string> {
  const shownHeaders = Object.create(null) as Record<string, string>;
  let count = 0;
  for (const [name, value] of Object.entries(headers)) {
    if (value === undefined) continue;
    if (++count > MAX_SHOWN) break;
    const lower = name.toLowerCase();
    shownHeaders[lower.slice(0, MAX_NAME_CHARS)] = kept.has(lower) && !NEVER.has(lower) ? String(value) : NOT_SHOWN;
  }
  return shownHeaders;
}

/** An address without user and fragment, and with those values of its query that may be kept. */
export function redactedUrl(text: string, kept: ReadonlySet<string> = NOTHING): string {
  const hash = text.indexOf('#');
  const whole = hash < 0 ? text : text.slice(0, hash);
  const question = whole.indexOf('?');
  const before = withoutUser(question < 0 ? whole : whole.slice(0, question));
  if (question < 0) return before;
  const parts: string[] = [];
  for (const pair of whole.slice(question + 1).split('&', MAX_SHOWN)) {
    const equals = pair.indexOf('=');
    const name = equals < 0 ? pair : pair.slice(0, equals);
    // Without a name, the whole may be a secret.
    if (equals < 0) parts.push(kept.has(decoded(name)) ? name : NOT_SHOWN);
    else parts.push(kept.has(decoded(name)) ? pair : `${name.slice(0, MAX_NAME_CHARS)}=${NOT_SHOWN}`);
  }
  return `${before}?${parts.join('&')}`;
}

const NOTHING: ReadonlySet<string> = new Set();

function withoutUser(text: string): string {
  const scheme = text.indexOf('//');
  if (scheme < 0) return text;
  const slash = text.indexOf('/', scheme + 2);
  const end = slash < 0 ? text.length : slash;
  const at = text.lastIndexOf('@', end);
  return at < scheme ? text : text.slice(0, scheme + 2) + text.slice(at + 1);
}

function decoded(name: string): string {
  try {
    return decodeURIComponent(name.replaceAll('+', ' '));
  } catch {
    return name;
  }
}

/** JSON with its names and its form; of the values those that may be kept. Numbers and truth values are values too. */
export function redactedJson(value: unknown, kept: RedactionRules['json']): unknown {
  return redactedPart(value, kept, 0);
}

/** @param open those places that lead here or further; the part of each at `level` is looked at next. */
function redactedPart(value: unknown, open: RedactionRules['json'], level: number): unknown {
  if (typeof value !== 'object' || value === null || value instanceof ExactNumber)
    return open.some((place) => place.length === level) ? value : NOT_SHOWN;
  if (level >= MAX_LEVELS) return NOT_SHOWN;
  if (Array.isArray(value))
    return value.slice(0, MAX_SHOWN).map((item: unknown, i) => redactedPart(item, leading(open, level, String(i)), level + 1));
  const shownPart = Object.create(null) as Record<string, unknown>;
  for (const [name, part] of Object.entries(value).slice(0, MAX_SHOWN))
    shownPart[name.slice(0, MAX_NAME_CHARS)] = redactedPart(part, leading(open, level, name), level + 1);
  return shownPart;
}

function leading(open: RedactionRules['json'], level: number, name: string): RedactionRules['json'] {
  return open.length === 0 ? open : open.filter((place) => place[level] === name || place[level] === '*');
}

/** A body: JSON by its rules (a number that a double would change is an `ExactNumber` in it), and of everything else (text, bytes, base64 or not) nothing but its size. */
export function redactedBody(body: Uint8Array, contentType: string, rules: RedactionRules): unknown {
  const type = (contentType.split(';', 1)[0] as string).trim().toLowerCase();
  if (type === 'application/json' || type.endsWith('+json')) {
    try {
      const value = parseExact(Buffer.from(body.buffer, body.byteOffset, body.byteLength));
      return { json: redactedJson(value, rules.json), bytes: body.byteLength };
    } catch {
      // not what it says: its size, as of anything
    }
  }
  return { bytes: body.byteLength };
}

/** Words of somebody else within words of ours: between double quotes, and with none inside, so that `scrubbed` finds their end. */
export function cited(text: string, maxLength: number): string {
  return quote(text.replaceAll('"', "'"), maxLength);
}

/** Text that may have been written by anybody: what is quoted in it, looks like a credential, or is the query of an address, goes. */
export function scrubbed(text: string): string {
  return text
    .replace(/\b(Bearer|Basic|Digest|Negotiate)\s+\S+/gi, `$1 ${NOT_SHOWN}`)
    .replace(/\beyJ[\w-]+\.[\w.-]*/g, NOT_SHOWN)
    .replace(/\b[a-z][a-z0-9+.-]{0,20}:\/\/[^\s"'`<>]*/gi, (url) => redactedUrl(url))
    .replace(/"(?:[^"\\]|\\.)*("|$)/g, `"${NOT_SHOWN}"`)
    .replace(/'([^']*)('|$)/g, (quoted, inside: string) => (NAME.test(inside) ? quoted : `'${NOT_SHOWN}'`));
}

/** What an error of the platform quotes when it speaks of our own program: `Cannot read properties of null (reading 'agent')`. */
const NAME = /^[A-Za-z_$][\w$.]{0,40}$/;

function shown(text: string): string {
  return JSON.stringify(text.slice(0, 80));
}
