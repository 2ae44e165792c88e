/**
 * Quantities as people write them: durations and sizes carry their unit ("250ms", "1 MiB"), ratios are 0-1 or percent.
 * A bare number is refused where a unit is needed: the reader must never have to guess it. Every function gives the
 * number in the code's own unit (milliseconds, bytes, 0-1), or a sentence that says what is wrong with the text.
 */

/** 30 days. Longer ones are nearly always a slip of the unit, and no setting needs them. */
export const MAX_DURATION_MS = 30 * 86_400_000;

const DAY_MS = 86_400_000;
const UNIT_MS: Readonly<Record<string, number>> = Object.freeze({ ms: 1, s: 1_000, m: 60_000, h: 3_600_000, d: 86_400_000 });
const DURATION = /^(-?)(\d{1,15}(?:\.\d{1,6})?) ?(ms|s|m|h|d)$/;
const BARE_NUMBER = /^-?\d+(?:\.\d+)?$/;
const DURATION_FORM = 'a number and one of the units ms, s, m, h, d, such as "250ms" or "1.5s"';

/** Milliseconds (fractions of one are rounded), or what is wrong. @param maxMs the few things that last longer say so. */
export function parseDuration(value: unknown, maxMs: number = MAX_DURATION_MS): number | string {
  if (typeof value === 'number') return `${value} has no unit: write ${DURATION_FORM}`;
  if (typeof value !== 'string') return `${describe(value)} is not a duration: write ${DURATION_FORM}`;
  const text = value.trim();
  const match = DURATION.exec(text);
  if (match === null) {
    if (BARE_NUMBER.test(text)) return `"${text}" has no unit: write ${DURATION_FORM}`;
    return `${describe(value)} is not a duration: write ${DURATION_FORM}`;
  }
  if (match[1] === '-') return `"${text}" is negative: a duration is 0 or more`;
  const ms = Number(match[2]) * (UNIT_MS[match[3] as string] as number);
  if (ms > maxMs) return `"${text}" is too long: at most ${maxMs / DAY_MS} days ("${maxMs / DAY_MS}d")`;
  return Math.round(ms);
}

/** The shortest exact text: "250ms", "10s", "1500ms", "24h". */
export function formatDuration(ms: number): string {
  if (ms === 0) return '0s';
  for (const [unit, size] of [
    ['d', 86_400_000],
    ['h', 3_600_000],
    ['m', 60_000],
    ['s', 1_000],
  ] as const) {
    // 90s is easier to read than 1.5m, 24h than 1d
    if (ms % size === 0 && (ms / size >= 2 || unit !== 'd')) return `${ms / size}${unit}`;
  }
  return ms > 1_000 && ms % 100 === 0 ? `${ms / 1_000}s` : `${ms}ms`;
}

const PERCENT = /^(-?\d{1,9}(?:\.\d{1,9})?) ?%$/;
const RATIO_FORM = 'a number from 0 to 1 such as 0.5, or a percentage such as "50%"';

/** A ratio 0-1, or what is wrong. A number is a ratio, never a percentage: 50 is refused, not read as 50 %. */
export function parseRatio(value: unknown): number | string {
  if (typeof value === 'number') {
    if (value >= 0 && value <= 1) return value;
    return `${value} is out of range: write ${RATIO_FORM}`;
  }
  if (typeof value !== 'string') return `${describe(value)} is not a ratio: write ${RATIO_FORM}`;
  const match = PERCENT.exec(value.trim());
  if (match === null) return `${describe(value)} is not a ratio: write ${RATIO_FORM}`;
  const percent = Number(match[1]);
  if (percent < 0 || percent > 100) return `"${value}" is out of range: write ${RATIO_FORM}`;
  // through decimal text, so that "7%" is 0.07 and not 0.07000000000000001
  return Number((percent / 100).toPrecision(12));
}

export function formatRatio(ratio: number): string {
  return `${Number((ratio * 100).toPrecision(12))}%`;
}

const UNIT_BYTES: Readonly<Record<string, number>> = Object.freeze({
  B: 1,
  KB: 1_000,
  MB: 1_000_000,
  GB: 1_000_000_000,
  KiB: 1_024,
  MiB: 1_048_576,
  GiB: 1_073_741_824,
});
const SIZE = /^(\d{1,15}(?:\.\d{1,6})?) ?(B|KB|MB|GB|KiB|MiB|GiB)$/;
const SIZE_FORM = 'a whole number of bytes, or a number and one of the units B, KB, MB, GB (1000) or KiB, MiB, GiB (1024), such as "1MiB"';

/** Whole bytes, or what is wrong. */
export function parseSize(value: unknown): number | string {
  if (typeof value === 'number') {
    return Number.isSafeInteger(value) && value >= 0 ? value : `${value} is not a size: write ${SIZE_FORM}`;
  }
  if (typeof value !== 'string') return `${describe(value)} is not a size: write ${SIZE_FORM}`;
  const match = SIZE.exec(value.trim());
  if (match === null) return `${describe(value)} is not a size: write ${SIZE_FORM}`;
  const bytes = Number(match[1]) * (UNIT_BYTES[match[2] as string] as number);
  if (bytes > Number.MAX_SAFE_INTEGER) return `"${value}" is too large to be a size`;
  return Math.round(bytes);
}

export function formatSize(bytes: number): string {
  for (const [unit, size] of [
    ['GiB', 1_073_741_824],
    ['MiB', 1_048_576],
    ['KiB', 1_024],
  ] as const) {
    if (bytes >= size && bytes % size === 0) return `${bytes / size}${unit}`;
  }
  return `${bytes}B`;
}

/** A value in a message: short, quoted when it is text, by kind when it is not. */
export function describe(value: unknown): string {
  if (value === null || value === undefined) return 'nothing (an empty value)';
  if (typeof value === 'string') return value === '' ? 'an empty text' : quote(value);
  if (Array.isArray(value)) return 'a list';
  if (typeof value === 'object') return 'a map';
  if (typeof value === 'number' || typeof value === 'boolean') return String(value);
  return `a ${typeof value}`;
}

/** Ends a line, turns the reading direction, or is not to be seen at all. */
function isMark(c: number): boolean {
  return c === 0x061c || c === 0x200e || c === 0x200f || (c >= 0x2028 && c <= 0x202e) || (c >= 0x2066 && c <= 0x2069) || c === 0xfeff;
}

/** Quoted, cut (to 80 characters unless told), control characters escaped: safe in a log line and in a terminal. */
export function quote(text: string, maxLength = 80): string {
  const cut = text.length > maxLength ? `${text.slice(0, maxLength - 3)}...` : text;
  let safe = '';
  for (const character of cut) {
    const c = character.codePointAt(0) ?? 0;
    const hidden = c < 32 || (c >= 127 && c < 160) || isMark(c) || (c >= 0xd800 && c <= 0xdfff);
    safe += hidden ? `\\u${c.toString(16).padStart(4, '0')}` : character;
  }
  return `"${safe}"`;
}
