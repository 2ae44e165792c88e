/**
 * Where a value stands in a JSON text, as its author wrote it. A number that went through a double may have lost digits
 * (an id of 64 bits is another id then), so whoever has to put a part of a payload into another text takes it from here.
 * For texts that `JSON.parse` has accepted; what it would say of others is not defined.
 */

/** The text of the value under `keys` (object keys and list indices), without the white space around it; null = there is none. */
export function sourceAt(text: string, keys: readonly string[]): string | null {
  let from = skipSpace(text, 0);
  for (const key of keys) {
    const next = text[from] === '{' ? memberOf(text, from, key) : text[from] === '[' ? itemOf(text, from, key) : -1;
    if (next < 0) return null;
    from = next;
  }
  const end = valueEnd(text, from);
  return end > from ? text.slice(from, end) : null;
}

/** Start of a member's value; -1 = none. Of two with one name the last counts, as it does for `JSON.parse`. */
function memberOf(text: string, open: number, key: string): number {
  let found = -1;
  let at = skipSpace(text, open + 1);
  while (text[at] === '"') {
    const nameEnd = stringEnd(text, at);
    const isIt = nameOf(text.slice(at, nameEnd)) === key;
    const value = skipSpace(text, skipSpace(text, nameEnd) + 1);
    if (isIt) found = value;
    at = skipSpace(text, valueEnd(text, value));
    if (text[at] !== ',') break;
    at = skipSpace(text, at + 1);
  }
  return found;
}

function nameOf(quoted: string): string {
  return quoted.includes('\\') ? (JSON.parse(quoted) as string) : quoted.slice(1, -1);
}

function itemOf(text: string, open: number, key: string): number {
  if (!/^(?:0|[1-9]\d*)$/.test(key)) return -1;
  let at = skipSpace(text, open + 1);
  if (text[at] === ']') return -1;
  for (let left = Number(key); ; left--) {
    if (left === 0) return at;
    at = skipSpace(text, valueEnd(text, at));
    if (text[at] !== ',') return -1;
    at = skipSpace(text, at + 1);
  }
}

/** The place after the value that begins at `from`. */
function valueEnd(text: string, from: number): number {
  const first = text[from];
  if (first === '"') return stringEnd(text, from);
  if (first === '{' || first === '[') return containerEnd(text, from);
  let at = from;
  while (at < text.length && !',]} \t\r\n'.includes(text[at] as string)) at++;
  return at;
}

/** Brackets are only counted: the text is well formed. */
function containerEnd(text: string, from: number): number {
  let depth = 0;
  for (let at = from; at < text.length; ) {
    const c = text[at];
    if (c === '"') {
      at = stringEnd(text, at);
      continue;
    }
    at++;
    if (c === '{' || c === '[') depth++;
    else if ((c === '}' || c === ']') && --depth === 0) return at;
  }
  return text.length;
}

function stringEnd(text: string, from: number): number {
  for (let at = from + 1; at < text.length; at++) {
    if (text[at] === '\\') at++;
    else if (text[at] === '"') return at + 1;
  }
  return text.length;
}

function skipSpace(text: string, from: number): number {
  let at = from;
  while (text[at] === ' ' || text[at] === '\n' || text[at] === '\r' || text[at] === '\t') at++;
  return at;
}
