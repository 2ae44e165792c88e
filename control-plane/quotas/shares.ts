/**
 * How the rate of one capability (or of a provider without a sidecar) is shared out over the sidecars at which it is
 * counted, from what each caller asked for lately. Pure: the same demands give the same shares, and together they are
 * never more than the whole.
 *
 * A tenth is divided equally over everybody, so that whoever begins to ask is let through at once and is seen. Of the rest
 * each caller gets what it asks for up to one level, the highest that can be given to all who want it: nobody's greed takes
 * anything from those below the level. What nobody asks for is added in proportion to the callers, so that demand may grow.
 */

/** Kept for those who do not ask. */
const FLOOR = 0.1;

/** Parts (0–1) of a rate. */
export interface Parts {
  readonly rest: number;
  readonly of: Readonly<Record<string, number>>;
}

/**
 * @param perSec the rate
 * @param demands of each sidecar that asks, calls a second of each of its callers
 * @param sidecars how many there are in all, those that do not ask included
 */
export function shareOut(perSec: number, demands: ReadonlyMap<string, readonly number[]>, sidecars: number): Parts {
  const count = Math.max(sidecars, demands.size, 1);
  if (demands.size === 0) return { rest: 1 / count, of: {} };
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
  return { rest: floor, of };
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
