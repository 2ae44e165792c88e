/** How deep data goes. What recurses over other people's data asks this first, so that the data cannot run it out of stack. */

/** True when there are more than `levels` lists or maps inside one another. */
export function isDeeper(value: unknown, levels: number): boolean {
  if (typeof value !== 'object' || value === null) return false;
  if (levels === 0) return true;
  for (const key in value) if (isDeeper((value as Record<string, unknown>)[key], levels - 1)) return true;
  return false;
}
