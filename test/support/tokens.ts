/** Keys and tokens for tests, signed by the library that the control plane uses, with any claims and any header. */
import { createHmac, createPrivateKey, type KeyObject } from 'node:crypto';
import { SignJWT } from 'jose';
import { keyIdOf, newKeyPair, publicText } from '../../base/ed25519.ts';
import { issuerOf, TOKEN_TYPE, type RevokedSubject, type RevokedToken } from '../../proto/wire/identity.ts';
import { Trust } from '../../proto/wire/token.ts';

export const TOKEN_ENV = 'test';

export class TestKey {
  readonly privateKey: KeyObject;
  readonly public: string;
  readonly kid: string;

  constructor() {
    this.privateKey = createPrivateKey(newKeyPair().privatePem);
    this.public = publicText(this.privateKey);
    this.kid = keyIdOf(this.public);
  }

  /** @param atMs wall clock; times that `claims` does not give begin there and end a day later. */
  async sign(claims: Readonly<Record<string, unknown>>, atMs: number, header: Readonly<Record<string, unknown>> = {}): Promise<string> {
    const at = Math.floor(atMs / 1_000);
    const whole = { iss: issuerOf(TOKEN_ENV), aud: 'agent', iat: at, nbf: at, exp: at + 86_400, jti: 'T0123456789', ...claims };
    return new SignJWT(whole).setProtectedHeader({ alg: 'EdDSA', kid: this.kid, typ: TOKEN_TYPE, ...header }).sign(this.privateKey);
  }
}

export function trustOf(
  keys: readonly TestKey[],
  taken: { readonly tokens?: readonly RevokedToken[]; readonly subjects?: readonly RevokedSubject[] } = {},
): Trust {
  return new Trust({
    env: TOKEN_ENV,
    keys: keys.map(({ kid, public: text }) => ({ kid, public: text })),
    tokens: taken.tokens ?? [],
    subjects: taken.subjects ?? [],
  });
}

const part = (value: object | string): string =>
  Buffer.from(typeof value === 'string' ? value : JSON.stringify(value)).toString('base64url');

/** A token by hand: whatever header and claims, signed by whatever function, or not at all. */
export function rawToken(header: object, claims: object, sign: (text: string) => Buffer): string {
  const text = `${part(header)}.${part(claims)}`;
  return `${text}.${sign(text).toString('base64url')}`;
}

export const hmac =
  (secret: string) =>
  (text: string): Buffer =>
    createHmac('sha256', secret).update(text).digest();
