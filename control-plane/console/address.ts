/**
 * Where one is in the console, as it stands behind the `#`: `#/capability/crm.order.query?since=5m`. Everything that can be looked at
 * has an address that can be sent to somebody; what is not an address of ours is the overview.
 */
export const PAGES = [
  'overview',
  'topology',
  'capabilities',
  'traces',
  'messages',
  'rules',
  'quotas',
  'shifts',
  'agents',
  'fleet',
  'alerts',
  'audit',
] as const;
export type PageName = (typeof PAGES)[number];
/** Pages of one thing; the word of the address, and the list it belongs to. */
const ITEMS: Readonly<Record<string, PageName>> = { capability: 'capabilities', agent: 'agents', trace: 'traces', task: 'messages' };
export type ItemName = 'capability' | 'agent' | 'trace' | 'task';

export interface Address {
  /** The page that is lit in the list of pages. */
  readonly page: PageName;
  /** null = the list itself. */
  readonly item: ItemName | null;
  /** Name or id of the item; '' on lists. */
  readonly id: string;
  readonly query: Readonly<Record<string, string>>;
}

export function readAddress(hash: string): Address {
  const text = hash.startsWith('#') ? hash.slice(1) : hash;
  const [path = '', search = ''] = split(text, '?');
  const [, first = '', ...rest] = path.split('/');
  const query = readQuery(search);
  const id = decoded(rest.join('/'));
  const list = Object.hasOwn(ITEMS, first) ? ITEMS[first] : undefined;
  if (list !== undefined && id !== '') return { page: list, item: first as ItemName, id, query };
  const page = PAGES.find((each) => each === first);
  return page === undefined ? { page: 'overview', item: null, id: '', query: {} } : { page, item: null, id: '', query };
}

export function pageAddress(page: PageName, query: Readonly<Record<string, string>> = {}): string {
  return `#/${page}${writeQuery(query)}`;
}

export function itemAddress(item: ItemName, id: string, query: Readonly<Record<string, string>> = {}): string {
  return `#/${item}/${encodeURIComponent(id)}${writeQuery(query)}`;
}

/** `?a=b`, without what is empty; '' when nothing is left. Of API paths and addresses alike. */
export function writeQuery(query: Readonly<Record<string, string | number | null | undefined>>): string {
  const parts: string[] = [];
  for (const [name, value] of Object.entries(query))
    if (value !== '' && value !== null && value !== undefined) parts.push(`${encodeURIComponent(name)}=${encodeURIComponent(value)}`);
  return parts.length === 0 ? '' : `?${parts.join('&')}`;
}

function readQuery(search: string): Record<string, string> {
  const query: Record<string, string> = {};
  for (const part of search.split('&')) {
    const [name = '', value = ''] = split(part, '=');
    if (name !== '' && name !== '__proto__') query[decoded(name)] = decoded(value);
  }
  return query;
}

function split(text: string, mark: string): readonly string[] {
  const at = text.indexOf(mark);
  return at < 0 ? [text] : [text.slice(0, at), text.slice(at + 1)];
}

/** A broken escape is shown as it is. */
function decoded(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

/** The id out of what people paste: the bare id, or a whole traceparent. */
export function traceIdIn(text: string): string | null {
  const found = /(?:^|-)([0-9a-f]{32})(?:-|$)/.exec(text.trim().toLowerCase());
  return found?.[1] ?? null;
}
