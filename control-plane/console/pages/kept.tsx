/** Tasks that are kept for people: dead letters, in doubt, to be reviewed; many at once back into the queue. */
import { itemAddress, pageAddress, writeQuery } from '../address.ts';
import { useApi, useConsole } from '../context.tsx';
import { count, many } from '../format.ts';
import { ActButton } from '../parts/dialog.tsx';
import { Actions, Shown } from '../parts/states.tsx';
import { Table } from '../parts/table.tsx';
import { AgentLink, CapabilityLink, CodeWord, Time } from '../parts/words.tsx';
import type { KeptAnswer, KeptRow } from '../shapes.ts';
import { TOPICS } from '../topics.ts';

const ABOUT: Readonly<Record<string, string>> = {
  dead: 'What was tried as often as it may be, or can never work. Release puts it back into the queue.',
  in_doubt:
    'What may run only once and may have run: whoever took it went away in the midst. Release may carry it out a second time, on your word.',
  review: 'What nobody was there to take, and a rule gives to a person then. Release puts it into its queue, where it waits for somebody.',
};

export function Kept({ kind }: { readonly kind: KeptRow['kind'] }) {
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
