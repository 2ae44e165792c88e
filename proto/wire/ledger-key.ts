/** Under which subject of AR_IDEM something lies: whoever claims and whoever frees it for people mean the same one. */
import { createHash } from 'node:crypto';

/** One subject token. `key` is the caller's, or the task's id where the caller gave none. */
export function ledgerKey(source: string, capability: string, key: string): string {
  return createHash('sha256').update(`${source}\0${capability}\0${key}`).digest('base64url');
}

/** Where the acknowledged floor of an agent's inbox lies. No key of a claim looks like it. */
export function floorKey(agent: string): string {
  return `floor_${createHash('sha256').update(agent).digest('base64url')}`;
}
