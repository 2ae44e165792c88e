/**
 * A message as its sender says it, whatever the way in: target, headers and bytes to a Submission. Everything that can be said of
 * a message has a header; a way in whose messages are JSON (`message-text.ts`) turns its fields into them, so that there is
 * one reader, one set of rules and one set of words. What the sidecar stamps cannot be said.
 */
import { MAX_DURATION_MS, parseDuration, quote } from '../../base/duration.ts';
import { agentIdProblem, isAgentSegment, parseTagSelector, tagKeyProblem } from '../../proto/language/names.ts';
import { parseDeadlineMs } from '../../proto/wire/deadline.ts';
import { LANES, type Lane, type Target } from '../../proto/wire/envelope.ts';
import { Header } from '../../proto/wire/headers.ts';
import type { HeaderView } from '../call/call.ts';
import type { Principal } from '../call/principal.ts';
import type { Submission } from '../send/door.ts';
import { isTaskId } from '../send/tasks.ts';

const NO_TAGS: Readonly<Record<string, string>> = Object.freeze({});
const LONGEST_KEY = 256;
const LONGEST_SEQUENCE = 128;
const LONGEST_TYPE = 63;
const MIN_EXPIRES_MS = 100;

/** @param capability null = a role or an agent is addressed. Gives the words of a refusal instead when something is wrong. */
export function submissionFrom(
  principal: Principal,
  capability: string | null,
  headers: HeaderView,
  payload: Buffer,
  contentType: string,
): Submission | string {
  const target = targetFrom(capability, headers);
  if (typeof target === 'string') return target;
  const key = keyFrom(headers);
  if (key === false)
    return `${Header.idempotencyKey} and ${Header.powerId} differ, or are no text of 1 to ${LONGEST_KEY} printable characters without blanks`;
  const messageType = one(headers, Header.messageType);
  if (messageType !== null && !isWord(messageType))
    return `${Header.messageType} must be a word of a-z, 0-9 and _ such as task_request, not ${quote(messageType)}`;
  const priority = one(headers, Header.priority);
  if (priority !== null && !isLane(priority)) return `${Header.priority} must be high, normal or low, not ${quote(priority)}`;
  const tags = tagsFrom(headers);
  if (typeof tags === 'string') return tags;
  const sequenceId = one(headers, Header.sequenceId);
  if (sequenceId !== null && !isPrintable(sequenceId, LONGEST_SEQUENCE))
    return `${Header.sequenceId} must be 1 to ${LONGEST_SEQUENCE} printable characters without blanks`;
  const retryable = retryableFrom(headers);
  if (retryable === null) return `${Header.retryable} must be true or false`;
  const expires = one(headers, Header.expires);
  const expiresMs = expires === null ? null : parseDuration(expires);
  if (typeof expiresMs === 'string') return `${Header.expires}: ${expiresMs}`;
  if (expiresMs !== null && expiresMs < MIN_EXPIRES_MS) return `${Header.expires} must be at least ${MIN_EXPIRES_MS}ms`;
  const deadlineMs = parseDeadlineMs(Header.deadlineTotalMs, headers[Header.deadlineTotalMs], MAX_DURATION_MS);
  if (typeof deadlineMs === 'string') return deadlineMs;
  if (deadlineMs === 0) return `${Header.deadlineTotalMs} must be whole milliseconds above 0`;
  // What is left of a call is no message's affair, and agents pass it on. One that is none was meant for something.
  const leftMs = parseDeadlineMs(Header.deadlineMs, headers[Header.deadlineMs], Number.MAX_SAFE_INTEGER);
  if (typeof leftMs === 'string') return leftMs;
  const replyTo = one(headers, Header.replyTo) ?? 'inbox';
  if (replyTo !== 'inbox' && replyTo !== 'none') return `${Header.replyTo} must be inbox or none, not ${quote(replyTo)}`;
  const inReplyTo = one(headers, Header.inReplyTo);
  if (inReplyTo !== null && !isTaskId(inReplyTo)) return `${Header.inReplyTo} must be the id of a task, not ${quote(inReplyTo)}`;
  const bestEffort = one(headers, Header.bestEffort);
  if (bestEffort !== null && bestEffort !== '1' && bestEffort !== '0')
    return `${Header.bestEffort} must be 1 or 0, not ${quote(bestEffort)}`;
  return {
    principal,
    target,
    messageType,
    tags,
    sequenceId,
    priority,
    retryable,
    key,
    expiresMs,
    deadlineMs,
    replyTo,
    inReplyTo,
    payload,
    contentType,
    headers,
    bestEffort: bestEffort === '1',
  };
}

function targetFrom(capability: string | null, headers: HeaderView): Target | string {
  const role = one(headers, Header.role);
  const agent = one(headers, Header.agent);
  if (capability === null && role === null && agent === null)
    return 'nobody is addressed: name a capability, a role (target_role) or an agent (target_agent)';
  // A tag of a provider may stand for a role, so a role is written as a tag may be.
  if (role !== null && !isAgentSegment(role) && tagKeyProblem(role) !== null)
    return `${quote(role)} is no role: it is written like the second part of an agent id, or like the key of a tag`;
  const problem = agent === null ? null : agentIdProblem(agent);
  return problem ?? { capability, role, agent };
}

/** null = none was given; false = two that differ, or one that is none. */
function keyFrom(headers: HeaderView): string | null | false {
  const power = headers[Header.powerId];
  const idempotency = headers[Header.idempotencyKey];
  if (power === undefined && idempotency === undefined) return null;
  const key = power ?? idempotency;
  if (typeof key !== 'string' || !isPrintable(key, LONGEST_KEY)) return false;
  return idempotency === undefined || idempotency === key ? key : false;
}

function tagsFrom(headers: HeaderView): Readonly<Record<string, string>> | string {
  const text = headers[Header.tags];
  if (text === undefined || text === '') return NO_TAGS;
  const selector = parseTagSelector(String(text));
  if ('problem' in selector) return selector.problem;
  const tags: Record<string, string> = {};
  for (const [key, value] of selector.pairs) tags[key] = value;
  return tags;
}

/** null = neither yes nor no. `Reach-Retry: none` is the word that calls have for it. */
function retryableFrom(headers: HeaderView): boolean | null {
  const said = headers[Header.retryable];
  if (said === undefined) return headers[Header.retry] !== 'none';
  return said === 'true' || said === '1' ? true : said === 'false' || said === '0' ? false : null;
}

/** One that was sent twice counts as text that fits nowhere. */
function one(headers: HeaderView, name: string): string | null {
  const value = headers[name];
  return value === undefined ? null : typeof value === 'string' ? value : value.join(', ');
}

function isLane(text: string): text is Lane {
  return (LANES as readonly string[]).includes(text);
}

function isWord(text: string): boolean {
  if (text.length > LONGEST_TYPE) return false;
  for (let i = 0; i < text.length; i++) {
    const c = text.charCodeAt(i);
    const isLetter = c >= 0x61 && c <= 0x7a;
    if (!isLetter && (i === 0 || !(c === 0x5f || (c >= 0x30 && c <= 0x39)))) return false;
  }
  return text !== '';
}

function isPrintable(text: string, most: number): boolean {
  if (text === '' || text.length > most) return false;
  for (let i = 0; i < text.length; i++) {
    const c = text.charCodeAt(i);
    if (c < 0x21 || c > 0x7e) return false;
  }
  return true;
}
