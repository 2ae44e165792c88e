/** `/v1/cast/{target}` and `/v1/messages`: one message in, 202 with the task's id and where it is durable; no policy. */
import type { IncomingMessage, ServerResponse } from 'node:http';
import { isJson } from '../../base/json-scan.ts';
import { Code, codeEntry } from '../../proto/wire/codes.ts';
import { Header } from '../../proto/wire/headers.ts';
import type { Principal } from '../call/principal.ts';
import { NO_BODY } from '../call/reply.ts';
import { plainProblem } from '../call/result.ts';
import type { SendDoor, Submission, Submitted } from '../send/door.ts';
import { JSON_TYPE, PROBLEM_TYPE, refuse, retryAfterSeconds } from './answer.ts';
import type { Front } from './front.ts';
import { messageFrom } from './message-text.ts';
import { pushRate } from './rate-headers.ts';
import { submissionFrom } from './submission.ts';
import { acceptedOf } from './submitted.ts';

export const NO_CREDENTIAL = 'no known credential: send Authorization: Bearer <token>';
const NO_MESSAGES = 'this sidecar takes no messages';

/** What is refused before there was a submission. */
export function refusedText(code: Code, detail: string): Extract<Submitted, { ok: false }> {
  return { ok: false, code, detail, retryAfterMs: 0, ambiguous: false, rate: null };
}

/** Submits, whatever the way in; never rejects. @param read the submission, or the words of what is wrong with it. */
export async function submitted(front: Front, read: Submission | string): Promise<Submitted> {
  let came: Submitted;
  if (typeof read === 'string') came = refusedText(Code.invalid_request, read);
  else if (front.send === null) came = refusedText(Code.delivery_unavailable, NO_MESSAGES);
  else {
    front.submitting++;
    try {
      // The first word of an agent that is new here: what it may send to is on its way.
      const arriving = front.engine.identities.arriving?.get(read.principal.agent);
      if (arriving !== undefined) await arriving;
      came = await front.send.submit(read);
    } catch (error) {
      front.observation.fault(error);
      came = refusedText(Code.internal, 'a fault in Agent-Reach');
    } finally {
      front.submitting--;
    }
  }
  front.observation.metrics.messageSubmitted(came.ok ? came.durable : codeEntry(came.code).name);
  return came;
}

/** Who is asking; null = it was answered with 401. */
export function callerOf(front: Front, request: IncomingMessage, response: ServerResponse): Principal | null {
  const principal = front.engine.identities.caller(request.headers.authorization);
  if (principal === null) refuse(response, Code.unauthenticated, 401, NO_CREDENTIAL, 'keep');
  return principal;
}

export async function cast(front: Front, request: IncomingMessage, response: ServerResponse, asked: string, body: unknown): Promise<void> {
  const principal = callerOf(front, request, response);
  if (principal === null) return;
  const payload = Buffer.isBuffer(body) ? body : NO_BODY;
  const read = submissionFrom(principal, asked, request.headers, payload, request.headers['content-type'] ?? '');
  answer(front, response, principal, await submitted(front, read));
}

export async function messages(front: Front, request: IncomingMessage, response: ServerResponse, body: unknown): Promise<void> {
  const principal = callerOf(front, request, response);
  if (principal === null) return;
  const text = Buffer.isBuffer(body) ? body : NO_BODY;
  const read = isJson(text) ? messageFrom(principal, text, request.headers) : 'the body is not well-formed JSON';
  answer(front, response, principal, await submitted(front, read));
}

function answer(front: Front, response: ServerResponse, principal: Principal, came: Submitted): void {
  if (response.destroyed) return;
  if (came.ok) {
    const text = JSON.stringify(acceptedOf(came));
    const head = ['content-type', JSON_TYPE, 'content-length', String(Buffer.byteLength(text)), 'location', `/v1/tasks/${came.taskId}`];
    pushRate(head, (front.send as SendDoor).rate(principal.agent));
    response.writeHead(202, head);
    response.end(text);
    return;
  }
  const { http } = codeEntry(came.code);
  const problem = plainProblem(came.code, http, came.detail, came.retryAfterMs, came.ambiguous);
  const head = ['content-type', PROBLEM_TYPE, 'content-length', String(Buffer.byteLength(problem))];
  if (came.retryAfterMs > 0)
    head.push('retry-after', retryAfterSeconds(came.retryAfterMs), Header.retryAfterMs, String(Math.ceil(came.retryAfterMs)));
  if (came.rate !== null) pushRate(head, came.rate);
  response.writeHead(http, head);
  response.end(problem);
}
