/** How deep and how wide data is. What recurses over other people's data asks this first, so that the data cannot run it out of stack. */

/** True when there are more than `levels` lists or maps inside one another. */
export function isDeeper(value: unknown, levels: number): boolean {
  if (typeof value !== 'object' || value === null) return false;
  if (levels === 0) return true;
  for (const key in value) if (isDeeper((value as Record<string, unknown>)[key], levels - 1)) return true;
  return false;
}

export interface Bounds {
  /** Lists and maps inside one another. */
  readonly levels: number;
  /** Members of all maps and items of all lists together. */
  readonly members: number;
  /** Characters of one name. */
  readonly nameChars: number;
}

/** What a parsed JSON value exceeds, as the end of a sentence; null when it keeps within. */
export function boundsProblem(value: unknown, bounds: Bounds): string | null {
  if (typeof value !== 'object' || value === null) return null;
  left = bounds.members;
  const problem = walk(value, bounds.levels, bounds.nameChars);
  if (problem === Kept.deep) return `is nested more than ${bounds.levels} levels deep`;
  if (problem === Kept.wide) return `has more than ${bounds.members} members and items`;
  return problem === Kept.long ? `has a name of more than ${bounds.nameChars} characters` : null;
}

const Kept = { within: 0, deep: 1, wide: 2, long: 3 } as const;

/** Members that may come yet; nothing here waits, so nobody comes between. */
let left = 0;

function walk(value: object, levels: number, nameChars: number): number {
  if (levels === 0) return Kept.deep;
  if (Array.isArray(value)) {
    left -= value.length;
    if (left < 0) return Kept.wide;
    for (let i = 0; i < value.length; i++) {
      const item: unknown = value[i];
      if (typeof item !== 'object' || item === null) continue;
      const problem = walk(item, levels - 1, nameChars);
      if (problem !== Kept.within) return problem;
    }
    return Kept.within;
  }
  for (const name in value) {
    if (--left < 0) return Kept.wide;
    if (name.length > nameChars) return Kept.long;
    const member = (value as Record<string, unknown>)[name];
    if (typeof member !== 'object' || member === null) continue;
    const problem = walk(member, levels - 1, nameChars);
    if (problem !== Kept.within) return problem;
  }
  return Kept.within;
}
