const ZERO = 0x30;

/** The whole number that is written from there to there, in digits alone; -1 = it is not one, or cannot be held exactly. */
export function digitsIn(text: string, from: number, to: number): number {
  if (from >= to) return -1;
  let value = 0;
  for (let i = from; i < to; i++) {
    const digit = text.charCodeAt(i) - ZERO;
    if (digit < 0 || digit > 9) return -1;
    value = value * 10 + digit;
  }
  return value <= Number.MAX_SAFE_INTEGER ? value : -1;
}
