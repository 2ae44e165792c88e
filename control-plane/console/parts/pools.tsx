/** Pools of messages, as a table. */
import { count, span } from '../format.ts';
import { Table } from './table.tsx';
import { CapabilityLink } from './words.tsx';
import type { PoolRow } from '../shapes.ts';

export function PoolTable({
  pools,
  label,
  empty,
  open,
}: {
  readonly pools: readonly PoolRow[];
  readonly label: string;
  readonly empty: string;
  readonly open?: (pool: string) => void;
}) {
  return (
    <Table
      label={label}
      rows={pools}
      keyOf={({ pool }) => pool}
      words={(row) => `${row.words} ${row.capability ?? ''} ${row.pool}`}
      search="Search pools ( / )"
      empty={empty}
      sorting={{ column: 'waiting', isDown: true }}
      test="pool-row"
      marks={({ pool }) => ({ pool })}
      columns={[
        {
          id: 'pool',
          head: 'Pool',
          by: (row) => row.words,
          cell: (row) => (row.capability === null ? row.words : <CapabilityLink name={row.capability} row />),
        },
        { id: 'words', head: 'Who works on it', from: 'wide', cell: (row) => row.words },
        { id: 'waiting', head: 'Waiting', isNumber: true, by: (row) => row.messages, cell: (row) => count(row.messages) },
        {
          id: 'lanes',
          head: 'high / normal / low',
          isNumber: true,
          from: 'medium',
          cell: (row) => `${count(row.lanes['high'] ?? 0)} / ${count(row.lanes['normal'] ?? 0)} / ${count(row.lanes['low'] ?? 0)}`,
        },
        { id: 'hand', head: 'In hand', isNumber: true, from: 'medium', by: (row) => row.in_hand, cell: (row) => count(row.in_hand) },
        {
          id: 'agents',
          head: 'Agents',
          isNumber: true,
          by: (row) => row.agents - row.drained,
          cell: (row) => (
            <span class={row.agents - row.drained <= 0 ? 'bad-text' : ''}>
              {row.agents}
              {row.drained > 0 && ` (${row.drained} drained)`}
            </span>
          ),
        },
        {
          id: 'oldest',
          head: 'Oldest',
          isNumber: true,
          by: (row) => row.oldest_ms,
          cell: (row) => (row.oldest_ms === null ? '–' : span(row.oldest_ms)),
        },
        ...(open === undefined
          ? []
          : [{ id: 'open', head: '', cell: (row: PoolRow) => <button onClick={() => open(row.pool)}>Look</button> }]),
      ]}
    />
  );
}
