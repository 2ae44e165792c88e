/** Rules and policies: what is in force and staged, how far a roll-out is, what rules decided, what the lint finds, and the way back. */
import { useState } from 'preact/hooks';
import { useApi, useConsole } from '../context.tsx';
import { count, listed, many, percent, span } from '../format.ts';
import { ActButton } from '../parts/dialog.tsx';
import { Actions, Empty, Shown, ViewerNote } from '../parts/states.tsx';
import { Table } from '../parts/table.tsx';
import { Badge, Facts, Time } from '../parts/words.tsx';
import type { HistoryAnswer, LintAnswer, PoliciesAnswer, PolicyChange, Rollout, RuleRow, RulesAnswer, RulesOf } from '../shapes.ts';
import { TOPICS } from '../topics.ts';

export function RulesPage() {
  const policies = useApi<PoliciesAnswer>('/v1/policies', TOPICS.rules);
  const rules = useApi<RulesAnswer>('/v1/rules', TOPICS.rules);
  const lint = useApi<LintAnswer>('/v1/rules/lint', TOPICS.rules);
  const history = useApi<HistoryAnswer>('/v1/policies/history', TOPICS.rules);
  return (
    <>
      <h1>Rules and policies</h1>
      <ViewerNote />
      <Shown asked={policies} what="policies">
        {(active) => (
          <>
            <Active policies={active} />
            {active.rollout !== null && <RolloutBox rollout={active.rollout} again={policies.again} />}
          </>
        )}
      </Shown>
      <h2>Rules for messages</h2>
      <Shown asked={rules} what="rules">
        {(answer) => (
          <>
            <RuleTable of={answer} label="rules in force" />
            {answer.staged !== null && (
              <>
                <h3>Staged for {percent(answer.staged.share)} of the sidecars</h3>
                <RuleTable of={answer.staged} label="staged rules" />
              </>
            )}
          </>
        )}
      </Shown>
      <h2>What the lint finds</h2>
      <Shown asked={lint} what="findings">
        {({ findings }) =>
          findings.length === 0 ? (
            <Empty>Nothing: no rule is shadowed, overlapping, unreachable, circular or unused.</Empty>
          ) : (
            <ul class="findings">
              {findings.map((finding, i) => (
                <li key={i} data-test="finding">
                  <Badge tone={finding.kind === 'unused' || finding.kind === 'overlapping' ? 'plain' : 'warn'}>{finding.kind}</Badge>{' '}
                  <strong class="mono">{finding.rule}</strong> {finding.words}
                </li>
              ))}
            </ul>
          )
        }
      </Shown>
      <h2>History</h2>
      <Shown asked={history} what="versions">
        {(answer) => <HistoryTable history={answer} again={history.again} />}
      </Shown>
    </>
  );
}

function Active({ policies }: { readonly policies: PoliciesAnswer }) {
  if (policies.version === 0) return <Empty>No document has been applied yet: reachctl policy apply FILE.</Empty>;
  return (
    <>
      <Facts
        facts={[
          ['In force', `version ${policies.version}`],
          ['By', policies.author],
          ['Since', <Time key="t" ms={policies.at_ms} />],
          policies.note === '' ? null : ['Note', policies.note],
        ]}
      />
      <details>
        <summary>The document</summary>
        <pre class="document">{policies.text}</pre>
      </details>
    </>
  );
}

function RolloutBox({ rollout, again }: { readonly rollout: Rollout; readonly again: () => void }) {
  const { client } = useConsole();
  return (
    <div class={`box ${rollout.halted === '' ? 'accent' : 'bad'}`} data-test="rollout">
      <p>
        <strong>
          Version {rollout.version} is staged for {percent(rollout.share)} of the sidecars
        </strong>{' '}
        by {rollout.author}, <Time ms={rollout.at_ms} />
        {rollout.note !== '' && `: ${rollout.note}`}. In use on {rollout.in_force.length} of {rollout.expected.length}
        {rollout.missing.length > 0 && `, missing: ${listed(rollout.missing)}`}.
      </p>
      {rollout.halted !== '' && <p class="bad-text">Stopped: {rollout.halted}</p>}
      {rollout.refusals.map((each) => (
        <p key={`${each.sidecar} ${each.tail}`} class="bad-text">
          {each.sidecar} refused {each.tail}: {each.why}
        </p>
      ))}
      <Actions>
        <ActButton
          act={{
            label: 'Widen',
            words: 'A larger share of the sidecars uses the staged document.',
            field: { label: 'New share', hint: '50%' },
            run: ({ field }) => client.order('POST', '/v1/policies/widen', { share: field }),
            done: 'The roll-out is wider.',
            after: again,
          }}
        />
        <ActButton
          act={{
            label: 'Promote to everybody',
            words: `Version ${rollout.version} becomes the document in force for every sidecar.${rollout.missing.length > 0 ? ` It is refused while ${listed(rollout.missing)} has not said that it uses it.` : ''}`,
            run: () => client.order('POST', '/v1/policies/promote', {}),
            done: `Version ${rollout.version} is in force for everybody.`,
            after: again,
          }}
        />
        <ActButton
          act={{
            label: 'Stop the roll-out',
            isBad: true,
            words: 'Every sidecar uses the document in force again. The staged version stays in the history.',
            run: () => client.order('POST', '/v1/policies/halt'),
            done: 'The roll-out is stopped.',
            after: again,
          }}
        />
      </Actions>
    </div>
  );
}

function RuleTable({ of, label }: { readonly of: RulesOf; readonly label: string }) {
  return (
    <>
      {of.rules.length > 0 && (
        <p class="muted small">
          {many(of.messages, 'message')} at {many(of.sidecars, 'sidecar')} in {span(of.for_ms)}; hits say how many of them each rule
          decided.
        </p>
      )}
      <Table
        label={label}
        rows={of.rules}
        keyOf={({ name }) => name}
        {...(of.rules.length > 10 ? { words: (row: RuleRow) => `${row.name} ${conditionOf(row)} ${actionOf(row)}` } : {})}
        empty="There are no rules: messages go to the pool of their capability."
        test="rule-row"
        columns={[
          { id: 'name', head: 'Rule', cell: (row) => <span class="mono">{row.name}</span> },
          { id: 'when', head: 'When', cell: (row) => conditionOf(row) },
          { id: 'then', head: 'Then', from: 'medium', cell: (row) => actionOf(row) },
          {
            id: 'hits',
            head: 'Hits',
            isNumber: true,
            by: (row) => row.hits,
            cell: (row) => <span class={row.hits === 0 ? 'muted' : ''}>{count(row.hits)}</span>,
          },
        ]}
      />
    </>
  );
}

function conditionOf({ when }: RuleRow): string {
  const parts = Object.entries(when ?? {}).map(
    ([name, value]) => `${name.replaceAll('_', ' ')} is ${typeof value === 'string' ? value : JSON.stringify(value)}`,
  );
  return parts.length === 0 ? 'always' : parts.join(' and ');
}

function actionOf({ action, fallback }: RuleRow): string {
  const sticky = action.sticky_by === undefined ? '' : ` by ${action.sticky_by}`;
  const lane = action.priority === undefined ? '' : `, lane ${action.priority}`;
  const last = fallback?.if_no_available_agent;
  const otherwise = last === undefined ? '' : `; nobody there: ${typeof last === 'string' ? last.replaceAll('_', ' ') : last.capability}`;
  return `${action.dispatch.replaceAll('_', ' ')}${sticky}${lane}${otherwise}`;
}

function HistoryTable({ history, again }: { readonly history: HistoryAnswer; readonly again: () => void }) {
  const [shown, setShown] = useState<number | null>(null);
  const { client } = useConsole();
  return (
    <>
      <Table
        label="versions"
        rows={history.versions}
        keyOf={(row) => `${row.version} ${row.at_ms}`}
        empty="No document has been applied yet."
        size={20}
        test="version-row"
        marks={({ version }) => ({ version })}
        columns={[
          {
            id: 'version',
            head: 'Version',
            cell: (row) => (
              <>
                {row.version} {row.version === history.active && <Badge tone="good">in force</Badge>}
              </>
            ),
          },
          { id: 'action', head: 'How', from: 'medium', cell: (row) => row.action },
          { id: 'author', head: 'By', cell: (row) => row.author },
          { id: 'at', head: 'When', isTime: true, cell: (row) => <Time ms={row.at_ms} /> },
          { id: 'note', head: 'Note', from: 'wide', cell: (row) => row.note },
          {
            id: 'do',
            head: '',
            cell: (row) =>
              row.version !== history.active && (
                <div class="actions">
                  <button
                    data-row
                    onClick={() => setShown(shown === row.version ? null : row.version)}
                    aria-expanded={shown === row.version}
                  >
                    Difference
                  </button>
                  <Actions>
                    <ActButton
                      test="roll-back"
                      act={{
                        label: 'Roll back',
                        isBad: true,
                        typed: String(row.version),
                        words: (
                          <>
                            <p>Version {row.version} is applied as a new version, for every sidecar at once. What it would change:</p>
                            <Diff version={row.version} />
                          </>
                        ),
                        run: () => client.order('POST', '/v1/policies/rollback', { version: row.version }),
                        done: `Back at what version ${row.version} said.`,
                        after: again,
                      }}
                    />
                  </Actions>
                </div>
              ),
          },
        ]}
      />
      {shown !== null && (
        <section class="box" aria-label={`Difference to version ${shown}`}>
          <p>Going back to version {shown} would change:</p>
          <Diff version={shown} />
        </section>
      )}
    </>
  );
}

function Diff({ version }: { readonly version: number }) {
  const asked = useApi<PolicyChange>(`/v1/policies/diff?version=${version}`, []);
  return (
    <Shown asked={asked} what="differences">
      {({ diff, warnings }) => (
        <>
          {diff.length === 0 ? (
            <p class="muted">Nothing.</p>
          ) : (
            <pre class="diff">
              {diff.map((line, i) => (
                <span key={i} class={line.startsWith('+') ? 'added' : line.startsWith('-') ? 'taken' : ''}>
                  {line}
                  {'\n'}
                </span>
              ))}
            </pre>
          )}
          {warnings.map(({ message }) => (
            <p key={message} class="warn-text">
              {message}
            </p>
          ))}
        </>
      )}
    </Shown>
  );
}
