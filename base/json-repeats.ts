/**
 * Whether an object in a JSON text names a member twice. `JSON.parse` takes the last one, other readers the first: where two
 * of them read the same document, one to judge it and one to act on it, a name that stands there twice is two documents. Asked
 * of what decides something (orders, envelopes, registrations), not of payloads, which are their agents' own affair.
 */

/** The first name that an object has twice, however it is escaped; null = none. For texts that `JSON.parse` has accepted. */
export function repeatedName(text: string): string | null {
  /** Names of the objects that are open, and null for each list. */
  const open: (Set<string> | null)[] = [];
  const n = text.length;
  let isName = false;
  for (let at = 0; at < n; at++) {
    switch (text.charCodeAt(at)) {
      case OPEN_MAP:
        open.push(new Set());
        isName = true;
        break;
      case OPEN_LIST:
        open.push(null);
        isName = false;
        break;
      case CLOSE_MAP:
      case CLOSE_LIST:
        open.pop();
        isName = false;
        break;
      case COMMA:
        isName = open.at(-1) != null;
        break;
      case QUOTE: {
        const from = at;
        at = quoteEnd(text, at);
        if (!isName) break;
        isName = false;
        const inside = text.slice(from + 1, at);
        const name = inside.includes('\\') ? (JSON.parse(text.slice(from, at + 1)) as string) : inside;
        const names = open.at(-1) as Set<string>;
        if (names.has(name)) return name;
        names.add(name);
        break;
      }
      default:
    }
  }
  return null;
}

const QUOTE = 0x22;
const BACKSLASH = 0x5c;
const COMMA = 0x2c;
const OPEN_MAP = 0x7b;
const CLOSE_MAP = 0x7d;
const OPEN_LIST = 0x5b;
const CLOSE_LIST = 0x5d;

/** Index of the closing quote. */
function quoteEnd(text: string, from: number): number {
  for (let at = from + 1; at < text.length; at++) {
    const c = text.charCodeAt(at);
    if (c === BACKSLASH) at++;
    else if (c === QUOTE) return at;
  }
  return text.length;
}
