/**
 * Which headers cross the sidecar. Decides name by name, in both directions, and nothing else: what we add ourselves is
 * added after this, so that no caller can remove or replace it by naming it in `Connection` or by sending a copy.
 *
 * Dropped on the way out: what belongs to one connection (RFC 9110 section 7.6.1), what the client library sets itself
 * (host, framing), the caller's credentials to *us*, and every name that is ours. `accept-encoding` is dropped as well:
 * we ask for plain bytes, since an answer that is validated and enveloped would have to be re-coded otherwise.
 */
import { OWN_PREFIX } from '../../proto/wire/headers.ts';
import type { HeaderView } from '../call/call.ts';
import type { ReplyHeaders } from '../call/reply.ts';

const PROXY_PREFIX = 'proxy-';

/** One connection's business, in either direction. */
const HOP_BY_HOP: readonly string[] = ['connection', 'keep-alive', 'te', 'trailer', 'transfer-encoding', 'upgrade', 'http2-settings'];

const DROPPED_FROM_REQUEST: ReadonlySet<string> = new Set([
  ...HOP_BY_HOP,
  'host',
  'content-length',
  'content-type',
  'expect',
  'authorization',
  'cookie',
  'cookie2',
  'traceparent',
  'tracestate',
  'accept-encoding',
]);

const DROPPED_FROM_REPLY: ReadonlySet<string> = new Set([...HOP_BY_HOP, 'content-length']);

/** What one request may carry on from its caller: far above honest use, below what makes a provider's parser refuse. */
export const MAX_FORWARDED_HEADERS = 64;
export const MAX_FORWARDED_BYTES = 12_288;

/** The names a `Connection` header lists, lower case; null when it lists nothing that could matter. */
export function namedInConnection(value: string | string[] | undefined): ReadonlySet<string> | null {
  if (value === undefined || value === 'keep-alive' || value === 'close') return null;
  const names = new Set<string>();
  for (const token of (typeof value === 'string' ? value : value.join(',')).split(',')) {
    const name = token.trim().toLowerCase();
    if (name !== '') names.add(name);
  }
  return names;
}

/** True when a value holds a character that would end the header (or is not sendable at all). */
export function hasForbiddenCharacter(value: string): boolean {
  for (let i = 0; i < value.length; i++) {
    const c = value.charCodeAt(i);
    if ((c < 0x20 && c !== 0x09) || c === 0x7f || c > 0xff) return true;
  }
  return false;
}

/** Whether HTTP can have a header of that name, in either case. Other protocols than HTTP let their agents write any. */
export function isHeaderName(name: string): boolean {
  for (let i = 0; i < name.length; i++) if (TOKEN[name.charCodeAt(i)] !== 1) return false;
  return name !== '';
}

/** By character. */
const TOKEN = new Uint8Array(128);
for (const c of "!#$%&'*+-.^_`|~0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz") TOKEN[c.charCodeAt(0)] = 1;

/**
 * Appends what may pass of the caller's headers to `out` (flat name, value …). `own` are the names the sidecar adds
 * afterwards and `fixed` those the target already has: a caller's copy of either is dropped. Gives '' or the words of a
 * refusal.
 */
export function forwardRequestHeaders(
  incoming: HeaderView,
  own: readonly string[],
  fixed: ReadonlySet<string> | null,
  out: string[],
): string {
  const named = namedInConnection(incoming['connection']);
  const start = out.length;
  let bytes = 0;
  for (const name in incoming) {
    if (DROPPED_FROM_REQUEST.has(name) || name.startsWith(OWN_PREFIX) || name.startsWith(PROXY_PREFIX)) continue;
    if (named !== null && named.has(name)) continue;
    if (fixed !== null && fixed.has(name)) continue;
    if (isNamed(own, name)) continue;
    const value = incoming[name];
    if (value === undefined) continue;
    if (typeof value === 'string') {
      if (hasForbiddenCharacter(value)) return `the header ${shownName(name)} holds a control character`;
      out.push(name, value);
      bytes += name.length + value.length;
    } else {
      for (const one of value) {
        if (hasForbiddenCharacter(one)) return `the header ${shownName(name)} holds a control character`;
        out.push(name, one);
        bytes += name.length + one.length;
      }
    }
  }
  if (bytes > MAX_FORWARDED_BYTES) return `the request headers to pass on are ${bytes} bytes, above the limit of ${MAX_FORWARDED_BYTES}`;
  const count = (out.length - start) / 2;
  if (count > MAX_FORWARDED_HEADERS) return `the request has ${count} headers to pass on, above the limit of ${MAX_FORWARDED_HEADERS}`;
  return '';
}

/** Which form of answer is wanted; nothing about who asks. */
const NEGOTIATION: readonly string[] = ['accept', 'accept-language'];

/** For a third party behind a mapping: its headers are those of the mapping, and a caller's session or key is none of its business. */
export function forwardNegotiation(incoming: HeaderView, fixed: ReadonlySet<string> | null, out: string[]): string {
  for (const name of NEGOTIATION) {
    const value = incoming[name];
    if (typeof value !== 'string' || (fixed !== null && fixed.has(name))) continue;
    if (hasForbiddenCharacter(value)) return `the header ${shownName(name)} holds a control character`;
    out.push(name, value);
  }
  return '';
}

/**
 * The provider's headers that a raw answer may carry: no hop-by-hop ones, no framing (the way in frames anew), and none
 * of ours but those a provider may set, which the attempt stage has read already. The same object when nothing has to go.
 */
export function responseHeaders(headers: ReplyHeaders): ReplyHeaders {
  const named = namedInConnection(headers['connection']);
  let dirty = false;
  for (const name in headers) {
    if (isDroppedFromReply(name, named)) {
      dirty = true;
      break;
    }
  }
  if (!dirty) return headers;
  const kept: Record<string, string | string[] | undefined> = {};
  for (const name in headers) if (!isDroppedFromReply(name, named)) kept[name] = headers[name];
  return kept;
}

function isDroppedFromReply(name: string, named: ReadonlySet<string> | null): boolean {
  return (
    DROPPED_FROM_REPLY.has(name) || name.startsWith(PROXY_PREFIX) || name.startsWith(OWN_PREFIX) || (named !== null && named.has(name))
  );
}

/** Whether a flat name, value … list has the name. */
function isNamed(flat: readonly string[], name: string): boolean {
  for (let i = 0; i < flat.length; i += 2) if (flat[i] === name) return true;
  return false;
}

/** A header name for people: short and printable. */
function shownName(name: string): string {
  return JSON.stringify(name.slice(0, 64));
}
