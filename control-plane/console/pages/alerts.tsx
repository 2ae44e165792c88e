/** Alerts: what fires, what may soon, what is over; silencing one for a time, with a reason. */
import { useState } from 'preact/hooks';
import { useApi, useConsole } from '../context.tsx';
import { ActButton } from '../parts/dialog.tsx';
import { Actions, Shown, ViewerNote } from '../parts/states.tsx';
import { Table } from '../parts/table.tsx';
import { Badge, Subject, Time, type Tone, TraceLink } from '../parts/words.tsx';
import type { AlertRow, AlertsAnswer } from '../shapes.ts';
import { TOPICS } from '../topics.ts';

const TONES: Readonly<Record<AlertRow['state'], Tone>> = { firing: 'bad', pending: 'warn', resolved: 'good' };
const ORDER: Readonly<Record<AlertRow['state'], number>> = { firing: 0, pending: 1, resolved: 2 };

export function AlertsPage() {
  const asked = useApi<AlertsAnswer>('/v1/alerts', TOPICS.alerts);
  return (
    <>
      <h1>Alerts</h1>
      <ViewerNote />
      <Shown asked={asked} what="alerts">
        {({ alerts }) => (
          <Table
            label="alerts"
            rows={[...alerts].sort((a, b) => ORDER[a.state] - ORDER[b.state] || b.since_ms - a.since_ms)}
            keyOf={({ id }) => id}
            {...(alerts.length > 10 ? { words: (row: AlertRow) => `${row.kind} ${row.subject} ${row.words} ${row.state}` } : {})}
            search="Search alerts ( / )"
            empty="Nothing fires: no P95 has risen, no breaker flaps, no queue grows and no agent is offline."
            test="alert-row"
            marks={({ id, state }) => ({ id, state })}
            columns={[
              { id: 'state', head: 'State', by: (row) => ORDER[row.state], cell: (row) => <State row={row} /> },
              { id: 'subject', head: 'Of', by: (row) => row.subject, cell: (row) => <Subject name={row.subject} row /> },
              { id: 'words', head: 'What', cell: (row) => row.words },
              { id: 'since', head: 'Since', isNumber: true, from: 'medium', by: (row) => row.since_ms, cell: (row) => <Time ms={row.since_ms} /> },
              { id: 'trace', head: 'Trace', from: 'medium', cell: (row) => (row.trace_id === null ? '' : <TraceLink id={row.trace_id} />) },
              { id: 'do', head: '', cell: (row) => <Silence row={row} again={asked.again} /> },
            ]}
          />
        )}
      </Shown>
    </>
  );
}

function State({ row }: { readonly row: AlertRow }) {
  return (
    <>
      <Badge tone={TONES[row.state]}>{row.state}</Badge>
      {row.silenced_until_ms !== null && (
        <Badge tone="plain">
          silenced, ends <Time ms={row.silenced_until_ms} />
        </Badge>
      )}
    </>
  );
}

function Silence({ row, again }: { readonly row: AlertRow; readonly again: () => void }) {
  const { client } = useConsole();
  const [last] = useState('1h');
  if (row.state === 'resolved') return null;
  return (
    <Actions>
      {row.silenced_until_ms === null ? (
        <ActButton
          test="silence"
          act={{
            label: 'Silence',
            words: `Nobody is told of this alert for that time; it goes on standing here: ${row.words}`,
            field: { label: 'For how long', hint: '1h', value: last },
            hasReason: true,
            run: ({ field, reason }) => client.order('POST', '/v1/alerts/silences', { alert: row.id, for: field, reason }),
            done: 'It is silenced.',
            after: again,
          }}
        />
      ) : (
        <ActButton
          act={{
            label: 'End the silence',
            words: 'People are told of it again.',
            run: () => client.order('DELETE', `/v1/alerts/silences/${encodeURIComponent(row.id)}`),
            done: 'It is told again.',
            after: again,
          }}
        />
      )}
    </Actions>
  );
}
