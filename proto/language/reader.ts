/**
 * The kit that the languages are written in. A Shape says once what may stand in one place: how it is read (with a
 * problem at the exact place when it cannot be), how it looks in JSON Schema, and how the docs describe it. Every
 * problem is collected, so that one pass over a file shows all of them; unknown keys are refused, never ignored.
 */
import { describe, quote } from '../../base/duration.ts';
import { nearest } from '../../base/suggest.ts';
import { type ParsedYaml, type Path, parseYaml, pointerOf, type YamlLimits } from '../../base/yaml.ts';
import type { Problem } from './types.ts';

/** What reading gives when the value cannot be used; the problem has been noted. */
export const BAD: unique symbol = Symbol('bad');
export type Bad = typeof BAD;

export type SchemaNode = { readonly [key: string]: unknown };

export interface Shape<T> {
  /** For people: "duration", "list of names". */
  readonly kind: string;
  read(value: unknown, place: Place): T | Bad;
  schema(): SchemaNode;
  /** The keys of a map, for the docs; absent for everything else. */
  readonly fields?: FieldTable;
  /** The shape inside a list or a free map, for the docs. */
  readonly inner?: Shape<unknown>;
}

export interface Field<T> {
  readonly shape: Shape<T>;
  readonly doc: string;
  readonly required: boolean;
  /** What absence means; read when `required` is false. */
  readonly absent: T;
  /** The default in the words of the docs; null = nothing to say. */
  readonly shownDefault: string | null;
}

export type FieldTable = Readonly<Record<string, Field<unknown>>>;
export type ReadFields<F extends FieldTable> = { readonly [K in keyof F]: F[K] extends Field<infer T> ? T : never };
export type TypeOf<S> = S extends Shape<infer T> ? T : never;

const MAX_PROBLEMS = 50;
const MAX_MESSAGE = 2_000;

/** One file being read. */
export class Source {
  readonly file: string;
  readonly problems: Problem[] = [];
  readonly #parsed: ParsedYaml;
  readonly #seen = new Set<string>();
  /** Places that the parser has named already: one mistake, one problem. */
  readonly #namedByParser = new Set<string>();
  /** Where a key that stands in the wrong map would be known; set by whoever knows the whole language. */
  homeOf: (key: string) => string | null = () => null;

  constructor(file: string, parsed: ParsedYaml) {
    this.file = file;
    this.#parsed = parsed;
    for (const problem of parsed.problems) {
      this.problems.push(problem);
      this.#namedByParser.add(problem.path);
    }
  }

  /** No further problem is taken: looking for more would be for nothing. */
  get isFull(): boolean {
    return this.problems.length >= MAX_PROBLEMS;
  }

  /** Another list of problems of the same text, such as warnings; it is not parsed again. */
  beside(): Source {
    return new Source(this.file, this.#parsed);
  }

  problem(path: Path, message: string, atKey: boolean): void {
    if (this.isFull) return;
    const pointer = pointerOf(path);
    if (this.#namedByParser.has(pointer) && pointer !== '') return;
    const once = `${pointer}\n${message}`;
    if (this.#seen.has(once)) return;
    this.#seen.add(once);
    const { line, column } = atKey ? this.#parsed.locateKey(path) : this.#parsed.locate(path);
    this.problems.push({ file: this.file, line, column, path: pointer, message: shownMessage(message) });
  }

  lineOf(path: Path): number {
    return this.#parsed.locate(path).line;
  }
}

/** Whatever of the file was put into it: nothing in a problem moves a cursor, and none fills a screen. */
function shownMessage(message: string): string {
  return quote(message, MAX_MESSAGE).slice(1, -1);
}

/** A place in a file: where a problem points to. */
export class Place {
  readonly source: Source;
  readonly path: Path;

  constructor(source: Source, path: Path = []) {
    this.source = source;
    this.path = path;
  }

  at(...steps: (string | number)[]): Place {
    return new Place(this.source, [...this.path, ...steps]);
  }

  bad(message: string): Bad {
    this.source.problem(this.path, message, false);
    return BAD;
  }

  /** The key itself is at fault, not what it holds. */
  badKey(message: string): Bad {
    this.source.problem(this.path, message, true);
    return BAD;
  }

  /** The last key of the path, for messages. */
  get name(): string {
    for (let i = this.path.length - 1; i >= 0; i--) if (typeof this.path[i] === 'string') return this.path[i] as string;
    return 'the document';
  }
}

/** Parses text and opens it; `value` is undefined when it could not be read at all. */
export function openSource(text: string, file: string, limits?: YamlLimits): { readonly source: Source; readonly value: unknown } {
  const parsed = parseYaml(text, file, limits);
  return { source: new Source(file, parsed), value: parsed.value };
}

/** A field that must be there. */
export function required<T>(shape: Shape<T>, doc: string): Field<T> {
  return { shape, doc, required: true, absent: undefined as T, shownDefault: null };
}

/** A field that may be left out; `absent` stands for it then. */
export function optional<T, A = null>(shape: Shape<T>, doc: string, absent: A, shownDefault: string | null = null): Field<T | A> {
  return { shape, doc, required: false, absent, shownDefault };
}

function isMap(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

/** A map with known keys. BAD when any part is bad; the other parts are read all the same. */
export function object<F extends FieldTable>(kind: string, fields: F): Shape<ReadFields<F>> {
  return {
    kind,
    fields,
    read(value, place) {
      if (!isMap(value)) return place.bad(`${place.name} must be a map with ${listOf(Object.keys(fields))}, not ${describe(value)}`);
      let isWhole = refuseUnknown(value, fields, place);
      const parts: Record<string, unknown> = {};
      for (const [key, field] of Object.entries(fields)) {
        if (!(key in value)) {
          parts[key] = field.absent;
          if (field.required) {
            place.bad(`${key} is missing: ${field.doc}`);
            isWhole = false;
          }
          continue;
        }
        const part = readPresent(field.shape, value[key], place.at(key));
        if (part === BAD) isWhole = false;
        parts[key] = part;
      }
      return isWhole ? (parts as ReadFields<F>) : BAD;
    },
    schema() {
      const properties: Record<string, SchemaNode> = {};
      for (const [key, field] of Object.entries(fields)) properties[key] = { ...field.shape.schema(), description: field.doc };
      const names = Object.keys(fields).filter((key) => (fields[key] as Field<unknown>).required);
      return { type: 'object', properties, additionalProperties: false, ...(names.length > 0 ? { required: names } : {}) };
    },
  };
}

/** Reads a value whose key is there: an empty one is a slip (a forgotten value), except where any JSON may stand. */
export function readPresent<T>(shape: Shape<T>, value: unknown, place: Place): T | Bad {
  if (value === null && shape.kind !== ANY)
    return place.bad(`${place.name} is empty: give it a value (${shape.kind}) or leave the key out`);
  return shape.read(value, place);
}

/** Notes every key that the table does not know; true when there is none. */
export function refuseUnknown(value: Readonly<Record<string, unknown>>, fields: FieldTable, place: Place): boolean {
  let isClean = true;
  for (const key of Object.keys(value)) {
    if (Object.hasOwn(fields, key)) continue;
    isClean = false;
    const near = nearest(key, Object.keys(fields));
    const elsewhere = near === null ? (nestedHome(key, fields) ?? place.source.homeOf(key)) : null;
    const hint =
      near !== null
        ? `did you mean ${near}?`
        : elsewhere !== null
          ? `it belongs under ${elsewhere}`
          : `known are ${listOf(Object.keys(fields))}`;
    place.at(key).badKey(`unknown key ${quote(key)}: ${hint}`);
  }
  return isClean;
}

/** A key that stands one level too high: the name of the map that it belongs to. */
function nestedHome(key: string, fields: FieldTable): string | null {
  for (const [name, field] of Object.entries(fields)) {
    const inner = field.shape.fields;
    if (inner !== undefined && Object.hasOwn(inner, key)) return name;
  }
  return null;
}

/** Reads with `shape`, then makes something else of it; `make` may refuse. */
export function mapped<A, B>(shape: Shape<A>, make: (value: A, place: Place) => B | Bad): Shape<B> {
  return {
    ...shape,
    read(value, place) {
      const read = shape.read(value, place);
      return read === BAD ? BAD : make(read, place);
    },
  };
}

/** Any JSON value: not looked into, but for numbers that JSON cannot hold. */
export const ANY = 'any value';

export function listOf(words: readonly string[]): string {
  return words.join(', ');
}
