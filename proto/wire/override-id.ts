/**
 * The name of an override, made by whoever orders it: an order that is sent again with the same name is the same order. By itself,
 * so that the page in the browser makes it as `reachctl` and the control plane do.
 */
import type { Random } from '../../base/random.ts';

const LETTERS = 'abcdefghjkmnpqrstuvwxyz23456789';

/** Short enough to be said over the phone. */
export function newOverrideId(action: string, random: Random): string {
  let id = `${action}-`;
  for (let i = 0; i < 8; i++) id += LETTERS[Math.floor(random.next() * LETTERS.length)] as string;
  return id;
}
