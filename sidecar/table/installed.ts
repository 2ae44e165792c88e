/**
 * The table in force and what is known about it: which version, how old, and whether a newer one was refused. One place
 * that every source (file, registry) installs into, and that calls, readiness and metrics read.
 */
import type { Clock } from '../../base/clock.ts';
import type { Override, Problem, TableDocument } from '../../proto/language/types.ts';
import type { Health } from '../health/health.ts';
import type { ProviderHealth } from '../health/provider.ts';
import { type CapabilityParts, compile, compileParts, type Standpoint } from './compile.ts';
import { Snapshot, type Table } from './snapshot.ts';

const NOTHING: TableDocument = Object.freeze({ contracts: [], providers: [], policies: [], overrides: [], sidecars: [] });

export class InstalledTable implements Table {
  readonly #clock: Clock;
  readonly #health: Health;
  readonly #here: Standpoint;
  #snapshot: Snapshot = new Snapshot(0, NOTHING, new Map(), new Map(), new Map());
  /** Pushed by operators, whatever table they come upon. */
  #pushed: readonly Override[] = NOTHING.overrides;
  /** Those of the document in force. */
  #own: readonly Override[] = NOTHING.overrides;
  /** `clock.now()` of the last installation. */
  installedAt = 0;
  /** Where the table in force came from: `file`, `last good copy`, … */
  source = '';
  /** The table in force is not the newest that was offered, or its source cannot be reached; '' = it is fresh. */
  staleBecause = '';
  /** Refused tables since start. */
  refusals = 0;
  problems: readonly Problem[] = [];
  /** Told after each installation. */
  onInstall: () => void = () => {};

  constructor(clock: Clock, health: Health, here: Standpoint) {
    this.#clock = clock;
    this.#health = health;
    this.#here = here;
  }

  current(): Snapshot {
    return this.#snapshot;
  }

  /** What calls have shown of a provider, also of one that was named until a moment ago and is still at work; null = nothing. */
  healthOf(agentId: string): ProviderHealth | null {
    return this.#health.known(agentId);
  }

  /** A table has been installed: calls can be answered. */
  get ready(): boolean {
    return this.#snapshot.version > 0;
  }

  /** A whole document: the standalone file. */
  install(document: TableDocument, source: string): Snapshot {
    return this.#put(compile(document, this.#health, this.#here, this.#snapshot.version + 1), source);
  }

  /** Parts as the registry pushes them; those that are the same objects as before are taken over with their caches. */
  installParts(parts: CapabilityParts, overrides: readonly Override[], source: string): Snapshot {
    return this.#put(compileParts(parts, overrides, this.#snapshot, this.#health, this.#here, this.#snapshot.version + 1), source);
  }

  /**
   * The overrides that operators have pushed, all of them; those that stand in the table's own document count as well. Nothing
   * is compiled anew: it is in force when this returns.
   */
  installOverrides(pushed: readonly Override[]): void {
    this.#pushed = pushed;
    if (!this.ready) return;
    const { version, document, capabilities, aliases, providers, uses } = this.#snapshot;
    const own = { ...document, overrides: this.#own };
    this.#snapshot = this.#withPushed(new Snapshot(version + 1, own, capabilities, aliases, providers, uses));
    this.onInstall();
  }

  #withPushed(snapshot: Snapshot): Snapshot {
    this.#own = snapshot.overrides;
    if (this.#pushed.length === 0) return snapshot;
    const { version, document, capabilities, aliases, providers, uses } = snapshot;
    return new Snapshot(version, { ...document, overrides: [...this.#pushed, ...this.#own] }, capabilities, aliases, providers, uses);
  }

  #put(installed: Snapshot, source: string): Snapshot {
    const first = !this.ready;
    const snapshot = this.#withPushed(installed);
    this.#snapshot = snapshot;
    if (first) this.#health.warm();
    this.installedAt = this.#clock.now();
    this.source = source;
    this.staleBecause = '';
    this.problems = [];
    this.onInstall();
    return snapshot;
  }

  /** A newer table was offered and is not believed; the one in force stays. */
  refuse(problems: readonly Problem[], why: string): void {
    this.refusals++;
    this.problems = problems;
    this.staleBecause = why;
  }
}
