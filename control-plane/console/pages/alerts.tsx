/** Alerts: what fires, what may soon, what is over; and silences: who made them, why, and until when. */
import { useApi, useConsole } from '../context.tsx';
import { ActButton } from '../parts/dialog.tsx';
import { Actions, Shown, ViewerNote } from '../parts/states.tsx';
import { Table } from '../parts/table.tsx';
import { AgentLink, Badge, CapabilityLink, SidecarLink, Time, type Tone, TraceLink } from '../parts/words.tsx';
import type { AlertRow, AlertsAnswer, SilenceRow } from '../shapes.ts';
import { TOPICS } from '../topics.ts';

const TONES: Readonly<Record<AlertRow['state'], Tone>> = { firing: 'bad', pending: 'warn', resolved: 'good' };

export function AlertsPage() {
  const asked = useApi<AlertsAnswer>('/v1/alerts', TOPICS.alerts);
  return (
    <>
      <h1>Alerts</h1>
      <ViewerNote />
      <Shown asked={asked} what="alerts">
        {({ alerts, silences }) => (
          <>
            <Table
              label="alerts"
              rows={alerts}
              keyOf={({ id }) => id}
              {...(alerts.length > 10 ? { words: (row: AlertRow) => `${row.kind} ${row.subject} ${row.words} ${row.state}` } : {})}
              search="Search alerts ( / )"
              empty="Nothing fires: no P95 has risen, no breaker flaps, no queue grows and no agent is offline."
              test="alert-row"
              marks={({ id, state }) => ({ id, state })}
              columns={[
                { id: 'state', head: 'State', cell: (row) => <State row={row} /> },
                { id: 'words', head: 'What', cell: (row) => <What row={row} /> },
                {
                  id: 'since',
                  head: 'Since',
                  isTime: true,
                  from: 'medium',
                  by: (row) => row.since_ms,
                  cell: (row) => <Time ms={row.since_ms} />,
                },
                { id: 'look', head: 'In a terminal', from: 'wide', cell: (row) => <code>{row.look}</code> },
                { id: 'do', head: '', cell: (row) => <Silence row={row} again={asked.again} /> },
              ]}
            />
            {silences.length > 0 && (
              <>
                <h2>Silences</h2>
                <SilenceTable rows={silences} again={asked.again} />
              </>
            )}
          </>
        )}
      </Shown>
    </>
  );
}

function State({ row }: { readonly row: AlertRow }) {
  return (
    <>
      <Badge tone={TONES[row.state]}>{row.state}</Badge>
      {row.silenced_until_ms !== null && <Badge tone="plain">silenced</Badge>}
      {!row.told && row.silenced_until_ms === null && <Badge tone="warn">not told yet</Badge>}
    </>
  );
}

function What({ row }: { readonly row: AlertRow }) {
  return (
    <>
      {row.words}{' '}
      <span class="problem-links">
        {row.capability !== null && <CapabilityLink name={row.capability} row />}
        {row.agent !== null && <AgentLink name={row.agent} row />}
        {row.sidecar !== null && <SidecarLink name={row.sidecar} />}
        {row.trace_id !== null && <TraceLink id={row.trace_id}>a trace of it</TraceLink>}
        {row.resolved_ms !== null && (
          <span class="muted small">
            over <Time ms={row.resolved_ms} />
          </span>
        )}
      </span>
    </>
  );
}

function Silence({ row, again }: { readonly row: AlertRow; readonly again: () => void }) {
  const { client } = useConsole();
  if (row.state === 'resolved' || row.silenced_until_ms !== null) return null;
  return (
    <Actions>
      <ActButton
        test="silence"
        act={{
          label: 'Silence',
          words: `Nobody is told of it for that time; it goes on standing here, and what still fires afterwards is told then. ${row.words}`,
          field: { label: 'For how long', hint: '2h', value: '2h' },
          hasReason: true,
          run: ({ field, reason }) =>
            client.order('POST', '/v1/alerts/silences', { kind: row.kind, subject: row.subject, for: field, reason }),
          done: 'It is silenced.',
          after: again,
        }}
      />
    </Actions>
  );
}

function SilenceTable({ rows, again }: { readonly rows: readonly SilenceRow[]; readonly again: () => void }) {
  const { client } = useConsole();
  return (
    <Table
      label="silences"
      rows={rows}
      keyOf={({ id }) => id}
      empty=""
      test="silence-row"
      marks={({ id }) => ({ id })}
      columns={[
        { id: 'kind', head: 'Of', cell: (row) => row.kind?.replaceAll('_', ' ') ?? 'any kind' },
        { id: 'subject', head: 'Subject', cell: (row) => <span class="mono">{row.subject}</span> },
        { id: 'why', head: 'Why', from: 'medium', cell: (row) => `${row.reason}, ${row.author}` },
        { id: 'until', head: 'Ends', isTime: true, cell: (row) => <Time ms={row.until_ms} /> },
        {
          id: 'do',
          head: '',
          cell: (row) => (
            <Actions>
              <ActButton
                act={{
                  label: 'End it',
                  words: 'People are told of such alerts again, also of what fires by now.',
                  run: () => client.order('DELETE', `/v1/alerts/silences/${encodeURIComponent(row.id)}`),
                  done: 'The silence is over.',
                  after: again,
                }}
              />
            </Actions>
          ),
        },
      ]}
    />
  );
}
