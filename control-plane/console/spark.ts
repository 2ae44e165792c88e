/** Lines of a few figures: the path of a sparkline, and of a chart with its scale. */

/** Points of an SVG polyline within a box, from the lower left; '' for fewer than two. One highest value stands for the full height. */
export function sparkPoints(values: readonly number[], width: number, height: number, top: number = highest(values)): string {
  if (values.length < 2) return '';
  const step = width / (values.length - 1);
  return values
    .map((value, i) => `${round(i * step)},${round(height - (top > 0 ? Math.min(1, Math.max(0, value) / top) : 0) * height)}`)
    .join(' ');
}

export function highest(values: readonly (number | null)[]): number {
  let top = 0;
  for (const value of values) if (value !== null && value > top) top = value;
  return top;
}

/** The next round figure above: 1, 2 or 5 times a power of ten. */
export function niceTop(value: number): number {
  if (!(value > 0)) return 1;
  const power = 10 ** Math.floor(Math.log10(value));
  for (const step of [1, 2, 5]) if (value <= step * power) return step * power;
  return 10 * power;
}

/** Pieces of a line, broken where there is no value; a lonely value is a piece of one point. */
export function pieces(values: readonly (number | null)[], width: number, height: number, top: number): string[] {
  const found: string[] = [];
  const step = values.length > 1 ? width / (values.length - 1) : 0;
  let piece: string[] = [];
  for (const [i, value] of values.entries()) {
    if (value === null) {
      if (piece.length > 0) found.push(piece.join(' '));
      piece = [];
    } else piece.push(`${round(i * step)},${round(height - Math.min(1, value / top) * height)}`);
  }
  if (piece.length > 0) found.push(piece.join(' '));
  return found;
}

const round = (value: number): number => Math.round(value * 10) / 10;
