/** The text forms of the well-known types: RFC 3339 times, durations in seconds, field masks. Pure. */

const TIME = /^(\d{4})-(\d\d)-(\d\d)[Tt](\d\d):(\d\d):(\d\d)(?:\.(\d{1,9}))?(?:[Zz]|([+-])(\d\d):(\d\d))$/;
const DURATION = /^(-?)(\d{1,12})(?:\.(\d{1,9}))?s$/;
const FIRST_SECOND = -62_135_596_800;
const LAST_SECOND = 253_402_300_799;
const MAX_DURATION_S = 315_576_000_000;

export interface SecondsAndNanos {
  readonly seconds: number;
  readonly nanos: number;
}

export function readTime(text: string): SecondsAndNanos | null {
  const found = TIME.exec(text);
  if (found === null) return null;
  const [, year, month, day, hour, minute, second, fraction, sign, offHour, offMinute] = found;
  const at = Date.UTC(Number(year), Number(month) - 1, Number(day), Number(hour), Number(minute), Number(second));
  const date = new Date(at);
  if (Number(year) >= 100 && (date.getUTCMonth() !== Number(month) - 1 || date.getUTCDate() !== Number(day))) return null;
  if (Number(year) < 100) date.setUTCFullYear(Number(year));
  if (Number(hour) > 23 || Number(minute) > 59 || Number(second) > 59) return null;
  const offset = sign === undefined ? 0 : (Number(offHour) * 3600 + Number(offMinute) * 60) * (sign === '-' ? -1 : 1);
  const seconds = date.getTime() / 1000 - offset;
  if (seconds < FIRST_SECOND || seconds > LAST_SECOND) return null;
  return { seconds, nanos: nanosOf(fraction) };
}

export function timeText(seconds: number, nanos: number): string | null {
  if (seconds < FIRST_SECOND || seconds > LAST_SECOND || nanos < 0 || nanos > 999_999_999) return null;
  return `${new Date(seconds * 1000).toISOString().slice(0, 19)}${fractionText(nanos)}Z`;
}

export function readDuration(text: string): SecondsAndNanos | null {
  const found = DURATION.exec(text);
  if (found === null) return null;
  const seconds = Number(found[2]);
  if (seconds > MAX_DURATION_S) return null;
  const nanos = nanosOf(found[3]);
  return found[1] === '-' ? { seconds: 0 - seconds, nanos: 0 - nanos } : { seconds, nanos };
}

export function durationText(seconds: number, nanos: number): string | null {
  if (Math.abs(seconds) > MAX_DURATION_S || Math.abs(nanos) > 999_999_999 || (seconds !== 0 && nanos !== 0 && seconds < 0 !== nanos < 0))
    return null;
  const sign = seconds < 0 || nanos < 0 ? '-' : '';
  return `${sign}${Math.abs(seconds)}${fractionText(Math.abs(nanos))}s`;
}

/** `userName,address.zip` to `user_name`, `address.zip`. */
export function readMask(text: string): string[] {
  if (text === '') return [];
  return text.split(',').map((path) => path.trim().replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`));
}

export function maskText(paths: readonly string[]): string {
  return paths.map((path) => path.replace(/_([a-z])/g, (_, letter: string) => letter.toUpperCase())).join(',');
}

function nanosOf(fraction: string | undefined): number {
  return fraction === undefined ? 0 : Number(fraction.padEnd(9, '0'));
}

/** None, 3, 6 or 9 digits. */
function fractionText(nanos: number): string {
  if (nanos === 0) return '';
  const digits = String(nanos).padStart(9, '0');
  return `.${digits.endsWith('000000') ? digits.slice(0, 3) : digits.endsWith('000') ? digits.slice(0, 6) : digits}`;
}
