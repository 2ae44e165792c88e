/**
 * The types of one gRPC server, and JSON to their bytes and back by @bufbuild/protobuf, which follows the JSON mapping of
 * Protocol Buffers: both spellings of a field's name, 64-bit numbers as text (or as numbers, exactly: `grpc-numbers.ts`), enums by
 * name, well-known types in their own forms. What does not fit is refused with its place; nothing is dropped in silence, for a misspelt field would otherwise be
 * an order without it. Fields without presence are written also when they hold their default: a reader with a schema
 * (`required: [total]`) must find a total of 0.
 *
 * Loads the library: import it by `import()`, and its types only.
 */
import {
  create,
  createFileRegistry,
  createRegistry,
  type DescField,
  type DescMessage,
  type FileRegistry,
  fromBinary,
  fromJson,
  type JsonObject,
  type JsonValue,
  type JsonWriteOptions,
  type Message,
  toBinary,
  toJson,
} from '@bufbuild/protobuf';
import {
  type Any,
  FieldDescriptorProto_Label,
  FieldDescriptorProto_Type,
  type FileDescriptorProto,
  FileDescriptorProtoSchema,
} from '@bufbuild/protobuf/wkt';
import { isDeeper } from '../../base/depth.ts';
import { quote } from '../../base/duration.ts';
import { hasPlainNumbers, parseExact } from '../../base/json-exact.ts';
import { nearest } from '../../base/suggest.ts';
import { reachTypes, RpcStatus } from '../../proto/wire/reach-messages.ts';
import type { FieldNames } from './grpc-endpoint.ts';
import { NumberFit } from './grpc-numbers.ts';

/** Of JSON that is to be sent. The library has the same bound for messages that come. */
const MAX_DEPTH = 100;
const MAX_PROBLEM_CHARS = 500;
const MAX_SHOWN_NAMES = 30;
/** What does not fit is sought down to here; each level costs another reading of what is below it. */
const MAX_SOUGHT_LEVELS = 8;

export interface Method {
  readonly service: string;
  readonly name: string;
  readonly input: DescMessage;
  readonly output: DescMessage;
  readonly isClientStreaming: boolean;
  readonly isServerStreaming: boolean;
}

type Encoded = { readonly bytes: Buffer } | { readonly problem: string };
type Decoded = { readonly json: string } | { readonly problem: string };

export class Schema {
  readonly #types: FileRegistry;
  readonly #reading: { readonly registry: FileRegistry };
  readonly #writing: Readonly<Record<FieldNames, Partial<JsonWriteOptions>>>;

  constructor(types: FileRegistry) {
    this.#types = types;
    this.#reading = { registry: types };
    this.#writing = {
      camel: { registry: types, alwaysEmitImplicit: true },
      original: { registry: types, alwaysEmitImplicit: true, useProtoFieldName: true },
    };
  }

  get services(): string[] {
    return [...this.#types].filter(({ kind }) => kind === 'service').map(({ typeName }) => typeName);
  }

  message(fullName: string): DescMessage | null {
    return this.#types.getMessage(fullName) ?? null;
  }

  /** Names of a service's methods; null = there is no such service. */
  methodsOf(service: string): string[] | null {
    return this.#types.getService(service)?.methods.map(({ name }) => name) ?? null;
  }

  /** The words of what is missing when there is no such method. */
  method(service: string, name: string): Method | string {
    const described = this.#types.getService(service);
    if (described === undefined) return `there is no service ${service}; there are ${this.services.join(', ') || 'none'}`;
    const method = described.methods.find((one) => one.name === name);
    if (method === undefined)
      return `the service ${service} has no method ${name}; it has ${described.methods.map((one) => one.name).join(', ')}`;
    const { input, output, methodKind } = method;
    return {
      service,
      name,
      input,
      output,
      isClientStreaming: methodKind === 'client_streaming' || methodKind === 'bidi_streaming',
      isServerStreaming: methodKind === 'server_streaming' || methodKind === 'bidi_streaming',
    };
  }

  /**
   * @param json parsed JSON; null stands for an empty message.
   * @param source the text that it was read from: numbers that a double does not hold are taken from there.
   */
  encode(type: DescMessage, json: unknown, source: Buffer | null = null): Encoded {
    if (isDeeper(json, MAX_DEPTH)) return { problem: `it is nested more than ${MAX_DEPTH} deep` };
    let value = (json ?? (hasOwnForm(type) ? null : {})) as JsonValue;
    if (source !== null && json !== null && !hasPlainNumbers(source)) {
      const fit = new NumberFit(this.#types);
      value = fit.fit(type, parseExact(source), '');
      if (fit.problem !== '') return { problem: fit.problem };
    }
    let message: Message;
    try {
      message = fromJson(type, value, this.#reading);
    } catch (error) {
      return { problem: this.#misfit(type, value, (error as Error).message) };
    }
    try {
      const bytes = toBinary(type, message);
      return { bytes: Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength) };
    } catch (error) {
      return { problem: (error as Error).message.slice(0, MAX_PROBLEM_CHARS) };
    }
  }

  /** What the bytes mean, as JSON. */
  decode(type: DescMessage, bytes: Uint8Array, names: FieldNames = 'camel'): Decoded {
    try {
      return { json: JSON.stringify(this.#shown(type, fromBinary(type, bytes), this.#writing[names])) };
    } catch (error) {
      return { problem: (error as Error).message.slice(0, MAX_PROBLEM_CHARS) };
    }
  }

  /** Of a google.rpc.Status: each of Google's error types or the service's own as JSON, others as their bytes; null = none. */
  details(status: Uint8Array): readonly JsonObject[] | null {
    return RpcStatus.read(status)?.details.map((any) => this.#detail(any)) ?? null;
  }

  #detail({ typeUrl, value }: Pick<Any, 'typeUrl' | 'value'>): JsonObject {
    const name = typeName(typeUrl);
    for (const types of [reachTypes, this.#types]) {
      const type = types.getMessage(name);
      if (type === undefined) continue;
      try {
        const json = toJson(type, fromBinary(type, value), { registry: types, alwaysEmitImplicit: true });
        return hasOwnForm(type) ? { '@type': typeUrl, value: json } : { '@type': typeUrl, ...(json as JsonObject) };
      } catch {
        // Its bytes are all that can be said.
      }
    }
    return { '@type': typeUrl, value: Buffer.from(value).toString('base64') };
  }

  /** The library does not write an Any of a type that is not described: its bytes stand there, as `value`. */
  #shown(type: DescMessage, message: Message, options: Partial<JsonWriteOptions>): JsonValue {
    try {
      return toJson(type, message, options);
    } catch (error) {
      const stand = new Map<string, DescMessage>();
      for (const any of anysIn(message)) {
        const name = typeName(any.typeUrl);
        if (name === '' || this.#types.getMessage(name) !== undefined) continue;
        const bare = stand.get(name) ?? bareType(name);
        stand.set(name, bare);
        any.value = toBinary(bare, create(bare, { value: any.value }));
      }
      if (stand.size === 0) throw error;
      return toJson(type, message, { ...options, registry: createRegistry(this.#types, ...stand.values()) });
    }
  }

  /** The library names the field, not its place: that is sought by reading the parts one by one. */
  #misfit(type: DescMessage, value: JsonValue, words: string): string {
    let at: Spot = { type, value, path: '', words };
    for (let level = 0; level < MAX_SOUGHT_LEVELS; level++) {
      const inner = this.#firstMisfit(at);
      if (inner === null) break;
      at = inner;
      if (at.type === null) break;
    }
    return (at.path === '' ? at.words : `${at.path}: ${at.words}`).slice(0, MAX_PROBLEM_CHARS);
  }

  /** One level down; null = it is none of the parts. */
  #firstMisfit({ type, value, path }: Spot): Spot | null {
    if (type === null || hasOwnForm(type) || !isMap(value)) return null;
    for (const key of Object.keys(value)) {
      const part = value[key] as JsonValue;
      const field = type.fields.find((one) => one.name === key || one.jsonName === key);
      const words = this.#refusal(type, { [key]: part });
      if (words === '') continue;
      if (field === undefined) return { type: null, value: part, path, words: unknownField(type, key) };
      for (const [step, inner] of elementsOf(field, part)) {
        const said = this.#refusal(field.message as DescMessage, inner);
        if (said !== '') return { type: field.message ?? null, value: inner, path: `${path}/${key}${step}`, words: said };
      }
      return { type: null, value: part, path: `${path}/${key}`, words };
    }
    return null;
  }

  #refusal(type: DescMessage, value: JsonValue): string {
    try {
      fromJson(type, value, this.#reading);
      return '';
    } catch (error) {
      return (error as Error).message;
    }
  }
}

interface Spot {
  /** null = nothing below it can be looked at. */
  readonly type: DescMessage | null;
  readonly value: JsonValue;
  readonly path: string;
  readonly words: string;
}

/** Messages in the value of a field, with their steps of the path. */
function* elementsOf(field: DescField, value: JsonValue): Generator<readonly [string, JsonValue]> {
  if (field.message === undefined) return;
  if (field.fieldKind === 'message') yield ['', value];
  else if (field.fieldKind === 'list' && Array.isArray(value))
    for (let i = 0; i < value.length; i++) yield [`/${i}`, value[i] as JsonValue];
  else if (field.fieldKind === 'map' && isMap(value)) for (const key of Object.keys(value)) yield [`/${key}`, value[key] as JsonValue];
}

function unknownField(type: DescMessage, key: string): string {
  const names = type.fields.map(({ name }) => name);
  const near = nearest(key, names);
  const hint =
    near !== null
      ? `did you mean ${near}?`
      : names.length === 0
        ? 'it has no fields'
        : `it has ${names.slice(0, MAX_SHOWN_NAMES).join(', ')}`;
  return `${type.typeName} has no field ${quote(key)}: ${hint}`;
}

/** Its JSON is not a map of its fields. */
function hasOwnForm({ typeName: name }: DescMessage): boolean {
  return OWN_FORMS.has(name);
}

const OWN_FORMS: ReadonlySet<string> = new Set(
  'Any BoolValue BytesValue DoubleValue Duration FieldMask FloatValue Int32Value Int64Value ListValue StringValue Struct Timestamp UInt32Value UInt64Value Value'
    .split(' ')
    .map((name) => `google.protobuf.${name}`),
);

function isMap(value: JsonValue): value is JsonObject {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

function typeName(url: string): string {
  return url.slice(url.lastIndexOf('/') + 1);
}

function* anysIn(value: unknown): Generator<Any> {
  if (typeof value !== 'object' || value === null || value instanceof Uint8Array) return;
  if ((value as Partial<Message>).$typeName === 'google.protobuf.Any') yield value as Any;
  else for (const part of Object.values(value)) yield* anysIn(part);
}

/** A message of that name with nothing but `bytes value`; throws when it is no name. */
function bareType(name: string): DescMessage {
  const dot = name.lastIndexOf('.');
  const value = {
    name: 'value',
    jsonName: 'value',
    number: 1,
    label: FieldDescriptorProto_Label.OPTIONAL,
    type: FieldDescriptorProto_Type.BYTES,
  };
  const file: FileDescriptorProto = create(FileDescriptorProtoSchema, {
    name: 'bare.proto',
    package: name.slice(0, Math.max(0, dot)),
    syntax: 'proto3',
    messageType: [{ name: name.slice(dot + 1), field: [value] }],
  });
  return createFileRegistry(file, () => undefined).getMessage(name) as DescMessage;
}
