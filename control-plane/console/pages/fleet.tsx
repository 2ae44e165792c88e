/** The sidecars: which version of everything each one uses, how old that is, what it refused, who is missing. */
import { pageAddress } from '../address.ts';
import { useApi, useConsole } from '../context.tsx';
import { count, listed, many, percent, span } from '../format.ts';
import { ActButton } from '../parts/dialog.tsx';
import { Actions, Shown } from '../parts/states.tsx';
import { Table } from '../parts/table.tsx';
import { Badge, Facts, type Tone } from '../parts/words.tsx';
import type { FleetAnswer, SidecarRow } from '../shapes.ts';
import { TOPICS } from '../topics.ts';

const TONES: Readonly<Record<SidecarRow['standing'], Tone>> = { current: 'good', behind: 'warn', stale: 'warn', missing: 'bad' };
const ORDER: Readonly<Record<SidecarRow['standing'], number>> = { missing: 0, stale: 1, behind: 2, current: 3 };

export function FleetPage() {
  const { client, address } = useConsole();
  const asked = useApi<FleetAnswer>('/v1/sidecars', TOPICS.fleet);
  return (
    <>
      <h1>Fleet</h1>
      <Shown asked={asked} what="sidecars">
        {(fleet) => {
          const { summary, held, rollout } = fleet;
          const rows = [...fleet.sidecars].sort((a, b) => worst(a) - worst(b));
          return (
            <>
              <Facts
                facts={[
                  ['Sidecars', count(summary.total)],
                  ['Current', count(summary.current)],
                  ['Behind', count(summary.behind)],
                  ['Stale', count(summary.stale)],
                  ['Missing', count(summary.missing)],
                  ['Refuse something', count(summary.refusing)],
                  ['NATS', `${fleet.nats.version}, flushes ${fleet.nats.flush}`],
                  ['Sequence', count(fleet.last_seq)],
                ]}
              />
              {held !== null && held.length > 0 && (
                <div class="box warn">
                  <strong>Held back:</strong> {held.map(({ reason }) => reason).join('; ')}
                  <Actions>
                    <ActButton
                      act={{
                        label: 'Confirm that it is true',
                        words: 'What is held back, a sudden loss of providers, is believed and pushed to every sidecar.',
                        hasReason: true,
                        isBad: true,
                        run: ({ reason }) => client.order('POST', '/v1/confirm', { reason }),
                        done: 'Confirmed.',
                        after: asked.again,
                      }}
                    />
                  </Actions>
                </div>
              )}
              {rollout !== null && (
                <p class="box">
                  Version {rollout.version} of the document is staged for {percent(rollout.share)} of the sidecars: in use on{' '}
                  {rollout.in_force.length} of {rollout.expected.length}
                  {rollout.missing.length > 0 && `, missing: ${listed(rollout.missing)}`}.{' '}
                  <a href={pageAddress('rules')}>See the roll-out</a>
                </p>
              )}
              <Table
                label="sidecars"
                rows={rows}
                keyOf={({ sidecar }) => sidecar}
                words={(row) => `${row.sidecar} ${row.version ?? ''} ${row.standing} ${row.stale_because} ${row.registered?.zone ?? ''}`}
                find={address.query['find'] ?? ''}
                search="Search sidecars ( / )"
                empty="No sidecar has registered yet."
                test="sidecar-row"
                marks={({ sidecar, standing }) => ({ name: sidecar, standing })}
                columns={[
                  {
                    id: 'sidecar',
                    head: 'Sidecar',
                    by: (row) => row.sidecar,
                    cell: (row) => (
                      <span class="mono" tabIndex={-1} data-row>
                        {row.sidecar}
                      </span>
                    ),
                  },
                  {
                    id: 'standing',
                    head: 'Standing',
                    by: worst,
                    cell: (row) => <Badge tone={TONES[row.standing]}>{row.standing}</Badge>,
                  },
                  { id: 'why', head: 'What is wrong', cell: (row) => <Wrong row={row} /> },
                  {
                    id: 'behind',
                    head: 'Behind by',
                    isNumber: true,
                    from: 'medium',
                    by: (row) => row.behind,
                    cell: (row) => (row.behind === 0 ? <span class="muted">0</span> : many(row.behind, 'message')),
                  },
                  {
                    id: 'report',
                    head: 'Reported',
                    isNumber: true,
                    from: 'medium',
                    by: (row) => row.last_report_ago_ms,
                    cell: (row) => (row.last_report_ago_ms === null ? 'never' : `${span(row.last_report_ago_ms)} ago`),
                  },
                  {
                    id: 'agents',
                    head: 'Agents',
                    isNumber: true,
                    from: 'wide',
                    by: (row) => row.registered?.agents ?? 0,
                    cell: (row) => (row.registered === null ? '–' : `${row.registered.agents_online} of ${row.registered.agents}`),
                  },
                  {
                    id: 'policies',
                    head: 'Document',
                    isNumber: true,
                    from: 'wide',
                    by: (row) => row.policies?.version ?? null,
                    cell: (row) => (row.policies === null ? '–' : `${row.policies.version}${row.policies.staged ? ' (staged)' : ''}`),
                  },
                  { id: 'version', head: 'Program', from: 'wide', by: (row) => row.version, cell: (row) => row.version ?? '–' },
                  {
                    id: 'zone',
                    head: 'Zone',
                    from: 'wide',
                    by: (row) => row.registered?.zone ?? null,
                    cell: (row) => row.registered?.zone ?? '–',
                  },
                ]}
              />
            </>
          );
        }}
      </Shown>
    </>
  );
}

function worst(row: SidecarRow): number {
  return ORDER[row.standing] * 2 + (row.refused.length > 0 || row.lacks_overrides !== null ? 0 : 1);
}

function Wrong({ row }: { readonly row: SidecarRow }) {
  const words = [
    row.stale_because,
    row.lacks_overrides === null ? '' : `overrides are not in force there: ${row.lacks_overrides}`,
    ...row.refused.map(({ tail, why }) => `refused ${tail}: ${why}`),
  ].filter((each) => each !== '');
  return words.length === 0 ? <span class="muted">nothing</span> : <span>{words.join('; ')}</span>;
}
