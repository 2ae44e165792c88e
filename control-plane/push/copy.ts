/**
 * A follower's registry: made from what the stream holds whenever somebody asks and it has changed, so that a replica that
 * does not lead answers in the same words as the one that does. What sidecars said lately by beats and reports is told to
 * it again each time. It decides nothing: what it would change is thrown away.
 */
import type { Clock } from '../../base/clock.ts';
import type { Heartbeat, Report } from '../../proto/wire/registry.ts';
import { type Leases, Registry } from '../registry/registry.ts';
import type { Mirror } from './mirror.ts';
import { loadRegistry } from './stored.ts';

/** However much changes, it is made anew no more often than this. */
const LEAST_AGE_MS = 500;
const MAX_SIDECARS = 100_000;

export class FollowerCopy {
  readonly #mirror: Mirror;
  readonly #clock: Clock;
  readonly #leases: Leases;
  readonly #beats = new Map<string, { readonly beat: Heartbeat; readonly atMs: number }>();
  readonly #reports = new Map<string, Report>();
  #registry: Registry | null = null;
  #madeAtMs = 0;
  #stale = true;

  constructor(mirror: Mirror, clock: Clock, leases: Leases) {
    this.#mirror = mirror;
    this.#clock = clock;
    this.#leases = leases;
    mirror.listen(() => {
      this.#stale = true;
    });
  }

  beat(beat: Heartbeat): void {
    if (this.#beats.size < MAX_SIDECARS || this.#beats.has(beat.sidecar)) this.#beats.set(beat.sidecar, { beat, atMs: this.#clock.now() });
    this.#registry?.heartbeat(beat);
  }

  report(report: Report): void {
    if (this.#reports.size < MAX_SIDECARS || this.#reports.has(report.sidecar)) this.#reports.set(report.sidecar, report);
    this.#registry?.report(report);
  }

  /** The registry as the stream has it, at most half a second old. */
  registry(epoch: string): Registry {
    const now = this.#clock.now();
    if (this.#registry !== null && (!this.#stale || now - this.#madeAtMs < LEAST_AGE_MS)) return this.#registry;
    const registry = new Registry(this.#clock, this.#leases);
    loadRegistry(registry, this.#mirror, epoch);
    for (const { beat, atMs } of this.#beats.values()) registry.heartbeat(aged(beat, now - atMs));
    for (const report of this.#reports.values()) registry.report(report);
    this.#registry = registry;
    this.#stale = false;
    this.#madeAtMs = now;
    return registry;
  }

  /** This replica leads now, or the stream is another one: nothing of the copy counts. */
  drop(): void {
    this.#registry = null;
    this.#stale = true;
  }
}

function aged(beat: Heartbeat, byMs: number): Heartbeat {
  const agents = Object.fromEntries(Object.entries(beat.agents).map(([agent, life]) => [agent, { ...life, idleMs: life.idleMs + byMs }]));
  return { ...beat, agents };
}
