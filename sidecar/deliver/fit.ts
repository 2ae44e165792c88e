/** Whether an envelope is one that can be dealt with: what comes out of a queue may have been written by anybody who may write there. */
import { isAgentId } from '../../proto/language/names.ts';
import { type Envelope, LANES } from '../../proto/wire/envelope.ts';
import { MAX_TOKEN_CHARS } from '../../proto/wire/token.ts';

const MOST_CHARS = 256;

/** Null when it is; else why not, for people. Every field that delivery reads is looked at, with no more than comparisons. */
export function envelopeProblem(envelope: Envelope, capability: string): string | null {
  if (envelope.capability !== capability) return 'it is for another capability than its pool';
  if (!isText(envelope.power_id) || !isText(envelope.message_type) || !isText(envelope.content_type) || !isText(envelope.traceparent))
    return 'its key, type, content type or trace is missing';
  if (!isToken(envelope.task_id) || !isToken(envelope.home)) return 'its task or home cannot be named';
  if (!isAgentId(envelope.source)) return 'its source is no agent';
  if (envelope.reply_to !== null && !(isText(envelope.reply_to) && isAgentId(envelope.reply_to))) return 'its reply_to is no agent';
  if (!isPositive(envelope.expires_ms) || !isPositive(envelope.timeout_ms)) return 'its times cannot be read';
  if (envelope.deadline_ms !== null && !isPositive(envelope.deadline_ms)) return 'its deadline cannot be read';
  if (envelope.home_statement !== undefined && !(isText(envelope.home_statement) && envelope.home_statement.length <= MAX_TOKEN_CHARS))
    return 'the statement about its home cannot be read';
  if (envelope.sequence_id !== null && !isText(envelope.sequence_id)) return 'its sequence cannot be read';
  if (typeof envelope.headers !== 'object' || envelope.headers === null || !Array.isArray(envelope.path))
    return 'its headers or path cannot be read';
  // What the agent is told in headers.
  if (!isPlain(envelope.message_type) || (envelope.in_reply_to !== null && !isToken(envelope.in_reply_to)) || !isTags(envelope.tags))
    return 'its type, tags or in_reply_to cannot be told';
  if (!(LANES as readonly string[]).includes(envelope.lane)) return 'its lane is none';
  return typeof envelope.keyed === 'boolean' && typeof envelope.retryable === 'boolean' ? null : 'keyed or retryable is missing';
}

function isText(value: unknown): value is string {
  return typeof value === 'string';
}

/** Printable, without blanks: it can stand in a header. */
function isPlain(value: string): boolean {
  for (let i = 0; i < value.length; i++) {
    const c = value.charCodeAt(i);
    if (c < 0x21 || c > 0x7e) return false;
  }
  return value.length <= MOST_CHARS;
}

function isTags(tags: unknown): boolean {
  if (typeof tags !== 'object' || tags === null) return false;
  for (const [name, value] of Object.entries(tags)) if (typeof value !== 'string' || !isPlain(name) || !isPlain(value)) return false;
  return true;
}

/** What can stand as one token of a subject: its form is looked at again where the subject is made. */
function isToken(value: unknown): boolean {
  if (typeof value !== 'string' || value.length === 0 || value.length > 64) return false;
  for (let i = 0; i < value.length; i++) {
    const c = value.charCodeAt(i);
    const isWord = (c >= 0x30 && c <= 0x39) || (c >= 0x41 && c <= 0x5a) || (c >= 0x61 && c <= 0x7a) || c === 0x5f || c === 0x2d;
    if (!isWord) return false;
  }
  return true;
}

function isPositive(value: unknown): boolean {
  return typeof value === 'number' && value > 0 && value < Number.MAX_SAFE_INTEGER;
}
