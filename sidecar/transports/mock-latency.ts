/**
 * How long a mock takes: the distributions that a script can name, and the drawing from them. Pure: one number from 0 to 1 in, a
 * time out, so that each call throws one die for its latency whatever the distribution is.
 */

/** A distribution; all numbers are milliseconds. */
export type Latency =
  | { readonly kind: 'uniform'; readonly from: number; readonly to: number }
  /** Cut at 0 and at `most`. */
  | { readonly kind: 'normal'; readonly mean: number; readonly deviation: number; readonly most: number }
  /** Most calls near the median and a long tail: what services look like. `sigma` of the logarithm. */
  | { readonly kind: 'lognormal'; readonly median: number; readonly sigma: number; readonly most: number }
  /** Measured: straight lines between the points, which rise in both. The first stands at 0, the last at 1. */
  | { readonly kind: 'percentiles'; readonly shares: readonly number[]; readonly times: readonly number[] }
  /** One after the other, by the number of the call, and from the beginning again. */
  | { readonly kind: 'list'; readonly times: readonly number[] };

/** z of 95 %. */
const Z95 = 1.644_853_626_951_472;

export function sigmaOf(medianMs: number, p95Ms: number): number {
  return Math.log(p95Ms / medianMs) / Z95;
}

/** @param dice in [0, 1) @param callNumber from 1 */
export function latencyOf(latency: Latency, dice: number, callNumber: number): number {
  switch (latency.kind) {
    case 'uniform':
      return latency.from + dice * (latency.to - latency.from);
    case 'normal':
      return Math.min(latency.most, Math.max(0, latency.mean + latency.deviation * normalAt(dice)));
    case 'lognormal':
      return Math.min(latency.most, latency.median * Math.exp(latency.sigma * normalAt(dice)));
    case 'percentiles':
      return between(latency.shares, latency.times, dice);
    case 'list':
      return latency.times[(callNumber - 1) % latency.times.length] as number;
  }
}

function between(shares: readonly number[], times: readonly number[], dice: number): number {
  let i = 1;
  while (i < shares.length - 1 && (shares[i] as number) <= dice) i++;
  const low = shares[i - 1] as number;
  const high = shares[i] as number;
  const from = times[i - 1] as number;
  return from + ((dice - low) / (high - low)) * ((times[i] as number) - from);
}

/** Chances below this, and above 1 minus it, belong to the tails. */
const TAIL = 0.024_25;

/**
 * The quantile of the standard normal distribution, by rational functions for the middle and for the tails (P. J. Acklam's
 * coefficients): good to nine digits, and no second die is needed.
 */
function normalAt(chance: number): number {
  const p = Math.min(1 - 1e-12, Math.max(1e-12, chance));
  if (p < TAIL) return tail(Math.sqrt(-2 * Math.log(p)));
  if (p > 1 - TAIL) return -tail(Math.sqrt(-2 * Math.log(1 - p)));
  const q = p - 0.5;
  const r = q * q;
  return (
    ((((((-39.696_830_286_653_76 * r + 220.946_098_424_520_5) * r - 275.928_510_446_968_7) * r + 138.357_751_867_269) * r -
      30.664_798_066_147_16) *
      r +
      2.506_628_277_459_239) *
      q) /
    (((((-54.476_098_798_224_06 * r + 161.585_836_858_040_9) * r - 155.698_979_859_886_6) * r + 66.801_311_887_719_72) * r -
      13.280_681_552_885_72) *
      r +
      1)
  );
}

function tail(q: number): number {
  return (
    (((((-0.007_784_894_002_430_293 * q - 0.322_396_458_041_136_5) * q - 2.400_758_277_161_838) * q - 2.549_732_539_343_734) * q +
      4.374_664_141_464_968) *
      q +
      2.938_163_982_698_783) /
    ((((0.007_784_695_709_041_462 * q + 0.322_467_129_070_039_8) * q + 2.445_134_137_142_996) * q + 3.754_408_661_907_416) * q + 1)
  );
}
