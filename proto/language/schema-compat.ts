/**
 * Whether one JSON Schema takes everything that another one takes, as far as that can be shown part by part. What cannot
 * be shown (a changed `not`, `if`, pattern …) counts as a break: a guard that guesses is none.
 */
import type { JsonSchema } from './types.ts';

/**
 * Where the two schemas stand: `input`, from earlier to later: what callers send now must still be taken; `output`, from
 * later to earlier: what is answered from now on must be what callers were promised.
 */
export type Side = 'input' | 'output';

type SchemaMap = { readonly [key: string]: unknown };

const MAX_DEPTH = 32;
const MAX_BREAKS = 20;

/** Compares an earlier with a later schema; null is "anything". */
export function schemaBreaks(side: Side, earlier: JsonSchema | null, later: JsonSchema | null): string[] {
  const walk = new Walk(side, earlier ?? true, later ?? true);
  walk.compare(earlier ?? true, later ?? true, '', 0);
  return walk.breaks;
}

class Walk {
  readonly breaks: string[] = [];
  readonly #side: Side;
  readonly #earlierRoot: JsonSchema;
  readonly #laterRoot: JsonSchema;
  readonly #entered = new Set<string>();

  constructor(side: Side, earlierRoot: JsonSchema, laterRoot: JsonSchema) {
    this.#side = side;
    this.#earlierRoot = earlierRoot;
    this.#laterRoot = laterRoot;
  }

  compare(earlierSchema: JsonSchema, laterSchema: JsonSchema, at: string, depth: number): void {
    if (this.breaks.length >= MAX_BREAKS || depth > MAX_DEPTH) return;
    if (isRef(earlierSchema) && isRef(laterSchema)) {
      // a recursive schema comes back to the same pair: compared once
      const pair = `${String(earlierSchema['$ref'])} ${String(laterSchema['$ref'])}`;
      if (this.#entered.has(pair)) return;
      this.#entered.add(pair);
    }
    const earlier = resolve(earlierSchema, this.#earlierRoot);
    const later = resolve(laterSchema, this.#laterRoot);
    const isInput = this.#side === 'input';
    const [from, to] = isInput ? [earlier, later] : [later, earlier];
    if (to === true || from === false || sameValue(from, to)) return;
    if (to === false) {
      this.#note(at, isInput ? 'is no longer taken' : 'was promised never to be there');
      return;
    }
    const wide: SchemaMap = from === true ? {} : from;
    const { breaks } = this;
    const before = breaks.length;
    this.#types(wide, to, at);
    this.#values(wide, to, at);
    if (breaks.length > before) return;
    this.#bounds(wide, to, at);
    this.#opaque(wide, to, at);
    this.#alternatives(wide, to, at, depth);
    this.#members(asMap(earlier), asMap(later), at, depth);
    this.#items(asMap(earlier), asMap(later), at, depth);
  }

  #note(at: string, words: string): void {
    this.breaks.push(`${this.#side}${at === '' ? '' : ` ${at}`} ${words}`);
  }

  #types(from: SchemaMap, to: SchemaMap, at: string): void {
    const allowed = typesOf(to);
    if (allowed === null) return;
    const had = typesOf(from);
    const isInput = this.#side === 'input';
    if (had === null) {
      if (!('enum' in from) && !('const' in from))
        this.#note(
          at,
          isInput ? `took any type and takes only ${allowed.join(', ')} now` : `was always ${allowed.join(', ')} and can be any type now`,
        );
      return;
    }
    const lost = had.filter((type) => !allowed.includes(type) && !(type === 'integer' && allowed.includes('number')));
    if (lost.length > 0)
      this.#note(
        at,
        isInput ? `no longer takes the type ${lost.join(', ')}` : `can be of the type ${lost.join(', ')} now, which it never was`,
      );
  }

  #values(from: SchemaMap, to: SchemaMap, at: string): void {
    const allowed = valuesOf(to);
    if (allowed === null) return;
    const had = valuesOf(from);
    const isInput = this.#side === 'input';
    if (had === null) {
      this.#note(at, isInput ? 'takes only certain values now' : 'was one of certain values and can be any now');
      return;
    }
    const lost = had.filter((value) => !allowed.some((each) => sameValue(each, value)));
    if (lost.length > 0)
      this.#note(
        at,
        `${isInput ? 'no longer takes' : 'has new values'}: ${lost
          .map((value) => JSON.stringify(value))
          .join(', ')
          .slice(0, 200)}`,
      );
  }

  #bounds(from: SchemaMap, to: SchemaMap, at: string): void {
    for (const [key, sign] of BOUNDS) {
      const limit = to[key];
      if (typeof limit !== 'number') continue;
      const had = from[key];
      const before = typeof had === 'number' ? String(had) : 'none';
      if (typeof had !== 'number' || (had - limit) * sign < 0)
        this.#note(
          at,
          this.#side === 'input' ? `has a tighter ${key} (${before} before, ${limit} now)` : `had the ${key} ${limit}, and ${before} now`,
        );
    }
    const step = to['multipleOf'];
    if (typeof step === 'number' && !(typeof from['multipleOf'] === 'number' && from['multipleOf'] % step === 0))
      this.#note(at, `has another multipleOf`);
  }

  /** Parts that are not looked into: the same, or (where the stricter side does not have them) no matter. */
  #opaque(from: SchemaMap, to: SchemaMap, at: string): void {
    for (const key of OPAQUE) {
      if (!(key in to) || to[key] === false || sameValue(from[key], to[key])) continue;
      this.#note(at, `has another ${key}, which cannot be shown to be compatible`);
    }
    const demands = Array.isArray(to['allOf']) ? (to['allOf'] as unknown[]) : [];
    const had = Array.isArray(from['allOf']) ? (from['allOf'] as unknown[]) : [];
    if (demands.some((demand) => !had.some((each) => sameValue(each, demand))))
      this.#note(at, 'has another allOf, which cannot be shown to be compatible');
  }

  #alternatives(from: SchemaMap, to: SchemaMap, at: string, depth: number): void {
    for (const key of ['anyOf', 'oneOf']) {
      const allowed = to[key];
      if (!Array.isArray(allowed)) continue;
      const had = Array.isArray(from[key]) ? (from[key] as JsonSchema[]) : [without(from, key)];
      for (const [i, each] of had.entries()) {
        const fits = (allowed as JsonSchema[]).some((other) => {
          const inner = new Walk(this.#side, this.#earlierRoot, this.#laterRoot);
          if (this.#side === 'input') inner.compare(each, other, at, depth + 1);
          else inner.compare(other, each, at, depth + 1);
          return inner.breaks.length === 0;
        });
        if (!fits)
          this.#note(at, this.#side === 'input' ? `no longer takes alternative ${i} of ${key}` : `has a new alternative ${i} of ${key}`);
      }
    }
  }

  #members(earlier: SchemaMap, later: SchemaMap, at: string, depth: number): void {
    const isInput = this.#side === 'input';
    const earlierParts = asMap(earlier['properties']);
    const laterParts = asMap(later['properties']);
    const rest = later['additionalProperties'];
    for (const [name, part] of Object.entries(earlierParts)) {
      const place = `${at}/${name.replaceAll('~', '~0').replaceAll('/', '~1')}`;
      const now = Object.hasOwn(laterParts, name) ? laterParts[name] : undefined;
      if (now !== undefined) this.compare(part as JsonSchema, now as JsonSchema, place, depth + 1);
      else if (!isInput) this.#note(place, 'was removed');
      else if (rest === false) this.#note(place, 'was removed, and is refused now');
      else if (rest !== undefined && rest !== true) this.compare(part as JsonSchema, rest as JsonSchema, place, depth + 1);
    }
    const needsNow = wordsOf(later['required']);
    const neededBefore = wordsOf(earlier['required']);
    if (isInput) {
      for (const name of needsNow) if (!neededBefore.includes(name)) this.#note(`${at}/${name}`, 'is newly required');
      if (rest === false && earlier['additionalProperties'] !== false) this.#note(at, 'no longer takes properties that it does not name');
      else if (isSchemaMap(rest)) this.compare((earlier['additionalProperties'] ?? true) as JsonSchema, rest, `${at}/*`, depth + 1);
    } else {
      const wasRemoved = (name: string): boolean => Object.hasOwn(earlierParts, name) && !Object.hasOwn(laterParts, name);
      for (const name of neededBefore)
        if (!needsNow.includes(name) && !wasRemoved(name)) this.#note(`${at}/${name}`, 'is no longer always there');
      if (isSchemaMap(earlier['additionalProperties']))
        this.compare(earlier['additionalProperties'], (rest ?? true) as JsonSchema, `${at}/*`, depth + 1);
    }
  }

  #items(earlier: SchemaMap, later: SchemaMap, at: string, depth: number): void {
    const isItemSchema = (value: unknown): value is JsonSchema => typeof value === 'boolean' || isSchemaMap(value);
    const [had, has] = [earlier['items'], later['items']];
    if (isItemSchema(had) || isItemSchema(has))
      this.compare(isItemSchema(had) ? had : true, isItemSchema(has) ? has : true, `${at}/-`, depth + 1);
  }
}

/** Key and the sign in which it gets tighter: a minimum by growing, a maximum by shrinking. */
const BOUNDS: readonly (readonly [string, 1 | -1])[] = [
  ['minimum', 1],
  ['exclusiveMinimum', 1],
  ['minLength', 1],
  ['minItems', 1],
  ['minProperties', 1],
  ['minContains', 1],
  ['maximum', -1],
  ['exclusiveMaximum', -1],
  ['maxLength', -1],
  ['maxItems', -1],
  ['maxProperties', -1],
  ['maxContains', -1],
];

const OPAQUE: readonly string[] = [
  'pattern',
  'format',
  'uniqueItems',
  'not',
  'if',
  'then',
  'else',
  'contains',
  'prefixItems',
  'propertyNames',
  'patternProperties',
  'dependentRequired',
  'dependentSchemas',
  'unevaluatedProperties',
  'unevaluatedItems',
];

function isSchemaMap(value: unknown): value is SchemaMap {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

function asMap(value: unknown): SchemaMap {
  return isSchemaMap(value) ? value : {};
}

function isRef(schema: JsonSchema): schema is SchemaMap {
  return typeof schema === 'object' && typeof schema['$ref'] === 'string';
}

function without(map: SchemaMap, key: string): SchemaMap {
  return Object.fromEntries(Object.entries(map).filter(([name]) => name !== key));
}

function wordsOf(value: unknown): readonly string[] {
  return Array.isArray(value) ? value.filter((each): each is string => typeof each === 'string') : [];
}

function typesOf(schema: SchemaMap): readonly string[] | null {
  const type = schema['type'];
  if (typeof type === 'string') return [type];
  return Array.isArray(type) ? (type as string[]) : null;
}

function valuesOf(schema: SchemaMap): readonly unknown[] | null {
  if ('const' in schema) return [schema['const']];
  return Array.isArray(schema['enum']) ? (schema['enum'] as unknown[]) : null;
}

/** Follows a local `$ref`; what stands beside it counts too. */
function resolve(schema: JsonSchema, root: JsonSchema): JsonSchema {
  let current = schema;
  for (let hops = 0; hops < 16 && isRef(current); hops++) {
    const target = follow(root, String(current['$ref']));
    const beside = without(current, '$ref');
    if (typeof target === 'boolean' || Object.keys(beside).length === 0) current = target;
    else current = { ...target, ...beside };
  }
  return current;
}

function follow(root: JsonSchema, ref: string): JsonSchema {
  let node: unknown = root;
  for (const step of ref.replace(/^#\/?/, '').split('/')) {
    if (step === '') continue;
    const name = decodeURIComponent(step).replaceAll('~1', '/').replaceAll('~0', '~');
    node = typeof node === 'object' && node !== null ? (node as Record<string, unknown>)[name] : undefined;
  }
  return typeof node === 'boolean' || isSchemaMap(node) ? node : true;
}

/** Equal as JSON, whatever the order of keys. */
export function sameValue(a: unknown, b: unknown): boolean {
  if (a === b) return true;
  if (typeof a !== 'object' || typeof b !== 'object' || a === null || b === null || Array.isArray(a) !== Array.isArray(b)) return false;
  const keys = Object.keys(a);
  if (keys.length !== Object.keys(b).length) return false;
  return keys.every((key) => Object.hasOwn(b, key) && sameValue((a as Record<string, unknown>)[key], (b as Record<string, unknown>)[key]));
}
