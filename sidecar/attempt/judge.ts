/**
 * What an answer means, as a pure function: the code, whether it counts for or against the provider, and in which words.
 * Apart from the sending, so that the table of answers can be read and tested in one place.
 */
import { sameValue } from '../../proto/language/schema-compat.ts';
import type { AnswerCondition, SuccessRule } from '../../proto/language/types.ts';
import { Code } from '../../proto/wire/codes.ts';
import { Header } from '../../proto/wire/headers.ts';
import type { Reply } from '../call/reply.ts';

/** For the breaker: `ignored` says nothing about the provider. */
export type Outcome = 'success' | 'failure' | 'ignored';

export class Judgement {
  readonly code: Code;
  readonly outcome: Outcome;
  readonly definitely: boolean;
  readonly detail: string;
  constructor(code: Code, outcome: Outcome, definitely = false, detail = '') {
    this.code = code;
    this.outcome = outcome;
    this.definitely = definitely;
    this.detail = detail;
  }
}

const GOOD = new Judgement(Code.ok, 'success');
const DEFINITELY_GOOD = new Judgement(Code.ok, 'success', true);

/** Codes that say nothing about the provider's health: it refused before it began, or the request was at fault, or we are. */
const NO_FAULT: ReadonlySet<number> = new Set([
  Code.breaker_open,
  Code.provider_busy,
  Code.rate_limited,
  Code.blocked_by_operator,
  Code.forbidden,
  Code.unauthenticated,
  Code.invalid_request,
  Code.payload_too_large,
  Code.bad_name,
  Code.in_flight,
  Code.key_reused,
  Code.affinity_key_missing,
  Code.loop_detected,
  Code.no_provider,
  Code.no_matching_version,
  Code.cancelled,
  Code.internal,
]);

/** A reply that is no answer: the transport, or the hosting sidecar, says why. */
export function judgeFailure(reply: Reply): Judgement {
  return new Judgement(reply.code, NO_FAULT.has(reply.code) ? 'ignored' : 'failure', false, reply.detail);
}

/**
 * An answer with a head. `json` gives the parsed body, or undefined when it is not JSON; it is asked for only when a rule
 * of the contract needs it. `redirectsCount`: to a client that speaks HTTP itself a redirect is an answer like any other.
 */
export function judgeAnswer(reply: Reply, rule: SuccessRule | null, json: () => unknown, redirectsCount = false): Judgement {
  if (reply.headers[Header.definitelySuccess] === 'true') return DEFINITELY_GOOD;
  if (rule !== null) {
    for (const condition of rule.definitely) if (holds(condition, reply.status, json)) return DEFINITELY_GOOD;
    if (reply.status < 300)
      for (const condition of rule.unless)
        if (holds(condition, reply.status, json))
          return new Judgement(
            Code.bad_response,
            'failure',
            false,
            `the contract counts this answer as a failure (${wordsFor(condition)})`,
          );
  }
  const status = reply.status;
  if (status < 300 || status === 304 || (redirectsCount && status < 400)) return GOOD;
  if (status < 400) return new Judgement(Code.bad_response, 'failure', false, `a redirect (${status}) is not followed`);
  if (status === 429) return new Judgement(Code.rate_limited, 'ignored', false, `the provider limits its callers (429)${more(reply)}`);
  const words = `the provider answered ${status}${more(reply)}`;
  if (status === 408 || status === 425) return new Judgement(Code.provider_error, 'ignored', false, words);
  return new Judgement(Code.provider_error, status < 500 ? 'success' : 'failure', false, words);
}

/** What the adapter has to add: the protocol's own words for an error that is no HTTP one. */
function more(reply: Reply): string {
  return reply.detail === '' ? '' : `: ${reply.detail}`;
}

function holds(condition: AnswerCondition, status: number, json: () => unknown): boolean {
  if (condition.status !== null && condition.status !== status) return false;
  if (condition.status === null && status >= 300) return false;
  if (condition.empty === null && condition.equals === undefined && condition.below === null && condition.above === null) return true;
  const value = pick(json(), condition.pointer);
  if (condition.empty !== null && isEmpty(value) !== condition.empty) return false;
  if (condition.equals !== undefined && !sameValue(value, condition.equals)) return false;
  if (condition.below !== null && !(typeof value === 'number' && value < condition.below)) return false;
  return condition.above === null || (typeof value === 'number' && value > condition.above);
}

function pick(value: unknown, pointer: string | null): unknown {
  let place = value;
  for (const part of (pointer ?? '').split('/').slice(1)) {
    if (typeof place !== 'object' || place === null) return undefined;
    const key = part.replaceAll('~1', '/').replaceAll('~0', '~');
    place = Object.hasOwn(place, key) ? (place as Record<string, unknown>)[key] : undefined;
  }
  return place;
}

function isEmpty(value: unknown): boolean {
  if (value === null || value === undefined || value === '') return true;
  if (Array.isArray(value)) return value.length === 0;
  return typeof value === 'object' && Object.keys(value).length === 0;
}

function wordsFor(condition: AnswerCondition): string {
  const parts: string[] = [];
  if (condition.status !== null) parts.push(`status ${condition.status}`);
  if (condition.pointer !== null) parts.push(condition.pointer === '' ? 'the whole answer' : condition.pointer);
  if (condition.empty !== null) parts.push(condition.empty ? 'empty' : 'not empty');
  if (condition.equals !== undefined) parts.push(`equals ${JSON.stringify(condition.equals)}`);
  if (condition.below !== null) parts.push(`below ${condition.below}`);
  if (condition.above !== null) parts.push(`above ${condition.above}`);
  return parts.join(', ');
}

/** `Retry-After` in seconds or as a date, to milliseconds from now; 0 when absent or not understood. */
export function retryAfterMsOf(reply: Reply, wallMs: number): number {
  if (reply.retryAfterMs > 0) return reply.retryAfterMs;
  const value = reply.headers['retry-after'];
  if (typeof value !== 'string') return 0;
  if (/^\d{1,9}$/.test(value)) return Number(value) * 1_000;
  const at = Date.parse(value);
  return Number.isNaN(at) ? 0 : Math.max(0, at - wallMs);
}
