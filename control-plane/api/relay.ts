/**
 * What only the leader can answer, asked for by a page of another replica: it is carried there and its answer back. A program
 * with a token is sent to the leader (307) and asks there itself; a browser must not be, since its cookie belongs to this
 * replica's address and the page may speak to no other. The session is good there as it is here, and is checked there again.
 */
import { type IncomingMessage, type RequestOptions, request as requestHttp, type ServerResponse } from 'node:http';
import { request as requestHttps } from 'node:https';
import { EVERYWHERE } from './site.ts';

/** Says that it has been carried once: two replicas that take each other for the leader must not play ball. */
export const RELAYED = 'reach-relayed';
/** What is carried there. */
const ASKED_HEADERS = ['cookie', 'x-reach-csrf', 'content-type', 'accept'] as const;
/** And back. */
const ANSWERED_HEADERS = ['content-type', 'retry-after', 'reach-audit-pending', 'set-cookie', 'x-accel-buffering'] as const;
/** Between two pieces of an answer; event streams have a sign of life each 15 s. */
const QUIET_MS = 30_000;

/**
 * Why there is no answer. An order that has left may have been carried out, whatever became of its answer; one for which there was
 * no connection has not, and a question never does harm.
 */
export interface Lost {
  readonly why: string;
  readonly mayBeDone: boolean;
}

/**
 * @param leader base URL
 * @param failed called when there is no answer at all
 */
export function relay(
  leader: string,
  request: IncomingMessage,
  body: string,
  response: ServerResponse,
  failed: (lost: Lost) => void,
): void {
  const target = new URL(request.url ?? '/', leader);
  const headers: Record<string, string> = { [RELAYED]: '1', origin: target.origin, 'sec-fetch-site': 'same-origin' };
  for (const name of ASKED_HEADERS) {
    const value = request.headers[name];
    if (typeof value === 'string') headers[name] = value;
  }
  if (body !== '') headers['content-length'] = String(Buffer.byteLength(body));
  const options: RequestOptions = { method: request.method ?? 'GET', agent: false, headers, timeout: QUIET_MS };
  const asked = (target.protocol === 'https:' ? requestHttps : requestHttp)(target, options);
  const isOrder = options.method !== 'GET';
  let hasLeft = false;
  // A connection of its own (`agent: false`): nothing leaves before it stands.
  const stands = target.protocol === 'https:' ? 'secureConnect' : 'connect';
  asked.on('socket', (socket) => socket.once(stands, () => (hasLeft = true)));
  response.on('close', () => asked.destroy());
  asked.on('timeout', () => asked.destroy(new Error(`no word for ${QUIET_MS / 1_000} s`)));
  asked.on('error', (error: NodeJS.ErrnoException) => {
    if (response.headersSent) response.destroy();
    else if (!response.destroyed) failed({ why: error.code ?? error.message, mayBeDone: isOrder && hasLeft });
  });
  asked.on('response', (answer) => {
    const head: Record<string, string | string[]> = { ...EVERYWHERE, 'cache-control': 'no-store' };
    for (const name of ANSWERED_HEADERS) {
      const value = answer.headers[name];
      if (value !== undefined) head[name] = value;
    }
    response.writeHead(answer.statusCode ?? 502, head);
    answer.on('error', () => response.destroy());
    answer.pipe(response);
  });
  asked.end(body);
}
