/** Everything that can be asked for: its versions, who serves it, what covers it. Figures stand on the overview. */
import { useApi } from '../context.tsx';
import { many, percent } from '../format.ts';
import { Shown } from '../parts/states.tsx';
import { Table } from '../parts/table.tsx';
import { CapabilityLink } from '../parts/words.tsx';
import type { CapabilitiesAnswer } from '../shapes.ts';
import { TOPICS } from '../topics.ts';

export function CapabilitiesPage() {
  const asked = useApi<CapabilitiesAnswer>('/v1/capabilities', TOPICS.capabilities);
  return (
    <>
      <h1>Capabilities</h1>
      <Shown asked={asked} what="capabilities">
        {({ capabilities }) => (
          <Table
            label="capabilities"
            rows={capabilities}
            keyOf={({ capability }) => capability}
            words={(row) =>
              `${row.capability} ${row.aliases.join(' ')} ${row.versions.map(({ version, description }) => `${version} ${description}`).join(' ')}`
            }
            search="Search names, aliases, descriptions ( / )"
            empty="Nothing can be asked for yet: no agent has registered."
            test="capability-row"
            marks={({ capability }) => ({ name: capability })}
            columns={[
              {
                id: 'name',
                head: 'Capability',
                by: (row) => row.capability,
                cell: (row) => <CapabilityLink name={row.capability} test="capability-link" row />,
              },
              {
                id: 'versions',
                head: 'Versions',
                cell: (row) => (
                  <span class="mono">
                    {row.versions
                      .slice(0, 3)
                      .map(({ version }) => version)
                      .join(', ')}
                    {row.versions.length > 3 && ` +${row.versions.length - 3}`}
                  </span>
                ),
              },
              {
                id: 'online',
                head: 'Providers',
                isNumber: true,
                by: (row) => row.online,
                cell: (row) => (
                  <span
                    class={row.online === 0 ? 'bad-text' : row.online < row.providers ? 'warn-text' : ''}
                  >{`${row.online} of ${row.providers}`}</span>
                ),
              },
              {
                id: 'canary',
                head: 'Canary',
                from: 'medium',
                cell: (row) =>
                  row.canary === null
                    ? ''
                    : Object.entries(row.canary)
                        .map(([version, share]) => `${version}: ${percent(share)}`)
                        .join(', '),
              },
              {
                id: 'policies',
                head: 'Policies',
                from: 'wide',
                isNumber: true,
                by: (row) => row.policies.length,
                cell: (row) => <span title={row.policies.join('\n')}>{many(row.policies.length, 'policy', 'policies')}</span>,
              },
              {
                id: 'what',
                head: 'What it does',
                from: 'wide',
                cell: (row) => <span class="clip">{row.versions[0]?.description ?? ''}</span>,
              },
            ]}
          />
        )}
      </Shown>
    </>
  );
}
