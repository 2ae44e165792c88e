/** An answer that came and was judged none: what a replay gives in its place. */
import type { Code } from '../../proto/wire/codes.ts';
import type { Started } from '../call/attempt-record.ts';
import { NO_BODY, Reply, type ReplyHeaders } from '../call/reply.ts';
import type { AttemptRecord } from '../record/shapes.ts';

/** As the attempt ended. @param own our own headers of the answer, as recorded */
export function judgedReply(attempt: AttemptRecord, own: ReplyHeaders, reused: boolean, retryAfterMs: number): Reply {
  const { code, started, status, detail } = attempt;
  return new Reply(code as Code, started as Started, status, own, NO_BODY, null, detail, reused, retryAfterMs);
}
