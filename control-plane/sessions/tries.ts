/**
 * How often one address may be wrong about a credential: a bucket of tries, which each wrong one empties a little and time fills
 * again. Only wrong ones are counted here, and only they are told to wait: whoever is right must get in also from an address where
 * others guess, since all of a company may come from one. So this bounds what guessers make of the log and of the answers; what
 * keeps them from finding a token is its length. Addresses of IPv6 count by their network, since whoever has one has 2^64.
 */
import type { Clock } from '../../base/clock.ts';

export interface TriesOptions {
  readonly clock: Clock;
  /** Wrong ones in a row. */
  readonly burst: number;
  /** After that. */
  readonly perSec: number;
}

/** Beyond it, the one that was wrong longest ago is forgotten. */
const MAX_ADDRESSES = 10_000;

export class Tries {
  readonly #options: TriesOptions;
  /** By address, oldest failure first: tries that were used up, as of a time. */
  readonly #used = new Map<string, { used: number; atMs: number }>();

  constructor(options: TriesOptions) {
    this.#options = options;
  }

  /** One was wrong. @returns milliseconds until it may be wrong again; 0 = this one was within the bound */
  wrong(address: string): number {
    const { burst, perSec } = this.#options;
    const network = networkOf(address);
    const used = this.#usedBy(network);
    const over = used - (burst - 1);
    if (over > 0) return Math.ceil((over / perSec) * 1_000);
    this.#used.delete(network);
    if (this.#used.size >= MAX_ADDRESSES) {
      const [oldest] = this.#used.keys();
      if (oldest !== undefined) this.#used.delete(oldest);
    }
    this.#used.set(network, { used: used + 1, atMs: this.#options.clock.now() });
    return 0;
  }

  #usedBy(network: string): number {
    const seen = this.#used.get(network);
    if (seen === undefined) return 0;
    const { clock, perSec } = this.#options;
    return Math.max(0, seen.used - ((clock.now() - seen.atMs) / 1_000) * perSec);
  }
}

/** The first half of an IPv6 address; an IPv4 one, also in IPv6's clothes, as it is. */
export function networkOf(address: string): string {
  const plain = address.startsWith('::ffff:') && address.includes('.') ? address.slice(7) : address;
  if (!plain.includes(':')) return plain;
  const [head, tail] = (plain.split('%', 1)[0] as string).split('::', 2) as [string, string | undefined];
  const left = head === '' ? [] : head.split(':');
  const right = tail === undefined || tail === '' ? [] : tail.split(':');
  const whole =
    tail === undefined ? left : [...left, ...Array.from({ length: Math.max(0, 8 - left.length - right.length) }, () => '0'), ...right];
  return `${whole.slice(0, 4).join(':')}::/64`;
}
