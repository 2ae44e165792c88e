/** First what is wrong, in sentences, worst first, each with the way to it; then the totals; then what can be asked for, worst first. */
import { useState } from 'preact/hooks';
import { pageAddress } from '../address.ts';
import { useApi } from '../context.tsx';
import { count, duration, many, percent, rate } from '../format.ts';
import { useKeptFocus } from '../parts/focus.tsx';
import { Shown } from '../parts/states.tsx';
import { Table } from '../parts/table.tsx';
import { AgentLink, Badge, CapabilityLink, ErrorShare, SidecarLink, Spark, Time, type Tone, TraceLink } from '../parts/words.tsx';
import { keysOf } from '../rows.ts';
import type { CapabilityRow, Overview, ProblemShown } from '../shapes.ts';
import { TOPICS } from '../topics.ts';

const TONES: Readonly<Record<string, Tone>> = { critical: 'bad', warning: 'warn', info: 'accent' };

const FIRST_ROWS = 200;
const ALL_ROWS = 2_000;

export function OverviewPage() {
  // The worst are enough to begin with; all are asked for when somebody searches, sorts or turns the page.
  const [limit, setLimit] = useState(FIRST_ROWS);
  const asked = useApi<Overview>(`/v1/overview?limit=${limit}`, TOPICS.overview, { isSame: true });
  return (
    <Shown asked={asked} what="overview">
      {(overview) => (
        <>
          <Problems
            problems={overview.problems}
            total={overview.problems_total}
            agents={overview.totals.agents}
            isSure={overview.unknown.length === 0}
          />
          <Totals totals={overview.totals} />
          {overview.unknown.map((each) => (
            <p key={each} class="muted small">
              {each}.
            </p>
          ))}
          <section aria-labelledby="capabilities-head">
            <h2 id="capabilities-head">Capabilities, worst first</h2>
            <CapabilityTable rows={overview.capabilities} of={overview.totals.capabilities} onLook={() => setLimit(ALL_ROWS)} />
          </section>
        </>
      )}
    </Shown>
  );
}

/** Beyond it, one asks for them: the capabilities below are worst first too. */
const SHOWN_PROBLEMS = 12;

interface ProblemsProps {
  readonly problems: readonly ProblemShown[];
  readonly total: number;
  readonly agents: number;
  readonly isSure: boolean;
}

function Problems({ problems, total, agents, isSure }: ProblemsProps) {
  const [isAll, setAll] = useState(false);
  const shown = isAll ? problems : problems.slice(0, SHOWN_PROBLEMS);
  const list = useKeptFocus<HTMLUListElement>();
  // Whose fault a failing capability is, and at how many sidecars a breaker is open, changes with the figures.
  const keys = keysOf(shown, ({ kind, capability, agent, sidecar }) => (capability === null ? [kind, agent, sidecar] : [kind, capability]));
  return (
    <section aria-labelledby="problems-head">
      <h1 id="problems-head">{total === 0 ? 'Nothing is wrong' : many(total, 'thing is wrong', 'things are wrong')}</h1>
      {problems.length === 0 ? (
        <p class="box good">
          {agents === 0
            ? 'No agent has registered yet.'
            : `${isSure ? 'All' : 'As far as this replica knows, all'} agents answer, no breaker is open, no alert fires and no message waits for a person.`}
        </p>
      ) : (
        <ul class="problems" ref={list}>
          {shown.map((problem, i) => (
            <Problem key={keys[i]} problem={problem} />
          ))}
        </ul>
      )}
      {shown.length < problems.length && (
        <button data-test="more-problems" onClick={() => setAll(true)}>
          Show {count(problems.length - shown.length)} more
        </button>
      )}
      {isAll && total > problems.length && <p class="muted small">The {count(total - problems.length)} that weigh least are not shown.</p>}
    </section>
  );
}

function Problem({ problem }: { readonly problem: ProblemShown }) {
  const { severity, words, capability, agent, sidecar, trace_id: trace, since_ms: since } = problem;
  return (
    <li class={`problem ${TONES[severity] ?? 'plain'}`} data-test="problem" data-kind={problem.kind} data-severity={severity}>
      <Badge tone={TONES[severity] ?? 'plain'}>{severity}</Badge>
      <span class="problem-words">{words}</span>
      <span class="problem-links">
        {capability !== null && <CapabilityLink name={capability} test="problem-capability" row />}
        {agent !== null && <AgentLink name={agent} test="problem-agent" row />}
        {sidecar !== null && <SidecarLink name={sidecar} test="problem-sidecar" />}
        {trace !== null && (
          <TraceLink id={trace} test="problem-trace" row>
            a trace of it
          </TraceLink>
        )}
        {since !== null && (
          <span class="muted small">
            <Time ms={since} />
          </span>
        )}
      </span>
    </li>
  );
}

function Totals({ totals }: { readonly totals: Overview['totals'] }) {
  const { sidecars, messages } = totals;
  const all = sidecars.current + sidecars.behind + sidecars.stale + sidecars.missing;
  const off = all - sidecars.current;
  return (
    <section class="totals" aria-label="Totals">
      <Total label="Calls" value={rate(totals.calls_per_s)} href={pageAddress('topology')} />
      <Total
        label="Errors"
        value={percent(totals.error_share)}
        tone={totals.error_share >= 0.05 ? 'bad' : ''}
        href={pageAddress('traces', { failed: '1' })}
      />
      <Total label="P95" value={duration(totals.p95_ms)} href={pageAddress('traces')} />
      <Total
        label="Agents"
        value={count(totals.agents)}
        note={totals.agents_offline > 0 ? `${count(totals.agents_offline)} offline` : 'all online'}
        tone={totals.agents_offline > 0 ? 'warn' : ''}
        href={pageAddress('agents')}
      />
      <Total label="Capabilities" value={count(totals.capabilities)} href={pageAddress('capabilities')} />
      <Total
        label="Sidecars"
        value={count(all)}
        note={off === 0 ? 'all current' : `${count(off)} not current`}
        tone={sidecars.missing > 0 ? 'bad' : off > 0 ? 'warn' : ''}
        href={pageAddress('fleet')}
      />
      <Total
        label="Messages waiting"
        value={count(messages.waiting)}
        note={`${count(messages.dead)} dead · ${count(messages.in_doubt)} in doubt · ${count(messages.review)} to review · ${count(messages.parked)} pools parked`}
        tone={(messages.dead ?? 0) + (messages.in_doubt ?? 0) + (messages.review ?? 0) > 0 ? 'warn' : ''}
        href={pageAddress('messages')}
      />
    </section>
  );
}

interface TotalProps {
  readonly label: string;
  readonly value: string;
  readonly note?: string;
  readonly tone?: string;
  readonly href: string;
}

function Total({ label, value, note, tone = '', href }: TotalProps) {
  return (
    <a class="total" href={href}>
      <span class="total-label">{label}</span>
      <span class={`total-value ${tone === '' ? '' : `${tone}-text`}`}>{value}</span>
      {note !== undefined && <span class="total-note">{note}</span>}
    </a>
  );
}

interface CapabilityTableProps {
  readonly rows: readonly CapabilityRow[];
  readonly of: number;
  readonly onLook: () => void;
}

function CapabilityTable({ rows, of, onLook }: CapabilityTableProps) {
  return (
    <Table
      label="capabilities"
      rows={rows}
      of={of}
      onLook={onLook}
      keyOf={({ capability }) => capability}
      words={({ capability }) => capability}
      search="Search capabilities ( / )"
      empty="Nothing can be asked for yet: no agent has registered."
      test="capability-row"
      marks={({ capability }) => ({ name: capability })}
      columns={[
        {
          id: 'name',
          head: 'Capability',
          by: ({ capability }) => capability,
          cell: ({ capability }) => <CapabilityLink name={capability} test="capability-link" row />,
        },
        {
          id: 'errors',
          head: 'Errors',
          isNumber: true,
          by: (row) => row.error_share,
          cell: (row) => <ErrorShare share={row.error_share} />,
        },
        { id: 'rate', head: 'Calls', isNumber: true, by: (row) => row.calls_per_s, cell: (row) => rate(row.calls_per_s) },
        { id: 'p50', head: 'P50', isNumber: true, from: 'wide', by: (row) => row.p50_ms, cell: (row) => duration(row.p50_ms) },
        { id: 'p95', head: 'P95', isNumber: true, by: (row) => row.p95_ms, cell: (row) => duration(row.p95_ms) },
        { id: 'p99', head: 'P99', isNumber: true, from: 'wide', by: (row) => row.p99_ms, cell: (row) => duration(row.p99_ms) },
        {
          id: 'providers',
          head: 'Providers',
          isNumber: true,
          from: 'medium',
          by: (row) => row.providers - row.offline,
          cell: (row) => (
            <span class={row.offline > 0 ? 'warn-text' : ''} title={`${row.providers - row.offline} of ${row.providers} online`}>
              {row.offline > 0 ? `${row.providers - row.offline} of ${row.providers}` : row.providers}
            </span>
          ),
        },
        {
          id: 'breakers',
          head: 'Open breakers',
          isNumber: true,
          from: 'wide',
          by: (row) => row.breakers_open,
          cell: (row) => <span class={row.breakers_open > 0 ? 'bad-text' : 'muted'}>{row.breakers_open}</span>,
        },
        {
          id: 'spark',
          head: 'Calls per minute',
          from: 'medium',
          cell: (row) => <Spark values={row.spark} label={`Calls of ${row.capability} per minute`} />,
        },
      ]}
    />
  );
}
