/**
 * Whether a token counts. Exactly one form is taken: Ed25519, a key that is trusted by its id, our type, our environment,
 * the audience that is asked for, a time that includes now. Whatever the token says about how it wants to be judged
 * (`alg`, `jku`, `x5c`, `crit` …) changes nothing: it is refused for saying it. Keeping what was found out is left to
 * whoever asks often.
 */
import type { KeyObject } from 'node:crypto';
import { openCompact } from '../../base/compact-jws.ts';
import { isSignedBy, keyIdOf, publicKeyFrom } from '../../base/ed25519.ts';
import { isAgentId } from '../language/names.ts';
import { type Audience, type Claims, issuerOf, TOKEN_TYPE, type TrustState } from './identity.ts';

/** A token of ours has 350 to 450 characters; with many homes more. */
export const MAX_TOKEN_CHARS = 4_096;
/** Clocks of machines differ by so much, seconds. */
export const SKEW_SEC = 60;
const MAX_HOMES = 32;
const SIDECAR = /^[a-z0-9][a-z0-9_-]{0,62}$/;
const JTI = /^[A-Za-z0-9_-]{8,64}$/;
/** 2100: later is a slip of the unit. */
const MAX_SEC = 4_102_444_800;

/** The keys of a trust document, ready for use, and what it says of revocation, by name. */
export class Trust {
  readonly env: string;
  readonly #keys = new Map<string, KeyObject>();
  readonly #tokens = new Map<string, number>();
  readonly #subjects = new Map<string, number>();

  constructor(state: Pick<TrustState, 'env' | 'keys' | 'tokens' | 'subjects'>) {
    this.env = state.env;
    for (const { kid, public: text } of state.keys) {
      const key = publicKeyFrom(text);
      // An id that was not made from its key could stand for another one tomorrow.
      if (key !== null && keyIdOf(text) === kid) this.#keys.set(kid, key);
    }
    for (const { jti, from } of state.tokens) this.#tokens.set(jti, Math.min(from, this.#tokens.get(jti) ?? Number.POSITIVE_INFINITY));
    for (const { kind, sub, before } of state.subjects) {
      const key = `${kind} ${sub}`;
      this.#subjects.set(key, Math.max(before, this.#subjects.get(key) ?? 0));
    }
  }

  get size(): number {
    return this.#keys.size;
  }

  key(kid: string): KeyObject | null {
    return this.#keys.get(kid) ?? null;
  }

  /** The second from which a token does not count any more, whatever it says itself; Infinity = none is known. */
  revokedFrom({ jti, aud, sub, iat }: Claims): number {
    if (this.isRevokedBefore(aud === 'sidecar' ? 'sidecar' : 'agent', sub, iat)) return 0;
    return this.#tokens.get(jti) ?? Number.POSITIVE_INFINITY;
  }

  /** Whether what was issued to somebody at that second has been taken back as a whole. */
  isRevokedBefore(kind: 'agent' | 'sidecar', sub: string, issuedAtSec: number): boolean {
    if (this.#subjects.size === 0) return false;
    const before = this.#subjects.get(`${kind} ${sub}`);
    return before !== undefined && issuedAtSec <= before;
  }
}

export const NO_TRUST = new Trust({ env: '', keys: [], tokens: [], subjects: [] });

/** A token whose signature is good, with the key that it is. */
export interface Verified {
  readonly kid: string;
  readonly claims: Claims;
}

/** Why a token does not count, in words that hold nothing of the token itself. */
export interface NotVerified {
  readonly why: string;
}

const refused = (why: string): NotVerified => ({ why });

/** Signature, form, environment and audience; not the time and not revocation, which change without the token. */
export function verifyToken(text: string, trust: Trust, audience: Audience): Verified | NotVerified {
  const opened = openCompact(text, MAX_TOKEN_CHARS);
  if (opened === null) return refused('it is no token of Agent-Reach');
  const { header, payload } = opened;
  if (header['typ'] !== TOKEN_TYPE || header['alg'] !== 'EdDSA') return refused('it is no token of Agent-Reach');
  if (Object.keys(header).length !== 3 || typeof header['kid'] !== 'string') return refused('its header says more or less than it may');
  const key = trust.key(header['kid']);
  if (key === null) return refused('it is signed with a key that is not trusted here (any more, or yet)');
  if (!isSignedBy(key, opened.signedText, opened.signature)) return refused('its signature is wrong');
  const claims = readClaims(payload);
  if (claims === null) return refused('its claims cannot be read');
  if (claims.iss !== issuerOf(trust.env)) return refused('it was issued in another environment');
  if (claims.aud !== audience) return refused(`it is ${AUDIENCE_WORDS[claims.aud]}, and ${AUDIENCE_WORDS[audience]} is wanted here`);
  return { kid: header['kid'], claims };
}

/** What is against a verified token at this moment; null = nothing. */
export function standingProblem(claims: Claims, trust: Trust, nowSec: number): string | null {
  if (nowSec < claims.nbf - SKEW_SEC || nowSec < claims.iat - SKEW_SEC) return 'it is not valid yet';
  if (nowSec >= claims.exp + SKEW_SEC) return 'it has expired';
  return nowSec >= trust.revokedFrom(claims) ? 'it has been revoked' : null;
}

/** The second at which it ends to count, as things stand. */
export function endOf(claims: Claims, trust: Trust): number {
  return Math.min(claims.exp + SKEW_SEC, trust.revokedFrom(claims));
}

const AUDIENCE_WORDS: Readonly<Record<Audience, string>> = {
  agent: "an agent's token",
  sidecar: "a sidecar's token",
  home: 'a statement about a home',
};

function readClaims(payload: Readonly<Record<string, unknown>>): Claims | null {
  const { iss, sub, aud, iat, nbf, exp, jti, homes, via } = payload;
  if (typeof iss !== 'string' || typeof sub !== 'string' || typeof jti !== 'string' || !JTI.test(jti)) return null;
  if (!isSecond(iat) || !isSecond(nbf) || !isSecond(exp) || exp <= iat) return null;
  const times = { iat, nbf, exp };
  switch (aud) {
    case 'agent':
      if (!isAgentId(sub) || via !== undefined) return null;
      if (homes === undefined) return { iss, sub, aud, ...times, jti };
      return areHomes(homes) ? { iss, sub, aud, ...times, jti, homes } : null;
    case 'sidecar':
      return isSidecarName(sub) && homes === undefined && via === undefined ? { iss, sub, aud, ...times, jti } : null;
    case 'home':
      if (!isAgentId(sub) || homes !== undefined || typeof via !== 'string' || !isSidecarName(via)) return null;
      return { iss, sub, aud, ...times, jti, via };
    default:
      return null;
  }
}

export function isSidecarName(text: string): boolean {
  return SIDECAR.test(text);
}

function areHomes(homes: unknown): homes is readonly string[] {
  return (
    Array.isArray(homes) &&
    homes.length > 0 &&
    homes.length <= MAX_HOMES &&
    homes.every((home) => typeof home === 'string' && isSidecarName(home))
  );
}

function isSecond(value: unknown): value is number {
  return typeof value === 'number' && Number.isInteger(value) && value >= 0 && value <= MAX_SEC;
}

/** Whether a text is a token of ours at all, good or not: it must not be passed on to anybody. */
export function isReachToken(text: string): boolean {
  return openCompact(text, MAX_TOKEN_CHARS)?.header['typ'] === TOKEN_TYPE;
}
