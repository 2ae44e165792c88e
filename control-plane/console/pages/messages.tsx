/** Messages: pools and their lanes, what is parked, and what is kept for people (dead, in doubt, to review) with what they can do. */
import { pageAddress } from '../address.ts';
import { useApi, useConsole } from '../context.tsx';
import { count } from '../format.ts';
import { Kept } from './kept.tsx';
import { Parked } from './parked.tsx';
import { PoolTable } from '../parts/pools.tsx';
import { Shown, ViewerNote } from '../parts/states.tsx';
import { Facts } from '../parts/words.tsx';
import type { PoolRow, PoolsAnswer } from '../shapes.ts';
import { TOPICS } from '../topics.ts';

const VIEWS = [
  ['pools', 'Lanes and pools'],
  ['parked', 'Parked'],
  ['dead', 'Dead letters'],
  ['in_doubt', 'In doubt'],
  ['review', 'Human review'],
] as const;

export function MessagesPage() {
  const { address } = useConsole();
  const view = VIEWS.find(([name]) => name === address.query['view'])?.[0] ?? 'pools';
  return (
    <>
      <h1>Messages</h1>
      <nav class="tabs" aria-label="Which messages">
        {VIEWS.map(([name, label]) => (
          <a
            key={name}
            href={pageAddress('messages', { view: name })}
            aria-current={name === view ? 'page' : undefined}
            data-test={`messages-${name}`}
          >
            {label}
          </a>
        ))}
      </nav>
      <ViewerNote />
      {view === 'pools' ? <Pools /> : view === 'parked' ? <Parked /> : <Kept key={view} kind={view} />}
    </>
  );
}

function Pools() {
  const asked = useApi<PoolsAnswer>('/v1/pools', TOPICS.messages);
  return (
    <Shown asked={asked} what="pools">
      {({ pools }) => (
        <>
          <Lanes pools={pools} />
          <PoolTable pools={pools} label="pools" empty="There is no pool: no message has been sent yet." />
        </>
      )}
    </Shown>
  );
}

function Lanes({ pools }: { readonly pools: readonly PoolRow[] }) {
  const lanes = new Map<string, number>();
  for (const pool of pools) for (const [lane, waiting] of Object.entries(pool.lanes)) lanes.set(lane, (lanes.get(lane) ?? 0) + waiting);
  return (
    <Facts
      facts={[
        ...['high', 'normal', 'low'].map((lane) => [`Lane ${lane}`, count(lanes.get(lane) ?? 0)] as const),
        ['In hand', count(pools.reduce((sum, pool) => sum + pool.in_hand, 0))],
        ['Pools without agents', count(pools.filter(({ agents, drained }) => agents - drained <= 0).length)],
      ]}
    />
  );
}
