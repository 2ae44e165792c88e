/** Who made an override and when it ends, as people read it in a refusal: `dana, until 2030-01-31T18:00:00Z`. */
import type { Override } from './types.ts';

const known = new WeakMap<Override, string>();

/** Made once for each rule: under a block of everything each call is refused in these words. */
export function signatureOf(rule: Override): string {
  let words = known.get(rule);
  if (words === undefined) {
    const until = rule.expiresAtMs === null ? '' : `until ${new Date(rule.expiresAtMs).toISOString().slice(0, 19)}Z`;
    words = [rule.author, until].filter((part) => part !== '').join(', ');
    known.set(rule, words);
  }
  return words;
}

export function isInForce(rule: Override, wallMs: number): boolean {
  return rule.expiresAtMs === null || rule.expiresAtMs > wallMs;
}
