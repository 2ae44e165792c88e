/** `top` as lines of text: totals, what is wrong, and the capabilities in the order that was asked for. Pure. */
import { printable } from '../../base/log.ts';
import type { CapabilityRowView, OverviewAnswer } from '../overview/overview-shapes.ts';
import { percent } from './table.ts';
import { cutTo, type Paint, padLeft, padTo, spell } from './terminal.ts';

export const SORTS = ['worst', 'calls', 'errors', 'p95', 'p99', 'in_flight', 'name'] as const;
export type Sort = (typeof SORTS)[number];

export interface TopLook {
  readonly width: number;
  /** Lines in all; Infinity where nothing is a window. */
  readonly rows: number;
  readonly paint: Paint;
  readonly unicode: boolean;
  readonly sort: Sort;
  /** Capabilities that are scrolled past. */
  readonly from: number;
  readonly note: string;
}

const BY: Readonly<Record<Exclude<Sort, 'worst'>, (a: CapabilityRowView, b: CapabilityRowView) => number>> = {
  calls: (a, b) => b.calls_per_s - a.calls_per_s,
  errors: (a, b) => b.error_share - a.error_share,
  p95: (a, b) => (b.p95_ms ?? 0) - (a.p95_ms ?? 0),
  p99: (a, b) => (b.p99_ms ?? 0) - (a.p99_ms ?? 0),
  in_flight: (a, b) => b.in_flight - a.in_flight,
  name: (a, b) => (a.capability < b.capability ? -1 : 1),
};

/** `worst` is the order in which the server tells them. */
export function sorted(rows: readonly CapabilityRowView[], sort: Sort): readonly CapabilityRowView[] {
  return sort === 'worst' ? rows : [...rows].sort(BY[sort]);
}

interface Column {
  readonly title: string;
  readonly width: number;
  /** Shown from this width on: what matters less goes first. */
  readonly from: number;
  readonly of: (row: CapabilityRowView) => string;
}

const SPARK = '▁▂▃▄▅▆▇█';
const SPARK_CHARS = 15;

const COLUMNS: readonly Column[] = [
  { title: 'CALLS/S', width: 8, from: 0, of: (row) => rate(row.calls_per_s) },
  { title: 'ERRORS', width: 7, from: 0, of: (row) => (row.calls_per_s === 0 ? '-' : percent(row.error_share)) },
  { title: 'P50', width: 7, from: 90, of: (row) => spell(row.p50_ms) },
  { title: 'P95', width: 7, from: 0, of: (row) => spell(row.p95_ms) },
  { title: 'P99', width: 7, from: 80, of: (row) => spell(row.p99_ms) },
  { title: 'IN FLIGHT', width: 9, from: 100, of: (row) => String(row.in_flight) },
  {
    title: 'PROVIDERS',
    width: 9,
    from: 70,
    of: (row) => (row.offline === 0 ? String(row.providers) : `${row.providers - row.offline}/${row.providers}`),
  },
  { title: 'BREAKERS', width: 8, from: 60, of: (row) => (row.breakers_open === 0 ? '-' : `${row.breakers_open} open`) },
];
const LEAST_NAME = 12;
const MOST_NAME = 48;
const MOST_PROBLEMS = 5;
const PROBLEM_INKS = { critical: 'bad', warning: 'warn', info: 'dim' } as const;

export function topWords(answer: OverviewAnswer, look: TopLook): string {
  const { paint, width, rows, from } = look;
  const lines = [...totals(answer, look), ''];
  const problems = answer.problems.slice(0, MOST_PROBLEMS);
  for (const { severity, words } of problems) lines.push(paint(PROBLEM_INKS[severity], cutTo(`${severity}: ${printable(words)}`, width)));
  if (answer.problems_total > problems.length) lines.push(paint('dim', `and ${answer.problems_total - problems.length} more`));
  if (answer.problems.length > 0) lines.push('');
  const all = sorted(answer.capabilities, look.sort);
  const columns = COLUMNS.filter((column) => width >= column.from);
  const taken = columns.reduce((sum, column) => sum + column.width + 2, 0);
  const longest = Math.max(10, ...all.map(({ capability }) => capability.length));
  const nameChars = Math.max(LEAST_NAME, Math.min(longest, MOST_NAME, width - taken));
  const hasSpark = look.unicode && width - nameChars - taken >= SPARK_CHARS + 2;
  lines.push(
    paint(
      'dim',
      `${padTo('CAPABILITY', nameChars)}${columns.map(({ title, width: chars }) => `  ${padLeft(title, chars)}`).join('')}${hasSpark ? `  ${padTo('15 MIN', SPARK_CHARS)}` : ''}`.trimEnd(),
    ),
  );
  const room = Math.max(1, rows - lines.length - (look.note === '' ? 0 : 2));
  for (const row of all.slice(from, from + room)) {
    const ink =
      row.providers > 0 && row.offline === row.providers
        ? 'bad'
        : row.error_share >= 0.05 && row.calls_per_s > 0
          ? 'bad'
          : row.breakers_open > 0 || row.offline > 0
            ? 'warn'
            : null;
    const name = padTo(cutTo(printable(row.capability, 120), nameChars), nameChars);
    const cells = columns.map(({ width: chars, of }) => `  ${padLeft(cutTo(of(row), chars), chars)}`).join('');
    lines.push(`${ink === null ? name : paint(ink, name)}${cells}${hasSpark ? `  ${spark(row.spark.slice(-SPARK_CHARS))}` : ''}`.trimEnd());
  }
  if (all.length === 0) lines.push('nothing is offered or called');
  if (from + room < all.length) lines.push(paint('dim', `and ${all.length - from - room} more`));
  if (look.note !== '') lines.push('', paint('dim', cutTo(look.note, width)));
  return lines.join('\n');
}

function totals({ at_ms: at, totals: sum, replica, unknown }: OverviewAnswer, { width, paint }: TopLook): string[] {
  const { sidecars, messages } = sum;
  const late = sidecars.behind + sidecars.stale + sidecars.missing;
  const counted = Object.entries(messages)
    .filter(([, count]) => typeof count === 'number' && count > 0)
    .map(([what, count]) => `${count} ${what.replace('_', ' ')}`);
  const first = `${new Date(at).toISOString().slice(11, 19)}  ${rate(sum.calls_per_s)} calls/s, ${percent(sum.error_share)} failed, P95 ${spell(sum.p95_ms)}  (${replica})`;
  const second = `${sum.agents} agents${sum.agents_offline > 0 ? `, ${sum.agents_offline} offline` : ''}; ${sum.capabilities} capabilities; ${sidecars.current} ${sidecars.current === 1 ? 'sidecar' : 'sidecars'} current${late > 0 ? `, ${late} not` : ''}${counted.length === 0 ? '' : `; messages: ${counted.join(', ')}`}`;
  return [
    paint('strong', cutTo(first, width)),
    cutTo(second, width),
    ...unknown.map((words) => paint('dim', cutTo(printable(words), width))),
  ];
}

function rate(perSec: number): string {
  return perSec >= 100 ? String(Math.round(perSec)) : perSec >= 10 ? perSec.toFixed(1) : perSec.toFixed(2);
}

function spark(counts: readonly number[]): string {
  const most = Math.max(...counts, 1);
  return counts
    .map((count) =>
      count === 0 ? ' ' : (SPARK[Math.min(SPARK.length - 1, Math.floor((count / most) * (SPARK.length - 0.001)))] as string),
    )
    .join('');
}
