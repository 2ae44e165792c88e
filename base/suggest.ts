/**
 * "Did you mean …?": the known word nearest to a misspelt one. Nearest is by edits (insert, delete, replace, swap of
 * neighbours); a word further than a third of its length is not near, since a wild guess is worse than none.
 */

const MAX_EDITS = 3;
/** Longer words are not compared: the cost is the product of both lengths. */
const MAX_LENGTH = 200;

/** The nearest of `known`, or null when nothing is near. Ties go to the one that comes first. */
export function nearest(word: string, known: Iterable<string>): string | null {
  if (word.length === 0 || word.length > MAX_LENGTH) return null;
  const wanted = word.toLowerCase();
  let best: string | null = null;
  let bound = Math.min(MAX_EDITS, Math.max(1, Math.floor(word.length / 3))) + 1;
  for (const candidate of known) {
    if (candidate.length > MAX_LENGTH || Math.abs(candidate.length - word.length) >= bound) continue;
    const edits = editDistance(wanted, candidate.toLowerCase(), bound);
    if (edits < bound) {
      best = candidate;
      bound = edits;
      if (edits === 0) break;
    }
  }
  return best;
}

/** Edits between two words (optimal string alignment), or `bound` as soon as it is clear that there are as many. */
export function editDistance(a: string, b: string, bound = Number.POSITIVE_INFINITY): number {
  let before: number[] = [];
  let previous: number[] = Array.from({ length: b.length + 1 }, (_, i) => i);
  for (let i = 1; i <= a.length; i++) {
    const row: number[] = [i];
    let least = i;
    for (let j = 1; j <= b.length; j++) {
      const same = a.charCodeAt(i - 1) === b.charCodeAt(j - 1);
      let cost = Math.min((previous[j] as number) + 1, (row[j - 1] as number) + 1, (previous[j - 1] as number) + (same ? 0 : 1));
      const swapped = i > 1 && j > 1 && a.charCodeAt(i - 1) === b.charCodeAt(j - 2) && a.charCodeAt(i - 2) === b.charCodeAt(j - 1);
      if (swapped) cost = Math.min(cost, (before[j - 2] as number) + 1);
      row.push(cost);
      least = Math.min(least, cost);
    }
    if (least > bound) return bound;
    before = previous;
    previous = row;
  }
  return Math.min(bound, previous[b.length] as number);
}
