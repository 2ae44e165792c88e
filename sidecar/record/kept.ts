/** What may be kept of a request and an answer: by the redaction rules alone, and of our own headers what decides something. */
import { hasPlainNumbers, withDoubles } from '../../base/json-exact.ts';
import { NOT_SHOWN, redactedBody, redactedHeaders, redactedPath, redactedUrl, type RedactionRules, scrubbed } from '../../base/redact.ts';
import { isCapabilityName } from '../../proto/language/names.ts';
import { Header } from '../../proto/wire/headers.ts';
import type { HeaderView } from '../call/call.ts';
import type { Arg, Verdict } from '../call/verdict.ts';
import { wordsOf } from '../call/verdict.ts';
import type { RecordedBody, VerdictRecord } from './shapes.ts';

/** What the stages read of a request, none of it a value of the payload's kind. Keys of conversations and work are not among them. */
const ASKED: readonly string[] = [
  Header.deadlineMs,
  Header.deadlineTotalMs,
  Header.budget,
  Header.step,
  Header.tags,
  Header.pin,
  Header.execution,
  Header.retry,
  Header.path,
];
const ANSWERED: readonly string[] = [Header.retry, Header.definitelySuccess, 'retry-after', 'content-type'];
/** Numbers, names, versions and lists of them. What looks otherwise is none of what these headers are for. */
const PLAIN = /^[A-Za-z0-9 ._=,:;>*^~/+<|-]{0,1024}$/;

/** Null = one of them holds what it should not, and is not kept. */
export function ownHeaders(headers: HeaderView, of: 'request' | 'answer'): Record<string, string> | null {
  const own: Record<string, string> = {};
  for (const name of of === 'request' ? ASKED : ANSWERED) {
    const value = headers[name];
    if (value === undefined) continue;
    if (typeof value !== 'string' || !PLAIN.test(value)) return null;
    own[name] = value;
  }
  return own;
}

/** A capability with or without a range, as it was asked for; null = it is something else, and is not kept. */
export function askedName(asked: string, isKnown: boolean): string | null {
  if (asked.length > 256 || !/^[A-Za-z0-9_.@^~<>=* |-]*$/.test(asked)) return null;
  // What nobody has put into a table may be anything that got into the wrong place.
  return isKnown || isCapabilityName(asked.split('@', 1)[0] as string) ? asked : null;
}

export function keptHeaders(headers: HeaderView, rules: RedactionRules): Record<string, string> {
  return redactedHeaders(headers, rules.headers);
}

/** @param target path and query of a request */
export function keptTarget(target: string, rules: RedactionRules): string {
  const kept = redactedUrl(target, rules.query);
  const question = kept.indexOf('?');
  const path = redactedPath(question < 0 ? kept : kept.slice(0, question), rules.paths);
  return question < 0 ? path : path + kept.slice(question);
}

/** @param most above so many bytes only the size is kept */
export function keptBody(body: Buffer, contentType: string, rules: RedactionRules, most: number): RecordedBody {
  const bytes = body.length;
  const type = (contentType.split(';', 1)[0] as string).trim().toLowerCase().slice(0, 128);
  if (bytes === 0) return { bytes, type, whole: true };
  if (bytes > most) return { bytes, type, whole: false };
  if (rules.bodies.has(type)) return { bytes, type, base64: body.toString('base64'), whole: true };
  const kept = redactedBody(body, contentType, rules) as { readonly json?: unknown };
  if (kept.json === undefined) return { bytes, type, whole: false };
  // Mostly there is nothing to replace, and making it anew costs more than looking.
  if (hasPlainNumbers(body)) return { bytes, type, json: kept.json, whole: !isHidden(kept.json) };
  const numbers: Record<string, string> = {};
  const json = withDoubles(kept.json, '', numbers);
  const whole = !isHidden(json);
  return Object.keys(numbers).length === 0 ? { bytes, type, json, whole } : { bytes, type, json, numbers, whole };
}

/** Something was left out of it. A value that reads like the sign for that counts as left out. */
export function isHidden(value: unknown): boolean {
  if (value === NOT_SHOWN) return true;
  if (typeof value !== 'object' || value === null) return false;
  for (const part of Object.values(value)) if (isHidden(part)) return true;
  return false;
}

/** Words of a refusal may quote what came from outside; those of a verdict that lets pass are our own. */
export function keptArg(arg: Arg, passes: boolean): Arg {
  if (passes || arg === null || typeof arg === 'number') return arg;
  return typeof arg === 'string' ? scrubbed(arg) : arg.map(scrubbed);
}

/** Of a name that is not kept, its refusal says no more than that. */
function isAboutName({ reason }: Verdict, isNameKept: boolean): boolean {
  return !isNameKept && reason.stage === 'name';
}

export function keptVerdict({ reason, a, b, c }: Verdict): VerdictRecord {
  const args = [a, b, c].map((arg) => keptArg(arg, reason.passes));
  const [first = null, second = null, third = null] = args;
  const { stage, name, words, passes, code } = reason;
  return { stage, reason: name, words, passes, code, args: [first, second, third] };
}

export function keptWords(verdict: Verdict, isNameKept: boolean): string {
  const { reason, a, b, c } = verdict;
  if (isAboutName(verdict, isNameKept)) return NOT_SHOWN;
  if (reason.passes) return wordsOf(reason, a, b, c);
  return wordsOf(reason, keptArg(a, false), keptArg(b, false), keptArg(c, false));
}
