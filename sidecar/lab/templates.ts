/**
 * The words that stand for something else in the texts of a step: `$n` (the number of the call, from 1), `$caller`, `$session`, `$id`
 * (16 hex digits by chance), `$int(1,100)` and `$pick(a,b,c)` (by chance). A number alone stays a number, within other words it is text.
 */
import type { Random } from '../../base/random.ts';

const MARK = /\$(?:(n|caller|session|id)(?![A-Za-z0-9_])|int\((-?\d{1,9}),\s*(-?\d{1,9})\)|pick\(([^()]{1,1000})\))/g;
const NUMBER = /^\$(?:n|int\(-?\d{1,9},\s*-?\d{1,9}\))$/;

/** What the words stand for in one call. */
export interface Words {
  readonly n: number;
  readonly caller: string;
  /** '' = the call belongs to none. */
  readonly session: string;
  /** Of the step, so that what is drawn here turns no other dice. */
  readonly random: Random;
}

/** Whether any text in it depends on the call. */
export function isTemplate(value: unknown): boolean {
  if (typeof value === 'string') return value.search(MARK) >= 0;
  return typeof value === 'object' && value !== null && Object.values(value).some(isTemplate);
}

export function filled(value: unknown, words: Words): unknown {
  if (typeof value === 'string') return NUMBER.test(value) ? Number(filledText(value, words)) : filledText(value, words);
  if (Array.isArray(value)) return value.map((each) => filled(each, words));
  if (typeof value === 'object' && value !== null)
    return Object.fromEntries(Object.entries(value).map(([key, each]) => [key, filled(each, words)]));
  return value;
}

export function filledText(text: string, words: Words): string {
  if (!text.includes('$')) return text;
  return text.replace(MARK, (_all, name?: string, low?: string, high?: string, list?: string) => {
    if (name !== undefined) return wordOf(name, words);
    if (list !== undefined) return oneOf(list.split(','), words.random).trim();
    const from = Number(low);
    return String(from + Math.floor(words.random.next() * (Math.max(from, Number(high)) - from + 1)));
  });
}

function wordOf(name: string, { n, caller, session, random }: Words): string {
  if (name === 'n') return String(n);
  if (name === 'caller') return caller;
  if (name === 'session') return session;
  let id = '';
  for (let i = 0; i < 4; i++)
    id += Math.floor(random.next() * 65_536)
      .toString(16)
      .padStart(4, '0');
  return id;
}

function oneOf(list: readonly string[], random: Random): string {
  return list[Math.floor(random.next() * list.length)] as string;
}
