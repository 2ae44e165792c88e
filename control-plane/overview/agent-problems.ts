/** Agents that are gone or about to be, and breakers that keep calls away from agents. */
import type { ProviderView } from '../registry/views.ts';
import type { BreakerState } from './breakers.ts';
import { type CapabilityRow, isDrained } from './capability-rows.ts';
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
    else if (isDrained(provider)) drained.push(agent);
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

/**
 * Each sidecar has breakers of its own, so who is left is counted at each; the one that has fewest is told of.
 * @param wallLessNowMs what turns a monotonic time into one by the wall clock
 */
export function breakerProblems(breakers: readonly BreakerState[], rows: readonly CapabilityRow[], wallLessNowMs: number): Problem[] {
  const byName = new Map(rows.map((row) => [row.capability, row]));
  return breakers.flatMap(({ capability, provider, state, openAt, why, sinceMs }) => {
    if (state !== 'open') return [];
    const row = byName.get(capability);
    const left = openAt.map((sidecar) => (row === undefined ? 0 : leftAt(row, provider, sidecar)));
    const least = Math.min(...left);
    const bare = openAt.filter((_, i) => left[i] === 0);
    const only = openAt.length === 1 ? (openAt[0] as string) : null;
    const at = only === null ? `at ${counted(openAt.length, 'sidecar')}` : `at ${only}`;
    const rest =
      bare.length > 0
        ? `nobody else is left to serve it${only === null ? ` at ${named(bare)}` : ' there'}`
        : `${only === null ? 'at least ' : ''}${counted(least, 'other agent')} ${least === 1 ? 'serves' : 'serve'} it`;
    const words = `The breaker of ${provider} for ${capability} is open ${at}${why === '' ? '' : ` (${why})`}: ${rest}`;
    return [
      problem(bare.length > 0 ? 'critical' : 'warning', 'breaker', words, row?.figures?.calls ?? 0, {
        capability,
        agent: provider,
        sidecar: only ?? (bare.length === 1 ? (bare[0] as string) : null),
        sinceMs: Math.round(sinceMs + wallLessNowMs),
      }),
    ];
  });
}

/** Other agents to whom this sidecar can still turn. */
function leftAt({ serving, open }: CapabilityRow, provider: string, sidecar: string): number {
  const shut = new Set(open.flatMap((each) => (each.openAt.includes(sidecar) ? each.provider : [])));
  return serving.filter(({ agent }) => agent !== provider && !shut.has(agent)).length;
}
