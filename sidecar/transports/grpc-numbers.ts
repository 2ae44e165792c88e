/**
 * Numbers of a payload that a double does not hold, on their way into a message. A field of 64 bits takes them exactly: to the
 * library they are text there, which the JSON mapping of Protocol Buffers allows. A floating-point field rounds, as its author
 * asked for by its type. Everywhere else (a google.protobuf.Value among it, whose numbers are doubles) another number would
 * arrive, and the payload is refused with the place. A fraction in a Value is rounded as every reader of JSON rounds it.
 *
 * Belongs to `grpc-schema.ts`: loads the library.
 */
import { type DescExtension, type DescField, type DescMessage, type FileRegistry, type JsonValue, ScalarType } from '@bufbuild/protobuf';
import { ExactNumber } from '../../base/json-exact.ts';
import { stepOf } from '../../base/json-pointer.ts';

/** What stands at one place; null = it is no part of the message, which the library says better. */
type Kind = DescMessage | ScalarType | 'enum' | 'value' | null;

export class NumberFit {
  /** The first number that cannot be sent, with its place; '' = none so far. */
  problem = '';
  readonly #registry: FileRegistry;

  constructor(registry: FileRegistry) {
    this.#registry = registry;
  }

  /** The value for the library. */
  fit(kind: Kind, value: unknown, place: string): JsonValue {
    if (value instanceof ExactNumber) return this.#number(kind, value, place);
    if (Array.isArray(value)) return value.map((item: unknown, i) => this.fit(kind, item, `${place}/${i}`));
    if (!isMap(value)) return value as JsonValue;
    const isMessage = typeof kind === 'object' && kind !== null;
    const own = isMessage ? ownKind(kind) : kind;
    if (own !== undefined) return membersOf(value, place, (part, at) => this.fit(own, part, at));
    const type = kind as DescMessage;
    return type.typeName === ANY ? this.#any(value, place) : this.#message(type, value, place);
  }

  #message(type: DescMessage, value: JsonMap, place: string): JsonValue {
    return membersOf(value, place, (part, at, name) => {
      const field = name.startsWith('[')
        ? this.#registry.getExtension(name.slice(1, -1))
        : type.fields.find((one) => one.name === name || one.jsonName === name);
      const kind = kindOf(field);
      // Its keys are no fields.
      if (field?.fieldKind === 'map' && isMap(part)) return membersOf(part, at, (one, below) => this.fit(kind, one, below));
      return this.fit(kind, part, at);
    });
  }

  #any(value: JsonMap, place: string): JsonValue {
    const url = value['@type'];
    const type = typeof url === 'string' ? this.#registry.getMessage(url.slice(url.lastIndexOf('/') + 1)) : undefined;
    if (type !== undefined && type.typeName !== ANY && ownKind(type) === undefined) return this.#message(type, value, place);
    return membersOf(value, place, (part, at) => this.fit(type ?? null, part, at));
  }

  #number(kind: Kind, number: ExactNumber, place: string): JsonValue {
    const double = Number(number.text);
    const plain = typeof kind === 'object' && kind !== null ? ownKind(kind) : kind;
    switch (plain) {
      case null:
        return double;
      case ScalarType.INT64:
      case ScalarType.SINT64:
      case ScalarType.SFIXED64:
      case ScalarType.UINT64:
      case ScalarType.FIXED64:
        return number.whole ?? number.text;
      case ScalarType.DOUBLE:
      case ScalarType.FLOAT:
        if (Number.isFinite(double)) return double;
        break;
      case 'value':
        if (Number.isFinite(double) && (number.whole === null || number.isDouble)) return double;
        this.#refuse(number, place, 'a google.protobuf.Value holds no such number exactly: send it as text');
        return 0;
      default:
    }
    this.#refuse(number, place, 'no number of the field’s type');
    return 0;
  }

  #refuse({ text }: ExactNumber, place: string, words: string): void {
    if (this.problem === '')
      this.problem = `${place === '' ? '' : `${place}: `}${text.length > 40 ? `${text.slice(0, 40)}…` : text}: ${words}`;
  }
}

type JsonMap = Readonly<Record<string, unknown>>;

function isMap(value: unknown): value is JsonMap {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

function membersOf(map: JsonMap, place: string, to: (part: unknown, place: string, name: string) => JsonValue): JsonValue {
  return Object.fromEntries(Object.entries(map).map(([name, part]) => [name, to(part, `${place}/${stepOf(name)}`, name)]));
}

const ANY = 'google.protobuf.Any';

/** Of a message whose JSON is no map of its fields; undefined = it is one, or an Any. */
function ownKind({ typeName }: DescMessage): Kind | undefined {
  switch (typeName) {
    case 'google.protobuf.Value':
    case 'google.protobuf.Struct':
    case 'google.protobuf.ListValue':
      return 'value';
    case 'google.protobuf.Int64Value':
      return ScalarType.INT64;
    case 'google.protobuf.UInt64Value':
      return ScalarType.UINT64;
    case 'google.protobuf.DoubleValue':
    case 'google.protobuf.FloatValue':
      return ScalarType.DOUBLE;
    default:
      return undefined;
  }
}

/** Of a field's value, or of each in its list or map. */
function kindOf(field: DescField | DescExtension | undefined): Kind {
  if (field === undefined) return null;
  if (field.message !== undefined) return field.message;
  return field.enum === undefined ? field.scalar : 'enum';
}
