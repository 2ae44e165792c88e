/**
 * Values of metrics as the text that scrapers read, written by prom-client in either of its formats. It is loaded at the first
 * scrape, so that a process that nobody scrapes does not carry it.
 */
import { type Metric, type MetricsFormat, metricsContentType } from './metric.ts';

export interface Sample {
  /** Of a line that is called otherwise than its metric, as those of histograms are. */
  readonly metricName?: string;
  readonly labels: Readonly<Record<string, string | number>>;
  /** The newest trace in this bucket; shown in OpenMetrics alone. */
  readonly exemplar?: Exemplar;
  /** Labels that many samples have in common; they are written out once and remembered. */
  readonly sharedLabels?: Readonly<Record<string, string>>;
  readonly value: number;
}

export interface Exemplar {
  readonly labelSet: { readonly trace_id: string };
  readonly value: number;
  /** Unix time, seconds. */
  readonly timestamp: number;
}

export interface Rendered {
  readonly name: string;
  readonly help: string;
  readonly type: Metric['type'];
  readonly values: readonly Sample[];
  readonly aggregator: 'sum';
}

/** @param metrics in the order of the page */
export async function exposition(metrics: readonly Rendered[], format: MetricsFormat): Promise<string> {
  // CommonJS, whose names stand under `default` alone when it is bundled.
  const { default: client } = await import('prom-client');
  const registry = new client.Registry();
  registry.setContentType(metricsContentType(format) as Parameters<typeof registry.setContentType>[0]);
  for (const metric of metrics) {
    // In OpenMetrics a counter is called without the `_total` that its lines have, which the Registry puts there.
    const name = format === 'openmetrics' && metric.type === 'counter' ? metric.name.replace(/_total$/, '') : metric.name;
    const shown = { ...metric, name };
    // The Registry asks a metric for its name and for `get`; its type names the four classes of its own.
    const door = { name, type: metric.type, get: () => Promise.resolve(shown) };
    registry.registerMetric(door as unknown as Parameters<typeof registry.registerMetric>[0]);
  }
  return registry.metrics();
}
