/**
 * What this sidecar has applied, told to the control plane: soon after every change, and every few seconds in any case, so
 * that a sidecar that has fallen silent is seen to be silent. Nothing waits for it.
 */
import type { Clock, Timer } from '../../base/clock.ts';
import { REGISTRY_WIRE, type Report } from '../../proto/wire/registry.ts';
import type { Subjects } from '../../proto/wire/subjects.ts';
import { type RegistryBus, bytesOf } from './bus.ts';
import type { InstalledTable } from './installed.ts';
import type { TableSync } from './sync.ts';

const SOON_MS = 100;
const EVERY_MS = 5_000;

export interface ReporterParts {
  readonly bus: RegistryBus;
  readonly subjects: Subjects;
  readonly clock: Clock;
  readonly table: InstalledTable;
  readonly sync: TableSync;
  readonly sidecar: string;
  readonly instance: string;
  readonly version: string;
}

export class Reporter {
  readonly #parts: ReporterParts;
  #soon: Timer | null = null;
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
  }

  /** Something of the report has changed. */
  changed(): void {
    if (this.#isStopped) return;
    this.#soon ??= this.#parts.clock.after(SOON_MS, () => {
      this.#soon = null;
      this.#send();
    });
  }

  report(): Report {
    const { table, sync, sidecar, instance, version } = this.#parts;
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
    };
  }

  #send(): void {
    const { bus, subjects, sidecar } = this.#parts;
    if (bus.connected) bus.publish(subjects.report(sidecar), bytesOf(this.report()));
  }
}
