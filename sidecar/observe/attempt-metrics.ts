/**
 * Attempts by provider. Cells are found once per candidate and kept on it, so that counting is two additions; with thousands of
 * providers each set of cells costs memory, so all those that have no series of their own share one.
 */
import { CODES } from '../../proto/wire/codes.ts';
import type { Attempt } from '../call/attempt-record.ts';
import type { BreakerStateName } from '../health/breaker.ts';
import type { Candidate } from '../table/snapshot.ts';
import { codePlace, codeText } from './code-places.ts';
import { MAX_SERIES, SIDECAR_METRICS as METRICS } from './declared-metrics.ts';
import type { MetricPage } from './metric-page.ts';
import type { Histogram, Series } from './series.ts';

class AttemptCells {
  readonly owner: AttemptMetrics;
  /** By place of the code; -1 = not made yet. */
  readonly attempts: Int32Array;
  readonly durations: number;
  /** Its series have been dropped: the cells are somebody else's. */
  isDropped = false;
  constructor(owner: AttemptMetrics, durations: number) {
    this.owner = owner;
    this.attempts = new Int32Array(CODES.length).fill(-1);
    this.durations = durations;
  }
}

export class AttemptMetrics {
  readonly #attempts: Series;
  readonly #seconds: Histogram;
  readonly #transitions: Series;
  /** By name, so that a pushed table goes on counting in the same cells. */
  readonly #cells = new Map<string, AttemptCells>();
  /** Of all those for whom there is no room in it; null = there has been room. */
  #others: AttemptCells | null = null;
  /** Providers that were gone at the last scrape. */
  readonly #leaving = new Set<string>();
  /** Providers of which an opening that has not been is shown. */
  readonly #watched = new Set<string>();

  constructor(page: MetricPage) {
    this.#attempts = page.series(METRICS.attempts);
    this.#seconds = page.histogram(METRICS.attemptSeconds);
    this.#transitions = page.series(METRICS.transitions);
  }

  ended(attempt: Attempt): void {
    const { candidate } = attempt;
    const cells = this.#cellsOf(candidate);
    const code = codePlace(attempt.code);
    let cell = cells.attempts[code] as number;
    if (cell < 0) {
      cell =
        cells === this.#others
          ? this.#attempts.otherCell()
          : this.#attempts.cell(candidate.version.capability.name, candidate.provider.agentId, codeText(code));
      cells.attempts[code] = cell;
    }
    this.#attempts.add(cell, 1);
    this.#seconds.add(cells.durations, attempt.elapsedMs / 1_000);
  }

  breakerMoved(agentId: string, capability: string, from: BreakerStateName, to: BreakerStateName): void {
    this.#transitions.add(this.#transitions.cell(agentId, capability, from, to), 1);
  }

  /**
   * Shows that these breakers have opened so many times, also those that never have: a series that begins with its first opening has,
   * for whoever takes increases, never had it. As long as half of the room is left to what has been.
   */
  showBreakers(breakers: Iterable<{ readonly agentId: string; readonly capability: string }>): void {
    for (const { agentId, capability } of breakers) {
      if (this.#transitions.size >= MAX_SERIES / 2) return;
      this.#transitions.cell(agentId, capability, 'closed', 'open');
      this.#watched.add(agentId);
    }
  }

  /**
   * What was counted of a provider that is gone is shown once more, so that its last calls are not lost, and then no longer:
   * agents come and go under new names, and the series of the dead would take the place of the living.
   */
  dropGone(isKnown: (agentId: string) => boolean): void {
    const isGone = ({ provider }: Readonly<Record<string, string>>): boolean =>
      provider !== undefined && this.#leaving.has(provider) && !isKnown(provider);
    for (const metric of [this.#attempts, this.#seconds, this.#transitions]) metric.drop(isGone);
    for (const [key, cells] of this.#cells) {
      const provider = key.slice(key.indexOf(' ') + 1);
      if (!isGone({ provider })) continue;
      cells.isDropped = true;
      this.#cells.delete(key);
      // There is room again: those who share are looked up anew.
      if (this.#others !== null) this.#others.isDropped = true;
      this.#others = null;
    }
    for (const provider of this.#leaving) if (!isKnown(provider)) this.#watched.delete(provider);
    this.#leaving.clear();
    for (const provider of this.#watched) if (!isKnown(provider)) this.#leaving.add(provider);
    for (const key of this.#cells.keys()) {
      const provider = key.slice(key.indexOf(' ') + 1);
      if (!isKnown(provider)) this.#leaving.add(provider);
    }
  }

  #cellsOf(candidate: Candidate): AttemptCells {
    const kept = candidate.counted;
    if (kept instanceof AttemptCells && kept.owner === this && !kept.isDropped) return kept;
    const capability = candidate.version.capability.name;
    const provider = candidate.provider.agentId;
    const key = `${capability} ${provider}`;
    let cells = this.#cells.get(key);
    if (cells === undefined && this.#cells.size < MAX_SERIES) {
      cells = new AttemptCells(this, this.#seconds.cell(capability, provider));
      this.#cells.set(key, cells);
    }
    cells ??= this.#others ??= new AttemptCells(this, this.#seconds.otherCell());
    candidate.counted = cells;
    return cells;
  }
}
