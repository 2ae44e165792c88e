/** A table of rows that can be searched, sorted and, when there are many, paged. On narrow screens the columns that matter least go. */
import type { ComponentChildren } from 'preact';
import { useEffect, useState } from 'preact/hooks';
import { count } from '../format.ts';
import { type Cell, matching, paged, sorted, type Sorting } from '../rows.ts';
import { useKeptFocus } from './focus.tsx';
import { Empty } from './states.tsx';

export interface Column<T> {
  readonly id: string;
  readonly head: string;
  readonly cell: (row: T) => ComponentChildren;
  /** What it is sorted by; absent = it is not. */
  readonly by?: (row: T) => Cell;
  readonly isNumber?: boolean;
  /** The newest first, when it is sorted by. */
  readonly isTime?: boolean;
  /** From which width on it is shown: absent = always. */
  readonly from?: 'medium' | 'wide';
  readonly title?: string;
}

interface Props<T> {
  readonly label: string;
  readonly rows: readonly T[];
  readonly columns: readonly Column<T>[];
  readonly keyOf: (row: T) => string;
  /** What is searched in; absent = there is no search. */
  readonly words?: (row: T) => string;
  readonly search?: string;
  readonly find?: string;
  readonly empty: ComponentChildren;
  readonly sorting?: Sorting;
  readonly test?: string;
  /** More `data-` names of a row. */
  readonly marks?: (row: T) => Readonly<Record<string, string | number | boolean>>;
  readonly tone?: (row: T) => string;
  readonly size?: number;
  /** How many there are, when `rows` are only the first of them. */
  readonly of?: number;
  /** Somebody looks for more than the first ones. */
  readonly onLook?: () => void;
  readonly tools?: ComponentChildren;
}

const SIZE = 50;

export function Table<T>(props: Props<T>) {
  const { rows, columns, keyOf, words, label, size = SIZE } = props;
  const [text, setText] = useState(props.find ?? '');
  const [page, setPage] = useState(0);
  const [sorting, setSorting] = useState<Sorting | null>(props.sorting ?? null);
  const body = useKeptFocus<HTMLTableSectionElement>();
  useEffect(() => setText(props.find ?? ''), [props.find]);
  const found = words === undefined ? rows : matching(rows, text, words);
  const by = columns.find(({ id }) => id === sorting?.column)?.by;
  const ordered = by === undefined || sorting === null ? found : sorted(found, sorting.isDown, by);
  const shown = paged(ordered, page, size);
  const isPart = text === '' && (props.of ?? 0) > rows.length;
  const turn = (to: number): void => {
    props.onLook?.();
    setPage(to);
  };
  const sortBy = (column: Column<T>): void => {
    turn(0);
    setSorting((before) =>
      before?.column === column.id
        ? { column: column.id, isDown: !before.isDown }
        : { column: column.id, isDown: column.isNumber === true || column.isTime === true },
    );
  };
  return (
    <div class="table-box">
      {(words !== undefined || props.tools !== undefined) && (
        <div class="tools">
          {words !== undefined && (
            <input
              type="search"
              data-search
              data-test="search"
              aria-label={`Search ${label}`}
              placeholder={props.search ?? 'Search'}
              value={text}
              onInput={(event) => {
                setText(event.currentTarget.value);
                turn(0);
              }}
            />
          )}
          {props.tools}
          {text !== '' && (
            <span class="muted small" role="status">
              {count(found.length)} of {count(rows.length)}
            </span>
          )}
        </div>
      )}
      {found.length === 0 ? (
        <Empty>{rows.length === 0 ? props.empty : `Nothing here has “${text}” in it.`}</Empty>
      ) : (
        <div class="table-scroll">
          <table aria-label={label}>
            <thead>
              <tr>
                {columns.map((column) => (
                  <th
                    key={column.id}
                    scope="col"
                    class={classOf(column)}
                    title={column.title}
                    aria-sort={sorting?.column !== column.id ? undefined : sorting.isDown ? 'descending' : 'ascending'}
                  >
                    {column.by === undefined ? (
                      column.head
                    ) : (
                      <button class="head" onClick={() => sortBy(column)}>
                        {column.head}
                        <span class="arrow" aria-hidden="true">
                          {sorting?.column === column.id ? (sorting.isDown ? ' ↓' : ' ↑') : ''}
                        </span>
                      </button>
                    )}
                  </th>
                ))}
              </tr>
            </thead>
            <tbody ref={body}>
              {shown.rows.map((row) => (
                <tr key={keyOf(row)} data-test={props.test} class={props.tone?.(row)} {...dataOf(props.marks?.(row))}>
                  {columns.map((column) => (
                    <td key={column.id} class={classOf(column)}>
                      {column.cell(row)}
                    </td>
                  ))}
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
      {shown.pages > 1 && (
        <nav class="pager" aria-label={`Pages of ${label}`}>
          <button data-page="before" disabled={shown.page === 0} onClick={() => turn(shown.page - 1)}>
            Before
          </button>
          <span class="muted">
            {count(shown.from)}–{count(shown.to)} of {count(isPart ? (props.of ?? 0) : shown.of)}
          </span>
          <button data-page="next" disabled={shown.page === shown.pages - 1} onClick={() => turn(shown.page + 1)}>
            Next
          </button>
        </nav>
      )}
    </div>
  );
}

function classOf<T>({ isNumber, from }: Column<T>): string {
  return `${isNumber === true ? 'number ' : ''}${from === undefined ? '' : `from-${from}`}`;
}

function dataOf(marks: Readonly<Record<string, string | number | boolean>> = {}): Record<string, string> {
  const data: Record<string, string> = {};
  for (const [name, value] of Object.entries(marks)) data[`data-${name}`] = String(value);
  return data;
}
