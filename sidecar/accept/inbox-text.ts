/** Entries and refusals of an inbox as agents see them: the same JSON by every way in. */
import { Code } from '../../proto/wire/codes.ts';
import { dataOf } from '../call/answer-body.ts';
import { plainProblem } from '../call/result.ts';
import type { InboxEntry, InboxPage, InboxRefusal } from '../inbox/door.ts';

const NULL = Buffer.from('null', 'latin1');
const CLOSE = Buffer.from('}', 'latin1');

/**
 * `{"seq":41, …head…, "data":…}`: what the head says as it lies in the stream, and the body as `data` of a Result: JSON as its
 * author wrote it, text as a string, other bytes as {base64, content_type}, null when there is none.
 */
export function entryText({ seq, head, contentType, body }: InboxEntry): Buffer {
  const first = Buffer.from(`{"seq":${seq},`, 'latin1');
  return Buffer.concat([first, head.subarray(1, head.length - 1), DATA, dataIn(contentType, body), CLOSE]);
}

const DATA = Buffer.from(',"data":', 'latin1');

function dataIn(contentType: string, body: Buffer): Buffer {
  const data = dataOf(contentType === '' ? {} : { 'content-type': contentType }, body, false);
  if (data === null) return NULL;
  // It says that it is JSON and is not: shown as what it is.
  return typeof data === 'string' ? Buffer.from(JSON.stringify({ base64: body.toString('base64'), content_type: contentType })) : data;
}

export function pageText({ entries, next, floor }: Extract<InboxPage, { ok: true }>): Buffer {
  const parts: Buffer[] = [Buffer.from('{"entries":[', 'latin1')];
  for (const [i, entry] of entries.entries()) {
    if (i > 0) parts.push(COMMA);
    parts.push(entryText(entry));
  }
  parts.push(Buffer.from(`],"next":${next},"floor":${floor}}`, 'latin1'));
  return Buffer.concat(parts);
}

const COMMA = Buffer.from(',', 'latin1');

/** Code and status of a refusal: 410 gone, 409 ahead, 400 no position, 503 not now. */
export function refusalOf({ why }: InboxRefusal): { readonly code: Code; readonly status: number } {
  switch (why) {
    case 'gone':
      return { code: Code.invalid_request, status: 410 };
    case 'ahead':
      return { code: Code.invalid_request, status: 409 };
    case 'invalid':
      return { code: Code.invalid_request, status: 400 };
    case 'unreachable':
      return { code: Code.delivery_unavailable, status: 503 };
  }
}

/** The problem document of a refusal; `inbox.from` is the position from which reading would succeed, 0 when nobody knows. */
export function refusalText(refusal: InboxRefusal): string {
  const { code, status } = refusalOf(refusal);
  const problem = plainProblem(code, status, refusal.detail);
  return `${problem.slice(0, -1)},"inbox":{"why":"${refusal.why}","from":${refusal.from}}}`;
}

export const NO_INBOX = 'this sidecar has no registry, and so no inboxes: results are answers to calls here';

/** A whole number from 0 on without sign or zeros before it; null = it is something else. */
export function readPosition(text: string): number | null {
  if (!/^(0|[1-9][0-9]{0,15})$/.test(text)) return null;
  const position = Number(text);
  return Number.isSafeInteger(position) ? position : null;
}
