/**
 * When to dial again. A server that restarts loses all its clients in one instant; if they all came back in one instant,
 * it would fall over again. So the first attempt after a loss is spread evenly over some time, further ones wait twice as
 * long each, half of it by chance. A connection that does not last counts as a failed attempt: a server that accepts and
 * drops is not hammered.
 */
import type { Random } from './random.ts';

export interface ReconnectPace {
  /** After a connection that had lasted: the first attempt comes within this time, evenly spread. More = calmer, later. */
  readonly spreadMs: number;
  /** Wait after the first failed attempt; doubled each time. */
  readonly firstMs: number;
  /** No wait is longer: bounds how long after its return a server may be unused. */
  readonly mostMs: number;
  /** A connection that lasted this long makes a fresh start. */
  readonly stableMs: number;
}

/** Back within 10 s of a server's return, and of 20 clients no more than a handful in any tenth of a second. */
export const DEFAULT_PACE: ReconnectPace = Object.freeze({ spreadMs: 2_000, firstMs: 250, mostMs: 4_000, stableMs: 10_000 });

/** @param failures attempts that failed, or connections that did not last, since the last one that did. */
export function waitBeforeDial(pace: ReconnectPace, failures: number, hadConnection: boolean, random: Random): number {
  const chance = random.next();
  const spread = hadConnection ? chance * pace.spreadMs : 0;
  if (failures === 0) return spread;
  // 2 ** 20 is beyond every sensible bound already
  const full = Math.min(pace.mostMs, pace.firstMs * 2 ** Math.min(failures - 1, 20));
  return Math.max(spread, full * (0.5 + chance / 2));
}
