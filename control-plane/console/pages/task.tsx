/** One task that is kept for people: why, what was tried, and what can be done with it. */
import { useState } from 'preact/hooks';
import { pageAddress, traceIdIn } from '../address.ts';
import { useApi, useConsole } from '../context.tsx';
import { bytes, count } from '../format.ts';
import { ActButton } from '../parts/dialog.tsx';
import { Actions, Empty, Shown, ViewerNote } from '../parts/states.tsx';
import { Table } from '../parts/table.tsx';
import { AgentLink, Badge, CapabilityLink, CodeWord, Facts, Time, TraceLink } from '../parts/words.tsx';
import type { KeptShown, PayloadShown } from '../shapes.ts';
import { TOPICS } from '../topics.ts';

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
            words: 'It and its headers may hold personal data. That you looked at it stands in the audit log.',
            run: async () => {
              const answer = await client.get<PayloadShown>(`${path}/payload`);
              if ('ok' in answer) setShown(wholeOf(answer.ok));
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

/** As it would travel: headers, an empty line, the payload. */
function wholeOf({ headers, base64 }: PayloadShown): string {
  const lines = Object.entries(headers ?? {}).map(([name, value]) => `${name}: ${value}\n`);
  return lines.length === 0 ? textOf(base64) : `${lines.join('')}\n${textOf(base64)}`;
}

function textOf(base64: string): string {
  const raw = Uint8Array.from(atob(base64), (char) => char.charCodeAt(0));
  try {
    return new TextDecoder('utf-8', { fatal: true }).decode(raw);
  } catch {
    return Array.from(raw.subarray(0, 2_000), (byte) => byte.toString(16).padStart(2, '0')).join(' ');
  }
}
