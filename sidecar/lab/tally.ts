/** What the calls of one step came to, in numbers: small, whatever the number of calls. */
import type { Attempt } from '../call/attempt-record.ts';
import type { TraceLine } from '../../proto/wire/trace-line.ts';
import { Durations } from './durations.ts';
import type { Outcome } from './one-call.ts';

export class Tally {
  calls = 0;
  succeeded = 0;
  attempts = 0;
  retries = 0;
  fallbacks = 0;
  readonly times = new Durations();
  readonly byCode = new Map<number, number>();
  /** `none` where nobody served. */
  readonly byProvider = new Map<string, number>();
  readonly byVersion = new Map<string, number>();

  add(outcome: Outcome, trace: readonly TraceLine[] | null): void {
    const { result } = outcome;
    const { call } = result;
    this.calls++;
    if (result.entry.code === 0) this.succeeded++;
    this.attempts += call.attempts.length;
    this.retries += retriesOf(call.attempts, call.fallbackFrom === null ? null : (trace ?? call.trace.lines()));
    if (call.fallbackFrom !== null) this.fallbacks++;
    this.times.add(result.elapsedMs);
    count(this.byCode, result.entry.code);
    count(this.byProvider, result.provider ?? 'none');
    count(this.byVersion, result.version ?? 'none');
  }

  addAll(other: Tally): void {
    this.calls += other.calls;
    this.succeeded += other.succeeded;
    this.attempts += other.attempts;
    this.retries += other.retries;
    this.fallbacks += other.fallbacks;
    this.times.addAll(other.times);
    for (const [mine, theirs] of [
      [this.byCode, other.byCode],
      [this.byProvider, other.byProvider],
      [this.byVersion, other.byVersion],
    ] as [Map<number | string, number>, Map<number | string, number>][]) {
      for (const [key, n] of theirs) mine.set(key, (mine.get(key) ?? 0) + n);
    }
  }
}

/** Attempts that the retry stage asked for. The first of each capability of a fallback chain is none. */
function retriesOf(attempts: readonly Attempt[], trace: readonly TraceLine[] | null): number {
  if (trace === null) return Math.max(0, attempts.length - 1);
  let retries = 0;
  let asked = false;
  for (const line of trace) {
    if (line.stage === 'retry') asked = line.reason === 'elsewhere';
    else if (line.stage === 'fallback') asked = false;
    else if (line.stage === 'attempt' && asked) {
      retries++;
      asked = false;
    }
  }
  return retries;
}

export function count<K>(counts: Map<K, number>, key: K): void {
  counts.set(key, (counts.get(key) ?? 0) + 1);
}
