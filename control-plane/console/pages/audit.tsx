/** Who did what to what, and what was refused to whom; the newest first, page by page. */
import { useEffect, useState } from 'preact/hooks';
import { pageAddress, writeQuery } from '../address.ts';
import { useApi, useConsole } from '../context.tsx';
import { count } from '../format.ts';
import { Shown } from '../parts/states.tsx';
import { Table } from '../parts/table.tsx';
import { Badge, CodeWord, Time } from '../parts/words.tsx';
import type { AuditAnswer, AuditRow } from '../shapes.ts';
import { TOPICS } from '../topics.ts';

const FILTERS = [
  ['actor', 'Who'],
  ['action', 'What was done, such as override.*'],
  ['subject', 'To what'],
  ['since', 'Not older, such as 24h'],
] as const;

export function AuditPage() {
  const { address } = useConsole();
  const { cursor = '', outcome = '', actor = '', action = '', subject = '', since = '' } = address.query;
  const asked = useApi<AuditAnswer>(
    `/v1/audit${writeQuery({ actor, action, subject, outcome, since, cursor, limit: 100 })}`,
    cursor === '' ? TOPICS.audit : [],
  );
  const filters = { actor, action, subject, since, outcome };
  return (
    <>
      <h1>Audit log</h1>
      <Filter filters={filters} />
      <Shown asked={asked} what="entries">
        {({ entries, next }) => (
          <>
            <Table
              label="audit entries"
              rows={entries}
              keyOf={({ id }) => id}
              size={100}
              empty={next === null ? 'No entry is like that.' : 'None on this page; there are older ones.'}
              test="audit-row"
              columns={[
                { id: 'at', head: 'When', isTime: true, cell: (row) => <Time ms={row.at_ms} /> },
                { id: 'actor', head: 'Who', cell: (row) => row.actor || <span class="muted">nobody known</span> },
                { id: 'action', head: 'What', cell: (row) => <What row={row} /> },
                { id: 'subject', head: 'To what', from: 'medium', cell: (row) => <span class="mono">{row.subject}</span> },
                { id: 'outcome', head: 'Outcome', cell: (row) => <Outcome row={row} /> },
                { id: 'reason', head: 'Why', from: 'wide', cell: (row) => row.reason },
                { id: 'detail', head: 'Details', from: 'wide', cell: (row) => <span class="small">{detailWords(row)}</span> },
              ]}
            />
            <nav class="pager" aria-label="Pages of the audit log">
              {cursor !== '' && <a href={pageAddress('audit', { ...address.query, cursor: '' })}>Newest</a>}
              {next !== null && (
                <a href={pageAddress('audit', { ...address.query, cursor: next })} data-page="next">
                  Older
                </a>
              )}
            </nav>
          </>
        )}
      </Shown>
    </>
  );
}

/** Says what the list below is filtered by, also when one comes here by another address. */
function Filter({ filters }: { readonly filters: Readonly<Record<string, string>> }) {
  const [fields, setFields] = useState(filters);
  useEffect(() => setFields(filters), [writeQuery(filters)]);
  return (
    <form
      class="tools"
      onSubmit={(event) => {
        event.preventDefault();
        location.hash = pageAddress('audit', { ...fields });
      }}
    >
      {FILTERS.map(([name, hint], i) => (
        <input
          key={name}
          data-search={i === 0}
          aria-label={hint}
          placeholder={hint}
          value={fields[name] ?? ''}
          onInput={(event) => setFields({ ...fields, [name]: event.currentTarget.value })}
        />
      ))}
      <select
        aria-label="Outcome"
        value={fields['outcome'] ?? ''}
        onChange={(event) => setFields({ ...fields, outcome: event.currentTarget.value })}
      >
        <option value="">any outcome</option>
        <option value="done">done</option>
        <option value="refused">refused</option>
        <option value="audited">audited</option>
      </select>
      <button type="submit">Filter</button>
    </form>
  );
}

/** On a narrow screen also to what, and why: an order means nothing without. */
function What({ row }: { readonly row: AuditRow }) {
  return (
    <>
      <span class="mono" tabIndex={-1} data-row>
        {row.action}
      </span>
      {row.subject !== '' && <div class="below-medium mono">{row.subject}</div>}
      {row.reason !== '' && <div class="below-wide small">{row.reason}</div>}
    </>
  );
}

function Outcome({ row }: { readonly row: AuditRow }) {
  return (
    <>
      <Badge tone={row.outcome === 'done' ? 'good' : row.outcome === 'refused' ? 'bad' : 'warn'}>{row.outcome}</Badge>
      {row.count > 1 && <span class="muted"> {count(row.count)} ×</span>}{' '}
      {row.code !== null && row.code !== 0 && <CodeWord code={row.code} />}
    </>
  );
}

function detailWords({ detail }: AuditRow): string {
  return Object.entries(detail)
    .filter(([, value]) => value !== null && value !== '')
    .map(([name, value]) => `${name}: ${String(value)}`)
    .join(', ');
}
