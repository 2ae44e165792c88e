/** What each key does. Pages are reached by `g` and a letter; the list is what `?` shows. */
import type { PageName } from './address.ts';

export const PAGE_KEYS: Readonly<Record<string, PageName>> = {
  o: 'overview',
  t: 'topology',
  c: 'capabilities',
  r: 'traces',
  m: 'messages',
  p: 'rules',
  q: 'quotas',
  s: 'shifts',
  a: 'agents',
  f: 'fleet',
  l: 'alerts',
  u: 'audit',
};

export type KeyAction =
  | { readonly go: PageName }
  | { readonly move: 1 | -1 }
  | { readonly page: 'before' | 'next' }
  | 'red'
  | 'help'
  | 'search'
  | 'theme'
  | 'go';

/** How long after `g` the second key may come. */
export const GO_MS = 1_500;

/** Null = not ours. @param isGoing `g` was pressed just before */
export function actionOf(key: string, isGoing: boolean): KeyAction | null {
  if (isGoing) {
    const page = Object.hasOwn(PAGE_KEYS, key) ? PAGE_KEYS[key] : undefined;
    return page === undefined ? null : { go: page };
  }
  switch (key) {
    case 'g':
      return 'go';
    case 'b':
      return 'red';
    case '?':
      return 'help';
    case '/':
      return 'search';
    case 'd':
      return 'theme';
    case 'j':
    case 'ArrowDown':
      return { move: 1 };
    case 'k':
    case 'ArrowUp':
      return { move: -1 };
    case 'n':
      return { page: 'next' };
    case 'N':
      return { page: 'before' };
    default:
      return null;
  }
}
