/** What people type into fields that want a number. */

/**
 * The number, or the text as it is: the API refuses that in words. Nothing that cannot be read becomes a value of its own, for JSON
 * has no word for "not a number" but null, which gives a limit or a weight back.
 */
export function numberGiven(text: string): number | string {
  const given = text.trim();
  return /^[+-]?(?:\d+\.?\d*|\.\d+)$/.test(given) ? Number(given) : given;
}
