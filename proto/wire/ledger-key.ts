/** Under which subject of AR_IDEM a claim lies: whoever claims and whoever frees it for people mean the same one. */
import { createHash } from 'node:crypto';

/** One subject token. `key` is the caller's, or the task's id where the caller gave none. */
export function ledgerKey(source: string, capability: string, key: string): string {
  return createHash('sha256').update(`${source}\0${capability}\0${key}`).digest('base64url');
}
