/**
 * A message as JSON (`POST /v1/messages`, `reach.cast`): its fields to what `submissionFrom` reads. The payload's bytes are taken
 * out as they were written. A field that is not known is refused: a priority that was misspelt must not be lost in silence.
 */
import { formatDuration, quote } from '../../base/duration.ts';
import { membersOf, startOf, stringAt } from '../../base/json-members.ts';
import { repeatedName } from '../../base/json-repeats.ts';
import { nearest } from '../../base/suggest.ts';
import { Header } from '../../proto/wire/headers.ts';
import type { HeaderView } from '../call/call.ts';
import type { Principal } from '../call/principal.ts';
import type { Submission } from '../send/door.ts';
import { readContent, readHeaders } from './channel/message.ts';
import { submissionFrom } from './submission.ts';

/** Text fields and their headers. */
const TEXTS: ReadonlyMap<string, string> = new Map([
  ['power_id', Header.powerId],
  ['message_type', Header.messageType],
  ['sequence_id', Header.sequenceId],
  ['priority', Header.priority],
  ['reply_to', Header.replyTo],
  ['in_reply_to', Header.inReplyTo],
  ['target_role', Header.role],
  ['target_agent', Header.agent],
  ['execution', Header.execution],
  ['affinity', Header.affinity],
]);
const FLAGS: ReadonlyMap<string, string> = new Map([
  ['retryable', Header.retryable],
  ['best_effort', Header.bestEffort],
]);
const OTHERS: readonly string[] = [
  'target',
  'capability',
  'tags',
  'custom_tags',
  'deadline',
  'expires',
  'payload',
  'payload_base64',
  'content_type',
  'headers',
];
const KNOWN: readonly string[] = [...TEXTS.keys(), ...FLAGS.keys(), ...OTHERS];
/** Maps of which each member decides something. */
const DECIDING: ReadonlySet<string> = new Set(['target', 'tags', 'custom_tags', 'headers']);
/** Ours to say, or the sidecar's alone. */
const STAMPED: ReadonlySet<string> = new Set(['task_id', 'source', 'home', 'pool', 'lane', 'rule', 'version', 'accepted_at_ms', 'keyed']);

const OPEN_MAP = 0x7b;
const QUOTE = 0x22;

/** @param text a well-formed JSON text. @param above headers of the request; the message's own stand above them. Gives words when something is wrong. */
export function messageFrom(principal: Principal, text: Buffer, above: HeaderView): Submission | string {
  const open = startOf(text);
  if (text[open] !== OPEN_MAP) return 'a message is an object such as {"target": {"capability": "crm.order.query"}, "payload": {}}';
  const read = new Fields(above);
  for (const { name, from, to } of membersOf(text, open)) {
    const problem = read.take(name, text.subarray(from, to));
    if (problem !== null) return problem;
  }
  const content = readContent(read.payload, read.base64, read.type);
  if (typeof content === 'string') return content;
  if (content.contentType !== '') read.headers['content-type'] = content.contentType;
  return submissionFrom(principal, read.capability, read.headers, content.body, content.contentType);
}

type Headers = Record<string, string | string[] | undefined>;

class Fields {
  readonly headers: Headers;
  capability: string | null = null;
  payload: Buffer | null = null;
  base64: Buffer | null = null;
  type: Buffer | null = null;
  readonly #seen = new Set<string>();

  constructor(above: HeaderView) {
    this.headers = { ...above };
    // About the text around the message.
    delete this.headers['content-type'];
  }

  /** Words when something is wrong with it. */
  take(name: string, value: Buffer): string | null {
    if (this.#seen.has(name)) return `${quote(name)} stands in the message twice`;
    this.#seen.add(name);
    if (DECIDING.has(name)) {
      const twice = repeatedName(value.toString('utf8'));
      if (twice !== null) return `${quote(twice)} stands in ${name} twice`;
    }
    // A payload of null is one.
    if (name === 'payload') this.payload = value;
    else if (isNull(value)) return KNOWN.includes(name) ? null : field(name, value, this.headers);
    else if (name === 'payload_base64') this.base64 = value;
    else if (name === 'content_type') this.type = value;
    else if (name === 'capability') return this.#named(value[0] === QUOTE ? stringAt(value, 0, value.length) : null);
    else if (name === 'target') return this.#target(value);
    else if (name === 'headers') return this.#more(value);
    else return field(name, value, this.headers);
    return null;
  }

  #named(capability: string | null): string | null {
    if (capability === null) return 'capability must be a text such as "crm.order.query@^2.0"';
    if (this.capability !== null) return 'the capability is named twice';
    this.capability = capability;
    return null;
  }

  #target(value: Buffer): string | null {
    if (value[0] === QUOTE) return this.#named(stringAt(value, 0, value.length));
    if (value[0] !== OPEN_MAP) return 'target must be a capability, or an object with capability, role or agent';
    for (const { name, from, to } of membersOf(value, 0)) {
      const inner = value.subarray(from, to);
      if (isNull(inner)) continue;
      if (inner[0] !== QUOTE) return `target.${name.slice(0, 40)} must be a text`;
      const text = stringAt(inner, 0, inner.length);
      if (name === 'role') this.headers[Header.role] = text;
      else if (name === 'agent') this.headers[Header.agent] = text;
      else if (name !== 'capability') return `target has capability, role and agent, not ${quote(name)}`;
      else {
        const problem = this.#named(text);
        if (problem !== null) return problem;
      }
    }
    return null;
  }

  /** Further headers; what has a field of its own, or came with the request, stands above them. */
  #more(value: Buffer): string | null {
    const found = readHeaders(value);
    if (typeof found === 'string') return found;
    for (const name in found) this.headers[name] ??= found[name];
    return null;
  }
}

function field(name: string, value: Buffer, headers: Headers): string | null {
  const text = TEXTS.get(name);
  if (text !== undefined) {
    if (value[0] !== QUOTE) return `${name} must be a text`;
    headers[text] = stringAt(value, 0, value.length);
    return null;
  }
  const flag = FLAGS.get(name);
  if (flag !== undefined) {
    const said = value.toString('latin1');
    if (said !== 'true' && said !== 'false') return `${name} must be true or false`;
    headers[flag] = said === 'true' ? '1' : '0';
    return null;
  }
  if (name === 'tags' || name === 'custom_tags') return readTags(name, value, headers);
  if (name === 'expires') {
    // With its unit, or a number of milliseconds.
    const said = value[0] === QUOTE ? stringAt(value, 0, value.length) : null;
    const ms = Number(value.toString('latin1'));
    if (said === null && !(Number.isSafeInteger(ms) && ms >= 0))
      return 'expires must be a time with its unit such as "10m", or whole milliseconds';
    headers[Header.expires] = said ?? formatDuration(ms);
    return null;
  }
  if (name === 'deadline') {
    if (value[0] === QUOTE) return 'deadline must be whole milliseconds';
    const said = value.toString('latin1');
    const ms = Number(said);
    // 1e3 is the number 1000 in JSON, and none in a header.
    headers[Header.deadlineTotalMs] = Number.isSafeInteger(ms) && ms >= 0 ? String(ms) : said;
    return null;
  }
  if (STAMPED.has(name)) return `${name} is stamped by the sidecar: a message cannot say it`;
  const near = nearest(name, KNOWN);
  return `a message has no field ${quote(name)}${near === null ? `; it has ${KNOWN.join(', ')}` : `; did you mean ${near}?`}`;
}

function readTags(name: string, value: Buffer, headers: Headers): string | null {
  if (value[0] !== OPEN_MAP) return `${name} must be an object of names and texts`;
  const pairs: string[] = [];
  for (const tag of membersOf(value, 0)) {
    const inner = value.subarray(tag.from, tag.to);
    if (inner[0] !== QUOTE) return `${name}.${tag.name.slice(0, 40)} must be a text`;
    const text = stringAt(inner, 0, inner.length);
    if (tag.name.includes(',') || text.includes(',')) return `the tag ${quote(tag.name)} has a comma in it`;
    pairs.push(`${tag.name}=${text}`);
  }
  if (pairs.length > 0) headers[Header.tags] = pairs.join(',');
  return null;
}

function isNull(value: Buffer): boolean {
  return value.length === 4 && value[0] === 0x6e;
}
