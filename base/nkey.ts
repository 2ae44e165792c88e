/**
 * Nkeys: Ed25519 keys in the form in which NATS writes them. A user proves itself by signing what the server sends; the seed
 * never leaves its machine, and the server's configuration has the public half alone.
 */
import { createUser, fromSeed } from 'nkeys.js';

export interface UserKey {
  /** `SU…`, secret. */
  readonly seed: string;
  /** `U…` */
  readonly publicKey: string;
}

export function newUserKey(): UserKey {
  const pair = createUser();
  return { seed: Buffer.from(pair.getSeed()).toString('utf8'), publicKey: pair.getPublicKey() };
}

/** Null when it is not the seed of a user's key. */
export function publicKeyOf(seed: string): string | null {
  try {
    const publicKey = fromSeed(Buffer.from(seed.trim(), 'utf8')).getPublicKey();
    return isUserKey(publicKey) ? publicKey : null;
  } catch {
    return null;
  }
}

/** Has the form of one. */
export function isUserKey(text: string): boolean {
  return /^U[A-Z2-7]{55}$/.test(text);
}
