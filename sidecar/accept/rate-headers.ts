/** How many messages an agent may submit, as headers of an answer. */
import type { Rate } from '../send/door.ts';

/** Limit, what is left of it, and in how many seconds it is whole again. */
export function pushRate(head: string[], { limit, remaining, resetMs }: Rate): void {
  head.push(
    'ratelimit-limit',
    String(limit),
    'ratelimit-remaining',
    String(remaining),
    'ratelimit-reset',
    String(Math.ceil(resetMs / 1_000)),
  );
}
