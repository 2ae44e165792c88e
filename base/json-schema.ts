/**
 * JSON Schema 2020-12 for payloads. A schema is written by one party and run against the data of another, so it is
 * judged before it is compiled: unknown keywords, remote references, endless recursion, blown-up size and patterns that
 * can be driven into exponential time are refused. Validation never changes the data (no coercion, no defaults).
 */
import { Ajv2020, type AnySchema, type ErrorObject, type ValidateFunction } from 'ajv/dist/2020.js';
import addFormats from 'ajv-formats';
import { isDeeper } from './depth.ts';
import { quote } from './duration.ts';
import { guardedRegExp } from './pattern-safety.ts';
import { isRecursive, schemaProblem } from './schema-safety.ts';

export interface Validator {
  /** null = valid; else up to 20 sentences, each with the JSON pointer of its place and nothing of the data but names. */
  validate(value: unknown): readonly string[] | null;
}

const MAX_ERRORS = 20;
/** Above this many values only the first error is looked for, since a list of all would grow with the data. */
const MAX_VALUES_FOR_ALL_ERRORS = 2_000;
/** Levels that data may have under a recursive schema. */
const MAX_DATA_DEPTH = 256;
/** Compiled schemas kept: a table that is read again compiles only what changed. */
const KEPT = 2_048;
/** Deeper ones are judged each time: they must be measured before anything walks them. */
const MAX_KEPT_LEVELS = 100;

const engine = makeEngine(false);
/** Made when the first value fails somewhere: it lists all errors rather than the first. */
let thoroughEngine: Ajv2020 | null = null;
const kept = new Map<string, Validator>();

function makeEngine(allErrors: boolean): Ajv2020 {
  const made = new Ajv2020({
    allErrors,
    strictSchema: true,
    strictNumbers: true,
    strictTypes: false,
    strictTuples: false,
    strictRequired: false,
    validateFormats: true,
    coerceTypes: false,
    useDefaults: false,
    removeAdditional: false,
    addUsedSchema: false,
    messages: true,
    logger: false,
    code: { regExp: guardedRegExp },
  });
  // the package is CommonJS: its function stands under `default`
  (addFormats as unknown as { default: (ajv: Ajv2020) => void }).default(made);
  return made;
}

/** Compiles a schema (a boolean or a map), or says in one sentence why it is refused. */
export function compileSchema(schema: unknown): { readonly validator: Validator } | { readonly problem: string } {
  // What is kept has been judged; a registry says the same schema again with every change of a provider.
  const shallow = isDeeper(schema, MAX_KEPT_LEVELS) ? '' : JSON.stringify(schema);
  const before = kept.get(shallow);
  if (before !== undefined) return { validator: before };
  const problem = schemaProblem(schema);
  if (problem !== null) return { problem };
  const text = JSON.stringify(schema);
  let validate: ValidateFunction;
  try {
    validate = compileWith(engine, text);
  } catch (error) {
    return { problem: compileProblem(error) };
  }
  const validator = isRecursive(schema) ? new RecursiveValidator(text, validate) : new SchemaValidator(text, validate);
  if (kept.size >= KEPT) kept.delete(kept.keys().next().value as string);
  kept.set(text, validator);
  return { validator };
}

/** The engine gets a copy of its own, and forgets it once it is compiled. */
function compileWith(ajv: Ajv2020, text: string): ValidateFunction {
  const copy = JSON.parse(text) as AnySchema;
  if (typeof copy === 'object') {
    delete copy.$id;
    delete copy.$schema;
  }
  const validate = ajv.compile(copy);
  if (typeof copy === 'object') ajv.removeSchema(copy);
  return validate;
}

class SchemaValidator implements Validator {
  readonly #text: string;
  readonly #validate: ValidateFunction;
  #thorough: ValidateFunction | null = null;

  constructor(text: string, validate: ValidateFunction) {
    this.#text = text;
    this.#validate = validate;
  }

  validate(value: unknown): readonly string[] | null {
    return this.#validate(value) === true ? null : this.#explain(value);
  }

  #explain(value: unknown): readonly string[] {
    let errors = this.#validate.errors ?? [];
    if (isSmall(value)) {
      thoroughEngine ??= makeEngine(true);
      this.#thorough ??= compileWith(thoroughEngine, this.#text);
      if (this.#thorough(value) !== true) errors = this.#thorough.errors ?? errors;
      this.#thorough.errors = null;
    }
    this.#validate.errors = null;
    const shown: string[] = [];
    for (const error of errors) {
      const words = wordsOf(error);
      if (!shown.includes(words)) shown.push(words);
      if (shown.length === MAX_ERRORS) break;
    }
    return shown;
  }
}

/**
 * A recursive schema follows the data down, so the data's depth is bounded first: what runs out of stack inside a regular
 * expression ends the whole process, not the call alone.
 */
class RecursiveValidator extends SchemaValidator {
  override validate(value: unknown): readonly string[] | null {
    return isDeeper(value, MAX_DATA_DEPTH) ? [`(the whole): nested more than ${MAX_DATA_DEPTH} levels deep`] : super.validate(value);
  }
}

function isSmall(value: unknown): boolean {
  let left = MAX_VALUES_FOR_ALL_ERRORS;
  const open: unknown[] = [value];
  while (open.length > 0) {
    if (--left < 0) return false;
    const next = open.pop();
    if (typeof next !== 'object' || next === null) continue;
    const parts = Object.values(next);
    if (parts.length > left) return false;
    for (const part of parts) open.push(part);
  }
  return true;
}

/** `/order/id: must be string`. Values of the data are never shown, its property names are cut and escaped. */
function wordsOf(error: ErrorObject): string {
  const place = error.instancePath === '' ? '(the whole)' : quote(error.instancePath).slice(1, -1);
  const params = error.params as Readonly<Record<string, unknown>>;
  const extra = params['additionalProperty'] ?? params['unevaluatedProperty'] ?? params['propertyName'];
  if (typeof extra === 'string')
    return `${place}: ${error.keyword === 'propertyNames' ? 'has a property with a name that is not allowed' : 'has a property that is not allowed'}: ${quote(extra)}`;
  if (error.keyword === 'enum')
    return `${place}: must be one of ${(params['allowedValues'] as unknown[])
      .map((each) => JSON.stringify(each))
      .join(', ')
      .slice(0, 200)}`;
  if (error.keyword === 'const') return `${place}: must be ${JSON.stringify(params['allowedValue']).slice(0, 200)}`;
  if (error.keyword === 'false schema') return `${place}: nothing is allowed here`;
  return `${place}: ${error.message ?? 'is not valid'}`;
}

function compileProblem(error: unknown): string {
  const message = error instanceof Error ? error.message : String(error);
  const unknown = /unknown keyword: "([^"]*)"/.exec(message);
  if (unknown !== null)
    return `unknown keyword ${quote(unknown[1] as string)} (is it misspelt, or of another draft? JSON Schema 2020-12 is spoken here)`;
  const format = /unknown format "([^"]*)"/.exec(message);
  if (format !== null) return `unknown format ${quote(format[1] as string)}`;
  return quote(message.replace(/^schema is invalid: /, 'not valid: ').replaceAll('data/', '/'), 300).slice(1, -1);
}
