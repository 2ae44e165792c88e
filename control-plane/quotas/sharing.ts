/**
 * Tells sidecars each second how the quotas are shared out that are counted at several of them, from what they reported of
 * the last seconds; at once when a quota has changed. Says nothing while there is nothing to share out. A sidecar that
 * hears nothing keeps its share, so that a change of the leader changes nothing.
 */
import type { Clock } from '../../base/clock.ts';
import type { Bus } from '../../base/nats.ts';
import { exactness, isCovered, type Quota, type QuotaDemand, quotaKey, type Shares } from '../../proto/wire/quotas.ts';
import { REGISTRY_WIRE } from '../../proto/wire/registry.ts';
import type { Subjects } from '../../proto/wire/subjects.ts';
import { encode } from '../push/json.ts';
import { shareOut } from './shares.ts';

const EVERY_MS = 1_000;
/** A demand that is not told again counts no longer. */
const FRESH_MS = 2_500;
/** Of a message; what does not fit is shared out equally. */
const MAX_BYTES = 262_144;
/** What one entry takes, without its sidecars, and each of these. */
const ENTRY_BYTES = 120;
const SIDECAR_BYTES = 90;

export interface SharingParts {
  readonly bus: Pick<Bus, 'publish'>;
  readonly subjects: Subjects;
  readonly clock: Clock;
  readonly epoch: string;
  quotas(): readonly Quota[];
  /** How many there are. */
  sidecars(): number;
}

const NOBODY: ReadonlyMap<string, readonly number[]> = new Map();

interface Told {
  readonly asked: readonly number[];
  readonly atMs: number;
}

export class Sharing {
  readonly #parts: SharingParts;
  /** By `kind:name`, then by sidecar. */
  readonly #demands = new Map<string, Map<string, Told>>();
  #saidAt = Number.NEGATIVE_INFINITY;
  #saidFor: readonly Quota[] = [];

  constructor(parts: SharingParts) {
    this.#parts = parts;
  }

  take(sidecar: string, demand: readonly QuotaDemand[]): void {
    const atMs = this.#parts.clock.now();
    for (const { kind, name, asked } of demand) {
      const key = quotaKey(kind, name);
      let told = this.#demands.get(key);
      if (told === undefined) {
        told = new Map();
        this.#demands.set(key, told);
      }
      told.set(sidecar, { asked, atMs });
    }
  }

  /** To be called a few times a second. */
  tick(): void {
    const { clock } = this.#parts;
    const quotas = this.#parts.quotas();
    const now = clock.now();
    if (quotas === this.#saidFor && now - this.#saidAt < EVERY_MS) return;
    this.#saidFor = quotas;
    this.#saidAt = now;
    if (!quotas.some(({ kind, calls }) => kind !== 'agent' && calls !== null)) {
      this.#demands.clear();
      return;
    }
    this.#say(quotas, now);
  }

  #say(quotas: readonly Quota[], now: number): void {
    const { bus, subjects, epoch } = this.#parts;
    const sidecars = this.#parts.sidecars();
    const { rest, burst } = shareOut(1, NOBODY, sidecars);
    const shares: Record<string, Shares['shares'][string]> = {};
    let bytes = 0;
    for (const [key, told] of this.#demands) {
      for (const [sidecar, { atMs }] of told) if (now - atMs > FRESH_MS) told.delete(sidecar);
      const perSec = rateOf(quotas, key);
      if (told.size === 0 || perSec === null) {
        this.#demands.delete(key);
        continue;
      }
      bytes += ENTRY_BYTES + SIDECAR_BYTES * told.size;
      if (bytes > MAX_BYTES) break;
      shares[key] = shareOut(perSec, new Map([...told].map(([sidecar, { asked }]) => [sidecar, asked])), sidecars);
    }
    bus.publish(subjects.shares, encode({ wire: REGISTRY_WIRE, epoch, rest, burst, shares } satisfies Shares));
  }
}

/** Of the most exact quota that covers `kind:name`; null = none does. */
function rateOf(quotas: readonly Quota[], key: string): number | null {
  const at = key.indexOf(':');
  const kind = key.slice(0, at);
  const name = key.slice(at + 1).split('.');
  let found: Quota | null = null;
  let best = -1;
  for (const quota of quotas) {
    if (quota.kind !== kind || quota.calls === null) continue;
    const target = quota.target.split('.');
    if (!isCovered(target, name) || exactness(target) <= best) continue;
    best = exactness(target);
    found = quota;
  }
  return found?.calls?.perSec ?? null;
}
