/** Shifts of traffic between versions and providers: how far each is, what its guard measures, and stopping it. */
import { useState } from 'preact/hooks';
import { useApi, useConsole } from '../context.tsx';
import { count, duration, percent, span } from '../format.ts';
import { ActButton } from '../parts/dialog.tsx';
import { Actions, Shown, ViewerNote } from '../parts/states.tsx';
import { Table } from '../parts/table.tsx';
import { Badge, CapabilityLink, Time, type Tone } from '../parts/words.tsx';
import type { ShiftRow, ShiftsAnswer } from '../shapes.ts';
import { TOPICS } from '../topics.ts';
import { ShiftForm } from './shift-form.tsx';

const TONES: Readonly<Record<string, Tone>> = {
  running: 'accent',
  paused: 'warn',
  finished: 'good',
  aborted: 'plain',
  rolled_back: 'bad',
  overtaken: 'warn',
};

export function ShiftsPage() {
  const asked = useApi<ShiftsAnswer>('/v1/shifts', TOPICS.shifts);
  const [isOpen, setOpen] = useState(false);
  return (
    <>
      <h1>Shifts of traffic</h1>
      <ViewerNote />
      <Actions>
        <button data-test="shift-new" onClick={() => setOpen(true)}>
          Shift traffic …
        </button>
      </Actions>
      {isOpen && <ShiftForm onClose={() => setOpen(false)} after={asked.again} />}
      <Shown asked={asked} what="shifts">
        {({ shifts }) => (
          <Table
            label="shifts"
            rows={shifts}
            keyOf={({ id }) => id}
            empty="No traffic has been shifted."
            test="shift-row"
            columns={[
              { id: 'id', head: 'Shift', from: 'medium', cell: (row) => <span class="mono">{row.id}</span> },
              {
                id: 'status',
                head: 'Status',
                by: (row) => row.status,
                cell: (row) => <Badge tone={TONES[row.status] ?? 'plain'}>{row.status.replace('_', ' ')}</Badge>,
              },
              {
                id: 'what',
                head: 'Shift of',
                cell: (row) => (
                  <>
                    <CapabilityLink name={row.capability} /> to <span class="mono">{row.version ?? row.provider}</span>
                  </>
                ),
              },
              {
                id: 'step',
                head: 'Share',
                isNumber: true,
                cell: (row) => (
                  <span title={row.steps.map(percent).join(' → ')}>
                    {percent(row.share)}{' '}
                    <span class="from-medium muted">
                      (step {row.step + 1} of {row.steps.length})
                    </span>
                  </span>
                ),
              },
              { id: 'guard', head: 'Guard measures', from: 'medium', cell: (row) => guardWords(row) },
              { id: 'why', head: 'Why', from: 'wide', cell: (row) => row.why || row.reason },
              { id: 'since', head: 'Began', from: 'medium', isTime: true, cell: (row) => <Time ms={row.started_at_ms} /> },
              { id: 'by', head: 'By', from: 'wide', cell: (row) => row.author },
              { id: 'do', head: '', cell: (row) => <Orders row={row} again={asked.again} /> },
            ]}
          />
        )}
      </Shown>
    </>
  );
}

function guardWords({ guard, measured }: ShiftRow): string {
  if (guard === null) return 'no guard';
  if (measured === null) return `errors up to ${percent(guard.errors)}, over ${span(guard.window_ms)}`;
  const { fresh, old } = measured;
  const share = (errors: number, calls: number): string => percent(calls === 0 ? null : errors / calls);
  return `new: ${count(fresh.calls)} calls, ${share(fresh.errors, fresh.calls)} errors, P95 ${duration(fresh.p95_ms)}; others: ${count(old.calls)}, ${share(old.errors, old.calls)}, ${duration(old.p95_ms)}`;
}

function Orders({ row, again }: { readonly row: ShiftRow; readonly again: () => void }) {
  const { client } = useConsole();
  if (row.ended_at_ms !== null) return null;
  const order = (verb: string, label: string, words: string, done: string, isBad = false) => (
    <ActButton
      act={{
        label,
        words,
        isBad,
        hasReason: true,
        run: ({ reason }) => client.order('POST', `/v1/shifts/${encodeURIComponent(row.id)}/${verb}`, { reason }),
        done,
        after: again,
      }}
    />
  );
  return (
    <Actions>
      {row.status === 'paused'
        ? order('resume', 'Go on', 'The step begins anew, and the next ones follow.', 'It goes on.')
        : order('pause', 'Hold', 'It stays at this step until it is told to go on; the guard goes on looking.', 'It is held.')}
      {order('finish', 'Finish', `It goes to its last step (${percent(row.steps.at(-1) ?? 0)}) at once, and is over.`, 'It is finished.')}
      {order('abort', 'Take back', 'What was before it is put back, and it is over.', 'It is taken back.', true)}
    </Actions>
  );
}
