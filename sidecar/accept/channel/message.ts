/**
 * The parts of a call and of an answer out of a message, as their author wrote them: payloads are passed on as bytes, never
 * built and written again. Everything that comes from the peer is doubted here, so that nothing behind this has to.
 */
import { repeatedName } from '../../../base/json-repeats.ts';
import { valuesOf } from '../../../base/json-values.ts';
import type { RpcId } from '../../../proto/wire/json-rpc.ts';
import type { HeaderView } from '../../call/call.ts';
import { NO_HEADERS } from '../../call/call.ts';
import { NO_BODY } from '../../call/reply.ts';
import { hasForbiddenCharacter, MAX_FORWARDED_BYTES, MAX_FORWARDED_HEADERS } from '../../transports/hygiene.ts';

export const JSON_TYPE = 'application/json';
export const BYTES_TYPE = 'application/octet-stream';

const MAX_TEXT_CHARS = 1_024;

const OBJECT = 0x7b;
const QUOTE = 0x22;

/** The number of one of our own requests; -1 when it cannot be one. */
export function ownId(id: RpcId): number {
  let number = 0;
  if (id.length > 15) return -1;
  for (let i = 0; i < id.length; i++) {
    const digit = id.charCodeAt(i) - 0x30;
    if (digit < 0 || digit > 9) return i === 0 ? -1 : wholeNumber(id);
    number = number * 10 + digit;
  }
  return number;
}

/** `7.0` and `7e0` are 7: languages with one kind of number write a number back so. */
function wholeNumber(id: RpcId): number {
  const number = Number(id);
  return Number.isSafeInteger(number) ? number : -1;
}

/** A JSON string's text; null when the value is something else. */
export function textIn(value: Buffer | null): string | null {
  if (value === null || value[0] !== QUOTE) return null;
  const inside = value.toString('utf8', 1, value.length - 1);
  return inside.includes('\\') ? (JSON.parse(value.toString('utf8')) as string) : inside;
}

/** A call as its caller says it. */
export interface Ask {
  readonly capability: string;
  readonly body: Buffer;
  readonly contentType: string;
  readonly headers: HeaderView;
}

const ASK = ['capability', 'payload', 'payload_base64', 'content_type', 'headers'] as const;

/** The params of a call; or what is wrong with them. */
export function readAsk(params: Buffer | null): Ask | string {
  const members = params === null ? null : valuesOf(params, ASK);
  if (members === null) return 'params must be an object with capability, payload and headers';
  const [capability, payload, base64, contentType, given] = members as [
    Buffer | null,
    Buffer | null,
    Buffer | null,
    Buffer | null,
    Buffer | null,
  ];
  const name = textIn(capability);
  if (name === null) return 'capability must be a text such as "crm.order.query@^2.0"';
  const content = readContent(payload, base64, contentType);
  if (typeof content === 'string') return content;
  const headers = given === null ? NO_HEADERS : readHeaders(given);
  if (typeof headers === 'string') return headers;
  return { capability: name, body: content.body, contentType: content.contentType, headers };
}

export interface Content {
  readonly body: Buffer;
  /** '' = there is no body. */
  readonly contentType: string;
}

/** A body as `payload` or `payload_base64`, with its type; or what is wrong with it. */
export function readContent(payload: Buffer | null, base64: Buffer | null, type: Buffer | null): Content | string {
  const said = type === null ? null : textIn(type);
  if (type !== null && (said === null || said.length > MAX_TEXT_CHARS || hasForbiddenCharacter(said)))
    return 'content_type must be a text such as "text/plain"';
  if (payload !== null) {
    if (base64 !== null) return 'give payload or payload_base64, not both';
    return { body: payload, contentType: said ?? JSON_TYPE };
  }
  if (base64 === null) return { body: NO_BODY, contentType: said ?? '' };
  const text = textIn(base64);
  const body = text === null ? null : bytesOf(text);
  return body === null ? 'payload_base64 must be bytes in base64' : { body, contentType: said ?? BYTES_TYPE };
}

/** Node leaves out what it does not know; a text that loses something by it was not base64. */
function bytesOf(text: string): Buffer | null {
  const bytes = Buffer.from(text, 'base64');
  const unpadded = text.endsWith('==') ? text.length - 2 : text.endsWith('=') ? text.length - 1 : text.length;
  return bytes.length === Math.floor((unpadded * 3) / 4) && unpadded % 4 !== 1 ? bytes : null;
}

/** Names and texts, as HTTP would carry them; names come out in lower case. */
export function readHeaders(value: Buffer): Record<string, string> | string {
  if (value[0] !== OBJECT) return 'headers must be an object of names and texts';
  const text = value.toString('utf8');
  const given = JSON.parse(text) as Record<string, unknown>;
  const twice = repeatedName(text);
  if (twice !== null) return `the header ${shown(twice)} stands here twice`;
  const headers = Object.create(null) as Record<string, string>;
  let count = 0;
  let chars = 0;
  for (const name in given) {
    const said = given[name];
    if (typeof said !== 'string' || hasForbiddenCharacter(said))
      return `the header ${shown(name)} must be a text without control characters`;
    if (!isHeaderName(name)) return `${shown(name)} is not the name of a header`;
    const lower = name.toLowerCase();
    if (lower in headers) return `the header ${shown(lower)} stands here twice`;
    headers[lower] = said;
    chars += name.length + said.length;
    count++;
  }
  // What may come is what could go on: the same figures as on the way out.
  if (count > MAX_FORWARDED_HEADERS || chars > MAX_FORWARDED_BYTES)
    return `headers are at most ${MAX_FORWARDED_HEADERS} with ${MAX_FORWARDED_BYTES} characters in all`;
  return headers;
}

function isHeaderName(name: string): boolean {
  if (name === '' || name.length > 128) return false;
  for (let i = 0; i < name.length; i++) if (!isTokenChar(name.charCodeAt(i))) return false;
  return true;
}

const SEPARATORS: ReadonlySet<number> = new Set(Buffer.from('"(),/:;<=>?@[\\]{}'));

function isTokenChar(c: number): boolean {
  return c > 0x20 && c < 0x7f && !SEPARATORS.has(c);
}

function shown(name: string): string {
  return JSON.stringify(name.slice(0, 64));
}

/** A JSON string; names and the like need no escaping, so the check is one short loop. */
export function quoted(text: string): string {
  for (let i = 0; i < text.length; i++) {
    const c = text.charCodeAt(i);
    if (c < 0x20 || c > 0x7e || c === 0x22 || c === 0x5c) return JSON.stringify(text);
  }
  return `"${text}"`;
}
