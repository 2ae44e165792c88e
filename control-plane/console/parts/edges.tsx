/** Who calls whom, as a table. */
import { duration, rate } from '../format.ts';
import type { Edge } from '../shapes.ts';
import { Table } from './table.tsx';
import { AgentLink, CapabilityLink, CodeWord, ErrorShare, TraceLink } from './words.tsx';

export function EdgeTable({ edges, empty, find }: { readonly edges: readonly Edge[]; readonly empty: string; readonly find?: string }) {
  return (
    <Table
      label="calls"
      rows={edges}
      keyOf={(row) => `${row.caller} ${row.capability} ${row.version} ${row.provider}`}
      {...(find === undefined ? { words: (row: Edge) => `${row.caller} ${row.capability} ${row.version} ${row.provider}` } : {})}
      search="Search callers, capabilities, providers"
      empty={empty}
      sorting={{ column: 'errors', isDown: true }}
      test="edge-row"
      columns={[
        { id: 'caller', head: 'Caller', by: (row) => row.caller, cell: (row) => <AgentLink name={row.caller} row /> },
        {
          id: 'capability',
          head: 'Capability',
          by: (row) => row.capability,
          cell: (row) => (
            <>
              <CapabilityLink name={row.capability} />
              <span class="muted small">{row.version === '' ? '' : `@${row.version}`}</span>
            </>
          ),
        },
        { id: 'provider', head: 'Provider', from: 'medium', by: (row) => row.provider, cell: (row) => <AgentLink name={row.provider} /> },
        { id: 'rate', head: 'Calls', isNumber: true, by: (row) => row.calls_per_s, cell: (row) => rate(row.calls_per_s) },
        {
          id: 'errors',
          head: 'Errors',
          isNumber: true,
          by: (row) => row.error_share,
          cell: (row) => <ErrorShare share={row.error_share} />,
          title: 'Share of the calls that failed',
        },
        { id: 'p50', head: 'P50', isNumber: true, from: 'wide', by: (row) => row.p50_ms, cell: (row) => duration(row.p50_ms) },
        { id: 'p95', head: 'P95', isNumber: true, from: 'medium', by: (row) => row.p95_ms, cell: (row) => duration(row.p95_ms) },
        {
          id: 'examples',
          head: 'Look at',
          from: 'wide',
          cell: (row) =>
            row.examples.map((each) => (
              <span key={each.trace_id} class="example">
                <TraceLink id={each.trace_id} />{' '}
                {each.code === 0 ? <span class="muted">{duration(each.elapsed_ms)}</span> : <CodeWord code={each.code} />}
              </span>
            )),
        },
      ]}
    />
  );
}
