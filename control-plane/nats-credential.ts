/** How this program proves itself to NATS, read anew at each dial so that a changed secret is used. */
import type { BusCredential } from '../base/nats-link.ts';
import { readSecret } from '../base/secret.ts';
import type { NatsCredential } from './config.ts';

/** Null = it does not. Throws when a secret cannot be read. */
export function readCredential({ user, password, token, credsFile }: NatsCredential): BusCredential | null {
  if (user !== null && password !== null) return { user, password: readSecret(password) };
  if (token !== null) return { token: readSecret(token) };
  return credsFile === null ? null : { creds: readSecret({ file: credsFile }) };
}
