/**
 * Where the members of an object and the items of a list stand in the bytes of a JSON text, so that a part of it can be
 * passed on as its author wrote it: an id of 64 bits, `1.0` and every escape come through, which a parsed value would have
 * lost. For texts that `isJson` has accepted; of others what is said here means nothing, but it ends and never throws.
 * Nothing recurses, so that no nesting can exhaust the stack.
 */

/** A value in the text, without the white space around it. */
export interface Span {
  readonly from: number;
  /** Behind its last byte. */
  readonly to: number;
  /** Lists and maps inside one another, itself among them; 0 = it is neither. */
  readonly depth: number;
}

export interface Member extends Span {
  readonly name: string;
}

/** Where the text's own value begins. */
export function startOf(bytes: Uint8Array): number {
  return skipSpace(bytes, 0);
}

/** Members of the object that begins at `open`, in their order, those with one name several times. */
export function membersOf(bytes: Buffer, open: number): Member[] {
  const members: Member[] = [];
  let at = skipSpace(bytes, open + 1);
  while (bytes[at] === QUOTE) {
    const nameEnd = stringEnd(bytes, at);
    const from = skipSpace(bytes, skipSpace(bytes, nameEnd) + 1);
    const to = valueEnd(bytes, from);
    members.push({ name: stringAt(bytes, at, nameEnd), from, to, depth: lastDepth });
    at = skipSpace(bytes, to);
    if (bytes[at] !== COMMA) break;
    at = skipSpace(bytes, at + 1);
  }
  return members;
}

/** Items of the list that begins at `open`; reading ends after `most`. */
export function itemsOf(bytes: Buffer, open: number, most: number): Span[] {
  const items: Span[] = [];
  let from = skipSpace(bytes, open + 1);
  if (bytes[from] === CLOSE_LIST) return items;
  while (items.length < most && from < bytes.length) {
    const to = valueEnd(bytes, from);
    items.push({ from, to, depth: lastDepth });
    const next = skipSpace(bytes, to);
    if (bytes[next] !== COMMA) break;
    from = skipSpace(bytes, next + 1);
  }
  return items;
}

const QUOTE = 0x22;
const BACKSLASH = 0x5c;
const COMMA = 0x2c;
const OPEN_MAP = 0x7b;
const CLOSE_MAP = 0x7d;
const OPEN_LIST = 0x5b;
const CLOSE_LIST = 0x5d;

/** What a JSON string says that stands from its opening quote at `open` to behind its closing one. */
export function stringAt(bytes: Buffer, open: number, end: number): string {
  for (let i = open + 1; i < end - 1; i++) if (bytes[i] === BACKSLASH) return JSON.parse(bytes.toString('utf8', open, end)) as string;
  return bytes.toString('utf8', open + 1, end - 1);
}

/** Of the value whose end was looked for last; nothing here waits, so nobody comes between. */
let lastDepth = 0;

/** The place after the value that begins at `from`; sets `lastDepth`. */
function valueEnd(bytes: Buffer, from: number): number {
  lastDepth = 0;
  const first = bytes[from];
  if (first === QUOTE) return stringEnd(bytes, from);
  if (first === OPEN_MAP || first === OPEN_LIST) return containerEnd(bytes, from);
  let at = from;
  while (at < bytes.length && !isAfterScalar(bytes[at] as number)) at++;
  return at;
}

function isAfterScalar(c: number): boolean {
  return c === COMMA || c === CLOSE_LIST || c === CLOSE_MAP || isSpace(c);
}

/** Brackets are only counted: the text is well formed. */
function containerEnd(bytes: Buffer, from: number): number {
  const n = bytes.length;
  let depth = 0;
  for (let at = from; at < n; ) {
    const c = bytes[at] as number;
    if (c === QUOTE) {
      at = stringEnd(bytes, at);
      continue;
    }
    at++;
    if (c === OPEN_MAP || c === OPEN_LIST) {
      if (++depth > lastDepth) lastDepth = depth;
    } else if ((c === CLOSE_MAP || c === CLOSE_LIST) && --depth === 0) return at;
  }
  return n;
}

/** Strings are short as a rule; from here on a search by the platform is faster than looking at each byte. */
const LONG_STRING = 64;

function stringEnd(bytes: Buffer, from: number): number {
  const n = bytes.length;
  const near = Math.min(n, from + LONG_STRING);
  let at = from + 1;
  while (at < near) {
    const c = bytes[at];
    if (c === QUOTE) return at + 1;
    at += c === BACKSLASH ? 2 : 1;
  }
  while (at < n) {
    const quote = bytes.indexOf(QUOTE, at);
    if (quote < 0) return n;
    let first = quote;
    while (first > at && bytes[first - 1] === BACKSLASH) first--;
    // Backslashes pair off: an odd one escapes the quote.
    if ((quote - first) % 2 === 0) return quote + 1;
    at = quote + 1;
  }
  return n;
}

function skipSpace(bytes: Uint8Array, from: number): number {
  let at = from;
  while (at < bytes.length && isSpace(bytes[at] as number)) at++;
  return at;
}

function isSpace(c: number): boolean {
  return c === 0x20 || c === 0x0a || c === 0x0d || c === 0x09;
}
