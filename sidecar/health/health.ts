/**
 * The health view of one sidecar: every provider and every provider × capability it knows, kept across table pushes.
 * The table says who exists, this says who is fit; only what a table no longer names is forgotten, and of that not the calls
 * that are still under way: whoever comes back before they end has them still. It decides nothing by itself: `choose`
 * reads, `attempt` and `slots` write.
 *
 * A reader that caches what it derived keeps it while `version` is the same and `now < nextChangeAt`.
 */
import type { Clock } from '../../base/clock.ts';
import type { BreakerSettings } from '../../proto/language/settings.ts';
import type { BreakerStateName } from './breaker.ts';
import { HealthCell } from './cell.ts';
import { ProviderHealth } from './provider.ts';
import type { EjectionSettings } from './provider.ts';
import { Schedule } from './schedule.ts';

/** The key under which `retain` knows a cell. A space can be in neither part. */
export function cellKey(agentId: string, capability: string): string {
  return `${agentId} ${capability}`;
}

export class Health extends Schedule {
  /** Told after every transition of a breaker: metrics, log, later the fleet. */
  onTransition: ((cell: HealthCell, from: BreakerStateName, to: BreakerStateName, why: string) => void) | null = null;
  readonly #clock: Clock;
  readonly #ejection: EjectionSettings;
  readonly #providers = new Map<string, ProviderHealth>();
  /** No longer named by the table, and calls to them were under way then. */
  readonly #busyGone = new Map<string, ProviderHealth>();
  readonly #cells = new Map<string, HealthCell>();
  readonly #now = (): number => this.#clock.now();
  readonly #announce = (cell: HealthCell, from: BreakerStateName, to: BreakerStateName, why: string): void => {
    if (this.onTransition !== null) this.onTransition(cell, from, to, why);
  };

  constructor(clock: Clock, ejection: EjectionSettings) {
    super();
    this.#clock = clock;
    this.#ejection = ejection;
  }

  /** Got, or made: a provider first seen now. */
  provider(agentId: string): ProviderHealth {
    let provider = this.#providers.get(agentId);
    if (provider === undefined) {
      provider = this.#cameBack(agentId) ?? new ProviderHealth(agentId, this, this.#ejection, this.#now);
      this.#providers.set(agentId, provider);
    }
    return provider;
  }

  /** Also one that the table no longer names, as long as calls to it are under way; null = nothing is known. */
  known(agentId: string): ProviderHealth | null {
    return this.#providers.get(agentId) ?? this.#busyGone.get(agentId) ?? null;
  }

  #cameBack(agentId: string): ProviderHealth | null {
    const provider = this.#busyGone.get(agentId);
    if (provider === undefined) return null;
    this.#busyGone.delete(agentId);
    if (provider.inFlight === 0) return null;
    provider.beginAnew();
    return provider;
  }

  /** Got, or made. An existing cell takes the new settings and keeps its state. */
  cell(agentId: string, capability: string, settings: BreakerSettings, slowStartMs: number): HealthCell {
    const key = cellKey(agentId, capability);
    let cell = this.#cells.get(key);
    if (cell === undefined) {
      cell = new HealthCell(this.provider(agentId), capability, settings, slowStartMs, this, this.#announce, this.#now);
      this.#cells.set(key, cell);
    } else {
      cell.configure(settings, slowStartMs, this.#clock.now());
    }
    return cell;
  }

  /** Forgets what is not named: agent ids, and cells by `cellKey`. */
  retain(agentIds: ReadonlySet<string>, cellKeys: ReadonlySet<string>): void {
    for (const [key, cell] of this.#cells) if (!agentIds.has(cell.agentId) || !cellKeys.has(key)) this.dropCell(cell);
    for (const agentId of this.#providers.keys()) if (!agentIds.has(agentId)) this.dropProvider(agentId);
  }

  /** The provider no longer offers the capability. Who was told that its breaker is open is told that there is none any more. */
  dropCell(cell: HealthCell): void {
    if (!this.#cells.delete(cellKey(cell.agentId, cell.capability))) return;
    cell.forget();
    if (cell.stateName !== 'closed') this.#announce(cell, cell.stateName, 'closed', 'it is not offered any more');
    this.bump();
  }

  /** The table no longer names it; its cells have been dropped before. */
  dropProvider(agentId: string): void {
    for (const [gone, { inFlight }] of this.#busyGone) if (inFlight === 0) this.#busyGone.delete(gone);
    const provider = this.#providers.get(agentId);
    if (provider === undefined) return;
    this.forget(provider);
    this.#providers.delete(agentId);
    if (provider.inFlight > 0) this.#busyGone.set(agentId, provider);
    this.bump();
  }

  /** Everybody known so far counts as warm: nobody is new to a sidecar that has only just learned of them all. */
  warm(): void {
    for (const provider of this.#providers.values()) provider.startSlowlyAt(Number.NEGATIVE_INFINITY);
  }

  /** Every cell as of now, for metrics and explain. */
  cells(): Iterable<HealthCell> {
    this.advance(this.#clock.now());
    return this.#cells.values();
  }

  providers(): Iterable<ProviderHealth> {
    return this.#providers.values();
  }
}
