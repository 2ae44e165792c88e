/**
 * A time limit as callers write it: whole milliseconds that *remain*. Decides what is a number and what is a mistake, so
 * that a limit that was meant never silently becomes the default. Absolute times are refused: another host's clock is not
 * trusted. Which limit applies is the `deadline` stage's affair.
 */

type HeaderValue = string | string[] | undefined;

/** Digits that can be added up exactly; longer ones are above any maximum. */
const MAX_DIGITS = 15;

/**
 * Milliseconds ≥ 0 (0 and negative values mean: over already), null when the header is absent, or the words of a refusal
 * (code 4003). `name` is for those words; `maxMs` is the configured maximum. Space around the number does not count, as
 * in any HTTP field.
 */
export function parseDeadlineMs(name: string, value: HeaderValue, maxMs: number): number | null | string {
  if (value === undefined) return null;
  if (typeof value !== 'string') return `${name} is given ${value.length} times; once is meant`;
  let from = 0;
  let to = value.length;
  while (from < to && isSpace(value.charCodeAt(from))) from++;
  while (to > from && isSpace(value.charCodeAt(to - 1))) to--;
  const negative = value.charCodeAt(from) === 0x2d;
  if (negative) from++;
  if (from === to) return refusal(name, value);
  let ms = 0;
  for (let i = from; i < to; i++) {
    const digit = value.charCodeAt(i) - 0x30;
    if (digit < 0 || digit > 9) return refusal(name, value);
    ms = ms * 10 + digit;
  }
  if (negative) return 0;
  if (ms > maxMs || to - from > MAX_DIGITS) return `${name} is above the maximum of ${maxMs} ms`;
  return ms;
}

function isSpace(c: number): boolean {
  return c === 0x20 || c === 0x09;
}

function refusal(name: string, value: string): string {
  if (value.includes(',')) return `${name} is given more than once: ${shown(value)}`;
  return `${name} must be whole milliseconds that remain, like 2500; got ${shown(value)}`;
}

function shown(value: string): string {
  return JSON.stringify(value.length > 40 ? `${value.slice(0, 40)}…` : value);
}
