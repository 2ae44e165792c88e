/**
 * Which pool a message is of, when nobody remembers it: the pool's id is a digest of what it is made of, so that a guess
 * from what the envelope says can be proved. And the pool for a capability that an operator names. Pure.
 */
import type { Envelope } from '../../proto/wire/envelope.ts';
import type { Pool } from '../../proto/wire/messages.ts';
import { poolId } from '../../proto/wire/pool.ts';

const MOST_TAGS = 8;

/** Null when none of the likely ones is it. */
export function guessPool({ capability, version, target, tags, pool }: Envelope): Pool | null {
  const names = Object.keys(tags).sort().slice(0, MOST_TAGS);
  for (let chosen = 0; chosen < 2 ** names.length; chosen++) {
    const some: Record<string, string> = {};
    for (const [i, name] of names.entries()) if ((chosen & (1 << i)) !== 0) some[name] = tags[name] as string;
    for (const exact of version === null ? [null] : [version, null])
      for (const role of target.role === null ? [null] : [target.role, null])
        for (const agent of target.agent === null ? [null] : [target.agent, null])
          for (const sticky of [false, true]) {
            const parts = { capability, version: exact, role, agent, tags: some, sticky };
            if (poolId(parts) === pool) return { id: pool, ...parts };
          }
  }
  return null;
}

/** @param targets `target{}` of those who offer it: the tags whose names occur in one of them count. */
export function poolFor(
  capability: string,
  version: string,
  tags: Readonly<Record<string, string>>,
  targets: readonly Readonly<Record<string, string>>[],
): Pool {
  const some: Record<string, string> = {};
  for (const name of Object.keys(tags).sort()) if (targets.some((target) => Object.hasOwn(target, name))) some[name] = tags[name] as string;
  const parts = { capability, version, role: null, agent: null, tags: some, sticky: false };
  return { id: poolId(parts), ...parts };
}
