/** The small shapes that every language uses: text, numbers with their units, lists, free maps. */
import {
  describe,
  formatDuration,
  formatRatio,
  formatSize,
  MAX_DURATION_MS,
  parseDuration,
  parseRatio,
  parseSize,
  quote,
} from '../../base/duration.ts';
import { nearest } from '../../base/suggest.ts';
import { ANY, BAD, type Bad, type Place, readPresent, type Shape } from './reader.ts';

const TEXT_MAX = 4_096;

/** Text; `check` gives a sentence when it is not what belongs here. Control characters are refused but for line ends. */
export function text(kind: string, check: (value: string) => string | null = () => null, pattern?: string): Shape<string> {
  return {
    kind,
    read(value, place) {
      if (typeof value === 'number') return place.bad(`${place.name} must be ${kind}, and an unquoted ${value} is a number: quote it`);
      if (typeof value === 'boolean') return place.bad(`${place.name} must be ${kind}, and an unquoted ${value} is a boolean: quote it`);
      if (typeof value !== 'string') return place.bad(`${place.name} must be ${kind}, not ${describe(value)}`);
      if (value.trim() === '') return place.bad(`${place.name} is empty: give it a value or leave the key out`);
      if (value.length > TEXT_MAX) return place.bad(`${place.name} is longer than ${TEXT_MAX} characters`);
      if (hasControls(value)) return place.bad(`${place.name} holds control characters`);
      const problem = check(value);
      return problem === null ? value : place.bad(problem);
    },
    schema: () => (pattern === undefined ? { type: 'string', minLength: 1 } : { type: 'string', pattern }),
  };
}

function hasControls(value: string): boolean {
  for (let i = 0; i < value.length; i++) {
    const c = value.charCodeAt(i);
    if ((c < 32 && c !== 10 && c !== 9) || c === 127) return true;
  }
  return false;
}

/** A version in full. Unquoted, `2.0` is a number and has lost its zeros already. */
export function versionText(check: (value: string) => string | null): Shape<string> {
  const inner = text('a version', check, '^[0-9]+\\.[0-9]+\\.[0-9]+(-[0-9A-Za-z.-]+)?$');
  return {
    ...inner,
    read(value, place) {
      if (typeof value !== 'number') return inner.read(value, place);
      const parts = String(value).split('.');
      while (parts.length < 3) parts.push('0');
      return place.bad(`${place.name} must be a version, and an unquoted ${value} is a number: quote it: "${parts.join('.')}"`);
    },
  };
}

export const flag: Shape<boolean> = {
  kind: 'true or false',
  read: (value, place) => (typeof value === 'boolean' ? value : place.bad(`${place.name} must be true or false, not ${describe(value)}`)),
  schema: () => ({ type: 'boolean' }),
};

export function oneOf<const W extends readonly string[]>(words: W): Shape<W[number]> {
  const kind = `one of ${words.join(', ')}`;
  return {
    kind,
    read(value, place) {
      if (typeof value === 'string' && words.includes(value)) return value;
      const near = typeof value === 'string' ? nearest(value, words) : null;
      return place.bad(`${place.name} must be ${kind}, not ${describe(value)}${near === null ? '' : `; did you mean ${near}?`}`);
    },
    schema: () => ({ enum: words }),
  };
}

/** A whole number. */
export function count(min: number, max: number): Shape<number> {
  const kind = `whole number from ${min} to ${max}`;
  return {
    kind,
    read(value, place) {
      if (typeof value === 'number' && Number.isInteger(value) && value >= min && value <= max) return value;
      return place.bad(`${place.name} must be a ${kind}, not ${describe(value)}`);
    },
    schema: () => ({ type: 'integer', minimum: min, maximum: max }),
  };
}

/** Any finite number in a range. */
export function number(min: number, max: number): Shape<number> {
  const kind = `number from ${min} to ${max}`;
  return {
    kind,
    read(value, place) {
      if (typeof value === 'number' && value >= min && value <= max) return value;
      return place.bad(`${place.name} must be a ${kind}, not ${describe(value)}`);
    },
    schema: () => ({ type: 'number', minimum: min, maximum: max }),
  };
}

/** Milliseconds, written with a unit. */
export function duration(minMs: number, maxMs: number = MAX_DURATION_MS): Shape<number> {
  const range = `from ${formatDuration(minMs)} to ${formatDuration(maxMs)}`;
  return {
    kind: `duration ${range}`,
    read(value, place) {
      const ms = parseDuration(value, Math.max(maxMs, MAX_DURATION_MS));
      if (typeof ms === 'string') return place.bad(`${place.name} must be a duration ${range}: ${ms}`);
      if (ms < minMs || ms > maxMs) return place.bad(`${place.name} must be ${range}, not ${quote(String(value))}`);
      return ms;
    },
    schema: () => ({ type: 'string', pattern: '^[0-9]+(\\.[0-9]+)? ?(ms|s|m|h|d)$' }),
  };
}

/** 0-1, written as a number or as a percentage. `isZeroAllowed` false: a ratio of 0 makes no sense here. */
export function ratio(isZeroAllowed: boolean): Shape<number> {
  const range = isZeroAllowed ? 'from 0 to 1 (or 0% to 100%)' : 'above 0, up to 1 (or above 0%, up to 100%)';
  return {
    kind: `ratio ${range}`,
    read(value, place) {
      const read = parseRatio(value);
      if (typeof read === 'string') return place.bad(`${place.name} must be a ratio ${range}: ${read}`);
      if (read === 0 && !isZeroAllowed) return place.bad(`${place.name} must be a ratio ${range}, not ${formatRatio(0)}`);
      return read;
    },
    schema: () => ({
      anyOf: [
        isZeroAllowed ? { type: 'number', minimum: 0, maximum: 1 } : { type: 'number', exclusiveMinimum: 0, maximum: 1 },
        { type: 'string', pattern: '^[0-9]+(\\.[0-9]+)? ?%$' },
      ],
    }),
  };
}

/** Bytes, written as a number or with a unit. */
export function size(minBytes: number, maxBytes: number): Shape<number> {
  const range = `from ${formatSize(minBytes)} to ${formatSize(maxBytes)}`;
  return {
    kind: `size ${range}`,
    read(value, place) {
      const bytes = parseSize(value);
      if (typeof bytes === 'string') return place.bad(`${place.name} must be a size ${range}: ${bytes}`);
      if (bytes < minBytes || bytes > maxBytes) return place.bad(`${place.name} must be ${range}, not ${describe(value)}`);
      return bytes;
    },
    schema: () => ({
      anyOf: [
        { type: 'integer', minimum: minBytes, maximum: maxBytes },
        { type: 'string', pattern: '^[0-9]+(\\.[0-9]+)? ?(B|KB|MB|GB|KiB|MiB|GiB)$' },
      ],
    }),
  };
}

/** A list; a bad entry does not hide the others' problems. */
export function list<T>(inner: Shape<T>, max: number, min = 0): Shape<readonly T[]> {
  return {
    kind: `list of ${inner.kind}`,
    inner,
    read(value, place) {
      const all = listEach(inner, value, place, max, min);
      return all === BAD || all.includes(BAD) ? BAD : Object.freeze(all as T[]);
    },
    schema: () => ({ type: 'array', items: inner.schema(), ...(min > 0 ? { minItems: min } : {}) }),
  };
}

/** Reads every entry and keeps the good ones' places: BAD stands where one was bad. */
export function listEach<T>(inner: Shape<T>, value: unknown, place: Place, max: number, min = 0): (T | Bad)[] | Bad {
  if (!Array.isArray(value)) return place.bad(`${place.name} must be a list (lines that begin with "- "), not ${describe(value)}`);
  if (value.length > max) return place.bad(`${place.name} has ${value.length} entries, and at most ${max} are allowed`);
  if (value.length < min) return place.bad(`${place.name} needs at least ${min === 1 ? 'one entry' : `${min} entries`}`);
  return value.map((each, i) => readPresent(inner, each, place.at(i)));
}

/** A map with free keys. The result has no prototype. */
export function dictionary<T>(
  keyKind: string,
  checkKey: (key: string) => string | null,
  inner: Shape<T>,
  max: number,
): Shape<Readonly<Record<string, T>>> {
  return {
    kind: `map from ${keyKind} to ${inner.kind}`,
    inner,
    read(value, place) {
      if (typeof value !== 'object' || value === null || Array.isArray(value))
        return place.bad(`${place.name} must be a map from ${keyKind} to ${inner.kind}, not ${describe(value)}`);
      const keys = Object.keys(value);
      if (keys.length > max) return place.bad(`${place.name} has ${keys.length} entries, and at most ${max} are allowed`);
      let isWhole = true;
      const read = Object.create(null) as Record<string, T>;
      for (const key of keys) {
        const problem = checkKey(key);
        if (problem !== null) {
          place.at(key).badKey(problem);
          isWhole = false;
          continue;
        }
        const part = readPresent(inner, (value as Record<string, unknown>)[key], place.at(key));
        if (part === BAD) isWhole = false;
        else read[key] = part;
      }
      return isWhole ? Object.freeze(read) : BAD;
    },
    schema: () => ({ type: 'object', additionalProperties: inner.schema() }),
  };
}

/** Whatever JSON can hold. */
export const anyJson: Shape<unknown> = {
  kind: ANY,
  read: (value, place) =>
    isFiniteAll(value) ? value : place.bad(`${place.name} holds a number that JSON cannot hold (infinite or not a number)`),
  schema: () => ({}),
};

function isFiniteAll(value: unknown): boolean {
  if (typeof value === 'number') return Number.isFinite(value);
  if (typeof value !== 'object' || value === null) return true;
  return Object.values(value).every(isFiniteAll);
}

/**
 * The first shape whose `accepts` is true reads the value: the choice is by form, so that its message is the right one.
 * @param isSecret the value may be a secret and is not repeated in a problem.
 */
export function choice<T>(
  kind: string,
  branches: readonly { readonly accepts: (value: unknown) => boolean; readonly shape: Shape<T> }[],
  isSecret = false,
): Shape<T> {
  return {
    kind,
    read(value, place) {
      for (const branch of branches) if (branch.accepts(value)) return branch.shape.read(value, place);
      return place.bad(`${place.name} must be ${kind}${isSecret ? '' : `, not ${describe(value)}`}`);
    },
    schema: () => ({ anyOf: branches.map((branch) => branch.shape.schema()) }),
  };
}

export const isText = (value: unknown): boolean => typeof value === 'string';
export const isPlainMap = (value: unknown): boolean => typeof value === 'object' && value !== null && !Array.isArray(value);
export const hasKey =
  (key: string) =>
  (value: unknown): boolean =>
    isPlainMap(value) && Object.hasOwn(value as object, key);
