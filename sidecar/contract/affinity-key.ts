/** The conversation key of a call: what keeps a session on one agent. Read before `resolve`, which keeps canaries stable per key. */
import { createHash } from 'node:crypto';
import { Header } from '../../proto/wire/headers.ts';
import { type Call, headerOf, payloadOf } from '../call/call.ts';

/** Longer keys are kept as a digest, so that a caller cannot fill the binding table with megabytes. */
const LONGEST_KEPT = 128;

/** The contract's own place first, then `Reach-Affinity`, then the sender's conversation; null when none is given (or empty). */
export function affinityKeyOf(call: Call): string | null {
  const rule = call.capability?.versions[0]?.contract.affinity ?? null;
  let key: string | null = null;
  if (rule !== null) key = 'header' in rule.from ? headerOf(call, rule.from.header) : at(payloadOf(call), rule.from.pointer);
  if (key === null || key === '') key = headerOf(call, Header.affinity);
  if (key === null || key === '') key = headerOf(call, Header.sequenceId);
  if (key === null || key === '') return null;
  return key.length <= LONGEST_KEPT ? key : createHash('sha256').update(key).digest('base64url');
}

function at(value: unknown, pointer: string): string | null {
  let place: unknown = value;
  for (const part of pointer.split('/').slice(1)) {
    if (typeof place !== 'object' || place === null) return null;
    const key = part.replaceAll('~1', '/').replaceAll('~0', '~');
    if (!Object.hasOwn(place, key)) return null;
    place = (place as Record<string, unknown>)[key];
  }
  if (typeof place === 'string') return place;
  return typeof place === 'number' && Number.isFinite(place) ? String(place) : null;
}
