/**
 * Issued identities: who has one, and the orders that issue, rotate and take back. Every order is in force when it is
 * answered and stands in the audit log; a token stands in one answer and nowhere else.
 */
import { formatDuration, parseDuration } from '../../base/duration.ts';
import { agentIdProblem } from '../../proto/language/names.ts';
import type { TrustState } from '../../proto/wire/identity.ts';
import { Tail } from '../../proto/wire/subjects.ts';
import { isSidecarName } from '../../proto/wire/token.ts';
import { type IdentityState, liveOf, type TokenRecord } from '../identity/book.ts';
import type { IdentityDesk, Issued, NotDone } from '../identity/desk.ts';
import type { IdentitiesAnswer, IdentityView, IssuedAnswer, RevokedAnswer, TokenView } from './identity-shapes.ts';
import { recordOrder } from './audited.ts';
import type { Plane } from './plane.ts';
import { absent, conflict, invalid, Refused, unavailable } from './problem.ts';
import { type Asked, json, type Reply, type Route } from './route.ts';
import { mapOf, REASON, reasonIn } from './task-orders.ts';

const MAX_TTL_MS = 400 * 86_400_000;
const MIN_TTL_MS = 1_000;
const MAX_HOMES = 32;
const DAY_MS = 86_400_000;
/** Time to bring a new token to where the old one is used. */
const OVERLAP_MS = DAY_MS;

export function identityRoutes(plane: Plane): readonly Route[] {
  const ttl = { type: 'string', description: `How long it counts, such as 90d; at most ${formatDuration(MAX_TTL_MS)}.` };
  const homes = {
    type: ['array', 'null'],
    items: { type: 'string' },
    maxItems: MAX_HOMES,
    description: 'Of an agent: the sidecars at which it may be used; null or absent = any.',
  };
  const order = { role: 'operator', onLeader: true } as const;
  const body = (properties: Readonly<Record<string, unknown>>) =>
    ({
      contentType: 'application/json',
      doc: 'What is ordered, and why.',
      schema: { type: 'object', properties: { ...properties, reason: REASON } },
    }) as const;
  return [
    {
      method: 'GET',
      path: '/v1/identities',
      role: 'viewer',
      onLeader: false,
      summary: 'To whom tokens have been issued, which of them count, and the keys that count. No token itself.',
      query: [{ name: 'kind', doc: '`agent` or `sidecar`; absent: both.' }],
      answer: { status: 200, doc: 'By name.' },
      handle: ({ query }) => listed(plane, query['kind'] ?? null),
    },
    {
      ...order,
      method: 'POST',
      path: '/v1/identities',
      summary: 'Issues a token to an agent or a sidecar that has none which counts.',
      body: body({ kind: { enum: ['agent', 'sidecar'] }, name: { type: 'string' }, homes, ttl }),
      answer: { status: 201, doc: 'The token: it is shown this once and kept nowhere.' },
      handle: (asked) => issue(plane, asked),
    },
    {
      ...order,
      method: 'POST',
      path: '/v1/identities/:name/rotate',
      summary: 'Issues a further token; the ones before it count for a while yet.',
      params: [{ name: 'name', doc: 'Agent id or name of a sidecar.', example: 'crm.bot.a1' }],
      body: body({
        homes,
        ttl,
        overlap: { type: 'string', description: 'How long the tokens before it count yet: 24h unless it is said.' },
      }),
      answer: { status: 201, doc: 'The token: it is shown this once and kept nowhere.' },
      handle: (asked) => rotate(plane, asked),
    },
    {
      ...order,
      method: 'POST',
      path: '/v1/identities/:name/revoke',
      summary: 'Takes back all that was issued to somebody, or one token by its id; in force on every connected sidecar within a second.',
      params: [{ name: 'name', doc: 'Agent id, name of a sidecar, or id of a token.', example: 'crm.bot.a1' }],
      body: body({}),
      answer: { status: 200, doc: 'In force at this sequence.' },
      handle: (asked) => revoke(plane, asked),
    },
  ];
}

function listed(plane: Plane, kind: string | null): Reply {
  if (kind !== null && kind !== 'agent' && kind !== 'sidecar') return invalid('kind must be agent or sidecar');
  const nowSec = plane.clock.wallMs() / 1_000;
  const states = plane.mirror.tails('ident.').flatMap((tail) => plane.mirror.state<IdentityState>(tail) ?? []);
  const shown = states.filter((state) => kind === null || state.kind === kind).map((state) => viewOf(state, nowSec));
  const signing = plane.leading?.identity?.signingKid ?? null;
  const keys = plane.mirror.state<TrustState>(Tail.trust)?.keys ?? [];
  const answer: IdentitiesAnswer = {
    identities: shown.sort((a, b) => (`${a.kind} ${a.name}` < `${b.kind} ${b.name}` ? -1 : 1)),
    keys: keys.map(({ kid, public: text }) => ({ kid, public: text, signs: kid === signing })),
  };
  return json(answer);
}

function viewOf(state: IdentityState, nowSec: number): IdentityView {
  const isValid = liveOf(state, nowSec).length > 0;
  return {
    kind: state.kind,
    name: state.name,
    status: isValid ? 'valid' : state.revokedBefore > 0 ? 'revoked' : 'expired',
    tokens: state.tokens.map((token) => tokenView(token, nowSec)),
  };
}

function tokenView({ jti, iat, exp, homes, by, revokedFrom }: TokenRecord, nowSec: number): TokenView {
  const isRevoked = revokedFrom !== null && revokedFrom <= nowSec;
  return {
    jti,
    status: isRevoked ? 'revoked' : exp <= nowSec ? 'expired' : revokedFrom === null ? 'valid' : 'ending',
    issued_at_ms: iat * 1_000,
    expires_at_ms: exp * 1_000,
    revoked_from_ms: revokedFrom === null ? null : revokedFrom * 1_000,
    homes,
    by,
  };
}

async function issue(plane: Plane, asked: Asked): Promise<Reply> {
  const map = mapOf(asked, ['kind', 'name', 'homes', 'ttl']);
  if (map instanceof Refused) return map;
  const desk = deskOf(plane);
  if (desk instanceof Refused) return desk;
  const { kind, name } = map;
  if (kind !== 'agent' && kind !== 'sidecar') return invalid('kind must be agent or sidecar');
  if (typeof name !== 'string') return invalid('name must be a text');
  const problem = nameProblem(kind, name);
  if (problem !== null) return invalid(problem);
  const homes = homesIn(map['homes']);
  if (typeof homes === 'string') return invalid(homes);
  if (kind === 'sidecar' && homes != null) return invalid('homes are for agents');
  const ttlMs = durationIn(map['ttl'], 'ttl', MIN_TTL_MS);
  if (typeof ttlMs === 'string') return invalid(ttlMs);
  const by = asked.operator?.name ?? '';
  const issued = await desk.issue({ kind, name, homes: homes ?? null, ttlMs, by });
  return told(plane, asked, `${kind}.add`, kind, name, issued, reasonIn(map));
}

async function rotate(plane: Plane, asked: Asked): Promise<Reply> {
  const map = mapOf(asked, ['homes', 'ttl', 'overlap']);
  if (map instanceof Refused) return map;
  const desk = deskOf(plane);
  if (desk instanceof Refused) return desk;
  const name = asked.params['name'] ?? '';
  const homes = homesIn(map['homes']);
  if (typeof homes === 'string') return invalid(homes);
  if (homes != null && isSidecarName(name)) return invalid('homes are for agents');
  const ttlMs = durationIn(map['ttl'], 'ttl', MIN_TTL_MS);
  if (typeof ttlMs === 'string') return invalid(ttlMs);
  const overlapMs = durationIn(map['overlap'], 'overlap', 0);
  if (typeof overlapMs === 'string') return invalid(overlapMs);
  const kind = isSidecarName(name) ? 'sidecar' : 'agent';
  const issued = await desk.rotate({ name, homes, ttlMs, by: asked.operator?.name ?? '' }, overlapMs ?? OVERLAP_MS);
  return told(plane, asked, `${kind}.rotate`, kind, name, issued, reasonIn(map));
}

async function told(
  plane: Plane,
  asked: Asked,
  what: string,
  kind: 'agent' | 'sidecar',
  name: string,
  issued: Issued | NotDone,
  reason: string,
): Promise<Reply> {
  if (!('token' in issued)) return refusalOf(issued);
  const { token, record, seq } = issued;
  const { jti, exp, homes } = record;
  audit(plane, asked, what, name, { jti, expires_at_ms: exp * 1_000, homes }, reason);
  const answer: IssuedAnswer = { kind, name, jti, token, expires_at_ms: exp * 1_000, homes, seq };
  return json(answer, 201);
}

async function revoke(plane: Plane, asked: Asked): Promise<Reply> {
  const map = mapOf(asked, []);
  if (map instanceof Refused) return map;
  const desk = deskOf(plane);
  if (desk instanceof Refused) return desk;
  const target = asked.params['name'] ?? '';
  const done = await desk.revoke(target);
  // What NATS does not confirm is written as soon as it can be: it was ordered, and stands in the log.
  if ('why' in done && done.kind !== 'unavailable') return refusalOf(done);
  const kind = 'name' in done ? done.kind : isSidecarName(target) ? 'sidecar' : 'agent';
  audit(plane, asked, `${kind}.revoke`, 'name' in done ? done.name : target, { revoked: target }, reasonIn(map));
  if ('why' in done) return refusalOf(done);
  const answer: RevokedAnswer = { kind: done.kind, name: done.name, revoked: target, seq: done.seq };
  return json(answer);
}

function deskOf(plane: Plane): IdentityDesk | Refused {
  if (plane.leading === null) return unavailable('this replica has just stopped leading; ask again');
  return plane.leading.identity ?? conflict('no identities are issued here: control_plane.identity names no signing key');
}

function audit(plane: Plane, asked: Asked, what: string, target: string, after: unknown, reason: string): void {
  recordOrder(plane, asked, { what, target, before: null, after, reason });
}

function refusalOf({ kind, why }: NotDone): Refused {
  return kind === 'absent' ? absent(why) : kind === 'conflict' ? conflict(why) : unavailable(why);
}

function nameProblem(kind: 'agent' | 'sidecar', name: string): string | null {
  if (kind === 'agent') return agentIdProblem(name);
  return isSidecarName(name)
    ? null
    : `${JSON.stringify(name.slice(0, 80))} is not the name of a sidecar: 1 to 63 of a-z, 0-9, _ and -, beginning with a letter or digit`;
}

/** Undefined = not said. */
function homesIn(value: unknown): readonly string[] | null | undefined | string {
  if (value === undefined || value === null) return value;
  const isList = Array.isArray(value) && value.length > 0 && value.length <= MAX_HOMES;
  if (isList && value.every((home) => typeof home === 'string' && isSidecarName(home))) return [...new Set(value as string[])].sort();
  return `homes must be a list of 1 to ${MAX_HOMES} names of sidecars`;
}

/** Null = not said. */
function durationIn(value: unknown, what: string, leastMs: number): number | null | string {
  if (value === undefined || value === null) return null;
  const ms = parseDuration(value, MAX_TTL_MS);
  if (typeof ms === 'string') return `${what}: ${ms}`;
  return ms < leastMs ? `${what} must be at least ${formatDuration(leastMs)}` : ms;
}
