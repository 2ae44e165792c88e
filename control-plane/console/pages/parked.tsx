/** What is parked: pools that nobody works on, what waits in them, and sending it elsewhere or dropping it. */
import { useState } from 'preact/hooks';
import { useApi, useConsole } from '../context.tsx';
import { bytes, many } from '../format.ts';
import { ActButton } from '../parts/dialog.tsx';
import { PoolTable } from '../parts/pools.tsx';
import { Actions, Shown } from '../parts/states.tsx';
import { Table } from '../parts/table.tsx';
import { AgentLink, Time } from '../parts/words.tsx';
import type { ParkedAnswer, PoolRow, PoolsAnswer } from '../shapes.ts';
import { TOPICS } from '../topics.ts';

export function Parked() {
  const asked = useApi<PoolsAnswer>('/v1/tasks/parked', TOPICS.messages);
  const [open, setOpen] = useState<string | null>(null);
  return (
    <Shown asked={asked} what="parked tasks">
      {({ pools }) => {
        const pool = pools.find((each) => each.pool === open);
        return (
          <>
            <p class="muted">What nobody works on: it goes on by itself as soon as an agent appears.</p>
            <PoolTable
              pools={pools}
              label="parked pools"
              empty="Nothing is parked: every pool with messages has an agent."
              open={setOpen}
            />
            {pool !== undefined && <ParkedPool pool={pool} again={asked.again} />}
          </>
        );
      }}
    </Shown>
  );
}

function ParkedPool({ pool, again }: { readonly pool: PoolRow; readonly again: () => void }) {
  const { client } = useConsole();
  const path = `/v1/tasks/parked/${encodeURIComponent(pool.pool)}`;
  const asked = useApi<ParkedAnswer>(path, TOPICS.messages);
  const done = (answer: unknown): string => {
    const { done: went, failed } = answer as { readonly done: readonly string[]; readonly failed: readonly { readonly why: string }[] };
    return `${many(went.length, 'task')} went${failed.length === 0 ? '.' : `, ${failed.length} did not: ${failed[0]?.why ?? ''}`}`;
  };
  const after = (): void => {
    again();
    asked.again();
  };
  return (
    <section class="box" aria-label={`Parked in ${pool.words}`}>
      <h2>{pool.words}</h2>
      <Actions>
        <ActButton
          act={{
            label: 'Re-route all',
            words: `The oldest ${Math.min(pool.messages, 1_000)} of the ${many(pool.messages, 'task')} go to another capability. Refused while anybody works on the pool.`,
            field: { label: 'To which capability', hint: 'crm.order.query@^2' },
            hasReason: true,
            run: ({ field, reason }) => client.order('POST', `${path}/reroute`, { capability: field, reason, limit: 1_000 }),
            done,
            after,
          }}
        />
        <ActButton
          act={{
            label: 'Drop all',
            isBad: true,
            typed: 'drop',
            words: `The oldest ${Math.min(pool.messages, 1_000)} of the ${many(pool.messages, 'task')} are taken out for good; their senders are told. Nothing brings them back.`,
            hasReason: true,
            run: ({ reason }) => client.order('POST', `${path}/drop`, { reason, limit: 1_000 }),
            done,
            after,
          }}
        />
      </Actions>
      <Shown asked={asked} what="tasks">
        {({ tasks, next }) => (
          <>
            <Table
              label="parked tasks"
              rows={tasks}
              keyOf={({ task_id }) => task_id}
              empty="Nothing waits here any more."
              columns={[
                { id: 'task', head: 'Task', cell: (row) => <span class="mono">{row.task_id}</span> },
                { id: 'type', head: 'Type', from: 'medium', cell: (row) => row.message_type },
                { id: 'source', head: 'From', cell: (row) => <AgentLink name={row.source} /> },
                { id: 'lane', head: 'Lane', from: 'medium', cell: (row) => row.lane },
                { id: 'size', head: 'Size', isNumber: true, from: 'wide', cell: (row) => bytes(row.payload_bytes) },
                { id: 'since', head: 'Since', isTime: true, cell: (row) => <Time ms={row.since_ms} /> },
              ]}
            />
            {next !== null && <p class="muted small">Only the oldest {tasks.length} are shown.</p>}
          </>
        )}
      </Shown>
    </section>
  );
}
