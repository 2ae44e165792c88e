/**
 * JSON to protocol buffers, by the proto3 JSON mapping: both spellings of a field's name, 64-bit numbers as text or number,
 * enums by name or number, base64 in both alphabets, the well-known types in their own forms. What does not fit is refused
 * with the place and in words; nothing is dropped in silence, for a misspelt field would otherwise be an order without it.
 */
import { describe, quote } from './duration.ts';
import { readDuration, readMask, readTime, type SecondsAndNanos } from './protobuf-known.ts';
import { type Field, Kind, type MessageType, type Schema } from './protobuf-schema.ts';
import { WIRE_BYTES, WIRE_FIXED32, WIRE_FIXED64, WIRE_VARINT, WireWriter } from './protobuf-wire.ts';
import { nearest } from './suggest.ts';

const MAX_DEPTH = 100;
const MAX_PROBLEM_CHARS = 500;
const MAX_PATH_CHARS = 150;

export type Encoded = { readonly bytes: Buffer } | { readonly problem: string };

/** @param value parsed JSON; null stands for an empty message. */
export function encodeJson(schema: Schema, type: MessageType, value: unknown): Encoded {
  const encoder = new Encoder(schema);
  const isGood = encoder.message(type, value ?? (KNOWN.has(type.fullName) ? value : {}), '', 0);
  return isGood ? { bytes: encoder.out.finish() } : { problem: encoder.problem };
}

const WRAPPERS: ReadonlySet<string> = new Set(
  ['Double', 'Float', 'Int64', 'UInt64', 'Int32', 'UInt32', 'Bool', 'String', 'Bytes'].map((name) => `google.protobuf.${name}Value`),
);
const KNOWN: ReadonlySet<string> = new Set([
  ...WRAPPERS,
  ...['Timestamp', 'Duration', 'FieldMask', 'Struct', 'Value', 'ListValue', 'Any'].map((name) => `google.protobuf.${name}`),
]);

/** It has a JSON form of its own. */
export function isWellKnown(type: MessageType): boolean {
  return KNOWN.has(type.fullName);
}

export function isWrapper(type: MessageType): boolean {
  return WRAPPERS.has(type.fullName);
}

class Encoder {
  readonly out: WireWriter;
  problem = '';
  readonly #schema: Schema;

  constructor(schema: Schema, out = new WireWriter()) {
    this.#schema = schema;
    this.out = out;
  }

  message(type: MessageType, value: unknown, path: string, depth: number): boolean {
    if (depth > MAX_DEPTH) return this.#bad(path, `it is nested more than ${MAX_DEPTH} deep`);
    if (isWellKnown(type)) return this.#known(type, value, path, depth);
    if (!isMap(value)) return this.#bad(path, `a map (${type.fullName}) stands here, not ${describe(value)}`);
    let oneofs: Map<number, string> | null = null;
    let seen: Set<Field> | null = null;
    for (const key of Object.keys(value)) {
      const field = type.byName.get(key);
      if (field === undefined) return this.#unknown(type, key, path);
      const part = value[key];
      if (field.name !== field.jsonName) {
        seen ??= new Set();
        if (seen.has(field)) return this.#bad(`${path}/${key}`, `the field stands here twice, as ${field.name} and as ${field.jsonName}`);
        seen.add(field);
      }
      if (part === null && !takesNull(field)) continue;
      if (part === undefined) continue;
      if (field.oneof >= 0) {
        oneofs ??= new Map();
        const other = oneofs.get(field.oneof);
        if (other !== undefined) return this.#bad(`${path}/${key}`, `only one of ${other} and ${key} can be given`);
        oneofs.set(field.oneof, key);
      }
      if (!this.#field(field, part, `${path}/${key}`, depth)) return false;
    }
    for (const field of type.fields) {
      if (field.isRequired && value[field.name] == null && value[field.jsonName] == null)
        return this.#bad(path, `the field ${field.name} of ${type.fullName} is required`);
    }
    return true;
  }

  #field(field: Field, value: unknown, path: string, depth: number): boolean {
    if (field.isMap) return this.#map(field, value, path, depth);
    if (!field.isRepeated) return this.#tagged(field, value, path, depth);
    if (!Array.isArray(value)) return this.#bad(path, `a list stands here, not ${describe(value)}`);
    if (value.length === 0) return true;
    if (!field.isPacked || wireOf(field.kind) === WIRE_BYTES) {
      for (let i = 0; i < value.length; i++) if (!this.#tagged(field, value[i], `${path}/${i}`, depth)) return false;
      return true;
    }
    this.out.tag(field.number, WIRE_BYTES);
    const start = this.out.open();
    for (let i = 0; i < value.length; i++) if (!this.#scalar(field, value[i], `${path}/${i}`)) return false;
    this.out.close(start);
    return true;
  }

  #tagged(field: Field, value: unknown, path: string, depth: number): boolean {
    if (field.kind === Kind.group) return this.#bad(path, 'groups cannot be sent');
    this.out.tag(field.number, wireOf(field.kind));
    if (field.message === null) return this.#scalar(field, value, path);
    const start = this.out.open();
    if (!this.message(field.message, value, path, depth + 1)) return false;
    this.out.close(start);
    return true;
  }

  #map(field: Field, value: unknown, path: string, depth: number): boolean {
    const entry = field.message as MessageType;
    const keyField = entry.byNumber.get(1);
    const valueField = entry.byNumber.get(2);
    if (keyField === undefined || valueField === undefined) return this.#bad(path, 'its map type is not whole');
    if (!isMap(value)) return this.#bad(path, `a map stands here, not ${describe(value)}`);
    for (const key of Object.keys(value)) {
      this.out.tag(field.number, WIRE_BYTES);
      const start = this.out.open();
      this.out.tag(1, wireOf(keyField.kind));
      const read = keyField.kind === Kind.bool ? (key === 'true' ? true : key === 'false' ? false : key) : key;
      if (!this.#scalar(keyField, read, `${path}/${key}`)) return false;
      if (!this.#tagged(valueField, value[key], `${path}/${key}`, depth)) return false;
      this.out.close(start);
    }
    return true;
  }

  #scalar(field: Field, value: unknown, path: string): boolean {
    const { out } = this;
    switch (field.kind) {
      case Kind.string:
        if (typeof value !== 'string') return this.#bad(path, `a text stands here, not ${describe(value)}`);
        if (LONE_SURROGATE.test(value)) return this.#bad(path, 'the text holds half a character (a lone surrogate)');
        out.text(value);
        return true;
      case Kind.bool:
        if (typeof value !== 'boolean') return this.#bad(path, `true or false stands here, not ${describe(value)}`);
        out.varint32(value ? 1 : 0);
        return true;
      case Kind.bytes: {
        const bytes = typeof value === 'string' ? base64(value) : null;
        if (bytes === null) return this.#bad(path, `bytes in base64 stand here, not ${describe(value)}`);
        out.part(bytes);
        return true;
      }
      case Kind.enum:
        return this.#enum(field, value, path);
      case Kind.double:
      case Kind.float:
        return this.#real(field, value, path);
      default:
        return this.#whole(field, value, path);
    }
  }

  #enum(field: Field, value: unknown, path: string): boolean {
    const type = field.enumType;
    if (type === null) return this.#bad(path, 'its enum is not described');
    let number: number | undefined;
    if (typeof value === 'number' && Number.isInteger(value) && value === (value | 0)) number = value;
    else if (typeof value === 'string') number = type.numbers.get(value);
    else if (value === null && type.fullName === 'google.protobuf.NullValue') number = 0;
    if (number === undefined) {
      const names = [...type.numbers.keys()];
      const near = typeof value === 'string' ? nearest(value, names) : null;
      const hint = near === null ? `it has ${names.slice(0, 20).join(', ')}` : `did you mean ${near}?`;
      return this.#bad(path, `${describe(value)} is no value of ${type.fullName}: ${hint}`);
    }
    this.out.varint(BigInt(number));
    return true;
  }

  #real(field: Field, value: unknown, path: string): boolean {
    let number = Number.NaN;
    let isGood = typeof value === 'number';
    if (typeof value === 'number') number = value;
    else if (value === 'NaN') isGood = true;
    else if (value === 'Infinity' || value === '-Infinity') {
      number = Number(value);
      isGood = true;
    } else if (typeof value === 'string' && /^-?\d+(\.\d+)?([eE][+-]?\d+)?$/.test(value)) {
      number = Number(value);
      isGood = Number.isFinite(number);
    }
    if (!isGood) return this.#bad(path, `a number stands here, not ${describe(value)}`);
    if (field.kind === Kind.double) this.out.double(number);
    else {
      if (Number.isFinite(number) && !Number.isFinite(Math.fround(number)))
        return this.#bad(path, `${number} is beyond what a float can hold`);
      this.out.float(number);
    }
    return true;
  }

  #whole(field: Field, value: unknown, path: string): boolean {
    const [least, most] = RANGES[field.kind] as readonly [bigint, bigint];
    const number = wholeOf(value);
    if (number === null) return this.#bad(path, `a whole number stands here, not ${describe(value)}`);
    if (number < least || number > most) return this.#bad(path, `${number} is not from ${least} to ${most}`);
    const { out } = this;
    switch (field.kind) {
      case Kind.fixed32:
      case Kind.sfixed32:
        out.fixed32(Number(number));
        return true;
      case Kind.fixed64:
      case Kind.sfixed64:
        out.fixed64(number);
        return true;
      case Kind.sint32:
      case Kind.sint64:
        out.varint(number >= 0n ? number << 1n : (-number << 1n) - 1n);
        return true;
      default:
        out.varint(number);
        return true;
    }
  }

  #known(type: MessageType, value: unknown, path: string, depth: number): boolean {
    const name = type.fullName.slice('google.protobuf.'.length);
    switch (name) {
      case 'Timestamp':
        return this.#moment(typeof value === 'string' ? readTime(value) : null, 'a time such as "2026-01-31T08:00:00Z"', value, path);
      case 'Duration':
        return this.#moment(typeof value === 'string' ? readDuration(value) : null, 'a duration such as "1.5s"', value, path);
      case 'FieldMask':
        if (typeof value !== 'string') return this.#bad(path, `field paths such as "name,address.zip" stand here, not ${describe(value)}`);
        for (const one of readMask(value)) {
          this.out.tag(1, WIRE_BYTES);
          this.out.text(one);
        }
        return true;
      case 'Struct':
        return this.#struct(value, path, depth);
      case 'Value':
        return this.#value(value, path, depth);
      case 'ListValue':
        return this.#list(value, path, depth);
      case 'Any':
        return this.#any(value, path, depth);
      default: {
        const field = type.byNumber.get(1);
        if (field === undefined) return this.#bad(path, `${type.fullName} is not described as it should be`);
        return value === null || this.#tagged(field, value, path, depth);
      }
    }
  }

  #moment(read: SecondsAndNanos | null, form: string, value: unknown, path: string): boolean {
    if (read === null) return this.#bad(path, `${form} stands here, not ${describe(value)}`);
    if (read.seconds !== 0) {
      this.out.tag(1, WIRE_VARINT);
      this.out.varint(BigInt(read.seconds));
    }
    if (read.nanos !== 0) {
      this.out.tag(2, WIRE_VARINT);
      this.out.varint(BigInt(read.nanos));
    }
    return true;
  }

  #struct(value: unknown, path: string, depth: number): boolean {
    if (!isMap(value)) return this.#bad(path, `a map stands here, not ${describe(value)}`);
    for (const key of Object.keys(value)) {
      this.out.tag(1, WIRE_BYTES);
      const entry = this.out.open();
      this.out.tag(1, WIRE_BYTES);
      this.out.text(key);
      this.out.tag(2, WIRE_BYTES);
      const start = this.out.open();
      if (!this.#value(value[key], `${path}/${key}`, depth + 1)) return false;
      this.out.close(start);
      this.out.close(entry);
    }
    return true;
  }

  #list(value: unknown, path: string, depth: number): boolean {
    if (!Array.isArray(value)) return this.#bad(path, `a list stands here, not ${describe(value)}`);
    for (let i = 0; i < value.length; i++) {
      this.out.tag(1, WIRE_BYTES);
      const start = this.out.open();
      if (!this.#value(value[i], `${path}/${i}`, depth + 1)) return false;
      this.out.close(start);
    }
    return true;
  }

  #value(value: unknown, path: string, depth: number): boolean {
    if (depth > MAX_DEPTH) return this.#bad(path, `it is nested more than ${MAX_DEPTH} deep`);
    const { out } = this;
    if (value === null) {
      out.tag(1, WIRE_VARINT);
      out.varint32(0);
    } else if (typeof value === 'number') {
      out.tag(2, WIRE_FIXED64);
      out.double(value);
    } else if (typeof value === 'string') {
      out.tag(3, WIRE_BYTES);
      out.text(value);
    } else if (typeof value === 'boolean') {
      out.tag(4, WIRE_VARINT);
      out.varint32(value ? 1 : 0);
    } else {
      out.tag(Array.isArray(value) ? 6 : 5, WIRE_BYTES);
      const start = out.open();
      if (!(Array.isArray(value) ? this.#list(value, path, depth) : this.#struct(value, path, depth))) return false;
      out.close(start);
    }
    return true;
  }

  #any(value: unknown, path: string, depth: number): boolean {
    if (!isMap(value)) return this.#bad(path, `a map with "@type" stands here, not ${describe(value)}`);
    if (Object.keys(value).length === 0) return true;
    const url = value['@type'];
    if (typeof url !== 'string') return this.#bad(path, 'an Any needs "@type", such as "type.googleapis.com/shop.v1.Order"');
    const type = this.#schema.message(url.slice(url.lastIndexOf('/') + 1));
    if (type === null) return this.#bad(`${path}/@type`, `the type ${quote(url)} is not described`);
    const { '@type': _, ...rest } = value;
    const inner = new Encoder(this.#schema);
    const isGood = inner.message(type, isWellKnown(type) ? rest['value'] : rest, path, depth + 1);
    if (!isGood) return this.#bad('', inner.problem);
    this.out.tag(1, WIRE_BYTES);
    this.out.text(url);
    this.out.tag(2, WIRE_BYTES);
    this.out.part(inner.out.finish());
    return true;
  }

  #unknown(type: MessageType, key: string, path: string): boolean {
    const names = type.fields.map((field) => field.name);
    const near = nearest(key, names);
    const hint =
      near !== null ? `did you mean ${near}?` : names.length === 0 ? 'it has no fields' : `it has ${names.slice(0, 30).join(', ')}`;
    return this.#bad(path, `${type.fullName} has no field ${quote(key)}: ${hint}`);
  }

  #bad(path: string, words: string): false {
    const shown = path.length <= MAX_PATH_CHARS ? path : `…${path.slice(-MAX_PATH_CHARS)}`;
    this.problem = (path === '' ? words : `${shown}: ${words}`).slice(0, MAX_PROBLEM_CHARS);
    return false;
  }
}

/** UTF-8 has no form for half a character. */
const LONE_SURROGATE = /\p{Surrogate}/u;

function isMap(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

/** null means something for these; for all others it means "not set". */
function takesNull(field: Field): boolean {
  return (
    (field.message?.fullName === 'google.protobuf.Value' && !field.isRepeated) ||
    (field.enumType?.fullName === 'google.protobuf.NullValue' && !field.isRepeated)
  );
}

const I32: readonly [bigint, bigint] = [-(2n ** 31n), 2n ** 31n - 1n];
const U32: readonly [bigint, bigint] = [0n, 2n ** 32n - 1n];
const I64: readonly [bigint, bigint] = [-(2n ** 63n), 2n ** 63n - 1n];
const U64: readonly [bigint, bigint] = [0n, 2n ** 64n - 1n];
const RANGES: Readonly<Record<number, readonly [bigint, bigint]>> = {
  [Kind.int32]: I32,
  [Kind.sint32]: I32,
  [Kind.sfixed32]: I32,
  [Kind.uint32]: U32,
  [Kind.fixed32]: U32,
  [Kind.int64]: I64,
  [Kind.sint64]: I64,
  [Kind.sfixed64]: I64,
  [Kind.uint64]: U64,
  [Kind.fixed64]: U64,
};

function wholeOf(value: unknown): bigint | null {
  if (typeof value === 'number') return Number.isInteger(value) ? BigInt(value) : null;
  if (typeof value !== 'string' || value.length > 40) return null;
  if (/^-?\d+$/.test(value)) return BigInt(value);
  // 1.0 and 1e3 are whole as well
  if (!/^-?\d+(\.\d+)?([eE][+-]?\d+)?$/.test(value)) return null;
  const number = Number(value);
  return Number.isSafeInteger(number) ? BigInt(number) : null;
}

function base64(text: string): Buffer | null {
  return /^[A-Za-z0-9+/_-]*={0,2}$/.test(text) && text.replace(/=+$/, '').length % 4 !== 1 ? Buffer.from(text, 'base64') : null;
}

function wireOf(kind: Kind): number {
  switch (kind) {
    case Kind.double:
    case Kind.fixed64:
    case Kind.sfixed64:
      return WIRE_FIXED64;
    case Kind.float:
    case Kind.fixed32:
    case Kind.sfixed32:
      return WIRE_FIXED32;
    case Kind.string:
    case Kind.bytes:
    case Kind.message:
      return WIRE_BYTES;
    default:
      return WIRE_VARINT;
  }
}
