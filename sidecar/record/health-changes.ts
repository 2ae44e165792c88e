/**
 * The health view, as changes: what a choice saw is written as what is different since the last one, so that a thousand
 * providers of whom three were called cost three entries. Looking costs some comparisons each.
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

export class HealthChanges {
  #cells = new WeakMap<HealthCell, number>();
  #providers = new WeakMap<ProviderHealth, SeenProvider>();
  #rev = 0;

  /** Revision of what was written last. */
  get rev(): number {
    return this.#rev;
  }

  /** Everything counts as unwritten: a new file has begun. */
  forget(): void {
    this.#cells = new WeakMap();
    this.#providers = new WeakMap();
  }

  /** What has changed among those who may serve these versions; null = nothing: the last revision still tells it. */
  look(lines: readonly Version[], health: Health, now: number): HealthRecord | null {
    health.advance(now);
    const cells: [string, string, ReturnType<HealthCell['dump']>][] = [];
    const providers: [string, ReturnType<ProviderHealth['dump']>][] = [];
    for (const { candidates } of lines) {
      for (const { health: cell, provider } of candidates) {
        if (this.#cells.get(cell) !== cell.stamp) {
          this.#cells.set(cell, cell.stamp);
          cells.push([cell.agentId, cell.capability, cell.dump()]);
        }
        let seen = this.#providers.get(provider.health);
        if (seen === undefined) {
          seen = new SeenProvider();
          this.#providers.set(provider.health, seen);
        }
        if (seen.moved(provider.health)) providers.push([provider.agentId, provider.health.dump()]);
      }
    }
    if (cells.length === 0 && providers.length === 0 && this.#rev > 0) return null;
    return { k: 'health', rev: ++this.#rev, cells, providers };
  }
}
