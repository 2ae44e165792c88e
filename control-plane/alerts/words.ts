/** Figures as people read them in a sentence. Pure. */

/** `0.8 ms`, `120 ms`, `3.1 s`. */
export function ms(value: number): string {
  if (value >= 60_000) return `${Number((value / 60_000).toPrecision(2))} min`;
  return value >= 1_000 ? `${Number((value / 1_000).toPrecision(3))} s` : `${Number(value.toPrecision(3))} ms`;
}

/** `1 call`, `4,300 calls`. */
export function countWords(count: number, noun: string): string {
  return `${count.toLocaleString('en-US')} ${noun}${count === 1 ? '' : 's'}`;
}

/** `45 s`, `12 min`, `3 h`. */
export function span(forMs: number): string {
  if (forMs < 120_000) return `${Math.round(forMs / 1_000)} s`;
  return forMs < 7_200_000 ? `${Math.round(forMs / 60_000)} min` : `${Math.round(forMs / 3_600_000)} h`;
}
