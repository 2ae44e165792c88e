/**
 * Protocol buffers to JSON, by the proto3 JSON mapping: 64-bit numbers as text, enums by name, bytes as base64, well-known
 * types in their own forms. Fields without presence are written also when they hold their default: a reader with a schema
 * (`required: [total]`) must find a total of 0. Fields that the type does not know are left out.
 */
import { durationText, maskText, timeText } from './protobuf-known.ts';
import { isWellKnown, isWrapper } from './protobuf-encode.ts';
import { type Field, Kind, type MessageType, type Schema } from './protobuf-schema.ts';
import { rawFields, WIRE_BYTES, WireReader } from './protobuf-wire.ts';

const MAX_DEPTH = 100;

/** `camel` is what the mapping says; `original` keeps the names as they stand in the .proto file. */
export type FieldNames = 'camel' | 'original';

/** What the bytes mean, ready for JSON.stringify; undefined when they are no such message. */
export function decodeJson(schema: Schema, type: MessageType, bytes: Buffer, names: FieldNames = 'camel'): unknown {
  const decoder = new Decoder(schema, names);
  const value = decoder.message(type, bytes, 0);
  return decoder.isBroken ? undefined : value;
}

type Json = Record<string, unknown>;

class Decoder {
  isBroken = false;
  readonly #schema: Schema;
  readonly #names: FieldNames;

  constructor(schema: Schema, names: FieldNames) {
    this.#schema = schema;
    this.#names = names;
  }

  message(type: MessageType, bytes: Buffer, depth: number): unknown {
    if (depth > MAX_DEPTH) return this.#broken();
    if (isWellKnown(type)) return this.#known(type, bytes, depth);
    const out: Json = Object.create(null) as Json;
    const camel = this.#names === 'camel';
    for (const field of type.fields) {
      if (field.hasPresence) continue;
      const key = camel ? field.jsonName : field.name;
      out[key] = field.isMap ? (Object.create(null) as Json) : field.isRepeated ? [] : defaultOf(field);
    }
    this.#read(type, bytes, out, depth);
    return out;
  }

  /** Reads what is there over what stands in `out`: a message that comes in two parts is one. */
  #read(type: MessageType, bytes: Buffer, out: Json, depth: number): void {
    const camel = this.#names === 'camel';
    const reader = new WireReader(bytes);
    let parts: Map<Field, Buffer> | null = null;
    while (!reader.isAtEnd) {
      const tag = reader.varint32() >>> 0;
      const wire = tag & 7;
      const field = type.byNumber.get(tag >>> 3);
      if (field === undefined || field.kind === Kind.group) {
        reader.skip(wire);
        continue;
      }
      const key = camel ? field.jsonName : field.name;
      if (field.isMap) {
        if (wire === WIRE_BYTES) this.#entry(field, reader.part(), out[key] as Json, depth);
        else reader.skip(wire);
      } else if (field.isRepeated) {
        this.#element(field, reader, wire, out[key] as unknown[], depth);
      } else if (field.message !== null) {
        if (wire !== WIRE_BYTES) return this.#isNoMessage();
        const part = reader.part();
        parts ??= new Map();
        const earlier = parts.get(field);
        const whole = earlier === undefined ? part : Buffer.concat([earlier, part]);
        parts.set(field, whole);
        this.#clearOneof(type, field, out);
        out[key] = this.message(field.message, whole, depth + 1);
      } else {
        this.#clearOneof(type, field, out);
        out[key] = this.#scalar(field, reader, wire);
      }
    }
    if (reader.isBroken) this.isBroken = true;
  }

  /** The last one of a oneof counts. */
  #clearOneof(type: MessageType, field: Field, out: Json): void {
    if (field.oneof < 0) return;
    for (const other of type.fields)
      if (other.oneof === field.oneof && other !== field) delete out[this.#names === 'camel' ? other.jsonName : other.name];
  }

  #element(field: Field, reader: WireReader, wire: number, into: unknown[], depth: number): void {
    if (field.message !== null) {
      if (wire === WIRE_BYTES) into.push(this.message(field.message, reader.part(), depth + 1));
      else reader.skip(wire);
    } else if (wire === WIRE_BYTES && field.kind !== Kind.string && field.kind !== Kind.bytes) {
      const packed = new WireReader(reader.part());
      while (!packed.isAtEnd) into.push(this.#scalar(field, packed, -1));
      if (packed.isBroken) this.isBroken = true;
    } else into.push(this.#scalar(field, reader, wire));
  }

  #entry(field: Field, bytes: Buffer, into: Json, depth: number): void {
    const entry = field.message as MessageType;
    const keyField = entry.byNumber.get(1);
    const valueField = entry.byNumber.get(2);
    if (keyField === undefined || valueField === undefined) return this.#isNoMessage();
    let key: unknown = defaultOf(keyField);
    let value: unknown = valueField.message === null ? defaultOf(valueField) : undefined;
    const reader = new WireReader(bytes);
    while (!reader.isAtEnd) {
      const tag = reader.varint32() >>> 0;
      if (tag >>> 3 === 1) key = this.#scalar(keyField, reader, tag & 7);
      else if (tag >>> 3 === 2)
        value =
          valueField.message === null
            ? this.#scalar(valueField, reader, tag & 7)
            : this.message(valueField.message, reader.part(), depth + 1);
      else reader.skip(tag & 7);
    }
    if (reader.isBroken) this.isBroken = true;
    into[String(key)] = value === undefined ? this.message(valueField.message as MessageType, NOTHING, depth + 1) : value;
  }

  /** @param wire -1 inside a packed list. */
  #scalar(field: Field, reader: WireReader, wire: number): unknown {
    if (wire >= 0 && wire !== wireOf(field.kind)) {
      reader.skip(wire);
      return this.#broken();
    }
    switch (field.kind) {
      case Kind.double:
        return real(reader.double());
      case Kind.float:
        return real(shortest(reader.float()));
      case Kind.int64:
        return BigInt.asIntN(64, reader.varint()).toString();
      case Kind.uint64:
        return reader.varint().toString();
      case Kind.int32:
        return reader.varint32();
      case Kind.fixed64:
        return reader.fixed64().toString();
      case Kind.fixed32:
        return reader.fixed32();
      case Kind.bool:
        return reader.varint() !== 0n;
      case Kind.string:
        return reader.part().toString('utf8');
      case Kind.bytes:
        return reader.part().toString('base64');
      case Kind.uint32:
        return reader.varint32() >>> 0;
      case Kind.enum: {
        const number = reader.varint32();
        return enumText(field, number);
      }
      case Kind.sfixed32:
        return reader.fixed32() | 0;
      case Kind.sfixed64:
        return BigInt.asIntN(64, reader.fixed64()).toString();
      case Kind.sint32: {
        const raw = reader.varint32();
        return (raw >>> 1) ^ -(raw & 1);
      }
      case Kind.sint64: {
        const raw = reader.varint();
        return ((raw >> 1n) ^ -(raw & 1n)).toString();
      }
      default:
        return this.#broken();
    }
  }

  #known(type: MessageType, bytes: Buffer, depth: number): unknown {
    if (isWrapper(type)) {
      const field = type.byNumber.get(1);
      if (field === undefined) return this.#broken();
      let value = defaultOf(field);
      const reader = new WireReader(bytes);
      while (!reader.isAtEnd) {
        const tag = reader.varint32() >>> 0;
        if (tag >>> 3 === 1) value = this.#scalar(field, reader, tag & 7);
        else reader.skip(tag & 7);
      }
      if (reader.isBroken) this.isBroken = true;
      return value;
    }
    const raw = rawFields(bytes);
    const name = type.fullName.slice('google.protobuf.'.length);
    if (name === 'Value') return this.#value(bytes, depth);
    if (raw === null) return this.#broken();
    switch (name) {
      case 'Timestamp':
      case 'Duration': {
        let seconds = 0;
        let nanos = 0;
        for (const { number, value } of raw) {
          if (number === 1) seconds = Number(BigInt.asIntN(64, value));
          if (number === 2) nanos = Number(BigInt.asIntN(32, value));
        }
        return (name === 'Timestamp' ? timeText(seconds, nanos) : durationText(seconds, nanos)) ?? this.#broken();
      }
      case 'FieldMask':
        return maskText(raw.filter(({ number }) => number === 1).map(({ part }) => part.toString('utf8')));
      case 'ListValue':
        return raw.filter(({ number }) => number === 1).map(({ part }) => this.#value(part, depth + 1));
      case 'Struct': {
        const out: Json = Object.create(null) as Json;
        for (const { number, part } of raw) {
          if (number !== 1) continue;
          const entry = rawFields(part) ?? [];
          const key = entry.find((one) => one.number === 1)?.part.toString('utf8') ?? '';
          out[key] = this.#value(entry.find((one) => one.number === 2)?.part ?? NOTHING, depth + 1);
        }
        return out;
      }
      default:
        return this.#any(raw, depth);
    }
  }

  #value(bytes: Buffer, depth: number): unknown {
    if (depth > MAX_DEPTH) return this.#broken();
    let value: unknown = null;
    const reader = new WireReader(bytes);
    while (!reader.isAtEnd) {
      const tag = reader.varint32() >>> 0;
      const number = tag >>> 3;
      if (tag === 8) {
        reader.varint32();
        value = null;
      } else if (tag === 17) value = real(reader.double());
      else if (tag === 26) value = reader.part().toString('utf8');
      else if (tag === 32) value = reader.varint32() !== 0;
      else if (tag === 42 || tag === 50)
        value = this.#known({ fullName: number === 5 ? STRUCT : LIST } as MessageType, reader.part(), depth + 1);
      else reader.skip(tag & 7);
    }
    if (reader.isBroken) this.isBroken = true;
    return value;
  }

  #any(raw: NonNullable<ReturnType<typeof rawFields>>, depth: number): unknown {
    const url = raw.findLast(({ number }) => number === 1)?.part.toString('utf8') ?? '';
    const bytes = raw.findLast(({ number }) => number === 2)?.part ?? NOTHING;
    if (url === '') return {};
    const type = this.#schema.message(url.slice(url.lastIndexOf('/') + 1));
    // Not described here: its bytes are all that can be said.
    if (type === null) return { '@type': url, value: bytes.toString('base64') };
    const value = this.message(type, bytes, depth + 1);
    return isWellKnown(type) ? { '@type': url, value } : { '@type': url, ...(value as Json) };
  }

  #isNoMessage(): void {
    this.isBroken = true;
  }

  #broken(): undefined {
    this.isBroken = true;
    return undefined;
  }
}

const NOTHING = Buffer.alloc(0);
const STRUCT = 'google.protobuf.Struct';
const LIST = 'google.protobuf.ListValue';

function enumText(field: Field, number: number): unknown {
  if (field.enumType?.fullName === 'google.protobuf.NullValue') return null;
  return field.enumType?.names.get(number) ?? number;
}

function defaultOf(field: Field): unknown {
  switch (field.kind) {
    case Kind.string:
    case Kind.bytes:
      return '';
    case Kind.bool:
      return false;
    case Kind.int64:
    case Kind.uint64:
    case Kind.fixed64:
    case Kind.sfixed64:
    case Kind.sint64:
      return '0';
    case Kind.enum:
      return enumText(field, 0);
    default:
      return 0;
  }
}

function real(value: number): number | string {
  return Number.isFinite(value) ? value : String(value);
}

/** The shortest number that is this float: 0.1, not 0.10000000149011612. */
function shortest(value: number): number {
  if (!Number.isFinite(value)) return value;
  for (let digits = 6; digits < 9; digits++) {
    const short = Number(value.toPrecision(digits));
    if (Math.fround(short) === value) return short;
  }
  return value;
}

function wireOf(kind: Kind): number {
  if (kind === Kind.double || kind === Kind.fixed64 || kind === Kind.sfixed64) return 1;
  if (kind === Kind.float || kind === Kind.fixed32 || kind === Kind.sfixed32) return 5;
  return kind === Kind.string || kind === Kind.bytes || kind === Kind.message ? 2 : 0;
}
