/** Ids of traces and spans as numbers: kept longer than their call, texts would have to be moved by the collector of garbage, numbers not. */
const HEX: readonly string[] = Array.from({ length: 256 }, (_, byte) => byte.toString(16).padStart(2, '0'));

/** 8 hex digits as 32 bits. Written out, and without a branch: whether a digit of an id is a letter nobody can foresee. */
export function wordAt(text: string, from: number): number {
  const upper =
    (digit(text.charCodeAt(from)) << 12) |
    (digit(text.charCodeAt(from + 1)) << 8) |
    (digit(text.charCodeAt(from + 2)) << 4) |
    digit(text.charCodeAt(from + 3));
  const lower =
    (digit(text.charCodeAt(from + 4)) << 12) |
    (digit(text.charCodeAt(from + 5)) << 8) |
    (digit(text.charCodeAt(from + 6)) << 4) |
    digit(text.charCodeAt(from + 7));
  return ((upper << 16) | lower) >>> 0;
}

/** `0`–`9` end in their value, `a`–`f` in 1 to 6. */
function digit(c: number): number {
  return (c & 15) + 9 * (c >> 6);
}

/** What `wordAt` has read. */
export function wordHex(word: number): string {
  return (
    (HEX[word >>> 24] as string) + (HEX[(word >>> 16) & 255] as string) + (HEX[(word >>> 8) & 255] as string) + (HEX[word & 255] as string)
  );
}

const TWO_21 = 2_097_152;

/** One number for a trace: 53 bits of its id, from which two traces that are held at once can be told apart. */
export function traceKey(first: number, second: number): number {
  return first * TWO_21 + (second >>> 11);
}

export function traceKeyOf(traceId: string): number {
  // The random part of an id stands at its end (W3C trace context, level 2).
  return traceKey(wordAt(traceId, 24), wordAt(traceId, 16));
}
