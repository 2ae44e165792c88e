/** Ids of traces and spans as numbers: kept longer than their call, texts would have to be moved by the collector of garbage, numbers not. */
const HEX: readonly string[] = Array.from({ length: 256 }, (_, byte) => byte.toString(16).padStart(2, '0'));

/** 8 hex digits, in lower case, as 32 bits. */
export function wordAt(text: string, from: number): number {
  let word = 0;
  for (let i = from; i < from + 8; i++) {
    const c = text.charCodeAt(i);
    word = (word << 4) | (c >= 0x61 ? c - 0x57 : c - 0x30);
  }
  return word >>> 0;
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
