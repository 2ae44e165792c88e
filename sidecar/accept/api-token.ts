/**
 * A token that everything on the port for agents has to show beside the credential of its agent (`sidecar.api_token`): where
 * others have accounts on the same machine, or calls without a credential are let in. Health and readiness stay open for those
 * who only look whether the process lives.
 *
 * It comes in a header of its own, `Reach-Api-Token`, which no web page can send without asking first, and which is never passed
 * on. A connection that dials in with a ticket was let in when it asked for that.
 */
import { createHash, timingSafeEqual } from 'node:crypto';
import type { IncomingHttpHeaders, IncomingMessage } from 'node:http';
import { type Refusal, refusal } from '../../base/host-guard.ts';
import { CHANNEL_PATH } from '../../proto/wire/channel.ts';
import { Header } from '../../proto/wire/headers.ts';

const MISSING = refusal(
  401,
  'api_token',
  'this sidecar wants its own token beside the agent’s: send Reach-Api-Token: <token> (sidecar.api_token)',
);
const OPEN: ReadonlySet<string> = new Set(['/v1/health', '/v1/ready']);
const DIALS_IN = `${CHANNEL_PATH}?ticket=`;
const METRICS = '/metrics';
const BEARER = 'Bearer ';

export class ApiToken {
  readonly #hash: Buffer;

  constructor(token: string) {
    this.#hash = hashOf(token);
  }

  /** Null = it may go on. */
  check({ method, url = '', headers }: IncomingMessage): Refusal | null {
    if (this.isShown(headers) || OPEN.has(url)) return null;
    // A POST there asks for a ticket, whatever its address says.
    if (method === 'GET' && url.startsWith(DIALS_IN)) return null;
    // Scrapers can send this header and hardly another.
    const { authorization } = headers;
    if (url === METRICS && authorization?.startsWith(BEARER) === true && this.#is(authorization.slice(BEARER.length))) return null;
    return MISSING;
  }

  /** For a way in that has no paths of HTTP. */
  problem(headers: IncomingHttpHeaders): Refusal | null {
    return this.isShown(headers) ? null : MISSING;
  }

  isShown(headers: IncomingHttpHeaders): boolean {
    const shown = headers[Header.apiToken];
    return typeof shown === 'string' && this.#is(shown);
  }

  /** Of the hashes, which have one length: how long it takes says nothing about the token. */
  #is(token: string): boolean {
    return timingSafeEqual(hashOf(token), this.#hash);
  }
}

function hashOf(text: string): Buffer {
  return createHash('sha256').update(text).digest();
}
