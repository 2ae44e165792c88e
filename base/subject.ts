/**
 * What may stand in a subject and in a header of the bus. The protocol is made of lines of words: a blank would make the
 * second word the reply subject, a line feed would begin a command, an empty token makes the server hang up on everybody
 * who shares the connection. So everything is looked at before a byte is sent. Which names mean something is not decided here.
 */

/** Far below the server's longest line (4,096 bytes, all words together), far above any name that makes sense. */
export const MAX_SUBJECT_CHARS = 1_024;
const MAX_HEADER_NAME_CHARS = 128;
const MAX_HEADER_VALUE_CHARS = 8_192;

/** Under an inbox: `told.<who>.<what nobody can guess>`, where one who is named answers what he was asked. */
export const TOLD = 'told';

const DOT = 0x2e;
const STAR = 0x2a;
const GREATER = 0x3e;
const DOLLAR = 0x24;

/** Null when a message can be sent to `subject`; else what is wrong with it. `$…` is the server's own and refused. */
export function subjectProblem(subject: string): string | null {
  return subject.charCodeAt(0) === DOLLAR ? 'begins with $, which belongs to the server' : problemIn(subject, false);
}

/** Null when `pattern` can be subscribed to: a subject, or one with `*` for a token or `>` for all the rest. */
export function patternProblem(pattern: string): string | null {
  return problemIn(pattern, true);
}

/** As `subjectProblem`, for subjects of the server's own API. */
export function apiSubjectProblem(subject: string): string | null {
  return problemIn(subject, false);
}

function problemIn(subject: string, mayBePattern: boolean): string | null {
  const length = subject.length;
  if (length === 0) return 'is empty';
  if (length > MAX_SUBJECT_CHARS) return `is ${length} characters long, at most ${MAX_SUBJECT_CHARS} are possible`;
  let tokenStart = 0;
  for (let i = 0; i <= length; i++) {
    const c = i === length ? DOT : subject.charCodeAt(i);
    if (c === DOT) {
      if (i === tokenStart) return 'has an empty token';
      tokenStart = i + 1;
      continue;
    }
    if (c <= 0x20 || c >= 0x7f) return `has a character (code ${c}) that is a blank, a control character or not ASCII`;
    if (c !== STAR && c !== GREATER) continue;
    if (!mayBePattern) return `has the wildcard ${String.fromCharCode(c)}`;
    const isWholeToken = i === tokenStart && (i + 1 === length || subject.charCodeAt(i + 1) === DOT);
    if (!isWholeToken) return `has ${String.fromCharCode(c)} within a token`;
    if (c === GREATER && i + 1 < length) return 'has > before its end';
  }
  return null;
}

/** Null when the header can be sent; else what is wrong with it. */
export function headerProblem(name: string, value: string): string | null {
  if (name.length === 0 || name.length > MAX_HEADER_NAME_CHARS) return `a header name must have 1 to ${MAX_HEADER_NAME_CHARS} characters`;
  for (let i = 0; i < name.length; i++) {
    const c = name.charCodeAt(i);
    if (c <= 0x20 || c >= 0x7f || c === 0x3a) return `a header name has a character (code ${c}) that is not allowed there`;
  }
  if (value.length > MAX_HEADER_VALUE_CHARS) return `the header ${name} is longer than ${MAX_HEADER_VALUE_CHARS} characters`;
  for (let i = 0; i < value.length; i++) {
    const c = value.charCodeAt(i);
    if (c < 0x20 || (c >= 0x7f && c <= 0x9f)) return `the header ${name} has a control character (code ${c})`;
  }
  return null;
}
