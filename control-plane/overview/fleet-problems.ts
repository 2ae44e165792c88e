/** Sidecars that are not where they should be, what operators have ordered and where it is not in force, and roll-outs that stand still. */
import type { FleetRow } from '../push/fleet.ts';
import type { RolloutView } from '../registry/views.ts';
import type { OverrideShown } from '../api/override-shapes.ts';
import { counted, named, percent, type Problem, problem } from './problem.ts';

const MANY = 4;

/** @param left sidecars that have said goodbye: nobody misses them */
export function fleetProblems(rows: readonly FleetRow[], left: ReadonlySet<string>): Problem[] {
  const problems: Problem[] = [];
  const here = rows.filter(({ sidecar }) => !left.has(sidecar));
  const missing = here.filter(({ standing }) => standing === 'missing');
  const stale = here.filter(({ standing }) => standing === 'stale');
  const behind = here.filter(({ standing }) => standing === 'behind');
  if (missing.length > MANY)
    problems.push(
      problem(
        'critical',
        'sidecar_missing',
        `${missing.length} of ${counted(here.length, 'sidecar')} are not heard: ${names(missing)}`,
        missing.length,
      ),
    );
  else
    for (const { sidecar, lastReportAgoMs: ago } of missing) {
      const since = ago === null ? 'it has never reported to this replica' : `its last report is ${Math.round(ago / 1_000)} s old`;
      problems.push(problem('warning', 'sidecar_missing', `The sidecar ${sidecar} is not heard: ${since}`, 1, { sidecar }));
    }
  if (stale.length > MANY)
    problems.push(
      problem(
        'critical',
        'sidecar_stale',
        `${stale.length} of ${counted(here.length, 'sidecar')} go by an old table: ${names(stale)}`,
        stale.length,
      ),
    );
  else
    for (const { sidecar, staleBecause } of stale)
      problems.push(problem('warning', 'sidecar_stale', `The sidecar ${sidecar} goes by an old table: ${staleBecause}`, 1, { sidecar }));
  if (behind.length > 0)
    problems.push(
      problem(
        'info',
        'sidecar_behind',
        `${counted(behind.length, 'sidecar')} ${behind.length === 1 ? 'has' : 'have'} not applied the newest messages yet: ${names(behind)}`,
        0,
        {
          sidecar: behind.length === 1 ? (behind[0]?.sidecar ?? null) : null,
        },
      ),
    );
  for (const { sidecar, refused } of here) {
    const newest = refused.at(-1);
    if (newest === undefined) continue;
    const more = refused.length > 1 ? `, and ${refused.length - 1} more` : '';
    problems.push(
      problem(
        'warning',
        'push_refused',
        `The sidecar ${sidecar} refuses what was pushed (${newest.tail}): ${newest.why}${more}`,
        refused.length,
        { sidecar },
      ),
    );
  }
  return problems;
}

const names = (rows: readonly FleetRow[]): string => named(rows.map(({ sidecar }) => sidecar));

export function overrideProblems(overrides: readonly OverrideShown[]): Problem[] {
  return overrides.flatMap(({ id, action, target, reason, author, at, expires_at: end, in_force: on, of, missing }) => {
    const { capability = null, agent = null, provider = null } = target;
    const whom = Object.entries(target)
      .map(([what, value]) => (what === 'all' ? 'everything' : `${what} ${String(value)}`))
      .join(', ');
    const until = end === null ? 'until it is lifted' : `until ${end}`;
    const words = `${id}: ${action} of ${whom}, by ${author} (${reason}), ${until}, in force on ${on} of ${of}`;
    const subject = {
      capability: capability !== null && !capability.includes('*') ? capability : null,
      agent: plain(agent) ?? plain(provider),
      sidecar: missing.length === 1 ? (missing[0]?.sidecar ?? null) : null,
      sinceMs: Date.parse(at),
    };
    if (missing.length === 0) return [problem('info', 'override', words, 1, subject)];
    return [
      problem(
        'critical',
        'override_missing',
        `${words}: not at ${named(missing.map(({ sidecar, why }) => `${sidecar} (${why})`))}`,
        missing.length,
        subject,
      ),
    ];
  });
}

/** An agent's id; a pattern of agents is nobody. */
const plain = (pattern: string | null): string | null =>
  pattern !== null && /^[a-z0-9_-]+\.[a-z0-9_-]+\.[a-z0-9_-]+$/.test(pattern) ? pattern : null;

export function rolloutProblems(rollout: RolloutView | null): Problem[] {
  if (rollout === null) return [];
  const { version, share, halted, expected, inForce, missing, refusals, author, atMs } = rollout;
  const what = `The roll-out of version ${version} (by ${author}, to ${percent(share)} of the sidecars)`;
  if (halted !== '') return [problem('critical', 'rollout', `${what} was stopped: ${halted}`, expected.length, { sinceMs: atMs })];
  const refused = refusals[0];
  if (refused !== undefined)
    return [
      problem('critical', 'rollout', `${what} is refused by ${refused.sidecar}: ${refused.why}`, refusals.length, {
        sidecar: refused.sidecar,
        sinceMs: atMs,
      }),
    ];
  const rest = missing.length === 0 ? '' : `; not yet at ${named(missing)}`;
  return [
    problem('info', 'rollout', `${what} is under way: in force at ${inForce.length} of ${expected.length}${rest}`, 0, { sinceMs: atMs }),
  ];
}
