/**
 * google.protobuf.Value to and from JSON. Decides what of JSON a Value can hold: its numbers are
 * doubles, so a text with a number that a double does not hold exactly is left to another form, never rounded.
 */
import { fromJson, type JsonValue, toJson } from '@bufbuild/protobuf';
import { type Value, ValueSchema } from '@bufbuild/protobuf/wkt';
import { isDeeper } from '../../base/depth.ts';

/** As deep as the usual readers of Protocol Buffers go: each level of JSON is two or three messages there. */
export const MAX_DEPTH = 30;
/** Every decimal of so many digits survives the way through a double. */
const EXACT_DIGITS = 15;

/** JSON text of a Value; null when it is nested too deep, was not set, or holds a number that JSON has not. */
export function jsonOfValue(value: Value): string | null {
  try {
    const json = toJson(ValueSchema, value);
    return isDeeper(json, MAX_DEPTH) ? null : JSON.stringify(json);
  } catch {
    return null;
  }
}

/** A Value of well-formed JSON; null when a Value cannot hold it as it is. */
export function valueOfJson(json: Buffer): Value | null {
  if (!hasExactNumbers(json)) return null;
  const value = JSON.parse(json.toString('utf8')) as JsonValue;
  return isDeeper(value, MAX_DEPTH) ? null : fromJson(ValueSchema, value);
}

const QUOTE = 0x22;
const BACKSLASH = 0x5c;

/** Whether every number of a well-formed JSON text is the same after it was read into a double. */
export function hasExactNumbers(json: Uint8Array): boolean {
  for (let i = 0; i < json.length; i++) {
    const c = json[i] as number;
    if (c === QUOTE) {
      for (i++; i < json.length && json[i] !== QUOTE; i++) if (json[i] === BACKSLASH) i++;
    } else if (isDigit(c)) {
      const from = i;
      while (i < json.length && isOfNumber(json[i] as number)) i++;
      if (!isExact(json, from, i)) return false;
      i--;
    }
  }
  return true;
}

/** Digits from the first to the last that is not zero, and an exponent that a double has. */
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
  if (digits - trailing > EXACT_DIGITS) return false;
  if (digits === 0 || (at === to && to - from < 300)) return true;
  const value = Number(Buffer.from(json.buffer, json.byteOffset + from, to - from).toString('latin1'));
  return Number.isFinite(value) && value > 1e-300;
}

function isDigit(c: number): boolean {
  return c >= 0x30 && c <= 0x39;
}

/** After the first digit: digits, point, exponent and its sign. */
function isOfNumber(c: number): boolean {
  return isDigit(c) || c === 0x2e || c === 0x65 || c === 0x45 || c === 0x2b || c === 0x2d;
}
