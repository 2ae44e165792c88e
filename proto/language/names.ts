/**
 * The names that travel: capabilities, aliases, agents, targets (`name@range`) and tag selectors. One alphabet for each,
 * checked by hand-written scans (no regular expression on the path of a call), so that a name that passed here is safe
 * in a URL, a header, a log line and a bus subject alike. Whether a name *exists* is asked elsewhere.
 */
import { quote } from '../../base/duration.ts';
import { compileRange, type Refusal } from './range.ts';

/** Segments of a capability: domain, object, action. */
const NAME_SEGMENTS = 3;
export const SEGMENT_MAX = 63;
export const AGENT_ID_MAX = 64;
/** Longest capability name: three full segments and two dots. */
const NAME_MAX = NAME_SEGMENTS * (SEGMENT_MAX + 1) - 1;
const TARGET_MAX = NAME_MAX + 1 + 256;

const NAME_RULE =
  'a capability name has exactly three segments, domain.object.action, each a lower-case letter followed by up to 62 of a-z, 0-9 and _ ; a good one looks like crm.order.query';
const ALIAS_RULE =
  'an alias has one to three segments joined by dots, each a lower-case letter followed by up to 62 of a-z, 0-9 and _ ; a good one looks like order_query';
const AGENT_RULE =
  'an agent id is team.role.id: team and role start with a lower-case letter followed by up to 62 of a-z, 0-9, _ and - ; the id is 1 to 64 of A-Z, a-z, 0-9, _ and - ; a good one looks like crm.order.7f3a';

export interface Target {
  readonly name: string;
  /** As written, trimmed, known to compile; null when the target names none. */
  readonly range: string | null;
}

const LOWER_A = 97;
const LOWER_Z = 122;
const UPPER_A = 65;
const UPPER_Z = 90;
const DIGIT_0 = 48;
const DIGIT_9 = 57;
const UNDERSCORE = 95;
const DASH = 45;
const DOT = 46;

/** How many well-formed segments `text` has from `start`; 0 = it is not made of such segments. */
function segments(text: string, end: number, dashes: boolean): number {
  let count = 0;
  let start = 0;
  for (let i = 0; i <= end; i++) {
    const c = i === end ? DOT : text.charCodeAt(i);
    if (c === DOT) {
      const length = i - start;
      if (length < 1 || length > SEGMENT_MAX) return 0;
      count++;
      start = i + 1;
    } else if (c >= LOWER_A && c <= LOWER_Z) continue;
    else if (i > start && ((c >= DIGIT_0 && c <= DIGIT_9) || c === UNDERSCORE || (dashes && c === DASH))) continue;
    else return 0;
  }
  return count;
}

/** True for exactly three well-formed segments. */
export function isCapabilityName(text: string): boolean {
  return text.length <= NAME_MAX && segments(text, text.length, false) === NAME_SEGMENTS;
}

/** True for one to three well-formed segments. */
export function isAlias(text: string): boolean {
  return text.length <= NAME_MAX && isBetween(segments(text, text.length, false), 1, NAME_SEGMENTS);
}

function isBetween(value: number, low: number, high: number): boolean {
  return value >= low && value <= high;
}

/** True for `team.role.id`. */
export function isAgentId(text: string): boolean {
  const second = text.indexOf('.', text.indexOf('.') + 1);
  if (second < 0 || segments(text, second, true) !== 2) return false;
  return isShortId(text, second + 1);
}

function isShortId(text: string, start: number): boolean {
  if (!isBetween(text.length - start, 1, AGENT_ID_MAX)) return false;
  for (let i = start; i < text.length; i++) {
    const c = text.charCodeAt(i);
    const ok =
      isBetween(c, LOWER_A, LOWER_Z) || isBetween(c, UPPER_A, UPPER_Z) || isBetween(c, DIGIT_0, DIGIT_9) || c === UNDERSCORE || c === DASH;
    if (!ok) return false;
  }
  return true;
}

/** A segment of an agent id's team or role. */
export function isAgentSegment(text: string): boolean {
  return segments(text, text.length, true) === 1;
}

/** The id part of an agent id. */
export function isAgentShortId(text: string): boolean {
  return isShortId(text, 0);
}

/** Why `text` is no capability name; null when it is one. */
export function capabilityNameProblem(text: string): string | null {
  return isCapabilityName(text) ? null : `${quote(text)} is not a capability name: ${NAME_RULE}`;
}

export function aliasProblem(text: string): string | null {
  return isAlias(text) ? null : `${quote(text)} is not an alias: ${ALIAS_RULE}`;
}

export function agentIdProblem(text: string): string | null {
  return isAgentId(text) ? null : `${quote(text)} is not an agent id: ${AGENT_RULE}`;
}

/**
 * Splits `name`, `alias`, `name@range` or `alias@range` and checks both parts; a range that is there must not be blank
 * (a missing value must never read as "any"). Compiles the range to check it: keep what you parsed.
 */
export function parseTarget(text: string): Target | Refusal {
  if (text.length > TARGET_MAX) return { problem: `${quote(text)} is too long: a name and a range have at most ${TARGET_MAX} characters` };
  const at = text.indexOf('@');
  const name = at < 0 ? text : text.slice(0, at);
  if (!isAlias(name)) return { problem: `${quote(name)} is not a capability name: ${NAME_RULE}` };
  if (at < 0) return { name, range: null };
  const range = text.slice(at + 1).trim();
  if (range === '')
    return { problem: `${quote(text)} has an empty range: write a range after the @ as in crm.order.query@^2.0, or leave the @ out` };
  const compiled = compileRange(range);
  return 'problem' in compiled ? compiled : { name, range };
}

/** A tag selector: every pair must be met. */
export interface TagSelector {
  /** Canonical: sorted by key, `k=v,k2=v2`. */
  readonly text: string;
  readonly pairs: readonly (readonly [key: string, value: string])[];
}

const TAG_KEY = /^[A-Za-z0-9][A-Za-z0-9_./-]{0,62}$/;
const TAG_VALUE = /^[A-Za-z0-9][A-Za-z0-9_.:/@+-]{0,127}$/;
export const MAX_TAGS = 32;
const TAG_KEY_RULE = "a tag's key is 1 to 63 of letters, digits, _ . / and -, beginning with a letter or digit";
const TAG_VALUE_RULE = "a tag's value is 1 to 128 of letters, digits, _ . : / @ + and -, beginning with a letter or digit";

export function tagKeyProblem(key: string): string | null {
  return TAG_KEY.test(key) && !(key in Object.prototype) ? null : `${quote(key)} is not a tag: ${TAG_KEY_RULE}`;
}

export function tagValueProblem(value: string): string | null {
  return TAG_VALUE.test(value) ? null : `${quote(value)} is not a tag's value: ${TAG_VALUE_RULE}`;
}

/** Reads the header form `lang=de,tier=gold` (spaces around the parts are allowed). */
export function parseTagSelector(text: string): TagSelector | Refusal {
  const pairs: [string, string][] = [];
  const parts = text.split(',', MAX_TAGS + 1);
  if (parts.length > MAX_TAGS) return { problem: `a tag selector has at most ${MAX_TAGS} tags` };
  for (const part of parts) {
    const at = part.indexOf('=');
    if (at < 0)
      return {
        problem: `${quote(part.trim())} is not a tag selector: write key=value pairs with commas between, such as lang=de,tier=gold`,
      };
    const key = part.slice(0, at).trim();
    const value = part.slice(at + 1).trim();
    const problem = tagKeyProblem(key) ?? tagValueProblem(value);
    if (problem !== null) return { problem };
    if (pairs.some(([other]) => other === key)) return { problem: `the tag ${quote(key)} is asked for twice` };
    pairs.push([key, value]);
  }
  pairs.sort(([a], [b]) => (a < b ? -1 : 1));
  return { text: pairs.map(([key, value]) => `${key}=${value}`).join(','), pairs };
}

/** True when `tags` has every pair of the selector. */
export function matchesTags(pairs: TagSelector['pairs'], tags: Readonly<Record<string, string>>): boolean {
  for (const [key, value] of pairs) if (tags[key] !== value) return false;
  return true;
}
