/** Columns for people: as wide as what stands in them, two spaces between, nothing at the end of a line. */
import { printable } from '../../base/log.ts';

/** A cell is shown as text; null and undefined as a dash. */
export type Cell = string | number | boolean | null | undefined;

export function table(head: readonly string[], rows: readonly (readonly Cell[])[]): string {
  const lines = [head, ...rows.map((row) => row.map(shown))];
  const widths = head.map((_, column) => Math.max(...lines.map((line) => widthOf(line[column] ?? ''))));
  return lines
    .map((line) =>
      line
        .map((cell, column) => cell + ' '.repeat((widths[column] as number) - widthOf(cell)))
        .join('  ')
        .trimEnd(),
    )
    .join('\n');
}

function shown(cell: Cell): string {
  if (cell === null || cell === undefined || cell === '') return '-';
  if (typeof cell === 'boolean') return cell ? 'yes' : 'no';
  return typeof cell === 'number' ? String(cell) : printable(cell, 200);
}

/** Characters, not UTF-16 units. */
function widthOf(text: string): number {
  return Array.from(text).length;
}

/** `3s`, `2m 5s`, `4h`: the two largest parts that matter. */
export function ago(ms: number | null | undefined): string {
  if (ms === null || ms === undefined) return '-';
  if (ms < 1_000) return `${Math.round(ms)}ms`;
  const sec = Math.floor(ms / 1_000);
  if (sec < 60) return `${sec}s`;
  const min = Math.floor(sec / 60);
  if (min < 60) return sec % 60 === 0 ? `${min}m` : `${min}m ${sec % 60}s`;
  const hours = Math.floor(min / 60);
  if (hours < 48) return min % 60 === 0 ? `${hours}h` : `${hours}h ${min % 60}m`;
  return `${Math.floor(hours / 24)}d`;
}

/** Wall time for people, to the second, in UTC. */
export function when(wallMs: number | null | undefined): string {
  return typeof wallMs === 'number' && wallMs > 0 ? `${new Date(wallMs).toISOString().slice(0, 19)}Z` : '-';
}

export function percent(share: number | null | undefined): string {
  return typeof share === 'number' ? `${Number((share * 100).toFixed(2))}%` : '-';
}
