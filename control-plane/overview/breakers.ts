/**
 * In which state breakers stand, out of what sidecars told of their moves. A breaker is kept in memory by the sidecar that has it:
 * when that one is gone, so is the breaker, and nobody says so. What an earlier process of a sidecar told is therefore left out, and
 * what a sidecar told that is not heard any more. One that is heard still has its breaker, however long it is open: without a call
 * nothing moves it. Only where digests were missed meanwhile it is believed for a quarter of an hour and no longer.
 */
import type { BreakerMove } from '../traffic/breaker-book.ts';
import type { Traffic } from '../traffic/traffic.ts';

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
  return breakerStates(traffic.breakerMoves(WITHIN_MS), (move) => traffic.untilMs(move) > nowMs);
}

/**
 * Those that are not closed.
 * @param moves oldest first
 * @param isSo whether a breaker that moved so last stands so still
 */
export function breakerStates(moves: readonly BreakerMove[], isSo: (move: BreakerMove) => boolean): BreakerState[] {
  const newest = new Map<string, BreakerMove>();
  const began = new Map<string, number>();
  for (const move of moves) {
    const key = `${move.provider} ${move.capability} ${move.sidecar} ${move.instance}`;
    const before = move.from ?? newest.get(key)?.to ?? 'closed';
    if (before === 'closed' || !began.has(key)) began.set(key, move.atMs);
    newest.set(key, move);
  }
  const states = new Map<string, BreakerState>();
  for (const [at, move] of newest) {
    if (move.to === 'closed' || !isSo(move)) continue;
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
