/** Quotas set at run time: what each lets through and refuses; setting one and taking it back. */
import { useState } from 'preact/hooks';
import { useApi, useConsole } from '../context.tsx';
import { count, listed, many } from '../format.ts';
import { numberGiven } from '../given.ts';
import { ActButton, Dialog } from '../parts/dialog.tsx';
import { Actions, ProblemBox, Shown, ViewerNote } from '../parts/states.tsx';
import { Table } from '../parts/table.tsx';
import { AgentLink, CapabilityLink, Time } from '../parts/words.tsx';
import type { ApiProblem } from '../client.ts';
import type { QuotaRow, QuotasAnswer } from '../shapes.ts';
import { TOPICS } from '../topics.ts';

export function QuotasPage() {
  const { client } = useConsole();
  const asked = useApi<QuotasAnswer>('/v1/quotas', TOPICS.quotas);
  const [edited, setEdited] = useState<QuotaRow | 'new' | null>(null);
  return (
    <>
      <h1>Quotas</h1>
      <ViewerNote />
      <Actions>
        <button onClick={() => setEdited('new')}>Set a quota …</button>
      </Actions>
      {edited !== null && <QuotaForm quota={edited === 'new' ? null : edited} onClose={() => setEdited(null)} after={asked.again} />}
      <Shown asked={asked} what="quotas">
        {({ quotas, in_force: inForce }) => (
          <>
            {quotas.length > 0 && (
              <p class={inForce.on < inForce.of ? 'warn-text' : 'muted small'}>
                In force on {inForce.on} of {many(inForce.of, 'sidecar')}
                {inForce.missing.length > 0 && `, missing: ${listed(inForce.missing)}`}.
              </p>
            )}
            <Table
              label="quotas"
              rows={quotas}
              keyOf={({ kind, target }) => `${kind} ${target}`}
              words={(row) => `${row.kind} ${row.target} ${row.reason} ${row.author}`}
              search="Search quotas ( / )"
              empty="No quota is set. Limits of contracts and policies count all the same."
              test="quota-row"
              columns={[
                { id: 'kind', head: 'Of', from: 'medium', by: (row) => row.kind, cell: (row) => row.kind },
                { id: 'target', head: 'Name', by: (row) => row.target, cell: (row) => <Target row={row} /> },
                { id: 'limit', head: 'Limit', cell: (row) => limitWords(row) },
                {
                  id: 'taken',
                  head: 'Let through',
                  isNumber: true,
                  from: 'medium',
                  by: (row) => row.taken,
                  cell: (row) => count(row.taken),
                },
                {
                  id: 'refused',
                  head: 'Refused',
                  isNumber: true,
                  by: (row) => row.refused,
                  cell: (row) => <span class={row.refused > 0 ? 'warn-text' : 'muted'}>{count(row.refused)}</span>,
                },
                { id: 'why', head: 'Why', from: 'wide', cell: (row) => `${row.reason}${row.reason === '' ? '' : ', '}${row.author}` },
                {
                  id: 'end',
                  head: 'Ends',
                  from: 'medium',
                  cell: (row) => (row.expires_at_ms === null ? 'never' : <Time ms={row.expires_at_ms} />),
                },
                {
                  id: 'do',
                  head: '',
                  cell: (row) => (
                    <Actions>
                      <button data-row onClick={() => setEdited(row)}>
                        Change
                      </button>
                      <ActButton
                        act={{
                          label: 'Take back',
                          isBad: true,
                          hasReason: true,
                          words: `The quota of the ${row.kind} ${row.target} no longer limits anybody.`,
                          run: ({ reason }) =>
                            client.order(
                              'DELETE',
                              `${pathOf(row.kind, row.target)}${reason === '' ? '' : `?reason=${encodeURIComponent(reason)}`}`,
                            ),
                          done: 'The quota is taken back.',
                          after: asked.again,
                        }}
                      />
                    </Actions>
                  ),
                },
              ]}
            />
          </>
        )}
      </Shown>
    </>
  );
}

function pathOf(kind: string, target: string): string {
  return `/v1/quotas/${kind}/${encodeURIComponent(target)}`;
}

function Target({ row }: { readonly row: QuotaRow }) {
  if (row.target.includes('*')) return <span class="mono">{row.target}</span>;
  return row.kind === 'capability' ? <CapabilityLink name={row.target} /> : <AgentLink name={row.target} />;
}

export function limitWords(row: QuotaRow): string {
  const parts = [
    row.calls_per_sec === null
      ? ''
      : `${count(row.calls_per_sec)} calls/s${row.calls_burst === null ? '' : ` (${count(row.calls_burst)} at once)`}`,
    row.messages_per_sec === null
      ? ''
      : `${count(row.messages_per_sec)} messages/s${row.messages_burst === null ? '' : ` (${count(row.messages_burst)} at once)`}`,
    row.in_flight === null ? '' : `${count(row.in_flight)} in flight`,
  ].filter((part) => part !== '');
  return parts.length === 0 ? 'nothing' : parts.join(', ');
}

const NUMBERS = [
  ['calls_per_sec', 'Calls a second'],
  ['calls_burst', 'Calls at once'],
  ['messages_per_sec', 'Messages a second (agents)'],
  ['messages_burst', 'Messages at once (agents)'],
  ['in_flight', 'Calls in flight (agents, providers)'],
] as const;

function QuotaForm({
  quota,
  onClose,
  after,
}: {
  readonly quota: QuotaRow | null;
  readonly onClose: () => void;
  readonly after: () => void;
}) {
  const { client, say } = useConsole();
  const [kind, setKind] = useState<string>(quota?.kind ?? 'agent');
  const [target, setTarget] = useState(quota?.target ?? '');
  const [limits, setLimits] = useState<Readonly<Record<string, string>>>(() =>
    Object.fromEntries(NUMBERS.map(([name]) => [name, quota?.[name] == null ? '' : String(quota[name])])),
  );
  const [lasting, setLasting] = useState('');
  const [reason, setReason] = useState(quota?.reason ?? '');
  const [problem, setProblem] = useState<ApiProblem | null>(null);
  const save = async (): Promise<void> => {
    const body: Record<string, unknown> = {};
    for (const [name] of NUMBERS) if ((limits[name] ?? '').trim() !== '') body[name] = numberGiven(limits[name] as string);
    if (lasting !== '') body['for'] = lasting;
    if (reason !== '') body['reason'] = reason;
    const answer = await client.order<{ readonly warning: string; readonly in_force: { readonly on: number; readonly of: number } }>(
      'PUT',
      pathOf(kind, target.trim()),
      body,
    );
    if ('problem' in answer) {
      setProblem(answer.problem);
      return;
    }
    const { on, of } = answer.ok.in_force;
    say(`The quota is set, in force on ${on} of ${of}. ${answer.ok.warning}`);
    onClose();
    after();
  };
  return (
    <Dialog title={quota === null ? 'Set a quota' : `Quota of the ${quota.kind} ${quota.target}`} onClose={onClose}>
      <form
        onSubmit={(event) => {
          event.preventDefault();
          void save();
        }}
      >
        {quota === null && (
          <>
            <label>
              Of
              <select value={kind} onChange={(event) => setKind(event.currentTarget.value)}>
                <option value="agent">an agent (what it may ask)</option>
                <option value="capability">a capability (what may be asked of it)</option>
                <option value="provider">a provider (what may be asked of it)</option>
              </select>
            </label>
            <label>
              Name; * stands for any segment, and each that it covers has its own
              <input value={target} required placeholder="sales.bot.*" onInput={(event) => setTarget(event.currentTarget.value)} />
            </label>
          </>
        )}
        <div class="two">
          {NUMBERS.map(([name, label]) => (
            <label key={name}>
              {label}
              <input
                inputMode="decimal"
                value={limits[name] ?? ''}
                placeholder="not limited"
                onInput={(event) => setLimits({ ...limits, [name]: event.currentTarget.value })}
              />
            </label>
          ))}
          <label>
            For how long
            <input value={lasting} placeholder="until taken back; or 2h" onInput={(event) => setLasting(event.currentTarget.value)} />
          </label>
        </div>
        <label>
          Why (stands in the audit log)
          <input maxLength={500} value={reason} onInput={(event) => setReason(event.currentTarget.value)} />
        </label>
        {problem !== null && <ProblemBox problem={problem} />}
        <footer>
          <button type="button" data-test="cancel" onClick={onClose}>
            Cancel
          </button>
          <button type="submit" class="main" data-test="confirm">
            Set it
          </button>
        </footer>
      </form>
    </Dialog>
  );
}
