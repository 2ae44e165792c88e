/** Under which subject of AR_IDEM something lies: whoever claims and whoever frees it for people mean the same one. And whose a key is. */
import { createHash } from 'node:crypto';
import { isAgentId } from '../language/names.ts';

/** Form of the records. */
export const LEDGER_WIRE = 1;

/** One subject token. `key` is the caller's, or the task's id where the caller gave none. */
export function ledgerKey(source: string, capability: string, key: string): string {
  return createHash('sha256').update(`${source}\0${capability}\0${key}`).digest('base64url');
}

/** Where the acknowledged floor of an agent's inbox lies. No key of a claim looks like it. */
export function floorKey(agent: string): string {
  return `floor_${createHash('sha256').update(agent).digest('base64url')}`;
}

const MAX_TIME_DIGITS = 16;

/**
 * The agent that has minted a key of the form `{agent_id}:{task_id}:{timestamp_ms}`; null = it has another form, and says nothing
 * of anybody. Asked of calls and messages alike.
 */
export function keyOwner(key: string): string | null {
  const first = key.indexOf(':');
  const second = first < 0 ? -1 : key.indexOf(':', first + 1);
  if (second <= first + 1 || !isTime(key, second + 1)) return null;
  const agent = key.slice(0, first);
  return isAgentId(agent) ? agent : null;
}

/** Digits up to the end. */
function isTime(key: string, from: number): boolean {
  if (from >= key.length || key.length - from > MAX_TIME_DIGITS) return false;
  for (let i = from; i < key.length; i++) {
    const c = key.charCodeAt(i);
    if (c < 0x30 || c > 0x39) return false;
  }
  return true;
}
