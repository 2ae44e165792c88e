/** Signing: what is claimed, as the compact text that everybody verifies. By the library jose; loaded when something is signed. */
import type { Claims } from '../../proto/wire/identity.ts';
import { TOKEN_TYPE } from '../../proto/wire/identity.ts';
import type { SigningKey } from './keys.ts';

export async function signClaims(claims: Claims, key: SigningKey): Promise<string> {
  const { SignJWT } = await import('jose');
  return new SignJWT({ ...claims }).setProtectedHeader({ alg: 'EdDSA', kid: key.kid, typ: TOKEN_TYPE }).sign(key.privateKey);
}
