/** Cast: one message in, a durable message of ours out, answered when it is durable; no policy. */
import { Code } from '../../proto/wire/codes.ts';
import { CastReply } from '../../proto/wire/reach-messages.ts';
import { NO_CREDENTIAL, submitted } from './cast.ts';
import type { Exchange } from './grpc-exchange.ts';
import { notNow } from './grpc-invoke.ts';
import { headerChars, joinHeaders, readCastRequest } from './grpc-request.ts';
import { refusalTrailers } from './grpc-status.ts';
import { pushRate } from './rate-headers.ts';
import { submissionFrom } from './submission.ts';
import { acceptedOf } from './submitted.ts';

const JSON_TYPE = 'application/json';

export async function cast(exchange: Exchange, message: Buffer): Promise<void> {
  const { front, metadata } = exchange;
  if (notNow(exchange)) return;
  const request = readCastRequest(message);
  if (typeof request === 'string') {
    refuse(exchange, 'request', Code.invalid_request, request);
    return;
  }
  const { bodyBytes, headerBytes } = front.engine.config.limits;
  if (request.body.length > bodyBytes) {
    refuse(exchange, 'body', Code.payload_too_large, `the body is above the limit of ${bodyBytes} bytes`);
    return;
  }
  if (headerChars(request) > headerBytes) {
    refuse(exchange, 'head', Code.payload_too_large, `the headers in the message are above the limit of ${headerBytes} bytes`);
    return;
  }
  const principal = front.engine.identities.caller(metadata.view['authorization']);
  if (principal === null) {
    exchange.refuse(Code.unauthenticated, NO_CREDENTIAL);
    return;
  }
  const problem = joinHeaders(metadata, request);
  if (problem !== '') {
    refuse(exchange, 'request', Code.invalid_request, problem);
    return;
  }
  const contentType = request.contentType === '' && request.body.length > 0 ? JSON_TYPE : request.contentType;
  const capability = request.capability === '' ? null : request.capability;
  // A client that leaves does not take its message back.
  const came = await submitted(front, submissionFrom(principal, capability, metadata.view, request.body, contentType));
  if (exchange.isOver) return;
  if (!came.ok) {
    const head: string[] = [];
    if (came.rate !== null) pushRate(head, came.rate);
    exchange.fail(refusalTrailers(came.code, came.detail, Math.ceil(came.retryAfterMs), undefined, came.ambiguous, head));
    return;
  }
  const told = acceptedOf(came);
  exchange.finish(
    CastReply.write({
      taskId: told.task_id,
      durable: told.durable,
      powerId: told.power_id,
      state: told.state,
      capability: told.capability,
      version: told.version ?? '',
      lane: told.lane,
      rule: told.rule ?? '',
      traceId: told.trace_id,
    }),
  );
}

function refuse(exchange: Exchange, reason: string, code: Code, detail: string): void {
  exchange.front.observation.metrics.requestRefused(reason);
  exchange.refuse(code, detail);
}
