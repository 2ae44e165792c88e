/**
 * A finished call onto the wire of its caller: the enveloped Result, the provider's own answer (raw mode), or a problem
 * document. Decides status line and headers; the bodies come from `result.ts`. Everything is one write.
 */
import type { ServerResponse } from 'node:http';
import { Code } from '../../proto/wire/codes.ts';
import { Header } from '../../proto/wire/headers.ts';
import type { Call } from '../call/call.ts';
import type { Reply, ReplyHeaders } from '../call/reply.ts';
import { envelope, failureStatus, type JsonBytes, plainProblem, problem, type Result, resultOf } from '../call/result.ts';
import { hasForbiddenCharacter, isHeaderName, responseHeaders } from '../transports/hygiene.ts';
import { pushQuota } from './rate-headers.ts';

export const JSON_TYPE = 'application/json';
export const PROBLEM_TYPE = 'application/problem+json';

/** Header values hold no more than this of a detail, after encoding. */
const MAX_DETAIL_BYTES = 1_024;

/** The Result in its envelope, or a problem document. */
export function answerEnveloped(response: ServerResponse, call: Call): void {
  const result = resultOf(call, true);
  const withDecision = isTold(call);
  if (result.entry.code === Code.ok) {
    const body = envelope(result, withDecision);
    const head = ['content-type', JSON_TYPE, 'content-length', String(body.length)];
    if (call.replay !== null) head.push(Header.replay, 'true');
    if (call.quota !== null) pushQuota(head, call);
    response.writeHead(200, head);
    response.end(body, 'latin1');
  } else answerProblem(response, result, null, withDecision);
}

/** The provider's own status, headers and body, the rest in `Reach-*` headers; a problem document when there is no such answer. */
export function answerRaw(response: ServerResponse, call: Call): void {
  const result = resultOf(call, false);
  if (call.staticBody !== null && call.code === Code.ok) {
    const head = ['content-type', JSON_TYPE, 'content-length', String(call.staticBody.length)];
    pushOwn(head, result);
    response.writeHead(200, head);
    response.end(call.staticBody);
  } else if (hasOwnAnswer(call)) {
    const reply = call.reply as Reply;
    const head = flat(reply.headers);
    pushLength(head, call, reply);
    pushOwn(head, result);
    response.writeHead(reply.status, head);
    response.end(reply.body);
  } else {
    const own: string[] = [];
    pushOwn(own, result);
    answerProblem(response, result, own, isTold(call));
  }
}

/** The length of the body; for a HEAD what the provider says of it, unless another sidecar stands between. */
function pushLength(head: string[], call: Call, reply: Reply): void {
  if (call.http !== null && call.http.method === 'HEAD') {
    const told = reply.headers['content-length'];
    if (typeof told === 'string' && call.chosen?.provider.reach !== 'mesh') head.push('content-length', told);
  } else if (reply.status !== 204 && reply.status !== 304) head.push('content-length', String(reply.body.length));
}

/** The caller wants to be told what every stage decided. */
export function isTold(call: Call): boolean {
  const wish = call.headers[Header.explain];
  return wish === '1' || wish === 'true';
}

/** A whole answer of the provider came, a success or its own error. */
function hasOwnAnswer(call: Call): boolean {
  return (
    call.reply !== null &&
    call.reply.stream === null &&
    call.reply.status > 0 &&
    (call.code === Code.ok || call.code === Code.provider_error)
  );
}

function answerProblem(response: ServerResponse, result: Result, own: string[] | null, withDecision: boolean): void {
  const body = problem(result, withDecision);
  const head = ['content-type', PROBLEM_TYPE, 'content-length', String(body.length)];
  if (own !== null) for (const text of own) head.push(text);
  else {
    if (result.noRetry) head.push(Header.retry, 'none');
    pushQuota(head, result.call);
  }
  if (result.retryAfterMs > 0) head.push('retry-after', retryAfterSeconds(result.retryAfterMs));
  if (result.entry.code === Code.unauthenticated) head.push('www-authenticate', 'Bearer');
  response.writeHead(failureStatus(result), head);
  response.end(body, 'latin1');
}

/** A JSON text that stands for itself. `more`: further headers, flat. */
export function writeJson(response: ServerResponse, status: number, body: JsonBytes, more: readonly string[] = []): void {
  response.writeHead(status, ['content-type', JSON_TYPE, 'content-length', String(body.length), ...more]);
  response.end(body, 'latin1');
}

export function writeNothing(response: ServerResponse): void {
  response.writeHead(204);
  response.end();
}

/** A problem document for what never became a call. */
export function refuse(response: ServerResponse, code: Code, status: number, detail: string, after: After, retryAfterMs = 0): void {
  if (response.headersSent) {
    response.destroy();
    return;
  }
  const body = plainProblem(code, status, detail, retryAfterMs);
  const head = ['content-type', PROBLEM_TYPE, 'content-length', String(Buffer.byteLength(body))];
  if (retryAfterMs > 0) head.push('retry-after', retryAfterSeconds(retryAfterMs), Header.retryAfterMs, String(retryAfterMs));
  if (status === 407) head.push('proxy-authenticate', 'Basic realm="agent-reach", charset="UTF-8"', 'proxy-authenticate', 'Bearer');
  else if (code === Code.unauthenticated) head.push('www-authenticate', 'Bearer');
  if (after !== 'keep') head.push('connection', 'close');
  response.writeHead(status, head);
  if (after === 'hear_out' && !response.req.complete) {
    response.write(body);
    hearOut(response);
  } else response.end(body);
}

/**
 * What becomes of the connection after a refusal: kept, closed at once, or closed when the rest of the body has been read
 * and dropped. The last is for callers that are still sending: a connection closed under them is reset, and the reset
 * destroys the answer before they have read it.
 */
export type After = 'keep' | 'close' | 'hear_out';

/** Beyond this the caller is cut off all the same. Time is bounded by the server's own limit on requests. */
const MAX_HEARD_BYTES = 16_777_216;

function hearOut(response: ServerResponse): void {
  const request = response.req;
  let heardBytes = 0;
  request.on('data', (chunk: Buffer) => {
    heardBytes += chunk.length;
    if (heardBytes > MAX_HEARD_BYTES) response.destroy();
  });
  request.once('end', () => response.end());
  request.resume();
}

/** Whole seconds, at least one, never earlier than said. */
export function retryAfterSeconds(ms: number): string {
  return String(Math.max(1, Math.ceil(ms / 1_000)));
}

/** A provider's headers as `writeHead` takes them, after hygiene. */
export function flat(headers: ReplyHeaders): string[] {
  const kept = responseHeaders(headers);
  const out: string[] = [];
  for (const name in kept) {
    const value = kept[name];
    if (value === undefined) continue;
    if (typeof value === 'string') pushSendable(out, name, value);
    else for (const one of value) pushSendable(out, name, one);
  }
  return out;
}

/** A name or value that no HTTP writer would take is left out: the answer is worth more than one odd header. */
function pushSendable(out: string[], name: string, value: string): void {
  if (isHeaderName(name) && !hasForbiddenCharacter(value)) out.push(name, value);
}

/** Result fields as headers. */
export function pushOwn(head: string[], result: Result): void {
  const { call } = result;
  head.push(
    Header.code,
    String(result.entry.code),
    Header.traceId,
    call.traceId,
    Header.elapsedMs,
    result.elapsedMs.toFixed(3),
    Header.attempts,
    String(call.attempts.length),
  );
  if (result.provider !== null) head.push(Header.provider, result.provider);
  if (result.version !== null) head.push(Header.version, result.version);
  if (call.degraded) head.push(Header.degraded, 'true');
  if (call.replay !== null) head.push(Header.replay, 'true');
  if (result.sandbox) head.push(Header.sandbox, 'true');
  if (call.definitelySuccess) head.push(Header.definitelySuccess, 'true');
  if (call.quota !== null) pushQuota(head, call);
  if (result.entry.code === Code.ok) return;
  head.push(Header.ambiguous, String(result.ambiguous));
  if (result.noRetry) head.push(Header.retry, 'none');
  if (result.detail !== '') head.push(Header.detail, headerText(result.detail));
  if (result.retryAfterMs > 0) head.push(Header.retryAfterMs, String(Math.ceil(result.retryAfterMs)));
}

/** Any text as a header value: percent-encoded, cut at a whole character. */
export function headerText(text: string): string {
  const encoded = encodeURIComponent(Buffer.from(text, 'utf8').toString('utf8'));
  if (encoded.length <= MAX_DETAIL_BYTES) return encoded;
  let end = MAX_DETAIL_BYTES;
  // Not inside an escape, and not between the bytes of one character.
  for (; end > 0; end--) {
    try {
      decodeURIComponent(encoded.slice(0, end));
      break;
    } catch {
      // one byte less
    }
  }
  return encoded.slice(0, end);
}
