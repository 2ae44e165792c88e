/**
 * Which versions of a language a program reads. Every word carries one number (`wire`). Within a number words only grow: a field that
 * is not known is passed over, and one that is missing has the meaning it had before there was one. The number goes up only when an
 * old reader would misunderstand, and then in two releases: the first reads the new number, the second says it. So two neighbouring
 * releases always understand one another, and a fleet is updated one process after another, in any order. A number that is neither
 * this one nor the one before is refused with a sentence that names both sides.
 */

/** @param own the number that this program says */
export function readsWire(said: unknown, own: number): boolean {
  return said === own || (said === own - 1 && own > 1);
}

/** @param what such as `the registry's wire` */
export function wireProblem(said: unknown, own: number, what: string): string {
  const shown = typeof said === 'number' ? String(said) : said === undefined ? 'unknown' : JSON.stringify(said).slice(0, 20);
  return `it speaks version ${shown} of ${what}, and this program version ${own > 1 ? `${own} and ${own - 1}` : own}: update the older one`;
}
