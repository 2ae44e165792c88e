/**
 * Counts what becomes of attempts while traffic is shifted, by version and provider of the capabilities that are watched.
 * Only attempts that this sidecar makes for its own callers, or messages that it hands over: what a peer asks for is
 * counted by the peer.
 */
import { MAX_SHIFT_CELLS, type ShiftCount, TIME_BUCKETS, timeBucket } from '../../proto/wire/shifts.ts';
import type { Attempt } from '../call/attempt-record.ts';
import type { Call } from '../call/call.ts';

class Cell {
  readonly version: string;
  readonly provider: string;
  calls = 0;
  errors = 0;
  readonly times = new Uint32Array(TIME_BUCKETS);
  constructor(version: string, provider: string) {
    this.version = version;
    this.provider = provider;
  }
}

export class ShiftCounts {
  /** By capability, then by version and provider; null = nothing is watched. */
  #watched: Map<string, Map<string, Cell>> | null = null;
  #hasNews = false;
  /** Called when there is something to tell, after nothing was. */
  onNews: () => void = () => undefined;

  watch(capabilities: readonly string[]): void {
    if (capabilities.length === 0) {
      this.#watched = null;
      this.#hasNews = false;
      return;
    }
    const before = this.#watched;
    this.#watched = new Map(capabilities.map((name) => [name, before?.get(name) ?? new Map<string, Cell>()]));
  }

  attemptEnded(call: Call, attempt: Attempt): void {
    if (this.#watched === null || call.way === 'mesh' || !attempt.isTelling) return;
    const { version, provider } = attempt.candidate;
    const cells = this.#watched.get(version.capability.name);
    if (cells === undefined) return;
    const key = `${version.text} ${provider.agentId}`;
    let cell = cells.get(key);
    if (cell === undefined) {
      if (cells.size >= MAX_SHIFT_CELLS) return;
      cell = new Cell(version.text, provider.agentId);
      cells.set(key, cell);
    }
    cell.calls++;
    if (attempt.isFault) cell.errors++;
    const bucket = timeBucket(attempt.elapsedMs);
    cell.times[bucket] = (cell.times[bucket] as number) + 1;
    if (this.#hasNews) return;
    this.#hasNews = true;
    this.onNews();
  }

  /** What was counted since the last time. */
  take(): ShiftCount[] {
    this.#hasNews = false;
    const counts: ShiftCount[] = [];
    for (const [capability, cells] of this.#watched ?? [])
      for (const [key, { version, provider, calls, errors, times }] of cells) {
        // Whoever had no call since the last time may have left.
        cells.delete(key);
        const told: number[] = [];
        times.forEach((count, index) => {
          if (count > 0) told.push(index, count);
        });
        counts.push({ capability, version, provider, calls, errors, times: told });
      }
    return counts;
  }
}
