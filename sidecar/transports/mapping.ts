/**
 * A third party's HTTP API described by a mapping (SPEC R2.4): from a payload to method, path, query, headers and body.
 * Pure. Templates hold `{/json/pointer}` parts, taken from the payload; `{}` alone is the whole payload, `{{` a brace.
 * A part whose value is missing, or is an object where text is needed, refuses the call before anything is sent: half a
 * path is another path. Numbers, and whole parts of the payload, stand in the request with the very characters of the
 * payload: what went through a double may be another number.
 */
import { sourceAt } from '../../base/json-source.ts';
import type { HttpMapping } from '../../proto/language/types.ts';
import { hasForbiddenCharacter } from './hygiene.ts';

type Part = string | Pointer;

interface Pointer {
  /** As written, for messages. */
  readonly text: string;
  readonly keys: readonly string[];
}

/** A template cut into parts once, at preparation. */
export type Template = readonly Part[];

export interface CompiledMapping {
  readonly method: HttpMapping['method'];
  readonly path: Template;
  /** Names and literal text percent-encoded already. */
  readonly query: readonly (readonly [name: string, value: Template])[];
  readonly headers: readonly (readonly [name: string, value: Template])[];
  readonly body: 'payload' | 'none' | { readonly template: unknown };
  /** Nothing of it depends on the payload: it need not be parsed. */
  readonly isStatic: boolean;
}

export interface MappedRequest {
  readonly path: string;
  /** Flat name, value …. */
  readonly headers: readonly string[];
  /** null = the payload's own bytes; an empty Buffer = no body. */
  readonly body: Buffer | null;
}

/** Throws on a template that cannot be read: a bad start-up configuration. */
export function compileMapping(mapping: HttpMapping): CompiledMapping {
  const path = literally(compileTemplate(mapping.path.startsWith('/') ? mapping.path : `/${mapping.path}`), pathText);
  const query = Object.entries(mapping.query).map(
    ([name, value]) => [encodeURIComponent(name), literally(compileTemplate(value), encodeURIComponent)] as const,
  );
  const headers = Object.entries(mapping.headers).map(([name, value]) => [name.toLowerCase(), compileTemplate(value)] as const);
  const body = typeof mapping.body === 'string' ? mapping.body : { template: compileBody(mapping.body.template) };
  const isStatic =
    typeof body === 'string' &&
    isConstant(path) &&
    query.every(([, value]) => isConstant(value)) &&
    headers.every(([, value]) => isConstant(value));
  return { method: mapping.method, path, query, headers, body, isStatic };
}

/** Encodes what stands between the pointers, once. */
function literally(template: Template, encode: (text: string) => string): Template {
  return template.map((part) => (typeof part === 'string' ? encode(part) : part));
}

/** A path as people write it: slashes, `?` and what is encoded already stand, the rest is encoded. */
function pathText(text: string): string {
  return encodeURI(text).replaceAll('%25', '%').replaceAll('#', '%23');
}

export function compileTemplate(text: string): Template {
  const parts: Part[] = [];
  let literal = '';
  for (let i = 0; i < text.length; i++) {
    const c = text[i] as string;
    if (c === '{' && text[i + 1] === '{') {
      literal += '{';
      i++;
    } else if (c === '}' && text[i + 1] === '}') {
      literal += '}';
      i++;
    } else if (c === '{') {
      const end = text.indexOf('}', i);
      if (end < 0) throw new Error(`the template ${JSON.stringify(text)} has a "{" without "}"; write "{{" for a brace`);
      if (literal !== '') parts.push(literal);
      literal = '';
      parts.push(pointer(text.slice(i + 1, end), text));
      i = end;
    } else {
      literal += c;
    }
  }
  if (literal !== '') parts.push(literal);
  return parts;
}

/**
 * The request a mapping makes of a payload, or the words of a refusal. `payload` may be undefined when `isStatic`;
 * `source` is the text that it was parsed from.
 */
export function applyMapping(mapping: CompiledMapping, payload: unknown, source: string): MappedRequest | string {
  const filled = new Filling(payload, source);
  let path = filled.text(mapping.path, encodeURIComponent, 'path');
  let separator = path.includes('?') ? '&' : '?';
  for (const [name, value] of mapping.query) {
    path += `${separator}${name}=${filled.text(value, encodeURIComponent, `query parameter ${name}`)}`;
    separator = '&';
  }
  const headers: string[] = [];
  for (const [name, template] of mapping.headers) {
    const value = filled.text(template, asIs, `header ${name}`);
    if (hasForbiddenCharacter(value)) return `the mapping's header ${name} would hold a character that no header may hold`;
    headers.push(name, value);
  }
  let body: Buffer | null = null;
  if (mapping.body === 'none') body = Buffer.alloc(0);
  else if (mapping.body !== 'payload') body = Buffer.from(filled.json(mapping.body.template, 'body'));
  return filled.refusal === '' ? { path, headers, body } : filled.refusal;
}

/** Remembers the first thing that was missing, so that the templates can be filled without a check after each. */
class Filling {
  refusal = '';
  readonly #payload: unknown;
  readonly #source: string;

  constructor(payload: unknown, source: string) {
    this.#payload = payload;
    this.#source = source;
  }

  text(template: Template, encode: (text: string) => string, place: string): string {
    let out = '';
    for (const part of template) {
      if (typeof part === 'string') {
        out += part;
        continue;
      }
      const value = this.#value(part, place);
      if (typeof value === 'string' || typeof value === 'number' || typeof value === 'boolean') {
        const text = typeof value === 'number' ? (sourceAt(this.#source, part.keys) ?? String(value)) : String(value);
        // A path part of dots would climb: "a/{/id}" with "..".
        if (place === 'path' && (text === '' || text === '.' || text === '..'))
          this.#refuse(`the payload's ${part.text} is ${JSON.stringify(text)}, which cannot stand in the path of the mapping`);
        out += encodeWhole(text, encode, this, part);
      } else if (value !== undefined) {
        this.#refuse(
          `the payload's ${shown(part)} is ${value === null ? 'null' : Array.isArray(value) ? 'a list' : 'an object'}, but the mapping's ${place} needs text, a number or a boolean`,
        );
      }
    }
    return out;
  }

  /** JSON of a template, its string leaves filled; one that is a pointer alone takes the value with its type. */
  json(node: unknown, place: string): string {
    if (node instanceof Leaf) {
      const only = node.template.length === 1 ? node.template[0] : undefined;
      if (only === undefined || typeof only === 'string') return JSON.stringify(this.text(node.template, asIs, place));
      const value = this.#value(only, place);
      return value === undefined ? 'null' : (sourceAt(this.#source, only.keys) ?? JSON.stringify(value));
    }
    if (Array.isArray(node)) return `[${node.map((one) => this.json(one, place)).join(',')}]`;
    if (typeof node === 'object' && node !== null)
      return `{${Object.entries(node)
        .map(([key, value]) => `${JSON.stringify(key)}:${this.json(value, place)}`)
        .join(',')}}`;
    return JSON.stringify(node);
  }

  refuseText(part: Pointer): void {
    this.#refuse(`the payload's ${shown(part)} is not well-formed text`);
  }

  #value(part: Pointer, place: string): unknown {
    let at = this.#payload;
    for (const key of part.keys) {
      if (Array.isArray(at)) at = /^(0|[1-9]\d*)$/.test(key) ? at[Number(key)] : undefined;
      else if (typeof at === 'object' && at !== null && Object.hasOwn(at, key)) at = (at as Record<string, unknown>)[key];
      else at = undefined;
      if (at === undefined) break;
    }
    if (at === undefined) this.#refuse(`the payload has no ${shown(part)}, which the mapping's ${place} needs`);
    return at;
  }

  #refuse(words: string): void {
    if (this.refusal === '') this.refusal = words;
  }
}

/** A string leaf of a body template, compiled. */
class Leaf {
  readonly template: Template;
  constructor(template: Template) {
    this.template = template;
  }
}

function compileBody(node: unknown): unknown {
  if (typeof node === 'string') return new Leaf(compileTemplate(node));
  if (Array.isArray(node)) return node.map(compileBody);
  if (typeof node === 'object' && node !== null)
    return Object.fromEntries(Object.entries(node).map(([key, value]) => [key, compileBody(value)]));
  return node;
}

function pointer(text: string, template: string): Pointer {
  if (text !== '' && !text.startsWith('/'))
    throw new Error(`the template ${JSON.stringify(template)} has {${text}}; a part is a JSON pointer such as {/order/id}`);
  const keys =
    text === ''
      ? []
      : text
          .slice(1)
          .split('/')
          .map((key) => key.replaceAll('~1', '/').replaceAll('~0', '~'));
  return { text, keys };
}

function isConstant(template: Template): boolean {
  return template.every((part) => typeof part === 'string');
}

function encodeWhole(text: string, encode: (text: string) => string, filling: Filling, part: Pointer): string {
  try {
    return encode(text);
  } catch {
    // A lone surrogate: encodeURIComponent throws for it.
    filling.refuseText(part);
    return '';
  }
}

function asIs(text: string): string {
  return text;
}

function shown(part: Pointer): string {
  return part.text === '' ? 'payload itself' : part.text;
}
