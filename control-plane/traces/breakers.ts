/** Which breakers were open when a call was made, out of the moves that sidecars told of. Each sidecar has breakers of its own. */
import type { BreakerMove } from '../traffic/breaker-book.ts';
import type { OpenBreaker, Surroundings } from './why.ts';

/**
 * @param moves oldest first
 * @param wallAt the wall clock at a time of the clock that does not jump
 * @param isReplaced at that time another process ran, whose breakers were closed when it started
 */
export function breakersFrom(
  moves: readonly BreakerMove[],
  wallAt: (atMs: number) => number,
  isReplaced: (sidecar: string, instance: string, wallMs: number) => boolean,
): Surroundings {
  return {
    openBreakers: (sidecar, capability, wallMs) => {
      const open = new Map<string, OpenBreaker>();
      for (const move of moves) {
        const at = wallAt(move.atMs);
        if (at > wallMs) break;
        if (move.sidecar !== sidecar || move.capability !== capability || isReplaced(sidecar, move.instance, wallMs)) continue;
        if (move.to === 'open') open.set(move.provider, { provider: move.provider, why: move.why, openedAgoMs: wallMs - at });
        else open.delete(move.provider);
      }
      return [...open.values()];
    },
  };
}
