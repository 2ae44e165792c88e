/**
 * Advice beside a schema: the same tree of keys, with a sentence at each leaf. A list is written `key[]`, a free map
 * `key.<key>`, as the page shows them.
 */
export interface Advice {
  readonly [key: string]: string | Advice;
}

/** Every sentence by its path, `limits.body`. */
export function flat(advice: Advice, prefix = ''): Map<string, string> {
  const found = new Map<string, string>();
  for (const [key, value] of Object.entries(advice)) {
    if (typeof value === 'string') found.set(prefix + key, value);
    else for (const [path, text] of flat(value, `${prefix}${key}.`)) found.set(path, text);
  }
  return found;
}
