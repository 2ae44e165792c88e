/** The metrics of a replica as one page: filled anew for each scrape, so that what is gone is not shown any more, and what is not known is not 0. */
import { exposition, type Sample } from '../../base/exposition.ts';
import type { Metric } from '../../base/metric.ts';

export class ControlPage {
  readonly #declared: readonly Metric[];
  readonly #values = new Map<Metric, Sample[]>();

  constructor(declared: readonly Metric[]) {
    this.#declared = declared;
  }

  /** @param labels in the order in which they are declared */
  set(metric: Metric, value: number, ...labels: string[]): void {
    const named: Record<string, string> = {};
    for (const [i, name] of metric.labels.entries()) named[name] = labels[i] as string;
    const sample = { labels: named, value };
    const known = this.#values.get(metric);
    if (known === undefined) this.#values.set(metric, [sample]);
    else known.push(sample);
  }

  /** None of it is in buckets, so the plain format says all there is. */
  text(): Promise<string> {
    const rendered = this.#declared.map((metric) => {
      const { name, help, type } = metric;
      return { name, help, type, values: this.#values.get(metric) ?? [], aggregator: 'sum' as const };
    });
    return exposition(rendered, 'text');
  }
}
