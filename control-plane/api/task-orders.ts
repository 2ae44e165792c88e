/** What all orders about tasks share: a body with a reason, and how what could not be done is said. */
import type { Done } from '../messages/kept-desk.ts';
import { absent, conflict, invalid, type Refused, unavailable } from './problem.ts';
import { type Asked, bodyMap, strayKey } from './route.ts';

const MAX_REASON_CHARS = 500;

export const REASON = { type: 'string', maxLength: MAX_REASON_CHARS, description: 'Stands in the audit log.' };

/** The body, with its reason checked; or the refusal of it. */
export function mapOf(asked: Asked, keys: readonly string[]): Readonly<Record<string, unknown>> | Refused {
  const map = bodyMap(asked);
  if (typeof map === 'string') return invalid(map);
  const stray = strayKey(map, [...keys, 'reason']);
  if (stray !== null) return invalid(stray);
  const reason = map['reason'] ?? '';
  if (typeof reason !== 'string' || reason.length > MAX_REASON_CHARS)
    return invalid(`reason must be a text of at most ${MAX_REASON_CHARS} characters`);
  return map;
}

export function reasonIn({ reason }: Readonly<Record<string, unknown>>): string {
  return typeof reason === 'string' ? reason : '';
}

export function refusalOf({ kind, why }: Exclude<Done<never>, { ok: never }>): Refused {
  return kind === 'absent' ? absent(why) : kind === 'conflict' ? conflict(why) : unavailable(why);
}
