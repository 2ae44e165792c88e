/**
 * Whether a JSON Schema is safe to compile and to run on other people's data: bounded in size and depth, references
 * only into itself, no recursion that does not go down into the data, no combination that multiplies without end, no
 * pattern that can be driven into exponential time. Whether it is *valid* is the compiler's question.
 */
import { isDeeper } from './depth.ts';
import { quote } from './duration.ts';
import { patternProblem } from './pattern-safety.ts';

const MAX_NODES = 10_000;
const MAX_DEPTH = 48;
/** Of the text as such, with what stands in `enum` and `default`. */
const MAX_LEVELS = 200;
/** Levels of schemas within schemas, references followed: the compiler recurses over them. */
const MAX_DESCENT = 300;
/** References that lead on to one another without going down into the data. */
const MAX_CHAIN = 200;
const MAX_TEXT = 262_144;
/** How many subschemas may be applied to one value. */
const MAX_WORK = 10_000;

/** Keywords that hold one schema, by whether they look at the same value or go down into it. */
const SAME_ONE = ['not', 'if', 'then', 'else'];
const SAME_LIST = ['allOf', 'anyOf', 'oneOf'];
const DOWN_ONE = [
  'additionalProperties',
  'propertyNames',
  'items',
  'contains',
  'unevaluatedItems',
  'unevaluatedProperties',
  'contentSchema',
];
const DOWN_LIST = ['prefixItems'];
const SAME_MAP = ['dependentSchemas'];
const DOWN_MAP = ['properties', 'patternProperties'];
const DEFINITIONS = ['$defs', 'definitions'];
const NOT_SPOKEN = ['$id', '$anchor', '$dynamicRef', '$dynamicAnchor', '$recursiveRef', '$recursiveAnchor', '$vocabulary'];
const DANGEROUS: ReadonlySet<string> = new Set(Object.getOwnPropertyNames(Object.prototype));
const DRAFT = 'https://json-schema.org/draft/2020-12/schema';

type SchemaMap = Readonly<Record<string, unknown>>;

/** One sentence, or null when nothing speaks against it. */
export function schemaProblem(schema: unknown): string | null {
  if (typeof schema === 'boolean') return null;
  if (!isMap(schema)) return 'a schema is a map, true or false';
  if (isDeeper(schema, MAX_LEVELS)) return `it is nested more than ${MAX_LEVELS} levels deep`;
  const draft = schema['$schema'];
  if (draft !== undefined && (typeof draft !== 'string' || draft.replace(/#$/, '') !== DRAFT))
    return `$schema names another draft: JSON Schema 2020-12 is spoken here (${DRAFT})`;
  const inspection = new Inspection(schema);
  return inspection.problem();
}

function isMap(value: unknown): value is SchemaMap {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

/** Whether the schema comes back to itself as it goes down into the data: then the data decides how deep the check goes. */
export function isRecursive(schema: unknown): boolean {
  return isMap(schema) && new Inspection(schema).descent().isRecursive;
}

class Inspection {
  readonly #root: SchemaMap;
  #nodes = 0;
  #text = 0;
  readonly #work = new Map<SchemaMap, number>();

  constructor(root: SchemaMap) {
    this.#root = root;
  }

  problem(): string | null {
    return (
      this.#look(this.#root, '', 0) ??
      (this.descent().isTooDeep ? `it is more than ${MAX_DESCENT} levels deep when its references are followed` : null)
    );
  }

  /** How deep the compiler has to go, references followed; and whether they ever come back. */
  descent(): { readonly isTooDeep: boolean; readonly isRecursive: boolean } {
    const open = new Set<SchemaMap>();
    const heights = new Map<SchemaMap, number>();
    let isTooDeep = false;
    let isRecursive = false;
    const heightOf = (schema: unknown): number => {
      if (!isMap(schema) || isTooDeep) return 0;
      const known = heights.get(schema);
      if (known !== undefined) return known;
      if (open.has(schema)) {
        isRecursive = true;
        return 0;
      }
      if (open.size > MAX_DESCENT) isTooDeep = true;
      open.add(schema);
      let height = typeof schema['$ref'] === 'string' ? heightOf(this.#follow(schema['$ref'])) : 0;
      for (const [, part] of children(schema)) height = Math.max(height, heightOf(part));
      open.delete(schema);
      heights.set(schema, height + 1);
      if (height + 1 > MAX_DESCENT) isTooDeep = true;
      return height + 1;
    };
    heightOf(this.#root);
    return { isTooDeep, isRecursive };
  }

  /** Every node of the schema's own text. */
  #look(schema: unknown, at: string, depth: number): string | null {
    if (typeof schema === 'boolean') return null;
    // what is no schema at all is named by the compiler
    if (!isMap(schema)) return null;
    if (depth > MAX_DEPTH) return `it is nested more than ${MAX_DEPTH} levels deep`;
    if (++this.#nodes > MAX_NODES) return `it has more than ${MAX_NODES} parts`;
    for (const key of NOT_SPOKEN)
      if (Object.hasOwn(schema, key) && !(key === '$id' && depth === 0))
        return `${place(at)}: ${key} is not used here: refer with $ref to #/$defs/...`;
    const ref = this.#refProblem(schema, at) ?? this.#patternsProblem(schema, at) ?? this.#valuesProblem(schema, at);
    if (ref !== null) return ref;
    const work = this.#workOf(schema, []);
    if (typeof work === 'string') return `${place(at)}: ${work}`;
    for (const [key, part] of children(schema)) {
      if (DANGEROUS.has(key.split('/').at(-1) as string))
        return `${place(at)}: a property must not be called ${quote(key.split('/').at(-1) as string)}`;
      const problem = this.#look(part, `${at}/${key}`, depth + 1);
      if (problem !== null) return problem;
    }
    return null;
  }

  #refProblem(schema: SchemaMap, at: string): string | null {
    const ref = schema['$ref'];
    if (ref === undefined) return null;
    if (typeof ref !== 'string' || !(ref === '#' || ref.startsWith('#/')))
      return `${place(at)}: $ref must lead into the schema itself (#/$defs/...), not to ${typeof ref === 'string' ? quote(ref) : 'something else'}`;
    return this.#follow(ref) === undefined ? `${place(at)}: $ref leads to ${quote(ref)}, which is not there` : null;
  }

  #follow(ref: string): unknown {
    let node: unknown = this.#root;
    for (const step of ref.split('/').slice(1)) {
      let name: string;
      try {
        name = decodeURIComponent(step).replaceAll('~1', '/').replaceAll('~0', '~');
      } catch {
        return undefined;
      }
      if (typeof node !== 'object' || node === null || !Object.hasOwn(node, name)) return undefined;
      node = (node as Record<string, unknown>)[name];
    }
    return typeof node === 'boolean' || isMap(node) ? node : undefined;
  }

  #patternsProblem(schema: SchemaMap, at: string): string | null {
    const maxLength = typeof schema['maxLength'] === 'number' ? schema['maxLength'] : null;
    if (typeof schema['pattern'] === 'string') {
      const problem = patternProblem(schema['pattern'], maxLength);
      if (problem !== null) return `${place(at)}: pattern ${quote(schema['pattern'])} ${problem}`;
    }
    for (const pattern of isMap(schema['patternProperties']) ? Object.keys(schema['patternProperties']) : []) {
      const problem = patternProblem(pattern, null);
      if (problem !== null) return `${place(at)}: patternProperties ${quote(pattern)} ${problem}`;
    }
    return null;
  }

  /** Values written into the schema count towards its size; `required` must not name what every object has. */
  #valuesProblem(schema: SchemaMap, at: string): string | null {
    for (const key of ['enum', 'const', 'default', 'examples']) {
      if (!Object.hasOwn(schema, key)) continue;
      this.#text += JSON.stringify(schema[key] ?? null).length;
      if (this.#text > MAX_TEXT) return 'the values written in it are larger than 256 KiB';
    }
    const names = Array.isArray(schema['required']) ? (schema['required'] as unknown[]) : [];
    const bad = names.find((name): name is string => typeof name === 'string' && DANGEROUS.has(name));
    return bad === undefined ? null : `${place(at)}: a property must not be called ${quote(bad)}`;
  }

  /** How many schemas are applied to one value from here on; a sentence when there is no end to it. */
  #workOf(schema: unknown, trail: readonly SchemaMap[]): number | string {
    if (!isMap(schema)) return 1;
    const known = this.#work.get(schema);
    if (known !== undefined) return known;
    if (trail.includes(schema)) return 'it refers to itself without going down into the data';
    if (trail.length > MAX_CHAIN) return `more than ${MAX_CHAIN} references lead on to one another`;
    let work = 1;
    const longer = [...trail, schema];
    for (const part of this.#sameValue(schema)) {
      const more = this.#workOf(part, longer);
      if (typeof more === 'string') return more;
      work += more;
      if (work > MAX_WORK) return `more than ${MAX_WORK} subschemas would be applied to one value`;
    }
    this.#work.set(schema, work);
    return work;
  }

  #sameValue(schema: SchemaMap): unknown[] {
    const parts: unknown[] = [];
    if (typeof schema['$ref'] === 'string') parts.push(this.#follow(schema['$ref']));
    for (const key of SAME_ONE) if (Object.hasOwn(schema, key)) parts.push(schema[key]);
    for (const key of SAME_LIST) if (Array.isArray(schema[key])) parts.push(...(schema[key] as unknown[]));
    for (const key of SAME_MAP) if (isMap(schema[key])) parts.push(...Object.values(schema[key]));
    return parts;
  }
}

/** Subschemas with their place below this one. */
function* children(schema: SchemaMap): Generator<[string, unknown]> {
  for (const key of [...SAME_ONE, ...DOWN_ONE]) if (Object.hasOwn(schema, key)) yield [key, schema[key]];
  for (const key of [...SAME_LIST, ...DOWN_LIST]) {
    const list = schema[key];
    if (Array.isArray(list)) for (const [i, part] of (list as unknown[]).entries()) yield [`${key}/${i}`, part];
  }
  for (const key of [...SAME_MAP, ...DOWN_MAP, ...DEFINITIONS]) {
    const map = schema[key];
    if (isMap(map)) for (const [name, part] of Object.entries(map)) yield [`${key}/${name}`, part];
  }
}

function place(at: string): string {
  return at === '' ? 'at its top' : `at ${quote(at).slice(1, -1)}`;
}
