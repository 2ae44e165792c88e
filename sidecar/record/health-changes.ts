/**
 * The health view, as changes: what a choice saw is written as what is different since the last one, so that a thousand
 * providers of whom three were called cost three entries. Looking costs some comparisons each.
 *
 * What was looked at is held back until a call is written that may refer to it. Of revisions that no call under way can refer to any
 * more only the last state stays, so that calls which are not wanted leave nothing behind.
 */
import type { HealthCell } from '../health/cell.ts';
import type { Health } from '../health/health.ts';
import type { ProviderHealth } from '../health/provider.ts';
import type { Version } from '../table/snapshot.ts';
import type { HealthRecord } from './shapes.ts';

/** A cell, or a provider, as it was when it was last written. */
class SeenProvider {
  inFlight = -1;
  limit = -1;
  ejectedUntil = -1;
  failures = -1;
  offline = false;
  slowStartAt = Number.NaN;

  /** True = something is different; it is remembered as it is now. */
  moved(health: ProviderHealth): boolean {
    if (
      this.inFlight === health.inFlight &&
      this.limit === health.limit &&
      this.ejectedUntil === health.ejectedUntil &&
      this.failures === health.consecutiveFailures &&
      this.offline === health.offline &&
      this.slowStartAt === health.slowStartAt
    )
      return false;
    this.inFlight = health.inFlight;
    this.limit = health.limit;
    this.ejectedUntil = health.ejectedUntil;
    this.failures = health.consecutiveFailures;
    this.offline = health.offline;
    this.slowStartAt = health.slowStartAt;
    return true;
  }
}

/** Changes of one revision, or of several that are one by now. */
interface Held {
  rev: number;
  readonly cells: Map<HealthCell, HealthRecord['cells'][number]>;
  readonly providers: Map<ProviderHealth, HealthRecord['providers'][number]>;
}

export class HealthChanges {
  #cells = new WeakMap<HealthCell, number>();
  #providers = new WeakMap<ProviderHealth, SeenProvider>();
  #rev = 0;
  /** Looked at, and not taken yet; oldest first. */
  #held: Held[] = [];
  /** Up to which revision it has been taken. */
  #taken = 0;

  /** Revision of what was looked at last. */
  get rev(): number {
    return this.#rev;
  }

  /** Everything counts as unwritten: a new file has begun. */
  forget(): void {
    this.#cells = new WeakMap();
    this.#providers = new WeakMap();
    this.#held = [];
    this.#taken = this.#rev;
  }

  /** What has to be written before a call that refers to the last revision; it is held no more. */
  take(): HealthRecord[] {
    const records = this.#held.map(({ rev, cells, providers }): HealthRecord => {
      const before = this.#taken;
      this.#taken = rev;
      return { k: 'health', rev, before, cells: [...cells.values()], providers: [...providers.values()] };
    });
    this.#held = [];
    return records;
  }

  /** How much is held. */
  get held(): number {
    return this.#held.length;
  }

  /** Nobody refers to what was before that revision: of that the last state is enough. */
  settle(rev: number): void {
    let count = 0;
    while (count < this.#held.length && (this.#held[count] as Held).rev <= rev) count++;
    if (count < 2) return;
    const [first, ...others] = this.#held.splice(0, count) as [Held, ...Held[]];
    for (const other of others) {
      first.rev = other.rev;
      for (const [key, cell] of other.cells) first.cells.set(key, cell);
      for (const [key, provider] of other.providers) first.providers.set(key, provider);
    }
    this.#held.unshift(first);
  }

  /** Notes what has changed among those who may serve these versions: `rev` tells it from now on. */
  look(lines: readonly Version[], health: Health, now: number): void {
    health.advance(now);
    const cells: Held['cells'] = new Map();
    const providers: Held['providers'] = new Map();
    for (const { candidates } of lines) {
      for (const { health: cell, provider } of candidates) {
        if (this.#cells.get(cell) !== cell.stamp) {
          this.#cells.set(cell, cell.stamp);
          cells.set(cell, [cell.agentId, cell.capability, cell.dump()]);
        }
        let seen = this.#providers.get(provider.health);
        if (seen === undefined) {
          seen = new SeenProvider();
          this.#providers.set(provider.health, seen);
        }
        if (seen.moved(provider.health)) providers.set(provider.health, [provider.agentId, provider.health.dump()]);
      }
    }
    if (cells.size === 0 && providers.size === 0 && this.#rev > 0) return;
    this.#held.push({ rev: ++this.#rev, cells, providers });
  }
}
