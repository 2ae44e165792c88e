/** Messages: pools and their lanes, what is parked, and what is kept for people (dead, in doubt, to review) with what they can do. */
import { useState } from 'preact/hooks';
import { itemAddress, pageAddress, traceIdIn, writeQuery } from '../address.ts';
import { useApi, useConsole } from '../context.tsx';
import { bytes, count, many, span } from '../format.ts';
import { ActButton } from '../parts/dialog.tsx';
import { Actions, Empty, Shown, ViewerNote } from '../parts/states.tsx';
import { Table } from '../parts/table.tsx';
import { AgentLink, Badge, CapabilityLink, CodeWord, Facts, Time, TraceLink } from '../parts/words.tsx';
import type { KeptAnswer, KeptRow, KeptShown, ParkedAnswer, PoolRow, PoolsAnswer } from '../shapes.ts';
import { TOPICS } from '../topics.ts';

const VIEWS = [
  ['pools', 'Lanes and pools'],
  ['parked', 'Parked'],
  ['dead', 'Dead letters'],
  ['in_doubt', 'In doubt'],
  ['review', 'Human review'],
] as const;

const ABOUT: Readonly<Record<string, string>> = {
  dead: 'What was tried as often as it may be, or can never work. Release puts it back into the queue.',
  in_doubt:
    'What may run only once and may have run: whoever took it went away in the midst. Release may carry it out a second time, on your word.',
  review: 'What a rule wants a person to look at before it goes on.',
};

export function MessagesPage() {
  const { address } = useConsole();
  const view = VIEWS.find(([name]) => name === address.query['view'])?.[0] ?? 'pools';
  return (
    <>
      <h1>Messages</h1>
      <nav class="tabs" aria-label="Which messages">
        {VIEWS.map(([name, label]) => (
          <a
            key={name}
            href={pageAddress('messages', { view: name })}
            aria-current={name === view ? 'page' : undefined}
            data-test={`messages-${name}`}
          >
            {label}
          </a>
        ))}
      </nav>
      <ViewerNote />
      {view === 'pools' ? <Pools /> : view === 'parked' ? <Parked /> : <Kept key={view} kind={view} />}
    </>
  );
}

function Pools() {
  const asked = useApi<PoolsAnswer>('/v1/pools', TOPICS.messages);
  return (
    <Shown asked={asked} what="pools">
      {({ pools }) => (
        <>
          <Lanes pools={pools} />
          <PoolTable pools={pools} label="pools" empty="There is no pool: no message has been sent yet." />
        </>
      )}
    </Shown>
  );
}

function Lanes({ pools }: { readonly pools: readonly PoolRow[] }) {
  const lanes = new Map<string, number>();
  for (const pool of pools) for (const [lane, waiting] of Object.entries(pool.lanes)) lanes.set(lane, (lanes.get(lane) ?? 0) + waiting);
  return (
    <Facts
      facts={[
        ...['high', 'normal', 'low'].map((lane) => [`Lane ${lane}`, count(lanes.get(lane) ?? 0)] as const),
        ['In hand', count(pools.reduce((sum, pool) => sum + pool.in_hand, 0))],
        ['Pools without agents', count(pools.filter(({ agents, drained }) => agents - drained <= 0).length)],
      ]}
    />
  );
}

function PoolTable({
  pools,
  label,
  empty,
  open,
}: {
  readonly pools: readonly PoolRow[];
  readonly label: string;
  readonly empty: string;
  readonly open?: (pool: string) => void;
}) {
  return (
    <Table
      label={label}
      rows={pools}
      keyOf={({ pool }) => pool}
      words={(row) => `${row.words} ${row.capability ?? ''} ${row.pool}`}
      search="Search pools ( / )"
      empty={empty}
      sorting={{ column: 'waiting', isDown: true }}
      test="pool-row"
      marks={({ pool }) => ({ pool })}
      columns={[
        {
          id: 'pool',
          head: 'Pool',
          by: (row) => row.words,
          cell: (row) => (row.capability === null ? row.words : <CapabilityLink name={row.capability} row />),
        },
        { id: 'words', head: 'Who works on it', from: 'wide', cell: (row) => row.words },
        { id: 'waiting', head: 'Waiting', isNumber: true, by: (row) => row.messages, cell: (row) => count(row.messages) },
        {
          id: 'lanes',
          head: 'high / normal / low',
          isNumber: true,
          from: 'medium',
          cell: (row) => `${count(row.lanes['high'] ?? 0)} / ${count(row.lanes['normal'] ?? 0)} / ${count(row.lanes['low'] ?? 0)}`,
        },
        { id: 'hand', head: 'In hand', isNumber: true, from: 'medium', by: (row) => row.in_hand, cell: (row) => count(row.in_hand) },
        {
          id: 'agents',
          head: 'Agents',
          isNumber: true,
          by: (row) => row.agents - row.drained,
          cell: (row) => (
            <span class={row.agents - row.drained <= 0 ? 'bad-text' : ''}>
              {row.agents}
              {row.drained > 0 && ` (${row.drained} drained)`}
            </span>
          ),
        },
        {
          id: 'oldest',
          head: 'Oldest',
          isNumber: true,
          by: (row) => row.oldest_ms,
          cell: (row) => (row.oldest_ms === null ? '–' : span(row.oldest_ms)),
        },
        ...(open === undefined
          ? []
          : [{ id: 'open', head: '', cell: (row: PoolRow) => <button onClick={() => open(row.pool)}>Look</button> }]),
      ]}
    />
  );
}

function Parked() {
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

function Kept({ kind }: { readonly kind: KeptRow['kind'] }) {
  const { client, address } = useConsole();
  const { after = '' } = address.query;
  const asked = useApi<KeptAnswer>(`/v1/tasks/kept${writeQuery({ kind, limit: 100, after })}`, TOPICS.messages);
  return (
    <>
      <p class="muted">{ABOUT[kind]}</p>
      {kind !== 'in_doubt' && (
        <Actions>
          <ActButton
            test="redrive"
            act={{
              label: 'Re-drive many',
              words: `The oldest ${kind === 'dead' ? 'dead letters' : 'tasks to review'}, up to 1,000, go back into the queue, one capability at a time or all.`,
              field: { label: 'Of which capability (* = all)', hint: 'crm.order.query', value: '*' },
              hasReason: true,
              run: ({ field, reason }) =>
                client.order('POST', '/v1/tasks/redrive', { kind, limit: 1_000, reason, ...(field === '*' ? {} : { capability: field }) }),
              done: (answer) => {
                const { redriven, failed } = answer as { readonly redriven: number; readonly failed: readonly { readonly why: string }[] };
                return `${many(redriven, 'task')} went${failed.length === 0 ? '.' : `, ${failed.length} did not: ${failed[0]?.why ?? ''}`}`;
              },
              after: asked.again,
            }}
          />
        </Actions>
      )}
      <Shown asked={asked} what="tasks">
        {({ entries, next }) => (
          <>
            <Table
              label="kept tasks"
              rows={entries}
              keyOf={({ seq }) => String(seq)}
              words={(row) => `${row.task_id} ${row.capability} ${row.source} ${row.code} ${row.name} ${row.detail}`}
              search="Search these ( / )"
              empty={
                kind === 'dead'
                  ? 'There are no dead letters.'
                  : kind === 'in_doubt'
                    ? 'Nothing is in doubt.'
                    : 'Nothing waits for a person.'
              }
              test="kept-row"
              marks={({ task_id }) => ({ task: task_id })}
              columns={[
                {
                  id: 'task',
                  head: 'Task',
                  cell: (row) => (
                    <a href={itemAddress('task', row.task_id)} class="mono" data-row data-test="kept-link">
                      {row.task_id}
                    </a>
                  ),
                },
                {
                  id: 'capability',
                  head: 'Capability',
                  by: (row) => row.capability,
                  cell: (row) => <CapabilityLink name={row.capability} />,
                },
                { id: 'why', head: 'Why', by: (row) => row.code, cell: (row) => <CodeWord code={row.code} /> },
                { id: 'source', head: 'From', from: 'medium', by: (row) => row.source, cell: (row) => <AgentLink name={row.source} /> },
                { id: 'detail', head: 'In words', from: 'wide', cell: (row) => <span class="clip">{row.detail}</span> },
                {
                  id: 'tries',
                  head: 'Tries',
                  isNumber: true,
                  from: 'medium',
                  by: (row) => row.attempts,
                  cell: (row) => count(row.attempts),
                },
                { id: 'since', head: 'Since', isTime: true, by: (row) => row.since_ms, cell: (row) => <Time ms={row.since_ms} /> },
              ]}
            />
            <nav class="pager" aria-label="Pages of kept tasks">
              {after !== '' && <a href={pageAddress('messages', { view: kind })}>Oldest</a>}
              {next !== null && (
                <a href={pageAddress('messages', { view: kind, after: String(next) })} data-page="next">
                  Newer
                </a>
              )}
            </nav>
          </>
        )}
      </Shown>
    </>
  );
}

export function TaskPage({ id }: { readonly id: string }) {
  const asked = useApi<KeptShown>(`/v1/tasks/kept/${encodeURIComponent(id)}`, TOPICS.messages);
  return (
    <>
      <p class="crumbs">
        <a href={pageAddress('messages', asked.data === null ? {} : { view: asked.data.kind })}>Messages</a>
      </p>
      <h1 class="mono">{id}</h1>
      <Shown asked={asked} what="task">
        {(task) => <Task task={task} />}
      </Shown>
    </>
  );
}

function Task({ task }: { readonly task: KeptShown }) {
  const { client, mayAct } = useConsole();
  const path = `/v1/tasks/kept/${encodeURIComponent(task.task_id)}`;
  const trace = traceIdIn(task.message?.traceparent ?? '');
  const back = (): void => {
    location.hash = pageAddress('messages', { view: task.kind });
  };
  const went = (answer: unknown): string => {
    const { pool, capability } = answer as { readonly pool: string | null; readonly capability: string };
    return pool === null ? 'It is dropped.' : `It went to ${capability}.`;
  };
  return (
    <>
      <Facts
        facts={[
          [
            'Kept as',
            <Badge key="k" tone={task.kind === 'dead' ? 'bad' : 'warn'}>
              {task.kind.replace('_', ' ')}
            </Badge>,
          ],
          ['Capability', <CapabilityLink key="c" name={task.capability} />],
          task.version === null ? null : ['Version', task.version],
          ['From', <AgentLink key="a" name={task.source} />],
          ['Why', <CodeWord key="w" code={task.code} />],
          ['Cause', task.cause],
          task.rule === null ? null : ['Rule', task.rule],
          task.lane === null ? null : ['Lane', task.lane],
          ['Payload', `${bytes(task.payload_bytes)}${task.content_type === '' ? '' : `, ${task.content_type}`}`],
          ['Since', <Time key="t" ms={task.since_ms} />],
          trace === null ? null : ['Trace', <TraceLink key="r" id={trace} />],
        ]}
      />
      {task.detail !== '' && <p class="box">{task.detail}</p>}
      <Actions>
        <ActButton
          test="task-release"
          act={{
            label: 'Release',
            ...(task.kind === 'in_doubt' ? { typed: 'again', isBad: true } : {}),
            words:
              task.kind === 'in_doubt'
                ? 'It goes back into the queue and may be carried out a second time, on your word. Look first whether it has been done.'
                : 'It goes back into the queue, with a fresh number of tries.',
            hasReason: true,
            run: ({ reason }) => client.order('POST', `${path}/release`, { reason }),
            done: went,
            after: back,
          }}
        />
        <ActButton
          test="task-reroute"
          act={{
            label: 'Re-route',
            words: 'It goes to another capability, with a fresh number of tries.',
            field: { label: 'To which capability', hint: 'crm.order.query@^2' },
            hasReason: true,
            run: ({ field, reason }) => client.order('POST', `${path}/reroute`, { capability: field, reason }),
            done: went,
            after: back,
          }}
        />
        <ActButton
          test="task-drop"
          act={{
            label: 'Drop',
            isBad: true,
            typed: 'drop',
            words: 'It is taken out for good. Nothing brings it back.',
            hasReason: true,
            run: ({ reason }) => client.order('POST', `${path}/drop`, { reason }),
            done: went,
            after: back,
          }}
        />
      </Actions>
      <ViewerNote />
      <h2>Tries</h2>
      <Table
        label="tries"
        rows={task.tries}
        keyOf={(row) => `${row.at_ms} ${row.by}`}
        empty="It was never tried."
        columns={[
          { id: 'at', head: 'When', isTime: true, cell: (row) => <Time ms={row.at_ms} /> },
          { id: 'by', head: 'By', cell: (row) => <AgentLink name={row.by} /> },
          { id: 'code', head: 'Result', cell: (row) => <CodeWord code={row.code} /> },
          { id: 'detail', head: 'In words', cell: (row) => row.detail },
        ]}
      />
      {mayAct && <Payload path={path} />}
    </>
  );
}

const MAX_SHOWN_CHARS = 20_000;

/** Shown on demand only: it may hold what not everybody may see, and that it was looked at is in the audit log. */
function Payload({ path }: { readonly path: string }) {
  const { client } = useConsole();
  const [shown, setShown] = useState<string | null>(null);
  return (
    <>
      <h2>Payload</h2>
      {shown === null ? (
        <ActButton
          act={{
            label: 'Look at the payload',
            words: 'It may hold personal data. That you looked at it stands in the audit log.',
            run: async () => {
              const answer = await client.get<{ readonly base64: string }>(`${path}/payload`);
              if ('ok' in answer) setShown(textOf(answer.ok.base64));
              return answer;
            },
            done: 'Here it is.',
          }}
        />
      ) : shown === '' ? (
        <Empty>It is empty.</Empty>
      ) : (
        <pre class="document">
          {shown.slice(0, MAX_SHOWN_CHARS)}
          {shown.length > MAX_SHOWN_CHARS && `\n… ${count(shown.length - MAX_SHOWN_CHARS)} characters more`}
        </pre>
      )}
    </>
  );
}

function textOf(base64: string): string {
  const raw = Uint8Array.from(atob(base64), (char) => char.charCodeAt(0));
  try {
    return new TextDecoder('utf-8', { fatal: true }).decode(raw);
  } catch {
    return Array.from(raw.subarray(0, 2_000), (byte) => byte.toString(16).padStart(2, '0')).join(' ');
  }
}
