/** Traces: one by its id, or those that failed, were slow, or are new. */
import { useEffect, useState } from 'preact/hooks';
import { itemAddress, pageAddress, traceIdIn, writeQuery } from '../address.ts';
import { useApi, useConsole } from '../context.tsx';
import { count, duration } from '../format.ts';
import { Shown } from '../parts/states.tsx';
import { Table } from '../parts/table.tsx';
import { AgentLink, CapabilityLink, CodeWord, Time, TraceLink } from '../parts/words.tsx';
import type { TraceRow, TracesAnswer } from '../shapes.ts';
import { TOPICS } from '../topics.ts';

const LIMIT = 200;
const SLOW_MS = '1000';

export function TracesPage() {
  const { address } = useConsole();
  const { failed = '', min_ms: minMs = '', capability = '', agent = '', code = '' } = address.query;
  const asked = useApi<TracesAnswer>(
    `/v1/traces${writeQuery({ failed, min_ms: minMs, capability, agent, code, limit: LIMIT })}`,
    TOPICS.traces,
  );
  const others = { capability, agent };
  const is = (want: 'recent' | 'failed' | 'slow'): 'page' | undefined =>
    (want === 'failed' ? failed !== '' : want === 'slow' ? minMs !== '' && failed === '' : failed === '' && minMs === '')
      ? 'page'
      : undefined;
  return (
    <>
      <h1>Traces</h1>
      <ById />
      <Filter query={address.query} />
      <nav class="tabs" aria-label="Which traces">
        <a href={pageAddress('traces', others)} aria-current={is('recent')}>
          Recent
        </a>
        <a href={pageAddress('traces', { ...others, failed: '1' })} aria-current={is('failed')} data-test="traces-failed">
          Failed
        </a>
        <a href={pageAddress('traces', { ...others, min_ms: SLOW_MS })} aria-current={is('slow')}>
          Slow (over 1 s)
        </a>
        {(capability !== '' || agent !== '' || code !== '') && (
          <span class="chip">
            {capability !== '' && `of ${capability} `}
            {agent !== '' && `with ${agent} `}
            {code !== '' && `that ended with ${code} `}
            <a href={pageAddress('traces', { failed, min_ms: minMs })}>show all</a>
          </span>
        )}
      </nav>
      <Shown asked={asked} what="traces">
        {({ traces }) => <TraceTable rows={traces} />}
      </Shown>
    </>
  );
}

function ById() {
  const [id, setId] = useState('');
  const wanted = traceIdIn(id);
  const isWrong = id.trim() !== '' && wanted === null;
  return (
    <form
      class="tools"
      onSubmit={(event) => {
        event.preventDefault();
        if (wanted !== null) location.hash = itemAddress('trace', wanted);
      }}
    >
      <input
        class="wide-input mono"
        data-test="trace-search"
        aria-label="Trace id"
        placeholder="Trace id, or a traceparent header"
        value={id}
        onInput={(event) => setId(event.currentTarget.value)}
      />
      <button type="submit" disabled={wanted === null}>
        Open
      </button>
      {isWrong && <span class="muted small">A trace id has 32 hex digits.</span>}
    </form>
  );
}

const FILTERS = [
  ['capability', 'Capability, or crm.*'],
  ['agent', 'Agent, or crm.order.*'],
  ['code', 'Code, such as 1003'],
  ['min_ms', 'Took at least, in ms'],
] as const;

function Filter({ query }: { readonly query: Readonly<Record<string, string>> }) {
  const [given, setGiven] = useState(query);
  useEffect(() => setGiven(query), [writeQuery(query)]);
  return (
    <form
      class="tools"
      onSubmit={(event) => {
        event.preventDefault();
        location.hash = pageAddress('traces', given);
      }}
    >
      {FILTERS.map(([name, hint]) => (
        <input
          key={name}
          data-test={`traces-${name}`}
          aria-label={hint}
          placeholder={hint}
          value={given[name] ?? ''}
          onInput={(event) => setGiven({ ...given, [name]: event.currentTarget.value.trim() })}
        />
      ))}
      <button type="submit">Filter</button>
    </form>
  );
}

export function TraceTable({ rows }: { readonly rows: readonly TraceRow[] }) {
  return (
    <Table
      label="traces"
      rows={rows}
      keyOf={(row) => row.trace_id}
      words={(row) => `${row.capability} ${row.caller} ${row.code} ${row.trace_id}`}
      search="Search these ( / )"
      empty="No trace of this kind is kept. Traces are kept for a while only, and errors and slow ones longest."
      test="trace-row"
      marks={(row) => ({ trace: row.trace_id, failed: row.failed })}
      columns={[
        { id: 'trace', head: 'Trace', cell: (row) => <TraceLink id={row.trace_id} test="trace-link" row /> },
        { id: 'at', head: 'Began', by: (row) => row.start_ms, isTime: true, cell: (row) => <Time ms={row.start_ms} /> },
        { id: 'capability', head: 'Capability', by: (row) => row.capability, cell: (row) => <CapabilityLink name={row.capability} /> },
        { id: 'caller', head: 'Caller', from: 'medium', by: (row) => row.caller, cell: (row) => <AgentLink name={row.caller} /> },
        { id: 'result', head: 'Result', by: (row) => row.code, cell: (row) => <CodeWord code={row.code} /> },
        { id: 'spans', head: 'Spans', isNumber: true, from: 'wide', by: (row) => row.spans, cell: (row) => count(row.spans) },
        { id: 'took', head: 'Took', isNumber: true, by: (row) => row.elapsed_ms, cell: (row) => duration(row.elapsed_ms) },
      ]}
    />
  );
}
