/** How this program proves itself to NATS, read anew at each dial so that a changed secret is used. */
import type { BusCredential } from '../base/nats-link.ts';
import { readSecret } from '../base/secret.ts';
import type { NatsTls } from '../proto/language/process-shapes.ts';
import type { NatsCredential } from './config.ts';

/** Null = it does not. Throws when a secret cannot be read. */
export function readCredential({ user, password, token, credsFile, nkey }: NatsCredential): BusCredential | null {
  if (user !== null && password !== null) return { user, password: readSecret(password) };
  if (token !== null) return { token: readSecret(token) };
  if (nkey !== null) return { nkeySeed: readSecret(nkey) };
  return credsFile === null ? null : { creds: readSecret({ file: credsFile }) };
}

/** Read by the client at each dial. */
export function tlsFiles({ caFile, certFile, keyFile }: NatsTls): { caFile?: string; certFile?: string; keyFile?: string } {
  return {
    ...(caFile === null ? null : { caFile }),
    ...(certFile === null ? null : { certFile }),
    ...(keyFile === null ? null : { keyFile }),
  };
}
