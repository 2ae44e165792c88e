/**
 * What this sidecar has applied, told to the control plane: soon after every change, and every few seconds in any case, so
 * that a sidecar that has fallen silent is seen to be silent. How far it has come is told once a second at most while
 * changes follow one another: two hundred reports for each of them would cost more than the changes. What an operator waits
 * for (refusals, staleness, the document in use) is told at once. Nothing waits for it.
 */
import type { Clock, Timer } from '../../base/clock.ts';
import type { QuotasReport } from '../../proto/wire/quotas.ts';
import { REGISTRY_WIRE, type Report } from '../../proto/wire/registry.ts';
import type { ShiftCount } from '../../proto/wire/shifts.ts';
import type { Subjects } from '../../proto/wire/subjects.ts';
import { type RegistryBus, bytesOf } from './bus.ts';
import type { InstalledTable } from './installed.ts';
import type { RulesInForce } from './rules-in-force.ts';
import type { TableSync } from './sync.ts';

const SOON_MS = 100;
/** Between two reports that say nothing but how far this sidecar has come. */
const PROGRESS_MS = 1_000;
const EVERY_MS = 5_000;
/** Between two reports while something is measured. */
const MEASURED_MS = 1_000;

export interface ReporterParts {
  readonly bus: RegistryBus;
  readonly subjects: Subjects;
  readonly clock: Clock;
  readonly table: InstalledTable;
  readonly sync: TableSync;
  readonly sidecar: string;
  readonly instance: string;
  readonly version: string;
  readonly rules: RulesInForce;
  /** How far the tail of its work on pools has come. */
  readonly work: { readonly seq: number };
  /** Which list of overrides is in force. */
  readonly overrides: { readonly standing: NonNullable<Report['overrides']> };
  /** How far the tail of the quotas has come. */
  readonly quotas: { readonly seq: number };
}

/** What is measured for the leader. */
export interface Measures {
  hits(): QuotasReport['hits'];
  /** Since the last time. */
  demand(): QuotasReport['demand'];
  /** Since the last time. */
  shifted(): readonly ShiftCount[];
}

export class Reporter {
  readonly #parts: ReporterParts;
  /** null = nothing is measured. */
  measures: Measures | null = null;
  #measured: Timer | null = null;
  #sentAt = Number.NEGATIVE_INFINITY;
  #soon: Timer | null = null;
  #soonAt = 0;
  /** When a change was told last. */
  #progressAt = Number.NEGATIVE_INFINITY;
  /** What the last report said beside how far this sidecar has come. */
  #told = '';
  #regular: Timer | null = null;
  #isStopped = false;

  constructor(parts: ReporterParts) {
    this.#parts = parts;
  }

  start(): void {
    this.#regular = this.#parts.clock.after(EVERY_MS, () => {
      this.#send();
      if (!this.#isStopped) this.start();
    });
  }

  stop(): void {
    this.#isStopped = true;
    this.#soon?.cancel();
    this.#regular?.cancel();
    this.#measured?.cancel();
  }

  /** There is something that the leader waits for: told with the next report, at most once a second. */
  measured(): void {
    if (this.#isStopped || this.#measured !== null) return;
    const { clock } = this.#parts;
    const waitMs = Math.max(SOON_MS, this.#sentAt + MEASURED_MS - clock.now());
    this.#measured = clock.after(waitMs, () => {
      this.#measured = null;
      this.#send();
    });
  }

  /** Something of the report has changed. */
  changed(): void {
    if (this.#isStopped) return;
    const now = this.#parts.clock.now();
    const waitMs = this.#news() === this.#told ? Math.max(SOON_MS, this.#progressAt + PROGRESS_MS - now) : SOON_MS;
    if (this.#soon !== null && this.#soonAt <= now + waitMs) return;
    this.#soon?.cancel();
    this.#soonAt = now + waitMs;
    this.#soon = this.#parts.clock.after(waitMs, () => {
      this.#soon = null;
      this.#progressAt = this.#parts.clock.now();
      this.#send();
    });
  }

  #news(): string {
    const { standing, epoch, document } = this.#parts.sync;
    const { version, staged } = this.#parts.rules.standing;
    const { seq, refused } = this.#parts.overrides.standing;
    return `${this.#parts.quotas.seq} ${seq} ${refused?.seq ?? 0} ${epoch} ${standing.refusals} ${document.version} ${document.staged} ${version} ${staged} ${standing.because()}`;
  }

  report(): Report {
    const { table, sync, sidecar, instance, version, rules, work, overrides, quotas } = this.#parts;
    const snapshot = table.current();
    return {
      wire: REGISTRY_WIRE,
      sidecar,
      instance,
      version,
      epoch: sync.epoch,
      appliedSeq: sync.appliedSeq,
      tableVersion: snapshot.version,
      capabilities: snapshot.capabilities.size,
      providers: snapshot.providers.size,
      staleBecause: sync.standing.because(),
      refused: sync.standing.refused(),
      policies: sync.document,
      rules: rules.report(),
      work: { seq: Math.max(0, work.seq) },
      overrides: overrides.standing,
      quotas: { seq: Math.max(0, quotas.seq), hits: this.measures?.hits() ?? {}, demand: [] },
    };
  }

  #send(): void {
    const { bus, subjects, sidecar } = this.#parts;
    if (!bus.connected) return;
    this.#told = this.#news();
    this.#sentAt = this.#parts.clock.now();
    bus.publish(subjects.report(sidecar), bytesOf(this.#withMeasures(this.report())));
  }
  /** Told once: what was measured since the report before. */
  #withMeasures(report: Report): Report {
    const { measures } = this;
    if (measures === null || report.quotas === undefined) return report;
    const shifted = measures.shifted();
    return { ...report, quotas: { ...report.quotas, demand: measures.demand() }, ...(shifted.length > 0 ? { shifted } : null) };
  }
}
