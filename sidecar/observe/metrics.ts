/**
 * The metrics of the sidecar as the rest of it sees them. What there is stands in declared-metrics.ts. The hot path adds to cells
 * that were found once per version or provider; text is made when somebody scrapes.
 */
import type { MetricsFormat } from '../../base/metric.ts';
import type { Attempt } from '../call/attempt-record.ts';
import type { Call } from '../call/call.ts';
import type { BreakerStateName } from '../health/breaker.ts';
import { AttemptMetrics } from './attempt-metrics.ts';
import { CallMetrics } from './call-metrics.ts';
import { SIDECAR_METRICS } from './declared-metrics.ts';
import { MetricPage } from './metric-page.ts';
import { readSources, type ScrapeSources } from './scrape.ts';

export class Metrics {
  readonly #page = new MetricPage(Object.values(SIDECAR_METRICS));
  readonly #calls = new CallMetrics(this.#page);
  readonly #attempts = new AttemptMetrics(this.#page);
  readonly #refused = this.#page.series(SIDECAR_METRICS.refused);
  readonly #submitted = this.#page.series(SIDECAR_METRICS.submitted);

  callStarted(call: Call): void {
    this.#calls.started(call);
  }

  callEnded(call: Call, elapsedMs: number): void {
    this.#calls.ended(call, elapsedMs);
  }

  attemptEnded(attempt: Attempt): void {
    this.#attempts.ended(attempt);
  }

  breakerMoved(agentId: string, capability: string, from: BreakerStateName, to: BreakerStateName): void {
    this.#attempts.breakerMoved(agentId, capability, from, to);
  }

  /** `reason` is one of a few fixed words. */
  requestRefused(reason: string): void {
    this.#refused.add(this.#refused.cell(reason), 1);
  }

  /** `outcome` is one of a few fixed words, or the name of a code. */
  messageSubmitted(outcome: string): void {
    this.#submitted.add(this.#submitted.cell(outcome), 1);
  }

  /** Calls under way over all ways in. */
  inFlight(): number {
    return this.#calls.inFlight();
  }

  /**
   * The exposition text; breakers and providers that are no longer known are no longer shown.
   * @param wallAhead wall clock less the clock that does not jump, milliseconds
   */
  async render(sources: ScrapeSources, format: MetricsFormat = 'text', wallAhead = 0): Promise<string> {
    if (sources.isKnown !== undefined) this.#attempts.dropGone(sources.isKnown);
    this.#page.clear();
    const breakers = [...sources.breakers];
    this.#attempts.showBreakers(breakers);
    readSources(this.#page, { ...sources, breakers });
    return this.#page.text(format, wallAhead);
  }
}
