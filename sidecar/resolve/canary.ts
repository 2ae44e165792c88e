/**
 * How the traffic of one set of matching versions is shared out. Shares belong to exact versions; what they leave over
 * goes to the newest version that is not named. The draw comes from the conversation key (else the trace id) alone, not
 * from the capability: a session that meets the new build for one capability meets it for the others that are split the
 * same way, so a canary does not tear a conversation apart. The newest named version lies at the start of [0, 1), so
 * that a growing canary keeps every key it had.
 */
import { hash32, unit } from '../../base/rendezvous.ts';
import type { Version } from '../table/snapshot.ts';

const SEED = 0x6a09e667;

/** Stable per key, in [0, 1). */
export function drawOf(key: string): number {
  return unit(hash32(key, SEED));
}

/** What remains above this is taken for rounding. */
const ROUNDING = 1e-9;

export class Split {
  /** Versions that get traffic, with the upper end of each one's part of [0, 1); the last end is 1. */
  readonly versions: readonly Version[];
  readonly ends: readonly number[];
  /** The share of each of them, for words. */
  readonly shares: readonly number[];
  /** Versions that may serve at all, newest first: without those whose share is 0. */
  readonly allowed: readonly Version[];

  constructor(alive: readonly Version[], canary: ReadonlyMap<string, number> | null) {
    const versions: Version[] = [];
    const weights: number[] = [];
    const allowed: Version[] = [];
    let named = 0;
    let rest: Version | null = null;
    for (const version of alive) {
      const share = canary?.get(version.text);
      if (share === 0) continue;
      allowed.push(version);
      if (share === undefined) rest ??= version;
      else {
        versions.push(version);
        weights.push(share);
        named += share;
      }
    }
    if (rest !== null && 1 - named > ROUNDING) {
      versions.push(rest);
      weights.push(1 - named);
    } else if (rest !== null && versions.length === 0) {
      versions.push(rest);
      weights.push(1);
    }
    const total = weights.reduce((sum, weight) => sum + weight, 0);
    let end = 0;
    this.versions = versions;
    this.shares = weights.map((weight) => weight / total);
    this.ends = this.shares.map((share, i) => {
      end += share;
      return i === weights.length - 1 ? 1 : end;
    });
    this.allowed = allowed;
  }

  /** Index into `versions`; -1 when every share is 0. */
  pick(draw: number): number {
    const ends = this.ends;
    for (let i = 0; i < ends.length; i++) if (draw < (ends[i] as number)) return i;
    return ends.length - 1;
  }
}
