/** The agents that serve, and one of them: where it stands, what it offers, who calls it and whom it calls. */
import { itemAddress, pageAddress, writeQuery } from '../address.ts';
import { useApi, useConsole } from '../context.tsx';
import { count, many, span } from '../format.ts';
import { numberGiven } from '../given.ts';
import { ActButton } from '../parts/dialog.tsx';
import { EdgeTable } from '../parts/edges.tsx';
import { Actions, Empty, Shown, ViewerNote } from '../parts/states.tsx';
import { Table } from '../parts/table.tsx';
import { AgentLink, Badge, Facts, SidecarLink, Time } from '../parts/words.tsx';
import type { ProviderRow, ProvidersAnswer, Topology, TracesAnswer } from '../shapes.ts';
import { TOPICS } from '../topics.ts';
import { TraceTable } from './traces.tsx';

export function AgentsPage() {
  const asked = useApi<ProvidersAnswer>('/v1/providers', TOPICS.agents);
  return (
    <>
      <h1>Agents</h1>
      <Shown asked={asked} what="agents">
        {({ providers }) => (
          <Table
            label="agents"
            rows={[...providers].sort((a, b) => worst(a) - worst(b))}
            keyOf={({ agent }) => agent}
            words={(row) => `${row.agent} ${row.role} ${row.status} ${row.sidecar} ${row.zone ?? ''} ${row.offers.join(' ')}`}
            search="Search agents, capabilities, sidecars ( / )"
            empty="No agent has registered yet."
            test="agent-row"
            marks={({ agent, status }) => ({ name: agent, status })}
            columns={[
              { id: 'agent', head: 'Agent', by: (row) => row.agent, cell: (row) => <AgentLink name={row.agent} row /> },
              { id: 'status', head: 'Standing', by: worst, cell: (row) => <Standing row={row} /> },
              {
                id: 'offers',
                head: 'Offers',
                from: 'medium',
                isNumber: true,
                by: (row) => row.offers.length,
                cell: (row) => <span title={row.offers.join('\n')}>{many(row.offers.length, 'capability', 'capabilities')}</span>,
              },
              { id: 'flight', head: 'In flight', isNumber: true, by: (row) => row.in_flight, cell: (row) => count(row.in_flight) },
              {
                id: 'activity',
                head: 'Last activity',
                from: 'medium',
                isNumber: true,
                by: (row) => row.last_activity_ms,
                cell: (row) => (row.last_activity_ms === null ? 'not known' : `${span(row.last_activity_ms)} ago`),
              },
              { id: 'sidecar', head: 'Sidecar', from: 'wide', by: (row) => row.sidecar, cell: (row) => <SidecarLink name={row.sidecar} /> },
              { id: 'zone', head: 'Zone', from: 'wide', by: (row) => row.zone, cell: (row) => row.zone ?? '–' },
            ]}
          />
        )}
      </Shown>
    </>
  );
}

function worst(row: ProviderRow): number {
  return row.status === 'offline' ? 0 : row.status === 'overdue' ? 1 : row.drain ? 2 : 3;
}

export function Standing({ row }: { readonly row: Pick<ProviderRow, 'status' | 'why' | 'drain'> }) {
  return (
    <>
      <Badge tone={row.status === 'online' ? 'good' : row.status === 'offline' ? 'bad' : 'warn'} title={row.why ?? ''}>
        {row.status}
      </Badge>
      {row.drain && <Badge tone="warn">drained</Badge>}
    </>
  );
}

export function AgentPage({ id }: { readonly id: string }) {
  const asked = useApi<ProvidersAnswer>('/v1/providers', TOPICS.agents);
  const topology = useApi<Topology>(`/v1/topology${writeQuery({ window: '5m', agent: id, limit: 500 })}`, TOPICS.topology);
  const traces = useApi<TracesAnswer>(`/v1/traces${writeQuery({ agent: id, failed: '1', limit: 20 })}`, TOPICS.traces);
  return (
    <>
      <p class="crumbs">
        <a href={pageAddress('agents')}>Agents</a>
      </p>
      <h1>{id}</h1>
      <Shown asked={asked} what="agents">
        {({ providers }) => {
          const row = providers.find(({ agent }) => agent === id);
          return row === undefined ? (
            <Empty>{id} offers nothing at present; what is known of its calls stands below.</Empty>
          ) : (
            <One row={row} again={asked.again} />
          );
        }}
      </Shown>
      <AgentRed id={id} />
      <h2>Calls in the last 5 minutes</h2>
      <p>
        <a href={pageAddress('topology', { focus: id })}>Show its neighbours in the topology</a>
      </p>
      <Shown asked={topology} what="calls">
        {({ edges }) => <EdgeTable edges={edges} empty={`${id} took part in no call.`} />}
      </Shown>
      <h2>Failed lately</h2>
      <Shown asked={traces} what="traces">
        {(answer) => <TraceTable rows={answer.traces} />}
      </Shown>
    </>
  );
}

function AgentRed({ id }: { readonly id: string }) {
  const { openRed } = useConsole();
  return (
    <>
      <Actions>
        <button class="bad" data-test="red-here-block" onClick={() => openRed({ action: 'block', target: { agent: id } })}>
          Block this agent …
        </button>
        <button class="bad" data-test="red-here-drain" onClick={() => openRed({ action: 'drain', target: { provider: id } })}>
          Drain by override …
        </button>
      </Actions>
      <ViewerNote />
    </>
  );
}

function One({ row, again }: { readonly row: ProviderRow; readonly again: () => void }) {
  const { client } = useConsole();
  const path = `/v1/providers/${encodeURIComponent(row.agent)}`;
  return (
    <>
      <Facts
        facts={[
          ['Standing', <Standing key="s" row={row} />],
          row.why === null ? null : ['Why', row.why],
          row.offline_since_ms === null ? null : ['Offline since', <Time key="o" ms={row.offline_since_ms} />],
          ['Role', row.role],
          ['Sidecar', <SidecarLink key="c" name={row.sidecar} />],
          row.via === null ? null : ['Reached through', <SidecarLink key="v" name={row.via} />],
          ['Address', `${row.address} (${row.transport})`],
          ['In flight', count(row.in_flight)],
          ['Weight', `${row.weight}${row.operator?.weight == null ? '' : ' (set by an operator)'}`],
          ['Tier', row.tier],
          ['Zone', [row.region, row.zone].filter((each) => each !== null).join(' / ') || '–'],
          ['Last activity', row.last_activity_ms === null ? 'not known' : `${span(row.last_activity_ms)} ago`],
          row.lease_left_ms === null ? null : ['Lease left', span(row.lease_left_ms)],
        ]}
      />
      <p>
        Offers{' '}
        {row.offers.map((offer, i) => (
          <span key={offer}>
            {i > 0 && ', '}
            <a href={itemAddress('capability', offer.split('@', 1)[0] as string)} class="name">
              {offer}
            </a>
          </span>
        ))}
      </p>
      <Actions>
        {row.drain ? (
          <ActButton
            act={{
              label: 'Restore',
              words: `${row.agent} gets new calls again, with the weight of its record.`,
              hasReason: true,
              run: ({ reason }) => client.order('POST', `${path}/restore`, { reason }),
              done: `${row.agent} is restored.`,
              after: again,
            }}
          />
        ) : (
          <ActButton
            act={{
              label: 'Drain',
              words: `${row.agent} gets no new calls; those under way end in peace. It stays so until it is restored.`,
              hasReason: true,
              run: ({ reason }) => client.order('POST', `${path}/drain`, { reason }),
              done: `${row.agent} is drained.`,
              after: again,
            }}
          />
        )}
        <ActButton
          act={{
            label: 'Set weight',
            words: `Its share beside the others of its tier, now ${row.weight}: 2 takes twice as much as 1, 0 takes nothing.`,
            field: { label: 'Weight', hint: '1', value: String(row.weight) },
            hasReason: true,
            run: ({ reason, field }) => client.order('PUT', `${path}/weight`, { weight: numberGiven(field), reason }),
            done: 'The weight is set.',
            after: again,
          }}
        />
      </Actions>
    </>
  );
}
