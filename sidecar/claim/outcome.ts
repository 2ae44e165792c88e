/**
 * What a finished call makes of its claim. Only an answer of a provider is an answer to the key; failures are not kept, nor is the
 * static text of a fallback. The key is free again when nothing was begun, when the provider has said a definite no, or when the work
 * may be begun again by its nature; else nobody knows, and the key stays in doubt. Of a chain of fallbacks that holds for each
 * capability by its own contract: what stands in for another says nothing of how often that one's work may run.
 */
import { Code } from '../../proto/wire/codes.ts';
import { isInDoubt } from '../call/attempt-record.ts';
import type { Call } from '../call/call.ts';
import type { LateAnswer } from '../call/late-answer.ts';
import type { Reply, ReplyHeaders } from '../call/reply.ts';
import type { KeptMarks, KeptResult } from '../ledger/ledger.ts';
import type { Candidate } from '../table/snapshot.ts';

export type ClaimEnd =
  | { readonly kind: 'done'; readonly result: KeptResult }
  | { readonly kind: 'released'; readonly counts: boolean }
  | { readonly kind: 'unknown'; readonly detail: string };

/** In `detail` of a result that was streamed: none of its bytes are kept. */
export const STREAMED = 'streamed';

const NO_BYTES = Buffer.alloc(0);

/** A provider has answered, in time. */
export function isAnswered({ code, staticBody, reply }: Call): boolean {
  return code === Code.ok && staticBody === null && reply !== null;
}

export function claimEndOf(call: Call): ClaimEnd {
  if (isAnswered(call)) {
    const { chosen, degraded, definitelySuccess } = call;
    return { kind: 'done', result: keptOf(call.reply as Reply, chosen, degraded, definitelySuccess, call.stream) };
  }
  let counts = false;
  for (const attempt of call.attempts) {
    if (attempt.started !== 'not_started') counts = true;
    if (isInDoubt(attempt)) return { kind: 'unknown', detail: `${attempt.candidate.provider.agentId}: ${attempt.detail}` };
  }
  return { kind: 'released', counts };
}

/** Of an answer that came after its caller was told that the time is over; such a one was not streamed. */
export function keptLate(reply: Reply, { candidate, degraded, definitely }: LateAnswer): KeptResult {
  return keptOf(reply, candidate, degraded, definitely, false);
}

function keptOf(reply: Reply, by: Candidate | null, degraded: boolean, definitely: boolean, isStream: boolean): KeptResult {
  const type = reply.headers['content-type'];
  return {
    code: Code.ok,
    status: reply.status,
    contentType: typeof type === 'string' ? type : '',
    provider: by === null ? '' : by.provider.agentId,
    version: by === null ? '' : by.version.text,
    detail: isStream ? STREAMED : '',
    body: isStream ? NO_BYTES : reply.body,
    leftOutBytes: 0,
    marks: isStream ? null : marksOf(reply.headers, degraded, definitely),
  };
}

/** What a body cannot be used without, or names what the work has made. Nothing of a session, and nothing of one answer alone. */
const KEPT_HEADERS: readonly string[] = [
  'content-encoding',
  'content-language',
  'content-location',
  'content-disposition',
  'location',
  'etag',
  'last-modified',
  'cache-control',
  'expires',
  'vary',
  'link',
];

/** Together; one that would lead past it is left out. */
const MAX_HEADER_CHARS = 4_096;

function marksOf(headers: ReplyHeaders, degraded: boolean, definitely: boolean): KeptMarks | null {
  let kept: Record<string, string> | null = null;
  let left = MAX_HEADER_CHARS;
  for (const name of KEPT_HEADERS) {
    const value = headers[name];
    if (typeof value !== 'string' || value.length > left) continue;
    left -= value.length;
    (kept ??= {})[name] = value;
  }
  return kept === null && !degraded && !definitely ? null : { degraded, definitely, headers: kept };
}
