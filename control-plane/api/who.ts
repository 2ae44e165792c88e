/**
 * Who asks: an operator by token (`Authorization: Bearer`), or a browser by the cookie of a session. A token that is given counts
 * alone, also when it is wrong. What a browser changes must come from a page of this port: it has to send the session's own
 * `x-reach-csrf`, and the browser has to say that the request is of the same origin (the guard before has looked at what it says
 * where it says anything). Wrong credentials of one address are bounded; a right one always passes, so that nobody without one can
 * shut out those who come from the same address, behind a proxy say.
 */
import type { IncomingMessage } from 'node:http';
import type { Clock } from '../../base/clock.ts';
import { Code } from '../../proto/wire/codes.ts';
import type { Audit } from '../audit/audit.ts';
import type { Session, Sessions } from '../sessions/sessions.ts';
import { Tries } from '../sessions/tries.ts';
import type { Operator, Operators } from './operators.ts';
import { Refused } from './problem.ts';
import type { From, Route } from './route.ts';

export const CSRF_HEADER = 'x-reach-csrf';
/** Wrong tokens of one address: far beyond a monitor with an old one. What withstands guessing is the length of tokens. */
const BURST = 1_000;
const PER_SEC = 10;

export interface Asks {
  readonly operator: Operator | null;
  readonly session: Session | null;
  readonly from: From;
}

export interface WhoParts {
  readonly operators: Operators;
  readonly sessions: Sessions | null;
  readonly audit: Pick<Audit, 'refusedRequest'>;
  readonly clock: Clock;
}

export class Who {
  readonly #parts: WhoParts;
  readonly #tries: Tries;

  constructor(parts: WhoParts) {
    this.#parts = parts;
    this.#tries = new Tries({ clock: parts.clock, burst: BURST, perSec: PER_SEC });
  }

  /** Null operator = nobody we know. */
  async asks(request: IncomingMessage, route: Pick<Route, 'method' | 'path' | 'role'>): Promise<Asks | Refused> {
    const { headers } = request;
    const from: From = { address: request.socket.remoteAddress ?? '', isSecure: isSecure(request) };
    if (headers.authorization !== undefined) {
      const operator = this.#parts.operators.of(headers.authorization);
      if (operator === null && route.role !== 'open') {
        const waitMs = this.#tries.wrong(from.address);
        if (waitMs > 0) {
          this.#parts.audit.refusedRequest({ actor: '', role: '', route: `${route.method} ${route.path}`, code: Code.rate_limited });
          return tooMany(waitMs);
        }
      }
      return { operator, session: null, from };
    }
    const session = (await this.#parts.sessions?.read(headers.cookie)) ?? null;
    if (session === null) return { operator: null, session, from };
    if (route.method !== 'GET') {
      const why = this.#foreign(request, session, route.role !== 'open');
      if (why !== null) {
        const { name, role } = session.operator;
        this.#parts.audit.refusedRequest({ actor: name, role, route: `${route.method} ${route.path}`, code: Code.forbidden });
        return new Refused(403, Code.forbidden, why);
      }
    }
    return { operator: session.operator, session, from };
  }

  /** Why the request is turned away. @param operator null = nobody */
  refusal(operator: Operator | null): Refused {
    if (operator !== null)
      return new Refused(403, Code.forbidden, `${operator.name} may look but not change: this needs the role operator`);
    const orSignIn = this.#parts.sessions === null ? '' : ', or sign in at /console/';
    return new Refused(401, Code.unauthenticated, `no known credential: send Authorization: Bearer <token>${orSignIn}`);
  }

  /**
   * What makes a change of a browser look like one that another page has sent; null = nothing.
   * @param isOwn it is done in the name of the session. Who signs in anew does not, and his page may know nothing of the one there is.
   */
  #foreign({ headers }: IncomingMessage, session: Session, isOwn: boolean): string | null {
    const given = headers[CSRF_HEADER];
    if (isOwn && (typeof given !== 'string' || this.#parts.sessions?.isCsrf(session, given) !== true))
      return `a change of a session must carry ${CSRF_HEADER} with what GET /v1/session says: it is missing, or of another session`;
    const site = headers['sec-fetch-site'];
    // Both were held against this port's address, where they are there; `none` would be an address that somebody typed.
    if (site === undefined ? headers.origin === undefined : site !== 'same-origin')
      return 'a change of a session must come from a page of this address, and the browser has to say so (Origin, Sec-Fetch-Site)';
    return null;
  }
}

export function tooMany(waitMs: number): Refused {
  const seconds = Math.max(1, Math.ceil(waitMs / 1_000));
  return new Refused(
    429,
    Code.rate_limited,
    `too many wrong credentials from this address: try again in ${seconds} s`,
    [],
    {},
    {
      'retry-after': String(seconds),
    },
  );
}

/** Of the page that asks, as the browser knows it; a proxy that ends TLS says so, and nobody gains by lying. */
function isSecure({ headers }: IncomingMessage): boolean {
  return (
    headers.origin?.startsWith('https:') === true ||
    String(headers['x-forwarded-proto'] ?? '')
      .split(',', 1)[0]
      ?.trim() === 'https'
  );
}
