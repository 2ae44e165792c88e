/**
 * Replays a recording: every call once as it was, which must give the recorded decision bit by bit, and once more under the changes,
 * if there are any. Breakers are judged from the recorded contents of their windows, whether every call was recorded or one in a
 * hundred: what a window held is known exactly, while outcomes that other settings would have brought about are not.
 */
import type { RecordedFile, RecordingSource } from '../record/reading.ts';
import type { CallRecord, Decision } from '../record/shapes.ts';
import { type Changes, isChange, NO_CHANGES } from './changes.ts';
import { type Difference, differencesOf, firstDifference } from './comparison.ts';
import { CallReplay, Deciding, type Miss, type Replayed } from './replay-call.ts';
import { ReplayTables } from './replay-table.ts';

export interface ReplayOptions {
  readonly changes: Changes;
  /** So many calls at most, from the first on. */
  readonly limit: number;
  /** Of the others nothing is kept but the count: calls about which there is something to tell, and this one. Absent = all are kept. */
  readonly only?: number | null;
}

/** Calls by what became of them. */
export interface Sums {
  /** All that were looked at. */
  calls: number;
  identical: number;
  /** Not decided as they were recorded, though nothing is changed. */
  broken: number;
  /** They cannot be decided anew. */
  unfit: number;
  /** Under the changes. */
  same: number;
  different: number;
  undecided: number;
  /** Calls by kind of difference; one call may be in several. */
  readonly by: Record<Difference, number>;
}

export interface CallOutcome {
  /** From 1. */
  readonly number: number;
  readonly record: CallRecord;
  /** Null = it replays as it was recorded. */
  readonly broken: string | null;
  /** Under the changes; null = there are none, or it could not be decided. */
  readonly changed: Decision | null;
  readonly differences: readonly Difference[];
  readonly miss: Miss | null;
  /** What was decided under the changes before the miss. */
  readonly soFar: Decision | null;
  /** Answers from another attempt of the same call. */
  readonly moved: number;
}

export interface ReplayReport {
  readonly sums: Readonly<Sums>;
  readonly calls: readonly CallOutcome[];
  /** Not decided anew: by reason. */
  readonly unfit: ReadonlyMap<string, number>;
  readonly remarks: readonly string[];
  /** Changed settings, or parts of them, that a recording cannot answer for. */
  readonly withoutEffect: readonly string[];
  readonly changes: Changes;
}

export async function replay(recording: RecordingSource, options: ReplayOptions): Promise<ReplayReport> {
  const run = new Run(options);
  for (const file of recording.files) {
    await run.replay(file);
    if (run.isOver) break;
  }
  const { calls, unfit, sums, withoutEffect } = run;
  return { calls, unfit, sums, remarks: recording.remarks, withoutEffect: [...withoutEffect], changes: options.changes };
}

class Run {
  readonly calls: CallOutcome[] = [];
  readonly unfit = new Map<string, number>();
  readonly sums: Sums = {
    calls: 0,
    identical: 0,
    broken: 0,
    unfit: 0,
    same: 0,
    different: 0,
    undecided: 0,
    by: { code: 0, provider: 0, version: 0, attempts: 0, reasons: 0 },
  };
  readonly withoutEffect = new Set<string>();
  readonly #options: ReplayOptions;
  #decided = 0;

  constructor(options: ReplayOptions) {
    this.#options = options;
  }

  get isOver(): boolean {
    return this.sums.calls >= this.#options.limit;
  }

  async replay(file: RecordedFile): Promise<void> {
    const { changes } = this.#options;
    const asItWas = new Deciding();
    const base = new ReplayTables(file, NO_CHANGES, asItWas.fits, null);
    const underChanges = new Deciding();
    const changed = isChange(changes) ? new ReplayTables(file, changes, underChanges.fits, base) : null;
    for (const record of file.calls) {
      if (this.isOver) return;
      this.sums.calls++;
      if (record.unfit !== '') {
        this.sums.unfit++;
        this.unfit.set(record.unfit, (this.unfit.get(record.unfit) ?? 0) + 1);
        continue;
      }
      const same = await decided(record, base, asItWas);
      const broken =
        same.miss === null ? firstDifference(record.decision, same.soFar) : `${same.miss.what}: ${same.miss.asked} (${same.miss.recorded})`;
      const other = changed === null || broken !== null ? null : await decided(record, changed, underChanges);
      this.#take({
        number: ++this.#decided,
        record,
        broken,
        changed: other?.decision ?? null,
        differences: other?.decision == null ? [] : differencesOf(record.decision, other.decision),
        miss: other?.miss ?? null,
        soFar: other?.soFar ?? null,
        moved: other?.moved ?? 0,
      });
      for (const remark of changed?.remarks ?? []) this.withoutEffect.add(remark);
    }
  }

  #take(one: CallOutcome): void {
    const { sums } = this;
    const { only } = this.#options;
    if (one.broken === null) sums.identical++;
    if (one.broken !== null) sums.broken++;
    else if (one.miss !== null) sums.undecided++;
    else if (one.differences.length > 0) sums.different++;
    else sums.same++;
    for (const kind of one.differences) sums.by[kind]++;
    const isNotable = one.broken !== null || one.miss !== null || one.differences.length > 0;
    if (only === undefined || only === one.number || isNotable) this.calls.push(one);
  }
}

async function decided(record: CallRecord, tables: ReplayTables, deciding: Deciding): Promise<Replayed> {
  const one = new CallReplay(record, tables);
  deciding.now = one;
  const outcome = await one.run();
  deciding.now = null;
  return outcome;
}
