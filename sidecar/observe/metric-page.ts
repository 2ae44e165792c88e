/** The metrics of the sidecar as one page, made from their declarations: what is counted, what is read when somebody scrapes, and the text of both. */
import { exposition } from '../../base/exposition.ts';
import type { Metric, MetricsFormat } from '../../base/metric.ts';
import { CALL_BOUNDS, MAX_HISTOGRAM_SERIES, MAX_SERIES } from './declared-metrics.ts';
import { Histogram, Reading, Series } from './series.ts';

export class MetricPage {
  /** In the order in which they are declared. */
  readonly #all = new Map<Metric, Series | Histogram | Reading>();

  constructor(declared: readonly Metric[]) {
    for (const metric of declared) this.#all.set(metric, made(metric));
  }

  /** Of a counter or gauge that is counted as things happen. */
  series(metric: Metric): Series {
    return this.#all.get(metric) as Series;
  }

  histogram(metric: Metric): Histogram {
    return this.#all.get(metric) as Histogram;
  }

  /** One value that was read for this scrape. */
  set(metric: Metric, value: number, ...labels: string[]): void {
    (this.#all.get(metric) as Reading).set(value, ...labels);
  }

  /** What was read for the last scrape is not shown any more. */
  clear(): void {
    for (const shown of this.#all.values()) if (shown instanceof Reading) shown.clear();
  }

  /**
   * Exemplars are remembered from the first time on that somebody asks for a format that has them.
   * @param wallAhead wall clock less the clock that does not jump, milliseconds: for the time of exemplars
   */
  text(format: MetricsFormat, wallAhead: number): Promise<string> {
    const rendered = [...this.#all.values()].map((shown) => {
      if (!(shown instanceof Histogram)) return shown.get();
      if (format === 'openmetrics') shown.keepExemplars();
      return shown.get(wallAhead);
    });
    return exposition(rendered, format);
  }
}

function made(metric: Metric): Series | Histogram | Reading {
  const { name, help, labels, type } = metric;
  if (type === 'histogram') return new Histogram(name, help, labels, CALL_BOUNDS, MAX_HISTOGRAM_SERIES);
  return metric.isRead ? new Reading(type, name, help, labels, MAX_SERIES) : new Series(type, name, help, labels, MAX_SERIES);
}
