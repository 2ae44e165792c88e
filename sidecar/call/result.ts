/**
 * The Result: what every call comes to, whatever its way in. Decides the words and marks a caller sees (message, detail,
 * retryable, ambiguous) and writes the JSON of a success (the envelope) and of a failure (a problem document, RFC 9457,
 * that carries the same fields). The provider's bytes are spliced in as they came. How it travels (status line, headers,
 * frames) is the way in's affair.
 */
import { Code, type CodeEntry, codeEntry } from '../../proto/wire/codes.ts';
import { dataOf } from './answer-body.ts';
import { type Attempt, isInDoubt } from './attempt-record.ts';
import type { RateView } from './call-quota.ts';
import type { Call } from './call.ts';
import { isSandbox } from './sandbox.ts';
import { wordsOf } from './verdict.ts';

/** Text from elsewhere (error words, names) is cut to this. */
export const MAX_DETAIL_CHARS = 2_048;

const NULL_BYTES = Buffer.from('null');

/** A finished call with everything that is to be told about it; made by `resultOf`, once. */
export class Result {
  readonly call: Call;
  readonly entry: CodeEntry;
  /** For people; '' on success. */
  readonly detail: string;
  /** The provider may have acted although no answer came. */
  readonly ambiguous: boolean;
  readonly retryable: boolean;
  /** Nobody on the way back should repeat it: the agent said so, or we refused it and would refuse it again. */
  readonly noRetry: boolean;
  /** 0 = not known. */
  readonly retryAfterMs: number;
  /** JSON bytes. */
  readonly data: Buffer;
  /** The provider's status, or that of the static answer; 0 when there is none. */
  readonly status: number;
  readonly provider: string | null;
  readonly version: string | null;
  readonly elapsedMs: number;
  /** No agent was asked, only a mock of one, or the call was made in the sandbox. */
  readonly sandbox: boolean;

  constructor(call: Call, entry: CodeEntry, detail: string, ambiguous: boolean, retryAfterMs: number, data: Buffer) {
    this.call = call;
    this.entry = entry;
    this.detail = detail;
    this.ambiguous = ambiguous;
    this.retryable = entry.retryable && !call.attempts.some(isInDoubt);
    this.noRetry = entry.code !== 0 && (call.noRetry || isRefusedHere(call));
    this.retryAfterMs = retryAfterMs;
    this.data = data;
    this.status = call.status;
    const served = call.staticBody === null ? call.chosen : null;
    const { replay } = call;
    this.provider = replay !== null ? replay.provider : served === null ? null : served.provider.agentId;
    this.version = replay !== null ? replay.version : served === null ? null : served.version.text;
    this.elapsedMs = call.clock.now() - call.startedAt;
    this.sandbox = isSandbox(call);
  }
}

/** What a finished call came to. `withData` false leaves the body out (raw mode and streams send it themselves). */
export function resultOf(call: Call, withData: boolean): Result {
  let data: Buffer = NULL_BYTES;
  let code = call.code;
  let problem = '';
  if (withData && (code === 0 || code === Code.provider_error)) {
    const found = call.staticBody ?? answerData(call, code);
    if (typeof found === 'string') {
      // An agent's own error may be any text; a success that cannot be passed on is none.
      if (code === 0) {
        code = Code.bad_response;
        problem = found;
      }
    } else if (found !== null) data = found;
  }
  if (code === 0) return new Result(call, codeEntry(0), '', false, 0, data);
  return new Result(call, codeEntry(code), problem === '' ? detailOf(call) : problem, isAmbiguous(call), call.retryAfterMs, data);
}

function answerData(call: Call, code: number): Buffer | string | null {
  const reply = call.reply;
  if (reply === null || reply.stream !== null || reply.body.length === 0) return null;
  const data = dataOf(reply.headers, reply.body, call.outputChecked);
  if (code === 0 || typeof data !== 'string') return data;
  return dataOf(TEXT, reply.body, false);
}

const TEXT = Object.freeze({ 'content-type': 'text/plain' });

/** Why it failed, in the words of whoever refused it; '' when nobody said anything. */
export function detailOf(call: Call): string {
  const refusal = call.refusal;
  if (refusal !== null && refusal.reason.code === call.code) return cut(wordsOf(refusal.reason, refusal.a, refusal.b, refusal.c));
  if (call.reply !== null && call.reply.detail !== '') return cut(call.reply.detail);
  const last = call.attempts[call.attempts.length - 1];
  if (last !== undefined && last.detail !== '') return cut(last.detail);
  return refusal === null ? '' : cut(wordsOf(refusal.reason, refusal.a, refusal.b, refusal.c));
}

/** True when some attempt got to a provider and no whole answer came back from it. */
export function isAmbiguous(call: Call): boolean {
  for (const attempt of call.attempts) if (attempt.started === 'started') return true;
  return false;
}

/** Refusals that protect somebody: an attempt that the hosting sidecar turned away with one of them is no failure either. */
const PROTECTIVE: ReadonlySet<number> = new Set([
  Code.blocked_by_operator,
  Code.breaker_open,
  Code.caller_busy,
  Code.provider_busy,
  Code.rate_limited,
  Code.retry_budget_spent,
]);

/**
 * A gate said no, here or at the provider's sidecar, and no agent failed. Whoever repeats that multiplies an overload by
 * the number of hops.
 */
function isRefusedHere(call: Call): boolean {
  if (call.refusal !== null && call.refusal.reason.code === call.code && call.refusal.reason.stage !== 'attempt') return true;
  const last = call.attempts[call.attempts.length - 1];
  return last !== undefined && last.started === 'not_started' && PROTECTIVE.has(call.code);
}

export function cut(text: string, maxChars = MAX_DETAIL_CHARS): string {
  return text.length <= maxChars ? text : `${text.slice(0, maxChars - 1)}…`;
}

/** HTTP status of a failure: that of its code, but for an agent's own error, which keeps its own. */
export function failureStatus(result: Result): number {
  if (result.entry.code === Code.provider_error && result.status >= 400 && result.status <= 599) return result.status;
  return result.entry.http;
}

/**
 * JSON in UTF-8, ready to be written: bytes, or the same as a string with one character a byte (to be written as
 * `latin1`), which costs less for what is small. `length` is the number of bytes either way.
 */
export type JsonBytes = string | Buffer;

/** The enveloped Result of a success. */
export function envelope(result: Result, withDecision: boolean): JsonBytes {
  return splice(`{"code":0,"status":${result.status},"data":`, result.data, `,"error":null${commonFields(result, withDecision)}`);
}

/** The problem document of a failure, with every field of the Result in it. */
export function problem(result: Result, withDecision: boolean): JsonBytes {
  const { entry } = result;
  const title = JSON.stringify(entry.meaning);
  const detail = JSON.stringify(result.detail);
  const head =
    `{"type":"urn:agent-reach:error:${entry.code}","title":${title},"status":${failureStatus(result)},"detail":${detail},` +
    `"instance":"urn:agent-reach:trace:${result.call.traceId}","code":${entry.code},"name":"${entry.name}",` +
    `"retryable":${result.retryable},"ambiguous":${result.ambiguous},` +
    (result.retryAfterMs > 0 ? `"retry_after_ms":${Math.ceil(result.retryAfterMs)},` : '') +
    '"data":';
  const tail =
    `,"error":{"code":${entry.code},"name":"${entry.name}","message":${title},"retryable":${result.retryable},` +
    `"ambiguous":${result.ambiguous},"detail":${detail}}${commonFields(result, withDecision)}`;
  return splice(head, result.data, tail);
}

/** The end of a streamed Result (`event: end` and `event: error`): all but the data, in one line. */
export function streamEnd(result: Result): string {
  const { entry } = result;
  const error =
    entry.code === 0
      ? 'null'
      : `{"code":${entry.code},"name":"${entry.name}","message":${JSON.stringify(entry.meaning)},"retryable":${result.retryable},` +
        `"ambiguous":${result.ambiguous},"detail":${JSON.stringify(result.detail)}}`;
  return `{"code":${entry.code},"status":${result.status},"error":${error}${commonFields(result, false)}`;
}

/** A problem document for what never became a call: a refused request line, an unknown path. @param retryAfterMs 0 = not known */
export function plainProblem(code: Code, status: number, detail: string, retryAfterMs = 0, isAmbiguous = false): string {
  const entry = codeEntry(code);
  const title = JSON.stringify(entry.meaning);
  const words = JSON.stringify(cut(detail));
  const marks = `"retryable":${entry.retryable && !isAmbiguous},"ambiguous":${isAmbiguous}`;
  return (
    `{"type":"urn:agent-reach:error:${entry.code}","title":${title},"status":${status},"detail":${words},"code":${entry.code},"name":"${entry.name}",` +
    `${marks},${retryAfterMs > 0 ? `"retry_after_ms":${Math.ceil(retryAfterMs)},` : ''}` +
    `"error":{"code":${entry.code},"name":"${entry.name}","message":${title},${marks},"detail":${words}}}`
  );
}

function commonFields(result: Result, withDecision: boolean): string {
  const { call } = result;
  let text =
    `,"elapsed_ms":${rounded(result.elapsedMs)},"definitely_success":${call.definitelySuccess},"degraded":${call.degraded},` +
    `"provider":${quote(result.provider)},"version":${quote(result.version)},"attempts":[`;
  const withCapability = call.fallbackFrom !== null;
  for (let i = 0; i < call.attempts.length; i++) text += (i === 0 ? '' : ',') + attemptJson(call.attempts[i] as Attempt, withCapability);
  text += `],"trace_id":"${call.traceId}"`;
  if (call.replay !== null) text += ',"replay":true';
  if (result.sandbox) text += ',"sandbox":true';
  if (call.quota !== null) text += rateJson(call.quota.view(call.clock.now()));
  const cause = call.cause ?? (result.entry.code === 0 ? null : causeOf(call));
  if (cause !== null) text += `,"cause":${JSON.stringify(cut(cause))}`;
  if (withDecision)
    text += `,"capability":${quote(call.capability === null ? null : call.capability.name)},"decision":${JSON.stringify(call.trace.lines())}`;
  return `${text}}`;
}

/** What the caller may still ask for by its quota. */
function rateJson(rate: RateView | null): string {
  if (rate === null) return '';
  return `,"rate_limit":{"limit":${rate.limit},"remaining":${rate.remaining},"reset_ms":${Math.ceil(rate.resetMs)}}`;
}

/** What went wrong before the time was over, or retries were stopped: without it the end would hide the reason. */
function causeOf(call: Call): string | null {
  if (call.code !== Code.deadline_exceeded && call.code !== Code.deadline_too_short && call.code !== Code.retry_budget_spent) return null;
  for (let i = call.attempts.length - 1; i >= 0; i--) {
    const { code, detail, candidate } = call.attempts[i] as Attempt;
    if (code !== call.code && code !== 0) return `${code} ${candidate.provider.agentId}: ${detail}`;
  }
  return null;
}

function attemptJson(attempt: Attempt, withCapability: boolean): string {
  const { candidate } = attempt;
  let text = `{"provider":${quote(candidate.provider.agentId)},`;
  if (withCapability) text += `"capability":${quote(candidate.version.capability.name)},`;
  text +=
    `"version":${quote(candidate.version.text)},"at_ms":${rounded(attempt.atMs)},"elapsed_ms":${rounded(attempt.elapsedMs)},` +
    `"code":${attempt.code},"status":${attempt.status},"started":"${attempt.started}"`;
  if (attempt.code !== 0) text += `,"name":"${codeEntry(attempt.code).name}","detail":${JSON.stringify(cut(attempt.detail))}`;
  return `${text}}`;
}

function rounded(ms: number): number {
  return Math.round(ms * 1000) / 1000;
}

/** A JSON string; names and versions from the table need no escaping, so the check is one short loop. */
function quote(text: string | null): string {
  if (text === null) return 'null';
  for (let i = 0; i < text.length; i++) {
    const c = text.charCodeAt(i);
    if (c < 0x20 || c > 0x7e || c === 0x22 || c === 0x5c) return JSON.stringify(text);
  }
  return `"${text}"`;
}

/** Above it the bytes are kept as bytes: a string of them would only be copied once more. */
const MAX_STRING_BYTES = 65_536;

/** Text, bytes, text. */
function splice(head: string, bytes: Buffer, tail: string): JsonBytes {
  if (bytes.length <= MAX_STRING_BYTES) return asBytes(head) + bytes.toString('latin1') + asBytes(tail);
  return Buffer.concat([Buffer.from(head, 'utf8'), bytes, Buffer.from(tail, 'utf8')]);
}

/** A Result's JSON inside other text: a message of another protocol. */
export function enclosed(head: string, json: JsonBytes, tail: string): JsonBytes {
  if (typeof json === 'string') return asBytes(head) + json + asBytes(tail);
  return Buffer.concat([Buffer.from(head, 'utf8'), json, Buffer.from(tail, 'utf8')]);
}

/** UTF-8 as one character a byte. Nearly always the text is ASCII and is that already. */
function asBytes(text: string): string {
  return Buffer.byteLength(text) === text.length ? text : Buffer.from(text, 'utf8').toString('latin1');
}
