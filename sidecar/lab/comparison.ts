/**
 * How an expectation states a number: `18`, `">= 18"`, `"90%"`, `"<= 200ms"`, `"3% .. 8%"`. Read once from the scenario,
 * then held against what happened; the words of a failure quote what was written.
 */
import { formatDuration, parseDuration, parseRatio } from '../../base/duration.ts';

export type Unit = 'count' | 'share' | 'ms';

export interface Comparison {
  /** As written. */
  readonly text: string;
  readonly unit: Unit;
  readonly low: number;
  readonly high: number;
  readonly isLowOpen: boolean;
  readonly isHighOpen: boolean;
}

/** `share`: counts may also be written as a share of a whole. */
export type Measure = 'count' | 'count or share' | 'ms';

const FORMS: Readonly<Record<Measure, string>> = Object.freeze({
  count: 'a number such as 18, ">= 18", "< 20" or "3 .. 5"',
  'count or share': 'a number such as 18, ">= 18" or "3 .. 5", or a share such as ">= 99%" or "3% .. 8%"',
  ms: 'a duration such as "120ms", "<= 200ms" or "100ms .. 1s"',
});

export function formOf(measure: Measure): string {
  return FORMS[measure];
}

const SIGNED = /^(<=|>=|==|<|>|=)?\s*(.+)$/;

/** The comparison, or what is wrong with it as a sentence without its subject. */
export function parseComparison(value: unknown, measure: Measure): Comparison | string {
  if (typeof value === 'number') {
    if (measure === 'ms') return `${value} has no unit: write ${FORMS.ms}`;
    return Number.isInteger(value) && value >= 0 ? exactly(String(value), 'count', value) : `must be ${FORMS[measure]}`;
  }
  if (typeof value !== 'string') return `must be ${FORMS[measure]}`;
  const text = value.trim();
  const dots = text.indexOf('..');
  if (dots >= 0) return between(text, text.slice(0, dots).trim(), text.slice(dots + 2).trim(), measure);
  const match = SIGNED.exec(text);
  if (match === null) return `must be ${FORMS[measure]}`;
  const amount = amountOf(match[2] as string, measure);
  if (typeof amount === 'string') return amount;
  const { unit, size } = amount;
  switch (match[1]) {
    case '<=':
      return range(text, unit, 0, size, false, false);
    case '<':
      return range(text, unit, 0, size, false, true);
    case '>=':
      return range(text, unit, size, Number.POSITIVE_INFINITY, false, false);
    case '>':
      return range(text, unit, size, Number.POSITIVE_INFINITY, true, false);
    default:
      return exactly(text, unit, size);
  }
}

function between(text: string, from: string, to: string, measure: Measure): Comparison | string {
  const low = amountOf(from, measure);
  if (typeof low === 'string') return low;
  const high = amountOf(to, measure);
  if (typeof high === 'string') return high;
  if (low.unit !== high.unit) return `${JSON.stringify(text)} mixes a number and a share`;
  if (low.size > high.size) return `${JSON.stringify(text)} ends below its beginning`;
  return range(text, low.unit, low.size, high.size, false, false);
}

function amountOf(text: string, measure: Measure): { readonly unit: Unit; readonly size: number } | string {
  if (measure === 'ms') {
    const size = parseDuration(text);
    return typeof size === 'string' ? size : { unit: 'ms', size };
  }
  if (/^\d{1,12}$/.test(text)) return { unit: 'count', size: Number(text) };
  if (measure === 'count or share' && text.endsWith('%')) {
    const size = parseRatio(text);
    return typeof size === 'string' ? size : { unit: 'share', size };
  }
  return `must be ${FORMS[measure]}`;
}

function range(text: string, unit: Unit, low: number, high: number, isLowOpen: boolean, isHighOpen: boolean): Comparison {
  return { text, unit, low, high, isLowOpen, isHighOpen };
}

function exactly(text: string, unit: Unit, size: number): Comparison {
  return range(text, unit, size, size, false, false);
}

/** Shares come out of a division: 0.3 of 10 is 3, whatever the last bit says. */
const ROUNDING = 1e-9;

/** Whether `actual` (of `whole`, for shares) is what the comparison asks for. */
export function holds(comparison: Comparison, actual: number, whole = 1): boolean {
  const value = comparison.unit === 'share' ? (whole === 0 ? 0 : actual / whole) : actual;
  const slack = comparison.unit === 'count' ? 0 : ROUNDING;
  const isAbove = comparison.isLowOpen ? value > comparison.low : value >= comparison.low - slack;
  const isBelow = comparison.isHighOpen ? value < comparison.high : value <= comparison.high + slack;
  return isAbove && isBelow;
}

/** What was found, in the unit in which it was asked for. */
export function shown(comparison: Comparison, actual: number, whole = 1): string {
  if (comparison.unit === 'ms') return formatDuration(Math.round(actual));
  if (comparison.unit === 'count') return String(actual);
  return `${actual} of ${whole} (${whole === 0 ? 0 : Number(((actual / whole) * 100).toFixed(2))}%)`;
}
