/**
 * The structure of a regular expression, as far as its running time depends on it: sets of characters, sequences,
 * alternatives, repetitions. The text must have been accepted by `new RegExp(text, 'u')` before; what cannot be looked
 * into (a class by property) is taken as "any character".
 */

/** Sorted pairs of code points, both ends included. */
export type CharSet = readonly (readonly [low: number, high: number])[];

export type Tree =
  | { readonly kind: 'set'; readonly set: CharSet }
  | { readonly kind: 'empty' }
  | { readonly kind: 'start' }
  | { readonly kind: 'end' }
  | { readonly kind: 'sequence'; readonly parts: readonly Tree[] }
  | { readonly kind: 'choice'; readonly parts: readonly Tree[] }
  | { readonly kind: 'repeat'; readonly body: Tree; readonly min: number; readonly max: number };

export interface ParsedPattern {
  readonly tree: Tree;
  /** Bodies of lookaheads and lookbehinds: matched on their own wherever they stand. */
  readonly looks: readonly Tree[];
  readonly hasBackreference: boolean;
  /** A lookahead or lookbehind stands inside a repetition: it is matched again at every round. */
  readonly hasRepeatedLook: boolean;
}

const LAST = 0x10ffff;
const ANY: CharSet = [[0, LAST]];
const DIGITS: CharSet = [[48, 57]];
const WORD: CharSet = [
  [48, 57],
  [65, 90],
  [95, 95],
  [97, 122],
];
const SPACE: CharSet = [
  [9, 13],
  [32, 32],
  [160, 160],
  [0x1680, 0x1680],
  [0x2000, 0x200a],
  [0x2028, 0x2029],
  [0x202f, 0x202f],
  [0x205f, 0x205f],
  [0x3000, 0x3000],
  [0xfeff, 0xfeff],
];
const DOT: CharSet = complement([
  [10, 10],
  [13, 13],
  [0x2028, 0x2029],
]);
const EMPTY: Tree = { kind: 'empty' };

export function parsePattern(text: string): ParsedPattern {
  const parser = new PatternParser(text);
  const tree = parser.choice();
  return { tree, looks: parser.looks, hasBackreference: parser.hasBackreference, hasRepeatedLook: parser.hasRepeatedLook };
}

class PatternParser {
  readonly looks: Tree[] = [];
  hasBackreference = false;
  hasRepeatedLook = false;
  readonly #characters: readonly string[];
  #at = 0;

  constructor(text: string) {
    this.#characters = Array.from(text);
  }

  #peek(ahead = 0): string {
    return this.#characters[this.#at + ahead] ?? '';
  }

  #take(): string {
    return this.#characters[this.#at++] ?? '';
  }

  #skip(text: string): boolean {
    for (let i = 0; i < text.length; i++) if (this.#peek(i) !== text[i]) return false;
    this.#at += text.length;
    return true;
  }

  choice(): Tree {
    const parts = [this.#sequence()];
    while (this.#skip('|')) parts.push(this.#sequence());
    return parts.length === 1 ? (parts[0] as Tree) : { kind: 'choice', parts };
  }

  #sequence(): Tree {
    const parts: Tree[] = [];
    while (this.#at < this.#characters.length && this.#peek() !== '|' && this.#peek() !== ')') parts.push(this.#repeated());
    return parts.length === 1 ? (parts[0] as Tree) : { kind: 'sequence', parts };
  }

  #repeated(): Tree {
    const looksBefore = this.looks.length;
    const body = this.#atom();
    let [min, max] = [1, 1];
    if (this.#skip('*')) [min, max] = [0, Number.POSITIVE_INFINITY];
    else if (this.#skip('+')) [min, max] = [1, Number.POSITIVE_INFINITY];
    else if (this.#skip('?')) [min, max] = [0, 1];
    else if (this.#peek() === '{') [min, max] = this.#bounds();
    else return body;
    this.#skip('?');
    if (max > 1 && this.looks.length > looksBefore) this.hasRepeatedLook = true;
    return { kind: 'repeat', body, min, max };
  }

  #bounds(): [number, number] {
    let text = '';
    this.#take();
    for (let c = this.#take(); c !== '}' && c !== ''; c = this.#take()) text += c;
    const [low, high] = text.split(',');
    return [Number(low), high === undefined ? Number(low) : high === '' ? Number.POSITIVE_INFINITY : Number(high)];
  }

  #atom(): Tree {
    const c = this.#take();
    if (c === '(') return this.#group();
    if (c === '[') return { kind: 'set', set: this.#class() };
    if (c === '.') return { kind: 'set', set: DOT };
    if (c === '^') return { kind: 'start' };
    if (c === '$') return { kind: 'end' };
    if (c === '\\') return this.#escape();
    return one(c.codePointAt(0) ?? 0);
  }

  #group(): Tree {
    const isLook = this.#skip('?=') || this.#skip('?!') || this.#skip('?<=') || this.#skip('?<!');
    if (!isLook && !this.#skip('?:') && this.#skip('?<')) while (this.#take() !== '>');
    const inner = this.choice();
    this.#skip(')');
    if (!isLook) return inner;
    this.looks.push(inner);
    return EMPTY;
  }

  #escape(): Tree {
    const next = this.#peek();
    if (next === 'b' || next === 'B') {
      this.#at++;
      return EMPTY;
    }
    if (next === 'k' || (next >= '1' && next <= '9')) {
      this.hasBackreference = true;
      this.#at++;
      return EMPTY;
    }
    return { kind: 'set', set: this.#escapedSet() };
  }

  /** After the backslash. */
  #escapedSet(): CharSet {
    const c = this.#take();
    switch (c) {
      case 'd':
        return DIGITS;
      case 'D':
        return complement(DIGITS);
      case 'w':
        return WORD;
      case 'W':
        return complement(WORD);
      case 's':
        return SPACE;
      case 'S':
        return complement(SPACE);
      case 'p':
      case 'P':
        while (this.#take() !== '}');
        return ANY;
      case 't':
        return single(9);
      case 'n':
        return single(10);
      case 'v':
        return single(11);
      case 'f':
        return single(12);
      case 'r':
        return single(13);
      case '0':
        return single(0);
      case 'c':
        return single((this.#take().codePointAt(0) ?? 0) % 32);
      case 'x':
        return single(this.#hex(2));
      case 'u':
        return single(this.#unicode());
      default:
        return single(c.codePointAt(0) ?? 0);
    }
  }

  #hex(length: number): number {
    let text = '';
    for (let i = 0; i < length; i++) text += this.#take();
    return Number.parseInt(text, 16);
  }

  #unicode(): number {
    if (this.#skip('{')) {
      let text = '';
      for (let c = this.#take(); c !== '}' && c !== ''; c = this.#take()) text += c;
      return Number.parseInt(text, 16);
    }
    const high = this.#hex(4);
    if (high < 0xd800 || high > 0xdbff || this.#peek() !== '\\' || this.#peek(1) !== 'u') return high;
    this.#at += 2;
    return (high - 0xd800) * 0x400 + (this.#hex(4) - 0xdc00) + 0x10000;
  }

  #class(): CharSet {
    const isNegated = this.#skip('^');
    const ranges: (readonly [number, number])[] = [];
    while (this.#peek() !== ']' && this.#at < this.#characters.length) {
      const set = this.#classAtom();
      const isRange = set.length === 1 && set[0]?.[0] === set[0]?.[1] && this.#peek() === '-' && this.#peek(1) !== ']';
      if (!isRange) {
        ranges.push(...set);
        continue;
      }
      this.#take();
      const high = this.#classAtom();
      ranges.push([set[0]?.[0] ?? 0, high[0]?.[1] ?? LAST]);
    }
    this.#take();
    return isNegated ? complement(ranges) : ranges;
  }

  #classAtom(): CharSet {
    if (!this.#skip('\\')) return single(this.#take().codePointAt(0) ?? 0);
    if (this.#skip('b')) return single(8);
    return this.#escapedSet();
  }
}

function single(code: number): CharSet {
  return [[code, code]];
}

function one(code: number): Tree {
  return { kind: 'set', set: single(code) };
}

function complement(ranges: CharSet): CharSet {
  const sorted = [...ranges].sort((a, b) => a[0] - b[0]);
  const rest: [number, number][] = [];
  let next = 0;
  for (const [low, high] of sorted) {
    if (low > next) rest.push([next, low - 1]);
    next = Math.max(next, high + 1);
  }
  if (next <= LAST) rest.push([next, LAST]);
  return rest;
}

/** True when some character is in both. */
export function overlaps(a: CharSet, b: CharSet): boolean {
  return a.some(([low, high]) => b.some(([otherLow, otherHigh]) => low <= otherHigh && otherLow <= high));
}
