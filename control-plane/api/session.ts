/**
 * Signing in with a browser, and out. `POST /v1/session` takes an operator's token out of the body, once, and answers with the
 * cookie of a session; nothing keeps the token. `GET` says who is signed in and what changes have to carry; `DELETE` ends the
 * session on every replica while NATS can be reached, and in any case here and in the browser.
 */
import { Code } from '../../proto/wire/codes.ts';
import type { EndedBook } from '../sessions/ended.ts';
import type { Session, Sessions } from '../sessions/sessions.ts';
import { Tries } from '../sessions/tries.ts';
import type { Operators } from './operators.ts';
import type { Plane } from './plane.ts';
import { invalid, Refused } from './problem.ts';
import { type Asked, bodyMap, json, type Reply, type Route, strayKey } from './route.ts';
import { CSRF_HEADER, tooMany } from './who.ts';

/** A person mistypes a few times. A right token passes whatever others have tried from the same address. */
const BURST = 10;
const PER_SEC = 0.2;
const MAX_TOKEN_CHARS = 1_024;
/** It is read before anybody knows who asks. */
const MAX_BODY_BYTES = 8_192;

export interface SessionAnswer {
  readonly name: string;
  readonly role: 'viewer' | 'operator';
  /** What a change must carry in `x-reach-csrf`. */
  readonly csrf: string;
  /** Wall clock. */
  readonly begun_ms: number;
  readonly until_ms: number;
  readonly env: string;
  readonly replica: string;
  readonly version: string;
}

export interface SessionEndedAnswer {
  readonly ended: true;
  /** False: only here for the time being, and why. */
  readonly on_all_replicas: boolean;
  readonly why: string | null;
}

export interface SessionParts {
  readonly plane: Plane;
  readonly operators: Operators;
  readonly sessions: Sessions;
  /** Where the other replicas learn of what was ended. */
  readonly book: Pick<EndedBook, 'share'>;
}

export function sessionRoutes(parts: SessionParts): readonly Route[] {
  const { plane } = parts;
  const tries = new Tries({ clock: plane.clock, burst: BURST, perSec: PER_SEC });
  return [
    {
      method: 'POST',
      path: '/v1/session',
      role: 'open',
      onLeader: false,
      summary: 'Signs in: an operator’s token against the cookie of a session. For browsers; programs send the token each time.',
      body: {
        contentType: 'application/json',
        doc: 'The token.',
        maxBytes: MAX_BODY_BYTES,
        schema: { type: 'object', required: ['token'], properties: { token: { type: 'string' } }, additionalProperties: false },
      },
      answer: { status: 201, doc: `Who it is, and what changes must carry in ${CSRF_HEADER}; the cookie is in Set-Cookie.` },
      handle: (asked) => begin(parts, tries, asked),
    },
    {
      method: 'GET',
      path: '/v1/session',
      role: 'viewer',
      onLeader: false,
      summary: 'Who is signed in.',
      answer: { status: 200, doc: `Name, role, until when, and what changes must carry in ${CSRF_HEADER}.` },
      handle: ({ session }) => (session === null ? invalid(NO_SESSION) : json(answerOf(plane, session))),
    },
    {
      method: 'DELETE',
      path: '/v1/session',
      role: 'viewer',
      onLeader: false,
      summary: 'Signs out: the cookie is good nowhere any more.',
      query: [{ name: 'everywhere', doc: '`true`: all sessions of the same operator end.' }],
      answer: { status: 200, doc: '`on_all_replicas`: false = only here for the time being, and why.' },
      handle: (asked) => end(parts, asked),
    },
  ];
}

const NO_SESSION = 'this request carries a token and no session: a session begins with POST /v1/session';

async function begin({ plane, operators, sessions }: SessionParts, tries: Tries, asked: Asked): Promise<Reply> {
  const { address, isSecure } = asked.from;
  const map = bodyMap(asked);
  if (typeof map === 'string') return invalid(map);
  const stray = strayKey(map, ['token']);
  if (stray !== null) return invalid(stray);
  const { token } = map;
  if (typeof token !== 'string' || token === '' || token.length > MAX_TOKEN_CHARS)
    return invalid('token must be a text: the one of an operator');
  // By its hash: cheap. The slow key is made for an operator who is known, once in a process.
  const operator = operators.of(`Bearer ${token}`);
  if (operator === null) {
    const waitMs = tries.wrong(address);
    if (waitMs > 0) return refused(plane, tooMany(waitMs));
    return refused(plane, new Refused(401, Code.unauthenticated, 'no operator of this control plane has this token'));
  }
  const { session, cookie } = await sessions.begin(operator);
  plane.audit.record({
    actor: operator.name,
    role: operator.role,
    action: 'session.begin',
    subject: operator.name,
    detail: { address },
    outcome: 'done',
  });
  return { status: 201, json: answerOf(plane, session), headers: { 'set-cookie': sessions.setCookie(cookie, isSecure) } };
}

async function end({ plane, sessions, book }: SessionParts, { session, query, from }: Asked): Promise<Reply> {
  if (session === null) return invalid(NO_SESSION);
  const { everywhere = 'false' } = query;
  if (everywhere !== 'true' && everywhere !== 'false') return invalid('everywhere must be true or false');
  sessions.end(session, everywhere === 'true');
  const { name, role } = session.operator;
  plane.audit.record({
    actor: name,
    role,
    action: 'session.end',
    subject: name,
    detail: { everywhere: everywhere === 'true' },
    outcome: 'done',
  });
  const why = await book.share();
  const headers = { 'set-cookie': sessions.setCookie('', from.isSecure) };
  const answer: SessionEndedAnswer = { ended: true, on_all_replicas: why === null, why };
  return { status: 200, json: answer, headers };
}

/** Who tries tokens is counted as at every other door. */
function refused(plane: Plane, refusal: Refused): Refused {
  plane.audit.refusedRequest({ actor: '', role: '', route: 'POST /v1/session', code: refusal.code });
  return refusal;
}

function answerOf(plane: Plane, { operator, csrf, begunMs, untilMs }: Session): SessionAnswer {
  const { env, name: replica, version } = plane;
  return { name: operator.name, role: operator.role, csrf, begun_ms: begunMs, until_ms: untilMs, env, replica, version };
}
