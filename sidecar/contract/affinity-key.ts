/** The conversation key of a call: what keeps a session on one agent. Read before `resolve`, which keeps canaries stable per key. */
import { createHash } from 'node:crypto';
import { sourceAt } from '../../base/json-source.ts';
import { Header } from '../../proto/wire/headers.ts';
import { type Call, headerOf, payloadOf } from '../call/call.ts';

/** Longer keys, and those that no header could carry, are kept as a digest: a caller cannot fill the binding table with megabytes. */
const LONGEST_KEPT = 128;

/** The contract's own place first, then `Reach-Affinity`, then the sender's conversation; null when none is given (or empty). */
export function affinityKeyOf(call: Call): string | null {
  const rule = call.capability?.versions[0]?.contract.affinity ?? null;
  let key: string | null = null;
  if (rule !== null) key = 'header' in rule.from ? headerOf(call, rule.from.header) : at(call, rule.from.pointer);
  if (key === null || key === '') key = headerOf(call, Header.affinity);
  if (key === null || key === '') key = headerOf(call, Header.sequenceId);
  if (key === null || key === '') return null;
  return isPlain(key) ? key : createHash('sha256').update(key).digest('base64url');
}

/** Short, and fit for a header: the provider gets it in one. */
function isPlain(key: string): boolean {
  if (key.length > LONGEST_KEPT) return false;
  for (let i = 0; i < key.length; i++) {
    const c = key.charCodeAt(i);
    if (c < 0x21 || c > 0x7e) return false;
  }
  return true;
}

function at(call: Call, pointer: string): string | null {
  let place: unknown = payloadOf(call);
  for (const part of pointer.split('/').slice(1)) {
    const key = unescaped(part);
    if (typeof place !== 'object' || place === null) return null;
    if (!Object.hasOwn(place, key)) return null;
    place = (place as Record<string, unknown>)[key];
  }
  if (typeof place === 'string') return place;
  if (typeof place !== 'number') return null;
  // Two ids that are one as doubles are two conversations.
  return Number.isSafeInteger(place) ? String(place) : sourceAt(call.body.toString('utf8'), pointer.split('/').slice(1).map(unescaped));
}

function unescaped(part: string): string {
  return part.replaceAll('~1', '/').replaceAll('~0', '~');
}
