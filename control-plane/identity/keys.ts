/** The keys of the settings, read once at the start: one signs, all of them count. */
import { createPublicKey, type KeyObject } from 'node:crypto';
import { keyIdOf, publicText, readPrivateKey, readPublicKey } from '../../base/ed25519.ts';
import { readSecret, type SecretSource } from '../../base/secret.ts';
import type { IdentityConfig } from './config.ts';

export interface SigningKey {
  readonly kid: string;
  /** Public half, see `publicText`. */
  readonly public: string;
  readonly privateKey: KeyObject;
}

export interface TrustedKey {
  readonly kid: string;
  readonly public: string;
}

export interface KeyRing {
  readonly signing: SigningKey;
  /** Those of the others that could sign, in the order of the settings. */
  readonly former: readonly SigningKey[];
  /** All that count, the signing one first. */
  readonly trusted: readonly TrustedKey[];
}

/** Throws with a sentence when one cannot be used. */
export function readKeyRing({ signingKey, previousKeys }: IdentityConfig): KeyRing {
  const signing = signingKeyIn(pemOf(signingKey), placeOf(signingKey));
  const trusted = new Map<string, TrustedKey>([[signing.kid, trustedOf(signing)]]);
  const former: SigningKey[] = [];
  for (const source of previousKeys) {
    const pem = pemOf(source);
    if (pem.includes('PRIVATE KEY')) {
      const key = signingKeyIn(pem, placeOf(source));
      if (key.kid !== signing.kid) former.push(key);
      trusted.set(key.kid, trustedOf(key));
    } else {
      const key = readPublicKey(pem);
      if (typeof key === 'string') throw new Error(`identity.previous_keys: ${placeOf(source)}: ${key}`);
      const text = publicText(key);
      trusted.set(keyIdOf(text), { kid: keyIdOf(text), public: text });
    }
  }
  return { signing, former, trusted: [...trusted.values()] };
}

function signingKeyIn(pem: string, place: string): SigningKey {
  const key = readPrivateKey(pem);
  if (typeof key === 'string') throw new Error(`identity: ${place}: ${key}`);
  const text = publicText(createPublicKey(key));
  return { kid: keyIdOf(text), public: text, privateKey: key };
}

function trustedOf({ kid, public: text }: SigningKey): TrustedKey {
  return { kid, public: text };
}

/** In an environment variable, line ends are often written as `\n`. */
function pemOf(source: SecretSource): string {
  return readSecret(source).replaceAll('\\n', '\n');
}

function placeOf(source: SecretSource): string {
  return 'file' in source ? source.file : 'env' in source ? `the variable ${source.env}` : 'the settings';
}
