/** Watches the breakers: each provider and capability of which a breaker opens again and again, however many sidecars see it. */
import type { Clock } from '../../base/clock.ts';
import type { BreakerMove } from '../traffic/breaker-book.ts';
import type { EdgeFigures, Traffic } from '../traffic/traffic.ts';
import type { Alert, Observation } from './alert.ts';
import { type AlertsConfig, limitsFor } from './config.ts';
import { openingsOf } from './openings.ts';
import { span } from './words.ts';

/** What is told of moves reaches back this far: moves from before the window tell what state it began in. */
const KEPT_MS = 7_200_000;

function breakerSubject(provider: string, capability: string): string {
  return `${provider} ${capability}`;
}

/** @param active alerts that are not over: where nothing moves any more, that is said */
export function lookAtBreakers(traffic: Traffic, config: AlertsConfig, clock: Clock, active: readonly Alert[]): Observation[] {
  const now = clock.now();
  const moves = new Map<string, BreakerMove[]>();
  for (const move of traffic.breakerMoves(KEPT_MS)) {
    const subject = breakerSubject(move.provider, move.capability);
    const same = moves.get(subject);
    if (same === undefined) moves.set(subject, [move]);
    else same.push(move);
  }
  for (const { subject } of active) if (!moves.has(subject)) moves.set(subject, []);
  const untilMs = traffic.untilMs.bind(traffic);
  const listens = now - traffic.sinceMs;
  let edges: readonly EdgeFigures[] | null = null;
  return [...moves].flatMap(([subject, some]) => {
    const [provider = '', capability = ''] = subject.split(' ');
    const { enabled, openings, windowMs } = limitsFor(config, capability).breakers;
    if (!enabled) return [];
    const began = openingsOf(some, now - windowMs, untilMs).map((atMs) => now - atMs);
    const count = began.length;
    const isBad = count > openings;
    const hosts = new Set(some.map(({ sidecar }) => sidecar)).size;
    const why = some.findLast(({ to }) => to === 'open')?.why ?? '';
    return {
      kind: 'breaker_flapping' as const,
      subject,
      // Half of what raised it is over, so that the last opening that leaves the window does not end it, and the next one begin it.
      grade: isBad
        ? ('bad' as const)
        : listens < windowMs
          ? ('unknown' as const)
          : count * 2 > openings
            ? ('between' as const)
            : ('good' as const),
      words: isBad
        ? `the breaker of ${provider} for ${capability} opened ${count} times in ${span(windowMs)}${hosts > 1 ? `, as ${hosts} sidecars saw it` : ''}; last: ${why === '' ? 'no reason told' : why}`
        : `the breaker of ${provider} for ${capability} opened ${count === 0 ? 'not once' : `${count} times`} in the last ${span(windowMs)}`,
      value: count,
      limit: openings,
      capability,
      agent: provider,
      sidecar: null,
      traceId: isBad ? exampleOf((edges ??= traffic.edges({ minutes: 10 })), provider, capability) : null,
      look: `reachctl capabilities show ${capability}`,
      held: null,
      beganMs: isBad ? clock.wallMs() - (began[0] as number) : null,
    };
  });
}

/** A failed call that ended at this provider. */
function exampleOf(edges: readonly EdgeFigures[], provider: string, capability: string): string | null {
  for (const edge of edges)
    if (edge.provider === provider && edge.capability === capability)
      for (const { code, trace_id } of edge.figures.examples) if (code !== 0) return trace_id;
  return null;
}
