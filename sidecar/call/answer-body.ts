/**
 * What a provider's body is, so that it can stand as `data` in a Result. JSON is checked once and its *original bytes*
 * are used: numbers that a double cannot hold, `1.0` and `-0` come through as they were written. Text becomes a JSON
 * string, anything else base64. A body that says it is JSON and is not is a bad answer, never passed on as a good one.
 */
import { isUtf8 } from 'node:buffer';
import { isJson, isShallowJson, MAX_DEPTH } from '../../base/json-scan.ts';
import type { ReplyHeaders } from './reply.ts';

export type BodyKind = 'json' | 'text' | 'binary' | 'unknown';

const KEEP = 256;
const kinds = new Map<string, BodyKind>();

/** What a content type announces; `unknown` when there is none. */
export function bodyKind(contentType: string | string[] | undefined): BodyKind {
  if (typeof contentType !== 'string' || contentType === '') return 'unknown';
  const kept = kinds.get(contentType);
  if (kept !== undefined) return kept;
  const kind = kindOf(contentType);
  if (kinds.size >= KEEP) kinds.clear();
  kinds.set(contentType, kind);
  return kind;
}

function kindOf(contentType: string): BodyKind {
  const type = (contentType.split(';', 1)[0] as string).trim().toLowerCase();
  if (type === 'application/json' || type === 'text/json' || type.endsWith('+json')) return 'json';
  if (type.startsWith('text/') || type.endsWith('+xml') || type.endsWith('+yaml')) return 'text';
  switch (type) {
    case 'application/xml':
    case 'application/yaml':
    case 'application/javascript':
    case 'application/x-ndjson':
    case 'application/jsonl':
    case 'application/json-seq':
    case 'application/x-www-form-urlencoded':
      return 'text';
    default:
      return 'binary';
  }
}

/** Of bodies that come event by event or line by line, which; null = it is none of them. */
export function lineForm(contentType: string | string[] | undefined): 'events' | 'lines' | null {
  if (typeof contentType !== 'string') return null;
  switch ((contentType.split(';', 1)[0] as string).trim().toLowerCase()) {
    case 'text/event-stream':
      return 'events';
    case 'application/x-ndjson':
    case 'application/jsonl':
      return 'lines';
    default:
      return null;
  }
}

/** One whole JSON text in UTF-8, with nothing before or after it (a byte order mark counts as nothing). */
export function isWholeJson(body: Buffer): boolean {
  return isJson(withoutBom(body));
}

/** What is wrong with an answer that says it is JSON; null = nothing. It goes into a Result, which its caller parses. */
export function jsonProblem(body: Buffer): string | null {
  const verdict = isShallowJson(withoutBom(body));
  if (verdict === 'deep') return `the answer is nested more than ${MAX_DEPTH} levels deep`;
  return verdict ? null : 'the answer says it is JSON and is not well formed';
}

/** `data` of a Result: bytes of JSON; or the words of what is wrong with the answer. `null` stands for `no data`. */
export function dataOf(headers: ReplyHeaders, body: Buffer, checked: boolean): Buffer | string | null {
  if (body.length === 0) return null;
  if (checked) return withoutBom(body);
  const encoding = headers['content-encoding'];
  if (encoding !== undefined && encoding !== 'identity')
    return `the answer is encoded (content-encoding ${String(encoding).slice(0, 40)}), though plain bytes were asked for`;
  const contentType = headers['content-type'];
  switch (bodyKind(contentType)) {
    case 'json':
      return jsonProblem(body) ?? withoutBom(body);
    case 'text':
      return quoted(textOf(body, contentType as string), body, contentType as string);
    case 'unknown':
      if (isShallowJson(withoutBom(body)) === true) return withoutBom(body);
      return quoted(isUtf8(body) ? body.toString('utf8') : null, body, '');
    default:
      return asBase64(body, typeof contentType === 'string' ? contentType : '');
  }
}

function quoted(text: string | null, body: Buffer, contentType: string): Buffer {
  return text === null ? asBase64(body, contentType) : Buffer.from(JSON.stringify(text), 'utf8');
}

function asBase64(body: Buffer, contentType: string): Buffer {
  return Buffer.from(`{"base64":"${body.toString('base64')}","content_type":${JSON.stringify(contentType)}}`, 'utf8');
}

/** Decoded as UTF-8, else in the charset it names; null when neither fits. */
function textOf(body: Buffer, contentType: string): string | null {
  if (isUtf8(body)) return body.toString('utf8');
  const charset = /;\s*charset="?([A-Za-z0-9_-]{1,40})/i.exec(contentType)?.[1];
  if (charset === undefined || charset.toLowerCase() === 'utf-8') return null;
  try {
    return new TextDecoder(charset, { fatal: true }).decode(body);
  } catch {
    return null;
  }
}

function withoutBom(body: Buffer): Buffer {
  return body[0] === 0xef && body[1] === 0xbb && body[2] === 0xbf ? body.subarray(3) : body;
}
