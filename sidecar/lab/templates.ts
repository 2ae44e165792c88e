/** `$n` in the texts of a step: the number of the call, from 1. Alone it stays a number, within other words it is text. */
const MARK = /\$n(?![A-Za-z0-9_])/g;

/** Whether any text in it depends on the number. */
export function isTemplate(value: unknown): boolean {
  if (typeof value === 'string') return value.search(MARK) >= 0;
  return typeof value === 'object' && value !== null && Object.values(value).some(isTemplate);
}

export function filled(value: unknown, n: number): unknown {
  if (typeof value === 'string') return value === '$n' ? n : value.replace(MARK, String(n));
  if (Array.isArray(value)) return value.map((each) => filled(each, n));
  if (typeof value === 'object' && value !== null)
    return Object.fromEntries(Object.entries(value).map(([key, each]) => [key, filled(each, n)]));
  return value;
}

export function filledText(text: string, n: number): string {
  return text.replace(MARK, String(n));
}
