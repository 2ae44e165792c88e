/** Lists that may be long: which rows are looked for, in which order, and which of them stand on this page. */

export interface Sorting {
  readonly column: string;
  readonly isDown: boolean;
}

export type Cell = string | number | null;

/** Rows that have every word of `text` somewhere in what `words` gives; all when there is none. */
export function matching<T>(rows: readonly T[], text: string, words: (row: T) => string): readonly T[] {
  const wanted = text
    .toLowerCase()
    .split(/\s+/)
    .filter((word) => word !== '');
  if (wanted.length === 0) return rows;
  return rows.filter((row) => {
    const has = words(row).toLowerCase();
    return wanted.every((word) => has.includes(word));
  });
}

/** A new list; what has no value stands last in both directions, and equals keep their order. */
export function sorted<T>(rows: readonly T[], isDown: boolean, cell: (row: T) => Cell): readonly T[] {
  const sign = isDown ? -1 : 1;
  return [...rows].sort((one, other) => {
    const a = cell(one);
    const b = cell(other);
    if (a === null || b === null) return a === b ? 0 : a === null ? 1 : -1;
    if (typeof a === 'number' && typeof b === 'number') return sign * (a - b);
    return sign * compare(String(a), String(b));
  });
}

function compare(a: string, b: string): number {
  return a < b ? -1 : a > b ? 1 : 0;
}

export interface Paged<T> {
  readonly rows: readonly T[];
  /** From 0; the nearest one that there is. */
  readonly page: number;
  readonly pages: number;
  /** Of the first row shown, from 1; 0 = there is none. */
  readonly from: number;
  readonly to: number;
  readonly of: number;
}

export function paged<T>(rows: readonly T[], page: number, size: number): Paged<T> {
  const pages = Math.max(1, Math.ceil(rows.length / size));
  const at = Math.min(Math.max(0, page), pages - 1);
  const shown = rows.slice(at * size, (at + 1) * size);
  return { rows: shown, page: at, pages, from: shown.length === 0 ? 0 : at * size + 1, to: at * size + shown.length, of: rows.length };
}

/** A key for each row that names what it is about and not what it says, so that it stays the same row while its figures change; equals are counted. */
export function keysOf<T>(rows: readonly T[], about: (row: T) => readonly (string | null)[]): readonly string[] {
  const seen = new Map<string, number>();
  return rows.map((row) => {
    const key = JSON.stringify(about(row));
    const before = seen.get(key) ?? 0;
    seen.set(key, before + 1);
    return before === 0 ? key : `${key} ${before}`;
  });
}
