/** `/v1/invoke/{target}`: one request, one Result. Bytes in, call through the pipeline, bytes out; no policy. */
import type { IncomingMessage, ServerResponse } from 'node:http';
import { endOfTurn, hasEndOfTurn } from '../../base/turn.ts';
import { Code } from '../../proto/wire/codes.ts';
import { Header } from '../../proto/wire/headers.ts';
import { answerEnveloped, answerRaw, refuse } from './answer.ts';
import type { Principal } from '../call/principal.ts';
import type { Front } from './front.ts';
import { lineOf } from './line.ts';
import { callFrom, queryParameter } from './request.ts';

/** When to come back while the sidecar is not ready. */
const STARTING_MS = 1_000;

export async function invoke(
  front: Front,
  request: IncomingMessage,
  response: ServerResponse,
  asked: string,
  body: unknown,
): Promise<void> {
  const raw = isRaw(request);
  if (typeof raw === 'string') {
    refuse(response, Code.invalid_request, 400, raw, 'keep');
    return;
  }
  const call = callFrom(front, request, 'http', asked, body, false);
  const line = lineOf(request.socket);
  line.add(call);
  try {
    await front.pipeline.outbound(front.engine, call);
    // With what leaves at the end of this turn anyway; alone it would only be later.
    if (hasEndOfTurn()) await endOfTurn();
    line.remove(call);
    // Cancelled with its connection alive: the work that it was part of was given up. It is told so.
    if (response.destroyed) return;
    if (raw) answerRaw(response, call);
    else answerEnveloped(response, call);
  } catch (error) {
    line.remove(call);
    front.observation.fault(error);
    refuse(response, Code.internal, 500, 'a fault in Agent-Reach', 'close');
  }
}

/** True when the request was answered, because no call can be taken now. */
export function notNow(front: Front, response: ServerResponse): boolean {
  if (front.ready) return false;
  const { authorization } = response.req.headers;
  return notNowOf(front, response, front.draining ? front.engine.identities.caller(authorization) : null);
}

/** The same, when it is known who asks. */
export function notNowOf(front: Front, response: ServerResponse, principal: Principal | null): boolean {
  if (front.ready || front.takesLast(principal, response.req.headers['traceparent'])) return false;
  refuseNow(front, response);
  return true;
}

/** No call can be taken now: says why. */
export function refuseNow(front: Front, response: ServerResponse): void {
  if (front.draining) {
    front.observation.metrics.requestRefused('draining');
    refuse(response, Code.blocked_by_operator, 503, 'this sidecar is stopping and takes no new calls', 'hear_out', STARTING_MS);
  } else {
    front.observation.metrics.requestRefused('starting');
    refuse(response, Code.none_healthy, 503, 'starting: no route table is loaded yet', 'keep', STARTING_MS);
  }
}

/** Whether the caller wants the provider's own answer; or the words of a refusal. */
export function isRaw(request: IncomingMessage): boolean | string {
  const mode = request.headers[Header.mode] ?? queryParameter(request.url as string, 'mode');
  if (mode === null || mode === 'envelope') return false;
  if (mode === 'raw') return true;
  return `${Header.mode} must be raw or envelope; got ${JSON.stringify(String(mode).slice(0, 40))}`;
}
