/**
 * In which state breakers stand, out of what sidecars told of their moves. A breaker is kept in memory by the sidecar that has it:
 * when that one is gone, so is the breaker, and nobody says so. What an earlier process of a sidecar told is therefore left out, and
 * so is an open one of which nothing is heard for a quarter of an hour: with traffic it would have tried the provider again long ago.
 */
import type { BreakerMove, Traffic } from '../traffic/traffic.ts';

export const LOST_MS = 900_000;
/** How far back moves are looked at. */
const WITHIN_MS = 7_200_000;

export interface BreakerState {
  readonly capability: string;
  readonly provider: string;
  /** The worst of all sidecars. */
  readonly state: BreakerMove['to'];
  /** Sidecars at which it is not closed, sorted. */
  readonly sidecars: readonly string[];
  /** Those of them at which it is open, sorted: each sidecar has breakers of its own. */
  readonly openAt: readonly string[];
  readonly why: string;
  /** Of the move, monotonic. */
  readonly atMs: number;
  /** When the first of them opened, monotonic: a probe that fails is the same outage. As far as was heard. */
  readonly sinceMs: number;
}

const WORST: readonly BreakerMove['to'][] = ['open', 'half_open', 'ramping', 'closed'];

/** As this replica has heard of them. */
export function breakersOf(traffic: Traffic, nowMs: number): BreakerState[] {
  return breakerStates(traffic.breakerMoves(WITHIN_MS), nowMs, new Map(traffic.sidecars().map((row) => [row.sidecar, row.instance])));
}

/**
 * Those that are not closed.
 * @param moves oldest first
 * @param instances the process that was heard last, by sidecar
 */
export function breakerStates(moves: readonly BreakerMove[], nowMs: number, instances: ReadonlyMap<string, string>): BreakerState[] {
  const newest = new Map<string, BreakerMove>();
  const began = new Map<string, number>();
  for (const move of moves) {
    if ((instances.get(move.sidecar) ?? move.instance) !== move.instance) continue;
    const key = `${move.provider} ${move.capability} ${move.sidecar}`;
    const before = move.from ?? newest.get(key)?.to ?? 'closed';
    if (before === 'closed' || !began.has(key)) began.set(key, move.atMs);
    newest.set(key, move);
  }
  const states = new Map<string, BreakerState>();
  for (const [at, move] of newest) {
    if (move.to === 'closed' || nowMs - move.atMs > LOST_MS) continue;
    const key = `${move.provider} ${move.capability}`;
    const known = states.get(key);
    const isWorse = known === undefined || WORST.indexOf(move.to) < WORST.indexOf(known.state);
    const { capability, provider } = move;
    states.set(key, {
      capability,
      provider,
      state: isWorse ? move.to : known.state,
      sidecars: [...(known?.sidecars ?? []), move.sidecar].sort(),
      openAt: move.to === 'open' ? [...(known?.openAt ?? []), move.sidecar].sort() : (known?.openAt ?? []),
      why: isWorse ? move.why : known.why,
      atMs: isWorse ? move.atMs : known.atMs,
      sinceMs: Math.min(known?.sinceMs ?? move.atMs, began.get(at) ?? move.atMs),
    });
  }
  return [...states.values()];
}
