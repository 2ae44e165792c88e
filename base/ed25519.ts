/**
 * Ed25519 keys as files have them (PEM) and as messages carry them (the 32 bytes of the public half, base64url). The id of
 * a key is the thumbprint of RFC 7638, so that an id can never name another key than the one it was made from.
 */
import { createHash, createPrivateKey, createPublicKey, generateKeyPairSync, type KeyObject, verify } from 'node:crypto';

/** 32 bytes. */
const PUBLIC_TEXT = /^[A-Za-z0-9_-]{43}$/;
/** 64 bytes. */
export const SIGNATURE_BYTES = 64;

/** A private key from PEM (PKCS #8); a sentence when it is none. The text itself is never repeated. */
export function readPrivateKey(pem: string): KeyObject | string {
  try {
    const key = createPrivateKey(pem);
    return key.asymmetricKeyType === 'ed25519' ? key : `an Ed25519 key is needed, and this one is ${key.asymmetricKeyType ?? 'another'}`;
  } catch {
    return 'it holds no private key in PEM (-----BEGIN PRIVATE KEY-----)';
  }
}

/** A public key from PEM, of a private one its public half; a sentence when it is neither. */
export function readPublicKey(pem: string): KeyObject | string {
  try {
    const key = createPublicKey(pem);
    return key.asymmetricKeyType === 'ed25519' ? key : `an Ed25519 key is needed, and this one is ${key.asymmetricKeyType ?? 'another'}`;
  } catch {
    return 'it holds no key in PEM';
  }
}

/** The public half as text; of a public key itself. */
export function publicText(key: KeyObject): string {
  const half = key.type === 'private' ? createPublicKey(key) : key;
  return half.export({ format: 'jwk' }).x as string;
}

/** Null when the text is no public key. */
export function publicKeyFrom(text: string): KeyObject | null {
  if (!PUBLIC_TEXT.test(text)) return null;
  try {
    return createPublicKey({ key: { kty: 'OKP', crv: 'Ed25519', x: text }, format: 'jwk' });
  } catch {
    return null;
  }
}

/** @param text public half, see `publicText`. */
export function keyIdOf(text: string): string {
  return createHash('sha256').update(`{"crv":"Ed25519","kty":"OKP","x":"${text}"}`).digest('base64url');
}

export function isSignedBy(key: KeyObject, data: string, signature: Uint8Array): boolean {
  return signature.length === SIGNATURE_BYTES && verify(null, Buffer.from(data, 'latin1'), key, signature);
}

/** A new pair, both halves in PEM. */
export function newKeyPair(): { readonly privatePem: string; readonly publicPem: string } {
  const { privateKey, publicKey } = generateKeyPairSync('ed25519');
  return {
    privatePem: privateKey.export({ format: 'pem', type: 'pkcs8' }) as string,
    publicPem: publicKey.export({ format: 'pem', type: 'spki' }) as string,
  };
}
