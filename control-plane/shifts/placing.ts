/** Which shares, or weights, give a version or provider its part of the traffic, the others keeping theirs beside one another. Pure. */
import { parseVersion } from '../../proto/language/range.ts';

/** Rounding that nobody sees; shares that add up to a hair more than one would be refused. */
const DIGITS = 1e6;

/**
 * Shares by version. What is named keeps its proportion to the other named ones; what is not named shares the rest, which
 * goes to the newest of them, as always.
 * @param versions all there are
 */
export function sharesFor(
  before: Readonly<Record<string, number>> | null,
  versions: readonly string[],
  version: string,
  share: number,
): Record<string, number> {
  const named = Object.entries(before ?? {});
  const own = shareOf(before, versions, version);
  const others = 1 - own;
  const shares: Record<string, number> = { [version]: share };
  for (const [each, part] of named)
    if (each !== version) shares[each] = others <= 0 ? 0 : Math.floor(((part * (1 - share)) / others) * DIGITS) / DIGITS;
  return shares;
}

/** What a version has by a split: its share, or the rest where it is the newest that is not named. */
export function shareOf(before: Readonly<Record<string, number>> | null, versions: readonly string[], version: string): number {
  const said = before?.[version];
  if (said !== undefined) return said;
  const unnamed = versions.filter(
    (each) => before?.[each] === undefined && (each === version || parseVersion(each).prerelease.length === 0),
  );
  const newest = unnamed.sort((a, b) => parseVersion(b).compare(parseVersion(a)))[0];
  if (newest !== version) return 0;
  return Math.max(0, 1 - Object.values(before ?? {}).reduce((sum, part) => sum + part, 0));
}

/**
 * Weights by which one of several providers gets its part. At all of it the others have weight 0, which takes no traffic.
 * @param others agent ids and weights, at least one
 */
export function weightsFor(
  target: { readonly agent: string; readonly weight: number },
  others: readonly { readonly agent: string; readonly weight: number }[],
  share: number,
): Record<string, number> {
  if (share >= 1) {
    const weights: Record<string, number> = { [target.agent]: target.weight > 0 ? target.weight : 1 };
    for (const { agent } of others) weights[agent] = 0;
    return weights;
  }
  const total = others.reduce((sum, { weight }) => sum + weight, 0);
  // Back from all of it to a part: whoever had nothing shares alike.
  if (total === 0) {
    const weights: Record<string, number> = { [target.agent]: rounded((share / (1 - share)) * others.length) };
    for (const { agent } of others) weights[agent] = 1;
    return weights;
  }
  return { [target.agent]: rounded((share / (1 - share)) * total) };
}

function rounded(weight: number): number {
  return Math.round(weight * DIGITS) / DIGITS;
}
