/**
 * What a finished call makes of its claim. Only an answer of a provider is an answer to the key; failures are not kept. The key is
 * free again when nothing was begun, when the provider has said a definite no, or when the work may be begun again by its nature;
 * else nobody knows, and the key stays in doubt.
 */
import { Code } from '../../proto/wire/codes.ts';
import type { Call } from '../call/call.ts';
import type { Reply } from '../call/reply.ts';
import type { KeptResult } from '../ledger/ledger.ts';

export type ClaimEnd =
  | { readonly kind: 'done'; readonly result: KeptResult }
  | { readonly kind: 'released'; readonly counts: boolean }
  | { readonly kind: 'unknown'; readonly detail: string };

/** In `detail` of a result that was streamed: none of its bytes are kept. */
export const STREAMED = 'streamed';

const NO_BYTES = Buffer.alloc(0);

export function claimEndOf(call: Call): ClaimEnd {
  if (call.code === Code.ok && call.staticBody === null && call.reply !== null) return { kind: 'done', result: keptOf(call, call.reply) };
  let mayHaveActed = false;
  let counts = false;
  for (const attempt of call.attempts) {
    if (attempt.started !== 'not_started') counts = true;
    if (attempt.started === 'started') mayHaveActed = true;
    // A whole answer that we could not use: the work was done all the same.
    if (attempt.started === 'done' && UNUSABLE.has(attempt.code)) mayHaveActed = true;
  }
  if (mayHaveActed && call.execution === 'once') {
    const last = call.attempts[call.attempts.length - 1];
    return { kind: 'unknown', detail: last === undefined ? '' : `${last.candidate.provider.agentId}: ${last.detail}` };
  }
  return { kind: 'released', counts };
}

const UNUSABLE: ReadonlySet<number> = new Set([Code.bad_response, Code.response_too_large, Code.invalid_response]);

export function keptOf(call: Call, reply: Reply): KeptResult {
  const isStream = call.stream;
  const type = reply.headers['content-type'];
  return {
    code: Code.ok,
    status: reply.status,
    contentType: typeof type === 'string' ? type : '',
    provider: call.chosen === null ? '' : call.chosen.provider.agentId,
    version: call.chosen === null ? '' : call.chosen.version.text,
    detail: isStream ? STREAMED : '',
    body: isStream ? NO_BYTES : reply.body,
    leftOutBytes: 0,
  };
}
