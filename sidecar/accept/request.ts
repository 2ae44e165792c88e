/** A request's head and body to a Call. Reads no policy out of it: stages read the headers they know by name. */
import type { IncomingMessage } from 'node:http';
import { readTraceContext } from '../../proto/wire/trace-context.ts';
import { Call, type WayIn } from '../call/call.ts';
import { NO_BODY } from '../call/reply.ts';
import type { Front } from './front.ts';

export function callFrom(front: Front, request: IncomingMessage, way: WayIn, asked: string, body: unknown, stream: boolean): Call {
  const { clock, random } = front.engine;
  const { headers } = request;
  const call = new Call(way, asked, headers, Buffer.isBuffer(body) ? body : NO_BODY, headers['content-type'] ?? '', stream, clock);
  readTraceContext(call, headers['traceparent'], headers['tracestate'], random);
  return call;
}

/**
 * What stands after `prefix` in the path, decoded once. Text that cannot be decoded is handed on as it is, for the name
 * stage to refuse; the same goes for `#` or `/` in it. Null when the path does not begin with the prefix letter by letter.
 */
export function targetAfter(url: string, prefix: string): string | null {
  if (!url.startsWith(prefix)) return null;
  const query = url.indexOf('?', prefix.length);
  const text = query < 0 ? url.slice(prefix.length) : url.slice(prefix.length, query);
  return text.includes('%') ? decoded(text) : text;
}

/** Agents ask for the same few again and again, and decoding costs half a microsecond. Long ones are not worth keeping. */
const KEEP = 512;
const KEEP_CHARS = 256;
const kept = new Map<string, string>();

function decoded(text: string): string {
  const known = kept.get(text);
  if (known !== undefined) return known;
  let plain = text;
  try {
    plain = decodeURIComponent(text);
  } catch {
    // The name stage refuses what is left.
  }
  if (text.length <= KEEP_CHARS) {
    if (kept.size >= KEEP) kept.clear();
    kept.set(text, plain);
  }
  return plain;
}

/** One query parameter; null when it is not there. The usual request has no query and pays one search. */
export function queryParameter(url: string, name: string): string | null {
  const query = url.indexOf('?');
  return query < 0 ? null : new URLSearchParams(url.slice(query + 1)).get(name);
}
