/**
 * What a command takes is what its usage line says (`health <settings.yaml> [--ready] [--wait TIME]`): a word or an option beyond it
 * is refused, so that nobody believes in one that nothing has read.
 */

/** Null = all of it is taken. @param given by name, undefined = not given. @param words behind the command's own */
export function notTaken(
  program: string,
  usage: string,
  given: Readonly<Record<string, unknown>>,
  words: readonly string[],
): string | null {
  const [verb] = usage.split(' ', 1) as [string];
  const parts: readonly string[] = usage.match(/\[[^\]]*\]|<[^>]*>|…/g) ?? [];
  const options = new Set(parts.filter((part) => part.startsWith('[--')).map((part) => part.slice(3, -1).split(' ', 1)[0]));
  const stray = Object.keys(given).find((name) => given[name] !== undefined && !options.has(name));
  const see = `it is: ${program} ${usage}`;
  if (stray !== undefined) return `${verb} takes no --${stray}; ${see}`;
  const most = parts.includes('…') ? Number.POSITIVE_INFINITY : parts.length - options.size;
  return words.length > most ? `${verb} does not take ${JSON.stringify((words[most] as string).slice(0, 80))} as well; ${see}` : null;
}
