/**
 * Whether bytes are one well-formed JSON text (RFC 8259), without building it. `JSON.parse` makes every object and string
 * only for them to be thrown away again; where nobody reads the values this costs about a third. Says the same as
 * `JSON.parse` for every input (a test holds the two against each other), and nothing about what the text means.
 */
import { isUtf8 } from 'node:buffer';

/** Nesting that the scan itself keeps track of; deeper texts are left to `JSON.parse`. */
export const MAX_DEPTH = 256;

const Kind = { plain: 0, quote: 1, backslash: 2, control: 3 } as const;
/** By byte: what it means inside a string. */
const IN_STRING = new Uint8Array(256);
IN_STRING.fill(Kind.control, 0, 0x20);
IN_STRING[0x22] = Kind.quote;
IN_STRING[0x5c] = Kind.backslash;

/** By byte: 1 = may follow a backslash, 2 = `u`. */
const ESCAPES = new Uint8Array(256);
for (const c of '"\\/bfnrt') ESCAPES[c.charCodeAt(0)] = 1;
ESCAPES[0x75] = 2;

/** Whether each open bracket is an object's; one scan at a time, since it never waits. */
const isObject = new Uint8Array(MAX_DEPTH);

const INVALID = -1;

export function isJson(bytes: Uint8Array): boolean {
  if (!isUtf8(bytes)) return false;
  const verdict = scan(bytes);
  return verdict === 'deep' ? isParsable(bytes) : verdict;
}

/** As `isJson`, and `deep` for a text that is nested deeper than the scan keeps track of, well formed or not. */
export function isShallowJson(bytes: Uint8Array): boolean | 'deep' {
  return isUtf8(bytes) && scan(bytes);
}

function isParsable(bytes: Uint8Array): boolean {
  try {
    JSON.parse(Buffer.from(bytes.buffer, bytes.byteOffset, bytes.length).toString('utf8'));
    return true;
  } catch {
    return false;
  }
}

function scan(b: Uint8Array): boolean | 'deep' {
  const n = b.length;
  let depth = 0;
  let i = 0;
  for (;;) {
    // A value is due.
    i = skipSpace(b, i);
    const c = i < n ? (b[i] as number) : 0;
    let isOpen = false;
    if (c === 0x22) i = stringEnd(b, i);
    else if (c === 0x7b || c === 0x5b) {
      if (depth === MAX_DEPTH) return 'deep';
      const object = c === 0x7b;
      i = skipSpace(b, i + 1);
      if (i < n && b[i] === (object ? 0x7d : 0x5d)) i++;
      else {
        isObject[depth++] = object ? 1 : 0;
        isOpen = true;
      }
    } else if (c === 0x2d || (c >= 0x30 && c <= 0x39)) i = numberEnd(b, i);
    else i = literalEnd(b, i, c);
    if (i === INVALID) return false;
    if (!isOpen) {
      // A value has ended: what follows closes brackets, or leads to the next value.
      for (;;) {
        i = skipSpace(b, i);
        if (depth === 0) return i === n;
        const next = i < n ? (b[i] as number) : 0;
        if (next === 0x2c) {
          i++;
          break;
        }
        if (next !== (isObject[depth - 1] === 1 ? 0x7d : 0x5d)) return false;
        depth--;
        i++;
      }
    }
    if (isObject[depth - 1] === 1) {
      i = skipSpace(b, i);
      if (i >= n || b[i] !== 0x22) return false;
      i = stringEnd(b, i);
      if (i === INVALID) return false;
      i = skipSpace(b, i);
      if (i >= n || b[i] !== 0x3a) return false;
      i++;
    }
  }
}

function skipSpace(b: Uint8Array, from: number): number {
  let i = from;
  while (i < b.length) {
    const c = b[i] as number;
    if (c > 0x20 || (c !== 0x20 && c !== 0x0a && c !== 0x0d && c !== 0x09)) break;
    i++;
  }
  return i;
}

/** `from` is at the opening quote; gives the place after the closing one. */
function stringEnd(b: Uint8Array, from: number): number {
  const n = b.length;
  let i = from + 1;
  while (i < n) {
    const kind = IN_STRING[b[i] as number] as number;
    if (kind === Kind.plain) {
      i++;
      continue;
    }
    if (kind === Kind.quote) return i + 1;
    if (kind === Kind.control) return INVALID;
    const escape = i + 1 < n ? (ESCAPES[b[i + 1] as number] as number) : 0;
    if (escape === 0) return INVALID;
    i += 2;
    if (escape === 2) {
      if (i + 4 > n) return INVALID;
      for (const end = i + 4; i < end; i++) if (!isHexDigit(b[i] as number)) return INVALID;
    }
  }
  return INVALID;
}

function isHexDigit(c: number): boolean {
  return (c >= 0x30 && c <= 0x39) || (c >= 0x41 && c <= 0x46) || (c >= 0x61 && c <= 0x66);
}

function isDigit(b: Uint8Array, i: number): boolean {
  return i < b.length && (b[i] as number) >= 0x30 && (b[i] as number) <= 0x39;
}

function digitsEnd(b: Uint8Array, from: number): number {
  let i = from;
  while (isDigit(b, i)) i++;
  return i === from ? INVALID : i;
}

function numberEnd(b: Uint8Array, from: number): number {
  let i = b[from] === 0x2d ? from + 1 : from;
  if (!isDigit(b, i)) return INVALID;
  i = b[i] === 0x30 ? i + 1 : digitsEnd(b, i);
  if (b[i] === 0x2e) {
    i = digitsEnd(b, i + 1);
    if (i === INVALID) return INVALID;
  }
  if (b[i] === 0x65 || b[i] === 0x45) {
    i++;
    if (b[i] === 0x2b || b[i] === 0x2d) i++;
    i = digitsEnd(b, i);
  }
  return i;
}

function literalEnd(b: Uint8Array, i: number, c: number): number {
  if (c === 0x74) return b[i + 1] === 0x72 && b[i + 2] === 0x75 && b[i + 3] === 0x65 ? i + 4 : INVALID;
  if (c === 0x6e) return b[i + 1] === 0x75 && b[i + 2] === 0x6c && b[i + 3] === 0x6c ? i + 4 : INVALID;
  if (c === 0x66) return b[i + 1] === 0x61 && b[i + 2] === 0x6c && b[i + 3] === 0x73 && b[i + 4] === 0x65 ? i + 5 : INVALID;
  return INVALID;
}
