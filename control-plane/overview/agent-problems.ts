/** Agents that are gone or about to be, and breakers that keep calls away from agents. */
import type { ProviderView } from '../registry/views.ts';
import type { BreakerState } from './breakers.ts';
import type { CapabilityRow } from './capability-rows.ts';
import { counted, named, type Problem, problem } from './problem.ts';

const WHY = {
  lease: 'nothing has been heard of it for a whole lease',
  probe: 'its health check fails',
  left: 'it has said goodbye',
} as const;
/** Of one sidecar; of more there is one sentence. */
const MANY = 4;

export function agentProblems(providers: readonly ProviderView[]): Problem[] {
  const problems: Problem[] = [];
  const bySidecar = new Map<string, ProviderView[]>();
  const overdue: string[] = [];
  const drained: string[] = [];
  for (const provider of providers) {
    const { agent, status, why, sidecar } = provider;
    if (status === 'overdue') overdue.push(agent);
    else if (provider.drain || provider.operator?.drain === true) drained.push(agent);
    // Who has said goodbye has gone by itself: that is no fault.
    if (status !== 'offline' || why === 'left') continue;
    const known = bySidecar.get(sidecar);
    if (known === undefined) bySidecar.set(sidecar, [provider]);
    else known.push(provider);
  }
  for (const [sidecar, gone] of bySidecar) {
    const since = (list: readonly ProviderView[]): number | null =>
      list.reduce<number | null>((least, { offlineSinceMs: at }) => (at === null ? least : Math.min(least ?? at, at)), null);
    if (gone.length > MANY) {
      const words = `${counted(gone.length, 'agent')} of the sidecar ${sidecar} are offline: ${named(gone.map(({ agent }) => agent))}`;
      problems.push(problem('critical', 'agent_offline', words, gone.length, { sidecar, sinceMs: since(gone) }));
      continue;
    }
    for (const one of gone)
      problems.push(
        problem('warning', 'agent_offline', `${one.agent} is offline: ${WHY[one.why ?? 'lease']}`, 1, {
          agent: one.agent,
          sidecar,
          sinceMs: one.offlineSinceMs,
        }),
      );
  }
  if (overdue.length > 0)
    problems.push(
      problem(
        'critical',
        'agent_overdue',
        `Nothing is heard of ${counted(overdue.length, 'agent')}, so many at once that the registry still counts on them until somebody confirms it: ${named(overdue)}`,
        overdue.length,
      ),
    );
  if (drained.length > 0)
    problems.push(
      problem(
        'info',
        'agent_offline',
        `${counted(drained.length, 'agent')} ${drained.length === 1 ? 'is' : 'are'} drained: ${named(drained)}`,
        0,
        { agent: drained.length === 1 ? (drained[0] ?? null) : null },
      ),
    );
  return problems;
}

/** @param wallLessNowMs what turns a monotonic time into one by the wall clock */
export function breakerProblems(breakers: readonly BreakerState[], rows: readonly CapabilityRow[], wallLessNowMs: number): Problem[] {
  const byName = new Map(rows.map((row) => [row.capability, row]));
  return breakers.flatMap(({ capability, provider, state, sidecars, why, atMs }) => {
    if (state !== 'open') return [];
    const row = byName.get(capability);
    const left =
      row?.providers.filter((each) => each.status === 'online' && !row.open.some((open) => open.provider === each.agent)).length ?? 0;
    const at = sidecars.length === 1 ? `at ${sidecars[0] ?? ''}` : `at ${counted(sidecars.length, 'sidecar')}`;
    const rest = left === 0 ? 'nobody else is left to serve it' : `${counted(left, 'other agent')} ${left === 1 ? 'serves' : 'serve'} it`;
    const words = `The breaker of ${provider} for ${capability} is open ${at}${why === '' ? '' : ` (${why})`}: ${rest}`;
    return [
      problem(left === 0 ? 'critical' : 'warning', 'breaker', words, row?.figures?.calls ?? 0, {
        capability,
        agent: provider,
        sidecar: sidecars.length === 1 ? (sidecars[0] ?? null) : null,
        sinceMs: Math.round(atMs + wallLessNowMs),
      }),
    ];
  });
}
