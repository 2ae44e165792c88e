/**
 * Replays a recording: every call once as it was, which must give the recorded decision bit by bit, and once more under the changes,
 * if there are any. Breakers are judged from the recorded contents of their windows, whether every call was recorded or one in a
 * hundred: what a window held is known exactly, while outcomes that other settings would have brought about are not.
 */
import type { RecordedFile, Recording } from '../record/reading.ts';
import type { CallRecord, Decision } from '../record/shapes.ts';
import { type Changes, isChange, NO_CHANGES } from './changes.ts';
import { type Difference, differencesOf, firstDifference } from './comparison.ts';
import { CallReplay, Deciding, type Miss, type Replayed } from './replay-call.ts';
import { ReplayTables } from './replay-table.ts';

export interface ReplayOptions {
  readonly changes: Changes;
  /** So many calls at most, from the first on. */
  readonly limit: number;
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
  readonly calls: readonly CallOutcome[];
  /** Not decided anew: by reason. */
  readonly unfit: ReadonlyMap<string, number>;
  readonly remarks: readonly string[];
  readonly changes: Changes;
}

export async function replay(recording: Recording, { changes, limit }: ReplayOptions): Promise<ReplayReport> {
  const calls: CallOutcome[] = [];
  const unfit = new Map<string, number>();
  let left = limit;
  for (const file of recording.files) {
    if (left <= 0) break;
    left -= await replayFile(file, changes, left, calls, unfit);
  }
  return { calls, unfit, remarks: recording.remarks, changes };
}

async function replayFile(
  file: RecordedFile,
  changes: Changes,
  limit: number,
  calls: CallOutcome[],
  unfit: Map<string, number>,
): Promise<number> {
  const asItWas = new Deciding();
  const base = new ReplayTables(file, NO_CHANGES, asItWas.fits, null);
  const underChanges = new Deciding();
  const changed = isChange(changes) ? new ReplayTables(file, changes, underChanges.fits, base) : null;
  let count = 0;
  for (const record of file.calls) {
    if (count >= limit) break;
    count++;
    if (record.unfit !== '') {
      unfit.set(record.unfit, (unfit.get(record.unfit) ?? 0) + 1);
      continue;
    }
    const same = await decided(record, base, asItWas);
    const broken =
      same.miss === null ? firstDifference(record.decision, same.soFar) : `${same.miss.what}: ${same.miss.asked} (${same.miss.recorded})`;
    const other = changed === null || broken !== null ? null : await decided(record, changed, underChanges);
    calls.push({
      number: calls.length + 1,
      record,
      broken,
      changed: other?.decision ?? null,
      differences: other?.decision == null ? [] : differencesOf(record.decision, other.decision),
      miss: other?.miss ?? null,
      soFar: other?.soFar ?? null,
      moved: other?.moved ?? 0,
    });
  }
  return count;
}

async function decided(record: CallRecord, tables: ReplayTables, deciding: Deciding): Promise<Replayed> {
  const one = new CallReplay(record, tables);
  deciding.now = one;
  const outcome = await one.run();
  deciding.now = null;
  return outcome;
}
