/**
 * The trust document as this sidecar has it: which keys count, and what has been taken back. Read with the same distrust as
 * the table: one that cannot be read is refused, visibly, and what was in force stays. What follows from it is decided by
 * whoever judges tokens.
 */
import { keyIdOf, publicKeyFrom } from '../../base/ed25519.ts';
import type { RevokedSubject, RevokedToken, TrustState } from '../../proto/wire/identity.ts';
import { REGISTRY_WIRE } from '../../proto/wire/registry.ts';
import { Tail } from '../../proto/wire/subjects.ts';
import type { Opened, Unreadable } from './readable.ts';
import { TailState } from './tail-state.ts';

/** @param env an other environment's keys are none here. */
export function trustTail(env: string): TailState<TrustState> {
  const none: TrustState = Object.freeze({ wire: REGISTRY_WIRE, epoch: '', env, keys: [], tokens: [], subjects: [] });
  return new TailState<TrustState>(Tail.trust, none, (opened) => readTrust(opened, env));
}

function readTrust({ value }: Opened, env: string): TrustState | Unreadable {
  const { keys, tokens, subjects } = value;
  if (value['env'] !== env) return { problem: 'it is of another environment' };
  if (!Array.isArray(keys) || !keys.every(isKey)) return { problem: 'keys must be a list of Ed25519 keys with their ids' };
  if (!Array.isArray(tokens) || !tokens.every(isToken)) return { problem: 'tokens must be a list of revoked tokens' };
  if (!Array.isArray(subjects) || !subjects.every(isSubject)) return { problem: 'subjects must be a list of revoked subjects' };
  return value as unknown as TrustState;
}

function isKey(one: unknown): boolean {
  if (!isMap(one)) return false;
  const text = one['public'];
  return typeof text === 'string' && publicKeyFrom(text) !== null && one['kid'] === keyIdOf(text);
}

function isToken(one: unknown): boolean {
  if (!isMap(one)) return false;
  const { jti, from, until } = one as unknown as RevokedToken;
  return typeof jti === 'string' && isSecond(from) && isSecond(until);
}

function isSubject(one: unknown): boolean {
  if (!isMap(one)) return false;
  const { kind, sub, before, until } = one as unknown as RevokedSubject;
  return (kind === 'agent' || kind === 'sidecar') && typeof sub === 'string' && isSecond(before) && isSecond(until);
}

function isSecond(value: unknown): boolean {
  return typeof value === 'number' && Number.isFinite(value) && value >= 0;
}

function isMap(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}
