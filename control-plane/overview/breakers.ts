/**
 * In which state breakers stand, out of what sidecars told of their moves. A breaker is kept in memory by the sidecar that has it:
 * when that one is gone, so is the breaker, and nobody says so. An open one of which nothing is heard for a quarter of an hour is
 * therefore not shown: with traffic it would have tried the provider again long ago.
 */
import type { BreakerMove } from '../traffic/traffic.ts';

export const LOST_MS = 900_000;

export interface BreakerState {
  readonly capability: string;
  readonly provider: string;
  /** The worst of all sidecars. */
  readonly state: BreakerMove['to'];
  /** Sidecars at which it is not closed, sorted. */
  readonly sidecars: readonly string[];
  readonly why: string;
  /** Of the move, monotonic. */
  readonly atMs: number;
}

const WORST: readonly BreakerMove['to'][] = ['open', 'half_open', 'ramping', 'closed'];

/** Those that are not closed. @param moves oldest first */
export function breakerStates(moves: readonly BreakerMove[], nowMs: number): BreakerState[] {
  const newest = new Map<string, BreakerMove>();
  for (const move of moves) newest.set(`${move.provider} ${move.capability} ${move.sidecar}`, move);
  const states = new Map<string, BreakerState>();
  for (const move of newest.values()) {
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
      why: isWorse ? move.why : known.why,
      atMs: isWorse ? move.atMs : known.atMs,
    });
  }
  return [...states.values()];
}
