/** Tokens for one run: nobody has to know them, and none is used twice. */
import { randomBytes } from 'node:crypto';

export function secret(): string {
  return randomBytes(18).toString('base64url');
}
