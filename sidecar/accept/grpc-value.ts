/**
 * google.protobuf.Value, Struct and ListValue to and from JSON. Decides what of JSON a Value can hold: its numbers are
 * doubles, so a text with a number that a double does not hold exactly is left to another form, never rounded.
 */
import { Reader, Writer } from '../../base/protobuf-fields.ts';

/** As deep as the usual readers of Protocol Buffers go: each level of JSON is two or three messages there. */
const MAX_DEPTH = 30;
/** Every decimal of so many digits survives the way through a double. */
const EXACT_DIGITS = 15;

/** Field numbers of google.protobuf.Value. */
const Kind = { null: 1, number: 2, text: 3, bool: 4, struct: 5, list: 6 } as const;

type Json = null | number | string | boolean | readonly Json[] | { readonly [key: string]: Json };

/** JSON text of a Value; null when it is malformed, nested too deep, or holds a number that JSON has not. */
export function jsonOfValue(bytes: Buffer): string | null {
  const state = { failed: false };
  const value = readValue(bytes, 0, state);
  return state.failed ? null : JSON.stringify(value);
}

interface State {
  failed: boolean;
}

function readValue(bytes: Buffer, depth: number, state: State): Json {
  const reader = new Reader(bytes);
  let value: Json = null;
  if (depth > MAX_DEPTH) state.failed = true;
  while (!state.failed && reader.next()) {
    switch (reader.field) {
      case Kind.null:
        reader.uint();
        value = null;
        break;
      case Kind.number:
        value = reader.double();
        if (!Number.isFinite(value)) state.failed = true;
        break;
      case Kind.text:
        value = reader.text();
        break;
      case Kind.bool:
        value = reader.bool();
        break;
      case Kind.struct:
        value = readStruct(reader.bytes(), depth, state);
        break;
      case Kind.list:
        value = readList(reader.bytes(), depth, state);
        break;
    }
  }
  if (reader.failed) state.failed = true;
  return value;
}

function readStruct(bytes: Buffer, depth: number, state: State): Json {
  // Without a prototype `__proto__` is a key like any other.
  const object = Object.create(null) as Record<string, Json>;
  const reader = new Reader(bytes);
  while (!state.failed && reader.next()) {
    if (reader.field !== 1) continue;
    const entry = new Reader(reader.bytes());
    let key = '';
    let value: Json = null;
    while (entry.next()) {
      if (entry.field === 1) key = entry.text();
      else if (entry.field === 2) value = readValue(entry.bytes(), depth + 1, state);
    }
    if (entry.failed) state.failed = true;
    object[key] = value;
  }
  if (reader.failed) state.failed = true;
  return object;
}

function readList(bytes: Buffer, depth: number, state: State): Json {
  const list: Json[] = [];
  const reader = new Reader(bytes);
  while (!state.failed && reader.next()) if (reader.field === 1) list.push(readValue(reader.bytes(), depth + 1, state));
  if (reader.failed) state.failed = true;
  return list;
}

/** A Value of well-formed JSON; null when a Value cannot hold it as it is. */
export function valueOfJson(json: Buffer): Writer | null {
  if (!hasExactNumbers(json)) return null;
  return writeValue(JSON.parse(json.toString('utf8')), 0);
}

/** A Struct of an object as `JSON.stringify` would write it. */
export function structOf(object: object): Writer {
  const plain = JSON.parse(JSON.stringify(object)) as { readonly [key: string]: Json };
  return writeStruct(plain, 0) ?? new Writer();
}

function writeValue(value: Json, depth: number): Writer | null {
  if (depth > MAX_DEPTH) return null;
  const writer = new Writer(0, 32);
  if (value === null) writer.alwaysUint(Kind.null, 0);
  else if (typeof value === 'number') writer.alwaysDouble(Kind.number, value);
  else if (typeof value === 'string') writer.alwaysText(Kind.text, value);
  else if (typeof value === 'boolean') writer.alwaysUint(Kind.bool, value ? 1 : 0);
  else {
    const inner = Array.isArray(value) ? writeList(value, depth) : writeStruct(value as { readonly [key: string]: Json }, depth);
    if (inner === null) return null;
    writer.message(Array.isArray(value) ? Kind.list : Kind.struct, inner);
  }
  return writer;
}

function writeStruct(object: { readonly [key: string]: Json }, depth: number): Writer | null {
  const writer = new Writer();
  for (const key of Object.keys(object)) {
    const value = writeValue(object[key] as Json, depth + 1);
    if (value === null) return null;
    const entry = new Writer(0, 64);
    entry.text(1, key);
    entry.message(2, value);
    writer.message(1, entry);
  }
  return writer;
}

function writeList(list: readonly Json[], depth: number): Writer | null {
  const writer = new Writer();
  for (const each of list) {
    const value = writeValue(each, depth + 1);
    if (value === null) return null;
    writer.message(1, value);
  }
  return writer;
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
