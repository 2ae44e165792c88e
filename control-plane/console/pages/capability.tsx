/** One capability, for somebody who was called because of it: how it does, who serves it and in what condition, what limits it, what failed. */
import { pageAddress } from '../address.ts';
import { useApi, useConsole } from '../context.tsx';
import { bytes, clock, count, duration, many, percent, rate, span } from '../format.ts';
import { Chart } from '../parts/chart.tsx';
import { EdgeTable } from '../parts/edges.tsx';
import { OverrideList } from '../parts/overrides.tsx';
import { Actions, Empty, Shown, ViewerNote } from '../parts/states.tsx';
import { Table } from '../parts/table.tsx';
import { AgentLink, Badge, CodeWord, ErrorShare, Facts, Time, TraceLink } from '../parts/words.tsx';
import type { Affinity, CapabilityShown, FailureRow, Limits, OverrideAction, ServingRow, VersionRow } from '../shapes.ts';
import { TOPICS } from '../topics.ts';
import { Standing } from './agents.tsx';
import { limitWords } from './quotas.tsx';

export function CapabilityPage({ name }: { readonly name: string }) {
  const asked = useApi<CapabilityShown>(`/v1/capabilities/${encodeURIComponent(name)}/view`, TOPICS.capability);
  return (
    <>
      <p class="crumbs">
        <a href={pageAddress('capabilities')}>Capabilities</a>
      </p>
      <h1 data-test="capability-head">{name}</h1>
      <Shown asked={asked} what="capability">
        {(view) => <View view={view} again={asked.again} />}
      </Shown>
    </>
  );
}

function View({ view, again }: { readonly view: CapabilityShown; readonly again: () => void }) {
  const { lately, minutes } = view;
  const times = minutes.map((minute) => clock(minute.at_ms).slice(0, 5));
  return (
    <>
      {view.versions.length === 0 && (
        <p class="box warn" data-test="unregistered">
          No contract of it is registered{view.provider_list.length === 0 ? ', and nobody offers it: it is only asked for' : ''}.
        </p>
      )}
      {view.versions[0]?.description !== undefined && <p class="lead">{view.versions[0].description}</p>}
      <Facts
        facts={[
          ['Calls', rate(lately.calls_per_s)],
          ['Errors', <ErrorShare key="e" share={lately.error_share} />],
          ['P50', duration(lately.p50_ms)],
          ['P95', duration(lately.p95_ms)],
          ['P99', duration(lately.p99_ms)],
          ['Providers', `${view.online} of ${view.providers} online`],
          view.aliases.length === 0 ? null : ['Also called', view.aliases.join(', ')],
          view.default_range === null ? null : ['Without a range', view.default_range],
        ]}
      />
      {lately.codes.length > 0 && (
        <p>
          Lately:{' '}
          {lately.codes.map(({ code, count: times_ }, i) => (
            <span key={code}>
              {i > 0 && ', '}
              {count(times_)} × <CodeWord code={code} />
            </span>
          ))}
        </p>
      )}
      <RedHere name={view.capability} />
      <section aria-label="Overrides in force">
        {view.overrides.length > 0 && (
          <div class="box bad">
            <OverrideList overrides={view.overrides} again={again} empty="" />
          </div>
        )}
      </section>
      <div class="charts">
        <Chart
          label="Calls and failures per minute"
          times={times}
          lines={[
            { name: 'calls', tone: 'plain', values: minutes.map(({ calls }) => calls) },
            { name: 'failed', tone: 'bad', values: minutes.map(({ failed }) => failed) },
          ]}
          words={(value) => count(Math.round(value))}
        />
        <Chart
          label="P95 per minute"
          times={times}
          lines={[{ name: 'P95', tone: 'plain', values: minutes.map(({ p95_ms: p95 }) => p95) }]}
          words={duration}
        />
      </div>
      <h2>Recent failures</h2>
      <Failures rows={view.failures} />
      <p>
        <a href={pageAddress('traces', { capability: view.capability })}>All its traces</a> ·{' '}
        <a href={pageAddress('traces', { capability: view.capability, failed: '1' })}>all that failed</a>
      </p>
      <h2>Providers</h2>
      <Providers rows={view.provider_list} />
      <h2>Versions</h2>
      <Versions view={view} />
      <h2>Who calls it</h2>
      <EdgeTable edges={view.callers} empty="Nobody has called it in the last minutes." />
      {view.quotas.length > 0 && (
        <>
          <h2>Quotas</h2>
          <ul class="plain">
            {view.quotas.map((quota) => (
              <li key={`${quota.kind} ${quota.target}`}>
                {quota.kind} <span class="mono">{quota.target}</span>: {limitWords(quota)}
                {quota.refused > 0 && <span class="warn-text">, {count(quota.refused)} refused</span>}
              </li>
            ))}
          </ul>
        </>
      )}
      {view.shifts.map((shift) => (
        <p key={shift.id} class="box accent">
          A shift of traffic to {shift.to} is {shift.status}: {percent(shift.share)}. <a href={pageAddress('shifts')}>See it</a>
        </p>
      ))}
    </>
  );
}

const RED: readonly OverrideAction[] = ['block', 'drain', 'reroute', 'degrade'];

function RedHere({ name }: { readonly name: string }) {
  const { openRed } = useConsole();
  return (
    <>
      <Actions>
        {RED.map((action) => (
          <button
            key={action}
            class="bad"
            data-test={`red-here-${action}`}
            onClick={() => openRed({ action, target: { capability: name } })}
          >
            {action[0]?.toUpperCase()}
            {action.slice(1)} …
          </button>
        ))}
      </Actions>
      <ViewerNote />
    </>
  );
}

function Failures({ rows }: { readonly rows: readonly FailureRow[] }) {
  if (rows.length === 0) return <Empty>No call of it has failed lately.</Empty>;
  return (
    <Table
      label="recent failures"
      rows={rows}
      keyOf={({ trace_id: id }) => id}
      empty=""
      size={10}
      test="failure-row"
      marks={({ trace_id: trace }) => ({ trace })}
      columns={[
        { id: 'trace', head: 'Trace', cell: (row) => <TraceLink id={row.trace_id} test="failure-link" row /> },
        { id: 'at', head: 'When', isTime: true, cell: (row) => (row.at_ms === null ? '–' : <Time ms={row.at_ms} />) },
        { id: 'code', head: 'Result', cell: (row) => <CodeWord code={row.code} /> },
        { id: 'caller', head: 'Caller', from: 'medium', cell: (row) => <AgentLink name={row.caller} /> },
        { id: 'provider', head: 'Provider', from: 'medium', cell: (row) => <AgentLink name={row.provider} /> },
        { id: 'took', head: 'Took', isNumber: true, by: (row) => row.elapsed_ms, cell: (row) => duration(row.elapsed_ms) },
      ]}
    />
  );
}

const BREAKER_WORDS: Readonly<Record<ServingRow['breaker']['state'], string>> = {
  closed: 'closed',
  open: 'open',
  half_open: 'half open',
  ramping: 'ramping',
};

function Breaker({ row }: { readonly row: ServingRow }) {
  const { breaker } = row;
  if (breaker.state === 'closed') return <span class="muted">closed</span>;
  return (
    <span title={`${breaker.why}${breaker.sidecars.length > 0 ? `\nat ${breaker.sidecars.join(', ')}` : ''}`}>
      <Badge tone={breaker.state === 'open' ? 'bad' : 'warn'}>{BREAKER_WORDS[breaker.state]}</Badge>
      {breaker.since_ms !== null && (
        <span class="muted small">
          {' '}
          <Time ms={breaker.since_ms} />
        </span>
      )}
    </span>
  );
}

function Providers({ rows }: { readonly rows: readonly ServingRow[] }) {
  return (
    <Table
      label="providers"
      rows={rows}
      keyOf={({ agent }) => agent}
      {...(rows.length > 10
        ? { words: (row: ServingRow) => `${row.agent} ${row.status} ${row.versions.join(' ')} ${row.zone ?? ''}` }
        : {})}
      empty="Nobody serves it at present: calls fail with 2001."
      test="provider-row"
      marks={({ agent, status, breaker }) => ({ name: agent, status, breaker: breaker.state })}
      columns={[
        { id: 'agent', head: 'Provider', by: (row) => row.agent, cell: (row) => <AgentLink name={row.agent} row /> },
        { id: 'status', head: 'Standing', by: (row) => row.status, cell: (row) => <Standing row={row} /> },
        { id: 'breaker', head: 'Breaker', by: (row) => row.breaker.state, cell: (row) => <Breaker row={row} /> },
        {
          id: 'flight',
          head: 'In flight',
          isNumber: true,
          by: (row) => row.in_flight,
          cell: (row) => (row.slots === null ? count(row.in_flight) : `${count(row.in_flight)} of ${count(row.slots)}`),
        },
        {
          id: 'failures',
          head: 'Attempts failed',
          isNumber: true,
          from: 'medium',
          by: (row) => (row.attempts === 0 ? null : row.failures / row.attempts),
          cell: (row) =>
            row.attempts === 0 ? (
              '–'
            ) : (
              <span title={`${count(row.failures)} of ${count(row.attempts)}`}>{percent(row.failures / row.attempts)}</span>
            ),
        },
        { id: 'p95', head: 'P95', isNumber: true, from: 'medium', by: (row) => row.p95_ms, cell: (row) => duration(row.p95_ms) },
        { id: 'version', head: 'Versions', from: 'wide', cell: (row) => <span class="mono">{row.versions.join(', ')}</span> },
        {
          id: 'weight',
          head: 'Weight',
          isNumber: true,
          from: 'wide',
          by: (row) => row.weight,
          cell: (row) => `${row.weight}${row.tier === 'primary' ? '' : ` ${row.tier}`}`,
        },
        { id: 'zone', head: 'Zone', from: 'wide', by: (row) => row.zone, cell: (row) => row.zone ?? '–' },
        {
          id: 'activity',
          head: 'Last activity',
          isNumber: true,
          from: 'wide',
          by: (row) => row.last_activity_ms,
          cell: (row) => (row.last_activity_ms === null ? '–' : `${span(row.last_activity_ms)} ago`),
        },
      ]}
    />
  );
}

function Versions({ view }: { readonly view: CapabilityShown }) {
  return (
    <Table
      label="versions"
      rows={view.versions}
      keyOf={({ version }) => version}
      empty="No contract of it is registered."
      test="version-row"
      columns={[
        {
          id: 'version',
          head: 'Version',
          cell: (row: VersionRow) => (
            <>
              <span class="mono">{row.version}</span> {row.source !== 'agents' && <Badge tone="plain">{row.source}</Badge>}
            </>
          ),
        },
        {
          id: 'canary',
          head: 'Canary',
          isNumber: true,
          cell: (row) => (view.canary === null ? '–' : percent(view.canary[row.version] ?? null)),
        },
        { id: 'online', head: 'Providers', isNumber: true, cell: (row) => `${row.online} of ${row.providers}` },
        { id: 'execution', head: 'May run', from: 'medium', cell: (row) => `${row.execution}${row.streaming ? ', streams' : ''}` },
        { id: 'affinity', head: 'Affinity', from: 'medium', cell: (row) => affinityWords(view.affinity[row.version] ?? null) },
        { id: 'limits', head: 'Limits', from: 'wide', cell: (row) => limitsWords(view.limits[row.version]) },
        { id: 'acl', head: 'Who may call', from: 'wide', cell: (row) => row.acl.join(', ') },
      ]}
    />
  );
}

function affinityWords(affinity: Affinity | null): string {
  if (affinity === null) return 'none';
  const from = 'header' in affinity.from ? `header ${affinity.from.header}` : `payload ${affinity.from.pointer}`;
  return `${affinity.mode}, by ${from}${affinity.required ? ', required' : ''}`;
}

function limitsWords(limits: Limits | undefined): string {
  if (limits === undefined) return 'none';
  return [
    `attempt ${duration(limits.timeoutMs)}`,
    `deadline ${duration(limits.deadlineMs)}`,
    `${many(limits.perCaller, 'call')} per caller`,
    `${many(limits.perProvider, 'call')} per provider`,
    `request ${bytes(limits.requestBytes)}`,
    `answer ${bytes(limits.responseBytes)}`,
  ].join(', ');
}
