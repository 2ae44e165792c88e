/**
 * Types of protocol buffers, made at run time from descriptors (`FileDescriptorProto`), as server reflection and `protoc`
 * give them. Reads what is needed to turn JSON into messages and back, and which methods a service has; options and
 * comments are left alone. Files may come in any order and twice.
 */
import { rawFields, type RawField } from './protobuf-wire.ts';

/** Numbers of `FieldDescriptorProto.Type`. */
export const Kind = {
  double: 1,
  float: 2,
  int64: 3,
  uint64: 4,
  int32: 5,
  fixed64: 6,
  fixed32: 7,
  bool: 8,
  string: 9,
  group: 10,
  message: 11,
  bytes: 12,
  uint32: 13,
  enum: 14,
  sfixed32: 15,
  sfixed64: 16,
  sint32: 17,
  sint64: 18,
} as const;
export type Kind = (typeof Kind)[keyof typeof Kind];

class EnumType {
  readonly fullName: string;
  readonly numbers = new Map<string, number>();
  readonly names = new Map<number, string>();
  constructor(fullName: string) {
    this.fullName = fullName;
  }
}

export class Field {
  readonly name: string;
  readonly jsonName: string;
  readonly number: number;
  readonly isRepeated: boolean;
  readonly isRequired: boolean;
  readonly isPacked: boolean;
  /** It is told apart whether it was set: left out of JSON when it was not. */
  readonly hasPresence: boolean;
  /** Index of its oneof in the message; -1 = none. */
  readonly oneof: number;
  kind: Kind;
  message: MessageType | null = null;
  enumType: EnumType | null = null;

  constructor(parts: FieldParts, syntax: Syntax) {
    this.name = parts.name;
    this.jsonName = parts.jsonName === '' ? camel(parts.name) : parts.jsonName;
    this.number = parts.number;
    this.kind = parts.kind;
    this.isRepeated = parts.label === LABEL_REPEATED;
    this.isRequired = parts.label === LABEL_REQUIRED;
    this.isPacked = parts.packed ?? syntax !== 'proto2';
    this.oneof = parts.isSyntheticOneof ? -1 : parts.oneof;
    this.hasPresence =
      !this.isRepeated && (syntax !== 'proto3' || parts.oneof >= 0 || parts.kind === Kind.message || parts.kind === Kind.group);
  }

  get isMap(): boolean {
    return this.isRepeated && this.message !== null && this.message.isMapEntry;
  }
}

export class MessageType {
  readonly fullName: string;
  readonly isMapEntry: boolean;
  readonly fields: Field[] = [];
  readonly byNumber = new Map<number, Field>();
  /** By original name and by JSON name. */
  readonly byName = new Map<string, Field>();

  constructor(fullName: string, isMapEntry: boolean) {
    this.fullName = fullName;
    this.isMapEntry = isMapEntry;
  }

  add(field: Field): void {
    this.fields.push(field);
    this.byNumber.set(field.number, field);
    this.byName.set(field.name, field);
    this.byName.set(field.jsonName, field);
  }
}

export interface Method {
  readonly service: string;
  readonly name: string;
  readonly input: MessageType;
  readonly output: MessageType;
  readonly isClientStreaming: boolean;
  readonly isServerStreaming: boolean;
}

type Syntax = 'proto2' | 'proto3' | 'editions';

interface FieldParts {
  readonly name: string;
  readonly jsonName: string;
  readonly number: number;
  readonly label: number;
  readonly kind: Kind;
  readonly typeName: string;
  readonly packed: boolean | null;
  readonly oneof: number;
  readonly isSyntheticOneof: boolean;
}

interface RawMethod {
  readonly name: string;
  readonly scope: string;
  readonly input: string;
  readonly output: string;
  readonly isClientStreaming: boolean;
  readonly isServerStreaming: boolean;
}

const LABEL_REQUIRED = 2;
const LABEL_REPEATED = 3;

export class Schema {
  readonly #files = new Set<string>();
  readonly #messages = new Map<string, MessageType>();
  readonly #enums = new Map<string, EnumType>();
  readonly #services = new Map<string, readonly RawMethod[]>();
  #unlinked: { readonly field: Field; readonly scope: string; readonly typeName: string }[] = [];

  /** Files that are imported by those added and have not been added. */
  readonly missing = new Set<string>();

  get services(): string[] {
    return [...this.#services.keys()];
  }

  message(fullName: string): MessageType | null {
    return this.#messages.get(fullName) ?? null;
  }

  /** Names of a service's methods; null = there is no such service. */
  methodsOf(service: string): string[] | null {
    return this.#services.get(service)?.map(({ name }) => name) ?? null;
  }

  /** Adds one `FileDescriptorProto`; the words of what is wrong with it, or ''. */
  addFile(bytes: Buffer): string {
    const raw = rawFields(bytes);
    if (raw === null) return 'a file descriptor cannot be read';
    const name = textOf(raw, 1);
    this.missing.delete(name);
    if (this.#files.has(name)) return '';
    this.#files.add(name);
    for (const { number, part } of raw) if (number === 3 && !this.#files.has(part.toString())) this.missing.add(part.toString());
    const scope = textOf(raw, 2);
    const said = textOf(raw, 12);
    const syntax: Syntax = said === 'proto3' || said === 'editions' ? said : 'proto2';
    for (const { number, part } of raw) {
      if (number === 4 && !this.#addMessage(part, scope, syntax, 0)) return `a message of ${name} cannot be read`;
      if (number === 5 && !this.#addEnum(part, scope)) return `an enum of ${name} cannot be read`;
      if (number === 6 && !this.#addService(part, scope)) return `a service of ${name} cannot be read`;
    }
    return '';
  }

  /** Adds a `FileDescriptorSet`; the words of what is wrong with it, or ''. */
  addSet(bytes: Buffer): string {
    const raw = rawFields(bytes);
    const files = raw?.filter(({ number, part }) => number === 1 && part.length > 0) ?? [];
    if (raw === null || files.length === 0)
      return 'it is no FileDescriptorSet: make it with protoc --include_imports --descriptor_set_out=…';
    for (const { part } of files) {
      const problem = this.addFile(part);
      if (problem !== '') return problem;
    }
    return '';
  }

  /** Connects fields with their types; the words of what is missing, or ''. To be called when the files are all there. */
  link(): string {
    const unlinked = this.#unlinked;
    this.#unlinked = [];
    for (const { field, scope, typeName } of unlinked) {
      const message = this.#find(this.#messages, scope, typeName);
      const enumType = message === null ? this.#find(this.#enums, scope, typeName) : null;
      if (message === null && enumType === null) return `the type ${typeName} of ${scope}.${field.name} is not described`;
      field.message = message;
      field.enumType = enumType;
      if (enumType !== null) field.kind = Kind.enum;
      else if (field.kind !== Kind.group) field.kind = Kind.message;
    }
    return '';
  }

  /** After `link`. The words of what is missing when there is no such method. */
  method(service: string, name: string): Method | string {
    const methods = this.#services.get(service);
    if (methods === undefined) return `there is no service ${service}; there are ${this.services.join(', ') || 'none'}`;
    const raw = methods.find((one) => one.name === name);
    if (raw === undefined) return `the service ${service} has no method ${name}; it has ${methods.map((one) => one.name).join(', ')}`;
    const input = this.#find(this.#messages, raw.scope, raw.input);
    const output = this.#find(this.#messages, raw.scope, raw.output);
    if (input === null || output === null)
      return `the type ${input === null ? raw.input : raw.output} of ${service}/${name} is not described`;
    return { service, name, input, output, isClientStreaming: raw.isClientStreaming, isServerStreaming: raw.isServerStreaming };
  }

  /** A full name begins with a dot; others are sought from the innermost scope outwards, as the language demands. */
  #find<T>(types: ReadonlyMap<string, T>, scope: string, name: string): T | null {
    if (name.startsWith('.')) return types.get(name.slice(1)) ?? null;
    for (let at = scope; ; at = at.slice(0, Math.max(0, at.lastIndexOf('.')))) {
      const found = types.get(at === '' ? name : `${at}.${name}`);
      if (found !== undefined) return found;
      if (at === '') return null;
    }
  }

  #addMessage(bytes: Buffer, scope: string, syntax: Syntax, depth: number): boolean {
    const raw = rawFields(bytes);
    if (raw === null || depth > 32) return false;
    const fullName = joined(scope, textOf(raw, 1));
    const options = raw.find(({ number }) => number === 7);
    const optionFields = options === undefined ? [] : (rawFields(options.part) ?? []);
    const message = new MessageType(
      fullName,
      optionFields.some(({ number, value }) => number === 7 && value !== 0n),
    );
    this.#messages.set(fullName, message);
    for (const { number, part } of raw) {
      if (number === 3 && !this.#addMessage(part, fullName, syntax, depth + 1)) return false;
      if (number === 4 && !this.#addEnum(part, fullName)) return false;
      if (number !== 2) continue;
      const parts = fieldParts(part);
      if (parts === null) return false;
      const field = new Field(parts, syntax);
      message.add(field);
      if (parts.typeName !== '') this.#unlinked.push({ field, scope: fullName, typeName: parts.typeName });
    }
    return true;
  }

  #addEnum(bytes: Buffer, scope: string): boolean {
    const raw = rawFields(bytes);
    if (raw === null) return false;
    const type = new EnumType(joined(scope, textOf(raw, 1)));
    for (const { number, part } of raw) {
      if (number !== 2) continue;
      const value = rawFields(part);
      if (value === null) return false;
      const at = Number(BigInt.asIntN(32, value.find((one) => one.number === 2)?.value ?? 0n));
      const name = textOf(value, 1);
      type.numbers.set(name, at);
      // The first name of a number is the one that is shown; the others are aliases.
      if (!type.names.has(at)) type.names.set(at, name);
    }
    this.#enums.set(type.fullName, type);
    return true;
  }

  #addService(bytes: Buffer, scope: string): boolean {
    const raw = rawFields(bytes);
    if (raw === null) return false;
    const methods: RawMethod[] = [];
    for (const { number, part } of raw) {
      if (number !== 2) continue;
      const one = rawFields(part);
      if (one === null) return false;
      methods.push({
        name: textOf(one, 1),
        scope,
        input: textOf(one, 2),
        output: textOf(one, 3),
        isClientStreaming: one.some((field) => field.number === 5 && field.value !== 0n),
        isServerStreaming: one.some((field) => field.number === 6 && field.value !== 0n),
      });
    }
    this.#services.set(joined(scope, textOf(raw, 1)), methods);
    return true;
  }
}

function fieldParts(bytes: Buffer): FieldParts | null {
  const raw = rawFields(bytes);
  if (raw === null) return null;
  const numberOf = (at: number): number => Number(raw.find(({ number }) => number === at)?.value ?? 0n);
  const options = raw.find(({ number }) => number === 8);
  const packed = options === undefined ? undefined : rawFields(options.part)?.find(({ number }) => number === 2);
  return {
    name: textOf(raw, 1),
    jsonName: textOf(raw, 10),
    number: numberOf(3),
    label: numberOf(4),
    kind: (numberOf(5) || Kind.message) as Kind,
    typeName: textOf(raw, 6),
    packed: packed === undefined ? null : packed.value !== 0n,
    oneof: raw.some(({ number }) => number === 9) ? numberOf(9) : -1,
    isSyntheticOneof: numberOf(17) !== 0,
  };
}

function textOf(raw: readonly RawField[], at: number): string {
  return raw.find(({ number }) => number === at)?.part.toString('utf8') ?? '';
}

function joined(scope: string, name: string): string {
  return scope === '' ? name : `${scope}.${name}`;
}

function camel(name: string): string {
  let out = '';
  let raises = false;
  for (const letter of name) {
    if (letter === '_') raises = true;
    else {
      out += raises ? letter.toUpperCase() : letter;
      raises = false;
    }
  }
  return out;
}
