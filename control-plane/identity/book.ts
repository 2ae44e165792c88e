/**
 * What has been issued and what was taken back: one stored state for each agent and sidecar, never a token itself. Pure: who
 * is written where, and who may order it, is decided elsewhere. Whoever has been taken back stays in the book for as long as
 * anything that was issued before could count.
 */
import { isAgentId } from '../../proto/language/names.ts';
import { REGISTRY_WIRE } from '../../proto/wire/registry.ts';
import type { RevokedSubject, RevokedToken } from '../../proto/wire/identity.ts';
import { isSidecarName, SKEW_SEC } from '../../proto/wire/token.ts';

export type IdentityKind = 'agent' | 'sidecar';

/** Times are seconds since 1970. */
export interface TokenRecord {
  readonly jti: string;
  readonly iat: number;
  readonly exp: number;
  /** null = any sidecar of the environment. */
  readonly homes: readonly string[] | null;
  /** The operator. */
  readonly by: string;
  /** From when it does not count any more although it has not ended; null = nobody has taken it back. */
  readonly revokedFrom: number | null;
}

/** Stored as `ident.<kind>.<name>`. */
export interface IdentityState {
  readonly wire: number;
  readonly epoch: string;
  readonly kind: IdentityKind;
  readonly name: string;
  /** Newest last. */
  readonly tokens: readonly TokenRecord[];
  /** Everything issued at this second or earlier has been taken back; 0 = nothing. */
  readonly revokedBefore: number;
  /** Until when what was issued then could have counted; 0 = nothing. */
  readonly revokedUntil: number;
}

/** A certificate is not issued here and may last as long as its authority has said: so long a sidecar stays in the list. */
const CERTIFICATE_SEC = 3 * 366 * 86_400;
/** A message may wait for long after the statement that it carries has ended; what was taken back must not count again meanwhile. */
const MESSAGE_SEC = 90 * 86_400;
/** What has ended is shown for so long. */
const SHOWN_SEC = 30 * 86_400;

export function nobody(kind: IdentityKind, name: string, epoch: string): IdentityState {
  return { wire: REGISTRY_WIRE, epoch, kind, name, tokens: [], revokedBefore: 0, revokedUntil: 0 };
}

export function isLive({ exp, revokedFrom }: TokenRecord, nowSec: number): boolean {
  return nowSec < exp && (revokedFrom === null || nowSec < revokedFrom);
}

export function liveOf(state: IdentityState, nowSec: number): readonly TokenRecord[] {
  return state.tokens.filter((token) => isLive(token, nowSec));
}

/** When something that is issued now may begin to count: after everything that was taken back as a whole. */
export function issuedAt(state: IdentityState, nowSec: number): number {
  return Math.max(Math.floor(nowSec), state.revokedBefore + 1);
}

export function withToken(state: IdentityState, token: TokenRecord, nowSec: number): IdentityState {
  return { ...state, tokens: [...state.tokens.filter(({ exp }) => nowSec < exp + SHOWN_SEC), token] };
}

/** Tokens that count now end at that second, unless they end before. */
export function endingAt(state: IdentityState, which: (token: TokenRecord) => boolean, fromSec: number): IdentityState {
  const tokens = state.tokens.map((token) =>
    which(token) && (token.revokedFrom === null || token.revokedFrom > fromSec) && token.exp > fromSec
      ? { ...token, revokedFrom: fromSec }
      : token,
  );
  return { ...state, tokens };
}

/** Takes back everything that was issued until now: tokens, statements about homes, certificates. */
export function revokedWhole(state: IdentityState, nowSec: number, homeTtlSec: number): IdentityState {
  const before = Math.floor(nowSec);
  const ended = endingAt(state, () => true, before);
  const lastSec = Math.max(
    ...ended.tokens.map(({ exp }) => exp),
    before + homeTtlSec,
    before + (state.kind === 'sidecar' ? CERTIFICATE_SEC : MESSAGE_SEC),
  );
  return { ...ended, revokedBefore: before, revokedUntil: lastSec + SKEW_SEC };
}

/** What sidecars have to know of all that was taken back, in an order that depends on nothing else. */
export function revocations(
  states: Iterable<IdentityState>,
  nowSec: number,
): { readonly tokens: RevokedToken[]; readonly subjects: RevokedSubject[] } {
  const tokens: RevokedToken[] = [];
  const subjects: RevokedSubject[] = [];
  for (const { kind, name, tokens: records, revokedBefore, revokedUntil } of states) {
    if (revokedBefore > 0 && nowSec < revokedUntil) subjects.push({ kind, sub: name, before: revokedBefore, until: revokedUntil });
    for (const { jti, iat, exp, revokedFrom } of records)
      if (revokedFrom !== null && iat > revokedBefore && nowSec < exp + SKEW_SEC)
        tokens.push({ jti, from: revokedFrom, until: exp + SKEW_SEC });
  }
  return {
    tokens: tokens.sort((a, b) => (a.jti < b.jti ? -1 : 1)),
    subjects: subjects.sort((a, b) => (`${a.kind} ${a.sub}` < `${b.kind} ${b.sub}` ? -1 : 1)),
  };
}

/** Two accounts of one identity, such as one that was exported before the stream was lost: what either has taken back stays so. */
export function merged(a: IdentityState, b: IdentityState): IdentityState {
  const tokens = new Map(b.tokens.map((token) => [token.jti, token]));
  for (const token of a.tokens) {
    const other = tokens.get(token.jti)?.revokedFrom ?? null;
    const revokedFrom = other === null || token.revokedFrom === null ? (token.revokedFrom ?? other) : Math.min(token.revokedFrom, other);
    tokens.set(token.jti, { ...token, revokedFrom });
  }
  return {
    ...a,
    tokens: [...tokens.values()].sort((one, two) => one.iat - two.iat),
    revokedBefore: Math.max(a.revokedBefore, b.revokedBefore),
    revokedUntil: Math.max(a.revokedUntil, b.revokedUntil),
  };
}

/** From an export that somebody may have written in; null = it is none. */
export function readIdentity(value: unknown): IdentityState | null {
  if (typeof value !== 'object' || value === null) return null;
  const { kind, name, tokens, revokedBefore, revokedUntil } = value as Partial<IdentityState>;
  if (typeof name !== 'string' || !Array.isArray(tokens) || !isSecond(revokedBefore) || !isSecond(revokedUntil)) return null;
  if (!(kind === 'agent' ? isAgentId(name) : kind === 'sidecar' && isSidecarName(name))) return null;
  const records: TokenRecord[] = [];
  for (const { jti, iat, exp, homes, by, revokedFrom } of tokens as readonly TokenRecord[]) {
    const areHomes = homes === null || (Array.isArray(homes) && homes.every((home) => typeof home === 'string'));
    if (typeof jti !== 'string' || !isSecond(iat) || !isSecond(exp) || !areHomes || typeof by !== 'string') return null;
    if (revokedFrom !== null && !isSecond(revokedFrom)) return null;
    records.push({ jti, iat, exp, homes, by, revokedFrom });
  }
  return { wire: REGISTRY_WIRE, epoch: '', kind: kind as IdentityKind, name, tokens: records, revokedBefore, revokedUntil };
}

function isSecond(value: unknown): value is number {
  return typeof value === 'number' && Number.isFinite(value) && value >= 0;
}
