/**
 * How the rate of one capability (or of a provider without a sidecar) is shared out over the sidecars at which it is
 * counted, from what each caller asked for lately. Pure: the same demands give the same shares, and together they are
 * never more than the whole.
 *
 * A tenth is divided equally over everybody, so that whoever begins to ask is let through at once and is seen. Of the rest
 * each caller gets what it asks for up to one level, the highest that can be given to all who want it: nobody's greed takes
 * anything from those below the level. What nobody asks for is added in proportion to the callers, so that demand may grow.
 *
 * Of the burst whoever has asked for nothing lately keeps an eighth of what is not asked for, whatever its part of the rate
 * is: three calls after a quiet hour are not refused because of a fleet that is quiet too. What several may take too much by
 * that, they may take once.
 */
import type { SharedParts } from '../../proto/wire/quotas.ts';

/** Kept for those who do not ask. */
const FLOOR = 0.1;
/** Of what nobody asks for at present. */
export const IDLE_BURST = 0.125;

/**
 * @param perSec the rate
 * @param demands of each sidecar that asks, calls a second of each of its callers
 * @param sidecars how many there are in all, those that do not ask included
 */
export function shareOut(perSec: number, demands: ReadonlyMap<string, readonly number[]>, sidecars: number): SharedParts {
  const count = Math.max(sidecars, demands.size, 1);
  if (demands.size === 0) return { of: {}, rest: 1 / count, burst: Math.max(1 / count, IDLE_BURST) };
  // Where nobody else is, nothing has to be kept.
  const floor = count > demands.size ? FLOOR / count : 0;
  const giving = perSec * (1 - floor * count);
  const all = [...demands.values()].flat();
  const level = levelOf(all, giving);
  const spare = Math.max(
    0,
    all.reduce((left, asked) => left - Math.min(asked, level), giving),
  );
  const of: Record<string, number> = {};
  for (const [sidecar, asked] of demands) {
    const got = asked.reduce((sum, one) => sum + Math.min(one, level), 0);
    of[sidecar] = floor + (got + (spare * asked.length) / all.length) / perSec;
  }
  return { of, rest: floor, burst: Math.max(floor, (IDLE_BURST * spare) / perSec) };
}

/** The level up to which everybody can have what they ask for. */
function levelOf(asked: readonly number[], giving: number): number {
  const sorted = [...asked].sort((a, b) => a - b);
  let left = giving;
  for (let i = 0; i < sorted.length; i++) {
    const equal = left / (sorted.length - i);
    const one = sorted[i] as number;
    if (one > equal) return equal;
    left -= one;
  }
  return Number.POSITIVE_INFINITY;
}
