/**
 * Where a streamed answer goes on that was cut because a sidecar stopped. The caller gets a token with the cut, and sends it back
 * as `Reach-Resume` with the same request: the provider that gave the first part is asked again, and is told in `Last-Event-ID`
 * what the caller has had: the id of its own last event, or how many events were passed on where its events have none. Going on
 * from there is the provider's art; one that cannot begins anew, as it would without a token.
 */
import type { IncomingHttpHeaders } from 'node:http';
import { agentIdProblem } from '../../proto/language/names.ts';
import { Header } from '../../proto/wire/headers.ts';

const LAST_EVENT_ID = 'last-event-id';
const MAX_TOKEN_CHARS = 1_024;
const MAX_POSITION_CHARS = 256;

interface Token {
  readonly provider: string;
  readonly position: string;
}

/** '' = nobody gave anything yet: the request can simply be made again. */
export function resumeToken(provider: string | null, position: string): string {
  if (provider === null) return '';
  const token: Token = { provider, position: position.length > MAX_POSITION_CHARS ? '' : position };
  return Buffer.from(JSON.stringify(token), 'utf8').toString('base64url');
}

/** Puts what a token says into the headers of the request; what the caller says itself stands. The words of what is wrong, or null. */
export function readResume(headers: IncomingHttpHeaders): string | null {
  const said = headers[Header.resume];
  if (said === undefined) return null;
  const token = typeof said === 'string' && said.length <= MAX_TOKEN_CHARS ? tokenIn(said) : null;
  if (token === null) return `${Header.resume} must be the token that came with the cut`;
  headers[Header.pin] ??= token.provider;
  if (token.position !== '') headers[LAST_EVENT_ID] ??= token.position;
  return null;
}

function tokenIn(text: string): Token | null {
  try {
    const { provider, position } = JSON.parse(Buffer.from(text, 'base64url').toString('utf8')) as Partial<Token>;
    if (typeof provider !== 'string' || typeof position !== 'string') return null;
    if (agentIdProblem(provider) !== null || position.length > MAX_POSITION_CHARS || !PRINTABLE.test(position)) return null;
    return { provider, position };
  } catch {
    return null;
  }
}

const PRINTABLE = /^[\x20-\x7e]*$/;
