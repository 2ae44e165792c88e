/** Codes as places in a small array, so that what is counted by code is found by index. A code that is not in the table counts as a fault of ours. */
import { CODES } from '../../proto/wire/codes.ts';

const PLACES: ReadonlyMap<number, number> = new Map(CODES.map((entry, at) => [entry.code, at]));
const INTERNAL = CODES.length - 1;
const TEXTS: readonly string[] = CODES.map(({ code }) => String(code));

export function codePlace(code: number): number {
  return PLACES.get(code) ?? INTERNAL;
}

export function codeText(place: number): string {
  return TEXTS[place] as string;
}
