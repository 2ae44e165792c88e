/**
 * JSON whose numbers are not changed by being read. `JSON.parse` makes doubles of them, and an id of 64 bits is another id then.
 * Here a number that a double does not hold keeps the digits that its author wrote; all others are numbers as ever.
 */
import { stepOf } from './json-pointer.ts';

/** A number of JSON that a double would change, or might. */
export class ExactNumber {
  /** As it was written. */
  readonly text: string;
  constructor(text: string) {
    this.text = text;
  }

  /** Of equal value, however it was written. */
  isSame(other: ExactNumber): boolean {
    return decimalOf(this.text) === decimalOf(other.text);
  }

  /** A double is this number, or is written as it is. */
  get isDouble(): boolean {
    const double = Number(this.text);
    if (!Number.isFinite(double)) return false;
    const { whole } = this;
    return (
      (whole !== null && Number.isInteger(double) && BigInt(double) === BigInt(whole)) || decimalOf(this.text) === decimalOf(String(double))
    );
  }

  /** In digits alone, with `-` before them; null = it is no whole number, or a very long one. */
  get whole(): string | null {
    const { sign, digits, exponent } = partsOf(this.text);
    return exponent < 0 || digits.length + exponent > MAX_WHOLE_DIGITS ? null : sign + digits + '0'.repeat(exponent);
  }
}

/** Far beyond 64 bits. */
const MAX_WHOLE_DIGITS = 400;
/** Every decimal of so many digits survives the way through a double. */
const EXACT_DIGITS = 15;

const QUOTE = 0x22;
const BACKSLASH = 0x5c;

/** Whether every number of a well-formed JSON text is written down the same after it was read into a double. */
export function hasExactNumbers(json: Uint8Array): boolean {
  return areAll(json, isExact);
}

/** And none of them is a whole number that may be great for a double: what is written the same may be another number of 64 bits. */
export function hasPlainNumbers(json: Uint8Array): boolean {
  return areAll(json, isPlain);
}

function areAll(json: Uint8Array, isFine: (json: Uint8Array, from: number, to: number) => boolean): boolean {
  for (let i = 0; i < json.length; i++) {
    const c = json[i] as number;
    if (c === QUOTE) {
      for (i++; i < json.length && json[i] !== QUOTE; i++) if (json[i] === BACKSLASH) i++;
    } else if (isDigit(c)) {
      const from = i;
      while (i < json.length && isOfNumber(json[i] as number)) i++;
      if (!isFine(json, from, i)) return false;
      i--;
    }
  }
  return true;
}

/** Without its sign. Digits from the first to the last that is not zero, and an exponent that a double has; or what a double is written as. */
function isExact(json: Uint8Array, from: number, to: number): boolean {
  let digits = 0;
  let trailing = 0;
  let at = from;
  for (; at < to; at++) {
    const c = json[at] as number;
    if (c === 0x65 || c === 0x45) break;
    if (!isDigit(c) || (digits === 0 && c === 0x30)) continue;
    digits++;
    trailing = c === 0x30 ? trailing + 1 : 0;
  }
  if (digits === 0) return true;
  const isShort = digits - trailing <= EXACT_DIGITS;
  if (isShort && at === to && to - from < 300) return true;
  const text = Buffer.from(json.buffer, json.byteOffset + from, to - from).toString('latin1');
  const value = Number(text);
  return isShort ? Number.isFinite(value) && value > 1e-300 : String(value) === text;
}

function isPlain(json: Uint8Array, from: number, to: number): boolean {
  return isExact(json, from, to) && (to - from <= EXACT_DIGITS || !isWhole(json, from, to));
}

function isWhole(json: Uint8Array, from: number, to: number): boolean {
  for (let i = from; i < to; i++) if (!isDigit(json[i] as number)) return false;
  return true;
}

function isDigit(c: number): boolean {
  return c >= 0x30 && c <= 0x39;
}

/** After the first digit: digits, point, exponent and its sign. */
function isOfNumber(c: number): boolean {
  return isDigit(c) || c === 0x2e || c === 0x65 || c === 0x45 || c === 0x2b || c === 0x2d;
}

/** As `JSON.parse` reads it, and throws, with an `ExactNumber` where a double is another number, or may be. Very deep texts exhaust the stack. */
export function parseExact(json: Buffer): unknown {
  const text = json.toString('utf8');
  const plain: unknown = JSON.parse(text);
  // Few texts hold one: the slow way is for these alone.
  return hasPlainNumbers(json) ? plain : new Reader(text).value();
}

/** Its JSON text. */
export function writeExact(value: unknown): string {
  if (value instanceof ExactNumber) return value.text;
  if (typeof value !== 'object' || value === null) return JSON.stringify(value);
  if (Array.isArray(value)) return `[${value.map(writeExact).join(',')}]`;
  const members = Object.entries(value).map(([name, part]) => `${JSON.stringify(name)}:${writeExact(part)}`);
  return `{${members.join(',')}}`;
}

/** The value with doubles instead; the digits go into `numbers` by their place, a JSON pointer. */
export function withDoubles(value: unknown, place: string, numbers: Record<string, string>): unknown {
  if (value instanceof ExactNumber) {
    numbers[place] = value.text;
    const double = Number(value.text);
    return Number.isFinite(double) ? double : Math.sign(double) * Number.MAX_VALUE;
  }
  return mapped(value, place, (part, below) => withDoubles(part, below, numbers));
}

/** The value that `withDoubles` was given. */
export function withDigits(value: unknown, numbers: Readonly<Record<string, string>>, place = ''): unknown {
  if (typeof value === 'number') return Object.hasOwn(numbers, place) ? new ExactNumber(numbers[place] as string) : value;
  return mapped(value, place, (part, below) => withDigits(part, numbers, below));
}

function mapped(value: unknown, place: string, to: (part: unknown, place: string) => unknown): unknown {
  if (typeof value !== 'object' || value === null) return value;
  if (Array.isArray(value)) return value.map((item: unknown, i) => to(item, `${place}/${i}`));
  return Object.fromEntries(Object.entries(value).map(([name, part]) => [name, to(part, `${place}/${stepOf(name)}`)]));
}

/** Of a text that `JSON.parse` has accepted. */
class Reader {
  readonly #text: string;
  #at = 0;

  constructor(text: string) {
    this.#text = text;
  }

  value(): unknown {
    switch (this.#next()) {
      case '{':
        return this.#map();
      case '[':
        return this.#list();
      case '"':
        return this.#string();
      default:
        return this.#plain();
    }
  }

  #map(): Record<string, unknown> {
    const map: Record<string, unknown> = {};
    for (this.#at++; this.#next() !== '}'; this.#comma()) {
      const name = this.#string();
      this.#next();
      this.#at++;
      const value = this.value();
      // As JSON.parse has it: a member like any other.
      if (name === '__proto__') Object.defineProperty(map, name, { value, writable: true, enumerable: true, configurable: true });
      else map[name] = value;
    }
    this.#at++;
    return map;
  }

  #list(): unknown[] {
    const list: unknown[] = [];
    for (this.#at++; this.#next() !== ']'; this.#comma()) list.push(this.value());
    this.#at++;
    return list;
  }

  #string(): string {
    const from = this.#at++;
    for (; this.#text[this.#at] !== '"'; this.#at++) if (this.#text[this.#at] === '\\') this.#at++;
    this.#at++;
    return JSON.parse(this.#text.slice(from, this.#at)) as string;
  }

  /** A number, or one of the three words. */
  #plain(): unknown {
    const from = this.#at;
    while (this.#at < this.#text.length && !',]} \t\r\n'.includes(this.#text[this.#at] as string)) this.#at++;
    const text = this.#text.slice(from, this.#at);
    const value: unknown = JSON.parse(text);
    return typeof value === 'number' && !isHeld(text, value) ? new ExactNumber(text) : value;
  }

  #comma(): void {
    if (this.#next() === ',') this.#at++;
  }

  /** What comes after white space. */
  #next(): string | undefined {
    let at = this.#at;
    while (at < this.#text.length && ' \t\r\n'.includes(this.#text[at] as string)) at++;
    this.#at = at;
    return this.#text[at];
  }
}

/** The double, written down again, is the same number. Of great whole numbers that is no proof: these are never held. */
function isHeld(text: string, value: number): boolean {
  if (!Number.isFinite(value) || (Math.abs(value) > Number.MAX_SAFE_INTEGER && WHOLE.test(text))) return false;
  return String(value) === text || decimalOf(text) === decimalOf(String(value));
}

const WHOLE = /^-?\d+$/;

interface Parts {
  readonly sign: string;
  /** Without zeros at either end; `0` alone for zero. */
  readonly digits: string;
  /** Of the last digit. */
  readonly exponent: number;
}

function partsOf(text: string): Parts {
  const [mantissa = '', power = '0'] = text.toLowerCase().split('e', 2);
  const isNegative = mantissa.startsWith('-');
  const [whole = '', fraction = ''] = (isNegative ? mantissa.slice(1) : mantissa).split('.', 2);
  const all = (whole + fraction).replace(/^0+/, '');
  const digits = all.replace(/0+$/, '');
  if (digits === '') return { sign: '', digits: '0', exponent: 0 };
  return { sign: isNegative ? '-' : '', digits, exponent: Number(power) - fraction.length + all.length - digits.length };
}

/** One text for all ways to write a number. */
function decimalOf(text: string): string {
  const { sign, digits, exponent } = partsOf(text);
  return `${sign}${digits}e${exponent}`;
}
